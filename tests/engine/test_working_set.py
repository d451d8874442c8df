"""Training on virtual weights: the same optimum as on the dense layout, for each solver that takes L1."""

from unittest import mock

import numpy as np
import pytest
from chain_problems import lattices, pack, random_theta
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.problems import random_problem

from espalier.engine.blockwise import blocks
from espalier.engine.blockwise.blocks import BlockObjective
from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise import virtual_weights
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import SOLVERS, minimise
from espalier.engine.optimise.virtual_weights import minimise_virtual, scan
from espalier.engine.runtime.threads import set_threads
from espalier.engine.weights.layout import dense_layout

L1 = [name for name, solver in SOLVERS.items() if solver.accepts_l1 and solver.exact]
PENALTY = ElasticNet(0.3, 0.1)
VIOLATION = 1e-4
ROUNDING = 1e-9
RISE = 1e-12


@pytest.fixture(scope="module")
def packed():
    problem = random_problem(21, 3, 6, 2, [4, 3, 2, 4, 1, 3, 2, 5])
    return pack(problem._replace(weights=[1.0, 2.5, 0.0, 1.0, 1.0, 1.0, 0.5, 2.0]))


def in_dense(layout, theta, dense):
    """theta of a working set as theta of the dense layout."""
    names = {tuple(key): i for i, key in enumerate(zip(*dense.slots(), strict=True))}
    full = np.zeros(dense.size)
    for key, value in zip(zip(*layout.slots(), strict=True), theta, strict=True):
        full[names[tuple(key)]] = value
    return full


def run(packed, solver="sbcd", **options):
    problem = packed.problem
    return minimise_virtual(packed.dataset, problem.n_labels, problem.kinds, PENALTY, solver, start=problem.start,
                            **{"sweeps": 3000, "tolerance": 1e-9, **options})  # fmt: skip


@pytest.mark.parametrize("at_once", [pytest.param(2, marks=pytest.mark.long), 10**6])
@pytest.mark.parametrize("solver", L1)
def test_the_optimum_of_the_dense_problem(packed, solver, at_once, monkeypatch):
    """Also when only a few violators may come in at once: the limit delays and never stops."""
    monkeypatch.setattr(virtual_weights, "LEAST", at_once)
    layout, result = run(packed, solver)
    dense = dense_layout(packed.problem.n_labels, packed.problem.kinds, packed.problem.start)
    objective = ChainObjective(packed.dataset, dense)
    best = minimise("owlqn", objective, PENALTY, max_iterations=3000, tolerance=1e-10)
    theta = in_dense(layout, result.theta, dense)
    assert result.objective == pytest.approx(best.objective, rel=1e-7)
    assert PENALTY.optimality(theta, objective.value_and_gradient(theta)[1]) <= VIOLATION
    np.testing.assert_allclose(theta, best.theta, rtol=0, atol=1e-3)
    assert layout.size < dense.size
    assert result.stop_reason in ("optimal", "converged", "line_search")


@pytest.mark.parametrize("solver", L1)
def test_the_trace_never_rises_and_counts_all_iterations(packed, solver):
    layout, result = run(packed, solver, sweeps=7, tolerance=1e-12)
    values = [line["objective"] for line in result.trace]
    assert all(b <= a + RISE * abs(a) for a, b in zip(values, values[1:], strict=False))
    assert [line["iteration"] for line in result.trace] == list(range(result.iterations + 1))
    assert (result.iterations, result.stop_reason) == (7, "max_iterations")
    evaluations = [line["evaluations"] for line in result.trace]
    assert evaluations == sorted(evaluations)
    objective = ChainObjective(packed.dataset, layout)
    assert result.objective == pytest.approx(objective.value(result.theta) + PENALTY.value(result.theta), rel=1e-12)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(lattices(), st.sampled_from([1.0, 300.0]), st.sampled_from([1, blocks.BASES]), st.integers(0, 10**6))
@pytest.mark.nojit
def test_the_scan_is_the_dense_gradient(lattice, scale, bases, seed):
    """Any part of the weights in the set, any theta, ordinary or extreme: every violator outside is found, no other."""
    (problem, dataset, _), _ = lattice
    dense = dense_layout(problem.n_labels, problem.kinds, problem.start)
    rng = np.random.default_rng(seed)
    inside = rng.random(dense.size) < rng.choice([0.0, 0.3, 1.0])
    keys = []
    for f, name in enumerate(("unigram", "start", "bigram")):
        family, observation, previous, label = (column[inside] for column in dense.slots())
        mine = family == f
        code = previous[mine].astype(np.int64) * problem.n_labels + label[mine] if f == 2 else label[mine]
        keys.append(observation[mine].astype(np.int64) * dense.family(name)[2] + code)
    layout = virtual_weights._layout(keys, problem.n_labels, len(problem.kinds))
    theta = scale * random_theta(layout.size, seed)
    kinds = np.array(problem.kinds, np.uint8)
    with mock.patch.object(blocks, "BASES", bases):
        found = scan(BlockObjective(dataset, layout), theta, kinds, 0.2, problem.start)
    full = np.zeros(dense.size)
    full[inside] = theta
    gradient = ChainObjective(dataset, dense).value_and_gradient(full)[1]
    np.testing.assert_allclose(found.gradient, gradient[inside], rtol=0, atol=ROUNDING * scale)
    excess = np.abs(gradient[~inside]) - 0.2
    certain = np.sort(excess[excess > ROUNDING * scale])
    assert len(certain) <= len(found.excess) <= np.count_nonzero(excess > -ROUNDING * scale)
    np.testing.assert_allclose(
        np.sort(found.excess)[len(found.excess) - len(certain) :], certain, atol=ROUNDING * scale
    )
    assert len(set(zip(found.family.tolist(), found.key.tolist(), strict=True))) == len(found.key)


def test_the_same_bytes_for_any_number_of_threads():
    packed, found = pack(random_problem(9, 4, 40, 3, [5] * 300)), []
    for count in (1, 2, 4):
        set_threads(count)
        try:
            layout, result = run(packed, sweeps=6)
        finally:
            set_threads(None)
        found.append((layout.size, layout.bigram_code.tobytes(), result.theta.tobytes()))
    assert found[0] == found[1] == found[2]


def test_the_caller_can_stop(packed):
    heard = []
    _, result = run(packed, on_iteration=lambda line, theta: heard.append(line["iteration"]) or len(heard) == 5)
    assert (result.stop_reason, result.iterations, heard) == ("stopped", 4, [0, 1, 2, 3, 4])


def test_a_large_rho1_leaves_nothing(packed):
    layout, result = minimise_virtual(packed.dataset, 3, packed.problem.kinds, ElasticNet(1e3, 0.0))
    assert (layout.size, result.stop_reason, result.iterations) == (0, "optimal", 0)


def test_rho1_of_zero_is_refused(packed):
    with pytest.raises(EspalierError, match="rho1 is 0.0: expected more than 0"):
        minimise_virtual(packed.dataset, 3, packed.problem.kinds, ElasticNet(0.0, 1.0))
