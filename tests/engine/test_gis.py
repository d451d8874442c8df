"""Generalised iterative scaling: the correction feature, and one step of every weight, by enumeration.

The oracle has the correction feature s(x, y) = C - T(x, y) as one more column of counts with a weight of its own, as
the textbook has it; the engine has neither.
"""

import itertools

import numpy as np
import pytest
from chain_problems import lattices, pack, random_theta, slot_features
from hypothesis import given, settings
from reference import solvers as reference
from reference.problems import random_problem
from scipy.optimize import brentq

from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import gis as module
from espalier.engine.optimise.solvers import minimise

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=30)
CLOSE = 1e-12  # two sums of the same terms in another order
RISE = 1e-12  # relative, of the objective, for the same reason
STEP = 1e-9  # of a weight: a logarithm of a ratio of two sums, divided by C


def enumerate_packed(packed):
    problem = packed.problem
    return reference.enumerate_problem(
        problem.sequences, problem.labels, problem.n_labels, problem.weights, slot_features(packed.layout)
    )


def corrected(problem):
    """The problem with the correction feature as last column, and C."""
    largest = max(counts.sum(axis=1).max(initial=0.0) for counts in problem.counts)

    def append(rows):
        return np.concatenate([rows, largest - rows.sum(axis=-1, keepdims=True)], axis=-1)

    return problem._replace(
        counts=[append(counts) for counts in problem.counts], observed=[append(row) for row in problem.observed]
    ), largest


def expectations(problem, theta):
    """(expected, observed) counts of all sequences."""
    expected, observed = np.zeros(len(theta)), np.zeros(len(theta))
    for counts, row, weight in zip(problem.counts, problem.observed, problem.weights, strict=True):
        probability = np.exp(counts @ theta - (counts @ theta).max())
        expected += weight * (probability / probability.sum() @ counts)
        observed += weight * row
    return expected, observed


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_the_correction_feature_is_expected_as_enumeration_says(lattice):
    """E[s] = C - sum_k E[f_k], and a weight of s is the same for all other weights lower by as much."""
    packed, theta = lattice
    problem, largest = corrected(enumerate_packed(packed))
    objective = ChainObjective(packed.dataset, packed.layout)
    assert module.constant_of(objective) == max(1.0, largest)
    for weight in (0.0, 0.7, -1.3):
        expected, _ = expectations(problem, np.append(theta, weight))
        found = objective.expectations(theta - weight)[0]
        np.testing.assert_allclose(found, expected[:-1], rtol=0, atol=CLOSE * max(1.0, largest))
        total = largest * packed.dataset.weights.sum()
        assert module.correction(total, found) == pytest.approx(expected[-1], abs=CLOSE * max(1.0, total))


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_one_step_is_that_of_the_model_with_the_correction_feature(lattice):
    """delta = log(observed / expected) / C for every feature, s among them; then its weight is taken off the others."""
    packed, theta = lattice
    problem, largest = corrected(enumerate_packed(packed))
    objective = ChainObjective(packed.dataset, packed.layout)
    result = minimise("gis", objective, ElasticNet(), theta0=theta, max_iterations=1, tolerance=0.0)
    expected, observed = expectations(problem, np.append(theta, 0.0))
    if result.iterations == 0 or expected[-1] < 1e-6 or observed[-1] < 1e-6:  # it does not vary, or would diverge
        return
    clear = (observed[:-1] > 0.0) & (expected[:-1] > 0.0)
    delta = np.log(observed[:-1][clear] / expected[:-1][clear]) / largest
    step = np.log(observed[-1] / expected[-1]) / largest
    np.testing.assert_allclose(result.theta[clear], theta[clear] + delta - step, rtol=0, atol=STEP)


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_one_step_with_a_penalty_solves_the_equation_of_every_weight(lattice):
    """E_k exp(C delta_k) + rho2 (theta_k + delta_k) = observed_k, by bisection; s has no weight then."""
    packed, theta = lattice
    rho2 = 0.1
    problem, largest = corrected(enumerate_packed(packed))
    objective = ChainObjective(packed.dataset, packed.layout)
    result = minimise("gis", objective, ElasticNet(0.0, rho2), theta0=theta, max_iterations=1, tolerance=0.0)
    if result.iterations == 0:
        return
    expected, observed = expectations(problem, np.append(theta, 0.0))
    for k in np.random.default_rng(0).permutation(objective.size)[:10]:

        def excess(delta, k=k):
            scaled = expected[k] * np.exp(min(delta * largest, 500.0))
            return scaled + rho2 * (theta[k] + delta) - observed[k]

        assert result.theta[k] - theta[k] == pytest.approx(brentq(excess, -1e3, 1e3, xtol=1e-13), abs=STEP)


@pytest.mark.parametrize("layout", ["dense", "seen"])
@pytest.mark.parametrize("seed", range(4))
def test_the_loss_never_rises_without_a_penalty(seed, layout):
    lengths = [4, 3, 2, 4, 1, 3, 2]
    packed = pack(random_problem(seed, 3, 4, 2, lengths)._replace(weights=[1.0, 2.5, 0.0, 1.0, 1.0, 1.0, 0.5]), layout)
    objective = ChainObjective(packed.dataset, packed.layout)
    start = random_theta(objective.size, seed)
    result = minimise("gis", objective, ElasticNet(), theta0=start, max_iterations=400, tolerance=0.0)
    values = [line["objective"] for line in result.trace]
    assert len(values) == 401 and values[-1] < values[0] and np.all(np.isfinite(result.theta))
    assert all(after <= before + RISE * abs(before) for before, after in itertools.pairwise(values))


def test_it_reaches_the_optimum_of_other_solvers_without_a_penalty():
    """Every labelling of one input is seen, so that an optimum exists; T(x, y) varies, so that s has a part in it."""
    observations, labels = [[[0], [1]]] * 7, [[0, 0], [0, 1], [1, 0], [1, 1], [0, 0], [1, 1], [1, 1]]
    problem = random_problem(0, 2, 2, 1, [2] * 7)._replace(sequences=observations, labels=labels, weights=[1.0] * 7)
    packed = pack(problem, "seen")
    layout, keep = packed.layout, np.arange(packed.layout.size) % 3 != 0
    from espalier.engine.model import _layout

    family, observation, previous, label = (column[keep] for column in layout.slots())
    some = _layout(2, layout.n_observations, family, observation, previous, label)
    objective = ChainObjective(packed.dataset, some)
    constant = module.constant_of(objective)
    spread = corrected(enumerate_packed(packed._replace(layout=some)))[0]
    assert constant > 1 and np.ptp(spread.counts[0][:, -1]) > 0
    best = minimise("lbfgs", objective, ElasticNet(), max_iterations=500, tolerance=1e-12)
    slow = minimise("iis", objective, ElasticNet(), max_iterations=3000, tolerance=1e-13)
    found = minimise("gis", objective, ElasticNet(), max_iterations=3000, tolerance=1e-13)
    assert found.objective == pytest.approx(best.objective, rel=1e-9)
    assert found.objective == pytest.approx(slow.objective, rel=1e-9)


def test_negative_values_are_refused():
    from espalier.engine.data.dataset import make_dataset
    from espalier.engine.weights.layout import dense_layout

    data = make_dataset([[0]], [0], [0, 1], valued=[[1]], values=[[-0.5]])
    with pytest.raises(EspalierError, match="the value -0.5 is negative, and iterative scaling is for features of at"):
        minimise("gis", ChainObjective(data, dense_layout(2, [1, 1])), ElasticNet(0.0, 1.0))
