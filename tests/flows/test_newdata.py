"""Runs on data that grow: files added for good, the champion pinned for a warm start, DVC content with both."""

import subprocess
import sys

import pytest
import yaml
from growing_data import growing_params, text_of, words, write_data
from small_project import environment
from stage_runs import run_stages, tree

from espalier.engine.errors import EspalierError
from espalier.engine.families import load as load_model
from espalier.flows import newdata
from espalier.flows.pipeline import Project, run_direct
from espalier.tasks import store
from espalier.tasks.params import default_yaml
from espalier.tasks.progress import Progress


class Heard(Progress):
    said: list[str] = []

    def say(self, text):
        Heard.said.append(text)


def write_project(root, with_dvc=False, **train):
    """A project whose params.yaml has comments and a champion to come."""
    write_data(root, 150, 60)
    params = growing_params(**({"max_iterations": 40, "tolerance": 1e-5} | train)).as_dict()
    lines = default_yaml().splitlines()
    (root / "params.yaml").write_text(f"{lines[0]}\n" + yaml.safe_dump(params, sort_keys=False), encoding="utf-8")
    if with_dvc:
        for command in (["git", "init", "-q"], [sys.executable, "-m", "dvc", "init", "-q"]):
            subprocess.run(command, cwd=root, env=environment(), check=True, capture_output=True)
    return root


def run(root, add=(), overrides=()):
    Heard.said.clear()
    return run_direct(Project.open(root, None, list(overrides), list(add)), lambda name: Heard())


# ---- naming files


def test_files_are_named_from_the_project_wherever_they_are_named_from(tmp_path, monkeypatch):
    root = write_project(tmp_path / "project")
    (tmp_path / "outside.conll").write_text("a C\n")
    monkeypatch.chdir(root / "raw")
    assert newdata.relative(root, ["new.conll", "raw/new.conll", "n*.conll", "../../outside.conll"]) == [
        "raw/new.conll", "raw/new.conll", "raw/n*.conll", str(tmp_path / "outside.conll")
    ]  # fmt: skip
    with pytest.raises(EspalierError, match="--add none.conll: there is no such file here or in .*project; check"):
        newdata.relative(root, ["none.conll"])


def test_what_the_parameters_name_already_is_not_added_again(tmp_path, monkeypatch):
    root = write_project(tmp_path)
    monkeypatch.chdir(root)
    project = Project.open(root, None, [], ["raw/old.conll", "raw/new.conll", "raw/new.conll"])
    assert project.added == ["raw/new.conll"] == project.params.ingest.more
    newdata.write_down(root / "params.yaml", project.params.ingest.more)
    assert Project.open(root, None, [], ["raw/new.conll"]).added == []


# ---- a retraining on more data


@pytest.fixture(scope="module")
def retrained(tmp_path_factory):
    """A project under DVC after a first run and one with a file added and a warm start; figures of both."""
    root = write_project(tmp_path_factory.mktemp("retrained"), with_dvc=True, initial="champion")
    first = run(root)
    said_first, champion = list(Heard.said), (root / store.CHAMPION).read_bytes()
    second = run(root, [str(root / "raw" / "new.conll")])
    return root, first, said_first, champion, second, list(Heard.said)


def test_an_added_file_belongs_to_the_project_from_then_on(retrained):
    root, first, _, _, second, said = retrained
    text = (root / "params.yaml").read_text(encoding="utf-8")
    assert text.startswith("# Every parameter of Espalier")
    assert yaml.safe_load(text)["ingest"]["more"] == ["raw/new.conll"]
    deps = yaml.safe_load((root / "dvc.yaml").read_text())["stages"]["ingest"]["deps"]
    assert {"raw/old.conll", "raw/new.conll"} <= set(deps)
    assert second["ingest"]["train"] > first["ingest"]["train"]
    assert "ingest.more in params.yaml now names raw/new.conll" in said


def test_the_news_are_told_and_are_figures_of_the_run(retrained):
    _, first, _, _, second, said = retrained
    assert "new_labels" not in first["template"], "there was no champion to compare with"
    assert second["template"]["new_labels"] == 1 and second["template"]["new_sequences"] > 50
    assert any(text.startswith("since the champion: 1 new label, ") and "(X)" in text for text in said)


def test_the_first_run_starts_from_zero_and_the_next_from_the_champion_of_when_it_began(retrained):
    root, first, said_first, champion, second, _ = retrained
    assert first["train"]["warm"] is False and second["train"]["warm"] is True
    assert "there is no champion to start from yet: training starts from zero" in said_first
    assert (root / store.START).read_bytes() == champion != (root / store.CANDIDATE).read_bytes()


def test_dvc_is_content_and_tracks_what_the_training_started_from(retrained):
    root = retrained[0]
    assert (root / f"{store.START}.dvc").is_file()
    assert store.START in yaml.safe_load((root / "dvc.yaml").read_text())["stages"]["train"]["deps"]
    done = subprocess.run([sys.executable, "-m", "dvc", "status"], cwd=root, env=environment(), capture_output=True,
                          text=True, check=True)  # fmt: skip
    assert "up to date" in done.stdout, done.stdout


def test_the_stage_alone_makes_the_same_bytes_although_there_is_another_champion(retrained, tmp_path):
    """As `dvc repro` would: it does not pin, so the training starts from the copy of then."""
    import shutil

    root, copy = retrained[0], tmp_path / "copy"
    shutil.copytree(root, copy)
    champion = load_model(root / store.CHAMPION)
    champion.theta *= 2
    champion.save(copy / store.CHAMPION)
    (copy / store.CANDIDATE).unlink()
    project = Project.open(copy)
    run_stages(copy, project.params, "train")
    assert (copy / store.CANDIDATE).read_bytes() == (root / store.CANDIDATE).read_bytes()


def test_a_file_that_cannot_be_read_is_not_added(tmp_path):
    root = write_project(tmp_path)
    run(root)
    (root / "raw" / "ragged.conll").write_text("a C\nb\n")
    before = tree(root)
    with pytest.raises(EspalierError, match=r"line 2 of .*ragged.conll has 1 column.*"):
        run(root, [str(root / "raw" / "ragged.conll")])
    after = tree(root)
    changed = {path for path in after if after[path] != before.get(path)}
    assert {path for path in changed if not path.startswith(".espalier/")} == {store.HISTORY}  # that it failed


def test_data_that_were_replaced_are_compared_too(tmp_path):
    root = write_project(tmp_path)
    run(root)
    (root / "raw" / "old.conll").write_text(text_of(words(150, "abcdefgiou", 0)[:100] + words(30, "abhklm", 5)))
    figures = run(root)
    assert figures["template"]["lost_sequences"] == 50 and figures["template"]["new_sequences"] == 30
    assert figures["template"]["new_observations"] > 0 and "new_labels" not in figures["template"]


# ---- a run that does not end with a promotion


def test_a_file_of_a_refused_or_failed_run_is_said_to_stay(tmp_path):
    root = write_project(tmp_path, max_iterations=3)
    run(root)
    labels_lost = ["promote.margin=0", "crf.rho1=1000"]  # nothing is learnt: worse than the champion
    figures = run(root, [str(root / "raw" / "new.conll")], labels_lost)
    assert not figures["promote"]["promoted"]
    stays = [text for text in Heard.said if text.startswith("raw/new.conll stays in ingest.more of params.yaml, and")]
    assert len(stays) == 1 and "take it out there" in stays[0]
    assert yaml.safe_load((root / "params.yaml").read_text())["ingest"]["more"] == ["raw/new.conll"]
    newdata.write_down(root / "params.yaml", None)
    with pytest.raises(EspalierError) as caught:
        run(root, [str(root / "raw" / "new.conll")], ["template.min_count=100000"])
    assert any(note.startswith("raw/new.conll stays in ingest.more") for note in caught.value.__notes__)
