"""Our side of a comparison: fits with a curve of seconds and objective, gradients, measures."""

import time
from dataclasses import dataclass

import numpy as np

from benchmarks.corpora import Problem
from espalier.engine.data.dataset import Dataset
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import SOLVERS, minimise
from espalier.engine.weights.layout import Layout
from espalier.tasks.experiments.problems import accuracy, decoded, warm_up

__all__ = ["Fit", "accuracy", "decoded", "fit", "gradient_seconds", "reached", "solvers", "summary", "warm_up"]


@dataclass
class Fit:
    theta: np.ndarray
    objective: float
    seconds: float
    curve: list[tuple[float, float]]  # seconds since the beginning, objective; one for each iteration
    function: ChainObjective


def solvers(*wanted: str) -> list[str]:
    """Those of the wanted solvers that this version has."""
    return [name for name in wanted if name in SOLVERS]


def fit(
    dataset: Dataset, layout: Layout, solver: str, penalty: ElasticNet, *, begin: float | None = None,
    target: float | None = None, limit: float = np.inf, max_iterations: int = 10_000, tolerance: float = 1e-4,
) -> Fit:  # fmt: skip
    """Minimise until `target` or `limit` seconds; time runs from `begin`, or from before the index is made."""
    begin = time.perf_counter() if begin is None else begin
    curve: list[tuple[float, float]] = []

    def watch(record: dict, theta: np.ndarray) -> bool:
        curve.append((time.perf_counter() - begin, record["objective"]))
        return (target is not None and record["objective"] <= target) or curve[-1][0] > limit

    objective = ChainObjective(dataset, layout)
    # With a target, only the target stops.
    tolerance = tolerance if target is None else 0.0
    result = minimise(
        solver, objective, penalty, max_iterations=max_iterations, tolerance=tolerance, on_iteration=watch
    )
    return Fit(result.theta, float(result.objective), time.perf_counter() - begin, curve, objective)


def seconds_to(curve: list, level: float) -> float | None:
    """When the objective was first at `level` or below."""
    return next((seconds for seconds, objective in curve if objective <= level), None)


def reached(curve: list, reference: float | None) -> dict:
    """Seconds to within 1 % and 0.1 % of a reference objective."""
    if reference is None:
        return {}
    return {"seconds_to_1pct": seconds_to(curve, 1.01 * reference),
            "seconds_to_01pct": seconds_to(curve, 1.001 * reference)}  # fmt: skip


def gradient_seconds(objective: ChainObjective, theta: np.ndarray, repeats: int = 3) -> float:
    """Median time of one gradient, after one that is not counted."""
    objective.value_and_gradient(theta)
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        objective.value_and_gradient(theta)
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def summary(problem: Problem, layout: Layout, found: Fit, reference: float | None = None) -> dict:
    """The fields of a row, and `curve` and `parts` for the case to look at."""
    parts = found.function.active(found.theta)
    return {
        "seconds": found.seconds, "objective": found.objective, "active": int(np.count_nonzero(found.theta)),
        "seconds_per_gradient": gradient_seconds(found.function, found.theta),
        **reached(found.curve, reference), **accuracy(problem, decoded(problem, layout, found.theta)),
        "curve": found.curve, "parts": parts,
    }  # fmt: skip
