"""Learning from mistakes: structured perceptron, passive-aggressive, adaptive regularisation (LABELSEQ algorithm 1).

Sequences come one after the other. Where the best labelling under the weights so far is not the right one,

    theta += step * D,   D = f(x, y*) - f(x, y'),   y' = argmax F(x, y) + margin * Hamming(y, y*)

and where it is, nothing changes. With the loss  l = F(y') - F(y*) + cost(d)  of d wrong labels the step is

    perceptron    1
    pa            min(c, l / |D|^2), without a bound l / |D|^2, with a soft one l / (|D|^2 + 1/2c)
    arow          l / (gamma + D' V D) along V D, then 1/V_k += D_k^2 / gamma; V is diagonal

A sequence of weight w moves weights by w times a perceptron's step, and has w c in place of c, or gamma / w; one of
weight 0 is left out. So weight 2 is not the same as standing there twice: the second time might find nothing wrong.

The model is the mean of theta after every sequence, right or wrong, which is kept lazily: with u += c step D, where c
sequences were seen before, the mean is theta - u / c in the end. A step depends on the one before, so one thread
makes them. The cost is a Viterbi pass, and the weights of positions whose labels differ.

With K `parts` of the data an epoch is one of iterative parameter mixing (McDonald, Hall and Mann 2010): each part
begins with the mixed weights and learns by itself, theta = (theta_1 + ... + theta_K) / K begins the next epoch, and the
model is the mean of the weights after every sequence of every part. That is another model than that of one part; it
depends on the number of parts and not on threads, which only decide how many of them are learned from at a time.
"""

import math
from typing import NamedTuple

import numpy as np

from espalier.engine.chain.pair_sets import PairSets, check_labels, check_observations, check_theta, pair_sets
from espalier.engine.chain.scores import padded, pair_scores
from espalier.engine.data.dataset import Dataset
from espalier.engine.decoding.decode import before_dense, step_dense
from espalier.engine.errors import EspalierError
from espalier.engine.families.perceptron_options import BOUNDS, COSTS, LEADS, UPDATES, PerceptronOptions
from espalier.engine.losses.chain_objective import active_weights
from espalier.engine.optimise.monitor import Monitor, Result
from espalier.engine.optimise.solver_state import SolverState
from espalier.engine.runtime import threads
from espalier.engine.runtime.inner_loops import add_runs, add_values
from espalier.engine.runtime.jit import kernel
from espalier.engine.weights.layout import Layout

PERCEPTRON, PASSIVE_AGGRESSIVE, AROW = range(3)
ONE, ROOT, HAMMING = range(3)
NO_BOUND, HARD, SOFT = range(3)
ROUNDING = 1e-9  # a lead that is short of its margin by less, for each wrong label, is there but for rounding


class UpdateRule(NamedTuple):
    """`PerceptronOptions` as numbers for kernels."""

    update: int
    cost: int
    bound: int
    c: float
    gamma: float
    margin: float  # what a wrong label gains while the labelling to learn from is looked for


class MovingWeights(NamedTuple):
    """All that moves."""

    theta: np.ndarray  # float64 [size]
    sums: np.ndarray  # float64 [size], u
    variance: np.ndarray  # float64 [size], V, or empty
    delta: np.ndarray  # float64 [size], D of one sequence; zero between two
    mark: np.ndarray  # int64 [size], the last sequence that touched a weight


class ViterbiRoom(NamedTuple):
    """Scratch memory for any one sequence of T positions and D distinct sets; W labels with padding."""

    best: np.ndarray  # [T, W]
    dense: np.ndarray  # [D, W, W], scores of pairs, -inf beyond Y
    which: np.ndarray  # int64 [T], the row of a position's set
    set_of: np.ndarray  # int64 [D], the set of a row
    row_of: np.ndarray  # int64 [P], the row of a set; it holds if set_of points back
    found: np.ndarray  # int64 [T], the labels
    touched: np.ndarray  # int64, weights that a sequence has touched
    flat: np.ndarray  # [Y * Y]


def rule_of(options: PerceptronOptions) -> UpdateRule:
    """Checked, and as numbers."""
    for name, known in (("update", UPDATES), ("lead", LEADS), ("bound", BOUNDS)):
        if getattr(options, name) not in known:
            raise EspalierError(f"{name} is {getattr(options, name)!r}: expected one of {', '.join(known)}")
    for name in ("c", "gamma", "variance"):
        value = getattr(options, name)
        if not (math.isfinite(value) and value > 0.0):
            raise EspalierError(f"{name} is {value}: expected a number above 0")
    for name in ("epochs", "parts"):
        if getattr(options, name) < 1:
            raise EspalierError(f"{name} is {getattr(options, name)}: expected at least 1")
    if options.parts > 1 and options.update == "arow":
        raise EspalierError(
            f"parts is {options.parts} and update arow, whose variances cannot be mixed: set parts to 1, or update to "
            "perceptron or pa"
        )
    far = options.lead == "hamming"
    cost = options.cost or ("hamming" if far or options.update == "arow" else "root")
    return UpdateRule(
        list(UPDATES).index(options.update), COSTS.index(cost), BOUNDS.index(options.bound), float(options.c),
        float(options.gamma), float(far),
    )  # fmt: skip


def make_weights(theta: np.ndarray, variance: float | None = None) -> MovingWeights:
    """From the weights that training starts from; `variance` of arow."""
    size = len(theta)
    first = np.full(size if variance is not None else 0, variance or 0.0)
    return MovingWeights(theta.copy(), np.zeros(size), first, np.zeros(size), np.zeros(size, np.int64))


def make_room(data: Dataset, layout: Layout, sets: PairSets) -> ViterbiRoom:
    lengths, width = np.diff(data.offsets), padded(layout.n_labels)
    longest, n_sets = int(lengths.max(initial=1)), len(sets.ptr) - 1
    distinct = min(longest, max(1, n_sets))
    columns = 4 * data.observations.shape[1] + 2 * data.valued.shape[1]
    return ViterbiRoom(
        np.empty((longest, width)), np.full((distinct, width, width), -np.inf), np.zeros(longest, np.int64),
        np.zeros(distinct, np.int64), np.zeros(n_sets, np.int64), np.zeros(longest, np.int64),
        np.empty(min(layout.size, longest * columns) + 1, np.int64), np.empty(layout.n_labels**2),
    )  # fmt: skip


class PerceptronTraining:
    """One training: sequences of weight 0 left out, an order drawn anew for each epoch from the seed."""

    def __init__(self, data: Dataset, layout: Layout, options: PerceptronOptions, theta: np.ndarray | None = None):
        check_observations(data, layout)
        check_labels(data.labels, layout)
        if len(data.token_weights):
            raise EspalierError(
                "a perceptron learns from whole labellings and takes no token weights: give weights to sequences"
            )
        theta = np.zeros(layout.size) if theta is None else theta
        check_theta(theta, layout)
        self.data, self.layout, self.options, self.rule = data, layout, options, rule_of(options)
        self.sequences = np.flatnonzero(data.weights > 0.0)
        if not len(self.sequences):
            raise EspalierError("no sequence has a weight above 0: a perceptron needs one to learn from")
        if options.parts > len(self.sequences):
            raise EspalierError(
                f"parts is {options.parts} and {len(self.sequences)} sequences have a weight above 0: expected at most "
                "as many parts"
            )
        self.parts = [self.sequences[lo:hi] for lo, hi in threads.ranges(len(self.sequences), options.parts)]
        self.sets = pair_sets(data, layout)
        self.room = make_room(data, layout, self.sets)
        self.weights = make_weights(theta, options.variance if options.update == "arow" else None)
        self.random, self.seen = np.random.default_rng(options.seed), 0

    def epoch(self) -> dict[str, float]:
        """Each sequence once; what was met on the way: loss, wrong labels, mistakes (wrong sequences)."""
        orders = [self.random.permutation(part) for part in self.parts]
        return self.visit(orders[0], True) if len(orders) == 1 else self.mixed(orders)

    def mixed(self, orders: list[np.ndarray]) -> dict[str, float]:
        """Each part once, from the same weights; these become the mean of theirs, added up in the order of the parts.

        What the mean over all sequences lacks, sums, follows from the means m_k of the n_k sequences of each part: that
        mean times c is kept as c theta - sums.
        """
        theta, total = self.weights.theta, self.seen * self.weights.theta - self.weights.sums

        def learned(order: np.ndarray) -> tuple[MovingWeights, tuple[float, int, int]]:
            own, room = make_weights(theta), make_room(self.data, self.layout, self.sets)
            own.mark[:] = -1
            return own, _visit(own, self.layout, self.data, self.sets, order, self.rule, 0.0, True, room)

        found = threads.run(learned, orders)
        theta = np.zeros_like(theta)
        for (own, _), order in zip(found, orders, strict=True):
            theta += own.theta
            total += len(order) * own.theta - own.sums
        theta /= len(orders)
        self.seen += sum(map(len, orders))
        self.weights.theta[:], self.weights.sums[:] = theta, self.seen * theta - total
        met = zip(*(met for _, met in found), strict=True)
        return {name: sum(values) for name, values in zip(("loss", "wrong", "mistakes"), met, strict=True)}

    def pass_over(self) -> None:
        """Once no sequence is wrong no weight will move: all other epochs count for the mean as if they had been."""
        self.seen = len(self.sequences) * max(self.options.epochs, self.seen // len(self.sequences))

    def visit(self, order: np.ndarray, learns: bool) -> dict[str, float]:
        """Some sequences in an order; without learning the weights stay as they are."""
        self.weights.mark[:] = -1
        loss, wrong, mistakes = _visit(
            self.weights, self.layout, self.data, self.sets, order, self.rule, float(self.seen), learns, self.room
        )
        self.seen += len(order) if learns else 0
        return {"loss": loss, "wrong": wrong, "mistakes": mistakes}

    def model(self) -> np.ndarray:
        """The weights as they would be kept now."""
        if not self.averages:
            return self.weights.theta.copy()
        return self.weights.theta - self.weights.sums / max(1, self.seen)

    def moving(self) -> dict[str, np.ndarray]:
        """All that moves beside the weights, by the names that a state keeps it under."""
        moved = self.weights
        return {"sums": moved.sums} | ({"variance": moved.variance} if len(moved.variance) else {})

    @property
    def averages(self) -> bool:
        return self.options.average and self.options.update != "arow"


def fit(
    data: Dataset, layout: Layout, options: PerceptronOptions, theta: np.ndarray | None = None, listen=None, keeper=None
) -> Result:
    """Epoch after epoch until one meets no loss, `listen` asks to stop, or there were enough; the last weights.

    The objective of an iteration is the loss that its sequences had when they were met; that of iteration 0 is of the
    weights that training starts from.
    """
    return learn(PerceptronTraining(data, layout, options, theta), listen, keeper)


def learn(training: PerceptronTraining, listen=None, keeper=None) -> Result:
    """What `fit` does, for a training in either form."""
    epochs = training.options.epochs
    monitor = Monitor(epochs, 0.0, epochs + 1, on_iteration=listen, keeper=keeper)
    state = monitor.earlier(training.layout.size)
    if state is None:
        iteration, reason = 0, None
        met = training.visit(training.sequences, False)
        _check(monitor, training, met, 0)
        _keep(monitor, training, 0, None)
    else:
        iteration, reason = state.iteration, state.reason
        _restore(training, state)
    while reason is None:
        met, iteration = training.epoch(), iteration + 1
        if met["mistakes"] == 0:
            training.pass_over()
        reason = _check(monitor, training, met, iteration) or _enough(training, met)
        _keep(monitor, training, iteration, reason)
    return Result(
        training.model(), monitor.history[-1]["objective"], reason, iteration, iteration, monitor.history
    )


def _enough(training: PerceptronTraining, met: dict[str, float]) -> str | None:
    if met["mistakes"] == 0:
        return "separated"
    return "epsilon" if met["loss"] / len(training.sequences) < training.options.epsilon else None


def _check(monitor: Monitor, training: PerceptronTraining, met: dict[str, float], iteration: int) -> str | None:
    """Tell the monitor of an iteration; why to stop. The loss of a perceptron is the share of wrong labels in each
    sequence."""
    theta = training.model()
    record = {
        "iteration": iteration, "objective": met["loss"], "mistakes": int(met["mistakes"]),
        "wrong_labels": int(met["wrong"]), **active_weights(training.layout, theta),
    }  # fmt: skip
    return monitor.check(record, theta)


def _keep(monitor: Monitor, training: PerceptronTraining, iteration: int, reason: str | None) -> None:
    if monitor.keeper:
        vectors = {name: vector.copy() for name, vector in training.moving().items()}
        extra = {"seen": training.seen, "random": training.random.bit_generator.state}
        theta, objective = training.weights.theta.copy(), monitor.history[-1]["objective"]
        nothing = np.zeros_like(theta)
        state = SolverState(theta, objective, nothing, iteration, iteration, reason, vectors=vectors, extra=extra)
        monitor.keep(state)


def _restore(training: PerceptronTraining, state: SolverState) -> None:
    training.weights.theta[:] = state.theta
    for name, vector in training.moving().items():
        vector[:] = state.vectors[name]
    training.seen, training.random.bit_generator.state = state.extra["seen"], state.extra["random"]


@kernel
def _visit(weights, layout, data, sets, order, rule, seen, learns, room):
    """(loss, wrong labels, wrong sequences); the loss is weighed."""
    offsets, labels, each = data.offsets, data.labels, data.weights
    loss, wrong, mistakes = 0.0, 0, 0
    for i in range(len(order)):
        n = order[i]
        lo, hi = offsets[n], offsets[n + 1]
        _best(weights.theta, layout, data, sets, lo, hi, rule.margin, room)
        d = 0
        for t in range(lo, hi):
            d += room.found[t - lo] != labels[t]
        if d == 0:
            continue
        count = _difference(layout, data, lo, hi, i, room, weights.delta, weights.mark)
        gap, norm = _gap(weights, rule, room.touched, count)
        missed = gap + (1.0 if rule.cost == ONE else np.sqrt(d) if rule.cost == ROOT else float(d))
        if rule.margin > 0.0 and missed <= ROUNDING * d:
            for k in range(count):
                weights.delta[room.touched[k]] = 0.0
            continue
        mistakes += 1
        wrong += d
        loss += each[n] * (d / (hi - lo) if rule.update == PERCEPTRON else max(0.0, missed))
        step = _step(rule, max(0.0, missed), norm, each[n]) if learns else 0.0
        _move(weights, rule, each[n], step, seen + i, room.touched, count)
    return loss, wrong, mistakes


@kernel
def _best(theta, layout, data, sets, lo, hi, margin, room):
    """room.found = argmax_y F(y) + margin * Hamming(y, labels) of one sequence; among equals the smallest label."""
    best, dense, which, set_of, row_of, flat = room.best, room.dense, room.which, room.set_of, room.row_of, room.flat
    unigram_ptr, unigram_code, start_ptr, start_code = (
        layout.unigram_ptr, layout.unigram_code, layout.start_ptr, layout.start_code
    )  # fmt: skip
    observations, valued, values, labels, of_position = (
        data.observations, data.valued, data.values, data.labels, sets.of_position
    )  # fmt: skip
    n_labels, width, rows = layout.n_labels, best.shape[1], 0
    here = np.zeros(width)
    scores = here[:n_labels]
    for t in range(lo, hi):
        for y in range(n_labels):
            scores[y] = margin
        scores[labels[t]] = 0.0
        add_runs(theta, unigram_ptr, unigram_code, observations, t, scores)
        add_values(theta, unigram_ptr, unigram_code, valued, values, t, scores)
        if t == lo:
            add_runs(theta, start_ptr, start_code, observations, t, scores)
            for y in range(width):
                best[0, y] = here[y]
            continue
        p = of_position[t]
        if row_of[p] >= rows or set_of[row_of[p]] != p:
            pair_scores(theta, layout, sets, p, flat)
            for a in range(n_labels):
                for b in range(n_labels):
                    dense[rows, a, b] = flat[a * n_labels + b]
            row_of[p], set_of[rows] = rows, p
            rows += 1
        which[t - lo] = row_of[p]
        step_dense(dense, row_of[p], best, t - lo)
        for y in range(width):
            best[t - lo, y] += here[y]
    length = hi - lo
    label = 0
    for y in range(1, n_labels):
        if best[length - 1, y] > best[length - 1, label]:
            label = y
    room.found[length - 1] = label
    for t in range(length - 1, 0, -1):
        label = before_dense(dense, which[t], best, t - 1, label, n_labels)
        room.found[t - 1] = label


@kernel
def _difference(layout, data, lo, hi, stamp, room, delta, mark):
    """delta = f(x, y*) - f(x, y') at the weights that differ, which are listed in room.touched; how many."""
    observations, valued, values, labels = data.observations, data.valued, data.values, data.labels
    n_labels, found, touched, count = layout.n_labels, room.found, room.touched, 0
    before, taken = -1, -1
    for t in range(lo, hi):
        right, wrong = labels[t], found[t - lo]
        for k in range(observations.shape[1]):
            x = observations[t, k]
            if x < 0:
                continue
            if right != wrong:
                ptr, code = layout.unigram_ptr, layout.unigram_code
                count = _touch(ptr, code, n_labels, x, right, 1.0, stamp, delta, mark, touched, count)
                count = _touch(ptr, code, n_labels, x, wrong, -1.0, stamp, delta, mark, touched, count)
            if t == lo and right != wrong:
                ptr, code = layout.start_ptr, layout.start_code
                count = _touch(ptr, code, n_labels, x, right, 1.0, stamp, delta, mark, touched, count)
                count = _touch(ptr, code, n_labels, x, wrong, -1.0, stamp, delta, mark, touched, count)
            if t > lo and (right != wrong or before != taken):
                ptr, code, full = layout.bigram_ptr, layout.bigram_code, n_labels * n_labels
                pair, other = before * n_labels + right, taken * n_labels + wrong
                count = _touch(ptr, code, full, x, pair, 1.0, stamp, delta, mark, touched, count)
                count = _touch(ptr, code, full, x, other, -1.0, stamp, delta, mark, touched, count)
        for k in range(valued.shape[1]):
            x = valued[t, k]
            if x >= 0 and right != wrong:
                ptr, code = layout.unigram_ptr, layout.unigram_code
                count = _touch(ptr, code, n_labels, x, right, values[t, k], stamp, delta, mark, touched, count)
                count = _touch(ptr, code, n_labels, x, wrong, -values[t, k], stamp, delta, mark, touched, count)
        before, taken = right, wrong
    return count


@kernel
def _touch(ptr, code, n_codes, x, c, amount, stamp, delta, mark, touched, count):
    """delta += amount at the weight of (x, c), if there is one; the number of weights touched."""
    lo, end, base = ptr[x], ptr[x + 1], ptr[0]
    if lo == end:
        return count
    slot = lo + c
    if end - lo != n_codes:
        hi = end
        while lo < hi:  # codes are sorted in a run
            middle = (lo + hi) // 2
            if code[middle - base] < c:
                lo = middle + 1
            else:
                hi = middle
        if lo == end or code[lo - base] != c:
            return count
        slot = lo
    if mark[slot] != stamp:
        mark[slot] = stamp
        touched[count] = slot
        count += 1
    delta[slot] += amount
    return count


@kernel
def _gap(weights, rule, touched, count):
    """(F(y') - F(y*), |D|^2 or D' V D)."""
    theta, variance, delta, gap, norm = weights.theta, weights.variance, weights.delta, 0.0, 0.0
    for k in range(count):
        s = touched[k]
        gap -= theta[s] * delta[s]
        norm += delta[s] * delta[s] * (variance[s] if rule.update == AROW else 1.0)
    return gap, norm


@kernel
def _move(weights, rule, weight, step, seen, touched, count):
    """Move the touched weights, and clear delta; a step of 0 leaves all as it is."""
    theta, sums, variance, delta = weights.theta, weights.sums, weights.variance, weights.delta
    for k in range(count):
        s = touched[k]
        move = step * delta[s] * (variance[s] if rule.update == AROW else 1.0)
        theta[s] += move
        sums[s] += seen * move
        if rule.update == AROW and step > 0.0:
            variance[s] = 1.0 / (1.0 / variance[s] + weight * delta[s] * delta[s] / rule.gamma)
        delta[s] = 0.0


@kernel
def _step(rule, loss, norm, weight):
    """How far along D; nowhere where no weight differs."""
    if rule.update == PERCEPTRON:
        return weight
    if norm <= 0.0:
        return 0.0
    if rule.update == AROW:
        return loss / (rule.gamma / weight + norm)
    if rule.bound == SOFT:
        return loss / (norm + 0.5 / (rule.c * weight))
    return min(rule.c * weight, loss / norm) if rule.bound == HARD else loss / norm
