"""Improved iterative scaling: T(x), and one step of every weight against the equation, by enumeration."""

import numpy as np
import pytest
from chain_problems import lattices, pack, slot_features
from hypothesis import given, settings
from reference import solvers as reference
from reference.problems import random_problem
from scipy.optimize import brentq

from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import iis as module
from espalier.engine.optimise.solvers import minimise

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=30)


def enumerate_packed(packed):
    problem = packed.problem
    return reference.enumerate_problem(
        problem.sequences, problem.labels, problem.n_labels, problem.weights, slot_features(packed.layout)
    )


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_the_largest_number_of_features(lattice):
    packed, _ = lattice
    objective = ChainObjective(packed.dataset, packed.layout)
    expected = [counts.sum(axis=1).max(initial=0.0) for counts in enumerate_packed(packed).counts]
    assert module.largest_counts(objective).tolist() == expected


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_one_step_solves_the_equation_of_every_weight(lattice):
    """sum over sequences of w E[f_k] exp(delta_k T(x)) + rho2 (theta_k + delta_k) = observed_k, by bisection."""
    packed, theta = lattice
    rho2 = 0.1
    objective = ChainObjective(packed.dataset, packed.layout)
    result = minimise("iis", objective, ElasticNet(0.0, rho2), theta0=theta, max_iterations=1, tolerance=0.0)
    if result.iterations == 0:
        return
    problem = enumerate_packed(packed)
    largest, means = [], []
    for counts in problem.counts:
        probability = np.exp(counts @ theta - (counts @ theta).max())
        means.append(probability / probability.sum() @ counts)
        largest.append(counts.sum(axis=1).max(initial=0.0))
    observed = sum(w * row for w, row in zip(problem.weights, problem.observed, strict=True))
    for k in np.random.default_rng(0).permutation(objective.size)[:10]:

        def excess(delta, k=k):
            scaled = zip(problem.weights, means, largest, strict=True)
            total = sum(w * mean[k] * np.exp(min(delta * m, 500.0)) for w, mean, m in scaled)
            return total + rho2 * (theta[k] + delta) - observed[k]

        assert result.theta[k] - theta[k] == pytest.approx(brentq(excess, -1e3, 1e3, xtol=1e-13), abs=1e-9)


def test_a_weight_that_was_never_observed_goes_down_without_a_penalty():
    """Its best value is minus infinity: steps stay finite and the objective goes on falling."""
    packed = pack(random_problem(3, 3, 3, 1, [4, 3, 5])._replace(weights=[1.0] * 3))
    objective = ChainObjective(packed.dataset, packed.layout)
    result = minimise("iis", objective, ElasticNet(), max_iterations=50, tolerance=0.0)
    assert np.all(np.isfinite(result.theta))
    gradient = objective.value_and_gradient(np.zeros(objective.size))[1]
    occurs = (objective.observed == 0.0) & (gradient > 0.0)
    assert occurs.any() and np.all(result.theta[occurs] < -1.0)
    values = [line["objective"] for line in result.trace]
    assert all(after < before for before, after in zip(values, values[1:], strict=False))


def test_many_classes_are_rounded_up(monkeypatch):
    """T(x) may be any bound: with two classes instead of one for each length the optimum is the same."""
    packed = pack(random_problem(9, 2, 3, 1, [1, 2, 3, 4, 5, 6])._replace(weights=[1.0] * 6))
    objective, penalty = ChainObjective(packed.dataset, packed.layout), ElasticNet(0.0, 0.5)
    counts = module.largest_counts(objective)
    assert len(np.unique(counts)) > 2
    fine = minimise("iis", objective, penalty, max_iterations=2000, tolerance=1e-12)
    monkeypatch.setattr(module, "CLASSES", 2)
    totals, members = module._classes(counts)
    assert len(totals) == 2 and totals[-1] == counts.max()
    for total, group in zip(totals, members, strict=True):
        assert np.all(counts[group] <= total)
    coarse = minimise("iis", objective, penalty, max_iterations=2000, tolerance=1e-12)
    assert coarse.objective == pytest.approx(fine.objective, rel=1e-9)
    assert coarse.iterations > fine.iterations
