"""Newton-Raphson for smooth penalties (THESIS 2.2.1, 2.3-2.5): dense Hessian, few weights.

It needs `objective.hessian(theta)`, which a chain objective does not have, so it is not in the
list of solvers that train a CRF. The step solves (H + rho2 I) d = -g by Cholesky and is halved
until the objective falls; where H is singular, a ridge is added that grows until it is not.
"""

import numpy as np

from espalier.engine.optimise.monitor import Monitor, Result
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers.record import record
from espalier.engine.runtime.cholesky import factorise, substitute
from espalier.engine.runtime.vectors import dot

DECREASE, TRIALS = 1e-4, 40  # Armijo's constant; halvings before a search is given up
FIRST_RIDGE = 1e-10  # of the largest diagonal entry; ten times as much after each failure
RIDGES = 14
SINGULAR = 1e-13  # a pivot below this share of its diagonal entry is rounding
ROUNDING = 1e-13  # relative, of a sum of losses


def newton(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor) -> Result:
    loss, gradient = objective.value_and_gradient(theta)
    evaluations, iteration = 1, 0
    reason = monitor.check(record(objective, penalty, theta, loss, gradient, 0, evaluations), theta)
    while reason is None:
        smooth = penalty.smooth_gradient(theta, gradient)
        direction = _direction(objective.hessian(theta), penalty.curvature, smooth)
        found, used = _halve(objective, penalty, theta, loss, smooth, direction)
        evaluations += used
        if found is None:
            reason = "line_search"
            break
        theta, loss, gradient = found
        iteration += 1
        reason = monitor.check(record(objective, penalty, theta, loss, gradient, iteration, evaluations), theta)
    return Result(theta, loss + penalty.value(theta), reason, iteration, evaluations, monitor.history)


def _direction(hessian: np.ndarray, rho2: float, smooth: np.ndarray) -> np.ndarray:
    """-(H + rho2 I)^-1 g, with as small a ridge as makes the matrix positive definite."""
    diagonal = np.arange(len(smooth))
    hessian[diagonal, diagonal] += rho2
    largest = max(float(hessian[diagonal, diagonal].max(initial=0.0)), np.finfo(float).tiny)
    ridge = 0.0
    for trial in range(RIDGES):
        lower = hessian.copy()
        lower[diagonal, diagonal] += ridge
        if factorise(lower, SINGULAR):
            direction = -smooth
            substitute(lower, direction)
            return direction
        ridge = FIRST_RIDGE * largest * 10.0**trial
    return -smooth / largest


def _halve(objective, penalty: ElasticNet, theta, loss, smooth, direction):
    """The full step, or its half, quarter, ..., that lowers the objective; ((theta, loss, gradient) or None, trials).

    Close to the optimum a step gains less than the objective is rounded by; there a smaller gradient decides.
    """
    start, slope, step = loss + penalty.value(theta), dot(smooth, direction), 1.0
    if not slope < 0.0:
        return None, 0
    noise = ROUNDING * max(1.0, abs(start))
    for trial in range(1, TRIALS + 1):
        candidate = theta + step * direction
        new_loss, gradient = objective.value_and_gradient(candidate)
        value = new_loss + penalty.value(candidate)
        if value <= start + DECREASE * step * slope and value < start:
            return (candidate, new_loss, gradient), trial
        if -slope <= noise:
            flatter = penalty.optimality(candidate, gradient) < float(np.abs(smooth).max())
            return ((candidate, new_loss, gradient) if flatter and value <= start + noise else None), trial
        step *= 0.5
    return None, TRIALS
