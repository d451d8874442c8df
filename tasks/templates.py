"""Feature templates in the spirit of CRF++ and Wapiti, evaluated by Polars over whole columns.

A line is U, B or * (both), then text in which %x[row,col] stands for the value of a
column at a relative position. The expansion of the whole line is the observation, so
lines with the same text before the macros share their observations, as in CRF++.
"""

import re
from dataclasses import dataclass

import polars as pl

from engine.errors import EspalierError

MACRO = re.compile(r"%x\[\s*([+-]?\d{1,9})\s*,\s*(\d{1,9})\s*\]")


@dataclass(frozen=True)
class Macro:
    row: int
    column: int

    @property
    def name(self) -> str:
        return f"%x[{self.row},{self.column}]"


@dataclass(frozen=True)
class Template:
    """One line: its text, its kind (U, B, *) and its parts, literal texts and macros in turn."""

    line: str
    parts: tuple[str | Macro, ...]

    @property
    def kind(self) -> str:
        return self.line[0]

    @property
    def macros(self) -> list[Macro]:
        return [part for part in self.parts if isinstance(part, Macro)]


def parse(lines: list[str], where: str = "template.lines") -> list[Template]:
    """Templates of the lines; empty ones and comments (#) are left out."""
    templates = [_parse_line(line.strip(), number, where) for number, line in enumerate(lines, 1)
                 if line.strip() and not line.strip().startswith("#")]  # fmt: skip
    if not templates:
        raise EspalierError(f"{where}: holds no template; expected lines such as U:%x[0,0]")
    seen: set[str] = set()
    for template in templates:
        if template.line in seen:
            raise EspalierError(f"{where}: `{template.line}` occurs twice; remove one")
        seen.add(template.line)
    return templates


def _parse_line(line: str, number: int, where: str) -> Template:
    if line[0] not in "UB*":
        raise EspalierError(f"{where}, line {number}: `{line}` begins with {line[0]!r}, expected U, B or *")
    parts: list[str | Macro] = []
    end = 0
    for match in MACRO.finditer(line):
        parts += [line[end : match.start()], Macro(int(match[1]), int(match[2]))]
        end = match.end()
    parts.append(line[end:])
    leftover = "".join(part for part in parts if isinstance(part, str))
    if "%" in leftover:
        raise EspalierError(f"{where}, line {number}: `{line}` has a % that is no macro; expected %x[row,col]")
    return Template(line, tuple(part for part in parts if part != ""))


def check_columns(templates: list[Template], width: int) -> None:
    """Refuse a template that points outside the columns of the data."""
    for template in templates:
        for macro in template.macros:
            if macro.column >= width:
                columns = "column 0" if width == 1 else f"columns 0 to {width - 1}"
                raise EspalierError(f"template `{template.line}` points at column {macro.column}, the data has {columns}")


def _macro_column(macro: Macro) -> pl.Expr:
    """The value `row` positions away; beyond the edges _B-1, _B-2, … and _B+1, _B+2, …"""
    target = pl.col("position") + macro.row
    value = pl.col(f"x{macro.column}").shift(-macro.row)
    before = pl.lit("_B") + target.cast(pl.String)
    after = pl.lit("_B+") + (target - pl.col("length") + 1).cast(pl.String)
    if macro.row < 0:
        value = pl.when(target < 0).then(before).otherwise(value)
    elif macro.row > 0:
        value = pl.when(target >= pl.col("length")).then(after).otherwise(value)
    return value.alias(macro.name)


def expand(tokens: pl.DataFrame, templates: list[Template]) -> pl.DataFrame:
    """One text column per template (t00, t01, …), one row per token."""
    macros = sorted({macro for t in templates for macro in t.macros}, key=lambda m: (m.column, m.row))
    index = pl.int_range(pl.len(), dtype=pl.Int32)
    frame = tokens.with_columns(
        position=index.over("sequence"), length=pl.len().over("sequence").cast(pl.Int32)
    ).select(pl.len().alias("_") if not macros else [_macro_column(macro) for macro in macros])
    columns = [_expansion(template).alias(f"t{i:02d}") for i, template in enumerate(templates)]
    if not macros:
        return pl.select(*columns).select(pl.all().repeat_by(len(tokens)).explode()).head(len(tokens))
    return frame.select(columns)


def _expansion(template: Template) -> pl.Expr:
    pieces = [pl.col(part.name) if isinstance(part, Macro) else pl.lit(part) for part in template.parts]
    return pl.concat_str(pieces) if template.macros else pl.lit(template.line)
