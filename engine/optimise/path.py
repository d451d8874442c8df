"""The regularisation path: from the rho1 at which nothing is active down, each point from the one before (SBCD 7).

A model with a large rho1 is small and found fast, and it is a good start for the next
smaller rho1; so a whole path costs little more than its last point.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.optimise.objective import Objective, active_counts
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import SOLVERS, fitting_names, minimise

COUNT = 20
RATIO = 1e-3  # of the last rho1 of a grid to its first


@dataclass(frozen=True)
class Point:
    """One solved penalty; theta is kept as its weights that are not zero."""

    rho1: float
    rho2: float
    objective: float
    indices: np.ndarray  # int64, slots of the active weights
    values: np.ndarray  # float64
    size: int
    active: dict[str, int]  # by family, as the objective counts them
    iterations: int
    stop_reason: str

    def theta(self) -> np.ndarray:
        theta = np.zeros(self.size)
        theta[self.indices] = self.values
        return theta


def largest_rho1(objective: Objective) -> float:
    """The smallest rho1 at which theta = 0 is optimal: the largest slope of the loss there."""
    return float(np.abs(objective.value_and_gradient(np.zeros(objective.size))[1]).max(initial=0.0))


def grid(largest: float, count: int = COUNT, ratio: float = RATIO) -> np.ndarray:
    """`count` values from `largest` down to ratio * largest, each the same share of the one before."""
    if count < 1:
        raise EspalierError(f"a path of {count} points: expected at least 1")
    if not 0.0 < ratio < 1.0:
        raise EspalierError(f"ratio is {ratio}: expected the last rho1 over the first, between 0 and 1")
    return largest * ratio ** (np.arange(count) / max(1, count - 1))


def path(
    objective: Objective,
    rho1: int | Sequence[float] = COUNT,
    rho2: float = 0.0,
    solver: str = "owlqn",
    on_point: Callable[[Point], bool | None] | None = None,
    max_iterations: int = 1000,
    tolerance: float = 1e-5,
    theta0: np.ndarray | None = None,
) -> list[Point]:
    """Solve for each rho1, the largest first and from theta0. `rho1` is a list of values, or how many to lay on a grid.

    `on_point` hears each point as it is found and may end the path by returning True, for example when a
    score on development data has begun to fall.
    """
    if solver in SOLVERS and not SOLVERS[solver].accepts_l1:
        others = fitting_names(objective.offers, l1=True)
        raise EspalierError(f"{solver} cannot follow a path of rho1: choose one of {others}")
    values = grid(largest_rho1(objective), rho1) if isinstance(rho1, int | np.integer) else np.asarray(rho1, float)
    if values.ndim != 1 or len(values) == 0:
        raise EspalierError("a path needs at least one rho1: give a list of values or how many")
    points, theta = [], theta0
    for value in np.sort(values)[::-1]:
        penalty = ElasticNet(float(value), rho2)
        result = minimise(solver, objective, penalty, theta, max_iterations, tolerance)
        points.append(_point(objective, penalty, result))
        theta = result.theta
        if on_point is not None and on_point(points[-1]):
            break
    return points


def _point(objective: Objective, penalty: ElasticNet, result) -> Point:
    indices = np.flatnonzero(result.theta)
    active = active_counts(objective, result.theta) or {"active": len(indices)}
    return Point(
        penalty.rho1, penalty.rho2, float(result.objective), indices, result.theta[indices], len(result.theta),
        active, result.iterations, result.stop_reason,
    )  # fmt: skip


def choose(points: Sequence[Point], score: Callable[[Point], float]) -> Point:
    """The point with the highest score, on development data as a rule; of equals the one with fewest weights."""
    if not points:
        raise EspalierError("there is no point to choose from: expected those of a path")
    scores = [score(point) for point in points]
    for point, value in zip(points, scores, strict=True):
        if np.isnan(value):
            raise EspalierError(f"the score of rho1 = {point.rho1} is not a number: check the development data")
    best = max(scores)
    return min(
        (point for point, value in zip(points, scores, strict=True) if value == best),
        key=lambda point: (len(point.indices), -point.rho1),
    )
