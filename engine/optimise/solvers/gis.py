"""Generalised iterative scaling for CRFs (IIS 3.6.3.1), which the source calls intractable; it is not.

T(x, y) is the number of features that fire in a labelled sequence and C its largest value over the training inputs and
all their labellings. The correction feature s(x, y) = C - T(x, y) makes all counts sum to C, so that a step
    delta_k = log(observed_k / expected_k) / C,
for every feature and s alike, never raises the loss. The source objects that s is global: its expectation would be a
sum over all Y^T labellings. But T is a sum of features whose expectations are known, so
    E[s] = C - sum_k E[f_k]
by linearity, and the same holds of observed counts. Nor does s leave the chain: with a weight lambda_s the score is
    theta . f + lambda_s s = (theta - lambda_s) . f + lambda_s C,
and the constant cancels. So the weights of the chain move by delta_k - delta_s, and lambda_s need not be kept.

With a Gaussian prior each weight solves expected_k exp(C delta_k) + rho2 (theta_k + delta_k) = observed_k, as in
`iis`, and s has no weight: one would change theta and so the penalty, and the bound holds without it.

C is at least T(x) of every sequence, where IIS takes T(x) itself, so with a prior GIS takes shorter steps and more of
them. Without one s makes up for it by moving all weights together: on the toy problem of IIS table 4.2 GIS is ahead.
"""

import math

import numpy as np

from espalier.engine.optimise.monitor import Monitor, Result
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers.iis import check_data, largest_counts, scaled, updated
from espalier.engine.runtime.vectors import dot

RESOLVED = 1e-9  # share of C below which E[s], a difference of two sums, may be rounding: then lambda_s stays
SHORTEST = -50.0  # C delta_s where s was never observed: its best weight is minus infinity


def gis(objective, penalty: ElasticNet, theta: np.ndarray, monitor: Monitor) -> Result:
    check_data(objective)
    constant, observed = constant_of(objective), objective.observed
    total = constant * float(np.sum(objective.dataset.weights))

    def step(theta, expected):
        theta = updated(np.array([constant]), expected[None], observed, penalty, theta)
        if not penalty.rho2:
            counts = correction(total, observed), correction(total, expected)
            theta -= correction_step(*counts, constant, total)
        return theta

    return scaled(objective, penalty, theta, monitor, lambda theta: _expectations(objective, theta), step)


def _expectations(objective, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The loss, its gradient and the expected counts."""
    expected, log_z = objective.expectations(theta)
    loss = dot(objective.dataset.weights, log_z) - dot(theta, objective.observed)
    with np.errstate(invalid="ignore"):  # infinite weights of sequences show in the objective, which is refused
        return loss, expected - objective.observed, expected


def constant_of(objective) -> float:
    """C, the largest T(x, y); 1 where no feature ever fires."""
    return max(1.0, float(largest_counts(objective).max(initial=0)))


def correction(total: float, counts: np.ndarray) -> float:
    """The count of s, observed or expected, from those of the other features; `total` is C times all weights."""
    return total - dot(np.ones(len(counts)), counts)


def correction_step(observed: float, expected: float, constant: float, total: float) -> float:
    """delta_s; 0 where s hardly occurs, so that its counts are not known."""
    if expected <= RESOLVED * total:
        return 0.0
    return max(SHORTEST, math.log(observed / expected) if observed > 0.0 else SHORTEST) / constant
