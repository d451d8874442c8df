"""A linear chain with weights for triples of labels, by enumeration of every label sequence.

Beside those of `reference.chain`, tau[o, y'', y', y] counts at each position from the third on, for each observation
there. `tau` is a dict; a missing key is zero.
"""

import math

import numpy as np
from reference import chain


def triples(sequence, labels):
    """The keys of tau that fire, with repetitions."""
    return [
        (o, labels[t - 2], labels[t - 1], labels[t]) for t in range(2, len(sequence)) for o in sequence[t] if o >= 0
    ]


def score(sequence, labels, weights, tau):
    return math.fsum(
        [chain.score(sequence, labels, weights), *(tau.get(key, 0.0) for key in triples(sequence, labels))]
    )


def log_partition(sequence, n_labels, weights, tau, allowed=None):
    """Over the labellings for which `allowed` holds."""
    every = [y for y in chain.labellings(len(sequence), n_labels) if allowed is None or allowed(y)]
    return chain.log_sum_exp([score(sequence, y, weights, tau) for y in every])


def distribution(sequence, n_labels, weights, tau, allowed=None):
    every = [y for y in chain.labellings(len(sequence), n_labels) if allowed is None or allowed(y)]
    scores = [score(sequence, y, weights, tau) for y in every]
    log_z = chain.log_sum_exp(scores)
    return [(y, math.exp(s - log_z)) for y, s in zip(every, scores, strict=True)]


def marginals(sequence, n_labels, weights, tau, allowed=None):
    table = np.zeros((len(sequence), n_labels))
    for labels, probability in distribution(sequence, n_labels, weights, tau, allowed):
        for t, y in enumerate(labels):
            table[t, y] += probability
    return table


def ranked(sequence, n_labels, weights, tau, allowed=None):
    """Scores of all labellings, the best first."""
    every = [y for y in chain.labellings(len(sequence), n_labels) if allowed is None or allowed(y)]
    return sorted((score(sequence, y, weights, tau) for y in every), reverse=True)


def loss(problem, weights, tau):
    return math.fsum(
        w * (log_partition(x, problem.n_labels, weights, tau) - score(x, y, weights, tau))
        for x, y, w in zip(problem.sequences, problem.labels, problem.weights, strict=True)
    )


def gradient(problem, weights, tau):
    """Expected minus observed counts as a dict over keys ("mu", …), ("start", …), ("lam", …) and ("tau", …)."""
    found = {}

    def add(key, value):
        found[key] = found.get(key, 0.0) + value

    for x, y, w in zip(problem.sequences, problem.labels, problem.weights, strict=True):
        every = [*distribution(x, problem.n_labels, weights, tau), (tuple(y), -1.0)]
        for labels, probability in every:
            for key in chain.features(x, labels):
                add(key, w * probability)
            for key in triples(x, labels):
                add(("tau", *key), w * probability)
    return found


def seen(problem):
    return {key for x, y in zip(problem.sequences, problem.labels, strict=True) for key in triples(x, y)}
