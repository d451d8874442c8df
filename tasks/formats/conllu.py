"""CoNLL-U: ten columns between tabs; ranges of multiword tokens and empty nodes are left out."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from espalier.engine.errors import EspalierError, brief, quoted
from espalier.tasks.formats import conll
from espalier.tasks.formats.reading import Reading, at, first_line
from espalier.tasks.store import sequence_offsets

FIELDS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
INPUTS = ("FORM", "LEMMA", "UPOS", "XPOS", "FEATS")  # without the label
LABEL = "UPOS"
WORD, RANGE, EMPTY = r"^[0-9]+$", r"^[0-9]+-[0-9]+$", r"^[0-9]+\.[0-9]+$"


def read(path: Path, options: Reading, labelled: bool, size: int, notes: dict) -> Iterator[pl.DataFrame]:
    """Tables sequence, line, x0, x1, …, label of the columns that the options name."""
    inputs, label = chosen(options)
    shape = replace(options, separator="\t", comment="#", docstart=None)
    wanted = [pl.col(f"c{FIELDS.index(name)}").alias(f"x{i}") for i, name in enumerate(inputs)]
    wanted += [pl.col(f"c{FIELDS.index(label)}").alias("label")] if labelled else []
    for frame in conll.frames_of(path, shape, size, notes):
        if len(frame.columns) - 2 != len(FIELDS):
            raise EspalierError(
                f"{at(path, frame['line'][0])} has {len(frame.columns) - 2} columns: expected the {len(FIELDS)} of "
                "CoNLL-U between tabs; other columns are read by the format conll"
            )
        yield _words(frame, path, notes).select("sequence", "line", *wanted)


def chosen(options: Reading) -> tuple[list[str], str]:
    """Names of the input columns and of the label."""
    label = options.label or LABEL
    inputs = list(options.columns) if options.columns else [name for name in INPUTS if name != label]
    for name in (*inputs, label):
        if name not in FIELDS[1:]:
            raise EspalierError(f"CoNLL-U has no column {name!r}: expected one of {', '.join(FIELDS[1:])}")
    if label in inputs:
        raise EspalierError(f"column {label} is the label and cannot be an input too: take it out of the columns")
    return inputs, label


def _words(frame: pl.DataFrame, path: Path, notes: dict) -> pl.DataFrame:
    """The rows of words; each sequence must have them numbered from 1."""
    number = pl.col("c0").str
    line = first_line(frame, ~number.contains(f"{WORD}|{RANGE}|{EMPTY}"))
    if line is not None:
        found = frame.filter(pl.col("line") == line)["c0"][0]
        raise EspalierError(
            f"{at(path, line)}: the ID is {quoted(found)}, expected a number, a range 1-2 or an empty node 1.1"
        )
    for key, pattern in (("ranges", RANGE), ("empty_nodes", EMPTY)):
        notes[key] = notes.get(key, 0) + frame.select(number.contains(pattern).sum()).item()
    words = frame.filter(number.contains(WORD))
    if words["sequence"].n_unique() != frame["sequence"].n_unique():
        lost = frame.join(words, on="sequence", how="anti")["line"].min()
        raise EspalierError(f"the sequence at {at(path, lost)} has no word, only ranges or empty nodes: remove it")
    offsets = sequence_offsets(words["sequence"].to_numpy())
    place = np.arange(len(words)) - np.repeat(offsets[:-1], np.diff(offsets)) + 1
    odd = np.flatnonzero(words["c0"].cast(pl.Int64, strict=False).fill_null(-1).to_numpy() != place)
    if len(odd):
        row = int(odd[0])
        line, found, expected = words["line"][row], words["c0"][row], place[row]
        remedy = "; put an empty line between sentences" if found == "1" else ""
        raise EspalierError(f"{at(path, line)}: the word is numbered {brief(found)}, expected {expected}{remedy}")
    return words
