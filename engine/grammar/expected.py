"""Expected counts and log-probabilities of strings, in parallel: pieces of the data by cost, summed in their order."""

from typing import NamedTuple

import numpy as np

from espalier.engine.grammar import dense, sparse
from espalier.engine.grammar.charts import (
    DEAD,
    LN2,
    MEMORY,
    Tables,
    cell,
    cells,
    check_length,
    is_dense,
    make_tables,
    mark_spans,
    tensor,
)
from espalier.engine.grammar.closures import make_chains
from espalier.engine.grammar.rules import Grammar
from espalier.engine.grammar.strings import Strings
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel

PATHS = ("auto", "dense", "sparse")


class ChartRoom(NamedTuple):
    """Memory of a piece; behind a call it holds the charts of its last string."""

    row: np.ndarray  # [wide]
    chart: np.ndarray  # [cells, wide] inside values over 2^exponent
    out: np.ndarray  # [cells, wide] outside values times 2^exponent over P
    exponent: np.ndarray  # int64 [cells]
    open_spans: np.ndarray  # uint8 [cells]
    active: np.ndarray  # int32 [cells, wide], for the sparse path
    count: np.ndarray  # int64 [cells]
    block: tuple  # of the dense path


def pieces_of(data: Strings) -> list[tuple[int, int]]:
    """Runs of strings that cost about the same: what threads and workers take, and in what order counts are added."""
    return threads.balanced(data.lengths.astype(np.float64) ** 3 + 1.0)


class RuleCounts(NamedTuple):
    counts: np.ndarray  # of all rules, in the order of `Grammar.probabilities`
    log_p: np.ndarray  # of each string; -inf where the grammar cannot derive it


@kernel
def _log_p(length, tables, chart, exponent):
    root = cell(0, length, length)
    if exponent[root] == DEAD or chart[root, tables.start] == 0.0:
        return -np.inf
    return np.log(chart[root, tables.start]) + exponent[root] * LN2


@kernel
def _sparse_piece(data, lo, hi, tables, room, wanted, log_p, counts):
    for n in range(lo, hi):
        words = data.words[data.offsets[n] : data.offsets[n + 1]]
        mark_spans(data.brackets[data.bracket_at[n] : data.bracket_at[n + 1]], len(words), room.open_spans)
        sparse.inside(words, tables, room.open_spans, room.row, room.chart, room.exponent, room.active, room.count)
        log_p[n] = _log_p(len(words), tables, room.chart, room.exponent)
        if wanted and log_p[n] > -np.inf and data.weights[n] > 0.0:
            sparse.outside(words, tables, data.weights[n], room.row, room.chart, room.exponent, room.active,
                           room.count, room.out, counts)  # fmt: skip


@kernel
def _dense_piece(data, lo, hi, tables, rules, room, wanted, log_p, counts, amounts):
    row, products, sums, downs, above, lefts, rights, shares = room.block
    scratch = (row, products, sums, lefts, rights, shares)
    for n in range(lo, hi):
        words = data.words[data.offsets[n] : data.offsets[n + 1]]
        mark_spans(data.brackets[data.bracket_at[n] : data.bracket_at[n + 1]], len(words), room.open_spans)
        dense.inside(words, tables, rules, room.open_spans, scratch, room.chart, room.exponent)
        log_p[n] = _log_p(len(words), tables, room.chart, room.exponent)
        if wanted and log_p[n] > -np.inf and data.weights[n] > 0.0:
            dense.outside(words, tables, rules, data.weights[n], scratch, downs, above, room.chart, room.exponent,
                          room.out, counts, amounts)  # fmt: skip


def make_room(length: int, tables: Tables, dense_path: bool, wanted: bool = True) -> ChartRoom:
    """For strings of at most that length."""
    size, wide = cells(length), tables.wide
    listed, outside = 0 if dense_path else size, size if wanted else 0
    square = (dense.SPANS, wide * wide if dense_path else 0)
    lists = length + dense.SPLITS
    block = (
        np.empty(wide), np.empty(square), np.empty((dense.SPANS, wide)), np.empty(square),
        np.empty((dense.SPANS, wide)), np.empty(lists, np.int64), np.empty(lists, np.int64), np.empty(lists),
    )  # fmt: skip
    return ChartRoom(
        np.empty(wide), np.empty((size, wide)), np.empty((outside, wide)), np.empty(size, np.int64),
        np.empty(size, np.uint8), np.empty((listed, wide), np.int32), np.empty(listed, np.int64), block,
    )  # fmt: skip


class Machine:
    """A grammar made ready for kernels; `path` says which, by default the cheaper one."""

    def __init__(self, grammar: Grammar, path: str = "auto", memory: int = MEMORY):
        self.grammar, self.tables, self.memory = grammar, make_tables(grammar), memory
        self.dense = is_dense(grammar) if path == "auto" else path == "dense"
        self.rules = tensor(grammar, grammar.binary, 0.0) if self.dense else np.zeros((0, 0))
        self.columns = grammar.left.astype(np.int64) * self.tables.wide + grammar.right

    def renew(self, grammar: Grammar) -> None:
        """Other probabilities of the same rules."""
        self.grammar = grammar
        chains = make_chains(grammar) if len(grammar.unary) else self.tables.chains
        self.tables = self.tables._replace(
            binary=grammar.binary, lexical=grammar.lexical, unary=grammar.unary, chains=chains
        )
        if self.dense:
            self.rules[grammar.parent, self.columns] = grammar.binary

    def expected(self, data: Strings, wanted: bool = True) -> RuleCounts:
        """Counts of all rules that are expected given the strings, each by its weight; log P of each string."""
        check_length(int(data.lengths.max()), self.tables.wide, self.memory, 2 if wanted else 1)
        log_p = np.full(data.total, -np.inf)
        parts = threads.run(lambda piece: self.piece(data, *piece, wanted, log_p), pieces_of(data))
        counts = np.zeros(self.grammar.size)
        for part in parts:
            counts += part
        return RuleCounts(counts, log_p)

    def piece(self, data: Strings, lo: int, hi: int, wanted: bool, log_p: np.ndarray) -> np.ndarray:
        """Expected counts of some strings, whose log P are written down."""
        room = make_room(int(data.lengths[lo:hi].max()), self.tables, self.dense, wanted)
        return self.run(data, lo, hi, room, wanted, log_p)

    def run(self, data: Strings, lo: int, hi: int, room: ChartRoom, wanted: bool, log_p: np.ndarray) -> np.ndarray:
        """Expected counts of some strings; `room` keeps the charts of the last one."""
        counts = np.zeros(self.grammar.size)
        if not self.dense:
            _sparse_piece(data, lo, hi, self.tables, room, wanted, log_p, counts)
            return counts
        amounts = np.zeros(self.rules.shape)
        _dense_piece(data, lo, hi, self.tables, self.rules, room, wanted, log_p, counts, amounts)
        g = self.grammar
        counts[: len(g.binary)] = amounts[g.parent, self.columns] * g.binary
        return counts
