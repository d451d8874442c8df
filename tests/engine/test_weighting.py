"""Weights by their formulas, back-off that loses no mass, drift by its definition."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.engine.data.bags import bags_of_matrix, input_keys
from espalier.engine.errors import EspalierError
from espalier.engine.families.logistic import fit_logistic
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.semisup.weighting import (
    back_off,
    cluster_weights,
    covariate_weights,
    drift,
    effective_sample_size,
    jensen_shannon,
    jensen_shannon_parts,
    known_weights,
    mean_one,
    mixture_weights,
    proportions,
    refuse_few_effective,
)

EXACT = 1e-12
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=100)
CLUSTERS = st.lists(st.integers(0, 4), min_size=1, max_size=30)
COUNTS = st.lists(st.integers(0, 9), min_size=5, max_size=5).filter(any)


# ---- known marginals


def test_known_weights_by_hand():
    """Input 0 twice, input 2 once: q(0)/2 each and q(2)."""
    assert known_weights([0, 2, 0], [0.4, 0.1, 0.5]).tolist() == [0.2, 0.5, 0.2]


@EXAMPLES
@given(CLUSTERS, COUNTS)
def test_weights_of_equal_inputs_add_up_to_their_probability(keys, counts):
    q = np.array(counts) / sum(counts)
    weights = known_weights(keys, q)
    for x in set(keys):
        assert weights[np.array(keys) == x].sum() == pytest.approx(q[x], abs=EXACT)
    assert weights.sum() == pytest.approx(sum(q[x] for x in set(keys)), abs=EXACT)


def test_a_sample_as_frequent_as_q_has_equal_weights():
    keys = [0, 0, 1, 2, 2, 2]
    assert known_weights(keys, [2 / 6, 1 / 6, 3 / 6]) == pytest.approx([1 / 6] * 6, abs=EXACT)


def test_the_estimator_is_that_of_the_corrected_joint_distribution():
    """4.18 against 4.17: fitting with the weights is fitting to q(x) times the observed shares of labels."""
    x = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    labels, q = np.array([0, 1, 1, 1, 0, 0, 0]), np.array([0.2, 0.5, 0.3])
    keys = input_keys(bags_of_matrix(x))[0]
    weighted = fit_logistic(bags_of_matrix(x), labels, weights=known_weights(keys, q), penalty=ElasticNet(0.0, 0.01))
    shares = {(0, 0): 2 / 3, (0, 1): 1 / 3, (1, 0): 0.5, (1, 1): 0.5, (2, 0): 0.5, (2, 1): 0.5}
    distinct = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    joint = fit_logistic(bags_of_matrix(distinct[[k for k, _ in shares]]), [y for _, y in shares],
                         weights=[q[k] * share for (k, _), share in shares.items()],
                         penalty=ElasticNet(0.0, 0.01))  # fmt: skip
    np.testing.assert_allclose(weighted.theta, joint.theta, rtol=0, atol=1e-8)


def test_covariate_weights_by_hand():
    assert covariate_weights([0, 1, 1], [0.2, 0.8], [0.5, 0.5]) == pytest.approx([0.4, 1.6, 1.6], abs=EXACT)
    assert covariate_weights([0, 1], [0.5, 0.5], [0.5, 0.5]).tolist() == [1.0, 1.0]


def test_covariate_weights_average_to_one_under_q0():
    q0, q1 = np.array([0.1, 0.6, 0.3]), np.array([0.5, 0.3, 0.2])
    assert (q0 * covariate_weights([0, 1, 2], q1, q0)).sum() == pytest.approx(1.0, abs=EXACT)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: known_weights([0, 3], [0.5, 0.5]), "input 3: expected ids from 0 to 1"),
        (lambda: known_weights([-1], [0.5, 0.5]), "input -1: expected ids from 0 to 1"),
        (lambda: known_weights([0], [0.5, -0.5]), r"q\[1\] is -0.5: expected a finite probability"),
        (lambda: known_weights([0], [math.nan]), r"q\[0\] is nan"),
        (lambda: covariate_weights([1], [0.5, 0.5], [1.0, 0.0]), "input 1 is among the training examples, but q0"),
        (lambda: covariate_weights([0], [1.0], [0.5, 0.5]), "q1 has 1 inputs and q0 2: expected the same"),
        (lambda: cluster_weights(np.array([5]), np.array([0]), 3), "cluster 5: expected ids from 0 to 2"),
        (lambda: back_off(np.zeros(0, int), np.array([0, 1]), np.eye(2)), "no labelled example at all"),
        (lambda: proportions(np.zeros((0, 2)), np.ones(2)), "there is no input to take proportions of"),
        (lambda: drift(np.array([0]), np.zeros(0, int), 2), "there is no new input: expected at least one"),
        (lambda: drift(np.zeros(0, int), np.array([0]), 2), "there is no training input"),
    ],
)
def test_what_cannot_be_weighed_is_named(call, message):
    with pytest.raises(EspalierError, match=message):
        call()


# ---- clusters


def test_the_formula_by_hand():
    """Three of four labelled in cluster 0, two of five of the pool: q(0)/3 and q(1)/1, then mean one."""
    weights = cluster_weights(np.array([0, 0, 1, 0]), np.array([0, 1, 1, 0, 1]), 2)
    raw = [0.4 / 3, 0.4 / 3, 0.6 / 1, 0.4 / 3]
    assert weights == pytest.approx([4 * w / sum(raw) for w in raw], abs=EXACT)


@EXAMPLES
@given(CLUSTERS, CLUSTERS)
def test_the_weight_of_a_cluster_is_its_share_of_the_pool(labelled, pool):
    weights = cluster_weights(np.array(labelled), np.array(pool), 5)
    assert weights.mean() == pytest.approx(1, abs=EXACT) and (weights >= 0).all()
    shared = set(labelled) & set(pool)
    if not shared:
        assert weights.tolist() == [1.0] * len(labelled)
        return
    reachable = sum(c in shared for c in pool)
    for c in set(labelled):
        total = sum(w for w, d in zip(weights, labelled, strict=True) if d == c)
        assert total == pytest.approx(len(labelled) * pool.count(c) / reachable, abs=1e-9)
    for c in set(labelled):
        assert len({w for w, d in zip(weights, labelled, strict=True) if d == c}) == 1


def test_a_pool_like_the_labelled_data_gives_equal_weights():
    labelled = np.array([0, 1, 1, 2, 2, 2])
    assert cluster_weights(labelled, np.tile(labelled, 3), 3) == pytest.approx(np.ones(6), abs=EXACT)


def test_cluster_weights_are_known_weights_of_clusters():
    labelled, pool = np.array([0, 1, 1]), np.array([0, 0, 0, 1])
    expected = mean_one(known_weights(labelled, [0.75, 0.25]))
    assert cluster_weights(labelled, pool, 2) == pytest.approx(expected, abs=EXACT)


# ---- back-off


CENTRES = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.65, 0.25, 0.1], [0.2, 0.1, 0.7], [0.34, 0.33, 0.33]])


def test_an_empty_cluster_joins_the_one_most_like_it():
    """Cluster 2 looks like 0, cluster 3 like 1."""
    groups = back_off(np.array([0, 1, 4]), np.array([0, 1, 2, 2, 3, 4]), CENTRES)
    assert groups.tolist() == [0, 1, 0, 1, 4]
    weights = cluster_weights(groups[[0, 1, 4]], groups[[0, 1, 2, 2, 3, 4]], 5)
    assert weights == pytest.approx([3 * 3 / 6, 3 * 2 / 6, 3 * 1 / 6], abs=EXACT)


def test_empty_clusters_may_join_each_other_first():
    """0 and 2 are empty and close: together they go on to what is then nearest."""
    groups = back_off(np.array([1]), np.array([0, 1, 2]), CENTRES[:3])
    assert groups.tolist() == [0, 0, 0]


def test_what_has_been_merged_is_gone():
    """0 takes 1, and 2, which was closest to 1 alone, joins what both have become."""
    centres = np.array([[0.58, 0.42], [0.5, 0.5], [0.4, 0.6]])
    assert back_off(np.array([1]), np.array([0, 1, 2]), centres).tolist() == [0, 0, 0]


def test_a_cluster_that_nobody_is_in_is_left_alone():
    groups = back_off(np.array([0, 0]), np.array([0, 1]), CENTRES[:3])
    assert groups.tolist() == [0, 0, 2]


@EXAMPLES
@given(CLUSTERS, CLUSTERS, st.integers(0, 10**6))
def test_no_mass_of_the_pool_is_lost(labelled, pool, seed):
    labelled, pool = np.array(labelled), np.array(pool)
    groups = back_off(labelled, pool, np.random.default_rng(seed).dirichlet(np.ones(4), 5))
    assert set(groups[pool]) <= set(groups[labelled])
    assert all(groups[g] == g and g <= c for c, g in enumerate(groups))
    q = np.bincount(groups[pool], minlength=5) / len(pool)
    assert known_weights(groups[labelled], q).sum() == pytest.approx(1.0, abs=EXACT)
    if set(pool) <= set(labelled):
        assert groups.tolist() == list(range(5))


# ---- density ratio by a mixture


def test_the_ratio_of_two_mixtures_by_hand():
    """Two clusters with densities f of three inputs; the posterior under half and half gives f back up to a factor."""
    f = np.array([[0.6, 0.1], [0.3, 0.3], [0.1, 0.6]])
    shares = np.array([0.5, 0.5])
    posterior = f * shares / (f * shares).sum(axis=1, keepdims=True)
    q1, q0 = np.array([0.9, 0.1]), np.array([0.2, 0.8])
    assert mixture_weights(posterior, shares, q1, q0) == pytest.approx((f @ q1) / (f @ q0), abs=EXACT)
    assert mixture_weights(posterior, shares, q0, q0) == pytest.approx(np.ones(3), abs=EXACT)


def test_proportions_are_the_likeliest_ones():
    rng = np.random.default_rng(3)
    f = rng.dirichlet(np.ones(6), 2).T[rng.integers(0, 6, 200)]
    shares = np.array([0.3, 0.7])
    posterior = f * shares / (f * shares).sum(axis=1, keepdims=True)
    found = proportions(posterior, shares, iterations=5000)
    assert found.sum() == pytest.approx(1.0)

    def likelihood(p):
        return np.log(f @ np.array([p, 1 - p])).sum()

    grid = np.linspace(0.0005, 0.9995, 2000)
    assert found[0] == pytest.approx(max(grid, key=likelihood), abs=1e-3)


def test_hard_clusters_make_all_three_ways_agree():
    """Where the posterior is 0 or 1, Shimodaira's ratio of empirical shares is the cluster method."""
    labelled, pool = np.array([0, 1, 1, 2]), np.array([0, 0, 1, 2, 2, 2])
    shares = np.array([0.2, 0.3, 0.5])
    q1, q0 = proportions(np.eye(3)[pool], shares), proportions(np.eye(3)[labelled], shares)
    by_mixture = mean_one(mixture_weights(np.eye(3)[labelled], shares, q1, q0))
    assert by_mixture == pytest.approx(cluster_weights(labelled, pool, 3), abs=EXACT)
    assert mean_one(covariate_weights(labelled, q1, q0)) == pytest.approx(by_mixture, abs=EXACT)


# ---- effective sample size


def test_effective_sample_size_by_hand():
    assert effective_sample_size(np.ones(7)) == pytest.approx(7, abs=EXACT)
    assert effective_sample_size(np.array([1.0, 0, 0, 0])) == pytest.approx(1, abs=EXACT)
    assert effective_sample_size(np.array([1.0, 2, 3])) == pytest.approx(36 / 14, abs=EXACT)


def test_weights_that_rest_on_few_examples_are_refused():
    assert refuse_few_effective(np.array([1.0, 2, 3]), 0.8) == pytest.approx(36 / 14)
    with pytest.raises(EspalierError, match="worth 2.6 of 3 examples, less than the share 0.9 .*use fewer clusters"):
        refuse_few_effective(np.array([1.0, 2, 3]), 0.9)


def test_mean_one():
    assert mean_one(np.array([1.0, 3.0])).tolist() == [0.5, 1.5]
    assert mean_one(np.zeros(3)).tolist() == [1.0] * 3


# ---- drift


def jensen_shannon_by_hand(p, q):
    """Entropy of the mean minus the mean of the entropies, in bits."""

    def entropy(d):
        return -sum(x * math.log2(x) for x in d if x > 0)

    return entropy([(a + b) / 2 for a, b in zip(p, q, strict=True)]) - (entropy(p) + entropy(q)) / 2


@EXAMPLES
@given(COUNTS, COUNTS)
def test_jensen_shannon_by_entropies(first, second):
    p, q = np.array(first) / sum(first), np.array(second) / sum(second)
    found = jensen_shannon(p, q)
    assert found == pytest.approx(jensen_shannon_by_hand(p.tolist(), q.tolist()), abs=1e-9)
    assert found == pytest.approx(jensen_shannon(q, p), abs=EXACT)
    assert 0 <= found <= 1 + EXACT
    parts = jensen_shannon_parts(p, q)
    assert (parts >= 0).all() and parts.sum() == pytest.approx(found, abs=EXACT)
    assert np.all(parts[p == q] == 0)


def test_jensen_shannon_at_its_ends():
    assert jensen_shannon(np.array([0.3, 0.7]), np.array([0.3, 0.7])) == 0
    assert jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(1, abs=EXACT)


def test_drift_names_what_moved_and_shows_it():
    before, after = np.repeat([0, 1, 2], [50, 40, 10]), np.repeat([0, 2, 1, 0], [30, 60, 5, 5])
    found = drift(before, after, 4, examples=2)
    assert found.before.tolist() == [50, 40, 10, 0] and found.after.tolist() == [35, 5, 60, 0]
    assert found.total == pytest.approx(jensen_shannon_by_hand([0.5, 0.4, 0.1, 0], [0.35, 0.05, 0.6, 0]), abs=1e-12)
    assert found.order()[0] == 2 and found.parts[3] == 0
    assert [rows.tolist() for rows in found.examples] == [[0, 1], [90, 91], [30, 31], []]
