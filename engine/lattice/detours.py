"""The best labelling through each label of each position, where triples of labels have scores.

It is the best way to a pair of labels and the best way on from it, by Viterbi's recursion over pairs in both
directions. Either way soon meets the best labelling of all in two labels that follow each other, and goes with it from
there; so all of them together take about the time of two recursions.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.lattice.lattice import Lattice
from espalier.engine.lattice.second_order import Triples, refuse_too_long, viterbi, ways_in
from espalier.engine.runtime.jit import kernel


class Detours(NamedTuple):
    """Of one sequence."""

    lattice: Lattice
    triples: Triples
    labels: np.ndarray  # int32 [L], the best labelling
    values: np.ndarray  # [L, Y, Y], score of the best way to a pair
    on: np.ndarray  # [L, Y, Y], and of the best way on from it
    other: np.ndarray  # int32 [L], scratch memory, the labels between two calls

    def through(self, t: int, label: int) -> tuple[int, np.ndarray, bool]:
        """(begin, labels, False) of the stretch in which the best labelling with `label` at t differs; none is cut."""
        here, between, which, _ = self.lattice
        lo, hi = _through(here, between, which, self.triples, self.values, self.on, self.labels, t, label, self.other)
        where = lo + np.flatnonzero(self.other[lo:hi] != self.labels[lo:hi])
        begin, end = (int(where[0]), int(where[-1]) + 1) if len(where) else (t, t + 1)
        found = self.other[begin:end].copy()
        self.other[lo:hi] = self.labels[lo:hi]
        return begin, found, False


def detours(lattice: Lattice, triples: Triples, labels: np.ndarray) -> Detours:
    """Of a lattice of one sequence and its best labels."""
    refuse_too_long(lattice)
    values, on = np.empty((2, len(labels), lattice.n_labels, lattice.n_labels))
    viterbi(lattice.here, lattice.between, lattice.which, triples.which, triples, values)
    ways_on(lattice.here, lattice.between, lattice.which, triples, on)
    return Detours(lattice, triples, labels, values, on, labels.copy())


@kernel
def ways_on(here, between, which, triples, on):
    """on_t(y', y) = the score of the best labelling from t + 1 on after these labels."""
    length, n_labels = here.shape
    first, last, scores = triples.first, triples.last, triples.score
    terms, top = np.empty((n_labels, n_labels)), np.empty(n_labels)
    on[length - 1, :, :] = 0.0
    for t in range(length - 1, 0, -1):
        p, q = which[t], triples.which[t]
        for i in range(n_labels):
            top[i] = -np.inf
            for y in range(n_labels):
                terms[i, y] = between[p, i, y] + here[t, y] + on[t, i, y]
                top[i] = max(top[i], terms[i, y])
        for before in range(n_labels):
            for i in range(n_labels):
                on[t - 1, before, i] = top[i]
        k, hi = (triples.begin[q], triples.end[q]) if q >= 0 else (np.int64(0), np.int64(0))
        while k < hi:
            pair, m = first[k], k
            before, i = pair // n_labels, pair % n_labels
            best = -np.inf
            for y in range(n_labels):
                score = 0.0
                if m < hi and first[m] == pair and last[m] % n_labels == y:
                    score = scores[m]
                    m += 1
                best = max(best, terms[i, y] + score)
            on[t - 1, before, i] = best
            k = m


@kernel
def _best_of(terms, usual):
    """The place of the largest; among equals `usual`, or the smallest."""
    best = usual
    for y in range(len(terms)):
        if terms[y] > terms[best]:
            best = y
    return best


@kernel
def _through(here, between, which, triples, values, on, labels, t, label, out):
    """(lo, hi): out[lo:hi] are the labels of the best labelling with `label` at t; all others are in `labels`, too."""
    length, n_labels = here.shape
    terms, lo, hi = np.empty(n_labels), max(t - 1, 0), t + 1
    out[t] = label
    if t > 0:
        for i in range(n_labels):
            terms[i] = values[t, i, label] + on[t, i, label]
        out[t - 1] = _best_of(terms, labels[t - 1])
    while lo > 0 and (lo == t - 1 or out[lo] != labels[lo] or out[lo + 1] != labels[lo + 1]):
        ways_in(values, lo + 1, triples.which, triples, out[lo], out[lo + 1], terms)
        out[lo - 1] = _best_of(terms, labels[lo - 1])
        lo -= 1
    while hi < length and (hi == t + 1 or out[hi - 1] != labels[hi - 1] or out[hi - 2] != labels[hi - 2]):
        p, q, i = which[hi], triples.which[hi], out[hi - 1]
        for y in range(n_labels):
            terms[y] = between[p, i, y] + here[hi, y] + on[hi, i, y]
        if q >= 0:
            pair = out[hi - 2] * n_labels + i
            k = triples.begin[q] + np.searchsorted(triples.first[triples.begin[q] : triples.end[q]], pair)
            while k < triples.end[q] and triples.first[k] == pair:
                terms[triples.last[k] % n_labels] += triples.score[k]
                k += 1
        out[hi] = _best_of(terms, labels[hi])
        hi += 1
    return lo, hi
