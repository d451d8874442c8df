"""Grammars counted from trees: rules of binary trees, words that are rare by classes; parsing texts with them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.grammar.best import Climber
from espalier.engine.grammar.rules import Grammar, make_grammar
from espalier.engine.grammar.strings import UNKNOWN, Strings, make_strings
from espalier.engine.grammar.trees import Tree, binarised, check_labels, leaves, whole

CLASS = "\x00"  # what a class begins with, so that no word is taken for one
ENDINGS = ("ing", "ed", "ly", "er", "est", "ion", "al", "ity", "s")


@dataclass(frozen=True)
class TreebankOptions:
    horizontal: int = 1  # children that half a rule remembers
    vertical: int = 2  # labels that a label names: 2 is its own and its parent's
    right: bool = True
    rare: int = 1  # words that occur as often or less are counted by their classes
    smoothing: float = 0.01  # added to a class for each tag that rare words have


def class_of(word: str) -> str:
    """What is seen of a word that is unknown: digits, capitals, a hyphen, its ending."""
    if any(c.isdigit() for c in word):
        return CLASS + ("number" if not any(c.isalpha() for c in word) else "number with letters")
    shape = "capitals" if word.isupper() else "capital" if word[:1].isupper() else "small"
    ending = next((end for end in ENDINGS if len(word) > len(end) + 1 and word.lower().endswith(end)), "")
    return f"{CLASS}{shape}{' hyphen' * ('-' in word)} {ending}"


ANY = CLASS + "any"


class Treebank(NamedTuple):
    """A grammar of trees, and how words become its terminals."""

    grammar: Grammar
    numbers: dict[str, int]  # of words and classes

    def encoded(self, words: Sequence[str]) -> list[int]:
        """Words by their numbers; of those that are unknown the class, of unknown classes the one of all."""
        known = self.numbers
        return [known.get(word, known.get(class_of(word), known.get(ANY, UNKNOWN))) for word in words]

    def parser(self) -> "TreebankParser":
        return TreebankParser(self)


def make_treebank(trees: Iterable[Tree], options: TreebankOptions | None = None) -> Treebank:
    """Relative counts of the rules of the trees after they were made binary."""
    options, kept = options or TreebankOptions(), list(trees)
    if not kept:
        raise EspalierError("there is no tree to count rules of: expected at least one")
    often = Counter(word for tree in kept for _, word in leaves(tree))
    binary, unary, lexical = Counter(), Counter(), Counter()
    for tree in kept:
        check_labels(tree)
        _count(binarised(tree, options.horizontal, options.vertical, options.right), binary, unary, lexical)
    words = _by_class(lexical, often, options)
    symbols = sorted({name for rule in (*binary, *unary) for name in rule} | {tag for tag, _ in lexical})
    numbers = {word: n for n, word in enumerate(sorted({word for _, word in words}))}
    place = {name: n for n, name in enumerate(symbols)}
    starts = {tree.label for tree in kept}
    if len(starts) > 1:
        raise EspalierError(f"trees begin with {', '.join(sorted(starts)[:5])}: expected one label for all, as TOP")
    rows = [[*(place[name] for name in rule), n] for rule, n in sorted(binary.items())]
    links = [[*(place[name] for name in rule), n] for rule, n in sorted(unary.items())]
    tagged = [[place[tag], numbers[word], n] for (tag, word), n in sorted(words.items())]
    grammar = make_grammar(symbols, sorted(numbers), place[starts.pop()], rows, tagged, links)
    return Treebank(grammar, numbers)


def _count(tree: Tree, binary: Counter, unary: Counter, lexical: Counter) -> None:
    if tree.word is not None:
        lexical[tree.label, tree.word] += 1
        return
    rule = tree.label, *(child.label for child in tree.children)
    (binary if len(rule) == 3 else unary)[rule] += 1
    for child in tree.children:
        _count(child, binary, unary, lexical)


def _by_class(lexical: Counter, often: Counter, options: TreebankOptions) -> Counter:
    """Rare words count half for their class and half for the class of all, whose tags are smoothed."""
    made, tags = Counter(), {tag for (tag, word) in lexical if often[word] <= options.rare}
    for (tag, word), n in lexical.items():
        if often[word] > options.rare:
            made[tag, word] += n
        else:
            made[tag, class_of(word)] += n / 2
            made[tag, ANY] += n / 2
    for tag in tags:
        made[tag, ANY] += options.smoothing
    return made


class TreebankParser:
    """The likeliest tree of texts, made whole again; None where the grammar has none."""

    def __init__(self, bank: Treebank):
        self.bank, self.climber = bank, Climber(bank.grammar)

    def strings(self, texts: Sequence[Sequence[str]]) -> Strings:
        return make_strings([self.bank.encoded(text) for text in texts])

    def parse(self, texts: Sequence[Sequence[str]]) -> list[Tree | None]:
        found = self.climber.trees(self.strings(texts))
        nodes = found.nodes
        return [self._tree(nodes.rule[a:b], text) if b > a else None
                for a, b, text in zip(nodes.at[:-1], nodes.at[1:], texts, strict=True)]  # fmt: skip

    def _tree(self, rules: np.ndarray, words: Sequence[str]) -> Tree:
        grammar, left = self.bank.grammar, iter(words)
        binary, owners = len(grammar.binary), grammar.owners
        waiting: list[Tree] = []
        texts = list(left)[::-1]
        for rule in rules[::-1]:  # children before their parent, the last one first
            label = grammar.symbols[owners[rule]]
            if rule < binary:
                waiting.append(Tree(label, (waiting.pop(), waiting.pop())))
            elif rule < binary + len(grammar.lexical):
                waiting.append(Tree(label, (texts.pop(0),)))
            else:
                waiting.append(Tree(label, (waiting.pop(),)))
        return whole(waiting[0])
