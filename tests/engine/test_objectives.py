"""Contracts of every objective: it states what it offers, has what it states, and meets only solvers that fit.

An objective that is new in the engine is found by its methods and cannot skip these tests.
"""

import ast
from pathlib import Path

import numpy as np
import pytest
from chain_problems import pack, random_theta
from reference.problems import random_problem

from espalier.engine.blockwise.blocks import BlockObjective
from espalier.engine.data.bags import bags_of_matrix
from espalier.engine.errors import EspalierError
from espalier.engine.families.logistic import LogisticEntropy, LogisticObjective
from espalier.engine.labels.scheme import Transitions
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.losses.exponential_loss import ExponentialObjective
from espalier.engine.losses.fixed_transitions import FixedTransitions
from espalier.engine.losses.marginal_loss import MarginalObjective
from espalier.engine.losses.triple_objective import TripleObjective
from espalier.engine.optimise.objective import CAPABILITIES
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import NEWTON, SOLVERS, minimise, minimise_by_newton
from espalier.engine.parts.sharded_objective import ShardedObjective, in_process
from espalier.engine.semisup.entropy import ChainEntropy, EntropyRegularised

ENGINE = Path(__file__).resolve().parents[2] / "engine"
PACKED = pack(random_problem(1, 3, 5, 2, [4, 6, 3, 5]))
BAGS = bags_of_matrix([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
RIDGE, NET = ElasticNet(0.0, 0.5), ElasticNet(0.3, 0.1)


ALTERNATING = Transitions(np.ones(3, bool), ~np.eye(3, dtype=bool), np.ones(3, bool))


def chain():
    return ChainObjective(PACKED.dataset, PACKED.layout)


def partial():
    labels = PACKED.dataset.labels.copy()
    labels[0] = -1
    return ChainObjective(PACKED.dataset._replace(labels=labels), PACKED.layout)


def logistic():
    return LogisticObjective(BAGS, [0, 1, 1])


def triples():
    problem = random_problem(1, 3, 5, 2, [4, 6, 3, 5], kinds=[4, 3, 1, 2, 4])
    packed = pack(problem, "seen")
    return TripleObjective(packed.dataset, packed.layout)


OBJECTIVES = {
    "chain": chain,
    "triples": triples,
    "chain with terms": partial,
    "blocks": lambda: BlockObjective(PACKED.dataset, PACKED.layout),
    "sharded": lambda: in_process(PACKED.dataset, PACKED.layout, block_tokens=5),
    "marginal": lambda: MarginalObjective(PACKED.dataset, PACKED.layout),
    "exponential": lambda: ExponentialObjective(PACKED.dataset, PACKED.layout),
    "fixed transitions": lambda: FixedTransitions(PACKED.dataset, PACKED.layout, ALTERNATING, ChainObjective),
    "logistic": logistic,
    "chain and entropy": lambda: EntropyRegularised(chain(), ChainEntropy(PACKED.dataset, PACKED.layout, 0.1)),
    "logistic and entropy": lambda: EntropyRegularised(logistic(), LogisticEntropy(BAGS, 2, 0.1)),
}
every_objective = pytest.mark.parametrize("name", OBJECTIVES)
every_pair = pytest.mark.parametrize(("name", "solver"), [(o, s) for o in OBJECTIVES for s in SOLVERS])


# Lines and subproblems within the training of one family, which tests/engine/test_gp.py holds to their minima, and
# what has no kernels on purpose.
WITHIN = {"GpLine", "FewCoordinates", "ChosenCoordinates", "_Parabola"}


def test_every_objective_of_the_engine_is_here():
    found = set()
    for path in ENGINE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            methods = {one.name for one in getattr(node, "body", []) if isinstance(one, ast.FunctionDef)}
            own = "value_and_gradient" in methods or {"expected", "offers"} <= methods
            if isinstance(node, ast.ClassDef) and own:
                found.add(node.name)
    assert found - WITHIN - {"Objective"} == {type(make()).__name__ for make in OBJECTIVES.values()}


@every_objective
def test_an_objective_has_what_it_offers(name):
    objective = OBJECTIVES[name]()
    assert "gradient" in objective.offers <= set(CAPABILITIES)
    for offered in objective.offers:
        for attribute in CAPABILITIES[offered].attributes:
            assert getattr(objective, attribute) is not None, (offered, attribute)


@pytest.mark.parametrize("solver", [*SOLVERS.values(), NEWTON], ids=[*SOLVERS, "newton"])
def test_a_solver_needs_what_can_be_offered(solver):
    assert solver.needs and set(solver.needs) <= set(CAPABILITIES)


@every_pair
def test_a_solver_runs_where_it_fits_and_is_refused_elsewhere(name, solver):
    objective, penalty = OBJECTIVES[name](), NET if SOLVERS[solver].accepts_l1 else RIDGE
    if SOLVERS[solver].fits(objective.offers):
        theta = random_theta(objective.size, 1)
        assert minimise(solver, objective, penalty, theta, max_iterations=2, tolerance=0.0).iterations <= 2
        return
    with pytest.raises(EspalierError, match=f"{solver} (needs|cannot train with) .*: choose one of ") as refused:
        minimise(solver, objective, penalty)
    others = str(refused.value).partition("choose one of ")[2].split(", ")
    assert others == [n for n, s in SOLVERS.items() if s.fits(objective.offers, bool(penalty.rho1))]


@pytest.mark.parametrize("name", ["sharded", "blocks"])
def test_descent_by_single_weights_is_refused_where_positions_are_not_known(name):
    """That of blocks once passed the door and failed in the middle of compiled code."""
    objective = OBJECTIVES[name]()
    text = f"cd needs the positions of each observation, {type(objective).__name__} has none: choose one of owlqn, pqn"
    with pytest.raises(EspalierError, match=text):
        minimise("cd", objective, NET)


def test_who_cannot_take_an_l1_term_is_told_who_can_with_these_data():
    sharded = OBJECTIVES["sharded"]()
    assert isinstance(sharded, ShardedObjective)
    with pytest.raises(EspalierError, match="lbfgs cannot take rho1 = 0.3.* choose one of owlqn, pqn, hybrid, sbcd$"):
        minimise("lbfgs", sharded, NET)
    with pytest.raises(EspalierError, match="newton needs a Hessian, ChainObjective has none: choose one of lbfgs, "):
        minimise_by_newton(chain(), RIDGE)


def test_a_sum_with_an_entropy_scales_steps_as_the_labelled_loss_does():
    labelled, both = chain(), OBJECTIVES["chain and entropy"]()
    gradient = np.ones(both.size)
    np.testing.assert_array_equal(both.scaling(gradient, 0.5), labelled.scaling(gradient, 0.5))
    assert "scaling" not in OBJECTIVES["logistic and entropy"]().offers
