"""Decoding and posterior quantities of a data set under weights theta.

What is asked often, of many sequences and without limits, has kernels of its own that add weights up as they go:
Viterbi here, marginals and log Z by scaled forward-backward in `engine.chain`. All else goes through lattices.

Functions that take `allowed` and `transitions` look at the allowed labellings only, as
if the others did not exist: `allowed` is bool [T, Y], or "labels" for the data set's own
labels and label sets; `transitions` is a `Transitions`, see `engine.labels.scheme`.
"""

import numpy as np

from espalier.engine.chain.chain_lattice import checked_sets, lattice_blocks
from espalier.engine.chain.column_groups import no_composites
from espalier.engine.chain.pair_sets import check_labels
from espalier.engine.chain.posteriors import all_log_partitions, in_lockstep, posterior_rows, posteriors
from espalier.engine.chain.scores import density, make_factors, padded, pair_scores
from espalier.engine.data.dataset import Dataset
from espalier.engine.decoding import triples
from espalier.engine.errors import EspalierError
from espalier.engine.labels.scheme import Transitions
from espalier.engine.lattice import blocks
from espalier.engine.lattice.decode import PAIR_BYTES, NBest
from espalier.engine.lattice.limits import make_limits
from espalier.engine.runtime import threads
from espalier.engine.runtime.inner_loops import add_run, add_runs, add_values
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.threads import PIECES, balanced
from espalier.engine.weights.layout import Layout

WIDE_SHARE = 5  # a run of at least one in so many labels is added faster as a full row
WIDE_BYTES = 1 << 22  # of all such rows, so that they stay in the cache


def log_partition(
    dataset: Dataset, layout: Layout, theta: np.ndarray, sparse: str = "auto", allowed=None,
    transitions: Transitions | None = None,
) -> np.ndarray:  # fmt: skip
    """log Z(x^n) of each sequence, float64 [N]."""
    if layout.second_order:
        return triples.log_partition(dataset, layout, theta, allowed, transitions)
    sets = checked_sets(dataset, layout, theta)
    limits = make_limits(dataset, layout.n_labels, allowed, transitions)
    if limits is not None:
        return blocks.log_partition(lattice_blocks(dataset, layout, theta, sets), len(dataset.weights), limits)
    factors, schedule = make_factors(theta, layout, sets, sparse), in_lockstep(dataset, layout, sets)
    return all_log_partitions(theta, dataset, layout, sets, factors, schedule, no_composites(dataset))


def sequence_score(dataset: Dataset, layout: Layout, theta: np.ndarray, labels=None) -> np.ndarray:
    """Score of one labelling of each sequence (the data set's own by default), float64 [N]."""
    labels = dataset.labels if labels is None else labels
    check_labels(labels, layout)
    if layout.second_order:
        return triples.sequence_score(dataset, layout, theta, labels)
    return blocks.score(lattice_blocks(dataset, layout, theta), len(dataset.weights), labels)


def sequence_log_probability(dataset: Dataset, layout: Layout, theta: np.ndarray, labels=None) -> np.ndarray:
    """log p(y^n | x^n), float64 [N]."""
    return sequence_score(dataset, layout, theta, labels) - log_partition(dataset, layout, theta)


def marginals(
    dataset: Dataset, layout: Layout, theta: np.ndarray, sparse: str = "auto", allowed=None,
    transitions: Transitions | None = None,
) -> np.ndarray:  # fmt: skip
    """p(y_t = y | x) at each position, float64 [T, Y]."""
    if layout.second_order:
        return triples.marginals(dataset, layout, theta, allowed, transitions)
    sets = checked_sets(dataset, layout, theta)
    limits = make_limits(dataset, layout.n_labels, allowed, transitions)
    if limits is not None:
        shape = len(dataset.labels), layout.n_labels
        return blocks.marginals(lattice_blocks(dataset, layout, theta, sets), shape, limits)
    plain = dataset._replace(weights=np.ones(len(dataset.weights)))
    factors = make_factors(theta, layout, sets, sparse)
    rows, schedule = posterior_rows(plain, layout), in_lockstep(plain, layout, sets)
    gamma = posteriors(theta, plain, layout, sets, factors, schedule, no_composites(plain), rows)[2]
    return np.ascontiguousarray(gamma[:, : layout.n_labels])


def pair_marginals(
    dataset: Dataset, layout: Layout, theta: np.ndarray, allowed=None, transitions: Transitions | None = None,
    limit: int = PAIR_BYTES,
) -> np.ndarray:  # fmt: skip
    """p(y_{t-1} = y', y_t = y | x), float64 [T, Y, Y], zero at first positions; for data that fit `limit` bytes."""
    if layout.second_order:
        raise EspalierError("the marginals of pairs are not known where there are weights for triples of labels")
    limits, shape = make_limits(dataset, layout.n_labels, allowed, transitions), (len(dataset.labels), layout.n_labels)
    return blocks.pair_marginals(lattice_blocks(dataset, layout, theta), shape, limits, limit)


def posterior(
    dataset: Dataset, layout: Layout, theta: np.ndarray, sparse: str = "auto", allowed=None,
    transitions: Transitions | None = None,
) -> np.ndarray:  # fmt: skip
    """The likeliest label of each position by itself, int32 [T]; among equals the smallest.

    It has the fewest wrong labels to be expected, but its transitions may be forbidden ones.
    """
    return marginals(dataset, layout, theta, sparse, allowed, transitions).argmax(axis=1).astype(np.int32)


def nbest(
    dataset: Dataset, layout: Layout, theta: np.ndarray, n: int, sparse: str = "auto", allowed=None,
    transitions: Transitions | None = None,
) -> NBest:  # fmt: skip
    """The n likeliest labellings of each sequence, best first, with scores and log-probabilities; see `NBest`."""
    if layout.second_order:
        return triples.nbest(dataset, layout, theta, n, sparse, allowed, transitions)
    if n < 1:
        raise EspalierError(f"n is {n}: expected at least 1 labelling")
    density(sparse)  # of no use to a lattice, but refused alike everywhere
    limits = make_limits(dataset, layout.n_labels, allowed, transitions)
    return blocks.nbest(lattice_blocks(dataset, layout, theta), len(dataset.weights), len(dataset.labels), n, limits)


def viterbi(
    dataset: Dataset, layout: Layout, theta: np.ndarray, sparse: str = "auto", allowed=None,
    transitions: Transitions | None = None,
) -> np.ndarray:  # fmt: skip
    """The likeliest labels of each sequence, int32 [T]; among equals the smallest label wins, from the end."""
    if layout.second_order:
        return triples.viterbi(dataset, layout, theta, allowed, transitions)
    sets, labels = checked_sets(dataset, layout, theta), np.empty(len(dataset.labels), np.int32)
    limits = make_limits(dataset, layout.n_labels, allowed, transitions)
    if limits is not None:
        return blocks.best(lattice_blocks(dataset, layout, theta, sets), len(dataset.labels), limits)
    table, wide = _pair_table(theta, layout, sets, density(sparse)), _wide_runs(theta, dataset, layout)
    threads.run(
        lambda run: _viterbi(theta, layout, dataset, sets, *table, *wide, *run, labels),
        balanced(np.diff(dataset.offsets)),
    )
    return labels


def _wide_runs(theta: np.ndarray, dataset: Dataset, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """(row int32 [V], table [R, W]): runs of many labels, written out to be added faster; row -1 for the rest.

    Both are empty where no run gains, or where the data are too few to pay for a look at all observations.
    """
    n_labels, width = layout.n_labels, padded(layout.n_labels)
    if not len(layout.unigram_code) or dataset.observations.size < layout.n_observations:
        return np.empty(0, np.int32), np.empty((0, width))
    lengths = np.diff(layout.unigram_ptr)
    at_least = np.cumsum(np.bincount(lengths, minlength=n_labels + 1)[::-1])[::-1]  # observations by length of run
    fitting = np.flatnonzero(at_least * (8 * width) <= WIDE_BYTES)
    limit = max(n_labels // WIDE_SHARE, 1, int(fitting[0]) if len(fitting) else n_labels + 1)
    wide = np.flatnonzero(lengths >= limit)
    row, table = np.full(len(lengths), -1, np.int32), np.zeros((len(wide), width))
    row[wide] = np.arange(len(wide))
    _fill_wide(theta, layout, wide, table)
    return row, table


@kernel
def _fill_wide(theta, layout, wide, table):
    ptr, code = layout.unigram_ptr, layout.unigram_code
    for r in range(len(wide)):
        for s in range(ptr[wide[r]], ptr[wide[r] + 1]):
            table[r, code[s - ptr[0]]] = theta[s]


def _pair_table(theta, layout, sets, share: float):
    """Bigram scores of each set: dense [D, W, W] at slot[p], -inf beyond Y, or lists of the non-zero ones by column."""
    n_sets, n_labels, width = len(sets.ptr) - 1, layout.n_labels, padded(layout.n_labels)
    nonzero = np.zeros(n_sets, np.int64)
    pieces = threads.ranges(n_sets, PIECES) if n_sets else []
    threads.run(lambda run: _count_nonzero(theta, layout, sets, *run, nonzero), pieces)
    thin = nonzero <= share * n_labels**2
    slot = np.where(thin, -1, np.cumsum(~thin) - 1).astype(np.int32)
    ptr = np.concatenate([[0], np.cumsum(np.where(thin, nonzero, 0))]).astype(np.int64)
    dense = np.full((int((~thin).sum()), width, width), -np.inf)
    code, score = np.empty(ptr[-1], np.int32), np.empty(ptr[-1])
    threads.run(lambda run: _fill_table(theta, layout, sets, slot, *run, dense, ptr, code, score), pieces)
    return slot, dense, ptr, code, score


@kernel
def _count_nonzero(theta, layout, sets, lo, hi, nonzero):
    scores = np.empty(layout.n_labels**2)
    for p in range(lo, hi):
        pair_scores(theta, layout, sets, p, scores)
        nonzero[p] = 0
        for k in range(len(scores)):
            nonzero[p] += scores[k] != 0.0


@kernel
def _fill_table(theta, layout, sets, slot, lo, hi, dense, ptr, code, score):
    n_labels = layout.n_labels
    scores = np.empty(n_labels**2)
    for p in range(lo, hi):
        pair_scores(theta, layout, sets, p, scores)
        if slot[p] >= 0:
            for i in range(n_labels):
                for y in range(n_labels):
                    dense[slot[p], i, y] = scores[i * n_labels + y]
            continue
        k = ptr[p]
        for y in range(n_labels):
            for i in range(n_labels):
                if scores[i * n_labels + y] != 0.0:
                    code[k], score[k] = y * n_labels + i, scores[i * n_labels + y]
                    k += 1


@kernel
def _viterbi(theta, layout, data, sets, slot, dense, ptr, code, score, row, table, lo, hi, out):
    """best_{t+1}(y) = max_y' {best_t(y') + lambda(y', y)} + mu(y), dense or sparse (SBCD 10).

    Rows of W numbers, those beyond Y -inf or never read. Only the values are kept: which y' it was is asked again
    on the way back, for one label a position and not for all.
    """
    observations, offsets, valued, values = data.observations, data.offsets, data.valued, data.values
    n_labels, width, longest = layout.n_labels, table.shape[1], 0
    for n in range(lo, hi):
        longest = max(longest, offsets[n + 1] - offsets[n])
    best, here, active = np.empty((longest, width)), np.empty(width), np.zeros(n_labels, np.bool_)
    labels_only = here[:n_labels]
    unigram_ptr, unigram_code, of_position = layout.unigram_ptr, layout.unigram_code, sets.of_position
    start_ptr, start_code = layout.start_ptr, layout.start_code
    for n in range(lo, hi):
        begin, end = offsets[n], offsets[n + 1]
        for t in range(begin, end):
            for y in range(width):
                here[y] = 0.0
            _add_all(theta, unigram_ptr, unigram_code, row, table, observations, t, here, labels_only)
            add_values(theta, unigram_ptr, unigram_code, valued, values, t, labels_only)
            if t == begin:
                add_runs(theta, start_ptr, start_code, observations, t, labels_only)
                for y in range(width):
                    best[0, y] = here[y]
                continue
            p = of_position[t]
            if slot[p] >= 0:
                step_dense(dense, slot[p], best, t - begin)
            else:
                _step_sparse(code, score, ptr[p], ptr[p + 1], active, best, t - begin)
            for y in range(width):
                best[t - begin, y] += here[y]
        label = np.argmax(best[end - 1 - begin, :n_labels])
        out[end - 1] = label
        for t in range(end - 1, begin, -1):
            p = of_position[t]
            if slot[p] >= 0:
                label = before_dense(dense, slot[p], best, t - 1 - begin, label, n_labels)
            else:
                label = _before_sparse(code, score, ptr[p], ptr[p + 1], best, t - 1 - begin, label, n_labels)
            out[t - 1] = label


@kernel
def _add_all(theta, ptr, code, row, table, observations, t, padded_scores, scores):
    """The unigram scores of position t; `scores` are the first Y of `padded_scores`."""
    some = len(row) > 0
    for k in range(observations.shape[1]):
        x = observations[t, k]
        if x < 0:
            continue
        r = row[x] if some else np.int32(-1)
        if r >= 0:
            for y in range(len(padded_scores)):
                padded_scores[y] += table[r, y]
        else:
            add_run(theta, code, ptr[0], ptr[x], ptr[x + 1] - ptr[x], scores)


@kernel
def step_dense(dense, d, best, t):
    """best[t, y] = max_i best[t - 1, i] + dense[d, i, y], four i at a time."""
    width = best.shape[1]
    for y in range(width):
        best[t, y] = -np.inf
    for i in range(0, width, 4):
        a, b, c, e = best[t - 1, i], best[t - 1, i + 1], best[t - 1, i + 2], best[t - 1, i + 3]
        for y in range(width):
            first, second = a + dense[d, i, y], b + dense[d, i + 1, y]
            third, fourth = c + dense[d, i + 2, y], e + dense[d, i + 3, y]
            first = first if first > second else second
            third = third if third > fourth else fourth
            first = first if first > third else third
            best[t, y] = first if first > best[t, y] else best[t, y]


@kernel
def before_dense(dense, d, best, t, y, n_labels):
    """The smallest i with the largest best[t, i] + dense[d, i, y]."""
    value, label = best[t, 0] + dense[d, 0, y], 0
    for i in range(1, n_labels):
        total = best[t, i] + dense[d, i, y]
        if total > value:
            value, label = total, i
    return label


@kernel
def _step_sparse(code, score, lo, hi, active, best, t):
    """Labels without a weight into y share one maximum; the few with one are compared with the rest."""
    n = len(active)
    top = best[t - 1, 0]
    for i in range(1, n):
        top = best[t - 1, i] if best[t - 1, i] > top else top
    for y in range(best.shape[1]):
        best[t, y] = top
    k = lo
    while k < hi:
        y, end = code[k] // n, k
        while end < hi and code[end] // n == y:
            active[code[end] % n] = True
            end += 1
        value = -np.inf
        for i in range(n):
            if not active[i] and best[t - 1, i] > value:
                value = best[t - 1, i]
        for j in range(k, end):
            i = code[j] % n
            active[i] = False
            value = max(value, best[t - 1, i] + score[j])
        best[t, y] = value
        k = end


@kernel
def _before_sparse(code, score, lo, hi, best, t, y, n_labels):
    """The smallest i with the largest best[t, i] + lambda(i, y); the entries are sorted by y, then i."""
    while lo < hi and code[lo] < y * n_labels:
        lo += 1
    value, label = -np.inf, 0
    for i in range(n_labels):
        total = best[t, i]
        if lo < hi and code[lo] == y * n_labels + i:
            total += score[lo]
            lo += 1
        if total > value:
            value, label = total, i
    return label


def score_arrays(dataset: Dataset, layout: Layout, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All scores written out: of positions [T, Y] and of pairs [T, Y, Y] (zero at first positions); small data only."""
    return blocks.score_arrays(lattice_blocks(dataset, layout, theta), (len(dataset.labels), layout.n_labels))
