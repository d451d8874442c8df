"""The gradient at all blocks at once, from messages that have been carried through all sequences.

Observation by observation: the marginals of the positions where x occurs are added up, those of pairs matrix by matrix
(`engine.blockwise.factors`), as M . sum left right^T and then what entries change. An observation with few
pairs of labels has only those computed.
"""

import numpy as np

from espalier.engine.blockwise.kernels import by_logarithms
from espalier.engine.runtime.inner_loops import add_products
from espalier.engine.runtime.jit import kernel

BATCH = 64  # positions whose pairs are summed at once
FEW = 16  # all pairs at once are cheaper than single ones from one in so many on


@kernel
def block_gradient(theta, layout, data, sets, index, state, begin, end, out):
    """Expected counts (SBCD 5) at all slots of the blocks begin..end - 1."""
    factors, messages = state.factors, state.messages
    n_labels = layout.n_labels
    n_pairs = n_labels * n_labels
    position, piece_ptr, pieces, rank, sequence_of = (
        index.position, index.piece_ptr, index.piece, index.rank, index.sequence_of
    )  # fmt: skip
    offsets, weights, alpha_until, of_position = data.offsets, data.weights, messages.alpha_until, sets.of_position
    left, right, gamma = np.empty(n_labels), np.empty(n_labels), np.empty(n_labels)
    lefts, rights, order = np.empty((BATCH, n_labels)), np.empty((BATCH, n_labels)), np.arange(BATCH)
    pair, plain, where = np.zeros(n_pairs), np.zeros(n_pairs), np.full(n_pairs, -1, np.int32)
    for x in range(begin, end):
        code = block_codes(layout, x)
        some = len(code) * FEW < n_pairs
        sums = np.zeros(2 * n_labels + len(code))
        for k in range(len(code) if some else 0):
            where[code[k]] = k
        for piece in range(piece_ptr[x], piece_ptr[x + 1]):
            lo, hi = pieces[piece], pieces[piece + 1]
            by_matrix = np.empty(hi - lo, np.int64)
            for k in range(lo, hi):
                by_matrix[rank[k]] = k
            used, matrix = np.int64(0), np.int64(-1)
            for k in by_matrix:
                t = position[k]
                n = sequence_of[t]
                if alpha_until[n] < offsets[n + 1]:
                    continue  # too wide for scaling
                at_start = t == offsets[n]
                position_marginal(state, index, t, index.repeats[k] * weights[n], at_start, gamma, left, right)
                for y in range(n_labels):
                    sums[y] += gamma[y]
                if at_start:
                    for y in range(n_labels):
                        sums[n_labels + y] += gamma[y]
                    continue
                if not len(code):
                    continue
                p = of_position[t]
                d = factors.slot[p]
                if some:
                    _add_some(state, p, d, code, where, n_labels, left, right, sums)
                    continue
                if used == BATCH or d != matrix:
                    add_products(order, order, 0, used, lefts, rights, 0, plain)
                    used = 0
                if d != matrix:
                    close_matrix(factors.dense, matrix, plain, pair)
                    matrix = d
                add_entries(state, p, d, left, right, pair)
                for y in range(n_labels):
                    lefts[used, y], rights[used, y] = left[y], right[y]
                used += 1
            if used:
                add_products(order, order, 0, used, lefts, rights, 0, plain)
                close_matrix(factors.dense, matrix, plain, pair)
            _add_wide(theta, layout, data, sets, index, state, lo, hi, code, sums)
        for k in range(len(code)):
            if some:
                where[code[k]] = -1
            else:
                sums[2 * n_labels + k] += pair[code[k]]
        if not some:
            pair[:] = 0.0
        _store(layout, x, sums, out)


@kernel
def block_codes(layout, x):
    """The pairs of block x's run."""
    lo, hi = layout.bigram_ptr[x], layout.bigram_ptr[x + 1]
    code = np.empty(hi - lo, np.int32)
    full = hi - lo == layout.n_labels**2
    for s in range(lo, hi):
        code[s - lo] = s - lo if full else layout.bigram_code[s - layout.bigram_ptr[0]]
    return code


@kernel
def position_marginal(state, index, t, weight, at_start, gamma, left, right):
    """w gamma_t, and two vectors such that w q_t = left E right (see `engine.blockwise.kernels`)."""
    scores, messages = state.scores, state.messages
    alpha, beta, e, r = messages.alpha, messages.beta, scores.e, index.row_of[t]
    total = 0.0
    for y in range(len(gamma)):
        total += alpha[t, y] * beta[t, y]
    unit = weight / total
    for y in range(len(gamma)):
        gamma[y] = unit * alpha[t, y] * beta[t, y]
    if not at_start:
        unit /= messages.scale[t]
        for y in range(len(gamma)):
            left[y] = alpha[t - 1, y]
            right[y] = unit * e[r, y] * beta[t, y]


@kernel
def close_matrix(dense, d, plain, pair):
    """pair += M . plain, with M all ones for d = -1; plain starts anew."""
    if d < 0:
        for c in range(len(pair)):
            pair[c] += plain[c]
            plain[c] = 0.0
        return
    n = dense.shape[1]
    for i in range(n):
        at = np.uint64(i * n)
        for j in range(np.uint64(n)):
            pair[at + j] += dense[d, i, j] * plain[at + j]
            plain[at + j] = 0.0


@kernel
def add_entries(state, p, d, left, right, pair):
    """pair[y', y] += left(y') M(y', y) D(y', y) right(y) at the entries of set p."""
    factors, entries = state.factors, state.entries
    dense, row, column, entry = factors.dense, entries.row, entries.column, entries.value
    for k in range(entries.begin[p], entries.end[p]):
        i, j = row[k], column[k]
        x = left[i] * right[j] * entry[k]
        pair[i * len(left) + j] += x * dense[d, i, j] if d >= 0 else x


@kernel
def _add_some(state, p, d, code, where, n_labels, left, right, sums):
    """The marginals of the pairs `code` at one position."""
    factors, entries = state.factors, state.entries
    dense, row, column, entry = factors.dense, entries.row, entries.column, entries.value
    base = 2 * n_labels
    for k in range(len(code)):
        i, j = code[k] // n_labels, code[k] % n_labels
        x = left[i] * right[j]
        sums[base + k] += x * dense[d, i, j] if d >= 0 else x
    for at in range(entries.begin[p], entries.end[p]):
        i, j = row[at], column[at]
        k = where[i * n_labels + j]
        if k >= 0:
            x = left[i] * right[j] * entry[at]
            sums[base + k] += x * dense[d, i, j] if d >= 0 else x


@kernel
def _add_wide(theta, layout, data, sets, index, state, lo, hi, code, sums):
    """The occurrences lo..hi - 1 in sequences with extreme scores."""
    messages = state.messages
    position, sequence_of = index.position, index.sequence_of
    k = lo
    while k < hi:
        n = np.int64(sequence_of[position[k]])
        end = k + 1
        while end < hi and sequence_of[position[end]] == n:
            end += 1
        if messages.alpha_until[n] < data.offsets[n + 1]:
            by_logarithms(
                theta, layout, data, sets, n, position, index.repeats, k, end, code, True, sums, np.zeros(len(sums))
            )
        k = end


@kernel
def _store(layout, x, sums, out):
    n_labels, base = layout.n_labels, 0
    for ptr, codes in ((layout.unigram_ptr, layout.unigram_code), (layout.start_ptr, layout.start_code)):
        full = ptr[x + 1] - ptr[x] == n_labels
        for s in range(ptr[x], ptr[x + 1]):
            out[s] = sums[base + (s - ptr[x] if full else codes[s - ptr[0]])]
        base += n_labels
    lo = layout.bigram_ptr[x]
    for s in range(lo, layout.bigram_ptr[x + 1]):
        out[s] = sums[base + s - lo]
