"""The command line: what it prints, how it ends, and that bad input stops it before anything is written."""

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from stage_runs import small_params, tree

from espalier.engine.errors import EspalierError
from espalier.engine.families import load as load_model
from espalier.flows import cli
from espalier.tasks import store
from espalier.tasks.params import Ingest

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = sorted(cli.COMMANDS)


def subprocess_run(*arguments, code=None, **options):
    """The command in a process of its own."""
    command = [sys.executable, "-c", code] if code else [sys.executable, "-m", "espalier.flows.cli"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([*command, *map(str, arguments)], env=env, capture_output=True, **options)


# ---- help, version, usage


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command(espalier, command):
    code, out, err = espalier(command, "--help")
    assert code == 0 and out.startswith(f"usage: espalier {command}") and err == ""


@pytest.mark.parametrize("command", cli.DECLARED, ids=lambda command: command.name)
def test_every_help_has_an_example_that_is_understood(espalier, command):
    out = espalier(command.name, "--help")[1]
    assert out.endswith(f"\nexample:\n  {command.example}\n")
    words = re.search(r"espalier (.*?)( [|>] .*|\))?$", command.example)[1]
    assert cli.parser().parse_args(shlex.split(words)).command == command.name


def test_help_lists_every_command(espalier):
    code, out, _ = espalier("--help")
    assert code == 0 and all(f"\n    {command} " in out for command in COMMANDS)


def test_no_command_prints_the_help_and_is_an_error(espalier):
    code, out, _ = espalier()
    assert code == 2 and out.startswith("usage: espalier")


def test_every_declared_command_is_there_once():
    modules = {path.stem for path in (ROOT / "flows" / "commands").glob("*.py") if "GROUP = " in path.read_text()}
    assert modules == {module.__name__.rpartition(".")[2] for module in cli.GROUPS}
    assert len(cli.DECLARED) == len(cli.COMMANDS)


LOADED = """
import contextlib, io, json, sys
from espalier.flows import cli
with contextlib.redirect_stdout(io.StringIO()):
    for command in [[], *([name] for name in cli.COMMANDS)]:
        try:
            cli.main([*command, "--help"])
        except SystemExit:
            pass
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_help_loads_nothing_heavy():
    done = subprocess_run(code=LOADED, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert "espalier" in loaded
    assert not loaded & {"prefect", "numba", "llvmlite", "numpy", "polars", "pyarrow", "dvc", "yaml", "rich"}


def test_version_is_that_of_the_distribution(espalier):
    try:
        installed = metadata.version("espalier-crf")
    except metadata.PackageNotFoundError:
        pytest.skip("the distribution is not installed")
    assert espalier("--version")[:2] == (0, f"{installed}\n")


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["stage"], ["stage", "nonsense"], ["run", "--nonsense"], ["serve"], ["inspect", "--top", "x"]],
)
def test_wrong_usage_is_exit_code_2(espalier, arguments):
    code, out, err = espalier(*arguments)
    assert code == 2 and out == "" and "usage: espalier" in err


# ---- stages and runs


@pytest.mark.parametrize("name", ["ingest", "template", "weigh", "train", "evaluate"])
def test_a_stage_leaves_what_it_left_before(espalier, project, name):
    before = tree(project)
    code, out, err = espalier("-C", project, "stage", name)
    assert (code, out) == (0, "") and err.startswith(name)
    after = tree(project)
    assert {path for path in after if after[path] != before.get(path)} <= {store.TIMING}


def test_a_stage_with_json_and_quiet(espalier, project):
    code, out, err = espalier("-C", project, "stage", "template", "--json", "--quiet")
    assert code == 0 and err == ""
    assert json.loads(out) == {"labels": 6, "observations": 12, "templates": 3}


def test_parameters_from_another_file_and_from_the_command_line(espalier, project, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump(small_params().as_dict() | {"template": {"lines": ["U:%x[0,0]", "B"]}}))
    code, out, _ = espalier(
        "-C", project, "stage", "template", "--json", "--params", other, "--set", "template.lines=[U, B]"
    )
    assert code == 0 and json.loads(out)["observations"] == 2
    assert json.loads(espalier("-C", project, "stage", "template", "--json", "--params", other)[1])["observations"] == 6


def test_the_project_is_the_working_folder_by_default(espalier, project, monkeypatch):
    monkeypatch.chdir(project)
    assert espalier("stage", "template", "--quiet")[0] == 0


def test_run_direct_from_nothing(espalier, tmp_path):
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(small_params().as_dict()))
    code, out, err = espalier("-C", tmp_path, "run", "--direct")
    assert code == 0, err
    metrics = store.read_json(tmp_path / store.METRICS)
    lines = out.strip().split("\n")
    assert lines[0].startswith(f"state error {metrics['token_error']:.2%} ({metrics['token_error_low']:.2%} to ")
    assert lines[0].endswith(f", sequence error {metrics['sequence_error']:.2%}")
    assert lines[1].startswith("active features ") and " of 318 (" in lines[1]
    assert lines[2] == "promoted: the first model: there was no champion"
    assert lines[3] == f"report {tmp_path / store.REPORT}" and (tmp_path / store.REPORT).is_file()
    assert (tmp_path / store.CHAMPION).read_bytes() == (tmp_path / store.CANDIDATE).read_bytes()
    for stage in ("ingest", "template", "weigh", "train", "evaluate", "report", "promote"):
        assert f"\n{stage} " in f"\n{err}"


def test_run_direct_with_json(espalier, tmp_path):
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(small_params().as_dict()))
    code, out, err = espalier("-C", tmp_path, "run", "--direct", "--json", "--quiet", "--set", "train.max_iterations=2")
    figures = json.loads(out)
    assert code == 0 and err == "" and figures["train"]["iterations"] == 2 and figures["promote"]["promoted"] is True


def test_a_refused_run_has_a_code_of_its_own_and_its_reasons_once(espalier, tmp_path):
    """So that a schedule can tell it from a failure (1) and from a wrong command (2)."""
    params = small_params()
    params.promote.cases = "cases.conll"
    (tmp_path / "cases.conll").write_text("v nothing\n\nw nothing\n", encoding="utf-8")
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params.as_dict()))
    strict = ("--set", "weigh.drift_limit=1e-9", "--set", "promote.on_drift=refuse")
    code, out, err = espalier("-C", tmp_path, "run", "--direct", *strict)
    assert code == 3, err
    lines = out.splitlines()
    at = lines.index("refused: 2 reasons against it:")
    assert lines[at + 1].startswith("  - 2 of 2 cases that must not break") and lines[at + 2].startswith(
        "  - the pool has"
    )
    assert out.count("must not break") == 1 and "must not break" not in err
    assert espalier("-C", tmp_path, "run", "--direct", "--quiet", "--json", *strict)[0] == 3
    assert espalier("-C", tmp_path, "run", "--direct", "--set", "ingest.source=conll")[0] == 1


@pytest.mark.parametrize("command", ["run", "promote"])
def test_the_codes_are_in_the_help(espalier, command):
    code, out, _ = espalier(command, "--help")
    assert code == 0 and "3 it was refused and the champion stays" in " ".join(out.split())


# ---- plan, promote


def test_plan(espalier, project):
    before = tree(project)
    code, out, _ = espalier("-C", project, "plan", "--json")
    found = json.loads(out)
    assert code == 0 and found["features"] == 318 and found["bytes"]["all"] > 0
    code, out, _ = espalier("-C", project, "plan")
    assert code == 0 and "180 sequences, 900 positions, 6 labels, 12 observations" in out and "memory" in out
    assert tree(project) == before


def test_promote_and_force(espalier, project):
    assert espalier("-C", project, "promote", "--quiet")[0] == 0
    model = load_model(project / store.CANDIDATE)
    model.theta = -model.theta
    model.save(project / store.CANDIDATE)
    champion = (project / store.CHAMPION).read_bytes()
    code, out, err = espalier("-C", project, "promote")
    assert code == 3 and "is worse than the champion" in out and "is worse" not in err
    reasons = store.read_jsonl(project / store.DECISIONS)[-1]["reasons"]
    assert all(out.count(reason) == 1 for reason in reasons)
    assert (project / store.CHAMPION).read_bytes() == champion
    code, _, err = espalier("-C", project, "promote", "--force")
    assert code == 1 and "--force needs --reason TEXT" in err
    code, _, err = espalier("-C", project, "promote", "--reason", "no")
    assert code == 1 and "add --force, or leave it out" in err
    code, out, _ = espalier("-C", project, "promote", "--force", "--reason", "it must", "--by", "anna")
    assert code == 0 and out.startswith(
        "promoted: forced by anna: it must; against it:\n  - is worse than the champion: "
    )
    assert [row["forced"] for row in store.read_jsonl(project / store.DECISIONS)] == [False, False, True]


# ---- tag


EXPECTED = "v\tA\nx\tC\n\nw\tB\n"  # the likely states of the simulated source


def test_tag_a_file_compressed_or_not_and_standard_input(espalier, promoted, tmp_path):
    text = b"v\nx\n\nw"
    (tmp_path / "plain").write_bytes(text)
    (tmp_path / "packed.gz").write_bytes(gzip.compress(text))
    for file in ("plain", "packed.gz"):
        assert espalier("-C", promoted, "tag", tmp_path / file)[:2] == (0, EXPECTED)
    assert espalier("-C", promoted, "tag", stdin=text)[:2] == (0, EXPECTED)
    assert espalier("-C", promoted, "tag", "-", stdin=b"v\r\nx\r\n\r\nw\r\n")[:2] == (0, EXPECTED)


def test_tag_words_and_separators(espalier, promoted):
    assert espalier("-C", promoted, "tag", "--words", stdin=b"vx\nw\n")[:2] == (0, "vx\tA C\nw\tB\n")
    assert espalier("-C", promoted, "tag", "--separator", ",", stdin=b"v,1\n")[:2] == (0, "v,1,A\n")


def test_tag_prefers_the_champion_and_takes_the_model_it_is_given(espalier, promoted):
    model = load_model(promoted / store.CANDIDATE)
    model.labels = [label.lower() for label in model.labels]
    model.save(promoted / store.CHAMPION)
    assert espalier("-C", promoted, "tag", stdin=b"v\n")[1] == "v\ta\n"
    assert espalier("-C", promoted, "tag", "--model", promoted / store.CANDIDATE, stdin=b"v\n")[1] == "v\tA\n"


@pytest.mark.parametrize(
    ("stdin", "expected"),
    [
        (b"", "standard input: holds no token"),
        (b"v\nz z\n", "line 2 of standard input has 2 columns"),
        (b"v\n\xff\n", "line 2 of standard input: byte 0xff is not UTF-8"),
    ],
)
def test_tag_refuses_bad_input(espalier, promoted, stdin, expected):
    code, out, err = espalier("-C", promoted, "tag", stdin=stdin)
    assert (code, out) == (1, "") and err.startswith("espalier: ") and expected in err


def test_tag_without_a_model_or_a_file(espalier, promoted, tmp_path):
    code, _, err = espalier("-C", tmp_path, "tag", stdin=b"v\n")
    assert code == 1 and "champion.model: there is no champion here; `espalier run` trains one" in err
    code, _, err = espalier("-C", promoted, "tag", tmp_path / "nowhere.txt")
    assert code == 1 and "nowhere.txt: there is no such file" in err


# ---- inspect


def test_inspect_as_json(espalier, promoted):
    code, out, _ = espalier("-C", promoted, "inspect", "--json", "--top", "3", "--label", "A")
    found = json.loads(out)
    model = load_model(promoted / store.CANDIDATE)
    assert code == 0 and found["labels"] == list("ABCDEF") and found["templates"] == model.templates
    assert found["active"] == len(model.theta) and found["info"]["solver"] == "owlqn"
    assert len(found["weights"]) == 3 and {row["label"] for row in found["weights"]} == {"A"}
    sizes = [abs(row["weight"]) for row in found["weights"]]
    assert sizes == sorted(sizes, reverse=True)


def test_inspect_for_people(espalier, project):
    code, out, _ = espalier("inspect", project / store.CANDIDATE, "--top", "2")
    lines = out.strip().split("\n")
    assert code == 0 and "active weights, 6 labels, 3 templates" in lines[0]
    assert all("when" in line for line in lines[-2:]) and any("stop_reason" in line for line in lines)


def test_inspect_an_unknown_label(espalier, promoted):
    code, out, err = espalier("-C", promoted, "inspect", "--label", "Q")
    assert (code, out) == (1, "") and err == "espalier: label 'Q' is not one of the model's: A, B, C, D, E, F\n"


@pytest.mark.parametrize("count", ["-1", "many", "1.5"])
def test_inspect_counts_in_whole_numbers(project, count, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["-C", str(project), "inspect", f"--top={count}"])
    assert ended.value.code == 2 and "not a whole number of at least 0" in capsys.readouterr().err


# ---- how it ends


def test_an_interrupt_is_130(espalier, project, monkeypatch):
    def interrupt(args):
        raise KeyboardInterrupt

    monkeypatch.setitem(cli.COMMANDS, "plan", interrupt)
    code, _, err = espalier("-C", project, "plan")
    assert code == 130 and err == "espalier: interrupted; earlier artefacts are as they were\n"


def test_a_mistake_of_our_own_is_not_hidden(espalier, project, monkeypatch):
    def mistake(args):
        raise ZeroDivisionError

    monkeypatch.setitem(cli.COMMANDS, "plan", mistake)
    with pytest.raises(ZeroDivisionError):
        espalier("-C", project, "plan")


def test_an_error_goes_to_standard_error_without_a_traceback(tmp_path):
    done = subprocess_run("-C", tmp_path, "plan", text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("espalier: ") and "params.yaml: there is no parameter file" in done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("top", [1, 100_000])
def test_a_reader_that_goes_away_is_no_traceback(project, top):
    """`espalier inspect | head -1`: with little output the pipe is found broken only when it is flushed."""
    command = [sys.executable, "-m", "espalier.flows.cli", "inspect", str(project / store.CANDIDATE), "--top", str(top)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    process.stdout.close()
    err = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait() == 1 and err == ""


def test_a_place_that_cannot_be_written_is_named(espalier, tmp_path):
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(small_params().as_dict()))
    (tmp_path / "data").write_text("a file where a folder must be")
    code, _, err = espalier("-C", tmp_path, "stage", "ingest", "--quiet")
    assert code == 1 and err.startswith("espalier: ") and "data" in err
    assert (tmp_path / "data").read_text() == "a file where a folder must be"


# ---- bad input stops before anything is written


CONLL = Ingest(source="conll", path="raw.conll", limit=None)
GOOD = "".join(f"{a}{b} X\n{b} Y\n\n" for a in "abcdefgh" for b in "abcdefgh").encode()  # 192 lines


def conll_params(**ingest):
    data = small_params().as_dict()
    return data | {"ingest": vars(CONLL) | ingest}


BAD_FILES = {
    "ragged columns": (GOOD + b"ab X\nb\n", {}, ["line 194 of ", "raw.conll has 1 column", "check for a missing tab"]),
    "a label missing": (b"a\tX\nb\t\n", {"separator": "\t"}, ["line 2 of ", "raw.conll has no label: fill it in"]),
    "an empty file": (b"", {}, ["raw.conll: holds no token; expected one token a line"]),
    "only blank lines": (b"\n \n\t\r\n\n", {}, ["raw.conll: holds no token"]),
    "not UTF-8": (GOOD + b"na\xefve X\n", {}, ["line 193 of ", "raw.conll: byte 0xef is not UTF-8; convert the file"]),
    "damaged gzip": (
        gzip.compress(GOOD, mtime=0)[:-12],
        {},
        ["raw.conll: the gzip data is damaged", "fetch or compress it again"],
    ),
    "no training data left": (b"a X\n", {}, ["no sequence is left for", "give more data or change the shares"]),
    "one column": (b"a\nb\n", {}, ["raw.conll has 1 column: expected at least one input column and a label"]),
    "no path": (GOOD, {"path": None}, ["ingest.path is null: name the labelled file"]),
    "label column": (GOOD, {"label_column": 5}, ["ingest.label_column is 5, but ", "raw.conll has 2 columns"]),
    "missing file": (GOOD, {"path": "nowhere.conll"}, ["ingest.path is 'nowhere.conll': there is no such file in "]),
    "a folder": (GOOD, {"path": "data"}, ["data: cannot be read (Is a directory)"]),
    "missing test file": (GOOD, {"test_path": "t.conll"}, ["ingest.test_path is 't.conll': there is no such file in "]),
    "other columns": (
        GOOD,
        {"test_path": "other"},
        ["other has 3 input columns, the training file 1: expected the same"],
    ),
}


@pytest.mark.parametrize("driver", [["stage", "ingest"], ["run", "--direct"]], ids=["stage", "run"])
@pytest.mark.parametrize("case", sorted(BAD_FILES))
def test_bad_data_changes_nothing(espalier, project, case, driver):
    """Earlier tokens, features, models and reports are as they were, to the byte."""
    data, options, expected = BAD_FILES[case]
    (project / "raw.conll").write_bytes(data)
    (project / "other").write_text("a b c X\n")
    (project / "params.yaml").write_text(yaml.safe_dump(conll_params(**options)))
    before = tree(project)
    code, out, err = espalier("-C", project, *driver, "--quiet")
    assert code == 1 and out == ""
    assert err.startswith("espalier: ") and "Traceback" not in err
    assert all(text in err for text in expected), err
    state = ("dvc.yaml", ".espalier/", store.HISTORY)  # of parameters and runs, failed ones too: no artefacts
    after = {path: content for path, content in tree(project).items() if not path.startswith(state)}
    assert after == before


BAD_PARAMETERS = {
    "unknown parameter": ("crf: {rho3: 1}", ["params.yaml: unknown parameter 'crf.rho3': did you mean 'crf.rho"]),
    "wrong type": ("crf: {rho1: much}", ["params.yaml: crf.rho1 is 'much', expected a number"]),
    "bad YAML": ("train: [", ["params.yaml, line 1: not readable as YAML"]),
}


@pytest.mark.parametrize(
    "command", [["run", "--direct"], ["stage", "ingest"], ["plan"], ["promote"]], ids=lambda c: c[0]
)
@pytest.mark.parametrize("case", sorted(BAD_PARAMETERS))
def test_bad_parameters_change_nothing(espalier, project, case, command):
    text, expected = BAD_PARAMETERS[case]
    (project / "params.yaml").write_text(text)
    before = tree(project)
    code, out, err = espalier("-C", project, *command)
    assert code == 1 and out == "" and all(part in err for part in expected), err
    assert tree(project) == before


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("[U, 'U:%x[0,4]']", "template `U:%x[0,4]` points at column 4, the data has column 0"),
        ("[U, 'U:%x[0]']", "template.lines, line 2: `U:%x[0]` has a % that is no macro; expected %x[row,col]"),
        ("['Q:%x[0,0]']", "template.lines, line 1: `Q:%x[0,0]` begins with 'Q', expected U, B, * or T"),
    ],
)
def test_bad_templates_change_nothing(espalier, project, lines, expected):
    before = tree(project)
    code, _, err = espalier("-C", project, "stage", "template", "--quiet", "--set", f"template.lines={lines}")
    assert code == 1 and expected in err
    assert tree(project) == before


READS = {
    "template": [store.TOKENS.format(split) for split in store.SPLITS],
    "weigh": [store.MANIFEST, store.VOCABULARY, "data/features/train/00000.arrow", store.TOKENS.format("unlabelled")],
    "train": [store.MANIFEST, store.VOCABULARY, store.WEIGHTS, "data/features/dev/00000.arrow"],
    "evaluate": [store.CANDIDATE, store.TRACE, store.MANIFEST, store.TOKENS.format("test")],
}


@pytest.mark.parametrize("damage", ["cut", "foreign", "folder", "gone"])
@pytest.mark.parametrize(("stage", "path"), [(stage, path) for stage, paths in READS.items() for path in paths])
def test_a_damaged_or_missing_artefact_changes_nothing(espalier, project, stage, path, damage):
    whole = (project / path).read_bytes()
    (project / path).unlink()
    if damage == "cut":
        (project / path).write_bytes(whole[: len(whole) // 2])
    elif damage == "foreign":
        (project / path).write_bytes(b"something else altogether\n" * 20)
    elif damage == "folder":
        (project / path).mkdir()
    before = tree(project)
    code, out, err = espalier("-C", project, "stage", stage, "--quiet")
    assert code == 1 and out == "" and err.startswith("espalier: ") and path in err
    assert "`espalier " in err or "train it again" in err  # the remedy
    assert tree(project) == before


def test_the_check_before_a_run_names_the_parameter(project):
    from espalier.flows.pipeline import Project

    opened = Project.open(project, None, ["evaluate.reference=nowhere.model"])
    with pytest.raises(EspalierError, match="evaluate.reference is 'nowhere.model': there is no such file in "):
        opened.check()


# ---- convert and profile


def test_convert_changes_format_and_scheme(espalier, tmp_path):
    (tmp_path / "a.txt").write_text("He PRP B-NP\nran VBD B-VP\naway RB I-VP\n\nOh UH O\n")
    code, out, err = espalier("convert", tmp_path / "a.txt", tmp_path / "new" / "a.jsonl.gz", "--scheme", "bioes")
    assert (code, err) == (0, "") and out == f"{tmp_path / 'new' / 'a.jsonl.gz'}: 2 sequences, 4 tokens\n"
    lines = gzip.decompress((tmp_path / "new" / "a.jsonl.gz").read_bytes()).decode().splitlines()
    assert json.loads(lines[0]) == {"tokens": [["He", "PRP"], ["ran", "VBD"], ["away", "RB"]],
                                    "labels": ["S-NP", "B-VP", "E-VP"]}  # fmt: skip
    code, _, err = espalier(
        "convert", tmp_path / "new" / "*.gz", tmp_path / "b.conll", "--from", "jsonl", "--scheme", "iob2"
    )
    assert (code, err) == (0, "")
    assert (tmp_path / "b.conll").read_text() == "He\tPRP\tB-NP\nran\tVBD\tB-VP\naway\tRB\tI-VP\n\nOh\tUH\tO\n\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a.txt", "b.xyz"], "b.xyz: the name ends in '.xyz', which tells no format"),
        (["a.txt", "b.parquet"], "format 'parquet' cannot be written: choose one of conll, jsonl, arrow"),
        (["a.txt", "b.jsonl", "--from", "csv"], "format 'csv' is not known"),
        (["a.txt", "b.jsonl", "--scheme", "bios"], "scheme 'bios' is not known"),
        (["a.txt", "b.jsonl", "--scheme", "bioes"], "line 1 of a.txt: label 'X' is not one of"),
        (["none.txt", "b.jsonl"], "none.txt: there is no such file"),
    ],
)
def test_convert_refuses_and_writes_nothing(espalier, tmp_path, monkeypatch, arguments, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a X\n")
    code, out, err = espalier("convert", *arguments)
    assert (code, out) == (1, "") and expected in err and "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_profile_of_a_file(espalier, tmp_path):
    (tmp_path / "a.txt").write_text("a B-X\nb O\n\na B-X\nb B-X\n\nc _\n")
    code, out, _ = espalier("profile", tmp_path / "a.txt", "--json")
    found = json.loads(out)
    assert code == 0 and found["sequences"] == 3 and found["unknown_labels"] == 0
    assert found["findings"]["marks"]["examples"] == [{"place": f"line 7 of {tmp_path / 'a.txt'}", "text": "_"}]
    found = json.loads(espalier("profile", tmp_path / "a.txt", "--json", "--unknown", "_")[1])
    assert found["scheme"] == "iob2" and found["unknown_labels"] == 1 and found["findings"]["marks"]["count"] == 0
    code, out, _ = espalier("profile", tmp_path / "a.txt")
    assert code == 0 and f"line 4 of {tmp_path / 'a.txt'}: as in line 1 of" in out


def test_profile_of_the_source_of_a_project(espalier, tmp_path):
    (tmp_path / "params.yaml").write_text("ingest: {source: files, path: raw/*.conll}\n")
    (tmp_path / "raw").mkdir()
    for name in ("a", "b"):
        (tmp_path / "raw" / f"{name}.conll").write_text("x A\ny B\n")
    code, out, _ = espalier("-C", tmp_path, "profile", "--json")
    assert code == 0 and json.loads(out)["tokens"] == 4
    (tmp_path / "raw" / "a.conll").write_text("x _\ny B\n")
    marked = ("-C", tmp_path, "profile", "--json", "--set", "ingest.unknown=_")
    assert json.loads(espalier(*marked)[1])["unknown_labels"] == 1
    assert json.loads(espalier(*marked, "--unknown", "")[1])["unknown_labels"] == 0
    code, _, err = espalier("-C", tmp_path, "profile", "--unknown", "_", "--set", "ingest.source=simulated")
    assert code == 1 and "ingest.source is simulated: it is no file" in err
    code, out, _ = espalier("-C", tmp_path, "profile", "--json", "--set", "ingest.source=simulated")
    assert code == 0 and json.loads(out)["files"] == ["simulated"]
