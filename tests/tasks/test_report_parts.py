"""Parts of the report that tell of the run and of slices: what was decided, what changed, entities, labels, colours."""

import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from test_report import CHUNK, HOSTILE, MANIFEST, METRICS, Document, document, inputs, predictions, write_artefacts

from espalier.engine.labels.spans import Span
from espalier.engine.runtime import compile_target
from espalier.tasks import report, store
from espalier.tasks.judging.slices import Rate
from espalier.tasks.pages import page
from espalier.tasks.params import Params
from espalier.tasks.progress import Progress
from espalier.tasks.report import confusions, entities, glance, record, slices
from espalier.tasks.report.record import Run

DECISION = {
    "promoted": True, "reason": "not worse than the champion", "difference": -0.0123, "low": -0.02, "high": -0.004,
    "champion_error": 0.3456, "challenger_error": 0.3333, "forced": False, "time": "2026-11-17T03:15:02+00:00",
}  # fmt: skip
BEFORE = {
    "kind": "retrain", "id": "a", "time": "2026-11-16T03:15:02+00:00", "outcome": "promoted",
    "token_error": 0.35, "active": 6000, "iterations": 5, "data_version": "0" * 64,
    "model_sha256": "1" * 64, "parameters": {"crf.rho1": 0.2}, "seconds": {"train": 9.0},
}  # fmt: skip


def look(**changes) -> str:
    return document(**changes).section("glance")


# ---- at a glance


@pytest.mark.parametrize(
    ("change", "word", "style"),
    [({}, "Promoted", "good"), ({"promoted": False}, "Refused", "bad"), ({"forced": True}, "Promoted by force", "bad")],
)
def test_the_decision_stands_on_top_with_both_errors(change, word, style):
    doc = document(run=Run(decision=DECISION | change))
    text = doc.section("glance")
    assert word in text and "Not worse than the champion." in text
    for told in ("33.33%", "34.56%", "−1.23percentage points", "between −2.00 points and −0.40 points"):
        assert told in text
    assert doc.all("div", "verdict")[0][0]["class"] == f"verdict {style}"
    (badge,) = doc.texts("a", "badge")
    assert badge.endswith(f"{word}: phoneme error 33.33%, champion 34.56%")
    assert [a["id"] for a, _ in doc.all("section")][0] == "glance"


def test_the_top_says_whose_run_it_was_and_when():
    run = Run(project="names <b>", time="2026-11-17T03:15:02+00:00", name="20261117-031502-0f3c", decision=DECISION)
    doc = document(run=run)
    (top,) = doc.texts("header")
    for told in ("Projectnames <b>", "When (UTC)2026-11-17 03:15:02", "Run20261117-031502-0f3c", "Data version"):
        assert told in top
    assert doc.texts("title")[0].endswith(": training report of names <b>")
    assert "Project" not in document().texts("header")[0]


ENTITIES = {"measure": "f1", "f1": 0.8, "f1_low": 0.78, "f1_high": 0.82, "precision": 0.81, "recall": 0.79}
SPELT = {"measure": "edit_error", "edit_error": 0.1, "edit_error_low": 0.09, "edit_error_high": 0.11}


def test_what_the_task_is_judged_by_is_the_headline_with_its_interval():
    by_f1 = {"measure": "f1", "measure_name": "F1 of entities", "champion_value": 0.85, "challenger_value": 0.8,
             "promoted": False, "reason": "one; two", "reasons": ["one", "two"]}  # fmt: skip
    doc = document(run=Run(decision=DECISION | by_f1), metrics=METRICS | ENTITIES)
    (badge,) = doc.texts("a", "badge")
    assert badge.endswith("Refused: F1 of entities 80.00% (78.00% to 82.00%), champion 85.00%")
    text = doc.section("glance")
    assert "2 reasons against it:" in text and text.count("One.") == text.count("Two.") == 1 and "one; two" not in text
    for told in ("between 78.00% and 82.00%", "Phoneme error33.33%"):
        assert told in text
    results = doc.section("results")
    assert results.index("F1 of entities80.0%") < results.index("Phoneme error33.3%")
    assert "between 78.00% and 82.00% in resamples" in results and "precision 81.0%, recall 79.0%" in results


def test_where_strings_are_judged_letters_have_a_name_of_their_own():
    doc = document(metrics=METRICS | SPELT)
    (badge,) = doc.texts("a", "badge")
    assert badge.endswith("Not decided: phoneme error 10.00% (9.00% to 11.00%)")
    results = doc.section("results")
    assert results.index("Phoneme error10.0%") < results.index("Letters wrong33.3%") < results.index("Word error")
    assert "between 9.00% and 11.00% in resamples" in results
    slices = doc.section("slices")
    assert "Letters wrong" in slices and "phoneme error" not in slices.lower()


def test_what_changed_is_told_by_the_measure_first():
    before = BEFORE | {"measure": "edit_error", "edit_error": 0.12}
    text = look(run=Run(before=before), metrics=METRICS | SPELT)
    assert text.index("Phoneme error12.00%10.00%−2.00 points") < text.index("Letters wrong35.00%33.33%−1.67 points")
    assert "Letters wrong35.00%33.33%" in look(run=Run(before=BEFORE), metrics=METRICS | SPELT), "of an earlier version"


def test_a_model_that_nobody_decided_on_says_so():
    doc = document()
    text = doc.section("glance")
    assert "Not decided" in text and "espalier promote" in doc.texts("code") and "Champion" not in text
    assert "`" not in text


def test_what_changed_since_the_retraining_before():
    run = Run(before=BEFORE, changed={"crf.rho1": (0.2, 0.5)}, data_version="2" * 64, model="3" * 64)
    text = look(run=run)
    assert "Phoneme error35.00%33.33%−1.67 points" in text and "Active weights6,0005,293−707" in text
    assert f"New data: version {'0' * 12} became {'2' * 12}." in text and "crf.rho1: 0.2 became 0.5." in text
    same = look(run=run._replace(data_version="0" * 64, model="1" * 64, changed={}))
    assert "The data are the same as before." in same and "The model is the same, byte for byte." in same
    assert "There is no earlier retraining on record" in look()


def test_what_needs_a_look_is_listed_with_links():
    assert "Nothing stands out." in look()
    worse = {"labels": [{"label": "TH", "regressed": True}, {"label": "T", "regressed": False}],
             "warnings": ["the test data have changed"], "forced": True}  # fmt: skip
    doc = document(
        run=Run(decision=DECISION | worse), metrics=METRICS | {"stop_reason": "max_iterations"},
        clusters={"drifted": True, "drift_limit": 0.1, "clusters": []}, calibration_error=Rate(0.2, 0.1, 0.3),
        predictions=predictions(*[[("t", "TH", "T"), ("h", "_", "_")]] * 25),
    )  # fmt: skip
    text = doc.section("glance")
    for told in ("The promotion was forced", "The test data have changed.", "Worse than the champion on TH:",
                 "at the limit of iterations", "have drifted", "F1 below 50% for 1 phoneme: TH",
                 "off by 20.0% on average"):  # fmt: skip
        assert told in text, told
    assert "Nothing stands out." not in text


def test_poor_kinds_of_entities_are_named_instead_of_labels():
    kinds = {"NP": CHUNK, "LST": CHUNK | {"f1": 0.2}, "X": CHUNK | {"f1": 0.1, "gold": 3}}
    assert "F1 below 50% for 1 kind of entity: LST, entities." in look(metrics=METRICS | {"chunks": kinds})


def test_hostile_records_are_only_text():
    run = Run(decision=DECISION | {"reason": HOSTILE, "warnings": [HOSTILE]}, before=BEFORE,
              changed={HOSTILE: (HOSTILE, None)}, environment={HOSTILE: HOSTILE}, seconds={HOSTILE: 1.0})  # fmt: skip
    doc = document(run=run)
    assert len(doc.all("script")) == 1 and not doc.all("img") and HOSTILE in doc.section("glance")


# ---- what is on record


def written(tmp_path, **records) -> Path:
    write_artefacts(tmp_path, inputs())
    store.write_json(tmp_path / store.MANIFEST, MANIFEST | {"data_version": "2" * 64})
    for name, rows in records.items():
        store.write_jsonl(tmp_path / "models" / f"{name}.jsonl", rows)
    return tmp_path


def test_the_run_of_a_model_is_found_by_its_hash(tmp_path):
    digest = store.file_hash(written(tmp_path) / store.CANDIDATE)
    mine, other = DECISION | {"model_sha256": digest, "id": "b"}, DECISION | {"model_sha256": "x", "id": "c"}
    failed = {"kind": "retrain", "id": "f", "outcome": "failed", "time": BEFORE["time"]}
    own = BEFORE | {"id": "b", "seconds": {"train": 3.5}, "token_error": 0.3}
    written(tmp_path, decisions=[mine, other], history=[BEFORE, failed, own, BEFORE | {"id": "later"}])
    found = record.read_run(tmp_path, Params())
    assert found.decision == mine and found.before == BEFORE and found.seconds == {"train": 3.5}
    assert found.changed == {"crf.rho1": (0.2, Params().crf.rho1)} and found.data_version == "2" * 64
    assert found.model == digest and (found.name, found.time) == ("b", mine["time"])
    assert found.project == tmp_path.name


def test_a_run_without_records_is_empty_and_damaged_ones_do_no_harm(tmp_path):
    written(tmp_path)
    found = record.read_run(tmp_path, Params())
    assert (found.decision, found.before, found.changed, found.seconds) == ({}, {}, {}, {})
    os.utime(tmp_path / store.CANDIDATE, (1000, 1000))
    assert record.read_run(tmp_path, Params()).time == "1970-01-01T00:16:40+00:00", "when the model was written"
    (tmp_path / store.DECISIONS).write_text("{", encoding="utf-8")
    (tmp_path / store.HISTORY).write_text("[1]\nnull\n", encoding="utf-8")
    store.write_jsonl(tmp_path / store.TIMING, [{"iteration": 1, "seconds": 0.5}, {"iteration": 2, "seconds": 2.0}])
    found = record.read_run(tmp_path, Params())
    assert (found.decision, found.before, found.seconds) == ({}, {}, {"train": 2.0})


def test_a_run_about_to_end_gives_its_times(tmp_path):
    report.main(written(tmp_path), Params(), Progress(), {"ingest": 1.0, "train": 3.0})
    text = Document((tmp_path / store.REPORT).read_text(encoding="utf-8")).section("provenance")
    assert "ingest1.0025.0%" in text and "train3.0075.0%" in text


def test_the_commit_is_read_from_the_files_of_git(tmp_path):
    assert record.git_commit(tmp_path) is None
    folder = tmp_path / ".git"
    (folder / "refs/heads").mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    assert record.git_commit(tmp_path) is None  # no commit yet
    (folder / "packed-refs").write_text("# pack-refs\n" + "a" * 40 + " refs/heads/main\n")
    assert record.git_commit(tmp_path) == "a" * 40
    (folder / "refs/heads/main").write_text("b" * 40 + "\n")
    assert record.git_commit(tmp_path) == "b" * 40
    (folder / "HEAD").write_text("c" * 40 + "\n")
    assert record.git_commit(tmp_path) == "c" * 40


def test_the_environment_has_versions_and_no_names_of_people_or_places(tmp_path):
    found = record.environment(tmp_path)
    assert found["numpy"] == np.__version__ and found["Python"].count(".") == 2 and "cores" in found["threads"]
    assert found["compiled for"] == compile_target.compile_target() and found["processor"] == record.processor()
    text = " ".join(found.values())
    assert "/" not in text and Path.home().name not in text.split()


def test_private_folders_are_not_told(tmp_path):
    path = str(tmp_path / "deep" / "corpus.txt")
    params = Params()
    params.ingest.path = path
    profile = inputs().profile | {"files": [path]}
    profile["findings"]["single"]["examples"] = [{"place": f"line 3 of {path}", "text": "x"}]
    write_artefacts(tmp_path, inputs(profile=profile))
    report.main(tmp_path, params, Progress())
    text = (tmp_path / store.REPORT).read_text(encoding="utf-8")
    assert str(tmp_path) not in text and "line 3 of …/corpus.txt" in text
    assert record.without_folders("data/raw/a.txt") == "data/raw/a.txt" and record.without_folders(3) == 3


def test_parameters_that_are_not_at_their_default_say_so():
    params = Params()
    params.crf.rho1, params.ingest.limit = 0.25, None
    text = document(parameters=params.as_dict()).section("provenance")
    assert "rho10.25default 0.5" in text and "limitnot setdefault auto" in text
    assert "2 in bold differ from the default." in text
    assert "All have their default." in document().section("provenance")


# ---- sections that others make


def test_sections_of_others_stand_in_the_page_and_in_its_contents():
    path = page.section("rho1-path", "Size & quality", page.lead("text"))
    doc = document(path=path, history=page.section("history", "History", "none"))
    ids = [a["id"] for a, _ in doc.all("section")]
    assert ids.index("rho1-path") == ids.index("learning") + 1 and ids.index("history") < ids.index("provenance")
    assert "Size & quality" in doc.texts("a", href="#rho1-path") and doc.texts("a", href="#history") == ["History"]


# ---- entities and labels


def test_entities_are_counted_and_shown_where_they_went_wrong():
    sequence = [("In", "O", "O"), ("New", "B-LOC", "B-ORG"), ("York", "I-LOC", "I-ORG"), ("met", "O", "B-PER"),
                ("Ann", "B-PER", "O"), ("and", "O", "O"), ("Al", "B-PER", "B-PER"), ("Bo", "I-PER", "O")]  # fmt: skip
    doc = document(predictions=predictions(sequence), metrics=METRICS | {"chunks": {"PER": CHUNK, "LOC": CHUNK}})
    text = doc.section("confusions")
    assert "0 of 3 entities are right, and 1 predicted one is none." in text
    assert "PER01011" in text and "LOC00100" in text  # right, other ends, other kind, missed, spurious
    assert "B-PER taken for" not in text and "Most confused" not in text, "entities, and not their labels"
    assert doc.texts("summary")[0] == "Precision, recall and F1 of each phoneme" and "I-PER" in text
    for told in ("Missed: 1 entity where nothing was predicted", "Spurious: 1 entity", "Another kind: 1 entity",
                 "Other ends: 1 entity", "nothing taken for PER: 1", "PER taken for nothing: 1", "LOC taken for ORG: 1",
                 "In [New York] met Ann and Al …", "and [Al] Bo"):  # fmt: skip
        assert told in text, told
    marked = [t for _, t in doc.all("mark")]
    assert marked[:2] == ["marked", "Ann"] and "York" in marked


def test_labels_that_are_no_entities_have_no_such_parts():
    doc = document(metrics=METRICS | {"chunks": {"NP": CHUNK}})
    assert "Missed" not in doc.section("confusions") and "Most confused phonemes" in doc.section("confusions")


def test_entities_that_are_all_right_are_not_confused():
    sequence = [("Ann", "B-PER", "B-PER"), ("Lee", "I-PER", "I-PER"), ("came", "O", "O")]
    doc = document(predictions=predictions(sequence), metrics=METRICS | {"chunks": {"PER": CHUNK}})
    assert "Every letter of the test data got the right phoneme." in doc.section("confusions")


def test_a_long_entity_is_cut_in_its_middle():
    tokens = [f"w{i}" for i in range(60)]
    (text,) = Document(entities.shown_in(tokens, Span(10, 50, "X"), None)).texts("span")
    assert text.startswith("… w6 w7") and text.endswith("w52 w53 …") and "w30" not in text


def test_labels_have_precision_recall_and_what_they_are_taken_for():
    counts = Counter({("A", "A"): 6, ("A", "B"): 2, ("B", "B"): 1, ("B", "A"): 1, ("C", "A"): 1})
    scores = {s.label: s for s in confusions.label_scores(counts)}
    assert scores["A"][1:] == (6 / 8, 6 / 8, 12 / 16, 8, "B")
    assert scores["B"][1:] == (1 / 3, 1 / 2, 2 / 5, 2, "A") and scores["C"][1:] == (None, 0.0, 0.0, 1, "A")
    assert [s.label for s in confusions.label_scores(counts)] == ["A", "B", "C"]
    text = document().section("confusions")
    assert "TH–0.0%0.0%2T" in text and "K100.0%100.0%100.0%1" in text


# ---- slices


def with_seen(table: pa.Table, seen: list[int]) -> pa.Table:
    return table.append_column("seen", pa.array(seen, pa.int64()))


def test_errors_are_told_by_length_and_by_frequency():
    table = with_seen(inputs().predictions, [0, 0, 0, 1, 3, 3, 2000, 2000, 7])
    text = document(predictions=table).section("slices")
    assert "3: 33.3%, between" in text and "unseen: 0.0%, between" in text and "once: 100.0%" in text
    assert "over 1,000: 50.0%" in text and "2–5: 50.0%" in text
    assert "how often the letter stood in the training data" in text
    wide = document(predictions=table, window=3).section("slices")
    assert "the letter with the one before and the one behind it" in wide


def test_predictions_of_an_earlier_version_have_no_frequencies():
    text = document().section("slices")
    assert "By length of the word" in text and "frequency" not in text
    assert "the test data are empty" in document(predictions=predictions()).section("slices")


@pytest.mark.parametrize(
    ("low", "high", "text"), [(5, 5, "5"), (2, 5, "2–5"), (1001, None, "1,001 or more"), (1200, 1300, "1,200–1,300")]
)
def test_spans_of_numbers(low, high, text):
    assert slices.span(low, high) == text


# ---- colours that everybody can read


def palette(text: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", text))


def luminance(colour: str) -> float:
    """Relative luminance by WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def schemes() -> dict[str, dict[str, str]]:
    sheet = page.asset("page.css")
    light, dark, printed = (palette(block) for block in re.findall(r":root \{(.*?)\}", sheet, re.DOTALL))
    return {"light": light, "dark": light | dark, "print": light | printed}


def test_contrast_is_that_of_the_standard():
    assert contrast("#000000", "#ffffff") == pytest.approx(21) and contrast("#777777", "#ffffff") == pytest.approx(
        4.48, abs=0.005
    )


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_texts_can_be_read_on_every_ground(scheme):
    colours = schemes()[scheme]
    texts = [(ink, ground) for ink in ("ink", "muted", "accent", "b") for ground in ("paper", "surface")]
    texts += [("ink", "sunken"), ("muted", "sunken"), ("mark-ink", "mark"), ("paper", "ink")]
    dark = scheme == "dark"
    texts += [("on-dark" if (step <= 3) == dark else "on-light", f"h{step}") for step in (1, 2, 3, 6, 7)]
    texts += [("on-light", "h4"), ("on-light", "h5")]
    poor = {pair: round(contrast(*(colours[name] for name in pair)), 2) for pair in texts}
    assert {pair: value for pair, value in poor.items() if value < 4.5} == {}


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_lines_and_bars_stand_out_from_the_ground(scheme):
    colours = schemes()[scheme]
    for mark in ("a", "b", "c"):
        assert contrast(colours[mark], colours["paper"]) >= 3


def test_verdicts_differ_by_sign_and_word_and_not_by_colour_alone():
    signs = [v[1] for v in glance.VERDICTS.values()]
    assert len(set(signs)) == len(signs) and len({v[2] for v in glance.VERDICTS.values()}) == len(signs)
