"""Logistic regression and naive Bayes on dense count vectors, term by term.

x [N][F], labels [N], theta [K][F] with one vector for each class (a reference class has zeros), weights [N].
"""

import math

import numpy as np


def log_probabilities(x, theta):
    """[K] of one vector"""
    scores = [math.fsum(float(a) * float(b) for a, b in zip(x, row, strict=True)) for row in theta]
    top = max(scores)
    log_z = top + math.log(math.fsum(math.exp(s - top) for s in scores))
    return [s - log_z for s in scores]


def loss(x, labels, theta, weights):
    return math.fsum(-w * log_probabilities(row, theta)[y] for row, y, w in zip(x, labels, weights, strict=True))


def gradient(x, labels, theta, weights):
    """[K][F] sum_n w_n (g_k - 1{y_n = k}) x_n"""
    total = np.zeros((len(theta), len(theta[0])))
    for row, y, w in zip(x, labels, weights, strict=True):
        for k, log_g in enumerate(log_probabilities(row, theta)):
            for f, count in enumerate(row):
                total[k, f] += w * (math.exp(log_g) - (k == y)) * count
    return total


def hessian(x, theta, weights):
    """[K][F][K][F] sum_n w_n x x' g_k (1{k = l} - g_l)"""
    n_classes, n_features = len(theta), len(theta[0])
    total = np.zeros((n_classes, n_features, n_classes, n_features))
    for row, w in zip(x, weights, strict=True):
        g = [math.exp(v) for v in log_probabilities(row, theta)]
        for k in range(n_classes):
            for m in range(n_classes):
                total[k, :, m, :] += w * g[k] * ((k == m) - g[m]) * np.outer(row, row)
    return total


def entropy(x, theta, weights):
    """sum_n w_n H(g(. | x_n)), 0 log 0 = 0"""
    total = []
    for row, w in zip(x, weights, strict=True):
        total += [-w * math.exp(v) * v for v in log_probabilities(row, theta)]
    return math.fsum(total)


def entropy_gradient(x, theta, weights):
    """[K][F] minus the covariance of the score and of the feature of class k, both taken by their definition"""
    total = np.zeros((len(theta), len(theta[0])))
    for row, w in zip(x, weights, strict=True):
        g = [math.exp(v) for v in log_probabilities(row, theta)]
        scores = [math.fsum(float(a) * float(b) for a, b in zip(row, other, strict=True)) for other in theta]
        mean = math.fsum(p * s for p, s in zip(g, scores, strict=True))
        for k in range(len(theta)):
            for f, count in enumerate(row):
                both = g[k] * scores[k] * count
                total[k, f] -= w * (both - mean * g[k] * count)
    return total


# ---- naive Bayes


def estimate(x, shares, smoothing):
    """pi [K] and phi [K][F] from vectors that belong to class k by shares[n][k]"""
    members = [sum(row[k] for row in shares) for k in range(len(shares[0]))]
    prior = [m / sum(members) for m in members]
    features = []
    for k in range(len(members)):
        counts = [smoothing + sum(s[k] * row[f] for row, s in zip(x, shares, strict=True)) for f in range(len(x[0]))]
        features.append([c / sum(counts) for c in counts])
    return prior, features


def log_joint(row, k, prior, features):
    return math.log(prior[k]) + math.fsum(count * math.log(p) for count, p in zip(row, features[k], strict=True))


def posterior(row, prior, features):
    joint = [log_joint(row, k, prior, features) for k in range(len(prior))]
    top = max(joint)
    parts = [math.exp(v - top) for v in joint]
    return [p / sum(parts) for p in parts]


def log_marginal(row, prior, features):
    joint = [log_joint(row, k, prior, features) for k in range(len(prior))]
    return max(joint) + math.log(math.fsum(math.exp(v - max(joint)) for v in joint))


def one_hot(labels, n_classes, weights):
    return [[w * (k == y) for k in range(n_classes)] for y, w in zip(labels, weights, strict=True)]


def em(x, labels, weights, pool, pool_weights, n_classes, smoothing, iterations):
    """[(prior, features, log-likelihood)], first of the supervised estimate, then after each iteration"""
    known = one_hot(labels, n_classes, weights)
    prior, features = estimate(x, known, smoothing)
    found = []
    for _ in range(iterations + 1):
        likelihood = math.fsum(
            [w * log_joint(row, y, prior, features) for row, y, w in zip(x, labels, weights, strict=True)]
            + [w * log_marginal(row, prior, features) for row, w in zip(pool, pool_weights, strict=True)]
        )
        found.append((prior, features, likelihood))
        guessed = [[w * p for p in posterior(row, prior, features)] for row, w in zip(pool, pool_weights, strict=True)]
        prior, features = estimate([*x, *pool], [*known, *guessed], smoothing)
    return found
