"""Large data block by block: a lattice holds the scores of some consecutive sequences, and results are put together.

Where a model cannot have the scores of all its positions in memory at once, it hands out lattices of runs of whole
sequences, in order; what a sequence is told does not depend on the block that it is in.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from espalier.engine.lattice import decode
from espalier.engine.lattice.decode import NBest
from espalier.engine.lattice.lattice import Lattice
from espalier.engine.lattice.limits import ImpossibleSequence, Limits, restrict


class LatticeBlock(NamedTuple):
    """The lattice of some consecutive sequences of a data set."""

    lattice: Lattice
    sequences: slice  # of the N sequences
    positions: slice  # of the T positions


def in_turn(
    function: Callable, blocks: Iterable[LatticeBlock], limits: Limits | None
) -> Iterator[tuple[LatticeBlock, Any]]:
    """(block, function(its lattice under the limits)) of each block, whose lattice is used up by that."""
    for block in blocks:
        part = None if limits is None else limits._replace(row=limits.row[block.positions])
        try:
            result = function(restrict(block.lattice, part, in_place=True))
        except ImpossibleSequence as error:  # which counts the sequences of the block
            raise ImpossibleSequence(block.sequences.start + error.sequence) from None
        yield block, result


def log_partition(blocks: Iterable[LatticeBlock], sequences: int, limits: Limits | None = None) -> np.ndarray:
    """log of the sum of exp(score) over the labellings of each sequence, float64 [N]."""
    log_z = np.empty(sequences)
    for block, part in in_turn(decode.log_partition, blocks, limits):
        log_z[block.sequences] = part
    return log_z


def score(blocks: Iterable[LatticeBlock], sequences: int, labels: np.ndarray) -> np.ndarray:
    """Score of one labelling [T] of each sequence, float64 [N]."""
    scores = np.empty(sequences)
    for block in blocks:
        scores[block.sequences] = decode.score(block.lattice, labels[block.positions])
    return scores


def best(blocks: Iterable[LatticeBlock], positions: int, limits: Limits | None = None) -> np.ndarray:
    """The best labels of each sequence, int32 [T]; among equals the smallest label wins, from the end."""
    labels = np.empty(positions, np.int32)
    for block, part in in_turn(decode.best, blocks, limits):
        labels[block.positions] = part
    return labels


def marginals(blocks: Iterable[LatticeBlock], shape: tuple[int, int], limits: Limits | None = None) -> np.ndarray:
    """The probability of each label at each position, float64 [T, Y]; `shape` is (T, Y)."""
    gamma = np.empty(shape)
    for block, part in in_turn(decode.marginals, blocks, limits):
        gamma[block.positions] = part
    return gamma


def pair_marginals(
    blocks: Iterable[LatticeBlock], shape: tuple[int, int], limits: Limits | None = None,
    limit: int = decode.PAIR_BYTES,
) -> np.ndarray:  # fmt: skip
    """p(y_{t-1} = y', y_t = y), float64 [T, Y, Y], zero at first positions; for data that fit `limit` bytes."""
    positions, n_labels = shape
    decode.refuse_many_pairs(positions, n_labels, limit)
    pairs = np.empty((positions, n_labels, n_labels))
    for block, part in in_turn(functools.partial(decode.pair_marginals, limit=limit), blocks, limits):
        pairs[block.positions] = part
    return pairs


def nbest(
    blocks: Iterable[LatticeBlock], sequences: int, positions: int, n: int, limits: Limits | None = None
) -> NBest:
    """The n best labellings of each sequence without repeats, best first; see `NBest`."""
    found = NBest(np.empty(sequences, np.int64), *np.empty((2, sequences, n)), np.empty((n, positions), np.int32))
    for block, part in in_turn(functools.partial(decode.nbest, n=n), blocks, limits):
        found.count[block.sequences] = part.count
        found.scores[block.sequences] = part.scores
        found.log_probabilities[block.sequences] = part.log_probabilities
        found.labels[:, block.positions] = part.labels
    return found


def score_arrays(blocks: Iterable[LatticeBlock], shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """All scores written out: of positions [T, Y] and of pairs [T, Y, Y] (zero at first positions); small data only."""
    here, between = np.empty(shape), np.zeros((*shape, shape[1]))
    for block in blocks:
        lattice = block.lattice
        here[block.positions] = lattice.here
        inner = np.flatnonzero(lattice.which >= 0)
        between[block.positions][inner] = lattice.between[lattice.which[inner]]
    return here, between
