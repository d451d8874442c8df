"""Expected counts, gathered by observation: no locks, no copies of theta, one order of summation."""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.column_groups import Composites
from espalier.engine.chain.pair_sets import Amounts, Inverse, PairSets, invert, occurrences
from espalier.engine.data.dataset import Dataset
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.prefetch import AHEAD, ask_for
from espalier.engine.runtime.threads import PIECES, balanced
from espalier.engine.weights.layout import Layout

SLICES = 8  # of the previous label, done side by side; fixed, so that sums do not depend on the threads


class Gathering(NamedTuple):
    """Where each observation and each combination occurs."""

    positions: Inverse  # of observations in columns of their own
    first_positions: Inverse  # of all observations, among the first positions
    combinations: Inverse  # that hold an observation
    valued: Amounts  # of observations with values
    positions_of_combination: Inverse
    observation_runs: list[tuple[int, int]]
    combination_runs: list[tuple[int, int]]


def make_gathering(dataset: Dataset, layout: Layout, composites: Composites) -> Gathering:
    n_observations, n_rows = layout.n_observations, len(composites.ptr) - 1
    positions = _rows_of(np.ascontiguousarray(dataset.observations[:, composites.columns]), n_observations)
    starts = dataset.offsets[:-1] if layout.start_ptr[-1] > layout.start_ptr[0] else dataset.offsets[:0]
    first = _rows_of(dataset.observations[starts], n_observations)
    first = first._replace(entry=starts[first.entry].astype(np.int32))
    owner = np.repeat(np.arange(n_rows, dtype=np.int32), np.diff(composites.ptr))
    combinations = invert(composites.member, n_observations)
    combinations = combinations._replace(entry=owner[combinations.entry])
    of_combination = _rows_of(composites.ids, n_rows)
    valued = occurrences(dataset._replace(observations=dataset.observations[:, :0]), n_observations)
    costs = np.diff(positions.ptr) + np.diff(combinations.ptr) + np.diff(valued.ptr) + 1
    return Gathering(
        positions, first, combinations, valued, of_combination, balanced(costs), balanced(np.diff(of_combination.ptr))
    )


def _rows_of(table: np.ndarray, n_keys: int) -> Inverse:
    """Rows of a table in which each key >= 0 occurs, once for each time."""
    if not table.shape[1]:
        return Inverse(np.zeros(n_keys + 1, np.int64), np.empty(0, np.int32))
    flat = invert(table.ravel(), n_keys)
    return flat._replace(entry=(flat.entry // table.shape[1]).astype(np.int32))


def gather(
    layout: Layout, sets: PairSets, factors, positions_of_set: Inverse, where: Gathering, alpha, v, gamma, expected,
) -> None:  # fmt: skip
    """Add all expectations to `expected` [size], from the posteriors of all positions."""
    gather_positions(layout, where, gamma, expected)
    gather_also(layout, sets, factors, positions_of_set, alpha, v, expected)


def gather_positions(layout: Layout, where: Gathering, gamma: np.ndarray, expected: np.ndarray) -> None:
    """Add the expectations of single labels and of first ones, sums of gamma."""
    n_labels, nothing = layout.n_labels, Inverse(np.zeros(layout.n_observations + 1, np.int64), np.empty(0, np.int32))
    shared = np.empty((len(where.positions_of_combination.ptr) - 1, gamma.shape[1]))
    threads.run(lambda run: sum_rows(*where.positions_of_combination, gamma, *run, shared), where.combination_runs)
    threads.run(
        lambda run: gather_runs(layout.unigram_ptr, layout.unigram_code, n_labels, where.positions, gamma,
                                where.combinations, shared, *run, expected),
        where.observation_runs,
    )  # fmt: skip
    threads.run(
        lambda run: gather_values(layout, where.valued, gamma, *run, expected),
        where.observation_runs if len(where.valued.position) else [],
    )
    threads.run(
        lambda run: gather_runs(layout.start_ptr, layout.start_code, n_labels, where.first_positions, gamma, nothing,
                                shared, *run, expected),
        threads.ranges(layout.n_observations, PIECES) if len(layout.start_code) or np.ptp(layout.start_ptr) else [],
    )  # fmt: skip


def gather_also(layout: Layout, sets: PairSets, factors, positions_of_set: Inverse, alpha, v, expected) -> None:
    """Add the expectations of pairs alone, sums of alpha_{t-1} E_t v_t."""
    threads.run(
        lambda run: gather_pairs(layout, sets, factors, positions_of_set, alpha, v, *run, expected),
        threads.ranges(layout.n_labels, SLICES),
    )


@kernel
def sum_rows(ptr, entry, rows, lo, hi, out):
    """out[c] = sum of the rows of its entries, for c in [lo, hi)."""
    width, last = out.shape[1], ptr[hi] - 1
    for c in range(lo, hi):
        for y in range(width):
            out[c, y] = 0.0
        for i in range(ptr[c], ptr[c + 1]):
            ask_for(rows, np.int64(entry[min(i + AHEAD, last)]) * width, width)
            t = entry[i]
            for y in range(width):
                out[c, y] += rows[t, y]


@kernel
def gather_runs(run_ptr, code, n_labels, at, rows, at_shared, shared, lo, hi, gradient):
    """gradient[slot] += the rows of the positions of x, and the shared rows of its combinations, for x in [lo, hi).

    `at` lists the positions of each observation in columns of its own, `at_shared` its combinations.
    """
    at_ptr, at_entry, shared_ptr, shared_entry = at.ptr, at.entry, at_shared.ptr, at_shared.entry
    total, base, width, last = np.empty(n_labels), run_ptr[0], rows.shape[1], at_ptr[hi] - 1
    for x in range(lo, hi):
        begin, end = run_ptr[x], run_ptr[x + 1]
        if begin == end:
            continue
        for y in range(n_labels):
            total[y] = 0.0
        for i in range(at_ptr[x], at_ptr[x + 1]):
            ask_for(rows, np.int64(at_entry[min(i + AHEAD, last)]) * width, width)
            t = at_entry[i]
            for y in range(n_labels):
                total[y] += rows[t, y]
        for i in range(shared_ptr[x], shared_ptr[x + 1]):
            c = shared_entry[i]
            for y in range(n_labels):
                total[y] += shared[c, y]
        if end - begin == n_labels:
            for y in range(n_labels):
                gradient[begin + y] += total[y]
        else:
            for s in range(begin, end):
                gradient[s] += total[code[s - base]]


@kernel
def gather_values(layout, at, rows, lo, hi, gradient):
    """gradient[slot] += the rows of the positions of x times its values there, for x in [lo, hi)."""
    run_ptr, code, n_labels = layout.unigram_ptr, layout.unigram_code, layout.n_labels
    ptr, position, amount = at.ptr, at.position, at.amount
    total, base = np.empty(n_labels), run_ptr[0]
    for x in range(lo, hi):
        if ptr[x] == ptr[x + 1]:
            continue
        for y in range(n_labels):
            total[y] = 0.0
        for i in range(ptr[x], ptr[x + 1]):
            t, value = position[i], amount[i]
            for y in range(n_labels):
                total[y] += value * rows[t, y]
        begin, end = run_ptr[x], run_ptr[x + 1]
        full = end - begin == n_labels
        for s in range(begin, end):
            gradient[s] += total[s - begin if full else code[s - base]]


@kernel
def gather_pairs(layout, sets, factors, positions_of_set, alpha, v, lo, hi, gradient):
    """gradient[lambda[x, y', y]] += sum over the sets of x and their positions of alpha_{t-1}(y') E(y', y) v_t(y).

    For the previous labels y' in [lo, hi): slices touch different weights. A set's sum is one
    matrix product, multiplied by the factor once and handed to the members while it is in the cache.
    """
    n_labels, run_ptr, code = layout.n_labels, layout.bigram_ptr, layout.bigram_code
    ptr, entries = positions_of_set.ptr, positions_of_set.entry
    member_ptr, member, slot, dense = sets.ptr, sets.observation, factors.slot, factors.dense
    first_entry, last_entry, row, column, entry = (
        factors.begin, factors.end, factors.row, factors.column, factors.entry,
    )  # fmt: skip
    size, first, base = (hi - lo) * n_labels, lo * n_labels, run_ptr[0]
    total = np.empty(size)
    for p in range(len(ptr) - 1):
        for c in range(size):
            total[c] = 0.0
        whole = ptr[p] + (ptr[p + 1] - ptr[p]) // 4 * 4
        for k in range(ptr[p], whole, 4):
            t0, t1, t2, t3 = entries[k], entries[k + 1], entries[k + 2], entries[k + 3]
            for i in range(lo, hi):
                a0, a1, a2, a3 = alpha[t0 - 1, i], alpha[t1 - 1, i], alpha[t2 - 1, i], alpha[t3 - 1, i]
                at = np.uint64((i - lo) * n_labels)
                for j in range(np.uint64(n_labels)):
                    total[at + j] += a0 * v[t0, j] + a1 * v[t1, j] + a2 * v[t2, j] + a3 * v[t3, j]
        for k in range(whole, ptr[p + 1]):
            t = entries[k]
            for i in range(lo, hi):
                a = alpha[t - 1, i]
                at = np.uint64((i - lo) * n_labels)
                for j in range(np.uint64(n_labels)):
                    total[at + j] += a * v[t, j]
        d = slot[p]
        if d >= 0:
            for i in range(lo, hi):
                at = np.uint64((i - lo) * n_labels)
                for j in range(np.uint64(n_labels)):
                    total[at + j] *= dense[d, i, j]
        else:
            for k in range(first_entry[p], last_entry[p]):
                c = row[k] * n_labels + column[k] - first
                if 0 <= c < size:
                    total[c] *= 1.0 + entry[k]
        for m in range(member_ptr[p], member_ptr[p + 1]):
            begin, end = run_ptr[member[m]], run_ptr[member[m] + 1]
            if end - begin == n_labels * n_labels:
                at = np.uint64(begin + first)
                for c in range(np.uint64(size)):
                    gradient[at + c] += total[c]
            else:
                s = begin + np.searchsorted(code[begin - base : end - base], first)
                while s < end and code[s - base] < first + size:
                    gradient[s] += total[code[s - base] - first]
                    s += 1
