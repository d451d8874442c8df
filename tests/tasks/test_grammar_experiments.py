"""Grammars learned from palindromes, tags, triangles: measures against the truth, every cell in short, the pages."""

import gzip

import numpy as np
import pytest
from experiment_pages import shown

from espalier.engine.grammar.rules import full_grammar
from espalier.engine.grammar.strings import make_strings
from espalier.tasks.experiments import Settings, experiment, palindromes, stepwise_report, triangles, wsj_pcfg


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


def written(path):
    """A small corpus of nested tags."""
    path.parent.mkdir(parents=True)
    lines = ["((DT NN) (VB (DT NN)) .)", "((NN) VB .)", "((DT (JJ NN)) VB .)", "(VB (DT NN))"] * 20
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


@pytest.mark.parametrize("name", ["stepwise", "palindromes", "wsj-pcfg", "triangles"])
def test_every_cell_runs_and_the_page_shows_it(name, tmp_path):
    written(tmp_path / "treebank-sample/brackets-pos.txt.gz")
    results, report = shown(name, tmp_path)
    assert len(report.comparisons) >= min(4, len(results))
    figures = {"triangles": ["36.17%", "7.7%", "78.0%", "22.8%"], "wsj-pcfg": ["20.13", "13.34", "12.33"],
               "palindromes": ["1.88", "76.0%", "0.00", "100.0%"], "stepwise": ["21.9% ± 10.1", "94.2%"]}  # fmt: skip
    assert set(figures[name]) <= {row.source for row in report.comparisons}, "the source's figures stand beside ours"


def test_a_quick_look_states_nothing_that_it_cannot_show():
    grammars = experiment("palindromes")
    row = {"palindromes": 0.15, "kld": 4.0, "underived": 0.0, "mass": 0.1, "others": 0.1, "rules": 100.0,
           "iterations": 6.0, "seconds": 1.0, "objective": 1.0}  # fmt: skip
    for quick, texts in ((True, set()), (False, {"With brackets inside-outside learns the language"})):
        results = {cell.key: {"rows": [row]} | {name: cell.arguments[name] for name in ("training", "brackets", "k")}
                   for cell in grammars.cells(Settings(quick))}  # fmt: skip
        failed = {one.text for one in grammars.report(results, Settings(quick)).checks if not one.holds}
        assert failed == texts


def test_nested_tags_are_read_with_their_brackets():
    assert wsj_pcfg.read_line("((DT NN) (VB (DT NN)) .)") == (
        ["DT", "NN", "VB", "DT", "NN", "."], [(0, 2), (3, 5), (2, 5), (0, 6)]
    )  # fmt: skip


def test_triangles_are_what_their_class_says():
    made = {name: triangles.drawn(name, 200, 1) for name in triangles.CLASSES}
    for name, data in made.items():
        for n in range(data.total):
            words, brackets = data.row(n)
            a, b, c = np.diff(brackets, axis=1).ravel()
            assert brackets[-1, 1] == len(words) and 2 <= min(a, c) <= max(a, c) <= 10
            assert {"equilateral": a == b == c, "isosceles": b == c, "right": abs(np.hypot(a, c) - b) <= 0.5}[name]


def test_grammars_tell_right_triangles_from_others():
    table = triangles.classified("io", True, 4, 60, 40, 8)["table"]
    assert [sum(row) for row in table] == [40] * 3 and table[2][2] + table[2][3] == 40
    assert table[0][2] == table[1][2] == 0


def test_the_full_grid_is_that_of_the_source():
    cells = experiment("stepwise").cells(Settings(False))
    assert len({cell.key for cell in cells}) == len(cells) == 1 + 3 * 3 * 5
    assert all(cell.arguments["starts"] == 15 and cell.arguments["drawn"] == 50_000 for cell in cells)
    told = [float(x) for rows in stepwise_report.SOURCE.values() for row in rows for x in row.split()]
    assert len(told) == 45 and max(told) == 94.2
    shares = palindromes.stepwise(0.5, 5, "short", 1, 3, 100, 300)["shares"]
    assert np.isfinite(shares).all()
