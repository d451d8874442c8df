"""Sequence AdaBoost the obvious way: every wrong labelling is looked at, and bounds are added up term by term.

A feature is a key of `chain.features`; u is how much more often a labelling has it than the right one.
"""

import math
from collections import Counter

from reference import chain


def wrong_labellings(sequence, right, n_labels, weights, allowed=None):
    """(labels, F(y) - F(y*)) of every labelling but the right one"""
    right = tuple(right)
    lead = chain.score(sequence, right, weights)
    return [
        (y, chain.score(sequence, y, weights) - lead)
        for y in chain.labellings(len(sequence), n_labels)
        if y != right and (allowed is None or allowed(y))
    ]


def log_odds(problem, weights, pi=1.0, allowed=None):
    """log R = log sum_i w_i pi^T_i sum_{y wrong} e^(F(y) - F(y*)); -inf where nothing is wrong"""
    terms = [
        math.log(w) + len(x) * math.log(pi) + lead
        for x, right, w in zip(problem.sequences, problem.labels, problem.weights, strict=True)
        if w
        for _, lead in wrong_labellings(x, right, problem.n_labels, weights, allowed)
    ]
    return chain.log_sum_exp(terms) if terms else -math.inf


def differences(problem, weights, feature, pi=1.0, allowed=None):
    """For each sequence of a weight [(D(i, y), u(y))] over its wrong labellings; D sums to 1 over all"""
    total, rows = log_odds(problem, weights, pi, allowed), []
    for x, right, w in zip(problem.sequences, problem.labels, problem.weights, strict=True):
        if not w:
            continue
        own = Counter(chain.features(x, right))[feature]
        rows.append([
            (math.exp(math.log(w) + len(x) * math.log(pi) + lead - total), Counter(chain.features(x, y))[feature] - own)
            for y, lead in wrong_labellings(x, right, problem.n_labels, weights, allowed)
        ])  # fmt: skip
    return rows


def ranges(problem, feature):
    """(L_i, U_i) of each sequence with a weight: from no count at all to the largest of any labelling"""
    found = []
    for x, right, w in zip(problem.sequences, problem.labels, problem.weights, strict=True):
        if w:
            own = Counter(chain.features(x, right))[feature]
            most = max(Counter(chain.features(x, y))[feature] for y in chain.labellings(len(x), problem.n_labels))
            found.append((-own, most - own))
    return found


def exact(rows, step):
    """Z, LABELSEQ 3.25"""
    return math.fsum(p * math.exp(step * u) for row in rows for p, u in row)


def chord(rows, limits, step):
    """The sum of D(i, y) times the chord of the exponential between L and U, each row by limits of its own (3.35)"""
    terms = []
    for row, (low, high) in zip(rows, limits, strict=True):
        for p, u in row:
            if high == low:
                terms.append(p * math.exp(step * low))
                continue
            share = (high - u) / (high - low)
            terms.append(p * (share * math.exp(step * low) + (1 - share) * math.exp(step * high)))
    return math.fsum(terms)


def tight(rows, limits, step):
    return chord(rows, limits, step)


def loose(rows, limits, step):
    """One interval for all rows (3.26), which holds 0: sequences without the feature have u = 0"""
    low, high = min(0, *(low for low, _ in limits)), max(0, *(high for _, high in limits))
    return chord(rows, [(low, high)] * len(rows), step)


def smoothed(bound, epsilon):
    """A bound with two more labellings of weight epsilon, one with the feature once more, one once less"""
    return lambda step: bound(step) + epsilon * (math.exp(step) + math.exp(-step))


def smallest(function, low=-30.0, high=30.0, turns=200):
    """(where, how much) of a convex function, by golden section"""
    ratio = (math.sqrt(5) - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    at_a, at_b = function(a), function(b)
    for _ in range(turns):
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - ratio * (high - low)
            at_a = function(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + ratio * (high - low)
            at_b = function(b)
    return (a, at_a) if at_a <= at_b else (b, at_b)


def loose_step(rows, limits, epsilon):
    """(3.37)"""
    low, high = min(0, *(low for low, _ in limits)), max(0, *(high for _, high in limits))
    mean = math.fsum(p * u for row in rows for p, u in row)
    s = (high - mean) / (high - low)
    return math.log((epsilon - low * s) / (epsilon + high * (1 - s))) / (high - low)
