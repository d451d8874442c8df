"""What models say of the test data is decoded once, and again where what is kept does not fit."""

import numpy as np
import pytest
from stage_runs import run_stages, small_params

from espalier.engine.families.labeller import Labeller
from espalier.tasks import store
from espalier.tasks.answering.tagging import tag
from espalier.tasks.judging import kept_answers
from espalier.tasks.judging.kept_answers import FOLDER, MOST, answers_of

STAGES = ("ingest", "template", "weigh", "train", "evaluate", "report")


@pytest.fixture
def project(tmp_path):
    run_stages(tmp_path, small_params(), *STAGES)
    return tmp_path


@pytest.fixture
def decoded(monkeypatch):
    """Who was asked for labels since."""
    asked, original = [], Labeller.decoded
    monkeypatch.setattr(Labeller, "decoded", lambda self, *a, **k: asked.append(self) or original(self, *a, **k))
    return asked


def test_promotion_decodes_neither_the_candidate_nor_a_champion_that_it_has_seen(project, decoded):
    run_stages(project, small_params(), "promote")
    assert decoded == []  # evaluation has
    store.write_model(project / store.CHAMPION, changed(store.read_model(project / store.CHAMPION)))
    run_stages(project, small_params(), "promote")
    assert len(decoded) == 1  # another champion
    run_stages(project, small_params(), "promote")
    assert len(decoded) == 1


def changed(model):
    model.theta *= 0.5
    return model


def test_the_answers_are_those_of_the_model_on_its_own_features(project):
    tokens, _ = store.read_tokens(project, "test")
    model = store.read_model(project / store.CANDIDATE)
    kept = answers_of(project, project / store.CANDIDATE, tokens, losses=True)
    assert kept.labels == tag(model, tokens)
    data = kept_answers.labelled(model, tokens)
    np.testing.assert_allclose(kept.losses, -model.log_probability(data), rtol=1e-12)


def test_losses_are_added_when_they_are_asked_for(project, decoded):
    tokens, path = store.read_tokens(project, "test")[0], project / "other.model"
    store.write_model(path, changed(store.read_model(project / store.CANDIDATE)))
    assert answers_of(project, path, tokens).losses is None and len(decoded) == 1
    found = answers_of(project, path, tokens, losses=True)
    assert np.all(found.losses > 0) and len(decoded) == 1
    again = answers_of(project, path, tokens)
    assert again.labels == found.labels and np.array_equal(again.losses, found.losses)


@pytest.mark.parametrize("damage", ["cut", "gone", "another length"])
def test_what_does_not_fit_is_decoded_again(project, decoded, damage):
    tokens, path = store.read_tokens(project, "test")[0], project / store.CANDIDATE
    before = answers_of(project, path, tokens).labels
    (file,) = (project / FOLDER).iterdir()
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:100])
    elif damage == "gone":
        file.unlink()
    else:
        table, info = store.read_arrow(file)
        store.write_arrow(file, table.slice(0, 3), info)
    assert answers_of(project, path, tokens).labels == before and len(decoded) == 1


def test_new_test_data_are_decoded(project, decoded):
    tokens, info = store.read_tokens(project, "test")
    fewer = tokens.filter(tokens["sequence"] < 10)
    store.write_tokens(project, "test", fewer, info)
    assert len(answers_of(project, project / store.CANDIDATE, fewer).labels) == len(fewer) and len(decoded) == 1


def test_few_are_kept(project):
    tokens, model = store.read_tokens(project, "test")[0], store.read_model(project / store.CANDIDATE)
    for i in range(MOST + 2):
        store.write_model(project / f"{i}.model", changed(model))
        answers_of(project, project / f"{i}.model", tokens)
    assert len(list((project / FOLDER).iterdir())) == MOST


def test_a_folder_that_cannot_be_written_keeps_nothing(project):
    tokens = store.read_tokens(project, "test")[0]
    for file in (project / FOLDER).iterdir():
        file.unlink()
    (project / FOLDER).rmdir()
    (project / FOLDER).write_text("a file")
    assert len(answers_of(project, project / store.CANDIDATE, tokens).labels) == len(tokens)
