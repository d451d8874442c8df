"""One block of blockwise descent against the enumeration: derivatives (5) and (16), change of the loss."""

import numpy as np
import pytest
from chain_problems import lattices, pack, random_theta, slot_features, weights_of
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import chain
from reference.problems import random_problem

from engine.blocks import Blocks
from engine.chain_objective import ChainObjective

ROUNDING = 1e-10  # a few hundred roundings of 1e-16, with room
LARGE = 1e-8  # the same where scores of thousands carry fewer decimals
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=60)
DENSITIES = ("sparse", "auto", "dense")


def second_derivatives(problem, weights):
    """(16): sum over positions of w (E f^2 - (E f)^2), f = how often the feature fires at the position."""
    table = {}

    def add(feature, w, repeats, probability):
        table[feature] = table.get(feature, 0.0) + w * repeats**2 * probability * (1.0 - probability)

    for sequence, w in zip(problem.sequences, problem.weights, strict=True):
        single = chain.marginals(sequence, problem.n_labels, weights)
        pairs = chain.pairwise_marginals(sequence, problem.n_labels, weights)
        for t, position in enumerate(sequence):
            for o in {o for o in position if o >= 0}:
                repeats = position.count(o)
                for y in range(problem.n_labels):
                    add(("mu", o, y), w, repeats, single[t, y])
                    if t == 0:
                        add(("start", o, y), w, repeats, single[0, y])
                    else:
                        for p in range(problem.n_labels):
                            add(("lam", o, p, y), w, repeats, pairs[t - 1, p, y])
    return table


def assert_derivatives(packed, theta, sparse, tolerance):
    problem, dataset, layout = packed
    objective = ChainObjective(dataset, layout, sparse=sparse)
    blocks = Blocks(objective, theta.copy())
    weights, features = weights_of(layout, theta), slot_features(layout)
    first = chain.gradient(problem.sequences, problem.labels, problem.n_labels, weights, problem.weights)
    second = second_derivatives(problem, weights)
    for x in range(blocks.count):
        slots = blocks.slots(x)
        assert {features[s] for s in slots} == {f for f in features if f[1] == x}
        if len(blocks.members(x)) == 0:
            continue
        found_first, found_second = blocks.derivatives(x, slots)
        expected = np.array([(first.get(features[s], 0.0), second.get(features[s], 0.0)) for s in slots])
        np.testing.assert_allclose(found_first, expected.reshape(-1, 2)[:, 0], rtol=0, atol=tolerance)
        np.testing.assert_allclose(found_second, expected.reshape(-1, 2)[:, 1], rtol=0, atol=tolerance)


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_derivatives_of_a_block(lattice):
    packed, theta = lattice
    for sparse in DENSITIES:
        assert_derivatives(packed, theta, sparse, ROUNDING)


@EXAMPLES
@given(lattices(scale=300.0))
def test_derivatives_of_a_block_at_large_weights(lattice):
    packed, theta = lattice
    for sparse in DENSITIES:
        assert_derivatives(packed, theta, sparse, LARGE)


@EXAMPLES
@given(lattices(), st.sampled_from(DENSITIES), st.integers(0, 10**6))
@pytest.mark.nojit
def test_moving_blocks_in_turn_tells_the_change_of_the_loss(lattice, sparse, seed):
    """Moves to sparse and to dense values, some taken back: loss and derivatives follow theta all the way."""
    (problem, dataset, layout), theta = lattice
    objective = ChainObjective(dataset, layout, sparse=sparse)
    blocks = Blocks(objective, theta)
    rng = np.random.default_rng(seed)

    def loss():
        weights = weights_of(layout, blocks.theta)
        return chain.loss(problem.sequences, problem.labels, problem.n_labels, weights, problem.weights)

    for x in [*range(blocks.count), *range(blocks.count)]:
        slots = blocks.slots(x)
        if len(blocks.members(x)) == 0 or len(slots) == 0:
            continue
        before, old = loss(), blocks.theta.copy()
        values = random_theta(len(slots), int(rng.integers(10**6)), density=rng.choice([0.0, 0.2, 1.0]))
        change = blocks.move(x, slots, values)
        np.testing.assert_array_equal(blocks.theta[slots], values)
        assert change == pytest.approx(loss() - before, abs=ROUNDING)
        if rng.random() < 0.5:
            blocks.undo()
            np.testing.assert_array_equal(blocks.theta, old)
    assert_derivatives_follow(blocks, problem, layout)


def assert_derivatives_follow(blocks, problem, layout):
    gradient = chain.gradient(
        problem.sequences, problem.labels, problem.n_labels, weights_of(layout, blocks.theta), problem.weights
    )
    features = slot_features(layout)
    for x in range(blocks.count):
        slots = blocks.slots(x)
        if len(blocks.members(x)):
            expected = [gradient.get(features[s], 0.0) for s in slots]
            np.testing.assert_allclose(blocks.derivatives(x, slots)[0], expected, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("n_labels", [5, 8, 9, 17])
def test_derivatives_with_more_labels_than_a_vector_has_lanes(n_labels):
    packed = pack(random_problem(n_labels, n_labels, 3, 2, [2, 1, 2]))
    for seed, density in enumerate((1.0, 0.02, 0.3)):
        theta = random_theta(packed.layout.size, seed, density)
        for sparse in DENSITIES:
            assert_derivatives(packed, theta, sparse, ROUNDING)


def test_a_block_visits_only_the_sequences_that_contain_it():
    packed = pack(random_problem(3, 2, 5, 1, [2, 3, 1, 4, 2]))
    blocks = Blocks(ChainObjective(packed.dataset, packed.layout), np.zeros(packed.layout.size))
    for x in range(blocks.count):
        expected = [n for n, sequence in enumerate(packed.problem.sequences) if any(x in p for p in sequence)]
        assert blocks.members(x).tolist() == expected
