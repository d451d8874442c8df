"""Lattices whose scores are log-probabilities of each label given the one before it: what makes a chain a MEMM.

With s_t(y', y) = here_t(y) + between_t(y', y), the local model is p(y | y', x_t) = exp(s_t(y', y)) / Z_t(y'). The log
of its product along a labelling is the sum of s_t minus that of log Z_t(y_{t-1}), which depends on the label before
alone, so it can be taken off the score of the position before. No matrix of pairs changes.
"""

import numpy as np

from espalier.engine.lattice.lattice import Lattice
from espalier.engine.lattice.recursions import log_sum
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.threads import PIECES, balanced

TINY = 1e-250  # sums of products below it are taken by logarithms instead


def normalise_locally(lattice: Lattice) -> Lattice:
    """The lattice whose scores of labellings are log p(y_1 | x) + sum_t log p(y_t | y_{t-1}, x); it changes in place.

    Cost: Y^2 multiplications a position, exponentials for each position and label and for each entry of a matrix.
    """
    between = lattice.between
    top, relative = np.empty(between.shape[:2]), np.empty(between.shape)
    threads.run(lambda piece: _exponentiate(between, *piece, top, relative), threads.ranges(len(between), PIECES))
    threads.run(lambda piece: _normalise(lattice, top, relative, *piece), balanced(np.diff(lattice.offsets)))
    return lattice


@kernel
def _exponentiate(between, lo, hi, top, relative):
    """top[p, i] = max_y between[p, i, y], relative = exp(between - top), of the matrices [lo, hi)."""
    for p in range(lo, hi):
        for i in range(between.shape[1]):
            largest = between[p, i, 0]
            for y in range(1, between.shape[2]):
                largest = max(largest, between[p, i, y])
            top[p, i] = largest
            for y in range(between.shape[2]):
                relative[p, i, y] = np.exp(between[p, i, y] - largest)


@kernel
def _normalise(lattice, top, relative, lo, hi):
    """here_t(y) -= log Z_{t+1}(y), and log Z_1 at a first position; each reads the scores before they are changed.

    log Z_t(i) = log sum_y exp(here_t(y) - max here_t) relative_p(i, y) + max here_t + top_p(i).
    """
    here, between, which, offsets = lattice.here, lattice.between, lattice.which, lattice.offsets
    n_labels = here.shape[1]
    terms, powers = np.empty(n_labels), np.empty(n_labels)
    for n in range(lo, hi):
        first = offsets[n]
        log_z = log_sum(here[first])
        for y in range(n_labels):
            here[first, y] -= log_z
        for t in range(first + 1, offsets[n + 1]):
            p, largest = which[t], here[t, 0]
            for y in range(1, n_labels):
                largest = max(largest, here[t, y])
            for y in range(n_labels):
                powers[y] = np.exp(here[t, y] - largest)
            for i in range(n_labels):
                total = 0.0
                for y in range(n_labels):
                    total += powers[y] * relative[p, i, y]
                if total > TINY:
                    here[t - 1, i] -= np.log(total) + largest + top[p, i]
                    continue
                for y in range(n_labels):
                    terms[y] = here[t, y] + between[p, i, y]
                here[t - 1, i] -= log_sum(terms)
