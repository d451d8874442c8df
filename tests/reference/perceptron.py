"""Perceptrons the obvious way: every labelling is looked at, and the mean is taken of all weights that ever were."""

import math
from collections import Counter

from reference.chain import features, labellings


def difference(sequence, right, wrong):
    """f(x, right) - f(x, wrong) by key, zeros left out."""
    found = Counter(features(sequence, right))
    found.subtract(features(sequence, wrong))
    return {key: value for key, value in found.items() if value}


def best(sequence, right, n_labels, theta, margin):
    """The labelling with the largest F + margin * Hamming; among equals the one that is smallest from its end on."""

    def value(y):
        gain = margin * sum(a != b for a, b in zip(y, right, strict=True))
        return sum(theta.get(key, 0.0) for key in features(sequence, y)) + gain

    scored = {y: value(y) for y in labellings(len(sequence), n_labels)}
    top = max(scored.values())
    return min((y for y, value in scored.items() if value == top), key=lambda y: y[::-1])


def step_of(update, loss, norm, weight, c, gamma, bound):
    if update == "perceptron":
        return weight
    if norm == 0:
        return 0.0
    if update == "arow":
        return loss / (gamma / weight + norm)
    soft = loss / (norm + 0.5 / (c * weight))
    return {"none": loss / norm, "hard": min(c * weight, loss / norm), "soft": soft}[bound]


def trained(
    problem, orders, allowed=None, update="perceptron", margin=0.0, cost="root", c=1.0, gamma=1.0, variance=1.0,
    bound="hard", theta=None,
):  # fmt: skip
    """(last weights, their mean over all sequences seen, wrong sequences of each epoch); only `allowed` ones move."""
    theta, spread, total, seen, mistakes = dict(theta or {}), {}, Counter(), 0, []
    for order in orders:
        mistakes.append(0)
        for n in order:
            x, right, weight = problem.sequences[n], tuple(problem.labels[n]), problem.weights[n]
            wrong = best(x, right, problem.n_labels, theta, margin)
            if wrong != right:
                delta = difference(x, right, wrong)
                delta = {key: value for key, value in delta.items() if allowed is None or key in allowed}
                d = sum(a != b for a, b in zip(right, wrong, strict=True))
                lead = sum(theta.get(key, 0.0) * value for key, value in delta.items())
                loss = {"one": 1.0, "root": math.sqrt(d), "hamming": float(d)}[cost] - lead
            if wrong != right and (loss > 1e-9 * d or not margin):
                mistakes[-1] += 1
                loss = max(0.0, loss)
                wide = {key: spread.get(key, variance) if update == "arow" else 1.0 for key in delta}
                norm = sum(wide[key] * value**2 for key, value in delta.items())
                step = step_of(update, loss, norm, weight, c, gamma, bound)
                for key, value in delta.items():
                    theta[key] = theta.get(key, 0.0) + step * wide[key] * value
                    spread[key] = 1.0 / (1.0 / wide[key] + weight * value**2 / gamma)
            seen += 1
            for key, value in theta.items():
                total[key] += value
    return theta, {key: value / seen for key, value in total.items()}, mistakes
