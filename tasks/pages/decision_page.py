"""The page of decisions: the verdict, all that speaks for and against it, and every decision before it."""

from typing import Any

from espalier.tasks.judging import headline
from espalier.tasks.keeping.history import outcome
from espalier.tasks.pages.page import (
    MISSING,
    Html,
    capital,
    card,
    cards,
    count,
    join,
    lead,
    message,
    number,
    page,
    percent,
    points,
    section,
    short,
    table,
    tag,
)

ROWS = 100  # decisions shown


def decision_page(decisions: list[dict]) -> str:
    """A page with the last decision and the ones before it."""
    last = decisions[-1]
    parts = [
        ("verdict", capital(outcome(last)), _verdict(last)),
        ("labels", "Label by label", _labels(last)),
        ("cases", "Cases that must not break", _cases(last)),
        ("history", "All decisions", _history(decisions)),
    ]
    return page("Champion and challenger", join(section(*part) for part in parts if part[2]))


def _verdict(last: dict) -> Html:
    words, reasons = headline.why(last)
    opening, listed = f"{capital(words)}{':' if reasons else '.'}", _list(reasons) if reasons else ""
    warnings = (message(f"Warning: {text}.") for text in last.get("warnings") or [])
    return join([lead(opening), listed, *warnings, cards(_figures(last))])


def _list(reasons: list[str]) -> Html:
    return tag("ul", *(tag("li", f"{capital(text)}.") for text in reasons))


def _figures(last: dict) -> list[Html]:
    found = headline.compared(last)
    name = f"{found.name} on the test data"
    figures = [card("Challenger", percent(found.challenger, 2), name, _tokens(last, "challenger"))]
    if found.difference is not None:
        interval = f"between {points(found.low)} and {points(found.high)} in resamples of the test data"
        margin = f"margin {points(last['margin']).lstrip('+')}" if last.get("margin") is not None else None
        figures.insert(0, card("Champion", percent(found.champion, 2), name, _tokens(last, "champion")))
        figures.append(card("Difference", points(found.difference), interval, margin))
    if last.get("cases"):
        found = last["cases"]
        right, failed = number(found["cases"] - found["failed"]), found["champion_failed"]
        then = None if failed is None else f"the champion {number(found['cases'] - failed)}"
        figures.append(card("Cases", f"{right} of {number(found['cases'])}", "right", then))
    if last.get("drift"):
        found = last["drift"]
        limit = "no limit" if found["limit"] is None else f"limit {found['limit']:g}"
        figures.append(card("Drift", number(found["jensen_shannon"]), f"bits, {limit}"))
    if last.get("test_version"):
        figures.append(card("Test data", tag("code", short(last["test_version"])), "version"))
    return figures


def _tokens(last: dict, who: str) -> str | None:
    """Errors of tokens, beside another measure."""
    return None if last.get("measure") in (None, headline.TOKEN) else f"tokens wrong {percent(last[f'{who}_error'], 2)}"


def _labels(last: dict) -> Html | None:
    """The labels that changed, the largest loss first."""
    if not last.get("labels_compared"):
        return None
    rows = last["labels"]
    if not rows:
        return message(f"None of {count(last['labels_compared'], 'label')} has changed.")
    cells = [
        (row["label"], "refused" if row["regressed"] else "", number(row["count"]), percent(row["champion_f1"], 2),
         percent(row["challenger_f1"], 2), points(row["difference"]), f"{points(row['low'])} to {points(row['high'])}")
        for row in rows
    ]  # fmt: skip
    heads = ("Label", "", "In the test data", "Champion F1", "Challenger F1", "Difference", "Interval")
    caption = f"{number(len(rows))} of {count(last['labels_compared'], 'label')}, the largest loss first"
    return table(caption, heads, cells, (2, 3, 4, 5, 6), "stack")


def _cases(last: dict) -> Html | None:
    found = last.get("cases")
    if not found:
        return None
    if not found["wrong"]:
        return message(f"All {number(found['cases'])} cases of {found['file']} are right.")
    cells = [
        (number(row["line"]), " ".join(row["tokens"]), " ".join(row["expected"]), " ".join(row["said"]),
         "wrong too" if row["champion_too"] else MISSING if found["champion_failed"] is None else "right")
        for row in found["wrong"]
    ]  # fmt: skip
    heads = ("Line", "Tokens", "Expected", "Challenger", "Champion")
    caption = f"{number(found['failed'])} of {number(found['cases'])} of {found['file']}"
    return table(caption, heads, cells, (0,), "stack")


def _history(decisions: list[dict]) -> Html:
    heads = ["When (UTC)", "Decision", "Measure", "Champion", "Challenger", "Difference", "Model", "Why"]
    of = "" if len(decisions) <= ROWS else f" (of {number(len(decisions))})"
    rows = [_row(d, d is decisions[-1]) for d in reversed(decisions[-ROWS:])]
    return table(f"Latest first{of}", heads, rows, (3, 4, 5), "stack")


def _row(d: dict, latest: bool) -> list[Any]:
    """Reasons that stand in a list above are not listed again."""
    found, (words, reasons) = headline.compared(d), headline.why(d)
    why = join([words, ": above" if latest else _list(reasons)]) if reasons else words
    when = d["time"].replace("T", " ").removesuffix("+00:00")
    values = [percent(value, 2) for value in (found.champion, found.challenger)]
    return [when, outcome(d), found.name, *values, headline.difference_words(found), short(d["model_sha256"]), why]
