"""`SOLVERS`, the one place that says what there is to say of a solver; a new one is a module and a line here.

The list is read for a `--help`, so neither this module nor what it imports loads numpy or numba. A solver's own module
is loaded when the solver is asked for.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True, kw_only=True)
class Solver:
    """Where a solver is, what it takes, what it promises, and how it is called.

    `where` is module:function in `engine.optimise.solvers`, or the one name of both. `needs` names capabilities of an
    objective (`engine.optimise.objective.CAPABILITIES`), of which one is enough. `exact` ones reach the optimum to any
    tolerance; the others come near it. `least` iterations are looked back on before it counts as converged:
    quasi-Newton methods begin slowly from a start that is nearly there, until they know the curvature; a sweep over
    all weights or sequences needs none of that.
    """

    where: str
    title: str  # as a report calls it
    help: str  # how it goes about it, and for what it is good
    vectors: int | str  # of the length of theta at its peak; or module:function that tells them for a number of weights
    accepts_l1: bool = True
    needs: tuple[str, ...] = ("gradient",)
    monotone: bool = True  # the objective never rises from one iteration to the next
    exact: bool = True
    least: int = 30

    @property
    def run(self) -> Callable:
        """The function; its module is loaded when first asked for, so that a fit loads no solver but its own."""
        return _loaded(self.where)

    @property
    def options(self) -> tuple[str, ...]:
        """Settings of its own, which `minimise` takes by keyword: the keyword-only arguments of `run`."""
        parameters = inspect.signature(self.run).parameters.values()
        return tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)

    def fits(self, offers: frozenset[str], l1: bool = False) -> bool:
        """Whether it can minimise an objective that offers this, with an L1 term or without."""
        return not offers.isdisjoint(self.needs) and (self.accepts_l1 or not l1)

    def bytes_taken(self, weights: int) -> int:
        """What its vectors take at its peak: pairs of steps and slopes, the gradient, work."""
        vectors = _loaded(self.vectors)(weights) if isinstance(self.vectors, str) else self.vectors
        return 8 * vectors * weights


def _loaded(where: str) -> Callable:
    module, _, name = where.partition(":")
    return getattr(import_module(f"espalier.engine.optimise.solvers.{module}"), name or module)


SOLVERS = {
    "lbfgs": Solver(
        where="lbfgs", title="L-BFGS", help="limited-memory BFGS; smooth penalties only",
        vectors=26, accepts_l1=False,
    ),
    "owlqn": Solver(
        where="owlqn", title="OWL-QN", help="orthant-wise limited-memory quasi-Newton", vectors=26,
    ),
    "pqn": Solver(
        where="pqn", title="proximal quasi-Newton",
        help="proximal limited-memory quasi-Newton; fewest gradients with an L1 term", vectors="pqn:vectors_kept",
    ),
    "hybrid": Solver(
        where="hybrid", title="stochastic gradient, then limited-memory quasi-Newton",
        help="an epoch of sgd, then lbfgs, or pqn with an L1 term", vectors="pqn:vectors_kept",
    ),
    "sbcd": Solver(
        where="sbcd", title="blockwise coordinate descent (SBCD)",
        help="sparse blockwise coordinate descent, one observation at a time",
        vectors=34, needs=("blocks", "sequences"), least=5,
    ),
    "cd": Solver(
        where="cd", title="coordinate descent (CD)",
        help="cyclic coordinate descent, one weight at a time; small problems",
        vectors=8, needs=("positions",), least=5,
    ),
    "cg-fr": Solver(
        where="conjugate_gradient:cg_fr", title="conjugate gradient (Fletcher-Reeves)",
        help="conjugate gradient, Fletcher-Reeves; smooth penalties only", vectors=14, accepts_l1=False,
    ),
    "cg-pr": Solver(
        where="conjugate_gradient:cg_pr", title="conjugate gradient (Polak-Ribière+)",
        help="conjugate gradient, Polak-Ribiere+; smooth penalties only", vectors=14, accepts_l1=False,
    ),
    "iis": Solver(
        where="iis", title="improved iterative scaling (IIS)",
        help="improved iterative scaling, slow; smooth penalties only",
        vectors=12, accepts_l1=False, needs=("sequences",),
    ),
    "gis": Solver(
        where="gis", title="generalised iterative scaling (GIS)",
        help="generalised iterative scaling, slow; smooth penalties only",
        vectors=8, accepts_l1=False, needs=("sequences",),
    ),
    "sgd": Solver(
        where="sgd", title="stochastic gradient (SGD)",
        help="stochastic gradient over sequences; comes near the optimum",
        vectors=10, needs=("sequences",), monotone=False, exact=False, least=5,
    ),
}  # fmt: skip
# Not for chains, so not in the list; see `engine.optimise.solvers.minimise_by_newton`.
NEWTON = Solver(
    where="newton", title="Newton-Raphson", help="dense Hessian, few weights; smooth penalties only",
    vectors=10, accepts_l1=False, needs=("hessian",),
)  # fmt: skip
AUTO = "auto"  # the solver that suits the penalty


def fitting(solver: str, along_path: bool = False) -> str:
    """The name of a solver; `auto` is `hybrid`, which is near the optimum first, and `pqn` along a path of rho1.

    The points of a path begin where the one before ended, so that they need no other start. Both take data in
    any number of blocks, so the choice is the same wherever these lie.
    """
    return solver if solver != AUTO else "pqn" if along_path else "hybrid"


def fitting_names(offers: frozenset[str], l1: bool = False) -> str:
    """The solvers of the table for an objective that offers this, with an L1 term or without, as in a sentence."""
    return ", ".join(name for name, solver in SOLVERS.items() if solver.fits(offers, l1))
