"""Multinomial naive Bayes on count vectors, and its EM with unlabelled ones (THESIS 2.2.2, 4.2, alg. 6).

p(x, y) = pi_y prod_f phi_y(f)^count(f). Labelled vectors enter the expectation step with their label, unlabelled
ones with p(y | x). Add-`smoothing` on the counts of features is a Dirichlet prior; what EM climbs, and what
`history` holds, is the log-likelihood (4.2) plus that prior: it never falls. pi is not smoothed (2.10).
"""

from dataclasses import dataclass

import numpy as np

from espalier.engine.data.bags import (
    Bags,
    check_instance_weights,
    check_labels,
    refuse_empty_pool,
    refuse_missing_class,
)
from espalier.engine.errors import EspalierError
from espalier.engine.runtime.vectors import dot, log
from espalier.engine.semisup.mixture import expected_counts, posteriors


@dataclass(frozen=True)
class NaiveBayes:
    log_prior: np.ndarray  # float64 [K]
    log_features: np.ndarray  # float64 [K, F]
    log_likelihood: float  # of labelled and unlabelled data (4.1, 4.2), weighted
    history: list[float]  # with the prior of the smoothing, after each iteration of EM

    def probabilities(self, bags: Bags) -> np.ndarray:
        """p(y | x) [N, K]."""
        return self._posteriors(bags)[0]

    def predict(self, bags: Bags) -> np.ndarray:
        """The likeliest class of each vector, int64 [N]."""
        return self.probabilities(bags).argmax(axis=1)

    def log_joint(self, bags: Bags, labels: np.ndarray) -> np.ndarray:
        """log p(x, y) [N], without the multinomial coefficient, which no parameter changes."""
        row = np.repeat(np.arange(bags.size), np.diff(bags.indptr))
        terms = bags.counts * self.log_features[labels[row], bags.indices]
        return self.log_prior[labels] + np.bincount(row, terms, minlength=bags.size)

    def _posteriors(self, bags: Bags) -> tuple[np.ndarray, np.ndarray]:
        if bags.n_features != self.log_features.shape[1]:
            raise EspalierError(
                f"count vectors over {bags.n_features} features: expected the {self.log_features.shape[1]} of the model"
            )
        return posteriors(bags.indptr, bags.indices, bags.counts, self.log_prior, self.log_features)


def fit_naive_bayes(
    bags: Bags, labels, n_classes: int = 2, weights=None, smoothing: float = 1.0, pool: Bags | None = None,
    pool_weights=None, iterations: int = 100, tolerance: float = 1e-8,
) -> NaiveBayes:  # fmt: skip
    """The supervised estimate, and from there EM with the vectors of `pool` if there is one.

    An example of weight 2 counts as two, in the pool too: `pool_weights` below 1 let it speak less.
    """
    labels = check_labels(labels, bags.size, n_classes)
    weights = check_instance_weights(weights, bags.size)
    if not (np.isfinite(smoothing) and smoothing > 0):
        raise EspalierError(f"smoothing is {smoothing}: expected more than 0, so that no observation is impossible")
    refuse_missing_class(labels, weights, n_classes)
    known = np.zeros((bags.size, n_classes))
    known[np.arange(bags.size), labels] = weights
    observed, members = _counts(bags, known), known.sum(axis=0)
    model = _maximise(observed, members, smoothing)
    if pool is None:
        likelihood = dot(weights, model.log_joint(bags, labels))
        return NaiveBayes(model.log_prior, model.log_features, likelihood, [likelihood + _prior(model, smoothing)])
    refuse_empty_pool(pool)
    pool_weights = check_instance_weights(pool_weights, pool.size)
    history: list[float] = []
    posterior, log_p = model._posteriors(pool)
    while True:
        likelihood = dot(weights, model.log_joint(bags, labels)) + dot(pool_weights, log_p)
        history.append(likelihood + _prior(model, smoothing))
        gain = history[-1] - history[-2] if len(history) > 1 else np.inf
        if len(history) > iterations or gain <= tolerance * abs(history[-1]):
            return NaiveBayes(model.log_prior, model.log_features, likelihood, history)
        shares = posterior * pool_weights[:, None]
        model = _maximise(observed + _counts(pool, shares), members + shares.sum(axis=0), smoothing)
        posterior, log_p = model._posteriors(pool)


def _counts(bags: Bags, shares: np.ndarray) -> np.ndarray:
    return expected_counts(bags.indptr, bags.indices, bags.counts, bags.n_features, shares)


def _maximise(counts: np.ndarray, members: np.ndarray, smoothing: float) -> NaiveBayes:
    """pi and phi from expected members [K] and expected counts [F, K]."""
    phi = (counts + smoothing) / (counts + smoothing).sum(axis=0)
    return NaiveBayes(log(members / members.sum()), np.ascontiguousarray(log(phi).T), float("nan"), [])


def _prior(model: NaiveBayes, smoothing: float) -> float:
    """The logarithm of the Dirichlet prior, up to a constant."""
    return float(smoothing * model.log_features.sum())
