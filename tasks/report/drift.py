"""Whether the unlabelled pool looks like the labelled data."""

from typing import Any

from espalier.tasks.pages import charts
from espalier.tasks.pages.page import Html, card, cards, count, join, lead, message, number, percent, plural, table, tag
from espalier.tasks.report.phrases import Phrases
from espalier.tasks.report.words import Nouns


def drift(found: dict[str, Any], phrases: Phrases, nouns: Nouns) -> Html:
    """Whether the unlabelled pool looks like the labelled data."""
    groups = found.get("clusters") or []
    if not groups:
        return message(f"No unlabelled pool was compared: every {nouns.sequence} counts the same.")
    opening = lead(
        f"Labelled and unlabelled {plural(nouns.sequence)}, grouped by what they contain. "
        "A group that is more frequent in the pool than in the labelled data has a weight above 1; "
        "its bits are its part of the divergence."
    )
    most = max(max(g["labelled_share"], g["pool_share"]) for g in groups)
    rows = [cluster_row(g, most, phrases) for g in groups]
    headings = ("Group", "Share", "Labelled", "Pool", "Weight", "Bits", "Typical", "Such as")
    legend = charts.bar_legend([("a", "labelled"), ("b", "pool")])
    shares = table("Share of each group", headings, rows, numeric=(2, 3, 4, 5), class_="drift")
    return join([opening, drift_cards(found, nouns), legend, shares])


def drift_cards(found: dict[str, Any], nouns: Nouns) -> Html:
    alike = "bits: 0 when both are alike, 1 when they share nothing"
    if found.get("drifted"):
        alike = f"bits, above the limit of {found['drift_limit']:g}: the pool has drifted"
    of = f"of {count(found.get('sequences') or 0, nouns.sequence)}, after weighing"
    shown = [
        card("Jensen-Shannon divergence", number(found.get("jensen_shannon"), 2), alike),
        card("Effective sample size", number(found.get("effective_sample_size"), 4), of),
    ]
    if out := found.get("pool_without_label_share"):
        shown.append(card("Pool without labels", percent(out), "in groups without a labelled example"))
    return cards(shown)


def cluster_row(g: dict[str, Any], most: float, phrases: Phrases) -> tuple[Any, ...]:
    seen = (tag("span", phrases.context(o) or o, class_="chip") for o in g.get("typical", []))
    pair = charts.bars([("a", g["labelled_share"]), ("b", g["pool_share"])], most)
    bits = number(g.get("divergence"), 1)  # its part of the divergence
    figures = percent(g["labelled_share"]), percent(g["pool_share"]), number(g.get("weight")), bits
    return number(g["cluster"]), pair, *figures, join(seen, " "), ", ".join(g.get("examples", []))
