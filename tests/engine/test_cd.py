"""Coordinate descent: derivatives for one weight against the enumeration, and the sweep that forgets zeros."""

import itertools

import numpy as np
import pytest
from chain_problems import lattices, pack, random_theta, slot_features
from hypothesis import given, settings
from reference import solvers as reference
from reference.problems import random_problem
from test_blocks import second_derivatives, weights_of

from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.optimise.solvers.cd import derivatives, exact_second_derivative

ROUNDING = 1e-10
LARGE = 1e-7  # scores of hundreds carry fewer decimals, and a variance is a difference of squares
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=30)


def assert_derivatives(lattice, tolerance):
    """First and exact second from the enumerated Hessian, the approximate second from marginals."""
    (problem, dataset, layout), theta = lattice
    objective, features = ChainObjective(dataset, layout), slot_features(layout)
    enumerated = reference.enumerate_problem(
        problem.sequences, problem.labels, problem.n_labels, problem.weights, features
    )
    _, gradient, hessian = reference.value_gradient_hessian(enumerated, theta)
    approximate = second_derivatives(problem, weights_of(layout, theta))
    for k in np.random.default_rng(0).permutation(layout.size)[:12].tolist():
        first, second = derivatives(objective, theta, k)
        assert first == pytest.approx(gradient[k], abs=tolerance)
        assert second == pytest.approx(approximate.get(features[k], 0.0), abs=tolerance)
        assert exact_second_derivative(objective, theta, k) == pytest.approx(hessian[k, k], abs=tolerance)


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_derivatives_of_one_weight(lattice):
    assert_derivatives(lattice, ROUNDING)


@EXAMPLES
@given(lattices(scale=100.0))
def test_derivatives_of_one_weight_at_large_weights(lattice):
    assert_derivatives(lattice, LARGE)


def test_the_approximation_is_exact_where_an_observation_occurs_once():
    """(16) leaves out the covariance of positions, so one position is all that it needs to be right."""
    once = pack(
        random_problem(4, 3, 5, 1, [5], none=0.0)._replace(sequences=[[[0], [1], [2], [3], [4]]], weights=[1.0])
    )
    twice = pack(once.problem._replace(sequences=[[[0], [0], [1], [1], [2]]]))
    for packed, differ in ((once, False), (twice, True)):
        objective, theta = ChainObjective(packed.dataset, packed.layout), random_theta(packed.layout.size, 2)
        pairs = [
            (derivatives(objective, theta, k)[1], exact_second_derivative(objective, theta, k))
            for k in range(objective.size)
        ]
        gap = max(abs(a - b) for a, b in pairs)
        assert gap > 1e-3 if differ else gap < ROUNDING


@pytest.mark.parametrize("k", [-1, 100_000])
def test_a_weight_that_does_not_exist_is_refused(k):
    packed = pack(random_problem(4, 3, 5, 1, [5]))
    objective = ChainObjective(packed.dataset, packed.layout)
    with pytest.raises(EspalierError, match=f"weight {k}: expected one of the {objective.size} of the layout"):
        exact_second_derivative(objective, np.zeros(objective.size), k)


def test_zeros_are_not_revisited_when_told_so():
    """A weight that is zero after a sweep stays zero; the objective never rises but may stay above the optimum."""
    packed = pack(random_problem(21, 3, 4, 2, [4, 3, 2, 4, 1, 3, 2])._replace(weights=[1.0] * 7))
    objective, penalty, kept = ChainObjective(packed.dataset, packed.layout), ElasticNet(0.3, 0.0), []

    def listen(line, theta):
        kept.append(theta != 0.0)

    found = minimise(
        "cd", objective, penalty, max_iterations=500, tolerance=1e-9, on_iteration=listen, revisit_zeros=False
    )
    for before, after in itertools.pairwise(kept[1:]):
        assert not np.any(after & ~before)
    values = [line["objective"] for line in found.trace]
    assert all(b <= a + 1e-12 * a for a, b in itertools.pairwise(values))
    best = minimise("cd", objective, penalty, max_iterations=500, tolerance=1e-9)
    assert (1 - 1e-12) * best.objective < found.objective < 1.05 * best.objective
    assert np.count_nonzero(found.theta) <= np.count_nonzero(kept[1])
