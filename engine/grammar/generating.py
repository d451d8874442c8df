"""Strings that a grammar generates, with the brackets of their trees."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.grammar.rules import Grammar
from espalier.engine.grammar.strings import Strings
from espalier.engine.runtime.inner_loops import put
from espalier.engine.runtime.jit import kernel

TRIES = 100  # for each string that is wanted: a grammar whose trees hardly ever end is refused
GOLDEN, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Generated(NamedTuple):
    strings: Strings
    dropped: int  # that grew longer than allowed


@kernel
def mixed(state):
    """The random bits of a state, as SplitMix64 has them."""
    z = (state ^ (state >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


@kernel
def cumulate(at, probabilities):
    for a in range(len(at) - 1):
        total = 0.0
        for n in range(at[a], at[a + 1]):
            total += probabilities[n]
            probabilities[n] = total
        for n in range(at[a], at[a + 1]):
            probabilities[n] /= total


@kernel
def grow(state, start, at, rules, cumulative, left, right, word, below, longest, words, brackets, stack):  # fmt: skip
    """(words, brackets) of one string; -1 words where it would grow too long."""
    depth, pending, length, found = 1, 1, 0, 0
    stack[0, 0], stack[0, 1] = start, 0
    while depth > 0:
        depth -= 1
        a = stack[depth, 0]
        if a < 0:  # the end of a bracket that began there
            brackets[found, 0], brackets[found, 1] = stack[depth, 1], length
            found += 1
            continue
        state += GOLDEN
        draw = np.float64(mixed(state) >> np.uint64(11)) * 2.0**-53
        n = at[a]
        while n < at[a + 1] - 1 and draw >= cumulative[n]:
            n += 1
        rule = rules[n]
        if rule < len(left):
            pending += 1
            if length + pending > longest:
                return -1, 0
            stack[depth, 0], stack[depth, 1] = -1, length
            stack[depth + 1, 0], stack[depth + 2, 0] = right[rule], left[rule]
            depth += 3
        elif rule < len(left) + len(word):
            words[length] = word[rule - len(left)]
            length += 1
            pending -= 1
        else:
            stack[depth, 0] = below[rule - len(left) - len(word)]
            depth += 1
    return length, found


@kernel
def grow_all(n, seed, tries, start, at, rules, cumulative, left, right, word, below, longest, lengths, counts):
    """Texts, brackets, and how many strings were dropped; -1 where so many tries were not enough."""
    words, brackets = np.zeros(16 * longest, np.int32), np.zeros((16 * longest, 2), np.int32)
    stack = np.zeros((3 * longest + 3, 2), np.int64)
    done = dropped = used = kept = 0
    while done < n:
        if done + dropped >= tries:
            return words, brackets, -1
        if used + longest > len(words):
            grown = np.zeros(2 * len(words), np.int32)
            put(words[:used], grown)
            words = grown
        if kept + longest > len(brackets):
            wider = np.zeros((2 * len(brackets), 2), np.int32)
            put(brackets[:kept, 0], wider[:, 0])
            put(brackets[:kept, 1], wider[:, 1])
            brackets = wider
        state = mixed(mixed(np.uint64(seed) + GOLDEN) + np.uint64(done + dropped) * GOLDEN)
        length, found = grow(state, start, at, rules, cumulative, left, right, word, below, longest, words[used:],
                             brackets[kept:], stack)  # fmt: skip
        if length < 0:
            dropped += 1
            continue
        lengths[done], counts[done] = length, found
        used, kept, done = used + length, kept + found, done + 1
    return words[:used], brackets[:kept], dropped


def draw_rules(grammar: Grammar, n: int, seed: int = 0, longest: int = 1000) -> list[np.ndarray]:
    """The rules of so many trees in preorder, as `treebank.tree_of_rules` takes them; longer ones are drawn again."""
    owners = grammar.owners
    order = np.argsort(owners, kind="stable")
    ends = np.searchsorted(owners[order], np.arange(len(grammar.symbols) + 1))
    shares = [np.cumsum(grammar.probabilities[order[a:b]]) for a, b in pairwise(ends)]
    random, found = np.random.default_rng(seed), []
    for _ in range(TRIES * n + TRIES):
        if len(found) == n:
            return found
        rules = _drawn(grammar, order, ends, shares, random, longest)
        found += [] if rules is None else [np.array(rules, np.int32)]
    raise _too_few(n, longest)


def _drawn(grammar: Grammar, order, ends, shares, random: np.random.Generator, longest: int) -> list[int] | None:
    """The rules of one tree; None where it would have too many words."""
    binary, lexical = len(grammar.binary), len(grammar.binary) + len(grammar.lexical)
    rules, waiting, words = [], [grammar.start], 0
    while waiting:
        a = waiting.pop()
        drawn = int(np.searchsorted(shares[a], random.random() * shares[a][-1], side="right"))
        rule = int(order[ends[a] + min(drawn, len(shares[a]) - 1)])
        rules.append(rule)
        if rule < binary:
            waiting += [int(grammar.right[rule]), int(grammar.left[rule])]
        elif rule < lexical:
            words += 1
        else:
            waiting.append(int(grammar.below[rule - lexical]))
        if words + len(waiting) > longest:
            return None
    return rules


def _too_few(n: int, longest: int) -> EspalierError:
    return EspalierError(
        f"of {TRIES * n + TRIES:,} trees of the grammar too few end within {longest:,} words: expected at least {n:,}; "
        "train it, or allow longer strings"
    )


def generate(grammar: Grammar, n: int, seed: int = 0, longest: int = 1000) -> Generated:
    """So many strings of at most so many words; those that would grow longer are dropped, counted and drawn again."""
    owners = grammar.owners
    order = np.argsort(owners, kind="stable").astype(np.int32)
    at = np.searchsorted(owners[order], np.arange(len(grammar.symbols) + 1)).astype(np.int64)
    cumulative = grammar.probabilities[order]
    cumulate(at, cumulative)
    lengths, counts = np.zeros(n, np.int64), np.zeros(n, np.int64)
    words, brackets, dropped = grow_all(
        n, seed, TRIES * n + TRIES, grammar.start, at, order, cumulative, grammar.left, grammar.right, grammar.word,
        grammar.below, longest, lengths, counts,
    )  # fmt: skip
    if dropped < 0:
        raise _too_few(n, longest)
    ends = np.cumsum(np.concatenate([[0], lengths])), np.cumsum(np.concatenate([[0], counts]))
    return Generated(Strings(words, ends[0], np.ones(n), ends[1], brackets), int(dropped))
