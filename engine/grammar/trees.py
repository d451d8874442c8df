"""Trees in Penn brackets: read, written, cleaned, made binary and whole again.

A tree is a label and children; a child that is a text is a word.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from espalier.engine.errors import EspalierError

DEEPEST = 400  # of nested brackets: functions below follow them by calling themselves
EMPTY = "-NONE-"  # the tag of words that are not there
TOP = "TOP"  # of trees whose outer bracket has no label
PARTS = re.compile(r"\n|[()]|[^\s()]+")
HALF, UP = "@", "^"  # in labels made here: what begins that of half a rule, what stands before a parent


class Tree(NamedTuple):
    label: str
    children: tuple  # of trees or words

    @property
    def word(self) -> str | None:
        """The word of a tag; None for what has other children."""
        return self.children[0] if len(self.children) == 1 and isinstance(self.children[0], str) else None


def read_trees(text: str, name: str = "the text") -> Iterator[Tree]:
    """The trees of a text, each on any number of lines; brackets that do not close are named by their line."""
    open_ones: list[tuple[int, list]] = []  # line, what is in the bracket so far
    line = 1
    for found in PARTS.finditer(text):
        part = found.group()
        if part == "\n":
            line += 1
        elif part == "(":
            if len(open_ones) == DEEPEST:
                raise EspalierError(f"line {line} of {name}: brackets nest deeper than {DEEPEST}")
            open_ones.append((line, []))
        elif not open_ones:
            what = "a bracket closes that was not opened" if part == ")" else f"{part[:40]!r} stands outside of them"
            raise EspalierError(f"line {line} of {name}: {what}: check the brackets of the tree before it")
        elif part == ")":
            tree = _closed(*open_ones.pop(), name)
            if open_ones:
                open_ones[-1][1].append(tree)
            else:
                yield tree
        else:
            open_ones[-1][1].append(part)
    if open_ones:
        raise EspalierError(f"line {open_ones[0][0]} of {name}: a bracket opens that is never closed")


def _closed(line: int, inside: list, name: str) -> Tree:
    label = inside[0] if inside and isinstance(inside[0], str) else ""
    children = tuple(inside[1:] if label else inside)
    words = [child for child in children if isinstance(child, str)]
    if not children:
        raise EspalierError(f"line {line} of {name}: a bracket has nothing in it but {label!r}: expected more")
    if words and (len(children) > 1 or not label):
        raise EspalierError(
            f"line {line} of {name}: {words[0][:40]!r} stands beside others in a bracket: expected a tag and one "
            "word, or a label and brackets"
        )
    return Tree(label or TOP, children)


def written(tree: Tree) -> str:
    """One line, as `read_trees` reads it; the outer bracket without a label where it had none."""
    label = "" if tree.label == TOP else tree.label
    return f"({label}{' ' * bool(label)}{' '.join(c if isinstance(c, str) else written(c) for c in tree.children)})"


def leaves(tree: Tree) -> list[tuple[str, str]]:
    """(tag, word) from left to right."""
    if tree.word is not None:
        return [(tree.label, tree.word)]
    return [leaf for child in tree.children for leaf in leaves(child)]


def plain_label(label: str) -> str:
    """The category without functional tags and numbers: NP-SBJ-1 and NP=2 are NP; -NONE- and -LRB- stay."""
    return label if label.startswith("-") else re.split(r"[-=]", label, maxsplit=1)[0]


def cleaned(tree: Tree, functions: bool = False) -> Tree | None:
    """Without empty words and what they leave empty, without functional tags (unless they are kept), with TOP above.

    None where nothing is left.
    """
    inner = _cleaned(tree, functions)
    if inner is None or inner.label == TOP:
        return inner
    return Tree(TOP, (inner,))


def _cleaned(tree: Tree, functions: bool) -> Tree | None:
    if tree.word is not None:
        return None if tree.label == EMPTY else tree
    children = tuple(kept for child in tree.children if (kept := _cleaned(child, functions)) is not None)
    return Tree(tree.label if functions else plain_label(tree.label), children) if children else None


def check_labels(tree: Tree) -> None:
    """Refuses labels that those made here could be taken for."""
    if tree.word is None:
        if tree.label.startswith(HALF) or UP in tree.label:
            raise EspalierError(f"the label {tree.label!r} has {HALF!r} or {UP!r}, as those of binary trees do")
        for child in tree.children:
            check_labels(child)


def binarised(
    tree: Tree, horizontal: int = 1, vertical: int = 1, right: bool = True, above: tuple[str, ...] = ()
) -> Tree:
    """At most two children for each node; `whole` undoes it.

    A node for half a rule says which rule it is of, and the last `horizontal` children that went before it; `right`
    cuts off one child after the other from the left. With `vertical` 2 or more a label names as many, less one, above.
    """
    if tree.word is not None:
        return tree
    label = UP.join((tree.label, *above[: vertical - 1]))
    children = [binarised(child, horizontal, vertical, right, (tree.label, *above)) for child in tree.children]
    names = [child.label for child in tree.children]
    return _halved(label, children, names, horizontal) if right else _mirrored(
        _halved(label, [_mirrored(child) for child in children[::-1]], names[::-1], horizontal)
    )  # fmt: skip


def _halved(label: str, children: list[Tree], names: list[str], horizontal: int) -> Tree:
    made = children[-1]
    for k in range(len(children) - 2, 0, -1):
        before = names[max(0, k - horizontal) : k]
        made = Tree(f"{HALF}{label}|{' '.join(before).replace(' ', '_')}", (children[k], made))
    return Tree(label, (children[0], made) if len(children) > 1 else (made,))


def _mirrored(tree: Tree) -> Tree:
    if tree.word is not None:
        return tree
    return Tree(tree.label, tuple(_mirrored(child) for child in tree.children[::-1]))


def whole(tree: Tree) -> Tree:
    """The tree before `binarised`."""
    if tree.word is not None:
        return tree
    children: list[Tree] = []
    for child in map(whole, tree.children):
        children += child.children if child.label.startswith(HALF) else [child]
    label = tree.label if tree.label.startswith(HALF) else tree.label.split(UP)[0]
    return Tree(label, tuple(children))
