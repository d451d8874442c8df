"""A mixture of multinomials on count vectors, by EM (THESIS 5.2): k clusters of bags of observations.

p(bag) = sum_c pi_c prod_f phi_c(f)^count(f). The bags are a sparse matrix in CSR form.

Many bags are cut into groups, by their number alone. What a step of EM needs of a group is a sum,
and sums over groups are the nodes of the tree of `engine.parts.sharded_objective`; so groups may lie in several
processes, and the mixture is the same bytes however they lie.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from espalier.engine.data.bags import Bags, check_counts, check_csr, select_bags
from espalier.engine.errors import EspalierError
from espalier.engine.parts.sharded_objective import Node, cover, root_of
from espalier.engine.runtime import threads
from espalier.engine.runtime.inner_loops import put
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.vectors import exp, log

GROUP = 50_000  # bags whose counts are summed as one
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
        return likeliest(self.responsibilities(indptr, indices, counts)[0])

    def responsibilities(self, indptr, indices, counts) -> tuple[np.ndarray, np.ndarray]:
        """p(cluster | bag) [N, k] and log p(bag) [N]."""
        check_csr(indptr, indices, counts, self.log_probabilities.shape[1])
        return posteriors(indptr, indices, counts, self.log_weights, self.log_probabilities)

    def only(self, clusters: np.ndarray) -> "Mixture":
        """Some of the clusters, their weights raised to a sum of 1; its likelihood is not known."""
        log_weights = self.log_weights[clusters]
        log_weights = log_weights - log(exp(log_weights).sum())
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
        put(log_weights, row)
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
    return fit_groups(in_memory(Bags(indptr, indices, counts, n_features)), k, seed, iterations, restarts, smoothing,
                      tolerance)  # fmt: skip


def fit_groups(
    groups: "Groups", k: int, seed: int = 0, iterations: int = 50, restarts: int = 1, smoothing: float = 0.1,
    tolerance: float = 1e-6,
) -> Mixture:  # fmt: skip
    """The same for bags in groups, wherever these lie."""
    if not 1 <= k <= groups.size:
        raise EspalierError(f"{k} clusters for {groups.size} count vectors: choose between 1 and {groups.size}")
    runs = [_run(groups, k, seed, r, iterations, smoothing, tolerance) for r in range(restarts)]
    return max(runs, key=lambda mixture: mixture.log_likelihood)


def _run(groups: "Groups", k: int, seed: int, restart: int, iterations: int, smoothing: float, tolerance: float):
    sums = groups.sums("begin", k, seed, restart)
    history: list[float] = []
    for _ in range(max(1, iterations)):
        mixture = _maximise(sums, groups.size, smoothing)
        sums = groups.sums("expect", mixture.log_weights, mixture.log_probabilities)
        history.append(sums.log_likelihood)
        if len(history) > 1 and abs(history[-1] - history[-2]) <= tolerance * abs(history[-1]):
            break
    return Mixture(mixture.log_weights, mixture.log_probabilities, history[-1], history)


def _maximise(sums: "Sums", size: int, smoothing: float) -> Mixture:
    k = len(sums.weights)
    phi = (sums.counts + smoothing) / (sums.counts + smoothing).sum(axis=0)
    weights = (sums.weights + smoothing) / (size + k * smoothing)
    return Mixture(log(weights), np.ascontiguousarray(log(phi).T), float("nan"), [])


# ---- groups of bags


@dataclass(frozen=True)
class Sums:
    """What EM needs of some bags."""

    counts: np.ndarray  # float64 [F, k], of each feature in each cluster
    weights: np.ndarray  # float64 [k], bags in each cluster
    log_likelihood: float

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.counts + other.counts, self.weights + other.weights,
                    self.log_likelihood + other.log_likelihood)  # fmt: skip


def group_bounds(size: int) -> list[tuple[int, int]]:
    """Runs of bags that are groups."""
    return threads.ranges(size, math.ceil(size / GROUP)) if size else []


class GroupPart:
    """Groups [first, first + K) of `n_groups`, held in this process."""

    def __init__(self, groups: Sequence[Bags], first: int, n_groups: int):
        self.groups, self.first, self.n_groups = groups, first, n_groups

    def sums(self, what: str, *arguments) -> list[tuple[Node, Sums]]:
        """Of the largest nodes of the tree within the part. What: begin(k, seed, restart) or expect(mixture)."""
        nodes = cover(self.first, self.first + len(self.groups), self.n_groups)
        leaf = self._begin if what == "begin" else self._expect
        return [(node, add_up(node, self.n_groups, lambda g: leaf(g, *arguments))) for node in nodes]

    def rows(self, what: str, *mixture: np.ndarray) -> np.ndarray:
        """One row for each bag. What: posteriors [N, k], clusters [N] or log_p [N]."""
        found = []
        for bags in self.groups:
            posterior, log_p = posteriors(*bags[:3], *mixture)
            found.append(
                {"posteriors": posterior, "log_p": log_p}[what] if what != "clusters" else likeliest(posterior)
            )
        return np.concatenate(found)

    def _begin(self, node: Node, k: int, seed: int, restart: int) -> Sums | None:
        """Random responsibilities; each group draws its own."""
        if node[0]:
            return None
        bags = self.groups[node[1] - self.first]
        random = np.random.default_rng([seed, restart, node[1]] if node[1] else [seed, restart])
        posterior = random.dirichlet(np.ones(k), size=bags.size)
        return Sums(expected_counts(*bags, posterior), posterior.sum(axis=0), 0.0)

    def _expect(self, node: Node, *mixture: np.ndarray) -> Sums | None:
        if node[0]:
            return None
        bags = self.groups[node[1] - self.first]
        posterior, log_p = posteriors(*bags[:3], *mixture)
        return Sums(expected_counts(*bags, posterior), posterior.sum(axis=0), float(log_p.sum()))


def add_up(node: Node, n_groups: int, known: Callable[[Node], Sums | None]) -> Sums:
    """The sum of a node: what is known of it, or that of its left child plus that of its right one."""
    found = known(node)
    if found is not None:
        return found
    level, index = node[0] - 1, 2 * node[1]
    left = add_up((level, index), n_groups, known)
    return left if (index + 1) << level >= n_groups else left + add_up((level, index + 1), n_groups, known)


def add_nodes(found: Iterable[tuple[Node, Sums]], n_groups: int) -> Sums:
    """The sum over all groups from those of nodes that parts have found."""
    return add_up(root_of(n_groups), n_groups, dict(found).get)


class Groups(Protocol):
    """Bags in groups, wherever they lie; see `GroupPart` for what can be asked."""

    size: int  # bags in all

    def sums(self, what: str, *arguments) -> Sums: ...

    def rows(self, what: str, *mixture: np.ndarray) -> np.ndarray: ...


class GroupsHere:
    """All groups in this process."""

    def __init__(self, part: GroupPart):
        self.part, self.size, self.rows = part, sum(bags.size for bags in part.groups), part.rows

    def sums(self, what: str, *arguments) -> Sums:
        return add_nodes(self.part.sums(what, *arguments), self.part.n_groups)


def in_memory(bags: Bags) -> GroupsHere:
    """Bags of this process, cut into groups; nothing is copied but pointers."""
    bounds = group_bounds(bags.size)
    return GroupsHere(GroupPart([run_of_bags(bags, lo, hi) for lo, hi in bounds], 0, len(bounds)))


def run_of_bags(bags: Bags, lo: int, hi: int) -> Bags:
    begin, end = bags.indptr[lo], bags.indptr[hi]
    return Bags(bags.indptr[lo : hi + 1] - begin, bags.indices[begin:end], bags.counts[begin:end], bags.n_features)


def likeliest(posterior: np.ndarray) -> np.ndarray:
    """The likeliest cluster of each bag, int32 [N]."""
    return posterior.argmax(axis=1).astype(np.int32)


def drop_empty(mixture: Mixture, indptr, indices, counts) -> Mixture:
    """The mixture without the clusters that are the likeliest one of no bag; the others keep their order."""
    return without_empty(mixture, mixture.assign(indptr, indices, counts))


def without_empty(mixture: Mixture, clusters: np.ndarray) -> Mixture:
    """The same when the likeliest clusters are known."""
    kept = np.unique(clusters)
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
    judges, learners = (select_bags(bags, rows) for rows in held_out(bags.size, seed))
    return best_number(in_memory(judges), in_memory(learners), most, seed, **options)


def held_out(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(the fifth of the bags that judges the number of clusters, the others), each ascending."""
    order = np.random.default_rng([seed, size]).permutation(size)
    held = size // HELD_OUT
    return np.sort(order[:held]), np.sort(order[held:])


def best_number(judges: Groups, learners: Groups, most: int, seed: int, **options) -> tuple[int, dict[int, float]]:
    """As `choose_clusters`, for bags in groups."""
    if not judges.size:
        return 1, {}
    most, found = min(most, learners.size), {}
    for k in sorted({*(k for k in NUMBERS if k < most), most}):
        mixture = fit_groups(learners, k, seed, **options)
        found[k] = float(judges.rows("log_p", mixture.log_weights, mixture.log_probabilities).mean())
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
