"""Binary logistic regressions on tables of counts: many samples of one finite problem at once.

A sample of n pairs (x, y) from a finite set of X inputs is its table n(x, y). Every estimator here minimises

    sum_{x,y} w(x, y) * -log g(y|x; theta) + ridge * |theta|^2

and they differ in the weights alone: n(x, y) / n is conditional maximum likelihood (THESIS 4.15), and
q(x) n(x, y) / n(x) the semi-supervised estimator that knows the marginal q (4.17-4.18), n(x, y) / n * q1(x) / q0(x)
Shimodaira's weights for covariate shift.

In small samples the classes are often separable and the minimum without penalty is at infinity. The source adds
a penalty ridge * |theta|^2 with ridge = 1/n, times the mass of the weights where that is not 1 (5.1.3).
"""

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.runtime import threads
from espalier.engine.runtime.cholesky import factorise, substitute
from espalier.engine.runtime.inner_loops import put
from espalier.engine.runtime.jit import kernel

PIECES = 8  # of the samples; a sample's result does not depend on the piece that it is in
STEPS = 100  # of Newton's method; about ten are needed
DECREMENT = 1e-18  # Newton's decrement, relative to the mass: twice the distance to the minimum
HALVINGS = 40


def supervised(tables: np.ndarray) -> np.ndarray:
    """w(x, y) = n(x, y) / n for each sample, [R, X, 2]."""
    return tables / tables.sum(axis=(1, 2), keepdims=True)


def semisupervised(tables: np.ndarray, q: np.ndarray) -> np.ndarray:
    """w(x, y) = q(x) n(x, y) / n(x), and 0 where x was not seen: the mass is then less than 1."""
    seen = tables.sum(axis=2, keepdims=True)
    return np.divide(tables * q[:, None], seen, out=np.zeros(tables.shape), where=seen > 0)


def weighted(tables: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """w(x, y) = ratio(x) n(x, y) / n, where the ratio is q1 / q0."""
    return supervised(tables) * ratio[:, None]


def ridges(weights: np.ndarray, sizes: np.ndarray | int, strength: float = 1.0) -> np.ndarray:
    """strength / n times the mass of the weights, for each sample."""
    return strength * weights.sum(axis=(1, 2)) / sizes


def fit_tables(features: np.ndarray, weights: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """theta of each sample, float64 [R, p], for weights [R, X, 2] and ridges [R], by Newton's method."""
    features = np.require(features, np.float64, ["C", "W"])  # a read-only array would be compiled for once more
    ridge = np.array(np.broadcast_to(ridge, len(weights)), np.float64)
    _check(features, weights, ridge)
    mass = np.require(weights.sum(axis=2), np.float64, ["C", "W"])
    positive = np.require(weights[:, :, 1], np.float64, ["C", "W"])
    theta, steps = np.zeros((len(weights), features.shape[1])), np.zeros(len(weights), np.int64)
    pieces = threads.ranges(len(weights), PIECES) if len(weights) else []
    threads.run(lambda run: _fit(features, mass, positive, ridge, *run, STEPS, DECREMENT, theta, steps), pieces)
    if np.any(steps < 0):
        raise EspalierError(
            f"sample {int(np.argmax(steps < 0))} has no minimum that {STEPS} steps of Newton's method reach: "
            "expected a ridge of more than 0, or classes that are not separable"
        )
    return theta


def _check(features: np.ndarray, weights: np.ndarray, ridge: np.ndarray) -> None:
    if features.ndim != 2 or weights.ndim != 3 or weights.shape[1:] != (len(features), 2):
        raise EspalierError(
            f"weights {weights.shape} for features {features.shape}: expected samples x inputs x 2 classes"
        )
    if not np.all(np.isfinite(features)):
        raise EspalierError("a feature is not finite: expected numbers")
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise EspalierError("a weight is negative or not finite: expected numbers of at least 0")
    if not np.all(np.isfinite(ridge) & (ridge >= 0)):
        raise EspalierError("a ridge is negative or not finite: expected numbers of at least 0")


@kernel
def _loss(features, mass, positive, theta, ridge):
    """sum_x mass(x) log(1 + exp s(x)) - positive(x) s(x) + ridge |theta|^2, with s(x) = theta . x"""
    total = 0.0
    for x in range(len(mass)):
        if mass[x] > 0.0:
            score = 0.0
            for i in range(len(theta)):
                score += theta[i] * features[x, i]
            total += mass[x] * (max(score, 0.0) + np.log1p(np.exp(-abs(score)))) - positive[x] * score
    for i in range(len(theta)):
        total += ridge * theta[i] * theta[i]
    return total


@kernel
def _derivatives(features, mass, positive, theta, ridge, gradient, hessian):
    """Gradient [p] and the lower half of the second derivative [p, p]; only inputs that were seen count."""
    p = len(theta)
    for i in range(p):
        gradient[i] = 2.0 * ridge * theta[i]
        for j in range(i + 1):
            hessian[i, j] = 0.0
        hessian[i, i] = 2.0 * ridge
    for x in range(len(mass)):
        if mass[x] > 0.0:
            score = 0.0
            for i in range(p):
                score += theta[i] * features[x, i]
            small = np.exp(-abs(score))
            g = (1.0 if score >= 0.0 else small) / (1.0 + small)
            slope = mass[x] * g - positive[x]
            curve = mass[x] * small / ((1.0 + small) * (1.0 + small))
            for i in range(p):
                if features[x, i] != 0.0:
                    gradient[i] += slope * features[x, i]
                    for j in range(i + 1):
                        hessian[i, j] += curve * features[x, i] * features[x, j]


@kernel
def _fit(features, mass, positive, ridge, lo, hi, limit, tolerance, theta, steps):
    """Newton's method with halved steps for the samples lo .. hi; O(X p^2 + p^3) a step.

    steps[r] is the number taken, or -1 when the minimum was not reached.
    """
    p = features.shape[1]
    gradient, step, trial, hessian = np.empty(p), np.empty(p), np.empty(p), np.empty((p, p))
    for r in range(lo, hi):
        at, seen, ones, penalty = theta[r], mass[r], positive[r], ridge[r]
        enough = tolerance * seen.sum()
        value = np.log(2.0) * seen.sum()  # at zero, where every fit starts
        steps[r] = -1
        for done in range(limit):
            _derivatives(features, seen, ones, at, penalty, gradient, hessian)
            put(gradient, step)
            if not factorise(hessian, 0.0):
                break
            substitute(hessian, step)
            decrement = 0.0
            for i in range(p):
                decrement += gradient[i] * step[i]
            if decrement <= enough:
                # Without a penalty the loss of separable classes falls for ever, and ends here as nothing.
                steps[r] = done if penalty > 0.0 or value > 1e-9 * seen.sum() else -1
                break
            size, lower = 1.0, value
            for _ in range(HALVINGS):
                for i in range(p):
                    trial[i] = at[i] - size * step[i]
                lower = _loss(features, seen, ones, trial, penalty)
                # The last steps gain less than the rounding of the value, which must not stop them.
                if lower <= value - 1e-4 * size * decrement + 1e-15 * abs(value):
                    break
                size *= 0.5
            put(trial, at)
            value = lower
