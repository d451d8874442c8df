"""Sparse blockwise coordinate descent (SBCD algorithm 2).

One block holds all weights of one observation value. A visit steps to the minimiser of the
quadratic model (13)-(14) with the diagonal second derivative (16) times a factor, within a box.
The factor follows the curvature that the last step met, and grows where the objective would
rise, which replaces the fixed scaling of THESIS 7.4; it is kept from sweep to sweep. A visit
looks at the weights that are not zero or that violated the optimality conditions before the sweep;
blocks without such a weight are left out. The full gradient after a sweep brings them back.

Two kinds of move that single blocks are bad at are made explicitly. The labels' weights of an
observation may all be shifted by a constant that the loss does not see (`balance`). And blocks that
meet in one sequence are coupled, so after a sweep the weights that it left non-zero take a few
joint steps (`JointSteps`); they only ever lower the objective and never touch a zero.
"""

import numpy as np

from espalier.engine.blockwise.blocks import Blocks
from espalier.engine.blockwise.factors import renew_block, renew_rows
from espalier.engine.blockwise.kernels import evaluate_hot, heat_piece, hessian_piece, make_hot
from espalier.engine.errors import EspalierError
from espalier.engine.optimise.monitor import Monitor, Result
from espalier.engine.optimise.penalty import ElasticNet, soft_threshold
from espalier.engine.optimise.solver_state import SolverState
from espalier.engine.optimise.solvers.joint_steps import JointSteps
from espalier.engine.optimise.solvers.record import first_state, record
from espalier.engine.runtime.grouping import sort
from espalier.engine.runtime.jit import kernel
from espalier.engine.weights.layout import Layout

SMALLEST, LARGEST = 0.05, 2.0**30  # bounds of the factor on the second derivative
FIRST_FACTOR = 2.0
FARTHEST = 3.0  # that one step moves one weight; the quadratic model means nothing further away
FLOOR = 1e-10  # of a second derivative, so that a certain prediction divides by something
STEPS, TRIALS = 2, 24  # accepted steps and trials of one visit at most
HESSIANS = {"diagonal": 0, "full": 300}  # live weights up to which a block takes its full Hessian
PASSES, SETTLED = 50, 1e-6  # over the coordinates of a full model; share of the largest change that is small
ENOUGH = 0.1  # a step that gains less than this share of the visit's gain is its last
NOISE = 1e-11  # share of the loss below which a difference tells nothing about curvature
NO_MATRIX = np.zeros((0, 0))


def sbcd(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor, *, hessian: str = "diagonal") -> Result:
    """`hessian`: diagonal, or full for the block Hessian of THESIS appendix D, which pays with few labels.

    A block with more than FULL live weights takes the diagonal either way.
    """
    if hessian not in HESSIANS:
        raise EspalierError(f"hessian is {hessian!r}: expected one of {', '.join(HESSIANS)}")
    full = HESSIANS[hessian]
    state, joint = first_state(objective, penalty, theta, monitor), JointSteps(objective, penalty)
    theta, loss, gradient, reason = state.theta, state.loss, state.gradient, state.reason
    evaluations, iteration = state.evaluations, state.iteration
    blocks = _blocks(objective, theta)
    factor, curvature = np.full(blocks.count, FIRST_FACTOR), np.zeros(len(theta))
    if state.vectors:
        factor[:], curvature[:] = state.vectors["factor"], state.vectors["curvature"]
        joint.recall(state.pairs, theta, gradient)
    while reason is None:
        before = loss + penalty.value(theta)
        live = penalty.free(theta, penalty.smooth_gradient(theta, gradient))
        moved = _sweep(blocks, live, penalty, factor, curvature, full)
        theta = blocks.theta.copy()
        loss, gradient = objective.value_and_gradient(theta)
        gain = before - loss - penalty.value(theta)
        loss, gradient, used = joint.run(theta, loss, gradient, curvature, gain)
        blocks.assign(theta)
        evaluations += 1 + used
        iteration += 1
        reason = monitor.check(record(objective, penalty, theta, loss, gradient, iteration, evaluations), theta)
        if reason is None and not moved:
            reason = "line_search"
        kept = {"factor": factor.copy(), "curvature": curvature.copy()} if monitor.keeper else {}
        monitor.keep(SolverState(theta, loss, gradient, iteration, evaluations, reason, joint.kept(), vectors=kept))
    return Result(theta, loss + penalty.value(theta), reason, iteration, evaluations, monitor.history)


def _blocks(objective, theta: np.ndarray) -> Blocks:
    """The blocks at theta: the objective's own, or new ones; where the data lie in parts, those of all parts."""
    return objective.blocks_at(theta) if "blocks" in objective.offers else Blocks(objective, theta.copy())


def with_live_weights(layout: Layout, live: np.ndarray, occurrences: np.ndarray) -> np.ndarray:
    """The observations of which a weight is live, the frequent ones first."""
    total = np.concatenate([[0], np.cumsum(live)])
    runs = (layout.unigram_ptr, layout.start_ptr, layout.bigram_ptr)
    chosen = np.flatnonzero(sum(total[ptr[1:]] - total[ptr[:-1]] for ptr in runs))
    return chosen[np.argsort(-occurrences[chosen], kind="stable")]


def _sweep(blocks: Blocks, live: np.ndarray, penalty: ElasticNet, factor, curvature, full: int) -> bool:
    """Visit the blocks that hold a live weight, the frequent ones first; True when one moved.

    Where the data lie in parts, blocks that occur in several of their pieces come first. A block that occurs in one
    only is the business of that one, and those of different ones, which share no sequence, move at the same time.
    """
    if not blocks.in_parts:
        return sweep_here(blocks, live, penalty, factor, curvature, full)
    moved = False
    for x in with_live_weights(blocks.layout, live, blocks.occurrences):
        if blocks.shared[x]:
            moved |= visit_large(blocks, x, live, penalty, factor, curvature, full)
        elif not blocks.occurrences[x]:
            moved |= _forget(blocks, x, penalty)
    return moved | blocks.sweep_the_rest(live, penalty, factor, curvature, full)


def sweep_here(blocks: Blocks, live: np.ndarray, penalty: ElasticNet, factor, curvature, full: int) -> bool:
    """The same where all sequences are in one place."""
    layout, index = blocks.layout, blocks.index
    chosen = with_live_weights(layout, live, np.diff(index.ptr))
    pieces = np.diff(index.piece_ptr)[chosen]
    moved = False
    for x in chosen[pieces > 1]:
        moved |= visit_large(blocks, x, live, penalty, factor, curvature, full)
    for x in chosen[pieces == 0]:
        moved |= _forget(blocks, x, penalty)
    small = chosen[pieces == 1]
    return moved | _visit_small(
        blocks.theta, layout, blocks.data, blocks.sets, blocks.sharing, index, blocks.state, blocks.observed,
        live, small, penalty.rho1, penalty.rho2, factor, curvature, full,
    )  # fmt: skip


def _forget(blocks: Blocks, x: int, penalty: ElasticNet) -> bool:
    """An observation that occurs nowhere has only its penalty: its weights are best at zero."""
    slots = blocks.slots(x)
    held = bool(np.any(blocks.theta[slots])) and not penalty.is_none
    if held:
        blocks.theta[slots] = 0.0
    return held


def visit_large(blocks: Blocks, x: int, live, penalty: ElasticNet, factor, curvature, full: int) -> bool:
    """Visit a block of several pieces, in Python, which hands them to the pool of threads or to the parts with them.

    `_visit_small` is the kernel for the others.
    """
    theta, observed = blocks.theta, blocks.observed
    rho1, rho2, nothing = penalty.rho1, penalty.rho2, np.empty(0, np.int32)
    moved, slot, at, code, base = _begin_visit(theta, blocks.layout, live, x, rho1, rho2)
    hot = blocks.visit(x)
    gained, steps, derive, stale, changed = 0.0, 0, True, False, moved
    for _ in range(TRIALS):
        if changed:
            blocks.refresh(x)
        if derive:
            loss, first, second = blocks.evaluate(x, hot, code)
            matrix = blocks.hessian(hot, at, code) if len(slot) <= full else NO_MATRIX
        else:
            value = blocks.evaluate(x, hot, nothing, False)[0]
            change, factor[x] = judge(
                theta, slot, at, base, first, second, matrix, observed, loss, value, factor[x], rho1, rho2
            )
            if change <= 0.0:
                base, moved, stale = theta[slot], True, False
                gained, steps = gained + change, steps + 1
                if _is_last(steps, change, gained):
                    break
                derive, changed = True, False
                continue
        derive = False
        changed = propose(theta, slot, at, base, first, second, matrix, observed, factor[x], rho1, rho2)
        if not changed:
            break
        stale = True  # scores and factors will be those of a trial
    curvature[slot] = second[at]
    if stale:
        theta[slot] = base
        blocks.refresh(x)
    return bool(moved)


@kernel
def _visit_small(
    theta, layout, data, sets, sharing, index, state, observed, live, chosen, rho1, rho2, factor, curvature, full
):
    """The same for blocks of one piece, of which there is nothing to share out and which may be many thousands.

    One kernel takes them one after the other without leaving compiled code. Where a visit begins, what it
    proposes, how that is judged and when it ends are functions that both kinds of visit call.
    """
    anything = False
    for x in chosen:
        rows = index.rows[index.rows_ptr[x] : index.rows_ptr[x + 1]]
        moved, slot, at, code, base = _begin_visit(theta, layout, live, x, rho1, rho2)
        first, second = np.zeros(2 * layout.n_labels + len(code)), np.zeros(2 * layout.n_labels + len(code))
        gained, loss, steps, derive, stale = 0.0, 0.0, 0, True, False
        matrix = np.zeros((0, 0))
        piece, changed, leave, trials = index.piece_ptr[x], moved, False, 0
        hot = make_hot(layout.n_labels, index.piece[piece + 1] - index.piece[piece])
        heat_piece(layout, data, sets, index, state, piece, hot)
        while True:
            if changed:
                renew_rows(theta, layout, data, index, state, rows)
                renew_block(theta, layout, sets, sharing, state, x)
            if leave:
                break
            value = evaluate_hot(theta, layout, data, sets, index, state, piece, hot, code, derive, first, second)
            trials += 1
            if derive:
                loss = value
                if len(slot) <= full:
                    matrix = np.zeros((len(slot), len(slot)))
                    if not hessian_piece(layout, state, hot, at, code, matrix):
                        matrix = np.zeros((0, 0))
            else:
                change, factor[x] = judge(
                    theta, slot, at, base, first, second, matrix, observed, loss, value, factor[x], rho1, rho2
                )
                if change <= 0.0:
                    base, moved, stale = theta[slot], True, False
                    gained, steps = gained + change, steps + 1
                    if _is_last(steps, change, gained):
                        break
                    first[:] = 0.0
                    second[:] = 0.0
                    derive, changed = True, False
                    continue
            derive = False
            if trials < TRIALS and propose(
                theta, slot, at, base, first, second, matrix, observed, factor[x], rho1, rho2
            ):
                changed = stale = True
            else:
                for k in range(len(slot)):
                    theta[slot[k]] = base[k]
                leave, changed = True, stale
        for k in range(len(slot)):
            curvature[slot[k]] = second[at[k]]
        anything = anything or moved
    return anything


@kernel
def _begin_visit(theta, layout, live, x, rho1, rho2):
    """Balance block x: (whether that moved it, its live slots as of `live_slots`, their weights then)."""
    moved = balance(theta, layout.unigram_ptr, x, layout.n_labels, rho1, rho2)
    slot, at, code = live_slots(theta, layout, live, x)
    return moved, slot, at, code, theta[slot]


@kernel
def _is_last(steps, change, gained):
    """Whether a step that was taken ends the visit: `steps` and what they `gained` are with it."""
    return steps == STEPS or change > ENOUGH * gained


@kernel
def live_slots(theta, layout, live, x):
    """The live slots of block x, where each lies in [Y labels | Y labels at a start | pairs], and the pairs."""
    n_labels = layout.n_labels
    size, pairs = 0, 0
    for ptr in (layout.unigram_ptr, layout.start_ptr):
        for s in range(ptr[x], ptr[x + 1]):
            size += live[s] or theta[s] != 0.0
    for s in range(layout.bigram_ptr[x], layout.bigram_ptr[x + 1]):
        pairs += live[s] or theta[s] != 0.0
    slot, at, code = np.empty(size + pairs, np.int64), np.empty(size + pairs, np.int32), np.empty(pairs, np.int32)
    k, base = 0, 0
    for ptr, codes in ((layout.unigram_ptr, layout.unigram_code), (layout.start_ptr, layout.start_code)):
        full = ptr[x + 1] - ptr[x] == n_labels
        for s in range(ptr[x], ptr[x + 1]):
            if live[s] or theta[s] != 0.0:
                slot[k], at[k] = s, base + (s - ptr[x] if full else codes[s - ptr[0]])
                k += 1
        base += n_labels
    ptr = layout.bigram_ptr
    full = ptr[x + 1] - ptr[x] == n_labels * n_labels
    for s in range(ptr[x], ptr[x + 1]):
        if live[s] or theta[s] != 0.0:
            slot[k], at[k] = s, base + k - size
            code[k - size] = s - ptr[x] if full else layout.bigram_code[s - ptr[0]]
            k += 1
    return slot, at, code


@kernel
def propose(theta, slot, at, base, first, second, matrix, observed, factor, rho1, rho2):
    """Weights to the minimiser of the model in the box; False when that is where they are.

    With the diagonal the model is a sum over weights, so its minimiser in a box is (13), clipped. With a full
    matrix it is found by going over the weights one by one until they settle.
    """
    if len(matrix) == 0:
        differs = False
        for k in range(len(slot)):
            curvature = factor * max(second[at[k]], FLOOR)
            theta[slot[k]] = nearest(base[k], base[k], curvature, first[at[k]] - observed[slot[k]], rho1, rho2)
            differs = differs or theta[slot[k]] != base[k]
        return differs
    step = np.zeros(len(slot))
    for _ in range(PASSES):
        largest, change = 0.0, 0.0
        for k in range(len(slot)):
            slope = first[at[k]] - observed[slot[k]]
            for j in range(len(slot)):
                slope += factor * matrix[k, j] * step[j]
            old = base[k] + step[k]
            new = nearest(old, base[k], factor * max(matrix[k, k], FLOOR), slope, rho1, rho2)
            step[k] = new - base[k] if new != base[k] else 0.0
            theta[slot[k]] = new
            change, largest = max(change, abs(new - old)), max(largest, abs(step[k]))
        if change <= SETTLED * largest:
            break
    return largest > 0.0


@kernel
def nearest(weight, base, curvature, slope, rho1, rho2):
    """(13) from `weight`, at most FARTHEST from `base`."""
    z = soft_threshold(curvature * weight - slope, rho1)
    return min(max(z / (curvature + rho2), base - FARTHEST), base + FARTHEST)


@kernel
def judge(theta, slot, at, base, first, second, matrix, observed, loss, new_loss, factor, rho1, rho2):
    """(change of the objective, next factor); a step with a change above 0 is not to be taken.

    The factor met is that at which the model would have told the change of the loss exactly.
    """
    rise = new_loss - loss
    change, bend, model = rise, rise, 0.0
    for k in range(len(slot)):
        new, old = theta[slot[k]], base[k]
        step = new - old
        change += -step * observed[slot[k]] + rho1 * (abs(new) - abs(old)) + 0.5 * rho2 * (new * new - old * old)
        bend -= step * first[at[k]]
        if len(matrix) == 0:
            model += 0.5 * step * step * max(second[at[k]], FLOOR)
        else:
            for j in range(len(slot)):
                model += 0.5 * step * matrix[k, j] * (theta[slot[j]] - base[j])
    if not change <= 0.0:
        return change, min(4.0 * factor, LARGEST)
    met = bend / model if bend > NOISE * abs(loss) and model > 0.0 else factor
    return change, min(max(met, SMALLEST, 0.25 * factor), LARGEST)


@kernel
def balance(theta, ptr, x, n_labels, rho1, rho2):
    """Add to the weights of all labels of x the constant that makes their penalty smallest; True when it is not 0.

    The loss does not see such a constant, but steps that take one weight at a time hardly move along it.
    """
    lo, hi = ptr[x], ptr[x + 1]
    if hi - lo < n_labels or rho1 + rho2 == 0.0:
        return False
    values = theta[lo:hi].copy()
    sort(values)
    c = _balancing(values, rho1, rho2)
    if not _penalty(values, c, rho1, rho2) < _penalty(values, 0.0, rho1, rho2):
        return False
    for s in range(lo, hi):
        theta[s] += c
    return True


@kernel
def _balancing(values, rho1, rho2):
    """Where the slope rho1 sum sign(w + c) + rho2 sum (w + c), which rises with c, passes zero."""
    n, total = len(values), values.sum()
    for i in range(n - 1, -1, -1):
        c = -values[i]  # weights above i are positive here, those below negative
        slope = rho2 * (total + n * c) + rho1 * (n - 1 - 2 * i)
        if slope > rho1:  # passed between the kink before and this one, where rho2 > 0
            return -(total + rho1 * (n - 2 - 2 * i) / rho2) / n
        if slope >= -rho1:
            return c
    return -(total + rho1 * n / rho2) / n if rho2 > 0.0 else -values[0]


@kernel
def _penalty(values, c, rho1, rho2):
    total = 0.0
    for k in range(len(values)):
        total += rho1 * abs(values[k] + c) + 0.5 * rho2 * (values[k] + c) ** 2
    return total
