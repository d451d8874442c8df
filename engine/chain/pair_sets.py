"""What is derived once from a data set: distinct sets of bigram observations, and the transposed index.

The pairwise factor of a position depends only on the set of bigram observations
there, so it is computed once for each distinct set and not once for each position.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.data.dataset import Dataset, every_observation
from espalier.engine.errors import EspalierError
from espalier.engine.runtime.grouping import carrying_columns, combine, ends, first_places, group
from espalier.engine.weights.layout import Layout


class PairSets(NamedTuple):
    """P distinct sets of observations that carry bigram weights."""

    of_position: np.ndarray  # int32 [T], -1 at the first position of a sequence
    ptr: np.ndarray  # int64 [P + 1]
    observation: np.ndarray  # int32, members of set p are observation[ptr[p]:ptr[p + 1]]


class Inverse(NamedTuple):
    """For each key its entries, in ascending order: entry[ptr[k]:ptr[k + 1]]."""

    ptr: np.ndarray  # int64 [keys + 1]
    entry: np.ndarray  # int32


class Amounts(NamedTuple):
    """The positions of each observation, ascending, each once: position[ptr[x]:ptr[x + 1]]."""

    ptr: np.ndarray  # int64 [V + 1]
    position: np.ndarray  # int32
    amount: np.ndarray  # float64, how often it is there, or the sum of its values


def occurrences(dataset: Dataset, n_observations: int, where: np.ndarray | None = None) -> Amounts:
    """Of all observations, at the positions `where` (bool [T]) holds; amounts of zero are left out."""
    ids = every_observation(dataset)
    keys = ids if where is None else np.where(where[:, None], ids, -1)
    flat = invert(keys.ravel(), n_observations)
    owner = np.repeat(np.arange(n_observations), np.diff(flat.ptr))
    position = flat.entry // max(1, ids.shape[1])
    new = np.ones(len(position), bool)
    new[1:] = (np.diff(position) != 0) | (np.diff(owner) != 0)
    first = np.flatnonzero(new)
    if not dataset.valued.shape[1]:
        amount = np.diff(np.append(first, len(position))).astype(np.float64)
        return Amounts(pointers(owner[new], n_observations), position[new].astype(np.int32), amount)
    each = np.concatenate([np.ones(dataset.observations.shape), dataset.values], axis=1).ravel()[flat.entry]
    amount = np.add.reduceat(each, first) if len(first) else np.empty(0)
    kept = first[amount != 0.0]
    return Amounts(pointers(owner[kept], n_observations), position[kept].astype(np.int32), amount[amount != 0.0])


def pointers(owner: np.ndarray, n_keys: int) -> np.ndarray:
    """Where the entries of each key begin when they are sorted by `owner`, and the end: int64 [keys + 1]."""
    return ends(np.bincount(owner, minlength=n_keys))


def invert(keys: np.ndarray, n_keys: int) -> Inverse:
    """Positions of each key >= 0 in a flat array."""
    return Inverse(*group(keys, n_keys))


def check_observations(dataset: Dataset, layout: Layout) -> None:
    """Ids outside the layout would read past the end of an array in compiled code."""
    both = dataset.observations, dataset.valued
    lowest, highest = min(int(ids.min(initial=-1)) for ids in both), max(int(ids.max(initial=-1)) for ids in both)
    if lowest < -1 or highest >= layout.n_observations:
        raise EspalierError(
            f"observation {lowest if lowest < -1 else highest} is not one of the {layout.n_observations} of the "
            "vocabulary (or -1 for none): make features and model from the same vocabulary"
        )
    if dataset.valued.shape[1]:
        _refuse_pairs_of_values(dataset.valued, layout)
    if int(dataset.labels.max(initial=-1)) >= layout.n_labels:
        raise EspalierError(f"label {int(dataset.labels.max())}: expected ids below {layout.n_labels}")
    lowest = -1 - len(dataset.label_sets)
    if int(dataset.labels.min(initial=-1)) < lowest:
        raise EspalierError(f"label {int(dataset.labels.min())} names no label set: expected at least {lowest}")


def _refuse_pairs_of_values(valued: np.ndarray, layout: Layout) -> None:
    several = np.diff(layout.bigram_ptr) + np.diff(layout.start_ptr) + np.diff(layout.trigram_ptr)
    paired = np.append(several > 0, False)[valued]
    if paired.any():
        raise EspalierError(
            f"observation {valued[paired][0]} has values and weights for pairs of labels: expected weights for single "
            "labels only, of a template that begins with U"
        )


def refuse_triples_in(layout: Layout, what: str) -> None:
    """For what looks at labels and pairs of them alone."""
    if layout.second_order:
        raise EspalierError(f"{what} cannot have weights for triples of labels: leave out templates that begin with T")


def check_labels(labels: np.ndarray, layout: Layout) -> None:
    """Refuse unknown labels where each position must have one."""
    unknown = np.flatnonzero((labels < 0) | (labels >= layout.n_labels))
    if len(unknown):
        raise EspalierError(f"position {unknown[0]} has no label: expected a known label at each position")


def check_theta(theta: np.ndarray, layout: Layout) -> None:
    if theta.shape != (layout.size,):
        raise EspalierError(f"theta has shape {theta.shape}: expected the {layout.size} weights of the layout")


def pair_sets(dataset: Dataset, layout: Layout) -> PairSets:
    """Distinct sets, numbered by their sorted members; the empty set is a set like any other."""
    return distinct_sets(dataset, layout.bigram_ptr, 1)


def distinct_sets(dataset: Dataset, ptr: np.ndarray, first: int) -> PairSets:
    """Distinct sets of the observations whose runs in `ptr` are not empty, at positions from `first` of a sequence on.

    They are numbered by their sorted members; of_position is -1 at the positions before.
    """
    observations = dataset.observations
    inner = np.ones(len(observations), bool)
    for skip in range(first):
        begin = dataset.offsets[:-1] + skip
        inner[begin[begin < dataset.offsets[1:]]] = False
    inner = np.flatnonzero(inner)
    carries = np.append(np.diff(ptr) > 0, False)  # the last entry serves id -1
    columns = carrying_columns(observations, ptr)
    ids, count = np.zeros(len(inner), np.int32), min(1, len(inner))
    for c in columns:
        column = observations[inner, c]
        count = combine(ids, np.where(carries[column], column, np.int32(-1)), len(inner))
    table = observations[inner[first_places(ids, count)]][:, columns]
    table = np.where(carries[table], table, np.int32(-1))
    order = np.lexsort(table.T[::-1]) if len(columns) else np.arange(count)
    rank = np.empty(count, np.int32)
    rank[order] = np.arange(count)
    of_position = np.full(len(observations), -1, np.int32)
    of_position[inner] = rank[ids]
    table = table[order]
    return PairSets(of_position, ends((table >= 0).sum(axis=1)), table[table >= 0])
