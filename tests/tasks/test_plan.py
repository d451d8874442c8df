"""The plan: counts that training then has, and memory that is not less than what the arrays take."""

import numpy as np
import pytest
from stage_runs import run_stages, small_params, tree

from engine.data import make_dataset
from engine.errors import EspalierError
from engine.layout import dense_layout, observation_kinds
from engine.model import Model
from tasks import plan, store


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
    params.train.pairs = pairs
    found = plan.main(project, params)
    run_stages(project, params, "train")
    assert found["features"] == Model.load(project / store.CANDIDATE).info["features"]
    assert found["virtual_features"] == {"unigram": 66, "start": 36, "bigram": 216, "all": 318}
    assert (found["sequences"], found["tokens"], found["labels"], found["observations"]) == (180, 900, 6, 12)
    assert found["seconds_per_iteration"] > 0


def test_a_plan_writes_nothing(project):
    before = tree(project)
    plan.main(project, small_params())
    assert tree(project) == before


def test_memory_is_the_sum_of_its_parts_and_grows_with_the_data():
    def data(tokens, columns):
        return make_dataset(np.zeros((tokens, columns), np.int32), np.zeros(tokens, np.int32), np.array([0, tokens]))

    small, large = (plan.bytes_needed(data(n, 3), 100, 5, 2) for n in (10, 1000))
    assert large["features"] == 100 * small["features"] and large["weights"] == small["weights"]
    dataset = data(1000, 3)
    assert large["features"] >= dataset.observations.nbytes + dataset.labels.nbytes
    assert large["posteriors"] >= 3 * 1000 * 5 * 8 and large["factors"] >= 2 * 25 * 8 and large["weights"] >= 100 * 8


def test_a_sample_is_spread_over_the_data_and_of_about_the_size_asked_for():
    dataset = make_dataset(np.arange(1000, dtype=np.int32)[:, None], np.zeros(1000), np.arange(0, 1001, 5))
    part = plan.sample(dataset, 100)
    assert 50 <= len(part.labels) <= 200
    assert part.observations.min() < 100 and part.observations.max() > 900
    whole = plan.sample(dataset, 10_000)
    assert len(whole.labels) == 1000


def test_a_plan_needs_features(tmp_path):
    with pytest.raises(
        EspalierError, match="manifest.json: there is no such file; run `espalier stage template` first"
    ):
        plan.main(tmp_path, small_params())
