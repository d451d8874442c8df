"""Entropy regularisation (Grandvalet and Bengio; THESIS 4.5, for CRFs 4.9): loss + strength * H(y | unlabelled x).

For one sequence H = -sum_y p(y | x) log p(y | x), and dH/dtheta_k = -Cov(log p, f_k) under p(y | x). Both cost
as much as forward-backward. By the chain rule log p is a sum of log p_t(y | y') = log p(y_t = y | y_{t-1} = y', x),
so with

    eta_t(y)  = entropy of the labels after t, given y_t = y        (backward, from 0 at the end)
              = sum_y'' p_{t+1}(y'' | y) (eta_{t+1}(y'') - log p_{t+1}(y'' | y))
    A_t(y)    = sum of p(y_1..y_t) log p(y_1..y_t) over y_t = y     (forward)
              = sum_y' p_t(y | y') (A_{t-1}(y') + gamma_{t-1}(y') log p_t(y | y'))

it is H = sum_y p_1(y) (eta_1(y) - log p_1(y)), and the covariances of labels and of pairs of labels are

    Cov(log p, y_t = y)                = A_t(y) + gamma_t(y) (H - eta_t(y))
    Cov(log p, y_{t-1} = y', y_t = y)  = p_t(y | y') (A_{t-1}(y') + gamma_{t-1}(y') (log p_t(y | y') - eta_t(y) + H)).

That is a forward-backward in the expectation semiring, written with conditional probabilities: no score enters
beyond its step, so nothing cancels in long sequences. It is a case of `engine.chain.covariance`, minus the Hessian of
the log loss times theta, and a test compares the two. It keeps a recursion of its own: it needs the entropy, too, for
which log p and not the score is summed, and its results would have other last digits.

The criterion is not convex: start from the supervised optimum. (THESIS prints the second line of 4.5 with the other
sign; 4.9 and the text minimise the entropy, and so does this.)
"""

import threading

import numpy as np

from espalier.engine.chain.logarithms import log_back, make_pair_step
from espalier.engine.chain.pair_sets import check_observations, check_theta, pair_sets, refuse_triples_in
from espalier.engine.chain.scores import SAFE_RANGE, make_factors, position_scores
from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.lattice.recursions import position_marginals
from espalier.engine.losses.label_lists import NO_GRADIENT, Chunks, add_pairs, add_position_counts
from espalier.engine.optimise.monitor import Result
from espalier.engine.optimise.penalty import ElasticNet, check_strength
from espalier.engine.optimise.solvers import minimise
from espalier.engine.runtime import threads
from espalier.engine.runtime.inner_loops import put
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.vectors import dot
from espalier.engine.weights.layout import Layout

OF_BOTH = frozenset({"gradient", "value", "counts", "scaling", "active"})  # what the labelled loss offers for the sum


class EntropyRegularised:
    """A loss of labelled data plus the entropy of unlabelled data, to a solver an objective like any other.

    `labelled` is a LogisticObjective or a ChainObjective, `entropy` a LogisticEntropy or a ChainEntropy.
    """

    def __init__(self, labelled, entropy):
        if labelled.size != entropy.size:
            raise EspalierError(
                f"the loss has {labelled.size} weights and the entropy {entropy.size}: "
                "expected the same classes, features and parametrisation"
            )
        self.labelled, self.entropy = labelled, entropy
        self.size, self.observed = labelled.size, labelled.observed
        self.offers = labelled.offers & OF_BOTH
        self._lock = threading.Lock()  # the entropy keeps memory between calls; one gradient at a time uses it

    def value(self, theta: np.ndarray) -> float:
        return self.labelled.value(theta) + self.entropy.value(theta)

    def value_and_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self.labelled.value_and_gradient(theta)
        with self._lock:
            value += self.entropy.add_gradient(theta, gradient)
        return value, gradient

    def scaling(self, gradient: np.ndarray, rho2: float) -> np.ndarray:
        """As if there were labelled data alone."""
        return self.labelled.scaling(gradient, rho2)

    def active(self, theta: np.ndarray) -> dict[str, int]:
        return self.labelled.active(theta)


def minimise_with_entropy(
    labelled, entropy, penalty: ElasticNet, solver: str = "lbfgs", theta0=None, max_iterations: int = 200,
    tolerance: float = 1e-6,
) -> tuple[Result, Result]:  # fmt: skip
    """(supervised, regularised): the supervised optimum, and from there the minimum with the entropy."""
    supervised = minimise(solver, labelled, penalty, theta0, max_iterations, tolerance)
    both = EntropyRegularised(labelled, entropy)
    return supervised, minimise(solver, both, penalty, supervised.theta, max_iterations, tolerance)


class ChainEntropy:
    """strength * sum_n w_n H(y | x^n) over the sequences of a pool, whose labels are not looked at."""

    name = "entropy regularisation"

    def __init__(self, pool: Dataset, layout: Layout, strength: float, sparse: str = "auto"):
        check_strength("strength of the entropy", strength)
        refuse_triples_in(layout, "entropy regularisation")
        if not len(pool.weights):
            raise EspalierError("the unlabelled pool is empty: expected at least one sequence, or no pool at all")
        check_observations(pool._replace(labels=np.full(len(pool.labels), -1, np.int32)), layout)
        self.pool, self.layout, self.sparse, self.size = pool, layout, sparse, layout.size
        self.weights = strength * pool.weights
        self.sets = pair_sets(pool, layout)
        self.everyone = np.arange(layout.n_labels)
        self.chunks = Chunks(pool.offsets, layout.size)

    def value(self, theta: np.ndarray) -> float:
        """The term alone: backward recursion only."""
        return dot(self.weights, self.entropies(theta))

    def entropies(self, theta: np.ndarray) -> np.ndarray:
        """H(y | x^n) in nats, float64 [N]."""
        entropies, prepared = np.empty(len(self.weights)), self._prepare(theta)
        threads.run(lambda run: self._piece(theta, prepared, entropies, *run, NO_GRADIENT), self.chunks.runs)
        return self._finish(theta, entropies, NO_GRADIENT)

    def add_gradient(self, theta: np.ndarray, gradient: np.ndarray) -> float:
        """The term; its gradient is added to `gradient`."""
        entropies, prepared = np.empty(len(self.weights)), self._prepare(theta)
        self.chunks.add(lambda lo, hi, target: self._piece(theta, prepared, entropies, lo, hi, target), gradient)
        return dot(self.weights, self._finish(theta, entropies, gradient))

    def _prepare(self, theta):
        """The factors E of pairs, and E log E: dense matrices beside theirs, entries beside theirs."""
        check_theta(theta, self.layout)
        factors = make_factors(theta, self.layout, self.sets, self.sparse)
        products, entries = np.zeros_like(factors.dense), np.empty_like(factors.entry)
        threads.run(
            lambda run: _multiply(factors.dense, self.layout.n_labels, *run, products),
            threads.ranges(len(products), 16) if len(products) else [],
        )
        _multiply_entries(factors.entry, entries)
        return factors, products, entries

    def _piece(self, theta, prepared, entropies, lo, hi, target):
        pool = self.pool
        _entropies(theta, self.layout, pool, self.weights, self.sets, *prepared,
                   self.everyone, lo, hi, target, entropies)  # fmt: skip

    def _finish(self, theta, entropies, gradient) -> np.ndarray:
        """Sequences with extreme scores follow by logarithms, one after the other."""
        pool = self.pool
        for n in np.flatnonzero(np.isnan(entropies)):
            entropies[n] = _by_logarithms(theta, self.layout, pool, self.sets, self.everyone,
                                          pool.offsets[n], pool.offsets[n + 1] - 1, self.weights[n],
                                          gradient)  # fmt: skip
        return entropies


@kernel
def _multiply(dense, n_labels, lo, hi, out):
    """out = E log E; a factor that is 0 belongs to a step that goes to logarithms."""
    for d in range(lo, hi):
        for i in range(n_labels):
            for j in range(n_labels):
                e = dense[d, i, j]
                if e > 0.0:
                    out[d, i, j] = e * np.log(e)


@kernel
def _multiply_entries(entry, out):
    for k in range(len(entry)):
        out[k] = (1.0 + entry[k]) * np.log1p(entry[k])


@kernel
def _entropies(
    theta, layout, data, weights, sets, factors, products, entries, everyone, lo, hi, gradient,
    entropies,
):  # fmt: skip
    """Entropies of the sequences [lo, hi), NaN where logarithms are needed; gradients are added unless it is empty."""
    n_labels, offsets, longest = layout.n_labels, data.offsets, 0
    for n in range(lo, hi):
        longest = max(longest, offsets[n + 1] - offsets[n])
    beta, v, eta = np.empty((longest, n_labels)), np.empty((longest, n_labels)), np.empty((longest, n_labels))
    for n in range(lo, hi):
        first, last = offsets[n], offsets[n + 1] - 1
        entropies[n] = _backward(theta, layout, data, sets, factors, products, entries, first, last, beta, v,
                                 eta)  # fmt: skip
        if len(gradient) and not np.isnan(entropies[n]):
            _forward(layout, data, sets, factors, products, entries, everyone, first, last, weights[n],
                     entropies[n], beta, v, eta, gradient)  # fmt: skip


@kernel
def _backward(theta, layout, data, sets, factors, products, entries, first, last, beta, v, eta):
    """H of one sequence. beta_{t-1}(y') = sum_y E_t(y', y) v_t(y), v_t = e_t beta_t, each beta scaled to a largest 1.

    Then p_t(y | y') = E_t(y', y) v_t(y) / beta_{t-1}(y'). Rows belong to t - first; row 0 of v is p_1.
    """
    n = layout.n_labels
    score, right, inner, product = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    beta[last - first] = 1.0
    eta[last - first] = 0.0
    for t in range(last, first - 1, -1):
        at, p = t - first, sets.of_position[t]
        position_scores(theta, layout, data, t, t == first, score)
        top = score.max()
        if not top - score.min() + (factors.spread[p] if t > first else 0.0) <= SAFE_RANGE:
            return np.nan
        for y in range(n):
            right[y] = np.exp(score[y] - top) * beta[at, y]
            score[y] = right[y] * (eta[at, y] - np.log(right[y]))
        if t == first:
            break
        _step_back(factors, products, entries, p, n, right, score, beta[at - 1], inner, product)
        scale = beta[at - 1].max()
        for y in range(n):
            b = beta[at - 1, y]
            eta[at - 1, y] = max(0.0, (inner[y] - product[y]) / b + np.log(b))
            beta[at - 1, y] = b / scale
            v[at, y] = right[y] / scale
    total, entropy = right.sum(), 0.0
    for y in range(n):
        v[0, y] = right[y] / total
        entropy += score[y] / total
    return max(0.0, entropy + np.log(total))


@kernel
def _step_back(factors, products, entries, p, n, right, score, plain, inner, product):
    """Sums over y of E right, E score and E log E right, each for all y'."""
    d = factors.slot[p]
    if d >= 0:
        dense = factors.dense
        for i in range(n):
            a, b, c = 0.0, 0.0, 0.0
            for j in range(n):
                a += dense[d, i, j] * right[j]
                b += dense[d, i, j] * score[j]
                c += products[d, i, j] * right[j]
            plain[i], inner[i], product[i] = a, b, c
    else:  # one for all, and the few entries of E - 1 (SBCD 9)
        plain[:] = right.sum()
        inner[:] = score.sum()
        product[:] = 0.0
        row, column, entry = factors.row, factors.column, factors.entry
        for k in range(factors.begin[p], factors.end[p]):
            i, j = row[k], column[k]
            plain[i] += entry[k] * right[j]
            inner[i] += entry[k] * score[j]
            product[i] += entries[k] * right[j]


@kernel
def _forward(
    layout, data, sets, factors, products, entries, everyone, first, last, weight, entropy, beta, v, eta,
    gradient,
):  # fmt: skip
    """Minus weight times the covariances of the module's text are added to `gradient`."""
    n = layout.n_labels
    gamma, mass, counts, inner = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    left, left_mass, pairs = np.empty(n), np.empty(n), np.empty(n * n)
    for t in range(first, last + 1):
        at, p = t - first, sets.of_position[t]
        if t == first:
            for y in range(n):
                gamma[y] = v[0, y]
                mass[y] = v[0, y] * np.log(v[0, y])
        else:
            for y in range(n):
                b = beta[at - 1, y]
                left[y] = gamma[y] / b
                left_mass[y] = (mass[y] - gamma[y] * np.log(b)) / b
                inner[y] = np.log(v[at, y]) - eta[at, y] + entropy
            _step_ahead(factors, products, entries, p, n, left, left_mass, v[at], inner, -weight, gamma, mass, pairs)
            add_pairs(layout, sets, p, everyone, 0, n, 0, n, pairs, gradient)
            for y in range(n):
                gamma[y] *= v[at, y]
                mass[y] = v[at, y] * mass[y] + gamma[y] * np.log(v[at, y])
        for y in range(n):
            counts[y] = -weight * (mass[y] + gamma[y] * (entropy - eta[at, y]))
        add_position_counts(layout, data, t, t == first, everyone, 0, n, counts, gradient)


@kernel
def _step_ahead(factors, products, entries, p, n, left, left_mass, right, inner, sign, gamma, mass, pairs):
    """gamma = sum over y' of E left, mass of E left_mass + E log E left, and the covariances of pairs

    pairs[y' * Y + y] = sign right (E (left_mass + left inner) + E log E left).
    """
    d = factors.slot[p]
    gamma[:] = 0.0
    mass[:] = 0.0
    if d >= 0:
        dense = factors.dense
        for i in range(n):
            a, b = left[i], left_mass[i]
            for j in range(n):
                e, product = dense[d, i, j], products[d, i, j] * a
                gamma[j] += a * e
                mass[j] += b * e + product
                pairs[i * n + j] = sign * right[j] * (e * (b + a * inner[j]) + product)
    else:
        for i in range(n):
            a, b = left[i], left_mass[i]
            for j in range(n):
                gamma[j] += a
                mass[j] += b
                pairs[i * n + j] = sign * right[j] * (b + a * inner[j])
        row, column, entry = factors.row, factors.column, factors.entry
        for k in range(factors.begin[p], factors.end[p]):
            i, j = row[k], column[k]
            e, product = entry[k], entries[k] * left[i]
            gamma[j] += left[i] * e
            mass[j] += left_mass[i] * e + product
            pairs[i * n + j] += sign * right[j] * (e * (left_mass[i] + left[i] * inner[j]) + product)


@kernel
def _by_logarithms(theta, layout, data, sets, everyone, first, last, weight, gradient):
    """H of one sequence with extreme scores; minus weight times its covariances are added to `gradient` unless empty.

    The conditional probabilities p_t(y | y') are those of `log_back`. Cost: Y^2 exponentials a position.
    """
    n, rows = layout.n_labels, last + 1 - first
    score, eta, log_beta, reached = np.empty((rows, n)), np.zeros((rows, n)), np.zeros((rows, n)), np.zeros((rows, n))
    step, current, initial = make_pair_step(n), np.zeros(n), np.empty((1, n))
    conditional, pairs = step.conditional, step.pairs
    for t in range(last, first - 1, -1):
        at = t - first
        position_scores(theta, layout, data, t, t == first, score[at])
        log_beta[at] = current
        if t == first:
            break
        log_back(theta, layout, sets, sets.of_position[t], score, at, reached, current, step)
        for i in range(n):
            eta[at - 1, i] = _mean_surprise(conditional[i], eta[at])
    position_marginals(score[:1], 0, current, initial, step.rows)
    entropy = _mean_surprise(initial[0], eta[0])
    if len(gradient) == 0:
        return entropy
    gamma, mass, counts, new_gamma, new_mass = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for t in range(first, last + 1):
        at, p = t - first, sets.of_position[t]
        new_gamma[:] = 0.0
        new_mass[:] = 0.0
        if t == first:
            for y in range(n):
                new_gamma[y] = initial[0, y]
                new_mass[y] = _times_log(initial[0, y])
        else:
            put(log_beta[at], current)
            log_back(theta, layout, sets, p, score, at, reached, current, step)
            for i in range(n):
                for y in range(n):
                    here, product = conditional[i, y], _times_log(conditional[i, y])
                    new_gamma[y] += here * gamma[i]
                    new_mass[y] += here * mass[i] + product * gamma[i]
                    covariance = here * (mass[i] + gamma[i] * (entropy - eta[at, y])) + product * gamma[i]
                    pairs[i * n + y] = -weight * covariance
            add_pairs(layout, sets, p, everyone, 0, n, 0, n, pairs, gradient)
        for y in range(n):
            gamma[y], mass[y] = new_gamma[y], new_mass[y]
            counts[y] = -weight * (mass[y] + gamma[y] * (entropy - eta[at, y]))
        add_position_counts(layout, data, t, t == first, everyone, 0, n, counts, gradient)
    return entropy


@kernel
def _times_log(p):
    """p log p, 0 for 0."""
    return p * np.log(p) if p > 0.0 else 0.0


@kernel
def _mean_surprise(probabilities, eta):
    """sum_y p(y) (eta(y) - log p(y))."""
    total = 0.0
    for y in range(len(eta)):
        total += probabilities[y] * eta[y] - _times_log(probabilities[y])
    return total
