"""Entities: what labels such as B-PER and I-PER mark, and how the predicted ones differ from the right ones.

The labels may follow IOB, BIOES or BILOU. In what contradicts its scheme an entity begins wherever none goes on, as
conlleval reads IOB.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

MARKS = ("B-", "I-", "E-", "S-", "L-", "U-")
RIGHT, ENDS, KIND, BOTH, MISSED, SPURIOUS = "right", "ends", "kind", "both", "missed", "spurious"


class Span(NamedTuple):
    begin: int
    end: int  # first position after it
    kind: str


class Match(NamedTuple):
    """A right and a predicted entity that belong together, or one that has no other; and how they differ."""

    how: str
    gold: Span | None
    said: Span | None


def marks_entities(labels: Iterable[str]) -> bool:
    """Whether every label is O or a mark with a kind, and not all are O."""
    known = set(labels)
    return any(label != "O" for label in known) and all(label == "O" or label[:2] in MARKS for label in known)


def spans(labels: Sequence[str]) -> list[Span]:
    """The entities of one sequence, in order."""
    found: list[Span] = []
    begin, kind = None, ""
    for t, label in enumerate(labels):
        letter, here = (label[0], label[2:]) if label[:2] in MARKS else ("O", "")
        if begin is not None and not (letter in ("I", "E", "L") and here == kind):
            found.append(Span(begin, t, kind))
            begin = None
        if begin is None and letter != "O":
            begin, kind = t, here
        if letter in ("E", "S", "L", "U"):
            found.append(Span(begin, t + 1, kind))
            begin = None
    return [*found, Span(begin, len(labels), kind)] if begin is not None else found


def spans_of(labels: Sequence[str], offsets: np.ndarray) -> list[set[Span]]:
    """The entities of each sequence, their positions counted from its begin."""
    return [set(spans(labels[lo:hi])) for lo, hi in zip(offsets, offsets[1:], strict=False)]


def matches(gold: Sequence[Span], said: Sequence[Span]) -> list[Match]:
    """Each entity once: with its equal, else with one that overlaps it, of the same kind if it can be."""
    pairs = sorted(
        (a.begin != b.begin or a.end != b.end, a.kind != b.kind, -min(a.end, b.end) + max(a.begin, b.begin), i, j)
        for i, a in enumerate(gold) for j, b in enumerate(said) if a.begin < b.end and b.begin < a.end
    )  # fmt: skip
    of_gold: dict[int, int] = {}
    of_said: dict[int, int] = {}
    for *_, i, j in pairs:
        if i not in of_gold and j not in of_said:
            of_gold[i], of_said[j] = j, i
    found = [_match(a, said[of_gold[i]] if i in of_gold else None) for i, a in enumerate(gold)]
    return found + [Match(SPURIOUS, None, b) for j, b in enumerate(said) if j not in of_said]


def _match(gold: Span, said: Span | None) -> Match:
    if said is None:
        return Match(MISSED, gold, None)
    same_ends, same_kind = gold[:2] == said[:2], gold.kind == said.kind
    how = {(True, True): RIGHT, (False, True): ENDS, (True, False): KIND, (False, False): BOTH}[same_ends, same_kind]
    return Match(how, gold, said)


def scores(gold: Sequence[str], said: Sequence[str], offsets: np.ndarray) -> tuple[dict, dict[str, dict]]:
    """Precision, recall, F1 and counts of all entities and of each kind: right are those of the same kind and ends."""
    right, wanted, found = Counter(), Counter(), Counter()
    for ours, theirs in zip(spans_of(gold, offsets), spans_of(said, offsets), strict=True):
        wanted.update(s.kind for s in ours)
        found.update(s.kind for s in theirs)
        right.update(s.kind for s in ours & theirs)
    by_kind = {kind: _scores(right[kind], wanted[kind], found[kind]) for kind in sorted({*wanted, *found})}
    return _scores(right.total(), wanted.total(), found.total()), by_kind


def _scores(right: int, wanted: int, found: int) -> dict:
    precision, recall = right / found if found else 0.0, right / wanted if wanted else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return {"precision": precision, "recall": recall, "f1": f1, "gold": wanted, "predicted": found, "correct": right}
