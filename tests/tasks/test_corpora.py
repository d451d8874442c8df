"""Real corpora: the counts that their descriptions state. They are not part of the repository."""

import gzip
from itertools import groupby

import numpy as np
import polars as pl
import pytest

from espalier.engine.labels.spans import spans_of
from espalier.engine.weights.layout import seen_layout
from espalier.tasks.experiments.optimisers import TAGS, events, trained, with_stops
from espalier.tasks.experiments.problems import files_of, load
from espalier.tasks.formats import Reading
from espalier.tasks.params import Ingest
from espalier.tasks.sources import cmudict, files
from espalier.tasks.store import sequence_offsets

pytestmark = pytest.mark.corpus


def read(corpora, name):
    options = Reading(format="conll", unknown=None, set_separator=None)  # _ is a silent letter, NN|VBG a tag
    return files.tokens_of([corpora / name], options, labelled=True)


@pytest.mark.parametrize(
    ("name", "sequences", "tokens", "labels", "found"),
    [
        ("conll2000/train.txt.gz", 8_936, 211_727, 22, 106_978),
        ("conll2000/test.txt.gz", 2_012, 47_377, 19, 23_852),
    ],
)
def test_conll_2000(corpora, name, sequences, tokens, labels, found):
    table = read(corpora, name)
    assert table.columns == ["sequence", "x0", "x1", "label"]
    assert (table["sequence"].n_unique(), len(table), table["label"].n_unique()) == (sequences, tokens, labels)
    offsets = sequence_offsets(table["sequence"].to_numpy())
    assert sum(map(len, spans_of(table["label"].to_list(), offsets))) == found


@pytest.mark.parametrize(
    ("name", "words", "letters", "phonemes"),
    [("nettalk/train.conll.gz", 18_012, 132_453, 51), ("nettalk/test.conll.gz", 1_995, 14_481, 51)],
)
def test_nettalk(corpora, name, words, letters, phonemes):
    table = read(corpora, name)
    assert (table["sequence"].n_unique(), len(table), table["label"].n_unique()) == (words, letters, phonemes)


@pytest.fixture(scope="module")
def aligned():
    return cmudict.read(None, Ingest())


def spelled(table):
    """{spelling: labels}; the same spelling does not occur twice."""
    return {"".join(row[1] for row in rows): [row[2] for row in rows]
            for rows in (list(group) for _, group in groupby(table.iter_rows(), key=lambda row: row[0]))}  # fmt: skip


@pytest.mark.slow
def test_the_aligner_keeps_the_words_that_the_prototype_kept(corpora, aligned):
    """55 labels in the prototype; a pair near the threshold of fifty uses may fall on either side."""
    assert aligned.notes == {"words": 117_493, "aligned": 117_173}
    table = aligned.whole("train")
    assert abs(table["label"].n_unique() - 55) <= 2
    assert len(table) == 868_618 and table["x0"].n_unique() == 26
    stored = read(corpora, "cmudict-aligned/cmudict-aligned.conll.gz")
    ours, theirs = spelled(table), spelled(stored)
    assert set(ours) == set(theirs) and len(ours) == 117_173


@pytest.mark.slow
def test_the_aligner_agrees_with_the_prototype_on_most_letters(corpora, aligned):
    """Not on all: `ll` is L and silent or silent and L with the same likelihood, and ties are ties."""
    stored = read(corpora, "cmudict-aligned/cmudict-aligned.conll.gz")
    table = aligned.whole("train")
    assert table["x0"].equals(stored["x0"])
    assert (table["label"] == stored["label"]).mean() > 0.9


@pytest.mark.slow
def test_every_aligned_word_spells_its_pronunciation(aligned):
    sounds = dict(reversed(cmudict.read_dictionary(cmudict.dictionary_path())))
    wrong = [
        word
        for word, labels in spelled(aligned.whole("train")).items()
        if [p for label in labels if label != "_" for p in label.split("+")] != sounds[word]
    ]
    assert not wrong


def test_lines_are_the_lines_of_the_file(corpora):
    """The whole file once more by Python's own reader."""
    path = corpora / "conll2000/test.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        lines = [line.split() for line in file if line.strip()]
    table = read(corpora, "conll2000/test.txt.gz")
    assert table.select(pl.exclude("sequence")).rows() == [tuple(line) for line in lines]
    assert np.all(np.diff(table["sequence"].to_numpy()) <= 1)


def test_the_toy_problem_of_iis_table_4_2(corpora):
    """10 labels, 23,760 events and 69 features: the first five sentences with tags alone, a start and a stop."""
    paths = files_of("conll2000", corpora)
    problem = with_stops(load(paths["train"], paths["test"], TAGS, 5))
    layout = seen_layout(problem.train, len(problem.labels), problem.kinds, start=True)
    assert (len(problem.labels), events(problem), layout.size) == (10, 23_760, 69)
    bounds = [0, *layout.bounds(), layout.size]
    assert np.diff(bounds).tolist() == [38 + 1, 2, 28]  # the stop weight is among the first
    row = trained("lbfgs", TAGS, 5, 0.0, 3, True, **paths)
    assert (row["labels"], row["events"], row["weights"]) == (10, 23_760, 69)
