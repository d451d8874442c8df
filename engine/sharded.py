"""The loss over many blocks of sequences, which may lie in several processes: the same bytes however they lie.

The data are cut into blocks of whole sequences by their lengths alone. Each block is a chain
objective of its own, with a layout of the observations that occur in it. The losses and
gradients of the blocks are the leaves of a binary tree: node (l, i) is the sum over the
blocks [i 2^l, (i + 1) 2^l), that of its left child plus that of its right one. Whoever
holds some blocks sums the largest whole nodes within them; the rest of the tree is summed
here. So what is added to what depends on the blocks only, not on who holds them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from engine.chain_objective import ChainObjective, active_weights
from engine.curvature import curvatures
from engine.data import UNKNOWN, Dataset
from engine.errors import EspalierError
from engine.index import check_observations, check_theta
from engine.layout import Layout
from engine.posteriors import balanced
from engine.restriction import Runs, everything, present, renumber, restrict
from engine.room import Room
from engine.vectors import add_scaled

BLOCK_TOKENS = 500_000  # about as many positions are a block; up to half as many again are still one

Node = tuple[int, int]  # level, index


def cut(offsets: np.ndarray, block_tokens: int = BLOCK_TOKENS) -> list[tuple[int, int]]:
    """Runs of sequences that are blocks, of about equal numbers of positions."""
    if block_tokens < 1:
        raise EspalierError(f"block_tokens is {block_tokens}: expected at least 1")
    return balanced(np.diff(offsets), max(1, round(int(offsets[-1]) / block_tokens)))


def block_of(dataset: Dataset, lo: int, hi: int) -> Dataset:
    """Sequences [lo, hi) of the data; nothing is copied but the offsets."""
    first, last = dataset.offsets[lo], dataset.offsets[hi]
    return dataset._replace(
        observations=dataset.observations[first:last], labels=dataset.labels[first:last],
        offsets=dataset.offsets[lo : hi + 1] - first, weights=dataset.weights[lo:hi],
        token_weights=dataset.token_weights[first:last] if len(dataset.token_weights) else dataset.token_weights,
    )  # fmt: skip


# ---- the tree


def root_of(n_blocks: int) -> Node:
    return (n_blocks - 1).bit_length(), 0


def cover(lo: int, hi: int, n_blocks: int) -> list[Node]:
    """The fewest nodes whose blocks are [lo, hi), from left to right."""
    nodes = []
    while lo < hi:
        level = 0
        while (1 << level) < n_blocks and lo % (2 << level) == 0 and min(lo + (2 << level), n_blocks) <= hi:
            level += 1
        nodes.append((level, lo >> level))
        lo = min(lo + (1 << level), n_blocks)
    return nodes


def tree_sum(
    node: Node, n_blocks: int, add: Callable[[Node, np.ndarray | None], float | None], into: np.ndarray | None,
    spare: Callable[[int], np.ndarray | None],
) -> float:  # fmt: skip
    """The value of a node; its vector is added to `into`, which is zero, unless that is None.

    `add` does the same for a node that is known, and returns None for one that is the sum of its
    children; spare(level) is a vector of zeros, a different one for each level.
    """
    value = add(node, into)
    if value is not None:
        return value
    level, index = node[0] - 1, 2 * node[1]
    value = tree_sum((level, index), n_blocks, add, into, spare)
    if (index + 1) << level >= n_blocks:
        return value
    more = add((level, index + 1), into)
    if more is None:
        other = spare(level)
        more = tree_sum((level, index + 1), n_blocks, add, other, spare)
        if into is not None:
            add_scaled(1.0, other, into)
    return value + more


class Spares:
    """Vectors of zeros by level, kept between calls."""

    def __init__(self, size: int):
        self.size, self.by_level = size, {}

    def __call__(self, level: int) -> np.ndarray:
        if level in self.by_level:
            self.by_level[level][:] = 0.0
        else:
            self.by_level[level] = np.zeros(self.size)
        return self.by_level[level]


def nothing(level: int) -> None:
    """For sums of values alone."""


# ---- some blocks in one process


class Sum(NamedTuple):
    """The sum over the blocks of a node: a value, and a vector that lies in theta where `runs` says."""

    node: Node
    value: float
    vector: np.ndarray | None


class Part:
    """Blocks [first, first + K) of `n_blocks`, held in this process.

    Its own theta and gradient have the weights of the observations that occur in it; `runs`
    tells where they lie in those of `layout`. A single block that is all the data keeps the
    layout as it is.
    """

    def __init__(
        self, blocks: Iterable[Dataset], first: int, n_blocks: int, layout: Layout, sparse: str = "auto"
    ):  # fmt: skip
        self.first, self.n_blocks, self.room = first, n_blocks, Room()
        if n_blocks == 1:
            (block,) = blocks
            self.size, self.runs = layout.size, everything(layout.size)
            self.blocks = [(ChainObjective(block, layout, sparse, self.room), None)]
        else:
            self._hold(blocks, layout, sparse)
        self.nodes = cover(first, first + len(self.blocks), n_blocks)
        self._spares = Spares(self.size)

    def _hold(self, blocks: Iterable[Dataset], layout: Layout, sparse: str) -> None:
        held = []
        for block in blocks:
            check_observations(block, layout)
            seen = present(block, layout.n_observations)
            held.append((renumber(block, seen, layout.n_observations), seen))
        together = np.unique(np.concatenate([np.empty(0, np.int64), *(seen for _, seen in held)]))
        mine, self.runs = restrict(layout, together)
        self.size = mine.size
        self.blocks = []
        while held:
            block, seen = held.pop(0)
            own, runs = restrict(mine, np.searchsorted(together, seen))
            silent = len(block.labels) > 0 and bool(np.all(block.labels == UNKNOWN))  # its loss is 0 at any theta
            self.blocks.append((None if silent else ChainObjective(block, own, sparse, self.room), runs))

    def sums(self, what: str, theta: np.ndarray | None = None) -> Iterator[Sum]:
        """Its nodes, from left to right; `theta` is its own. What: value, gradient (with the value) or observed."""

        def add(node: Node, into: np.ndarray | None) -> float | None:
            return None if node[0] else self._leaf(node[1] - self.first, what, theta, into)

        for node in self.nodes:
            into = None if what == "value" else np.zeros(self.size)
            spare = nothing if into is None else self._spares
            yield Sum(node, tree_sum(node, self.n_blocks, add, into, spare), into)

    def _leaf(self, at: int, what: str, theta: np.ndarray | None, into: np.ndarray | None) -> float:
        objective, runs = self.blocks[at]
        if objective is None:
            return 0.0
        if what == "observed":
            value, vector = 0.0, objective.observed
        else:
            own = theta if runs is None else runs.take(theta)
            if what == "value":
                return objective.value(own)
            value, vector = objective.value_and_gradient(own)
        if runs is None:
            into[:] = vector
        else:
            runs.add(vector, into)
        return value


# ---- all blocks


class Pool(Protocol):
    """Who holds the parts. `runs[k]` tells where the weights of part k lie in theta."""

    n_blocks: int
    runs: Sequence[Runs]

    def sums(self, what: str, theta: np.ndarray | None = None) -> Iterable[tuple[int, Sum]]:
        """(part, sum) of every node of every part, in any order; what as in `Part.sums`."""


class InProcess:
    """Parts in this process, one after the other; each uses all threads."""

    def __init__(self, parts: Sequence[Part]):
        self.parts, self.n_blocks, self.runs = parts, parts[0].n_blocks, [part.runs for part in parts]

    def sums(self, what: str, theta: np.ndarray | None = None) -> Iterator[tuple[int, Sum]]:
        for k, part in enumerate(self.parts):
            own = None if theta is None else part.runs.take(theta)
            for found in part.sums(what, own):
                yield k, found


class ShardedObjective:
    """The same to a gradient solver as a chain objective over all the data."""

    def __init__(self, pool: Pool, layout: Layout):
        self.pool, self.layout, self.size = pool, layout, layout.size
        self._spares = Spares(self.size)
        self.observed = self._reduce("observed")[1]

    def value(self, theta: np.ndarray) -> float:
        check_theta(theta, self.layout)
        return self._reduce("value", theta)[0]

    def value_and_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        check_theta(theta, self.layout)
        return self._reduce("gradient", theta)

    def scaling(self, gradient: np.ndarray, rho2: float) -> np.ndarray:
        """As `ChainObjective.scaling`."""
        return curvatures(self.layout, gradient, self.observed, rho2)

    def active(self, theta: np.ndarray) -> dict[str, int]:
        """Number of weights of each family that are not zero."""
        return active_weights(self.layout, theta)

    def _reduce(self, what: str, theta: np.ndarray | None = None) -> tuple[float, np.ndarray | None]:
        """What the parts have summed, summed by the rest of the tree."""
        found = {one.node: (part, one) for part, one in self.pool.sums(what, theta)}

        def add(node: Node, into: np.ndarray | None) -> float | None:
            if node not in found:
                return None
            part, (_, value, vector) = found[node]
            if into is not None:
                self.pool.runs[part].add(vector, into)
            return value

        if self.pool.n_blocks == 1:
            _, (_, value, vector) = found[0, 0]
            # As it is, to the sign of a zero; a copy, because a pool may write over what it gave.
            return value, None if vector is None else np.array(vector)
        total = None if what == "value" else np.zeros(self.size)
        spare = nothing if total is None else self._spares
        return tree_sum(root_of(self.pool.n_blocks), self.pool.n_blocks, add, total, spare), total


def in_process(
    dataset: Dataset, layout: Layout, sparse: str = "auto", block_tokens: int = BLOCK_TOKENS
) -> "ChainObjective | ShardedObjective":
    """The objective of data in memory: a chain objective while they are one block."""
    bounds = cut(dataset.offsets, block_tokens)
    if len(bounds) < 2:
        return ChainObjective(dataset, layout, sparse)
    blocks = (block_of(dataset, lo, hi) for lo, hi in bounds)
    return ShardedObjective(InProcess([Part(blocks, 0, len(bounds), layout, sparse)]), layout)
