"""Linear-chain conditional random fields: p(y | x) = exp(score(x, y)) / Z(x), by the fused kernels of the chain."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from espalier.engine.chain.chain_lattice import lattice_blocks
from espalier.engine.data.dataset import Dataset
from espalier.engine.decoding import decode
from espalier.engine.families.labeller import Labeller
from espalier.engine.lattice.blocks import LatticeBlock
from espalier.engine.weights.stop_twins import twins_by_text, with_twins


class CrfLabeller(Labeller):
    """A trained chain."""

    family = "crf"

    def prepared(self, data: Dataset) -> Dataset:
        return with_twins(data, self._twins)

    @cached_property
    def _twins(self) -> np.ndarray | None:
        return twins_by_text(self.observations)

    def lattices(self, data: Dataset) -> Iterator[LatticeBlock]:
        return lattice_blocks(self.prepared(data), self.layout, self.theta)

    def best(self, data: Dataset, **only) -> np.ndarray:
        return decode.viterbi(self.prepared(data), self.layout, self.theta, **only)

    def marginals(self, data: Dataset, **only) -> np.ndarray:
        self.require("probability")
        return decode.marginals(self.prepared(data), self.layout, self.theta, **only)

    def log_partition(self, data: Dataset, **only) -> np.ndarray:
        return decode.log_partition(self.prepared(data), self.layout, self.theta, **only)
