"""Exact excess risk against the sum over all inputs and all labellings."""

import itertools
import math

import numpy as np
import pytest
from reference import chain, templates

from espalier.engine.families.crf import CrfLabeller
from espalier.engine.weights.layout import KINDS, dense_layout
from espalier.tasks.judging import risk
from espalier.tasks.sources import simulated

EXACT = 1e-9  # a few hundred terms, each within rounding
LINES = ["*:%x[0,0]", "U+1:%x[1,0]", "B-1:%x[-1,0]", "U"]


def truth_of(n_labels, n_symbols, length, seed):
    rng = np.random.default_rng(seed)
    return {
        "initial": rng.dirichlet(np.ones(n_labels)).tolist(),
        "transition": rng.dirichlet(np.ones(n_labels), n_labels).tolist(),
        "emission": rng.dirichlet(np.ones(n_symbols), n_labels).tolist(),
        "labels": list("ABC")[:n_labels], "symbols": list("uvw")[:n_symbols], "length": length,
    }  # fmt: skip


def model_of(lines, symbols, labels, weight):
    """A model with weight(family, observation, previous, label) for everything that the symbols can yield."""
    inputs = [[[s] for s in x] for x in itertools.product(symbols, repeat=3)]
    names = sorted({text for row in templates.expand(inputs, lines) for text in row})
    layout = dense_layout(len(labels), [KINDS[name[0]] for name in names])
    slots = zip(*(column.tolist() for column in layout.slots()), strict=True)
    theta = np.array([weight(family, names[o], p, y) for family, o, p, y in slots])
    return CrfLabeller.compact(layout, theta, names, labels, lines, {})


def random_model(truth, seed, labels=None):
    rng = np.random.default_rng(seed)
    return model_of(LINES, truth["symbols"], labels or truth["labels"], lambda *_: rng.normal() * (rng.random() < 0.7))


def oracle_weights(model):
    weights = chain.Weights({}, {}, {})
    slots = zip(*(column.tolist() for column in model.layout.slots()), model.theta.tolist(), strict=True)
    for family, o, p, y, value in slots:
        {0: weights.mu, 1: weights.start, 2: weights.lam}[family][(o, p, y) if family == 2 else (o, y)] = value
    return weights


def joint(truth, x, y):
    """p(x, y) of the hidden Markov model, symbol and state numbers."""
    p = truth["initial"][y[0]]
    for t in range(len(x)):
        p *= truth["emission"][y[t]][x[t]] * (truth["transition"][y[t - 1]][y[t]] if t else 1.0)
    return p


def brute_force(truth, model):
    """Risk of the model, least risk, and Bayes error by enumeration of inputs and labellings."""
    weights, known = oracle_weights(model), {text: i for i, text in enumerate(model.observations)}
    n, length = len(truth["labels"]), truth["length"]
    code = [model.labels.index(label) for label in truth["labels"]]
    loss, least, error = [], [], []
    for x in itertools.product(range(len(truth["symbols"])), repeat=length):
        rows = templates.expand([[[truth["symbols"][s]] for s in x]], model.templates)
        position = [[known.get(text, -1) for text in row] for row in rows]
        labellings = list(itertools.product(range(n), repeat=length))
        p = {y: joint(truth, x, y) for y in labellings}
        total = math.fsum(p.values())
        for y in labellings:
            theirs = tuple(code[label] for label in y)
            loss.append(-p[y] * chain.log_probability(position, theirs, n, weights))
            least.append(-p[y] * math.log(p[y] / total) if p[y] else 0.0)
        for t in range(length):
            best = max(math.fsum(p[y] for y in labellings if y[t] == label) for label in range(n))
            error.append((total - best) / length)
    return math.fsum(loss), math.fsum(least), math.fsum(error)


@pytest.mark.parametrize(("n_labels", "n_symbols", "length"), [(2, 2, 3), (3, 2, 3), (2, 3, 3), (3, 3, 2), (2, 2, 1)])
@pytest.mark.parametrize("seed", [0, 1])
def test_excess_risk_is_that_of_enumeration(n_labels, n_symbols, length, seed):
    truth = truth_of(n_labels, n_symbols, length, seed)
    model = random_model(truth, seed + 10)
    found = risk.excess_risk(truth, model)
    loss, least, error = brute_force(truth, model)
    assert found["bayes_risk"] == pytest.approx(least, abs=EXACT)
    assert found["excess_risk"] == pytest.approx(loss - least, abs=EXACT)
    assert found["bayes_error"] == pytest.approx(error, abs=EXACT)
    assert found["excess_risk"] > 0


def test_the_order_of_the_labels_in_the_model_does_not_matter():
    truth = truth_of(3, 2, 3, 5)
    model = random_model(truth, 6, labels=["C", "A", "B"])
    loss, least, _ = brute_force(truth, model)
    assert risk.excess_risk(truth, model)["excess_risk"] == pytest.approx(loss - least, abs=EXACT)


def hidden_markov_crf(truth):
    """The conditional random field that is the hidden Markov model."""
    symbols, logs = truth["symbols"], {name: np.log(truth[name]) for name in ("initial", "transition", "emission")}

    def weight(family, observation, previous, label):
        if family == 0:
            return logs["emission"][label][symbols.index(observation[-1])]
        return logs["initial"][label] if family == 1 else logs["transition"][previous][label]

    return model_of(["*:%x[0,0]"], symbols, truth["labels"], weight)


@pytest.mark.parametrize(
    "truth", [truth_of(3, 3, 3, 2), truth_of(2, 3, 1, 3), simulated.truth()], ids=["small", "one", "full"]
)
def test_the_truth_itself_has_no_excess_risk(truth):
    assert risk.excess_risk(truth, hidden_markov_crf(truth))["excess_risk"] == pytest.approx(0, abs=EXACT)


def test_any_step_away_from_the_truth_costs():
    truth = simulated.truth()
    model = hidden_markov_crf(truth)
    for slot in (0, model.layout.size // 2, model.layout.size - 1):
        theta = model.theta.copy()
        theta[slot] += 0.5
        away = CrfLabeller(model.labels, model.templates, model.observations, model.layout, theta)
        assert risk.excess_risk(truth, away)["excess_risk"] > 1000 * EXACT


def test_a_model_without_weights_is_uniform():
    """Its loss is log(labels) at every position, so the excess is what the truth knows better."""
    truth = truth_of(3, 2, 3, 4)
    model = model_of(["U:%x[0,0]"], truth["symbols"], truth["labels"], lambda *_: 0.0)
    found = risk.excess_risk(truth, model)
    assert found["excess_risk"] == pytest.approx(3 * math.log(3) - found["bayes_risk"], abs=EXACT)


def test_posteriors_are_distributions_and_inputs_are_all_there():
    truth = truth_of(3, 2, 3, 7)
    inputs = risk.all_inputs(truth)
    assert {tuple(x) for x in inputs.tolist()} == set(itertools.product(range(2), repeat=3))
    probability, single, pairs = risk.true_posteriors(truth, inputs)
    assert probability.sum() == pytest.approx(1, abs=EXACT)
    assert single.sum(axis=2) == pytest.approx(np.ones((8, 3)), abs=EXACT)
    assert pairs.sum(axis=3) == pytest.approx(single[:, :-1], abs=EXACT)
    assert pairs.sum(axis=2) == pytest.approx(single[:, 1:], abs=EXACT)


def test_a_model_that_misses_a_label_has_no_finite_risk():
    """It gives probability zero to what happens; the figures of the truth alone remain."""
    truth = truth_of(3, 2, 3, 8)
    whole = risk.excess_risk(truth, random_model(truth, 9))
    found = risk.excess_risk(truth, random_model(truth, 9, labels=["A", "C"]))
    assert "excess_risk" not in found
    assert found == {name: whole[name] for name in ("bayes_risk", "bayes_error")}
