"""The bytes of a file in pieces: plain, gzip (one member or many) or Zstandard, whatever its name says.

What is cut off or damaged is an error: compressed data that end too early are never taken for a shorter file.
"""

import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from espalier.engine.errors import EspalierError
from espalier.tasks.limits import bounded_lines, check_ratio, check_sequence_bytes

MAGIC = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
NAMES = {".gz": "gzip", ".zst": "Zstandard"}
BOM = b"\xef\xbb\xbf"
PIECE = 1 << 20
BLANK_LINE = re.compile(rb"(?:\A|\n)[ \t]*\r*\n")


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file as it is, with our words for what may be wrong with it."""
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise EspalierError(f"{path}: there is no such file; check its name and folder") from None
    except OSError as error:
        reason = error.strerror or error
        raise EspalierError(f"{path}: cannot be read ({reason}); expected a readable file") from None


def compression_of(path: Path, file: BinaryIO) -> str | None:
    """.gz, .zst or None, by the first bytes; a file that is named so and ends within them is cut."""
    head = file.read(4)
    file.seek(0)
    for suffix, magic in MAGIC.items():
        if head.startswith(magic):
            return suffix
        if head and path.suffix == suffix and magic.startswith(head):
            raise _damaged(path, suffix, "it ends within its first bytes")
    return None


def pieces(path: Path, size: int = PIECE) -> Iterator[bytes]:
    """The content, decompressed, at most `size` bytes at a time."""
    with opened(path) as file:
        suffix = compression_of(path, file)
        if suffix is None:
            yield from iter(lambda: file.read(size), b"")
            return
        unpacked = 0
        try:
            for data in (_gunzip if suffix == ".gz" else _unzstd)(file, size):
                unpacked += len(data)
                check_ratio(unpacked, file.tell(), path)
                yield data
        except EspalierError:
            raise
        except (zlib.error, EOFError, OSError, pa.ArrowException) as error:
            raise _damaged(path, suffix, str(error)) from None


def _damaged(path: Path, suffix: str, reason: str) -> EspalierError:
    return EspalierError(f"{path}: the {NAMES[suffix]} data is damaged ({reason}); fetch or compress it again")


def _gunzip(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Members one after the other, with zero bytes between and after them as tapes leave them."""
    inflate = zlib.decompressobj(31)
    while data := file.read(max(size, 1024)):
        while data:
            if inflate.eof:
                data = data.lstrip(b"\0")
                if not data:
                    break
                inflate = zlib.decompressobj(31)
            out = inflate.decompress(data, size)
            if out:
                yield out
            data = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
    rest = inflate.flush()
    if rest:
        yield rest
    if not inflate.eof:
        raise EOFError("it ends before its end mark")


def _unzstd(file: BinaryIO, size: int) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd") as stream:
        while data := stream.read(size):
            yield data


def after_line(data: bytes | bytearray) -> int:
    """The place behind the last line end, 0 where there is none."""
    return data.rfind(b"\n") + 1


def after_blank_line(data: bytes | bytearray) -> int:
    """A place behind a blank line, a late one; 0 where there is none. `data` begins at the start of a line."""
    found = max(data.rfind(b"\n\n") + 2, data.rfind(b"\n\r\n") + 3)
    if found > 2 or data.startswith(b"\n\n"):  # what is not found counts 1 and 2
        return found
    last = 0
    for match in BLANK_LINE.finditer(data):
        last = match.end()
    return last


def chunks(path: Path, size: int, cut: Callable[[bytes | bytearray], int]) -> Iterator[tuple[bytes, int]]:
    """The content in chunks of about `size` bytes that end where `cut` says, each with the lines before it.

    Where nothing can be cut more is read, twice as much each time, so that the work stays linear.
    """
    buffer, wanted, lines = bytearray(), size, 0
    for piece in bounded_lines(pieces(path, min(size, PIECE)), path):
        buffer += piece
        if len(buffer) < wanted:
            continue
        end = cut(buffer)
        if end:
            data = bytes(buffer[:end])
            yield (data if lines else data.removeprefix(BOM)), lines
            lines += data.count(b"\n")
            del buffer[:end]
        check_sequence_bytes(len(buffer), path, lines + 1)
        wanted = max(size, 2 * len(buffer))
    if buffer:
        yield (bytes(buffer) if lines else bytes(buffer).removeprefix(BOM)), lines
