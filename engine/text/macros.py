"""What a macro sees of a token: a column through a function.

A function turns a text into the values that stand for it: one, or for the n-grams of characters several.
Only a list of names looks at neighbouring tokens. Nothing after this knows of functions: they are applied to
the distinct values of a column once, and what comes out is a column of texts like any other.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby

import numpy as np

from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.text.gazetteers import NameList
from espalier.engine.text.wapiti_regexp import compiled, first_match

MOST_GRAMS = 32  # of one token
MOST_BINS = 100
MOST_ATTRIBUTES = 1000  # of one token
ATTRIBUTE_GAP = "\t"
VALUE_MARK = "\x1f"  # between an attribute and its value in a column; without one the value is 1
NOT_A_NUMBER = "nan"
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

# The letters and how each is written; a capital is the same without regard to case.
FORMS = {
    "x": "%x[row,col]",
    "t": '%t[row,col,"regexp"]',
    "m": '%m[row,col,"regexp"]',
    "p": "%p[row,col,n]",
    "s": "%s[row,col,n]",
    "w": "%w[row,col] or %w[row,col,n]",
    "g": "%g[row,col,n] or %g[row,col,n,most]",
    "l": '%l[row,col,"file"]',
    "q": '%q[row,col,bins] or %q[row,col,"edges"]',
    "v": "%v[row,col]",
    "a": "%a, %a[row,col], %a[row,col,most] or %a[row,col,most,most with values]",
}


@dataclass(frozen=True)
class Source:
    """A column, the letter of a function, its arguments, and whether it was written as a capital."""

    column: int
    letter: str = "x"
    arguments: tuple[int | str, ...] = ()
    lower: bool = False
    names: NameList | None = field(default=None, compare=False, repr=False)

    @property
    def is_plain(self) -> bool:
        """Whether it is the column as it is."""
        return self.letter == "x" and not self.lower

    @property
    def is_learned(self) -> bool:
        """Whether the training data have still a say in it, see `resolve`."""
        return (self.letter == "g" and len(self.arguments) == 1) or (
            self.letter == "q" and not isinstance(self.arguments[0], str)
        ) or (self.letter == "a" and not self.arguments)  # fmt: skip

    @property
    def width(self) -> int:
        """How many texts a token may have."""
        if self.letter == "a":
            return sum(self.arguments) or MOST_ATTRIBUTES
        return (*self.arguments, MOST_GRAMS)[1] if self.letter == "g" else 1

    @property
    def plain_width(self) -> int:
        """How many of them have no value of their own; those that have one, attributes, come behind."""
        return self.arguments[0] if self.letter == "a" and self.arguments else self.width

    @cached_property
    def function(self) -> Callable[[str], tuple[str | None, ...]]:
        """What stands for one text, None where a place is left free; not for lists, which look at a sequence."""
        return _FUNCTIONS[self.letter](self)

    def amounts(self, text: str) -> list[float]:
        """The values of the attributes of a text that have one, in the order of the function."""
        return [value for _, value in attributes_in(text) if value != 1.0][: self.width - self.plain_width]

    def edge(self, text: str) -> tuple[str, ...]:
        """The values of a place beyond the edge; regular expressions see its text, as in Wapiti."""
        return self.function(text) if self.letter in "tm" else (text,)

    def name_list(self) -> NameList:
        if self.names is None:
            raise EspalierError(f"the list `{brief(self.arguments[0])}` has not been read: give its lines to `parse`")
        return self.names

    def values(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        """The values of each token of one sequence."""
        if self.letter == "l":
            return [(tag,) for tag in self.name_list().tags(texts)]
        return [tuple(one for one in self.function(text) if one is not None) for text in texts]

    def checked(self) -> "Source":
        """Itself, or an error that says what the arguments should be."""
        wanted = {"x": [()], "t": [(str,)], "m": [(str,)], "p": [(int,)], "s": [(int,)], "w": [(), (int,)],
                  "g": [(int,), (int, int)], "l": [(str,)], "q": [(int,), (str,)], "v": [()],
                  "a": [(), (int,), (int, int)]}[self.letter]  # fmt: skip
        if tuple(type(argument) for argument in self.arguments) not in wanted:
            raise EspalierError(f"has a % that is no macro; expected {FORMS[self.letter]}")
        least, most = {"q": (2, MOST_BINS), "a": (1, MOST_ATTRIBUTES)}.get(self.letter, (1, 99))
        for place, argument in enumerate(self.arguments):
            most = MOST_GRAMS if place == 1 and self.letter == "g" else most
            if isinstance(argument, int) and not least <= argument <= most:
                raise EspalierError(f"says {argument} in %{self.letter}, expected {least} to {most}")
        if self.letter == "l" and not self.arguments[0]:
            raise EspalierError(f"names no file; expected {FORMS['l']}")
        if self.letter not in "lv" and not self.is_learned:
            try:
                self.function  # noqa: B018  a wrong regular expression or list of edges shows here
            except EspalierError as error:
                raise EspalierError(f"has `{brief(self.arguments[0])}` in %{self.letter}: {error}") from None
        return self

    def with_room(self, texts: Iterable[str]) -> "Source":
        """Of attributes: with room for all that any of these texts has, those with values apart."""
        most, most_valued = 1, 0
        for text in texts:
            found = attributes_in(text)
            if len(found) > MOST_ATTRIBUTES:
                raise EspalierError(f"has {len(found):,} attributes at one token, expected at most {MOST_ATTRIBUTES:,}")
            valued = sum(value != 1.0 for _, value in found)
            most, most_valued = max(most, len(found) - valued), max(most_valued, valued)
        return replace(self, arguments=(most, most_valued) if most_valued else (most,))

    def resolve(self, texts: Sequence[str], counts: np.ndarray) -> "Source":
        """With what the training data decide; `texts` are the distinct values of the column there, with counts."""
        if self.letter == "g":
            most = max((len(self.function(text)) for text in texts), default=1)
            return replace(self, arguments=(self.arguments[0], most))
        if self.letter == "a":
            return self.with_room(texts)
        edges = quantiles(texts, counts, self.arguments[0])
        if edges is None:
            raise EspalierError(
                f"makes bins of column {self.column}, which holds no number in the training data; "
                "choose another column or leave the template out"
            )
        return replace(self, arguments=(" ".join(map(repr, edges)),))


def attributes_in(text: str) -> list[tuple[str, float]]:
    """The attributes of a token and their values, as a column has them, with tabs between."""
    if VALUE_MARK not in text:
        return [(name, 1.0) for name in text.split(ATTRIBUTE_GAP)] if text else []
    return [_attribute(one) for one in text.split(ATTRIBUTE_GAP)]


def _attribute(text: str) -> tuple[str, float]:
    name, mark, written = text.rpartition(VALUE_MARK)
    if not mark:
        return text, 1.0
    value = number_of(written)
    if value is None:
        raise EspalierError(
            f"the attribute {quoted(brief(name))} has the value {quoted(brief(written))}, expected a finite number "
            "such as 0.37"
        )
    return name, value


def plain_lower(text: str) -> str:
    """ASCII letters in lower case, as in Wapiti."""
    return text.lower() if text.isascii() else "".join(c.lower() if c.isascii() else c for c in text)


def number_of(text: str) -> float | None:
    """The number that a text is, or None."""
    found = float(text) if NUMBER.fullmatch(text) else float("inf")
    return found if abs(found) < float("inf") else None


def quantiles(texts: Sequence[str], counts: np.ndarray, bins: int) -> list[float] | None:
    """The first number of each part but the first when the numbers are cut into `bins` parts of equal size.

    Equal ones are told once, and one that is the smallest number of all is left out. None without a number.
    """
    found = [(number, int(count)) for text, count in zip(texts, counts, strict=True)
             if (number := number_of(text)) is not None]  # fmt: skip
    if not found:
        return None
    found.sort()
    numbers, behind = np.array([n for n, _ in found]), np.cumsum([c for _, c in found])
    firsts = [int(behind[-1]) * k // bins for k in range(1, bins)]
    edges = numbers[np.searchsorted(behind, firsts, side="right")]
    return sorted({edge + 0.0 for edge in edges.tolist()} - {numbers[0] + 0.0})


def shape(text: str, most: int | None) -> str:
    """Letters as X and x, digits as d, others as they are; runs of equal ones cut at `most`."""
    out = "".join(("X" if c.isupper() else "x") if c.isalpha() else "d" if c.isdigit() else c for c in text)
    return out if most is None else "".join(c * min(most, len(list(run))) for c, run in groupby(out))


def grams(text: str, n: int, most: int) -> tuple[str, ...]:
    """Distinct runs of n characters of <text>, those near its ends first; <text> itself when it is not longer."""
    marked = f"<{text}>"
    last = max(0, len(marked) - n)
    order = (place for i in range(last // 2 + 1) for place in (i, last - i))
    return tuple(dict.fromkeys(marked[i : i + n] for i in order))[:most]


def edges_of(text: str) -> list[float]:
    """The edges of bins as a resolved template writes them."""
    found = [number_of(part) for part in text.split()]
    if None in found or any(a >= b for a, b in zip(found, found[1:], strict=False)):
        raise EspalierError("expected numbers between blanks, each larger than the one before")
    return found


def bin_of(text: str, edges: list[float]) -> str:
    """How many edges are not beyond the number; `nan` for what is no number."""
    number = number_of(text)
    return NOT_A_NUMBER if number is None else str(bisect_right(edges, number))


def _plain(source: Source):
    return lambda text: (plain_lower(text) if source.lower else text,)


def _test(source: Source):
    pattern = compiled(source.arguments[0])
    return lambda text: ("false" if first_match(pattern, text) is None else "true",)


def _match(source: Source):
    pattern = compiled(source.arguments[0])
    spelt = plain_lower if source.lower else str
    return lambda text: (spelt(first_match(pattern, text) or ""),)


def _of_lower(function):
    """Capitals of our own macros look at the text in lower case."""
    return lambda source: lambda text: function(source, text.lower() if source.lower else text)


def _bins(source: Source):
    if source.is_learned:
        raise EspalierError(
            f"%q of column {source.column} has no edges yet: they come from the training data, call `resolve` first"
        )
    edges = edges_of(source.arguments[0])
    return lambda text: (bin_of(text, edges),)


def _attributes(source: Source, found: list[tuple[str, float]]) -> tuple[str | None, ...]:
    """The names of attributes, those with values behind the places of all others."""
    plain, room = [name for name, value in found if value == 1.0], source.plain_width
    if len(plain) == len(found) or room == source.width:
        return tuple(plain[:room])
    valued = [name for name, value in found if value != 1.0]
    return (*plain[:room], *[None] * (room - len(plain)), *valued[: source.width - room])


_FUNCTIONS = {
    "x": _plain,
    "t": _test,
    "m": _match,
    "p": _of_lower(lambda source, text: (text[: source.arguments[0]],)),
    "s": _of_lower(lambda source, text: (text[-source.arguments[0] :],)),
    "w": _of_lower(lambda source, text: (shape(text, *(source.arguments or (None,))),)),
    "g": _of_lower(lambda source, text: grams(text, source.arguments[0], source.width)),
    "q": _bins,
    "a": _of_lower(lambda source, text: _attributes(source, attributes_in(text))),
}
