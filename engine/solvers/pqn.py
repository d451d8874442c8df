"""Proximal quasi-Newton for the elastic net: OWL-QN's curvature, without its projection.

Each step minimises the L1-penalised quadratic model
    g'd + d'Bd / 2 + rho1 |theta + d|_1
over the free weights (those that are not zero or must not stay so), where B is the
limited-memory BFGS matrix in compact form (Byrd, Nocedal and Schnabel 1994),
B = B0 - Q M^-1 Q', so that coordinate descent costs a few numbers a weight and sweep
(Scheinberg and Tang 2016). A step never leaves the model's minimiser for a corner of an
orthant, so fewer gradients are needed than by OWL-QN; a gradient costs far more than the sweeps.
"""

import numpy as np

from engine import threads
from engine.jit import kernel
from engine.monitor import Monitor, Result
from engine.penalty import ElasticNet
from engine.solvers.record import first_state, record
from engine.state import State
from engine.vectors import chunks, dot

MEMORY = 20
SWEEPS, PRECISION = 20, 1e-3  # of the coordinate descent: it ends when a sweep moves this share of the first
DECREASE, TRIALS = 1e-4, 30  # Armijo's constant; halvings before a search is given up
TILE = 256  # coordinates of all pairs that are worked on together
CURVATURE = 1e-10  # pairs with less than this share of |y|^2 would make B indefinite


def pqn(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor) -> Result:
    state = first_state(objective, penalty, theta, monitor)
    theta, loss, gradient, reason = state.theta, state.loss, state.gradient, state.reason
    iteration, evaluations, pairs = state.iteration, state.evaluations, state.pairs
    del state  # its vectors are needed no longer than theirs
    while reason is None:
        smooth = penalty.smooth_gradient(theta, gradient)
        free = np.flatnonzero((theta != 0.0) | (np.abs(smooth) > penalty.rho1))
        scale = objective.scaling(gradient, penalty.rho2) if hasattr(objective, "scaling") else np.ones(len(theta))
        step = _model_step(theta[free], smooth[free], scale[free], [(s[free], y[free]) for s, y in pairs], penalty)
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
            pairs = [*pairs, (s, y)][-MEMORY:]
        theta, gradient = new_theta, new_gradient
        iteration += 1
        reason = monitor.check(record(objective, penalty, theta, loss, gradient, iteration, evaluations), theta)
        monitor.keep(State(theta, loss, gradient, iteration, evaluations, reason, pairs))
    return Result(theta, loss + penalty.value(theta), reason, iteration, evaluations, monitor.history)


def _model_step(theta, smooth, scale, pairs, penalty: ElasticNet) -> np.ndarray:
    """The minimiser of the model over the free weights."""
    pairs = [(s, y) for s, y in pairs if dot(s, y) > CURVATURE * dot(y, y)]
    if pairs:
        s, y = pairs[-1]
        b0 = scale * (dot(y, y / scale) / dot(s, y))
    else:
        b0 = scale * max(np.sqrt(dot(smooth / scale, smooth / scale)), np.finfo(float).tiny)
    q, mq = _compact(b0, pairs)
    return _descend(theta, smooth, b0, q, mq, penalty.rho1, SWEEPS, PRECISION)


def _compact(b0: np.ndarray, pairs) -> tuple[np.ndarray, np.ndarray]:
    """Q = [B0 S, Y] by rows and Q M^-1, with M = [[S'B0S, L], [L', -D]], L + D + L' ~ S'Y."""
    m = len(pairs)
    if not m:
        return np.empty((len(b0), 0)), np.empty((len(b0), 0))
    steps, slopes = (np.array(vectors) for vectors in zip(*pairs, strict=True))
    s_b_s, s_y = np.zeros((2, m, m))
    _products(steps, slopes, b0, s_b_s, s_y)
    lower = np.tril(s_y, -1)
    middle = np.block([[s_b_s, lower], [lower.T, -np.diag(np.diag(s_y))]])
    columns = [*(b0 * steps), *slopes]
    q = np.ascontiguousarray(np.stack(columns, axis=1))
    order, mq = np.arange(2 * m), np.zeros(q.shape)
    _factorise(middle, order)
    threads.run(lambda piece: _solve_rows(middle, order, q, *piece, mq), chunks(len(q)))
    return q, mq


@kernel
def _factorise(matrix, order):
    """Both triangles of matrix[order] by Gauss, in place; of each column the largest element left is the pivot."""
    m = len(matrix)
    for k in range(m):
        best = k
        for i in range(k + 1, m):
            if abs(matrix[i, k]) > abs(matrix[best, k]):
                best = i
        order[k], order[best] = order[best], order[k]
        for j in range(m):
            matrix[k, j], matrix[best, j] = matrix[best, j], matrix[k, j]
        for i in range(k + 1, m):
            matrix[i, k] /= matrix[k, k]
            for j in range(k + 1, m):
                matrix[i, j] -= matrix[i, k] * matrix[k, j]


@kernel
def _solve_rows(triangles, order, rows, lo, hi, out):
    """out[r] = M^-1 rows[r] of the rows lo..hi - 1, a tile of them at a time."""
    m, tile = len(triangles), np.zeros((len(triangles), TILE))
    for begin in range(lo, hi, TILE):
        count = np.uint64(min(TILE, hi - begin))
        for k in range(count):
            for i in range(m):
                tile[i, k] = rows[begin + k, order[i]]
        for i in range(m):
            for j in range(i):
                x = triangles[i, j]
                for k in range(count):
                    tile[i, k] -= x * tile[j, k]
        for i in range(m - 1, -1, -1):
            for j in range(i + 1, m):
                x = triangles[i, j]
                for k in range(count):
                    tile[i, k] -= x * tile[j, k]
            x = 1.0 / triangles[i, i]
            for k in range(count):
                tile[i, k] *= x
        for k in range(count):
            for i in range(m):
                out[begin + k, i] = tile[i, k]


@kernel
def _products(steps, slopes, b0, s_b_s, s_y):
    """s_b_s[i, j] = s_i'B0 s_j and s_y[i, j] = s_i'y_j, tile by tile: a tile of all pairs stays in the cache."""
    m, n = steps.shape
    scaled = np.empty((m, TILE))
    for begin in range(0, n, TILE):
        count, at = np.uint64(min(TILE, n - begin)), np.uint64(begin)
        for i in range(m):
            for k in range(count):
                scaled[i, k] = b0[at + k] * steps[i, at + k]
        for i in range(m):
            for j in range(m):
                total, other = 0.0, 0.0
                for k in range(count):
                    total += scaled[i, k] * steps[j, at + k]
                    other += steps[i, at + k] * slopes[j, at + k]
                s_b_s[i, j] += total
                s_y[i, j] += other


@kernel
def _descend(theta, smooth, b0, q, mq, rho1, sweeps, precision):
    """Coordinate descent on the model; `inner` = M^-1 Q'd follows the step d."""
    n, m = q.shape
    step, inner, curvature = np.zeros(n), np.zeros(m), np.empty(n)
    for i in range(n):
        total = b0[i]
        for k in range(m):
            total -= q[i, k] * mq[i, k]
        curvature[i] = max(total, 1e-8 * b0[i])
    first = 0.0
    for sweep in range(sweeps):
        moved = 0.0
        for i in range(n):
            slope = smooth[i] + b0[i] * step[i]
            for k in range(m):
                slope -= q[i, k] * inner[k]
            here = theta[i] + step[i]
            target = here - slope / curvature[i]
            threshold = rho1 / curvature[i]
            if target > threshold:
                target -= threshold
            elif target < -threshold:
                target += threshold
            else:
                target = 0.0
            change = target - here
            if change != 0.0:
                step[i] += change
                moved += change * change * curvature[i]
                for k in range(m):
                    inner[k] += mq[i, k] * change
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
    promise = dot(smooth[free], step)
    promise += penalty.rho1 * float(np.abs(before + step).sum() - np.abs(before).sum())
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
