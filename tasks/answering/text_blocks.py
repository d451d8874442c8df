"""Texts of whole sequences, as a model takes them: read from columns, JSON lines, lines of characters, or tables."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from espalier.engine.errors import EspalierError
from espalier.engine.runtime.arrow_arrays import text_array
from espalier.engine.text import column_text
from espalier.engine.text.column_text import Fields
from espalier.tasks.answering.asked import Asked
from espalier.tasks.answering.incoming import whole
from espalier.tasks.answering.own_format import OwnFormat, Passed, joined_over_comments, set_aside
from espalier.tasks.json_tokens import sequence_of
from espalier.tasks.limits import check_columns, check_sequence_lengths

MAGIC = {b"ARROW1": "an Arrow file", b"PAR1": "a Parquet file", b"\x28\xb5\x2f\xfd": "compressed by Zstandard",
         b"PK\x03\x04": "a zip archive", b"%PDF": "a PDF file", b"\x7fELF": "a program"}  # fmt: skip


class TextBlock(NamedTuple):
    """Whole sequences as they were read: W columns of T texts."""

    columns: list[pa.Array]  # large_string
    offsets: np.ndarray  # int64 [N + 1]
    line: np.ndarray  # int64 [T], number of the line in its file, from 1
    fields: Fields | None = None  # of input in columns
    words: list[str] | None = None  # of input in lines
    passed: tuple[Passed, ...] = ()  # lines between the others that are no tokens
    records: list[dict] | None = None  # of input in JSON lines


def blocks(data: Iterable[bytes], name: str, asked: Asked) -> Iterator[TextBlock]:
    """What was read, block by block; an error when there is nothing at all."""
    width, line, some, shapes = None, 1, False, {}
    for text in whole(data, asked.words or asked.source == "jsonl", name):
        if line == 1:
            refuse_others(text, name, asked)
        column_text.check_text(text, name, line)
        if asked.words:
            block = _block_of_words(text, line)
        elif asked.source == "jsonl":
            block = _block_of_json(text, name, line, asked.own, shapes)
        else:
            block = _block_of_columns(text, name, line, asked, width)
            width = len(block.columns) or width
        line += text.count(b"\n")
        check_sequence_lengths(block.offsets, block.line, name)
        some = some or bool(len(block.line))
        if len(block.line) or block.passed:
            yield block
    if not some:
        what = "token; expected one token a line and an empty line after each sequence"
        what = "line to tag" if asked.words or asked.source == "jsonl" else what
        raise EspalierError(f"{name}: holds no {what}")


def refuse_others(text: bytes, name: str, asked: Asked) -> None:
    """An error in words where the first bytes are plainly something else than what is expected."""
    for magic, what in MAGIC.items():
        if text.startswith(magic):
            raise EspalierError(
                f"{name}: it is {what}, expected text; give it a name that tells its format, or unpack it"
            )
    if asked.words or asked.source == "jsonl" or text[:1] != b"{":
        return
    try:
        looks = isinstance(json.loads(text.split(b"\n", 1)[0]), dict)
    except (ValueError, RecursionError):
        looks = False
    if looks:
        raise EspalierError(
            f"line 1 of {name} is a JSON object, expected tokens in columns: say --from jsonl, or give the file a "
            "name that ends in .jsonl"
        )


def _block_of_columns(text: bytes, name: str, first_line: int, asked: Asked, width: int | None) -> TextBlock:
    """The tokens of a text in columns; starts of documents end a sequence, comments do not, and neither is a token."""
    rest, passed = set_aside(text, asked.own, asked.separator, first_line)
    found = column_text.cut(rest, name, asked.separator, width, first_line)
    if passed and len(found.line):
        last_line = first_line + text.count(b"\n") - text.endswith(b"\n")
        comments = sum(not one.ends and one.number > found.line[-1] for one in passed)
        offsets = joined_over_comments(found.offsets, found.line, passed)
        found = found._replace(offsets=offsets, closed=bool(last_line - found.line[-1] > comments))
    width = found.begin.shape[1] if len(found.line) else 0
    check_columns(width, name, first_line)
    return TextBlock([found.column(w) for w in range(width)], found.offsets, found.line, found, passed=tuple(passed))


def _block_of_json(text: bytes, name: str, first_line: int, own: OwnFormat, shapes: dict) -> TextBlock:
    """An object a line; what it says beside the tokens is given back."""
    records, lines, columns, lengths = [], [], [], []
    for n, line in enumerate(text.decode().split("\n"), first_line):
        if line.strip():
            record, tokens = sequence_of(line, f"line {n} of {name}", own.columns, shapes)
            records.append(record)
            lines.append(n)
            lengths.append(len(tokens[0]))
            columns = columns or [[] for _ in tokens]
            for column, values in zip(columns, tokens, strict=True):
                column.extend(values)
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
    texts = [text_array(column) for column in columns]
    return TextBlock(texts, offsets, np.repeat(np.array(lines, np.int64), lengths), records=records)


def _block_of_words(text: bytes, first_line: int) -> TextBlock:
    """Each line that is not empty as a sequence of characters (code points)."""
    numbered = [(line.strip(), n) for n, line in enumerate(text.decode().split("\n"), first_line)]
    words, lines = [word for word, _ in numbered if word], [n for word, n in numbered if word]
    lengths = np.array([len(word) for word in words], np.int64)
    data = np.frombuffer("".join(words).encode(), np.uint8)
    begin = np.flatnonzero((data & 0xC0) != 0x80)  # the other bytes go on with a character
    bounds = np.append(begin, len(data)).astype(np.int64)
    letters = pa.LargeStringArray.from_buffers(len(begin), pa.py_buffer(bounds), pa.py_buffer(data))
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
    return TextBlock([letters], offsets, np.repeat(np.array(lines, np.int64), lengths), None, words)


def table_blocks(file: str, asked: Asked) -> Iterator[TextBlock]:
    """The sequences of a file in a format that the general reader knows: CoNLL-U, Arrow, Parquet, CRFsuite's."""
    from espalier.tasks import formats
    from espalier.tasks.store import arrow_texts, sequence_offsets

    own = asked.own
    how = formats.Reading(format=asked.source, columns=own.columns, label=own.label, sequence=own.sequence)
    for block in formats.read_located([Path(file)], how, labelled=False):
        columns = [arrow_texts(block[name]) for name in formats.input_names(block)]
        yield TextBlock(columns, sequence_offsets(block["sequence"].to_numpy()), block["line"].to_numpy())
