"""Many passes over the working sets of all sequences as they are, before the next search for worse labellings.

Only the rows where labellings of the sets are wrong are looked at, and everything lies in flat arrays, so that a pass
costs little beside a search: most of what a training of margins needs is done here.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.families.hmsvm_step import climb
from espalier.engine.runtime.grouping import ends
from espalier.engine.runtime.jit import kernel
from espalier.engine.similarity.overlaps import count_overlaps, power


class Sets(NamedTuple):
    """The working sets of N sequences, M labellings in all.

    Labelling m belongs to the sequence n with ptr[n] <= m < ptr[n + 1]. It is wrong in rows row[i], where gold[i] would
    be right and label[i] stands, i from place_ptr[m] to place_ptr[m + 1], and its pairs differ in slots by count.
    """

    ptr: np.ndarray  # int64 [N + 1]
    place_ptr: np.ndarray  # int64 [M + 1]
    row: np.ndarray  # int64, of the rows at hand
    gold: np.ndarray  # int32
    label: np.ndarray  # int32
    slot_ptr: np.ndarray  # int64 [M + 1]
    slot: np.ndarray  # int64
    count: np.ndarray  # float64
    loss: np.ndarray  # float64 [M]
    product_ptr: np.ndarray  # int64 [N + 1], of the squares below
    products: np.ndarray  # float64, of the labellings of a sequence with each other
    limit: np.ndarray  # float64 [N]


def flat_sets(sequences: list) -> tuple[Sets, np.ndarray, np.ndarray]:
    """(the working sets, the rows that they speak of, their a_y)."""
    flat = [(seq, one) for seq in sequences for one in seq.set]
    rows = _joined([seq.rows[one.places] for seq, one in flat], np.int64)
    kept, row = np.unique(rows, return_inverse=True)
    sizes = np.array([len(seq.set) for seq in sequences], np.int64)
    sets = Sets(
        ends(sizes), ends([len(one.places) for _, one in flat]), row.astype(np.int64),
        _joined([seq.gold[one.places] for seq, one in flat], np.int32),
        _joined([one.labels[one.places] for _, one in flat], np.int32),
        ends([len(one.slots) for _, one in flat]), _joined([one.slots for _, one in flat], np.int64),
        _joined([one.counts for _, one in flat], np.float64), np.array([one.loss for _, one in flat], np.float64),
        ends(sizes**2), _joined([seq.products.ravel() for seq in sequences], np.float64),
        np.array([seq.limit for seq in sequences], np.float64),
    )  # fmt: skip
    return sets, kept, _joined([seq.a for seq in sequences], np.float64)


def _joined(parts: list, kind: type) -> np.ndarray:
    return np.ascontiguousarray(np.concatenate([*parts, np.empty(0, kind)]), kind)


@kernel
def pass_over(sets, a, by_label, weights, eta, hard, squared, queries, index, degree, counts, changed, least, most):
    """One pass: the small problem of each sequence, the others fixed; by how much the dual rose.

    a [M], by_label [Y, R] (the scores of the rows at hand) and the weights of pairs follow. `changed` [R, Y] is zero
    before and behind.
    """
    n_labels, n_rows = by_label.shape
    g, total = np.empty(n_rows), 0.0
    for n in range(len(sets.limit)):
        lo, hi = sets.ptr[n], sets.ptr[n + 1]
        k = hi - lo
        if k == 0:
            continue
        square = sets.products[sets.product_ptr[n] : sets.product_ptr[n + 1]].reshape(k, k).copy()
        old, slope, used = a[lo:hi].copy(), np.empty(k), 0.0
        for j in range(k):
            used += old[j]
        for j in range(k):
            slope[j] = sets.loss[lo + j] - margin_of(sets, lo + j, by_label, weights)
        left = np.maximum(0.0, sets.limit[n] - used)
        if hard:
            left = 1e300
        if squared:
            square += 0.5 / sets.limit[n]
            slope -= 0.5 * used / sets.limit[n]
        first = slope.copy()
        climb(a[lo:hi], left, square, slope, least, most)
        for j in range(k):  # the slope is linear along the way: the rise is its mean
            total += 0.5 * (first[j] + slope[j]) * (a[lo + j] - old[j])
        push(sets, lo, a[lo:hi] - old, weights, eta, changed)
        for m in range(lo, hi):
            for i in range(sets.place_ptr[m], sets.place_ptr[m + 1]):
                spread(sets.row[i], changed, queries, index, degree, counts, g, by_label)
    return total


@kernel
def margin_of(sets, m, by_label, weights):
    """F(right) - F(labelling m)."""
    total = 0.0
    for i in range(sets.place_ptr[m], sets.place_ptr[m + 1]):
        r = sets.row[i]
        total += by_label[sets.gold[i], r] - by_label[sets.label[i], r]
    for i in range(sets.slot_ptr[m], sets.slot_ptr[m + 1]):
        total += sets.count[i] * weights[sets.slot[i]]
    return total


@kernel
def push(sets, lo, step, weights, eta, changed):
    """The weights of pairs behind a step of one sequence's a_y, and how its rows support labels otherwise."""
    for j in range(len(step)):
        m, by = lo + j, step[j]
        if by == 0.0:
            continue
        for i in range(sets.place_ptr[m], sets.place_ptr[m + 1]):
            changed[sets.row[i], sets.gold[i]] += by
            changed[sets.row[i], sets.label[i]] -= by
        for i in range(sets.slot_ptr[m], sets.slot_ptr[m + 1]):
            weights[sets.slot[i]] += eta * by * sets.count[i]


@kernel
def spread(r, changed, queries, index, degree, counts, g, by_label):
    """The scores of all rows at hand behind a change of row r, which is zero again then."""
    any_change = False
    for y in range(changed.shape[1]):
        if changed[r, y] != 0.0:
            any_change = True
    if not any_change:
        return
    count_overlaps(queries, index, r, counts)
    power(counts, degree, g)
    for y in range(changed.shape[1]):
        by = changed[r, y]
        if by != 0.0:
            changed[r, y] = 0.0
            for p in range(len(g)):
                by_label[y, p] += by * g[p]
