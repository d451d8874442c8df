"""Kernels of blockwise descent: kept messages, restricted recursions, derivatives of one block.

For each position the forward message alpha_t and the backward message beta_t are kept, each
scaled to sum to 1, with the logarithm of what was divided out (its level). A block that moves
makes alpha stale from its first occurrence on and beta before its last; the next block that
needs them carries them on from there. So a visit costs the way from the positions that moved
last to the occurrences of x, not whole sequences (SBCD 4.4).

A visit begins by collecting, column by column, the messages that enter the occurrences of x and do
not change while x moves (`Hot`). In a sequence with one occurrence at t, Z is then
sum_y e_t(y) beta_t(y) sum_y' alpha_{t-1}(y') E_t(y', y): no recursion, for many sequences at a time.
With several occurrences the recursion runs from the first to the last.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.blockwise.factors import factor_at, pass_message, pull_message
from espalier.engine.chain.logarithms import join, log_back, log_forward, make_pair_step
from espalier.engine.chain.scores import SAFE_RANGE
from espalier.engine.lattice.recursions import position_marginals
from espalier.engine.runtime.jit import apart, kernel

PAD = 8  # columns between rows of a scratch matrix, so that its rows do not meet in one cache set
# Single pairs are cheaper than all pairs up to this share of them, as single ones are not blocked four by four.
FEW_PAIRS = 0.5


class Index(NamedTuple):
    """Where each block occurs; M occurrences, each a distinct position of x, ascending within x."""

    ptr: np.ndarray  # int64 [V + 1], occurrences of x
    position: np.ndarray  # int32 [M]
    repeats: np.ndarray  # float64 [M], how many templates yield x there
    rank: np.ndarray  # int32 [M], column in its piece: alone in a sequence first; by base, set, repeats and row
    piece_ptr: np.ndarray  # int64 [V + 1], pieces of x
    piece: np.ndarray  # int64 [pieces + 1], piece i holds the occurrences piece[i]..piece[i + 1]
    sequence_of: np.ndarray  # int32 [T]
    row_of: np.ndarray  # int32 [T], which distinct row of observations a position has
    example: np.ndarray  # int32 [R], one position of each distinct row
    rows_ptr: np.ndarray  # int64 [V + 1], distinct rows that hold x
    rows: np.ndarray  # int32


@apart
def carry_alpha(of_position, row_of, state, lo, begin, end, current, following):
    """alpha of the positions begin..end - 1 of the sequence that starts at lo; False where a step is too wide."""
    scores, factors, entries, messages = state.scores, state.factors, state.entries, state.messages
    n_labels = len(current)
    e, top, width, shift, spread = scores.e, scores.top, scores.width, factors.shift, factors.spread
    alpha, scale, alpha_level = messages.alpha, messages.scale, messages.alpha_level
    level = 0.0
    if begin > lo:
        level = alpha_level[begin - 1]
        for y in range(n_labels):
            current[y] = alpha[begin - 1, y]
    for t in range(begin, end):
        r = row_of[t]
        span = width[r]
        if t > lo:
            p = of_position[t]
            span += spread[p]
            if span <= SAFE_RANGE:
                pass_message(factors, entries, p, current, following)
                level += shift[p]
        else:
            for y in range(n_labels):
                following[y] = 1.0
        if not span <= SAFE_RANGE:
            return False
        total = 0.0
        for y in range(n_labels):
            following[y] *= e[r, y]
            total += following[y]
        scale[t] = total
        inverse = 1.0 / total
        for y in range(n_labels):
            current[y] = following[y] * inverse
            alpha[t, y] = current[y]
        level += np.log(total) + top[r]
        alpha_level[t] = level
    return True


@apart
def carry_beta(of_position, row_of, state, hi, begin, end, current, following):
    """beta of the positions begin - 1 down to end of the sequence that ends before hi; False where a step is too wide.

    beta is right from `begin` on, if that is a position of the sequence.
    """
    scores, factors, entries, messages = state.scores, state.factors, state.entries, state.messages
    n_labels = len(current)
    e, top, width, shift, spread = scores.e, scores.top, scores.width, factors.shift, factors.spread
    beta, beta_level = messages.beta, messages.beta_level
    level = 0.0
    if begin < hi:
        level = beta_level[begin]
        for y in range(n_labels):
            following[y] = beta[begin, y]
    for t in range(begin - 1, end - 1, -1):
        if t == hi - 1:
            for y in range(n_labels):
                following[y] = 1.0
        else:
            r, p = row_of[t + 1], of_position[t + 1]
            if not width[r] + spread[p] <= SAFE_RANGE:
                return False
            for y in range(n_labels):
                current[y] = following[y] * e[r, y]
            pull_message(factors, entries, p, current, following)
            total = 0.0
            for y in range(n_labels):
                total += following[y]
            inverse = 1.0 / total
            for y in range(n_labels):
                following[y] *= inverse
            level += np.log(total) + top[r] + shift[p]
        for y in range(n_labels):
            beta[t, y] = following[y]
        beta_level[t] = level
    return True


@kernel
def fill_messages(theta, layout, data, sets, index, state, begin, end):
    """Sum of w log Z of the sequences begin..end - 1; all their messages, but for those with a step too wide."""
    of_position, row_of = sets.of_position, index.row_of
    n_labels = layout.n_labels
    current, following = np.empty(n_labels), np.empty(n_labels)
    loss = 0.0
    for n in range(begin, end):
        lo, hi = data.offsets[n], data.offsets[n + 1]
        log_z = _segment(of_position, row_of, state, n, lo, hi, lo, hi - 1, False, current, following)
        if np.isnan(log_z):
            score, log_alpha = np.empty((hi - lo, n_labels)), np.empty((hi - lo, n_labels))
            log_z = log_forward(theta, layout, data, sets, lo, hi, score, log_alpha)
        loss += data.weights[n] * log_z
    return loss


class Hot(NamedTuple):
    """What enters the M occurrences of one piece, by column; columns of one set, row and repeats stand together."""

    left: np.ndarray  # float64 [Y, M + PAD], alpha_{t-1}
    back: np.ndarray  # float64 [Y, M + PAD], beta_t
    right: np.ndarray  # float64 [Y, M + PAD], such that q_t = left E right / (w r); what a derivative leaves, as gamma
    gamma: np.ndarray  # float64 [Y, M + PAD], marginals of the labels; NaN where scores are extreme
    total: np.ndarray  # float64 [M], sum of alpha_{t-1}
    level: np.ndarray  # float64 [M], logarithm of what was divided out of both
    alone: np.ndarray  # bool [M], the only occurrence of its sequence, and its messages are known
    set: np.ndarray  # int32 [M], -1 at a first position
    row: np.ndarray  # int32 [M]
    repeats: np.ndarray  # float64 [M]
    weight: np.ndarray  # float64 [M]


@kernel
def make_hot(n_labels, size):
    return Hot(
        np.empty((n_labels, size + PAD)), np.empty((n_labels, size + PAD)), np.empty((n_labels, size + PAD)),
        np.empty((n_labels, size + PAD)), np.empty(size), np.empty(size), np.empty(size, np.bool_),
        np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size), np.empty(size),
    )  # fmt: skip


@apart
def heat_piece(layout, data, sets, index, state, piece, hot):
    """Collect the messages that enter the occurrences of a piece of a block, which may move from now on."""
    messages = state.messages
    n_labels = layout.n_labels
    position, rank, sequence_of, row_of = index.position, index.rank, index.sequence_of, index.row_of
    of_position, offsets, alpha, beta = sets.of_position, data.offsets, messages.alpha, messages.beta
    left, back = hot.left, hot.back
    current, following = np.empty(n_labels), np.empty(n_labels)
    k, end_k = index.piece[piece], index.piece[piece + 1]
    while k < end_k:
        n = np.int64(sequence_of[position[k]])
        end = k + 1
        while end < end_k and sequence_of[position[end]] == n:
            end += 1
        lo, hi = offsets[n], offsets[n + 1]
        first, last = np.int64(position[k]), np.int64(position[end - 1])
        known = _reach(of_position, row_of, state, n, lo, hi, first - 1, last, current, following)
        messages.alpha_until[n] = min(messages.alpha_until[n], first)
        messages.beta_from[n] = max(messages.beta_from[n], last)
        for i in range(k, end):
            t, m = position[i], rank[i]
            hot.set[m], hot.row[m] = of_position[t], row_of[t]
            hot.repeats[m], hot.weight[m] = index.repeats[i], data.weights[n]
            hot.alone[m] = known and end == k + 1
            if hot.alone[m]:
                level, total = messages.beta_level[t], 0.0
                for y in range(n_labels):
                    back[y, m] = beta[t, y]
                if t > lo:
                    level += messages.alpha_level[t - 1]
                    for y in range(n_labels):
                        left[y, m] = alpha[t - 1, y]
                        total += alpha[t - 1, y]
                hot.level[m], hot.total[m] = level, total
        k = end


@kernel
def _reach(of_position, row_of, state, n, lo, hi, to_alpha, to_beta, current, following):
    """Carry alpha on to position to_alpha and beta down to to_beta; False where a step is too wide."""
    messages = state.messages
    alpha_until, beta_from = messages.alpha_until[n], messages.beta_from[n]
    if alpha_until <= to_alpha or beta_from > to_beta:
        messages.alpha_until[n], messages.beta_from[n] = lo, hi
        if alpha_until <= to_alpha:
            if not carry_alpha(of_position, row_of, state, lo, alpha_until, to_alpha + 1, current, following):
                return False
            alpha_until = to_alpha + 1
        if beta_from > to_beta:
            if not carry_beta(of_position, row_of, state, hi, beta_from, to_beta, current, following):
                return False
            beta_from = to_beta
        messages.alpha_until[n], messages.beta_from[n] = alpha_until, beta_from
    return True


@apart
def evaluate_hot(theta, layout, data, sets, index, state, piece, hot, code, derive, first, second):
    """Sum of w log Z over the sequences of a piece of a block, at the weights that the block has now.

    With `derive`, first and second [Y + Y + len(code)] gain the sums over the occurrences of
    w r q and w r^2 q (1 - q) (SBCD 5, 16): of the labels, of the labels at a first position,
    of the pairs `code`.
    """
    scores, factors = state.scores, state.factors
    n_labels, size = layout.n_labels, len(hot.set)
    inner, z = hot.gamma, np.empty(size)
    loss, begin = 0.0, np.int64(0)
    while begin < size:
        run = _same_matrix(state, hot, begin)
        if not hot.alone[begin]:
            begin = run
            continue
        _pass_columns(state, hot, begin, run, inner)
        while begin < run:
            end = min(run, _same_group(hot, begin))
            p, r = hot.set[begin], hot.row[begin]
            if scores.width[r] + (factors.spread[p] if p >= 0 else 0.0) <= SAFE_RANGE:
                _pass_entries(state, p, hot, begin, end, inner)
                loss += _close_columns(state, p, r, hot, begin, end, inner, z)
                if derive:
                    _derive_columns(state, p, r, hot, begin, end, z, first, second)
            begin = end
    loss += _one_by_one(theta, layout, data, sets, index, state, piece, hot, code, derive, first, second)
    if derive and len(code):
        _add_pairs(state, n_labels, hot, code, first, second)
    return loss


@kernel
def _same_matrix(state, hot, begin):
    """Where the columns end whose sets have the matrix of that of column `begin`, or are first positions like it."""
    factors = state.factors
    p, end = hot.set[begin], begin + 1
    while (
        end < len(hot.set)
        and hot.alone[end] == hot.alone[begin]
        and (hot.set[end] == p or (p >= 0 and hot.set[end] >= 0 and factors.slot[hot.set[end]] == factors.slot[p]))
    ):
        end += 1
    return end


@kernel
def _same_group(hot, begin):
    """Where the columns of the set, row and repeats of column `begin` end."""
    end = begin + 1
    while (
        end < len(hot.set)
        and hot.set[end] == hot.set[begin]
        and hot.row[end] == hot.row[begin]
        and hot.repeats[end] == hot.repeats[begin]
    ):
        end += 1
    return end


@kernel
def _pass_columns(state, hot, begin, end, inner):
    """inner[y, m] = sum_y' left[y', m] M(y', y), or 1 at first positions, for columns begin..end - 1 of one matrix."""
    factors = state.factors
    left, total, n = hot.left, hot.total, len(hot.left)
    lo, hi = np.uint64(begin), np.uint64(end)
    if hot.set[begin] < 0:
        for y in range(n):
            for m in range(lo, hi):
                inner[y, m] = 1.0
        return
    d, dense = factors.slot[hot.set[begin]], factors.dense
    if d < 0:
        for y in range(n):
            for m in range(lo, hi):
                inner[y, m] = total[m]
        return
    if end - begin < 4:
        for m in range(lo, hi):
            for j in range(n):
                inner[j, m] = 0.0
            for i in range(n):
                a = left[i, m]
                for j in range(n):
                    inner[j, m] += a * dense[d, i, j]
        return
    whole = n - n % 4
    for j in range(n):
        for m in range(lo, hi):
            inner[j, m] = 0.0
        for i in range(0, whole, 4):
            a, b, c, g = dense[d, i, j], dense[d, i + 1, j], dense[d, i + 2, j], dense[d, i + 3, j]
            for m in range(lo, hi):
                inner[j, m] += a * left[i, m] + b * left[i + 1, m] + c * left[i + 2, m] + g * left[i + 3, m]
        for i in range(whole, n):
            a = dense[d, i, j]
            for m in range(lo, hi):
                inner[j, m] += a * left[i, m]


@kernel
def _pass_entries(state, p, hot, begin, end, inner):
    """inner[y, m] += sum_y' left[y', m] M(y', y) D(y', y), for columns begin..end - 1 of set p."""
    factors, entries = state.factors, state.entries
    if p < 0:
        return
    d, dense, left = factors.slot[p], factors.dense, hot.left
    lo, hi = np.uint64(begin), np.uint64(end)
    row, column, entry = entries.row, entries.column, entries.value
    for k in range(entries.begin[p], entries.end[p]):
        i, j = row[k], column[k]
        x = entry[k] * dense[d, i, j] if d >= 0 else entry[k]
        for m in range(lo, hi):
            inner[j, m] += x * left[i, m]


@kernel
def _close_columns(state, p, r, hot, begin, end, inner, z):
    """z[m] = sum_y inner[y, m] e(y) back[y, m]; the sum of w log Z of the columns that stand alone.

    inner becomes inner e back, the marginal but for 1 / z.
    """
    scores, factors = state.scores, state.factors
    e, back, n = scores.e, hot.back, len(hot.back)
    lo, hi = np.uint64(begin), np.uint64(end)
    for m in range(lo, hi):
        z[m] = 0.0
    for y in range(n):
        x = e[r, y]
        for m in range(lo, hi):
            inner[y, m] *= x * back[y, m]
            z[m] += inner[y, m]
    constant = scores.top[r] + (factors.shift[p] if p >= 0 else 0.0)
    loss = 0.0
    for m in range(begin, end):
        if hot.alone[m]:
            loss += hot.weight[m] * (hot.level[m] + np.log(z[m]) + constant)
    return loss


@kernel
def _derive_columns(state, p, r, hot, begin, end, z, first, second):
    """Marginals and their moments, and right[y, m] = w r e(y) beta(y) / z, of the columns that stand alone."""
    scores = state.scores
    e, back, right, gamma, weight = scores.e, hot.back, hot.right, hot.gamma, hot.weight
    n, repeats = len(back), hot.repeats[begin]
    lo, hi = np.uint64(begin), np.uint64(end)
    for m in range(begin, end):
        z[m] = 1.0 / z[m] if hot.alone[m] else 0.0
    for y in range(n):
        x = repeats * e[r, y]
        total, squares = 0.0, 0.0
        for m in range(lo, hi):
            if z[m] > 0.0:
                q = gamma[y, m] * z[m]
                gamma[y, m] = q
                right[y, m] = weight[m] * z[m] * x * back[y, m]
                total += weight[m] * q
                squares += weight[m] * q * q
        first[y] += repeats * total
        second[y] += repeats * repeats * (total - squares)
        if p < 0:
            first[n + y] += repeats * total
            second[n + y] += repeats * repeats * (total - squares)


@kernel
def _one_by_one(theta, layout, data, sets, index, state, piece, hot, code, derive, first, second):
    """The same for sequences with several occurrences, or with a step that is too wide; the sum of w log Z."""
    scores, factors = state.scores, state.factors
    position, rank, repeats = index.position, index.rank, index.repeats
    sequence_of, row_of, of_position = index.sequence_of, index.row_of, sets.of_position
    offsets, weights, n_labels = data.offsets, data.weights, layout.n_labels
    current, following = np.empty(n_labels), np.empty(n_labels)
    loss = 0.0
    k, end_k = index.piece[piece], index.piece[piece + 1]
    while k < end_k:
        t = np.int64(position[k])
        n = np.int64(sequence_of[t])
        end = k + 1
        while end < end_k and sequence_of[position[end]] == n:
            end += 1
        p = of_position[t]
        narrow = scores.width[row_of[t]] + (factors.spread[p] if p >= 0 else 0.0) <= SAFE_RANGE
        if not (hot.alone[rank[k]] and narrow):
            lo, hi, last = offsets[n], offsets[n + 1], np.int64(position[end - 1])
            log_z = _segment(of_position, row_of, state, n, lo, hi, t, last, True, current, following)
            fits = not np.isnan(log_z)
            if not fits:
                log_z = by_logarithms(
                    theta, layout, data, sets, n, position, repeats, k, end, code, derive, first, second
                )
            loss += weights[n] * log_z
            if derive:
                for i in range(k, end):
                    _store_occurrence(row_of, state, position[i], lo, repeats[i], weights[n], fits, hot.alone[rank[i]],
                                      rank[i], hot.left, hot.right, hot.gamma, first, second)  # fmt: skip
        k = end
    return loss


@kernel
def _segment(of_position, row_of, state, n, lo, hi, first, last, moves, current, following):
    """log Z of sequence n, whose block occurs from `first` to `last`; NaN where a step is too wide.

    While the block moves, what is written between its occurrences is not counted as known.
    """
    messages = state.messages
    if not moves:
        if not _reach(of_position, row_of, state, n, lo, hi, last, first, current, following):
            return np.nan
    elif not (
        _reach(of_position, row_of, state, n, lo, hi, first - 1, last, current, following)
        and carry_alpha(of_position, row_of, state, lo, first, last + 1, current, following)
        and carry_beta(of_position, row_of, state, hi, last, first, current, following)
    ):
        return np.nan
    alpha, beta = messages.alpha, messages.beta
    total = 0.0
    for y in range(len(current)):
        total += alpha[last, y] * beta[last, y]
    return messages.alpha_level[last] + np.log(total) + messages.beta_level[last]


@kernel
def _store_occurrence(row_of, state, t, lo, repeats, weight, fits, alone, m, left, right, gamma, first, second):
    """Marginals of position t into the sums, and the two vectors of its pairwise marginal into column m.

    q_t(y', y) = alpha_{t-1}(y') E_t(y', y) e_t(y) beta_t(y) / (c_t sum alpha_t beta_t)
    """
    scores, messages = state.scores, state.messages
    n_labels = len(left)
    if not fits:
        for y in range(n_labels):
            left[y, m] = left[y, m] if alone else 0.0  # what enters a column that stands alone serves the next trial
            right[y, m] = 0.0
            gamma[y, m] = np.nan
        return
    alpha, beta, e = messages.alpha, messages.beta, scores.e
    total = 0.0
    for y in range(n_labels):
        total += alpha[t, y] * beta[t, y]
    inverse = 1.0 / total
    for y in range(n_labels):
        q = alpha[t, y] * beta[t, y] * inverse
        gamma[y, m] = q
        first[y] += weight * repeats * q
        second[y] += weight * repeats * repeats * q * (1.0 - q)
    if t == lo:
        for y in range(n_labels):
            q = alpha[t, y] * beta[t, y] * inverse
            first[n_labels + y] += weight * repeats * q
            second[n_labels + y] += weight * repeats * repeats * q * (1.0 - q)
            left[y, m] = right[y, m] = 0.0
        return
    r = row_of[t]
    unit = weight * repeats * inverse / messages.scale[t]
    for y in range(n_labels):
        left[y, m] = alpha[t - 1, y]
        right[y, m] = unit * e[r, y] * beta[t, y]


@apart
def _add_pairs(state, n_labels, hot, code, first, second):
    """The pairwise sums: M . sum left right^T, and M^2 . sum (left right^T)^2 / w, matrix by matrix; then the entries.

    An entry D of a set changes M x into M (1 + D) x in its columns, where x = left right^T.
    """
    factors = state.factors
    n_pairs = n_labels * n_labels
    count = len(code)
    full = count > FEW_PAIRS * n_pairs
    size = n_pairs if full else count
    s1, s2 = np.empty(size), np.empty(size)
    where = np.full(n_pairs, -1, np.int32)
    for k in range(count):
        where[code[k]] = k
    inverse = 1.0 / hot.weight
    left, right, dense = hot.left, hot.right, factors.dense
    base = 2 * n_labels
    begin = np.int64(0)
    while begin < len(hot.set):
        p, repeats = hot.set[begin], hot.repeats[begin]
        run = _same_matrix(state, hot, begin)
        end = begin + 1
        while end < run and hot.repeats[end] == repeats:
            end += 1
        if p >= 0:
            if full:
                _all_products(left, right, inverse, begin, end, s1, s2)
            else:
                _some_products(left, right, inverse, begin, end, code, n_labels, s1, s2)
            d = factors.slot[p]
            for k in range(count):
                c = code[k] if full else k
                x = dense[d, code[k] // n_labels, code[k] % n_labels] if d >= 0 else 1.0
                first[base + k] += x * s1[c]
                second[base + k] += repeats * x * s1[c] - x * x * s2[c]
            for m in range(begin, end):
                if factors.spread[hot.set[m]] <= SAFE_RANGE:  # else entries may be infinite, and `right` is zero
                    _add_entries(
                        state, hot.set[m], left, right, m, inverse[m], repeats, n_labels, where, base, first, second
                    )
        begin = end


@kernel
def _add_entries(state, p, left, right, m, inverse, repeats, n_labels, where, base, first, second):
    """What the entries of set p change in the sums over column m."""
    factors, entries = state.factors, state.entries
    d, dense, row, column, entry = factors.slot[p], factors.dense, entries.row, entries.column, entries.value
    for at in range(entries.begin[p], entries.end[p]):
        i, j = row[at], column[at]
        k = where[i * n_labels + j]
        if k >= 0:
            x = left[i, m] * right[j, m]
            if d >= 0:
                x *= dense[d, i, j]
            first[base + k] += entry[at] * x
            second[base + k] += repeats * entry[at] * x - entry[at] * (entry[at] + 2.0) * x * x * inverse


@kernel
def _all_products(left, right, inverse, begin, end, s1, s2):
    """s1[i, j] = sum_m left[i, m] right[j, m] and s2 = the same of squares, over w, for all pairs."""
    n = len(left)
    lo, hi = np.uint64(begin), np.uint64(end)
    for i in range(n):
        j = 0
        while j + 1 < n:
            a = b = c = d = 0.0
            for m in range(lo, hi):
                x, y = left[i, m] * right[j, m], left[i, m] * right[j + 1, m]
                a += x
                b += y
                c += x * x * inverse[m]
                d += y * y * inverse[m]
            s1[i * n + j], s1[i * n + j + 1], s2[i * n + j], s2[i * n + j + 1] = a, b, c, d
            j += 2
        if j < n:
            a = c = 0.0
            for m in range(lo, hi):
                x = left[i, m] * right[j, m]
                a += x
                c += x * x * inverse[m]
            s1[i * n + j], s2[i * n + j] = a, c


@kernel
def _some_products(left, right, inverse, begin, end, code, n_labels, s1, s2):
    """The same for the pairs `code`."""
    lo, hi = np.uint64(begin), np.uint64(end)
    for k in range(len(code)):
        i, j = code[k] // n_labels, code[k] % n_labels
        a = c = 0.0
        for m in range(lo, hi):
            x = left[i, m] * right[j, m]
            a += x
            c += x * x * inverse[m]
        s1[k], s2[k] = a, c


@apart
def hessian_piece(layout, state, hot, at, code, matrix):
    """matrix += sum over the occurrences of w r^2 (E f_j f_k - E f_j E f_k) (THESIS appendix D).

    From what an evaluation with derivatives left. Rows and columns are slots at the places `at` of [Y labels |
    Y labels at a start | pairs `code`]. False where scores are extreme: then the diagonal must serve.
    """
    n_labels, size = layout.n_labels, len(at)
    q = np.empty(size)
    for m in range(len(hot.set)):
        if np.isnan(hot.gamma[0, m]):
            return False
        p, share = hot.set[m], 1.0 / (hot.weight[m] * hot.repeats[m])
        for i in range(size):
            a = at[i]
            if a < n_labels:
                q[i] = hot.gamma[a, m]
            elif a < 2 * n_labels:
                q[i] = hot.gamma[a - n_labels, m] if p < 0 else 0.0
            elif p < 0:
                q[i] = 0.0
            else:
                y, x = code[a - 2 * n_labels] // n_labels, code[a - 2 * n_labels] % n_labels
                q[i] = share * hot.left[y, m] * factor_at(state, p, y, x) * hot.right[x, m]
        weight = hot.weight[m] * hot.repeats[m] ** 2
        for i in range(size):
            for j in range(i + 1):
                matrix[i, j] += weight * (_together(at[i], at[j], code, n_labels, q[i], q[j]) - q[i] * q[j])
    for i in range(size):
        for j in range(i):
            matrix[j, i] = matrix[i, j]
    return True


@kernel
def _together(a, b, code, n_labels, qa, qb):
    """E f_a f_b at one position: a is not before b in [labels | labels at a start | pairs]."""
    if a == b:
        return qa
    label = code[a - 2 * n_labels] % n_labels if a >= 2 * n_labels else a % n_labels
    if b < n_labels <= a and b == label:
        return qa
    return 0.0


@apart
def by_logarithms(theta, layout, data, sets, n, position, repeats, k_lo, k_hi, code, derive, first, second):
    """log Z and the same sums for a sequence with extreme scores."""
    n_labels = layout.n_labels
    lo, hi, weight = data.offsets[n], data.offsets[n + 1], data.weights[n]
    score, log_alpha = np.empty((hi - lo, n_labels)), np.empty((hi - lo, n_labels))
    log_z = log_forward(theta, layout, data, sets, lo, hi, score, log_alpha)
    if not derive:
        return log_z
    step, log_beta, gamma = make_pair_step(n_labels), np.zeros(n_labels), np.empty((hi - lo, n_labels))
    position_marginals(log_alpha, hi - 1 - lo, log_beta, gamma, step.rows)
    k = k_hi - 1
    for t in range(hi - 1, lo - 1, -1):
        times = 0.0
        if k >= k_lo and position[k] == t:
            times = repeats[k]
            k -= 1
        for y in range(n_labels):
            _add_moment(y, gamma[t - lo, y], times, weight, first, second)
            if t == lo:
                _add_moment(n_labels + y, gamma[t - lo, y], times, weight, first, second)
        if t == lo:
            break
        log_back(theta, layout, sets, sets.of_position[t], score, t - lo, log_alpha, log_beta, step)
        position_marginals(log_alpha, t - 1 - lo, log_beta, gamma, step.rows)
        if times:
            join(1.0, gamma, t - 1 - lo, step)
            for c in range(len(code)):
                _add_moment(2 * n_labels + c, step.pairs[code[c]], times, weight, first, second)
    return log_z


@kernel
def _add_moment(at, q, repeats, weight, first, second):
    first[at] += weight * repeats * q
    second[at] += weight * repeats * repeats * q * (1.0 - q)
