"""Training with a weight for each token.

By the chain rule log p(y | x) = sum_t log p(y_t | y_1..y_{t-1}, x), and each term may
have a weight tau_t: l_n = -sum_t tau_t log p(y_t | y_1..y_{t-1}, x). With equal weights
it is tau times the ordinary loss. With unequal ones it is not convex in general: a term
is a difference of two log partitions.

With s_t the score of a position and its transition, and beta the backward variables,
log p(y_t | y_{t-1}, x) = s_t + log beta_t(y_t) - log beta_{t-1}(y_{t-1}). Summed by parts,

    l_n = tau_1 log Z - sum_t tau_t s_t + sum_{t < T} (tau_{t+1} - tau_t) log beta_t(y_t).

The first two parts are the ordinary loss with the sequence weight tau_1 and observed
counts weighted by tau_t. This module has the third, for sequences whose weights differ.
Its gradient needs one pass: log beta_t(y_t) has as gradient the expected counts after t
given y_t, so a mass tau_{t+1} - tau_t enters at (t, y_t) and flows on by p(y | y', x):

    g_t(y) = sum_y' m_{t-1}(y') p(y | y', x),  m_t(y) = g_t(y) + (tau_{t+1} - tau_t) 1{y = y_t},

g_t being the expected counts of labels at t, and its terms those of pairs. That is the forward half of
`engine.chain.covariance`, from the first mass on: with the other half it would cost twice as much, so it stays here.
"""

import numpy as np

from espalier.engine.chain.logarithms import join, log_back, make_pair_step
from espalier.engine.chain.pair_sets import pair_sets
from espalier.engine.chain.scores import SAFE_RANGE, make_factors, position_scores
from espalier.engine.data.dataset import Dataset, any_in_sequence, select
from espalier.engine.errors import EspalierError
from espalier.engine.losses.label_lists import (
    NO_GRADIENT,
    Chunks,
    add_pair_counts,
    add_pairs,
    add_position_counts,
    message,
)
from espalier.engine.runtime import threads
from espalier.engine.runtime.inner_loops import put
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.vectors import dot
from espalier.engine.weights.layout import Layout


def token_weights(dataset: Dataset, layout: Layout, sparse: str) -> "TokenWeights | None":
    """The term of the sequences whose token weights differ; None when there is none."""
    if not len(dataset.token_weights):
        return None
    inner = np.ones(len(dataset.labels), bool)
    inner[dataset.offsets[:-1]] = False
    change = np.diff(dataset.token_weights, prepend=dataset.token_weights[:1]) * inner
    differ = any_in_sequence(dataset, change != 0.0)
    bad = differ & any_in_sequence(dataset, dataset.labels < 0)
    if bad.any():
        raise EspalierError(
            f"sequence {int(np.argmax(bad))} has token weights that differ and a label that is not known: "
            "give it one weight for all tokens, or all labels"
        )
    if not differ.any():
        return None
    return TokenWeights(select(dataset, np.flatnonzero(differ)), layout, sparse)


def first_weights(dataset: Dataset) -> np.ndarray:
    """w_n tau_1 of each sequence: its weight in the ordinary part of the loss, float64 [N]."""
    if not len(dataset.token_weights):
        return dataset.weights
    return dataset.weights * dataset.token_weights[dataset.offsets[:-1]]


class TokenWeights:
    """sum_n w_n sum_{t < T} (tau_{t+1} - tau_t) log beta_t(y_t) over sequences whose tau differ."""

    name = "token weights that differ within a sequence"

    def __init__(self, dataset: Dataset, layout: Layout, sparse: str):
        self.dataset, self.layout, self.sparse = dataset, layout, sparse
        self.sets = pair_sets(dataset, layout)
        self.jump = np.diff(dataset.token_weights, append=0.0)
        self.jump[dataset.offsets[1:] - 1] = 0.0
        self.everyone = np.arange(layout.n_labels)
        self.chunks = Chunks(dataset.offsets, layout.size)

    def value(self, theta: np.ndarray) -> float:
        """The term alone: backward recursion only."""
        values, factors = np.empty(len(self.dataset.weights)), self._factors(theta)
        threads.run(lambda run: self._piece(theta, factors, values, *run, NO_GRADIENT), self.chunks.runs)
        return self._finish(theta, values, NO_GRADIENT)

    def add_gradient(self, theta: np.ndarray, gradient: np.ndarray) -> float:
        """The term; its gradient is added to `gradient`."""
        values, factors = np.empty(len(self.dataset.weights)), self._factors(theta)
        self.chunks.add(lambda lo, hi, target: self._piece(theta, factors, values, lo, hi, target), gradient)
        return self._finish(theta, values, gradient)

    def _factors(self, theta):
        return make_factors(theta, self.layout, self.sets, self.sparse)

    def _piece(self, theta, factors, values, lo, hi, target):
        _tails(
            theta, self.layout, self.dataset, self.jump, self.sets, factors, self.everyone, lo, hi, target, values
        )

    def _finish(self, theta, values, gradient) -> float:
        """Sequences with extreme scores follow by logarithms, one after the other."""
        data = self.dataset
        for n in np.flatnonzero(np.isnan(values)):
            values[n] = _by_logarithms(theta, self.layout, data, self.jump, self.sets, self.everyone, data.offsets[n],
                                       data.offsets[n + 1] - 1, data.weights[n], gradient)  # fmt: skip
        return dot(data.weights, values)


@kernel
def _tails(theta, layout, data, jump, sets, factors, everyone, lo, hi, gradient, values):
    """values[n] = sum_t jump_t log beta_t(y_t) of the sequences [lo, hi), NaN where logarithms are needed."""
    n_labels, offsets, longest = layout.n_labels, data.offsets, 0
    for n in range(lo, hi):
        longest = max(longest, offsets[n + 1] - offsets[n])
    beta, v = np.empty((longest, n_labels)), np.empty((longest, n_labels))
    for n in range(lo, hi):
        first, last = offsets[n], offsets[n + 1] - 1
        while jump[first] == 0.0:  # no mass enters before
            first += 1
        values[n] = _backward(theta, layout, data, jump, sets, factors, everyone, first, last, beta, v)
        if len(gradient) and not np.isnan(values[n]):
            _flow(layout, data, jump, sets, factors, everyone, first, last, data.weights[n], beta, v, gradient)


@kernel
def _backward(theta, layout, data, jump, sets, factors, everyone, first, last, beta, v):
    """beta_{t-1}(y') = sum_y E_t(y', y) v_t(y), v_t(y) = e_t(y) beta_t(y) (SBCD 8), each beta scaled to a largest 1.

    Returns sum_t jump_t log beta_t(y_t) from `first` on. Rows belong to t - first.
    """
    n_labels, labels = layout.n_labels, data.labels
    score, out, right = np.empty(n_labels), np.empty(n_labels), np.empty(n_labels)
    beta[last - first] = 1.0
    value, log_scale = 0.0, 0.0
    for t in range(last, first, -1):
        at, p = t - first, sets.of_position[t]
        position_scores(theta, layout, data, t, False, score)
        top = score.max()
        if not top - score.min() + factors.spread[p] <= SAFE_RANGE:
            return np.nan
        for y in range(n_labels):
            right[y] = np.exp(score[y] - top) * beta[at, y]
        message(factors, factors.transposed, factors.column, factors.row, p, everyone, 0, n_labels, 0, n_labels,
                right, out)  # fmt: skip
        scale = out.max()
        for y in range(n_labels):
            beta[at - 1, y] = out[y] / scale
            v[at, y] = right[y] / scale
        log_scale += top + factors.shift[p] + np.log(scale)
        value += jump[t - 1] * (np.log(beta[at - 1, labels[t - 1]]) + log_scale)
    return value


@kernel
def _flow(layout, data, jump, sets, factors, everyone, first, last, weight, beta, v, gradient):
    """The masses m_t of the module's text: p(y | y', x) = E_t(y', y) v_t(y) / beta_{t-1}(y')."""
    n_labels, labels = layout.n_labels, data.labels
    mass, left, right, out = np.zeros(n_labels), np.empty(n_labels), np.empty(n_labels), np.empty(n_labels)
    pairs = np.zeros(n_labels * n_labels)
    mass[labels[first]] = weight * jump[first]
    for t in range(first + 1, last + 1):
        at, p = t - first, sets.of_position[t]
        for y in range(n_labels):
            left[y] = mass[y] / beta[at - 1, y]
            right[y] = v[at, y]
        message(factors, factors.dense, factors.row, factors.column, p, everyone, 0, n_labels, 0, n_labels, left, out)
        for y in range(n_labels):
            mass[y] = out[y] * right[y]
        add_position_counts(layout, data, t, False, everyone, 0, n_labels, mass, gradient)
        add_pair_counts(layout, sets, factors, p, everyone, 0, n_labels, 0, n_labels, left, right, pairs, gradient)
        mass[labels[t]] += weight * jump[t]


@kernel
def _by_logarithms(theta, layout, data, jump, sets, everyone, first, last, weight, gradient):
    """The value of one sequence with extreme scores; its gradient is added to `gradient` unless that is empty."""
    n_labels, labels, rows = layout.n_labels, data.labels, last + 1 - first
    score, log_beta, reached = np.empty((rows, n_labels)), np.zeros((rows, n_labels)), np.zeros((rows, n_labels))
    step, current = make_pair_step(n_labels), np.zeros(n_labels)
    value, log_scale = 0.0, 0.0
    for t in range(last, first, -1):
        at = t - first
        position_scores(theta, layout, data, t, False, score[at])
        log_scale += log_back(theta, layout, sets, sets.of_position[t], score, at, reached, current, step)
        log_beta[at - 1] = current
        value += jump[t - 1] * (log_beta[at - 1, labels[t - 1]] + log_scale)
    if len(gradient) == 0:
        return value
    mass, following = np.zeros((1, n_labels)), np.zeros(n_labels)
    mass[0, labels[first]] = weight * jump[first]
    for t in range(first + 1, last + 1):
        at = t - first
        put(log_beta[at], current)
        log_back(theta, layout, sets, sets.of_position[t], score, at, reached, current, step)
        join(1.0, mass, 0, step)
        following[:] = 0.0
        for i in range(n_labels):
            for y in range(n_labels):
                following[y] += step.conditional[i, y]
        mass[0] = following
        add_position_counts(layout, data, t, False, everyone, 0, n_labels, following, gradient)
        add_pairs(layout, sets, sets.of_position[t], everyone, 0, n_labels, 0, n_labels, step.pairs, gradient)
        mass[0, labels[t]] += weight * jump[t]
    return value
