"""The kernel as features that are written out: attributes and pairs of them, for degrees 1 and 2.

(m + 1)^1 = 1 + m and (m + 1)^2 = 1 + 3 m + 2 C(m, 2), where C(m, 2) is how many pairs of attributes two rows share. So

    G A = sum_f w_f z_f (z_f' A) + own * A

where z_f is the set of rows that have feature f, w_f is 1 for none, 1 or 3 for an attribute and 2 for a pair. A
feature of one row alone adds to that row's own kernel; features of the same rows are one, with the sum of their w_f.
Where a word decides how it is spelt, most of its pairs are the word itself once more. A product costs two looks at each
entry that is left, with the values of all rows in the cache, instead of a count for each pair of rows.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.runtime import threads
from espalier.engine.runtime.grouping import ends, group
from espalier.engine.runtime.jit import kernel
from espalier.engine.similarity.rows import AttributeRows

WEIGHTS = {1: (1.0, 0.0), 2: (3.0, 2.0)}  # of an attribute and of a pair, by degree
PARTS = 8  # of the features: each adds into rows of its own, which are summed in their order
MOST_PAIRS = 1 << 28  # of attributes, that are tried where it is not asked for
BYTES_A_PAIR = 12  # at most, while sets of rows are made and merged
# Nanoseconds of one thread, about: of a pair of attributes while sets are made; of an entry and a label in a product;
# of a kernel that is counted, and for each label that it is added up for. These and the data decide, not the machine.
A_PAIR, AN_ENTRY, A_KERNEL, A_LABEL = 30.0, 0.9, 1.9, 0.13
PRODUCTS = 20  # that a training makes at least, about
SIDE_BY_SIDE = 4  # labels that are summed together; rows of values are padded to a multiple


class SharedFeatures(NamedTuple):
    """F sets of rows, and what rows have by themselves."""

    ptr: np.ndarray  # int64 [F + 1]
    row: np.ndarray  # int32, ascending in each set
    weight: np.ndarray  # float64 [F]
    own: np.ndarray  # float64 [P]

    @property
    def entries(self) -> int:
        return len(self.row)

    def product(self, values: np.ndarray) -> np.ndarray:
        """G values, float64 [P, Y]; the same bytes for any number of threads."""
        everywhere = RowSets(self.ptr, self.row)
        return self.own[:, None] * values + summed(everywhere, everywhere, self.weight, values, len(values))


class RowSets(NamedTuple):
    """The rows of each feature."""

    ptr: np.ndarray  # int64 [F + 1]
    row: np.ndarray  # int32


class FeaturesOfSome:
    """Products between some rows and all: looks at the entries of the few on one side alone."""

    def __init__(self, features: SharedFeatures, kept: np.ndarray):
        number = np.full(len(features.own), -1, np.int32)
        number[kept] = np.arange(len(kept))
        mine = number[features.row]
        before = np.append(0, np.cumsum(mine >= 0))
        self.features, self.kept = features, kept
        self.all, self.some = RowSets(*features[:2]), RowSets(before[features.ptr], mine[mine >= 0])

    def to_all(self, values: np.ndarray) -> np.ndarray:
        """G values, float64 [P, Y], where values are of the few rows and zero elsewhere."""
        out = summed(self.some, self.all, self.features.weight, values, len(self.features.own))
        out[self.kept] += self.features.own[self.kept, None] * values
        return out

    def to_some(self, values: np.ndarray) -> np.ndarray:
        """The few rows of G values, where values are of all."""
        out = summed(self.all, self.some, self.features.weight, values, len(self.kept))
        return out + self.features.own[self.kept, None] * values[self.kept]


def summed(here: RowSets, there: RowSets, weight: np.ndarray, values: np.ndarray, n_rows: int) -> np.ndarray:
    """The sum over features of w_f, the values of its rows here, in its rows there, float64 [n_rows, Y]."""
    width = -(-values.shape[1] // SIDE_BY_SIDE) * SIDE_BY_SIDE
    padded, total = np.zeros((len(values), width)), np.zeros((n_rows, width))
    padded[:, : values.shape[1]] = values

    def part(bounds: tuple[int, int]) -> np.ndarray:
        out = np.zeros((n_rows, width))
        add_features(here, there, weight, padded, *bounds, out)
        return out

    for out in threads.run(part, threads.balanced(np.diff(here.ptr) + np.diff(there.ptr), PARTS)):
        total += out
    return np.ascontiguousarray(total[:, : values.shape[1]])


def may_pay(n_rows: int, pairs: int, degree: int, n_labels: int) -> bool:
    """Whether it may be cheaper to write features out than to count for each pair of rows what they share."""
    by_rows = n_rows**2 * (A_KERNEL + A_LABEL * n_labels)
    return degree in WEIGHTS and pairs <= MOST_PAIRS and (pairs if degree > 1 else 0) * A_PAIR < PRODUCTS * by_rows


def features_if_cheaper(rows: AttributeRows, n_attributes: int, degree: int, n_labels: int) -> SharedFeatures | None:
    """The features, where a product by them is cheaper than one by rows; by the data alone, whatever the machine."""
    if not may_pay(rows.count, pairs_of(rows), degree, n_labels):
        return None
    found = shared_features(rows, n_attributes, degree)
    by_rows = rows.count**2 * (A_KERNEL + A_LABEL * n_labels)
    return found if found.entries * AN_ENTRY * n_labels < by_rows else None


def pairs_of(rows: AttributeRows) -> int:
    """How many pairs of attributes rows have, each row's counted by itself."""
    lengths = np.diff(rows.ptr)
    return int(np.sum(lengths * (lengths - 1) // 2))


def shared_features(rows: AttributeRows, n_attributes: int, degree: int) -> SharedFeatures:
    """O(pairs of attributes) of time; `BYTES_A_PAIR` of memory for each that is in two rows and more."""
    of_attribute, of_pair = WEIGHTS[degree]
    owner = np.repeat(np.arange(rows.count, dtype=np.int32), np.diff(rows.ptr))
    ptr, entry = group(rows.attribute, n_attributes)
    single, own = np.diff(ptr) == 1, np.zeros(rows.count)
    np.add.at(own, owner[entry[ptr[:-1][single]]], of_attribute)
    several = np.flatnonzero(np.diff(ptr) > 1)
    sets = [(np.array([0, rows.count]), np.arange(rows.count, dtype=np.int32), 1.0),
            (ends(np.diff(ptr)[several]), owner[entry[np.repeat(~single, np.diff(ptr))]], of_attribute)]  # fmt: skip
    if of_pair:
        pair_ptr, pair_row, alone = shared_pairs(rows, owner, ptr, entry, n_attributes)
        own += of_pair * alone
        sets.append((pair_ptr, pair_row, of_pair))
    starts = np.concatenate([[0], np.cumsum([len(row) for _, row, _ in sets])])
    bounds = np.concatenate([one[:-1] + start for (one, _, _), start in zip(sets, starts, strict=False)])
    weight = np.concatenate([np.full(len(one) - 1, by) for one, _, by in sets])
    row = np.concatenate([row for _, row, _ in sets])
    return merged(np.append(bounds, len(row)), row, weight, own)


def shared_pairs(rows: AttributeRows, owner, ptr, entry, n_attributes: int):
    """(bounds and rows of the pairs of attributes that are in two rows and more, how many pairs each row has alone)."""
    features, entries = np.zeros(n_attributes, np.int64), np.zeros(n_attributes, np.int64)
    cost = np.bincount(rows.attribute, rows.ptr[1:][owner] - np.arange(len(owner)), minlength=n_attributes)
    parts = threads.balanced(cost, threads.PIECES) if cost.sum() else []

    def count(bounds: tuple[int, int]) -> np.ndarray:
        alone = np.zeros(rows.count, np.int64)
        count_pairs(rows, owner, ptr, entry, *bounds, np.zeros(n_attributes, np.int32), features, entries, alone)
        return alone

    alone = sum(threads.run(count, parts), np.zeros(rows.count, np.int64))
    feature_ptr, entry_ptr = ends(features), ends(entries)
    pair_ptr, row = np.zeros(feature_ptr[-1] + 1, np.int64), np.empty(entry_ptr[-1], np.int32)
    pair_ptr[-1] = entry_ptr[-1]
    threads.run(
        lambda bounds: fill_pairs(rows, owner, ptr, entry, *bounds, np.zeros(n_attributes, np.int32),
                                  np.zeros(n_attributes, np.int64), feature_ptr, entry_ptr, pair_ptr, row),
        parts,
    )  # fmt: skip
    return pair_ptr, row, alone


def merged(ptr: np.ndarray, row: np.ndarray, weight: np.ndarray, own: np.ndarray) -> SharedFeatures:
    """Sets of the same rows are one: they are found by numbers that rows have by chance, and compared."""
    code, of_row = np.zeros(len(weight), np.int64), np.random.default_rng(0).integers(0, 1 << 63, len(own), np.int64)
    threads.run(lambda piece: set_codes(ptr, row, of_row, *piece, code), threads.balanced(np.diff(ptr), threads.PIECES))
    order = np.argsort(code, kind="stable")
    kept = np.ones(len(weight), bool)
    weight = weight.copy()
    merge_sets(ptr, row, code, order, weight, kept)
    lengths = np.diff(ptr)
    return SharedFeatures(ends(lengths[kept]), row[np.repeat(kept, lengths)], weight[kept], own)


@kernel
def count_pairs(rows, owner, ptr, entry, lo, hi, counts, features, entries, alone):
    """For each attribute a in lo .. hi - 1: with how many later ones it is in several rows, and in how many in all.

    counts is zero before and after.
    """
    for a in range(lo, hi):
        for e in range(ptr[a], ptr[a + 1]):
            for i in range(entry[e] + 1, rows.ptr[owner[entry[e]] + 1]):
                counts[rows.attribute[i]] += 1
        for e in range(ptr[a], ptr[a + 1]):
            p = owner[entry[e]]
            for i in range(entry[e] + 1, rows.ptr[p + 1]):
                b = rows.attribute[i]
                if counts[b] == 1:
                    alone[p] += 1
                elif counts[b] > 1:
                    features[a] += 1
                    entries[a] += counts[b]
                    counts[b] = -counts[b]
        for e in range(ptr[a], ptr[a + 1]):
            for i in range(entry[e] + 1, rows.ptr[owner[entry[e]] + 1]):
                counts[rows.attribute[i]] = 0


@kernel
def fill_pairs(rows, owner, ptr, entry, lo, hi, counts, at, feature_ptr, entry_ptr, pair_ptr, row):
    """The rows of each pair that `count_pairs` counted, in the order in which pairs first appear."""
    for a in range(lo, hi):
        for e in range(ptr[a], ptr[a + 1]):
            for i in range(entry[e] + 1, rows.ptr[owner[entry[e]] + 1]):
                counts[rows.attribute[i]] += 1
        f, begin = feature_ptr[a], entry_ptr[a]
        for e in range(ptr[a], ptr[a + 1]):
            p = owner[entry[e]]
            for i in range(entry[e] + 1, rows.ptr[p + 1]):
                b = rows.attribute[i]
                if counts[b] > 1:
                    pair_ptr[f] = begin
                    at[b] = begin
                    begin += counts[b]
                    f += 1
                    counts[b] = -1
                if counts[b] < 0:
                    row[at[b]] = p
                    at[b] += 1
        for e in range(ptr[a], ptr[a + 1]):
            for i in range(entry[e] + 1, rows.ptr[owner[entry[e]] + 1]):
                counts[rows.attribute[i]] = 0


@kernel
def set_codes(ptr, row, of_row, lo, hi, code):
    """code[f] = of_row of all rows of a set, by exclusive or: sets of the same rows have the same."""
    for f in range(lo, hi):
        total = np.int64(0)
        for i in range(ptr[f], ptr[f + 1]):
            total ^= of_row[row[i]]
        code[f] = total


@kernel
def merge_sets(ptr, row, code, order, weight, kept):
    """Of sets with the same number those that have the rows of the first join it."""
    lead = 0
    for k in range(1, len(order)):
        if code[order[k]] != code[order[lead]]:
            lead = k
            continue
        f, g = order[lead], order[k]
        same = ptr[f + 1] - ptr[f] == ptr[g + 1] - ptr[g]
        i = 0
        while same and i < ptr[f + 1] - ptr[f]:
            same = row[ptr[f] + i] == row[ptr[g] + i]
            i += 1
        if same:
            weight[f] += weight[g]
            kept[g] = False


@kernel
def add_features(here, there, weight, values, lo, hi, out):
    """out[there] += w_f sum of values[here] for f in lo .. hi - 1; four labels at once: no sum waits for itself."""
    for f in range(lo, hi):
        by = weight[f]
        if here.ptr[f] == here.ptr[f + 1]:
            continue
        for y in range(0, values.shape[1], SIDE_BY_SIDE):
            a, b, c, d = 0.0, 0.0, 0.0, 0.0
            for i in range(here.ptr[f], here.ptr[f + 1]):
                p = here.row[i]
                a += values[p, y]
                b += values[p, y + 1]
                c += values[p, y + 2]
                d += values[p, y + 3]
            a, b, c, d = by * a, by * b, by * c, by * d
            for i in range(there.ptr[f], there.ptr[f + 1]):
                p = there.row[i]
                out[p, y] += a
                out[p, y + 1] += b
                out[p, y + 2] += c
                out[p, y + 3] += d
