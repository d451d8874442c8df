"""The language of feature templates: that of CRF++ and Wapiti, and macros of our own.

A line is U, B, * (both) or T (weights for three labels in a row), then text in which a macro such as %x[row,col]
stands for a value of a column at another position: `row` positions from here, or with @ counted from the first (@1) or
the last (@-1). The expansion of the whole line is the observation, so lines with the same text before the macros share
their observations, as in CRF++. Empty lines and comments (# at the beginning, or after a blank) are left out.

%v[row,col] is a number: it stays in the text as it is written, so that the line has one observation whatever the
number, and that observation has the number as its value. Such a line begins with U.

A template with n-grams or attributes yields several observations at a position and has as many columns; all others
have one.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from espalier.engine.errors import EspalierError, brief
from espalier.engine.text.gazetteers import NameList
from espalier.engine.text.macros import FORMS, Source

BLANKS = " \t\r\n\v\f"  # of C; a no-break space is a character like any other
LONGEST_LINE = 10_000  # characters
HERE, FIRST, LAST = 0, 1, 2  # what the row of a macro counts from: this position, the first one, behind the last
MACRO = re.compile(
    r'%([A-Za-z])\[\s*(@?)\s*([+-]?\d{1,9})\s*,\s*\+?(\d{1,9})\s*((?:,\s*(?:"(?:[^"\\]|\\.)*"|\d{1,9})\s*)*)\]',
    re.ASCII,
)
NO_PAIRS = "looks at attributes with values, which weights for pairs of labels cannot have"
ARGUMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|(\d+)', re.ASCII)


@dataclass(frozen=True)
class Macro:
    """A source `shift` positions from an origin: HERE, FIRST, or LAST."""

    shift: int
    source: Source
    origin: int = HERE
    text: str = field(default="", compare=False)

    def target(self, t: int, length: int) -> int:
        """The position that it looks at from position t of a sequence; it may be beyond an edge."""
        return (t, 0, length)[self.origin] + self.shift

    @property
    def is_before(self) -> bool:
        """Whether it can only leave the sequence at its beginning; otherwise only at its end."""
        return self.shift < 0

    def beyond(self, longest: int) -> range:
        """How far beyond the edge it can be in sequences of 1 to `longest` positions."""
        reach = abs(self.shift) - (self.origin == LAST)
        return range(max(1, reach - longest + 1), reach + 1)

    def edge(self, distance: int) -> tuple[str, ...]:
        """Its values `distance` positions beyond the edge."""
        return self.source.edge(f"_x-{distance}" if self.is_before else f"_x+{distance}")


@dataclass(frozen=True)
class Template:
    """One line: its text without comment, its parts, literal texts and macros in turn, and where its value is."""

    line: str
    parts: tuple[str | Macro, ...]
    value: Macro | None = None

    @property
    def kind(self) -> str:
        return self.line[0].upper()

    @property
    def macros(self) -> list[Macro]:
        return [part for part in self.parts if isinstance(part, Macro)]

    @property
    def looks_at(self) -> list[Macro]:
        """Its macros and that of its value."""
        return [*self.macros, *([self.value] if self.value else [])]

    @property
    def width(self) -> int:
        """How many columns of observations it has."""
        return max((macro.source.width for macro in self.macros), default=1)

    @property
    def attributes(self) -> Macro | None:
        """Its macro whose attributes may have values."""
        return next((macro for macro in self.macros if macro.source.plain_width < macro.source.width), None)


# ---- reading


def parse(
    lines: Sequence[str], where: str = "template.lines", lists: Mapping[str, Sequence[str]] | None = None
) -> list[Template]:
    """Templates of the lines. `lists` are the lines of the files that %l names; without one it cannot be evaluated."""
    templates: list[Template] = []
    seen: set[str] = set()
    lists = _Lists(lists or {})
    for number, line in enumerate(lines, 1):
        text = line.strip(BLANKS)
        if not text or text.startswith("#"):
            continue
        try:
            template = _parse_line(text, lists)
        except EspalierError as error:
            raise EspalierError(f"{where}, line {number}: `{brief(text)}` {error}") from None
        if template.line in seen:
            raise EspalierError(f"{where}, line {number}: `{brief(template.line)}` occurs twice; remove one")
        seen.add(template.line)
        templates.append(template)
    if not templates:
        raise EspalierError(f"{where}: holds no template; expected lines such as U:%x[0,0]")
    return templates


class _Lists:
    """The lists that are known, each read once."""

    def __init__(self, lines: Mapping[str, Sequence[str]]):
        self.lines, self.made = lines, {}

    def of(self, source: Source) -> Source:
        if source.letter != "l" or source.arguments[0] not in self.lines:
            return source
        key = (source.arguments[0], source.lower)
        if key not in self.made:
            self.made[key] = NameList(self.lines[key[0]], *key)
        return replace(source, names=self.made[key])


def _parse_line(line: str, lists: _Lists) -> Template:
    if len(line) > LONGEST_LINE:
        raise EspalierError(f"has {len(line):,} characters, expected at most {LONGEST_LINE:,}")
    if line[0] not in "UuBb*Tt":
        raise EspalierError(f"begins with {line[0]!r}, expected U, B, * or T")
    if "\n" in line or "\r" in line:
        raise EspalierError("has a line break in it; write each template as an entry of its own")
    parts: list[str | Macro] = []
    begin, at, value = 0, 0, None
    while at < len(line) and not (line[at] == "#" and line[at - 1] in BLANKS):
        if line[at] != "%":
            at += 1
            continue
        macro = _macro(line, at, lists)
        if macro.source.letter == "v":
            if value is not None:
                raise EspalierError("has two values (%v); write each in a line of its own")
            value, at = macro, at + len(macro.text)
            continue
        parts += [line[begin:at], macro]
        begin = at = at + len(macro.text)
    text = line[:at].rstrip(BLANKS)
    parts.append(text[begin:])
    if sum(part.source.width > 1 for part in parts if isinstance(part, Macro)) > 1:
        raise EspalierError("has two macros with several values (%g, %a); leave one of them out")
    if value is not None and line[0] not in "Uu":
        raise EspalierError("has a value (%v), which weights for pairs of labels cannot have; begin the line with U")
    template = Template(text, tuple(part for part in parts if part != ""), value)
    if template.attributes and template.kind != "U":
        raise EspalierError(f"{NO_PAIRS}; begin the line with U")
    return template


def _macro(line: str, at: int, lists: _Lists) -> Macro:
    """The macro that begins at a % of a line."""
    if line[at + 1 : at + 2] == "a" and line[at + 2 : at + 3] != "[":
        return Macro(0, Source(0, "a"), HERE, "%a")
    found = MACRO.match(line, at)
    letter = line[at + 1 : at + 2].lower()
    if not found or letter not in FORMS:
        expected = FORMS.get(letter) or ", ".join(f"%{known}" for known in FORMS) + " such as %x[row,col]"
        raise EspalierError(f"has a % that is no macro; expected {expected}")
    written, absolute, row, column, rest = found.groups()
    if re.match(r"[+-]?0\d", row):
        raise EspalierError(f"has the row {row}, which Wapiti reads as octal; write it without the leading 0")
    arguments = tuple(int(n) if n else text for text, n in ARGUMENT.findall(rest))
    source = lists.of(Source(int(column), letter, arguments, written.isupper()).checked())
    shift, origin = int(row), HERE
    if absolute:
        shift, origin = (shift, LAST) if shift < 0 else (shift - 1, FIRST)
    return Macro(shift, source, origin, found[0])


def check_columns(templates: Iterable[Template], width: int) -> None:
    """Refuse a template that points outside the columns of the data."""
    for template in templates:
        for macro in template.looks_at:
            if macro.source.column >= width:
                columns = "column 0" if width == 1 else f"columns 0 to {width - 1}"
                raise EspalierError(
                    f"template `{brief(template.line)}` points at column {macro.source.column}, the data has {columns}"
                )


def list_files(templates: Iterable[Template]) -> list[str]:
    """The files of the lists that templates name, each once."""
    return list(dict.fromkeys(s.arguments[0] for s in sources_of(templates) if s.letter == "l"))


# ---- columns


def sources_of(templates: Iterable[Template]) -> list[Source]:
    """What the templates look at, each once, in order of appearance."""
    return list(dict.fromkeys(macro.source for template in templates for macro in template.macros))


def columns_of(templates: Sequence[Template]) -> list[tuple[int, int]]:
    """(template, which of its values) of each column of observations."""
    return [(i, slot) for i, template in enumerate(templates) for slot in range(template.width)]


def column_names(templates: Sequence[Template]) -> list[str]:
    """t00, t01, …; those of a template with several values are t05, t05.1, t05.2, …"""
    return [f"t{i:02d}.{slot}" if slot else f"t{i:02d}" for i, slot in columns_of(templates)]


# ---- what the training data decide


def learned_columns(templates: Iterable[Template]) -> list[int]:
    """The columns whose distinct values and counts `resolve` wants to see."""
    return sorted({source.column for source in sources_of(templates) if source.is_learned})


def resolve(templates: Sequence[Template], tallies: Mapping[int, tuple[Sequence[str], np.ndarray]]) -> list[Template]:
    """Templates that need nothing but themselves: edges of bins and the most n-grams of a token written out.

    `tallies` has the distinct values of the training data and their counts, for each of `learned_columns`.
    """
    found: dict[Source, Source] = {}
    for template in templates:
        for source in sources_of([template]):
            if source.is_learned and source not in found:
                try:
                    found[source] = source.resolve(*tallies[source.column])
                except EspalierError as error:
                    raise EspalierError(f"template `{brief(template.line)}` {error}") from None
    made: dict[str, Template] = {}
    for template in templates:
        new = _without_pairs(_resolved(template, found))
        if new.line in made:
            both = f"template `{brief(template.line)}` and another are both `{brief(new.line)}` here"
            raise EspalierError(f"{both}; remove one")
        made[new.line] = new
    return list(made.values())


def with_room(templates: Sequence[Template], texts_of: Callable[[int], Iterable[str]]) -> Sequence[Template]:
    """The templates with room for all attributes (%a) that columns hold; `texts_of` gives the values of a column.

    What training data had at most is no limit for those that a model is used on.
    """
    attributes = [source for source in sources_of(templates) if source.letter == "a"]
    found = {source: source.with_room(texts_of(source.column)) for source in attributes}
    return [_without_pairs(_resolved(template, found)) for template in templates] if found else templates


def _without_pairs(template: Template) -> Template:
    """Itself; refused where it would have weights for pairs of labels and attributes with values."""
    if template.attributes and template.kind != "U":
        raise EspalierError(f"template `{brief(template.line)}` {NO_PAIRS}; begin the line with U")
    return template


def _resolved(template: Template, found: Mapping[Source, Source]) -> Template:
    parts = [
        _rewritten(part, found[part.source]) if isinstance(part, Macro) and part.source in found else part
        for part in template.parts
    ]
    line = "".join(part if isinstance(part, str) else part.text for part in parts)
    return Template(line, tuple(parts), template.value)


def _rewritten(macro: Macro, source: Source) -> Macro:
    """The macro with another source, and its text."""
    row = macro.text.split(",", 2)[0] if "[" in macro.text else f"{macro.text}[0"
    arguments = ",".join(f'"{a}"' if isinstance(a, str) else str(a) for a in source.arguments)
    return replace(macro, source=source, text=f"{row},{source.column},{arguments}]")


# ---- one sequence in plain Python


def expand_rows(templates: Sequence[Template], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The observations at each position of a sequence of rows of columns."""
    values = {s: s.values([row[s.column] for row in rows]) for s in sources_of(templates)}
    return [[text for template in templates for text in _expand(template, values, t, len(rows))]
            for t in range(len(rows))]  # fmt: skip


def _expand(template: Template, values: Mapping[Source, list[tuple[str, ...]]], t: int, length: int) -> list[str]:
    texts = [""]
    for part in template.parts:
        found = (part,) if isinstance(part, str) else _seen(part, values[part.source], t, length)
        texts = [text + more for text in texts for more in found]
    return texts


def _seen(macro: Macro, values: list[tuple[str, ...]], t: int, length: int) -> tuple[str, ...]:
    """The values of a macro at position t."""
    at = macro.target(t, length)
    if 0 <= at < length:
        return values[at]
    return macro.edge(-at if at < 0 else at - length + 1)
