"""Columns of observations that go together: their scores are summed once for each distinct combination.

A trigram of tags decides its bigrams and its single tags. Where some columns together
take few distinct combinations, the sum of their unigram weights is made once for each
combination, as one full row, and their expected counts are collected by combination and
handed to the weights at the end. Columns that take many values stay as they are.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.scores import padded
from espalier.engine.data.dataset import Dataset
from espalier.engine.runtime import threads
from espalier.engine.runtime.grouping import carrying_columns, combine, ends, first_places
from espalier.engine.runtime.inner_loops import add_run, take_run
from espalier.engine.runtime.jit import kernel
from espalier.engine.weights.layout import Layout

SHARE = 12  # a group has at most one combination for this many positions
GROWTH = 1.3  # a column joins a group while the combinations grow by less than this
PIECES = 16


class Composites(NamedTuple):
    """R distinct combinations of G groups of columns."""

    columns: np.ndarray  # int64, the columns outside any group that have unigram weights
    every_column: np.ndarray  # int64 [K]
    ids: np.ndarray  # int32 [T, G], the combination of each group at each position
    ptr: np.ndarray  # int64 [R + 1]
    member: np.ndarray  # int32, observations of combination c are member[ptr[c]:ptr[c + 1]]


class Shared(NamedTuple):
    """What the kernels need of them, with the summed scores at one theta."""

    columns: np.ndarray
    every_column: np.ndarray
    ids: np.ndarray
    table: np.ndarray  # float64 [R, W]


def find_composites(dataset: Dataset, layout: Layout) -> Composites:
    """Groups of columns, found greedily from the column with most values down."""
    observations = dataset.observations
    n_positions = len(observations)
    useful = carrying_columns(observations, layout.unigram_ptr).tolist()
    limit = n_positions // SHARE

    def column(k):
        return np.ascontiguousarray(observations[:, k])

    def number(k):
        ids = np.zeros(n_positions, np.int32)
        return combine(ids, column(k), limit), ids

    small = {k: found for k, found in zip(useful, threads.run(number, useful), strict=True) if found[0]}
    groups, left = [], sorted(small, key=lambda k: -small[k][0])
    while len(left) > 1:
        root, *others = left
        count, ids = small[root]
        group, bound = [root], int(GROWTH * count) + 64
        for k in others:
            joint = ids.copy()
            found = combine(joint, column(k), min(limit, bound))
            if found:
                count, ids, group = found, joint, [*group, k]
        left = [k for k in left if k not in group]
        if len(group) > 1:
            groups.append((group, count, ids))
    grouped = {k for group, _, _ in groups for k in group}
    columns = np.array([k for k in useful if k not in grouped], np.int64)
    weighs = np.append(np.diff(layout.unigram_ptr) > 0, False)  # the last entry serves id -1
    return _composites(observations, weighs, columns, groups)


def no_composites(dataset: Dataset) -> Composites:
    """Every column by itself: best where the data are looked at once."""
    columns = np.arange(dataset.observations.shape[1])
    ids = np.empty((len(dataset.observations), 0), np.int32)
    return Composites(columns, columns, ids, np.zeros(1, np.int64), np.empty(0, np.int32))


def _composites(observations, weighs, columns, groups) -> Composites:
    n_positions, n_columns = observations.shape
    ids, lengths, members, base = np.empty((n_positions, len(groups)), np.int32), [], [], 0
    for g, (group, count, codes) in enumerate(groups):
        rows = observations[first_places(codes, count)][:, group]
        kept = weighs[rows]
        ids[:, g] = base + codes
        lengths.append(kept.sum(axis=1))
        members.append(rows[kept])
        base += count
    ptr = ends(np.concatenate([np.empty(0, np.int64), *lengths]))
    member = np.concatenate([np.empty(0, np.int32), *members]).astype(np.int32)
    return Composites(columns, np.arange(n_columns), ids, ptr, member)


def share(theta: np.ndarray, layout: Layout, composites: Composites) -> Shared:
    """The summed scores of all combinations at theta."""
    table = np.zeros((len(composites.ptr) - 1, padded(layout.n_labels)))
    threads.run(
        lambda run: _fill(theta, layout, composites.ptr, composites.member, *run, table),
        threads.ranges(len(table), PIECES) if len(table) else [],
    )
    return Shared(composites.columns, composites.every_column, composites.ids, table)


@kernel
def _fill(theta, layout, ptr, member, lo, hi, table):
    unigram_ptr, unigram_code, n_labels = layout.unigram_ptr, layout.unigram_code, layout.n_labels
    score = np.empty(n_labels)
    for c in range(lo, hi):
        score[:] = 0.0
        for i in range(ptr[c], ptr[c + 1]):
            x = member[i]
            add_run(theta, unigram_code, unigram_ptr[0], unigram_ptr[x], unigram_ptr[x + 1] - unigram_ptr[x], score)
        for y in range(n_labels):
            table[c, y] = score[y]


@kernel
def hand_on(layout, ptr, member, expected, gradient):
    """gradient[mu[x, y]] += expected[c, y] of each combination c that holds x."""
    unigram_ptr, unigram_code, n_labels = layout.unigram_ptr, layout.unigram_code, layout.n_labels
    base = unigram_ptr[0]
    for c in range(len(ptr) - 1):
        for i in range(ptr[c], ptr[c + 1]):
            x = member[i]
            lo, length = unigram_ptr[x], unigram_ptr[x + 1] - unigram_ptr[x]
            take_run(expected, c, n_labels, unigram_code, base, lo, length, gradient)
