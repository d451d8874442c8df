"""The recursions over a lattice by logarithms, for one sequence of L positions and Y labels.

Arrays of a sequence: here [L, Y], which [L]; between [P, Y, Y] is that of the whole lattice. Exact for any finite
scores and for -inf, which is impossible; rows of the forward and backward variables are shifted to a largest value
of 0, so that their digits do not go into a long sum. A sum of exponentials takes its largest term out first.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.runtime.inner_loops import LANES, exponentiate, extremes
from espalier.engine.runtime.jit import kernel

# exp of it is 1e-304: nothing beside the largest term of a sum, which is 1, and still a normal number.
LOWEST = -700.0


class StepRows(NamedTuple):
    """Scratch memory of one step."""

    top: np.ndarray  # [Y], the largest term of each sum
    total: np.ndarray  # [Y]
    step: np.ndarray  # [Y]
    gap: np.ndarray  # [Y], terms below the largest one
    value: np.ndarray  # [Y], their exponentials
    power: np.ndarray  # int64 [Y], and the same memory as float64: see `exponentiate`
    scale: np.ndarray
    high: np.ndarray  # [LANES]
    low: np.ndarray


@kernel
def make_step_rows(n_labels):
    power = np.empty(n_labels, np.int64)
    return StepRows(
        np.empty(n_labels), np.empty(n_labels), np.empty(n_labels), np.empty(n_labels), np.empty(n_labels),
        power, power.view(np.float64), np.empty(LANES), np.empty(LANES),
    )  # fmt: skip


@kernel
def log_sum(values):
    """log sum_k exp(values[k]), -inf if all are."""
    top = values.max()
    if not np.isfinite(top):
        return top
    total = 0.0
    for value in values:
        total += np.exp(value - top)
    return top + np.log(total)


@kernel
def log_step(here, t, between, p, log_alpha, rows):
    """Fills log_alpha_t; returns how far the row was shifted to have the largest value 0, -inf if nothing is possible.

    log_alpha_t(y) = here_t(y) + log sum_i exp(log_alpha_{t-1}(i) + between_p(i, y)), without the sum where p is -1, at
    the start of a sequence. Cost: Y^2 exponentials.
    """
    n_labels = log_alpha.shape[1]
    for y in range(n_labels):
        log_alpha[t, y] = here[t, y]
    if p >= 0:
        _add_ways_in(log_alpha, t, between, p, rows)
    top = log_alpha[t, 0]
    for y in range(1, n_labels):
        top = log_alpha[t, y] if log_alpha[t, y] > top else top
    if top > -np.inf:
        for y in range(n_labels):
            log_alpha[t, y] -= top
    return top


@kernel
def _add_ways_in(log_alpha, t, between, p, rows):
    """log_alpha_t(y) += log sum_i exp(log_alpha_{t-1}(i) + between_p(i, y))."""
    top, total, shift, gap, value = rows.top, rows.total, rows.step, rows.gap, rows.value
    n_labels = len(top)
    for y in range(n_labels):
        top[y] = -np.inf
        total[y] = 0.0
    for i in range(n_labels):
        before = log_alpha[t - 1, i]
        if before == -np.inf:
            continue
        for y in range(n_labels):
            term = before + between[p, i, y]
            top[y] = term if term > top[y] else top[y]
    for y in range(n_labels):
        shift[y] = top[y] if top[y] > -np.inf else 0.0
    for i in range(n_labels):
        before = log_alpha[t - 1, i]
        if before == -np.inf:
            continue
        for y in range(n_labels):
            below = before + between[p, i, y] - shift[y]
            gap[y] = LOWEST if below < LOWEST else below  # so that a NaN stays one
        exponentiate(gap, 0.0, rows.power, rows.scale, value)
        for y in range(n_labels):
            total[y] += value[y]
    for y in range(n_labels):
        if top[y] > -np.inf or np.isnan(total[y]):
            log_alpha[t, y] += top[y] + np.log(total[y])
        else:
            log_alpha[t, y] = -np.inf


@kernel
def forward(here, between, which, log_alpha, rows):
    """log Z of the sequence, -inf when no labelling is possible; fills log_alpha [L, Y] until then.

    log Z is the sum of the shifts and of the last row, see `log_step`. Cost: Y^2 exponentials a position.
    """
    log_z = 0.0
    for t in range(len(here)):
        shift = log_step(here, t, between, which[t], log_alpha, rows)
        if shift == -np.inf:
            return shift
        log_z += shift
    return log_z + log_sum(log_alpha[len(here) - 1])


@kernel
def log_step_back(here, t, between, p, log_alpha, log_beta, conditional, rows):
    """log_beta goes from position t to t - 1 and conditional(i, y) becomes p(y_t = y | y_{t-1} = i).

    log_beta_{t-1}(i) = log sum_y exp(between_p(i, y) + here_t(y) + log_beta_t(y)), and the conditional probabilities
    are the shares of the terms. A label i that cannot be reached, with log_alpha_{t-1} -inf, is left out: its log_beta
    is -inf and its conditional probabilities are 0. Returns how far log_beta was shifted to have the largest value 0.
    Cost: Y^2 exponentials.
    """
    step, gap, value, n_labels = rows.step, rows.gap, rows.value, len(log_beta)
    for y in range(n_labels):
        step[y] = here[t, y] + log_beta[y]
    for i in range(n_labels):
        top = -np.inf
        if log_alpha[t - 1, i] > -np.inf:
            for y in range(n_labels):
                gap[y] = between[p, i, y] + step[y]
            top = extremes(gap, rows.high, rows.low)[0]
        if top == -np.inf:
            log_beta[i] = top
            for y in range(n_labels):
                conditional[i, y] = 0.0
            continue
        for y in range(n_labels):
            below = gap[y] - top
            gap[y] = LOWEST if below < LOWEST else below  # so that a NaN stays one
        exponentiate(gap, 0.0, rows.power, rows.scale, value)
        total = 0.0
        for y in range(n_labels):
            total += value[y]
        share = 1.0 / total
        for y in range(n_labels):
            conditional[i, y] = 0.0 if gap[y] <= LOWEST else share * value[y]
        log_beta[i] = top + np.log(total)
    shift = log_beta.max()
    for i in range(n_labels):
        log_beta[i] -= shift
    return shift


@kernel
def position_marginals(log_alpha, t, log_beta, gamma, rows):
    """gamma_t(y) = exp(log_alpha_t(y) + log_beta_t(y)), normalised by itself."""
    terms = rows.step
    for y in range(len(terms)):
        terms[y] = log_alpha[t, y] + log_beta[y]
    total = log_sum(terms)
    for y in range(len(terms)):
        gamma[t, y] = np.exp(terms[y] - total)


@kernel
def backward(here, between, which, log_alpha, gamma, pairs, counts, rows):
    """Marginals gamma [L, Y] after `forward`; unless they are empty, those of pairs and the expected counts of pairs.

    p(y_{t-1} = i, y_t = y) = gamma_{t-1}(i) p(y_t = y | y_{t-1} = i) goes into pairs [L, Y, Y], zero in row 0, and is
    added to counts [P, Y, Y] at the matrix of the position. Cost: Y^2 exponentials a position.
    """
    n_labels = here.shape[1]
    log_beta, conditional = np.zeros(n_labels), np.empty((n_labels, n_labels))
    position_marginals(log_alpha, len(here) - 1, log_beta, gamma, rows)
    for t in range(len(here) - 1, 0, -1):
        log_step_back(here, t, between, which[t], log_alpha, log_beta, conditional, rows)
        position_marginals(log_alpha, t - 1, log_beta, gamma, rows)
        if len(pairs):
            for i in range(n_labels):
                for y in range(n_labels):
                    pairs[t, i, y] = gamma[t - 1, i] * conditional[i, y]
        if len(counts):
            for i in range(n_labels):
                for y in range(n_labels):
                    counts[which[t], i, y] += gamma[t - 1, i] * conditional[i, y]
    if len(pairs):
        for i in range(n_labels):
            for y in range(n_labels):
                pairs[0, i, y] = 0.0


@kernel
def sequence_entropy(here, between, which, log_alpha, rows):
    """H(y) in nats, after `forward`.

    By the chain rule H(y_0) + sum_t sum_i gamma_{t-1}(i) H(y_t | y_{t-1} = i): no term is negative, so nothing
    cancels. Cost: Y^2 exponentials and logarithms a position.
    """
    n_labels = here.shape[1]
    log_beta, conditional, gamma = np.zeros(n_labels), np.empty((n_labels, n_labels)), np.empty((1, n_labels))
    entropy = 0.0
    for t in range(len(here) - 1, -1, -1):
        position_marginals(log_alpha[t : t + 1], 0, log_beta, gamma, rows)
        if t < len(here) - 1:
            for i in range(n_labels):
                if gamma[0, i] > 0.0:
                    entropy += gamma[0, i] * _row_entropy(conditional[i])
        if t > 0:
            log_step_back(here, t, between, which[t], log_alpha, log_beta, conditional, rows)
    return entropy + _row_entropy(gamma[0])


@kernel
def _row_entropy(probabilities):
    entropy = 0.0
    for p in probabilities:
        if p > 0.0:
            entropy -= p * np.log(p)
    return entropy


@kernel
def viterbi(here, between, which, best, labels):
    """The score of the best labelling, -inf when none is possible; fills labels [L] unless it is.

    best_t(y) = here_t(y) + max_i {best_{t-1}(i) + between_t(i, y)} in best [L, Y]; which i it was is asked again on
    the way back, for one label a position and not for all. Among equals the smallest label wins, from the end.
    Cost: Y^2 a position.
    """
    length, n_labels = here.shape
    for y in range(n_labels):
        best[0, y] = here[0, y]
    for t in range(1, length):
        p = which[t]
        for y in range(n_labels):
            best[t, y] = -np.inf
        for i in range(n_labels):
            before = best[t - 1, i]
            if before == -np.inf:
                continue
            for y in range(n_labels):
                term = before + between[p, i, y]
                best[t, y] = term if term > best[t, y] else best[t, y]
        for y in range(n_labels):
            best[t, y] += here[t, y]
    label = np.argmax(best[length - 1, :n_labels])
    score = best[length - 1, label]
    if not score > -np.inf:
        return score
    labels[length - 1] = label
    for t in range(length - 1, 0, -1):
        p, top, previous = which[t], -np.inf, 0
        for i in range(n_labels):
            term = best[t - 1, i] + between[p, i, label]
            if term > top:
                top, previous = term, i
        label = previous
        labels[t - 1] = label
    return score


class NBestRows(NamedTuple):
    """Scratch memory of the n best labellings of a sequence."""

    best: np.ndarray  # [2, Y, n + 1], of a position and of the one before; a last column of -inf ends each list
    back: np.ndarray  # int64 [L, Y, n], the label and the rank before as label * n + rank
    head: np.ndarray  # [Y]
    rank: np.ndarray  # int64 [Y]


@kernel
def make_nbest_rows(length, n_labels, n_best):
    return NBestRows(
        np.empty((2, n_labels, n_best + 1)), np.empty((length, n_labels, n_best), np.int64), np.empty(n_labels),
        np.empty(n_labels, np.int64),
    )  # fmt: skip


@kernel
def best_labellings(here, between, which, rows, scores, labels):
    """How many of the n best labellings there are; fills scores [n] and labels [n, L] of these, best first.

    Viterbi with the n best ways into each label instead of the best one: best_t(y, r) is the score of the r-th best
    labelling up to t that ends in y. The lists of all labels before are sorted, so the next best way in is at the
    head of one of them; among equals the smallest label wins. Cost: n Y^2 a position.
    """
    length, n_labels = here.shape
    n_best, back, head, rank = len(scores), rows.back, rows.head, rows.rank
    best, following = rows.best[0], rows.best[1]
    for t in range(length):
        following[:] = -np.inf
        if t == 0:
            for y in range(n_labels):
                following[y, 0] = here[0, y]
        else:
            p = which[t]
            for y in range(n_labels):
                if here[t, y] == -np.inf:
                    continue
                for i in range(n_labels):
                    head[i], rank[i] = best[i, 0] + between[p, i, y], 0
                for r in range(n_best):
                    i = np.argmax(head)
                    if head[i] == -np.inf:
                        break
                    following[y, r] = head[i] + here[t, y]
                    back[t, y, r] = i * n_best + rank[i]
                    rank[i] += 1
                    head[i] = best[i, rank[i]] + between[p, i, y]
        best, following = following, best
    rank[:] = 0
    for r in range(n_best):
        y = -1
        for i in range(n_labels):
            if best[i, rank[i]] > (best[y, rank[y]] if y >= 0 else -np.inf):
                y = i
        if y < 0:
            return r
        scores[r] = best[y, rank[y]]
        label, place = y, rank[y]
        for t in range(length - 1, -1, -1):
            labels[r, t] = label
            if t > 0:
                label, place = divmod(back[t, label, place], n_best)
        rank[y] += 1
    return n_best


@kernel
def draw_labelling(between, which, log_alpha, uniform, weights, labels):
    """A labelling by its probability, after `forward`, from numbers uniform in [0, 1), one for each position.

    p(y_{t-1} = i | y_t = y) is proportional to exp(log_alpha_{t-1}(i) + between_t(i, y)), the last label's probability
    to exp(log_alpha). `weights` [Y] is scratch memory. Cost: Y exponentials a position.
    """
    n_labels, label = len(weights), 0
    for t in range(len(labels) - 1, -1, -1):
        for y in range(n_labels):
            weights[y] = log_alpha[t, y]
            if t < len(labels) - 1:
                weights[y] += between[which[t + 1], y, label]
        top, total = weights.max(), 0.0
        for y in range(n_labels):
            weights[y] = np.exp(weights[y] - top)
            total += weights[y]
        threshold, reached = uniform[t] * total, 0.0
        for y in range(n_labels):  # by rounding the sum may end below the threshold: then it is the last possible label
            if weights[y] > 0.0 and reached <= threshold:
                label = y
            reached += weights[y]
        labels[t] = label
