"""Sources of data: each yields sequences as a token table, with what is known about them."""

from dataclasses import dataclass, field

import polars as pl


@dataclass
class Corpus:
    """Tokens of one or more parts; `parts["train"]` is split further where dev or test are missing."""

    parts: dict[str, pl.DataFrame]  # sequence int32, x0, x1, …, label (absent in unlabelled)
    source: str
    nouns: dict[str, str]
    truth: dict | None = None
    notes: dict = field(default_factory=dict)

    def info(self) -> dict:
        return {"source": self.source, "nouns": self.nouns, "truth": self.truth}


def input_columns(tokens: pl.DataFrame) -> list[str]:
    """x0, x1, … in order."""
    return [name for name in tokens.columns if name not in ("sequence", "label")]
