"""The log-potentials of sequences as flat arrays, checked once."""

from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError


class Lattice(NamedTuple):
    """N sequences with T positions in all, Y labels and P matrices of pairs; -inf is impossible.

    The score of a labelling is the sum of here[t, y_t] over its positions and of between[which[t], y_{t-1}, y_t]
    over those that are not the first.
    """

    here: np.ndarray  # float64 [T, Y], with what belongs to a first or last position already added
    between: np.ndarray  # float64 [P, Y, Y], from y' to y
    which: np.ndarray  # int32 [T], the matrix that leads into t; -1 at the start of a sequence
    offsets: np.ndarray  # int64 [N + 1], sequence n is [offsets[n], offsets[n + 1])

    @property
    def n_labels(self) -> int:
        return self.here.shape[1]


def make_lattice(here, between, which, offsets) -> Lattice:
    """Check and convert; every kernel relies on what is checked here."""
    here, between = (np.require(scores, np.float64, ["C", "W"]) for scores in (here, between))
    which, offsets = whole_numbers("which", which), whole_numbers("offsets", offsets)
    if here.ndim != 2 or not here.shape[1]:
        raise EspalierError(f"here has the shape {here.shape}: expected positions x labels, at least one label")
    tokens, n_labels = here.shape
    if between.ndim != 3 or between.shape[1:] != (n_labels, n_labels):
        raise EspalierError(
            f"between has the shape {between.shape}: expected matrices x {n_labels} x {n_labels}, the labels of here"
        )
    _check_offsets(offsets, tokens)
    _check_which(which, offsets, tokens, len(between))
    _check_scores("here", here)
    _check_scores("between", between)
    return Lattice(here, between, which.astype(np.int32), offsets)


def whole_numbers(name: str, values) -> np.ndarray:
    """As int64; a fraction would be cut off in silence, and a large number wrapped around."""
    values = np.asarray(values)
    if values.size and values.dtype.kind not in "iu":
        raise EspalierError(f"{name} is of type {values.dtype}: expected whole numbers")
    if values.ndim != 1:
        raise EspalierError(f"{name} has {values.ndim} dimensions: expected 1")
    return np.require(values, np.int64, ["C", "W"])


def _check_offsets(offsets: np.ndarray, tokens: int) -> None:
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != tokens:
        found = offsets[[0, -1]].tolist() if len(offsets) else []
        raise EspalierError(f"offsets must run from 0 to the {tokens} positions, found {found}")
    empty = np.flatnonzero(np.diff(offsets) < 1)
    if len(empty):
        raise EspalierError(f"sequence {empty[0]} has no position: leave empty sequences out")


def _check_which(which: np.ndarray, offsets: np.ndarray, tokens: int, matrices: int) -> None:
    if len(which) != tokens:
        raise EspalierError(f"which has {len(which)} entries for {tokens} positions: expected one each")
    start = np.zeros(tokens, bool)
    start[offsets[:-1]] = True
    wrong = np.flatnonzero(np.where(start, which != -1, (which < 0) | (which >= matrices)))
    if len(wrong):
        t = wrong[0]
        expected = "-1 at the start of a sequence" if start[t] else f"one of the {matrices} matrices, counted from 0"
        raise EspalierError(f"which[{t}] is {which[t]}: expected {expected}")


def _check_scores(name: str, scores: np.ndarray) -> None:
    if not np.all(scores < np.inf):  # a NaN is not below anything
        place = np.argwhere(~(scores < np.inf))[0].tolist()
        raise EspalierError(
            f"{name}{place} is {scores[tuple(place)]}: expected a finite score, or -inf for what is impossible"
        )
