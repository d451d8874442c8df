"""Features of raw columns for a model: what tagging and explaining begin with."""

import numpy as np
import pyarrow as pa

from engine import lookup
from engine.data import Dataset, make_dataset
from engine.model import Model
from engine.templates import check_columns, parse


def columns_needed(model: Model) -> int:
    """How many input columns the templates of a model look at."""
    templates = parse(model.templates, "the model's templates")
    return max((macro.column for template in templates for macro in template.macros), default=0) + 1


def features_of(model: Model, columns: list[pa.Array], offsets: np.ndarray) -> Dataset:
    """The observations of the model in columns of T texts (large_string) that `offsets` cut into sequences."""
    templates = parse(model.templates, "the model's templates")
    check_columns(templates, len(columns))
    return make_dataset(lookup.find(model.vocabulary, templates, columns, offsets), None, offsets)
