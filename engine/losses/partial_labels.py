"""Training with partial labels: some labels unknown, or known to be one of a set.

The loss of such a sequence is log Z(x) - log Z_A(x), with Z_A the sum over the
labellings that its labels allow: minus the log-probability of what is known. The
gradient is the expectation minus the expectation among the allowed labellings. It is
not convex. This module has the second part of both; the first is that of any sequence.
"""

from copy import copy

import numpy as np

from espalier.engine.chain.chain_lattice import chain_lattice
from espalier.engine.chain.pair_sets import pair_sets
from espalier.engine.chain.scores import SAFE_RANGE, make_factors, position_scores
from espalier.engine.data.dataset import UNKNOWN, Dataset, any_in_sequence, select
from espalier.engine.errors import EspalierError
from espalier.engine.lattice.decode import forward_backward, log_partition
from espalier.engine.lattice.limits import make_limits, restrict
from espalier.engine.losses.label_lists import (
    NO_GRADIENT,
    Chunks,
    add_pair_counts,
    add_pairs,
    add_position_counts,
    label_lists,
    message,
)
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.vectors import dot
from espalier.engine.weights.layout import Layout


def partial_labels(dataset: Dataset, layout: Layout, sparse: str) -> "PartialLabels | None":
    """The term of the sequences with an unknown or set-valued label; None when there is none.

    A sequence without any known label or set has the loss 0 whatever theta is, and is left out.
    """
    if dataset.labels.min(initial=0) >= 0:
        return None
    if np.all(dataset.labels == UNKNOWN):
        raise EspalierError("all labels are unknown: expected a label, or a set of labels, at some position")
    partial = np.flatnonzero(partly(dataset))
    return PartialLabels(select(dataset, partial), layout, sparse) if len(partial) else None


def partly(dataset: Dataset) -> np.ndarray:
    """Sequences of which something is known but not all, bool [N]."""
    return any_in_sequence(dataset, dataset.labels < 0) & any_in_sequence(dataset, dataset.labels != UNKNOWN)


def silent(dataset: Dataset) -> np.ndarray:
    """Sequences of which nothing is known, bool [N]."""
    return ~any_in_sequence(dataset, dataset.labels != UNKNOWN)


class PartialLabels:
    """-sum_n w_n log Z_A(x^n) over sequences with partial labels."""

    name = "partial labels"

    def __init__(self, dataset: Dataset, layout: Layout, sparse: str):
        self.dataset, self.layout, self.sparse = dataset, layout, sparse
        self.sets = pair_sets(dataset, layout)
        self.limits = make_limits(dataset, layout.n_labels, "labels")
        self.lists = label_lists(self.limits.row, self.limits.table)
        self.chunks = Chunks(dataset.offsets, layout.size)

    def value(self, theta: np.ndarray) -> float:
        """The term alone: forward recursion only."""
        return -dot(self.dataset.weights, self.log_partitions(theta))

    def log_partitions(self, theta: np.ndarray) -> np.ndarray:
        """log Z_A of each of its sequences."""
        log_z, factors = np.empty(len(self.dataset.weights)), self._factors(theta)
        threads.run(lambda run: self._piece(theta, factors, log_z, *run, NO_GRADIENT), self.chunks.runs)
        return self._finish(theta, log_z, NO_GRADIENT)

    def add_gradient(self, theta: np.ndarray, gradient: np.ndarray) -> float:
        """The term; its gradient, minus the expectations among the allowed labellings, is added to `gradient`."""
        log_z, factors = np.empty(len(self.dataset.weights)), self._factors(theta)
        self.chunks.add(lambda lo, hi, target: self._piece(theta, factors, log_z, lo, hi, target), gradient)
        return -dot(self.dataset.weights, self._finish(theta, log_z, gradient))

    def weighing(self, weights: np.ndarray) -> "PartialLabels":
        """The same term with other weights of its sequences."""
        other = copy(self)
        other.dataset = self.dataset._replace(weights=weights)
        return other

    def _factors(self, theta):
        return make_factors(theta, self.layout, self.sets, self.sparse)

    def _piece(self, theta, factors, log_z, lo, hi, target):
        _restricted(theta, self.layout, self.dataset, self.sets, factors, self.lists, lo, hi, target, log_z)

    def _finish(self, theta, log_z, gradient) -> np.ndarray:
        """Sequences with extreme scores follow by logarithms, one after the other."""
        for n in np.flatnonzero(np.isnan(log_z)):
            log_z[n] = self._by_lattice(theta, n, gradient)
        return log_z

    def _by_lattice(self, theta, n, gradient) -> float:
        """log Z_A of sequence n; minus its expectations are added to `gradient` unless that is empty."""
        data, layout = self.dataset, self.layout
        lo, hi = data.offsets[n], data.offsets[n + 1]
        lattice = chain_lattice(select(data, np.array([n])), layout, theta)
        lattice = restrict(lattice, self.limits._replace(row=self.limits.row[lo:hi]), in_place=True)
        if not len(gradient):
            return log_partition(lattice)[0]
        gamma, pairs = np.empty(lattice.here.shape), np.empty((hi - lo, layout.n_labels, layout.n_labels))
        log_z = forward_backward(lattice, gamma, pairs)
        _add_expectations(
            layout, data, self.sets, self.lists, lo, hi, -data.weights[n], gamma, pairs.reshape(hi - lo, -1), gradient
        )
        return log_z[0]


@kernel
def _restricted(theta, layout, data, sets, factors, lists, lo, hi, gradient, log_z):
    """log_z[n] = log Z_A of the sequences [lo, hi), NaN where logarithms are needed.

    Minus the expectations are added to `gradient` unless it is empty.
    """
    n_labels, offsets, longest = layout.n_labels, data.offsets, 0
    for n in range(lo, hi):
        longest = max(longest, offsets[n + 1] - offsets[n])
    alpha, e, scale = np.empty((longest, n_labels)), np.empty((longest, n_labels)), np.empty(longest)
    for n in range(lo, hi):
        first, last = offsets[n], offsets[n + 1] - 1
        log_z[n] = _forward(theta, layout, data, sets, factors, lists, first, last, alpha, e, scale)
        if len(gradient) and not np.isnan(log_z[n]):
            _backward(layout, data, sets, factors, lists, first, last, -data.weights[n], alpha, e, scale, gradient)


@kernel
def _forward(theta, layout, data, sets, factors, lists, first, last, alpha, e, scale):
    """The scaled recursion (SBCD 7) with e_t(y) = 0 for labels that are not allowed. Rows belong to t - first."""
    row, ptr, member = lists.row, lists.ptr, lists.member
    n_labels, of_position = layout.n_labels, sets.of_position
    score, out, current = np.empty(n_labels), np.empty(n_labels), np.zeros(n_labels)
    i_lo, i_hi, log_z = 0, 0, 0.0
    for t in range(first, last + 1):
        at, p = t - first, of_position[t]
        lo, hi = ptr[row[t]], ptr[row[t] + 1]
        position_scores(theta, layout, data, t, t == first, score)
        top, bottom = -np.inf, np.inf
        for k in range(lo, hi):
            top, bottom = max(top, score[member[k]]), min(bottom, score[member[k]])
        if not top - bottom + (factors.spread[p] if t > first else 0.0) <= SAFE_RANGE:
            return np.nan
        if t > first:
            message(factors, factors.dense, factors.row, factors.column, p, member, i_lo, i_hi, lo, hi, current, out)
            log_z += factors.shift[p]
        else:
            out[:] = 1.0
        total = 0.0
        for k in range(lo, hi):
            y = member[k]
            e[at, y] = np.exp(score[y] - top)
            out[y] *= e[at, y]
            total += out[y]
        for k in range(i_lo, i_hi):
            current[member[k]] = 0.0
        for k in range(lo, hi):
            y = member[k]
            current[y] = out[y] / total
            alpha[at, y] = current[y]
        scale[at] = total
        log_z += np.log(total) + top
        i_lo, i_hi = lo, hi
    return log_z


@kernel
def _backward(layout, data, sets, factors, lists, first, last, weight, alpha, e, scale, gradient):
    """weight times the expectations among the allowed labellings, from what `_forward` left."""
    row, ptr, member = lists.row, lists.ptr, lists.member
    n_labels, of_position = layout.n_labels, sets.of_position
    beta, left, right = np.ones(n_labels), np.zeros(n_labels), np.zeros(n_labels)
    gamma, pairs = np.zeros(n_labels), np.zeros(n_labels * n_labels)
    for t in range(last, first - 1, -1):
        at, p = t - first, of_position[t]
        lo, hi = ptr[row[t]], ptr[row[t] + 1]
        for k in range(lo, hi):
            y = member[k]
            gamma[y] = weight * alpha[at, y] * beta[y]
            right[y] = e[at, y] * beta[y] / scale[at]
        add_position_counts(layout, data, t, t == first, member, lo, hi, gamma, gradient)
        if t == first:
            break
        i_lo, i_hi = ptr[row[t - 1]], ptr[row[t - 1] + 1]
        for k in range(i_lo, i_hi):
            left[member[k]] = weight * alpha[at - 1, member[k]]
        add_pair_counts(layout, sets, factors, p, member, i_lo, i_hi, lo, hi, left, right, pairs, gradient)
        message(factors, factors.transposed, factors.column, factors.row, p, member, lo, hi, i_lo, i_hi, right, beta)
        for k in range(lo, hi):
            gamma[member[k]] = 0.0
            right[member[k]] = 0.0


@kernel
def _add_expectations(layout, data, sets, lists, lo, hi, weight, gamma, pairs, gradient):
    """weight times the marginals gamma [L, Y] and pairs [L, Y * Y] of one sequence are added to `gradient`."""
    row, ptr, member = lists.row, lists.ptr, lists.member
    for t in range(lo, hi):
        counts, here, end = weight * gamma[t - lo], ptr[row[t]], ptr[row[t] + 1]
        add_position_counts(layout, data, t, t == lo, member, here, end, counts, gradient)
        if t != lo:
            before = row[t - 1]
            add_pairs(layout, sets, sets.of_position[t], member, ptr[before], ptr[before + 1], here, end,
                      weight * pairs[t - lo], gradient)  # fmt: skip
