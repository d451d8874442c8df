"""CoNLL columns, and the data of Wapiti and CRF++: one token a line, an empty line after each sequence.

Chunks of text are cut behind empty lines; their lines become an Arrow array and Polars splits the columns. An error
names file, line and remedy.
"""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from espalier.engine.errors import EspalierError, brief
from espalier.tasks.formats.lines import lines_of
from espalier.tasks.formats.reading import STRANGE, Reading, at, nothing_in
from espalier.tasks.formats.streams import BOM, after_blank_line, chunks
from espalier.tasks.limits import check_columns

BLANKS = " \t"  # other white space, such as a no-break space, may be a token


def parse(data: bytes, path: Path, separator: str | None = None, comment: str | None = None) -> pl.DataFrame:
    """All of a text: columns c0, c1, … with `sequence` and `line` (from 1) of each token."""
    frame = columns_of(data.removeprefix(BOM), path, Reading(separator=separator, comment=comment, docstart=None))
    if frame is None:
        raise nothing_in(path)
    return frame


def columns_of(
    data: bytes, path: Path, options: Reading, before: int = 0, width: int | None = None, notes: dict | None = None
) -> pl.DataFrame | None:
    """The tokens of a chunk of whole sequences, None if there are none; `width` is that of the lines before it."""
    frame = pl.DataFrame({"text": lines_of(data, path, before)}).with_row_index("line", offset=before + 1)
    text = pl.col("text")
    if options.comment:
        frame = frame.filter(~text.str.starts_with(options.comment))
    gap = options.separator or _single_gap(data)
    ends = text.eq("") if gap and not options.separator else text.str.strip_chars(BLANKS).eq("")
    if options.docstart and options.docstart.encode() in data:
        starts = _starts_document(options)
        if notes is not None:
            notes["documents"] = notes.get("documents", 0) + frame.select(starts.sum()).item()
        ends = ends | starts
    frame = frame.with_columns(end=ends)
    frame = frame.with_columns(sequence=pl.col("end").cum_sum()).filter(~pl.col("end"))
    if frame.is_empty():
        return None
    cells = text if gap else text.str.strip_chars(BLANKS).str.replace_all(r"[ \t]+", "\t")
    gap = gap or "\t"
    frame = frame.with_columns(cells=cells).with_columns(width=pl.col("cells").str.count_matches(gap, literal=True) + 1)
    width = width or frame["width"][0]
    check_columns(width, path, frame["line"][0])
    _check_widths(frame, width, path)
    columns = [f"c{i}" for i in range(width)]
    split = pl.col("cells").str.splitn(gap, width).struct.rename_fields(columns).struct.unnest()
    return frame.select(pl.col("sequence").rle_id().cast(pl.Int32), pl.col("line").cast(pl.Int64), split)


def _starts_document(options: Reading) -> pl.Expr:
    """Lines whose first column is the mark."""
    text, mark = pl.col("text"), options.docstart
    if options.separator is None:
        text = text.str.strip_chars(BLANKS)
        gaps = list(BLANKS)
    else:
        gaps = [options.separator]
    return text.eq(mark) | pl.any_horizontal([text.str.starts_with(mark + gap) for gap in gaps])


def _single_gap(data: bytes) -> str | None:
    """The blank that stands alone between all columns, as in most files, or None: such text needs no pattern."""
    for gap, other in ((b" ", b"\t"), (b"\t", b" ")):
        around = (gap + gap, gap + b"\n", gap + b"\r", b"\n" + gap)
        if other not in data and not data.startswith(gap) and not data.endswith(gap):
            if not any(found in data for found in around):
                return gap.decode()
    return None


def _check_widths(frame: pl.DataFrame, width: int, path: Path) -> None:
    odd = frame.filter(pl.col("width") != width)
    if odd.is_empty():
        return
    line, found, text = odd["line"][0], odd["width"][0], odd["text"][0]
    remedy = "check for a missing tab" if found < width else "check for a separator inside a column"
    if text.startswith("#"):
        remedy = 'if lines with # are comments set ingest.comment: "#"'
    plural = "column" if found == 1 else "columns"
    strange = frame.filter(pl.col("text").str.replace_all("\t", " ", literal=True).str.contains(STRANGE)).head(1)
    if len(strange) and strange["line"][0] <= line:
        remedy += f"; line {strange['line'][0]} holds what cannot be seen: {brief(ascii(strange['text'][0]))}"
    raise EspalierError(f"{at(path, line)} has {found} {plural}, the lines before it {width}: {remedy}")


def frames_of(path: Path, options: Reading, size: int, notes: dict) -> Iterator[pl.DataFrame]:
    """Columns c0, c1, … of chunks of about `size` bytes; sequences are numbered through the file."""
    width, number = None, 0
    for data, before in chunks(path, size, after_blank_line):
        frame = columns_of(data, path, options, before, width, notes)
        if frame is not None:
            width = len(frame.columns) - 2
            yield frame.with_columns(pl.col("sequence") + number)
            number += frame["sequence"][-1] + 1
    if not number:
        raise nothing_in(path)


def read(path: Path, options: Reading, labelled: bool, size: int, notes: dict) -> Iterator[pl.DataFrame]:
    """Tables sequence, line, x0, x1, …, label."""
    for frame in frames_of(path, options, size, notes):
        names = [name for name in frame.columns if name.startswith("c")]
        position = None
        if labelled or (options.inputs is not None and len(names) == options.inputs + 1):
            position = _label_position(names, options.label_column, path)
        rest = [name for i, name in enumerate(names) if i != position]
        label = [pl.col(names[position]).alias("label")] if labelled else []
        yield frame.select("sequence", "line", *(pl.col(n).alias(f"x{i}") for i, n in enumerate(rest)), *label)


def _label_position(names: list[str], column: int, path: Path) -> int:
    if len(names) < 2:
        raise EspalierError(f"{path} has 1 column: expected at least one input column and a label")
    if not -len(names) <= column < len(names):
        raise EspalierError(f"ingest.label_column is {column}, but {path} has {len(names)} columns")
    return column % len(names)
