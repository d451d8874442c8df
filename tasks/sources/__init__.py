"""Sources of data: each yields sequences as token tables, block by block, with what is known about them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import polars as pl

from espalier.engine.labels.measures import BRACKET_F1
from espalier.engine.labels.trees import tag_of
from espalier.tasks.store import SET_MARK

# Called once for each pass over the data. A block holds whole sequences; `sequence` numbers on through the blocks.
Blocks = Callable[[], Iterable[pl.DataFrame]]


@dataclass
class Corpus:
    """Tokens of one or more parts; `parts["train"]` is split further where dev or test are missing."""

    parts: dict[str, Blocks]  # sequence int32, x0, x1, …, label (absent in unlabelled)
    source: str
    nouns: dict[str, str]
    truth: dict | None = None
    notes: dict = field(default_factory=dict)
    measure: dict | None = None  # what the data are judged by, as `engine.labels.measures.measure_of` takes it
    reading: dict | None = None  # how its files are read, for the model to do the same; see tasks.answering.own_format

    def whole(self, part: str) -> pl.DataFrame:
        """All tokens of a part in one table, for what is small."""
        return pl.concat(self.parts[part]())

    def info(self) -> dict:
        names = ("source", "nouns", "truth", "measure", "reading")
        return {name: getattr(self, name) for name in names}


def is_trees(info: Mapping) -> bool:
    """Whether the labels of token tables are pieces of trees; `info` is what is known about them."""
    return (info.get("measure") or {}).get("name") == BRACKET_F1


def with_tags(tokens: pl.DataFrame) -> pl.DataFrame:
    """The tokens with their tags in place of pieces of trees; without labels where brackets have none."""
    if "label" not in tokens.columns:
        return tokens
    every = tokens["label"].unique()
    tags = pl.Series([tag_of(piece) for piece in every], dtype=pl.String)
    if any(piece and not tag for piece, tag in zip(every, tags, strict=True)):
        return tokens.drop("label")
    return tokens.with_columns(label=pl.col("label").replace_strict(every, tags, return_dtype=pl.String))


def in_one_block(tokens: pl.DataFrame) -> Blocks:
    """A part that is in memory as a whole."""
    return lambda: [tokens]


def not_known() -> pl.Expr:
    """Whether the label of a token is unknown, or a set of labels."""
    return pl.col("label").eq("") | pl.col("label").str.contains(SET_MARK, literal=True)


def input_columns(tokens: pl.DataFrame) -> list[str]:
    """x0, x1, … in order."""
    return [name for name in tokens.columns if name not in ("sequence", "label")]
