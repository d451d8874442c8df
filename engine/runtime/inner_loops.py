"""The inner loops of all recursions, written so that the compiler vectorises them.

Callers hand over plain arrays: an array taken out of a named tuple or sliced from a
larger one costs an atomic reference count, which is more than the arithmetic here. An
index that is a sum is unsigned: numba would test a signed one for counting from the end,
element by element, and that test keeps a loop from being vectorised.
"""

from functools import partial

import numpy as np

from espalier.engine.runtime.jit import kernel

LANES = 8
LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # their sum is ln 2; HIGH has 32 bits

# Without reassociation: the two-part reduction below would be merged into one, at the cost of digits.
ordered = partial(kernel, fastmath={"contract"})


@ordered
def exponentiate(score, top, power, scale, out):
    """out = exp(score - top) for -700 < score - top <= 0, to the last digit or two.

    exp(x) = 2^k exp(r) with k = round(x / ln 2), |r| <= ln(2) / 2, exp(r) by its series to
    degree 13. `power` int64 and `scale` float64 are one buffer seen in two ways: the bits of 2^k.
    """
    for i in range(len(score)):
        x = score[i] - top
        k = np.floor(x * LOG2_E + 0.5)
        r = (x - k * LN2_HIGH) - k * LN2_LOW
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        out[i] = p * r + 1.0
        power[i] = (np.int64(k) + 1023) << 52
    for i in range(len(score)):
        out[i] *= scale[i]


@kernel
def put(values, out):
    """The first elements of `out` become `values`: numba's own assignment of arrays takes seconds to compile."""
    for i in range(len(values)):
        out[i] = values[i]


@kernel
def extremes(values, high, low):
    """(largest, smallest), lane by lane. A NaN may be passed over here; it shows in the sum of the exponentials."""
    n = len(values)
    for j in range(LANES):
        high[j] = low[j] = values[min(j, n - 1)]
    for i in range(LANES, n - LANES + 1, LANES):
        for j in range(LANES):
            x = values[i + j]
            high[j] = x if x > high[j] else high[j]
            low[j] = x if x < low[j] else low[j]
    for i in range(max(0, n - n % LANES), n):
        x = values[i]
        high[0] = x if x > high[0] else high[0]
        low[0] = x if x < low[0] else low[0]
    top, bottom = high[0], low[0]
    for j in range(1, LANES):
        top = high[j] if high[j] > top else top
        bottom = low[j] if low[j] < bottom else bottom
    return top, bottom


@kernel
def add_run(theta, code, base, lo, length, out):
    """out[code] += theta[slot] over a run of `length` slots from `lo` on; `base` is where the family begins.

    Written with an empty second loop in place of an `else`, which the compiler makes twice as slow.
    """
    hi = lo + length
    if length == len(out):
        begin = np.uint64(lo)
        for c in range(np.uint64(length)):
            out[c] += theta[begin + c]
        hi = lo
    for s in range(lo, hi):
        out[np.uint64(code[np.uint64(s - base)])] += theta[np.uint64(s)]


@kernel
def take_run(rows, r, n_codes, code, base, lo, length, out):
    """out[slot] += rows[r, code] over such a run."""
    hi = lo + length
    if length == n_codes:
        begin = np.uint64(lo)
        for c in range(np.uint64(length)):
            out[begin + c] += rows[r, c]
        hi = lo
    for s in range(lo, hi):
        out[np.uint64(s)] += rows[r, np.uint64(code[np.uint64(s - base)])]


@kernel
def add_runs(theta, ptr, code, observations, t, out):
    """out[code] += theta[slot] over the runs of all observations at position t."""
    for k in range(observations.shape[1]):
        x = observations[t, k]
        if x >= 0:
            add_run(theta, code, ptr[0], ptr[x], ptr[x + 1] - ptr[x], out)


@kernel
def add_values(theta, ptr, code, valued, values, t, out):
    """out[code] += value * theta[slot] over the runs of all observations with a value at position t."""
    base = ptr[0]
    for k in range(valued.shape[1]):
        x = valued[t, k]
        if x < 0:
            continue
        value, lo, hi = values[t, k], ptr[x], ptr[x + 1]
        if hi - lo == len(out):
            begin = np.uint64(lo)
            for c in range(np.uint64(hi - lo)):
                out[c] += value * theta[begin + c]
            lo = hi
        for s in range(lo, hi):
            out[np.uint64(code[np.uint64(s - base)])] += value * theta[np.uint64(s)]


@kernel
def take_values(ptr, code, valued, values, t, rows, r, n_codes, weight, out):
    """out[slot] += weight * value * rows[r, code] over such runs."""
    base = ptr[0]
    for k in range(valued.shape[1]):
        x = valued[t, k]
        if x < 0:
            continue
        value, lo, hi = weight * values[t, k], ptr[x], ptr[x + 1]
        if hi - lo == n_codes:
            begin = np.uint64(lo)
            for c in range(np.uint64(hi - lo)):
                out[begin + c] += value * rows[r, c]
            lo = hi
        for s in range(lo, hi):
            out[np.uint64(s)] += value * rows[r, np.uint64(code[np.uint64(s - base)])]


@kernel
def pass_four(matrices, d, source, s0, s1, s2, s3, target, t0, t1, t2, t3):
    """target[t] = source[s] @ matrices[d] for four rows at once: an element of the matrix is read once for four."""
    n = source.shape[1]
    for j in range(n):
        target[t0, j] = target[t1, j] = target[t2, j] = target[t3, j] = 0.0
    for i in range(0, n, 2):
        a0, b0 = source[s0, i], source[s0, i + 1]
        a1, b1 = source[s1, i], source[s1, i + 1]
        a2, b2 = source[s2, i], source[s2, i + 1]
        a3, b3 = source[s3, i], source[s3, i + 1]
        for j in range(n):
            x, y = matrices[d, i, j], matrices[d, i + 1, j]
            target[t0, j] += a0 * x + b0 * y
            target[t1, j] += a1 * x + b1 * y
            target[t2, j] += a2 * x + b2 * y
            target[t3, j] += a3 * x + b3 * y


@kernel
def pass_one(matrices, d, source, s, target, t):
    """target[t] = source[s] @ matrices[d]."""
    n = source.shape[1]
    for j in range(n):
        target[t, j] = 0.0
    for i in range(0, n, 4):
        a, b, c, e = source[s, i], source[s, i + 1], source[s, i + 2], source[s, i + 3]
        for j in range(n):
            target[t, j] += (
                a * matrices[d, i, j]
                + b * matrices[d, i + 1, j]
                + c * matrices[d, i + 2, j]
                + e * matrices[d, i + 3, j]
            )


@kernel
def pass_sparse(n_labels, lo, hi, i_of, j_of, entry, source, s, target, t):
    """target[t](j) = sum source[s] + sum over the entries of E - 1 (SBCD 9).

    Entries that follow each other should differ in i and in j: a sum just stored is slow to load again.
    """
    total = 0.0
    for i in range(n_labels):
        total += source[s, i]
    for j in range(n_labels):
        target[t, j] = total
    for k in range(np.uint64(lo), np.uint64(hi)):
        target[t, np.uint64(j_of[k])] += source[s, np.uint64(i_of[k])] * entry[k]


@kernel
def add_products(rows, before, lo, hi, alpha, v, base, out):
    """out[base + i * W + j] += sum over r in rows[lo:hi] of alpha[before[r], i] * v[r, j], four rows at a time."""
    n = alpha.shape[1]
    whole = lo + (hi - lo) // 4 * 4
    for m in range(lo, whole, 4):
        q, r, s, t = rows[m], rows[m + 1], rows[m + 2], rows[m + 3]
        bq, br, bs, bt = before[q], before[r], before[s], before[t]
        for i in range(n):
            a, b, c, d = alpha[bq, i], alpha[br, i], alpha[bs, i], alpha[bt, i]
            at = np.uint64(base + i * n)
            for j in range(np.uint64(n)):
                out[at + j] += a * v[q, j] + b * v[r, j] + c * v[s, j] + d * v[t, j]
    for m in range(whole, hi):
        q = rows[m]
        for i in range(n):
            a = alpha[before[q], i]
            at = np.uint64(base + i * n)
            for j in range(np.uint64(n)):
                out[at + j] += a * v[q, j]
