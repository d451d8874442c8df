"""Solvers on one objective until the log-likelihood hardly changes (IIS 4.4): iterations, evaluations and seconds."""

from pathlib import Path

from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.weights.layout import seen_layout
from espalier.engine.weights.stop_twins import twins_of, with_twin_kinds, with_twin_texts, with_twins
from espalier.tasks.experiments.problems import Problem, fit, load

# The last four letters and the tag, as the source had to cut it down; with the next two tags, as it wanted it.
TAGS = ["Utag:%x[0,1]", "B"]  # what table 4.2 counts: with start and stop 69 features in five sentences
SHORT = ["Utag:%x[0,1]", "Uend:%s[0,0,4]", "B"]
LONG = [*SHORT[:2], "Unext:%x[1,1]", "Uafter:%x[2,1]", "B"]
CLOSE = 1e-7  # relative change of the log-likelihood between two iterations at which the source stops
POINTS = 60  # of a curve


def trained(
    solver: str, lines: list[str], limit: int | None, rho2: float, iterations: int, ends: bool, train: Path, test: Path
) -> dict:
    """One solver until an iteration changes the objective by less than CLOSE of it; `ends`: with start and stop."""
    problem = load(train, test, lines, limit)
    problem = with_stops(problem) if ends else problem
    layout = seen_layout(problem.train, len(problem.labels), problem.kinds, start=ends)
    found = fit(
        problem, layout, solver, ElasticNet(0.0, rho2), iterations=iterations, tolerance=CLOSE, period=1
    )  # fmt: skip
    curve = [[line["evaluations"], line["objective"]] for line in found.trace]
    step = max(1, len(curve) // POINTS)
    return found.figures | {
        "labels": len(problem.labels), "sentences": len(problem.train.weights), "tokens": len(problem.train.labels),
        "events": events(problem), "limit": iterations, "curve": curve, "drawn": [*curve[::step], curve[-1]],
    }  # fmt: skip


def with_stops(problem: Problem) -> Problem:
    """The problem with weights of the last label."""
    twins = twins_of(problem.kinds)
    return problem._replace(
        train=with_twins(problem.train, twins), test=with_twins(problem.test, twins),
        observations=with_twin_texts(problem.observations, problem.kinds), kinds=with_twin_kinds(problem.kinds),
    )  # fmt: skip


def events(problem: Problem) -> int:
    """(y', y, x) of IIS table 4.2: pairs of labels, start and stop among them, at all positions and behind the last."""
    return (len(problem.train.labels) + len(problem.train.weights)) * (len(problem.labels) + 2) ** 2
