"""Using a model from the command line: tagging as it comes, reasons, pictures, paths; and what it takes to start."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from small_project import environment, run_python
from stage_runs import small_params, tree

from espalier.engine.families import load as load_model
from espalier.flows import cli
from espalier.tasks import store
from espalier.tasks.training import sweep

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def espalier(capsysbinary, monkeypatch):
    """Run the command in this process: (exit code, standard output, standard error)."""
    import io

    def run(*arguments, stdin=None):
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as exit:
            code = exit.code
        out, err = capsysbinary.readouterr()
        return code, out.decode(), err.decode()

    return run


@pytest.fixture
def project(promoted):
    """What is used is a champion."""
    return promoted


# ---- tag


def test_scores_labellings_and_json(espalier, project):
    code, out, _ = espalier("-C", project, "tag", "--scores", "--nbest", "2", "--format", "jsonl", stdin=b"v\nx\n")
    found = json.loads(out)
    assert code == 0 and found["tokens"] == ["v", "x"] and found["labels"] == ["A", "C"]
    assert [one["labels"] for one in found["nbest"]][0] == ["A", "C"] and len(found["nbest"]) == 2
    assert 0 > found["nbest"][0]["log_probability"] > found["nbest"][1]["log_probability"]
    code, out, _ = espalier("-C", project, "tag", "--scores", stdin=b"v\nx\n")
    head, first, second = out.strip().split("\n")
    assert head.startswith("# 1 -") and first.split("\t")[:2] == ["v", "A"] and 0 < float(second.split("\t")[2]) <= 1


def test_known_labels(espalier, project):
    code, out, _ = espalier("-C", project, "tag", "--known", "-1", stdin=b"v _\nx B\n")
    assert code == 0 and [line.split("\t")[2] for line in out.strip().split("\n")][1] == "B"
    code, out, err = espalier("-C", project, "tag", "--known", "1", stdin=b"v Q\n")
    assert (code, out) == (1, "") and "line 1 of standard input: the known label 'Q' is not one of the model's" in err


def test_a_scheme_that_the_labels_do_not_have(espalier, project):
    code, out, err = espalier("-C", project, "tag", "--scheme", "iob2", stdin=b"v\n")
    assert (code, out) == (1, "") and "label 'A' is not one of iob2: expected O, B-…, I-…" in err


def test_output_is_utf8_whatever_the_locale(project):
    env = environment(PYTHONUTF8="0", LC_ALL="C", PYTHONCOERCECLOCALE="0")
    command = [sys.executable, "-m", "espalier.flows.cli", "-C", str(project), "tag"]
    done = subprocess.run(command, input="é\n".encode(), env=env, capture_output=True)
    assert done.returncode == 0 and done.stdout.decode().startswith("é\t")


WATCHED = """
import json, sys
from espalier.flows import cli
code = cli.main(sys.argv[1:])
sys.stdout.flush()
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("options", "text"),
    [([], "v"), (["--words"], "v"), (["--scores", "--nbest", "2"], "v"), (["--from", "jsonl"], '{"tokens": ["v"]}')],
    ids=["columns", "words", "scores", "jsonl"],
)
def test_tagging_loads_neither_platform_nor_tables(project, tmp_path, options, text):
    """A model file in an empty folder is enough, and nothing that starts slowly is loaded."""
    model = tmp_path / "some.model"
    model.write_bytes((project / store.CANDIDATE).read_bytes())
    command = [sys.executable, "-c", WATCHED, "tag", "--model", str(model), *options]
    done = subprocess.run(command, input=text.encode(), cwd=tmp_path, env=environment(), capture_output=True)
    assert done.returncode == 0 and b"A" in done.stdout, done.stderr
    loaded = set(json.loads(done.stderr))
    assert {"espalier", "numba", "pyarrow"} <= loaded
    assert not loaded & {"prefect", "dvc", "polars", "pandas", "rich", "dask"}


def test_a_conversation(project):
    """Each sequence is answered, flushed, before the next is sent: a reader that waits never waits in vain."""
    command = [sys.executable, "-m", "espalier.flows.cli", "tag", "--model", str(project / store.CANDIDATE)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment(), bufsize=0, **pipes) as process:
        for word, label in (b"v", b"A"), (b"w", b"B"), (b"x", b"C"):
            process.stdin.write(word + b"\n\n")
            assert process.stdout.readline() == word + b"\t" + label + b"\n" and process.stdout.readline() == b"\n"
        process.stdin.write(b"v\n")
        process.stdin.close()
        assert process.stdout.readline() == b"v\tA\n" and process.stdout.read() == b""
        assert process.wait() == 0 and process.stderr.read() == b""


def test_a_file_on_standard_input_and_a_pipe_give_the_same(project, tmp_path):
    text = b"".join(b"v\nx\n\nw\n\n" for _ in range(3000)) + b"v"
    (tmp_path / "some.txt").write_bytes(text)
    (tmp_path / "some.gz").write_bytes(gzip.compress(text))
    command = [sys.executable, "-m", "espalier.flows.cli", "tag", "--model", str(project / store.CANDIDATE)]
    options = {"env": environment(), "capture_output": True, "check": True}
    with (tmp_path / "some.txt").open("rb") as file:
        found = {subprocess.run(command, stdin=file, **options).stdout}
    found |= {subprocess.run(command, input=text, **options).stdout}
    found |= {subprocess.run([*command, str(tmp_path / "some.gz")], **options).stdout}
    assert found == {b"v\tA\nx\tC\n\nw\tB\n\n" * 3000 + b"v\tA\n"}


# ---- explain


def test_explain_for_people_and_machines(espalier, project):
    code, out, _ = espalier("-C", project, "explain", "--words", "--top", "2", stdin=b"vx\n\nw\n")
    assert code == 0 and out.count("log-probability") == 2 and " over " in out and " when " in out
    code, out, _ = espalier("-C", project, "explain", "--json", "--top", "100", stdin=b"v\nx\n\nw\n")
    first, second = map(json.loads, out.strip().split("\n"))
    assert code == 0 and first["labels"] == ["A", "C"] and second["labels"] == ["B"]
    for row in (*first["tokens"], *second["tokens"]):
        assert sum(weight["adds"] for weight in row["weights"]) == pytest.approx(row["difference"])
        assert row["difference"] > 0 and row["probability"] > row["runner_up_probability"]


def test_explain_refuses_what_tag_refuses(espalier, project):
    code, out, err = espalier("-C", project, "explain", stdin=b"v\nz z\n")
    assert (code, out) == (1, "") and "line 2 of standard input has 2 columns" in err


# ---- inspect --picture


@pytest.mark.parametrize("name", ["weights.svg", "weights.html"])
def test_a_picture(espalier, project, tmp_path, name):
    code, out, _ = espalier("inspect", project / store.CANDIDATE, "--top", "1", "--picture", tmp_path / name)
    assert code == 0 and out.endswith(f"picture {tmp_path / name}\n")
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert "<svg" in text and "v, A: " in text
    code, out, err = espalier("inspect", project / store.CANDIDATE, "--picture", tmp_path / "weights.png")
    assert (code, out) == (1, "") and "expected a name that ends with .html or .svg" in err


# ---- sweep


def test_sweep_without_prefect(espalier, project):
    code, out, err = espalier("-C", project, "sweep", "--direct", "--points", "3", "--json")
    figures = json.loads(out)
    assert code == 0 and len(figures["points"]) == 3 and figures == store.read_json(project / sweep.SWEEP)
    assert err.startswith("sweep") and "chosen rho1 " in err
    code, out, _ = espalier(
        "-C", project, "sweep", "--direct", "--quiet", "--points", "2", "--from", "4", "--to", "0.5", "--sparser",
        "--set", "train.max_iterations=3",
    )  # fmt: skip
    lines = out.strip().split("\n")
    assert code == 0 and len(lines) == 5 and "within a standard error" in lines[3]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--points", "0"], "a sweep of 0 points: expected at least 1"),
        (["--from", "0"], "--from is 0.0: expected a number above 0"),
        (["--set", "crf.solver=iis"], "iis cannot follow a path of rho1"),
    ],
)
def test_sweep_refuses_what_cannot_be(espalier, project, options, expected):
    before = tree(project)
    code, out, err = espalier("-C", project, "sweep", "--direct", "--quiet", *options)
    assert (code, out) == (1, "") and expected in err
    assert {k: v for k, v in tree(project).items() if not k.startswith(".espalier/")} == before


def test_sweep_needs_features(espalier, tmp_path):
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(small_params().as_dict()))
    code, _, err = espalier("-C", tmp_path, "sweep", "--direct", "--quiet")
    assert code == 1 and "run `espalier stage template` first" in err


@pytest.mark.server
@pytest.mark.long
def test_sweep_as_a_flow_is_the_same(espalier, project):
    direct = json.loads(espalier("-C", project, "sweep", "--direct", "--quiet", "--points", "3", "--json")[1])
    arguments = ("-m", "espalier.flows.cli", "-C", str(project), "sweep", "--points", "3", "--json", "--quiet")
    done = run_python(*arguments, cwd=project, timeout=400, PREFECT_HOME=str(project / "prefect"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == direct


def test_the_model_alone_is_enough(project, tmp_path):
    """What a model says of itself is all that tagging reads: no parameters, no vocabulary, no manifest."""
    model = tmp_path / "alone.model"
    os.link(project / store.CANDIDATE, model)
    assert load_model(model).templates == ["*:%x[0,0]", "U-1:%x[-1,0]", "B"]
    done = subprocess.run([sys.executable, "-m", "espalier.flows.cli", "tag", "--model", str(model)], input=b"v\n",
                          cwd=tmp_path, env=environment(), capture_output=True)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"v\tA\n")
