"""Lines of text as an Arrow array, without a Python object for each."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from espalier.engine.errors import EspalierError
from espalier.tasks.formats.reading import at


def check_utf8(data: bytes, path: Path, before: int = 0) -> None:
    """`before` lines come before these bytes."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = before + data.count(b"\n", 0, error.start) + 1
        raise EspalierError(
            f"{at(path, line)}: byte {data[error.start]:#04x} is not UTF-8; convert the file, "
            f"for example: iconv -f latin1 -t utf-8 {path.name}"
        ) from None


def lines_of(data: bytes, path: Path, before: int = 0) -> pl.Series:
    """All lines without their ends; a missing final newline loses nothing."""
    check_utf8(data, path, before)
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    if not len(ends) or ends[-1] != len(data):
        ends = np.append(ends, len(data))
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    array = pa.LargeStringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(data))
    return pl.Series("line", pl.from_arrow(array)).str.strip_chars_end("\r\n")
