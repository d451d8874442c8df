"""Measures of predictions: error rates, what a task is judged by, intervals by resampling, calibration."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.labels.bracket_scores import rows_of
from espalier.engine.labels.edit_distance import edit_distances
from espalier.engine.labels.spans import marks_entities, spans_of
from espalier.engine.labels.trees import tag_of

DRAWS = 50  # resamples made at a time


def token_error(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Share of positions with a wrong label."""
    return float(np.mean(np.asarray(labels) != np.asarray(predicted)))


def sequence_errors(labels: np.ndarray, predicted: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Number of wrong positions in each sequence, int64 [N]."""
    wrong = np.asarray(labels) != np.asarray(predicted)
    return np.add.reduceat(wrong.astype(np.int64), offsets[:-1])


def sequence_error(labels: np.ndarray, predicted: np.ndarray, offsets: np.ndarray) -> float:
    """Share of sequences with at least one wrong label."""
    return float(np.mean(sequence_errors(labels, predicted, offsets) > 0))


# What a task is judged by ---------------------------------------------------------------------------


class Counts(NamedTuple):
    """Whole numbers of each sequence, float64 [N]; the measure of all is the ratio of their sums."""

    over: np.ndarray
    under: np.ndarray

    @property
    def value(self) -> float:
        return float(ratio(self.over.sum(), self.under.sum()))


class Measure(NamedTuple):
    """What a task is judged by: a ratio of sums over sequences, so that whole sequences can be drawn again."""

    name: str  # its key in metrics: token_error, f1, edit_error or bracket_f1
    counts: Callable[[Sequence[str], Sequence[str], np.ndarray], Counts]  # of right labels, predicted ones, offsets
    higher_is_better: bool = False
    # The labels of single tokens, of right labels and predicted ones: tags where labels are pieces of trees.
    of_tokens: Callable[[Sequence[str], Sequence[str]], tuple[Sequence[str], Sequence[str]]] = lambda gold, said: (
        gold, said,
    )  # fmt: skip

    @property
    def trees(self) -> bool:
        """Whether labels are pieces of trees."""
        return self.name == BRACKET_F1

    def loss(self, value: float) -> float:
        """What is to be small: an error itself, or what F1 lacks."""
        return 1 - value if self.higher_is_better else value


def token_counts(gold: Sequence[str], said: Sequence[str], offsets: np.ndarray) -> Counts:
    """Wrong positions over positions."""
    wrong = sequence_errors(np.array(gold), np.array(said), offsets)
    return Counts(wrong.astype(np.float64), np.diff(offsets).astype(np.float64))


def entity_counts(gold: Sequence[str], said: Sequence[str], offsets: np.ndarray) -> Counts:
    """Twice the entities that are found, over the right and the predicted ones: their ratio is F1."""
    pairs = list(zip(spans_of(gold, offsets), spans_of(said, offsets), strict=True))
    over = np.array([2.0 * len(ours & theirs) for ours, theirs in pairs])
    return Counts(over, np.array([float(len(ours) + len(theirs)) for ours, theirs in pairs]))


def edit_counts(gold: Sequence[str], said: Sequence[str], offsets: np.ndarray, silent: str, join: str) -> Counts:
    """Edits that make the predicted string of symbols right, over the symbols of the right one.

    A label stands for no symbol (`silent`), for one, or for several with `join` between them.
    """
    code: dict[str, int] = {}
    parts = {
        label: [code.setdefault(symbol, len(code)) for symbol in label.split(join) if label != silent]
        for label in dict.fromkeys([*gold, *said])
    }
    (right, right_ptr), (guess, guess_ptr) = (_strings(labels, offsets, parts) for labels in (gold, said))
    edits = edit_distances(right, right_ptr, guess, guess_ptr)
    return Counts(edits.astype(np.float64), np.diff(right_ptr).astype(np.float64))


def _strings(labels: Sequence[str], offsets: np.ndarray, parts: dict[str, list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """The symbols of all labels in one row, and where those of each sequence begin."""
    symbols = np.array([symbol for label in labels for symbol in parts[label]], np.int64)
    ends = np.cumsum([0, *(len(parts[label]) for label in labels)])
    return symbols, ends[offsets].astype(np.int64)


def bracket_counts(gold: Sequence[str], said: Sequence[str], offsets: np.ndarray, labelled: bool) -> Counts:
    """Twice the brackets that are found, over the right and the predicted ones, of trees as labels of their words."""
    rows = rows_of(gold, said, offsets.tolist())
    found = np.array([row.labelled if labelled else row.unlabelled for row in rows], np.float64)
    return Counts(2 * found, np.array([row.gold + row.predicted for row in rows], np.float64))


def tags_of(gold: Sequence[str], said: Sequence[str]) -> tuple[list[str], list[str]]:
    """The tags of pieces of trees; where the right one is not known the predicted one is left out, too."""
    right, other = ([tag_of(piece) for piece in pieces] for pieces in (gold, said))
    return right, [b if a else "" for a, b in zip(right, other, strict=True)]


TOKEN_ERROR = Measure("token_error", token_counts)
F1 = Measure("f1", entity_counts, higher_is_better=True)
EDIT_ERROR = "edit_error"
BRACKET_F1 = "bracket_f1"
NAMES = (TOKEN_ERROR.name, F1.name, EDIT_ERROR, BRACKET_F1)


def measure_of(described: dict[str, Any] | None, labels: Iterable[str]) -> Measure:
    """What the source of the data says that they are judged by; else F1 where labels mark entities; else the error.

    `described` is {"name": "edit_error", "silent": …, "join": …} of a source whose labels spell a string,
    {"name": "bracket_f1", "labelled": …} of one whose labels are pieces of trees, or None.
    """
    if described is None:
        return F1 if marks_entities(labels) else TOKEN_ERROR
    if described.get("name") == BRACKET_F1:
        counts = partial(bracket_counts, labelled=bool(described.get("labelled", True)))
        return Measure(BRACKET_F1, counts, True, tags_of)
    if described.get("name") != EDIT_ERROR:
        raise EspalierError(
            f"the data say that their measure is {described.get('name')!r}: expected {EDIT_ERROR} or {BRACKET_F1}"
        )
    return Measure(EDIT_ERROR, partial(edit_counts, silent=described["silent"], join=described["join"]))


# Intervals ------------------------------------------------------------------------------------------


class Bootstrap(NamedTuple):
    """A value with a percentile interval; of two models it is challenger minus champion."""

    value: float
    low: float
    high: float


def ratio(over: np.ndarray, under: np.ndarray) -> np.ndarray:
    """over / under, 0 where there is nothing below the line."""
    over, under = np.asarray(over, np.float64), np.asarray(under, np.float64)
    return np.divide(over, under, out=np.zeros(np.broadcast_shapes(over.shape, under.shape)), where=under > 0)


def resampled_sums(columns: np.ndarray, rounds: int, seed: int) -> Iterator[np.ndarray]:
    """Sums [DRAWS, K] of columns [N, K] over N sequences that are drawn with replacement, `rounds` times in all.

    The columns hold whole numbers, so the sums are exact in float64 and their order changes nothing.
    """
    n, random = len(columns), np.random.default_rng(seed)
    for _ in range(max(1, rounds // DRAWS)):
        draws = random.integers(0, n, (DRAWS, n))
        times = np.stack([np.bincount(draw, minlength=n) for draw in draws]).astype(np.float64)
        yield times @ columns


def bootstrap(counts: Counts, level: float = 0.95, rounds: int = 2000, seed: int = 0) -> Bootstrap:
    """A measure with its interval, by resampling sequences."""
    _same_size(*counts)
    sums = np.concatenate(list(resampled_sums(np.stack(counts, axis=1), rounds, seed)))
    low, high = np.quantile(ratio(sums[:, 0], sums[:, 1]), [(1 - level) / 2, (1 + level) / 2])
    return Bootstrap(counts.value, float(low), float(high))


def paired_bootstrap(
    champion: Counts, challenger: Counts, level: float = 0.95, rounds: int = 2000, seed: int = 0
) -> Bootstrap:
    """The difference of a measure, challenger minus champion, by resampling sequences with both models together."""
    _same_size(*champion, *challenger)
    sums = np.concatenate(list(resampled_sums(np.stack([*champion, *challenger], axis=1), rounds, seed)))
    differences = ratio(sums[:, 2], sums[:, 3]) - ratio(sums[:, 0], sums[:, 1])
    low, high = np.quantile(differences, [(1 - level) / 2, (1 + level) / 2])
    return Bootstrap(challenger.value - champion.value, float(low), float(high))


def _same_size(*columns: np.ndarray) -> None:
    sizes = [len(column) for column in columns]
    if len(set(sizes)) != 1 or sizes[0] == 0:
        raise EspalierError(f"columns of {', '.join(map(str, sizes))} values: expected the same number, at least one")


# Calibration ----------------------------------------------------------------------------------------


def calibration(confidence: np.ndarray, correct: np.ndarray, bins: int = 10) -> tuple[float, list[dict]]:
    """Expected calibration error, and for each bin of confidence its mean and the accuracy in it."""
    confidence, correct = np.asarray(confidence, float), np.asarray(correct, float)
    which = np.minimum((confidence * bins).astype(int), bins - 1)
    rows, error = [], 0.0
    for b in range(bins):
        mine = which == b
        count = int(mine.sum())
        mean, accuracy = (float(confidence[mine].mean()), float(correct[mine].mean())) if count else (None, None)
        rows.append({"bin_low": b / bins, "bin_high": (b + 1) / bins, "confidence": mean, "accuracy": accuracy,
                     "count": count})  # fmt: skip
        error += count / max(1, len(confidence)) * abs(mean - accuracy) if count else 0.0
    return error, rows
