"""Expected counts, gathered by observation: no locks, no copies of theta, one order of summation.

The pairwise expectation of a set p is sum_t alpha_{t-1} v_t^T over its positions, a
matrix product, multiplied by the factor once at the end.
"""

import numpy as np

from engine.jit import kernel

# Positions of one set that are summed as one piece. Pieces are cut by the data alone, so
# the sum has the same order for any number of threads.
PIECE = 2048


@kernel
def gather_unigrams(layout, positions, gamma, is_first, lo, hi, gradient):
    """gradient[mu[x, y]] += sum over positions of x of gamma[t, y], for x in [lo, hi); start weights alike."""
    n_labels = layout.n_labels
    total = np.empty(n_labels)
    for x in range(lo, hi):
        _gather(layout.unigram_ptr, layout.unigram_code, x, positions, gamma, total, gradient)
        if layout.start_ptr[x + 1] > layout.start_ptr[x]:
            _gather_first(layout, x, positions, gamma, is_first, total, gradient)


@kernel
def _gather(ptr, code, x, positions, gamma, total, gradient):
    lo, hi = ptr[x], ptr[x + 1]
    n_labels = len(total)
    if hi - lo == n_labels:
        total[:] = 0.0
        for i in range(positions.ptr[x], positions.ptr[x + 1]):
            t = positions.entry[i]
            for y in range(n_labels):
                total[y] += gamma[t, y]
        for y in range(n_labels):
            gradient[lo + y] += total[y]
    elif hi > lo:
        base = ptr[0]
        for i in range(positions.ptr[x], positions.ptr[x + 1]):
            t = positions.entry[i]
            for s in range(lo, hi):
                gradient[s] += gamma[t, code[s - base]]


@kernel
def _gather_first(layout, x, positions, gamma, is_first, total, gradient):
    total[:] = 0.0
    for i in range(positions.ptr[x], positions.ptr[x + 1]):
        t = positions.entry[i]
        if is_first[t]:
            for y in range(len(total)):
                total[y] += gamma[t, y]
    lo, hi = layout.start_ptr[x], layout.start_ptr[x + 1]
    full = hi - lo == len(total)
    for s in range(lo, hi):
        gradient[s] += total[s - lo if full else layout.start_code[s - layout.start_ptr[0]]]


@kernel
def multiply_piece(entries, alpha, v, out):
    """out[y', y] = sum over the positions t in entries of alpha_{t-1}(y') v_t(y), four at a time."""
    n = alpha.shape[1]
    out[:] = 0.0
    whole = len(entries) - len(entries) % 4
    for k in range(0, whole, 4):
        t0, t1, t2, t3 = entries[k], entries[k + 1], entries[k + 2], entries[k + 3]
        for i in range(n):
            a0, a1, a2, a3 = alpha[t0 - 1, i], alpha[t1 - 1, i], alpha[t2 - 1, i], alpha[t3 - 1, i]
            for j in range(n):
                out[i, j] += a0 * v[t0, j] + a1 * v[t1, j] + a2 * v[t2, j] + a3 * v[t3, j]
    for k in range(whole, len(entries)):
        t = entries[k]
        for i in range(n):
            a = alpha[t - 1, i]
            for j in range(n):
                out[i, j] += a * v[t, j]


@kernel
def finish_sets(factors, piece_ptr, partial, lo, hi, expected):
    """expected[p] = (sum of its pieces, in order) * factor, for the sets [lo, hi)."""
    for p in range(lo, hi):
        expected[p] = 0.0
        for k in range(piece_ptr[p], piece_ptr[p + 1]):
            expected[p] += partial[k]
        d = factors.slot[p]
        if d >= 0:
            for i in range(expected.shape[1]):
                for j in range(expected.shape[2]):
                    expected[p, i, j] *= factors.dense[d, i, j]
        else:
            for k in range(factors.begin[p], factors.end[p]):
                expected[p, factors.row[k], factors.column[k]] *= 1.0 + factors.entry[k]


@kernel
def gather_bigrams(layout, sets_of, expected, lo, hi, gradient):
    """gradient[lambda[x, y', y]] += sum over the sets p that contain x of expected[p, y', y]."""
    n_labels = layout.n_labels
    for x in range(lo, hi):
        begin, end = layout.bigram_ptr[x], layout.bigram_ptr[x + 1]
        full = end - begin == n_labels * n_labels
        for i in range(sets_of.ptr[x], sets_of.ptr[x + 1]):
            flat = expected[sets_of.entry[i]].ravel()
            if full:
                for c in range(n_labels * n_labels):
                    gradient[begin + c] += flat[c]
            else:
                for s in range(begin, end):
                    gradient[s] += flat[layout.bigram_code[s - layout.bigram_ptr[0]]]
