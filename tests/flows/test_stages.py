"""The table of stages: what it says is what the stages do, and dvc.yaml says the same."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from stage_runs import run_stages, small_params, tree

from espalier.engine.errors import EspalierError
from espalier.engine.families import FAMILIES
from espalier.flows import plots
from espalier.flows.commands import running, using
from espalier.flows.pipeline import Project
from espalier.flows.stages import ALWAYS, STAGES, dvc_yaml, refresh_dvc_yaml, stage
from espalier.tasks import store
from espalier.tasks.params import Params, load_params

ROOT = Path(__file__).resolve().parents[2]
NAMES = [item.name for item in STAGES]
UNTRACKED = {store.TIMING, store.REPORT}  # wall-clock times differ between equal runs


def outputs(item):
    return [*item.writes, *item.metrics, *item.plots]


def within(path, places):
    return any(path == place or path.startswith(f"{place}/") for place in places)


# ---- the table


def test_names_and_order():
    assert NAMES == ["ingest", "template", "weigh", "train", "evaluate", "report"]
    assert list(running.STAGE_NAMES) == NAMES and using.CHAMPION == store.CHAMPION
    assert stage("weigh") is STAGES[2]


def test_what_is_read_is_written_by_an_earlier_stage():
    written = []
    for item in STAGES:
        for path in item.reads:
            assert within(path, written), f"{item.name} reads {path}"
        for path in outputs(item):
            assert not within(path, written) and not any(within(other, [path]) for other in written), path
        written += outputs(item)


def test_every_parameter_section_belongs_to_a_stage():
    for family in FAMILIES:
        params = Params()
        params.model.family = family
        used = {section.partition(".")[0] for item in STAGES for section in item.sections(params)}
        others = FAMILIES.keys() - {family}
        assert used == set(params.as_dict()) - {"compute", "version", "notify", "memory", "tournament"} - others
        for item in STAGES:
            assert item.name in item.params  # a stage depends at least on its own section


def test_training_depends_on_the_section_of_its_family_alone():
    params = Params()
    for family in FAMILIES:
        params.model.family = family
        entry = yaml.safe_load(dvc_yaml(params))["stages"]["train"]
        assert entry["params"] == sorted(["model", family, "train", "evaluate.decode"])


def test_parameters_that_name_files_exist_and_may_be_null():
    for item in STAGES:
        for name in item.named:
            section, key = name.split(".")
            assert section in item.params
            assert getattr(getattr(Params(), section), key) is None


def test_named_files_are_inputs_only_when_given():
    params = Params()
    assert stage("ingest").inputs(params) == []
    params.ingest.path, params.ingest.test_path, params.train.initial = "a.conll", "b.conll", "pinned.model"
    assert stage("ingest").inputs(params) == ["a.conll", "b.conll"]
    assert stage("train").inputs(params)[0] == "pinned.model"


def test_lists_that_templates_name_are_inputs_of_the_stage_that_reads_them(tmp_path):
    params = Params()
    assert stage("template").inputs(params) == list(stage("template").reads)
    params.template.lines = ["U", 'U:%l[0,0,"raw/towns.txt"]']
    assert stage("template").inputs(params)[0] == "raw/towns.txt"
    params.template.lines, params.template.file = None, "pattern.txt"
    (tmp_path / "pattern.txt").write_text('U:%l[0,0,"raw/rivers.txt"]\n', encoding="utf-8")
    assert stage("template").inputs(params, tmp_path)[:2] == ["pattern.txt", "raw/rivers.txt"]
    assert refresh_dvc_yaml(tmp_path, params) is True
    found = yaml.safe_load((tmp_path / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    assert {"pattern.txt", "raw/rivers.txt"} <= set(found["template"]["deps"])
    assert not any("rivers" in path for name in NAMES if name != "template" for path in found[name]["deps"])
    with pytest.raises(EspalierError, match="the templates name the list 'raw/rivers.txt': there is no such file"):
        Project(tmp_path, params).check()


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_needs_no_more_and_writes_no_more_than_the_table_says(finished_project, tmp_path, name):
    """It runs in a folder that holds only what the table says it reads."""
    item, params = stage(name), small_params()
    for path in item.inputs(params):
        source, target = finished_project / path, tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    before = tree(tmp_path)
    run_stages(tmp_path, params, name)
    after = tree(tmp_path)
    assert {path: after[path] for path in before} == before
    made = {path for path in after if path not in before} - UNTRACKED
    assert all(within(path, outputs(item)) for path in made)
    assert all(any(within(path, [place]) for path in made) for place in outputs(item))


# ---- code that a stage rests on


def imported(path):
    """Files of ours that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if not name.startswith("espalier."):
                continue
            base = ROOT.joinpath(*name.split(".")[1:])
            found |= {file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file()}
    return found


def closure(path):
    todo, done = [path], set()
    while todo:
        here = todo.pop()
        if here not in done:
            done.add(here)
            todo += imported(here)
    return {str(file.relative_to(ROOT)) for file in done} - {"tasks/__init__.py"}


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_depends_on_all_the_code_it_imports(name):
    listed, alone = [*ALWAYS, *stage(name).code], ROOT / f"tasks/{name}.py"
    begin = alone if alone.is_file() else ROOT / f"tasks/{name}/__init__.py"
    needed = closure(begin)
    assert "tasks/store/__init__.py" in needed and "engine/errors.py" in needed, "the test looks in the wrong place"
    assert not sorted(file for file in needed if not within(file, listed))


def test_every_listed_file_of_code_exists():
    for item in STAGES:
        assert all((ROOT / path).exists() for path in (*ALWAYS, *item.code))


# ---- dvc.yaml


def test_the_committed_file_is_what_the_table_writes():
    text = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    assert text == dvc_yaml(load_params(ROOT / "params.yaml")), "run `python -m espalier.flows.stages`"


@pytest.mark.parametrize("with_code", [True, False])
def test_dvc_yaml_says_what_the_table_says(with_code):
    params = small_params()
    params.ingest.path = "raw/some.conll"
    found = yaml.safe_load(dvc_yaml(params, with_code))["stages"]
    assert list(found) == NAMES
    for item in STAGES:
        entry = found[item.name]
        assert entry["cmd"].endswith(f"espalier stage {item.name}")
        assert all(within(path, entry["deps"]) for path in item.inputs(params))
        assert within("engine", entry["deps"]) == with_code
        assert entry["params"] == sorted(item.sections(params))
        lines = [*entry.get("outs", []), *entry.get("metrics", [])]
        assert sorted(path for line in lines for path in line) == sorted(outputs(item))
        flags = [flag for line in lines for flag in line.values()]
        assert all(flag["persist"] is True for flag in flags)  # a failed stage keeps the earlier outputs
        assert len(entry["deps"]) == len(set(entry["deps"]))


def test_the_templates_of_plots_are_those_of_the_table_and_a_project_under_dvc_gets_them(tmp_path):
    found = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / plots.FOLDER).glob("*.json")}
    assert {plot["template"] for plot in plots.PLOTS.values()} == set(plots.TEMPLATES) == set(found)
    written = {name: json.loads(text) for name, text in found.items()}
    assert written == plots.TEMPLATES, "run `python -m espalier.flows.stages`"
    refresh_dvc_yaml(tmp_path, Params())
    assert [path.name for path in tmp_path.iterdir()] == ["dvc.yaml"], "a folder without DVC gets none"
    (tmp_path / ".dvc").mkdir()
    refresh_dvc_yaml(tmp_path, Params())
    assert {path.stem: path.read_text(encoding="utf-8") for path in (tmp_path / plots.FOLDER).iterdir()} == found


def test_dvc_yaml_is_refreshed_only_when_it_must_be(tmp_path):
    params = small_params()
    assert refresh_dvc_yaml(tmp_path, params) is True
    first = (tmp_path / "dvc.yaml").read_text(encoding="utf-8")
    assert "tasks/" not in first  # a folder of data alone depends on no code
    assert refresh_dvc_yaml(tmp_path, params) is False
    params.train.initial = "pinned.model"
    assert refresh_dvc_yaml(tmp_path, params) is True
    assert "pinned.model" in (tmp_path / "dvc.yaml").read_text(encoding="utf-8")
    (tmp_path / "engine").mkdir()
    assert refresh_dvc_yaml(tmp_path, params) is True
    assert "tasks/ingest.py" in (tmp_path / "dvc.yaml").read_text(encoding="utf-8")


ASK_DVC = """
import json, sys
from dvc.repo import Repo
repo = Repo.init(sys.argv[1], no_scm=True)
graph = repo.index.graph
edges = sorted([b.name, a.name] for a, b in graph.edges)
print(json.dumps({"stages": sorted(s.name for s in repo.index.stages), "edges": edges,
                  "params": sorted({str(p) for p in repo.index.params})}))
"""


def test_dvc_accepts_the_file_and_sees_the_same_graph(tmp_path):
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    done = subprocess.run([sys.executable, "-c", ASK_DVC, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path,
                          env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "DVC_NO_ANALYTICS": "true"})  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["stages"] == sorted(NAMES)
    expected = sorted(
        [before.name, item.name]
        for item in STAGES
        for before in STAGES
        if any(within(path, outputs(before)) for path in item.reads)
    )
    assert found["edges"] == expected


def test_a_pattern_of_files_is_watched_as_their_folder():
    params = Params()
    params.ingest.path, params.ingest.test_path = "data/raw/*/train-?.conll", "data/test.conll"
    assert stage("ingest").inputs(params) == ["data/raw", "data/test.conll"]
    params.ingest.path = "*.conll"
    with pytest.raises(EspalierError, match=r"\*.conll: a pattern needs a folder in front of it, such as data/raw/"):
        stage("ingest").inputs(params)
