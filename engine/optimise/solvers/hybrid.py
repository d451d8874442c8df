"""Stochastic gradient to begin with, a limited-memory solver to end with.

An epoch over the sequences comes near the optimum in the time of a few gradients, but more of them
come little nearer; L-BFGS, or its proximal sister where there is an L1 term, needs about half as many
gradients from there as from zero. Of data in many blocks the first one is enough to begin with, so the start is
the same wherever they lie. A start that is not zero, such as an earlier model, is left as it is, and so is any
where the objective has no sample of plainly labelled sequences to offer.
"""

import numpy as np

from espalier.engine.losses.chain_objective import Sample
from espalier.engine.optimise.monitor import Monitor, Result
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers.lbfgs import lbfgs
from espalier.engine.optimise.solvers.pqn import pqn
from espalier.engine.optimise.solvers.sgd import start

EPOCHS = 1


def hybrid(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor, *, seed: int = 0) -> Result:
    earlier, spent = monitor.peek(len(theta)), 0
    if earlier is not None:
        spent = earlier.extra["start"]
    elif not theta.any() and (sample := _sample(objective)) is not None:
        theta, spent = start(objective, sample, penalty, theta, EPOCHS, seed)
    monitor.extra["start"] = spent
    result = (lbfgs if penalty.is_smooth else pqn)(objective, penalty, theta, monitor)
    result.evaluations += spent
    return result


def _sample(objective) -> Sample | None:
    return objective.sample() if "sample" in objective.offers else None
