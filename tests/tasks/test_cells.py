"""Finished cells are kept, and computed again when anything they depend on has changed."""

import importlib
import sys

import pytest

from espalier.engine.errors import EspalierError
from espalier.tasks import code_hash
from espalier.tasks.experiments import Cell, Settings, check_corpora, experiment
from espalier.tasks.experiments.cells import cell_hash, check_keys, compute, finished, place

CALLS = []


def double(value, file=None):
    CALLS.append(value)
    return {"twice": 2 * value}


@pytest.fixture(autouse=True)
def no_calls():
    CALLS.clear()


def test_a_finished_cell_is_found_again(tmp_path):
    cell = Cell("a", double, {"value": 4})
    assert finished(tmp_path, "e", cell) is None
    assert compute(tmp_path, "e", cell) == {"twice": 8}
    assert finished(tmp_path, "e", cell) == {"twice": 8} and CALLS == [4]
    assert [path.name for path in place(tmp_path, "e", cell).parent.iterdir()] == ["a.json"]


def test_other_arguments_or_another_function_are_another_cell(tmp_path):
    compute(tmp_path, "e", Cell("a", double, {"value": 4}))
    assert finished(tmp_path, "e", Cell("a", double, {"value": 5})) is None
    assert finished(tmp_path, "e", Cell("a", print, {"value": 4})._replace(function=test_other_arguments)) is None
    assert finished(tmp_path, "other", Cell("a", double, {"value": 4})) is None


def test_other_arguments():
    """Only a function of another name, for the test above."""


def test_another_file_is_another_cell(tmp_path):
    path = tmp_path / "data"
    path.write_text("one")
    cell = Cell("a", double, {"value": 1}, {"file": path})
    compute(tmp_path, "e", cell)
    assert finished(tmp_path, "e", cell) is not None
    path.write_text("two")
    assert finished(tmp_path, "e", cell) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"hash": 1}', "null"])
def test_a_damaged_file_is_computed_again(tmp_path, text):
    cell = Cell("a", double, {"value": 4})
    compute(tmp_path, "e", cell)
    place(tmp_path, "e", cell).write_text(text)
    assert finished(tmp_path, "e", cell) is None


def test_a_cell_that_fails_keeps_nothing(tmp_path):
    cell = Cell("a", double, {"value": None})
    with pytest.raises(TypeError):
        compute(tmp_path, "e", cell)
    assert not list(tmp_path.rglob("*.json")) and finished(tmp_path, "e", cell) is None


def test_other_code_is_another_cell(tmp_path, monkeypatch):
    """The module of the function, and what it imports of ours."""
    module = tmp_path / "made_up_experiment.py"
    module.write_text("def work():\n    from espalier.tasks.weigh import jensen_shannon\n    return {}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = importlib.import_module("made_up_experiment")
    try:
        closure = code_hash.modules_of("made_up_experiment")
        assert {"made_up_experiment", "espalier.tasks.weigh", "espalier.tasks.store", "espalier.tasks.params"} <= set(
            closure
        )
        assert not {"espalier.tasks.report", "espalier.tasks.weigh.jensen_shannon"} & set(closure)
        before = cell_hash(Cell("a", made.work, {}))
        code_hash.code_hash.cache_clear()
        assert cell_hash(Cell("a", made.work, {})) == before
        module.write_text(module.read_text() + "# changed\n")
        code_hash.code_hash.cache_clear()
        assert cell_hash(Cell("a", made.work, {})) != before
    finally:
        del sys.modules["made_up_experiment"]


def test_the_engine_is_part_of_the_code(monkeypatch):
    before = cell_hash(Cell("a", double, {"value": 1}))
    monkeypatch.setattr(code_hash, "source_hash", lambda: "other")
    code_hash.code_hash.cache_clear()
    assert cell_hash(Cell("a", double, {"value": 1})) != before
    code_hash.code_hash.cache_clear()


def test_a_change_in_the_page_keeps_the_simulation():
    """What draws is not what computes."""
    cell, module = experiment("semisup").cells(Settings())[0], "espalier.tasks.experiments.semisup"
    assert cell.function.__module__ == module
    drawing = {"espalier.tasks.pages.page", "espalier.tasks.pages.charts", f"{module}_report"}
    assert not drawing & set(code_hash.modules_of(module))


def test_two_cells_of_one_key_are_refused():
    with pytest.raises(EspalierError, match="two cells have the key 'a': expected a key of its own"):
        check_keys([Cell("a", double, {}), Cell("b", double, {}), Cell("a", double, {})])


def test_an_unknown_experiment_is_refused_with_the_list():
    with pytest.raises(EspalierError, match="no experiment 'semisub': did you mean 'semisup'. known are semisup, spam"):
        experiment("semisub")
    with pytest.raises(EspalierError, match="no experiment 'xyz': known are .* and all"):
        experiment("xyz")


def test_a_missing_corpus_is_named(tmp_path):
    with pytest.raises(EspalierError, match="bow.svm.gz: there is no such file, which experiment spam reads; name the"):
        check_corpora(experiment("spam"), Settings(data=tmp_path))
