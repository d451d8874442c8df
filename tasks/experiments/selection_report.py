"""The experiment `selection`: figures 7.17 and 7.18 of the thesis, on CoNLL-2000 and Spanish named entities."""

import math

from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings, Statement
from espalier.tasks.experiments.drawings import Curve, minutes, percent_tick, rows_table, share, xy_chart
from espalier.tasks.experiments.problems import FILES, files_of
from espalier.tasks.experiments.selection import after, before, during
from espalier.tasks.pages.page import Html, figure, join, lead, number, percent, tag

CORPORA = {"conll2000": "Chunks (CoNLL-2000)", "conll2002-esp": "Spanish named entities (CoNLL-2002)"}
SIZES = [300, 1_000, 3_000, 9_000, 30_000, 100_000]
RHO1 = [0.5, 1.0, 3.0, 10.0, 50.0]
RHO2, ITERATIONS, SWEEPS, STEPS = 1e-5, 60, 12, 60
QUICK_SIZES, QUICK_RHO1, QUICK_SENTENCES = [30, 100], [1.0, 5.0], 60
WAYS = {"cut-off": "cut-off by count", "information": "mutual information", "threshold": "largest weights of L2",
        "sbcd": "L1 by SBCD", "owlqn": "L1 by OWL-QN"}  # fmt: skip
BASELINES = ("cut-off", "information", "threshold")
FEW = 10_000
NOTES = [
    "The source has these figures for CoNLL-2003, English, which we have not; ours are of chunks and of Spanish "
    "named entities, its test B. Its figures are drawings without numbers, so only its statements can be compared.",
    "Features are those of single labels and of pairs of labels with the word and with the tag. Cut-off can choose "
    "among those seen in training only; the others among all.",
    "Models of features chosen before training are trained with ρ2 = 1. The largest weights of an L2 model are "
    "kept as they are, as in the source.",
    "The source finds cut-off very poor and mutual information better. Here it is the other way round below 9,000 "
    "weights on both corpora. Mutual information scores each feature by itself, so it spends weights on many labels of "
    "the same frequent words and tags, also on pairs never seen, which say much the same. With 1,000 weights those of "
    "cut-off know the word of 56% of the test tokens of CoNLL-2000 and those of mutual information of 47%; for Spanish "
    "it is 62% and 50%.",
    "OWL-QN runs on weights that break the optimality conditions and is given more of them in rounds, like SBCD. "
    "Both minimise the same objective and end at the same model in the limit; the table tells how far each has come "
    f"after {STEPS} iterations and {SWEEPS} sweeps. One that has not come as far has more weights and errs more.",
    "A baseline is compared with what L1 reaches with at most as many weights: between two of its models along the "
    "logarithm, or a smaller one that errs less. A baseline with fewer weights than the sparsest L1 model is compared "
    "with that one.",
]


def cells(settings: Settings) -> list[Cell]:
    made, quick = [], settings.quick
    limit, steps = (QUICK_SENTENCES, 3) if quick else (None, ITERATIONS)
    fixed = {"sizes": QUICK_SIZES if quick else SIZES, "iterations": steps, "limit": limit}
    for corpus in CORPORA:
        files = files_of(corpus, settings.data)
        made += [Cell(f"{corpus}-{way}", before, {"way": way} | fixed, files) for way in BASELINES[:2]]
        made.append(Cell(f"{corpus}-threshold", after, fixed, files))
        for solver, most in (("sbcd", SWEEPS), ("owlqn", STEPS)):
            common = {"solver": solver, "rho2": RHO2, "sweeps": 2 if quick else most, "limit": limit}
            made += [Cell(f"{corpus}-{solver}-{value:g}", during, {"rho1": value} | common, files)
                     for value in (QUICK_RHO1 if quick else RHO1)]  # fmt: skip
    return made


def curves_of(results: dict[str, dict], corpus: str) -> dict[str, list[dict]]:
    """The models of each way, the smallest first."""
    found = {way: results[f"{corpus}-{way}"]["rows"] for way in BASELINES}
    for solver in ("sbcd", "owlqn"):
        found[solver] = [row for key, row in results.items() if key.startswith(f"{corpus}-{solver}-")]
    return {way: sorted(rows, key=lambda row: row["active"]) for way, rows in found.items()}


def at(rows: list[dict], active: int, key: str) -> float:
    """The value at a number of weights, between two models along the logarithm; beyond the ends that of the end."""
    known = [(math.log(max(1, row["active"])), row[key]) for row in rows]
    x = math.log(max(1, active))
    for (a, u), (b, v) in zip(known, known[1:], strict=False):
        if a <= x <= b and b > a:
            return u + (v - u) * (x - a) / (b - a)
    return known[0][1] if x < known[0][0] else known[-1][1]


def best(rows: list[dict], active: int) -> float:
    """The least error with at most so many weights; of the smallest model, if all have more."""
    return min([at(rows, active, "error"), *(row["error"] for row in rows if row["active"] <= active)])


def charts(found: dict[str, list[dict]], corpus: str) -> Html:
    drawn = []
    for key, title in (("error", "Test error"), ("f1", "F1")):
        curves = [Curve(name, [(max(1, row["active"]), row[key]) for row in found[way]]) for way, name in WAYS.items()]
        chart = xy_chart(f"{corpus}-{key}", title, "active weights", curves, percent, percent_tick, log_x=True)
        drawn.append(figure(f"{title} by active weights", chart))
    return tag("div", *drawn, class_="panels")


def models_table(found: dict[str, list[dict]]) -> Html:
    rows = [
        [name, f"{row['rho1']:g}" if "rho1" in row else "", number(row["active"]), share(row["error"]),
         share(row["f1"]), number(row["objective"]) if "rho1" in row else "",
         minutes(row["seconds"]) if "seconds" in row else ""]
        for way, name in WAYS.items() for row in found[way]
    ]  # fmt: skip
    return rows_table("All models", ["way", "ρ1", "active weights", "test error", "F1", "objective", "time"], rows)


def small(found: dict[str, list[dict]], way: str) -> list[dict]:
    return [row for row in found[way] if 0 < row["active"] < FEW]


def checks(found: dict[str, dict[str, list[dict]]]) -> list[Statement]:
    made = []
    for corpus, curves in found.items():
        for way in BASELINES:
            rows = [(row, best(curves["sbcd"], row["active"])) for row in small(curves, way)]
            told = "; ".join(f"{number(row['active'])}: {share(row['error'])} against {share(l1)}" for row, l1 in rows)
            made.append(
                Statement(
                    f"{CORPORA[corpus]}: {WAYS[way]} is worse than L1 below {number(FEW)} weights",
                    all(row["error"] > l1 for row, l1 in rows),
                    told,
                    "a larger error at every number",
                )
            )
    return made  # fmt: skip


def comparisons(found: dict[str, dict[str, list[dict]]]) -> list[Comparison]:
    said = {"cut-off": "very poor", "information": "better than cut-off", "threshold": "poor below 10,000 weights",
            "sbcd": "the best"}  # fmt: skip
    made = []
    for corpus, curves in found.items():
        for way, source in said.items():
            rows = small(curves, way) or curves[way][:1]
            row = rows[-1]
            made.append(
                Comparison(
                    "THESIS fig. 7.17",
                    f"{WAYS[way]}, {CORPORA[corpus]}",
                    source,
                    f"{share(row['error'])} error, F1 {share(row['f1'])}",
                    f"with {number(row['active'])} weights",
                )
            )
    return made  # fmt: skip


def report(results: dict[str, dict], settings: Settings) -> Report:
    found = {corpus: curves_of(results, corpus) for corpus in CORPORA}
    opening = "Five ways to end up with few weights: what each costs in accuracy."
    sections = [
        (corpus, title, join([lead("Figures 7.17 and 7.18."), charts(found[corpus], corpus),
                              models_table(found[corpus])]))
        for corpus, title in CORPORA.items()
    ]  # fmt: skip
    return Report("Ways to choose features", opening, comparisons(found), sections, NOTES, checks(found))


EXPERIMENT = Experiment(
    "selection", "cut-off, mutual information, thresholds and L1 on two corpora", cells, report,
    (*FILES["conll2000"], *FILES["conll2002-esp"]), serial=True,
)  # fmt: skip
