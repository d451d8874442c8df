"""What L-BFGS and OWL-QN share: the limited-memory inverse Hessian (THESIS 3.3.2) and the descent with it."""

from collections.abc import Callable

import numpy as np

from espalier.engine.optimise.monitor import Monitor, Result
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solver_state import SolverState
from espalier.engine.optimise.solvers.record import first_state, record
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.vectors import chunks, dot

# Pairs with less curvature than this share of |y|^2 would make the estimate indefinite.
CURVATURE = 1e-10
TILE = 256  # coordinates of all pairs that are worked on together


class InverseHessian:
    """The last m pairs s = theta' - theta, y = gradient' - gradient.

    The two loops of L-BFGS need only products of s, y and the gradient. One pass over the pairs makes
    them all, the loops run on m numbers, and a second pass makes the direction.
    """

    def __init__(self, memory: int = 8):
        self.memory = memory
        self.rows: list[int] = []  # of s and y, the oldest pair first
        self.count = 0  # pairs taken so far
        self.s = self.y = np.empty((0, 0))

    def update(self, s: np.ndarray, y: np.ndarray) -> None:
        if not dot(s, y) > CURVATURE * dot(y, y):
            return
        self._put(s, y)

    def _put(self, s: np.ndarray, y: np.ndarray) -> None:
        """There is one row more than pairs, so that those that `kept` gave stay whole until after the next pair."""
        if not len(self.s):
            self.s, self.y = np.empty((2, self.memory + 1, len(s)))
        row = self.count % (self.memory + 1)
        self.s[row], self.y[row] = s, y
        self.count += 1
        self.rows = [*self.rows, row][-self.memory :]

    def kept(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The pairs, the oldest first, not copied."""
        return [(self.s[row], self.y[row]) for row in self.rows]

    def recall(self, pairs: list[tuple[np.ndarray, np.ndarray]]) -> None:
        """Take over pairs that were kept before."""
        for s, y in pairs:
            self._put(s, y)

    def forget(self) -> None:
        self.rows = []

    def apply(self, gradient: np.ndarray, scale: np.ndarray | None = None) -> np.ndarray:
        """H gradient, from H = gamma / scale (1 without); when no pair is known yet, to unit length."""
        scale = np.ones(len(gradient)) if scale is None else scale
        if not self.rows:
            direction = gradient / scale
            return direction / max(np.sqrt(dot(direction, direction)), np.finfo(float).tiny)
        rows, m = np.array(self.rows), len(self.rows)

        def products(piece):
            out = np.zeros((2 * m + 2, m))
            _products(self.s, self.y, rows, gradient, scale, *piece, out)
            return out

        total = sum(threads.run(products, chunks(len(gradient))))
        gamma, of_y, of_s = _two_loops(total[0], total[1], total[2 : 2 + m], total[2 + m :])
        direction = np.empty(len(gradient))
        threads.run(
            lambda piece: _combine(self.s, self.y, rows, gamma, of_y, of_s, gradient, scale, *piece, direction),
            chunks(len(gradient)),
        )
        return direction


@kernel
def _two_loops(s_g, y_g, s_y, y_y):
    """(gamma, a, c): H g = gamma (g - sum a_i y_i) / scale + sum c_i s_i (THESIS 3.3.2).

    From s_g[i] = s_i'g, y_g[i] = y_i'(g / scale), s_y[i, j] = s_i'y_j and y_y[i, j] = y_i'(y_j / scale).
    """
    m = len(s_g)
    a, c = np.zeros(m), np.zeros(m)
    for i in range(m - 1, -1, -1):
        total = s_g[i]
        for j in range(i + 1, m):
            total -= s_y[i, j] * a[j]
        a[i] = total / s_y[i, i]
    gamma = s_y[m - 1, m - 1] / y_y[m - 1, m - 1]
    for i in range(m):
        total = y_g[i]
        for j in range(m):
            total -= y_y[i, j] * a[j]
        total *= gamma
        for j in range(i):
            total += s_y[j, i] * c[j]
        c[i] = a[i] - total / s_y[i, i]
    return gamma, a, c


@kernel
def _products(s, y, rows, gradient, scale, lo, hi, out):
    """The products of `_two_loops` over lo..hi - 1, tile by tile, so that a tile of all pairs stays in the cache."""
    m = len(rows)
    scaled = np.empty((m, TILE))
    for begin in range(lo, hi, TILE):
        count = np.uint64(min(TILE, hi - begin))
        at = np.uint64(begin)
        for i in range(m):
            for k in range(count):
                scaled[i, k] = y[rows[i], at + k] / scale[at + k]
        for i in range(m):
            total, other = 0.0, 0.0
            for k in range(count):
                total += s[rows[i], at + k] * gradient[at + k]
                other += scaled[i, k] * gradient[at + k]
            out[0, i] += total
            out[1, i] += other
            for j in range(m):
                total, other = 0.0, 0.0
                for k in range(count):
                    total += s[rows[i], at + k] * y[rows[j], at + k]
                    other += scaled[i, k] * y[rows[j], at + k]
                out[2 + i, j] += total
                out[2 + m + i, j] += other


@kernel
def _combine(s, y, rows, gamma, of_y, of_s, gradient, scale, lo, hi, out):
    """out = gamma (gradient - sum of_y_i y_i) / scale + sum of_s_i s_i over lo..hi - 1."""
    for begin in range(lo, hi, TILE):
        count = np.uint64(min(TILE, hi - begin))
        at = np.uint64(begin)
        for k in range(count):
            out[at + k] = gradient[at + k]
        for i in range(len(rows)):
            a = of_y[i]
            for k in range(count):
                out[at + k] -= a * y[rows[i], at + k]
        for k in range(count):
            out[at + k] *= gamma / scale[at + k]
        for i in range(len(rows)):
            c = of_s[i]
            for k in range(count):
                out[at + k] += c * s[rows[i], at + k]


def descend(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor, search: Callable) -> Result:
    """Steps along -H times the (pseudo-)gradient, each found by `search`, until the monitor says stop.

    search(objective, penalty, theta, loss, gradient, direction) returns ((theta, loss,
    gradient) or None, evaluations). When it finds nothing, the Hessian is forgotten once.
    """
    inverse = InverseHessian()
    state = first_state(objective, penalty, theta, monitor)
    theta, loss, gradient, reason = state.theta, state.loss, state.gradient, state.reason
    iteration, evaluations = state.iteration, state.evaluations
    inverse.recall(state.pairs)
    del state  # its vectors are needed no longer than theirs
    while reason is None:
        steepest = penalty.pseudo_gradient(theta, gradient)
        scale = objective.scaling(gradient, penalty.curvature) if "scaling" in objective.offers else None
        direction = -inverse.apply(steepest, scale)
        if not penalty.is_smooth:
            direction[direction * steepest >= 0.0] = 0.0  # stay in the direction of descent, by coordinate
        found, used = search(objective, penalty, theta, loss, steepest, direction)
        evaluations += used
        if found is None and inverse.rows:
            inverse.forget()
            continue
        if found is None:
            reason = "line_search"
            break
        new_theta, loss, new_gradient = found
        smooth = penalty.smooth_gradient(theta, gradient)
        inverse.update(new_theta - theta, penalty.smooth_gradient(new_theta, new_gradient) - smooth)
        theta, gradient = new_theta, new_gradient
        iteration += 1
        reason = monitor.check(record(objective, penalty, theta, loss, gradient, iteration, evaluations), theta)
        monitor.keep(SolverState(theta, loss, gradient, iteration, evaluations, reason, inverse.kept()))
    return Result(theta, loss + penalty.value(theta), reason, iteration, evaluations, monitor.history)
