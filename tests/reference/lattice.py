"""A lattice by enumeration of every label sequence: slow, obvious, and free of recurrences.

One sequence: `here` is a list of positions, each a list of scores by label; `steps` a list of matrices of the same
length, the matrix steps[t][y'][y] leading into t (the first is not looked at). `allowed` is None or a list of sets
of labels, `rules` None or (start, pair, end) of booleans. Sums are exact (`math.fsum`), so it holds at scores of 700.
"""

import itertools
import math

import numpy as np


def score(here, steps, labels):
    """-inf where any part is; `math.fsum` takes no infinities of both signs, and there is no other sign here."""
    parts = [here[t][y] for t, y in enumerate(labels)]
    parts += [steps[t][labels[t - 1]][labels[t]] for t in range(1, len(labels))]
    return -math.inf if -math.inf in parts else math.fsum(parts)


def permitted(labels, allowed, rules):
    if allowed is not None and any(y not in a for y, a in zip(labels, allowed, strict=True)):
        return False
    if rules is None:
        return True
    start, pair, end = rules
    inner = all(pair[before][after] for before, after in zip(labels, labels[1:], strict=False))
    return bool(start[labels[0]]) and bool(end[labels[-1]]) and inner


def labellings(here, steps, allowed=None, rules=None):
    """(labels, score) of every labelling that is possible and allowed, best first; ties by the labels from the end."""
    every = itertools.product(range(len(here[0])), repeat=len(here))
    scored = [(y, score(here, steps, y)) for y in every if permitted(y, allowed, rules)]
    return sorted((row for row in scored if row[1] > -math.inf), key=lambda row: (-row[1], row[0][::-1]))


def log_partition(here, steps, allowed=None, rules=None):
    """-inf if nothing is possible."""
    scores = [s for _, s in labellings(here, steps, allowed, rules)]
    if not scores:
        return -math.inf
    return scores[0] + math.log(math.fsum(math.exp(s - scores[0]) for s in scores))


def distribution(here, steps, allowed=None, rules=None):
    """{labels: probability} of the possible labellings."""
    log_z = log_partition(here, steps, allowed, rules)
    return {y: math.exp(s - log_z) for y, s in labellings(here, steps, allowed, rules)}


def marginals(here, steps, allowed=None, rules=None):
    """[T, Y] and [T, Y, Y], the latter zero at the first position."""
    n_labels = len(here[0])
    single, pairs = np.zeros((len(here), n_labels)), np.zeros((len(here), n_labels, n_labels))
    for y, p in distribution(here, steps, allowed, rules).items():
        for t in range(len(y)):
            single[t, y[t]] += p
            if t:
                pairs[t, y[t - 1], y[t]] += p
    return single, pairs


def entropy(here, steps, allowed=None, rules=None):
    """In nats; log p is taken from scores, since a probability may be too small for a float."""
    log_z = log_partition(here, steps, allowed, rules)
    return math.fsum(math.exp(s - log_z) * (log_z - s) for _, s in labellings(here, steps, allowed, rules))


# ---- for sequences that are too long to enumerate


def forward_backward(here, steps):
    """(log Z, marginals [T, Y], entropy) by the textbook recurrences in the log domain, unshifted."""

    def log_sum(table, axis):
        top = table.max(axis=axis)
        return top + np.log(np.exp(table - np.expand_dims(top, axis)).sum(axis=axis))

    here, length = np.asarray(here), len(here)
    log_alpha, log_beta = np.array(here, float), np.zeros(here.shape)
    for t in range(1, length):
        log_alpha[t] += log_sum(log_alpha[t - 1][:, None] + steps[t], 0)
    for t in range(length - 1, 0, -1):
        log_beta[t - 1] = log_sum(steps[t] + here[t] + log_beta[t], 1)
    log_z = float(log_sum(log_alpha[-1], 0))
    log_gamma = log_alpha + log_beta - log_z
    gamma = np.exp(log_gamma)
    total = -float((gamma[0] * log_gamma[0]).sum())
    for t in range(1, length):
        log_p = steps[t] + here[t] + log_beta[t] - log_beta[t - 1][:, None]
        total -= float((gamma[t - 1][:, None] * np.exp(log_p) * log_p).sum())
    return log_z, gamma, total


def viterbi(here, steps):
    """The best labels by the textbook recurrence with back pointers; among equals the smallest, from the end."""
    best, back = np.array(here[0], float), []
    for t in range(1, len(here)):
        table = best[:, None] + steps[t]
        back.append(table.argmax(axis=0))
        best = table.max(axis=0) + here[t]
    labels = [int(best.argmax())]
    for pointers in reversed(back):
        labels.append(int(pointers[labels[-1]]))
    return labels[::-1], float(best.max())
