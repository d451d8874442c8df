"""The regularisation path: first-order conditions at each point, warm against cold starts, the choice of a point."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from chain_problems import pack
from reference import solvers as reference
from reference.problems import random_problem

from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise import path as paths
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise

TIGHT = 1e-11  # tolerance asked of the solver, so that weights agree and not objectives alone
VIOLATION = 1e-4  # of the first-order conditions, as in test_solvers
AGREEMENT = 1e-7  # relative, of objectives
RHO2 = 0.05
SOLVERS = ("owlqn", "cd")


@pytest.fixture(scope="module")
def objective():
    packed = pack(random_problem(17, 3, 4, 2, [4, 3, 5, 2, 4, 3]))
    return ChainObjective(packed.dataset, packed.layout)


@pytest.fixture(scope="module", params=SOLVERS)
def points(request, objective):
    return paths.path(objective, 8, RHO2, solver=request.param, tolerance=TIGHT)


def test_each_point_meets_the_first_order_conditions(objective, points):
    assert len(points) == 8
    for point in points:
        gradient = objective.value_and_gradient(point.theta())[1]
        assert reference.violation(point.theta(), gradient, point.rho1, RHO2) <= VIOLATION
        assert point.rho2 == RHO2


def test_the_path_goes_down_a_geometric_grid_from_nothing(objective, points):
    gradient = objective.value_and_gradient(np.zeros(objective.size))[1]
    assert points[0].rho1 == np.abs(gradient).max()
    assert len(points[0].indices) == 0 and points[0].iterations == 0
    ratios = [b.rho1 / a.rho1 for a, b in itertools.pairwise(points)]
    np.testing.assert_allclose(ratios, paths.RATIO ** (1 / 7), rtol=1e-12)
    assert all(b.objective < a.objective for a, b in itertools.pairwise(points))
    assert len(points[-1].indices) > len(points[1].indices) > 0


@pytest.mark.parametrize("share", [1.001, 1.0])
def test_at_the_largest_rho1_nothing_is_active(objective, share):
    (point,) = paths.path(objective, [share * paths.largest_rho1(objective)], tolerance=TIGHT)
    assert len(point.indices) == 0


def test_just_below_the_largest_rho1_something_is_active(objective):
    (point,) = paths.path(objective, [0.999 * paths.largest_rho1(objective)], tolerance=TIGHT)
    assert 0 < len(point.indices) < 4


def test_warm_equals_cold(objective, points):
    for point in points:
        cold = minimise("owlqn", objective, ElasticNet(point.rho1, RHO2), max_iterations=1000, tolerance=TIGHT)
        assert point.objective == pytest.approx(cold.objective, rel=AGREEMENT)
        np.testing.assert_allclose(point.theta(), cold.theta, atol=1e-3)


def test_points_tell_what_is_active(objective, points):
    for point in points:
        theta = point.theta()
        assert theta.shape == (objective.size,)
        assert point.active == objective.active(theta)
        assert sum(point.active.values()) == len(point.indices) == np.count_nonzero(theta)
        penalty = ElasticNet(point.rho1, point.rho2)
        assert point.objective == pytest.approx(objective.value(theta) + penalty.value(theta), rel=1e-12)


def test_values_may_be_given_in_any_order(objective):
    points = paths.path(objective, [0.2, 3.0, 0.7], RHO2)
    assert [point.rho1 for point in points] == [3.0, 0.7, 0.2]


def test_the_caller_hears_each_point_and_may_stop(objective):
    heard = []

    def listen(point):
        heard.append(point.rho1)
        return len(heard) == 2

    points = paths.path(objective, [3.0, 0.7, 0.2], RHO2, on_point=listen)
    assert heard == [3.0, 0.7] == [point.rho1 for point in points]


def point_of(rho1, active):
    return paths.Point(rho1, 0.0, 1.0, np.arange(active), np.ones(active), 10, {}, 1, "converged")


def test_choose_takes_the_best_score_and_of_equals_the_sparser():
    many, few, best = point_of(0.1, 8), point_of(0.5, 3), point_of(0.3, 5)
    scores = {0.1: 0.7, 0.5: 0.7, 0.3: 0.9}
    assert paths.choose([many, few, best], lambda point: scores[point.rho1]) is best
    assert paths.choose([many, few], lambda point: scores[point.rho1]) is few
    assert paths.choose([few, many], lambda point: scores[point.rho1]) is few
    larger = replace(few, rho1=0.6)
    assert paths.choose([few, larger], lambda point: 1.0) is larger


def test_what_is_refused(objective):
    with pytest.raises(EspalierError, match="lbfgs cannot follow a path of rho1: choose one of owlqn"):
        paths.path(objective, 3, solver="lbfgs")
    with pytest.raises(EspalierError, match="a path of 0 points: expected at least 1"):
        paths.path(objective, 0)
    with pytest.raises(EspalierError, match="a path needs at least one rho1"):
        paths.path(objective, [])
    with pytest.raises(EspalierError, match=r"rho1 is -1.0: expected a finite number"):
        paths.path(objective, [-1.0])
    with pytest.raises(EspalierError, match="ratio is 1.5: expected the last rho1 over the first"):
        paths.grid(1.0, 3, 1.5)
    with pytest.raises(EspalierError, match="there is no point to choose from"):
        paths.choose([], len)
    with pytest.raises(EspalierError, match=r"the score of rho1 = 0.5 is not a number"):
        paths.choose([point_of(0.5, 1)], lambda point: math.nan)
