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
from espalier.engine.runtime.threads import balanced


def normalise_locally(lattice: Lattice) -> Lattice:
    """The lattice whose scores of labellings are log p(y_1 | x) + sum_t log p(y_t | y_{t-1}, x); it changes in place.

    Cost: Y^2 exponentials a position.
    """
    threads.run(lambda piece: _normalise(lattice, *piece), balanced(np.diff(lattice.offsets)))
    return lattice


@kernel
def _normalise(lattice, lo, hi):
    """here_t(y) -= log Z_{t+1}(y), and log Z_1 at a first position; each reads the scores before they are changed."""
    here, between, which, offsets = lattice.here, lattice.between, lattice.which, lattice.offsets
    n_labels = here.shape[1]
    terms = np.empty(n_labels)
    for n in range(lo, hi):
        first = offsets[n]
        log_z = log_sum(here[first])
        for y in range(n_labels):
            here[first, y] -= log_z
        for t in range(first + 1, offsets[n + 1]):
            for i in range(n_labels):
                for y in range(n_labels):
                    terms[y] = here[t, y] + between[which[t], i, y]
                here[t - 1, i] -= log_sum(terms)
