"""Maximum-entropy Markov models: p(y | x) is the product of p(y_t | y_{t-1}, x_t), each normalised by itself (IIS 2.3).

The weights are those of a chain, so it has the same layouts, solvers and model file as a CRF. Training takes the label
before as given, so that each position is a logistic regression of its own: `local_problem`. Decoding lays the
normalised rows out as lattices (`engine.lattice.local`).

Unigram weights are shared by all labels before. With weights per label (IIS 2.12) p_{y'}(y | x) is a model of its own
for each y': all observations have bigram weights instead (`per_label_kinds`), and the loss falls apart into one for
each label before.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from espalier.engine.chain.chain_lattice import lattice_blocks
from espalier.engine.chain.local_rows import LocalRows, distinct_rows, expectations, log_sums, summed
from espalier.engine.chain.scores import Factors, padded
from espalier.engine.data.dataset import Dataset, make_dataset, refuse_unlabelled
from espalier.engine.families.labeller import WeightLabeller
from espalier.engine.lattice.blocks import LatticeBlock
from espalier.engine.lattice.local import normalise_locally
from espalier.engine.losses.chain_objective import ChainObjective, Extent, active_weights
from espalier.engine.runtime.grouping import carrying_columns
from espalier.engine.weights.layout import BIGRAM, NO_CODE, Layout

SHARED, PER_LABEL = "shared", "per-label"  # which weights labels before have


def per_label_kinds(kinds: np.ndarray) -> np.ndarray:
    """Bigram weights for all observations, uint8 [V]."""
    return np.full(len(kinds), BIGRAM, np.uint8)


class MemmLabeller(WeightLabeller):
    """A trained model."""

    family = "memm"
    linear = False

    def lattices(self, data: Dataset) -> Iterator[LatticeBlock]:
        for block in lattice_blocks(data, self.layout, self.theta):
            yield block._replace(lattice=normalise_locally(block.lattice))


class MemmObjective(ChainObjective):
    """-sum_n w_n sum_t log p(y_t | y_{t-1}, x_t) over the weights of a chain's layout, and its gradient.

    A position is a sequence of its own, without pairs. To solvers that look at sequences it is a chain like others;
    values and gradients go by the distinct rows of positions.
    """

    def __init__(self, dataset: Dataset, layout: Layout):
        super().__init__(*local_problem(dataset, layout))
        self.of_chain = layout

    @cached_property
    def rows(self) -> LocalRows:
        return distinct_rows(self.dataset, self.layout)

    def log_partitions(self, theta: np.ndarray, factors: Factors) -> np.ndarray:
        return log_sums(theta, self.layout, self.rows)[self.rows.of_position]

    def expected(self, theta: np.ndarray, factors: Factors, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
        rows, weights = self.rows, self.rows.data.weights
        if data is not self.dataset:
            weights = summed(data.weights, rows.of_position, len(weights))
        room = self.scratch.take(len(weights), padded(self.layout.n_labels))
        expected, log_z = expectations(theta, self.layout, rows, weights, room)
        return expected, log_z[rows.of_position]

    def _bytes_of_position(self, columns: int) -> int:
        """Each position beside its distinct row, as if all were: ids twice, where runs begin, labels, weights."""
        return super()._bytes_of_position(columns) + 16 * columns + 20

    def _scratch_bytes(self, extent: Extent, grown: float) -> float:
        """A row of probabilities for each position, the index of gathering, the summed scores and expectations."""
        width, combinations = padded(self.layout.n_labels), len(self.rows.composites.ptr) - 1
        return extent.tokens * (width * 8 + 8 * extent.columns + 16) + 2 * combinations * grown * width * 8

    def active(self, theta: np.ndarray) -> dict[str, int]:
        return active_weights(self.of_chain, theta)


def local_problem(dataset: Dataset, layout: Layout) -> tuple[Dataset, Layout]:
    """(positions as sequences of their own, layout): a chain without pairs whose loss is that of the MEMM.

    What an observation x says of the pair (y', y), where y' is the label before, a new observation (x, y') says of y;
    at first positions (x, start) does. A run of bigram weights is sorted by y', so those of one y' lie together, and
    theta stays what it is: the new layout only cuts it into other runs.
    """
    refuse_unlabelled(dataset, "memm learns from positions whose label and label before are known")
    keys, pair_ptr = _runs_of_pairs(layout)
    n_observations, first = layout.n_observations, np.zeros(len(dataset.labels), bool)
    first[dataset.offsets[:-1]] = True
    columns = carrying_columns(dataset.observations, layout.bigram_ptr)
    columns = np.union1d(columns, carrying_columns(dataset.observations, layout.start_ptr)).astype(np.int64)
    x = dataset.observations[:, columns]
    before = np.append(0, dataset.labels[:-1]).astype(np.int64)
    wanted = x.astype(np.int64) * layout.n_labels + before[:, None]
    at = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
    inner = np.where(keys[at] == wanted, 2 * n_observations + at, -1) if len(keys) else np.full(x.shape, -1)
    paired = np.where(x < 0, -1, np.where(first[:, None], n_observations + x.astype(np.int64), inner)).astype(np.int32)
    observations = np.concatenate([dataset.observations, paired], axis=1)
    weights = np.repeat(dataset.weights, np.diff(dataset.offsets))
    weights = weights * dataset.token_weights if len(dataset.token_weights) else weights
    local = make_dataset(
        observations, dataset.labels, np.arange(len(dataset.labels) + 1), weights, valued=dataset.valued,
        values=dataset.values,
    )  # fmt: skip
    return local, _local_layout(layout, pair_ptr)


def _runs_of_pairs(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """(x * Y + y' of each pair that has bigram weights, ascending; slots at which their runs begin, and the end)."""
    ptr, _, _ = layout.family("bigram")
    observation, code = layout._decode("bigram", np.arange(ptr[0], ptr[-1]))
    key = observation.astype(np.int64) * layout.n_labels + code // layout.n_labels
    begins = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.empty(0, np.int64)
    return key[begins], np.append(ptr[0] + begins, ptr[-1])


def _local_layout(layout: Layout, pair_ptr: np.ndarray) -> Layout:
    """All weights as unigram ones: of x, then of (x, start), then of (x, y')."""
    ptr = np.concatenate([layout.unigram_ptr[:-1], layout.start_ptr[:-1], pair_ptr]).astype(np.int64)
    full = not (len(layout.unigram_code) or len(layout.start_code) or len(layout.bigram_code))
    parts = [layout._decode(name, np.arange(*layout.family(name)[0][[0, -1]]))[1] for name in ("unigram", "start")]
    pairs = layout._decode("bigram", np.arange(*layout.bigram_ptr[[0, -1]]))[1] % layout.n_labels
    code = np.empty(0, np.int32) if full else np.concatenate([*parts, pairs]).astype(np.int32)
    nothing, none = np.full(len(ptr), layout.size, np.int64), np.empty(0, np.int32)
    rest = nothing, none, nothing.copy(), none.copy(), nothing.copy(), NO_CODE.copy()
    return Layout(layout.n_labels, layout.size, ptr, code, *rest)
