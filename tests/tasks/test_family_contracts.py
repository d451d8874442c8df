"""Contracts of training: every family of the registry goes through the pipeline and does what it says it can.

What models answer is held to contracts in tests/engine/test_families.py.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from stage_runs import run_stages, small_params, tree

from espalier import CRF
from espalier.engine.errors import EspalierError
from espalier.engine.families import FAMILIES, Family, load
from espalier.engine.families.crf import CrfLabeller
from espalier.tasks import store
from espalier.tasks.answering import stream
from espalier.tasks.judging.kept_answers import labelled
from espalier.tasks.progress import Progress
from espalier.tasks.training import TRAINERS, sweep
from espalier.tasks.training.plan import main as plan

DATA = ("ingest", "template", "weigh")
GRADUAL = {"training": "baum-welch"}  # of families that can also just count: what goes on, and fills gaps
STAGES = (*DATA, "train", "evaluate", "report", "promote")


def able(ability):
    """Those that label tokens and can do it."""
    names = [name for name, one in FAMILIES.items() if {"labels", ability} <= one.can]
    return pytest.mark.parametrize("family", names)


def unable(ability):
    """Those that label tokens and cannot do it."""
    names = [name for name, one in FAMILIES.items() if "labels" in one.can and ability not in one.can]
    return pytest.mark.parametrize("family", names)


ALL = able("labels")  # those of trees are in test_trees_in_the_pipeline.py


def params_of(family, **options):
    """Options go where the family has them: its own section, those of all trainings, or where it runs."""
    params = small_params()
    vars(params.memm).update({name: vars(params.crf)[name] for name in vars(params.memm) if hasattr(params.crf, name)})
    params.model.family = family
    for name, value in options.items():
        for section in (params.of_family, params.train, params.compute, params.ingest, params.template):
            if hasattr(section, name):
                setattr(section, name, value)
                break
    return params


def words_project(root: Path, words: list[str], family: str, **options):
    """A project of words whose vowels are V; a label may be given behind a letter: `b_` is not known."""
    blocks = []
    for word in words:
        marked = [(a, "_" if b == "_" else "V" if a in "aeiou" else "C") for a, b in zip(word, word[1:] + " ")]  # noqa: B905
        blocks.append("\n".join(f"{letter} {label}" for letter, label in marked if letter != "_"))
    (root / "words.conll").write_text("\n\n".join(blocks) + "\n")
    params = params_of(family, source="conll", path="words.conll", limit=None, unknown="_", **options)
    params.template.lines, params.weigh.clusters, params.weigh.method = ["*:%x[0,0]", "U-1:%x[-1,0]", "B"], 0, "none"
    return params


WORDS = ["banana", "a", "tree", "house", "io", "stone", "rare", "b", "queue", "sky", "aorta", "unit", "e", "plan",
         "ice", "tome", "oat", "rib", "use", "elm", "ode", "cab", "dune", "fir"]  # fmt: skip


def kept_record(root):
    """The record of the iteration whose model was kept: the best on the development data, or the last one."""
    trace, best = store.read_trace(root), load(root / store.CANDIDATE).info.get("best_iteration")
    return trace[-1] if best is None else next(record for record in trace if record["iteration"] == best)


def test_every_family_has_a_trainer():
    assert TRAINERS.keys() == FAMILIES.keys()


@ALL
def test_the_whole_pipeline(tmp_path, family):
    params = params_of(family)
    found = run_stages(tmp_path, params, *STAGES)
    model = load(tmp_path / store.CHAMPION)
    assert model.family == family and found["promote"]["promoted"]
    metrics = store.read_metrics(tmp_path)
    assert metrics["token_error"] < 0.5 and metrics["features"] >= len(model.theta) > 0
    page = (tmp_path / store.REPORT).read_text(encoding="utf-8")
    assert f"A {FAMILIES[family].called}, trained on" in page
    assert ('id="calibration"' in page) == ("probability" in FAMILIES[family].can)
    kept = kept_record(tmp_path)
    assert kept["dev_token_error"] < 0.5 and kept["objective"] == pytest.approx(model.info["objective"])
    planned = plan(tmp_path, params)
    assert planned["bytes"]["all"] == sum(v for k, v in planned["bytes"].items() if k != "all") > 0
    assert planned["features"] >= len(model.theta) if not planned["exact"] else planned["features"] > 0


@ALL
def test_a_model_of_the_pipeline_is_one_of_python(tmp_path, family):
    """It labels there, tells what it was trained with, and can be trained again."""
    params = words_project(tmp_path, WORDS, family)
    run_stages(tmp_path, params, *DATA, "train")
    crf, letters = CRF.load(tmp_path / store.CANDIDATE), [list(word) for word in WORDS]
    right = [["V" if letter in "aeiou" else "C" for letter in word] for word in WORDS]
    assert crf.score(letters, right) > 0.9
    told = crf.get_params()
    assert told["family"] == family and told["templates"] == params.template.lines
    section = vars(params.of_family)
    alike = {"rho1", "rho2", "pairs", "start", "smoothing", "rare", "degree", "kappa", "method", "C", "slack", "margin"}
    for name in set(section) & alike:
        assert told[name] == section[name], name
    assert crf.fit(letters, right).score(letters, right) == 1.0


@ALL
def test_the_same_bytes_for_any_threads_and_shards(tmp_path, family):
    params, seen = params_of(family), set()
    run_stages(tmp_path, params, "ingest")
    for threads, shard_tokens in ((1, 10**6), (2, 10**6), (8, 100), (None, 50)):
        params.compute.threads, params.template.shard_tokens = threads, shard_tokens
        run_stages(tmp_path, params, "template", "weigh", "train")
        seen.add(((tmp_path / store.CANDIDATE).read_bytes(), (tmp_path / store.TRACE).read_bytes()))
    assert len(seen) == 1


def test_mixed_parts_of_a_perceptron_are_the_same_bytes_for_any_threads_and_go_on(tmp_path):
    from espalier.tasks import train

    params, seen = params_of("perceptron", parts=3, checkpoint_seconds=0), set()
    run_stages(tmp_path, params, "ingest")
    for threads, shard_tokens in ((1, 10**6), (3, 100)):
        params.compute.threads, params.template.shard_tokens = threads, shard_tokens
        run_stages(tmp_path, params, "template", "weigh", "train")
        seen.add((tmp_path / store.CANDIDATE).read_bytes())
    with pytest.raises(KeyboardInterrupt):
        train.main(tmp_path, params, Interrupted(3))
    train.main(tmp_path, params, Progress())
    seen.add((tmp_path / store.CANDIDATE).read_bytes())
    assert len(seen) == 1 and load(tmp_path / store.CANDIDATE).info["parts"] == 3
    params.perceptron.parts = 1
    run_stages(tmp_path, params, "train")
    assert (tmp_path / store.CANDIDATE).read_bytes() not in seen


@able("duplicates")
def test_a_sequence_of_weight_two_is_a_duplicate(tmp_path, family):
    options = {"rho1": 0.0, "rho2": 0.1, "tolerance": 1e-9, "max_iterations": 2000, "dev_share": 0.0,
               "test_share": 0.0}  # fmt: skip
    answers = []
    for name, words in (("heavy", WORDS), ("twice", [*WORDS, *WORDS[:6]])):
        root = tmp_path / name
        root.mkdir()
        params = words_project(root, words, family, **options)
        params.ingest.test_path = "words.conll"
        run_stages(root, params, *DATA)
        if name == "heavy":
            letters = store.read_tokens(root, "train")[0].group_by("sequence", maintain_order=True).agg("x0")
            heavy = [2.0 if "".join(row) in WORDS[:6] else 1.0 for row in letters["x0"]]
            table, info = store.read_arrow(root / store.WEIGHTS)
            weighed = pl.from_arrow(table).with_columns(weight=pl.Series(heavy))
            store.write_arrow(root / store.WEIGHTS, weighed, info)
            assert sum(heavy) == len(WORDS) + 6
        run_stages(root, params, "train")
        model, tokens = load(root / store.CANDIDATE), store.read_tokens(tmp_path / "heavy", "train")[0]
        sure = "probability" in FAMILIES[family].can
        answers.append((model.marginals if sure else model.best)(labelled(model, tokens)))
    np.testing.assert_allclose(*answers, atol=1e-5)


@ALL
@pytest.mark.parametrize("words", [["a", "e", "i", "o", "u"] * 4, ["b", "a"] * 10], ids=["one label", "one position"])
def test_one_label_and_sequences_of_one_position(tmp_path, family, words):
    params = words_project(tmp_path, words, family, dev_share=0.0)
    params.ingest.test_path = "words.conll"
    run_stages(tmp_path, params, *STAGES)
    assert store.read_metrics(tmp_path)["token_error"] == 0.0


@ALL
def test_letters_that_training_has_not_seen(tmp_path, family):
    params = words_project(tmp_path, WORDS, family)
    (tmp_path / "test.conll").write_text("x C\na V\n\nw C\n")
    params.ingest.test_path = "test.conll"
    run_stages(tmp_path, params, *STAGES)
    found, _ = store.read_arrow(tmp_path / store.PREDICTIONS)
    assert found.column("predicted").to_pylist()[1] == "V"


@able("partial")
def test_partial_labels_are_learned_from(tmp_path, family):
    params = words_project(tmp_path, [*WORDS, "bu_zz_a", "o_"], family, **GRADUAL)
    run_stages(tmp_path, params, *STAGES)
    assert store.read_metrics(tmp_path)["token_error"] < 0.5


@unable("partial")
def test_partial_labels_are_refused_where_it_cannot(tmp_path, family):
    params = words_project(tmp_path, [*WORDS, *["bu_zz_a"] * 20], family)
    run_stages(tmp_path, params, *DATA)
    before = tree(tmp_path)
    with pytest.raises(EspalierError, match=f"^{family} cannot learn from partial labels: .* one of crf, hmm, or"):
        run_stages(tmp_path, params, "train")
    assert tree(tmp_path) == before


@able("warm_start")
def test_a_warm_start_goes_on_from_the_earlier_model(tmp_path, family):
    params = params_of(family, max_iterations=30, **GRADUAL)
    run_stages(tmp_path, params, *DATA, "train")
    end = kept_record(tmp_path)
    (tmp_path / store.CANDIDATE).rename(tmp_path / "earlier.model")
    params.train.initial = "earlier.model"
    run_stages(tmp_path, params, "train")
    begin = store.read_trace(tmp_path)[0]
    assert begin["iteration"] == 0 or "objective" in FAMILIES[family].can
    assert begin["dev_token_error"] == pytest.approx(end["dev_token_error"]) or begin["iteration"]
    if "objective" in FAMILIES[family].can:
        assert begin["objective"] == pytest.approx(end["objective"], rel=1e-9)


@pytest.mark.parametrize(("family", "other"), [("hmm", "crf"), ("hmm", "memm"), ("crf", "hmm"), ("hmm", "perceptron")])
def test_what_is_no_start_for_others_is_told(tmp_path, family, other):
    run_stages(tmp_path, params_of(family), *DATA, "train")
    (tmp_path / store.CANDIDATE).rename(tmp_path / "earlier.model")
    with pytest.raises(EspalierError, match=f"train.initial is 'earlier.model', a model of the family {family}, whose"):
        run_stages(tmp_path, params_of(other, initial="earlier.model", **GRADUAL), "train")
    (tmp_path / "earlier.model").rename(tmp_path / store.START)
    said = []

    class Heard(Progress):
        def say(self, text):
            said.append(text)

    from espalier.tasks import train

    figures = train.main(tmp_path, params_of(other, initial="champion", **GRADUAL), Heard())
    assert not figures["warm"] and f"the champion is a model of {family}, no start for {other}" in " ".join(said)


def test_counts_do_not_go_on_from_an_earlier_model(tmp_path):
    run_stages(tmp_path, params_of("hmm"), *DATA, "train")
    (tmp_path / store.CANDIDATE).rename(tmp_path / "earlier.model")
    with pytest.raises(EspalierError, match="^hmm.training is counts, which begins with the counts of its data"):
        run_stages(tmp_path, params_of("hmm", initial="earlier.model"), "train")


class Interrupted(Progress):
    def __init__(self, after):
        self.after = after

    def step(self, n=1, note=""):
        self.after -= 1
        if self.after == 0:
            raise KeyboardInterrupt


@able("resume")
def test_interrupted_it_ends_with_the_same_bytes(tmp_path, family):
    from espalier.tasks import train

    params = params_of(family, checkpoint_seconds=0)
    run_stages(tmp_path, params, *DATA, "train")
    expected = (tmp_path / store.CANDIDATE).read_bytes()
    for after in (4, 3):
        with pytest.raises(KeyboardInterrupt):
            train.main(tmp_path, params, Interrupted(after))
    said = []

    class Heard(Progress):
        def say(self, text):
            said.append(text)

    train.main(tmp_path, params, Heard())
    assert (tmp_path / store.CANDIDATE).read_bytes() == expected
    assert any("where an earlier run was interrupted" in text for text in said)


@unable("shards")
def test_a_cluster_is_refused_where_it_cannot(tmp_path, family):
    params = params_of(family, cluster="local:2")
    run_stages(tmp_path, params_of(family), *DATA)
    expected = (
        f"^{family} cannot train on data in several processes: set model.family to crf, or set compute.cluster to null$"
    )
    with pytest.raises(EspalierError, match=expected):
        run_stages(tmp_path, params, "train")


@able("path")
def test_a_sweep_follows_the_path(tmp_path, family):
    params = params_of(family)
    run_stages(tmp_path, params, *DATA)
    found = sweep.main(tmp_path, params, Progress(), points=3)
    sizes = [point["active"] for point in found["points"]]
    assert sizes == sorted(sizes) and sizes[-1] > sizes[0] and found["chosen"] > 0


@unable("path")
def test_a_sweep_is_refused_where_it_cannot(tmp_path, family):
    with pytest.raises(EspalierError, match=f"^{family} cannot follow a path of penalties: set model.family to one of"):
        sweep.main(tmp_path, params_of(family), Progress())


# ---- another form of a family


@pytest.mark.parametrize("contract", [
    test_the_whole_pipeline, test_a_model_of_the_pipeline_is_one_of_python,
    test_the_same_bytes_for_any_threads_and_shards, test_letters_that_training_has_not_seen,
    test_partial_labels_are_refused_where_it_cannot,
    test_interrupted_it_ends_with_the_same_bytes,
])  # fmt: skip
def test_a_perceptron_with_a_kernel_keeps_the_contracts(tmp_path, monkeypatch, contract):
    monkeypatch.setitem(globals(), "params_of", partial(params_of, degree=2))
    contract(tmp_path, "perceptron")
    model = tmp_path / store.CANDIDATE
    if model.is_file():
        assert load(model).info["degree"] == 2


@pytest.mark.parametrize("words", [["a", "e", "i", "o", "u"] * 4, ["b", "a"] * 10], ids=["one label", "one position"])
def test_a_perceptron_with_a_kernel_of_one_label_and_of_one_position(tmp_path, monkeypatch, words):
    monkeypatch.setitem(globals(), "params_of", partial(params_of, degree=2))
    test_one_label_and_sequences_of_one_position(tmp_path, "perceptron", words)


def test_a_perceptron_with_a_kernel_and_earlier_models(tmp_path):
    """It starts from none, and is none to start from."""
    params = params_of("perceptron", degree=2)
    run_stages(tmp_path, params, *DATA, "train")
    (tmp_path / store.CANDIDATE).rename(tmp_path / "earlier.model")
    params.train.initial = "earlier.model"
    with pytest.raises(EspalierError, match="^perceptron.degree is 2 and train.initial 'earlier.model': .*null"):
        run_stages(tmp_path, params, "train")
    params.perceptron.degree = None
    with pytest.raises(EspalierError, match="^train.initial is 'earlier.model', a model .* rows support"):
        run_stages(tmp_path, params, "train")


# ---- a family that says nothing of how likely its labels are


class MarginLabeller(CrfLabeller):
    family = "margin"


@dataclass(frozen=True)
class FamilyOfTests(Family):
    @property
    def labeller(self):
        return MarginLabeller


@pytest.fixture
def margins(tmp_path, monkeypatch):
    """A project whose candidate has scores and no probabilities."""
    can = frozenset({"labels", "nbest", "limits", "weights"})
    monkeypatch.setitem(FAMILIES, "margin", FamilyOfTests("", "model of margins", "for tests", can))
    params = params_of("crf")
    run_stages(tmp_path, params, *DATA, "train")
    crf = load(tmp_path / store.CANDIDATE)
    model = MarginLabeller(crf.labels, crf.templates, crf.observations, crf.layout, crf.theta, crf.info)
    store.write_model(tmp_path / store.CANDIDATE, model)
    return tmp_path, params


def test_what_needs_probabilities_is_left_out(margins):
    root, params = margins
    found = run_stages(root, params, "evaluate", "report", "promote")
    assert found["promote"]["promoted"] and "log_loss" not in found["evaluate"]
    metrics = store.read_metrics(root)
    assert metrics["token_error"] < 0.5
    assert not {"log_loss", "calibration_error", "excess_risk"} & metrics.keys()
    assert metrics["decoders"].keys() == {"viterbi", "used", "part"}
    assert len((root / store.CURVES / "calibration.csv").read_text().splitlines()) == 1
    page = (root / store.REPORT).read_text(encoding="utf-8")
    assert "A model of margins, trained on" in page and "with the most errors" in page
    for part in ('id="calibration"', 'id="decoders"', "Log-loss", ">nan", ">None"):
        assert part not in page


def test_what_needs_probabilities_is_refused_when_it_is_asked_for(margins):
    model = load(margins[0] / store.CANDIDATE)
    refusal = "^margin cannot say how likely its labels are: set model.family to one of crf, memm, hmm, gp$"
    asked = [stream.Asked(scores=True), stream.Asked(decode="posterior")]
    for one in asked:
        with pytest.raises(EspalierError, match=refusal):
            list(stream.answers(model, [b"s0\ns1\n\n"], "test", one))
    assert list(stream.answers(model, [b"s0\ns1\n\n"], "test", stream.Asked()))
