"""Packs the plain problems of tests/reference for the engine; names its weights as the oracle does."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from reference import chain
from reference.problems import random_problem

from espalier.engine.data.dataset import Dataset
from espalier.engine.weights.layout import dense_layout, seen_layout

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
    for family, observation, previous, label in zip(
        *(np.asarray(column).tolist() for column in layout.slots()), strict=True
    ):
        name = FAMILIES[family]
        keys.append((name, observation, previous, label) if name == "lam" else (name, observation, label))
    return keys


def weights_of(layout, theta):
    """theta as the oracle's dicts."""
    weights = chain.Weights({}, {}, {})
    for feature, value in zip(slot_features(layout), theta.tolist(), strict=True):
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


# One seed decides everything: drawn piece by piece, most of hypothesis's examples are degenerate
# lattices that no bug disturbs.
SEEDS = st.integers(0, 2**32)


def problems(max_labels=4, max_length=5):
    def make(seed):
        rng = np.random.default_rng(seed)
        return random_problem(
            seed,
            n_labels=int(rng.integers(2, max_labels + 1)) if rng.random() < 0.9 else 1,
            n_observations=int(rng.integers(1, 5)),
            n_columns=int(rng.integers(1, 4)),
            lengths=np.maximum(1, rng.integers(0, max_length + 1, 3)).tolist(),
            start=bool(rng.integers(2)),
            none=float(rng.choice([0.0, 0.2, 0.9], p=[0.3, 0.6, 0.1])),
        )

    return SEEDS.map(make)


@st.composite
def lattices(draw, scale=1.5):
    """A packed problem and a theta, sparse or dense, for it."""
    problem, rng = draw(problems()), np.random.default_rng(draw(SEEDS))
    packed = pack(problem, rng.choice(["dense", "seen"]))
    density = rng.choice([0.0, 0.1, 0.5, 1.0], p=[0.05, 0.25, 0.35, 0.35])
    return packed, random_theta(packed.layout.size, rng.integers(2**32), density, scale)
