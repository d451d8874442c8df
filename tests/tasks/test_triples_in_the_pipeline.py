"""Weights for triples of labels from templates to report: the same bytes anywhere, tagging, words, plan, refusals."""

import numpy as np
import pyarrow as pa
import pytest
from stage_runs import run_stages, small_params

from espalier.engine.errors import EspalierError
from espalier.engine.families import load
from espalier.engine.features import features_of
from espalier.engine.runtime import threads
from espalier.flows.commands.running import plan_text
from espalier.tasks import store, train
from espalier.tasks.answering import explain, stream
from espalier.tasks.answering.asked import Asked
from espalier.tasks.progress import Progress
from espalier.tasks.report.phrases import Phrases
from espalier.tasks.report.words import Nouns
from espalier.tasks.training import plan

RESULT = store.CANDIDATE, store.TRACE
LINES = ["U", "U:%x[0,0]", "B", "T", "T:%x[0,0]"]
PERIOD = "XYYXZ"  # what follows a pair of labels is known, what follows a label is not


def params_of_triples():
    params = small_params()
    params.crf.rho1, params.crf.rho2, params.crf.pairs, params.template.lines = 0.05, 0.01, "seen", LINES
    params.ingest.source, params.ingest.path = "conll", "words.conll"
    params.ingest.dev_share = params.ingest.test_share = 0.15
    params.ingest.unlabelled_share = 0.1
    return params


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A project whose inputs say nothing after the second token: only triples tell X, Y and Z apart."""
    root, params = tmp_path_factory.mktemp("triples"), params_of_triples()
    random = np.random.default_rng(4)
    rows = []
    for _ in range(160):
        at, length = int(random.integers(5)), int(random.integers(3, 9))
        labels = [PERIOD[(at + t) % 5] for t in range(length)]
        letters = [y.lower() if t < 2 else random.choice(list("abc")) for t, y in enumerate(labels)]
        rows.append("\n".join(f"{c} {y}" for c, y in zip(letters, labels, strict=True)))
    (root / "words.conll").write_text("\n\n".join(rows) + "\n")
    run_stages(root, params, "ingest", "template", "weigh", "train")
    return root, params


def result_of(root, params, block_tokens=10**6):
    train.main(root, params, Progress(), block_tokens)
    return [(root / path).read_bytes() for path in RESULT]


def test_triples_tell_what_pairs_cannot(trained):
    root, params = trained
    result_of(root, params)
    figures = run_stages(root, params, "evaluate", "report")["evaluate"]
    assert figures["token_error"] < 0.05
    metrics, model = store.read_metrics(root), load(root / store.CANDIDATE)
    assert metrics["active_trigram"] == model.sizes()["active_trigram"] > 0
    assert store.read_trace(root)[-1]["active_trigram"] == metrics["active_trigram"]
    page = (root / "reports" / "report.html").read_text()
    assert "trigram" in page and "X → Y → Y" in page
    heads = (root / store.CURVES / "learning.csv").read_text().split("\n")[0]
    assert heads == "iteration,objective,active_unigram,active_bigram,active_trigram,dev_token_error"
    params.template.lines = LINES[:3]
    without = run_stages(root, params, "template", "weigh", "train", "evaluate")["evaluate"]
    params.template.lines = LINES
    run_stages(root, params, "template", "weigh", "train")
    assert without["token_error"] > 0.15 and "active_trigram" not in store.read_metrics(root)


@pytest.mark.parametrize("block_tokens", [10**6, 150])
def test_blocks_and_threads_give_the_same_bytes(trained, block_tokens):
    root, params = trained
    expected, found = result_of(root, params, block_tokens), []
    for count in (1, 2, 8):
        params.compute.threads = count
        found.append(result_of(root, params, block_tokens))
    params.compute.threads = None
    threads.set_threads(None)
    assert found == [expected] * 3
    assert b"trigram" in expected[0]


def test_workers_give_the_same_bytes(trained):
    pytest.importorskip("distributed")
    root, params = trained
    params.train.max_iterations = 4
    here = result_of(root, params, 150)
    params.compute.cluster = "local:2"
    try:
        assert result_of(root, params, 150) == here
    finally:
        params.compute.cluster, params.train.max_iterations = None, 1000


def test_the_plan_foretells_the_model(trained):
    root, params = trained
    figures = plan.main(root, params)
    result_of(root, params)
    assert figures["exact"] and figures["features"] == load(root / store.CANDIDATE).info["features"]
    assert figures["virtual_features"]["trigram"] % 27 == 0
    assert " trigram)" in plan_text(figures, 10)


def test_a_stream_is_answered_as_the_model_says(trained):
    root, params = trained
    result_of(root, params)
    model = load(root / store.CANDIDATE)
    (root / "in.txt").write_text("\n\n".join("\n".join(word) for word in ["xyabc", "yz", "z", "xyaab"]) + "\n")
    whole = b"".join(stream.tag_file(model, str(root / "in.txt"))).decode()
    labels = ["".join(line[-1] for line in block.split("\n")) for block in whole.strip().split("\n\n")]
    assert labels[0] == "XYYXZ" and labels[3] == "XYYXZ"
    best = b"".join(stream.tag_file(model, str(root / "in.txt"), Asked(scores=True, nbest=3))).decode()
    assert "XYYXZ" in "".join(line[2] for line in best.split("\n") if line[1:2] == "\t") and best.count("# 1 ") == 4


def test_the_difference_of_an_explanation_is_the_sum_of_its_weights(trained):
    root, params = trained
    result_of(root, params)
    model = load(root / store.CANDIDATE)
    data = features_of(model, [pa.array(list("xyabca"), pa.large_string())], np.array([0, 6]))
    (found,) = explain.explain(model, data)
    told = explain.as_object(model, list("xyabca"), found, top=100)
    for t, (token, reason) in enumerate(zip(told["tokens"], found.reasons, strict=True)):
        assert sum(row["adds"] for row in token["weights"]) == pytest.approx(token["difference"], abs=1e-9)
        other = found.labels.copy()
        other[reason.begin : reason.begin + len(reason.other)] = reason.other
        assert other[t] == reason.runner_up
        both = [model.log_probability(data, labels)[0] for labels in (found.labels, other)]
        assert both[0] - both[1] == pytest.approx(reason.difference, abs=1e-9)
    assert any(row["family"] == "trigram" for token in told["tokens"] for row in token["weights"])


def test_triples_in_words(trained):
    root, params = trained
    result_of(root, params)
    model = load(root / store.CANDIDATE)
    listed = [row for row in explain.strongest(model, None, 100) if row["family"] == "trigram"]
    assert {row["observation"] for row in listed} <= {"T", "T:a", "T:b", "T:c"} and listed
    assert all(row["text"].startswith(f"{row['before']} → {row['previous']} → {row['label']}  when") for row in listed)
    rows = [row for row in model.shown_table().to_pylist() if row["family"] == "trigram"]
    said = {Phrases(model.templates, Nouns(token="letter", sequence="word")).weight(row) for row in rows}
    assert "X → Y → Y" in said


def test_training_starts_from_a_model_with_and_without_them(trained):
    root, params = trained
    result_of(root, params)
    (root / store.CANDIDATE).rename(root / "earlier.model")
    params.train.initial = "earlier.model"
    try:
        result_of(root, params)
        first = store.read_trace(root)[0]["objective"]
        assert first == pytest.approx(load(root / "earlier.model").info["objective"], rel=1e-12)
        params.template.lines = LINES[:3]
        run_stages(root, params, "template", "weigh", "train")
        assert "active_trigram" not in load(root / store.CANDIDATE).sizes()
    finally:
        params.template.lines, params.train.initial = LINES, None
        run_stages(root, params, "template", "weigh", "train")


@pytest.mark.parametrize(
    ("family", "options", "text"),
    [
        ("memm", {}, "memm cannot weigh three labels in a row: set model.family to crf, or leave out the"),
        ("hmm", {}, "hmm cannot weigh three labels in a row: set model.family to crf, or leave out the"),
        ("crf", {"loss": "marginal"}, "loss is marginal, and templates that begin with T are trained by the log loss"),
        ("crf", {"scheme": "iob2"}, "a scheme makes transitions impossible in training, which templates that begin"),
        ("crf", {"pairs": "all"}, "crf.pairs is all, and templates that begin with T have weights for the triples"),
        ("crf", {"solver": "sbcd"}, "sbcd needs blocks .* TripleObjective has none: choose one of owlqn, pqn, hybrid"),
        ("crf", {"solver": "sgd"}, "sgd needs the sequences of a chain objective, TripleObjective has none"),
    ],
)
def test_what_cannot_be_is_refused(trained, family, options, text):
    root, params = trained
    before = {name: getattr(params.crf, name) for name in options}
    params.model.family = family
    for name, value in options.items():
        setattr(params.crf, name, value)
    try:
        with pytest.raises(EspalierError, match=text):
            train.main(root, params, Progress())
        if "solver" not in options:
            with pytest.raises(EspalierError, match=text):
                plan.main(root, params)
    finally:
        params.model.family = "crf"
        for name, value in before.items():
            setattr(params.crf, name, value)


def test_sbcd_is_refused_of_blocks_too(trained):
    root, params = trained
    params.crf.solver = "sbcd"
    try:
        with pytest.raises(EspalierError, match="sbcd needs blocks .* ShardedObjective has none: choose one of"):
            train.main(root, params, Progress(), 150)
    finally:
        params.crf.solver = "auto"
