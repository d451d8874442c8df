"""How large what is read may be, said in words: a few kB of compressed zeros must not take all memory.

Far beyond what corpora hold, and small enough that what is within them fits into memory. Files of the pipeline and
what is tagged have the same limits; tagging must not load Polars, so they stand outside `tasks.formats`.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from espalier.engine.errors import EspalierError

LONGEST_LINE = 16 << 20  # bytes
LONGEST_SEQUENCE = 256 << 20  # bytes of the lines of one sequence
MOST_TOKENS = 1_000_000  # of one sequence
MOST_COLUMNS = 1_000
UNPACKED, RATIO = 256 << 20, 100  # bytes that any file may unpack to; beyond them at most so many times its size


def bounded_lines(pieces: Iterable[bytes], name: Path | str) -> Iterator[bytes]:
    """The same pieces, each shorter than the longest line, until a line is too long, wherever they are cut."""
    line, length = 1, 0
    for piece in pieces:
        first = piece.find(b"\n")
        length += len(piece) if first < 0 else first
        if length > LONGEST_LINE:
            raise EspalierError(
                f"line {line} of {name} has more than {LONGEST_LINE:,} bytes, the longest line that is read: expected "
                "text in lines; is it another kind of file?"
            )
        if first >= 0:
            line += piece.count(b"\n")
            length = len(piece) - piece.rfind(b"\n") - 1
        yield piece


def check_sequence_bytes(length: int, name: Path | str, line: int) -> None:
    """Refuse to collect more of a sequence that has no end so far; it begins at `line`, or soon after it."""
    if length > LONGEST_SEQUENCE:
        raise EspalierError(
            f"the sequence from line {line} of {name} on has more than {LONGEST_SEQUENCE:,} bytes and no empty line, "
            "the longest that is read: expected an empty line after each sequence"
        )


def check_sequence_lengths(offsets: np.ndarray, lines: np.ndarray, name: Path | str, unit: str = "line") -> None:
    """Refuse sequences of too many tokens; `lines` has the line (or row) of each token."""
    lengths = np.diff(offsets)
    if len(lengths) and lengths.max() > MOST_TOKENS:
        n = int(np.argmax(lengths > MOST_TOKENS))
        raise EspalierError(
            f"the sequence from {unit} {lines[offsets[n]]} of {name} on has {lengths[n]:,} tokens, expected at most "
            f"{MOST_TOKENS:,}: cut it into parts"
        )


def check_columns(count: int, name: Path | str, line: int) -> None:
    if count > MOST_COLUMNS:
        raise EspalierError(
            f"line {line} of {name} has {count:,} columns, expected at most {MOST_COLUMNS:,}: check the separator"
        )


def check_ratio(unpacked: int, packed: int, name: Path | str) -> None:
    """Refuse compressed data that are hardly data; `packed` bytes of them have been read so far."""
    if unpacked > UNPACKED and unpacked > RATIO * packed:
        raise EspalierError(
            f"{name}: unpacks to more than {RATIO} times its size ({unpacked:,} bytes so far), which text does not; "
            "if that is meant unpack it first"
        )
