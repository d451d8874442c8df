"""The tables of tokens that `ingest` makes, one for each split: sequence, inputs x0, x1, …, and the label."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from espalier.tasks.store.places import TOKENS, damaged
from espalier.tasks.store.tables import TEXT, arrow_writer, check_columns, read_arrow, read_batches

SET_MARK = "\x1f"  # between the labels of a set in a token table; the empty text is an unknown label


def sequence_offsets(sequence: np.ndarray) -> np.ndarray:
    """Offsets of the runs of equal values, int64 [N + 1]."""
    starts = np.flatnonzero(np.diff(sequence, prepend=sequence[:1] - 1)) if len(sequence) else np.empty(0, np.int64)
    return np.append(starts, len(sequence)).astype(np.int64)


def token_writer(root: Path, split: str, info: dict):
    """A function that appends sequences to the tokens of a split; see `arrow_writer`."""
    return arrow_writer(root / TOKENS.format(split), info)


def write_tokens(root: Path, split: str, tokens: pl.DataFrame, info: dict) -> None:
    """All tokens of a split at once."""
    with token_writer(root, split, info) as write:
        write(tokens)


def _checked_tokens(path: Path, split: str, table: pa.Table, info: dict) -> pl.DataFrame:
    """The table as a frame; fails where a column or the description of the data is not what it must be."""
    others = [] if split == "unlabelled" else ["label"]
    inputs = [f"x{i}" for i in range(max(1, table.num_columns - 1 - len(others)))]
    check_columns(path, table, {"sequence": "int32"} | dict.fromkeys([*inputs, *others], TEXT))
    if not isinstance(info, dict) or "nouns" not in info:
        raise damaged(path, ValueError("no description of the data in it"))
    return pl.from_arrow(table)


def read_tokens(root: Path, split: str) -> tuple[pl.DataFrame, dict]:
    """The tokens of a split, memory-mapped, and what is known about them."""
    path = root / TOKENS.format(split)
    table, info = read_arrow(path)
    return _checked_tokens(path, split, table, info), info


def token_blocks(root: Path, split: str) -> Iterator[pl.DataFrame]:
    """The tokens of a split as they were written, one batch of whole sequences after the other."""
    path = root / TOKENS.format(split)
    for table, info in read_batches(path):
        yield _checked_tokens(path, split, table, info)


def token_info(root: Path, split: str) -> dict:
    """What is known about the tokens of a split, without reading them."""
    path = root / TOKENS.format(split)
    table, info = next(read_batches(path))
    _checked_tokens(path, split, table[:0], info)
    return info
