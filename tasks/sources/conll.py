"""CoNLL columns: one token a line, an empty line after each sequence.

The text becomes an Arrow array of lines without a Python object for each; columns are
split by Polars. An error names file, line and remedy.
"""

import gzip
import zlib
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from engine.errors import EspalierError
from tasks.params import Ingest
from tasks.sources import Corpus, in_one_block

BLANKS = " \t"  # other white space, such as a no-break space, may be a token
NOUNS = {"token": "token", "label": "label", "sequence": "sequence"}


def read_bytes(path: Path) -> bytes:
    """The bytes of a plain or gzip-compressed file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise EspalierError(f"{path}: there is no such file; check its name and folder") from None
    except OSError as error:
        raise EspalierError(f"{path}: cannot be read ({error.strerror}); expected a readable file") from None
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise EspalierError(f"{path}: the gzip data is damaged ({error}); fetch or compress it again") from None


def lines_of(data: bytes, path: Path) -> pl.Series:
    """All lines without their ends; a missing final newline loses nothing."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise EspalierError(
            f"line {line} of {path}: byte {data[error.start]:#04x} is not UTF-8; convert the file, "
            f"for example: iconv -f latin1 -t utf-8 {path.name}"
        ) from None
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    if not len(ends) or ends[-1] != len(data):
        ends = np.append(ends, len(data))
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    array = pa.LargeStringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(data))
    return pl.Series("line", pl.from_arrow(array)).str.strip_chars_end("\r\n")


def parse(data: bytes, path: Path, separator: str | None = None, comment: str | None = None) -> pl.DataFrame:
    """Columns c0, c1, … with `sequence` and `line` (from 1) of each token."""
    frame = pl.DataFrame({"text": lines_of(data, path)}).with_row_index("line", offset=1)
    if comment:
        frame = frame.filter(~pl.col("text").str.starts_with(comment))
    blank = pl.col("text").str.strip_chars(BLANKS).eq("")
    frame = frame.with_columns(sequence=blank.cum_sum()).filter(~blank)
    if frame.is_empty():
        raise EspalierError(f"{path}: holds no token; expected one token a line and an empty line after each sequence")
    text = pl.col("text")
    if separator is None:
        fields = text.str.strip_chars(BLANKS).str.replace_all(r"[ \t]+", "\t").str.split("\t")
    else:
        fields = text.str.split(separator)
    frame = frame.with_columns(fields=fields).with_columns(width=pl.col("fields").list.len())
    _check_widths(frame, path)
    width = frame["width"][0]
    columns = [pl.col("fields").list.get(i).alias(f"c{i}") for i in range(width)]
    return frame.select(pl.col("sequence").rle_id().cast(pl.Int32), "line", *columns)


def _check_widths(frame: pl.DataFrame, path: Path) -> None:
    width = frame["width"][0]
    odd = frame.filter(pl.col("width") != width)
    if odd.is_empty():
        return
    line, found, text = odd["line"][0], odd["width"][0], odd["text"][0]
    remedy = "check for a missing tab" if found < width else "check for a separator inside a column"
    if text.startswith("#"):
        remedy = 'if lines with # are comments set ingest.comment: "#"'
    plural = "column" if found == 1 else "columns"
    raise EspalierError(f"line {line} of {path} has {found} {plural}, the lines before it {width}: {remedy}")


def tokens_of(path: Path, options: Ingest, labelled: bool, inputs: int | None = None) -> pl.DataFrame:
    """The token table of one file; `inputs` is the number of input columns it must have."""
    frame = parse(read_bytes(path), path, options.separator, options.comment)
    names = [name for name in frame.columns if name.startswith("c")]
    position = None
    if labelled or (inputs is not None and len(names) == inputs + 1):
        position = _label_position(names, options.label_column, path)
    rest = [name for i, name in enumerate(names) if i != position]
    if inputs is not None and len(rest) != inputs:
        raise EspalierError(f"{path} has {len(rest)} input columns, the training file {inputs}: expected the same")
    table = frame.select("sequence", "line", *(pl.col(name).alias(f"x{i}") for i, name in enumerate(rest)))
    if labelled:
        table = table.with_columns(label=frame[names[position]])
    _check_empty(table, path)
    return table.drop("line")


def _label_position(names: list[str], column: int, path: Path) -> int:
    if len(names) < 2:
        raise EspalierError(f"{path} has 1 column: expected at least one input column and a label")
    if not -len(names) <= column < len(names):
        raise EspalierError(f"ingest.label_column is {column}, but {path} has {len(names)} columns")
    return column % len(names)


def _check_empty(table: pl.DataFrame, path: Path) -> None:
    """With a fixed separator a field may be empty; an empty label is a missing one."""
    for name in table.columns[2:]:
        empty = table.filter(pl.col(name).str.strip_chars(BLANKS).eq(""))
        if not empty.is_empty():
            what = "no label" if name == "label" else f"an empty column {name[1:]}"
            raise EspalierError(f"line {empty['line'][0]} of {path} has {what}: fill it in or remove the sequence")


def read(root: Path, options: Ingest) -> Corpus:
    """The corpus of the files that the parameters name."""
    if not options.path:
        raise EspalierError("ingest.path is null: name the labelled file that the conll source reads")
    train = tokens_of(root / options.path, options, labelled=True)
    parts = {"train": in_one_block(train)}
    for split in ("dev", "test", "unlabelled"):
        path = getattr(options, f"{split}_path")
        if path:
            parts[split] = in_one_block(tokens_of(root / path, options, split != "unlabelled", len(train.columns) - 2))
    return Corpus(parts, f"conll:{Path(options.path).name}", NOUNS)
