"""The elastic net rho1 |theta|_1 + rho2/2 |theta|_2^2 (SBCD 11)."""

from dataclasses import dataclass

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.runtime.vectors import absolute_sum, dot


def check_strength(name: str, value: float) -> None:
    if not (np.isfinite(value) and value >= 0):
        raise EspalierError(f"{name} is {value}: expected a finite number of at least 0")


@dataclass(frozen=True)
class ElasticNet:
    rho1: float = 0.0
    rho2: float = 0.0

    def __post_init__(self):
        check_strength("rho1", self.rho1)
        check_strength("rho2", self.rho2)

    def value(self, theta: np.ndarray) -> float:
        total = 0.5 * self.rho2 * dot(theta, theta) if self.rho2 else 0.0
        return total + self.rho1 * absolute_sum(theta) if self.rho1 else total

    def smooth_gradient(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Gradient of loss + rho2/2 |theta|^2."""
        return gradient + self.rho2 * theta

    def pseudo_gradient(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """The subgradient of least size; it is zero exactly at the optimum (THESIS 6.3.1)."""
        smooth = self.smooth_gradient(theta, gradient)
        if not self.rho1:
            return smooth
        at_zero = np.sign(smooth) * np.maximum(np.abs(smooth) - self.rho1, 0.0)
        return np.where(theta == 0.0, at_zero, smooth + self.rho1 * np.sign(theta))

    def optimality(self, theta: np.ndarray, gradient: np.ndarray) -> float:
        """Largest violation of the first-order conditions."""
        return float(np.abs(self.pseudo_gradient(theta, gradient)).max(initial=0.0))

    def gap(self, theta: np.ndarray, gradient: np.ndarray, loss: float) -> float | None:
        """At most so much can loss + penalty be above its minimum, if the loss is convex; None without a penalty.

        A convex loss lies above its tangent, so the minimum is at least that of tangent + penalty: Fenchel's dual.
        That of the L1 part alone is bounded where |theta'|_1 <= objective / rho1, as it is at any better point.
        """
        above = np.maximum(np.abs(gradient) - self.rho1, 0.0)
        value = self.value(theta)
        bounds = [dot(above, above) / (2 * self.rho2)] if self.rho2 else []
        bounds += [float(above.max(initial=0.0)) * (loss + value) / self.rho1] if self.rho1 else []
        return value + dot(theta, gradient) + min(bounds) if bounds else None


def soft_threshold(z: np.ndarray, rho: float) -> np.ndarray:
    """s(z, rho) of SBCD 14."""
    return np.sign(z) * np.maximum(np.abs(z) - rho, 0.0)
