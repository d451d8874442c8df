"""A hidden Markov model: counted from labelled sequences, then every labelling enumerated.

A sequence is a list of at least one position, a position a tuple of K observations (any hashable, None = nothing
there), a label an int below `n_labels`. A column is a stream of its own, and the streams are independent given the
label:

    P(x, y) = q(y_1|I)  prod_t prod_k P_k(x_tk|y_t)  prod_{t>1} q(y_t|y_{t-1})  q(F|y_T)

Sums are exact (`math.fsum`), and a probability of zero is a logarithm of -inf.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np


class Counts(NamedTuple):
    start: list  # [Y]
    pairs: list  # [Y][Y], from and to
    final: list  # [Y]
    columns: list  # [K] of {observation: [Y]}


class Model(NamedTuple):
    """Probabilities; a table that is written down by hand may hold zeros."""

    start: list  # [Y] q(y|I)
    transitions: list  # [Y][Y] q(y|y') at [y'][y]
    final: list  # [Y] q(F|y')
    emissions: list  # [K] of {observation: [Y]}
    unknown: list  # [K][Y], of any observation that the column's table does not have


# ---- training


def counts(sequences, labels, weights, n_labels, n_columns):
    """A sequence of weight w counts w times; at weight 0 its observations are known."""
    start, final = [0.0] * n_labels, [0.0] * n_labels
    pairs = [[0.0] * n_labels for _ in range(n_labels)]
    columns = [{} for _ in range(n_columns)]
    for x, y, w in zip(sequences, labels, weights, strict=True):
        start[y[0]] += w
        final[y[-1]] += w
        for before, after in itertools.pairwise(y):
            pairs[before][after] += w
        for position, label in zip(x, y, strict=True):
            for k, observation in enumerate(position):
                if observation is not None:
                    columns[k].setdefault(observation, [0.0] * n_labels)[label] += w
    return Counts(start, pairs, final, columns)


def share(count, total, outcomes, smoothing):
    """(count + s) / (total + s outcomes); where nothing was counted, and nothing is added, all are alike."""
    denominator = total + smoothing * outcomes
    return (count + smoothing) / denominator if denominator > 0 else 1 / outcomes


def estimate(counts, smoothing, rare):
    """Relative frequencies, each count raised by `smoothing`.

    Unknown observations are one symbol more of a column: it counts as often as observations do that occur fewer than
    rare + 1 times.
    """
    labels = range(len(counts.start))
    start = [share(counts.start[y], math.fsum(counts.start), len(labels), smoothing) for y in labels]
    left = [math.fsum(counts.pairs[y]) + counts.final[y] for y in labels]
    outcomes = len(labels) + 1  # the final state is one
    transitions = [[share(counts.pairs[a][b], left[a], outcomes, smoothing) for b in labels] for a in labels]
    final = [share(counts.final[y], left[y], outcomes, smoothing) for y in labels]
    emissions, unknown = [], []
    for column in counts.columns:
        r = [math.fsum(row[y] for row in column.values() if math.fsum(row) < rare + 1) for y in labels]
        n = [math.fsum(row[y] for row in column.values()) + r[y] for y in labels]
        symbols = len(column) + 1
        emissions.append({x: [share(row[y], n[y], symbols, smoothing) for y in labels] for x, row in column.items()})
        unknown.append([share(r[y], n[y], symbols, smoothing) for y in labels])
    return Model(start, transitions, final, emissions, unknown)


# ---- a sequence


def log(probability):
    return math.log(probability) if probability > 0 else -math.inf


def emission(model, k, observation, label):
    """P_k(x|y), and 1 where the column has nothing."""
    if observation is None:
        return 1.0
    return model.emissions[k].get(observation, model.unknown[k])[label]


def joint(model, sequence, labelling):
    """log P(x, y)"""
    factors = [model.start[labelling[0]], model.final[labelling[-1]]]
    factors += [model.transitions[before][after] for before, after in itertools.pairwise(labelling)]
    for position, y in zip(sequence, labelling, strict=True):
        factors += [emission(model, k, observation, y) for k, observation in enumerate(position)]
    return math.fsum(log(factor) for factor in factors)


def enumerate_all(model, sequence):
    """{labelling: log P(x, y)}"""
    every = itertools.product(range(len(model.start)), repeat=len(sequence))
    return {y: joint(model, sequence, y) for y in every}


def log_probability(model, sequence):
    """log P(x), -inf if no labelling is possible."""
    joints = list(enumerate_all(model, sequence).values())
    top = max(joints)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(value - top) for value in joints))


def best(model, sequence):
    """The most probable labelling; among equals the smallest label wins, from the end as in `lattice.labellings`."""
    joints = enumerate_all(model, sequence)
    return min(joints, key=lambda y: (-joints[y], y[::-1]))


def posterior(model, sequence):
    """{labelling: P(y|x)}; a sequence of probability zero has none."""
    log_p = log_probability(model, sequence)
    if log_p == -math.inf:
        raise ValueError("the model gives the sequence probability zero: no labelling has a posterior")
    return {y: math.exp(value - log_p) for y, value in enumerate_all(model, sequence).items()}


def marginals(model, sequence):
    """[T][Y] P(y_t = y | x)"""
    table = np.zeros((len(sequence), len(model.start)))
    for labelling, probability in posterior(model, sequence).items():
        for t, y in enumerate(labelling):
            table[t, y] += probability
    return table


def pair_marginals(model, sequence):
    """[T][Y][Y] P(y_{t-1} = y', y_t = y | x), zero at the first position; summed over t, expected transitions."""
    table = np.zeros((len(sequence), len(model.start), len(model.start)))
    for labelling, probability in posterior(model, sequence).items():
        for t in range(1, len(labelling)):
            table[t, labelling[t - 1], labelling[t]] += probability
    return table


# ---- a model written down by hand


def worked_example():
    """(model, sequence): three states, of which the first starts and only the third ends; FAMILIES.md, section 8."""
    model = Model(
        start=[1.0, 0.0, 0.0],
        transitions=[[0.2, 0.5, 0.3], [0.1, 0.2, 0.7], [0.0, 0.0, 0.4]],
        final=[0.0, 0.0, 0.6],
        emissions=[{"a": [0.0, 0.3, 0.8], "b": [0.3, 0.6, 0.2], "c": [0.7, 0.1, 0.0]}],
        unknown=[[0.0, 0.0, 0.0]],
    )
    return model, [("b",), ("c",), ("b",), ("a",)]
