"""A layout restricted to some observations, and the way between its theta and the whole one.

A part of the data touches only the weights of the observations that occur in it. Its own
layout has these alone, numbered as in the whole one, so that a part of a large problem is as
small as its data, and what travels to it and back is too.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from espalier.engine.data.dataset import Dataset, every_observation, renumbered
from espalier.engine.runtime import threads
from espalier.engine.runtime.grouping import ends
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.threads import balanced
from espalier.engine.weights.layout import FAMILIES, Layout


@dataclass(frozen=True)
class Runs:
    """Where a short vector lies in a long one: short[ptr[r]:ptr[r + 1]] is from long[begin[r]] on; begins ascend."""

    begin: np.ndarray  # int64 [R]
    ptr: np.ndarray  # int64 [R + 1]

    @property
    def size(self) -> int:
        """The length of the short vector."""
        return int(self.ptr[-1])

    def take(self, long: np.ndarray, short: np.ndarray | None = None) -> np.ndarray:
        """The short vector, written into `short` where that is given."""
        short = np.empty(self.size, long.dtype) if short is None else short
        threads.run(lambda piece: _take(long, self.begin, self.ptr, *piece, short), self._pieces)
        return short

    def add(self, short: np.ndarray, long: np.ndarray) -> None:
        """Add the short vector to the long one, in place."""
        threads.run(lambda piece: _add(short, self.begin, self.ptr, *piece, long), self._pieces)

    def add_within(self, short: np.ndarray, lo: int, hi: int, out: np.ndarray) -> None:
        """Add what lies in long[lo:hi] to `out`, which is that stretch; by the calling thread alone."""
        first = max(0, int(np.searchsorted(self.begin, lo, side="right")) - 1)
        _add_within(short, self.begin, self.ptr, first, lo, hi, out)

    def places(self, indices: np.ndarray) -> np.ndarray:
        """Where elements of the short vector lie in the long one."""
        run = np.searchsorted(self.ptr, indices, side="right") - 1
        return self.begin[run] + indices - self.ptr[run]

    @cached_property
    def _pieces(self) -> list[tuple[int, int]]:
        return balanced(np.diff(self.ptr))


@kernel
def _take(long, begin, ptr, lo, hi, short):
    for r in range(lo, hi):
        at = begin[r] - ptr[r]
        for i in range(ptr[r], ptr[r + 1]):
            short[i] = long[at + i]


@kernel
def _add(short, begin, ptr, lo, hi, long):
    for r in range(lo, hi):
        at = begin[r] - ptr[r]
        for i in range(ptr[r], ptr[r + 1]):
            long[at + i] += short[i]


@kernel
def _add_within(short, begin, ptr, first, lo, hi, out):
    """Runs ascend, so those within lo..hi - 1 follow each other from `first` on."""
    for r in range(first, len(begin)):
        if begin[r] >= hi:
            break
        at, end = ptr[r] - begin[r], min(begin[r] + ptr[r + 1] - ptr[r], hi)
        for i in range(max(begin[r], lo), end):
            out[i - lo] += short[at + i]


def everything(size: int) -> Runs:
    """The vector itself."""
    return Runs(np.zeros(min(1, size), np.int64), np.array([0, size] if size else [0], np.int64))


def present(dataset: Dataset, n_observations: int) -> np.ndarray:
    """Observations that occur in the data, ascending, int64."""
    found = np.zeros(n_observations + 1, bool)  # the last entry serves id -1
    for column in every_observation(dataset).T:
        found[column] = True
    return np.flatnonzero(found[:-1])


def renumber(dataset: Dataset, observations: np.ndarray, n_observations: int) -> Dataset:
    """The data with observation observations[i] as i; all that occur must be among them."""
    rank = np.full(n_observations + 1, -1, np.int32)
    rank[observations] = np.arange(len(observations), dtype=np.int32)
    return renumbered(dataset, rank)


def restrict(layout: Layout, observations: np.ndarray) -> tuple[Layout, Runs]:
    """The layout of these observations (ascending) alone, and where its theta lies in that of `layout`."""
    families, begins, lengths, base = [], [], [], 0
    for name in FAMILIES:
        ptr, code, _ = layout.family(name)
        begin, length = ptr[observations], ptr[observations + 1] - ptr[observations]
        mine = ends(length)
        where = np.repeat(begin - ptr[0] - mine[:-1], length) + np.arange(mine[-1]) if len(code) else []
        families += [base + mine, code[where] if len(code) else code]
        base += int(mine[-1])
        begins.append(begin[length > 0])
        lengths.append(length[length > 0])
    return Layout(layout.n_labels, base, *families), _joined(np.concatenate(begins), np.concatenate(lengths))


def _joined(begin: np.ndarray, length: np.ndarray) -> Runs:
    """Runs of these begins and lengths; those that follow each other without a gap are one."""
    first = np.ones(len(begin), bool)
    first[1:] = begin[1:] != (begin + length)[:-1]
    return Runs(begin[first], np.append(ends(length)[:-1][first], length.sum()).astype(np.int64))
