"""Features of raw columns for a model: what tagging and explaining begin with."""

import numpy as np
import pyarrow as pa

from espalier.engine.data.dataset import Dataset, make_dataset
from espalier.engine.model import Model
from espalier.engine.text import lookup
from espalier.engine.text.templates import check_columns, sources_of


def columns_needed(model: Model) -> int:
    """How many input columns the templates of a model look at."""
    return max((source.column for source in sources_of(model.parsed)), default=0) + 1


def features_of(model: Model, columns: list[pa.Array], offsets: np.ndarray) -> Dataset:
    """The observations of the model in columns of T texts (large_string) that `offsets` cut into sequences."""
    check_columns(model.parsed, len(columns))
    return make_dataset(lookup.find(model.vocabulary, model.parsed, columns, offsets), None, offsets)
