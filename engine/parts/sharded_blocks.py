"""Blockwise descent over data that lie in parts: `engine.blockwise.blocks`, summed over pieces of the data.

The data are cut into pieces of whole sequences (`engine.parts.sharded_objective.cut`), and each piece has
blocks of its own. An observation that occurs in several pieces is visited from here: its weights
go to those who hold them, and its losses and derivatives, summed in the order of the pieces,
come back. An observation that occurs in one piece only concerns no sequence elsewhere, so its
piece visits it by itself, and all pieces do so at the same time. What is done in which order
depends on the data only, not on who holds the pieces.

What a piece keeps (messages, scores, factors) follows from theta, to the last bit. So one that is
lost is made again from theta in the middle of a sweep, and nothing else changes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from espalier.engine.blockwise.blocks import Blocks, slots_of
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import SOLVERS, check_at_the_door
from espalier.engine.weights.layout import Layout

NO_HESSIAN, NO_PENALTY = np.zeros((0, 0)), ElasticNet()


class PartBlocks:
    """The blocks of the pieces of one part (`engine.parts.sharded_objective.Part`), in the process that holds it."""

    def __init__(self, part):
        self.part = part
        self.pieces = [piece for piece in part.blocks if piece.objective is not None]
        for piece in self.pieces:
            check_at_the_door("sbcd", SOLVERS["sbcd"], piece.objective, NO_PENALTY)
        self.blocks = [Blocks(piece.objective, np.zeros(piece.objective.size)) for piece in self.pieces]
        self.hot: dict[int, list] = {}  # by piece, while a block is visited

    def occurrences(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each piece its observations and how often each occurs in sequences with a weight."""
        return [(piece.observations, np.diff(blocks.index.ptr)) for piece, blocks in self._both()]

    def assign(self, theta: np.ndarray) -> None:
        """Go to another theta, given as the part's own."""
        for piece, blocks in self._both():
            blocks.assign(piece.near.take(theta))
        self.hot = {}

    def evaluate(self, changes: list, x: int, fresh: bool, code: np.ndarray, derive: bool) -> list[tuple]:
        """(loss, first, second) of block x of each piece that has it, after some `changes`; see `Blocks.evaluate`."""
        self._change(changes)
        found = []
        for i, blocks, own in self._holders(x):
            if fresh or i not in self.hot:
                self.hot[i] = blocks.visit(own)
            found.append(tuple(blocks.evaluate(own, self.hot[i], code, derive)))
        return found

    def hessian(self, changes: list, x: int, at: np.ndarray, code: np.ndarray) -> list[np.ndarray]:
        """After an evaluation with derivatives; see `Blocks.hessian`."""
        self._change(changes)
        missing = [i for i, *_ in self._holders(x) if i not in self.hot]
        if missing:  # it was lost meanwhile
            self.evaluate([], x, True, code, True)
        return [blocks.hessian(self.hot[i], at, code) for i, blocks, _ in self._holders(x)]

    def sweep(
        self, changes: list, live: np.ndarray, shared: np.ndarray, factor: np.ndarray, penalty: ElasticNet, full: int
    ):  # fmt: skip
        """Sweep over the blocks that occur in one piece only.

        `live` is that of the part, packed into bits; `shared` are the observations that are not ours; `factor`
        is that of all observations of the pieces, one piece after the other. (moved, factor, where the part's theta
        has changed and to what, where curvature was met and which).
        """
        from espalier.engine.optimise.solvers.sbcd import sweep_here

        self._change(changes)
        live = np.unpackbits(live, count=self.part.size).astype(bool)
        anything, factors, moved, met, begin = False, [], [], [], 0
        for piece, blocks in self._both():
            mine = piece.near.take(live)
            for x in np.flatnonzero(np.isin(piece.observations, shared)):
                mine[blocks.slots(x)] = False
            before, own = blocks.theta.copy(), factor[begin : begin + blocks.count].copy()
            curvature = np.full(len(before), np.nan)
            anything |= bool(sweep_here(blocks, mine, penalty, own, curvature, full))
            factors.append(own)
            begin += blocks.count
            where = np.flatnonzero(blocks.theta.view(np.int64) != before.view(np.int64))  # to the sign of a zero
            seen = np.flatnonzero(~np.isnan(curvature))
            moved.append((piece.near.places(where), blocks.theta[where]))
            met.append((piece.near.places(seen), curvature[seen]))
        self.hot = {}
        return anything, np.concatenate([np.empty(0), *factors]), _joined(moved), _joined(met)

    def _both(self):
        return zip(self.pieces, self.blocks, strict=True)

    def _change(self, changes: list) -> None:
        """Take over the weights (x, values) of some blocks."""
        for x, values in changes:
            for _, blocks, own in self._holders(x, all_of_them=True):
                blocks.theta[blocks.slots(own)] = values
                blocks.refresh(own)

    def _holders(self, x: int, all_of_them: bool = False):
        """(piece, its blocks, its number of x) where x occurs in a sequence with a weight, or anywhere."""
        for i, (piece, blocks) in enumerate(self._both()):
            own = int(np.searchsorted(piece.observations, x))
            if own == len(piece.observations) or piece.observations[own] != x:
                continue
            if all_of_them or blocks.index.ptr[own + 1] > blocks.index.ptr[own]:
                yield i, blocks, own


def _joined(pairs: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    nothing = np.empty(0, np.int64), np.empty(0)
    return tuple(np.concatenate(column) for column in zip(nothing, *pairs, strict=True))


class Sweeps:
    """What the solver `sbcd` asks of blocks, answered by the parts of a pool; theta is changed in place."""

    in_parts = True  # a block may be `shared` by several pieces; `sweep_the_rest` visits those that are not

    def __init__(self, pool, layout: Layout, observed: np.ndarray, theta: np.ndarray):
        self.pool, self.layout, self.observed, self.theta = pool, layout, observed, theta
        self.count = layout.n_observations
        self.parts = range(len(pool.runs))
        pool.forget_blocks()
        tables = pool.on_blocks(self.parts, "occurrences", lambda k: (), theta)
        self.occurrences, pieces = np.zeros(self.count, np.int64), np.zeros(self.count, np.int32)
        for table in tables:
            for observations, times in table:
                self.occurrences[observations] += times
                pieces[observations] += 1
        # What occurs in several pieces, but in no sequence with a weight, has only its penalty: it is forgotten here.
        self.shared = (pieces > 1) & (self.occurrences > 0)
        self._not_theirs = np.flatnonzero(pieces > 1)
        self._observations = [np.concatenate([np.empty(0, np.int64), *(ids for ids, _ in table)]) for table in tables]
        self._holders = self._find_holders()
        self._changed: list[dict[int, None]] = [{} for _ in self.parts]
        self._fresh: set[int] = set()

    def _find_holders(self) -> dict[int, list[int]]:
        holders: dict[int, list[int]] = {int(x): [] for x in self._not_theirs}
        for k, ids in enumerate(self._observations):
            for x in np.intersect1d(ids, self._not_theirs):
                holders[int(x)].append(k)
        return holders

    def assign(self, theta: np.ndarray) -> None:
        """Go to another theta."""
        if not np.array_equal(theta, self.theta):
            self.theta[:] = theta
            self.pool.forget_blocks()
            self._changed = [{} for _ in self.parts]

    def slots(self, x: int) -> np.ndarray:
        return slots_of(self.layout, x)

    def visit(self, x: int) -> int:
        """Begin a visit of x; what enters its occurrences stays with the parts."""
        self._fresh = set(self._holders[int(x)])
        return int(x)

    def refresh(self, x: int) -> None:
        """Those who hold x are told of its weights when they are asked something next."""
        for k in self._holders[int(x)]:
            self._changed[k][int(x)] = None

    def evaluate(self, x: int, hot: int, code: np.ndarray, derive: bool = True) -> list:
        """As `Blocks.evaluate`, summed over the pieces in their order."""

        def arguments(k: int, changes: list) -> tuple:
            fresh = k in self._fresh
            return changes, hot, fresh, code, derive

        found = [one for part in self._ask(self._holders[hot], "evaluate", arguments) for one in part]
        self._fresh = set()
        total = list(found[0])
        for one in found[1:]:
            total = [a + b for a, b in zip(total, one, strict=True)]
        return total

    def hessian(self, hot: int, at: np.ndarray, code: np.ndarray) -> np.ndarray:
        answers = self._ask(self._holders[hot], "hessian", lambda k, changes: (changes, hot, at, code))
        matrices = [matrix for part in answers for matrix in part]
        if not all(len(matrix) == len(at) for matrix in matrices):
            return NO_HESSIAN
        total = matrices[0]
        for matrix in matrices[1:]:
            total = total + matrix
        return total

    def sweep_the_rest(self, live: np.ndarray, penalty: ElasticNet, factor: np.ndarray, curvature, full: int) -> bool:
        """Let the parts sweep over the blocks that occur in one piece only; True when one moved."""

        def arguments(k: int, changes: list) -> tuple:
            own = np.packbits(self.pool.runs[k].take(live))
            factors = factor[self._observations[k]]
            return changes, own, self._not_theirs, factors, penalty, full

        anything = False
        for k, (moved, factors, changed, met) in enumerate(self._ask(self.parts, "sweep", arguments)):
            anything |= moved
            ids, runs = self._observations[k], self.pool.runs[k]
            theirs = ~np.isin(ids, self._not_theirs)
            factor[ids[theirs]] = factors[theirs]
            self.theta[runs.places(changed[0])] = changed[1]
            curvature[runs.places(met[0])] = met[1]
        return anything

    def _ask(self, parts, what: str, arguments: Callable[[int, list], tuple]) -> list[Any]:
        """The answers of some parts, each told first of the weights that have changed since it was asked last."""

        def with_changes(k: int) -> tuple:
            return arguments(k, [(x, self.theta[self.slots(x)]) for x in self._changed[k]])

        answers = self.pool.on_blocks(parts, what, with_changes, self.theta)
        for k in parts:
            self._changed[k] = {}
        return answers
