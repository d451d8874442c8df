"""Small random labelling problems as plain lists, for the oracles and for the code under test."""

from typing import NamedTuple

import numpy as np

UNIGRAM, BIGRAM, BOTH = 1, 2, 3  # what an observation carries: templates U, B and *


class Problem(NamedTuple):
    n_labels: int
    kinds: list  # [V] of UNIGRAM, BIGRAM, BOTH
    start: bool
    sequences: list  # of positions, each a list of observation ids (-1 = none)
    labels: list  # of label lists
    weights: list  # [N]

    @property
    def n_columns(self):
        return len(self.sequences[0][0])


def random_problem(seed, n_labels, n_observations, n_columns, lengths, start=True, none=0.2, kinds=None):
    """Labels lean on the observations, so that training has something to find."""
    rng = np.random.default_rng(seed)
    if kinds is None:
        kinds = rng.integers(1, 4, n_observations).tolist()
    sequences, labels = [], []
    for length in lengths:
        ids = rng.integers(0, n_observations, (length, n_columns))
        ids[rng.random(ids.shape) < none] = -1
        noise = rng.integers(0, n_labels, length)
        y = np.where(rng.random(length) < 0.7, ids[:, 0] % n_labels, noise)
        sequences.append(ids.tolist())
        labels.append(y.tolist())
    weights = rng.choice([0.0, 1.0, 2.5], len(lengths)).tolist()
    return Problem(n_labels, list(kinds), start, sequences, labels, weights)


def dense_features(problem):
    """Every weight the model can have, as keys of reference.chain.features."""
    Y, keys = range(problem.n_labels), set()
    for o, kind in enumerate(problem.kinds):
        if kind & UNIGRAM:
            keys |= {("mu", o, y) for y in Y}
        if kind & BIGRAM:
            keys |= {("lam", o, p, y) for p in Y for y in Y}
            if problem.start:
                keys |= {("start", o, y) for y in Y}
    return keys
