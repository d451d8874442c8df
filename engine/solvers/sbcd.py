"""Sparse blockwise coordinate descent (SBCD algorithm 2).

One block holds all weights of one observation value. A block is moved to the minimiser
of its quadratic model (13)-(14) with the diagonal second derivative (16) times a factor;
the factor grows until the objective does not rise and shrinks again when steps succeed,
which replaces the fixed scaling of THESIS 7.4. Blocks that are zero and stay zero are
left out of later sweeps; before stopping, the optimality conditions of all weights are
checked by one full gradient and violated blocks come back.
"""

import numpy as np

from engine.blocks import Blocks
from engine.monitor import Monitor, Result
from engine.penalty import ElasticNet, soft_threshold
from engine.solvers.record import record

SMALLEST, LARGEST = 1.0, 2.0**30  # bounds of the factor on the second derivative
FLOOR = 1e-10  # of a second derivative, so that a certain prediction divides by something


def sbcd(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor) -> Result:
    blocks = Blocks(objective, theta)
    factor = np.full(blocks.count, 2.0)
    loss, gradient = objective.value_and_gradient(theta)
    evaluations, iteration = 1, 0
    reason = monitor.check(record(objective, penalty, theta, loss, gradient, 0, evaluations), theta)
    while reason is None:
        chosen = _candidates(blocks, penalty, theta, gradient)
        moved = sum([_update(blocks, x, penalty, factor) for x in np.flatnonzero(chosen)])
        loss, gradient = objective.value_and_gradient(theta)
        evaluations += 1
        iteration += 1
        reason = monitor.check(record(objective, penalty, theta, loss, gradient, iteration, evaluations), theta)
        if reason is None and not moved:
            reason = "line_search"
    return Result(theta, loss + penalty.value(theta), reason, iteration, evaluations, monitor.history)


def _candidates(blocks: Blocks, penalty: ElasticNet, theta, gradient) -> np.ndarray:
    """Blocks that hold a weight, or that violate the optimality conditions at zero."""
    layout = blocks.objective.layout
    live = ((theta != 0.0) | (np.abs(penalty.pseudo_gradient(theta, gradient)) > 0.0)).astype(np.int64)
    total = np.concatenate([[0], np.cumsum(live)])
    runs = (layout.unigram_ptr, layout.start_ptr, layout.bigram_ptr)
    return sum(total[ptr[1:]] - total[ptr[:-1]] for ptr in runs) > 0


def _update(blocks: Blocks, x: int, penalty: ElasticNet, factor: np.ndarray) -> bool:
    """Move block x; True when it moved."""
    slots = blocks.slots(x)
    before = blocks.theta[slots]
    if not len(blocks.members(x)):
        return _forget(blocks, slots, penalty)
    first, second = blocks.derivatives(x, slots)
    second = np.maximum(second, FLOOR)
    while factor[x] <= LARGEST:
        curvature = factor[x] * second
        after = soft_threshold(curvature * before - first, penalty.rho1) / (curvature + penalty.rho2)
        if np.array_equal(after, before):
            return False
        change = blocks.move(x, slots, after) + penalty.value(after) - penalty.value(before)
        if change <= 0.0:
            factor[x] = max(SMALLEST, 0.5 * factor[x])
            return True
        blocks.undo()
        factor[x] *= 4.0
    factor[x] = 2.0
    return False


def _forget(blocks: Blocks, slots: np.ndarray, penalty: ElasticNet) -> bool:
    """An observation that occurs nowhere has only its penalty: its weights are best at zero."""
    held = bool(np.any(blocks.theta[slots])) and (penalty.rho1 > 0 or penalty.rho2 > 0)
    if held:
        blocks.theta[slots] = 0.0
    return held
