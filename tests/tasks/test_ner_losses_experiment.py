"""The experiment `ner-losses`, on a small made-up corpus: the data as said, every cell, the page."""

import gzip
import json

import numpy as np
import polars as pl
import pytest

from espalier.tasks.experiments import Settings, experiment, ner_losses
from espalier.tasks.experiments import ner_losses_report as report
from espalier.tasks.experiments.writing import html, markdown

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
    settings, chosen = Settings(True, folder), experiment(NAME)
    results = {cell.key: json.loads(json.dumps(cell.function(**cell.arguments, **cell.files)))
               for cell in chosen.cells(settings)}  # fmt: skip
    made = chosen.report(results, settings)
    said = {item.what: item for item in made.comparisons}
    assert said["F1, a window of three (S3), log loss"].source == "74.83"
    assert float(said["F1, a window of three (S3), log loss"].ours) > 30
    assert said["F1, words (S1), sequence AdaBoost"].ours == "no family of ours yet"
    page, text = html(made, settings), markdown(made, settings)
    assert "<svg" in page and "What must hold" in text and "nan" not in page.partition("<script")[0].lower()


def test_development_data_choose():
    rows = [{"viterbi": {"dev_f1": 0.5, "f1": 0.9}}, {"viterbi": {"dev_f1": 0.6, "f1": 0.1}}]
    assert report.chosen(rows, "viterbi")["viterbi"]["f1"] == 0.1


def test_full_cells_are_of_all_data_and_penalties_fit_the_loss(folder):
    cells = experiment(NAME).cells(Settings(False, folder))
    assert len({cell.key for cell in cells}) == len(cells) == 11
    assert all(cell.arguments["limit"] is None and len(cell.arguments["penalties"]) == 5 for cell in cells)
    assert report.penalties("log", Settings()) == [1.0, 0.316, 0.1, 0.0316, 0.01]


def test_abstention(folder):
    settings, chosen = Settings(True, folder), experiment("abstention")
    results = {cell.key: json.loads(json.dumps(cell.function(**cell.arguments, **cell.files)))
               for cell in chosen.cells(settings)}  # fmt: skip
    made = chosen.report(results, settings)
    said = {item.what: item for item in made.comparisons}
    assert said["tokens left out"].source.startswith("14.93%")
    assert said["entities, at least 0% sure"].ours.startswith("precision ")
    page, text = html(made, settings), markdown(made, settings)
    assert "<svg" in page and "What must hold" in text and "nan" not in page.partition("<script")[0].lower()


def test_boosting_round_by_round(folder):
    """Every cell of `boosting-rounds` on the same corpus, and its page."""
    from espalier.tasks.experiments import boosting_rounds_report

    settings, chosen = Settings(True, folder), experiment("boosting-rounds")
    results = {cell.key: json.loads(json.dumps(cell.function(**cell.arguments, **cell.files)))
               for cell in chosen.cells(settings)}  # fmt: skip
    made = chosen.report(results, settings)
    said = {item.what: item for item in made.comparisons}
    assert said["I-ORG → I-ORG in 100 rounds, loose"].source == "30"
    assert said["F1, a window of three (S3)"].source == "73.88"
    assert float(said["F1, a window of three (S3)"].ours) > 30
    (falls,) = [check for check in made.checks if check.text == "Each exact round lowers the odds"]
    assert falls.holds
    page, text = html(made, settings), markdown(made, settings)
    assert "<svg" in page and "What must hold" in text and "nan" not in page.partition("<script")[0].lower()
    rounds = results["S3-loose"]["rounds"]
    assert boosting_rounds_report.most(rounds) == max(boosting_rounds_report.chosen(rounds).values())
