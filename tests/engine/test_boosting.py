"""Sequence AdaBoost against sums over every wrong labelling, and what is known of its bounds by proof."""

import math

import numpy as np
import pytest
from chain_problems import pack, random_theta, slot_features, weights_of
from reference import boosting as oracle
from reference.problems import Problem, random_problem

from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families import boosting_training as training
from espalier.engine.families.boosting_options import BOUNDS, BoostingOptions
from espalier.engine.families.boosting_training import BoostingRounds, fit
from espalier.engine.labels.scheme import Transitions
from espalier.engine.losses.exponential_loss import ExponentialObjective
from espalier.engine.runtime import threads

SUMS = 1e-9  # of exponentials that are added up in another order
STEPS = 1e-5  # a step is found by Newton's method, to about the square of its tolerance
PROBLEMS = [
    random_problem(3, 3, 5, 2, [4, 2, 3, 1, 4, 3]),
    random_problem(4, 2, 3, 3, [5, 1, 4, 2, 2], start=False),
    random_problem(6, 2, 2, 3, [5, 4, 5], none=0.0),  # an observation may stand there twice
]
MAY_FOLLOW = np.array([[1, 1, 0], [1, 1, 1], [1, 0, 1]], bool)
ENDS = Transitions(np.array([True, True, False]), MAY_FOLLOW, np.array([True, False, True]))


def begun(problem, options=None, seed=None, layout="seen", transitions=None):
    """(packed, a training of it from weights at random)"""
    packed = pack(problem, layout)
    theta = None if seed is None else random_theta(packed.layout.size, seed, scale=0.7)
    return packed, BoostingRounds(*packed[1:], options or BoostingOptions(pi=0.7), theta, transitions)


def rows_of(packed, made, slot, pi=0.7, allowed=None):
    """(rows, limits) of the oracle for a weight at the weights as they are"""
    key, weights = slot_features(packed.layout)[slot], weights_of(packed.layout, made.theta)
    return oracle.differences(packed.problem, weights, key, pi, allowed), oracle.ranges(packed.problem, key)


@pytest.mark.parametrize("layout", ["dense", "seen"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_odds_and_gains_are_those_of_every_wrong_labelling(problem, layout):
    for bound in ("tight", "loose"):
        packed, made = begun(problem, BoostingOptions(bound, pi=0.7), 5, layout)
        log_odds = oracle.log_odds(problem, weights_of(packed.layout, made.theta), 0.7)
        assert made.boosted.log_odds == pytest.approx(log_odds, rel=SUMS)
        gains, found = made.candidates.gains, []
        for slot in range(packed.layout.size):
            rows, limits = rows_of(packed, made, slot)
            if bound == "tight":
                least = oracle.smallest(lambda step, rows=rows, limits=limits: oracle.tight(rows, limits, step))[1]
                assert gains.gain[slot] / made.boosted.total == pytest.approx(1.0 - least, abs=SUMS)
            else:
                least = oracle.smallest(lambda step, rows=rows, limits=limits: oracle.loose(rows, limits, step))[1]
                mean = math.fsum(p * u for row in rows for p, u in row)
                assert gains.slope[slot] / made.boosted.total == pytest.approx(mean, abs=SUMS)
            found.append(least)
        feature, gain = made.choose()
        assert 1.0 - gain == pytest.approx(min(found), abs=SUMS) and found[feature.slot] <= min(found) + SUMS


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_step_is_where_its_bound_is_smallest(problem, bound):
    """With two labellings more for epsilon; of the loose bound by its formula."""
    packed, made = begun(problem, BoostingOptions(bound, pi=0.7, epsilon=0.02), 6)
    for slot in range(packed.layout.size):
        rows, limits = rows_of(packed, made, slot)
        feature = made.candidates.feature(slot)
        step = made.step(feature, made.boosted.held(feature))
        if bound == "loose":
            if any(low < high for low, high in limits):
                assert step == pytest.approx(oracle.loose_step(rows, limits, 0.02), abs=STEPS)
            continue
        plain = (lambda d, r=rows, lim=limits: oracle.tight(r, lim, d)) if bound == "tight" else (
            lambda d, r=rows: oracle.exact(r, d)
        )  # fmt: skip
        smooth = oracle.smoothed(plain, 0.02)
        where, least = oracle.smallest(smooth)
        assert smooth(step) == pytest.approx(least, abs=SUMS)
        assert step == pytest.approx(where, abs=STEPS)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_loss_along_a_weight_and_its_derivatives(problem):
    packed, made = begun(problem, seed=7)
    keys, size = slot_features(packed.layout), 1e-5
    for slot in range(packed.layout.size):
        feature = made.candidates.feature(slot)
        held = made.boosted.held(feature)
        rest = made.boosted.total - float(made.boosted.odds[held.sequences].sum())
        for step in (0.0, 0.8, -1.7):
            rows = oracle.differences(problem, weights_of(packed.layout, made.theta), keys[slot], 0.7)
            value, slope, bend = made.boosted.along(feature, held, step)
            assert (value + rest) / made.boosted.total == pytest.approx(oracle.exact(rows, step), rel=SUMS)
            around = [made.boosted.along(feature, held, step + d)[0] for d in (-size, size)]
            assert slope == pytest.approx((around[1] - around[0]) / (2 * size), rel=1e-5, abs=1e-7)
            slopes = [made.boosted.along(feature, held, step + d)[1] for d in (-size, size)]
            assert bend == pytest.approx((slopes[1] - slopes[0]) / (2 * size), rel=1e-5, abs=1e-7)


def test_bounds_are_in_their_order_for_any_step():
    for problem in PROBLEMS:
        packed, made = begun(problem, seed=8)
        for slot in range(packed.layout.size):
            rows, limits = rows_of(packed, made, slot)
            for step in (-2.0, -0.3, 0.0, 0.1, 1.0, 3.0):
                exact, tight, loose = (f(*a) for f, a in (
                    (oracle.exact, (rows, step)), (oracle.tight, (rows, limits, step)),
                    (oracle.loose, (rows, limits, step))))  # fmt: skip
                assert exact <= tight * (1 + SUMS) and tight <= loose * (1 + SUMS)


def test_bounds_of_the_figure():
    """LABELSEQ 3.1: intervals of four sequences; one interval for all is further off than each its own."""
    highs, lows = (4, 3, 3, 2), (-2, -3, 0, -1)
    limits = list(zip(lows, highs, strict=True))
    rows = [[(0.25 / (high - low + 1), u) for u in range(low, high + 1)] for low, high in limits]
    for step in np.linspace(-1.0, 1.0, 9).tolist():
        exact, tight = oracle.exact(rows, step), oracle.tight(rows, limits, step)
        loose = oracle.loose(rows, limits, step)
        assert exact <= tight * (1 + SUMS) <= loose * (1 + 2 * SUMS)
        assert step == 0.0 or exact < tight < loose
    bounds = oracle.tight, oracle.loose
    least = [oracle.smallest(lambda d, bound=bound: bound(rows, limits, d))[1] for bound in bounds]
    assert least[0] < least[1]


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_rounds_bring_the_odds_down_and_z_tells_by_how_much(problem, bound):
    """R falls by each exact round; the product of all Z is R in the end over R in the beginning."""
    packed = pack(problem, "seen")
    found = fit(*packed[1:], BoostingOptions(bound, rounds=40, pi=0.7, epsilon=1e-3))
    weights = weights_of(packed.layout, found.theta)
    assert found.objective == pytest.approx(oracle.log_odds(problem, weights, 0.7), rel=1e-6)
    fallen = sum(math.log(record["z"]) for record in found.trace[1:])
    assert found.trace[0]["objective"] + fallen == pytest.approx(found.objective, abs=1e-6)
    assert all(record["z"] < 1.0 for record in found.trace[1:])
    objective = ExponentialObjective(packed.dataset, packed.layout, pi=0.7)
    assert found.objective == pytest.approx(objective.value(found.theta), rel=1e-6)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_many_exact_rounds_come_to_the_minimum(problem):
    """That of the exponential loss, whose gradient is then small; where R has one."""
    rng = np.random.default_rng(1)
    labels = [rng.integers(0, problem.n_labels, len(row)).tolist() for row in problem.labels]
    packed = pack(problem._replace(labels=labels), "seen")
    found = fit(*packed[1:], BoostingOptions(rounds=3000, pi=0.7, epsilon=1e-9))
    value, gradient = ExponentialObjective(packed.dataset, packed.layout, pi=0.7).value_and_gradient(found.theta)
    assert found.stop_reason == "odds" or np.abs(gradient).max() < 1e-3


def test_a_round_leaves_what_a_new_look_would_find():
    """The index renews all that a round has touched: every number is as if it were made anew from the scores."""
    packed, made = begun(random_problem(9, 3, 9, 2, [4, 3, 2, 5, 1, 3, 4, 2], none=0.4))
    for _ in range(12):
        training.one_round(made)
        kept = made.boosted.odds.copy(), made.candidates.gains.gain.copy(), made.boosted.chain.gamma.copy()
        made.boosted.renew(np.arange(len(made.boosted.lengths)))
        made.boosted.weigh()
        made.candidates.score(np.arange(len(made.candidates.runs.family)))
        anew = made.boosted.odds, made.candidates.gains.gain, made.boosted.chain.gamma
        for before, now in zip(kept, anew, strict=True):
            assert before.tobytes() == now.tobytes()


def test_a_scheme_is_kept_to():
    problem = random_problem(11, 3, 4, 2, [4, 3, 2, 1], none=0.1)
    labels = [[0, 1, 2, 2], [1, 0, 0], [0, 0], [0]]
    problem = problem._replace(labels=labels, weights=[1.0] * 4)

    def allowed(y):
        return ENDS.start[y[0]] and ENDS.end[y[-1]] and all(ENDS.pair[a, b] for a, b in zip(y, y[1:], strict=False))

    assert all(map(allowed, labels))
    packed, made = begun(problem, seed=3, transitions=ENDS)
    expected = oracle.log_odds(problem, weights_of(packed.layout, made.theta), 0.7, allowed)
    assert made.boosted.log_odds == pytest.approx(expected, rel=SUMS)
    for slot in range(packed.layout.size):
        rows, _ = rows_of(packed, made, slot, allowed=allowed)
        feature = made.candidates.feature(slot)
        held = made.boosted.held(feature)
        rest = made.boosted.total - float(made.boosted.odds[held.sequences].sum())
        value = made.boosted.along(feature, held, 0.6)[0]
        assert (value + rest) / made.boosted.total == pytest.approx(oracle.exact(rows, 0.6), rel=SUMS)


@pytest.mark.parametrize("examples", ["positions", "neighbours"])
def test_positions_by_themselves(examples):
    """AdaBoost.MR: a labelling differs from the right one at one position; neighbours: given the right label before."""
    problem = PROBLEMS[0]
    packed = pack(problem, "seen")
    made = BoostingRounds(*packed[1:], BoostingOptions("tight", examples, pi=0.7))
    for _ in range(5):
        training.one_round(made)
    weights = weights_of(packed.layout, made.theta)
    if examples == "positions":
        assert not weights.lam or not any(weights.lam.values())
        assert not any(weights.start.values())
    total = 0.0
    for x, right, w in zip(problem.sequences, problem.labels, problem.weights, strict=True):
        for t, gold in enumerate(right):
            for y in range(problem.n_labels):
                other = [*right[:t], y, *right[t + 1 :]]
                keys = [oracle.chain.features(x[: t + 1], labels[: t + 1]) for labels in (other, right)]
                a, b = (math.fsum(oracle.chain.weight_of(weights, key) for key in one) for one in keys)
                total += (y != gold) * w * 0.7 * math.exp(a - b)
    assert made.boosted.log_odds == pytest.approx(math.log(total), rel=SUMS)


def test_features_that_are_always_right_or_wrong_move_by_finite_steps():
    """Observation 0 goes with label 0 always: L = 0 or U = 0 there, and epsilon says how far."""
    problem = Problem(2, [1, 1], False, [[[0]], [[0], [0]], [[1], [1]]], [[0], [0, 0], [1, 0]], [1.0] * 3)
    for bound in BOUNDS:
        for epsilon in (1e-2, 1e-8):
            found = fit(*pack(problem)[1:], BoostingOptions(bound, rounds=50, pi=1.0, epsilon=epsilon))
            assert np.all(np.isfinite(found.theta)) and found.theta[0] - found.theta[1] > 1.0


def test_nothing_is_wrong_with_a_single_label():
    problem = Problem(1, [3], True, [[[0], [0]], [[0]]], [[0, 0], [0]], [1.0, 2.0])
    found = fit(*pack(problem)[1:], BoostingOptions())
    assert (found.stop_reason, found.iterations) == ("odds", 0) and not found.theta.any()


def test_labels_that_nothing_explains():
    """No observation at all: no weight gains anything."""
    problem = Problem(2, [1], False, [[[-1]], [[-1], [0]], [[0]]], [[0], [1, 0], [1]], [1.0] * 3)
    found = fit(*pack(problem)[1:], BoostingOptions(rounds=200))
    assert found.stop_reason == "no_gain" and found.iterations < 200


def test_long_sequences_and_large_weights():
    """e^l is far beyond what a float holds, its logarithm is looked at; scores too wide are refused in words."""
    rng = np.random.default_rng(0)
    lengths = [20_000, 3, 1]
    problem = random_problem(1, 3, 4, 2, lengths)._replace(weights=[1.0] * 3)
    packed = pack(problem, "seen")
    found = fit(*packed[1:], BoostingOptions(rounds=5, pi=1.0))
    objectives = [record["objective"] for record in found.trace]
    assert np.all(np.diff(objectives) < 0.0) and objectives[0] > 20_000
    theta = rng.normal(0.0, 700.0, packed.layout.size)
    with pytest.raises(EspalierError, match="has scores that are further apart than 300 in one step"):
        fit(*packed[1:], BoostingOptions(rounds=5), theta)


class Keeper:
    def __init__(self, state=None):
        self.state, self.states = state, []

    def earlier(self, size):
        return self.state

    def offer(self, state):
        self.states.append(state)


@pytest.mark.parametrize("bound", BOUNDS)
def test_it_goes_on_where_it_was(bound, monkeypatch):
    """From the state after each round to the same weights as in one go, also where the unit of odds has changed."""
    monkeypatch.setattr(training, "FALLEN", 0.5)
    packed = pack(PROBLEMS[0])
    options, keeper = BoostingOptions(bound, rounds=12, pi=0.7), Keeper()
    theta = random_theta(packed.layout.size, 3)
    end = fit(*packed[1:], options, theta, keeper=keeper)
    for state in keeper.states:
        again = fit(*packed[1:], options, theta, keeper=Keeper(state))
        assert again.theta.tobytes() == end.theta.tobytes()
        assert (again.trace, again.stop_reason) == (end.trace, end.stop_reason)


@pytest.mark.parametrize("bound", ["exact", "loose"])
def test_any_number_of_threads_makes_the_same_bytes(bound):
    packed, found = pack(random_problem(2, 3, 30, 3, [3, 5, 2, 4] * 20)), set()
    try:
        for count in (1, 2, 8):
            threads.set_threads(count)
            found.add(fit(*packed[1:], BoostingOptions(bound, rounds=15, pi=0.7)).theta.tobytes())
    finally:
        threads.set_threads(None)
    assert len(found) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bound": "tightest"}, "bound is 'tightest': expected one of exact, tight, loose"),
        ({"examples": "words"}, "examples is 'words': expected one of sequences, positions, neighbours"),
        ({"rounds": 0}, "rounds is 0: expected at least 1"),
        ({"epsilon": 0.0}, "epsilon is 0.0: expected a number above 0"),
        ({"pi": 1.5}, "pi"),
    ],
)
def test_options_that_are_none(change, words):
    with pytest.raises(EspalierError, match=words):
        fit(*pack(PROBLEMS[0])[1:], BoostingOptions()._replace(**change))


def test_data_that_teach_nothing():
    packed = pack(PROBLEMS[0])
    data: Dataset = packed.dataset
    with pytest.raises(EspalierError, match="no sequence has a weight above 0: boosting needs one to learn from"):
        fit(data._replace(weights=0 * data.weights), packed.layout, BoostingOptions())
    with pytest.raises(EspalierError, match="position 0 has no label"):
        fit(data._replace(labels=np.full_like(data.labels, -1)), packed.layout, BoostingOptions())
    with pytest.raises(EspalierError, match="takes no token weights: give them to sequences"):
        fit(data._replace(token_weights=np.ones(len(data.labels))), packed.layout, BoostingOptions())
    valued = data._replace(valued=data.observations, values=np.ones(data.observations.shape))
    with pytest.raises(EspalierError, match="takes no values"):
        fit(valued, pack(PROBLEMS[0]._replace(kinds=[1] * 5)).layout, BoostingOptions())
