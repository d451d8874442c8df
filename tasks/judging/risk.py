"""Exact excess logarithmic risk of a model where the data comes from a known hidden Markov model.

The risk E[-log p_theta(y|x)] minus its least value E[-log p(y|x)] is the expected
Kullback-Leibler divergence of the two conditionals. All inputs of the simulated length
are enumerated; for each, both log-probabilities are linear in indicator pairs of the
labels, so the expectation needs only the pairwise posteriors of the truth.
"""

import itertools

import numpy as np
import polars as pl

from espalier.engine.families.labeller import Labeller
from espalier.engine.runtime.vectors import dot, log, product
from espalier.tasks.answering.tagging import dataset_of


def all_inputs(truth: dict) -> np.ndarray:
    """Every sequence of symbols, int64 [symbols ** length, length]."""
    return np.array(list(itertools.product(range(len(truth["symbols"])), repeat=truth["length"])), np.int64)


def true_posteriors(truth: dict, inputs: np.ndarray):
    """p(x) [N], single [N, T, Y] and pairwise [N, T - 1, Y, Y] posteriors of the labels under the truth."""
    initial, transition, emission = (np.array(truth[name]) for name in ("initial", "transition", "emission"))
    likelihood = emission.T[inputs]  # [N, T, Y]
    size, length, n_labels = likelihood.shape
    alpha, beta = np.empty_like(likelihood), np.ones_like(likelihood)
    alpha[:, 0] = initial * likelihood[:, 0]
    for t in range(1, length):
        alpha[:, t] = product(alpha[:, t - 1], transition) * likelihood[:, t]
    for t in range(length - 2, -1, -1):
        beta[:, t] = product(beta[:, t + 1] * likelihood[:, t + 1], transition.T)
    probability = alpha[:, -1].sum(axis=1)
    single = alpha * beta / probability[:, None, None]
    step = (beta * likelihood)[:, 1:]
    pairs = alpha[:, :-1, :, None] * transition * step[:, :, None, :] / probability[:, None, None, None]
    return probability, single, pairs


def true_entropy(truth: dict, inputs, probability, single, pairs) -> np.ndarray:
    """E[-log p(y | x)] of each input under the truth."""
    initial, transition, emission = (log(np.array(truth[name])) for name in ("initial", "transition", "emission"))
    joint = (single[:, 0] * initial).sum(axis=1) + (single * emission.T[inputs]).sum(axis=(1, 2))
    return log(probability) - joint - (pairs * transition).sum(axis=(1, 2, 3))


def tokens_of(truth: dict, inputs: np.ndarray) -> pl.DataFrame:
    symbols = np.array(truth["symbols"])[inputs.ravel()]
    return pl.DataFrame({"sequence": np.repeat(np.arange(len(inputs), dtype=np.int32), inputs.shape[1]),
                         "x0": pl.Series(symbols)})  # fmt: skip


def excess_risk(truth: dict, model: Labeller) -> dict:
    """Excess risk and Bayes risk in nats per sequence, and the Bayes error per token.

    A model that never saw one of the labels has an infinite risk, and none is given.
    """
    inputs = all_inputs(truth)
    probability, single, pairs = true_posteriors(truth, inputs)
    least = true_entropy(truth, inputs, probability, single, pairs)
    best = {"bayes_risk": dot(probability, least),
            "bayes_error": dot(probability, (1 - single.max(axis=2)).mean(axis=1))}  # fmt: skip
    if set(model.labels) != set(truth["labels"]):
        return best
    data = dataset_of(model, tokens_of(truth, inputs))
    here, between = model.scores(data)
    order = np.array([truth["labels"].index(label) for label in model.labels])
    single, pairs = single[:, :, order], pairs[:, :, order][:, :, :, order]
    shape = (*inputs.shape, len(order))
    expected = (single * here.reshape(shape)).sum(axis=(1, 2))
    expected += (pairs * between.reshape(*shape, len(order))[:, 1:]).sum(axis=(1, 2, 3))
    loss = model.log_partition(data) - expected
    return best | {"excess_risk": dot(probability, loss - least)}
