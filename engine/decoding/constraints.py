"""Which labellings are allowed, and the recursions over them by logarithms.

A labelling is allowed when each position has one of its allowed labels and no
transition, first or last label is forbidden. A forbidden label or transition has the
score -inf. Chains of labels that never meet can drift apart without bound, so scaling
in the linear domain could lose the only allowed one; logarithms are exact.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.logarithms import log_sum
from espalier.engine.chain.pair_sets import PairSets
from espalier.engine.chain.scores import pair_scores, position_scores
from espalier.engine.data.dataset import Dataset, label_rows
from espalier.engine.errors import EspalierError
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.threads import balanced
from espalier.engine.weights.layout import Layout

NOTHING = np.empty((0, 0))


class Constraints(NamedTuple):
    """Position t may have the labels of table[row[t]]; transitions are flat."""

    row: np.ndarray  # int64 [T]
    table: np.ndarray  # bool [R, Y]
    start: np.ndarray  # bool [Y]
    pair: np.ndarray  # bool [Y * Y]
    end: np.ndarray  # bool [Y]


def unrestricted(dataset: Dataset, layout: Layout) -> Constraints:
    """Constraints that allow everything."""
    n = layout.n_labels
    row = np.zeros(len(dataset.labels), np.int64)
    return Constraints(row, np.ones((1, n), bool), np.ones(n, bool), np.ones(n * n, bool), np.ones(n, bool))


def make_constraints(dataset: Dataset, layout: Layout, allowed=None, transitions=None) -> Constraints | None:
    """None when nothing is asked. `allowed` is bool [T, Y], or "labels" for what the data set's labels allow."""
    if allowed is None and transitions is None:
        return None
    made = unrestricted(dataset, layout)
    if allowed is not None:
        row, table = _allowed_rows(dataset, layout, allowed)
        made = made._replace(row=row, table=table)
    if transitions is not None:
        start, pair, end = (np.require(a, bool, ["C", "W"]) for a in transitions)
        n = layout.n_labels
        if start.shape != (n,) or pair.shape != (n, n) or end.shape != (n,):
            raise EspalierError(
                f"transitions have the shapes {start.shape}, {pair.shape} and {end.shape}: expected those of {n} labels"
            )
        made = made._replace(start=start, pair=pair.ravel(), end=end)
    return made


def _allowed_rows(dataset: Dataset, layout: Layout, allowed) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(allowed, str):
        if allowed != "labels":
            raise EspalierError(f"allowed is {allowed!r}: expected 'labels' or an array of positions x labels")
        return label_rows(dataset, layout.n_labels)
    table, expected = np.require(allowed, bool, ["C", "W"]), (len(dataset.labels), layout.n_labels)
    if table.shape != expected:
        raise EspalierError(f"allowed has the shape {table.shape}: expected {expected}, positions x labels")
    return np.arange(len(table)), table


def refuse_impossible(possible: np.ndarray) -> None:
    """An error for the first sequence that is not possible [N]."""
    if not possible.all():
        raise EspalierError(
            f"sequence {int(np.argmin(possible))} has no labelling that is allowed: "
            "check its allowed labels and the transitions"
        )


@kernel
def allowed_scores(theta, layout, observations, constraints, t, first, last, out):
    """out[y] = the position's score, -inf where the label is not allowed there."""
    position_scores(theta, layout, observations, t, first, out)
    row = constraints.row[t]
    for y in range(len(out)):
        allowed = constraints.table[row, y]
        if (first and not constraints.start[y]) or (last and not constraints.end[y]):
            allowed = False
        if not allowed:
            out[y] = -np.inf


@kernel
def allowed_pairs(theta, layout, sets, constraints, p, out):
    """out[y' * Y + y] = the score of the pair, -inf where it is forbidden."""
    pair_scores(theta, layout, sets, p, out)
    for c in range(len(out)):
        if not constraints.pair[c]:
            out[c] = -np.inf


@kernel
def forward(theta, layout, observations, sets, constraints, lo, hi, score, log_alpha):
    """log of the sum over the allowed labellings of the sequence lo..hi-1, -inf when there is none.

    log_alpha_t(y) = score_t(y) + log sum_y' exp(log_alpha_{t-1}(y') + lambda_t(y', y)), each
    row shifted to a largest value of 0. Rows belong to t - lo. Cost: Y^2 exponentials a position.
    """
    n_labels = layout.n_labels
    pairs, terms = np.empty(n_labels * n_labels), np.empty(n_labels)
    log_z, held = 0.0, -2
    for t in range(lo, hi):
        row = t - lo
        allowed_scores(theta, layout, observations, constraints, t, t == lo, t == hi - 1, score[row])
        log_alpha[row] = score[row]
        if t > lo:
            p = sets.of_position[t]
            if p != held:
                allowed_pairs(theta, layout, sets, constraints, p, pairs)
                held = p
            for y in range(n_labels):
                if score[row, y] == -np.inf:
                    continue
                for i in range(n_labels):
                    terms[i] = log_alpha[row - 1, i] + pairs[i * n_labels + y]
                log_alpha[row, y] += log_sum(terms)
        top = log_alpha[row].max()
        if top == -np.inf:
            return top
        log_alpha[row] -= top
        log_z += top
    return log_z + log_sum(log_alpha[hi - 1 - lo])


@kernel
def backward(theta, layout, sets, constraints, lo, hi, score, log_alpha, gamma, between):
    """Marginals gamma [rows, Y] and, unless it is empty, those of pairs, between [rows, Y * Y] (zero in row 0)."""
    n_labels = layout.n_labels
    scores, pairs = np.empty(n_labels * n_labels), np.empty(n_labels * n_labels)
    terms, log_beta, following = np.empty(n_labels), np.zeros(n_labels), np.empty(n_labels)
    held = -2
    for t in range(hi - 1, lo - 1, -1):
        row = t - lo
        for y in range(n_labels):
            terms[y] = log_alpha[row, y] + log_beta[y]
        total = log_sum(terms)
        for y in range(n_labels):
            gamma[row, y] = np.exp(terms[y] - total)
        if t == lo:
            if len(between):
                between[row] = 0.0
            break
        p = sets.of_position[t]
        if p != held:
            allowed_pairs(theta, layout, sets, constraints, p, scores)
            held = p
        for i in range(n_labels):
            for y in range(n_labels):
                terms[y] = scores[i * n_labels + y] + score[row, y] + log_beta[y]
                pairs[i * n_labels + y] = log_alpha[row - 1, i] + terms[y]
            following[i] = log_sum(terms)
        if len(between):
            total = log_sum(pairs)
            for c in range(n_labels * n_labels):
                between[row, c] = np.exp(pairs[c] - total)
        log_beta[:] = following - following.max()


@kernel
def _run(theta, layout, observations, offsets, sets, constraints, lo, hi, gamma, between, log_z):
    """log_z [N] and, unless they are empty, gamma [T, Y] and between [T, Y * Y] of the sequences [lo, hi)."""
    longest = 0
    for n in range(lo, hi):
        longest = max(longest, offsets[n + 1] - offsets[n])
    score, log_alpha = np.empty((longest, layout.n_labels)), np.empty((longest, layout.n_labels))
    for n in range(lo, hi):
        first, end = offsets[n], offsets[n + 1]
        log_z[n] = forward(theta, layout, observations, sets, constraints, first, end, score, log_alpha)
        if len(gamma) and log_z[n] > -np.inf:
            room = between[first:end] if len(between) else between
            backward(theta, layout, sets, constraints, first, end, score, log_alpha, gamma[first:end], room)


def run(theta, dataset: Dataset, layout: Layout, sets: PairSets, constraints, gamma=NOTHING, between=NOTHING):
    """log of the sum over allowed labellings [N]; fills gamma and between if given; refuses what is impossible."""
    log_z = np.empty(len(dataset.weights))
    threads.run(
        lambda piece: _run(theta, layout, dataset.observations, dataset.offsets, sets, constraints, *piece, gamma,
                           between, log_z),
        balanced(np.diff(dataset.offsets)),
    )  # fmt: skip
    refuse_impossible(log_z > -np.inf)
    return log_z
