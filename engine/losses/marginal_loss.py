"""The marginal loss: minus the log-probability of each right label by itself, not of the labelling as a whole.

    l(theta) = -sum_n w_n / T_n sum_t log gamma_t(y*_t)                     (LABELSEQ 2.18, THESIS 3.4.2)

It bounds the share of wrong labels, as the log loss bounds that of wrong sequences, and goes with decoding label by
label (`posterior`). It is not convex: solvers begin with the log loss (`sample`), or where they are told to. The
gradient of a sequence compares expectations with those given one label at a time, sum_t c_t (E f - E [f | y*_t]): a
mass c_t = w_n / T_n enters at each right label, see `engine.chain.covariance`. (LABELSEQ 2.20 as printed lacks 1 / T.)

Where labels are unknown the sum goes over the positions that have one; T_n stays the length, so that a label counts
the same whatever is known beside it. Token weights multiply c_t.
"""

from functools import cached_property

import numpy as np

from espalier.engine.chain.batches import Schedule, make_schedule
from espalier.engine.chain.column_groups import share
from espalier.engine.chain.covariance import (
    ROOM,
    covariance_batch,
    leave_out,
    log_covariance,
    log_posteriors,
    make_mass_rows,
    no_edges,
    recursions,
    store_batch,
)
from espalier.engine.chain.forward_backward import backward_batch, forward_batch, make_rows
from espalier.engine.chain.gather_gradient import gather, gather_also
from espalier.engine.chain.logarithms import log_forward
from espalier.engine.chain.pair_sets import check_theta, refuse_triples_in
from espalier.engine.chain.scatter_gradient import (
    PAGE,
    add_unigrams,
    scatter_pairs,
    scatter_unigrams,
    sum_of_chunks,
)
from espalier.engine.chain.scores import padded
from espalier.engine.data.dataset import FIRST_SET, Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective, Extent
from espalier.engine.losses.on_log_loss import OnLogLoss
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.vectors import dot
from espalier.engine.weights.layout import Layout

GATHERED = 5  # arrays of rows that a gathered gradient keeps: left, v, gamma, alpha, right


class MarginalObjective(OnLogLoss):
    """The marginal loss over one data set and its gradient, on the index of the log loss, `chain`."""

    loss_name = "marginal"

    def __init__(self, dataset: Dataset, layout: Layout, sparse: str = "auto"):
        if dataset.labels.min(initial=0) <= FIRST_SET:
            at = int(np.argmax(dataset.labels <= FIRST_SET))
            raise EspalierError(
                f"position {at} has a set of labels, and the marginal loss needs one label or none at a position: "
                "choose the loss log or exponential, or leave the set out"
            )
        refuse_triples_in(layout, "the marginal loss")
        self.chain = ChainObjective(dataset, layout, sparse)
        self.dataset = self.chain.dataset._replace(weights=np.ones(len(dataset.weights)))
        self.layout, self.size, self.sparse = layout, layout.size, sparse
        lengths = np.diff(dataset.offsets)
        self.shares = np.where(dataset.labels >= 0, np.repeat(dataset.weights / lengths, lengths), 0.0)
        if len(dataset.token_weights):
            self.shares *= dataset.token_weights
        self.totals = np.add.reduceat(self.shares, dataset.offsets[:-1]) if len(lengths) else np.empty(0)
        self._edges = no_edges(padded(layout.n_labels))

    @property
    def offers(self) -> frozenset[str]:
        """Capabilities of `engine.optimise.objective`; a sample, of the log loss, where all labels are known."""
        return frozenset({"gradient", "value", "scaling", "active"} | (self.chain.offers & {"sample"}))

    @cached_property
    def schedule(self) -> Schedule:
        chain = self.chain
        return make_schedule(self.dataset.offsets, chain.sets, chain.chunks, ROOM * padded(self.layout.n_labels))

    @cached_property
    def _like_log_loss(self) -> float:
        """About how many times the log loss is as large: the mean length."""
        weight = float(self.totals.sum())
        return float(dot(self.totals, np.diff(self.dataset.offsets).astype(float))) / weight if weight else 1.0

    def value(self, theta: np.ndarray) -> float:
        """The loss alone: forward-backward."""
        check_theta(theta, self.layout)
        with self.chain.scratch.lock:
            factors = self.chain.kept_factors(theta)
            values, shared = np.empty(len(self.totals)), share(theta, self.layout, self.chain.composites)

            def piece(c):
                _values(theta, self.layout, self.dataset, self.shares, self.chain.sets, factors, shared, self.schedule,
                        c, values)  # fmt: skip

            threads.run(piece, range(len(self.chain.chunks)))
        return self._summed(theta, values, None)

    def value_and_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss and its gradient."""
        check_theta(theta, self.layout)
        with self.chain.scratch.lock:
            return (self._scatter if self.chain.scattered else self._gather)(theta, self.chain.kept_factors(theta))

    def bytes_taken(self, extent: Extent) -> dict[str, int]:
        """As `ChainObjective.bytes_taken`, with rows of masses and a share for each position."""
        taken = self.chain.bytes_taken(extent)
        if not self.chain.would_scatter(extent):
            taken["posteriors"] += extent.tokens * (GATHERED - 3) * padded(self.layout.n_labels) * 8
        taken["features"] += 8 * extent.tokens
        return taken

    def _scatter(self, theta: np.ndarray, factors) -> tuple[float, np.ndarray]:
        chain, layout, plan = self.chain, self.layout, self.chain.plan
        rows = chain.scratch.take(len(chain.chunks), plan.total)
        values, shared = np.empty(len(self.totals)), share(theta, layout, plan.composites)

        def piece(c):
            _scatter_chunk(theta, layout, self.dataset, self.shares, self.totals, chain.sets, factors, self._edges,
                           shared, plan.slots, self.schedule, c, plan.pairs_at, plan.composites_at, plan.touched[c],
                           rows[c], values)  # fmt: skip

        threads.run(piece, range(len(rows)))
        gradient = sum_of_chunks(layout, chain.sets, factors, plan, rows)
        return self._summed(theta, values, gradient), gradient

    def _gather(self, theta: np.ndarray, factors) -> tuple[float, np.ndarray]:
        chain, layout, data = self.chain, self.layout, self.dataset
        rows = tuple(chain.scratch.take(GATHERED, len(data.labels), padded(layout.n_labels)))
        values, gradient = np.empty(len(self.totals)), np.zeros(self.size)
        shared = share(theta, layout, chain.composites)

        def piece(c):
            _store_chunk(theta, layout, data, self.shares, self.totals, chain.sets, factors, self._edges, shared,
                         self.schedule, c, *rows, values)  # fmt: skip

        threads.run(piece, range(len(chain.chunks)))
        value = self._summed(theta, values, gradient)
        left, v, gamma, alpha, right = rows
        gather(layout, chain.sets, factors, chain.positions_of_set, chain.gathering, left, v, gamma, gradient)
        gather_also(layout, chain.sets, factors, chain.positions_of_set, alpha, right, gradient)
        return value, gradient

    def _summed(self, theta: np.ndarray, values: np.ndarray, gradient: np.ndarray | None) -> float:
        """The sum of the values; sequences with extreme scores follow by logarithms, one after the other."""
        for n in np.flatnonzero(np.isnan(values)):
            values[n] = self._by_logarithms(theta, n, gradient)
        return dot(values, np.ones(len(values)))

    def _by_logarithms(self, theta: np.ndarray, n: int, gradient: np.ndarray | None) -> float:
        data, layout, sets = self.dataset, self.layout, self.chain.sets
        lo, hi = data.offsets[n], data.offsets[n + 1]
        score, log_alpha, log_beta, log_gamma, mass = np.zeros((5, hi - lo, layout.n_labels))
        log_forward(theta, layout, data, sets, lo, hi, score, log_alpha)
        log_posteriors(theta, layout, sets, lo, hi, score, log_alpha, log_beta, log_gamma)
        gamma = np.empty_like(log_gamma)
        value = _log_masses(data.labels, self.shares, lo, hi, log_gamma, gamma, mass)
        if gradient is not None:
            nothing = np.empty(0)
            log_covariance(theta, nothing, layout, sets, lo, hi, 1.0, self.totals[n], score, log_alpha, log_beta,
                           gamma, mass, gradient)  # fmt: skip
            add_unigrams(layout, data, self.chain.composites.every_column, lo, gamma, gradient)
        return value


@kernel
def _masses(data, shares, totals, schedule, b, work, more, values):
    """c_t at the right labels; values[n] = -sum_t c_t log gamma_t(y*_t), NaN where it is and logarithms are needed."""
    labels, offsets, sequences, row = data.labels, data.offsets, schedule.sequences, schedule.row
    gamma, mass, level, width = work.gamma, more.mass, more.level, work.gamma.shape[1]
    for m in range(schedule.batch_sequences[b], schedule.batch_sequences[b + 1]):
        n = sequences[m]
        if not np.isnan(values[n]):
            values[n] = _value(labels, shares, offsets, n, row, gamma)
        for t in range(offsets[n], offsets[n + 1]):
            r = row[t]
            if np.isnan(values[n]):
                leave_out(r, work, more)
                continue
            for y in range(width):
                mass[r, y] = 0.0
            if shares[t] > 0.0:
                mass[r, labels[t]] = shares[t]
            level[r] = totals[n]


@kernel
def _value(labels, shares, offsets, n, row, gamma):
    value = 0.0
    for t in range(offsets[n], offsets[n + 1]):
        if shares[t] > 0.0:
            value -= shares[t] * np.log(gamma[row[t], labels[t]])
    return value


@kernel
def _values(theta, layout, data, shares, sets, factors, shared, schedule, chunk, values):
    work = make_rows(schedule.longest, shared.table.shape[1], layout.n_labels, len(shared.columns))
    sequences, labels, offsets, row, gamma = schedule.sequences, data.labels, data.offsets, schedule.row, work.gamma
    for b in range(schedule.chunk_batches[chunk], schedule.chunk_batches[chunk + 1]):
        forward_batch(theta, layout, data, sets, factors, shared, schedule, b, work, values)
        backward_batch(offsets, data.weights, factors, schedule, b, work, values)
        for m in range(schedule.batch_sequences[b], schedule.batch_sequences[b + 1]):
            n = sequences[m]
            if not np.isnan(values[n]):
                values[n] = _value(labels, shares, offsets, n, row, gamma)


@kernel
def _scatter_chunk(
    theta, layout, data, shares, totals, sets, factors, edges, shared, slots, schedule, chunk, pairs_at,
    composites_at, touched, out, values,
):  # fmt: skip
    """The gradient of the chunk's sequences into `out`, as `scatter_gradient.scatter_chunk` has expectations."""
    n_labels, width = layout.n_labels, shared.table.shape[1]
    for page in range(len(touched)):
        if touched[page]:
            out[page * PAGE : (page + 1) * PAGE] = 0.0
    work = make_rows(schedule.longest, width, n_labels, len(shared.columns))
    more = make_mass_rows(schedule.longest, width, 0)
    for b in range(schedule.chunk_batches[chunk], schedule.chunk_batches[chunk + 1]):
        recursions(theta, layout, data, sets, factors, shared, schedule, b, work, more, values)
        _masses(data, shares, totals, schedule, b, work, more, values)
        covariance_batch(factors, edges, schedule, b, work, more)
        scatter_unigrams(layout, data, shared, schedule, b, composites_at, work, out)
        scatter_pairs(slots, schedule, b, pairs_at, n_labels, more.left, work.v, out)
        scatter_pairs(slots, schedule, b, pairs_at, n_labels, work.alpha, more.inverse, out)


@kernel
def _store_chunk(
    theta, layout, data, shares, totals, sets, factors, edges, shared, schedule, chunk, left, v, gamma, alpha, right,
    values,
):  # fmt: skip
    """The same rows by position, to be gathered."""
    width = shared.table.shape[1]
    work = make_rows(schedule.longest, width, layout.n_labels, len(shared.columns))
    more = make_mass_rows(schedule.longest, width, 0)
    for b in range(schedule.chunk_batches[chunk], schedule.chunk_batches[chunk + 1]):
        recursions(theta, layout, data, sets, factors, shared, schedule, b, work, more, values)
        _masses(data, shares, totals, schedule, b, work, more, values)
        covariance_batch(factors, edges, schedule, b, work, more)
        store_batch(data.offsets, data.weights, schedule, b, values, work, more, left, v, gamma, alpha, right)


@kernel
def _log_masses(labels, shares, lo, hi, log_gamma, gamma, mass):
    """The value of one sequence with extreme scores; gamma, and c_t at the right labels."""
    value = 0.0
    for t in range(lo, hi):
        for y in range(gamma.shape[1]):
            gamma[t - lo, y] = np.exp(log_gamma[t - lo, y])
        if shares[t] > 0.0:
            value -= shares[t] * log_gamma[t - lo, labels[t]]
            mass[t - lo, labels[t]] = shares[t]
    return value
