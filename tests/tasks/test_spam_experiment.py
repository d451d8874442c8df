"""Spam: words and mails are chosen as said, learning finds what is there to find, the page renders."""

import gzip
import json

import numpy as np
import pytest

from espalier.engine.data.bags import bags_of_matrix
from espalier.tasks.experiments import Settings, spam, spam_report
from espalier.tasks.experiments.spam import Choices, compared, distinct, draw, frequent, prepare, with_features
from espalier.tasks.experiments.writing import html, markdown


def dense(bags):
    matrix = np.zeros((bags.size, bags.n_features))
    for n in range(bags.size):
        run = slice(bags.indptr[n], bags.indptr[n + 1])
        matrix[n, bags.indices[run]] = bags.counts[run]
    return matrix


def test_the_words_of_most_mails_are_kept():
    counts = np.array([[9, 0, 1, 0], [0, 0, 1, 2], [0, 1, 1, 1]])
    bags = bags_of_matrix(counts)
    assert frequent(bags, 2).tolist() == [2, 3]  # in three and in two mails
    assert frequent(bags, 3).tolist() == [0, 2, 3]  # of those in one mail the first
    assert dense(with_features(bags, np.array([2, 3]))).tolist() == counts[:, 2:].tolist()


def test_repeated_and_empty_mails_go():
    counts = np.array([[1, 0, 2], [0, 0, 1], [1, 0, 2], [0, 3, 0], [0, 0, 2]])
    bags = bags_of_matrix(counts)
    assert distinct(bags).tolist() == [0, 1, 3, 4]
    mails = prepare(bags, np.array([1, 0, 1, 1, 0]), 2)  # words 2 and 0: the mail of word 1 alone goes
    assert dense(mails.bags).tolist() == [[1, 2], [0, 1], [0, 2]] and mails.spam.tolist() == [1, 0, 0]


def test_samples_hold_both_kinds_and_depend_on_their_seed():
    kinds = np.zeros(400, int)
    kinds[:3] = 1
    for r in range(20):
        sample = draw(kinds, 30, [0, 30, r])
        assert len(set(sample)) == 30 and 0 < kinds[sample].sum() < 30
    assert np.array_equal(draw(kinds, 30, [0, 30, 1]), draw(kinds, 30, [0, 30, 1]))
    assert not np.array_equal(draw(kinds, 30, [0, 30, 1]), draw(kinds, 30, [0, 30, 2]))


CHOICES = {"penalties": [0.1, 1.0], "smoothings": [0.5], "strengths": [0.1]}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Mails of two kinds with words of their own, in the form of the corpus."""
    random, lines = np.random.default_rng(0), []
    for n in range(240):
        kind = n % 3 == 0
        beta = np.array([6, 5, 1, 1, 3, 3]) if kind else np.array([1, 1, 5, 6, 3, 3])
        counts = random.multinomial(40, beta / beta.sum())
        words = " ".join(f"{word + 1}:{count}" for word, count in enumerate(counts) if count)
        lines.append(f"{'+1' if kind else '-1'} {words} # group/{n}\n")
    path = tmp_path_factory.mktemp("spam") / "bow.svm.gz"
    path.write_bytes(gzip.compress("".join(lines).encode()))
    return path


def test_a_cell_learns_what_is_easy(corpus):
    found = compared(30, 3, 0, 6, 4, CHOICES, corpus)
    assert found["spam_share"] == pytest.approx(1 / 3, abs=0.02) and found["words"] == 6
    assert {way: np.shape(rows) for way, rows in found["errors"].items()} == {
        "logistic": (2, 3), "clusters": (2, 3), "bayes": (1, 3), "em": (1, 3), "entropy": (1, 3)}  # fmt: skip
    assert all(np.mean(rows) < 0.1 for rows in found["errors"].values())
    assert sum(row["mails"] for row in found["clusters"]) == found["mails"]
    assert json.dumps(found) == json.dumps(compared(30, 3, 0, 6, 4, CHOICES, corpus))


def test_weights_reach_the_learner(corpus, monkeypatch):
    seen = []
    original = spam.fit_logistic
    monkeypatch.setattr(spam, "fit_logistic", lambda *a, **k: seen.append(k["weights"]) or original(*a, **k))
    compared(20, 2, 0, 6, 4, CHOICES, corpus)
    assert [w is None for w in seen] == 2 * [True, True, False, False]
    assert seen[2].mean() == pytest.approx(1) and np.ptp(seen[2]) > 0


def test_the_page_renders(corpus, monkeypatch):
    monkeypatch.setattr(spam_report, "CHOICES", CHOICES)
    results = {"n050": compared(50, 3, 0, 6, 4, CHOICES, corpus)}
    results["n300"] = compared(100, 3, 0, 6, 4, CHOICES, corpus) | {"n": 300}
    report = spam_report.report(results, Settings(quick=True))
    page = html(report, Settings(quick=True))
    assert page.count('role="img"') == 2 and "nan" not in page.partition("<script")[0].lower()
    for name in ("L50", "S50", "L300", "S300", "E300"):
        assert f">{name}<" in page
    assert "| fig. 5.6 | weighted minus unweighted, n = 50 | hardly distinguishable |" in markdown(report, Settings())


def test_cells_read_the_corpus_of_the_settings(tmp_path):
    cells = spam_report.cells(Settings(data=tmp_path))
    assert [cell.arguments["n"] for cell in cells] == [50, 300]
    assert all(cell.files == {"corpus": tmp_path / "spamassassin/bow.svm.gz"} for cell in cells)
    assert all(cell.arguments["replications"] == 50 and cell.arguments["k"] == 10 for cell in cells)
    assert Choices(**cells[0].arguments["choices"]).penalties == sorted(spam_report.CHOICES["penalties"])
