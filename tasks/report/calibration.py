"""Calibration: whether a stated 90 % is right nine times in ten."""

from typing import Any

from espalier.tasks.judging.slices import Rate
from espalier.tasks.pages import charts
from espalier.tasks.pages.page import (
    MISSING,
    Html,
    capital,
    facts,
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


def calibration(bins: list[dict[str, Any]] | None, error: Rate, m: Metrics, nouns: Nouns) -> Html | None:
    """Whether a stated 90 % is right nine times in ten; nothing for a model that states none."""
    if bins is None:
        return None
    filled = [b for b in bins if b.get("count")]
    if not filled:
        return message("There is no confidence to check: the test data are empty.")
    unit = plural(nouns.token)
    note = f"dots on the dashed line are honest, whiskers are intervals of 95%; the bars count the {unit} of each bin"
    diagram = charts.reliability("reliability", "Reliability diagram", filled, unit)
    beside = tag("div", calibration_words(filled, error, m), bin_table(filled, unit))
    opening = lead("When the model states a confidence, how often is it right?")
    return join([opening, tag("div", figure("Reliability", diagram, note), beside, class_="split")])


def calibration_words(bins: list[dict[str, Any]], found: Rate, m: Metrics) -> Html:
    fullest = max(bins, key=lambda b: b["count"])
    stated, right = percent(fullest["confidence"]), percent(fullest["accuracy"])
    error = facts([("Expected calibration error", percent(m.get("calibration_error"), 2))], "facts one")
    meaning = "The mean distance between confidence and accuracy, each bin weighed by its size."
    case = f"Where the model states about {stated}, it is right {right} of the time."
    between = f"Between {percent(found.low, 2)} and {percent(found.high, 2)} in resamples of the test data. "
    return join([error, tag("p", f"{between if found.low is not None else ''}{meaning} {case}")])


def bin_table(bins: list[dict[str, Any]], unit: str) -> Html:
    rows = [
        (f"{percent(b['bin_low'], 0)}–{percent(b['bin_high'], 0)}", percent(b["confidence"]), percent(b["accuracy"]),
         between(b), number(b["count"]))
        for b in bins
    ]  # fmt: skip
    heads = ("Bin", "Stated", "Right", "95%", capital(unit))
    return table("Bins of stated confidence", heads, rows, (1, 2, 3, 4), "bins")


def between(b: dict[str, Any]) -> str:
    """The interval of a bin's accuracy, in whole percents to fit a phone."""
    low, high = b.get("accuracy_low"), b.get("accuracy_high")
    return MISSING if low is None else f"{100 * low:.0f}–{100 * high:.0f}"
