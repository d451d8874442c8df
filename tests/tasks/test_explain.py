"""Why a label: the listed weights and the rest are the difference of two log-probabilities, and nothing else."""

import json
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import chain, restricted
from small_models import LETTERS, hmm_of, memm_of, model_of, observations_of, perceptron_of, weights_of

from espalier.engine.data.dataset import make_dataset, select
from espalier.engine.decoding import decode
from espalier.engine.errors import EspalierError
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.lattice import blocks
from espalier.engine.weights.layout import dense_layout, observation_kinds
from espalier.tasks.answering import explain

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=40)
MODELS = [model_of(), model_of(sparse=0.6, seed=2), model_of(["*:%x[0,0]", "B", "U:%x[1,0]"], seed=5)]
WORD = st.text(st.sampled_from(LETTERS), min_size=1, max_size=5)
EXACT = 1e-9


def whole(found, reason):
    """The other labelling of all positions."""
    other = found.labels.copy()
    other[reason.begin : reason.begin + len(reason.other)] = reason.other
    return other


def dataset_of(model, *words):
    rows = [row for word in words for row in observations_of(model, word)]
    return make_dataset(np.array(rows, np.int32), None, np.cumsum([0, *map(len, words)]))


@EXAMPLES
@given(WORD, st.sampled_from(range(len(MODELS))), st.integers(0, 6))
def test_the_sum_is_the_difference_of_the_two_log_probabilities(word, which, top):
    model = MODELS[which]
    (found,) = explain.explain(model, data := dataset_of(model, word))
    told = explain.as_object(model, list(word), found, top)
    for t, (row, reason) in enumerate(zip(told["tokens"], found.reasons, strict=True)):
        assert whole(found, reason)[t] == reason.runner_up != found.labels[t]
        best, other = (
            float(decode.sequence_log_probability(data, model.layout, model.theta, np.array(labels, np.int32))[0])
            for labels in (found.labels, whole(found, reason))
        )
        listed = [weight["adds"] for weight in row["weights"]]
        assert math.fsum(listed) + row["rest"] == pytest.approx(best - other, abs=EXACT)
        assert row["difference"] == pytest.approx(best - other, abs=EXACT)
        assert len(listed) <= top and len(listed) + row["rest_count"] == len(reason.shares)
        assert [abs(value) for value in listed] == sorted(map(abs, listed), reverse=True)


@EXAMPLES
@given(WORD, st.sampled_from(range(len(MODELS))))
def test_labels_probabilities_and_runners_up_are_those_of_enumeration(word, which):
    model = MODELS[which]
    rows, weights, n_labels = observations_of(model, word), weights_of(model), len(model.labels)
    (found,) = explain.explain(model, dataset_of(model, word))
    (best,), _ = chain.best_labellings(rows, n_labels, weights)
    gamma = chain.marginals(rows, n_labels, weights)
    assert found.labels.tolist() == list(best)
    assert found.log_probability == pytest.approx(chain.log_probability(rows, best, n_labels, weights), abs=EXACT)
    for t, reason in enumerate(found.reasons):
        assert reason.probability == pytest.approx(gamma[t, best[t]], abs=EXACT)
        others = [y for y in range(n_labels) if y != best[t]]
        assert reason.runner_up == max(others, key=lambda y: gamma[t, y])
        assert reason.runner_up_probability == pytest.approx(gamma[t, reason.runner_up], abs=EXACT)
        allowed = [None] * t + [{reason.runner_up}] + [None] * (len(word) - t - 1)
        assert tuple(whole(found, reason)) == restricted.distribution(rows, n_labels, weights, allowed)[0][0][0]


@EXAMPLES
@given(WORD, st.sampled_from(range(len(MODELS))))
def test_each_share_is_a_weight_by_how_much_more_often_it_counts(word, which):
    """Against the features that the oracle says a labelling fires."""
    model = MODELS[which]
    rows, (found,) = observations_of(model, word), explain.explain(model, dataset_of(model, word))
    family, observation, previous, label = (column.tolist() for column in model.layout.slots())
    keys = [(("mu", "start", "lam")[f], o, *((p,) if f == 2 else ()), y)
            for f, o, p, y in zip(family, observation, previous, label, strict=True)]  # fmt: skip
    for reason in found.reasons:
        mine, other = (chain.features(rows, list(map(int, labels))) for labels in (found.labels, whole(found, reason)))
        expected = {key: mine.count(key) - other.count(key) for key in {*mine, *other} if key in keys}
        told = {key_of(s.weight): s for s in reason.shares}
        assert {key: s.times for key, s in told.items()} == {k: n for k, n in expected.items() if n}
        assert all(s.value == s.times * model.theta[keys.index(key)] for key, s in told.items())


def key_of(weight):
    name = {"unigram": "mu", "start": "start", "bigram": "lam"}[weight.kind]
    return (name, weight.observation, *((weight.previous,) if name == "lam" else ()), weight.label)


def score_of(model, data, labels):
    """What labellings are compared by: the log-probability, or the score of a model that has none."""
    if "probability" in model.can:
        return model.log_probability(data, labels)[0]
    return blocks.score(model.lattices(data), 1, labels)[0]


@pytest.mark.parametrize("make", [memm_of, hmm_of, perceptron_of])
def test_the_shares_of_any_family_add_up_to_the_difference(make):
    """Of log-probabilities, whatever the family: what a local model divides by is a share of its own."""
    model = make(seed=5)
    for word in ("a", "abé", "éb/a?b", "??"):
        data = dataset_of(model, word)
        (found,) = explain.explain(model, data)
        np.testing.assert_array_equal(found.labels, model.best(data))
        for reason in found.reasons:
            pair = np.array([found.labels, whole(found, reason)], np.int32)
            best, other = (score_of(model, data, labels) for labels in pair)
            assert reason.difference == pytest.approx(best - other, abs=1e-9)
            assert sum(s.value for s in reason.shares) == pytest.approx(reason.difference, abs=1e-9)
            told = explain.as_text(explain.as_object(model, list(word), found))
            assert word[0] in told and ("%" in told) == ("probability" in model.can)


def test_of_a_model_of_scores_the_runner_up_costs_least():
    model = perceptron_of(seed=6)
    data = dataset_of(model, "abé")
    (found,) = explain.explain(model, data)
    assert found.log_probability is None
    scored = {y: score_of(model, data, np.array(y, np.int32)) for y in np.ndindex(3, 3, 3)}
    for t, reason in enumerate(found.reasons):
        through = [max(s for y, s in scored.items() if y[t] == label) for label in range(3)]
        assert (reason.label, reason.runner_up) == tuple(np.argsort(through)[::-1][:2])
        assert reason.difference == pytest.approx(through[reason.label] - through[reason.runner_up])
        assert reason.probability is None and reason.runner_up_probability is None


def test_a_long_sequence_is_explained_in_pieces_as_in_one(monkeypatch):
    for make in (model_of, memm_of, hmm_of):
        model = make(seed=6)
        data = dataset_of(model, "abé/ba" * 5)
        whole_one = list(explain.explain(model, data))[0]
        monkeypatch.setattr(explain, "BLOCK", 8 * 9 * 4)
        pieces = list(explain.explain(model, data))[0]
        monkeypatch.undo()
        for a, b in zip(whole_one.reasons, pieces.reasons, strict=True):
            assert a.other.tolist() == b.other.tolist()
            assert a.difference == pytest.approx(b.difference, abs=1e-9)


def test_sequences_do_not_look_at_each_other_and_long_ones_go_in_parts(monkeypatch):
    model = MODELS[0]
    together = list(explain.explain(model, dataset_of(model, "abé", "b/a")))
    monkeypatch.setattr(explain, "BLOCK", 1)  # two positions at a time
    alone = [explain.explain_one(model, dataset_of(model, word)) for word in ("abé", "b/a")]
    for one, other in zip(together, alone, strict=True):
        assert explain.as_object(model, list("abc"), one) == explain.as_object(model, list("abc"), other)
    both = dataset_of(model, "abé", "b/a")
    assert explain.explain_one(model, select(both, np.array([1]))).labels.tolist() == (
        together[1].labels.tolist()
    )


def by_trying(model, data, labels, seconds):
    """The best labelling with one allowed label at a position, for each position by itself: T copies of T positions."""
    length = len(labels)
    copies = select(data, np.zeros(length, np.int64))
    allowed = np.full((length, length), -1, np.int32)
    np.fill_diagonal(allowed, seconds)
    found = decode.viterbi(copies._replace(labels=allowed.ravel()), model.layout, model.theta, allowed="labels")
    return found.reshape(length, length)


@settings(EXAMPLES, max_examples=60)
@given(st.text(st.sampled_from(LETTERS), min_size=1, max_size=40), st.integers(0, 5), st.sampled_from([0.0, 0.5, 0.9]))
def test_the_other_labellings_are_those_of_a_search_for_each(word, seed, sparse):
    model = model_of(sparse=sparse, seed=seed, labels=("W", "X", "Y", "Z"))
    (found,) = explain.explain(model, data := dataset_of(model, word))
    others = by_trying(model, data, found.labels, [reason.runner_up for reason in found.reasons])
    mine = np.array([whole(found, reason) for reason in found.reasons])
    copies = select(data, np.zeros(len(word), np.int64))
    scores, expected = (
        decode.sequence_score(copies, model.layout, model.theta, labels.ravel()) for labels in (mine, others)
    )
    np.testing.assert_allclose(scores, expected, rtol=0, atol=EXACT)
    if not sparse:  # no two labellings are equal
        assert np.array_equal(mine, others)
    best = decode.sequence_score(data, model.layout, model.theta, found.labels)[0]
    np.testing.assert_allclose([r.difference for r in found.reasons], best - expected, rtol=0, atol=EXACT)


def locked():
    """Labels that never change within a sequence, so that a label there changes all others."""
    names = ["*:a"]
    layout = dense_layout(2, observation_kinds(names))
    slots = list(zip(*(column.tolist() for column in layout.slots()), strict=True))
    value = {(2, 0, 0, 0): 5.0, (2, 0, 1, 1): 5.0, (1, 0, -1, 0): 0.25}
    theta = np.array([value.get(slot, 0.0) for slot in slots])
    return CrfLabeller.compact(layout, theta, names, ["X", "Y"], ["*:%x[0,0]"], {})


@pytest.mark.parametrize("reach", [3, 1000])
def test_where_all_labels_hang_together_the_sum_is_still_the_difference(monkeypatch, reach):
    monkeypatch.setattr(explain, "REACH", reach)
    model = locked()
    (found,) = explain.explain(model, make_dataset(np.zeros((20, 1), np.int32), None, np.array([0, 20])))
    told = explain.as_object(model, ["a"] * 20, found, 1)
    assert [len(reason.other) for reason in found.reasons] == [
        min(t, reach) + 1 + min(19 - t, reach) for t in range(20)
    ]
    assert [reason.cut for reason in found.reasons] == [reach == 3] * 20
    for row in told["tokens"]:
        assert row["difference"] == pytest.approx(0.25)
        assert sum(weight["adds"] for weight in row["weights"]) + row["rest"] == pytest.approx(0.25)


@pytest.mark.parametrize("quarter", [4_000, pytest.param(16_000, marks=pytest.mark.long)])
def test_a_long_sequence_takes_memory_that_grows_with_it(quarter):
    """A table of all labellings would take 1 GB here, or 16 GB."""
    model = MODELS[0]
    word = "abé/" * quarter
    data = dataset_of(model, "abé/" * 4)
    data = make_dataset(np.tile(data.observations[4:8], (len(word) // 4, 1)), None, np.array([0, len(word)]))
    tracemalloc.start()
    ways = explain.best_ways(model, data, decode.viterbi(data, model.layout, model.theta))
    assert tracemalloc.get_traced_memory()[1] < 1000 * len(word)
    tracemalloc.stop()
    middle = 2 * quarter
    begin, other, cut = ways.through(middle, 1 - min(1, ways.labels[middle]))
    assert begin <= middle < begin + len(other) < begin + 100 and not cut


def test_a_single_label_needs_no_reason():
    model = model_of(labels=("X",))
    (found,) = explain.explain(model, dataset_of(model, "ab"))
    told = explain.as_object(model, ["a", "b"], found)
    assert told["log_probability"] == pytest.approx(0.0)
    assert [row["runner_up"] for row in told["tokens"]] == [None, None]
    assert explain.as_text(told).count("\n") == 3


def tiny():
    names = ["*:a", "U:b"]
    layout = dense_layout(2, observation_kinds(names))
    slots = list(zip(*(column.tolist() for column in layout.slots()), strict=True))
    value = {(0, 1, -1, 0): 1.0, (1, 0, -1, 1): -3.0, (2, 0, 0, 1): 2.0, (0, 0, -1, 1): -0.5}
    theta = np.array([value.get(slot, 0.0) for slot in slots])
    return CrfLabeller.compact(layout, theta, names, ["X", "Y"], ["*:%x[0,0]", "U:%x[1,0]"], {})


def test_the_text_for_people():
    """a a: X Y scores 2 - 0.5, Y Y -3.5 - 0.5, X X 0 and Y X -3.5."""
    model = tiny()
    data = make_dataset(np.array([[0, -1], [0, -1]], np.int32), None, np.array([0, 2]))
    (found,) = explain.explain(model, data)
    lines = explain.as_text(explain.as_object(model, ["a", "a"], found, 1)).split("\n")
    assert lines[1].split()[:2] == ["a", "X"] and "+5.000 over Y" in lines[1] and ", which would make a X" in lines[1]
    assert lines[2].split(maxsplit=1) == ["+3.000", "otherwise ⟨start⟩ → Y  when *:a"]
    assert lines[3].split() == ["+2.000", "1", "more", "weight"]
    assert lines[4].split()[:2] == ["a", "Y"] and "+1.500 over X" in lines[4] and "would make" not in lines[4]
    assert lines[5].split(maxsplit=1) == ["+2.000", "X → Y  when *:a"]
    assert lines[6].split() == ["-0.500", "1", "more", "weight"] and lines[7:] == [""]
    json.dumps(explain.as_object(model, ["a", "a"], found))


# ---- the strongest weights


def test_strongest_weights_in_words():
    rows = explain.strongest(tiny(), None, 10)
    assert [(row["family"], row["observation"], row["previous"], row["label"], row["weight"]) for row in rows] == [
        ("start", "*:a", None, "Y", -3.0), ("bigram", "*:a", "X", "Y", 2.0), ("unigram", "U:b", None, "X", 1.0),
        ("unigram", "*:a", None, "Y", -0.5),
    ]  # fmt: skip
    assert [row["text"] for row in rows] == ["⟨start⟩ → Y  when *:a", "X → Y  when *:a", "X  when U:b", "Y  when *:a"]
    assert [row["weight"] for row in explain.strongest(tiny(), "Y", 2)] == [-3.0, 2.0]
    assert explain.strongest(tiny(), "X", 0) == []


def test_an_unknown_label_is_refused_with_the_known_ones():
    with pytest.raises(EspalierError, match="label 'Q' is not one of the model's: X, Y"):
        explain.strongest(tiny(), "Q", 5)
