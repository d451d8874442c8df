"""What is clustered and how it is told, and the stage against the formulas of engine.semisup.weighting."""

import numpy as np
import polars as pl
import pytest
from stage_runs import run_stages, small_params, tree

from espalier.engine.data.dataset import make_dataset
from espalier.engine.errors import EspalierError
from espalier.engine.semisup.mixture import Mixture
from espalier.engine.semisup.weighting import drift, jensen_shannon
from espalier.tasks import store, weigh
from espalier.tasks.params import Weigh
from espalier.tasks.progress import Progress

EXACT = 1e-12


# ---- what is clustered and how it is described


def test_constants_say_nothing_about_a_bag():
    assert weigh.informative_columns(["U", "U:%x[0,0]", "B", "*1:%x[-1,0]"]) == [1, 3]
    assert weigh.informative_columns(["U", "U:%g[0,0,2,3]", "B", 'U:%l[0,0,"names.txt"]']) == [1, 2, 3, 5]


def test_clusters_of_two_plain_languages():
    """Words of a and b in one cluster, words of c and d in the other; more clusters than words are cut down."""
    pool = make_dataset(np.array([[0], [1], [0], [1], [2], [3], [3], [2]]), None, np.array([0, 2, 4, 6, 8]))
    train = make_dataset(np.array([[1], [1], [3], [3]]), None, np.array([0, 2, 4]))
    found = weigh.cluster(train, pool, 4, Weigh(clusters=2, restarts=5))
    ours, theirs = found.labelled, found.pool
    assert theirs[0] == theirs[1] != theirs[2] == theirs[3]
    assert ours.tolist() == [theirs[0], theirs[2]]
    assert found.k == 2 and weigh.cluster(train, pool, 4, Weigh(clusters=99)).k <= 4


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
    chosen = [np.array([1]), np.array([0]), np.array([], int)]
    assert weigh.examples(table, chosen) == [expected[1:], expected[:1], []]


def test_summary_by_hand():
    labelled, pool, weights = np.array([0, 0, 2]), np.array([0, 1, 1, 1, 2]), np.array([0.75, 0.75, 1.5])
    moved = drift(labelled, pool, 4)
    found = weigh.summary(labelled, weights, [0, 0, 2, 3], moved, [["t"]] * 4, [["e"]] * 4, 0.2)
    assert [row["labelled"] for row in found["clusters"]] == [2, 0, 1, 0]
    assert [row["pool"] for row in found["clusters"]] == [1, 3, 1, 0]
    assert [row["weight"] for row in found["clusters"]] == [0.75, None, 1.5, None]
    assert [row["group"] for row in found["clusters"]] == [0, 0, 2, 3]
    assert found["clusters"][0]["labelled_share"] == pytest.approx(2 / 3) and found["clusters"][1]["pool_share"] == 0.6
    assert found["pool_without_label_share"] == 0.6
    expected = jensen_shannon(np.array([2 / 3, 0, 1 / 3, 0]), np.array([0.2, 0.6, 0.2, 0]))
    assert found["jensen_shannon"] == pytest.approx(expected, abs=EXACT)
    assert sum(row["divergence"] for row in found["clusters"]) == pytest.approx(expected, abs=EXACT)
    assert found["drifted"] is True and found["drift_limit"] == 0.2
    for limit in (0.9, None):
        assert weigh.summary(labelled, weights, range(4), moved, [[]] * 4, [[]] * 4, limit)["drifted"] is False


def test_the_weight_shown_is_the_common_one_or_the_mean():
    assert weigh.common(np.array([0.1, 0.1, 0.1])) == 0.1
    assert weigh.common(np.array([1.0, 2.0])) == 1.5
    assert weigh.common(np.zeros(0)) is None


def two_languages(ours, theirs):
    """Words of a and b, or of c and d, by their number in the labelled data and in the pool."""

    def words(first, second):
        rows = [[0], [1]] * first + [[2], [3]] * second
        return make_dataset(np.array(rows), None, np.arange(0, len(rows) + 1, 2))

    return words(*ours), words(*theirs)


@pytest.mark.parametrize("method", ["cluster", "covariate"])
def test_what_the_pool_has_more_of_weighs_more(method):
    train, pool = two_languages((9, 3), (5, 15))
    found = weigh.cluster(train, pool, 4, Weigh(clusters=2, restarts=5))
    weights, groups = weigh.weights_of(found, method)
    assert weights[:9] == pytest.approx([12 * 0.25 / 9] * 9, rel=0.01) and groups.tolist() == [0, 1]
    assert weights[9:] == pytest.approx([12 * 0.75 / 3] * 3, rel=0.01)
    assert weigh.weights_of(found, "none")[0].tolist() == [1.0] * 12


def test_a_cluster_without_a_labelled_word_is_carried_by_another():
    """Nobody labelled c and d; with back-off the weights are all 1, and the group says who carries whom."""
    train, pool = two_languages((6, 0), (5, 5))
    found = weigh.cluster(train, pool, 4, Weigh(clusters=2, restarts=5))
    assert found.k == 2 and len(set(found.labelled)) == 1
    weights, groups = weigh.weights_of(found, "cluster")
    assert groups.tolist() == [0, 0] and weights.tolist() == [1.0] * 6


def test_the_number_of_clusters_can_be_chosen():
    train, pool = two_languages((20, 20), (40, 40))
    found = weigh.cluster(train, pool, 4, Weigh(clusters=6, restarts=3, choose_clusters=True))
    assert set(found.held_out) == {1, 2, 3, 5, 6}
    assert max(found.held_out, key=found.held_out.get) >= 2
    assert found.held_out[2] > found.held_out[1] + 0.5


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
    said = []
    progress = Progress()
    progress.say = said.append
    weigh.main(project, params, progress)
    why = "there is no unlabelled pool (ingest.unlabelled_path" if change == "no pool" else "weigh.clusters is 0, and"
    assert len(said) == 1 and said[0].startswith(f"every sequence weighs 1: {why}")
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


def test_drift_beyond_the_limit_is_flagged(project):
    params = small_params()
    divergence = outputs(project)[1]["jensen_shannon"]
    for limit, expected in ((divergence / 2, True), (min(1.0, 2 * divergence), False), (None, False)):
        params.weigh.drift_limit = limit
        figures = run_stages(project, params, "weigh")["weigh"]
        found = outputs(project)[1]
        assert figures["drifted"] is found["drifted"] is expected and found["drift_limit"] == limit
    assert sum(row["divergence"] for row in found["clusters"]) == pytest.approx(divergence, abs=EXACT)


def test_weights_that_rest_on_too_few_sequences_are_refused(project):
    params, before = small_params(), tree(project)
    params.weigh.least_effective = 1.0
    with pytest.raises(EspalierError, match="the weights are worth .* of 180 examples, less than the share 1 that"):
        run_stages(project, params, "weigh")
    assert tree(project) == before


def test_the_covariate_method(project):
    params = small_params()
    params.weigh.method = "covariate"
    run_stages(project, params, "weigh")
    table, found = outputs(project)
    assert found["method"] == "covariate"
    assert table["weight"].mean() == pytest.approx(1.0) and table["weight"].n_unique() > 3
    for row in found["clusters"]:
        mine = table.filter(pl.col("cluster") == row["cluster"])["weight"]
        assert row["weight"] == pytest.approx(mine.mean())


def test_the_stage_tells_how_the_number_of_clusters_was_chosen(project):
    params = small_params()
    params.weigh.choose_clusters = True
    run_stages(project, params, "weigh")
    found = outputs(project)[1]
    tried = {row["clusters"]: row["log_likelihood"] for row in found["held_out"]}
    assert list(tried) == [1, 2, 3]
    assert len(found["clusters"]) <= max(tried, key=tried.get)
