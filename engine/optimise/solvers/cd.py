"""Cyclic coordinate descent, one weight at a time (SBCD algorithm 1, THESIS algorithm 8): for small problems.

A weight moves to the minimiser of its quadratic model (SBCD 13-14) with the second derivative
(16) times a factor, which grows until the objective does not rise. A sweep visits every
weight; with `revisit_zeros=False` a weight that was visited and is zero is never visited again
(SBCD figures 2 and 3), which is faster and need not end at the optimum.

All recursions are in logarithms: exact for any weights, and speed is no aim here.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.one_sequence import SequenceBuffers, by_logarithms, fill_scores, log_forward, make_buffers
from espalier.engine.chain.pair_sets import check_labels
from espalier.engine.errors import EspalierError
from espalier.engine.lattice.recursions import log_sum
from espalier.engine.optimise.monitor import Monitor, Result
from espalier.engine.optimise.penalty import ElasticNet, soft_threshold
from espalier.engine.optimise.solver_state import SolverState
from espalier.engine.optimise.solvers.record import first_state, record
from espalier.engine.runtime.inner_loops import put
from espalier.engine.runtime.jit import apart, kernel

LARGEST = 2.0**30  # of the factor on the second derivative
FLOOR = 1e-10  # of a second derivative, so that a certain prediction divides by something


class Room(NamedTuple):
    """Scratch memory for any sequence of T positions."""

    buffers: SequenceBuffers
    pairs: np.ndarray  # [T, Y, Y], the marginals of pairs


class Coordinates:
    """What the recursions for single weights need of a chain objective, prepared once."""

    def __init__(self, objective):
        data = objective.dataset
        check_labels(data.labels, objective.layout)
        self.objective = objective
        self.sequence_of = np.repeat(np.arange(len(data.weights), dtype=np.int32), np.diff(data.offsets))
        self.slots = objective.layout.slots()
        buffers, n_labels = make_buffers(data, objective.layout, objective.sets), objective.layout.n_labels
        self.room = Room(buffers, np.empty((len(buffers.score), n_labels, n_labels)))
        self.log_z = np.zeros(len(data.weights))

    def arguments(self) -> tuple:
        """The leading arguments of all kernels below, after theta."""
        objective = self.objective
        return (objective.layout, objective.dataset, objective.sets, objective.positions, self.sequence_of, self.room,
                self.log_z)  # fmt: skip

    def slot(self, k: int) -> tuple[int, int, int, int]:
        if not 0 <= k < self.objective.size:
            raise EspalierError(f"weight {k}: expected one of the {self.objective.size} of the layout")
        return tuple(int(column[k]) for column in self.slots)


def cd(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor, *, revisit_zeros: bool = True) -> Result:
    coordinates = Coordinates(objective)
    state = first_state(objective, penalty, theta, monitor)
    theta, loss, iteration, reason = np.array(state.theta), state.loss, state.iteration, state.reason
    factor = np.array(state.vectors.get("factor", np.ones(objective.size)))
    visit = np.array(state.vectors.get("visit", np.ones(objective.size, bool)))
    while reason is None:
        moved = _sweep(theta, *coordinates.arguments(), coordinates.slots, objective.observed, float(penalty.rho1),
                       float(penalty.rho2), factor, visit)  # fmt: skip
        if not revisit_zeros:
            visit &= theta != 0.0
        loss, gradient = objective.value_and_gradient(theta)
        iteration += 1
        reason = monitor.check(record(objective, penalty, theta, loss, gradient, iteration, iteration + 1), theta)
        if reason is None and not moved:
            reason = "line_search"
        if monitor.keeper:
            kept = {"factor": factor.copy(), "visit": visit.copy()}
            monitor.keep(SolverState(theta.copy(), loss, gradient, iteration, iteration + 1, reason, vectors=kept))
    return Result(theta, loss + penalty.value(theta), reason, iteration, iteration + 1, monitor.history)


def derivatives(objective, theta: np.ndarray, k: int) -> tuple[float, float]:
    """First derivative of the loss by weight k (SBCD 5) and the second as (16) approximates it."""
    coordinates = Coordinates(objective)
    first, second = _derivatives(theta, *coordinates.arguments(), *coordinates.slot(k))
    return first - objective.observed[k], second


def exact_second_derivative(objective, theta: np.ndarray, k: int) -> float:
    """The second derivative of the loss by weight k (SBCD 15): the variance of the feature's count in a sequence."""
    coordinates = Coordinates(objective)
    return _variance(theta, *coordinates.arguments(), *coordinates.slot(k))


@kernel
def _sweep(
    theta, layout, data, sets, positions, sequence_of, room, log_z, slots, observed, rho1, rho2, factor, visit
):  # fmt: skip
    """Visit the weights in turn; how many moved."""
    family, observation, previous, label = slots
    moved = 0
    for k in range(len(theta)):
        if not visit[k]:
            continue
        before, x = theta[k], observation[k]
        first, second = _derivatives(
            theta, layout, data, sets, positions, sequence_of, room, log_z, family[k], x, previous[k], label[k]
        )
        first -= observed[k]
        while factor[k] <= LARGEST:
            curvature = factor[k] * max(second, FLOOR)
            target = curvature * before - first
            after = np.copysign(soft_threshold(target, rho1), target) / (curvature + rho2)  # a zero keeps its sign
            if after == before:
                break
            theta[k] = after
            change = _change(theta, layout, data, sets, positions, sequence_of, room, log_z, x)
            change += rho1 * (abs(after) - abs(before)) + 0.5 * rho2 * (after - before) * (after + before)
            if change - (after - before) * observed[k] <= 0.0:
                moved += 1
                break
            theta[k] = before
            factor[k] *= 4.0
        factor[k] = max(1.0, 0.5 * factor[k]) if factor[k] <= LARGEST else 1.0
    return moved


@apart
def _change(theta, layout, data, sets, positions, sequence_of, room, log_z, x):
    """Change of sum w log Z over the sequences that contain x, from the log Z that `_derivatives` left."""
    change, last = 0.0, -1
    for i in range(positions.ptr[x], positions.ptr[x + 1]):
        n = sequence_of[positions.position[i]]
        if n == last:
            continue
        last = n
        lo, hi = data.offsets[n], data.offsets[n + 1]
        fill_scores(theta, 1.0, layout, data, sets, lo, hi, room.buffers)
        change += data.weights[n] * (log_forward(hi - lo, room.buffers) - log_z[n])
    return change


@apart
def _derivatives(theta, layout, data, sets, positions, sequence_of, room, log_z, family, x, previous, label):
    """Sums of w r p and w r^2 p (1 - p) over the positions where x has the amount r, p the feature's probability.

    log_z[n] is set for the sequences that contain x.
    """
    first, second = 0.0, 0.0
    gamma, pairs = room.buffers.gamma, room.pairs
    i, end = positions.ptr[x], positions.ptr[x + 1]
    while i < end:
        n = sequence_of[positions.position[i]]
        lo, hi = data.offsets[n], data.offsets[n + 1]
        fill_scores(theta, 1.0, layout, data, sets, lo, hi, room.buffers)
        log_z[n] = by_logarithms(hi - lo, room.buffers, pairs, pairs[:0])
        while i < end and positions.position[i] < hi:
            t, amount = positions.position[i], positions.amount[i]
            i += 1
            p = 0.0
            if family == 0 or (family == 1 and t == lo):
                p = gamma[t - lo, label]
            elif family == 2 and t > lo:
                p = pairs[t - lo, previous, label]
            first += data.weights[n] * amount * p
            second += data.weights[n] * amount * amount * p * (1.0 - p)
    return first, second


@kernel
def _variance(theta, layout, data, sets, positions, sequence_of, room, log_z, family, x, previous, label):
    """Sum over sequences of w (E S^2 - (E S)^2), S the count of the feature in the sequence.

    With S_t the count up to position t, its moments given y_t = y follow the forward recursion:
        m_t(y)  = sum_y' r_t(y' | y) (m_{t-1}(y') + f_t(y', y))
        m2_t(y) = sum_y' r_t(y' | y) (m2_{t-1}(y') + 2 f_t(y', y) m_{t-1}(y') + f_t(y', y)^2)
    where r_t(y' | y) is proportional to alpha_{t-1}(y') exp(lambda(y', y)). Y^2 a position; the
    recursion is for this one weight (THESIS 7.1.1).
    """
    n_labels, buffers = layout.n_labels, room.buffers
    mean, square = np.empty(n_labels), np.empty(n_labels)
    old_mean, old_square, weight = np.empty(n_labels), np.empty(n_labels), np.empty(n_labels)
    total = 0.0
    i, end = positions.ptr[x], positions.ptr[x + 1]
    while i < end:
        n = sequence_of[positions.position[i]]
        lo, hi = data.offsets[n], data.offsets[n + 1]
        fill_scores(theta, 1.0, layout, data, sets, lo, hi, buffers)
        log_forward(hi - lo, buffers)
        for t in range(lo, hi):
            amount = 0.0
            if i < end and positions.position[i] == t:
                amount = positions.amount[i]
                i += 1
            put(mean, old_mean)
            put(square, old_square)
            mean[:], square[:] = 0.0, 0.0
            for y in range(n_labels):
                if t == lo:
                    f = amount if family < 2 and y == label else 0.0
                    mean[y], square[y] = f, f * f
                    continue
                for j in range(n_labels):
                    weight[j] = buffers.alpha[t - 1 - lo, j] + buffers.pair_score[buffers.which[t - lo], j, y]
                norm = log_sum(weight)
                for j in range(n_labels):
                    fires = y == label and (family == 0 or (family == 2 and j == previous))
                    f, share = amount if fires else 0.0, np.exp(weight[j] - norm)
                    mean[y] += share * (old_mean[j] + f)
                    square[y] += share * (old_square[j] + 2.0 * f * old_mean[j] + f * f)
        average, average_square = 0.0, 0.0
        norm = log_sum(buffers.alpha[hi - 1 - lo])
        for y in range(n_labels):
            p = np.exp(buffers.alpha[hi - 1 - lo, y] - norm)
            average += p * mean[y]
            average_square += p * square[y]
        total += data.weights[n] * (average_square - average * average)
    return total
