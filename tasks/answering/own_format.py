"""What a model remembers of the files that it was trained on, so that it reads and answers as they were written.

Ingest writes it into the token tables, training into the model file (`info["reading"]`). A model without it, of an
earlier version or from Python, is read with the defaults. Nothing here loads Polars.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError, quoted
from espalier.engine.labels.spans import MARKS

# As in tasks.formats, which would load Polars; a test compares them. What is not named here is in columns.
SUFFIXES = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".conllu": "conllu", ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".arrows": "arrow",
    ".crfsuite": "crfsuite", ".mrg": "brackets", ".penn": "brackets", ".brackets": "brackets", ".ptb": "brackets",
    ".svm": "libsvm", ".libsvm": "libsvm", ".svmlight": "libsvm",
}  # fmt: skip
COMPRESSED = (".gz", ".zst")
SCHEMES = ("iob1", "iob2", "bioes", "bilou")
LETTERS = {"iob1": "BIIB", "iob2": "BIIB", "bioes": "BIES", "bilou": "BILU"}  # of begin, inside, end, single
OPENERS, CLOSERS = "BI", "ESLU"  # after these an entity may go on, or has ended


@dataclass(frozen=True)
class OwnFormat:
    """The parameters that the training files were read with, and the scheme that their labels had."""

    format: str | None = None
    separator: str | None = None
    comment: str | None = None
    docstart: str | None = "-DOCSTART-"
    label_column: int = -1
    inputs: int | None = None  # how many input columns they had
    columns: tuple[str, ...] | None = None
    label: str | None = None
    sequence: str | None = None
    unknown: str | None = None
    functions: bool = False
    bare: bool = False
    scheme: str | None = None  # of the labels in the files, where they were converted to another one

    @classmethod
    def of(cls, info: dict) -> "OwnFormat":
        """As the info of a model has it."""
        found = info.get("reading") or {}
        known = {field.name for field in fields(cls)}
        made = {name: found[name] for name in known & set(found)} if isinstance(found, dict) else None
        if made is None or not all(_is_good(name, value) for name, value in made.items()):
            raise EspalierError(f"the model says {quoted(str(found))} of its files, which is no format; train it again")
        return cls(**made | ({"columns": tuple(made["columns"])} if made.get("columns") else {}))


def _is_good(name: str, value) -> bool:
    if name in ("functions", "bare"):
        return isinstance(value, bool)
    if name in ("label_column", "inputs"):
        return isinstance(value, int) or (name == "inputs" and value is None)
    if name == "columns":
        return value is None or (isinstance(value, list | tuple) and all(isinstance(item, str) for item in value))
    return value is None or (isinstance(value, str) and bool(value) and (name != "scheme" or value in SCHEMES))


def format_of(file: str, asked: str | None, own: OwnFormat) -> str:
    """The format of a file to be tagged: the one that was asked for, else by its name, else as in training."""
    if asked:
        return asked
    if file == "-":
        return "crfsuite" if own.format == "crfsuite" else "conll"  # columns have no room for attributes
    path = Path(file)
    suffix = (Path(path.stem) if path.suffix.lower() in COMPRESSED else path).suffix.lower()
    return SUFFIXES.get(suffix) or ("conll" if suffix else own.format or "conll")


# Lines that are not labelled ------------------------------------------------------------------------


class Passed(NamedTuple):
    """A line that is not a token: the start of a document, which ends a sequence, or a comment, which does not."""

    number: int  # of the line in its file
    text: bytes
    ends: bool
    gap: bool  # an empty line comes after it

    @property
    def written(self) -> bytes:
        return self.text + (b"\n\n" if self.gap else b"\n")


def set_aside(text: bytes, own: OwnFormat, separator: str | None, first_line: int) -> tuple[bytes, list[Passed]]:
    """The text with such lines made empty, and these lines."""
    marks = [mark.encode() for mark in (own.docstart, own.comment) if mark]
    if not any(mark in text for mark in marks):
        return text, []
    lines, found = text.split(b"\n"), []
    for i, line in enumerate(lines):
        comment = bool(own.comment) and line.startswith(own.comment.encode())
        if comment or _starts_document(line.rstrip(b"\r"), own.docstart, separator):
            gap = i + 1 < len(lines) - 1 and not lines[i + 1].strip(b" \t\r")
            found.append(Passed(first_line + i, line.rstrip(b"\r"), not comment, gap))
            lines[i] = b""
    return b"\n".join(lines), found


def _starts_document(line: bytes, docstart: str | None, separator: str | None) -> bool:
    """As `tasks.formats.conll` has it: the mark is the first column."""
    if not docstart:
        return False
    mark = docstart.encode()
    line, gaps = (line, (separator.encode(),)) if separator else (line.strip(b" \t"), (b" ", b"\t"))
    return line == mark or any(line.startswith(mark + gap) for gap in gaps)


def joined_over_comments(offsets: np.ndarray, line: np.ndarray, passed: list[Passed]) -> np.ndarray:
    """The offsets of sequences without those where nothing but comments stands between two tokens."""
    comments = np.array([one.number for one in passed if not one.ends], np.int64)
    inner = offsets[1:-1]
    before, after = line[inner - 1], line[inner]
    between = np.searchsorted(comments, after) - np.searchsorted(comments, before)
    return np.concatenate([offsets[:1], inner[between < after - before - 1], offsets[-1:]])


# Labels in another scheme ---------------------------------------------------------------------------


class Letters:
    """The labels of a model in another scheme: entities are read by `engine.labels.spans` and written anew."""

    def __init__(self, labels: list[str], scheme: str):
        self.scheme = scheme
        entity = [label[:2] in MARKS and len(label) > 2 for label in labels]
        kinds = list(dict.fromkeys(label[2:] for label, chosen in zip(labels, entity, strict=True) if chosen))
        self.names = [*labels, *(f"{letter}-{kind}" for kind in kinds for letter in LETTERS[scheme])]
        self.first = len(labels)  # where the new names begin: four for each kind
        self.kind = np.array([kinds.index(y[2:]) if e else -1 for y, e in zip(labels, entity, strict=True)] + [-1])
        self.opens = np.array([e and y[0] in OPENERS for y, e in zip(labels, entity, strict=True)] + [False])
        self.goes_on = np.array([e and y[0] in "IEL" for y, e in zip(labels, entity, strict=True)] + [False])

    def __call__(self, codes: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Numbers in `names` for numbers of labels, int32 [T]; -1 stays."""
        first = np.zeros(len(codes), bool)
        first[offsets[:-1]] = True
        kind = self.kind[codes]
        same = ~first & (np.roll(kind, 1) == kind) & (kind >= 0)
        goes_on = same & np.roll(self.opens[codes], 1) & self.goes_on[codes]
        ends = np.append(first[1:], True) | ~np.append(goes_on[1:], False)
        if self.scheme == "iob1":
            letter = np.where(same & ~goes_on, 0, 1)
        else:
            letter = np.where(goes_on, np.where(ends, 2, 1), np.where(ends, 3, 0))
        return np.where(kind >= 0, self.first + 4 * kind + letter, codes).astype(np.int32)
