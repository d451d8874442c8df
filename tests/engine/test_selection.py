"""Baselines of feature selection against counts and tables made the obvious way."""

import math

import numpy as np
import pytest
from chain_problems import lattices, pack, random_theta, slot_features
from hypothesis import given, settings
from reference import chain
from reference.problems import BOTH, Problem, random_problem

from espalier.engine.decoding.decode import viterbi
from espalier.engine.errors import EspalierError
from espalier.engine.losses import feature_selection
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=40)


def positions(problem):
    """(weight, label before or None, label, observations) of each position."""
    for sequence, labels, weight in zip(problem.sequences, problem.labels, problem.weights, strict=True):
        for t, row in enumerate(sequence):
            yield weight, labels[t - 1] if t else None, labels[t], {x for x in row if x >= 0}


def information(pairs):
    """Mutual information of two truth values from weighted (weight, v, z)."""
    total = sum(w for w, _, _ in pairs)

    def share(test):
        return sum(w for w, v, z in pairs if test(v, z)) / total

    found = 0.0
    for a in (False, True):
        for b in (False, True):
            joint = share(lambda v, z, a=a, b=b: (v, z) == (a, b))
            if joint > 0:
                one, other = share(lambda v, z, a=a: v == a), share(lambda v, z, b=b: z == b)
                found += joint * math.log(joint / (one * other))
    return found


def expected_information(problem, feature):
    name, x, *labels = feature
    if name == "mu":
        chosen = [(w, x in seen, y == labels[0]) for w, _, y, seen in positions(problem)]
    elif name == "start":
        chosen = [(w, x in seen, y == labels[0]) for w, before, y, seen in positions(problem) if before is None]
    else:
        chosen = [
            (w, x in seen and before == labels[0], y == labels[1])
            for w, before, y, seen in positions(problem)
            if before is not None
        ]
    return information(chosen) if sum(w for w, _, _ in chosen) > 0 else 0.0


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_mutual_information_of_every_feature(lattice):
    (problem, dataset, layout), _ = lattice
    found = feature_selection.mutual_information(dataset, layout)
    expected = [expected_information(problem, feature) for feature in slot_features(layout)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_mutual_information_by_hand():
    """Four positions; label 1 exactly where observation 0 is: one bit. Observation 1 is everywhere: nothing."""
    packed = pack(
        Problem(2, [1, 1], False, [[[0, 1]], [[-1, 1]], [[0, 1]], [[-1, 1]]], [[1], [0], [1], [0]], [1.0] * 4)
    )
    found = feature_selection.mutual_information(packed.dataset, packed.layout)
    np.testing.assert_allclose(found, [math.log(2), math.log(2), 0.0, 0.0], atol=1e-15)


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_counts_of_every_feature(lattice):
    (problem, dataset, layout), _ = lattice
    expected = dict.fromkeys(slot_features(layout), 0.0)
    for sequence, labels, weight in zip(problem.sequences, problem.labels, problem.weights, strict=True):
        for feature in chain.features(sequence, labels):
            if feature in expected:
                expected[feature] += weight
    np.testing.assert_allclose(feature_selection.counts(dataset, layout), list(expected.values()), atol=1e-12)


def test_keep_by_number_and_by_least_score():
    scores = np.array([2.0, 5.0, 1.0, 2.0, 2.0])
    assert feature_selection.keep(scores, count=3).tolist() == [True, True, False, True, False]
    assert feature_selection.keep(scores, count=0).tolist() == [False] * 5
    assert feature_selection.keep(scores, least=2.0).tolist() == [True, True, False, True, True]
    assert feature_selection.keep(feature_selection.magnitudes(np.array([-3.0, 1.0, 2.0])), count=2).tolist() == [
        True,
        False,
        True,
    ]


@EXAMPLES
@given(lattices())
def test_a_restricted_layout_is_the_whole_one_with_the_other_weights_at_zero(lattice):
    """Same features, same loss, same gradient, same labels: and theta goes there and back."""
    (_, dataset, layout), theta = lattice
    mask = random_theta(layout.size, 3) > 0.0
    small = feature_selection.keep_only(layout, mask)
    features = slot_features(layout)
    assert slot_features(small) == [features[k] for k in np.flatnonzero(mask)]
    assert (small.n_labels, small.n_observations) == (layout.n_labels, layout.n_observations)
    whole = feature_selection.expand(theta[mask], mask)
    np.testing.assert_array_equal(whole, np.where(mask, theta, 0.0))
    value, gradient = ChainObjective(dataset, layout).value_and_gradient(whole)
    small_value, small_gradient = ChainObjective(dataset, small).value_and_gradient(theta[mask])
    assert small_value == pytest.approx(value, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(small_gradient, gradient[mask], rtol=0, atol=1e-10)
    np.testing.assert_array_equal(viterbi(dataset, small, theta[mask]), viterbi(dataset, layout, whole))


@pytest.mark.parametrize("mask", [True, False])
def test_all_or_nothing_can_be_kept(mask):
    packed = pack(random_problem(5, 3, 4, 2, [3, 4, 2]))
    small = feature_selection.keep_only(packed.layout, np.full(packed.layout.size, mask))
    assert small.size == (packed.layout.size if mask else 0)
    objective = ChainObjective(packed.dataset, small)
    assert objective.value(np.zeros(small.size)) == pytest.approx(
        ChainObjective(packed.dataset, packed.layout).value(np.zeros(packed.layout.size)), rel=1e-12
    )


def test_more_features_fit_the_training_data_better():
    """Models of the best 3, 10 and all features by each baseline: the loss falls as features come in."""
    packed = pack(random_problem(8, 3, 4, 2, [4, 3, 5, 4], kinds=[BOTH] * 4)._replace(weights=[1.0] * 4))
    dataset, layout = packed.dataset, packed.layout
    ridge = ElasticNet(0.0, 0.5)
    full = minimise("lbfgs", ChainObjective(dataset, layout), ridge)
    baselines = {
        "cut-off": feature_selection.counts(dataset, layout),
        "mutual information": feature_selection.mutual_information(dataset, layout),
        "threshold": feature_selection.magnitudes(full.theta),
    }
    for scores in baselines.values():
        reached = []
        for count in (3, 10, layout.size):
            small = feature_selection.keep_only(layout, feature_selection.keep(scores, count=count))
            reached.append(minimise("lbfgs", ChainObjective(dataset, small), ridge, tolerance=1e-8).objective)
        assert reached[0] > reached[1] > reached[2]
        assert reached[2] == pytest.approx(full.objective, rel=1e-3)


def test_what_is_refused():
    packed = pack(random_problem(5, 3, 4, 2, [3, 4, 2]))
    scores = np.zeros(packed.layout.size)
    with pytest.raises(EspalierError, match="give either how many weights to keep or the least score"):
        feature_selection.keep(scores)
    with pytest.raises(EspalierError, match="give either how many weights to keep or the least score"):
        feature_selection.keep(scores, 1, 0.5)
    with pytest.raises(EspalierError, match=f"{len(scores) + 1} weights to keep: expected 0 to {len(scores)}"):
        feature_selection.keep(scores, len(scores) + 1)
    with pytest.raises(EspalierError, match=f"expected {len(scores)} values of true or false"):
        feature_selection.keep_only(packed.layout, np.ones(3, bool))
    with pytest.raises(EspalierError, match=f"expected {len(scores)} values of true or false"):
        feature_selection.keep_only(packed.layout, np.ones(len(scores)))
    with pytest.raises(EspalierError, match="theta has 2 weights: expected the 3 that were kept"):
        feature_selection.expand(np.zeros(2), np.ones(3, bool))
    unknown = packed.dataset._replace(labels=np.full_like(packed.dataset.labels, -1))
    for baseline in (feature_selection.counts, feature_selection.mutual_information):
        with pytest.raises(EspalierError, match="position 0 has no label"):
            baseline(unknown, packed.layout)
