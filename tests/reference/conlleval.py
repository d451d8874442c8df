"""Chunk counting by the published rules of the conlleval script, for tags O, B-type and I-type.

Two tables say where a chunk starts and ends, from the tags of two neighbours; a sequence ends in O.
A chunk is right when the same words carry a chunk of the same type in both columns.
"""

from typing import NamedTuple

STARTS = {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")}
ENDS = {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")}


class Counts(NamedTuple):
    gold: int
    predicted: int
    correct: int


def split(tag):
    """The prefix and the type; only the first hyphen separates."""
    prefix, _, kind = tag.partition("-")
    return prefix, kind


def starts(before, here):
    (p, p_kind), (h, h_kind) = split(before), split(here)
    return (p, h) in STARTS or (h != "O" and p_kind != h_kind)


def ends(here, after):
    (h, h_kind), (a, a_kind) = split(here), split(after)
    return (h, a) in ENDS or (h != "O" and h_kind != a_kind)


def chunks(tags):
    """Set of (first, last, type) of one sequence."""
    padded = ["O", *tags, "O"]
    found, first = set(), None
    for t in range(1, len(padded) - 1):
        if starts(padded[t - 1], padded[t]):
            first = t
        if first is not None and ends(padded[t], padded[t + 1]):
            found.add((first - 1, t - 1, split(padded[first])[1]))
            first = None
    return found


def counts(gold, predicted):
    """{type: Counts} over all sequences."""
    kinds = {split(tag)[1] for tags in (*gold, *predicted) for tag in tags if split(tag)[0] != "O"}
    table = {}
    for kind in sorted(kinds):
        g = [{c for c in chunks(tags) if c[2] == kind} for tags in gold]
        p = [{c for c in chunks(tags) if c[2] == kind} for tags in predicted]
        table[kind] = Counts(
            sum(map(len, g)), sum(map(len, p)), sum(len(one & other) for one, other in zip(g, p, strict=True))
        )
    return table


def overall(gold, predicted):
    table = counts(gold, predicted).values()
    return Counts(sum(c.gold for c in table), sum(c.predicted for c in table), sum(c.correct for c in table))


def scores(count):
    """Precision, recall and F1 as fractions; zero where undefined, as the script prints."""
    precision = count.correct / count.predicted if count.predicted else 0.0
    recall = count.correct / count.gold if count.gold else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return precision, recall, f1
