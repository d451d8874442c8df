"""The report: right figures, nothing from data taken for markup, and no crash on what data can be like."""

import base64
import hashlib
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from espalier.engine.errors import EspalierError
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.model import _layout
from espalier.engine.optimise.monitor import STOP_REASONS
from espalier.engine.weights.layout import FAMILIES
from espalier.tasks import report, store
from espalier.tasks.pages import page
from espalier.tasks.params import Params
from espalier.tasks.progress import Progress
from espalier.tasks.report import Inputs, confusions, learning, mistakes, summary
from espalier.tasks.report.phrases import Phrases
from espalier.tasks.report.words import Nouns, Tagged
from espalier.tasks.sources import profile

NOUNS = {"token": "letter", "label": "phoneme", "sequence": "word"}
TEMPLATES = ["U", "*0:%x[0,0]", "U-1:%x[-1,0]/%x[0,0]", "U=1:%x[-1,0]/%x[0,0]/%x[1,0]", "B"]
HOSTILE = """<script>alert(1)</script>"'><img src=x onerror=alert(2)>&amp;"""
LIMIT = 3_000_000  # bytes of the page


class Document(HTMLParser):
    """A page taken apart: elements with attributes and text, and whether every tag is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict, list[str]]] = []
        self.open: list[tuple[str, list[str]]] = []
        self.feed(text)
        assert not self.open, f"not closed: {[name for name, _ in self.open]}"

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute twice in <{tag} {names}>"
        self.elements.append((tag, dict(attrs), []))
        if tag not in page.VOID:
            self.open.append((tag, self.elements[-1][2]))

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), []))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for _, texts in self.open:
            texts.append(data)

    def all(self, tag: str, class_: str = "", **wanted: str) -> list[tuple[dict, str]]:
        """(attributes, text) of the elements of this name, class and attributes."""
        return [
            (a, "".join(text))
            for name, a, text in self.elements
            if name == tag and (not class_ or class_ in (a.get("class") or "").split()) and wanted.items() <= a.items()
        ]

    def texts(self, tag: str, class_: str = "", **wanted: str) -> list[str]:
        return [text for _, text in self.all(tag, class_, **wanted)]

    def section(self, key: str) -> str:
        (text,) = self.texts("section", id=key)
        return text


def predictions(*sequences: list[tuple]) -> pa.Table:
    """Sequences of (token, right, predicted[, confidence, probability of the right one])."""
    rows = [
        (n, *(t if len(t) == 5 else (*t, 0.9, 0.9 if t[1] == t[2] else 0.05)))
        for n, s in enumerate(sequences)
        for t in s
    ]
    names = ("sequence", "x0", "label", "predicted", "confidence", "gold_probability")
    kinds = (pa.int32(), pa.string(), pa.string(), pa.string(), pa.float64(), pa.float64())
    return pa.table({n: pa.array([r[i] for r in rows], k) for i, (n, k) in enumerate(zip(names, kinds, strict=True))})


def model(*rows: tuple) -> pa.Table:
    """Weights as (family, observation, previous, label, weight)."""
    names = ("family", "observation", "previous", "label")
    columns = {n: pa.array([r[i] for r in rows], pa.string()).dictionary_encode() for i, n in enumerate(names)}
    return pa.table(columns | {"weight": pa.array([r[4] for r in rows], pa.float64())})


def record(iteration: int, dev: float | None = 0.2, **changes) -> dict:
    return {
        "iteration": iteration, "objective": 9000 / iteration, "loss": 8000 / iteration,
        "gradient_norm": 10 / iteration,
        "active_unigram": 40 * iteration, "active_start": 2, "active_bigram": 7 * iteration,
        "evaluations": iteration,
        "dev_token_error": dev,
    } | changes  # fmt: skip


WORDS = (
    [("c", "K", "K"), ("e", "EH", "EH"), ("n", "N", "N")],
    [("t", "TH", "T", 0.97, 0.001), ("h", "_", "_"), ("e", "AH", "IY", 0.5, 0.4)],
    [("t", "TH", "T", 0.7, 0.2), ("h", "_", "_"), ("y", "AY", "AY")],
)
METRICS = {
    "token_error": 3 / 9, "sequence_error": 2 / 3, "log_loss": 0.489, "sequence_log_loss": 1.4,
    "objective": 4500.0,
    "stop_reason": "converged", "iterations": 2, "active_unigram": 3413, "active_start": 59,
    "active_bigram": 1821,
    "features": 14_200_000, "labels": 55, "test_tokens": 9, "test_sequences": 3, "train_sequences": 8000,
    "train_tokens": 59_700, "calibration_error": 0.0109,
}  # fmt: skip
META = {
    "labels": ["T", "TH"], "templates": TEMPLATES, "penalty": {"rho1": 0.2, "rho2": 0.001}, "solver": "owlqn",
    "stop_reason": "converged", "data_version": "d" * 64, "code_version": "c" * 64, "nouns": NOUNS,
}  # fmt: skip
WEIGHTS = (
    ("unigram", "U-1:t/h", None, "TH", 3.25), ("unigram", "*0:n", None, "T", -2.5),
    ("bigram", "*0:n", "AH", "N", 1.5),
    ("bigram", "B", "AH", "N", 0.75), ("start", "*0:n", None, "N", 0.5), ("unigram", "U", None, "N", 0.25),
)  # fmt: skip
GROUP = {
    "cluster": 0, "labelled": 123, "pool": 456, "labelled_share": 0.25, "pool_share": 0.5, "weight": 2.0,
    "divergence": 0.008, "typical": ["U-1:t/h"], "examples": ["three", "theme"],
}  # fmt: skip
POOL = {
    "method": "cluster", "clusters": [GROUP], "jensen_shannon": 0.0123, "effective_sample_size": 6812.4,
    "sequences": 8000, "pool_without_label_share": 0.0, "drift_limit": 0.1, "drifted": False,
}  # fmt: skip
TOKENS = pl.DataFrame({"sequence": [0, 0, 1], "x0": ["t", "h", "n"], "label": ["TH", "_", "N"]})
SPLIT = {"sequences": 1, "tokens": 1, "shards": []}
MANIFEST = {
    "templates": [], "columns": [], "kinds": [], "labels": [], "label_sets": [], "observations": 0,
    "nouns": {"token": "token", "label": "label", "sequence": "sequence"},
    "splits": dict.fromkeys(("train", "dev", "test", "unlabelled"), SPLIT), "vocabulary_sha256": "v" * 64,
    "data_version": "",
}  # fmt: skip
PROFILE = profile.profile([TOKENS.cast({"sequence": pl.Int32})])
BINS = [
    {"bin_low": 0.4, "bin_high": 0.5, "confidence": None, "accuracy": None, "count": 0},
    {"bin_low": 0.9, "bin_high": 1.0, "confidence": 0.93, "accuracy": 0.81, "count": 1234},
]


def inputs(**changes) -> Inputs:
    whole = Inputs(
        METRICS, [record(1, 0.31), record(2, 0.172)], predictions(*WORDS), BINS, model(*WEIGHTS), META,
        {"vocabulary_sha256": "v" * 64}, PROFILE, POOL, Params().as_dict(),
    )  # fmt: skip
    return whole._replace(**changes)


def document(**changes) -> Document:
    return Document(report.render(inputs(**changes)))


# The whole page -------------------------------------------------------------------------------------


def test_the_data_are_described_where_there_is_a_profile():
    assert "sequences of one token" in report.render(inputs())
    assert 'id="data"' in report.render(inputs()) and 'id="data"' not in report.render(inputs(profile={}))


def test_the_same_inputs_give_the_same_bytes():
    assert report.render(inputs()) == report.render(inputs())


def test_the_header_says_what_was_trained_and_how_it_ended():
    doc = document()
    assert doc.texts("h1") == ["Letters → phonemes"]
    assert doc.texts("title")[0] == "Letters → phonemes: training report"
    top = doc.texts("header")[0]
    for told in ("8,000 words", "OWL-QN", "ρ₁\u00a0=\u00a00.2, ρ₂\u00a0=\u00a00.001", "d" * 12, "c" * 12):
        assert told in top
    assert f"after 2 iterations: {STOP_REASONS['converged']}." in top


def test_what_was_counted_did_not_stop():
    assert summary.stop_words("counted", 1).startswith("Every probability is a relative count")


@pytest.mark.parametrize("reason", sorted(STOP_REASONS.keys() - {"counted"}))
def test_every_stop_reason_is_told_in_words(reason):
    assert summary.stop_words(reason, 1) == f"Training stopped after 1 iteration: {STOP_REASONS[reason]}."


def test_an_unknown_stop_reason_is_shown_as_it_is():
    assert summary.stop_words("ran_out_of_tea", None) == "Training stopped: ran out of tea."


def test_cards_name_errors_by_the_nouns_and_count_weights():
    doc = document()
    cards = dict(zip(doc.texts("dt"), doc.texts("dd", "figure"), strict=False))
    figures = doc.section("results")
    assert "Phoneme error33.3%3 of 9 letters wrong" in figures
    assert "Word error66.7%2 of 3 words wrong" in figures
    assert "Log-loss0.489nats per letter" in figures and "61%" in figures
    assert "5,293of 14,200,000 possible (0.04%)" in figures
    assert "3,413 unigram, 59 start, 1,821 bigram" in figures
    assert "8,000words of 59,700 letters" in figures
    assert "F1 of entities" not in cards and "Excess risk" not in figures


def test_f1_excess_risk_and_left_out_sequences_are_shown_when_present():
    more = {"f1": 0.935, "precision": 0.94, "recall": 0.93, "excess_log_loss": 0.0123, "excess_risk": 0.0045,
            "bayes_error": 0.15, "sequences_with_unknown_labels": 2}  # fmt: skip
    figures = document(metrics=METRICS | more).section("results")
    for told in ("F1 of entities93.5%", "0.0123", "0.00450", "Bayes error 15.0%", "2 words with labels new"):
        assert told in figures


def test_the_page_loads_nothing_and_allows_only_its_own_script_and_style():
    text = report.render(inputs())
    doc = Document(text)
    targets = [a[k] for _, a, _ in doc.elements for k in ("src", "href", "data", "action", "srcset") if k in a]
    assert all(t.startswith(("#", "data:,")) for t in targets)
    assert not re.search(r"@import|url\(|https?://", text)
    policy = doc.all("meta", **{"http-equiv": "Content-Security-Policy"})[0][0]["content"]
    assert policy.startswith("default-src 'none'")
    for element in ("script", "style"):
        (source,) = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy
    assert not [a for _, a, _ in doc.elements if "style" in a or any(k.startswith("on") for k in a)]


def test_landmarks_headings_and_references_are_in_order():
    doc = document(metrics=METRICS | {"chunks": {"NP": CHUNK}})
    assert all(len(doc.all(name)) == 1 for name in ("main", "nav", "h1", "footer"))
    levels = [int(name[1]) for name, _, _ in doc.elements if re.fullmatch("h[1-6]", name)]
    assert all(b - a <= 1 for a, b in zip(levels, levels[1:], strict=False))
    ids = [a["id"] for _, a, _ in doc.elements if "id" in a]
    assert len(ids) == len(set(ids))
    pointed = [
        i for _, a, _ in doc.elements for k in ("aria-labelledby", "for", "list") for i in (a.get(k) or "").split()
    ]
    assert set(pointed) <= set(ids)
    assert {a["href"][1:] for a, _ in doc.all("a")} <= set(ids)


def test_tables_have_captions_and_scopes_and_drawings_have_words():
    doc = document(metrics=METRICS | {"chunks": {"NP": CHUNK}})
    assert len(doc.all("caption")) == len(doc.all("table")) > 5
    assert all(a.get("scope") in ("col", "row") for a, _ in doc.all("th"))
    drawings = [a for a, _ in doc.all("svg") if a.get("aria-hidden") != "true"]
    assert len(drawings) >= 7
    assert all(a["role"] == "img" and a["aria-labelledby"] for a in drawings)
    assert len(doc.all("desc")) == len(drawings)


def test_nothing_from_the_data_becomes_markup():
    hostile = {"token": HOSTILE, "label": HOSTILE, "sequence": HOSTILE}
    doc = document(
        metrics=METRICS | {"stop_reason": HOSTILE, "chunks": {HOSTILE: CHUNK}},
        predictions=predictions([(HOSTILE, HOSTILE, "B"), ("b", "B", HOSTILE)]),
        weights=model(("unigram", f"U-1:{HOSTILE}/h", None, HOSTILE, 1.0), ("bigram", HOSTILE, HOSTILE, HOSTILE, -1.0)),
        metadata=META
        | {"nouns": hostile, "solver": HOSTILE, "data_version": HOSTILE, "templates": [*TEMPLATES, HOSTILE]},
        manifest={"vocabulary_sha256": HOSTILE},
        clusters=POOL | {"clusters": [GROUP | {"typical": [HOSTILE], "examples": [HOSTILE]}]},
        parameters={HOSTILE: {HOSTILE: HOSTILE, "list": [HOSTILE]}},
    )
    assert len(doc.all("script")) == 1 and not doc.all("img")
    assert not [k for _, a, _ in doc.elements for k in a if k.startswith("on")]
    for key in ("confusions", "mistakes", "chunks", "weights", "drift", "provenance"):
        assert HOSTILE in doc.section(key), key


def test_other_languages_and_pictures_pass_through():
    table = predictions([("ß", "ʃ", "ð", 0.9, 0.1), ("漢", "字🙂", "字🙂"), ("é", "œ̃", "œ̃")])
    doc = document(predictions=table, weights=model(("unigram", "*0:漢", None, "字🙂", 1.0)))
    assert "ʃ taken for ð: 1" in doc.section("confusions")
    assert "[漢] → 字🙂" in doc.section("weights")


# Learning curve -------------------------------------------------------------------------------------


def test_the_curves_tell_objective_sparsity_and_the_best_development_error():
    text = document(trace=[record(1, 0.31), record(2, 0.172), record(3, 0.18)]).section("learning")
    for told in (
        "Iteration 2: objective 4,500.00",
        "Iteration 3: unigram 120, bigram 21",
        "lowest 17.20% at iteration 2",
    ):
        assert told in text


def test_one_iteration_is_told_in_figures_and_not_drawn():
    part = report.render(inputs(trace=[record(1)])).partition('<section id="learning"')[2].partition("</section>")[0]
    assert "The solver made one iteration." in part and "9,000.00" in part and "<svg" not in part


def test_the_point_before_the_first_iteration_is_not_drawn():
    start = record(1) | {"iteration": 0, "active_unigram": 0, "active_bigram": 0}
    text = document(trace=[start, record(1), record(2)]).section("learning")
    assert "Iteration 0:" not in text and "Iteration 1:" in text
    assert "09,000.00" in document(trace=[start]).section("learning"), "where there is no other"


def test_missing_development_error_is_said():
    text = document(trace=[record(1, None), record(2, None)]).section("learning")
    assert "This run recorded no development error." in text
    assert "Iteration 2: objective" in text


def test_an_empty_trace_and_missing_columns_are_said():
    assert "The trace is empty" in document(trace=[]).section("learning")
    bare = [{"iteration": 1, "objective": 5.0}, {"iteration": 2, "objective": float("nan")}]
    text = document(trace=bare).section("learning")
    assert "This run recorded no active weights." in text and "Iteration 1: objective 5" in text


def test_long_traces_are_thinned_with_both_ends_kept():
    assert learning.thin(list(range(2500)), 240)[::239] == [0, 2499]
    assert len(learning.thin(list(range(2500)), 240)) == 240
    text = document(trace=[record(i) for i in range(1, 2501)]).section("learning")
    assert "Iteration 2,500: objective 3.60" in text


# Confusions and mistakes ----------------------------------------------------------------------------


def test_confusions_are_counted_with_shares_and_marked_examples():
    doc = document()
    assert "3 errors in 9 letters" in doc.section("confusions")
    row = next(text for text in doc.texts("tr") if text.startswith("THT2"))
    assert row == "THT266.7%100.0%the, thy"
    marked = [text for _, text in doc.all("mark")]
    assert marked == ["t", "t", "e"]
    assert "TH taken for T: 2" in doc.section("confusions")


def test_an_example_is_not_shown_twice_and_three_are_enough():
    same = [("t", "TH", "T")]
    others = [[("t", "TH", "T"), (c, "X", "X")] for c in "abcd"]
    table = document(predictions=predictions(same, same, *others)).texts("td", **{"data-name": "Seen in"})
    assert table == ["t, ta, tb"]


def test_words_of_a_sentence_stand_apart_and_long_ones_are_cut():
    tokens = [f"w{i}" for i in range(20)]
    shown = Document(confusions.spelled(tokens, 10, " ")).texts("span")
    assert shown == ["… w6 w7 w8 w9 w10 w11 w12 w13 w14 …"]


def test_labels_confused_with_each_other_stand_side_by_side():
    errors = Counter({("A", "C"): 9, ("B", "D"): 5, ("A", "B"): 1})
    assert confusions.most_confused(errors, 4) == ["A", "C", "B", "D"]
    assert confusions.most_confused(errors, 2) == ["A", "C"]
    assert confusions.neighbours(["A", "B", "C", "D"], errors) == ["A", "C", "B", "D"]


def test_no_errors_at_all_is_said():
    doc = document(predictions=predictions([("a", "A", "A")]))
    assert "Every letter of the test data got the right phoneme." in doc.section("confusions")
    assert "No word has a mistake." in doc.section("mistakes")


def test_empty_predictions_are_said():
    doc = document(predictions=predictions(), calibration=[])
    for key in ("confusions", "mistakes", "calibration"):
        assert "the test data are empty" in doc.section(key)


def test_the_surest_mistake_comes_first_whatever_the_length():
    long = Tagged(["a"] * 50, ["A"] * 50, ["B"] * 50, [0.6] * 50, [0.3] * 50)
    sure = Tagged(["b"], ["A"], ["B"], [0.99], [0.001])
    right = Tagged(["c"], ["A"], ["A"], [0.9], [0.0001])
    assert mistakes.worst_sequences([long, right, sure], 5) == [sure, long]
    assert mistakes.worst_sequences([long, right, sure], 1) == [sure]


def test_a_mistake_shows_right_and_predicted_labels_and_how_sure_it_was():
    doc = document()
    first = next(text for text in doc.texts("li") if "predicted" in text)
    assert "t predicted T at 97.0%; right is TH, given 1\u00a0in\u00a01,000; 2 errors in this word" in first
    assert [text for _, text in doc.all("del")][:2] == ["T", "IY"]
    assert len(doc.all("span", "wrong")) == 3


def test_a_long_sequence_shows_the_part_around_its_worst_mistake():
    tokens = [(f"w{i}", "A", "A") for i in range(200)]
    tokens[150] = ("w150", "A", "B", 0.9, 0.01)
    text = document(predictions=predictions(tokens)).section("mistakes")
    assert "w150" in text and "w130" in text and "w129A" not in text and "w170" not in text


@pytest.mark.parametrize(
    ("probability", "words"),
    [(0.042, "4.2%"), (0.004, "1\u00a0in\u00a0250"), (6.1e-7, "1\u00a0in\u00a01,600,000"), (0.0, "no chance"),
     (1e-12, "less than 1\u00a0in a billion")],
)  # fmt: skip
def test_small_probabilities_are_told_as_odds(probability, words):
    assert mistakes.odds(probability) == words


def test_limits_come_from_the_parameters():
    none = Params().as_dict() | {"report": {"mistakes": 0, "weights": 0}}
    ids = [a.get("id") for a, _ in document(parameters=none).all("section")]
    assert "mistakes" not in ids and "weights" not in ids
    one = Params().as_dict() | {"report": {"mistakes": 1, "weights": 1}}
    doc = document(parameters=one)
    assert "The 1 word in which" in doc.section("mistakes")
    assert len([a for a, _ in doc.all("tr") if "data-top" in a]) == 2


# Calibration and chunks -----------------------------------------------------------------------------


def test_calibration_tells_its_error_and_each_filled_bin():
    text = document().section("calibration")
    assert "Expected calibration error1.09%" in text
    assert "90%–100%93.0%81.0%–1,234" in text and "40%–50%" not in text


CHUNK = {"precision": 0.94, "recall": 0.938, "f1": 0.939, "gold": 12422, "predicted": 12395, "correct": 11651}


def test_chunks_are_listed_by_frequency_only_when_there_are_any():
    rare = CHUNK | {"gold": 5, "f1": 0.2}
    doc = document(metrics=METRICS | {"chunks": {"LST": rare, "NP": CHUNK}})
    rows = [text for text in doc.texts("tr") if text.startswith(("NP", "LST"))]
    assert rows == ["NP94.0%93.8%93.9%12,42212,39511,651", "LST94.0%93.8%20.0%512,39511,651"]
    assert "chunks" not in [a.get("id") for a, _ in document().all("section")]


# Weights in words -----------------------------------------------------------------------------------


def unigram(observation: str, label: str = "TH") -> dict:
    return {"family": "unigram", "observation": observation, "previous": None, "label": label, "weight": 1.0}


@pytest.mark.parametrize(
    ("template", "observation", "words"),
    [
        ("U03:%x[-1,0]/%x[0,0]", "U03:t/h", "t·[h] → TH"),
        ("U03:%x[-1,0]/%x[0,0]", "U03:_x-1/h", "⟨start⟩·[h] → TH"),
        ("U03:%x[0,0]/%x[1,0]", "U03:h/_x+1", "[h]·⟨end⟩ → TH"),
        ("U04:%x[-2,0]", "U04:t", "t·∗·[∗] → TH"),
        ("U04:%x[-2,0]", "U04:_x-2", "⟨start−1⟩·∗·[∗] → TH"),
        ("U05:%x[0,1]", "U05:NN", "col 1: [NN] → TH"),
        ("U06:%x[0,0]/%x[-1,1]", "U06:dog/DT", "[dog], col 1: DT·[∗] → TH"),
        ("U", "U", "any letter → TH"),
        ("U03:%x[-1,0]/%x[0,0]", "U03:t//", "t·[/] → TH"),
        ("U03:%x[-1,0]/%x[0,0]", "U03:///", "/·[/] → TH"),
        ("U03:%x[-1,0]/%x[0,0]", "U03:/h", "U03:/h → TH"),
        ("U03:%x[-1,0]/%x[0,0]/%x[1,0]", "U03:1/2/a/b", "U03:1/2/a/b → TH"),
        ("U07:%m[0,0,x]", "U07:what", "U07:what → TH"),
        ("U08:%x[0,0]", "U09:elsewhere", "U09:elsewhere → TH"),
        ("U10:%x[ -1 , 0 ]", "U10:t", "t·[∗] → TH"),
        ("U11:%s[-1,0,2]/%s[0,0,2]", "U11:ed/ly", "last 2: ed·[ly] → TH"),
        ("U12:%W[0,1]", "U12:xx", "shape without case of col 1: [xx] → TH"),
        ("U13:%g[0,0,3]", "U13:<un", "3-gram: [<un] → TH"),
        ('U14:%t[0,0,"^a"]', "U14:true", "does `^a` match: [true] → TH"),
        ("U15:%x[@1,0]/%x[0,0]", "U15:a/b", "[b], first a → TH"),
        ("U16:%x[@-2,1]", "U16:a", "1 before last col 1: a → TH"),
        ("U17:%X[0,0] # comment", "U17:a", "lower case: [a] → TH"),
        ("U18:%x[999999999,0]", "U18:a", "at +999999999 a → TH"),
    ],
)
def test_observations_are_told_as_what_was_seen(template, observation, words):
    assert Phrases([template], Nouns(**NOUNS)).weight(unigram(observation)) == words


def test_a_bag_of_places_names_all_of_them():
    bag = Phrases(["U:%x[-1,0]", "U:%x[0,0]", "U:%x[1,0]"], Nouns(**NOUNS))
    assert bag.weight(unigram("U:t")) == "t at -1, 0, +1 → TH"


@pytest.mark.parametrize(
    ("family", "observation", "previous", "words"),
    [
        ("bigram", "*0:n", "AH", "AH → N when letter n"),
        ("bigram", "B", "AH", "AH → N"),
        ("bigram", "U-1:t/h", "AH", "AH → N when t·[h]"),
        ("start", "*0:n", None, "⟨start⟩ → N when letter n"),
        ("bigram", "*0:·", "AH", "AH → N when letter ·"),
    ],
)
def test_transitions_are_told_with_their_condition(family, observation, previous, words):
    row = {"family": family, "observation": observation, "previous": previous, "label": "N", "weight": 1.0}
    assert Phrases(TEMPLATES, Nouns(**NOUNS)).weight(row) == words


def test_many_separators_do_not_take_for_ever():
    template = "U:" + "/".join(["%x[0,0]"] * 6)
    assert Phrases([template], Nouns()).context("U:" + "/" * 60) == "U:" + "/" * 60


def test_weights_are_listed_by_sign_and_size():
    doc = document()
    phrases = [text for _, text in doc.all("th", "phrase")]
    assert phrases == ["t·[h] → TH", "AH → N when letter n", "AH → N", "⟨start⟩ → N when letter n",
                       "any letter → N", "[n] → T"]  # fmt: skip
    rows = [text for a, text in doc.all("tr") if "data-label" in a]
    assert rows[0] == "t·[h] → TH3.25" and rows[-1] == "[n] → T−2.50"


def test_what_is_not_among_the_largest_waits_hidden_for_the_filter():
    many = [("unigram", f"*0:{i}", None, "A", 100.0 - i) for i in range(60)] + [("unigram", "*0:z", None, "B", 0.1)]
    doc = document(weights=model(*many))
    rows = [a for a, _ in doc.all("tr") if "data-label" in a]
    assert len([a for a in rows if "hidden" not in a]) == Params().report.weights
    assert [a["data-label"] for a in rows if "hidden" in a] == ["B"]
    assert all(("hidden" in a) != ("data-top" in a) for a in rows)
    box = doc.all("div", "filter")[0][0]
    assert "hidden" in box
    assert [a["value"] for a, _ in doc.all("option")] == ["A", "B"]
    assert "No weight speaks against a label." in doc.section("weights")


def test_zero_active_weights_are_said():
    none = METRICS | {"active_unigram": 0, "active_start": 0, "active_bigram": 0}
    flat = [record(1, active_unigram=0, active_bigram=0), record(2, active_unigram=0, active_bigram=0)]
    doc = document(metrics=none, weights=model(), trace=flat)
    assert "All weights are zero" in doc.section("weights")
    assert "0of 14,200,000 possible (0.00%)" in doc.section("results")
    assert "Iteration 2: unigram 0, bigram 0" in doc.section("learning")


# Drift and provenance -------------------------------------------------------------------------------


def test_drift_shows_both_shares_weights_and_what_is_typical():
    text = document().section("drift")
    for told in ("0.012", "6,812", "of 8,000 words", "25.0%50.0%2.000.008", "t·[h]", "three, theme"):
        assert told in text
    assert "Pool without labels" not in text


def test_a_group_without_labelled_sequences_has_no_weight():
    alone = GROUP | {"labelled": 0, "labelled_share": 0.0, "weight": None}
    text = document(clusters=POOL | {"clusters": [alone], "pool_without_label_share": 0.5}).section("drift")
    assert "0.0%50.0%–" in text and "Pool without labels50.0%" in text


def test_drift_beyond_the_limit_is_said():
    text = document(clusters=POOL | {"drifted": True, "drift_limit": 0.01}).section("drift")
    assert "above the limit of 0.01: the pool has drifted" in text
    assert "drifted" not in document(clusters=POOL | {"drifted": False, "drift_limit": 0.1}).section("drift")


def test_no_pool_is_a_plain_sentence():
    nothing = {"clusters": [], "jensen_shannon": None, "pool_without_label_share": None, "sequences": 5}
    assert "No unlabelled pool was compared" in document(clusters=nothing).section("drift")


def test_versions_and_parameters_are_listed_without_what_cannot_matter():
    train = {"rho1": 0.5, "start": True, "initial": None}
    given = {
        "ingest": {"limit": 20000},
        "template": {"lines": TEMPLATES},
        "train": train,
        "compute": {"threads": 8},
        "promote": {"level": 0.9},
    }
    text = document(parameters=given).section("provenance")
    for told in ("d" * 64, "c" * 64, "v" * 64, "U-1:%x[-1,0]/%x[0,0]"):
        assert told in text
    for told in ("limit20000", "lines5 entries", "rho10.5", "startyes", "initialnot set"):
        assert told in text
    assert "threads" not in text and "promote" not in text
    assert "No parameters were recorded." in document(parameters={}).section("provenance")


# Numbers for readers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [(18012, "18,012"), (-5, "−5"), (0.48902, "0.489"), (-1.2, "−1.20"), (6812.4, "6,812"), (0.0, "0.00"),
     (None, "–"),
     (float("nan"), "–"), (3.2e-7, "3.2 × 10⁻⁷"), (-4.1e15, "−4.1 × 10¹⁵"), (True, "1")],
)  # fmt: skip
def test_numbers(value, text):
    assert page.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1423, "14.2%"), (0, "0.0%"), (1, "100.0%"), (0.0004, "<0.1%"), (0.9996, ">99.9%"), (-0.01, "−1.0%"),
     (None, "–"), (2.5, "250.0%")],
)  # fmt: skip
def test_percent_never_rounds_to_nothing_or_all(value, text):
    assert page.percent(value) == text


def test_differences_show_their_sign():
    assert [page.signed(v) for v in (0.012, -0.3, 0.0)] == ["+0.0120", "−0.300", "0.00"]
    assert [page.points(v) for v in (0.0031, -0.0031, -0.0000001, None)] == [
        "+0.31 points",
        "−0.31 points",
        "0.00 points",
        "–",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.05, "0.05"),
        (500, "500"),
        (2500, "2.5k"),
        (1.2e6, "1.2M"),
        (1e-6, "10⁻⁶"),
        (5e-5, "5 × 10⁻⁵"),
        (-2000, "−2k"),
    ],
)
def test_ticks_are_short(value, text):
    assert page.compact(value) == text


def test_nouns_and_counts():
    assert [page.plural(n) for n in ("word", "entity", "address", "key")] == [
        "words",
        "entities",
        "addresses",
        "keys",
    ]
    assert [page.count(n, "word") for n in (0, 1, 2000)] == ["0 words", "1 word", "2,000 words"]


def test_a_page_of_plain_markup_has_its_title_as_heading():
    doc = Document(page.page("A < B", "<section><p>text</p></section>"))
    assert doc.texts("h1") == ["A < B"] and doc.texts("p") == ["text"]


# From files to a file -------------------------------------------------------------------------------


def write_model(path: Path, rows: list[dict], meta: dict) -> None:
    """A model file with these weights."""
    labels = sorted({row[name] for row in rows for name in ("label", "previous")} - {None} | set(meta.pop("labels")))
    names = sorted({row["observation"] for row in rows})
    kinds = {name: (FAMILIES.index(name)) for name in FAMILIES}
    slots = sorted(
        (kinds[row["family"]], names.index(row["observation"]), -1 if row["previous"] is None
         else labels.index(row["previous"]), labels.index(row["label"]), row["weight"]) for row in rows
    )  # fmt: skip
    family, observation, previous, label, weight = (np.array(column) for column in zip(*slots, strict=True))
    layout = _layout(len(labels), len(names), family, observation, previous, label)
    CrfLabeller(labels, meta.pop("templates"), names, layout, weight, meta).save(path)


def write_artefacts(root: Path, given: Inputs) -> None:
    store.write_json(root / store.METRICS, given.metrics)
    store.write_jsonl(root / store.TRACE, given.trace)
    store.write_arrow(root / store.PREDICTIONS, given.predictions)
    write_model(root / store.CANDIDATE, given.weights.to_pylist(), dict(given.metadata))
    store.write_json(root / store.MANIFEST, MANIFEST | given.manifest)
    store.write_json(root / store.CLUSTERS, given.clusters)
    store.write_json(root / store.PROFILE, given.profile)


def test_main_writes_one_small_page_and_the_same_again(tmp_path):
    write_artefacts(tmp_path, inputs())
    figures = report.main(tmp_path, Params(), Progress())
    first = (tmp_path / store.REPORT).read_bytes()
    assert figures == {"bytes": len(first)} and len(first) < LIMIT
    report.main(tmp_path, Params(), Progress())
    assert (tmp_path / store.REPORT).read_bytes() == first
    assert str(tmp_path) not in first.decode()


def test_main_computes_calibration_from_the_predictions(tmp_path):
    write_artefacts(tmp_path, inputs())
    params = Params()
    params.evaluate.bins = 10
    report.main(tmp_path, params, Progress())
    doc = Document((tmp_path / store.REPORT).read_text(encoding="utf-8"))
    assert "90%–100%91.0%85.7%43–987" in doc.section("calibration")


def test_main_with_empty_test_data_writes_a_page(tmp_path):
    write_artefacts(tmp_path, inputs(predictions=predictions()))
    report.main(tmp_path, Params(), Progress())
    assert "the test data are empty" in (tmp_path / store.REPORT).read_text(encoding="utf-8")


def test_main_names_the_stage_whose_file_is_missing(tmp_path):
    write_artefacts(tmp_path, inputs())
    (tmp_path / store.METRICS).unlink()
    with pytest.raises(EspalierError, match="metrics.json: there is no such file; run `espalier stage evaluate`"):
        report.main(tmp_path, Params(), Progress())


def test_a_large_run_stays_small(tmp_path):
    labels = [f"L{i:03d}" for i in range(200)]
    many = [("unigram", f"*0:{i}", None, labels[i % 200], (-1) ** (i // 200) * (1 + i / 1e4)) for i in range(40_000)]
    words = [[("a", labels[(i * 7) % 200], labels[(i * 3) % 200])] * 60 for i in range(500)]
    trace = [record(i) for i in range(1, 5001)]
    text = report.render(inputs(weights=model(*many), predictions=predictions(*words), trace=trace))
    assert len(text.encode()) < LIMIT


# In a browser ---------------------------------------------------------------------------------------


@pytest.fixture
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as p:
        started = p.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.mark.browser
def test_a_page_without_contents_uses_the_whole_width(browser, tmp_path):
    (tmp_path / "page.html").write_text(page.page("T", "<section><p>text</p></section>"), encoding="utf-8")
    tab = browser.new_page(viewport={"width": 1280, "height": 800})
    tab.goto((tmp_path / "page.html").as_uri())
    assert tab.locator("main").bounding_box()["width"] > 1000


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1280, "light")])
def test_in_a_browser_it_is_quiet_fits_the_screen_and_filters(browser, tmp_path, width, scheme):
    (tmp_path / "report.html").write_text(report.render(inputs()), encoding="utf-8")
    tab = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme).new_page()
    complaints, requests = [], []
    tab.on("console", lambda m: complaints.append(m.text))
    tab.on("pageerror", lambda e: complaints.append(str(e)))
    tab.on("request", lambda r: requests.append(r.url))
    tab.goto((tmp_path / "report.html").as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.locator("tr[data-label]:visible").count() == len(WEIGHTS)
    tab.fill("#label-filter", "t")
    assert tab.locator("tr[data-label]:visible").all_inner_texts()[0].split("\t")[0] == "[n] → T"
    tab.fill("#label-filter", "th")
    assert tab.locator("tr[data-label]:visible").all_inner_texts()[0].split("\t")[0] == "t·[h] → TH"
    assert tab.locator("output").inner_text() == "1 weight"
    tab.locator("#learning svg[role=img]").first.focus()
    tab.keyboard.press("ArrowRight")
    assert tab.locator(".tip").inner_text() == "Iteration 1: objective 9,000.00"
    assert not complaints and [u for u in requests if not u.startswith(("file:", "data:"))] == []
