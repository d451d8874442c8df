"""Sequences whose weights move one at a time: their scores are kept, and a recursion is made where they have changed.

    l_i = log Z_i - F(y^i),  log w'_i = log w_i + T_i log pi,  v_i = w'_i (e^l_i - 1),  R = sum_i v_i

(LABELSEQ 3.6, 3.12). v_i / R is the distribution D(i) over sequences (3.18). All v are kept in units of e^reference,
which is set to log R anew where R has fallen far; numbers that were not renewed since then stay comparable. What a
sequence has depends on its scores alone, and these are sums of steps in the order of the rounds: who repeats them has
the same bytes.

A recursion is that of `engine.chain.forward_backward` for one sequence. It scales in the linear domain, which boosting
does not leave: scores that span more in one step stop it (`TooWide`).
"""

import math
from typing import NamedTuple

import numpy as np

from espalier.engine.chain.pair_sets import Inverse, PairSets, invert, occurrences, pair_sets
from espalier.engine.chain.scores import SAFE_RANGE, padded, pair_scores, position_scores
from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.labels.scheme import Transitions
from espalier.engine.runtime import threads
from espalier.engine.runtime.inner_loops import exponentiate, pass_one
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.threads import PIECES, balanced, ranges
from espalier.engine.runtime.vectors import log
from espalier.engine.weights.layout import Layout

UNIGRAM, START, PAIR = range(3)  # families of weights, in the order of `engine.weights.layout.FAMILIES`


class TooWide(EspalierError):
    """Scores that span more than a scaled recursion can hold."""


class Feature(NamedTuple):
    """A weight, and where it may count."""

    slot: int
    family: int
    observation: int
    previous: int  # the label before, -1 where it has none
    label: int


class Holders(NamedTuple):
    """The sequences that may count a feature, and its occurrences in them."""

    sequences: np.ndarray  # int64, ascending
    begin: np.ndarray  # int64, where the occurrences of each begin in `position`; one more for the end
    position: np.ndarray  # int32
    amount: np.ndarray  # float64


class MovingChain(NamedTuple):
    """The data as kernels see them; W labels with padding, D distinct sets of observations with weights for pairs."""

    labels: np.ndarray  # int32 [T]
    offsets: np.ndarray  # int64 [N + 1]
    sequence: np.ndarray  # int32 [T]
    set_of: np.ndarray  # int32 [T], -1 at first positions
    score: np.ndarray  # [T, Y], of positions
    pair: np.ndarray  # [D, Y, Y], of pairs
    dense: np.ndarray  # [D, W, W], exp(pair - shift); 0 where a pair is impossible
    transposed: np.ndarray  # [D, W, W]
    shift: np.ndarray  # [D]
    spread: np.ndarray  # [D]
    may_follow: np.ndarray  # bool [Y, Y]
    may_begin: np.ndarray  # bool [Y]
    may_end: np.ndarray  # bool [Y]
    alpha: np.ndarray  # [T, W]
    v: np.ndarray  # [T, W]
    gamma: np.ndarray  # [T, W]
    loss: np.ndarray  # [N], l_i; NaN where scores are too wide


class BoostedChain:
    """The sequences of a data set under weights that move one at a time."""

    def __init__(
        self, data: Dataset, layout: Layout, theta: np.ndarray, pi: float = 1.0, transitions: Transitions | None = None
    ):
        self.data, self.layout = data, layout
        self.lengths = np.diff(data.offsets)
        self.sets = pair_sets(data, layout)
        self.sets_of: Inverse = invert(self.sets.observation, layout.n_observations)
        self.where = occurrences(data, layout.n_observations)
        self.chain = make_chain(data, layout, self.sets, transitions)
        self.log_weights = log(data.weights) + self.lengths * math.log(pi)
        pieces = balanced(self.lengths, PIECES)
        threads.run(lambda piece: _score_all(theta, layout, data, self.sets, self.chain, *piece), pieces)
        n_sets = len(self.sets.ptr) - 1
        self._exponentiate(np.arange(n_sets))
        self.renew(np.arange(len(self.lengths)))
        self.reference = 0.0
        self.weigh()
        self.refer()

    # What sequences have at the scores as they are.

    def renew(self, sequences: np.ndarray) -> None:
        """Forward and backward, of the sequences whose scores have changed."""
        threads.run(
            lambda piece: _recursions(self.chain, sequences, *piece), balanced(self.lengths[sequences], PIECES)
        )
        wide = np.flatnonzero(np.isnan(self.chain.loss[sequences]))
        if len(wide):
            raise TooWide(
                f"sequence {sequences[wide[0]]} has scores that are further apart than {SAFE_RANGE:g} in one step, too "
                "far for boosting: start from smaller weights, or raise boosting.epsilon, which shortens steps"
            )

    def weigh(self) -> None:
        """`odds`, v_i in units of e^reference; `slope`, what moves them; `log_odds`, log R."""
        n = len(self.lengths)
        self.odds, self.slope = np.empty(n), np.empty(n)
        self.log_odds = _weigh(self.log_weights, self.chain.loss, self.reference, self.odds, self.slope)
        self.total = float(_sum(self.odds))

    def refer(self) -> None:
        """Take R as it is for the unit."""
        if self.log_odds > -math.inf:
            self.reference = self.log_odds
            self.weigh()

    # Moving a weight.

    def held(self, feature: Feature) -> Holders:
        """Where it may count: a start weight at first positions, one of pairs at all others."""
        run = slice(self.where.ptr[feature.observation], self.where.ptr[feature.observation + 1])
        position, amount = self.where.position[run], self.where.amount[run]
        owner = self.chain.sequence[position]
        first = position == self.data.offsets[owner]
        if feature.family != UNIGRAM:
            kept = first if feature.family == START else ~first
            position, amount, owner = position[kept], amount[kept], owner[kept]
        begin = np.flatnonzero(np.append(True, owner[1:] != owner[:-1])) if len(owner) else np.empty(0, np.int64)
        return Holders(owner[begin].astype(np.int64), np.append(begin, len(owner)), position, amount)

    def move(self, feature: Feature, held: Holders, step: float) -> None:
        """Add a step to the scores; `renew` must follow."""
        if feature.family != PAIR:
            _add(self.chain.score, held.position, held.amount, feature.label, step)
            return
        sets = self._sets_with(feature)
        for p, amount in zip(*sets, strict=True):
            self.chain.pair[p, feature.previous, feature.label] += step * amount
        self._exponentiate(sets[0])

    def _sets_with(self, feature: Feature) -> tuple[np.ndarray, np.ndarray]:
        """(sets that hold its observation, how often)"""
        run = slice(self.sets_of.ptr[feature.observation], self.sets_of.ptr[feature.observation + 1])
        owner = np.searchsorted(self.sets.ptr, self.sets_of.entry[run], side="right") - 1
        return np.unique(owner, return_counts=True)

    def _exponentiate(self, sets: np.ndarray) -> None:
        pieces = ranges(len(sets), PIECES) if len(sets) else []
        threads.run(lambda piece: _exponentiate(self.chain, sets, *piece), pieces)

    # The loss along one weight.

    def along(self, feature: Feature, held: Holders, step: float) -> tuple[float, float, float]:
        """(sum of v_i over the sequences that hold it, its two derivatives) with the weight `step` further.

        By the forward recursion alone, of Z and its derivatives side by side. inf where scores are too wide.
        """
        n = len(held.sequences)
        found = np.empty((n, 3))
        sets = self._sets_with(feature) if feature.family == PAIR else (np.empty(0, np.int64), np.empty(0, np.int64))
        before = self.chain.pair[sets[0], feature.previous, feature.label] if feature.family == PAIR else None
        if feature.family == PAIR:
            self.chain.pair[sets[0], feature.previous, feature.label] = before + step * sets[1]
            self._exponentiate(sets[0])
        threads.run(
            lambda piece: _along(self.chain, held, feature, step, self.log_weights, self.reference, *piece, found),
            balanced(self.lengths[held.sequences], PIECES),
        )
        if feature.family == PAIR:
            self.chain.pair[sets[0], feature.previous, feature.label] = before
            self._exponentiate(sets[0])
        value, slope, bend = (float(_sum(np.ascontiguousarray(column))) for column in found.T)
        return value, slope, bend


def make_chain(data: Dataset, layout: Layout, sets: PairSets, transitions: Transitions | None) -> MovingChain:
    tokens, n_labels = len(data.labels), layout.n_labels
    width, n_sets = padded(n_labels), len(sets.ptr) - 1
    rows = tokens, width
    may_follow = np.ones((n_labels, n_labels), bool) if transitions is None else transitions.pair
    ends = (np.ones(n_labels, bool),) * 2 if transitions is None else (transitions.start, transitions.end)
    owner = np.repeat(np.arange(len(data.weights), dtype=np.int32), np.diff(data.offsets))
    return MovingChain(
        data.labels, data.offsets, owner, sets.of_position, np.empty((tokens, n_labels)),
        np.empty((n_sets, n_labels, n_labels)), np.zeros((n_sets, width, width)), np.zeros((n_sets, width, width)),
        np.empty(n_sets), np.empty(n_sets), np.ascontiguousarray(may_follow), *map(np.ascontiguousarray, ends),
        np.empty(rows), np.empty(rows), np.empty(rows), np.empty(len(data.weights)),
    )  # fmt: skip


@kernel
def _score_all(theta, layout, data, sets, chain, first, end):
    """Scores of the positions and, with the first sequences, of the sets, at the weights that training starts from."""
    for n in range(first, end):
        for t in range(data.offsets[n], data.offsets[n + 1]):
            position_scores(theta, layout, data, t, t == data.offsets[n], chain.score[t])
    if first == 0:
        flat = np.empty(layout.n_labels * layout.n_labels)
        for p in range(len(sets.ptr) - 1):
            pair_scores(theta, layout, sets, p, flat)
            for i in range(layout.n_labels):
                for j in range(layout.n_labels):
                    chain.pair[p, i, j] = flat[i * layout.n_labels + j]


@kernel
def _exponentiate(chain, sets, first, end):
    """The matrices of some sets from their scores; what may not follow is 0."""
    pair, may = chain.pair, chain.may_follow
    n_labels = pair.shape[1]
    for k in range(first, end):
        p = sets[k]
        highest, lowest = -np.inf, np.inf
        for i in range(n_labels):
            for j in range(n_labels):
                if may[i, j]:
                    highest, lowest = max(highest, pair[p, i, j]), min(lowest, pair[p, i, j])
        chain.shift[p], chain.spread[p] = highest, highest - lowest
        for i in range(n_labels):
            for j in range(n_labels):
                value = np.exp(pair[p, i, j] - highest) if may[i, j] else 0.0
                chain.dense[p, i, j] = chain.transposed[p, j, i] = value


@kernel
def _add(score, position, amount, label, step):
    for k in range(len(position)):
        score[position[k], label] += step * amount[k]


@kernel
def _sum(values):
    total = 0.0
    for i in range(len(values)):
        total += values[i]
    return total


@kernel
def _weigh(log_weights, loss, reference, odds, slope):
    """log R; odds = v_i and slope = w'_i e^l_i, both over e^reference. A loss below 0 is rounding."""
    top = -np.inf
    for n in range(len(loss)):
        one = max(loss[n], 0.0)
        share = -np.expm1(-one)
        slope[n] = np.exp(log_weights[n] + one - reference)
        odds[n] = slope[n] * share
        if share > 0.0:
            top = max(top, log_weights[n] + one + np.log(share))
    if top == -np.inf:
        return top
    total = 0.0
    for n in range(len(loss)):
        one = max(loss[n], 0.0)
        total += np.exp(log_weights[n] + one - top) * -np.expm1(-one)
    return top + np.log(total)


@kernel
def _row(chain, t, last, first, score, may, power, power_as_float, e):
    """e = exp(score - max) of a position, 0 where a label may not be; (max, how far its scores are apart)."""
    n_labels = len(score)
    highest, lowest = -np.inf, np.inf
    for y in range(n_labels):
        may[y] = (not first or chain.may_begin[y]) and (not last or chain.may_end[y])
        if may[y]:
            highest, lowest = max(highest, score[y]), min(lowest, score[y])
    for y in range(n_labels):
        score[y] = max(min(score[y], highest), highest - SAFE_RANGE)
    exponentiate(score, highest, power, power_as_float, e)
    for y in range(n_labels):
        e[y] = e[y] if may[y] else 0.0
    return highest, highest - lowest


@kernel
def _recursions(chain, sequences, begin, end):
    """alpha, v = e beta / c and gamma of some sequences, and l_i; NaN where a step spans too much."""
    labels, offsets, set_of, score, pair = chain.labels, chain.offsets, chain.set_of, chain.score, chain.pair
    dense, transposed, alpha, v, gamma = chain.dense, chain.transposed, chain.alpha, chain.v, chain.gamma
    n_labels, width = score.shape[1], alpha.shape[1]
    longest = 1
    for k in range(begin, end):
        longest = max(longest, offsets[sequences[k] + 1] - offsets[sequences[k]])
    here, e, may, scale = np.empty(n_labels), np.empty(n_labels), np.empty(n_labels, np.bool_), np.empty(longest)
    power = np.empty(n_labels, np.int64)
    power_as_float = power.view(np.float64)
    for k in range(begin, end):
        n = sequences[k]
        lo, hi = offsets[n], offsets[n + 1]
        loss, wide = 0.0, False
        for t in range(lo, hi):
            for y in range(n_labels):
                here[y] = score[t, y]
            loss -= score[t, labels[t]]
            top, apart = _row(chain, t, t == hi - 1, t == lo, here, may, power, power_as_float, e)
            for y in range(n_labels):
                v[t, y] = e[y]
            for y in range(n_labels, width):
                v[t, y] = 0.0
            if t == lo:
                for y in range(width):
                    alpha[t, y] = v[t, y]
            else:
                p = set_of[t]
                apart += chain.spread[p]
                top += chain.shift[p]
                loss -= pair[p, labels[t - 1], labels[t]]
                pass_one(dense, p, alpha, t - 1, alpha, t)
                for y in range(width):
                    alpha[t, y] *= v[t, y]
            wide = wide or not apart <= SAFE_RANGE
            total = 0.0
            for y in range(width):
                total += alpha[t, y]
            inverse = 1.0 / total if total > 0.0 else 0.0
            scale[t - lo] = inverse
            for y in range(width):
                alpha[t, y] *= inverse
            loss += np.log(total) + top
        chain.loss[n] = np.nan if wide else loss
        for y in range(width):
            gamma[hi - 1, y] = 1.0
        for t in range(hi - 1, lo - 1, -1):
            if t < hi - 1:
                pass_one(transposed, set_of[t + 1], v, t + 1, gamma, t)
            inverse = scale[t - lo]
            for y in range(width):
                v[t, y] *= gamma[t, y] * inverse
                gamma[t, y] *= alpha[t, y]


@kernel
def _along(chain, held, feature, step, log_weights, reference, begin, end, found):
    """v_i and its two derivatives in the weight of a feature, which stands `step` further; pairs hold it already.

    The forward variable is a sum of e^F over labellings: its derivatives are the sums of e^F times the count of the
    feature, and times the count squared. The recursion takes them along; where the feature counts m times, value,
    slope and bend become  a, b + m a, c + 2 m b + m^2 a.
    """
    labels, offsets, set_of, score, dense = chain.labels, chain.offsets, chain.set_of, chain.score, chain.dense
    pair, family, previous, label = chain.pair, feature.family, feature.previous, feature.label
    position, amount = held.position, held.amount
    n_labels, width = score.shape[1], dense.shape[2] if len(dense) else chain.alpha.shape[1]
    rows = np.zeros((6, width))
    here, e, may = np.empty(n_labels), np.empty(n_labels), np.empty(n_labels, np.bool_)
    power = np.empty(n_labels, np.int64)
    power_as_float = power.view(np.float64)
    for k in range(begin, end):
        n = held.sequences[k]
        lo, hi, at, stop = offsets[n], offsets[n + 1], held.begin[k], held.begin[k + 1]
        loss, wide, count, now = 0.0, False, 0.0, 0
        for t in range(lo, hi):
            m = 0.0
            if at < stop and position[at] == t:
                m = amount[at]
                at += 1
            for y in range(n_labels):
                here[y] = score[t, y]
            if family != PAIR:
                here[label] += m * step
                count += m * (labels[t] == label)
            loss -= here[labels[t]]
            top, apart = _row(chain, t, t == hi - 1, t == lo, here, may, power, power_as_float, e)
            if t == lo:
                for y in range(width):
                    rows[now, y] = e[y] if y < n_labels else 0.0
                    rows[now + 1, y] = rows[now + 2, y] = 0.0
            else:
                p, old = set_of[t], now
                now = 3 - now
                apart += chain.spread[p]
                top += chain.shift[p]
                loss -= pair[p, labels[t - 1], labels[t]]
                for d in range(3):
                    pass_one(dense, p, rows, old + d, rows, now + d)
                if family == PAIR and m > 0.0:
                    count += m * (labels[t] == label and labels[t - 1] == previous)
                    factor = m * dense[p, previous, label]
                    rows[now + 2, label] += factor * (2.0 * rows[old + 1, previous] + m * rows[old, previous])
                    rows[now + 1, label] += factor * rows[old, previous]
                for d in range(3):
                    for y in range(n_labels):
                        rows[now + d, y] *= e[y]
            if family != PAIR and m > 0.0:
                rows[now + 2, label] += m * (2.0 * rows[now + 1, label] + m * rows[now, label])
                rows[now + 1, label] += m * rows[now, label]
            wide = wide or not apart <= SAFE_RANGE
            total = 0.0
            for y in range(width):
                total += rows[now, y]
            inverse = 1.0 / total if total > 0.0 else 0.0
            for d in range(3):
                for y in range(width):
                    rows[now + d, y] *= inverse
            loss += np.log(total) + top
        mean, square = 0.0, 0.0
        for y in range(width):
            mean += rows[now + 1, y]
            square += rows[now + 2, y]
        loss = max(loss, 0.0)
        each = np.exp(log_weights[n] + loss - reference) if not wide else np.inf
        found[k, 0] = each * -np.expm1(-loss) if not wide else np.inf
        found[k, 1] = each * (mean - count)
        found[k, 2] = each * (square - 2.0 * count * mean + count * count)
