"""Expected counts of one sequence at a time, straight from theta.

For solvers that move theta between sequences or need the counts of each sequence by
itself. Nothing is shared between sequences; inside one, the pairwise factor is made
once for each distinct set of bigram observations. Scaled in the linear domain as in
`forward_backward`; a sequence with a step too wide for that goes to logarithms.
Cost: Y^2 a position, and Y^2 a distinct set for its factor.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.pair_sets import PairSets
from espalier.engine.chain.scores import SAFE_RANGE, pair_scores
from espalier.engine.data.dataset import Dataset
from espalier.engine.lattice.recursions import backward, forward, make_step_rows
from espalier.engine.runtime.inner_loops import add_runs, add_values, take_values
from espalier.engine.runtime.jit import kernel
from espalier.engine.weights.layout import Layout


class SequenceBuffers(NamedTuple):
    """Scratch memory for any sequence of a data set: T positions, D distinct sets in one sequence at most."""

    score: np.ndarray  # [T, Y], u_t(y)
    alpha: np.ndarray  # [T, Y], or its logarithm
    beta: np.ndarray  # [T, Y]
    gamma: np.ndarray  # [T, Y], p(y_t = y)
    scale: np.ndarray  # [T], c_t
    pair_score: np.ndarray  # [D, Y, Y]
    factor: np.ndarray  # [D, Y, Y], exp(pair_score - its maximum)
    pairs: np.ndarray  # [D, Y, Y], expected number of pairs, summed over the positions of the set
    shift: np.ndarray  # [D], maximum of pair_score
    which: np.ndarray  # int32 [T], the row d of a position's set, -1 at the first
    set_of: np.ndarray  # int32 [D], the set p of row d
    row_of: np.ndarray  # int32 [P], the row of set p; it holds if set_of points back
    terms: np.ndarray  # [Y]
    flat: np.ndarray  # [Y * Y]


def make_buffers(dataset: Dataset, layout: Layout, sets: PairSets) -> SequenceBuffers:
    n_labels, n_sets = layout.n_labels, len(sets.ptr) - 1
    longest = int(np.diff(dataset.offsets).max(initial=1))
    most = int(_most_distinct(dataset.offsets, sets.of_position, np.full(n_sets, -1, np.int64)))
    rows, matrices = (longest, n_labels), (most, n_labels, n_labels)
    return SequenceBuffers(
        np.empty(rows), np.empty(rows), np.empty(rows), np.empty(rows), np.empty(longest),
        np.empty(matrices), np.empty(matrices), np.empty(matrices), np.empty(most),
        np.empty(longest, np.int32), np.empty(most, np.int32), np.zeros(n_sets, np.int32),
        np.empty(n_labels), np.empty(n_labels**2),
    )  # fmt: skip


@kernel
def _most_distinct(offsets, of_position, last):
    """Largest number of distinct sets in one sequence; `last` [P] is scratch, -1 on entry."""
    most = 1
    for n in range(len(offsets) - 1):
        found = 0
        for t in range(offsets[n] + 1, offsets[n + 1]):
            if last[of_position[t]] != n:
                last[of_position[t]] = n
                found += 1
        most = max(most, found)
    return most


@kernel
def fill_scores(theta, unit, layout, data, sets, lo, hi, buffers):
    """Scores at unit * theta of the positions lo..hi-1 and their distinct sets; (number of sets, widest step)."""
    n_labels, observations, valued, values = layout.n_labels, data.observations, data.valued, data.values
    terms, flat, widest, found = buffers.terms, buffers.flat, 0.0, 0
    for t in range(lo, hi):
        terms[:] = 0.0
        add_runs(theta, layout.unigram_ptr, layout.unigram_code, observations, t, terms)
        add_values(theta, layout.unigram_ptr, layout.unigram_code, valued, values, t, terms)
        if t == lo:
            add_runs(theta, layout.start_ptr, layout.start_code, observations, t, terms)
        for y in range(n_labels):
            buffers.score[t - lo, y] = unit * terms[y]
        width = unit * (terms.max() - terms.min())
        buffers.which[t - lo] = -1
        if t > lo:
            p = sets.of_position[t]
            if buffers.row_of[p] >= found or buffers.set_of[buffers.row_of[p]] != p:
                pair_scores(theta, layout, sets, p, flat)
                for i in range(n_labels):
                    for y in range(n_labels):
                        buffers.pair_score[found, i, y] = unit * flat[i * n_labels + y]
                buffers.row_of[p], buffers.set_of[found] = found, p
                buffers.shift[found] = unit * flat.max()
                found += 1
            d = buffers.row_of[p]
            buffers.which[t - lo] = d
            width += buffers.shift[d] - buffers.pair_score[d].min()
        if not width <= widest:
            widest = width
    return found, widest


@kernel
def expect(theta, unit, layout, data, sets, lo, hi, buffers):
    """(log Z at unit * theta, number of distinct sets); gamma and pairs of the buffers hold the expected counts."""
    found, widest = fill_scores(theta, unit, layout, data, sets, lo, hi, buffers)
    for d in range(found):
        buffers.pairs[d] = 0.0
    if widest <= SAFE_RANGE:
        return _expect_scaled(hi - lo, found, buffers), found
    return by_logarithms(hi - lo, buffers, buffers.pairs[:0], buffers.pairs), found


@kernel
def _expect_scaled(length, found, buffers):
    """alpha_t = e_t * (alpha_{t-1} E_t) / c_t and back; pairs are alpha_{t-1} v_t^T, times the factor at the end."""
    score, alpha, beta, gamma, scale = buffers.score, buffers.alpha, buffers.beta, buffers.gamma, buffers.scale
    factor, pairs, which, v = buffers.factor, buffers.pairs, buffers.which, buffers.terms
    n_labels = len(v)
    for d in range(found):
        plain = np.exp(-buffers.shift[d])
        for i in range(n_labels):
            for y in range(n_labels):
                s = buffers.pair_score[d, i, y]
                factor[d, i, y] = plain if s == 0.0 else np.exp(s - buffers.shift[d])
    log_z = 0.0
    for t in range(length):
        top = score[t].max()
        for y in range(n_labels):
            score[t, y] = np.exp(score[t, y] - top)
            alpha[t, y] = 1.0 if t == 0 else 0.0
        if t > 0:
            d = which[t]
            log_z += buffers.shift[d]
            for i in range(n_labels):
                a = alpha[t - 1, i]
                for y in range(n_labels):
                    alpha[t, y] += a * factor[d, i, y]
        total = 0.0
        for y in range(n_labels):
            alpha[t, y] *= score[t, y]
            total += alpha[t, y]
        for y in range(n_labels):
            alpha[t, y] /= total
        scale[t] = total
        log_z += np.log(total) + top
    beta[length - 1] = 1.0
    for t in range(length - 1, -1, -1):
        for y in range(n_labels):
            gamma[t, y] = alpha[t, y] * beta[t, y]
            v[y] = score[t, y] * beta[t, y] / scale[t]
        if t == 0:
            break
        d = which[t]
        for i in range(n_labels):
            a, total = alpha[t - 1, i], 0.0
            for y in range(n_labels):
                total += factor[d, i, y] * v[y]
                pairs[d, i, y] += a * v[y]
            beta[t - 1, i] = total
    for d in range(found):
        for i in range(n_labels):
            for y in range(n_labels):
                pairs[d, i, y] *= factor[d, i, y]
    return log_z


@kernel
def log_forward(length, buffers):
    """log Z from the scores; buffers.alpha becomes log_alpha, each row with the largest value 0."""
    rows = make_step_rows(len(buffers.terms))
    return forward(buffers.score[:length], buffers.pair_score, buffers.which[:length], buffers.alpha, rows)


@kernel
def by_logarithms(length, buffers, pairs, counts):
    """log Z from the scores; fills gamma and, unless they are empty, pairs [T, Y, Y] and counts, see `backward`."""
    log_z, rows = log_forward(length, buffers), make_step_rows(len(buffers.terms))
    score, which = buffers.score[:length], buffers.which[:length]
    backward(score, buffers.pair_score, which, buffers.alpha, buffers.gamma, pairs, counts, rows)
    return log_z


@kernel
def add_expected(layout, data, sets, lo, hi, found, weight, buffers, out):
    """out += weight * the counts in gamma and pairs, at the weights of the sequence's observations only."""
    n_labels, observations, valued, values = layout.n_labels, data.observations, data.valued, data.values
    gamma, flat = buffers.gamma, buffers.flat
    for t in range(lo, hi):
        _add_runs(layout.unigram_ptr, layout.unigram_code, observations, t, weight, gamma, t - lo, n_labels, out)
        take_values(layout.unigram_ptr, layout.unigram_code, valued, values, t, gamma, t - lo, n_labels, weight, out)
        if t == lo:
            _add_runs(layout.start_ptr, layout.start_code, observations, t, weight, gamma, 0, n_labels, out)
    ptr, code, base = layout.bigram_ptr, layout.bigram_code, layout.bigram_ptr[0]
    for d in range(found):
        for i in range(n_labels):
            for y in range(n_labels):
                flat[i * n_labels + y] = weight * buffers.pairs[d, i, y]
        for m in range(sets.ptr[buffers.set_of[d]], sets.ptr[buffers.set_of[d] + 1]):
            begin, end = ptr[sets.observation[m]], ptr[sets.observation[m] + 1]
            full = end - begin == len(flat)
            for s in range(begin, end):
                out[s] += flat[s - begin if full else code[s - base]]


@kernel
def _add_runs(ptr, code, observations, t, weight, gamma, row, n_labels, out):
    base = ptr[0]
    for k in range(observations.shape[1]):
        x = observations[t, k]
        if x < 0:
            continue
        begin, end = ptr[x], ptr[x + 1]
        full = end - begin == n_labels
        for s in range(begin, end):
            out[s] += weight * gamma[row, s - begin if full else code[s - base]]
