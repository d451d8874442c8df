"""The experiment `path` (SBCD 7): all values of rho1 from the largest down, warm against cold."""

from pathlib import Path

from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings, Statement
from espalier.tasks.experiments.drawings import Curve, minutes, percent_tick, rows_table, share, xy_chart
from espalier.tasks.experiments.nettalk import LETTER, all_pairs
from espalier.tasks.experiments.problems import FILES, files_of, fit, load, measured
from espalier.tasks.pages.page import Html, figure, join, lead, number, percent, signed, tag

RHO1 = [10.0, 5.0, 2.0, 1.0, 0.5, 0.2]
RHO2, TOLERANCE, MOST = 0.001, 1e-4, 500
QUICK_RHO1, QUICK_MOST, QUICK_WORDS = [5.0, 1.0, 0.2], 5, 150
SOLVERS = {"sbcd": "SBCD", "pqn": "proximal quasi-Newton"}
SAME = 0.002  # share by which objectives of one rho1 may differ where both stop by the same rule
NOTES = [
    "The source only says that warm starts are cheap, without figures. Nettalk, single letters and pairs of "
    "phonemes, as in its table 2.",
    f"Both stop by one rule: five iterations that lower the objective by less than {TOLERANCE:g} of it. A warm "
    "start that is near the optimum may stop a little above what a cold one reaches, and the other way round; the "
    "table has both objectives.",
    "A cold start begins at zero for each ρ1; a warm one at the solution of the ρ1 before. The index of the data "
    "is made once for a path, and once for each cold start; its time is not counted in either.",
]


def warm(solver: str, rho1: list[float], rho2: float, iterations: int, limit: int | None, train: Path, test: Path):
    """A path: each point from the one before."""
    problem = load(train, test, LETTER, limit)
    layout, theta, points = all_pairs(problem), None, []
    objective = ChainObjective(problem.train, layout)
    for value in sorted(rho1, reverse=True):
        found = fit(problem, layout, solver, ElasticNet(value, rho2), iterations=iterations, tolerance=TOLERANCE,
                    theta0=theta, objective=objective)  # fmt: skip
        theta = found.theta
        points.append(found.figures | measured(problem, layout, theta, train=False) | {"rho1": value})
    return {"points": points}


def cold(solver: str, rho1: float, rho2: float, iterations: int, limit: int | None, train: Path, test: Path) -> dict:
    """One point from zero."""
    return warm(solver, [rho1], rho2, iterations, limit, train, test)["points"][0]


def cells(settings: Settings) -> list[Cell]:
    files = files_of("nettalk", settings.data)
    common = {"rho2": RHO2, "iterations": QUICK_MOST if settings.quick else MOST,
              "limit": QUICK_WORDS if settings.quick else None}  # fmt: skip
    values = QUICK_RHO1 if settings.quick else RHO1
    made = []
    for solver in SOLVERS:
        made.append(Cell(f"{solver}-warm", warm, {"solver": solver, "rho1": values} | common, files))
        made += [Cell(f"{solver}-cold-{value:g}", cold, {"solver": solver, "rho1": value} | common, files)
                 for value in values]  # fmt: skip
    return made


def paired(results: dict[str, dict], solver: str) -> list[tuple[dict, dict]]:
    """(warm, cold) of each rho1, the largest first."""
    return [(point, results[f"{solver}-cold-{point['rho1']:g}"]) for point in results[f"{solver}-warm"]["points"]]


def total(rows: list[dict], key: str) -> float:
    return sum(row[key] for row in rows)


def solver_table(solver: str, pairs: list[tuple[dict, dict]]) -> Html:
    rows = [
        [f"{w['rho1']:g}", number(w["active"]), share(w["error"]), number(w["iterations"]), number(c["iterations"]),
         minutes(w["seconds"]), minutes(c["seconds"]), number(w["objective"], 6),
         signed(100 * (w["objective"] / c["objective"] - 1), 2) + "%"]
        for w, c in pairs
    ]  # fmt: skip
    heads = ["ρ1", "active weights", "test error", "iterations: warm", "cold", "time: warm", "cold", "objective, warm",
             "against cold"]  # fmt: skip
    return rows_table(SOLVERS[solver], heads, rows)


def solver_section(results: dict[str, dict], solver: str) -> tuple[str, str, str]:
    pairs = paired(results, solver)
    lines = [Curve(name, [(row["rho1"], row["seconds"]) for row in rows])
             for name, rows in (("warm", [w for w, _ in pairs]), ("cold", [c for _, c in pairs]))]  # fmt: skip
    times = xy_chart(f"time-{solver}", "Time of each point", "ρ1", lines, minutes, log_x=True)
    errors = xy_chart(f"error-{solver}", "Test error along the path", "active weights",
                      [Curve("test error", [(max(1, w["active"]), w["error"]) for w, _ in pairs])], percent,
                      percent_tick, log_x=True)  # fmt: skip
    drawn = tag(
        "div", figure("Time of each point", times), figure("Test error along the path", errors), class_="panels"
    )
    return solver, SOLVERS[solver], join([lead(summary(pairs)), solver_table(solver, pairs), drawn])


def summary(pairs: list[tuple[dict, dict]]) -> str:
    told = []
    for name, rows in (("warm", [w for w, _ in pairs]), ("cold", [c for _, c in pairs])):
        told.append(f"{name}: {number(int(total(rows, 'iterations')))} iterations, {minutes(total(rows, 'seconds'))}")
    return "; ".join(told) + "."


def comparisons(results: dict[str, dict]) -> list[Comparison]:
    return [Comparison("SBCD 7", f"the whole path, {name}", "very little cost with warm starts",
                       summary(paired(results, solver))) for solver, name in SOLVERS.items()]  # fmt: skip


def checks(results: dict[str, dict]) -> list[Statement]:
    made = []
    for solver, name in SOLVERS.items():
        pairs = paired(results, solver)
        w, c = (total([pair[i] for pair in pairs], "iterations") for i in (0, 1))
        apart = max(abs(a["objective"] / b["objective"] - 1) for a, b in pairs)
        made.append(
            Statement(
                f"{name}: warm starts need fewer iterations over the path",
                w < c,
                f"{number(int(w))} against {number(int(c))}",
                "fewer",
            )
        )
        made.append(
            Statement(
                f"{name}: warm and cold reach the same objectives",
                apart <= SAME,
                percent(apart, 3),
                f"at most {percent(SAME, 1)} apart",
            )
        )
    return made  # fmt: skip


def report(results: dict[str, dict], settings: Settings) -> Report:
    opening = "A model for each of several ρ1, each from the one before or each from nothing: what the path costs."
    sections = [solver_section(results, solver) for solver in SOLVERS]
    return Report("The regularisation path, warm and cold", opening, comparisons(results), sections, NOTES,
                  checks(results))  # fmt: skip


EXPERIMENT = Experiment(
    "path", "a regularisation path on Nettalk, warm against cold", cells, report, FILES["nettalk"], serial=True
)
