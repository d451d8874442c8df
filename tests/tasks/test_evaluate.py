"""Evaluation of a model that can be worked out by hand, and chunk scores against seqeval."""

import csv
import json
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score
from stage_runs import run_stages, small_params, tree

from espalier.engine.data.dataset import select
from espalier.engine.errors import EspalierError
from espalier.engine.families import load as load_model
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.labels.measures import measure_of
from espalier.engine.weights.layout import dense_layout, observation_kinds
from espalier.tasks import evaluate, store
from espalier.tasks.answering.tagging import renumber
from espalier.tasks.judging import headline
from espalier.tasks.params import Params
from espalier.tasks.progress import Progress

EXACT = 1e-12
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=80)
NOUNS = {"token": "letter", "label": "sound", "sequence": "word"}
LINES = ["U:%x[0,0]"]
INFO = {
    "objective": 1.5,
    "stop_reason": "converged",
    "iterations": 1,
    "features": 6,
    "train_sequences": 2,
    "train_tokens": 3,
}


# ---- a case by hand: letters a and b, labels P and Q, one weight for each letter


def unigram_model(path, odds, labels=("P", "Q"), info=None):
    """p(P | letter) = odds / (1 + odds), each position by itself."""
    names = [f"U:{letter}" for letter in odds]
    layout = dense_layout(len(labels), observation_kinds(names))
    theta = np.zeros(layout.size)
    theta[:: len(labels)] = [math.log(value) for value in odds.values()]
    model = CrfLabeller.compact(layout, theta, names, list(labels), LINES, INFO if info is None else info)
    model.save(path)
    return model


def write_tokens(root, split, words, labels=None):
    columns = {
        "sequence": pl.Series([n for n, w in enumerate(words) for _ in w], dtype=pl.Int32),
        "x0": list("".join(words)),
    }
    if labels is not None:
        columns["label"] = list("".join(labels))
    schema = {"sequence": pl.Int32, "x0": pl.String} | ({"label": pl.String} if labels is not None else {})
    store.write_tokens(
        root, split, pl.DataFrame(columns, schema=schema), {"source": "hand", "nouns": NOUNS, "truth": None}
    )


@pytest.fixture
def by_hand(tmp_path):
    """Test words ab, a and bz with labels PQ, Q and QQ; z is not in the vocabulary."""
    write_tokens(tmp_path, "train", ["ab", "b"], ["PQ", "P"])
    write_tokens(tmp_path, "dev", [], [])
    write_tokens(tmp_path, "unlabelled", [])
    write_tokens(tmp_path, "test", ["ab", "a", "bz"], ["PQ", "Q", "QQ"])
    params = Params()
    params.template.lines = LINES
    run_stages(tmp_path, params, "template")
    unigram_model(tmp_path / store.CANDIDATE, {"a": 3.0, "b": 1 / 4})
    store.write_jsonl(tmp_path / store.TRACE, [
        {"iteration": i, "objective": 3.0 - i, "active_unigram": i, "active_start": 0, "active_bigram": 0,
         "dev_token_error": None} for i in range(2)
    ])  # fmt: skip
    return tmp_path, params


# p(P|a) = 3/4, p(P|b) = 1/5, p(P|z) = 1/2, and a tie goes to the smaller label P
EXPECTED = [(0, "a", "P", "P", 3 / 4, 3 / 4), (0, "b", "Q", "Q", 4 / 5, 4 / 5), (1, "a", "Q", "P", 3 / 4, 1 / 4),
            (2, "b", "Q", "Q", 4 / 5, 4 / 5), (2, "z", "Q", "P", 1 / 2, 1 / 2)]  # fmt: skip


def test_predictions_by_hand(by_hand):
    root, params = by_hand
    run_stages(root, params, "evaluate")
    table, info = store.read_arrow(root / store.PREDICTIONS)
    assert table.column_names == ["sequence", "x0", "label", "predicted", "confidence", "gold_probability", "seen"]
    assert info == {"nouns": NOUNS, "window": 1}
    found = pl.from_arrow(table).rows()
    assert [row[:4] for row in found] == [row[:4] for row in EXPECTED]
    assert [row[6] for row in found] == [1, 2, 1, 2, 0]  # how often a, b and z stand in training
    assert np.array([row[4:6] for row in found]) == pytest.approx(np.array([row[4:] for row in EXPECTED]), abs=EXACT)


def test_metrics_by_hand(by_hand):
    root, params = by_hand
    params.evaluate.bins = 5
    figures = run_stages(root, params, "evaluate")["evaluate"]
    found = store.read_json(root / store.METRICS)
    losses = [-math.log(3 / 4 * 4 / 5), -math.log(1 / 4), -math.log(4 / 5 * 1 / 2)]
    expected = {
        "token_error": 2 / 5, "sequence_error": 2 / 3, "log_loss": sum(losses) / 5,
        "sequence_log_loss": sum(losses) / 3,
        "sequences_with_unknown_labels": 0, "labels": 2, "test_tokens": 5, "test_sequences": 3,
        # bins of a fifth: [0.4, 0.6) holds 0.5 wrong; [0.6, 0.8) holds 0.75 twice, one right; [0.8, 1] 0.8 twice, right
        "calibration_error": 1 / 5 * 0.5 + 2 / 5 * 0.25 + 2 / 5 * 0.2,
        "active_unigram": 2, "active_start": 0, "active_bigram": 0,
        # resamples of three words with 0 of 2, 1 of 1 and 1 of 2 wrong: some hold the first alone, some the second
        "measure": "token_error", "token_error_low": 0.0, "token_error_high": 1.0,
    } | INFO  # fmt: skip
    without = {"token_error": 2 / 3, "sequence_error": 1.0}  # training has ab, too
    assert found.pop("overlap") == {"sequences": 1, "share": 1 / 3, "without": without}
    left = {row["limit"]: (row["kept"], row["accuracy"]) for row in found["abstention"]["rows"]}
    assert found.pop("abstention")["of"] == "tokens"
    assert (left[0.0], left[0.6], left[0.85]) == ((5, 3 / 5), (4, 3 / 4), (0, None))
    assert set(found.pop("decoders")) == {"viterbi", "posterior", "used", "part"}
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name] == (pytest.approx(value, abs=1e-9) if isinstance(value, float) else value), name
    assert figures == {name: found[name] for name in ("token_error", "sequence_error", "log_loss")}


def test_curves_by_hand(by_hand):
    root, params = by_hand
    params.evaluate.bins = 5
    run_stages(root, params, "evaluate")

    def rows(name):
        with (root / store.CURVES / name).open(newline="") as file:
            return list(csv.reader(file))

    assert rows("learning.csv") == [
        ["iteration", "objective", "active_unigram", "active_bigram", "dev_token_error"],
        ["0", "3.0", "0", "0", ""], ["1", "2.0", "1", "0", ""],
    ]  # fmt: skip
    assert rows("confusion.csv") == [["label", "predicted", "count"], ["P", "P", "1"], ["Q", "P", "2"], ["Q", "Q", "2"]]
    head, *found = rows("calibration.csv")
    assert head == ["bin_low", "bin_high", "confidence", "accuracy", "count", "accuracy_low", "accuracy_high"]
    intervals = np.array([row.pop() for row in found] + [row.pop() for row in found], float)
    assert ((intervals >= 0) & (intervals <= 1)).all()
    expected = [[0.4, 0.6, 0.5, 0.0, 1], [0.6, 0.8, 0.75, 0.5, 2], [0.8, 1.0, 0.8, 1.0, 2]]
    assert np.array(found, float) == pytest.approx(np.array(expected), abs=EXACT)


def test_a_training_of_one_look_has_no_learning_curve(by_hand):
    root, params = by_hand
    store.write_jsonl(root / store.TRACE, store.read_trace(root)[-1:])
    run_stages(root, params, "evaluate")
    head, *points = (root / store.CURVES / "learning.csv").read_text().splitlines()
    assert head.startswith("iteration,objective,") and not points


def test_a_reference_gives_the_excess_log_loss(by_hand):
    root, params = by_hand
    unigram_model(root / "reference.model", {"a": 1.0, "b": 1.0})
    params.evaluate.reference = "reference.model"
    run_stages(root, params, "evaluate")
    found = store.read_json(root / store.METRICS)
    assert found["excess_log_loss"] == pytest.approx(found["log_loss"] - math.log(2), abs=EXACT)


def test_a_model_against_itself_has_no_excess_log_loss(by_hand):
    root, params = by_hand
    params.evaluate.reference = store.CANDIDATE
    run_stages(root, params, "evaluate")
    assert store.read_json(root / store.METRICS)["excess_log_loss"] == pytest.approx(0, abs=EXACT)


def test_a_reference_uses_what_it_knows_beyond_the_vocabulary(by_hand):
    """It has seen z, which the training data of this run never had; its labels stand in another order."""
    root, params = by_hand
    unigram_model(root / "reference.model", {"a": 1.0, "z": 9.0, "b": 1.0}, labels=("Q", "P"))
    params.evaluate.reference = "reference.model"
    run_stages(root, params, "evaluate")
    found = store.read_json(root / store.METRICS)
    reference = (4 * math.log(2) - math.log(9 / 10)) / 5
    assert found["excess_log_loss"] == pytest.approx(found["log_loss"] - reference, abs=EXACT)


def test_unknown_labels_count_as_errors_and_leave_the_log_loss(by_hand):
    root, params = by_hand
    write_tokens(root, "test", ["ab", "a", "bz"], ["PX", "Q", "QQ"])
    run_stages(root, params, "template", "evaluate")
    found = store.read_json(root / store.METRICS)
    losses = [-math.log(1 / 4), -math.log(4 / 5 * 1 / 2)]
    assert found["sequences_with_unknown_labels"] == 1 and found["token_error"] == pytest.approx(3 / 5)
    assert found["log_loss"] == pytest.approx(sum(losses) / 3) and found["sequence_log_loss"] == pytest.approx(
        sum(losses) / 2
    )
    row = pl.from_arrow(store.read_arrow(root / store.PREDICTIONS)[0]).row(1)
    assert row[2:4] == ("X", "Q") and row[5] == 0.0


def test_no_sequence_with_known_labels_is_refused(by_hand):
    root, params = by_hand
    write_tokens(root, "test", ["ab"], ["XY"])
    run_stages(root, params, "template")
    before = tree(root)
    with pytest.raises(EspalierError, match="no test sequence has only labels that occur in training: check the split"):
        run_stages(root, params, "evaluate")
    assert tree(root) == before


def test_a_reference_of_another_task_is_refused(by_hand):
    root, params = by_hand
    unigram_model(root / "reference.model", {"a": 2.0}, labels=("R", "S"))
    params.evaluate.reference = "reference.model"
    before = tree(root)
    with pytest.raises(EspalierError, match="evaluate.reference knows other labels than the candidate"):
        run_stages(root, params, "evaluate")
    assert tree(root) == before


# ---- chunks


@st.composite
def iob2(draw):
    """Well-formed IOB2 columns: I- only after B- or I- of the same kind, where seqeval and conlleval agree."""
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))

    def column():
        sequences = []
        for length in lengths:
            tags = []
            for _ in range(length):
                inside = [f"I-{tags[-1][2:]}"] if tags and tags[-1] != "O" else []
                tags.append(draw(st.sampled_from(["O", "B-NP", "B-VP", *inside, *inside])))
            sequences.append(tags)
        return sequences

    return column(), column()


@EXAMPLES
@given(iob2())
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_chunk_scores_are_those_of_seqeval(columns):
    gold, guess = columns
    flat_gold, flat_guess = sum(gold, []), sum(guess, [])
    offsets = np.cumsum([0, *map(len, gold)])
    found = evaluate.error_figures(measure_of(None, flat_gold + flat_guess), flat_gold, flat_guess, offsets)
    assert found["token_error"] == pytest.approx(np.mean([a != b for a, b in zip(flat_gold, flat_guess, strict=True)]))
    if set(flat_gold + flat_guess) == {"O"}:
        assert "f1" not in found and found["measure"] == "token_error"
        return
    assert found["measure"] == "f1" and found["f1_low"] <= found["f1_high"]
    for name, function in {"precision": precision_score, "recall": recall_score, "f1": f1_score}.items():
        assert found[name] == pytest.approx(function(gold, guess, zero_division=0), abs=EXACT)
    for kind, row in found["chunks"].items():
        kept = [[[tag if tag[2:] == kind else "O" for tag in tags] for tags in column] for column in columns]
        assert row["f1"] == pytest.approx(f1_score(*kept, zero_division=0), abs=EXACT)


def test_labels_that_are_no_chunks_get_no_chunk_scores():
    found = evaluate.error_figures(measure_of(None, ["O", "B"]), ["O", "B"], ["O", "O"], np.array([0, 2]))
    assert set(found) == {"measure", "token_error", "token_error_low", "token_error_high", "sequence_error"}


SPELT = {"name": "edit_error", "silent": "_", "join": "+"}


def test_where_labels_spell_a_string_the_string_is_judged():
    """Two words: the same string from other letters, and one phoneme of three replaced."""
    gold, said, offsets = ["_", "K", "AH", "S"], ["K", "_", "K+S", "_"], np.array([0, 2, 4])
    found = evaluate.error_figures(measure_of(SPELT, gold), gold, said, offsets)
    assert found["edit_error"] == pytest.approx(1 / 3) and found["measure"] == "edit_error"
    assert found["token_error"] == 1.0 and found["sequence_error"] == 0.5
    assert (found["edit_error_low"], found["edit_error_high"]) == (0.0, 0.5), "both words are the first, or the second"


def test_the_words_for_letters_and_strings():
    metrics = {"measure": "edit_error", "edit_error": 0.1, "token_error": 0.2, "sequence_error": 0.3}
    assert headline.in_one_line(metrics, NOUNS) == "sound error 10.00%, letters wrong 20.00%, word error 30.00%"
    entities = {"measure": "f1", "f1": 0.8, "f1_low": 0.75, "f1_high": 0.85, "token_error": 0.2}
    assert headline.in_one_line(entities, NOUNS) == "F1 of entities 80.00% (75.00% to 85.00%), sound error 20.00%"
    assert headline.in_one_line({"token_error": 0.2, "f1": 0.8}, NOUNS).startswith("F1 of entities 80.00%, sound"), (
        "old"
    )


# ---- the stage on simulated data


def test_simulated_data_have_their_exact_excess_risk(project):
    from espalier.tasks.judging.risk import excess_risk
    from espalier.tasks.sources import simulated

    found = store.read_json(project / store.METRICS)
    expected = excess_risk(simulated.truth(), load_model(project / store.CANDIDATE))
    assert {name: found[name] for name in expected} == expected and found["excess_risk"] > 0


def test_a_label_that_training_never_saw_leaves_no_excess_risk(project):
    tokens, info = store.read_tokens(project, "train")
    kept = tokens.with_columns(label=pl.col("label").replace("F", "E"))
    store.write_tokens(project, "train", kept, info)
    run_stages(project, small_params(), "template", "weigh", "train", "evaluate")
    found = store.read_json(project / store.METRICS)
    assert "excess_risk" not in found and found["bayes_error"] == pytest.approx(0.154, abs=5e-4)


def test_metrics_are_strict_json(project):
    """NaN and Infinity are no JSON; a reader in another language would stop at them."""

    def refuse(name):
        raise AssertionError(name)

    json.loads((project / store.METRICS).read_text(encoding="utf-8"), parse_constant=refuse)


def test_the_stage_is_repeatable_to_the_byte(project):
    before = tree(project)
    run_stages(project, small_params(), "evaluate")
    assert tree(project) == before


@pytest.mark.parametrize("path", [store.CANDIDATE, store.TRACE, store.MANIFEST, store.VOCABULARY,
                                  "data/tokens/test.arrow",
                                  "data/features/test/00000.arrow"])  # fmt: skip
def test_a_damaged_input_changes_nothing(project, path):
    (project / path).write_bytes((project / path).read_bytes()[:-20])
    before = tree(project)
    with pytest.raises(EspalierError, match=f"{path}: (damaged|not a readable model).* restore it with `dvc checkout`"):
        run_stages(project, small_params(), "evaluate")
    assert tree(project) == before


def test_features_of_other_tokens_are_refused(project):
    tokens, info = store.read_tokens(project, "test")
    store.write_tokens(project, "test", tokens.head(50), info)
    before = tree(project)
    with pytest.raises(
        EspalierError, match="data/features: 150 test positions, the tokens have 50; run `espalier stage template`"
    ):
        run_stages(project, small_params(), "evaluate")
    assert tree(project) == before


def test_progress_ends_with_the_errors(by_hand):
    root, params = by_hand
    notes = []

    class Listener(Progress):
        def end(self, note=""):
            notes.append(note)

    evaluate.main(root, params, Listener())
    assert notes == ["sound error 40.00% (0.00% to 100.00%), word error 66.67%"]


# ---- parts: shards are measured one by one


def test_the_figures_do_not_depend_on_the_shards(project):
    """Cut anywhere between sequences, the parts put together are those of the whole, to the bit."""
    manifest, model = store.read_manifest(project), load_model(project / store.CANDIDATE)
    observations = store.read_vocabulary(project)["observation"].to_list()
    data = renumber(store.read_dataset(project, "test", manifest), model, observations, manifest["labels"])
    whole = evaluate.measure(data, model)
    for cuts in ([1], [7, 8, 20], list(range(1, len(data.weights)))):
        edges = [0, *cuts, len(data.weights)]
        runs = (select(data, np.arange(a, b)) for a, b in zip(edges, edges[1:], strict=False))
        found = evaluate.merge(evaluate.measure(run, model) for run in runs)
        for name, column in zip(evaluate.Measured._fields, whole, strict=True):
            np.testing.assert_array_equal(getattr(found, name), column, name)


def test_small_shards_give_the_same_files(project):
    before = tree(project)
    params = small_params()
    params.template.shard_tokens = 40
    run_stages(project, params, "template", "evaluate")
    after = tree(project)
    assert len([name for name in after if name.startswith("data/features/test/")]) > 2
    assert {name: after[name] for name in before if name.startswith("reports")} == {
        name: before[name] for name in before if name.startswith("reports")
    }
