"""Tokens become observations: their attributes, or what templates make of rows of columns; then flat arrays."""

import math
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.engine.data.dataset import Dataset, make_dataset
from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.interface.inputs import possible
from espalier.engine.text.templates import Template, check_columns, expand_rows
from espalier.engine.text.values import values_of_rows

MOST_CELLS = 1 << 31  # of the table of observations, 8 GiB


def rows_of(tokens: list[Any]) -> list[tuple[str, ...]]:
    """Tokens as rows of columns."""
    for token in tokens:
        if isinstance(token, dict):
            raise EspalierError(f"a token is {brief(token)}: templates take texts and rows of columns, not dicts")
    return [(token,) if isinstance(token, str) else tuple(map(str, token)) for token in tokens]


def observations_of(templates: list[Template], tokens: list[Any], n: int) -> list[list[Any]]:
    """The observations at each position of a sequence: texts, or pairs of a text and its value."""
    if not templates:
        found = []
        for t, token in enumerate(tokens):
            try:
                found.append(["B", "U", *(_observed(item) for item in _attributes(token))])
            except EspalierError as error:
                raise EspalierError(f"token {t} of sequence {n}: {error}") from None
        return found
    rows = rows_of(tokens)
    check_columns(templates, min((len(row) for row in rows), default=0))
    texts = expand_rows(templates, rows)
    if not any(template.value for template in templates):
        return texts
    values = values_of_rows(templates, rows, f"sequence {n}")
    return [
        [text if value is None else (text, value) for text, value in zip(*both, strict=True) if value == value]
        for both in zip(texts, values, strict=True)
    ]  # fmt: skip


def _observed(item: str | tuple[str, float]) -> str | tuple[str, float]:
    return f"U:{item}" if isinstance(item, str) else (f"U:{item[0]}", item[1])


def _attributes(token: Any) -> list[str | tuple[str, float]]:
    """The attributes of a token: texts, or pairs of a name and a value."""
    if isinstance(token, str):
        return [token]
    if isinstance(token, dict):
        pairs = ((name, _scalar(name, value)) for name, value in token.items())
        return [
            str(name) if value is True else (str(name), value) if isinstance(value, float) else f"{name}={value}"
            for name, value in pairs
            if value is not None and value is not False
        ]
    return [str(_scalar("an attribute", text)) for text in token]


def _scalar(name: Any, value: Any) -> str | float | bool | None:
    """A text, truth value or None as it is, a number as a float; anything else is refused."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float):
        number = float(value) if abs(value) < sys.float_info.max else math.inf
        if not math.isfinite(number):
            raise EspalierError(f"{quoted(str(name))} is {value}: expected a finite number")
        return number
    raise EspalierError(
        f"{quoted(str(name))} is of the type {type(value).__name__}: expected a text, a number, True, False or None; "
        "write each entry of a list or table as an attribute of its own"
    )


def check_characters(
    names: list[str], classes: list[str], sequences: list[list[Any]], labels: list[list[Any]]
) -> None:
    """Refuse texts with half a character in them, which no file could hold."""
    if _is_whole(names) and _is_whole(classes):
        return
    for n, (tokens, row) in enumerate(zip(sequences, labels, strict=True)):
        for t, (token, value) in enumerate(zip(tokens, row, strict=True)):
            names = [item if isinstance(item, str) else item[0] for item in _attributes(token)]
            for what, texts in (("token", names), ("label", possible(value))):
                if not _is_whole(texts):
                    raise EspalierError(
                        f"the {what} {quoted(next(iter(texts)))} at position {t} of sequence {n} holds half a "
                        "character (a lone surrogate): expected whole pairs"
                    )
    raise EspalierError("a template holds half a character (a lone surrogate): expected whole pairs")


def _is_whole(texts: Iterable[Any]) -> bool:
    try:
        "".join(map(str, texts)).encode()
    except UnicodeEncodeError:
        return False
    return True


def dataset_of(
    texts: list[Any], ids: dict[str, int], labels: Any, weights: Any, label_sets: Any = None, token_weights: Any = None
) -> Dataset:
    """Flat arrays; positions with fewer observations than others are filled up with -1."""
    rows = [row for sequence in texts for row in sequence]
    plain = [[ids.get(item, -1) for item in row if isinstance(item, str)] for row in rows]
    pairs = [[item for item in row if not isinstance(item, str)] for row in rows]
    valued = values = None
    if any(pairs):
        valued = _filled([[ids.get(text, -1) for text, _ in row] for row in pairs], -1, np.int32)
        values = _filled([[value for _, value in row] for row in pairs], 0.0, np.float64)
    offsets = np.cumsum([0, *(len(sequence) for sequence in texts)])
    observations = _filled(plain, -1, np.int32)
    return make_dataset(observations, labels, offsets, weights, label_sets, token_weights, valued, values)


def _filled(rows: list[list[Any]], empty: float, kind: type) -> npt.NDArray[Any]:
    """Rows of different lengths as one table."""
    width = max((len(row) for row in rows), default=1)
    if len(rows) * width > MOST_CELLS:
        raise EspalierError(
            f"a token has {width:,} attributes and there are {len(rows):,} tokens, which makes a table of "
            f"{len(rows) * width:,} cells: expected at most {MOST_CELLS:,}; give fewer attributes, or fewer tokens"
        )
    out: npt.NDArray[Any] = np.full((len(rows), width), empty, kind)
    for t, row in enumerate(rows):
        out[t, : len(row)] = row
    return out
