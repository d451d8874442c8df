"""How likely inputs are: figures by hand, in evaluation, report and tagging; what cannot say it is left out."""

import json
import math

import numpy as np
import polars as pl
import pytest
from small_models import hmm_of, model_of
from stage_runs import run_stages, small_params
from test_report import METRICS, document

from espalier.engine.errors import EspalierError
from espalier.engine.families import load
from espalier.tasks import store
from espalier.tasks.answering import stream
from espalier.tasks.answering.tagging import dataset_of
from espalier.tasks.judging.likelihood import figures, least_likely

STAGES = "ingest", "template", "weigh", "train", "evaluate", "report"
LOSSES, LENGTHS = np.array([2.0, 9.0, 3.0, 10.0]), np.array([1, 3, 2, 4])


def part(losses=LOSSES, lengths=LENGTHS):
    return np.asarray(losses, float), np.asarray(lengths, np.int64)


# ---- figures


def test_figures_by_hand():
    test = part([4.0, 8.0], [1, 3])
    found = figures({"dev": part(), "test": test, "unlabelled": part([], [])}, "dev")
    assert found["parts"].keys() == {"dev", "test"} and found["reference"] == "dev"
    dev = found["parts"]["dev"]
    assert (dev["sequences"], dev["tokens"], dev["loss"]) == (4, 10, 2.4)
    error = math.sqrt(sum((a - 2.4 * n) ** 2 for a, n in zip(LOSSES, LENGTHS, strict=True)) * 4 / 3) / 10
    assert dev["high"] - dev["loss"] == pytest.approx(1.96 * error, rel=1e-12)
    other = found["parts"]["test"]
    of_test = math.sqrt(((4 - 3) ** 2 + (8 - 9) ** 2) * 2) / 4
    assert other["difference"] == pytest.approx(0.6, rel=1e-12) and "difference" not in dev
    assert other["difference_low"] == pytest.approx(0.6 - 1.96 * math.hypot(error, of_test), rel=1e-12)
    assert found["least"] == [{"sequence": 0, "loss": 4.0}, {"sequence": 1, "loss": 8 / 3}]


def test_the_interval_is_that_of_resampled_sequences():
    random = np.random.default_rng(0)
    lengths = random.integers(1, 20, 400)
    losses = lengths * 3.0 + random.normal(size=400) * lengths
    found = figures({"dev": part(), "test": part(losses, lengths)}, "dev")["parts"]["test"]
    rounds = [losses[i].sum() / lengths[i].sum() for i in random.integers(0, 400, (4000, 400))]
    assert [found["low"], found["high"]] == pytest.approx(np.quantile(rounds, [0.025, 0.975]).tolist(), abs=0.02)


def test_one_sequence_has_no_interval():
    found = figures({"dev": part(), "test": part([4.0], [2])}, "dev")["parts"]["test"]
    assert found["low"] is None and found["difference_high"] is None and found["difference"] == pytest.approx(-0.4)


def test_the_least_likely_come_first_and_ties_by_number():
    assert [one["sequence"] for one in least_likely(*part([1.0, 3.0, 3.0, 2.0], [1, 1, 1, 1]), 3)] == [1, 2, 3]


# ---- the pipeline


def projects(tmp_path, family, **options):
    params = small_params()
    params.model.family = family
    for name, value in options.items():
        setattr(params.ingest, name, value)
    return params, run_stages(tmp_path, params, *STAGES)


def test_evaluation_writes_it_and_the_report_shows_it(tmp_path):
    projects(tmp_path, "hmm")
    found, model = store.read_metrics(tmp_path)["likelihood"], load(tmp_path / store.CANDIDATE)
    assert found["reference"] == "dev" and {"dev", "test"} <= found["parts"].keys()
    tokens, _ = store.read_tokens(tmp_path, "test")
    log_p = model.log_likelihood(dataset_of(model, tokens))
    assert found["parts"]["test"]["loss"] == pytest.approx(-log_p.sum() / len(tokens), rel=1e-12)
    lengths = tokens.group_by("sequence", maintain_order=True).len()["len"].to_numpy()
    assert found["least"][0]["sequence"] == int(np.argmax(-log_p / lengths))
    page = (tmp_path / store.REPORT).read_text(encoding="utf-8")
    numbers = tokens["sequence"].unique(maintain_order=True)
    worst = tokens.filter(pl.col("sequence") == numbers[found["least"][0]["sequence"]])
    assert "The least likely sequences of the test data" in page and " ".join(worst["x0"].to_list()[:40]) in page
    assert "likely than the development data" in page or "as likely as the development data" in page


def test_without_development_data_the_training_data_are_compared_with(tmp_path):
    projects(tmp_path, "hmm", dev_share=0.0)
    found = store.read_metrics(tmp_path)["likelihood"]
    assert found["reference"] == "train" and "dev" not in found["parts"]
    assert "as the training data" in (text := (tmp_path / store.REPORT).read_text()) or "than the training data" in text


@pytest.mark.parametrize("family", ["crf", "memm"])
def test_what_cannot_be_said_is_left_out(tmp_path, family):
    projects(tmp_path, family)
    assert "likelihood" not in store.read_metrics(tmp_path)
    assert "Likelihood" not in (tmp_path / store.REPORT).read_text()


# ---- the words of the report


def told(low, high, name="test"):
    one = {"sequences": 5, "tokens": 50, "loss": 3.0, "low": 2.9, "high": 3.1, "difference": 0.1,
           "difference_low": low, "difference_high": high}  # fmt: skip
    dev = {"sequences": 5, "tokens": 40, "loss": 2.9, "low": None, "high": None}
    given = {"reference": "dev", "parts": {"dev": dev, name: one}, "least": [{"sequence": 0, "loss": 9.5}]}
    return document(metrics=METRICS | {"likelihood": given}).section("drift")


def test_the_comparison_in_words():
    assert "The test data are less likely than the development data, by 0.100 to 0.300 nats" in told(0.1, 0.3)
    assert "The test data are more likely than the development data, by 0.100 to 0.300 nats" in told(-0.3, -0.1)
    assert "The unlabelled pool is about as likely as the development data" in told(-0.1, 0.3, "unlabelled")
    assert "The test data are too few to be compared" in told(None, None)
    assert "9.500" in told(0.1, 0.3) and "The least likely words of the test data" in told(0.1, 0.3)
    assert "Likelihood" not in document().section("drift")


# ---- tagging


def test_tagging_adds_it():
    model = hmm_of(seed=1)
    text = b"a\nb\n\n\xc3\xa9\n"

    def answered(data=text, **asked):
        return b"".join(stream.answers(model, [data], "some", stream.Asked(likelihood=True, **asked))).decode()

    rows = [json.loads(line) for line in answered(format="jsonl").splitlines()]
    expected = [one["log_likelihood"] for one in rows]
    assert len(expected) == 2 and max(expected) < 0 and "log_probability" not in rows[0]
    lines = answered().splitlines()
    assert [line for line in lines if line.startswith("#")] == [f"# log-likelihood {p:.6f}" for p in expected]
    assert lines[1].split("\t")[0] == "a" and len(lines[1].split("\t")) == 2
    both = answered(scores=True).splitlines()
    assert both[0] == lines[0] and both[1].startswith("# 1 -") and len(both[2].split("\t")) == 3
    words = answered(b"ab\n\xc3\xa9\n", words=True).splitlines()
    assert [line.split("\t")[-1] for line in words] == [f"{p:.6f}" for p in expected]


def test_tagging_refuses_it_where_it_cannot():
    with pytest.raises(EspalierError, match="^crf cannot say how likely an input is: set model.family to hmm$"):
        list(stream.answers(model_of(), [b"a\n"], "some", stream.Asked(likelihood=True)))
