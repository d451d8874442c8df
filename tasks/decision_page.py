"""The page of decisions: the verdict, all that speaks for and against it, and every decision before it."""

from tasks.history import outcome
from tasks.page import (
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
    reasons, many = last.get("reasons") or [], len(last.get("reasons") or []) > 1
    opening = f"{count(len(reasons), 'reason')} to refuse it" if many and not last["promoted"] else last["reason"]
    listed = tag("ul", *(tag("li", f"{capital(text)}.") for text in reasons)) if many or last["forced"] else ""
    warnings = (message(f"Warning: {text}.") for text in last.get("warnings") or [])
    return join([lead(f"{capital(opening)}."), listed, *warnings, cards(_figures(last))])


def _figures(last: dict) -> list[Html]:
    figures = [card("Challenger", percent(last["challenger_error"], 2), "error on the test data")]
    if last["difference"] is not None:
        interval = f"between {points(last['low'])} and {points(last['high'])} in resamples of the test data"
        figures.insert(0, card("Champion", percent(last["champion_error"], 2), "error on the test data"))
        figures.append(card("Difference", points(last["difference"]), interval))
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
    heads = ["When (UTC)", "Decision", "Champion", "Challenger", "Difference", "Model", "Why"]
    of = "" if len(decisions) <= ROWS else f" (of {number(len(decisions))})"
    return table(f"Latest first{of}", heads, [_row(d) for d in reversed(decisions[-ROWS:])], (2, 3, 4), "stack")


def _row(d: dict) -> list[str]:
    difference = (
        MISSING if d["difference"] is None else f"{points(d['difference'])} ({points(d['low'])} to {points(d['high'])})"
    )
    when = d["time"].replace("T", " ").removesuffix("+00:00")
    errors = [percent(d[name], 2) for name in ("champion_error", "challenger_error")]
    return [when, outcome(d), *errors, difference, short(d["model_sha256"]), d["reason"]]
