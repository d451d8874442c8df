"""The experiment `simulated`: table 1 and figures 2 and 3 of SBCD, figures 7.1 to 7.6 of the thesis."""

import numpy as np

from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings, Statement
from espalier.tasks.experiments.drawings import Curve, interval, map_figure, percent_tick, rows_table, share, xy_chart
from espalier.tasks.experiments.semisup import spread
from espalier.tasks.experiments.simulated import KINDS, RHO1, WAYS, compared, converged, crossvalidated, selected
from espalier.tasks.pages.charts import Box, box_chart
from espalier.tasks.pages.page import Html, figure, join, lead, number, percent, points, tag
from espalier.tasks.sources.simulated import truth

SEQUENCES, SEED, FOLDS, SWEEPS = 10, 0, 5, 10
BLOCK, REPLICATIONS, MONTE_CARLO, VALIDATED = 10, 100, 50, 40  # a cell, figure 2, figures 7.3 to 7.6, cross-validation
PENALTIES = [0.03, 0.1, 0.3, 1.0, 3.0]  # rho2 among which cross-validation chooses
STRENGTH = 0.8  # rho1 of figures 7.3 to 7.6
MODELS = (*KINDS, *RHO1)
TABLE = {"M4": (28.5, 50.6), "M5": (15.0, 26.0), "M6": (10.9, 17.2), "M7": (6.2, 4.9), "M8": (5.8, 1.3)}
ERRORS = {"M1": (0.064, 0.185), "M7": (0.103, 0.179)}
NAMES = {"cd": "one weight at a time", "sbcd": "by blocks", "cd-without-zeros": "one at a time, zeros for good"}
SECONDS = {"cd": 126.5, "sbcd": 7.8, "cd-without-zeros": 25.8}
MOST = 15  # weights of M7
NOTES = [
    "The source draws its hidden Markov model and gives its Bayes error, not its numbers. Ours has the same shape: "
    "all transitions uniform but for two, four symbols that tell their label and a fifth that two labels share; "
    "the rate of other symbols is set so that the Bayes error is the source's.",
    "The test error is exact: every input is decoded and the truth tells how often each label is wrong, so "
    "replications differ by their samples only. The source does not say how large its test sets were.",
    "The penalty of M1 to M3 is one value for each model, the one with the least mean error by cross-validation "
    f"over {VALIDATED} replications.",
    "Weights of the start label are counted with those of pairs, as the source's footnote describes its program; "
    "they are why M1 has up to 240 weights and not 210.",
    "An iteration by blocks is not quite the source's: a block takes steps until one is accepted that lowers the "
    "objective, and the active weights take joint steps after a sweep.",
    "Seconds are those of the whole descent of ten sweeps, for one sample. In the source the ratio of single "
    "weights to blocks is 16; ours is compiled either way.",
]


def blocks(total: int) -> list[int]:
    return list(range(0, total, BLOCK))


def totals(settings: Settings) -> tuple[int, int, int, int]:
    """Replications of a block, of the models, of the other figures, and of the cross-validation."""
    return (2, 2, 2, 2) if settings.quick else (BLOCK, REPLICATIONS, MONTE_CARLO, VALIDATED)


def cells(settings: Settings) -> list[Cell]:
    """Blocks of replications of each part."""
    block, models, others, validated = totals(settings)
    common = {"replications": block, "sequences": SEQUENCES, "seed": SEED}
    grid = {"rho2": PENALTIES[1::2] if settings.quick else PENALTIES}
    made = [Cell(f"models-{r:03d}", compared, {"first": r} | common | grid) for r in blocks(models)]
    folds = {"folds": 2 if settings.quick else FOLDS}
    made += [Cell(f"validated-{r:03d}", crossvalidated, {"first": r} | folds | common | grid)
             for r in blocks(validated)]  # fmt: skip
    made += [Cell(f"selected-{r:03d}", selected, {"first": r, "rho1": STRENGTH} | common) for r in blocks(others)]
    return made + [Cell(f"converged-{r:03d}", converged, {"first": r, "rho1": STRENGTH, "sweeps": SWEEPS} | common)
                   for r in blocks(others)]  # fmt: skip


class SimulatedResults:
    """What the cells found, put together."""

    def __init__(self, results: dict[str, dict], settings: Settings):
        def of(name: str) -> list[dict]:
            return [result for key, result in results.items() if key.startswith(f"{name}-")]

        self.grid = PENALTIES[1::2] if settings.quick else PENALTIES
        self.bayes_error = of("models")[0]["bayes_error"]
        errors = {m: np.mean([c["errors"][m] for c in of("validated")], axis=0) for m in KINDS}
        self.validated = {m: row.tolist() for m, row in errors.items()}
        self.chosen = {m: self.grid[int(row.argmin())] for m, row in errors.items()}
        keys = {m: f"{m} {self.chosen[m]:g}" if m in KINDS else m for m in MODELS}
        self.rows = {m: [row for c in of("models") for row in c["models"][keys[m]]] for m in MODELS}
        self.replications = len(self.rows["M1"])
        self.trained = {
            rho2: float(np.mean([row["train"] for c in of("models") for row in c["models"][f"M1 {rho2:g}"]]))
            for rho2 in self.grid
        }
        count = sum(c["replications"] for c in of("selected"))
        self.selected = {key: np.sum([c[key] for c in of("selected")], axis=0) / count
                         for key in ("mu_chosen", "mu_sum", "lambda_chosen")}  # fmt: skip
        self.ways = {
            way: {key: np.mean([c["ways"][way][key] for c in of("converged")], axis=0)
                  for key in ("objective", "loss", "train", "test", "seconds", "zeros", "zeros_back")}
            for way in WAYS
        }  # fmt: skip

    def values(self, model: str, key: str) -> list[float]:
        return [row[key] for row in self.rows[model]]

    def mean(self, model: str, key: str) -> float:
        return float(np.mean(self.values(model, key)))


# Drawings -------------------------------------------------------------------------------------------


def boxes(found: SimulatedResults, key: str, title: str, theory: float | None) -> Html:
    made = []
    for model in MODELS:
        s = spread(np.array(found.values(model, key)))
        made.append(Box(model, "a" if model in KINDS else "b", *s["percentiles"], s["mean"]))
    drawn = box_chart(f"boxes-{key}", title, "model", made, percent, percent_tick, theory, "Bayes error")
    return figure(title, drawn)


def curves(found: SimulatedResults, key: str, title: str, errors: bool) -> Html:
    lines = [Curve(NAMES[way], list(enumerate(found.ways[way][key].tolist()))) for way in WAYS]
    written = {"write": percent, "tick": percent_tick} if errors else {}
    return figure(title, xy_chart(f"sweeps-{key}", title, "sweeps", lines, **written))


def small_map(
    key: str, title: str, rows: list[str], columns: list[str], sizes, row_name: str, column_name: str
) -> Html:
    return map_figure(key, title, rows, columns, sizes, row_name, column_name, cell=22)


def distributions() -> Html:
    model = truth()
    labels, symbols = model["labels"], model["symbols"]
    before = small_map("transition", "p(label | label before)", labels, labels, model["transition"], "before", "label")
    shown = small_map("emission", "p(symbol | label)", labels, symbols, model["emission"], "label", "symbol")
    return tag("div", before, shown, class_="panels")


def selection(found: SimulatedResults) -> Html:
    labels, symbols = truth()["labels"], truth()["symbols"]
    shape, names = (len(symbols), len(labels)), (symbols, labels)
    often, mean = (found.selected[key].reshape(shape) for key in ("mu_chosen", "mu_sum"))
    pairs = found.selected["lambda_chosen"].reshape(len(symbols), len(labels), len(labels))
    tables = {"How often μ is chosen": often, "Mean of μ, where positive": np.maximum(mean, 0),
              "Mean of μ, where negative": np.maximum(-mean, 0)}  # fmt: skip
    maps = [small_map(f"mu-{i}", title, *names, sizes.tolist(), "symbol", "label")
            for i, (title, sizes) in enumerate(tables.items())]  # fmt: skip
    maps += [small_map(f"lambda-{symbol}", f"How often λ of symbol {symbol} is chosen", labels, labels,
                       pairs[x].tolist(), "label before", "label") for x, symbol in enumerate(symbols)]  # fmt: skip
    return tag("div", *maps, class_="panels")


def models_table(found: SimulatedResults) -> Html:
    rows = []
    for m in MODELS:
        penalty = f"ρ2 = {found.chosen[m]:g}" if m in KINDS else f"ρ1 = {RHO1[m]:g}"
        low, high = interval(found.values(m, "test"))[1:]
        rows.append([m, penalty, share(found.mean(m, "train"), 1), share(found.mean(m, "test"), 1),
                     f"{share(low, 1)} to {share(high, 1)}", number(found.mean(m, "mu")),
                     number(found.mean(m, "lambda"))])  # fmt: skip
    heads = ["model", "penalty", "train error", "test error", "interval of the mean", "active μ", "active λ"]
    return rows_table("All models", heads, rows)


# Findings -------------------------------------------------------------------------------------------


def comparisons(found: SimulatedResults) -> list[Comparison]:
    rows = [Comparison("SBCD 6.1", "Bayes error", "15.4%", percent(found.bayes_error))]
    for m, (mu, pairs) in TABLE.items():
        for key, source in (("mu", mu), ("lambda", pairs)):
            what = f"active {'μ' if key == 'mu' else 'λ'} of {m}, ρ1 = {RHO1[m]:g}"
            rows.append(Comparison("SBCD table 1", what, f"{source:g}", number(found.mean(m, key))))
    for m, (train, test) in ERRORS.items():
        rows += [Comparison("SBCD fig. 2", f"{part} error of {m}", percent(source), percent(found.mean(m, part)))
                 for part, source in (("train", train), ("test", test))]  # fmt: skip
    rows.append(Comparison("SBCD fig. 2", "test error of M2 against M3", "much worse",
                           points(found.mean("M2", "test") - found.mean("M3", "test"))))  # fmt: skip
    for way, source in SECONDS.items():
        ours = float(found.ways[way]["seconds"])
        rows.append(Comparison("THESIS 7.3.1", f"time of ten sweeps, {NAMES[way]}", f"{source:g} s",
                               f"{number(1000 * ours)} ms"))  # fmt: skip
    zeros, back = (float(found.ways["cd"][key]) for key in ("zeros", "zeros_back"))
    rows.append(Comparison("THESIS 7.3.1", "zeros that are not zero after the next sweep", "rare",
                           percent(back / max(zeros, 1), 2)))  # fmt: skip
    return rows


def checks(found: SimulatedResults) -> list[Statement]:
    pairs = zip(found.values("M7", "test"), found.values("M1", "test"), strict=True)
    mean, low, high = interval([a - b for a, b in pairs])
    weights = found.mean("M7", "active")
    return [
        Statement("M7's test error is within its interval of M1's, or better", low <= 0.0,
              f"{points(mean)} against M1 ({points(low)} to {points(high)})", "an interval that reaches 0 or below"),
        Statement("M7 uses few weights", weights <= MOST, number(weights), f"at most {MOST}"),
    ]  # fmt: skip


def about_training_errors(found: SimulatedResults) -> str:
    said = ", ".join(f"{percent(error)} at ρ2 = {rho2:g}" for rho2, error in found.trained.items())
    return (
        f"Training errors follow the penalty: that of M1 is {said}. Cross-validation chose ρ2 = {found.chosen['M1']:g} "
        "here; the source does not tell what it chose."
    )


def report(results: dict[str, dict], settings: Settings) -> Report:
    found = SimulatedResults(results, settings)
    opening = (
        f"{SEQUENCES} sequences of five symbols from a hidden Markov model of six labels; {found.replications} "
        "replications. M1 to M3 have an L2 penalty (pairs and single labels, pairs alone, single labels alone), M4 to "
        "M8 an L1 penalty that grows."
    )
    sections = [
        ("distributions", "Where the data come from", join([lead("Figure 7.1."), distributions()])),
        ("models", "Models", join([
            lead("Figure 2 of SBCD. Box: the middle half; whiskers: nine in ten; line: median; dot: mean."),
            tag("div", boxes(found, "train", "Training error", None),
                boxes(found, "test", "Test error", found.bayes_error), class_="panels"),
            models_table(found)])),
        ("selection", "Which weights are chosen", join([
            lead(f"Figures 7.3 and 7.4: ρ1 = {STRENGTH:g}, shares of the replications."), selection(found)])),
        ("descent", "Ways to descend", join([
            lead(f"Figure 3 of SBCD, figures 7.5 and 7.6: ρ1 = {STRENGTH:g}, means over replications."),
            tag("div", curves(found, "loss", "Logarithmic loss", False),
                curves(found, "objective", "Objective", False), curves(found, "train", "Training error", True),
                curves(found, "test", "Test error", True), class_="panels")])),
    ]  # fmt: skip
    notes = [*NOTES, about_training_errors(found)]
    return Report("Sparse models of simulated sequences", opening, comparisons(found), sections, notes, checks(found))


EXPERIMENT = Experiment("simulated", "M1 to M8 on simulated sequences, and three ways to descend", cells, report)
