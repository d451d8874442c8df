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


# The dual form (LABELSEQ algorithm 6), by labellings: alpha of each right one rises, alpha of each that was said falls.


def attributes(problem, position):
    """The observations of a position that single labels have weights for: what its kernel looks at."""
    return tuple(sorted({o for o in position if o >= 0 and problem.kinds[o] & 1}))


def pairs_of(problem, sequence, labels):
    """How often each weight of a pair of labels, or of a first label, is there."""
    return Counter(
        key for key in features(sequence, labels)
        if key[0] != "mu" and problem.kinds[key[1]] & 2 and (key[0] == "lam" or problem.start)
    )  # fmt: skip


def inner(problem, similar, eta, sequence, labels, other, others):
    """<psi(x, y), psi(x', y')> as a sum over all pairs of positions, and over pairs of labels."""
    rows, columns = ([attributes(problem, position) for position in one] for one in (sequence, other))
    alike = sum(
        similar(row, column)
        for row, y in zip(rows, labels, strict=True) for column, z in zip(columns, others, strict=True) if y == z
    )  # fmt: skip
    mine, theirs = pairs_of(problem, sequence, labels), pairs_of(problem, other, others)
    return alike + eta * sum(count * theirs[key] for key, count in mine.items())


def dual_trained(problem, orders, similar, eta=1.0):
    """(alpha by (sequence, labelling), its mean over all sequences seen, wrong sequences of each epoch)."""
    alpha, total, seen, mistakes = {}, Counter(), 0, []
    for order in orders:
        mistakes.append(0)
        for n in order:
            x, right, step = problem.sequences[n], tuple(problem.labels[n]), problem.weights[n]

            def value(y, x=x):
                return sum(
                    by * inner(problem, similar, eta, x, y, problem.sequences[j], z) for (j, z), by in alpha.items()
                )

            scored = {y: value(y) for y in labellings(len(x), problem.n_labels)}
            top = max(scored.values())
            wrong = min((y for y, found in scored.items() if found == top), key=lambda y: y[::-1])
            if wrong != right:
                mistakes[-1] += 1
                alpha[n, right] = alpha.get((n, right), 0.0) + step
                alpha[n, wrong] = alpha.get((n, wrong), 0.0) - step
            seen += 1
            for key, by in alpha.items():
                total[key] += by
    return alpha, {key: by / seen for key, by in total.items()}, mistakes


def by_rows(problem, alpha, eta=1.0):
    """(how much each set of attributes supports each label, the weights of pairs), both without zeros."""
    support, weights = Counter(), Counter()
    for (n, labels), by in alpha.items():
        for position, y in zip(problem.sequences[n], labels, strict=True):
            support[attributes(problem, position), y] += by
        for key, count in pairs_of(problem, problem.sequences[n], labels).items():
            weights[key] += eta * by * count
    return tuple({key: by for key, by in one.items() if by} for one in (support, weights))
