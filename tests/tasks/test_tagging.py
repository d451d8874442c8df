"""Tagging tables of tokens: the same labels as by enumeration and as through the pipeline."""

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import LETTERS, best_by_enumeration, model_of

from espalier.engine.data.dataset import make_dataset
from espalier.engine.families import load as load_model
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.weights.layout import dense_layout
from espalier.tasks import store
from espalier.tasks.answering import tagging

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=60)
WORDS = st.lists(st.text(st.sampled_from(LETTERS), min_size=1, max_size=4), min_size=1, max_size=4)


MODEL = model_of()
NOTHING = CrfLabeller.compact(dense_layout(2, [1]), np.zeros(2), ["U:a"], ["X", "Y"], ["U:%x[0,0]", "U", "B"], {})


def tokens_of(words):
    return pl.DataFrame({"sequence": pl.Series([n for n, w in enumerate(words) for _ in w], dtype=pl.Int32),
                         "x0": [letter for w in words for letter in w]})  # fmt: skip


@EXAMPLES
@given(WORDS)
def test_labels_are_those_of_enumeration(words):
    assert tagging.tag(MODEL, tokens_of(words)) == best_by_enumeration(MODEL, words)


def test_tagging_agrees_with_the_features_of_the_pipeline(project):
    model, manifest = load_model(project / store.CANDIDATE), store.read_manifest(project)
    observations = store.read_vocabulary(project)["observation"].to_list()
    tokens = store.read_tokens(project, "test")[0]
    raw = tagging.dataset_of(model, tokens)
    through = tagging.renumber(store.read_dataset(project, "test", manifest), model, observations, manifest["labels"])
    assert np.array_equal(raw.observations, through.observations) and np.array_equal(raw.offsets, through.offsets)
    predictions = pl.from_arrow(store.read_arrow(project / store.PREDICTIONS)[0])
    assert tagging.tag(model, tokens) == predictions["predicted"].to_list()


def test_renumbering_by_hand():
    data = make_dataset(np.array([[0, 1], [2, -1]]), np.array([1, 0]), np.array([0, 2]))
    model = CrfLabeller.compact(dense_layout(2, [1, 1]), np.ones(4), ["U:c", "U:a"], ["Q", "P"], ["U:%x[0,0]"], {})
    found = tagging.renumber(data, model, ["U:a", "U:b", "U:c"], ["R", "Q"])
    assert found.observations.tolist() == [[1, -1], [0, -1]] and found.labels.tolist() == [0, -1]


def test_a_model_without_weights_gives_the_first_label():
    assert tagging.tag(NOTHING, tokens_of(["ab", "c"])) == ["X", "X", "X"]
