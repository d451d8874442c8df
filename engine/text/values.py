"""The values of observations, beside their ids: the numbers that %v sees, those of attributes (%a), their scales."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.runtime.arrow_arrays import numbers_of
from espalier.engine.text.macros import Source, number_of
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
    return np.array([_has_value(templates[i], slot) for i, slot in columns_of(templates)], bool)


def _has_value(template: Template, slot: int) -> bool:
    some = template.attributes
    return template.value is not None or (some is not None and slot >= some.source.plain_width)


def attribute_columns(templates: Sequence[Template]) -> np.ndarray:
    """Of the columns without values, whether each holds attributes, which may have a value elsewhere; bool."""
    columns = [templates[i] for i, slot in columns_of(templates) if not _has_value(templates[i], slot)]
    return np.array([any(macro.source.letter == "a" for macro in template.macros) for template in columns], bool)


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
    for macro in dict.fromkeys(m for one in templates for m in (one.value, one.attributes) if m is not None):
        column = macro.source.column
        if macro.source.letter == "a":
            found = _amounts(macro.source, columns[column])
        else:
            if column not in numbers:
                numbers[column] = _numbers(columns[column], column, offsets, first)
            found = numbers[column]
        seen[macro] = _shifted(macro, found, offsets)
    kept = [_value(templates[i], slot, seen) for i, slot in columns_of(templates) if _has_value(templates[i], slot)]
    values = np.ascontiguousarray(np.array(kept).T)
    valued = np.where(np.isnan(values), np.int32(-1), ids[:, with_value])
    return np.ascontiguousarray(ids[:, ~with_value]), valued, np.where(np.isnan(values), 0.0, values)


def _value(template: Template, slot: int, seen: dict[Macro, np.ndarray]) -> np.ndarray:
    """The values of one column: what %v sees, that of an attribute, or the product of both."""
    some = template.attributes
    number = None if template.value is None else seen[template.value]
    if some is None or slot < some.source.plain_width:
        return number
    amount = seen[some][slot - some.source.plain_width]
    return amount if number is None else number * amount


def _amounts(source: Source, texts: pa.Array) -> np.ndarray:
    """The values of the attributes that have one, [most, T], NaN for none; each distinct text is read once."""
    found = texts.dictionary_encode()
    out = np.full((source.width - source.plain_width, len(found.dictionary)), np.nan)
    for code, text in enumerate(found.dictionary.to_pylist()):
        amounts = source.amounts(text)
        out[: len(amounts), code] = amounts
    return out[:, numbers_of(found.indices, np.int32)]


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
    origin = np.arange(numbers.shape[-1]) if macro.origin == HERE else begin if macro.origin == FIRST else end
    target = origin + macro.shift
    inside = (target >= begin) & (target < end)
    return np.where(inside, numbers[..., np.where(inside, target, 0)], np.nan)


def values_of_rows(
    templates: Sequence[Template], rows: Sequence[Sequence[str]], place: str
) -> list[list[float | None]]:
    """The value of each observation of `expand_rows` at each position of a sequence; None where it has none.

    NaN is a value that is not there.
    """
    return [
        [value for template in templates for value in _values_at(template, rows, t, place)] for t in range(len(rows))
    ]


def _values_at(template: Template, rows: Sequence[Sequence[str]], t: int, place: str) -> list[float | None]:
    """The values of the observations of one template at position t."""
    amounts: list[float | None] = [None]
    several = next((macro for macro in template.macros if macro.source.letter in "ga"), None)
    if several is not None and 0 <= (at := several.target(t, len(rows))) < len(rows):
        text = rows[at][several.source.column]
        (texts,), with_value = several.source.values([text]), several.source.amounts(text)
        amounts = [*[None] * (len(texts) - len(with_value)), *with_value]
    if template.value is None:
        return amounts
    at, column, number = template.value.target(t, len(rows)), template.value.source.column, float("nan")
    if 0 <= at < len(rows):
        number = value_of(rows[at][column], column, f"position {at} of {place}")
    return [number if amount is None else number * amount for amount in amounts]


# ---- scales


def unit_scales(blocks: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]], count: int) -> np.ndarray:
    """What makes the values of each of `count` observations vary by one where they are there, float64 [V].

    A block is (observations without a value that may have one elsewhere, those with values, their values): without,
    the value is 1. A value that is always the same becomes one. Observations without values have the scale 1.
    """
    sums, ones = np.zeros((3, count)), np.zeros(count)
    for plain, valued, values in blocks:
        there = (valued >= 0) & (values != 0.0)
        ids, amounts = valued[there], values[there]
        for row, amount in zip(sums, (None, amounts, amounts**2), strict=True):
            row += np.bincount(ids, amount, count)
        ones += np.bincount(plain[plain >= 0], None, count)
    sums += np.where(sums[0] > 0.0, ones, 0.0)
    many, mean = np.maximum(sums[0], 1.0), sums[1] / np.maximum(sums[0], 1.0)
    spread = np.sqrt(np.maximum(sums[2] / many - mean**2, 0.0))
    spread = np.where(spread > 1e-9 * np.abs(mean), spread, np.abs(mean))
    return np.where(spread > 0.0, 1.0 / np.where(spread > 0.0, spread, 1.0), 1.0)


def scaled_dataset(data: Dataset, scales: np.ndarray) -> Dataset:
    """Data whose values are multiplied by the `scales` [V] of observations; see `scaled`."""
    plain = data.observations
    values = (data.valued, data.values) if data.valued.shape[1] else (plain[:, :0], np.empty((len(plain), 0)))
    plain, valued, numbers = scaled(plain, *values, scales)
    return data if not valued.shape[1] else data._replace(observations=plain, valued=valued, values=numbers)


def scaled(
    plain: np.ndarray, valued: np.ndarray, values: np.ndarray, scales: np.ndarray, mixed: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(observations, those with values, their values) with values multiplied by the `scales` [V] of observations.

    Where an observation that is scaled stands without a value, its value is 1 and it goes to those with values: out
    of the columns `mixed`, bool, each of which gets a column there; by default of those where that happens.
    """
    scales = np.append(scales, 1.0)
    values = values * scales[valued]
    if mixed is None:
        mixed = (scales[plain] != 1.0).any(axis=0)
    if not mixed.any():
        return plain, valued, values
    some = plain[:, mixed]
    moved = scales[some] != 1.0
    plain = plain.copy()
    plain[:, mixed] = np.where(moved, np.int32(-1), some)
    return (
        plain,
        np.concatenate([valued, np.where(moved, some, np.int32(-1))], axis=1),
        np.concatenate([values, np.where(moved, scales[some], 0.0)], axis=1),
    )
