"""Gaussian process sequence classification: the maximum a posteriori (LABELSEQ 5), a CRF in the space of a kernel.

R = -sum_n w_n log p(y^n | x^n) + kappa (tr A'GA + |u|^2 / eta), where the scores of labels are H = G A and u are the
weights of pairs. `dense` minimises it over all of A and u: gradients, products and steps of L-BFGS are those of the
space of the kernel, <a, b> = tr a'Gb, in which the gradient is 2 kappa A + expected - observed counts of the rows,
without G. So one product with G is made in an iteration, whatever the line search does, since H moves along a line,
too; for degrees 1 and 2 it is one by features that are written out, where that is cheaper. R is 2 kappa strongly convex
there, so that |gradient|^2 / (4 kappa) bounds how far it is from its minimum.

`sparse` chooses coordinates of A, sequence by sequence (LABELSEQ algorithm 8), and minimises R over those of one
sequence and the pairs at a time; now and then over all that were chosen.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.families.gp_options import METHODS, PICKS, PRODUCTS, GpOptions
from espalier.engine.families.row_chain import RowChain
from espalier.engine.optimise.monitor import Monitor
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.optimise.solvers.wolfe import wolfe
from espalier.engine.runtime.cholesky import backward, factorise, forward
from espalier.engine.runtime.vectors import dot, product
from espalier.engine.similarity.overlaps import Overlaps
from espalier.engine.similarity.rows import selected
from espalier.engine.similarity.shared_features import (
    WEIGHTS,
    FeaturesOfSome,
    SharedFeatures,
    features_if_cheaper,
    shared_features,
)

MEMORY = 20  # pairs of L-BFGS
INNER = 5  # iterations over the coordinates of one sequence
RIDGES = (1e-9, 1e-6, 1e-3)  # added to kernels of chosen rows, as a share of their own: they may depend on each other
SETTLES, BETWEEN, AT_THE_END = 5, 20, 200  # how often all chosen coordinates move together, and for how many iterations
RECORDS = 50  # of a sparse training in the trace
TINY = float(np.finfo(np.float64).tiny)


class GpFit(NamedTuple):
    """A and u, and how they came to be."""

    amounts: np.ndarray  # float64 [P, Y]
    weights: np.ndarray  # float64, of pairs
    objective: float
    stop_reason: str
    trace: list[dict]


GpListener = Callable[[dict, np.ndarray, np.ndarray], bool | str | None]


def check_options(options: GpOptions) -> None:
    for name, known in (("method", METHODS), ("pick", PICKS), ("products", PRODUCTS)):
        if getattr(options, name) not in known:
            raise EspalierError(f"gp.{name} is {getattr(options, name)!r}: expected one of {', '.join(known)}")
    if options.products == "features" and options.degree not in WEIGHTS:
        raise EspalierError(
            f"gp.products is features and gp.degree {options.degree}: features are written out for degrees 1 and 2; "
            "set gp.products to rows"
        )


def fit_gp(chain: RowChain, options: GpOptions, heard: GpListener | None = None) -> GpFit:
    """The amounts and weights that `options.method` finds; `heard` gets each record with both."""
    check_options(options)
    return (_dense if options.method == "dense" else _sparse)(chain, options, heard)


def features_of(chain: RowChain, options: GpOptions) -> SharedFeatures | None:
    """The kernel as features that are written out, where products are made by these: the same but for rounding."""
    about = chain.rows, chain.gram.n_attributes, options.degree
    if options.products == "features":
        return shared_features(*about)
    return features_if_cheaper(*about, chain.n_labels) if options.products == "auto" else None


class GpPoint(NamedTuple):
    """A point z = (A, u / sqrt(eta)) as one vector, its product with G, R there and its gradient."""

    z: np.ndarray
    image: np.ndarray  # G z
    value: float
    gradient: np.ndarray


class GpPosterior:
    """R over vectors z = (A, v), u = sqrt(eta) v, and what steps in the space of the kernel need."""

    def __init__(self, chain: RowChain, options: GpOptions):
        self.chain, self.kappa, self.root = chain, options.kappa, float(np.sqrt(options.eta))
        self.size, self.cells = chain.layout.size, chain.cells
        self.products, self.product = 0, (features_of(chain, options) or chain.gram).product

    def image(self, z: np.ndarray) -> np.ndarray:
        """G z; what belongs to pairs stays what it is."""
        self.products += 1
        amounts = z[: self.cells].reshape(-1, self.chain.n_labels)
        return np.concatenate([self.product(amounts).ravel(), z[self.cells :]])

    def at(self, z: np.ndarray, image: np.ndarray) -> GpPoint:
        theta = image.copy()
        theta[self.cells :] *= self.root
        loss, slope = self.chain.objective.value_and_gradient(theta)
        slope[self.cells :] *= self.root
        return GpPoint(z, image, loss + self.kappa * dot(z, image), slope + 2.0 * self.kappa * z)

    def parts(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return z[: self.cells].reshape(-1, self.chain.n_labels), self.root * z[self.cells :]


class GpLine:
    """R along a direction, as `wolfe` takes it: each trial is a look at all sequences and no product with G."""

    def __init__(self, posterior: GpPosterior, begin: GpPoint, direction: np.ndarray, image: np.ndarray):
        self.posterior, self.begin, self.direction, self.of_direction = posterior, begin, direction, image
        self.found: dict[float, GpPoint] = {}

    def value_and_gradient(self, step: np.ndarray) -> tuple[float, np.ndarray]:
        s, begin = float(step[0]), self.begin
        point = self.posterior.at(begin.z + s * self.direction, begin.image + s * self.of_direction)
        self.found[s] = point
        return point.value, np.array([dot(point.gradient, self.of_direction)])


class GpCurvature:
    """Pairs of L-BFGS in the space of the kernel: each vector is kept with its product with G."""

    def __init__(self):
        self.pairs: list[tuple[np.ndarray, ...]] = []

    def add(self, s: np.ndarray, s_image: np.ndarray, y: np.ndarray, y_image: np.ndarray) -> None:
        curvature = dot(s, y_image)
        if curvature > 1e-10 * dot(y, y_image):
            self.pairs = [*self.pairs, (s, s_image, y, y_image, curvature)][-MEMORY:]

    def direction(self, gradient: np.ndarray, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(-H gradient, its product with G)."""
        if not self.pairs:
            length = max(np.sqrt(dot(gradient, image)), TINY)
            return -gradient / length, -image / length
        q, q_image, taken = gradient.copy(), image.copy(), []
        for s, _, y, y_image, curvature in reversed(self.pairs):
            a = dot(s, q_image) / curvature
            taken.append(a)
            q -= a * y
            q_image -= a * y_image
        _, _, y, y_image, curvature = self.pairs[-1]
        scale = curvature / dot(y, y_image)
        q *= scale
        q_image *= scale
        for (s, s_image, _, y_image, curvature), a in zip(self.pairs, reversed(taken), strict=True):
            step = a - dot(y_image, q) / curvature
            q += step * s
            q_image += step * s_image
        return -q, -q_image


def _monitor(options: GpOptions, on_iteration) -> Monitor:
    """The gap alone says whether the minimum is reached: no bound on single gradients is needed beside it."""
    return Monitor(options.max_iterations, options.tolerance, scale=np.inf, on_iteration=on_iteration)


def _dense(chain: RowChain, options: GpOptions, heard: GpListener | None) -> GpFit:
    posterior, curvature = GpPosterior(chain, options), GpCurvature()
    zero = np.zeros(posterior.size)
    here, iteration, evaluations = posterior.at(zero, zero), 0, 1
    monitor = _monitor(options, None)
    image = posterior.image(here.gradient)
    reason = _told(monitor, posterior, here, image, iteration, evaluations, heard)
    while reason is None:
        direction, of_direction = curvature.direction(here.gradient, image)
        line = GpLine(posterior, here, direction, of_direction)
        slope = np.array([dot(here.gradient, of_direction)])
        found, used = wolfe(line, ElasticNet(0.0, 0.0), np.zeros(1), here.value, slope, np.ones(1))
        evaluations += used
        if found is None and curvature.pairs:
            curvature.pairs = []
            continue
        if found is None:
            reason = "line_search"
            break
        new, iteration = line.found[float(found[0][0])], iteration + 1
        new_image = posterior.image(new.gradient)
        curvature.add(new.z - here.z, new.image - here.image, new.gradient - here.gradient, new_image - image)
        here, image = new, new_image
        reason = _told(monitor, posterior, here, image, iteration, evaluations, heard)
    return GpFit(*posterior.parts(here.z), here.value, reason, monitor.history)


def _told(monitor, posterior, here: GpPoint, image, iteration: int, evaluations: int, heard) -> str | None:
    """The record of an iteration to the monitor and to who listens."""
    size = max(0.0, dot(here.gradient, image))
    record = {
        "iteration": iteration, "objective": here.value, "loss": here.value - posterior.kappa * dot(here.z, here.image),
        "gradient_norm": float(np.sqrt(size)), "gap": size / (4.0 * posterior.kappa), "evaluations": evaluations,
        "products": posterior.products,
    }  # fmt: skip
    amounts, weights = posterior.parts(here.z)
    monitor.on_iteration = heard and (lambda line, _: heard(line, amounts, weights))
    return monitor.check(record | counted(posterior.chain, amounts, weights), here.z)


def counted(chain: RowChain, amounts: np.ndarray, weights: np.ndarray) -> dict[str, int]:
    """How much of a model is not zero, as the trace counts it, and the rows that support."""
    starts = chain.layout.bounds()[1] - chain.layout.bounds()[0]
    return {
        "active_unigram": int(np.count_nonzero(amounts)), "active_start": int(np.count_nonzero(weights[:starts])),
        "active_bigram": int(np.count_nonzero(weights[starts:])),
        "rows": int(np.count_nonzero(np.any(amounts != 0.0, axis=1))),
    }  # fmt: skip


# ---- few coordinates, sequence by sequence


class FewCoordinates:
    """R over some coordinates of A and all of u, from a point on; for solvers of the engine.

    A coordinate is in units of 1 / sqrt(g(p, p)), so that all are curved alike. Squares of the norm are followed, not
    computed anew: |A + D|^2 = |A|^2 + 2 <A, D> + |D|^2, and <A, D> needs H at the coordinates alone.
    """

    offers = frozenset({"gradient"})

    def __init__(self, state: "SparseState", rows: np.ndarray, labels: np.ndarray):
        self.state, self.rows, self.labels = state, rows, labels
        distinct, self.of = np.unique(rows, return_inverse=True)
        self.columns = state.chain.gram.columns(selected(state.chain.rows, distinct))
        self.unit = 1.0 / np.sqrt(self.columns[self.of, rows])
        self.size = len(rows) + len(state.v)
        same = labels[:, None] == labels[None, :]
        self.gram = np.where(same, self.columns[self.of][:, rows], 0.0) * self.unit[:, None] * self.unit[None, :]
        self.start = state.scores[rows, labels] * self.unit

    def moved(self, x: np.ndarray) -> tuple[np.ndarray, float]:
        """(H, squared norm) behind a step."""
        k = len(self.rows)
        scores, steps = self.state.scores.copy(), x[:k] * self.unit
        for i in range(k):
            scores[:, self.labels[i]] += steps[i] * self.columns[self.of[i]]
        square = self.state.square + 2.0 * dot(x[:k], self.start) + dot(x[:k], product(self.gram, x[:k, None])[:, 0])
        return scores, square

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        state, k = self.state, len(self.rows)
        scores, square = self.moved(x)
        v = state.v + x[k:]
        loss, slope = state.chain.objective.value_and_gradient(np.concatenate([scores.ravel(), state.root * v]))
        of_scores = slope[: scores.size].reshape(scores.shape)
        of_rows = np.array([dot(self.columns[self.of[i]], np.ascontiguousarray(of_scores[:, self.labels[i]]))
                            for i in range(k)])  # fmt: skip
        gradient = np.empty(self.size)
        gradient[:k] = self.unit * (of_rows + 2.0 * state.kappa * scores[self.rows, self.labels])
        gradient[k:] = state.root * slope[scores.size :] + 2.0 * state.kappa * v
        return loss + state.kappa * (square + dot(v, v)), gradient


class ChosenCoordinates:
    """R over all coordinates of A that were chosen, and u.

    Coordinates c of a label are L'c = w, where LL' is the kernel of its rows: the norm of w is that of the space of the
    kernel, and steps in it need no other measure.
    """

    offers = frozenset({"gradient"})

    def __init__(self, state: "SparseState"):
        self.state, chain = state, state.chain
        self.rows, self.labels = np.nonzero(state.amounts)
        self.kept, self.of = np.unique(self.rows, return_inverse=True)
        self.some = selected(chain.rows, self.kept)
        self.gram = Overlaps(self.some, chain.gram.n_attributes, chain.degree)
        self.features = state.features and FeaturesOfSome(state.features, self.kept)
        self.size = len(self.rows) + len(state.v)
        self.mine = [np.flatnonzero(self.labels == y) for y in range(chain.n_labels)]
        self.factors = [self._factor(mine) for mine in self.mine]

    def _factor(self, mine: np.ndarray) -> np.ndarray:
        rows = selected(self.some, self.of[mine])
        kernels, own = Overlaps(rows, self.gram.n_attributes, self.gram.degree).columns(rows), np.arange(len(mine))
        for ridge in RIDGES:
            factor = kernels.copy()
            factor[own, own] *= 1.0 + ridge
            if factorise(factor, 0.0):
                break
        return factor

    def begin(self) -> np.ndarray:
        """w and v where the training is."""
        x = np.append(self.state.amounts[self.rows, self.labels], self.state.v)
        for mine, factor in zip(self.mine, self.factors, strict=True):
            x[mine] = np.array([dot(np.ascontiguousarray(factor[i:, i]), x[mine[i:]]) for i in range(len(mine))])
        return x

    def amounts(self, x: np.ndarray) -> np.ndarray:
        """A at the rows that were chosen."""
        amounts = np.zeros((len(self.kept), self.state.chain.n_labels))
        for mine, factor in zip(self.mine, self.factors, strict=True):
            part = x[mine]
            backward(factor, part)
            amounts[self.of[mine], self.labels[mine]] = part
        return amounts

    def to_all(self, amounts: np.ndarray) -> np.ndarray:
        """H = G A of what they are at the rows that were chosen."""
        return self.features.to_all(amounts) if self.features else self.gram.product(amounts, self.state.chain.rows)

    def to_some(self, values: np.ndarray) -> np.ndarray:
        """G values at these rows."""
        return self.features.to_some(values) if self.features else self.state.chain.gram.product(values, self.some)

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        state, k, amounts = self.state, len(self.rows), self.amounts(x)
        scores, v = self.to_all(amounts), x[k:]
        theta = np.concatenate([scores.ravel(), state.root * v])
        loss, slope = state.chain.objective.value_and_gradient(theta)
        square = dot(amounts.ravel(), scores[self.kept].ravel())
        of_rows = self.to_some(slope[: scores.size].reshape(scores.shape))
        gradient = np.empty(self.size)
        both = of_rows + 2.0 * state.kappa * scores[self.kept]
        gradient[:k] = both[self.of, self.labels]
        for mine, factor in zip(self.mine, self.factors, strict=True):
            part = gradient[mine]
            forward(factor, part)
            gradient[mine] = part
        gradient[k:] = state.root * slope[scores.size :] + 2.0 * state.kappa * v
        return loss + state.kappa * (square + dot(v, v)), gradient


class SparseState:
    """Where a sparse training is: A, v, H = G A and |A|^2."""

    def __init__(self, chain: RowChain, options: GpOptions):
        self.chain, self.kappa, self.root = chain, options.kappa, float(np.sqrt(options.eta))
        self.features = features_of(chain, options)
        shape = chain.rows.count, chain.n_labels
        self.amounts, self.scores, self.square = np.zeros(shape), np.zeros(shape), 0.0
        self.v = np.zeros(chain.layout.size - chain.cells)
        self.value, self.evaluations = 0.0, 0
        self.order = np.argsort(chain.of_position, kind="stable")
        self.look()

    def look(self) -> None:
        """R and its gradient in the space of the kernel, here."""
        theta = np.concatenate([self.scores.ravel(), self.root * self.v])
        self.loss, slope = self.chain.objective.value_and_gradient(theta)
        self.value = self.loss + self.kappa * (self.square + dot(self.v, self.v))
        self.gradient = slope[: self.scores.size].reshape(self.scores.shape) + 2.0 * self.kappa * self.amounts
        self.evaluations += 1

    def steepest(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, float]:
        """(rows, labels) of the coordinates of some rows with the largest gradients of R, and the largest."""
        columns = self.chain.gram.columns(selected(self.chain.rows, rows))
        size = np.abs(product(columns, self.gradient)) / np.sqrt(columns[np.arange(len(rows)), rows])[:, None]
        best = np.argsort(-size.ravel(), kind="stable")[:count]
        best = np.sort(best[size.ravel()[best] > 0.0])
        at, label = np.divmod(best, self.chain.n_labels)
        return rows[at], label, float(size.max(initial=0.0))

    def step(self, rows: np.ndarray, labels: np.ndarray) -> None:
        """To the minimum over these coordinates and u."""
        few = FewCoordinates(self, rows, labels)
        found = minimise("lbfgs", few, ElasticNet(0.0, 0.0), None, INNER, 1e-4)
        self.evaluations += found.evaluations
        self.scores, self.square = few.moved(found.theta)
        k = len(rows)
        np.add.at(self.amounts, (rows, labels), found.theta[:k] * few.unit)
        self.v = self.v + found.theta[k:]
        self.look()

    def settle(self, iterations: int, tolerance: float) -> None:
        """Towards the minimum over all coordinates that were chosen."""
        chosen = ChosenCoordinates(self)
        found = minimise("lbfgs", chosen, ElasticNet(0.0, 0.0), chosen.begin(), iterations, tolerance)
        self.evaluations += found.evaluations
        amounts = chosen.amounts(found.theta)
        self.amounts[chosen.kept] = amounts
        self.scores = chosen.to_all(amounts)
        self.square = dot(amounts.ravel(), self.scores[chosen.kept].ravel())
        self.v = found.theta[len(chosen.rows) :]
        self.look()

    def rows_of(self, n: int) -> np.ndarray:
        offsets = self.chain.dataset.offsets
        return np.unique(self.chain.of_position[offsets[n] : offsets[n + 1]])

    def worst(self) -> int:
        """The sequence with the largest gradient."""
        image = (self.features or self.chain.gram).product(self.gradient)
        size = np.abs(image).max(axis=1)[self.chain.of_position]
        return int(np.argmax(np.maximum.reduceat(size, self.chain.dataset.offsets[:-1])))


def _sequences(state: SparseState, options: GpOptions):
    """One sequence after the other, for ever."""
    random, count = np.random.default_rng(options.seed), len(state.chain.dataset.weights)
    while True:
        if options.pick == "gradient":
            yield state.worst()
        else:
            yield from random.permutation(count).tolist()


def _sparse(chain: RowChain, options: GpOptions, heard: GpListener | None) -> GpFit:
    state, monitor = SparseState(chain, options), _monitor(options, None)
    most = max(1, int(np.ceil(options.share * chain.rows.count)))
    reason, chosen, still, recorded = _tell_sparse(monitor, state, 0, heard), 0, 0, 0
    sequences = _sequences(state, options)
    while reason is None:
        rows, labels, largest = state.steepest(state.rows_of(next(sequences)), options.coordinates)
        still = still + 1 if largest <= options.threshold else 0
        if largest > options.threshold:
            state.step(rows, labels)
        chosen = int(np.count_nonzero(state.amounts))
        done = chosen >= most or still >= (1 if options.pick == "gradient" else len(chain.dataset.weights))
        if done or chosen >= (recorded + 1) * most / RECORDS:
            before, recorded = recorded, max(recorded + 1, int(chosen * RECORDS / most))
            if done or recorded * SETTLES // RECORDS > before * SETTLES // RECORDS:
                state.settle(AT_THE_END if done else BETWEEN, options.tolerance)
            reason = _tell_sparse(monitor, state, len(monitor.history), heard)
        if done:
            reason = "chosen" if chosen >= most else "flat"
    return GpFit(state.amounts, state.root * state.v, state.value, reason, monitor.history)


def _tell_sparse(monitor: Monitor, state: SparseState, iteration: int, heard) -> str | None:
    weights = state.root * state.v
    monitor.on_iteration = heard and (lambda line, _: heard(line, state.amounts, weights))
    record = {
        "iteration": iteration, "objective": state.value, "loss": state.loss,
        "gradient_norm": float(np.max(np.abs(state.gradient), initial=0.0)), "gap": None,
        "evaluations": state.evaluations,
    }  # fmt: skip
    reason = monitor.check(record | counted(state.chain, state.amounts, weights), state.amounts)
    return reason if reason in ("max_iterations", "patience", "stopped") else None
