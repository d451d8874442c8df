"""The experiment `ner-losses`, on a small made-up corpus: the data as said, every cell, the page."""

import gzip

import numpy as np
import polars as pl
import pytest
from experiment_pages import shown

from espalier.tasks.experiments import (
    Settings,
    experiment,
    ner_kernels,
    ner_kernels_report,
    ner_losses,
    ner_margins_report,
)
from espalier.tasks.experiments import ner_losses_report as report
from espalier.tasks.experiments.problems import read

NAME = "ner-losses"


def sentence(random):
    a, b = random.choice(["Ana", "Luis", "Eva"]), random.choice(["Paz", "Gil", "Sol"])
    place = random.choice(["Roma", "Bonn", "Linz"])
    return [(a, "NP", "B-PER"), (b, "NP", "I-PER"), ("vive", "V", "O"), ("en", "P", "O"), (place, "NP", "B-LOC"),
            (".", "F", "O")][random.integers(2) * 2 :]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    random, root = np.random.default_rng(0), tmp_path_factory.mktemp("corpora")
    (root / "conll2002-esp").mkdir()
    for file, count in zip(report.FILES.values(), (30, 12, 12), strict=True):
        made = [sentence(random) for _ in range(count)] + [[("-", "F", "O")]]
        text = "\n\n".join("\n".join(" ".join(token) for token in tokens) for tokens in made) + "\n"
        (root / file).write_bytes(gzip.compress(text.encode()))
    return root


def test_sentences_of_one_token_go_and_the_longest_is_cut_between_names():
    names = ["O"] * 34 + ["B-PER", "I-PER", "I-PER"] + ["O"] * 1_000
    tokens = pl.DataFrame({"sequence": [0, 0, 1, *[2] * len(names), 3, 3],
                           "x0": ["a", "b", "c", *["x"] * len(names), "d", "e"],
                           "label": ["O", "B-X", "O", *names, "O", "O"]},
                          schema_overrides={"sequence": pl.Int32})  # fmt: skip
    found = ner_losses.prepared(tokens)
    lengths = found.group_by("sequence", maintain_order=True).len()["len"].to_list()
    assert lengths[:3] == [2, 37, 36] and lengths[-1] == 2 and sum(lengths) == len(tokens) - 1
    assert max(lengths) == 37 and found["x0"].to_list() == [x for x in tokens["x0"].to_list() if x != "c"]
    firsts = found.group_by("sequence", maintain_order=True).first()["label"].to_list()
    assert not any(label.startswith("I-") for label in firsts)


def test_every_cell_runs_and_the_page_shows_it(folder):
    _, made = shown(NAME, folder)
    said = {item.what: item for item in made.comparisons}
    assert said["F1, a window of three (S3), log loss"].source == "74.83"
    assert float(said["F1, a window of three (S3), log loss"].ours) > 30
    assert said["F1, words (S1), sequence AdaBoost"].ours == "see ner-margins"


def test_development_data_choose():
    rows = [{"viterbi": {"dev_f1": 0.5, "f1": 0.9}}, {"viterbi": {"dev_f1": 0.6, "f1": 0.1}}]
    assert report.chosen(rows, "viterbi")["viterbi"]["f1"] == 0.1


def test_full_cells_are_of_all_data_and_penalties_fit_the_loss(folder):
    cells = experiment(NAME).cells(Settings(False, folder))
    assert len({cell.key for cell in cells}) == len(cells) == 11
    assert all(cell.arguments["limit"] is None and len(cell.arguments["penalties"]) == 3 for cell in cells)
    assert report.penalties("log", Settings()) == [1.0, 0.316, 0.1]


def test_abstention(folder):
    _, made = shown("abstention", folder)
    said = {item.what: item for item in made.comparisons}
    assert said["tokens left out"].source.startswith("14.93%")
    assert said["entities, at least 0% sure"].ours.startswith("precision ")


def test_perceptrons_beside_losses_and_boosting(folder):
    """Every cell of `ner-margins` on the same corpus, and its page."""
    results, made = shown("ner-margins", folder)
    said = {item.what: item for item in made.comparisons}
    assert said["F1, a window of three (S3), averaged perceptron"].source == "73.41"
    assert said["F1, a window of three (S3), sequence AdaBoost"].source == "73.88"
    assert float(said["F1, a window of three (S3), dual form, degree 2, averaged"].ours) > 50
    for learner in ("averaged", "dual-2"):
        rows = results[f"S3-{learner}"]["rows"]
        assert [row["epoch"] for row in rows] == [1, 2, 3][: len(rows)] and rows[-1]["mistakes"] <= rows[0]["mistakes"]
    rows = [{"dev_f1": 0.5, "f1": 0.9}, {"dev_f1": 0.6, "f1": 0.1}]
    assert ner_margins_report.best(rows)["f1"] == 0.1


def test_kernel_machines_by_folds(folder):
    """Every cell of `ner-kernels` on the same corpus, and its page."""
    results, made = shown("ner-kernels", folder)
    said = {item.what: item for item in made.comparisons}
    assert said["F1, HM-SVM, degree 3"].source == "73.15" and said["error, CRF without a penalty"].source == "4.92"
    assert float(said["F1, dual perceptron, degree 2, averaged"].ours) > 50
    assert len(results) == 2 * 11 and {"supporting", "rows", "supports"} <= results["short-gp-2-0"].keys()
    rows = [{"correct": 1, "gold": 2, "predicted": 1, "wrong": 1, "of": 10}, {"correct": 2, "gold": 2, "predicted": 3,
                                                                               "wrong": 0, "of": 10}]  # fmt: skip
    assert ner_kernels_report.f1(rows) == 0.75 and ner_kernels_report.error(rows) == 0.05


def test_folds_are_apart_and_of_what_the_tables_are(folder):
    tokens = ner_losses.prepared(read(folder / report.FILES["train"]))
    folds = ner_kernels.folds_of("names", 9, 3, tokens)
    drawn = np.concatenate(folds)
    assert len(drawn) == len(set(drawn.tolist())) == 9 and [len(fold) for fold in folds] == [3, 3, 3]
    for n in drawn:
        labels = tokens.filter(pl.col("sequence") == int(n))["label"].to_list()
        assert sum(label != "O" for label in labels) >= 3 and len(labels) < 60
    assert set(drawn.tolist()) < set(ner_kernels.sentences_of("short", tokens).tolist())
    cells = experiment("ner-kernels").cells(Settings(False, folder))
    assert len({cell.key for cell in cells}) == len(cells) == 55
    assert {cell.arguments["count"] for cell in cells} == {3000, 1000}


def test_boosting_round_by_round(folder):
    """Every cell of `boosting-rounds` on the same corpus, and its page."""
    from espalier.tasks.experiments import boosting_rounds_report

    results, made = shown("boosting-rounds", folder)
    said = {item.what: item for item in made.comparisons}
    assert said["I-ORG → I-ORG in 100 rounds, loose"].source == "30"
    assert said["F1, a window of three (S3)"].source == "73.88"
    assert float(said["F1, a window of three (S3)"].ours) > 30
    (falls,) = [check for check in made.checks if check.text == "Each exact round lowers the odds"]
    assert falls.holds
    rounds = results["first-loose"]["rounds"]
    assert boosting_rounds_report.most(rounds) == max(boosting_rounds_report.chosen(rounds).values())
