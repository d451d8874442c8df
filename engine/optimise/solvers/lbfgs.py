"""L-BFGS for smooth penalties (THESIS 3.3.2), with a line search for the weak Wolfe conditions."""

import numpy as np

from espalier.engine.optimise.monitor import Monitor, Result
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers.quasi_newton import descend
from espalier.engine.optimise.solvers.wolfe import wolfe


def lbfgs(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor) -> Result:
    return descend(objective, penalty, theta, monitor, wolfe)
