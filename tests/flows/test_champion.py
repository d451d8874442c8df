"""Champion, archive and the record of both stay what they were, whatever DVC command is typed, in every clone."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_project import ROOT, dvc_here, environment, run_here, run_python, set_params, write_project

from espalier.engine.errors import EspalierError
from espalier.flows import cli
from espalier.flows.pipeline import Project, run_direct
from espalier.flows.versioning import ignored_by_git, keep_in_step
from espalier.tasks import store
from espalier.tasks.keeping import champion, history
from espalier.tasks.progress import Progress

SECONDS = 300
IDENTITY = {f"GIT_{who}_{what}": "a@a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


PATH = f"{Path(sys.executable).parent}:{environment()['PATH']}"  # where stages find the command `espalier`


def call(folder, *command):
    done = subprocess.run(command, cwd=folder, env=environment(**IDENTITY, PATH=PATH), timeout=SECONDS,
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def dvc(folder, *arguments):
    if arguments[0] == "exp":  # of its own accord in other processes, which find their way by the first one
        return call(folder, sys.executable, "-m", "dvc", *arguments)
    return dvc_here(*arguments, cwd=folder, **IDENTITY, PATH=PATH)


def espalier(folder, *arguments):
    return run_here(cli.main, *arguments, cwd=folder)


def retrain(folder, *overrides):
    return run_direct(Project.open(folder, None, list(overrides)), lambda name: Progress())


def record(folder):
    """What must never change unseen, as bytes by name."""
    place = folder / store.ARCHIVE
    kept = [path for path in place.rglob("*") if path.is_file() and path.parent != place]
    files = [folder / store.CHAMPION, folder / store.DECISIONS, folder / store.HISTORY, *kept]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def share(folder, text):
    call(folder, "git", "add", "-A")
    call(folder, "git", "commit", "-q", "-m", text)
    dvc(folder, "push", "-q")


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """Two clones and a directory as remote: one model was promoted and a worse one refused in the first clone."""
    place = tmp_path_factory.mktemp("team")
    first = write_project(place / "first", with_dvc=True)
    shutil.copy(ROOT / ".gitignore", first)  # the very one of this project
    dvc(first, "remote", "add", "-d", "storage", str(place / "storage"))
    call(first, "git", "add", "-A")
    call(first, "git", "commit", "-q", "-m", "Begin")
    retrain(first)
    (first / "cases.conll").write_text("v nothing\n", encoding="utf-8")
    set_params(first, crf={"rho1": 2.0}, promote={"cases": "cases.conll"})
    assert not retrain(first)["promote"]["promoted"]
    share(first, "Two retrainings")
    second = place / "second"
    call(place, "git", "clone", "-q", str(first), str(second))
    dvc(second, "pull", "-q")
    return first, second


def clone_of(team, place, name="clone"):
    folder = place / name
    call(place, "git", "clone", "-q", str(team[0]), str(folder))
    dvc(folder, "pull", "-q")
    return folder


def test_a_second_clone_that_pulls_has_the_same_record(team):
    first, second = (record(folder) for folder in team)
    assert first == second and len(first) > 5
    assert history.read(team[1])[0]["outcome"] == "promoted" and champion.lost(team[1]) is None


@pytest.mark.parametrize("command", [
    ("checkout",), ("checkout", "--force"), ("pull",), ("push",), ("gc", "-w", "-f"), ("repro",),
    pytest.param(("exp", "run", "-S", "crf.rho1=1"), marks=pytest.mark.long),
], ids=" ".join)  # fmt: skip
@pytest.mark.parametrize("clone", [0, 1], ids=["first", "second"])
def test_no_command_of_dvc_takes_it_away(team, clone, command):
    before = record(team[clone])
    dvc(team[clone], *command)
    assert record(team[clone]) == before


def test_one_that_is_deleted_comes_back_and_nothing_takes_its_place_meanwhile(team, tmp_path, capsys):
    folder = tmp_path / "clone"
    call(tmp_path, "git", "clone", "-q", str(team[0]), str(folder))
    told = espalier(folder, "run", "--direct", "--quiet")
    assert told.returncode == 1 and "missing, but model" in told.stderr and "dvc pull" in told.stderr
    assert "Traceback" not in told.stderr and not (folder / "data" / "tokens").exists()
    dvc(folder, "pull", "-q")
    before = record(folder)
    (folder / store.CHAMPION).unlink()
    for command in (("run", "--direct", "--quiet"), ("promote", "--quiet")):
        told = espalier(folder, *command)
        assert told.returncode == 1 and f"dvc checkout {champion.POINTER}" in told.stderr, told.stderr
        assert f"espalier rollback {champion.on_record(folder)[:12]}" in told.stderr
    assert not (folder / store.CHAMPION).exists()
    for command in (("tag", "cases.conll"), ("explain", "cases.conll"), ("inspect",)):
        assert cli.main(["-C", str(folder), *command]) == 1
        told = capsys.readouterr()
        assert "missing, but model" in told.err and told.out == ""
    assert espalier(folder, "tag", "--model", store.CANDIDATE, "cases.conll").returncode == 0
    told = espalier(folder, "doctor")
    assert told.returncode == 1 and "missing, but model" in told.stdout
    dvc(folder, "checkout", "-q", champion.POINTER)
    assert (folder / store.CHAMPION).read_bytes() == before[store.CHAMPION]
    (folder / store.CHAMPION).unlink()
    assert espalier(folder, "rollback", champion.on_record(folder)[:12]).returncode == 0
    assert (folder / store.CHAMPION).read_bytes() == before[store.CHAMPION]


def test_a_team_retrains_against_one_champion(team, tmp_path):
    """One clone promotes and shares; the other, which has only pulled from git, is told to pull the model as well."""
    mine, theirs = (clone_of(team, tmp_path, name) for name in ("mine", "theirs"))
    set_params(theirs, crf={"rho1": 0.1}, promote={"cases": None, "margin": 1.0, "label_margin": None})
    decision = retrain(theirs)["promote"]
    assert decision["promoted"] and decision["difference"] is not None  # against the champion that was pulled
    share(theirs, "A third")
    call(mine, "git", "pull", "-q", str(theirs), "HEAD")
    with pytest.raises(EspalierError, match=r"as after `git pull`; `dvc pull models/champion.model.dvc`"):
        keep_in_step(Project.open(mine))
    dvc(mine, "pull", "-q")
    assert record(mine) == record(theirs)
    again = retrain(mine)["promote"]
    assert again["difference"] == 0 and len(history.read(mine)) == 4
    assert history.read(mine)[:3] == history.read(theirs)[:3]


def test_what_hides_the_champion_from_dvc_stops_the_run_and_is_seen_by_the_doctor(team, tmp_path):
    folder = clone_of(team, tmp_path)
    assert ignored_by_git(folder) is None
    (folder / ".gitignore").write_text("/models/*\n!/models/*.dvc\n", encoding="utf-8")
    with pytest.raises(EspalierError, match="would delete the champion; name files in .gitignore"):
        retrain(folder)
    told = espalier(folder, "doctor")
    assert told.returncode == 1 and "would delete the champion" in told.stdout
    (folder / ".gitignore").write_text("*.jsonl\n", encoding="utf-8")
    assert "git ignores models/decisions.jsonl" in ignored_by_git(folder)


def test_a_promotion_whose_process_was_killed_before_dvc_knew_is_made_good(team, tmp_path):
    folder = clone_of(team, tmp_path)
    other = (folder / store.CANDIDATE).read_bytes()
    (folder / store.CHAMPION).write_bytes(other)
    project = Project.open(folder)
    with pytest.raises(EspalierError, match="records another champion"):  # of nobody knows whom
        keep_in_step(project)
    digest = store.file_hash(folder / store.CHAMPION)
    last = store.read_decisions(folder)[-1]
    assert last["model_sha256"] == digest  # the one that was refused; now as if the run had promoted it
    store.write_jsonl(folder / store.DECISIONS, [*store.read_decisions(folder)[:-1], last | {"promoted": True}])
    keep_in_step(project)
    dvc(folder, "checkout", "--force")
    assert (folder / store.CHAMPION).read_bytes() == other


def test_a_model_put_there_by_hand_is_told_of(team, tmp_path):
    folder = clone_of(team, tmp_path)
    (folder / store.CHAMPION).write_bytes((folder / store.CANDIDATE).read_bytes())
    dvc(folder, "add", "-q", store.CHAMPION)
    assert "which was promoted last" in champion.stranger(folder)
    told = espalier(folder, "doctor")
    assert told.returncode == 1 and "which was promoted last" in told.stdout


def test_only_as_many_are_tracked_as_are_kept(team, tmp_path):
    folder = clone_of(team, tmp_path)
    set_params(folder, version={"keep": 1}, crf={"rho1": 3.0})
    retrain(folder)
    pointers = {path.stem for path in (folder / store.ARCHIVE).glob("*.dvc")}
    kept = {path.name for path in (folder / store.ARCHIVE).iterdir() if path.is_dir()}
    first, _, newest = (row["id"] for row in store.read_decisions(folder))
    assert pointers == kept == {first, newest}  # the champion's and the latest


# ---- one lease for all that write


def test_a_stage_and_a_run_do_not_write_at_the_same_time(team, tmp_path, capsys):
    from espalier.flows.locks import lease

    folder = clone_of(team, tmp_path)
    before = record(folder)
    with lease(folder, "a retraining"):
        for command in (("stage", "train"), ("run", "--direct"), ("promote",), ("rollback",), ("sweep", "--direct"),
                        ("tournament", "--direct"),
                        ("restore", history.read(folder)[0]["id"], "--in-place")):  # fmt: skip
            assert cli.main(["-C", str(folder), *command]) == 1
            told = capsys.readouterr().err
            assert told.count("\n") == 1 and "being worked on (a retraining, process" in told, told
        set_params(folder, crf={"rho1": 1.0})
        told = run_python("-m", "dvc", "repro", cwd=folder, timeout=SECONDS, PATH=PATH)
        assert told.returncode != 0 and "being worked on (a retraining, process" in told.stdout + told.stderr
    assert record(folder) == before


def test_another_dvc_command_is_waited_for_or_told_of(team, tmp_path, monkeypatch):
    from espalier.flows import versioning

    folder = clone_of(team, tmp_path)
    monkeypatch.setattr(versioning, "BUSY_SECONDS", 0)
    with versioning.opened(folder) as other:
        with other.lock, pytest.raises(EspalierError, match="another DVC command is at work in this project"):
            keep_in_step(Project.open(folder))
    keep_in_step(Project.open(folder))
