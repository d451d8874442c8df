"""Columns of observations that go together: their scores are summed once for each distinct combination.

A trigram of tags decides its bigrams and its single tags. Where some columns together
take few distinct combinations, the sum of their unigram weights is made once for each
combination, as one full row, and their expected counts are collected by combination and
handed to the weights at the end. Columns that take many values stay as they are.
"""

from typing import NamedTuple

import numpy as np

from engine import threads
from engine.arithmetic import add_run
from engine.data import Dataset
from engine.jit import kernel
from engine.layout import Layout
from engine.scores import padded

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
    n_positions, n_columns = observations.shape
    weighs = np.append(np.diff(layout.unigram_ptr) > 0, False)
    useful = [k for k in range(n_columns) if weighs[observations[:, k]].any()]
    limit = n_positions // SHARE
    small = {}
    for k in useful:
        ids = np.zeros(n_positions, np.int32)
        count = combine(ids, observations[:, k], limit, layout.n_observations + 1)
        if count:
            small[k] = (count, ids)
    groups, left = [], sorted(small, key=lambda k: -small[k][0])
    while len(left) > 1:
        root, *others = left
        count, ids = small[root]
        group, bound = [root], int(GROWTH * count) + 64
        for k in others:
            joint = ids.copy()
            if combine(joint, observations[:, k], min(limit, bound), layout.n_observations + 1):
                ids, group = joint, [*group, k]
        left = [k for k in left if k not in group]
        if len(group) > 1:
            groups.append((group, ids))
    grouped = {k for group, _ in groups for k in group}
    columns = np.array([k for k in useful if k not in grouped], np.int64)
    return _composites(observations, weighs, columns, groups)


def _composites(observations, weighs, columns, groups) -> Composites:
    n_positions, n_columns = observations.shape
    ids, lengths, members, base = np.empty((n_positions, len(groups)), np.int32), [], [], 0
    for g, (group, codes) in enumerate(groups):
        distinct, example = np.unique(codes, return_index=True)
        rows = observations[example][:, group]
        kept = weighs[rows]
        ids[:, g] = base + np.searchsorted(distinct, codes)
        lengths.append(kept.sum(axis=1))
        members.append(rows[kept])
        base += len(distinct)
    ptr = np.concatenate([[0], np.cumsum(np.concatenate([[0][:0], *lengths]))]).astype(np.int64)
    member = np.concatenate([np.empty(0, np.int32), *members]).astype(np.int32)
    return Composites(columns, np.arange(n_columns), ids, ptr, member)


@kernel
def combine(ids, column, limit, n_values):
    """Number the distinct pairs (ids, column) in order of appearance, into `ids`; 0 when more than `limit`."""
    size = 16
    while size < 2 * limit:
        size *= 2
    mask = np.uint64(size - 1)
    keys, numbers = np.full(size, -1, np.int64), np.empty(size, np.int32)
    count = 0
    for t in range(len(ids)):
        key = np.int64(ids[t]) * n_values + column[t] + 1
        at = (np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20) & mask
        while keys[at] >= 0 and keys[at] != key:
            at = (at + np.uint64(1)) & mask
        if keys[at] < 0:
            if count >= limit:
                return 0
            keys[at], numbers[at] = key, count
            count += 1
        ids[t] = numbers[at]
    return count


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
def hand_on(layout, ptr, member, width, expected, gradient):
    """gradient[mu[x, y]] += expected count of each combination that holds x; `expected` is flat, rows of `width`."""
    unigram_ptr, unigram_code, n_labels = layout.unigram_ptr, layout.unigram_code, layout.n_labels
    base = unigram_ptr[0]
    for c in range(len(ptr) - 1):
        for i in range(ptr[c], ptr[c + 1]):
            lo, hi = unigram_ptr[member[i]], unigram_ptr[member[i] + 1]
            if hi - lo == n_labels:
                for y in range(n_labels):
                    gradient[lo + y] += expected[c * width + y]
            else:
                for s in range(lo, hi):
                    gradient[s] += expected[c * width + unigram_code[s - base]]
