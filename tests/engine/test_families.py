"""Contracts of all families: whatever a family says it can do is tried here; a new one cannot skip them."""

import dataclasses
import inspect
import json

import numpy as np
import pyarrow as pa
import pytest
from small_models import (
    LETTERS,
    boosting_of,
    dual_perceptron_of,
    gp_of,
    hmm_of,
    hmsvm_of,
    memm_of,
    model_of,
    perceptron_of,
)

from espalier.engine import families
from espalier.engine.data.dataset import UNKNOWN, Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families import ABILITIES, FAMILIES
from espalier.engine.families.labeller import Labeller, Predictor
from espalier.engine.features import features_of
from espalier.engine.labels.scheme import Transitions
from espalier.engine.runtime import threads

SUMS = 1e-12  # of probabilities that are added up in another order
# Small models, by labels and seed.
EXAMPLES = {
    "crf": model_of, "memm": memm_of, "hmm": hmm_of, "gp": gp_of, "hmsvm": hmsvm_of, "perceptron": perceptron_of,
    "boosting": boosting_of,
}  # fmt: skip
WORDS = ["ab/é", "b", "a/a/", "ééb😀", "??", "ba"]  # one of a single letter, one that no model has seen


def with_ability(ability):
    """Of those that label tokens; test_pcfg.py has the contracts of trees."""
    return pytest.mark.parametrize("name", [name for name, one in FAMILIES.items() if {"labels", ability} <= one.can])


@pytest.fixture(params=sorted(EXAMPLES))
def name(request):
    return request.param


def data_of(model: Labeller, words=WORDS) -> Dataset:
    letters = pa.array([letter for word in words for letter in word], pa.large_string())
    return features_of(model, [letters], np.cumsum([0, *map(len, words)]))


def answers(model: Labeller, data: Dataset) -> list[bytes]:
    """All that it says of data, as bytes."""
    found = [model.best(data)]
    if "probability" in model.can:
        found += [model.posterior(data), model.marginals(data), model.log_partition(data), *model.scores(data)]
        found += [model.log_probability(data, model.best(data))]
    if "nbest" in model.can:
        found += list(model.nbest(data, 3))
    return [np.ascontiguousarray(array).tobytes() for array in found]


def test_every_family_has_an_example_and_says_what_it_is():
    assert EXAMPLES.keys() == {name for name, one in FAMILIES.items() if "labels" in one.can}
    for name, one in FAMILIES.items():
        assert one.can <= ABILITIES.keys() and one.help and one.labeller.family == name
        assert issubclass(one.labeller, Predictor) and ("labels" in one.can) != ("trees" in one.can)
        assert issubclass(one.labeller, Labeller) == ("labels" in one.can)
    assert all(isinstance(make(), FAMILIES[name].labeller) for name, make in EXAMPLES.items())


def test_what_is_saved_comes_back_and_says_the_same(name, tmp_path):
    model = EXAMPLES[name](seed=3)
    model.info["objective"] = 0.1 + 0.2
    model.save(tmp_path / "a.model")
    again = families.load(tmp_path / "a.model")
    assert type(again) is type(model) and again.can == model.can <= FAMILIES[name].can
    assert answers(again, data_of(again)) == answers(model, data_of(model))
    again.save(tmp_path / "b.model")
    assert (tmp_path / "a.model").read_bytes() == (tmp_path / "b.model").read_bytes()


def test_any_number_of_threads_says_the_same(name):
    model, found = EXAMPLES[name](seed=4), set()
    try:
        for count in (1, 2, 8):
            threads.set_threads(count)
            found.add(tuple(answers(model, data_of(model))))
    finally:
        threads.set_threads(None)
    assert len(found) == 1


def test_a_sequence_is_labelled_as_if_it_were_alone(name):
    model = EXAMPLES[name](seed=5)
    alone = [model.best(data_of(model, [word])) for word in WORDS]
    np.testing.assert_array_equal(model.best(data_of(model)), np.concatenate(alone))


def test_a_single_label_is_what_it_says(name):
    model = EXAMPLES[name](labels=("X",), seed=6)
    assert not model.best(data_of(model)).any()
    if "probability" in model.can:
        np.testing.assert_allclose(model.marginals(data_of(model)), 1.0, atol=SUMS)


def test_nothing_is_said_of_nothing(name):
    model = EXAMPLES[name](seed=7)
    assert len(model.best(data_of(model, []))) == 0


@with_ability("probability")
def test_probabilities_are_those_of_its_scores(name):
    """By enumeration of the labellings of short words."""
    model = EXAMPLES[name](seed=8)
    for word in ("a", "b/", "éa?"):
        data = data_of(model, [word])
        here, between = model.scores(data)
        totals = np.zeros((len(model.labels),) * len(word))
        for y in np.ndindex(totals.shape):
            totals[y] = sum(here[t, y[t]] for t in range(len(y))) + sum(
                between[t, y[t - 1], y[t]] for t in range(1, len(y))
            )
        log_z = np.logaddexp.reduce(totals.ravel())
        assert model.log_partition(data)[0] == pytest.approx(log_z, abs=1e-9)
        p = np.exp(totals - log_z)
        for t in range(len(word)):
            others = tuple(axis for axis in range(len(word)) if axis != t)
            np.testing.assert_allclose(model.marginals(data)[t], p.sum(axis=others), atol=1e-9)
        best = np.unravel_index(totals.argmax(), totals.shape)
        assert tuple(model.best(data)) == best
        assert model.log_probability(data, np.array(best, np.int32))[0] == pytest.approx(np.log(p[best]), abs=1e-9)


@with_ability("probability")
def test_marginals_sum_to_one_and_decide_posterior_decoding(name):
    model = EXAMPLES[name](seed=9)
    gamma = model.marginals(data_of(model))
    np.testing.assert_allclose(gamma.sum(axis=1), 1.0, atol=SUMS)
    np.testing.assert_array_equal(model.posterior(data_of(model)), gamma.argmax(axis=1))
    np.testing.assert_array_equal(model.decoded(data_of(model), "posterior"), gamma.argmax(axis=1))
    model.info["decode"] = "posterior"
    np.testing.assert_array_equal(model.decoded(data_of(model)), gamma.argmax(axis=1))


@pytest.mark.parametrize("name", [name for name in EXAMPLES if "probability" not in FAMILIES[name].can])
def test_a_model_of_scores_names_no_probabilities(name):
    """It compares labellings: its best ones are those of its scores, and all else is refused in words."""
    model = EXAMPLES[name](seed=8)
    data = data_of(model)
    assert model.decoder() == "viterbi"
    for asked in (model.marginals, model.posterior, model.log_probability):
        with pytest.raises(EspalierError, match=f"^{name} cannot say how likely its labels are: set model.family to"):
            asked(data)
    for word in ("a", "b/", "éa?"):
        data = data_of(model, [word])
        here, between = model.scores(data)
        totals = np.zeros((len(model.labels),) * len(word))
        for y in np.ndindex(totals.shape):
            totals[y] = sum(here[t, y[t]] for t in range(len(y))) + sum(
                between[t, y[t - 1], y[t]] for t in range(1, len(y))
            )
        assert tuple(model.best(data)) == np.unravel_index(totals.argmax(), totals.shape)


@with_ability("nbest")
def test_the_best_labellings_come_in_order_and_without_repeats(name):
    model = EXAMPLES[name](seed=10)
    data = data_of(model)
    found = model.nbest(data, 7)
    np.testing.assert_array_equal(found.labels[0], model.best(data))
    for n, word in enumerate(WORDS):
        count = found.count[n]
        assert count == min(7, len(model.labels) ** len(word))
        rows = [tuple(found.labels[r, data.offsets[n] : data.offsets[n + 1]]) for r in range(count)]
        assert len(set(rows)) == count
        assert np.all(np.diff(found.log_probabilities[n, :count]) <= 0.0)


@with_ability("limits")
def test_it_keeps_to_known_labels_and_transitions(name):
    model = EXAMPLES[name](seed=11)
    data = data_of(model)
    labels = np.full(len(data.labels), UNKNOWN, np.int32)
    labels[[0, 5, 7]] = [2, 0, 1]
    known = data._replace(labels=labels)
    said = model.best(known, allowed="labels")
    assert [said[0], said[5], said[7]] == [2, 0, 1]
    n = len(model.labels)
    never = Transitions(np.ones(n, bool), ~np.eye(n, dtype=bool), np.ones(n, bool))  # no label after itself
    said = model.best(data, transitions=never)
    inner = np.setdiff1d(np.arange(1, len(said)), data.offsets)
    assert np.all(said[inner] != said[inner - 1])
    if "probability" in model.can:
        gamma = model.marginals(known, allowed="labels")
        np.testing.assert_allclose(gamma[[0, 5, 7], [2, 0, 1]], 1.0, atol=SUMS)


@with_ability("weights")
def test_its_weights_are_a_table_that_adds_up_to_its_sizes(name):
    model = EXAMPLES[name](seed=12)
    assert model.shown_table().num_rows <= sum(model.sizes().values())
    held = [table for table in model.tables().values() if "weight" in table.column_names]
    assert sum(table.num_rows for table in held) == sum(model.sizes().values())
    assert model.tables()["weights"].num_rows == len(model.theta)


# ---- another form of a family


@pytest.mark.parametrize("contract", [
    test_what_is_saved_comes_back_and_says_the_same, test_any_number_of_threads_says_the_same,
    test_a_sequence_is_labelled_as_if_it_were_alone, test_a_single_label_is_what_it_says,
    test_nothing_is_said_of_nothing,
    test_a_model_of_scores_names_no_probabilities, test_it_keeps_to_known_labels_and_transitions,
    test_its_weights_are_a_table_that_adds_up_to_its_sizes,
])  # fmt: skip
def test_a_perceptron_with_a_kernel_keeps_the_contracts(contract, tmp_path, monkeypatch):
    monkeypatch.setitem(EXAMPLES, "perceptron", dual_perceptron_of)
    wants_a_folder = "tmp_path" in inspect.signature(contract).parameters
    contract(name="perceptron", **({"tmp_path": tmp_path} if wants_a_folder else {}))


# ---- the registry and the file


def test_a_family_that_is_not_known():
    with pytest.raises(EspalierError, match="family 'ctf' is not known: choose one of crf, memm, hmm, gp, hmsvm"):
        families.family("ctf")


def test_what_a_family_cannot_do_is_refused_with_those_that_can(monkeypatch):
    mute = dataclasses.replace(FAMILIES["crf"], can=frozenset({"labels"}))
    monkeypatch.setitem(FAMILIES, "mute", mute)
    families.require("crf", "nbest")
    able = "set model.family to one of crf, memm, hmm, gp, hmsvm"
    with pytest.raises(EspalierError, match=f"^mute cannot list several labellings: {able}$"):
        families.require("mute", "nbest")
    with pytest.raises(EspalierError, match="^mute cannot learn from partial labels: .* one of crf, hmm, or go$"):
        families.require("mute", "partial", "go")


def with_head(path, change):
    """The file with another head; whoever changes it cannot make its checksum fit."""
    table = pa.ipc.open_file(path).read_all()
    head = json.loads(table.schema.metadata[b"espalier"])
    change(head)
    table = table.replace_schema_metadata({"espalier": json.dumps(head, sort_keys=True)})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def test_a_file_of_another_family_is_not_taken_for_ours(tmp_path):
    path = tmp_path / "a.model"
    model = model_of()
    model.save(path)
    with_head(path, lambda head: head.update(family="hmm2"))
    with pytest.raises(EspalierError, match="damaged"):
        families.load(path)
    with_head(path, lambda head: head.update(checksum=model.checksum(family="hmm2")))
    with pytest.raises(EspalierError, match="a model of the family 'hmm2', this version knows crf.*train it again"):
        families.load(path)
    with_head(path, lambda head: head.pop("family"))
    with pytest.raises(EspalierError, match="it does not say of which family it is"):
        families.load(path)


def test_files_from_before_there_were_families_are_read(tmp_path):
    path, model = tmp_path / "a.model", model_of(seed=2)
    for format in (2, 3):
        model.save(path)
        with_head(path, lambda head: head.pop("family"))
        with_head(path, lambda head, format=format: head.update(format=format, checksum=model.checksum(format)))
        again = families.load(path)
        assert again.family == "crf" and answers(again, data_of(again)) == answers(model, data_of(model))


def test_the_examples_know_the_letters():
    assert set("".join(WORDS)) - set(LETTERS) == {"?"}
