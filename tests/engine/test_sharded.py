"""Blocks, their tree of sums and the objective over them: the same bytes however the blocks lie."""

import itertools

import numpy as np
import pytest
from chain_problems import pack, random_theta, slot_features, weights_of
from reference import chain
from reference.problems import random_problem

from espalier.engine.data.dataset import UNKNOWN, make_dataset
from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.parts.sharded_objective import (
    BLOCK_TOKENS,
    InProcess,
    Part,
    ShardedObjective,
    block_of,
    cover,
    cut,
    in_process,
    nothing,
    root_of,
    tree_sum,
)
from espalier.engine.runtime import threads
from espalier.engine.weights.layout import Layout, dense_layout, merged, seen_layout
from espalier.engine.weights.sublayout import present, renumber, restrict

ROUNDING = 1e-11  # sums of the same terms in another order


def words(seed, sequences=60, n_labels=4, layout="dense"):
    """A problem of short sequences; some observations are rare, so that blocks differ in what occurs in them."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, sequences).tolist()
    problem = random_problem(seed, n_labels, 40, 3, lengths)
    return pack(problem, layout)


def as_parts(packed, bounds, ends, sparse="auto"):
    """The objective with blocks [ends[k], ends[k + 1]) in part k."""
    parts = [
        Part((block_of(packed.dataset, *bounds[b]) for b in range(lo, hi)), lo, len(bounds), packed.layout, sparse)
        for lo, hi in itertools.pairwise(ends)
    ]
    first = lambda: block_of(packed.dataset, *bounds[0])  # noqa: E731
    return ShardedObjective(InProcess(parts), packed.layout, first, len(packed.dataset.weights), sparse)


def bytes_of(objective, theta):
    value, gradient = objective.value_and_gradient(theta)
    return value, objective.value(theta), gradient.tobytes(), objective.observed.tobytes()


# ---- blocks


def test_blocks_are_whole_sequences_of_about_equal_size():
    offsets = np.concatenate([[0], np.cumsum(np.random.default_rng(0).integers(1, 30, 500))])
    bounds = cut(offsets, 700)
    assert [lo for lo, _ in bounds] == [0, *(hi for _, hi in bounds[:-1])] and bounds[-1][1] == 500
    sizes = [offsets[hi] - offsets[lo] for lo, hi in bounds]
    assert len(bounds) == round(offsets[-1] / 700) and max(sizes) - min(sizes) <= 60


@pytest.mark.parametrize("tokens, blocks", [(1, 1), (BLOCK_TOKENS, 1), (BLOCK_TOKENS * 3 // 2 - 1, 1),
                                            (BLOCK_TOKENS * 3 // 2 + 1, 2), (BLOCK_TOKENS * 10, 10)])  # fmt: skip
def test_ordinary_corpora_are_one_block(tokens, blocks):
    assert len(cut(np.arange(0, tokens + 1), BLOCK_TOKENS)) == blocks


def test_a_sequence_longer_than_a_block_stays_whole():
    bounds = cut(np.array([0, 5, 1005, 1010]), 10)
    assert sorted(b for lo, hi in bounds for b in range(lo, hi)) == [0, 1, 2] and len(bounds) < 4


def test_a_block_size_below_one_is_refused():
    with pytest.raises(EspalierError, match="block_tokens is 0: expected at least 1"):
        cut(np.array([0, 1]), 0)


def test_one_block_is_a_plain_chain_objective():
    packed = words(0)
    assert type(in_process(packed.dataset, packed.layout)) is ChainObjective
    theta = random_theta(packed.layout.size, 1)
    objective = as_parts(packed, [(0, len(packed.dataset.weights))], [0, 1])
    assert bytes_of(objective, theta) == bytes_of(ChainObjective(packed.dataset, packed.layout), theta)


# ---- the tree


def naive(lo, level, n):
    """The sum over [lo, lo + 2^level) with brackets."""
    if lo >= n:
        return ""
    if level == 0:
        return f"{lo}"
    left, right = naive(lo, level - 1, n), naive(lo + 2 ** (level - 1), level - 1, n)
    return f"({left}+{right})" if right else left


class Text(str):
    """Adds with brackets, so that the order of a sum shows."""

    def __add__(self, other):
        return Text(f"({str(self)}+{str(other)})")


@pytest.mark.parametrize("n", range(1, 18))
def test_every_cover_of_the_blocks_gives_the_same_brackets(n):
    level, index = root_of(n)
    assert 2**level >= n and index == 0
    for lo, hi in itertools.combinations(range(n + 1), 2):
        nodes = cover(lo, hi, n)
        held = [b for node in nodes for b in range(node[1] << node[0], min((node[1] + 1) << node[0], n))]
        assert held == list(range(lo, hi))
        ends = sorted({0, lo, hi, n})
        known = {node for a, b in itertools.pairwise(ends) for node in cover(a, b, n)}

        def add(node, into, known=known):
            return Text(naive(node[1] << node[0], node[0], n)) if node in known else None

        assert tree_sum((level, index), n, add, None, nothing) == naive(0, level, n)


def test_a_cover_is_as_small_as_can_be():
    assert cover(0, 8, 8) == [(3, 0)] and cover(4, 6, 8) == [(1, 2)] and cover(4, 7, 7) == [(2, 1)]
    assert cover(3, 8, 9) == [(0, 3), (2, 1)] and cover(0, 5, 5) == [(3, 0)]


# ---- layouts of parts


@pytest.mark.parametrize("layout", ["dense", "seen"])
def test_a_restricted_layout_has_the_weights_of_its_observations(layout):
    packed = words(3, layout=layout)
    block = block_of(packed.dataset, 5, 9)
    seen = present(block, packed.layout.n_observations)
    assert seen.tolist() == sorted(set(block.observations.ravel().tolist()) - {-1})
    mine, runs = restrict(packed.layout, seen)
    theta = np.arange(1.0, packed.layout.size + 1)
    short = runs.take(theta)
    names = {feature: value for feature, value in zip(slot_features(packed.layout), theta, strict=True)}
    for (family, x, *rest), value in zip(slot_features(mine), short, strict=True):
        assert names.pop((family, int(seen[x]), *rest)) == value
    assert not {x for _, x, *_ in names} & set(seen.tolist())
    back = np.zeros(packed.layout.size)
    runs.add(short, back)
    assert set(np.flatnonzero(back) + 1.0) == set(short.tolist()) and np.all((back == 0) | (back == theta))
    again = renumber(block, seen, packed.layout.n_observations).observations
    assert np.array_equal(np.append(seen, -1)[again], block.observations)


@pytest.mark.parametrize("block_tokens", [1, 7, 60, 10_000])
@pytest.mark.parametrize("start", [True, False])
def test_merged_layouts_of_blocks_are_that_of_the_whole(start, block_tokens):
    packed = words(4)
    kinds, n_labels = np.array(packed.problem.kinds, np.uint8), packed.problem.n_labels
    whole = seen_layout(packed.dataset, n_labels, kinds, start)
    blocks = (block_of(packed.dataset, lo, hi) for lo, hi in cut(packed.dataset.offsets, block_tokens))
    found = merged(seen_layout(block, n_labels, kinds, start) for block in blocks)
    for name, a, b in zip(Layout._fields, found, whole, strict=True):
        assert np.array_equal(a, b) and getattr(a, "dtype", 0) == getattr(b, "dtype", 0), name


def test_dense_layouts_merge_too():
    layout = dense_layout(3, np.array([1, 2, 3], np.uint8))
    found = merged([layout, layout])
    assert found.size == layout.size and [c.tolist() for c in found.slots()] == [c.tolist() for c in layout.slots()]
    with pytest.raises(EspalierError, match="there is no layout to merge"):
        merged([])


# ---- the objective


@pytest.mark.parametrize("layout", ["dense", "seen"])
@pytest.mark.parametrize("sparse", ["auto", "dense", "sparse"])
@pytest.mark.parametrize("block_tokens", [1, 11, 90])
def test_blocks_have_the_loss_and_gradient_of_the_whole(layout, sparse, block_tokens):
    packed = words(1, layout=layout)
    theta = random_theta(packed.layout.size, 2, density=0.6)
    objective = in_process(packed.dataset, packed.layout, sparse, block_tokens)
    assert objective.pool.n_blocks > 2
    whole = ChainObjective(packed.dataset, packed.layout, sparse)
    value, gradient = objective.value_and_gradient(theta)
    expected, slopes = whole.value_and_gradient(theta)
    assert value == pytest.approx(expected, rel=1e-13) and objective.value(theta) == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(gradient, slopes, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(objective.observed, whole.observed, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(objective.scaling(gradient, 0.5), whole.scaling(slopes, 0.5), rtol=1e-9)
    assert objective.active(theta) == whole.active(theta)


def test_blocks_have_the_loss_and_gradient_of_enumeration():
    packed = words(6, sequences=12, n_labels=2)
    theta = random_theta(packed.layout.size, 3)
    p, weights = packed.problem, weights_of(packed.layout, theta)
    value, gradient = in_process(packed.dataset, packed.layout, block_tokens=9).value_and_gradient(theta)
    assert value == pytest.approx(chain.loss(p.sequences, p.labels, p.n_labels, weights, p.weights), rel=1e-11)
    expected = chain.gradient(p.sequences, p.labels, p.n_labels, weights, p.weights)
    oracle = [expected.get(feature, 0.0) for feature in slot_features(packed.layout)]
    np.testing.assert_allclose(gradient, oracle, rtol=0, atol=1e-9)


@pytest.mark.parametrize("layout", ["dense", "seen"])
@pytest.mark.parametrize("blocks", [2, 3, 5, 8])
def test_the_same_bytes_for_every_way_to_lay_the_blocks(layout, blocks):
    packed = words(7, layout=layout)
    theta = random_theta(packed.layout.size, 4, density=0.7)
    bounds = cut(packed.dataset.offsets, len(packed.dataset.labels) // blocks)
    assert len(bounds) == blocks
    found = set()
    for count in range(min(blocks, 4)):
        for inner in itertools.islice(itertools.combinations(range(1, blocks), count), 12):
            found.add(bytes_of(as_parts(packed, bounds, [0, *inner, blocks]), theta))
    assert len(found) == 1


def test_another_order_of_the_sum_would_show():
    """That the bytes above agree says something: a plain sum over the blocks has other ones."""
    packed = words(7)
    theta = random_theta(packed.layout.size, 4, density=0.7)
    bounds = cut(packed.dataset.offsets, len(packed.dataset.labels) // 8)
    plain = sum(
        ChainObjective(block_of(packed.dataset, lo, hi), packed.layout).value_and_gradient(theta)[1]
        for lo, hi in bounds
    )
    ours = as_parts(packed, bounds, [0, 8]).value_and_gradient(theta)[1]
    np.testing.assert_allclose(plain, ours, rtol=0, atol=ROUNDING)
    assert plain.tobytes() != ours.tobytes()


@pytest.mark.parametrize("gathered", [False, True])
def test_the_same_bytes_for_any_number_of_threads(gathered):
    packed = words(8, sequences=300)
    theta = random_theta(packed.layout.size, 5)
    found = set()
    for count in (1, 2, 4):
        threads.set_threads(count)
        try:
            objective = in_process(packed.dataset, packed.layout, block_tokens=150)
            for block in objective.pool.parts[0].blocks:
                block.objective.scattered = not gathered
            found.add(bytes_of(objective, theta))
        finally:
            threads.set_threads(None)
    assert len(found) == 1


def test_partial_labels_and_token_weights_in_blocks():
    packed = words(9)
    rng, data = np.random.default_rng(1), packed.dataset
    labels = np.where(rng.random(len(data.labels)) < 0.3, -1, data.labels).astype(np.int32)
    labels[: data.offsets[20]] = -1  # nothing is known of the first sequences, nor of the first blocks
    theta = random_theta(packed.layout.size, 6)
    for changed in (data._replace(labels=labels), data._replace(token_weights=rng.random(len(labels)))):
        objective = in_process(changed, packed.layout, block_tokens=15)
        value, gradient = objective.value_and_gradient(theta)
        expected, slopes = ChainObjective(changed, packed.layout).value_and_gradient(theta)
        assert value == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(gradient, slopes, rtol=0, atol=ROUNDING)


def test_extreme_weights_in_blocks():
    packed = words(10)
    theta = random_theta(packed.layout.size, 7, scale=400.0)
    value, gradient = in_process(packed.dataset, packed.layout, block_tokens=30).value_and_gradient(theta)
    expected, slopes = ChainObjective(packed.dataset, packed.layout).value_and_gradient(theta)
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(gradient, slopes, rtol=0, atol=1e-8)


RIDGE, NET = ElasticNet(0.0, 0.5), ElasticNet(0.3, 0.1)


GRADIENT_SOLVERS = [
    *((solver, NET) for solver in ("owlqn", "pqn", "hybrid")),
    *((solver, RIDGE) for solver in ("lbfgs", "cg-pr", "hybrid")),
]


@pytest.mark.parametrize("solver, penalty", GRADIENT_SOLVERS)
def test_gradient_solvers_end_with_the_same_bytes_however_the_blocks_lie(solver, penalty):
    packed = words(11)
    bounds = cut(packed.dataset.offsets, 50)
    ways = ([0, len(bounds)], [0, 1, len(bounds)], [0, 2, 3, len(bounds)])
    to_the_end = {"max_iterations": 100, "tolerance": 1e-8}  # hybrid begins elsewhere with the whole
    results = [minimise(solver, as_parts(packed, bounds, way), penalty, **to_the_end) for way in ways]
    assert len({(r.theta.tobytes(), r.objective, repr(r.trace)) for r in results}) == 1
    whole = minimise(solver, ChainObjective(packed.dataset, packed.layout), penalty, **to_the_end)
    assert results[0].objective == pytest.approx(whole.objective, rel=1e-6)


def test_one_block_begins_as_the_whole_does_and_many_with_the_first():
    packed = words(11)
    whole = ChainObjective(packed.dataset, packed.layout)
    one = as_parts(packed, [(0, len(packed.dataset.weights))], [0, 1])
    assert one.sample().share == 1.0 and whole.sample().objective is whole
    found = [minimise("hybrid", objective, NET, max_iterations=20) for objective in (one, whole)]
    assert len({(r.theta.tobytes(), r.objective, r.evaluations) for r in found}) == 1
    bounds = cut(packed.dataset.offsets, 50)
    sample = as_parts(packed, bounds, [0, len(bounds)]).sample()
    assert sample.share == pytest.approx(bounds[0][1] / len(packed.dataset.weights)) and sample.share < 1.0
    assert len(sample.objective.dataset.weights) == bounds[0][1] and sample.objective.size == whole.size


def test_data_with_terms_or_without_labels_in_the_first_block_begin_at_zero():
    packed = words(11)
    bounds, labels = cut(packed.dataset.offsets, 50), packed.dataset.labels.copy()
    first = packed.dataset.offsets[bounds[0][1]]
    for known in (0, 3):
        labels[known:first] = UNKNOWN
        partial = packed._replace(dataset=packed.dataset._replace(labels=labels.copy()))
        objective = as_parts(partial, bounds, [0, len(bounds)])
        assert objective.sample() is None
        same = [minimise(solver, objective, NET, max_iterations=5) for solver in ("hybrid", "pqn")]
        assert len({r.theta.tobytes() for r in same}) == 1
        labels[:known] = packed.dataset.labels[:known]


@pytest.mark.parametrize("solver", ["cd", "iis", "sgd"])
def test_solvers_that_need_all_sequences_are_refused(solver):
    packed = words(12)
    with pytest.raises(EspalierError, match=f"{solver} needs the .* ShardedObjective has none: choose one of"):
        minimise(solver, in_process(packed.dataset, packed.layout, block_tokens=50), ElasticNet(0.0, 0.1))


def test_what_does_not_fit_the_layout_is_refused():
    packed = words(13)
    objective = in_process(packed.dataset, packed.layout, block_tokens=50)
    with pytest.raises(EspalierError, match="theta has shape"):
        objective.value_and_gradient(np.zeros(3))
    with pytest.raises(EspalierError, match="theta has shape"):
        objective.value(np.zeros(3))
    foreign = make_dataset(np.array([[0], [77]]), [0, 1], [0, 1, 2])
    with pytest.raises(EspalierError, match="observation 77 is not one of the 40"):
        in_process(foreign, packed.layout, block_tokens=1)


class WritingOver:
    """A pool that hands out the same memory each time, as one of mapped files does."""

    def __init__(self, pool):
        self.pool, self.n_blocks, self.runs, self.memory = pool, pool.n_blocks, pool.runs, {}

    def sums(self, what, theta=None):
        for part, found in self.pool.sums(what, theta):
            if found.vector is not None:
                memory = self.memory.setdefault((part, found.node), np.empty_like(found.vector))
                memory[:] = found.vector
                found = found._replace(vector=memory)
            yield part, found


@pytest.mark.parametrize("block_tokens", [10**6, 50])
def test_a_gradient_stays_as_it_was_when_the_next_one_is_made(block_tokens):
    packed = words(14)
    bounds = cut(packed.dataset.offsets, block_tokens)
    objective = as_parts(packed, bounds, [0, len(bounds)])
    objective = ShardedObjective(WritingOver(objective.pool), packed.layout)
    first = objective.value_and_gradient(random_theta(packed.layout.size, 8))[1]
    before, observed = first.tobytes(), objective.observed.tobytes()
    second = objective.value_and_gradient(random_theta(packed.layout.size, 9))[1]
    assert first.tobytes() == before != second.tobytes() and objective.observed.tobytes() == observed


# ---- blockwise descent


def descents(packed, bounds, cuts, penalty, **options):
    """(bytes of theta, trace) of sbcd with the blocks in the parts that `cuts` say, all of which must agree."""
    found = [minimise("sbcd", as_parts(packed, bounds, ends), penalty, **options) for ends in cuts]
    assert len({result.theta.tobytes() for result in found}) == 1
    assert all(result.trace == found[0].trace for result in found)
    return found[0]


@pytest.mark.parametrize("hessian", ["diagonal", pytest.param("full", marks=pytest.mark.long)])
def test_blockwise_descent_leaves_the_same_bytes_however_the_blocks_lie(hessian):
    packed, penalty = words(3), ElasticNet(0.3, 0.01)
    bounds = cut(packed.dataset.offsets, 60)
    n = len(bounds)
    assert n >= 4
    cuts = ([0, n], [0, 1, n], [0, 2, 3, n], list(range(n + 1)))
    found = descents(packed, bounds, cuts, penalty, max_iterations=40, tolerance=1e-8, hessian=hessian)
    whole = minimise("sbcd", ChainObjective(packed.dataset, packed.layout), penalty, max_iterations=40, tolerance=1e-8)
    assert found.objective == pytest.approx(whole.objective, rel=1e-6)
    values = [line["objective"] for line in found.trace]
    assert values == sorted(values, reverse=True)


def test_blockwise_descent_over_one_block_is_that_of_a_chain_objective():
    packed, penalty = words(4), ElasticNet(0.3, 0.01)
    whole = minimise("sbcd", ChainObjective(packed.dataset, packed.layout), penalty, max_iterations=8)
    found = descents(packed, [(0, len(packed.dataset.weights))], ([0, 1],), penalty, max_iterations=8)
    assert found.theta.tobytes() == whole.theta.tobytes() and found.trace == whole.trace


def test_blockwise_descent_with_sequences_that_have_no_weight_and_observations_that_occur_nowhere():
    packed, penalty = words(5), ElasticNet(0.2, 0.01)
    weights = np.where(np.arange(len(packed.dataset.weights)) % 3, 1.0, 0.0)
    packed = packed._replace(dataset=packed.dataset._replace(weights=weights))
    bounds = cut(packed.dataset.offsets, 60)
    start = random_theta(packed.layout.size, 6)
    cuts = ([0, len(bounds)], list(range(len(bounds) + 1)))
    found = descents(packed, bounds, cuts, penalty, theta0=start, max_iterations=60, tolerance=1e-9)
    objective = ChainObjective(packed.dataset, packed.layout)
    whole = minimise("sbcd", objective, penalty, start, max_iterations=60, tolerance=1e-9)
    assert found.objective == pytest.approx(whole.objective, rel=1e-6)


class Forgetful(InProcess):
    """Every so many questions a part has lost all that it kept."""

    asked = 0

    def on_blocks(self, parts, what, arguments, theta):
        self.asked += 1
        if self.asked % 3 == 0:
            self._opened = []
        return super().on_blocks(parts, what, arguments, theta)


@pytest.mark.parametrize("hessian", ["diagonal", "full"])
def test_what_a_part_has_lost_is_made_again_in_the_middle_of_a_visit(hessian):
    packed, penalty = words(7, sequences=30), ElasticNet(0.3, 0.01)
    bounds = cut(packed.dataset.offsets, 40)
    expected = descents(packed, bounds, ([0, len(bounds)],), penalty, max_iterations=4, hessian=hessian)
    parts = [Part((block_of(packed.dataset, *b),), i, len(bounds), packed.layout) for i, b in enumerate(bounds)]
    objective = ShardedObjective(Forgetful(parts), packed.layout)
    found = minimise("sbcd", objective, penalty, max_iterations=4, hessian=hessian)
    assert found.theta.tobytes() == expected.theta.tobytes() and found.trace == expected.trace
    assert objective.pool.asked > 30


def test_blockwise_descent_refuses_partial_labels_in_any_part():
    packed = words(8)
    labels = packed.dataset.labels.copy()
    longest = int(np.argmax(np.diff(packed.dataset.offsets)))
    labels[packed.dataset.offsets[longest]] = -1
    packed = packed._replace(dataset=packed.dataset._replace(labels=labels))
    bounds = cut(packed.dataset.offsets, 60)
    with pytest.raises(EspalierError, match="sbcd cannot train with partial labels: choose one of lbfgs, owlqn, pqn"):
        minimise("sbcd", as_parts(packed, bounds, [0, len(bounds)]), ElasticNet(0.3, 0.01))


# ---- vectors that lie in others


def test_parts_of_a_vector_are_added_where_they_lie():
    rng = np.random.default_rng(9)
    packed = words(9)
    _, runs = restrict(packed.layout, np.sort(rng.choice(packed.layout.n_observations, 15, replace=False)))
    short, expected = rng.normal(size=runs.size), np.zeros(packed.layout.size)
    expected[runs.places(np.arange(runs.size))] = short
    assert np.array_equal(runs.take(expected), short)
    long = np.zeros(packed.layout.size)
    runs.add(short, long)
    assert np.array_equal(long, expected)
    for lo, hi in [(0, len(long)), (0, 1), (5, 5), (7, 60), (len(long) - 3, len(long)), (3, len(long) // 2)]:
        out = np.zeros(hi - lo)
        runs.add_within(short, lo, hi, out)
        assert np.array_equal(out, expected[lo:hi])
