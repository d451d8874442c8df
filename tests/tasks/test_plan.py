"""The plan: counts that training then has, and memory that is not less than what the arrays take."""

import numpy as np
import psutil
import pytest
from stage_runs import run_stages, small_params, tree

from espalier.engine.data.dataset import make_dataset, select
from espalier.engine.errors import EspalierError
from espalier.engine.families import load as load_model
from espalier.engine.weights import seen_counts
from espalier.engine.weights.layout import dense_layout, observation_kinds, seen_layout
from espalier.tasks import store
from espalier.tasks.training import plan
from espalier.tasks.training.job import Options


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("kinds", ["U", "B", "*", "UUB*", "**U"])
def test_virtual_features_are_the_slots_of_the_full_layout(kinds, start):
    codes = observation_kinds(list(kinds))
    found = plan.count_features(4, codes, start)
    layout = dense_layout(4, codes, start)
    assert found == {name: int((layout.slots()[0] == i).sum()) for i, name in enumerate(("unigram", "start", "bigram"))}


def test_features_by_hand():
    """Three labels: U has 3 weights, B 3 at the start and 9 after, * both."""
    assert plan.count_features(3, np.array([1, 2, 3]), True) == {"unigram": 6, "start": 6, "bigram": 18}


@pytest.mark.parametrize("pairs", ["all", "seen"])
def test_the_plan_foretells_the_model(project, pairs):
    params = small_params()
    params.crf.pairs = pairs
    found = plan.main(project, params)
    run_stages(project, params, "train")
    assert found["features"] == load_model(project / store.CANDIDATE).info["features"]
    assert found["virtual_features"] == {"unigram": 66, "start": 36, "bigram": 216, "all": 318}
    assert (found["sequences"], found["tokens"], found["labels"], found["observations"]) == (180, 900, 6, 12)
    assert found["seconds_per_iteration"] > 0


def test_a_plan_writes_nothing(project):
    before = tree(project)
    plan.main(project, small_params())
    assert tree(project) == before


def shards_of(observations, labels, lengths, cuts):
    """A data set cut into shards before these sequences."""
    whole = make_dataset(observations, labels, np.append(0, np.cumsum(lengths)))
    return [select(whole, part) for part in np.split(np.arange(len(lengths)), cuts)]


@pytest.mark.parametrize("most_bits", [seen_counts.MOST_BITS, 0])
@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("kinds", ["UUUUU", "BBBBB", "U*B*U"])
def test_weights_are_counted_without_a_layout(monkeypatch, kinds, start, most_bits):
    monkeypatch.setattr(seen_counts, "MOST_BITS", most_bits)
    random, lengths = np.random.default_rng(0), np.array([3, 1, 5, 2, 2, 7])
    observations = random.integers(-1, 5, (lengths.sum(), 3))
    shards = shards_of(observations, random.integers(0, 3, lengths.sum()), lengths, [2, 3])
    codes, options = observation_kinds(list(kinds)), Options(pairs="seen", start=start)
    whole = shards_of(observations, np.concatenate([s.labels for s in shards]), lengths, [])[0]
    found, exact = plan.count_weights(shards, 3, codes, options)
    expected = seen_layout(whole, 3, codes, start).size
    assert (found == expected) if exact else (found >= expected)
    assert exact == (most_bits > 0)


def test_weights_of_partial_labels_are_counted():
    sets = np.array([[True, False, True]])
    data = make_dataset(np.zeros((4, 1), np.int32), np.array([0, -1, -2, 1]), np.array([0, 4]), label_sets=sets)
    codes = observation_kinds(["*"])
    assert plan.count_weights([data], 3, codes, Options(pairs="seen"))[0] == seen_layout(data, 3, codes).size


def test_a_sample_is_spread_over_the_shards_and_of_about_the_size_asked_for():
    shards = shards_of(np.arange(1000)[:, None], np.zeros(1000), np.full(200, 5), [70, 150])
    part = plan.sample(shards, 100)
    assert 50 <= len(part.labels) <= 200
    assert part.observations.min() < 100 and part.observations.max() > 900
    assert part.offsets[-1] == len(part.labels) and len(part.weights) == len(part.offsets) - 1
    assert len(plan.sample(shards, 10_000).labels) == 1000


def test_a_plan_above_the_limit_is_refused_before_training(project):
    before, params = tree(project), small_params()
    params.memory.limit = 0.1
    with pytest.raises(EspalierError, match=r"training would take about .* GiB.*memory.limit allows 0.1: raise"):
        run_stages(project, params, "train")
    assert tree(project) == before
    with pytest.raises(EspalierError, match="process most of it"):
        plan.check(plan.main(project, params))


def test_without_a_limit_the_machine_is_the_limit(project):
    found = plan.main(project, small_params())
    assert found["allowed_bytes"] == psutil.virtual_memory().total
    plan.check(found)


def test_a_plan_needs_features(tmp_path):
    with pytest.raises(
        EspalierError, match="manifest.json: there is no such file; run `espalier stage template` first"
    ):
        plan.main(tmp_path, small_params())


# ---- with workers

BLOCK = 150  # positions of a block: the 900 of the project are six


def test_workers_of_this_machine_are_counted_in(project):
    params = small_params()
    alone = plan.main(project, params, BLOCK)
    params.compute.cluster = "local:2"
    found = plan.main(project, params, BLOCK)
    cluster, needed = found["cluster"], found["bytes"]
    assert (cluster["workers"], cluster["parts"], cluster["here"]) == (2, 2, True)
    assert needed["workers"] == cluster["all_workers_bytes"] > 2 * plan.PROCESS
    assert needed["all"] == sum(size for name, size in needed.items() if name != "all") > alone["bytes"]["all"]
    assert cluster["worker_bytes"]["features"] < alone["bytes"]["features"]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_what_is_foretold_to_move_is_what_parts_have(project, workers):
    from espalier.engine.parts.sharded_objective import Part, cut
    from espalier.engine.weights.layout import dense_layout, observation_kinds
    from espalier.tasks.cluster.workers import ranges

    params, manifest = small_params(), store.read_manifest(project)
    params.compute.cluster = f"local:{workers}"
    shards = store.Shards(project, "train", manifest)
    bounds = cut(shards.offsets(), BLOCK)
    kinds = observation_kinds(store.read_vocabulary(project)["observation"].to_list())
    layout = dense_layout(len(manifest["labels"]), kinds)
    parts = [
        Part((shards.read(*bounds[b]) for b in range(lo, hi)), lo, len(bounds), layout)
        for lo, hi in ranges(len(bounds), workers)
    ]
    moved = plan.main(project, params, BLOCK)["cluster"]["moved"]
    assert moved["out"] == 8 * sum(part.size for part in parts)
    assert moved["in"] == 8 * sum(part.size * len(part.nodes) for part in parts)


def test_workers_above_the_limit_are_refused_before_anything_starts(project):
    before, params = tree(project), small_params()
    params.compute.cluster, params.memory.limit = "local:3", 1.0
    with pytest.raises(EspalierError, match=r"training would take about .* GiB, workers most of it .* allows 1.0"):
        run_stages(project, params, "train")
    assert tree(project) == before


def test_a_worker_that_has_too_little_is_told_of(project):
    params = small_params()
    params.compute.cluster = "local:2"
    found = plan.main(project, params, BLOCK)
    found["cluster"] |= {"memory": [2**33, 2**28], "name": "tcp://host:8786"}
    text = r"a worker would take about 0.3 GiB, process most of it .*, and the smallest of 2 has 0.2: add workers"
    with pytest.raises(EspalierError, match=text):
        plan.check(found)
    found["cluster"]["memory"] = [2**33, 2**33]
    plan.check(found)
