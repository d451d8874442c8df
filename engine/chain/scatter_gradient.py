"""The gradient scattered by position into a fixed number of chunks: best when theta fits the cache.

A chunk is a run of sequences. Its expectations go straight from the recursion's rows, still
in the cache, into a vector of its own; the vectors are summed in order at the end. The
number of chunks and their bounds depend on the data alone. Of its vector a chunk clears
and hands on only the pages that its observations can touch.

Pairwise expectations are collected by distinct set p as sums of alpha_{t-1}(y') v_t(y), for
the pairs that any weight of the set needs, and multiplied by the factor once at the end.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.batches import Schedule
from espalier.engine.chain.column_groups import Composites, hand_on, share
from espalier.engine.chain.forward_backward import backward_batch, forward_batch, make_rows
from espalier.engine.chain.logarithms import add_pairs
from espalier.engine.chain.pair_sets import PairSets
from espalier.engine.chain.scores import padded
from espalier.engine.runtime import threads
from espalier.engine.runtime.grouping import ends, sort
from espalier.engine.runtime.inner_loops import add_products, take_run, take_values
from espalier.engine.runtime.jit import kernel
from espalier.engine.weights.layout import Layout

CHUNKS = 8
LARGEST = 1 << 21  # coordinates of one chunk's vector, 16 MiB: more would not stay in the cache
PAGE = 512  # coordinates that are cleared and summed together

# Sums over single pairs cost about this many times a vectorised sum over all of them.
SCALAR_COST = 6


class PairSlots(NamedTuple):
    """For each set p the pairs that its weights need: code[ptr[p]:ptr[p + 1]], or all of them when full[p].

    Sums of a set lie in sum_ptr[p]:sum_ptr[p + 1], one for each code, or W x W of a full set.
    """

    ptr: np.ndarray  # int64 [P + 1]
    code: np.ndarray  # int32, y' * Y + y, ascending within a set; none of a full set
    full: np.ndarray  # bool [P]
    sum_ptr: np.ndarray  # int64 [P + 1]


def pair_slots(layout: Layout, sets: PairSets) -> PairSlots:
    """Pairs needed by the weights of each set; where they are many all are taken, which is faster."""
    n_sets = len(sets.ptr) - 1
    full, lengths = np.zeros(n_sets, bool), np.zeros(n_sets, np.int64)
    _count_pairs(layout, sets.ptr, sets.observation, full, lengths)
    ptr = ends(lengths)
    code = np.empty(ptr[-1], np.int32)
    _put_pairs(layout, sets.ptr, sets.observation, full, ptr, code)
    return PairSlots(ptr, code, full, ends(np.where(full, padded(layout.n_labels) ** 2, lengths)))


@kernel
def _count_pairs(layout, ptr, member, full, lengths):
    """Distinct pairs of the members of each set that is not to be full."""
    bigram_ptr, bigram_code, base = layout.bigram_ptr, layout.bigram_code, layout.bigram_ptr[0]
    n_pairs = layout.n_labels**2
    stamp = np.full(n_pairs, -1, np.int64)
    for p in range(len(full)):
        count = 0
        for i in range(ptr[p], ptr[p + 1]):
            lo, hi = bigram_ptr[member[i]], bigram_ptr[member[i] + 1]
            if hi - lo == n_pairs or SCALAR_COST * count > n_pairs:
                count = n_pairs
                break
            for s in range(lo, hi):
                pair = bigram_code[s - base]
                if stamp[pair] != p:
                    stamp[pair] = p
                    count += 1
        full[p] = SCALAR_COST * count > n_pairs
        lengths[p] = 0 if full[p] else count


@kernel
def _put_pairs(layout, ptr, member, full, at, code):
    """The pairs themselves: runs are in ascending order, so are sets of one member; others are sorted."""
    bigram_ptr, bigram_code, base = layout.bigram_ptr, layout.bigram_code, layout.bigram_ptr[0]
    stamp = np.full(layout.n_labels**2, -1, np.int64)
    for p in range(len(full)):
        if full[p]:
            continue
        n = at[p]
        for i in range(ptr[p], ptr[p + 1]):
            for s in range(bigram_ptr[member[i]], bigram_ptr[member[i] + 1]):
                pair = bigram_code[s - base]
                if stamp[pair] != p:
                    stamp[pair] = p
                    code[n] = pair
                    n += 1
        if ptr[p + 1] - ptr[p] > 1:
            sort(code[at[p] : n])


class Plan(NamedTuple):
    """Where a chunk's vector keeps what: [theta | sums of pairs | combinations x W], and the pages it touches."""

    slots: PairSlots
    composites: Composites
    pairs_at: int
    composites_at: int
    total: int
    touched: np.ndarray  # bool [chunks, pages]


def make_plan(dataset, layout: Layout, slots: PairSlots, composites: Composites, chunks) -> Plan:
    pairs_at, width = layout.size, padded(layout.n_labels)
    composites_at = pairs_at + int(slots.sum_ptr[-1])
    total = composites_at + (len(composites.ptr) - 1) * width
    touched = np.zeros((len(chunks), -(-total // PAGE)), bool)
    touched[:, pairs_at // PAGE : -(-composites_at // PAGE)] = True

    def piece(c):
        lo, hi = chunks[c]
        positions = np.arange(dataset.offsets[lo], dataset.offsets[hi])
        _touch(layout.unigram_ptr, dataset.observations, positions, composites.columns, touched[c])
        _touch(layout.unigram_ptr, dataset.valued, positions, np.arange(dataset.valued.shape[1]), touched[c])
        if layout.start_ptr[-1] > layout.start_ptr[0]:
            _touch(layout.start_ptr, dataset.observations, dataset.offsets[lo:hi], composites.every_column, touched[c])
        _touch_rows(composites.ids, positions, composites_at, width, touched[c])

    threads.run(piece, range(len(chunks)))
    return Plan(slots, composites, pairs_at, composites_at, total, touched)


@kernel
def _touch(ptr, observations, positions, columns, touched):
    for t in positions:
        for k in columns:
            x = observations[t, k]
            if x >= 0 and ptr[x + 1] > ptr[x]:
                for page in range(ptr[x] // PAGE, (ptr[x + 1] - 1) // PAGE + 1):
                    touched[page] = True


@kernel
def _touch_rows(ids, positions, base, width, touched):
    for t in positions:
        for c in ids[t]:
            for page in range((base + c * width) // PAGE, (base + (c + 1) * width - 1) // PAGE + 1):
                touched[page] = True


def fits(layout: Layout, slots: PairSlots) -> bool:
    return layout.size + int(slots.sum_ptr[-1]) <= LARGEST


@kernel
def scatter_chunk(
    theta, layout, data, sets, factors, shared, slots, schedule, chunk, pairs_at,
    composites_at, touched, out, log_z,
):  # fmt: skip
    """Expectations of the chunk's sequences into `out`; log_z[n], NaN where logarithms are needed."""
    n_labels, width = layout.n_labels, shared.table.shape[1]
    for page in range(len(touched)):
        if touched[page]:
            out[page * PAGE : (page + 1) * PAGE] = 0.0
    work = make_rows(schedule.longest, width, n_labels, len(shared.columns))
    for b in range(schedule.chunk_batches[chunk], schedule.chunk_batches[chunk + 1]):
        forward_batch(theta, layout, data, sets, factors, shared, schedule, b, work, log_z)
        backward_batch(data.offsets, data.weights, factors, schedule, b, work, log_z)
        scatter_unigrams(layout, data, shared, schedule, b, composites_at, work, out)
        scatter_pairs(slots, schedule, b, pairs_at, n_labels, work.alpha, work.v, out)


@kernel
def scatter_unigrams(layout, data, shared, schedule, b, composites_at, work, out):
    observations, offsets, valued, values = data.observations, data.offsets, data.valued, data.values
    with_values = valued.shape[1] > 0
    unigram_ptr, unigram_code, n_labels = layout.unigram_ptr, layout.unigram_code, layout.n_labels
    base = unigram_ptr[0]
    start_ptr, start_code = layout.start_ptr, layout.start_code
    everything, ids, n_columns = shared.every_column, shared.ids, len(shared.columns)
    begin, length, i = work.begin, work.length, 0
    sequences, row, gamma = schedule.sequences, schedule.row, work.gamma
    width = gamma.shape[1]
    for m in range(schedule.batch_sequences[b], schedule.batch_sequences[b + 1]):
        n = sequences[m]
        first = offsets[n]
        for t in range(first, offsets[n + 1]):
            r = row[t]
            for k in range(ids.shape[1]):
                at = np.uint64(composites_at + ids[t, k] * width)
                for y in range(np.uint64(width)):
                    out[at + y] += gamma[r, y]
            for k in range(i, i + n_columns):
                take_run(gamma, r, n_labels, unigram_code, base, begin[k], length[k], out)
            i += n_columns
            if with_values:
                take_values(unigram_ptr, unigram_code, valued, values, t, gamma, r, n_labels, 1.0, out)
            if t == first:
                scatter_runs(start_ptr, start_code, observations, everything, t, gamma, r, n_labels, out)


@kernel
def scatter_pairs(slots, schedule, b, pairs_at, n_labels, alpha, v, out):
    """Sums of alpha_{t-1} v_t^T of the rows of a batch, set by set so that a set's sums stay in the nearest cache."""
    ptr, code, full, sum_ptr = slots.ptr, slots.code, slots.full, slots.sum_ptr
    by_set, before, base = schedule.by_set, schedule.before, schedule.batch_rows[b]
    run_end, run_set = schedule.run_end, schedule.run_set
    rows = by_set[base : schedule.batch_rows[b + 1]]
    previous = before[base : schedule.batch_rows[b + 1]]
    lo = np.int64(0)  # a plain 0 has a type of its own, and add_products would be compiled for it too
    for m in range(schedule.batch_runs[b], schedule.batch_runs[b + 1]):
        p, hi = run_set[m], run_end[m]
        if p >= 0 and full[p]:
            add_products(rows, previous, lo, hi, alpha, v, pairs_at + sum_ptr[p], out)
        elif p >= 0:
            at = pairs_at + sum_ptr[p] - ptr[p]
            for i in range(lo, hi):
                r = rows[i]
                q = previous[r]
                for k in range(ptr[p], ptr[p + 1]):
                    out[at + k] += alpha[q, code[k] // n_labels] * v[r, code[k] % n_labels]
        lo = hi


@kernel
def scatter_runs(ptr, code, observations, columns, t, gamma, row, n_labels, gradient):
    """gradient[slot] += gamma[row, code] over the runs of the observations at position t."""
    base = ptr[0]
    for k in columns:
        x = observations[t, k]
        if x < 0:
            continue
        take_run(gamma, row, n_labels, code, base, ptr[x], ptr[x + 1] - ptr[x], gradient)


@kernel
def add_unigrams(layout, data, columns, first, gamma, gradient):
    """The unigram and start expectations of one sequence from gamma [T, Y]."""
    observations = data.observations
    for row in range(len(gamma)):
        t, n_labels = first + row, layout.n_labels
        take_values(layout.unigram_ptr, layout.unigram_code, data.valued, data.values, t, gamma, row, n_labels, 1.0,
                    gradient)  # fmt: skip
        scatter_runs(layout.unigram_ptr, layout.unigram_code, observations, columns, t, gamma, row, n_labels, gradient)
        if row == 0:
            scatter_runs(layout.start_ptr, layout.start_code, observations, columns, t, gamma, row, n_labels, gradient)


@kernel
def reduce_chunks(parts, touched, lo, hi, out):
    """out = the sum of the parts, in order, for the pages [lo, hi)."""
    for page in range(lo, hi):
        begin, end = page * PAGE, min((page + 1) * PAGE, len(out))
        for c in range(len(parts)):
            if touched[c, page]:
                for i in range(begin, end):
                    out[i] += parts[c, i]


@kernel
def finish_pairs(layout, sets, factors, slots, pairs, gradient):
    """Multiply by the factors and add to the weights of each set's members."""
    n_labels, width = layout.n_labels, factors.dense.shape[1]
    spread_out = np.zeros(n_labels * n_labels)
    for p in range(len(slots.full)):
        d, at = factors.slot[p], slots.sum_ptr[p]
        if slots.full[p]:
            for i in range(n_labels):
                for j in range(n_labels):
                    spread_out[i * n_labels + j] = pairs[at + i * width + j]
        else:
            for k in range(slots.ptr[p], slots.ptr[p + 1]):
                spread_out[slots.code[k]] = pairs[at + k - slots.ptr[p]]
        if d >= 0:
            for i in range(n_labels):
                for j in range(n_labels):
                    spread_out[i * n_labels + j] *= factors.dense[d, i, j]
        else:
            for k in range(factors.begin[p], factors.end[p]):
                spread_out[factors.row[k] * n_labels + factors.column[k]] *= 1.0 + factors.entry[k]
        add_pairs(layout, sets, p, spread_out, gradient)


def scattered_sums(theta, dataset, layout: Layout, sets: PairSets, factors, plan: Plan, schedule: Schedule, room):
    """(expected counts, log Z) of all sequences, but for those with log Z = NaN. `room` is [chunks, plan.total]."""
    log_z = np.empty(len(dataset.weights))
    shared = share(theta, layout, plan.composites)

    def piece(c):
        scatter_chunk(theta, layout, dataset, sets, factors, shared, plan.slots, schedule, c, plan.pairs_at,
                      plan.composites_at, plan.touched[c], room[c], log_z)  # fmt: skip

    threads.run(piece, range(len(room)))
    return sum_of_chunks(layout, sets, factors, plan, room), log_z


def sum_of_chunks(layout: Layout, sets: PairSets, factors, plan: Plan, room) -> np.ndarray:
    """What the chunks have left in `room`, summed in order and handed to the weights."""
    total = np.zeros(plan.total)
    threads.run(
        lambda run: reduce_chunks(room, plan.touched, *run, total),
        threads.ranges(plan.touched.shape[1], 16) if plan.total else [],
    )
    expected, pairs = total[: layout.size], total[plan.pairs_at : plan.composites_at]
    finish_pairs(layout, sets, factors, plan.slots, pairs, expected)
    combinations = total[plan.composites_at :].reshape(-1, padded(layout.n_labels))
    hand_on(layout, plan.composites.ptr, plan.composites.member, combinations, expected)
    return expected
