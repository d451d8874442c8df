"""Orthant-wise limited-memory quasi-Newton (Andrew and Gao; THESIS 6.3.1) for the elastic net."""

import numpy as np

from espalier.engine.optimise.monitor import Monitor, Result
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers.quasi_newton import descend
from espalier.engine.runtime.vectors import dot

DECREASE = 1e-4  # Armijo's constant
TRIALS = 30  # halvings before the search is given up


def owlqn(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor) -> Result:
    return descend(objective, penalty, theta, monitor, _search)


def _search(objective, penalty, theta, loss, pseudo, direction):
    """Backtracking along the projection on the orthant of theta (of -pseudo where theta is zero)."""
    start = loss + penalty.value(theta)
    orthant, step = penalty.orthant(theta, pseudo), 1.0
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
