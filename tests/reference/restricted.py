"""Restricted labellings, partial labels, n best and token weights by enumeration.

`allowed` is a list of positions, each a set of labels (None = any); `rules` is None or
(start, pair, end) of booleans as nested lists.
"""

import math
from collections import defaultdict

import numpy as np
from reference import chain


def labellings(length, n_labels, allowed=None, rules=None):
    """Every labelling that is allowed."""
    return [y for y in chain.labellings(length, n_labels) if permitted(y, allowed, rules)]


def permitted(labels, allowed, rules):
    if allowed is not None and any(a is not None and y not in a for y, a in zip(labels, allowed, strict=True)):
        return False
    if rules is None:
        return True
    start, pair, end = rules
    return (
        bool(start[labels[0]])
        and bool(end[labels[-1]])
        and all(pair[p][y] for p, y in zip(labels, labels[1:], strict=False))
    )


def distribution(sequence, n_labels, weights, allowed=None, rules=None):
    """(labelling, score, probability among the allowed ones), best first, and log of the sum; [] if impossible."""
    scored = [(y, chain.score(sequence, y, weights)) for y in labellings(len(sequence), n_labels, allowed, rules)]
    if not scored:
        return [], -math.inf
    log_z = chain.log_sum_exp([s for _, s in scored])
    rows = [(y, s, math.exp(s - log_z)) for y, s in scored]
    return sorted(rows, key=lambda row: -row[1]), log_z


def marginals(sequence, n_labels, weights, allowed=None, rules=None):
    """[T, Y] and [T, Y, Y], the latter zero at the first position."""
    single = np.zeros((len(sequence), n_labels))
    pairs = np.zeros((len(sequence), n_labels, n_labels))
    for y, _, p in distribution(sequence, n_labels, weights, allowed, rules)[0]:
        for t in range(len(y)):
            single[t, y[t]] += p
            if t:
                pairs[t, y[t - 1], y[t]] += p
    return single, pairs


def partial_loss(sequences, allowed, n_labels, weights, sequence_weights):
    """-sum_n w_n log p(the labelling is allowed | x^n)"""
    return math.fsum(
        w * (chain.log_partition(x, n_labels, weights) - distribution(x, n_labels, weights, a)[1])
        for x, a, w in zip(sequences, allowed, sequence_weights, strict=True)
    )


def partial_gradient(sequences, allowed, n_labels, weights, sequence_weights):
    """Expected counts minus those among the allowed labellings, as a dict."""
    terms = defaultdict(list)
    for x, a, w in zip(sequences, allowed, sequence_weights, strict=True):
        for sign, which in ((w, None), (-w, a)):
            for y, _, p in distribution(x, n_labels, weights, which)[0]:
                for feature in chain.features(x, y):
                    terms[feature].append(sign * p)
    return {feature: math.fsum(values) for feature, values in terms.items()}


def token_weighted_loss(sequences, labels, n_labels, weights, sequence_weights, token_weights):
    """-sum_n w_n sum_t tau_t log p(y_t | y_1..y_{t-1}, x), each as a ratio of sums over continuations."""
    total = []
    for x, y, w, tau in zip(sequences, labels, sequence_weights, token_weights, strict=True):
        for t in range(len(x)):
            prefix = [distribution(x, n_labels, weights, [{k} for k in y[:m]] + [None] * (len(x) - m))[1]
                      for m in (t, t + 1)]  # fmt: skip
            total.append(w * tau[t] * (prefix[0] - prefix[1]))
    return math.fsum(total)


def token_weighted_gradient(sequences, labels, n_labels, weights, sequence_weights, token_weights):
    """The same with expected counts instead of logarithms of sums, as a dict."""
    terms = defaultdict(list)
    for x, y, w, tau in zip(sequences, labels, sequence_weights, token_weights, strict=True):
        for t in range(len(x)):
            for sign, m in ((w * tau[t], t), (-w * tau[t], t + 1)):
                fixed = [{k} for k in y[:m]] + [None] * (len(x) - m)
                for other, _, p in distribution(x, n_labels, weights, fixed)[0]:
                    for feature in chain.features(x, other):
                        terms[feature].append(sign * p)
    return {feature: math.fsum(values) for feature, values in terms.items()}
