"""The elastic net rho1 |theta|_1 + rho2/2 |theta|_2^2 (SBCD 11).

A penalty knows its value, its gradient where it has one, its proximal step and what is optimal with it; solvers ask
it. Only compiled kernels, which cannot, are given rho1 and rho2 as numbers, and `soft_threshold` here is theirs.
"""

from dataclasses import dataclass

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.runtime.jit import kernel
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

    @property
    def is_smooth(self) -> bool:
        """Whether it has a gradient everywhere."""
        return not self.rho1

    @property
    def is_none(self) -> bool:
        """Whether it is zero at any theta."""
        return not (self.rho1 or self.rho2)

    @property
    def curvature(self) -> float:
        """The second derivative of its smooth part, the same in every weight."""
        return self.rho2

    def scaled(self, share: float) -> "ElasticNet":
        """This share of it: that of a part of the data."""
        return ElasticNet(share * self.rho1, share * self.rho2)

    def value(self, theta: np.ndarray) -> float:
        total = 0.5 * self.rho2 * dot(theta, theta) if self.rho2 else 0.0
        return total + self.rho1 * absolute_sum(theta) if self.rho1 else total

    def change_of_kinks(self, before: np.ndarray, after: np.ndarray) -> float:
        """What a move adds to the part that is not smooth."""
        return self.rho1 * float(np.abs(after).sum() - np.abs(before).sum())

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

    def gradient_in_orthant(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """The gradient of loss + penalty at the weights that are not zero, where there is one; 0 elsewhere."""
        slope = self.smooth_gradient(theta, gradient) + self.rho1 * np.sign(theta)
        slope[theta == 0.0] = 0.0
        return slope

    def orthant(self, theta: np.ndarray, pseudo_gradient: np.ndarray) -> np.ndarray | None:
        """Signs of the orthant that descent from theta stays in, to be smooth; None where it is smooth anywhere."""
        if self.is_smooth:
            return None
        return np.where(theta != 0.0, np.sign(theta), -np.sign(pseudo_gradient))

    def free(self, theta: np.ndarray, smooth: np.ndarray) -> np.ndarray:
        """Whether a weight is not zero or must not stay so; `smooth` is the `smooth_gradient`."""
        return (theta != 0.0) | (np.abs(smooth) > self.rho1)

    def proximal_step(self, theta: np.ndarray, curvature) -> np.ndarray:
        """The minimiser over u of curvature / 2 (u - theta)^2 + penalty of u, each weight by itself (SBCD 13)."""
        shrunk = np.maximum(np.abs(curvature * theta) - self.rho1, 0.0)
        return np.sign(theta) * shrunk / (curvature + self.rho2)

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


@kernel
def soft_threshold(z, rho):
    """s(z, rho) of SBCD 14: z brought nearer to zero by rho, never past it."""
    if z > rho:
        return z - rho
    if z < -rho:
        return z + rho
    return 0.0
