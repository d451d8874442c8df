"""What a run leaves behind, however it ends: the history, a notification, versions in DVC and git."""

import json
import os
import signal
import subprocess
import sys

import pytest
from small_project import Background, environment, run_python, set_params, write_project

from espalier.engine.errors import EspalierError
from espalier.engine.families import load as load_model
from espalier.flows import records
from espalier.flows.pipeline import STEPS, Project, run_direct
from espalier.tasks import store
from espalier.tasks.keeping import archive, history
from espalier.tasks.progress import Progress


class Said(Progress):
    """Keeps what is said."""

    texts: list[str] = []

    def say(self, text):
        Said.texts.append(text)


def retrain(folder, *overrides):
    Said.texts = []
    said = {"record": Said()}  # what is said of the record; stages have words of their own
    return run_direct(Project.open(folder, None, list(overrides)), lambda name: said.get(name, Progress()))


def git(folder, *arguments):
    identity = {f"GIT_{who}_{what}": "a@a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(["git", *arguments], cwd=folder, env=environment(**identity), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# ---- the history of a project


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    """A project after a run that was promoted, one that was refused, one that failed, and what was told of them."""
    folder = write_project(tmp_path_factory.mktemp("past") / "project")
    set_params(folder, notify={"command": f"cat >> {folder}/told.jsonl; echo >> {folder}/told.jsonl"})
    retrain(folder)
    set_params(folder, promote={"cases": "cases.conll"})
    (folder / "cases.conll").write_text("v nothing\n", encoding="utf-8")
    retrain(folder, "crf.rho1=2")
    with pytest.raises(EspalierError, match="missing tab"):
        (folder / "ragged.conll").write_text("a b X\nc X\n", encoding="utf-8")
        retrain(folder, "ingest.source=conll", "ingest.path=ragged.conll")
    return folder


def test_every_run_has_a_line_however_it_ended(past):
    first, refused, failed = history.read(past)
    assert [row["outcome"] for row in (first, refused, failed)] == ["promoted", "refused", "failed"]
    assert set(first["seconds"]) == set(STEPS) and first["iterations"] <= 15 and first["active"] > 0
    assert refused["changed"] == {"promote.cases": [None, "cases.conll"], "crf.rho1": [0.5, 2.0]}
    assert refused["active"] < first["active"] and "1 of 1 cases that must not break" in refused["reason"]
    assert failed["step"] == "ingest" and "check for a missing tab" in failed["error"] and failed["seconds"] == {}
    assert "token_error" not in failed and not records.marker(past).exists()


def test_refusal_and_failure_are_told_and_a_promotion_is_not(past):
    told = [json.loads(line) for line in (past / "told.jsonl").read_text(encoding="utf-8").splitlines() if line]
    _, refused, failed = history.read(past)
    assert [event["event"] for event in told] == ["refused", "failed"]
    assert told[0]["reasons"] and told[0]["id"] == refused["id"] and told[0]["project"] == str(past)
    assert told[1]["error"] == failed["error"] and told[1]["step"] == "ingest"


def test_the_history_on_the_command_line(past, capsys):
    from espalier.flows.cli import main

    assert main(["-C", str(past), "history", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == history.read(past)
    assert main(["-C", str(past), "history", "--last", "1"]) == 0
    out = capsys.readouterr().out
    assert out == history.as_text(history.read(past)[-1:]) + "\n" and "failed" in out


def test_rollback_and_restore_on_the_command_line(past, tmp_path, capsys):
    """A refused model is forced, rolled back, and brought out of the archive again."""
    import shutil

    from espalier.flows.cli import main

    folder = tmp_path / "project"
    shutil.copytree(past, folder)
    champion, refused, _ = history.read(folder)
    command = ["-C", str(folder)]
    assert main([*command, "promote", "--force", "--reason", "it must", "--quiet"]) == 0
    assert store.file_hash(folder / store.CHAMPION) == refused["model_sha256"]
    assert capsys.readouterr().out.startswith("promoted: forced by ")
    assert main([*command, "rollback", "--reason", "it stammers", "--by", "anna"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"champion {champion['model_sha256'][:12]} again (it was {refused['model_sha256'][:12]})")
    assert store.file_hash(folder / store.CHAMPION) == champion["model_sha256"]
    forced, back = history.read(folder)[-2:]
    assert (forced["kind"], forced["outcome"]) == ("promote", "forced") and "it must" in forced["reason"]
    assert (back["kind"], back["outcome"]) == ("rollback", "rolled back")
    assert back["reason"] == "rolled back by anna: it stammers"
    assert main([*command, "rollback"]) == 1
    assert "cannot go back by 1" in capsys.readouterr().err
    assert main([*command, "restore", refused["id"][:15]]) in (0, 1)  # the second may be that of another run, too
    assert main([*command, "restore", refused["id"], "--to", str(tmp_path / "out")]) == 0
    assert store.file_hash(tmp_path / "out" / "candidate.model") == refused["model_sha256"]
    assert store.read_json(tmp_path / "out" / "metrics.json")["token_error"] == refused["token_error"]
    assert (tmp_path / "out" / "report.html").read_bytes() == (past / store.REPORT).read_bytes(), "as the run left it"
    assert main([*command, "restore", champion["id"], "--in-place"]) == 0
    assert store.file_hash(folder / store.CANDIDATE) == champion["model_sha256"]
    assert main([*command, "restore", champion["id"], "--in-place", "--to", "x"]) == 1
    assert main([*command, "restore", "nonsense"]) == 1
    assert "no retraining 'nonsense'" in capsys.readouterr().err
    for name in ("", ".", "/"):
        assert main([*command, "restore", name]) == 1
    assert "'' names no retraining" in capsys.readouterr().err


def test_a_missing_file_of_cases_is_found_before_anything_is_done(past):
    with pytest.raises(EspalierError, match="promote.cases is 'none.conll': there is no such file in"):
        Project.open(past, None, ["promote.cases=none.conll"]).check()


def test_a_history_that_cannot_be_written_harms_no_run(past, tmp_path):
    folder = write_project(tmp_path / "project")
    (folder / store.HISTORY).mkdir(parents=True)
    assert retrain(folder)["promote"]["promoted"] is True
    assert any("the history could not be recorded" in text for text in Said.texts)


def test_a_notification_that_fails_hides_no_error(tmp_path):
    folder = write_project(tmp_path / "project")
    set_params(folder, notify={"command": "exit 7"}, ingest={"source": "conll", "path": "ragged.conll"})
    (folder / "ragged.conll").write_text("a b X\nc X\n", encoding="utf-8")
    with pytest.raises(EspalierError, match="missing tab"):
        retrain(folder)
    assert "notify.command ended with code 7: it said nothing" in Said.texts


KILLED = """
import os, signal, sys
from pathlib import Path
from espalier.flows.pipeline import Project, run_direct
from espalier.tasks.progress import Progress
class Dying(Progress):
    def step(self, n=1, note=""):
        print("step", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
run_direct(Project.open(Path(".").resolve()), lambda name: Dying() if name == "train" else Progress())
"""


def test_a_run_that_was_killed_gets_its_line_from_the_next_one(tmp_path):
    folder = write_project(tmp_path / "project")
    assert run_python("-c", KILLED, cwd=folder, timeout=400).returncode == -signal.SIGKILL
    assert records.marker(folder).exists() and history.read(folder) == []
    retrain(folder)
    killed, good = history.read(folder)
    assert (killed["outcome"], killed["error"]) == ("failed", records.KILLED)
    assert good["outcome"] == "promoted" and killed["time"] <= good["time"]


LONG = """
from pathlib import Path
from espalier.flows.cli import main
import sys
sys.exit(main(["run", "--direct", "--set", "ingest.limit=20000", "--set", "train.max_iterations=100000",
               "--set", "train.tolerance=0", "--set", "weigh.clusters=0"]))
"""


def test_a_run_that_is_asked_to_end_says_so_in_the_history(tmp_path):
    folder = write_project(tmp_path / "project")
    with Background("-c", LONG, cwd=folder) as run:
        run.wait_for("train     …", 300)
        assert run.end(signal.SIGTERM) == 128 + signal.SIGTERM, run.output
    (entry,) = history.read(folder)
    assert (entry["outcome"], entry["step"]) == ("interrupted", "train") and "template" in entry["seconds"]


# ---- versions


@pytest.fixture
def versioned(tmp_path, monkeypatch):
    """A project under git and DVC with a remote, and something that the user has staged."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@a")
    folder = write_project(tmp_path / "project", with_dvc=True)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "begin")
    command = [sys.executable, "-m", "dvc", "remote", "add", "store", str(tmp_path / "remote")]
    subprocess.run(command, cwd=folder, env=environment(), check=True, capture_output=True)
    (folder / "mine.txt").write_text("staged")
    git(folder, "add", "mine.txt")
    (folder / "mine.txt").write_text("not staged")
    (folder / "other.txt").write_text("not known to git")
    return folder


def dvc(folder, *arguments):
    done = subprocess.run([sys.executable, "-m", "dvc", *arguments], cwd=folder, env=environment(), capture_output=True,
                          text=True)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_run_is_pushed_committed_and_tagged_and_comes_back_from_its_tag(versioned, tmp_path):
    set_params(versioned, version={"push": "store", "git": "tag"})
    retrain(versioned)
    (entry,) = history.read(versioned)
    assert Said.texts == [] and entry["warnings"] == []
    assert git(versioned, "tag") == entry["tag"] == f"espalier/{entry['id']}"
    committed = git(versioned, "show", "--name-only", "--format=", "HEAD").split()
    expected = {"dvc.lock", "dvc.yaml", "params.yaml", store.DECISIONS, store.HISTORY, f"{store.CHAMPION}.dvc"}
    assert expected <= set(committed) and not {"mine.txt", "other.txt"} & set(committed)
    assert git(versioned, "diff", "--cached", "--name-only") == "mine.txt", "what the user has staged stays staged"
    assert git(versioned, "show", ":mine.txt") == "staged"
    assert (versioned / "mine.txt").read_text() == "not staged"
    assert git(versioned, "status", "--porcelain", "--", *expected) == "", "nothing of it is left to commit"
    first = (versioned / store.CHAMPION).read_bytes()
    set_params(versioned, crf={"rho1": 3.0})
    retrain(versioned)
    second = history.read(versioned)[-1]
    assert second["model_sha256"] != entry["model_sha256"]
    assert git(versioned, "tag").split() == sorted([entry["tag"], second["tag"]])
    # Elsewhere, with nothing but the repository and the remote.
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(versioned), str(clone))
    git(clone, "checkout", "-q", entry["tag"])
    dvc(clone, "remote", "add", "store", str(tmp_path / "remote"))
    dvc(clone, "pull", "-q", "-r", "store")
    assert (clone / store.CHAMPION).read_bytes() == first
    assert store.read_json(clone / store.METRICS)["token_error"] == entry["token_error"]
    assert (clone / store.TOKENS.format("train")).is_file()
    Project.open(clone).run("report", Progress())
    assert (clone / store.REPORT).is_file(), "what it is made of has come along"
    assert (archive.folder(clone, entry["id"]) / "report.html").is_file()


def test_what_cannot_be_pushed_or_committed_is_a_warning_on_record(tmp_path, monkeypatch):
    folder = write_project(tmp_path / "project", with_dvc=True)
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    git(folder, "config", "user.useConfigOnly", "true")  # nobody has said who commits
    set_params(folder, version={"push": "nowhere", "git": "commit"})
    assert retrain(folder)["promote"]["promoted"] is True
    (entry,) = history.read(folder)
    assert entry["warnings"] == Said.texts and len(Said.texts) == 2
    assert "could not be pushed to 'nowhere'" in Said.texts[0] and "could not be committed to git" in Said.texts[1]
    assert git(folder, "diff", "--cached", "--name-only", "--", "models", "dvc.lock") == ""
    assert entry["outcome"] == "promoted" and archive.names(folder) == [entry["id"]]


def test_a_run_with_other_parameters_than_those_of_the_file_is_not_versioned(tmp_path):
    folder = write_project(tmp_path / "project")
    set_params(folder, version={"push": "nowhere", "git": "tag"})
    retrain(folder, "crf.rho1=3")
    (entry,) = history.read(folder)
    assert Said.texts == [] and "tag" not in entry


# ---- experiments of DVC


def numbers_of(figures):
    """What DVC shows of figures: lists are left out."""
    if not isinstance(figures, dict):
        return figures
    return {name: numbers_of(value) for name, value in figures.items() if not isinstance(value, list)}


@pytest.mark.slow
@pytest.mark.long
def test_experiments_of_dvc_run_and_are_shown(tmp_path):
    """As README says: a run with another parameter, beside the recorded state, and the table of both."""
    folder = write_project(tmp_path / "project", with_dvc=True)
    script = folder / ".venv" / "bin" / "espalier"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m espalier.flows.cli "$@"\n')
    script.chmod(0o755)
    (folder / ".gitignore").write_text(".venv\n.espalier\n")
    set_params(folder, crf={"rho1": 0.5})
    retrain(folder)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "begin")
    before = load_model(folder / store.CANDIDATE)
    dvc(folder, "exp", "run", "-q", "-n", "sparser", "-S", "crf.rho1=3")
    after = load_model(folder / store.CANDIDATE)
    assert len(after.theta) < len(before.theta)
    shown = json.loads(dvc(folder, "exp", "show", "--json"))
    rows = [experiment for row in shown for experiment in row.get("experiments") or []]
    (found,) = [row for row in rows if row["name"] == "sparser"]
    data = found["revs"][0]["data"]
    assert data["params"]["params.yaml"]["data"]["crf"]["rho1"] == 3
    measured = data["metrics"]["reports/metrics.json"]["data"]
    assert measured == numbers_of(store.read_json(folder / store.METRICS))
    dvc(folder, "exp", "apply", "sparser")
    assert "up to date" in dvc(folder, "status")
