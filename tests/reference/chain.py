"""Linear-chain CRF by enumeration of every label sequence: slow, obvious, and free of recurrences.

A sequence is a list of positions, a position a list of observation ids (-1 = none), a label an int
below `n_labels`.  Weights are dicts; a missing key is zero.  The score of labels y is

    sum_t sum_columns  mu[o, y_t]  +  (t == 0: start[o, y_t]  |  t > 0: lam[o, y_{t-1}, y_t])

Sums are exact (`math.fsum`), so the oracle holds at |theta| = 700.
"""

import itertools
import math
from collections import defaultdict
from typing import NamedTuple

import numpy as np


class Weights(NamedTuple):
    mu: dict  # (o, y) -> float
    start: dict  # (o, y) -> float, position 0 only
    lam: dict  # (o, y_prev, y) -> float, positions after 0


def labellings(length, n_labels):
    return list(itertools.product(range(n_labels), repeat=length))


def features(sequence, labels):
    """Feature keys that fire, with repetitions: ("mu", o, y), ("start", o, y) or ("lam", o, y_prev, y)."""
    fired = []
    for t, position in enumerate(sequence):
        for o in position:
            if o < 0:
                continue
            fired.append(("mu", o, labels[t]))
            if t == 0:
                fired.append(("start", o, labels[0]))
            else:
                fired.append(("lam", o, labels[t - 1], labels[t]))
    return fired


def weight_of(weights, feature):
    return getattr(weights, feature[0]).get(feature[1:], 0.0)


def score(sequence, labels, weights):
    return math.fsum(weight_of(weights, feature) for feature in features(sequence, labels))


def log_sum_exp(values):
    top = max(values)
    return top + math.log(math.fsum(math.exp(value - top) for value in values))


def log_partition(sequence, n_labels, weights):
    return log_sum_exp([score(sequence, y, weights) for y in labellings(len(sequence), n_labels)])


def distribution(sequence, n_labels, weights):
    """Every labelling with its probability."""
    scored = [(y, score(sequence, y, weights)) for y in labellings(len(sequence), n_labels)]
    log_z = log_sum_exp([s for _, s in scored])
    return [(y, math.exp(s - log_z)) for y, s in scored]


def log_probability(sequence, labels, n_labels, weights):
    return score(sequence, labels, weights) - log_partition(sequence, n_labels, weights)


def marginals(sequence, n_labels, weights):
    """[T][Y] p(y_t = y | x)"""
    table = np.zeros((len(sequence), n_labels))
    for labels, probability in distribution(sequence, n_labels, weights):
        for t, y in enumerate(labels):
            table[t, y] += probability
    return table


def pairwise_marginals(sequence, n_labels, weights):
    """[T-1][Y][Y] p(y_t = y', y_{t+1} = y | x)"""
    table = np.zeros((max(len(sequence) - 1, 0), n_labels, n_labels))
    for labels, probability in distribution(sequence, n_labels, weights):
        for t in range(1, len(labels)):
            table[t - 1, labels[t - 1], labels[t]] += probability
    return table


def best_labellings(sequence, n_labels, weights, tie=1e-9):
    """All labellings whose score is the maximum up to `tie` (relative to its size), and the maximum."""
    scored = [(y, score(sequence, y, weights)) for y in labellings(len(sequence), n_labels)]
    top = max(s for _, s in scored)
    return {y for y, s in scored if s >= top - tie * max(1.0, abs(top))}, top


def loss(sequences, labels, n_labels, weights, sequence_weights):
    """-sum_n w_n log p(y^n | x^n)"""
    return math.fsum(
        -w * log_probability(x, y, n_labels, weights)
        for x, y, w in zip(sequences, labels, sequence_weights, strict=True)
    )


def gradient(sequences, labels, n_labels, weights, sequence_weights):
    """Expected minus observed counts, as a dict over the features that can fire."""
    terms = defaultdict(list)
    for x, y, w in zip(sequences, labels, sequence_weights, strict=True):
        for labelling, probability in distribution(x, n_labels, weights):
            for feature in features(x, labelling):
                terms[feature].append(w * probability)
        for feature in features(x, y):
            terms[feature].append(-w)
    return {feature: math.fsum(values) for feature, values in terms.items()}


def seen_features(sequences, labels):
    """Every feature that fires on the given labellings."""
    return {feature for x, y in zip(sequences, labels, strict=True) for feature in features(x, y)}


def log_forward(sequence, n_labels, weights):
    """log Z by the forward recurrence in the log domain; for sequences too long to enumerate."""

    def total(position, key, *labels):
        return sum(getattr(weights, key).get((o, *labels), 0.0) for o in position if o >= 0)

    log_alpha = np.array(
        [total(sequence[0], "mu", y) + total(sequence[0], "start", y) for y in range(n_labels)], dtype=float
    )
    cache = {}
    for position in sequence[1:]:
        key = tuple(position)
        if key not in cache:
            cache[key] = np.array(
                [[total(key, "lam", p, y) + total(key, "mu", y) for y in range(n_labels)] for p in range(n_labels)]
            )
        step = log_alpha[:, None] + cache[key]
        top = step.max(axis=0)
        log_alpha = top + np.log(np.exp(step - top).sum(axis=0))
    top = log_alpha.max()
    return top + math.log(np.exp(log_alpha - top).sum())
