"""Calibration: whether a stated 90 % is right nine times in ten."""

from typing import Any

from tasks import charts
from tasks.page import Html, capital, facts, figure, join, lead, message, number, percent, plural, table, tag
from tasks.report.words import Metrics, Nouns


def calibration(bins: list[dict[str, Any]], m: Metrics, nouns: Nouns) -> Html:
    """Whether a stated 90 % is right nine times in ten."""
    filled = [b for b in bins if b.get("count")]
    if not filled:
        return message("There is no confidence to check: the test data are empty.")
    unit = plural(nouns.token)
    note = f"dots on the dashed line are honest; the bars count the {unit} of each bin"
    diagram = charts.reliability("reliability", "Reliability diagram", filled, unit)
    beside = tag("div", calibration_words(filled, m), bin_table(filled, unit))
    opening = lead("When the model states a confidence, how often is it right?")
    return join([opening, tag("div", figure("Reliability", diagram, note), beside, class_="split")])


def calibration_words(bins: list[dict[str, Any]], m: Metrics) -> Html:
    fullest = max(bins, key=lambda b: b["count"])
    stated, right = percent(fullest["confidence"]), percent(fullest["accuracy"])
    error = facts([("Expected calibration error", percent(m.get("calibration_error"), 2))], "facts one")
    meaning = "The mean distance between confidence and accuracy, each bin weighed by its size."
    case = f"Where the model states about {stated}, it is right {right} of the time."
    return join([error, tag("p", f"{meaning} {case}")])


def bin_table(bins: list[dict[str, Any]], unit: str) -> Html:
    names = (f"{percent(b['bin_low'], 0)}–{percent(b['bin_high'], 0)}" for b in bins)
    figures = ((percent(b["confidence"]), percent(b["accuracy"]), number(b["count"])) for b in bins)
    rows = [(name, *row) for name, row in zip(names, figures, strict=True)]
    return table("Bins of stated confidence", ("Bin", "Stated", "Right", capital(unit)), rows, (1, 2, 3))
