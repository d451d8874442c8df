"""A MEMM with a model for each label before, and as the start of a CRF."""

import pytest
from stage_runs import small_params

from espalier.engine.errors import EspalierError
from espalier.engine.families import load
from espalier.tasks import store, train
from espalier.tasks.progress import Progress
from espalier.tasks.training import plan

RESULT = store.CANDIDATE, store.TRACE


class Heard(Progress):
    def __init__(self):
        super().__init__()
        self.said = []

    def say(self, text):
        self.said.append(text)


def result_of(root, params, block_tokens=10**6, progress=None):
    train.main(root, params, progress or Progress(), block_tokens)
    return [(root / path).read_bytes() for path in RESULT]


def memm_params():
    params = small_params()
    params.model.family, params.memm.rho1, params.memm.rho2 = "memm", 0.05, 0.1
    return params


@pytest.mark.parametrize("pairs", ["all", "seen"])
def test_weights_per_label_are_those_of_pairs_alone(project, pairs):
    params = memm_params()
    params.memm.weights, params.memm.pairs = "per-label", pairs
    figures = plan.main(project, params)
    result_of(project, params)
    model = load(project / store.CANDIDATE)
    assert figures["exact"] and figures["features"] == model.info["features"]
    assert model.sizes()["active_unigram"] == 0 < model.sizes()["active_bigram"]
    assert any(text.startswith("U-1:") for text in model.observations) and model.info["weights"] == "per-label"


def test_per_label_needs_a_start(project):
    params = memm_params()
    params.memm.weights, params.memm.start = "per-label", False
    with pytest.raises(EspalierError, match="memm.weights is per-label and memm.start false: the first label"):
        result_of(project, params)


# ---- the start of a CRF


def test_a_crf_starts_from_the_memm_that_is_trained_first(project):
    """The same as to train the memm, keep its file, and name it by train.initial."""
    params = small_params()
    params.crf.solver, params.crf.start_from = "hybrid", "memm"
    heard = Heard()
    model, trace = result_of(project, params, progress=heard)
    assert any("the memm that training starts from: objective" in text for text in heard.said)
    assert load(project / store.CANDIDATE).info["start_from"] == "memm"
    params.model.family, params.crf.start_from = "memm", None
    vars(params.memm).update({name: vars(params.crf)[name] for name in ("solver", "rho1", "rho2", "pairs", "start")})
    result_of(project, params)
    (project / store.CANDIDATE).rename(project / "memm.model")
    params.model.family, params.train.initial = "crf", "memm.model"
    other, other_trace = result_of(project, params)
    assert trace == other_trace
    assert load(project / store.CANDIDATE).info.get("start_from") is None


def test_data_in_blocks_start_from_it_too(project):
    params = small_params()
    params.crf.solver, params.crf.start_from, params.train.max_iterations = "lbfgs", "memm", 5
    params.crf.rho1, params.crf.rho2 = 0.0, 0.5
    found = result_of(project, params, 150)
    assert result_of(project, params, 150) == found
    blocks = store.read_trace(project)
    result_of(project, params)
    for one, other in zip(blocks, store.read_trace(project), strict=True):
        assert one["objective"] == pytest.approx(other["objective"], rel=1e-9)


@pytest.mark.parametrize(
    "section, name, value, expected",
    [
        ("train", "initial", "champion", "crf.start_from is memm and train.initial 'champion', and training starts"),
        ("compute", "cluster", "local:2", "crf.start_from is memm, which is trained in one process, and compute.clus"),
    ],
)
def test_what_does_not_go_with_it_is_refused(project, section, name, value, expected):
    params = small_params()
    params.crf.start_from = "memm"
    setattr(getattr(params, section), name, value)
    with pytest.raises(EspalierError, match=expected):
        result_of(project, params)


def test_a_search_begins_with_an_empty_model(project):
    params, heard = small_params(), Heard()
    params.crf.start_from, params.crf.rho1, params.train.max_iterations = "memm", "auto", 3
    params.crf.solver = "auto"
    result_of(project, params, progress=heard)
    assert any("the path begins with an empty model, not with memm" in text for text in heard.said)
