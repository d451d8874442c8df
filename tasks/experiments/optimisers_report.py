"""The experiment `optimisers`: table 4.3 of IIS, on five sentences and on all of CoNLL-2000."""

from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings, Statement
from espalier.tasks.experiments.drawings import Curve, minutes, rows_table, xy_chart
from espalier.tasks.experiments.optimisers import CLOSE, LONG, SHORT, TAGS, trained
from espalier.tasks.experiments.problems import FILES, files_of
from espalier.tasks.pages.page import Html, figure, join, lead, number

SOLVERS = {
    "gis": "generalised iterative scaling",
    "iis": "improved iterative scaling",
    "cg-fr": "conjugate gradient, Fletcher-Reeves",
    "cg-pr": "conjugate gradient, Polak-Ribière+",
    "lbfgs": "limited memory (L-BFGS)",
}
SCALING = ("gis", "iis")
BRIEF = {"gis": "GIS", "iis": "IIS", "cg-fr": "CG, FR", "cg-pr": "CG, PR+", "lbfgs": "L-BFGS"}
SOURCE = {"gis": ("held intractable",) * 3, "iis": (">150", ">150", ">188.65"), "cg-fr": ("19", "99", "124.67"),
          "cg-pr": ("27", "140", "176.55"), "lbfgs": ("22", "22", "29.72")}  # fmt: skip
# (templates, sentences, rho2, iterations at most, whether with start and stop labels)
CASES = {
    "toy": (TAGS, 5, 0.0, 3000, True),
    "five": (SHORT, 5, 0.0, 3000, False),
    "five-prior": (SHORT, 5, 1.0, 3000, False),
    "all": (LONG, None, 1.0, 200, False),
}
QUICK = {"toy": (TAGS, 5, 0.0, 60, True), "five": (SHORT, 5, 0.0, 60, False), "five-prior": (SHORT, 5, 1.0, 60, False),
         "all": (LONG, 200, 1.0, 20, False)}  # fmt: skip
TITLES = {
    "toy": "The five sentences of table 4.2, no penalty",
    "five": "Five sentences, no penalty",
    "five-prior": "Five sentences, ρ2 = 1",
    "all": "All of CoNLL-2000, ρ2 = 1",
}
NEAR = 1e-3  # share of the best objective that counts as having got there
NOTES = [
    "The source does not name its five sentences. Table 4.2 counts 10 labels, 23,760 events and 69 features, and so "
    "have the first five of the training part with the tag alone: 160 tokens and 5 stops times 12² pairs of labels, "
    "start and stop among them; 38 pairs of tag and label, 28 transitions, 2 from the start, 1 to the stop. With the "
    "last four letters, of which its text speaks, there would be 186 features; we have both.",
    "The source calls generalised iterative scaling intractable for a chain. The expectation of its correction feature "
    "is C minus those of the other features, so it is here.",
    "Without a penalty five sentences can be fitted perfectly, so the objective falls towards 0 and never settles; "
    "a run stops when an iteration gains less than 10⁻⁷ of the objective, or than 10⁻⁷ once that is below 1. With "
    "a Gaussian prior there is an optimum, and the table says how far from it each solver stopped.",
    "All of CoNLL-2000 has the context that the source wanted and could not run: the next two tags as well.",
    "One evaluation is one loss with its gradient. A small change from one iteration to the next is no proof of an "
    "optimum: the last column, evaluations to within 0.1 % of the best objective, compares like with like.",
    "Seconds are those of one machine at the time of the run.",
]


def cells(settings: Settings) -> list[Cell]:
    cases = QUICK if settings.quick else CASES
    files = files_of("conll2000", settings.data)
    return [
        Cell(f"{case}-{solver}", trained, {"solver": solver, "lines": lines, "limit": limit, "rho2": rho2,
                                           "iterations": most, "ends": ends}, files)
        for case, (lines, limit, rho2, most, ends) in cases.items() for solver in SOLVERS
    ]  # fmt: skip


def best(rows: dict[str, dict]) -> float:
    return min(row["objective"] for row in rows.values())


def evaluations_to(row: dict, level: float) -> int | None:
    """Evaluations after which the objective was first at the level."""
    return next((spent for spent, value in row["curve"] if value <= level), None)


def there(rows: dict[str, dict], solver: str) -> int | None:
    lowest = best(rows)
    return evaluations_to(rows[solver], lowest + NEAR * max(1.0, abs(lowest)))


def iterations(row: dict) -> str:
    return f">{number(row['limit'])}" if row["stop_reason"] == "max_iterations" else number(row["iterations"])


def case_table(case: str, rows: dict[str, dict]) -> Html:
    made = []
    for solver, name in BRIEF.items():
        row, spent = rows[solver], there(rows, solver)
        made.append([name, *SOURCE[solver], iterations(row), number(row["evaluations"]), minutes(row["seconds"]),
                     number(row["objective"], 4), number(spent) if spent is not None else "not reached"])  # fmt: skip
    heads = ["method", "source: steps", "evaluations", "seconds", "ours: steps", "evaluations", "time",
             "objective", "to 0.1 %"]  # fmt: skip
    return rows_table(TITLES[case], heads, made)


def case_section(case: str, rows: dict[str, dict]) -> tuple[str, str, str]:
    first = next(iter(rows.values()))
    told = (f"{number(first['sentences'])} sentences, {number(first['tokens'])} tokens, {first['labels']} labels, "
            f"{number(first['events'])} events, {number(first['weights'])} weights.")  # fmt: skip
    curves = [Curve(SOLVERS[solver], [(max(1, spent), value) for spent, value in row["drawn"]])
              for solver, row in rows.items()]  # fmt: skip
    chart = xy_chart(f"curve-{case}", f"Objective, {TITLES[case]}", "evaluations", curves, log_x=True)
    return case, TITLES[case], join([lead(told), case_table(case, rows), figure("Objective by evaluations", chart)])


def comparisons(found: dict[str, dict[str, dict]]) -> list[Comparison]:
    rows = []
    for solver, name in SOLVERS.items():
        row = found["toy"][solver]
        ours = (iterations(row), number(row["evaluations"]), f"{number(row['seconds'])} s")
        for what, source, mine in zip(("iterations", "evaluations", "seconds"), SOURCE[solver], ours, strict=True):
            rows.append(Comparison("IIS table 4.3", f"{what}, {name}", source, mine, "the five sentences, no penalty"))
    for solver, name in SOLVERS.items():
        row, spent = found["all"][solver], there(found["all"], solver)
        rows.append(
            Comparison(
                "IIS 4.4.3",
                f"all sentences, {name}",
                "could not be run",
                f"{number(row['evaluations'])} evaluations, {minutes(row['seconds'])}",
                f"within 0.1 % after {number(spent)}" if spent is not None else "not within 0.1 %",
            )
        )
    return rows  # fmt: skip


def checks(found: dict[str, dict[str, dict]]) -> list[Statement]:
    made = []
    for case, rows in found.items():
        spent = {solver: there(rows, solver) for solver in SOLVERS}
        told = ", ".join(f"{solver} {number(n) if n is not None else 'not reached'}" for solver, n in spent.items())
        most = {solver: float("inf") if n is None else n for solver, n in spent.items()}
        others = [n for solver, n in most.items() if solver != "lbfgs"]
        made.append(
            Statement(
                f"{TITLES[case]}: limited memory needs the fewest evaluations to within 0.1 % of the best",
                most["lbfgs"] < float("inf") and most["lbfgs"] <= min(others),
                told,
                "the fewest",
            )
        )
        rest = max(n for solver, n in most.items() if solver not in SCALING)
        slow = min(most[solver] for solver in SCALING) >= rest
        made.append(Statement(f"{TITLES[case]}: iterative scaling needs the most", slow, told, "the most"))
    return made  # fmt: skip


def report(results: dict[str, dict], settings: Settings) -> Report:
    found = {case: {solver: results[f"{case}-{solver}"] for solver in SOLVERS} for case in CASES}
    opening = f"Five solvers minimise the same loss until an iteration changes it by less than {CLOSE:g} of itself."
    sections = [case_section(case, rows) for case, rows in found.items()]
    return Report("Iterative scaling against numerical optimisers", opening, comparisons(found), sections, NOTES,
                  checks(found))  # fmt: skip


EXPERIMENT = Experiment(
    "optimisers", "iterations and evaluations of iterative scaling and gradient methods", cells, report,
    FILES["conll2000"], serial=True,
)  # fmt: skip
