"""The loss of a linear-chain CRF and its gradient, over one data set."""

import threading

import numpy as np

from engine import expectations, threads
from engine.data import Dataset
from engine.index import Inverse, check_labels, check_observations, check_theta, invert, pair_sets
from engine.jit import kernel
from engine.layout import FAMILIES, Layout
from engine.posteriors import PIECES, all_log_partitions, balanced, by_logarithms, posterior_rows, posteriors
from engine.scatter import CHUNKS, add_unigrams, fits, pair_slots, scattered_gradient
from engine.scores import density, make_factors
from engine.vectors import dot


class ChainObjective:
    """l(theta) = -sum_n w_n log p(y^n | x^n) (SBCD 4) and its gradient (SBCD 5).

    The transposed index and the observed counts are made once; each call makes the
    factors, runs forward-backward over the sequences and sums expectations: scattered by
    position while theta fits the cache, else gathered by observation. Both are exact.
    """

    def __init__(self, dataset: Dataset, layout: Layout, sparse: str = "auto"):
        check_observations(dataset, layout)
        check_labels(dataset.labels, layout)
        density(sparse)  # an unknown name is refused here, not in the middle of a run
        self.dataset, self.layout, self.sparse = dataset, layout, sparse
        self.size = layout.size
        self.sets = pair_sets(dataset, layout)
        self.observed = observed_counts(dataset, layout)
        self._rows, self._lock = None, threading.Lock()  # kept between calls; one gradient at a time uses them
        self._index()

    def _index(self) -> None:
        n_observations, n_sets = self.layout.n_observations, len(self.sets.ptr) - 1
        templates = max(1, self.dataset.observations.shape[1])
        flat = invert(self.dataset.observations.ravel(), n_observations)
        self.positions = Inverse(flat.ptr, (flat.entry // templates).astype(np.int32))
        self.positions_of_set = invert(self.sets.of_position, n_sets)
        member_of = np.repeat(np.arange(n_sets, dtype=np.int32), np.diff(self.sets.ptr))
        order = invert(self.sets.observation, n_observations)
        self.sets_of = Inverse(order.ptr, member_of[order.entry])
        self.is_first = np.zeros(len(self.dataset.labels), bool)
        self.is_first[self.dataset.offsets[:-1]] = True
        counts = -(-np.diff(self.positions_of_set.ptr) // expectations.PIECE)
        self.piece_ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.slots = pair_slots(self.layout, self.sets)
        self.scattered = fits(self.layout, len(self.slots.code))
        everyone = np.arange(len(self.dataset.weights))
        self.chunks = [everyone[slice(*run)] for run in balanced(np.diff(self.dataset.offsets), CHUNKS)]
        self.observation_runs = balanced(np.diff(self.positions.ptr))

    def value(self, theta: np.ndarray) -> float:
        """The loss alone: forward recursion only."""
        check_theta(theta, self.layout)
        factors = make_factors(theta, self.layout, self.sets, self.sparse)
        return self._loss(theta, all_log_partitions(theta, self.dataset, self.layout, self.sets, factors))

    def value_and_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss and its gradient, expected minus observed counts."""
        check_theta(theta, self.layout)
        factors = make_factors(theta, self.layout, self.sets, self.sparse)
        gradient = np.negative(self.observed)
        with self._lock:
            log_z = (self._scatter if self.scattered else self._gather)(theta, factors, gradient)
        return self._loss(theta, log_z), gradient

    def active(self, theta: np.ndarray) -> dict[str, int]:
        """Number of weights of each family that are not zero."""
        return active_weights(self.layout, theta)

    def _loss(self, theta: np.ndarray, log_z: np.ndarray) -> float:
        return dot(self.dataset.weights, log_z) - dot(theta, self.observed)

    def _scatter(self, theta: np.ndarray, factors, gradient: np.ndarray) -> np.ndarray:
        """By position into chunks; the few sequences with extreme scores follow by logarithms."""
        if self._rows is None:
            self._rows = np.empty((len(self.chunks), self.size + len(self.slots.code)))
        data, layout, sets = self.dataset, self.layout, self.sets
        log_z = scattered_gradient(theta, data, layout, sets, factors, self.slots, self.chunks, self._rows, gradient)
        for n in np.flatnonzero(np.isnan(log_z)):
            lo, hi = data.offsets[n], data.offsets[n + 1]
            alpha, v, gamma = np.empty((3, hi - lo, layout.n_labels))
            log_z[n] = by_logarithms(theta, data, layout, sets, n, alpha, v, gamma, gradient)
            add_unigrams(layout, data.observations, lo, gamma, gradient)
        return log_z

    def _gather(self, theta: np.ndarray, factors, gradient: np.ndarray) -> np.ndarray:
        """Posteriors of all positions, then by observation."""
        if self._rows is None:
            self._rows = posterior_rows(self.dataset, self.layout)
        alpha, v, gamma, log_z = posteriors(theta, self.dataset, self.layout, self.sets, factors, self._rows, gradient)
        self._unigrams(gamma, gradient)
        self._bigrams(factors, alpha, v, gradient)
        return log_z

    def _unigrams(self, gamma, gradient) -> None:
        def piece(run):
            expectations.gather_unigrams(self.layout, self.positions, gamma, self.is_first, *run, gradient)

        threads.run(piece, self.observation_runs)

    def _bigrams(self, factors, alpha, v, gradient) -> None:
        n_sets, n_labels = len(self.sets.ptr) - 1, self.layout.n_labels
        partial = np.empty((int(self.piece_ptr[-1]), n_labels, n_labels))
        expected = np.empty((n_sets, n_labels, n_labels))

        def piece(run):
            for p in range(*run):
                entries = self.positions_of_set.entry[self.positions_of_set.ptr[p] : self.positions_of_set.ptr[p + 1]]
                for k in range(self.piece_ptr[p], self.piece_ptr[p + 1]):
                    lo = (k - self.piece_ptr[p]) * expectations.PIECE
                    expectations.multiply_piece(entries[lo : lo + expectations.PIECE], alpha, v, partial[k])

        threads.run(piece, balanced(np.diff(self.positions_of_set.ptr)))
        threads.run(
            lambda run: expectations.finish_sets(factors, self.piece_ptr, partial, *run, expected),
            threads.ranges(n_sets, PIECES) if n_sets else [],
        )
        threads.run(
            lambda run: expectations.gather_bigrams(self.layout, self.sets_of, expected, *run, gradient),
            self.observation_runs,
        )


def active_weights(layout: Layout, theta: np.ndarray) -> dict[str, int]:
    """Number of weights of each family that are not zero."""
    bounds = [0, *layout.bounds(), layout.size]
    counts = [np.count_nonzero(theta[a:b]) for a, b in zip(bounds, bounds[1:], strict=False)]
    return {f"active_{name}": int(count) for name, count in zip(FAMILIES, counts, strict=True)}


def observed_counts(dataset: Dataset, layout: Layout) -> np.ndarray:
    """Weighted count of each weight's feature in the labelled data."""
    token_weights = np.repeat(dataset.weights, np.diff(dataset.offsets))
    counts = np.zeros(layout.size)
    _count(dataset.observations, dataset.labels, dataset.offsets, token_weights, layout, counts)
    return counts


@kernel
def _count(observations, labels, offsets, token_weights, layout, counts):
    for n in range(len(offsets) - 1):
        for t in range(offsets[n], offsets[n + 1]):
            y = labels[t]
            for k in range(observations.shape[1]):
                x = observations[t, k]
                if x < 0:
                    continue
                _count_one(layout.unigram_ptr, layout.unigram_code, x, y, layout.n_labels, token_weights[t], counts)
                if t == offsets[n]:
                    _count_one(layout.start_ptr, layout.start_code, x, y, layout.n_labels, token_weights[t], counts)
                else:
                    pair = labels[t - 1] * layout.n_labels + y
                    _count_one(layout.bigram_ptr, layout.bigram_code, x, pair, layout.n_labels**2,
                               token_weights[t], counts)  # fmt: skip


@kernel
def _count_one(ptr, code, x, wanted, n_codes, weight, counts):
    """Codes of a run are sorted, so a slot is found by bisection."""
    lo, hi = ptr[x], ptr[x + 1]
    if hi - lo == n_codes:
        counts[lo + wanted] += weight
        return
    base, end = ptr[0], hi
    while lo < hi:
        middle = (lo + hi) // 2
        if code[middle - base] < wanted:
            lo = middle + 1
        else:
            hi = middle
    if lo < end and code[lo - base] == wanted:
        counts[lo] += weight
