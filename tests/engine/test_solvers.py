"""Contracts of every solver in the registry, on every penalty it accepts, against scipy's optimum.

A new solver in `SOLVERS` is picked up by itself and cannot skip these tests. Those that say of
themselves that they are not exact have contracts of their own: near the optimum, and honest about it.
"""

import itertools
import math

import numpy as np
import pytest
from chain_problems import lattices, pack, random_theta, slot_features
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import solvers as reference
from reference.problems import BOTH, Problem, random_problem

from espalier.engine.data.dataset import make_dataset
from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.monitor import STOP_REASONS, Monitor
from espalier.engine.optimise.penalty import ElasticNet, soft_threshold
from espalier.engine.optimise.solvers import SOLVERS, fitting, minimise
from espalier.engine.runtime.threads import set_threads
from espalier.engine.weights.layout import dense_layout

TIGHT = 1e-9  # tolerance asked of the solvers
VIOLATION = 1e-4  # of the first-order conditions; the objective is flat there, so it is coarser than TIGHT
AGREEMENT = 1e-7  # relative, of objectives: the gap is quadratic in the violation
WEIGHTS = 1e-3  # of theta, where rho2 = 0.1 makes the optimum unique and |error|^2 <= 20 gaps
CRAWL = 1e-5  # relative; short steps stop when five of them gain TIGHT, and hundreds more would have followed
RISE = 1e-12  # relative; two sums of the same terms in another order may differ by rounding
LIMIT = 3000  # iterations; no solver should need them on a dozen tokens
SCALING = 1e-12, 30_000  # tolerance and limit for iterative scaling, which converges linearly and slowly
NEAR = 0.1  # relative; what a solver that is not exact may miss on a dozen tokens, after
EPOCHS = 300

PENALTIES = {
    "ridge": ElasticNet(0.0, 0.5),
    "lasso": ElasticNet(0.3, 0.0),
    "elastic net": ElasticNet(0.3, 0.1),
}
LAYOUTS = ("dense", "seen")
EXACT = [name for name, solver in SOLVERS.items() if solver.exact]
INEXACT = [name for name, solver in SOLVERS.items() if not solver.exact]
L1 = [name for name in EXACT if SOLVERS[name].accepts_l1]


def accepted(solvers):
    return [(s, p) for s, p in itertools.product(solvers, PENALTIES) if not PENALTIES[p].rho1 or SOLVERS[s].accepts_l1]


ACCEPTED = accepted(EXACT)


def tight(solver):
    """How far to go: as far as makes sense for what the solver is."""
    tolerance, limit = SCALING if solver in ("iis", "gis") else (TIGHT, LIMIT)
    return {"max_iterations": limit if SOLVERS[solver].exact else EPOCHS, "tolerance": tolerance}


@pytest.fixture(scope="module")
def packed():
    lengths = [4, 3, 2, 4, 1, 3, 2]
    problem = random_problem(21, 3, 4, 2, lengths)._replace(weights=[1.0, 2.5, 0.0, 1.0, 1.0, 1.0, 0.5])
    return {layout: pack(problem, layout) for layout in LAYOUTS}


@pytest.fixture(scope="module")
def enumerated(packed):
    return {
        layout: reference.enumerate_problem(
            p.problem.sequences,
            p.problem.labels,
            p.problem.n_labels,
            p.problem.weights,
            slot_features(p.layout),
        )
        for layout, p in packed.items()
    }


@pytest.fixture(scope="module")
def optima(enumerated):
    """The oracle's own first-order conditions hold to 1e-7, else it is no reference."""
    found = {}
    for layout, (name, penalty) in itertools.product(LAYOUTS, PENALTIES.items()):
        found[layout, name] = reference.optimum(enumerated[layout], penalty.rho1, penalty.rho2)
        assert found[layout, name].violation < 1e-7
    return found


@pytest.fixture(scope="module")
def solved(packed):
    """Every solver on every penalty and layout, once."""
    results = {}

    def solve(solver, name, layout):
        key = solver, name, layout
        if key not in results:
            objective = ChainObjective(packed[layout].dataset, packed[layout].layout)
            results[key] = minimise(solver, objective, PENALTIES[name], **tight(solver))
        return results[key]

    return solve


every_case = pytest.mark.parametrize(
    ("solver", "name", "layout"), [(s, p, layout) for (s, p), layout in itertools.product(ACCEPTED, LAYOUTS)]
)


def objective_of(packed, layout="dense"):
    return ChainObjective(packed[layout].dataset, packed[layout].layout)


# ---- penalty


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 2.0]), st.sampled_from([0.0, 0.1]))
@pytest.mark.nojit
def test_penalty_value_and_optimality(seed, rho1, rho2):
    theta, gradient = random_theta(7, seed, 0.6), random_theta(7, seed + 1)
    penalty = ElasticNet(rho1, rho2)
    expected = rho1 * sum(abs(t) for t in theta) + rho2 / 2 * sum(t * t for t in theta)
    assert penalty.value(theta) == pytest.approx(expected, abs=1e-12)
    assert penalty.optimality(theta, gradient) == pytest.approx(
        reference.violation(theta, gradient, rho1, rho2), abs=1e-12
    )


@pytest.mark.parametrize(("z", "expected"), [(3.0, 2.0), (-3.0, -2.0), (0.5, 0.0), (1.0, 0.0), (-1.0, 0.0)])
def test_soft_threshold_by_hand(z, expected):
    assert soft_threshold(z, 1.0) == expected
    assert ElasticNet(1.0, 0.0).proximal_step(np.array([z]), 1.0).tolist() == [expected]


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 2.0]), st.sampled_from([0.0, 0.1]))
def test_a_proximal_step_leaves_nothing_to_gain(seed, rho1, rho2):
    """At u it is optimal: curvature (u - theta) is the slope of what is not the penalty there."""
    theta, curvature = random_theta(7, seed, 0.6), np.abs(random_theta(7, seed + 1)) + 0.1
    penalty = ElasticNet(rho1, rho2)
    found = penalty.proximal_step(theta, curvature)
    assert reference.violation(found, curvature * (found - theta), rho1, rho2) <= 1e-12
    assert penalty.optimality(found, curvature * (found - theta)) <= 1e-12


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
def test_what_is_free_is_what_may_move(penalty):
    theta, gradient = random_theta(40, 2, 0.5), random_theta(40, 3, 0.7)
    slopes = penalty.pseudo_gradient(theta, gradient)
    free = penalty.free(theta, penalty.smooth_gradient(theta, gradient))
    np.testing.assert_array_equal(free, (theta != 0.0) | (slopes != 0.0))
    np.testing.assert_array_equal(penalty.gradient_in_orthant(theta, gradient), np.where(theta != 0.0, slopes, 0.0))
    assert penalty.is_smooth == (penalty.orthant(theta, slopes) is None) == (penalty.rho1 == 0.0)
    assert penalty.scaled(0.5) == ElasticNet(0.5 * penalty.rho1, 0.5 * penalty.rho2)
    move = penalty.value(theta) - penalty.value(0.0 * theta)
    assert penalty.change_of_kinks(0.0 * theta, theta) <= move + 1e-12


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["rho1", "rho2"])
def test_a_bad_penalty_is_named(name, bad):
    with pytest.raises(EspalierError, match=f"{name} is {bad}: expected a finite number of at least 0"):
        ElasticNet(**{name: bad})


# ---- optimum


def test_the_problem_is_not_trivial(optima):
    """Some weights are zero and some are not, so that sparsity is really tested."""
    for layout in LAYOUTS:
        active = np.count_nonzero(optima[layout, "elastic net"].theta)
        assert 3 <= active < len(optima[layout, "elastic net"].theta) - 3


@every_case
def test_first_order_conditions_hold(packed, solved, solver, name, layout):
    result, objective, penalty = solved(solver, name, layout), objective_of(packed, layout), PENALTIES[name]
    gradient = objective.value_and_gradient(result.theta)[1]
    assert penalty.optimality(result.theta, gradient) <= VIOLATION
    assert reference.violation(result.theta, gradient, penalty.rho1, penalty.rho2) <= VIOLATION


@every_case
def test_the_reference_optimum_is_reached(enumerated, optima, solved, solver, name, layout):
    result, best, penalty = solved(solver, name, layout), optima[layout, name], PENALTIES[name]
    reached = reference.objective(enumerated[layout], result.theta, penalty.rho1, penalty.rho2)
    assert result.objective == pytest.approx(reached, rel=RISE)
    assert reached == pytest.approx(best.objective, rel=AGREEMENT)
    assert reached >= best.objective * (1 - RISE)
    if penalty.rho2:
        np.testing.assert_allclose(result.theta, best.theta, rtol=0, atol=WEIGHTS)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("solver", L1)
def test_exact_zeros(optima, solved, solver, layout):
    """Zero at the optimum is 0.0, not merely small, and what is active there is active."""
    result, best = solved(solver, "elastic net", layout), optima[layout, "elastic net"]
    assert not result.theta[best.theta == 0.0].any()
    assert np.all(result.theta[np.abs(best.theta) > 10 * WEIGHTS] != 0.0)


@pytest.mark.parametrize("name", PENALTIES)
def test_solvers_agree_with_each_other(solved, name):
    results = [solved(solver, name, "dense") for solver, accepted in ACCEPTED if accepted == name]
    for one, other in itertools.combinations(results, 2):
        assert one.objective == pytest.approx(other.objective, rel=AGREEMENT)


# ---- trace and stop reason


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("solver", "name"), [case for case in ACCEPTED if SOLVERS[case[0]].monotone])
def test_the_objective_never_rises_where_promised(solved, solver, name, layout):
    values = [line["objective"] for line in solved(solver, name, layout).trace]
    assert len(values) > 2
    assert values[-1] < values[0]
    for before, after in itertools.pairwise(values):
        assert after <= before + RISE * abs(before)


@pytest.mark.parametrize("solver", [name for name, s in SOLVERS.items() if s.monotone])
def test_correlated_weights_do_not_make_the_objective_rise(solver):
    """One observation in three columns at every position: the weights of its block act together, and the
    diagonal second derivative (16), which takes them one by one, promises steps that are far too long."""
    labels = [[0, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]]
    packed = pack(Problem(2, [BOTH], True, [[[0, 0, 0]] * 6] * 3, labels, [1.0, 2.0, 1.0]))
    objective, penalty = ChainObjective(packed.dataset, packed.layout), ElasticNet(0.0, 0.5)
    enumerated = reference.enumerate_problem(
        packed.problem.sequences, labels, 2, packed.problem.weights, slot_features(packed.layout)
    )
    best = reference.optimum(enumerated, 0.0, 0.5).objective
    for theta0 in (
        None,
        random_theta(objective.size, 1, scale=2.0),
        random_theta(objective.size, 2, scale=2.0),
    ):
        result = minimise(solver, objective, penalty, theta0=theta0, **tight(solver) | {"tolerance": TIGHT})
        values = [line["objective"] for line in result.trace]
        assert all(after <= before + RISE * abs(before) for before, after in itertools.pairwise(values))
        assert result.objective == pytest.approx(best, rel=CRAWL)


@every_case
def test_the_trace_tells_what_happened(packed, solved, solver, name, layout):
    result, objective, penalty = solved(solver, name, layout), objective_of(packed, layout), PENALTIES[name]
    last = result.trace[-1]
    assert [line["iteration"] for line in result.trace] == list(range(result.iterations + 1))
    assert last["evaluations"] <= result.evaluations
    evaluations = [line["evaluations"] for line in result.trace]
    assert evaluations == sorted(evaluations) and evaluations[0] >= 1
    value, gradient = objective.value_and_gradient(result.theta)
    assert last["loss"] == pytest.approx(value, rel=RISE)
    assert last["objective"] == pytest.approx(value + penalty.value(result.theta), rel=RISE)
    assert last["gradient_norm"] == pytest.approx(penalty.optimality(result.theta, gradient), abs=1e-10)
    family = packed[layout].layout.slots()[0]
    for index, key in enumerate(("active_unigram", "active_start", "active_bigram")):
        assert last[key] == np.count_nonzero(result.theta[family == index])


@every_case
def test_the_stop_reason_is_documented_and_true(packed, solved, solver, name, layout):
    result = solved(solver, name, layout)
    assert result.stop_reason in STOP_REASONS
    assert result.stop_reason != "max_iterations", "a dozen tokens should not need so long"
    if result.stop_reason == "optimal":
        scale = max(1.0, objective_of(packed, layout).observed.max())
        assert result.trace[-1]["gradient_norm"] <= TIGHT * scale


@pytest.mark.parametrize(("solver", "name"), accepted(SOLVERS))
def test_one_iteration_is_one_iteration(packed, solver, name):
    result = minimise(solver, objective_of(packed), PENALTIES[name], max_iterations=1, tolerance=TIGHT)
    assert (result.stop_reason, result.iterations) == ("max_iterations", 1)
    assert len(result.trace) == 2
    assert result.objective < result.trace[0]["objective"]


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_iteration_leaves_the_start(packed, solver):
    theta = random_theta(packed["dense"].layout.size, 3)
    result = minimise(solver, objective_of(packed), PENALTIES["ridge"], theta0=theta, max_iterations=0)
    assert (result.stop_reason, result.iterations) == ("max_iterations", 0)
    np.testing.assert_array_equal(result.theta, theta)


@every_case
def test_a_warm_start_at_the_optimum_stops_at_once(packed, optima, solver, name, layout):
    best = optima[layout, name]
    start = best.theta.copy()
    result = minimise(solver, objective_of(packed, layout), PENALTIES[name], theta0=start, tolerance=1e-4)
    assert (result.stop_reason, result.iterations) == ("optimal", 0)
    np.testing.assert_array_equal(result.theta, best.theta)


@pytest.mark.parametrize(("solver", "name"), ACCEPTED)
def test_a_start_far_away_ends_at_the_same_optimum(packed, optima, solver, name):
    start = random_theta(packed["dense"].layout.size, 5, scale=3.0)
    kept = start.copy()
    result = minimise(solver, objective_of(packed), PENALTIES[name], theta0=start, **tight(solver))
    assert result.objective == pytest.approx(optima["dense", name].objective, rel=AGREEMENT)
    np.testing.assert_array_equal(start, kept)


@pytest.mark.parametrize(("solver", "name"), ACCEPTED)
def test_a_loose_tolerance_converges_and_says_so(packed, optima, solver, name):
    """The drop over `period` iterations is below the tolerance, and was not one iteration before."""
    result = minimise(solver, objective_of(packed), PENALTIES[name], max_iterations=LIMIT, tolerance=1e-3, period=3)
    assert result.stop_reason in ("converged", "optimal")
    values = [line["objective"] for line in result.trace]
    if result.stop_reason == "converged":
        assert values[-4] - values[-1] <= 1e-3 * max(1.0, values[-1])
        if len(values) > 4:
            assert values[-5] - values[-2] > 1e-3 * max(1.0, values[-2])
    assert result.objective == pytest.approx(optima["dense", name].objective, rel=0.02)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_caller_hears_each_iteration_and_can_stop(packed, solver):
    """Each record comes with the theta that it is about."""
    objective, penalty, heard = objective_of(packed), PENALTIES["ridge"], []

    def listen(line, theta):
        heard.append(line["iteration"])
        assert objective.value(theta) + penalty.value(theta) == pytest.approx(line["objective"], rel=RISE)
        return line["iteration"] == 2

    result = minimise(solver, objective, penalty, tolerance=0.0, on_iteration=listen)
    assert (result.stop_reason, result.iterations, heard) == ("stopped", 2, [0, 1, 2])


# ---- solvers that are not exact

every_near_case = pytest.mark.parametrize(
    ("solver", "name", "layout"), [(s, p, layout) for (s, p), layout in itertools.product(accepted(INEXACT), LAYOUTS)]
)


@every_near_case
def test_an_inexact_solver_comes_near_the_optimum(optima, solved, solver, name, layout):
    result, best = solved(solver, name, layout), optima[layout, name]
    assert best.objective <= result.objective <= (1 + NEAR) * best.objective


@every_near_case
def test_an_inexact_solver_returns_its_best_iteration(packed, solved, solver, name, layout):
    result, objective, penalty = solved(solver, name, layout), objective_of(packed, layout), PENALTIES[name]
    assert result.objective == min(line["objective"] for line in result.trace)
    assert objective.value(result.theta) + penalty.value(result.theta) == pytest.approx(result.objective, rel=RISE)
    assert [line["iteration"] for line in result.trace] == list(range(result.iterations + 1))
    assert result.stop_reason in STOP_REASONS and result.stop_reason != "optimal"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("solver", [name for name in INEXACT if SOLVERS[name].accepts_l1])
def test_an_inexact_solver_leaves_exact_zeros_too(optima, solved, solver, layout):
    """Most of what is zero at the optimum is 0.0, and what is large there is not."""
    result, best = solved(solver, "elastic net", layout), optima[layout, "elastic net"]
    zero = best.theta == 0.0
    assert np.count_nonzero(result.theta[zero]) < 0.5 * np.count_nonzero(zero)
    assert np.all(result.theta[np.abs(best.theta) > 0.5] != 0.0)


# ---- sparsity at the edge


@pytest.mark.parametrize("solver", L1)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_large_rho1_leaves_nothing(packed, solver, layout):
    objective = objective_of(packed, layout)
    largest = np.abs(objective.value_and_gradient(np.zeros(objective.size))[1]).max()
    for theta0 in (None, random_theta(objective.size, 6)):
        result = minimise(solver, objective, ElasticNet(1.01 * largest, 0.0), theta0=theta0, max_iterations=LIMIT)
        assert not result.theta.any()
    result = minimise(solver, objective, ElasticNet(0.9 * largest, 0.0), **tight(solver))
    assert 0 < np.count_nonzero(result.theta) < 6


@pytest.mark.parametrize("solver", L1)
def test_weights_of_observations_that_never_occur_go_to_zero(solver):
    """Observation 3 is in the vocabulary, not in the data: a warm start's weights for it must go."""
    packed = pack(random_problem(31, 2, 3, 1, [3, 2, 3], kinds=[BOTH] * 3)._replace(kinds=[BOTH] * 4))
    start = random_theta(packed.layout.size, 7)
    result = minimise(
        solver, ChainObjective(packed.dataset, packed.layout), ElasticNet(0.2, 0.1), theta0=start, **tight(solver)
    )
    observation = packed.layout.slots()[1]
    assert np.any(start[observation == 3] != 0.0)
    assert not result.theta[observation == 3].any()


@pytest.mark.parametrize("solver", EXACT)
def test_all_weights_zero_makes_the_penalty_alone(packed, solver):
    """Every sequence has weight 0: there is no loss, and theta = 0 is optimal."""
    nothing = packed["dense"].dataset._replace(weights=np.zeros_like(packed["dense"].dataset.weights))
    objective = ChainObjective(nothing, packed["dense"].layout)
    result = minimise(solver, objective, PENALTIES["ridge"], theta0=random_theta(objective.size, 8), **tight(solver))
    assert result.objective == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_sequence_at_all_is_refused_or_the_penalty_alone(solver):
    try:
        objective = ChainObjective(make_dataset(np.zeros((0, 1)), [], [0]), dense_layout(2, [BOTH]))
        result = minimise(solver, objective, PENALTIES["ridge"], theta0=np.ones(objective.size), max_iterations=LIMIT)
    except EspalierError:
        return
    np.testing.assert_allclose(result.theta, 0.0, atol=WEIGHTS)


# ---- what is refused


@pytest.mark.parametrize("solver", [name for name, s in SOLVERS.items() if not s.accepts_l1])
def test_an_l1_term_is_refused_where_it_cannot_be_taken(packed, solver):
    with pytest.raises(
        EspalierError, match=rf"{solver} cannot take rho1 = 0.3: set rho1 to 0 or choose one of .*owlqn"
    ):
        minimise(solver, objective_of(packed), PENALTIES["elastic net"])


def test_an_unknown_solver_is_refused(packed):
    with pytest.raises(EspalierError, match="solver 'newton' is not known: choose one of .*lbfgs"):
        minimise("newton", objective_of(packed), PENALTIES["ridge"])


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_start_that_is_not_finite_is_refused(packed, solver, bad):
    objective = objective_of(packed)
    theta = np.zeros(objective.size)
    theta[5] = bad
    with pytest.raises(EspalierError, match=r"theta0\[5\] is not finite"):
        minimise(solver, objective, PENALTIES["ridge"], theta0=theta)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_start_of_the_wrong_length_is_refused(packed, solver):
    objective = objective_of(packed)
    with pytest.raises(EspalierError, match=f"theta0 has {objective.size + 1} weights: expected {objective.size}"):
        minimise(solver, objective, PENALTIES["ridge"], theta0=np.zeros(objective.size + 1))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_sequence_weights_that_are_not_finite_are_refused(packed, solver, bad):
    weights = packed["dense"].dataset.weights.copy()
    weights[1] = bad
    with pytest.raises(EspalierError, match="(not finite|finite number)"):
        objective = ChainObjective(packed["dense"].dataset._replace(weights=weights), packed["dense"].layout)
        minimise(solver, objective, PENALTIES["ridge"])


class Quadratic:
    """(theta - target)' diag(scale) (theta - target) / 2: the least that a solver may ask of an objective."""

    target, scale, size = np.array([3.0, -0.5, 0.1]), np.array([1.0, 4.0, 2.0]), 3
    offers = frozenset({"gradient"})

    def value_and_gradient(self, theta):
        off = theta - self.target
        return float(0.5 * off @ (self.scale * off)), self.scale * off


@pytest.mark.parametrize("solver", [name for name in SOLVERS if SOLVERS[name].fits(Quadratic.offers)])
def test_gradient_solvers_take_any_objective(solver):
    """Optimum by hand: soft threshold of scale * target by rho1, over scale + rho2."""
    rho1 = 0.5 if SOLVERS[solver].accepts_l1 else 0.0
    penalty = ElasticNet(rho1, 1.0)
    result = minimise(solver, Quadratic(), penalty, max_iterations=100, tolerance=TIGHT)
    drift = Quadratic.scale * Quadratic.target
    expected = np.sign(drift) * np.maximum(np.abs(drift) - rho1, 0.0) / (Quadratic.scale + 1.0)
    np.testing.assert_allclose(result.theta, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("solver", [name for name in SOLVERS if not SOLVERS[name].fits(Quadratic.offers)])
def test_a_solver_says_what_it_needs(solver):
    with pytest.raises(EspalierError, match=f"{solver} needs .*, Quadratic has none: choose one of lbfgs, owlqn, pqn"):
        minimise(solver, Quadratic(), PENALTIES["ridge"])


@pytest.mark.parametrize(("solver", "known"), [("lbfgs", "none"), ("sgd", "seed"), ("cd", "revisit_zeros")])
def test_an_option_that_the_solver_does_not_have_is_refused(packed, solver, known):
    with pytest.raises(EspalierError, match=f"{solver} has no option 'momentum': it has {known}"):
        minimise(solver, objective_of(packed), PENALTIES["ridge"], momentum=0.9)


# ---- monitor alone


def check(monitor, iteration, objective, gradient_norm=1.0):
    return monitor.check({"iteration": iteration, "objective": objective, "gradient_norm": gradient_norm}, np.zeros(1))


def test_monitor_reasons():
    assert check(Monitor(10, 1e-4, 5), 0, 1.0, gradient_norm=0.0) == "optimal"
    assert check(Monitor(0, 1e-4, 5), 0, 1.0) == "max_iterations"
    assert check(Monitor(10, 1e-4, 5, on_iteration=lambda *_: True), 0, 1.0) == "stopped"
    assert check(Monitor(10, 1e-4, 5, on_iteration=lambda *_: None), 0, 1.0) is None


def test_monitor_waits_a_whole_period_before_it_says_converged():
    monitor = Monitor(100, 1e-4, 3)
    assert [check(monitor, i, 1.0) for i in range(4)] == [None, None, None, "converged"]
    falling = Monitor(100, 1e-4, 3)
    assert [check(falling, i, 10.0 - i) for i in range(6)] == [None] * 6
    assert len(falling.history) == 6


def test_monitor_looks_back_on_the_last_third():
    """It falls ever more slowly, as 1 + 0.1 / (k + 1): five iterations bring less than 0.1 % long before the end."""
    monitor, heard = Monitor(1000, 1e-3), []
    while not heard or heard[-1] is None:
        heard.append(check(monitor, len(heard), 1 + 0.1 / (len(heard) + 1)))
    values = [line["objective"] for line in monitor.history]
    assert heard[-1] == "converged" and values[-1] < 1 + 2.5e-3
    assert values[-1 - len(values) // 3] - values[-1] <= 1e-3
    early = next(k for k in range(5, len(values)) if values[k - 5] - values[k] <= 1e-3)
    assert early < len(values) - 20 and values[early] > 1 + 3.5e-3, "what five iterations alone would have left"


def test_a_slow_beginning_is_not_taken_for_the_end():
    """As from a start that is nearly there: six iterations bring nothing, those after them 1 %."""
    values = [1.01 - 1e-5 * k for k in range(7)] + [1 + 0.01 * 0.8**k for k in range(60)]
    reasons = {}
    for least in (5, SOLVERS["pqn"].least):
        monitor = Monitor(1000, 5e-4, least=least)
        found = [(check(monitor, k, value), value) for k, value in enumerate(values)]
        reasons[least] = next(value for reason, value in found if reason == "converged")
    assert reasons[5] > 1.009 and reasons[SOLVERS["pqn"].least] < 1.001


def test_a_gradient_alone_is_not_optimal_where_much_may_be_left():
    record = {"iteration": 0, "objective": 1.0, "gradient_norm": 0.0, "gap": 0.5}
    assert Monitor(10, 1e-4).check(record, np.zeros(1)) is None
    assert Monitor(10, 1e-4).check(record | {"gap": 1e-5}, np.zeros(1)) == "optimal"


def test_the_caller_may_name_its_reason():
    assert check(Monitor(10, 1e-4, on_iteration=lambda *_: "patience"), 0, 1.0) == "patience"


@pytest.mark.parametrize(("solver", "name"), [("pqn", name) for name in PENALTIES])
def test_the_gap_is_a_bound_and_closes(packed, optima, solver, name):
    penalty, objective = PENALTIES[name], objective_of(packed)
    best = optima["dense", name].objective
    for seed in range(3):
        theta = random_theta(objective.size, seed)
        loss, gradient = objective.value_and_gradient(theta)
        gap = penalty.gap(theta, gradient, loss)
        if not (penalty.rho1 or penalty.rho2):
            assert gap is None
            continue
        assert gap >= loss + penalty.value(theta) - best - 1e-9
        theta = optima["dense", name].theta
        loss, gradient = objective.value_and_gradient(theta)
        assert penalty.gap(theta, gradient, loss) <= 1e-4 * best


@pytest.mark.parametrize("rho1", [0.5, 0.0])
def test_auto_begins_with_stochastic_gradient_and_paths_need_no_start(packed, rho1):
    assert fitting("auto") == "hybrid" and fitting("auto", along_path=True) == "pqn"
    assert fitting("sbcd") == fitting("sbcd", along_path=True) == "sbcd"
    same = [minimise(name, objective_of(packed), ElasticNet(rho1, 0.1)).theta for name in ("auto", "hybrid")]
    np.testing.assert_array_equal(*same)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_monitor_refuses_an_objective_that_is_not_finite(bad):
    with pytest.raises(EspalierError, match=f"the objective is {bad} at iteration 3: weights or data are not finite"):
        check(Monitor(10, 1e-4), 3, bad)


# ---- determinism


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_model_does_not_depend_on_threads(solver):
    lengths = np.random.default_rng(41).integers(1, 10, 600).tolist()
    packed = pack(random_problem(42, 4, 6, 2, lengths))
    penalty = PENALTIES["elastic net" if SOLVERS[solver].accepts_l1 else "ridge"]
    seen = set()
    try:
        for count in (1, 2, 4):
            set_threads(count)
            objective = ChainObjective(packed.dataset, packed.layout)
            result = minimise(solver, objective, penalty, max_iterations=2, tolerance=0.0)
            seen.add((result.theta.tobytes(), float(result.objective).hex()))
    finally:
        set_threads(None)
    assert len(seen) == 1


# ---- random problems


RANDOM = given(lattices(), st.sampled_from(["sparse", "auto", "dense"]))


@settings(deadline=None, derandomize=True, max_examples=4)
@RANDOM
def test_a_few_random_problems_reach_the_optimum(lattice, sparse):
    assert_optimum(lattice, sparse)


@pytest.mark.long
@settings(deadline=None, derandomize=True, max_examples=12)
@RANDOM
def test_random_problems_reach_the_optimum(lattice, sparse):
    assert_optimum(lattice, sparse)


def assert_optimum(lattice, sparse):
    """From a random start, which also gives weights to observations that do not occur."""
    (problem, dataset, layout), theta0 = lattice
    enumerated = reference.enumerate_problem(
        problem.sequences, problem.labels, problem.n_labels, problem.weights, slot_features(layout)
    )
    for rho1 in (0.0, 0.3):
        best = reference.optimum(enumerated, rho1, 0.1)  # rho2 > 0: strictly convex, whatever the data
        for solver in L1 if rho1 else EXACT:
            objective = ChainObjective(dataset, layout, sparse=sparse)
            result = minimise(solver, objective, ElasticNet(rho1, 0.1), theta0=theta0, **tight(solver))
            assert result.objective == pytest.approx(best.objective, rel=AGREEMENT, abs=AGREEMENT), (
                solver,
                rho1,
            )
