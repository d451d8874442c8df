"""The two ways to sum a gradient, by position and by observation: the same numbers, the same bytes for any threads."""

import numpy as np
import pytest
from chain_problems import pack
from reference.problems import random_problem

from espalier.engine.chain import scatter_gradient
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.runtime import threads

ROUNDING = 1e-11  # the two ways add the same terms in another order


def both_ways(packed, theta, sparse="auto"):
    objective = ChainObjective(packed.dataset, packed.layout, sparse)
    assert objective.scattered
    by_position = objective.value_and_gradient(theta)
    objective.scattered = False
    return by_position, objective.value_and_gradient(theta)


def random_theta(size, seed, scale, share=0.7):
    rng = np.random.default_rng(seed)
    return scale * rng.normal(size=size) * (rng.random(size) < share)


@pytest.mark.parametrize("layout", ["dense", "seen"])
@pytest.mark.parametrize("sparse", ["dense", "sparse", "auto"])
@pytest.mark.parametrize("scale", [0.5, 300.0])
@pytest.mark.parametrize("seed", range(6))
def test_by_position_and_by_observation_agree(seed, scale, sparse, layout):
    packed = pack(random_problem(seed, 3 + seed, 6, 3, [1, 2, 9, 30, 4]), layout)
    theta = random_theta(packed.layout.size, seed, scale)
    (first, first_gradient), (second, second_gradient) = both_ways(packed, theta, sparse)
    assert first == pytest.approx(second, rel=1e-13)
    np.testing.assert_allclose(first_gradient, second_gradient, rtol=0, atol=ROUNDING * max(1.0, scale))


def test_a_batch_that_ends_within_the_data_loses_nothing(monkeypatch):
    """More positions than a batch holds, sequences shorter and longer than one."""
    packed = pack(random_problem(3, 4, 5, 2, [300, 5, 1, 255, 256, 257, 90, 90, 90]), "dense")
    theta = random_theta(packed.layout.size, 1, 1.0)
    (_, first), (_, second) = both_ways(packed, theta)
    np.testing.assert_allclose(first, second, rtol=0, atol=ROUNDING * 100)


@pytest.mark.parametrize("scattered", [True, False])
def test_the_same_bytes_for_any_number_of_threads(scattered):
    packed = pack(random_problem(5, 5, 8, 2, [7] * 200), "dense")
    theta = random_theta(packed.layout.size, 2, 1.0)
    found = set()
    for count in (1, 2, 4):
        threads.set_threads(count)
        try:
            objective = ChainObjective(packed.dataset, packed.layout)
            objective.scattered = scattered
            value, gradient = objective.value_and_gradient(theta)
        finally:
            threads.set_threads(None)
        found.add((value, gradient.tobytes()))
    assert len(found) == 1


def test_large_layouts_are_gathered(monkeypatch):
    packed = pack(random_problem(1, 3, 4, 2, [4, 3]), "dense")
    assert ChainObjective(packed.dataset, packed.layout).scattered
    monkeypatch.setattr(scatter_gradient, "LARGEST", packed.layout.size)
    assert not ChainObjective(packed.dataset, packed.layout).scattered
