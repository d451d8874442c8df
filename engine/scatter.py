"""The gradient scattered by position into a fixed number of chunks: best when theta fits the cache.

A chunk is a run of sequences. Its expectations go straight from the recursion's rows, still
in the cache, into a vector of its own; the vectors are summed in order at the end. The
number of chunks and their bounds depend on the data alone.

Pairwise expectations are collected by distinct set p as sums of alpha_{t-1}(y') v_t(y), for
the pairs that any weight of the set needs, and multiplied by the factor once at the end.
"""

from typing import NamedTuple

import numpy as np

from engine import threads
from engine.arithmetic import add_products
from engine.forward_backward import backward, forward, make_work
from engine.index import PairSets
from engine.jit import kernel
from engine.layout import Layout

CHUNKS = 16
LARGEST = 1 << 20  # coordinates of one chunk's vector, 8 MiB: more would not stay in the cache

BATCH = 256  # positions whose rows are kept before their pairs are summed, set by set

# Sums over single pairs cost about this many times a vectorised sum over all of them.
SCALAR_COST = 6


class PairSlots(NamedTuple):
    """For each set p the pairs that its weights need: code[ptr[p]:ptr[p + 1]], or all of them when full[p]."""

    ptr: np.ndarray  # int64 [P + 1]
    code: np.ndarray  # int32, y' * Y + y, ascending within a set
    full: np.ndarray  # bool [P]


def pair_slots(layout: Layout, sets: PairSets) -> PairSlots:
    """Pairs needed by the weights of each set; where they are many all are taken, which is faster."""
    n_sets, n_pairs = len(sets.ptr) - 1, layout.n_labels**2
    codes, full = [], np.zeros(n_sets, bool)
    everything = np.arange(n_pairs)
    for p in range(n_sets):
        members = sets.observation[sets.ptr[p] : sets.ptr[p + 1]]
        runs = [layout.run_codes("bigram", x) for x in members]
        needed = np.unique(np.concatenate(runs)) if runs else everything[:0]
        full[p] = SCALAR_COST * len(needed) > n_pairs
        codes.append(everything if full[p] else needed)
    lengths = [len(code) for code in codes]
    flat = np.concatenate(codes) if codes else everything[:0]
    return PairSlots(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), flat.astype(np.int32), full)


def fits(layout: Layout, n_pairs_needed: int) -> bool:
    return layout.size + n_pairs_needed <= LARGEST


@kernel
def scatter_chunk(
    theta, layout, observations, offsets, weights, sets, factors, slots, sequences, gradient, pairs, log_z
):
    """Expectations of the sequences into `gradient` [size] and `pairs`; log_z[n], NaN where logarithms are needed."""
    n_labels = layout.n_labels
    work = make_work(offsets, sequences, n_labels, BATCH)
    unigram_ptr, unigram_code = layout.unigram_ptr, layout.unigram_code
    start_ptr, start_code = layout.start_ptr, layout.start_code
    of_position, gamma = sets.of_position, work.gamma
    set_of_row = np.empty(len(work.scale), np.int32)
    order, starts = np.empty(len(work.scale), np.int64), np.empty(len(slots.full) + 1, np.int64)
    used = 0
    for n in sequences:
        first, last = offsets[n], offsets[n + 1] - 1
        log_z[n] = forward(theta, layout, observations, sets, factors, first, last, used, work)
        if np.isnan(log_z[n]):
            continue
        backward(sets, factors, first, last, used, weights[n], work)
        for t in range(first, last + 1):
            row = used + t - first
            set_of_row[row] = of_position[t]
            _scatter_runs(unigram_ptr, unigram_code, observations, t, gamma, row, n_labels, gradient)
            if t == first:
                _scatter_runs(start_ptr, start_code, observations, t, gamma, row, n_labels, gradient)
        used += last + 1 - first
        if used >= BATCH:
            _scatter_pairs(set_of_row[:used], order, starts, slots, work, pairs)
            used = 0
    _scatter_pairs(set_of_row[:used], order, starts, slots, work, pairs)


@kernel
def _scatter_pairs(set_of_row, order, starts, slots, work, pairs):
    """pairs += alpha_{t-1} v_t^T of the rows of a batch, set by set so that a set's sums stay in the nearest cache."""
    starts[:] = 0
    for p in set_of_row:
        if p >= 0:
            starts[p + 1] += 1
    for p in range(1, len(starts)):
        starts[p] += starts[p - 1]
    total = starts[-1]
    for row in range(len(set_of_row) - 1, -1, -1):  # a counting sort; afterwards starts[p + 1] is where p begins
        p = set_of_row[row]
        if p >= 0:
            starts[p + 1] -= 1
            order[starts[p + 1]] = row
    ptr, code, full, alpha, v = slots.ptr, slots.code, slots.full, work.alpha, work.v
    for p in range(len(full)):
        lo = starts[p + 1]
        hi = starts[p + 2] if p + 2 < len(starts) else total
        if full[p]:
            add_products(order, lo, hi, alpha, v, ptr[p], pairs)
            continue
        n_labels = alpha.shape[1]
        for m in range(lo, hi):
            row = order[m]
            for k in range(ptr[p], ptr[p + 1]):
                pairs[k] += alpha[row - 1, code[k] // n_labels] * v[row, code[k] % n_labels]


@kernel
def _scatter_runs(ptr, code, observations, t, gamma, row, n_labels, gradient):
    """gradient[slot] += gamma[row, code] over the runs of all observations at position t."""
    base = ptr[0]
    for k in range(observations.shape[1]):
        x = observations[t, k]
        if x < 0:
            continue
        lo, hi = ptr[x], ptr[x + 1]
        if hi - lo == n_labels:
            begin = np.uint64(lo)
            for y in range(np.uint64(n_labels)):
                gradient[begin + y] += gamma[row, y]
        else:
            for s in range(lo, hi):
                gradient[s] += gamma[row, code[s - base]]


@kernel
def add_unigrams(layout, observations, first, gamma, gradient):
    """The unigram and start expectations of one sequence from gamma [T, Y]."""
    for row in range(len(gamma)):
        t, n_labels = first + row, layout.n_labels
        _scatter_runs(layout.unigram_ptr, layout.unigram_code, observations, t, gamma, row, n_labels, gradient)
        if row == 0:
            _scatter_runs(layout.start_ptr, layout.start_code, observations, t, gamma, row, n_labels, gradient)


@kernel
def reduce_chunks(parts, lo, hi, out):
    """out[lo:hi] += the parts, in order."""
    for c in range(len(parts)):
        for i in range(lo, hi):
            out[i] += parts[c, i]


@kernel
def finish_pairs(layout, sets, factors, slots, pairs, gradient):
    """Multiply by the factors and add to the weights of each set's members."""
    n_labels = layout.n_labels
    spread_out = np.zeros(n_labels * n_labels)
    for p in range(len(slots.full)):
        d = factors.slot[p]
        for k in range(slots.ptr[p], slots.ptr[p + 1]):
            c = slots.code[k]
            spread_out[c] = pairs[k] * (factors.dense[d, c // n_labels, c % n_labels] if d >= 0 else 1.0)
        if d < 0:
            for k in range(factors.begin[p], factors.end[p]):
                spread_out[factors.row[k] * n_labels + factors.column[k]] *= 1.0 + factors.entry[k]
        for i in range(sets.ptr[p], sets.ptr[p + 1]):
            x = sets.observation[i]
            lo, hi = layout.bigram_ptr[x], layout.bigram_ptr[x + 1]
            all_pairs = hi - lo == n_labels * n_labels
            for s in range(lo, hi):
                gradient[s] += spread_out[s - lo if all_pairs else layout.bigram_code[s - layout.bigram_ptr[0]]]


def scattered_gradient(theta, dataset, layout: Layout, sets: PairSets, factors, slots, chunks, room, gradient):
    """log Z of all sequences; their expectations are added to `gradient` but for those with log Z = NaN.

    `chunks` are arrays of sequences, `room` is [chunks, size + pairs needed].
    """
    log_z = np.empty(len(dataset.weights))

    def piece(c):
        room[c] = 0.0
        scatter_chunk(theta, layout, dataset.observations, dataset.offsets, dataset.weights, sets, factors, slots,
                      chunks[c], room[c, : layout.size], room[c, layout.size :], log_z)  # fmt: skip

    threads.run(piece, range(len(chunks)))
    pairs = np.zeros(room.shape[1] - layout.size)
    weights = room[:, : layout.size]
    threads.run(lambda run: reduce_chunks(weights, *run, gradient), threads.ranges(layout.size, 8))
    reduce_chunks(room[:, layout.size :], 0, len(pairs), pairs)
    finish_pairs(layout, sets, factors, slots, pairs, gradient)
    return log_z
