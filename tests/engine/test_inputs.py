"""Inputs of all kinds are the same data to the Python labeller, or refused in words that say what to pass."""

from types import MappingProxyType

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from espalier import CRF, EspalierError
from espalier.engine.interface.inputs import labels_of, plain, sequences_of

X = [["the", "dog", "barks"], ["a", "cat", "sleeps"], ["dogs", "bark"], ["the", "cat", "barks"]]
Y = [["D", "N", "V"], ["D", "N", "V"], ["N", "V"], ["D", "N", "V"]]
WORDS, LABELS = [word for row in X for word in row], [label for row in Y for label in row]
IDS = np.repeat([0, 1, 2, 3], [3, 3, 2, 3])
COLUMNS = {"sequence": IDS, "x0": WORDS}


def ragged(rows):
    array = np.empty(len(rows), object)
    array[:] = [np.array(row) for row in rows]
    return array


def as_rows(sequences):
    """Rows of one column, as tables give them, are texts to templates and to attributes alike."""
    return [[token if isinstance(token, str) else token[0] for token in tokens] for tokens in sequences]


SEQUENCES = {
    "tuples": lambda: tuple(map(tuple, X)),
    "generators": lambda: (iter(row) for row in X),
    "ragged array": lambda: ragged(X),
    "series of lists": lambda: pd.Series(X, index=[7, 5, 3, 1]),
    "polars series": lambda: pl.Series(X),
    "arrow lists": lambda: pa.array(X),
    "arrow chunks": lambda: pa.chunked_array([X[:1], X[1:]]),
    "pandas": lambda: pd.DataFrame(COLUMNS, index=range(100, 111)),
    "pandas with named sequences": lambda: pd.DataFrame(COLUMNS | {"sequence": [f"s{9 - i}" for i in IDS]}),
    "pandas categories": lambda: pd.DataFrame(COLUMNS | {"x0": pd.Categorical(WORDS)}),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "arrow": lambda: pa.table(COLUMNS),
    "arrow batch": lambda: pa.RecordBatch.from_pydict(COLUMNS),
    "table with labels": lambda: pl.DataFrame(COLUMNS | {"label": LABELS}),
    "table of lists": lambda: pl.DataFrame({"tokens": X, "labels": Y}),
    "list of tables": lambda: [pd.DataFrame({"x0": row}) for row in X],
    "list of polars tables": lambda: [pl.DataFrame({"x0": row, "label": row}) for row in X],
}


@pytest.mark.parametrize("kind", SEQUENCES)
def test_sequences_of_all_kinds_are_the_same(kind):
    assert as_rows(sequences_of(SEQUENCES[kind]())) == X


@pytest.mark.parametrize("kind", SEQUENCES)
def test_all_kinds_fit_predict_and_score(kind):
    crf = CRF(["U:%x[0,0]", "B"], rho1=0.01, max_iterations=30).fit(SEQUENCES[kind](), Y)
    assert crf.predict(SEQUENCES[kind]()) == Y and crf.score(SEQUENCES[kind](), Y) == 1.0


def test_rectangular_arrays():
    square = [row[:2] for row in X]
    assert sequences_of(np.array(square)) == sequences_of(np.array(square, object)) == square
    columns = [[[word, word[0]] for word in row] for row in square]
    assert sequences_of(np.array(columns)) == columns


def test_tables_have_as_many_columns_as_they_like():
    table = pd.DataFrame(COLUMNS | {"length": [len(word) for word in WORDS], "label": LABELS})
    assert sequences_of(table)[2] == [("dogs", 4), ("bark", 4)]
    crf = CRF(["U:%x[0,0]", "U1:%x[0,1]", "B"], rho1=0, rho2=0.1).fit(table, table["label"])
    assert "U1:4" in crf.model_.observations and crf.predict(table) == Y


@pytest.mark.parametrize(
    "y", [pd.Series(LABELS), pl.Series(LABELS), pa.array(LABELS), np.array(LABELS), LABELS, iter(LABELS)],
    ids=["pandas", "polars", "arrow", "numpy", "list", "iterator"],
)  # fmt: skip
def test_the_labels_of_a_table_may_be_a_column(y):
    crf = CRF(rho1=0.01).fit(pl.DataFrame(COLUMNS), y)
    assert crf.predict(pl.DataFrame(COLUMNS)) == Y


@pytest.mark.parametrize(
    "y", [ragged(Y), pd.Series(Y), pl.Series(Y), pa.array(Y), (iter(row) for row in Y), tuple(map(tuple, Y))],
    ids=["array", "pandas", "polars", "arrow", "generators", "tuples"],
)  # fmt: skip
def test_labels_of_all_kinds_are_the_same(y):
    labels = labels_of(y, X)
    assert labels == Y and all(type(label) is str for row in labels for label in row)


def test_labels_come_back_as_the_texts_that_went_in():
    odd = [["", "é ", "1"], ["", "é ", "True"], ["é ", "1"], ["", "é ", "1"]]
    crf = CRF(rho1=0.001).fit(X, [[np.str_(label) for label in row] for row in odd])
    assert crf.predict(X) == odd and crf.classes_ == ["", "1", "True", "é "]
    assert all(type(label) is str for row in crf.predict(X) for label in row)


def test_tokens_of_other_kinds():
    tokens = [{"b", "a"}, frozenset(["c"]), MappingProxyType({"word": "x"}), np.array(["p", "q"]), np.str_("text")]
    assert sequences_of([tokens])[0] == [["a", "b"], ["c"], {"word": "x"}, ["p", "q"], "text"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("the dog", "X is the text 'the dog': expected a list of sequences, each a list of tokens, or a table"),
        (None, "X is None: expected a list of sequences"),
        (7, "X is 7: expected a list of sequences"),
        ({"a": ["b"]}, "X is a dict: expected a list of sequences"),
        ({("a", "b")}, "X is a set: expected a list of sequences"),
        (scipy.sparse.eye_array(3), "X is a sparse matrix: .*; a dict of attributes gives a token its features"),
        (pl.DataFrame(COLUMNS).lazy(), r"X is a lazy table: call its collect\(\) first"),
        (["the", "dog"], r"sequence 0 is the text 'the': .*make a list: \[tokens\]; for its characters list\(text\)"),
        ([X[0], {"word": "the"}], r"sequence 1 is a dict: expected a list of tokens; of a single sequence make a list"),
        ([b"the"], "sequence 0 is a bytes: expected a list of tokens"),
        ([None], "sequence 0 is None: expected a list of tokens"),
        (np.zeros(3), "sequence 0 is 0.0: expected a list of tokens"),
        (np.zeros((2, 2)), "token 0 of sequence 0 is 0.0: expected a text, a dict of attributes or a list of texts"),
        ([["a", None]], "token 1 of sequence 0 is None: expected a text"),
        ([["a"], [True]], "token 0 of sequence 1 is True: expected a text"),
        ([[b"a"]], "token 0 of sequence 0 is b'a': expected a text"),
        ([["a"], []], "sequence 1 has no token: leave empty sequences out"),
        (pd.DataFrame({"word": ["a"]}), r"columns \['word'\]: expected sequence, x0, x1, …, or tokens with a list"),
        (pd.DataFrame({"sequence": [1], "label": ["a"]}), r"columns \['sequence', 'label'\]: expected sequence, x0"),
        (pd.DataFrame({"sequence": [1, 2, 1], "x0": list("abc")}), "sequence is 1 again, after other .* in row 2"),
        (pd.DataFrame({"sequence": [1, None], "x0": list("ab")}), "sequence is missing in row 1"),
        (pd.DataFrame({"sequence": [1, 1], "x0": ["a", None]}), "column x0 has no value in row 1: expected a text"),
        (pl.DataFrame({"sequence": [1, 1], "x0": [0.5, float("nan")]}), "column x0 has no value in row 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(value, message):
    with pytest.raises(EspalierError, match=message):
        sequences_of(value)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([[1, 2, 3], *Y[1:]], r"label 1 of token 0 of sequence 0 has the type int: .* such as str\(label\)"),
        (np.ones((4, 3)), "label 1.0 of token 0 of sequence 0 has the type float: expected a text"),
        ([[True, False, None], *Y[1:]], "label True of token 0 of sequence 0 has the type bool: expected a text"),
        ([["D", float("nan"), "V"], *Y[1:]], "label nan of token 1 .* None where it is not known"),
        ([["D", {"N", 1}, "V"], *Y[1:]], "of token 1 of sequence 0 has the type set: expected a text"),
        ([[b"D", "N", "V"], *Y[1:]], "label b'D' of token 0 of sequence 0 has the type bytes"),
        (["DNV", *Y[1:]], "row 0 of the labels is the text 'DNV': expected a list with a label for each token"),
        ([None, *Y[1:]], "row 0 of the labels is None: expected a list"),
        (["D", "N", "V", "D"], "row 0 of the labels is the text 'D'"),
        (None, "y is None: expected a row of labels for each sequence"),
        (3, "y is 3: expected a row of labels"),
        (pd.DataFrame({"label": LABELS}), r"y is a table with the columns \['label'\]: expected its column of labels"),
    ],
)  # fmt: skip
def test_labels_that_cannot_be_meant_are_refused(y, message):
    with pytest.raises(EspalierError, match=message):
        CRF().fit(X, y)


def test_a_column_of_labels_has_one_for_each_row():
    with pytest.raises(EspalierError, match="10 labels for 11 rows of the table: expected one each"):
        CRF().fit(pl.DataFrame(COLUMNS), LABELS[1:])


@pytest.mark.parametrize(
    ("weights", "message"),
    [([1.0], "1 weights for 4 sequences"), ("heavy", "sample_weight is heavy"),
     ([[1.0]] * 4, "weights for 4 sequences"),
     (["a"] * 4, "expected a number for each sequence"), ([-1.0, 1, 1, 1], "weight"), (3, "sample_weight is 3")],
)  # fmt: skip
def test_weights_are_numbers_of_sequences(weights, message):
    with pytest.raises(EspalierError, match=message):
        CRF().fit(X, Y, sample_weight=weights)


def test_weights_may_be_a_column():
    weighted = CRF(rho1=0.1).fit(X, Y, sample_weight=pd.Series([1, 2, 3, 4], index=[9, 8, 7, 6]))
    listed = CRF(rho1=0.1).fit(X, Y, sample_weight=[1, 2, 3, 4])
    assert np.array_equal(weighted.model_.theta, listed.model_.theta)


def test_no_sequence_has_no_labels():
    crf = CRF(rho1=0.1).fit(X, Y)
    assert crf.predict([]) == crf.predict_nbest([], 2) == crf.predict_marginals([]) == []
    assert CRF(family="hmm").fit(X, Y).predict([]) == []
    with pytest.raises(EspalierError, match="there is no label"):
        CRF().fit([], [])
    with pytest.raises(EspalierError, match="nothing to score"):
        crf.score([], [])


def test_templates_read_no_dicts():
    with pytest.raises(EspalierError, match="a token is {'word': 'a'}: templates take texts and rows of columns"):
        CRF(["U:%x[0,0]"]).fit([[{"word": "a"}]], [["X"]])


def test_a_single_value_is_no_list():
    with pytest.raises(TypeError):
        plain(np.array(3))
