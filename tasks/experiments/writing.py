"""The report of an experiment as three files: a page for people, Markdown for a repository, JSON for machines."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from espalier.tasks import store
from espalier.tasks.experiments import Comparison, Report, Settings, Statement
from espalier.tasks.pages.page import Html, join, lead, page, section, table, tag

FOLDER = "reports/reproduce"
HEADINGS = ("where", "what", "source", "ours", "note")
CHECK_HEADINGS = ("statement", "holds", "ours", "wanted")
SHORT = "A short run with little data or few replications: its figures are rough, and statements need not hold."


def write_report(root: Path, name: str, report: Report, results: dict[str, dict], settings: Settings) -> dict[str, str]:
    """Write NAME.html, NAME.md and NAME.json; their paths. All three are made before any is written."""
    texts = {"html": html(report, settings), "md": markdown(report, settings)}
    data = {
        "experiment": name, "quick": settings.quick, "title": report.title, "notes": report.notes,
        "comparisons": [item._asdict() for item in report.comparisons],
        "checks": [item._asdict() for item in report.checks], "cells": results,
    }  # fmt: skip
    paths = {kind: root / FOLDER / f"{name}.{kind}" for kind in ("html", "md", "json")}
    for kind, text in texts.items():
        store.write_text(paths[kind], text)
    store.write_json(paths["json"], data)
    return {kind: str(path) for kind, path in paths.items()}


def html(report: Report, settings: Settings) -> str:
    """One self-contained page."""
    warning = tag("p", SHORT, class_="message") if settings.quick else ""
    header = join([tag("p", "Reproduction", class_="eyebrow"), tag("h1", report.title), lead(report.lead), warning])
    beside = section("figures", "Their figures and ours", comparison_table(report.comparisons))
    held = [section("checks", "What must hold", check_table(report.checks))] if report.checks else []
    drawn = [section(key, title, Html(body)) for key, title, body in report.sections]
    said = section("notes", "How ours differs", tag("ul", *(tag("li", note) for note in report.notes)))
    contents = [("figures", "Figures"), *([("checks", "Checks")] if held else []),
                *((key, title) for key, title, _ in report.sections), ("notes", "Differences")]  # fmt: skip
    return page(report.title, join([beside, *held, *drawn, said]), header_html=header, contents=contents)


def comparison_table(comparisons: list[Comparison]) -> Html:
    return table("The source's figures beside ours", HEADINGS, comparisons, class_="stack")


def check_table(checks: list[Statement]) -> Html:
    return table("Statements about our figures", CHECK_HEADINGS, checks_plain(checks), class_="stack")


def checks_plain(checks: list[Statement]) -> list[list[str]]:
    return [[check.text, "yes" if check.holds else "NO", check.ours, check.wanted] for check in checks]


def markdown(report: Report, settings: Settings) -> str:
    lines = [f"# {report.title}", "", report.lead, ""]
    lines += [SHORT, ""] if settings.quick else []
    lines += plain_table(HEADINGS, report.comparisons)
    if report.checks:
        lines += ["", "## What must hold", "", *plain_table(CHECK_HEADINGS, checks_plain(report.checks))]
    lines += ["", "## How ours differs", "", *(f"- {note}" for note in report.notes)]
    return "\n".join(lines) + "\n"


def plain_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table, in which a bar would begin another cell."""
    escaped = ([text.replace("|", "\\|") for text in row] for row in rows)
    return ["| " + " | ".join(row) + " |" for row in (headings, ["---"] * len(headings), *escaped)]
