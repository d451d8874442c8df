"""Trees in Penn brackets, each on one line or many, and lines of words without one.

A tree becomes labels of its words, pieces as CoNLL-2012 has them (`engine.labels.trees`). Column 0 is the word, column
1 its tag; a word without a tree stands in both, and its label is not known. Where brackets have no labels
(`ingest.bare`) a line is a string whose brackets a tree must not cross.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from espalier.engine.errors import EspalierError
from espalier.engine.labels.trees import LocatedTree, Tree, bracketed, cleaned, leaves, located, pieces
from espalier.tasks.formats.lines import check_utf8
from espalier.tasks.formats.reading import Reading, at
from espalier.tasks.formats.streams import after_line, chunks

OPEN, CLOSE, NEW_LINE = b"()\n"
WITHOUT_TREE, EMPTY_TREES = "without a tree", "empty trees"  # what notes call them


def after_tree(data: bytes | bytearray) -> int:
    """The place behind the last line end that is outside of all brackets, 0 where there is none."""
    signs = np.frombuffer(data, np.uint8)
    depth = np.cumsum((signs == OPEN).astype(np.int64) - (signs == CLOSE))
    ends = np.flatnonzero((signs == NEW_LINE) & (depth <= 0))
    return int(ends[-1]) + 1 if len(ends) else 0


def read(path: Path, options: Reading, labelled: bool, size: int, notes: dict) -> Iterator[pl.DataFrame]:
    """Tables sequence, line, x0, x1, label."""
    number = 0
    for data, before in chunks(path, size, after_line if options.bare else after_tree):
        check_utf8(data, path, before)
        found = (_bare if options.bare else located)(data.decode(), str(path), before)
        rows = [row for one in found if (row := _row(one, options, path, notes)) is not None]
        if not rows:
            continue
        lines, words, tags, labels = zip(*rows, strict=True)
        lengths = [len(some) for some in words]
        columns = {
            "sequence": np.repeat(np.arange(number, number + len(rows), dtype=np.int32), lengths),
            "line": np.repeat(np.array(lines, np.int64), lengths), "x0": _flat(words), "x1": _flat(tags),
        }  # fmt: skip
        yield pl.DataFrame(columns | ({"label": _flat(labels)} if labelled else {}))
        number += len(rows)
    if not number:
        raise EspalierError(f"{path}: holds no tree and no word; expected trees such as (S (NP rain) (VP fell))")


def _bare(text: str, name: str, before: int) -> Iterator[LocatedTree]:
    for line, one in enumerate(text.split("\n"), before + 1):
        if one.strip():
            yield LocatedTree(line, bracketed(one, name, line), [])


def _row(
    found: LocatedTree, options: Reading, path: Path, notes: dict
) -> tuple[int, list[str], list[str], list[str]] | None:
    """(line, words, tags, labels) of a tree or a string; None where nothing is left of it."""
    if found.tree is None:
        notes[WITHOUT_TREE] = notes.get(WITHOUT_TREE, 0) + 1
        return found.line, found.words, found.words, [""] * len(found.words)
    tree: Tree | None = found.tree if options.bare else cleaned(found.tree, options.functions)
    if tree is None:
        notes[EMPTY_TREES] = notes.get(EMPTY_TREES, 0) + 1
        return None
    try:
        labels = pieces(tree)
    except EspalierError as error:
        raise EspalierError(f"{at(path, found.line)}: {error}") from None
    words = [word for _, word in leaves(tree)]
    return found.line, words, words if options.bare else [tag for tag, _ in leaves(tree)], labels


def _flat(texts) -> pl.Series:
    return pl.Series([text for some in texts for text in some], dtype=pl.String)
