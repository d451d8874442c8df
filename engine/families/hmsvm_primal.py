"""The primal of hidden Markov support vector machines: the best point that a training has seen.

A dual that is near its optimum still leaves the primal far away, since a small error of L is large beside the margins.
So the primal is taken where it is least: at the best multiple of L, and between that and the best point so far.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from espalier.engine.chain.chain_lattice import lattice_blocks
from espalier.engine.chain.pair_sets import PairSets
from espalier.engine.data.dataset import Dataset
from espalier.engine.families.hmsvm_listed import LISTED, listed_slacks
from espalier.engine.families.hmsvm_options import HmsvmOptions
from espalier.engine.families.hmsvm_search import worst_slacks
from espalier.engine.families.row_chain import RowChain
from espalier.engine.lattice.blocks import LatticeBlock
from espalier.engine.runtime.vectors import dot

FEASIBLE = 1e-3  # hard margins that are missed by less are kept
NEAR, WIDEST = 1.001, 1e3  # multiples so near each other are one; how far from one the next that is tried may be
SEARCHES, CUTS = 40, 7  # multiples that are tried at most, and golden sections between two points
GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0


class Separator(NamedTuple):
    """L as a kernel machine has it."""

    by_label: np.ndarray  # float64 [Y, P], H
    pairs: np.ndarray  # float64, weights of pairs
    amounts: np.ndarray  # float64 [P, Y], A

    def between(self, other: "Separator", share: float) -> "Separator":
        return Separator(*(mine + share * (theirs - mine) for mine, theirs in zip(self, other, strict=True)))

    def times(self, scale: float) -> "Separator":
        return Separator(*(scale * mine for mine in self))

    def square(self, eta: float) -> float:
        scores = np.ascontiguousarray(self.by_label.T)
        return dot(self.amounts.ravel(), scores.ravel()) + dot(self.pairs, self.pairs) / eta


class Value(NamedTuple):
    """The primal at a multiple of a point."""

    primal: float
    slope: float  # in the multiple
    missed: np.ndarray  # float64 [N], by how much each sequence misses its margin


class Primal:
    """What the primal asks for, the best point so far and its value."""

    def __init__(self, chain: RowChain, options: HmsvmOptions, limits: np.ndarray, data: Dataset, pair_sets: PairSets):
        self.chain, self.options, self.limits, self.data, self.pair_sets = chain, options, limits, data, pair_sets
        self.scale, self.point, self.value = 1.0, None, None
        self.many = np.full(len(limits), LISTED)  # labellings that are listed where each has a slack

    def lattices(self, point: Separator) -> Iterator[LatticeBlock]:
        for block in lattice_blocks(self.data, self.chain.pair_layout, point.pairs, self.pair_sets):
            block.lattice.here[:] += point.by_label[:, self.chain.of_position[block.positions]].T
            yield block

    def of(self, point: Separator, square: float, scale: float = 1.0) -> Value:
        """The primal at a multiple; endless where a hard margin is missed, or not all is known."""
        parts = [self._slacks(block, scale) for block in self.lattices(point)]
        missed, margin, largest, unknown = np.where(self.limits > 0.0, np.concatenate(parts, axis=1), 0.0)
        value, slope = 0.5 * scale**2 * square, scale * square
        if self.options.slack == "hard":
            kept = largest.max(initial=0.0) <= FEASIBLE
            return Value(value if kept else np.inf, slope if kept else -np.inf, largest)
        power = 2 if self.options.slack == "squared" else 1
        value += float(np.sum(self.limits * missed**power))
        slope -= float(np.sum(self.limits * power * missed ** (power - 1) * margin))
        return Value(np.inf if unknown.any() else value, slope, largest)

    def _slacks(self, block: LatticeBlock, scale: float) -> np.ndarray:
        """[4, N]: slacks, their margins, the largest, whether more may be missed."""
        gold, hamming = self.data.labels[block.positions], self.options.margin == "hamming"
        if self.options.slack == "labelling":
            return listed_slacks(block.lattice, gold, hamming, scale, self.many[block.sequences])
        missed, margin = worst_slacks(block.lattice, gold, hamming, scale)
        return np.stack([missed, margin, missed, np.zeros(len(missed))])

    def look(self, point: Separator, many: np.ndarray) -> Value:
        """The least primal at multiples of a point, and between the best of them and the best point so far.

        L = 0, where a training begins, labels nothing. On data that contradict themselves it may be as good as any
        other, so it gives way to the first one that is not.
        """
        self.many = many
        value = self._multiple(point)
        begun = self.point is not None and self.point.square(self.options.eta) > 0.0
        if not begun or value.primal <= self.value.primal:
            near, far, self.value = point.times(self.scale), self.point if begun else None, value
        else:
            near, far = self.point, point.times(self.scale)
        self.point = near
        if far is not None:
            self._between(near, far)
        return self.value

    def _multiple(self, point: Separator) -> Value:
        """The primal at the best multiple that bisection finds, which is self.scale then."""
        square = point.square(self.options.eta)
        best, scale = self.of(point, square), 1.0
        self.scale = scale
        lo, hi, wide, slope = None, None, 1.01, best.slope
        for _ in range(SEARCHES if square > 0.0 else 0):
            lo, hi = (scale, hi) if slope < 0 else (lo, scale)
            if wide > WIDEST or (lo is not None and hi is not None and hi / lo <= NEAR):
                break
            if lo is None or hi is None:
                scale, wide = (lo * wide if hi is None else hi / wide), wide**2
            else:
                scale = float(np.sqrt(lo * hi))
            found = self.of(point, square, scale)
            slope = found.slope
            if found.primal < best.primal:
                best, self.scale = found, scale
        return best

    def _between(self, near: Separator, far: Separator) -> None:
        """Golden sections from the best point on to another; what is better is the best one then."""
        lo, hi, best = 0.0, 1.0, 0.0
        tried = {0.0: self.value.primal}

        def primal(share: float) -> float:
            nonlocal best
            if share not in tried:
                point = near.between(far, share)
                value = self.of(point, point.square(self.options.eta))
                tried[share] = value.primal
                if value.primal < self.value.primal:
                    self.point, self.value, best = point, value, share
            return tried[share]

        for _ in range(CUTS):
            one, other = hi - GOLDEN * (hi - lo), lo + GOLDEN * (hi - lo)
            lo, hi = (lo, other) if primal(one) <= primal(other) else (one, hi)
