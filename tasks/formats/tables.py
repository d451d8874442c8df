"""Arrow (file or stream) and Parquet: one row a token, or one row a sequence with lists.

Batches are read one by one. What is compressed as a whole is first unpacked into a temporary file, since both
formats are read from their ends.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from espalier.engine.errors import EspalierError, brief, quoted
from espalier.tasks.formats import lists
from espalier.tasks.formats.reading import Reading, at
from espalier.tasks.formats.streams import compression_of, opened, pieces
from espalier.tasks.json_tokens import TOKENS

SEQUENCE, LABEL = "sequence", "label"
ARROW_FILE, END_OF_STREAM = b"ARROW1", b"\xff\xff\xff\xff\0\0\0\0"
# What Arrow raises for damaged files, besides its own: the schema may hold anything.
FAULTS = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError)


@contextmanager
def mapped(path: Path) -> Iterator[pa.MemoryMappedFile]:
    """The file in memory as far as it is looked at; a compressed one unpacked into a temporary file."""
    with opened(path) as file:
        packed = compression_of(path, file) is not None
        empty = not packed and not file.read(1)
    if empty:
        raise EspalierError(f"{path}: is empty; expected a table of tokens")
    if not packed:
        with pa.memory_map(str(path), "r") as source:
            yield source
        return
    with tempfile.NamedTemporaryFile(prefix="espalier-") as file:
        for piece in pieces(path):
            file.write(piece)
        file.flush()
        if not file.tell():
            raise EspalierError(f"{path}: is empty; expected a table of tokens")
        with pa.memory_map(file.name, "r") as source:
            yield source


def _arrow_batches(source: pa.MemoryMappedFile, choose: Callable) -> Iterator[pa.RecordBatch]:
    is_file = source.read(len(ARROW_FILE)) == ARROW_FILE
    if is_file:
        reader = pa.ipc.open_file(source)
        wanted = choose(reader.schema).all()
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i).select(wanted)
        return
    total = source.size()
    source.seek(max(0, total - len(END_OF_STREAM)))
    if source.read() != END_OF_STREAM:
        raise ValueError("it does not begin as an Arrow file and has no end mark of an Arrow stream; it may be cut")
    source.seek(0)
    with pa.ipc.open_stream(source) as reader:
        wanted = choose(reader.schema).all()
        for batch in reader:
            yield batch.select(wanted)
    if source.tell() != total:
        raise ValueError("something follows the end mark of the stream")


def _parquet_batches(source: pa.MemoryMappedFile, choose: Callable) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(source, page_checksum_verification=True) as file:
        names, rows = choose(file.schema_arrow), 0
        for batch in file.iter_batches(batch_size=names.rows, columns=names.all(), use_threads=False):
            rows += batch.num_rows
            yield batch
        if rows != file.metadata.num_rows:  # a damaged page may end a column early, and the batches with it
            raise ValueError(f"{rows} rows could be read of {file.metadata.num_rows}")


def batches(path: Path, kind: str, choose: Callable[[pa.Schema], "Names"]) -> Iterator[pa.RecordBatch]:
    """Valid batches of the columns that `choose` takes, of at most as many rows as it says."""
    name = {"arrow": "an Arrow file or stream", "parquet": "a Parquet file"}[kind]
    try:
        with mapped(path) as source:
            for batch in {"arrow": _arrow_batches, "parquet": _parquet_batches}[kind](source, choose):
                size = choose(batch.schema).rows
                for begin in range(0, batch.num_rows, size):
                    part = batch.slice(begin, size)
                    part.validate(full=True)
                    yield part
    except EspalierError:
        raise
    except FAULTS as error:
        text = brief((str(error) or type(error).__name__).splitlines()[0])
        raise EspalierError(f"{path}: damaged or not {name} ({text}); write it again") from None


def read_arrow(path: Path, options: Reading, labelled: bool, size: int, notes: dict) -> Iterator[pl.DataFrame]:
    yield from _read(path, "arrow", options, labelled, size)


def read_parquet(path: Path, options: Reading, labelled: bool, size: int, notes: dict) -> Iterator[pl.DataFrame]:
    yield from _read(path, "parquet", options, labelled, size)


def _read(path: Path, kind: str, options: Reading, labelled: bool, size: int) -> Iterator[pl.DataFrame]:
    """Tables sequence, line (the row), x0, x1, …, label; `size` in bytes, as for text."""
    history, shapes, held = History(), {}, HeldTable()
    begin = 0

    def choose(schema: pa.Schema) -> Names:
        return Names.of(schema, options, labelled, size, path)

    for batch in batches(path, kind, choose):
        names = choose(batch.schema)
        if names.sequence is None:
            frame = _from_lists(batch, names, shapes, begin, path)
            yield frame.with_columns(pl.col("sequence") + begin)
        else:
            yield from held.whole(_from_tokens(batch, names, history, begin, path))
        begin += batch.num_rows
    if not begin:
        raise EspalierError(f"{path}: holds no token; expected a row for each token or for each sequence")
    yield from held.rest()


class Names(NamedTuple):
    """Which columns of a table are what, and how many rows are taken at a time."""

    sequence: str | None  # None where a row is a sequence
    inputs: list[str]
    label: str | None  # None where nobody asked for it
    rows: int

    def all(self) -> list[str]:
        return [name for name in (self.sequence, *self.inputs, self.label) if name is not None]

    @classmethod
    def of(cls, schema: pa.Schema, options: Reading, labelled: bool, size: int, path: Path) -> "Names":
        """`size` in bytes: some sixteen for a token, and sixteen tokens in a sequence."""
        kinds = {}
        for field in schema:
            if field.name in kinds:
                raise EspalierError(f"{path} has two columns {quoted(field.name)}: rename one of them")
            kinds[field.name] = field.type
        inputs = list(options.columns or ())
        by_lists = any(lists.is_list(kinds[name]) for name in inputs if name in kinds) if inputs else (
            TOKENS in kinds and lists.is_list(kinds[TOKENS])
        )  # fmt: skip
        label = options.label or (lists.LABELS if by_lists else LABEL)
        sequence = None if by_lists else options.sequence or SEQUENCE
        if by_lists:
            inputs = inputs or [TOKENS]
        else:
            inputs = inputs or [name for name in kinds if name not in (sequence, label)]
        wanted = [*([sequence] if sequence else []), *inputs, *([label] if labelled else [])]
        for name in wanted:
            cls._check(name, kinds, by_lists, sequence, inputs, path)
        if not inputs:
            raise EspalierError(f"{path} has no input column: expected at least one beside {sequence} and {label}")
        if label in inputs or sequence in inputs:
            raise EspalierError(f"{path}: column {label if label in inputs else sequence} cannot be an input too")
        rows = max(1, size // (256 if by_lists else 16))
        return cls(sequence, inputs, label if labelled else None, rows)

    @staticmethod
    def _check(
        name: str, kinds: dict, by_lists: bool, sequence: str | None, inputs: list[str], path: Path
    ) -> None:
        known = brief(", ".join(f"{other}: {kind}" for other, kind in kinds.items()))
        if name not in kinds:
            raise EspalierError(
                f"{path} has no column {name!r}: it has {known}; expected rows of tokens ({SEQUENCE}, x0, …, {LABEL}) "
                f"or of lists ({TOKENS}, {lists.LABELS}), or name them in ingest.columns, label and sequence"
            )
        kind = kinds[name]
        if name == sequence:
            good, expected = pa.types.is_integer(kind) or lists.is_text(kind), "whole numbers or text"
        elif by_lists:
            good, expected = lists.is_list(kind), "a list of texts"
        elif name in inputs:
            good, expected = lists.is_input(kind), "text or numbers"
        else:
            good, expected = lists.is_text(kind), "text"
        if not good:
            raise EspalierError(
                f"{path}: column {name!r} is {brief(str(kind))}, expected {expected}; cast it, or name other columns"
            )


def _from_lists(batch: pa.RecordBatch, names: Names, shapes: dict, begin: int, path: Path) -> pl.DataFrame:
    numbers = np.arange(begin + 1, begin + 1 + batch.num_rows)
    inputs = {name: batch.column(name) for name in names.inputs}
    labels = (names.label, batch.column(names.label)) if names.label else None
    if labels and not lists.is_text(labels[1].type.value_type):
        raise EspalierError(f"{path}: column {names.label!r} is {labels[1].type}, expected a list of texts; cast it")
    try:
        return lists.frame_of(inputs, labels, shapes, numbers)
    except lists.Odd as odd:
        raise EspalierError(f"{at(path, numbers[odd.row], 'row')} {odd.text}") from None


class History:
    """The values that told sequences apart so far, as hashes: one that comes again would be cut in two."""

    def __init__(self):
        self.seen: list[np.ndarray] = []
        self.last = None  # value of the last row so far
        self.number = -1  # of its sequence

    def starts(self, values: pl.Series, name: str, begin: int, path: Path) -> np.ndarray:
        """True [rows] where a sequence begins."""
        starts = (values != values.shift(1)).fill_null(True).to_numpy(writable=True)
        starts[0] = self.last is None or values[0] != self.last
        at_starts = np.flatnonzero(starts)
        hashes = values.gather(at_starts).hash().to_numpy()
        unique, first = np.unique(hashes, return_index=True)
        again = np.ones(len(hashes), bool)
        again[first] = False
        for earlier in self.seen:
            again |= earlier[np.minimum(np.searchsorted(earlier, hashes), len(earlier) - 1)] == hashes
        if again.any():
            row = at_starts[np.argmax(again)]
            raise EspalierError(
                f"{at(path, begin + row + 1, 'row')}: {name} {quoted(values[int(row)])} comes again after other "
                f"sequences: sort the table by {name}"
            )
        if len(unique):
            self.seen.append(unique)
        self.last = values[-1]
        return starts


def _from_tokens(batch: pa.RecordBatch, names: Names, history: History, begin: int, path: Path) -> pl.DataFrame:
    """Columns sequence, line, x0, x1, …, label; the first and last sequence may not be whole."""
    columns = {}
    for name in (names.sequence, *names.inputs, *([names.label] if names.label else [])):
        array = batch.column(name)
        number = name in names.inputs and not lists.is_text(array.type)
        if array.null_count and not number:
            row = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
            what = "no label" if name == names.label else f"nothing in column {name}"
            raise EspalierError(f"{at(path, begin + row + 1, 'row')} has {what}: fill it in or remove the sequence")
        if number or lists.is_text(array.type):
            array = lists.text_of(array)
        columns[name] = pl.Series(pl.from_arrow(array))
    starts = history.starts(columns[names.sequence], names.sequence, begin, path)
    number = np.cumsum(starts) + history.number
    history.number = int(number[-1])
    inputs = {f"x{i}": columns[name] for i, name in enumerate(names.inputs)}
    label = {"label": columns[names.label]} if names.label else {}
    lines = np.arange(begin + 1, begin + 1 + batch.num_rows)
    return pl.DataFrame({"sequence": number.astype(np.int32), "line": lines} | inputs | label)


class HeldTable:
    """Rows that wait for the rest of their sequence."""

    def __init__(self):
        self.frames: list[pl.DataFrame] = []

    def whole(self, frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """What is whole once these rows have come."""
        sequence = frame["sequence"].to_numpy()
        cut = int(np.searchsorted(sequence, sequence[-1]))
        if cut or (self.frames and self.frames[-1]["sequence"][-1] != sequence[-1]):
            yield pl.concat([*self.frames, frame[:cut]])
            self.frames = []
        self.frames.append(frame[cut:])

    def rest(self) -> Iterator[pl.DataFrame]:
        if self.frames:
            yield pl.concat(self.frames)
