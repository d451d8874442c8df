"""A mixture of multinomials on count vectors, by EM (THESIS 5.2): k clusters of bags of observations.

p(bag) = sum_c pi_c prod_f phi_c(f)^count(f). The bags are a sparse matrix in CSR form.
"""

from dataclasses import dataclass

import numpy as np

from engine import threads
from engine.bags import Bags, check_counts, check_csr, select_bags
from engine.errors import EspalierError
from engine.jit import kernel

PIECES = 4  # of the expectation step; fixed, so that sums have one order
HELD_OUT = 5  # one bag in this many judges the number of clusters
NUMBERS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200)  # of clusters that are tried


@dataclass(frozen=True)
class Mixture:
    log_weights: np.ndarray  # float64 [k]
    log_probabilities: np.ndarray  # float64 [k, F]
    log_likelihood: float
    history: list[float]

    def assign(self, indptr: np.ndarray, indices: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """The likeliest cluster of each bag, int32 [N]; an empty bag falls to the largest cluster."""
        posterior = self.responsibilities(indptr, indices, counts)[0]
        return posterior.argmax(axis=1).astype(np.int32)

    def responsibilities(self, indptr, indices, counts) -> tuple[np.ndarray, np.ndarray]:
        """p(cluster | bag) [N, k] and log p(bag) [N]."""
        check_csr(indptr, indices, counts, self.log_probabilities.shape[1])
        return posteriors(indptr, indices, counts, self.log_weights, self.log_probabilities)

    def only(self, clusters: np.ndarray) -> "Mixture":
        """Some of the clusters, their weights raised to a sum of 1; its likelihood is not known."""
        log_weights = self.log_weights[clusters]
        log_weights = log_weights - np.log(np.exp(log_weights).sum())
        return Mixture(log_weights, np.ascontiguousarray(self.log_probabilities[clusters]), float("nan"), [])


def posteriors(indptr, indices, counts, log_weights, log_probabilities) -> tuple[np.ndarray, np.ndarray]:
    """p(component | bag) [N, k] and log p(bag) [N], of multinomials [k, F] with prior weights [k]."""
    size = len(indptr) - 1
    posterior, log_p = np.empty((size, len(log_weights))), np.empty(size)
    by_feature = np.ascontiguousarray(log_probabilities.T)
    threads.run(
        lambda run: _responsibilities(indptr, indices, counts, log_weights, by_feature, *run, posterior, log_p),
        threads.ranges(size, PIECES) if size else [],
    )
    return posterior, log_p


def expected_counts(indptr, indices, counts, n_features: int, posterior: np.ndarray) -> np.ndarray:
    """Counts of each feature in each component [F, k], a bag shared out by its row of `posterior` [N, k]."""
    size, k = posterior.shape

    def piece(run):
        part = np.zeros((n_features, k))
        _accumulate(indptr, indices, counts, posterior, *run, part)
        return part

    return sum(threads.run(piece, threads.ranges(size, PIECES)))


@kernel
def _responsibilities(indptr, indices, counts, log_weights, by_feature, lo, hi, posterior, log_p):
    k = len(log_weights)
    for n in range(lo, hi):
        row = posterior[n]
        row[:] = log_weights
        for i in range(indptr[n], indptr[n + 1]):
            for c in range(k):
                row[c] += counts[i] * by_feature[indices[i], c]
        top = row.max()
        total = 0.0
        for c in range(k):
            row[c] = np.exp(row[c] - top)
            total += row[c]
        row /= total
        log_p[n] = top + np.log(total)


@kernel
def _accumulate(indptr, indices, counts, posterior, lo, hi, by_feature):
    for n in range(lo, hi):
        for i in range(indptr[n], indptr[n + 1]):
            for c in range(posterior.shape[1]):
                by_feature[indices[i], c] += counts[i] * posterior[n, c]


def _check(indptr, indices, counts, n_features: int, k: int, smoothing: float) -> None:
    size = len(indptr) - 1
    if not smoothing > 0:
        raise EspalierError(f"smoothing is {smoothing}: expected more than 0, so that no observation is impossible")
    if size < 1:
        raise EspalierError("there is nothing to cluster: expected at least one count vector")
    if not 1 <= k <= size:
        raise EspalierError(f"{k} clusters for {size} count vectors: choose between 1 and {size}")
    check_counts(indptr, counts)
    check_csr(indptr, indices, counts, n_features)


def fit_mixture(
    indptr, indices, counts, n_features: int, k: int, seed: int = 0, iterations: int = 50, restarts: int = 1,
    smoothing: float = 0.1, tolerance: float = 1e-6,
) -> Mixture:  # fmt: skip
    """The best of `restarts` runs of EM from random responsibilities. Add-`smoothing` keeps phi positive."""
    indptr, indices = np.asarray(indptr, np.int64), np.asarray(indices, np.int32)
    counts = np.asarray(counts, np.float64)
    _check(indptr, indices, counts, n_features, k, smoothing)
    runs = [
        _run(indptr, indices, counts, n_features, k, np.random.default_rng([seed, r]), iterations, smoothing, tolerance)
        for r in range(restarts)
    ]
    return max(runs, key=lambda mixture: mixture.log_likelihood)


def _run(indptr, indices, counts, n_features, k, random, iterations, smoothing, tolerance) -> Mixture:
    posterior = random.dirichlet(np.ones(k), size=len(indptr) - 1)
    history: list[float] = []
    for _ in range(max(1, iterations)):
        mixture = _maximise(indptr, indices, counts, n_features, posterior, smoothing, history)
        posterior, log_p = mixture.responsibilities(indptr, indices, counts)
        history.append(float(log_p.sum()))
        if len(history) > 1 and abs(history[-1] - history[-2]) <= tolerance * abs(history[-1]):
            break
    return Mixture(mixture.log_weights, mixture.log_probabilities, history[-1], history)


def _maximise(indptr, indices, counts, n_features, posterior, smoothing, history) -> Mixture:
    size, k = posterior.shape
    total = expected_counts(indptr, indices, counts, n_features, posterior)
    phi = (total + smoothing) / (total + smoothing).sum(axis=0)
    weights = (posterior.sum(axis=0) + smoothing) / (size + k * smoothing)
    return Mixture(np.log(weights), np.ascontiguousarray(np.log(phi).T), float("nan"), history)


def drop_empty(mixture: Mixture, indptr, indices, counts) -> Mixture:
    """The mixture without the clusters that are the likeliest one of no bag; the others keep their order."""
    kept = np.unique(mixture.assign(indptr, indices, counts))
    return mixture if len(kept) in (0, len(mixture.log_weights)) else mixture.only(kept)


def choose_clusters(
    indptr, indices, counts, n_features: int, most: int, seed: int = 0, **options
) -> tuple[int, dict[int, float]]:
    """The number of clusters, at most `most`, with the best likelihood of bags that were held out.

    Returns it and the held-out log-likelihood a bag of every number that was tried: those of NUMBERS and
    `most` itself. A fifth of the bags, drawn by the seed, is held out. `options` are those of `fit_mixture`.
    """
    bags = Bags(np.asarray(indptr, np.int64), np.asarray(indices, np.int32), np.asarray(counts, np.float64), n_features)
    check_csr(*bags)
    if most < 1:
        raise EspalierError(f"at most {most} clusters: expected at least 1")
    order = np.random.default_rng([seed, bags.size]).permutation(bags.size)
    held = bags.size // HELD_OUT
    if not held:
        return 1, {}
    judges, learners = select_bags(bags, np.sort(order[:held])), select_bags(bags, np.sort(order[held:]))
    most, found = min(most, learners.size), {}
    for k in sorted({*(k for k in NUMBERS if k < most), most}):
        mixture = fit_mixture(*learners, k, seed, **options)
        found[k] = float(mixture.responsibilities(*judges[:3])[1].mean())
    return max(found, key=lambda k: (found[k], -k)), found


def bags(observations: np.ndarray, offsets: np.ndarray):
    """Count vectors of sequences: (indptr, indices, counts) of the observations >= 0 of each sequence."""
    positions, templates = observations.shape
    sequence = np.repeat(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), templates)
    flat = observations.ravel()
    keep = flat >= 0
    width = int(flat.max(initial=0)) + 1
    pairs, counts = np.unique(sequence[keep].astype(np.int64) * width + flat[keep], return_counts=True)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs // width, minlength=len(offsets) - 1))])
    return indptr.astype(np.int64), (pairs % width).astype(np.int32), counts.astype(np.float64)
