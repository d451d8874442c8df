"""Stop weights lambda[x, y, stop] of the last label, as IIS has them (3.24, 4.14, 4.19): the mirror of start weights.

M_{n+1}(y, stop | x) depends on one label, so its weights are unigram weights that count at last positions only. Each
observation x with bigram weights gets a twin, an observation that is there where x is at the end of a sequence. Made
before a layout, twins need nothing of any kernel, solver or decoder, and data without them cost what they did.

A twin is called as its observation with `AT_END` before it, which no template writes.
"""

import numpy as np

from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.runtime.grouping import carrying_columns, ends
from espalier.engine.weights.layout import BIGRAM, UNIGRAM

AT_END = "$"
STOP = "stop"  # what a model file calls their kind of weights


def twins_of(kinds: np.ndarray) -> np.ndarray:
    """The number of each observation's twin, behind all V observations; -1 for none and, at last, for id -1."""
    paired = (np.asarray(kinds) & BIGRAM) > 0
    return np.append(np.where(paired, len(paired) + np.cumsum(paired) - 1, -1), -1).astype(np.int32)


def ends_of(kinds: np.ndarray, setting: str) -> np.ndarray:
    """The same; refused where no observation has one, as `setting` would do nothing."""
    if not np.any(np.asarray(kinds) & BIGRAM):
        raise EspalierError(
            f"{setting} is true and no template has weights for pairs of labels, whose end this is: add template B, "
            f"or set {setting} to false"
        )
    return twins_of(kinds)


def with_twin_kinds(kinds: np.ndarray) -> np.ndarray:
    """The kinds of the observations and of their twins, uint8."""
    kinds = np.asarray(kinds, np.uint8)
    return np.append(kinds, np.full(np.count_nonzero(kinds & BIGRAM), UNIGRAM, np.uint8))


def with_twin_texts(texts: list[str], kinds: np.ndarray) -> list[str]:
    """The texts of the observations and of their twins."""
    return [*texts, *(AT_END + texts[x] for x in np.flatnonzero(np.asarray(kinds) & BIGRAM).tolist())]


def twins_by_text(texts: list[str]) -> np.ndarray | None:
    """The same as `twins_of` among observations whose twins are there by their texts; None where there is none."""
    if not any(map(is_twin, texts)):
        return None
    number = {text: i for i, text in enumerate(texts)}
    return np.array([*(number.get(AT_END + text, -1) for text in texts), -1], np.int32)


def is_twin(text: str) -> bool:
    return text.startswith(AT_END)


def of_twin(text: str) -> str:
    """The text of the observation that a twin belongs to."""
    return text.removeprefix(AT_END)


def with_twins(dataset: Dataset, twins: np.ndarray | None) -> Dataset:
    """The data with twins at last positions, a column more for each one that has some; unchanged without `twins`."""
    if twins is None:
        return dataset
    last = dataset.offsets[1:] - 1
    at_end = dataset.observations[last]
    columns = carrying_columns(at_end, ends(twins[:-1] >= 0))
    more = np.full((len(dataset.labels), len(columns)), -1, np.int32)
    more[last] = twins[at_end[:, columns]]
    return dataset._replace(observations=np.concatenate([dataset.observations, more], axis=1))
