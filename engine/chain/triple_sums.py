"""Sums over positions of alpha_{t-1}(y'', y') g_t(y', y), the expectations of triples without their own weights.

Where they go is in `triple_sets.Matrices`. Four columns of a position stay in a register while the rows go by. One
observation, that with the most to add, is there at most positions where a template has no macro: its positions are
held back until there are eight, and an element is then fetched and stored once for all of them.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.runtime.fours import add_outer
from espalier.engine.runtime.jit import kernel

HELD = (0,) * 8  # as many positions at once


class HeldPositions(NamedTuple):
    """The position at hand, and those of the observation `often` that are not added yet."""

    count: np.ndarray  # int64 [1], how many are held
    g: np.ndarray  # [1, S + 4], of the position at hand
    alpha: np.ndarray  # [8, S + 4], alpha_{t-1}; row `count` is of the position at hand
    rows: np.ndarray  # [8, rows of `often`], g of the pairs that are its rows
    columns: np.ndarray  # [columns of any other observation]
    of_columns: np.ndarray  # [rows of any other]


@kernel
def make_held(matrices, near):
    mid_ptr, first_ptr, last_ptr, seen = matrices.mid_ptr, matrices.first_ptr, matrices.last_ptr, near.factor.shape[1]
    columns, rows, held = 0, 0, 0
    for x in range(len(mid_ptr) - 1):
        n_rows = last_ptr[mid_ptr[x + 1]] - last_ptr[mid_ptr[x]]
        columns = max(columns, first_ptr[mid_ptr[x + 1]] - first_ptr[mid_ptr[x]])
        rows, held = max(rows, n_rows), n_rows if x == matrices.often else held
    return HeldPositions(
        np.zeros(1, np.int64), np.zeros((1, seen)), np.zeros((len(HELD), seen)), np.zeros((len(HELD), held)),
        np.empty(columns), np.empty(rows),
    )  # fmt: skip


@kernel
def add_position(matrices, x, held, m, triples_at, out):
    """Add the position at hand, in row m of alpha, to the elements of observation x."""
    mid_ptr, first_ptr, first, last_ptr, last, tile_ptr, begin = (
        matrices.mid_ptr, matrices.first_ptr, matrices.first, matrices.last_ptr, matrices.last, matrices.tile_ptr,
        matrices.begin,
    )  # fmt: skip
    alpha, g, columns, rows = held.alpha, held.g, held.columns, held.of_columns
    base, low = first_ptr[mid_ptr[x]], last_ptr[mid_ptr[x]]
    for j in range(base, first_ptr[mid_ptr[x + 1]]):
        columns[np.uint64(j - base)] = alpha[m, np.uint64(first[j])]
    for k in range(low, last_ptr[mid_ptr[x + 1]]):
        rows[np.uint64(k - low)] = g[0, np.uint64(last[k])]
    for i in range(mid_ptr[x], mid_ptr[x + 1]):
        at = first_ptr[i] - base
        for j in range(tile_ptr[i], tile_ptr[i + 1]):
            add_outer(
                out, triples_at + begin[j], columns, at, 0, rows, last_ptr[i] - low, 0, (begin[j + 1] - begin[j]) // 4,
                (0,),
            )  # fmt: skip
            at += 4


@kernel
def hold(matrices, run_ptr, held, m, triples_at, out):
    """Keep the position at hand, in row m of alpha; when there are enough, all of them are added.

    A position has the observation twice where two columns show the same: then the row is needed twice.
    """
    count, g, alpha, rows, last, x = held.count, held.g, held.alpha, held.rows, matrices.last, matrices.often
    to, low = count[0], matrices.last_ptr[matrices.mid_ptr[x]]
    if to != m:
        for u in range(alpha.shape[1]):
            alpha[to, u] = alpha[m, u]
    for k in range(rows.shape[1]):
        rows[to, k] = g[0, np.uint64(last[np.uint64(low + k)])]
    count[0] += 1
    if count[0] == len(HELD):
        add_held(matrices, run_ptr, held, triples_at, out)


@kernel
def add_held(matrices, run_ptr, held, triples_at, out):
    """Add the positions that are held to the elements of the observation `often`; then none is held."""
    mid_ptr, middle, last_ptr, tile_ptr, begin = (
        matrices.mid_ptr, matrices.middle, matrices.last_ptr, matrices.tile_ptr, matrices.begin,
    )  # fmt: skip
    x, rows, alpha, count = matrices.often, held.rows, held.alpha, held.count
    if count[0] == 0:
        return
    for m in range(count[0], len(HELD)):
        alpha[m, :] = 0.0
        rows[m, :] = 0.0
    count[0] = 0
    for i in range(mid_ptr[x], mid_ptr[x + 1]):
        at, k = run_ptr[middle[i]], last_ptr[i] - last_ptr[mid_ptr[x]]
        for j in range(tile_ptr[i], tile_ptr[i + 1]):
            add_outer(
                out, triples_at + begin[j], alpha, at, alpha.shape[1], rows, k, rows.shape[1],
                (begin[j + 1] - begin[j]) // 4, HELD,
            )  # fmt: skip
            at += 4
