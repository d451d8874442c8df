"""Closures over rules of one symbol and over left corners, exact also where such rules go round."""

from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.grammar.rules import Grammar
from espalier.engine.runtime import vectors
from espalier.engine.runtime.jit import kernel

SINGULAR = 1e-12


@kernel
def _inverse(a, inverse):
    """`inverse` (the identity before) becomes that of `a`, which is overwritten; the smallest pivot. O(n^3)."""
    n, least = len(a), np.inf
    for k in range(n):
        best = k
        for i in range(k + 1, n):
            if abs(a[i, k]) > abs(a[best, k]):
                best = i
        if best != k:
            for j in range(n):
                a[k, j], a[best, j] = a[best, j], a[k, j]
                inverse[k, j], inverse[best, j] = inverse[best, j], inverse[k, j]
        pivot = a[k, k]
        least = min(least, abs(pivot))
        if pivot == 0.0:
            return 0.0
        for j in range(n):
            a[k, j] /= pivot
            inverse[k, j] /= pivot
        for i in range(n):
            factor = a[i, k]
            if i != k and factor != 0.0:
                for j in range(n):
                    a[i, j] -= factor * a[k, j]
                    inverse[i, j] -= factor * inverse[k, j]
    return least


def star(steps: np.ndarray, what: str) -> np.ndarray:
    """1 + M + M^2 + ... = (1 - M)^-1 of a matrix of probabilities; refused where the sum is not finite."""
    inverse = np.eye(len(steps))
    least = _inverse(np.eye(len(steps)) - steps, inverse) if len(steps) else 1.0
    if not (least > SINGULAR and inverse.min(initial=0.0) >= -SINGULAR):
        raise EspalierError(f"{what} go round with probability one or more: expected a chance to leave each circle")
    return np.maximum(inverse, 0.0)


@kernel
def _longest(best, after):
    """best[a, b], the log-probability of the likeliest chain from a to b; after[a, b], the first step of it."""
    n = len(best)
    for k in range(n):
        for i in range(n):
            if best[i, k] == -np.inf or i == k:
                continue
            for j in range(n):
                if j != i and best[i, k] + best[k, j] > best[i, j]:
                    best[i, j] = best[i, k] + best[k, j]
                    after[i, j] = after[i, k]


class Chains(NamedTuple):
    """Chains of rules of one symbol by their lowest symbol b: at[b] to at[b + 1] are those that end there."""

    at: np.ndarray  # int64 [N + 1]
    top: np.ndarray  # int32: where the chain begins
    total: np.ndarray  # float64: summed probability of all chains of one step or more
    best: np.ndarray  # float64: log-probability of the likeliest chain; -inf from a symbol to itself
    after: np.ndarray  # int32: the symbol behind the first step of it


def make_chains(grammar: Grammar) -> Chains:
    """Of all pairs of symbols between which there is a chain."""
    alive = grammar.unary > 0.0
    above, below, unary = grammar.above[alive], grammar.below[alive], grammar.unary[alive]
    members = np.unique(np.concatenate([above, below]))
    n = len(members)
    a, b = np.searchsorted(members, above), np.searchsorted(members, below)
    steps = np.zeros((n, n))
    steps[a, b] = unary
    total = star(steps, "rules of one symbol") - np.eye(n)
    best, after = np.full((n, n), -np.inf), np.full((n, n), -1, np.int32)
    best[a, b], after[a, b] = vectors.log(unary), b
    np.fill_diagonal(best, -np.inf)
    if n:
        _longest(best, after)
    low, top = np.nonzero((total > 0.0).T)
    at = np.searchsorted(members[low], np.arange(len(grammar.symbols) + 1)).astype(np.int64)
    names = members.astype(np.int32)
    step = np.where(after[top, low] >= 0, names[after[top, low]] if n else 0, -1).astype(np.int32)
    return Chains(at, names[top], total[top, low], best[top, low], step)


def left_corners(grammar: Grammar) -> np.ndarray:
    """[A, D]: the expected number of D along the left edge below A, A itself counted as one of them."""
    steps = np.zeros((len(grammar.symbols),) * 2)
    np.add.at(steps, (grammar.parent, grammar.left), grammar.binary)
    np.add.at(steps, (grammar.above, grammar.below), grammar.unary)
    return star(steps, "left corners")


def expected_visits(grammar: Grammar) -> np.ndarray:
    """How often each symbol occurs in a tree of the grammar on average: n (1 - M) = e_S, M its mean children.

    Refused where trees do not end: M has a spectral radius of one or more.
    """
    steps = np.zeros((len(grammar.symbols),) * 2)
    for child in (grammar.left, grammar.right):
        np.add.at(steps, (grammar.parent, child), grammar.binary)
    np.add.at(steps, (grammar.above, grammar.below), grammar.unary)
    return star(steps, "rules")[grammar.start]
