"""Stochastic gradient: one epoch against the same steps in plain numpy, the seed, and the tuned step."""

import numpy as np
import pytest
from chain_problems import lattices, pack, slot_features
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import solvers as reference
from reference.problems import random_problem

from espalier.engine.chain.one_sequence import make_buffers
from espalier.engine.data.dataset import make_dataset
from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.optimise.solvers import sgd as module
from espalier.engine.weights.layout import dense_layout

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=30)


def plain_epoch(packed, theta, order, step, epoch, rho1, rho2):
    """The steps with dense vectors and enumerated gradients; weights that a sequence touches pay at once."""
    problem, features = packed.problem, slot_features(packed.layout)
    theta, paid, could_pay = theta.copy(), np.zeros_like(theta), 0.0
    count = len(problem.sequences)

    def pay(k):
        before = theta[k]
        if before > 0:
            theta[k] = max(0.0, before - (could_pay + paid[k]))
        elif before < 0:
            theta[k] = min(0.0, before + (could_pay - paid[k]))
        paid[k] += theta[k] - before

    for i, n in enumerate(order):
        sequence = problem.sequences[n]
        one = reference.enumerate_problem(
            [sequence], [problem.labels[n]], problem.n_labels, [problem.weights[n]], features
        )
        eta = step / (1.0 + epoch + i / count)
        theta /= 1.0 + eta * rho2 / count
        could_pay += eta * rho1 / count
        theta -= eta * reference.value_gradient_hessian(one, theta)[1]
        for k, (name, x, *_) in enumerate(features):
            here = sequence[:1] if name == "start" else sequence[1:] if name == "lam" else sequence
            if rho1 and problem.weights[n] > 0 and any(x in row for row in here):
                pay(k)
    for k in range(len(theta)):
        if rho1:
            pay(k)
    return theta


@EXAMPLES
@given(lattices(), st.sampled_from([(0.0, 0.0), (0.0, 0.5), (0.4, 0.0), (0.4, 0.5), (0.4, 1e200)]))
@pytest.mark.nojit
def test_an_epoch_is_its_steps(lattice, rhos):
    """The last penalty shrinks theta at each step by so much that two make a scale underflow."""
    packed, theta = lattice
    objective, found = ChainObjective(packed.dataset, packed.layout), theta.copy()
    order = np.array([2, 0, 1])
    buffers = make_buffers(objective.dataset, objective.layout, objective.sets)
    module.epoch(objective, ElasticNet(*rhos), found, order, 0.3, 2, 0.0, np.zeros_like(theta), buffers)
    np.testing.assert_allclose(found, plain_epoch(packed, theta, order, 0.3, 2, *rhos), rtol=0, atol=1e-10)


@pytest.fixture(scope="module")
def objective():
    packed = pack(random_problem(5, 3, 6, 2, np.random.default_rng(1).integers(1, 7, 60).tolist()))
    return ChainObjective(packed.dataset, packed.layout)


def test_the_seed_decides(objective):
    penalty = ElasticNet(0.1, 0.1)
    one, same, other = (
        minimise("sgd", objective, penalty, max_iterations=3, tolerance=0.0, seed=seed).theta for seed in (1, 1, 2)
    )
    assert one.tobytes() == same.tobytes()
    assert one.tobytes() != other.tobytes()


def test_the_step_is_the_best_of_its_neighbours(objective):
    """The chosen step beats the next on the grid, both ways; weights of another size lead to the same model."""
    penalty, theta = ElasticNet(0.1, 0.1), np.zeros(objective.size)
    buffers = make_buffers(objective.dataset, objective.layout, objective.sets)
    step, spent = module._tune(objective, penalty, theta, np.random.default_rng(0), buffers)
    order = np.random.default_rng(0).permutation(len(objective.dataset.weights))

    def reached(step):
        tried = theta.copy()
        module.epoch(objective, penalty, tried, order, step, 0, 0.0, np.zeros_like(theta), buffers)
        return objective.value(tried) + penalty.value(tried)

    assert reached(step) < reached(step * module.GRID)
    assert reached(step) <= reached(step / module.GRID)
    assert 3 < spent <= module.TRIALS + 2


def test_large_and_small_sequence_weights_are_learned_alike(objective):
    """All weights a millionth: with a penalty of a millionth the optimum is the same, and so is the way to it."""
    data = objective.dataset
    small = ChainObjective(data._replace(weights=data.weights * 2.0**-20), objective.layout)
    there = minimise("sgd", objective, ElasticNet(0.0, 0.5), max_iterations=5, tolerance=0.0)
    here = minimise("sgd", small, ElasticNet(0.0, 0.5 * 2.0**-20), max_iterations=5, tolerance=0.0)
    np.testing.assert_allclose(here.theta, there.theta, rtol=0, atol=1e-9)


def test_no_sequence_is_refused():
    empty = ChainObjective(make_dataset(np.zeros((0, 1)), [], [0]), dense_layout(2, [3]))
    with pytest.raises(EspalierError, match="sgd has no sequence to learn from"):
        minimise("sgd", empty, ElasticNet(0.0, 0.5))
