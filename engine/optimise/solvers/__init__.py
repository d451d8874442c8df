"""Solvers: each minimises loss + penalty over theta and returns the same record.

A solver knows neither templates nor files. `engine.optimise.solver_table` says what it needs and whether it accepts an
L1 term; that is compared at the door with what the objective offers (`engine.optimise.objective`) and the penalty.
"""

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.optimise.monitor import Monitor, Result
from espalier.engine.optimise.objective import CAPABILITIES, Objective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solver_state import Keeper
from espalier.engine.optimise.solver_table import AUTO, NEWTON, SOLVERS, Solver, fitting, fitting_names


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
