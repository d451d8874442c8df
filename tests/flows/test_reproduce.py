"""Experiments as a command and as a flow: what is computed, what is kept, what is written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_experiment
from stage_runs import tree

from espalier.flows import cli, experiments
from espalier.tasks import experiments as registry
from espalier.tasks.experiments import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = {f"reports/reproduce/tiny.{kind}" for kind in ("html", "md", "json")}


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(registry, "MODULES", {"tiny": "tiny_experiment", "needy": "needy_experiment"})
    monkeypatch.setattr(experiments, "MODULES", registry.MODULES)
    tiny_experiment.CALLS.clear()
    yield
    tiny_experiment.OFFSET["value"] = 0


def run(root, name="tiny", quick=False):
    return experiments.run_direct(root, name, Settings(quick, root / "corpora"))


def test_everything_once_then_nothing(tmp_path):
    first = run(tmp_path)["tiny"]
    assert (first["cells"], first["computed"], sorted(tiny_experiment.CALLS)) == (3, 3, [0, 1, 2])
    written = tree(tmp_path / "reports")
    tiny_experiment.CALLS.clear()
    second = run(tmp_path)["tiny"]
    assert (second["cells"], second["computed"], tiny_experiment.CALLS) == (3, 0, [])
    assert tree(tmp_path / "reports") == written
    assert second | {"computed": 3} == first


def test_other_arguments_are_computed_and_those_alone(tmp_path):
    run(tmp_path, quick=True)
    assert sorted(tiny_experiment.CALLS) == [0, 1]
    assert run(tmp_path)["tiny"]["computed"] == 1 and tiny_experiment.CALLS[2:] == [2]
    tiny_experiment.OFFSET["value"] = 10
    assert run(tmp_path)["tiny"]["computed"] == 3
    assert json.loads((tmp_path / "reports/reproduce/tiny.json").read_text())["cells"]["cell1"] == {"sum": 11}


def test_what_is_written(tmp_path):
    found = run(tmp_path, quick=True)["tiny"]
    assert {str(Path(path).relative_to(tmp_path)) for path in found["paths"].values()} == PAGES
    page, text = (Path(found["paths"][kind]).read_text() for kind in ("html", "md"))
    assert "Sums &lt;script&gt;" in page and "<p>drawn</p>" in page and "&lt;b&gt;" in page and "A note." in page
    assert "short run" in page and "short run" in text
    assert "| table 1 | a sum \\| with a bar | 3 | 1 | <b> |" in text and "- A note." in text
    assert "the sum is above &lt;2&gt;" in page and ">NO<" in page
    assert "| the sum is above <2> | NO | 1 | more than 2 |" in text
    data = json.loads(Path(found["paths"]["json"]).read_text())
    assert data["checks"] == found["checks"]
    assert found["checks"] == [{"text": "the sum is above <2>", "holds": False, "ours": "1", "wanted": "more than 2"}]
    assert data["quick"] is True and data["comparisons"][0]["ours"] == "1"
    assert data["cells"] == {"cell0": {"sum": 0}, "cell1": {"sum": 1}}


def test_cells_that_were_finished_survive_a_failure(tmp_path, monkeypatch):
    cells = tiny_experiment.cells(Settings())
    broken = [*cells[:2], cells[2]._replace(arguments={"number": 13, "offset": 0})]
    bad = tiny_experiment.EXPERIMENT._replace(cells=lambda settings: broken)
    monkeypatch.setattr(tiny_experiment, "EXPERIMENT", bad)
    with pytest.raises(OSError, match="Input/output error"):
        run(tmp_path)
    assert not (tmp_path / "reports").exists()
    monkeypatch.undo()
    monkeypatch.setattr(registry, "MODULES", {"tiny": "tiny_experiment"})
    assert run(tmp_path)["tiny"]["computed"] == 1


def test_all_leaves_out_what_has_no_corpus(tmp_path):
    found = run(tmp_path, "all", quick=True)
    assert found["tiny"]["computed"] == 2
    assert found["needy"] == {"skipped": f"there is no {tmp_path / 'corpora' / 'nowhere/data.gz'}"}


def test_the_command(tmp_path, capsys):
    assert cli.main(["-C", str(tmp_path), "reproduce", "all", "--quick", "--direct", "--data", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "table 1: a sum | with a bar: 3 in the source, 1 here" in out and "needy: left out, there is no" in out
    assert f"report {tmp_path / 'reports/reproduce/tiny.html'}" in out
    assert "2 cells computed, 0 kept from before; 1 of 1 statements do not hold" in err
    assert "DOES NOT HOLD: the sum is above <2>: 1" in out


def test_the_command_with_json(tmp_path, capsys):
    arguments = ["-C", str(tmp_path), "reproduce", "tiny", "--direct", "--json", "--quiet"]
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["tiny"]["computed"] == 3 and err == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tine", "there is no experiment 'tine': did you mean 'tiny'? known are tiny, needy and all"),
        ("needy", "nowhere/data.gz: there is no such file, which experiment needy reads; name the folder of corpora"),
    ],
)
@pytest.mark.parametrize("direct", [True, False])
def test_what_cannot_be_run_is_told_before_anything_starts(tmp_path, capsys, name, text, direct):
    arguments = ["-C", str(tmp_path), "reproduce", name, "--data", str(tmp_path), "--quiet"]
    assert cli.main([*arguments, *(["--direct"] if direct else [])]) == 1
    assert text in capsys.readouterr().err
    assert not tree(tmp_path)


def test_the_folder_of_corpora(tmp_path, monkeypatch):
    monkeypatch.delenv("ESPALIER_DATA", raising=False)
    assert experiments.corpora_folder(tmp_path / "project") == tmp_path.resolve() / "shared" / "data"
    monkeypatch.setenv("ESPALIER_DATA", str(tmp_path / "named"))
    assert experiments.corpora_folder(tmp_path) == tmp_path / "named"
    assert experiments.corpora_folder(tmp_path, tmp_path / "given") == tmp_path / "given"


WITH_PREFECT = """
import json, sys
from pathlib import Path
from espalier.tasks import experiments as registry
registry.MODULES.clear()
registry.MODULES |= {"tiny": "tiny_experiment", "serial": "serial_experiment"}
from espalier.flows.run import run_reproduce
from espalier.tasks.experiments import Settings
root = Path(sys.argv[1])
runs = [run_reproduce(root, "all", Settings()) for _ in range(2)]
from prefect import get_client
with get_client(sync_client=True) as client:
    flows = [run.state.type.value for run in client.read_flow_runs()]
    artefacts = client.request("POST", "/artifacts/filter", json={}).json()
print("\\n" + json.dumps({"runs": runs, "flows": flows, "artefacts": sorted({a["key"] for a in artefacts})}))
"""


@pytest.mark.server
@pytest.mark.long
def test_the_flow(tmp_path):
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    env = {**os.environ, "PYTHONPATH": paths, "PREFECT_HOME": str(tmp_path / "prefect")}
    done = subprocess.run([sys.executable, "-c", WITH_PREFECT, tmp_path], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert [{name: one["computed"] for name, one in run.items()} for run in found["runs"]] == [
        {"tiny": 3, "serial": 3}, {"tiny": 0, "serial": 0}]  # fmt: skip
    assert found["flows"] == ["COMPLETED", "COMPLETED"] and "reproduce-tiny" in found["artefacts"]
    assert {path for path in tree(tmp_path / "reports" / "reproduce")} == {
        f"{name}.{kind}" for name in ("tiny", "serial") for kind in ("html", "md", "json")}  # fmt: skip
