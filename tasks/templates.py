"""Feature templates evaluated over whole columns; their language is in `engine.templates`.

The values of a column become integers once. A template's values at a token are then a
combination of integers, and only each distinct combination becomes a text.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from engine.counting import combine, first_places
from engine.templates import MACRO, Macro, Template, boundary, check_columns, parse
from tasks.store import sequence_offsets

__all__ = ["MACRO", "Expansion", "Macro", "Template", "check_columns", "encode", "expand", "parse"]


class Expansion(NamedTuple):
    """One template at T tokens: token t has texts[codes[t]]. Each text occurs; two of them may be the same."""

    codes: np.ndarray  # int32 [T]
    texts: pl.Series


def encode(tokens: pl.DataFrame, templates: list[Template]) -> list[Expansion]:
    """The expansion of each template, in order of appearance."""
    lengths = np.diff(sequence_offsets(tokens["sequence"].to_numpy()))
    after = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(tokens))  # positions to the end, from 1 at the last
    before = np.repeat(lengths, lengths) - after
    macros = {macro for template in templates for macro in template.macros}
    columns = {column: _numbered(tokens[f"x{column}"]) for column in {macro.column for macro in macros}}
    values = {macro: _shifted(macro, *columns[macro.column], before, after) for macro in macros}
    return [_combined(template, len(tokens), values) for template in templates]


def expand(tokens: pl.DataFrame, templates: list[Template]) -> pl.DataFrame:
    """One text column per template (t00, t01, …), one row per token."""
    found = enumerate(encode(tokens, templates))
    return pl.DataFrame([texts.gather(codes).alias(f"t{i:02d}") for i, (codes, texts) in found])


def _numbered(column: pl.Series) -> tuple[np.ndarray, pl.Series]:
    """(number of each value, the distinct values)."""
    found = column.to_arrow(compat_level=pl.CompatLevel.oldest()).dictionary_encode()
    return found.indices.to_numpy(zero_copy_only=False), pl.Series(pl.from_arrow(found.dictionary), dtype=pl.String)


def _shifted(macro: Macro, numbers: np.ndarray, values: pl.Series, before: np.ndarray, after: np.ndarray):
    """The same of the value `row` positions away; beyond the edges it is a boundary, numbered after the values."""
    row, count = macro.row, len(values)
    if row == 0:
        return numbers, values
    room = before if row < 0 else after - 1  # positions between here and the edge
    beyond = room < abs(row)
    reach = min(abs(row), int(room.max(initial=-1)) + 1)
    names = [boundary(row + i, 0) if row < 0 else boundary(row - i - 1, 0) for i in range(reach)]
    target = np.arange(len(numbers)) + row
    target[beyond] = 0
    found = np.where(beyond, count + room, numbers[target]).astype(np.int32)
    return found, pl.concat([values, pl.Series(names, dtype=pl.String)])


def _combined(template: Template, n_tokens: int, values: dict) -> Expansion:
    codes, count = np.zeros(n_tokens, np.int32), min(1, n_tokens)
    for macro in template.macros:
        count = combine(codes, values[macro][0], n_tokens)
    example = first_places(codes, count)
    if not template.macros:
        return Expansion(codes, pl.Series([template.line] * count, dtype=pl.String))
    columns = {m.name: values[m][1].gather(values[m][0][example]) for m in template.macros}
    pieces = [pl.col(part.name) if isinstance(part, Macro) else pl.lit(part) for part in template.parts]
    return Expansion(codes, pl.DataFrame(columns).select(pl.concat_str(pieces).alias("text"))["text"])
