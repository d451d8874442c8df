"""A chain whose positions carry rows instead of attributes: what training kernel machines has in common.

Each distinct row of attributes is one observation with a weight for each label, H[p, y], and these weights are what a
kernel machine says of the row: H = G A, where G holds the kernel of all pairs of rows and A how much each row supports
each label. Pairs of labels keep weights of their own. So the kernels of chains do the rest.
"""

from functools import cached_property

import numpy as np

from espalier.engine.data.dataset import Dataset, make_dataset, refuse_unlabelled
from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.runtime.grouping import carrying_columns
from espalier.engine.similarity.overlaps import Overlaps
from espalier.engine.similarity.rows import distinct_rows
from espalier.engine.weights.layout import BIGRAM, UNIGRAM, Layout, _assemble, make_layout


class RowChain:
    """Training data as rows, and the layout of H [P, Y] and of the weights of pairs behind it."""

    def __init__(self, dataset: Dataset, n_labels: int, kinds: np.ndarray, pairs: str, start: bool, degree: int,
                 family: str = "gp"):  # fmt: skip
        refuse_values(dataset, family)
        refuse_unlabelled(dataset, f"{family} learns from positions whose labels are known")
        self.n_labels, self.degree, self.kinds = n_labels, degree, kinds
        self.rows, self.of_position, self.first = distinct_rows(dataset.observations, kinds & UNIGRAM > 0)
        self.pair_ids = np.flatnonzero(kinds & BIGRAM)
        number = np.full(len(kinds) + 1, -1, np.int32)
        number[self.pair_ids] = np.arange(len(self.pair_ids))
        paired = number[dataset.observations]
        paired = paired[:, np.any(paired >= 0, axis=0)]
        own = make_layout(pairs, dataset._replace(observations=paired), n_labels,
                          np.full(len(self.pair_ids), BIGRAM, np.uint8), start)  # fmt: skip
        self.pair_layout, self.paired = own, paired
        self.layout = _behind_rows(own, self.rows.count)
        columns = [self.of_position[:, None], np.where(paired >= 0, paired + self.rows.count, np.int32(-1))]
        self.dataset = dataset._replace(observations=np.ascontiguousarray(np.concatenate(columns, axis=1), np.int32))
        self.gram = Overlaps(self.rows, len(kinds), degree)

    @property
    def cells(self) -> int:
        """Numbers in H, and in A."""
        return self.rows.count * self.n_labels

    @cached_property
    def objective(self) -> ChainObjective:
        """The log loss of H and the weights of pairs, one behind the other."""
        return ChainObjective(self.dataset, self.layout)

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """(sequence, position in it) of the first place of each row."""
        sequence = np.searchsorted(self.dataset.offsets, self.first, side="right") - 1
        return sequence.astype(np.int32), (self.first - self.dataset.offsets[sequence]).astype(np.int32)


def refuse_values(dataset: Dataset, family: str) -> None:
    if dataset.valued.shape[1]:
        raise EspalierError(
            f"{family} counts the attributes that two positions have in common, and some have values (%v, numbers in "
            "dictionaries): make bins of them with %q, or choose the family crf"
        )


def _behind_rows(pairs: Layout, n_rows: int) -> Layout:
    """Every label of every row, then the start and bigram weights of a layout of pairs."""
    none, nothing = np.empty(0, np.int32), np.zeros(n_rows, np.int64)
    unigram = np.append(np.full(n_rows, pairs.n_labels), np.zeros(pairs.n_observations, np.int64))
    runs = [(unigram, none)]
    for name in ("start", "bigram"):
        ptr, code, _ = pairs.family(name)
        runs.append((np.append(nothing, np.diff(ptr)), code))
    return _assemble(pairs.n_labels, runs)


def of_pairs(dataset: Dataset, layout: Layout) -> Dataset:
    """The data with those columns alone that carry weights of pairs."""
    columns = np.union1d(carrying_columns(dataset.observations, layout.start_ptr),
                         carrying_columns(dataset.observations, layout.bigram_ptr)).astype(np.int64)  # fmt: skip
    return make_dataset(dataset.observations[:, columns], dataset.labels, dataset.offsets, dataset.weights,
                        dataset.label_sets)  # fmt: skip
