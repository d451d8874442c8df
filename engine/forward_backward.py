"""The forward-backward recursions of a chain, scaled in the linear domain (SBCD 7-9).

Notation of one sequence, positions t = 0..T-1, labels y:
    e_t(y)     = exp(u_t(y) - max u_t), u the position scores
    alpha_t(y) = e_t(y) * sum_y' alpha_{t-1}(y') E_t(y', y) / c_t, scaled to sum to 1
    beta_t(y') = sum_y E_{t+1}(y', y) v_{t+1}(y),  v_t(y) = e_t(y) beta_t(y) / c_t
so that gamma_t = alpha_t * beta_t are the marginals and alpha_{t-1}(y') E_t(y', y) v_t(y)
the pairwise ones. A sequence with a step too wide for this goes to logarithms.
Cost: Y^2 a position where the factor is dense, else the number of its entries.
"""

from typing import NamedTuple

import numpy as np

from engine.arithmetic import LANES, add_runs, exponentiate, extremes, pass_message
from engine.jit import kernel
from engine.scores import SAFE_RANGE, pair_scores, position_scores


class Work(NamedTuple):
    """Scratch memory of one thread. Rows belong to the positions of the sequences at hand; they stay in the cache."""

    alpha: np.ndarray  # [rows, Y]
    v: np.ndarray  # [rows, Y], e on the way forward
    gamma: np.ndarray  # [rows, Y]
    scale: np.ndarray  # [rows]
    score: np.ndarray  # [Y]
    e: np.ndarray  # [Y]
    current: np.ndarray  # [Y]
    following: np.ndarray  # [Y]
    power: np.ndarray  # int64 [Y]
    power_as_float: np.ndarray  # the same bits
    high: np.ndarray  # [LANES]
    low: np.ndarray  # [LANES]


@kernel
def make_work(offsets, sequences, n_labels, batch):
    """Room for the longest sequence and `batch` rows before it."""
    rows = 1
    for n in sequences:
        rows = max(rows, offsets[n + 1] - offsets[n])
    rows += batch
    power = np.empty(n_labels, np.int64)
    return Work(
        np.empty((rows, n_labels)), np.empty((rows, n_labels)), np.empty((rows, n_labels)), np.empty(rows),
        np.empty(n_labels), np.empty(n_labels), np.empty(n_labels), np.empty(n_labels),
        power, power.view(np.float64), np.empty(LANES), np.empty(LANES),
    )  # fmt: skip


@kernel
def forward(theta, layout, observations, sets, factors, first, last, base, work):
    """log Z of the sequence first..last, NaN where a step is too wide for scaling.

    Fills alpha, v (as e) and scale in the rows from `base` on.
    """
    unigram_ptr, unigram_code = layout.unigram_ptr, layout.unigram_code
    of_position, shift, spread = sets.of_position, factors.shift, factors.spread
    slot, dense, begin, end = factors.slot, factors.dense, factors.begin, factors.end
    row, column, entry = factors.row, factors.column, factors.entry
    alpha, v, scale, score, e = work.alpha, work.v, work.scale, work.score, work.e
    current, following, high, low = work.current, work.following, work.high, work.low
    power, power_as_float = work.power, work.power_as_float
    n_labels = len(score)
    log_z = 0.0
    for t in range(first, last + 1):
        p = of_position[t]
        for y in range(n_labels):
            score[y] = 0.0
        add_runs(theta, unigram_ptr, unigram_code, observations, t, score)
        if t == first:
            add_runs(theta, layout.start_ptr, layout.start_code, observations, t, score)
        top, bottom = extremes(score, high, low)
        width = top - bottom
        if t > first:
            width += spread[p]
        if not width <= SAFE_RANGE:
            return np.nan
        exponentiate(score, top, power, power_as_float, e)
        if t > first:
            pass_message(slot, dense, begin, end, row, column, entry, p, current, following)
            log_z += shift[p]
        else:
            following[:] = 1.0
        total = 0.0
        for y in range(n_labels):
            following[y] *= e[y]
            total += following[y]
        at = base + t - first
        scale[at] = total
        inverse = 1.0 / total
        for y in range(n_labels):
            current[y] = following[y] * inverse
            alpha[at, y] = current[y]
            v[at, y] = e[y]
        log_z += np.log(total) + top
    return log_z


@kernel
def backward(sets, factors, first, last, base, weight, work):
    """weight * gamma and weight * v of the sequence, from what `forward` left."""
    slot, transposed, begin, end = factors.slot, factors.transposed, factors.begin, factors.end
    row, column, entry, of_position = factors.row, factors.column, factors.entry, sets.of_position
    alpha, v, gamma, scale = work.alpha, work.v, work.gamma, work.scale
    beta, following = work.current, work.following
    n_labels = len(beta)
    beta[:] = 1.0
    for t in range(last, first - 1, -1):
        at = base + t - first
        inverse = 1.0 / scale[at]
        for y in range(n_labels):
            gamma[at, y] = weight * alpha[at, y] * beta[y]
            following[y] = v[at, y] * beta[y] * inverse
            v[at, y] = weight * following[y]
        if t > first:
            pass_message(slot, transposed, begin, end, column, row, entry, of_position[t], following, beta)


@kernel
def log_partitions(theta, layout, observations, offsets, sets, factors, sequences, log_z):
    """log_z[i] of sequence sequences[i], NaN where a step is too wide for scaling."""
    work = make_work(offsets, sequences, layout.n_labels, 0)
    for i in range(len(sequences)):
        n = sequences[i]
        log_z[i] = forward(theta, layout, observations, sets, factors, offsets[n], offsets[n + 1] - 1, 0, work)


@kernel
def store_posteriors(theta, layout, observations, offsets, weights, sets, factors, sequences, alpha, v, gamma, log_z):
    """log_z [N] and, written out for all positions, alpha, weight * v and weight * gamma [T, Y]."""
    work = make_work(offsets, sequences, layout.n_labels, 0)
    for n in sequences:
        first, last = offsets[n], offsets[n + 1] - 1
        log_z[n] = forward(theta, layout, observations, sets, factors, first, last, 0, work)
        if np.isnan(log_z[n]):
            continue
        backward(sets, factors, first, last, 0, weights[n], work)
        for t in range(last + 1 - first):
            for y in range(layout.n_labels):
                alpha[first + t, y] = work.alpha[t, y]
                v[first + t, y] = work.v[t, y]
                gamma[first + t, y] = work.gamma[t, y]


@kernel
def log_sum(values):
    top = values.max()
    if not np.isfinite(top):
        return top
    total = 0.0
    for value in values:
        total += np.exp(value - top)
    return top + np.log(total)


@kernel
def log_forward(theta, layout, observations, sets, lo, hi, score, log_alpha):
    """log Z by logarithms: exact for any finite scores, and for any length.

    Fills score (u) and log_alpha, whose row t - lo belongs to position t. Each row is
    shifted to a largest value of 0, so that its digits do not go into a long sum.
    """
    n_labels = layout.n_labels
    pairs = np.empty(n_labels * n_labels)
    terms = np.empty(n_labels)
    log_z = 0.0
    for t in range(lo, hi):
        row = t - lo
        position_scores(theta, layout, observations, t, t == lo, score[row])
        log_alpha[row] = score[row]
        if t > lo:
            pair_scores(theta, layout, sets, sets.of_position[t], pairs)
            for y in range(n_labels):
                for i in range(n_labels):
                    terms[i] = log_alpha[row - 1, i] + pairs[i * n_labels + y]
                log_alpha[row, y] += log_sum(terms)
        top = log_alpha[row].max()
        log_alpha[row] -= top
        log_z += top
    return log_z + log_sum(log_alpha[hi - 1 - lo])


@kernel
def log_backward(theta, layout, sets, lo, hi, weight, log_alpha, v, gamma, gradient):
    """weight * gamma; v becomes zero; pairwise expectations are added to `gradient` directly.

    `v` holds the position scores on entry. `gradient` may be empty when only gamma is wanted.
    Marginals are normalised position by position.
    """
    n_labels = layout.n_labels
    pairs = np.empty(n_labels * n_labels)
    terms = np.empty(n_labels)
    log_beta = np.zeros(n_labels)
    for t in range(hi - 1, lo - 1, -1):
        for y in range(n_labels):
            terms[y] = log_alpha[t - lo, y] + log_beta[y]
        total = log_sum(terms)
        for y in range(n_labels):
            gamma[t - lo, y] = weight * np.exp(terms[y] - total)
        if t > lo:
            p = sets.of_position[t]
            pair_scores(theta, layout, sets, p, pairs)
            step = v[t - lo] + log_beta
            for i in range(n_labels):
                for y in range(n_labels):
                    terms[y] = pairs[i * n_labels + y] + step[y]
                    pairs[i * n_labels + y] = log_alpha[t - lo - 1, i] + terms[y]
                log_beta[i] = log_sum(terms)
            if len(gradient):
                total = log_sum(pairs)
                for c in range(n_labels * n_labels):
                    pairs[c] = weight * np.exp(pairs[c] - total)
                add_pairs(layout, sets, p, pairs, gradient)
            log_beta -= log_beta.max()
        v[t - lo] = 0.0


@kernel
def add_pairs(layout, sets, p, pairs, gradient):
    """gradient[slot of lambda[x, y', y]] += pairs[y' * Y + y] for the members x of set p."""
    for i in range(sets.ptr[p], sets.ptr[p + 1]):
        x = sets.observation[i]
        lo, hi = layout.bigram_ptr[x], layout.bigram_ptr[x + 1]
        full = hi - lo == len(pairs)
        for s in range(lo, hi):
            gradient[s] += pairs[s - lo if full else layout.bigram_code[s - layout.bigram_ptr[0]]]
