"""Stochastic gradient descent, one sequence after the other (THESIS 3.3.3, SBCD 5).

The step is eta / (1 + i / N) at the i-th of sequences seen (THESIS 3.29), N to an epoch, in an
order drawn anew each epoch from the seed. L2 acts by scaling: theta = unit * v, and one number
shrinks. L1 acts by the cumulative penalty of Tsuruoka et al.: u is what a weight could have
paid so far, q_k what weight k has paid, and a weight that a sequence touches pays the
difference but never past zero. So a sequence costs its own observations only, whatever
the size of theta; after an epoch all weights pay. eta is the best of a geometric grid, tried on a
sample. The objective may rise and the optimum is only approached: the best epoch is returned.

Steps depend on each other, so one thread makes them; the result does not depend on threads.
"""

import numpy as np

from espalier.engine.chain.one_sequence import SequenceBuffers, add_expected, expect, make_buffers
from espalier.engine.chain.pair_sets import check_labels
from espalier.engine.data.dataset import select
from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective, Sample
from espalier.engine.optimise.monitor import Monitor, Result
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solver_state import SolverState
from espalier.engine.optimise.solvers.record import first_state, record
from espalier.engine.runtime.jit import kernel

SAMPLE, FEW = 1000, 300  # sequences on which the step is tuned; where only a start is wanted
FIRST_STEP = 0.125  # tried first, over the mean weight of a sequence
GRID = 2.0  # ratio of neighbouring steps
TRIALS = 30  # doublings or halvings at most
SMALLEST_UNIT = 1e-100  # below it the scale goes into the weights, before it underflows


def sgd(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor, *, seed: int = 0) -> Result:
    if not len(objective.dataset.weights):
        raise EspalierError("sgd has no sequence to learn from: expected at least one")
    check_labels(objective.dataset.labels, objective.layout)
    rng, buffers = np.random.default_rng(seed), make_buffers(objective.dataset, objective.layout, objective.sets)
    state = first_state(objective, penalty, theta, monitor)
    theta, loss, reason, iteration, evaluations = (
        np.array(state.theta), state.loss, state.reason, state.iteration, state.evaluations
    )  # fmt: skip
    step, paid, could_pay = 0.0, np.zeros(objective.size), 0.0
    best, best_objective = theta.copy(), loss + penalty.value(theta)
    if state.extra:
        paid[:], best, best_objective = state.vectors["paid"], state.vectors["best"], state.extra["best"]
        step, could_pay, rng.bit_generator.state = (state.extra[name] for name in ("step", "could_pay", "random"))
    while reason is None:
        if iteration == 0:
            step, evaluations = _tune(objective, penalty, theta, rng, buffers)
        order = rng.permutation(len(objective.dataset.weights))
        could_pay = epoch(objective, penalty, theta, order, step, iteration, could_pay, paid, buffers)
        loss, gradient = objective.value_and_gradient(theta)
        iteration, evaluations = iteration + 1, evaluations + 1
        if loss + penalty.value(theta) < best_objective:
            best, best_objective = theta.copy(), loss + penalty.value(theta)
        reason = monitor.check(record(objective, penalty, theta, loss, gradient, iteration, evaluations), theta)
        if monitor.keeper:
            extra = {"best": best_objective, "step": step, "could_pay": could_pay, "random": rng.bit_generator.state}
            kept = {"paid": paid.copy(), "best": best}
            monitor.keep(
                SolverState(theta.copy(), loss, gradient, iteration, evaluations, reason, vectors=kept, extra=extra)
            )
    return Result(best, best_objective, reason, iteration, evaluations, monitor.history)


def start(
    objective, sample: Sample, penalty: ElasticNet, theta: np.ndarray, epochs: int, seed: int
) -> tuple[np.ndarray, int]:
    """(theta after a few epochs over a sample, what that cost in evaluations): where another solver may begin.

    The sample has its share of the penalty. Should the epochs lead uphill on all data, the answer is theta itself.
    """
    some, less = sample.objective, penalty.scaled(sample.share)
    check_labels(some.dataset.labels, some.layout)
    rng, buffers = np.random.default_rng(seed), make_buffers(some.dataset, some.layout, some.sets)
    step, spent = _tune(some, less, theta, rng, buffers, FEW)
    moved, paid, could_pay = theta.copy(), np.zeros(some.size), 0.0
    for n in range(epochs):
        order = rng.permutation(len(some.dataset.weights))
        could_pay = epoch(some, less, moved, order, step, n, could_pay, paid, buffers)
    before, after = (objective.value(here) + penalty.value(here) for here in (theta, moved))
    return (moved if after < before else theta), spent + epochs + 2


def _tune(
    objective, penalty: ElasticNet, theta: np.ndarray, rng, buffers: SequenceBuffers, size: int = SAMPLE
) -> tuple[float, int]:
    """The best first step, by the objective on a sample after one pass over it, and the evaluations spent."""
    data = objective.dataset
    order = rng.permutation(len(data.weights))[:size]
    sample = ChainObjective(select(data, np.sort(order)), objective.layout, objective.sparse)
    share = len(order) / len(data.weights)
    spent = [1]

    def score(step: float) -> float:
        tried = theta.copy()
        epoch(objective, penalty, tried, order, step, 0, 0.0, np.zeros_like(theta), buffers)
        spent[0] += 1
        value = sample.value(tried) + share * penalty.value(tried)
        return value if np.isfinite(value) else np.inf

    mean = float(data.weights.mean())
    best = FIRST_STEP / mean if mean > 0.0 else FIRST_STEP
    lowest, ratio = score(best), GRID
    for trial in range(TRIALS):
        found = score(best * ratio)
        if found < lowest:
            best, lowest = best * ratio, found
        elif trial == 0:
            ratio = 1.0 / GRID
        else:
            break
    return best, spent[0]


def epoch(
    objective, penalty: ElasticNet, theta, order, step, number, could_pay, paid, buffers: SequenceBuffers
) -> float:
    """Move theta by one step for each sequence in `order`; the L1 penalty that a weight could have paid so far."""
    data = objective.dataset
    return _steps(
        theta, objective.layout, data, objective.sets, order, step, number, float(penalty.rho1), float(penalty.rho2),
        could_pay, paid, buffers,
    )  # fmt: skip


@kernel
def _steps(v, layout, data, sets, order, step, epoch, rho1, rho2, could_pay, paid, buffers):
    """v holds theta on entry and on return, theta / unit in between."""
    labels, offsets, weights = data.labels, data.offsets, data.weights
    n_sequences = len(weights)
    unit = 1.0
    for i in range(len(order)):
        n = order[i]
        lo, hi = offsets[n], offsets[n + 1]
        eta = step / (1.0 + epoch + i / n_sequences)
        unit /= 1.0 + eta * rho2 / n_sequences
        could_pay += eta * rho1 / n_sequences
        if weights[n] > 0.0:
            _, found = expect(v, unit, layout, data, sets, lo, hi, buffers)
            for t in range(hi - lo):
                buffers.gamma[t, labels[lo + t]] -= 1.0
                if t > 0:
                    buffers.pairs[buffers.which[t], labels[lo + t - 1], labels[lo + t]] -= 1.0
            add_expected(layout, data, sets, lo, hi, found, -eta * weights[n] / unit, buffers, v)
            if rho1 > 0.0:
                _collect(layout, data, sets, lo, hi, found, unit, could_pay, buffers, v, paid)
        if unit < SMALLEST_UNIT:
            for k in range(len(v)):
                v[k] *= unit
            unit = 1.0
    for k in range(len(v)):
        v[k] *= unit
        if rho1 > 0.0:
            _pay(k, 1.0, could_pay, v, paid)
    return could_pay


@kernel
def _collect(layout, data, sets, lo, hi, found, unit, could_pay, buffers, v, paid):
    """Every weight of the sequence's observations pays what it owes; to pay twice in a row changes nothing."""
    observations, valued = data.observations, data.valued
    for t in range(lo, hi):
        for c in range(observations.shape[1]):
            x = observations[t, c]
            if x < 0:
                continue
            for k in range(layout.unigram_ptr[x], layout.unigram_ptr[x + 1]):
                _pay(k, unit, could_pay, v, paid)
            if t == lo:
                for k in range(layout.start_ptr[x], layout.start_ptr[x + 1]):
                    _pay(k, unit, could_pay, v, paid)
        for c in range(valued.shape[1]):
            x = valued[t, c]
            if x >= 0:
                for k in range(layout.unigram_ptr[x], layout.unigram_ptr[x + 1]):
                    _pay(k, unit, could_pay, v, paid)
    for d in range(found):
        for m in range(sets.ptr[buffers.set_of[d]], sets.ptr[buffers.set_of[d] + 1]):
            x = sets.observation[m]
            for k in range(layout.bigram_ptr[x], layout.bigram_ptr[x + 1]):
                _pay(k, unit, could_pay, v, paid)


@kernel
def _pay(k, unit, could_pay, v, paid):
    """Clip weight k towards zero by what it could have paid and has not."""
    theta = unit * v[k]
    if theta > 0.0:
        after = max(0.0, theta - (could_pay + paid[k]))
    elif theta < 0.0:
        after = min(0.0, theta + (could_pay - paid[k]))
    else:
        return
    v[k] = after / unit
    paid[k] += after - theta
