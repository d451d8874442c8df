"""The optimum of small elastic-net CRF problems, to about ten digits, by scipy and a Newton polish.

The loss is an enumeration: `counts[n]` holds, for each labelling of sequence n, how often each feature
fires.
"""

from typing import NamedTuple

import numpy as np
from reference import chain
from scipy.optimize import minimize


class Enumerated(NamedTuple):
    counts: list  # of [labellings, features]
    observed: list  # of [features]
    weights: np.ndarray  # [sequences]


class Optimum(NamedTuple):
    theta: np.ndarray
    objective: float
    violation: float


def enumerate_problem(sequences, labels, n_labels, sequence_weights, feature_list):
    """`feature_list`: keys of reference.chain.features, one for each coordinate of theta."""
    index = {feature: k for k, feature in enumerate(feature_list)}

    def count(sequence, labelling):
        row = np.zeros(len(feature_list))
        for feature in chain.features(sequence, labelling):
            if feature in index:
                row[index[feature]] += 1
        return row

    return Enumerated(
        [np.array([count(x, y) for y in chain.labellings(len(x), n_labels)]) for x in sequences],
        [count(x, y) for x, y in zip(sequences, labels, strict=True)],
        np.asarray(sequence_weights, dtype=float),
    )


def value_gradient_hessian(problem, theta):
    value, gradient = 0.0, np.zeros_like(theta)
    hessian = np.zeros((len(theta), len(theta)))
    for counts, observed, w in zip(problem.counts, problem.observed, problem.weights, strict=True):
        scores = counts @ theta
        top = scores.max()
        unnormalised = np.exp(scores - top)
        total = unnormalised.sum()
        probability = unnormalised / total
        mean = probability @ counts
        value += w * (top + np.log(total) - observed @ theta)
        gradient += w * (mean - observed)
        centred = counts - mean
        hessian += w * (centred.T * probability) @ centred
    return value, gradient, hessian


def objective(problem, theta, rho1, rho2):
    value = value_gradient_hessian(problem, theta)[0]
    return value + rho1 * np.abs(theta).sum() + 0.5 * rho2 * theta @ theta


def violation(theta, gradient, rho1, rho2):
    """Largest distance from zero to the subdifferential, over the coordinates."""
    smooth = gradient + rho2 * theta
    at_zero = np.maximum(np.abs(smooth) - rho1, 0.0)
    away = np.abs(smooth + rho1 * np.sign(theta))
    return float(np.where(theta == 0.0, at_zero, away).max(initial=0.0))


def optimum(problem, rho1, rho2):
    """theta = plus - minus with both >= 0 makes the penalty smooth; then Newton steps on the support."""
    size = len(problem.observed[0])
    if size == 0:
        return Optimum(np.zeros(0), objective(problem, np.zeros(0), rho1, rho2), 0.0)

    def split(both):
        plus, minus = both[:size], both[size:]
        theta = plus - minus
        value, gradient, _ = value_gradient_hessian(problem, theta)
        smooth = gradient + rho2 * theta
        penalty = rho1 * both.sum() + 0.5 * rho2 * theta @ theta
        return value + penalty, np.concatenate([smooth + rho1, rho1 - smooth])

    found = minimize(
        split,
        np.zeros(2 * size),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * (2 * size),
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 0.0, "gtol": 1e-9, "maxcor": 50},
    )
    theta = found.x[:size] - found.x[size:]
    if rho1 > 0:
        # a coordinate strictly inside the subdifferential at zero is zero at the optimum
        smooth = value_gradient_hessian(problem, theta)[1] + rho2 * theta
        theta[(np.abs(smooth) < rho1 - 1e-6) & (np.abs(theta) < 1e-5)] = 0.0
    theta = _polish(problem, theta, rho1, rho2)
    gradient = value_gradient_hessian(problem, theta)[1]
    return Optimum(theta, objective(problem, theta, rho1, rho2), violation(theta, gradient, rho1, rho2))


def _polish(problem, theta, rho1, rho2):
    """Newton on the support, kept only while the first-order conditions get better."""
    best, best_violation = theta, violation(theta, value_gradient_hessian(problem, theta)[1], rho1, rho2)
    for _ in range(20):
        _, gradient, hessian = value_gradient_hessian(problem, best)
        support = np.flatnonzero(best) if rho1 > 0 else np.arange(len(best))
        if len(support) == 0:
            break
        residual = (gradient + rho2 * best + rho1 * np.sign(best))[support]
        matrix = hessian[np.ix_(support, support)] + rho2 * np.eye(len(support))
        step = np.linalg.lstsq(matrix, residual, rcond=None)[0]
        candidate = best.copy()
        candidate[support] -= step
        if rho1 > 0 and np.any(np.sign(candidate[support]) != np.sign(best[support])):
            break
        found = violation(candidate, value_gradient_hessian(problem, candidate)[1], rho1, rho2)
        if found >= best_violation:
            break
        best, best_violation = candidate, found
    return best
