"""Decoding and posterior quantities of a data set under weights theta.

Functions that take `allowed` and `transitions` look at the allowed labellings only, as
if the others did not exist: `allowed` is bool [T, Y], or "labels" for the data set's own
labels and label sets; `transitions` is a `Transitions`, see `engine.scheme`.
"""

import numpy as np

from engine import constraints, threads
from engine.arithmetic import add_runs
from engine.composites import no_composites
from engine.constraints import Transitions, make_constraints, unrestricted
from engine.data import Dataset
from engine.errors import EspalierError
from engine.index import PairSets, check_labels, check_observations, check_theta, pair_sets
from engine.jit import kernel
from engine.layout import Layout
from engine.nbest import NBest, best_labellings
from engine.posteriors import all_log_partitions, balanced, in_lockstep, posterior_rows, posteriors
from engine.scores import density, make_factors, pair_scores, position_scores

PAIR_BYTES = 1 << 30  # what the marginals of all pairs may take unless the caller says more


def log_partition(
    dataset: Dataset, layout: Layout, theta: np.ndarray, sparse: str = "auto", allowed=None,
    transitions: Transitions | None = None,
) -> np.ndarray:  # fmt: skip
    """log Z(x^n) of each sequence, float64 [N]."""
    sets = _sets(dataset, layout, theta)
    restriction = make_constraints(dataset, layout, allowed, transitions)
    if restriction is not None:
        return constraints.run(theta, dataset, layout, sets, restriction)
    factors, schedule = make_factors(theta, layout, sets, sparse), in_lockstep(dataset, layout, sets)
    return all_log_partitions(theta, dataset, layout, sets, factors, schedule, no_composites(dataset))


def _sets(dataset: Dataset, layout: Layout, theta: np.ndarray) -> PairSets:
    check_observations(dataset, layout)
    check_theta(theta, layout)
    return pair_sets(dataset, layout)


def sequence_score(dataset: Dataset, layout: Layout, theta: np.ndarray, labels=None) -> np.ndarray:
    """Score of one labelling of each sequence (the data set's own by default), float64 [N]."""
    labels = dataset.labels if labels is None else labels
    check_labels(labels, layout)
    sets = _sets(dataset, layout, theta)
    out = np.empty(len(dataset.weights))
    _score(theta, layout, dataset.observations, dataset.offsets, sets, labels, out)
    return out


def sequence_log_probability(dataset: Dataset, layout: Layout, theta: np.ndarray, labels=None) -> np.ndarray:
    """log p(y^n | x^n), float64 [N]."""
    return sequence_score(dataset, layout, theta, labels) - log_partition(dataset, layout, theta)


@kernel
def _score(theta, layout, observations, offsets, sets, labels, out):
    here, pairs = np.empty(layout.n_labels), np.empty(layout.n_labels**2)
    for n in range(len(out)):
        out[n] = 0.0
        for t in range(offsets[n], offsets[n + 1]):
            position_scores(theta, layout, observations, t, t == offsets[n], here)
            out[n] += here[labels[t]]
            if t > offsets[n]:
                pair_scores(theta, layout, sets, sets.of_position[t], pairs)
                out[n] += pairs[labels[t - 1] * layout.n_labels + labels[t]]


def marginals(
    dataset: Dataset, layout: Layout, theta: np.ndarray, sparse: str = "auto", allowed=None,
    transitions: Transitions | None = None,
) -> np.ndarray:  # fmt: skip
    """p(y_t = y | x) at each position, float64 [T, Y]."""
    sets = _sets(dataset, layout, theta)
    restriction = make_constraints(dataset, layout, allowed, transitions)
    if restriction is not None:
        gamma = np.empty((len(dataset.labels), layout.n_labels))
        constraints.run(theta, dataset, layout, sets, restriction, gamma)
        return gamma
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
    sets, n_labels, tokens = _sets(dataset, layout, theta), layout.n_labels, len(dataset.labels)
    bytes_needed = 8 * tokens * n_labels * (n_labels + 1)
    if bytes_needed > limit:
        raise EspalierError(
            f"the marginals of pairs of {n_labels} labels at {tokens} positions take {bytes_needed:,} bytes, the limit "
            f"is {limit:,}: take fewer sequences at a time, or raise limit"
        )
    restriction = make_constraints(dataset, layout, allowed, transitions) or unrestricted(dataset, layout)
    gamma, between = np.empty((tokens, n_labels)), np.empty((tokens, n_labels**2))
    constraints.run(theta, dataset, layout, sets, restriction, gamma, between)
    return between.reshape(tokens, n_labels, n_labels)


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
    if n < 1:
        raise EspalierError(f"n is {n}: expected at least 1 labelling")
    sets = _sets(dataset, layout, theta)
    restriction = make_constraints(dataset, layout, allowed, transitions) or unrestricted(dataset, layout)
    count, scores, labels = best_labellings(theta, dataset, layout, sets, restriction, n)
    log_z = log_partition(dataset, layout, theta, sparse, allowed, transitions)
    return NBest(count, scores, np.minimum(scores - log_z[:, None], 0.0), labels)


def viterbi(
    dataset: Dataset, layout: Layout, theta: np.ndarray, sparse: str = "auto", allowed=None,
    transitions: Transitions | None = None,
) -> np.ndarray:  # fmt: skip
    """The likeliest labels of each sequence, int32 [T]; among equals the smallest label wins, from the end."""
    sets = _sets(dataset, layout, theta)
    restriction = make_constraints(dataset, layout, allowed, transitions)
    if restriction is not None:
        return best_labellings(theta, dataset, layout, sets, restriction, 1)[2][0]
    table = _pair_table(theta, layout, sets, density(sparse))
    out = np.empty(len(dataset.labels), np.int32)
    threads.run(
        lambda run: _viterbi(theta, layout, dataset.observations, dataset.offsets, sets, *table, *run, out),
        balanced(np.diff(dataset.offsets)),
    )
    return out


def _pair_table(theta, layout, sets, share: float):
    """Bigram scores of each set: dense [D, Y, Y] at slot[p], or lists of the non-zero ones by column."""
    n_sets, n_labels = len(sets.ptr) - 1, layout.n_labels
    nonzero = np.zeros(n_sets, np.int64)
    _count_nonzero(theta, layout, sets, nonzero)
    thin = nonzero <= share * n_labels**2
    slot = np.where(thin, -1, np.cumsum(~thin) - 1).astype(np.int32)
    ptr = np.concatenate([[0], np.cumsum(np.where(thin, nonzero, 0))]).astype(np.int64)
    dense = np.empty((int((~thin).sum()), n_labels, n_labels))
    code, score = np.empty(ptr[-1], np.int32), np.empty(ptr[-1])
    _fill_table(theta, layout, sets, slot, dense, ptr, code, score)
    return slot, dense, ptr, code, score


@kernel
def _count_nonzero(theta, layout, sets, nonzero):
    scores = np.empty(layout.n_labels**2)
    for p in range(len(nonzero)):
        pair_scores(theta, layout, sets, p, scores)
        nonzero[p] = np.count_nonzero(scores)


@kernel
def _fill_table(theta, layout, sets, slot, dense, ptr, code, score):
    n_labels = layout.n_labels
    scores = np.empty(n_labels**2)
    for p in range(len(slot)):
        pair_scores(theta, layout, sets, p, scores)
        if slot[p] >= 0:
            dense[slot[p]] = scores.reshape(n_labels, n_labels)
            continue
        k = ptr[p]
        for y in range(n_labels):
            for i in range(n_labels):
                if scores[i * n_labels + y] != 0.0:
                    code[k], score[k] = y * n_labels + i, scores[i * n_labels + y]
                    k += 1


@kernel
def _viterbi(theta, layout, observations, offsets, sets, slot, dense, ptr, code, score, lo, hi, out):
    """epsilon_{t+1}(y) = max_y' {epsilon_t(y') + lambda(y', y)} + mu(y), dense or sparse (SBCD 10)."""
    n_labels = layout.n_labels
    longest = 0
    for n in range(lo, hi):
        longest = max(longest, offsets[n + 1] - offsets[n])
    back = np.empty((longest, n_labels), np.int32)
    here, best, following = np.empty(n_labels), np.empty(n_labels), np.empty(n_labels)
    active = np.zeros(n_labels, np.bool_)
    unigram_ptr, unigram_code, of_position = layout.unigram_ptr, layout.unigram_code, sets.of_position
    for n in range(lo, hi):
        begin, end = offsets[n], offsets[n + 1]
        for t in range(begin, end):
            for y in range(n_labels):
                here[y] = 0.0
            add_runs(theta, unigram_ptr, unigram_code, observations, t, here)
            if t == begin:
                add_runs(theta, layout.start_ptr, layout.start_code, observations, t, here)
                best[:] = here
                continue
            p = of_position[t]
            if slot[p] >= 0:
                _step_dense(best, dense, slot[p], following, back, t - begin)
            else:
                _step_sparse(best, code[ptr[p] : ptr[p + 1]], score[ptr[p] : ptr[p + 1]], active, following,
                             back[t - begin])  # fmt: skip
            for y in range(n_labels):
                best[y] = following[y] + here[y]
        label = np.argmax(best)
        for t in range(end - 1, begin - 1, -1):
            out[t] = label
            if t > begin:
                label = back[t - begin, label]


@kernel
def _step_dense(best, scores, d, following, back, t):
    for y in range(len(best)):
        following[y] = best[0] + scores[d, 0, y]
        back[t, y] = 0
    for i in range(1, len(best)):
        for y in range(len(best)):
            value = best[i] + scores[d, i, y]
            better = value > following[y]
            following[y] = value if better else following[y]
            back[t, y] = i if better else back[t, y]


@kernel
def _step_sparse(best, code, score, active, following, back):
    """Labels without a weight into y share one maximum; the few with one are compared with the rest."""
    n = len(best)
    top = np.argmax(best)
    following[:] = best[top]
    back[:] = top
    k = 0
    while k < len(code):
        y = code[k] // n
        end = k
        while end < len(code) and code[end] // n == y:
            active[code[end] % n] = True
            end += 1
        value, label = -np.inf, -1
        for i in range(n):
            if not active[i] and best[i] > value:
                value, label = best[i], i
        for j in range(k, end):
            i = code[j] % n
            active[i] = False
            total = best[i] + score[j]
            if total > value or (total == value and i < label) or label < 0:
                value, label = total, i
        following[y], back[y] = value, label
        k = end


def score_arrays(dataset: Dataset, layout: Layout, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All scores written out: of positions [T, Y] and of pairs [T, Y, Y] (zero at first positions); small data only."""
    sets = _sets(dataset, layout, theta)
    here = np.zeros((len(dataset.labels), layout.n_labels))
    between = np.zeros((len(dataset.labels), layout.n_labels**2))
    _write_out(theta, layout, dataset.observations, dataset.offsets, sets, here, between)
    return here, between.reshape(-1, layout.n_labels, layout.n_labels)


@kernel
def _write_out(theta, layout, observations, offsets, sets, here, between):
    for n in range(len(offsets) - 1):
        for t in range(offsets[n], offsets[n + 1]):
            position_scores(theta, layout, observations, t, t == offsets[n], here[t])
            if t > offsets[n]:
                pair_scores(theta, layout, sets, sets.of_position[t], between[t])
