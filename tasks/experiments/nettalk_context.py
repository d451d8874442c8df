"""The experiment `nettalk-context`: table 3 of SBCD, letters around a letter one by one or as n-grams."""

from tasks.experiments import Cell, Check, Comparison, Experiment, Report, Settings
from tasks.experiments.drawings import Curve, minutes, percent_tick, rows_table, share, xy_chart
from tasks.experiments.nettalk import in_context
from tasks.experiments.problems import FILES, files_of
from tasks.page import Html, figure, join, lead, number, percent

RHO1, RHO2 = 0.2, 0.001
SWEEPS, QUICK_SWEEPS, QUICK_WORDS = (20, 30), (1, 2), 120
# (kind, n): (millions of features, errors in percent and thousands of weights after 20 and 30 sweeps)
SOURCE = {
    ("pseudo", 3): (0.236, (8.98, 12.5), (8.67, 10.9)), ("pseudo", 5): (0.399, (6.77, 19.8), (6.65, 17.1)),
    ("true", 3): (14.2, (8.22, 12.8), (8.04, 11.7)), ("true", 5): (121.0, (6.51, 21.7), (6.50, 20.1)),
}  # fmt: skip
NOTES = [
    "The source does not say with which penalty it made this table; ours has ρ1 = 0.2 and ρ2 = 0.001, its best for "
    "single letters.",
    "Features are all k-grams seen in training, k odd and at most n, each with all phonemes and all pairs of "
    "phonemes. Only weights that break the optimality conditions are ever made; a scan over all of them looks for "
    "such.",
    "Our sweeps include these scans, and weights come in over several rounds: after 20 sweeps more of the work is "
    "done than in the source's first 20.",
    "Weights per position: the mean number of active weights of the observations at a position of the training "
    "data, all phonemes and pairs together. It is what a forward-backward step has to look at.",
    "Our corpus is another cut of the dictionary, harder by some points (see nettalk-sparsity).",
]


def cells(settings: Settings) -> list[Cell]:
    files, limit = files_of("nettalk", settings.data), QUICK_WORDS if settings.quick else None
    return [
        Cell(f"{kind}-{n}-{place}", in_context, {"kind": kind, "n": n, "rho1": RHO1, "rho2": RHO2, "sweeps": sweeps,
                                                 "limit": limit}, files)
        for kind, n in SOURCE for place, sweeps in enumerate(QUICK_SWEEPS if settings.quick else SWEEPS)
    ]  # fmt: skip


def name_of(kind: str, n: int) -> str:
    return f"{'pseudo ' if kind == 'pseudo' else ''}{n}-gram"


def big_table(results: dict[str, dict]) -> Html:
    rows = []
    for (kind, n), (millions, *figures) in SOURCE.items():
        for place, (error, thousands) in enumerate(figures):
            row = results[f"{kind}-{n}-{place}"]
            rows.append([f"{name_of(kind, n)}, {row['sweeps']} sweeps", f"{millions:g} M", number(row["features"]),
                         f"{error:g}%", share(row["error"]), f"{thousands:g} k", number(row["active"]),
                         number(row["per_position"]), minutes(row["seconds"])])  # fmt: skip
    heads = ["features", "all: source", "ours", "test error: source", "ours", "active: source", "ours",
             "weights per position", "time"]  # fmt: skip
    return rows_table("Table 3 of SBCD", heads, rows)


def drawn(results: dict[str, dict]) -> Html:
    """What the longer run of each model costs a position, and its error."""
    curves = [Curve(f"{kind} n-grams", [(row["per_position"], row["error"]) for row in
                                        (results[f"{kind}-{n}-1"] for n in (3, 5))])
              for kind in ("pseudo", "true")]  # fmt: skip
    chart = xy_chart("cost", "Test error by weights per position", "active weights per position", curves, percent,
                     percent_tick)  # fmt: skip
    return figure("Test error by weights per position, n = 3 and 5", chart)


def comparisons(results: dict[str, dict]) -> list[Comparison]:
    made = []
    for (kind, n), (_, *figures) in SOURCE.items():
        for place, (error, thousands) in enumerate(figures):
            row, what = results[f"{kind}-{n}-{place}"], name_of(kind, n)
            made.append(
                Comparison(
                    "SBCD table 3",
                    f"test error, {what}, {row['sweeps']} sweeps",
                    f"{error:g}%",
                    share(row["error"]),
                    f"active: {thousands:g} k in the source, {number(row['active'])}",
                )
            )
    made.append(
        Comparison(
            "SBCD 6.2",
            "time of the 5-gram model, 20 sweeps",
            "less than 5 hours",
            minutes(results["true-5-0"]["seconds"]),
        )
    )
    return made  # fmt: skip


def checks(results: dict[str, dict]) -> list[Check]:
    true, pseudo = results["true-5-1"], results["pseudo-5-1"]
    return [
        Check("true n-grams beat pseudo n-grams at n = 5", true["error"] < pseudo["error"],
              f"{share(true['error'])} against {share(pseudo['error'])}", "a smaller test error"),
        Check("with fewer weights per position", true["per_position"] < pseudo["per_position"],
              f"{number(true['per_position'])} against {number(pseudo['per_position'])}", "fewer"),
        Check("true n-grams beat pseudo n-grams at n = 3",
              results["true-3-1"]["error"] < results["pseudo-3-1"]["error"],
              f"{share(results['true-3-1']['error'])} against {share(results['pseudo-3-1']['error'])}",
              "a smaller test error"),
    ]  # fmt: skip


def report(results: dict[str, dict], settings: Settings) -> Report:
    opening = "Letters to phonemes with the letters around: each by itself, or as n-grams of which there are many more."
    sections = [("table", "All models", join([lead("The source's figures beside ours."), big_table(results),
                                                drawn(results)]))]  # fmt: skip
    return Report("Pronunciation in context", opening, comparisons(results), sections, NOTES, checks(results))


EXPERIMENT = Experiment(
    "nettalk-context", "pseudo and true n-grams of letters on Nettalk", cells, report, FILES["nettalk"], serial=True
)
