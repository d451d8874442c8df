"""What the text models of Wapiti and CRF++ share: weights in runs, one for each observation, and templates."""

import numpy as np

from espalier.engine.errors import EspalierError, brief
from espalier.engine.families.labeller import Labeller
from espalier.engine.weights.layout import BIGRAM, UNIGRAM


def text_of(raw: bytes, what: str, name: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise EspalierError(
            f"{name}: {what} {brief(raw)} is not UTF-8: train the model again on data in UTF-8"
        ) from None


def model_of_runs(
    family: type[Labeller], labels: list[str], templates: list[str], names: list[list[str]], kinds: np.ndarray,
    begins: np.ndarray, slots: np.ndarray, weights: np.ndarray, info: dict, name: str,
) -> Labeller:  # fmt: skip
    """A model from weights by slots: the run of observation x begins at begins[x], ascending.

    A run has a weight for each label where the observation has unigram weights, then one for each pair of labels where
    it has bigram weights. `names[x]` are its names here; each of them gets the weights, and no weight is kept where
    there is none.
    """
    owner = np.searchsorted(begins, slots, side="right") - 1
    within, size = slots - begins[owner], len(labels)
    unigrams = np.where(kinds & UNIGRAM, size, 0)[owner]
    pair = within >= unigrams
    code = np.where(pair, within - unigrams, within)
    if np.any(code >= np.where(pair, (kinds[owner] & BIGRAM > 0) * size * size, size)):
        raise EspalierError(f"{name}: a weight belongs to no observation; fetch or train it again")
    counts = np.array([len(some) for some in names], np.int64)
    first, copies = np.cumsum(counts) - counts, counts[owner]
    row = np.repeat(np.arange(len(slots)), copies)
    observation = first[owner][row] + np.arange(len(row)) - np.repeat(np.cumsum(copies) - copies, copies)
    columns = np.where(pair, 2, 0), np.where(pair, code // size, -1), code % size, weights
    kind, previous, label, weight = (column[row] for column in columns)
    flat = [text for some in names for text in some]
    if len(set(flat)) != len(flat):
        raise EspalierError(f"{name}: two observations are the same in our words; fetch or train it again")
    return family.of_weights(labels, templates, flat, kind, observation, previous, label, weight, info, name)
