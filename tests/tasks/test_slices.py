"""Slices: intervals that cover what they should, and counts by hand."""

import math
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.engine.labels import measures
from espalier.tasks import store
from espalier.tasks.judging import slices

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=60)


# ---- intervals


@pytest.mark.parametrize(("hits", "size"), [(0, 10), (3, 10), (10, 10), (81, 263), (1, 1)])
def test_wilson_solves_its_equation(hits, size):
    """Its ends are the shares p with |hits / size - p| = z sqrt(p (1 - p) / size)."""
    share = hits / size
    low, high = slices.wilson(share, size)
    assert 0 <= low <= share <= high <= 1
    for end in (low, high):
        if 0 < end < 1:
            assert abs(share - end) == pytest.approx(slices.Z * math.sqrt(end * (1 - end) / size), abs=1e-12)


def test_sequences_of_one_position_have_wilsons_interval():
    hits = np.array([1, 0, 0, 0, 1, 0, 0, 0, 0, 0])
    found = slices.rate(hits, np.ones(10))
    assert found.value == pytest.approx(0.2)
    wide = slices.wilson(0.2, 9)  # of a sample variance, which divides by one less
    assert (found.low, found.high) == pytest.approx(wide, abs=1e-12)


def test_sequences_that_go_wrong_as_a_whole_count_once():
    """Ten sequences of 20 equal positions are ten trials, not two hundred."""
    hits = 20 * np.array([1, 1, 0, 0, 0, 0, 0, 0, 0, 0])
    found = slices.rate(hits, np.full(10, 20))
    assert (found.low, found.high) == pytest.approx(slices.wilson(0.2, 9), abs=1e-12)


def test_an_interval_is_never_narrower_than_that_of_independent_positions():
    found = slices.rate(np.array([2, 2, 2, 2]), np.array([10, 10, 10, 10]))
    assert (found.low, found.high) == pytest.approx(slices.wilson(0.2, 40), abs=1e-12)
    assert slices.rate(np.array([0, 0]), np.array([5, 5])).value == 0
    assert slices.rate(np.array([0]), np.array([0])) == (None, None, None)


def test_intervals_cover_the_truth_although_positions_hang_together():
    random, covered, rounds = np.random.default_rng(1), 0, 400
    for _ in range(rounds):
        own = random.beta(1, 4, 120)  # each sequence has its own error rate, of mean 0.2
        sizes = random.integers(1, 30, 120)
        found = slices.rate(random.binomial(sizes, own), sizes)
        covered += found.low <= 0.2 <= found.high
    assert 0.92 <= covered / rounds <= 0.98  # 95 % within three standard errors


# ---- lengths


@EXAMPLES
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), min_size=1, max_size=60))
def test_lengths_share_out_all_sequences_and_errors(pairs):
    lengths = np.array([length for length, _ in pairs])
    offsets = np.append(0, np.cumsum(lengths))
    wrong = np.concatenate([np.arange(length) < errors for length, errors in pairs])
    rows = slices.by_length(wrong, offsets)
    assert sum(row["sequences"] for row in rows) == len(pairs)
    assert sum(row["tokens"] for row in rows) == lengths.sum() and sum(r["errors"] for r in rows) == wrong.sum()
    assert all(a["high"] < b["low"] for a, b in zip(rows, rows[1:], strict=False))
    for row in rows:
        mine = [(a, min(a, b)) for a, b in pairs if row["low"] <= a <= row["high"]]
        assert row["error"] == pytest.approx(sum(b for _, b in mine) / sum(a for a, _ in mine))
        assert row["sequence_error"] == pytest.approx(np.mean([b > 0 for _, b in mine]))
        assert row["error_low"] <= row["error"] + 1e-12 and row["error"] <= row["error_high"] + 1e-12


def test_equal_lengths_make_one_slice_and_none_make_none():
    (row,) = slices.by_length(np.array([True, False, False, False]), np.array([0, 2, 4]))
    assert (row["low"], row["high"], row["sequences"], row["error"], row["sequence_error"]) == (2, 2, 2, 0.25, 0.5)
    assert slices.by_length(np.zeros(0, bool), np.array([0])) == []


# ---- frequency of the input


def test_frequencies_by_hand():
    seen = np.array([0, 0, 1, 2, 5, 6, 5000])
    wrong = np.array([True, True, True, False, True, False, False])
    rows = slices.by_frequency(wrong, seen, np.array([0, 3, 7]))
    assert [(r["low"], r["high"], r["tokens"], r["errors"]) for r in rows] == [
        (0, 0, 2, 2), (1, 1, 1, 1), (2, 5, 2, 1), (6, 20, 1, 0), (1001, None, 1, 0),
    ]  # fmt: skip
    assert rows[2]["error"] == 0.5 and 0 < rows[2]["error_low"] < 0.5 < rows[2]["error_high"] < 1


def tokens(*words: list[str]) -> pl.DataFrame:
    sequence = [n for n, word in enumerate(words) for _ in word]
    return pl.DataFrame({"sequence": pl.Series(sequence, dtype=pl.Int32), "x0": [t for word in words for t in word]})


def test_windows_end_where_the_sequence_ends():
    found = slices.windows(tokens(["a", "b"], ["c"]), 3).to_list()
    assert [text.split("\x1f") for text in found] == [["", "a", "b"], ["a", "b", ""], ["", "c", ""]]


def test_inputs_are_counted_over_blocks():
    blocks = [tokens(["a", "b"], ["a"]), tokens(["b", "b"]), tokens()]
    wanted = tokens(["a", "x", "b", "a"])
    assert slices.count_in(iter(blocks), slices.windows(wanted, 1), 1).tolist() == [2, 0, 3, 2]
    pairs = slices.count_in(iter(blocks), slices.windows(tokens(["a", "b"]), 3), 3)
    assert pairs.tolist() == [1, 1]  # a at the beginning before b; b at the end after a


def test_a_word_is_an_input_and_a_letter_is_one_with_its_neighbours(tmp_path):
    info = {"source": "hand", "nouns": {}, "truth": None}

    def train(*words):
        store.write_tokens(tmp_path, "train", tokens(*words).with_columns(label=pl.lit("L")), info)

    train(["the", "cat"], ["the", "dog"])
    assert slices.seen_in_training(tmp_path, tokens(["the", "cow"]))[0].tolist() == [2, 0]
    train(*[["a", "b", "a"]] * 30)
    seen, width = slices.seen_in_training(tmp_path, tokens(["a", "b", "b"]))
    assert width == 3 and seen.tolist() == [30, 0, 0]
    seen, width = slices.seen_in_training(tmp_path, tokens(["a", "b", "a"]))
    assert width == 1 and seen.tolist() == [60, 30, 60]  # nothing is rare, whatever is looked at


# ---- confidence


def test_bins_get_intervals_and_the_error_holds_its_own():
    random = np.random.default_rng(3)
    confidence = random.uniform(0.3, 1, 600)
    correct = random.uniform(size=600) < confidence**2  # surer than it may be
    offsets = np.arange(0, 601, 3)
    error, bins = measures.calibration(confidence, correct, 10)
    rows, whole = slices.with_intervals(bins, confidence, correct, offsets)
    assert whole.value == pytest.approx(error, abs=1e-12) and whole.low <= whole.value <= whole.high
    assert 0 < whole.low and whole.high < 3 * whole.value
    for row in rows:
        if row["count"]:
            assert row["accuracy_low"] <= row["accuracy"] <= row["accuracy_high"]
        else:
            assert row["accuracy_low"] is None and row["accuracy_high"] is None
    assert slices.with_intervals(bins, confidence, correct, offsets)[1] == whole  # the same again


def test_no_position_has_no_calibration_error():
    _, bins = measures.calibration(np.zeros(0), np.zeros(0), 10)
    assert slices.with_intervals(bins, np.zeros(0), np.zeros(0, bool), np.array([0]))[1] == (None, None, None)


# ---- what evaluate writes


def test_evaluate_counts_inputs_and_writes_the_slices(project):
    table, info = store.read_arrow(project / store.PREDICTIONS)
    table, half = pl.from_arrow(table), info["window"] // 2

    def inputs(tokens):
        words = tokens.group_by("sequence", maintain_order=True).agg("x0")["x0"].to_list()
        padded = [[""] * half + word + [""] * half for word in words]
        return [tuple(word[t - half : t + half + 1]) for word in padded for t in range(half, len(word) - half)]

    counted = Counter(inputs(store.read_tokens(project, "train")[0]))
    assert half > 0  # few symbols, none of them rare by itself
    assert table["seen"].to_list() == [counted[window] for window in inputs(table)]
    wrong = (table["label"] != table["predicted"]).sum()
    for name in ("lengths", "frequencies"):
        rows = pl.read_csv(project / store.CURVES / f"{name}.csv")
        assert rows["errors"].sum() == wrong and rows["tokens"].sum() == len(table)
