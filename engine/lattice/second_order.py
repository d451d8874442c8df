"""Lattices with scores for triples of labels: the recursions over pairs of labels by logarithms, and what they say.

The score of a labelling is that of the lattice and, from the third position of a sequence on, that of
(y_{t-2}, y_{t-1}, y_t) where there is one. A state is the pair of the last two labels; at a first position it is the
label, in row 0. A state that no scored triple leads into has the sum over all labels before it, which is shared by all
states with the same y', so a position costs Y^2 and Y for each pair that a scored triple leads into or out of. Exact
for any finite scores and for -inf; no limit, length or weight is too extreme.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.lattice.decode import NBest
from espalier.engine.lattice.lattice import Lattice
from espalier.engine.lattice.limits import refuse_impossible
from espalier.engine.lattice.recursions import log_sum
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.threads import balanced

MOST_BYTES = 4 << 30  # of the states of one sequence


class Triples(NamedTuple):
    """The scored triples of each position: those of set which[t], entries begin[q]..end[q] - 1, or none for -1.

    first is y'' Y + y', last is y' Y + y. The entries come in the order of (y'', y', y), and those named `into_` once
    more in that of (y', y, y'').
    """

    which: np.ndarray  # int32 [T]
    begin: np.ndarray  # int64 [Q]
    end: np.ndarray  # int64 [Q]
    first: np.ndarray  # int64
    last: np.ndarray  # int64
    score: np.ndarray  # float64
    into_first: np.ndarray
    into_last: np.ndarray
    into_score: np.ndarray


def make_triples(which: np.ndarray, count: np.ndarray, first, last, score) -> Triples:
    """Of sets with so many entries each, one set after the other."""
    end = np.cumsum(count)
    order = np.lexsort((first, last, np.repeat(np.arange(len(count)), count)))
    return Triples(which, end - count, end, first, last, score, first[order], last[order], score[order])


def log_partition(lattice: Lattice, triples: Triples) -> np.ndarray:
    """log of the sum of exp(score) over the labellings of each sequence, float64 [N]."""
    log_z = np.empty(len(lattice.offsets) - 1)
    _each(lattice, lambda lo, hi: _partitions(lattice, triples, lo, hi, log_z))
    refuse_impossible(log_z > -np.inf)
    return log_z


def score(lattice: Lattice, triples: Triples, labels: np.ndarray) -> np.ndarray:
    """Score of one labelling [T] of each sequence, float64 [N]; -inf where it is impossible."""
    scores = np.empty(len(lattice.offsets) - 1)
    _each(lattice, lambda lo, hi: _scores(lattice, triples, labels, lo, hi, scores))
    return scores


def best(lattice: Lattice, triples: Triples) -> np.ndarray:
    """The best labels of each sequence, int32 [T]; among equals the smallest label wins, from the end."""
    scores, labels = np.empty(len(lattice.offsets) - 1), np.empty(len(lattice.here), np.int32)
    _each(lattice, lambda lo, hi: _best(lattice, triples, lo, hi, scores, labels))
    refuse_impossible(scores > -np.inf)
    return labels


def marginals(lattice: Lattice, triples: Triples) -> np.ndarray:
    """The probability of each label at each position, float64 [T, Y]."""
    gamma, log_z = np.empty(lattice.here.shape), np.empty(len(lattice.offsets) - 1)
    _each(lattice, lambda lo, hi: _marginals(lattice, triples, lo, hi, gamma, log_z))
    refuse_impossible(log_z > -np.inf)
    return gamma


def nbest(lattice: Lattice, triples: Triples, n: int) -> NBest:
    """The n best labellings of each sequence without repeats, best first; see `NBest`."""
    sequences = len(lattice.offsets) - 1
    count, scores = np.empty(sequences, np.int64), np.full((sequences, n), -np.inf)
    labels = np.full((n, len(lattice.here)), -1, np.int32)
    _each(lattice, lambda lo, hi: _nbest(lattice, triples, lo, hi, count, scores, labels))
    refuse_impossible(count > 0)
    return NBest(count, scores, np.minimum(scores - log_partition(lattice, triples)[:, None], 0.0), labels)


def refuse_too_long(lattice: Lattice) -> None:
    """A sequence whose states would take more than `MOST_BYTES`."""
    lengths, n_labels = np.diff(lattice.offsets), lattice.n_labels
    longest = int(lengths.max(initial=0))
    if 8 * longest * n_labels**2 > MOST_BYTES:
        raise EspalierError(
            f"sequence {int(np.argmax(lengths))} has {longest:,} positions, and their pairs of {n_labels} labels take "
            f"{8 * longest * n_labels**2 / 2**30:.1f} GiB where templates begin with T, at most {MOST_BYTES >> 30} are "
            "allowed: cut it, or use a model without them"
        )


def _each(lattice: Lattice, function) -> None:
    refuse_too_long(lattice)
    threads.run(lambda piece: function(*piece), balanced(np.diff(lattice.offsets)))


# ---- recursions of one sequence: `here`, `which`, `third` (the set of triples) and the variables are its own


@kernel
def _column_sums(log_alpha, t, ways):
    """ways(y') = log sum over y'' of exp(log_alpha_t(y'', y'))."""
    n_labels = len(ways)
    for i in range(n_labels):
        ways[i] = log_sum(log_alpha[t, :, i])


@kernel
def forward(here, between, which, third, triples, log_alpha, shifts, ways):
    """log Z, -inf when no labelling is possible; fills log_alpha [L, Y, Y] and by how much each row was shifted."""
    length, n_labels = here.shape
    into_first, into_last, into_score = triples.into_first, triples.into_last, triples.into_score
    terms, log_z = np.empty(n_labels), 0.0
    for t in range(length):
        if t == 0:
            log_alpha[0, :, :] = -np.inf
            for y in range(n_labels):
                log_alpha[0, 0, y] = here[0, y]
        else:
            p, q = which[t], third[t]
            _column_sums(log_alpha, t - 1, ways)
            for i in range(n_labels):
                for y in range(n_labels):
                    log_alpha[t, i, y] = ways[i] + between[p, i, y] + here[t, y]
            k, hi = (triples.begin[q], triples.end[q]) if q >= 0 else (np.int64(0), np.int64(0))
            while k < hi:
                last = into_last[k]
                i, y = last // n_labels, last % n_labels
                for before in range(n_labels):
                    terms[before] = log_alpha[t - 1, before, i]
                while k < hi and into_last[k] == last:
                    terms[into_first[k] // n_labels] += into_score[k]
                    k += 1
                log_alpha[t, i, y] = log_sum(terms) + between[p, i, y] + here[t, y]
        top = log_alpha[t].max()
        if not top > -np.inf:
            return top
        shifts[t] = top
        log_z += top
        for i in range(n_labels):
            for y in range(n_labels):
                log_alpha[t, i, y] -= top
    return log_z + log_sum(log_alpha[length - 1].ravel())


@kernel
def step_back(here, t, between, p, q, triples, log_beta, term):
    """log_beta [Y, Y] goes from position t to t - 1; term(y', y) becomes what y adds to it with all that follows."""
    n_labels = here.shape[1]
    first, last, scores, terms = triples.first, triples.last, triples.score, np.empty(n_labels)
    for i in range(n_labels):
        for y in range(n_labels):
            term[i, y] = between[p, i, y] + here[t, y] + log_beta[i, y]
    for i in range(n_labels):
        log_beta[0, i] = log_sum(term[i])
    for before in range(n_labels - 1, -1, -1):
        for i in range(n_labels):
            log_beta[before, i] = log_beta[0, i]
    k, hi = (triples.begin[q], triples.end[q]) if q >= 0 else (np.int64(0), np.int64(0))
    while k < hi:
        pair = first[k]
        before, i = pair // n_labels, pair % n_labels
        for y in range(n_labels):
            terms[y] = term[i, y]
        while k < hi and first[k] == pair:
            terms[last[k] % n_labels] += scores[k]
            k += 1
        log_beta[before, i] = log_sum(terms)


@kernel
def pair_probabilities(log_alpha, t, log_beta, pairs, gamma):
    """pairs(y', y) and gamma(y) of position t, normalised by themselves; returns the logarithm of their sum before."""
    n_labels, top, total = len(gamma), -np.inf, 0.0
    for i in range(n_labels):
        for y in range(n_labels):
            pairs[i, y] = log_alpha[t, i, y] + log_beta[i, y]
            top = pairs[i, y] if pairs[i, y] > top else top
    for i in range(n_labels):
        for y in range(n_labels):
            pairs[i, y] = np.exp(pairs[i, y] - top)
            total += pairs[i, y]
    gamma[:] = 0.0
    for i in range(n_labels):
        for y in range(n_labels):
            pairs[i, y] /= total
            gamma[y] += pairs[i, y]
    return top + np.log(total)


@kernel
def _group(triples, q, last):
    """The entries of set q that lead into a pair, in the order of (y', y, y'')."""
    lo, hi = triples.begin[q], triples.end[q]
    begin = lo + np.searchsorted(triples.into_last[lo:hi], last)
    end = begin
    while end < hi and triples.into_last[end] == last:
        end += 1
    return begin, end


@kernel
def viterbi(here, between, which, third, triples, values):
    """values_t(y', y) = the score of the best labelling up to t that ends in these labels; [L, Y, Y]."""
    length, n_labels = here.shape
    into_first, into_last, into_score = triples.into_first, triples.into_last, triples.into_score
    terms, ways = np.empty(n_labels), np.empty(n_labels)
    values[0, :, :] = -np.inf
    for y in range(n_labels):
        values[0, 0, y] = here[0, y]
    for t in range(1, length):
        p, q = which[t], third[t]
        ways[:] = -np.inf
        for before in range(n_labels):
            for i in range(n_labels):
                ways[i] = values[t - 1, before, i] if values[t - 1, before, i] > ways[i] else ways[i]
        for i in range(n_labels):
            for y in range(n_labels):
                values[t, i, y] = ways[i] + between[p, i, y] + here[t, y]
        k, hi = (triples.begin[q], triples.end[q]) if q >= 0 else (np.int64(0), np.int64(0))
        while k < hi:
            last = into_last[k]
            i, y = last // n_labels, last % n_labels
            for before in range(n_labels):
                terms[before] = values[t - 1, before, i]
            while k < hi and into_last[k] == last:
                terms[into_first[k] // n_labels] += into_score[k]
                k += 1
            values[t, i, y] = terms.max() + between[p, i, y] + here[t, y]


@kernel
def ways_in(values, t, third, triples, i, y, terms):
    """terms(y'') = values_{t-1}(y'', i) and the score of the triple; one label alone at the second position."""
    n_labels = len(terms)
    for before in range(n_labels):
        terms[before] = values[t - 1, before, i]
    q = third[t]
    if q >= 0:
        lo, hi = _group(triples, q, i * n_labels + y)
        for k in range(lo, hi):
            terms[triples.into_first[k] // n_labels] += triples.into_score[k]


@kernel
def best_labelling(here, between, which, third, triples, values, labels):
    """The score of the best labelling, -inf when none is possible; fills labels [L] unless it is."""
    length, n_labels = here.shape
    viterbi(here, between, which, third, triples, values)
    terms, score, i, y = np.empty(n_labels), -np.inf, 0, 0
    for last in range(n_labels):
        for before in range(n_labels):
            if values[length - 1, before, last] > score:
                score, i, y = values[length - 1, before, last], before, last
    if not score > -np.inf:
        return score
    labels[length - 1] = y
    for t in range(length - 1, 0, -1):
        labels[t - 1] = i
        if t > 1:
            ways_in(values, t, third, triples, i, y, terms)
            i, y = np.argmax(terms), i
    return score


# ---- n best: from the end, always on with the labelling that can still become the best


@kernel
def _push(heap, total, place, node, count):
    """A heap of nodes, see `_goes_before`; the new number of them."""
    at = count
    heap[at] = node
    while at > 0:
        above = (at - 1) // 2
        if not _goes_before(total, place, heap[at], heap[above]):
            break
        heap[at], heap[above] = heap[above], heap[at]
        at = above
    return count + 1


@kernel
def _pop(heap, total, place, count):
    """The new number of nodes; the one that was first is behind them."""
    count -= 1
    heap[0], heap[count] = heap[count], heap[0]
    at = 0
    while 2 * at + 1 < count:
        below = 2 * at + 1
        if below + 1 < count and _goes_before(total, place, heap[below + 1], heap[below]):
            below += 1
        if not _goes_before(total, place, heap[below], heap[at]):
            break
        heap[at], heap[below] = heap[below], heap[at]
        at = below
    return count


@kernel
def _goes_before(total, place, one, other):
    """The larger total first; among equals the longer end, so that it is completed, then the older one."""
    if total[one] != total[other]:
        return total[one] > total[other]
    return place[one] < place[other] or (place[one] == place[other] and one < other)


@kernel
def best_labellings(here, between, which, third, triples, values, scores, labels):
    """How many of the n best labellings there are; fills scores [n] and labels [n, L] of these, best first.

    A node is the end of a labelling, from a pair of labels at t on; its total is the best score of any labelling that
    ends so, which Viterbi's recursion knows, so that nodes are complete in the order of their scores. A node has the
    total of its best way on, to the last bit: so n L of them are followed at most. Cost: that of the recursion, and Y
    for each of these.
    """
    length, n_labels = here.shape
    viterbi(here, between, which, third, triples, values)
    n_best, room = len(scores), n_labels * n_labels + len(scores) * length * n_labels + 1
    total = np.empty(room)
    place, pair, after = np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room, np.int64)
    heap, count, nodes, found = np.empty(room, np.int64), 0, 0, 0
    for y in range(n_labels):
        for i in range(n_labels):
            if values[length - 1, i, y] > -np.inf:
                total[nodes] = values[length - 1, i, y]
                place[nodes], pair[nodes], after[nodes] = length - 1, i * n_labels + y, -1
                count = _push(heap, total, place, nodes, count)
                nodes += 1
    terms = np.empty(n_labels)
    while count > 0 and found < n_best:
        count = _pop(heap, total, place, count)
        node = heap[count]
        t, i, y = place[node], pair[node] // n_labels, pair[node] % n_labels
        if t == 0:
            scores[found] = total[node]
            at = node
            for s in range(length):
                labels[found, s] = pair[at] % n_labels
                at = after[at]
            found += 1
            continue
        ways_in(values, t, third, triples, i, y, terms)
        top = terms.max()
        for before in range(n_labels):
            if terms[before] > -np.inf:
                total[nodes] = total[node] + (terms[before] - top)
                place[nodes], pair[nodes], after[nodes] = t - 1, before * n_labels + i, node
                count = _push(heap, total, place, nodes, count)
                nodes += 1
    return found


# ---- all sequences of a lattice


@kernel
def _longest(offsets, lo, hi):
    longest = 0
    for n in range(lo, hi):
        longest = max(longest, offsets[n + 1] - offsets[n])
    return longest


@kernel
def _partitions(lattice, triples, lo, hi, log_z):
    offsets, n_labels = lattice.offsets, lattice.here.shape[1]
    longest = _longest(offsets, lo, hi)
    log_alpha, shifts, ways = np.empty((longest, n_labels, n_labels)), np.empty(longest), np.empty(n_labels)
    for n in range(lo, hi):
        a, b = offsets[n], offsets[n + 1]
        log_z[n] = forward(lattice.here[a:b], lattice.between, lattice.which[a:b], triples.which[a:b], triples,
                           log_alpha, shifts, ways)  # fmt: skip


@kernel
def _marginals(lattice, triples, lo, hi, gamma, log_z):
    offsets, n_labels = lattice.offsets, lattice.here.shape[1]
    longest = _longest(offsets, lo, hi)
    log_alpha, shifts, ways = np.empty((longest, n_labels, n_labels)), np.empty(longest), np.empty(n_labels)
    log_beta, term, pairs = np.empty((3, n_labels, n_labels))
    for n in range(lo, hi):
        a, b = offsets[n], offsets[n + 1]
        here, which, third = lattice.here[a:b], lattice.which[a:b], triples.which[a:b]
        log_z[n] = forward(here, lattice.between, which, third, triples, log_alpha, shifts, ways)
        if log_z[n] == -np.inf:
            continue
        log_beta[:, :] = 0.0
        for t in range(b - a - 1, -1, -1):
            pair_probabilities(log_alpha, t, log_beta, pairs, gamma[a + t])
            if t > 0:
                step_back(here, t, lattice.between, which[t], third[t], triples, log_beta, term)
                log_beta -= log_beta.max()


@kernel
def _best(lattice, triples, lo, hi, scores, labels):
    offsets, n_labels = lattice.offsets, lattice.here.shape[1]
    values = np.empty((_longest(offsets, lo, hi), n_labels, n_labels))
    for n in range(lo, hi):
        a, b = offsets[n], offsets[n + 1]
        scores[n] = best_labelling(lattice.here[a:b], lattice.between, lattice.which[a:b], triples.which[a:b], triples,
                                   values, labels[a:b])  # fmt: skip


@kernel
def _nbest(lattice, triples, lo, hi, count, scores, labels):
    offsets, n_labels = lattice.offsets, lattice.here.shape[1]
    values = np.empty((_longest(offsets, lo, hi), n_labels, n_labels))
    for n in range(lo, hi):
        a, b = offsets[n], offsets[n + 1]
        count[n] = best_labellings(lattice.here[a:b], lattice.between, lattice.which[a:b], triples.which[a:b], triples,
                                   values, scores[n], labels[:, a:b])  # fmt: skip


@kernel
def _scores(lattice, triples, labels, lo, hi, scores):
    here, between, which, offsets = lattice.here, lattice.between, lattice.which, lattice.offsets
    n_labels = here.shape[1]
    for n in range(lo, hi):
        total = 0.0
        for t in range(offsets[n], offsets[n + 1]):
            total += here[t, labels[t]]
            if t > offsets[n]:
                total += between[which[t], labels[t - 1], labels[t]]
            q = triples.which[t]
            if q >= 0:
                first, begin = labels[t - 2] * n_labels + labels[t - 1], 0
                begin, end = _group(triples, q, labels[t - 1] * n_labels + labels[t])
                for k in range(begin, end):
                    if triples.into_first[k] == first:
                        total += triples.into_score[k]
        scores[n] = total


@kernel
def expected_counts(here, between, which, third, triples, members, weight, gamma, pairs, counts):
    """log Z of one sequence; gamma [L, Y] and pairs [L, Y, Y] are filled, times `weight`.

    counts[slot] gets the expectations of triples: `members` has for each set the slots, their pairs and where they
    are, see `Members`.
    """
    length, n_labels = here.shape
    log_alpha, shifts, ways = np.empty((length, n_labels, n_labels)), np.empty(length), np.empty(n_labels)
    log_beta, term = np.zeros((n_labels, n_labels)), np.empty((n_labels, n_labels))
    log_z = forward(here, between, which, third, triples, log_alpha, shifts, ways)
    for t in range(length - 1, -1, -1):
        level = pair_probabilities(log_alpha, t, log_beta, pairs[t], gamma[t])
        if t == 0:
            break
        q = third[t]
        step_back(here, t, between, which[t], q, triples, log_beta, term)
        if q >= 0:
            for m in range(members.ptr[q], members.ptr[q + 1]):
                x = members.observation[m]
                for s in range(members.slots[x], members.slots[x + 1]):
                    code = members.code[s - members.slots[0]]
                    first, y = code // n_labels, code % n_labels
                    before, i = first // n_labels, first % n_labels
                    tau = 0.0
                    lo, hi = _group(triples, q, i * n_labels + y)
                    for k in range(lo, hi):
                        if triples.into_first[k] == first:
                            tau = triples.into_score[k]
                    counts[s] += weight * np.exp(log_alpha[t - 1, before, i] + tau + term[i, y] - shifts[t] - level)
        log_beta -= log_beta.max()
    for t in range(length):
        for y in range(n_labels):
            gamma[t, y] *= weight
            for i in range(n_labels):
                pairs[t, i, y] *= weight
    return log_z


class Members(NamedTuple):
    """The observations of each set of triples, and the slots of each with their triples as codes."""

    ptr: np.ndarray  # int64 [Q + 1]
    observation: np.ndarray  # int32
    slots: np.ndarray  # int64 [V + 1]
    code: np.ndarray  # int64
