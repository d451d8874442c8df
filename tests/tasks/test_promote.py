"""Champion and challenger: who wins, what is recorded, and that a refusal touches nothing."""

import html
import re
import shutil

import numpy as np
import polars as pl
import pytest
from stage_runs import run_stages, small_params, tree

from espalier.engine.errors import EspalierError
from espalier.engine.families import load as load_model
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.labels.measures import F1, TOKEN_ERROR, Counts
from espalier.engine.weights.layout import dense_layout, observation_kinds
from espalier.tasks import promote, store
from espalier.tasks.answering.tagging import tag
from espalier.tasks.judging import headline
from espalier.tasks.pages import path_page
from espalier.tasks.pages.decision_page import decision_page
from espalier.tasks.params import Promote
from espalier.tasks.progress import Progress


def decide(project, force=False, why=None, by=None, keep=20, **options):
    params = small_params()
    params.version.keep = keep
    for name, value in options.items():
        setattr(params.promote, name, value)
    return promote.main(project, params, Progress(), force, why, by)


def spoil(path):
    """A worse model in the place of a good one: every weight of the other sign."""
    model = load_model(path)
    model.theta = -model.theta
    model.save(path)


# ---- the decision


def test_the_first_model_is_promoted(project):
    decision = decide(project)
    assert decision["promoted"] and decision["reason"] == "the first model: there was no champion"
    assert decision["difference"] is None and decision["champion_error"] is None
    assert decision["challenger_error"] == pytest.approx(store.read_json(project / store.METRICS)["token_error"])
    assert (project / store.CHAMPION).read_bytes() == (project / store.CANDIDATE).read_bytes()
    assert store.read_jsonl(project / store.DECISIONS) == [decision]
    assert decision["model_sha256"] == store.file_hash(project / store.CANDIDATE)
    assert decision["data_version"] == store.read_manifest(project)["data_version"] and decision["forced"] is False


def test_an_identical_model_is_promoted(project):
    decide(project)
    decision = decide(project, margin=0.0)
    assert decision["promoted"] and decision["difference"] == decision["low"] == decision["high"] == 0.0
    assert decision["champion_error"] == decision["challenger_error"]
    assert "not worse than the champion" in decision["reason"]


def test_a_clearly_worse_model_is_refused_and_the_champion_keeps_its_bytes(project):
    decide(project)
    champion = (project / store.CHAMPION).read_bytes()
    spoil(project / store.CANDIDATE)
    before = tree(project)
    decision = decide(project)
    assert not decision["promoted"] and decision["low"] > 0.3
    assert decision["reasons"][0].startswith("is worse than the champion: state error ")
    assert (project / store.CHAMPION).read_bytes() == champion
    assert [row["promoted"] for row in store.read_jsonl(project / store.DECISIONS)] == [True, False]
    after = tree(project)
    changed = {name for name in after if after[name] != before.get(name)}
    kept = {name for name in changed if name.startswith(f"{store.ARCHIVE}/{decision['id']}/")}
    assert kept and changed - kept == {store.DECISIONS, store.DECISION}


def test_a_forced_promotion_is_recorded_as_such(project):
    decide(project)
    spoil(project / store.CANDIDATE)
    decision = decide(project, force=True, why="the old one swears", by="anna@laptop")
    assert decision["promoted"] and decision["forced"] is True
    assert (decision["by"], decision["why"]) == ("anna@laptop", "the old one swears")
    assert decision["reason"] == "forced by anna@laptop: the old one swears"
    assert decision["reasons"][0].startswith("is worse than the champion")
    lines = headline.verdict_lines(decision)
    assert lines[0] == "promoted: forced by anna@laptop: the old one swears; against it:"
    assert lines[1:] == [f"  - {text}" for text in decision["reasons"]]
    assert (project / store.CHAMPION).read_bytes() == (project / store.CANDIDATE).read_bytes()
    assert store.read_jsonl(project / store.DECISIONS)[-1] == decision


def test_who_forces_is_known_without_saying_so(project):
    decide(project)
    assert decide(project, force=True)["forced"] is False, "nothing spoke against it"
    spoil(project / store.CANDIDATE)
    assert re.search(r"^forced by \S+@\S+$", decide(project, force=True)["reason"])


def test_a_better_model_is_promoted(project):
    spoil(project / store.CANDIDATE)
    decide(project)
    spoil(project / store.CANDIDATE)
    decision = decide(project, margin=0.0)
    assert decision["promoted"] and decision["difference"] < 0 and decision["high"] < 0
    assert (project / store.CHAMPION).read_bytes() == (project / store.CANDIDATE).read_bytes()


def judged(over, under):
    counts = Counts(np.asarray(over, float), np.asarray(under, float))
    return promote.Judged(counts, counts)


def decided(measure, champion, challenger, **options):
    return promote.decide(measure, "it", champion, challenger, Promote(rounds=500, **options))


def test_the_margin_is_held_against_the_upper_end_of_the_interval():
    """The challenger has two errors more in fifty positions; the interval reaches further than the difference."""
    champion, challenger = judged(np.ones(10), np.full(10, 5)), judged([1] * 8 + [2, 2], np.full(10, 5))
    decision = decided(TOKEN_ERROR, champion, challenger)
    assert decision["difference"] == pytest.approx(2 / 50) and decision["champion_error"] == pytest.approx(10 / 50)
    assert decision["high"] > 2 / 50 and not decision["promoted"]
    for margin, promoted in ((decision["high"], True), (decision["high"] - 1e-9, False), (0.039, False)):
        assert decided(TOKEN_ERROR, champion, challenger, margin=margin)["promoted"] is promoted


def test_a_loss_of_f1_is_held_against_the_lower_end():
    """Higher is better: what is lost lies below zero."""
    champion, challenger = judged([8] * 10, [10] * 10), judged([8] * 8 + [6, 6], [10] * 10)
    decision = decided(F1, champion, challenger)
    assert decision["difference"] == pytest.approx(-4 / 100) and decision["low"] < -4 / 100 and not decision["promoted"]
    for margin, promoted in ((-decision["low"], True), (-decision["low"] - 1e-9, False)):
        assert decided(F1, champion, challenger, margin=margin)["promoted"] is promoted
    assert decided(F1, challenger, champion, margin=0.0)["promoted"], "more F1 is no loss"
    assert not decided(TOKEN_ERROR, challenger, champion, margin=0.0)["promoted"], "more error is one"


def test_worse_for_sure_or_perhaps():
    """What is said follows the interval: wholly on the bad side, or on both."""
    same, sizes = judged([2] * 40, [10] * 40), np.full(40, 10)
    surely, perhaps = judged([3] * 40, sizes), judged([0, 5] * 20, sizes)
    for challenger, verdict, values in ((surely, "is worse", "30.00%"), (perhaps, "may be worse", "25.00%")):
        decision = decided(TOKEN_ERROR, same, challenger)
        begin = f"{verdict} than the champion: it {values} against 20.00%, +"
        assert not decision["promoted"] and decision["reason"].startswith(begin), decision["reason"]
    within = decided(TOKEN_ERROR, same, surely, margin=0.11)
    assert within["promoted"] and within["reason"].startswith("worse than the champion, but within the margin: it 30")
    assert decided(TOKEN_ERROR, same, same)["reason"].startswith("not worse than the champion: it 20.00% against 20")


@pytest.mark.parametrize(("measure", "errors"), [(TOKEN_ERROR, 0.2), (F1, 0.8)])
def test_a_margin_in_per_cent_is_one_of_the_champions_errors(measure, errors):
    """Of an error of a fifth, or of the four fifths that an F1 of a fifth lacks."""
    champion = judged([2] * 10, [10] * 10)
    decision = decided(measure, champion, champion, margin="5%")
    assert decision["margin"] == pytest.approx(0.05 * errors)
    assert decision["reason"].endswith(f"with a margin of {5 * errors:.2f} points (5% of the champion's errors)")


# ---- a fair comparison


def test_a_champion_is_judged_with_everything_it_knows(project):
    """The newest training data lost a symbol, so its vocabulary did too; the champion still knows it.

    Judged by the features of the newest run, the champion would be blind to that symbol,
    and a challenger that is blind to it would take its place.
    """
    decide(project)
    champion_error = store.read_json(project / store.METRICS)["token_error"]
    tokens, info = store.read_tokens(project, "train")
    blind = tokens.filter((pl.col("x0") == "v").any().over("sequence").not_())
    store.write_tokens(project, "train", blind.with_columns(pl.col("sequence").rle_id().cast(pl.Int32)), info)
    run_stages(project, small_params(), "template", "weigh", "train")
    assert "*:v" not in store.read_vocabulary(project)["observation"].to_list()
    decision = decide(project)
    assert decision["champion_error"] == pytest.approx(champion_error)
    assert decision["challenger_error"] > champion_error + 0.05 and not decision["promoted"]


def test_a_champion_of_other_templates_is_judged_by_its_own(project):
    decide(project)
    champion_error = store.read_json(project / store.METRICS)["token_error"]
    params = small_params()
    params.template.lines = ["U", "B"]
    run_stages(project, params, "template", "weigh", "train")
    decision = decide(project)
    assert decision["champion_error"] == pytest.approx(champion_error) and not decision["promoted"]


def test_labels_that_a_model_does_not_know_are_its_errors(project):
    names = ["U:v"]
    layout = dense_layout(2, observation_kinds(names))
    model = CrfLabeller.compact(layout, np.array([1.0, 0.0]), names, ["A", "Q"], ["U:%x[0,0]"], {})
    model.save(project / store.CHAMPION)
    gold = store.read_tokens(project, "test")[0]["label"]
    assert decide(project)["champion_error"] == pytest.approx((gold != "A").mean())


# ---- the record


def rows_of(page):
    """The cells of the table of all decisions, as text."""
    body = re.findall(r"<tbody>(.*?)</tbody>", page, re.DOTALL)[-1]
    rows = re.findall(r'<tr\b(?! class="note")[^>]*>(.*?)</tr>', body, re.DOTALL)
    return [
        [html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in re.findall(r"<t[hd]\b.*?</t[hd]>", row)]
        for row in rows
    ]


def test_decisions_add_up_and_the_page_shows_the_latest_first(project):
    decide(project)
    spoil(project / store.CANDIDATE)
    decide(project)
    decide(project, force=True)
    decisions = store.read_jsonl(project / store.DECISIONS)
    shown = rows_of((project / store.DECISION).read_text(encoding="utf-8"))
    assert len(decisions) == len(shown) == 3
    for decision, cells, verdict in zip(decisions[::-1], shown, ["forced", "refused", "promoted"], strict=True):
        assert verdict in cells[1] and decision["model_sha256"][:12] in cells
        assert decision["time"][:10] in cells[0]


def test_text_in_a_decision_cannot_become_markup():
    row = {"promoted": True, "forced": False, "reason": "<b>&", "difference": 0.1, "low": 0.0, "high": 0.2,
           "champion_error": 0.1, "challenger_error": 0.2, "time": "<i>", "model_sha256": "<script>x"}  # fmt: skip
    page = decision_page([row], "<u>", [("<em>", '"><hr>')])
    assert not any(text in page for text in ("<b>", "<i>", "<u>", "<em>", "<hr>", "<script>x"))
    (cells,) = rows_of(page)
    assert cells[0] == "<i>" and cells[-1] == "<script>x" and "&lt;b&gt;&amp;" in page


def test_the_page_names_project_and_decision_links_to_what_is_there_and_says_the_verdict_in_colour(project):
    (project / store.REPORT).write_text("", encoding="utf-8")
    decide(project)
    first = (project / store.DECISION).read_text(encoding="utf-8")
    assert 'class="verdict good"' in first and '<a href="report.html">Report</a>' in first and "sweep.html" not in first
    (project / path_page.PAGE).write_text("", encoding="utf-8")
    spoil(project / store.CANDIDATE)
    decision = decide(project)
    text = (project / store.DECISION).read_text(encoding="utf-8")
    assert 'class="verdict bad"' in text and '<a href="sweep.html">Sweep</a>' in text
    assert f"<title>Champion and challenger: {project.name}</title>" in text
    assert decision["id"] in text and f'datetime="{decision["time"]}"' in text and decision["data_version"][:12] in text
    assert text.count('class="outcome good"') == 1 and text.count('class="outcome bad"') >= 1


def test_without_a_candidate_there_is_nothing_to_promote(tmp_path):
    with pytest.raises(
        EspalierError, match="candidate.model: there is no candidate to promote; run `espalier run` first"
    ):
        decide(tmp_path)
    assert not tree(tmp_path)


@pytest.mark.parametrize(
    "path", [store.CANDIDATE, store.CHAMPION, "data/tokens/test.arrow", store.DECISIONS, store.MANIFEST]
)
def test_a_damaged_input_changes_nothing(project, path):
    """Not even when the candidate is better and would be promoted."""
    spoil(project / store.CANDIDATE)
    decide(project)
    spoil(project / store.CANDIDATE)
    (project / path).write_bytes((project / path).read_bytes()[:-20])
    before = tree(project)
    with pytest.raises(EspalierError, match=f"{path}: (damaged|not a readable model).* restore it with `dvc checkout`"):
        decide(project)
    assert tree(project) == before


# ---- all that speaks against a model


def write_cases(project, *lines):
    (project / "cases.conll").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_all_reasons_are_listed_together(project):
    """Worse as a whole, worse on labels, a broken case, and drift that is not accepted."""
    decide(project)
    symbol = store.read_tokens(project, "test")[0]["x0"][0]
    write_cases(project, f"{symbol} nothing", "", f"{symbol} _")
    found = store.read_json(project / store.CLUSTERS)
    store.write_json(project / store.CLUSTERS, found | {"jensen_shannon": 0.25, "drift_limit": 0.1, "drifted": True})
    spoil(project / store.CANDIDATE)
    decision = decide(project, cases="cases.conll", on_drift="refuse", label_count=5)
    assert not decision["promoted"] and decision["reason"] == "; ".join(decision["reasons"])
    texts = iter(decision["reasons"])
    assert next(texts).startswith("is worse than the champion: state error")
    labels = [text for text in decision["reasons"] if text.startswith("label ")]
    assert labels and all("more than promote.label_margin, 2.00 points" in text for text in labels)
    case = next(text for text in texts if "cases" in text)
    assert case.startswith("1 of 2 cases that must not break are wrong, the first at line 1 of cases.conll, ")
    assert "expected nothing, got " in case
    assert next(texts) == "the pool has drifted: 0.2500 bits against weigh.drift_limit, 0.1"
    assert decision["cases"]["failed"] == 1 and decision["cases"]["champion_failed"] == 1
    assert decision["cases"]["wrong"][0]["champion_too"] is True
    text = html.unescape((project / store.DECISION).read_text(encoding="utf-8"))
    for reason in decision["reasons"]:
        assert text.count(reason[1:]) == 1 and f"{reason[0].upper()}{reason[1:]}." in text
    assert "Label by label" in text and "Cases that must not break" in text and "wrong too" in text
    assert f"{len(decision['reasons'])} reasons against it:" in text


@pytest.mark.parametrize(
    ("on_drift", "promoted", "warnings"), [("warn", True, 1), ("refuse", False, 0), ("ignore", True, 0)]
)
def test_drift_is_acted_on_as_the_parameter_says(project, on_drift, promoted, warnings):
    found = store.read_json(project / store.CLUSTERS)
    store.write_json(project / store.CLUSTERS, found | {"jensen_shannon": 0.25, "drift_limit": 0.1, "drifted": True})
    decision = decide(project, on_drift=on_drift)
    assert decision["promoted"] is promoted and len(decision["warnings"]) == warnings
    assert decision["drift"] == {"jensen_shannon": 0.25, "limit": 0.1, "drifted": True}
    assert ("Warning: the pool has drifted" in (project / store.DECISION).read_text(encoding="utf-8")) == bool(warnings)


def test_a_first_model_that_breaks_a_case_is_refused(project):
    write_cases(project, "v nothing")
    decision = decide(project, cases="cases.conll")
    assert not decision["promoted"] and not (project / store.CHAMPION).exists()
    assert decision["cases"]["champion_failed"] is None


def test_a_label_that_is_lost_is_refused_although_the_margin_allows_the_error(project):
    decide(project)
    model = load_model(project / store.CANDIDATE)
    gold = store.read_tokens(project, "test")[0]["label"].to_list()
    label = max(set(gold), key=lambda one: (gold.count(one), one))
    index = model.labels.index(label)
    swap = [*model.labels]
    swap[index] = "Q"  # the label is called something else: never right again
    model.labels = swap
    model.save(project / store.CANDIDATE)
    decision = decide(project, margin=1.0, label_count=5)
    assert not decision["promoted"] and decision["reasons"][0].startswith(f"label {label} loses ")
    worst = decision["labels"][0]
    assert worst["label"] == label and worst["regressed"] and worst["challenger_f1"] == 0.0
    assert decide(project, margin=1.0, label_margin=None)["promoted"]


def test_new_test_data_are_told_of_and_both_are_measured_on_them(project):
    first = decide(project)
    assert decide(project)["warnings"] == []
    tokens, info = store.read_tokens(project, "test")
    fewer = tokens.filter(pl.col("sequence") < 20)
    store.write_tokens(project, "test", fewer, info)
    decision = decide(project)
    (warning,) = decision["warnings"]
    begin = "the test data have changed since the champion was promoted"
    assert warning.startswith(f"{begin} ({first['test_version'][:12]} → {decision['test_version'][:12]})")
    assert decision["test_version"] != first["test_version"]
    gold = fewer["label"].to_numpy()
    said = np.array(tag(load_model(project / store.CHAMPION), fewer))
    assert decision["champion_error"] == decision["challenger_error"] == pytest.approx(np.mean(gold != said))
    assert decide(project)["warnings"] == [], "promoted on the new data, they are the ones it is known by"


def test_the_version_of_the_test_data_is_that_of_their_content(project):
    tokens, info = store.read_tokens(project, "test")
    before = promote.version_of(tokens)
    store.write_tokens(project, "test", tokens, info | {"more": 1})
    assert promote.version_of(store.read_tokens(project, "test")[0]) == before
    assert promote.version_of(tokens.with_columns(label=pl.col("label").reverse())) != before


# ---- what the task is judged by


def write_entities(root, noise):
    """Names of one or two tokens: the first word is said by its form, the second by the one before it."""
    random, lines = np.random.default_rng(4), []
    for _ in range(120):
        for _ in range(4):
            size = int(random.integers(0, 3))
            marks = [["O"], ["S-N"], ["B-N", "E-N"]][size]
            for form, mark in zip("abc"[:1] if not size else "bc", marks, strict=False):
                lines.append(f"{form if random.random() > noise else 'abc'[random.integers(3)]} {mark}")
        lines.append("")
    (root / "raw.conll").write_text("\n".join(lines), encoding="utf-8")


def test_entities_are_decided_on_by_f1(tmp_path):
    write_entities(tmp_path, 0.1)
    params = small_params()
    params.ingest.source, params.ingest.path, params.ingest.limit = "conll", "raw.conll", None
    params.template.lines = ["U:%x[0,0]", "U1:%x[1,0]", "B"]
    run_stages(tmp_path, params, "ingest", "template", "weigh", "train", "evaluate")
    metrics, first = store.read_json(tmp_path / store.METRICS), decide(tmp_path)
    assert first["measure"] == metrics["measure"] == "f1" and first["measure_name"] == "F1 of entities"
    assert first["challenger_value"] == pytest.approx(metrics["f1"]) and metrics["f1_low"] < metrics["f1"]
    assert first["challenger_error"] == pytest.approx(metrics["token_error"])
    spoil(tmp_path / store.CANDIDATE)
    decision = decide(tmp_path)
    assert decision["reasons"][0].startswith("is worse than the champion: F1 of entities ")
    assert decision["champion_value"] == pytest.approx(metrics["f1"]) and decision["high"] < 0
    page = (tmp_path / store.DECISION).read_text(encoding="utf-8")
    assert "F1 of entities on the test data" in page and "tokens wrong" in page


# Lines as versions before wrote them, when errors of tokens were all that was known.
OLD = {"promoted": False, "forced": False, "reason": "may be worse than the champion: the upper end; label A loses",
       "reasons": ["may be worse than the champion: the upper end", "label A loses"], "warnings": [], "labels": [],
       "labels_compared": 3, "difference": 0.1, "low": -0.1, "high": 0.2, "champion_error": 0.1,
       "challenger_error": 0.2, "time": "2026-01-02T03:04:05+00:00", "model_sha256": "ab" * 32, "kind": "decision",
       "id": "20260102-030405-abababababab", "data_version": "x", "cases": None, "drift": None}  # fmt: skip


def test_decisions_of_earlier_versions_are_shown_and_built_upon(project):
    forced = OLD | {"promoted": True, "forced": True, "reason": f"forced by anna; against it: {OLD['reason']}"}
    for old in (OLD, forced, {key: OLD[key] for key in OLD if key not in ("reasons", "warnings", "labels_compared")}):
        page = html.unescape(decision_page([OLD, old], "names"))
        assert page.count("may be worse than the champion: the upper end") <= 2 and "20.00%" in page
        assert headline.verdict_lines(old)
    shutil.copy(project / store.CANDIDATE, project / store.CHAMPION)
    digest = store.file_hash(project / store.CHAMPION)
    store.write_jsonl(project / store.DECISIONS, [OLD | {"promoted": True, "model_sha256": digest}])
    assert decide(project)["promoted"]
    assert len(rows_of((project / store.DECISION).read_text(encoding="utf-8"))) == 2
