"""The Hessian of the log loss times a vector, without the Hessian: sum_n w_n Cov(v'f, f) under p(y | x^n).

v'f is an additive function of the labels, so this is the recursion of `engine.chain.covariance` with the scores by the
weights v as h_t and g_t; cost: three gathered gradients or so, and factors that are all dense.
"""

import numpy as np

from espalier.engine.chain.batches import make_schedule
from espalier.engine.chain.column_groups import share
from espalier.engine.chain.covariance import (
    ROOM,
    Edges,
    covariance_batch,
    leave_out,
    log_covariance,
    log_posteriors,
    make_mass_rows,
    recursions,
    store_batch,
)
from espalier.engine.chain.forward_backward import make_rows
from espalier.engine.chain.gather_gradient import gather, gather_also
from espalier.engine.chain.logarithms import log_forward
from espalier.engine.chain.scatter_gradient import add_unigrams
from espalier.engine.chain.scores import make_factors, padded, pair_scores, position_scores
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel

ROWS = 5  # arrays of rows that are kept: left, v, gamma, alpha, right


def hessian_product(objective, theta: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """The Hessian of a `ChainObjective` without terms at theta, times `direction`."""
    data, layout, sets = objective.dataset, objective.layout, objective.sets
    plain, width = data._replace(weights=np.ones(len(data.weights))), padded(layout.n_labels)
    schedule = make_schedule(data.offsets, sets, objective.chunks, ROOM * width)
    factors = make_factors(theta, layout, sets, "dense")
    edges = _edges(direction, layout, sets, factors)
    rows, log_z = tuple(np.empty((ROWS, len(data.labels), width))), np.empty(len(data.weights))
    shared, product = share(theta, layout, objective.composites), np.zeros(layout.size)

    def piece(c):
        _store_chunk(theta, direction, layout, plain, data.weights, sets, factors, edges, shared, schedule, c, *rows,
                     log_z)  # fmt: skip

    threads.run(piece, range(len(objective.chunks)))
    for n in np.flatnonzero(np.isnan(log_z)):
        _by_logarithms(theta, direction, objective, n, product)
    left, v, gamma, alpha, right = rows
    gather(layout, sets, factors, objective.positions_of_set, objective.gathering, left, v, gamma, product)
    gather_also(layout, sets, factors, objective.positions_of_set, alpha, right, product)
    of_pairs = np.zeros(layout.size)
    gather_also(layout, sets, factors._replace(dense=edges.dense), objective.positions_of_set, alpha, v, of_pairs)
    return of_pairs - product


def _edges(direction: np.ndarray, layout, sets, factors) -> Edges:
    """The factors times the pair scores by `direction`."""
    edges = Edges(np.zeros_like(factors.dense), np.zeros_like(factors.dense))
    n_sets = len(sets.ptr) - 1
    threads.run(
        lambda run: _multiply(direction, layout, sets, factors, *run, edges),
        threads.ranges(n_sets, 16) if n_sets else [],
    )
    return edges


@kernel
def _multiply(direction, layout, sets, factors, lo, hi, edges):
    n_labels, scores = layout.n_labels, np.empty(layout.n_labels**2)
    for p in range(lo, hi):
        pair_scores(direction, layout, sets, p, scores)
        d = factors.slot[p]
        for i in range(n_labels):
            for j in range(n_labels):
                edges.dense[d, i, j] = factors.dense[d, i, j] * scores[i * n_labels + j]
                edges.transposed[d, j, i] = edges.dense[d, i, j]


@kernel
def _store_chunk(
    theta, direction, layout, data, scales, sets, factors, edges, shared, schedule, chunk, left, v, gamma, alpha,
    right, log_z,
):  # fmt: skip
    width = shared.table.shape[1]
    work = make_rows(schedule.longest, width, layout.n_labels, len(shared.columns))
    more, score = make_mass_rows(schedule.longest, width, len(edges.dense)), np.empty(layout.n_labels)
    for b in range(schedule.chunk_batches[chunk], schedule.chunk_batches[chunk + 1]):
        recursions(theta, layout, data, sets, factors, shared, schedule, b, work, more, log_z)
        for m in range(schedule.batch_sequences[b], schedule.batch_sequences[b + 1]):
            n = schedule.sequences[m]
            for t in range(data.offsets[n], data.offsets[n + 1]):
                if np.isnan(log_z[n]):
                    leave_out(schedule.row[t], work, more)
                else:
                    position_scores(direction, layout, data, t, t == data.offsets[n], score)
                    _centre(work.gamma, schedule.row[t], score, more.mass)
        covariance_batch(factors, edges, schedule, b, work, more)
        store_batch(data.offsets, scales, schedule, b, log_z, work, more, left, v, gamma, alpha, right)


@kernel
def _centre(gamma, r, score, mass):
    """mass[r] = gamma (h - E h): without its mean nothing cancels later."""
    mean = 0.0
    for y in range(len(score)):
        mean += gamma[r, y] * score[y]
    for y in range(len(score)):
        mass[r, y] = gamma[r, y] * (score[y] - mean)


def _by_logarithms(theta, direction, objective, n: int, product) -> None:
    """Minus the part of a sequence with extreme scores is added to `product`."""
    data, layout, sets = objective.dataset, objective.layout, objective.sets
    lo, hi = data.offsets[n], data.offsets[n + 1]
    score, log_alpha, log_beta, gamma, mass = np.zeros((5, hi - lo, layout.n_labels))
    log_forward(theta, layout, data, sets, lo, hi, score, log_alpha)
    log_posteriors(theta, layout, sets, lo, hi, score, log_alpha, log_beta, gamma)
    _fill_masses(direction, layout, data, lo, hi, gamma, mass)
    log_covariance(theta, direction, layout, sets, lo, hi, data.weights[n], 0.0, score, log_alpha, log_beta, gamma,
                   mass, product)  # fmt: skip
    add_unigrams(layout, data, objective.composites.every_column, lo, gamma, product)


@kernel
def _fill_masses(direction, layout, data, lo, hi, gamma, mass):
    """gamma holds logarithms on entry."""
    score = np.empty(layout.n_labels)
    for t in range(lo, hi):
        for y in range(layout.n_labels):
            gamma[t - lo, y] = np.exp(gamma[t - lo, y])
        position_scores(direction, layout, data, t, t == lo, score)
        _centre(gamma, t - lo, score, mass)
