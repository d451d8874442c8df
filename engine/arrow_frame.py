"""The frame of an Arrow IPC file, looked at before Arrow reads the file.

Two things make a small file large in memory: compressed buffers, and a list of parts that names the same part
again and again. Arrow's reader follows both without a limit and offers none, so the few fields that tell are
read here, by the layout of FlatBuffers that the format is written in: a table begins with the distance back to its
list of fields, which holds the place of each field in the table, or 0 for one that is not there.
"""

import struct
from typing import BinaryIO

MAGIC = b"ARROW1"
MOST_METADATA = 1 << 30  # bytes of a description; beyond it a reader's own offsets of 32 bits end
DICTIONARIES, BATCHES = 2, 3  # fields of the footer
HEADER = 2  # of a message
DICTIONARY_DATA, COMPRESSION = 1, 3  # fields of a dictionary and of a batch


class _Table:
    """A table in a flat buffer."""

    def __init__(self, data: bytes, at: int):
        self.data, self.at = data, at
        self.fields = at - self._number("<i", at)
        self.count = self._number("<H", self.fields) // 2 - 2

    def _number(self, kind: str, at: int) -> int:
        if at < 0:
            raise ValueError("a place before its beginning")
        return struct.unpack_from(kind, self.data, at)[0]

    def place(self, field: int) -> int | None:
        """Where a field is, None where it is not there."""
        offset = self._number("<H", self.fields + 4 + 2 * field) if field < self.count else 0
        return self.at + offset if offset else None

    def table(self, field: int) -> "_Table | None":
        place = self.place(field)
        return None if place is None else _Table(self.data, place + self._number("<I", place))

    def blocks(self, field: int) -> list[tuple[int, int]]:
        """(place in the file, bytes of metadata) of each part that a field of the footer lists."""
        place = self.place(field)
        if place is None:
            return []
        begin = place + self._number("<I", place)
        count = self._number("<I", begin)
        if begin + 4 + 24 * count > len(self.data):
            raise ValueError("a list that is longer than the file")
        return [struct.unpack_from("<qi", self.data, begin + 4 + 24 * i) for i in range(count)]


def check_frame(file: BinaryIO, most_batches: int, most_dictionaries: int) -> None:
    """Raise a ValueError for a file whose parts are compressed or more than there can be."""
    try:
        footer = _footer(file)
        batches, dictionaries = footer.blocks(BATCHES), footer.blocks(DICTIONARIES)
        for what, found, most in (
            ("batches", batches, most_batches),
            ("dictionaries", dictionaries, most_dictionaries),
        ):
            if len(found) > most:
                raise ValueError(f"{len(found):,} {what}, expected at most {most}")
        for part in dictionaries:
            _check_part(_message(file, *part).table(DICTIONARY_DATA))
        for part in batches:
            _check_part(_message(file, *part))
    except struct.error:
        raise ValueError("not an Arrow file, or a damaged one") from None


def _check_part(batch: _Table | None) -> None:
    if batch is not None and batch.place(COMPRESSION) is not None:
        raise ValueError("its columns are compressed, expected plain ones")


def _footer(file: BinaryIO) -> _Table:
    size = file.seek(0, 2)
    tail = _read(file, size - 10, 10)
    length = struct.unpack("<i", tail[:4])[0]
    if tail[4:] != MAGIC or not 0 < length <= min(size, MOST_METADATA):
        raise ValueError("not an Arrow file, or one that is cut off")
    data = _read(file, size - 10 - length, length)
    return _Table(data, struct.unpack_from("<I", data)[0])


def _message(file: BinaryIO, place: int, length: int) -> _Table:
    """The header of a message: a batch or a dictionary."""
    if not 8 < length <= MOST_METADATA:
        raise ValueError("a part without a description")
    data = _read(file, place, length)
    data = data[8:] if data[:4] == b"\xff\xff\xff\xff" else data[4:]  # the length, with a mark before it or not
    header = _Table(data, struct.unpack_from("<I", data)[0]).table(HEADER)
    if header is None:
        raise ValueError("a part without a description")
    return header


def _read(file: BinaryIO, place: int, length: int) -> bytes:
    if place < 0:
        raise ValueError("not an Arrow file, or one that is cut off")
    file.seek(place)
    return file.read(length)
