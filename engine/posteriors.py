"""Forward-backward over the sequences of a data set, on the pool of threads."""

import numpy as np

from engine import threads
from engine.data import Dataset
from engine.forward_backward import log_backward, log_forward, log_partitions, store_posteriors
from engine.index import PairSets
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
    sequences = np.arange(len(dataset.weights)) if sequences is None else sequences.astype(np.int64)
    log_z = np.empty(len(sequences))

    def piece(run):
        chosen = slice(*run)
        log_partitions(theta, layout, dataset.observations, dataset.offsets, sets, factors, sequences[chosen],
                       log_z[chosen])  # fmt: skip

    threads.run(piece, balanced(np.diff(dataset.offsets)[sequences]))
    for i in np.flatnonzero(np.isnan(log_z)):
        lo, hi = dataset.offsets[sequences[i]], dataset.offsets[sequences[i] + 1]
        score, log_alpha = np.empty((2, hi - lo, layout.n_labels))
        log_z[i] = log_forward(theta, layout, dataset.observations, sets, lo, hi, score, log_alpha)
    return log_z


def posterior_rows(dataset: Dataset, layout: Layout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Room for alpha, v and gamma. Fresh memory costs as much as filling it, so a solver keeps it."""
    shape = (len(dataset.labels), layout.n_labels)
    return np.empty(shape), np.empty(shape), np.empty(shape)


def posteriors(
    theta: np.ndarray, dataset: Dataset, layout: Layout, sets: PairSets, factors: Factors, rows, gradient=NO_GRADIENT
):
    """alpha, w * v, w * gamma [T, Y], written into `rows`, and log Z [N].

    Sequences with extreme scores are done by logarithms, one after the other; their
    alpha and v are zero and their pairwise expectations go straight into `gradient`.
    """
    alpha, v, gamma = rows
    everyone, log_z = np.arange(len(dataset.weights)), np.empty(len(dataset.weights))

    def piece(run):
        store_posteriors(theta, layout, dataset.observations, dataset.offsets, dataset.weights, sets, factors,
                         everyone[slice(*run)], alpha, v, gamma, log_z)  # fmt: skip

    threads.run(piece, balanced(np.diff(dataset.offsets)))
    for n in np.flatnonzero(np.isnan(log_z)):
        lo, hi = dataset.offsets[n], dataset.offsets[n + 1]
        log_z[n] = by_logarithms(theta, dataset, layout, sets, n, alpha[lo:hi], v[lo:hi], gamma[lo:hi], gradient)
        alpha[lo:hi] = 0.0
    return alpha, v, gamma, log_z


def by_logarithms(theta, dataset: Dataset, layout: Layout, sets: PairSets, n: int, alpha, v, gamma, gradient) -> float:
    """log Z of sequence n with extreme scores; fills gamma, adds its pairwise expectations to `gradient`."""
    lo, hi = dataset.offsets[n], dataset.offsets[n + 1]
    log_z = log_forward(theta, layout, dataset.observations, sets, lo, hi, v, alpha)
    log_backward(theta, layout, sets, lo, hi, dataset.weights[n], alpha, v, gamma, gradient)
    return log_z
