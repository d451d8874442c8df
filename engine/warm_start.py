"""A new training starts from the weights of an earlier model, matched by their texts."""

from collections.abc import Mapping

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.model import Model, Stored
from espalier.engine.weights.layout import FAMILIES, Layout, find_slots


def of_rows(model: Stored | None) -> bool:
    """Whether rows support its labels (a kernel machine): then it has no weights of attributes to start from."""
    return model is not None and "support" in model.body


def refuse_rows(model: Stored | None, asked: str, otherwise: str) -> None:
    if of_rows(model):
        raise EspalierError(
            f"{asked}, a model of the family {model.family} in which rows support labels: it has no weights of "
            f"attributes to start from; expected one that has, or {otherwise}"
        )


def starting_point(
    model: Model, layout: Layout, observations: list[str], labels: list[str], scales: Mapping[str, float] | None = None
) -> np.ndarray:
    """theta of the new layout: the model's weights where it has the same observation and labels, zero elsewhere.

    `scales` are what values are multiplied by in the new training; a weight says the same as before of a value.
    """
    known = {text: i for i, text in enumerate(observations)}
    label_of = {text: i for i, text in enumerate(labels)}
    family, observation, previous, label = model.layout.slots()
    ids = np.array([known.get(text, -1) for text in model.observations] or [-1], np.int64)
    codes = np.array([label_of.get(text, -1) for text in model.labels] + [-1], np.int64)
    before = _before(family, previous, len(model.labels), codes, layout.n_labels)
    new, here = ids[observation], codes[label]
    keep = (new >= 0) & (here >= 0) & ((family < 2) | (before >= 0))
    theta, weights = np.zeros(layout.size), model.theta
    if model.scales or scales:
        old, new_scale = model.scales, scales or {}
        ratio = np.array([old.get(text, 1.0) / new_scale.get(text, 1.0) for text in model.observations])
        weights = weights * ratio[observation]
    for index, name in enumerate(FAMILIES):
        mine = keep & (family == index)
        wanted = before[mine] * layout.n_labels + here[mine] if index >= 2 else here[mine]
        slots = find_slots(layout, name, new[mine], wanted)
        theta[slots[slots >= 0]] = weights[mine][slots >= 0]
    return theta


def _before(family: np.ndarray, previous: np.ndarray, n_old: int, codes: np.ndarray, n_labels: int) -> np.ndarray:
    """What stands before the label of each weight in the new numbering `codes`, -1 where a label is not there."""
    triple = family == 3
    first, second = codes[np.where(triple, previous // n_old, -1)], codes[np.where(triple, previous % n_old, previous)]
    both = np.where((first >= 0) & (second >= 0), first * n_labels + second, -1)
    return np.where(triple, both, second)
