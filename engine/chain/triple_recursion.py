"""Forward-backward of a chain with weights for triples of labels, one sequence after the other, scaled.

A state is the pair of the last two labels. With E and e as in `forward_backward` and the entries x of a position's
active triples (see `triple_sets`), in the notation of that module:

    alpha_t(y', y) = e_t(y) E_t(y', y) [ A_{t-1}(y') + c_t(y', y) ],    A_t(y) = sum_y' alpha_t(y', y)
    c_t(y', y)     = sum of alpha_{t-1}(y'', y') x_t(y'', y', y) over the active triples
    beta_t(y', y)  = B_t(y) + d_t(y', y),    B_{t-1}(y') = sum_y g_t(y', y)
    g_t(y', y)     = e_t(y) E_t(y', y) beta_t(y', y)
    d_{t-1}(y'', y') = sum of x_t(y'', y', y) g_t(y', y) over the active triples

so that triples without a weight cost a plain sum over y'', and without any active one A and B are the alpha and beta
of a chain. Every labelling is possible: a pair or triple that training has not seen has the weight zero. The
expectation of a triple is alpha_{t-1}(y'', y') (1 + x) g_t(y', y). Of each position A, e and what c is the sum of are
kept; alpha and g of pairs are made on the way back. Factors of pairs are dense.

Pairs with c or d are among the seen ones (see `triple_sets`), so only of these alpha and g are made one by one, in
vectors by their numbers. All else is a rank-one product of A and v = e B, as in a chain.

Cost of a position: Y^2, the seen pairs, its active triples, and for a gradient the elements of the matrices of its
observations.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.forward_backward import add_levels, make_rows, score_batch
from espalier.engine.chain.scatter_gradient import PAGE, scatter_pairs, scatter_unigrams
from espalier.engine.chain.scores import Factors
from espalier.engine.chain.triple_sets import SeenPairs
from espalier.engine.chain.triple_sums import add_held, add_position, hold, make_held
from espalier.engine.runtime.fours import add_product, scaled_line, scaled_sum
from espalier.engine.runtime.inner_loops import pass_one
from espalier.engine.runtime.jit import kernel

MANY = 8  # numbers that are cleared in a row in the time of one by itself


class NearFactors(NamedTuple):
    """The factors of the seen pairs alone, and what is known of these pairs."""

    run_ptr: np.ndarray  # int64 [Y + 1]
    before: np.ndarray  # int32 [S + 4]
    after: np.ndarray  # int32 [S + 4]
    of: np.ndarray  # int32 [Y * Y]
    factor: np.ndarray  # float64 [D, S + 4], by slot; 0 where there is no pair


def near_factors(factors: Factors, seen: SeenPairs) -> NearFactors:
    width = factors.dense.shape[1]
    pairs = seen.before.astype(np.int64) * width + seen.after
    factor = factors.dense.reshape(len(factors.dense), width * width).take(pairs, axis=1)  # in rows, as vectors need it
    factor[:, ~seen.there] = 0.0
    return NearFactors(seen.run_ptr, seen.before, seen.after, seen.of, factor)


class TripleRows(NamedTuple):
    """Scratch memory of one thread; S is the number of seen pairs."""

    part: np.ndarray  # [rows, most], what c is the sum of: alpha x of each active triple
    part_back: np.ndarray  # [2, most], what d is the sum of
    ahead: np.ndarray  # [1, S + 4], alpha_{t-1}
    spread: np.ndarray  # [2, S + 4], A of the first label of each pair
    c: np.ndarray  # [2, S + 4]
    d: np.ndarray  # [2, S + 4]
    e: np.ndarray  # [W], e_t over the scale
    add: np.ndarray  # [W], what pairs with c add to gamma_{t-1}


@kernel
def make_triple_rows(rows, width, most, near):
    seen = near.factor.shape[1]
    return TripleRows(
        np.empty((rows, most)), np.empty((2, most)), np.zeros((1, seen)), np.zeros((2, seen)), np.zeros((2, seen)),
        np.zeros((2, seen)), np.zeros(width), np.zeros(width),
    )  # fmt: skip


@kernel
def too_wide(offsets, triples, entries, schedule, b, log_z):
    """log_z = NaN for the sequences of batch b with an entry that is too extreme."""
    of_position, wide, sequences = triples.of_position, entries.wide, schedule.sequences
    for m in range(schedule.batch_sequences[b], schedule.batch_sequences[b + 1]):
        n = sequences[m]
        for t in range(offsets[n] + 2, offsets[n + 1]):
            if wide[of_position[t]]:
                log_z[n] = np.nan


@kernel
def some_ahead(near, slot, lo, hi, entries, alpha, before, c, at, v, row, inverse, out):
    """alpha_{t-1} of the pairs that the entries lo..hi - 1 begin with: A_{t-2} is in row `before`, e_{t-1} in `row`."""
    first, start, middle, factor = entries.first, entries.before, entries.middle, near.factor
    for k in range(lo, hi):
        u = np.uint64(first[k])
        out[0, u] = (
            factor[slot, u] * v[row, np.uint64(middle[k])] * inverse * (alpha[before, np.uint64(start[k])] + c[at, u])
        )


@kernel
def _follow(near, slot, lo, hi, entries, ahead, part, row, c, at, alpha):
    """The parts of the entries lo..hi - 1, which go into c_t and, times the factors of pairs, into alpha_t."""
    first, last, label, x, factor = entries.first, entries.last, entries.label, entries.factor, near.factor
    for k in range(lo, hi):
        value, u, y = ahead[0, np.uint64(first[k])] * x[k], np.uint64(last[k]), np.uint64(label[k])
        part[row, np.uint64(k - lo)] = value
        c[at, u] += value
        alpha[row, y] += value * factor[slot, u]


@kernel
def _spread(part, row, lo, hi, pair, out, at):
    """Row `at` of out becomes sums of the parts of triples; it is zero on entry."""
    for k in range(lo, hi):
        out[at, np.uint64(pair[k])] += part[row, np.uint64(k - lo)]


@kernel
def _clear(pair, lo, hi, out, at):
    """Zero where pairs were spread, or everywhere where they are many."""
    if MANY * (hi - lo) > out.shape[1]:
        for u in range(out.shape[1]):
            out[at, u] = 0.0
    else:
        for k in range(lo, hi):
            out[at, np.uint64(pair[k])] = 0.0


@kernel
def forward_sequence(lo, hi, row, sets, triples, factors, near, entries, work, more):
    """alpha (A_t) and scale of the positions lo..hi - 1, and what c is the sum of; e is in v."""
    alpha, v, scale, part, ahead, c = work.alpha, work.v, work.scale, more.part, more.ahead, more.c
    n_labels, width, dense, slot = len(work.power), work.alpha.shape[1], factors.dense, factors.slot
    begin, end, of_pairs, of_triples, last = (
        entries.begin, entries.end, sets.of_position, triples.of_position, entries.last,
    )  # fmt: skip
    u0, u1, at = np.int64(0), np.int64(0), np.int64(0)  # the entries that c_{t-1} is made of, the row of c_t
    for t in range(lo, hi):
        r = np.int64(row[t])
        k0, k1 = np.int64(0), np.int64(0)
        if t == lo:
            for y in range(width):
                alpha[r, y] = 1.0
        else:
            s, d = np.int64(row[t - 1]), np.int64(slot[of_pairs[t]])
            pass_one(dense, d, alpha, s, alpha, r)
            q = of_triples[t]
            if q >= 0 and end[q] > begin[q]:
                k0, k1, p = begin[q], end[q], np.int64(slot[of_pairs[t - 1]])
                some_ahead(near, p, k0, k1, entries, alpha, np.int64(row[t - 2]), c, 1 - at, v, s, 1.0 / scale[s],
                           ahead)  # fmt: skip
                _follow(near, d, k0, k1, entries, ahead, part, r, c, at, alpha)
        _clear(last, u0, u1, c, 1 - at)
        u0, u1, at = k0, k1, 1 - at
        total = 0.0
        for y in range(width):
            alpha[r, y] = max(alpha[r, y] * v[r, y], 0.0)
            total += alpha[r, y]
        scale[r] = total
        inverse = 1.0 / total if total > 0.0 else 0.0
        for y in range(n_labels):
            alpha[r, y] *= inverse
    _clear(last, u0, u1, c, 1 - at)


@kernel
def forward_triples(theta, layout, data, sets, triples, factors, near, entries, shared, schedule, b, work, more, log_z):
    """alpha and scale of all rows of batch b; log_z of its sequences, NaN where a step is too wide for scaling."""
    score_batch(theta, layout, data, sets, factors, shared, schedule, b, work, log_z)
    too_wide(data.offsets, triples, entries, schedule, b, log_z)
    sequences, offsets, row = schedule.sequences, data.offsets, schedule.row
    for m in range(schedule.batch_sequences[b], schedule.batch_sequences[b + 1]):
        n = sequences[m]
        if not np.isnan(log_z[n]):
            forward_sequence(offsets[n], offsets[n + 1], row, sets, triples, factors, near, entries, work, more)
    add_levels(data.offsets, sets, factors, schedule, b, work, log_z)


@kernel
def backward_sequence(
    lo, hi, weight, row, sets, triples, factors, near, entries, matrices, slots, places, counting, work, more, held, out
):
    """weight * gamma and weight * v of the positions lo..hi - 1.

    Where `counting`, expectations are added to out: of triples the sums with 1 in place of 1 + x, and those with x,
    entry by entry; of seen pairs, not yet times the factor. They are not A v and something more, of which most might
    cancel.
    """
    alpha, v, gamma, scale, width = work.alpha, work.v, work.gamma, work.scale, work.alpha.shape[1]
    g, e, add, part, back, spread, c, d = (
        held.g, more.e, more.add, more.part, more.part_back, more.spread, more.c, more.d,
    )  # fmt: skip
    transposed, slot, first, last = factors.transposed, factors.slot, entries.first, entries.last
    begin, end, of_pairs, of_triples = entries.begin, entries.end, sets.of_position, triples.of_position
    top, q, at = np.int64(row[hi - 1]), of_triples[hi - 1], np.int64(0)  # `at` is the row of c_t, d_t and A_{t-1}
    for y in range(width):
        gamma[top, y] = weight if y < len(work.power) else 0.0
        add[y] = 0.0
    d0, d1 = np.int64(0), np.int64(0)  # the entries that d_t is made of, then those of c_t
    k0, k1 = (begin[q], end[q]) if q >= 0 else (np.int64(0), np.int64(0))
    _spread(part, top, k0, k1, last, c, at)
    if counting and hi - lo > 1:
        _look_up(near, alpha, np.int64(row[hi - 2]), spread, at)
    for t in range(hi - 1, lo - 1, -1):
        r = np.int64(row[t])
        inverse = 1.0 / scale[r] if scale[r] > 0.0 else 0.0
        for y in range(width):
            e[y] = v[r, y] * inverse
            v[r, y] = e[y] * gamma[r, y]
            gamma[r, y] = gamma[r, y] * alpha[r, y] + add[y]
            add[y] = 0.0
        if t == lo:
            break
        s, p, m, q, u = np.int64(row[t - 1]), of_pairs[t], held.count[0], of_triples[t], of_triples[t - 1]
        pass_one(transposed, np.int64(slot[p]), v, r, gamma, s)
        _add_back(near, np.int64(slot[p]), d0, d1, first, e, back, at, gamma, s)
        there = q >= 0 and triples.ptr[q + 1] > triples.ptr[q]
        if counting and slots.full[p]:
            _add_pairs(near, np.int64(slot[p]), v, r, e, spread, c, d, at, g, places[3] + slots.seen_at[p], out)
        elif counting:
            _add_some_pairs(slots, p, near, v, r, e, spread, c, d, at, places[3], out)
        if there and (not slots.full[p] if counting else k1 > k0):
            make_g(near, np.int64(slot[p]), v, r, e, d, at, g)
        _clear(last, k0, k1, c, at)
        _clear(first, d0, d1, d, at)
        u0, u1 = (begin[u], end[u]) if u >= 0 else (np.int64(0), np.int64(0))
        _spread(part, s, u0, u1, last, c, 1 - at)
        _take_back(k0, k1, entries, part, r, g, d, back, 1 - at, add, places[2] if counting else np.int64(-1), out)
        if counting and t - 1 > lo:
            _look_up(near, alpha, np.int64(row[t - 2]), spread, 1 - at)
        if counting and there:
            make_ahead(near, np.int64(slot[of_pairs[t - 1]]), spread, c, 1 - at, v, s, 1.0 / scale[s], held.alpha, m)
            for i in range(triples.ptr[q], triples.ptr[q + 1]):
                if triples.observation[i] != matrices.often:
                    add_position(matrices, triples.observation[i], held, m, places[1], out)
            for i in range(triples.ptr[q], triples.ptr[q + 1]):
                if triples.observation[i] == matrices.often:
                    hold(matrices, near.run_ptr, held, m, places[1], out)
        d0, d1, k0, k1, at = k0, k1, u0, u1, 1 - at
    _clear(last, k0, k1, c, at)
    _clear(first, d0, d1, d, at)


@kernel
def _look_up(near, alpha, row, out, at):
    """A of the first label of each seen pair."""
    before = near.before
    for u in range(len(before)):
        out[at, u] = alpha[row, np.uint64(before[u])]


@kernel
def make_ahead(near, slot, spread, c, at, v, row, inverse, out, m):
    """Row m of out = alpha_{t-1} of the seen pairs, from A_{t-2} of these, c_{t-1} and e_{t-1}."""
    run_ptr, factor, size = near.run_ptr, near.factor, near.factor.shape[1]
    for y in range(len(run_ptr) - 1):
        e = v[row, y] * inverse
        for u in range(run_ptr[y], run_ptr[y + 1], 4):
            scaled_sum(out, m * size + u, factor, slot * size + u, e, spread, at * size + u, c, at * size + u)


@kernel
def make_g(near, slot, v, row, e, d, at, g):
    """g_t of the seen pairs."""
    run_ptr, factor, size = near.run_ptr, near.factor, near.factor.shape[1]
    for y in range(len(run_ptr) - 1):
        x, w = v[row, y], e[y]
        for u in range(run_ptr[y], run_ptr[y + 1], 4):
            scaled_line(g, u, factor, slot * size + u, x, w, d, at * size + u)


@kernel
def _add_back(near, slot, lo, hi, first, e, back, at, gamma, row):
    """B_{t-1} also has what d_t adds, of which the entries lo..hi - 1 of the position after it are the parts."""
    before, after, factor = near.before, near.after, near.factor
    for k in range(lo, hi):
        u = np.uint64(first[k])
        value = factor[slot, u] * e[np.uint64(after[u])] * back[at, np.uint64(k - lo)]
        gamma[row, np.uint64(before[u])] += value


@kernel
def _take_back(lo, hi, entries, part, row, g, d, back, at, add, out_at, out):
    """d_{t-1} and its parts from the entries of t; expectations that have x go to out[out_at + k] unless it is -1."""
    first, last, middle, x = entries.first, entries.last, entries.middle, entries.factor
    for k in range(lo, hi):
        value, i = g[0, np.uint64(last[k])], np.uint64(k - lo)
        both = part[row, i] * value
        value *= x[k]
        d[at, np.uint64(first[k])] += value
        back[at, i] = value
        add[np.uint64(middle[k])] += both
        if out_at >= 0:
            out[np.uint64(out_at + k)] += both


@kernel
def _add_pairs(near, slot, v, row, e, spread, c, d, at, g, out_at, out):
    """Add (A + c)(v + e d) of all seen pairs, and make their g_t."""
    run_ptr, factor, size = near.run_ptr, near.factor, near.factor.shape[1]
    for y in range(len(run_ptr) - 1):
        x, w = v[row, y], e[y]
        for u in range(run_ptr[y], run_ptr[y + 1], 4):
            i = at * size + u
            add_product(out, out_at + u, spread, c, i, x, w, d, factor, slot * size + u, g, u)


@kernel
def _add_some_pairs(slots, p, near, v, row, e, spread, c, d, at, seen_at, out):
    """The same of those that the weights of a set need, where they are not all."""
    out_at, n_labels = seen_at + slots.seen_at[p] - slots.ptr[p], len(near.run_ptr) - 1
    for k in range(slots.ptr[p], slots.ptr[p + 1]):
        u, y = near.of[slots.code[k]], slots.code[k] % n_labels
        if u >= 0:
            out[out_at + k] += (spread[at, u] + c[at, u]) * (v[row, y] + e[y] * d[at, u])


@kernel
def take_seen(slots, near, there, width, sums, pairs):
    """The sums of pairs become those of `_add_pairs` where these know better."""
    before, after, of = near.before, near.after, near.of
    for p in range(len(slots.full)):
        here = slots.seen_at[p]
        if slots.full[p]:
            for u in range(near.run_ptr[-1]):
                if there[u]:
                    pairs[slots.sum_ptr[p] + before[u] * width + after[u]] = sums[here + u]
        else:
            for k in range(slots.ptr[p], slots.ptr[p + 1]):
                if of[slots.code[k]] >= 0:
                    pairs[slots.sum_ptr[p] + k - slots.ptr[p]] = sums[here + k - slots.ptr[p]]


@kernel
def scatter_chunk_of_triples(
    theta, layout, data, sets, triples, factors, near, entries, matrices, shared, slots, schedule, chunk, places,
    composites_at, most, touched, out, log_z,
):  # fmt: skip
    """Expectations of the chunk's sequences into `out`; log_z[n], NaN where logarithms are needed.

    `places` are where sums of pairs, of triples, of entries and of seen pairs begin.
    """
    n_labels, width = layout.n_labels, shared.table.shape[1]
    for page in range(len(touched)):
        if touched[page]:
            out[page * PAGE : (page + 1) * PAGE] = 0.0
    work = make_rows(schedule.longest, width, n_labels, len(shared.columns))
    more, held = make_triple_rows(schedule.longest, width, most, near), make_held(matrices, near)
    offsets, sequences, row = data.offsets, schedule.sequences, schedule.row
    for b in range(schedule.chunk_batches[chunk], schedule.chunk_batches[chunk + 1]):
        forward_triples(
            theta, layout, data, sets, triples, factors, near, entries, shared, schedule, b, work, more, log_z
        )
        for m in range(schedule.batch_sequences[b], schedule.batch_sequences[b + 1]):
            n = sequences[m]
            if np.isnan(log_z[n]):
                for t in range(offsets[n], offsets[n + 1]):
                    for y in range(width):
                        work.gamma[row[t], y] = work.v[row[t], y] = 0.0
            else:
                backward_sequence(
                    offsets[n], offsets[n + 1], data.weights[n], row, sets, triples, factors, near, entries,
                    matrices, slots, places, True, work, more, held, out,
                )  # fmt: skip
        scatter_unigrams(layout, data, shared, schedule, b, composites_at, work, out)
        scatter_pairs(slots, schedule, b, places[0], n_labels, work.alpha, work.v, out)
    add_held(matrices, near.run_ptr, held, places[1], out)


@kernel
def log_partitions_of_triples(
    theta, layout, data, sets, triples, factors, near, entries, shared, schedule, chunk, most, log_z
):  # fmt: skip
    width = shared.table.shape[1]
    work = make_rows(schedule.longest, width, layout.n_labels, len(shared.columns))
    more = make_triple_rows(schedule.longest, width, most, near)
    for b in range(schedule.chunk_batches[chunk], schedule.chunk_batches[chunk + 1]):
        forward_triples(
            theta, layout, data, sets, triples, factors, near, entries, shared, schedule, b, work, more, log_z
        )


@kernel
def marginals_of_triples(
    theta, layout, data, sets, triples, factors, near, entries, matrices, slots, shared, schedule, chunk, most, gamma,
    log_z,
):  # fmt: skip
    """The probability of each label at each position; rows of sequences that need logarithms are left as they are."""
    n_labels, width, nowhere = layout.n_labels, shared.table.shape[1], np.int64(0)
    work = make_rows(schedule.longest, width, n_labels, len(shared.columns))
    more, held = make_triple_rows(schedule.longest, width, most, near), make_held(matrices, near)
    offsets, sequences, row, nothing = data.offsets, schedule.sequences, schedule.row, np.empty(0)
    for b in range(schedule.chunk_batches[chunk], schedule.chunk_batches[chunk + 1]):
        forward_triples(
            theta, layout, data, sets, triples, factors, near, entries, shared, schedule, b, work, more, log_z
        )
        for m in range(schedule.batch_sequences[b], schedule.batch_sequences[b + 1]):
            n = sequences[m]
            if np.isnan(log_z[n]):
                continue
            backward_sequence(
                offsets[n], offsets[n + 1], 1.0, row, sets, triples, factors, near, entries, matrices, slots,
                (nowhere, nowhere, nowhere, nowhere), False, work, more, held, nothing,
            )  # fmt: skip
            for t in range(offsets[n], offsets[n + 1]):
                for y in range(n_labels):
                    gamma[t, y] = work.gamma[row[t], y]
