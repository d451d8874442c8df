"""Limits of logistic regression on a finite set of inputs, by enumeration of all (x, y).

features [X][p], q [X], eta [X][K], theta [p][K-1]; class 0 has the score 0. A vector of parameters lists the
classes of the first feature, then those of the second, and so on. Nothing is simplified: a gradient is that
of one pair (x, y), an expectation a sum over pairs, a second derivative a difference of gradients.
"""

import math

import numpy as np

STEP = 1e-5  # of central differences


def conditional(theta, x):
    """g(y | x; theta) for each y"""
    scores = [0.0] + [sum(theta[i][k] * x[i] for i in range(len(x))) for k in range(len(theta[0]))]
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    return [weight / sum(weights) for weight in weights]


def loss(theta, x, y):
    return -math.log(conditional(theta, x)[y])


def gradient(theta, x, y):
    """of the loss at (x, y), as a vector"""
    g = conditional(theta, x)
    return np.array([x[i] * (g[k + 1] - (y == k + 1)) for i in range(len(x)) for k in range(len(theta[0]))])


def risk(theta, features, q, eta):
    return sum(
        q[n] * eta[n][y] * loss(theta, x, y) for n, x in enumerate(features) for y in range(len(eta[n]))
    )  # fmt: skip


def expected_gradient(theta, features, q, eta):
    return sum(
        q[n] * eta[n][y] * gradient(theta, x, y) for n, x in enumerate(features) for y in range(len(eta[n]))
    )  # fmt: skip


def information_i(theta, features, q, eta, q_train):
    """E_test[ q / q_train * gradient gradient^T ]; without shift the two marginals are the same"""
    total = 0
    for n, x in enumerate(features):
        for y in range(len(eta[n])):
            g = gradient(theta, x, y)
            total = total + q[n] * eta[n][y] * q[n] / q_train[n] * np.outer(g, g)
    return total


def information_h(theta, features, q, eta, q_train):
    """E_test[ q / q_train * variance of the gradient given x ]"""
    total = 0
    for n, x in enumerate(features):
        gradients = [gradient(theta, x, y) for y in range(len(eta[n]))]
        mean = sum(p * g for p, g in zip(eta[n], gradients, strict=True))
        variance = sum(p * np.outer(g - mean, g - mean) for p, g in zip(eta[n], gradients, strict=True))
        total = total + q[n] * q[n] / q_train[n] * variance
    return total


def information_j(theta, features, q, eta):
    """second derivative of the risk, by central differences of its gradient"""
    theta = np.asarray(theta, dtype=float)
    columns = []
    for i in range(theta.size):
        step = np.zeros(theta.size)
        step[i] = STEP
        step = step.reshape(theta.shape)
        ahead, behind = (expected_gradient(theta + s * step, features, q, eta) for s in (1, -1))
        columns.append((ahead - behind) / (2 * STEP))
    return np.array(columns).T


def best_fit(features, q, eta, steps=20000, rate=0.5):
    """theta of the least risk, by gradient descent with many small steps"""
    theta = np.zeros((len(features[0]), len(eta[0]) - 1))
    features, q, eta = np.asarray(features, float), np.asarray(q, float), np.asarray(eta, float)
    for _ in range(steps):
        weights = np.exp(features @ np.column_stack([np.zeros(len(theta)), theta]))
        g = weights / weights.sum(axis=1, keepdims=True)
        theta = theta - rate * features.T @ (q[:, None] * (g - eta))[:, 1:]
    return theta


def penalised_loss(theta, features, table, ridge):
    """sum over x, y of table[x][y] * loss + ridge * |theta|^2, for two classes and theta [p]"""
    column = [[t] for t in theta]
    losses = sum(
        table[n][y] * loss(column, x, y) for n, x in enumerate(features) for y in (0, 1) if table[n][y] > 0
    )  # fmt: skip
    return losses + ridge * sum(t * t for t in theta)


def all_tables(cells, n):
    """every way to put n observations into cells"""
    if cells == 1:
        yield (n,)
        return
    for first in range(n + 1):
        for rest in all_tables(cells - 1, n - first):
            yield (first, *rest)


def chance(table, joint):
    """multinomial probability of a table"""
    ways = math.factorial(sum(table))
    for count in table:
        ways //= math.factorial(count)
    return ways * math.prod(p**count for p, count in zip(joint, table, strict=True))


def gradient_moments(estimator, theta, features, q_train, q_test, eta, n):
    """mean and covariance of the gradient of the weighted loss over all samples of size n"""
    classes = len(eta[0])
    joint = [q_train[x] * eta[x][y] for x in range(len(features)) for y in range(classes)]
    mean, second = 0, 0
    for table in all_tables(len(joint), n):
        total = 0
        for x, row in enumerate(features):
            counts = table[x * classes : (x + 1) * classes]
            for y in range(classes):
                weight = {"supervised": counts[y] / n, "weighted": counts[y] / n * q_test[x] / q_train[x],
                          "semisupervised": q_test[x] * counts[y] / max(1, sum(counts))}[estimator]  # fmt: skip
                total = total + weight * gradient(theta, row, y)
        p = chance(table, joint)
        mean, second = mean + p * total, second + p * np.outer(total, total)
    return mean, second - np.outer(mean, mean)


def mean_inverse(n, q):
    """E[1 / N] over binomial N > 0, zero counted as 0"""
    return sum(math.comb(n, k) * q**k * (1 - q) ** (n - k) / k for k in range(1, n + 1))
