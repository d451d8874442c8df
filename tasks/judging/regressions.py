"""Label by label: how much F1 a challenger loses to a champion on the same test data, with a paired interval.

Where labels mark entities a kind of entity takes the place of a label, of trees the label of a bracket.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.labels.bracket_scores import spans_in
from espalier.engine.labels.measures import ratio, resampled_sums
from espalier.engine.labels.spans import Span, marks_entities, spans_of
from espalier.tasks.params import Promote, margin_of

BLOCK_NUMBERS = 4_000_000  # of counts held at once


class Items(NamedTuple):
    """What is counted, one entry each: the sequence it lies in and its kind."""

    sequence: np.ndarray  # int64
    kind: np.ndarray  # int64

    def of(self, kind: int, n: int) -> np.ndarray:
        """How many of a kind lie in each of n sequences, float64 [n]."""
        return np.bincount(self.sequence[self.kind == kind], minlength=n).astype(np.float64)


class Counted(NamedTuple):
    """Of one model: what it said, and what of that is right."""

    said: Items
    right: Items


def count_items(
    gold: list[str], guesses: list[list[str]], offsets: np.ndarray, trees: bool = False
) -> tuple[list[str], Items, list]:
    """(names of the kinds, gold items, `Counted` of each list of guesses): entities where labels mark them, brackets of
    trees."""
    labels = sorted({*gold, *(label for guess in guesses for label in guess)})
    if trees:
        return _count_spans(*(_brackets(gold, some, offsets) for some in (gold, *guesses)))
    if marks_entities(labels):
        return _count_spans(*(_spans(some, offsets) for some in (gold, *guesses)))
    code = {name: i for i, name in enumerate(labels)}
    sequence = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    right, *said = (np.array([code[label] for label in some], np.int64) for some in (gold, *guesses))
    counted = [Counted(Items(sequence, one), Items(sequence[one == right], one[one == right])) for one in said]
    return labels, Items(sequence, right), counted


def _count_spans(right: set[tuple[int, Span]], *said: set[tuple[int, Span]]) -> tuple[list[str], Items, list]:
    names = sorted({span.kind for some in (right, *said) for _, span in some})
    code = {name: i for i, name in enumerate(names)}

    def items(some) -> Items:
        pairs = np.array([(sequence, code[span.kind]) for sequence, span in some], np.int64).reshape(-1, 2)
        return Items(pairs[:, 0], pairs[:, 1])

    return names, items(right), [Counted(items(one), items(one & right)) for one in said]


def _brackets(gold: list[str], said: list[str], offsets: np.ndarray) -> set[tuple[int, Span]]:
    """The brackets of all trees, each label over a span once."""
    found = enumerate(spans_in(gold, said, offsets.tolist()))
    return {(n, Span(begin, end, label)) for n, some in found for label, begin, end in some}


def _spans(labels: list[str], offsets: np.ndarray) -> set[tuple[int, Span]]:
    """The entities of all sequences, each with the number of its sequence."""
    return {(n, span) for n, found in enumerate(spans_of(labels, offsets)) for span in found}


def f1(right: np.ndarray, gold: np.ndarray, said: np.ndarray) -> np.ndarray:
    """2 right / (gold + said), 0 where there is neither."""
    return ratio(2 * right, gold + said)


def compare_labels(
    gold: list[str], champion: list[str], challenger: list[str], offsets: np.ndarray, options: Promote,
    trees: bool = False,
) -> list[dict]:  # fmt: skip
    """A row for each label, kind of entity or label of a bracket, the largest loss first.

    `regressed` are labels with at least `label_count` in the test data that lose more than `label_margin` of F1, where
    the interval of the difference lies below zero as a whole. It is the interval at `level` for all such labels
    together (Bonferroni): of a hundred labels some would always seem worse by chance.
    """
    names, right, (before, after) = count_items(gold, [champion, challenger], offsets, trees)
    n = len(offsets) - 1
    totals = np.bincount(right.kind, minlength=len(names))
    tested = max(1, int(np.sum(totals >= options.label_count)))
    edge = (1 - options.level) / 2 / tested
    rows, pending = [], []
    for i, name in enumerate(names):
        parts = [side.of(i, n) for side in (right, before.right, before.said, after.right, after.said)]
        sums = [part.sum(keepdims=True) for part in parts]
        old, new = float(f1(sums[1], sums[0], sums[2])[0]), float(f1(sums[3], sums[0], sums[4])[0])
        rows.append({"label": name, "count": int(totals[i]), "champion_f1": old, "challenger_f1": new,
                     "difference": new - old, "low": 0.0, "high": 0.0, "regressed": False})  # fmt: skip
        if not (np.array_equal(parts[1], parts[3]) and np.array_equal(parts[2], parts[4])):
            pending.append((rows[-1], parts))
        if len(pending) * 5 * n > BLOCK_NUMBERS or i == len(names) - 1:
            _resample(pending, edge, options)
            pending = []
    for row in rows:
        sure = row["count"] >= options.label_count and row["high"] < 0
        margin = None if options.label_margin is None else margin_of(options.label_margin, 1 - row["champion_f1"])
        row["regressed"] = margin is not None and sure and row["difference"] < -margin
    return sorted(rows, key=lambda row: (row["difference"], row["label"]))


def _resample(pending: list[tuple[dict, list[np.ndarray]]], edge: float, options: Promote) -> None:
    """Fill in low and high: quantiles of the difference over resamples of whole sequences, both models together."""
    if not pending:
        return
    columns = np.stack([part for _, parts in pending for part in parts], axis=1)  # [N, 5 L]
    found = []
    for sums in resampled_sums(columns, options.rounds, options.seed):
        gold, old_right, old_said, new_right, new_said = np.moveaxis(sums.reshape(len(sums), -1, 5), 2, 0)
        found.append(f1(new_right, gold, new_said) - f1(old_right, gold, old_said))
    low, high = np.quantile(np.concatenate(found), [edge, 1 - edge], axis=0)
    for (row, _), least, most in zip(pending, low, high, strict=True):
        row |= {"low": float(least), "high": float(most)}
