"""Joint steps of the weights that a sweep of blockwise descent left non-zero.

Blocks that meet in one sequence are coupled: mu of one letter and the lambda rows of the next say
nearly the same. Descent block by block zigzags along such a valley. A limited-memory quasi-Newton
step in the orthant of theta, scaled by the second derivatives that the sweep has met, goes
along it; sweeps and steps both feed its memory.
"""

import numpy as np

from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers.quasi_newton import CURVATURE
from espalier.engine.runtime.vectors import add_scaled, dot

MEMORY = 10
MOST = 6  # joint steps after one sweep
SHARE = 0.1  # of the sweep's gain that a joint step must bring for another one to be tried
DECREASE = 1e-4  # Armijo's constant
TRIALS, SHRINK = 5, 0.3
SOFTEST = 1.0  # added to second derivatives: that of a rare weight says little about where it ends


class JointSteps:
    def __init__(self, objective, penalty: ElasticNet):
        self.objective, self.penalty = objective, penalty
        self.pairs: list[tuple[np.ndarray, np.ndarray, float]] = []
        self.last: tuple[np.ndarray, np.ndarray] | None = None

    def run(self, theta: np.ndarray, loss: float, gradient: np.ndarray, curvature: np.ndarray, gain: float):
        """Move theta in place; (loss, gradient, evaluations used). `gain` is that of the sweep before."""
        self._learn(theta, gradient)
        used = 0
        for _ in range(MOST):
            found, trials = self._step(theta, loss, gradient, curvature)
            used += trials
            if found is None:
                self.pairs = []
                break
            candidate, new_loss, gradient = found
            drop = loss + self.penalty.value(theta) - new_loss - self.penalty.value(candidate)
            theta[:], loss = candidate, new_loss
            self._learn(theta, gradient)
            if drop < SHARE * gain:
                break
        return loss, gradient, used

    def kept(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The pairs, the oldest first; nothing of them is changed later."""
        return [(s, y) for s, y, _ in self.pairs]

    def recall(self, pairs: list[tuple[np.ndarray, np.ndarray]], theta: np.ndarray, gradient: np.ndarray) -> None:
        """Take over pairs that were kept before, and the point where the run had come to."""
        self.pairs = [(s, y, 1.0 / dot(s, y)) for s, y in pairs]
        self.last = theta.copy(), self.penalty.smooth_gradient(theta, gradient)

    def _learn(self, theta: np.ndarray, gradient: np.ndarray) -> None:
        """Remember the difference to the point before, where it shows curvature."""
        smooth = self.penalty.smooth_gradient(theta, gradient)
        if self.last is not None:
            s, y = theta - self.last[0], smooth - self.last[1]
            product = dot(s, y)
            if product > CURVATURE * dot(y, y):
                self.pairs = [*self.pairs, (s, y, 1.0 / product)][-MEMORY:]
        self.last = theta.copy(), smooth

    def _step(self, theta, loss, gradient, curvature):
        """((theta, loss, gradient) or None, evaluations): backtracking in the orthant of theta."""
        penalty, sign = self.penalty, np.sign(theta)
        slope = penalty.gradient_in_orthant(theta, gradient)
        direction = -self._apply(slope, 1.0 / (curvature + penalty.curvature + SOFTEST))
        direction[theta == 0.0] = 0.0
        if not dot(direction, slope) < 0.0:
            return None, 0
        start, step = loss + penalty.value(theta), 1.0
        for trial in range(1, TRIALS + 1):
            candidate = theta + step * direction
            if not penalty.is_smooth:
                candidate[candidate * sign <= 0.0] = 0.0
            new_loss, new_gradient = self.objective.value_and_gradient(candidate)
            value = new_loss + penalty.value(candidate)
            if value < start and value <= start + DECREASE * dot(slope, candidate - theta):
                return (candidate, new_loss, new_gradient), trial
            step *= SHRINK
        return None, TRIALS

    def _apply(self, gradient: np.ndarray, inverse: np.ndarray) -> np.ndarray:
        """H gradient by two loops from the diagonal `inverse`, scaled to fit the last pair (THESIS 3.3.2)."""
        direction, steps = gradient.copy(), []
        for s, y, rho in reversed(self.pairs):
            steps.append(rho * dot(s, direction))
            add_scaled(-steps[-1], y, direction)
        direction *= inverse
        if not self.pairs:
            return 0.25 * direction
        s, y, rho = self.pairs[-1]
        direction *= 1.0 / (rho * dot(y, inverse * y))
        for (s, y, rho), a in zip(self.pairs, reversed(steps), strict=True):
            add_scaled(a - rho * dot(y, direction), s, direction)
        return direction
