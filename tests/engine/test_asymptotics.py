"""Limits of logistic regression against enumeration of all pairs, against what must follow, and against samples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import asymptotics as reference

from espalier.engine.errors import EspalierError
from espalier.engine.semisup import count_tables
from espalier.engine.semisup.asymptotics import (
    bayes_error,
    best_fit,
    error_probability,
    information,
    probabilities,
    risk,
    shifted,
    theory,
)

ROUNDING = 1e-10
DIFFERENCES = 1e-7  # of central differences with a step of 1e-5
STATIONARY = 1e-9  # gradient of the risk at its minimum
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=25)


def random_problem(seed, classes=2, inputs=7, features=3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(inputs, features))
    q, eta = rng.dirichlet(np.full(inputs, 2.0)), rng.dirichlet(np.full(classes, 2.0), size=inputs)
    return x, q, eta


def well_specified(seed, classes=2):
    x, q, _ = random_problem(seed, classes)
    theta = np.random.default_rng([seed, 1]).normal(size=(x.shape[1], classes - 1))
    return x, q, probabilities(x, theta), theta


@EXAMPLES
@given(st.integers(0, 10**6), st.sampled_from([2, 3, 4]))
def test_matrices_are_those_of_the_enumeration(seed, classes):
    x, q, eta = random_problem(seed, classes)
    rng = np.random.default_rng([seed, 2])
    theta, q_train = rng.normal(size=(3, classes - 1)), rng.dirichlet(np.full(len(q), 3.0)) + 0.01
    for train in (None, q_train / q_train.sum()):
        found, base = information(x, q, eta, theta, train), q if train is None else train
        np.testing.assert_allclose(found.i, reference.information_i(theta, x, q, eta, base), atol=ROUNDING)
        np.testing.assert_allclose(found.h, reference.information_h(theta, x, q, eta, base), atol=ROUNDING)
        np.testing.assert_allclose(found.j, reference.information_j(theta, x, q, eta), atol=DIFFERENCES)
    assert risk(x, q, eta, theta) == pytest.approx(reference.risk(theta, x, q, eta), abs=ROUNDING)


def test_binary_matrices_are_the_formulas_of_the_source():
    """(4.32) to (4.34) and, under shift, those at the end of 4.3."""
    x, q, eta = random_problem(3)
    theta = best_fit(x, q, eta)
    g, e = probabilities(x, theta)[:, 1], eta[:, 1]
    outer = x[:, :, None] * x[:, None, :]
    q0 = np.random.default_rng(4).dirichlet(np.full(len(q), 5.0))
    for train, factor in ((None, q), (q0, q * q / q0)):
        found = information(x, q, eta, theta, train)
        np.testing.assert_allclose(found.h, np.tensordot(factor * e * (1 - e), outer, 1), atol=ROUNDING)
        second = np.tensordot(factor * (e * (1 - e) + (e - g) ** 2), outer, 1)
        np.testing.assert_allclose(found.i, second, atol=ROUNDING)
        np.testing.assert_allclose(found.j, np.tensordot(q * g * (1 - g), outer, 1), atol=ROUNDING)


@EXAMPLES
@given(st.integers(0, 10**6), st.sampled_from([2, 3]))
def test_the_best_fit_is_stationary_and_nothing_near_it_is_better(seed, classes):
    x, q, eta = random_problem(seed, classes)
    theta = best_fit(x, q, eta)
    assert np.abs(reference.expected_gradient(theta, x, q, eta)).max() < STATIONARY
    rng = np.random.default_rng([seed, 3])
    for size in (1e-3, 0.1, 1.0):
        assert risk(x, q, eta, theta + size * rng.normal(size=theta.shape)) > risk(x, q, eta, theta)


def test_the_best_fit_is_that_of_gradient_descent():
    x, q, eta = random_problem(11, 3)
    np.testing.assert_allclose(best_fit(x, q, eta), reference.best_fit(x, q, eta), atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_well_specified_model_has_one_matrix(classes):
    x, q, eta, theta = well_specified(5, classes)
    found = theory(x, q, eta)
    np.testing.assert_allclose(found.supervised.theta, theta, atol=1e-6)
    np.testing.assert_allclose(found.information.i, found.information.j, atol=1e-9)
    np.testing.assert_allclose(found.information.h, found.information.j, atol=1e-9)
    inverse = np.linalg.inv(found.information.j)
    for limit in (found.supervised, found.semisupervised):
        np.testing.assert_allclose(limit.covariance, inverse, rtol=1e-6, atol=1e-9)
        assert limit.excess_risk == pytest.approx(theta.size / 2, rel=1e-6)  # half a nat a parameter
        assert limit.squared_error == pytest.approx(np.trace(inverse), rel=1e-6)


@EXAMPLES
@given(st.integers(0, 10**6), st.sampled_from([2, 3]))
def test_knowing_the_marginal_never_hurts_in_the_limit(seed, classes):
    x, q, eta = random_problem(seed, classes)
    found = theory(x, q, eta)
    gain = found.supervised.covariance - found.semisupervised.covariance
    assert np.linalg.eigvalsh(gain).min() > -1e-9
    assert found.semisupervised.excess_risk <= found.supervised.excess_risk
    j, i, h = found.information.j, found.information.i, found.information.h
    np.testing.assert_allclose(found.supervised.covariance, np.linalg.inv(j) @ i @ np.linalg.inv(j), rtol=1e-6)
    np.testing.assert_allclose(found.semisupervised.covariance, np.linalg.inv(j) @ h @ np.linalg.inv(j), rtol=1e-6)
    assert found.supervised.excess_risk == pytest.approx(np.trace(i @ np.linalg.inv(j)) / 2)
    assert found.semisupervised.excess_risk == pytest.approx(np.trace(h @ np.linalg.inv(j)) / 2)


def test_without_a_shift_weights_of_one_are_no_weights():
    x, q, eta = random_problem(8)
    same, plain = shifted(x, q, q, eta), theory(x, q, eta)
    assert same.gap == pytest.approx(0, abs=1e-12) and same.risk == pytest.approx(plain.risk)
    np.testing.assert_allclose(same.weighted.covariance, plain.supervised.covariance, rtol=1e-9)
    np.testing.assert_allclose(same.semisupervised.covariance, plain.semisupervised.covariance, rtol=1e-9)


def test_a_well_specified_model_under_shift():
    """Known marginals are then worth as much as known ratios, and neither is better than no weights at all."""
    x, q0, eta, theta = well_specified(6)
    q1 = np.random.default_rng(9).dirichlet(np.full(len(q0), 2.0))
    found = shifted(x, q0, q1, eta)
    assert found.gap == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(found.supervised.theta, theta, atol=1e-6)
    np.testing.assert_allclose(found.semisupervised.theta, theta, atol=1e-6)
    np.testing.assert_allclose(found.semisupervised.covariance, found.weighted.covariance, rtol=1e-6)
    extra = found.semisupervised.covariance - found.supervised.covariance
    assert np.linalg.eigvalsh(extra).min() > -1e-9 and np.linalg.eigvalsh(extra).max() > 1e-3


def test_a_wrong_model_under_shift_keeps_a_gap_without_weights():
    x, q0, eta = random_problem(12)
    q1 = np.random.default_rng(13).dirichlet(np.full(len(q0), 1.0))
    found = shifted(x, q0, q1, eta)
    assert found.gap > 1e-3
    assert found.semisupervised.excess_risk < found.weighted.excess_risk
    np.testing.assert_allclose(found.semisupervised.theta, best_fit(x, q1, eta), atol=1e-9)
    np.testing.assert_allclose(found.supervised.theta, best_fit(x, q0, eta), atol=1e-9)


@pytest.mark.parametrize("case", ["same", "shift"])
def test_samples_meet_the_limits(case):
    """n times squared error and excess risk of 4,000 large samples, within four standard errors and a little bias."""
    x, q, eta = random_problem(21, inputs=6)
    n, replications = 20_000, 4_000
    q_train = np.random.default_rng(22).dirichlet(np.full(len(q), 4.0)) if case == "shift" else q
    joint = (q_train[:, None] * eta).ravel()
    sample = np.random.default_rng(23).multinomial(n, joint / joint.sum(), size=replications).reshape(-1, len(q), 2)
    weights = {"semisupervised": count_tables.semisupervised(sample, q)}
    if case == "shift":
        found = shifted(x, q_train, q, eta)
        weights["weighted"] = count_tables.weighted(sample, q / q_train)
    else:
        found = theory(x, q, eta)
        weights["supervised"] = count_tables.supervised(sample)
    for name, w in weights.items():
        limit, theta = getattr(found, name), count_tables.fit_tables(x, w, np.zeros(replications))
        squared = n * ((theta - limit.theta.ravel()) ** 2).sum(axis=1)
        scores = theta @ x.T
        excess = n * ((np.logaddexp(0, scores) - eta[:, 1] * scores) @ q - found.risk)
        for values, expected in ((squared, limit.squared_error), (excess, limit.excess_risk)):
            error = values.std(ddof=1) / np.sqrt(replications)
            assert abs(values.mean() - expected) < 4 * error + 0.01 * expected, (name, values.mean(), expected, error)


def test_errors_of_classifiers():
    x = np.array([[1.0], [-1.0]])
    q, eta = np.array([0.25, 0.75]), np.array([[0.1, 0.9], [0.6, 0.4]])
    assert bayes_error(q, eta) == pytest.approx(0.25 * 0.1 + 0.75 * 0.4)
    assert error_probability(x, q, eta, np.array([[1.0]])) == pytest.approx(0.25 * 0.1 + 0.75 * 0.4)
    assert error_probability(x, q, eta, np.array([[-1.0]])) == pytest.approx(0.25 * 0.9 + 0.75 * 0.6)


# ---- what is refused


def test_separable_classes_have_no_best_fit():
    x, q = np.array([[1.0], [-1.0]]), np.array([0.5, 0.5])
    with pytest.raises(EspalierError, match="best fit was not found .* expected conditionals that leave every class"):
        best_fit(x, q, np.array([[0.0, 1.0], [1.0, 0.0]]))


def test_dependent_features_are_refused():
    x, q, eta = random_problem(1)
    with pytest.raises(EspalierError, match="second derivative of the risk is singular: expected features that are"):
        theory(np.column_stack([x, x[:, 0]]), q, eta)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda x, q, eta: (x[:-1], q, eta), r"features \(6, 3\), q \(7,\) and eta \(7, 2\) do not go together"),
        (lambda x, q, eta: (x, q * 2, eta), "q is no distribution: expected probabilities of at least 0 that sum to 1"),
        (lambda x, q, eta: (x, q, eta - 0.5), "eta is no distribution"),
        (lambda x, q, eta: (x, q, eta[:, :1]), "inputs x classes"),
    ],
)
def test_what_does_not_go_together_is_refused(change, text):
    with pytest.raises(EspalierError, match=text):
        theory(*change(*random_problem(2)))


def test_a_test_input_that_is_never_sampled_is_refused():
    x, q, eta = random_problem(2)
    q0 = q.copy()
    q0[3], q0[0] = 0.0, q0[0] + q0[3]
    with pytest.raises(EspalierError, match="input 3 has probability .* in the test and none in the sample"):
        shifted(x, q0, q, eta)
