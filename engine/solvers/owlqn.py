"""Orthant-wise limited-memory quasi-Newton (Andrew and Gao; THESIS 6.3.1) for the elastic net."""

import numpy as np

from engine.monitor import Monitor, Result
from engine.penalty import ElasticNet
from engine.solvers.quasi_newton import InverseHessian
from engine.vectors import dot

DECREASE = 1e-4  # Armijo's constant
TRIALS = 30  # halvings before the search is given up


def owlqn(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor) -> Result:
    from engine.solvers import record

    inverse = InverseHessian()
    loss, gradient = objective.value_and_gradient(theta)
    evaluations, iteration = 1, 0
    reason = monitor.check(record(objective, penalty, theta, loss, gradient, 0, evaluations), theta)
    while reason is None:
        pseudo = penalty.pseudo_gradient(theta, gradient)
        direction = -inverse.apply(pseudo)
        direction[direction * pseudo >= 0.0] = 0.0  # stay in the direction of descent, by coordinate
        found, used = _search(objective, penalty, theta, loss, pseudo, direction)
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


def _search(objective, penalty, theta, loss, pseudo, direction):
    """Backtracking along the projection on the orthant of theta (of -pseudo where theta is zero)."""
    start = loss + penalty.value(theta)
    orthant = np.where(theta != 0.0, np.sign(theta), -np.sign(pseudo)) if penalty.rho1 else None
    step = 1.0
    for trial in range(1, TRIALS + 1):
        candidate = theta + step * direction
        if orthant is not None:
            candidate[candidate * orthant <= 0.0] = 0.0
        new_loss, gradient = objective.value_and_gradient(candidate)
        value = new_loss + penalty.value(candidate)
        if value <= start + DECREASE * dot(pseudo, candidate - theta) and value < start:
            return (candidate, new_loss, gradient), trial
        step *= 0.5
    return None, TRIALS
