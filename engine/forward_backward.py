"""The forward-backward recursions of a chain, scaled in the linear domain (SBCD 7-9).

Notation of one sequence, positions t = 0..T-1, labels y:
    e_t(y)     = exp(u_t(y) - max u_t), u the position scores
    alpha_t(y) = e_t(y) * sum_y' alpha_{t-1}(y') E_t(y', y) / c_t, scaled to sum to 1
    beta_t(y') = sum_y E_{t+1}(y', y) v_{t+1}(y),  v_t(y) = e_t(y) beta_t(y) / c_t
so that gamma_t = alpha_t * beta_t are the marginals and alpha_{t-1}(y') E_t(y', y) v_t(y)
the pairwise ones. A sequence with a step too wide for this goes to logarithms.
"""

import numpy as np

from engine.jit import kernel
from engine.scores import SAFE_RANGE, pair_scores, position_scores


@kernel
def multiply(vector, matrix, out):
    """out[j] = sum_i vector[i] * matrix[i, j], four rows at a time to save loads and stores of out."""
    n = len(vector)
    out[:] = 0.0
    whole = n - n % 4
    for i in range(0, whole, 4):
        a, b, c, d = vector[i], vector[i + 1], vector[i + 2], vector[i + 3]
        for j in range(n):
            out[j] += a * matrix[i, j] + b * matrix[i + 1, j] + c * matrix[i + 2, j] + d * matrix[i + 3, j]
    for i in range(whole, n):
        a = vector[i]
        for j in range(n):
            out[j] += a * matrix[i, j]


@kernel
def step_forward(factors, p, alpha, out):
    """out(y) = sum_y' alpha(y') E_p(y', y); sparse: sum alpha + sum over entries (SBCD 9)."""
    d = factors.slot[p]
    if d >= 0:
        multiply(alpha, factors.dense[d], out)
    else:
        out[:] = alpha.sum()
        for k in range(factors.begin[p], factors.end[p]):
            out[factors.column[k]] += alpha[factors.row[k]] * factors.entry[k]


@kernel
def step_backward(factors, p, v, out):
    """out(y') = sum_y E_p(y', y) v(y)."""
    d = factors.slot[p]
    if d >= 0:
        multiply(v, factors.transposed[d], out)
    else:
        out[:] = v.sum()
        for k in range(factors.begin[p], factors.end[p]):
            out[factors.row[k]] += factors.entry[k] * v[factors.column[k]]


@kernel
def forward(theta, layout, observations, sets, factors, lo, hi, alpha, e, scale):
    """log Z of the sequence [lo, hi); fills alpha, e [T, Y] and scale [T]. NaN when a step is too wide."""
    log_z = 0.0
    for t in range(lo, hi):
        p = sets.of_position[t]
        position_scores(theta, layout, observations, t, t == lo, e[t])
        top = e[t].max()
        spread = top - e[t].min()
        if t > lo:
            spread += factors.spread[p]
        if not spread <= SAFE_RANGE:
            return np.nan
        for y in range(layout.n_labels):
            e[t, y] = np.exp(e[t, y] - top)
        if t > lo:
            step_forward(factors, p, alpha[t - 1], alpha[t])
            for y in range(layout.n_labels):
                alpha[t, y] *= e[t, y]
            log_z += factors.shift[p]
        else:
            alpha[t] = e[t]
        scale[t] = alpha[t].sum()
        alpha[t] /= scale[t]
        log_z += np.log(scale[t]) + top
    return log_z


@kernel
def backward(sets, factors, lo, hi, weight, alpha, v, scale, gamma):
    """weight * gamma [T, Y] and weight * v [T, Y] of the sequence; v holds e on entry."""
    n_labels = alpha.shape[1]
    beta = np.ones(n_labels)
    unit = np.empty(n_labels)
    for t in range(hi - 1, lo - 1, -1):
        inverse = 1.0 / scale[t]
        for y in range(n_labels):
            gamma[t, y] = weight * alpha[t, y] * beta[y]
            unit[y] = v[t, y] * beta[y] * inverse
            v[t, y] = weight * unit[y]
        if t > lo:
            step_backward(factors, sets.of_position[t], unit, beta)


@kernel
def _log_sum(values):
    top = values.max()
    if not np.isfinite(top):
        return top
    total = 0.0
    for value in values:
        total += np.exp(value - top)
    return top + np.log(total)


@kernel
def log_forward(theta, layout, observations, sets, lo, hi, base, score, log_alpha):
    """log Z by logarithms: exact for any finite scores.

    Fills score (u) and log_alpha, whose row t - base belongs to position t.
    """
    n_labels = layout.n_labels
    pairs = np.empty(n_labels * n_labels)
    terms = np.empty(n_labels)
    for t in range(lo, hi):
        row = t - base
        position_scores(theta, layout, observations, t, t == lo, score[row])
        log_alpha[row] = score[row]
        if t > lo:
            pair_scores(theta, layout, sets, sets.of_position[t], pairs)
            for y in range(n_labels):
                for i in range(n_labels):
                    terms[i] = log_alpha[row - 1, i] + pairs[i * n_labels + y]
                log_alpha[row, y] += _log_sum(terms)
    return _log_sum(log_alpha[hi - 1 - base])


@kernel
def log_backward(theta, layout, observations, sets, lo, hi, weight, log_z, log_alpha, v, gamma, gradient):
    """weight * gamma; v becomes zero; pairwise expectations are added to `gradient` directly.

    `v` holds the position scores on entry. `gradient` may be empty when only gamma is wanted.
    """
    n_labels = layout.n_labels
    pairs = np.empty(n_labels * n_labels)
    terms = np.empty(n_labels)
    log_beta = np.zeros(n_labels)
    for t in range(hi - 1, lo - 1, -1):
        for y in range(n_labels):
            gamma[t, y] = weight * np.exp(log_alpha[t, y] + log_beta[y] - log_z)
        if t > lo:
            p = sets.of_position[t]
            pair_scores(theta, layout, sets, p, pairs)
            step = v[t] + log_beta
            for i in range(n_labels):
                for y in range(n_labels):
                    terms[y] = pairs[i * n_labels + y] + step[y]
                    pairs[i * n_labels + y] = weight * np.exp(log_alpha[t - 1, i] + terms[y] - log_z)
                log_beta[i] = _log_sum(terms)
            if len(gradient):
                add_pairs(layout, sets, p, pairs, gradient)
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


@kernel
def log_partitions(theta, layout, observations, offsets, sets, factors, sequences, out):
    """out[i] = log Z of sequence sequences[i]; scaled where that is safe, else by logarithms."""
    n_labels = layout.n_labels
    score, current, following = np.empty(n_labels), np.empty(n_labels), np.empty(n_labels)
    for i in range(len(sequences)):
        lo, hi = offsets[sequences[i]], offsets[sequences[i] + 1]
        log_z = 0.0
        for t in range(lo, hi):
            p = sets.of_position[t]
            position_scores(theta, layout, observations, t, t == lo, score)
            top = score.max()
            spread = top - score.min()
            if t > lo:
                spread += factors.spread[p]
                step_forward(factors, p, current, following)
                log_z += factors.shift[p]
            else:
                following[:] = 1.0
            if not spread <= SAFE_RANGE:
                log_z = np.nan
                break
            for y in range(n_labels):
                current[y] = np.exp(score[y] - top) * following[y]
            total = current.sum()
            current /= total
            log_z += np.log(total) + top
        if np.isnan(log_z):
            rows = np.empty((2, hi - lo, n_labels))
            log_z = log_forward(theta, layout, observations, sets, lo, hi, lo, rows[0], rows[1])
        out[i] = log_z
