"""Logistic regression on count vectors, binary and multinomial, with instance weights (THESIS 2.2.1).

g(k | x) is proportional to exp(theta_k' x). Two parametrisations:

    reference  theta_0 = 0: K - 1 vectors, one model for each theta. With two classes it is the model of
               THESIS 2.2 and 4.31-4.34; with more, that of appendix A, but for the class that is the
               reference: there the last one, here the first, so that K = 2 is no special case.
    full       a vector for each class. It is over-parametrised: the same vector added to all theta_k
               changes no probability. The L2 term picks the representative whose theta_k sum to 0.

Without a penalty both have the same best predictions; a penalty means something else in each. With two
classes, rho2 of `reference` equals 2 rho2 of `full`.
theta is flat, [F, V] with V = K - 1 or K: the weights of a feature lie together.
"""

import threading
from dataclasses import dataclass

import numpy as np

from espalier.engine.data.bags import (
    Bags,
    check_instance_weights,
    check_labels,
    refuse_empty_pool,
    refuse_missing_class,
)
from espalier.engine.errors import EspalierError
from espalier.engine.losses.label_lists import NO_GRADIENT, Chunks
from espalier.engine.optimise.monitor import Result
from espalier.engine.optimise.penalty import ElasticNet, check_strength
from espalier.engine.optimise.solvers import minimise, minimise_by_newton
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.vectors import dot, exp

PARAMETRISATIONS = ("reference", "full")
NEWTON_SIZE = 400  # weights up to which a dense Hessian costs less than the iterations it saves
NO_PENALTY = ElasticNet()
PIECES = 4  # of a Hessian and of predictions; fixed, so that sums have one order


def vectors_of(parametrisation: str, n_classes: int) -> int:
    """V, the number of weights of a feature."""
    if parametrisation not in PARAMETRISATIONS:
        raise EspalierError(f"parametrisation is {parametrisation!r}: expected one of {', '.join(PARAMETRISATIONS)}")
    return n_classes if parametrisation == "full" else n_classes - 1


def _checked(theta: np.ndarray, size: int) -> np.ndarray:
    """theta of another length would be read past its end in compiled code."""
    theta = np.require(theta, np.float64, ["C", "W"])
    if theta.shape != (size,):
        raise EspalierError(f"theta has shape {theta.shape}: expected {size} weights")
    return theta


class LogisticObjective:
    """l(theta) = -sum_n w_n log g(y_n | x_n) (THESIS 2.1 without its penalty), gradient (2.6) and Hessian."""

    offers = frozenset({"gradient", "value", "counts", "active", "hessian"})

    def __init__(self, bags: Bags, labels, n_classes: int = 2, weights=None, parametrisation: str = "reference"):
        self.bags, self.n_classes, self.parametrisation = bags, n_classes, parametrisation
        self.vectors = vectors_of(parametrisation, n_classes)
        self.labels = check_labels(labels, bags.size, n_classes)
        self.weights = check_instance_weights(weights, bags.size)
        if not bags.size:
            raise EspalierError("there is no labelled count vector: expected at least one")
        self.size = bags.n_features * self.vectors
        self.chunks = Chunks(bags.indptr, self.size)
        self._lock = threading.Lock()  # the chunks keep memory between calls; one gradient at a time uses it

    @property
    def observed(self) -> np.ndarray:
        """Weighted counts of feature and class; the largest is the scale on which a gradient is small."""
        counts = np.zeros(self.size)
        _observe(self.bags.indptr, self.bags.indices, self.bags.counts, self.labels, self.weights,
                 self.n_classes - self.vectors, self.vectors, counts)  # fmt: skip
        return counts

    def value(self, theta: np.ndarray) -> float:
        theta = _checked(theta, self.size)
        losses = np.empty(self.bags.size)
        threads.run(lambda run: self._piece(theta, losses, *run, NO_GRADIENT), self.chunks.runs)
        return dot(self.weights, losses)

    def value_and_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        theta = _checked(theta, self.size)
        losses, gradient = np.empty(self.bags.size), np.zeros(self.size)
        with self._lock:
            self.chunks.add(lambda lo, hi, target: self._piece(theta, losses, lo, hi, target), gradient)
        return dot(self.weights, losses), gradient

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        """sum_n w_n (x x') x (diag(g) - g g'), dense [size, size]."""
        theta, bags = _checked(theta, self.size), self.bags

        def piece(run):
            part = np.zeros((self.size, self.size))
            _add_hessian(theta, bags.indptr, bags.indices, bags.counts, self.weights, self.n_classes, self.vectors,
                         *run, part)  # fmt: skip
            return part

        parts = threads.run(piece, threads.ranges(bags.size, PIECES))
        total = parts[0]
        for part in parts[1:]:
            total += part
        return total

    def active(self, theta: np.ndarray) -> dict[str, int]:
        return {"active": int(np.count_nonzero(theta))}

    def _piece(self, theta, losses, lo, hi, target):
        bags = self.bags
        _losses(theta, bags.indptr, bags.indices, bags.counts, self.labels, self.weights, self.n_classes, self.vectors,
                lo, hi, target, losses)  # fmt: skip


class LogisticEntropy:
    """strength * sum_u v_u H(g(. | x_u)) over an unlabelled pool (THESIS 4.5), as a term beside a LogisticObjective.

    H = -sum_k g_k log g_k and dH/ds_k = -g_k (log g_k + H), minus the covariance of the score and the class.
    """

    name = "entropy regularisation"

    def __init__(self, pool: Bags, n_classes: int, strength: float, weights=None, parametrisation: str = "reference"):
        check_strength("strength of the entropy", strength)
        refuse_empty_pool(pool)
        self.pool, self.n_classes = pool, n_classes
        self.vectors = vectors_of(parametrisation, n_classes)
        self.weights = strength * check_instance_weights(weights, pool.size)
        self.size = pool.n_features * self.vectors
        self.chunks = Chunks(pool.indptr, self.size)

    def value(self, theta: np.ndarray) -> float:
        theta = _checked(theta, self.size)
        entropies = np.empty(self.pool.size)
        threads.run(lambda run: self._piece(theta, entropies, *run, NO_GRADIENT), self.chunks.runs)
        return dot(self.weights, entropies)

    def add_gradient(self, theta: np.ndarray, gradient: np.ndarray) -> float:
        """The term; its gradient is added to `gradient`."""
        theta = _checked(theta, self.size)
        entropies = np.empty(self.pool.size)
        self.chunks.add(lambda lo, hi, target: self._piece(theta, entropies, lo, hi, target), gradient)
        return dot(self.weights, entropies)

    def _piece(self, theta, entropies, lo, hi, target):
        pool = self.pool
        _entropies(theta, pool.indptr, pool.indices, pool.counts, self.weights, self.n_classes, self.vectors, lo, hi,
                   target, entropies)  # fmt: skip


@kernel
def _observe(indptr, indices, counts, labels, weights, first, vectors, out):
    for n in range(len(indptr) - 1):
        k = labels[n] - first
        if k >= 0:
            for i in range(indptr[n], indptr[n + 1]):
                out[indices[i] * vectors + k] += weights[n] * counts[i]


@kernel
def _log_probabilities(theta, indptr, indices, counts, vectors, n, out):
    """out[k] = log g(k | x_n); with K - 1 vectors the score of class 0 is 0."""
    n_classes = len(out)
    first = n_classes - vectors
    out[:] = 0.0
    for i in range(indptr[n], indptr[n + 1]):
        at, count = indices[i] * vectors, counts[i]
        for k in range(vectors):
            out[first + k] += count * theta[at + k]
    top = out.max()
    total = 0.0
    for k in range(n_classes):
        total += np.exp(out[k] - top)
    log_z = top + np.log(total)
    for k in range(n_classes):
        out[k] -= log_z


@kernel
def _add_outer(indptr, indices, counts, n, residual, first, vectors, gradient):
    """gradient[f, k] += count_f residual_k of the classes that have a vector."""
    for i in range(indptr[n], indptr[n + 1]):
        at, count = indices[i] * vectors, counts[i]
        for k in range(vectors):
            gradient[at + k] += count * residual[first + k]


@kernel
def _losses(theta, indptr, indices, counts, labels, weights, n_classes, vectors, lo, hi, gradient, losses):
    """losses[n] = -log g(y_n | x_n) of the vectors [lo, hi); w_n (g - 1{y_n}) x_n' is added to `gradient` unless empty.

    Cost: the counts of a vector times K.
    """
    log_g, first = np.empty(n_classes), n_classes - vectors
    for n in range(lo, hi):
        _log_probabilities(theta, indptr, indices, counts, vectors, n, log_g)
        losses[n] = -log_g[labels[n]]
        if len(gradient):
            for k in range(n_classes):
                log_g[k] = weights[n] * (np.exp(log_g[k]) - (1.0 if k == labels[n] else 0.0))
            _add_outer(indptr, indices, counts, n, log_g, first, vectors, gradient)


@kernel
def _entropies(theta, indptr, indices, counts, weights, n_classes, vectors, lo, hi, gradient, entropies):
    """entropies[n] of the vectors [lo, hi); -w_n g_k (log g_k + H) x_n' is added to `gradient` unless it is empty."""
    log_g, first = np.empty(n_classes), n_classes - vectors
    for n in range(lo, hi):
        _log_probabilities(theta, indptr, indices, counts, vectors, n, log_g)
        entropy = 0.0
        for k in range(n_classes):
            entropy -= np.exp(log_g[k]) * log_g[k]
        entropies[n] = entropy
        if len(gradient):
            for k in range(n_classes):
                log_g[k] = -weights[n] * np.exp(log_g[k]) * (log_g[k] + entropy)
            _add_outer(indptr, indices, counts, n, log_g, first, vectors, gradient)


@kernel
def _add_hessian(theta, indptr, indices, counts, weights, n_classes, vectors, lo, hi, out):
    """out[(f, k), (h, l)] += w_n x_f x_h g_k (1{k = l} - g_l). Cost: (counts of a vector)^2 K^2."""
    g, first = np.empty(n_classes), n_classes - vectors
    for n in range(lo, hi):
        _log_probabilities(theta, indptr, indices, counts, vectors, n, g)
        for k in range(n_classes):
            g[k] = np.exp(g[k])
        for i in range(indptr[n], indptr[n + 1]):
            for k in range(vectors):
                row, own = indices[i] * vectors + k, weights[n] * counts[i] * g[first + k]
                for j in range(indptr[n], indptr[n + 1]):
                    at = indices[j] * vectors
                    for m in range(vectors):
                        same = 1.0 if k == m else 0.0
                        out[row, at + m] += own * counts[j] * (same - g[first + m])


@kernel
def _fill_probabilities(theta, indptr, indices, counts, vectors, lo, hi, out):
    for n in range(lo, hi):
        _log_probabilities(theta, indptr, indices, counts, vectors, n, out[n])


@dataclass(frozen=True)
class LogisticModel:
    theta: np.ndarray  # float64 [F * V]
    n_classes: int
    n_features: int
    parametrisation: str
    result: Result

    def log_probabilities(self, bags: Bags) -> np.ndarray:
        """log g(k | x) [N, K]."""
        if bags.n_features != self.n_features:
            raise EspalierError(
                f"count vectors over {bags.n_features} features: expected the {self.n_features} of the model"
            )
        out, vectors = np.empty((bags.size, self.n_classes)), vectors_of(self.parametrisation, self.n_classes)
        threads.run(
            lambda run: _fill_probabilities(self.theta, bags.indptr, bags.indices, bags.counts, vectors, *run, out),
            threads.ranges(bags.size, PIECES) if bags.size else [],
        )
        return out

    def probabilities(self, bags: Bags) -> np.ndarray:
        """g(k | x) [N, K]."""
        return exp(self.log_probabilities(bags))

    def predict(self, bags: Bags) -> np.ndarray:
        """The likeliest class of each vector, int64 [N]."""
        return self.log_probabilities(bags).argmax(axis=1)


def solve(objective, penalty: ElasticNet, solver: str = "auto", theta0=None, max_iterations=200, tolerance=1e-9):
    """Minimise by Newton-Raphson, or by a solver of `engine.optimise.solvers`.

    `auto` is Newton-Raphson for a smooth penalty and few weights, else L-BFGS, with an L1 term OWL-QN.
    """
    if solver == "auto":
        few = objective.size <= NEWTON_SIZE and "hessian" in objective.offers
        solver = "owlqn" if not penalty.is_smooth else "newton" if few else "lbfgs"
    if solver == "newton":
        return minimise_by_newton(objective, penalty, theta0, max_iterations, tolerance)
    return minimise(solver, objective, penalty, theta0, max_iterations, tolerance)


def fit_logistic(
    bags: Bags, labels, n_classes: int = 2, weights=None, penalty: ElasticNet = NO_PENALTY, solver: str = "auto",
    parametrisation: str = "reference", theta0=None, max_iterations: int = 200, tolerance: float = 1e-9,
) -> LogisticModel:  # fmt: skip
    """The minimiser of the weighted loss plus the penalty. An example of weight 2 counts as two."""
    objective = LogisticObjective(bags, labels, n_classes, weights, parametrisation)
    refuse_missing_class(objective.labels, objective.weights, n_classes)
    result = solve(objective, penalty, solver, theta0, max_iterations, tolerance)
    return LogisticModel(result.theta, n_classes, bags.n_features, parametrisation, result)
