"""Solvers on one objective until the log-likelihood hardly changes (IIS 4.4): iterations, evaluations and seconds."""

from pathlib import Path

from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.weights.layout import seen_layout
from espalier.tasks.experiments.problems import fit, load

# The last four letters and the tag, as the source had to cut it down; with the next two tags, as it wanted it.
SHORT = ["Utag:%x[0,1]", "Uend:%s[0,0,4]", "B"]
LONG = [*SHORT[:2], "Unext:%x[1,1]", "Uafter:%x[2,1]", "B"]
CLOSE = 1e-7  # relative change of the log-likelihood between two iterations at which the source stops
POINTS = 60  # of a curve


def trained(
    solver: str, lines: list[str], limit: int | None, rho2: float, iterations: int, train: Path, test: Path
) -> dict:
    """One solver until an iteration changes the objective by less than CLOSE of it."""
    problem = load(train, test, lines, limit)
    layout = seen_layout(problem.train, len(problem.labels), problem.kinds, start=False)
    found = fit(
        problem, layout, solver, ElasticNet(0.0, rho2), iterations=iterations, tolerance=CLOSE, period=1
    )  # fmt: skip
    curve = [[line["evaluations"], line["objective"]] for line in found.trace]
    step = max(1, len(curve) // POINTS)
    return found.figures | {
        "labels": len(problem.labels), "sentences": len(problem.train.weights), "tokens": len(problem.train.labels),
        "limit": iterations, "curve": curve, "drawn": [*curve[::step], curve[-1]],
    }  # fmt: skip
