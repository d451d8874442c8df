"""What a reader is told, and how an error says where something stands."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from espalier.engine.errors import EspalierError

DOCSTART = "-DOCSTART-"
# Control characters, what stands for characters that were lost, and what cannot be seen: no-break and zero-width
# spaces, byte order marks, marks of direction. Joiners belong to the spelling of some languages, but to no label.
STRANGE = (
    r"[\x00-\x1f\x7f-\xa0\u{fffd}\u{feff}\u{200b}\u{200e}\u{200f}\u{202a}-\u{202e}\u{2060}-\u{2064}\u{2066}-\u{2069}]"
)
EXTRA = ("sequence", "file", "line", "label")  # the columns of a block that are no inputs


@dataclass(frozen=True)
class Reading:
    """How files are to be read; the defaults are those of the parameters."""

    format: str | None = None  # a name in FORMATS; None: by the name of the file
    separator: str | None = None  # conll: between columns; None: any run of blanks and tabs
    comment: str | None = None  # conll: lines that begin with this are left out
    docstart: str | None = DOCSTART  # conll: lines with this in the first column are left out and end a sequence
    label_column: int = -1  # conll: which column is the label
    inputs: int | None = None  # the number of input columns that each file must have; None: as the first file
    columns: tuple[str, ...] | None = None  # the other formats: names of the input columns
    label: str | None = None  # the other formats: name of the label column
    sequence: str | None = None  # arrow, parquet with a row for each token: the column that tells sequences apart
    unknown: str | None = None  # the label of tokens whose label is not known; None: there is none
    set_separator: str | None = None  # between the labels of a token that has one of them; None: no such labels
    scheme_in: str | None = None  # the tagging scheme of the files; None: as the labels show
    scheme_out: str | None = None  # the scheme that labels are converted to; None: they stay as they are
    functions: bool = False  # brackets: labels keep their functional tags
    bare: bool = False  # brackets: they have no labels, and each line is a string


def at(path: Path | str, number: int, unit: str = "line") -> str:
    """`line 12 of some.conll`."""
    return f"{unit} {number} of {path}"


def nothing_in(path: Path) -> EspalierError:
    return EspalierError(f"{path}: holds no token; expected one token a line and an empty line after each sequence")


def input_names(frame: pl.DataFrame) -> list[str]:
    """x0, x1, … in order."""
    return [name for name in frame.columns if name not in EXTRA]


def first_line(frame: pl.DataFrame, mask: pl.Expr) -> int | None:
    """The line of the first token for which the expression holds."""
    found = frame.lazy().filter(mask).select("line").head(1).collect()
    return found["line"][0] if len(found) else None
