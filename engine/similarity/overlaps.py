"""Sums over rows by how many attributes they share with others: G A, where G is never written down.

An inverted index has the rows of each attribute. Where an attribute is in many rows, these are a mask with a byte for
each row instead, which is added faster than a list of them is followed.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.runtime import threads
from espalier.engine.runtime.grouping import group
from espalier.engine.runtime.jit import kernel
from espalier.engine.similarity.rows import AttributeRows

MANY = 32  # an attribute in more than one of so many rows has a mask
TILE = 256  # rows that are worked on together
TOGETHER = 8  # queries that are worked on together: the values of a tile are read once for all of them


class RowIndex(NamedTuple):
    """The rows of each attribute, as a mask or as a list."""

    mask_of: np.ndarray  # int32 [V], -1 for those with a list
    masks: np.ndarray  # uint8 [masks, P]
    ptr: np.ndarray  # int64 [V + 1]
    entry: np.ndarray  # int32


def make_index(rows: AttributeRows, n_attributes: int) -> RowIndex:
    """O(entries + masks)."""
    owner = np.repeat(np.arange(rows.count, dtype=np.int32), np.diff(rows.ptr))
    counts = np.bincount(rows.attribute, minlength=n_attributes)
    many = np.flatnonzero(counts * MANY > rows.count)
    mask_of = np.full(n_attributes, -1, np.int32)
    mask_of[many] = np.arange(len(many))
    masks = np.zeros((len(many), rows.count), np.uint8)
    listed = mask_of[rows.attribute] < 0
    masks[mask_of[rows.attribute[~listed]], owner[~listed]] = 1
    ptr, entry = group(np.where(listed, rows.attribute, -1), n_attributes)
    return RowIndex(mask_of, masks, ptr, owner[entry])


def index_bytes(rows: int, entries: int, attributes: int) -> int:
    """What an index takes at most."""
    return 12 * attributes + 4 * entries + min(attributes, MANY * entries // max(1, rows)) * rows


class Overlaps:
    """The kernel of some rows with any others."""

    def __init__(self, rows: AttributeRows, n_attributes: int, degree: int):
        self.rows, self.n_attributes, self.degree = rows, n_attributes, degree
        self.index = make_index(rows, n_attributes)
        self.evaluations = 0

    def product(self, values: np.ndarray, queries: AttributeRows | None = None) -> np.ndarray:
        """sum_p g(q, p) values[p, :] for each query, float64 [Q, Y]; without queries for the rows themselves."""
        queries = self.rows if queries is None else queries
        out = np.zeros((queries.count, values.shape[1]))
        by_label = np.ascontiguousarray(values.T)
        if self.rows.count and queries.count:
            threads.run(
                lambda piece: add_products(queries, self.index, self.degree, by_label, *piece, self.room(queries), out),
                threads.ranges(queries.count, 4 * threads.PIECES),
            )
            self.evaluations += queries.count * self.rows.count
        return out

    def columns(self, queries: AttributeRows) -> np.ndarray:
        """g(q, p) of some queries with all rows, float64 [Q, P]."""
        out = np.zeros((queries.count, self.rows.count))
        if out.size:
            threads.run(
                lambda piece: fill_columns(queries, self.index, self.degree, *piece, self.room(queries), out),
                threads.ranges(queries.count, 4 * threads.PIECES),
            )
            self.evaluations += out.size
        return out

    def room(self, queries: AttributeRows) -> np.ndarray:
        """For the counts of some queries; bytes where they suffice."""
        few = min(queries.longest, self.rows.longest) < 256
        return np.zeros((TOGETHER, self.rows.count), np.uint8 if few else np.uint16)


@kernel
def count_overlaps(queries, index, q, counts):
    """counts[p] = how many attributes row p and query q have in common."""
    counts[:] = 0
    for i in range(queries.ptr[q], queries.ptr[q + 1]):
        a = queries.attribute[i]
        d = index.mask_of[a]
        if d >= 0:
            mask = index.masks[d]
            for p in range(len(counts)):
                counts[p] += mask[p]
        else:
            for e in range(index.ptr[a], index.ptr[a + 1]):
                counts[index.entry[e]] += 1


@kernel
def power(counts, degree, out):
    """out[p] = (counts[p] + 1)^degree: whole numbers, exact below 2^53."""
    for p in range(len(out)):
        out[p] = counts[p] + 1.0
    for _ in range(degree - 1):
        for p in range(len(out)):
            out[p] *= counts[p] + 1.0


@kernel
def add_tile(g, by_label, begin, out):
    """out[y] += sum_k g[k] by_label[y, begin + k]; four labels at once, so that no sum waits for itself."""
    n_labels = len(out)
    for y in range(0, n_labels - 3, 4):
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        for k in range(len(g)):
            a += g[k] * by_label[y, begin + k]
            b += g[k] * by_label[y + 1, begin + k]
            c += g[k] * by_label[y + 2, begin + k]
            d += g[k] * by_label[y + 3, begin + k]
        out[y] += a
        out[y + 1] += b
        out[y + 2] += c
        out[y + 3] += d
    for y in range(n_labels - n_labels % 4, n_labels):
        a = 0.0
        for k in range(len(g)):
            a += g[k] * by_label[y, begin + k]
        out[y] += a


@kernel
def add_products(queries, index, degree, by_label, lo, hi, counts, out):
    """out[q, y] += sum_p (overlap of q and p + 1)^degree by_label[y, p] for q in lo .. hi - 1.

    The sum of a query is by tiles of rows, whichever queries go with it: the same bytes for any cut.
    """
    n_labels, n_rows = by_label.shape
    g = np.empty(TILE)
    for first in range(lo, hi, TOGETHER):
        last = min(hi, first + TOGETHER)
        for q in range(first, last):
            count_overlaps(queries, index, q, counts[q - first])
        for begin in range(0, n_rows, TILE):
            end = min(n_rows, begin + TILE)
            for q in range(first, last):
                power(counts[q - first, begin:end], degree, g[: end - begin])
                add_tile(g[: end - begin], by_label, begin, out[q])


@kernel
def fill_columns(queries, index, degree, lo, hi, counts, out):
    """out[q, p] = (overlap of q and p + 1)^degree for q in lo .. hi - 1."""
    for q in range(lo, hi):
        count_overlaps(queries, index, q, counts[0])
        power(counts[0], degree, out[q])


@kernel
def own_gram(rows, which, degree):
    """The kernel of all pairs of a few of the rows, float64 [P, P], by merging their attributes."""
    count = len(which)
    out = np.empty((count, count))
    for q in range(count):
        for p in range(q + 1):
            i, j, common = rows.ptr[which[q]], rows.ptr[which[p]], 0
            while i < rows.ptr[which[q] + 1] and j < rows.ptr[which[p] + 1]:
                a, b = rows.attribute[i], rows.attribute[j]
                common += a == b
                i += a <= b
                j += b <= a
            value = 1.0
            for _ in range(degree):
                value *= common + 1.0
            out[q, p] = value
            out[p, q] = value
    return out
