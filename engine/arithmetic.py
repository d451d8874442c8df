"""The inner loops of all recursions, written so that the compiler vectorises them.

Callers hand over plain arrays: an array taken out of a named tuple or sliced from a
larger one costs an atomic reference count, which is more than the arithmetic here. An
index that is a sum is unsigned: numba would test a signed one for counting from the end,
element by element, and that test keeps a loop from being vectorised.
"""

import numba
import numpy as np

from engine.jit import OPTIONS, kernel

LANES = 8
LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # their sum is ln 2; HIGH has 32 bits

# Without reassociation: the two-part reduction below would be merged into one, at the cost of digits.
ordered = numba.njit(**(OPTIONS | {"fastmath": {"contract"}}))


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
def add_runs(theta, ptr, code, observations, t, out):
    """out[code] += theta[slot] over the runs of all observations at position t."""
    n_codes, base = len(out), ptr[0]
    for k in range(observations.shape[1]):
        x = observations[t, k]
        if x < 0:
            continue
        lo, hi = ptr[x], ptr[x + 1]
        if hi - lo == n_codes:
            begin = np.uint64(lo)
            for c in range(np.uint64(n_codes)):
                out[c] += theta[begin + c]
        else:
            for s in range(lo, hi):
                out[code[s - base]] += theta[s]


@kernel
def pass_message(slot, matrices, begin, end, source, target, entry, p, vector, out):
    """out(j) = sum_i vector(i) E_p(i, j), dense, or sum vector + sum over the sparse entries of E_p - 1 (SBCD 9).

    With the transposed matrices, and source and target exchanged, it is the backward step.
    """
    n = len(vector)
    d = slot[p]
    if d < 0:
        total = 0.0
        for i in range(n):
            total += vector[i]
        for j in range(n):
            out[j] = total
        for k in range(begin[p], end[p]):
            out[target[k]] += vector[source[k]] * entry[k]
        return
    for j in range(n):
        out[j] = 0.0
    whole = n - n % 4  # four rows at a time save loads and stores of out
    for i in range(0, whole, 4):
        a, b, c, e = vector[i], vector[i + 1], vector[i + 2], vector[i + 3]
        for j in range(n):
            out[j] += (
                a * matrices[d, i, j]
                + b * matrices[d, i + 1, j]
                + c * matrices[d, i + 2, j]
                + e * matrices[d, i + 3, j]
            )
    for i in range(whole, n):
        a = vector[i]
        for j in range(n):
            out[j] += a * matrices[d, i, j]


@kernel
def add_products(order, lo, hi, alpha, v, base, out):
    """out[base + i * Y + j] += sum over r in order[lo:hi] of alpha[r - 1, i] * v[r, j], four rows at a time."""
    n = alpha.shape[1]
    whole = lo + (hi - lo) // 4 * 4
    for m in range(lo, whole, 4):
        q, r, s, t = order[m], order[m + 1], order[m + 2], order[m + 3]
        for i in range(n):
            a, b, c, d = alpha[q - 1, i], alpha[r - 1, i], alpha[s - 1, i], alpha[t - 1, i]
            at = np.uint64(base + i * n)
            for j in range(np.uint64(n)):
                out[at + j] += a * v[q, j] + b * v[r, j] + c * v[s, j] + d * v[t, j]
    for m in range(whole, hi):
        q = order[m]
        for i in range(n):
            a = alpha[q - 1, i]
            at = np.uint64(base + i * n)
            for j in range(np.uint64(n)):
                out[at + j] += a * v[q, j]
