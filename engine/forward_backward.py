"""The forward-backward recursions of a chain, scaled in the linear domain (SBCD 7-9).

Notation of one sequence, positions t = 0..T-1, labels y:
    e_t(y)     = exp(u_t(y) - max u_t), u the position scores
    alpha_t(y) = e_t(y) * sum_y' alpha_{t-1}(y') E_t(y', y) / c_t, scaled to sum to 1
    beta_t(y') = sum_y E_{t+1}(y', y) v_{t+1}(y),  v_t(y) = e_t(y) beta_t(y) / c_t
so that gamma_t = alpha_t * beta_t are the marginals and alpha_{t-1}(y') E_t(y', y) v_t(y)
the pairwise ones. A sequence with a step too wide for this goes to logarithms.
Cost: Y^2 a position where the factor is dense, else the number of its entries.
"""

import numpy as np

from engine.arithmetic import LANES, add_runs, exponentiate, extremes, pass_message
from engine.jit import kernel
from engine.scores import SAFE_RANGE, pair_scores, position_scores


@kernel
def forward_backward(
    theta, layout, observations, offsets, weights, sets, factors, sequences, keep, alpha, v, gamma, log_z
):
    """log_z[i] of sequence sequences[i], NaN where a step is too wide for scaling.

    With `keep` also alpha, weight * v and weight * gamma [T, Y], by the backward recursion.
    """
    n_labels = layout.n_labels
    unigram_ptr, unigram_code = layout.unigram_ptr, layout.unigram_code
    start_ptr, start_code = layout.start_ptr, layout.start_code
    of_position = sets.of_position
    slot, shift, spread, dense, transposed = factors.slot, factors.shift, factors.spread, factors.dense, factors.transposed
    begin, end, row, column, entry = factors.begin, factors.end, factors.row, factors.column, factors.entry
    score, e, current, following = np.empty(n_labels), np.empty(n_labels), np.empty(n_labels), np.empty(n_labels)
    power, high, low = np.empty(n_labels, np.int64), np.empty(LANES), np.empty(LANES)
    power_as_float = power.view(np.float64)
    longest = 0
    for n in sequences:
        longest = max(longest, offsets[n + 1] - offsets[n])
    scale = np.empty(longest)
    for i in range(len(sequences)):
        first, last = offsets[sequences[i]], offsets[sequences[i] + 1] - 1
        total_log = 0.0
        for t in range(first, last + 1):
            p = of_position[t]
            for y in range(n_labels):
                score[y] = 0.0
            add_runs(theta, unigram_ptr, unigram_code, observations, t, score)
            if t == first:
                add_runs(theta, start_ptr, start_code, observations, t, score)
            top, bottom = extremes(score, high, low)
            width = top - bottom
            if t > first:
                width += spread[p]
            if not width <= SAFE_RANGE:
                total_log = np.nan
                break
            exponentiate(score, top, power, power_as_float, e)
            if t > first:
                pass_message(slot, dense, begin, end, row, column, entry, p, current, following)
                total_log += shift[p]
            else:
                following[:] = 1.0
            total = 0.0
            for y in range(n_labels):
                following[y] *= e[y]
                total += following[y]
            scale[t - first] = total
            inverse = 1.0 / total
            for y in range(n_labels):
                current[y] = following[y] * inverse
            if keep:
                for y in range(n_labels):
                    alpha[t, y] = current[y]
                    v[t, y] = e[y]
            total_log += np.log(total) + top
        log_z[i] = total_log
        if not keep or np.isnan(total_log):
            continue
        weight = weights[sequences[i]]
        current[:] = 1.0  # beta
        for t in range(last, first - 1, -1):
            inverse = 1.0 / scale[t - first]
            for y in range(n_labels):
                gamma[t, y] = weight * alpha[t, y] * current[y]
                following[y] = v[t, y] * current[y] * inverse
                v[t, y] = weight * following[y]
            if t > first:
                p = of_position[t]
                pass_message(slot, transposed, begin, end, column, row, entry, p, following, current)


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
def log_forward(theta, layout, observations, sets, lo, hi, base, score, log_alpha):
    """log Z by logarithms: exact for any finite scores, and for any length.

    Fills score (u) and log_alpha, whose row t - base belongs to position t. Each row is
    shifted to a largest value of 0, so that its digits do not go into a long sum.
    """
    n_labels = layout.n_labels
    pairs = np.empty(n_labels * n_labels)
    terms = np.empty(n_labels)
    log_z = 0.0
    for t in range(lo, hi):
        row = t - base
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
    return log_z + log_sum(log_alpha[hi - 1 - base])


@kernel
def log_backward(theta, layout, observations, sets, lo, hi, weight, log_alpha, v, gamma, gradient):
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
            terms[y] = log_alpha[t, y] + log_beta[y]
        total = log_sum(terms)
        for y in range(n_labels):
            gamma[t, y] = weight * np.exp(terms[y] - total)
        if t > lo:
            p = sets.of_position[t]
            pair_scores(theta, layout, sets, p, pairs)
            step = v[t] + log_beta
            for i in range(n_labels):
                for y in range(n_labels):
                    terms[y] = pairs[i * n_labels + y] + step[y]
                    pairs[i * n_labels + y] = log_alpha[t - 1, i] + terms[y]
                log_beta[i] = log_sum(terms)
            if len(gradient):
                total = log_sum(pairs)
                for c in range(n_labels * n_labels):
                    pairs[c] = weight * np.exp(pairs[c] - total)
                add_pairs(layout, sets, p, pairs, gradient)
            log_beta -= log_beta.max()
        v[t] = 0.0


@kernel
def add_pairs(layout, sets, p, pairs, gradient):
    """gradient[slot of lambda[x, y', y]] += pairs[y' * Y + y] for the members x of set p."""
    for i in range(sets.ptr[p], sets.ptr[p + 1]):
        x = sets.observation[i]
        lo, hi = layout.bigram_ptr[x], layout.bigram_ptr[x + 1]
        full = hi - lo == len(pairs)
        for s in range(lo, hi):
            gradient[s] += pairs[s - lo if full else layout.bigram_code[s - layout.bigram_ptr[0]]]
