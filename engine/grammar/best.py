"""The likeliest tree: charts of log-probabilities, which neither under- nor overflow, and the way down again.

Charts hold values alone; a tree is found by looking for the best rule once more, along the tree.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.grammar.charts import (
    MEMORY,
    cell,
    cells,
    check_length,
    is_dense,
    make_lists,
    make_tables,
    mark_spans,
    tensor,
)
from espalier.engine.grammar.expected import pieces_of
from espalier.engine.grammar.rules import Grammar
from espalier.engine.grammar.strings import Strings
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel

NONE = -np.inf


class Nodes(NamedTuple):
    """Trees as lists of nodes in preorder: rule, from, to, where the left half ends; a string from at[n] on."""

    at: np.ndarray  # int64 [N + 1]
    rule: np.ndarray  # int32
    start: np.ndarray
    end: np.ndarray
    middle: np.ndarray  # -1 for rules with one child


class Best(NamedTuple):
    log_p: np.ndarray  # of the likeliest tree of each string; -inf where there is none
    counts: np.ndarray  # of rules, by the weights of the strings
    nodes: Nodes


@kernel
def raise_chains(c, chains, row, chart):
    at, top, best = chains.at, chains.top, chains.best
    if len(top) == 0:
        return
    for b in range(len(at) - 1):
        row[b] = chart[c, b]
    for b in range(len(at) - 1):
        if row[b] > NONE:
            for u in range(at[b], at[b + 1]):
                chart[c, top[u]] = max(chart[c, top[u]], best[u] + row[b])


@kernel
def spell(words, tables, lists, row, chart):
    length = len(words)
    for i in range(length):
        c = cell(i, i + 1, length)
        chart[c, :] = NONE
        if words[i] >= 0:
            for r in range(tables.word_at[words[i]], tables.word_at[words[i] + 1]):
                chart[c, tables.tag[r]] = lists.log_lexical[r]
        raise_chains(c, tables.chains, row, chart)


@kernel
def list_active(c, left_at, chart, active):
    """The symbols of a span with which a binary rule begins; how many, -1 where the span has no symbol at all."""
    found, empty = 0, True
    for b in range(len(left_at) - 1):
        if chart[c, b] > NONE:
            empty = False
            if left_at[b + 1] > left_at[b]:
                active[c, found] = b
                found += 1
    return -1 if empty else found


@kernel
def sparse_chart(words, brackets, tables, lists, open_spans, row, chart, active, count):
    """best(A, i, j) = max of log p(A -> B C) + best(B, i, k) + best(C, k, j) by the rules that exist."""
    length = len(words)
    mark_spans(brackets, length, open_spans)
    left_at, parent, right, log_binary = tables.left_at, tables.parent, tables.right, lists.log_binary
    spell(words, tables, lists, row, chart)
    for span in range(1, length + 1):
        for i in range(length - span + 1):
            c = cell(i, i + span, length)
            if span > 1:
                chart[c, :] = NONE
                for k in range(i + 1, i + span if open_spans[c] else i):
                    one, two = cell(i, k, length), cell(k, i + span, length)
                    for n in range(count[one] if count[two] != -1 else 0):
                        b = active[one, n]
                        part = chart[one, b]
                        for rule in range(left_at[b], left_at[b + 1]):
                            value = chart[two, right[rule]]
                            if value > NONE:
                                value += part + log_binary[rule]
                                if value > chart[c, parent[rule]]:
                                    chart[c, parent[rule]] = value
                raise_chains(c, tables.chains, row, chart)
            count[c] = list_active(c, left_at, chart, active)


@kernel
def dense_chart(words, brackets, tables, lists, rules, open_spans, row, products, chart):
    """The same by whole matrices; `rules` is [(B, C), A]."""
    length, wide = len(words), chart.shape[1]
    mark_spans(brackets, length, open_spans)
    spell(words, tables, lists, row, chart)
    for span in range(2, length + 1):
        for i in range(length - span + 1):
            c = cell(i, i + span, length)
            out = chart[c]
            out[:] = NONE
            if not open_spans[c]:
                continue
            products[:] = NONE
            for k in range(i + 1, i + span):
                left, right = chart[cell(i, k, length)], chart[cell(k, i + span, length)]
                for b in range(wide):
                    x = left[b]
                    if x > NONE:
                        best = products[b * wide : (b + 1) * wide]
                        for d in range(wide):
                            y = x + right[d]
                            best[d] = y if y > best[d] else best[d]
            for p in range(wide * wide):
                x = products[p]
                if x > NONE:
                    here = rules[p]
                    for a in range(wide):
                        y = x + here[a]
                        out[a] = y if y > out[a] else out[a]


@kernel
def best_rule(a, i, j, words, tables, lists, chart):
    """(rule, where its left half ends) that gives a span its value; of equal ones the first, unary rules last."""
    length = len(words)
    n_binary, n_lexical = len(tables.binary), len(tables.lexical)
    best, which, middle = NONE, -1, -1
    if j == i + 1:
        for r in range(tables.word_at[words[i]], tables.word_at[words[i] + 1]):
            if tables.tag[r] == a and lists.log_lexical[r] > best:
                best, which = lists.log_lexical[r], n_binary + r
    for n in range(lists.binary_at[a], lists.binary_at[a + 1]):
        r = lists.binary_rule[n]
        for k in range(i + 1, j):
            value = chart[cell(i, k, length), lists.left[r]] + chart[cell(k, j, length), lists.right[r]]
            if value + lists.log_binary[r] > best:
                best, which, middle = value + lists.log_binary[r], r, k
    for u in range(lists.unary_at[a], lists.unary_at[a + 1]):
        value = lists.log_unary[u] + chart[cell(i, j, length), lists.below[u]]
        if value > best:
            best, which, middle = value, n_binary + n_lexical + u, -1
    return which, middle


@kernel
def climb_down(words, tables, lists, chart, rule, start, end, middle, todo):
    """Writes the nodes of the likeliest tree in preorder and returns their number; `todo` [., 3] is scratch."""
    found, depth = 0, 1
    n_binary, n_lexical = len(tables.binary), len(tables.lexical)
    todo[0, 0], todo[0, 1], todo[0, 2] = tables.start, 0, len(words)
    while depth > 0:
        depth -= 1
        a, i, j = todo[depth, 0], todo[depth, 1], todo[depth, 2]
        r, k = best_rule(a, i, j, words, tables, lists, chart)
        rule[found], start[found], end[found], middle[found] = r, i, j, k
        found += 1
        if r < n_binary:
            todo[depth, 0], todo[depth, 1], todo[depth, 2] = lists.right[r], k, j
            todo[depth + 1, 0], todo[depth + 1, 1], todo[depth + 1, 2] = lists.left[r], i, k
            depth += 2
        elif r >= n_binary + n_lexical:
            todo[depth, 0] = lists.below[r - n_binary - n_lexical]
            depth += 1
    return found


class TreeRoom(NamedTuple):
    row: np.ndarray
    chart: np.ndarray
    open_spans: np.ndarray
    active: np.ndarray
    count: np.ndarray
    products: np.ndarray
    nodes: np.ndarray  # int32 [4, .]
    todo: np.ndarray


class Climber:
    """Likeliest trees of a grammar."""

    def __init__(self, grammar: Grammar, path: str = "auto", memory: int = MEMORY):
        self.grammar, self.tables, self.lists, self.memory = grammar, make_tables(grammar), make_lists(grammar), memory
        self.dense = is_dense(grammar) if path == "auto" else path == "dense"
        rules = tensor(grammar, self.lists.log_binary, NONE).T if self.dense else np.zeros((0, 0))
        self.rules = np.ascontiguousarray(rules)
        self.depth = 1 + len(np.unique(np.concatenate([grammar.above, grammar.below])))  # of a chain and its end

    def room(self, length: int) -> TreeRoom:
        size, wide = cells(length), self.tables.wide
        check_length(length, wide, self.memory, 1)
        other, square = (0, wide * wide) if self.dense else (size, 0)
        return TreeRoom(
            np.empty(wide), np.empty((size, wide)), np.empty(size, np.uint8), np.empty((other, wide), np.int32),
            np.empty(other, np.int64), np.empty(square), np.empty((4, 2 * length * self.depth), np.int32),
            np.empty((2 * length * self.depth, 3), np.int64),
        )  # fmt: skip

    def fill(self, words: np.ndarray, brackets: np.ndarray, room: TreeRoom) -> float:
        """The chart of a string; log P of its likeliest tree."""
        if self.dense:
            dense_chart(words, brackets, self.tables, self.lists, self.rules, room.open_spans, room.row, room.products,
                        room.chart)  # fmt: skip
        else:
            sparse_chart(words, brackets, self.tables, self.lists, room.open_spans, room.row, room.chart, room.active,
                         room.count)  # fmt: skip
        return float(room.chart[len(words) - 1, self.grammar.start])

    def _piece(self, data: Strings, lo: int, hi: int, log_p: np.ndarray) -> list[np.ndarray]:
        room, found = self.room(int(data.lengths[lo:hi].max())), []
        for n in range(lo, hi):
            words, brackets = data.row(n)
            log_p[n] = self.fill(words, brackets, room)
            count = 0
            if log_p[n] > NONE:
                count = climb_down(words, self.tables, self.lists, room.chart, *room.nodes, room.todo)
            found.append(room.nodes[:, :count].copy())
        return found

    def piece(self, data: Strings, lo: int, hi: int, log_p: np.ndarray) -> np.ndarray:
        """Counts of the rules of the likeliest trees of some strings, whose log P are written down."""
        found = self._piece(data, lo, hi, log_p)
        weights = np.repeat(data.weights[lo:hi], [part.shape[1] for part in found])
        return np.bincount(np.concatenate(found, axis=1)[0], weights, self.grammar.size)

    def trees(self, data: Strings) -> Best:
        """The likeliest tree of each string."""
        log_p = np.full(data.total, NONE)
        pieces = threads.run(lambda piece: self._piece(data, *piece, log_p), pieces_of(data))
        found = [part for parts in pieces for part in parts]
        at = np.cumsum([0, *(part.shape[1] for part in found)], dtype=np.int64)
        nodes = Nodes(at, *np.concatenate(found, axis=1))
        counts = np.bincount(nodes.rule, np.repeat(data.weights, np.diff(at)), self.grammar.size)
        return Best(log_p, counts, nodes)
