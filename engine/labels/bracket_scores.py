"""How predicted trees differ from right ones, counted as evalb does with its usual settings.

What the right tree tags as punctuation is taken out of both, brackets that hold nothing else with it; the outermost
label and tags are no brackets, nor are those without a label around one word; ADVP and PRT are one. Ratios of sums over
sentences.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from espalier.engine.errors import EspalierError
from espalier.engine.labels.trees import TOP, Tree, leaves, tag_of, tree_of, walk, without_labels

PUNCTUATION = frozenset([",", ":", "``", "''", "."])
EQUAL = {"PRT": "ADVP"}


class BracketCounts(NamedTuple):
    """Sums over sentences; of a sentence without a predicted tree only the right brackets and tags count."""

    sentences: int
    missing: int  # without a tree
    exact: int  # all labelled brackets right
    gold: int
    predicted: int
    labelled: int  # brackets of both with the same label
    unlabelled: int  # with any
    crossing: int  # predicted ones that cross a right one
    words: int
    tags: int  # right ones

    def figures(self) -> dict[str, float]:
        """Shares and means, by other names than the counts, so that both can stand side by side."""
        def ratio(part: float, whole: float) -> float:
            return part / whole if whole else 0.0

        made = {"exact_share": ratio(self.exact, self.sentences), "tag_accuracy": ratio(self.tags, self.words),
                "crossing_mean": ratio(self.crossing, self.sentences)}  # fmt: skip
        for name, right in (("labelled", self.labelled), ("unlabelled", self.unlabelled)):
            made |= {f"{name}_precision": ratio(right, self.predicted), f"{name}_recall": ratio(right, self.gold),
                     f"{name}_f1": ratio(2 * right, self.predicted + self.gold)}  # fmt: skip
        return made


def spans(tree: Tree, kept: Sequence[bool] | None = None) -> Counter:
    """How often each (label, from, to) occurs; words numbered without those that are not kept, which is punctuation."""
    found: Counter = Counter()
    kept = [tag not in PUNCTUATION for tag, _ in leaves(tree)] if kept is None else kept
    ends = [0, *accumulate(kept)]

    begins: list[int] = []
    at = 0  # words before
    for node, opens in walk(tree):
        if node.word is not None:
            at += opens
        elif opens:
            begins.append(at)
        else:
            low, high = ends[begins.pop()], ends[at]
            if high > low + (not node.label) and node.label != TOP:
                found[EQUAL.get(node.label, node.label), low, high] += 1
    return found


def _crosses(one: tuple, brackets: Counter) -> bool:
    i, j = one[-2:]
    return any(a < i < b < j or i < a < j < b for _, a, b in brackets)


def compare(gold: Tree, predicted: Tree | None) -> BracketCounts:
    """The counts of one sentence; trees of other words are refused."""
    tags = [tag for tag, _ in leaves(gold)]
    kept = [tag not in PUNCTUATION for tag in tags]
    right, n_words = spans(gold, kept), sum(kept)
    if predicted is None:
        return BracketCounts(1, 1, 0, right.total(), 0, 0, 0, 0, n_words, 0)
    words, others = ([word for _, word in leaves(tree)] for tree in (gold, predicted))
    if words != others:
        raise EspalierError(f"a predicted tree has words {others[:8]}, the right one {words[:8]}: expected the same")
    found, answers = spans(predicted, kept), [tag for tag, _ in leaves(predicted)]
    labelled = (right & found).total()
    bare = [Counter() for _ in range(2)]
    for counter, made in zip((right, found), bare, strict=True):
        for (_, i, j), n in counter.items():
            made[i, j] += n
    crossing = sum(n for one, n in found.items() if _crosses(one, right))
    return BracketCounts(
        1, 0, int(right == found), right.total(), found.total(), labelled, (bare[0] & bare[1]).total(), crossing,
        n_words, sum(a == b for a, b, counts in zip(tags, answers, kept, strict=True) if counts),
    )  # fmt: skip


def compare_all(gold: Sequence[Tree], predicted: Sequence[Tree | None]) -> BracketCounts:
    rows = [compare(*pair) for pair in zip(gold, predicted, strict=True)]
    return BracketCounts(*(sum(column) for column in zip(*rows, strict=True)))


def spans_in(gold: Sequence[str], said: Sequence[str], offsets: Sequence[int]) -> list[Counter]:
    """The brackets that are said of each sentence, words numbered without what the right tree tags as punctuation."""
    found = []
    for lo, hi in pairwise(offsets):
        tree, cut = tree_of(said[int(lo) : int(hi)]), gold[int(lo) : int(hi)]
        found.append(spans(tree, [tag_of(piece) not in PUNCTUATION for piece in cut]) if tree else Counter())
    return found


def rows_of(gold: Sequence[str], said: Sequence[str], offsets: Sequence[int]) -> list[BracketCounts]:
    """The counts of each sentence, of trees as labels of their words; labels that make no tree are none.

    Where right brackets have no labels, those of predicted ones do not count.
    """
    cuts = [slice(int(lo), int(hi)) for lo, hi in pairwise(offsets)]
    rights, answers = ([tree_of(pieces[cut]) for cut in cuts] for pieces in (gold, said))
    return [compare(*pair) for pair in zip(rights, comparable(rights, answers), strict=True)]


def comparable(gold: Sequence[Tree], said: Sequence[Tree | None]) -> list[Tree | None]:
    """The predicted trees, without their labels where the right ones have none."""
    if any(tree.label for tree in gold):
        return list(said)
    return [tree and without_labels(tree) for tree in said]
