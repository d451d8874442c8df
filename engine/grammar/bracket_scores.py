"""How predicted trees differ from right ones, counted as evalb does with its usual settings.

Tags of punctuation are taken out of both trees, brackets that hold nothing else with them; the outermost label and tags
are no brackets; ADVP and PRT are one. Ratios of sums over sentences.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from espalier.engine.errors import EspalierError
from espalier.engine.grammar.trees import TOP, Tree, leaves

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
        def ratio(part: float, whole: float) -> float:
            return part / whole if whole else 0.0

        made = {"exact": ratio(self.exact, self.sentences), "tags": ratio(self.tags, self.words),
                "crossing": ratio(self.crossing, self.sentences)}  # fmt: skip
        for name, right in (("labelled", self.labelled), ("unlabelled", self.unlabelled)):
            made |= {f"{name}_precision": ratio(right, self.predicted), f"{name}_recall": ratio(right, self.gold),
                     f"{name}_f1": ratio(2 * right, self.predicted + self.gold)}  # fmt: skip
        return made


def spans(tree: Tree) -> Counter:
    """How often each (label, from, to) occurs, words numbered without punctuation."""
    found: Counter = Counter()

    def visit(node: Tree, begin: int) -> int:
        if node.word is not None:
            return begin + (node.label not in PUNCTUATION)
        end = begin
        for child in node.children:
            end = visit(child, end)
        if end > begin and node.label != TOP:
            found[EQUAL.get(node.label, node.label), begin, end] += 1
        return end

    visit(tree, 0)
    return found


def _crosses(one: tuple, brackets: Counter) -> bool:
    i, j = one[-2:]
    return any(a < i < b < j or i < a < j < b for _, a, b in brackets)


def compare(gold: Tree, predicted: Tree | None) -> BracketCounts:
    """The counts of one sentence; trees of other words are refused."""
    right, tags = spans(gold), [tag for tag, _ in leaves(gold)]
    kept = [n for n, tag in enumerate(tags) if tag not in PUNCTUATION]
    if predicted is None:
        return BracketCounts(1, 1, 0, right.total(), 0, 0, 0, 0, len(kept), 0)
    words, others = ([word for _, word in leaves(tree)] for tree in (gold, predicted))
    if words != others:
        raise EspalierError(f"a predicted tree has words {others[:8]}, the right one {words[:8]}: expected the same")
    found, answers = spans(predicted), [tag for tag, _ in leaves(predicted)]
    labelled = (right & found).total()
    bare = [Counter() for _ in range(2)]
    for counter, made in zip((right, found), bare, strict=True):
        for (_, i, j), n in counter.items():
            made[i, j] += n
    crossing = sum(n for one, n in found.items() if _crosses(one, right))
    return BracketCounts(
        1, 0, int(right == found), right.total(), found.total(), labelled, (bare[0] & bare[1]).total(), crossing,
        len(kept), sum(tags[n] == answers[n] for n in kept),
    )  # fmt: skip


def compare_all(gold: Sequence[Tree], predicted: Sequence[Tree | None]) -> BracketCounts:
    rows = [compare(*pair) for pair in zip(gold, predicted, strict=True)]
    return BracketCounts(*(sum(column) for column in zip(*rows, strict=True)))
