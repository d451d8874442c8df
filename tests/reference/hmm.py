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


# ---- training with what is not known


def agrees(labelling, known):
    """Whether a labelling agrees with what is known of each position: a label, a set of them, or None."""
    return all(k is None or y == k or (isinstance(k, set) and y in k) for y, k in zip(labelling, known, strict=True))


def allowed(model, sequence, known):
    """{labelling: log P(x, y)} of those that agree."""
    return {y: value for y, value in enumerate_all(model, sequence).items() if agrees(y, known)}


def log_sum(values):
    top = max(values)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(value - top) for value in values))


def expected_counts(model, sequences, known, weights, n_labels, n_columns):
    """(Counts that are expected given what is known, log-likelihood of that), labelling by labelling."""
    rows, labellings, parts, likelihood = [], [], [], []
    for x, k, w in zip(sequences, known, weights, strict=True):
        joints = allowed(model, x, k)
        total = log_sum(list(joints.values()))
        likelihood.append(w * total)
        for y, value in joints.items():
            rows.append(x)
            labellings.append(y)
            parts.append(w * math.exp(value - total))
    return counts(rows, labellings, parts, n_labels, n_columns), math.fsum(likelihood)


def likeliest_counts(model, sequences, known, weights, n_labels, n_columns):
    """(Counts of the likeliest labelling that agrees, their log-likelihood)."""
    found = [max(allowed(model, x, k).items(), key=lambda item: item[1]) for x, k in zip(sequences, known, strict=True)]
    total = math.fsum(w * value for w, (_, value) in zip(weights, found, strict=True))
    return counts(sequences, [y for y, _ in found], weights, n_labels, n_columns), total


def maximise(counts, own, smoothing, scarce):
    """The model that counts and a prior make likeliest.

    own[k] are the pairs (observation, label) with a probability of their own; the others of a label share theirs
    evenly. scarce[k][y] is counted for unknown observations.
    """
    bare = estimate(counts, smoothing, 0)
    emissions, unknown = [], []
    for k, column in enumerate(counts.columns):
        table, of_unknown = {x: [0.0] * len(counts.start) for x in column}, []
        for y in range(len(counts.start)):
            others = [x for x in column if (x, y) not in own[k]]
            shared = math.fsum(column[x][y] for x in others) / len(others) if others else 0.0
            total = math.fsum(row[y] for row in column.values()) + scarce[k][y] + smoothing * (len(column) + 1)
            for x, row in column.items():
                table[x][y] = ((row[y] if (x, y) in own[k] else shared) + smoothing) / total
            of_unknown.append((scarce[k][y] + smoothing) / total)
        emissions.append(table)
        unknown.append(of_unknown)
    return Model(bare.start, bare.transitions, bare.final, emissions, unknown)


def prior(model, smoothing, scarce):
    """The logarithm that a Dirichlet prior adds to the likelihood, but for what does not depend on the model."""
    every = [*model.start, *model.final, *(p for row in model.transitions for p in row)]
    every += [p for table in model.emissions for row in table.values() for p in row]
    every += [p for row in model.unknown for p in row]
    more = math.fsum(s * math.log(p) for row, many in zip(model.unknown, scarce, strict=True)
                     for p, s in zip(row, many, strict=True))  # fmt: skip
    return smoothing * math.fsum(math.log(p) for p in every) + more
