"""Labels that are not fully known: a mark for unknown ones, and sets of which one is right.

In token tables an unknown label is the empty text, and a set is its members in order, joined by "\\x1f".
"""

from pathlib import Path

import polars as pl

from espalier.engine.errors import EspalierError, quoted
from espalier.tasks.formats.reading import Reading, at, first_line
from espalier.tasks.store import SET_MARK

UNKNOWN, JOINT = "", SET_MARK


def canonical(frame: pl.DataFrame, options: Reading, path: Path, unit: str) -> pl.DataFrame:
    """The frame with its labels in the form of token tables."""
    changed = {}
    for label in frame["label"].unique(maintain_order=True):
        form = _form(label, options)
        if form is None or JOINT in label:
            line = first_line(frame, pl.col("label") == label)
            raise EspalierError(f"{at(path, line, unit)}: label {quoted(label)} {_why(label, options)}")
        if form != label:
            changed[label] = form
    return replaced(frame, changed) if changed else frame


def replaced(frame: pl.DataFrame, changed: dict[str, str]) -> pl.DataFrame:
    """The frame with some of its labels exchanged."""
    new = pl.col("label").replace_strict(list(changed), list(changed.values()), default=pl.col("label"))
    return frame.with_columns(new.cast(pl.String).alias("label"))


def _form(label: str, options: Reading) -> str | None:
    """None where a set has an empty or an unknown member."""
    if label == options.unknown:
        return UNKNOWN
    if not options.set_separator or options.set_separator not in label:
        return label
    members = label.split(options.set_separator)
    if "" in members or options.unknown in members:
        return None
    return JOINT.join(sorted(set(members)))


def _why(label: str, options: Reading) -> str:
    if JOINT in label:
        return r"holds the control character \x1f, which token tables need for themselves: take it out"
    if "" in label.split(options.set_separator):
        what = "is a set with an empty member"
    else:
        what = f"is a set that holds the mark for unknown, {options.unknown!r}"
    return (
        f"{what}: expected labels between {options.set_separator!r}; mend it, or set ingest.set_separator to null "
        "if that is part of a label"
    )


def written(frame: pl.DataFrame, unknown: str | None, separator: str | None) -> pl.DataFrame:
    """The frame with its labels as files have them: the inverse of `canonical`."""
    changed = {}
    for label in frame["label"].unique(maintain_order=True):
        if label == UNKNOWN:
            if unknown is None:
                raise EspalierError("a label is unknown and there is no mark for it: name one, such as --unknown _")
            changed[label] = unknown
        elif JOINT in label:
            if separator is None:
                raise EspalierError(
                    "a label is a set and nothing separates its members: name a set separator, such as |"
                )
            changed[label] = separator.join(label.split(JOINT))
            _check(label.split(JOINT), unknown, separator)
        else:
            _check([label], unknown, separator)
    return replaced(frame, changed) if changed else frame


def _check(members: list[str], unknown: str | None, separator: str | None) -> None:
    for label in members:
        if label == unknown or (separator and separator in label):
            what = f"the mark for unknown, {unknown!r}" if label == unknown else f"the set separator {separator!r}"
            raise EspalierError(f"label {quoted(label)} would be read back as {what}: choose another mark or null")
