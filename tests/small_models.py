"""Small models with random weights, and what they say by enumeration."""

import numpy as np
from reference import chain, templates

from espalier.engine.data.dataset import make_dataset
from espalier.engine.families import gp, hmm, hmsvm, perceptron
from espalier.engine.families.boosting import BoostingLabeller
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.families.memm import MemmLabeller
from espalier.engine.families.perceptron import PerceptronLabeller
from espalier.engine.families.perceptron_options import PerceptronOptions
from espalier.engine.weights.layout import dense_layout, observation_kinds

LETTERS = "abé/😀"
LINES = ["*:%x[0,0]", "U1:%x[-1,0]/%x[0,0]", "U"]


def model_of(lines=None, labels=("X", "Y", "Z"), seed=0, symbols=LETTERS, sparse=0.0, family=CrfLabeller):
    """A model with random weights for what these symbols can yield, alone and in pairs; a share of them is zero."""
    lines = LINES if lines is None else lines
    words = [[[a], [b]] for a in symbols for b in symbols]
    names = sorted({text for row in templates.expand(words, lines) for text in row})
    layout = dense_layout(len(labels), observation_kinds(names))
    random = np.random.default_rng(seed)
    theta = random.normal(size=layout.size) * (random.random(layout.size) >= sparse)
    return family.compact(layout, theta, names, list(labels), lines, {})


def memm_of(labels=("X", "Y", "Z"), seed=0):
    return model_of(labels=labels, seed=seed, family=MemmLabeller)


def perceptron_of(labels=("X", "Y", "Z"), seed=0):
    return model_of(labels=labels, seed=seed, family=PerceptronLabeller)


def dual_perceptron_of(labels=("X", "Y", "Z"), seed=0):
    """Trained on random words; rows support labels."""
    data, names, _ = random_words(labels, seed)
    options = PerceptronOptions(degree=2, epochs=3)
    return perceptron.fit(data, names, observation_kinds(names), list(labels), LINES, {}, options)


def boosting_of(labels=("X", "Y", "Z"), seed=0):
    return model_of(labels=labels, seed=seed, family=BoostingLabeller)


def hmm_of(labels=("X", "Y", "Z"), seed=0):
    """Counted from random words of these symbols with random labels."""
    data, names, stream = random_words(labels, seed)
    return hmm.fit(data, names, stream, list(labels), LINES, {})


def gp_of(labels=("X", "Y", "Z"), seed=0):
    """Trained on the same."""
    data, names, _ = random_words(labels, seed)
    return gp.fit(data, names, observation_kinds(names), list(labels), LINES, {})


def hmsvm_of(labels=("X", "Y", "Z"), seed=0):
    """Trained on the same."""
    data, names, _ = random_words(labels, seed)
    return hmsvm.fit(data, names, observation_kinds(names), list(labels), LINES, {})


def random_words(labels, seed):
    """(random words with random labels, their observations, the template of each)."""
    random = np.random.default_rng(seed)
    words = ["".join(random.choice(list(LETTERS), random.integers(1, 5))) for _ in range(30)]
    rows = [row for word in words for row in templates.expand([[[letter] for letter in word]], LINES)]
    names = sorted({text for row in rows for text in row})
    stream = np.array([next(k for k, row in enumerate(LINES) if text[:2] == row[:2]) for text in names])
    ids = np.array([[names.index(text) for text in row] for row in rows])
    data = make_dataset(ids, random.integers(0, len(labels), len(ids)), np.cumsum([0, *map(len, words)]))
    return data, names, stream


def weights_of(model):
    """The weights as the oracle takes them."""
    weights = chain.Weights({}, {}, {})
    slots = zip(*(column.tolist() for column in model.layout.slots()), model.theta.tolist(), strict=True)
    for family, o, p, y, value in slots:
        (weights.mu, weights.start, weights.lam)[family][(o, p, y) if family == 2 else (o, y)] = value
    return weights


def observations_of(model, word):
    """Ids of the observations at each letter of a word."""
    known = {text: i for i, text in enumerate(model.observations)}
    rows = templates.expand([[[letter] for letter in word]], model.templates)
    return [[known.get(text, -1) for text in row] for row in rows]


def best_by_enumeration(model, words):
    """The labels of the likeliest labelling of each word, one after the other; the weights are random: there is one."""
    labels = []
    for word in words:
        (best,), _ = chain.best_labellings(observations_of(model, word), len(model.labels), weights_of(model))
        labels += [model.labels[y] for y in best]
    return labels
