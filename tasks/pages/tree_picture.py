"""Trees as inline SVG: a word in each row, on its left the brackets around it; those that are wrong are marked.

A label stands in the row of the first word below it, so that two trees over the same words can be compared row by row,
and the root is where one begins to read. A drawing keeps its size and lies in a box that scrolls where it is too wide.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from espalier.engine.labels.trees import TOP, Tree
from espalier.tasks.pages.charts import clip, text
from espalier.tasks.pages.page import Html, tag

CHARACTER, GAP, ROW, NAME = 7.5, 13, 20, 24  # width of a character, between columns, height of a row, longest text
DOT = "·"  # where a bracket has no label

Wrong = Callable[[str, int, int], bool]


class Placed(NamedTuple):
    """A node with its place: how deep it is, and the words below it, of which the first one is its row."""

    label: str
    depth: int
    begin: int
    end: int
    word: str | None
    below: tuple["Placed", ...]

    @property
    def y(self) -> float:
        return ROW * (self.begin + 0.7)

    @property
    def shown(self) -> str:
        return clip(self.label, NAME) if self.label or self.word is not None else DOT


def draw(tree: Tree, title: str, wrong: Wrong) -> Html:
    """The tree; `wrong` says of a bracket (label, from, to) whether it is marked."""
    while tree.label in (TOP, "") and len(tree.children) == 1 and tree.word is None and _inner(tree).word is None:
        tree = _inner(tree)
    nodes = list(_nodes(_placed(tree, 0, 0)))
    columns = _columns(nodes)
    parts: list[Html] = []
    for node in nodes:
        parts += _lines(node, columns)
        parts += _texts(node, columns[node.depth], wrong)
    width = max(columns[node.depth] + _width(node.shown) + GAP + _width(clip(node.word or "", NAME)) for node in nodes)
    height = ROW * nodes[0].end + 4
    box = tag("svg", tag("title", title), *parts, viewBox=f"0 0 {width:.0f} {height:.0f}", role="img", class_="tree",
              width=f"{width:.0f}", height=f"{height:.0f}")  # fmt: skip
    return tag("div", box, class_="scroll tree-box", tabindex="0")


def _inner(tree: Tree) -> Tree:
    return tree.children[0]


def _placed(tree: Tree, depth: int, begin: int) -> Placed:
    if tree.word is not None:
        return Placed(tree.label, depth, begin, begin + 1, tree.word, ())
    below, at = [], begin
    for child in tree.children:
        below.append(_placed(child, depth + 1, at))
        at = below[-1].end
    return Placed(tree.label, depth, begin, at, None, tuple(below))


def _nodes(node: Placed) -> Iterator[Placed]:
    yield node
    for child in node.below:
        yield from _nodes(child)


def _width(name: str) -> float:
    return CHARACTER * len(name)


def _columns(nodes: list[Placed]) -> list[float]:
    """Where the labels of each depth begin: behind the longest bracket of the depth before."""
    widest = [0.0] * (2 + max(node.depth for node in nodes))
    for node in nodes:
        if node.word is None:
            widest[node.depth] = max(widest[node.depth], _width(node.shown) + GAP)
    return [2.0 + sum(widest[:depth]) for depth in range(len(widest))]


def _lines(node: Placed, columns: list[float]) -> list[Html]:
    """From a label to those below it: straight on to the first, down and to the right to the others."""
    if not node.below:
        return []
    x, to = columns[node.depth], columns[node.depth + 1] - 3
    made = [_line(x + _width(node.shown) + 2, node.y - 4, to, node.y - 4)]
    others = node.below[1:]
    if others:
        made.append(_line(x + 4, node.y + 4, x + 4, others[-1].y - 4))
    return made + [_line(x + 4, child.y - 4, to, child.y - 4) for child in others]


def _line(x1: float, y1: float, x2: float, y2: float) -> Html:
    return tag("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_="tree-line")


def _texts(node: Placed, x: float, wrong: Wrong) -> list[Html]:
    if node.word is None:
        marked = wrong(node.label, node.begin, node.end)
        return [text(node.shown, x, node.y, "tree-wrong" if marked else "tree-label", "start")]
    behind = x + _width(node.shown) + (GAP / 2 if node.shown else 0)
    tagged = [text(node.shown, x, node.y, "tree-tag", "start")] if node.shown else []
    return [*tagged, text(clip(node.word, NAME), behind, node.y, "tree-word", "start")]


def pair(right: Html, said: Html) -> Html:
    """Both trees, side by side where there is room; the rows of both are the same words."""
    return tag("div", *(tag("div", tag("p", name, class_="tree-name"), drawn)
                        for name, drawn in (("Right", right), ("Predicted", said))), class_="panels")  # fmt: skip
