"""Proximal quasi-Newton for the elastic net: OWL-QN's curvature, without its projection.

Each step minimises the L1-penalised quadratic model
    g'd + d'Bd / 2 + rho1 |theta + d|_1
over the free weights (those that are not zero or must not stay so), where B is the
limited-memory BFGS matrix as a sum of outer products,
    B = B0 + sum_k (a_k a_k' - b_k b_k'),  a_k = y_k / sqrt(y_k's_k),  b_k = B_k s_k / sqrt(s_k'B_k s_k),
with B_k what the pairs before k make of B0 (Nocedal and Wright 2006, 7.3), so that coordinate descent
costs a few numbers a weight and sweep (Scheinberg and Tang 2016). A step never leaves the model's
minimiser for a corner of an orthant, so fewer gradients are needed than by OWL-QN; a gradient costs far
more than the sweeps.
"""

import numpy as np

from espalier.engine.optimise.monitor import Monitor, Result
from espalier.engine.optimise.penalty import ElasticNet, soft_threshold
from espalier.engine.optimise.solver_state import SolverState
from espalier.engine.optimise.solvers.record import first_state, record
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.vectors import dot

FEWEST_PAIRS, MOST_PAIRS = 20, 40  # of steps and slopes that are kept
MEMORY = 1 << 26  # numbers of all pairs together, 512 MiB, beyond which only the fewest are kept
WORK = 12  # vectors beside those of pairs
SWEEPS, PRECISION = 20, 1e-3  # of the coordinate descent: it ends when a sweep moves this share of the first
DECREASE, TRIALS = 1e-4, 30  # Armijo's constant; halvings before a search is given up
TILE, PIECE = 64, 2048  # weights whose pairs are worked on together; that one thread takes at a time
CURVATURE = 1e-10  # pairs with less than this share of |y|^2 would make B indefinite


def pqn(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor) -> Result:
    state = first_state(objective, penalty, theta, monitor)
    theta, loss, gradient, reason = state.theta, state.loss, state.gradient, state.reason
    iteration, evaluations, pairs = state.iteration, state.evaluations, state.pairs
    del state  # its vectors are needed no longer than theirs
    while reason is None:
        smooth = penalty.smooth_gradient(theta, gradient)
        free = np.flatnonzero(penalty.free(theta, smooth))
        known = "scaling" in objective.offers
        scale = objective.scaling(gradient, penalty.curvature) if known else np.ones(len(theta))
        step = _model_step(theta[free], smooth[free], scale[free], _restricted(pairs, free), penalty)
        found, used = _search(objective, penalty, theta, loss, smooth, free, step)
        evaluations += used
        if found is None and pairs:
            pairs = []
            continue
        if found is None:
            reason = "line_search"
            break
        new_theta, loss, new_gradient = found
        s, y = new_theta - theta, penalty.smooth_gradient(new_theta, new_gradient) - smooth
        if dot(s, y) > CURVATURE * dot(y, y):
            pairs = [*pairs, (s, y)][-pairs_kept(len(theta)) :]
        theta, gradient = new_theta, new_gradient
        iteration += 1
        reason = monitor.check(record(objective, penalty, theta, loss, gradient, iteration, evaluations), theta)
        monitor.keep(SolverState(theta, loss, gradient, iteration, evaluations, reason, pairs))
    return Result(theta, loss + penalty.value(theta), reason, iteration, evaluations, monitor.history)


def pairs_kept(size: int) -> int:
    """How many pairs tell the curvature: more of them save gradients, where memory allows."""
    return min(MOST_PAIRS, max(FEWEST_PAIRS, MEMORY // (2 * max(1, size))))


def vectors_kept(size: int) -> int:
    """Vectors of the length of theta at the peak: those pairs, and as many as the work takes."""
    return WORK + 2 * pairs_kept(size)


def _restricted(pairs: list, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The steps and the slopes over the free weights [m, n] of the pairs that make B positive definite there."""
    steps, slopes = np.zeros((2, len(pairs), len(free)))

    def take(k: int) -> None:
        s, y = pairs[k]
        s.take(free, out=steps[k], mode="clip")  # other modes copy once more
        y.take(free, out=slopes[k], mode="clip")

    threads.run(take, range(len(pairs)))
    curved = [k for k in range(len(pairs)) if dot(steps[k], slopes[k]) > CURVATURE * dot(slopes[k], slopes[k])]
    return (steps, slopes) if len(curved) == len(pairs) else (steps[curved], slopes[curved])


def _model_step(theta, smooth, scale, pairs: tuple[np.ndarray, np.ndarray], penalty: ElasticNet) -> np.ndarray:
    """The minimiser of the model over the free weights."""
    steps, slopes = pairs
    if len(steps):
        s, y = steps[-1], slopes[-1]
        b0 = scale * (dot(y, y / scale) / dot(s, y))
    else:
        b0 = scale * max(np.sqrt(dot(smooth / scale, smooth / scale)), np.finfo(float).tiny)
    q, curvature = _outer_products(b0, steps, slopes)
    return _descend(theta, smooth, b0, q, curvature, penalty.rho1, SWEEPS, PRECISION)


def _outer_products(b0: np.ndarray, steps: np.ndarray, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The a_k and then the b_k by rows [n, 2m], and the diagonal of B [n]."""
    m, n = steps.shape
    q, curvature = np.zeros((n, 2 * m)), np.zeros(n)
    pieces = [(lo, min(lo + PIECE, n)) for lo in range(0, n, PIECE)]

    def products(piece):
        out = np.zeros((2, m, m))
        _products(steps, slopes, b0, *piece, out)
        return out

    s_b_s, s_y = sum(threads.run(products, pieces), np.zeros((2, m, m)))
    of_a, of_step, of_slope = _combinations(s_b_s, s_y)
    threads.run(lambda piece: _rows(steps, slopes, b0, of_a, of_step, of_slope, *piece, q, curvature), pieces)
    return q, curvature


@kernel
def _products(steps, slopes, b0, lo, hi, out):
    """out[0, i, j] += s_i'B0 s_j and out[1, i, j] += s_i'y_j for j <= i, over the weights lo..hi - 1.

    Tile by tile: a tile of all pairs stays in the cache.
    """
    m = len(steps)
    scaled = np.zeros((m, TILE))
    for begin in range(lo, hi, TILE):
        count, at = np.uint64(min(TILE, hi - begin)), np.uint64(begin)
        for i in range(m):
            for k in range(count):
                scaled[i, k] = b0[at + k] * steps[i, at + k]
        for i in range(m):
            for j in range(i + 1):
                total, other = 0.0, 0.0
                for k in range(count):
                    total += scaled[j, k] * steps[i, at + k]
                    other += steps[i, at + k] * slopes[j, at + k]
                out[0, i, j] += total
                out[1, i, j] += other


@kernel
def _combinations(s_b_s, s_y):
    """a_k = of_a[k] y_k and b_k = sum_j of_step[k, j] B0 s_j + of_slope[k, j] y_j, from the products for j <= k.

    B_k s_k = B0 s_k + sum_{j < k} a_j (a_j's_k) - b_j (b_j's_k). A pair whose s_k'B_k s_k is lost to rounding
    is left out.
    """
    m = len(s_y)
    of_a, of_step, of_slope = np.zeros(m), np.zeros((m, m)), np.zeros((m, m))
    for k in range(m):
        of_step[k, k] = 1.0
        for j in range(k):
            of_slope[k, j] += s_y[k, j] * of_a[j] * of_a[j]
            along = 0.0  # b_j's_k
            for i in range(j + 1):
                along += of_step[j, i] * s_b_s[k, i] + of_slope[j, i] * s_y[k, i]
            for i in range(j + 1):
                of_step[k, i] -= along * of_step[j, i]
                of_slope[k, i] -= along * of_slope[j, i]
        curved = 0.0
        for i in range(k + 1):
            curved += of_step[k, i] * s_b_s[k, i] + of_slope[k, i] * s_y[k, i]
        if curved > CURVATURE * s_b_s[k, k]:
            of_a[k] = 1.0 / np.sqrt(s_y[k, k])
        length = 1.0 / np.sqrt(curved) if of_a[k] > 0.0 else 0.0
        for i in range(k + 1):
            of_step[k, i] *= length
            of_slope[k, i] *= length
    return of_a, of_step, of_slope


@kernel
def _rows(steps, slopes, b0, of_a, of_step, of_slope, lo, hi, q, curvature):
    """q[i] = (a_1[i], ..., b_1[i], ...) and curvature[i] = B[i, i] of the weights lo..hi - 1, tile by tile."""
    m = len(steps)
    scaled, tile, diagonal = np.zeros((m, TILE)), np.zeros((2 * m, TILE)), np.zeros(TILE)
    for begin in range(lo, hi, TILE):
        count, at = np.uint64(min(TILE, hi - begin)), np.uint64(begin)
        for k in range(count):
            diagonal[k] = b0[at + k]
        for i in range(m):
            for k in range(count):
                scaled[i, k] = b0[at + k] * steps[i, at + k]
                tile[i, k] = of_a[i] * slopes[i, at + k]
                diagonal[k] += tile[i, k] * tile[i, k]
        for i in range(m):
            for k in range(count):
                tile[m + i, k] = 0.0
            for j in range(i + 1):
                x, y = of_step[i, j], of_slope[i, j]
                for k in range(count):
                    tile[m + i, k] += x * scaled[j, k] + y * slopes[j, at + k]
            for k in range(count):
                diagonal[k] -= tile[m + i, k] * tile[m + i, k]
        for k in range(count):
            curvature[at + k] = max(diagonal[k], 1e-8 * b0[at + k])
            for i in range(2 * m):
                q[at + k, i] = tile[i, k]


@kernel
def _descend(theta, smooth, b0, q, curvature, rho1, sweeps, precision):
    """Coordinate descent on the model; `inner` = (a_1'd, ..., -b_1'd, ...) follows the step d."""
    n, m = len(q), q.shape[1] // 2
    step, inner = np.zeros(n), np.zeros(2 * m)
    first = 0.0
    for sweep in range(sweeps):
        moved = 0.0
        for i in range(n):
            slope = smooth[i] + b0[i] * step[i]
            for k in range(2 * m):
                slope += q[i, k] * inner[k]
            here = theta[i] + step[i]
            change = soft_threshold(here - slope / curvature[i], rho1 / curvature[i]) - here
            if change != 0.0:
                step[i] += change
                moved += change * change * curvature[i]
                for k in range(m):
                    inner[k] += q[i, k] * change
                for k in range(m, 2 * m):
                    inner[k] -= q[i, k] * change
        if sweep == 0:
            first = moved
        if moved <= precision * first:
            break
    for i in range(n):
        if theta[i] + step[i] == 0.0:
            step[i] = -theta[i]
    return step


def _search(objective, penalty: ElasticNet, theta, loss, smooth, free, step):
    """Backtracking along the step; ((theta, loss, gradient) or None, trials)."""
    start, before = loss + penalty.value(theta), theta[free]
    promise = dot(smooth[free], step) + penalty.change_of_kinks(before, before + step)
    if not promise < 0.0:
        return None, 0
    length = 1.0
    for trial in range(1, TRIALS + 1):
        candidate = theta.copy()
        candidate[free] = before + length * step
        new_loss, gradient = objective.value_and_gradient(candidate)
        value = new_loss + penalty.value(candidate)
        if value <= start + DECREASE * length * promise and value < start:
            return (candidate, new_loss, gradient), trial
        length *= 0.5
    return None, TRIALS
