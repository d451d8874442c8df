"""A data set as flat arrays."""

from typing import NamedTuple

import numpy as np

from engine.errors import EspalierError


class Dataset(NamedTuple):
    """N sequences with T positions in all and K templates."""

    observations: np.ndarray  # int32 [T, K], id of the observation, -1 = none
    labels: np.ndarray  # int32 [T], -1 = unknown
    offsets: np.ndarray  # int64 [N + 1], sequence n is [offsets[n], offsets[n + 1])
    weights: np.ndarray  # float64 [N]


def _plain(values, dtype) -> np.ndarray:
    """One type of array for all kernels: a read-only one, as Arrow gives, would be compiled for once more."""
    return np.require(values, dtype, ["C", "W"])


def make_dataset(observations, labels, offsets, weights=None) -> Dataset:
    """Check and convert; every later kernel relies on what is checked here."""
    observations = _plain(observations, np.int32)
    offsets = _plain(offsets, np.int64)
    if observations.ndim != 2:
        raise EspalierError(f"observations has {observations.ndim} dimensions: expected positions x templates")
    tokens, sequences = len(observations), len(offsets) - 1
    labels = np.full(tokens, -1, np.int32) if labels is None else _plain(labels, np.int32)
    weights = np.ones(sequences) if weights is None else _plain(weights, np.float64)
    if sequences < 0 or offsets[0] != 0 or offsets[-1] != tokens:
        raise EspalierError(f"offsets must run from 0 to the {tokens} positions, found {offsets[[0, -1]].tolist()}")
    if np.any(np.diff(offsets) < 1):
        empty = int(np.argmax(np.diff(offsets) < 1))
        raise EspalierError(f"sequence {empty} has no position: leave empty sequences out")
    if len(labels) != tokens:
        raise EspalierError(f"{len(labels)} labels for {tokens} positions: expected one each")
    if len(weights) != sequences:
        raise EspalierError(f"{len(weights)} weights for {sequences} sequences: expected one each")
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise EspalierError(f"weight {weights[bad[0]]} of sequence {bad[0]}: expected a finite number of at least 0")
    return Dataset(observations, labels, offsets, weights)


def select(dataset: Dataset, sequences: np.ndarray) -> Dataset:
    """The data set of some of the sequences, in the order given."""
    lengths = np.diff(dataset.offsets)[sequences]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    positions = np.repeat(dataset.offsets[sequences] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return Dataset(dataset.observations[positions], dataset.labels[positions], offsets, dataset.weights[sequences])
