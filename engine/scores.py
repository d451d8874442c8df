"""Scores of positions and of pairs of labels, in one place for training and decoding."""

from typing import NamedTuple

import numpy as np

from engine import threads
from engine.arithmetic import add_runs
from engine.errors import EspalierError
from engine.index import PairSets
from engine.jit import kernel
from engine.layout import Layout

# A step whose scores span more than this is left to the logarithmic recursion. Scaled
# forward variables span at most the range R of one step and scaled backward ones too,
# so products stay below exp(2R): within float64 for R = 300, exp(600) < 1e261.
SAFE_RANGE = 300.0

# Below this share of non-zero pairs the sparse recursion beats the vectorised dense one.
SPARSE_SHARE = 0.04
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
    the entries exp(s) - 1 of the pairs whose score is not zero; slot[p] = -1.
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
def position_scores(theta, layout, observations, t, first, out):
    """out[y] = sum over templates of mu[x_t, y], and of lambda[x_t, y0, y] at a first position."""
    out[:] = 0.0
    add_runs(theta, layout.unigram_ptr, layout.unigram_code, observations, t, out)
    if first:
        add_runs(theta, layout.start_ptr, layout.start_code, observations, t, out)


@kernel
def pair_scores(theta, layout, sets, p, out):
    """out[y' * Y + y] = sum over the members x of set p of lambda[x, y', y]."""
    out[:] = 0.0
    ptr, code = layout.bigram_ptr, layout.bigram_code
    for i in range(sets.ptr[p], sets.ptr[p + 1]):
        lo, hi = ptr[sets.observation[i]], ptr[sets.observation[i] + 1]
        if hi - lo == len(out):
            begin = np.uint64(lo)
            for c in range(np.uint64(len(out))):
                out[c] += theta[begin + c]
        else:
            for s in range(lo, hi):
                out[code[s - ptr[0]]] += theta[s]


@kernel
def _survey(theta, layout, sets, lo, hi, share, nonzero, shift, spread):
    """Of the sets [lo, hi): nonzero[p] entries of a sparse set, -1 for a dense one; shift and range of the scores."""
    scores = np.empty(layout.n_labels**2)
    for p in range(lo, hi):
        pair_scores(theta, layout, sets, p, scores)
        highest, lowest, count = scores.max(), scores.min(), np.count_nonzero(scores)
        thin = count <= share * layout.n_labels**2 and lowest >= SPARSE_LOWEST and highest <= SAFE_RANGE
        nonzero[p] = count if thin else -1
        shift[p] = 0.0 if thin else highest
        spread[p] = max(highest, 0.0) - min(lowest, 0.0) if thin else highest - lowest


@kernel
def _fill(theta, layout, sets, factors, lo, hi):
    """Exponentiate the pair scores of the sets [lo, hi) into their dense or sparse place."""
    n_labels = layout.n_labels
    scores = np.empty(n_labels**2)
    for p in range(lo, hi):
        pair_scores(theta, layout, sets, p, scores)
        d = factors.slot[p]
        if d >= 0:
            for i in range(n_labels):
                for j in range(n_labels):
                    value = np.exp(scores[i * n_labels + j] - factors.shift[p])
                    factors.dense[d, i, j] = value
                    factors.transposed[d, j, i] = value
        else:
            k = factors.begin[p]
            for c in range(n_labels**2):
                if scores[c] != 0.0:
                    factors.row[k], factors.column[k] = c // n_labels, c % n_labels
                    factors.entry[k] = np.expm1(scores[c])
                    k += 1
            factors.end[p] = k


def _empty_factors(slot, shift, spread, n_dense: int, lengths, n_labels: int) -> Factors:
    end = np.cumsum(lengths).astype(np.int64)
    room = int(end[-1]) if len(end) else 0
    matrices = (n_dense, padded(n_labels), padded(n_labels))
    return Factors(
        slot.astype(np.int32), shift, spread, np.zeros(matrices), np.zeros(matrices),
        end - lengths, end, np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room),
    )  # fmt: skip


def make_factors(theta: np.ndarray, layout: Layout, sets: PairSets, sparse: str = "auto") -> Factors:
    """The factors of all sets at theta; `sparse` is auto (per set, by what is cheaper), dense or sparse."""
    n_sets, n_labels = len(sets.ptr) - 1, layout.n_labels
    nonzero, shift, spread = np.zeros(n_sets, np.int64), np.zeros(n_sets), np.zeros(n_sets)
    pieces = threads.ranges(n_sets, 16) if n_sets else []
    share = density(sparse)
    threads.run(lambda piece: _survey(theta, layout, sets, *piece, share, nonzero, shift, spread), pieces)
    thin = nonzero >= 0
    slot = np.where(thin, -1, np.cumsum(~thin) - 1)
    factors = _empty_factors(slot, shift, spread, int((~thin).sum()), np.where(thin, nonzero, 0), n_labels)
    threads.run(lambda piece: _fill(theta, layout, sets, factors, *piece), pieces)
    return factors


def roomy_factors(theta: np.ndarray, layout: Layout, sets: PairSets, sparse: str = "auto") -> Factors:
    """Factors with room for any theta, so that single sets can be refreshed after a block has moved."""
    n_sets, n_labels = len(sets.ptr) - 1, layout.n_labels
    runs = np.concatenate([[0], np.cumsum(np.diff(layout.bigram_ptr)[sets.observation])])
    lengths = np.minimum(runs[sets.ptr[1:]] - runs[sets.ptr[:-1]], n_labels**2)
    blank = np.zeros(n_sets)
    factors = _empty_factors(np.arange(n_sets), blank, blank.copy(), n_sets, lengths, n_labels)
    refresh(theta, layout, sets, factors, np.arange(n_sets), np.zeros(n_sets, np.int64), density(sparse))
    return factors


@kernel
def refresh(theta, layout, sets, factors, which, nonzero, share):
    """Make the factors of the sets `which` again, each dense or sparse by its share of non-zero pairs."""
    for p in which:
        _survey(theta, layout, sets, p, p + 1, share, nonzero, factors.shift, factors.spread)
        factors.slot[p] = -1 if nonzero[p] >= 0 else p
        _fill(theta, layout, sets, factors, p, p + 1)
