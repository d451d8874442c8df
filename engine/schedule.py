"""The order in which the recursions visit positions: sequences in lockstep, grouped by factor.

Sequences go in batches whose rows stay in the cache. Within a batch all sequences take
their first step, then all their second, and so on; the rows of one step that share a set
of bigram observations form a group, so that a factor is read once for four rows and not
once for each. The schedule depends on the data alone.
"""

from typing import NamedTuple

import numpy as np

from engine.index import PairSets

BATCH_BYTES = 1 << 18  # of one array of a batch's rows; three of them share the second-level cache


class Schedule(NamedTuple):
    """Rows of C chunks, each of some batches. A row belongs to one position."""

    row: np.ndarray  # int32 [T], row of each position within its batch
    sequences: np.ndarray  # int32 [N], sequences by batch
    batch_sequences: np.ndarray  # int64 [B + 1], into `sequences`
    batch_groups: np.ndarray  # int64 [B + 1], into the groups
    group_begin: np.ndarray  # int64 [G], first row of the group within its batch
    group_end: np.ndarray  # int64 [G]
    group_set: np.ndarray  # int32 [G], -1 for first positions
    before: np.ndarray  # int32 [T], by batch and row: the row of the position before, -1 at a first one
    batch_rows: np.ndarray  # int64 [B + 1], into `before` and `by_set`
    by_set: np.ndarray  # int32 [T], rows of a batch sorted by set; first positions come first
    batch_runs: np.ndarray  # int64 [B + 1], into the runs
    run_end: np.ndarray  # int64, where a run of one set ends in the batch's part of by_set
    run_set: np.ndarray  # int32
    chunk_batches: np.ndarray  # int64 [C + 1]
    longest: int  # rows of the largest batch


def make_schedule(offsets: np.ndarray, sets: PairSets, chunks: list[tuple[int, int]], width: int) -> Schedule:
    """The schedule of the runs of sequences `chunks`, for rows of `width` numbers."""
    lengths = np.diff(offsets)
    limit = max(1, BATCH_BYTES // (8 * width))
    order, sizes, counts = [], [], []
    for lo, hi in chunks:
        mine = np.arange(lo, hi)
        order.append(mine)
        found = _cut(lengths[mine], limit)
        sizes += found
        counts.append(len(found))
    sequences = np.concatenate(order) if order else np.empty(0, np.int64)
    batch_sequences = _ends(sizes)
    batch_of = np.repeat(np.arange(len(sizes)), sizes)
    length = lengths[sequences]
    total = int(length.sum())
    first = np.concatenate([[0], np.cumsum(length)])[:-1]
    step = np.arange(total) - np.repeat(first, length)
    position = np.repeat(offsets[sequences], length) + step
    batch = np.repeat(batch_of, length)
    which = sets.of_position[position]
    batch_rows = _ends(np.bincount(batch, minlength=len(sizes)))
    lockstep = np.lexsort((which, step, batch))
    rank = np.empty(total, np.int64)
    rank[lockstep] = np.arange(total)
    local = rank - batch_rows[batch]
    row = np.empty(total, np.int32)
    row[position] = local
    before = np.full(total, -1, np.int32)
    inner = np.flatnonzero(step > 0)
    before[rank[inner]] = local[inner - 1]
    groups = _runs(batch[lockstep], step[lockstep], which[lockstep])
    by_set = np.lexsort((local, which, batch))
    runs = _runs(batch[by_set], which[by_set])
    return Schedule(
        row, sequences.astype(np.int32), batch_sequences,
        _ends(np.bincount(batch[lockstep[groups[:-1]]], minlength=len(sizes))),
        local[lockstep[groups[:-1]]], local[lockstep[groups[1:] - 1]] + 1, which[lockstep[groups[:-1]]],
        before, batch_rows, local[by_set].astype(np.int32),
        _ends(np.bincount(batch[by_set[runs[:-1]]], minlength=len(sizes))),
        runs[1:] - batch_rows[batch[by_set[runs[:-1]]]], which[by_set[runs[:-1]]],
        _ends(counts), int(np.diff(batch_rows).max(initial=0)),
    )  # fmt: skip


def _ends(counts) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)


def _cut(lengths: np.ndarray, limit: int) -> list[int]:
    """Numbers of consecutive sequences whose positions fill one batch each."""
    sizes, rows = [], limit
    for length in lengths.tolist():
        if rows + length > limit:
            sizes.append(0)
            rows = 0
        sizes[-1] += 1
        rows += length
    return sizes


def _runs(*keys: np.ndarray) -> np.ndarray:
    """Bounds of the runs of equal keys, from 0 to the length."""
    if not len(keys[0]):
        return np.zeros(1, np.int64)
    change = np.zeros(len(keys[0]), bool)
    for key in keys:
        change[1:] |= key[1:] != key[:-1]
    return np.concatenate([[0], np.flatnonzero(change), [len(change)]])
