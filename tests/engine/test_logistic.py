"""Logistic regression against its formulas term by term, finite differences, scipy, and itself by other ways."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import classifiers as reference
from scipy import optimize

from espalier.engine.data.bags import bags_of_matrix, join_bags, select_bags, with_constant
from espalier.engine.errors import EspalierError
from espalier.engine.families.logistic import LogisticEntropy, LogisticModel, LogisticObjective, fit_logistic, solve
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise, minimise_by_newton
from espalier.engine.runtime.threads import set_threads
from espalier.engine.semisup.entropy import EntropyRegularised, minimise_with_entropy

ROUNDING = 1e-11
STEP, DIFFERENCE = 1e-5, 2e-7  # central differences: truncation 1e-10, cancellation 1e-16 * |loss| / 1e-5
MEET = 1e-6  # of theta, between solvers: the gap of the objective is its square
KKT = 1e-5
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=40)
SEEDS = st.integers(0, 10**6)
RIDGE = ElasticNet(0.0, 0.3)
both = pytest.mark.parametrize("parametrisation", ["reference", "full"])


def problem(seed, n=8, features=3, n_classes=3):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 4, (n, features)).astype(float)
    labels = rng.integers(0, n_classes, n)
    labels[:n_classes] = range(n_classes)
    return x, labels, rng.choice([0.5, 1.0, 2.5], n)


def theta_of(rows, parametrisation):
    """The engine's flat theta from the oracle's [K][F]."""
    rows = np.asarray(rows)
    return np.ascontiguousarray((rows[1:] if parametrisation == "reference" else rows).T).ravel()


def random_rows(seed, n_classes, features, parametrisation, scale=0.7):
    rows = np.random.default_rng(seed).normal(0.0, scale, (n_classes, features))
    if parametrisation == "reference":
        rows[0] = 0.0
    return rows


@both
@EXAMPLES
@given(SEEDS, st.integers(2, 4))
@pytest.mark.nojit
def test_loss_gradient_and_hessian(parametrisation, seed, n_classes):
    x, labels, weights = problem(seed, n_classes=n_classes)
    rows = random_rows(seed, n_classes, 3, parametrisation)
    objective = LogisticObjective(bags_of_matrix(x), labels, n_classes, weights, parametrisation)
    theta = theta_of(rows, parametrisation)
    value, gradient = objective.value_and_gradient(theta)
    assert value == pytest.approx(reference.loss(x, labels, rows, weights), abs=ROUNDING)
    assert objective.value(theta) == pytest.approx(value, abs=ROUNDING)
    expected = theta_of(reference.gradient(x, labels, rows, weights), parametrisation)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=ROUNDING)
    whole = reference.hessian(x, rows, weights)
    first = 1 if parametrisation == "reference" else 0
    whole = whole[first:, :, first:, :].transpose(1, 0, 3, 2).reshape(len(theta), len(theta))
    np.testing.assert_allclose(objective.hessian(theta), whole, rtol=0, atol=ROUNDING)
    assert objective.active(theta) == {"active": len(theta)}


def central(function, theta, k):
    shift = np.zeros_like(theta)
    shift[k] = STEP
    return (function(theta + shift) - function(theta - shift)) / (2 * STEP)


@both
@EXAMPLES
@given(SEEDS)
def test_derivatives_meet_central_differences(parametrisation, seed):
    x, labels, weights = problem(seed)
    objective = LogisticObjective(bags_of_matrix(x), labels, 3, weights, parametrisation)
    theta = theta_of(random_rows(seed, 3, 3, parametrisation), parametrisation)
    gradient, hessian = objective.value_and_gradient(theta)[1], objective.hessian(theta)
    for k in range(len(theta)):
        assert central(objective.value, theta, k) == pytest.approx(gradient[k], abs=DIFFERENCE)
        slopes = central(lambda at: objective.value_and_gradient(at)[1], theta, k)
        np.testing.assert_allclose(slopes, hessian[k], rtol=0, atol=DIFFERENCE)


def test_scores_of_thousands_do_not_overflow():
    x, labels = np.array([[3.0, 0.0], [0.0, 2.0]]), [0, 1]
    objective = LogisticObjective(bags_of_matrix(x), labels)
    for rows in ([[0, 0], [700, 700]], [[0, 0], [-5000, 5000]]):
        value, gradient = objective.value_and_gradient(theta_of(rows, "reference"))
        assert value == pytest.approx(reference.loss(x, labels, rows, [1, 1]), rel=1e-14)
        assert np.isfinite(gradient).all()


def test_the_binary_model_by_hand():
    """One feature, counts 1 and 2; theta is of class 1."""
    objective = LogisticObjective(bags_of_matrix([[1.0], [2.0]]), [1, 0])
    value, gradient = objective.value_and_gradient(np.array([0.5]))
    assert value == pytest.approx(math.log(1 + math.exp(-0.5)) + math.log(1 + math.exp(1.0)))
    g = [1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(-1.0))]
    assert gradient[0] == pytest.approx((g[0] - 1) * 1 + g[1] * 2)
    hessian = objective.hessian(np.array([0.5]))
    assert hessian[0, 0] == pytest.approx(g[0] * (1 - g[0]) + 4 * g[1] * (1 - g[1]))


# ---- optima


def by_scipy(x, labels, n_classes, weights, rho2, parametrisation):
    """The optimum of the oracle's own functions."""
    first = 1 if parametrisation == "reference" else 0

    def rows_of(flat):
        rows = np.zeros((n_classes, x.shape[1]))
        rows[first:] = flat.reshape(-1, x.shape[1])
        return rows

    def both(flat):
        rows = rows_of(flat)
        slope = reference.gradient(x, labels, rows, weights)[first:].ravel() + rho2 * flat
        return reference.loss(x, labels, rows, weights) + rho2 / 2 * flat @ flat, slope

    start = np.zeros((n_classes - first) * x.shape[1])
    return rows_of(optimize.minimize(both, start, jac=True, method="BFGS", options={"gtol": 1e-9}).x)


@both
@pytest.mark.parametrize("n_classes", [2, 3])
def test_all_solvers_meet_at_the_optimum(parametrisation, n_classes):
    x, labels, weights = problem(7, n=12, n_classes=n_classes)
    best = theta_of(by_scipy(x, labels, n_classes, weights, 0.3, parametrisation), parametrisation)
    for solver in ("newton", "lbfgs", "owlqn", "pqn", "cg-pr", "cg-fr", "auto"):
        model = fit_logistic(bags_of_matrix(x), labels, n_classes, weights, RIDGE, solver, parametrisation,
                             max_iterations=2000, tolerance=1e-13)  # fmt: skip
        np.testing.assert_allclose(model.theta, best, rtol=0, atol=MEET, err_msg=solver)


def test_newton_converges_quadratically():
    """A handful of steps from zero, where L-BFGS takes dozens; the last ones square the gradient."""
    x, labels, weights = problem(8, n=40, features=8, n_classes=3)
    objective = LogisticObjective(bags_of_matrix(x), labels, 3, weights)
    result = minimise_by_newton(objective, RIDGE, tolerance=1e-10)
    assert result.stop_reason == "optimal" and result.iterations < 9
    norms = [line["gradient_norm"] for line in result.trace]
    assert norms[-1] < norms[-2] ** 1.5 < norms[-3] ** 1.5


def test_newton_goes_on_where_the_objective_is_only_rounding():
    """Losses of a million hide the last gain; a smaller gradient still tells the better point."""
    rng = np.random.default_rng(2)
    x, labels = rng.poisson(1.0, (2000, 8)).astype(float), rng.integers(0, 2, 2000)
    objective = LogisticObjective(bags_of_matrix(x), labels, weights=np.full(2000, 1000.0))
    result = minimise_by_newton(objective, ElasticNet(0.0, 1e-3), tolerance=0.0)
    assert result.trace[-1]["gradient_norm"] < 1e-14 * objective.observed.max()
    assert result.stop_reason in ("line_search", "converged")


def test_newton_halves_steps_that_are_too_long():
    """From a saturated start the Hessian nearly vanishes and a full step goes astray."""
    x, labels = np.array([[1.0], [1.0], [1.0]]), [1, 0, 1]
    objective = LogisticObjective(bags_of_matrix(x), labels)
    result = minimise_by_newton(objective, ElasticNet(), np.array([12.0]), tolerance=1e-10)
    assert result.theta[0] == pytest.approx(math.log(2.0), abs=1e-8)
    values = [line["objective"] for line in result.trace]
    assert all(after <= before + 1e-12 for before, after in zip(values, values[1:], strict=False))
    assert result.evaluations > result.iterations + 1, "no step was halved: the test tests nothing"


def test_newton_survives_a_singular_hessian():
    """A feature that never occurs, the same feature twice, and the redundant vector of `full`."""
    x, labels, weights = problem(9, n=30, features=2, n_classes=2)
    twice = np.column_stack([x, x[:, 0], np.zeros(len(x))])
    plain = fit_logistic(bags_of_matrix(x), labels, 2, weights, solver="newton")
    for parametrisation in ("reference", "full"):
        model = fit_logistic(bags_of_matrix(twice), labels, 2, weights, ElasticNet(), "newton", parametrisation)
        np.testing.assert_allclose(model.probabilities(bags_of_matrix(twice)), plain.probabilities(bags_of_matrix(x)),
                                   rtol=0, atol=1e-6)  # fmt: skip


def test_unpenalised_predictions_do_not_depend_on_the_parametrisation():
    x, labels, weights = problem(10, n=60, features=3, n_classes=3)
    bags = bags_of_matrix(x)
    first, second = (
        fit_logistic(bags, labels, 3, weights, ElasticNet(), "lbfgs", p, max_iterations=3000, tolerance=1e-14)
        for p in ("reference", "full")
    )
    assert len(first.theta) == 6 and len(second.theta) == 9
    np.testing.assert_allclose(first.probabilities(bags), second.probabilities(bags), rtol=0, atol=1e-5)


def test_two_classes_with_a_ridge_in_both_parametrisations():
    """theta_1 - theta_0 of `full` costs half as much as theta of `reference`; the vectors of `full` sum to 0."""
    x, labels, weights = problem(11, n=20, features=3, n_classes=2)
    bags = bags_of_matrix(x)
    one = fit_logistic(bags, labels, 2, weights, ElasticNet(0.0, 0.3), "newton", "reference")
    other = fit_logistic(bags, labels, 2, weights, ElasticNet(0.0, 0.6), "newton", "full")
    np.testing.assert_allclose(one.probabilities(bags), other.probabilities(bags), rtol=0, atol=1e-8)
    np.testing.assert_allclose(other.theta.reshape(3, 2).sum(axis=1), 0.0, atol=1e-9)


@both
def test_the_full_ridge_optimum_sums_to_zero(parametrisation):
    x, labels, weights = problem(12, n=20, features=3, n_classes=4)
    theta = fit_logistic(bags_of_matrix(x), labels, 4, weights, RIDGE, "newton", parametrisation).theta
    sums = theta.reshape(3, -1).sum(axis=1)
    assert (np.abs(sums).max() < 1e-9) == (parametrisation == "full")


@pytest.mark.parametrize("solver", ["owlqn", "pqn"])
@pytest.mark.parametrize("rho2", [0.0, 0.2])
def test_optimality_conditions_of_the_elastic_net(solver, rho2):
    x, labels, weights = problem(13, n=30, features=6, n_classes=3)
    model = fit_logistic(bags_of_matrix(x), labels, 3, weights, ElasticNet(2.0, rho2), solver, max_iterations=2000,
                         tolerance=1e-13)  # fmt: skip
    rows = np.zeros((3, 6))
    rows[1:] = model.theta.reshape(6, 2).T
    slope = reference.gradient(x, labels, rows, weights)[1:] + rho2 * rows[1:]
    off = rows[1:] == 0.0
    assert 0 < off.sum() < off.size
    assert np.all(np.abs(slope[off]) <= 2.0 + KKT)
    np.testing.assert_allclose(slope[~off], -2.0 * np.sign(rows[1:][~off]), rtol=0, atol=KKT)
    assert model.result.trace[-1]["active"] == (~off).sum()


def test_an_intercept_is_a_constant_feature():
    """Without any other feature the probability is the share of the class."""
    empty = bags_of_matrix(np.zeros((4, 1)))
    model = fit_logistic(with_constant(empty), [1, 0, 1, 1])
    assert model.probabilities(with_constant(empty))[0] == pytest.approx([0.25, 0.75], abs=1e-8)


# ---- weights


@both
@pytest.mark.parametrize("solver", ["newton", "lbfgs", "owlqn"])
def test_a_weight_of_two_is_a_duplicate(parametrisation, solver):
    x, labels, _ = problem(14, n=10)
    bags, options = bags_of_matrix(x), dict(solver=solver, parametrisation=parametrisation, tolerance=1e-13,
                                            max_iterations=1000)  # fmt: skip
    weights = np.where(np.arange(10) % 3 == 0, 2.0, 1.0)
    again = np.flatnonzero(weights == 2.0)
    doubled = fit_logistic(join_bags(bags, select_bags(bags, again)), np.concatenate([labels, labels[again]]), 3,
                           None, RIDGE, **options)  # fmt: skip
    weighted = fit_logistic(bags, labels, 3, weights, RIDGE, **options)
    np.testing.assert_allclose(weighted.theta, doubled.theta, rtol=0, atol=1e-7)


def test_equal_weights_scale_the_penalty_only():
    x, labels, _ = problem(15, n=10)
    bags = bags_of_matrix(x)
    plain = fit_logistic(bags, labels, 3, None, ElasticNet(0.0, 0.3), "newton")
    scaled = fit_logistic(bags, labels, 3, np.full(10, 5.0), ElasticNet(0.0, 1.5), "newton")
    np.testing.assert_allclose(plain.theta, scaled.theta, rtol=0, atol=1e-9)


def test_an_example_of_weight_zero_does_not_matter():
    x, labels, weights = problem(16, n=10)
    weights[7:] = 0.0
    bags = bags_of_matrix(x)
    without = fit_logistic(select_bags(bags, np.arange(7)), labels[:7], 3, weights[:7], RIDGE, "newton")
    model = fit_logistic(bags, labels, 3, weights, RIDGE, "newton")
    np.testing.assert_allclose(model.theta, without.theta, rtol=0, atol=1e-9)


# ---- entropy regularisation


@both
@EXAMPLES
@given(SEEDS, st.integers(2, 4), st.sampled_from([0.5, 3.0, 400.0]))
@pytest.mark.nojit
def test_entropy_and_its_gradient(parametrisation, seed, n_classes, scale):
    x, _, weights = problem(seed, n_classes=n_classes)
    rows = random_rows(seed, n_classes, 3, parametrisation, scale)
    term = LogisticEntropy(bags_of_matrix(x), n_classes, 0.5, weights, parametrisation)
    theta, gradient = theta_of(rows, parametrisation), np.zeros(term.chunks.size)
    value = term.add_gradient(theta, gradient)
    assert value == pytest.approx(reference.entropy(x, rows, 0.5 * weights), abs=1e-10)
    assert term.value(theta) == pytest.approx(value, abs=1e-10)
    expected = theta_of(reference.entropy_gradient(x, rows, 0.5 * weights), parametrisation)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=ROUNDING * max(1.0, scale) * 10)


@both
@EXAMPLES
@given(SEEDS)
def test_entropy_gradient_meets_central_differences(parametrisation, seed):
    x, labels, weights = problem(seed)
    theta = theta_of(random_rows(seed, 3, 3, parametrisation), parametrisation)
    objective = EntropyRegularised(
        LogisticObjective(bags_of_matrix(x), labels, 3, weights, parametrisation),
        LogisticEntropy(bags_of_matrix(x[::-1]), 3, 0.7, weights, parametrisation),
    )
    value, gradient = objective.value_and_gradient(theta)
    assert objective.value(theta) == pytest.approx(value, abs=ROUNDING)
    for k in range(len(theta)):
        assert central(objective.value, theta, k) == pytest.approx(gradient[k], abs=DIFFERENCE)


def two_heaps(seed, pool=200):
    """Two classes with words of their own and some in common; three labelled examples each."""
    rng = np.random.default_rng(seed)
    centres = np.array([[0.45, 0.35, 0.1, 0.1], [0.1, 0.1, 0.35, 0.45]])
    truth = rng.integers(0, 2, pool)
    draw = lambda k: rng.multinomial(6, centres[k])  # noqa: E731
    x = np.array([draw(k) for k in (0, 1, 0, 1, 0, 1)])
    return x.astype(float), np.array([0, 1, 0, 1, 0, 1]), np.array([draw(k) for k in truth]).astype(float), truth


def test_regularised_training_lowers_the_entropy_from_the_supervised_optimum():
    x, labels, pool, truth = two_heaps(1)
    labelled = LogisticObjective(bags_of_matrix(x), labels)
    term = LogisticEntropy(bags_of_matrix(pool), 2, 0.01)
    supervised, found = minimise_with_entropy(labelled, term, ElasticNet(0.0, 0.1), tolerance=1e-10)
    assert term.value(found.theta) < term.value(supervised.theta)
    assert found.trace[0]["objective"] == pytest.approx(supervised.objective + term.value(supervised.theta))
    assert found.objective < found.trace[0]["objective"]
    model = LogisticModel(found.theta, 2, 4, "reference", found)
    assert (model.predict(bags_of_matrix(pool)) == truth).mean() > 0.9
    none = minimise_with_entropy(labelled, LogisticEntropy(bags_of_matrix(pool), 2, 0.0), ElasticNet(0.0, 0.1),
                                 tolerance=1e-10)  # fmt: skip
    np.testing.assert_allclose(none[1].theta, none[0].theta, rtol=0, atol=1e-4)


def test_a_pool_weight_of_two_is_a_duplicate():
    x, _, _ = problem(17)
    theta = np.random.default_rng(1).normal(size=6)
    rows = np.concatenate([np.arange(8), [1, 4]])
    weights = np.ones(8)
    weights[[1, 4]] = 2.0
    gradients = np.zeros((2, 6))
    weighted = LogisticEntropy(bags_of_matrix(x), 3, 0.4, weights).add_gradient(theta, gradients[0])
    doubled = LogisticEntropy(bags_of_matrix(x[rows]), 3, 0.4).add_gradient(theta, gradients[1])
    assert weighted == pytest.approx(doubled, abs=ROUNDING)
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=0, atol=ROUNDING)


# ---- determinism and refusals


def test_bytes_do_not_depend_on_threads():
    rng = np.random.default_rng(18)
    x = rng.poisson(0.3, (3000, 40)).astype(float)
    labels, bags = rng.integers(0, 3, 3000), bags_of_matrix(x)
    assert len(LogisticObjective(bags, labels, 3).chunks.runs) > 4
    seen = set()
    try:
        for count in (1, 2, 4):
            set_threads(count)
            objective = EntropyRegularised(LogisticObjective(bags, labels, 3), LogisticEntropy(bags, 3, 0.1))
            fitted = minimise("lbfgs", objective, RIDGE, max_iterations=3, tolerance=0.0)
            by_newton = fit_logistic(bags, labels, 3, None, RIDGE, "newton", max_iterations=2)
            seen.add((fitted.theta.tobytes(), float(fitted.objective).hex(), by_newton.theta.tobytes()))
    finally:
        set_threads(None)
    assert len(seen) == 1


def test_auto_takes_newton_for_few_weights_only():
    x, labels, weights = problem(19)
    objective = LogisticObjective(bags_of_matrix(x), labels, 3, weights)
    few = solve(objective, RIDGE)
    assert few.theta.tobytes() == minimise_by_newton(objective, RIDGE, None, 200, 1e-9).theta.tobytes()
    wide = LogisticObjective(bags_of_matrix(np.pad(x, ((0, 0), (0, 400)))), labels, 3, weights)
    many = solve(wide, RIDGE)
    assert many.theta.tobytes() == minimise("lbfgs", wide, RIDGE, None, 200, 1e-9).theta.tobytes()


def test_separable_data_without_a_penalty_end_without_overflow():
    """The optimum is at infinity: a finite theta that separates, and no error."""
    model = fit_logistic(bags_of_matrix([[1.0, 0.0], [0.0, 1.0]]), [0, 1], solver="newton", max_iterations=500)
    assert np.isfinite(model.theta).all() and model.result.objective < 1e-6


class Nothing:
    size, offers = 1, frozenset({"gradient"})

    def value_and_gradient(self, theta):
        return 0.0, np.zeros(1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: fit_logistic(b, [0, 0]), "class 1 has no example of a weight above 0"),
        (lambda b: fit_logistic(b, [0, 1], weights=[1, 0]), "class 1 has no example"),
        (lambda b: fit_logistic(b, [0, 1], parametrisation="half"), "parametrisation is 'half': expected one"),
        (lambda b: fit_logistic(b, [0, 1], penalty=ElasticNet(1.0), solver="newton"), "newton cannot take rho1 = 1.0"),
        (lambda b: fit_logistic(b, [0, 1], penalty=ElasticNet(1.0), solver="lbfgs"), "lbfgs cannot take rho1 = 1.0"),
        (lambda b: fit_logistic(b, [0, 1], solver="sbcd"), "sbcd needs .* the sequences of .*, LogisticObj"),
        (lambda b: fit_logistic(b, [0, 1], theta0=np.zeros(7)), "theta0 has 7 weights: expected 2"),
        (lambda b: fit_logistic(b, [0, 1]).predict(bags_of_matrix([[1.0]])), "over 1 features: expected the 2"),
        (lambda b: LogisticObjective(select_bags(b, []), []), "there is no labelled count vector"),
        (lambda b: LogisticEntropy(select_bags(b, []), 2, 0.1), "the unlabelled pool is empty"),
        (lambda b: LogisticEntropy(b, 2, -1.0), "strength of the entropy is -1.0: expected a finite number"),
        (lambda b: LogisticEntropy(b, 2, math.nan), "strength of the entropy is nan"),
        (lambda b: minimise_by_newton(Nothing(), RIDGE), "newton needs a Hessian, Nothing has none"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_is_refused(call, message):
    with pytest.raises(EspalierError, match=message):
        call(bags_of_matrix([[1.0, 0.0], [0.0, 1.0]]))
