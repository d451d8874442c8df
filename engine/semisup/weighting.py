"""Weights of labelled examples from the marginal of their inputs (THESIS 4.18, 5.2), and drift of that marginal.

Pure functions over ids: an input is known by a key (equal inputs, equal keys) or by its cluster; documents and
sequences are the same here. A weight vector is as the formula gives it; `mean_one` brings it to the mean 1, so that a
penalty weighs as much as without weights.
"""

import math
from dataclasses import dataclass

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.runtime.vectors import log


def mean_one(weights: np.ndarray) -> np.ndarray:
    """The weights times one number, so that their mean is 1; all 1 when none is above 0."""
    return weights / weights.mean() if weights.any() else np.ones(len(weights))


def _check_ids(ids, k: int, what: str) -> np.ndarray:
    ids = np.asarray(ids)
    if len(ids) and not (ids.min() >= 0 and ids.max() < k):
        bad = ids.min() if ids.min() < 0 else ids.max()
        raise EspalierError(f"{what} {int(bad)}: expected ids from 0 to {k - 1}")
    return ids


def _check_distribution(q, name: str) -> np.ndarray:
    q = np.asarray(q, dtype=np.float64)
    bad = np.flatnonzero(~(np.isfinite(q) & (q >= 0)))
    if len(bad):
        raise EspalierError(f"{name}[{bad[0]}] is {q[bad[0]]}: expected a finite probability of at least 0")
    return q


def known_weights(keys, q) -> np.ndarray:
    """w_i = q(x_i) / #{j: x_j = x_i} (4.18). Their sum is the probability of the inputs that were seen."""
    q = _check_distribution(q, "q")
    keys = _check_ids(keys, len(q), "input")
    return q[keys] / np.bincount(keys, minlength=len(q))[keys]


def covariate_weights(keys, q1, q0) -> np.ndarray:
    """w_i = q1(x_i) / q0(x_i) (Shimodaira): test over training probability, both known."""
    q1, q0 = _check_distribution(q1, "q1"), _check_distribution(q0, "q0")
    if len(q1) != len(q0):
        raise EspalierError(f"q1 has {len(q1)} inputs and q0 {len(q0)}: expected the same inputs in both")
    keys = _check_ids(keys, len(q1), "input")
    impossible = keys[q0[keys] == 0]
    if len(impossible):
        raise EspalierError(
            f"input {int(impossible[0])} is among the training examples, but q0 gives it the probability 0: "
            "expected q0 to be the distribution they were drawn from"
        )
    return q1[keys] / q0[keys]


def mixture_weights(posterior: np.ndarray, shares: np.ndarray, q1: np.ndarray, q0: np.ndarray) -> np.ndarray:
    """q1(x_i) / q0(x_i) where both are mixtures of the same clusters with the proportions q1 and q0 [k].

    `posterior` [n, k] is p(cluster | x_i) under the proportions `shares`, so that the density of x_i within a
    cluster is p(cluster | x_i) / shares up to a number that cancels.
    """
    within = posterior / shares
    return (within * q1).sum(axis=1) / (within * q0).sum(axis=1)


def proportions(posterior: np.ndarray, shares: np.ndarray, iterations: int = 100) -> np.ndarray:
    """The likeliest proportions of the clusters in some inputs, [k], by EM with the clusters themselves fixed."""
    if not len(posterior):
        raise EspalierError("there is no input to take proportions of: expected at least one")
    within, found = posterior / shares, shares
    for _ in range(iterations):
        joint = within * found
        found = (joint / joint.sum(axis=1, keepdims=True)).mean(axis=0)
    return found


def cluster_weights(labelled, pool, k: int) -> np.ndarray:
    """w_i = q(cluster of i) / labelled examples in it (5.2), to the mean 1; 1 when no cluster is shared."""
    here = np.bincount(_check_ids(labelled, k, "cluster"), minlength=k)
    there = np.bincount(_check_ids(pool, k, "cluster"), minlength=k) / max(1, len(pool))
    return mean_one(np.divide(there, here, out=np.zeros(k), where=here > 0)[labelled])


def back_off(labelled, pool, centres: np.ndarray) -> np.ndarray:
    """A group for each cluster, int32 [k], such that every group with unlabelled inputs has a labelled example.

    (5.2) loses the mass of a cluster without labelled examples. Here such a cluster is merged with the one most
    like it (the least Jensen-Shannon divergence between centres [k, F]; a group's centre is the mean of its
    inputs'), the closest pair first, until none is left. A group is named by its first cluster.
    """
    k = len(centres)
    here = np.bincount(_check_ids(labelled, k, "cluster"), minlength=k)
    there = np.bincount(_check_ids(pool, k, "cluster"), minlength=k)
    if not here.any():
        raise EspalierError("no labelled example at all: expected at least one to carry the weight of the pool")
    group, centres = np.arange(k), np.array(centres, dtype=np.float64)
    mass = (here + there).astype(np.float64)
    alive = mass > 0
    while np.any(alive & (here == 0)):
        first, second = _closest(centres, np.flatnonzero(alive & (here == 0)), np.flatnonzero(alive))
        keep, gone = min(first, second), max(first, second)
        centres[keep] = (mass[keep] * centres[keep] + mass[gone] * centres[gone]) / (mass[keep] + mass[gone])
        for sums in (here, there, mass):
            sums[keep] += sums[gone]
        alive[gone] = False
        group[group == gone] = keep
    return group.astype(np.int32)


def _closest(centres: np.ndarray, empty: np.ndarray, others: np.ndarray) -> tuple[int, int]:
    """The pair of an empty cluster and another one whose centres are most alike; among equals the first."""
    pairs = [(int(e), int(o)) for e in empty for o in others if e != o]
    return min(pairs, key=lambda pair: jensen_shannon(centres[pair[0]], centres[pair[1]]))


def effective_sample_size(weights: np.ndarray) -> float:
    """(sum w)^2 / sum w^2: how many equal weights would vary as little."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def refuse_few_effective(weights: np.ndarray, least: float) -> float:
    """The effective sample size; an error when it is less than the share `least` of the examples."""
    size = effective_sample_size(weights)
    if size < least * len(weights):
        raise EspalierError(
            f"the weights are worth {size:.1f} of {len(weights)} examples, less than the share {least:g} that is "
            "asked for: use fewer clusters, label more of what is rare, or weigh by method none"
        )
    return size


# ---- drift


def jensen_shannon_parts(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """What each entry adds to the Jensen-Shannon divergence, in bits; none is below 0."""
    middle = (p + q) / 2
    parts = np.zeros(len(middle))
    for side in (p, q):
        some = side > 0
        parts[some] += side[some] * log(side[some] / middle[some]) / (2 * math.log(2))
    return np.maximum(parts, 0.0)


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> float:
    """Jensen-Shannon divergence in bits, between 0 and 1."""
    return float(jensen_shannon_parts(p, q).sum())


@dataclass(frozen=True)
class Drift:
    """Cluster frequencies of new inputs against those of the training inputs."""

    before: np.ndarray  # int64 [k]
    after: np.ndarray  # int64 [k]
    parts: np.ndarray  # float64 [k], bits
    examples: list[np.ndarray]  # for each cluster the first few of the new inputs in it

    @property
    def total(self) -> float:
        """The divergence in bits."""
        return float(self.parts.sum())

    def order(self) -> np.ndarray:
        """Clusters by what they add, the most first."""
        return np.argsort(-self.parts, kind="stable")


def drift(before, after, k: int, examples: int = 5) -> Drift:
    """Compare the clusters of training inputs with those of new ones; neither may be empty."""
    before, after = _check_ids(before, k, "cluster"), _check_ids(after, k, "cluster")
    for ids, name in ((before, "training"), (after, "new")):
        if not len(ids):
            raise EspalierError(f"there is no {name} input: expected at least one to compare")
    here, there = np.bincount(before, minlength=k), np.bincount(after, minlength=k)
    parts = jensen_shannon_parts(here / here.sum(), there / there.sum())
    return Drift(here, there, parts, [np.flatnonzero(after == c)[:examples] for c in range(k)])
