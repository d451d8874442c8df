"""Estimators at a given n: moments of the gradient over all samples, limits as n grows, and simulated samples."""

import numpy as np
import pytest
from reference import asymptotics as reference

from espalier.engine.errors import EspalierError
from espalier.engine.semisup import count_tables
from espalier.engine.semisup.asymptotics import best_fit, shifted, theory
from espalier.engine.semisup.finite_samples import (
    ESTIMATORS,
    Marginals,
    expected,
    gradient_covariance,
    mean_inverse,
    mean_weights,
    unseen,
)

ROUNDING = 1e-12
LINEAR = 0.04  # what the step from gradient to estimate may be off by at the n below


def random_problem(seed, classes=2, inputs=3, features=2):
    rng = np.random.default_rng(seed)
    q_train, q_test = rng.dirichlet(np.full(inputs, 3.0), size=2)
    return rng.normal(size=(inputs, features)), q_train, q_test, rng.dirichlet(np.full(classes, 3.0), size=inputs)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(("classes", "n"), [(2, 5), (3, 3)])
def test_moments_of_the_gradient_are_those_of_all_samples(estimator, classes, n):
    x, train, test, eta = random_problem(3, classes)
    theta = np.random.default_rng(4).normal(size=(2, classes - 1))
    mean, covariance = reference.gradient_moments(estimator, theta, x, train, test, eta, n)
    marginals = Marginals(train, test)
    found = gradient_covariance(estimator, x, marginals, eta, theta, n)
    np.testing.assert_allclose(found, covariance, atol=ROUNDING)
    weights = mean_weights(estimator, marginals, n)
    np.testing.assert_allclose(reference.expected_gradient(theta, x, weights, eta), mean, atol=ROUNDING)


@pytest.mark.parametrize("n", [1, 2, 7, 60])
def test_mean_inverse_by_the_sum(n):
    q = np.array([0.0, 0.01, 0.3, 0.3, 0.999, 1.0])
    expected_values = [reference.mean_inverse(n, p) for p in q[:-1]] + [1 / n]
    np.testing.assert_allclose(mean_inverse(n, q), expected_values, rtol=1e-10)


def test_mean_inverse_of_large_samples_does_not_underflow():
    assert mean_inverse(500_000, np.array([0.02])) * 10_000 == pytest.approx([1 + 0.98 / 10_000], rel=1e-6)


def test_inputs_that_are_never_seen():
    never, together = unseen(4, np.array([0.5, 0.25, 0.25]))
    assert never == pytest.approx([0.5**4, 0.75**4, 0.75**4])
    assert together[0, 0] == pytest.approx(0.5**4 * (1 - 0.5**4))
    assert together[0, 1] == pytest.approx(0.25**4 - 0.5**4 * 0.75**4)


def test_large_n_without_penalty_is_the_limit():
    x, train, test, eta = random_problem(7, inputs=5)
    limits = shifted(x, train, test, eta)
    for name in ESTIMATORS:
        found, limit = expected(name, x, train, test, eta, 10**6), getattr(limits, name)
        assert found.excess_risk == pytest.approx(limit.excess_risk, rel=1e-4)
        assert found.squared_error == pytest.approx(limit.squared_error, rel=1e-4)
    plain = theory(x, test, eta).supervised
    assert expected("supervised", x, test, test, eta, 100).excess_risk == pytest.approx(plain.excess_risk)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_samples_of_a_moderate_size_are_as_expected(estimator):
    """With the penalty, and with inputs that are often not seen; the limits are far away here."""
    x, train, test, eta = random_problem(21, inputs=30, features=3)
    n, replications, strength = 100, 4000, 2.0
    joint = (train[:, None] * eta).ravel()
    sample = np.random.default_rng(5).multinomial(n, joint / joint.sum(), size=replications).reshape(-1, 30, 2)
    weights = {
        "supervised": count_tables.supervised(sample),
        "weighted": count_tables.weighted(sample, test / train),
        "semisupervised": count_tables.semisupervised(sample, test),
    }[estimator]
    theta = count_tables.fit_tables(x, weights, count_tables.ridges(weights, n, strength))
    q = train if estimator == "supervised" else test
    best = best_fit(x, q, eta).ravel()
    squared = n * ((theta - best) ** 2).sum(axis=1)
    scores, centre = theta @ x.T, x @ best
    losses = [np.logaddexp(0, s) - eta[:, 1] * s for s in (scores, centre)]
    excess = n * ((losses[0] - losses[1]) @ q)
    found = expected(estimator, x, train, test, eta, n, strength)
    for values, foreseen in ((squared, found.squared_error), (excess, found.excess_risk)):
        error = values.std(ddof=1) / np.sqrt(replications)
        assert abs(values.mean() - foreseen) < 3 * error + LINEAR * foreseen, (values.mean(), foreseen, error)


def test_what_makes_no_sense_is_refused():
    x, train, test, eta = random_problem(1)
    with pytest.raises(EspalierError, match="unknown estimator 'best': expected one of supervised, weighted"):
        expected("best", x, train, test, eta, 10)
    with pytest.raises(EspalierError, match="the sample size is 0: expected at least 1"):
        expected("supervised", x, train, test, eta, 0)
    with pytest.raises(EspalierError, match="q is no distribution"):
        expected("supervised", x, 2 * train, test, eta, 10)
