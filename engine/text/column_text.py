"""Text in columns as arrays: lines are cut into fields, empty lines end sequences, labels are written behind.

A line ends with a line feed; carriage returns before it belong to the end. It is empty when nothing but
blanks and tabs is left. Without a separator a run of blanks and tabs stands between two fields. Texts stay
the bytes that they came as: no Python object is made for a line or a field.
"""

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from espalier.engine.errors import EspalierError
from espalier.engine.runtime.grouping import ends
from espalier.engine.runtime.jit import kernel

FEED, RETURN, BLANK, TAB = 10, 13, 32, 9
BLANKS = b" \t"


class Fields(NamedTuple):
    """T lines of W fields in N sequences; field w of line t is data[begin[t, w]:end[t, w]]."""

    data: np.ndarray  # uint8
    begin: np.ndarray  # int64 [T, W]
    end: np.ndarray  # int64 [T, W]
    offsets: np.ndarray  # int64 [N + 1], sequence n has the lines [offsets[n], offsets[n + 1])
    line: np.ndarray  # int64 [T], number of the line in its file, from 1
    closed: bool  # whether an empty line came after the last sequence

    def column(self, w: int) -> pa.Array:
        """The texts of one column, large_string [T]."""
        begin = np.ascontiguousarray(self.begin[:, w])
        offsets = ends(self.end[:, w] - begin)
        out = np.empty(int(offsets[-1]), np.uint8)
        _gather(self.data, begin, offsets, out)
        return pa.LargeStringArray.from_buffers(len(begin), pa.py_buffer(offsets), pa.py_buffer(out))


def check_text(data: bytes, where: str, first_line: int = 1) -> None:
    """Refuse bytes that are not UTF-8, with the number of their line."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise EspalierError(
            f"line {line} of {where}: byte {data[error.start]:#04x} is not UTF-8; convert the file, "
            f"for example: iconv -f latin1 -t utf-8 {where.rpartition('/')[2]}"
        ) from None


def cut(data: bytes, where: str, separator: str | None = None, width: int | None = None, first_line: int = 1) -> Fields:
    """The fields of a text; each line must have `width` of them, or as many as the first line that is not empty."""
    between = (separator or "").encode()
    width = width or _first_width(data, between)
    array = np.frombuffer(data, np.uint8)
    lines = data.count(b"\n") + 1
    rows = min(lines, len(data) // max(width, 1) + 2)  # a field and what is behind it take a byte or more
    begin, end = np.empty((rows, width), np.int64), np.empty((rows, width), np.int64)
    offsets, line = np.empty(lines + 1, np.int64), np.empty(lines, np.int64)
    split_at = np.frombuffer(between, np.uint8)
    tokens, sequences, odd, found, closed = _cut(array, split_at, begin, end, offsets, line)
    if odd >= 0:
        remedy = "check for a missing tab" if found < width else "check for a separator inside a column"
        plural = "column" if found == 1 else "columns"
        raise EspalierError(
            f"line {first_line + odd} of {where} has {found} {plural}, the lines before it {width}: {remedy}"
        )
    return Fields(array, begin[:tokens], end[:tokens], offsets[: sequences + 1], line[:tokens] + first_line, closed)


def _first_width(data: bytes, separator: bytes) -> int:
    """The number of fields in the first line that is not empty; 0 when there is none."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        line = data[at:end].rstrip(b"\r")
        inside = line.strip(BLANKS)
        if inside:
            return len(line.split(separator)) if separator else len(re.split(rb"[ \t]+", inside))
        at = end + 1
    return 0


@kernel
def _gather(data, begin, offsets, out):
    """out[offsets[t]:offsets[t + 1]] = the bytes from begin[t] on."""
    for t in range(len(begin)):
        low, first = offsets[t], begin[t]
        for i in range(offsets[t + 1] - low):
            out[low + i] = data[first + i]


@kernel
def _cut(data, separator, begin, end, offsets, line):
    """(lines with fields, sequences, a line with another width or -1, its width, whether the last one is closed)."""
    width, length = begin.shape[1], len(data)
    tokens, sequences, number, at, inside = 0, 0, 0, 0, False
    while at < length:
        stop = at
        while stop < length and data[stop] != FEED:
            stop += 1
        high = stop
        while high > at and data[high - 1] == RETURN:
            high -= 1
        low, last = at, high
        while low < last and (data[low] == BLANK or data[low] == TAB):
            low += 1
        while last > low and (data[last - 1] == BLANK or data[last - 1] == TAB):
            last -= 1
        if low == last:
            inside = False
        else:
            if not inside:
                offsets[sequences] = tokens
                sequences += 1
                inside = True
            if len(separator):
                found = _between(data, separator, at, high, begin[tokens], end[tokens])
            else:
                found = _between_blanks(data, low, last, begin[tokens], end[tokens])
            if found != width:
                return tokens, sequences, number, found, False
            line[tokens] = number
            tokens += 1
        number += 1
        at = stop + 1
    offsets[sequences] = tokens
    return tokens, sequences, -1, width, not inside


@kernel
def _between_blanks(data, low, high, begin, end):
    """The fields of data[low:high], which neither begins nor ends with a blank; how many there are."""
    count, at = 0, low
    while at < high:
        first = at
        while at < high and data[at] != BLANK and data[at] != TAB:
            at += 1
        if count < len(begin):
            begin[count], end[count] = first, at
        count += 1
        while at < high and (data[at] == BLANK or data[at] == TAB):
            at += 1
    return count


@kernel
def _between(data, separator, low, high, begin, end):
    """The fields of data[low:high] between separators; how many there are."""
    count, first, at, size = 0, low, low, len(separator)
    while at + size <= high:
        same = True
        for i in range(size):
            same = same and data[at + i] == separator[i]
        if not same:
            at += 1
            continue
        if count < len(begin):
            begin[count], end[count] = first, at
        count += 1
        at += size
        first = at
    if count < len(begin):
        begin[count], end[count] = first, high
    return count + 1


def with_labels(fields: Fields, labels: list[str], codes: np.ndarray, separator: str = "\t") -> bytes:
    """The lines again, labels[codes[t]] in a last column; an empty line after each sequence that has one behind it."""
    texts, between = [text.encode() for text in labels], separator.encode()
    bounds = ends(np.array([len(text) for text in texts], np.int64))
    tokens, width = fields.begin.shape
    size = int((fields.end - fields.begin).sum()) + tokens * (width * len(between) + 1) + len(fields.offsets) - 1
    size += int(np.diff(bounds)[codes].sum()) - (not fields.closed)
    out = np.empty(size if tokens else 0, np.uint8)
    if tokens:
        table = np.frombuffer(b"".join(texts), np.uint8)
        _write(fields.data, fields.begin, fields.end, fields.offsets, fields.closed, table, bounds, codes,
               np.frombuffer(between, np.uint8), out)  # fmt: skip
    return out.tobytes()


@kernel
def _write(data, begin, end, offsets, closed, table, bounds, codes, separator, out):
    at = 0
    for n in range(len(offsets) - 1):
        for t in range(offsets[n], offsets[n + 1]):
            for w in range(begin.shape[1]):
                for i in range(begin[t, w], end[t, w]):
                    out[at] = data[i]
                    at += 1
                for byte in separator:
                    out[at] = byte
                    at += 1
            for i in range(bounds[codes[t]], bounds[codes[t] + 1]):
                out[at] = table[i]
                at += 1
            out[at] = FEED
            at += 1
        if closed or n < len(offsets) - 2:
            out[at] = FEED
            at += 1
