"""Observations with real values: every loss, solver and decoder against enumeration and against differences."""

import numpy as np
import pytest
from chain_problems import random_theta, slot_features, weights_of
from reference import valued as oracle

from espalier.engine.chain import scatter_gradient
from espalier.engine.data.dataset import every_observation, join, make_dataset, select
from espalier.engine.decoding import decode
from espalier.engine.errors import EspalierError
from espalier.engine.families import hmm, memm
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.losses.feature_selection import mutual_information
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import SOLVERS, minimise
from espalier.engine.optimise.solvers.cd import derivatives, exact_second_derivative
from espalier.engine.optimise.virtual_weights import minimise_virtual
from espalier.engine.parts.sharded_objective import InProcess, Part, ShardedObjective, block_of, cut
from espalier.engine.semisup.entropy import ChainEntropy
from espalier.engine.weights.layout import BIGRAM, UNIGRAM, dense_layout, seen_layout
from espalier.engine.weights.seen_counts import SeenCounts

CLOSE = 1e-10
STEP = 1e-5
KINDS = np.array([UNIGRAM | BIGRAM, UNIGRAM, BIGRAM, UNIGRAM, UNIGRAM, UNIGRAM], np.uint8)  # 3 to 5 may have values


def drawn(seed, n_labels=3, lengths=(3, 1, 4, 2), negative=True, most=3):
    """Plain observations 0, 1, 2 and valued ones 1, 3, 4, 5: one may be there twice, or plain and valued at once."""
    rng, tokens = np.random.default_rng(seed), sum(lengths)
    plain = rng.integers(-1, 3, (tokens, 2))
    valued = rng.choice([-1, 1, 3, 4, 5], (tokens, most))
    values = np.round(rng.normal(size=valued.shape), 2) if negative else rng.random(valued.shape) + 0.1
    return make_dataset(
        plain, rng.integers(0, n_labels, tokens), np.cumsum([0, *lengths]), rng.random(len(lengths)) + 0.5,
        valued=valued, values=values,
    )  # fmt: skip


def positions(data):
    """As the oracle takes them."""
    rows = []
    for plain, ids, values in zip(data.observations, data.valued, data.values, strict=True):
        rows.append([(int(o), 1.0) for o in plain if o >= 0])
        rows[-1] += [(int(o), float(v)) for o, v in zip(ids, values, strict=True) if o >= 0]
    return [rows[a:b] for a, b in zip(data.offsets, data.offsets[1:], strict=False)]


def labels_of(data):
    return [data.labels[a:b].tolist() for a, b in zip(data.offsets, data.offsets[1:], strict=False)]


def layout_of(data, which, n_labels=3):
    return dense_layout(n_labels, KINDS) if which == "dense" else seen_layout(data, n_labels, KINDS)


def differences(value, theta):
    """The gradient by central differences."""
    out = np.empty(len(theta))
    for k in range(len(theta)):
        up, down = theta.copy(), theta.copy()
        up[k] += STEP
        down[k] -= STEP
        out[k] = (value(up) - value(down)) / (2 * STEP)
    return out


@pytest.mark.parametrize("scale", [1.5, 150.0])
@pytest.mark.parametrize("how", ["scattered", "gathered"])
@pytest.mark.parametrize("which", ["dense", "seen"])
@pytest.mark.parametrize("seed", [1, 2])
def test_loss_and_gradient(seed, which, how, scale, monkeypatch):
    if how == "gathered":
        monkeypatch.setattr(scatter_gradient, "LARGEST", -1)
    data = drawn(seed)
    layout = layout_of(data, which)
    theta = random_theta(layout.size, seed, 0.8, scale)
    weights = weights_of(layout, theta)
    loss, gradient = oracle.loss_and_gradient(positions(data), labels_of(data), 3, weights, data.weights.tolist())
    objective = ChainObjective(data, layout)
    assert objective.scattered is (how == "scattered")
    value, found = objective.value_and_gradient(theta)
    assert value == pytest.approx(loss, rel=CLOSE) and objective.value(theta) == pytest.approx(loss, rel=CLOSE)
    expected = [gradient.get(feature, 0.0) for feature in slot_features(layout)]
    np.testing.assert_allclose(found, expected, atol=CLOSE * max(1.0, scale), rtol=CLOSE)


@pytest.mark.parametrize("scale", [1.0, 150.0])
def test_decoders(scale):
    data = drawn(3)
    layout = layout_of(data, "dense")
    theta = random_theta(layout.size, 3, 1.0, scale)
    weights, sequences = weights_of(layout, theta), positions(data)
    log_z = [oracle.log_partition(x, 3, weights) for x in sequences]
    np.testing.assert_allclose(decode.log_partition(data, layout, theta), log_z, rtol=CLOSE)
    best = [max(oracle.scored(x, 3, weights), key=lambda pair: pair[1]) for x in sequences]
    assert decode.viterbi(data, layout, theta).tolist() == [y for labels, _ in best for y in labels]
    several = decode.nbest(data, layout, theta, 2)
    np.testing.assert_allclose(several.scores[:, 0], [total for _, total in best], rtol=CLOSE)
    expected = np.zeros((len(data.labels), 3))
    for n, x in enumerate(sequences):
        for labels, total in oracle.scored(x, 3, weights):
            expected[data.offsets[n] + np.arange(len(labels)), labels] += np.exp(total - log_z[n])
    np.testing.assert_allclose(decode.marginals(data, layout, theta), expected, atol=CLOSE)
    scores = oracle.score(sequences[0], labels_of(data)[0], weights)
    assert decode.sequence_score(data, layout, theta)[0] == pytest.approx(scores, rel=CLOSE)


def test_the_label_depends_on_a_sign():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400, 1))
    data = make_dataset(
        np.full((400, 1), 0), (values[:, 0] > 0).astype(int), np.arange(0, 401, 4), valued=np.full((400, 1), 1),
        values=values,
    )  # fmt: skip
    layout = dense_layout(2, [UNIGRAM | BIGRAM, UNIGRAM])
    theta = minimise("hybrid", ChainObjective(data, layout), ElasticNet(0.1, 0.1)).theta
    assert np.mean(decode.viterbi(data, layout, theta) == data.labels) > 0.98


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_comes_to_the_optimum(solver):
    data = drawn(4, lengths=(3, 1, 4, 2, 5, 3, 2, 4), negative=solver not in ("iis", "gis"))
    layout = layout_of(data, "dense")
    penalty = ElasticNet(0.05 if SOLVERS[solver].accepts_l1 else 0.0, 0.5)
    best = minimise("owlqn", ChainObjective(data, layout), penalty, max_iterations=500, tolerance=1e-9)
    found = minimise(solver, ChainObjective(data, layout), penalty, max_iterations=3000, tolerance=1e-7)
    assert found.objective == pytest.approx(best.objective, rel=1e-2 if solver == "sgd" else 1e-6)


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name not in ("sgd", "iis", "gis")])
def test_values_of_one_are_plain_observations(solver):
    data = drawn(5)
    ones = np.where(data.valued >= 0, 1.0, 0.0)
    plain = make_dataset(every_observation(data), data.labels, data.offsets, data.weights)
    valued = make_dataset(data.observations, data.labels, data.offsets, data.weights, None, None, data.valued, ones)
    penalty = ElasticNet(0.05 if SOLVERS[solver].accepts_l1 else 0.0, 0.5)
    layout = layout_of(data, "dense")
    found = [
        minimise(solver, ChainObjective(one, layout), penalty, max_iterations=500, tolerance=1e-9).theta
        for one in (plain, valued)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-4)


def test_a_value_twice_as_large_needs_half_the_weight():
    data = drawn(6)
    double = data._replace(values=2.0 * data.values)
    layout = dense_layout(3, [UNIGRAM | BIGRAM, UNIGRAM, BIGRAM, UNIGRAM, UNIGRAM, UNIGRAM])
    theta = random_theta(layout.size, 1)
    half = theta.copy()
    for x in (3, 4, 5):
        half[layout.unigram_ptr[x] : layout.unigram_ptr[x + 1]] /= 2.0
    keep = data._replace(valued=np.where(data.valued == 1, -1, data.valued))
    first = ChainObjective(keep, layout).value(theta)
    second = ChainObjective(double._replace(valued=keep.valued), layout).value(half)
    assert first == pytest.approx(second, rel=CLOSE)


@pytest.mark.parametrize("scale", [1.0, 150.0])
def test_terms_of_partial_labels_and_token_weights(scale):
    data = drawn(7)
    layout = layout_of(data, "dense")
    theta = random_theta(layout.size, 7, 1.0, scale)
    labels, tokens = data.labels.copy(), np.random.default_rng(7).random(len(data.labels)) + 0.5
    labels[[1, 4, 6]] = [-1, -2, -1]
    sets = np.array([[True, True, False]])
    partial = make_dataset(
        data.observations, labels, data.offsets, data.weights, sets, None, data.valued, data.values
    )
    weighted = make_dataset(
        data.observations, data.labels, data.offsets, data.weights, None, tokens, data.valued, data.values
    )
    for one in (partial, weighted):
        objective = ChainObjective(one, layout)
        assert objective.terms
        value, gradient = objective.value_and_gradient(theta)
        assert value == pytest.approx(objective.value(theta), rel=CLOSE)
        np.testing.assert_allclose(gradient, differences(objective.value, theta), atol=1e-6 * scale)


@pytest.mark.parametrize("scale", [1.0, 60.0])
def test_entropy(scale):
    data = drawn(8)
    layout = layout_of(data, "dense")
    theta = random_theta(layout.size, 8, 1.0, scale)
    entropy = ChainEntropy(data, layout, 1.0)
    gradient = np.zeros(layout.size)
    entropy.add_gradient(theta, gradient)
    np.testing.assert_allclose(gradient, differences(entropy.value, theta), atol=1e-6 * scale)


def test_single_weights_and_blocks():
    data = drawn(9)
    layout = layout_of(data, "dense")
    theta = random_theta(layout.size, 9)
    objective = ChainObjective(data, layout)
    _, gradient = objective.value_and_gradient(theta)
    for k in range(layout.size):
        assert derivatives(objective, theta, k)[0] == pytest.approx(gradient[k], abs=1e-9)
    for k in range(0, layout.size, 5):
        up, down = theta.copy(), theta.copy()
        up[k] += STEP
        down[k] -= STEP
        change = objective.value_and_gradient(up)[1][k] - objective.value_and_gradient(down)[1][k]
        assert exact_second_derivative(objective, theta, k) == pytest.approx(change / (2 * STEP), abs=1e-5)


def test_memm():
    data = drawn(10)
    layout = layout_of(data, "dense")
    theta = random_theta(layout.size, 10)
    objective = memm.MemmObjective(data, layout)
    model = memm.MemmLabeller(["A", "B", "C"], [], [str(i) for i in range(6)], layout, theta)
    value, gradient = objective.value_and_gradient(theta)
    assert value == pytest.approx(-float(data.weights @ model.log_probability(data)), rel=CLOSE)
    np.testing.assert_allclose(gradient, differences(objective.value, theta), atol=1e-7)


def test_parts_are_the_whole():
    data = drawn(11, lengths=(3, 2, 4, 1, 5, 2, 3, 3))
    layout = layout_of(data, "dense")
    theta = random_theta(layout.size, 11)
    bounds = cut(data.offsets, 6)
    assert len(bounds) > 2
    part = Part((block_of(data, *bound) for bound in bounds), 0, len(bounds), layout)
    sharded, whole = ShardedObjective(InProcess([part]), layout), ChainObjective(data, layout)
    value, gradient = sharded.value_and_gradient(theta)
    expected, of_whole = whole.value_and_gradient(theta)
    assert value == pytest.approx(expected, rel=CLOSE)
    np.testing.assert_allclose(gradient, of_whole, atol=CLOSE)
    np.testing.assert_allclose(sharded.scaling(gradient, 0.1), whole.scaling(of_whole, 0.1), rtol=CLOSE)
    found = [minimise("sbcd", one, ElasticNet(0.05, 0.5), tolerance=1e-8).objective for one in (sharded, whole)]
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_parts_of_a_data_set_keep_their_values():
    data = drawn(12)
    whole = join(select(data, np.array([0, 2])), select(data, np.array([1, 3])))
    back = select(whole, np.array([0, 2, 1, 3]))
    assert all(np.array_equal(a, b) for a, b in zip(back, data, strict=True))
    plain = select(data, np.array([1]))._replace(valued=np.zeros((0, 0), np.int32), values=np.zeros((0, 0)))
    both = join(plain, data)
    assert both.valued.shape == (len(data.labels) + 1, 3) and np.all(both.valued[0] == -1)


def test_seen_pairs_and_information_know_of_values():
    data = drawn(13)
    seen, counts = seen_layout(data, 3, KINDS), SeenCounts(3, KINDS, True)
    counts.add(data)
    assert sum(counts.counts.values()) == seen.size
    assert np.all(np.diff(seen.unigram_ptr)[[3, 4, 5]] > 0)
    plain = make_dataset(every_observation(data), data.labels, data.offsets, data.weights)
    np.testing.assert_array_equal(mutual_information(data, seen), mutual_information(plain, seen))


# ---- refusals


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_refused_with_its_place(value):
    values = np.ones((5, 2))
    values[3, 1] = value
    with pytest.raises(EspalierError, match=f"value {value} of observation 4 at position 1 of sequence 1: expected a"):
        make_dataset(np.zeros((5, 1)), None, [0, 2, 5], valued=np.full((5, 2), 4), values=values)


def test_what_is_not_there_may_have_any_value():
    data = make_dataset(np.zeros((1, 1)), None, [0, 1], valued=[[-1, 3]], values=[[np.nan, 0.0]])
    assert data.valued.tolist() == [[-1, -1]] and data.values.tolist() == [[0.0, 0.0]]


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(EspalierError, match="expected both as 1 positions x the most"):
        make_dataset(np.zeros((1, 1)), None, [0, 1], valued=[[1, 3]], values=[[1.0]])


def test_values_with_weights_for_pairs_are_refused():
    data = drawn(1)._replace(valued=np.full((10, 3), 2, np.int32))
    with pytest.raises(EspalierError, match="observation 2 has values and weights for pairs of labels"):
        ChainObjective(data, layout_of(data, "dense"))


def test_iterative_scaling_refuses_negative_values():
    data = drawn(1)
    with pytest.raises(EspalierError, match="is negative, and iterative scaling is for features of at least 0"):
        minimise("iis", ChainObjective(data, layout_of(data, "dense")), ElasticNet(0.0, 1.0))


def test_virtual_weights_and_hidden_markov_models_refuse_values():
    data = drawn(1)
    with pytest.raises(EspalierError, match="virtual weights cannot be trained with real values"):
        minimise_virtual(data, 3, KINDS, ElasticNet(0.1, 0.1))
    with pytest.raises(EspalierError, match="hmm cannot learn from real values: set model.family to one of crf, memm"):
        hmm.fit(data, [str(i) for i in range(6)], np.zeros(6, int), ["A", "B", "C"], ["U:%x[0,0]"] * 2, {})
