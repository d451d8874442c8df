"""Arrow arrays from and to Python without `pyarrow.array` and `to_numpy`, which load pandas where that is installed."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from espalier.engine.runtime.grouping import ends


def text_array(texts: Sequence[str | None]) -> pa.Array:
    """A large_string array; None is empty."""
    parts = [(text or "").encode() for text in texts]
    offsets = ends(np.fromiter(map(len, parts), np.int64, len(parts)))
    return pa.LargeStringArray.from_buffers(len(parts), pa.py_buffer(offsets), pa.py_buffer(b"".join(parts)))


def numbers_of(array: pa.Array, dtype: type) -> np.ndarray:
    """The values of an array of this type, without a copy; anything where there is none."""
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * np.dtype(dtype).itemsize)


def missing(array: pa.Array) -> np.ndarray:
    """Where an array has no value, bool [T]."""
    if not array.null_count:
        return np.zeros(len(array), bool)
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)] == 0
