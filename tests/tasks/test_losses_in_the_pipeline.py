"""Losses other than the log loss through the pipeline, and in the Python class."""

import json

import numpy as np
import pytest
from stage_runs import run_stages, set_options, small_params

from espalier import CRF
from espalier.engine.errors import EspalierError
from espalier.engine.families import load
from espalier.engine.losses.exponential_loss import ExponentialObjective
from espalier.engine.losses.marginal_loss import MarginalObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.tasks import store, train
from espalier.tasks.params import load_params
from espalier.tasks.progress import Progress
from espalier.tasks.report.summary import how_words
from espalier.tasks.training import plan
from espalier.tasks.training.checkpoint import FOLDER, key_of
from espalier.tasks.training.job import Job, Options

OTHERS = ("marginal", "exponential")
every_loss = pytest.mark.parametrize("loss", OTHERS)
RESULT = (store.CANDIDATE, store.TRACE)
RHO1 = {"marginal": 0.1, "exponential": 0.003}


class Listening(Progress):
    """Remembers what it was told; raises after some iterations."""

    def __init__(self, after=None):
        self.after, self.heard, self.steps = after, [], 0

    def step(self, n=1, note=""):
        self.steps += 1
        if self.after is not None and self.steps > self.after:
            raise KeyboardInterrupt

    def say(self, text):
        self.heard.append(text)


def params_of(loss, **options):
    return set_options(small_params(), **{"loss": loss, "solver": "auto", "rho1": RHO1[loss], **options})


def result_of(project, params, progress=None):
    train.main(project, params, progress or Progress())
    return [(project / path).read_bytes() for path in RESULT]


@every_loss
def test_a_model_of_another_loss(project, loss):
    """The objective in the file is that loss plus the penalty; file, trace, terminal and report say which it was."""
    progress, params = Listening(), params_of(loss, pi=0.9 if loss == "exponential" else 1.0)
    result_of(project, params, progress)
    model, trace = load(project / store.CANDIDATE), store.read_trace(project)
    job = Job(project, params)
    data = job.shards().read_all(job.weights)
    local = model.renumbered(data, job.observations())
    kind = MarginalObjective if loss == "marginal" else ExponentialObjective
    objective = kind(local, model.layout, **({"pi": 0.9} if loss == "exponential" else {}))
    expected = objective.value(model.theta) + ElasticNet(params.crf.rho1, params.crf.rho2).value(model.theta)
    assert model.info["objective"] == pytest.approx(expected, rel=1e-9)
    assert model.info["loss"] == loss and model.info.get("pi") == (0.9 if loss == "exponential" else None)
    assert trace[-1]["objective"] < trace[0]["objective"]
    assert all(loss in record["minimises"] for record in trace)
    assert any(text.startswith(f"crf.loss is {loss}: ") for text in progress.heard)
    words = dict(how_words(model.info))
    assert loss in words["Loss"] and ("0.9" in words["Loss"]) == (loss == "exponential")
    run_stages(project, params, "evaluate", "report")
    assert words["Loss"].split(",")[0] in (project / store.REPORT).read_text(encoding="utf-8")
    loaded = CRF.load(project / store.CANDIDATE)
    assert loaded.loss == loss and loaded.pi == model.info.get("pi", 1.0)


def test_the_log_loss_is_not_spoken_of(project):
    result_of(project, small_params())
    model = load(project / store.CANDIDATE)
    assert "loss" not in model.info and "Loss" not in dict(how_words(model.info))
    assert all("minimises" not in record for record in store.read_trace(project))


@every_loss
@pytest.mark.parametrize("solver", ["hybrid", "owlqn"])
def test_interrupted_it_ends_with_the_same_bytes(project, loss, solver):
    params = params_of(loss, solver=solver, checkpoint_seconds=0, tolerance=0.0, max_iterations=8)
    expected = result_of(project, params)
    with pytest.raises(KeyboardInterrupt):
        result_of(project, params, Listening(4))
    progress = Listening()
    assert result_of(project, params, progress) == expected
    assert any("where an earlier run was interrupted" in text for text in progress.heard)
    assert not (project / FOLDER).exists()


def test_the_loss_is_part_of_the_key(project):
    keys = set()
    for options in ({}, {"loss": "marginal"}, {"loss": "exponential"}, {"loss": "exponential", "pi": 0.5}):
        given = Options.of(set_options(small_params(), **options))
        keys.add(key_of(project, given, {}, {}, 1))
    assert len(keys) == 4


@every_loss
def test_a_start_from_an_earlier_model(project, loss):
    """From the optimum of the log loss, and from a model of the same loss, which is there already."""
    result_of(project, small_params())
    (project / "models" / "earlier.model").write_bytes((project / store.CANDIDATE).read_bytes())
    params = params_of(loss, initial="models/earlier.model", max_iterations=60)
    result_of(project, params)
    first = store.read_trace(project)
    assert first[0]["active_unigram"] > 0
    (project / "models" / "earlier.model").write_bytes((project / store.CANDIDATE).read_bytes())
    result_of(project, params)
    again = store.read_trace(project)
    assert again[0]["objective"] == pytest.approx(first[-1]["objective"], rel=1e-6)


@every_loss
def test_bytes_do_not_depend_on_threads(project, loss):
    found = {tuple(result_of(project, params_of(loss, threads=count, max_iterations=5))) for count in (1, 2, 8)}
    assert len(found) == 1


@every_loss
def test_what_cannot_train_is_refused_in_words(project, loss):
    for solver in ("sbcd", "cd", "sgd", "iis"):
        with pytest.raises(EspalierError) as refused:
            result_of(project, params_of(loss, solver=solver))
        assert str(refused.value) == (
            f"crf.solver is {solver}, which moves weights by sequences or blocks, and with crf.loss = {loss} training "
            "has a gradient alone: choose one of owlqn, pqn, hybrid, or set crf.loss to log"
        )
    with pytest.raises(EspalierError, match=f"crf.loss is {loss}, which needs all sequences in one process, and "
                                            "compute.cluster is local:2: set compute.cluster to null"):  # fmt: skip
        result_of(project, params_of(loss, cluster="local:2"))


@every_loss
def test_a_plan_counts_what_a_loss_takes(project, loss):
    plain, other = (plan.main(project, params) for params in (small_params(), params_of(loss)))
    assert other["bytes"]["features"] > plain["bytes"]["features"]
    assert other["seconds_per_iteration"] > 0


@every_loss
def test_a_search_for_penalties(project, loss):
    params = params_of(loss, rho1="auto", max_iterations=30)
    train.main(project, params, Progress())
    figures = json.loads((project / store.RHO1_PATH).read_text(encoding="utf-8"))
    assert figures["chosen"] > 0 and all(point["train_log_loss"] is None for point in figures["points"])
    assert len(load(project / store.CANDIDATE).theta)


def test_parameters(tmp_path):
    (tmp_path / "params.yaml").write_text("crf: {loss: marginal, pi: 0.5}\n")
    assert load_params(tmp_path / "params.yaml").crf.loss == "marginal"
    for text, words in (("crf.loss=hinge", "expected one of log, marginal, exponential"), ("crf.pi=0", "at least"),
                        ("crf.pi=2", "expected at most 1"), ("memm.loss=log", "unknown parameter")):  # fmt: skip
        with pytest.raises(EspalierError, match=words):
            load_params(tmp_path / "params.yaml", [text])


# ---- Python

X = [["the", "dog", "barks"], ["a", "cat", "sleeps"], ["dogs", "bark"], ["the", "cat"]]
Y = [["D", "N", "V"], ["D", "N", "V"], ["N", "V"], ["D", "N"]]


@every_loss
def test_in_python(loss, tmp_path):
    crf = CRF(loss=loss, rho1=0.001, rho2=0.01, pi=0.9).fit(X, Y, sample_weight=[1, 2, 1, 1])
    assert crf.predict(X, "posterior") == Y and crf.model_.info["loss"] == loss
    assert crf.get_params()["loss"] == loss
    crf.save(tmp_path / "a.model")
    again = CRF.load(tmp_path / "a.model")
    assert (again.loss, again.pi) == (loss, 0.9)
    np.testing.assert_array_equal(again.predict_marginals(X)[0], crf.predict_marginals(X)[0])
    partly = [["D", None, "V"], *Y[1:]]
    assert CRF(loss=loss, rho1=0.001, rho2=0.01).fit(X, partly).predict(X, "posterior") == Y


def test_what_python_refuses():
    with pytest.raises(EspalierError, match="loss 'hinge' is not known: choose one of log, marginal, exponential"):
        CRF(loss="hinge").fit(X, Y)
    with pytest.raises(EspalierError, match="memm cannot minimise the marginal loss: set family to crf, or loss"):
        CRF(loss="marginal", family="memm").fit(X, Y)
    with pytest.raises(EspalierError, match="pi is 0: expected a number above 0 and up to 1"):
        CRF(loss="exponential", pi=0).fit(X, Y)
    with pytest.raises(EspalierError, match="sbcd needs .* choose one of owlqn, pqn, hybrid"):
        CRF(loss="marginal", solver="sbcd").fit(X, Y)
    with pytest.raises(EspalierError, match="has a set of labels"):
        CRF(loss="marginal").fit(X, [["D", {"N", "V"}, "V"], *Y[1:]])
    with pytest.raises(EspalierError, match="takes no token weights"):
        CRF(loss="exponential").fit(X, Y, token_weight=[[1, 2, 1], [1, 1, 1], [1, 1], [1, 1]])
