"""Working sets of hidden Markov support vector machines: wrong labellings of each sequence, in flat arrays.

A labelling is stored by the places where it is wrong and by how its pairs of labels differ from the right ones; beside
them stand the inner products of psi(right) - psi(labelling) for all labellings of a sequence with each other.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.families.row_chain import RowChain
from espalier.engine.runtime import threads
from espalier.engine.runtime.grouping import ends
from espalier.engine.runtime.jit import kernel
from espalier.engine.similarity.overlaps import own_gram


class Stretch(NamedTuple):
    """Sequences that follow each other; positions count from the first one's."""

    sequences: slice
    positions: slice  # of the data
    offsets: np.ndarray  # int64 [N + 1]
    rows: np.ndarray  # int32 [T]
    gold: np.ndarray  # int32 [T]


class Cuts(NamedTuple):
    """M labellings of a sequence each: labelling m is wrong at place[i], where label[i] stands, i from ptr[m] on."""

    owner: np.ndarray  # int64 [M], the sequence
    ptr: np.ndarray  # int64 [M + 1]
    place: np.ndarray  # int64, positions, ascending
    label: np.ndarray  # int32

    def first(self, count: int) -> "Cuts":
        """So many of them, apart from the room behind."""
        end = self.ptr[count]
        return Cuts(self.owner[:count].copy(), self.ptr[: count + 1].copy(), self.place[:end].copy(),
                    self.label[:end].copy())  # fmt: skip


class Sets(NamedTuple):
    """The working sets of N sequences: labelling m belongs to the sequence n with ptr[n] <= m < ptr[n + 1].

    It is wrong at place[i], where label[i] stands, and its pairs differ from the right ones by count[j] in slot[j].
    """

    ptr: np.ndarray  # int64 [N + 1]
    place_ptr: np.ndarray  # int64 [M + 1]
    place: np.ndarray  # int64
    label: np.ndarray  # int32
    slot_ptr: np.ndarray  # int64 [M + 1]
    slot: np.ndarray  # int64, ascending
    count: np.ndarray  # float64, right minus wrong ones
    loss: np.ndarray  # float64 [M], D(y)
    product_ptr: np.ndarray  # int64 [N + 1], of the squares below
    products: np.ndarray  # float64, of the labellings of a sequence with each other
    a: np.ndarray  # float64 [M]

    @property
    def owner(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))


def no_sets(n_sequences: int) -> Sets:
    nothing, zero = np.zeros(n_sequences + 1, np.int64), np.zeros(1, np.int64)
    whole, real = np.empty(0, np.int64), np.empty(0)
    return Sets(nothing, zero, whole, whole.astype(np.int32), zero, whole, real, real, nothing, real, real)


def together(parts: list[Sets], positions: list[int]) -> Sets:
    """The sets of all parts as one; those of part k begin at position positions[k] of the data."""
    flat = {name: np.concatenate([getattr(part, name) for part in parts]) for name in Sets._fields}
    flat["place"] += np.repeat(positions, [len(part.place) for part in parts])
    for name in ("ptr", "place_ptr", "slot_ptr", "product_ptr"):
        flat[name] = ends(np.concatenate([np.diff(getattr(part, name)) for part in parts]))
    return Sets(**flat)


def span_of(chain: RowChain, sequences: slice) -> Stretch:
    offsets = chain.dataset.offsets[sequences.start : sequences.stop + 1]
    positions = slice(int(offsets[0]), int(offsets[-1]))
    return Stretch(sequences, positions, offsets - offsets[0], chain.of_position[positions],
                chain.dataset.labels[positions])  # fmt: skip


def renewed(sets: Sets, cuts: Cuts, chain: RowChain, span: Stretch, eta: float, hamming: bool) -> Sets:
    """The sets without those labellings whose a_y are zero, and with new ones behind the others."""
    kept, new = sets.a > 0.0, _described(cuts, chain, span)
    owner = np.concatenate([sets.owner[kept], cuts.owner])
    origin = np.concatenate([np.flatnonzero(kept), len(kept) + np.arange(len(cuts.owner))])
    order = np.argsort(owner, kind="stable")
    origin, sizes = origin[order], np.bincount(owner, minlength=len(sets.ptr) - 1)
    place_ptr, at = _gathered(_joined(sets.place_ptr, cuts.ptr), origin)
    slot_ptr, slot_at = _gathered(_joined(sets.slot_ptr, new[0]), origin)
    wrong = np.diff(place_ptr).astype(np.float64)
    found = Sets(
        ends(sizes), place_ptr, np.concatenate([sets.place, cuts.place])[at],
        np.concatenate([sets.label, cuts.label])[at], slot_ptr, np.concatenate([sets.slot, new[1]])[slot_at],
        np.concatenate([sets.count, new[2]])[slot_at], wrong if hamming else np.ones(len(wrong)),
        ends(sizes.astype(np.int64) ** 2), np.empty(int(np.sum(sizes.astype(np.int64) ** 2))),
        np.append(sets.a, np.zeros(len(cuts.owner)))[origin],
    )  # fmt: skip
    origin = np.where(origin < len(kept), origin, -1)
    threads.run(
        lambda piece: fill_products(*piece, sets, found, origin, chain.rows, span.rows, span.offsets, span.gold,
                                    chain.degree, eta),
        threads.balanced(np.diff(span.offsets)),
    )  # fmt: skip
    return found


def _joined(ptr: np.ndarray, behind: np.ndarray) -> np.ndarray:
    return np.concatenate([ptr, ptr[-1] + behind[1:]])


def _gathered(ptr: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(where runs begin when those of `which` follow each other, the places that they are taken from)."""
    lengths = np.diff(ptr)[which]
    found = ends(lengths)
    return found, np.repeat(ptr[which] - found[:-1], lengths) + np.arange(found[-1])


def _described(cuts: Cuts, chain: RowChain, span: Stretch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(ptr, slots, counts) of how the pairs of some labellings differ from the right ones."""
    room = 4 * len(cuts.place) * chain.paired.shape[1]
    slots, counts, ptr = np.empty(room, np.int64), np.empty(room), np.zeros(len(cuts.owner) + 1, np.int64)
    labels = np.empty(int(np.diff(span.offsets).max(initial=0)), np.int32)
    paired = chain.paired[span.positions]
    find_pairs(cuts, paired, chain.pair_layout, span.offsets, span.gold, labels, ptr, slots, counts)
    return ptr, slots[: ptr[-1]].copy(), counts[: ptr[-1]].copy()


@kernel
def find_pairs(cuts, paired, layout, offsets, gold, labels, ptr, slots, counts):
    """Slots of pairs, ascending, and right minus wrong counts of each labelling; those at ptr[m] to ptr[m + 1]."""
    n_labels, at = layout.n_labels, 0
    for m in range(len(cuts.owner)):
        begin, end, first = offsets[cuts.owner[m]], offsets[cuts.owner[m] + 1], at
        for t in range(begin, end):
            labels[t - begin] = gold[t]
        for i in range(cuts.ptr[m], cuts.ptr[m + 1]):
            labels[cuts.place[i] - begin] = cuts.label[i]
        after = begin
        for i in range(cuts.ptr[m], cuts.ptr[m + 1]):
            for t in range(max(cuts.place[i], after), min(cuts.place[i] + 2, end)):
                right, wrong, ptrs, codes = gold[t], labels[t - begin], layout.start_ptr, layout.start_code
                if t > begin:
                    right += gold[t - 1] * n_labels
                    wrong += labels[t - begin - 1] * n_labels
                    ptrs, codes = layout.bigram_ptr, layout.bigram_code
                for c in range(paired.shape[1]):
                    if paired[t, c] >= 0:
                        at = counted(slot_of(ptrs, codes, paired[t, c], right), 1.0, first, at, slots, counts)
                        at = counted(slot_of(ptrs, codes, paired[t, c], wrong), -1.0, first, at, slots, counts)
                after = t + 1
        last, at = at, first
        for i in range(first, last):
            if counts[i] != 0.0:
                slots[at], counts[at] = slots[i], counts[i]
                at += 1
        ptr[m + 1] = at


@kernel
def slot_of(ptr, codes, x, code):
    """The slot of a code in the run of observation x, -1 where it has none; a run without codes has all of them."""
    lo, hi = ptr[x], ptr[x + 1]
    if len(codes) == 0:
        return lo + code if hi > lo else -1
    while lo < hi:
        middle = (lo + hi) // 2
        if codes[middle - ptr[0]] < code:
            lo = middle + 1
        else:
            hi = middle
    return lo if lo < ptr[x + 1] and codes[lo - ptr[0]] == code else -1


@kernel
def counted(slot, by, first, at, slots, counts):
    """`by` more of a slot among slots[first:at], which are ascending; where they end then."""
    if slot < 0:
        return at
    i = at
    while i > first and slots[i - 1] >= slot:
        i -= 1
    if i < at and slots[i] == slot:
        counts[i] += by
        return at
    for j in range(at, i, -1):
        slots[j], counts[j] = slots[j - 1], counts[j - 1]
    slots[i], counts[i] = slot, by
    return at + 1


@kernel
def fill_products(lo, hi, old, sets, origin, rows, of_position, offsets, gold, degree, eta):
    """Inner products of psi(right) - psi(labelling) in the sets of sequences lo .. hi - 1.

    Those of two labellings that were there before, numbered origin[m] in the old sets, are copied.
    """
    for n in range(lo, hi):
        begin, k = sets.ptr[n], sets.ptr[n + 1] - sets.ptr[n]
        out = sets.products[sets.product_ptr[n] : sets.product_ptr[n + 1]].reshape(k, k)
        before, size = old.ptr[n], old.ptr[n + 1] - old.ptr[n]
        was = old.products[old.product_ptr[n] : old.product_ptr[n + 1]].reshape(size, size)
        fresh = False
        for j in range(k):
            fresh |= origin[begin + j] < 0
        gram = np.empty((0, 0))
        if fresh:
            gram = own_gram(rows, of_position[offsets[n] : offsets[n + 1]], degree)
        for i in range(k):
            for j in range(i + 1):
                p, q = origin[begin + i], origin[begin + j]
                if p >= 0 and q >= 0:
                    value = was[p - before, q - before]
                else:
                    value = rows_in_common(sets, begin + i, begin + j, gram, gold, offsets[n])
                    value += eta * pairs_in_common(sets, begin + i, begin + j)
                out[i, j] = value
                out[j, i] = value


@kernel
def rows_in_common(sets, m, n, gram, gold, begin):
    """sum over pairs of wrong places of g, for each label: + right with right and wrong with wrong, - across."""
    total = 0.0
    for i in range(sets.place_ptr[m], sets.place_ptr[m + 1]):
        s, one = sets.place[i], sets.label[i]
        for j in range(sets.place_ptr[n], sets.place_ptr[n + 1]):
            t, other, same = sets.place[j], sets.label[j], 0.0
            if gold[s] == gold[t]:
                same += 1.0
            if one == other:
                same += 1.0
            if gold[s] == other:
                same -= 1.0
            if one == gold[t]:
                same -= 1.0
            total += same * gram[s - begin, t - begin]
    return total


@kernel
def pairs_in_common(sets, m, n):
    """sum over slots of both counts."""
    i, j, total = sets.slot_ptr[m], sets.slot_ptr[n], 0.0
    while i < sets.slot_ptr[m + 1] and j < sets.slot_ptr[n + 1]:
        a, b = sets.slot[i], sets.slot[j]
        if a == b:
            total += sets.count[i] * sets.count[j]
        i += a <= b
        j += b <= a
    return total
