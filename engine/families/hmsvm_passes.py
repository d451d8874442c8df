"""Passes over the working sets of all sequences as they are, until little is left to gain before the next search.

Only the rows where labellings of the sets are wrong are looked at, and everything lies in flat arrays. A pass solves
the small problem of each sequence, which costs little, and follows those steps alone that raise the dual by enough,
since a step that is made costs a look at all rows at hand.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.families.hmsvm_sets import Sets
from espalier.engine.families.hmsvm_step import climb
from espalier.engine.runtime.jit import kernel
from espalier.engine.similarity.overlaps import power

TILE = 1024  # rows whose counts and scores stay near the processor


class Hand(NamedTuple):
    """The rows at hand, R of them, and their scores."""

    row: np.ndarray  # int64, for each place of the sets its row among those at hand
    gold: np.ndarray  # int32, the label that would be right there
    by_label: np.ndarray  # float64 [Y, R]
    changed: np.ndarray  # float64 [R, Y], zero before and behind a pass
    counts: np.ndarray  # unsigned [R]


class Terms(NamedTuple):
    """What the dual asks for."""

    eta: float
    squared: bool
    left: float  # what the a_y of a sequence may be in all, in units of its limit
    roof: float  # what each may be, in the same units
    limits: np.ndarray  # float64 [N], C w_n


@kernel
def pass_over(sets, hand, rows, index, degree, weights, terms, enough, least, most):
    """One pass: the small problem of each sequence, the others fixed; by how much the dual rose, and steps made.

    sets.a, the scores of the rows at hand and the weights of pairs follow. A step that would raise the dual by less
    than `enough` is not made.
    """
    g, total, made = np.empty(TILE), 0.0, 0
    for n in range(len(terms.limits)):
        lo, hi, limit = sets.ptr[n], sets.ptr[n + 1], terms.limits[n]
        k = hi - lo
        if k == 0:
            continue
        a, square = sets.a[lo:hi], sets.products[sets.product_ptr[n] : sets.product_ptr[n + 1]].reshape(k, k)
        old, slope, used = a.copy(), np.empty(k), 0.0
        for j in range(k):
            used += old[j]
            slope[j] = sets.loss[lo + j] - margin_of(sets, lo + j, hand, weights)
        if terms.squared:
            square = square + 0.5 / limit
            slope -= 0.5 * used / limit
        first = slope.copy()
        climb(a, max(0.0, terms.left * limit - used), terms.roof * limit, square, slope, least, most)
        rise = 0.0
        for j in range(k):  # the slope is linear along the way: the rise is its mean
            rise += 0.5 * (first[j] + slope[j]) * (a[j] - old[j])
        if rise <= enough:
            for j in range(k):
                a[j] = old[j]
            continue
        total += rise
        made += 1
        push(sets, lo, a - old, weights, terms.eta, hand)
        for e in range(sets.place_ptr[lo], sets.place_ptr[hi]):
            spread(hand.row[e], hand, rows, index, degree, g)
    return total, made


@kernel
def margin_of(sets, m, hand, weights):
    """F(right) - F(labelling m)."""
    total = 0.0
    for i in range(sets.place_ptr[m], sets.place_ptr[m + 1]):
        r = hand.row[i]
        total += hand.by_label[hand.gold[i], r] - hand.by_label[sets.label[i], r]
    for i in range(sets.slot_ptr[m], sets.slot_ptr[m + 1]):
        total += sets.count[i] * weights[sets.slot[i]]
    return total


@kernel
def push(sets, lo, step, weights, eta, hand):
    """The weights of pairs behind a step of one sequence's a_y, and how its rows support labels otherwise."""
    for j in range(len(step)):
        m, by = lo + j, step[j]
        if by == 0.0:
            continue
        for i in range(sets.place_ptr[m], sets.place_ptr[m + 1]):
            hand.changed[hand.row[i], hand.gold[i]] += by
            hand.changed[hand.row[i], sets.label[i]] -= by
        for i in range(sets.slot_ptr[m], sets.slot_ptr[m + 1]):
            weights[sets.slot[i]] += eta * by * sets.count[i]


def add_steps(sets: Sets, hand: Hand, step: np.ndarray) -> None:
    """hand.changed behind a step of all a_y."""
    each = np.repeat(step, np.diff(sets.place_ptr))
    np.add.at(hand.changed, (hand.row, hand.gold), each)
    np.add.at(hand.changed, (hand.row, sets.label), -each)


@kernel
def spread(r, hand, rows, index, degree, g):
    """The scores of all rows at hand behind a change of row r, which is zero again then.

    by_label[y, p] += (overlap of r and p + 1)^degree changed[r, y], tile by tile.
    """
    counts, by_label, n_rows = hand.counts, hand.by_label, len(hand.counts)
    any_change = False
    for y in range(len(by_label)):
        if hand.changed[r, y] != 0.0:
            any_change = True
    if not any_change:
        return
    counts[:] = 0
    for i in range(rows.ptr[r], rows.ptr[r + 1]):
        x = rows.attribute[i]
        for e in range(index.ptr[x], index.ptr[x + 1]):
            counts[index.entry[e]] += 1
    for begin in range(0, n_rows, TILE):
        end = min(n_rows, begin + TILE)
        part = counts[begin:end]
        for i in range(rows.ptr[r], rows.ptr[r + 1]):
            d = index.mask_of[rows.attribute[i]]
            if d >= 0:
                mask = index.masks[d, begin:end]
                for p in range(len(part)):
                    part[p] += mask[p]
        power(part, degree, g[: end - begin])
        for y in range(len(by_label)):
            by = hand.changed[r, y]
            if by != 0.0:
                out = by_label[y, begin:end]
                for p in range(len(out)):
                    out[p] += by * g[p]
    for y in range(len(by_label)):
        hand.changed[r, y] = 0.0
