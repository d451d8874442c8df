"""Stochastic gradient to begin with, a limited-memory solver to end with.

An epoch over the sequences comes near the optimum in the time of a few gradients, but more of them
come little nearer; L-BFGS, or its proximal sister where there is an L1 term, needs about half as many
gradients from there as from zero. A start that is not zero, such as an earlier model, is left as it is.
"""

import numpy as np

from engine.monitor import Monitor, Result
from engine.penalty import ElasticNet
from engine.solvers.lbfgs import lbfgs
from engine.solvers.pqn import pqn
from engine.solvers.sgd import start

EPOCHS = 1


def hybrid(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor, *, seed: int = 0) -> Result:
    earlier, spent = monitor.peek(len(theta)), 0
    if earlier is not None:
        spent = earlier.extra["start"]
    elif len(objective.dataset.weights) and not theta.any():
        theta, spent = start(objective, penalty, theta, EPOCHS, seed)
    monitor.extra["start"] = spent
    result = (pqn if penalty.rho1 else lbfgs)(objective, penalty, theta, monitor)
    result.evaluations += spent
    return result
