"""Logistic regressions on tables of counts: optimal by the obvious loss, the same bytes in any company."""

import numpy as np
import pytest
from reference import asymptotics as reference

from espalier.engine.errors import EspalierError
from espalier.engine.runtime.threads import set_threads
from espalier.engine.semisup import count_tables

STATIONARY = 1e-8  # of a gradient by central differences
STEP = 1e-6


def samples(seed=0, count=6, n=40, inputs=8, features=3):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, size=(inputs, features)).astype(float)
    joint = rng.dirichlet(np.ones(2 * inputs))
    return x, rng.multinomial(n, joint, size=count).reshape(count, inputs, 2), rng.dirichlet(np.ones(inputs))


def slope(theta, x, table, ridge):
    def loss(at):
        return reference.penalised_loss(at, x, table, ridge)

    return np.array([(loss(theta + s) - loss(theta - s)) / (2 * STEP) for s in np.eye(len(theta)) * STEP])


@pytest.mark.nojit
def test_the_minimum_of_the_obvious_loss():
    x, sample, q = samples()
    for weights in (
        count_tables.supervised(sample),
        count_tables.semisupervised(sample, q),
        count_tables.weighted(sample, q * 3),
    ):
        ridge = count_tables.ridges(weights, 40)
        theta = count_tables.fit_tables(x, weights, ridge)
        for r in range(len(sample)):
            assert np.abs(slope(theta[r], x, weights[r], ridge[r])).max() < STATIONARY


def test_weights_are_those_of_the_source():
    sample = np.array([[[3, 1], [0, 0], [0, 4]]])
    q = np.array([0.5, 0.3, 0.2])
    np.testing.assert_allclose(count_tables.supervised(sample)[0], [[3 / 8, 1 / 8], [0, 0], [0, 0.5]])
    np.testing.assert_allclose(count_tables.semisupervised(sample, q)[0], [[0.375, 0.125], [0, 0], [0, 0.2]])
    np.testing.assert_allclose(
        count_tables.weighted(sample, np.array([2.0, 1, 0.5]))[0], [[0.75, 0.25], [0, 0], [0, 0.25]]
    )


def test_the_ridge_is_one_over_n_times_the_mass():
    sample = np.array([[[3, 1], [0, 0], [0, 4]]])
    q = np.array([0.5, 0.3, 0.2])
    assert count_tables.ridges(count_tables.supervised(sample), 8) == pytest.approx([1 / 8])
    assert count_tables.ridges(count_tables.semisupervised(sample, q), 8) == pytest.approx([0.7 / 8])  # what was seen
    assert count_tables.ridges(count_tables.supervised(sample), 8, 2.0) == pytest.approx([1 / 4])


def test_whole_weights_are_repetitions():
    """The semi-supervised estimate of a sample whose frequencies are q is the supervised one."""
    x, _, _ = samples()
    sample = np.random.default_rng(5).integers(1, 9, size=(1, len(x), 2))
    q = sample.sum(axis=(0, 2)) / sample.sum()
    ours = [
        count_tables.fit_tables(x, w, 0.01)
        for w in (count_tables.supervised(sample), count_tables.semisupervised(sample, q))
    ]
    np.testing.assert_allclose(*ours, atol=1e-9)


def test_a_single_observation_and_separable_samples_have_a_minimum():
    x = np.array([[1.0, 0.0], [0.0, 1.0]])
    sample = np.array([[[0, 1], [0, 0]], [[0, 5], [5, 0]]])
    theta = count_tables.fit_tables(x, count_tables.supervised(sample), 1 / np.array([1, 10]))
    assert theta[0, 0] > 0 and theta[0, 1] == 0
    assert theta[1, 0] == pytest.approx(-theta[1, 1]) and theta[1, 0] > 0


def test_large_features_do_not_overflow():
    x = np.array([[700.0], [-700.0]])
    sample = np.array([[[1, 9], [9, 1]]])
    theta = count_tables.fit_tables(x, count_tables.supervised(sample), 0.0)
    assert 700 * theta[0, 0] == pytest.approx(np.log(9), rel=1e-6)


def test_bytes_do_not_depend_on_threads_or_on_other_samples():
    x, sample, _ = samples(3, count=40)
    weights = count_tables.supervised(sample)
    ridge = count_tables.ridges(weights, 40)
    whole = count_tables.fit_tables(x, weights, ridge)
    try:
        set_threads(1)
        assert np.array_equal(whole, count_tables.fit_tables(x, weights, ridge))
        set_threads(3)
        assert np.array_equal(whole, count_tables.fit_tables(x, weights, ridge))
    finally:
        set_threads(None)
    assert np.array_equal(whole[7:9], count_tables.fit_tables(x, weights[7:9], ridge[7:9]))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda x, w, r: (x[:-1], w, r), r"weights \(6, 8, 2\) for features \(7, 3\): expected samples x inputs x 2"),
        (lambda x, w, r: (x, -w, r), "a weight is negative or not finite"),
        (lambda x, w, r: (x, w, r - 1), "a ridge is negative or not finite"),
        (lambda x, w, r: (x * np.nan, w, r), "a feature is not finite"),
    ],
)
def test_what_cannot_be_fitted_is_refused(change, text):
    x, sample, _ = samples()
    with pytest.raises(EspalierError, match=text):
        count_tables.fit_tables(*change(x, count_tables.supervised(sample), np.full(len(sample), 0.1)))


def test_separable_classes_without_a_ridge_are_refused():
    x, sample = np.array([[1.0], [-1.0]]), np.array([[[5, 5], [5, 5]], [[0, 5], [5, 0]]])
    with pytest.raises(EspalierError, match="sample 1 has no minimum that .* expected a ridge of more than 0"):
        count_tables.fit_tables(x, count_tables.supervised(sample), 0.0)
