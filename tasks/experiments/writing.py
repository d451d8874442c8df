"""The report of an experiment as three files: a page for people, Markdown for a repository, JSON for machines."""

from pathlib import Path

from tasks import store
from tasks.experiments import Comparison, Report, Settings
from tasks.page import Html, join, lead, page, section, table, tag

FOLDER = "reports/reproduce"
HEADINGS = ("where", "what", "source", "ours", "note")
SHORT = "A short run with few replications: its figures are rough."


def write_report(root: Path, name: str, report: Report, results: dict[str, dict], settings: Settings) -> dict[str, str]:
    """Write NAME.html, NAME.md and NAME.json; their paths. All three are made before any is written."""
    texts = {"html": html(report, settings), "md": markdown(report, settings)}
    data = {
        "experiment": name, "quick": settings.quick, "title": report.title, "notes": report.notes,
        "comparisons": [item._asdict() for item in report.comparisons], "cells": results,
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
    drawn = [section(key, title, Html(body)) for key, title, body in report.sections]
    said = section("notes", "How ours differs", tag("ul", *(tag("li", note) for note in report.notes)))
    contents = [("figures", "Figures"), *((key, title) for key, title, _ in report.sections), ("notes", "Differences")]
    return page(report.title, join([beside, *drawn, said]), header_html=header, contents=contents)


def comparison_table(comparisons: list[Comparison]) -> Html:
    return table("The source's figures beside ours", HEADINGS, comparisons, class_="stack")


def markdown(report: Report, settings: Settings) -> str:
    rows = [HEADINGS, ["---"] * len(HEADINGS), *comparisons_plain(report.comparisons)]
    lines = [f"# {report.title}", "", report.lead, ""]
    lines += [SHORT, ""] if settings.quick else []
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    lines += ["", "## How ours differs", "", *(f"- {note}" for note in report.notes)]
    return "\n".join(lines) + "\n"


def comparisons_plain(comparisons: list[Comparison]) -> list[list[str]]:
    """Cells of a Markdown table, in which a bar would begin another."""
    return [[text.replace("|", "\\|") for text in item] for item in comparisons]
