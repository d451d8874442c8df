"""The small-scale experiment: the source's problem, samples that meet the theory, a page that renders."""

import json
from html.parser import HTMLParser

import numpy as np
import pytest

from espalier.engine.runtime.threads import set_threads
from espalier.engine.semisup.asymptotics import bayes_error
from espalier.tasks.experiments import Settings, semisup, semisup_report
from espalier.tasks.experiments.semisup import CASES, draw, estimate, limits, predicted, problem, sampled
from espalier.tasks.experiments.semisup_report import SEED, STRENGTH
from espalier.tasks.experiments.writing import html, markdown

LARGE, LIMIT, REPLICATIONS = 5000, 500_000, 1000
NEAR = 0.05  # share of the theory that a mean may be away, unless three standard errors are more


# ---- the problem


def test_there_are_220_documents_with_three_words_each():
    counts = semisup.count_vectors()
    assert counts.shape == (220, 10) and len(np.unique(counts, axis=0)) == 220
    assert np.all(counts.sum(axis=1) == 3) and np.all(counts >= 0)


def test_multinomials_by_drawing_words_one_by_one():
    beta = np.array([0.5, 0.3, 0.2])
    counts = semisup.count_vectors(3, 2)
    found = dict(zip(map(tuple, counts.astype(int).tolist()), semisup.multinomial(counts, beta), strict=True))
    expected = dict.fromkeys(found, 0.0)
    for first in range(3):
        for second in range(3):
            row = [0, 0, 0]
            row[first] += 1
            row[second] += 1
            expected[tuple(row)] += beta[first] * beta[second]
    assert found == pytest.approx(expected)


def test_the_figures_of_the_source_are_met():
    wrong, well = predicted("misspecified"), predicted("well-specified")
    assert wrong["inputs"] == 220
    assert wrong["bayes_error"] == pytest.approx(0.017, abs=1e-9)
    assert wrong["best_error"] == pytest.approx(0.094, abs=5e-4)
    assert well["bayes_error"] == pytest.approx(0.063, abs=1e-9)
    assert well["best_error"] == pytest.approx(well["bayes_error"], abs=1e-12)
    assert predicted("shifted")["gap"] > 0 and wrong["gap"] == 0


def test_beta_are_distributions_and_the_well_specified_parameters_their_log_ratio():
    for name in CASES:
        beta = problem(name).beta
        assert np.all(beta > 0) and beta.sum(axis=1) == pytest.approx([1, 1])
    beta = problem("well-specified").beta
    theta = limits("well-specified")["supervised"].theta.ravel()
    np.testing.assert_allclose(theta, np.log(beta[1] / beta[0]), atol=1e-6)


def test_flipping_exchanges_the_classes_of_the_three_likeliest_and_keeps_the_bayes_error():
    flipped, plain = problem("misspecified"), problem("well-specified-low")
    changed = np.flatnonzero(np.any(flipped.eta != plain.eta, axis=1))
    assert len(changed) == 3 and set(changed) == set(np.argsort(-plain.q)[:3])
    np.testing.assert_array_equal(flipped.eta[changed], plain.eta[changed, ::-1])
    assert bayes_error(flipped.q, flipped.eta) == pytest.approx(bayes_error(plain.q, plain.eta), abs=1e-15)
    ordered = np.sort(plain.q)[::-1]
    assert ordered[2] - ordered[3] > 1e-4  # which three is no matter of rounding


def test_the_sample_of_the_shifted_case_is_uniform():
    shifted, plain = problem("shifted"), problem("misspecified")
    assert np.ptp(shifted.q_train) == 0 and np.array_equal(shifted.q, plain.q)
    assert np.array_equal(plain.q_train, plain.q)


# ---- samples


def test_samples_depend_on_their_block_and_on_nothing_else():
    few, many = draw("misspecified", 50, 260, 0), draw("misspecified", 50, 600, 0)
    assert np.array_equal(few, many[:260]) and np.all(many.sum(axis=(1, 2)) == 50)
    for other in (draw("misspecified", 50, 260, 1), draw("shifted", 50, 260, 0), draw("misspecified", 51, 260, 0)):
        assert not np.array_equal(few, other)


def test_a_cell_is_the_same_for_any_number_of_threads():
    arguments = ("shifted", 20, 60, SEED, STRENGTH)
    try:
        set_threads(1)
        one = json.dumps(sampled(*arguments))
        set_threads(2)
        assert json.dumps(sampled(*arguments)) == one
    finally:
        set_threads(None)


def test_measures_of_the_limit_itself_are_zero():
    for case in CASES:
        for name, limit in limits(case).items():
            found = semisup.measured(case, 100, name, limit.theta.reshape(1, -1))
            assert found["squared_error"] == pytest.approx([0]) and found["excess_risk"] == pytest.approx([0], abs=1e-9)
            assert found["test_excess"][0] >= -1e-9


def test_small_samples_are_always_fitted():
    theta = estimate("misspecified", draw("misspecified", 1, 50, 3), STRENGTH)
    assert all(np.all(np.isfinite(t)) for t in theta.values())


@pytest.fixture(scope="module")
def large():
    return {case: sampled(case, LARGE, REPLICATIONS, SEED, STRENGTH) for case in CASES}


def near(found, expected):
    return abs(found["mean"] - expected) < max(NEAR * expected, 3 * found["standard_error"])


@pytest.mark.parametrize("case", ["misspecified", "shifted", "well-specified"])
def test_samples_of_five_thousand_are_as_the_theory_of_finite_samples_says(large, case):
    for name, row in large[case]["estimators"].items():
        for measure in ("excess_risk", "squared_error"):
            assert near(row[measure], large[case]["expected"][name][measure]), (name, measure)


def test_maximum_likelihood_is_at_its_limit_by_five_thousand(large):
    """The semi-supervised estimator is not: it needs every input many times."""
    found = large["misspecified"]["estimators"]
    assert near(found["supervised"]["excess_risk"], limits("misspecified")["supervised"].excess_risk)
    late = found["semisupervised"]["excess_risk"]["mean"] / limits("misspecified")["semisupervised"].excess_risk
    assert 1.2 < late < 1.5


@pytest.mark.parametrize("case", ["misspecified", "shifted", "well-specified"])
def test_very_large_samples_are_at_their_limit(case):
    found = sampled(case, LIMIT, REPLICATIONS, SEED, STRENGTH)["estimators"]
    for name, limit in limits(case).items():
        for measure in ("excess_risk", "squared_error"):
            assert near(found[name][measure], getattr(limit, measure)), (name, measure)


def test_the_semisupervised_estimator_is_better_where_the_model_is_wrong(large):
    difference = large["misspecified"]["difference"]["test_excess"]
    assert difference["mean"] < -3 * difference["standard_error"]
    found = limits("misspecified")
    assert found["semisupervised"].excess_risk < found["supervised"].excess_risk
    shifted = large["shifted"]["estimators"]
    assert shifted["semisupervised"]["test_excess"]["mean"] < shifted["weighted"]["test_excess"]["mean"]


def test_both_are_the_same_where_the_model_is_right(large):
    found = limits("well-specified")
    assert found["semisupervised"].excess_risk == pytest.approx(found["supervised"].excess_risk)
    assert found["supervised"].excess_risk == pytest.approx(5)  # half a nat for each of ten parameters
    estimators = large["well-specified"]["estimators"]
    means = [estimators[name]["excess_risk"] for name in ("supervised", "semisupervised")]
    expected = large["well-specified"]["expected"]
    gap = expected["semisupervised"]["excess_risk"] - expected["supervised"]["excess_risk"]
    assert abs(means[1]["mean"] - means[0]["mean"] - gap) < 3 * max(found["standard_error"] for found in means)
    difference = sampled("well-specified", LIMIT, REPLICATIONS, SEED, STRENGTH)["difference"]["test_excess"]
    assert abs(difference["mean"]) < 0.01 * 5


# ---- the report


@pytest.fixture(scope="module")
def results():
    cells = semisup_report.cells(Settings(quick=True))
    few = [cell._replace(arguments=cell.arguments | {"replications": 8} if "n" in cell.arguments else cell.arguments)
           for cell in cells]  # fmt: skip
    return {cell.key: cell.function(**cell.arguments) for cell in few}


class Balanced(HTMLParser):
    """Every element that is opened is closed, in order."""

    VOID = {"meta", "link", "input", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.ids = [], []

    def handle_starttag(self, tag, attributes):
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_renders(results):
    report = semisup_report.report(results, Settings(quick=True))
    page = html(report, Settings(quick=True))
    reader = Balanced()
    reader.feed(page)
    assert not reader.open and len(reader.ids) == len(set(reader.ids))
    assert page.count("<svg") == page.count('role="img"') == 16
    assert page.count('class="theory"') == 16
    assert "nan" not in page.partition("<script")[0].lower().replace("nano", "")
    for place in ("fig. 5.1", "fig. 5.2", "fig. 5.3", "fig. 5.4", "fig. 5.5"):
        assert any(item.place == place for item in report.comparisons)
        assert f"| {place} |" in markdown(report, Settings(quick=True))


def test_what_the_report_calls_better_is_better(results):
    found = semisup_report.Results(results, Settings(quick=True))
    better, worse = semisup_report.where_better(found, "misspecified", "test_excess")
    assert not set(better) & set(worse)
    made_up = {"mean": -1.0, "standard_error": 0.1}
    found.samples["misspecified"][0]["difference"]["test_excess"] = made_up
    assert found.source_sizes[0] in semisup_report.where_better(found, "misspecified", "test_excess")[0]


def test_cells_are_one_for_each_case_and_size():
    full = semisup_report.cells(Settings())
    assert len(full) == len(CASES) * (1 + len(semisup_report.SIZES) + len(semisup_report.BEYOND))
    assert all(cell.arguments["replications"] == 1000 for cell in full if "n" in cell.arguments)
    assert {cell.arguments["n"] for cell in full if "n" in cell.arguments} >= {10, 5000}
