"""Bytes of a file or a stream, in pieces of whole sequences: cut behind empty lines, or behind lines.

Of a pipe or a terminal whatever is there is taken at once; a file is read in large blocks. Put together, the pieces
are the bytes that came, without a byte order mark at the beginning.
"""

import gzip
import os
import select
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from espalier.engine.errors import EspalierError
from espalier.engine.text import column_text
from espalier.tasks.limits import bounded_lines, check_ratio, check_sequence_bytes

BLOCK, SMALL_BLOCK = 1 << 22, 1 << 20  # bytes read at once; the smaller where a token takes a row of numbers
STANDARD_INPUT = "standard input"


@contextmanager
def opened(file: str) -> Iterator[tuple[BinaryIO, str]]:
    """A file, plain or compressed by gzip, or standard input (-), and what to call it in an error."""
    if file == "-":
        yield sys.stdin.buffer, STANDARD_INPUT
        return
    try:
        source = Path(file).open("rb")
    except FileNotFoundError:
        raise EspalierError(f"{file}: there is no such file; check its name and folder") from None
    except OSError as error:
        raise EspalierError(f"{file}: cannot be read ({error.strerror}); expected a readable file") from None
    with source:
        packed = source.peek(2)[:2] == b"\x1f\x8b"
        yield (gzip.GzipFile(fileobj=source) if packed else source), file


def comes_in_pieces(source: BinaryIO) -> bool:
    """Whether someone may wait for an answer before sending more: a pipe, a terminal, a socket; not a file."""
    try:
        return not stat.S_ISREG(os.fstat(source.fileno()).st_mode)
    except (OSError, AttributeError, ValueError):
        return False


def pieces(source: BinaryIO, name: str, size: int = BLOCK) -> Iterator[bytes]:
    """The bytes in blocks; what comes in pieces is taken as it comes."""
    if not isinstance(source, gzip.GzipFile) and comes_in_pieces(source):
        yield from _as_they_come(source.fileno(), size)
        return
    unpacked = 0
    try:
        while data := source.read(size):
            if isinstance(source, gzip.GzipFile):
                unpacked += len(data)
                check_ratio(unpacked, source.fileobj.tell(), name)
            yield data
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise EspalierError(f"{name}: the gzip data is damaged ({error}); fetch or compress it again") from None


def _as_they_come(descriptor: int, size: int) -> Iterator[bytes]:
    """All that is there, up to `size` bytes at once; waits only when there is nothing."""
    while data := os.read(descriptor, size):
        found, length, more = [data], len(data), data
        while more and length < size and select.select([descriptor], [], [], 0)[0]:
            more = os.read(descriptor, size - length)
            found.append(more)
            length += len(more)
        yield b"".join(found)
        if not more:
            return


def whole(data: Iterable[bytes], by_line: bool = False, name: str = STANDARD_INPUT) -> Iterator[bytes]:
    """The same bytes, cut behind empty lines, or behind lines; a byte order mark at the beginning goes."""
    held, low, line, first = bytearray(), 0, 1, True  # `held` has no empty line before `low`, where a line begins
    for piece in bounded_lines(data, name):
        held += piece
        if first and len(held) >= 3:
            first = False
            if held.startswith(b"\xef\xbb\xbf"):
                del held[:3]
        end = held.rfind(b"\n", low) + 1 if by_line else _after_empty_line(held, low)
        if end:
            yield bytes(held[:end])
            line += held.count(b"\n", 0, end)
            del held[:end]
            low, first = 0, False
        check_sequence_bytes(len(held), name, line)
        low = max(low, held.rfind(b"\n", low) + 1)
    if held:
        yield bytes(held)


def _after_empty_line(data: bytearray, low: int) -> int:
    """Where the last empty line ends, 0 when there is none; a line begins at `low`, none before it is empty."""
    stop = data.rfind(b"\n", low)
    while stop >= 0:
        before = data.rfind(b"\n", low, stop)
        begin = low if before < 0 else before + 1
        if not data[begin:stop].rstrip(b"\r").strip(column_text.BLANKS):
            return stop + 1
        stop = before
    return 0
