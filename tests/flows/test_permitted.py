"""What a flow run from outside may set, and what only our own command line may."""

import json
from dataclasses import fields

import pytest
from small_project import write_project

from espalier.engine.errors import EspalierError
from espalier.flows import permitted
from espalier.flows.pipeline import Project
from espalier.tasks.params import Params


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project that is served, seen from another folder."""
    root = write_project(tmp_path / "project")
    (root / "mine.conll").write_text("a X\n", encoding="utf-8")
    (tmp_path / "theirs.conll").write_text("a X\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(permitted.SERVED, json.dumps({"root": str(root)}))
    return root


def all_names() -> set[str]:
    params = Params()
    return {f"{section.name}.{item.name}" for section in fields(params)
            for item in fields(getattr(params, section.name))}  # fmt: skip


def test_every_name_on_the_list_is_a_parameter():
    assert permitted.PERMITTED <= all_names()


@pytest.mark.parametrize("name", sorted(all_names() - permitted.PERMITTED))
def test_what_is_not_on_the_list_is_refused_by_name(project, name):
    with pytest.raises(EspalierError, match=f"parameter overrides: '{name}' cannot be set by a flow run; only our own"):
        permitted.project_of(str(project), [f"{name}=x"])


def test_what_executes_sends_or_clears_away_is_not_on_the_list():
    for name in ("notify.command", "notify.webhook", "version.push", "version.git", "version.keep", "compute.cluster"):
        assert name in all_names() and name not in permitted.PERMITTED


def test_a_name_cannot_be_smuggled_in(project):
    for text in ("notify.command", " notify.command=x", "notify.command =x", "crf.rho1\n=1", "=notify.command=x", ""):
        with pytest.raises(EspalierError, match="cannot be set by a flow run"):
            permitted.project_of(str(project), ["crf.rho1=1", text])


@pytest.mark.parametrize(
    "name",
    ["ingest.path", "ingest.dev_path", "ingest.test_path", "template.file", "train.initial", "promote.cases",
     "evaluate.reference"],
)  # fmt: skip
def test_files_are_the_projects_own(project, name):
    (project / "params.yaml").write_text("ingest: {source: simulated}\n", encoding="utf-8")
    for file in ("/etc/passwd", "../theirs.conll", "data/../../theirs.conll", "../*.conll"):
        with pytest.raises(EspalierError, match=f"parameter {name} is .*may only name files inside the project"):
            permitted.project_of(str(project), [f"{name}={file}"])
        with pytest.raises(EspalierError, match=f"parameter {name} is "):  # written in another way
            permitted.project_of(str(project), [f"{name}={json.dumps(file)}"])
    found = permitted.project_of(str(project), [f"{name}=mine.conll"]).params.as_dict()
    section, key = name.split(".")
    assert found[section][key] == "mine.conll"


def test_so_are_files_in_a_list_and_files_to_add(project):
    with pytest.raises(EspalierError, match="parameter ingest.more is '/etc/passwd'"):
        permitted.project_of(str(project), ["ingest.more=[mine.conll, /etc/passwd]"])
    with pytest.raises(EspalierError, match="parameter add is '../theirs.conll'"):
        permitted.project_of(str(project), [], ["../theirs.conll"])
    assert permitted.project_of(str(project), [], ["mine.conll"]).added == ["mine.conll"]


def test_the_project_is_the_one_that_is_served(project, tmp_path):
    other = write_project(tmp_path / "other")
    for root in (str(other), "/", "other", str(project / "..")):
        with pytest.raises(EspalierError, match=f"parameter root is '{root}': this flow is served for {project} and"):
            permitted.project_of(root, [])
    for root in (str(project), "."):
        assert permitted.project_of(root, []).root == project


def test_without_a_word_of_who_serves_it_is_the_working_directory(project, monkeypatch):
    monkeypatch.delenv(permitted.SERVED)
    with pytest.raises(EspalierError, match="works nowhere else"):
        permitted.project_of(str(project), [])
    monkeypatch.chdir(project)
    assert permitted.project_of(".", []).root == project


def test_who_serves_may_set_everything(project, monkeypatch):
    monkeypatch.delenv(permitted.SERVED)
    (project / "other.yaml").write_text("crf: {rho1: 7}\n", encoding="utf-8")
    with permitted.serving(project, ["notify.command=ring"], project / "other.yaml"):
        params = permitted.project_of(".", ["crf.rho2=3"]).params
    assert (params.notify.command, params.crf.rho1, params.crf.rho2) == ("ring", 7, 3)
    assert permitted.SERVED not in permitted.os.environ


def test_our_own_command_line_may_set_everything_and_the_server_sees_what_it_may(project):
    overrides = ["notify.command=ring", "crf.rho1=0.2", "ingest.path=/elsewhere"]
    mine = Project.open(project, None, overrides)
    with permitted.asked_by_us(mine):
        assert permitted.project_of(".", ["whatever=1"]) is mine
    assert permitted.permitted(overrides) == ["crf.rho1=0.2", "ingest.path=/elsewhere"]


def test_flows_have_no_parameter_that_is_not_checked():
    """Of those that take texts: `root`, `overrides`, `add` and `source` are checked, the others are names of things."""
    from prefect.utilities.callables import parameter_schema

    from espalier.flows.reproduce import reproduce
    from espalier.flows.retrain import retrain
    from espalier.flows.sweep import sweep
    from espalier.flows.tournament import tournament

    checked = {"root", "overrides", "add", "source", "family", "rho1", "solver", "max_iterations", "warm", "force",
               "options", "name", "quick"}  # fmt: skip
    for flow in (retrain, sweep, tournament, reproduce):
        assert set(parameter_schema(flow).properties) <= checked
