"""LIBSVM (SVMlight) counts of documents: `label index:count … # comment`, one document a line.

Documents are no sequences of tokens, so they come as arrays of their own.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from espalier.engine.errors import EspalierError, quoted
from espalier.tasks.formats.lines import lines_of
from espalier.tasks.formats.reading import at
from espalier.tasks.formats.streams import after_line, chunks

NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
INDEX = r"^[0-9]+$"
LARGEST = np.iinfo(np.int32).max
SIZE = 4 << 20


class Documents(NamedTuple):
    """A sparse matrix of counts by rows: document d has columns indices[indptr[d]:indptr[d + 1]]."""

    labels: np.ndarray  # float64 [D], as in the file
    indptr: np.ndarray  # int64 [D + 1]
    indices: np.ndarray  # int32 [N], from 0: one less than in the file
    counts: np.ndarray  # float64 [N]


def read(path: Path, size: int = SIZE) -> Documents:
    """All documents of a file, plain, .gz or .zst."""
    parts = [_documents(data, path, before) for data, before in chunks(path, size, after_line)]
    parts = [part for part in parts if part is not None]
    if not parts:
        raise EspalierError(f"{path}: holds no document; expected lines such as +1 3:2 17:1")
    labels, lengths, indices, counts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Documents(labels, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), indices, counts)


def _documents(data: bytes, path: Path, before: int) -> tuple[np.ndarray, ...] | None:
    """Labels, numbers of pairs, indices and counts of a chunk of lines."""
    text = pl.col("text")
    frame = pl.DataFrame({"text": lines_of(data, path, before)}).with_row_index("line", offset=before + 1)
    frame = frame.with_columns(text.str.replace("#.*$", "").str.replace_all(r"[ \t]+", " ").str.strip_chars(" "))
    frame = frame.filter(text != "").with_columns(fields=text.str.split(" "))
    if frame.is_empty():
        return None
    label = frame.select("line", text=pl.col("fields").list.first())
    labels = _numbers(label, path, "the label", "a number such as +1")
    pairs = frame.select("line", text=pl.col("fields").list.slice(1)).with_row_index("document")
    lengths = pairs["text"].list.len().cast(pl.Int64).to_numpy()
    pairs = pairs.filter(text.list.len() > 0).explode("text")
    pairs = pairs.with_columns(parts=text.str.split(":"))
    _refuse(pairs, text.str.count_matches(":", literal=True) != 1, path, "expected an index, a colon and a count")
    index = pairs.select("document", "line", "text", index=pl.col("parts").list.get(0, null_on_oob=True))
    _refuse(index, ~pl.col("index").str.contains(INDEX), path, "expected a whole number before the colon")
    index = index.with_columns(pl.col("index").cast(pl.Int64, strict=False).fill_null(LARGEST + 1))
    _refuse(index, pl.col("index") < 1, path, "indices begin at 1")
    _refuse(index, pl.col("index") > LARGEST, path, f"expected an index of at most {LARGEST}")
    same = pl.col("document") == pl.col("document").shift(1)
    _refuse(index, same & (pl.col("index") <= pl.col("index").shift(1)), path, "indices must ascend: sort the line")
    values = pairs.select("line", text=pl.col("parts").list.get(1, null_on_oob=True))
    counts = _numbers(values, path, "the count", "a number")
    if (counts < 0).any():
        line = values["line"][int(np.argmax(counts < 0))]
        raise EspalierError(f"{at(path, line)}: the count {counts[counts < 0][0]:g} is negative: expected at least 0")
    return labels, lengths, index["index"].cast(pl.Int32).to_numpy() - np.int32(1), counts


def _refuse(frame: pl.DataFrame, wrong: pl.Expr, path: Path, text: str) -> None:
    found = frame.filter(wrong).head(1)
    if len(found):
        raise EspalierError(f"{at(path, found['line'][0])}: found {quoted(found['text'][0])}; {text}")


def _numbers(frame: pl.DataFrame, path: Path, name: str, expected: str) -> np.ndarray:
    """The column `text` as finite numbers."""
    text = pl.col("text")
    odd = frame.filter(~text.str.contains(NUMBER)).head(1)
    if not len(odd):
        values = frame["text"].cast(pl.Float64, strict=False).fill_null(float("inf"))
        odd = frame.filter(~values.is_finite()).head(1)
        if not len(odd):
            return values.to_numpy()
    raise EspalierError(
        f"{at(path, odd['line'][0])}: {name} is {quoted(odd['text'][0])}, expected {expected} that is finite"
    )
