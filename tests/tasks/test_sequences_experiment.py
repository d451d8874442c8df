"""The experiment on sequences: samples as they should be, weights that mend what they can, a page that renders."""

import json

import numpy as np
import polars as pl
import pytest

from espalier.tasks.experiments import Settings, sequences, sequences_report
from espalier.tasks.experiments.sequences import METHODS, biased, lengths, replicate
from espalier.tasks.experiments.writing import html, markdown
from espalier.tasks.sources import Corpus, in_one_block


def spelt(words):
    """Words whose phonemes are their letters in capitals, but for an e at the end, which is silent."""
    rows = [(n, letter, "_" if letter == "e" and t == len(word) - 1 else letter.upper())
            for n, word in enumerate(words) for t, letter in enumerate(word)]  # fmt: skip
    return pl.DataFrame(rows, schema={"sequence": pl.Int32, "x0": pl.String, "label": pl.String}, orient="row")


@pytest.fixture(scope="module")
def tokens():
    random = np.random.default_rng(0)
    words = ["".join(random.choice(list("abce"), size)) for size in random.integers(2, 9, size=300)]
    return spelt(words)


def test_short_words_are_drawn_more_often(tokens):
    random, length = np.random.default_rng(1), lengths(tokens)
    everyone = np.arange(len(length))
    short, fair = (biased(random, length, everyone, 60, bias) for bias in (0.8, 0.0))
    assert len(set(short)) == len(set(fair)) == 60
    assert length[short].mean() < length.mean() - 0.5 and abs(length[fair].mean() - length.mean()) < 0.7


def test_a_replication_measures_every_way_on_one_test(tokens):
    found = replicate(tokens, 60, 80, 0.8, 3, [0, 60, 0])
    assert tuple(found["methods"]) == METHODS
    assert found["mean_length_sample"] < found["mean_length_all"]
    for row in found["methods"].values():
        assert 0 <= row["phoneme_error"] <= row["word_error"] <= 1 and np.isfinite(row["log_loss"])
    sizes = {name: row["effective_sample_size"] for name, row in found["methods"].items()}
    assert sizes["unweighted"] == sizes["unbiased"] == pytest.approx(60) and sizes["length"] < 59
    assert json.dumps(found) == json.dumps(replicate(tokens, 60, 80, 0.8, 3, [0, 60, 0]))
    assert found != replicate(tokens, 60, 80, 0.8, 3, [0, 60, 1])


def made_up(difference):
    """Results in which weights of clusters change every measure by `difference`, up to a little noise."""
    noise = np.random.default_rng(3).normal(0, 0.001, size=20)
    rows = []
    for e in noise:
        base = {"phoneme_error": 0.2, "word_error": 0.6, "log_loss": 3.0, "effective_sample_size": 50.0}
        methods = {
            m: {key: v + (difference + e if m == "cluster" else 0.0) for key, v in base.items()} for m in METHODS
        }
        rows.append({"methods": methods, "mean_length_sample": 4.0, "mean_length_all": 7.0})
    return {"block0": {"replications": rows}}


@pytest.mark.parametrize(("difference", "said"), [(-0.01, "better"), (0.01, "worse"), (0.0, "no clear difference")])
def test_the_report_says_which_way_it_went(difference, said):
    report = sequences_report.report(made_up(difference), Settings(quick=True))
    assert f"Weights of clusters: {said} in phoneme error" in report.lead
    row = next(item for item in report.comparisons if item.what == "phoneme error: biased, weights of clusters")
    assert row.note == said
    page = html(report, Settings(quick=True))
    assert page.count("<svg") == 3 and "nan" not in page.partition("<script")[0].lower()
    assert "| 5.3 |" in markdown(report, Settings(quick=True))


def test_words_are_a_fixed_choice_from_the_dictionary(tokens, monkeypatch):
    whole = Corpus({"train": in_one_block(tokens)}, "cmudict", {})
    monkeypatch.setattr(sequences.cmudict, "read", lambda root, options: whole)
    sequences.words.cache_clear()
    chosen = sequences.words(50, 0)
    sequences.words.cache_clear()
    assert chosen["sequence"].n_unique() == 50 and set(chosen.columns) == {"sequence", "x0", "label"}
