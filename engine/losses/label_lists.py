"""One step of a recursion over lists of labels, and a gradient that several chunks of sequences add to.

A vector over the labels is zero outside the list of its position, so that a step
costs what its lists are long, not what all labels would.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.runtime import threads
from espalier.engine.runtime.inner_loops import take_values
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.threads import balanced
from espalier.engine.runtime.vectors import add_scaled

CHUNKS = 16
CHUNK = 512  # positions that are worth a chunk of their own
LARGEST = 1 << 26  # coordinates of all chunks' vectors together, 512 MiB

NO_GRADIENT = np.empty(0)


class LabelLists(NamedTuple):
    """Position t may have the labels member[ptr[row[t]]:ptr[row[t] + 1]]."""

    row: np.ndarray  # int64 [T]
    ptr: np.ndarray  # int64 [R + 1]
    member: np.ndarray  # int64


def label_lists(row: np.ndarray, table: np.ndarray) -> LabelLists:
    """The lists of a table of allowed labels, bool [R, Y]."""
    ptr = np.concatenate([[0], np.cumsum(table.sum(axis=1))]).astype(np.int64)
    return LabelLists(row, ptr, np.nonzero(table)[1].astype(np.int64))


@kernel
def is_long(lo, hi, n):
    """Whether a vectorised loop over all n labels is cheaper than one over the list."""
    return 4 * (hi - lo) >= n


@kernel
def message(factors, matrices, source, target, p, member, i_lo, i_hi, j_lo, j_hi, vector, out):
    """out(j) = sum_i vector(i) E_p(i, j) for the labels i and j of two lists; elsewhere out is of no use.

    With the transposed matrices, and source and target exchanged, it is the backward step.
    """
    n, d = len(vector), factors.slot[p]
    if d < 0:  # one for all, and the few entries of E_p - 1 (SBCD 9)
        total = 0.0
        for k in range(i_lo, i_hi):
            total += vector[member[k]]
        for j in range(n):
            out[j] = total
        entry = factors.entry
        for k in range(factors.begin[p], factors.end[p]):
            out[target[k]] += vector[source[k]] * entry[k]
    elif is_long(j_lo, j_hi, n):
        for j in range(n):
            out[j] = 0.0
        for k in range(i_lo, i_hi):
            i = member[k]
            a = vector[i]
            for j in range(n):
                out[j] += a * matrices[d, i, j]
    else:
        for m in range(j_lo, j_hi):
            j = member[m]
            total = 0.0
            for k in range(i_lo, i_hi):
                i = member[k]
                total += vector[i] * matrices[d, i, j]
            out[j] = total


@kernel
def add_position_counts(layout, data, t, first, member, lo, hi, counts, gradient):
    """gradient += counts[label] at the weights of all observations at t, times its value where one has a value."""
    unigram_ptr, unigram_code, valued, values = layout.unigram_ptr, layout.unigram_code, data.valued, data.values
    _add_counts(unigram_ptr, unigram_code, data.observations, t, member, lo, hi, counts, gradient)
    if first:
        _add_counts(layout.start_ptr, layout.start_code, data.observations, t, member, lo, hi, counts, gradient)
    if valued.shape[1]:
        row = counts.reshape(1, len(counts))
        take_values(unigram_ptr, unigram_code, valued, values, t, row, 0, len(counts), 1.0, gradient)


@kernel
def _add_counts(ptr, code, observations, t, member, lo, hi, counts, gradient):
    """gradient[slot] += counts[label] over the runs of all observations at t; counts is zero outside its list."""
    n_labels, base = len(counts), ptr[0]
    for k in range(observations.shape[1]):
        x = observations[t, k]
        if x < 0:
            continue
        begin, end = ptr[x], ptr[x + 1]
        if end - begin != n_labels:
            for s in range(begin, end):
                gradient[s] += counts[code[s - base]]
        elif is_long(lo, hi, n_labels):
            at = np.uint64(begin)
            for y in range(np.uint64(n_labels)):
                gradient[at + y] += counts[y]
        else:
            for m in range(lo, hi):
                gradient[begin + member[m]] += counts[member[m]]


@kernel
def add_pair_counts(layout, sets, factors, p, member, i_lo, i_hi, j_lo, j_hi, left, right, pairs, gradient):
    """gradient[lambda[x, i, j]] += left(i) E_p(i, j) right(j) for the members x of set p and two lists of labels.

    `left` and `right` are zero outside their lists, `pairs` [Y * Y] is zero before and after.
    """
    n, d = len(left), factors.slot[p]
    if d >= 0 and is_long(j_lo, j_hi, n):
        dense = factors.dense
        for k in range(i_lo, i_hi):
            i = member[k]
            a, at = left[i], np.uint64(i * n)
            for j in range(np.uint64(n)):
                pairs[at + j] = a * right[j] * dense[d, i, j]
    else:
        _few_pair_counts(factors, d, p, member, i_lo, i_hi, j_lo, j_hi, left, right, pairs)
    add_pairs(layout, sets, p, member, i_lo, i_hi, j_lo, j_hi, pairs, gradient)
    for k in range(i_lo, i_hi):
        at = np.uint64(member[k] * n)
        for j in range(np.uint64(n)):
            pairs[at + j] = 0.0


@kernel
def _few_pair_counts(factors, d, p, member, i_lo, i_hi, j_lo, j_hi, left, right, pairs):
    n, dense = len(left), factors.dense
    for k in range(i_lo, i_hi):
        i = member[k]
        for m in range(j_lo, j_hi):
            j = member[m]
            pairs[i * n + j] = left[i] * right[j] * (dense[d, i, j] if d >= 0 else 1.0)
    if d < 0:
        row, column, entry = factors.row, factors.column, factors.entry
        for k in range(factors.begin[p], factors.end[p]):
            pairs[row[k] * n + column[k]] *= 1.0 + entry[k]


@kernel
def add_pairs(layout, sets, p, member, i_lo, i_hi, j_lo, j_hi, pairs, gradient):
    """gradient[slot of lambda[x, i, j]] += pairs[i * Y + j] for the members x of set p; zero outside the lists."""
    n, ptr, code = layout.n_labels, layout.bigram_ptr, layout.bigram_code
    observation, base = sets.observation, ptr[0]
    for q in range(sets.ptr[p], sets.ptr[p + 1]):
        lo, hi = ptr[observation[q]], ptr[observation[q] + 1]
        if hi - lo != n * n:
            for s in range(lo, hi):
                gradient[s] += pairs[code[s - base]]
            continue
        for k in range(i_lo, i_hi):
            begin = member[k] * n
            if is_long(j_lo, j_hi, n):
                at, source = np.uint64(lo + begin), np.uint64(begin)
                for j in range(np.uint64(n)):
                    gradient[at + j] += pairs[source + j]
            else:
                for m in range(j_lo, j_hi):
                    gradient[lo + begin + member[m]] += pairs[begin + member[m]]


class Chunks:
    """Runs of sequences that add to a gradient at the same time; their number depends on data and layout alone."""

    def __init__(self, offsets: np.ndarray, size: int):
        count = max(1, min(CHUNKS, int(offsets[-1]) // CHUNK, LARGEST // max(1, size)))
        self.runs, self.size = balanced(np.diff(offsets), count), size
        self._room = None  # fresh memory costs as much as filling it, so it is kept

    def add(self, piece, gradient: np.ndarray) -> None:
        """piece(lo, hi, target) adds to `target`: for the first run the gradient, for others a vector of their own."""
        if self._room is None:
            self._room = np.empty((len(self.runs) - 1, self.size))

        def one(c):
            target = self._room[c - 1] if c else gradient
            if c:
                target[:] = 0.0
            piece(*self.runs[c], target)

        threads.run(one, range(len(self.runs)))
        for part in self._room:
            add_scaled(1.0, part, gradient)
