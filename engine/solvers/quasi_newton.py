"""The limited-memory inverse Hessian shared by L-BFGS and OWL-QN (THESIS 3.3.2)."""

import numpy as np

from engine.vectors import add_scaled, dot

# Pairs with less curvature than this share of |y|^2 would make the estimate indefinite.
CURVATURE = 1e-10


class InverseHessian:
    """The last m pairs s = theta' - theta, y = gradient' - gradient, applied by two loops."""

    def __init__(self, memory: int = 8):
        self.memory = memory
        self.pairs: list[tuple[np.ndarray, np.ndarray, float]] = []

    def update(self, s: np.ndarray, y: np.ndarray) -> None:
        curvature = dot(s, y)
        if curvature > CURVATURE * dot(y, y):
            self.pairs = [*self.pairs, (s, y, 1.0 / curvature)][-self.memory :]

    def forget(self) -> None:
        self.pairs = []

    def apply(self, gradient: np.ndarray) -> np.ndarray:
        """H gradient; the gradient itself, scaled to unit length, when nothing is known yet."""
        direction = gradient.copy()
        if not self.pairs:
            return direction / max(np.sqrt(dot(gradient, gradient)), np.finfo(float).tiny)
        steps = []
        for s, y, rho in reversed(self.pairs):
            steps.append(rho * dot(s, direction))
            add_scaled(-steps[-1], y, direction)
        s, y, rho = self.pairs[-1]
        direction *= 1.0 / (rho * dot(y, y))
        for (s, y, rho), a in zip(self.pairs, reversed(steps), strict=True):
            add_scaled(a - rho * dot(y, direction), s, direction)
        return direction
