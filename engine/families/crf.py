"""Linear-chain conditional random fields: p(y | x) = exp(score(x, y)) / Z(x), by the fused kernels of the chain."""

import numpy as np

from espalier.engine.data.dataset import Dataset
from espalier.engine.decoding import decode
from espalier.engine.families.labeller import Labeller
from espalier.engine.lattice.decode import NBest


class CrfLabeller(Labeller):
    """A trained chain."""

    family = "crf"

    def best(self, data: Dataset, **only) -> np.ndarray:
        return decode.viterbi(data, self.layout, self.theta, **only)

    def posterior(self, data: Dataset, **only) -> np.ndarray:
        return decode.posterior(data, self.layout, self.theta, **only)

    def marginals(self, data: Dataset, **only) -> np.ndarray:
        return decode.marginals(data, self.layout, self.theta, **only)

    def nbest(self, data: Dataset, n: int, **only) -> NBest:
        return decode.nbest(data, self.layout, self.theta, n, **only)

    def log_partition(self, data: Dataset, **only) -> np.ndarray:
        return decode.log_partition(data, self.layout, self.theta, **only)

    def log_probability(self, data: Dataset, labels: np.ndarray | None = None, **only) -> np.ndarray:
        score = decode.sequence_score(data, self.layout, self.theta, labels)
        return score - self.log_partition(data, **only)

    def scores(self, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
        return decode.score_arrays(data, self.layout, self.theta)
