"""A chain with a stop label by enumeration: weights of the last label with what is observed there (IIS 4.14)."""

import math

from reference import chain


def score(sequence, labels, weights, stop):
    """`stop` is a dict (o, y) -> float, of the last position only."""
    return math.fsum([chain.score(sequence, labels, weights), *(stop.get((o, labels[-1]), 0.0) for o in sequence[-1])])


def scored(sequence, n_labels, weights, stop):
    return [(y, score(sequence, y, weights, stop)) for y in chain.labellings(len(sequence), n_labels)]


def log_partition(sequence, n_labels, weights, stop):
    return chain.log_sum_exp([total for _, total in scored(sequence, n_labels, weights, stop)])


def best(sequence, n_labels, weights, stop):
    return max(scored(sequence, n_labels, weights, stop), key=lambda found: found[1])[0]


def marginals(sequence, n_labels, weights, stop):
    """p(y_t = y | x) as rows."""
    log_z = log_partition(sequence, n_labels, weights, stop)
    rows = [[0.0] * n_labels for _ in sequence]
    for labels, total in scored(sequence, n_labels, weights, stop):
        for t, y in enumerate(labels):
            rows[t][y] += math.exp(total - log_z)
    return rows


def loss(sequences, labels, n_labels, sequence_weights, weights, stop):
    terms = zip(sequences, labels, sequence_weights, strict=True)
    return math.fsum(
        w * (log_partition(x, n_labels, weights, stop) - score(x, y, weights, stop)) for x, y, w in terms
    )
