"""The Python labeller: fitting, weights, files, tables, and what it refuses."""

import numpy as np
import polars as pl
import pytest

from espalier import CRF
from espalier.engine.data.dataset import make_dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families import hmm
from espalier.engine.families.hmm_options import TRAININGS, HmmOptions
from espalier.engine.families.memm import MemmObjective
from espalier.engine.importing import read_hmm
from espalier.engine.interface import observations
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.penalty_search import held_out
from espalier.engine.weights.layout import make_layout, observation_kinds

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


def test_score_counts_a_sequence_as_often_as_its_weight():
    crf = CRF(TEMPLATES, rho1=0.01).fit(X, Y)
    wrong = [["N", "N", "N"], *Y[1:]]  # 2 of 3 wrong in the first sequence, 11 tokens in all
    assert crf.score(X, wrong) == pytest.approx(9 / 11)
    assert crf.score(X, wrong, sample_weight=[3, 1, 1, 1]) == pytest.approx(11 / 17)
    assert crf.score(X, wrong, sample_weight=[0, 1, 1, 1]) == 1.0


def test_score_leaves_out_what_is_not_known():
    crf = CRF(TEMPLATES, rho1=0.01).fit(X, Y)
    assert crf.score(X[:1], [[None, {"N", "V"}, "D"]]) == 0.5


def test_nbest_begins_with_the_prediction():
    crf = CRF(TEMPLATES, rho1=0.1).fit(X, Y)
    for best, labels in zip(crf.predict_nbest(X, 4), crf.predict(X), strict=True):
        assert len(best) == 4 and best[0][1] == labels
        assert [p for p, _ in best] == sorted((p for p, _ in best), reverse=True)
    every = crf.predict_nbest([["dogs", "bark"]], 100)[0]
    assert len(every) == 9 and sum(np.exp(p) for p, _ in every) == pytest.approx(1.0)


def test_the_posterior_method_is_the_arg_max_of_the_marginals():
    crf = CRF(TEMPLATES, rho1=0.1).fit(X, Y)
    expected = [[crf.classes_[i] for i in row.argmax(axis=1)] for row in crf.predict_marginals(X)]
    assert crf.predict(X, method="posterior") == expected


SPANS = [["a", "b", "c"], ["a", "c"], ["b", "c"], ["c", "a", "b", "b"]]
BIO = [["B-X", "I-X", "O"], ["B-X", "O"], ["B-X", "O"], ["O", "B-X", "I-X", "I-X"]]


def test_the_scheme_is_obeyed_where_the_model_alone_would_not():
    """Without transition weights, b is I-X wherever it stands."""
    crf = CRF(["U:%x[0,0]"], rho1=0.01).fit(SPANS, BIO)
    assert crf.predict([["b", "b"]]) == [["I-X", "I-X"]]
    assert crf.predict([["b", "b"]], scheme=True) == [["B-X", "I-X"]]
    assert crf.predict([["b", "b"]], scheme="iob1") == [["I-X", "I-X"]]
    assert crf.predict([["b"]], "posterior", scheme=True) == [["B-X"]]
    assert all(labels[0] != "I-X" for _, labels in crf.predict_nbest([["b", "b"]], 9, scheme=True)[0])
    assert crf.predict_marginals([["b"]], scheme=True)[0][0, crf.classes_.index("I-X")] == 0.0


def test_what_is_known_beforehand_is_obeyed():
    crf = CRF(TEMPLATES, rho1=0.1).fit(X, Y)
    allowed = [[{"N", "V"}, "D", None]]
    (labels,) = crf.predict(X[:1], allowed=allowed)
    assert labels[0] in ("N", "V") and labels[1] == "D"
    assert [p[1] for p in crf.predict_nbest(X[:1], 9, allowed=allowed)[0]][0] == labels
    np.testing.assert_allclose(crf.predict_marginals(X[:1], allowed=allowed)[0][1], [1.0, 0.0, 0.0])


def test_partial_labels_train():
    """Known labels with the others forgotten, or narrowed to two, still teach the same."""
    partial = [["D", None, "V"], [("D", "N"), "N", ["V"]], ["N", {"V", "N"}], ["D", "N", None]]
    crf = CRF(TEMPLATES, rho1=0.0, rho2=0.1, solver="lbfgs", pairs="all").fit(X, partial)
    assert crf.classes_ == ["D", "N", "V"]
    assert crf.predict(X) == Y
    single = CRF(TEMPLATES, rho1=0.01).fit(X, [[{label} for label in row] for row in Y])
    assert np.array_equal(single.model_.theta, CRF(TEMPLATES, rho1=0.01).fit(X, Y).model_.theta)


@pytest.mark.parametrize("solver", ["auto", "sgd", "sbcd", "lbfgs"])
def test_a_sequence_without_any_label_teaches_nothing(solver):
    options = {"solver": solver, "rho1": 0.0 if solver == "lbfgs" else 0.1, "max_iterations": 20}
    with_it = CRF(**options).fit([*X, ["a", "cow"]], [*Y, [None, None]], sample_weight=[1, 1, 2, 1, 5])
    assert np.array_equal(with_it.model_.theta, CRF(**options).fit(X, Y, sample_weight=[1, 1, 2, 1]).model_.theta)


def test_a_token_of_weight_zero_is_not_learned():
    """The second token of the first sequence has a wrong label; its weight decides whether that matters."""
    wrong = [["D", "V", "V"], *Y[1:]]
    crf = {w: CRF(TEMPLATES, rho1=0.1).fit(X, wrong, token_weight=[[1, w, 1], [1] * 3, [1] * 2, [1] * 3])
           for w in (0, 20)}  # fmt: skip
    assert crf[0].predict(X[:1]) == Y[:1]
    assert crf[20].predict(X[:1]) == wrong[:1]


def test_a_warm_start_reaches_the_same_optimum_in_fewer_iterations(tmp_path):
    """The new data have a new label and new words; the start comes from a CRF, its model or its file."""
    tight = {"templates": TEMPLATES, "rho1": 0.0, "rho2": 0.5, "solver": "lbfgs", "tolerance": 1e-10,
             "max_iterations": 500}  # fmt: skip
    old = CRF(**tight).fit(X, Y)
    old.save(tmp_path / "old.model")
    more_x, more_y = [*X, ["the", "old", "cat", "sleeps"]], [*Y, ["D", "A", "N", "V"]]
    cold = CRF(**tight).fit(more_x, more_y)
    for source in (old, old.model_, tmp_path / "old.model"):
        warm = CRF(**tight).fit(more_x, more_y, start_from=source)
        assert len(warm.trace_) < len(cold.trace_)
        assert warm.trace_[0]["objective"] < cold.trace_[0]["objective"]
        assert warm.model_.info["objective"] == pytest.approx(cold.model_.info["objective"], rel=1e-8)
        first, second = rows_of(warm), rows_of(cold)
        assert first.keys() == second.keys()
        assert max(abs(first[key] - second[key]) for key in first) < WEIGHT_ROUNDING
    again = CRF(**tight).fit(X, Y, start_from=old)
    assert again.trace_[0]["gradient_norm"] < 1e-6 * cold.trace_[0]["gradient_norm"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CRF().predict(X), "has not been fitted"),
        (lambda: CRF().fit(X, Y[:2]), "2 rows of labels for 4 sequences"),
        (lambda: CRF().fit(X, [["D"], *Y[1:]]), "sequence 0 has 3 tokens and 1 labels"),
        (lambda: CRF().fit([[], *X], [[], *Y]), "sequence 0 has no token"),
        (lambda: CRF(pairs="some").fit(X, Y), "pairs is 'some'"),
        (lambda: CRF(["U:%x[0,1]"]).fit(X, Y), "points at column 1, the data has column 0"),
        (lambda: CRF().fit(X, [[None] * len(row) for row in Y]), "there is no label"),
        (lambda: CRF().fit(X, [[set(), "N", "V"], *Y[1:]]), "token 0 of sequence 0 has an empty set of labels"),
        (lambda: CRF(solver="sbcd").fit(X, [[None, "N", "V"], *Y[1:]]), "sbcd cannot train with partial labels"),
        (lambda: CRF().fit(X, Y, token_weight=[[1], *Y[1:]]), "sequence 0 has 3 tokens and 1 weights"),
        (lambda: CRF().fit(X, Y, token_weight=[[1] * 3] * 2), "2 rows of token weights for 4 sequences"),
        (lambda: CRF().fit(X, Y, start_from="no.model"), "no.model: there is no such model"),
        (lambda: CRF().fit(X, Y).predict(X, method="best"), "method is 'best': expected one of viterbi, posterior"),
        (lambda: CRF().fit(X, Y).predict(X, scheme=True), "label 'D' is not one of iob2"),
        (lambda: CRF().fit(X, Y).predict(X[:1], allowed=[["Q", None, None]]), "label 'Q' of sequence 0 is not known"),
        (lambda: CRF().fit(X, Y).predict_nbest(X, "2"), "n is '2': expected a whole number of at least 1"),
        (lambda: CRF().fit(X, Y).score(X, Y, [1]), "1 weights for 4 sequences"),
        (lambda: CRF().fit(X, Y).score(X, Y, [0] * 4), "there is nothing to score"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(EspalierError, match=message):
        call()


MACROS = ['U1:%t[0,0,"s$"]', "U2:%P[0,0,2]/%S[-1,0,2]", "U3:%w[0,0,1]", "U4:%g[0,0,3]", 'U5:%l[0,0,"names.txt"]',
          "U6:%q[0,1,2]", "u7:%x[@1,0]/%X[@-1,0]", "b"]  # fmt: skip


def test_every_macro_in_python(tmp_path, monkeypatch):
    """Lists are read when the model is fitted and travel with it; what was learned is in its templates."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names.txt").write_text("the dog\tanimal\ncat\tanimal\n", encoding="utf-8")
    rows = [[(word, str(len(word))) for word in sentence] for sentence in X]
    crf = CRF(MACROS, rho1=0.0, rho2=0.1, solver="lbfgs").fit(rows, Y)
    assert crf.predict(rows) == Y
    assert crf.model_.templates[3:6] == ["U4:%g[0,0,3,6]", 'U5:%l[0,0,"names.txt"]', 'U6:%q[0,1,"3.0"]']
    assert {"U5:B-animal", "U4:<do"} <= set(crf.model_.observations)
    crf.save("a.model")
    (tmp_path / "names.txt").unlink()
    loaded = CRF.load("a.model")
    for before, after in zip(crf.predict_marginals(rows), loaded.predict_marginals(rows), strict=True):
        assert np.array_equal(before, after)
    with pytest.raises(EspalierError, match="names.txt: there is no such list of names"):
        loaded.fit(rows, Y)


def test_bins_of_a_column_that_is_not_there():
    with pytest.raises(EspalierError, match=r"template `U:%q\[0,1,2\]` points at column 1, the data has column 0"):
        CRF(["U:%q[0,1,2]"]).fit(X, Y)


def test_more_labels_than_their_pairs_can_be_scored_are_refused_at_once():
    labels = [f"L{i}" for i in range(200_000)]
    with pytest.raises(EspalierError, match="200,000 different labels, expected at most 8,192"):
        CRF().fit([["a"] * len(labels)], [labels])


@pytest.mark.parametrize(
    ("tokens", "labels", "expected"),
    [
        (["a", "b\ud800"], ["X", "Y"], r"the token 'b\\ud800' at position 1 of sequence 1 holds half a character"),
        (["a", "b"], ["\udfff", "Y"], r"the label '\\udfff' at position 0 of sequence 1 holds half a character"),
        (["a", "b"], ["X", {"Y", "\udfff"}], "the label .* at position 1 of sequence 1 holds half a character"),
    ],
)
def test_half_a_character_is_refused_with_its_place(tokens, labels, expected):
    with pytest.raises(EspalierError, match=expected):
        CRF().fit([["a", "b"], tokens], [["X", "Y"], labels])


# ---- values


def signs(count=60, seed=0):
    """Tokens whose label is the sign of a number."""
    rng = np.random.default_rng(seed)
    X = [[{"v": float(number), "w": "x"} for number in rng.normal(size=3)] for _ in range(count)]
    return X, [["P" if token["v"] > 0 else "N" for token in tokens] for tokens in X]


def test_a_number_is_the_value_of_its_attribute(tmp_path):
    X, y = signs()
    labeller = CRF().fit(X, y)
    assert labeller.score(*signs(seed=1)) > 0.97
    assert {"U:v"} <= set(labeller.model_.observations)
    labeller.save(tmp_path / "a.model")
    assert CRF.load(tmp_path / "a.model").predict(X) == labeller.predict(X)


def test_true_is_one_and_nothing_is_zero():
    X, y = signs(10)
    first = [[token | {"on": True, "off": False, "none": None} for token in tokens] for tokens in X]
    second = [[token | {"on": 1.0, "off": 0.0} for token in tokens] for tokens in X]
    found = [CRF().fit(some, y).predict_marginals(X) for some in (first, second)]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
def test_numbers_of_numpy_are_numbers(kind):
    X, y = signs(20)
    same = [[{"v": float(kind(token["v"])), "w": "x"} for token in tokens] for tokens in X]
    numpy = [[{"v": kind(token["v"]), "w": np.str_("x"), "t": np.True_, "f": np.False_} for token in t] for t in X]
    plain = [[token | {"t": True} for token in tokens] for tokens in same]
    assert CRF().fit(numpy, y).model_.checksum() == CRF().fit(plain, y).model_.checksum()


def test_whole_numbers_are_values_and_texts_are_not():
    X, y = [[{"n": 2}, {"n": "2"}, {"n": np.int64(3)}]], [["A", "B", "A"]]
    assert {"U:n", "U:n=2"} <= set(CRF(rho1=0.0, rho2=0.1).fit(X, y).model_.observations)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), "token 1 of sequence 1: 'v' is nan: expected a finite number"),
        (-float("inf"), "'v' is -inf: expected a finite number"),
        (np.float32("inf"), "'v' is inf: expected a finite number"),
        (10**400, "'v' is 1000.*: expected a finite number"),
        ([1.0], "'v' is of the type list: expected a text, a number, True, False or None; write each entry"),
        ({"a": 1}, "'v' is of the type dict: expected a text, a number"),
        (np.zeros(2), "'v' is of the type ndarray"),
        (1j, "'v' is of the type complex"),
        (b"x", "'v' is of the type bytes"),
    ],
)
def test_what_is_no_value_is_refused_with_its_place(value, text):
    X = [[{"v": 1.0}], [{"v": 1.0}, {"v": value}]]
    with pytest.raises(EspalierError, match=text):
        CRF().fit(X, [["A"], ["A", "B"]])


def test_lists_inside_a_list_of_attributes_are_refused():
    with pytest.raises(EspalierError, match="token 0 of sequence 0: 'an attribute' is of the type list"):
        CRF().fit([[["a", ["b"]]]], [["A"]])


def test_a_token_of_a_million_names():
    wide = {f"n{i}": 1.0 for i in range(1_000_000)}
    labeller = CRF(max_iterations=2).fit([[wide, {"a": 1.0}]], [["A", "B"]])
    assert labeller.predict([[{"n3": 1.0}]]) in ([["A"]], [["B"]])


def test_a_table_that_is_too_large_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr(observations, "MOST_CELLS", 10)
    with pytest.raises(EspalierError, match="a token has 7 attributes and there are 2 tokens, .* at most 10"):
        CRF().fit([[{"a": "b"}, dict.fromkeys("abcde", "x")]], [["A", "B"]])


def measured(n=60, factor=1.0, seed=0):
    """Tokens with a number, which decides the label; that of `also` is there now and then, 1 among its values."""
    rng, X, y = np.random.default_rng(seed), [], []
    for _ in range(n):
        numbers = np.round(rng.normal(size=3), 3).tolist()
        X.append([{"v": factor * number, "w": str(rng.choice(["a", "b"])),
                   **({"also": factor * int(rng.integers(1, 4))} if t else {})} for t, number in enumerate(numbers)])
        y.append(["P" if number > 0 else "N" for number in numbers])
    return X, y  # fmt: skip


def test_scales_are_learned_on_fit_and_kept_in_the_model(tmp_path):
    """Values a thousand times as large make the same weights; answers are the same after save and load."""
    (X, y), (large, _) = measured(), measured(factor=1000.0)
    one, other = CRF(rho1=0.01, scale=True).fit(X, y), CRF(rho1=0.01, scale=True).fit(large, y)
    values = [token["v"] for row in X for token in row]
    assert one.model_.scales["U:v"] == pytest.approx(1.0 / np.std(values), rel=1e-9)
    assert set(one.model_.scales) == {"U:v", "U:also"}
    np.testing.assert_allclose(one.model_.theta, other.model_.theta, rtol=1e-6)
    assert other.predict(large) == one.predict(X) and one.score(X, y) > 0.95
    plain = CRF(rho1=0.01).fit(X, y)
    assert not plain.model_.scales and abs(plain.model_.info["objective"] / one.model_.info["objective"] - 1.0) > 1e-4
    one.save(tmp_path / "a.model")
    back = CRF.load(tmp_path / "a.model")
    assert back.scale is True and back.model_.scales == one.model_.scales
    for a, b in zip(back.predict_marginals(X), one.predict_marginals(X), strict=True):
        np.testing.assert_array_equal(a, b)
    again = CRF(rho1=0.01, scale=True, max_iterations=1).fit(X, y, start_from=one)
    assert again.trace_[0]["objective"] == pytest.approx(one.trace_[-1]["objective"], rel=1e-9)


def test_scales_are_those_of_the_pipeline(tmp_path):
    """The same numbers in columns, by `template.scale` and by `CRF(scale=True)`; Python answers as the command does."""
    from stage_runs import run_stages, small_params

    from espalier.tasks import store
    from espalier.tasks.answering import tagging

    X, y = measured()
    columns = [[(token["w"], repr(token["v"])) for token in row] for row in X]
    lines = ["\n".join("\t".join((*cells, label)) for cells, label in zip(*pair, strict=True))
             for pair in zip(columns, y, strict=True)]  # fmt: skip
    (tmp_path / "a.conll").write_text("\n\n".join(lines) + "\n")
    params = small_params()
    params.ingest.source, params.ingest.path, params.ingest.test_path = "files", "a.conll", "a.conll"
    params.ingest.dev_share, params.template.scale = 0.0, True
    params.template.lines = ["U:%v[0,1]", "U:%x[0,0]", "B"]
    run_stages(tmp_path, params, "ingest", "template", "weigh", "train")
    pipeline = CRF.load(tmp_path / store.CANDIDATE)
    crf = CRF(params.template.lines, rho1=0.01, scale=True).fit(columns, y)
    assert pipeline.scale is True and crf.model_.scales.keys() == pipeline.model_.scales.keys() == {"U:%v[0,1]"}
    assert crf.model_.scales["U:%v[0,1]"] == pytest.approx(pipeline.model_.scales["U:%v[0,1]"], rel=1e-12)
    answers = tagging.tag(pipeline.model_, store.read_tokens(tmp_path, "train")[0])
    assert [label for row in pipeline.predict(columns) for label in row] == list(answers)


def test_scale_is_true_or_false():
    with pytest.raises(EspalierError, match="scale is yes: expected True or False"):
        CRF(scale="yes").fit([["a"]], [["X"]])
    assert CRF(scale=True).fit([["a", "b"]], [["X", "Y"]]).model_.scales == {}, "there are no values"


def test_templates_with_values_in_python():
    X, y = signs(40)
    rows = [[("x", str(token["v"])) for token in tokens] for tokens in X]
    labeller = CRF(templates=["U:%v[0,1]", "U:%x[0,0]", "B"]).fit(rows, y)
    assert labeller.score(rows, y) > 0.97
    with pytest.raises(EspalierError, match="column 1 holds 'abc' at position 1 of sequence 0, where a template looks"):
        labeller.predict([[("x", "_"), ("x", "abc")]])


# Parameters that come back ------------------------------------------------------------------------

OTHERS = {
    "scale": True,
    "templates": TEMPLATES, "solver": "owlqn", "rho1": np.float64(0.2), "rho2": 0.5, "pairs": "all", "start": False,
    "max_iterations": np.int64(7), "tolerance": 0.01, "min_count": 2, "sparse": "dense", "verbose": False,
    "family": "memm", "dev_share": 0.3, "seed": 5, "smoothing": 0.25, "rare": 2,
    "stop": False, "weights": "shared", "loss": "log", "pi": 0.9,
    "training": "viterbi", "restarts": 2, "power": 0.25, "alpha": 0.9, "batch": 7, "order": "long",
    "update": "pa", "lead": "hamming", "c": 0.5, "gamma": 2.0, "epochs": 3, "average": False,
    "scheme": None, "degree": 3, "kappa": 0.5, "eta": 2.0, "method": "sparse", "share": 0.5, "coordinates": 3,
    "threshold": 0.01, "pick": "gradient", "C": 2.0, "slack": "squared", "margin": "hamming", "gap": 0.1,
    "bound": "tight", "examples": "positions", "rounds": 9, "epsilon": 0.01,
}  # fmt: skip


def test_the_parameters_of_a_fit_come_back_from_its_file(tmp_path):
    crf = CRF(**OTHERS).fit(X, Y)
    assert set(OTHERS) == set(crf.get_params()), "a parameter without a value here"
    crf.save(tmp_path / "a.model")
    loaded = CRF.load(tmp_path / "a.model")
    assert loaded.get_params() == crf.get_params() == OTHERS
    assert type(loaded.max_iterations) is int
    assert (loaded.rho1_, loaded.rho2_, loaded.stop_reason_) == (0.2, 0.5, crf.stop_reason_)
    assert np.array_equal(loaded.fit(X, Y).model_.theta, crf.model_.theta), "and can be fitted again"


@pytest.mark.parametrize("options", [{}, {"family": "hmm"}, {"rho1": "auto", "dev_share": 0.3}, {"templates": "U\nB"}])
def test_defaults_come_back_as_well(tmp_path, options):
    crf = CRF(**options).fit(X, Y)
    crf.save(tmp_path / "a.model")
    assert CRF.load(tmp_path / "a.model").get_params() == crf.get_params()


def test_a_model_without_parameters_tells_what_it_has(tmp_path):
    """As the pipeline writes them."""
    crf = CRF(TEMPLATES, rho1=0.25, pairs="all", solver="owlqn", max_iterations=5).fit(X, Y)
    del crf.model_.info["estimator"]
    crf.save(tmp_path / "a.model")
    loaded = CRF.load(tmp_path / "a.model")
    assert repr(loaded) == f"CRF(templates={TEMPLATES!r}, solver='owlqn', rho1=0.25, pairs='all')"
    assert loaded.predict(X) == crf.predict(X)


@pytest.mark.parametrize("told", [7, "x", [["rho1", 3]]])
def test_parameters_that_are_no_table_are_refused(tmp_path, told):
    crf = CRF(max_iterations=2).fit(X, Y)
    crf.model_.info["estimator"] = told
    crf.save(tmp_path / "a.model")
    with pytest.raises(EspalierError, match="a.model: its parameters are .*, expected a table"):
        CRF.load(tmp_path / "a.model")


def test_parameters_of_another_version_are_left_out(tmp_path):
    crf = CRF(max_iterations=2).fit(X, Y)
    crf.model_.info["estimator"]["omega"] = 7
    crf.model_.info["penalty"] = "none"
    crf.save(tmp_path / "a.model")
    assert repr(CRF.load(tmp_path / "a.model")) == "CRF(max_iterations=2)"


# Families -----------------------------------------------------------------------------------------


def as_data(names, classes):
    """X and Y in numbers, one observation at each position."""
    words = [word for row in X for word in row]
    labels = [classes.index(label) for row in Y for label in row]
    return make_dataset(
        [[names.index("B"), names.index(f"U:{word}")] for word in words], labels, np.cumsum([0, *map(len, X)])
    )


def test_a_memm_minimises_its_own_loss():
    crf = CRF(["U:%x[0,0]", "B"], family="memm", solver="lbfgs", rho1=0.0, rho2=0.1).fit(X, Y)
    names = ["B", *dict.fromkeys(f"U:{word}" for row in X for word in row)]
    data = as_data(names, crf.classes_)
    layout = make_layout("seen", data, 3, observation_kinds(names), True)
    found = minimise("lbfgs", MemmObjective(data, layout), ElasticNet(0.0, 0.1), None, 1000, 4e-4)
    assert crf.model_.family == "memm" and crf.model_.info["objective"] == pytest.approx(found.objective, rel=1e-9)
    assert crf.predict(X) == Y
    chain = CRF(["U:%x[0,0]", "B"], solver="lbfgs", rho1=0.0, rho2=0.1).fit(X, Y)
    assert chain.model_.info["objective"] != pytest.approx(found.objective, rel=1e-3)


def test_an_hmm_counts():
    crf = CRF(family="hmm", smoothing=1e-3).fit(X, Y)
    names = ["U:" + word for word in dict.fromkeys(word for row in X for word in row)] + ["B"]
    data = as_data(names, crf.classes_)
    data = data._replace(observations=np.ascontiguousarray(data.observations[:, ::-1]))
    streams = np.array([0] * (len(names) - 1) + [1])
    options = HmmOptions("counts", 1e-3, 1)
    found = hmm.fit(data, names, streams, crf.classes_, ["U:%x[0,0]", "B"], {}, options)
    assert crf.stop_reason_ == "counted" and crf.model_.info["objective"] == pytest.approx(found.info["objective"])
    assert crf.predict(X) == Y and crf.predict([["the", "cow", "barks"]]) == [["D", "N", "V"]]
    assert not hasattr(crf, "rho1_") and not hasattr(CRF().fit(X, Y).set_params(family="hmm").fit(X, Y), "rho1_")
    same = CRF(["U:%x[0,0]", "B"], family="hmm", smoothing=1e-3).fit(X, Y)
    assert np.array_equal(same.model_.theta, crf.model_.theta)


def of_python(**options):
    return CRF(family="hmm", smoothing=1e-3, max_iterations=5, **options)


@pytest.mark.parametrize("training", sorted(TRAININGS))
def test_every_training_of_an_hmm(training):
    """With the same probabilities as the engine finds."""
    crf = of_python(training=training, batch=2, seed=3).fit(X, Y)
    names = ["U:" + word for word in dict.fromkeys(word for row in X for word in row)] + ["B"]
    data = as_data(names, crf.classes_)
    data = data._replace(observations=np.ascontiguousarray(data.observations[:, ::-1]))
    streams = np.array([0] * (len(names) - 1) + [1])
    options = HmmOptions(training, 1e-3, max_iterations=5, batch=2, seed=3)
    found = hmm.fit(data, names, streams, crf.classes_, ["U:%x[0,0]", "B"], {}, options)
    assert np.array_equal(crf.model_.theta, found.theta) and crf.stop_reason_ == found.info["stop_reason"]
    assert crf.trace_[-1]["iteration"] == found.info["iterations"] and crf.trace_[-1]["active_unigram"] > 0
    assert crf.predict(X) == Y and crf.model_.info["training"] == training


@pytest.mark.parametrize("training", ["baum-welch", "viterbi", "stepwise"])
def test_sequences_without_labels_teach_an_hmm(training):
    """A word that only they have is known afterwards."""
    more = [["the", "cow", "barks"], ["a", "cow", "sleeps"]] * 5
    crf = of_python(training=training).fit([*X, *more], [*Y, *([None] * 3 for _ in more)])
    assert crf.predict([["cow", "barks"]]) == [["N", "V"]] and "U:cow" in crf.model_.observations
    partial = of_python(training=training).fit([*X, *more], [*Y, *([None, "N", {"V", "D"}] for _ in more)])
    assert partial.predict([["the", "cow", "sleeps"]]) == [["D", "N", "V"]]


def test_an_hmm_goes_on_from_an_earlier_one(tmp_path):
    first = of_python(training="baum-welch").fit(X, Y)
    first.save(tmp_path / "a.model")
    for earlier in (first, first.model_, tmp_path / "a.model"):
        again = of_python(training="baum-welch").fit(X, Y, start_from=earlier)
        assert again.trace_[0]["objective"] == pytest.approx(first.model_.info["objective"], rel=1e-9)
    new = [["the", "cow", "barks"]] * 3
    more = of_python(training="stepwise").fit(new, [["D", "N", "V"]] * 3, start_from=first)
    assert more.predict([*new, *X]) == [["D", "N", "V"]] * 3 + Y
    loaded = CRF.load(tmp_path / "a.model")
    assert loaded.get_params() == first.get_params() and loaded.training == "baum-welch"


def test_an_hmm_goes_on_from_a_text():
    text = b"HMM 3 2\n.5 .5\n.1 .8 .1\n.8 .1 .1\n.9 .2 0 a\n.1 .8 0 b\n"
    start = read_hmm(text, "a.hmm", ["P", "Q"])
    crf = of_python(training="stepwise", templates=["U:%x[0,0]"])
    crf.fit([["a", "b", "c"]] * 4, [["P", "Q", None]] * 4, start_from=start)
    assert crf.predict([["a", "b"]]) == [["P", "Q"]] and "U:c" in crf.model_.observations


def test_restarts_of_an_hmm_are_never_worse():
    data = [*X, *([["dogs", "sleep", "a", "dog"]] * 3)], [*Y, *([[None] * 4] * 3)]
    one, more = (of_python(training="baum-welch", restarts=n).fit(*data) for n in (1, 4))
    assert more.model_.info["objective"] <= one.model_.info["objective"]


PARTIAL = [[None, "N", "V"], *Y[1:]]


@pytest.mark.parametrize(
    ("options", "call", "message"),
    [
        ({"family": "svm"}, {}, "family 'svm' is not known: choose one of crf, memm, hmm"),
        ({"family": ["crf"]}, {}, r"family \"\['crf'\]\" is not known"),
        ({"family": "memm"}, {"y": PARTIAL}, "memm cannot learn from partial labels: set family to one of crf, hmm"),
        ({"family": "hmm"}, {"y": PARTIAL}, "training is 'counts', which needs every label, and some are not known: "
         "expected one of baum-welch, viterbi, stepwise, or sequences that have them all"),
        ({"family": "hmm", "training": "mmi"}, {"y": PARTIAL}, "training is 'mmi', which needs every label"),
        ({"family": "hmm", "training": "viterbi"}, {"y": [[None] * len(row) for row in X]}, "y has no label at all"),
        ({"family": "hmm"}, {"y": [[None] * len(row) for row in X]}, "y has no label at all: expected some that"),
        ({"family": "hmm", "training": "em"}, {}, "training is 'em': expected one of counts, baum-welch, viterbi"),
        ({"family": "hmm", "training": None}, {}, "training is None: expected one of counts"),
        ({"order": "up"}, {}, "order is 'up': expected one of random, short, long"),
        ({"restarts": 0}, {}, "restarts is 0: expected a number of at least 1"),
        ({"batch": 0}, {}, "batch is 0: expected a number of at least 1"),
        ({"batch": 1.5}, {}, "batch is 1.5: expected a whole number"),
        ({"alpha": 0.4}, {}, "alpha is 0.4: expected a number of at least 0.5 and at most 1"),
        ({"alpha": 2}, {}, "alpha is 2: expected a number of at least 0.5 and at most 1"),
        ({"power": 0}, {}, "power is 0: expected a number of at least 0.001"),
        ({"power": "half"}, {}, "power is 'half': expected a number of at least 0"),
        ({"family": "hmm"}, {"start_from": "a"}, "a: there is no such model"),
        ({"family": "hmm"}, {"start_from": CRF(family="hmm").fit(X, Y)}, "training is counts, which begins with"),
        ({"family": "hmm", "training": "viterbi"}, {"start_from": CRF().fit(X, Y)}, "start_from is a model of the "
         "family crf, whose numbers are no start for hmm: expected a model of hmm"),
        ({"family": "hmm", "rho1": "auto"}, {}, "hmm cannot follow a path of penalties: set family to one of"),
        ({"family": "hmm"}, {"token_weight": [[1] * len(row) for row in X]}, "use sample_weight instead of"),
        ({"family": "hmm", "smoothing": 0}, {}, "smoothing is 0: expected a number above 0"),
        ({"family": "hmm"}, {"X": [[{"word": w} for w in row] for row in X]}, "templates take texts and rows"),
        ({"family": "hmm"}, {"X": [[(w, "x") for w in row] for row in X]}, "columns need templates"),
        ({"family": "hmm", "templates": ["U:%g[0,0,2]"]}, {}, "several observations at a position"),
        ({"rho1": "big"}, {}, "rho1 is 'big': expected a number of at least 0, or 'auto'"),
        ({"rho1": -1}, {}, "rho1 is -1: expected a number of at least 0, or 'auto'"),
        ({"rho1": None}, {}, "rho1 is None: expected a number"),
        ({"rho1": float("inf")}, {}, "rho1 is inf: expected a finite number"),
        ({"rho2": "a"}, {}, "rho2 is 'a': expected a number of at least 0"),
        ({"tolerance": float("nan")}, {}, "tolerance is nan: expected a number of at least 0"),
        ({"max_iterations": 2.5}, {}, "max_iterations is 2.5: expected a whole number of at least 0"),
        ({"min_count": "2"}, {}, "min_count is '2': expected a whole number"),
        ({"seed": None}, {}, "seed is None: expected a whole number"),
        ({"templates": 5}, {}, "templates is 5: expected a list of lines, a text or None"),
        ({"templates": ["U", 1]}, {}, r"templates is \['U', 1\]: expected a list of lines"),
        ({}, {"start_from": 5}, "start_from is 5: expected a fitted CRF, a model or the path of one"),
        ({}, {"token_weight": 3}, "token_weight is 3: expected a row of numbers for each sequence"),
        ({}, {"token_weight": [["a"] * len(row) for row in X]}, "token_weight: could not convert .*; expected a row"),
        ({"solver": "magic"}, {}, "solver 'magic' is not known"),
    ],
)
def test_what_a_family_cannot_do_is_refused(options, call, message):
    with pytest.raises(EspalierError, match=message):
        CRF(**options).fit(**{"X": X, "y": Y} | call)


@pytest.mark.parametrize("options", [{}, {"update": "pa", "lead": "hamming"}, {"update": "arow"}], ids=str)
def test_a_perceptron_learns_and_names_no_probabilities(options, tmp_path):
    X = [["the", "dog", "barks"], ["a", "cat", "sleeps"], ["dogs", "bark"]]
    y = [["D", "N", "V"], ["D", "N", "V"], ["N", "V"]]
    crf = CRF(family="perceptron", **options).fit(X, y)
    assert crf.score(X, y) == 1.0 and crf.predict([["a", "dog", "sleeps"]]) == [["D", "N", "V"]]
    assert crf.stop_reason_ == ("max_iterations" if "lead" in options else "separated")
    crf.save(tmp_path / "a.model")
    assert CRF.load(tmp_path / "a.model").get_params() == crf.get_params()
    for asked in (crf.predict_marginals, lambda X: crf.predict(X, "posterior"), lambda X: crf.predict_nbest(X, 2)):
        with pytest.raises(EspalierError, match="^perceptron cannot (say how likely its labels are|list sev)"):
            asked(X)
    again = CRF(family="perceptron", **options).fit(X, y, start_from=crf)
    assert again.trace_[0]["mistakes"] <= crf.trace_[0]["mistakes"] - ("lead" not in options)
    values = [[{"v": -1.0}], [{"v": 2.0}]]
    assert CRF(family="perceptron", **options).fit(values, [["A"], ["B"]]).predict([[{"v": -3.0}]]) == [["A"]]


def test_an_hmm_is_no_start_for_others():
    with pytest.raises(EspalierError, match="start_from is a model of the family hmm, whose .* are no start for crf"):
        CRF().fit(X, Y, start_from=CRF(family="hmm").fit(X, Y))


# rho1 that held-out sequences choose --------------------------------------------------------------


def drawn(count, seed=0):
    """Sequences of a small language with some noise in the labels."""
    random = np.random.default_rng(seed)
    words = [[f"w{i}" for i in random.integers(0, 12, random.integers(2, 6))] for _ in range(count)]
    labels = [[("A" if int(w[1:]) % 2 else "B") if random.random() > 0.2 else "C" for w in row] for row in words]
    return words, labels


@pytest.mark.parametrize("family", ["crf", "memm"])
def test_a_chosen_rho1_is_that_of_the_search_and_then_all_are_trained_on(family):
    x, y = drawn(60)
    crf = CRF(rho1="auto", family=family, dev_share=0.25, seed=3).fit(x, y)
    plain = CRF(rho1=crf.rho1_, rho2=crf.rho2_, family=family, seed=3).fit(x, y)
    assert np.array_equal(crf.model_.theta, plain.model_.theta)
    assert crf.get_params()["rho1"] == "auto" and crf.model_.info["penalty"]["rho1"] == crf.rho1_ > 0.05
    again = CRF(rho1="auto", family=family, dev_share=0.25, seed=3).fit(x, y)
    assert (again.rho1_, again.rho2_) == (crf.rho1_, crf.rho2_)


def test_the_chosen_rho1_is_better_on_held_out_sequences_than_a_bad_one():
    (x, y), (more_x, more_y) = drawn(60), drawn(300, seed=1)
    crf = CRF(rho1="auto", dev_share=0.3).fit(x, y)
    assert crf.score(more_x, more_y) > CRF(rho1=50.0).fit(x, y).score(more_x, more_y) + 0.1


def test_a_share_is_held_out_by_the_seed_from_those_with_all_labels():
    labels = np.zeros(40, np.int32)
    labels[[1, 6, 39]] = -1  # of sequences 0, 3 and 19
    data = make_dataset(np.zeros((40, 1), np.int32), labels, np.arange(0, 41, 2), np.arange(20.0))
    rest, judged = held_out(data, 0.3, 7)
    assert len(judged.weights) == 5 and not {0.0, 3.0, 19.0} & set(judged.weights)
    assert sorted([*rest.weights, *judged.weights]) == list(range(20))
    assert held_out(data, 0.3, 7)[1].weights.tolist() == judged.weights.tolist()
    assert any(held_out(data, 0.3, seed)[1].weights.tolist() != judged.weights.tolist() for seed in range(3))


@pytest.mark.parametrize(
    ("options", "call", "message"),
    [
        ({}, {"X": X[:1], "y": Y[:1]}, "1 sequences with all their labels: rho1 = auto judges by one"),
        ({"dev_share": 0.0}, {}, "dev_share is 0.0: expected a number between 0 and 1"),
        ({"dev_share": "1"}, {}, "dev_share is '1': expected a number"),
        ({"dev_share": 1}, {}, "dev_share is 1: expected a number between 0 and 1"),
        ({"dev_share": 0.9}, {}, "4 sequences with all their labels"),
        ({"solver": "lbfgs"}, {}, "lbfgs cannot follow a path of rho1"),
        ({}, {"y": [["A"] * len(row) for row in Y]}, "every rho1 leaves an empty model"),
    ],
)
def test_a_rho1_that_cannot_be_chosen(options, call, message):
    with pytest.raises(EspalierError, match=message):
        CRF(rho1="auto", **options).fit(**{"X": X, "y": Y} | call)
