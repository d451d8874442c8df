"""What estimators of a logistic regression are off by at a given n, where the limits are still far.

The limits of `engine.semisup.asymptotics` let n grow until every input has been seen many times and the penalty is
nothing. At a finite n the semi-supervised estimator pays for inputs that are rare: their conditional is estimated
from N(x) observations, E[1/N(x)] is more than 1/E[N(x)], and inputs that were not seen are missing from its sum. All
estimators pay for the penalty. Here the mean and the covariance of the gradient are exact for that n, and only the
step from gradient to estimate is linear. With s(theta) the gradient of sum_{x,y} w(x, y) * loss,

    theta_n solves E[s(theta)] + 2 ridge theta = 0                     where the estimate lies on average
    C       = A^-1 Cov[s(theta_n)] A^-1,  A = dE[s]/dtheta + 2 ridge   how it varies about that
    risk    = R(theta_n) - R(theta*) + trace(J C) / 2                  what is expected of its excess risk

For the weights q(x) n(x, y) / N(x), with N(x) binomial of n and q_train(x), and [x] one for inputs that were seen,

    E[s]   = sum_x P(N(x) > 0) q(x) x (x) (g - eta)
    Cov[s] = sum_x q(x)^2 E[[x] / N(x)] xx' (x) (diag(eta) - eta eta') + sum_{x,x'} Cov([x], [x']) d(x) d(x')'

with d(x) = q(x) x (x) (g - eta). As n grows, n Cov[s] tends to H.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.semisup import asymptotics
from espalier.engine.semisup.asymptotics import best_fit, information, moment, probabilities, risk, solve, spread

ESTIMATORS = ("supervised", "weighted", "semisupervised")
REACH = 40  # standard deviations beyond which a binomial has no mass that a float could tell


class Expected(NamedTuple):
    """n times the expected squared error and the expected excess risk."""

    squared_error: float
    excess_risk: float


class Marginals(NamedTuple):
    """Where samples come from, and where the risk is taken."""

    train: np.ndarray  # float64 [X]
    test: np.ndarray  # float64 [X]


def mean_inverse(n: int, q: np.ndarray) -> np.ndarray:
    """E[1{N > 0} / N] of binomial N with n trials of probability q, for each q."""
    k = np.arange(1, n + 1)
    ways = np.cumsum(np.log((n - k + 1) / k))  # log of n over k

    def inner(p: float) -> float:
        room = REACH * (1 + np.sqrt(n * p * (1 - p)))
        near = slice(max(0, int(n * p - room)), int(n * p + room))
        log_p = ways[near] + k[near] * np.log(p) + (n - k[near]) * np.log1p(-p)
        return float(np.exp(log_p) @ (1 / k[near]))

    known = {p: inner(p) for p in set(q.tolist()) if 0 < p < 1}
    return np.array([known.get(p, 1 / n if p >= 1 else 0.0) for p in q.tolist()])


def unseen(n: int, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(N(x) = 0) for each input, and the covariance of these events [X, X]."""
    never = (1 - q) ** n
    both = np.maximum(1 - q[:, None] - q[None, :], 0.0) ** n
    np.fill_diagonal(both, never)
    return never, both - never[:, None] * never[None, :]


def mean_weights(estimator: str, marginals: Marginals, n: int) -> np.ndarray:
    """E[sum_y w(x, y)] for each input: how much of it the expected gradient sees."""
    if estimator == "supervised":
        return marginals.train
    if estimator == "weighted":
        return marginals.test
    return marginals.test * (1 - unseen(n, marginals.train)[0])


def gradient_covariance(
    estimator: str, features: np.ndarray, marginals: Marginals, eta: np.ndarray, theta: np.ndarray, n: int
) -> np.ndarray:
    """Cov[s(theta)] over samples of size n, [D, D]."""
    train, test = marginals
    q = train if estimator == "supervised" else test
    away = (q[:, None] * (probabilities(features, theta) - eta))[:, 1:]
    pull = (features[:, :, None] * away[:, None, :]).reshape(len(features), -1)  # d(x), one row for each input
    if estimator == "semisupervised":
        within = moment(features, q**2 * mean_inverse(n, train), spread(eta))
        return within + pull.T @ unseen(n, train)[1] @ pull
    mean = pull.sum(axis=0)
    return (information(features, q, eta, theta, train).i - np.outer(mean, mean)) / n


def expected(estimator: str, features, q_train, q_test, eta, n: int, strength: float = 0.0) -> Expected:
    """What is expected of an estimator at this n; its penalty is strength / n * (mean mass of its weights) * |theta|^2.

    The risk, and the optimum that errors are measured from, are those of the marginal that the estimator tends to:
    q_train without weights, else q_test.
    """
    if estimator not in ESTIMATORS:
        raise EspalierError(f"unknown estimator {estimator!r}: expected one of {', '.join(ESTIMATORS)}")
    if n < 1:
        raise EspalierError(f"the sample size is {n}: expected at least 1")
    features, train, eta = asymptotics.checked(features, q_train, eta)
    marginals = Marginals(train, asymptotics.checked(features, q_test, eta)[1])
    q = train if estimator == "supervised" else marginals.test
    weights = mean_weights(estimator, marginals, n)
    ridge = strength / n * float(weights.sum())
    best, centre = best_fit(features, q, eta), asymptotics.minimum(features, weights, eta, ridge)
    covariance = gradient_covariance(estimator, features, marginals, eta, centre, n)
    g = spread(probabilities(features, centre))
    curved = moment(features, weights, g) + 2 * ridge * np.eye(best.size)
    errors = solve(curved, solve(curved, covariance).T)
    shift = risk(features, q, eta, centre) - risk(features, q, eta, best)
    around = float(np.trace(moment(features, q, g) @ errors)) / 2
    return Expected(n * float(((centre - best) ** 2).sum() + np.trace(errors)), n * (shift + around))
