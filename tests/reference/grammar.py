"""A context-free grammar with probabilities: every tree of a string enumerated.

Rules are (A, B, C, p), (A, word, p) and (A, B, p), symbols are ints and words any hashable. A tree is a tuple: its rule
as ("binary", number), ("lexical", number) or ("unary", number), from, to, and its children. Rules of one symbol may go
round, so chains of them are followed `depth` steps; with small probabilities what is left out is nothing.
"""

import math
from typing import NamedTuple

import numpy as np


class Rules(NamedTuple):
    start: int
    binary: list
    lexical: list
    unary: list = []


def crosses(i, j, brackets):
    """One of the two ends inside a bracket, and the other outside of it."""
    return any(a < i < b < j or i < a < j < b for a, b in brackets)


def trees(rules, words, brackets=(), depth=6):
    """[(probability, tree)] of all trees of the string that cross no bracket."""
    kept = {}

    def below(a, i, j, steps):
        key = a, i, j, steps
        if key not in kept:
            kept[key] = list(made(a, i, j, steps))
        return kept[key]

    def made(a, i, j, steps):
        if j == i + 1:
            for n, (parent, word, p) in enumerate(rules.lexical):
                if parent == a and word == words[i] and p > 0:
                    yield p, (("lexical", n), i, j)
        elif not crosses(i, j, brackets):
            for n, (parent, b, c, p) in enumerate(rules.binary):
                for k in range(i + 1, j) if parent == a and p > 0 else ():
                    for pl, left in below(b, i, k, depth):
                        for pr, right in below(c, k, j, depth):
                            yield p * pl * pr, (("binary", n), i, j, left, right)
        for n, (parent, b, p) in enumerate(rules.unary if steps else ()):
            if parent == a and p > 0:
                for pb, tree in below(b, i, j, steps - 1):
                    yield p * pb, (("unary", n), i, j, tree)

    return below(rules.start, 0, len(words), depth)


def nodes(tree):
    """(rule, from, to) of all nodes in preorder."""
    yield tree[:3]
    for child in tree[3:]:
        yield from nodes(child)


def symbol(rules, tree):
    kind, n = tree[0]
    return getattr(rules, kind)[n][0]


def probability(rules, words, brackets=(), depth=6):
    return math.fsum(p for p, _ in trees(rules, words, brackets, depth))


def counts(rules, weighted):
    """Rules in the trees, each tree by its share of their sum: binary, lexical, unary ones in a row."""
    total = math.fsum(p for p, _ in weighted)
    found = {"binary": [0.0] * len(rules.binary), "lexical": [0.0] * len(rules.lexical),
             "unary": [0.0] * len(rules.unary)}  # fmt: skip
    for p, tree in weighted:
        for (kind, n), _, _ in nodes(tree):
            found[kind][n] += p / total
    return np.array(found["binary"] + found["lexical"] + found["unary"])


def best(rules, words, k=1, brackets=(), depth=6):
    """The k likeliest trees, best first."""
    return sorted(trees(rules, words, brackets, depth), key=lambda one: -one[0])[:k]


def span_posteriors(rules, words, symbols, depth=6):
    """{(symbol, from, to): expected number of nodes}."""
    weighted, found = trees(rules, words, (), depth), {}
    total = math.fsum(p for p, _ in weighted)

    def add(p, tree):
        key = symbol(rules, tree), tree[1], tree[2]
        found[key] = found.get(key, 0.0) + p / total
        for child in tree[3:]:
            add(p, child)

    for p, tree in weighted:
        add(p, tree)
    return found


def bracketings(i, j):
    """All ways to cut a span in two, again and again: sets of spans."""
    if j == i + 1:
        return [frozenset([(i, j)])]
    return [
        left | right | {(i, j)} for k in range(i + 1, j) for left in bracketings(i, k) for right in bracketings(k, j)
    ]


def most_recall(rules, words, symbols, depth=6):
    """The largest sum of posteriors of one symbol a span over all bracketings."""
    found = span_posteriors(rules, words, symbols, depth)
    return max(math.fsum(max(found.get((a, *span), 0.0) for a in range(symbols)) for span in spans)
               for spans in bracketings(0, len(words)))  # fmt: skip


def strings_of(rules, longest, floor=1e-12):
    """{string: probability} of all strings of at most so many words; derivations less likely than `floor` are lost."""
    found, waiting = {}, [(1.0, (("symbol", rules.start),))]
    while waiting:
        p, form = waiting.pop()
        place = next((n for n, (kind, _) in enumerate(form) if kind == "symbol"), None)
        if place is None:
            words = tuple(name for _, name in form)
            found[words] = found.get(words, 0.0) + p
            continue
        a = form[place][1]
        more = [(q, (("symbol", b), ("symbol", c))) for parent, b, c, q in rules.binary if parent == a]
        more += [(q, (("word", word),)) for parent, word, q in rules.lexical if parent == a]
        more += [(q, (("symbol", b),)) for parent, b, q in rules.unary if parent == a]
        for q, middle in more:
            grown = form[:place] + middle + form[place + 1 :]
            if p * q > floor and len(grown) <= longest:
                waiting.append((p * q, grown))
    return found
