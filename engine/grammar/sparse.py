"""Inside and outside by the rules that exist: for grammars of many symbols, most of which no span has.

A span has numbers below one and a power of two that they share, so that no length under- or overflows and no logarithm
is taken. Numbers below 1e-300 of the largest one of their span are lost.
"""

import math

from espalier.engine.grammar.charts import DEAD, cell
from espalier.engine.runtime.jit import kernel

FAR = 1000  # powers of two that a number is moved by at most


@kernel
def power(k):
    """2^k, and 0 where it is negligible."""
    return math.ldexp(1.0, int(k)) if k > -FAR else 0.0


@kernel
def settle(c, top, wide, chart, exponent):
    """Divide a row by the power of two that brings its largest number below one; DEAD where all are zero."""
    most = 0.0
    for a in range(wide):
        most = max(most, chart[c, a])
    if most == 0.0:
        exponent[c] = DEAD
        return
    shift = max(math.frexp(most)[1], -FAR)
    exponent[c] = top + shift
    scale = math.ldexp(1.0, -shift)
    for a in range(wide):
        chart[c, a] *= scale


@kernel
def best_split(i, j, length, exponent):
    """The largest sum of exponents of two halves; DEAD where no split is possible."""
    top = DEAD
    for k in range(i + 1, j):
        x, y = exponent[cell(i, k, length)], exponent[cell(k, j, length)]
        if x != DEAD and y != DEAD and (top == DEAD or x + y > top):
            top = x + y
    return top


@kernel
def add_chains(c, chains, row, chart):
    """chart[c] += what chains of rules of one symbol add to it; `row` is scratch."""
    at, top, total = chains.at, chains.top, chains.total
    if len(top) == 0:
        return
    for b in range(len(at) - 1):
        row[b] = chart[c, b]
    for b in range(len(at) - 1):
        if row[b] > 0.0:
            for u in range(at[b], at[b + 1]):
                chart[c, top[u]] += total[u] * row[b]


@kernel
def spell(words, tables, row, chart, exponent):
    """Rows of single words: e(A, i, i + 1) = p(A -> x_i), and chains above."""
    length = len(words)
    for i in range(length):
        c = cell(i, i + 1, length)
        chart[c, :] = 0.0
        if words[i] >= 0:
            for r in range(tables.word_at[words[i]], tables.word_at[words[i] + 1]):
                chart[c, tables.tag[r]] = tables.lexical[r]
        add_chains(c, tables.chains, row, chart)
        settle(c, 0, chart.shape[1], chart, exponent)


@kernel
def list_active(c, left_at, chart, active, count):
    """The symbols of a span with which a binary rule begins."""
    found = 0
    for b in range(len(left_at) - 1):
        if chart[c, b] > 0.0 and left_at[b + 1] > left_at[b]:
            active[c, found] = b
            found += 1
    count[c] = found


@kernel
def join(c, one, two, weight, left_at, parent, right, binary, chart, active, count):  # fmt: skip
    """Add what the rules make of two spans, side by side, to the one that they are together."""
    for n in range(count[one]):
        b = active[one, n]
        part = weight * chart[one, b]
        for rule in range(left_at[b], left_at[b + 1]):
            value = chart[two, right[rule]]
            if value > 0.0:
                chart[c, parent[rule]] += binary[rule] * part * value


@kernel
def inside(words, tables, open_spans, row, chart, exponent, active, count):
    """e(A, i, j) = sum of p(A -> B C) e(B, i, k) e(C, k, j) (COURSE 4.2), by the symbols that are there."""
    length = len(words)
    left_at, parent, right, binary = tables.left_at, tables.parent, tables.right, tables.binary
    spell(words, tables, row, chart, exponent)
    for span in range(1, length + 1):
        for i in range(length - span + 1):
            j = i + span
            c = cell(i, j, length)
            if span > 1:
                chart[c, :] = 0.0
                top = best_split(i, j, length, exponent) if open_spans[c] else DEAD
                for k in range(i + 1, j if top != DEAD else i):
                    one, two = cell(i, k, length), cell(k, j, length)
                    if exponent[one] != DEAD and exponent[two] != DEAD:
                        weight = power(exponent[one] + exponent[two] - top)
                        if weight > 0.0:
                            join(c, one, two, weight, left_at, parent, right, binary, chart, active, count)
                add_chains(c, tables.chains, row, chart)
                settle(c, top, chart.shape[1], chart, exponent)
            list_active(c, left_at, chart, active, count)


@kernel
def hand_chains(c, tables, row, chart, out, counts):
    """Outside values of symbols below chains of rules of one symbol; how often each such rule is expected here."""
    chains = tables.chains
    at, top, total = chains.at, chains.top, chains.total
    if len(top) == 0:
        return
    for a in range(len(at) - 1):
        row[a] = out[c, a]
    for b in range(len(at) - 1):
        for u in range(at[b], at[b + 1]):
            out[c, b] += total[u] * row[top[u]]
    first = len(counts) - len(tables.unary)
    for a in range(len(at) - 1):
        if out[c, a] > 0.0:
            for u in range(tables.unary_at[a], tables.unary_at[a + 1]):
                counts[first + u] += out[c, a] * tables.unary[u] * chart[c, tables.below[u]]


@kernel
def hand_words(words, tables, exponent, out, counts):
    """Expected counts of lexical rules."""
    first = len(tables.binary)
    for i in range(len(words)):
        c = cell(i, i + 1, len(words))
        if words[i] >= 0 and exponent[c] != DEAD:
            scale = power(-exponent[c])
            for r in range(tables.word_at[words[i]], tables.word_at[words[i] + 1]):
                counts[first + r] += out[c, tables.tag[r]] * tables.lexical[r] * scale


@kernel
def hand_down(c, one, two, weight, left_at, parent, right, binary, chart, active, count, out, counts):  # fmt: skip
    """Outside values of two spans side by side from the one that they are together."""
    for n in range(count[one]):
        b = active[one, n]
        part, here = chart[one, b], 0.0
        for rule in range(left_at[b], left_at[b + 1]):
            value, above = chart[two, right[rule]], out[c, parent[rule]]
            if value > 0.0 and above > 0.0:
                share = above * binary[rule] * weight
                here += share * value
                out[two, right[rule]] += share * part
                counts[rule] += share * part * value
        out[one, b] += here


@kernel
def outside(words, tables, weight, row, chart, exponent, active, count, out, counts):
    """Outside values times 2^exponent / P, so that out * chart are posteriors; adds expected counts of all rules.

    f(B, i, k) = sum of f(A, i, j) p(A -> B C) e(C, k, j), f(C, k, j) alike (COURSE 4.2, 6 and 7).
    """
    length = len(words)
    left_at, parent, right, binary = tables.left_at, tables.parent, tables.right, tables.binary
    root = cell(0, length, length)
    for c in range(length * (length + 1) // 2):
        out[c, :] = 0.0
    out[root, tables.start] = weight / chart[root, tables.start]
    for span in range(length, 0, -1):
        for i in range(length - span + 1):
            j = i + span
            c = cell(i, j, length)
            if exponent[c] == DEAD:
                continue
            hand_chains(c, tables, row, chart, out, counts)
            for k in range(i + 1, j):
                one, two = cell(i, k, length), cell(k, j, length)
                if exponent[one] != DEAD and exponent[two] != DEAD:
                    share = power(exponent[one] + exponent[two] - exponent[c])
                    if share > 0.0:
                        hand_down(c, one, two, share, left_at, parent, right, binary, chart, active, count, out, counts)
    hand_words(words, tables, exponent, out, counts)
