"""The language of feature templates: lines in the spirit of CRF++ and Wapiti.

A line is U, B or * (both), then text in which %x[row,col] stands for the value of a
column at a relative position. The expansion of the whole line is the observation, so
lines with the same text before the macros share their observations, as in CRF++.
"""

import re
from dataclasses import dataclass

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
                raise EspalierError(
                    f"template `{template.line}` points at column {macro.column}, the data has {columns}"
                )


def boundary(position: int, length: int) -> str:
    """The value beyond an edge: _B-1, _B-2, … before the first position, _B+1, _B+2, … after the last."""
    return f"_B{position}" if position < 0 else f"_B+{position - length + 1}"


def expand_one(template: Template, rows: list, t: int) -> str:
    """The expansion of a template at position t of a sequence of rows of columns."""
    pieces = []
    for part in template.parts:
        if isinstance(part, str):
            pieces.append(part)
            continue
        at = t + part.row
        pieces.append(rows[at][part.column] if 0 <= at < len(rows) else boundary(at, len(rows)))
    return "".join(pieces)
