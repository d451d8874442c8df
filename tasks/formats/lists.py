"""Sequences as lists, one row each, made into one row a token; for JSON lines, Arrow and Parquet.

Tokens are texts or numbers, or lists or records of them, all of one width. A number becomes the text that says it,
and one that is not there `_`. What does not fit is an `Odd` row.
"""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from espalier.engine.errors import quoted
from espalier.engine.text.values import NONE
from espalier.tasks.json_tokens import Shape

LABELS = "labels"
NO_NUMBER = NONE[0]


class Odd(Exception):
    """Row `row` of a batch cannot be taken; `text` goes on after its place."""

    def __init__(self, row: int, text: str):
        super().__init__(text)
        self.row, self.text = row, text


def is_list(kind: pa.DataType) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view,
             pa.types.is_large_list_view)  # fmt: skip
    return any(test(kind) for test in tests)


def is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_input(kind: pa.DataType) -> bool:
    """Whether values of this type can be an input column: texts and numbers."""
    return is_text(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)


def text_of(values: pa.Array) -> pa.Array:
    values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    if is_text(values.type):
        return values.cast(pa.large_string())
    wide = values.cast(pa.float64()) if pa.types.is_float16(values.type) else values
    return wide.cast(pa.large_string()).fill_null(NO_NUMBER)


def frame_of(
    inputs: dict[str, pa.Array], labels: tuple[str, pa.Array] | None, shapes: dict[str, Shape], rows: np.ndarray
) -> pl.DataFrame:
    """Columns sequence (from 0), line, x0, x1, …, label; `rows` [N] are the numbers that errors and lines show.

    `shapes` is filled by the first row of a file, and all that follow must look the same.
    """
    columns, first, name_of_first = [], None, ""
    for name, lists in inputs.items():
        lengths = _lengths(lists, name)
        if first is None:
            first, name_of_first = lengths, name
            _refuse(lengths == 0, f"has no token: {name} is empty, expected at least one")
        _same_lengths(first, lengths, name_of_first, name)
        columns += _parts(lists.flatten(), name, shapes, lengths)
    columns = {f"x{i}": pl.Series(pl.from_arrow(column)) for i, column in enumerate(columns)}
    if labels is not None:
        name, lists = labels
        lengths = _lengths(lists, name)
        _same_lengths(first, lengths, name_of_first, name)
        values = lists.flatten()
        _refuse_values(_nulls(values), lengths, f"has no text in {name}: fill it in")
        columns["label"] = pl.Series(pl.from_arrow(text_of(values)))
    repeated = {"sequence": np.repeat(np.arange(len(first), dtype=np.int32), first), "line": np.repeat(rows, first)}
    return pl.DataFrame(repeated | columns)


def _nulls(values: pa.Array) -> np.ndarray:
    return values.is_null().to_numpy(zero_copy_only=False)


def _no_texts(values: pa.Array) -> np.ndarray:
    """Where something is missing that has to be there: a number may be missing."""
    nulls = _nulls(values)
    return nulls & False if is_input(values.type) and not is_text(values.type) else nulls


def _lengths(lists: pa.Array, name: str) -> np.ndarray:
    _refuse(_nulls(lists), f"has no {name}: expected a list of texts")
    return pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)


def _refuse(odd: np.ndarray, text: str) -> None:
    if odd.any():
        raise Odd(int(np.argmax(odd)), text)


def _refuse_values(odd: np.ndarray, lengths: np.ndarray, text: str) -> None:
    """`odd` [values]: the row is the one that the first odd value lies in."""
    if odd.any():
        raise Odd(int(np.searchsorted(np.cumsum(lengths), np.argmax(odd), side="right")), text)


def _same_lengths(first: np.ndarray, lengths: np.ndarray, name_of_first: str, name: str) -> None:
    odd = first != lengths
    if odd.any():
        row = int(np.argmax(odd))
        raise Odd(row, f"has {first[row]} {name_of_first} and {lengths[row]} {name}: expected as many of both")


def _parts(values: pa.Array, name: str, shapes: dict[str, Shape], lengths: np.ndarray) -> list[pa.Array]:
    """The columns that the tokens of one list make."""
    _refuse_values(_no_texts(values), lengths, f"has no text in {name}: fill it in")
    if is_input(values.type):
        _expect(shapes, name, Shape(None), 0)
        return [text_of(values)]
    if pa.types.is_struct(values.type):
        names = tuple(field.name for field in values.type)
        if not names or not all(is_input(field.type) for field in values.type):
            raise Odd(0, f"has {name} of type {values.type}: expected records of texts or numbers")
        _expect(shapes, name, Shape(names), 0)
        columns = values.flatten()
        for part, column in zip(names, columns, strict=True):
            text = f"has a token without {quoted(part)}: expected all tokens with the same keys"
            _refuse_values(_no_texts(column), lengths, text)
        return [text_of(column) for column in columns]
    if not is_list(values.type) or not is_input(values.type.value_type):
        raise Odd(0, f"has {name} of type {values.type}: expected texts or numbers, or lists or records of them")
    return _list_parts(values, name, shapes, lengths)


def _list_parts(values: pa.Array, name: str, shapes: dict[str, Shape], lengths: np.ndarray) -> list[pa.Array]:
    widths = pc.list_value_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    if name not in shapes and len(widths):
        _refuse_values(widths == 0, lengths, "has a token without columns: expected at least one text")
        shapes[name] = Shape(tuple(range(widths[0])))
    width = len(shapes[name].parts or ()) if name in shapes else 0
    odd = widths != width
    if odd.any():
        text = f"has a token of {widths[np.argmax(odd)]} columns, the tokens before it {width}: expected the same"
        _refuse_values(odd, lengths, text)
    flat = values.flatten()
    _refuse_values(_no_texts(flat), lengths * width, f"has no text in {name}: fill it in")
    flat = text_of(flat)
    return [flat.take(pa.array(np.arange(i, len(flat), width))) for i in range(width)]


def _expect(shapes: dict[str, Shape], name: str, shape: Shape, row: int) -> None:
    if shapes.setdefault(name, shape) != shape:
        raise Odd(row, f"has {name} of another form than those before: expected {_words(shapes[name])}")


def _words(shape: Shape) -> str:
    if shape.parts is None:
        return "texts"
    return f"tokens of the columns {', '.join(map(str, shape.parts))}"
