"""Kernels of blockwise descent: kept messages, restricted recursions, derivatives of one block.

For each position the forward message alpha_t and the backward message beta_t are kept, each
scaled to sum to 1, with the logarithm of what was divided out (its level). A block that moves
makes alpha stale from its first occurrence on and beta before its last; the next block that
needs them carries them on from there. So a visit costs the way from the positions that moved
last to the occurrences of x, not whole sequences, and a trial within a visit only the stretch
from the first to the last occurrence of x (SBCD 4.4).
"""

from typing import NamedTuple

import numpy as np

from engine.arithmetic import LANES, add_runs, exponentiate, extremes, pass_message
from engine.jit import kernel
from engine.logarithms import log_forward, log_sum
from engine.scores import SAFE_RANGE, SPARSE_LOWEST, pair_scores

PAD = 8  # columns between rows of a scratch matrix, so that its rows do not meet in one cache set
# Single pairs are cheaper than all pairs up to this share of them, as single ones are not blocked four by four.
FEW_PAIRS = 0.5


class Index(NamedTuple):
    """Where each block occurs; M occurrences, each a distinct position of x, ascending within x."""

    ptr: np.ndarray  # int64 [V + 1], occurrences of x
    position: np.ndarray  # int32 [M]
    repeats: np.ndarray  # float64 [M], how many templates yield x there
    rank: np.ndarray  # int32 [M], row of the occurrence in its piece, sorted by set and repeats
    piece_ptr: np.ndarray  # int64 [V + 1], pieces of x
    piece: np.ndarray  # int64 [pieces + 1], piece i holds the occurrences piece[i]..piece[i + 1]
    sequence_of: np.ndarray  # int32 [T]
    row_of: np.ndarray  # int32 [T], which distinct row of observations a position has
    example: np.ndarray  # int32 [R], one position of each distinct row
    rows_ptr: np.ndarray  # int64 [V + 1], distinct rows that hold x
    rows: np.ndarray  # int32
    sets_ptr: np.ndarray  # int64 [V + 1], pair sets that hold x
    sets: np.ndarray  # int32


class State(NamedTuple):
    """What follows theta: exp of the position scores by distinct row, factors by set, messages by position."""

    e: np.ndarray  # float64 [R, Y], exp(u - top)
    top: np.ndarray  # float64 [R]
    width: np.ndarray  # float64 [R], max u - min u
    share: np.ndarray  # float64 [P], of non-zero pairs up to which the set is sparse
    place: np.ndarray  # int32 [P], the matrix that set p may use, -1 = none
    slot: np.ndarray  # int32 [P], place[p] while the set is dense, -1 while it is sparse
    shift: np.ndarray  # float64 [P]
    spread: np.ndarray  # float64 [P], max - min of the pair scores
    dense: np.ndarray  # float64 [D, Y, Y], exp(s - shift)
    begin: np.ndarray  # int64 [P], entries of a sparse set
    end: np.ndarray  # int64 [P]
    row: np.ndarray  # int32
    column: np.ndarray  # int32
    entry: np.ndarray  # float64, exp(s) - 1
    alpha: np.ndarray  # float64 [T, Y]
    beta: np.ndarray  # float64 [T, Y]
    scale: np.ndarray  # float64 [T], what alpha_t was divided by
    alpha_level: np.ndarray  # float64 [T], log of all that was divided out up to t
    beta_level: np.ndarray  # float64 [T], the same from the end
    alpha_until: np.ndarray  # int64 [N], alpha is right before this position
    beta_from: np.ndarray  # int64 [N], beta is right from this position on


@kernel
def renew_rows(theta, layout, observations, offsets, index, state, which):
    """e, top and width of the distinct rows `which`; e is left alone where scaling cannot serve."""
    n_labels = layout.n_labels
    score, out = np.empty(n_labels), np.empty(n_labels)
    power, high, low = np.empty(n_labels, np.int64), np.empty(LANES), np.empty(LANES)
    power_as_float = power.view(np.float64)
    e, example, sequence_of = state.e, index.example, index.sequence_of
    for r in which:
        t = example[r]
        for y in range(n_labels):
            score[y] = 0.0
        add_runs(theta, layout.unigram_ptr, layout.unigram_code, observations, t, score)
        if t == offsets[sequence_of[t]]:
            add_runs(theta, layout.start_ptr, layout.start_code, observations, t, score)
        top, bottom = extremes(score, high, low)
        state.top[r], state.width[r] = top, top - bottom
        if top - bottom <= SAFE_RANGE:
            exponentiate(score, top, power, power_as_float, out)
            for y in range(n_labels):
                e[r, y] = out[y]


@kernel
def renew_sets(theta, layout, sets, state, which):
    """The factors of the sets `which`, each dense or sparse by its share of non-zero pairs."""
    n_pairs = layout.n_labels**2
    score, touched, seen = np.zeros(n_pairs), np.empty(n_pairs, np.int32), np.zeros(n_pairs, np.bool_)
    ptr, code, members = layout.bigram_ptr, layout.bigram_code, sets.observation
    for p in which:
        count, everything = 0, False
        for m in range(sets.ptr[p], sets.ptr[p + 1]):
            everything = everything or ptr[members[m] + 1] - ptr[members[m]] == n_pairs
        if everything:
            pair_scores(theta, layout, sets, p, score)
            count = n_pairs
            for c in range(n_pairs):
                touched[c] = c
        else:
            for m in range(sets.ptr[p], sets.ptr[p + 1]):
                x = members[m]
                for s in range(ptr[x], ptr[x + 1]):
                    c = code[s - ptr[0]]
                    if not seen[c]:
                        seen[c] = True
                        touched[count] = c
                        count += 1
                    score[c] += theta[s]
        _store_set(state, p, layout.n_labels, score, touched, count)
        for k in range(count):
            score[touched[k]] = 0.0
            seen[touched[k]] = False


@kernel
def _store_set(state, p, n_labels, score, touched, count):
    """Factor of set p from the scores of the pairs `touched`; all other scores are zero."""
    n_pairs = n_labels * n_labels
    highest = lowest = 0.0 if count < n_pairs else score[touched[0]]
    nonzero = 0
    for k in range(count):
        s = score[touched[k]]
        highest, lowest = max(highest, s), min(lowest, s)
        nonzero += s != 0.0
    d = state.place[p]
    thin = nonzero <= state.share[p] * n_pairs and lowest >= SPARSE_LOWEST and highest <= SAFE_RANGE
    if thin or d < 0:
        state.slot[p], state.shift[p] = -1, 0.0
        state.spread[p] = max(highest, 0.0) - min(lowest, 0.0)
        at = state.begin[p]
        for k in range(count):
            c = touched[k]
            if score[c] != 0.0:
                state.row[at], state.column[at] = c // n_labels, c % n_labels
                state.entry[at] = np.expm1(score[c])
                at += 1
        state.end[p] = at
        return
    state.slot[p], state.shift[p], state.spread[p] = d, highest, highest - lowest
    dense = state.dense
    rest = np.exp(-highest)
    for i in range(n_labels):
        for j in range(n_labels):
            dense[d, i, j] = rest
    for k in range(count):
        c = touched[k]
        dense[d, c // n_labels, c % n_labels] = np.exp(score[c] - highest)


@kernel
def pull_message(slot, matrices, begin, end, row, column, entry, p, vector, out):
    """out(i) = sum_j E_p(i, j) vector(j): the backward step from the matrices of the forward one."""
    n = len(vector)
    d = slot[p]
    if d < 0:
        total = 0.0
        for j in range(n):
            total += vector[j]
        for i in range(n):
            out[i] = total
        for k in range(begin[p], end[p]):
            out[row[k]] += vector[column[k]] * entry[k]
        return
    whole = n - n % 4
    for i in range(0, whole, 4):
        a = b = c = g = 0.0
        for j in range(n):
            x = vector[j]
            a += matrices[d, i, j] * x
            b += matrices[d, i + 1, j] * x
            c += matrices[d, i + 2, j] * x
            g += matrices[d, i + 3, j] * x
        out[i], out[i + 1], out[i + 2], out[i + 3] = a, b, c, g
    for i in range(whole, n):
        a = 0.0
        for j in range(n):
            a += matrices[d, i, j] * vector[j]
        out[i] = a


@kernel
def carry_alpha(of_position, row_of, state, lo, begin, end, current, following):
    """alpha of the positions begin..end - 1 of the sequence that starts at lo; False where a step is too wide."""
    n_labels = len(current)
    slot, dense, first_entry, last_entry = state.slot, state.dense, state.begin, state.end
    row, column, entry, shift, spread = state.row, state.column, state.entry, state.shift, state.spread
    e, top, width, alpha, scale, alpha_level = (
        state.e, state.top, state.width, state.alpha, state.scale, state.alpha_level
    )  # fmt: skip
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
                pass_message(slot, dense, first_entry, last_entry, row, column, entry, p, current, following)
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


@kernel
def carry_beta(of_position, row_of, state, hi, begin, end, current, following):
    """beta of the positions begin - 1 down to end of the sequence that ends before hi; False where a step is too wide.

    beta is right from `begin` on, if that is a position of the sequence.
    """
    n_labels = len(current)
    slot, dense, first_entry, last_entry = state.slot, state.dense, state.begin, state.end
    row, column, entry, shift, spread = state.row, state.column, state.entry, state.shift, state.spread
    e, top, width, beta, beta_level = state.e, state.top, state.width, state.beta, state.beta_level
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
            pull_message(slot, dense, first_entry, last_entry, row, column, entry, p, current, following)
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
        log_z = _segment(of_position, row_of, state, n, lo, hi, lo, hi - 1, False, True, current, following)
        if np.isnan(log_z):
            score, log_alpha = np.empty((hi - lo, n_labels)), np.empty((hi - lo, n_labels))
            log_z = log_forward(theta, layout, data.observations, sets, lo, hi, score, log_alpha)
        loss += data.weights[n] * log_z
    return loss


@kernel
def evaluate_piece(theta, layout, data, sets, index, state, piece, code, moved, derive, first, second):
    """Sum of w log Z over the sequences of a piece of a block.

    With `derive`, first and second [Y + Y + len(code)] gain the sums over the occurrences of
    w r q and w r^2 q (1 - q) (SBCD 5, 16): of the labels, of the labels at a first position,
    of the pairs `code`. `moved`: the block has other weights than when it was last evaluated.
    """
    n_labels = layout.n_labels
    position, rank, repeats = index.position, index.rank, index.repeats
    sequence_of, row_of, of_position = index.sequence_of, index.row_of, sets.of_position
    offsets, weights = data.offsets, data.weights
    lo_k, hi_k = index.piece[piece], index.piece[piece + 1]
    n_rows = hi_k - lo_k if derive else 0
    left, right = np.empty((n_labels, n_rows + PAD)), np.empty((n_labels, n_rows + PAD))
    row_set, row_repeats, row_inverse = np.empty(n_rows, np.int32), np.empty(n_rows), np.empty(n_rows)
    current, following = np.empty(n_labels), np.empty(n_labels)
    loss = 0.0
    k = lo_k
    while k < hi_k:
        n = sequence_of[position[k]]
        end = k + 1
        while end < hi_k and sequence_of[position[end]] == n:
            end += 1
        lo, hi = offsets[n], offsets[n + 1]
        log_z = _segment(of_position, row_of, state, n, lo, hi, position[k], position[end - 1], moved, derive,
                         current, following)  # fmt: skip
        fits = not np.isnan(log_z)
        if not fits:
            log_z = _by_logarithms(theta, layout, data, sets, n, position, repeats, k, end, code, derive, first, second)
        if derive:
            for m in range(k, end):
                t = position[m]
                row_set[rank[m]] = of_position[t]
                row_repeats[rank[m]], row_inverse[rank[m]] = repeats[m], 1.0 / weights[n]
                _store_occurrence(row_of, state, t, lo, repeats[m], weights[n], fits, rank[m], left, right,
                                  first, second)  # fmt: skip
        loss += weights[n] * log_z
        k = end
    if derive and len(code):
        _add_pairs(state, n_labels, row_set, row_repeats, row_inverse, left, right, code, first, second)
    return loss


@kernel
def _segment(of_position, row_of, state, n, lo, hi, first, last, moved, derive, current, following):
    """log Z of sequence n, whose block occurs from `first` to `last`; NaN where a step is too wide."""
    alpha_until, beta_from = state.alpha_until[n], state.beta_from[n]
    if moved:
        alpha_until, beta_from = min(alpha_until, first), max(beta_from, last)
    target = first if derive else last
    if alpha_until <= last or beta_from > target:
        state.alpha_until[n], state.beta_from[n] = lo, hi
        if alpha_until <= last:
            if not carry_alpha(of_position, row_of, state, lo, alpha_until, last + 1, current, following):
                return np.nan
            alpha_until = last + 1
        if beta_from > target:
            if not carry_beta(of_position, row_of, state, hi, beta_from, target, current, following):
                return np.nan
            beta_from = target
        state.alpha_until[n], state.beta_from[n] = alpha_until, beta_from
    alpha, beta = state.alpha, state.beta
    total = 0.0
    for y in range(len(current)):
        total += alpha[last, y] * beta[last, y]
    return state.alpha_level[last] + np.log(total) + state.beta_level[last]


@kernel
def _store_occurrence(row_of, state, t, lo, repeats, weight, fits, m, left, right, first, second):
    """Marginals of position t into the sums, and the two vectors of its pairwise marginal into row m.

    q_t(y', y) = alpha_{t-1}(y') E_t(y', y) e_t(y) beta_t(y) / (c_t sum alpha_t beta_t)
    """
    n_labels = len(left)
    if not fits:
        for y in range(n_labels):
            left[y, m] = right[y, m] = 0.0
        return
    alpha, beta, e = state.alpha, state.beta, state.e
    total = 0.0
    for y in range(n_labels):
        total += alpha[t, y] * beta[t, y]
    inverse = 1.0 / total
    for y in range(n_labels):
        q = alpha[t, y] * beta[t, y] * inverse
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
    unit = weight * repeats * inverse / state.scale[t]
    for y in range(n_labels):
        left[y, m] = alpha[t - 1, y]
        right[y, m] = unit * e[r, y] * beta[t, y]


@kernel
def _add_pairs(state, n_labels, row_set, row_repeats, row_inverse, left, right, code, first, second):
    """The pairwise sums, set by set: E . sum left right^T, and E^2 . sum (left right^T)^2 / w."""
    n_pairs = n_labels * n_labels
    count = len(code)
    full = count > FEW_PAIRS * n_pairs
    size = n_pairs if full else count
    s1, s2, factor = np.empty(size), np.empty(size), np.empty(size)
    where = np.full(n_pairs, -1, np.int32)
    for k in range(count):
        where[code[k]] = code[k] if full else k
    base = 2 * n_labels
    begin = 0
    while begin < len(row_set):
        p, repeats = row_set[begin], row_repeats[begin]
        end = begin + 1
        while end < len(row_set) and row_set[end] == p and row_repeats[end] == repeats:
            end += 1
        if p >= 0:
            if full:
                _all_products(left, right, row_inverse, begin, end, s1, s2)
            else:
                _some_products(left, right, row_inverse, begin, end, code, n_labels, s1, s2)
            _factor_of(state, p, n_labels, code, full, where, factor)
            for k in range(count):
                c = code[k] if full else k
                mean = factor[c] * s1[c]
                first[base + k] += mean
                second[base + k] += repeats * mean - factor[c] * factor[c] * s2[c]
        begin = end


@kernel
def _factor_of(state, p, n_labels, code, full, where, factor):
    """factor[c] = E_p at the pairs asked for."""
    d = state.slot[p]
    dense = state.dense
    if d >= 0:
        if full:
            for i in range(n_labels):
                for j in range(n_labels):
                    factor[i * n_labels + j] = dense[d, i, j]
        else:
            for k in range(len(code)):
                factor[k] = dense[d, code[k] // n_labels, code[k] % n_labels]
        return
    for k in range(len(factor)):
        factor[k] = 1.0
    for k in range(state.begin[p], state.end[p]):
        c = where[state.row[k] * n_labels + state.column[k]]
        if c >= 0:
            factor[c] = 1.0 + state.entry[k]


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


@kernel
def hessian_piece(layout, data, sets, index, state, piece, at, code, matrix):
    """matrix += sum over the occurrences of w r^2 (E f_j f_k - E f_j E f_k) (THESIS appendix D).

    Rows and columns are slots at the places `at` of [Y labels | Y labels at a start | pairs `code`]. Messages must
    be those that an evaluation with derivatives left. False where a sequence has none, its scores being extreme.
    """
    n_labels, size = layout.n_labels, len(at)
    q, row_of, of_position = np.empty(size), index.row_of, sets.of_position
    alpha, beta, e = state.alpha, state.beta, state.e
    for k in range(index.piece[piece], index.piece[piece + 1]):
        t = index.position[k]
        n = index.sequence_of[t]
        if state.alpha_until[n] <= t or state.beta_from[n] > t:
            return False
        first = t == data.offsets[n]
        total = 0.0
        for y in range(n_labels):
            total += alpha[t, y] * beta[t, y]
        unit = 1.0 / total
        for i in range(size):
            a = at[i]
            if a < n_labels:
                q[i] = unit * alpha[t, a] * beta[t, a]
            elif a < 2 * n_labels:
                q[i] = unit * alpha[t, a - n_labels] * beta[t, a - n_labels] if first else 0.0
            elif first:
                q[i] = 0.0
            else:
                c = code[a - 2 * n_labels]
                y = c % n_labels
                pair = _factor_at(state, of_position[t], c // n_labels, y)
                q[i] = unit / state.scale[t] * alpha[t - 1, c // n_labels] * pair * e[row_of[t], y] * beta[t, y]
        weight = data.weights[n] * index.repeats[k] ** 2
        for i in range(size):
            for j in range(i + 1):
                matrix[i, j] += weight * (_together(at[i], at[j], code, n_labels, q[i], q[j]) - q[i] * q[j])
    for i in range(size):
        for j in range(i):
            matrix[j, i] = matrix[i, j]
    return True


@kernel
def _factor_at(state, p, i, j):
    """E_p(i, j)."""
    if state.slot[p] >= 0:
        return state.dense[state.slot[p], i, j]
    for k in range(state.begin[p], state.end[p]):
        if state.row[k] == i and state.column[k] == j:
            return 1.0 + state.entry[k]
    return 1.0


@kernel
def _together(a, b, code, n_labels, qa, qb):
    """E f_a f_b at one position: a is not before b in [labels | labels at a start | pairs]."""
    if a == b:
        return qa
    label = code[a - 2 * n_labels] % n_labels if a >= 2 * n_labels else a % n_labels
    if b < n_labels <= a and b == label:
        return qa
    return 0.0


@kernel
def _by_logarithms(theta, layout, data, sets, n, position, repeats, k_lo, k_hi, code, derive, first, second):
    """log Z and the same sums for a sequence with extreme scores."""
    n_labels, observations = layout.n_labels, data.observations
    lo, hi, weight = data.offsets[n], data.offsets[n + 1], data.weights[n]
    score, log_alpha = np.empty((hi - lo, n_labels)), np.empty((hi - lo, n_labels))
    log_z = log_forward(theta, layout, observations, sets, lo, hi, score, log_alpha)
    if not derive:
        return log_z
    log_beta, pairs, terms = np.zeros(n_labels), np.empty(n_labels * n_labels), np.empty(n_labels)
    k = k_hi - 1
    for t in range(hi - 1, lo - 1, -1):
        times = 0.0
        if k >= k_lo and position[k] == t:
            times = repeats[k]
            k -= 1
        for y in range(n_labels):
            terms[y] = log_alpha[t - lo, y] + log_beta[y]
        total = log_sum(terms)
        for y in range(n_labels):
            q = np.exp(terms[y] - total)
            _add_moment(y, q, times, weight, first, second)
            if t == lo:
                _add_moment(n_labels + y, q, times, weight, first, second)
        if t == lo:
            break
        pair_scores(theta, layout, sets, sets.of_position[t], pairs)
        step = score[t - lo] + log_beta
        for i in range(n_labels):
            for y in range(n_labels):
                terms[y] = pairs[i * n_labels + y] + step[y]
                pairs[i * n_labels + y] = log_alpha[t - 1 - lo, i] + terms[y]
            log_beta[i] = log_sum(terms)
        if times:
            total = log_sum(pairs)
            for c in range(len(code)):
                _add_moment(2 * n_labels + c, np.exp(pairs[code[c]] - total), times, weight, first, second)
        log_beta -= log_beta.max()
    return log_z


@kernel
def _add_moment(at, q, repeats, weight, first, second):
    first[at] += weight * repeats * q
    second[at] += weight * repeats * repeats * q * (1.0 - q)


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
def block_gradient(theta, layout, data, sets, index, state, begin, end, first, second):
    """Expected counts (SBCD 5) and (16) at all slots of the blocks begin..end - 1, from messages that are filled."""
    n_labels = layout.n_labels
    for x in range(begin, end):
        code = block_codes(layout, x)
        mean, spread = np.zeros(2 * n_labels + len(code)), np.zeros(2 * n_labels + len(code))
        for piece in range(index.piece_ptr[x], index.piece_ptr[x + 1]):
            evaluate_piece(theta, layout, data, sets, index, state, piece, code, False, True, mean, spread)
        base = 0
        for ptr, codes in ((layout.unigram_ptr, layout.unigram_code), (layout.start_ptr, layout.start_code)):
            full = ptr[x + 1] - ptr[x] == n_labels
            for s in range(ptr[x], ptr[x + 1]):
                at = base + (s - ptr[x] if full else codes[s - ptr[0]])
                first[s], second[s] = mean[at], spread[at]
            base += n_labels
        lo = layout.bigram_ptr[x]
        for s in range(lo, layout.bigram_ptr[x + 1]):
            first[s], second[s] = mean[base + s - lo], spread[base + s - lo]
