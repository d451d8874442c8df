"""Marginal and exponential loss of a linear chain, by enumeration; gradients by central differences or by hand.

`allowed` tells for each position the set of labels that it may have, or None where nothing is known.
"""

import math
from collections import defaultdict

from reference import chain


def _every(sequence, n_labels, weights):
    """(labels, log-probability) of every labelling"""
    scored = [(y, chain.score(sequence, y, weights)) for y in chain.labellings(len(sequence), n_labels)]
    log_z = chain.log_sum_exp([s for _, s in scored])
    return [(y, s - log_z) for y, s in scored]


def marginal(sequences, labels, n_labels, weights, shares):
    """-sum_n sum_t c_t log p(y_t = y*_t | x^n); shares[n][t] = c_t, 0 or a label of None leaves a position out"""
    terms = []
    for x, gold, row in zip(sequences, labels, shares, strict=True):
        every = _every(x, n_labels, weights)
        for t, (y, c) in enumerate(zip(gold, row, strict=True)):
            if y is not None and c:
                terms.append(-c * chain.log_sum_exp([log_p for labelling, log_p in every if labelling[t] == y]))
    return math.fsum(terms)


def marginal_gradient(sequences, labels, n_labels, weights, shares):
    """sum_n sum_t c_t (E f - E [f | y_t = y*_t]), as a dict over features"""
    terms = defaultdict(list)
    for x, gold, row in zip(sequences, labels, shares, strict=True):
        every = _every(x, n_labels, weights)
        for t, (y, c) in enumerate(zip(gold, row, strict=True)):
            if y is None or not c:
                continue
            log_gamma = chain.log_sum_exp([log_p for labelling, log_p in every if labelling[t] == y])
            for labelling, log_p in every:
                given = math.exp(log_p - log_gamma) if labelling[t] == y else 0.0
                for feature in chain.features(x, labelling):
                    terms[feature].append(c * (math.exp(log_p) - given))
    return {feature: math.fsum(values) for feature, values in terms.items()}


def _log_odds_against(every, allowed):
    """log (e^l - 1) with l = -log of the probability of what is allowed: the odds of everything else"""
    fits = [all(a is None or y in a for y, a in zip(labels, allowed, strict=True)) for labels, _ in every]
    inside = chain.log_sum_exp([log_p for (_, log_p), one in zip(every, fits, strict=True) if one])
    outside = [log_p for (_, log_p), one in zip(every, fits, strict=True) if not one]
    return chain.log_sum_exp(outside) - inside if outside else -math.inf


def exponential(sequences, allowed, n_labels, weights, sequence_weights, pi=1.0):
    """log sum_n w_n pi^T_n (e^l_n - 1), straight from the odds, so that nothing cancels"""
    terms = [
        math.log(w) + len(x) * math.log(pi) + _log_odds_against(_every(x, n_labels, weights), a)
        for x, a, w in zip(sequences, allowed, sequence_weights, strict=True)
        if w
    ]
    return chain.log_sum_exp([term for term in terms if term > -math.inf])


def differences(value, weights, step=1e-5):
    """{feature: slope} of value(weights) by central differences, over the weights that are there"""
    slopes = {}
    for name in weights._fields:
        table = getattr(weights, name)
        for key, here in list(table.items()):
            table[key] = here + step
            up = value(weights)
            table[key] = here - step
            slopes[name, *key] = (up - value(weights)) / (2 * step)
            table[key] = here
    return slopes


def errors(sequences, labels, n_labels, weights, sequence_weights):
    """(sum_n w_n [best labelling is wrong], sum_n w_n share of positions whose likeliest label is wrong)

    A tie with the gold label counts as wrong, as in the bounds of the source.
    """
    whole, single = [], []
    for x, gold, w in zip(sequences, labels, sequence_weights, strict=True):
        every = dict(_every(x, n_labels, weights))
        best = max((log_p for y, log_p in every.items() if y != tuple(gold)), default=-math.inf)
        whole.append(w * (best >= every[tuple(gold)]))
        gamma = chain.marginals(x, n_labels, weights)
        wrong = [max((row[k] for k in range(n_labels) if k != y), default=-1.0) >= row[y]
                 for row, y in zip(gamma, gold, strict=True)]  # fmt: skip
        single.append(w * sum(wrong) / len(wrong))
    return math.fsum(whole), math.fsum(single)
