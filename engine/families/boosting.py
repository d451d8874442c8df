"""Boosted sequences as labellers: chains whose scores compare labellings and are no probabilities.

`engine.families.boosting_training` says how the weights are found. A model remembers its rounds: which weight moved in
each, how far, and Z, by how much the odds against the right labellings fell.
"""

import math
from typing import NamedTuple

from espalier.engine.families.crf import CrfLabeller
from espalier.engine.families.labeller import Round
from espalier.engine.weights.layout import FIRST_ORDER

ROUNDS = "rounds_made"  # of a model's info: those that made it, each as the fields of a Round


class BoostingLabeller(CrfLabeller):
    """A trained model."""

    family = "boosting"
    unsaid = frozenset({ROUNDS})

    def check(self) -> None:
        super().check()
        rows = self.info.get(ROUNDS, [])
        if not isinstance(rows, list) or not all(_is_round(row, self.labels) for row in rows):
            raise ValueError("its rounds are not what a boosting has written")

    def rounds(self) -> list[Round]:
        return [Round(*row) for row in self.info.get(ROUNDS, [])]


class Moved(NamedTuple):
    """What a record of the trace says of its round."""

    family: str
    observation: int
    previous: int
    label: int
    step: float
    z: float


def rounds_of(trace: list[dict], until: int, observations: list[str], labels: list[str]) -> list[list]:
    """The rounds up to one of them, as a model file holds them."""
    rows = []
    for record in trace[1:]:
        if record["iteration"] > until:
            break
        moved = Moved(*(record[name] for name in Moved._fields))
        previous = labels[moved.previous] if moved.previous >= 0 else None
        rows.append([moved.family, observations[moved.observation], previous, labels[moved.label], moved.step, moved.z])
    return rows


def _is_round(row, labels: list[str]) -> bool:
    if not isinstance(row, list) or len(row) != len(Round._fields):
        return False
    family, observation, previous, label, *numbers = row
    known = family in FIRST_ORDER and isinstance(observation, str) and label in labels
    paired = previous in labels if family == "bigram" else previous is None
    return known and paired and all(isinstance(x, float | int) and math.isfinite(x) for x in numbers)
