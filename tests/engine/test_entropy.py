"""Entropy regularisation of CRFs against enumeration and finite differences."""

import math

import numpy as np
import pytest
from chain_problems import lattices, pack, random_theta, slot_features, weights_of
from hypothesis import given, settings
from reference import chain
from reference import entropy as reference
from reference.problems import BOTH, UNIGRAM, Problem, random_problem

from espalier.engine.data.bags import bags_of_matrix
from espalier.engine.data.dataset import make_dataset, select
from espalier.engine.errors import EspalierError
from espalier.engine.families.logistic import LogisticEntropy, LogisticObjective
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.runtime.threads import set_threads
from espalier.engine.semisup.entropy import ChainEntropy, EntropyRegularised, minimise_with_entropy
from espalier.engine.weights.layout import dense_layout

ROUNDING = 1e-10
STEP, DIFFERENCE = 1e-5, 2e-6  # central differences: truncation 1e-10, cancellation 1e-16 * |value| / 1e-5
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=60)
FEWER = settings(deadline=None, derandomize=True, max_examples=25)
DENSITIES = ("auto", "dense", "sparse")


def oracle(packed, theta, strength):
    p = packed.problem
    given = (p.sequences, p.n_labels, weights_of(packed.layout, theta), [strength * w for w in p.weights])
    gradient = reference.gradient(*given)
    return reference.entropy(*given), np.array([gradient.get(f, 0.0) for f in slot_features(packed.layout)])


def meet(packed, theta, sparse="auto", strength=0.7, tolerance=ROUNDING):
    term = ChainEntropy(packed.dataset, packed.layout, strength, sparse)
    value, slope = oracle(packed, theta, strength)
    gradient = np.zeros(term.size)
    assert term.add_gradient(theta, gradient) == pytest.approx(value, abs=tolerance)
    assert term.value(theta) == pytest.approx(value, abs=tolerance)
    np.testing.assert_allclose(gradient, slope, rtol=0, atol=tolerance)


@EXAMPLES
@given(lattice=lattices())
@pytest.mark.nojit
def test_value_and_gradient(lattice):
    packed, theta = lattice
    for sparse in DENSITIES:
        meet(packed, theta, sparse)


@FEWER
@given(lattice=lattices())
def test_gradient_meets_central_differences(lattice):
    packed, theta = lattice
    objective = EntropyRegularised(
        ChainObjective(packed.dataset, packed.layout), ChainEntropy(packed.dataset, packed.layout, 0.7)
    )
    value, gradient = objective.value_and_gradient(theta)
    assert objective.value(theta) == pytest.approx(value, abs=ROUNDING)
    for k in range(0, len(theta), max(1, len(theta) // 8)):
        shift = np.zeros_like(theta)
        shift[k] = STEP
        slope = (objective.value(theta + shift) - objective.value(theta - shift)) / (2 * STEP)
        assert slope == pytest.approx(gradient[k], abs=DIFFERENCE)


@pytest.mark.parametrize("sparse", DENSITIES)
@pytest.mark.parametrize("scale", [60.0, 700.0])
@FEWER
@given(lattice=lattices(scale=1.0))
def test_large_scores_do_not_overflow(sparse, scale, lattice):
    """Labellings are nearly certain, or nearly tied by chance; scores of thousands leave 1e-12 of each."""
    packed, theta = lattice
    meet(packed, scale * theta, sparse, tolerance=1e-11 * (10 + scale))


@pytest.mark.parametrize("scale", [1.0, 60.0, 700.0])
@pytest.mark.parametrize("n_labels", [1, 5, 9, 20])
def test_more_labels(n_labels, scale):
    packed = pack(random_problem(n_labels, n_labels, 3, 2, [2, 1, 2, 2]))
    for seed, density in enumerate((1.0, 0.02, 0.3)):
        theta = random_theta(packed.layout.size, seed, density, scale)
        for sparse in DENSITIES:
            meet(packed, theta, sparse, tolerance=1e-11 * (10 + scale))


def test_a_tie_at_large_scores():
    """Two labels with 700 each, a third with -700: one bit a position, by logarithms, and no gradient at a tie."""
    problem = Problem(3, [UNIGRAM], False, [[[0]] * 4], [[0] * 4], [1.0])
    packed = pack(problem)
    theta = np.array([700.0, 700.0, -700.0])
    term, gradient = ChainEntropy(packed.dataset, packed.layout, 1.0), np.zeros(3)
    assert term.add_gradient(theta, gradient) == pytest.approx(4 * math.log(2), rel=1e-14)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-12)


@pytest.mark.parametrize("n_labels", [1, 2, 3])
def test_no_weight_at_all_is_the_largest_entropy(n_labels):
    packed = pack(random_problem(3, n_labels, 2, 1, [1, 4, 2])._replace(weights=[1.0, 1.0, 2.0]))
    term, gradient = ChainEntropy(packed.dataset, packed.layout, 0.5), np.zeros(packed.layout.size)
    assert term.add_gradient(np.zeros(term.size), gradient) == pytest.approx(0.5 * 9 * math.log(n_labels), abs=1e-12)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-12)


@pytest.mark.parametrize("scale", [0.5, 400.0])
def test_a_long_sequence(scale):
    """T = 100,000 without overflow or drift; the same few positions over and over give T times the rate of a block."""
    block = random_problem(5, 3, 3, 2, [10])
    packed = pack(block._replace(sequences=[block.sequences[0] * 10_000], labels=[block.labels[0] * 10_000]))
    shorter = pack(block._replace(sequences=[block.sequences[0] * 5_000], labels=[block.labels[0] * 5_000]))
    theta = random_theta(packed.layout.size, 3, scale=scale)
    long, short = (ChainEntropy(p.dataset, p.layout, 1.0).entropies(theta)[0] for p in (packed, shorter))
    assert np.isfinite(long) and long == pytest.approx(2 * short, rel=1e-3, abs=1e-6)
    gradient = np.zeros(len(theta))
    ChainEntropy(packed.dataset, packed.layout, 1.0).add_gradient(theta, gradient)
    assert np.isfinite(gradient).all()


def test_one_position_is_a_classifier():
    """T = 1: the entropy and its gradient are those of logistic regression with a vector for each class."""
    rng = np.random.default_rng(6)
    x = rng.integers(0, 4, 20)
    data = make_dataset(x[:, None], rng.integers(0, 3, 20), np.arange(21))
    layout, matrix = dense_layout(3, [UNIGRAM] * 4), np.eye(4)[x]
    theta = rng.normal(size=12)
    chains = EntropyRegularised(ChainObjective(data, layout), ChainEntropy(data, layout, 0.3))
    documents = EntropyRegularised(
        LogisticObjective(bags_of_matrix(matrix), data.labels, 3, parametrisation="full"),
        LogisticEntropy(bags_of_matrix(matrix), 3, 0.3, parametrisation="full"),
    )
    (a, da), (b, db) = chains.value_and_gradient(theta), documents.value_and_gradient(theta)
    assert a == pytest.approx(b, abs=1e-12)
    np.testing.assert_allclose(da, db, rtol=0, atol=1e-12)


def test_a_weight_of_two_is_a_duplicate():
    packed = pack(random_problem(7, 3, 4, 2, [3, 2, 4])._replace(weights=[1.0, 2.0, 1.0]))
    twice = select(packed.dataset, np.array([0, 1, 1, 2]))._replace(weights=np.ones(4))
    theta, gradients = random_theta(packed.layout.size, 1), np.zeros((2, packed.layout.size))
    values = [ChainEntropy(data, packed.layout, 0.4).add_gradient(theta, g)
              for data, g in zip((packed.dataset, twice), gradients, strict=True)]  # fmt: skip
    assert values[0] == pytest.approx(values[1], abs=ROUNDING)
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_bytes_do_not_depend_on_threads(scale):
    lengths = np.random.default_rng(13).integers(1, 12, 400).tolist()
    packed = pack(random_problem(14, 5, 12, 3, lengths))
    theta, seen = random_theta(packed.layout.size, 2, scale=scale), set()
    assert len(ChainEntropy(packed.dataset, packed.layout, 1.0).chunks.runs) > 2
    try:
        for count in (1, 2, 4):
            set_threads(count)
            gradient = np.zeros(packed.layout.size)
            value = ChainEntropy(packed.dataset, packed.layout, 1.0).add_gradient(theta, gradient)
            seen.add((value.hex(), gradient.tobytes()))
    finally:
        set_threads(None)
    assert len(seen) == 1


def labelled_and_pool(seed=15):
    lengths = np.random.default_rng(seed).integers(2, 8, 120).tolist()
    problem = random_problem(seed, 3, 6, 2, lengths, kinds=[BOTH] * 6)._replace(weights=[1.0] * 120)
    packed = pack(problem)
    few, pool = select(packed.dataset, np.arange(8)), select(packed.dataset, np.arange(8, 120))
    return few, pool._replace(labels=np.full(len(pool.labels), -1, np.int32)), packed.layout


@pytest.mark.parametrize(("solver", "penalty"), [("lbfgs", ElasticNet(0.0, 0.5)), ("owlqn", ElasticNet(0.2, 0.3)),
                                                 ("pqn", ElasticNet(0.2, 0.3))])  # fmt: skip
def test_training_from_the_supervised_optimum(solver, penalty):
    """The criterion falls from there to a point where the first-order conditions hold; the entropy falls too."""
    few, pool, layout = labelled_and_pool()
    labelled, term = ChainObjective(few, layout), ChainEntropy(pool, layout, 0.02)
    supervised, found = minimise_with_entropy(labelled, term, penalty, solver, max_iterations=1000, tolerance=1e-11)
    assert found.trace[0]["objective"] == pytest.approx(supervised.objective + term.value(supervised.theta), rel=1e-9)
    assert found.objective < found.trace[0]["objective"]
    assert term.value(found.theta) < term.value(supervised.theta)
    both = EntropyRegularised(labelled, term)
    assert penalty.optimality(found.theta, both.value_and_gradient(found.theta)[1]) < 1e-3
    assert "active_unigram" in found.trace[-1]


def test_no_strength_changes_nothing():
    few, pool, layout = labelled_and_pool()
    labelled = ChainObjective(few, layout)
    plain = minimise("lbfgs", labelled, ElasticNet(0.0, 0.5), max_iterations=30)
    with_none = minimise("lbfgs", EntropyRegularised(labelled, ChainEntropy(pool, layout, 0.0)), ElasticNet(0.0, 0.5),
                         max_iterations=30)  # fmt: skip
    assert plain.theta.tobytes() == with_none.theta.tobytes()


def test_labels_of_the_pool_are_not_looked_at():
    few, pool, layout = labelled_and_pool()
    theta = random_theta(layout.size, 4)
    odd = pool._replace(labels=np.full(len(pool.labels), 99, np.int32))
    assert ChainEntropy(odd, layout, 1.0).value(theta) == ChainEntropy(pool, layout, 1.0).value(theta)


def test_what_cannot_be_regularised_is_refused():
    few, pool, layout = labelled_and_pool()
    labelled = ChainObjective(few, layout)
    with pytest.raises(EspalierError, match="the unlabelled pool is empty: expected at least one sequence"):
        ChainEntropy(select(pool, np.zeros(0, np.int64)), layout, 0.1)
    for strength in (-0.1, math.inf):
        with pytest.raises(EspalierError, match=f"strength of the entropy is {strength}: expected a finite number"):
            ChainEntropy(pool, layout, strength)
    with pytest.raises(EspalierError, match="observation 5 is not one of the 3 of the vocabulary"):
        ChainEntropy(pool, dense_layout(3, [BOTH] * 3), 0.1)
    with pytest.raises(EspalierError, match="sbcd needs .* the sequences of .*, EntropyRegularised has none"):
        minimise("sbcd", EntropyRegularised(labelled, ChainEntropy(pool, layout, 0.1)), ElasticNet(0.1, 0.1))
    with pytest.raises(EspalierError, match=f"the loss has {layout.size} weights and the entropy 3"):
        EntropyRegularised(labelled, LogisticEntropy(bags_of_matrix([[1.0, 0, 0]]), 2, 0.1))
    with pytest.raises(EspalierError, match="theta has shape"):
        ChainEntropy(pool, layout, 0.1).value(np.zeros(3))


def test_the_oracle_agrees_with_a_definition_by_hand():
    """Two labels, one position, odds of 3: H = log 4 - 3/4 log 3, and dH = -p r log(p / r)."""
    weights = chain.Weights({(0, 1): math.log(3.0)}, {}, {})
    assert reference.entropy([[[0]]], 2, weights, [1.0]) == pytest.approx(math.log(4) - 0.75 * math.log(3))
    slope = reference.gradient([[[0]]], 2, weights, [2.0])["mu", 0, 1]
    assert slope == pytest.approx(-2 * 0.75 * 0.25 * math.log(3.0))
