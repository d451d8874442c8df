"""Imports go one way, flows -> tasks -> engine, and importing the engine costs nothing."""

import ast
import json
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLATFORM = {"prefect", "prefect_dask", "dvc"}
OURS = {"espalier.flows", "espalier.tasks"}
FORBIDDEN = {
    "engine": PLATFORM | OURS | {"polars", "yaml", "rich"},
    "tasks": PLATFORM | {"espalier.flows"},
}


def imported_names(source):
    """Everything a module imports, in full, wherever in it the import stands; of `from a import b` both a and a.b."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                found.add(node.args[0].value)
    return found


def imported_modules(source):
    """What it imports of other packages, by their names, and of ours by the names of their folders."""
    parts = [name.split(".") for name in imported_names(source)]
    return {".".join(part[:2]) if part[0] == "espalier" else part[0] for part in parts}


def modules(package):
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_a_package_imports_only_downwards(package):
    if package == "engine":
        assert modules(package), "no module found: the test looks in the wrong place"
    offences = {
        str(path.relative_to(ROOT)): sorted(imported_modules(path.read_text()) & FORBIDDEN[package])
        for path in modules(package)
        if imported_modules(path.read_text()) & FORBIDDEN[package]
    }
    assert not offences


# The rooms of the engine, and the modules beside them: each imports from those before it and from itself alone.
ROOMS = (
    "errors", "runtime", "data", "text", "labels", "similarity", "lattice", "weights", "chain", "decoding", "losses",
    "blockwise", "optimise", "grammar", "parts", "semisup", "arrow_frame", "model_file", "model", "families",
    "features", "warm_start", "penalty_search", "interface", "fitting", "recipes", "warm_up", "estimator", "importing",
)  # fmt: skip


def rooms_imported(path):
    names = [name.split(".") for name in imported_names(path.read_text())]
    return {name[2] for name in names if name[:2] == ["espalier", "engine"] and len(name) > 2}


def room_of(path):
    return path.relative_to(ROOT / "engine").with_suffix("").parts[0]


def test_the_engine_has_the_rooms_that_are_named():
    found = {room_of(path) for path in modules("engine")} - {"__init__"}
    assert found == set(ROOMS)


def test_imports_between_rooms_go_one_way():
    offences = {}
    for path in modules("engine"):
        if room_of(path) != "__init__":
            allowed = set(ROOMS[: ROOMS.index(room_of(path)) + 1])
            offences[str(path.relative_to(ROOT))] = sorted((rooms_imported(path) & set(ROOMS)) - allowed)
    assert {path: rooms for path, rooms in offences.items() if rooms} == {}


@pytest.mark.parametrize("room", [room for room in ROOMS if (ROOT / "engine" / room).is_dir()])
def test_a_room_says_at_its_head_what_it_holds(room):
    text = ast.get_docstring(ast.parse((ROOT / "engine" / room / "__init__.py").read_text()))
    assert text and len(text) > 60


def test_no_class_name_has_two_meanings():
    named = {}
    for package in ("engine", "tasks", "flows"):
        for path in modules(package):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    named.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in named.items() if len(places) > 1} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import polars",
        "import polars as pl",
        "from polars.io import x",
        "def f():\n    import polars.io",
        "import importlib\nimportlib.import_module('polars')",
        "__import__('polars')",
    ],
)
def test_the_check_sees_every_way_of_importing(source):
    assert "polars" in imported_modules(source)


def run_python(code, *flags, env=None):
    done = subprocess.run([sys.executable, *flags, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_engine_loads_no_platform_and_no_kernel():
    loaded = json.loads(
        run_python("import espalier, espalier.engine, sys, json; print(json.dumps(sorted(sys.modules)))")
    )
    assert "espalier.engine" in loaded
    heavy = {"polars", "prefect", "dvc", "numba", "llvmlite", "dask"}
    assert not heavy & {name.split(".")[0] for name in loaded}


def test_the_list_of_solvers_loads_none_of_them():
    code = "import json, sys\nfrom espalier.engine.optimise.solvers import SOLVERS\n"
    code += "where = 'espalier.engine.optimise.solvers.'\n"
    code += "before = [name for name in sys.modules if name.startswith(where)]\nSOLVERS['cd'].run\n"
    code += "print(json.dumps([before, *(where + name in sys.modules for name in ('cd', 'sgd'))]))"
    assert json.loads(run_python(code)) == [[], True, False]


def test_the_table_of_solvers_is_light():
    code = "import json, sys\nfrom espalier.engine.optimise.solver_table import SOLVERS\n"
    loaded = json.loads(run_python(code + "print(json.dumps([len(SOLVERS), *sys.modules]))"))
    assert loaded[0] > 5 and not {"numpy", "numba"} & set(loaded[1:])


COUNT_COMPILATIONS = """
import json, sys
from numba.core import event
class Counter(event.Listener):
    started = 0
    def on_start(self, e): Counter.started += 1
    def on_end(self, e): pass
event.register("numba:compile", Counter())
import importlib, pkgutil, engine
names = [m.name for m in pkgutil.walk_packages(engine.__path__, "espalier.engine.")]
for name in names:
    importlib.import_module(name)
import numba
at_import = Counter.started
numba.njit(lambda x: x + 1)(1)
print(json.dumps({"names": names, "at_import": at_import, "after_one_kernel": Counter.started,
                  "polars": "polars" in sys.modules, "prefect": "prefect" in sys.modules}))
"""


def test_importing_every_module_compiles_nothing(tmp_path):
    """The listener is shown to hear a compilation, so silence means that there was none."""
    found = json.loads(run_python(COUNT_COMPILATIONS))
    assert "espalier.engine.losses.chain_objective" in found["names"]
    assert found["at_import"] == 0
    assert found["after_one_kernel"] > 0
    assert not found["polars"] and not found["prefect"]


def test_every_public_name_arrives():
    import espalier

    assert {"CRF", "load", "EspalierError"} <= set(dir(espalier))
    assert espalier.__version__ == version("espalier-crf")
    for name in espalier.__all__:
        assert getattr(espalier, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'; it has"):
        espalier.Nonsense  # noqa: B018


def test_the_list_of_packages_is_that_of_the_folders():
    """setuptools cannot look for packages in folders that have other names."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    found = set()
    for name in ("espalier", "engine", "flows", "tasks"):
        folders = [path.parent.relative_to(ROOT).parts for path in (ROOT / name).rglob("__init__.py")]
        found |= {".".join(parts if name == "espalier" else ("espalier", *parts)) for parts in folders}
    assert settings["packages"] == sorted(found)


@pytest.mark.parametrize("name", ["tasks", "engine", "flows"])
def test_a_module_of_the_user_may_have_the_name_of_a_folder_of_ours(tmp_path, name):
    (tmp_path / f"{name}.py").write_text("raise RuntimeError('the module of the user was imported')")
    code = "from espalier.flows import cli; from espalier.tasks import store; print(cli.main(['history', '--help']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "usage: espalier history" in done.stdout, done.stderr
