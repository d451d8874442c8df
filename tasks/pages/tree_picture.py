"""Trees as inline SVG: words in a row, the brackets above them, those that are wrong marked.

A drawing keeps its size and lies in a box that scrolls, so that a long sentence is no wider than the page.
"""

from collections.abc import Callable
from typing import NamedTuple

from espalier.engine.labels.trees import TOP, Tree, leaves
from espalier.tasks.pages.charts import clip, text
from espalier.tasks.pages.page import Html, join, tag

CHARACTER, GAP, ROW, NAME = 7.5, 14, 34, 24  # width of a character, between words, height of a level, longest text
LEAST = 18  # width of a word


class Placed(NamedTuple):
    """A node with its place: x of its middle, level from the words up, and what is below it."""

    label: str
    x: float
    level: int
    begin: int
    end: int
    below: tuple["Placed", ...]


def draw(tree: Tree, title: str, wrong: Callable[[str, int, int], bool]) -> Html:
    """The tree; `wrong` says of a bracket (label, from, to) whether it is marked."""
    words = [clip(word, NAME) for _, word in leaves(tree)]
    tags = [clip(name, NAME) for name, _ in leaves(tree)]
    widths = [max(LEAST, CHARACTER * max(len(a), len(b))) + GAP for a, b in zip(words, tags, strict=True)]
    ends = [sum(widths[:n]) for n in range(len(widths) + 1)]
    middles = [(a + b) / 2 for a, b in zip(ends, ends[1:], strict=False)]
    root = _placed(tree, middles, 0)
    while root.label in (TOP, "") and len(root.below) == 1 and root.below[0].below:
        root = root.below[0]
    height = ROW * (root.level + 1) + 26
    parts: list[Html] = []
    _add(root, height, wrong, parts)
    parts += [text(word, x, height - 6, "tree-word") for word, x in zip(words, middles, strict=True)]
    size = {"width": f"{ends[-1]:.0f}", "height": f"{height:.0f}"}
    box = tag("svg", tag("title", title), *parts, viewBox=f"0 0 {ends[-1]:.0f} {height:.0f}", role="img",
              class_="tree", **size)  # fmt: skip
    return tag("div", box, class_="scroll tree-box", tabindex="0")


def _placed(tree: Tree, middles: list[float], begin: int) -> Placed:
    if tree.word is not None:
        return Placed(tree.label, middles[begin], 0, begin, begin + 1, ())
    below, at = [], begin
    for child in tree.children:
        below.append(_placed(child, middles, at))
        at = below[-1].end
    level = 1 + max(child.level for child in below)
    return Placed(tree.label, (below[0].x + below[-1].x) / 2, level, begin, at, tuple(below))


def _add(node: Placed, height: float, wrong: Callable[[str, int, int], bool], parts: list[Html]) -> None:
    y = height - 26 - ROW * node.level
    for child in node.below:
        below = height - 26 - ROW * child.level
        parts.append(tag("line", x1=f"{node.x:.1f}", y1=f"{y + 5:.1f}", x2=f"{child.x:.1f}", y2=f"{below - 12:.1f}",
                         class_="tree-line"))  # fmt: skip
        _add(child, height, wrong, parts)
    if node.label:
        marked = bool(node.below) and wrong(node.label, node.begin, node.end)
        class_ = "tree-wrong" if marked else "tree-label" if node.below else "tree-tag"
        parts.append(text(clip(node.label, NAME), node.x, y, class_))


def pair(right: Html, said: Html) -> Html:
    """Both trees, one below the other."""
    return join([tag("p", "Right", class_="tree-name"), right, tag("p", "Predicted", class_="tree-name"), said])
