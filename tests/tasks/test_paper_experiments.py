"""Experiments of the papers on small made-up corpora: every cell runs, the page holds what the source has."""

import gzip

import numpy as np
import pytest
from experiment_pages import shown

from espalier.engine.weights.layout import dense_layout
from espalier.tasks.experiments import (
    Settings,
    chunking,
    experiment,
    optimisers_report,
    problems,
    selection_report,
    simulated,
)
from espalier.tasks.experiments.drawings import Curve, interval, xy_chart
from espalier.tasks.experiments.nettalk import context_lines, per_position
from espalier.tasks.experiments.problems import FILES, Fit, by_template, families, fit, load, make_problem, read


def written(path, sequences):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join("\n".join(" ".join(token) for token in tokens) for tokens in sequences) + "\n"
    path.write_bytes(gzip.compress(text.encode()))


def word(random):
    """Letters whose phoneme is the capital, but for a c before e, which is an S, and a silent e at the end."""
    letters = "".join(random.choice(list("abce"), random.integers(2, 7)))
    told = []
    for t, letter in enumerate(letters):
        last = t == len(letters) - 1
        soft = letter == "c" and not last and letters[t + 1] == "e"
        told.append((letter, "-" if letter == "e" and last else "S" if soft else letter.upper()))
    return told


def sentence(random, kinds):
    """Names and small words; a chunk goes on after a determiner."""
    told, inside = [], False
    for _ in range(int(random.integers(3, 8))):
        which = int(random.integers(0, 3))
        text, tag = (("the", "DT"), (f"name{random.integers(0, 6)}", "NN"), ("goes", "VB"))[which]
        label = f"{'I' if inside else 'B'}-{kinds[0]}" if which == 1 else f"B-{kinds[0]}" if which == 0 else kinds[1]
        told.append((text, tag, label))
        inside = which == 0
    return told


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Corpora of the right names and shapes."""
    random, root = np.random.default_rng(0), tmp_path_factory.mktemp("corpora")
    for count, name in zip((60, 25), FILES["nettalk"], strict=True):
        written(root / name, [word(random) for _ in range(count)])
    for corpus, kinds in (("conll2000", ("NP", "B-VP")), ("conll2002-esp", ("PER", "O"))):
        for count, name in zip((50, 20), FILES[corpus], strict=True):
            written(root / name, [sentence(random, kinds) for _ in range(count)])
    return root


EXPERIMENTS = {  # what the page must show: pieces of comparisons, and statements
    "simulated": (["active λ of M7, ρ1 = 1", "test error of M2 against M3"], 2),
    "optimisers": (["evaluations, limited memory", "all sentences, improved iterative scaling"], 8),
    "nettalk-sparsity": (["test error, SBCD, ρ1 = 10", "test error, SGD", "active μ + λ, OWL-QN"], 7),
    "nettalk-context": (["test error, pseudo 3-gram, the source's 20", "test error, 5-gram, the source's 30"], 3),
    "path": (["the whole path, SBCD", "the whole path, proximal quasi-Newton"], 4),
    "nettalk-patterns": (["test error, (y, x) + (y', y, x)", "without a start label"], 5),
    "nettalk-thresholds": (["error without [−2, 2]", "active μ + λ, and orphans"], 3),
    "chunking": (["test error, all four", "F without weights up to 0.75", "active (y', y, word)", "words with"], 5),
    "selection": (["mutual information, Spanish", "L1 by SBCD, Chunks"], 6),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_cell_runs_and_the_page_shows_it(folder, name):
    _, report = shown(name, folder)
    wanted, statements = EXPERIMENTS[name]
    told = [item.what for item in report.comparisons]
    assert all(any(piece in what for what in told) for piece in wanted)
    assert len(report.checks) == statements and all(isinstance(check.holds, bool) for check in report.checks)


def test_full_cells_differ_from_quick_ones_in_arguments_alone(folder):
    """Full-size cells are the source's: all data, and the same keys but for blocks of replications."""
    for name in EXPERIMENTS:
        chosen = experiment(name)
        full, quick = (chosen.cells(Settings(short, folder)) for short in (False, True))
        assert len({cell.key for cell in full}) == len(full) >= len(quick)
        assert all(cell.arguments.get("limit") in (None, 5) for cell in full)


# ---- what the experiments share


def test_active_weights_are_counted_by_family_and_template(folder):
    problem = make_problem(read(folder / FILES["conll2000"][0]), read(folder / FILES["conll2000"][1]),
                           ["*w:%x[0,0]", "Up:%x[0,1]"])  # fmt: skip
    layout = dense_layout(len(problem.labels), problem.kinds, start=True)
    theta = np.zeros(layout.size)
    first, second = layout.bounds()
    word_at, tag_at = (next(x for x, text in enumerate(problem.observations) if text.startswith(head))
                       for head in ("*w:", "Up:"))  # fmt: skip
    theta[layout.unigram_ptr[word_at]] = theta[layout.unigram_ptr[tag_at]] = theta[first] = theta[-1] = 1.0
    assert families(layout, theta) == {"active": 4, "mu": 2, "lambda": 2}
    assert by_template(problem, layout, theta) == {"*w mu": 1, "*w lambda": 2, "Up mu": 1}
    labels, words, tags = len(problem.labels), 8, 3
    assert problem.virtual_size == words * (labels + labels**2) + tags * labels


def test_a_fit_learns_the_rule_of_the_words(folder):
    train, test = (folder / name for name in FILES["nettalk"])
    problem = load(train, test, ["*:%x[0,0]", "U:%x[1,0]"])
    layout = dense_layout(len(problem.labels), problem.kinds)
    found = fit(problem, layout, "lbfgs", problems.ElasticNet(0.0, 0.1), iterations=60)
    result = problems.measured(problem, layout, found.theta)
    assert result["train_error"] < 0.03 and result["error"] < 0.05 and "f1" not in result
    assert load(train, test, ["*:%x[0,0]", "U:%x[1,0]"]) is problem  # kept for the next cell
    assert load(train, test, ["*:%x[0,0]"], 10).train.weights.sum() == 10


def test_the_exact_error_of_the_truth_is_the_bayes_error():
    """Posterior decoding with the true model's scores errs as little as can be, any other theta more."""
    layout = simulated.layout_of(simulated.KINDS["M1"])
    model = simulated.simulated.truth()
    emission, transition = np.log(np.array(model["emission"])), np.log(np.array(model["transition"]))
    theta = np.concatenate([emission.T.ravel(), np.zeros(30), np.tile(transition.ravel(), 5)])
    least = simulated.bayes_error()
    assert least == pytest.approx(0.154, abs=5e-4)
    assert least <= simulated.exact_error(layout, theta) < least + 0.01  # the likeliest path is nearly as good
    assert simulated.exact_error(layout, np.zeros(layout.size)) > 0.5


def test_intervals_and_charts():
    assert interval([1.0, 1.0, 1.0]) == (1.0, 1.0, 1.0)
    mean, low, high = interval([0.0, 2.0])
    assert (mean, low, high) == (1.0, -1.0, 3.0)
    drawn = xy_chart("k", "T", "x", [Curve("<one>", [(1, 2.0), (10, 3.0)]), Curve("two", [(5, 1.0)])], log_x=True)
    assert "&lt;one&gt;: 3.00 at x 10" in drawn and drawn.count("<polyline") == 2 and "stroke-dasharray" not in drawn
    assert "nothing to draw" in xy_chart("k", "T", "x", [Curve("none", [])])


# ---- parts of single experiments


def test_templates_of_the_context():
    assert context_lines("pseudo", 3) == ["U", "B", "*1:%x[0,0]", "*-1:%x[-1,0]", "*+1:%x[1,0]"]
    true = context_lines("true", 5)
    assert true[2:4] == ["*1:%x[0,0]", "*3:%x[-1,0]/%x[0,0]/%x[1,0]"] and len(true) == 5
    assert len(context_lines("pseudo", 5)) == 7


def test_weights_that_a_position_looks_at(folder):
    problem = load(*(folder / name for name in FILES["nettalk"]), ["U1:%x[0,0]", "U2:%x[1,0]"])
    layout = dense_layout(len(problem.labels), problem.kinds, start=False)
    theta = np.zeros(layout.size)
    x = problem.observations.index("U1:a")
    theta[layout.unigram_ptr[x] : layout.unigram_ptr[x] + 3] = 1.0
    share = float((problem.train.observations == x).any(axis=1).mean())
    assert per_position(problem, Fit(theta, layout, {}, [])) == pytest.approx(3 * share)


def test_the_strongest_weights_are_those_of_theta(folder):
    problem = load(*(folder / name for name in FILES["conll2000"]), [*chunking.BOTH, "B"])
    layout = dense_layout(len(problem.labels), problem.kinds, start=True)
    theta, labels = np.zeros(layout.size), len(problem.labels)
    word_at, plain = problem.observations.index("*w:goes"), problem.observations.index("B")
    theta[layout.unigram_ptr[word_at] + 1] = -2.0
    theta[layout.bigram_ptr[word_at] + 0 * labels + 1] = 3.0
    theta[layout.start_ptr[word_at] + 1] = -0.5
    theta[layout.bigram_ptr[plain] + 1 * labels + 2] = -1.5
    found = chunking.strongest(problem, Fit(theta, layout, {}, []))
    words = found["words"]
    assert words["rows"][0] == "goes" and words["sums"][0] == 2.0 and words["mu"][0][1] == -2.0
    assert words["lambda"][0][1] == 3.5 and found["transitions"][1][2] == -1.5
    assert set(found["tags"]["rows"]) == {"DT", "NN", "VB"} and not np.any(found["tags"]["mu"])


def test_l1_is_read_between_its_models():
    rows = [{"active": 10, "error": 0.4}, {"active": 1000, "error": 0.2}]
    assert selection_report.at(rows, 100, "error") == pytest.approx(0.3)
    assert selection_report.at(rows, 5, "error") == 0.4 and selection_report.at(rows, 10_000, "error") == 0.2


def test_a_smaller_model_that_errs_less_counts():
    rows = [{"active": 10, "error": 0.4}, {"active": 100, "error": 0.2}, {"active": 1_000, "error": 0.3}]
    assert selection_report.best(rows, 500) == 0.2
    assert selection_report.best(rows, 5) == 0.4
    assert 0.2 < selection_report.best(rows, 50) < 0.4


def test_a_baseline_that_beats_l1_breaks_the_statement():
    def curves(threshold):
        l1 = [{"active": 10, "error": 0.4, "f1": 0.5}, {"active": 1000, "error": 0.2, "f1": 0.5}]
        worse = [{"active": 100, "error": 0.35, "f1": 0.5}]
        other = [{"active": 100, "error": threshold, "f1": 0.5}, {"active": 50_000, "error": 0.01, "f1": 0.9}]
        return {"cut-off": worse, "information": worse, "threshold": other, "sbcd": l1, "owlqn": l1}

    assert [c.holds for c in selection_report.checks({"conll2000": curves(0.31)})] == [True, True, True]
    assert [c.holds for c in selection_report.checks({"conll2000": curves(0.29)})] == [True, True, False]


def test_the_statements_on_optimisers():
    def rows(lbfgs, iis):
        slopes = {"cg-fr": [[1, 9.0], [40, 5.0]], "cg-pr": [[1, 9.0], [30, 5.0]]}
        curves = {"lbfgs": lbfgs, "iis": iis, "gis": iis} | slopes
        return {name: {"objective": curve[-1][1], "curve": curve} for name, curve in curves.items()}

    good = rows([[1, 9.0], [20, 5.0]], [[1, 9.0], [500, 6.0]])
    assert optimisers_report.there(good, "lbfgs") == 20 and optimisers_report.there(good, "iis") is None
    assert [c.holds for c in optimisers_report.checks({"all": good})] == [True, True]
    bad = rows([[1, 9.0], [35, 5.0]], [[1, 9.0], [10, 5.0]])
    assert [c.holds for c in optimisers_report.checks({"all": bad})] == [False, False]
