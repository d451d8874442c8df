"""Boosting in a project: what trace, model file, report and commands tell of its rounds, and when it stops."""

import dataclasses
import json

import pytest
from small_models import boosting_of
from stage_runs import run_stages
from test_family_contracts import DATA, WORDS, params_of, words_project

from espalier.engine.families import load
from espalier.engine.families.boosting import ROUNDS
from espalier.flows import cli
from espalier.tasks import store
from espalier.tasks.report.phrases import Phrases
from espalier.tasks.report.rounds import rounds
from espalier.tasks.report.words import Nouns
from espalier.tasks.training.boosted import LOOKS
from espalier.tasks.training.plan import main as plan


def test_rounds_are_told_in_words_everywhere(tmp_path, capsys):
    params = words_project(tmp_path, WORDS, "boosting", rounds=25, look=5, dev_share=0.3)
    run_stages(tmp_path, params, *DATA, "train", "evaluate", "report")
    trace, model = store.read_trace(tmp_path), load(tmp_path / store.CANDIDATE)
    best = model.info["best_iteration"]
    assert len(model.rounds()) == best and best in [record["iteration"] for record in trace if "dev_loss" in record]
    for record, made in zip(trace[1:], model.rounds(), strict=False):
        assert (record["step"], record["z"], record["family"]) == (made.step, made.z, made.family)
        assert made.label in record["feature"] and 0.0 < record["z"] < 1.0
    sums = {}
    for made in model.rounds():
        sums[made[:4]] = sums.get(made[:4], 0.0) + made.step
    for row in model.shown_table().to_pylist():
        key = row["family"], row["observation"], row["previous"], row["label"]
        assert row["weight"] == pytest.approx(sums[key])
    assert 'id="rounds"' in (tmp_path / store.REPORT).read_text(encoding="utf-8")
    assert cli.main(["inspect", str(tmp_path / store.CANDIDATE), "--top", "2"]) == 0
    said = capsys.readouterr().out
    assert "rounds: step, Z" in said and ROUNDS not in said
    assert cli.main(["inspect", str(tmp_path / store.CANDIDATE), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["step"] for one in told["rounds"]] == [one.step for one in model.rounds()]


def test_the_report_adds_up_what_a_weight_has_done():
    model = boosting_of()
    model.info[ROUNDS] = [["unigram", "U", None, "X", 1.5, 0.5], ["bigram", "U", "X", "Y", 0.25, 0.9],
                          ["unigram", "U", None, "X", -0.5, 0.8]]  # fmt: skip
    model.check()
    page = str(rounds(model.rounds(), Phrases([], Nouns())))
    assert "3 rounds" in page and "X → Y" in page and "71.8%" in page or "89.7%" in page
    assert rounds([], Phrases([], Nouns())) is None


@pytest.mark.parametrize(
    "rows",
    ["many", [["unigram", "U", None, "X", 1.0]], [["unigram", "U", "X", "X", 1.0, 0.5]],
     [["bigram", "U", None, "X", 1, 0.5]], [["unigram", "U", None, "W", 1.0, 0.5]],
     [["unigram", 3, None, "X", 1.0, 0.5]], [["unigram", "U", None, "X", float("nan"), 0.5]],
     [["trigram", "U", "X", "X", 1.0, 0.5]]],
    ids=str,
)  # fmt: skip
def test_rounds_of_a_file_that_are_none(rows):
    model = boosting_of()
    with pytest.raises(ValueError, match="its rounds are not what a boosting has written"):
        dataclasses.replace(model, info={ROUNDS: rows}).check()


def test_it_stops_when_no_look_finds_better(tmp_path):
    """After `LOOKS` looks, or as many rounds as train.patience says; the last round of all is looked at, too."""
    params = params_of("boosting", look=1, rounds=400, max_iterations=400)
    run_stages(tmp_path, params, *DATA, "train")
    trace, info = store.read_trace(tmp_path), load(tmp_path / store.CANDIDATE).info
    assert info["stop_reason"] == "patience" and trace[-1]["iteration"] == info["best_iteration"] + LOOKS
    params.train.patience, params.boosting.look = 3, 2
    run_stages(tmp_path, params, "train")
    trace, info = store.read_trace(tmp_path), load(tmp_path / store.CANDIDATE).info
    assert trace[-1]["iteration"] == info["best_iteration"] + 3
    params.boosting.rounds, params.boosting.look, params.train.patience = 7, 50, None
    run_stages(tmp_path, params, "train")
    trace = store.read_trace(tmp_path)
    assert [record["iteration"] for record in trace if "dev_loss" in record] == [0, 7]


def test_positions_by_themselves_have_no_weights_for_pairs(tmp_path):
    params = words_project(tmp_path, WORDS, "boosting", rounds=20, examples="positions")
    run_stages(tmp_path, params, *DATA, "train")
    sizes = load(tmp_path / store.CANDIDATE).sizes()
    assert sizes["active_unigram"] > 0 and sizes["active_start"] == sizes["active_bigram"] == 0
    assert plan(tmp_path, params)["seconds_per_iteration"] > 0.0


def test_values_are_refused_in_words(tmp_path):
    from espalier import CRF
    from espalier.engine.errors import EspalierError

    with pytest.raises(EspalierError, match="^boosting cannot learn from real values"):
        CRF(family="boosting").fit([[{"v": 1.5}], [{"v": -2.0}]], [["A"], ["B"]])
