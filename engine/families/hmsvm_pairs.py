"""Pairs of labellings that move the same rows, in opposite directions or in the same one, and steps of both together.

Where rows are equal and their right labels differ, no kernel can tell them apart: what one sequence gains there another
loses, and only pairs of labels can decide. Where the labels are equal, too, one sequence can take over what the other
has. Steps of one sequence at a time creep then, since each is as short as the rows make it. Of a step of both, or from
one to the other, nothing is left in the rows, so that it is as long as the pairs allow.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.families.hmsvm_passes import Hand, margin_of
from espalier.engine.families.hmsvm_sets import Sets, pairs_in_common
from espalier.engine.runtime.jit import kernel

PARTNERS = 4  # of a labelling at most, in each direction


class Pairs(NamedTuple):
    """Labellings one[i] and other[i]: steps of the first and of by[i] times that of the second cancel in the rows."""

    one: np.ndarray  # int64
    other: np.ndarray  # int64
    by: np.ndarray  # float64: 1 for opposite ones, -1 for parallel ones


def pairs_of_rows(sets: Sets, hand: Hand) -> Pairs:
    """Pairs of labellings that are wrong in the same rows: with right and wrong labels exchanged, or with the same."""
    of = np.repeat(np.arange(len(sets.a)), np.diff(sets.place_ptr))
    both = (hand.gold, sets.label), (sets.label, hand.gold)
    here, there = (_mixed(of, hand.row, *two, len(sets.a)) for two in both)
    parts = [(*_matches(here, there, 0), 1.0), (*_matches(here, here, 1), -1.0)]
    one, other = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    by, kept = np.repeat([part[2] for part in parts], [len(part[0]) for part in parts]), one < other
    kept[kept] = are_alike(one[kept], other[kept], by[kept], sets, hand)
    return Pairs(one[kept], other[kept], by[kept])


def _matches(keys: np.ndarray, among: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    """(i, j) with keys[i] == among[j], few for each i: those that follow its own place among the equal keys."""
    order = np.argsort(among, kind="stable")
    begin, end = (np.searchsorted(among[order], keys, side=side) for side in ("left", "right"))
    own = np.argsort(np.argsort(keys, kind="stable"), kind="stable")
    one, other = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for k in range(first, first + PARTNERS):
        some = np.flatnonzero(end - begin > k)
        one.append(some)
        other.append(order[begin[some] + (own[some] + k - begin[some]) % (end - begin)[some]])
    return np.concatenate(one), np.concatenate(other)


def _mixed(of: np.ndarray, row: np.ndarray, right: np.ndarray, wrong: np.ndarray, count: int) -> np.ndarray:
    """A number for each labelling that tells its rows and labels from others, whatever their order."""
    row, right, wrong = (part.astype(np.uint64) for part in (row, right, wrong))
    value = (row << np.uint64(24)) ^ (right << np.uint64(12)) ^ wrong
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        value = (value ^ (value >> np.uint64(shift))) * np.uint64(factor)
    out = np.zeros(count, np.uint64)
    np.add.at(out, of, value)
    return out


@kernel
def are_alike(one, other, by, sets, hand):
    """Whether the labellings of each pair are wrong in the same rows, in order, with labels exchanged or the same."""
    out = np.ones(len(one), np.bool_)
    for e in range(len(one)):
        i, j = sets.place_ptr[one[e]], sets.place_ptr[other[e]]
        if sets.place_ptr[one[e] + 1] - i != sets.place_ptr[other[e] + 1] - j:
            out[e] = False
            continue
        for k in range(sets.place_ptr[one[e] + 1] - i):
            right, wrong = hand.gold[j + k], sets.label[j + k]
            if by[e] > 0.0:
                right, wrong = wrong, right
            out[e] &= hand.row[i + k] == hand.row[j + k] and hand.gold[i + k] == right and sets.label[i + k] == wrong
    return out


@kernel
def move_pairs(pairs, sets, hand, owner, used, weights, terms):
    """One labelling of each pair by as much as is best and the other by that times `by`; by how much the dual rose.

    sets.a, used [N] (the sums of the a_y of sequences) and the weights of pairs follow; the rows do not feel it.
    """
    total = 0.0
    for i in range(len(pairs.one)):
        m, n, by = pairs.one[i], pairs.other[i], pairs.by[i]
        p, q, one, other = owner[m], owner[n], terms.limits[owner[m]], terms.limits[owner[n]]
        slope = sets.loss[m] - margin_of(sets, m, hand, weights)
        slope += by * (sets.loss[n] - margin_of(sets, n, hand, weights))
        curve = pairs_in_common(sets, m, m) + pairs_in_common(sets, n, n) + 2.0 * by * pairs_in_common(sets, m, n)
        curve *= terms.eta
        if terms.squared:
            slope -= 0.5 * (used[p] / one + by * used[q] / other)
            curve += 0.5 * (1.0 + by) ** 2 / one if p == q else 0.5 / one + 0.5 / other
        sign = 1.0 if slope > 0.0 else -1.0
        most = min(_room(sets.a[m], terms.roof * one, sign), _room(sets.a[n], terms.roof * other, sign * by))
        if p == q:
            if sign * (1.0 + by) > 0.0:
                most = min(most, 0.5 * max(0.0, terms.left * one - used[p]))
        else:
            most = min(most, _room(used[p], terms.left * one, sign))
            most = min(most, _room(used[q], terms.left * other, sign * by))
        step = most if curve <= 0.0 else min(most, abs(slope) / curve)
        if step <= 0.0 or step == np.inf:
            continue
        total += (abs(slope) - 0.5 * step * curve) * step
        for j, moved in ((m, sign * step), (n, sign * by * step)):
            sets.a[j] = max(0.0, sets.a[j] + moved)
            used[owner[j]] += moved
            for s in range(sets.slot_ptr[j], sets.slot_ptr[j + 1]):
                weights[sets.slot[s]] += terms.eta * moved * sets.count[s]
    return total


@kernel
def _room(value, roof, sign):
    """How far a value from 0 to roof can go in a direction."""
    return max(0.0, roof - value) if sign > 0.0 else value
