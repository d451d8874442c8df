"""The Python labeller in the hands of scikit-learn itself."""

import copy
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, TransformerMixin, clone, is_classifier
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from espalier import CRF, EspalierError

X = [["the", "dog", "barks"], ["a", "cat", "sleeps"], ["dogs", "bark"], ["the", "cat", "barks"]] * 3
Y = [["D", "N", "V"], ["D", "N", "V"], ["N", "V"], ["D", "N", "V"]] * 3
TEMPLATES = ["U:%x[0,0]", "U-1:%x[-1,0]/%x[0,0]", "B"]


class Suffixes(TransformerMixin, BaseEstimator):
    """Tokens become dicts of features."""

    def __init__(self, length=1):
        self.length = length

    def fit(self, X, y=None):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def transform(self, X):
        return [[{"word": word, "suffix": word[-self.length :]} for word in row] for row in X]


def share_right(y, predicted):
    pairs = [(a, b) for row, other in zip(y, predicted, strict=True) for a, b in zip(row, other, strict=True)]
    return sum(a == b for a, b in pairs) / len(pairs)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_a_clone_has_the_parameters_and_no_model():
    crf = CRF(TEMPLATES, rho1=0.3).fit(X, Y)
    other = clone(crf)
    assert other.get_params() == crf.get_params() and not hasattr(other, "model_")
    assert repr(other) == repr(crf)


def test_a_search_over_parameters():
    search = GridSearchCV(CRF(), {"rho1": [0.01, 100.0]}, cv=KFold(3)).fit(X, Y)
    assert search.best_params_ == {"rho1": 0.01} and search.best_score_ == 1.0
    assert search.predict(X) == Y and search.score(X, Y) == 1.0
    assert search.cv_results_["mean_test_score"][1] < 0.8, "a model without weights"


def test_folds_are_scored():
    scores = cross_val_score(CRF(rho1=0.01), X, Y, cv=3)
    by_scorer = cross_validate(CRF(rho1=0.01), X, Y, cv=3, scoring={"right": make_scorer(share_right)})
    assert scores.tolist() == by_scorer["test_right"].tolist() == [1.0] * 3


def test_at_the_end_of_a_pipeline():
    pipeline = Pipeline([("suffixes", Suffixes()), ("crf", CRF(rho1=0.01))]).fit(X, Y)
    assert pipeline.predict(X) == Y and pipeline.score(X, Y) == 1.0
    check_is_fitted(pipeline)
    assert "U:suffix=s" in pipeline["crf"].model_.observations
    search = GridSearchCV(pipeline, {"crf__rho1": [0.01, 100.0], "suffixes__length": [1, 2]}, cv=2).fit(X, Y)
    assert search.best_params_["crf__rho1"] == 0.01
    assert "CRF" in pipeline._repr_html_() and "rho1=0.01" in repr(pipeline)


def test_parameters_that_are_not_known_are_refused_as_scikit_learn_expects():
    with pytest.raises(ValueError, match="unknown parameter 'rho3'"):
        make_pipeline(CRF()).set_params(crf__rho3=1)
    crf = CRF()
    with pytest.raises(ValueError, match="unknown parameter 'nonsense'"):
        crf.set_params(rho1=7, nonsense=1)
    assert crf.rho1 == 0.5, "nothing is set where one name is wrong"


def test_tags_say_what_it_takes():
    tags = get_tags(CRF())
    assert tags.requires_fit and tags.target_tags.required
    assert not tags.input_tags.two_d_array and tags.input_tags.string and tags.input_tags.dict
    assert not is_classifier(CRF()), "folds cannot be stratified by rows of labels"


def test_use_before_fit_is_an_error_of_both():
    crf = CRF()
    with pytest.raises(NotFittedError):
        check_is_fitted(crf)
    for use in (lambda: crf.predict(X), lambda: crf.score(X, Y), lambda: crf.save("no.model"), lambda: crf.classes_):
        with pytest.raises(NotFittedError, match="has not been fitted: call fit or load first") as caught:
            use()
        assert isinstance(caught.value, EspalierError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, NotFittedError) and isinstance(again, EspalierError) and str(again) == str(caught.value)
    assert not hasattr(crf, "classes_")
    check_is_fitted(crf.fit(X, Y))


WITHOUT = """
import sys
sys.modules["sklearn"] = None  # as if it were not installed
from espalier import CRF, EspalierError
crf = CRF(max_iterations=2)
try:
    crf.predict([["a"]])
except EspalierError as error:
    print(type(error).__name__, error)
crf.fit([["a", "b"]], [["X", "Y"]]).predict([["a"]])
print(crf, len(crf._repr_html_()) > 100, [name for name in sys.modules if name.startswith("sklearn.")])
"""


def test_it_works_without_scikit_learn():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = "EspalierError this CRF has not been fitted: call fit or load first\nCRF(max_iterations=2) True []\n"
    assert done.stdout == expected


# Metadata ------------------------------------------------------------------------------------------

WEIGHTS = [3.0, 0.5, 1.0, 2.0] * 3


def test_weights_are_handed_to_fit(routing):
    asked = CRF(rho1=0.1).set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
    search = GridSearchCV(asked, {"rho1": [0.1]}, cv=2).fit(X, Y, sample_weight=WEIGHTS)
    weighted, plain = CRF(rho1=0.1).fit(X, Y, sample_weight=WEIGHTS), CRF(rho1=0.1).fit(X, Y)
    assert np.array_equal(search.best_estimator_.model_.theta, weighted.model_.theta)
    assert not np.array_equal(plain.model_.theta, weighted.model_.theta)


def test_weights_are_handed_to_score(routing):
    """The last sequence has wrong labels; with a weight of zero they do not count."""
    wrong, weights = [*Y[:-1], ["V", "V", "N"]], np.array([1.0] * 11 + [0.0])
    crf = CRF(rho1=0.01).set_fit_request(sample_weight=True)
    for asked, perfect in ((True, True), (False, False)):
        scores = cross_validate(
            clone(crf).set_score_request(sample_weight=asked), X, wrong, cv=KFold(2), params={"sample_weight": weights}
        )["test_score"]
        assert scores[0] == 1.0 and bool(scores[1] == 1.0) is perfect


def test_weights_that_nobody_asked_for_are_refused(routing):
    with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
        cross_validate(CRF(), X, Y, params={"sample_weight": np.array(WEIGHTS)})


def test_a_clone_keeps_what_was_asked_for(routing):
    crf = CRF().set_fit_request(sample_weight="mine").set_predict_request(method=True)
    for other in (clone(crf), copy.deepcopy(crf), pickle.loads(pickle.dumps(crf))):
        requests = other.get_metadata_routing()
        assert requests.fit.requests["sample_weight"] == "mine" and requests.predict.requests["method"] is True
        assert requests.score.requests["sample_weight"] is None


def test_requests_need_routing():
    with pytest.raises(RuntimeError, match="set_fit_request needs metadata routing"):
        CRF().set_fit_request(sample_weight=True)


# Copies --------------------------------------------------------------------------------------------


def by_joblib(crf, folder):
    joblib.dump(crf, folder / "crf.joblib")
    return joblib.load(folder / "crf.joblib")


@pytest.mark.parametrize("way", [lambda crf, _: pickle.loads(pickle.dumps(crf)), by_joblib,
                                 lambda crf, _: copy.deepcopy(crf)], ids=["pickle", "joblib", "deepcopy"])  # fmt: skip
@pytest.mark.parametrize("options", [{}, {"templates": TEMPLATES}, {"family": "memm"}, {"family": "hmm"}], ids=str)
def test_copies_predict_the_same_before_and_after_the_first_prediction(way, options, tmp_path):
    crf = CRF(rho1=0.1, **options).fit(X, Y)
    fresh = way(crf, tmp_path)
    expected = crf.predict_marginals(X)
    used = way(crf, tmp_path)
    for other in (fresh, used):
        assert other.get_params() == crf.get_params()
        for a, b in zip(other.predict_marginals(X), expected, strict=True):
            assert np.array_equal(a, b)
    fresh.model_.theta[:] = 0.0
    assert np.any(crf.model_.theta != 0.0), "nothing is shared"


def test_a_fitted_model_predicts_in_a_worker():
    crf = CRF(TEMPLATES, rho1=0.01).fit(X, Y)
    with joblib.parallel_config("loky"):
        parts = joblib.Parallel(n_jobs=2)(joblib.delayed(crf.predict)(part) for part in (X[:5], X[5:]))
    assert parts[0] + parts[1] == Y


@pytest.mark.slow
def test_a_search_in_worker_processes():
    search = GridSearchCV(CRF(max_iterations=20), {"rho1": [0.01, 100.0]}, cv=2, n_jobs=2).fit(X, Y)
    assert search.best_params_ == {"rho1": 0.01}
