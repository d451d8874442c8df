"""What solvers share: one line of the trace, and where they begin."""

import numpy as np

from espalier.engine.optimise.monitor import Monitor
from espalier.engine.optimise.objective import Objective, active_counts
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solver_state import SolverState


def record(
    objective: Objective, penalty: ElasticNet, theta, loss: float, gradient, iteration: int, evaluations: int
) -> dict:
    line = {
        "iteration": iteration,
        "objective": loss + penalty.value(theta),
        "loss": loss,
        "gradient_norm": penalty.optimality(theta, gradient),
        "gap": penalty.gap(theta, gradient, loss),
        "evaluations": evaluations,
    }
    return line | active_counts(objective, theta)


def first_state(objective: Objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor) -> SolverState:
    """The state that an interrupted run has left, else that of theta."""
    earlier = monitor.earlier(len(theta))
    if earlier is not None:
        return earlier
    loss, gradient = objective.value_and_gradient(theta)
    reason = monitor.check(record(objective, penalty, theta, loss, gradient, 0, 1), theta)
    return SolverState(theta, loss, gradient, 0, 1, reason)
