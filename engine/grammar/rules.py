"""`Grammar`: rules as flat arrays; checking, normalising, pruning, starting at random."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError

MOST_STEPS, SMALL_STEP = 2000, 1e-9  # of a sum over levels of trees: symbols that the last one adds
SUM_TOLERANCE = 1e-6  # of the probabilities of a symbol: files hold some ten digits


class Grammar(NamedTuple):
    """A -> B C (sorted by B, C, A), A -> word (by word, A), A -> B (by A, B), each with its probability."""

    symbols: list[str]  # nonterminals
    words: list[str]  # terminals
    start: int
    parent: np.ndarray  # int32 [R]
    left: np.ndarray
    right: np.ndarray
    binary: np.ndarray  # float64 [R]
    tag: np.ndarray  # int32 [L]
    word: np.ndarray
    lexical: np.ndarray  # float64 [L]
    above: np.ndarray  # int32 [U]
    below: np.ndarray
    unary: np.ndarray  # float64 [U]

    @property
    def size(self) -> int:
        """All rules: binary ones, then lexical ones, then those of one symbol; in this order they are numbered."""
        return len(self.binary) + len(self.lexical) + len(self.unary)

    @property
    def owners(self) -> np.ndarray:
        """The symbol on the left of each rule."""
        return np.concatenate([self.parent, self.tag, self.above])

    @property
    def probabilities(self) -> np.ndarray:
        return np.concatenate([self.binary, self.lexical, self.unary])

    def with_probabilities(self, theta: np.ndarray) -> "Grammar":
        """The same rules with other probabilities, in the order of `probabilities`."""
        cuts = [len(self.binary), len(self.binary) + len(self.lexical)]
        binary, lexical, unary = (part.astype(np.float64) for part in np.split(theta, cuts))
        return self._replace(binary=binary, lexical=lexical, unary=unary)

    def rule(self, number: int) -> str:
        """A rule in words."""
        binary, lexical = len(self.binary), len(self.lexical)
        if number < binary:
            return " ".join(self.symbols[part[number]] for part in (self.parent, self.left, self.right)).replace(
                " ", " -> ", 1
            )
        number -= binary
        if number < lexical:
            return f"{self.symbols[self.tag[number]]} -> {self.words[self.word[number]]!r}"
        number -= lexical
        return f"{self.symbols[self.above[number]]} -> {self.symbols[self.below[number]]}"


def make_grammar(
    symbols: Sequence[str], words: Sequence[str], start: int, binary: np.ndarray, lexical: np.ndarray,
    unary: np.ndarray | None = None,
) -> Grammar:  # fmt: skip
    """A grammar of rows (A, B, C, p), (A, word, p) and (A, B, p); p is divided by its sum over the rules of A.

    Refuses numbers that no symbol has, probabilities that are negative or not finite, rules that occur twice, and a
    symbol whose rules sum to nothing.
    """
    unary = np.zeros((0, 3)) if unary is None else unary
    numbers, values = _columns(binary, 4), [np.asarray(rows, np.float64).reshape(-1, width)[:, -1].copy()
                                            for rows, width in ((binary, 4), (lexical, 3), (unary, 3))]  # fmt: skip
    tags, links = _columns(lexical, 3), _columns(unary, 3)
    _check_range("a symbol", len(symbols), start, *numbers, tags[0], *links)
    _check_range("a word", len(words), tags[1])
    for parts, weights in zip((numbers, tags, links), values, strict=True):
        _check_values(parts, weights)
    orders = [np.lexsort((numbers[0], numbers[2], numbers[1])), np.lexsort(tags), np.lexsort((links[1], links[0]))]
    made = [[part[order] for part in (*parts, weights)]
            for parts, weights, order in zip((numbers, tags, links), values, orders, strict=True)]  # fmt: skip
    grammar = Grammar(list(symbols), list(words), int(start), *made[0], *made[1], *made[2])
    return normalised(grammar, grammar.probabilities)


def stored_grammar(
    symbols: Sequence[str], words: Sequence[str], start: int, binary: Sequence, lexical: Sequence, unary: Sequence
) -> Grammar:
    """A grammar as it was kept, columns of its rules with probabilities: checked, not a bit of it changed."""
    for parts in (binary, lexical, unary):
        _check_values(list(parts[:-1]), parts[-1])
    sorts = (binary[0], binary[2], binary[1]), lexical[:2], (unary[1], unary[0])
    if not all(np.array_equal(np.lexsort(keys), np.arange(len(keys[0]))) for keys in sorts):
        raise EspalierError("rules are not in their order: expected them sorted by what is on the right")
    made = [np.ascontiguousarray(part, np.float64 if part is parts[-1] else np.int32)
            for parts in (binary, lexical, unary) for part in parts]  # fmt: skip
    grammar = Grammar(list(symbols), list(words), start, *made)
    check_sums(grammar)
    return grammar


def expected_uses(grammar: Grammar) -> np.ndarray:
    """How often each rule is expected in a tree: n = e_S + n M step by step, until nothing is added.

    Where trees hardly ever end that has no end either, and the sum is cut off.
    """
    g, p = grammar, grammar.probabilities
    n, at = len(g.binary), len(g.binary) + len(g.lexical)
    below = np.concatenate([g.left, g.right, g.below])
    moved = np.zeros(len(g.symbols))
    moved[g.start] = 1.0
    uses = np.zeros(g.size)
    for _ in range(MOST_STEPS):
        now = moved[g.owners] * p
        uses += now
        moved = np.bincount(below, np.concatenate([now[:n], now[:n], now[at:]]), len(g.symbols))
        if moved.sum() < SMALL_STEP or moved.sum() > 1.0 / SMALL_STEP:
            break
    return uses


def _columns(rows: np.ndarray, width: int) -> list[np.ndarray]:
    table = np.asarray(rows, np.float64).reshape(-1, width)
    return [np.ascontiguousarray(table[:, column], np.int32) for column in range(width - 1)]


def _check_range(what: str, size: int, *numbers) -> None:
    for part in numbers:
        bad = np.atleast_1d(part)
        bad = bad[(bad < 0) | (bad >= size)]
        if len(bad):
            raise EspalierError(f"a rule names {what} {bad[0]}: expected a number from 0 to {size - 1}")


def _check_values(parts: list[np.ndarray], weights: np.ndarray) -> None:
    bad = weights[~(np.isfinite(weights) & (weights >= 0.0))]
    if len(bad):
        raise EspalierError(f"a rule has probability {bad[0]}: expected a finite number of at least 0")
    if len(weights) and len(np.unique(np.stack(parts), axis=1).T) < len(weights):
        raise EspalierError("a rule occurs twice: expected each once, with the sum of its probabilities")


def normalised(grammar: Grammar, amounts: np.ndarray, smoothing: float = 0.0) -> Grammar:
    """Probabilities in proportion to amounts of the rules; a symbol of which nothing was seen keeps what it has."""
    owners, amounts = grammar.owners, amounts + smoothing
    totals = np.bincount(owners, amounts, len(grammar.symbols))
    seen = totals[owners] > 0.0
    shares = np.divide(amounts, totals[owners], where=seen, out=np.zeros(len(amounts)))
    return grammar.with_probabilities(np.where(seen, shares, grammar.probabilities))


def check_sums(grammar: Grammar) -> None:
    """The rules of each symbol that has some sum to one; what a file says is checked by this."""
    totals = np.bincount(grammar.owners, grammar.probabilities, len(grammar.symbols))
    has = np.bincount(grammar.owners, minlength=len(grammar.symbols)) > 0
    wrong = np.flatnonzero(has & ~(np.abs(totals - 1.0) <= SUM_TOLERANCE))
    if len(wrong):
        name = grammar.symbols[wrong[0]]
        raise EspalierError(f"the rules of {name} sum to {totals[wrong[0]]:.9g}: expected 1")


def used(grammar: Grammar) -> np.ndarray:
    """Which rules have a probability and a symbol that the start symbol leads to."""
    alive = grammar.probabilities > 0.0
    reached = np.zeros(len(grammar.symbols), bool)
    reached[grammar.start] = True
    n = len(grammar.binary)
    while True:
        binary = alive[:n] & reached[grammar.parent]
        unary = alive[grammar.size - len(grammar.unary) :] & reached[grammar.above]
        grown = reached.copy()
        grown[grammar.left[binary]] = grown[grammar.right[binary]] = True
        grown[grammar.below[unary]] = True
        if np.array_equal(grown, reached):
            return alive & reached[grammar.owners]
        reached = grown


def pruned(grammar: Grammar) -> tuple[Grammar, np.ndarray]:
    """(the grammar without rules that are never used, which rules stayed)."""
    keep = used(grammar)
    n, m = len(grammar.binary), len(grammar.lexical)
    of = keep[:n], keep[n : n + m], keep[n + m :]
    cut = [part[mask] for parts, mask in zip((grammar[3:7], grammar[7:10], grammar[10:13]), of, strict=True)
           for part in parts]  # fmt: skip
    return Grammar(*grammar[:3], *cut), keep


def full_grammar(symbols: int, words: Sequence[str], seed: int) -> Grammar:
    """All rules in Chomsky normal form over so many symbols, with probabilities that chance decides."""
    n, v, random = symbols, len(words), np.random.default_rng(seed)
    parent, left, right = (part.ravel() for part in np.indices((n, n, n)))
    tag, word = (part.ravel() for part in np.indices((n, v)))
    binary = np.stack([parent, left, right, random.uniform(size=n**3)], 1)
    lexical = np.stack([tag, word, random.uniform(size=n * v)], 1)
    return make_grammar([f"N{k}" for k in range(n)], words, 0, binary, lexical)
