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
kept; matrices [W, W] of pairs are made again on the way back. Factors of pairs are dense.

Cost of a position: Y^2, its active triples, and for a gradient the elements of the matrices of its observations.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.forward_backward import add_levels, make_rows, score_batch
from espalier.engine.chain.scatter_gradient import PAGE, scatter_unigrams
from espalier.engine.runtime.inner_loops import pass_one
from espalier.engine.runtime.jit import kernel


class TripleRows(NamedTuple):
    """Scratch memory of one thread; matrices are W x W, flat."""

    part: np.ndarray  # [rows, most], what c is the sum of: alpha x of each active triple
    ahead: np.ndarray  # alpha_{t-1}, of pairs
    c: np.ndarray
    c_before: np.ndarray
    d: np.ndarray
    d_before: np.ndarray
    g: np.ndarray
    e: np.ndarray  # [W], e_t over the scale
    add: np.ndarray  # [W], what pairs with d add to gamma_t
    add_before: np.ndarray
    row: np.ndarray  # [W], of the matrix of a label in the middle


@kernel
def make_triple_rows(rows, width, most):
    pairs = width * width
    return TripleRows(
        np.empty((rows, most)), np.zeros(pairs), np.zeros(pairs), np.zeros(pairs), np.zeros(pairs), np.zeros(pairs),
        np.zeros(pairs), np.zeros(width), np.zeros(width), np.zeros(width), np.empty(width),
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
def pairs_ahead(dense, d, alpha, before, has_c, c, v, row, inverse, out):
    """out(y'', y') = alpha_{t-1}(y'', y'), from A_{t-2} in row `before`, c_{t-1} and e_{t-1} in `row`."""
    width = alpha.shape[1]
    for i in range(width):
        a, at = alpha[before, i] * inverse, np.uint64(i * width)
        if has_c:
            for j in range(np.uint64(width)):
                out[at + j] = dense[d, i, j] * v[row, j] * (a + inverse * c[at + j])
        else:
            for j in range(np.uint64(width)):
                out[at + j] = dense[d, i, j] * v[row, j] * a


@kernel
def _spread(part, row, lo, hi, pair, out):
    """out(y', y) = the sum of the parts of its triples; `out` is zero on entry."""
    for k in range(lo, hi):
        out[pair[k]] += part[row, k - lo]


@kernel
def _clear(pair, lo, hi, out):
    for k in range(lo, hi):
        out[pair[k]] = 0.0


@kernel
def forward_sequence(lo, hi, row, sets, triples, factors, entries, work, more):
    """alpha (A_t) and scale of the positions lo..hi - 1, and what c is the sum of; e is in v."""
    alpha, v, scale, part = work.alpha, work.v, work.scale, more.part
    ahead, before, n_labels, width = more.ahead, more.c_before, len(work.power), work.alpha.shape[1]
    middle, label = entries.middle, entries.label
    dense, slot, first, last, factor = factors.dense, factors.slot, entries.first, entries.last, entries.factor
    begin, end, of_pairs, of_triples = entries.begin, entries.end, sets.of_position, triples.of_position
    for t in range(lo, hi):
        r = np.int64(row[t])
        if t == lo:
            for y in range(width):
                alpha[r, y] = 1.0
        else:
            s, d = np.int64(row[t - 1]), slot[of_pairs[t]]
            pass_one(dense, d, alpha, s, alpha, r)
            q = of_triples[t]
            if q >= 0 and end[q] > begin[q]:
                p, u = slot[of_pairs[t - 1]], of_triples[t - 1]
                k0, k1 = (begin[u], end[u]) if u >= 0 else (np.int64(0), np.int64(0))
                _spread(part, s, k0, k1, last, before)
                pairs_ahead(dense, p, alpha, np.int64(row[t - 2]), k1 > k0, before, v, s, 1.0 / scale[s], ahead)
                _clear(last, k0, k1, before)
                for k in range(begin[q], end[q]):
                    value = ahead[first[k]] * factor[k]
                    part[r, k - begin[q]] = value
                    alpha[r, label[k]] += value * dense[d, middle[k], label[k]]
        total = 0.0
        for y in range(width):
            alpha[r, y] = max(alpha[r, y] * v[r, y], 0.0)
            total += alpha[r, y]
        scale[r] = total
        inverse = 1.0 / total if total > 0.0 else 0.0
        for y in range(n_labels):
            alpha[r, y] *= inverse


@kernel
def forward_triples(theta, layout, data, sets, triples, factors, entries, shared, schedule, b, work, more, log_z):
    """alpha and scale of all rows of batch b; log_z of its sequences, NaN where a step is too wide for scaling."""
    score_batch(theta, layout, data, sets, factors, shared, schedule, b, work, log_z)
    too_wide(data.offsets, triples, entries, schedule, b, log_z)
    sequences, offsets, row = schedule.sequences, data.offsets, schedule.row
    for m in range(schedule.batch_sequences[b], schedule.batch_sequences[b + 1]):
        n = sequences[m]
        if not np.isnan(log_z[n]):
            forward_sequence(offsets[n], offsets[n + 1], row, sets, triples, factors, entries, work, more)
    add_levels(data.offsets, sets, factors, schedule, b, work, log_z)


@kernel
def backward_sequence(
    lo, hi, weight, row, sets, triples, factors, entries, matrices, slots, pairs_at, triples_at, counting, work, more,
    out,
):  # fmt: skip
    """weight * gamma of the positions lo..hi - 1; where `counting`, expectations of pairs and triples are added to out.

    Those of pairs are not yet multiplied by their factor, those of triples lack 1 + x where it is zero: see
    `scatter_triples`. v is scratch on return.
    """
    alpha, v, gamma, scale, width = work.alpha, work.v, work.gamma, work.scale, work.alpha.shape[1]
    ahead, g, e, part = more.ahead, more.g, more.e, more.part
    c, c_before, d, d_before, add, add_before = (
        more.c, more.c_before, more.d, more.d_before, more.add, more.add_before,
    )  # fmt: skip
    dense, slot, first, last, factor = factors.dense, factors.slot, entries.first, entries.last, entries.factor
    begin, end, of_pairs, of_triples = entries.begin, entries.end, sets.of_position, triples.of_position
    own_ptr, own, middle = entries.own_ptr, entries.own, entries.middle
    add[:] = 0.0
    top = np.int64(row[hi - 1])
    for y in range(width):
        gamma[top, y] = weight if y < len(work.power) else 0.0
    d0, d1 = np.int64(0), np.int64(0)  # the entries that d is made of
    for t in range(hi - 1, lo - 1, -1):
        r = np.int64(row[t])
        inverse = 1.0 / scale[r] if scale[r] > 0.0 else 0.0
        for y in range(width):
            e[y] = v[r, y] * inverse
            v[r, y] = e[y] * gamma[r, y]
            gamma[r, y] = gamma[r, y] * alpha[r, y] + add[y]
        if t == lo:
            break
        s, p = np.int64(row[t - 1]), of_pairs[t]
        q = of_triples[t]
        k0, k1 = (begin[q], end[q]) if q >= 0 else (np.int64(0), np.int64(0))
        _spread(part, r, k0, k1, last, c)
        if counting and slots.full[p]:
            _step_back(dense, slot[p], alpha, s, c, v, r, e, d, k1 > k0, d1 > d0, g, gamma,
                       pairs_at + slots.sum_ptr[p], out)  # fmt: skip
        else:
            _step_back(dense, slot[p], alpha, s, c, v, r, e, d, k1 > k0, d1 > d0, g, gamma, np.int64(-1), out)
            if counting:
                _add_some_pairs(slots, p, len(work.power), alpha, s, c, v, r, e, d, pairs_at, out)
        _clear(last, k0, k1, c)
        _clear(first, d0, d1, d)
        for y in range(width):
            add_before[y] = 0.0
        d0, d1 = k0, k1
        there = q >= 0 and triples.ptr[q + 1] > triples.ptr[q]
        if there and (counting or k1 > k0):
            u = of_triples[t - 1]
            u0, u1 = (begin[u], end[u]) if u >= 0 else (np.int64(0), np.int64(0))
            _spread(part, s, u0, u1, last, c_before)
            pairs_ahead(dense, slot[of_pairs[t - 1]], alpha, np.int64(row[t - 2]), u1 > u0, c_before, v, s,
                        1.0 / scale[s], ahead)  # fmt: skip
            _clear(last, u0, u1, c_before)
            if counting:
                for m in range(triples.ptr[q], triples.ptr[q + 1]):
                    scatter_triples(matrices, triples.observation[m], ahead, g, more.row, triples_at, out)
            for k in range(k0, k1):
                value = factor[k] * g[last[k]]
                d_before[first[k]] += value
                both = ahead[first[k]] * value
                add_before[middle[k]] += both
                if counting:
                    for i in range(own_ptr[k], own_ptr[k + 1]):
                        out[triples_at + own[i]] += both
        d, d_before, add, add_before = d_before, d, add_before, add
    _clear(first, d0, d1, d)


@kernel
def _step_back(dense, m, alpha, before, c, v, row, e, d, has_c, has_d, g, gamma, at, out):
    """g_t and B_{t-1}, which goes into gamma[before]; sums of pairs from out[at] on unless that is -1."""
    width = alpha.shape[1]
    for i in range(width):
        a, total, k = alpha[before, i], 0.0, np.uint64(i * width)
        if has_d:
            for j in range(np.uint64(width)):
                h = v[row, j] + e[j] * d[k + j]
                g[k + j] = h
        else:
            for j in range(np.uint64(width)):
                g[k + j] = v[row, j]
        if at >= 0:
            to = np.uint64(at) + k
            if has_c:
                for j in range(np.uint64(width)):
                    out[to + j] += (a + c[k + j]) * g[k + j]
            else:
                for j in range(np.uint64(width)):
                    out[to + j] += a * g[k + j]
        for j in range(np.uint64(width)):
            g[k + j] *= dense[m, i, j]
            total += g[k + j]
        gamma[before, i] = total


@kernel
def _add_some_pairs(slots, p, n_labels, alpha, before, c, v, row, e, d, pairs_at, out):
    """The sums of the pairs that the weights of a set need, where they are not all."""
    width, at = alpha.shape[1], pairs_at + slots.sum_ptr[p] - slots.ptr[p]
    for k in range(slots.ptr[p], slots.ptr[p + 1]):
        i, j = slots.code[k] // n_labels, slots.code[k] % n_labels
        pair = i * width + j
        out[at + k] += (alpha[before, i] + c[pair]) * (v[row, j] + e[j] * d[pair])


@kernel
def scatter_triples(matrices, x, ahead, g, after, triples_at, out):
    """out += alpha_{t-1}(y'', y') g_t(y', y) for all elements of the matrices of observation x."""
    first_ptr, last_ptr, first, last, block = (
        matrices.first_ptr, matrices.last_ptr, matrices.first, matrices.last, matrices.block,
    )  # fmt: skip
    for i in range(matrices.mid_ptr[x], matrices.mid_ptr[x + 1]):
        f0, n_rows = first_ptr[i], first_ptr[i + 1] - first_ptr[i]
        l0, n_columns = last_ptr[i], last_ptr[i + 1] - last_ptr[i]
        for j in range(n_columns):
            after[j] = g[last[l0 + j]]
        at = np.uint64(triples_at + block[i])
        for k in range(n_rows):
            value = ahead[first[f0 + k]]
            for j in range(np.uint64(n_columns)):
                out[at + j] += value * after[j]
            at += np.uint64(n_columns)


@kernel
def scatter_chunk_of_triples(
    theta, layout, data, sets, triples, factors, entries, matrices, shared, slots, schedule, chunk, pairs_at,
    composites_at, triples_at, most, touched, out, log_z,
):  # fmt: skip
    """Expectations of the chunk's sequences into `out`; log_z[n], NaN where logarithms are needed."""
    n_labels, width = layout.n_labels, shared.table.shape[1]
    for page in range(len(touched)):
        if touched[page]:
            out[page * PAGE : (page + 1) * PAGE] = 0.0
    work = make_rows(schedule.longest, width, n_labels, len(shared.columns))
    more = make_triple_rows(schedule.longest, width, most)
    offsets, sequences, row = data.offsets, schedule.sequences, schedule.row
    for b in range(schedule.chunk_batches[chunk], schedule.chunk_batches[chunk + 1]):
        forward_triples(
            theta, layout, data, sets, triples, factors, entries, shared, schedule, b, work, more, log_z
        )
        for m in range(schedule.batch_sequences[b], schedule.batch_sequences[b + 1]):
            n = sequences[m]
            if np.isnan(log_z[n]):
                for t in range(offsets[n], offsets[n + 1]):
                    for y in range(width):
                        work.gamma[row[t], y] = 0.0
            else:
                backward_sequence(
                    offsets[n], offsets[n + 1], data.weights[n], row, sets, triples, factors, entries, matrices,
                    slots, pairs_at, triples_at, True, work, more, out,
                )  # fmt: skip
        scatter_unigrams(layout, data, shared, schedule, b, composites_at, work, out)


@kernel
def log_partitions_of_triples(
    theta, layout, data, sets, triples, factors, entries, shared, schedule, chunk, most, log_z
):  # fmt: skip
    width = shared.table.shape[1]
    work = make_rows(schedule.longest, width, layout.n_labels, len(shared.columns))
    more = make_triple_rows(schedule.longest, width, most)
    for b in range(schedule.chunk_batches[chunk], schedule.chunk_batches[chunk + 1]):
        forward_triples(
            theta, layout, data, sets, triples, factors, entries, shared, schedule, b, work, more, log_z
        )


@kernel
def marginals_of_triples(
    theta, layout, data, sets, triples, factors, entries, matrices, slots, shared, schedule, chunk, most, gamma, log_z
):  # fmt: skip
    """The probability of each label at each position; rows of sequences that need logarithms are left as they are."""
    n_labels, width = layout.n_labels, shared.table.shape[1]
    work = make_rows(schedule.longest, width, n_labels, len(shared.columns))
    more, nothing = make_triple_rows(schedule.longest, width, most), np.empty(0)
    offsets, sequences, row = data.offsets, schedule.sequences, schedule.row
    for b in range(schedule.chunk_batches[chunk], schedule.chunk_batches[chunk + 1]):
        forward_triples(
            theta, layout, data, sets, triples, factors, entries, shared, schedule, b, work, more, log_z
        )
        for m in range(schedule.batch_sequences[b], schedule.batch_sequences[b + 1]):
            n = sequences[m]
            if np.isnan(log_z[n]):
                continue
            backward_sequence(
                offsets[n], offsets[n + 1], 1.0, row, sets, triples, factors, entries, matrices, slots, np.int64(0),
                np.int64(0), False, work, more, nothing,
            )  # fmt: skip
            for t in range(offsets[n], offsets[n + 1]):
                for y in range(n_labels):
                    gamma[t, y] = work.gamma[row[t], y]
