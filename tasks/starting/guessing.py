"""The form of a file by a look at its beginning: format, separator, comments, which column is the label.

A guess is never the last word: the readers of tasks/formats check every line, and their errors say where.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from espalier.engine.errors import EspalierError
from espalier.engine.labels.spans import marks_entities
from espalier.tasks import formats
from espalier.tasks.formats import Reading
from espalier.tasks.formats.streams import BOM, pieces
from espalier.tasks.formats.tables import ARROW_FILE
from espalier.tasks.starting import treebanks

HEAD_BYTES = 1 << 20  # that are looked at
SEPARATORS = {None: "blanks or tabs", "\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
LABEL_NAMES = ("labels", "label", "tags", "ner_tags", "pos_tags", "tag")  # of fields that people use
TOKEN_NAMES = ("tokens", "words", "token", "word")
FEW = 0.5  # a label has fewer values than this share of its tokens, where there are enough to tell
ENOUGH = 20


class Guess(NamedTuple):
    """How a file is to be read, and what was decided without being told, a sentence each."""

    how: Reading
    said: list[str]


def guess(path: Path, told: Reading) -> Guess:
    """How a file is read; what `told` says is not guessed."""
    head = head_of(path)
    name, said = _format(path, head, told)
    how = replace(told, format=name if said or told.format else None)
    if name == "conll":
        return _columns(path, head, how, said)
    if name == "conllu" and not told.columns and not told.label:
        said.append("label: UPOS; the input is FORM alone, because the other columns are mostly made together with the "
                    "label (ingest.columns names more)")  # fmt: skip
        return Guess(replace(how, columns=("FORM",)), said)
    if name == "jsonl":
        return _fields(head, how, said)
    if name == "brackets" and treebanks.is_bare(_lines(head)):
        said.append("brackets have no labels: a line is a string whose brackets no tree may cross")
        return Guess(replace(how, bare=True), said)
    return Guess(how, said)


def head_of(path: Path) -> bytes:
    """The first bytes of a file, unpacked."""
    head = b""
    for piece in pieces(path):
        head += piece
        if len(head) >= HEAD_BYTES:
            break
    return head[:HEAD_BYTES]


def _format(path: Path, head: bytes, told: Reading) -> tuple[str, list[str]]:
    """The name of the format, and what is to be said of it: the content counts where the name tells none or columns."""
    if told.format:
        return formats.format_of(path, told.format)[0], []
    try:
        by_name = formats.detect(path)
    except EspalierError:
        by_name = None
    seen = _by_content(path, head)
    if by_name == seen or by_name not in (None, "conll"):
        return by_name, []
    what = formats.FORMATS[seen].help
    return seen, [f"format: {seen} ({what}), by what the file holds; its name says "
                  + ("columns" if by_name else "nothing")]  # fmt: skip


def _by_content(path: Path, head: bytes) -> str:
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(ARROW_FILE):
        return "arrow"
    begin = head.removeprefix(BOM).lstrip()
    if begin.startswith(b"{"):
        return "jsonl"
    if re.match(rb"\[\s*\{", begin):
        raise EspalierError(f"{path}: is a list of JSON; expected an object on each line, as `jq -c '.[]'` writes")
    if treebanks.begins_with_tree(begin):
        return "brackets"
    lines = [line for line in _lines(head) if not line.startswith("#")]
    if lines and all(re.match(r"[0-9]+([.-][0-9]+)?\t", line) and line.count("\t") == 9 for line in lines):
        return "conllu"
    return "conll"


def _lines(head: bytes) -> list[str]:
    """The lines that hold something; the last may be cut, unless it is all there is."""
    lines = head.removeprefix(BOM).decode("utf-8", "replace").splitlines()
    lines = lines[:-1] if len(head) == HEAD_BYTES else lines
    return [line for line in lines if line.strip(" \t")]


# Columns --------------------------------------------------------------------------------------------


def _columns(path: Path, head: bytes, how: Reading, said: list[str]) -> Guess:
    """Separator, comments and label of a file in columns."""
    lines = [line for line in _lines(head) if not (how.docstart and line.startswith(how.docstart))]
    comment = how.comment
    lines = [line for line in lines if not (comment and line.startswith(comment))]
    for separator in (how.separator,) if how.separator else SEPARATORS:
        for mark in (None,) if comment else (None, "#"):
            rows = [_cells(line, separator) for line in lines if not (mark and line.startswith(mark))]
            widths = {len(row) for row in rows}
            if len(widths) == 1 and min(widths) > 1:
                how = replace(how, separator=separator, comment=comment or mark)
                return _labelled(rows, how, [*said, *_told_columns(lines, mark, separator, len(rows[0]))])
    readable = lines and not any("\ufffd" in line for line in lines)
    if readable and all(len(_cells(line, None)) == 1 for line in lines):
        raise EspalierError(
            f"{path}: holds one column; expected the token and its label, such as `Espalier B-ORG`, or name the "
            "format (--from) or what stands between columns (--separator)"
        )
    return Guess(how, said)  # its reader will say what is wrong, and where


def _cells(line: str, separator: str | None) -> list[str]:
    return line.split(separator) if separator else re.split(r"[ \t]+", line.strip(" \t"))


def _told_columns(lines: list[str], mark: str | None, separator: str | None, width: int) -> list[str]:
    said = [f"columns: {width}, between {SEPARATORS.get(separator, repr(separator))}"]
    if mark:
        count = sum(line.startswith(mark) for line in lines)
        said.append(f"comments: lines that begin with {mark} ({count:,} at the beginning of the file) are left out")
    return said


def _labelled(rows: list[list[str]], how: Reading, said: list[str]) -> Guess:
    if how.label_column != -1:
        return Guess(how, said)
    column = label_column(list(zip(*rows, strict=True)))
    if column == len(rows[0]) - 1:
        return Guess(how, [*said, "label: the last column"])
    entities = marks_entities({row[column] for row in rows})
    why = "its values mark entities" if entities else "the last has too many values"
    return Guess(replace(how, label_column=column), [*said, f"label: column {column} (the first is 0), because {why}"])


def label_column(columns: Sequence[Sequence[str]]) -> int:
    """The last column whose values mark entities; else the last, or where that has too many values the one with least.

    Wrong guesses are easily seen: `espalier init` prints the labels.
    """
    marking = [i for i, values in enumerate(columns) if marks_entities(values)]
    if marking:
        return marking[-1]
    last, sizes = len(columns) - 1, [len(set(values)) for values in columns]
    if len(columns[last]) < ENOUGH or sizes[last] <= FEW * len(columns[last]):
        return last
    return min(range(len(columns)), key=lambda i: (sizes[i], -i))


# JSON lines -----------------------------------------------------------------------------------------


def _fields(head: bytes, how: Reading, said: list[str]) -> Guess:
    """The fields of tokens and labels, by the names that people use."""
    try:
        record = json.loads(next(iter(_lines(head)), ""))
    except (ValueError, RecursionError):
        return Guess(how, said)
    lists = [key for key, value in record.items() if isinstance(value, list)] if isinstance(record, dict) else []
    label = how.label or next((name for name in LABEL_NAMES if name in lists), None)
    tokens = how.columns or next(((name,) for name in TOKEN_NAMES if name in lists), None)
    if label is None or tokens is None:
        return Guess(how, said)
    if label != "labels" and not how.label:
        how, said = replace(how, label=label), [*said, f"label: the field {label!r}"]
    if tokens != ("tokens",) and not how.columns:
        how, said = replace(how, columns=tuple(tokens)), [*said, f"tokens: the field {tokens[0]!r}"]
    return Guess(how, said)
