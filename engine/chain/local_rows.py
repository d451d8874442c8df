"""Positions by themselves, without pairs: p(y | x_t) = exp(u_t(y)) / sum_y' exp(u_t(y')), u the position scores.

Positions with the same observations are one row, which counts as often as they are there: scores, sum and expectations
are made once for all of them. What is left reads theta all over in the order of the data, and most of that is waiting
for memory, which is therefore asked for ahead. Cost of a row: its observations times the labels, for the scores and for
the expectations each.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.column_groups import Composites, find_composites, share
from espalier.engine.chain.gather_gradient import Gathering, gather_positions, make_gathering
from espalier.engine.data.dataset import Dataset
from espalier.engine.runtime import threads
from espalier.engine.runtime.grouping import combine, first_places
from espalier.engine.runtime.inner_loops import LANES, add_run, add_values, exponentiate, extremes
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.prefetch import ask_for
from espalier.engine.weights.layout import Layout

PIECES = 32
AHEAD = 2  # rows between asking for memory and reading it: each asks for many lines
WIDEST = 690.0  # a score so much below the best counts as if it were this far: exp(-690) adds nothing, and is a number
NO_ROWS = np.empty((0, 0))


class RowRuns(NamedTuple):
    """Where in theta the weights of each row lie that are in no combination."""

    begin: np.ndarray  # int64 [R, K']
    length: np.ndarray  # int32 [R, K'], 0 of none


class LocalRows(NamedTuple):
    """R distinct rows of observations and values, each a sequence of its own, and where they occur."""

    data: Dataset  # without labels; the weights are those of all positions that a row stands for
    of_position: np.ndarray  # int32 [T]
    composites: Composites
    gathering: Gathering
    runs: RowRuns


def distinct_rows(dataset: Dataset, layout: Layout) -> LocalRows:
    """The distinct rows of a data set whose sequences are single positions."""
    ids, count = np.zeros(len(dataset.labels), np.int32), min(1, len(dataset.labels))
    columns = [dataset.observations[:, k] for k in range(dataset.observations.shape[1])]
    if dataset.valued.shape[1]:
        values = np.unique(dataset.values, return_inverse=True)[1].reshape(dataset.values.shape).astype(np.int32)
        columns += [table[:, k] for table in (dataset.valued, values) for k in range(table.shape[1])]
    for column in columns:
        count = combine(ids, np.ascontiguousarray(column), len(ids))
    first = first_places(ids, count)
    data = dataset._replace(
        observations=dataset.observations[first], labels=np.full(count, -1, np.int32), offsets=np.arange(count + 1),
        weights=summed(dataset.weights, ids, count),
    )  # fmt: skip
    if dataset.valued.shape[1]:
        data = data._replace(valued=dataset.valued[first], values=dataset.values[first])
    composites = find_composites(data, layout)
    return LocalRows(data, ids, composites, make_gathering(data, layout, composites), _runs(data, layout, composites))


def _runs(data: Dataset, layout: Layout, composites: Composites) -> RowRuns:
    x, ptr = data.observations[:, composites.columns], layout.unigram_ptr
    begin, lengths = np.append(ptr[:-1], 0), np.append(np.diff(ptr), 0).astype(np.int32)  # the last is for -1
    return RowRuns(begin[x], lengths[x])


def summed(weights: np.ndarray, of_position: np.ndarray, count: int) -> np.ndarray:
    """The weights of rows from those of positions."""
    return np.bincount(of_position, weights, count).astype(np.float64)


def log_sums(theta: np.ndarray, layout: Layout, rows: LocalRows, weights=None, out: np.ndarray = NO_ROWS) -> np.ndarray:
    """log sum_y exp(u(y)) of each row [R]; weight * p(y) of each into `out` [R, W], if it has room for them."""
    data, shared = rows.data, share(theta, layout, rows.composites)
    log_z, weights = np.empty(len(data.weights)), data.weights if weights is None else weights
    threads.run(
        lambda run: _log_sums(theta, layout, data, shared, rows.runs, weights, *run, out, log_z),
        threads.ranges(len(log_z), PIECES) if len(log_z) else [],
    )
    return log_z


def expectations(
    theta: np.ndarray, layout: Layout, rows: LocalRows, weights: np.ndarray, room: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(expected counts, log sums) of all rows; `room` is [R, W]."""
    log_z, expected = log_sums(theta, layout, rows, weights, room), np.zeros(layout.size)
    gather_positions(layout, rows.gathering, room, expected)
    return expected, log_z


@kernel
def _log_sums(theta, layout, data, shared, runs, weights, lo, hi, out, log_z):
    """Rows [lo, hi): weights and summed scores are asked for some rows before they are needed."""
    ptr, code, n_labels, base = layout.unigram_ptr, layout.unigram_code, layout.n_labels, layout.unigram_ptr[0]
    valued, values, ids, table = data.valued, data.values, shared.ids, shared.table
    begin, length, n_runs, width, wanted = runs.begin, runs.length, runs.begin.shape[1], table.shape[1], len(out) > 0
    score, e, high, low = np.zeros(width), np.empty(width), np.empty(LANES), np.empty(LANES)
    scores, power = score[:n_labels], np.empty(width, np.int64)
    power_as_float = power.view(np.float64)
    for t in range(lo, hi):
        later = min(t + AHEAD, hi - 1)
        for k in range(n_runs):
            ask_for(theta, begin[later, k], length[later, k])
        for k in range(ids.shape[1]):
            ask_for(table, np.int64(ids[later, k]) * width, width)
        for y in range(n_labels):
            score[y] = 0.0
        for k in range(ids.shape[1]):
            c = ids[t, k]
            for y in range(n_labels):
                score[y] += table[c, y]
        for k in range(n_runs):
            add_run(theta, code, base, begin[t, k], np.int64(length[t, k]), scores)
        add_values(theta, ptr, code, valued, values, t, scores)
        highest, lowest = extremes(scores, high, low)
        if highest - lowest > WIDEST:
            for y in range(n_labels):
                score[y] = highest - WIDEST if score[y] < highest - WIDEST else score[y]
        for y in range(n_labels, width):
            score[y] = highest
        exponentiate(score, highest, power, power_as_float, e)
        log_z[t] = highest + np.log(_finish(e, n_labels, weights[t], t, out, wanted))


@kernel
def _finish(e, n_labels, weight, t, out, wanted):
    """The sum of the first of e; weight * e / sum into row t of `out`, zero beyond them."""
    total = 0.0
    for y in range(n_labels, len(e)):
        e[y] = 0.0
    for y in range(len(e)):
        total += e[y]
    if wanted:
        scale = weight / total
        for y in range(len(e)):
            out[t, y] = e[y] * scale
    return total
