"""Small grammars for tests: as rows for the oracle and as arrays for the engine."""

import numpy as np
from reference.grammar import Rules

from espalier.engine.grammar.rules import make_grammar

WORDS = ["a", "b", "c"]


def shares(random, owners, n):
    """Probabilities of rules by their left side."""
    raw = random.uniform(0.1, 1.0, len(owners))
    return raw / np.bincount(owners, raw, n)[owners]


def random_rules(seed, n=3, density=0.6, unary=0, ends=0.6):
    """A grammar in which each symbol has words, some binary rules, and rules of one symbol that go round."""
    random = np.random.default_rng(seed)
    binary = [(a, b, c) for a in range(n) for b in range(n) for c in range(n) if random.random() < density]
    lexical = [(a, w) for a in range(n) for w in range(len(WORDS)) if random.random() < 0.8 or w == a % 3]
    links = [(a, (a + 1 + k) % n) for a in range(n) for k in range(unary)]
    owners = np.array([row[0] for row in (*binary, *lexical, *links)])
    lift = np.array([1.0 - ends] * len(binary) + [ends] * len(lexical) + [0.2] * len(links))
    raw = random.uniform(0.1, 1.0, len(owners)) * lift
    for a in range(n):  # a symbol without binary rules ends all the same
        raw[owners == a] /= raw[owners == a].sum()
    p = iter(raw.tolist())
    return Rules(0, [(*row, next(p)) for row in binary], [(*row, next(p)) for row in lexical],
                 [(*row, next(p)) for row in links])  # fmt: skip


def grammar_of(rules, n=3, words=WORDS):
    """The engine's grammar, and for each of its rules the place in a row of the oracle's counts."""
    tables = [np.array(rows, float).reshape(-1, width) for rows, width in zip(rules[1:], (4, 3, 3), strict=True)]
    grammar = make_grammar([f"N{k}" for k in range(n)], words, rules.start, *tables)
    sorts = (0, 2, 1), (0, 1), (1, 0)
    orders = [np.lexsort(tuple(rows[:, k] for k in by)) for rows, by in zip(tables, sorts, strict=True)]
    cuts = np.cumsum([0, len(tables[0]), len(tables[1])])
    return grammar, np.concatenate([order + cut for order, cut in zip(orders, cuts, strict=True)])
