"""The Python labeller: fitting, weights, files, tables, and what it refuses."""

import numpy as np
import polars as pl
import pytest

from engine import CRF
from engine.errors import EspalierError

X = [["the", "dog", "barks"], ["a", "cat", "sleeps"], ["dogs", "bark"], ["the", "cat", "barks"]]
Y = [["D", "N", "V"], ["D", "N", "V"], ["N", "V"], ["D", "N", "V"]]
TEMPLATES = ["U:%x[0,0]", "U-1:%x[-1,0]/%x[0,0]", "B"]
WEIGHT_ROUNDING = 1e-4  # two fits of the same objective stop within the solver's tolerance of each other


@pytest.mark.parametrize("templates", [None, TEMPLATES, "\n".join(TEMPLATES)])
def test_learns_its_training_data(templates):
    crf = CRF(templates, rho1=0.01).fit(X, Y)
    assert crf.predict(X) == Y
    assert crf.score(X, Y) == 1.0
    assert crf.classes_ == ["D", "N", "V"]


def test_attributes_of_dicts_and_lists_are_the_same():
    dicts = [[{"word": w, "capital": False, "suffix": w[-1]} for w in row] for row in X]
    lists = [[[f"word={w}", f"suffix={w[-1]}"] for w in row] for row in X]
    first, second = CRF(rho1=0.01).fit(dicts, Y), CRF(rho1=0.01).fit(lists, Y)
    assert first.model_.observations == second.model_.observations
    assert np.array_equal(first.model_.theta, second.model_.theta)


def test_marginals_sum_to_one_and_agree_with_confident_predictions():
    crf = CRF(TEMPLATES, rho1=0.01).fit(X, Y)
    for row, labels in zip(crf.predict_marginals(X), Y, strict=True):
        np.testing.assert_allclose(row.sum(axis=1), 1.0, atol=1e-12)
        assert [crf.classes_[i] for i in row.argmax(axis=1)] == labels


def test_weight_two_is_a_duplicate():
    tight = {"rho1": 0.0, "rho2": 0.5, "solver": "lbfgs", "tolerance": 1e-12, "max_iterations": 500}
    weighted = CRF(TEMPLATES, **tight).fit(X, Y, sample_weight=[1, 2, 1, 1])
    doubled = CRF(TEMPLATES, **tight).fit([*X, X[1]], [*Y, Y[1]])
    first, second = rows_of(weighted), rows_of(doubled)
    assert first.keys() == second.keys()
    assert max(abs(first[key] - second[key]) for key in first) < WEIGHT_ROUNDING


def rows_of(crf) -> dict:
    rows = crf.model_.table().to_pylist()
    return {(r["family"], r["observation"], r["previous"], r["label"]): r["weight"] for r in rows}


@pytest.mark.parametrize("templates", [None, TEMPLATES])
def test_saved_and_loaded_predicts_the_same(tmp_path, templates):
    crf = CRF(templates, rho1=0.01).fit(X, Y)
    crf.save(tmp_path / "a.model")
    assert CRF.load(tmp_path / "a.model").predict(X) == crf.predict(X)


def test_a_table_is_rows_of_columns():
    table = pl.DataFrame({"sequence": np.repeat([0, 1, 2, 3], [3, 3, 2, 3]), "x0": [w for row in X for w in row]})
    listed, tabled = CRF(TEMPLATES, rho1=0.01).fit(X, Y), CRF(TEMPLATES, rho1=0.01).fit(table, Y)
    assert np.array_equal(listed.model_.theta, tabled.model_.theta)
    assert tabled.predict(table.to_arrow()) == Y


def test_parameters_follow_the_conventions():
    crf = CRF(rho1=0.3)
    assert CRF(**crf.get_params()).get_params() == crf.get_params()
    assert crf.set_params(rho2=0.7).rho2 == 0.7
    with pytest.raises(EspalierError, match="unknown parameter 'rho3': known are templates"):
        crf.set_params(rho3=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CRF().predict(X), "has not been fitted"),
        (lambda: CRF().fit(X, Y[:2]), "2 rows of labels for 4 sequences"),
        (lambda: CRF().fit(X, [["D"], *Y[1:]]), "sequence 0 has 3 tokens and 1 labels"),
        (lambda: CRF().fit([[], *X], [[], *Y]), "sequence 0 has no token"),
        (lambda: CRF(pairs="some").fit(X, Y), "pairs is 'some'"),
        (lambda: CRF(["U:%x[0,1]"]).fit(X, Y), "points at column 1, the data has column 0"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(EspalierError, match=message):
        call()
