"""The largest weights, what speaks for a label and what against it."""

from collections import Counter
from typing import Any

import pyarrow as pa

from espalier.tasks.pages import charts
from espalier.tasks.pages.page import Html, join, lead, message, number, plural, tag
from espalier.tasks.report.phrases import ANYTHING, Phrases
from espalier.tasks.report.words import Nouns

WEIGHTS_PER_LABEL, WEIGHTS_IN_PAGE = 10, 1500  # of each sign; what the filter can find


TITLES = {"weight": "Largest weights", "probability": "Largest probabilities"}


def weights(model: pa.Table, phrases: Phrases, nouns: Nouns, limit: int, shows: str = "weight") -> Html | None:
    """What the model learned, in words; the page holds the strongest of every label, the box filters them.

    `shows` says what the numbers are: probabilities speak against nothing.
    """
    if not limit:
        return None
    if not model.num_rows:
        return message("All weights are zero: the penalty is too strong for these data; try a smaller rho1.")
    rows = model.to_pylist()
    most = max(abs(row["weight"]) for row in rows)
    likely = shows == "probability"
    signs = (("Given the " + nouns.label, 1),) if likely else (("For", 1), ("Against", -1))
    sides = ((name, strongest(rows, sign, limit)) for name, sign in signs)
    tables = (weight_table(name, chosen, most, phrases, shows) for name, chosen in sides)
    what = f"What a {nouns.label} emits and which one follows it" if likely else (
        f"What speaks for a {nouns.label} and what against it")  # fmt: skip
    opening = lead(
        f"{what}. The current {nouns.token} stands in brackets, "
        f"{ANYTHING} is any; in A → B the {nouns.label} B follows A."
    )
    box = label_filter(sorted({row["label"] for row in rows}), nouns)
    return join([opening, box, tag("div", *tables, class_="panels")])


def strongest(rows: list[dict[str, Any]], sign: int, limit: int) -> list[tuple[dict[str, Any], bool]]:
    """Weights of one sign by size: the first `limit` (True), for the filter some of each label (False)."""
    mine = [row for row in rows if sign * row["weight"] > 0]
    mine.sort(key=lambda r: (-abs(r["weight"]), r["observation"], r.get("before") or "", r["previous"] or "",
                             r["label"]))  # fmt: skip
    quota = min(WEIGHTS_PER_LABEL, max(1, WEIGHTS_IN_PAGE // max(1, len({r["label"] for r in mine}))))
    taken, chosen = Counter(), []
    for rank, row in enumerate(mine):
        taken[row["label"]] += 1
        if rank < limit or taken[row["label"]] <= quota:
            chosen.append((row, rank < limit))
    return chosen[: max(limit, WEIGHTS_IN_PAGE)]


def weight_table(
    name: str, chosen: list[tuple[dict[str, Any], bool]], most: float, phrases: Phrases, shows: str = "weight"
) -> Html:
    if not chosen:
        return tag("div", message(f"No weight speaks {name.lower()} a label."))
    heads = tag("th", "In words", scope="col"), tag("th", shows.capitalize(), scope="col", colspan=2, class_="num")
    body = (weight_row(row, shown, most, phrases) for row, shown in chosen)
    return tag("table", tag("caption", name), tag("thead", tag("tr", *heads)), tag("tbody", *body))


def weight_row(row: dict[str, Any], shown: bool, most: float, phrases: Phrases) -> Html:
    bar = charts.bars([("a" if row["weight"] > 0 else "b", abs(row["weight"]))], most)
    words = tag("th", phrases.weight(row), scope="row", class_="phrase")
    cells = tag("td", bar, class_="bar-cell"), tag("td", number(row["weight"]), class_="num")
    return tag("tr", words, *cells, data_label=row["label"], data_top=shown, hidden=not shown)


def label_filter(labels: list[str], nouns: Nouns) -> Html:
    """The box; hidden until the script that makes it work has run."""
    name = tag("label", f"Show one {nouns.label}", for_="label-filter")
    hint = {"placeholder": f"all {plural(nouns.label)}", "autocomplete": "off", "spellcheck": "false"}
    box = tag("input", type="search", id="label-filter", list="labels", **hint)
    known = tag("datalist", *(tag("option", value=label) for label in labels), id="labels")
    return tag("div", name, box, known, tag("output", for_="label-filter"), class_="filter", hidden=True)
