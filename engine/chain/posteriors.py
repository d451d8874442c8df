"""Forward-backward over the sequences of a data set, on the pool of threads."""

import numpy as np

from espalier.engine.chain.batches import Schedule, make_schedule
from espalier.engine.chain.column_groups import Composites, share
from espalier.engine.chain.forward_backward import backward_batch, forward_batch, make_rows
from espalier.engine.chain.logarithms import log_backward, log_forward
from espalier.engine.chain.pair_sets import PairSets
from espalier.engine.chain.scores import Factors, padded
from espalier.engine.data.dataset import Dataset
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.threads import PIECES, balanced
from espalier.engine.weights.layout import Layout
from espalier.engine.weights.nonzero import active_part

NO_GRADIENT = np.empty(0)


def in_lockstep(dataset: Dataset, layout: Layout, sets: PairSets, pieces: int = PIECES) -> Schedule:
    chunks = balanced(np.diff(dataset.offsets), pieces)
    return make_schedule(dataset.offsets, sets, chunks, padded(layout.n_labels))


def all_log_partitions(
    theta: np.ndarray, dataset: Dataset, layout: Layout, sets: PairSets, factors: Factors, schedule: Schedule,
    composites: Composites,
) -> np.ndarray:  # fmt: skip
    """log Z of all sequences; the forward recursion alone."""
    scored = active_part(theta, layout)
    log_z, shared = np.empty(len(dataset.weights)), share(*scored, composites)

    def piece(chunk):
        _log_partitions(*scored, dataset, sets, factors, shared, schedule, chunk, log_z)

    threads.run(piece, range(len(schedule.chunk_batches) - 1))
    for n in np.flatnonzero(np.isnan(log_z)):
        lo, hi = dataset.offsets[n], dataset.offsets[n + 1]
        score, log_alpha = np.empty((2, hi - lo, layout.n_labels))
        log_z[n] = log_forward(theta, layout, dataset, sets, lo, hi, score, log_alpha)
    return log_z


@kernel
def _log_partitions(theta, layout, data, sets, factors, shared, schedule, chunk, log_z):
    work = make_rows(schedule.longest, shared.table.shape[1], layout.n_labels, len(shared.columns))
    for b in range(schedule.chunk_batches[chunk], schedule.chunk_batches[chunk + 1]):
        forward_batch(theta, layout, data, sets, factors, shared, schedule, b, work, log_z)


def posterior_rows(dataset: Dataset, layout: Layout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Room for alpha, v and gamma [T, W]. Fresh memory costs as much as filling it, so a solver keeps it."""
    shape = (len(dataset.labels), padded(layout.n_labels))
    return np.empty(shape), np.empty(shape), np.empty(shape)


def posteriors(
    theta: np.ndarray, dataset: Dataset, layout: Layout, sets: PairSets, factors: Factors, schedule: Schedule,
    composites: Composites, rows, gradient=NO_GRADIENT,
):  # fmt: skip
    """alpha, w * v, w * gamma [T, W], written into `rows`, and log Z [N].

    Sequences with extreme scores are done by logarithms, one after the other; their
    alpha and v are zero and their pairwise expectations go straight into `gradient`.
    """
    alpha, v, gamma = rows
    scored = active_part(theta, layout)
    log_z, shared = np.empty(len(dataset.weights)), share(*scored, composites)

    def piece(chunk):
        _store(*scored, dataset, sets, factors, shared, schedule, chunk, alpha, v, gamma, log_z)

    threads.run(piece, range(len(schedule.chunk_batches) - 1))
    for n in np.flatnonzero(np.isnan(log_z)):
        lo, hi = dataset.offsets[n], dataset.offsets[n + 1]
        part = np.zeros((3, hi - lo, layout.n_labels))
        log_z[n] = by_logarithms(theta, dataset, layout, sets, n, *part, gradient)
        gamma[lo:hi, : layout.n_labels] = part[2]
        alpha[lo:hi] = v[lo:hi] = 0.0
    return alpha, v, gamma, log_z


@kernel
def _store(theta, layout, data, sets, factors, shared, schedule, chunk, alpha, v, gamma, log_z):
    work = make_rows(schedule.longest, shared.table.shape[1], layout.n_labels, len(shared.columns))
    sequences, row, offsets = schedule.sequences, schedule.row, data.offsets
    my_alpha, my_v, my_gamma, width = work.alpha, work.v, work.gamma, alpha.shape[1]
    for b in range(schedule.chunk_batches[chunk], schedule.chunk_batches[chunk + 1]):
        forward_batch(theta, layout, data, sets, factors, shared, schedule, b, work, log_z)
        backward_batch(offsets, data.weights, factors, schedule, b, work, log_z)
        for m in range(schedule.batch_sequences[b], schedule.batch_sequences[b + 1]):
            n = sequences[m]
            for t in range(offsets[n], offsets[n + 1]):
                r = row[t]
                for y in range(width):
                    alpha[t, y] = my_alpha[r, y]
                    v[t, y] = my_v[r, y]
                    gamma[t, y] = my_gamma[r, y]


def by_logarithms(theta, dataset: Dataset, layout: Layout, sets: PairSets, n: int, alpha, v, gamma, gradient) -> float:
    """log Z of sequence n with extreme scores; fills gamma, adds its pairwise expectations to `gradient`."""
    lo, hi = dataset.offsets[n], dataset.offsets[n + 1]
    log_z = log_forward(theta, layout, dataset, sets, lo, hi, v, alpha)
    log_backward(theta, layout, sets, lo, hi, dataset.weights[n], alpha, v, gamma, gradient)
    return log_z
