"""Trees: read from Penn brackets, written, cleaned, and spread over their words as labels of these.

A tree is a label and children; a child that is a text is a word. As labels of words trees are pieces, as CoNLL-2012 has
them: all that opens before the word, `*` for the word, all that closes behind it. A tag is a bracket around its word.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from espalier.engine.errors import EspalierError

DEEPEST = 400  # of nested brackets that are read: what cleans and binarises trees calls itself for each
EMPTY = "-NONE-"  # the tag of words that are not there
TOP = "TOP"  # of trees whose outer bracket has no label
PARTS = re.compile(r"\n|[()]|[^\s()]+")


class Tree(NamedTuple):
    label: str
    children: tuple  # of trees or words

    @property
    def word(self) -> str | None:
        """The word of a tag; None for what has other children."""
        return self.children[0] if len(self.children) == 1 and isinstance(self.children[0], str) else None


class LocatedTree(NamedTuple):
    """A tree, or a string of words without one, and the line where it begins."""

    line: int
    tree: Tree | None
    words: list[str]


def read_trees(text: str, name: str = "the text") -> Iterator[Tree]:
    """The trees of a text, each on any number of lines; brackets that do not close are named by their line."""
    for found in located(text, name):
        if found.tree is None:
            raise _outside(found.line, name, found.words[0])
        yield found.tree


def located(text: str, name: str, before: int = 0) -> Iterator[LocatedTree]:
    """Trees, and lines without brackets as strings of words; `before` lines come before the text."""
    open_ones: list[tuple[int, list]] = []  # line, what is in the bracket so far
    words: list[str] = []  # of a line outside of all brackets
    line, last = before + 1, 0  # and the line on which the tree before ended
    for found in PARTS.finditer(text):
        part = found.group()
        if part == "\n":
            if words and not open_ones:
                yield LocatedTree(line, None, words)
                words = []
            line += 1
        elif part == "(":
            if words:
                raise _outside(line, name, words[0])
            if len(open_ones) == DEEPEST:
                raise EspalierError(f"line {line} of {name}: brackets nest deeper than {DEEPEST}")
            open_ones.append((line, []))
        elif part == ")":
            if not open_ones:
                what = "a bracket closes that was not opened"
                raise EspalierError(f"line {line} of {name}: {what}: check the brackets of the tree before it")
            began, inside = open_ones.pop()
            tree = _closed(began, inside, name)
            if open_ones:
                open_ones[-1][1].append(tree)
            else:
                yield LocatedTree(began, tree, [word for _, word in leaves(tree)])
                last = line
        elif open_ones:
            open_ones[-1][1].append(part)
        else:
            if line == last:
                raise _outside(line, name, part)
            words.append(part)
    if open_ones:
        raise EspalierError(f"line {open_ones[0][0]} of {name}: a bracket opens that is never closed")
    if words:
        yield LocatedTree(line, None, words)


def _outside(line: int, name: str, word: str) -> EspalierError:
    what = f"{word[:40]!r} stands outside of them"
    return EspalierError(f"line {line} of {name}: {what}: check the brackets of the tree before it")


def bracketed(text: str, name: str, line: int) -> Tree:
    """The tree of a line of words with brackets that have no labels; the outermost one may be left out."""
    open_ones: list[list] = [[]]
    for part in PARTS.findall(text):
        if part == "(":
            if len(open_ones) == DEEPEST:
                raise EspalierError(f"line {line} of {name}: brackets nest deeper than {DEEPEST}")
            open_ones.append([])
        elif part != ")":
            open_ones[-1].append(Tree("", (part,)))
        elif len(open_ones) == 1:
            raise EspalierError(f"line {line} of {name}: a bracket closes that was not opened")
        elif not open_ones[-1]:
            raise EspalierError(f"line {line} of {name}: a bracket has nothing in it: expected words")
        else:
            inside = open_ones.pop()
            open_ones[-1].append(Tree("", tuple(inside)))
    if len(open_ones) > 1:
        raise EspalierError(f"line {line} of {name}: a bracket opens that is never closed")
    whole = open_ones[0]
    return whole[0] if len(whole) == 1 and whole[0].word is None else Tree("", tuple(whole))


def _closed(line: int, inside: list, name: str) -> Tree:
    label = inside[0] if inside and isinstance(inside[0], str) else ""
    children = tuple(inside[1:] if label else inside)
    words = [child for child in children if isinstance(child, str)]
    if not children:
        only = f" but {label[:40]!r}" if label else ""
        raise EspalierError(f"line {line} of {name}: a bracket has nothing in it{only}: expected brackets or a word")
    if words and (len(children) > 1 or not label):
        raise EspalierError(
            f"line {line} of {name}: {words[0][:40]!r} stands beside others in a bracket: expected a tag and one "
            "word, or a label and brackets (ingest.bare takes lines whose brackets have no labels)"
        )
    return Tree(label or TOP, children)


def written(tree: Tree) -> str:
    """One line, as `read_trees` reads it; the outer bracket without a label where it had none."""
    parts: list[str] = []
    for node, opens in walk(tree):
        if opens:
            parts.append(f" ({'' if node.label == TOP else node.label}")
            parts += [f" {node.word}"] if node.word is not None else []
        else:
            parts.append(")")
    return "".join(parts)[1:].replace("( ", "(")


def walk(tree: Tree) -> Iterator[tuple[Tree, bool]]:
    """All nodes, each when it opens (true) and when it closes; trees of long sentences are deeper than calls nest."""
    waiting = [(tree, True)]
    while waiting:
        node, opens = waiting.pop()
        yield node, opens
        if opens:
            waiting.append((node, False))
            if node.word is None:
                waiting += [(child, True) for child in node.children[::-1]]


def without_labels(tree: Tree) -> Tree:
    """The same brackets and words, of which nothing is said."""
    inside: list[list] = [[]]
    for node, opens in walk(tree):
        if opens:
            inside.append([] if node.word is None else [node.word])
        else:
            made = Tree("", tuple(inside.pop()))
            inside[-1].append(made)
    return inside[0][0]


def leaves(tree: Tree) -> list[tuple[str, str]]:
    """(tag, word) from left to right."""
    found, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        if node.word is not None:
            found.append((node.label, node.word))
        else:
            waiting += node.children[::-1]
    return found


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


# ---- trees as labels of their words

PIECE = re.compile(r"\(([^()*\s]*)|(\*)|(\))")
UNSEEN = "*"  # stands for a word in a piece


def pieces(tree: Tree) -> list[str]:
    """What each word of a tree has around it."""
    made: list[str] = []
    opened: list[str] = []
    for node, opens in walk(tree):
        is_bracket = node.word is None or bool(node.label)
        if is_bracket and opens:
            if set(node.label) & set("()*"):
                raise EspalierError(f"the label {node.label[:40]!r} has a bracket or an asterisk: expected neither")
            opened.append(f"({node.label}")
        if node.word is not None and opens:
            made.append("".join(opened) + UNSEEN)
            opened.clear()
        if is_bracket and not opens:
            made[-1] += ")"
    return made


@lru_cache(maxsize=1 << 16)
def _parts(piece: str) -> tuple[tuple[str, str], ...]:
    return tuple((found.group(), found.group(1)) for found in PIECE.finditer(piece))


def tag_of(piece: str) -> str:
    """The tag of the word of a piece; the empty text where it has none, or where nothing is known."""
    found = _parts(piece)
    at = next((n for n, (part, _) in enumerate(found) if part == UNSEEN), 0)
    closed = at + 1 < len(found) and found[at + 1][0] == ")"
    return found[at - 1][1] if at and closed else ""


def labels_above(piece: str) -> list[str]:
    """The labels of the brackets that open before a word, without its tag."""
    found = [label for part, label in _parts(piece) if part.startswith("(")]
    return found[:-1] if tag_of(piece) else found


def tree_of(labels: Sequence[str], words: Sequence[str] | None = None) -> Tree | None:
    """The tree of pieces; None where one is unknown, or where they make no tree. Words are asterisks unless given."""
    open_ones: list[tuple[str, list]] = [("", [])]
    for n, piece in enumerate(labels):
        if UNSEEN not in piece:
            return None
        for part, label in _parts(piece):
            if part == UNSEEN:
                word = UNSEEN if words is None else words[n]
                open_ones[-1][1].append(word)
            elif part != ")":
                open_ones.append((label, []))
            elif len(open_ones) == 1:
                return None
            else:
                name, inside = open_ones.pop()
                if len(inside) > 1 or not name:  # words that have no tag
                    inside = [Tree("", (one,)) if isinstance(one, str) else one for one in inside]
                open_ones[-1][1].append(Tree(name, tuple(inside)))
    _, top = open_ones[0]
    if len(open_ones) > 1 or len(top) != 1:
        return None
    return Tree("", (top[0],)) if isinstance(top[0], str) else top[0]
