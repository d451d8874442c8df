"""One block of blockwise descent against the enumeration: derivatives (5) and (16), change of the loss."""

import itertools
from unittest import mock

import numpy as np
import pytest
from chain_problems import lattices, pack, random_theta, slot_features, weights_of
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import chain
from reference.problems import random_problem

from espalier.engine.blockwise import blocks as blocks_module
from espalier.engine.blockwise.blocks import BlockObjective, Blocks, share_bases
from espalier.engine.chain.pair_sets import PairSets
from espalier.engine.data.dataset import make_dataset
from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.optimise.solvers.sbcd import FARTHEST, balance, live_slots, propose
from espalier.engine.runtime.threads import set_threads
from espalier.engine.weights.layout import dense_layout

ROUNDING = 1e-10  # a few hundred roundings of 1e-16, with room
LARGE = 1e-8  # the same where scores of thousands carry fewer decimals
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=60)
DENSITIES = ("sparse", "auto", "dense")
SHARED = (1, 2, blocks_module.BASES)  # bases at most: with few of them, most members of sets are beyond


def with_bases(most):
    return mock.patch.object(blocks_module, "BASES", most)


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


def derivatives(blocks, x, hot=None):
    """(slots, sum of w log Z, first derivative of the loss, (16)) of block x, in a visit or in one of its own."""
    slots, at, code = live_slots(blocks.theta, blocks.layout, np.ones(blocks.layout.size, bool), x)
    loss, first, second = blocks.evaluate(x, blocks.visit(x) if hot is None else hot, code)
    return slots, loss, first[at] - blocks.observed[slots], second[at]


def value(blocks, x, hot):
    return blocks.evaluate(x, hot, np.empty(0, np.int32), False)[0]


def occurs(blocks, x):
    return blocks.index.ptr[x] < blocks.index.ptr[x + 1]


def assert_derivatives(packed, theta, sparse, tolerance):
    problem, dataset, layout = packed
    blocks = Blocks(ChainObjective(dataset, layout, sparse=sparse), theta.copy())
    weights, features = weights_of(layout, theta), slot_features(layout)
    first = chain.gradient(problem.sequences, problem.labels, problem.n_labels, weights, problem.weights)
    second = second_derivatives(problem, weights)
    expected = np.array([(first.get(f, 0.0), second.get(f, 0.0)) for f in features]).reshape(-1, 2)
    for x in range(blocks.count):
        assert {features[s] for s in blocks.slots(x)} == {f for f in features if f[1] == x}
        if not occurs(blocks, x):
            continue
        slots, _, found_first, found_second = derivatives(blocks, x)
        np.testing.assert_array_equal(slots, blocks.slots(x))
        np.testing.assert_allclose(found_first, expected[slots, 0], rtol=0, atol=tolerance)
        np.testing.assert_allclose(found_second, expected[slots, 1], rtol=0, atol=tolerance)
    log_z, found_first = blocks.expectations()
    loss = chain.loss(problem.sequences, problem.labels, problem.n_labels, weights, problem.weights)
    assert log_z - theta @ blocks.observed == pytest.approx(loss, abs=tolerance, rel=ROUNDING)
    np.testing.assert_allclose(found_first - blocks.observed, expected[:, 0], rtol=0, atol=tolerance)


@EXAMPLES
@given(lattices(), st.sampled_from(SHARED))
@pytest.mark.nojit
def test_derivatives_of_a_block(lattice, most):
    packed, theta = lattice
    for sparse in DENSITIES:
        with with_bases(most):
            assert_derivatives(packed, theta, sparse, ROUNDING)


@EXAMPLES
@given(lattices(scale=300.0), st.sampled_from(SHARED))
def test_derivatives_of_a_block_at_large_weights(lattice, most):
    packed, theta = lattice
    for sparse in DENSITIES:
        with with_bases(most):
            assert_derivatives(packed, theta, sparse, LARGE)


@EXAMPLES
@given(lattices(), st.sampled_from(DENSITIES), st.sampled_from(SHARED), st.integers(0, 10**6))
@pytest.mark.nojit
def test_moving_blocks_in_turn_tells_the_change_of_the_loss(lattice, sparse, most, seed):
    """Moves to sparse, dense and extreme values, in any order, with and without derivatives: kept messages follow."""
    (problem, dataset, layout), theta = lattice
    with with_bases(most):
        blocks = Blocks(ChainObjective(dataset, layout, sparse=sparse), theta)
    rng = np.random.default_rng(seed)

    def loss():
        weights = weights_of(layout, blocks.theta)
        return chain.loss(problem.sequences, problem.labels, problem.n_labels, weights, problem.weights)

    visited = [x for x in range(blocks.count) if occurs(blocks, x) and len(blocks.slots(x))]
    for x in rng.permutation(visited * 3):
        slots = blocks.slots(x)
        before, old = loss(), blocks.theta[slots].copy()
        hot = blocks.visit(x)
        start = derivatives(blocks, x, hot)[1] if rng.random() < 0.5 else value(blocks, x, hot)
        scale = rng.choice([1.0, 300.0], p=[0.8, 0.2])
        blocks.theta[slots] = scale * random_theta(len(slots), int(rng.integers(10**6)), rng.choice([0.0, 0.2, 1.0]))
        blocks.refresh(x)
        end = derivatives(blocks, x, hot)[1] if rng.random() < 0.5 else value(blocks, x, hot)
        change = end - start - (blocks.theta[slots] - old) @ blocks.observed[slots]
        assert change == pytest.approx(loss() - before, abs=ROUNDING * scale)
        if scale > 1.0:
            blocks.theta[slots] = old
            blocks.refresh(x)
            assert value(blocks, x, hot) == pytest.approx(start, abs=ROUNDING)
    gradient = chain.gradient(
        problem.sequences, problem.labels, problem.n_labels, weights_of(layout, blocks.theta), problem.weights
    )
    expected = np.array([gradient.get(feature, 0.0) for feature in slot_features(layout)])
    for x in visited:
        slots, _, first, _ = derivatives(blocks, x)
        np.testing.assert_allclose(first, expected[slots], rtol=0, atol=ROUNDING)


@EXAMPLES
@given(st.lists(st.lists(st.integers(0, 7), max_size=3, unique=True), max_size=12, unique_by=tuple), st.integers(1, 6))
@pytest.mark.nojit
def test_a_base_is_what_sets_share(members, most):
    ends = np.cumsum([0, *(len(some) for some in members)])
    sets = PairSets(np.empty(0, np.int32), ends, np.array(sum(members, []), np.int32))
    with with_bases(most):
        found = share_bases(sets, dense_layout(2, [3] * 8))

    def runs(ptr, entry):
        return [entry[lo:hi].tolist() for lo, hi in itertools.pairwise(ptr)]

    bases, rest = runs(found.base_ptr, found.base_member), runs(found.rest_ptr, found.rest_member)
    assert len(bases) <= most
    assert len({tuple(base) for base in bases}) == len(bases)
    common, rare = set(sum(bases, [])), set(sum(rest, []))
    assert not common & rare
    for p, some in enumerate(members):
        assert bases[found.base[p]] == [x for x in some if x in common]
        assert rest[p] == [x for x in some if x in rare]
    for x in range(8):
        assert runs(found.bases_ptr, found.bases)[x] == [b for b, base in enumerate(bases) if x in base]
        assert runs(found.sets_ptr, found.sets)[x] == [p for p, some in enumerate(rest) if x in some]
    assert runs(found.held_ptr, found.held) == [np.flatnonzero(found.base == b).tolist() for b in range(len(bases))]


@pytest.mark.parametrize("n_labels", [5, 8, 9, 17])
def test_derivatives_with_more_labels_than_a_vector_has_lanes(n_labels):
    packed = pack(random_problem(n_labels, n_labels, 3, 2, [2, 1, 2]))
    for seed, density in enumerate((1.0, 0.02, 0.3)):
        theta = random_theta(packed.layout.size, seed, density)
        for sparse in DENSITIES:
            assert_derivatives(packed, theta, sparse, ROUNDING)


def test_a_block_visits_only_the_sequences_with_a_weight_that_contain_it():
    packed = pack(random_problem(3, 2, 5, 1, [2, 3, 1, 4, 2])._replace(weights=[1.0, 2.0, 1.0, 0.0, 1.0]))
    blocks = Blocks(ChainObjective(packed.dataset, packed.layout), np.zeros(packed.layout.size))
    for x in range(blocks.count):
        holders = [n for n, sequence in enumerate(packed.problem.sequences) if any(x in p for p in sequence)]
        assert blocks.sequences(x).tolist() == [n for n in holders if n != 3]


def test_only_the_stretch_up_to_the_block_is_computed():
    """Forward up to the last and backward down to the first occurrence: what lies beyond is never written."""
    dataset = make_dataset([[0], [1], [2], [1], [3], [0]], [0, 1, 0, 1, 1, 0], [0, 6])
    blocks = Blocks(ChainObjective(dataset, dense_layout(2, [3] * 4)), np.zeros(dense_layout(2, [3] * 4).size))
    messages = blocks.state.messages
    messages.alpha[:], messages.beta[:] = np.nan, np.nan
    derivatives(blocks, 1)
    assert np.isfinite(messages.alpha).all(axis=1).tolist() == [True, True, True, True, False, False]
    assert np.isfinite(messages.beta).all(axis=1).tolist() == [False, True, True, True, True, True]


@pytest.mark.parametrize("sparse", DENSITIES)
def test_a_block_of_many_pieces_and_many_sets(sparse):
    """More occurrences than one piece holds, several sets, repeats in one position, against the chain objective."""
    problem = random_problem(9, 4, 6, 3, [5] * 400)
    packed = pack(problem)
    theta = random_theta(packed.layout.size, 4, 0.4)
    objective = ChainObjective(packed.dataset, packed.layout, sparse)
    blocks = Blocks(objective, theta.copy())
    assert np.diff(blocks.index.piece_ptr).min() > 1
    loss, gradient = objective.value_and_gradient(theta)
    own = BlockObjective(packed.dataset, packed.layout, sparse)
    own_loss, own_gradient = own.value_and_gradient(theta)
    assert own_loss == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(own_gradient, gradient, rtol=0, atol=1e-9)
    for x in range(blocks.count):
        slots, _, first, _ = derivatives(blocks, x)
        np.testing.assert_allclose(first, gradient[slots], rtol=0, atol=1e-9)


# ---- the visit of a block


@pytest.mark.nojit
@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.integers(0, 10**6))
def test_balance_finds_the_constant_of_least_penalty(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    theta = random_theta(n, seed, rng.choice([0.3, 1.0]))
    rho1, rho2 = rng.choice([0.0, 0.2, 2.0]), rng.choice([0.0, 0.1, 3.0])
    penalty, before = ElasticNet(rho1, rho2), theta.copy()
    moved = balance(theta, np.array([0, n]), 0, n, rho1, rho2)
    assert moved == bool(np.any(theta != before))
    np.testing.assert_allclose(theta - before, (theta - before)[0], atol=1e-12)
    grid = np.concatenate([-before, np.linspace(-5, 5, 2001)])
    best = min(penalty.value(before + c) for c in grid)
    assert penalty.value(theta) <= best + 1e-12


def test_balance_leaves_a_block_alone_that_lacks_a_label():
    theta = np.array([3.0, 3.0])
    assert not balance(theta, np.array([0, 2]), 0, 3, 0.5, 0.1)


def test_a_step_stays_in_its_box_and_knows_where_it_is():
    """(13) by hand: curvature 2, gradient -1, rho1 0.5, rho2 1 from 0 is 0.5 / 3; of -100 the box ends it."""
    theta, slot, at = np.zeros(2), np.arange(2), np.arange(2, dtype=np.int32)
    arguments = np.zeros(2), np.array([0.0, 0.0]), np.array([1.0, 1.0]), np.zeros((0, 0))
    assert propose(theta, slot, at, *arguments, np.array([1.0, 100.0]), 2.0, 0.5, 1.0)
    np.testing.assert_allclose(theta, [0.5 / 3.0, FARTHEST])
    assert not propose(np.zeros(2), slot, at, *arguments, np.array([0.4, -0.5]), 2.0, 0.5, 1.0)


def full_hessian(problem, weights, features):
    """THESIS appendix D: sum over positions of w r^2 (E f_j f_k - E f_j E f_k) for features of one observation."""
    total = np.zeros((len(features), len(features)))
    for sequence, w in zip(problem.sequences, problem.weights, strict=True):
        pairs = chain.pairwise_marginals(sequence, problem.n_labels, weights)
        single = chain.marginals(sequence, problem.n_labels, weights)
        for t, position in enumerate(sequence):
            repeats = [position.count(f[1]) for f in features]
            states = range(problem.n_labels)
            events = [(None, y, single[t, y]) for y in states] if t == 0 else [
                (p, y, pairs[t - 1, p, y]) for p in states for y in states]  # fmt: skip
            f = np.array([[r * fires(feature, p, y) for feature, r in zip(features, repeats, strict=True)]
                          for p, y, _ in events])  # fmt: skip
            q = np.array([probability for _, _, probability in events])
            total += w * ((f.T * q) @ f - np.outer(q @ f, q @ f))
    return total


def fires(feature, previous, label):
    if feature[0] == "mu":
        return feature[2] == label
    if feature[0] == "start":
        return previous is None and feature[2] == label
    return previous is not None and feature[2:] == (previous, label)


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_the_full_hessian_of_a_block(lattice):
    (problem, dataset, layout), theta = lattice
    features = slot_features(layout)
    for sparse in DENSITIES:
        blocks = Blocks(ChainObjective(dataset, layout, sparse=sparse), theta.copy())
        for x in range(blocks.count):
            if occurs(blocks, x):
                slots, at, code = live_slots(theta, layout, np.ones(layout.size, bool), x)
                hot = blocks.visit(x)
                blocks.evaluate(x, hot, code)
                expected = full_hessian(problem, weights_of(layout, theta), [features[s] for s in slots])
                np.testing.assert_allclose(blocks.hessian(hot, at, code), expected, rtol=0, atol=ROUNDING)


@pytest.mark.nojit
@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.integers(0, 10**6))
def test_a_full_model_is_minimised(seed):
    """First-order conditions of g d + d H d / 2 + elastic net, where the box does not bind."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    root = rng.normal(size=(n, n))
    matrix, base, g = root @ root.T + 0.5 * np.eye(n), rng.normal(size=n), rng.normal(size=n)
    theta, penalty = base.copy(), ElasticNet(0.4, 0.2)
    slot, at, zero = np.arange(n), np.arange(n, dtype=np.int32), np.zeros(n)
    propose(theta, slot, at, base, g, np.diag(matrix).copy(), matrix, zero, 1.5, penalty.rho1, penalty.rho2)
    if np.abs(theta - base).max() < FARTHEST:
        assert penalty.optimality(theta, g + 1.5 * matrix @ (theta - base)) <= 1e-3
    else:
        assert np.abs(theta - base).max() == pytest.approx(FARTHEST)


@pytest.mark.parametrize("layout", ["dense", "seen"])
def test_both_hessians_end_at_the_same_optimum(layout):
    packed = pack(random_problem(21, 3, 4, 2, [4, 3, 2, 4, 1, 3, 2]), layout)
    objective, penalty, results = ChainObjective(packed.dataset, packed.layout), ElasticNet(0.3, 0.1), {}
    for hessian in ("diagonal", "full"):
        found = minimise("sbcd", objective, penalty, max_iterations=3000, tolerance=1e-9, hessian=hessian)
        values = [line["objective"] for line in found.trace]
        assert all(after <= before * (1 + 1e-12) for before, after in zip(values, values[1:], strict=False))
        results[hessian] = found
    assert results["full"].objective == pytest.approx(results["diagonal"].objective, rel=1e-7)
    np.testing.assert_allclose(results["full"].theta, results["diagonal"].theta, rtol=0, atol=1e-3)


def test_an_unknown_hessian_is_refused():
    packed = pack(random_problem(21, 2, 2, 1, [2]))
    with pytest.raises(EspalierError, match="hessian is 'exact': expected one of diagonal, full"):
        minimise("sbcd", ChainObjective(packed.dataset, packed.layout), ElasticNet(), hessian="exact")


@pytest.mark.parametrize("layout", ["dense", "seen"])
def test_the_same_bytes_for_any_number_of_threads(layout):
    packed = pack(random_problem(9, 4, 6, 3, [5] * 400), layout)
    objective, found = ChainObjective(packed.dataset, packed.layout), []
    for count in (1, 2, 4):
        set_threads(count)
        try:
            found.append(minimise("sbcd", objective, ElasticNet(0.5, 0.01), max_iterations=3, tolerance=0.0))
        finally:
            set_threads(None)
    assert len({result.theta.tobytes() for result in found}) == 1
    assert len({result.objective for result in found}) == 1


def test_a_start_with_extreme_weights():
    """|theta| = 700: the recursion by logarithms, and a way back to the same optimum."""
    packed = pack(random_problem(21, 3, 4, 2, [4, 3, 2, 4, 1, 3, 2]))
    objective, penalty = ChainObjective(packed.dataset, packed.layout), ElasticNet(0.3, 0.1)
    start = 700.0 * np.sign(random_theta(objective.size, 3, 0.5))
    far = minimise("sbcd", objective, penalty, theta0=start, max_iterations=5000, tolerance=1e-9)
    near = minimise("sbcd", objective, penalty, max_iterations=5000, tolerance=1e-9)
    values = [line["objective"] for line in far.trace]
    assert all(after <= before * (1 + 1e-12) for before, after in zip(values, values[1:], strict=False))
    assert far.objective == pytest.approx(near.objective, rel=1e-6)


def test_duplicates_and_weights_say_the_same():
    """A sequence of weight 2 is the sequence twice; one of weight 0 is none."""
    problem = random_problem(5, 3, 4, 2, [3, 4, 2])._replace(weights=[2.0, 1.0, 0.0])
    twice = problem._replace(
        sequences=[problem.sequences[i] for i in (0, 0, 1)], labels=[problem.labels[i] for i in (0, 0, 1)],
        weights=[1.0, 1.0, 1.0],
    )  # fmt: skip
    results = []
    for each in (problem, twice):
        packed = pack(each)
        objective = ChainObjective(packed.dataset, packed.layout)
        results.append(minimise("sbcd", objective, ElasticNet(0.2, 0.1), max_iterations=3000, tolerance=1e-10))
    assert results[0].objective == pytest.approx(results[1].objective, rel=1e-9)
    np.testing.assert_allclose(results[0].theta, results[1].theta, atol=1e-4)
