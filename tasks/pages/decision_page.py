"""The page of decisions: the verdict, all that speaks for and against it, and every decision before it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from espalier.tasks import store
from espalier.tasks.judging import headline
from espalier.tasks.keeping.history import outcome
from espalier.tasks.pages import path_page
from espalier.tasks.pages.page import (
    MISSING,
    Html,
    card,
    cards,
    count,
    escape,
    facts,
    join,
    listed,
    message,
    number,
    page,
    percent,
    points,
    prose,
    section,
    short,
    table,
    tag,
    when,
)
from espalier.tasks.pages.verdict import box, mark

ROWS = 100  # decisions shown


PAGES = ((store.REPORT, "Report"), (path_page.PAGE, "Sweep"))  # that may lie beside it


def write_page(root: Path, decisions: list[dict]) -> None:
    """The page of a project, with links to those of its other pages that are there."""
    links = [(name, Path(path).name) for path, name in PAGES if (root / path).is_file()]
    store.write_text(root / store.DECISION, decision_page(decisions, root.resolve().name, links))


def decision_page(decisions: list[dict], project: str, links: Iterable[tuple[str, str]] = ()) -> str:
    """A page with the last decision and the ones before it; `links` are names and addresses of other pages."""
    last = decisions[-1]
    parts = [
        ("verdict", "The last decision", _verdict(last)),
        ("labels", "Label by label", _labels(last)),
        ("cases", "Cases that must not break", _cases(last)),
        ("history", "All decisions", _history(decisions)),
    ]
    title, body = "Champion and challenger", join(section(*part) for part in parts if part[2])
    return page(f"{title}: {project}", body, header_html=_header(title, last, project, links))


def _header(title: str, last: dict, project: str, links: Iterable[tuple[str, str]]) -> Html:
    """Whose decision it is, when it was made, on what, and where to read on."""
    told = [("Project", project), ("When (UTC)", when(last["time"]))]
    told += [("Decision", tag("code", last["id"]))] if last.get("id") else []
    versions = (("Data version", "data_version"), ("Version of the test data", "test_version"))
    told += [(name, tag("code", short(last[key]))) for name, key in versions if last.get(key)]
    others = join((tag("a", name, href=address) for name, address in links), ", ")
    told += [("Read on", others)] if others else []
    return join([tag("p", "Espalier decision", class_="eyebrow"), tag("h1", title), facts(told)])


def _verdict(last: dict) -> Html:
    warnings = (message(f"Warning: {text}.") for text in last.get("warnings") or [])
    return join([box(outcome(last), *headline.why(last)), *warnings, cards(_figures(last))])


def _figures(last: dict) -> list[Html]:
    found = headline.compared(last)
    name = f"{found.name} on the test data"
    figures = [card("Challenger", percent(found.challenger, 2), name, _tokens(last, "challenger"))]
    if found.difference is not None:
        interval = f"between {points(found.low)} and {points(found.high)} in resamples of the test data"
        margin = f"margin {points(last['margin']).lstrip('+')}" if last.get("margin") is not None else None
        figures.insert(0, card("Champion", percent(found.champion, 2), name, _tokens(last, "champion")))
        difference = points(found.difference).removesuffix(" points")
        figures.append(card("Difference", difference, "percentage points", interval, margin))
    if last.get("cases"):
        found = last["cases"]
        right, failed = number(found["cases"] - found["failed"]), found["champion_failed"]
        then = None if failed is None else f"the champion {number(found['cases'] - failed)}"
        figures.append(card("Cases", f"{right} of {number(found['cases'])}", "right", then))
    if last.get("drift"):
        found = last["drift"]
        limit = "no limit" if found["limit"] is None else f"limit {found['limit']:g}"
        figures.append(card("Drift", number(found["jensen_shannon"]), f"bits, {limit}"))
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
        (row["label"], mark("refused") if row["regressed"] else "", number(row["count"]),
         percent(row["champion_f1"], 2), percent(row["challenger_f1"], 2), points(row["difference"]),
         f"{points(row['low']).removesuffix(' points')} to {points(row['high'])}")
        for row in rows
    ]  # fmt: skip
    heads = ("Label", "Verdict", "In the test data", "Champion F1", "Challenger F1", "Difference", "Interval")
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
    heads = ["When (UTC)", "Decision", "Measure", "Champion", "Challenger", "Difference", "Model"]
    of = "" if len(decisions) <= ROWS else f" (of {number(len(decisions))})"
    latest_first = decisions[-ROWS:][::-1]
    notes = [_why(d, d is decisions[-1]) for d in latest_first]
    return table(f"Latest first{of}", heads, map(_row, latest_first), (3, 4, 5), "stack", notes)


def _why(d: dict, latest: bool) -> Html:
    """Reasons that stand in a list above are not listed again."""
    words, reasons = headline.why(d)
    return join([prose(words), ": above" if latest else listed(reasons)]) if reasons else prose(words)


def _row(d: dict) -> list[Any]:
    found = headline.compared(d)
    values = [percent(value, 2) for value in (found.champion, found.challenger)]
    model = short(d["model_sha256"])
    return [when(d["time"]), mark(outcome(d)), found.name, *values, _difference(found), model]


def _difference(found: headline.Compared) -> Html:
    """The difference, its interval below it."""
    if found.difference is None:
        return escape(MISSING)
    ends = f"{points(found.low).removesuffix(' points')} to {points(found.high)}"
    return join([points(found.difference), tag("small", ends)])
