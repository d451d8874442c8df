"""What a grammar says of a string: log P, trees, posteriors of spans, the tree of most expected recall, prefixes."""

import math
from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.grammar.best import Climber
from espalier.engine.grammar.charts import DEAD, LN2, MEMORY, cell
from espalier.engine.grammar.closures import left_corners
from espalier.engine.grammar.expected import ChartRoom, Machine, make_room
from espalier.engine.grammar.kbest import Chooser, Several
from espalier.engine.grammar.rules import Grammar
from espalier.engine.grammar.sparse import power
from espalier.engine.grammar.strings import Strings, make_strings
from espalier.engine.runtime.jit import kernel


class Spans(NamedTuple):
    """A bracketing with a symbol for each span, in preorder, and the expected number of right ones."""

    symbol: np.ndarray
    start: np.ndarray
    end: np.ndarray
    expected: float


@kernel
def recall_chart(length, posterior, symbols, gain, which, split):
    """gain(i, j) = max over symbols of the posterior + the best cut of the span in two; 0 for what cannot be."""
    for span in range(1, length + 1):
        for i in range(length - span + 1):
            c = cell(i, i + span, length)
            best, symbol = 0.0, -1
            for a in range(symbols):
                if posterior[c, a] > best:
                    best, symbol = posterior[c, a], a
            halves, middle = -1.0, -1
            for k in range(i + 1, i + span):
                value = gain[cell(i, k, length)] + gain[cell(k, i + span, length)]
                if value > halves:
                    halves, middle = value, k
            gain[c], which[c], split[c] = best + max(halves, 0.0), symbol, middle


@kernel
def prefix_chart(words, corners, start, parent, left, right, binary, word_at, tag, lexical, chart, exponent, log_p):
    """log P of all strings that begin like the words, for each number of words.

    With pre(A, i) the probability that A begins with x_i to x_n:
    pre(., i) = L b, b(A) = sum of p(A -> B C) e(B, i, k) pre(C, k) over k, b(A) = p(A -> x_n) at the last word,
    L the closure over left corners (Jelinek and Lafferty 1991). O(T^2 rules) for each number of words.
    """
    length, n_symbols = len(words), len(corners)
    pre, top = np.zeros((length + 1, n_symbols)), np.zeros(length + 1, np.int64)
    base = np.zeros(n_symbols)
    for n in range(1, length + 1):
        for i in range(n - 1, -1, -1):
            base[:] = 0.0
            high = DEAD
            if i == n - 1:
                high = 0
                if words[i] >= 0:
                    for r in range(word_at[words[i]], word_at[words[i] + 1]):
                        base[tag[r]] = lexical[r]
            else:
                for k in range(i + 1, n):
                    c = cell(i, k, length)
                    if exponent[c] != DEAD and top[k] != DEAD:
                        high = max(high, exponent[c] + top[k])
                for k in range(i + 1, n if high != DEAD else i):
                    c = cell(i, k, length)
                    if exponent[c] != DEAD and top[k] != DEAD:
                        weight = power(exponent[c] + top[k] - high)
                        for r in range(len(binary)):
                            base[parent[r]] += weight * binary[r] * chart[c, left[r]] * pre[k, right[r]]
            most = 0.0
            for a in range(n_symbols):
                pre[i, a] = 0.0
                for d in range(n_symbols):
                    pre[i, a] += corners[a, d] * base[d]
                most = max(most, pre[i, a])
            if most == 0.0:
                top[i] = DEAD
                continue
            shift = math.frexp(most)[1]
            top[i] = high + shift
            scale = math.ldexp(1.0, -shift)
            for a in range(n_symbols):
                pre[i, a] *= scale
        log_p[n - 1] = -np.inf
        if top[0] != DEAD and pre[0, start] > 0.0:
            log_p[n - 1] = np.log(pre[0, start]) + top[0] * LN2


class Parser:
    """A trained grammar, made ready once. A string that it cannot derive has log P -inf and no tree."""

    def __init__(self, grammar: Grammar, path: str = "auto", memory: int = MEMORY):
        self.grammar, self.path, self.memory = grammar, path, memory
        self.machine = Machine(grammar, path, memory)
        self.chooser = Chooser(grammar, path, memory)

    def log_p(self, data: Strings) -> np.ndarray:
        """log P of each string over all its trees (which cross none of its brackets)."""
        return self.machine.expected(data, wanted=False).log_p

    def best(self, data: Strings):
        """The likeliest tree of each string; see `engine.grammar.best.Best`."""
        return Climber.trees(self.chooser, data)

    def several(self, words: np.ndarray, k: int) -> Several:
        return self.chooser.several(np.asarray(words, np.int32), np.zeros((0, 2), np.int32), k)

    def _charts(self, words, wanted: bool) -> tuple[ChartRoom, float]:
        data, log_p = make_strings([words]), np.full(1, -np.inf)
        room = make_room(len(words), self.machine.tables, self.machine.dense, wanted)
        self.machine.run(data, 0, 1, room, wanted, log_p)
        return room, float(log_p[0])

    def posteriors(self, words) -> np.ndarray:
        """[spans, symbols]: the expected number of each symbol over each span, which `charts.cell` numbers."""
        room, log_p = self._charts(words, True)
        if log_p == -np.inf:
            raise EspalierError(f"the grammar cannot derive this string of {len(words)} words: there are no posteriors")
        alive = room.exponent != DEAD
        return np.where(alive[:, None], room.chart * room.out, 0.0)[:, : len(self.grammar.symbols)]

    def most_recall(self, words) -> Spans:
        """The bracketing that has most of the right spans and symbols on average (Goodman 1996)."""
        posterior, length = self.posteriors(words), len(words)
        gain, which, split = np.zeros(len(posterior)), *np.zeros((2, len(posterior)), np.int32)
        recall_chart(length, posterior, posterior.shape[1], gain, which, split)
        found, todo = [], [(0, length)]
        while todo:
            i, j = todo.pop()
            c = cell.py_func(i, j, length) if hasattr(cell, "py_func") else cell(i, j, length)
            found.append((which[c], i, j))
            if j > i + 1:
                todo += [(int(split[c]), j), (i, int(split[c]))]
        return Spans(*np.array(found, np.int32).T, float(gain[length - 1]))

    def prefixes(self, words) -> np.ndarray:
        """log of the probability of all strings that begin with the first word, the first two, …; trees must end."""
        room, log_p = self._charts(words, False)[0], np.zeros(len(words))
        g, tables = self.grammar, self.machine.tables
        prefix_chart(np.asarray(words, np.int32), left_corners(g), g.start, g.parent, g.left, g.right, g.binary,
                     tables.word_at, tables.tag, tables.lexical, room.chart, room.exponent, log_p)  # fmt: skip
        return log_p
