"""The history: what an entry says, how entries are found, and the section and the table that show them."""

import re
from html.parser import HTMLParser

import pytest
from stage_runs import small_params

from espalier.engine.errors import EspalierError
from espalier.tasks import store
from espalier.tasks.keeping import history
from espalier.tasks.pages import page
from espalier.tasks.params import Params

SECONDS = {"ingest": 1.0, "template": 2.0, "weigh": 3.0, "train": 4.0, "evaluate": 5.0, "report": 6.0, "promote": 7.0}
DECISION = {"id": "20260102-030405-aabbccddeeff", "promoted": True, "forced": False, "reason": "better",
            "warnings": ["it rains"]}  # fmt: skip


def run(number, **more):
    """An entry as a retraining of the second of January writes it."""
    return {
        "id": f"20260102-0304{number:02d}-{number:012x}", "kind": "retrain",
        "time": f"2026-01-02T03:04:{number:02d}+00:00",
        "outcome": "promoted", "parameters": {}, "changed": {}, "seconds": {"train": 2.0, "promote": 0.5},
        "token_error": 0.1 + number / 1000, "sequence_error": 0.4, "active": 1000 - number, "bytes": 20_000,
        "iterations": 30, "drift": 0.01, "drift_limit": 0.1, "drifted": False, "reason": "not worse",
        "model_sha256": f"{number:064x}",
    } | more  # fmt: skip


# ---- entries


def test_an_entry_has_what_each_step_of_the_run_has_found(finished_project):
    entry = history.entry_of(finished_project, small_params(), "2026-01-02T03:04:05+00:00", SECONDS, decision=DECISION)
    metrics, clusters = (store.read_json(finished_project / path) for path in (store.METRICS, store.CLUSTERS))
    assert entry["id"] == DECISION["id"] and entry["outcome"] == "promoted" and entry["seconds"] == SECONDS
    assert entry["reason"] == "better" and entry["warnings"] == ["it rains"]
    assert {name: entry[name] for name in ("token_error", "sequence_error", "log_loss", "iterations", "features")} == {
        name: metrics[name] for name in ("token_error", "sequence_error", "log_loss", "iterations", "features")
    }
    assert entry["active"] == metrics["active_unigram"] + metrics["active_start"] + metrics["active_bigram"]
    assert entry["bytes"] == (finished_project / store.CANDIDATE).stat().st_size
    assert entry["model_sha256"] == store.file_hash(finished_project / store.CANDIDATE)
    assert entry["drift"] == clusters["jensen_shannon"] and entry["drifted"] is clusters["drifted"]
    assert entry["data_version"] == store.read_manifest(finished_project)["data_version"]
    assert entry["parameters"]["train.max_iterations"] == 15 and "crf.rho1" not in entry["parameters"]


def test_a_failed_run_says_nothing_of_what_an_earlier_run_has_left(finished_project):
    """Metrics and model lie there, but they are of the run before."""
    done = {name: SECONDS[name] for name in ("ingest", "template")}
    failed = ("weigh", "failed", "no space left")
    entry = history.entry_of(finished_project, small_params(), "2026-01-02T03:04:05+00:00", done, failed=failed)
    assert (entry["outcome"], entry["step"], entry["error"]) == ("failed", "weigh", "no space left")
    assert re.fullmatch(r"20260102-030405-[0-9a-f]{12}", entry["id"]) and "data_version" in entry
    assert not {"token_error", "active", "bytes", "model_sha256", "drift", "iterations", "reason"} & set(entry)


def test_parameters_that_differ_from_the_run_before_are_told(tmp_path):
    first, second = Params(), Params()
    first.crf.rho1 = 2.0
    second.crf.solver, second.notify.webhook = "pqn", "http://secret"
    for params in (first, second):
        history.append(tmp_path, run(1, id=params.crf.solver, parameters=history.unusual(params)))
    assert [row["changed"] for row in history.read(tmp_path)] == [
        {}, {"crf.rho1": [2.0, 0.5], "crf.solver": ["auto", "pqn"]},
    ]  # fmt: skip
    assert "secret" not in (tmp_path / store.HISTORY).read_text(encoding="utf-8")


def test_ids_stay_apart_within_one_second(tmp_path):
    names = []
    for _ in range(3):
        names.append(history.new_id(tmp_path, "2026-01-02T03:04:05+00:00", "ab" * 32))
        history.append(tmp_path, run(1, id=names[-1]))
    assert names == [f"20260102-030405-abababababab{end}" for end in ("", "-2", "-3")]


def test_an_entry_is_found_by_its_id_or_the_hash_of_its_model(tmp_path):
    for row in (run(1), run(2), run(3, model_sha256=f"{2:064x}"), run(4, outcome="failed", model_sha256=None)):
        history.append(tmp_path, row)
    assert history.find(tmp_path, run(1)["id"])["token_error"] == pytest.approx(0.101)
    assert history.find(tmp_path, "20260102-030402")["token_error"] == pytest.approx(0.102)
    assert history.find(tmp_path, f"{2:064x}")["id"] == run(3)["id"], "the newest with this model"
    with pytest.raises(EspalierError, match="'2026' is the beginning of several retrainings .*: write more of it"):
        history.find(tmp_path, "2026")
    with pytest.raises(EspalierError, match="no retraining 'f00' in .*history.jsonl: `espalier history` lists them"):
        history.find(tmp_path, "f00")


def test_an_entry_can_be_amended_and_the_others_stay(tmp_path):
    for number in (1, 2, 3):
        history.append(tmp_path, run(number))
    history.amend(tmp_path, run(2) | {"warnings": ["not pushed"]})
    assert [row.get("warnings") for row in history.read(tmp_path)] == [None, ["not pushed"], None]


# ---- the terminal


def test_the_text_has_a_line_for_each_run_with_why_and_what_changed_below():
    rows = [run(1), run(2, outcome="failed", step="ingest", error="line 2 is bad", token_error=None, seconds={}),
            run(3, f1=0.905, drifted=True, changed={"crf.rho1": [0.5, None]}, warnings=["not pushed"])]  # fmt: skip
    lines = history.as_text(rows).split("\n")
    heads = ["id", "outcome", "F1", "token error", "active", "kB", "iterations", "seconds", "drift"]
    assert re.split(r" {2,}", lines[0]) == heads
    assert lines[1].split() == [run(1)["id"], "promoted", "–", "10.10%", "999", "20.0", "30", "2.5", "0.0100"]
    assert lines[2] == "    not worse"
    assert lines[3].split()[1:3] == ["failed", "–"] and lines[4] == "    ingest: line 2 is bad"
    assert lines[5].split()[-2:] == ["0.0100", "!"] and "90.50%" in lines[5]
    assert lines[6:] == ["    crf.rho1: 0.5 → null", "    not worse", "    warning: not pushed"]


def test_what_a_run_is_judged_by_comes_first_with_its_interval_and_reasons_once():
    judged = {"measure": "f1", "f1": 0.9, "f1_low": 0.88, "f1_high": 0.92}
    refused = {"outcome": "refused", "reason": "a; b", "reasons": ["a", "b"], "forced": False}
    lines = history.as_text([run(1), run(2, **judged, **refused)]).split("\n")
    assert "  90.00% (88.00% to 92.00%)  " in lines[3] and lines[3].index("(88") < lines[3].index("10.20%")
    assert lines[4:] == ["    2 reasons against it:", "    - a", "    - b"]
    spelt = history.as_text([run(1, measure="edit_error", edit_error=0.07, edit_error_low=0.06, edit_error_high=0.08)])
    assert "edit error  token error" in spelt and "7.00% (6.00% to 8.00%)" in spelt
    drawn = history.body([run(1, f1=0.89), run(2, **judged, **refused)])
    assert drawn.index("history-f1") < drawn.index("history-error")
    assert "90.00%<small>88.00% to 92.00%</small>" in drawn and "<ul><li>a</li><li>b</li></ul>" in drawn


# ---- the page


class Balanced(HTMLParser):
    """Fails on an element that is closed by another's end; remembers ids and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.words = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in page.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_without_a_history_there_is_no_section(tmp_path):
    assert history.section(tmp_path) == "" and history.read(tmp_path) == []


@pytest.mark.parametrize("amount", [1, 2, 130])
def test_the_section_draws_trends_and_lists_the_latest_runs(tmp_path, amount):
    rows = [run(i % 60, id=f"r{i}") for i in range(amount)]
    store.write_jsonl(tmp_path / store.HISTORY, rows)
    found = Balanced(history.section(tmp_path))
    assert len(found.ids) == len(set(found.ids)) and found.ids[0] == "history"
    for name in ("error", "size", "time", "drift"):
        assert (f"history-{name}-t" in found.ids) == (amount > 1), "one point is no trend"
    assert "history-f1-t" not in found.ids
    text = " ".join(found.words)
    assert f"{amount} retraining{'s' if amount > 1 else ''} so far: {amount} promoted." in text
    assert text.count("2026-01-02") == min(amount, history.SHOWN_ROWS)
    if amount == 130:
        assert "Retraining 31 to 130" in text and f"(of {amount})" in text


def test_a_history_of_failures_alone_has_a_table_and_no_chart(tmp_path):
    failed = {"kind": "retrain", "id": "a", "time": "2026-01-02T03:04:05+00:00", "outcome": "failed", "seconds": {},
              "step": "ingest", "error": "<script>alert(1)</script>"}  # fmt: skip
    history.append(tmp_path, failed)
    text = history.section(tmp_path)
    assert "<svg" not in text and "<script" not in text and "&lt;script&gt;" in text
    assert "1 failed" in text


def test_a_damaged_history_is_told_in_the_section_and_an_error_elsewhere(tmp_path):
    history.append(tmp_path, run(1))
    path = tmp_path / store.HISTORY
    path.write_bytes(path.read_bytes()[:-9])
    assert "damaged" in history.section(tmp_path)
    with pytest.raises(EspalierError, match="history.jsonl: damaged"):
        history.read(tmp_path)
