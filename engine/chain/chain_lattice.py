"""The lattice of a linear-chain CRF: what its weights say of a data set, written out for the decoders of `lattice`.

Training and unrestricted decoding never come here: their kernels add weights up where they need them. A lattice has
one matrix for each distinct pair set, so large data are taken block by block, each of whole sequences.
"""

from collections.abc import Iterator

import numpy as np

from espalier.engine.chain.pair_sets import PairSets, check_observations, check_theta, pair_sets
from espalier.engine.chain.scores import pair_scores, position_scores
from espalier.engine.data.dataset import Dataset
from espalier.engine.lattice.blocks import LatticeBlock
from espalier.engine.lattice.lattice import Lattice
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.threads import PIECES, balanced
from espalier.engine.weights.layout import Layout

BLOCK_BYTES = 1 << 26  # of the scores of a block; a sequence that takes more is a block by itself


def checked_sets(dataset: Dataset, layout: Layout, theta: np.ndarray) -> PairSets:
    """The pair sets of data that fit the layout, as its weights do."""
    check_observations(dataset, layout)
    check_theta(theta, layout)
    return pair_sets(dataset, layout)


def chain_lattice(dataset: Dataset, layout: Layout, theta: np.ndarray) -> Lattice:
    """The lattice of all sequences: 8 Y (T + P Y) bytes for P distinct pair sets."""
    sets = checked_sets(dataset, layout, theta)
    every = np.arange(len(sets.ptr) - 1)
    return _fill(dataset, layout, theta, sets, slice(0, len(dataset.weights)), sets.of_position, every)


def lattice_blocks(
    dataset: Dataset, layout: Layout, theta: np.ndarray, sets: PairSets | None = None, block_bytes: int = BLOCK_BYTES
) -> Iterator[LatticeBlock]:
    """Lattices of runs of sequences, in order, whose scores take `block_bytes` at most; see `chain_lattice`.

    What a sequence's lattice says does not depend on the block that it is in. `sets` are those of the whole data set,
    made here unless they are given, and then observations and weights have been checked.
    """
    sets = checked_sets(dataset, layout, theta) if sets is None else sets
    n_sets, n_sequences = len(sets.ptr) - 1, len(dataset.weights)
    last, ends = np.full(n_sets, -1, np.int64), np.empty(n_sequences, np.int64)
    count = _cut(dataset.offsets, sets.of_position, layout.n_labels, block_bytes // 8, last, ends)
    number, members, begin = np.full(n_sets, -1, np.int32), np.empty(n_sets, np.int64), 0
    for end in ends[:count].tolist():
        positions = slice(int(dataset.offsets[begin]), int(dataset.offsets[end]))
        which = np.empty(positions.stop - positions.start, np.int32)
        found = _number_sets(sets.of_position[positions], number, members, which)
        lattice = _fill(dataset, layout, theta, sets, slice(begin, end), which, members[:found])
        yield LatticeBlock(lattice, slice(begin, end), positions)
        begin = end


@kernel
def _cut(offsets, of_position, n_labels, most, last, ends):
    """The number of blocks, and the sequence at which each ends: as many as `most` scores have room for.

    last[p] is the block in which set p was seen last, -1 on entry.
    """
    block, used = 0, 0
    for n in range(len(offsets) - 1):
        size = _scores_of(offsets, of_position, n_labels, n, block, last)
        if used > 0 and used + size > most:
            ends[block] = n
            block, used = block + 1, 0
            size = _scores_of(offsets, of_position, n_labels, n, block, last)
        used += size
    if len(offsets) < 2:
        return 0
    ends[block] = len(offsets) - 1
    return block + 1


@kernel
def _scores_of(offsets, of_position, n_labels, n, block, last):
    """How many scores sequence n adds to a block: those of its positions, and of sets that are new there."""
    size = (offsets[n + 1] - offsets[n]) * n_labels
    for t in range(offsets[n] + 1, offsets[n + 1]):
        p = of_position[t]
        if last[p] != block:
            last[p] = block
            size += n_labels * n_labels
    return size


@kernel
def _number_sets(of_position, number, members, which):
    """The number of distinct sets at some positions: members[d] is the d-th, which[t] the d of position t.

    number[p] is -1 on entry and again at the end.
    """
    found = 0
    for t in range(len(of_position)):
        p = of_position[t]
        if p < 0:
            which[t] = -1
            continue
        if number[p] < 0:
            number[p] = found
            members[found] = p
            found += 1
        which[t] = number[p]
    for d in range(found):
        number[members[d]] = -1
    return found


def _fill(
    dataset: Dataset, layout: Layout, theta: np.ndarray, sets: PairSets, sequences: slice, which: np.ndarray,
    members: np.ndarray,
) -> Lattice:  # fmt: skip
    """The lattice of some sequences, with the matrices of the sets `members`."""
    offsets, n_labels = dataset.offsets[sequences.start : sequences.stop + 1], layout.n_labels
    here, between = np.empty((len(which), n_labels)), np.empty((len(members), n_labels, n_labels))
    threads.run(
        lambda piece: _fill_here(theta, layout, dataset, offsets, *piece, here), balanced(np.diff(offsets))
    )
    threads.run(
        lambda piece: _fill_between(theta, layout, sets, members, *piece, between.reshape(-1, n_labels**2)),
        threads.ranges(len(members), PIECES) if len(members) else [],
    )
    return Lattice(here, between, which, offsets - offsets[0])


@kernel
def _fill_here(theta, layout, data, offsets, lo, hi, here):
    """Scores of the positions of the sequences [lo, hi)."""
    for n in range(lo, hi):
        for t in range(offsets[n], offsets[n + 1]):
            position_scores(theta, layout, data, t, t == offsets[n], here[t - offsets[0]])


@kernel
def _fill_between(theta, layout, sets, members, lo, hi, between):
    """Scores of the pairs of the sets members[lo:hi]."""
    for d in range(lo, hi):
        pair_scores(theta, layout, sets, members[d], between[d])
