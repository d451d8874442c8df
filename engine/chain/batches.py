"""The order in which the recursions visit positions: sequences in lockstep, grouped by factor.

Sequences go in batches whose rows stay in the cache. Within a batch all sequences take
their first step, then all their second, and so on; the rows of one step that share a set
of bigram observations form a group, so that a factor is read once for four rows and not
once for each. The schedule depends on the data alone.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.pair_sets import PairSets
from espalier.engine.runtime.grouping import ends, sort_by
from espalier.engine.runtime.jit import kernel

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
    limit = max(1, BATCH_BYTES // (8 * width))
    sequences = np.concatenate([np.empty(0, np.int32), *(np.arange(lo, hi, dtype=np.int32) for lo, hi in chunks)])
    chunk_sequences = ends([hi - lo for lo, hi in chunks])
    batch_sequences, chunk_batches = _cut(np.diff(offsets)[sequences], chunk_sequences, limit)
    batch_rows = ends(np.diff(offsets)[sequences])[batch_sequences]
    n_batches, n_sets, total = len(batch_rows) - 1, len(sets.ptr) - 1, int(batch_rows[-1])
    position, step, batch = np.empty((3, total), np.int32)
    longest = _unroll(offsets, sequences, batch_sequences, position, step, batch)
    which = sets.of_position[position]
    lockstep = sort_by(which + 1, n_sets + 1, np.arange(total, dtype=np.int32))
    lockstep = sort_by(batch, n_batches, sort_by(step, longest, lockstep))
    row, before = np.empty(total, np.int32), np.full(total, -1, np.int32)
    local = _number_rows(position, step, batch, batch_rows, lockstep, row, before)
    groups = _runs(batch, step, which, lockstep)
    by_set = sort_by(batch, n_batches, sort_by(which + 1, n_sets + 1, lockstep))
    runs = _runs(batch, batch, which, by_set)
    first, last = lockstep[groups[:-1]], lockstep[groups[1:] - 1]
    run = by_set[runs[:-1]]
    return Schedule(
        row, sequences, batch_sequences, ends(np.bincount(batch[first], minlength=n_batches)),
        local[first].astype(np.int64), local[last] + np.int64(1), which[first], before, batch_rows, local[by_set],
        ends(np.bincount(batch[run], minlength=n_batches)), runs[1:] - batch_rows[batch[run]], which[run],
        chunk_batches, int(np.diff(batch_rows).max(initial=0)),
    )  # fmt: skip


@kernel
def _cut(lengths, chunk_sequences, limit):
    """(batch_sequences, chunk_batches): batches of consecutive sequences of a chunk with up to `limit` positions."""
    batch, chunk = np.zeros(len(lengths) + 1, np.int64), np.zeros(len(chunk_sequences), np.int64)
    count = 0
    for c in range(len(chunk_sequences) - 1):
        rows = limit
        for m in range(chunk_sequences[c], chunk_sequences[c + 1]):
            if rows + lengths[m] > limit:
                count += 1
                rows = 0
            rows += lengths[m]
            batch[count] = m + 1
        chunk[c + 1] = count
    return batch[: count + 1].copy(), chunk


@kernel
def _unroll(offsets, sequences, batch_sequences, position, step, batch):
    """Position, step and batch of each row, sequence by sequence; the number of steps of the longest sequence."""
    i, longest = 0, 0
    for b in range(len(batch_sequences) - 1):
        for m in range(batch_sequences[b], batch_sequences[b + 1]):
            first, end = offsets[sequences[m]], offsets[sequences[m] + 1]
            longest = max(longest, end - first)
            for t in range(first, end):
                position[i], step[i], batch[i] = t, t - first, b
                i += 1
    return longest


@kernel
def _number_rows(position, step, batch, batch_rows, lockstep, row, before):
    """Rows in lockstep: of each position into `row`, of the one before it into `before`; returned in unrolled order."""
    local = np.empty(len(lockstep), np.int32)
    for r in range(len(lockstep)):
        i = lockstep[r]
        local[i] = r - batch_rows[batch[i]]
        row[position[i]] = local[i]
    for r in range(len(lockstep)):
        i = lockstep[r]
        if step[i] > 0:
            before[r] = local[i - 1]
    return local


@kernel
def _runs(first, second, third, order):
    """Bounds of the runs of equal keys in this order, from 0 to the length."""
    out, count = np.zeros(len(order) + 1, np.int64), 0
    for r in range(1, len(order) + 1):
        i, j = order[r - 1], order[min(r, len(order) - 1)]
        if r == len(order) or first[i] != first[j] or second[i] != second[j] or third[i] != third[j]:
            count += 1
            out[count] = r
    return out[: count + 1].copy()
