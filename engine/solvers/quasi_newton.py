"""What L-BFGS and OWL-QN share: the limited-memory inverse Hessian (THESIS 3.3.2) and the descent with it."""

from collections.abc import Callable

import numpy as np

from engine.monitor import Monitor, Result
from engine.penalty import ElasticNet
from engine.solvers.record import record
from engine.vectors import add_scaled, dot

# Pairs with less curvature than this share of |y|^2 would make the estimate indefinite.
CURVATURE = 1e-10
ROOTS = 2  # of the objective's own scaling: fewest evaluations on chunking and on letters to phonemes


class InverseHessian:
    """The last m pairs s = theta' - theta, y = gradient' - gradient, applied by two loops."""

    def __init__(self, memory: int = 8):
        self.memory = memory
        self.pairs: list[tuple[np.ndarray, np.ndarray, float]] = []

    def update(self, s: np.ndarray, y: np.ndarray) -> None:
        curvature = dot(s, y)
        if curvature > CURVATURE * dot(y, y):
            self.pairs = [*self.pairs, (s, y, 1.0 / curvature)][-self.memory :]

    def forget(self) -> None:
        self.pairs = []

    def apply(self, gradient: np.ndarray, scale: np.ndarray | None = None) -> np.ndarray:
        """H gradient, from H = gamma / scale (1 without); when no pair is known yet, to unit length."""
        direction = gradient.copy()
        if not self.pairs:
            if scale is not None:
                direction /= scale
            return direction / max(np.sqrt(dot(direction, direction)), np.finfo(float).tiny)
        steps = []
        for s, y, rho in reversed(self.pairs):
            steps.append(rho * dot(s, direction))
            add_scaled(-steps[-1], y, direction)
        s, y, rho = self.pairs[-1]
        if scale is None:
            direction *= 1.0 / (rho * dot(y, y))
        else:
            direction *= 1.0 / (rho * dot(y, y / scale))
            direction /= scale
        for (s, y, rho), a in zip(self.pairs, reversed(steps), strict=True):
            add_scaled(a - rho * dot(y, direction), s, direction)
        return direction


def descend(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor, search: Callable) -> Result:
    """Steps along -H times the (pseudo-)gradient, each found by `search`, until the monitor says stop.

    search(objective, penalty, theta, loss, gradient, direction) returns ((theta, loss,
    gradient) or None, evaluations). When it finds nothing, the Hessian is forgotten once.
    """
    inverse = InverseHessian()
    loss, gradient = objective.value_and_gradient(theta)
    evaluations, iteration = 1, 0
    reason = monitor.check(record(objective, penalty, theta, loss, gradient, 0, evaluations), theta)
    while reason is None:
        steepest = penalty.pseudo_gradient(theta, gradient)
        scale = objective.scaling(gradient, ROOTS) if hasattr(objective, "scaling") else None
        direction = -inverse.apply(steepest, scale)
        if penalty.rho1:
            direction[direction * steepest >= 0.0] = 0.0  # stay in the direction of descent, by coordinate
        found, used = search(objective, penalty, theta, loss, steepest, direction)
        evaluations += used
        if found is None and inverse.pairs:
            inverse.forget()
            continue
        if found is None:
            reason = "line_search"
            break
        new_theta, loss, new_gradient = found
        smooth = penalty.smooth_gradient(theta, gradient)
        inverse.update(new_theta - theta, penalty.smooth_gradient(new_theta, new_gradient) - smooth)
        theta, gradient = new_theta, new_gradient
        iteration += 1
        reason = monitor.check(record(objective, penalty, theta, loss, gradient, iteration, evaluations), theta)
    return Result(theta, loss + penalty.value(theta), reason, iteration, evaluations, monitor.history)
