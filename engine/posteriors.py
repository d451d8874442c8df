"""Forward-backward over all sequences of a data set, on the pool of threads."""

import numpy as np

from engine import threads
from engine.data import Dataset
from engine.forward_backward import backward, forward, log_backward, log_forward, log_partitions
from engine.index import PairSets
from engine.jit import kernel
from engine.layout import Layout
from engine.scores import Factors

PIECES = 32  # of independent work, enough to balance any number of threads that we meet
NO_GRADIENT = np.empty(0)


def balanced(costs: np.ndarray, pieces: int = PIECES) -> list[tuple[int, int]]:
    """Runs of consecutive items whose costs are about equal."""
    if len(costs) == 0:
        return []
    total = np.cumsum(costs, dtype=np.float64)
    bounds = np.searchsorted(total, total[-1] * np.arange(1, pieces) / pieces)
    bounds = np.unique(np.concatenate([[0], bounds, [len(costs)]]))
    return [(int(a), int(b)) for a, b in zip(bounds, bounds[1:], strict=False)]


def all_log_partitions(
    theta: np.ndarray, dataset: Dataset, layout: Layout, sets: PairSets, factors: Factors, sequences=None
) -> np.ndarray:
    """log Z of the sequences (all by default); the forward recursion alone."""
    sequences = np.arange(len(dataset.weights)) if sequences is None else sequences
    out = np.empty(len(sequences))

    def piece(run):
        chosen = slice(*run)
        log_partitions(theta, layout, dataset.observations, dataset.offsets, sets, factors, sequences[chosen],
                       out[chosen])  # fmt: skip

    threads.run(piece, balanced(np.diff(dataset.offsets)[sequences]))
    return out


def posteriors(
    theta: np.ndarray, dataset: Dataset, layout: Layout, sets: PairSets, factors: Factors, gradient=NO_GRADIENT
):
    """alpha, w * v, w * gamma [T, Y] and log Z [N].

    Sequences with extreme scores are done by logarithms, one after the other; their
    alpha and v are zero and their pairwise expectations go straight into `gradient`.
    """
    shape = (len(dataset.labels), layout.n_labels)
    alpha, v, gamma = np.empty(shape), np.empty(shape), np.empty(shape)
    scale, log_z = np.empty(shape[0]), np.empty(len(dataset.weights))

    def piece(run):
        _posteriors(theta, layout, dataset.observations, dataset.offsets, dataset.weights, sets, factors, *run,
                    alpha, v, gamma, scale, log_z)  # fmt: skip

    threads.run(piece, balanced(np.diff(dataset.offsets)))
    for n in np.flatnonzero(np.isnan(log_z)):
        lo, hi = dataset.offsets[n], dataset.offsets[n + 1]
        log_z[n] = log_forward(theta, layout, dataset.observations, sets, lo, hi, 0, v, alpha)
        log_backward(theta, layout, dataset.observations, sets, lo, hi, dataset.weights[n], log_z[n], alpha, v,
                     gamma, gradient)  # fmt: skip
        alpha[lo:hi] = 0.0
    return alpha, v, gamma, log_z


@kernel
def _posteriors(
    theta, layout, observations, offsets, weights, sets, factors, lo, hi, alpha, v, gamma, scale, log_z
):
    for n in range(lo, hi):
        begin, end = offsets[n], offsets[n + 1]
        log_z[n] = forward(theta, layout, observations, sets, factors, begin, end, alpha, v, scale)
        if not np.isnan(log_z[n]):
            backward(sets, factors, begin, end, weights[n], alpha, v, scale, gamma)
