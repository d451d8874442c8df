"""Forward-backward of a batch of sequences in lockstep (SBCD 7-9), scaled in the linear domain.

Notation of one sequence, positions t = 0..T-1, labels y:
    e_t(y)     = exp(u_t(y) - max u_t), u the position scores
    alpha_t(y) = e_t(y) * sum_y' alpha_{t-1}(y') E_t(y', y) / c_t, scaled to sum to 1
    beta_t(y') = sum_y E_{t+1}(y', y) v_{t+1}(y),  v_t(y) = e_t(y) beta_t(y) / c_t
so that gamma_t = alpha_t * beta_t are the marginals and alpha_{t-1}(y') E_t(y', y) v_t(y)
the pairwise ones. The last beta is the sequence's weight, so gamma and v come out weighted.
Sequences advance together in the order of a `Schedule`; rows are W numbers wide and zero
beyond Y. A sequence with a step too wide for scaling gets log Z = NaN and goes to logarithms.
Cost: Y^2 a position where the factor is dense, else the number of its entries. The row before
is handed on as int64 in both directions: the steps are compiled once, not once a mixture of types.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.scores import SAFE_RANGE
from espalier.engine.runtime.inner_loops import (
    LANES,
    add_run,
    add_runs,
    add_values,
    exponentiate,
    extremes,
    pass_four,
    pass_one,
    pass_sparse,
)
from espalier.engine.runtime.jit import kernel


class Rows(NamedTuple):
    """Scratch memory of one thread for the rows of one batch."""

    alpha: np.ndarray  # [rows, W]
    v: np.ndarray  # [rows, W], e on the way forward
    gamma: np.ndarray  # [rows, W], beta on the way backward
    scale: np.ndarray  # [rows]
    top: np.ndarray  # [rows]
    score: np.ndarray  # [Y]
    e: np.ndarray  # [Y]
    power: np.ndarray  # int64 [Y]
    power_as_float: np.ndarray  # the same bits
    high: np.ndarray  # [LANES]
    low: np.ndarray  # [LANES]
    begin: np.ndarray  # int64 [rows * columns], first slot of each run of weights
    length: np.ndarray  # int64 [rows * columns]


@kernel
def make_rows(rows, width, n_labels, n_columns):
    power = np.empty(n_labels, np.int64)
    return Rows(
        np.zeros((rows, width)), np.zeros((rows, width)), np.zeros((rows, width)), np.empty(rows), np.empty(rows),
        np.empty(n_labels), np.empty(n_labels), power, power.view(np.float64), np.empty(LANES), np.empty(LANES),
        np.empty(rows * n_columns, np.int64), np.empty(rows * n_columns, np.int64),
    )  # fmt: skip


@kernel
def find_runs(ptr, observations, columns, offsets, schedule, b, begin, length):
    """Where the run of each column's observation begins and how long it is, position by position.

    A loop over a run ends where memory says; when that memory is far, the processor waits at
    each run. Here all of them are fetched side by side, before any is used.
    """
    sequences, i = schedule.sequences, 0
    for m in range(schedule.batch_sequences[b], schedule.batch_sequences[b + 1]):
        n = sequences[m]
        for t in range(offsets[n], offsets[n + 1]):
            for k in columns:
                x = observations[t, k]
                known = max(x, 0)
                begin[i] = ptr[known]
                length[i] = ptr[known + 1] - ptr[known] if x >= 0 else 0
                i += 1


@kernel
def score_batch(theta, layout, data, sets, factors, shared, schedule, b, work, log_z):
    """e of all rows of batch b, and log_z = 0, or NaN where a step is too wide for scaling."""
    observations, offsets, valued, values = data.observations, data.offsets, data.valued, data.values
    with_values = valued.shape[1] > 0
    unigram_ptr, unigram_code = layout.unigram_ptr, layout.unigram_code
    start_ptr, start_code, spread, of_position = layout.start_ptr, layout.start_code, factors.spread, sets.of_position
    columns, ids, table = shared.columns, shared.ids, shared.table
    sequences, row = schedule.sequences, schedule.row
    v, top, high, low, score, e = work.v, work.top, work.high, work.low, work.score, work.e
    power, power_as_float = work.power, work.power_as_float
    begin, length, base, n_columns, i = work.begin, work.length, unigram_ptr[0], len(columns), 0
    find_runs(unigram_ptr, observations, columns, offsets, schedule, b, begin, length)
    n_labels = len(score)
    for m in range(schedule.batch_sequences[b], schedule.batch_sequences[b + 1]):
        n = sequences[m]
        first, end = offsets[n], offsets[n + 1]
        log_z[n] = 0.0
        for t in range(first, end):
            r = row[t]
            for y in range(n_labels):
                score[y] = 0.0
            for k in range(ids.shape[1]):
                c = ids[t, k]
                for y in range(n_labels):
                    score[y] += table[c, y]
            for k in range(i, i + n_columns):
                add_run(theta, unigram_code, base, begin[k], length[k], score)
            i += n_columns
            if with_values:
                add_values(theta, unigram_ptr, unigram_code, valued, values, t, score)
            if t == first:
                add_runs(theta, start_ptr, start_code, observations, t, score)
            highest, lowest = extremes(score, high, low)
            wide = highest - lowest
            if t > first:
                wide += spread[of_position[t]]
            if not wide <= SAFE_RANGE:
                log_z[n] = np.nan
                highest = 0.0
                for y in range(n_labels):
                    score[y] = 0.0
            exponentiate(score, highest, power, power_as_float, e)
            for y in range(n_labels):
                v[r, y] = e[y]
            top[r] = highest


@kernel
def _scale_rows(alpha, v, scale, lo, hi):
    """alpha times e in v, scaled to sum to 1 in each of the rows lo..hi - 1; scale becomes the sums."""
    for r in range(lo, hi):
        total = 0.0
        for y in range(alpha.shape[1]):
            alpha[r, y] *= v[r, y]
            total += alpha[r, y]
        scale[r] = total
        inverse = 1.0 / total if total > 0.0 else 0.0
        for y in range(alpha.shape[1]):
            alpha[r, y] *= inverse


@kernel
def _pass_forward(factors, schedule, b, work):
    """alpha and scale of all rows of batch b from e."""
    begin, end, which = schedule.group_begin, schedule.group_end, schedule.group_set
    slot, dense, first_entry, last_entry = factors.slot, factors.dense, factors.begin, factors.end
    i_of, j_of, entry = factors.row, factors.column, factors.entry
    alpha, v, scale = work.alpha, work.v, work.scale
    before, base = schedule.before, schedule.batch_rows[b]
    n_labels, width = len(work.power), alpha.shape[1]
    for g in range(schedule.batch_groups[b], schedule.batch_groups[b + 1]):
        lo, hi, p = begin[g], end[g], which[g]
        if p < 0:
            for r in range(lo, hi):
                for y in range(width):
                    alpha[r, y] = 1.0
        elif slot[p] >= 0:
            d = slot[p]
            whole = lo + (hi - lo) // 4 * 4
            for r in range(lo, whole, 4):
                q0, q1 = np.int64(before[base + r]), np.int64(before[base + r + 1])
                q2, q3 = np.int64(before[base + r + 2]), np.int64(before[base + r + 3])
                pass_four(dense, d, alpha, q0, q1, q2, q3, alpha, r, r + 1, r + 2, r + 3)
            for r in range(whole, hi):
                pass_one(dense, d, alpha, np.int64(before[base + r]), alpha, r)
        else:
            for r in range(lo, hi):
                pass_sparse(n_labels, first_entry[p], last_entry[p], i_of, j_of, entry, alpha,
                            np.int64(before[base + r]), alpha, r)  # fmt: skip
        _scale_rows(alpha, v, scale, lo, hi)


@kernel
def add_levels(offsets, sets, factors, schedule, b, work, log_z):
    """log_z of the sequences of batch b, summed position by position."""
    sequences, row, shift, of_position = schedule.sequences, schedule.row, factors.shift, sets.of_position
    scale, top = work.scale, work.top
    for m in range(schedule.batch_sequences[b], schedule.batch_sequences[b + 1]):
        n = sequences[m]
        first, total = offsets[n], log_z[n]
        if np.isnan(total):
            continue
        for t in range(first, offsets[n + 1]):
            r = row[t]
            total += np.log(scale[r]) + top[r]
            if t > first:
                total += shift[of_position[t]]
        log_z[n] = total


@kernel
def forward_batch(theta, layout, data, sets, factors, shared, schedule, b, work, log_z):
    """e, alpha and scale of all rows of batch b; log_z of its sequences, NaN where a step is too wide for scaling."""
    score_batch(theta, layout, data, sets, factors, shared, schedule, b, work, log_z)
    _pass_forward(factors, schedule, b, work)
    add_levels(data.offsets, sets, factors, schedule, b, work, log_z)


@kernel
def _finish_rows(alpha, v, gamma, scale, lo, hi):
    """v = e beta / c and gamma = alpha beta of rows lo..hi - 1, from e in v and beta in gamma."""
    for r in range(lo, hi):
        inverse = 1.0 / scale[r] if scale[r] > 0.0 else 0.0
        for y in range(alpha.shape[1]):
            v[r, y] *= gamma[r, y] * inverse
            gamma[r, y] *= alpha[r, y]


@kernel
def backward_batch(offsets, weights, factors, schedule, b, work, log_z):
    """weight * gamma and weight * v of all rows of batch b; zero in the sequences whose log_z is NaN."""
    begin, end, which = schedule.group_begin, schedule.group_end, schedule.group_set
    slot, transposed, first_entry, last_entry = factors.slot, factors.transposed, factors.begin, factors.end
    i_of, j_of, entry = factors.row, factors.column, factors.entry
    alpha, v, gamma, scale = work.alpha, work.v, work.gamma, work.scale
    before, base, sequences, row = schedule.before, schedule.batch_rows[b], schedule.sequences, schedule.row
    n_labels, width = len(work.power), alpha.shape[1]
    for m in range(schedule.batch_sequences[b], schedule.batch_sequences[b + 1]):
        n = sequences[m]
        r = row[offsets[n + 1] - 1]
        weight = 0.0 if np.isnan(log_z[n]) else weights[n]
        for y in range(n_labels):
            gamma[r, y] = weight
        for y in range(n_labels, width):
            gamma[r, y] = 0.0
    for g in range(schedule.batch_groups[b + 1] - 1, schedule.batch_groups[b] - 1, -1):
        lo, hi, p = begin[g], end[g], which[g]
        _finish_rows(alpha, v, gamma, scale, lo, hi)
        if p < 0:
            continue
        if slot[p] >= 0:
            d = slot[p]
            whole = lo + (hi - lo) // 4 * 4
            for r in range(lo, whole, 4):
                q0, q1 = np.int64(before[base + r]), np.int64(before[base + r + 1])
                q2, q3 = np.int64(before[base + r + 2]), np.int64(before[base + r + 3])
                pass_four(transposed, d, v, r, r + 1, r + 2, r + 3, gamma, q0, q1, q2, q3)
            for r in range(whole, hi):
                pass_one(transposed, d, v, r, gamma, np.int64(before[base + r]))
        else:
            for r in range(lo, hi):
                pass_sparse(n_labels, first_entry[p], last_entry[p], j_of, i_of, entry, v, r, gamma,
                            np.int64(before[base + r]))  # fmt: skip
