"""What a lattice says of its sequences: probabilities, marginals, best labellings, entropies, samples.

Every function takes `limits` (see `engine.lattice.limits`) and then looks at the allowed labellings only, as if the
others did not exist; a sequence without any is refused. Sequences are shared out among threads, and no result depends
on their number.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.lattice import recursions
from espalier.engine.lattice.lattice import Lattice, whole_numbers
from espalier.engine.lattice.limits import Limits, refuse_impossible, restrict
from espalier.engine.lattice.recursions import make_nbest_rows, make_step_rows
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.threads import balanced

PAIR_BYTES = 1 << 30  # what the marginals of all pairs may take unless the caller says more
NO_MARGINALS, NO_PAIRS = np.empty((0, 0)), np.empty((0, 0, 0))


class NBest(NamedTuple):
    """Up to n labellings of N sequences with T positions in all, best first."""

    count: np.ndarray  # int64 [N], how many there are
    scores: np.ndarray  # float64 [N, n], -inf where there are fewer
    log_probabilities: np.ndarray  # float64 [N, n], among the allowed labellings
    labels: np.ndarray  # int32 [n, T], -1 where there are fewer


def log_partition(lattice: Lattice, limits: Limits | None = None) -> np.ndarray:
    """log of the sum of exp(score) over the labellings of each sequence, float64 [N]."""
    return forward_backward(restrict(lattice, limits), NO_MARGINALS, NO_PAIRS)


def score(lattice: Lattice, labels) -> np.ndarray:
    """Score of one labelling [T] of each sequence, float64 [N]; -inf where it is impossible."""
    labels = _check_labels(labels, lattice)
    scores = np.empty(len(lattice.offsets) - 1)
    _in_threads(lattice, lambda lo, hi: _scores(lattice, labels, lo, hi, scores))
    return scores


def log_probability(lattice: Lattice, labels, limits: Limits | None = None) -> np.ndarray:
    """log of the probability of one labelling [T] of each sequence, float64 [N]; -inf where it is impossible."""
    restricted = restrict(lattice, limits)
    return np.minimum(score(restricted, labels) - log_partition(restricted), 0.0)


def best(lattice: Lattice, limits: Limits | None = None) -> np.ndarray:
    """The best labels of each sequence, int32 [T]; among equals the smallest label wins, from the end."""
    restricted = restrict(lattice, limits)
    scores, labels = np.empty(len(lattice.offsets) - 1), np.empty(len(lattice.here), np.int32)
    _in_threads(lattice, lambda lo, hi: _best(restricted, lo, hi, scores, labels))
    refuse_impossible(scores > -np.inf)
    return labels


def nbest(lattice: Lattice, n: int, limits: Limits | None = None) -> NBest:
    """The n best labellings of each sequence without repeats, best first; see `NBest`."""
    if n < 1:
        raise EspalierError(f"n is {n}: expected at least 1 labelling")
    restricted, sequences = restrict(lattice, limits), len(lattice.offsets) - 1
    count, scores = np.empty(sequences, np.int64), np.full((sequences, n), -np.inf)
    labels = np.full((n, len(lattice.here)), -1, np.int32)
    _in_threads(lattice, lambda lo, hi: _nbest(restricted, lo, hi, count, scores, labels))
    refuse_impossible(count > 0)
    return NBest(count, scores, np.minimum(scores - log_partition(restricted)[:, None], 0.0), labels)


def marginals(lattice: Lattice, limits: Limits | None = None) -> np.ndarray:
    """The probability of each label at each position, float64 [T, Y]."""
    gamma = np.empty(lattice.here.shape)
    forward_backward(restrict(lattice, limits), gamma, NO_PAIRS)
    return gamma


def posterior(lattice: Lattice, limits: Limits | None = None) -> np.ndarray:
    """The likeliest label of each position by itself, int32 [T]; among equals the smallest.

    It has the fewest wrong labels to be expected, but its transitions may be impossible ones.
    """
    return marginals(lattice, limits).argmax(axis=1).astype(np.int32)


def pair_marginals(lattice: Lattice, limits: Limits | None = None, limit: int = PAIR_BYTES) -> np.ndarray:
    """p(y_{t-1} = y', y_t = y), float64 [T, Y, Y], zero at first positions; for data that fit `limit` bytes."""
    tokens, n_labels = lattice.here.shape
    refuse_many_pairs(tokens, n_labels, limit)
    gamma, pairs = np.empty((tokens, n_labels)), np.empty((tokens, n_labels, n_labels))
    forward_backward(restrict(lattice, limits), gamma, pairs)
    return pairs


def forward_backward(lattice: Lattice, gamma: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """log Z [N]; fills the marginals of labels [T, Y] and of pairs [T, Y, Y] unless they are empty.

    For callers that want them together, or have memory for them.
    """
    log_z = np.empty(len(lattice.offsets) - 1)
    _in_threads(lattice, lambda lo, hi: _run(lattice, lo, hi, log_z, gamma, pairs))
    refuse_impossible(log_z > -np.inf)
    return log_z


def refuse_many_pairs(tokens: int, n_labels: int, limit: int) -> None:
    """An error where the marginals of all pairs would take more than `limit` bytes."""
    bytes_needed = 8 * tokens * n_labels * (n_labels + 1)
    if bytes_needed > limit:
        raise EspalierError(
            f"the marginals of pairs of {n_labels} labels at {tokens} positions take {bytes_needed:,} bytes, the limit "
            f"is {limit:,}: take fewer sequences at a time, or raise limit"
        )


def entropy(lattice: Lattice, limits: Limits | None = None) -> np.ndarray:
    """The entropy of the labelling of each sequence in nats, float64 [N]."""
    restricted, sequences = restrict(lattice, limits), len(lattice.offsets) - 1
    log_z, entropies = np.empty(sequences), np.empty(sequences)
    _in_threads(lattice, lambda lo, hi: _entropies(restricted, lo, hi, log_z, entropies))
    refuse_impossible(log_z > -np.inf)
    return entropies


def sample(lattice: Lattice, rng: np.random.Generator, count: int = 1, limits: Limits | None = None) -> np.ndarray:
    """`count` independent labellings of each sequence by their probabilities, int32 [count, T].

    The random numbers are drawn before any work is shared out, so a seed gives the same labellings whatever the
    number of threads is, and the first ones do not depend on how many follow.
    """
    if count < 1:
        raise EspalierError(f"count is {count}: expected at least 1 labelling")
    restricted, shape = restrict(lattice, limits), (count, len(lattice.here))
    uniform, labels, log_z = rng.random(shape), np.empty(shape, np.int32), np.empty(len(lattice.offsets) - 1)
    _in_threads(lattice, lambda lo, hi: _samples(restricted, uniform, lo, hi, log_z, labels))
    refuse_impossible(log_z > -np.inf)
    return labels


def _check_labels(labels, lattice: Lattice) -> np.ndarray:
    """As int64, each a label of the lattice: others would read past the end of an array in compiled code."""
    labels, (positions, n_labels) = whole_numbers("labels", labels), lattice.here.shape
    if len(labels) != positions:
        raise EspalierError(f"{len(labels)} labels for {positions} positions: expected one each")
    unknown = np.flatnonzero((labels < 0) | (labels >= n_labels))
    if len(unknown):
        raise EspalierError(f"position {unknown[0]} has no label: expected a known label at each position")
    return labels


def _in_threads(lattice: Lattice, function) -> None:
    """function(lo, hi) over runs of sequences of about the same length."""
    threads.run(lambda piece: function(*piece), balanced(np.diff(lattice.offsets)))


@kernel
def _longest(offsets, lo, hi):
    longest = 0
    for n in range(lo, hi):
        longest = max(longest, offsets[n + 1] - offsets[n])
    return longest


@kernel
def _run(lattice, lo, hi, log_z, gamma, pairs):
    """log_z [N] and, unless they are empty, gamma [T, Y] and pairs [T, Y, Y] of the sequences [lo, hi)."""
    between, offsets, n_labels = lattice.between, lattice.offsets, lattice.here.shape[1]
    log_alpha, rows = np.empty((_longest(offsets, lo, hi), n_labels)), make_step_rows(n_labels)
    for n in range(lo, hi):
        first, end = offsets[n], offsets[n + 1]
        here, which = lattice.here[first:end], lattice.which[first:end]
        log_z[n] = recursions.forward(here, between, which, log_alpha, rows)
        if len(gamma) and log_z[n] > -np.inf:
            room = pairs[first:end] if len(pairs) else pairs
            recursions.backward(here, between, which, log_alpha, gamma[first:end], room, pairs[:0], rows)


@kernel
def _entropies(lattice, lo, hi, log_z, entropies):
    between, offsets, n_labels = lattice.between, lattice.offsets, lattice.here.shape[1]
    log_alpha, rows = np.empty((_longest(offsets, lo, hi), n_labels)), make_step_rows(n_labels)
    for n in range(lo, hi):
        here, which = lattice.here[offsets[n] : offsets[n + 1]], lattice.which[offsets[n] : offsets[n + 1]]
        log_z[n] = recursions.forward(here, between, which, log_alpha, rows)
        if log_z[n] > -np.inf:
            entropies[n] = recursions.sequence_entropy(here, between, which, log_alpha, rows)


@kernel
def _samples(lattice, uniform, lo, hi, log_z, labels):
    between, offsets, n_labels = lattice.between, lattice.offsets, lattice.here.shape[1]
    log_alpha, rows = np.empty((_longest(offsets, lo, hi), n_labels)), make_step_rows(n_labels)
    for n in range(lo, hi):
        first, end = offsets[n], offsets[n + 1]
        here, which = lattice.here[first:end], lattice.which[first:end]
        log_z[n] = recursions.forward(here, between, which, log_alpha, rows)
        if log_z[n] > -np.inf:
            for k in range(len(labels)):
                recursions.draw_labelling(
                    between, which, log_alpha, uniform[k, first:end], rows.value, labels[k, first:end]
                )


@kernel
def _scores(lattice, labels, lo, hi, scores):
    here, between, which, offsets = lattice.here, lattice.between, lattice.which, lattice.offsets
    for n in range(lo, hi):
        total = 0.0
        for t in range(offsets[n], offsets[n + 1]):
            total += here[t, labels[t]]
            if t > offsets[n]:
                total += between[which[t], labels[t - 1], labels[t]]
        scores[n] = total


@kernel
def _best(lattice, lo, hi, scores, labels):
    between, offsets = lattice.between, lattice.offsets
    values = np.empty((_longest(offsets, lo, hi), lattice.here.shape[1]))
    for n in range(lo, hi):
        first, end = offsets[n], offsets[n + 1]
        here, which = lattice.here[first:end], lattice.which[first:end]
        scores[n] = recursions.viterbi(here, between, which, values, labels[first:end])


@kernel
def _nbest(lattice, lo, hi, count, scores, labels):
    between, offsets = lattice.between, lattice.offsets
    rows = make_nbest_rows(_longest(offsets, lo, hi), lattice.here.shape[1], scores.shape[1])
    for n in range(lo, hi):
        first, end = offsets[n], offsets[n + 1]
        here, which = lattice.here[first:end], lattice.which[first:end]
        count[n] = recursions.best_labellings(here, between, which, rows, scores[n], labels[:, first:end])
