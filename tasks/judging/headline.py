"""What a task is judged by, in words: names of measures, their figures, and a decision that rests on them.

Lines of a history, metrics and decisions of earlier versions name no measure; they are read as they were meant.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from espalier.engine.labels.measures import BRACKET_F1, EDIT_ERROR, F1, NAMES, TOKEN_ERROR
from espalier.tasks.pages.page import MISSING, percent, plural, points

TOKEN, ENTITIES = TOKEN_ERROR.name, F1.name
# Where rows of several tasks stand together.
HEADS = {ENTITIES: "F1", EDIT_ERROR: "edit error", BRACKET_F1: "bracket F1", TOKEN: "token error"}


def measure_in(figures: Mapping[str, Any]) -> str:
    """The key of the measure that metrics or a line of the history are headed by."""
    named = figures.get("measure")
    if named in NAMES:
        return named
    return ENTITIES if figures.get(ENTITIES) is not None else TOKEN


def names(measure: str, nouns: Mapping[str, str]) -> dict[str, str]:
    """What each measure is called in data with these nouns that are judged by `measure`.

    Where the labels of a sequence spell a string, errors of labels are errors of that string; wrong tokens are less.
    """
    spelt = measure == EDIT_ERROR
    return {
        ENTITIES: "F1 of entities",
        EDIT_ERROR: f"{nouns['label']} error",
        BRACKET_F1: "F1 of brackets",
        TOKEN: f"{plural(nouns['token'])} wrong" if spelt else f"{nouns['label']} error",
        "sequence_error": f"{nouns['sequence']} error",
    }


def shown(measure: str) -> tuple[str, ...]:
    """Keys of the measures of errors, the headline first."""
    return tuple(dict.fromkeys((measure, TOKEN, "sequence_error")))


def ends(figures: Mapping[str, Any], measure: str) -> tuple[str, str] | None:
    """Both ends of the interval in words; None where none is on record."""
    low, high = (figures.get(f"{measure}_{end}") for end in ("low", "high"))
    return None if None in (low, high) else (percent(low, 2), percent(high, 2))


def written(figures: Mapping[str, Any], measure: str) -> str:
    """`79.20% (78.10% to 80.20%)`, without what is not on record."""
    interval = ends(figures, measure)
    return percent(figures.get(measure), 2) + (f" ({interval[0]} to {interval[1]})" if interval else "")


def between(figures: Mapping[str, Any], measure: str) -> str | None:
    """`between 78.10% and 80.20% in resamples of the test data`, for a page."""
    interval = ends(figures, measure)
    return f"between {interval[0]} and {interval[1]} in resamples of the test data" if interval else None


def in_one_line(metrics: Mapping[str, Any], nouns: Mapping[str, str]) -> str:
    """`F1 of entities 79.20% (78.10% to 80.20%), label error 4.80%, sequence error 31.00%`."""
    measure = measure_in(metrics)
    called = names(measure, nouns)
    told = [f"{called[key]} {written(metrics, key)}" for key in shown(measure) if metrics.get(key) is not None]
    return ", ".join(told)


# Decisions ------------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """The figures that a decision rests on; None where there was nothing to compare with."""

    name: str  # what the measure is called
    champion: float | None
    challenger: float | None
    difference: float | None
    low: float | None
    high: float | None


def compared(decision: Mapping[str, Any]) -> Compared:
    """Of a decision of this or an earlier version, which knew errors of tokens alone."""
    differences = (decision.get(name) for name in ("difference", "low", "high"))
    if decision.get("measure") is None:
        return Compared("error", decision.get("champion_error"), decision.get("challenger_error"), *differences)
    values = (decision.get(name) for name in ("champion_value", "challenger_value"))
    return Compared(decision.get("measure_name") or HEADS.get(decision["measure"], "error"), *values, *differences)


def difference_words(found: Compared) -> str:
    """`+0.31 points (−0.10 to +0.70)`."""
    if found.difference is None:
        return MISSING
    return f"{points(found.difference)} ({points(found.low).removesuffix(' points')} to {points(found.high)})"


def why(decision: Mapping[str, Any]) -> tuple[str, list[str]]:
    """(why it was decided so, reasons to list below that): each reason stands in one of them, none in both."""
    reason, reasons = str(decision.get("reason", "no reason is on record")), list(decision.get("reasons") or ())
    if decision.get("forced") and reasons:  # earlier versions named once more what spoke against it
        return f"{reason.partition('; against it')[0]}; against it", reasons
    return (f"{len(reasons)} reasons against it", reasons) if len(reasons) > 1 else (reason, [])


def verdict_lines(decision: Mapping[str, Any]) -> list[str]:
    """For a terminal: the verdict, its reasons, and warnings."""
    words, reasons = why(decision)
    first = ("promoted: " if decision["promoted"] else "refused: ") + words + (":" if reasons else "")
    warnings = [f"warning: {text}" for text in decision.get("warnings") or ()]
    return [first, *(f"  - {text}" for text in reasons), *warnings]
