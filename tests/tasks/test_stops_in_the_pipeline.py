"""Stop weights in the pipeline: the same bytes by shards, workers and threads; tagging, words, plan, warm start."""

import numpy as np
import pyarrow as pa
import pytest
from stage_runs import run_stages, small_params

from espalier.engine.errors import EspalierError
from espalier.engine.families import load
from espalier.engine.features import features_of
from espalier.engine.runtime import threads
from espalier.tasks import store, train
from espalier.tasks.answering import explain, stream
from espalier.tasks.params import load_params
from espalier.tasks.progress import Progress
from espalier.tasks.report.phrases import Phrases
from espalier.tasks.report.words import Nouns
from espalier.tasks.training import plan

RESULT = store.CANDIDATE, store.TRACE
LINES = ["*:%x[0,0]", "U-1:%x[-1,0]", "B"]


def with_ends(params):
    params.crf.stop, params.crf.rho1 = True, 0.01
    return params


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A project whose last labels are of their own kind: `Z` stands at the end and nowhere else."""
    root, params = tmp_path_factory.mktemp("ends"), with_ends(small_params())
    random = np.random.default_rng(4)
    words = ["".join(random.choice(list("abcd"), random.integers(1, 7))) for _ in range(120)]
    rows = [[f"{c} {'X' if c in 'ab' else 'Y'}" for c in word[:-1]] + [f"{word[-1]} Z"] for word in words]
    (root / "words.conll").write_text("\n\n".join("\n".join(row) for row in rows) + "\n")
    params.ingest.source, params.ingest.path = "conll", "words.conll"
    params.ingest.dev_share = params.ingest.test_share = params.ingest.unlabelled_share = 0.1
    run_stages(root, params, "ingest", "template", "weigh", "train")
    return root, params


def result_of(root, params, block_tokens=10**6):
    train.main(root, params, Progress(), block_tokens)
    return [(root / path).read_bytes() for path in RESULT]


@pytest.mark.parametrize("pairs", ["all", "seen"])
def test_blocks_and_threads_give_the_same_bytes(project, pairs):
    params = with_ends(small_params())
    params.crf.pairs = pairs
    expected, found = result_of(project, params, 150), []
    for count in (1, 3):
        params.compute.threads = count
        found.append(result_of(project, params, 150))
    threads.set_threads(None)
    assert found == [expected, expected]
    assert load(project / store.CANDIDATE).info["stop"] is True


@pytest.mark.parametrize("solver", ["hybrid", "sbcd"])
def test_workers_give_the_same_bytes(project, solver):
    pytest.importorskip("distributed")
    params = with_ends(small_params())
    params.crf.solver, params.train.max_iterations = solver, 4
    here = result_of(project, params, 150)
    assert b"$B" in here[0]
    params.compute.cluster = "local:2"
    assert result_of(project, params, 150) == here


def test_the_plan_foretells_the_model(trained):
    root, params = trained
    for pairs in ("all", "seen"):
        params.crf.pairs = pairs
        figures = plan.main(root, params)
        result_of(root, params)
        assert figures["exact"] and figures["features"] == load(root / store.CANDIDATE).info["features"]
    params.crf.stop = False
    without = plan.main(root, params)["features"]
    params.crf.stop = True
    assert figures["features"] == without + 5  # Z at the end: with no observation, and with each of four letters


def test_a_stream_cut_in_blocks_sees_true_ends_only(trained, monkeypatch):
    root, params = trained
    result_of(root, params)
    model = load(root / store.CANDIDATE)
    words = ["abcd", "a", "dcba", "bbbb", "cd"] * 8
    text = "\n\n".join("\n".join(word) for word in words) + "\n"
    (root / "in.txt").write_text(text)
    whole = b"".join(stream.tag_file(model, str(root / "in.txt")))
    monkeypatch.setattr(stream, "BLOCK", 7)
    assert b"".join(stream.tag_file(model, str(root / "in.txt"))) == whole
    answers = [block.split("\n") for block in whole.decode().strip().split("\n\n")]
    assert len(answers) == len(words)
    assert all(rows[-1].endswith("\tZ") and not any(r.endswith("\tZ") for r in rows[:-1]) for rows in answers)


def test_what_is_said_of_the_end(trained):
    root, params = trained
    result_of(root, params)
    model = load(root / store.CANDIDATE)
    listed = [row for row in explain.strongest(model, None, 100) if row["family"] == "stop"]
    assert {row["observation"] for row in listed} <= {"B", "*:a", "*:b", "*:c", "*:d"} and listed
    (plain,) = [row for row in listed if row["observation"] == "B" and row["label"] == "Z"]
    assert plain["text"] == "Z  when B at the end" and plain["previous"] is None and plain["weight"] > 0
    data = features_of(model, [pa.array(list("abc"), pa.large_string())], np.array([0, 3]))
    (found,) = explain.explain(model, data)
    told = explain.as_object(model, list("abc"), found, top=50)
    last = told["tokens"][-1]["weights"]
    assert any(row["family"] == "stop" and row["text"].endswith("at the end") for row in last)
    assert sum(row["adds"] for row in last) == pytest.approx(told["tokens"][-1]["difference"], abs=1e-9)
    assert not any(row["family"] == "stop" for row in told["tokens"][0]["weights"] if row["label"] != "Z")
    nouns = Nouns(token="letter", sequence="word")
    rows = [row for row in model.shown_table().to_pylist() if row["family"] == "stop"]
    said = {Phrases(model.templates, nouns).weight(row) for row in rows}
    assert "Z at the end" in said and any(text.startswith("Z at the end when letter ") for text in said)


def test_training_starts_from_a_model_with_and_without_them(trained):
    root, params = trained
    result_of(root, params)
    (root / store.CANDIDATE).rename(root / "ends.model")
    params.train.initial = "ends.model"
    try:
        result_of(root, params)
        first = store.read_trace(root)[0]["objective"]
        assert first == pytest.approx(load(root / "ends.model").info["objective"], rel=1e-12)
        params.crf.stop = False
        result_of(root, params)
        assert not any(text[0] == "$" for text in load(root / store.CANDIDATE).observations)
    finally:
        params.crf.stop, params.train.initial = True, None


def test_evaluation_and_report_have_them(trained):
    root, params = trained
    result_of(root, params)
    figures = run_stages(root, params, "evaluate", "report")["evaluate"]
    assert figures["token_error"] == 0.0
    page = (root / "reports" / "report.html").read_text()
    assert "Z at the end" in page


def test_a_memm_has_none(tmp_path):
    (tmp_path / "params.yaml").write_text("memm: {stop: true}\n")
    with pytest.raises(EspalierError, match=".memm.stop.: a label there is normalised given the one before it"):
        load_params(tmp_path / "params.yaml")


def test_stops_without_pairs_are_refused(trained):
    root, params = trained
    params = with_ends(small_params())
    params.template.lines = ["U:%x[0,0]"]
    params.ingest.source, params.ingest.path = "conll", "words.conll"
    with pytest.raises(EspalierError, match="crf.stop is true and no template has weights for pairs of labels"):
        run_stages(root, params, "template", "weigh", "train")
