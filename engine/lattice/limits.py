"""Which labellings are allowed.

A labelling is allowed when each position has one of its allowed labels and no transition, first or last label is
forbidden. What is forbidden has the score -inf in a lattice. Chains of labels that never meet can drift apart without
bound, so scaling in the linear domain could lose the only allowed one; the recursions go by logarithms.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.data.dataset import Dataset, label_rows
from espalier.engine.errors import EspalierError
from espalier.engine.labels.scheme import Transitions
from espalier.engine.lattice.lattice import Lattice
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.threads import PIECES, balanced


class Limits(NamedTuple):
    """Position t may have the labels of table[row[t]]; transitions are flat."""

    row: np.ndarray  # int64 [T]
    table: np.ndarray  # bool [R, Y]
    start: np.ndarray  # bool [Y]
    pair: np.ndarray  # bool [Y * Y]
    end: np.ndarray  # bool [Y]


class ImpossibleSequence(EspalierError):
    """A sequence without any allowed labelling; `sequence` is its number, and all that the text is made of."""

    @property
    def sequence(self) -> int:
        return self.args[0]

    def __str__(self) -> str:
        return (
            f"sequence {self.sequence} has no labelling that is allowed: check its allowed labels and the transitions"
        )


def unrestricted(dataset: Dataset, n_labels: int) -> Limits:
    """Limits that allow everything."""
    row = np.zeros(len(dataset.labels), np.int64)
    every = np.ones(n_labels, bool)
    return Limits(row, every[None].copy(), every, np.ones(n_labels * n_labels, bool), every.copy())


def make_limits(dataset: Dataset, n_labels: int, allowed=None, transitions: Transitions | None = None) -> Limits | None:
    """None when nothing is asked. `allowed` is bool [T, Y], or "labels" for what the data set's labels allow."""
    if allowed is None and transitions is None:
        return None
    limits = unrestricted(dataset, n_labels)
    if allowed is not None:
        row, table = _allowed_rows(dataset, n_labels, allowed)
        limits = limits._replace(row=row, table=table)
    if transitions is not None:
        start, pair, end = (np.require(a, bool, ["C", "W"]) for a in transitions)
        if start.shape != (n_labels,) or pair.shape != (n_labels, n_labels) or end.shape != (n_labels,):
            raise EspalierError(
                f"transitions have the shapes {start.shape}, {pair.shape} and {end.shape}: "
                f"expected those of {n_labels} labels"
            )
        limits = limits._replace(start=start, pair=pair.ravel(), end=end)
    return limits


def _allowed_rows(dataset: Dataset, n_labels: int, allowed) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(allowed, str):
        if allowed != "labels":
            raise EspalierError(f"allowed is {allowed!r}: expected 'labels' or an array of positions x labels")
        return label_rows(dataset, n_labels)
    table, expected = np.require(allowed, bool, ["C", "W"]), (len(dataset.labels), n_labels)
    if table.shape != expected:
        raise EspalierError(f"allowed has the shape {table.shape}: expected {expected}, positions x labels")
    return np.arange(len(table)), table


def refuse_impossible(possible: np.ndarray) -> None:
    """An error for the first sequence that is not possible [N]."""
    if not possible.all():
        raise ImpossibleSequence(int(np.argmin(possible)))


def restrict(lattice: Lattice, limits: Limits | None, in_place: bool = False) -> Lattice:
    """The lattice with -inf where something is forbidden.

    What no limit touches is shared, not copied; in_place=True writes into the lattice, which then is the caller's to
    throw away: fresh memory for all matrices costs more than the best labellings do.
    """
    if limits is None:
        return lattice
    _check_fit(lattice, limits)
    here, between = lattice.here if in_place else np.empty_like(lattice.here), lattice.between
    threads.run(lambda piece: _limit_positions(lattice, limits, *piece, here), balanced(np.diff(lattice.offsets)))
    if not limits.pair.all() and len(between):
        between = between if in_place else np.empty_like(between)
        threads.run(
            lambda piece: _limit_pairs(lattice.between, limits.pair.reshape(between.shape[1:]), *piece, between),
            threads.ranges(len(between), PIECES),
        )
    return lattice._replace(here=here, between=between)


def _check_fit(lattice: Lattice, limits: Limits) -> None:
    """Limits of other data would read past the end of an array in compiled code."""
    positions, n_labels = lattice.here.shape
    sizes = [limits.table.shape[1], len(limits.start), len(limits.end)]
    if len(limits.row) != positions or sizes != [n_labels] * 3 or len(limits.pair) != n_labels**2:
        raise EspalierError(
            f"limits are of {len(limits.row)} positions and {limits.table.shape[1]} labels: expected the {positions} "
            f"positions and {n_labels} labels of the lattice"
        )


@kernel
def _limit_positions(lattice, limits, lo, hi, out):
    """out[t, y] = here[t, y] of the sequences [lo, hi), -inf where the label is not allowed."""
    here, offsets = lattice.here, lattice.offsets
    row, table, start, end = limits.row, limits.table, limits.start, limits.end
    for n in range(lo, hi):
        first, last = offsets[n], offsets[n + 1] - 1
        for t in range(first, last + 1):
            r = row[t]
            for y in range(here.shape[1]):
                out[t, y] = here[t, y] if table[r, y] else -np.inf
        for y in range(here.shape[1]):
            if not start[y]:
                out[first, y] = -np.inf
            if not end[y]:
                out[last, y] = -np.inf


@kernel
def _limit_pairs(between, pair, lo, hi, out):
    """out[p, y', y] = between[p, y', y] of the matrices [lo, hi), -inf where the pair is forbidden."""
    for p in range(lo, hi):
        for i in range(between.shape[1]):
            for y in range(between.shape[1]):
                out[p, i, y] = between[p, i, y] if pair[i, y] else -np.inf
