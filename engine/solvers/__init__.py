"""Solvers: each minimises loss + penalty over theta and returns the same record.

A solver knows neither templates nor files. Gradient solvers need `value_and_gradient`;
SBCD needs the blocks of a chain objective. What a solver accepts is checked at the door.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.errors import EspalierError
from engine.monitor import Monitor, Result
from engine.penalty import ElasticNet
from engine.solvers.lbfgs import lbfgs
from engine.solvers.owlqn import owlqn
from engine.solvers.sbcd import sbcd


@dataclass(frozen=True)
class Solver:
    """A solver, whether it accepts an L1 term, and whether its objective never rises."""

    run: Callable
    accepts_l1: bool
    monotone: bool
    help: str
    needs_blocks: bool = False
    gradient_only: bool = False  # asks for the value and the gradient alone, so any loss will do


SOLVERS = {
    "lbfgs": Solver(lbfgs, False, True, "limited-memory BFGS; smooth penalties only", gradient_only=True),
    "owlqn": Solver(owlqn, True, True, "orthant-wise limited-memory quasi-Newton", gradient_only=True),
    "sbcd": Solver(sbcd, True, True, "sparse blockwise coordinate descent, one observation at a time", True),
}


def minimise(
    solver: str,
    objective,
    penalty: ElasticNet,
    theta0: np.ndarray | None = None,
    max_iterations: int = 100,
    tolerance: float = 1e-4,
    period: int = 5,
    on_iteration=None,
) -> Result:
    """Minimise objective + penalty from theta0 (zero by default). See `Monitor` for when it stops."""
    if solver not in SOLVERS:
        raise EspalierError(f"solver {solver!r} is not known: choose one of {', '.join(SOLVERS)}")
    if penalty.rho1 and not SOLVERS[solver].accepts_l1:
        fitting = [name for name, other in SOLVERS.items() if other.accepts_l1]
        raise EspalierError(
            f"{solver} cannot take rho1 = {penalty.rho1}: set rho1 to 0 or choose one of {', '.join(fitting)}"
        )
    if SOLVERS[solver].needs_blocks and not hasattr(objective, "positions"):
        raise EspalierError(
            f"{solver} needs the blocks of a chain objective, {type(objective).__name__} has none: "
            "choose a gradient solver such as lbfgs or owlqn"
        )
    _check_terms(solver, objective)
    theta = np.zeros(objective.size) if theta0 is None else np.array(theta0, dtype=np.float64)
    if theta.shape != (objective.size,):
        raise EspalierError(f"theta0 has {theta.size} weights: expected {objective.size}")
    if not np.all(np.isfinite(theta)):
        raise EspalierError(f"theta0[{int(np.argmin(np.isfinite(theta)))}] is not finite: check the starting model")
    scale = float(np.max(getattr(objective, "observed", np.ones(1)), initial=1.0))
    monitor = Monitor(max_iterations, tolerance, period, scale, on_iteration)
    return SOLVERS[solver].run(objective, penalty, theta, monitor)


def _check_terms(solver: str, objective) -> None:
    """Only solvers that see nothing but the gradient can train with partial labels or token weights."""
    terms = getattr(objective, "terms", [])
    if terms and not SOLVERS[solver].gradient_only:
        fitting = [name for name, other in SOLVERS.items() if other.gradient_only]
        raise EspalierError(f"{solver} cannot train with {terms[0].name}: choose one of {', '.join(fitting)}")
