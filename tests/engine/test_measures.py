"""Error rates, chunk scores, calibration and the paired bootstrap."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import conlleval as reference
from seqeval.metrics import f1_score, precision_score, recall_score

from engine import measures
from engine.errors import EspalierError

EXACT = 1e-12  # ratios of small whole numbers
SAMPLING = 0.15  # relative; the width of an interval from 2,000 resamples scatters by a few per cent

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=150)
IOB = ["O", "B-A", "I-A", "B-B", "I-B", "B-A-x", "I-A-x"]


@st.composite
def tagged(draw, tags=tuple(IOB)):
    """Gold and predicted tags of the same sequences; any tag may follow any other."""
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))

    def columns():
        return [[draw(st.sampled_from(tags)) for _ in range(n)] for n in lengths]

    return columns(), columns()


def flat(sequences):
    return [tag for tags in sequences for tag in tags]


def offsets_of(sequences):
    return np.concatenate([[0], np.cumsum([len(s) for s in sequences])]).astype(np.int64)


# ---- error rates


def test_error_rates_by_hand():
    labels, predicted, offsets = np.array([0, 1, 2, 2, 0]), np.array([0, 1, 1, 2, 1]), np.array([0, 2, 4, 5])
    assert measures.token_error(labels, predicted) == pytest.approx(2 / 5)
    assert measures.sequence_error(labels, predicted, offsets) == pytest.approx(2 / 3)
    assert measures.sequence_errors(labels, predicted, offsets).tolist() == [0, 1, 1]


def test_no_error_and_nothing_but_errors():
    labels, offsets = np.array([0, 1, 0]), np.array([0, 1, 3])
    assert (measures.token_error(labels, labels), measures.sequence_error(labels, labels, offsets)) == (
        0.0,
        0.0,
    )
    assert (
        measures.token_error(labels, 1 - labels),
        measures.sequence_error(labels, 1 - labels, offsets),
    ) == (1, 1)


# ---- chunks


@EXAMPLES
@given(tagged())
@pytest.mark.nojit
def test_chunks_are_those_of_conlleval(columns):
    gold, _ = columns
    found = measures.chunks(flat(gold), offsets_of(gold))
    base = offsets_of(gold)
    expected = {
        (n, base[n] + first, base[n] + last + 1, kind)
        for n, tags in enumerate(gold)
        for first, last, kind in reference.chunks(tags)
    }
    assert set(found) == expected
    assert len(found) == len(expected)


@EXAMPLES
@given(tagged())
@pytest.mark.nojit
def test_scores_are_those_of_conlleval(columns):
    gold, predicted = columns
    overall, by_kind = measures.conlleval(flat(gold), flat(predicted), offsets_of(gold))
    counts = reference.counts(gold, predicted)
    assert set(by_kind) == set(counts)
    rows = [(overall, reference.overall(gold, predicted)), *((by_kind[kind], counts[kind]) for kind in counts)]
    for mine, count in rows:
        assert (mine["gold"], mine["predicted"], mine["correct"]) == count
        scores = mine["precision"], mine["recall"], mine["f1"]
        assert scores == pytest.approx(reference.scores(count), abs=EXACT)


@EXAMPLES
@given(tagged(("O", "B-A", "I-A", "B-B", "I-B")))
def test_scores_are_those_of_seqeval(columns):
    """seqeval's default mode follows conlleval for IOB tags with simple types."""
    gold, predicted = columns
    mine, _ = measures.conlleval(flat(gold), flat(predicted), offsets_of(gold))
    for key, score in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        assert mine[key] == pytest.approx(score(gold, predicted, zero_division=0), abs=EXACT)


def test_a_chunk_does_not_cross_the_end_of_a_sequence():
    offsets = np.array([0, 2, 4])
    found = measures.chunks(["O", "B-A", "I-A", "O"], offsets)
    assert [tuple(c) for c in found] == [(0, 1, 2, "A"), (1, 2, 3, "A")]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["O", "B-A", "I-A"], True),
        (["I-A"], True),
        (["O"], False),
        (["NN", "O"], False),
        (["O", "B"], False),
        (["O", "S-A"], False),
        ([], False),
    ],
)
def test_only_iob_labels_make_chunks(labels, expected):
    assert measures.is_chunk_scheme(labels) is expected


# ---- calibration


def naive_calibration(confidence, correct, bins):
    """Sum over bins of share * |mean confidence - accuracy|; the last bin is closed."""
    total = 0.0
    for b in range(bins):
        mine = [
            (c, ok)
            for c, ok in zip(confidence, correct, strict=True)
            if b / bins <= c < (b + 1) / bins or (b == bins - 1 and c == 1.0)
        ]
        if mine:
            mean, accuracy = sum(c for c, _ in mine) / len(mine), sum(ok for _, ok in mine) / len(mine)
            total += len(mine) / len(confidence) * abs(mean - accuracy)
    return total


@settings(deadline=None, derandomize=True, max_examples=80)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40), st.sampled_from([1, 4, 8]))
@pytest.mark.nojit
def test_calibration_error(pairs, bins):
    """Bins are powers of two, so that no confidence changes its bin by rounding."""
    confidence, correct = (np.array(column) for column in zip(*pairs, strict=True))
    error, rows = measures.calibration(confidence, correct, bins)
    assert error == pytest.approx(naive_calibration(confidence.tolist(), correct.tolist(), bins), abs=EXACT)
    assert sum(row["count"] for row in rows) == len(pairs)
    assert [row["bin_low"] for row in rows] == [b / bins for b in range(bins)]
    for row in rows:
        if row["count"]:
            assert row["bin_low"] - EXACT <= row["confidence"] <= row["bin_high"] + EXACT
        else:
            assert row["confidence"] is None and row["accuracy"] is None


def test_calibration_by_hand():
    error, rows = measures.calibration(np.array([0.95, 0.95, 0.55, 1.0]), np.array([True, False, True, True]), 10)
    assert [(r["count"], r["accuracy"]) for r in rows if r["count"]] == [(1, 1.0), (3, pytest.approx(2 / 3))]
    assert error == pytest.approx(0.25 * 0.45 + 0.75 * abs(2.9 / 3 - 2 / 3))


# ---- paired bootstrap


def errors(seed, n=400):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 12, n)
    champion = rng.binomial(sizes, 0.2)
    challenger = np.clip(champion + rng.integers(-1, 2, n), 0, sizes)
    return champion, challenger, sizes


@pytest.mark.nojit
def test_identical_predictions_differ_by_nothing():
    champion, _, sizes = errors(1, n=20)
    found = measures.paired_bootstrap(champion, champion, sizes, rounds=50)
    assert found.low <= 0.0 <= found.high
    assert tuple(found) == (0.0, 0.0, 0.0)


def test_the_bootstrap_is_deterministic():
    data = errors(2)
    assert measures.paired_bootstrap(*data, seed=3) == measures.paired_bootstrap(*data, seed=3)
    assert measures.paired_bootstrap(*data, seed=3) != measures.paired_bootstrap(*data, seed=4)


def test_the_difference_is_challenger_minus_champion_per_position():
    found = measures.paired_bootstrap([1, 2], [0, 0], [5, 5])
    assert found.difference == pytest.approx(-0.3)
    assert found.low <= found.difference <= found.high <= 0.0


def test_the_interval_has_the_width_that_theory_says():
    """Ratio estimator: variance of sum(d - r * size) over (sum of sizes) squared; 1.96 errors each way."""
    champion, challenger, sizes = errors(5)
    found = measures.paired_bootstrap(champion, challenger, sizes, level=0.95, rounds=2000)
    residual = (challenger - champion) - found.difference * sizes
    error = math.sqrt(len(sizes) * residual.var()) / sizes.sum()
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=SAMPLING)
    assert found.low < found.difference < found.high


def test_pairing_matters():
    """The challenger is better by one position in every sequence, easy or hard: there is no doubt."""
    rng = np.random.default_rng(6)
    sizes = np.full(200, 20)
    champion = rng.integers(1, 20, 200)
    found = measures.paired_bootstrap(champion, champion - 1, sizes)
    assert found.low == found.high == pytest.approx(-0.05)


def test_a_higher_level_is_a_wider_interval():
    data = errors(7)
    narrow, wide = (measures.paired_bootstrap(*data, level=level) for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_columns_of_different_length_are_refused():
    with pytest.raises(EspalierError, match="2, 1 and 2 values: expected the same number, at least one"):
        measures.paired_bootstrap([1, 2], [1], [1, 1])
    with pytest.raises(EspalierError, match="at least one"):
        measures.paired_bootstrap([], [], [])
