"""What became of a model, so that it is seen at once: a sign, a word and a colour, the same on every page."""

from typing import NamedTuple

from espalier.tasks.pages.page import Html, capital, listed, prose, tag


class Look(NamedTuple):
    """The class that colours it, a sign for those who cannot tell colours apart, and the words."""

    style: str
    sign: str
    word: str


VERDICTS = {  # by the outcome that is on record
    "promoted": Look("good", "✓", "Promoted"), "forced": Look("bad", "!", "Promoted by force"),
    "refused": Look("bad", "✗", "Refused"), "rolled back": Look("open", "↩", "Rolled back"),
    None: Look("open", "…", "Not decided"),
}  # fmt: skip


def box(outcome: str | None, words: str, reasons: list[str]) -> Html:
    """The verdict with why; several reasons are a list."""
    look = VERDICTS[outcome]
    head = tag("strong", tag("span", look.sign, aria_hidden="true", class_="sign"), look.word)
    why = tag("p", prose(f"{capital(words)}{':' if reasons else '.'}"))
    return tag("div", head, why, listed(reasons) if reasons else "", class_=f"verdict {look.style}")


def mark(outcome: str) -> Html:
    """An outcome in a cell of a table; one that is no verdict, such as `failed`, is said as it is."""
    look = VERDICTS.get(outcome, Look("bad", "✗", outcome))
    return tag("span", tag("span", f"{look.sign} ", aria_hidden="true"), outcome, class_=f"outcome {look.style}")
