"""The recursions of a lattice straight from the weights of a chain: exact for any finite scores, and for any length.

Sequences with a step too wide for scaling in the linear domain (see `forward_backward`) come here, one at a time. The
scores of pairs are made anew at each step, so memory does not grow with the number of pair sets; the steps are those
of `engine.lattice.recursions`. Cost: Y^2 exponentials a position.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.scores import pair_scores, position_scores
from espalier.engine.lattice.recursions import (
    StepRows,
    log_step,
    log_step_back,
    log_sum,
    make_step_rows,
    position_marginals,
)
from espalier.engine.runtime.jit import kernel


class PairStep(NamedTuple):
    """Memory for a step between two positions."""

    matrix: np.ndarray  # [1, Y, Y], the scores of the pairs
    scores: np.ndarray  # [Y * Y], the same memory
    conditional: np.ndarray  # [Y, Y], p(y_t = y | y_{t-1} = y') after a step back
    pairs: np.ndarray  # [Y * Y], the same memory
    rows: StepRows


@kernel
def make_pair_step(n_labels):
    matrix, conditional = np.empty((1, n_labels, n_labels)), np.empty((n_labels, n_labels))
    rows, n_pairs = make_step_rows(n_labels), n_labels * n_labels
    return PairStep(matrix, matrix.reshape(n_pairs), conditional, conditional.reshape(n_pairs), rows)


@kernel
def log_forward(theta, layout, data, sets, lo, hi, score, log_alpha):
    """log Z of the positions lo..hi - 1. Fills score (u) and log_alpha, whose row t - lo belongs to position t."""
    step, log_z = make_pair_step(layout.n_labels), 0.0
    for t in range(lo, hi):
        position_scores(theta, layout, data, t, t == lo, score[t - lo])
        if t > lo:
            pair_scores(theta, layout, sets, sets.of_position[t], step.scores)
        log_z += log_step(score, t - lo, step.matrix, 0 if t > lo else -1, log_alpha, step.rows)
    return log_z + log_sum(log_alpha[hi - 1 - lo])


@kernel
def log_back(theta, layout, sets, p, score, row, log_alpha, log_beta, step):
    """log_beta goes from a row, of a position with set p, to the one before; `step` has the conditional probabilities.

    Returns the shift of log_beta, see `log_step_back`.
    """
    pair_scores(theta, layout, sets, p, step.scores)
    return log_step_back(score, row, step.matrix, 0, log_alpha, log_beta, step.conditional, step.rows)


@kernel
def join(weight, gamma, row, step):
    """The conditional probabilities of a step times weight * gamma[row], the marginals before it: step.pairs."""
    n_labels = len(step.conditional)
    for i in range(n_labels):
        for y in range(n_labels):
            step.conditional[i, y] *= weight * gamma[row, i]


@kernel
def log_backward(theta, layout, sets, lo, hi, weight, log_alpha, v, gamma, gradient):
    """weight * gamma; v becomes zero; pairwise expectations are added to `gradient` directly.

    `v` holds the position scores on entry. `gradient` may be empty when only gamma is wanted.
    Marginals are normalised position by position.
    """
    step, log_beta = make_pair_step(layout.n_labels), np.zeros(layout.n_labels)
    position_marginals(log_alpha, hi - 1 - lo, log_beta, gamma, step.rows)
    for t in range(hi - 1, lo, -1):
        row, p = t - lo, sets.of_position[t]
        log_back(theta, layout, sets, p, v, row, log_alpha, log_beta, step)
        position_marginals(log_alpha, row - 1, log_beta, gamma, step.rows)
        if len(gradient):
            join(weight, gamma, row - 1, step)
            add_pairs(layout, sets, p, step.pairs, gradient)
    for row in range(hi - lo):
        for y in range(layout.n_labels):
            gamma[row, y] *= weight
            v[row, y] = 0.0


@kernel
def add_pairs(layout, sets, p, pairs, gradient):
    """gradient[slot of lambda[x, y', y]] += pairs[y' * Y + y] for the members x of set p."""
    for i in range(sets.ptr[p], sets.ptr[p + 1]):
        x = sets.observation[i]
        lo, hi = layout.bigram_ptr[x], layout.bigram_ptr[x + 1]
        full = hi - lo == len(pairs)
        for s in range(lo, hi):
            gradient[s] += pairs[s - lo if full else layout.bigram_code[s - layout.bigram_ptr[0]]]
