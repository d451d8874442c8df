"""A data set as flat arrays."""

from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError

UNKNOWN = -1  # the label of a position where any label is possible
FIRST_SET = -2  # label FIRST_SET - s: one of the labels of label_sets[s]
MOST_LABELS = 8192  # a matrix of all pairs of labels takes half a GiB then
NO_SETS, NO_TOKEN_WEIGHTS = np.zeros((0, 0), bool), np.zeros(0)
NO_VALUED, NO_VALUES = np.zeros((0, 0), np.int32), np.zeros((0, 0))


class Dataset(NamedTuple):
    """N sequences with T positions in all and K templates.

    An observation is there or not; V others at each position are there with a value, which multiplies their weights.
    Those have weights for single labels only.
    """

    observations: np.ndarray  # int32 [T, K], id of the observation, -1 = none
    labels: np.ndarray  # int32 [T], -1 = unknown, -2 - s = one of label_sets[s]
    offsets: np.ndarray  # int64 [N + 1], sequence n is [offsets[n], offsets[n + 1])
    weights: np.ndarray  # float64 [N]
    label_sets: np.ndarray = NO_SETS  # bool [S, Y]
    token_weights: np.ndarray = NO_TOKEN_WEIGHTS  # float64 [T], or empty: all are 1
    valued: np.ndarray = NO_VALUED  # int32 [T, V], id of an observation with a value, -1 = none; [0, 0] without any
    values: np.ndarray = NO_VALUES  # float64 [T, V], finite


def check_label_count(count: int, where: str = "the training data") -> None:
    """Refuse more labels than a matrix of all their pairs can be made for."""
    if count > MOST_LABELS:
        raise EspalierError(
            f"{where}: {count:,} different labels, expected at most {MOST_LABELS:,}, since all pairs of them are "
            "scored; is the column of the labels another one?"
        )


def _plain(values, dtype) -> np.ndarray:
    """One type of array for all kernels: a read-only one, as Arrow gives, would be compiled for once more."""
    return np.require(values, dtype, ["C", "W"])


def make_dataset(
    observations, labels, offsets, weights=None, label_sets=None, token_weights=None, valued=None, values=None
) -> Dataset:
    """Check and convert; every later kernel relies on what is checked here."""
    observations = _plain(observations, np.int32)
    offsets = _plain(offsets, np.int64)
    if observations.ndim != 2:
        raise EspalierError(f"observations has {observations.ndim} dimensions: expected positions x templates")
    tokens, sequences = len(observations), len(offsets) - 1
    labels = np.full(tokens, UNKNOWN, np.int32) if labels is None else _plain(labels, np.int32)
    weights = np.ones(sequences) if weights is None else _plain(weights, np.float64)
    if sequences < 0 or offsets[0] != 0 or offsets[-1] != tokens:
        raise EspalierError(f"offsets must run from 0 to the {tokens} positions, found {offsets[[0, -1]].tolist()}")
    if np.any(np.diff(offsets) < 1):
        empty = int(np.argmax(np.diff(offsets) < 1))
        raise EspalierError(f"sequence {empty} has no position: leave empty sequences out")
    if len(labels) != tokens:
        raise EspalierError(f"{len(labels)} labels for {tokens} positions: expected one each")
    _check_weights(weights, sequences, "weight", "sequence")
    label_sets = NO_SETS if label_sets is None else _plain(label_sets, bool)
    _check_sets(labels, label_sets)
    data = Dataset(observations, labels, offsets, weights, label_sets)
    if token_weights is not None and len(token_weights):
        token_weights = _plain(token_weights, np.float64)
        _check_weights(token_weights, tokens, "token weight", "position")
        data = data._replace(token_weights=token_weights)
    return data if valued is None or not np.size(valued) else _with_values(data, valued, values)


def _with_values(data: Dataset, valued, values) -> Dataset:
    """The data with observations that have values; a value of zero is as if the observation were not there."""
    valued, values = np.require(valued, np.int32, ["C"]), np.require(values, np.float64, ["C"])
    if valued.shape != values.shape or valued.ndim != 2 or len(valued) != len(data.labels):
        raise EspalierError(
            f"observations with values of shape {valued.shape} and values of shape {values.shape}: expected both as "
            f"{len(data.labels)} positions x the most at a position"
        )
    bad = np.argwhere((valued >= 0) & ~np.isfinite(values))
    if len(bad):
        t, k = bad[0]
        n = int(np.searchsorted(data.offsets, t, side="right")) - 1
        raise EspalierError(
            f"value {values[t, k]} of observation {valued[t, k]} at position {t - data.offsets[n]} of sequence {n}: "
            "expected a finite number"
        )
    there = (valued >= 0) & (values != 0.0)
    valued, values = np.where(there, valued, np.int32(-1)), np.where(there, values, 0.0)
    return data._replace(valued=_plain(valued, np.int32), values=_plain(values, np.float64))


def every_observation(dataset: Dataset) -> np.ndarray:
    """The ids at each position whether they have values or not, int32 [T, K + V]."""
    if not dataset.valued.shape[1]:
        return dataset.observations
    return np.concatenate([dataset.observations, dataset.valued], axis=1)


def renumbered(dataset: Dataset, ids: np.ndarray) -> Dataset:
    """The data with observation x as ids[x]; the last of `ids` is for -1."""
    return dataset._replace(observations=ids[dataset.observations], valued=ids[dataset.valued])


def at_positions(dataset: Dataset, where) -> dict[str, np.ndarray]:
    """The fields of a data set that have a row for each position, at the positions `where`."""
    names = ["observations", "labels"]
    names += ["token_weights"] if len(dataset.token_weights) else []
    names += ["valued", "values"] if dataset.valued.shape[1] else []
    return {name: getattr(dataset, name)[where] for name in names}


def _check_weights(weights: np.ndarray, count: int, name: str, what: str) -> None:
    if len(weights) != count:
        raise EspalierError(f"{len(weights)} {name}s for {count} {what}s: expected one each")
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise EspalierError(f"{name} {weights[bad[0]]} of {what} {bad[0]}: expected a finite number of at least 0")


def _check_sets(labels: np.ndarray, label_sets: np.ndarray) -> None:
    if label_sets.ndim != 2:
        raise EspalierError(f"label_sets has {label_sets.ndim} dimensions: expected sets x labels")
    if not np.all(label_sets.any(axis=1)):
        raise EspalierError(f"label set {int(np.argmin(label_sets.any(axis=1)))} is empty: expected a label in each")
    lowest = UNKNOWN - len(label_sets)
    if labels.min(initial=0) < lowest:
        t = int(np.argmax(labels < lowest))
        raise EspalierError(
            f"label {labels[t]} at position {t} names a set, there are {len(label_sets)}: expected at least {lowest}"
        )


def select(dataset: Dataset, sequences: np.ndarray) -> Dataset:
    """The data set of some of the sequences, in the order given."""
    lengths = np.diff(dataset.offsets)[sequences]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    positions = np.repeat(dataset.offsets[sequences] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return dataset._replace(
        **at_positions(dataset, positions), offsets=offsets, weights=dataset.weights[sequences]
    )


def refuse_unlabelled(dataset: Dataset, why: str) -> None:
    """For what learns from positions with one label each; `why` says so."""
    unknown = np.flatnonzero(dataset.labels <= UNKNOWN)
    if len(unknown):
        raise EspalierError(
            f"position {unknown[0]} has no label of its own: {why}; set model.family to crf, or label them"
        )


def join(first: Dataset, second: Dataset) -> Dataset:
    """The sequences of both, with the label sets of the first."""
    tokens = ()
    if len(first.token_weights) or len(second.token_weights):
        both = first, second
        tokens = np.concatenate([d.token_weights if len(d.token_weights) else np.ones(len(d.labels)) for d in both])
    most = max(first.valued.shape[1], second.valued.shape[1])
    valued, values = np.full((len(first.labels) + len(second.labels), most), -1, np.int32), None
    if most:
        values, at = np.zeros(valued.shape), 0
        for data in (first, second):
            rows, columns = slice(at, at + len(data.labels)), slice(data.valued.shape[1])
            if data.valued.shape[1]:
                valued[rows, columns], values[rows, columns] = data.valued, data.values
            at = rows.stop
    return make_dataset(
        np.concatenate([first.observations, second.observations]), np.concatenate([first.labels, second.labels]),
        np.concatenate([first.offsets, first.offsets[-1] + second.offsets[1:]]),
        np.concatenate([first.weights, second.weights]), first.label_sets, tokens, valued, values,
    )  # fmt: skip


def any_in_sequence(dataset: Dataset, where: np.ndarray) -> np.ndarray:
    """For each sequence whether `where` [T] holds at any of its positions, bool [N]."""
    return np.logical_or.reduceat(where, dataset.offsets[:-1]) if len(dataset.weights) else np.zeros(0, bool)


def label_rows(dataset: Dataset, n_labels: int, unknown: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """(row [T], table bool [R, Y]): position t may have the labels of table[row[t]].

    A row for each label, one for the unknown label (all labels, or none with unknown=False), one for each set.
    """
    sets = dataset.label_sets
    if len(sets) and sets.shape[1] != n_labels:
        raise EspalierError(f"label_sets has {sets.shape[1]} columns: expected the {n_labels} labels")
    table = np.concatenate([np.eye(n_labels, dtype=bool), np.full((1, n_labels), unknown), sets.reshape(-1, n_labels)])
    labels = dataset.labels.astype(np.int64)
    return np.where(labels >= 0, labels, n_labels + UNKNOWN - labels), table
