"""Where the errors are: by length of the sequence and by how often the input stood in training."""

from typing import Any

import numpy as np
import pyarrow as pa

from espalier.tasks.judging import headline
from espalier.tasks.judging.slices import by_frequency, by_length
from espalier.tasks.pages import charts
from espalier.tasks.pages.page import (
    Html,
    capital,
    count,
    figure,
    join,
    lead,
    message,
    number,
    percent,
    plural,
    table,
    tag,
)
from espalier.tasks.report.words import Metrics, Nouns
from espalier.tasks.store import sequence_offsets

WIDTHS = {1: "", 3: " with the one before and the one behind it", 5: " with two either side"}


class SliceColumns:
    """What slices are made of: where sequences begin, which positions are wrong, how often each input was seen."""

    def __init__(self, predictions: pa.Table) -> None:
        self.offsets = sequence_offsets(predictions.column("sequence").to_numpy())
        labels = (predictions.column(name).to_numpy(zero_copy_only=False) for name in ("label", "predicted"))
        self.wrong = np.not_equal(*labels).astype(bool)
        self.confidence = predictions.column("confidence").to_numpy()
        known = "seen" in predictions.column_names
        self.seen = predictions.column("seen").to_numpy() if known else None


def slices(found: SliceColumns, window: int, m: Metrics, nouns: Nouns) -> Html:
    """Both charts with their tables."""
    if not len(found.wrong):
        return message("There are no predictions: the test data are empty.")
    rows = by_length(found.wrong, found.offsets)
    panels = [length_figure(rows, m, nouns)]
    tables = [length_table(rows, m, nouns)]
    if found.seen is not None:
        seen = by_frequency(found.wrong, found.seen, found.offsets)
        panels.append(frequency_figure(seen, window, m, nouns))
        tables.append(frequency_table(seen, window, m, nouns))
    opening = lead(
        f"The share of wrong {plural(nouns.label)} with intervals of 95%, which allow for the {plural(nouns.token)} "
        f"of one {nouns.sequence} going wrong together. The dashed line is the error of all."
    )
    whole = tag("details", tag("summary", "Both as tables"), *tables)
    return join([opening, tag("div", *panels, class_="panels"), whole])


def ranges(rows: list[dict[str, Any]], names: list[str]) -> list[charts.Range]:
    keys = ("error", "error_low", "error_high")
    notes = (number(row["tokens"]) for row in rows)
    return [charts.Range(n, *(row[k] for k in keys), note) for n, row, note in zip(names, rows, notes, strict=True)]


def span(low: int, high: int | None) -> str:
    """`5`, `2–5`, `1,001 or more`."""
    if high is None:
        return f"{number(low)} or more"
    return number(low) if low == high else f"{number(low)}–{number(high)}"


def wrong_tokens(m: Metrics, nouns: Nouns) -> str:
    """What these data call the share of tokens with a wrong label, which is what is drawn here."""
    return nouns.called(headline.measure_in(m))[headline.TOKEN]


def length_figure(rows: list[dict[str, Any]], m: Metrics, nouns: Nouns) -> Html:
    title, drawn = f"By length of the {nouns.sequence}", ranges(rows, [span(r["low"], r["high"]) for r in rows])
    ways = {"whole": m.get("token_error"), "note_name": plural(nouns.token)}
    chart = charts.range_chart("by-length", title, wrong_tokens(m, nouns), drawn, **ways)
    return figure(title, chart, f"{plural(nouns.token)} in a {nouns.sequence}, error, and how many there are")


def seen_words(row: dict[str, Any]) -> str:
    """`unseen`, `once`, `2–5`, `over 1,000`: short, so that they fit beside the chart."""
    if row["high"] is None:
        return f"over {number(row['low'] - 1)}"
    return {0: "unseen", 1: "once"}.get(row["high"], span(row["low"], row["high"]))


def frequency_figure(rows: list[dict[str, Any]], window: int, m: Metrics, nouns: Nouns) -> Html:
    title, drawn = "By frequency of the input", ranges(rows, [seen_words(r) for r in rows])
    ways = {"whole": m.get("token_error"), "note_name": plural(nouns.token)}
    chart = charts.range_chart("by-frequency", title, wrong_tokens(m, nouns), drawn, **ways)
    return figure(title, chart, f"how often the {nouns.token}{WIDTHS[window]} stood in the training data")


def interval(row: dict[str, Any], key: str) -> str:
    return f"{percent(row[f'{key}_low'])}–{percent(row[f'{key}_high'])}"


def length_table(rows: list[dict[str, Any]], m: Metrics, nouns: Nouns) -> Html:
    heads = (capital(plural(nouns.token)), capital(plural(nouns.sequence)), "Errors", capital(wrong_tokens(m, nouns)),
             "95%", f"{capital(plural(nouns.sequence))} with one", "95%")  # fmt: skip
    cells = [
        (span(r["low"], r["high"]), number(r["sequences"]), number(r["errors"]), percent(r["error"]),
         interval(r, "error"), percent(r["sequence_error"]), interval(r, "sequence_error"))
        for r in rows
    ]  # fmt: skip
    return table(f"By length of the {nouns.sequence}", heads, cells, range(1, 7), "stack")


def frequency_table(rows: list[dict[str, Any]], window: int, m: Metrics, nouns: Nouns) -> Html:
    heads = ("Seen in training", capital(plural(nouns.token)), "Errors", capital(wrong_tokens(m, nouns)), "95%")
    cells = [
        (seen_words(r), number(r["tokens"]), number(r["errors"]), percent(r["error"]), interval(r, "error"))
        for r in rows
    ]
    caption = f"By how often the {nouns.token}{WIDTHS[window]} was seen, {count(len(rows), 'slice')}"
    return table(caption, heads, cells, range(1, 5), "stack")
