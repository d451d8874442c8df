"""Naive Bayes and its EM against the same written with dense lists."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import classifiers as reference

from espalier.engine.data.bags import bags_of_matrix, join_bags, select_bags
from espalier.engine.errors import EspalierError
from espalier.engine.families.naive_bayes import fit_naive_bayes
from espalier.engine.runtime.threads import set_threads

ROUNDING = 1e-10
RISE = 1e-10  # relative; EM never lowers its objective but for rounding
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=40)


def problem(seed, n=6, pool=9, features=4, n_classes=2):
    rng = np.random.default_rng(seed)
    x, u = (rng.integers(0, 4, (size, features)).astype(float) for size in (n, pool))
    labels = rng.integers(0, n_classes, n)
    labels[:n_classes] = range(n_classes)
    return x, labels, rng.choice([0.5, 1.0, 2.0], n), u, rng.choice([0.2, 1.0, 2.0], pool)


def parameters(model):
    return np.exp(model.log_prior), np.exp(model.log_features)


@EXAMPLES
@given(st.integers(0, 10**6), st.integers(2, 4), st.sampled_from([1e-3, 0.5, 1.0]))
@pytest.mark.nojit
def test_supervised_estimate_and_prediction(seed, n_classes, smoothing):
    x, labels, weights, pool, _ = problem(seed, n_classes=n_classes)
    model = fit_naive_bayes(bags_of_matrix(x), labels, n_classes, weights, smoothing)
    prior, features = reference.estimate(x, reference.one_hot(labels, n_classes, weights), smoothing)
    np.testing.assert_allclose(parameters(model)[0], prior, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(parameters(model)[1], features, rtol=0, atol=ROUNDING)
    expected = [reference.posterior(row, prior, features) for row in pool]
    np.testing.assert_allclose(model.probabilities(bags_of_matrix(pool)), expected, rtol=0, atol=ROUNDING)
    assert model.predict(bags_of_matrix(pool)).tolist() == np.argmax(expected, axis=1).tolist()
    joint = [reference.log_joint(row, y, prior, features) for row, y in zip(x, labels, strict=True)]
    np.testing.assert_allclose(model.log_joint(bags_of_matrix(x), labels), joint, rtol=0, atol=1e-9)
    assert model.log_likelihood == pytest.approx(np.dot(weights, joint), abs=1e-9)


@EXAMPLES
@given(st.integers(0, 10**6), st.integers(2, 3), st.sampled_from([1e-3, 0.5]), st.integers(0, 4))
@pytest.mark.nojit
def test_em_step_by_step(seed, n_classes, smoothing, iterations):
    x, labels, weights, pool, pool_weights = problem(seed, n_classes=n_classes)
    model = fit_naive_bayes(bags_of_matrix(x), labels, n_classes, weights, smoothing, bags_of_matrix(pool),
                            pool_weights, iterations, tolerance=-math.inf)  # fmt: skip
    steps = reference.em(x, labels, weights, pool, pool_weights, n_classes, smoothing, iterations)
    prior, features, likelihood = steps[-1]
    np.testing.assert_allclose(parameters(model)[0], prior, rtol=0, atol=1e-9)
    np.testing.assert_allclose(parameters(model)[1], features, rtol=0, atol=1e-9)
    assert model.log_likelihood == pytest.approx(likelihood, abs=1e-7)
    climbed = [value + smoothing * np.log(phi).sum() for _, phi, value in steps]
    assert model.history == pytest.approx(climbed, abs=1e-7)


@pytest.mark.parametrize("smoothing", [1e-12, 0.5])
def test_the_likelihood_never_falls(smoothing):
    """With hardly any smoothing it is the likelihood (4.2) alone."""
    x, labels, weights, pool, pool_weights = problem(3, n=8, pool=80, n_classes=3)
    model = fit_naive_bayes(bags_of_matrix(x), labels, 3, weights, smoothing, bags_of_matrix(pool), pool_weights,
                            iterations=60, tolerance=-math.inf)  # fmt: skip
    assert len(model.history) == 61 and model.history[-1] > model.history[0]
    for before, after in itertools.pairwise(model.history):
        assert after >= before - RISE * abs(before)


def test_em_stops_when_the_likelihood_stands():
    x, labels, weights, pool, _ = problem(4, pool=40)
    model = fit_naive_bayes(bags_of_matrix(x), labels, 2, weights, pool=bags_of_matrix(pool), iterations=5000)
    assert len(model.history) < 5000
    assert model.history[-1] - model.history[-2] <= 1e-8 * abs(model.history[-1])


def test_unlabelled_data_help_where_classes_are_heaps():
    """One labelled example each, in the fringe of its heap: the pool shows where the heaps are."""
    rng = np.random.default_rng(5)
    centres = np.array([[0.5, 0.3, 0.1, 0.05, 0.05], [0.05, 0.05, 0.1, 0.3, 0.5]])
    truth = rng.integers(0, 2, 300)
    pool = bags_of_matrix([rng.multinomial(12, centres[k]) for k in truth])
    few = bags_of_matrix([[0, 1, 1, 0, 0], [0, 0, 0, 1, 0]])
    alone = (fit_naive_bayes(few, [0, 1]).predict(pool) == truth).mean()
    together = (fit_naive_bayes(few, [0, 1], pool=pool).predict(pool) == truth).mean()
    assert together > 0.97 and together > alone


def test_a_weight_of_two_is_a_duplicate():
    x, labels, _, pool, _ = problem(6)
    bags, unlabelled = bags_of_matrix(x), bags_of_matrix(pool)
    again, more = np.array([0, 3]), np.array([2, 5, 8])
    weights, pool_weights = np.ones(6), np.ones(9)
    weights[again] = pool_weights[more] = 2.0
    weighted = fit_naive_bayes(bags, labels, 2, weights, 0.5, unlabelled, pool_weights, 20, -math.inf)
    doubled = fit_naive_bayes(join_bags(bags, select_bags(bags, again)), np.concatenate([labels, labels[again]]), 2,
                              None, 0.5, join_bags(unlabelled, select_bags(unlabelled, more)), None, 20,
                              -math.inf)  # fmt: skip
    np.testing.assert_allclose(weighted.log_features, doubled.log_features, rtol=0, atol=1e-9)
    np.testing.assert_allclose(weighted.log_prior, doubled.log_prior, rtol=0, atol=1e-9)


def test_equal_weights_scale_the_smoothing_only():
    x, labels, *_ = problem(7)
    plain = fit_naive_bayes(bags_of_matrix(x), labels, smoothing=0.5)
    scaled = fit_naive_bayes(bags_of_matrix(x), labels, weights=np.full(6, 4.0), smoothing=2.0)
    np.testing.assert_allclose(plain.log_features, scaled.log_features, rtol=0, atol=1e-12)


def test_a_pool_of_weight_zero_changes_nothing():
    x, labels, weights, pool, _ = problem(8)
    alone = fit_naive_bayes(bags_of_matrix(x), labels, 2, weights)
    silent = fit_naive_bayes(bags_of_matrix(x), labels, 2, weights, pool=bags_of_matrix(pool), pool_weights=np.zeros(9))
    np.testing.assert_allclose(silent.log_features, alone.log_features, rtol=0, atol=1e-12)
    assert silent.log_likelihood == pytest.approx(alone.log_likelihood, abs=1e-12)


def test_threads_do_not_matter():
    x, labels, weights, pool, pool_weights = problem(9, n=50, pool=300)
    seen = set()
    try:
        for count in (1, 2, 4):
            set_threads(count)
            model = fit_naive_bayes(bags_of_matrix(x), labels, 2, weights, 0.5, bags_of_matrix(pool), pool_weights, 5)
            seen.add((model.log_features.tobytes(), model.log_prior.tobytes(), tuple(model.history)))
    finally:
        set_threads(None)
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: fit_naive_bayes(b, [0, 0]), "class 1 has no example of a weight above 0"),
        (lambda b: fit_naive_bayes(b, [0, 1], smoothing=0), "smoothing is 0: expected more than 0"),
        (lambda b: fit_naive_bayes(b, [0, 1], smoothing=math.nan), "smoothing is nan"),
        (lambda b: fit_naive_bayes(b, [0, 1], pool=select_bags(b, [])), "the unlabelled pool is empty"),
        (lambda b: fit_naive_bayes(b, [0, 1], pool=b, pool_weights=[1.0]), "1 weights for 2 count vectors"),
        (lambda b: fit_naive_bayes(b, [0, 1], pool=bags_of_matrix([[1.0]])), "over 1 features: expected the 2"),
        (lambda b: fit_naive_bayes(b, [0, 2]), "label 2 of vector 1: expected classes from 0 to 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_is_refused(call, message):
    with pytest.raises(EspalierError, match=message):
        call(bags_of_matrix([[1.0, 0.0], [0.0, 1.0]]))
