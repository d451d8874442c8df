"""`espalier cv`: folds that are the same again, figures that a run on the same data has, a project left as it was."""

import json
from statistics import fmean, stdev

import numpy as np
import pytest
import yaml
from stage_runs import run_stages, small_params, tree

from espalier.tasks import store
from espalier.tasks.ingest import corpus_of
from espalier.tasks.params import Ingest, load_params
from espalier.tasks.sources import in_one_block
from espalier.tasks.sources.files import reading, tokens_of
from espalier.tasks.training import cross_validation
from espalier.tasks.training.cross_validation import fold_numbers


@pytest.fixture
def project(tmp_path):
    """A file of labelled sequences with a list among the templates, and parameters that read it."""
    random = np.random.default_rng(0)
    words = [random.integers(0, 4, random.integers(2, 6)) for _ in range(90)]
    rows = ["\n".join(f"{'abcd'[x]} {'XY'[x // 2]}" for x in word) for word in words]
    (tmp_path / "data.conll").write_text("\n\n".join(rows) + "\n")
    (tmp_path / "list.txt").write_text("a\n")
    params = {
        "ingest": {"source": "files", "path": "data.conll", "dev_share": 0.2},
        "template": {"lines": ["U:%x[0,0]", 'Ul:%l[0,0,"list.txt"]', "B"]},
        "train": {"max_iterations": 3},
    }
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    return tmp_path


def test_folds_and_their_mean(espalier, project):
    before = tree(project)
    code, out, err = espalier("-C", project, "cv", "--folds", "3", "--json", "--quiet")
    found = json.loads(out)
    assert (code, err) == (0, "") and [row["fold"] for row in found["folds"]] == [1, 2, 3]
    assert sum(row["sequences"] for row in found["folds"]) == 90 and found["measure"] == "token_error"
    errors = [row["token_error"] for row in found["folds"]]
    assert found["mean"]["token_error"] == fmean(errors) and found["spread"]["token_error"] == stdev(errors)
    assert tree(project) == before and not (project / ".espalier" / "cv").exists()
    assert espalier("-C", project, "cv", "--folds", "3", "--json", "--quiet")[1] == out
    assert espalier("-C", project, "cv", "--folds", "3", "--json", "--quiet", "--seed", "1")[1] != out


def test_a_fold_has_the_figures_of_a_run_on_the_same_data(espalier, project, tmp_path_factory):
    """The oracle: the sequences of a fold written to a test file, the others to a training file, and the stages run."""
    params = load_params(project / "params.yaml")
    tokens = tokens_of([project / "data.conll"], reading(params.ingest), True)
    numbers = fold_numbers(in_one_block(tokens), 3, 0)[tokens["sequence"].to_numpy()]
    other = tmp_path_factory.mktemp("run")
    (other / "list.txt").write_text("a\n")
    for name, chosen in (("train", numbers != 1), ("test", numbers == 1)):
        groups = tokens.filter(chosen).group_by("sequence", maintain_order=True)
        rows = ["\n".join(f"{x} {y}" for x, y in group.select("x0", "label").iter_rows()) for _, group in groups]
        (other / f"{name}.conll").write_text("\n\n".join(rows) + "\n")
    params.ingest.path, params.ingest.test_path = "train.conll", "test.conll"
    run_stages(other, params, "ingest", "template", "weigh", "train", "evaluate")
    metrics = store.read_metrics(other)
    row = json.loads(espalier("-C", project, "cv", "--folds", "3", "--json", "--quiet")[1])["folds"][1]
    assert row["token_error"] == metrics["token_error"] and row["log_loss"] == metrics["log_loss"]
    assert row["sequences"] == metrics["test_sequences"] and row["train_sequences"] == metrics["train_sequences"]


def test_what_is_printed_for_people(espalier, project):
    code, out, err = espalier("-C", project, "cv", "--folds", "2", "--set", "ingest.test_path=data.conll")
    lines = out.splitlines()
    assert code == 0 and [line.split()[0] for line in lines[:5]] == ["fold", "1", "2", "mean", "spread"]
    assert lines[5].endswith("(mean and standard deviation of 2 folds, seed 0)")
    assert "cv        ingest.test_path is left alone" in err and "cv        fold 2 of 2: token error " in err


def test_a_built_in_source_with_clusters(espalier, tmp_path):
    params = small_params()
    params.train.max_iterations = 3
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params.as_dict()))
    code, out, _ = espalier("-C", tmp_path, "cv", "--folds", "2", "--json")
    found = json.loads(out)
    assert code == 0 and sum(row["sequences"] for row in found["folds"]) == 180  # it has parts of its own
    assert all(row["train_sequences"] == 180 - row["sequences"] for row in found["folds"])


# ---- folds


def tokens(*words):
    import polars as pl

    rows = [(i, letter, label) for i, word in enumerate(words) for letter, label in word]
    return in_one_block(pl.DataFrame(rows, {"sequence": pl.Int32, "x0": pl.String, "label": pl.String}, orient="row"))


def test_equal_inputs_are_in_one_fold_and_partial_labels_in_none():
    words = [[("a", "X")], [("b", "X")], [("a", "Y")], [("c", "X")], [("d", "")], [("e", "X")], [("b", "X")]]
    for seed in range(5):
        found = fold_numbers(tokens(*words), 2, seed)
        assert found[4] == -1 and found[0] == found[2] and found[1] == found[6]
        distinct = [found[i] for i in (0, 1, 3, 5)]
        assert sorted(distinct) == [0, 0, 1, 1]


def test_blocks_change_nothing(tmp_path):
    corpus, _ = corpus_of(tmp_path, Ingest(source="simulated", limit=50))
    whole = fold_numbers(corpus.parts["train"], 4, 0)
    table = corpus.whole("train")
    cut = [table.filter(table["sequence"] < 20), table.filter(table["sequence"] >= 20)]
    assert np.array_equal(fold_numbers(lambda: cut, 4, 0), whole)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--folds", "1"], "--folds is 1: expected at least 2"),
        (["--folds", "500"], "--folds is 500 and there are "),
        (["--set", "ingest.path=none.conll"], "ingest.path is 'none.conll': there is no such file"),
        (["--set", "template.lines=['U:%x[0,7]']"], "U:%x[0,7]"),
    ],
)
def test_what_is_refused_leaves_nothing(espalier, project, arguments, expected):
    before = tree(project)
    code, out, err = espalier("-C", project, "cv", "--quiet", *arguments)
    assert (code, out) == (1, "") and expected in err
    assert tree(project) == before and not (project / ".espalier" / "cv").exists()


def test_an_interrupt_leaves_nothing(espalier, project, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setitem(cross_validation.STAGES, "train", interrupt)
    before = tree(project)
    assert espalier("-C", project, "cv", "--quiet")[0] == 130
    assert tree(project) == before and not (project / ".espalier" / "cv").exists()
