"""Observations and weights in words, by the templates that made them."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from espalier.engine.errors import EspalierError
from espalier.engine.text import templates as language
from espalier.engine.text.macros import Source
from espalier.engine.text.templates import Macro
from espalier.engine.weights.stop_twins import STOP, of_twin
from espalier.tasks.report.words import Nouns

STRIP = 12  # places either side that a strip of values shows
READINGS = 64  # ways to read one observation that are looked at
BOUNDARY = re.compile(r"_x([+-])(\d+)")
ANYTHING = "∗"


class CutTemplate(NamedTuple):
    """A template line cut at its macros: literals[0] spots[0] literals[1] …"""

    literals: tuple[str, ...]
    spots: tuple[Macro, ...]


def parse_template(line: str) -> CutTemplate | None:
    """None for a line that is no template of ours: its observations are then shown as they are."""
    try:
        (found,) = language.parse([line])
    except EspalierError:
        return None
    literals = [""]
    for part in found.parts:
        if isinstance(part, str):
            literals[-1] += part
        else:
            literals.append("")
    return CutTemplate(tuple(literals), tuple(found.macros))


def readings(literals: Sequence[str], text: str) -> Iterator[tuple[str, ...]]:
    """Every way in which `text` is the literals with something between them."""
    if not text.startswith(literals[0]):
        return
    rest = text[len(literals[0]) :]
    if len(literals) == 1:
        yield from [()] if not rest else []
        return
    for cut in range(1, len(rest) + 1):
        yield from ((rest[:cut], *following) for following in readings(literals[1:], rest[cut:]))


def reading(template: CutTemplate, observation: str) -> tuple[str, ...] | None:
    """The macros' values; None when the observation is not of this template or cannot be told apart.

    A value may hold a separator: of several readings the one whose longest value is shortest is taken, of two
    such neither.
    """
    ways = islice(readings(template.literals, observation), READINGS)
    found = sorted((max(map(len, values), default=0), values) for values in ways)
    alone = len(found) == 1 or (len(found) > 1 and found[0][0] < found[1][0])
    return found[0][1] if alone else None


class Phrases:
    """Says observations and weights in words, by the templates that made them."""

    def __init__(self, templates: Sequence[str], nouns: Nouns) -> None:
        self.templates = [t for t in dict.fromkeys(map(parse_template, templates)) if t]
        self.nouns = nouns

    def context(self, observation: str) -> str:
        """What was seen, the current position in brackets: `t·[h]`. Empty for a template without macros."""
        found = [(t.spots, v) for t in self.templates if (v := reading(t, observation)) is not None]
        if len(found) == 1:
            return context_words(*found[0])
        spots = [spot for spots, _ in found for spot in spots]
        alike = len({spot.source for spot in spots}) == 1 and {spot.origin for spot in spots} == {language.HERE}
        if alike and all(len(mine) == 1 for mine, _ in found):  # a bag: the same name at several places
            places = ", ".join(f"{spot.shift:+d}" if spot.shift else "0" for spot in spots)
            return f"{source_words(spots[0].source)}{boundary_words(found[0][1][0])} at {places}"
        return observation

    def weight(self, row: dict[str, Any]) -> str:
        """`t·[h] → TH`, `AH → N when letter n`, `AH → N`, `N at the end`."""
        seen, target = self.context(of_twin(row["observation"])), row["label"]
        if row["family"] == "unigram":
            return f"{seen or 'any ' + self.nouns.token} → {target}"
        if row["family"] == STOP:
            return f"{target} at the end" + (f" when {self.when(seen)}" if seen else "")
        source = row["previous"] if row["family"] in ("bigram", "trigram") else "⟨start⟩"
        source = f"{row['before']} → {source}" if row["family"] == "trigram" else source
        return f"{source} → {target}" + (f" when {self.when(seen)}" if seen else "")

    def when(self, seen: str) -> str:
        """`letter n` where only the current token was looked at."""
        alone = seen.startswith("[") and seen.endswith("]") and "·" not in seen[2:-2]
        return f"{self.nouns.token} {seen[1:-1]}" if alone else seen


def context_words(spots: Sequence[Macro], values: Sequence[str]) -> str:
    """One strip for each source: values in order, the current one bracketed, ∗ for what was not looked at."""
    strips: dict[tuple[int, str], dict[int, str]] = {}
    fixed = []
    for spot, value in zip(spots, values, strict=True):
        heading = source_words(spot.source)
        if spot.origin == language.HERE and abs(spot.shift) <= STRIP:
            strips.setdefault((spot.source.column, heading), {})[spot.shift] = boundary_words(value)
        else:
            fixed.append(f"{place_words(spot)} {heading}{boundary_words(value)}")
    return ", ".join([*(heading + strip(seen) for (_, heading), seen in sorted(strips.items())), *fixed])


def source_words(source: Source) -> str:
    """What stands before a value: nothing for the first column as it is, else `col 1: `, `last 3 of col 1: `."""
    first = source.arguments[0] if source.arguments else None
    name = {
        "x": "", "t": f"does `{first}` match", "m": f"match of `{first}`", "p": f"first {first}", "s": f"last {first}",
        "w": "shape", "g": f"{first}-gram", "l": f"list {first}", "q": "bin",
        "a": "attribute",
    }[source.letter]  # fmt: skip
    name += " without case" if name and source.lower else "lower case" if source.lower else ""
    column = f"col {source.column}" if source.column else ""
    return f"{' of '.join(filter(None, [name, column]))}: " if name or column else ""


def place_words(spot: Macro) -> str:
    """`first` and `last` of the sequence, `3 after first`, `2 before last`; `at +20` for what is far away."""
    if spot.origin == language.HERE:
        return f"at {spot.shift:+d}"
    if spot.origin == language.FIRST:
        return "first" if spot.shift == 0 else f"{spot.shift} after first"
    return "last" if spot.shift == -1 else f"{-1 - spot.shift} before last"


def strip(seen: dict[int, str]) -> str:
    offsets = range(min(0, *seen), max(0, *seen) + 1)
    return "·".join(seen.get(at, ANYTHING) if at else f"[{seen.get(0, ANYTHING)}]" for at in offsets)


def boundary_words(value: str) -> str:
    """`_x-1` is the place before the first token, `_x+1` the one behind the last."""
    found = BOUNDARY.fullmatch(value)
    if not found:
        return value
    name, sign = ("start", "−") if found[1] == "-" else ("end", "+")
    return f"⟨{name}⟩" if found[2] == "1" else f"⟨{name}{sign}{int(found[2]) - 1}⟩"
