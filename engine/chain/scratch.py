"""Memory that objectives keep between calls: fresh memory costs as much as filling it."""

import math
import threading

import numpy as np

from espalier.engine.chain.scores import Factors
from espalier.engine.runtime import fresh_memory


class Scratch:
    """Scratch memory of one gradient at a time, of one objective or of several that take turns."""

    def __init__(self):
        self.lock = threading.Lock()
        self.factors: Factors | None = None
        self._numbers = np.empty(0)

    def take(self, *shape: int) -> np.ndarray:
        """An array of this shape with anything in it; the one taken before is gone."""
        if len(self._numbers) < math.prod(shape):
            self._numbers = np.empty(math.prod(shape))
        return fresh_memory.fill(self._numbers[: math.prod(shape)].reshape(shape))

    def keep(self, factors: Factors) -> None:
        """Let later factors be written over these, unless those kept have more scratch."""
        if self.factors is None or len(factors.dense) >= len(self.factors.dense):
            self.factors = factors
