"""The names of sklearn-crfsuite and python-crfsuite: what they take and give, and that the objective is CRFsuite's."""

import copy
import gzip
import importlib.util
import inspect
import pickle
import time

import numpy as np
import pytest
from reference.conlleval import overall, scores

from espalier import load
from espalier.crfsuite import CRF, ItemSequence, Tagger, Trainer
from espalier.engine.errors import EspalierError

X = [
    [{"w": "the", "cap": True}, {"w": "dog", "cap": False}, {"w": "barks"}],
    [["w:a"], ["w:cat", "short"], ["w:sleeps"]],
    [{"w": "dogs"}, {"w": "bark"}],
    [{"w": ["the", "det"]}, {"w": {"cat": 1}}, {"w": "barks"}],
]
Y = [["D", "N", "V"], ["D", "N", "V"], ["N", "V"], ["D", "N", "V"]]
SAME_OBJECTIVE = 1e-6  # relative; CRFsuite prints six decimals
SETTINGS = [
    {"c1": 0.0, "c2": 0.5},
    {"c1": 0.05, "c2": 0.1},
    {"c1": 0.0, "c2": 0.5, "feature.possible_transitions": True},
    {"c1": 0.0, "c2": 0.5, "feature.possible_states": True},
    {"c1": 0.0, "c2": 0.2, "feature.minfreq": 2.0},
]


def peer():
    """python-crfsuite itself."""
    if importlib.util.find_spec("pycrfsuite") is None:
        pytest.skip("python-crfsuite is not installed: `make bench` installs the peers")
    import pycrfsuite

    return pycrfsuite


def trained(module, path, params, items=X, labels=Y, holdout=-1):
    trainer = module.Trainer(verbose=False)
    trainer.set_params(params)
    for row, names in zip(items, labels, strict=True):
        trainer.append(row, names)
    trainer.train(str(path), holdout)
    return trainer


# ---- items


@pytest.mark.parametrize(
    "item, attributes",
    [
        ({"w": "a"}, ["w:a"]),
        ({"w": "a:b"}, ["w:a:b"]),
        ({"w": b"a", b"k": "z"}, ["w:a", "k:z"]),
        ({"on": True, "off": False, "one": 1, "zero": 0.0}, ["on", ("off", 0.0), "one", ("zero", 0.0)]),
        ({"half": np.float32(0.5), "f": np.float32(1)}, [("half", 0.5), "f"]),
        ({"w": ["a", "b"], "s": {"x"}}, ["w:a", "w:b", "s:x"]),
        ({"p": {"q": {"r": "s"}, "t": True}}, ["p:q:r:s", "p:t"]),
        (["a", "b", "a"], ["a", "b", "a"]),
        (("a", b"b"), ["a", "b"]),
        ("ab", ["a", "b"]),
        ([], []),
        ({}, []),
    ],
)
def test_items_are_read_as_python_crfsuite_reads_them(item, attributes):
    assert list(ItemSequence([item])) == [attributes]
    if importlib.util.find_spec("pycrfsuite"):
        assert peer().ItemSequence([item]).items() == ItemSequence([item]).items()


@pytest.mark.parametrize(
    "item, words",
    [
        ({"w": None}, "the attribute 'w' has the value None, nothing: expected a text, a number, True, False"),
        ({"w": ("a",)}, "the attribute 'w' has the value ('a',), a tuple: expected a text"),
        ({1: "a"}, "the attribute 1 is a int: expected a text"),
        ([3], "the attribute 3 is a int: expected a text"),
    ],
)
def test_what_is_no_item_is_refused(item, words):
    with pytest.raises(EspalierError) as error:
        ItemSequence([item])
    assert str(error.value).startswith(words)


def test_numbers_are_values():
    item = {"len": 2.5, "p": {"q": -3, "one": 1.0}, "none": 0}
    assert list(ItemSequence([item])) == [[("len", 2.5), ("p:q", -3.0), "p:one", ("none", 0.0)]]
    assert ItemSequence([item]).items() == [{"len": 2.5, "p:q": -3.0, "p:one": 1.0, "none": 0.0}]
    for value in (float("nan"), float("-inf"), np.float32("inf")):
        with pytest.raises(EspalierError, match="the attribute 'len' has the value .*: expected a finite number"):
            ItemSequence([{"len": value}])


def test_an_item_sequence_may_be_handed_over_again():
    once = ItemSequence(X[0])
    assert ItemSequence(once).items() == once.items() == [
        {"w:the": 1.0, "cap": 1.0}, {"w:dog": 1.0, "cap": 0.0}, {"w:barks": 1.0},
    ]  # fmt: skip
    assert len(once) == 3 and repr(once) == "<ItemSequence of size 3>"


# ---- the objective is CRFsuite's


VALUED = [[{"w": item, "len": len(item) / 4, "n": {"t": t}} for t, item in enumerate(row)]
          for row in (["the", "dog", "barks"], ["a", "cat", "sleeps"], ["dogs", "bark"], ["the", "cat", "barks"])]


NEGATIVE = [[item | {"len": 0.8 - item["len"]} for item in row] for row in VALUED]  # some pairs sum to less than 0


@pytest.mark.parametrize("items", [X, VALUED, NEGATIVE], ids=["texts", "numbers", "negative"])
@pytest.mark.parametrize("params", SETTINGS, ids=lambda params: "-".join(f"{k}={v}" for k, v in params.items()))
def test_the_objective_and_its_optimum_are_those_of_crfsuite(tmp_path, params, items):
    tight = {"max_iterations": 1000, "delta": 1e-13, "epsilon": 1e-10}
    theirs = trained(peer(), tmp_path / "a.crfsuite", params | tight, items)
    import espalier.crfsuite as module

    ours = trained(module, tmp_path / "a.model", params | tight, items)
    assert ours.logparser.featgen_num_features == theirs.logparser.featgen_num_features
    assert ours.logparser.last_iteration["loss"] == pytest.approx(
        theirs.logparser.last_iteration["loss"], rel=SAME_OBJECTIVE
    )
    ours, theirs = Tagger(), peer().Tagger()
    ours.open(tmp_path / "a.model"), theirs.open(str(tmp_path / "a.crfsuite"))
    assert ours.labels() == theirs.labels()
    for row, labels in zip(items, Y, strict=True):
        assert ours.tag(row) == theirs.tag(row)
        assert ours.probability(labels) == pytest.approx(theirs.probability(labels), abs=1e-3)
        assert ours.marginal("N", 1) == pytest.approx(theirs.marginal("N", 1), abs=1e-3)


# ---- Trainer and Tagger


def test_the_parameters_are_those_of_python_crfsuite():
    trainer, theirs = Trainer(verbose=False), peer().Trainer(verbose=False)
    for algorithm in ("lbfgs", "l2sgd", "ap", "pa", "arow"):
        trainer.select(algorithm), theirs.select(algorithm)
        assert trainer.get_params() == theirs.get_params()
        assert trainer.params() == theirs.params()


def test_parameters_are_set_and_refused_by_name():
    trainer = Trainer("lbfgs", {"c1": "0.5", "feature.possible_states": True}, verbose=False)
    assert trainer.get("c1") == 0.5 and trainer.get_params()["feature.possible_states"] is True
    assert "L1" in trainer.help("c1")
    with pytest.raises(EspalierError, match="lbfgs has no parameter 'c3': it has feature.minfreq"):
        trainer.set("c3", 1)
    with pytest.raises(EspalierError, match="c1 is much: expected a number"):
        trainer.set("c1", "much")
    trainer.select("l2sgd")
    with pytest.raises(EspalierError, match="l2sgd has no parameter 'c1'"):
        trainer.help("c1")
    trainer.select("pa")
    assert trainer.params() == Trainer("passive-aggressive", verbose=False).params()
    with pytest.raises(EspalierError, match="algorithm 'nope' is not known: choose one of lbfgs, l2sgd"):
        trainer.select("nope")


LEARNT = [
    ("ap", {}), ("ap", {"epsilon": 0.5}), ("pa", {}), ("pa", {"type": 0}), ("pa", {"type": 2, "c": 0.1}),
    ("pa", {"error_sensitive": False, "c": 10.0}), ("pa", {"averaging": False}), ("arow", {}),
    ("arow", {"variance": 0.5, "gamma": 3.0}), ("ap", {"feature.possible_states": True}),
]  # fmt: skip
PRINTED = 2e-6  # CRFsuite prints six decimals


@pytest.mark.parametrize(("algorithm", "params"), LEARNT, ids=str)
def test_perceptrons_learn_what_they_do_in_python_crfsuite(tmp_path, algorithm, params):
    """From one sequence, whose turn it always is: CRFsuite shuffles several by random numbers of its own.

    Its mean has the zeros before the first sequence, too, so it is smaller by one part, and says the same labels.
    """
    items = [{"w": "a", "v": 2.5}, {"w": "b", "v": -1.0}, {"w": "a"}, {"w": "c", "last": True}, {"w": "b"}]
    labels, found, told = ["X", "Y", "Z", "X", "X"], {}, {}
    for name, module in (("ours", importlib.import_module("espalier.crfsuite")), ("theirs", peer())):
        trainer = module.Trainer(algorithm, params | {"max_iterations": 5}, verbose=False)
        trainer.append(items, labels)
        trainer.train(str(tmp_path / name))
        tagger = module.Tagger()
        tagger.open(str(tmp_path / name))
        info = tagger.info()
        weights = {**info.state_features, **info.transitions}
        found[name] = {key: value for key, value in weights.items() if abs(value) > PRINTED}
        told[name] = [step["loss"] for step in trainer.logparser.iterations], tagger.tag(items)
    steps = len(told["theirs"][0])
    met = told["ours"][0]  # none is left out but those in which nothing was wrong
    np.testing.assert_allclose([*met, *[0.0] * (steps - len(met))], told["theirs"][0], atol=PRINTED)
    assert told["ours"][1] == told["theirs"][1]
    mean = params.get("averaging", True) and algorithm != "arow"
    part = steps / (steps + 1) if mean else 1.0
    assert found["ours"].keys() == found["theirs"].keys()
    for key, value in found["theirs"].items():
        assert part * found["ours"][key] == pytest.approx(value, abs=PRINTED)


@pytest.mark.parametrize("algorithm", ["ap", "pa", "arow"])
def test_perceptrons_of_the_estimator(algorithm):
    crf = CRF(algorithm=algorithm, max_iterations=10).fit(X, Y, X, Y)
    assert crf.score(X, Y) == 1.0 and crf.training_log_.last_iteration["avg_f1"] == 1.0
    assert crf.training_log_.stop_reason == "separated"
    with pytest.raises(EspalierError, match="^perceptron cannot say how likely its labels are"):
        crf.predict_marginals(X)
    with pytest.raises(EspalierError, match="type is 3: expected 0, 1 or 2"):
        CRF(algorithm="pa", pa_type=3).fit(X, Y)


def test_l2sgd_warns_and_ends_at_the_same_optimum(tmp_path):
    with pytest.warns(UserWarning, match="l2sgd: the same objective"):
        sgd = CRF(algorithm="l2sgd", c2=0.1, delta=1e-12).fit(X, Y)
    plain = CRF(c2=0.1, delta=1e-12).fit(X, Y)
    assert sgd.training_log_.last_iteration["loss"] == pytest.approx(plain.training_log_.last_iteration["loss"])


def test_hooks_hear_of_the_training_and_messages_are_printed(tmp_path, capsys):
    heard = []

    class Loud(Trainer):
        def on_iteration(self, log, info):
            heard.append(info)

    trainer = Loud(params={"c2": 0.1, "max_iterations": 3})
    for row, labels in zip(X[:3], Y[:3], strict=True):
        trainer.append(row, labels)
    trainer.append(X[3], Y[3], group=7)
    trainer.train(str(tmp_path / "a.model"), holdout=7)
    out = capsys.readouterr().out
    assert "Number of features: " in out and "Total seconds required for training" in out
    assert [info["num"] for info in heard] == [1, 2, 3] and heard == trainer.logparser.iterations
    last = trainer.logparser.last_iteration
    assert last["item_accuracy_float"] == 1.0 and last["instance_accuracy_float"] == 1.0 and last["avg_f1"] == 1.0
    assert last["scores"]["V"]._asdict() == {"match": 1, "model": 1, "ref": 1, "precision": 1, "recall": 1, "f1": 1}
    assert trainer.logparser.stop_reason == "max_iterations"
    trainer.clear()
    with pytest.raises(EspalierError, match="no sequence to train on: append some first"):
        trainer.train(str(tmp_path / "b.model"))


def test_a_tagger_says_what_is_missing(tmp_path):
    tagger = Tagger()
    with pytest.raises(EspalierError, match="the tagger is not opened"):
        tagger.tag(X[0])
    CRF(c2=0.1, model_filename=str(tmp_path / "a.model")).fit(X, Y)
    with tagger.open(tmp_path / "a.model") as opened:
        with pytest.raises(EspalierError, match="there is no sequence yet"):
            opened.tag()
        assert opened.tag([]) == [] and opened.probability([]) == 1.0
        assert opened.tag(X[0]) == opened.tag() == Y[0]
        with pytest.raises(EspalierError, match="2 labels for 3 items"):
            opened.probability(["D", "N"])
        with pytest.raises(EspalierError, match="label 'Q' is not known: expected one of"):
            opened.marginal("Q", 0)
        with pytest.raises(EspalierError, match="position 3 of a sequence of 3 items"):
            opened.marginal("D", 3)
    with pytest.raises(EspalierError, match="not opened"):
        tagger.labels()


def test_info_and_dump_show_the_weights(tmp_path, capsys):
    crf = CRF(c2=0.1, model_filename=str(tmp_path / "a.model")).fit(X, Y)
    info = crf.tagger_.info()
    assert info.transitions == crf.transition_features_ and set(info.transitions) == {("D", "N"), ("N", "V")}
    assert info.state_features == crf.state_features_ and ("w:the", "D") in info.state_features
    assert info.labels == {"D": "0", "N": "1", "V": "2"} and int(info.header["num_attrs"]) == crf.num_attributes_
    crf.tagger_.dump(tmp_path / "dump.txt")
    crf.tagger_.dump()
    text = (tmp_path / "dump.txt").read_text()
    assert text == capsys.readouterr().out
    assert f"  (1) D --> N: {info.transitions['D', 'N']:f}\n" in text and "ATTRIBUTES = {\n      0: " in text


def test_a_model_of_columns_is_not_taken_for_one_of_attributes(tmp_path):
    from espalier import CRF as Columns

    Columns(["U:%x[0,0]", "B"]).fit([["a", "b"]], [["X", "Y"]]).save(tmp_path / "a.model")
    with pytest.raises(EspalierError, match="its templates look at columns"):
        Tagger().open(tmp_path / "a.model")


def test_models_of_our_estimator_can_be_opened(tmp_path):
    from espalier import CRF as Estimator

    lists = [[["a", "b"], ["c"]], [["a"], ["d", "b"]], [["c"], ["a"]]]
    ours = Estimator(rho1=0.01).fit(lists, [["X", "Y"], ["X", "Y"], ["Y", "X"]])
    ours.save(tmp_path / "a.model")
    tagger = Tagger()
    tagger.open(tmp_path / "a.model")
    for row, labels, marginals in zip(lists, ours.predict(lists), ours.predict_marginals(lists), strict=True):
        assert tagger.tag(row) == labels
        assert tagger.marginal("X", 0) == pytest.approx(marginals[0, ours.classes_.index("X")], rel=1e-12)


# ---- CRF


def test_the_estimator_learns_and_answers():
    crf = CRF(c1=0.01, c2=0.01, all_possible_transitions=True).fit(X, Y)
    assert crf.predict(X) == Y and crf.score(X, Y) == 1.0 and crf.predict_single(X[2]) == Y[2]
    assert crf.classes_ == ["D", "N", "V"]
    for row, labels in zip(crf.predict_marginals(X), Y, strict=True):
        assert [max(place, key=place.get) for place in row] == labels
        assert all(sum(place.values()) == pytest.approx(1.0) for place in row)
    assert crf.predict_marginals_single(X[0]) == crf.predict_marginals(X)[0]
    assert crf.predict([[], X[2], []]) == [[], Y[2], []] and crf.predict([]) == [] and crf.predict_single([]) == []
    assert set(crf.attributes_) == {name for name, _ in crf.state_features_}
    assert len(crf.transition_features_) <= 9


def test_development_data_are_tested_on_after_each_iteration():
    crf = CRF(c2=0.1, max_iterations=4).fit(X[:3], Y[:3], X_dev=X[3:], y_dev=Y[3:])
    assert [round(info["item_accuracy_float"], 3) for info in crf.training_log_.iterations][-1] == 1.0
    with pytest.raises(EspalierError, match="expected both or neither"):
        CRF().fit(X, Y, X_dev=X)


def test_empty_sequences_are_left_out_and_wrong_numbers_refused():
    assert CRF(c2=0.1).fit([[], *X], [[], *Y]).predict(X) == Y
    with pytest.raises(EspalierError, match="X and y have different numbers of sequences"):
        CRF().fit(X, Y[:3])
    with pytest.raises(EspalierError, match="a sequence has 3 items and 2 labels"):
        CRF().fit(X[:1], [["D", "N"]])
    with pytest.raises(EspalierError, match="the label 3 is a int: expected a text"):
        CRF().fit([[["a"]]], [[3]])
    with pytest.raises(EspalierError, match="half a character"):
        CRF().fit([[["a\ud800"]]], [["A"]])
    with pytest.raises(EspalierError, match="there is no sequence to train on"):
        CRF().fit([], [])
    with pytest.raises(EspalierError, match="lbfgs has no parameter 'gamma'"):
        CRF(gamma=2).fit(X, Y)
    with pytest.raises(EspalierError, match="not been fitted"):
        CRF().predict(X)
    assert CRF().classes_ is None and CRF().state_features_ is None


def test_it_is_pickled_copied_and_read_from_its_file(tmp_path):
    crf = CRF(c2=0.1, model_filename=str(tmp_path / "a.model")).fit(X, Y)
    for other in (pickle.loads(pickle.dumps(crf)), copy.deepcopy(crf), CRF(model_filename=str(tmp_path / "a.model"))):
        assert other.predict(X) == Y
    assert crf.size_ == (tmp_path / "a.model").stat().st_size
    assert load(tmp_path / "a.model").classes_ == ["D", "N", "V"]


def test_scikit_learn_takes_it():
    model_selection = pytest.importorskip("sklearn.model_selection", reason="scikit-learn is not installed")
    from sklearn.base import clone

    crf = clone(CRF(c1=0.25, min_freq=0))
    assert crf.get_params()["c1"] == 0.25 and repr(crf) == "CRF(c1=0.25)"
    with pytest.raises(EspalierError, match="unknown parameter 'c3': known are algorithm, min_freq"):
        crf.set_params(c3=1)
    search = model_selection.GridSearchCV(CRF(c2=0.1), {"c1": [0.0, 0.1]}, cv=2)
    search.fit(X, Y)
    assert search.best_score_ > 0.5


# ---- python-crfsuite's tutorial


def sentences(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [[line.split() for line in text.split("\n")] for text in file.read().strip().split("\n\n")]


def features_of(sentence, i):
    """As the tutorial has them."""

    def seen(at, prefix):
        word, tag = sentence[at][:2]
        found = [f"word.lower={word.lower()}", f"word.istitle={word.istitle()}", f"word.isupper={word.isupper()}",
                 f"postag={tag}", f"postag[:2]={tag[:2]}"]  # fmt: skip
        return [prefix + text for text in found]

    word = sentence[i][0]
    found = ["bias", f"word[-3:]={word[-3:]}", f"word[-2:]={word[-2:]}", f"word.isdigit={word.isdigit()}", *seen(i, "")]
    found += seen(i - 1, "-1:") if i else ["BOS"]
    return found + (seen(i + 1, "+1:") if i < len(sentence) - 1 else ["EOS"])


@pytest.mark.corpus
@pytest.mark.slow
def test_the_tutorial_runs_with_another_import(corpora, tmp_path, record_property):
    """Spanish named entities: F1 at least python-crfsuite's; the times of both are on record.

    Kernels are compiled on a few sentences before the clock starts.
    """
    theirs = peer()
    import espalier.crfsuite as ours

    train, test = (sentences(corpora / "conll2002-esp" / f"esp.{part}.gz") for part in ("train", "testb"))
    items, test_items = ([[features_of(s, i) for i in range(len(s))] for s in part] for part in (train, test))
    labels, right = ([[token[2] for token in s] for s in part] for part in (train, test))
    params = {"c1": 1.0, "c2": 1e-3, "max_iterations": 50, "feature.possible_transitions": True}
    trained(ours, tmp_path / "warm.model", params | {"max_iterations": 2}, items[:20], labels[:20])
    found = {}
    for module in (theirs, ours):
        begin = time.perf_counter()
        trained(module, tmp_path / f"{module.__name__}.model", params, items, labels)
        tagger = module.Tagger()
        tagger.open(str(tmp_path / f"{module.__name__}.model"))
        answers = [tagger.tag(row) for row in test_items]
        found[module] = scores(overall(right, answers))[2], time.perf_counter() - begin
        record_property(module.__name__, found[module])
    assert found[ours][0] >= found[theirs][0] - 0.001
    assert found[ours][0] > 0.75


def test_public_methods_say_their_types():
    for of in (CRF, ItemSequence, Tagger, Trainer):
        for name, method in vars(of).items():
            if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
                shown = inspect.signature(method)
                assert shown.return_annotation is not inspect.Signature.empty, f"{of.__name__}.{name}"
                untyped = [one for one in list(shown.parameters.values())[1:] if one.annotation is one.empty]
                assert not untyped, f"{of.__name__}.{name}: {untyped}"
