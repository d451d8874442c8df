"""One line of the trace, the same for every solver."""

from engine.penalty import ElasticNet


def record(objective, penalty: ElasticNet, theta, loss: float, gradient, iteration: int, evaluations: int) -> dict:
    line = {
        "iteration": iteration,
        "objective": loss + penalty.value(theta),
        "loss": loss,
        "gradient_norm": penalty.optimality(theta, gradient),
        "evaluations": evaluations,
    }
    return line | (objective.active(theta) if hasattr(objective, "active") else {})
