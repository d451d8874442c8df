"""Fields of references, on a small made-up corpus: folds and measures as said, every cell, the page."""

import gzip

import numpy as np
import pytest
from experiment_pages import shown

from espalier.engine.data.dataset import make_dataset
from espalier.tasks.experiments import Settings, citations, experiment

NAME, ALL = "citations", {"parts": 5}
WANTED = {"tokens right: HMM, counts, words", "tokens right: CRF, overlapping features"}


def reference(random):
    name, title = random.choice(["Birch,", "Cole,", "Dunn,"]), random.choice(["Trees", "Chains", "Hedges"])
    year = f"{random.integers(1950, 2000)}."
    return [("A.", "author"), (name, "author"), ("On", "title"), (f"{title}.", "title"), (year, "date")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    random, root = np.random.default_rng(0), tmp_path_factory.mktemp("corpora")
    path = root / "citations/parscit-cora.conll.gz"
    path.parent.mkdir()
    made = [reference(random) for _ in range(60)]
    text = "\n\n".join("\n".join("\t".join(token) for token in tokens) for tokens in made) + "\n"
    path.write_bytes(gzip.compress(text.encode()))
    return root


def test_folds_share_no_reference_and_miss_none():
    parts = citations.folds(503, 5, 0)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(503))
    assert {len(part) for part in parts} == {100, 101}


def test_fields_are_runs_within_a_reference():
    labels, offsets = np.array([0, 0, 1, 1, 0]), np.array([0, 3, 5])
    assert citations.fields(labels, offsets).tolist() == [[0, 2, 0], [2, 3, 1], [3, 4, 1], [4, 5, 0]]
    test = make_dataset(np.zeros((5, 1), int), labels, offsets)
    found = citations.accuracies(test, np.array([0, 1, 1, 1, 0]), ["a", "b"])
    assert found["token"] == [4, 5] and found["field"] == [2, 4] and found["reference"] == [1, 2]
    assert found["by_field"] == {"a": [2, 3], "b": [2, 2]}
    assert citations.added([found, found])["token"] == 0.8


def test_the_labels_are_put_away_before_going_on(folder):
    """From the model of the labels alone training goes on; with labels it would stay where it is."""
    tokens = citations.cut(folder / "citations/parscit-cora.conll.gz", 2, 0, 0, citations.WORDS)
    said = citations.without_labels(tokens, "baum-welch", 3, 1e-5)
    assert said.shape == tokens.test.labels.shape and np.mean(said == tokens.test.labels) > 0.5


# ---- every cell and the page


def test_every_cell_runs_and_the_page_shows_it(folder):
    _, report = shown(NAME, folder)
    assert WANTED <= {item.what for item in report.comparisons}


def test_full_cells_are_of_all_data(folder):
    cells = experiment(NAME).cells(Settings(False, folder))
    assert len({cell.key for cell in cells}) == len(cells)
    assert all(ALL.items() <= cell.arguments.items() for cell in cells)
