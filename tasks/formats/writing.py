"""Token tables written to files: blocks in, one whole file out, or none."""

import gzip
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa

from espalier.engine.errors import EspalierError, quoted
from espalier.tasks.formats.labels import written
from espalier.tasks.formats.reading import DOCSTART, input_names
from espalier.tasks.store import replacing, sequence_offsets

OLDEST = pl.CompatLevel.oldest()


class Columns:
    """CoNLL columns: the label last, an empty line after each sequence."""

    def __init__(self, sink: BinaryIO, separator: str | None):
        self.sink, self.separator = sink, separator

    def add(self, block: pl.DataFrame) -> None:
        cells = [*input_names(block), *(["label"] if "label" in block.columns else [])]
        _check_cells(block, cells, self.separator)
        last = (pl.col("sequence") != pl.col("sequence").shift(-1)).fill_null(True)
        line = pl.concat_str(cells, separator=self.separator or "\t")
        text = block.select(line + pl.when(last).then(pl.lit("\n\n")).otherwise(pl.lit("\n"))).to_series()
        # The bytes of an Arrow array of texts stand one after the other: the file as it is.
        array = text.to_arrow(compat_level=OLDEST).cast(pa.large_string())
        _, offsets, data = array.buffers()
        begin, end = (int(np.frombuffer(offsets, np.int64)[array.offset + i]) for i in (0, len(array)))
        self.sink.write(data.slice(begin, end - begin))

    def close(self) -> None:
        pass


def _check_cells(block: pl.DataFrame, cells: list[str], separator: str | None) -> None:
    """What could not be read back is not written."""
    for name in cells:
        cell = pl.col(name)
        gap = cell.str.contains(r"[ \t]") if separator is None else cell.str.contains(separator, literal=True)
        blank = cell.str.strip_chars(" \t").eq("")
        odd = block.filter(gap | blank | cell.str.contains("\n", literal=True) | cell.str.ends_with("\r")).head(1)
        if len(odd):
            remedy = "name another separator" if separator else "name a separator, such as a tab (--separator $'\\t')"
            raise EspalierError(
                f"column {name} of sequence {odd['sequence'][0]} holds {quoted(odd[name][0])}, which cannot be read "
                f"back from columns: {remedy}, or write jsonl or arrow"
            )
    first = block.filter((pl.col(cells[0]) == DOCSTART) | pl.col(cells[0]).str.starts_with("\ufeff")).head(1)
    if len(first):
        raise EspalierError(
            f"column {cells[0]} of sequence {first['sequence'][0]} holds {quoted(first[cells[0]][0])}, which readers "
            "of columns take for something else: write jsonl or arrow"
        )


class JsonLines:
    """One object a line; tokens of one column are texts, of more they are lists."""

    def __init__(self, sink: BinaryIO, separator: str | None):
        self.sink = sink

    def add(self, block: pl.DataFrame) -> None:
        names = input_names(block)
        tokens = block[names[0]] if len(names) == 1 else block.select(pl.concat_list(names)).to_series()
        offsets = pa.array(sequence_offsets(block["sequence"].to_numpy()))
        columns = {"tokens": _listed(tokens, offsets)}
        if "label" in block.columns:
            columns["labels"] = _listed(block["label"], offsets)
        text = io.BytesIO()
        pl.DataFrame(columns).write_ndjson(text)
        self.sink.write(text.getbuffer())

    def close(self) -> None:
        pass


def _listed(values: pl.Series, offsets: pa.Array) -> pl.Series:
    return pl.Series(pl.from_arrow(pa.LargeListArray.from_arrays(offsets, values.to_arrow(compat_level=OLDEST))))


class ArrowFile:
    """An Arrow IPC file with a row for each token."""

    def __init__(self, sink: BinaryIO, separator: str | None):
        self.sink, self.writer = sink, None

    def add(self, block: pl.DataFrame) -> None:
        table = block.to_arrow(compat_level=OLDEST)
        if self.writer is None:
            self.writer = pa.ipc.new_file(self.sink, table.schema)
        self.writer.write_table(table)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


@contextmanager
def compressed(path: Path, suffix: str) -> Iterator[BinaryIO]:
    """The file to write, compressed as the suffix says; the same content gives the same bytes."""
    with path.open("wb") as file:
        if suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as sink:
                yield sink
        elif suffix == ".zst":
            with pa.CompressedOutputStream(pa.PythonFile(file, "w"), "zstd") as sink:
                yield sink
        else:
            yield file


def write_blocks(
    path: Path, blocks: Iterable[pl.DataFrame], writer: type, separator: str | None = None,
    unknown: str | None = None, set_separator: str | None = None,
) -> dict[str, int]:  # fmt: skip
    """Write all blocks, or leave what was there; sequences and tokens written are returned."""
    blocks = iter(blocks)
    first = next(blocks, None)  # what cannot be read must not even make a folder
    if first is None:
        raise EspalierError(f"{path}: there is nothing to write")
    columns = [name for name in first.columns if name not in ("file", "line")]
    counts = {"sequences": 0, "tokens": 0}
    with replacing(path) as temporary, compressed(temporary, path.suffix) as sink:
        output = writer(sink, separator)
        for block in chain([first], blocks):
            block = block.drop("file", "line", strict=False)
            if block.columns != columns:
                raise EspalierError(
                    f"{path}: a block has columns {block.columns}, the first {columns}: expected the same"
                )
            output.add(written(block, unknown, set_separator) if "label" in columns else block)
            counts["tokens"] += len(block)
            counts["sequences"] += block["sequence"].n_unique()
        output.close()
    return counts
