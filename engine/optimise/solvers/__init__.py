"""Solvers: each minimises loss + penalty over theta and returns the same record.

A solver knows neither templates nor files. Gradient solvers need `value_and_gradient`;
those that take blocks, weights or sequences one by one need a chain objective. What a solver
accepts is checked at the door.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.optimise.monitor import Monitor, Result
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solver_state import Keeper


@dataclass(frozen=True)
class Solver:
    """Where a solver is, whether it accepts an L1 term, and whether its objective never rises.

    `where` is module:function, or the one name of both. `exact` ones reach the optimum to any
    tolerance; the others come near it. `needs_blocks` ones ask for a chain objective, whose
    sequences and index they read; of these, `sweeps` ones can also use a sharded objective. `least`
    iterations are looked back on before it counts as converged: quasi-Newton methods begin slowly from a start
    that is nearly there, until they know the curvature; a sweep over all weights or sequences needs none of that.
    """

    where: str
    accepts_l1: bool
    monotone: bool
    help: str
    needs_blocks: bool = False
    exact: bool = True
    sweeps: bool = False
    least: int = 30

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
        "sbcd", True, True, "sparse blockwise coordinate descent, one observation at a time", True, sweeps=True, least=5
    ),
    "cd": Solver("cd", True, True, "cyclic coordinate descent, one weight at a time; small problems", True, least=5),
    "cg-fr": Solver(
        "conjugate_gradient:cg_fr", False, True, "conjugate gradient, Fletcher-Reeves; smooth penalties only"
    ),
    "cg-pr": Solver(
        "conjugate_gradient:cg_pr", False, True, "conjugate gradient, Polak-Ribiere+; smooth penalties only"
    ),
    "iis": Solver("iis", False, True, "improved iterative scaling, slow; smooth penalties only", True),
    "sgd": Solver(
        "sgd", True, False, "stochastic gradient over sequences; comes near the optimum", True, exact=False, least=5
    ),
}


AUTO = "auto"  # the solver that suits the penalty


def fitting(solver: str, along_path: bool = False) -> str:
    """The name of a solver; `auto` is `hybrid`, which is near the optimum first, and `pqn` along a path of rho1.

    The points of a path begin where the one before ended, so that they need no other start. Both take data in
    any number of blocks, so the choice is the same wherever these lie.
    """
    return solver if solver != AUTO else "pqn" if along_path else "hybrid"


def minimise(
    solver: str,
    objective,
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
    if penalty.rho1 and not SOLVERS[solver].accepts_l1:
        others = [name for name, other in SOLVERS.items() if other.accepts_l1]
        raise EspalierError(
            f"{solver} cannot take rho1 = {penalty.rho1}: set rho1 to 0 or choose one of {', '.join(others)}"
        )
    for name in options:
        if name not in SOLVERS[solver].options:
            known = ", ".join(SOLVERS[solver].options) or "none"
            raise EspalierError(f"{solver} has no option {name!r}: it has {known}")
    sharded = SOLVERS[solver].sweeps and hasattr(objective, "sweeps")
    if SOLVERS[solver].needs_blocks and not hasattr(objective, "positions") and not sharded:
        raise EspalierError(
            f"{solver} needs the sequences of a chain objective, {type(objective).__name__} has none: "
            "choose a gradient solver such as lbfgs or owlqn"
        )
    _check_terms(solver, objective)
    theta, monitor = _begin(objective, theta0, max_iterations, tolerance, period, on_iteration)
    monitor.keeper, monitor.least = keeper, SOLVERS[solver].least
    return SOLVERS[solver].run(objective, penalty, theta, monitor, **options)


def minimise_by_newton(
    objective,
    penalty: ElasticNet,
    theta0: np.ndarray | None = None,
    max_iterations: int = 100,
    tolerance: float = 1e-4,
    period: int | None = None,
    on_iteration=None,
) -> Result:
    """The same for objectives that have a `hessian`; see `engine.optimise.solvers.newton`."""
    if penalty.rho1:
        raise EspalierError(f"newton cannot take rho1 = {penalty.rho1}: set rho1 to 0 or choose owlqn or pqn")
    if not hasattr(objective, "hessian"):
        raise EspalierError(
            f"newton needs a Hessian, {type(objective).__name__} has none: choose a gradient solver such as lbfgs"
        )
    theta, monitor = _begin(objective, theta0, max_iterations, tolerance, period, on_iteration)
    return import_module("espalier.engine.optimise.solvers.newton").newton(objective, penalty, theta, monitor)


def _begin(objective, theta0, max_iterations, tolerance, period, on_iteration) -> tuple[np.ndarray, Monitor]:
    """The starting point, checked, and a monitor on the scale of the objective."""
    theta = np.zeros(objective.size) if theta0 is None else np.array(theta0, dtype=np.float64)
    if theta.shape != (objective.size,):
        raise EspalierError(f"theta0 has {theta.size} weights: expected {objective.size}")
    if not np.all(np.isfinite(theta)):
        raise EspalierError(f"theta0[{int(np.argmin(np.isfinite(theta)))}] is not finite: check the starting model")
    scale = float(np.max(getattr(objective, "observed", np.ones(1)), initial=1.0))
    return theta, Monitor(max_iterations, tolerance, period, scale, on_iteration=on_iteration)


def _check_terms(solver: str, objective) -> None:
    """Only solvers that see nothing but the gradient can train with partial labels or token weights."""
    terms = getattr(objective, "terms", [])
    if terms and SOLVERS[solver].needs_blocks:
        others = [name for name, other in SOLVERS.items() if not other.needs_blocks]
        raise EspalierError(f"{solver} cannot train with {terms[0].name}: choose one of {', '.join(others)}")
