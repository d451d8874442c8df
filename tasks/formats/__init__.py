"""Files of labelled sequences in the formats that people have, read and written block by block.

A block is a table of whole sequences: `sequence` (int32, numbered through all files), inputs x0, x1, …, and `label`.
Memory is bounded by the block, not by the file. Errors name file, line (or row), what was found and what to do.
"""

import glob
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from espalier.engine.errors import EspalierError
from espalier.tasks.formats import brackets, conll, conllu, crfsuite, jsonl, schemes, tables, writing
from espalier.tasks.formats.labels import canonical
from espalier.tasks.formats.reading import Reading, at, first_line, input_names
from espalier.tasks.limits import check_sequence_lengths
from espalier.tasks.store import sequence_offsets

__all__ = [
    "FORMATS",
    "Format",
    "Reading",
    "detect",
    "expand",
    "format_of",
    "input_names",
    "place",
    "read_blocks",
    "read_located",
    "scheme_in",
    "scheme_of",
    "write",
]

BLOCK_TOKENS = 1_000_000
CHUNK_BYTES = 4 << 20  # of text parsed at a time; a block is made of as many as it needs
COMPRESSED = (".gz", ".zst")


@dataclass(frozen=True)
class Format:
    """One format: its suffixes, what its reader counts places in, how it is read and written (None: not at all)."""

    suffixes: tuple[str, ...]
    help: str
    read: Callable[..., Iterator[pl.DataFrame]] | None
    writer: type | None = None
    unit: str = "line"
    strict_blanks: bool = False  # a cell of blanks alone is an empty one
    trees: bool = False  # labels are pieces of trees, which no scheme and no mark changes


FORMATS: dict[str, Format] = {
    "conll": Format((".conll", ".txt", ".tsv", ".col", ".iob", ".bio", ".data"), "columns, one token a line",
                    conll.read, writing.Columns, strict_blanks=True),
    "conllu": Format((".conllu",), "CoNLL-U of Universal Dependencies", conllu.read, strict_blanks=True),
    "jsonl": Format((".jsonl", ".ndjson"), "JSON lines with tokens and labels", jsonl.read, writing.JsonLines),
    "arrow": Format((".arrow", ".feather", ".ipc", ".arrows"), "Arrow IPC file or stream", tables.read_arrow,
                    writing.ArrowFile, "row"),
    "parquet": Format((".parquet", ".pq"), "Parquet", tables.read_parquet, None, "row"),
    "crfsuite": Format((".crfsuite",), "CRFsuite's lines of a label and attributes", crfsuite.read),
    "brackets": Format((".mrg", ".penn", ".brackets", ".ptb"), "trees in Penn brackets", brackets.read, trees=True),
    "libsvm": Format((".svm", ".libsvm", ".svmlight"), "counts of documents, read by tasks.formats.libsvm", None),
}  # fmt: skip


def detect(path: Path | str) -> str:
    """The format that the name of a file says, a suffix of compression aside."""
    path = Path(path)
    suffix = (Path(path.stem) if path.suffix.lower() in COMPRESSED else path).suffix.lower()
    for name, item in FORMATS.items():
        if suffix in item.suffixes:
            return name
    known = ", ".join(item.suffixes[0] for item in FORMATS.values())
    found = f"the name ends in {suffix!r}" if suffix else "the name has no ending"
    raise EspalierError(
        f"{path}: {found}, which tells no format: expected one of {known} (and .gz or .zst behind it), "
        "or name the format (ingest.format, --from)"
    )


def format_of(path: Path | str, name: str | None = None) -> tuple[str, Format]:
    """Name and description of the format of a file: the one named, else by its name."""
    name = name or detect(path)
    if name not in FORMATS:
        raise EspalierError(f"format {name!r} is not known: choose one of {', '.join(FORMATS)}")
    return name, FORMATS[name]


def place(path: Path, number: int, options: Reading) -> str:
    """`line 12 of some.conll`, or its row where the format has rows."""
    return at(path, number, format_of(path, options.format)[1].unit)


def expand(root: Path, pattern: str) -> list[Path]:
    """One file, or all that a pattern with *, ? or [ ] matches, sorted by name."""
    path = root / pattern
    if path.exists() or not glob.has_magic(str(pattern)):
        if not path.exists():
            raise EspalierError(f"{path}: there is no such file; check its name and folder")
        return [path]
    found = sorted(root / name for name in glob.glob(pattern, root_dir=root, recursive=True))
    found = [path for path in found if not path.is_dir()]
    if not found:
        raise EspalierError(f"{pattern}: no file in {root} matches; check the pattern and the folder")
    return found


def read_blocks(
    paths: list[Path], options: Reading, labelled: bool, block_tokens: int = BLOCK_TOKENS, notes: dict | None = None
) -> Iterator[pl.DataFrame]:
    """Blocks of whole sequences of at most `block_tokens` (or one longer sequence): sequence, x0, x1, …, label.

    `notes` gets counts of what was left out: documents (start lines), ranges, empty_nodes.
    """
    for block in read_located(paths, options, labelled, block_tokens, notes):
        yield block.drop("file", "line")


def read_located(
    paths: list[Path], options: Reading, labelled: bool, block_tokens: int = BLOCK_TOKENS, notes: dict | None = None
) -> Iterator[pl.DataFrame]:
    """The same with `file` (its number in `paths`) and `line` (or row) of each token."""
    size = max(1, min(CHUNK_BYTES, 8 * block_tokens))
    return regroup(_files(paths, options, labelled, size, {} if notes is None else notes), block_tokens)


def _files(paths: list[Path], options: Reading, labelled: bool, size: int, notes: dict) -> Iterator[pl.DataFrame]:
    number, width = 0, options.inputs
    other = "the training file"
    converter = Converter(options)
    for i, path in enumerate(paths):
        name, item = format_of(path, options.format)
        if item.read is None:
            raise EspalierError(f"{path}: {name} holds {item.help}: it has no tokens; choose another format")
        count = 0
        for frame in item.read(path, options, labelled, size, notes):
            found = len(input_names(frame))
            if width is None:
                width, other = found, path
            ends = sequence_offsets(frame["sequence"].to_numpy())
            check_sequence_lengths(ends, frame["line"].to_numpy(), path, item.unit)
            if found != width:
                raise EspalierError(f"{path} has {found} input columns, {other} {width}: expected the same")
            if item.trees:
                check_trees(options)
            # Runs of blanks leave nothing empty between them, and a token may have no attributes.
            if name not in ("conll", "crfsuite", "brackets") or (name == "conll" and options.separator):
                _check_empty(frame, path, item)
            if labelled and not item.trees:
                frame = converter(canonical(frame, options, path, item.unit), path, item.unit)
            count = frame["sequence"][-1] + 1
            head = pl.col("sequence").cast(pl.Int32) + number, pl.lit(i, pl.Int32).alias("file")
            yield frame.select(*head, pl.col("line").cast(pl.Int64), pl.exclude("sequence", "line"))
        number += count


def check_trees(options: Reading) -> None:
    """Refuse what is asked of labels and cannot be asked of trees."""
    asked = {"unknown": options.unknown, "set_separator": options.set_separator, "scheme": options.scheme_out}
    for name, value in asked.items():
        if value is not None:
            raise EspalierError(f"ingest.{name} is {value!r} and the files hold trees, which have no such labels: set "
                                f"ingest.{name} to null")  # fmt: skip


def scheme_of(paths: list[Path], options: Reading) -> str | None:
    """The scheme that the labels of files follow best; None where they are no chunks."""
    return scheme_in(read_blocks(paths, replace(options, scheme_in=None, scheme_out=None), True))


def scheme_in(blocks: Iterable[pl.DataFrame]) -> str | None:
    """The same of blocks of labelled sequences."""
    codes, wrong = set(), dict.fromkeys(schemes.LETTERS, 0)
    for block in blocks:
        tags = schemes.tags_of(block["label"], block["sequence"].to_numpy())
        codes |= set(np.unique(tags.code).tolist())
        for name in wrong:
            wrong[name] += int(schemes.violations(tags, name).sum())
    return schemes.choose(codes, wrong)


class Converter:
    """Conversion to a scheme, block by block; the first chunk shows the scheme of the files if nobody names it.

    A scheme that is named is held against every label.
    """

    def __init__(self, options: Reading):
        self.named = bool(options.scheme_in)
        self.source = schemes.name_of(options.scheme_in) if options.scheme_in else None
        self.target = schemes.name_of(options.scheme_out) if options.scheme_out else None

    def __call__(self, frame: pl.DataFrame, path: Path, unit: str) -> pl.DataFrame:
        if self.target is None and not self.named:
            return frame
        tags = schemes.tags_of(frame["label"], frame["sequence"].to_numpy())
        if self.named:
            schemes.check(frame["label"], tags, self.source, lambda t: at(path, frame["line"][t], unit))
        if self.target is None:
            return frame
        self.source = self.source or schemes.family(tags)
        source = self.source or "iob2"  # no chunk so far: any scheme says the same
        labels = schemes.convert(frame["label"], tags, source, self.target, lambda t: at(path, frame["line"][t], unit))
        return frame.with_columns(labels)


def _check_empty(frame: pl.DataFrame, path: Path, item: Format) -> None:
    """With a fixed separator a field may be empty; an empty label is a missing one."""
    for name in [*input_names(frame), *(["label"] if "label" in frame.columns else [])]:
        cell = pl.col(name).str.strip_chars(" \t") if item.strict_blanks else pl.col(name)
        line = first_line(frame, cell.eq(""))
        if line is not None:
            what = "no label" if name == "label" else f"an empty column {name[1:]}"
            raise EspalierError(f"{at(path, line, item.unit)} has {what}: fill it in or remove the sequence")


def regroup(frames: Iterable[pl.DataFrame], limit: int) -> Iterator[pl.DataFrame]:
    """Tables of whole sequences cut and joined anew: as many sequences as `limit` rows hold, at least one."""
    held = None
    for frame in frames:
        held = frame if held is None else pl.concat([held, frame])
        if len(held) <= limit:
            continue
        ends, begin = sequence_offsets(held["sequence"].to_numpy())[1:], 0
        while len(held) - begin > limit:
            at_least = np.searchsorted(ends, begin, side="right")
            at_most = np.searchsorted(ends, begin + limit, side="right") - 1
            end = int(ends[max(at_least, at_most)])
            yield held[begin:end]
            begin = end
        held = held[begin:] if begin < len(held) else None
    if held is not None:
        yield held


def write(
    path: Path, blocks: Iterable[pl.DataFrame], format: str | None = None, separator: str | None = None,
    unknown: str | None = None, set_separator: str | None = None,
) -> dict[str, int]:  # fmt: skip
    """Write blocks as conll, jsonl or arrow, compressed where the name ends in .gz or .zst: a whole file or none."""
    name, item = format_of(path, format)
    if item.writer is None:
        known = ", ".join(key for key, value in FORMATS.items() if value.writer)
        raise EspalierError(f"{path}: format {name!r} cannot be written: choose one of {known}")
    return writing.write_blocks(Path(path), blocks, item.writer, separator, unknown, set_separator)
