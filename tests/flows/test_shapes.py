"""Artefacts that are valid JSON and not what they should be: an error with file and remedy, never a traceback."""

import copy
import json
import os
import shutil
from collections import Counter
from contextlib import suppress

import pytest
from stage_runs import run_stages, small_params

from espalier.engine.errors import EspalierError
from espalier.flows import findings, records
from espalier.flows.commands.running import summary
from espalier.flows.doctor import project as examine
from espalier.flows.pipeline import Project
from espalier.tasks import report, shapes, store
from espalier.tasks.judging import news
from espalier.tasks.keeping import archive, history
from espalier.tasks.pages import path_page
from espalier.tasks.progress import Progress
from espalier.tasks.promote import main as promote

STAGES = ("ingest", "template", "weigh", "train", "evaluate", "report", "promote")
WRONG = (10**400, "\ud800", [1], {}, None, 1e999, -1, True, 0, "x", [])
USED = 2  # of the wrong values at a place that a reader takes
TEXTS = ("", "null", "3", "[]", "{}", '"x"', "[" * 100_000, '{"a":' * 5000, "{", "\x00", "NaN", "[1, 2", "1" * 5000)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A project with every artefact there is, its champion from an earlier run."""
    root, params = tmp_path_factory.mktemp("project"), small_params()
    (root / "params.yaml").write_text(PARAMS)
    params.crf.rho1 = "auto"
    run_stages(root, params, *STAGES)
    seconds = dict.fromkeys(STAGES, 1.0)
    for rho2 in (0.001, 5.0):
        params.crf.rho2 = rho2
        run_stages(root, params, "train", "evaluate", "report")
        decision = promote(root, params, Progress(), force=True, by="someone", why="a test")
        history.append(root, history.entry_of(root, params, decision["time"], seconds, decision=decision))
    failed = history.entry_of(root, params, history.now(), {}, failed=("train", "failed", "no disk"))
    history.append(root, failed | {"warnings": ["late"]})
    news.remember(root)
    assert news.compare(root) is not None
    store.write_json(root / store.MARKER, {"time": history.now(), "pid": 1})
    return root


PARAMS = "ingest: {source: simulated, limit: 300}\npromote: {rounds: 100}\n"


def read_kept_decision(root):
    return store.read_decision(archive.folder(root, archive.names(root)[-1]) / archive.DECISION_FILE)


# Each artefact, the reader of it, and whether it is a list of lines.
READERS = {
    store.METRICS: store.read_metrics, store.PROFILE: store.read_profile, store.CLUSTERS: store.read_clusters,
    store.MANIFEST: store.read_manifest, store.TRACE: store.read_trace, store.TIMING: store.read_timing,
    store.DECISIONS: store.read_decisions, store.HISTORY: store.read_history, store.RHO1_PATH: store.read_path,
    store.NEWS: store.read_news, store.KNOWN: store.read_known_version, store.MARKER: store.read_marker,
    "kept": read_kept_decision,
}  # fmt: skip


def place_of(root, name):
    return archive.folder(root, archive.names(root)[-1]) / archive.DECISION_FILE if name == "kept" else root / name


def roll_back(root):
    archive.roll_back(root, archive.earlier_champion(root, "1"), "someone", None)


def read_all_marks(root):
    project = Project(root, small_params())
    records._record_killed(project, lambda text: None)


COMMANDS = {
    "report": lambda root: report.main(root, small_params(), Progress()),
    "history": lambda root: (history.as_text(history.read(root)), history.section(root)),
    "restore": lambda root: archive.restore(root, history.find(root, archive.names(root)[-1])["id"], root / "there"),
    "summary": lambda root: summary(Project(root, small_params())),
    "path": lambda root: path_page.section(root),
    "findings": lambda root: (
        findings.profile_table(root), findings.report_text(root),
        findings.decision_text(store.last_decision(root)),
    ),
    "news": lambda root: (news.text(news.read(root)), findings.news_table(news.read(root) or {}), news.compare(root)),
    "doctor": lambda root: examine(root),
    "killed": read_all_marks,
    "rollback": roll_back,
    "promote": lambda root: promote(root, small_params(), Progress()),
}  # fmt: skip


def places(value, at=()):
    """The way to every value inside a value; of a list the first item."""
    yield at
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*at, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*at, 0))


def put(value, at, new):
    """The value with another one at a place; without it where `new` is an Ellipsis."""
    if not at:
        return new
    value = copy.deepcopy(value)
    inside = value
    for key in at[:-1]:
        inside = inside[key]
    if new is ...:
        del inside[at[-1]]
    else:
        inside[at[-1]] = new
    return value


def damaged_versions(text, by_line):
    """(place, text of JSON that is not what it should be)."""
    yield from ((None, text) for text in TEXTS)
    rows = [json.loads(line) for line in text.split("\n") if line] if by_line else [json.loads(text)]
    for at in places(rows[-1]):
        for wrong in (*WRONG, *([...] if at else [])):
            yield at, "\n".join(map(json.dumps, [*rows[:-1], put(rows[-1], at, wrong)]))


@pytest.mark.parametrize("name", READERS)
def test_what_a_reader_takes_every_command_can_use(finished, tmp_path, name, request):
    """`make test` tries the commands with each fifth of what is taken."""
    each, taken = 5 if request.config.getoption("--examples") else 1, 0
    path = place_of(finished, name)
    before = path.read_text(encoding="utf-8")
    refused, used = 0, Counter()
    try:
        for at, text in damaged_versions(before, name.endswith(".jsonl")):
            path.write_text(text, encoding="utf-8")
            try:
                READERS[name](finished)
            except EspalierError as error:
                refused += 1
                assert str(path) in str(error) and ";" in str(error), "file and remedy"
                assert len(str(error)) < 1000 + len(str(path)) and "\n" not in str(error)
            else:
                used[at] += 1
                taken += at is None or used[at] <= USED
                if (at is None or used[at] <= USED) and taken % each == 0:
                    use(finished, tmp_path, text)
    finally:
        path.write_text(before, encoding="utf-8")
    assert refused > 15


def copied(project, tmp_path):
    """A copy of links: artefacts are replaced, never changed in place."""
    root = tmp_path / "copy"
    shutil.rmtree(root, ignore_errors=True)
    return shutil.copytree(project, root, copy_function=os.link)


def use(project, tmp_path, text):
    """All commands on a copy of the project: none ends otherwise than with our error."""
    root = copied(project, tmp_path)
    for command, run in COMMANDS.items():  # those that only read come first
        try:
            run(root)
        except EspalierError:
            pass
        except Exception as error:
            raise AssertionError(f"{command} with {text[-3000:]}") from error


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("text", ["null", "[" * 100_000])
def test_every_command_is_told_of_what_is_damaged(finished, tmp_path, name, text):
    root = copied(finished, tmp_path)
    path = place_of(root, name)
    path.unlink()
    path.write_text(text)
    for run in COMMANDS.values():
        with suppress(EspalierError):
            run(root)


def test_all_commands_work_on_what_is_sound(finished, tmp_path):
    root = copied(finished, tmp_path)
    for run in COMMANDS.values():
        run(root)


@pytest.mark.parametrize(
    ("value", "shape", "expected"),
    [
        ({"a": 1}, {"a": shapes.TEXT}, "a is 1, expected a text"),
        ({}, {"a": shapes.TEXT}, "a is missing"),
        ({"a": None}, {"a?": shapes.TEXT}, "a is None, expected a text"),
        ([], {"a": shapes.TEXT}, "it is [], expected an object"),
        ({"a": [{"b": -1}]}, {"a": [{"b": shapes.COUNT}]}, "a[0].b is -1, expected a whole number from 0 on"),
        ({"a": True}, shapes.Table(shapes.NUMBER), "a is True, expected a number"),
        ({"a": float("nan")}, shapes.Table(shapes.NUMBER), "a is nan, expected a number"),
        ({"a": "noon"}, {"a": shapes.TIME}, "a is 'noon', expected a time such as"),
        ({"b": "x"}, {"a?": shapes.TEXT, "*": shapes.COUNT}, "b is 'x', expected a whole number"),
    ],
)
def test_a_fault_has_its_place(value, shape, expected):
    assert shapes.fault(value, shape).startswith(expected)


def test_what_may_be_there_may_be_missing():
    shape = {"a?": shapes.Maybe([shapes.TEXT]), "b": shapes.Table({"c": shapes.TRUTH})}
    for value in ({"b": {}}, {"a": None, "b": {"x": {"c": True}}}, {"a": ["x"], "b": {}, "more": 3}):
        assert shapes.fault(value, shape) is None


def test_a_damaged_history_says_what_helps(tmp_path):
    path = tmp_path / store.HISTORY
    path.parent.mkdir(parents=True)
    path.write_text('{"id": 3}\n')
    with pytest.raises(EspalierError, match=r"history\.jsonl: damaged .*line 1: .* restore it with `dvc checkout`"):
        history.read(tmp_path)
