"""Scores of positions and of pairs of labels, in one place for training and decoding."""

from typing import NamedTuple

import numpy as np

from engine import threads
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


class Factors(NamedTuple):
    """exp of the bigram scores of each distinct set p, dense or sparse.

    Dense: exp(s - shift) in `dense[slot[p]]`, its transpose beside it. Sparse (SBCD 9):
    the entries exp(s) - 1 of the pairs whose score is not zero; slot[p] = -1.
    """

    slot: np.ndarray  # int32 [P]
    shift: np.ndarray  # float64 [P]
    spread: np.ndarray  # float64 [P], max - min of the scores
    dense: np.ndarray  # float64 [D, Y, Y]
    transposed: np.ndarray  # float64 [D, Y, Y]
    begin: np.ndarray  # int64 [P], entries of set p are begin[p]..end[p]
    end: np.ndarray  # int64 [P]
    row: np.ndarray  # int32, y'
    column: np.ndarray  # int32, y
    entry: np.ndarray  # float64, exp(s) - 1


@kernel
def add_run(theta, ptr, code, x, n_codes, out):
    """out[code] += theta[slot] over the run of observation x."""
    lo, hi = ptr[x], ptr[x + 1]
    if hi - lo == n_codes:
        for c in range(n_codes):
            out[c] += theta[lo + c]
    else:
        base = ptr[0]
        for s in range(lo, hi):
            out[code[s - base]] += theta[s]


@kernel
def position_scores(theta, layout, observations, t, first, out):
    """out[y] = sum over templates of mu[x_t, y], and of lambda[x_t, y0, y] at a first position."""
    out[:] = 0.0
    for k in range(observations.shape[1]):
        x = observations[t, k]
        if x >= 0:
            add_run(theta, layout.unigram_ptr, layout.unigram_code, x, layout.n_labels, out)
            if first:
                add_run(theta, layout.start_ptr, layout.start_code, x, layout.n_labels, out)


@kernel
def pair_scores(theta, layout, sets, p, out):
    """out[y' * Y + y] = sum over the members x of set p of lambda[x, y', y]."""
    out[:] = 0.0
    for i in range(sets.ptr[p], sets.ptr[p + 1]):
        x = sets.observation[i]
        add_run(theta, layout.bigram_ptr, layout.bigram_code, x, layout.n_labels**2, out)


@kernel
def _survey(theta, layout, sets, lo, hi, nonzero, shift, spread):
    """Count, maximum and range of the pair scores of the sets [lo, hi)."""
    scores = np.empty(layout.n_labels**2)
    for p in range(lo, hi):
        pair_scores(theta, layout, sets, p, scores)
        nonzero[p] = np.count_nonzero(scores)
        shift[p] = scores.max()
        spread[p] = shift[p] - scores.min()


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
    matrices = (n_dense, n_labels, n_labels)
    return Factors(
        slot.astype(np.int32), shift, spread, np.empty(matrices), np.empty(matrices),
        end - lengths, end, np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room),
    )  # fmt: skip


def make_factors(theta: np.ndarray, layout: Layout, sets: PairSets, sparse: str = "auto") -> Factors:
    """The factors of all sets at theta; `sparse` is auto (per set, by what is cheaper), dense or sparse."""
    n_sets, n_labels = len(sets.ptr) - 1, layout.n_labels
    nonzero, shift, spread = np.zeros(n_sets, np.int64), np.zeros(n_sets), np.zeros(n_sets)
    pieces = threads.ranges(n_sets, 16) if n_sets else []
    threads.run(lambda piece: _survey(theta, layout, sets, *piece, nonzero, shift, spread), pieces)
    thin = (nonzero <= SHARES[sparse] * n_labels**2) & (spread <= SAFE_RANGE)
    shift[thin] = 0.0
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
    refresh(theta, layout, sets, factors, np.arange(n_sets), np.zeros(n_sets, np.int64), SHARES[sparse])
    return factors


@kernel
def refresh(theta, layout, sets, factors, which, nonzero, share):
    """Make the factors of the sets `which` again, each dense or sparse by its share of non-zero pairs."""
    for p in which:
        _survey(theta, layout, sets, p, p + 1, nonzero, factors.shift, factors.spread)
        thin = nonzero[p] <= share * layout.n_labels**2 and factors.spread[p] <= SAFE_RANGE
        factors.slot[p] = -1 if thin else p
        if thin:
            factors.shift[p] = 0.0
        _fill(theta, layout, sets, factors, p, p + 1)
