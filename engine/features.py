"""Features of raw columns for a model: what tagging and explaining begin with."""

import numpy as np
import pyarrow as pa

from espalier.engine.data.dataset import Dataset, make_dataset
from espalier.engine.model import Model
from espalier.engine.text import lookup
from espalier.engine.text.templates import check_columns, with_room
from espalier.engine.text.values import apart, scaled_dataset


def columns_needed(model: Model) -> int:
    """How many input columns the templates of a model look at."""
    return max((macro.source.column for template in model.parsed for macro in template.looks_at), default=0) + 1


def features_of(model: Model, columns: list[pa.Array], offsets: np.ndarray) -> Dataset:
    """The observations of the model in columns of T texts (large_string) that `offsets` cut into sequences."""
    check_columns(model.parsed, len(columns))
    templates = with_room(model.parsed, lambda column: columns[column].unique().to_pylist())
    ids = lookup.find(model.vocabulary, templates, columns, offsets)
    observations, valued, values = apart(templates, ids, columns, offsets)
    data = make_dataset(observations, None, offsets, valued=valued, values=values)
    return scaled_dataset(data, model.scale_of_each()) if model.scales else data
