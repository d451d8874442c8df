"""Sparse blockwise coordinate descent (SBCD algorithm 2).

One block holds all weights of one observation value. A visit takes a few steps, each to the
minimiser of the quadratic model (13)-(14) with the diagonal second derivative (16) times a
factor. The factor follows the curvature that the last step met, and grows where the objective
would rise, which replaces the fixed scaling of THESIS 7.4; it is kept from sweep to sweep.
The first evaluation of a visit looks at all weights of the block, the others at those that
are not zero or that violate the optimality conditions.

Blocks that are zero and stay zero are left out of later sweeps. Before stopping, the
conditions of all weights are checked by one full gradient and violated blocks come back.
"""

import os

import numpy as np

from engine.block_kernels import evaluate_piece, renew_rows, renew_sets
from engine.blocks import Blocks
from engine.jit import kernel
from engine.monitor import Monitor, Result
from engine.penalty import ElasticNet
from engine.solvers.record import record

SMALLEST, LARGEST = 0.05, 2.0**30  # bounds of the factor on the second derivative
FIRST_FACTOR = 8.0
FLOOR = 1e-10  # of a second derivative, so that a certain prediction divides by something
TRIALS = 20
STEPS = int(os.environ.get("STEPS", 6))  # of one visit
ENOUGH = float(os.environ.get("ENOUGH", 0.1))  # a step that gains less than this share of the visit's gain is its last


def sbcd(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor) -> Result:
    blocks = Blocks(objective, theta)
    factor = np.full(blocks.count, FIRST_FACTOR)
    loss, gradient = objective.value_and_gradient(theta)
    evaluations, iteration = 1, 0
    hist = [theta.copy()]
    AND = int(os.environ.get('AND',0)); ANDR=int(os.environ.get('ANDR',1))
    line = record(objective, penalty, theta, loss, gradient, 0, evaluations)
    reason = monitor.check(line, theta)
    chosen = _candidates(blocks, penalty, theta, gradient)
    while reason is None:
        change, norm, moved = _sweep(blocks, chosen, penalty, factor)
        iteration += 1
        if AND:
            hist.append(theta.copy())
            hist = hist[-AND-1:]
            if len(hist) == AND + 1:
                U = np.diff(np.array(hist), axis=0)
                G = U @ U.T
                try:
                    z = np.linalg.solve(G + 1e-10*np.trace(G)*np.eye(AND), np.ones(AND)); z /= z.sum()
                    cand = z @ np.array(hist[1:])
                    cand[(theta == 0) | (cand * theta < 0)] = 0.0
                    v0 = objective.value(theta) + penalty.value(theta); v1 = objective.value(cand) + penalty.value(cand)
                    print("   and", round(v0,1), round(v1,1))
                    if v1 < v0:
                        theta[:] = cand; blocks.restart()
                        hist=[theta.copy()] if ANDR else hist[:-1]+[theta.copy()]
                    elif ANDR: hist=hist[-1:]
                except np.linalg.LinAlgError: pass
        loss, gradient = objective.value_and_gradient(theta)
        evaluations += 1
        line = record(objective, penalty, theta, loss, gradient, iteration, evaluations)
        reason = monitor.check(line, theta)
        chosen = _candidates(blocks, penalty, theta, gradient)
        if reason is None and not moved:
            reason = "line_search"
    return Result(theta, loss + penalty.value(theta), reason, iteration, evaluations, monitor.history)


def _candidates(blocks: Blocks, penalty: ElasticNet, theta, gradient) -> np.ndarray:
    """Blocks that hold a weight, or that violate the optimality conditions at zero."""
    layout = blocks.layout
    live = ((theta != 0.0) | (np.abs(penalty.pseudo_gradient(theta, gradient)) > 0.0)).astype(np.int64)
    total = np.concatenate([[0], np.cumsum(live)])
    runs = (layout.unigram_ptr, layout.start_ptr, layout.bigram_ptr)
    return np.flatnonzero(sum(total[ptr[1:]] - total[ptr[:-1]] for ptr in runs) > 0)


def _sweep(blocks, chosen, penalty, factor):
    order = chosen[np.argsort(-(blocks.index.ptr[chosen + 1] - blocks.index.ptr[chosen]), kind="stable")]
    change, norm, moved = 0.0, 0.0, False
    for x in order:
        c, n, m = _visit(blocks, x, penalty, factor)
        change, norm, moved = change + c, max(norm, n), moved or m
    return change, norm, moved

stats = [0, 0, 0]

def _visit(blocks: Blocks, x: int, penalty: ElasticNet, factor: np.ndarray):
    theta, observed, rho1, rho2 = blocks.theta, blocks.objective.observed, penalty.rho1, penalty.rho2
    if blocks.index.ptr[x] == blocks.index.ptr[x + 1]:
        return _forget(blocks, blocks.slots(x), penalty)
    slot, at, code = block_slots(blocks.layout, x)
    shifted = balance(theta, blocks.layout.unigram_ptr, x, blocks.layout.n_labels, rho1, rho2)
    if shifted:
        blocks.refresh(x)
    loss, first, second = blocks.evaluate(x, code, shifted)
    slot, at, code, g, h, norm = live_slots(
        theta, slot, at, code, first, second, observed, blocks.layout.n_labels, rho1, rho2
    )
    base = theta[slot]
    gained, stale = 0.0, False
    accepted = 0
    for trial in range(TRIALS):
        if not propose(theta, slot, base, g, h, factor[x], rho1, rho2):
            stale = False
            break
        blocks.refresh(x)
        new_loss, first, second = blocks.evaluate(x, code, True)
        change, factor[x], norm_new = settle(theta, slot, at, base, g, h, first, second, observed, new_loss - loss, factor[x], rho1, rho2)
        stats[0] += 1
        stale = not change <= 0.0
        if stale:
            stats[1] += 1
            continue
        accepted += 1
        loss, norm = new_loss, norm_new
        gained += change
        if change >= ENOUGH * gained or accepted == STEPS:
            break
    if stale:
        theta[slot] = base
        blocks.refresh(x)
        blocks.evaluate(x, code[:0], True, False)
    return gained, norm, gained < 0.0


@kernel
def block_slots(layout, x):
    """The slots of block x, where each lies in [Y labels | Y labels at a start | pairs], and the pairs."""
    n_labels = layout.n_labels
    lo_u, hi_u = layout.unigram_ptr[x], layout.unigram_ptr[x + 1]
    lo_s, hi_s = layout.start_ptr[x], layout.start_ptr[x + 1]
    lo_b, hi_b = layout.bigram_ptr[x], layout.bigram_ptr[x + 1]
    size = hi_u - lo_u + hi_s - lo_s + hi_b - lo_b
    slot, at, code = np.empty(size, np.int64), np.empty(size, np.int32), np.empty(hi_b - lo_b, np.int32)
    k = 0
    for s in range(lo_u, hi_u):
        slot[k] = s
        at[k] = s - lo_u if hi_u - lo_u == n_labels else layout.unigram_code[s - layout.unigram_ptr[0]]
        k += 1
    for s in range(lo_s, hi_s):
        slot[k] = s
        at[k] = n_labels + (s - lo_s if hi_s - lo_s == n_labels else layout.start_code[s - layout.start_ptr[0]])
        k += 1
    full = hi_b - lo_b == n_labels * n_labels
    for s in range(lo_b, hi_b):
        slot[k], at[k] = s, 2 * n_labels + s - lo_b
        code[s - lo_b] = s - lo_b if full else layout.bigram_code[s - layout.bigram_ptr[0]]
        k += 1
    return slot, at, code


@kernel
def balance(theta, ptr, x, n_labels, rho1, rho2):
    """Add to all labels' weights of x the constant that makes their penalty smallest; True when it is not zero.

    The loss does not see such a constant. Steps that look at one weight at a time hardly move along it.
    """
    lo, hi = ptr[x], ptr[x + 1]
    if hi - lo < n_labels or rho1 + rho2 == 0.0:
        return False
    values = np.sort(theta[lo:hi])
    best, c = 0.0, 0.0
    # slope(c) = sum over weights of rho1 sign(w + c) + rho2 (w + c), a rising function of c
    total = values.sum()
    low, high = -np.inf, np.inf
    c = _balancing(values, total, rho1, rho2)
    if c == 0.0 or not _penalty(values, c, rho1, rho2) < _penalty(values, 0.0, rho1, rho2):
        return False
    for s in range(lo, hi):
        theta[s] += c
    return True


@kernel
def _balancing(values, total, rho1, rho2):
    """The root of the slope: at a weight, where |w + c| has its kink, or between two of them."""
    n = len(values)
    for k in range(n):  # weights above index n - 1 - k are positive at c = -values[n - 1 - k]
        i = n - 1 - k
        c = -values[i]
        smooth = rho2 * (total + n * c)
        above, below = n - 1 - i, i
        if smooth + rho1 * (above - below) - rho1 <= 0.0 <= smooth + rho1 * (above - below) + rho1:
            return c
        if smooth + rho1 * (above - below) - rho1 > 0.0:
            return -(total + rho1 * (above - below - 1) / rho2) / n if rho2 > 0.0 else c
    return -values[0]


@kernel
def _penalty(values, c, rho1, rho2):
    total = 0.0
    for k in range(len(values)):
        total += rho1 * abs(values[k] + c) + 0.5 * rho2 * (values[k] + c) ** 2
    return total


@kernel
def steepest(weight, gradient, rho1, rho2):
    """The subgradient of least size of one weight (THESIS 6.3.1)."""
    smooth = gradient + rho2 * weight
    if weight > 0.0:
        return smooth + rho1
    if weight < 0.0:
        return smooth - rho1
    if smooth > rho1:
        return smooth - rho1
    if smooth < -rho1:
        return smooth + rho1
    return 0.0


@kernel
def live_slots(theta, slot, at, code, first, second, observed, n_labels, rho1, rho2):
    """Of the slots those whose weight is not zero or wants to move; their derivatives; the largest violation."""
    count, pairs, worst = 0, 0, 0.0
    keep = np.zeros(len(slot), np.bool_)
    for k in range(len(slot)):
        s = slot[k]
        wish = abs(steepest(theta[s], first[at[k]] - observed[s], rho1, rho2))
        worst = max(worst, wish)
        keep[k] = theta[s] != 0.0 or wish > 0.0
        count += keep[k]
        pairs += keep[k] and at[k] >= 2 * n_labels
    new_slot, new_at, new_code = np.empty(count, np.int64), np.empty(count, np.int32), np.empty(pairs, np.int32)
    g, h = np.empty(count), np.empty(count)
    i, j = 0, 0
    for k in range(len(slot)):
        if keep[k]:
            new_slot[i], new_at[i] = slot[k], at[k]
            g[i], h[i] = first[at[k]] - observed[slot[k]], max(second[at[k]], FLOOR)
            if at[k] >= 2 * n_labels:
                new_code[j], new_at[i] = code[at[k] - 2 * n_labels], 2 * n_labels + j
                j += 1
            i += 1
    return new_slot, new_at, new_code, g, h, worst


@kernel
def propose(theta, slot, base, g, h, factor, rho1, rho2):
    """Weights to the minimiser of the model (13); False when that is where they are."""
    differs = False
    for k in range(len(slot)):
        curvature = factor * h[k]
        z = curvature * base[k] - g[k]
        z = max(z - rho1, 0.0) if z > 0.0 else min(z + rho1, 0.0)
        value = z / (curvature + rho2)
        theta[slot[k]] = value
        differs = differs or value != base[k]
    return differs


@kernel
def settle(theta, slot, at, base, g, h, first, second, observed, change, factor, rho1, rho2):
    """Accept the weights in theta when the objective does not rise: base, g and h become theirs.

    Returns (change of the objective, next factor, largest violation).
    """
    drop, bend, model = 0.0, 0.0, 0.0
    for k in range(len(slot)):
        new, old = theta[slot[k]], base[k]
        step = new - old
        change += -step * observed[slot[k]] + rho1 * (abs(new) - abs(old)) + 0.5 * rho2 * (new * new - old * old)
        bend += step * (first[at[k]] - observed[slot[k]] - g[k])
        model += step * step * h[k]
    if not change <= 0.0:
        return change, 4.0 * factor, 0.0
    worst = 0.0
    for k in range(len(slot)):
        base[k] = theta[slot[k]]
        g[k], h[k] = first[at[k]] - observed[slot[k]], max(second[at[k]], FLOOR)
        worst = max(worst, abs(steepest(base[k], g[k], rho1, rho2)))
    met = bend / model if model > 0.0 else factor
    return change, min(max(met, SMALLEST, 0.25 * factor), LARGEST), worst


def _forget(blocks: Blocks, slots: np.ndarray, penalty: ElasticNet):
    """An observation that occurs nowhere has only its penalty: its weights are best at zero."""
    if np.any(blocks.theta[slots]) and (penalty.rho1 > 0 or penalty.rho2 > 0):
        change = -penalty.value(blocks.theta[slots])
        blocks.theta[slots] = 0.0
        return change, 0.0, True
    return 0.0, 0.0, False
