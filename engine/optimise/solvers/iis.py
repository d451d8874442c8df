"""Improved iterative scaling for CRFs (IIS 3.6.3.2).

T(x, y) is the number of features that fire in a labelled sequence (3.34) and T(x) its
largest value over y (3.40). The change of the loss by a step delta is bounded by a sum of
functions of one delta_k each (3.30, with T(x) for T(x, y)), so each weight solves its own
equation (3.44),
    sum_m a[m, k] exp(delta_k m) + rho2 (theta_k + delta_k) = observed_k,
by Newton's method; a[m, k] is the expected count of feature k in the sequences with
T(x) = m (3.43). The second term, zero in the source, is the Gaussian prior's. The bound
holds for any T(x) >= T(x, y) and all weights move at once, so the objective never rises;
but steps shrink with T(x), and convergence is linear and slow (IIS table 4.3).

The source keeps generalised iterative scaling out because its correction feature is global (IIS 3.6.3.1); see `gis`.
"""

import numpy as np

from espalier.engine.chain.one_sequence import SequenceBuffers, add_expected, expect, fill_scores, make_buffers
from espalier.engine.chain.pair_sets import check_labels
from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.optimise.monitor import Monitor, Result
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solver_state import SolverState
from espalier.engine.optimise.solvers.record import record
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.vectors import add_scaled, dot

CLASSES = 64  # distinct T(x) at most, each costs one vector of weights; more are rounded up to the next kept one
NEWTON = 50  # steps for one equation; from the right side of its root they converge from above
PIECE = 1 << 13  # weights of one piece of work
NEARLY = 1e-6  # a sum of values that is so little above a whole number is that number
CLOSE = 1e-14  # relative; a step below it changes nothing


def iis(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor) -> Result:
    check_data(objective)
    totals, members = _classes(largest_counts(objective))
    rooms = [make_buffers(objective.dataset, objective.layout, objective.sets) for _ in members]
    expected = np.empty((len(totals), objective.size))

    def evaluate(theta):
        return *_value_and_gradient(objective, members, rooms, theta, expected), expected

    def step(theta, expected):
        return updated(totals, expected, objective.observed, penalty, theta)

    return scaled(objective, penalty, theta, monitor, evaluate, step)


def scaled(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor, evaluate, step) -> Result:
    """Steps until the monitor, or a step that changes nothing, ends it: theta = step(theta, expected counts).

    `evaluate(theta)` gives the loss, its gradient and the expected counts.
    """
    earlier = monitor.earlier(len(theta))
    theta = theta if earlier is None else earlier.theta
    loss, gradient, expected = evaluate(theta)
    if earlier is None:
        iteration, reason = 0, monitor.check(record(objective, penalty, theta, loss, gradient, 0, 1), theta)
    else:
        iteration, reason = earlier.iteration, earlier.reason
    while reason is None:
        before, theta = theta, step(theta, expected)
        loss, gradient, expected = evaluate(theta)
        iteration += 1
        reason = monitor.check(record(objective, penalty, theta, loss, gradient, iteration, iteration + 1), theta)
        if reason is None and np.array_equal(before, theta):
            reason = "line_search"
        monitor.keep(SolverState(theta, loss, gradient, iteration, iteration + 1, reason))
    return Result(theta, loss + penalty.value(theta), reason, iteration, iteration + 1, monitor.history)


def check_data(objective) -> None:
    """Refuse sequences without labels, and features below zero."""
    check_labels(objective.dataset.labels, objective.layout)
    refuse_negative(objective.dataset)


def refuse_negative(dataset: Dataset) -> None:
    if dataset.values.min(initial=0.0) < 0.0:
        raise EspalierError(
            f"the value {dataset.values.min()} is negative, and iterative scaling is for features of at least 0: "
            "choose another solver, such as hybrid"
        )


def _classes(counts: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The values of T(x), rounded up where there are many, and the sequences of each."""
    values = np.unique(counts)
    if len(values) > CLASSES:
        values = values[np.arange(1, CLASSES + 1) * len(values) // CLASSES - 1]
    of_sequence = np.searchsorted(values, counts)
    return values.astype(np.float64), [np.flatnonzero(of_sequence == m) for m in range(len(values))]


def largest_counts(objective) -> np.ndarray:
    """T(x) of each sequence: the best score when every weight is 1."""
    data, layout, sets = objective.dataset, objective.layout, objective.sets
    counts = np.zeros(len(data.weights), np.int64)
    buffers = make_buffers(data, layout, sets)
    _best_scores(np.ones(layout.size), layout, data, sets, buffers, counts)
    return counts


@kernel
def _best_scores(theta, layout, data, sets, buffers, counts):
    """max_y of the score of each sequence by Viterbi's recursion, rounded up where there are values."""
    best, terms, n_labels, offsets = buffers.alpha, buffers.terms, layout.n_labels, data.offsets
    for n in range(len(counts)):
        lo, hi = offsets[n], offsets[n + 1]
        fill_scores(theta, 1.0, layout, data, sets, lo, hi, buffers)
        for t in range(hi - lo):
            for y in range(n_labels):
                best[t, y] = buffers.score[t, y]
                if t > 0:
                    for i in range(n_labels):
                        terms[i] = best[t - 1, i] + buffers.pair_score[buffers.which[t], i, y]
                    best[t, y] += terms.max()
        counts[n] = np.int64(np.ceil(best[hi - lo - 1].max() - NEARLY))


def _value_and_gradient(
    objective, members: list[np.ndarray], rooms: list[SequenceBuffers], theta: np.ndarray, expected
):
    """The loss and its gradient; expected[m] becomes the expected counts of the sequences of class m."""
    data, layout, sets = objective.dataset, objective.layout, objective.sets
    log_z = np.zeros(len(data.weights))

    def piece(m):
        expected[m] = 0.0
        _expect_class(theta, layout, data, sets, members[m], rooms[m], expected[m], log_z)

    threads.run(piece, range(len(members)))
    gradient = np.negative(objective.observed)
    for row in expected:
        add_scaled(1.0, row, gradient)
    return dot(data.weights, log_z) - dot(theta, objective.observed), gradient


@kernel
def _expect_class(theta, layout, data, sets, members, buffers, out, log_z):
    for n in members:
        lo, hi = data.offsets[n], data.offsets[n + 1]
        log_z[n], found = expect(theta, 1.0, layout, data, sets, lo, hi, buffers)
        add_expected(layout, data, sets, lo, hi, found, data.weights[n], buffers, out)


def updated(totals, expected, observed, penalty: ElasticNet, theta: np.ndarray) -> np.ndarray:
    """theta with the step of every weight; expected[m] are the counts in the sequences with T(x) = totals[m]."""
    after, rho2 = theta.copy(), float(penalty.rho2)
    starts = range(0, len(theta), PIECE)
    threads.run(lambda lo: _solve(totals, expected, observed, rho2, lo, min(lo + PIECE, len(after)), after), starts)
    return after


@kernel
def _solve(totals, expected, observed, rho2, begin, end, theta):
    """theta_k += delta_k, the root of the equation above, for the weights begin..end-1.

    Its left side rises and is convex, so Newton's method goes down to the root from any point on
    its right: from 0 if that is one, else from the first delta at which one term alone has the
    value that is wanted. Stopping early is safe: all points between 0 and the root gain.
    """
    for k in range(begin, end):
        prior = rho2 * theta[k] - observed[k]
        value, terms = prior, 0.0
        for m in range(len(totals)):
            terms += expected[m, k]
        value += terms
        delta = 0.0
        if terms == 0.0:
            if rho2 > 0.0:
                theta[k] = observed[k] / rho2
            continue
        if value < 0.0:
            delta = np.inf
            for m in range(len(totals)):
                if expected[m, k] > 0.0:
                    delta = min(delta, (np.log(-prior) - np.log(expected[m, k])) / totals[m])
        for _ in range(NEWTON):
            value, slope = prior + rho2 * delta, rho2
            for m in range(len(totals)):
                if expected[m, k] > 0.0:
                    term = np.exp(delta * totals[m] + np.log(expected[m, k]))  # as a product it may overflow
                    value += term
                    slope += term * totals[m]
            if not (value > 0.0 and slope > 0.0):
                break
            delta -= value / slope
            if value / slope <= CLOSE * abs(delta):
                break
        theta[k] += delta
