"""The loss of a linear-chain CRF and its gradient, over one data set."""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from espalier.engine.chain.batches import Schedule, make_schedule
from espalier.engine.chain.column_groups import Composites, find_composites
from espalier.engine.chain.gather_gradient import Gathering, gather, make_gathering
from espalier.engine.chain.pair_sets import (
    Amounts,
    Inverse,
    check_observations,
    check_theta,
    invert,
    occurrences,
    pair_sets,
)
from espalier.engine.chain.posteriors import all_log_partitions, by_logarithms, posteriors
from espalier.engine.chain.scatter_gradient import (
    CHUNKS,
    LARGEST,
    Plan,
    add_unigrams,
    fits,
    make_plan,
    pair_slots,
    scattered_sums,
)
from espalier.engine.chain.scores import Factors, density, make_factors, padded
from espalier.engine.chain.scratch import Scratch
from espalier.engine.data.dataset import NO_TOKEN_WEIGHTS, NO_VALUES, Dataset, any_in_sequence, select
from espalier.engine.errors import EspalierError
from espalier.engine.losses.curvature import curvatures, squared_values
from espalier.engine.losses.partial_labels import partial_labels, silent
from espalier.engine.losses.token_weights import first_weights, token_weights
from espalier.engine.runtime.grouping import carrying_columns, sort_by
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.threads import balanced
from espalier.engine.runtime.vectors import dot
from espalier.engine.weights.layout import Layout, triples_of

MOST_CODES = 1 << 26  # that a counting sort has places for: all pairs of labels at most
MOST_GROWTH = 4.0  # of distinct sets and combinations: more with more data, but ever more slowly


class Extent(NamedTuple):
    """How large data and theta will be, for which an objective over a sample of them is asked what it would take."""

    tokens: int
    columns: int
    weights: int


class ChainObjective:
    """l(theta) = -sum_n w_n log p(y^n | x^n) (SBCD 4) and its gradient (SBCD 5).

    The transposed index and the observed counts are made once; each call makes the
    factors, runs forward-backward over the sequences and sums expectations: scattered by
    position while theta fits the cache, else gathered by observation. Both are exact.
    Partial labels and token weights add `terms` of their own; see these modules.
    """

    loss_name = "log"  # of engine.losses.loss_table

    def __init__(self, dataset: Dataset, layout: Layout, sparse: str = "auto", scratch: Scratch | None = None):
        check_observations(dataset, layout)
        density(sparse)  # an unknown name is refused here, not in the middle of a run
        made = [make(dataset, layout, sparse) for make in (partial_labels, token_weights)]
        self.terms = [term for term in made if term is not None]
        self.dataset, self.layout, self.sparse = ordinary(dataset), layout, sparse
        self.size = layout.size
        self.sets = pair_sets(dataset, layout)
        self.observed = observed_counts(dataset, layout)
        self.scratch = Scratch() if scratch is None else scratch
        self.slots = pair_slots(layout, self.sets)
        self.scattered = fits(layout, self.slots)
        self.chunks = balanced(np.diff(dataset.offsets), CHUNKS)

    @property
    def offers(self) -> frozenset[str]:
        """Capabilities of `engine.optimise.objective`; the sequences tell the whole loss only where it has no terms."""
        more = {"terms"} if self.terms else {"sample", "sequences", "positions"}
        return frozenset({"gradient", "value", "counts", "scaling", "active"} | more)

    # What a scattered gradient needs, then what a gathered one and solvers by blocks need: each is made when used.

    @cached_property
    def composites(self) -> Composites:
        return find_composites(self.dataset, self.layout)

    @cached_property
    def plan(self) -> Plan:
        return make_plan(self.dataset, self.layout, self.slots, self.composites, self.chunks)

    @cached_property
    def schedule(self) -> Schedule:
        return make_schedule(self.dataset.offsets, self.sets, self.chunks, padded(self.layout.n_labels))

    @cached_property
    def positions(self) -> Amounts:
        return occurrences(self.dataset, self.layout.n_observations)

    @cached_property
    def positions_of_set(self) -> Inverse:
        return invert(self.sets.of_position, len(self.sets.ptr) - 1)

    @cached_property
    def sets_of(self) -> Inverse:
        """Sets that hold each observation."""
        member_of = np.repeat(np.arange(len(self.sets.ptr) - 1, dtype=np.int32), np.diff(self.sets.ptr))
        order = invert(self.sets.observation, self.layout.n_observations)
        return order._replace(entry=member_of[order.entry])

    @cached_property
    def gathering(self) -> Gathering:
        return make_gathering(self.dataset, self.layout, self.composites)

    def value(self, theta: np.ndarray) -> float:
        """The loss alone: forward recursion only."""
        check_theta(theta, self.layout)
        factors = make_factors(theta, self.layout, self.sets, self.sparse)
        value = self._loss(theta, self.log_partitions(theta, factors))
        for term in self.terms:
            value += term.value(theta)
        return value

    def value_and_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss and its gradient, expected minus observed counts."""
        check_theta(theta, self.layout)
        with self.scratch.lock:
            gradient, log_z = self.expected(theta, self.kept_factors(theta), self.dataset)
            with np.errstate(invalid="ignore"):  # infinite weights show in the objective, which is refused
                gradient -= self.observed
            value = self._loss(theta, log_z)
            for term in self.terms:
                value += term.add_gradient(theta, gradient)
        return value, gradient

    def expectations(self, theta: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(weighted counts expected at theta, log Z of each sequence), whatever the labels are.

        `weights` stand for those of the sequences, once.
        """
        check_theta(theta, self.layout)
        data = self.dataset if weights is None else self.dataset._replace(weights=weights)
        with self.scratch.lock:
            return self.expected(theta, self.kept_factors(theta), data)

    def scaling(self, gradient: np.ndarray, rho2: float) -> np.ndarray:
        """How curved the objective is in each weight; see `engine.losses.curvature`."""
        squares = self.squares if self.dataset.valued.shape[1] else None
        return curvatures(self.layout, gradient, self.observed, rho2, squares)

    @cached_property
    def squares(self) -> np.ndarray:
        return squared_values(self.dataset, self.layout)

    def hessian_times(self, theta: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """The Hessian of the loss at theta times a vector; see `engine.losses.hessian_product`."""
        check_theta(theta, self.layout)
        check_theta(direction, self.layout)
        if self.terms:
            raise EspalierError(f"the Hessian of a loss with {self.terms[0].name} is not known: leave them out")
        from espalier.engine.losses.hessian_product import hessian_product  # few need it

        return hessian_product(self, theta, direction)

    def active(self, theta: np.ndarray) -> dict[str, int]:
        """Number of weights of each family that are not zero."""
        return active_weights(self.layout, theta)

    def sample(self, share: float = 1.0) -> "Sample | None":
        """Sequences to begin with: all of these, which are `share` of the data.

        None where it has terms or nothing, or a sequence without labels, which has a part in neither.
        """
        labelled = len(self.dataset.weights) and self.dataset.labels.min() >= 0
        return Sample(self, share) if labelled and not self.terms else None

    def bytes_taken(self, extent: Extent) -> dict[str, int]:
        """What an objective over so much data would take at its peak, if they are like these."""
        grown = self._growth(extent)
        return {
            "features": extent.tokens * self._bytes_of_position(extent.columns),
            "posteriors": int(self._scratch_bytes(extent, grown)),
            "factors": int(grown * self._factor_bytes()),
        }

    def would_scatter(self, extent: Extent) -> bool:
        """Whether theta would fit the cache."""
        return extent.weights + int(self.slots.sum_ptr[-1]) * self._growth(extent) <= LARGEST

    def _growth(self, extent: Extent) -> float:
        """How many times as many distinct sets and combinations there would be."""
        return min(extent.tokens / max(1, len(self.dataset.labels)), MOST_GROWTH)

    def _bytes_of_position(self, columns: int) -> int:
        """Ids, labels, sets, schedule and combinations; then what only making them takes."""
        groups, values = self.composites.ids.shape[1], 2 * 12 * self.dataset.valued.shape[1]
        return values + 4 * columns + 8 + 4 + 12 + 4 * groups + max(4 * columns + 24, 56)

    def _factor_bytes(self) -> int:
        """Matrices of the sets, as they are and transposed, and the summed scores of combinations."""
        width, rows = padded(self.layout.n_labels), len(self.composites.ptr) - 1
        return (len(self.sets.ptr) - 1) * width**2 * 8 * 2 + rows * width * 8

    def _scratch_bytes(self, extent: Extent, grown: float) -> float:
        """The room that `_scatter` takes where theta fits the cache, else that of `_gather` and of its index."""
        width, rows = padded(self.layout.n_labels), len(self.composites.ptr) - 1
        sums = int(self.slots.sum_ptr[-1]) * grown
        if self.would_scatter(extent):
            return CHUNKS * 8 * (extent.weights + sums + rows * grown * width)
        return extent.tokens * (3 * width * 8 + 8 * extent.columns)

    def _loss(self, theta: np.ndarray, log_z: np.ndarray) -> float:
        return dot(self.dataset.weights, log_z) - dot(theta, self.observed)

    def log_partitions(self, theta: np.ndarray, factors: Factors) -> np.ndarray:
        """log Z of each sequence: the forward recursion alone."""
        return all_log_partitions(theta, self.dataset, self.layout, self.sets, factors, self.schedule, self.composites)

    def kept_factors(self, theta: np.ndarray) -> Factors:
        """The factors at theta in the memory of those before; who calls it holds the lock of the scratch memory."""
        factors = make_factors(theta, self.layout, self.sets, self.sparse, self.scratch.factors)
        self.scratch.keep(factors)
        return factors

    def expected(self, theta: np.ndarray, factors: Factors, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
        """(expected counts, log Z) at theta; `data` are its own, perhaps with other weights of the sequences."""
        return (self._scatter if self.scattered else self._gather)(theta, factors, data)

    def _scatter(self, theta: np.ndarray, factors, data: Dataset):
        """By position into chunks; the few sequences with extreme scores follow by logarithms."""
        rows = self.scratch.take(len(self.chunks), self.plan.total)
        layout, sets = self.layout, self.sets
        expected, log_z = scattered_sums(theta, data, layout, sets, factors, self.plan, self.schedule, rows)
        for n in np.flatnonzero(np.isnan(log_z)):
            lo, hi = data.offsets[n], data.offsets[n + 1]
            alpha, v, gamma = np.empty((3, hi - lo, layout.n_labels))
            log_z[n] = by_logarithms(theta, data, layout, sets, n, alpha, v, gamma, expected)
            add_unigrams(layout, data, self.composites.every_column, lo, gamma, expected)
        return expected, log_z

    def _gather(self, theta: np.ndarray, factors, data: Dataset):
        """Posteriors of all positions, then by observation."""
        rows = tuple(self.scratch.take(3, len(data.labels), padded(self.layout.n_labels)))
        expected = np.zeros(self.size)
        *posterior, log_z = posteriors(
            theta, data, self.layout, self.sets, factors, self.schedule, self.composites, rows, expected,
        )  # fmt: skip
        gather(self.layout, self.sets, factors, self.positions_of_set, self.gathering, *posterior, expected)
        return expected, log_z


class Sample(NamedTuple):
    """Some of the sequences of an objective, over the same weights."""

    objective: ChainObjective
    share: float  # of the sequences


def ordinary(dataset: Dataset) -> Dataset:
    """The data set whose ordinary loss is the part that needs no terms: weights w_n tau_1, 0 where nothing is known."""
    weights = first_weights(dataset)
    if dataset.labels.min(initial=0) < 0:
        weights = np.where(silent(dataset), 0.0, weights)
    return dataset._replace(weights=weights, token_weights=NO_TOKEN_WEIGHTS)


def active_weights(layout: Layout, theta: np.ndarray) -> dict[str, int]:
    """Number of weights of each family that are not zero."""
    ends = layout.ends()
    counts = [np.count_nonzero(theta[a:b]) for a, b in zip(ends, ends[1:], strict=False)]
    return {f"active_{name}": int(count) for name, count in zip(layout.families, counts, strict=False)}


def observed_counts(dataset: Dataset, layout: Layout) -> np.ndarray:
    """Weighted count of each weight's feature in the sequences whose labels are all known."""
    if dataset.labels.min(initial=0) < 0:
        dataset = select(dataset, np.flatnonzero(~any_in_sequence(dataset, dataset.labels < 0)))
    weights = np.repeat(dataset.weights, np.diff(dataset.offsets))
    if len(dataset.token_weights):
        weights *= dataset.token_weights
    labels, first = dataset.labels, np.zeros(len(dataset.labels), bool)
    first[dataset.offsets[:-1]] = True
    inner = np.flatnonzero(~first)
    counts = np.zeros(layout.size)
    visits = {"unigram": (np.arange(len(labels)), labels), "start": (dataset.offsets[:-1], labels[first]),
              "bigram": (inner, labels[inner - 1] * layout.n_labels + labels[inner])}  # fmt: skip
    if layout.second_order:
        visits["trigram"] = triples_of(dataset, layout.n_labels)
    for family, (positions, code) in visits.items():
        _count(dataset.observations, NO_VALUES, *layout.family(family), positions, code, weights, counts)
    if dataset.valued.shape[1]:
        _count(dataset.valued, dataset.values, *layout.family("unigram"), *visits["unigram"], weights, counts)
    return counts


def _count(observations, values, ptr, codes, n_codes, positions, code, weights, counts) -> None:
    """Add the weights of the positions to the counts of one family, times `values` unless that is empty."""
    columns = carrying_columns(observations, ptr)
    if not len(columns):
        return
    if n_codes > MOST_CODES:
        order = np.argsort(code, kind="stable").astype(np.int32)
    else:
        order = sort_by(code, n_codes, np.arange(len(code), dtype=np.int32))
    at = np.where(ptr[1:] > ptr[:-1], ptr[:-1], -1)
    _add_counts(observations, values, columns, positions[order], code[order], weights, ptr, codes, at, counts)


@kernel
def _add_counts(observations, values, columns, positions, code, weights, ptr, codes, at, counts):
    """counts[slot of (x, code)] += weight, where there is one.

    Positions come by code, and the codes of a run ascend, so `at`, where each run has come to, only moves on;
    -1 is the end. The sum of one slot is still in the order of positions.
    """
    base, full, plain = ptr[0], len(codes) == 0, values.shape[1] == 0
    for i in range(len(positions)):
        t, c = positions[i], code[i]
        for k in columns:
            x = observations[t, k]
            weight = weights[t] if plain else weights[t] * values[t, k]
            if x < 0 or at[x] < 0:
                continue
            s = at[x]
            if full:
                counts[s + c] += weight
            elif codes[s - base] == c:
                counts[s] += weight
            elif codes[s - base] < c:
                while s < ptr[x + 1] and codes[s - base] < c:
                    s += 1
                at[x] = s if s < ptr[x + 1] else -1
                if at[x] >= 0 and codes[s - base] == c:
                    counts[s] += weight
