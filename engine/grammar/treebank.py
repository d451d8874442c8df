"""Grammars counted from trees: rules of binary trees, and what stands for words that are rare or unknown.

Each word comes with a row of terminals, itself first, then what it has in common with others, from narrow to wide
classes; -1 is none. Its terminal is the first of the row that is not rare. Rare words count for all of their classes
alike, so that each class has the tags that words of it have.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.grammar.binary_trees import binarised, check_labels, joined
from espalier.engine.grammar.rules import Grammar, make_grammar
from espalier.engine.grammar.strings import UNKNOWN
from espalier.engine.labels.trees import Tree, leaves
from espalier.engine.runtime import vectors

SIDES = ("right", "left")


@dataclass(frozen=True)
class TreebankOptions:
    horizontal: int = 1  # children that half a rule remembers
    vertical: int = 2  # labels that a label names: 2 is its own and its parent's
    right: bool = True
    rare: int = 2  # terminals that occur as often or less are left to their classes
    smoothing: float = 0.01  # added to the widest class for each tag of rare words, or of all where none is rare


class Treebank(NamedTuple):
    """A grammar of trees; its terminals are some of the numbers that rows hold."""

    grammar: Grammar
    terminals: np.ndarray  # int32 [W], the number of each word of the grammar
    objective: float  # minus the log-probability of all that was counted


def make_treebank(
    trees: Iterable[Tree], rows: np.ndarray, texts: Sequence[str], options: TreebankOptions | None = None,
    weights: Sequence[float] | None = None,
) -> Treebank:  # fmt: skip
    """Relative counts of the rules of the trees after they were made binary; `texts` are those of terminals.

    `rows`, int [T, K], has K terminals for each word of all trees; trees count as much as their weight.
    """
    options, kept = options or TreebankOptions(), list(trees)
    if not kept:
        raise EspalierError("there is no tree to count rules of: expected at least one")
    amounts = [1.0] * len(kept) if weights is None else [float(weight) for weight in weights]
    frequent = frequent_terminals(rows, len(texts), options.rare)
    binary, unary, tagged, rare_tags, at = Counter(), Counter(), Counter(), set(), 0
    for tree, weight in zip(kept, amounts, strict=True):
        check_labels(tree)
        tags = [tag for tag, _ in leaves(tree)]
        _count(binarised(tree, options.horizontal, options.vertical, options.right), weight, binary, unary)
        for tag, row in zip(tags, rows[at : at + len(tags)].tolist(), strict=True):
            shares, is_rare = _shares(row, frequent)
            if is_rare:
                rare_tags.add(tag)
            for terminal in shares:
                tagged[tag, terminal] += weight / len(shares)
        at += len(tags)
    widest = np.unique(rows[:, -1])
    if len(widest) == 1 and rows.shape[1] > 1 and options.smoothing:
        for tag in sorted(rare_tags or {tag for tag, _ in tagged}):
            tagged[tag, int(widest[0])] += options.smoothing
    starts = {tree.label for tree in kept}
    if len(starts) > 1:
        raise EspalierError(f"trees begin with {', '.join(sorted(starts)[:5])}: expected one label for all, as TOP")
    symbols = sorted({name for rule in (*binary, *unary) for name in rule} | {tag for tag, _ in tagged})
    place = {name: n for n, name in enumerate(symbols)}
    terminals = np.array(sorted({terminal for _, terminal in tagged}), np.int32)
    of_rules = [[[*(place[name] for name in rule), n] for rule, n in sorted(some.items())] for some in (binary, unary)]
    words = [[place[tag], np.searchsorted(terminals, word), n] for (tag, word), n in sorted(tagged.items())]
    names = [texts[int(n)] for n in terminals]
    grammar = make_grammar(symbols, names, place[starts.pop()], of_rules[0], words, of_rules[1])
    totals = np.zeros(len(symbols))
    for rows_of_kind in (*of_rules, words):
        for row in rows_of_kind:
            totals[row[0]] += row[-1]
    loss = -float(np.sum(grammar.probabilities * totals[grammar.owners] * vectors.log(grammar.probabilities)))
    return Treebank(grammar, terminals, loss)


def frequent_terminals(rows: np.ndarray, n: int, rare: int) -> np.ndarray:
    """Which terminals are more than rare, bool [n]: a word by how often it is there, a class by its rarer words."""
    frequent, left = np.zeros(n, bool), np.ones(len(rows), bool)
    for column in rows.T:
        there = column >= 0
        frequent |= np.bincount(column[left & there], minlength=n) > rare
        left &= ~(there & frequent[column])
    return frequent


def _shares(row: list[int], frequent: np.ndarray) -> tuple[list[int], bool]:
    """(what a word counts for, whether it is rare): itself, or its classes that are frequent, else the widest one."""
    if row[0] >= 0 and frequent[row[0]]:
        return row[:1], False
    there = [x for x in row if x >= 0]
    if not there:
        raise EspalierError("a word of a tree has no terminal: add the template U, which is there at every word")
    return [x for x in there if frequent[x]] or there[-1:], True


def _count(tree: Tree, weight: float, binary: Counter, unary: Counter) -> None:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if node.word is None:
            rule = node.label, *(child.label for child in node.children)
            (binary if len(rule) == 3 else unary)[rule] += weight
            waiting += node.children[::-1]


def terminals_of(rows: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The terminal of each word, int32 [T]: the first of its row that is known, by its number there; else -1.

    `known` has the number of each terminal in the grammar, and -1 for others and once more at the end.
    """
    made, waiting = np.full(len(rows), UNKNOWN, np.int32), np.ones(len(rows), bool)
    for column in rows.T:
        found = known[np.where(column >= 0, column, -1)]
        made[waiting] = found[waiting]
        waiting &= made < 0
    return made


def tree_of_rules(grammar: Grammar, rules: np.ndarray, words: Sequence[str]) -> Tree:
    """The tree of rules in preorder over its words, made whole again."""
    binary, owners = len(grammar.binary), grammar.owners
    waiting: list[Tree] = []
    texts = list(words)
    for rule in rules[::-1]:  # children before their parent, the last one first
        label = grammar.symbols[owners[rule]]
        if rule < binary:
            waiting.append(joined(label, waiting.pop(), waiting.pop()))
        elif rule < binary + len(grammar.lexical):
            waiting.append(Tree(label, (texts.pop(),)))
        else:
            waiting.append(joined(label, waiting.pop()))
    return waiting[0]
