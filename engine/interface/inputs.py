"""Inputs of all kinds made plain: sequences as lists of tokens, labels as rows of texts.

Lists, generators, arrays of numpy and tables of pandas, Polars and Arrow are taken; what cannot be meant is refused in
words that say what to pass. A text or a dict where a sequence is expected is a sequence that was not wrapped in a list,
so it is refused, too.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from espalier.engine.data.dataset import FIRST_SET, UNKNOWN
from espalier.engine.errors import EspalierError, brief, quoted

SEQUENCE, TOKENS, LABEL = "sequence", "tokens", "label"  # columns of a table
SETS = (set, frozenset, list, tuple)  # how a label that is one of several is written
SHAPE = "expected a list of sequences, each a list of tokens, or a table with the columns sequence, x0, x1, …"
TOKEN = "expected a text, a dict of attributes or a list of texts"


class Frame(Protocol):
    """A table of pandas or Polars."""

    @property
    def columns(self) -> Any: ...

    def __getitem__(self, name: Any, /) -> Any: ...


class ArrowTable(Protocol):
    """A table of Arrow."""

    @property
    def column_names(self) -> list[str]: ...

    def __getitem__(self, name: Any, /) -> Any: ...


Token = str | Mapping[str, Any] | Collection[Any]
Label = str | None | Collection[str]
Inputs = Iterable[Iterable[Token]] | Frame | ArrowTable
Labels = Iterable[Iterable[Label]] | Iterable[str]


def plain(values: Any) -> list[Any]:
    """A list of what an array, a column or any other iterable holds."""
    for name in ("to_pylist", "to_list", "tolist"):
        if hasattr(values, name):
            found = getattr(values, name)()
            if not isinstance(found, list):
                raise TypeError(f"{type(values).__name__} holds a single value")
            return found
    return list(values)


# Sequences -----------------------------------------------------------------------------------------


def sequences_of(X: Inputs) -> list[list[Any]]:
    """Lists of tokens; a table becomes rows of its input columns."""
    _refuse_unshaped(X, "X", SHAPE)
    if is_table(X):
        sequences = _of_table(X)
    else:
        sequences = [_tokens(sequence, n) for n, sequence in enumerate(_listed(X, "X", SHAPE))]
    for n, tokens in enumerate(sequences):
        if not tokens:
            raise EspalierError(f"sequence {n} has no token: leave empty sequences out")
    return sequences


def is_table(value: object) -> bool:
    return _names(value) is not None


def _names(table: Any) -> list[Any] | None:
    """The names of a table's columns, None of what is no table."""
    if hasattr(table, "column_names"):
        return list(table.column_names)
    return list(table.columns) if hasattr(table, "columns") and hasattr(table, "__getitem__") else None


def _refuse_unshaped(value: Any, what: str, expected: str) -> None:
    """Refuse what can be iterated over and yet is no list of sequences or tokens."""
    if isinstance(value, str | bytes | Mapping | set | frozenset) or value is None:
        raise EspalierError(f"{what} is {_described(value)}: {expected}")
    if hasattr(value, "collect") and hasattr(value, "collect_schema"):
        raise EspalierError(f"{what} is a lazy table: call its collect() first")
    if hasattr(value, "tocsr"):
        raise EspalierError(f"{what} is a sparse matrix: {expected}; a dict of attributes gives a token its features")


def _listed(value: Any, what: str, expected: str) -> list[Any]:
    try:
        return plain(value)
    except TypeError:
        raise EspalierError(f"{what} is {_described(value)}: {expected}") from None


def _described(value: object) -> str:
    if value is None or isinstance(value, int | float | complex | np.generic) and not isinstance(value, str):
        return brief(value)
    if isinstance(value, str):
        return f"the text {quoted(value)}"
    return f"a {type(value).__name__}"


def _tokens(sequence: Any, n: int) -> list[Any]:
    what, expected = f"sequence {n}", "expected a list of tokens; of a single sequence make a list: [tokens]"
    if type(sequence) is not list:
        if isinstance(sequence, str):
            raise EspalierError(f"{what} is the text {quoted(sequence)}: {expected}; for its characters list(text)")
        _refuse_unshaped(sequence, what, expected)
        if is_table(sequence):
            return _rows_of(sequence)
        sequence = _listed(sequence, what, expected)
    return [token if type(token) in (str, dict, list, tuple) else _token(token, n, t)
            for t, token in enumerate(sequence)]  # fmt: skip


def _token(token: Any, n: int, t: int) -> Any:
    """A token that is neither a text nor a dict, list or tuple."""
    if isinstance(token, str | dict | list | tuple):
        return token
    if isinstance(token, Mapping):
        return dict(token)
    if isinstance(token, set | frozenset):
        return sorted(map(str, token))  # the order of a set differs from run to run
    what = f"token {t} of sequence {n}"
    if token is None or isinstance(token, bytes):
        raise EspalierError(f"{what} is {brief(token)}: {TOKEN}")
    return _listed(token, what, TOKEN)


# Tables --------------------------------------------------------------------------------------------


def _of_table(table: Any) -> list[list[Any]]:
    names = _names(table) or []
    if SEQUENCE not in names:
        if TOKENS in names:
            return [_tokens(sequence, n) for n, sequence in enumerate(plain(table[TOKENS]))]
        raise EspalierError(
            f"the table has the columns {brief(names)}: expected sequence, x0, x1, …, or tokens with a list in each row"
        )
    rows, ids = _rows_of(table), plain(table[SEQUENCE])
    runs = [(number, list(run)) for number, run in groupby(range(len(rows)), key=lambda i: ids[i])]
    seen: set[Any] = set()
    for number, run in runs:
        if _is_missing(number) or number in seen:
            trouble = "is missing" if _is_missing(number) else f"is {quoted(number)} again, after other sequences"
            raise EspalierError(f"sequence {trouble} in row {run[0]} of the table: expected the rows of each together")
        seen.add(number)
    return [[rows[i] for i in run] for _, run in runs]


def _rows_of(table: Any) -> list[tuple[Any, ...]]:
    """The rows of a table's input columns."""
    names = [name for name in _names(table) or [] if name not in (SEQUENCE, LABEL)]
    if not names:
        raise EspalierError(f"the table has the columns {brief(_names(table))}: expected sequence, x0, x1, …")
    columns = [plain(table[name]) for name in names]
    for name, column in zip(names, columns, strict=True):
        for i, value in enumerate(column):
            if type(value) is not str and _is_missing(value):
                raise EspalierError(f"column {brief(name)} has no value in row {i}: expected a text; write '_', say")
    return list(zip(*columns, strict=True))


def _is_missing(value: Any) -> bool:
    return value is None or isinstance(value, float) and value != value or type(value).__name__ in ("NAType", "NaTType")


# Labels --------------------------------------------------------------------------------------------


def labels_of(y: Labels, sequences: list[list[Any]], tabled: bool = False) -> list[list[Any]]:
    """A row of labels for each sequence; of a table (`tabled`) y may be a column with a label in each row."""
    if is_table(y):
        raise EspalierError(f"y is a table with the columns {brief(_names(y))}: expected its column of labels")
    expected = "expected a row of labels for each sequence"
    _refuse_unshaped(y, "y", expected)
    rows = _listed(y, "y", expected)
    if tabled and rows and all(isinstance(row, str) or row is None for row in rows):
        rows = _cut(rows, [len(tokens) for tokens in sequences])
    if len(rows) != len(sequences):
        raise EspalierError(f"{len(rows)} rows of labels for {len(sequences)} sequences: expected one each")
    labels = [_row_of_labels(row, n) for n, row in enumerate(rows)]
    for n, (row, tokens) in enumerate(zip(labels, sequences, strict=True)):
        if len(row) != len(tokens):
            raise EspalierError(f"sequence {n} has {len(tokens)} tokens and {len(row)} labels: expected one each")
    return labels


def _cut(labels: list[Any], lengths: list[int]) -> list[list[Any]]:
    if len(labels) != sum(lengths):
        raise EspalierError(f"{len(labels)} labels for {sum(lengths)} rows of the table: expected one each")
    rest = iter(labels)
    return [[next(rest) for _ in range(length)] for length in lengths]


def _row_of_labels(row: Any, n: int) -> list[Any]:
    what, expected = f"row {n} of the labels", "expected a list with a label for each token"
    _refuse_unshaped(row, what, expected)
    labels = row if type(row) is list else _listed(row, what, expected)
    return [label if type(label) is str or label is None else _label(label, n, t) for t, label in enumerate(labels)]


def _label(label: Any, n: int, t: int) -> Any:
    """A label that is neither a plain text nor None: another kind of text, or one of several."""
    if isinstance(label, str):
        return str(label)
    if isinstance(label, np.ndarray) and label.ndim:
        label = label.tolist()
    if isinstance(label, SETS) and all(isinstance(one, str) for one in label):
        return frozenset(map(str, label))
    raise EspalierError(
        f"label {brief(label)} of token {t} of sequence {n} has the type {type(label).__name__}: expected a text, "
        "such as str(label), None where it is not known, or a set of texts where it is one of several"
    )


def possible(value: Any) -> frozenset[str]:
    """The labels that an entry of y stands for; none for None."""
    if value is None:
        return frozenset()
    return frozenset(value) if isinstance(value, SETS) else frozenset([value])


def codes(labels: list[list[Any]], classes: list[str]) -> tuple[list[int], npt.NDArray[np.bool_]]:
    """The labels of a data set, and its label sets where there are any."""
    code = {label: i for i, label in enumerate(classes)}
    sets: dict[frozenset[str], int] = {}
    ids = []
    for n, row in enumerate(labels):
        for t, value in enumerate(row):
            members = possible(value)
            unknown = [label for label in members if label not in code]
            if unknown:
                raise EspalierError(
                    f"label {quoted(unknown[0])} of sequence {n} is not known: expected one of {brief(classes)}"
                )
            if value is None:
                ids.append(UNKNOWN)
            elif len(members) == 1:
                ids.append(code[next(iter(members))])
            elif members:
                ids.append(FIRST_SET - sets.setdefault(members, len(sets)))
            else:
                raise EspalierError(f"token {t} of sequence {n} has an empty set of labels: expected None if unknown")
    table = np.array([[label in members for label in classes] for members in sets], bool)
    return ids, table.reshape(len(sets), len(classes))


# Weights -------------------------------------------------------------------------------------------


def sequence_weights(weights: Any, sequences: list[list[Any]]) -> npt.NDArray[np.float64] | None:
    """A number for each sequence, None without weights."""
    if weights is None:
        return None
    try:
        numbers = np.asarray(plain(weights), np.float64)
    except (TypeError, ValueError):
        raise EspalierError(f"sample_weight is {brief(weights)}: expected a number for each sequence") from None
    if numbers.shape != (len(sequences),):
        raise EspalierError(f"{len(numbers)} weights for {len(sequences)} sequences: expected one each")
    return numbers


def token_weights(weights: Any, sequences: list[list[Any]]) -> list[float] | None:
    """A number for each token, one after the other, None without weights."""
    if weights is None:
        return None
    expected = "expected a row of numbers for each sequence"
    rows = [_listed(row, "a row of token_weight", expected) for row in _listed(weights, "token_weight", expected)]
    for n, (row, tokens) in enumerate(zip(rows, sequences, strict=False)):
        if len(row) != len(tokens):
            raise EspalierError(f"sequence {n} has {len(tokens)} tokens and {len(row)} weights: expected one each")
    if len(rows) != len(sequences):
        raise EspalierError(f"{len(rows)} rows of token weights for {len(sequences)} sequences: expected one each")
    try:
        return [float(weight) for row in rows for weight in row]
    except (TypeError, ValueError) as error:
        raise EspalierError(f"token_weight: {error}; {expected}") from None
