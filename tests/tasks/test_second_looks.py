"""Figures without what training had seen, and both decoders side by side; and what the report makes of them."""

from functools import partial

import numpy as np
import pytest
from stage_runs import run_stages

from espalier.engine.labels.measures import TOKEN_ERROR
from espalier.tasks import evaluate, store
from espalier.tasks.judging import second_looks
from espalier.tasks.params import Ingest, Params
from espalier.tasks.report import second_looks as words
from espalier.tasks.report.words import Nouns

NOUNS = Nouns()
FIGURES = partial(evaluate.error_figures, TOKEN_ERROR)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Two of four test sequences also stand in training, there with the labels that the model learns."""
    root = tmp_path_factory.mktemp("looks")
    (root / "train.conll").write_text("a B-X\nb O\n\nc O\nd B-X\n\n" * 4)
    (root / "test.conll").write_text("a B-X\nb O\n\nc O\nd B-X\n\nb B-X\n\nd O\na O\n")
    params = Params()
    params.ingest = Ingest(source="files", path="train.conll", test_path="test.conll", limit=None, dev_share=0.0)
    params.template.lines = ["U:%x[0,0]", "B"]
    params.crf.rho1, params.train.max_iterations = 0.01, 30
    run_stages(root, params, "ingest", "template", "weigh", "train", "evaluate", "report")
    return root


def test_the_figures_without_what_was_seen_in_training(project):
    metrics = store.read_json(project / store.METRICS)
    assert metrics["overlap"]["sequences"] == 2 and metrics["overlap"]["share"] == 0.5
    predictions = store.read_arrow(project / store.PREDICTIONS)[0].to_pydict()
    rows = zip(*(predictions[name] for name in ("sequence", "label", "predicted")), strict=True)
    new = [(gold, said) for n, gold, said in rows if n >= 2]
    without = metrics["overlap"]["without"]
    assert without["token_error"] == sum(a != b for a, b in new) / 3 > metrics["token_error"]
    assert without["f1"] < metrics["f1"] and without["sequence_error"] == 1.0


def test_the_report_does_not_say_that_they_were_not_seen(project):
    page = (project / store.REPORT).read_text()
    assert "it had not seen" not in page
    assert "tested on 4 sequences of which 2 sequences (50.0%) also stand in the training data. Without them:" in page


def test_both_decoders_stand_in_metrics_and_report(project):
    found = store.read_json(project / store.METRICS)["decoders"]
    assert found["used"] == "viterbi" and found["part"] == "test"  # there are no development data
    whole = store.read_json(project / store.METRICS)
    assert {key: found["viterbi"][key] for key in ("token_error", "sequence_error", "f1")} == {
        key: whole[key] for key in ("token_error", "sequence_error", "f1")
    }
    assert "Suits it" in (project / store.REPORT).read_text()


def test_nothing_seen_and_everything_seen():
    gold, said, offsets = list("ABAB"), list("ABBB"), np.array([0, 2, 4])
    none, every = (second_looks.overlap(np.full(2, seen), gold, said, offsets, FIGURES) for seen in (0, 1))
    assert none == {"sequences": 0, "share": 0.0} and every == {"sequences": 2, "share": 1.0}
    assert words.newness({"overlap": none}, NOUNS) == words.newness({}, NOUNS) == "it had not seen."
    assert words.newness({"overlap": every}, NOUNS).endswith("it had seen all of them.")


def test_the_decoder_that_suits_a_measure():
    row = {"token_error": 0.2, "sequence_error": 0.5, "f1": 0.6}
    metrics = {"decoders": {"viterbi": row, "posterior": row | {"token_error": 0.1, "f1": 0.5}, "used": "viterbi",
                            "part": "dev"}}  # fmt: skip
    page = words.decoders(metrics, NOUNS)
    cells = page.replace("</td>", "|").replace("</th>", "|")
    for name, suits in (("Label error", "posterior"), ("Sequence error", "either"), ("F1", "viterbi")):
        after = cells[cells.index(name) :].split("|")
        assert suits in after[3]
    assert "development data; this model uses viterbi" in page and words.decoders({}, NOUNS) is None
