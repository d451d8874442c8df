"""Error rates, what a task is judged by, calibration and intervals by resampling."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import conlleval, edits
from reference.label_bootstrap import noisy

from espalier.engine.errors import EspalierError
from espalier.engine.labels import measures, spans

EXACT = 1e-12  # ratios of small whole numbers
SAMPLING = 0.15  # relative; the width of an interval from 2,000 resamples scatters by a few per cent

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=150)
CHUNKS = ("O", "B-A", "I-A", "B-B", "I-B")

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


# ---- what a task is judged by


KINDS = ("O", "B-A", "I-A", "E-A", "S-A", "B-B", "L-B", "U-B")
SOUNDS = ("_", "K", "S", "AH", "K+S", "AH+K")


@st.composite
def labelled(draw, labels):
    """Right and predicted labels of the same sequences."""
    pairs = st.lists(st.tuples(st.sampled_from(labels), st.sampled_from(labels)), min_size=1, max_size=7)
    return [tuple(map(list, zip(*one, strict=True))) for one in draw(st.lists(pairs, min_size=1, max_size=6))]


def columns_of(sequences):
    """Both sides flat, and where sequences begin."""
    sides = ([label for one in sequences for label in one[side]] for side in (0, 1))
    return (*sides, np.cumsum([0, *(len(gold) for gold, _ in sequences)]))


@EXAMPLES
@given(labelled(SOUNDS))
def test_edits_are_those_of_the_whole_table(sequences):
    measure = measures.measure_of({"name": "edit_error", "silent": "_", "join": "+"}, SOUNDS)
    counts = measure.counts(*columns_of(sequences))
    strings = [[edits.symbols(labels, "_", "+") for labels in one] for one in sequences]
    assert counts.over.tolist() == [edits.distance(gold, said) for gold, said in strings]
    assert counts.under.tolist() == [len(gold) for gold, _ in strings]


@settings(deadline=None, derandomize=True, max_examples=20)
@given(labelled(SOUNDS))
@pytest.mark.nojit
def test_edits_without_a_compiler(sequences):
    gold, said, offsets = columns_of(sequences)
    counts = measures.edit_counts(gold, said, offsets, "_", "+")
    expected = [edits.distance(*(edits.symbols(side, "_", "+") for side in one)) for one in sequences]
    assert counts.over.tolist() == expected


def test_a_string_shifted_by_one_letter_is_one_edit_and_many_wrong_letters():
    gold, said, offsets = ["_", "K", "AH", "S"], ["K", "AH", "S", "_"], np.array([0, 4])
    assert measures.token_counts(gold, said, offsets).value == 1.0
    assert measures.edit_counts(gold, said, offsets, "_", "+").value == 0.0
    assert measures.edit_counts(["K+S", "_"], ["K", "AH"], np.array([0, 2]), "_", "+").value == 0.5


@EXAMPLES
@given(labelled(KINDS))
def test_entity_counts_make_the_f1_of_scores(sequences):
    columns = columns_of(sequences)
    counts = measures.F1.counts(*columns)
    assert counts.value == pytest.approx(spans.scores(*columns)[0]["f1"], abs=EXACT)
    each = [spans.scores(*one, np.array([0, len(one[0])]))[0] for one in sequences]
    assert counts.over.tolist() == [2 * row["correct"] for row in each]
    assert counts.under.tolist() == [row["gold"] + row["predicted"] for row in each]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [(["O", "B-A", "I-A"], "f1"), (["O", "B-A", "E-A", "S-A"], "f1"), (["U-A", "L-A", "B-A"], "f1"),
     (["NN", "O"], "token_error"), (["O"], "token_error")],
)  # fmt: skip
def test_labels_that_mark_entities_are_judged_by_f1_in_every_scheme(labels, expected):
    assert measures.measure_of(None, labels).name == expected


def test_a_measure_that_is_not_known_is_refused():
    with pytest.raises(EspalierError, match="their measure is 'bleu': expected edit_error"):
        measures.measure_of({"name": "bleu"}, [])


# ---- intervals


def errors(seed, n=400):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 12, n)
    champion = rng.binomial(sizes, 0.2)
    challenger = np.clip(champion + rng.integers(-1, 2, n), 0, sizes)
    return counts(champion, sizes), counts(challenger, sizes)


def counts(over, under):
    return measures.Counts(np.asarray(over, float), np.asarray(under, float))


@pytest.mark.nojit
def test_identical_predictions_differ_by_nothing():
    champion, _ = errors(1, n=20)
    assert tuple(measures.paired_bootstrap(champion, champion, rounds=50)) == (0.0, 0.0, 0.0)


def test_the_bootstrap_is_deterministic():
    data = errors(2)
    assert measures.paired_bootstrap(*data, seed=3) == measures.paired_bootstrap(*data, seed=3)
    assert measures.paired_bootstrap(*data, seed=3) != measures.paired_bootstrap(*data, seed=4)


def test_the_difference_is_challenger_minus_champion_per_position():
    found = measures.paired_bootstrap(counts([1, 2], [5, 5]), counts([0, 0], [5, 5]))
    assert found.value == pytest.approx(-0.3)
    assert found.low <= found.value <= found.high <= 0.0


def test_the_interval_has_the_width_that_theory_says():
    """Ratio estimator: variance of sum(d - r * size) over (sum of sizes) squared; 1.96 errors each way."""
    champion, challenger = errors(5)
    found = measures.paired_bootstrap(champion, challenger, level=0.95, rounds=2000)
    sizes = champion.under
    residual = (challenger.over - champion.over) - found.value * sizes
    error = math.sqrt(len(sizes) * residual.var()) / sizes.sum()
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=SAMPLING)
    assert found.low < found.value < found.high


def test_pairing_matters():
    """The challenger is better by one position in every sequence, easy or hard: there is no doubt."""
    rng = np.random.default_rng(6)
    sizes, champion = np.full(200, 20), rng.integers(1, 20, 200)
    found = measures.paired_bootstrap(counts(champion, sizes), counts(champion - 1, sizes))
    assert found.low == pytest.approx(-0.05) and found.high == pytest.approx(-0.05)


def test_a_higher_level_is_a_wider_interval():
    data = errors(7)
    narrow, wide = (measures.paired_bootstrap(*data, level=level) for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize("seed", [0, 1])
def test_intervals_of_f1_are_those_of_resampling_the_obvious_way(seed):
    """The same draws, the sequences joined and scored anew each time."""
    source = random.Random(seed)
    gold = [[source.choice(CHUNKS) for _ in range(source.randint(1, 6))] for _ in range(30)]
    champion, challenger = noisy(gold, CHUNKS, 0.2, seed + 2), noisy(gold, CHUNKS, 0.4, seed + 3)
    offsets = np.cumsum([0, *map(len, gold)])
    before, after = (measures.F1.counts(sum(gold, []), sum(said, []), offsets) for said in (champion, challenger))
    numbers = np.random.default_rng(seed)
    draws = [row for _ in range(2) for row in numbers.integers(0, len(gold), (50, len(gold)))]

    def value(said, draw):
        return conlleval.scores(conlleval.overall([gold[i] for i in draw], [said[i] for i in draw]))[2]

    values = [value(challenger, draw) for draw in draws]
    differences = [value(challenger, draw) - value(champion, draw) for draw in draws]
    everyone = range(len(gold))
    whole = value(challenger, everyone), value(challenger, everyone) - value(champion, everyone)
    found = measures.bootstrap(after, 0.8, 100, seed), measures.paired_bootstrap(before, after, 0.8, 100, seed)
    for mine, expected, resampled in zip(found, whole, (values, differences), strict=True):
        assert tuple(mine) == pytest.approx((expected, *np.quantile(resampled, [0.1, 0.9])), abs=EXACT)


def test_nothing_to_find_is_an_f1_of_nothing():
    nothing = measures.F1.counts(["O", "O"], ["O", "O"], np.array([0, 1, 2]))
    assert tuple(measures.bootstrap(nothing, rounds=50)) == (0.0, 0.0, 0.0)


def test_columns_of_different_length_are_refused():
    with pytest.raises(EspalierError, match="columns of 2, 2, 1, 1 values: expected the same number, at least one"):
        measures.paired_bootstrap(counts([1, 2], [1, 1]), counts([1], [1]))
    with pytest.raises(EspalierError, match="at least one"):
        measures.bootstrap(counts([], []))
