"""JSON lines: one object a line, `{"tokens": [...], "labels": [...]}`.

Arrow reads whole chunks. What it does not take, or what looks odd afterwards, is read again by Python's own reader,
line by line: that one says what is wrong where, and its word is final.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.json

from espalier.engine.errors import EspalierError
from espalier.tasks.formats.lines import lines_of
from espalier.tasks.formats.lists import LABELS, Odd, frame_of
from espalier.tasks.formats.reading import Reading, at
from espalier.tasks.formats.streams import after_line, chunks
from espalier.tasks.json_tokens import EXAMPLE, TOKENS, Shape, listed, load, object_of, parts_of, shape_of, text_of

SPACE = " \t\r"  # what JSON takes for white space, line ends aside


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
        record = load(line) if any(name not in shapes for name in names) else {}
        for name in names:
            if name not in shapes:
                shapes[name] = shape_of(record[name][0])
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


def _by_python(
    lines: pl.Series, rows: np.ndarray, names: list[str], label: str | None, shapes: dict[str, Shape], path: Path
) -> pl.DataFrame:
    """The table of a chunk, or an error for the first line that is wrong."""
    lengths: list[int] = []
    columns: dict[str, list[list[str]]] = {}
    labels: list[str] = []
    for row, line in zip(rows, lines, strict=True):
        place = at(path, row)
        record = object_of(line, place)
        tokens = {name: listed(record, name, place) for name in names}
        size = len(tokens[names[0]])
        if not size:
            raise EspalierError(f"{place} has no token: {names[0]} is empty, expected at least one")
        fields = {**tokens, label: listed(record, label, place)} if label else tokens
        for name, values in fields.items():
            if len(values) != size:
                raise EspalierError(f"{place} has {size} {names[0]} and {len(values)} {name}: expected as many of both")
        for name in names:
            parts = [parts_of(token, name, shapes, place) for token in tokens[name]]
            known = columns.setdefault(name, [[] for _ in parts[0]])
            for i, column in enumerate(known):
                column.extend(part[i] for part in parts)
        if label:
            labels.extend(text_of(value, label, place) for value in fields[label])
        lengths.append(size)
    all_columns = [column for name in names for column in columns[name]]
    texts = {f"x{i}": pl.Series(column, dtype=pl.String) for i, column in enumerate(all_columns)}
    texts |= {"label": pl.Series(labels, dtype=pl.String)} if label else {}
    head = {"sequence": np.repeat(np.arange(len(rows), dtype=np.int32), lengths), "line": np.repeat(rows, lengths)}
    return pl.DataFrame(head | texts)
