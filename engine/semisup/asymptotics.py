"""What logistic regression tends to on a finite set of inputs, and how fast (THESIS ch. 4, app. A).

X inputs have features [X, p], probabilities q(x) and true conditionals eta(y|x) [X, K]. The model is
g(y|x; theta) = exp(theta_y . x) / sum_k exp(theta_k . x) with theta_0 = 0, so theta is [p, K - 1] and, as
a vector, lists the classes of the first feature, then of the second. With the gradient of one pair
(x, y), which is x (g - 1{y}), expectations over y become matrices of the classes (app. A):

    H = E_q[ xx' (x) (diag(eta) - eta eta') ]          variance that is left when x is known (4.19, 4.32)
    I = H + E_q[ xx' (x) (eta - g)(eta - g)' ]         second moment of the gradient (4.20, 4.33)
    J = E_q[ xx' (x) (diag(g) - g g') ]                second derivative of the risk (4.21, 4.34)

n^(1/2) (estimate - theta*) tends to a normal law with covariance J^-1 I J^-1 for conditional maximum likelihood
and J^-1 H J^-1 for the estimator that knows q (theorem 4.1); n times the expected excess risk tends to
trace(I J^-1) / 2 and trace(H J^-1) / 2 (corollary 4.2).

Under covariate shift the data come from q0 and the risk is that of q1. H and I then carry another factor
q1/q0 and belong to the semi-supervised estimator and to Shimodaira's weights q1/q0 (4.28-4.30).
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError

STEPS, HALVINGS = 200, 60
DECREMENT = 1e-24  # Newton's decrement at which theta is exact to rounding
ENOUGH = 1e-12  # decrement that will do where rounding stops the descent earlier
SUFFICIENT = 1e-4  # share of the predicted decrease that a step must bring (Armijo)
FLAT = 1e-9  # a risk below this share of the weights means classes that can be told apart for certain


class Limit(NamedTuple):
    """Of an estimator: where it goes, and what n times its covariance, squared error and excess risk tend to."""

    theta: np.ndarray  # float64 [p, K - 1]
    covariance: np.ndarray  # float64 [D, D], D = p (K - 1)
    squared_error: float
    excess_risk: float


class Information(NamedTuple):
    """I, J and H at theta, each [D, D]."""

    i: np.ndarray
    j: np.ndarray
    h: np.ndarray


class Theory(NamedTuple):
    """Limits under one marginal q."""

    risk: float  # of theta*, in nats
    information: Information
    supervised: Limit
    semisupervised: Limit


class Shifted(NamedTuple):
    """Limits when the sample comes from q0 and the risk is that of q1."""

    risk: float  # of theta1*, under q1
    gap: float  # risk of theta0* under q1 minus that: what never goes away without weights
    information: Information  # I_{0,1}, J_1, H_{0,1}
    supervised: Limit  # without weights: goes to theta0*, its excess risk is that under q0
    weighted: Limit  # with weights q1 / q0
    semisupervised: Limit


def probabilities(features: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """g(y|x; theta), float64 [X, K]."""
    scores = np.concatenate([np.zeros((len(features), 1)), features @ theta], axis=1)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def risk(features: np.ndarray, q: np.ndarray, eta: np.ndarray, theta: np.ndarray) -> float:
    """E[-log g(Y|X; theta)] in nats."""
    scores = np.concatenate([np.zeros((len(features), 1)), features @ theta], axis=1)
    top = scores.max(axis=1)
    log_total = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
    return float(q @ (log_total - (eta * scores).sum(axis=1)))


def error_probability(features: np.ndarray, q: np.ndarray, eta: np.ndarray, theta: np.ndarray) -> float:
    """Probability that the likeliest class under theta is wrong; of equally likely ones the first is taken."""
    said = probabilities(features, theta).argmax(axis=1)
    return float(q @ (1 - eta[np.arange(len(eta)), said]))


def bayes_error(q: np.ndarray, eta: np.ndarray) -> float:
    """The least probability of error that any classifier has (5.2)."""
    return float(q @ (1 - eta.max(axis=1)))


def best_fit(features: np.ndarray, q: np.ndarray, eta: np.ndarray) -> np.ndarray:
    """theta* of the least risk (4.16), by Newton's method with halved steps where a whole one is too long."""
    return minimum(*checked(features, q, eta))


def minimum(features: np.ndarray, weights: np.ndarray, eta: np.ndarray, ridge: float = 0.0) -> np.ndarray:
    """theta that minimises sum_x weights(x) * E[loss | x] + ridge * |theta|^2."""
    theta, q = np.zeros((features.shape[1], eta.shape[1] - 1)), weights
    value, penalty = risk(features, q, eta, theta), 2 * ridge * np.eye(theta.size)
    for _ in range(STEPS):
        g = probabilities(features, theta)
        gradient = features.T @ (q[:, None] * (g - eta)[:, 1:]) + 2 * ridge * theta
        step = solve(moment(features, q, spread(g)) + penalty, gradient.ravel()).reshape(theta.shape)
        decrement = float((gradient * step).sum())
        if decrement <= DECREMENT:
            return theta
        theta, lower = _descend(features, q, eta, ridge, theta, value, step, decrement)
        if lower >= value and decrement <= ENOUGH:
            return theta
        value = lower
        if ridge == 0 and value < FLAT * q.sum():
            break
    raise EspalierError(
        f"the best fit was not found by Newton's method (risk {value:.3g}, largest parameter "
        f"{np.abs(theta).max():.3g}): expected conditionals that leave every class possible, so that a best fit exists"
    )


def _descend(features, q, eta, ridge, theta, value, step, decrement):
    """The first of theta - step, theta - step / 2, … that lowers the penalised risk enough, and that risk."""
    size = 1.0
    for _ in range(HALVINGS):
        candidate = theta - size * step
        lower = risk(features, q, eta, candidate) + ridge * float((candidate**2).sum())
        if lower <= value - SUFFICIENT * size * decrement:
            return candidate, lower
        size /= 2
    return theta - step if decrement <= ENOUGH else theta, value


def information(
    features: np.ndarray, q: np.ndarray, eta: np.ndarray, theta: np.ndarray, q_train: np.ndarray | None = None
) -> Information:
    """I, J and H at theta; with `q_train` the sample comes from there, and q is the marginal of the risk."""
    g = probabilities(features, theta)
    ratio = q if q_train is None else np.divide(q * q, q_train, out=np.zeros(len(q)), where=q_train > 0)
    away = (eta - g)[:, 1:]
    h = moment(features, ratio, spread(eta))
    i = h + moment(features, ratio, away[:, :, None] * away[:, None, :])
    return Information(i, moment(features, q, spread(g)), h)


def theory(features: np.ndarray, q: np.ndarray, eta: np.ndarray) -> Theory:
    """What both estimators tend to when sample and risk have the same marginal q (theorem 4.1, corollary 4.2)."""
    features, q, eta = checked(features, q, eta)
    theta = best_fit(features, q, eta)
    found = information(features, q, eta, theta)
    return Theory(
        risk(features, q, eta, theta), found, _limit(theta, found.i, found.j), _limit(theta, found.h, found.j)
    )


def shifted(features: np.ndarray, q_train: np.ndarray, q_test: np.ndarray, eta: np.ndarray) -> Shifted:
    """Limits under covariate shift (proposition 4.3).

    Where the model is well specified, theta0* = theta1* and I_{0,1} = H_{0,1}: the semi-supervised estimator is
    then as good as the weighted one, and neither is better than maximum likelihood without weights. (The
    source's 4.3 says there that the semi-supervised one equals the unweighted; its own matrices say the
    weighted.)
    """
    features, q_train, eta = checked(features, q_train, eta)
    q_test = checked(features, q_test, eta)[1]
    never = np.flatnonzero((q_train <= 0) & (q_test > 0))
    if len(never):
        raise EspalierError(
            f"input {never[0]} has probability {q_test[never[0]]:.3g} in the test and none in the sample: "
            "expected q_train > 0 wherever q_test is"
        )
    without = theory(features, q_train, eta)
    theta = best_fit(features, q_test, eta)
    found = information(features, q_test, eta, theta, q_train)
    least = risk(features, q_test, eta, theta)
    gap = risk(features, q_test, eta, without.supervised.theta) - least
    weighted, semisupervised = (_limit(theta, spread, found.j) for spread in (found.i, found.h))
    return Shifted(least, gap, found, without.supervised, weighted, semisupervised)


def _limit(theta: np.ndarray, spread: np.ndarray, j: np.ndarray) -> Limit:
    """J^-1 S J^-1, its trace, and trace(S J^-1) / 2."""
    half = solve(j, spread)
    covariance = solve(j, half.T)
    return Limit(theta, (covariance + covariance.T) / 2, float(np.trace(covariance)), float(np.trace(half)) / 2)


def spread(p: np.ndarray) -> np.ndarray:
    """diag(p) - p p' without class 0, [X, K - 1, K - 1]."""
    p = p[:, 1:]
    return p[:, :, None] * (np.eye(p.shape[1]) - p[:, None, :])


def moment(features: np.ndarray, q: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """sum_x q(x) xx' (x) M(x), [D, D]."""
    blocks = np.einsum("x,xi,xj,xab->iajb", q, features, features, matrices, optimize=True)
    size = features.shape[1] * matrices.shape[1]
    return blocks.reshape(size, size)


def solve(j: np.ndarray, right: np.ndarray) -> np.ndarray:
    if np.linalg.cond(j) > 1 / np.finfo(float).eps:
        raise EspalierError(
            "the second derivative of the risk is singular: expected features that are linearly independent "
            "on the inputs that occur (counts with a fixed sum need no constant feature)"
        )
    return np.linalg.solve(j, right)


def checked(features, q, eta) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    features, q, eta = (np.asarray(values, np.float64) for values in (features, q, eta))
    if features.ndim != 2 or eta.ndim != 2 or eta.shape[1] < 2 or not len(features) == len(eta) == len(q):
        raise EspalierError(
            f"features {features.shape}, q {q.shape} and eta {eta.shape} do not go together: "
            "expected inputs x features, inputs, and inputs x classes (2 or more)"
        )
    for name, values, total in (("q", q, q.sum()), ("eta", eta, eta.sum(axis=1))):
        if not np.all(values >= 0) or not np.allclose(total, 1.0, rtol=0, atol=1e-9):
            raise EspalierError(f"{name} is no distribution: expected probabilities of at least 0 that sum to 1")
    return features, q, eta
