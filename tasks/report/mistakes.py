"""The errors that the model was surest of: its blind spots, and often errors of the data."""

from espalier.tasks.pages.page import Html, count, join, lead, message, number, percent, tag
from espalier.tasks.report.words import Nouns, Tagged, code

MISTAKE_TOKENS = 40  # of a longer sequence only the part around its worst mistake


def mistakes(sequences: list[Tagged], nouns: Nouns, limit: int) -> Html | None:
    """The errors that the model was surest of: its blind spots, and often errors of the data."""
    if not limit:
        return None
    if not sequences:
        return message("There are no predictions: the test data are empty.")
    worst = worst_sequences(sequences, limit)
    if not worst:
        return message(f"No {nouns.sequence} has a mistake.")
    listed = count(len(worst), nouns.sequence)
    which = f"The {listed} in which the right {nouns.label} was thought least likely"
    which = which if sure(worst[0]) else f"The {listed} with the most errors"
    opening = lead(
        f"{which}: blind spots of the model, or errors in the data. Under each {nouns.token} stands its "
        f"{nouns.label}; in a coloured box the predicted one stands below it in bold."
    )
    return join([opening, tag("ol", *(mistake(s, nouns) for s in worst), class_="mistakes")])


def sure(s: Tagged) -> bool:
    """Whether the model says how likely its labels are."""
    return s.confidence[0] is not None


def worst_sequences(sequences: list[Tagged], limit: int) -> list[Tagged]:
    """By the least probable right label of a wrong token; a product over tokens would find the longest.

    Of a model without probabilities those with the most errors.
    """
    wrong = [s for s in sequences if s.wrong()]
    if wrong and not sure(wrong[0]):
        return sorted(wrong, key=lambda s: -len(s.wrong()))[:limit]
    return sorted(wrong, key=lambda s: min(s.gold_probability[t] for t in s.wrong()))[:limit]


def mistake(s: Tagged, nouns: Nouns) -> Html:
    """The sequence, or the part of it around its worst mistake, and that mistake in words."""
    at = min(s.wrong(), key=lambda t: s.gold_probability[t] or 0.0)
    low = max(0, min(at - MISTAKE_TOKENS // 2, len(s.tokens) - MISTAKE_TOKENS))
    high = min(len(s.tokens), low + MISTAKE_TOKENS)
    more = tag("span", "…", class_="gap")
    before, behind = more if low else "", more if high < len(s.tokens) else ""
    pieces = tag("div", before, *(gloss(s, t) for t in range(low, high)), behind, class_="glosses")
    stated, given = (f" at {percent(s.confidence[at])}", odds(s.gold_probability[at])) if sure(s) else ("", "")
    said = tag("q", s.tokens[at]), " predicted ", code(s.said[at]), f"{stated}; "
    right = "right is ", code(s.gold[at]), f", given {given}" if given else ""
    others = f"; {count(len(s.wrong()), 'error')} in this {nouns.sequence}" if len(s.wrong()) > 1 else ""
    return tag("li", pieces, tag("p", *said, *right, others))


def gloss(s: Tagged, t: int) -> Html:
    """A token over its right label; where that was missed, the predicted one below."""
    missed = s.gold[t] != s.said[t]
    said = tag("del", s.said[t], title="predicted") if missed else ""
    rows = tag("b", s.tokens[t]), tag("i", s.gold[t]), said
    return tag("span", *rows, class_="gloss wrong" if missed else "gloss")


def odds(probability: float) -> str:
    """`4.2%`, or `1 in 1,700,000` where a percentage would be all zeros."""
    if probability >= 0.01:
        return percent(probability)
    if probability < 1e-9:
        return "less than 1\u00a0in a billion" if probability > 0 else "no chance"
    return f"1\u00a0in\u00a0{number(int(float(f'{1 / probability:.2g}')))}"
