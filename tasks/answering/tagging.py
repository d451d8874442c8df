"""A model applied to a table of tokens: strings in, labels out; the features are made as in training.

Files and streams are tagged by `tasks.answering.stream`.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from espalier.engine.data.dataset import UNKNOWN, Dataset, renumbered
from espalier.engine.families.labeller import Predictor
from espalier.engine.features import features_of
from espalier.tasks import store
from espalier.tasks.sources import input_columns


class Numbering(NamedTuple):
    """What the model calls the observations and labels of a pipeline; the last entry is for those without a number."""

    observations: np.ndarray  # int32 [V + 1]
    labels: np.ndarray  # int32 [Y + 1]


def numbering(model: Predictor, observations: list[str], labels: list[str]) -> Numbering:
    """Made once for a vocabulary and its labels, used for each shard."""
    code = {text: i for i, text in enumerate(model.labels)}
    return Numbering(model.ids_of(observations), np.array([code.get(text, -1) for text in labels] + [-1], np.int32))


def numbered(dataset: Dataset, numbers: Numbering) -> Dataset:
    """The data set in the numbering of a model; a position with a set of labels counts as one without a label."""
    labels = numbers.labels[np.maximum(dataset.labels, UNKNOWN)]
    return renumbered(dataset._replace(labels=labels), numbers.observations)


def renumber(dataset: Dataset, model: Predictor, observations: list[str], labels: list[str]) -> Dataset:
    """A data set of the pipeline's vocabulary and labels in the numbering of the model."""
    return numbered(dataset, numbering(model, observations, labels))


def dataset_of(model: Predictor, tokens: pl.DataFrame) -> Dataset:
    """Features of raw tokens for this model (columns sequence, x0, x1, …)."""
    offsets = store.sequence_offsets(tokens["sequence"].to_numpy())
    columns = [store.arrow_texts(tokens[name]) for name in input_columns(tokens)]
    return features_of(model, columns, offsets)


def tag(model: Predictor, tokens: pl.DataFrame) -> list[str]:
    """The label of each token, by the decoder of the model."""
    return model.texts_of(model.decoded(dataset_of(model, tokens)))
