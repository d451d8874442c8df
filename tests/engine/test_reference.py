"""The oracles themselves, against values worked out by hand: an oracle that is wrong proves nothing."""

import math

import numpy as np
import pytest
from reference import align, chain, conlleval, mixture, solvers
from reference.problems import dense_features, random_problem

EXACT = 1e-12  # a handful of roundings
DIFFERENCE = 1e-6  # central differences with step 1e-5 lose about ten of sixteen digits

# One observation, two labels, two positions; 00: 1 + 1 + 3, 01: 1, 10: start 2 + 1, 11: start 2
HAND = chain.Weights(mu={(0, 0): 1.0}, start={(0, 1): 2.0}, lam={(0, 0, 0): 3.0})
SCORES = {(0, 0): 5.0, (0, 1): 1.0, (1, 0): 3.0, (1, 1): 2.0}


def test_chain_scores_every_labelling_by_hand():
    assert {y: chain.score([[0], [0]], y, HAND) for y in chain.labellings(2, 2)} == SCORES


def test_chain_partition_marginals_and_best_by_hand():
    z = sum(math.exp(s) for s in SCORES.values())
    assert chain.log_partition([[0], [0]], 2, HAND) == pytest.approx(math.log(z), abs=EXACT)
    assert chain.marginals([[0], [0]], 2, HAND)[0, 1] == pytest.approx((math.exp(3) + math.exp(2)) / z, abs=EXACT)
    assert chain.pairwise_marginals([[0], [0]], 2, HAND)[0, 1, 0] == pytest.approx(math.exp(3) / z, abs=EXACT)
    assert chain.best_labellings([[0], [0]], 2, HAND) == ({(0, 0)}, 5.0)


def test_chain_ignores_absent_observations_and_reports_all_ties():
    nothing = chain.Weights({}, {}, {})
    assert chain.log_partition([[-1, -1]] * 3, 2, HAND) == pytest.approx(3 * math.log(2), abs=EXACT)
    assert len(chain.best_labellings([[0]] * 2, 3, nothing)[0]) == 9


def test_chain_gradient_is_the_derivative_of_the_loss():
    problem = random_problem(1, 3, 3, 2, [4, 1, 3])._replace(weights=[1.0, 2.5, 0.5])
    rng = np.random.default_rng(2)
    point = {feature: rng.normal() for feature in sorted(dense_features(problem))}

    def loss_at(values):
        weights = chain.Weights({}, {}, {})
        for feature, value in values.items():
            getattr(weights, feature[0])[feature[1:]] = value
        return weights, chain.loss(problem.sequences, problem.labels, 3, weights, problem.weights)

    gradient = chain.gradient(problem.sequences, problem.labels, 3, loss_at(point)[0], problem.weights)
    for feature, value in point.items():
        up, down = loss_at({**point, feature: value + 1e-5})[1], loss_at({**point, feature: value - 1e-5})[1]
        assert (up - down) / 2e-5 == pytest.approx(gradient.get(feature, 0.0), abs=DIFFERENCE), feature


def test_log_forward_agrees_with_enumeration():
    problem = random_problem(3, 3, 3, 2, [5])
    rng = np.random.default_rng(4)
    weights = chain.Weights({}, {}, {})
    for feature in sorted(dense_features(problem)):
        getattr(weights, feature[0])[feature[1:]] = rng.normal()
    sequence = problem.sequences[0]
    assert chain.log_forward(sequence, 3, weights) == pytest.approx(
        chain.log_partition(sequence, 3, weights), abs=EXACT
    )


def test_solver_loss_and_gradient_agree_with_the_chain_oracle():
    problem = random_problem(5, 3, 3, 2, [3, 2, 1])._replace(weights=[1.0, 2.5, 0.0])
    features = sorted(dense_features(problem))
    theta = np.random.default_rng(6).normal(size=len(features))
    weights = chain.Weights({}, {}, {})
    for feature, value in zip(features, theta, strict=True):
        getattr(weights, feature[0])[feature[1:]] = value
    enumerated = solvers.enumerate_problem(problem.sequences, problem.labels, 3, problem.weights, features)
    value, gradient, _ = solvers.value_gradient_hessian(enumerated, theta)
    expected = chain.gradient(problem.sequences, problem.labels, 3, weights, problem.weights)
    assert value == pytest.approx(chain.loss(problem.sequences, problem.labels, 3, weights, problem.weights), abs=EXACT)
    np.testing.assert_allclose(gradient, [expected.get(feature, 0.0) for feature in features], rtol=0, atol=EXACT)


def test_solver_optimum_of_one_coin_by_hand():
    """Labels 0, 0, 0, 1, one weight for label 0: the loss is 4 log(1 + e^theta) - 3 theta."""
    enumerated = solvers.enumerate_problem([[[0]]] * 4, [[0], [0], [0], [1]], 2, [1.0] * 4, [("mu", 0, 0)])
    found = solvers.optimum(enumerated, 0.5, 0.5)
    theta = found.theta[0]
    assert theta > 0
    assert 4 / (1 + math.exp(-theta)) - 3 + 0.5 + 0.5 * theta == pytest.approx(0.0, abs=1e-10)
    assert solvers.optimum(enumerated, 1.0, 0.5).theta[0] == 0.0  # |gradient at 0| = |2 - 3| = rho1


def test_mixture_step_by_hand():
    counts = np.array([[2.0, 0.0], [0.0, 1.0]])
    weights, probabilities = np.array([0.5, 0.5]), np.array([[0.5, 0.5], [0.25, 0.75]])
    posterior = mixture.posterior(counts, weights, probabilities)
    np.testing.assert_allclose(posterior, [[0.8, 0.2], [0.4, 0.6]], atol=EXACT)  # 1/8:1/32 and 1/4:3/8
    new_weights, new_probabilities = mixture.em_step(counts, weights, probabilities, 0.0)
    np.testing.assert_allclose(new_weights, [0.6, 0.4], atol=EXACT)
    np.testing.assert_allclose(new_probabilities, [[0.8, 0.2], [0.4, 0.6]], atol=EXACT)  # 1.6:0.4 and 0.4:0.6
    assert mixture.log_likelihood(counts, weights, probabilities) == pytest.approx(
        math.log(1 / 8 + 1 / 32) + math.log(1 / 4 + 3 / 8), abs=EXACT
    )


def test_align_by_hand():
    """ "ab" sounding "P": either a gives P and b nothing, or the other way round."""
    probability = {("a", ("P",)): 0.5, ("a", ()): 0.25, ("b", ("P",)): 0.4, ("b", ()): 0.6}
    assert align.segmentations(2, 1) == [(0, 1), (1, 0)]
    assert align.total_probability("ab", ["P"], probability) == pytest.approx(0.5 * 0.6 + 0.25 * 0.4, abs=EXACT)
    assert align.best_paths("ab", ["P"], probability) == ({(1, 0)}, pytest.approx(0.3))
    assert align.expected_counts("ab", ["P"], probability)[("a", ("P",))] == pytest.approx(0.75, abs=EXACT)
    assert align.segmentations(2, 5) == []


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-A I-A O", {(0, 1, "A")}),
        ("I-A I-A B-A", {(0, 1, "A"), (2, 2, "A")}),  # IOB1: B only between neighbours
        ("O I-A I-B", {(1, 1, "A"), (2, 2, "B")}),
        ("B-A I-B", {(0, 0, "A"), (1, 1, "B")}),
        ("B-A-x I-A-x", {(0, 1, "A-x")}),
        ("O O", set()),
    ],
)
def test_conlleval_chunks_by_hand(tags, expected):
    assert conlleval.chunks(tags.split()) == expected


def test_conlleval_counts_by_hand():
    gold, predicted = [["B-A", "I-A", "O", "B-B"]], [["B-A", "O", "O", "B-B"]]
    assert conlleval.counts(gold, predicted) == {"A": (1, 1, 0), "B": (1, 1, 1)}
    assert conlleval.scores(conlleval.overall(gold, predicted)) == (0.5, 0.5, 0.5)
    assert conlleval.scores(conlleval.Counts(0, 0, 0)) == (0.0, 0.0, 0.0)
