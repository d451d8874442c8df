"""Cases that must not break: what is right, what is wrong, and files that are not what they should be."""

import pytest
from stage_runs import small_params

from espalier.engine.errors import EspalierError
from espalier.engine.families import load as load_model
from espalier.tasks import store
from espalier.tasks.answering.tagging import tag
from espalier.tasks.judging import cases


@pytest.fixture(scope="module")
def model(finished_project):
    return load_model(finished_project / store.CANDIDATE)


@pytest.fixture(scope="module")
def known(finished_project, model):
    """The first test sequences as the model labels them: [(tokens, labels)]."""
    tokens = store.read_tokens(finished_project, "test")[0]
    offsets = store.sequence_offsets(tokens["sequence"].to_numpy())[:6]
    inputs, said = tokens["x0"].to_list(), tag(model, tokens)
    return [(inputs[a:b], said[a:b]) for a, b in zip(offsets, offsets[1:], strict=False)]


def columns(pairs):
    return "\n".join("".join(f"{x} {y}\n" for x, y in zip(*pair, strict=True)) for pair in pairs)


def check(tmp_path, model, text, name="cases.conll", **ingest):
    (tmp_path / name).write_text(text, encoding="utf-8")
    params = small_params()
    params.promote.cases = name
    for key, value in ingest.items():
        setattr(params.ingest, key, value)
    return cases.check_cases(model, cases.read_cases(tmp_path, params, 1, model.labels))


def other(label):
    return "zzz" + label


def test_cases_that_are_right(tmp_path, model, known):
    assert check(tmp_path, model, columns(known)) == []


def test_a_case_that_is_wrong_is_told_with_its_line_and_both_labellings(tmp_path, model, known):
    tokens, labels = known[1]
    wanted = [*labels[:-1], other(labels[-1])]
    (found,) = check(tmp_path, model, columns([known[0], (tokens, wanted)]))
    assert found == {"line": len(known[0][0]) + 2, "tokens": tokens, "expected": wanted, "said": labels}


def test_any_label_will_do_where_the_case_does_not_care(tmp_path, model, known):
    tokens, labels = known[1]
    assert check(tmp_path, model, columns([(tokens, ["_", *labels[1:]])])) == []
    (found,) = check(tmp_path, model, columns([(tokens, ["_", *map(other, labels[1:])])]))
    assert found["expected"][0] == cases.ANY
    wrong = check(tmp_path, model, columns([(tokens, ["?", *labels[1:]])]), unknown="?")
    assert wrong == [], "the mark is that of the training data"


def test_a_mark_that_is_a_label_of_the_model_is_that_label(tmp_path):
    for name, labels, marks in (("a", ["_", "X|Y"], (None, None)), ("b", ["A"], ("_", "|"))):
        (tmp_path / f"{name}.conll").write_text("t _\n\nt A|B\n")
        params = small_params()
        params.promote.cases = f"{name}.conll"
        found = cases.read_cases(tmp_path, params, 1, labels)["label"].to_list()
        assert found == (["_", "A|B"] if marks == (None, None) else ["", "A\x1fB"])


def test_one_of_several_labels_will_do(tmp_path, model, known):
    tokens, labels = known[0]
    assert check(tmp_path, model, columns([(tokens, [f"zzz|{labels[0]}", *labels[1:]])])) == []
    assert len(check(tmp_path, model, columns([(tokens, ["zzz|yyy", *labels[1:]])]))) == 1


def test_json_lines_and_names_without_a_known_ending(tmp_path, model, known):
    import json

    text = "".join(json.dumps({"tokens": tokens, "labels": labels}) + "\n" for tokens, labels in known)
    assert check(tmp_path, model, text, "cases.jsonl") == []
    assert check(tmp_path, model, columns(known), "must-not-break") == []


def test_files_that_are_not_what_they_should_be(tmp_path, model, known):
    params = small_params()
    params.promote.cases = "none.conll"
    with pytest.raises(EspalierError, match="promote.cases is 'none.conll': there is no such file in"):
        cases.read_cases(tmp_path, params, 1, [])
    with pytest.raises(EspalierError, match="cases.conll has 2 input columns, the training file 1: expected the same"):
        check(tmp_path, model, "a b X\n")
    with pytest.raises(EspalierError, match="cases.conll: holds no token"):
        check(tmp_path, model, "\n")
