"""Spam or not (THESIS 5.2): logistic regression on word counts, weighted by clusters of all mails or not.

All mails, without their labels, are clustered by a mixture of multinomials. A labelled mail then gets the weight
q(its cluster) / labelled mails in its cluster. The mails that are not labelled are the test.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from espalier.engine.data.bags import Bags, make_bags, select_bags, with_constant
from espalier.engine.families.logistic import LogisticEntropy, LogisticModel, LogisticObjective, fit_logistic
from espalier.engine.families.naive_bayes import fit_naive_bayes
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.semisup.entropy import minimise_with_entropy
from espalier.engine.semisup.mixture import fit_mixture
from espalier.engine.semisup.weighting import cluster_weights, effective_sample_size
from espalier.tasks.experiments.semisup import spread
from espalier.tasks.formats import libsvm

TOLERANCE = 1e-6


class Mails(NamedTuple):
    bags: Bags
    spam: np.ndarray  # int64 [N], 1 for spam


def frequent(bags: Bags, words: int) -> np.ndarray:
    """The words that occur in most mails, ids ascending; of equally frequent ones the first."""
    documents = np.bincount(bags.indices, minlength=bags.n_features)
    return np.sort(np.argsort(-documents, kind="stable")[:words])


def with_features(bags: Bags, features: np.ndarray) -> Bags:
    """Counts of some features only, numbered anew."""
    new = np.full(bags.n_features, -1, np.int64)
    new[features] = np.arange(len(features))
    keep = new[bags.indices] >= 0
    row = np.repeat(np.arange(bags.size), np.diff(bags.indptr))[keep]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=bags.size))])
    return make_bags(indptr, new[bags.indices[keep]], bags.counts[keep], len(features))


def distinct(bags: Bags) -> np.ndarray:
    """The first of each set of equal bags; a repeated mail in sample and test would be no test."""
    seen, first = set(), []
    for n in range(bags.size):
        run = slice(bags.indptr[n], bags.indptr[n + 1])
        key = bags.indices[run].tobytes() + bags.counts[run].tobytes()
        if key not in seen:
            seen.add(key)
            first.append(n)
    return np.array(first, np.int64)


def prepare(bags: Bags, spam: np.ndarray, words: int) -> Mails:
    """Distinct mails over the most frequent words; those without any of them go."""
    kept = distinct(bags)
    narrow = with_features(select_bags(bags, kept), frequent(bags, words))
    filled = np.flatnonzero(np.diff(narrow.indptr) > 0)
    return Mails(select_bags(narrow, filled), spam[kept][filled])


def draw(spam: np.ndarray, n: int, seed: list[int]) -> np.ndarray:
    """n mails at random, both kinds among them."""
    random = np.random.default_rng(seed)
    while True:
        chosen = np.sort(random.choice(len(spam), n, replace=False))
        if 0 < spam[chosen].sum() < n:
            return chosen


# Ways to learn --------------------------------------------------------------------------------------


def error(model, test: Bags, spam: np.ndarray) -> float:
    return float(np.mean(model.predict(test) != spam))


def with_entropy(train: Bags, spam: np.ndarray, pool: Bags, rho2: float, strength: float) -> LogisticModel:
    """Logistic regression that is also told to be sure of the pool (4.5), which weighs `strength` times the sample."""
    labelled = LogisticObjective(train, spam)
    entropy = LogisticEntropy(pool, 2, strength * train.size / pool.size)
    result = minimise_with_entropy(labelled, entropy, ElasticNet(0.0, rho2))[1]
    return LogisticModel(result.theta, 2, train.n_features, "reference", result)


class Choices(NamedTuple):
    """Values of the free parameters that are tried."""

    penalties: list[float]  # rho2 of logistic regression
    smoothings: list[float]  # of naive Bayes
    strengths: list[float]  # of the entropy, with the middle penalty


def replicate(mails: Mails, clusters: np.ndarray, k: int, n: int, choices: Choices, seed: list[int]) -> dict:
    """Errors of each way to learn on the mails that were not drawn, one for each value of its free parameter."""
    sample = draw(mails.spam, n, seed)
    rest = np.setdiff1d(np.arange(mails.bags.size), sample)
    train, test = select_bags(mails.bags, sample), select_bags(mails.bags, rest)
    known, hidden = with_constant(train), with_constant(test)  # naive Bayes has a prior instead
    spam, truth = mails.spam[sample], mails.spam[rest]
    weights = cluster_weights(clusters[sample], clusters, k)
    middle = choices.penalties[len(choices.penalties) // 2]

    def logistic(rho2: float, w: np.ndarray | None) -> LogisticModel:
        return fit_logistic(known, spam, weights=w, penalty=ElasticNet(0.0, rho2), tolerance=TOLERANCE)

    errors = {
        "logistic": [error(logistic(rho2, None), hidden, truth) for rho2 in choices.penalties],
        "clusters": [error(logistic(rho2, weights), hidden, truth) for rho2 in choices.penalties],
        "bayes": [error(fit_naive_bayes(train, spam, smoothing=s), test, truth) for s in choices.smoothings],
        "em": [error(fit_naive_bayes(train, spam, smoothing=s, pool=test), test, truth) for s in choices.smoothings],
        "entropy": [error(with_entropy(known, spam, hidden, middle, s), hidden, truth) for s in choices.strengths],
    }
    return {"errors": errors, "effective_sample_size": effective_sample_size(weights)}


def compared(n: int, replications: int, seed: int, words: int, k: int, choices: dict, corpus: Path) -> dict:
    """The cell of one sample size: errors of each way, replication by replication."""
    documents = libsvm.read(corpus)
    features = int(documents.indices.max(initial=0)) + 1
    bags = make_bags(documents.indptr, documents.indices, documents.counts, features)
    spam = (documents.labels > 0).astype(np.int64)
    mails = prepare(bags, spam, words)
    mixture = fit_mixture(
        mails.bags.indptr, mails.bags.indices, mails.bags.counts, words, k, seed, iterations=100, restarts=3
    )
    clusters = mixture.assign(mails.bags.indptr, mails.bags.indices, mails.bags.counts)
    rows = [replicate(mails, clusters, k, n, Choices(**choices), [seed, n, r]) for r in range(replications)]
    return {
        "n": n, "mails": mails.bags.size, "spam_share": float(mails.spam.mean()), "words": mails.bags.n_features,
        "clusters": [{"mails": int((clusters == c).sum()), "spam": int(mails.spam[clusters == c].sum())}
                     for c in range(k)],
        "effective_sample_size": spread(np.array([row["effective_sample_size"] for row in rows])),
        "errors": {way: [[row["errors"][way][i] for row in rows] for i in range(len(rows[0]["errors"][way]))]
                   for way in rows[0]["errors"]},
    }  # fmt: skip
