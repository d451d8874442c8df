"""Files of trees: how they are told from others, what is said of them, and the project to begin with."""

from collections import Counter
from typing import Any

import polars as pl

from espalier.engine.errors import EspalierError
from espalier.engine.labels.trees import TOP, bracketed, labels_above, located
from espalier.tasks.pages.page import count

Entry = tuple[str, Any, str]  # key, value, comment

TEMPLATES = "trees"  # of those that come along
BARE_LINES = ["# Terminals of a grammar: the word, and one for words that are rare or unknown", "U:%x[0,0]", "U"]
MODEL: list[Entry] = [("family", "pcfg", "a probabilistic context-free grammar")]
# For trees with labels, and for brackets without.
GRAMMAR: dict[bool, list[Entry]] = {
    False: [
        ("training", "counts", "of the rules of the trees; inside-outside, viterbi and k-best go on from them"),
        ("vertical", 2, "labels that a label remembers: its own and the one above"),
        ("horizontal", 1, "children before it that the rest of a rule remembers"),
    ],
    True: [
        ("training", "inside-outside", "expectation-maximisation over the trees that cross no bracket"),
        ("symbols", 14, "symbols of its own, since brackets have no labels; more fit better and take longer"),
        ("rare", 0, "every word is a terminal of its own, as tags are; more leaves rare words to a class"),
    ],
}  # fmt: skip
TRAIN: dict[bool, list[Entry]] = {
    kind: [("max_iterations", 50, "iterations at most, of what is not counted")] for kind in (False, True)
}
TOLD = {
    False: "model: a probabilistic grammar, its rules counted from the trees (model.family: pcfg)",
    True: "model: a probabilistic grammar with 14 symbols of its own, by inside-outside within brackets; pcfg.symbols "
    "says how many",
}


def begins_with_tree(begin: bytes) -> bool:
    """Whether a text begins with a tree in brackets, with labels or without."""
    if not begin.startswith(b"("):
        return False
    text = begin.decode("utf-8", "replace")
    return _is_read(text, labels=True) or _is_read(text.split("\n")[0], labels=False)


def is_bare(lines: list[str]) -> bool:
    """Whether brackets have no labels: each line can be read as a string without, and few as trees with some."""
    with_labels = sum(_is_read(line, labels=True) for line in lines)
    return 2 * with_labels < len(lines) and all(_is_read(line, labels=False) for line in lines)


def _is_read(text: str, labels: bool) -> bool:
    """Whether a tree can be read where the text begins."""
    try:
        return (next(located(text, "")).tree if labels else bracketed(text, "", 1)) is not None
    except (EspalierError, StopIteration):
        return False


def brackets_of(block: pl.DataFrame) -> Counter:
    """How often each label of brackets is there; the outermost one is none."""
    found: Counter = Counter()
    for piece, n in block.group_by("label").len().iter_rows():
        for label in labels_above(piece):
            found[label] += n * (label != TOP)
    return found


def labels_told(profile: dict, brackets: Counter) -> str:
    """What brackets and words are called, and what the task is judged by."""
    if not any(brackets):
        return f"{count(brackets.total(), 'bracket')} without labels; judged by the F1 of unlabelled brackets"
    labels = [label for label, _ in sorted(brackets.items(), key=lambda item: (-item[1], item[0]))]
    shown = [", ".join(some[:6]) + (", …" if len(some) > 6 else "") for some in (labels, list(profile["labels"]))]
    tags = f"{count(len(profile['labels']), 'tag')}: {shown[1]}"
    return f"{count(len(labels), 'label')} of brackets: {shown[0]}; {tags}; judged by the F1 of labelled brackets"
