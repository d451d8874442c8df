"""Scores without zeros are the same scores, to the bit."""

import numpy as np
import pytest
from chain_problems import pack
from reference.problems import random_problem

from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.weights import nonzero as module
from espalier.engine.weights.nonzero import active_part


def problem(seed, layout="dense"):
    return pack(random_problem(seed, 5, 30, 4, [7, 1, 12, 5, 9]), layout)


def sparse_theta(size, active, seed=0):
    random = np.random.default_rng(seed)
    theta = random.normal(size=size)
    theta[random.random(size) >= active] = 0.0
    return theta


@pytest.mark.parametrize("active", [0.0, 0.1, 0.2])
@pytest.mark.parametrize("layout", ["dense", "seen"])
@pytest.mark.parametrize("seed", range(4))
def test_loss_and_gradient_are_the_same_bytes(monkeypatch, layout, active, seed):
    packed = problem(seed, layout)
    objective = ChainObjective(packed.dataset, packed.layout)
    objective.scattered = False
    theta = sparse_theta(packed.layout.size, active, seed)
    plain = *objective.value_and_gradient(theta), objective.value(theta)
    monkeypatch.setattr(module, "LEAST", 0)
    found = *objective.value_and_gradient(theta), objective.value(theta)
    assert all(np.array_equal(a, b) for a, b in zip(plain, found, strict=True))


@pytest.mark.parametrize("layout", ["dense", "seen"])
def test_it_holds_the_weights_that_are_not_zero(monkeypatch, layout):
    monkeypatch.setattr(module, "LEAST", 0)
    given = problem(1, layout).layout
    theta = sparse_theta(given.size, 0.1)
    found, small = active_part(theta, given)
    begin, end = given.bounds()
    assert len(found) == np.count_nonzero(theta[:begin]) + end - begin
    for x in range(given.n_observations):
        for name in ("unigram", "start"):
            expected = {int(c): v for c, v in zip(given.run_codes(name, x), run(theta, given, name, x), strict=True)}
            if name == "unigram":
                expected = {c: v for c, v in expected.items() if v != 0.0}
            codes = small.run_codes(name, x).tolist()
            assert dict(zip(codes, run(found, small, name, x), strict=True)) == expected


def run(theta, layout, name, x):
    ptr = layout.family(name)[0]
    return theta[ptr[x] : ptr[x + 1]].tolist()


def test_where_little_would_be_saved_all_stay(monkeypatch):
    layout = problem(1).layout
    theta = sparse_theta(layout.size, 0.1)
    assert active_part(theta, layout)[0] is theta  # small
    monkeypatch.setattr(module, "LEAST", 0)
    theta = np.ones(layout.size)
    assert active_part(theta, layout)[0] is theta
