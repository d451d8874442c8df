"""Tagging raw tokens: the same labels as through the pipeline, in the lines they came in."""

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import chain, conll, templates

from engine.data import make_dataset
from engine.errors import EspalierError
from engine.layout import dense_layout, observation_kinds
from engine.model import Model
from tasks import store, tagging

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=60)
FILE = Path("some.conll")
LETTERS = "abé/😀"
WORDS = st.lists(st.text(st.sampled_from(LETTERS), min_size=1, max_size=4), min_size=1, max_size=4)


def model_of(lines, labels=("X", "Y", "Z"), seed=0, symbols=LETTERS):
    """A model with random weights for what these symbols can yield, alone and in pairs."""
    words = [[[a], [b]] for a in symbols for b in symbols]
    names = sorted({text for row in templates.expand(words, lines) for text in row})
    layout = dense_layout(len(labels), observation_kinds(names))
    theta = np.random.default_rng(seed).normal(size=layout.size)
    return Model.compact(layout, theta, names, list(labels), lines, {})


MODEL = model_of(["*:%x[0,0]", "U1:%x[-1,0]/%x[0,0]", "U"])
NOTHING = Model.compact(dense_layout(2, [1]), np.zeros(2), ["U:a"], ["X", "Y"], ["U:%x[0,0]", "U", "B"], {})


def tokens_of(words):
    return pl.DataFrame({"sequence": pl.Series([n for n, w in enumerate(words) for _ in w], dtype=pl.Int32),
                         "x0": [letter for w in words for letter in w]})  # fmt: skip


def best_by_enumeration(model, words):
    """The labels of the likeliest labelling of each word; the weights are random, so there is one."""
    known = {text: i for i, text in enumerate(model.observations)}
    weights = chain.Weights({}, {}, {})
    slots = zip(*(column.tolist() for column in model.layout.slots()), model.theta.tolist(), strict=True)
    for family, o, p, y, value in slots:
        (weights.mu, weights.start, weights.lam)[family][(o, p, y) if family == 2 else (o, y)] = value
    labels = []
    for word in words:
        rows = templates.expand([[[letter] for letter in word]], model.templates)
        (best,), _ = chain.best_labellings(
            [[known.get(text, -1) for text in row] for row in rows], len(model.labels), weights
        )
        labels += [model.labels[y] for y in best]
    return labels


@EXAMPLES
@given(WORDS)
def test_labels_are_those_of_enumeration(words):
    assert tagging.tag(MODEL, tokens_of(words)) == best_by_enumeration(MODEL, words)


def test_tagging_agrees_with_the_features_of_the_pipeline(project):
    model, manifest = Model.load(project / store.CANDIDATE), store.read_manifest(project)
    observations = store.read_vocabulary(project)["observation"].to_list()
    tokens = store.read_tokens(project, "test")[0]
    raw = tagging.dataset_of(model, tokens)
    through = tagging.renumber(store.read_dataset(project, "test", manifest), model, observations, manifest["labels"])
    assert np.array_equal(raw.observations, through.observations) and np.array_equal(raw.offsets, through.offsets)
    predictions = pl.from_arrow(store.read_arrow(project / store.PREDICTIONS)[0])
    assert tagging.tag(model, tokens) == predictions["predicted"].to_list()


def test_renumbering_by_hand():
    data = make_dataset(np.array([[0, 1], [2, -1]]), np.array([1, 0]), np.array([0, 2]))
    model = Model.compact(dense_layout(2, [1, 1]), np.ones(4), ["U:c", "U:a"], ["Q", "P"], ["U:%x[0,0]"], {})
    found = tagging.renumber(data, model, ["U:a", "U:b", "U:c"], ["R", "Q"])
    assert found.observations.tolist() == [[1, -1], [0, -1]] and found.labels.tolist() == [0, -1]


def test_a_model_without_weights_gives_the_first_label():
    assert tagging.tag(NOTHING, tokens_of(["ab", "c"])) == ["X", "X", "X"]


# ---- columns in, columns out


@EXAMPLES
@given(WORDS, st.sampled_from(["", "\n", "\n\n", "\r\n"]), st.booleans())
def test_columns_come_back_with_the_label_behind(words, end, windows):
    text = "\n\n\n".join("\n".join(f"{letter}  extra" for letter in word) for word in words) + end
    text = text.replace("\n", "\r\n") if windows else text
    out = "".join(tagging.tag_columns(MODEL, text.encode(), FILE))
    labels = iter(best_by_enumeration(MODEL, words))
    expected = [[[letter, "extra", next(labels)] for letter in word] for word in words]
    assert [[fields for _, fields in rows] for rows in conll.parse(out.encode(), "\t")] == expected
    assert out.endswith("\n") and "\r" not in out


def test_the_output_to_the_letter():
    out = list(tagging.tag_columns(NOTHING, b"\n\na b\nc d\n\n\n\ne f", FILE))
    assert out == ["a\tb\tX\n", "c\td\tX\n\n", "e\tf\tX\n"]


def test_a_given_separator_is_used_both_ways():
    assert list(tagging.tag_columns(NOTHING, b"New York|x\n", FILE, "|")) == ["New York|x|X\n"]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_plain_or_compressed(tmp_path, compressed):
    path = tmp_path / "some.conll"
    path.write_bytes(gzip.compress(b"a\n") if compressed else b"a\n")
    assert list(tagging.tag_columns(NOTHING, None, path)) == ["a\tX\n"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a\nb c\n", "line 2 of some.conll has 2 columns, the lines before it 1"),
        (b"a\n\xff\n", "line 2 of some.conll: byte 0xff is not UTF-8"),
        (b"\n\n", "some.conll: holds no token"),
    ],
)
def test_bad_columns_are_refused(data, expected):
    with pytest.raises(EspalierError, match=expected):
        list(tagging.tag_columns(MODEL, data, FILE))


def test_too_few_columns_are_refused():
    model = Model.compact(dense_layout(2, [1]), np.ones(2), ["U:a"], ["X", "Y"], ["U:%x[0,0]/%x[0,2]"], {})
    with pytest.raises(
        EspalierError, match="some.conll has 2 columns, the model looks at 3: expected its input columns"
    ):
        list(tagging.tag_columns(model, b"a b\n", FILE))
    assert len(list(tagging.tag_columns(model, b"a b c d\n", FILE))) == 1


# ---- words in, labels out


@EXAMPLES
@given(st.lists(st.text(st.sampled_from(LETTERS + "\u0301"), min_size=1, max_size=4), min_size=1, max_size=4))
def test_each_word_has_as_many_labels_as_characters(words):
    """Characters are code points, so that e and a combining accent are two tokens, as in training."""
    out = list(tagging.tag_words(MODEL, ("\n\n".join(words) + "\n").encode(), FILE))
    labels = iter(best_by_enumeration(MODEL, words))
    assert out == [f"{word}\t{' '.join(next(labels) for _ in word)}\n" for word in words]


def test_words_are_trimmed_and_empty_lines_left_out():
    assert list(tagging.tag_words(NOTHING, b"\n  ab \r\n\n\nc", FILE)) == ["ab\tX X\n", "c\tX\n"]
    with pytest.raises(EspalierError, match="some.conll: holds no line to tag"):
        list(tagging.tag_words(NOTHING, b"\n  \n", FILE))


# ---- the strongest weights


def test_strongest_weights_in_words():
    names = ["*:a", "U:b"]
    layout = dense_layout(2, observation_kinds(names))
    slots = list(zip(*(column.tolist() for column in layout.slots()), strict=True))
    value = {(0, 1, -1, 0): 1.0, (1, 0, -1, 1): -3.0, (2, 0, 0, 1): 2.0, (0, 0, -1, 1): -0.5}
    theta = np.array([value.get(slot, 0.0) for slot in slots])
    model = Model.compact(layout, theta, names, ["X", "Y"], ["*:%x[0,0]", "U:%x[1,0]"], {})
    rows = tagging.strongest(model, None, 10)
    assert [(row["family"], row["observation"], row["previous"], row["label"], row["weight"]) for row in rows] == [
        ("start", "*:a", None, "Y", -3.0), ("bigram", "*:a", "X", "Y", 2.0), ("unigram", "U:b", None, "X", 1.0),
        ("unigram", "*:a", None, "Y", -0.5),
    ]  # fmt: skip
    assert [row["text"] for row in rows] == ["⟨start⟩ → Y  when *:a", "X → Y  when *:a", "X  when U:b", "Y  when *:a"]
    assert [row["weight"] for row in tagging.strongest(model, "Y", 2)] == [-3.0, 2.0]
    assert tagging.strongest(model, "X", 0) == [] and tagging.strongest(NOTHING, "X", 5) == []


def test_an_unknown_label_is_refused_with_the_known_ones():
    with pytest.raises(EspalierError, match="label 'Q' is not one of the model's: X, Y, Z"):
        tagging.strongest(MODEL, "Q", 5)
