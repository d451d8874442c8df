"""Feature templates evaluated over whole columns; their language is in `engine.text.templates`.

The values of a column become integers once. A template's values at a token are then a
combination of integers, and only each distinct combination becomes a text.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import polars as pl

from espalier.engine.runtime.grouping import combine, first_places
from espalier.engine.text import templates as language
from espalier.engine.text.coded_columns import Column, derive, number
from espalier.engine.text.templates import (
    FIRST,
    HERE,
    Macro,
    Template,
    check_columns,
    column_names,
    columns_of,
    learned_columns,
    parse,
    sources_of,
)  # fmt: skip
from espalier.tasks.sources import input_columns
from espalier.tasks.store import sequence_offsets

__all__ = ["Expansion", "Macro", "Template", "check_columns", "column_names", "encode", "expand", "parse", "resolve",
           "roomy"]  # fmt: skip


class Expansion(NamedTuple):
    """One column of a template at T tokens: token t has texts[codes[t]], nothing where the code is -1.

    Each text occurs; two of them may be the same.
    """

    codes: np.ndarray  # int32 [T]
    texts: pl.Series
    template: int  # which of the templates
    name: str  # of the column: t00, t01, …


def resolve(templates: list[Template], blocks: Iterable[pl.DataFrame]) -> list[Template]:
    """The templates with what the training data decide written out; see `engine.text.templates.resolve`.

    `blocks` are token tables of the training data; they are not looked at when there is nothing to decide.
    """
    return language.resolve(templates, tallies(templates, blocks)) if learned_columns(templates) else templates


def roomy(templates: list[Template], blocks: Callable[[], Iterable[pl.DataFrame]]) -> list[Template]:
    """The templates with room for all attributes of token tables; see `engine.text.templates.with_room`.

    `blocks` gives the tables of all parts of the data; it is not called when no template takes attributes.
    """
    columns = {source.column for source in sources_of(templates) if source.letter == "a"}
    if not columns:
        return templates
    texts: dict[int, set[str]] = {column: set() for column in columns}
    for tokens in blocks():
        for column, seen in texts.items():
            seen.update(tokens[f"x{column}"].unique())
    return list(language.with_room(templates, texts.__getitem__))


def tallies(templates: list[Template], blocks: Iterable[pl.DataFrame]) -> dict[int, tuple[list[str], np.ndarray]]:
    """Distinct values and counts of the columns that `resolve` looks at."""
    found: dict[int, Counter] = {column: Counter() for column in learned_columns(templates)}
    for tokens in blocks:
        check_columns(templates, len(input_columns(tokens)))
        for column, counts in found.items():
            counts.update(dict(tokens[f"x{column}"].value_counts().iter_rows()))
    return {column: (list(counts), np.array(list(counts.values()))) for column, counts in found.items()}


def encode(tokens: pl.DataFrame, templates: list[Template]) -> list[Expansion]:
    """The expansions of all templates, in the order of `column_names`; texts in order of appearance.

    A function of a block of whole sequences; what the training data decide must be in the templates.
    """
    offsets = sequence_offsets(tokens["sequence"].to_numpy())
    numbered: dict[int, Column] = {}
    values, seen = {}, {}
    for source in sources_of(templates):
        if source.column not in numbered:
            texts = tokens[f"x{source.column}"].to_arrow(compat_level=pl.CompatLevel.oldest())
            numbered[source.column] = number(texts)
        found = derive(source, numbered[source.column], offsets)
        values[source] = Column(found.codes, pl.Series(pl.from_arrow(found.texts), dtype=pl.String))
    places = _Places(offsets)
    for macro in dict.fromkeys(macro for template in templates for macro in template.macros):
        seen[macro] = places.shifted(macro, values[macro.source])
    columns = zip(columns_of(templates), column_names(templates), strict=True)
    return [Expansion(*_combined(templates[i], slot, len(tokens), seen), i, name) for (i, slot), name in columns]


def expand(tokens: pl.DataFrame, templates: list[Template]) -> pl.DataFrame:
    """One text column per column of the templates (t00, t01, …), one row per token, null for none."""
    found = encode(tokens, templates)
    return pl.DataFrame([e.texts.gather(pl.Series(e.codes).replace(-1, None)).alias(e.name) for e in found])


class _Places:
    """Where the T tokens are in their sequences."""

    def __init__(self, offsets: np.ndarray):
        lengths = np.diff(offsets)
        self.longest = int(lengths.max(initial=0))
        self.begin, self.end = np.repeat(offsets[:-1], lengths), np.repeat(offsets[1:], lengths)
        self.here = np.arange(len(self.begin))

    def shifted(self, macro: Macro, column: Column) -> Column:
        """What a macro sees at each token; values beyond the edges are numbered after those of the column."""
        if macro.origin == HERE and macro.shift == 0:
            return column
        origin = self.here if macro.origin == HERE else self.begin if macro.origin == FIRST else self.end
        target = origin + macro.shift
        distance = self.begin - target if macro.is_before else target - self.end + 1
        outside, beyond = np.flatnonzero(distance > 0), macro.beyond(self.longest)
        target[outside] = 0
        codes = column.codes[:, target]
        codes[:, outside] = -1
        codes[0, outside] = len(column.texts) + distance[outside] - beyond.start
        names = pl.Series([macro.edge(d)[0] for d in beyond], dtype=pl.String)
        return Column(codes, pl.concat([column.texts, names]))


def _combined(template: Template, slot: int, n_tokens: int, seen: dict[Macro, Column]) -> tuple[np.ndarray, pl.Series]:
    """(codes, texts) of one column of a template: the value in this slot beside those of macros that have only one."""
    macros = list(dict.fromkeys(template.macros))
    if not macros:
        return np.zeros(n_tokens, np.int32), pl.Series([template.line][:n_tokens], dtype=pl.String)
    numbers = {m: seen[m].codes[slot if m.source.width > 1 else 0] for m in macros}
    several = next((m for m in macros if m.source.letter in "ga"), None)
    if several is None:
        return _numbered(template, numbers, seen, n_tokens)
    there = np.flatnonzero(numbers[several] >= 0)
    codes = np.full(n_tokens, -1, np.int32)
    if not len(there):
        return codes, pl.Series([], dtype=pl.String)
    codes[there], texts = _numbered(template, {m: n[there] for m, n in numbers.items()}, seen, len(there))
    return codes, texts


def _numbered(template: Template, numbers: dict, seen: dict[Macro, Column], n_tokens: int):
    """(codes, texts) of the distinct combinations of what the macros see."""
    codes, count = np.zeros(n_tokens, np.int32), min(1, n_tokens)
    for found in numbers.values():
        count = combine(codes, found, n_tokens)
    example = first_places(codes, count)
    names = {macro: f"m{i}" for i, macro in enumerate(numbers)}
    columns = {names[m]: seen[m].texts.gather(found[example]) for m, found in numbers.items()}
    pieces = [pl.col(names[part]) if isinstance(part, Macro) else pl.lit(part) for part in template.parts]
    return codes, pl.DataFrame(columns).select(pl.concat_str(pieces).alias("text"))["text"]
