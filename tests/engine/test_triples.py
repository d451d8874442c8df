"""Weights for triples of labels, by enumeration: the loss, its gradient, every decoder; and what is refused."""

import itertools
import json

import numpy as np
import pyarrow as pa
import pytest
from chain_problems import dataset_of, random_theta
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import chain, triples
from reference.problems import random_problem

from espalier import CRF, load
from espalier.engine.blockwise.blocks import BlockObjective
from espalier.engine.data.dataset import select
from espalier.engine.decoding import decode
from espalier.engine.decoding import triples as triple_decoding
from espalier.engine.errors import EspalierError
from espalier.engine.labels.scheme import Transitions
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.losses.exponential_loss import ExponentialObjective
from espalier.engine.losses.marginal_loss import MarginalObjective
from espalier.engine.losses.triple_objective import TripleObjective, loss_of_chain
from espalier.engine.model_file import WEIGHTS
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import SOLVERS, minimise
from espalier.engine.optimise.virtual_weights import minimise_virtual
from espalier.engine.runtime import threads
from espalier.engine.semisup.entropy import ChainEntropy
from espalier.engine.weights.layout import make_layout, merged, seen_layout
from espalier.engine.weights.seen_counts import SeenCounts

CLOSE = 1e-10  # sums of a few hundred terms in another order
SLOPE, STEP = 1e-5, 1e-6  # of finite differences
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=40)
SEEDS = st.integers(0, 2**32)


def random_triples(seed):
    """A problem with observations of every kind, at least one of which has weights for triples."""
    rng = np.random.default_rng(seed)
    n_labels, n_observations = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    kinds = rng.choice([1, 2, 3, 4], n_observations).tolist()
    kinds[0] = 4
    lengths = np.maximum(1, rng.integers(0, 6, 4)).tolist()
    return random_problem(seed, n_labels, n_observations, int(rng.integers(1, 4)), lengths, bool(rng.integers(2)),
                          float(rng.choice([0.0, 0.2])), kinds)  # fmt: skip


def chain_of(problem):
    data = dataset_of(problem)
    return data, make_layout("seen", data, problem.n_labels, np.array(problem.kinds, np.uint8), problem.start)


def as_oracle(layout, theta):
    weights, tau = chain.Weights({}, {}, {}), {}
    for family, o, p, y, value in zip(*(column.tolist() for column in layout.slots()), theta.tolist(), strict=True):
        if family == 3:
            tau[o, *divmod(p, layout.n_labels), y] = value
        else:
            (weights.mu, weights.start, weights.lam)[family][(o, p, y) if family == 2 else (o, y)] = value
    return weights, tau


def drawn_theta(layout, seed):
    rng = np.random.default_rng(seed)
    scale, density = float(rng.choice([0.5, 2.0, 60.0])), float(rng.choice([0.1, 0.5, 1.0]))
    return random_theta(layout.size, seed, density, scale)


@EXAMPLES
@given(SEEDS)
@pytest.mark.nojit
def test_there_are_weights_for_the_triples_that_occur(seed):
    problem = random_triples(seed)
    data, layout = chain_of(problem)
    _, tau = as_oracle(layout, np.ones(layout.size))
    kinds = problem.kinds
    assert tau.keys() == {key for key in triples.seen(problem) if kinds[key[0]] == 4}
    counts = SeenCounts(problem.n_labels, np.array(kinds, np.uint8), problem.start)
    counts.add(data)
    assert counts.counts.get("trigram", 0) == len(tau) and sum(counts.counts.values()) == layout.size
    halves = [seen_layout(part, problem.n_labels, kinds, problem.start) for part in (data, data)]
    for one, other in zip(merged(halves), layout, strict=True):
        np.testing.assert_array_equal(one, other)


@EXAMPLES
@given(SEEDS, SEEDS)
@pytest.mark.nojit
def test_value_and_gradient_by_enumeration(seed, draw):
    problem = random_triples(seed)
    data, layout = chain_of(problem)
    theta = drawn_theta(layout, draw)
    weights, tau = as_oracle(layout, theta)
    objective = TripleObjective(data, layout)
    value, gradient = objective.value_and_gradient(theta)
    expected = triples.loss(problem, weights, tau)
    assert value == pytest.approx(expected, abs=CLOSE * max(1.0, abs(expected)))
    assert objective.value(theta) == pytest.approx(expected, abs=CLOSE * max(1.0, abs(expected)))
    slopes = triples.gradient(problem, weights, tau)
    names = ("mu", "start", "lam", "tau")
    for slot, (family, o, p, y) in enumerate(zip(*(column.tolist() for column in layout.slots()), strict=True)):
        where = {2: (o, p, y), 3: (o, *divmod(p, layout.n_labels), y)}.get(family, (o, y))
        assert gradient[slot] == pytest.approx(slopes.get((names[family], *where), 0.0), abs=CLOSE)


def forbidding(n_labels, rng):
    """Transitions that leave every sequence a labelling: label 0 may always follow itself."""
    start, pair, end = rng.random(n_labels) < 0.7, rng.random((n_labels, n_labels)) < 0.7, rng.random(n_labels) < 0.7
    start[0] = pair[0, 0] = end[0] = True
    return Transitions(start, pair, end)


@EXAMPLES
@given(SEEDS, SEEDS, st.booleans())
@pytest.mark.nojit
def test_every_decoder_by_enumeration(seed, draw, limited):
    problem = random_triples(seed)
    data, layout = chain_of(problem)
    theta, y = drawn_theta(layout, draw), problem.n_labels
    weights, tau = as_oracle(layout, theta)
    moves = forbidding(y, np.random.default_rng(draw)) if limited else None
    only = {"transitions": moves} if limited else {}

    def allowed(labels):
        return moves is None or (
            moves.start[labels[0]] and moves.end[labels[-1]]
            and all(moves.pair[a, b] for a, b in zip(labels, labels[1:], strict=False))
        )  # fmt: skip

    log_z, gamma = decode.log_partition(data, layout, theta, **only), decode.marginals(data, layout, theta, **only)
    best, found = decode.viterbi(data, layout, theta, **only), decode.nbest(data, layout, theta, 4, **only)
    own = decode.sequence_score(data, layout, theta)
    for n, x in enumerate(problem.sequences):
        run = slice(data.offsets[n], data.offsets[n + 1])
        size = max(1.0, abs(float(log_z[n])))
        assert log_z[n] == pytest.approx(triples.log_partition(x, y, weights, tau, allowed), abs=CLOSE * size)
        np.testing.assert_allclose(gamma[run], triples.marginals(x, y, weights, tau, allowed), atol=CLOSE)
        ranked = triples.ranked(x, y, weights, tau, allowed)
        assert triples.score(x, best[run].tolist(), weights, tau) == pytest.approx(ranked[0], abs=CLOSE * size)
        assert allowed(best[run].tolist())
        assert own[n] == pytest.approx(triples.score(x, problem.labels[n], weights, tau), abs=CLOSE * size)
        count = min(4, len(ranked))
        assert found.count[n] == count
        labellings = [tuple(found.labels[r, run].tolist()) for r in range(count)]
        assert len(set(labellings)) == count
        for r, labels in enumerate(labellings):
            assert found.scores[n, r] == pytest.approx(ranked[r], abs=CLOSE * size)
            assert triples.score(x, labels, weights, tau) == pytest.approx(ranked[r], abs=CLOSE * size)
            assert found.log_probabilities[n, r] == pytest.approx(ranked[r] - log_z[n], abs=CLOSE * size)


@EXAMPLES
@given(SEEDS, SEEDS)
@pytest.mark.nojit
def test_the_best_labelling_through_each_label_by_enumeration(seed, draw):
    problem = random_triples(seed)
    data, layout = chain_of(problem)
    theta, y = drawn_theta(layout, draw), problem.n_labels
    weights, tau = as_oracle(layout, theta)
    for n, x in enumerate(problem.sequences):
        one = select(data, np.array([n]))
        best = decode.viterbi(one, layout, theta)
        ways = triple_decoding.ways(one, layout, theta, best)
        for t, label in itertools.product(range(len(x)), range(y)):
            begin, other, cut = ways.through(t, label)
            found = best.copy()
            found[begin : begin + len(other)] = other
            assert found[t] == label and not cut
            right = triples.ranked(x, y, weights, tau, lambda labels, t=t, label=label: labels[t] == label)[0]
            close = CLOSE * max(1.0, abs(right))
            assert triples.score(x, found.tolist(), weights, tau) == pytest.approx(right, abs=close)


SMALL = random_problem(3, 3, 4, 2, [5, 4, 6, 2, 1, 5], kinds=[4, 3, 1, 2])


@pytest.mark.nojit
def test_the_gradient_meets_finite_differences():
    data, layout = chain_of(SMALL)
    theta, objective = random_theta(layout.size, 1), TripleObjective(data, layout)
    gradient = objective.value_and_gradient(theta)[1]
    for k in range(layout.size):
        step = np.zeros(layout.size)
        step[k] = STEP
        slope = (objective.value(theta + step) - objective.value(theta - step)) / (2 * STEP)
        assert gradient[k] == pytest.approx(slope, abs=SLOPE)


def test_without_a_weight_for_triples_it_is_a_chain():
    data, layout = chain_of(random_problem(8, 5, 6, 3, [30, 1, 17, 2, 40], kinds=[4, 3, 3, 1, 2, 4]))
    theta = random_theta(layout.size, 2)
    theta[layout.trigram_ptr[0] :] = 0.0
    one, other = ChainObjective(data, layout), TripleObjective(data, layout)
    chain_only = slice(0, int(layout.trigram_ptr[0]))
    (value, slope), (same, also) = one.value_and_gradient(theta), other.value_and_gradient(theta)
    assert same == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(also[chain_only], slope[chain_only], rtol=1e-12, atol=1e-12)
    bare = make_layout("seen", data, 5, np.array([3, 3, 3, 1, 2, 3], np.uint8))
    assert not bare.second_order and isinstance(loss_of_chain(data, bare), ChainObjective)


@pytest.mark.parametrize("scale", [2.0, 11.0, 400.0])
def test_scaled_and_logarithmic_recursions_agree(scale):
    """11 is beyond what the entries of the linear domain may be, 400 beyond what factors of pairs may be."""
    data, layout = chain_of(random_problem(11, 4, 5, 2, [12, 9, 3, 20], kinds=[4, 3, 1, 2, 4]))
    theta = random_theta(layout.size, 5, scale=1.0)
    far = theta.copy()
    far[-3:] = [-scale, scale, -scale]
    objective = TripleObjective(data, layout)
    value, gradient = objective.value_and_gradient(far)
    step = 1e-6
    for k in range(layout.size - 5, layout.size):
        moved = far.copy()
        moved[k] += step
        assert (objective.value(moved) - value) / step == pytest.approx(gradient[k], abs=1e-4)
    gamma = decode.marginals(data, layout, far)
    np.testing.assert_allclose(gamma.sum(axis=1), 1.0, atol=1e-12)
    everything = decode.marginals(data, layout, far, allowed=np.ones(gamma.shape, bool))  # by logarithms
    np.testing.assert_allclose(gamma, everything, atol=1e-10)
    log_z = decode.log_partition(data, layout, far, allowed=np.ones(gamma.shape, bool))
    np.testing.assert_allclose(decode.log_partition(data, layout, far), log_z, rtol=1e-12)


@pytest.mark.nojit
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_many_labels_and_positions_at_once(share):
    """Sums of eight positions at once, rows of many columns: the recursions by logarithms have neither."""
    problem = random_problem(4, 7, 6, 3, [9, 14, 3, 30, 1, 2, 12], kinds=[4, 3, 4, 2, 3, 1])
    data, layout = chain_of(problem)
    objective, theta = TripleObjective(data, layout), random_theta(layout.size, 3)
    theta[layout.trigram_ptr[0] :] *= np.random.default_rng(1).random(layout.size - layout.trigram_ptr[0]) < share
    value, gradient = objective.value_and_gradient(theta)
    expected = np.zeros(layout.size)
    log_z = [objective._by_logarithms(theta, data, n, expected) for n in range(len(data.weights))]
    np.testing.assert_allclose(gradient + objective.observed, expected, atol=1e-11)
    assert value == pytest.approx(np.dot(data.weights, log_z) - theta @ objective.observed, rel=1e-12)


def test_a_long_sequence_keeps_its_digits():
    problem = random_problem(2, 3, 4, 2, [20_000], kinds=[4, 3, 1, 2])
    data, layout = chain_of(problem)
    theta = random_theta(layout.size, 1)
    gamma = decode.marginals(data, layout, theta)
    np.testing.assert_allclose(gamma.sum(axis=1), 1.0, atol=1e-9)
    every = np.ones(gamma.shape, bool)
    np.testing.assert_allclose(gamma, decode.marginals(data, layout, theta, allowed=every), atol=1e-9)


def test_a_sequence_too_long_for_pairs_of_labels_is_refused(monkeypatch):
    monkeypatch.setattr("espalier.engine.lattice.second_order.MOST_BYTES", 1 << 10)
    data, layout = chain_of(random_problem(2, 3, 4, 2, [4, 40], kinds=[4, 3, 1, 2]))
    with pytest.raises(EspalierError, match="sequence 1 has 40 positions, and their pairs of 3 labels take"):
        decode.viterbi(data, layout, np.ones(layout.size))


def test_the_same_bytes_for_any_number_of_threads():
    data, layout = chain_of(random_problem(6, 4, 6, 3, [7, 3, 9, 12, 1, 2] * 20, kinds=[4, 3, 4, 1, 2, 3]))
    theta, found = random_theta(layout.size, 1, 0.6), []
    for count in (1, 2, 8):
        threads.set_threads(count)
        value, gradient = TripleObjective(data, layout).value_and_gradient(theta)
        found.append((value, gradient.tobytes(), decode.marginals(data, layout, theta).tobytes(),
                      decode.viterbi(data, layout, theta).tobytes()))  # fmt: skip
    threads.set_threads(None)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("solver", ["hybrid", "lbfgs", "owlqn", "pqn", "cg-pr"])
@pytest.mark.parametrize("rho1", [0.0, 0.3])
def test_solvers_by_gradient_meet_at_the_optimum(solver, rho1):
    if rho1 and not SOLVERS[solver].accepts_l1:
        return
    data, layout = chain_of(random_problem(9, 3, 6, 2, [6, 5, 4, 7] * 4, kinds=[4, 3, 1, 2, 3, 4]))
    penalty, objective = ElasticNet(rho1, 0.2), TripleObjective(data, layout)
    found = minimise(solver, objective, penalty, None, 500, 1e-13)
    best = minimise("owlqn", objective, penalty, None, 500, 1e-13)
    assert found.objective == pytest.approx(best.objective, rel=1e-7)
    assert np.count_nonzero(found.theta[layout.trigram_ptr[0] :])


@pytest.mark.parametrize("what", ["a label unknown", "weights of tokens"])
def test_what_triples_cannot_learn_from_is_refused(what):
    data, layout = chain_of(SMALL)
    if what == "a label unknown":
        labels = data.labels.copy()
        labels[2] = -1
        with pytest.raises(EspalierError, match="position 2 has no label of its own: templates that begin with T"):
            loss_of_chain(data._replace(labels=labels), layout)
        return
    with pytest.raises(EspalierError, match="tokens have weights, which templates that begin with T cannot learn"):
        loss_of_chain(data._replace(token_weights=np.ones(len(data.labels))), layout)


# ---- the Python class and the model file

X = [list("abca"), list("bca"), ["c"], list("ab"), list("bacba")]
Y = [list("XYXZ"), list("YXZ"), ["X"], list("XY"), list("YXZYX")]
ROWS = [[(token,) for token in row] for row in X]
LINES = ["U", "U:%x[0,0]", "B", "T", "T:%x[0,0]"]


def test_the_class_trains_saves_and_goes_on(tmp_path):
    crf = CRF(LINES, rho1=0.05, rho2=0.1, tolerance=1e-10).fit(ROWS, Y)
    assert crf.predict(ROWS) == Y and crf.model_.sizes()["active_trigram"] > 0
    crf.save(tmp_path / "a.model")
    again = CRF.load(tmp_path / "a.model")
    assert again.predict_nbest(ROWS, 2) == crf.predict_nbest(ROWS, 2)
    np.testing.assert_array_equal(again.predict_marginals(ROWS)[0], crf.predict_marginals(ROWS)[0])
    table = again.model_.table()
    assert table.column_names == ["family", "observation", "before", "previous", "label", "weight"]
    warm = CRF(LINES, rho1=0.05, rho2=0.1).fit(ROWS, Y, start_from=tmp_path / "a.model")
    assert warm.trace_[0]["objective"] == pytest.approx(crf.trace_[-1]["objective"], rel=1e-9)
    assert "trigram" in crf._repr_html_() and "Y → X" in crf._repr_html_()
    limited = crf.predict(ROWS[:1], allowed=[[None, "Z", None, None]])
    assert limited[0][1] == "Z"


def test_other_labels_of_an_earlier_model_are_left_out(tmp_path):
    earlier = CRF(LINES, rho1=0.0, rho2=0.1).fit(ROWS, Y)
    fewer = [[label if label != "Y" else "X" for label in row] for row in Y]
    data = CRF(LINES, rho1=0.0, rho2=0.1, max_iterations=1).fit(ROWS, fewer, start_from=earlier)
    assert data.model_.labels == ["X", "Z"]


def test_models_without_triples_are_files_as_before():
    model = CRF(LINES[:3], rho1=0.05).fit(ROWS, Y).model_
    assert model.format == 4 and model.table().column_names == WEIGHTS.names
    assert model.table().column("family").combine_chunks().dictionary.to_pylist() == ["unigram", "start", "bigram"]


@pytest.mark.parametrize("change", ["drop before", "no label before", "format 4"])
def test_a_damaged_file_with_triples_is_refused(tmp_path, change):
    path, model = tmp_path / "a.model", CRF(LINES, rho1=0.05).fit(ROWS, Y).model_
    table = model.table()
    if change == "drop before":
        table = table.drop_columns(["before"])
    elif change == "no label before":
        empty = pa.nulls(len(table), pa.int32())
        column = pa.DictionaryArray.from_arrays(empty, pa.array(model.labels))
        table = table.set_column(2, "before", column)
    else:
        head = json.loads(table.schema.metadata[b"espalier"]) | {"format": 4}
        table = table.replace_schema_metadata({"espalier": json.dumps(head, sort_keys=True)})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(EspalierError, match="a weight has two labels before it|columns family"):
        load(path)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"family": "memm"}, "memm cannot weigh three labels in a row: set family to crf, or leave out the templates"),
        ({"family": "hmm"}, "hmm cannot weigh three labels in a row"),
        ({"loss": "marginal"}, "loss is marginal, and templates that begin with T are trained by the log loss alone"),
        ({"loss": "exponential"}, "loss is exponential, and templates that begin with T"),
        ({"scheme": "iob2"}, "a scheme makes transitions impossible in training, which templates that begin with T do"),
        ({"family": "gp"}, "gp cannot weigh three labels in a row: set family to crf"),
        ({"pairs": "all"}, "pairs is all, and templates that begin with T have weights for the triples of labels that"),
        ({"solver": "sbcd"}, "sbcd needs blocks .* TripleObjective has none: choose one of owlqn, pqn, hybrid$"),
        ({"solver": "gis", "rho1": 0.0}, "gis needs .* choose one of lbfgs, owlqn, pqn, hybrid, cg-fr, cg-pr$"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(options, text):
    with pytest.raises(EspalierError, match=text):
        CRF(LINES, **options).fit(ROWS, Y)


def test_virtual_weights_and_entropy_know_pairs_alone():
    data, layout = chain_of(SMALL)
    with pytest.raises(EspalierError, match="leave T templates out"):
        minimise_virtual(data, 3, np.array(SMALL.kinds, np.uint8), ElasticNet(0.1, 0.1))
    for made in (ChainEntropy, MarginalObjective, ExponentialObjective, BlockObjective):
        with pytest.raises(EspalierError, match="weights for triples of labels"):
            made(data, layout, *((0.1,) if made is ChainEntropy else ()))
    with pytest.raises(EspalierError, match="marginals of pairs"):
        decode.pair_marginals(data, layout, np.ones(layout.size))
