"""Nonlinear conjugate gradient for smooth penalties: Fletcher-Reeves and Polak-Ribiere+ (IIS 4.1, THESIS 3.3.1).

The next direction is r' + b d: the steepest descent r' plus b times the direction before it.
    Fletcher-Reeves  b = r'r' / rr                    (THESIS 3.16)
    Polak-Ribiere+   b = max(0, r'(r' - r) / rr)      (THESIS 3.17, the part below zero cut off)
Fletcher-Reeves keeps to directions of descent only under the strong Wolfe conditions with a
curvature constant below 1/2, and one bad direction spoils the next; so the direction starts
afresh when successive gradients are far from orthogonal (Powell) or the slope is not downwards.
Polak-Ribiere+ starts afresh by itself, when b is cut to zero.
"""

from collections.abc import Callable

import numpy as np

from espalier.engine.optimise.monitor import Monitor, Result
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solver_state import SolverState
from espalier.engine.optimise.solvers.record import first_state, record
from espalier.engine.optimise.solvers.wolfe import wolfe
from espalier.engine.runtime.vectors import add_scaled, dot

CURVATURE = 0.1  # of the strong Wolfe condition; the usual choice for conjugate directions
ORTHOGONAL = 0.5  # r'r above this share of r'r' means that conjugacy is lost


def cg_fr(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor) -> Result:
    return _descend(objective, penalty, theta, monitor, _fletcher_reeves)


def cg_pr(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor) -> Result:
    return _descend(objective, penalty, theta, monitor, _polak_ribiere)


def _fletcher_reeves(new: np.ndarray, old: np.ndarray) -> float:
    size = dot(new, new)
    return 0.0 if abs(dot(new, old)) > ORTHOGONAL * size else size / dot(old, old)


def _polak_ribiere(new: np.ndarray, old: np.ndarray) -> float:
    return max(0.0, (dot(new, new) - dot(new, old)) / dot(old, old))


def _descend(objective, penalty: ElasticNet, theta, monitor: Monitor, conjugacy: Callable) -> Result:
    state = first_state(objective, penalty, theta, monitor)
    theta, loss, gradient, reason = state.theta, state.loss, state.gradient, state.reason
    iteration, evaluations = state.iteration, state.evaluations
    steepest = -penalty.smooth_gradient(theta, gradient)
    direction = state.vectors.get("direction", steepest)
    step = state.extra["step"] if state.extra else _first_step(steepest)
    while reason is None:
        found, used = wolfe(objective, penalty, theta, loss, -steepest, direction, step, CURVATURE, strong=True)
        evaluations += used
        if found is None and direction is not steepest:
            direction, step = steepest, _first_step(steepest)
            continue
        if found is None:
            reason = "line_search"
            break
        gain = dot(steepest, found[0] - theta)
        theta, loss, gradient = found
        old, steepest = steepest, -penalty.smooth_gradient(theta, gradient)
        direction, step = _turn(steepest, conjugacy(steepest, old), direction, gain)
        iteration += 1
        reason = monitor.check(record(objective, penalty, theta, loss, gradient, iteration, evaluations), theta)
        turned = {} if direction is steepest else {"direction": direction}
        monitor.keep(
            SolverState(theta, loss, gradient, iteration, evaluations, reason, vectors=turned, extra={"step": step})
        )
    return Result(theta, loss + penalty.value(theta), reason, iteration, evaluations, monitor.history)


def _turn(steepest: np.ndarray, b: float, direction: np.ndarray, gain: float):
    """The next direction and a first step along it, at which the slope promises the gain of the step before."""
    turned = steepest
    if b:
        turned = steepest.copy()
        add_scaled(b, direction, turned)
        if not dot(steepest, turned) > 0.0:
            turned = steepest
    slope = dot(steepest, turned)
    return turned, gain / slope if slope > 0.0 and gain > 0.0 else _first_step(steepest)


def _first_step(steepest: np.ndarray) -> float:
    """A move of unit length."""
    return 1.0 / max(np.sqrt(dot(steepest, steepest)), np.finfo(float).tiny)
