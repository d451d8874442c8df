"""What losses on the kernels of the log loss take from it."""

from abc import ABC, abstractmethod

import numpy as np

from espalier.engine.losses.chain_objective import ChainObjective, Sample


class OnLogLoss(ABC):
    """A loss of a chain beside the log loss, whose objective is `chain`."""

    chain: ChainObjective

    @property
    @abstractmethod
    def _like_log_loss(self) -> float:
        """How many times this loss the log loss is, about: only the ratios of the weights matter."""

    def scaling(self, gradient: np.ndarray, rho2: float) -> np.ndarray:
        """That of the log loss, brought to its size."""
        return self.chain.scaling(self._like_log_loss * gradient, self._like_log_loss * rho2)

    def active(self, theta: np.ndarray) -> dict[str, int]:
        """Number of weights of each family that are not zero."""
        return self.chain.active(theta)

    def sample(self) -> Sample | None:
        """The sequences by their log loss, which is to have so many times the penalty."""
        return self.chain.sample(self._like_log_loss)
