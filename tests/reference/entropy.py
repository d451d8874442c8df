"""Entropy of the labellings of a sequence and its gradient, by enumeration."""

import math
from collections import defaultdict

from reference import chain


def labellings(sequence, n_labels, weights):
    """(labels, score, log-probability) of every labelling"""
    scored = [(y, chain.score(sequence, y, weights)) for y in chain.labellings(len(sequence), n_labels)]
    log_z = chain.log_sum_exp([s for _, s in scored])
    return [(y, s, s - log_z) for y, s in scored]


def entropy(sequences, n_labels, weights, sequence_weights):
    """sum_n -w_n sum_y p log p"""
    return math.fsum(
        -w * math.exp(log_p) * log_p
        for x, w in zip(sequences, sequence_weights, strict=True)
        for _, _, log_p in labellings(x, n_labels, weights)
    )


def gradient(sequences, n_labels, weights, sequence_weights):
    """-sum_n w_n Cov(log p, f_k), as a dict over features; log p is the score up to a constant, and better scaled"""
    terms = defaultdict(list)
    for x, w in zip(sequences, sequence_weights, strict=True):
        rows = labellings(x, n_labels, weights)
        mean = math.fsum(math.exp(log_p) * log_p for _, _, log_p in rows)
        for y, _, log_p in rows:
            for feature in chain.features(x, y):
                terms[feature].append(-w * math.exp(log_p) * (log_p - mean))
    return {feature: math.fsum(values) for feature, values in terms.items()}
