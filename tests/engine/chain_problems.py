"""Packs the plain problems of tests/reference for the engine and names the engine's weights as the oracle does."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from reference import chain
from reference.problems import random_problem

from engine.data import Dataset
from engine.layout import dense_layout, seen_layout

FAMILIES = ("mu", "start", "lam")


class Packed(NamedTuple):
    problem: object
    dataset: Dataset
    layout: object


def dataset_of(problem):
    rows = [position for sequence in problem.sequences for position in sequence]
    lengths = [len(sequence) for sequence in problem.sequences]
    return Dataset(
        observations=np.array(rows, dtype=np.int32).reshape(len(rows), -1),
        labels=np.array([y for labels in problem.labels for y in labels], dtype=np.int32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        weights=np.array(problem.weights, dtype=np.float64),
    )


def pack(problem, layout="dense"):
    dataset = dataset_of(problem)
    kinds = np.array(problem.kinds, dtype=np.uint8)
    if layout == "dense":
        return Packed(problem, dataset, dense_layout(problem.n_labels, kinds, problem.start))
    return Packed(problem, dataset, seen_layout(dataset, problem.n_labels, kinds, problem.start))


def slot_features(layout):
    """Key of reference.chain.features for each coordinate of theta."""
    keys = []
    for family, observation, previous, label in zip(*(np.asarray(column).tolist() for column in layout.slots())):
        name = FAMILIES[family]
        keys.append((name, observation, previous, label) if name == "lam" else (name, observation, label))
    return keys


def weights_of(layout, theta):
    """theta as the oracle's dicts."""
    weights = chain.Weights({}, {}, {})
    for feature, value in zip(slot_features(layout), theta.tolist()):
        getattr(weights, feature[0])[feature[1:]] = value
    return weights


def theta_of(layout, weights):
    """The oracle's dicts as theta; a weight the layout has no place for is an error of the test."""
    features = slot_features(layout)
    named = {(name, *key) for name in FAMILIES for key in getattr(weights, name)}
    assert named <= set(features), f"the layout lacks {sorted(named - set(features))}"
    return np.array([chain.weight_of(weights, feature) for feature in features], dtype=np.float64)


def random_theta(size, seed, density=1.0, scale=1.5):
    rng = np.random.default_rng(seed)
    theta = rng.normal(0.0, scale, size)
    theta[rng.random(size) >= density] = 0.0
    return theta


@st.composite
def problems(draw, max_labels=4, max_length=5):
    """Mostly real lattices: hypothesis likes the smallest choice, so the telling choices come first."""
    return random_problem(
        seed=draw(st.integers(0, 2**31)),
        n_labels=draw(st.sampled_from([y for y in (3, 2, 4, 1) if y <= max_labels])),
        n_observations=draw(st.sampled_from([3, 2, 4, 1])),
        n_columns=draw(st.sampled_from([2, 1, 3])),
        lengths=draw(st.lists(st.integers(1, max_length), min_size=1, max_size=3)),
        start=draw(st.booleans()),
        none=draw(st.sampled_from([0.2, 0.0, 0.9])),
    )


@st.composite
def lattices(draw, scale=1.5):
    """A packed problem and a theta, sparse or dense, for it."""
    packed = pack(draw(problems()), draw(st.sampled_from(["dense", "seen"])))
    density = draw(st.sampled_from([0.5, 1.0, 0.1, 0.0]))
    return packed, random_theta(packed.layout.size, draw(st.integers(0, 2**31)), density, scale)
