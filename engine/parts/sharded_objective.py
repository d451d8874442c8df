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

from espalier.engine.chain.pair_sets import check_observations, check_theta
from espalier.engine.chain.scratch import Scratch
from espalier.engine.data.dataset import UNKNOWN, Dataset, at_positions
from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective, Sample, active_weights
from espalier.engine.losses.curvature import curvatures
from espalier.engine.losses.triple_objective import loss_of_chain
from espalier.engine.runtime import threads
from espalier.engine.runtime.threads import balanced
from espalier.engine.runtime.vectors import add_scaled, chunks
from espalier.engine.weights.layout import Layout
from espalier.engine.weights.sublayout import Runs, everything, present, renumber, restrict

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
        **at_positions(dataset, slice(first, last)), offsets=dataset.offsets[lo : hi + 1] - first,
        weights=dataset.weights[lo:hi],
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


class HeldBlock(NamedTuple):
    """One block of a part: its objective, over the observations that occur in it."""

    objective: ChainObjective | None  # None when no label is known: its loss is 0 at any theta
    observations: np.ndarray  # int64, which they are in the layout of all data
    near: Runs  # where its weights lie in those of the part
    far: Runs  # and in those of all data


class Part:
    """Blocks [first, first + K) of `n_blocks`, held in this process.

    Its own theta and gradient have the weights of the observations that occur in it; `runs`
    tells where they lie in those of `layout`. A single block that is all the data keeps the
    layout as it is.
    """

    def __init__(
        self, blocks: Iterable[Dataset], first: int, n_blocks: int, layout: Layout, sparse: str = "auto"
    ):  # fmt: skip
        self.first, self.n_blocks, self.scratch = first, n_blocks, Scratch()
        if n_blocks == 1:
            (block,) = blocks
            self.size, self.runs = layout.size, everything(layout.size)
            whole = loss_of_chain(block, layout, sparse, self.scratch)
            self.blocks = [HeldBlock(whole, np.arange(layout.n_observations), self.runs, self.runs)]
        else:
            self._hold(blocks, layout, sparse)
        self.nodes = cover(first, first + len(self.blocks), n_blocks)
        self._spares, self._theta = (
            Spares(self.size),
            np.empty(max((block.far.size for block in self.blocks), default=0)),
        )

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
            near = restrict(mine, np.searchsorted(together, seen))[1]
            own, far = restrict(layout, seen)
            silent = len(block.labels) > 0 and bool(np.all(block.labels == UNKNOWN))
            objective = None if silent else loss_of_chain(block, own, sparse, self.scratch)
            self.blocks.append(HeldBlock(objective, seen, near, far))

    def sums(
        self, what: str, theta: np.ndarray | None = None, rows: Sequence[np.ndarray] | None = None
    ) -> Iterator[Sum]:
        """Its nodes, from left to right; one call at a time. What: value, gradient (and value), observed or squares.

        `theta` is its own or, which is told by the length, that of all data. The vectors are written
        into `rows` where these are given.
        """

        def add(node: Node, into: np.ndarray | None) -> float | None:
            return None if node[0] else self._leaf(node[1] - self.first, what, theta, into)

        for i, node in enumerate(self.nodes):
            into = None if what == "value" else np.zeros(self.size) if rows is None else rows[i]
            if into is not None and rows is not None:
                into[:] = 0.0
            spare = nothing if into is None else self._spares
            yield Sum(node, tree_sum(node, self.n_blocks, add, into, spare), into)

    def _leaf(self, at: int, what: str, theta: np.ndarray | None, into: np.ndarray | None) -> float:
        objective, _, near, far = self.blocks[at]
        if objective is None:
            return 0.0
        if what in ("observed", "squares"):
            value, vector = 0.0, getattr(objective, what)
        else:
            own = theta
            if self.n_blocks > 1:
                own = (near if len(theta) == self.size else far).take(theta, self._theta[: far.size])
            if what == "value":
                return objective.value(own)
            value, vector = objective.value_and_gradient(own)
        if self.n_blocks == 1:
            into[:] = vector  # as it is, to the sign of a zero
        else:
            near.add(vector, into)
        return value


def part_bytes(weights: int, nodes: int, blocks: int, block_weights: int) -> int:
    """What the vectors of a part take: of its `weights` one for each node and for each level of the tree between.

    Each block has its own counts, theta and gradient over `block_weights` together; of several, one theta serves all.
    """
    levels = max(1, blocks).bit_length()
    return 8 * (weights * (nodes + levels) + block_weights * (2 if blocks > 1 else 3))


def moved_bytes(weights: int, nodes: int) -> tuple[int, int]:
    """What an iteration moves to a part in another process, its theta, and from it, the vectors of its nodes."""
    return 8 * weights, 8 * weights * nodes


# ---- all blocks


class Pool(Protocol):
    """Who holds the parts. `runs[k]` tells where the weights of part k lie in theta."""

    n_blocks: int
    runs: Sequence[Runs]

    def sums(self, what: str, theta: np.ndarray | None = None) -> Iterable[tuple[int, Sum]]:
        """(part, sum) of every node of every part, in any order; what as in `Part.sums`."""

    def on_blocks(self, parts: Sequence[int], what: str, arguments: Callable[[int], tuple], theta: np.ndarray) -> list:
        """[what(*arguments(k)) of the `PartBlocks` of part k, for k in parts].

        The parts follow theta by what they are told; one that is new, or was lost, is brought up to `theta` first.
        """

    def forget_blocks(self) -> None:
        """Theta has changed without their being told."""


class InProcess:
    """Parts in this process, one after the other; each uses all threads."""

    def __init__(self, parts: Sequence[Part]):
        self.parts, self.n_blocks, self.runs = parts, parts[0].n_blocks, [part.runs for part in parts]
        self._opened: list = []
        self._at_theta: list[bool] = []

    def sums(self, what: str, theta: np.ndarray | None = None) -> Iterator[tuple[int, Sum]]:
        for k, part in enumerate(self.parts):
            for found in part.sums(what, theta):
                yield k, found

    def on_blocks(self, parts: Sequence[int], what: str, arguments: Callable[[int], tuple], theta: np.ndarray) -> list:
        """As `Pool.on_blocks`; nothing is ever lost here."""
        from espalier.engine.parts.sharded_blocks import PartBlocks  # few solvers need it

        if not self._opened:
            self._opened = [PartBlocks(part) for part in self.parts]
            self.forget_blocks()
        answers = []
        for k in parts:
            if not self._at_theta[k]:
                self._opened[k].assign(self.runs[k].take(theta))
                self._at_theta[k] = True
            answers.append(getattr(self._opened[k], what)(*arguments(k)))
        return answers

    def forget_blocks(self) -> None:
        self._at_theta = [False] * len(self.parts)


class ShardedObjective:
    """The same to a gradient solver as a chain objective over all the data.

    `first_block` reads the first block of the data, for solvers that begin with a sample of them.
    """

    loss_name = "log"
    offers = frozenset({"gradient", "value", "counts", "scaling", "active", "sample", "blocks"})

    def __init__(
        self, pool: Pool, layout: Layout, first_block: Callable[[], Dataset] | None = None, n_sequences: int = 0,
        sparse: str = "auto",
    ):  # fmt: skip
        self.pool, self.layout, self.size = pool, layout, layout.size
        if layout.second_order:
            self.offers = self.offers - {"blocks"}
        self._first_block, self._n_sequences, self._sparse = first_block, n_sequences, sparse
        self.observed = self._reduce("observed")[1]

    def value(self, theta: np.ndarray) -> float:
        check_theta(theta, self.layout)
        return self._reduce("value", theta)[0]

    def value_and_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        check_theta(theta, self.layout)
        return self._reduce("gradient", theta)

    def scaling(self, gradient: np.ndarray, rho2: float) -> np.ndarray:
        """As `ChainObjective.scaling`."""
        return curvatures(self.layout, gradient, self.observed, rho2, self._reduce("squares")[1])

    def active(self, theta: np.ndarray) -> dict[str, int]:
        """Number of weights of each family that are not zero."""
        return active_weights(self.layout, theta)

    def sample(self) -> Sample | None:
        """As `ChainObjective.sample`: the first block, whoever holds it."""
        if self._first_block is None:
            return None
        block = self._first_block()
        if np.all(block.labels == UNKNOWN):
            return None
        share = len(block.weights) / self._n_sequences
        return ChainObjective(block, self.layout, self._sparse).sample(share)

    def blocks_at(self, theta: np.ndarray):
        """The blocks of blockwise descent at theta, wherever their sequences lie; see `engine.parts.sharded_blocks`."""
        from espalier.engine.parts.sharded_blocks import Sweeps

        return Sweeps(self.pool, self.layout, self.observed, theta.copy())

    def _reduce(self, what: str, theta: np.ndarray | None = None) -> tuple[float, np.ndarray | None]:
        """What the parts have summed, summed by the rest of the tree.

        Vectors are summed stretch by stretch, each in the cache, so that every number is read or written once.
        """
        n_blocks, runs = self.pool.n_blocks, self.pool.runs
        found = {one.node: (part, one) for part, one in self.pool.sums(what, theta)}

        def known(node: Node, into: None) -> float | None:
            return found[node][1].value if node in found else None

        value = tree_sum(root_of(n_blocks), n_blocks, known, None, nothing)
        if what == "value":
            return value, None
        if n_blocks == 1:
            # As it is, to the sign of a zero; a copy, because a pool may write over what it gave.
            return value, np.array(found[0, 0][1].vector)
        total = np.empty(self.size)

        def stretch(piece: tuple[int, int]) -> None:
            lo, hi = piece

            def add(node: Node, into: np.ndarray) -> float | None:
                if node not in found:
                    return None
                part, one = found[node]
                runs[part].add_within(one.vector, lo, hi, into)
                return one.value

            total[lo:hi] = 0.0
            tree_sum(root_of(n_blocks), n_blocks, add, total[lo:hi], Spares(hi - lo))

        threads.run(stretch, chunks(self.size))
        return value, total


def in_process(
    dataset: Dataset, layout: Layout, sparse: str = "auto", block_tokens: int = BLOCK_TOKENS
) -> "ChainObjective | ShardedObjective":
    """The objective of data in memory: a chain objective while they are one block."""
    bounds = cut(dataset.offsets, block_tokens)
    if len(bounds) < 2:
        return loss_of_chain(dataset, layout, sparse)
    blocks = (block_of(dataset, lo, hi) for lo, hi in bounds)
    pool = InProcess([Part(blocks, 0, len(bounds), layout, sparse)])
    return ShardedObjective(pool, layout, lambda: block_of(dataset, *bounds[0]), len(dataset.weights), sparse)
