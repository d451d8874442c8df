"""Triangles as strings of eight directions (COURSE 4.3, practical): a grammar for each class; cells of `triangles`."""

import math
import time

import numpy as np

from espalier.engine.grammar.estimation import GrammarOptions, fit
from espalier.engine.grammar.parsing import Parser
from espalier.engine.grammar.rules import full_grammar
from espalier.engine.grammar.strings import Strings, make_strings, unbracketed

DIRECTIONS = "abcdefgh"  # a north-east, and on clockwise
CLASSES = ("equilateral", "isosceles", "right")
LEAST, MOST = 2, 10  # of a side


def sides(name: str, random: np.random.Generator) -> list[tuple[str, int]]:
    """(direction, length) of the sides of a triangle; the third side of a right one is rounded."""
    p, q = (int(n) for n in random.integers(LEAST, MOST + 1, 2))
    if name == "right":
        return [("b", p), ("g", round(math.hypot(p, q))), ("d", q)]
    return [("b", p), ("g", p if name == "equilateral" else q), ("e", p if name == "equilateral" else q)]


def drawn(name: str, count: int, seed: int) -> Strings:
    """Triangles of a class, each side in a bracket."""
    random, strings, brackets = np.random.default_rng([seed, CLASSES.index(name)]), [], []
    for _ in range(count):
        text, marks = [], []
        for direction, length in sides(name, random):
            marks.append((len(text), len(text) + length))
            text += [DIRECTIONS.index(direction)] * length
        strings.append(text)
        brackets.append(marks)
    return make_strings(strings, None, brackets)


def classified(training: str, brackets: bool, symbols: int, train: int, test: int, iterations: int) -> dict:
    """How many triangles of each class are taken for each, by the grammar that gives the largest probability."""
    begun, options = time.perf_counter(), GrammarOptions(training, brackets, 16, iterations, 1e-6)
    runs = [fit(full_grammar(symbols, list(DIRECTIONS), 0), drawn(name, train, 1), options) for name in CLASSES]
    table = []
    for name in CLASSES:
        data = unbracketed(drawn(name, test, 2))
        scores = np.stack([Parser(run.grammar).log_p(data) for run in runs])
        chosen = np.where(np.isfinite(scores).any(0), scores.argmax(0), len(CLASSES))
        table.append([int(np.count_nonzero(chosen == n)) for n in range(len(CLASSES) + 1)])
    return {"training": training, "brackets": brackets, "symbols": symbols, "train": train, "table": table,
            "seconds": time.perf_counter() - begun}  # fmt: skip
