"""Training with partial labels and with token weights, against enumeration and finite differences."""

import math

import numpy as np
import pytest
from chain_problems import lattices, pack, random_theta, slot_features, weights_of
from hypothesis import given, settings
from reference import chain, restricted
from reference.problems import BOTH, UNIGRAM, random_problem

from espalier.engine.data.dataset import make_dataset, select
from espalier.engine.decoding import decode
from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import SOLVERS, minimise
from espalier.engine.runtime.threads import set_threads
from espalier.engine.weights.layout import dense_layout, seen_layout

ROUNDING = 1e-10
LARGE = 1e-12  # relative to the sums of scores, at |theta| = 700
DIFFERENCE = 2e-6  # central differences with step 1e-5: truncation 1e-10, cancellation 1e-16 * |loss| / 1e-5
STEP = 1e-5
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=60)
FEWER = settings(deadline=None, derandomize=True, max_examples=25)
DENSITIES = ("auto", "dense", "sparse")


def with_partial_labels(packed, seed):
    """Some labels forgotten, some replaced by a set that may not even hold them; and the oracle's form of it."""
    rng = np.random.default_rng(seed)
    data, n_labels = packed.dataset, packed.problem.n_labels
    sets = rng.random((3, n_labels)) < 0.5
    sets[np.arange(3), rng.integers(0, n_labels, 3)] = True
    how = rng.choice([0, -1, -2, -3, -4], len(data.labels), p=[0.4, 0.3, 0.1, 0.1, 0.1])
    labels = np.where(how < 0, how, data.labels).astype(np.int32)
    labels[: data.offsets[1]] = data.labels[: data.offsets[1]]  # the first sequence stays whole
    allowed = [None if y == -1 else {y} if y >= 0 else set(np.flatnonzero(sets[-2 - y]).tolist())
               for y in labels.tolist()]  # fmt: skip
    cuts = [allowed[a:b] for a, b in zip(data.offsets, data.offsets[1:], strict=False)]
    return data._replace(labels=labels, label_sets=sets), cuts


def with_token_weights(packed, seed):
    """Weights that differ, with zeros; the first sequence has equal ones."""
    rng = np.random.default_rng(seed)
    tau = rng.choice([0.0, 0.5, 1.0, 3.0], len(packed.dataset.labels))
    tau[: packed.dataset.offsets[1]] = 2.0
    cuts = [tau[a:b].tolist() for a, b in zip(packed.dataset.offsets, packed.dataset.offsets[1:], strict=False)]
    return packed.dataset._replace(token_weights=tau), cuts


def as_theta(layout, gradient):
    return np.array([gradient.get(feature, 0.0) for feature in slot_features(layout)])


def partial_oracle(packed, allowed, theta):
    p = packed.problem
    given = (p.sequences, allowed, p.n_labels, weights_of(packed.layout, theta), p.weights)
    return restricted.partial_loss(*given), as_theta(packed.layout, restricted.partial_gradient(*given))


def token_oracle(packed, tau, theta):
    p = packed.problem
    given = (p.sequences, p.labels, p.n_labels, weights_of(packed.layout, theta), p.weights, tau)
    return restricted.token_weighted_loss(*given), as_theta(packed.layout, restricted.token_weighted_gradient(*given))


def meet(objective, theta, expected, tolerance=ROUNDING, slack=ROUNDING):
    value, gradient = objective.value_and_gradient(theta)
    assert value == pytest.approx(expected[0], abs=tolerance)
    assert objective.value(theta) == pytest.approx(value, abs=tolerance)
    np.testing.assert_allclose(gradient, expected[1], rtol=0, atol=slack)


KINDS_OF_DATA = {"partial labels": (with_partial_labels, partial_oracle),
                 "token weights": (with_token_weights, token_oracle)}  # fmt: skip
both = pytest.mark.parametrize("what", KINDS_OF_DATA)


@both
@EXAMPLES
@given(lattice=lattices())
@pytest.mark.nojit
def test_loss_and_gradient(what, lattice):
    packed, theta = lattice
    make, oracle = KINDS_OF_DATA[what]
    data, limits = make(packed, len(theta))
    expected = oracle(packed, limits, theta)
    for sparse in DENSITIES:
        meet(ChainObjective(data, packed.layout, sparse), theta, expected)


@both
@FEWER
@given(lattice=lattices())
def test_gradient_meets_central_differences(what, lattice):
    packed, theta = lattice
    objective = ChainObjective(KINDS_OF_DATA[what][0](packed, len(theta))[0], packed.layout)
    gradient = objective.value_and_gradient(theta)[1]
    for k in range(0, len(theta), max(1, len(theta) // 8)):
        shift = np.zeros_like(theta)
        shift[k] = STEP
        slope = (objective.value(theta + shift) - objective.value(theta - shift)) / (2 * STEP)
        assert slope == pytest.approx(gradient[k], abs=DIFFERENCE)


@both
@pytest.mark.parametrize("sparse", DENSITIES)
@FEWER
@given(lattice=lattices(scale=700.0))
def test_weights_of_700_do_not_overflow(what, sparse, lattice):
    packed, theta = lattice
    make, oracle = KINDS_OF_DATA[what]
    data, limits = make(packed, len(theta))
    size = 1.0 + np.abs(theta).max(initial=0.0) * len(data.labels) * 10
    meet(ChainObjective(data, packed.layout, sparse), theta, oracle(packed, limits, theta), LARGE * size, 1e-8)


@both
@pytest.mark.parametrize("scale", [1.0, 60.0, 700.0])
@pytest.mark.parametrize("n_labels", [5, 9, 20])
def test_more_labels(what, n_labels, scale):
    """Long lists of labels and short ones beside each other, dense and sparse factors."""
    packed = pack(random_problem(n_labels, n_labels, 3, 2, [2, 1, 2, 2]))
    make, oracle = KINDS_OF_DATA[what]
    data, limits = make(packed, n_labels)
    for seed, density in enumerate((1.0, 0.02, 0.3)):
        theta = random_theta(packed.layout.size, seed, density, scale)
        expected = oracle(packed, limits, theta)
        for sparse in DENSITIES:
            meet(ChainObjective(data, packed.layout, sparse), theta, expected, 1e-11 * (10 + scale), 1e-8)


@both
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_bytes_do_not_depend_on_threads(what, scale):
    lengths = np.random.default_rng(13).integers(1, 12, 400).tolist()
    packed = pack(random_problem(14, 5, 12, 3, lengths))
    data = KINDS_OF_DATA[what][0](packed, 3)[0]
    theta = random_theta(packed.layout.size, 15, 0.5, scale)
    seen = set()
    for count in (1, 2, 4):
        set_threads(count)
        try:
            objective = ChainObjective(data, packed.layout)
            assert len(objective.terms[0].chunks.runs) > 2
            value, gradient = objective.value_and_gradient(theta)
            again = objective.value_and_gradient(theta)
            seen.add((value, gradient.tobytes(), objective.value(theta)))
            seen.add((again[0], again[1].tobytes(), objective.value(theta)))
        finally:
            set_threads(None)
    assert len(seen) == 1


@both
def test_a_hundred_thousand_positions(what):
    """A position has one label in truth and in expectation, weighted alike: the counts of an observation cancel."""
    rng = np.random.default_rng(5)
    ids, labels = rng.integers(-1, 3, (100_000, 2)), rng.integers(0, 3, 100_000)
    data = make_dataset(ids, labels, [0, 100_000])
    if what == "partial labels":
        data = data._replace(labels=np.where(rng.random(100_000) < 0.5, -1, labels).astype(np.int32))
    else:
        data = data._replace(token_weights=rng.choice([1.0, 2.0], 100_000))
    layout = dense_layout(3, [UNIGRAM, BOTH, BOTH])
    objective = ChainObjective(data, layout)
    for scale in (1.0, 700.0):
        value, gradient = objective.value_and_gradient(scale * random_theta(layout.size, 6, scale=1.0))
        assert np.isfinite(value) and np.isfinite(gradient).all()
        names = slot_features(layout)
        for start in {name[:2] for name in names}:
            at = [k for k, name in enumerate(names) if name[:2] == start]
            assert gradient[at].sum() == pytest.approx(0.0, abs=1e-4), start


# ---- partial labels


def test_fully_labelled_data_have_no_terms_and_the_same_bytes():
    packed = pack(random_problem(3, 4, 5, 2, [6, 3, 4]))
    data = packed.dataset
    plain = ChainObjective(data, packed.layout)
    assert plain.terms == []
    singles = data._replace(labels=(-2 - data.labels).astype(np.int32), label_sets=np.eye(4, dtype=bool))
    theta = random_theta(packed.layout.size, 1)
    value, gradient = plain.value_and_gradient(theta)
    by_sets = ChainObjective(singles, packed.layout)
    assert len(by_sets.terms) == 1
    meet(by_sets, theta, (value, gradient))


def test_a_sequence_of_which_nothing_is_known_changes_nothing():
    packed = pack(random_problem(3, 4, 5, 2, [6, 3, 4])._replace(weights=[1.0, 2.0, 1.0]))
    data = packed.dataset
    silent = data._replace(labels=np.where(np.arange(13) < 6, -1, data.labels).astype(np.int32))
    objective, theta = ChainObjective(silent, packed.layout), random_theta(packed.layout.size, 1)
    assert objective.terms == []
    rest = ChainObjective(select(data, np.array([1, 2])), packed.layout)
    meet(objective, theta, rest.value_and_gradient(theta))


def test_the_default_solver_takes_sequences_of_which_nothing_is_known():
    packed = pack(random_problem(3, 4, 5, 2, [6, 3, 4]))
    data, cut = packed.dataset, int(packed.dataset.offsets[1])
    unknown = data._replace(labels=np.where(np.arange(len(data.labels)) < cut, -1, data.labels).astype(np.int32))
    rest, penalty = select(data, np.arange(1, len(data.weights))), ElasticNet(0.1, 0.1)
    with_it, without = (
        minimise("auto", ChainObjective(some, packed.layout), penalty, None, 500, 1e-9) for some in (unknown, rest)
    )
    assert with_it.objective == pytest.approx(without.objective, rel=1e-6)


def test_training_recovers_what_sets_leave_open():
    """Each token allows its label and a wrong one, at random: together they tell which is right."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 6, 600)
    truth = x % 3
    other = (truth + rng.integers(1, 3, 600)) % 3
    sets = np.array([[True, True, False], [False, True, True], [True, False, True]])
    pair = {frozenset(np.flatnonzero(row).tolist()): -2 - s for s, row in enumerate(sets)}
    labels = [pair[frozenset(p)] for p in zip(truth.tolist(), other.tolist(), strict=True)]
    data = make_dataset(x[:, None], labels, np.arange(0, 601, 6), label_sets=sets)
    layout = seen_layout(data, 3, [UNIGRAM] * 6)
    assert layout.size == 18
    result = minimise("lbfgs", ChainObjective(data, layout), ElasticNet(0.0, 0.1), max_iterations=200)
    np.testing.assert_array_equal(decode.viterbi(data, layout, result.theta), truth)


def test_seen_pairs_of_partial_labels():
    """Explicit sets make pairs, the unknown label none: 0, {1, 2}, ?, 1."""
    sets = np.array([[False, True, True]])
    data = make_dataset([[0], [1], [0], [1]], [0, -2, -1, 1], [0, 4], label_sets=sets)
    found = slot_features(seen_layout(data, 3, [BOTH, BOTH]))
    assert found == [("mu", 0, 0), ("mu", 1, 1), ("mu", 1, 2), ("start", 0, 0), ("lam", 1, 0, 1), ("lam", 1, 0, 2)]


def test_all_labels_unknown_is_refused():
    with pytest.raises(EspalierError, match="all labels are unknown"):
        ChainObjective(make_dataset([[0], [0]], None, [0, 2]), dense_layout(2, [BOTH]))


@pytest.mark.parametrize(
    ("labels", "sets", "message"),
    [
        ([0, -2], None, "label -2 at position 1 names a set, there are 0: expected at least -1"),
        ([0, -4], [[True, True]] * 2, "label -4 at position 1 names a set, there are 2: expected at least -3"),
        ([0, -2], [[False, False]], "label set 0 is empty"),
        ([0, -2], [True, True], "label_sets has 1 dimensions"),
    ],
)
def test_label_sets_that_do_not_fit_are_refused(labels, sets, message):
    with pytest.raises(EspalierError, match=message):
        make_dataset([[0], [0]], labels, [0, 2], label_sets=sets)


def test_label_sets_of_other_labels_are_refused():
    data = make_dataset([[0], [0]], [0, -2], [0, 2], label_sets=[[True, True, True]])
    for call in (ChainObjective, lambda d, _: seen_layout(d, 2, [BOTH])):
        with pytest.raises(EspalierError, match="label_sets has 3 columns: expected the 2 labels"):
            call(data, dense_layout(2, [BOTH]))


def test_a_label_set_that_is_missing_is_refused():
    data = make_dataset([[0], [0]], [0, 1], [0, 2])._replace(labels=np.array([0, -2], np.int32))
    with pytest.raises(EspalierError, match="label -2 names no label set: expected at least -1"):
        ChainObjective(data, dense_layout(2, [BOTH]))


# ---- token weights


def test_equal_token_weights_are_sequence_weights():
    packed = pack(random_problem(3, 4, 5, 2, [6, 3, 4])._replace(weights=[1.0, 2.0, 1.0]))
    tau = np.repeat([2.0, 0.0, 0.5], [6, 3, 4])
    objective = ChainObjective(packed.dataset._replace(token_weights=tau), packed.layout)
    assert objective.terms == []
    plain = ChainObjective(packed.dataset._replace(weights=np.array([2.0, 0.0, 0.5])), packed.layout)
    theta = random_theta(packed.layout.size, 1)
    (value, gradient), (other, slope) = objective.value_and_gradient(theta), plain.value_and_gradient(theta)
    assert value == other and gradient.tobytes() == slope.tobytes()


def test_the_weights_split_the_loss_into_its_tokens():
    """The losses of single tokens sum to the loss of the sequence."""
    packed = pack(random_problem(3, 4, 5, 2, [5])._replace(weights=[1.0]))
    theta = random_theta(packed.layout.size, 1)
    single = [
        ChainObjective(packed.dataset._replace(token_weights=row), packed.layout).value(theta) for row in np.eye(5)
    ]
    assert min(single) > 0
    assert math.fsum(single) == pytest.approx(ChainObjective(packed.dataset, packed.layout).value(theta), abs=ROUNDING)


def test_token_weights_and_partial_labels_in_one_sequence_are_refused():
    data = make_dataset([[0]] * 4, [0, 1, 0, -1], [0, 2, 4], token_weights=[1, 2, 1, 1])
    ChainObjective(data, dense_layout(2, [BOTH]))
    data = make_dataset([[0]] * 4, [0, 1, 0, -1], [0, 2, 4], token_weights=[1, 2, 1, 3])
    with pytest.raises(EspalierError, match="sequence 1 has token weights that differ and a label that is not known"):
        ChainObjective(data, dense_layout(2, [BOTH]))


@pytest.mark.parametrize(
    ("weights", "message"),
    [([1.0], "1 token weights for 2 positions"), ([1.0, -1.0], "token weight -1.0 of position 1: expected a finite"),
     ([np.nan, 1.0], "token weight nan of position 0")],
)  # fmt: skip
def test_bad_token_weights_are_named(weights, message):
    with pytest.raises(EspalierError, match=message):
        make_dataset([[0], [0]], [0, 1], [0, 2], token_weights=weights)


@both
def test_solvers_that_look_beyond_the_gradient_are_refused(what):
    packed = pack(random_problem(3, 3, 5, 2, [6, 3]))
    objective = ChainObjective(KINDS_OF_DATA[what][0](packed, 1)[0], packed.layout)
    assert not SOLVERS["sbcd"].fits(objective.offers)
    with pytest.raises(EspalierError, match=f"sbcd cannot train with {what}.*: choose one of .*pqn"):
        minimise("sbcd", objective, ElasticNet(0.1, 0.1))


def test_select_keeps_sets_and_token_weights():
    data = make_dataset([[0], [1], [2]], [0, -2, 1], [0, 2, 3], label_sets=[[True, True]], token_weights=[1, 2, 3])
    part = select(data, np.array([1, 0]))
    assert part.labels.tolist() == [1, 0, -2] and part.token_weights.tolist() == [3, 1, 2]
    assert part.label_sets is data.label_sets
    assert len(select(data._replace(token_weights=np.zeros(0)), np.array([1])).token_weights) == 0


def test_the_oracle_agrees_with_the_ordinary_one():
    """Equal weights, and sets of one label, are the ordinary loss of tests/reference/chain."""
    p = random_problem(5, 3, 4, 2, [3, 2])._replace(weights=[1.0, 2.0])
    layout = pack(p).layout
    weights = weights_of(layout, random_theta(layout.size, 1))
    ordinary = chain.loss(p.sequences, p.labels, 3, weights, p.weights)
    ones = [[1.0] * len(y) for y in p.labels]
    assert restricted.token_weighted_loss(p.sequences, p.labels, 3, weights, p.weights, ones) == pytest.approx(ordinary)
    sets = [[{k} for k in y] for y in p.labels]
    assert restricted.partial_loss(p.sequences, sets, 3, weights, p.weights) == pytest.approx(ordinary)
