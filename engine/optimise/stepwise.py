"""Stepwise (online) expectation-maximisation: statistics that forget (COURSE 4.5, after Liang and Klein 2009).

mu becomes (1 - eta_k) mu + eta_k rho, rho the mean of the expected counts of some examples and eta_k = (k + 2)^-alpha;
the model is the likeliest one for mu. COURSE prints the model itself inside the mean: it is mu. Knows no model.
"""

import numpy as np

from espalier.engine.errors import EspalierError

LEAST_SCALE = 1e-100


class ForgettingMean:
    """mu as scale * stored, so that forgetting costs one number, and an update what it adds."""

    def __init__(self, mean: np.ndarray, alpha: float, updates: int = 0):
        if not 0.5 <= alpha <= 1.0:
            raise EspalierError(f"alpha is {alpha}: expected a number from 0.5 to 1, so that steps shrink but go on")
        self._stored, self._scale = mean.astype(np.float64), 1.0
        self.alpha, self.updates = alpha, updates

    def take(self, where: np.ndarray | slice = slice(None)) -> np.ndarray:
        """mu there."""
        return self._scale * self._stored[where]

    def step(self) -> float:
        """eta of the next update."""
        return float((self.updates + 2) ** -self.alpha)

    def update(self, where: np.ndarray | slice, mean: np.ndarray, step: float | None = None) -> None:
        """Forget a part of mu and add the mean of some examples, which is zero elsewhere; each place is named once."""
        step = self.step() if step is None else step
        if step >= 1.0:
            self._stored[:], self._scale = 0.0, 1.0
        else:
            self._scale *= 1.0 - step
        if self._scale < LEAST_SCALE:
            self._stored *= self._scale
            self._scale = 1.0
        self._stored[where] += (step / self._scale) * mean
        self.updates += 1


def in_order(lengths: np.ndarray, order: str, seed: int, turn: int) -> np.ndarray:
    """The numbers of the examples as they are visited in a pass; chance decides anew in each pass."""
    keys = {"random": np.zeros_like, "short": np.asarray, "long": np.negative}
    if order not in keys:
        raise EspalierError(f"order is {order!r}: expected one of {', '.join(keys)}")
    shuffled = np.random.default_rng([seed, turn]).permutation(len(lengths))
    return shuffled[np.argsort(keys[order](lengths[shuffled]), kind="stable")]
