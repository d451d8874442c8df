"""Abstention: what is right of the labels that the model is sure of, as more and more is asked of it."""

from typing import Any

from espalier.tasks.pages.page import MISSING, Html, join, lead, number, percent, plural, prose, table
from espalier.tasks.report.words import Metrics, Nouns


def abstention(m: Metrics, nouns: Nouns) -> Html | None:
    """Precision and recall of entities, or accuracy and coverage of tokens; None for a model without probabilities."""
    found = m.get("abstention")
    if not found or not found.get("rows"):
        return None
    entities, unit = found["of"] == "entities", "entities" if found["of"] == "entities" else plural(nouns.token)
    text = (f"If {plural(nouns.label)} below a probability are left out, how good is the rest? `espalier tag --abstain "
            "LIMIT` leaves them out.")  # fmt: skip
    sure = " An entity is as sure as the least sure of its labels, and goes as a whole." if entities else ""
    opening = lead(prose(text + sure))
    heads = ["At least", "Kept", "Share", *(("Precision", "Recall") if entities else ("Right",)), "Tokens left out"]
    rows = [row_of(row, entities) for row in found["rows"]]
    return join([opening, table(f"What is left of the {unit}", heads, rows, range(len(heads)), "bins")])


def row_of(row: dict[str, Any], entities: bool) -> list[str]:
    good = (row["precision"], row["recall"]) if entities else (row["accuracy"],)
    shown = [MISSING if value is None else percent(value, 2) for value in good]
    return [f"{100 * row['limit']:g}%", number(row["kept"]), percent(row["coverage"]), *shown,
            percent(row["abstained"])]  # fmt: skip
