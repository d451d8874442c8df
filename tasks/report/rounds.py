"""How a model was put together: the weights that moved first, and those that took most from the loss."""

import math
from collections import defaultdict

from espalier.engine.families.labeller import Round
from espalier.tasks.pages.page import Html, join, lead, number, percent, table, tag
from espalier.tasks.report.phrases import Phrases

ROWS = 15  # of each table


def rounds(made: list[Round], phrases: Phrases) -> Html | None:
    """The first rounds, and the most important weights; None for a model that was not made weight by weight."""
    if not made:
        return None
    opening = lead(
        f"The model was made in {number(len(made))} rounds; each moved one weight. Z is what a round left of the odds "
        "against the right labellings."
    )
    return join([opening, tag("div", first(made, phrases), strongest(made, phrases), class_="panels")])


def first(made: list[Round], phrases: Phrases) -> Html:
    rows = [(number(i), phrases.weight(one._asdict()), number(one.step), number(one.z))
            for i, one in enumerate(made[:ROWS], 1)]  # fmt: skip
    return table("The first rounds", ("Round", "Weight", "Step", "Z"), rows, numeric=(0, 2, 3))


def strongest(made: list[Round], phrases: Phrases) -> Html:
    """By the share of what the logarithm of the odds fell by in all rounds of a weight."""
    fallen, steps = defaultdict(float), defaultdict(list)
    for one in made:
        key = one[:4]
        fallen[key] -= math.log(max(one.z, 1e-300))
        steps[key].append(one.step)
    total = sum(fallen.values()) or 1.0
    largest = sorted(fallen, key=lambda key: (-fallen[key], tuple(map(str, key))))[:ROWS]
    rows = [(phrases.weight(dict(zip(Round._fields, key, strict=False))), number(len(steps[key])),
             number(sum(steps[key])), percent(fallen[key] / total, 1)) for key in largest]  # fmt: skip
    return table("What mattered most", ("Weight", "Rounds", "In all", "Of the fall"), rows, numeric=(1, 2, 3))
