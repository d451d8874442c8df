"""Label by label: the same F1 and intervals as resampling the obvious way, and what counts as a regression."""

import random

import numpy as np
import pytest
from reference.label_bootstrap import chunk_items, differences, f1_of, noisy, token_items

from espalier.tasks.judging.regressions import compare_labels
from espalier.tasks.params import Promote

TOKENS, CHUNKS = ["A", "B", "C", "D"], ["O", "B-X", "I-X", "B-Y", "I-Y"]
EXACT = 1e-12  # both sides divide the same whole numbers


def corpus(labels, n=40, seed=1):
    source = random.Random(seed)
    return [[source.choice(labels) for _ in range(source.randint(1, 7))] for _ in range(n)]


def compare(gold, champion, challenger, **options):
    offsets = np.cumsum([0, *(len(one) for one in gold)])
    flat = [[label for one in some for label in one] for some in (gold, champion, challenger)]
    return compare_labels(*flat, offsets, Promote(**options))


@pytest.mark.parametrize(("labels", "items"), [(TOKENS, token_items), (CHUNKS, chunk_items)], ids=["tokens", "chunks"])
def test_f1_and_intervals_are_those_of_resampling_the_obvious_way(labels, items):
    gold = corpus(labels)
    champion, challenger = noisy(gold, labels, 0.2, 2), noisy(gold, labels, 0.4, 3)
    rows = compare(gold, champion, challenger, rounds=100, seed=7, level=0.8, label_count=1)
    kinds = {item[2] for some in (gold, champion, challenger) for one in some for item in items(one)}
    assert {row["label"] for row in rows} == kinds
    random_numbers = np.random.default_rng(7)
    draws = [draw for _ in range(2) for draw in random_numbers.integers(0, len(gold), (50, len(gold)))]
    for row in rows:
        kind = row["label"]
        assert row["champion_f1"] == pytest.approx(f1_of(kind, gold, champion, items), abs=EXACT)
        assert row["challenger_f1"] == pytest.approx(f1_of(kind, gold, challenger, items), abs=EXACT)
        assert row["count"] == sum(item[2] == kind for one in gold for item in items(one))
        edge = 0.1 / len(kinds)  # the level is for all labels together
        expected = np.quantile(differences(kind, gold, champion, challenger, items, draws), [edge, 1 - edge])
        assert (row["low"], row["high"]) == pytest.approx(tuple(expected), abs=EXACT)
    assert [row["difference"] for row in rows] == sorted(row["difference"] for row in rows)


def test_blocks_of_labels_give_what_all_of_them_give_at_once(monkeypatch):
    gold = corpus(TOKENS)
    guesses = noisy(gold, TOKENS, 0.2, 2), noisy(gold, TOKENS, 0.4, 3)
    whole = compare(gold, *guesses, rounds=100)
    monkeypatch.setattr("espalier.tasks.judging.regressions.BLOCK_NUMBERS", 1)
    assert compare(gold, *guesses, rounds=100) == whole


def broken(gold, label, share, seed=5):
    """A challenger that gets a share of one label wrong and all else right."""
    source = random.Random(seed)
    return [["D" if one == label and source.random() < share else one for one in some] for some in gold]


def test_a_label_that_breaks_is_found_although_the_error_as_a_whole_hardly_moves():
    gold = corpus(["D"] * 30 + ["A", "B"], n=800)
    rows = compare(gold, gold, broken(gold, "A", 0.5), rounds=200, label_count=20, label_margin=0.02)
    assert [row["label"] for row in rows if row["regressed"]] == ["A"]
    assert rows[0]["label"] == "A" and rows[0]["high"] < -0.02
    still = next(row for row in rows if row["label"] == "B")
    assert still["difference"] == still["low"] == still["high"] == 0.0


@pytest.mark.parametrize(
    "options", [{"label_count": 10_000}, {"label_margin": None}, {"label_margin": 0.9}], ids=["rare", "off", "margin"]
)
def test_what_is_rare_not_asked_for_or_within_the_margin_is_reported_and_not_refused(options):
    gold = corpus(["D"] * 30 + ["A", "B"], n=800)
    rows = compare(gold, gold, broken(gold, "A", 0.5), **({"rounds": 200, "label_count": 20} | options))
    assert rows[0]["label"] == "A" and rows[0]["difference"] < -0.2
    assert not any(row["regressed"] for row in rows)


def test_a_loss_that_may_be_chance_is_not_refused():
    """One of few is wrong: more than the margin, but the interval reaches zero."""
    gold = [["A"]] * 10 + [["D"]] * 500
    worse = [["D"], *gold[1:]]
    rows = compare(gold, gold, worse, rounds=500, label_count=5, label_margin=0.02)
    found = next(row for row in rows if row["label"] == "A")
    assert found["difference"] < -0.02 and found["high"] == 0.0 and not found["regressed"]


def test_a_label_that_only_one_model_says_has_an_f1_of_zero():
    gold = [["A", "D"], ["A", "D"]]
    rows = compare(gold, gold, [["Q", "D"], ["A", "D"]], rounds=50, label_count=1)
    found = next(row for row in rows if row["label"] == "Q")
    assert found["count"] == 0 and found["champion_f1"] == found["challenger_f1"] == found["difference"] == 0.0


def test_entities_count_in_every_scheme():
    """Two tokens of one entity of ten: in BIOES and BILOU the kinds of entities are compared, not their marks."""
    iob = ["B-X", "I-X", "O", "B-Y", "O"]
    for marks in (iob, ["B-X", "E-X", "O", "S-Y", "O"], ["B-X", "L-X", "O", "U-Y", "O"]):
        worse = [marks] * 9 + [["O", "O", *marks[2:]]]
        rows = compare([marks] * 10, [marks] * 10, worse)
        assert [(row["label"], row["count"]) for row in rows] == [("X", 10), ("Y", 10)], marks
        assert rows[0]["challenger_f1"] == pytest.approx(18 / 19) and rows[1]["challenger_f1"] == 1.0
