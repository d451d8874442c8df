"""Count vectors in CSR form: documents as bags of features, sequences as bags of observations."""

from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError


class Bags(NamedTuple):
    """N vectors over F features: vector n has counts[i] of feature indices[i] for i in indptr[n]..indptr[n + 1]."""

    indptr: np.ndarray  # int64 [N + 1]
    indices: np.ndarray  # int32, ascending within a vector
    counts: np.ndarray  # float64, more than 0
    n_features: int

    @property
    def size(self) -> int:
        """N, the number of vectors."""
        return len(self.indptr) - 1


def check_csr(indptr, indices, counts, n_features: int) -> None:
    """Ids or pointers that are out of range would read past the end of an array in compiled code."""
    if not len(indptr):
        raise EspalierError("indptr is empty: expected a 0, then the end of each vector")
    if indptr[0] != 0 or np.any(np.diff(indptr) < 0) or not indptr[-1] == len(indices) == len(counts):
        raise EspalierError(
            f"indptr ends at {int(indptr[-1])} for {len(indices)} indices and {len(counts)} counts: "
            "expected rising pointers from 0 to their common length"
        )
    outside = indices[(indices < 0) | (indices >= n_features)]
    if len(outside):
        raise EspalierError(f"feature {int(outside[0])}: expected ids from 0 to {n_features - 1}")


def check_counts(indptr, counts) -> None:
    bad = np.flatnonzero(~(np.isfinite(counts) & (counts >= 0)))
    if len(bad):
        row = int(np.searchsorted(indptr, bad[0], side="right")) - 1
        raise EspalierError(f"count {counts[bad[0]]} in vector {row}: expected a finite number of at least 0")


def make_bags(indptr, indices, counts, n_features: int) -> Bags:
    """Check, and bring to one form: ids of a vector ascend, a feature named twice is added up, zeros are left out."""
    indptr, counts = np.require(indptr, np.int64, ["C", "W"]), np.require(counts, np.float64, ["C", "W"])
    indices = np.require(indices, np.int64, ["C", "W"])
    check_csr(indptr, indices, counts, n_features)
    check_counts(indptr, counts)
    key = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)) * max(1, n_features) + indices
    if np.any(np.diff(key) <= 0) or not np.all(counts > 0):
        key, place = np.unique(key, return_inverse=True)
        counts = np.bincount(place, counts, minlength=len(key)).astype(np.float64)
        key, counts = key[counts > 0], counts[counts > 0]
        lengths = np.bincount(key // max(1, n_features), minlength=len(indptr) - 1)
        indptr, indices = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), key % max(1, n_features)
    return Bags(indptr, indices.astype(np.int32), counts, int(n_features))


def bags_of_matrix(matrix) -> Bags:
    """The rows of a dense matrix of counts [N, F]."""
    matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2:
        raise EspalierError(f"the matrix of counts has {matrix.ndim} dimensions: expected vectors x features")
    row, column = np.nonzero(matrix)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(matrix)))])
    return make_bags(indptr, column, matrix[row, column], matrix.shape[1])


def select_bags(bags: Bags, rows) -> Bags:
    """Some of the vectors, in the order given; one may be asked for several times."""
    rows = np.asarray(rows, dtype=np.int64)
    lengths = np.diff(bags.indptr)[rows]
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    take = np.repeat(bags.indptr[rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
    return Bags(indptr, bags.indices[take], bags.counts[take], bags.n_features)


def join_bags(first: Bags, second: Bags) -> Bags:
    """The vectors of both, one after the other."""
    if first.n_features != second.n_features:
        raise EspalierError(
            f"count vectors over {first.n_features} and over {second.n_features} features: expected one vocabulary"
        )
    return Bags(
        np.concatenate([first.indptr, first.indptr[-1] + second.indptr[1:]]),
        np.concatenate([first.indices, second.indices]), np.concatenate([first.counts, second.counts]),
        first.n_features,
    )  # fmt: skip


def with_constant(bags: Bags) -> Bags:
    """One more feature, the last, with the count 1 in every vector: its weights are the intercepts."""
    ends = bags.indptr[1:]
    return Bags(
        bags.indptr + np.arange(bags.size + 1),
        np.insert(bags.indices, ends, bags.n_features).astype(np.int32), np.insert(bags.counts, ends, 1.0),
        bags.n_features + 1,
    )  # fmt: skip


def input_keys(*parts: Bags) -> list[np.ndarray]:
    """Equal vectors get equal ids, int64 [N] for each part; ids count up in the order of first appearance."""
    known: dict[bytes, int] = {}
    found = []
    for bags in parts:
        keys = np.empty(bags.size, np.int64)
        for n in range(bags.size):
            run = slice(bags.indptr[n], bags.indptr[n + 1])
            keys[n] = known.setdefault(bags.indices[run].tobytes() + bags.counts[run].tobytes(), len(known))
        found.append(keys)
    return found


def check_labels(labels, size: int, n_classes: int) -> np.ndarray:
    """Classes of N vectors as int64, each from 0 to n_classes - 1."""
    labels = np.asarray(labels)
    if n_classes < 2:
        raise EspalierError(f"{n_classes} classes: expected at least 2")
    if len(labels) != size:
        raise EspalierError(f"{len(labels)} labels for {size} count vectors: expected one each")
    if size and labels.dtype.kind not in "iu":
        raise EspalierError(f"labels are of type {labels.dtype}: expected whole numbers, the ids of classes")
    outside = np.flatnonzero((labels < 0) | (labels >= n_classes))
    if len(outside):
        raise EspalierError(
            f"label {labels[outside[0]]} of vector {outside[0]}: expected classes from 0 to {n_classes - 1}"
        )
    return labels.astype(np.int64)


def check_instance_weights(weights, size: int) -> np.ndarray:
    """Weights of N vectors as float64; None is 1 for each."""
    if weights is None:
        return np.ones(size)
    weights = np.require(weights, np.float64, ["C", "W"])
    if weights.shape != (size,):
        raise EspalierError(f"{weights.size} weights for {size} count vectors: expected one each")
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise EspalierError(f"weight {weights[bad[0]]} of vector {bad[0]}: expected a finite number of at least 0")
    return weights


def refuse_missing_class(labels: np.ndarray, weights: np.ndarray, n_classes: int) -> None:
    """Nothing can be learnt of a class that has no example."""
    missing = np.flatnonzero(np.bincount(labels, weights, minlength=n_classes) == 0)
    if len(missing):
        raise EspalierError(
            f"class {missing[0]} has no example of a weight above 0: expected at least one of each of the "
            f"{n_classes} classes; add one, or leave the class out"
        )


def refuse_empty_pool(pool: Bags) -> None:
    if not pool.size:
        raise EspalierError("the unlabelled pool is empty: expected at least one count vector, or no pool at all")
