"""Tagging schemes over whole columns: which one labels follow, where they break it, and conversion between them.

A label is O, or a letter, a dash and a kind of chunk. IOB1 and IOB2 have B and I; BIOES (or IOBES) has B, I, E, S and
BILOU the same with L and U for E and S. In IOB a chunk begins at B, and at I where none of its kind goes on; that is
how conlleval reads it, and every sequence of B and I has a meaning. BIOES says each chunk twice over, so that what
contradicts itself has none.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl

from espalier.engine.errors import EspalierError, quoted
from espalier.tasks.formats.labels import JOINT, UNKNOWN

LETTERS = {"iob1": "BI", "iob2": "BI", "bioes": "BIES", "bilou": "BILU"}
ALIASES = {"bio": "iob2", "iobes": "bioes", "bioul": "bilou"}
NAMES = (*LETTERS, *ALIASES)
O, B, I, E, S, L, U, MISSING, SET, OTHER = range(10)  # noqa: E741 (the letters of the labels)
CODES = {"B": B, "I": I, "E": E, "S": S, "L": L, "U": U}
OUT = {"iob1": "OBIBI", "iob2": "OBIBI", "bioes": "OBIES", "bilou": "OBILU"}  # letters of O, B, I, E, S


class Tags(NamedTuple):
    """Labels [T] taken apart."""

    code: np.ndarray  # int8: O, B, …, OTHER
    kind: np.ndarray  # int32: number of the kind of chunk, -1 for none
    kinds: list[str]
    first: np.ndarray  # bool: begins a sequence
    last: np.ndarray  # bool: ends a sequence


def name_of(scheme: str) -> str:
    name = scheme.lower()
    name = ALIASES.get(name, name)
    if name not in LETTERS:
        raise EspalierError(f"scheme {scheme!r} is not known: choose one of {', '.join(NAMES)}")
    return name


def split(label: str) -> tuple[int, str]:
    """Code and kind of one label."""
    if label == "O":
        return O, ""
    if label == UNKNOWN:
        return MISSING, ""
    if JOINT in label:
        return SET, ""
    letter, dash, kind = label.partition("-")
    return (CODES[letter], kind) if letter in CODES and dash and kind else (OTHER, "")


def tags_of(labels: pl.Series, sequence: np.ndarray) -> Tags:
    distinct = labels.unique(maintain_order=True).to_list()
    parts = [split(label) for label in distinct]
    kinds = list(dict.fromkeys(kind for _, kind in parts if kind))
    number = {kind: i for i, kind in enumerate(kinds)}
    ids = labels.replace_strict(distinct, range(len(distinct)), return_dtype=pl.Int32).to_numpy()
    code = np.array([code for code, _ in parts], np.int8)[ids]
    kind = np.array([number.get(kind, -1) for _, kind in parts], np.int32)[ids]
    first = np.ones(len(ids), bool)
    first[1:] = sequence[1:] != sequence[:-1]
    last = np.append(first[1:], True)
    return Tags(code, kind, kinds, first, last)


def _before(tags: Tags) -> tuple[np.ndarray, np.ndarray]:
    """Code and kind of the token before; before the first is O."""
    code = np.where(tags.first, O, np.roll(tags.code, 1)).astype(np.int8)
    return code, np.where(tags.first, -1, np.roll(tags.kind, 1))


def _as_bioes(code: np.ndarray, scheme: str) -> np.ndarray:
    return np.where(code == L, E, np.where(code == U, S, code)) if scheme == "bilou" else code


def violations(tags: Tags, scheme: str) -> np.ndarray:
    """True [T] where a label may not follow the one before it, or may not be the last; beside labels that are not
    known nothing is wrong."""
    before, kind_before = _before(tags)
    here, before = _as_bioes(tags.code, scheme), _as_bioes(before, scheme)
    same = (kind_before == tags.kind) & (tags.kind >= 0)
    is_open = (before == B) | (before == I)
    if scheme in ("iob1", "iob2"):
        wrong = (here == (B if scheme == "iob1" else I)) & ~(is_open & same)
    else:
        goes_on = (here == I) | (here == E)
        wrong = np.where(is_open, ~(goes_on & same), goes_on)
    unsure = (here >= MISSING) | (before >= MISSING)
    wrong &= ~unsure
    if scheme in ("bioes", "bilou"):
        wrong |= tags.last & ((here == B) | (here == I))
    return wrong


def choose(codes: set[int], wrong: dict[str, int]) -> str | None:
    """The scheme that labels with these codes follow best; None where they are no chunks."""
    if OTHER in codes or not codes & {B, I, E, S, L, U}:
        return None
    if codes & {L, U}:
        return None if codes & {E, S} else "bilou"
    if codes & {E, S}:
        return "bioes"
    return "iob2" if wrong["iob2"] <= wrong["iob1"] else "iob1"


def family(tags: Tags) -> str | None:
    """Which way to read the labels of one block; None while there is no chunk to tell from."""
    codes = set(np.unique(tags.code).tolist())
    if codes & {L, U} and not codes & {E, S}:
        return "bilou"
    if codes & {E, S}:
        return "bioes"
    return "iob2" if codes & {B, I} else None


def check(labels: pl.Series, tags: Tags, scheme: str, place: Callable[[int], str]) -> None:
    """Refuse the first label that the scheme does not have, or does not allow where it stands."""
    _check_labels(labels, tags, scheme, place)
    _check_chunks(labels, tags, scheme, place)


def convert(labels: pl.Series, tags: Tags, source: str, target: str, place: Callable[[int], str]) -> pl.Series:
    """The labels in another scheme; `place` says where a token stands."""
    _check_labels(labels, tags, source, place)
    code = _as_bioes(tags.code, source)
    before, kind_before = _before(tags._replace(code=code))
    after = np.where(tags.last, O, np.roll(code, -1))
    same = kind_before == tags.kind
    inside = (code >= B) & (code <= S)
    inside_before = (before >= B) & (before <= S)
    if LETTERS[source] == "BI":
        begins = inside & ((code == B) | ~(inside_before & same))
        begins_after = np.append(begins[1:], True) | tags.last
        ends = inside & (begins_after | (after == O))
        unsure = (code == I) & (before == MISSING)
        if LETTERS[target] != "BI":
            unsure |= inside & (after == MISSING)
    else:
        _check_chunks(labels, tags, source, place)
        begins, ends = (code == B) | (code == S), (code == E) | (code == S)
        unsure = np.zeros(len(code), bool)
    if target == "iob1":
        unsure |= begins & (before == MISSING)
    _refuse(unsure, labels, place, f"stands beside an unknown label, so that its letter in {target} is not known: "
            "fill the unknown label in, or do not convert")  # fmt: skip
    if target == "iob1":
        out = np.where(begins & inside_before & same, B, I)
    elif target == "iob2":
        out = np.where(begins, B, I)
    else:
        out = np.where(begins & ends, S, np.where(begins, B, np.where(ends, E, I)))
    return _named(np.where(inside, out, O), tags, target)


def _named(out: np.ndarray, tags: Tags, target: str) -> pl.Series:
    letters = OUT[target]
    names = ["O", UNKNOWN, *(f"{letters[code]}-{kind}" for code in (B, I, E, S) for kind in tags.kinds)]
    chunk = 2 + (out - 1) * len(tags.kinds) + tags.kind
    index = np.where(tags.code == MISSING, 1, np.where(out == O, 0, chunk))
    return pl.Series("label", names, pl.String).gather(index)


def _refuse(wrong: np.ndarray, labels: pl.Series, place: Callable[[int], str], text: str) -> None:
    if wrong.any():
        at = int(np.argmax(wrong))
        raise EspalierError(f"{place(at)}: label {quoted(labels[at].replace(JOINT, '|'))} {text}")


def _check_labels(labels: pl.Series, tags: Tags, source: str, place: Callable[[int], str]) -> None:
    _refuse(tags.code == SET, labels, place, "is a set, which has no meaning in another scheme: do not convert")
    good = [O, MISSING, *(CODES[letter] for letter in LETTERS[source])]
    expected = ", ".join(f"{letter}-…" for letter in LETTERS[source])
    _refuse(
        ~np.isin(tags.code, good),
        labels,
        place,
        f"is not one of {source}: expected O, {expected}; name the scheme of the file or do not convert",
    )


def _check_chunks(labels: pl.Series, tags: Tags, source: str, place: Callable[[int], str]) -> None:
    wrong = violations(tags, source)
    if not wrong.any():
        return
    at = int(np.argmax(wrong))
    follows = violations(tags._replace(last=np.zeros_like(tags.last)), source)[at]
    if not follows:
        what = "ends a sequence and its chunk has no end"
    else:
        what = "cannot begin a sequence" if tags.first[at] else f"cannot follow {quoted(labels[at - 1])}"
    raise EspalierError(
        f"{place(at)}: label {quoted(labels[at])} {what} in {source}: mend the label, or name the "
        "scheme that the file has (ingest.scheme_from, --scheme-from)"
    )
