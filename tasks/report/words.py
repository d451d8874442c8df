"""What all sections of the report speak with: the nouns of the data, tagged sequences, names as code."""

from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from espalier.tasks.judging import headline
from espalier.tasks.pages.page import Html, escape, join, tag

Trace = list[dict[str, Any]]
Metrics = dict[str, Any]


class Nouns(NamedTuple):
    """What a token, a label and a sequence are called in this data."""

    token: str = "token"
    label: str = "label"
    sequence: str = "sequence"

    def called(self, measure: str) -> dict[str, str]:
        """What each measure is called where the task is judged by `measure`."""
        return headline.names(measure, self._asdict())


NO_ANSWER = "none"  # where a model says nothing of a token, as of those that a grammar cannot derive


class Tagged(NamedTuple):
    """One test sequence: a list for each column."""

    tokens: list[str]
    gold: list[str]
    said: list[str]
    confidence: list[float | None]  # None for a model without probabilities
    gold_probability: list[float | None]

    def wrong(self) -> list[int]:
        return [t for t, (gold, said) in enumerate(zip(self.gold, self.said, strict=True)) if gold != said]


def tagged(predictions: pa.Table) -> list[Tagged]:
    """Rows of the table gathered into sequences."""
    names = ("sequence", "x0", "label", "predicted", "confidence", "gold_probability")
    columns = [predictions.column(name).to_pylist() for name in names]
    columns[3] = [said or gold and NO_ANSWER for gold, said in zip(columns[2], columns[3], strict=True)]
    rows = zip(*columns, strict=True)
    groups = (list(group) for _, group in groupby(rows, key=lambda row: row[0]))
    return [Tagged(*map(list, list(zip(*group, strict=True))[1:])) for group in groups]


def code(text: str) -> Html:
    return tag("code", text)


def plain(value: Any) -> Html:
    """A parameter as a person would write it; a long list by its length."""
    if isinstance(value, list | tuple):
        return join(map(plain, value), ", ") if len(value) <= 3 else escape(f"{len(value)} entries")
    if value is None or isinstance(value, bool):
        return code({True: "yes", False: "no", None: "not set"}[value])
    return code(f"{value:g}" if isinstance(value, float) else str(value))
