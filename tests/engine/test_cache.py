"""The compile cache: named after the sources, moved when a place is read-only, and not needed."""

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numba
import pytest

from espalier.engine.runtime import kernel_cache

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def places(monkeypatch, tmp_path):
    """All candidates below tmp_path, so that no test touches the real cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "chosen"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    (tmp_path / "temporary").mkdir()
    return tmp_path


def make_read_only(folder):
    """A path below a regular file: nobody can write there, root included."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("not a folder")


def test_the_hash_follows_every_source(tmp_path):
    assert {path.name for path in kernel_cache.ENGINE.iterdir()} >= {"chain", "losses", "runtime", "estimator.py"}
    shutil.copytree(kernel_cache.ENGINE, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
    copy = tmp_path / "copy"
    before = kernel_cache.source_hash(copy)
    assert before == kernel_cache.source_hash(kernel_cache.ENGINE) == kernel_cache.source_hash()
    for path in sorted(copy.rglob("*.py")):
        text = path.read_text()
        path.write_text(text + "\n")
        assert kernel_cache.source_hash(copy) != before, f"{path.name} is not part of the hash"
        path.write_text(text)
    assert kernel_cache.source_hash(copy) == before


def test_the_hash_follows_names_and_boundaries(tmp_path):
    def hash_of(**files):
        folder = tmp_path / "-".join(files)
        folder.mkdir()
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)
        return kernel_cache.source_hash(folder)

    assert len({hash_of(a="1", b="2"), hash_of(a="2", c="1"), hash_of(a2="12"), hash_of(d="1", e="2")}) == 4


def imported_by_looking(path: Path, folder: Path) -> set[Path]:
    """The modules of a folder that a file imports, by its syntax tree."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    places = [folder / Path(*name.split(".")[2:]) for name in names if name.startswith("espalier.engine")]
    rooms = {room for place in places for room in (place, *place.parents) if room.is_relative_to(folder)}
    return {f for f in [*(p.with_suffix(".py") for p in places), *(r / "__init__.py" for r in rooms)] if f.is_file()}


def test_a_kernel_rests_on_what_its_module_imports_and_on_nothing_else(tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(kernel_cache.ENGINE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    files = sorted(copy.rglob("*.py"))
    graph = {file: imported_by_looking(file, copy) for file in files}
    for module in ("runtime/vectors", "optimise/solvers/sgd"):
        path = copy / f"{module}.py"
        reached, waiting = {path}, [path]
        while waiting:
            new = graph[waiting.pop()] - reached
            reached, waiting = reached | new, waiting + list(new)
        assert 1 < len(reached) < len(files) / 2, "a module rests on some of the others"
        before = hash_anew(path, copy)
        assert before == kernel_cache.rests_on(kernel_cache.ENGINE / f"{module}.py")
        for file in files:
            text = file.read_bytes()
            file.write_bytes(text + b"\n")
            assert (hash_anew(path, copy) != before) == (file in reached), f"{module} and {file.relative_to(copy)}"
            file.write_bytes(text)


def hash_anew(path: Path, folder: Path) -> str:
    for function in (kernel_cache.rests_on, kernel_cache._source, kernel_cache._imported):
        function.cache_clear()
    return kernel_cache.rests_on(path, folder)


def test_another_package_keeps_its_own_place_of_kernels():
    assert numba.config.CACHE_DIR == (os.environ.get("NUMBA_CACHE_DIR") or "")


def test_read_only_places_are_passed_over_one_after_the_other(places):
    for folder in ("chosen", "environment", "user"):
        found = kernel_cache.cache_directory()
        assert found is not None and found.is_relative_to(places / folder), folder
        shutil.rmtree(places / folder)
        make_read_only(places / folder)
    assert kernel_cache.cache_directory().is_relative_to(places / "temporary")


def test_no_writable_place_is_no_error(places):
    shutil.rmtree(places / "temporary")
    for folder in ("chosen", "environment", "user", "temporary"):
        make_read_only(places / folder)
    assert kernel_cache.cache_directory() is None


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_trusted(places):
    """Cached kernels are machine code and pickles: who owns the temporary folder could run code as us."""
    for folder in ("chosen", "environment", "user"):
        make_read_only(places / folder)
    planted = kernel_cache.cache_directory()
    for folder in (planted, planted.parent):
        os.chown(folder, 12345, 12345)
        folder.chmod(0o777)
    found = kernel_cache.cache_directory()
    assert found is None or not found.is_relative_to(planted.parent)


NUMBA_FIRST = """
import numba
from espalier.engine.runtime import jit
ours = numba.config.CPU_NAME
numba.njit(lambda x: x + 1)(1)
assert numba.config.CPU_NAME == ours, numba.config.CPU_NAME
"""


def test_what_we_set_holds_where_numba_was_imported_before_us():
    """It reads the environment again when it compiles, and kernels were compiled for this processor alone then."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    done = subprocess.run([sys.executable, "-c", NUMBA_FIRST], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# Kernels that compile in seconds and call others.
SOLVE = """
import numpy as np
from espalier.engine.data.bags import bags_of_matrix
from espalier.engine.families.logistic import LogisticObjective
objective = LogisticObjective(bags_of_matrix(np.eye(2)), np.array([0, 1]), 2)
print(objective.value(np.zeros(objective.size)).hex())
"""


def test_the_engine_works_without_any_cache(tmp_path):
    """All places read-only, in a process of its own: kernels compile in memory and the answer is the same."""
    for folder in ("chosen", "user", "tmp"):
        make_read_only(tmp_path / folder)
    prefix, temporary = str(tmp_path / "user"), str(tmp_path / "tmp")
    code = f"import sys, tempfile; sys.prefix, tempfile.tempdir = {prefix!r}, {temporary!r}"
    env = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(tmp_path / "chosen"),
        "XDG_CACHE_HOME": str(tmp_path / "user"),
    }
    done = subprocess.run([sys.executable, "-c", code + SOLVE], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float.fromhex(done.stdout.strip()) == pytest.approx(2 * 0.6931471805599453)


def test_a_second_process_finds_the_compiled_kernels(tmp_path):
    """And only the first says that it compiles."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    code = "from espalier.engine.runtime import compiling\nwith compiling.said(True):\n" + SOLVE.replace("\n", "\n    ")
    listing, said = [], []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, check=True, capture_output=True)
        said.append(done.stderr.decode())
        listing.append({p.relative_to(tmp_path): p.stat().st_mtime_ns for p in tmp_path.rglob("*.nbc")})
    assert listing[0], "nothing was cached"
    folders = {path.parts[1] for path in listing[0]}
    assert kernel_cache.rests_on(kernel_cache.ENGINE / "families" / "logistic.py") in folders
    assert listing[0] == listing[1], "the second process compiled again"
    assert said[0].startswith("espalier: compiling kernels for this machine, once: ") and said[1] == ""
