"""Log partition, marginals, Viterbi, loss and gradient against the enumeration of all label sequences."""

import itertools
import math
import threading

import numpy as np
import pytest
from chain_problems import lattices, pack, problems, random_theta, slot_features, theta_of, weights_of
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import chain
from reference.problems import BIGRAM, BOTH, UNIGRAM, Problem, dense_features, random_problem

from espalier.engine.chain.scores import padded
from espalier.engine.data.dataset import make_dataset
from espalier.engine.decoding import decode
from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.runtime.threads import set_threads
from espalier.engine.weights.layout import dense_layout, seen_layout

ROUNDING = 1e-10  # probabilities and small log partitions: a few hundred roundings of 1e-16, with room
LARGE = 1e-12  # relative, at |theta| = 700, where a log partition of thousands carries fewer decimals
LONG = 1e-9  # relative, T = 100,000: the engine and the oracle each add 1e5 terms, errors grow with T at worst
DIFFERENCE = 2e-6  # central differences with step 1e-5: truncation 1e-10, cancellation 1e-16 * |loss| / 1e-5
STEP = 1e-5

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=120)
FEWER = settings(deadline=None, derandomize=True, max_examples=40)
DENSITIES = ("auto", "dense", "sparse")


def per_sequence(packed, function, weights):
    return [function(x, packed.problem.n_labels, weights) for x in packed.problem.sequences]


def oracle_loss(packed, theta):
    p = packed.problem
    return chain.loss(p.sequences, p.labels, p.n_labels, weights_of(packed.layout, theta), p.weights)


def oracle_gradient(packed, theta):
    p = packed.problem
    found = chain.gradient(p.sequences, p.labels, p.n_labels, weights_of(packed.layout, theta), p.weights)
    return np.array([found.get(feature, 0.0) for feature in slot_features(packed.layout)])


# ---- layouts


@EXAMPLES
@given(problems())
@pytest.mark.nojit
def test_dense_layout_has_every_weight_once(problem):
    features = slot_features(pack(problem, "dense").layout)
    assert len(features) == len(set(features)) == pack(problem, "dense").layout.size
    assert set(features) == dense_features(problem)


@EXAMPLES
@given(problems())
@pytest.mark.nojit
def test_seen_layout_has_what_occurs_and_nothing_else(problem):
    features = slot_features(pack(problem, "seen").layout)
    assert len(features) == len(set(features))
    assert set(features) == dense_features(problem) & chain.seen_features(problem.sequences, problem.labels)


def test_slots_of_some_coordinates_are_those_of_all():
    layout = pack(random_problem(1, 3, 4, 2, [4, 3]), "seen").layout
    where = np.arange(0, layout.size, 3)
    for some, whole in zip(layout.slots(where), layout.slots(), strict=True):
        np.testing.assert_array_equal(some, whole[where])


def test_seen_layout_makes_no_weight_of_an_unknown_label():
    """Labels ?, 0, ?, 1: no pair has both ends, and only two unigrams are known."""
    dataset = make_dataset([[0], [0], [1], [1]], [-1, 0, -1, 1], [0, 4])
    assert slot_features(seen_layout(dataset, 2, [BOTH, BOTH], start=True)) == [("mu", 0, 0), ("mu", 1, 1)]


def test_layout_rejects_unknown_kinds_and_no_labels():
    with pytest.raises(EspalierError, match=r"kind 5 .*expected 1 \(U\), 2 \(B\), 3 \(\*\) or 4 \(T\)"):
        dense_layout(2, [1, 5])
    with pytest.raises(EspalierError, match="no label"):
        dense_layout(0, [1])


# ---- against the enumeration


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_loss_and_gradient(lattice):
    packed, theta = lattice
    loss, slope = oracle_loss(packed, theta), oracle_gradient(packed, theta)
    for sparse in DENSITIES:
        objective = ChainObjective(packed.dataset, packed.layout, sparse=sparse)
        value, gradient = objective.value_and_gradient(theta)
        assert objective.size == packed.layout.size == len(gradient)
        assert value == pytest.approx(loss, abs=ROUNDING), sparse
        assert objective.value(theta) == pytest.approx(loss, abs=ROUNDING), sparse
        np.testing.assert_allclose(gradient, slope, rtol=0, atol=ROUNDING, err_msg=sparse)


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_log_partition_and_sequence_probability(lattice):
    packed, theta = lattice
    weights, p = weights_of(packed.layout, theta), packed.problem
    np.testing.assert_allclose(
        decode.log_partition(packed.dataset, packed.layout, theta),
        per_sequence(packed, chain.log_partition, weights),
        rtol=0,
        atol=ROUNDING,
    )
    np.testing.assert_allclose(
        decode.sequence_log_probability(packed.dataset, packed.layout, theta),
        [chain.log_probability(x, y, p.n_labels, weights) for x, y in zip(p.sequences, p.labels, strict=True)],
        rtol=0,
        atol=ROUNDING,
    )


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_marginals(lattice):
    packed, theta = lattice
    found = decode.marginals(packed.dataset, packed.layout, theta)
    expected = np.concatenate(per_sequence(packed, chain.marginals, weights_of(packed.layout, theta)))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING)


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_viterbi_finds_a_best_labelling(lattice):
    packed, theta = lattice
    assert_best(packed, theta, DENSITIES)


@FEWER
@given(st.integers(0, 10**6))
def test_viterbi_with_many_exact_ties(seed):
    """Weights of -1, 0 and 1 make ties common: any best labelling is right, a mixture of two is not."""
    packed = pack(random_problem(seed, 3, 2, 2, [5, 4, 3]))
    theta = np.random.default_rng(seed).integers(-1, 2, packed.layout.size).astype(np.float64)
    assert_best(packed, theta, DENSITIES)


@FEWER
@given(st.integers(0, 10**6))
@pytest.mark.nojit
def test_viterbi_with_long_runs_written_out_as_rows(seed):
    """Many positions for few observations: with room for all rows, for some and for none the labels are the same."""
    rng = np.random.default_rng(seed)
    packed = pack(random_problem(seed, int(rng.integers(2, 6)), 4, 3, [4, 3, 4]), "seen")
    theta = random_theta(packed.layout.size, seed)
    width = padded(packed.layout.n_labels)
    made = []
    for rows in (100, 2, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(decode, "WIDE_BYTES", rows * width * 8)
            made.append(len(decode._wide_runs(theta, packed.dataset, packed.layout)[1]))
            assert made[-1] <= rows
            assert_best(packed, theta, DENSITIES)
    assert made[0] > 0 and made[2] == 0


def assert_best(packed, theta, densities):
    (problem, dataset, layout), weights = packed, weights_of(packed.layout, theta)
    best = [chain.best_labellings(x, problem.n_labels, weights)[0] for x in problem.sequences]
    for sparse in densities:
        found = decode.viterbi(dataset, layout, theta, sparse=sparse)
        assert found.dtype == np.int32
        for n, (lo, hi) in enumerate(itertools.pairwise(dataset.offsets)):
            assert tuple(found[lo:hi].tolist()) in best[n], sparse


@pytest.mark.parametrize("n_labels", [5, 7, 8, 9, 12, 16, 17, 20])
@pytest.mark.parametrize("scale", [1.5, 300.0])
def test_more_labels_than_a_vector_has_lanes(n_labels, scale):
    """Loops that take four or eight labels at a time have a rest; two positions keep the enumeration small."""
    packed = pack(random_problem(n_labels, n_labels, 3, 2, [2, 1, 2]))
    for seed, density in enumerate((1.0, 0.02, 0.3)):
        theta = random_theta(packed.layout.size, seed, density, scale)
        for sparse in DENSITIES:
            assert_exact_at_any_size(packed, theta, sparse)


@FEWER
@given(lattices())
def test_gradient_meets_central_differences(lattice):
    packed, theta = lattice
    objective = ChainObjective(packed.dataset, packed.layout)
    gradient = objective.value_and_gradient(theta)[1]
    for k in range(0, len(theta), max(1, len(theta) // 12)):
        shift = np.zeros_like(theta)
        shift[k] = STEP
        slope = (objective.value(theta + shift) - objective.value(theta - shift)) / (2 * STEP)
        assert slope == pytest.approx(gradient[k], abs=DIFFERENCE)


@FEWER
@given(lattices())
def test_dense_equals_sparse(lattice):
    packed, theta = lattice
    objectives = [ChainObjective(packed.dataset, packed.layout, sparse=sparse) for sparse in DENSITIES]
    results = [objective.value_and_gradient(theta) for objective in objectives]
    for value, gradient in results[1:]:
        assert value == pytest.approx(results[0][0], abs=ROUNDING)
        np.testing.assert_allclose(gradient, results[0][1], rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("sparse", DENSITIES)
def test_weight_two_is_the_sequence_twice(sparse):
    problem = random_problem(7, 3, 4, 2, [4, 2])
    once = pack(problem._replace(weights=[2.0, 1.0]))
    x, y = problem.sequences, problem.labels
    twice = pack(problem._replace(sequences=[x[0], x[0], x[1]], labels=[y[0], y[0], y[1]], weights=[1.0, 1.0, 1.0]))
    theta = random_theta(once.layout.size, 8)
    one, other = (ChainObjective(p.dataset, p.layout, sparse=sparse).value_and_gradient(theta) for p in (once, twice))
    assert one[0] == pytest.approx(other[0], abs=ROUNDING)
    np.testing.assert_allclose(one[1], other[1], rtol=0, atol=ROUNDING)


def test_an_objective_does_not_remember_the_last_point():
    """One objective, points of different sparsity in turn: each answer is that of a fresh objective."""
    packed = pack(random_problem(9, 4, 4, 2, [5, 3, 4]))
    objective = ChainObjective(packed.dataset, packed.layout)
    for seed, density in enumerate((1.0, 0.05, 0.0, 0.5, 1.0)):
        theta = random_theta(packed.layout.size, seed, density)
        fresh = ChainObjective(packed.dataset, packed.layout).value_and_gradient(theta)
        value, gradient = objective.value_and_gradient(theta)
        assert value == fresh[0]
        assert gradient.tobytes() == fresh[1].tobytes()


def test_earlier_results_and_the_argument_are_left_alone():
    packed = pack(random_problem(10, 3, 3, 2, [4, 4]))
    objective = ChainObjective(packed.dataset, packed.layout)
    theta = random_theta(objective.size, 11)
    before = theta.copy()
    first = objective.value_and_gradient(theta)[1]
    kept = first.copy()
    objective.value_and_gradient(random_theta(objective.size, 12))
    np.testing.assert_array_equal(theta, before)
    np.testing.assert_array_equal(first, kept)


# ---- edges pinned by hand


def one_sequence(n_labels, sequence, labels, kinds, start=True, weight=1.0):
    return pack(Problem(n_labels, kinds, start, [sequence], [labels], [weight]))


@pytest.mark.nojit
@pytest.mark.parametrize("sparse", DENSITIES)
def test_one_position(sparse):
    """Only unigram and start weights can matter; the bigram gradient is exactly zero."""
    packed = one_sequence(2, [[0]], [1], [BOTH])
    weights = chain.Weights({(0, 0): 0.5}, {(0, 1): 0.25}, {(0, 0, 1): 9.0})
    theta = theta_of(packed.layout, weights)
    value, gradient = ChainObjective(packed.dataset, packed.layout, sparse=sparse).value_and_gradient(theta)
    z = math.exp(0.5) + math.exp(0.25)
    assert value == pytest.approx(math.log(z) - 0.25, abs=ROUNDING)
    expected = {
        ("mu", 0, 0): math.exp(0.5) / z,
        ("start", 0, 1): math.exp(0.25) / z - 1.0,
        ("lam", 0, 0, 1): 0.0,
    }
    for feature, at in ((f, slot_features(packed.layout).index(f)) for f in expected):
        assert gradient[at] == pytest.approx(expected[feature], abs=ROUNDING)
    assert all(g == 0.0 for f, g in zip(slot_features(packed.layout), gradient, strict=True) if f[0] == "lam")
    assert decode.viterbi(packed.dataset, packed.layout, theta, sparse=sparse).tolist() == [0]


@pytest.mark.nojit
@pytest.mark.parametrize("sparse", DENSITIES)
def test_one_label(sparse):
    packed = one_sequence(1, [[0], [0], [-1]], [0, 0, 0], [BOTH])
    theta = random_theta(packed.layout.size, 1)
    value, gradient = ChainObjective(packed.dataset, packed.layout, sparse=sparse).value_and_gradient(theta)
    assert value == pytest.approx(0.0, abs=ROUNDING)
    np.testing.assert_allclose(gradient, 0.0, atol=ROUNDING)
    assert decode.viterbi(packed.dataset, packed.layout, theta, sparse=sparse).tolist() == [0, 0, 0]
    np.testing.assert_allclose(decode.marginals(packed.dataset, packed.layout, theta), 1.0, atol=ROUNDING)


@pytest.mark.nojit
@pytest.mark.parametrize("sparse", DENSITIES)
def test_no_active_feature(sparse):
    packed = one_sequence(3, [[0, 1], [1, 0]], [0, 2], [UNIGRAM, BIGRAM], weight=2.0)
    theta = np.zeros(packed.layout.size)
    value, gradient = ChainObjective(packed.dataset, packed.layout, sparse=sparse).value_and_gradient(theta)
    assert value == pytest.approx(2.0 * 2 * math.log(3), abs=ROUNDING)
    np.testing.assert_allclose(gradient, oracle_gradient(packed, theta), rtol=0, atol=ROUNDING)


@pytest.mark.nojit
@pytest.mark.parametrize("sparse", DENSITIES)
def test_unseen_observations_leave_a_uniform_model(sparse):
    packed = one_sequence(4, [[-1, -1], [-1, -1], [-1, -1]], [0, 1, 2], [BOTH])
    theta = random_theta(packed.layout.size, 3)
    value, gradient = ChainObjective(packed.dataset, packed.layout, sparse=sparse).value_and_gradient(theta)
    assert value == pytest.approx(3 * math.log(4), abs=ROUNDING)
    assert not gradient.any()
    np.testing.assert_allclose(decode.marginals(packed.dataset, packed.layout, theta), 0.25, atol=ROUNDING)


def test_a_layout_without_any_weight():
    """Seen layout of a bigram template, one position, no start: theta is empty and the loss is log Y."""
    problem = Problem(3, [BIGRAM], False, [[[0]]], [[1]], [1.0])
    packed = pack(problem, "seen")
    assert packed.layout.size == 0
    value, gradient = ChainObjective(packed.dataset, packed.layout).value_and_gradient(np.zeros(0))
    assert value == pytest.approx(math.log(3), abs=ROUNDING)
    assert gradient.shape == (0,)


def test_nothing_to_decode_is_decoded_to_nothing():
    """An empty file to tag is no error."""
    layout = dense_layout(2, [BOTH])
    empty, theta = make_dataset(np.zeros((0, 3)), None, [0]), np.ones(layout.size)
    assert decode.viterbi(empty, layout, theta).shape == (0,)
    assert decode.marginals(empty, layout, theta).shape == (0, 2)
    assert decode.log_partition(empty, layout, theta).shape == (0,)


def test_the_same_observation_in_two_columns_counts_twice():
    packed = one_sequence(2, [[0, 0], [0, 0]], [0, 1], [BOTH])
    theta = random_theta(packed.layout.size, 4)
    value, gradient = ChainObjective(packed.dataset, packed.layout).value_and_gradient(theta)
    assert value == pytest.approx(oracle_loss(packed, theta), abs=ROUNDING)
    np.testing.assert_allclose(gradient, oracle_gradient(packed, theta), rtol=0, atol=ROUNDING)


# ---- |theta| = 700


def assert_exact_at_any_size(packed, theta, sparse):
    objective = ChainObjective(packed.dataset, packed.layout, sparse=sparse)
    value, gradient = objective.value_and_gradient(theta)
    weights, expected = weights_of(packed.layout, theta), oracle_loss(packed, theta)
    log_z = per_sequence(packed, chain.log_partition, weights)
    scale = max(1.0, max(abs(z) for z in log_z), expected)
    assert value == pytest.approx(expected, abs=LARGE * scale)
    assert objective.value(theta) == pytest.approx(expected, abs=LARGE * scale)
    np.testing.assert_allclose(gradient, oracle_gradient(packed, theta), rtol=0, atol=LARGE * scale)
    found = decode.log_partition(packed.dataset, packed.layout, theta)
    np.testing.assert_allclose(found, log_z, rtol=0, atol=LARGE * scale)
    marginals = decode.marginals(packed.dataset, packed.layout, theta)
    expected = np.concatenate(per_sequence(packed, chain.marginals, weights))
    np.testing.assert_allclose(marginals, expected, rtol=0, atol=LARGE * scale)
    assert_best(packed, theta, [sparse])


@EXAMPLES
@given(problems(max_labels=3, max_length=4), st.sampled_from(["dense", "seen"]), st.integers(0, 10**6))
def test_weights_of_plus_and_minus_700(problem, layout, seed):
    packed = pack(problem, layout)
    rng = np.random.default_rng(seed)
    theta = 700.0 * rng.choice([-1.0, 0.0, 1.0], packed.layout.size, p=[0.4, 0.2, 0.4])
    for sparse in DENSITIES:
        assert_exact_at_any_size(packed, theta, sparse)


@EXAMPLES
@given(lattices(scale=300.0))
def test_weights_of_several_hundred(lattice):
    packed, theta = lattice
    for sparse in DENSITIES:
        assert_exact_at_any_size(packed, theta, sparse)


@pytest.mark.parametrize("sparse", DENSITIES)
def test_a_path_that_looks_hopeless_and_wins(sparse):
    """Label 0 is worse by 1,400 at the first position and better by 1,400 at the second: both paths score 0.

    A forward vector that is only rescaled has lost label 0 (exp(-1400) = 0) by the time it matters."""
    packed = one_sequence(2, [[0], [1]], [0, 0], [UNIGRAM, BOTH])
    lam = {(1, 0, 0): 700.0, (1, 1, 0): -700.0, (1, 0, 1): -700.0, (1, 1, 1): -700.0}
    weights = chain.Weights({(0, 0): -700.0, (0, 1): 700.0, (1, 1): -700.0}, {}, lam)
    assert chain.marginals(packed.problem.sequences[0], 2, weights)[0].tolist() == pytest.approx([0.5, 0.5])
    assert_exact_at_any_size(packed, theta_of(packed.layout, weights), sparse)


@pytest.mark.parametrize("sparse", DENSITIES)
@pytest.mark.parametrize("lam", [-1.0, -20.0, -40.0, -700.0])
def test_all_moves_forbidden_but_one(sparse, lam):
    """exp(lam) - 1 is -1 to rounding: the sum of the rest must not be a difference of two near equals."""
    packed = one_sequence(2, [[0], [1]], [0, 0], [UNIGRAM, BIGRAM])
    weights = chain.Weights({(0, 0): 50.0}, {}, {(1, 0, 0): lam, (1, 0, 1): lam})
    assert_exact_at_any_size(packed, theta_of(packed.layout, weights), sparse)


@pytest.mark.parametrize("sparse", DENSITIES)
def test_the_one_forbidden_move_is_still_the_best(sparse):
    """Six labels and one bigram weight: sparse enough for "auto". Label 1 is reached from label 0 at a
    price of 40, by anything else at 50; one minus nearly one would make the cheaper way impossible."""
    packed = one_sequence(6, [[0], [1]], [0, 1], [UNIGRAM, BOTH])
    weights = chain.Weights({(0, 0): 50.0, (1, 1): 100.0}, {}, {(1, 0, 1): -40.0})
    assert chain.best_labellings(packed.problem.sequences[0], 6, weights)[0] == {(0, 1)}
    assert_exact_at_any_size(packed, theta_of(packed.layout, weights), sparse)


# ---- T = 100,000


@pytest.fixture(scope="module")
def long_problem():
    rng = np.random.default_rng(5)
    ids, labels = rng.integers(-1, 3, (100_000, 2)), rng.integers(0, 3, 100_000)
    return pack(Problem(3, [UNIGRAM, BIGRAM, BOTH], True, [ids.tolist()], [labels.tolist()], [1.0]))


@pytest.mark.parametrize("scale", [1.0, 700.0])
def test_log_partition_of_a_hundred_thousand_positions(long_problem, scale):
    problem, dataset, layout = long_problem
    theta = scale * random_theta(layout.size, 6, scale=1.0)
    expected = chain.log_forward(problem.sequences[0], 3, weights_of(layout, theta))
    assert decode.log_partition(dataset, layout, theta)[0] == pytest.approx(expected, rel=LONG)
    score = chain.score(problem.sequences[0], problem.labels[0], weights_of(layout, theta))
    for sparse in DENSITIES:
        objective = ChainObjective(dataset, layout, sparse=sparse)
        assert objective.value(theta) == pytest.approx(expected - score, rel=LONG)
        assert objective.value_and_gradient(theta)[0] == pytest.approx(expected - score, rel=LONG)


@pytest.mark.parametrize("sparse", DENSITIES)
@pytest.mark.parametrize("scale", [1.0, 700.0])
def test_gradient_of_a_hundred_thousand_positions(long_problem, scale, sparse):
    """Each position has one label, in truth and in expectation: the counts of an observation cancel."""
    _, dataset, layout = long_problem
    theta = scale * random_theta(layout.size, 6, scale=1.0)
    gradient = ChainObjective(dataset, layout, sparse=sparse).value_and_gradient(theta)[1]
    assert np.isfinite(gradient).all()
    names = slot_features(layout)
    for family, observation in {name[:2] for name in names}:
        at = [k for k, name in enumerate(names) if name[:2] == (family, observation)]
        assert gradient[at].sum() == pytest.approx(0.0, abs=LONG * len(dataset.labels)), (family, observation)


@pytest.mark.parametrize("scale", [1.0, 700.0])
def test_marginals_of_a_hundred_thousand_positions(long_problem, scale):
    _, dataset, layout = long_problem
    marginals = decode.marginals(dataset, layout, scale * random_theta(layout.size, 6, scale=1.0))
    np.testing.assert_allclose(marginals.sum(axis=1), 1.0, rtol=0, atol=LONG)


# ---- what is rejected


def test_an_empty_sequence_is_named():
    with pytest.raises(EspalierError, match="sequence 1 has no position: leave empty sequences out"):
        make_dataset([[0], [0]], [0, 0], [0, 1, 1, 2])


@pytest.mark.parametrize("weight", [math.nan, math.inf, -1.0])
def test_a_bad_sequence_weight_is_named(weight):
    with pytest.raises(EspalierError, match=rf"weight {weight} of sequence 1: expected a finite number"):
        make_dataset([[0], [0]], [0, 0], [0, 1, 2], [1.0, weight])


def test_lengths_that_do_not_fit_are_named():
    with pytest.raises(EspalierError, match="1 labels for 2 positions"):
        make_dataset([[0], [0]], [0], [0, 2])
    with pytest.raises(EspalierError, match="2 weights for 1 sequences"):
        make_dataset([[0], [0]], [0, 0], [0, 2], [1.0, 1.0])
    with pytest.raises(EspalierError, match="offsets must run from 0 to the 2 positions"):
        make_dataset([[0], [0]], [0, 0], [0, 3])
    with pytest.raises(EspalierError, match="1 dimensions"):
        make_dataset([0, 0], [0, 0], [0, 2])


GOOD = make_dataset([[0], [1]], [0, 1], [0, 2])
KINDS = np.array([BOTH, BOTH], np.uint8)


@pytest.mark.parametrize(
    ("dataset", "found"),
    [
        (GOOD._replace(labels=np.array([0, 2], np.int32)), "label 2: expected ids below 2"),
        (GOOD._replace(labels=np.array([-1, -1], np.int32)), "all labels are unknown"),
        (GOOD._replace(observations=np.array([[0], [2]], np.int32)), "observation 2 is not one of the 2"),
        (GOOD._replace(observations=np.array([[0], [-2]], np.int32)), "observation -2"),
    ],
    ids=["label too large", "labels unknown", "observation too large", "observation below -1"],
)
def test_training_data_that_do_not_fit_the_layout_are_refused(dataset, found):
    """A kernel that reads outside its arrays would answer nonsense or crash the process."""
    with pytest.raises(EspalierError, match=found):
        ChainObjective(dataset, dense_layout(2, KINDS))


@pytest.mark.parametrize("function", [decode.viterbi, decode.marginals, decode.log_partition])
def test_observations_that_do_not_fit_the_layout_are_refused_when_decoding(function):
    layout = dense_layout(2, KINDS)
    with pytest.raises(EspalierError, match="2"):
        function(GOOD._replace(observations=np.array([[0], [2]], np.int32)), layout, np.zeros(layout.size))


def test_the_probability_of_unknown_labels_is_refused():
    layout = dense_layout(2, KINDS)
    with pytest.raises(EspalierError, match="position 1 has no label"):
        decode.sequence_log_probability(
            GOOD._replace(labels=np.array([0, -1], np.int32)), layout, np.zeros(layout.size)
        )


def test_theta_of_the_wrong_length_is_refused():
    layout = dense_layout(2, KINDS)
    objective = ChainObjective(GOOD, layout)
    for call in (objective.value, objective.value_and_gradient, lambda t: decode.viterbi(GOOD, layout, t)):
        with pytest.raises(EspalierError, match=str(layout.size)):
            call(np.zeros(layout.size - 1))


def test_an_unknown_density_is_refused():
    with pytest.raises(EspalierError, match="thick.*auto.*dense.*sparse"):
        ChainObjective(GOOD, dense_layout(2, KINDS), sparse="thick")


# ---- determinism


@pytest.fixture
def budget():
    yield set_threads
    set_threads(None)


def larger_problem(shape="many sets"):
    """Enough work for several pieces: many sets of observations, or two with thousands of positions."""
    if shape == "many sets":
        return pack(random_problem(14, 5, 12, 3, np.random.default_rng(13).integers(1, 12, 400).tolist()))
    return pack(random_problem(14, 3, 2, 1, np.random.default_rng(13).integers(1, 12, 900).tolist(), none=0.1))


@pytest.mark.parametrize("sparse", DENSITIES)
@pytest.mark.parametrize(("shape", "density"), [("many sets", 0.05), ("many sets", 1.0), ("few sets", 1.0)])
def test_bytes_do_not_depend_on_threads(budget, sparse, shape, density):
    packed = larger_problem(shape)
    theta = random_theta(packed.layout.size, 15, density)
    seen = set()
    for count in (1, 2, 4, 1):
        budget(count)
        value, gradient = ChainObjective(packed.dataset, packed.layout, sparse=sparse).value_and_gradient(theta)
        labels = decode.viterbi(packed.dataset, packed.layout, theta)
        marginals = decode.marginals(packed.dataset, packed.layout, theta)
        seen.add((float(value).hex(), gradient.tobytes(), labels.tobytes(), marginals.tobytes()))
    assert len(seen) == 1


def test_bytes_do_not_depend_on_callers_in_parallel(budget):
    """Six threads share one objective and one pool; each has its own theta and must get its own answer."""
    budget(2)
    packed = larger_problem()
    objective = ChainObjective(packed.dataset, packed.layout)
    thetas = [random_theta(packed.layout.size, seed, 1.0 if seed % 2 else 0.1) for seed in range(6)]
    alone = [objective.value_and_gradient(theta) for theta in thetas]
    together, barrier = [[] for _ in thetas], threading.Barrier(len(thetas))

    def call(n):
        barrier.wait()
        for _ in range(5):
            together[n].append(objective.value_and_gradient(thetas[n]))

    workers = [threading.Thread(target=call, args=(n,)) for n in range(len(thetas))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for n, results in enumerate(together):
        assert len(results) == 5
        for value, gradient in results:
            assert value == alone[n][0]
            assert gradient.tobytes() == alone[n][1].tobytes()


def test_the_budget_refuses_less_than_one_thread(budget):
    with pytest.raises(EspalierError, match="threads is 0: expected at least 1"):
        budget(0)
