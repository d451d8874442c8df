"""Marginal and exponential loss of a chain, and Hessians times vectors, against enumeration and differences."""

import math

import numpy as np
import pytest
from chain_problems import lattices, pack, random_theta, slot_features, weights_of
from hypothesis import given, settings
from reference import losses as reference
from reference.problems import BOTH, UNIGRAM, Problem, random_problem

from espalier.engine.chain.batches import make_schedule
from espalier.engine.chain.column_groups import share
from espalier.engine.chain.covariance import ROOM, covariance_batch, make_mass_rows, no_edges, recursions
from espalier.engine.chain.forward_backward import make_rows
from espalier.engine.chain.scores import make_factors, padded
from espalier.engine.data.dataset import make_dataset, select
from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.losses.exponential_loss import FLOOR, ExponentialObjective
from espalier.engine.losses.marginal_loss import MarginalObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import SOLVERS, minimise
from espalier.engine.runtime.threads import set_threads
from espalier.engine.semisup.entropy import ChainEntropy
from espalier.engine.weights.layout import dense_layout

ROUNDING = 1e-9
STEP, DIFFERENCE = 1e-5, 2e-6  # central differences: truncation 1e-10, cancellation 1e-16 * |value| / 1e-5
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=40)
FEWER = settings(deadline=None, derandomize=True, max_examples=15)
DIGITS = 1e-14  # of counts, times the weights that the exponential loss gives them: up to 1e10 at its floor
DENSITIES = ("auto", "dense", "sparse")
LOSSES = {"marginal": MarginalObjective, "exponential": ExponentialObjective}
every_loss = pytest.mark.parametrize("loss", LOSSES)


def as_theta(layout, gradient):
    return np.array([gradient.get(feature, 0.0) for feature in slot_features(layout)])


def shares_of(problem):
    return [[w / len(x)] * len(x) for x, w in zip(problem.sequences, problem.weights, strict=True)]


def sets_of(problem):
    return [[{y} for y in row] for row in problem.labels]


def weighted(packed):
    """The same problem with a weight above zero for a sequence at least."""
    if any(packed.problem.weights):
        return packed
    ones = [1.0] * len(packed.problem.weights)
    return packed._replace(problem=packed.problem._replace(weights=ones),
                           dataset=packed.dataset._replace(weights=np.array(ones)))  # fmt: skip


def odds(packed, theta, pi=1.0, allowed=None):
    """log R by enumeration, with the floor that the objective has."""
    p = packed.problem
    weights, allowed = weights_of(packed.layout, theta), sets_of(p) if allowed is None else allowed
    bottom = math.log(FLOOR * sum(w * pi ** len(x) for x, w in zip(p.sequences, p.weights, strict=True)))
    if p.n_labels == 1:
        return bottom
    return np.logaddexp(reference.exponential(p.sequences, allowed, p.n_labels, weights, p.weights, pi), bottom)


def slopes(objective, theta, count=8):
    for k in range(0, len(theta), max(1, len(theta) // count)):
        shift = np.zeros_like(theta)
        shift[k] = STEP
        yield k, (objective.value(theta + shift) - objective.value(theta - shift)) / (2 * STEP)


# Marginal -------------------------------------------------------------------------------------------


def meet_marginal(packed, theta, sparse="auto", tolerance=ROUNDING, gathered=False):
    p, weights = packed.problem, weights_of(packed.layout, theta)
    given = p.sequences, p.labels, p.n_labels, weights, shares_of(p)
    objective = MarginalObjective(packed.dataset, packed.layout, sparse)
    objective.chain.scattered = not gathered
    value, gradient = objective.value_and_gradient(theta)
    expected = reference.marginal(*given)
    assert value == pytest.approx(expected, rel=1e-11, abs=tolerance)
    assert objective.value(theta) == pytest.approx(expected, rel=1e-11, abs=tolerance)
    slope = as_theta(packed.layout, reference.marginal_gradient(*given))
    np.testing.assert_allclose(gradient, slope, rtol=0, atol=tolerance)


@EXAMPLES
@given(lattice=lattices())
@pytest.mark.nojit
def test_marginal_loss_and_gradient(lattice):
    for sparse in DENSITIES:
        meet_marginal(*lattice, sparse)
    meet_marginal(*lattice, gathered=True)


@pytest.mark.parametrize("scale", [60.0, 250.0, 700.0])
@FEWER
@given(lattice=lattices(scale=1.0))
def test_marginal_loss_at_large_scores(scale, lattice):
    packed, theta = lattice
    for gathered in (False, True):
        meet_marginal(packed, scale * theta, tolerance=1e-11 * (100 + scale), gathered=gathered)


@pytest.mark.parametrize("n_labels", [1, 5, 9, 20])
def test_more_labels(n_labels):
    packed = pack(random_problem(n_labels, n_labels, 3, 2, [2, 1, 2, 2]))
    for seed, density in enumerate((1.0, 0.02, 0.3)):
        for sparse in DENSITIES:
            meet_marginal(packed, random_theta(packed.layout.size, seed, density), sparse)


@every_loss
@FEWER
@given(lattice=lattices())
def test_gradients_meet_central_differences(loss, lattice):
    packed, theta = lattice
    packed = weighted(packed)
    objective = LOSSES[loss](packed.dataset, packed.layout)
    gradient = objective.value_and_gradient(theta)[1]
    slack = DIFFERENCE + (DIGITS * softmax_weights(packed, theta, 1.0).sum() if loss == "exponential" else 0.0)
    for k, slope in slopes(objective, theta):
        assert slope == pytest.approx(gradient[k], abs=slack)


def test_oracles_agree_with_a_definition_by_hand():
    """Two labels, one position, odds of 3 for the right one."""
    weights = reference.chain.Weights({(0, 1): math.log(3.0)}, {}, {})
    assert reference.marginal([[[0]]], [[1]], 2, weights, [[2.0]]) == pytest.approx(2 * math.log(4 / 3))
    assert reference.exponential([[[0]]], [[{1}]], 2, weights, [6.0], 0.5) == pytest.approx(math.log(6 * 0.5 / 3))
    slope = reference.differences(
        lambda w: reference.marginal([[[0]]], [[1]], 2, w, [[2.0]]), weights
    )["mu", 0, 1]  # fmt: skip
    assert slope == pytest.approx(-2 * 0.25, abs=1e-9)
    assert reference.marginal_gradient([[[0]]], [[1]], 2, weights, [[2.0]])["mu", 0, 1] == pytest.approx(-0.5)


def test_unknown_positions_are_left_out_and_token_weights_multiply():
    packed = pack(random_problem(21, 3, 4, 2, [4, 3, 1])._replace(weights=[1.0, 2.0, 0.5]))
    p, rng = packed.problem, np.random.default_rng(3)
    tau, known = rng.choice([0.0, 0.5, 2.0], 8), np.array([1, 0, 1, 1, 0, 1, 1, 1], bool)
    theta = random_theta(packed.layout.size, 2)
    for tokens, some in ((tau, np.ones(8, bool)), (np.ones(8), known)):
        data = packed.dataset._replace(labels=np.where(some, packed.dataset.labels, -1).astype(np.int32))
        data = data._replace(token_weights=tokens) if some.all() else data
        cut = np.split(tokens * some, packed.dataset.offsets[1:-1])
        shares = [(np.array(a) * b).tolist() for a, b in zip(shares_of(p), cut, strict=True)]
        given = p.sequences, p.labels, p.n_labels, weights_of(packed.layout, theta), shares
        value, gradient = MarginalObjective(data, packed.layout).value_and_gradient(theta)
        assert value == pytest.approx(reference.marginal(*given), abs=ROUNDING)
        expected = as_theta(packed.layout, reference.marginal_gradient(*given))
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=ROUNDING)


def test_masses_of_labels_add_up_to_all_that_enters():
    """sum_y (L_t + R_t) = sum c + c_t; what comes back is kappa gamma - (L + R - a), whose sum is 0."""
    packed = pack(random_problem(8, 4, 5, 2, [6, 3, 9, 1])._replace(weights=[1.0, 2.0, 0.5, 1.0]))
    objective, theta = MarginalObjective(packed.dataset, packed.layout), random_theta(packed.layout.size, 1)
    data, layout, sets, width = objective.dataset, packed.layout, objective.chain.sets, padded(4)
    schedule = make_schedule(data.offsets, sets, [(0, 4)], ROOM * width)
    factors, shared = make_factors(theta, layout, sets), share(theta, layout, objective.chain.composites)
    work = make_rows(schedule.longest, width, 4, len(shared.columns))
    more, log_z = make_mass_rows(schedule.longest, width, 0), np.empty(4)
    recursions(theta, layout, data, sets, factors, shared, schedule, 0, work, more, log_z)
    alpha, beta = work.alpha[:, :4].copy(), work.gamma[:, :4] / work.alpha[:, :4]
    entering = objective.shares[np.argsort(schedule.row)]
    more.mass[np.arange(19), data.labels[np.argsort(schedule.row)]] = entering
    total = np.repeat(objective.totals, np.diff(data.offsets))[np.argsort(schedule.row)]
    more.level[:] = total
    covariance_batch(factors, no_edges(width), schedule, 0, work, more)
    ahead = (total[:, None] * alpha - more.left[:, :4]) * beta
    behind = more.mass[:, :4]
    assert (ahead > -1e-15).all() and (behind >= 0).all()
    np.testing.assert_allclose((ahead + behind).sum(axis=1), total + entering, rtol=1e-12)
    np.testing.assert_allclose(work.gamma[:, :4].sum(axis=1), 0.0, atol=1e-13)


# Exponential ----------------------------------------------------------------------------------------


@EXAMPLES
@given(lattice=lattices())
@pytest.mark.nojit
def test_exponential_loss_and_gradient(lattice):
    packed, theta = lattice
    packed = weighted(packed)
    for pi in (1.0, 0.6):
        objective = ExponentialObjective(packed.dataset, packed.layout, pi=pi)
        value, gradient = objective.value_and_gradient(theta)
        assert value == pytest.approx(odds(packed, theta, pi), abs=ROUNDING)
        assert objective.value(theta) == value
        weights = softmax_weights(packed, theta, pi)
        log_loss = ChainObjective(packed.dataset._replace(weights=weights), packed.layout)
        slack = ROUNDING + DIGITS * weights.sum()
        np.testing.assert_allclose(gradient, log_loss.value_and_gradient(theta)[1], rtol=0, atol=slack)


def softmax_weights(packed, theta, pi):
    """D_n / (1 - e^-l_n) = w'_n e^l_n / R, each from the odds of one sequence by itself."""
    p, weights, log_r = packed.problem, weights_of(packed.layout, theta), odds(packed, theta, pi)
    found = []
    for x, y, w in zip(p.sequences, p.labels, p.weights, strict=True):
        loss = -reference.chain.log_probability(x, y, p.n_labels, weights)
        found.append(math.exp(math.log(w) + len(x) * math.log(pi) + loss - log_r) if w else 0.0)
    return np.array(found)


@FEWER
@given(lattice=lattices(scale=1.0))
def test_exponential_loss_at_large_scores(lattice):
    packed, theta = lattice
    packed = weighted(packed)
    for sparse in DENSITIES:
        value, gradient = ExponentialObjective(packed.dataset, packed.layout, sparse).value_and_gradient(700 * theta)
        expected = odds(packed, 700 * theta)
        if expected > math.log(1e-3):  # below, l has lost its digits to the difference of two scores
            assert value == pytest.approx(expected, abs=1e-7, rel=1e-11)
        assert np.isfinite(value) and np.isfinite(gradient).all()


def test_exponential_loss_of_partial_labels():
    packed = pack(random_problem(31, 3, 4, 2, [4, 3, 2, 2])._replace(weights=[1.0, 2.0, 0.5, 1.0]))
    sets = np.array([[True, True, False]])
    labels = packed.dataset.labels.copy()
    labels[[1, 5]], labels[3], labels[-2:] = -1, -2, -1
    data = packed.dataset._replace(labels=labels, label_sets=sets)
    allowed = [None if y == -1 else {0, 1} if y == -2 else {y} for y in labels.tolist()]
    allowed = [allowed[a:b] for a, b in zip(data.offsets, data.offsets[1:], strict=False)]
    p, theta = packed.problem, random_theta(packed.layout.size, 4)
    known = Problem(3, p.kinds, p.start, p.sequences[:3], p.labels[:3], p.weights[:3])
    objective = ExponentialObjective(data, packed.layout)
    value, gradient = objective.value_and_gradient(theta)
    assert value == pytest.approx(odds(packed._replace(problem=known), theta, 1.0, allowed[:3]), abs=ROUNDING)
    for k, slope in slopes(objective, theta, 20):
        assert slope == pytest.approx(gradient[k], abs=DIFFERENCE)
    assert "sample" not in objective.offers


def small(seed=15, count=40, weights=1.0):
    lengths = np.random.default_rng(seed).integers(1, 8, count).tolist()
    return pack(random_problem(seed, 3, 6, 2, lengths, kinds=[BOTH] * 6)._replace(weights=[weights] * count))


@pytest.mark.parametrize("penalty", [ElasticNet(0.0, 0.02), ElasticNet(0.01, 0.01)], ids=["L2", "elastic net"])
def test_every_fitting_solver_finds_the_optimum_of_the_exponential_loss(penalty):
    packed = small()
    objective = ExponentialObjective(packed.dataset, packed.layout)
    found = {
        name: minimise(name, objective, penalty, max_iterations=3000, tolerance=1e-12)
        for name, solver in SOLVERS.items()
        if solver.fits(objective.offers, not penalty.is_smooth)
    }
    assert set(found) == ({"owlqn", "pqn", "hybrid"} if penalty.rho1 else
                          {"lbfgs", "owlqn", "pqn", "hybrid", "cg-fr", "cg-pr"})  # fmt: skip
    best = min(result.objective for result in found.values())
    for name, result in found.items():
        assert result.objective == pytest.approx(best, abs=1e-8), name
        assert penalty.optimality(result.theta, objective.value_and_gradient(result.theta)[1]) < 1e-4, name


def test_the_marginal_loss_falls_below_that_of_the_log_loss():
    packed, penalty = small(), ElasticNet(0.05, 0.01)
    objective = MarginalObjective(packed.dataset, packed.layout)
    log_loss = minimise("pqn", objective.chain, penalty.scaled(objective._like_log_loss), tolerance=1e-9)
    start = objective.value(log_loss.theta) + penalty.value(log_loss.theta)
    for name in ("pqn", "owlqn"):
        found = minimise(name, objective, penalty, log_loss.theta, 1000, 1e-10)
        assert found.objective < start
        assert penalty.optimality(found.theta, objective.value_and_gradient(found.theta)[1]) < 1e-4
    hybrid = minimise("hybrid", objective, penalty, max_iterations=1000, tolerance=1e-10)
    assert hybrid.objective < start and hybrid.trace[0]["objective"] < objective.value(np.zeros(objective.size))


# Both -----------------------------------------------------------------------------------------------


@EXAMPLES
@given(lattice=lattices())
def test_losses_bound_errors(lattice):
    """log 2 R^zo <= R^log and log 2 R^hm <= R^mg (LABELSEQ propositions 1 and 2)."""
    packed, theta = lattice
    p, weights = packed.problem, weights_of(packed.layout, theta)
    whole, single = reference.errors(p.sequences, p.labels, p.n_labels, weights, p.weights)
    assert math.log(2) * whole <= ChainObjective(packed.dataset, packed.layout).value(theta) + 1e-9
    assert math.log(2) * single <= MarginalObjective(packed.dataset, packed.layout).value(theta) + 1e-9


@every_loss
def test_a_weight_of_two_is_a_duplicate(loss):
    packed = pack(random_problem(7, 3, 4, 2, [3, 2, 4])._replace(weights=[1.0, 2.0, 1.0]))
    twice = select(packed.dataset, np.array([0, 1, 1, 2]))._replace(weights=np.ones(4))
    theta = random_theta(packed.layout.size, 1)
    (a, da), (b, db) = (LOSSES[loss](d, packed.layout).value_and_gradient(theta) for d in (packed.dataset, twice))
    assert a == pytest.approx(b, abs=1e-12)
    np.testing.assert_allclose(da, db, rtol=0, atol=1e-12)


def test_one_position_has_one_loss():
    """T = 1: the marginal loss is the log loss."""
    rng = np.random.default_rng(6)
    data = make_dataset(rng.integers(-1, 4, (20, 1)), rng.integers(0, 3, 20), np.arange(21))
    layout = dense_layout(3, [UNIGRAM] * 4)
    theta = rng.normal(size=12)
    (a, da), (b, db) = (kind(data, layout).value_and_gradient(theta) for kind in (ChainObjective, MarginalObjective))
    assert a == pytest.approx(b, abs=1e-12)
    np.testing.assert_allclose(da, db, rtol=0, atol=1e-12)


@every_loss
def test_one_label_has_no_loss(loss):
    packed = pack(random_problem(2, 1, 3, 2, [1, 4, 2])._replace(weights=[1.0, 1.0, 1.0]))
    objective, theta = LOSSES[loss](packed.dataset, packed.layout), random_theta(packed.layout.size, 1)
    value, gradient = objective.value_and_gradient(theta)
    assert value == pytest.approx(0.0 if loss == "marginal" else math.log(3 * FLOOR), abs=1e-2)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-2)
    found = minimise("hybrid", objective, ElasticNet(0.1, 0.1), theta)
    assert np.abs(found.theta).max() < 0.1


@every_loss
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_bytes_do_not_depend_on_threads(loss, scale):
    lengths = np.random.default_rng(13).integers(1, 12, 400).tolist()
    packed = pack(random_problem(14, 5, 12, 3, lengths))
    theta, seen = random_theta(packed.layout.size, 2, scale=scale), {True: set(), False: set()}
    try:
        for count in (1, 2, 8):
            set_threads(count)
            for scattered, found in seen.items():
                objective = LOSSES[loss](packed.dataset, packed.layout)
                objective.chain.scattered = scattered
                value, gradient = objective.value_and_gradient(theta)
                found.add((value.hex(), objective.value(theta).hex(), gradient.tobytes()))
    finally:
        set_threads(None)
    assert {len(found) for found in seen.values()} == {1}


@every_loss
@pytest.mark.parametrize("scale", [0.5, 400.0])
def test_a_long_sequence(loss, scale):
    block = random_problem(5, 3, 3, 2, [10])
    problem = block._replace(sequences=[block.sequences[0] * 1000], labels=[block.labels[0] * 1000], weights=[1.0])
    packed = pack(problem)
    theta = random_theta(packed.layout.size, 3, scale=scale)
    more = {"pi": 0.5} if loss == "exponential" else {}
    value, gradient = LOSSES[loss](packed.dataset, packed.layout, **more).value_and_gradient(theta)
    assert np.isfinite(value) and np.isfinite(gradient).all()
    if loss == "exponential":  # one long sequence: log R is its loss and its length weight
        log_loss, slope = ChainObjective(packed.dataset, packed.layout).value_and_gradient(theta)
        assert value == pytest.approx(log_loss + 10_000 * math.log(0.5), rel=1e-12)
        np.testing.assert_allclose(gradient, slope, rtol=1e-9, atol=1e-6)


def test_what_is_refused():
    packed = pack(random_problem(7, 3, 4, 2, [3, 2, 4])._replace(weights=[1.0, 2.0, 1.0]))
    data, layout = packed.dataset, packed.layout
    labels = data.labels.copy()
    labels[4] = -2
    some = data._replace(labels=labels, label_sets=np.array([[True, True, False]]))
    with pytest.raises(EspalierError, match="position 4 has a set of labels.*choose the loss log or exponential"):
        MarginalObjective(some, layout)
    with pytest.raises(EspalierError, match="takes no token weights: choose the loss log or marginal"):
        ExponentialObjective(data._replace(token_weights=np.ones(9)), layout)
    with pytest.raises(EspalierError, match="no sequence has a weight above 0"):
        ExponentialObjective(data._replace(weights=np.zeros(3)), layout)
    for pi in (0.0, -1.0, 1.5, math.nan, True, "much"):
        with pytest.raises(EspalierError, match="pi is .*: expected a number above 0 and up to 1"):
            ExponentialObjective(data, layout, pi=pi)
    for kind in LOSSES.values():
        for solver in ("sbcd", "cd", "sgd", "iis"):
            penalty = ElasticNet(0.1, 0.1) if SOLVERS[solver].accepts_l1 else ElasticNet(0.0, 0.1)
            text = f"{solver} needs .*, {kind.__name__} has none: choose one of .*pqn"
            with pytest.raises(EspalierError, match=text):
                minimise(solver, kind(data, layout), penalty)


# Hessian times a vector -----------------------------------------------------------------------------


@EXAMPLES
@given(lattice=lattices())
def test_hessian_times_a_vector(lattice):
    packed, theta = lattice
    objective, direction = ChainObjective(packed.dataset, packed.layout), random_theta(len(theta), 5)
    ahead, behind = (objective.value_and_gradient(theta + s * direction)[1] for s in (STEP, -STEP))
    np.testing.assert_allclose(
        objective.hessian_times(theta, direction), (ahead - behind) / (2 * STEP), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("scale", [1.0, 60.0, 700.0])
@FEWER
@given(lattice=lattices(scale=1.0))
def test_minus_the_hessian_times_theta_is_the_gradient_of_the_entropy(scale, lattice):
    """Two recursions that share nothing: log p is the score up to a constant."""
    packed, theta = lattice
    gradient = np.zeros(len(theta))
    ChainEntropy(packed.dataset, packed.layout, 1.0).add_gradient(scale * theta, gradient)
    product = ChainObjective(packed.dataset, packed.layout).hessian_times(scale * theta, scale * theta)
    np.testing.assert_allclose(-product, gradient, rtol=0, atol=1e-11 * (10 + scale))


def test_a_hessian_of_a_loss_with_terms_is_refused():
    packed = pack(random_problem(7, 3, 4, 2, [3, 2, 4]))
    labels = packed.dataset.labels.copy()
    labels[0] = -1
    objective = ChainObjective(packed.dataset._replace(labels=labels), packed.layout)
    with pytest.raises(EspalierError, match="the Hessian of a loss with partial labels is not known"):
        objective.hessian_times(np.zeros(objective.size), np.zeros(objective.size))
