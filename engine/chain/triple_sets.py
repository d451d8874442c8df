"""Weights for triples of labels: where their expectations are summed, and the factors of the sets of observations.

A position from the third of a sequence on has a set of observations with such weights. Its factor is exp(s) for the
score s of a triple, and 1 for most triples: what is kept of a set are the entries exp(s) - 1 of its active triples,
whose score is not zero (SBCD 9, one label further back). So the recursions take time by what is active.

Expectations are needed of every weight that exists. They are sums of products a(y'', y') g(y', y), so an observation
keeps them as small matrices, one for each label y' in the middle: labels before it by labels after it.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.pair_sets import PairSets
from espalier.engine.chain.scores import SPARSE_LOWEST
from espalier.engine.lattice.second_order import Triples, make_triples
from espalier.engine.runtime.grouping import ends
from espalier.engine.runtime.jit import kernel
from espalier.engine.weights.layout import Layout

# Of one triple. With a step of `scores.SAFE_RANGE` products of forward and backward variables stay below
# exp(2 (300 + 40)), which is within float64.
HIGHEST = 30.0


class Matrices(NamedTuple):
    """The matrices of expectations of each observation x: block i of mid_ptr[x]:mid_ptr[x + 1] has a label y' each.

    Rows are the pairs first[first_ptr[i]:first_ptr[i + 1]], columns the pairs last[last_ptr[i]:last_ptr[i + 1]], and
    elements lie from block[i] on. Pairs are y'' W + y' and y' W + y, W the width of rows of labels.
    """

    mid_ptr: np.ndarray  # int64 [V + 1]
    first_ptr: np.ndarray  # int64 [blocks + 1]
    first: np.ndarray  # int32
    last_ptr: np.ndarray  # int64 [blocks + 1]
    last: np.ndarray  # int32
    block: np.ndarray  # int64 [blocks + 1]
    place: np.ndarray  # int64, for each weight of the layout the element that is its own


class ActiveTriples(NamedTuple):
    """The active triples of each set q: entries begin[q]..end[q] - 1, by (y'', y', y)."""

    begin: np.ndarray  # int64 [Q]
    end: np.ndarray  # int64 [Q]
    wide: np.ndarray  # bool [Q], an entry is too extreme for the linear domain
    score: np.ndarray  # float64
    factor: np.ndarray  # float64, exp(score) - 1
    first: np.ndarray  # int32, y'' W + y'
    last: np.ndarray  # int32, y' W + y
    middle: np.ndarray  # int32, y'
    label: np.ndarray  # int32, y
    own_ptr: np.ndarray  # int64, entry k counts for the elements own[own_ptr[k]:own_ptr[k + 1]] of its observations
    own: np.ndarray  # int64

    @property
    def most(self) -> int:
        """Of one set."""
        return int((self.end - self.begin).max(initial=0))


def make_matrices(layout: Layout, width: int) -> Matrices:
    """The matrices that hold all triples of each observation."""
    ptr, code, n = layout.trigram_ptr, layout.trigram_code, layout.n_labels
    owner = np.repeat(np.arange(layout.n_observations, dtype=np.int64), np.diff(ptr))
    first, middle, last = code // (n * n), code // n % n, code % n
    by_block = owner * n + middle
    blocks, of_block = np.unique(by_block, return_inverse=True)
    rows, row = np.unique(of_block * n + first, return_inverse=True)
    columns, column = np.unique(of_block * n + last, return_inverse=True)
    first_ptr = ends(np.bincount(rows // n, minlength=len(blocks)))
    last_ptr = ends(np.bincount(columns // n, minlength=len(blocks)))
    block = ends(np.diff(first_ptr) * np.diff(last_ptr))
    place = block[of_block] + (row - first_ptr[of_block]) * np.diff(last_ptr)[of_block] + column - last_ptr[of_block]
    mid_ptr = ends(np.bincount(blocks // n, minlength=layout.n_observations))
    in_the_middle = blocks % n
    return Matrices(
        mid_ptr, first_ptr, (rows % n * width + in_the_middle[rows // n]).astype(np.int32), last_ptr,
        (in_the_middle[columns // n] * width + columns % n).astype(np.int32), block, place.astype(np.int64),
    )  # fmt: skip


def make_entries(theta: np.ndarray, layout: Layout, sets: PairSets, matrices: Matrices, width: int) -> ActiveTriples:
    """The active triples of all sets at theta."""
    base, weights = int(layout.trigram_ptr[0]), theta[layout.trigram_ptr[0] : layout.trigram_ptr[-1]]
    active = np.flatnonzero(weights)
    active_ptr = np.searchsorted(active, layout.trigram_ptr - base).astype(np.int64)
    n_sets = len(sets.ptr) - 1
    room = np.diff(active_ptr)[sets.observation] if len(sets.observation) else np.zeros(0, np.int64)
    begin = ends(room)[sets.ptr[:-1]] if n_sets else np.zeros(0, np.int64)
    size, members = int(room.sum()), np.diff(sets.ptr)
    end, wide = np.empty(n_sets, np.int64), np.zeros(n_sets, bool)
    score, factor = np.empty(size), np.empty(size)
    first, last, middle, label = (np.empty(size, np.int32) for _ in range(4))
    own_ptr, own = np.zeros(size + 1, np.int64), np.empty(int(size * members.max(initial=0)), np.int64)
    used = _merge(
        weights, layout.trigram_code, layout.trigram_ptr - base, active, active_ptr, sets.ptr, sets.observation,
        matrices.place, layout.n_labels, width, begin, end, wide, score, factor, first, last, middle, label,
        own_ptr, own,
    )  # fmt: skip
    return ActiveTriples(begin, end, wide, score, factor, first, last, middle, label, own_ptr, own[:used].copy())


def scored_triples(entries: ActiveTriples, which: np.ndarray, n_labels: int, width: int) -> Triples:
    """The active triples as a lattice has them."""
    count = entries.end - entries.begin
    there = np.arange(int(count.sum())) + np.repeat(entries.begin - (np.cumsum(count) - count), count)
    first, last = entries.first[there].astype(np.int64), entries.last[there].astype(np.int64)
    pairs = (pair // width * n_labels + pair % width for pair in (first, last))
    return make_triples(which, count, *pairs, entries.score[there])


@kernel
def _merge(
    weights, code, ptr, active, active_ptr, set_ptr, member, place, n_labels, width, begin, end, wide, score, factor,
    first, last, middle, label, own_ptr, own,
):  # fmt: skip
    """Merge the active weights of the members of each set, by triple; returns how many elements they count for.

    A triple whose weights cancel is not active. An entry counts for the weights of all members that have the triple,
    also for those that are zero.
    """
    used, next_free = 0, 0
    for q in range(len(end)):
        lo, hi = set_ptr[q], set_ptr[q + 1]
        heads = active_ptr[member[lo:hi]].copy()
        k = begin[q]
        for j in range(next_free, k + 1):
            own_ptr[j] = used
        while True:
            lowest = np.int64(-1)
            for m in range(hi - lo):
                if heads[m] < active_ptr[member[lo + m] + 1]:
                    here = code[active[heads[m]]]
                    lowest = here if lowest < 0 or here < lowest else lowest
            if lowest < 0:
                break
            total = 0.0
            for m in range(hi - lo):
                if heads[m] < active_ptr[member[lo + m] + 1] and code[active[heads[m]]] == lowest:
                    total += weights[active[heads[m]]]
                    heads[m] += 1
            if total == 0.0:
                continue
            before, y = lowest // n_labels, lowest % n_labels
            score[k], factor[k] = total, np.expm1(min(total, HIGHEST))
            first[k] = before // n_labels * width + before % n_labels
            last[k] = before % n_labels * width + y
            middle[k], label[k] = before % n_labels, y
            wide[q] = wide[q] or not SPARSE_LOWEST <= total <= HIGHEST
            for m in range(hi - lo):
                x = member[lo + m]
                at = ptr[x] + np.searchsorted(code[ptr[x] : ptr[x + 1]], lowest)
                if at < ptr[x + 1] and code[at] == lowest:
                    own[used] = place[at]
                    used += 1
            k += 1
            own_ptr[k] = used
        end[q] = k
        next_free = k + 1
    for j in range(next_free, len(own_ptr)):
        own_ptr[j] = used
    return used
