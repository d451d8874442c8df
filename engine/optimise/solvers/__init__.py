"""Solvers: each minimises loss + penalty over theta and returns the same record.

A solver knows neither templates nor files. What it needs of an objective and whether it accepts an L1 term is in the
table, and is compared at the door with what the objective offers (`engine.optimise.objective`) and with the penalty.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.optimise.monitor import Monitor, Result
from espalier.engine.optimise.objective import CAPABILITIES, Objective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solver_state import Keeper


@dataclass(frozen=True)
class Solver:
    """Where a solver is, whether it accepts an L1 term, and whether its objective never rises.

    `where` is module:function, or the one name of both. `needs` names capabilities of an objective
    (`engine.optimise.objective.CAPABILITIES`), of which one is enough. `exact` ones reach the optimum to any
    tolerance; the others come near it. `least` iterations are looked back on before it counts as converged:
    quasi-Newton methods begin slowly from a start that is nearly there, until they know the curvature; a sweep over
    all weights or sequences needs none of that.
    """

    where: str
    accepts_l1: bool
    monotone: bool
    help: str
    needs: tuple[str, ...] = ("gradient",)
    exact: bool = True
    least: int = 30

    def fits(self, offers: frozenset[str], l1: bool = False) -> bool:
        """Whether it can minimise an objective that offers this, with an L1 term or without."""
        return not offers.isdisjoint(self.needs) and (self.accepts_l1 or not l1)

    @property
    def run(self) -> Callable:
        """The function; its module is loaded when first asked for, so that a fit loads no solver but its own."""
        module, _, name = self.where.partition(":")
        return getattr(import_module(f"espalier.engine.optimise.solvers.{module}"), name or module)

    @property
    def options(self) -> tuple[str, ...]:
        """Settings of its own, which `minimise` takes by keyword: the keyword-only arguments of `run`."""
        parameters = inspect.signature(self.run).parameters.values()
        return tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)


SOLVERS = {
    "lbfgs": Solver("lbfgs", False, True, "limited-memory BFGS; smooth penalties only"),
    "owlqn": Solver("owlqn", True, True, "orthant-wise limited-memory quasi-Newton"),
    "pqn": Solver("pqn", True, True, "proximal limited-memory quasi-Newton; fewest gradients with an L1 term"),
    "hybrid": Solver("hybrid", True, True, "an epoch of sgd, then lbfgs, or pqn with an L1 term"),
    "sbcd": Solver(
        "sbcd", True, True, "sparse blockwise coordinate descent, one observation at a time", ("blocks", "sequences"),
        least=5,
    ),
    "cd": Solver(
        "cd", True, True, "cyclic coordinate descent, one weight at a time; small problems", ("positions",), least=5
    ),
    "cg-fr": Solver(
        "conjugate_gradient:cg_fr", False, True, "conjugate gradient, Fletcher-Reeves; smooth penalties only"
    ),
    "cg-pr": Solver(
        "conjugate_gradient:cg_pr", False, True, "conjugate gradient, Polak-Ribiere+; smooth penalties only"
    ),
    "iis": Solver("iis", False, True, "improved iterative scaling, slow; smooth penalties only", ("sequences",)),
    "sgd": Solver(
        "sgd", True, False, "stochastic gradient over sequences; comes near the optimum", ("sequences",), exact=False,
        least=5,
    ),
}  # fmt: skip

NEWTON = Solver("newton", False, True, "Newton-Raphson, dense Hessian; not for chains", ("hessian",))  # not in the list
AUTO = "auto"  # the solver that suits the penalty


def fitting(solver: str, along_path: bool = False) -> str:
    """The name of a solver; `auto` is `hybrid`, which is near the optimum first, and `pqn` along a path of rho1.

    The points of a path begin where the one before ended, so that they need no other start. Both take data in
    any number of blocks, so the choice is the same wherever these lie.
    """
    return solver if solver != AUTO else "pqn" if along_path else "hybrid"


def minimise(
    solver: str,
    objective: Objective,
    penalty: ElasticNet,
    theta0: np.ndarray | None = None,
    max_iterations: int = 100,
    tolerance: float = 1e-4,
    period: int | None = None,
    on_iteration=None,
    keeper: Keeper | None = None,
    **options,
) -> Result:
    """Minimise objective + penalty from theta0 (zero by default). See `Monitor` for when it stops.

    `keeper` hears the state after each iteration and may hand out an earlier one to go on from. `options` are the
    solver's own: `seed` of sgd, `revisit_zeros` of cd.
    """
    solver = fitting(solver)
    if solver not in SOLVERS:
        raise EspalierError(f"solver {solver!r} is not known: choose one of {AUTO}, {', '.join(SOLVERS)}")
    check_at_the_door(solver, SOLVERS[solver], objective, penalty)
    for name in options:
        if name not in SOLVERS[solver].options:
            known = ", ".join(SOLVERS[solver].options) or "none"
            raise EspalierError(f"{solver} has no option {name!r}: it has {known}")
    theta, monitor = _begin(objective, theta0, max_iterations, tolerance, period, on_iteration)
    monitor.keeper, monitor.least = keeper, SOLVERS[solver].least
    return SOLVERS[solver].run(objective, penalty, theta, monitor, **options)


def minimise_by_newton(
    objective: Objective,
    penalty: ElasticNet,
    theta0: np.ndarray | None = None,
    max_iterations: int = 100,
    tolerance: float = 1e-4,
    period: int | None = None,
    on_iteration=None,
) -> Result:
    """The same for objectives that have a `hessian`; see `engine.optimise.solvers.newton`."""
    check_at_the_door("newton", NEWTON, objective, penalty)
    theta, monitor = _begin(objective, theta0, max_iterations, tolerance, period, on_iteration)
    return NEWTON.run(objective, penalty, theta, monitor)


def _begin(objective, theta0, max_iterations, tolerance, period, on_iteration) -> tuple[np.ndarray, Monitor]:
    """The starting point, checked, and a monitor on the scale of the objective."""
    theta = np.zeros(objective.size) if theta0 is None else np.array(theta0, dtype=np.float64)
    if theta.shape != (objective.size,):
        raise EspalierError(f"theta0 has {theta.size} weights: expected {objective.size}")
    if not np.all(np.isfinite(theta)):
        raise EspalierError(f"theta0[{int(np.argmin(np.isfinite(theta)))}] is not finite: check the starting model")
    scale = float(np.max(objective.observed, initial=1.0)) if "counts" in objective.offers else 1.0
    return theta, Monitor(max_iterations, tolerance, period, scale, on_iteration=on_iteration)


def fitting_names(offers: frozenset[str], l1: bool = False) -> str:
    """The solvers of the table for an objective that offers this, with an L1 term or without, as in a sentence."""
    return ", ".join(name for name, solver in SOLVERS.items() if solver.fits(offers, l1))


def check_at_the_door(name: str, solver: Solver, objective: Objective, penalty: ElasticNet) -> None:
    """Refuse a solver that does not fit the objective or the penalty, and name those that do."""
    offers, l1 = objective.offers, not penalty.is_smooth
    if solver.fits(offers, l1):
        return
    others = fitting_names(offers, l1)
    if not solver.fits(offers | set(solver.needs), l1):
        raise EspalierError(f"{name} cannot take rho1 = {penalty.rho1}: set rho1 to 0 or choose one of {others}")
    if "terms" in offers:
        raise EspalierError(f"{name} cannot train with {objective.terms[0].name}: choose one of {others}")
    needed = " or ".join(CAPABILITIES[need].words for need in solver.needs)
    raise EspalierError(f"{name} needs {needed}, {type(objective).__name__} has none: choose one of {others}")
