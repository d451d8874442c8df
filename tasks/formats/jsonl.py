"""JSON lines: one object a line, `{"tokens": [...], "labels": [...]}`.

Arrow reads whole chunks. What it does not take, or what looks odd afterwards, is read again by Python's own reader,
line by line: that one says what is wrong where, and its word is final.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.json

from espalier.engine.errors import EspalierError, brief, quoted
from espalier.tasks.formats.lines import lines_of
from espalier.tasks.formats.lists import LABELS, TOKENS, Odd, Shape, frame_of
from espalier.tasks.formats.reading import Reading, at
from espalier.tasks.formats.streams import after_line, chunks

SPACE = " \t\r"  # what JSON takes for white space, line ends aside
EXAMPLE = '{"tokens": ["a", "b"], "labels": ["X", "Y"]}'


def read(path: Path, options: Reading, labelled: bool, size: int, notes: dict) -> Iterator[pl.DataFrame]:
    """Tables sequence, line, x0, x1, …, label."""
    names = list(options.columns or (TOKENS,))
    label = (options.label or LABELS) if labelled else None
    if label in names:
        raise EspalierError(f"{label!r} is the label and cannot be an input too: take it out of the columns")
    shapes: dict[str, Shape] = {}
    number = 0
    for data, before in chunks(path, size, after_line):
        lines = lines_of(data, path, before).str.strip_chars(SPACE)
        rows = np.flatnonzero((lines != "").to_numpy())
        if not len(rows):
            continue
        lines, rows = lines.gather(rows), rows + before + 1
        frame = _by_arrow(data, lines, rows, names, label, shapes)
        if frame is None:
            frame = _by_python(lines, rows, names, label, shapes, path)
        yield frame.with_columns(pl.col("sequence") + number)
        number += len(rows)
    if not number:
        raise EspalierError(f"{path}: holds no token; expected one object a line such as {EXAMPLE}")


def _by_arrow(
    data: bytes, lines: pl.Series, rows: np.ndarray, names: list[str], label: str | None, shapes: dict[str, Shape]
) -> pl.DataFrame | None:
    """The table, or None where anything at all is unusual.

    A line that begins with { and ends with } holds whole objects; as many rows as lines mean one each.
    """
    if b"\0" in data:  # ends a text for Arrow, whatever follows
        return None
    if not (lines.str.starts_with("{") & lines.str.ends_with("}")).all():
        return None
    kinds = _kinds(lines[0], names, label, shapes)
    if kinds is None:
        return None
    records = any(pa.types.is_struct(kind.value_type) for kind in kinds.values())
    parsing = pa.json.ParseOptions(
        explicit_schema=pa.schema(list(kinds.items())), newlines_in_values=False,
        unexpected_field_behavior="infer" if records else "ignore",  # a key too many in a record must be seen
    )  # fmt: skip
    reading = pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
    try:
        table = pa.json.read_json(pa.BufferReader(data), reading, parsing)
        if table.num_rows != len(lines):
            return None
        table.validate(full=True)
        lists = {name: _one(table.column(name)) for name in kinds}
        if any(lists[name].type != kind for name, kind in kinds.items()):
            return None
        labels = (label, lists.pop(label)) if label else None
        return frame_of(lists, labels, dict(shapes), rows)
    except (pa.ArrowException, ValueError, KeyError, Odd):
        return None


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _kinds(line: str, names: list[str], label: str | None, shapes: dict[str, Shape]) -> dict[str, pa.DataType] | None:
    """The types of the fields, from the shapes that are known or from the first line; None if that is odd."""
    try:
        record = _load(line) if any(name not in shapes for name in names) else {}
        for name in names:
            if name not in shapes:
                shapes[name] = _shape(record[name][0])
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
    kinds = {name: pa.list_(_kind(shapes[name])) for name in names}
    return kinds | ({label: pa.list_(pa.string())} if label else {})


def _kind(shape: Shape) -> pa.DataType:
    if shape.parts is None:
        return pa.string()
    if isinstance(shape.parts[0], int):
        return pa.list_(pa.string())
    return pa.struct([(part, pa.string()) for part in shape.parts])


def _shape(token: Any) -> Shape:
    """What the first token of a file looks like."""
    if isinstance(token, str) or _is_number(token):
        return Shape(None)
    if isinstance(token, list) and token:
        return Shape(tuple(range(len(token))))
    if isinstance(token, dict) and token:
        return Shape(tuple(token))
    raise ValueError("neither a text or number nor a list or record of them")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _load(line: str) -> Any:
    """As JSON, without NaN; a key that is there twice has the value ..., which is never what is expected."""

    def pairs(items: list[tuple[str, Any]]) -> dict:
        found: dict = {}
        for key, value in items:
            found[key] = ... if key in found else value
        return found

    def constant(name: str):
        raise ValueError(f"{name} is no JSON")

    def whole(text: str) -> int | float:
        return int(text) if len(text) < 20 else float(text)  # Python refuses thousands of digits

    return json.loads(line, object_pairs_hook=pairs, parse_constant=constant, parse_int=whole)


def _by_python(
    lines: pl.Series, rows: np.ndarray, names: list[str], label: str | None, shapes: dict[str, Shape], path: Path
) -> pl.DataFrame:
    """The table of a chunk, or an error for the first line that is wrong."""
    lengths: list[int] = []
    columns: dict[str, list[list[str]]] = {}
    labels: list[str] = []
    for row, line in zip(rows, lines, strict=True):
        place = at(path, row)
        record = _object(line, place)
        tokens = {name: _listed(record, name, place) for name in names}
        size = len(tokens[names[0]])
        if not size:
            raise EspalierError(f"{place} has no token: {names[0]} is empty, expected at least one")
        fields = {**tokens, label: _listed(record, label, place)} if label else tokens
        for name, values in fields.items():
            if len(values) != size:
                raise EspalierError(f"{place} has {size} {names[0]} and {len(values)} {name}: expected as many of both")
        for name in names:
            parts = [_parts(token, name, shapes, place) for token in tokens[name]]
            known = columns.setdefault(name, [[] for _ in parts[0]])
            for i, column in enumerate(known):
                column.extend(part[i] for part in parts)
        if label:
            labels.extend(_text(value, label, place) for value in fields[label])
        lengths.append(size)
    all_columns = [column for name in names for column in columns[name]]
    texts = {f"x{i}": pl.Series(column, dtype=pl.String) for i, column in enumerate(all_columns)}
    texts |= {"label": pl.Series(labels, dtype=pl.String)} if label else {}
    head = {"sequence": np.repeat(np.arange(len(rows), dtype=np.int32), lengths), "line": np.repeat(rows, lengths)}
    return pl.DataFrame(head | texts)


def sequence_of(
    line: str, place: str, names: tuple[str, ...] | None, shapes: dict[str, Shape]
) -> tuple[dict, list[list[str]]]:
    """The object of one line, and the columns of its tokens: for those who read a stream."""
    record, columns = _object(line, place), []
    for name in names or (TOKENS,):
        tokens = _listed(record, name, place)
        if not tokens:
            raise EspalierError(f"{place} has no token: {name} is empty, expected at least one")
        columns += [list(column) for column in zip(*(_parts(t, name, shapes, place) for t in tokens), strict=True)]
    if len({len(column) for column in columns}) > 1:
        raise EspalierError(f"{place}: its input columns are of different lengths, expected as many texts in each")
    return record, columns


def _object(line: str, place: str) -> dict:
    try:
        record = _load(line)
    except RecursionError:
        raise EspalierError(f"{place} is not JSON that we read: too many brackets inside each other") from None
    except ValueError as error:
        raise EspalierError(
            f"{place} is not JSON ({brief(str(error))}); expected one object a line such as {EXAMPLE}"
        ) from None
    if not isinstance(record, dict):
        raise EspalierError(f"{place} holds {_brief(record)}; expected an object such as {EXAMPLE}")
    return record


def _listed(record: dict, name: str, place: str) -> list:
    if record.get(name) is None:
        known = brief(", ".join(quoted(key) for key in record) or "nothing")
        raise EspalierError(
            f"{place} has no {name}: it has {known}; expected an object such as {EXAMPLE}, or name the fields "
            "in ingest.columns and ingest.label"
        )
    if not isinstance(record[name], list):
        raise EspalierError(f"{place}: {name} is {_brief(record[name])}, expected a list of texts")
    return record[name]


def _parts(token: Any, name: str, shapes: dict[str, Shape], place: str) -> list[str]:
    """The columns of a token, checked against those before it."""
    try:
        shape = _shape(token)
    except ValueError:
        raise EspalierError(
            f"{place}: {name} holds {_brief(token)}, expected texts or numbers, or lists or records of them"
        ) from None
    expected = shapes.setdefault(name, shape)
    same = shape == expected or (isinstance(token, dict) and set(token) == set(expected.parts or ()))
    if not same:
        raise EspalierError(f"{place}: {name} holds {_brief(token)}, the tokens before it have {_words(expected)}")
    if shape.parts is None:
        return [_input(token, name, place)]
    return [_input(token[part], name, place) for part in expected.parts]


def _input(value: Any, name: str, place: str) -> str:
    """A text, or the text that says a number."""
    return repr(value) if _is_number(value) else _text(value, name, place)


def _words(shape: Shape) -> str:
    if shape.parts is None:
        return "plain texts: expected the same"
    if isinstance(shape.parts[0], int):
        return f"{len(shape.parts)} columns: expected the same"
    return f"the keys {', '.join(shape.parts)}: expected the same"


def _text(value: Any, name: str, place: str) -> str:
    if not isinstance(value, str):
        raise EspalierError(f"{place}: {name} holds {_brief(value)} where a text is expected; put it in quotes")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise EspalierError(f"{place}: {name} holds half a character ({quoted(value)}); expected whole pairs") from None
    return value


def _brief(value: Any) -> str:
    if value is ...:
        return "something given twice"
    try:
        text = json.dumps(value, default=lambda _: "something given twice")
    except RecursionError:
        return "many brackets inside each other"
    return text if len(text) <= 40 else text[:37] + "..."
