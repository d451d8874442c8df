"""L-BFGS for smooth penalties (THESIS 3.3.2), with a line search for the weak Wolfe conditions."""

import numpy as np

from engine.monitor import Monitor, Result
from engine.penalty import ElasticNet
from engine.solvers.quasi_newton import descend
from engine.vectors import dot

DECREASE, CURVATURE = 1e-4, 0.9  # the usual constants of Wolfe's conditions
TRIALS = 40  # halvings and doublings before the search is given up


def lbfgs(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor) -> Result:
    return descend(objective, penalty, theta, monitor, _search)


def _search(objective, penalty, theta, loss, smooth, direction):
    """Bisection for a step with enough decrease and a flatter slope; ((theta, loss, gradient) or None, trials)."""
    start, slope = loss + penalty.value(theta), dot(smooth, direction)
    if not slope < 0:
        return None, 0
    low, high, step = 0.0, np.inf, 1.0
    best = None
    for trial in range(1, TRIALS + 1):
        candidate = theta + step * direction
        new_loss, gradient = objective.value_and_gradient(candidate)
        value = new_loss + penalty.value(candidate)
        if not value <= start + DECREASE * step * slope:
            high = step
        elif dot(penalty.smooth_gradient(candidate, gradient), direction) < CURVATURE * slope:
            low, best = step, (candidate, new_loss, gradient)
        else:
            return (candidate, new_loss, gradient), trial
        if best is not None and high - low < 1e-3 * low:
            break
        step = 2.0 * low if np.isinf(high) else 0.5 * (low + high)
    return best, trial
