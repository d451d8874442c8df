"""Weights of the cluster method by the formula, drift figures by their definitions."""

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stage_runs import run_stages, small_params, tree

from engine.data import make_dataset
from engine.errors import EspalierError
from engine.mixture import Mixture
from tasks import store, weigh
from tasks.params import Weigh

EXACT = 1e-12
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=100)
CLUSTERS = st.lists(st.integers(0, 4), min_size=1, max_size=30)
COUNTS = st.lists(st.integers(0, 9), min_size=5, max_size=5).filter(any)


# ---- weights


def test_the_formula_by_hand():
    """Three of four labelled in cluster 0, two of five of the pool: q(0)/3 and q(1)/1, then mean one."""
    weights = weigh.cluster_weights(np.array([0, 0, 1, 0]), np.array([0, 1, 1, 0, 1]), 2)
    raw = [0.4 / 3, 0.4 / 3, 0.6 / 1, 0.4 / 3]
    assert weights == pytest.approx([4 * w / sum(raw) for w in raw], abs=EXACT)


@EXAMPLES
@given(CLUSTERS, CLUSTERS)
def test_the_weight_of_a_cluster_is_its_share_of_the_pool(labelled, pool):
    weights = weigh.cluster_weights(np.array(labelled), np.array(pool), 5)
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
    assert weigh.cluster_weights(labelled, np.tile(labelled, 3), 3) == pytest.approx(np.ones(6), abs=EXACT)


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
    found = weigh.jensen_shannon(p, q)
    assert found == pytest.approx(jensen_shannon_by_hand(p.tolist(), q.tolist()), abs=1e-9)
    assert found == pytest.approx(weigh.jensen_shannon(q, p), abs=EXACT)
    assert 0 <= found <= 1 + EXACT


def test_jensen_shannon_at_its_ends():
    assert weigh.jensen_shannon(np.array([0.3, 0.7]), np.array([0.3, 0.7])) == 0
    assert weigh.jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(1, abs=EXACT)


def test_effective_sample_size_by_hand():
    assert weigh.effective_sample_size(np.ones(7)) == pytest.approx(7, abs=EXACT)
    assert weigh.effective_sample_size(np.array([1.0, 0, 0, 0])) == pytest.approx(1, abs=EXACT)
    assert weigh.effective_sample_size(np.array([1.0, 2, 3])) == pytest.approx(36 / 14, abs=EXACT)


# ---- what is clustered and how it is described


def test_constants_say_nothing_about_a_bag():
    assert weigh.informative_columns(["U", "U:%x[0,0]", "B", "*1:%x[-1,0]"]) == [1, 3]
    assert weigh.informative_columns(["U", "U:%g[0,0,2,3]", "B", 'U:%l[0,0,"names.txt"]']) == [1, 2, 3, 5]


def test_clusters_of_two_plain_languages():
    """Words of a and b in one cluster, words of c and d in the other; more clusters than words are cut down."""
    pool = make_dataset(np.array([[0], [1], [0], [1], [2], [3], [3], [2]]), None, np.array([0, 2, 4, 6, 8]))
    train = make_dataset(np.array([[1], [1], [3], [3]]), None, np.array([0, 2, 4]))
    mixture, ours, theirs = weigh.cluster(train, pool, 4, Weigh(clusters=2, restarts=5))
    assert theirs[0] == theirs[1] != theirs[2] == theirs[3]
    assert ours.tolist() == [theirs[0], theirs[2]]
    assert len(weigh.cluster(train, pool, 4, Weigh(clusters=99))[0].log_weights) == 4


def test_typical_observations_are_the_ones_others_have_less_often():
    phi = np.array([[0.05, 0.55, 0.4], [0.45, 0.05, 0.5]])
    mixture = Mixture(np.log([0.5, 0.5]), np.log(phi), 0.0, [])
    vocabulary = pl.DataFrame({"observation": ["U:a", "U:b", "U:c"]})
    found = weigh.describe(mixture, 2, vocabulary)
    assert [texts[0] for texts in found] == ["U:b", "U:a"]
    assert all(sorted(texts) == ["U:a", "U:b", "U:c"] for texts in found)


@pytest.mark.parametrize(
    ("tokens", "expected"), [(["a", "b", "c"], ["ab", "c"]), (["New", "York", "now"], ["New York", "now"])]
)
def test_examples_are_inputs_as_people_write_them(tokens, expected):
    table = pl.DataFrame({"sequence": pl.Series([0, 0, 1], dtype=pl.Int32), "x0": tokens})
    assert weigh.examples(table, np.array([1, 0]), 3) == [expected[1:], expected[:1], []]


def test_summary_by_hand():
    labelled, pool, weights = np.array([0, 0, 2]), np.array([0, 1, 1, 1, 2]), np.array([0.75, 0.75, 1.5])
    found = weigh.summary(labelled, pool, weights, 4, [["t"]] * 4, [["e"]] * 4)
    assert [row["labelled"] for row in found["clusters"]] == [2, 0, 1, 0]
    assert [row["pool"] for row in found["clusters"]] == [1, 3, 1, 0]
    assert [row["weight"] for row in found["clusters"]] == [0.75, None, 1.5, None]
    assert found["clusters"][0]["labelled_share"] == pytest.approx(2 / 3) and found["clusters"][1]["pool_share"] == 0.6
    assert found["pool_without_label_share"] == 0.6
    expected = jensen_shannon_by_hand([2 / 3, 0, 1 / 3, 0], [0.2, 0.6, 0.2, 0])
    assert found["jensen_shannon"] == pytest.approx(expected, abs=EXACT)


# ---- the stage


def outputs(root):
    table = pl.from_arrow(store.read_arrow(root / store.WEIGHTS)[0])
    return table, store.read_json(root / store.CLUSTERS)


def test_the_stage_agrees_with_itself(project):
    """Weights in the table follow from the clusters in the table and the counts in the summary."""
    table, found = outputs(project)
    assert table.columns == ["sequence", "cluster", "weight"]
    assert table["sequence"].to_list() == list(range(180)) and found["sequences"] == 180
    rows = {row["cluster"]: row for row in found["clusters"]}
    assert sum(row["pool"] for row in rows.values()) == 60
    raw = [rows[c]["pool_share"] / rows[c]["labelled"] for c in table["cluster"]]
    expected = np.array(raw) * 180 / sum(raw)
    assert table["weight"].to_numpy() == pytest.approx(expected, abs=1e-9)
    assert all(rows[c]["weight"] == w for c, w in table.select("cluster", "weight").iter_rows())
    assert found["effective_sample_size"] == pytest.approx(expected.sum() ** 2 / (expected**2).sum())
    assert found["method"] == "cluster" and 0 < found["jensen_shannon"] < 1
    assert all(len(row["examples"]) == min(5, row["pool"]) and row["typical"] for row in rows.values())


def test_without_the_method_weights_are_one_but_drift_is_still_measured(project):
    params = small_params()
    drift = outputs(project)[1]["jensen_shannon"]
    params.weigh.method = "none"
    run_stages(project, params, "weigh")
    table, found = outputs(project)
    assert table["weight"].to_list() == [1.0] * 180 and found["effective_sample_size"] == 180
    assert found["jensen_shannon"] == drift and len(found["clusters"]) == 3


@pytest.mark.parametrize("change", ["no pool", "no clusters"])
def test_without_a_pool_or_clusters_weights_are_one(project, change):
    params = small_params()
    if change == "no pool":
        params.ingest.unlabelled_share = 0.0
        run_stages(project, params, "ingest", "template")
    else:
        params.weigh.clusters = 0
    run_stages(project, params, "weigh")
    table, found = outputs(project)
    assert set(table["weight"]) == {1.0} and set(table["cluster"]) == {0}
    assert found["clusters"] == [] and found["jensen_shannon"] is None and found["pool_without_label_share"] is None


def test_only_constant_templates_can_be_weighed(project):
    params = small_params()
    params.template.lines = ["U", "B"]
    run_stages(project, params, "template", "weigh")
    assert set(outputs(project)[0]["weight"]) == {1.0}


def test_the_stage_is_repeatable_to_the_byte(project):
    before = tree(project)
    run_stages(project, small_params(), "weigh")
    assert tree(project) == before


@pytest.mark.parametrize("path", [store.MANIFEST, store.VOCABULARY, "data/features/train/00000.arrow",
                                  "data/features/unlabelled/00000.arrow", "data/tokens/unlabelled.arrow"])  # fmt: skip
def test_a_damaged_input_changes_nothing(project, path):
    (project / path).write_bytes((project / path).read_bytes()[:-30])
    before = tree(project)
    with pytest.raises(EspalierError, match=f"{path}: damaged .*run `espalier stage (template|ingest)` again"):
        run_stages(project, small_params(), "weigh")
    assert tree(project) == before
