"""`espalier tag --abstain` in every format, and the figures of evaluation and report."""

import json

import numpy as np
import pytest
from stage_runs import run_stages, small_params

from espalier import CRF
from espalier.engine.errors import EspalierError
from espalier.engine.families import load
from espalier.tasks.answering.asked import Asked
from espalier.tasks.answering.stream import answers
from espalier.tasks.evaluate import abstention_figures
from espalier.tasks.report.abstention import abstention
from espalier.tasks.report.words import Nouns

X = [["Ana", "Paz", "va"], ["Eva", "va"], ["va", "Ana"], ["Paz", "va"]] * 3
Y = [["B-PER", "I-PER", "O"], ["B-PER", "O"], ["O", "B-PER"], ["O", "O"]] * 3
COLUMNS = b"Ana\nPaz\nva\n\nPaz\nva\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "a.model"
    rows = [[[word] for word in row] for row in X]
    CRF(["U:%x[0,0]", "U-1:%x[-1,0]", "B"], rho1=0.0, rho2=1.0).fit(rows, Y).save(path)
    return load(path)


def said(model, data, **asked):
    return b"".join(answers(model, iter([data]), "-", Asked(**asked))).decode()


def expected(model, limit):
    """The labels of the columns with None where the class leaves them out."""
    crf = CRF()
    crf.model_ = model
    return crf.predict([[["Ana"], ["Paz"], ["va"]], [["Paz"], ["va"]]], abstain=limit)


@pytest.mark.parametrize("limit", [0.0, 0.6, 0.9, 1.0])
def test_columns_and_json(model, limit):
    rows = expected(model, limit)
    labels = [line.split("\t") for line in said(model, COLUMNS, abstain=limit).split("\n") if line]
    assert [label for _, label in labels] == [label or "?" for row in rows for label in row]
    other = [line.split("\t")[1] for line in said(model, COLUMNS, abstain=limit, mark="--").split("\n") if line]
    assert other == [label or "--" for row in rows for label in row]
    lines = said(model, COLUMNS, abstain=limit, format="jsonl").splitlines()
    assert [json.loads(line)["labels"] for line in lines] == rows
    scored = said(model, COLUMNS, abstain=limit, scores=True).splitlines()
    assert [line.split("\t")[1] for line in scored if line and not line.startswith("#")] == [
        label or "?" for row in rows for label in row
    ]


def test_some_are_left_out_and_some_stay(model):
    found = {label for row in expected(model, 0.6) for label in row}
    assert None in found and len(found) > 1


def test_json_lines_in_words_and_label_lines(model):
    objects = b'{"tokens": ["Ana", "Paz", "va"], "id": 7}\n{"tokens": ["Paz", "va"]}\n'
    found = [json.loads(line) for line in said(model, objects, source="jsonl", abstain=0.6).splitlines()]
    assert [one["labels"] for one in found] == expected(model, 0.6) and found[0]["id"] == 7
    words = said(model, b"AP\n", words=True, abstain=1.0)
    assert words == "AP\t? ?\n"
    attributes = said(model, b"\tAna\n\tPaz\n\n", source="crfsuite", abstain=1.0)
    assert set(attributes.split()) == {"?"}


def test_the_scheme_that_labels_are_answered_in(model):
    found = [line.split("\t")[1] for line in said(model, COLUMNS, abstain=0.6, labels="bioes").split("\n") if line]
    marks = [label is None for row in expected(model, 0.6) for label in row]
    assert [label == "?" for label in found] == marks


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"abstain": 1.5}, "--abstain is 1.5: expected a probability from 0 to 1, such as 0.9"),
        ({"abstain": -1.0}, "--abstain is -1.0: expected a probability"),
        ({"abstain": float("nan")}, "--abstain is nan: expected a probability"),
        ({"abstain": 0.5, "nbest": 2}, "leave out --abstain or --nbest"),
        ({"abstain": 0.5, "mark": ""}, "the mark '' could not be read back: expected a text without blanks"),
        ({"abstain": 0.5, "mark": "a b"}, "the mark 'a b' could not be read back"),
        ({"abstain": 0.5, "mark": "x\ty"}, "could not be read back"),
        ({"abstain": 0.5, "mark": "x;", "separator": ";"}, "the mark 'x;' could not be read back"),
        ({"abstain": 0.5, "mark": "O"}, "'O' is a label of this model and cannot stand for one that is left out"),
        ({"abstain": 0.5, "mark": "S-PER", "labels": "bioes"}, "'S-PER' is a label of this model"),
    ],
)
def test_refusals(model, asked, message):
    with pytest.raises(EspalierError) as refused:
        said(model, COLUMNS, **asked)
    assert message in str(refused.value)


def test_the_stages_write_it_and_the_report_shows_it(project):
    metrics = json.loads((project / "reports/metrics.json").read_text())
    found = metrics["abstention"]
    assert found["of"] == "tokens" and found["rows"][0]["coverage"] == 1.0
    assert found["rows"][0]["accuracy"] == pytest.approx(1 - metrics["token_error"])
    run_stages(project, small_params(), "report")
    page = (project / "reports/report.html").read_text(encoding="utf-8")
    assert 'id="abstention"' in page and "What is left of the" in page


def test_entities_in_the_report():
    class F1Measure:
        name = "f1"

    figures = abstention_figures(F1Measure, ["B-X", "O"], ["B-X", "O"], np.array([0.9, 0.4]), np.array([0, 2]))
    assert figures["of"] == "entities"
    markup = str(abstention({"abstention": figures}, Nouns()))
    assert "Precision" in markup and "An entity is as sure" in markup and "What is left of the entities" in markup
    assert "<code>espalier tag --abstain LIMIT</code>" in markup and "`" not in markup
    assert abstention({}, Nouns()) is None
