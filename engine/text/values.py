"""The numbers that %v sees: the values of observations, beside their ids."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.runtime.arrow_arrays import numbers_of
from espalier.engine.text.macros import number_of
from espalier.engine.text.templates import FIRST, HERE, Macro, Template, columns_of

NONE = ("_", "")  # what a column holds where there is no number


def value_of(text: str, column: int, place: str) -> float:
    """The number that a field holds, NaN where it says that there is none."""
    found = number_of(text)
    if found is None and text not in NONE:
        raise EspalierError(
            f"column {column} holds {quoted(brief(text))} at {place}, where a template looks for a number (%v): "
            "expected a finite one such as 0.37, or _ for none"
        )
    return float("nan") if found is None else found


def valued_columns(templates: Sequence[Template]) -> np.ndarray:
    """Whether each column of observations has values, bool [K]."""
    return np.array([templates[i].value is not None for i, _ in columns_of(templates)], bool)


def apart(
    templates: Sequence[Template], ids: np.ndarray, columns: Sequence[pa.Array], offsets: np.ndarray, first: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(observations, those with values, their values) of the ids int32 [T, K] of all columns of the templates.

    `first` is the number of the first sequence, for errors.
    """
    with_value = valued_columns(templates)
    if not with_value.any():
        return ids, ids[:, :0], np.empty((len(ids), 0))
    seen: dict[Macro, np.ndarray] = {}
    numbers: dict[int, np.ndarray] = {}
    for macro in (templates[i].value for i, _ in columns_of(templates) if templates[i].value):
        column = macro.source.column
        if column not in numbers:
            numbers[column] = _numbers(columns[column], column, offsets, first)
        if macro not in seen:
            seen[macro] = _shifted(macro, numbers[column], offsets)
    values = [seen[templates[i].value] for i, _ in columns_of(templates) if templates[i].value]
    values = np.ascontiguousarray(np.array(values).T)
    valued = np.where(np.isnan(values), np.int32(-1), ids[:, with_value])
    return np.ascontiguousarray(ids[:, ~with_value]), valued, np.where(np.isnan(values), 0.0, values)


def _numbers(texts: pa.Array, column: int, offsets: np.ndarray, first: int) -> np.ndarray:
    """The numbers of a column, NaN for none; each distinct text is read once."""
    found = texts.dictionary_encode()
    codes = numbers_of(found.indices, np.int32)
    out = np.empty(len(found.dictionary))
    for code, text in enumerate(found.dictionary.to_pylist()):
        try:
            out[code] = value_of(text, column, "")
        except EspalierError:
            t = int(np.argmax(codes == code))
            n = int(np.searchsorted(offsets, t, side="right")) - 1
            out[code] = value_of(text, column, f"position {t - int(offsets[n])} of sequence {first + n}")
    return out[codes]


def _shifted(macro: Macro, numbers: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """What the macro sees at each position; nothing beyond the edges."""
    lengths = np.diff(offsets)
    begin, end = np.repeat(offsets[:-1], lengths), np.repeat(offsets[1:], lengths)
    origin = np.arange(len(numbers)) if macro.origin == HERE else begin if macro.origin == FIRST else end
    target = origin + macro.shift
    inside = (target >= begin) & (target < end)
    return np.where(inside, numbers[np.where(inside, target, 0)], np.nan)


def values_of_rows(
    templates: Sequence[Template], rows: Sequence[Sequence[str]], place: str
) -> list[list[float | None]]:
    """For each position of a sequence of rows the value in each column of observations; None where it has none.

    NaN is a value that is not there.
    """
    out = []
    for t in range(len(rows)):
        row: list[float | None] = []
        for i, _ in columns_of(templates):
            macro = templates[i].value
            at = None if macro is None else macro.target(t, len(rows))
            if macro is None:
                row.append(None)
            elif 0 <= at < len(rows):
                column = macro.source.column
                row.append(value_of(rows[at][column], column, f"position {at} of {place}"))
            else:
                row.append(float("nan"))
        out.append(row)
    return out
