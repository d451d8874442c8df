"""Convergence as an object with a history: solvers report to it, it decides when to stop and says why."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.optimise.solver_state import Keeper, SolverState

STOP_REASONS = {
    "optimal": "the first-order conditions hold within the tolerance",
    "converged": "the last third of the iterations lowered the objective by less than the tolerance",
    "max_iterations": "the limit of iterations was reached; the model may improve with more",
    "line_search": "no step lowers the objective any further: the limit of floating-point precision",
    "patience": "the development data got no better for train.patience iterations; the best model on them was kept",
    "stopped": "the caller asked to stop",
    "separated": "every training sequence was labelled right, by the margin that was asked for: no weight would "
    "move in the epochs that were left, which count for the mean",
    "epsilon": "the loss of an iteration was less than epsilon for a sequence",
    "counted": "every probability is a relative count of the training data: there is nothing to iterate",
    "chosen": "as many coordinates were chosen as gp.share allows",
    "odds": "the odds against the right labellings of the training data are down to rounding",
    "no_gain": "no weight lowers the bound on the odds any further",
    "flat": "no sequence has a gradient above gp.threshold any more",
}

OPTIMAL = 0.01  # a gradient this much smaller than the tolerance on the objective leaves nothing to gain
# Where the distance to the optimum falls as one over the iterations or faster, what is left is less than twice what
# the last third has brought, and it is far less where it falls geometrically; benchmarks/README.md has the figures.
THIRD = 3


@dataclass
class Monitor:
    """Decides after each iteration: `check` returns a stop reason or None.

    optimal: largest violation <= OPTIMAL * tolerance * scale, scale being the largest observed count, and the bound
    on the distance to the optimum (`gap`, where the record has one) <= tolerance * the objective;
    converged: over `period` iterations, or without one over the last third and at least `least`, the objective fell by
    <= tolerance * its size.
    `on_iteration` ends the run by True, or by a stop reason of its own.
    """

    max_iterations: int = 100
    tolerance: float = 1e-4
    period: int | None = None
    scale: float = 1.0
    on_iteration: Callable[[dict, np.ndarray], bool | str | None] | None = None
    least: int = 5
    history: list[dict] = field(default_factory=list)
    keeper: Keeper | None = None
    extra: dict = field(default_factory=dict)  # kept with every state
    _found: SolverState | None = None

    def check(self, record: dict, theta: np.ndarray) -> str | None:
        """Take the record of one iteration (0 = before the first); it must have an objective."""
        if not np.isfinite(record["objective"]):
            raise EspalierError(
                f"the objective is {record['objective']} at iteration {record['iteration']}: "
                "weights or data are not finite; check the sequence weights and the starting model"
            )
        self.history.append(record)
        asked = self.on_iteration(record, theta) if self.on_iteration else None
        return self._reason(record, asked)

    def earlier(self, size: int) -> SolverState | None:
        """The state that an interrupted run has left, with the history up to it."""
        state, self._found = self._found or (self.keeper.earlier(size) if self.keeper else None), None
        if state is None:
            return None
        self.history[:] = state.history
        return state

    def peek(self, size: int) -> SolverState | None:
        """The same, for a solver that hands over to another one, which will ask again."""
        self._found = self.earlier(size)
        return self._found

    def keep(self, state: SolverState) -> None:
        """Offer the state after an iteration to the keeper."""
        if self.keeper:
            state.history = list(self.history)
            state.extra = self.extra | state.extra
            self.keeper.offer(state)

    def _reason(self, record: dict, asked: bool | str | None) -> str | None:
        near = self.tolerance * max(1.0, abs(record["objective"]))
        gap, slope = record.get("gap"), record.get("gradient_norm", np.inf)
        if slope <= OPTIMAL * self.tolerance * self.scale and (gap is None or gap <= near):
            return "optimal"
        period = self.period or max(self.least, len(self.history) // THIRD)
        if len(self.history) > period and self.history[-1 - period]["objective"] - record["objective"] <= near:
            return "converged"
        if record["iteration"] >= self.max_iterations:
            return "max_iterations"
        return asked if isinstance(asked, str) else "stopped" if asked else None


@dataclass
class Result:
    theta: np.ndarray
    objective: float
    stop_reason: str
    iterations: int
    evaluations: int
    trace: list[dict]
