"""Conjugate directions and the strong line search on functions whose answer is known."""

import numpy as np
import pytest

from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.optimise.solvers.wolfe import wolfe

NONE = ElasticNet()
SOLVERS = ("cg-fr", "cg-pr")


class Bowl:
    """theta' A theta / 2 - b' theta with A of the given eigenvalues."""

    offers = frozenset({"gradient"})

    def __init__(self, eigenvalues, seed=0):
        self.size = len(eigenvalues)
        rng = np.random.default_rng(seed)
        turn = np.linalg.qr(rng.normal(size=(self.size, self.size)))[0]
        self.matrix, self.b = turn.T * np.asarray(eigenvalues) @ turn, rng.normal(size=self.size)

    def value_and_gradient(self, theta):
        return float(0.5 * theta @ self.matrix @ theta - self.b @ theta), self.matrix @ theta - self.b


class Kinked:
    """sum log cosh(theta_i * scale_i): flat far out and sharp at zero, a hard line to search."""

    offers = frozenset({"gradient"})

    def __init__(self, scale):
        self.scale, self.size = np.asarray(scale, float), len(scale)

    def value_and_gradient(self, theta):
        z = np.abs(self.scale * theta)
        return float(np.sum(z + np.log1p(np.exp(-2 * z)) - np.log(2))), self.scale * np.tanh(self.scale * theta)


@pytest.mark.parametrize("solver", SOLVERS)
def test_few_distinct_eigenvalues_need_few_directions(solver):
    """On a quadratic with three distinct eigenvalues conjugate directions end after about three; steepest descent
    would need hundreds. The line search is not exact, hence a few more."""
    bowl = Bowl([1.0] * 5 + [30.0] * 5 + [1000.0] * 5)
    result = minimise(solver, bowl, NONE, max_iterations=200, tolerance=1e-8, period=1)
    np.testing.assert_allclose(result.theta, np.linalg.solve(bowl.matrix, bowl.b), atol=1e-4)
    assert result.iterations <= 20


@pytest.mark.parametrize("solver", SOLVERS)
def test_functions_with_kinks_are_solved_from_afar(solver):
    kinked = Kinked([0.1, 1.0, 10.0, 3.0])
    theta0 = np.array([50.0, -40.0, 30.0, -1.0])
    result = minimise(solver, kinked, NONE, theta0=theta0, max_iterations=500, tolerance=1e-12)
    assert result.objective < 1e-6
    values = [line["objective"] for line in result.trace]
    assert all(after <= before for before, after in zip(values, values[1:], strict=False))


@pytest.mark.parametrize("strong", [True, False])
@pytest.mark.parametrize("step", [1e-6, 1e-2, 1.0, 1e4])
def test_a_step_meets_the_conditions_from_any_first_trial(strong, step):
    function = Kinked([0.3, 2.0, 7.0])
    theta = np.array([4.0, -3.0, 2.0])
    loss, gradient = function.value_and_gradient(theta)
    direction, curvature = -gradient, 0.1 if strong else 0.9
    slope = gradient @ direction
    (found, value, after), trials = wolfe(function, NONE, theta, loss, gradient, direction, step, curvature, strong)
    length = (found - theta) @ direction / (direction @ direction)
    assert value <= loss + 1e-4 * length * slope
    assert after @ direction >= curvature * slope
    if strong:
        assert abs(after @ direction) <= -curvature * slope
    assert 1 <= trials <= 40


def test_a_direction_uphill_finds_nothing():
    function, theta = Kinked([1.0]), np.array([2.0])
    loss, gradient = function.value_and_gradient(theta)
    assert wolfe(function, NONE, theta, loss, gradient, gradient) == (None, 0)
