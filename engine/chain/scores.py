"""Scores of positions and of pairs of labels, in one place for training and decoding."""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.pair_sets import PairSets
from espalier.engine.errors import EspalierError
from espalier.engine.runtime import threads
from espalier.engine.runtime.inner_loops import LANES, add_run, add_runs, add_values, exponentiate, extremes
from espalier.engine.runtime.jit import kernel
from espalier.engine.weights.layout import Layout

# A step whose scores span more than this is left to the logarithmic recursion. Scaled
# forward variables span at most the range R of one step and scaled backward ones too,
# so products stay below exp(2R): within float64 for R = 300, exp(600) < 1e261.
SAFE_RANGE = 300.0

# Below this share of non-zero pairs the sparse recursion beats the vectorised dense one.
SPARSE_SHARE = 0.1
SHARES = {"auto": SPARSE_SHARE, "dense": -1.0, "sparse": 1.0}

# The sparse recursion subtracts: exp(s) - 1 is close to -1 for a very negative s, and digits
# cancel. Down to exp(-10) at least eleven digits are left; below, a set is done densely.
SPARSE_LOWEST = -10.0


def density(sparse: str) -> float:
    """The share of non-zero pairs up to which a set is sparse."""
    if sparse not in SHARES:
        raise EspalierError(f"sparse is {sparse!r}: expected one of {', '.join(SHARES)}")
    return SHARES[sparse]


def padded(n_labels: int) -> int:
    """W, the width of rows of labels: a whole number of vectors, so that inner loops have no remainder."""
    return -(-n_labels // 4) * 4


class Factors(NamedTuple):
    """exp of the bigram scores of each distinct set p, dense or sparse.

    Dense: exp(s - shift) in `dense[slot[p]]`, its transpose beside it. Sparse (SBCD 9):
    the entries exp(s) - 1 of the pairs whose score is not zero, diagonal by diagonal; slot[p] = -1.
    """

    slot: np.ndarray  # int32 [P]
    shift: np.ndarray  # float64 [P]
    spread: np.ndarray  # float64 [P], max - min of the scores
    dense: np.ndarray  # float64 [D, W, W], zero beyond Y
    transposed: np.ndarray  # float64 [D, W, W]
    begin: np.ndarray  # int64 [P], entries of set p are begin[p]..end[p]
    end: np.ndarray  # int64 [P]
    row: np.ndarray  # int32, y'
    column: np.ndarray  # int32, y
    entry: np.ndarray  # float64, exp(s) - 1


@kernel
def position_scores(theta, layout, data, t, first, out):
    """out[y] = sum over templates of mu[x_t, y], and of lambda[x_t, y0, y] at a first position."""
    out[:] = 0.0
    add_runs(theta, layout.unigram_ptr, layout.unigram_code, data.observations, t, out)
    add_values(theta, layout.unigram_ptr, layout.unigram_code, data.valued, data.values, t, out)
    if first:
        add_runs(theta, layout.start_ptr, layout.start_code, data.observations, t, out)


@kernel
def pair_scores(theta, layout, sets, p, out):
    """out[y' * Y + y] = sum over the members x of set p of lambda[x, y', y]."""
    out[:] = 0.0
    ptr, code = layout.bigram_ptr, layout.bigram_code
    for i in range(sets.ptr[p], sets.ptr[p + 1]):
        x = sets.observation[i]
        add_run(theta, code, ptr[0], ptr[x], ptr[x + 1] - ptr[x], out)


@kernel
def _summarise(theta, ptr, lo, hi, count, lowest, highest):
    """Of the runs of observations [lo, hi): how many weights are not zero, and bounds that hold zero."""
    for x in range(lo, hi):
        active, least, most = 0, 0.0, 0.0
        for s in range(ptr[x], ptr[x + 1]):
            value = theta[s]
            active += value != 0.0
            least = min(least, value)
            most = max(most, value)
        count[x], lowest[x], highest[x] = active, least, most


@kernel
def _choose(sets, n_pairs, share, count, lowest, highest, lo, hi, thin, length):
    """Which sets [lo, hi) are sparse, by bounds on their scores, and how many entries they may have."""
    ptr, observation = sets.ptr, sets.observation
    for p in range(lo, hi):
        active, least, most = 0, 0.0, 0.0
        for i in range(ptr[p], ptr[p + 1]):
            x = observation[i]
            active += count[x]
            least += lowest[x]
            most += highest[x]
        active = min(active, n_pairs)
        thin[p] = active <= share * n_pairs and least >= SPARSE_LOWEST and most <= SAFE_RANGE
        length[p] = active if thin[p] else 0


@kernel
def _fill(theta, layout, sets, factors, lo, hi):
    """Exponentiate the pair scores of the sets [lo, hi) into their dense or sparse place."""
    n_labels = layout.n_labels
    n_pairs = n_labels * n_labels
    scores, values = np.empty(n_pairs), np.empty(n_pairs)
    power, high, low = np.empty(n_pairs, np.int64), np.empty(LANES), np.empty(LANES)
    power_as_float = power.view(np.float64)
    slot, shift, spread, begin, end = factors.slot, factors.shift, factors.spread, factors.begin, factors.end
    dense, transposed, row, column, entry = (
        factors.dense, factors.transposed, factors.row, factors.column, factors.entry,
    )  # fmt: skip
    for p in range(lo, hi):
        pair_scores(theta, layout, sets, p, scores)
        highest, lowest = extremes(scores, high, low)
        d = slot[p]
        if d >= 0:
            shift[p], spread[p] = highest, highest - lowest
            if spread[p] <= SAFE_RANGE:
                exponentiate(scores, highest, power, power_as_float, values)
            else:
                values[:] = 0.0  # of no use: such a step goes to logarithms
            for i in range(n_labels):
                for j in range(n_labels):
                    dense[d, i, j] = values[i * n_labels + j]
            for j in range(n_labels):
                for i in range(n_labels):
                    transposed[d, j, i] = values[i * n_labels + j]
        else:
            shift[p], spread[p] = 0.0, max(highest, 0.0) - min(lowest, 0.0)
            k = begin[p]
            for diagonal in range(n_labels):
                j = diagonal
                for i in range(n_labels):
                    score = scores[i * n_labels + j]
                    if score != 0.0:
                        row[k], column[k], entry[k] = i, j, np.expm1(score)
                        k += 1
                    j = j + 1 if j + 1 < n_labels else 0
            end[p] = k


def make_factors(
    theta: np.ndarray, layout: Layout, sets: PairSets, sparse: str = "auto", room: Factors | None = None
) -> Factors:
    """The factors of all sets at theta; `sparse` is auto (per set, by what is cheaper), dense or sparse.

    `room` are factors that are needed no more: their matrices are written over, which saves fresh memory.
    """
    n_sets, n_labels = len(sets.ptr) - 1, layout.n_labels
    count, lowest, highest = np.zeros(layout.n_observations, np.int64), *np.zeros((2, layout.n_observations))
    thin, length = np.zeros(n_sets, bool), np.zeros(n_sets, np.int64)
    share, pieces = density(sparse), threads.ranges(n_sets, 16) if n_sets else []
    threads.run(
        lambda piece: _summarise(theta, layout.bigram_ptr, *piece, count, lowest, highest),
        threads.ranges(layout.n_observations, 16) if n_sets else [],
    )
    threads.run(lambda piece: _choose(sets, n_labels**2, share, count, lowest, highest, *piece, thin, length), pieces)
    slot = np.where(thin, -1, np.cumsum(~thin) - 1).astype(np.int32)
    end = np.cumsum(length)
    entries, n_dense = int(length.sum()), int((~thin).sum())
    if room is None or len(room.dense) < n_dense:
        matrices = np.zeros((2, n_dense, padded(n_labels), padded(n_labels)))
    else:
        matrices = room.dense[:n_dense], room.transposed[:n_dense]
    factors = Factors(
        slot, np.zeros(n_sets), np.zeros(n_sets), *matrices, end - length, end,
        np.empty(entries, np.int32), np.empty(entries, np.int32), np.empty(entries),
    )  # fmt: skip
    threads.run(lambda piece: _fill(theta, layout, sets, factors, *piece), pieces)
    return factors
