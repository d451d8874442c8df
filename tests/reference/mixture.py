"""Mixture of multinomials by EM, with dense matrices and nothing clever.

counts [N][F], weights [k], probabilities [k][F].  The multinomial coefficient does not depend on the
parameters and is left out of every likelihood.
"""

import numpy as np


def log_joint(counts, weights, probabilities):
    """[N][k] log( weight_c * prod_f probability_cf ^ count_nf ), with 0 log 0 = 0"""
    table = np.zeros((len(counts), len(weights)))
    for n, row in enumerate(counts):
        for c, weight in enumerate(weights):
            total = np.log(weight) if weight > 0 else -np.inf
            for f, count in enumerate(row):
                if count > 0:
                    p = probabilities[c, f]
                    total += count * np.log(p) if p > 0 else -np.inf
            table[n, c] = total
    return table


def log_likelihood(counts, weights, probabilities):
    joint = log_joint(counts, weights, probabilities)
    top = joint.max(axis=1)
    return float(np.sum(top + np.log(np.exp(joint - top[:, None]).sum(axis=1))))


def posterior(counts, weights, probabilities):
    joint = log_joint(counts, weights, probabilities)
    unnormalised = np.exp(joint - joint.max(axis=1, keepdims=True))
    return unnormalised / unnormalised.sum(axis=1, keepdims=True)


def assign(counts, weights, probabilities):
    return log_joint(counts, weights, probabilities).argmax(axis=1)


def maximise(counts, responsibilities, smoothing):
    """Expected members of each component, expected counts of each feature, plus `smoothing`, normalised."""
    members = responsibilities.sum(axis=0) + smoothing
    weights = members / members.sum()
    expected = responsibilities.T @ counts + smoothing
    return weights, expected / expected.sum(axis=1, keepdims=True)


def log_posterior(counts, weights, probabilities, smoothing):
    """What EM with `smoothing` climbs: the likelihood times Dirichlet priors, up to a constant."""
    prior = smoothing * (np.log(weights).sum() + np.log(probabilities).sum())
    return log_likelihood(counts, weights, probabilities) + prior


def em_step(counts, weights, probabilities, smoothing):
    return maximise(counts, posterior(counts, weights, probabilities), smoothing)
