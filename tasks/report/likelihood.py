"""How likely the inputs are under a model that says so: whether test data and pool look like what it has learned."""

from typing import Any

from espalier.tasks.pages.page import Html, capital, join, lead, number, plural, signed, table, tag
from espalier.tasks.report.words import Metrics, Nouns, Tagged

TOKENS = 40  # shown of a longer sequence
NAMES = {"train": "training data", "dev": "development data", "test": "test data", "unlabelled": "unlabelled pool"}


def likelihood(m: Metrics, sequences: list[Tagged], nouns: Nouns) -> Html | None:
    """Figures and what they mean in words, then the least likely test sequences; None without figures."""
    found = m.get("likelihood")
    if not found:
        return None
    reference = found["reference"]
    opening = lead(
        f"How surprising the {plural(nouns.token)} are to the model, whatever their {plural(nouns.label)}: −log P per "
        f"{nouns.token} in nats, small where the data look like what it has learned."
    )
    parts = {name: found["parts"][name] for name in NAMES if name in found["parts"]}
    said = tag("ul", *(tag("li", compared(name, part, reference)) for name, part in parts.items() if name != reference))
    heads = ("Data", capital(plural(nouns.sequence)), capital(plural(nouns.token)), f"Per {nouns.token}", "Between",
             f"Beside the {NAMES[reference]}")  # fmt: skip
    rows = [row(name, part) for name, part in parts.items()]
    figures = table(f"−log P per {nouns.token}", heads, rows, numeric=(1, 2, 3, 4, 5), class_="stack")
    return join([tag("h3", "Likelihood"), opening, said, figures, least(found.get("least") or [], sequences, nouns)])


def compared(name: str, part: dict[str, Any], reference: str) -> str:
    """Whether a part is less likely than the reference, in a sentence."""
    what, other = f"The {NAMES[name]}", f"the {NAMES[reference]}"
    verb = "is" if name == "unlabelled" else "are"
    low, high = part.get("difference_low"), part.get("difference_high")
    if low is None or high is None:
        return f"{what} {verb} too few to be compared with {other}."
    between = f"by {number(low)} to {number(high)} nats" if low > 0 else f"by {number(-high)} to {number(-low)} nats"
    if low > 0:
        return f"{what} {verb} less likely than {other}, {between}: there the model meets what it has not learned."
    if high < 0:
        return f"{what} {verb} more likely than {other}, {between}."
    return f"{what} {verb} about as likely as {other}: the difference may be none."


def row(name: str, part: dict[str, Any]) -> tuple[Any, ...]:
    ends = "" if part.get("low") is None else f"{number(part['low'], 4)} to {number(part['high'], 4)}"
    beside = signed(part["difference"]) if "difference" in part else ""
    sizes = number(part["sequences"]), number(part["tokens"])
    return capital(NAMES[name]), *sizes, number(part["loss"], 4), ends, beside


def least(listed: list[dict[str, Any]], sequences: list[Tagged], nouns: Nouns) -> Html | str:
    """The test sequences that surprise the model most."""
    rows = []
    for one in listed:
        if one["sequence"] < len(sequences):
            tokens = sequences[one["sequence"]].tokens
            text = " ".join(tokens[:TOKENS]) + (" …" if len(tokens) > TOKENS else "")
            rows.append((tag("span", text, class_="sample"), number(len(tokens)), number(one["loss"], 4)))
    if not rows:
        return ""
    heads = capital(nouns.sequence), capital(plural(nouns.token)), f"−log P per {nouns.token}"
    return table(f"The least likely {plural(nouns.sequence)} of the test data", heads, rows, numeric=(1, 2))
