"""Inside and outside by products of matrices: for grammars of few symbols that have most of the possible rules.

Per span first O[B, C] = sum over splits of e(B, i, k) e(C, k, j), N^2 for each split, then one product with the tensor
of rules for a block of spans: T^3 N^2 / 6 + T^2 N^3 / 2 instead of T^3 N^3 / 6. Numbers are kept as in `sparse`.
"""

from espalier.engine.grammar.charts import DEAD, cell
from espalier.engine.grammar.sparse import best_split, hand_words, power, settle, spell
from espalier.engine.runtime.jit import kernel

SPANS = 8  # of a block
CHUNK = 256  # columns of the tensor at a time, so that a block of products stays in the nearest cache
SPLITS = 4


@kernel
def list_splits(i, j, length, top, exponent, lefts, rights, shares):
    """Cells of both halves and 2^(their exponents - top) of all splits, filled up to whole SPLITS by zero shares."""
    found = 0
    for k in range(i + 1, j):
        one, two = cell(i, k, length), cell(k, j, length)
        if exponent[one] != DEAD and exponent[two] != DEAD:
            share = power(exponent[one] + exponent[two] - top)
            if share > 0.0:
                lefts[found], rights[found], shares[found] = one, two, share
                found += 1
    full = (found + SPLITS - 1) // SPLITS * SPLITS
    for n in range(found, full):
        lefts[n], rights[n], shares[n] = lefts[0], rights[0], 0.0
    return full


@kernel
def outer_sums(full, lefts, rights, shares, chart, out):
    """out[(B, C)] = sum of share e(B, left) e(C, right) over the splits."""
    wide = chart.shape[1]
    out[:] = 0.0
    for n in range(0, full, SPLITS):
        l0, l1, l2, l3 = lefts[n], lefts[n + 1], lefts[n + 2], lefts[n + 3]
        r0, r1, r2, r3 = chart[rights[n]], chart[rights[n + 1]], chart[rights[n + 2]], chart[rights[n + 3]]
        for b in range(wide):
            x0, x1 = shares[n] * chart[l0, b], shares[n + 1] * chart[l1, b]
            x2, x3 = shares[n + 2] * chart[l2, b], shares[n + 3] * chart[l3, b]
            row = out[b * wide : (b + 1) * wide]
            for c in range(wide):
                row[c] += x0 * r0[c] + x1 * r1[c] + x2 * r2[c] + x3 * r3[c]


@kernel
def by_rules(rules, outer, sums):
    """sums[s, A] = sum over (B, C) of rules[A, (B, C)] outer[s, (B, C)] for a block of spans."""
    wide, columns = rules.shape
    sums[:, :] = 0.0
    for begin in range(0, columns, CHUNK):
        end = min(begin + CHUNK, columns)
        for s in range(0, SPANS, 4):
            o0, o1 = outer[s, begin:end], outer[s + 1, begin:end]
            o2, o3 = outer[s + 2, begin:end], outer[s + 3, begin:end]
            for a in range(0, wide, 2):
                w0, w1 = rules[a, begin:end], rules[a + 1, begin:end]
                t0 = t1 = t2 = t3 = u0 = u1 = u2 = u3 = 0.0
                for p in range(len(w0)):
                    x, y = w0[p], w1[p]
                    t0 += x * o0[p]
                    t1 += x * o1[p]
                    t2 += x * o2[p]
                    t3 += x * o3[p]
                    u0 += y * o0[p]
                    u1 += y * o1[p]
                    u2 += y * o2[p]
                    u3 += y * o3[p]
                sums[s, a] += t0
                sums[s + 1, a] += t1
                sums[s + 2, a] += t2
                sums[s + 3, a] += t3
                sums[s, a + 1] += u0
                sums[s + 1, a + 1] += u1
                sums[s + 2, a + 1] += u2
                sums[s + 3, a + 1] += u3


@kernel
def inside(words, tables, rules, open_spans, scratch, chart, exponent):
    """e(A, i, j) of all spans; `scratch` is (a row, products [SPANS, N^2], sums [SPANS, N], cells, cells, shares)."""
    row, products, sums, lefts, rights, shares = scratch
    length, wide = len(words), chart.shape[1]
    spell(words, tables, row, chart, exponent)
    for span in range(2, length + 1):
        i = 0
        while i <= length - span:
            begin, filled = i, 0
            while i <= length - span and filled < SPANS:
                c = cell(i, i + span, length)
                top = best_split(i, i + span, length, exponent) if open_spans[c] else DEAD
                exponent[c] = top
                if top != DEAD:
                    full = list_splits(i, i + span, length, top, exponent, lefts, rights, shares)
                    outer_sums(full, lefts, rights, shares, chart, products[filled])
                    filled += 1
                i += 1
            if filled > 0:
                products[filled:, :] = 0.0
                by_rules(rules, products, sums)
            end, filled = i, 0
            for i in range(begin, end):
                c = cell(i, i + span, length)
                chart[c, :] = 0.0
                if exponent[c] != DEAD:
                    for a in range(wide):
                        chart[c, a] = sums[filled, a]
                    filled += 1
                    settle(c, exponent[c], wide, chart, exponent)
            i = end


@kernel
def down_rules(rules, above, filled, downs):
    """downs[s, (B, C)] = sum over A of above[s, A] rules[A, (B, C)]."""
    wide, columns = rules.shape
    downs[:filled, :] = 0.0
    for begin in range(0, columns, CHUNK):
        end = min(begin + CHUNK, columns)
        for a in range(0, wide, 4):
            w0, w1, w2, w3 = (rules[a, begin:end], rules[a + 1, begin:end],
                              rules[a + 2, begin:end], rules[a + 3, begin:end])  # fmt: skip
            for s in range(filled):
                x0, x1, x2, x3 = above[s, a], above[s, a + 1], above[s, a + 2], above[s, a + 3]
                row = downs[s, begin:end]
                for p in range(len(w0)):
                    row[p] += x0 * w0[p] + x1 * w1[p] + x2 * w2[p] + x3 * w3[p]


@kernel
def add_counts(products, above, amounts):
    """amounts[A, (B, C)] += sum over the spans of a block of above[s, A] products[s, (B, C)]."""
    wide, columns = amounts.shape
    for begin in range(0, columns, CHUNK):
        end = min(begin + CHUNK, columns)
        for s in range(0, SPANS, 4):
            o0, o1 = products[s, begin:end], products[s + 1, begin:end]
            o2, o3 = products[s + 2, begin:end], products[s + 3, begin:end]
            for a in range(wide):
                x0, x1, x2, x3 = above[s, a], above[s + 1, a], above[s + 2, a], above[s + 3, a]
                row = amounts[a, begin:end]
                for p in range(len(o0)):
                    row[p] += x0 * o0[p] + x1 * o1[p] + x2 * o2[p] + x3 * o3[p]


@kernel
def to_halves(full, lefts, rights, shares, downs, chart, out):
    """Outside values of both halves of all splits of a span: f(B, left) += down[B, C] e(C, right), and the mirror."""
    wide = chart.shape[1]
    for n in range(full):
        share = shares[n]
        if share == 0.0:
            continue
        left, right = chart[lefts[n]], chart[rights[n]]
        out_left, out_right = out[lefts[n]], out[rights[n]]
        for b in range(wide):
            row, part, total = downs[b * wide : (b + 1) * wide], share * left[b], 0.0
            for c in range(wide):
                total += row[c] * right[c]
                out_right[c] += row[c] * part
            out_left[b] += share * total


@kernel
def outside(words, tables, rules, weight, scratch, downs, above, chart, exponent, out, counts, amounts):
    """As in `sparse`; of binary rules `amounts` [A, (B, C)] gets the expected counts over their probabilities."""
    _, products, _, lefts, rights, shares = scratch
    length, wide = len(words), chart.shape[1]
    for c in range(length * (length + 1) // 2):
        out[c, :] = 0.0
    root = cell(0, length, length)
    out[root, tables.start] = weight / chart[root, tables.start]
    for span in range(length, 1, -1):
        i = 0
        while i <= length - span:
            begin, filled = i, 0
            while i <= length - span and filled < SPANS:
                c = cell(i, i + span, length)
                if exponent[c] != DEAD:
                    full = list_splits(i, i + span, length, exponent[c], exponent, lefts, rights, shares)
                    outer_sums(full, lefts, rights, shares, chart, products[filled])
                    for a in range(wide):
                        above[filled, a] = out[c, a]
                    filled += 1
                i += 1
            if filled > 0:
                products[filled:, :] = 0.0
                above[filled:, :] = 0.0
                add_counts(products, above, amounts)
                down_rules(rules, above, filled, downs)
            end, filled = i, 0
            for i in range(begin, end):
                c = cell(i, i + span, length)
                if exponent[c] != DEAD:
                    full = list_splits(i, i + span, length, exponent[c], exponent, lefts, rights, shares)
                    to_halves(full, lefts, rights, shares, downs[filled], chart, out)
                    filled += 1
            i = end
    hand_words(words, tables, exponent, out, counts)
