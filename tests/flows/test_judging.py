"""`espalier evaluate` and `espalier compare`: figures by hand, files in other schemes and formats, what is refused."""

import json

import numpy as np
import pytest
import seqeval.metrics

from espalier import CRF

SENTENCES = [["Ann", "saw", "Bob", "Lee"], ["Rome", "saw", "Ann"], ["Lee", "saw", "Rome"]]
LABELS = [["B-PER", "O", "B-PER", "I-PER"], ["B-LOC", "O", "B-PER"], ["B-PER", "O", "B-LOC"]]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with a model that has learnt the sentences, one that knows no labels but O and persons, and one of
    tokens without a scheme."""
    folder = tmp_path_factory.mktemp("models")
    options = {"templates": ["U:%x[0,0]", "U-1:%x[-1,0]", "B"], "rho1": 0.01, "verbose": False}
    CRF(**options).fit(SENTENCES * 3, LABELS * 3).save(folder / "good.model")
    persons = [[label if label.endswith("PER") else "O" for label in row] for row in LABELS]
    CRF(**options).fit(SENTENCES * 3, persons * 3).save(folder / "persons.model")
    CRF(**options).fit(SENTENCES, [["N", "V", "N", "N"], ["N", "V", "N"], ["N", "V", "N"]]).save(folder / "pos.model")
    return folder


@pytest.fixture
def espalier(espalier, models, tmp_path, monkeypatch):
    """Run a command in a folder with test.conll: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    rows = ["\n".join(map("\t".join, zip(*pair, strict=True))) for pair in zip(SENTENCES, LABELS, strict=True)]
    (tmp_path / "test.conll").write_text("\n\n".join(rows) + "\n", encoding="utf-8")

    return lambda *arguments: espalier(*(models / name if name.endswith(".model") else name for name in arguments))


def test_a_model_that_is_right(espalier):
    code, out, err = espalier("evaluate", "good.model", "test.conll")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "test.conll: 3 sequences, 10 tokens, labels in iob2"
    assert lines[1].startswith("F1 of entities 100.00% (100.00% to 100.00%), label error 0.00%")
    assert "PER        100.00  100.00  100.00        4          4      4" in lines


def test_figures_are_those_that_one_counts_by_hand(espalier):
    code, out, _ = espalier("evaluate", "persons.model", "test.conll", "--json")
    found = json.loads(out)
    assert code == 0 and found["measure"] == "f1" and found["unknown_labels"] == ["B-LOC"]
    assert found["token_error"] == pytest.approx(2 / 10) and found["sequence_error"] == pytest.approx(2 / 3)
    assert found["recall"] == pytest.approx(4 / 6) and found["precision"] == 1.0
    said = [[label if label.endswith("PER") else "O" for label in row] for row in LABELS]
    assert found["f1"] == pytest.approx(seqeval.metrics.f1_score(LABELS, said)) and found["f1_low"] <= found["f1"]
    row = next(row for row in found["labels"] if row["label"] == "O")
    assert row == {"label": "O", "count": 3, "predicted": 5, "correct": 3, "precision": 0.6, "recall": 1.0, "f1": 0.75}
    assert espalier("evaluate", "persons.model", "test.conll")[1].count("each of them is an error") == 1


@pytest.mark.parametrize("scheme", ["iob1", "bioes", "bilou"])
def test_a_file_in_another_scheme_and_format(espalier, scheme):
    assert espalier("convert", "test.conll", "other.jsonl", "--scheme", scheme)[0] == 0
    found = json.loads(espalier("evaluate", "persons.model", "other.jsonl", "--json")[1])
    assert found["f1"] == pytest.approx(0.8) and found["scheme"] in (scheme, "iob2")
    if scheme != "iob1":  # their letters tell
        assert found["token_error"] == pytest.approx(0.2)


def test_a_task_without_entities(espalier, tmp_path):
    (tmp_path / "pos.conll").write_text("Ann N\nsaw V\nLee V\n")
    found = json.loads(espalier("evaluate", "pos.model", "pos.conll", "--json")[1])
    assert found["measure"] == "token_error" and "f1" not in found and found["token_error"] == pytest.approx(1 / 3)
    assert "entity" not in espalier("evaluate", "pos.model", "pos.conll")[1]


def test_sequences_that_are_partly_labelled_are_left_out_and_counted(espalier, tmp_path):
    (tmp_path / "some.conll").write_text("Ann B-PER\n\nsaw ?\nLee B-PER\n")
    code, out, _ = espalier("evaluate", "good.model", "some.conll", "--unknown", "?")
    assert code == 0 and "1 sequences, 1 tokens" in out and "\n1 sequences are left out" in out
    (tmp_path / "none.conll").write_text("Ann ?\n")
    code, _, err = espalier("evaluate", "good.model", "none.conll", "--unknown", "?")
    assert code == 1 and "none.conll: no sequence is fully labelled" in err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["evaluate", "nowhere.model", "test.conll"], "nowhere.model: there is no such model"),
        (["evaluate", "good.model", "nowhere.conll"], "nowhere.conll: there is no such file"),
        (["evaluate", "good.model", "empty.conll"], "empty.conll: holds no token"),
        (["evaluate", "good.model", "words.conll"], "words.conll has"),
        (["compare", "good.model", "persons.model", "test.conll", "--rounds", "3"], "--rounds is 3: expected at least"),
    ],
)
def test_what_is_refused(espalier, tmp_path, arguments, expected):
    (tmp_path / "empty.conll").write_text("\n")
    (tmp_path / "words.conll").write_text("Ann\n")
    code, out, err = espalier(*arguments)
    assert (code, out) == (1, "") and expected in err


def test_two_models_and_their_difference(espalier):
    code, out, err = espalier("compare", "persons.model", "good.model", "test.conll", "--json", "--rounds", "200")
    found = json.loads(out)
    assert (code, err) == (0, "") and found["first"]["f1"] == pytest.approx(0.8) and found["second"]["f1"] == 1.0
    by_f1, by_token = found["differences"]["f1"], found["differences"]["token_error"]
    assert by_f1["value"] == pytest.approx(0.2) and by_f1["low"] <= 0.2 <= by_f1["high"]
    assert by_token["value"] == pytest.approx(-0.2) and by_token["better"] in ("second", None)
    assert found["agreement"] == pytest.approx(0.8)
    turned = json.loads(espalier("compare", "good.model", "persons.model", "test.conll", "--json")[1])
    assert turned["differences"]["f1"]["value"] == pytest.approx(-0.2)
    assert espalier("compare", "persons.model", "good.model", "test.conll", "--json", "--rounds", "200")[1] == out


def test_a_sure_difference_and_none_are_told(espalier, tmp_path):
    text = (tmp_path / "test.conll").read_text()
    (tmp_path / "many.conll").write_text((text + "\n") * 20)
    out = espalier("compare", "persons.model", "good.model", "many.conll")[1]
    assert "B is better by F1 of entities; they agree on 80.00% of the tokens" in out and "LOC" in out
    out = espalier("compare", "good.model", "persons.model", "many.conll")[1]
    assert "A is better by F1 of entities" in out
    out = espalier("compare", "good.model", "good.model", "many.conll")[1]
    assert "no difference that is more than chance" in out and "agree on 100.00%" in out and "LOC" not in out


def test_models_of_other_columns_are_not_compared(espalier, models):
    from espalier.engine.families import load

    for name, inputs in (("one", 1), ("two", 2)):
        model = load(models / "good.model")
        model.info["reading"] = {"inputs": inputs}
        model.save(models / f"{name}.model")
    code, _, err = espalier("compare", "one.model", "two.model", "test.conll")
    assert code == 1 and "the first model reads 1 input columns, the second 2" in err


def test_a_model_of_the_pipeline_reads_as_its_files_were_written(espalier, models, tmp_path):
    """Separator, label column and scheme of the training files are in the model file."""
    from espalier.engine.families import load

    model = load(models / "good.model")
    told = {"format": "conll", "separator": ",", "label_column": 0, "inputs": 1, "scheme": "bioes", "docstart": None}
    model.info["reading"] = told
    model.save(models / "own.model")
    (tmp_path / "own.txt").write_text("S-PER,Ann\nO,saw\nB-PER,Bob\nE-PER,Lee\n")
    found = json.loads(espalier("evaluate", "own.model", "own.txt", "--json")[1])
    assert found["token_error"] == 0.0 and found["f1"] == 1.0
    assert np.isclose(json.loads(espalier("evaluate", "own.model", "test.conll", "--json", "--separator", "\t",
                                          "--label-column", "-1")[1])["token_error"], 0.0)  # fmt: skip
