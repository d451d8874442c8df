r"""CRFsuite's data: a line for each token with its label and its attributes, tabs between them.

A colon in an attribute is written `\:` and a backslash `\\`; behind a colon stands a value, which may be left out. The
attributes of a token become one input column with tabs between them, which the template `U:%a` takes apart; a value
other than 1 stands there behind the attribute and a mark.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from espalier.engine.errors import EspalierError, brief
from espalier.engine.text.macros import ATTRIBUTE_GAP, VALUE_MARK, number_of
from espalier.tasks.formats.lines import lines_of
from espalier.tasks.formats.reading import Reading, at, nothing_in
from espalier.tasks.formats.streams import after_blank_line, chunks

FIELD = re.compile(r"((?:[^\\:]|\\[\\:]|\\(?![\\:]))*)(?::(.*))?", re.DOTALL)
ESCAPED = re.compile(r"\\([\\:])")


def read(path: Path, options: Reading, labelled: bool, size: int, notes: dict) -> Iterator[pl.DataFrame]:
    """Tables sequence, line, x0 (the attributes), label."""
    number = 0
    for data, before in chunks(path, size, after_blank_line):
        frame = pl.DataFrame({"text": lines_of(data, path, before)}).with_row_index("line", offset=before + 1)
        end = pl.col("text").str.strip_chars(" \t").eq("")
        frame = frame.with_columns(sequence=end.cum_sum()).filter(~end)
        if frame.is_empty():
            continue
        frame = frame.select(
            (pl.col("sequence").rle_id() + number).cast(pl.Int32),
            pl.col("line").cast(pl.Int64),
            pl.col("text").str.split("\t").alias("fields"),
        )
        number = frame["sequence"][-1] + 1
        table = _table(frame, path)
        yield table if labelled else table.drop("label")
    if not number:
        raise nothing_in(path)


def _table(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    """The fields, each distinct one looked at once, put together again."""
    rows = frame.with_row_index("row").explode("fields").with_columns(first=pl.int_range(pl.len()).over("row") == 0)
    rows = rows.filter(pl.col("first") | pl.col("fields").ne(""))
    texts = rows.group_by("fields", "first", maintain_order=True).agg(pl.col("line").first())
    read_as = [
        _label(text, at(path, line)) if first else _attribute(text, at(path, line))
        for text, first, line in texts.iter_rows()
    ]
    texts = texts.drop("line").with_columns(value=pl.Series(read_as, dtype=pl.String))
    rows = rows.join(texts, on=["fields", "first"], how="left", maintain_order="left")
    joined = rows.group_by("row", maintain_order=True).agg(
        pl.col("sequence").first(), pl.col("line").first(),
        pl.col("value").filter(~pl.col("first")).str.join(ATTRIBUTE_GAP).alias("x0"),
        pl.col("value").first().alias("label"),
    )  # fmt: skip
    return joined.select("sequence", "line", pl.col("x0").fill_null(""), "label")


def _label(text: str, place: str) -> str:
    name, value = _parts(text)
    if name == "@weight":
        raise EspalierError(f"{place} weighs a sequence ({brief(text)}), which is not read: leave such lines out")
    if value is not None or not name:
        raise EspalierError(f"{place} has the label {brief(text)!r}: expected a text first, a colon in it as \\:")
    return name


def _attribute(text: str, place: str) -> str:
    """The attribute as it stands in the column, with its value where that is not 1."""
    name, value = _parts(text)
    if VALUE_MARK in name:
        raise EspalierError(f"{place}: the attribute {brief(ascii(name))} holds the control character 0x1F: remove it")
    if not value:
        return name
    number = number_of(value)
    if number is None:
        raise EspalierError(
            f"{place}: the attribute {brief(name)!r} has the value {brief(value)!r}, expected a finite number; write "
            "a colon that belongs to an attribute as \\:"
        )
    return name if number == 1.0 else f"{name}{VALUE_MARK}{number!r}"


def _parts(text: str) -> tuple[str, str | None]:
    """(name, what stands behind its first colon that is not escaped)."""
    found = FIELD.fullmatch(text)
    return ESCAPED.sub(r"\1", found[1]), found[2]
