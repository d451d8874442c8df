"""Every example says what it is and runs from a fresh clone, on data that it brings along."""

import ast
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_project import environment

from espalier.engine.families import load
from espalier.engine.labels.trees import leaves, read_trees
from espalier.tasks import store

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROJECTS = sorted(path.parent.name for path in EXAMPLES.glob("*/params.yaml"))


def kept_by_git(folder, names):
    """What runs leave in an example is no part of it."""
    return [name for name in names if name in (".espalier", "data", "models", "reports")]


@pytest.fixture(scope="module")
def make_data():
    spec = importlib.util.spec_from_file_location("make_data", EXAMPLES / "make_data.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_has_a_readme():
    assert PROJECTS == ["addresses", "ner", "references", "references-hmm", "trees"]
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for name in PROJECTS:
        text = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
        assert f"espalier -C examples/{name} run" in text and f"({name})" in index


def test_the_data_are_what_their_script_makes(make_data, tmp_path):
    make_data.main(tmp_path)
    made = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.parts[0] for path in made} == set(PROJECTS)
    for path, data in made.items():
        assert (EXAMPLES / path).read_bytes() == data, path


@pytest.mark.slow
@pytest.mark.parametrize("name", PROJECTS)
def test_an_example_runs_on_its_own_data(name, tmp_path):
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=kept_by_git)
    command = [sys.executable, "-m", "espalier.flows.cli", "-C", str(folder), "run", "--direct"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    metrics = store.read_json(folder / store.METRICS)
    assert metrics["token_error"] < 0.05 and metrics.get("bracket_f1", 1.0) > 0.9, "the made data are easy"
    assert (folder / store.CHAMPION).is_file() and (folder / store.REPORT).is_file()


@pytest.mark.slow
def test_trees_are_put_over_sentences_of_the_example(tmp_path):
    folder = tmp_path / "trees"
    shutil.copytree(EXAMPLES / "trees", folder, ignore=kept_by_git)
    command = [sys.executable, "-m", "espalier.flows.cli", "-C", str(folder)]
    options = ("--set", "pcfg.training=inside-outside")
    for more in (("run", "--direct", "--quiet", *options), ("parse", str(folder / "sentences.txt"))):
        done = subprocess.run([*command, *more], cwd=tmp_path, env=environment(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    words = [" ".join(word for _, word in leaves(tree)) for tree in read_trees(done.stdout)]
    assert words == (folder / "sentences.txt").read_text().splitlines()
    assert load(folder / store.CHAMPION).info["training"] == "inside-outside"


def test_a_bibliography_goes_to_tokens_and_back():
    spec = importlib.util.spec_from_file_location("bib", EXAMPLES / "references-hmm" / "bib.py")
    bib = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bib)
    text = (EXAMPLES / "references-hmm" / "refs.bib").read_text(encoding="utf-8")
    entries = list(bib.entries_of(text))
    assert len(entries) == 400 and list(bib.entries_of(bib.bib(bib.labelled(text)))) == entries
    assert not any(line.split()[0].endswith((",", ":")) for line in bib.labelled(text, "remove").split("\n") if line)


def cells(notebook: dict) -> list[str]:
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_cells(sources: list[str]) -> dict:
    """Run cells in one namespace, the last expression of each as a notebook would show it."""
    names: dict = {"__name__": "__main__"}
    for number, source in enumerate(sources, 1):
        tree = ast.parse(source)
        last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"cell {number}", "exec"), names)
        if last is not None:
            repr(eval(compile(last, f"cell {number}", "eval"), names))
    return names


def test_the_notebook_runs(tmp_path, monkeypatch):
    notebook = json.loads((EXAMPLES / "first_steps.ipynb").read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4 and len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook["cells"])
    monkeypatch.chdir(tmp_path)
    names = run_cells(cells(notebook))
    assert names["labels"] == ["number", "direction", "street", "kind", "place", "state", "zip"]
    assert not list(tmp_path.iterdir())
