"""How much each weight could lower R, by bounds that need expected counts alone (LABELSEQ 3.21-3.37).

u_k(y) = count_k(y) - count_k(y^i) lies between L_i = -c_i and U_i = n_i - c_i, where c_i is the right labelling's count
and n_i the largest that any labelling can have: the positions that hold the observation, and of a pair of two labels
those of them of which no two follow each other. The exponential is below its chord, so with ū the mean of u over
labellings that are wrong

    tight    Z(D) <= sum_i D(i) [ s_i e^(D L_i) + (1 - s_i) e^(D U_i) ],  s_i = (U_i - ū_i) / (U_i - L_i)  (3.35-3.36)
    loose    Z(D) <= s e^(D L) + (1 - s) e^(D U),  L and U over all sequences  (3.26-3.28)

Terms of the tight bound are added up by their exponents, integers, so that a step of its minimisation costs as many
as there are different ones. It is minimised where  sum_{e>0} e C_e e^(e D) = sum_{e<0} |e| C_e e^(e D), by Newton's
method on the difference of the logarithms: straight lines where there are two exponents.

Observations are shared out over threads and each is summed by one of them, sequence after sequence. So after a round
those that stand in a sequence it has touched are summed anew, from the expectations kept of all their sequences. That
goes by blocks of sequences whose expectations fit the cache, all observations of a block before the next one.
"""

import math
from typing import NamedTuple

import numpy as np

from espalier.engine.families.boosting_chain import PAIR, START, UNIGRAM, BoostedChain, Feature, Holders
from espalier.engine.runtime import threads
from espalier.engine.runtime.grouping import ends
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.threads import PIECES, balanced

BLOCK_TOKENS = 4096  # of which gamma is to stay in the cache of a core
PARTS = 4  # of the observations: each of them goes through all blocks
LONGEST_STEP = 30.0  # of one round: e^30 is 1e13
LARGEST_POWER = 600.0  # of an exponent times a step
CLOSE = 1e-5  # of the logarithms whose difference is brought to zero: what a bound loses by it is the square


class CandidateRuns(NamedTuple):
    """The weights of one observation in one family each: what is scored at a time."""

    family: np.ndarray  # int64 [R]
    observation: np.ndarray  # int64 [R]
    begin: np.ndarray  # int64 [R], first slot
    size: np.ndarray  # int64 [R]
    most: np.ndarray  # int64 [R], the largest count that a labelling of any sequence can have
    code: np.ndarray  # int64 [size of theta], the label of each slot, or previous * Y + label
    term_ptr: np.ndarray  # int64 [R + 1], where its terms of the tight bound are: 2 most + 1 for each weight


class Visits(NamedTuple):
    """The occurrences of each run in each block of sequences: those of block b are rows ptr[b]:ptr[b + 1], by run."""

    ptr: np.ndarray  # int64 [blocks + 1]
    run: np.ndarray  # int64
    begin: np.ndarray  # int64, occurrences begin:end
    end: np.ndarray  # int64


class Gains(NamedTuple):
    """Of each weight, in units of e^reference."""

    gain: np.ndarray  # by how much R falls at least, by the tight bound
    slope: np.ndarray  # sum_i v_i ū_i
    high: np.ndarray  # U
    low: np.ndarray  # L


class Candidates:
    """All weights of a layout as candidates, scored again where something has changed."""

    def __init__(self, boosted: BoostedChain, loose: bool):
        self.boosted, self.loose, layout = boosted, loose, boosted.layout
        self.runs = make_runs(boosted)
        self.visits = make_visits(boosted, self.runs)
        self.terms = np.empty(0 if loose else self.runs.term_ptr[-1])
        self.of_observation = [
            np.full(layout.n_observations, -1, np.int64) for _ in (UNIGRAM, START, PAIR)
        ]
        for family, of in enumerate(self.of_observation):
            mine = np.flatnonzero(self.runs.family == family)
            of[self.runs.observation[mine]] = mine
        self.gains = Gains(*np.zeros((4, layout.size)))
        visits = np.diff(boosted.where.ptr)[self.runs.observation]
        self.costs = visits * np.where(self.runs.family == PAIR, 8, 1) + 10 * self.runs.size
        self.score(np.arange(len(self.runs.family)))

    def score(self, runs: np.ndarray) -> None:
        """The gains of some runs, ascending, from what the sequences have now."""
        threads.run(lambda piece: self._score(runs, *piece), balanced(self.costs[runs], PARTS))

    def _score(self, runs: np.ndarray, begin: int, end: int) -> None:
        boosted, chosen = self.boosted, np.zeros(len(self.runs.family), np.bool_)
        chosen[runs[begin:end]] = True
        _score_runs(
            boosted.chain, boosted.where, boosted.odds, boosted.slope, self.runs, self.visits, chosen, int(runs[begin]),
            int(runs[end - 1]) + 1, self.loose, self.terms, self.gains,
        )  # fmt: skip

    def touched(self, sequences: np.ndarray) -> np.ndarray:
        """The runs of all observations that some sequences hold."""
        seen = np.zeros(self.boosted.layout.n_observations, np.bool_)
        _mark(self.boosted.data.observations, self.boosted.data.offsets, sequences, seen)
        return np.flatnonzero(seen[self.runs.observation])

    def best(self) -> tuple[int, float]:
        """(the slot that lowers the bound most, by what share of R); among equals the first."""
        total = self.boosted.total
        if not self.loose:
            slot = int(self.gains.gain.argmax())
            return slot, float(self.gains.gain[slot]) / total
        slot, bound = _best_loose(self.gains.slope, self.gains.high, self.gains.low, total)
        return slot, 1.0 - bound

    def feature(self, slot: int) -> Feature:
        family, observation, previous, label = (int(column[0]) for column in self.boosted.layout.slots([slot]))
        return Feature(slot, family, observation, previous, label)

    def loose_step(self, slot: int, epsilon: float) -> float:
        """(3.37)"""
        high, low = float(self.gains.high[slot]), float(self.gains.low[slot])
        s = (high - float(self.gains.slope[slot]) / self.boosted.total) / (high - low)
        s = min(max(s, 0.0), 1.0)
        return math.log((epsilon - low * s) / (epsilon + high * (1.0 - s))) / (high - low)

    def tight_step(self, feature: Feature, held: Holders, epsilon: float) -> float:
        """Where the tight bound is smallest, with two sequences of weight `epsilon` more, once right and once wrong.

        That is what epsilon is in (3.37) for U = 1 and L = -1: it keeps a step finite whose U or L is 0.
        """
        boosted = self.boosted
        run = int(self.of_observation[feature.family][feature.observation])
        index, weight = feature.slot - self.runs.begin[run], epsilon * boosted.total
        return _tight_step(boosted.chain, held, boosted.odds, boosted.slope, self.runs, run, index, weight)

    def is_exact(self, feature: Feature) -> bool:
        """Whether the tight bound is the loss: u has no values but U and L where a sequence counts 1 at most."""
        return bool(self.runs.most[self.of_observation[feature.family][feature.observation]] <= 1)


def make_runs(boosted: BoostedChain) -> CandidateRuns:
    layout, families, observations, begins, sizes = boosted.layout, [], [], [], []
    code = np.empty(layout.size, np.int64)
    for family, name in enumerate(("unigram", "start", "bigram")):
        ptr = layout.family(name)[0]
        lengths = np.diff(ptr)
        mine = np.flatnonzero(lengths)
        families.append(np.full(len(mine), family))
        observations.append(mine)
        begins.append(ptr[mine])
        sizes.append(lengths[mine])
        slots = np.arange(ptr[0], ptr[-1])
        code[slots] = layout._decode(name, slots)[1]
    runs = [np.concatenate(column).astype(np.int64) for column in (families, observations, begins, sizes)]
    most = np.empty(len(runs[0]), np.int64)
    chunks = balanced(np.diff(boosted.where.ptr)[runs[1]] + 1, PIECES)
    found = CandidateRuns(*runs, most, code, np.empty(0, np.int64))
    threads.run(lambda piece: _find_most(boosted.chain, boosted.where, found, *piece), chunks)
    return found._replace(term_ptr=ends(found.size * (2 * most + 1)))


def make_visits(boosted: BoostedChain, runs: CandidateRuns) -> Visits:
    bounds = balanced(boosted.lengths, max(1, len(boosted.data.labels) // BLOCK_TOKENS))
    last = boosted.data.offsets[[end for _, end in bounds]]  # positions at which blocks end
    where, observation = boosted.where, runs.observation
    owner = np.repeat(np.arange(boosted.layout.n_observations), np.diff(where.ptr))
    block = np.searchsorted(last, where.position, side="right")
    new = np.flatnonzero(np.append(True, (np.diff(owner) != 0) | (np.diff(block) != 0))) if len(owner) else owner
    begin, end, block, owner = new, np.append(new[1:], len(where.position)), block[new], owner[new]
    of_observation = ends(np.bincount(owner, minlength=boosted.layout.n_observations))
    counts = np.diff(of_observation)[observation]
    run = np.repeat(np.arange(len(observation)), counts)
    row = np.repeat(of_observation[observation] - ends(counts)[:-1], counts) + np.arange(len(run))
    order = np.argsort(block[row], kind="stable")
    row, run = row[order], run[order]
    return Visits(ends(np.bincount(block[row], minlength=len(bounds))), run, begin[row], end[row])


@kernel
def _find_most(chain, where, runs, begin, end):
    """The largest count of each run in any one sequence."""
    for r in range(begin, end):
        x, family, most, current, count = runs.observation[r], runs.family[r], 0, -1, 0
        for k in range(where.ptr[x], where.ptr[x + 1]):
            t = where.position[k]
            n = chain.sequence[t]
            first = t == chain.offsets[n]
            if (family == START and not first) or (family == PAIR and first):
                continue
            count = int(where.amount[k]) + (count if n == current else 0)
            current, most = n, max(most, count)
        runs.most[r] = most


@kernel
def _mark(observations, offsets, sequences, seen):
    for k in range(len(sequences)):
        n = sequences[k]
        for t in range(offsets[n], offsets[n + 1]):
            for c in range(observations.shape[1]):
                if observations[t, c] >= 0:
                    seen[observations[t, c]] = True


@kernel
def _score_runs(chain, where, odds, slope, runs, visits, chosen, first, last, loose, terms, gains):
    """The gain, or U, L and slope, of all weights of the runs first..last - 1 that are chosen."""
    n_labels, width, widest, room = chain.score.shape[1], chain.gamma.shape[1], 1, 1
    for r in range(first, last):
        if not chosen[r]:
            continue
        widest = max(widest, n_labels * width if runs.family[r] == PAIR else width)
        room = max(room, 2 * runs.most[r] + 1)
        for slot in range(runs.begin[r], runs.begin[r] + runs.size[r]):
            gains.slope[slot] = gains.high[slot] = gains.low[slot] = 0.0
        if not loose:
            for c in range(runs.term_ptr[r], runs.term_ptr[r + 1]):
                terms[c] = 0.0
    expected, right = np.zeros(widest), np.zeros(widest, np.int64)
    for b in range(len(visits.ptr) - 1):
        i, stop = visits.ptr[b], visits.ptr[b + 1]
        i += np.searchsorted(visits.run[i:stop], first)
        while i < stop and visits.run[i] < last:
            r, begin, end = visits.run[i], visits.begin[i], visits.end[i]
            i += 1
            if not chosen[r]:
                continue
            if runs.family[r] == PAIR:
                _sum_pairs(chain, where, odds, slope, runs, r, begin, end, expected, right, terms, loose, gains)
            else:
                _sum_labels(chain, where, odds, slope, runs, r, begin, end, expected, right, terms, loose, gains)
    if loose:
        return
    exponents, amounts = np.empty(room), np.empty(room)
    for r in range(first, last):
        if not chosen[r]:
            continue
        most = runs.most[r]
        for c in range(runs.size[r]):
            found, begin = 0, runs.term_ptr[r] + c * (2 * most + 1)
            for e in range(2 * most + 1):
                if terms[begin + e] > 0.0:
                    exponents[found], amounts[found] = e - most, terms[begin + e]
                    found += 1
            _, gains.gain[runs.begin[r] + c] = _smallest(exponents, amounts, found)


@kernel
def _sum_labels(chain, where, odds, slope, runs, r, begin, end, expected, right, terms, loose, gains):
    """What the sequences of a block add to the weights of an observation and a label, sequence after sequence."""
    labels, offsets, sequence, gamma = chain.labels, chain.offsets, chain.sequence, chain.gamma
    position, amount, code = where.position, where.amount, runs.code
    width, most, starts = gamma.shape[1], runs.most[r], runs.family[r] == START
    j, first_slot, size, term = begin, runs.begin[r], runs.size[r], runs.term_ptr[r]
    while j < end:
        n = sequence[position[j]]
        stop, count = offsets[n + 1], 0
        for y in range(width):
            expected[y] = 0.0
            right[y] = 0
        while j < end and position[j] < stop:
            t = position[j]
            if not starts or t == offsets[n]:
                m = amount[j]
                for y in range(width):
                    expected[y] += m * gamma[t, y]
                right[labels[t]] += int(m)
                count += int(m)
            j += 1
        if count == 0:
            continue
        v, q, each = odds[n], slope[n], 1.0 / count
        for c in range(size):
            label = code[first_slot + c]
            own = right[label]
            moved = min(max(q * (expected[label] - own) + v * own, 0.0), v * count)
            if loose:
                _take_loosely(gains, first_slot + c, moved - v * own, count - own, -own)
            else:
                up, base = moved * each, term + c * (2 * most + 1) + most - own
                terms[base + count] += up
                terms[base] += v - up


@kernel
def _sum_pairs(chain, where, odds, slope, runs, r, begin, end, expected, right, terms, loose, gains):
    """The same of an observation and two labels; n_i of two different ones by the positions no two of which follow
    each other: `apart` with all so far, `before` without the last."""
    labels, offsets, sequence, set_of, dense = chain.labels, chain.offsets, chain.sequence, chain.set_of, chain.dense
    alpha, v_of, position, amount, code = chain.alpha, chain.v, where.position, where.amount, runs.code
    n_labels, width, most = chain.score.shape[1], alpha.shape[1], runs.most[r]
    j, first_slot, size, term = begin, runs.begin[r], runs.size[r], runs.term_ptr[r]
    while j < end:
        n = sequence[position[j]]
        stop, count, apart, before, last = offsets[n + 1], 0, 0, 0, -2
        for y in range(n_labels * width):
            expected[y] = 0.0
            right[y] = 0
        while j < end and position[j] < stop:
            t = position[j]
            if t > offsets[n]:
                m, p = amount[j], set_of[t]
                best = max((before if last == t - 1 else apart) + int(m), apart)
                before, apart, last = apart, best, t
                for i in range(n_labels):
                    a, at = m * alpha[t - 1, i], np.uint64(i * width)
                    for y in range(np.uint64(width)):
                        expected[at + y] += a * dense[p, i, y] * v_of[t, y]
                right[labels[t - 1] * width + labels[t]] += int(m)
                count += int(m)
            j += 1
        if count == 0:
            continue
        v, q = odds[n], slope[n]
        for c in range(size):
            previous, label = code[first_slot + c] // n_labels, code[first_slot + c] % n_labels
            at, most_here = previous * width + label, count if previous == label else apart
            own = right[at]
            moved = min(max(q * (expected[at] - own) + v * own, 0.0), v * most_here)
            if loose:
                _take_loosely(gains, first_slot + c, moved - v * own, most_here - own, -own)
            else:
                up, base = moved / most_here, term + c * (2 * most + 1) + most - own
                terms[base + most_here] += up
                terms[base] += v - up


@kernel
def _take_loosely(gains, slot, moved, high, low):
    gains.slope[slot] += moved
    gains.high[slot], gains.low[slot] = max(gains.high[slot], high), min(gains.low[slot], low)


@kernel
def _smallest(exponents, amounts, found):
    """(step, how far below its value at 0 the sum of amounts * e^(step * exponent) is there).

    Where all exponents have one sign the sum falls for ever: what is left of it are the terms without one.
    """
    up, down, least, most, total, still = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(found):
        e, c = exponents[i], amounts[i]
        total += c
        if e > 0.0:
            up += e * c
            most = max(most, e)
        elif e < 0.0:
            down -= e * c
            least = max(least, -e)
        else:
            still += c
    if up <= 0.0 or down <= 0.0:
        return (0.0 if up == down else -LONGEST_STEP if up > 0.0 else LONGEST_STEP), total - still
    furthest = min(LONGEST_STEP, LARGEST_POWER / max(least, most))
    low, high, step = -furthest, furthest, 0.0
    for _ in range(50):
        ups, downs, up_bend, down_bend, value = 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(found):
            e = exponents[i]
            here = amounts[i] * np.exp(e * step) if step != 0.0 else amounts[i]
            value += here
            if e > 0.0:
                ups += e * here
                up_bend += e * e * here
            elif e < 0.0:
                downs -= e * here
                down_bend += e * e * here
        if not (ups > 0.0 and downs > 0.0):
            break
        apart = np.log(ups / downs)
        if apart > 0.0:
            high = step
        else:
            low = step
        if abs(apart) <= CLOSE:
            break
        further = step - apart / (up_bend / ups + down_bend / downs)
        if not (low < further < high):
            further = 0.5 * (low + high)
        if further == step or high - low < 1e-12:
            break
        step = further
    return step, total - value


@kernel
def _tight_step(chain, held, odds, slope, runs, r, c, weight):
    """The step of the c-th weight of run r by the tight bound; `weight` is added to the terms of 1 and -1."""
    n_labels, family, most = chain.score.shape[1], runs.family[r], max(runs.most[r], 1)
    code = runs.code[runs.begin[r] + c]
    label, previous = code % n_labels, code // n_labels
    terms = np.zeros(2 * most + 1)
    terms[most - 1] += weight
    terms[most + 1] += weight
    for k in range(len(held.sequences)):
        n, expected, right, count, apart, before, last = held.sequences[k], 0.0, 0, 0, 0, 0, -2
        for j in range(held.begin[k], held.begin[k + 1]):
            t, m = held.position[j], held.amount[j]
            count += int(m)
            if family == PAIR:
                best = max((before if last == t - 1 else apart) + int(m), apart)
                before, apart, last = apart, best, t
                here = chain.dense[chain.set_of[t], previous, label] * chain.v[t, label]
                expected += m * chain.alpha[t - 1, previous] * here
                right += int(m) * (chain.labels[t] == label and chain.labels[t - 1] == previous)
            else:
                expected += m * chain.gamma[t, label]
                right += int(m) * (chain.labels[t] == label)
        low, v = -right, odds[n]
        high = (apart if family == PAIR and label != previous else count) + low
        if high > low:
            moved = min(max(slope[n] * (expected - right), v * low), v * high)
            up = (moved - v * low) / (high - low)
            terms[most + high] += up
            terms[most + low] += max(v - up, 0.0)
    exponents, amounts, found = np.empty(2 * most + 1), np.empty(2 * most + 1), 0
    for e in range(2 * most + 1):
        if terms[e] > 0.0:
            exponents[found], amounts[found] = e - most, terms[e]
            found += 1
    return _smallest(exponents, amounts, found)[0]


@kernel
def _best_loose(slope, high, low, total):
    """(slot, bound) of the smallest loose bound on Z."""
    best, at = np.inf, 0
    for k in range(len(slope)):
        if high[k] <= low[k]:
            continue
        s = min(max((high[k] - slope[k] / total) / (high[k] - low[k]), 0.0), 1.0)
        right, wrong = -low[k] * s, high[k] * (1.0 - s)
        if right <= 0.0 or wrong <= 0.0:  # all one way: what is left are the terms whose exponent is 0
            bound = s * (low[k] == 0.0) + (1.0 - s) * (high[k] == 0.0)
        else:
            step = np.log(right / wrong) / (high[k] - low[k])
            bound = s * np.exp(step * low[k]) + (1.0 - s) * np.exp(step * high[k])
        if bound < best:
            best, at = bound, k
    return at, best
