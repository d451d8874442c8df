"""Three drivers, one table: the same bytes from `espalier run`, `espalier run --direct` and `dvc repro`."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from small_project import dvc_here

from espalier.flows.plots import PLOTS

REPOSITORY = Path(__file__).parents[2]
PARAMS = {
    "ingest": {"source": "simulated", "limit": 400},
    "template": {"lines": ["U", "*:%x[0,0]", "U-1:%x[-1,0]/%x[0,0]", "B"]},
    "weigh": {"clusters": 3},
    "train": {"max_iterations": 12},
}
SAME = ("data/tokens", "data/features", "data/weights", "models/candidate.model", "models/trace.jsonl",
        "reports/metrics.json", "reports/predictions.arrow", "reports/curves")  # fmt: skip


def environment(root: Path) -> dict[str, str]:
    """The interpreter's own commands come first; nothing of another project is inherited."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "DVC_"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])
    return env | {"PATH": path, "PYTHONPATH": str(REPOSITORY), "PREFECT_HOME": str(root / ".espalier" / "prefect")}


def call(root: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=root, env=environment(root), capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


def espalier(root: Path, *arguments: str) -> str:
    return call(root, sys.executable, "-m", "espalier.flows.cli", *arguments)


def dvc(root: Path, *arguments: str) -> str:
    return dvc_here(*arguments, cwd=root)


def make_project(root: Path) -> Path:
    """A folder under git and DVC with the repository's DVC settings and small parameters."""
    root.mkdir()
    (root / "params.yaml").write_text(yaml.safe_dump(PARAMS))
    call(root, "git", "init", "-q")
    dvc(root, "init", "-q")
    for name in ("config", "plots", "vega"):
        source, target = REPOSITORY / ".dvc" / name, root / ".dvc" / name
        shutil.copytree(source, target, dirs_exist_ok=True) if source.is_dir() else shutil.copy(source, target)
    bin_folder = root / "bin"  # `espalier` of this checkout, wherever the tests run
    bin_folder.mkdir()
    script = bin_folder / "espalier"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m espalier.flows.cli "$@"\n')
    script.chmod(0o755)
    return root


def hashes(root: Path) -> dict[str, str]:
    files = [
        p for name in SAME for p in ([root / name] if (root / name).is_file() else sorted((root / name).rglob("*")))
    ]
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files if p.is_file()}


def lock(root: Path) -> dict:
    """What dvc.lock says; not of the page, which tells of the run that made it: its decision and its times."""
    found = yaml.safe_load((root / "dvc.lock").read_text())
    assert "outs" not in found["stages"]["report"]
    return found


@pytest.fixture(scope="module")
def direct(tmp_path_factory) -> Path:
    root = make_project(tmp_path_factory.mktemp("drivers") / "direct")
    espalier(root, "run", "--direct")
    return root


def test_direct_leaves_everything_and_dvc_is_clean(direct):
    assert {name for name in SAME if not (direct / name).exists()} == set()
    assert "up to date" in dvc(direct, "status")
    assert "up to date" in dvc(direct, "repro")


def test_the_report_tells_the_decision_and_the_times_of_the_run_and_no_folder(direct):
    text = (direct / "reports/report.html").read_text()
    assert "Promoted: state error" in text and "The first model: there was no champion." in text
    for name in ("ingest", "template", "weigh", "train", "evaluate", "report", "promote"):
        assert f'<th scope="row">{name}</th>' in text
    assert str(direct) not in text and str(Path.home()) not in text


def test_dvc_repro_gives_the_same_bytes(direct, tmp_path):
    root = make_project(tmp_path / "dvc")
    call(root, sys.executable, "-m", "espalier.flows.stages")
    env_path = os.pathsep.join([str(root / "bin"), os.environ.get("PATH", "")])
    done = subprocess.run([sys.executable, "-m", "dvc", "repro"], cwd=root, env=environment(root) | {"PATH": env_path},
                          capture_output=True, text=True, timeout=400)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert hashes(root) == hashes(direct)
    assert lock(root) == lock(direct)


@pytest.mark.server
def test_the_prefect_flow_gives_the_same_bytes(direct, tmp_path):
    root = make_project(tmp_path / "prefect")
    out = espalier(root, "run")
    assert hashes(root) == hashes(direct)
    assert lock(root) == lock(direct)
    assert "up to date" in dvc(root, "status")
    assert "state error" in out and "active features" in out and "report.html" in out


def test_running_again_gives_the_same_bytes_and_keeps_the_champion(direct):
    before = hashes(direct) | {"champion": hashlib.sha256((direct / "models/champion.model").read_bytes()).hexdigest()}
    recorded = (direct / "dvc.lock").read_bytes()
    espalier(direct, "run", "--direct")
    after = hashes(direct) | {"champion": hashlib.sha256((direct / "models/champion.model").read_bytes()).hexdigest()}
    assert after == before
    assert (direct / "dvc.lock").read_bytes() == recorded, "a run that changes nothing leaves git clean"
    decisions = [json.loads(line) for line in (direct / "models/decisions.jsonl").read_text().splitlines()]
    assert [d["promoted"] for d in decisions] == [True, True]
    assert "up to date" in dvc(direct, "status")


def test_other_parameters_are_not_recorded_as_the_projects_own(direct, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(direct, root)
    out = espalier(root, "run", "--direct", "--set", "crf.rho1=2")
    assert "not recorded in DVC" in out
    assert "changed outs" in dvc(root, "status")


def test_dvc_shows_metrics_and_plots(direct, tmp_path):
    told = call(direct, sys.executable, "-m", "dvc", "metrics", "show", "--json")
    shown = json.loads(told)[""]["data"]["reports/metrics.json"]["data"]
    assert {"token_error", "sequence_error", "active_unigram", "active_bigram", "objective", "stop_reason"} <= set(
        shown
    )
    page = tmp_path / "plots"
    dvc(direct, "plots", "show", "-o", str(page))
    text = (page / "index.html").read_text()
    assert "cdn." not in text and "DVC_METRIC" not in text
    for name, plot in PLOTS.items():
        drawn = text[text.index(f'"text": "{name}"') :]
        assert f'"title": "{plot["x_label"]}"' in drawn and f'"title": "{plot["y_label"]}"' in drawn, name
    curves = {name: next(iter(plot["y"].values())) for name, plot in PLOTS.items()}
    assert all(f'"field": "{column}"' in text for column in curves.values())
