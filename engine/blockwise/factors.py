"""What blockwise descent keeps that follows theta, and the factors among it: how they are made and used.

The pairwise factor of a set of observations is E = M (1 + D), element by element. M is a matrix that
many sets share: that of the set's base, its members which occur in many sets (a letter, say). D holds one entry
for each pair of labels at which the other members (longer n-grams) have a score s: exp(s) - 1. So
matrices stay few enough for the cache, and when a rare member moves, a few entries are all that changes.

Two other forms take over where that one does not pay. While the base itself has few non-zero scores, M is
all ones and D holds every non-zero score of the set (SBCD 9). And a set whose other members have many scores, or
very negative ones, for which 1 + D would cancel digits, has a matrix of its own and no entries.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.scores import SAFE_RANGE
from espalier.engine.runtime.inner_loops import LANES, add_run, add_runs, add_values, exponentiate, extremes
from espalier.engine.runtime.jit import apart, kernel

# Lowest score of an entry. Squared marginals are summed as if there were no entries and then put right, which costs
# digits: exp(8) times a rounding here.
LOWEST = -4.0


class Sharing(NamedTuple):
    """How P sets are made of B bases; a member is one of all bases or of no base."""

    base: np.ndarray  # int32 [P], the base of a set
    base_ptr: np.ndarray  # int64 [B + 1], members of a base
    base_member: np.ndarray  # int32
    rest_ptr: np.ndarray  # int64 [P + 1], the members of a set beyond its base
    rest_member: np.ndarray  # int32
    bases_ptr: np.ndarray  # int64 [V + 1], bases that hold x
    bases: np.ndarray  # int32
    sets_ptr: np.ndarray  # int64 [V + 1], sets that hold x beyond their base
    sets: np.ndarray  # int32
    held_ptr: np.ndarray  # int64 [B + 1], sets of a base
    held: np.ndarray  # int32


class Scores(NamedTuple):
    """exp of the position scores u, by distinct row of observations."""

    e: np.ndarray  # float64 [R, Y], exp(u - top)
    top: np.ndarray  # float64 [R]
    width: np.ndarray  # float64 [R], max u - min u


class EntryLimits(NamedTuple):
    """Which form a set or a base takes; these do not follow theta."""

    whole: np.ndarray  # int64 [P], entries up to which a set with a thin base is sparse
    rest: np.ndarray  # int64 [P], entries up to which a set takes the matrix of its base
    base: np.ndarray  # int64 [B], non-zero scores up to which a base is thin: it has no matrix


class Bases(NamedTuple):
    """The scores that the members of a base have together."""

    thin: np.ndarray  # bool [B]
    shift: np.ndarray  # float64 [B]
    spread: np.ndarray  # float64 [B], max - min of the scores


class SetFactors(NamedTuple):
    """The matrices M of the sets and how they are scaled."""

    place: np.ndarray  # int32 [P], the matrix that set p may have for its own, -1 = none
    slot: np.ndarray  # int32 [P], the matrix that set p has: its base's, its own, -1 = all ones
    shift: np.ndarray  # float64 [P]
    spread: np.ndarray  # float64 [P], at least max - min of the pair scores
    rest_spread: np.ndarray  # float64 [P], the part of it beyond the base
    dense: np.ndarray  # float64 [B + D, Y, Y], exp(s - shift), of bases and then of sets; zero where too wide for it


class Entries(NamedTuple):
    """The entries D of the sets; those of set p are begin[p]..end[p] - 1."""

    begin: np.ndarray  # int64 [P]
    end: np.ndarray  # int64 [P]
    row: np.ndarray  # int32
    column: np.ndarray  # int32
    value: np.ndarray  # float64, exp(s) - 1


class Messages(NamedTuple):
    """Forward and backward messages by position, and how far they are right in each sequence."""

    alpha: np.ndarray  # float64 [T, Y]
    beta: np.ndarray  # float64 [T, Y]
    scale: np.ndarray  # float64 [T], what alpha_t was divided by
    alpha_level: np.ndarray  # float64 [T], log of all that was divided out up to t
    beta_level: np.ndarray  # float64 [T], the same from the end
    alpha_until: np.ndarray  # int64 [N], alpha is right before this position
    beta_from: np.ndarray  # int64 [N], beta is right from this position on


class BlockState(NamedTuple):
    """What follows theta: scores of positions, factors of sets, messages. Kernels take what they need before loops."""

    scores: Scores
    limits: EntryLimits
    bases: Bases
    factors: SetFactors
    entries: Entries
    messages: Messages


# Making ---------------------------------------------------------------------------------------------


@apart
def renew_rows(theta, layout, data, index, state, which):
    """e, top and width of the distinct rows `which`; e is left alone where scaling cannot serve."""
    scores, observations, offsets, valued, values = (
        state.scores, data.observations, data.offsets, data.valued, data.values,
    )  # fmt: skip
    n_labels = layout.n_labels
    score, out = np.empty(n_labels), np.empty(n_labels)
    power, high, low = np.empty(n_labels, np.int64), np.empty(LANES), np.empty(LANES)
    power_as_float = power.view(np.float64)
    e, example, sequence_of = scores.e, index.example, index.sequence_of
    for r in which:
        t = example[r]
        for y in range(n_labels):
            score[y] = 0.0
        add_runs(theta, layout.unigram_ptr, layout.unigram_code, observations, t, score)
        add_values(theta, layout.unigram_ptr, layout.unigram_code, valued, values, t, score)
        if t == offsets[sequence_of[t]]:
            add_runs(theta, layout.start_ptr, layout.start_code, observations, t, score)
        top, bottom = extremes(score, high, low)
        scores.top[r], scores.width[r] = top, top - bottom
        if top - bottom <= SAFE_RANGE:
            exponentiate(score, top, power, power_as_float, out)
            for y in range(n_labels):
                e[r, y] = out[y]


@apart
def renew_bases(theta, layout, sharing, state, which):
    """The matrices of the bases `which`, but of thin ones, and what their sets take from them; `stale_sets` is next."""
    limits, bases, factors = state.limits, state.bases, state.factors
    n_labels = layout.n_labels
    n_pairs = n_labels * n_labels
    score, out = np.empty(n_pairs), np.empty(n_pairs)
    power, high, low = np.empty(n_pairs, np.int64), np.empty(LANES), np.empty(LANES)
    power_as_float = power.view(np.float64)
    ptr, code, dense, held = layout.bigram_ptr, layout.bigram_code, factors.dense, sharing.held
    for b in which:
        score[:] = 0.0
        for m in range(sharing.base_ptr[b], sharing.base_ptr[b + 1]):
            x = sharing.base_member[m]
            add_run(theta, code, ptr[0], ptr[x], ptr[x + 1] - ptr[x], score)
        nonzero = 0
        for c in range(n_pairs):
            nonzero += score[c] != 0.0
        highest, lowest = extremes(score, high, low)
        bases.thin[b] = nonzero <= limits.base[b] and lowest >= LOWEST and highest <= SAFE_RANGE
        if bases.thin[b]:
            continue
        shift, spread = highest, highest - lowest
        bases.shift[b], bases.spread[b] = shift, spread
        if spread <= SAFE_RANGE:
            exponentiate(score, highest, power, power_as_float, out)
        else:
            out[:] = 0.0  # such steps go to logarithms; the zeros that they leave are multiplied by this matrix
        for i in range(n_labels):
            for j in range(n_labels):
                dense[b, i, j] = out[i * n_labels + j]
        for k in range(sharing.held_ptr[b], sharing.held_ptr[b + 1]):
            p = held[k]
            if factors.slot[p] == b:
                factors.shift[p], factors.spread[p] = shift, spread + factors.rest_spread[p]


@kernel
def stale_sets(sharing, state, which):
    """The sets of the bases `which` that have to be made anew when their bases have been."""
    bases, factors = state.bases, state.factors
    size = 0
    for b in which:
        for k in range(sharing.held_ptr[b], sharing.held_ptr[b + 1]):
            size += bases.thin[b] or factors.slot[sharing.held[k]] != b
    found = np.empty(size, np.int32)
    at = 0
    for b in which:
        for k in range(sharing.held_ptr[b], sharing.held_ptr[b + 1]):
            if bases.thin[b] or factors.slot[sharing.held[k]] != b:
                found[at] = sharing.held[k]
                at += 1
    return found


@apart
def renew_sets(theta, layout, sets, sharing, state, which):
    """The factors of the sets `which`, whose bases are up to theta."""
    bases, no_base = state.bases, np.int32(-1)
    n_pairs = layout.n_labels**2
    score, touched, seen = np.zeros(n_pairs), np.empty(n_pairs, np.int32), np.zeros(n_pairs, np.bool_)
    for p in which:
        b = sharing.base[p]
        if not bases.thin[b]:
            begin, end = sharing.rest_ptr[p], sharing.rest_ptr[p + 1]
            count = _scores(theta, layout, sharing.rest_member, begin, end, score, touched, seen)
            stored = _store_entries(state, p, layout.n_labels, score, touched, count, b)
            _clear(score, touched, seen, count)
            if stored:
                continue
        count = _scores(theta, layout, sets.observation, sets.ptr[p], sets.ptr[p + 1], score, touched, seen)
        if not (bases.thin[b] and _store_entries(state, p, layout.n_labels, score, touched, count, no_base)):
            _store_matrix(state, p, layout.n_labels, score, touched, count)
        _clear(score, touched, seen, count)


@kernel
def renew_block(theta, layout, sets, sharing, state, x):
    """All factors that depend on observation x."""
    bases = sharing.bases[sharing.bases_ptr[x] : sharing.bases_ptr[x + 1]]
    if len(bases):
        renew_bases(theta, layout, sharing, state, bases)
        renew_sets(theta, layout, sets, sharing, state, stale_sets(sharing, state, bases))
    renew_sets(theta, layout, sets, sharing, state, sharing.sets[sharing.sets_ptr[x] : sharing.sets_ptr[x + 1]])


@kernel
def _scores(theta, layout, members, begin, end, score, touched, seen):
    """score[c] of the pairs that the members begin..end - 1 have weights for: touched[:count]; all others are zero."""
    ptr, code, n_pairs = layout.bigram_ptr, layout.bigram_code, len(score)
    count = 0
    for m in range(begin, end):
        x = members[m]
        full = ptr[x + 1] - ptr[x] == n_pairs
        for s in range(ptr[x], ptr[x + 1]):
            c = s - ptr[x] if full else code[s - ptr[0]]
            if theta[s] != 0.0:
                if not seen[c]:
                    seen[c] = True
                    touched[count] = c
                    count += 1
                score[c] += theta[s]
    return count


@kernel
def _clear(score, touched, seen, count):
    for k in range(count):
        score[touched[k]] = 0.0
        seen[touched[k]] = False


@kernel
def _store_entries(state, p, n_labels, score, touched, count, b):
    """Set p as matrix b, or all ones for b = -1, and entries for the scores; False when it must have its own matrix."""
    limits, bases, factors, entries = state.limits, state.bases, state.factors, state.entries
    nonzero, highest, lowest = 0, 0.0, 0.0
    for k in range(count):
        s = score[touched[k]]
        highest, lowest = max(highest, s), min(lowest, s)
        nonzero += s != 0.0
    most = limits.whole[p] if b < 0 else limits.rest[p]
    fits = nonzero <= most and lowest >= LOWEST and highest <= SAFE_RANGE
    if not (fits or nonzero == 0 or factors.place[p] < 0):
        return False
    at = entries.begin[p]
    for k in range(count):
        c = touched[k]
        if score[c] != 0.0:
            entries.row[at], entries.column[at], entries.value[at] = c // n_labels, c % n_labels, np.expm1(score[c])
            at += 1
    entries.end[p], factors.slot[p], factors.rest_spread[p] = at, b, highest - lowest
    factors.shift[p] = 0.0 if b < 0 else bases.shift[b]
    factors.spread[p] = highest - lowest + (0.0 if b < 0 else bases.spread[b])
    return True


@kernel
def _store_matrix(state, p, n_labels, score, touched, count):
    """Set p as a matrix of its own."""
    factors, entries = state.factors, state.entries
    highest = lowest = 0.0 if count < n_labels * n_labels else score[touched[0]]
    for k in range(count):
        highest, lowest = max(highest, score[touched[k]]), min(lowest, score[touched[k]])
    d, dense = factors.place[p], factors.dense
    rest = np.exp(-highest) if count < n_labels * n_labels else 0.0
    factors.slot[p], factors.shift[p], factors.spread[p] = d, highest, highest - lowest
    entries.end[p] = entries.begin[p]
    for i in range(n_labels):
        for j in range(n_labels):
            dense[d, i, j] = rest
    for k in range(count):
        c = touched[k]
        dense[d, c // n_labels, c % n_labels] = np.exp(score[c] - highest)


# Using ----------------------------------------------------------------------------------------------


@kernel
def pass_message(factors, entries, p, vector, out):
    """out(j) = sum_i vector(i) E_p(i, j)."""
    matrices, row, column, entry = factors.dense, entries.row, entries.column, entries.value
    begin, end, d, n = entries.begin[p], entries.end[p], factors.slot[p], len(vector)
    if d < 0:
        total = 0.0
        for i in range(n):
            total += vector[i]
        for j in range(n):
            out[j] = total
        for k in range(begin, end):
            out[column[k]] += vector[row[k]] * entry[k]
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
    for k in range(begin, end):
        i, j = row[k], column[k]
        out[j] += vector[i] * matrices[d, i, j] * entry[k]


@kernel
def pull_message(factors, entries, p, vector, out):
    """out(i) = sum_j E_p(i, j) vector(j): the backward step from the matrices of the forward one."""
    matrices, row, column, entry = factors.dense, entries.row, entries.column, entries.value
    begin, end, d, n = entries.begin[p], entries.end[p], factors.slot[p], len(vector)
    if d < 0:
        total = 0.0
        for j in range(n):
            total += vector[j]
        for i in range(n):
            out[i] = total
        for k in range(begin, end):
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
    for k in range(begin, end):
        i, j = row[k], column[k]
        out[i] += matrices[d, i, j] * entry[k] * vector[j]


@kernel
def factor_at(state, p, i, j):
    """E_p(i, j)."""
    factors, entries = state.factors, state.entries
    d = factors.slot[p]
    value = factors.dense[d, i, j] if d >= 0 else 1.0
    for k in range(entries.begin[p], entries.end[p]):
        if entries.row[k] == i and entries.column[k] == j:
            return value * (1.0 + entries.value[k])
    return value
