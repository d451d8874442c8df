"""Hidden Markov models from labelled, partly labelled and unlabelled sequences.

`counts`: relative counts of labelled data (COURSE 9). `baum-welch`: the counts that are expected under the model
before, so that the likelihood of what is known never falls (COURSE 3-5); known labels restrict the expectation.
`viterbi`: the counts of the likeliest labelling instead. All add a Dirichlet prior, `smoothing`, and maximise with it.
`stepwise`: the same from statistics that are renewed behind each batch (`engine.optimise.stepwise`).

Discriminative: `conditional` maximises sum_n w_n log p(y^n | x^n), `mmi` the same with all probabilities raised to a
power, `mce` the expected number of right sequences, sum_n w_n p(y^n | x^n). Each step is a growth transformation for
rational functions: p_j becomes proportional to p_j (dF/dp_j + C) within each distribution, and C grows until F does not
fall (Gopalakrishnan et al. 1991; COURSE 4.1).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from espalier.engine.data.dataset import Dataset, any_in_sequence, refuse_unlabelled, select
from espalier.engine.decoding import decode
from espalier.engine.errors import EspalierError
from espalier.engine.families import require
from espalier.engine.families.hmm_options import NEEDS_LABELS, TRAININGS, HmmOptions
from espalier.engine.families.hmm_space import (
    HmmAmounts,
    HmmSpace,
    completed,
    log_prior,
    make_space,
    maximised,
    normalised,
    rare_counts,
)
from espalier.engine.losses.chain_objective import ChainObjective, observed_counts
from espalier.engine.losses.partial_labels import PartialLabels, silent
from espalier.engine.optimise.monitor import Monitor
from espalier.engine.optimise.stepwise import ForgettingMean, in_order
from espalier.engine.runtime.vectors import dot, exp
from espalier.engine.weights.layout import KINDS, UNIGRAM
from espalier.engine.weights.sublayout import present, renumber

TINY = float(np.finfo(np.float64).tiny)
LEAST_GROWTH, MOST_DOUBLINGS = 1.0, 60  # of C in units of what it must be
LEAST = 1e-12  # change that is one


class HmmFit(NamedTuple):
    """Probabilities and how they came to be."""

    space: HmmSpace
    probabilities: HmmAmounts
    objective: float
    stop_reason: str
    trace: list[dict]
    totals: np.ndarray | None  # float64 [Y], how often each label is expected in a sequence
    weight: float  # of all sequences that it has learned from, earlier ones included
    updates: int = 0  # of stepwise training


class HmmStart(NamedTuple):
    """What an earlier model knew, in the space of the new one."""

    probabilities: HmmAmounts
    totals: np.ndarray  # float64 [Y], how often each label occurs in a sequence
    weight: float  # of the sequences it has learned from
    updates: int  # of stepwise training


def emitting(templates: list[str]) -> np.ndarray:
    """Which templates make unigram observations."""
    return np.array([KINDS[line[:1]] & UNIGRAM > 0 for line in templates], bool)


class HmmData:
    """Training data by what is known of them: labelled sequences are counted once, of others counts are expected."""

    def __init__(self, space: HmmSpace, dataset: Dataset):
        data, self.space = completed(dataset, space.beside), space
        nothing, gaps = silent(data), any_in_sequence(data, data.labels < 0)
        layout, groups = space.layout, (~gaps, gaps & ~nothing, nothing)
        labelled, partial, free = (select(data, np.flatnonzero(which)) for which in groups)
        self.labelled, self.partial, self.free = labelled, None, None
        self.counted = observed_counts(labelled, layout) if len(labelled.weights) else np.zeros(layout.size)
        if len(partial.weights):
            self.partial = PartialLabels(partial, layout, "auto")
        if len(free.weights):
            self.free = ChainObjective(free._replace(labels=np.zeros(len(free.labels), np.int32)), layout)
        self.weight = float(data.weights.sum())

    def expected(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        """(expected counts given what is known, log-likelihood of that), the E-step."""
        counts, value = self.counted.copy(), dot(theta, self.counted)
        if self.partial is not None:
            negative = np.zeros(len(theta))
            value -= self.partial.add_gradient(theta, negative)
            counts -= negative
        if self.free is not None:
            expected, log_z = self.free.expectations(theta)
            value += dot(self.free.dataset.weights, log_z)
            counts += expected
        return counts, value

    def likeliest(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        """(counts of the likeliest labellings that agree with what is known, their log-likelihood)."""
        counts = self.counted.copy()
        for part, only in ((self.partial, {"allowed": "labels"}), (self.free, {})):
            if part is not None:
                labels = decode.viterbi(part.dataset, self.space.layout, theta, **only)
                counts += observed_counts(part.dataset._replace(labels=labels), self.space.layout)
        return counts, dot(theta, counts)


def space_of(
    dataset: Dataset, n_labels: int, stream: np.ndarray, emits: np.ndarray, options: HmmOptions
) -> HmmSpace:
    """The probabilities that a training on these data finds; refuses what it cannot learn from."""
    if options.training not in TRAININGS:
        raise EspalierError(f"training is {options.training!r}: expected one of {', '.join(TRAININGS)}")
    if dataset.valued.shape[1]:
        require("hmm", "values")
    if not emits.any():
        raise EspalierError(
            "no template emits anything, so that all inputs are alike to a hidden Markov model: add one that begins "
            "with U, such as U:%x[0,0]"
        )
    if options.training in NEEDS_LABELS:
        others = ", ".join(name for name in TRAININGS if name not in NEEDS_LABELS)
        refuse_unlabelled(dataset, f"hmm.training is {options.training}, which needs them all; {others} do not")
    return make_space(dataset, n_labels, stream, emits, anywhere=options.training not in NEEDS_LABELS)


def fit_tables(
    space: HmmSpace, dataset: Dataset, options: HmmOptions,
    on_iteration: Callable[[dict, np.ndarray, HmmAmounts], bool | str | None] | None = None,
    start: HmmStart | None = None,
) -> HmmFit:  # fmt: skip
    """The model of a data set by `options.training`, begun from `start` if there is one.

    `on_iteration` hears each iteration, with theta and the probabilities that it stands for, and may end it.
    """
    if start is not None and options.training in NEEDS_LABELS:
        others = ", ".join(name for name in TRAININGS if name not in NEEDS_LABELS)
        raise EspalierError(
            f"hmm.training is {options.training}, which begins with the counts of its data: expected one of {others} "
            "to go on from an earlier model, or train.initial to be null"
        )
    if options.training == "stepwise":
        return _stepwise(space, dataset, start, options, on_iteration)
    data = HmmData(space, dataset)
    scarce = rare_counts(space, space.amounts(data.counted).cells, options.rare)
    if options.training in NEEDS_LABELS:
        return _from_labels(data, scarce, options, on_iteration)
    if start is not None:
        return _em(data, start.probabilities, scarce, options, on_iteration)
    starts = (maximised(space, space.amounts(counts), options.smoothing, scarce) for counts in _starts(data, options))
    runs = [_em(data, probabilities, scarce, options, on_iteration) for probabilities in starts]
    return min(runs, key=lambda run: run.objective)


def _starts(data: HmmData, options: HmmOptions):
    """Counts to begin with: those of the labelled sequences, if any, then some that chance has changed.

    Alike in all labels they would stay so for ever.
    """
    random = np.random.default_rng(options.seed)
    known = data.counted if data.labelled.weights.sum() > 0.0 else None
    for run in range(max(1, options.restarts)):
        if known is not None and run == 0:
            yield known
        else:
            base = np.ones(len(data.counted)) if known is None else known + 0.1
            yield base * random.uniform(0.5, 1.5, len(base))


def _em(data: HmmData, probabilities: HmmAmounts, scarce: np.ndarray, options: HmmOptions, on_iteration) -> HmmFit:
    """Expectation (or the likeliest labelling) and maximisation in turn."""
    space, iteration = data.space, 0
    step = data.likeliest if options.training == "viterbi" else data.expected
    monitor = Monitor(options.max_iterations, options.tolerance)
    while True:
        theta = space.theta(probabilities)
        counts, value = step(theta)
        objective = -(value + log_prior(space, probabilities, options.smoothing, scarce))
        reason = _heard(monitor, iteration, objective, theta, probabilities, on_iteration)
        if reason:
            totals = space.totals(counts) / max(data.weight, TINY)
            return HmmFit(space, probabilities, objective, reason, monitor.history, totals, data.weight)
        probabilities, iteration = maximised(space, space.amounts(counts), options.smoothing, scarce), iteration + 1


def _stepwise(
    space: HmmSpace, dataset: Dataset, start: HmmStart | None, options: HmmOptions, on_iteration
) -> HmmFit:
    """Passes over the data, the model renewed behind each batch; only what the batch has is looked at and changed.

    Without an earlier model all statistics begin as the mean of the labelled sequences, or by chance where none is.
    """
    if options.batch < 1:
        raise EspalierError(f"hmm.batch is {options.batch}: expected at least 1 sequence")
    weight = float(dataset.weights.sum()) + (start.weight if start else 0.0)
    mean, updates, scarce = _first_mean(space, dataset, start, options)
    statistics = ForgettingMean(mean, options.alpha, updates)
    sums = ForgettingMean(space.by_label(space.amounts(mean).cells).ravel(), options.alpha, updates)
    monitor, lengths = Monitor(options.max_iterations, options.tolerance), np.diff(dataset.offsets)
    for turn in range(1, options.max_iterations + 1):
        total = 0.0
        order = in_order(lengths, options.order, options.seed, turn)
        for begin in range(0, len(order), options.batch):
            batch = select(dataset, np.sort(order[begin : begin + options.batch]))
            if batch.weights.sum() > 0.0:
                total += _renew(space, batch, statistics, sums, options.smoothing, scarce, weight)
        whole = space.amounts(weight * statistics.take())
        probabilities = maximised(space, whole, options.smoothing, scarce)
        reason = _heard(monitor, turn, -total, space.theta(probabilities), probabilities, on_iteration)
        if reason or turn == options.max_iterations:
            totals, updates = space.totals(statistics.take()), statistics.updates
            return HmmFit(space, probabilities, -total, reason or "max_iterations", monitor.history, totals, weight,
                          updates)  # fmt: skip
    raise EspalierError(f"train.max_iterations is {options.max_iterations}: expected at least 1")


def _first_mean(space, dataset, start, options) -> tuple[np.ndarray, int, np.ndarray]:
    """(statistics to begin with, updates that they have behind them, how often rare observations occur)."""
    labelled = select(dataset, np.flatnonzero(~any_in_sequence(dataset, dataset.labels < 0)))
    data = HmmData(space, labelled)
    scarce = rare_counts(space, space.amounts(data.counted).cells, options.rare)
    if start is not None:
        if start.totals is None:
            raise EspalierError(
                "the earlier model does not say how often its labels occur, as those of this version do: train it again"
            )
        # What was learned at once is worth the steps that it would have taken.
        updates = max(start.updates, int(start.weight / options.batch))
        return space.counts(start.probabilities, start.totals), updates, scarce
    if data.weight > 0.0:
        return data.counted / data.weight, 0, scarce
    counts = next(_starts(data, options))
    probabilities = maximised(space, space.amounts(counts), options.smoothing, scarce)
    mean_length = len(dataset.labels) / max(1, len(dataset.weights))
    return space.counts(probabilities, np.full(space.n_labels, mean_length / space.n_labels)), 0, scarce


def _renew(space, batch, statistics, sums, smoothing, scarce, weight) -> float:
    """The log-likelihood of a batch under the model as it is, whose expected counts then go into the statistics."""
    present_ones = present(batch, len(space.stream))
    small, slots = space.part(present_ones)
    now = small.amounts(weight * statistics.take(slots))
    totals, streams = small.totals(weight * statistics.take(slots)), scarce.shape
    unseen = np.maximum(totals - weight * sums.take().reshape(streams) - now.unknown, 0.0)
    now = now._replace(unseen=np.where(space.rest > 0.0, unseen, 0.0))
    emitted = totals + scarce + smoothing * (space.symbols + 1.0)
    theta = small.theta(maximised(small, now, smoothing, scarce, emitted))
    data = HmmData(small, renumber(batch, present_ones, len(space.stream)))
    counts, value = data.expected(theta)
    mean = counts / data.weight
    statistics.update(slots, mean)
    sums.update(slice(None), small.by_label(mean[: len(small.cell)]).ravel())
    return value


def _heard(monitor: Monitor, iteration: int, objective: float, theta, probabilities, on_iteration) -> str | None:
    """Tell of an iteration; why to stop after it."""
    monitor.on_iteration = (lambda told, _: on_iteration(told, theta, probabilities)) if on_iteration else None
    return monitor.check({"iteration": iteration, "objective": objective}, theta)


# ---- labelled data


def _from_labels(data: HmmData, scarce: np.ndarray, options: HmmOptions, on_iteration) -> HmmFit:
    """Relative counts, and what makes them better at telling labellings apart."""
    space = data.space
    probabilities = maximised(space, space.amounts(data.counted), options.smoothing, scarce)
    totals = space.totals(data.counted) / max(data.weight, TINY)
    theta = space.theta(probabilities)
    if options.training == "counts":
        objective, monitor = -dot(theta, data.counted), Monitor()
        _heard(monitor, 1, objective, theta, probabilities, on_iteration)
        return HmmFit(space, probabilities, objective, "counted", monitor.history, totals, data.weight)
    criterion = Criterion(data, options.training, options.power)
    monitor, iteration, growth = Monitor(options.max_iterations, options.tolerance), 0, LEAST_GROWTH
    value, slope = criterion(theta)
    while True:
        reason = _heard(monitor, iteration, value, theta, probabilities, on_iteration)
        found = None if reason else _grown(space, probabilities, slope, criterion, value, growth)
        if found is None:
            reason = reason or "line_search"
            return HmmFit(space, probabilities, value, reason, monitor.history, totals, data.weight)
        probabilities, theta, value, slope, growth = found
        iteration += 1


class Criterion:
    """What discriminative training minimises, and p_j dF/dp_j of what it maximises as counts over the layout."""

    def __init__(self, data: HmmData, name: str, power: float):
        self.loss = ChainObjective(data.labelled, data.space.layout)
        self.weights, self.name = data.labelled.weights, name
        self.power = power if name == "mmi" else 1.0
        if not 0.0 < self.power:
            raise EspalierError(f"hmm.power is {power}: expected a number above 0")

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        if self.name != "mce":
            value, gradient = self.loss.value_and_gradient(self.power * theta)
            return value, -self.power * gradient
        data, layout = self.loss.dataset, self.loss.layout
        _, log_z = self.loss.expectations(theta)
        right = exp(decode.sequence_score(data, layout, theta) - log_z)
        weights = self.weights * right
        expected, _ = self.loss.expectations(theta, weights)
        slope = observed_counts(data._replace(weights=weights), layout) - expected
        return float(self.weights.sum()) - dot(self.weights, right), slope


def _grown(space, probabilities, slope, criterion, value, growth):
    """One growth transformation: the smallest C, doubled, with which the criterion does not get worse; None if none."""
    change = space.amounts(slope, signed=True)
    for _ in range(MOST_DOUBLINGS):
        new = _transformed(space, probabilities, change, growth)
        theta = space.theta(new)
        new_value, new_slope = criterion(theta)
        if new_value <= value:
            return new, theta, new_value, new_slope, max(LEAST_GROWTH, growth / 2)
        growth *= 2.0
    return None


def _transformed(space: HmmSpace, p: HmmAmounts, change: HmmAmounts, growth: float) -> HmmAmounts:
    """p_j (dF/dp_j + C) within each distribution, made to add up to what it had.

    C is `growth` times what leaves every number half of itself at least, and as much as the changes are large. What a
    label has for unseen and unknown observations stays: labelled data never have any, and would take all of it away.
    """

    def needed(part, of):
        return np.where(of > TINY, -2.0 * part / np.maximum(of, TINY), 0.0)

    start = growth * (max(0.0, float(needed(change.first, p.first).max())) + np.abs(change.first).sum() + LEAST)
    leaving = np.maximum(needed(change.pairs, p.pairs).max(axis=1), needed(change.last, p.last))
    leaving = np.maximum(leaving, 0.0) + np.abs(change.pairs).sum(axis=1) + np.abs(change.last) + LEAST
    most = np.zeros(p.unseen.size)
    np.maximum.at(most, space.cell, needed(change.cells, p.cells))
    emitting_ones = growth * (most + space.by_label(np.abs(change.cells)).ravel() + LEAST)
    leaving = growth * leaving
    cells = np.maximum(change.cells + emitting_ones[space.cell] * p.cells, 0.0)
    share = space.by_label(p.cells) / np.maximum(space.by_label(cells), TINY)
    grown = (
        change.first + start * p.first, change.pairs + leaving[:, None] * p.pairs, change.last + leaving * p.last,
        cells * share.ravel()[space.cell], p.unseen, p.unknown,
    )  # fmt: skip
    return normalised(space, HmmAmounts(*(np.maximum(part, 0.0) for part in grown)))
