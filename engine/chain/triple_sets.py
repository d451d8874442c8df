"""Weights for triples of labels: where their expectations are summed, and the factors of the sets of observations.

A position from the third of a sequence on has a set of observations with such weights. Its factor is exp(s) for the
score s of a triple, and 1 for most triples: what is kept of a set are the entries exp(s) - 1 of its active triples,
whose score is not zero (SBCD 9, one label further back). So the recursions take time by what is active.

Expectations are needed of every weight that exists. They are sums of products a(y'', y') g(y', y), so an observation
keeps them as small matrices, one for each label y' in the middle, labels before it by labels after it. Labels come by
how many triples they are in, and what is beyond the last that is needed is left out: on Nettalk 17,808 elements stand
for 8,906 triples where whole matrices would have 29,090.

Only pairs that are part of such a triple are looked at one by one: they are numbered, `SeenPairs`.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.pair_sets import PairSets
from espalier.engine.chain.scatter_gradient import PairSlots
from espalier.engine.chain.scores import SPARSE_LOWEST
from espalier.engine.lattice.second_order import Triples, make_triples
from espalier.engine.runtime.grouping import ends
from espalier.engine.runtime.jit import kernel
from espalier.engine.weights.layout import Layout

# Of one triple. With a step of `scores.SAFE_RANGE` products of forward and backward variables stay below
# exp(2 (300 + 40)), which is within float64.
HIGHEST = 30.0


class SeenPairs(NamedTuple):
    """The pairs (y', y) of labels that begin or end a triple of any weight, those with the same y side by side.

    Among these, those come first that begin the most triples. Each y has a whole number of vectors of four, and four
    places more are there to be read.
    """

    run_ptr: np.ndarray  # int64 [Y + 1], by y
    there: np.ndarray  # bool [S + 4], whether this is a pair; what is not has the labels 0, 0
    before: np.ndarray  # int32 [S + 4], y'
    after: np.ndarray  # int32 [S + 4], y
    of: np.ndarray  # int32 [Y * Y], the number of y' Y + y, or -1


class Matrices(NamedTuple):
    """Where expectations are summed: of observation x each block i of mid_ptr[x]:mid_ptr[x + 1] has a label y'.

    Its columns are the pairs first[first_ptr[i]:first_ptr[i + 1]], its rows those of last[last_ptr[i]:last_ptr[i + 1]].
    Tiles j of tile_ptr[i]:tile_ptr[i + 1] have four columns each, of as many rows as need one of them: elements
    begin[j]:begin[j + 1], row by row. Rows with more columns come first. The columns of the observation `often` are all
    pairs that end with y', in their own order.
    """

    often: int  # the observation with the most to add, or -1
    mid_ptr: np.ndarray  # int64 [V + 1]
    middle: np.ndarray  # int32 [blocks], y'
    first_ptr: np.ndarray  # int64 [blocks + 1]
    first: np.ndarray  # int32
    last_ptr: np.ndarray  # int64 [blocks + 1]
    last: np.ndarray  # int32
    tile_ptr: np.ndarray  # int64 [blocks + 1]
    begin: np.ndarray  # int64 [tiles + 1]
    place: np.ndarray  # int64, for each weight of the layout the element that is its own

    @property
    def elements(self) -> int:
        return int(self.begin[-1])


class TripleSlots(NamedTuple):
    """`scatter_gradient.PairSlots`, with where sums of seen pairs begin: of all of a full set, else by its codes."""

    ptr: np.ndarray
    code: np.ndarray
    full: np.ndarray
    sum_ptr: np.ndarray
    seen_at: np.ndarray  # int64 [P + 1]


class ActiveTriples(NamedTuple):
    """The active triples of each set q: entries begin[q]..end[q] - 1, in no order of their labels, see `_mix`."""

    begin: np.ndarray  # int64 [Q]
    end: np.ndarray  # int64 [Q]
    wide: np.ndarray  # bool [Q], an entry is too extreme for the linear domain
    score: np.ndarray  # float64
    factor: np.ndarray  # float64, exp(score) - 1
    first: np.ndarray  # int32, (y'', y') among the seen pairs
    last: np.ndarray  # int32, (y', y)
    before: np.ndarray  # int32, y''
    middle: np.ndarray  # int32, y'
    label: np.ndarray  # int32, y
    own_at: np.ndarray  # int64, entry k counts for the weights own[own_ptr[i]:own_ptr[i + 1]], i = own_at[k]
    own_ptr: np.ndarray  # int64
    own: np.ndarray  # int64

    @property
    def most(self) -> int:
        """Of one set."""
        return int((self.end - self.begin).max(initial=0))


def seen_pairs(layout: Layout) -> SeenPairs:
    """The pairs of all triples that have weights."""
    n, code = layout.n_labels, layout.trigram_code
    begins = np.bincount(code // n, minlength=n * n)
    pairs = np.flatnonzero(begins + np.bincount(code % (n * n), minlength=n * n))
    pairs = pairs[np.lexsort((pairs, -begins[pairs], pairs % n))]
    counts = np.bincount(pairs % n, minlength=n)
    run_ptr, of = ends(_in_fours(counts)), np.full(n * n, -1, np.int32)
    of[pairs] = run_ptr[pairs % n] + np.arange(len(pairs)) - ends(counts)[pairs % n]
    there, before, after = (np.zeros(run_ptr[-1] + 4, kind) for kind in (bool, np.int32, np.int32))
    there[of[pairs]], before[of[pairs]], after[of[pairs]] = True, pairs // n, pairs % n
    return SeenPairs(run_ptr, there, before, after, of)


def most_to_add(layout: Layout, sets: PairSets) -> int:
    """The observation with the most weights at all positions together, -1 where none has any."""
    there = np.bincount(sets.of_position[sets.of_position >= 0], minlength=len(sets.ptr) - 1).astype(np.float64)
    positions = np.repeat(there, np.diff(sets.ptr))
    work = np.bincount(sets.observation, positions, layout.n_observations) * np.diff(layout.trigram_ptr)
    return int(work.argmax()) if work.any() else -1


def make_matrices(layout: Layout, seen: SeenPairs, often: int) -> Matrices:
    """The matrices that hold all triples of each observation."""
    code, n = layout.trigram_code, layout.n_labels
    owner = np.repeat(np.arange(layout.n_observations, dtype=np.int64), np.diff(layout.trigram_ptr))
    blocks, of_block = np.unique(owner * n + code // n % n, return_inverse=True)
    middle, is_often = blocks % n, blocks // n == often
    place = seen.of[code // n] - seen.run_ptr[middle[of_block]]  # of a pair among those with the same y'
    columns, column = np.unique(of_block * n + place, return_inverse=True)
    starts = ends(np.bincount(columns // n, minlength=len(blocks)))
    rank = np.where(is_often[columns // n], columns % n, np.arange(len(columns)) - starts[columns // n])
    first_ptr, others = ends(_in_fours(np.diff(starts))), ~is_often[columns // n]
    first = np.zeros(first_ptr[-1], np.int32)
    first[(first_ptr[columns // n] + rank)[others]] = (seen.run_ptr[middle[columns // n]] + columns % n)[others]
    rows, row = np.unique(of_block * n + code % n, return_inverse=True)
    last = seen.of[middle[rows // n] * n + rows % n]
    last_ptr = ends(np.bincount(rows // n, minlength=len(blocks)))
    order, tile_ptr, begin = _tiles(rows // n, row, rank[column] // 4, len(blocks))
    at = np.empty(len(rows), np.int64)
    at[order] = np.arange(len(rows)) - last_ptr[rows[order] // n]
    elements = begin[tile_ptr[of_block] + rank[column] // 4] + 4 * at[row] + rank[column] % 4
    return Matrices(
        often, ends(np.bincount(blocks // n, minlength=layout.n_observations)), middle.astype(np.int32), first_ptr,
        first, last_ptr, last[order], tile_ptr, begin, elements,
    )  # fmt: skip


def _tiles(block: np.ndarray, row: np.ndarray, tile: np.ndarray, n_blocks: int):
    """(order of the rows, tile_ptr, begin) of `Matrices`; weights have a row and a tile of its block each."""
    needed = np.zeros(len(block), np.int64)  # of each row
    np.maximum.at(needed, row, tile + 1)
    most = np.zeros(n_blocks, np.int64)
    np.maximum.at(most, block, needed)
    tile_ptr, starts = ends(most), ends(needed)
    of_row = np.repeat(np.arange(len(block)), needed)
    rows_of_tile = np.bincount(tile_ptr[block[of_row]] + np.arange(starts[-1]) - starts[of_row], minlength=tile_ptr[-1])
    return np.lexsort((-needed, block)), tile_ptr, ends(4 * rows_of_tile)


def no_matrices(layout: Layout) -> Matrices:
    """Where no expectations of triples are asked for."""
    nothing, none = np.zeros(1, np.int64), np.empty(0, np.int32)
    pointers = np.zeros(layout.n_observations + 1, np.int64)
    return Matrices(-1, pointers, none, nothing, none, nothing, none, nothing, nothing, np.empty(0, np.int64))


def triple_slots(slots: PairSlots, seen: SeenPairs) -> TripleSlots:
    return TripleSlots(*slots, ends(np.where(slots.full, int(seen.run_ptr[-1]), np.diff(slots.ptr))))


def _in_fours(lengths: np.ndarray) -> np.ndarray:
    return -(-lengths // 4) * 4


def make_entries(theta: np.ndarray, layout: Layout, sets: PairSets, seen: SeenPairs) -> ActiveTriples:
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
    first, last, before, middle, label = (np.empty(size, np.int32) for _ in range(5))
    own_ptr, own = np.zeros(size + 1, np.int64), np.empty(int(size * members.max(initial=0)), np.int64)
    used = _merge(
        weights, layout.trigram_code, layout.trigram_ptr - base, active, active_ptr, sets.ptr, sets.observation,
        seen.of, layout.n_labels, begin, end, wide, score, factor, first, last, before, middle, label, own_ptr, own,
    )  # fmt: skip
    order = np.arange(size)
    _mix(begin, end, order)
    by_entry = (part[order] for part in (score, factor, first, last, before, middle, label))
    return ActiveTriples(begin, end, wide, *by_entry, order, own_ptr, own[:used].copy())


def scored_triples(entries: ActiveTriples, which: np.ndarray, n_labels: int) -> Triples:
    """The active triples as a lattice has them."""
    count = entries.end - entries.begin
    there = np.arange(int(count.sum())) + np.repeat(entries.begin - (np.cumsum(count) - count), count)
    before, middle, label = (part[there].astype(np.int64) for part in (entries.before, entries.middle, entries.label))
    order = np.lexsort((label, middle, before, np.repeat(np.arange(len(count)), count)))
    before, middle, label = before[order], middle[order], label[order]
    pairs = before * n_labels + middle, middle * n_labels + label
    return make_triples(which, count, *pairs, entries.score[there][order])


@kernel
def _mix(begin, end, order):
    """Entries of a set in another order: those that follow each other should differ in all three labels.

    They are added to sums by label, and a sum just stored is slow to load again. So each is followed by the one that
    comes so many places later that steps of this size go through all of them.
    """
    for q in range(len(begin)):
        n = end[q] - begin[q]
        step = max(1, int(0.618 * n))
        while _common_divisor(n, step) > 1:
            step += 1
        for k in range(n):
            order[begin[q] + k] = begin[q] + k * step % n


@kernel
def _common_divisor(one, other):
    while other:
        one, other = other, one % other
    return one


@kernel
def _merge(
    weights, code, ptr, active, active_ptr, set_ptr, member, of, n_labels, begin, end, wide, score, factor,
    first, last, before, middle, label, own_ptr, own,
):  # fmt: skip
    """Merge the active weights of the members of each set, by triple; returns how many weights they count for.

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
            pair, y = lowest // n_labels, lowest % n_labels
            score[k], factor[k] = total, np.expm1(min(total, HIGHEST))
            before[k], middle[k], label[k] = pair // n_labels, pair % n_labels, y
            first[k], last[k] = of[pair], of[middle[k] * n_labels + y]
            wide[q] = wide[q] or not SPARSE_LOWEST <= total <= HIGHEST
            for m in range(hi - lo):
                x = member[lo + m]
                at = ptr[x] + np.searchsorted(code[ptr[x] : ptr[x + 1]], lowest)
                if at < ptr[x + 1] and code[at] == lowest:
                    own[used] = at
                    used += 1
            k += 1
            own_ptr[k] = used
        end[q] = k
        next_free = k + 1
    for j in range(next_free, len(own_ptr)):
        own_ptr[j] = used
    return used


@kernel
def give_to_weights(own_at, own_ptr, own, sums, expected):
    """Add the sum of each entry to the weights that it counts for."""
    for k in range(len(own_at)):
        at = own_at[k]
        for i in range(own_ptr[at], own_ptr[at + 1]):
            expected[own[i]] += sums[k]
