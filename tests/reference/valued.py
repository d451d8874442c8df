"""A linear-chain CRF whose observations have values, by enumeration.

A position is a list of (observation, value); a plain observation has the value 1. The score of labels y is

    sum_t sum_(o, v)  v mu[o, y_t]  +  (t == 0: start[o, y_t]  |  t > 0: lam[o, y_{t-1}, y_t])

where only observations of the value 1 have `start` and `lam`. `mu`, `start` and `lam` are dicts, as in
`reference.chain`; a missing key is zero.
"""

import itertools
import math
from collections import defaultdict

from reference.chain import log_sum_exp, weight_of


def amounts(sequence, labels):
    """(feature, amount) of all that fires."""
    for t, position in enumerate(sequence):
        for o, value in position:
            yield ("mu", o, labels[t]), value
            yield (("start", o, labels[0]) if t == 0 else ("lam", o, labels[t - 1], labels[t])), value


def score(sequence, labels, weights):
    return math.fsum(value * weight_of(weights, feature) for feature, value in amounts(sequence, labels))


def scored(sequence, n_labels, weights):
    every = itertools.product(range(n_labels), repeat=len(sequence))
    return [(labels, score(sequence, labels, weights)) for labels in every]


def log_partition(sequence, n_labels, weights):
    return log_sum_exp([total for _, total in scored(sequence, n_labels, weights)])


def loss_and_gradient(sequences, labels, n_labels, weights, sequence_weights):
    """(-sum_n w_n log p(y^n | x^n), expected minus observed amounts of each feature)."""
    loss, terms = [], defaultdict(list)
    for x, y, w in zip(sequences, labels, sequence_weights, strict=True):
        log_z = log_partition(x, n_labels, weights)
        loss.append(w * (log_z - score(x, y, weights)))
        for labelling, total in scored(x, n_labels, weights):
            for feature, value in amounts(x, labelling):
                terms[feature].append(w * math.exp(total - log_z) * value)
        for feature, value in amounts(x, y):
            terms[feature].append(-w * value)
    return math.fsum(loss), {feature: math.fsum(parts) for feature, parts in terms.items()}
