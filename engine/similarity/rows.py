"""Distinct rows of attributes: positions that have the same ones share a row."""

from typing import NamedTuple

import numpy as np

from espalier.engine.runtime.grouping import combine, ends, first_places


class AttributeRows(NamedTuple):
    """P sets of attributes: those of row p are attribute[ptr[p]:ptr[p + 1]], ascending, each once."""

    ptr: np.ndarray  # int64 [P + 1]
    attribute: np.ndarray  # int32

    @property
    def count(self) -> int:
        return len(self.ptr) - 1

    @property
    def longest(self) -> int:
        return int(np.diff(self.ptr).max(initial=0))


class Distinct(NamedTuple):
    """AttributeRows in the order in which they first appear."""

    rows: AttributeRows
    of_position: np.ndarray  # int32 [T]
    first: np.ndarray  # int64 [P], the first position with each row


def distinct_rows(observations: np.ndarray, among: np.ndarray) -> Distinct:
    """The distinct sets of observations x with among[x] (bool [V]), of int32 [T, K]; -1 is none."""
    table = np.where(np.append(among, False)[observations], observations, np.int32(-1))
    table = np.sort(table, axis=1)[:, ::-1]
    table[:, 1:][table[:, 1:] == table[:, :-1]] = -1  # there twice is there
    table = np.ascontiguousarray(np.sort(table, axis=1)[:, ::-1])
    ids, count = np.zeros(len(table), np.int32), min(1, len(table))
    for k in range(table.shape[1]):
        count = combine(ids, np.ascontiguousarray(table[:, k]), len(table))
    first = first_places(ids, count)
    kept = table[first][:, ::-1]
    there = kept >= 0
    return Distinct(AttributeRows(ends(there.sum(axis=1)), np.ascontiguousarray(kept[there])), ids, first)


def selected(rows: AttributeRows, which: np.ndarray) -> AttributeRows:
    """Some of the rows, in the order given."""
    lengths = np.diff(rows.ptr)[which]
    ptr = ends(lengths)
    at = np.repeat(rows.ptr[which] - ptr[:-1], lengths) + np.arange(ptr[-1])
    return AttributeRows(ptr, rows.attribute[at])
