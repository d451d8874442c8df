"""The forward-backward recursions of a chain by logarithms: exact for any finite scores, and for any length.

Sequences with a step too wide for scaling in the linear domain (see `forward_backward`) come here,
one at a time. Cost: Y^2 exponentials a position.
"""

import numpy as np

from espalier.engine.chain.scores import pair_scores, position_scores
from espalier.engine.runtime.jit import kernel


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
def log_step_back(theta, layout, sets, p, score, log_alpha, log_beta, pairs, terms):
    """From a position with set p and scores `score` to the one before, whose log_alpha is given.

    `pairs` become the joint scores of both labels, up to a constant; log_beta goes on, its largest value 0.
    """
    n_labels = layout.n_labels
    pair_scores(theta, layout, sets, p, pairs)
    step = score + log_beta
    for i in range(n_labels):
        for y in range(n_labels):
            terms[y] = pairs[i * n_labels + y] + step[y]
            pairs[i * n_labels + y] = log_alpha[i] + terms[y]
        log_beta[i] = log_sum(terms)
    log_beta -= log_beta.max()


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
            log_step_back(theta, layout, sets, p, v[t - lo], log_alpha[t - lo - 1], log_beta, pairs, terms)
            if len(gradient):
                total = log_sum(pairs)
                for c in range(n_labels * n_labels):
                    pairs[c] = weight * np.exp(pairs[c] - total)
                add_pairs(layout, sets, p, pairs, gradient)
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
