"""Each check sees what it is there for."""

import os
from importlib import metadata

import pytest
from small_project import begin_dvc, write_project

from espalier.flows import doctor as looking
from espalier.flows.doctor import doctor
from espalier.flows.pipeline import Project


@pytest.fixture(autouse=True)
def same_environment_after():
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def project(tmp_path):
    return write_project(tmp_path)


def of(checks, name):
    return next(check for check in checks if check.check.startswith(name))


def with_version(monkeypatch, name, version):
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda package: version if package == name else real(package))


def test_this_machine_is_well(project):
    wrong = [check for check in doctor(project) if not check.ok]
    assert wrong == []


def test_each_row_has_four_parts_and_a_remedy_only_when_it_is_needed(project, monkeypatch):
    with_version(monkeypatch, "sqlalchemy", "2.1.8")
    for check, ok, text, remedy in doctor(project):
        assert check and text
        assert bool(remedy) is not ok


@pytest.mark.parametrize(
    ("name", "version", "ok", "text"),
    [
        ("sqlalchemy", "2.1.8", False, "creates no scheduled run"),
        ("sqlalchemy", "2.0.57", True, "2.0.57"),
        ("sqlalchemy", "2.1.0b1", False, "2.0 is needed"),
        ("fastapi", "0.156.0", False, "breaks the start of flows"),
        ("fastapi", "0.150.3", True, "0.150.3"),
        ("fastapi", "0.151.0", False, "0.150 or older"),
        ("prefect", "3.9.0", False, "3.8.8"),
        ("prefect", "3.8.8", True, "3.8.8"),
    ],
)
def test_versions_that_break_are_named(monkeypatch, name, version, ok, text):
    with_version(monkeypatch, name, version)
    found = looking.package_version(name)
    assert found.ok is ok and text in found.text


def test_a_package_that_is_missing(monkeypatch):
    found = looking.package_version("no-such-package")
    assert not found.ok and found.text == "not installed" and "constraints.txt" in found.remedy


def test_an_old_python(monkeypatch):
    monkeypatch.setattr(looking, "PYTHON", (4, 0))
    assert not looking.python_version().ok


def test_parameters_that_cannot_be_read(project):
    (project / "params.yaml").write_text("train:\n  toleranse: 1\n", encoding="utf-8")
    found = of(doctor(project), "params.yaml")
    assert not found.ok and "did you mean 'train.tolerance'" in found.text


def test_a_folder_without_parameters(tmp_path):
    found = of(doctor(tmp_path), "params.yaml")
    assert not found.ok and "`espalier init`" in found.remedy


def test_dvc_yaml_is_compared_with_the_table(project):
    begin_dvc(project)
    assert of(doctor(project), "dvc.yaml").text == "missing"
    Project.open(project).prepare()
    assert of(doctor(project), "dvc.yaml").ok
    with (project / "dvc.yaml").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    found = of(doctor(project), "dvc.yaml")
    assert not found.ok and "python -m espalier.flows.stages" in found.remedy


@pytest.mark.parametrize(("config", "ok"), [("", False), ("[core]\n    analytics = false\n", True), ("[core", False)])
def test_dvc_must_not_call_home(project, monkeypatch, config, ok):
    monkeypatch.delenv("DVC_NO_ANALYTICS", raising=False)
    (project / ".dvc").mkdir()
    (project / ".dvc" / "config").write_text(config, encoding="utf-8")
    assert looking.dvc_analytics(project).ok is ok
    monkeypatch.setenv("DVC_NO_ANALYTICS", "true")
    assert looking.dvc_analytics(project).ok


def test_no_place_for_compiled_kernels(project, monkeypatch):
    monkeypatch.setattr(looking.kernel_cache, "cache_directory", lambda: None)
    found = of(doctor(project), "compile cache")
    assert not found.ok and "NUMBA_CACHE_DIR" in found.remedy


def test_the_processor_that_kernels_are_compiled_for(project, monkeypatch):
    monkeypatch.setenv("NUMBA_CPU_NAME", "znver4")
    assert of(doctor(project), "compile target").text == "znver4 (NUMBA_CPU_NAME)"


def test_a_budget_of_threads_that_is_no_number(project, monkeypatch):
    monkeypatch.setenv("ESPALIER_THREADS", "many")
    found = of(doctor(project), "threads")
    assert not found.ok and "'many'" in found.text


def test_a_full_disk(project, monkeypatch):
    monkeypatch.setattr(looking, "WANTED_BYTES", 10**18)
    assert not of(doctor(project), "disk").ok


def test_a_home_that_cannot_be_written(project, tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("PREFECT_HOME", str(blocked))
    found = of(doctor(project), "Prefect home")
    assert not found.ok and "PREFECT_HOME" in found.remedy


def test_a_server_that_is_named_and_not_there(project, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    found = of(doctor(project), "Prefect server")
    assert not found.ok and "does not answer" in found.text
    monkeypatch.delenv("PREFECT_API_URL")
    assert of(doctor(project), "Prefect server").ok


def test_what_is_optional_is_never_wrong(project, monkeypatch):
    monkeypatch.setenv("ESPALIER_DATA", str(project / "none"))
    monkeypatch.setattr(looking, "CHROMIUM", ("no-such-browser",))
    optional = [check for check in doctor(project) if "(optional)" in check.check]
    assert len(optional) == 2
    assert all(check.ok and "not found" in check.text for check in optional)


def test_looking_leaves_nothing_behind(project):
    before = sorted(path.name for path in project.rglob("*"))
    doctor(project)
    assert sorted(path.name for path in project.rglob("*")) == before
