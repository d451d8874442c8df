"""Palindromes: measures against the truth, every cell of both experiments in short, their pages."""

import json

import numpy as np
import pytest

from espalier.engine.grammar.rules import full_grammar
from espalier.engine.grammar.strings import make_strings
from espalier.tasks.experiments import Settings, experiment, palindromes, stepwise_report
from espalier.tasks.experiments.writing import html, markdown


def test_the_truth_generates_palindromes_and_does_not_differ_from_itself():
    assert palindromes.share_of_palindromes(palindromes.truth(), 500) == (1.0, 0.0)
    assert palindromes.divergence(palindromes.truth(), 200) == (0.0, 0.0)
    right, wrong = palindromes.mass(palindromes.truth(), 1_000)
    assert right == pytest.approx(0.735, abs=0.02) and wrong == 0.0  # 0.735 +- 0.006 in samples of 1,000


def test_palindromes_are_told_from_other_strings():
    strings = make_strings([[0, 1, 1, 0], [0, 1, 0], [1, 1], [0, 1]])
    assert palindromes.is_palindrome(strings).tolist() == [True, False, True, False]
    random = full_grammar(palindromes.SYMBOLS, palindromes.WORDS, 0)
    gap, underived = palindromes.divergence(random, 300)
    assert gap > 1.0 and underived == 0.0


def run(name):
    settings = Settings(True)
    chosen = experiment(name)
    results = {cell.key: json.loads(json.dumps(cell.function(**cell.arguments))) for cell in chosen.cells(settings)}
    report = chosen.report(results, settings)
    page, text = html(report, settings), markdown(report, settings)
    assert "<svg" in page and "What must hold" in text and "nan" not in page.partition("<script")[0].lower()
    return results, report


@pytest.mark.parametrize("name", ["stepwise", "palindromes"])
def test_every_cell_runs_and_the_page_shows_it(name):
    results, report = run(name)
    assert len(report.comparisons) >= len(results)


def test_the_full_grid_is_that_of_the_source():
    cells = experiment("stepwise").cells(Settings(False))
    assert len({cell.key for cell in cells}) == len(cells) == 1 + 3 * 3 * 5
    assert all(cell.arguments["starts"] == 15 and cell.arguments["drawn"] == 50_000 for cell in cells)
    told = [float(x) for rows in stepwise_report.SOURCE.values() for row in rows for x in row.split()]
    assert len(told) == 45 and max(told) == 94.2
    shares = palindromes.stepwise(0.5, 5, "short", 1, 3, 100, 300)["shares"]
    assert np.isfinite(shares).all()
