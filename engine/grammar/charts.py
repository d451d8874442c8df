"""What the recursions share: rules in the order in which kernels meet them, cells of a chart, room for one."""

from functools import partial
from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.grammar.closures import Chains, make_chains
from espalier.engine.grammar.rules import Grammar
from espalier.engine.runtime import vectors
from espalier.engine.runtime.jit import kernel

LANES = 4
DENSE_SYMBOLS = 64  # above, the tensor of all rules does not fit the cache
DENSE_SHARE = 0.1  # of all possible rules: with fewer, visiting those that exist costs less
MEMORY = 2_000_000_000  # bytes that the charts of one string may take
BYTES_OF_NODE = 28  # seven int32, see `kbest`
DEAD = -(2**40)  # exponent of a span that the grammar cannot derive
LN2 = 0.6931471805599453


class Tables(NamedTuple):
    """A grammar as kernels see it; `wide` is the number of symbols in full lanes, the width of a chart's row."""

    start: int
    wide: int
    left_at: np.ndarray  # int64 [N + 1]: rules by their left symbol
    parent: np.ndarray
    right: np.ndarray
    binary: np.ndarray
    word_at: np.ndarray  # int64 [V + 1]: lexical rules by their word
    tag: np.ndarray
    lexical: np.ndarray
    unary_at: np.ndarray  # int64 [N + 1]: rules of one symbol by the symbol above
    below: np.ndarray
    unary: np.ndarray
    chains: Chains


class RuleLists(NamedTuple):
    """Rules by the symbol that they rewrite, for going down a tree; logarithms of their probabilities."""

    binary_at: np.ndarray  # int64 [N + 1]
    binary_rule: np.ndarray  # int32: numbers of rules
    left: np.ndarray
    right: np.ndarray
    log_binary: np.ndarray
    log_lexical: np.ndarray
    unary_at: np.ndarray  # int64 [N + 1]: rules of one symbol, which are sorted by it
    below: np.ndarray
    log_unary: np.ndarray


def make_tables(grammar: Grammar) -> Tables:
    n, v = len(grammar.symbols), len(grammar.words)
    left_at = np.searchsorted(grammar.left, np.arange(n + 1)).astype(np.int64)
    word_at = np.searchsorted(grammar.word, np.arange(v + 1)).astype(np.int64)
    unary_at = np.searchsorted(grammar.above, np.arange(n + 1)).astype(np.int64)
    return Tables(
        grammar.start, make_wide(grammar), left_at, grammar.parent, grammar.right, grammar.binary,
        word_at, grammar.tag, grammar.lexical, unary_at, grammar.below, grammar.unary, make_chains(grammar),
    )  # fmt: skip


def make_lists(grammar: Grammar) -> RuleLists:
    order = np.argsort(grammar.parent, kind="stable").astype(np.int32)
    ends = np.arange(len(grammar.symbols) + 1)
    return RuleLists(
        np.searchsorted(grammar.parent[order], ends).astype(np.int64), order, grammar.left, grammar.right,
        vectors.log(grammar.binary), vectors.log(grammar.lexical),
        np.searchsorted(grammar.above, ends).astype(np.int64), grammar.below, vectors.log(grammar.unary),
    )  # fmt: skip


def is_dense(grammar: Grammar) -> bool:
    """Whether products of whole matrices cost less than visiting the rules that exist."""
    n, alive = len(grammar.symbols), np.count_nonzero(grammar.binary)
    return n <= DENSE_SYMBOLS and not len(grammar.unary) and alive >= DENSE_SHARE * n**3


def tensor(grammar: Grammar, values: np.ndarray, absent: float) -> np.ndarray:
    """[A, (B, C)]: a value of each possible rule, padded to full lanes."""
    n = make_wide(grammar)
    made = np.full((n, n * n), absent)
    made[grammar.parent, grammar.left.astype(np.int64) * n + grammar.right] = values
    return made


def make_wide(grammar: Grammar) -> int:
    return -(-len(grammar.symbols) // LANES) * LANES


def cells(length: int) -> int:
    return length * (length + 1) // 2


def bytes_of_cell(wide: int, kinds: int = 2, several: bool = False) -> int:
    """Rows of float64, the symbols that are there, an exponent, a mark; for several trees a node for each symbol."""
    return 8 * wide * kinds + 4 * wide + 8 + 1 + several * BYTES_OF_NODE * wide


def bytes_of_chart(length: int, wide: int, kinds: int = 2, several: bool = False) -> int:
    """Of charts for a string of that length."""
    return cells(length) * bytes_of_cell(wide, kinds, several)


def longest_within(memory: int, wide: int, kinds: int = 2, several: bool = False) -> int:
    """The longest string whose charts fit in so many bytes."""
    return int((2.0 * memory / bytes_of_cell(wide, kinds, several) + 0.25) ** 0.5 - 0.5)


def check_length(length: int, wide: int, memory: int, kinds: int = 2, several: bool = False) -> None:
    """Refuses a string whose charts do not fit, and says what would."""
    needed, longest = bytes_of_chart(length, wide, kinds, several), longest_within(memory, wide, kinds, several)
    if needed > memory:
        raise EspalierError(
            f"a string of {length:,} words needs charts of {needed / 1e9:.1f} GB with {wide} symbols, and "
            f"{memory / 1e9:.1f} GB are allowed: expected at most {longest:,} words"
        )


@kernel
def cell(i, j, length):
    """The place of the span from i to j (not included): spans that begin alike lie beside each other."""
    return i * length - i * (i - 1) // 2 + (j - i - 1)


@partial(kernel, forceinline=False)  # whole numbers: nothing that depends on being inlined
def mark_spans(brackets, length, open_spans):
    """open_spans[cell] = 0 where the span crosses a bracket, else 1."""
    open_spans[: length * (length + 1) // 2] = 1
    for b in range(len(brackets)):
        start, end = brackets[b, 0], brackets[b, 1]
        for i in range(start):  # begins before the bracket and ends inside of it
            for j in range(start + 1, end):
                open_spans[cell(i, j, length)] = 0
        for i in range(start + 1, end):  # begins inside and ends behind it
            for j in range(end + 1, length + 1):
                open_spans[cell(i, j, length)] = 0
