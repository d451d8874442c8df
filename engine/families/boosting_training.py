"""Sequence AdaBoost: round after round one weight moves, the one that lowers a bound on the odds most (LABELSEQ 3.3).

What falls is R = sum_i w'_i (e^l_i - 1), the weighed odds against the right labellings, the exponential loss of
`engine.losses.exponential_loss`; Z = R after a round / R before it. A round (algorithm 4)

    chooses the weight with the smallest bound on Z, loose or tight (`engine.families.boosting_bounds`),
    moves it to where the bound is smallest, or for `exact` Z itself, by Newton's method along the weight,
    runs forward-backward over the sequences that may count it, and scores the weights of observations in them again.

Sequences, or positions by themselves: AdaBoost.MR without pairs of labels, or given the right label before each
(Viterbi-AdaBoost), where each position is a sequence of its own over the same weights.
"""

import math

import numpy as np

from espalier.engine.chain.pair_sets import check_labels, check_observations, check_theta, refuse_triples_in
from espalier.engine.data.dataset import Dataset, select
from espalier.engine.errors import EspalierError
from espalier.engine.families.boosting_bounds import LONGEST_STEP, Candidates
from espalier.engine.families.boosting_chain import BoostedChain, Feature, Holders
from espalier.engine.families.boosting_options import BOUNDS, EXAMPLES, BoostingOptions
from espalier.engine.families.memm import local_problem
from espalier.engine.labels.scheme import Transitions
from espalier.engine.losses.chain_objective import active_weights
from espalier.engine.losses.exponential_loss import FLOOR
from espalier.engine.losses.loss_table import check_pi
from espalier.engine.optimise.monitor import Monitor, Result
from espalier.engine.optimise.solver_state import SolverState
from espalier.engine.weights.layout import FAMILIES, NO_CODE, Layout

LEAST_GAIN = 1e-13  # of R: a weight that gains less only rounds
FALLEN = 100.0  # log R is so far below the unit of odds when they get a new one
NEAR = 1e-3  # a step of Newton's method this short is the last: what is left of it is the square


class BoostingRounds:
    """One training, round by round: `choose`, `step`, `move`."""

    def __init__(
        self, data: Dataset, layout: Layout, options: BoostingOptions, theta: np.ndarray | None = None,
        transitions: Transitions | None = None,
    ):  # fmt: skip
        check_options(options)
        check_observations(data, layout)
        check_labels(data.labels, layout)
        refuse_triples_in(layout, "boosting")
        if len(data.token_weights):
            raise EspalierError("boosting weighs whole sequences and takes no token weights: give them to sequences")
        if data.valued.shape[1]:
            raise EspalierError("boosting counts observations and takes no values: leave %v out of the templates")
        if not np.any(data.weights > 0.0):
            raise EspalierError("no sequence has a weight above 0: boosting needs one to learn from")
        self.theta = np.zeros(layout.size) if theta is None else theta.copy()
        check_theta(self.theta, layout)
        self.options, self.layout = options, layout
        data = select(data, np.flatnonzero(data.weights > 0.0))
        own, transitions = (data, layout), transitions if options.examples == "sequences" else None
        if options.examples == "positions":
            own = local_problem(data, without_pairs(layout))
        elif options.examples == "neighbours":
            own = local_problem(data, layout)
        self.boosted = BoostedChain(*own, self._scored(), options.pi, transitions)
        self.candidates = Candidates(self.boosted, options.bound == "loose")
        weights = self.boosted.log_weights
        self.log_floor = math.log(FLOOR) + float(weights.max()) + math.log(float(np.sum(weights == weights.max())))

    def _scored(self) -> np.ndarray:
        """The weights that sequences are scored by: those of pairs are none of a position's by itself."""
        if self.options.examples != "positions":
            return self.theta
        return np.append(self.theta[: self.layout.bounds()[0]], [])

    @property
    def log_odds(self) -> float:
        """log R, with the little more that keeps it finite."""
        high = max(self.boosted.log_odds, self.log_floor)
        return high + math.log1p(math.exp(-abs(self.boosted.log_odds - self.log_floor)))

    @property
    def done(self) -> bool:
        return self.boosted.log_odds <= self.log_floor

    def choose(self) -> tuple[Feature, float]:
        """The weight with the smallest bound on Z, and by how much less than 1 it is."""
        slot, gain = self.candidates.best()
        return self.candidates.feature(slot), gain

    def step(self, feature: Feature, held: Holders) -> float:
        """How far it moves."""
        if self.options.bound == "loose":
            return self.candidates.loose_step(feature.slot, self.options.epsilon)
        step = self.candidates.tight_step(feature, held, self.options.epsilon)
        if self.options.bound == "tight" or self.candidates.is_exact(feature):
            return step
        return self.exact_step(feature, held, step)

    def exact_step(self, feature: Feature, held: Holders, step: float) -> float:
        """Where Z is smallest, beginning at a step that lowers it; with two sequences more for epsilon."""
        weight = self.options.epsilon * self.boosted.total

        def at(step: float) -> tuple[float, float, float]:
            value, slope, bend = self.boosted.along(feature, held, step)
            up, down = weight * math.exp(step), weight * math.exp(-step)
            return value + up + down, slope + up - down, bend + up + down

        value, slope, bend = at(step)
        for _ in range(30):
            if math.isfinite(value):
                break
            step *= 0.5
            value, slope, bend = at(step)
        for _ in range(50):
            further = -slope / bend if bend > 0.0 else 0.0
            further = min(max(further, -LONGEST_STEP - step), LONGEST_STEP - step)
            if abs(further) <= NEAR * max(1.0, abs(step)):
                return step + further
            found = at(step + further)
            while not found[0] <= value and abs(further) > NEAR:
                further *= 0.5
                found = at(step + further)
            if not found[0] <= value:
                return step
            step, (value, slope, bend) = step + further, found
        return step

    def move(self, feature: Feature, held: Holders, step: float) -> None:
        """Move a weight, and renew all that it has changed."""
        boosted = self.boosted
        self.theta[feature.slot] += step
        boosted.move(feature, held, step)
        boosted.renew(held.sequences)
        boosted.weigh()
        if boosted.log_odds < boosted.reference - FALLEN and not self.done:
            boosted.refer()
            self.candidates.score(np.arange(len(self.candidates.runs.family)))
            return
        self.candidates.score(self.candidates.touched(held.sequences))

    def repeat(self, slots: np.ndarray, steps: np.ndarray, reference: float) -> None:
        """Move weights as an earlier run has done; what is made of the scores is made once, at the end."""
        boosted = self.boosted
        for slot, step in zip(slots.astype(np.int64).tolist(), steps.tolist(), strict=True):
            feature = self.candidates.feature(slot)
            self.theta[slot] += step
            boosted.move(feature, boosted.held(feature), step)
        boosted.renew(np.arange(len(boosted.lengths)))
        boosted.reference = reference
        boosted.weigh()
        self.candidates.score(np.arange(len(self.candidates.runs.family)))


def check_options(options: BoostingOptions) -> None:
    for name, known in (("bound", BOUNDS), ("examples", EXAMPLES)):
        if getattr(options, name) not in known:
            raise EspalierError(f"{name} is {getattr(options, name)!r}: expected one of {', '.join(known)}")
    if options.rounds < 1:
        raise EspalierError(f"rounds is {options.rounds}: expected at least 1")
    if not (math.isfinite(options.epsilon) and options.epsilon > 0.0):
        raise EspalierError(f"epsilon is {options.epsilon}: expected a number above 0")
    check_pi(options.pi)


def without_pairs(layout: Layout) -> Layout:
    """The unigram weights of a layout, where they are."""
    end = layout.bounds()[0]
    nothing = np.full(layout.n_observations + 1, end, np.int64)
    rest = nothing, NO_CODE.astype(np.int32)
    return Layout(
        layout.n_labels, end, layout.unigram_ptr, layout.unigram_code, *rest, nothing.copy(), rest[1].copy(),
        nothing.copy(), NO_CODE.copy(),
    )  # fmt: skip


def fit(
    data: Dataset, layout: Layout, options: BoostingOptions, theta: np.ndarray | None = None, listen=None, keeper=None,
    transitions: Transitions | None = None,
) -> Result:  # fmt: skip
    """Round after round until the odds are gone, no weight gains, `listen` asks to stop, or there were enough.

    The objective is log R, that of the exponential loss; a record also tells the weight that moved, by how much, and Z.
    """
    training = BoostingRounds(data, layout, options, theta, transitions)
    monitor = Monitor(options.rounds, 0.0, options.rounds + 1, on_iteration=listen, keeper=keeper)
    slots, steps, state = [], [], monitor.earlier(layout.size)
    if state is None:
        iteration, reason = 0, monitor.check(record_of(training, 0), training.theta)
    else:
        iteration, reason = state.iteration, state.reason
        slots, steps = state.vectors["slots"].tolist(), state.vectors["steps"].tolist()
        training.repeat(state.vectors["slots"], state.vectors["steps"], state.extra["reference"])
    while reason is None:
        reason, more = one_round(training)
        if reason is not None:
            break
        iteration += 1
        slots.append(float(more["slot"]))
        steps.append(more["step"])
        reason = monitor.check(record_of(training, iteration, more), training.theta)
        if keeper:
            vectors = {"slots": np.array(slots), "steps": np.array(steps)}
            objective, extra = monitor.history[-1]["objective"], {"reference": training.boosted.reference}
            nothing = np.zeros_like(training.theta)
            monitor.keep(
                SolverState(training.theta.copy(), objective, nothing, iteration, iteration, reason, vectors=vectors,
                            extra=extra)
            )  # fmt: skip
    return Result(
        training.theta, monitor.history[-1]["objective"], reason, iteration, iteration, monitor.history
    )


def one_round(training: BoostingRounds) -> tuple[str | None, dict]:
    """One round: (why there was none, None where there was one; the weight that moved, how far, Z)."""
    if training.done:
        return "odds", {}
    feature, gain = training.choose()
    if gain <= LEAST_GAIN:
        return "no_gain", {}
    held, before = training.boosted.held(feature), training.boosted.log_odds
    step = training.step(feature, held)
    training.move(feature, held, step)
    return None, {
        "slot": feature.slot, "step": step, "z": math.exp(min(training.boosted.log_odds - before, 700.0)),
        "bound": 1.0 - gain,
    }  # fmt: skip


def record_of(training: BoostingRounds, iteration: int, more: dict | None = None) -> dict:
    record = {"iteration": iteration, "objective": training.log_odds}
    if more:
        family, observation, previous, label = (int(c[0]) for c in training.layout.slots([more["slot"]]))
        record |= {"family": FAMILIES[family], "observation": observation, "previous": previous, "label": label}
        record |= {name: more[name] for name in ("step", "z", "bound")}
    return record | active_weights(training.layout, training.theta)


def boosted_bytes(training: BoostingRounds) -> int:
    """Of the arrays that a training keeps beside its data and its weights."""
    boosted, candidates = training.boosted, training.candidates
    tuples = boosted.chain, boosted.where, candidates.visits, candidates.runs
    return sum(array.nbytes for one in tuples for array in one) + candidates.terms.nbytes
