"""A model applied to tokens: strings in, labels out; the features are made as in training."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from engine import decode, lookup
from engine.data import Dataset, make_dataset
from engine.errors import EspalierError
from engine.layout import FAMILIES
from engine.model import Model
from engine.templates import check_columns, sources_of
from tasks import store
from tasks.sources import conll, input_columns
from tasks.sources.conll import read_bytes


def model_ids(model: Model, observations: list[str]) -> np.ndarray:
    """For each id of a vocabulary the id in the model, -1 where the model has no weight for it."""
    known = {text: i for i, text in enumerate(model.observations)}
    return np.array([known.get(text, -1) for text in observations] + [-1], np.int32)


def renumber(dataset: Dataset, model: Model, observations: list[str], labels: list[str]) -> Dataset:
    """A data set of the pipeline's vocabulary and labels in the numbering of the model."""
    code = {text: i for i, text in enumerate(model.labels)}
    label_of = np.array([code.get(text, -1) for text in labels] + [-1], np.int32)
    return dataset._replace(
        observations=model_ids(model, observations)[dataset.observations], labels=label_of[dataset.labels]
    )


def dataset_of(model: Model, tokens: pl.DataFrame) -> Dataset:
    """Features of raw tokens for this model (columns sequence, x0, x1, …)."""
    names = input_columns(tokens)
    check_columns(model.parsed, len(names))
    offsets = store.sequence_offsets(tokens["sequence"].to_numpy())
    columns = [store.arrow_texts(tokens[name]) for name in names]
    return make_dataset(lookup.find(model.vocabulary, model.parsed, columns, offsets), None, offsets)


def tag(model: Model, tokens: pl.DataFrame) -> list[str]:
    """The likeliest label of each token."""
    return _labels(model, tokens).to_list()


def _labels(model: Model, tokens: pl.DataFrame) -> pl.Series:
    predicted = decode.viterbi(dataset_of(model, tokens), model.layout, model.theta)
    return pl.Series("label", model.labels, pl.String).gather(predicted)


def tag_columns(model: Model, data: bytes | None, path: Path, separator: str | None = None) -> Iterator[str]:
    """Lines of columns with the predicted label behind, an empty line after each sequence."""
    frame = conll.parse(read_bytes(path) if data is None else data, path, separator)
    names = [name for name in frame.columns if name.startswith("c")]
    width = max((source.column for source in sources_of(model.parsed)), default=0) + 1
    if len(names) < width:
        raise EspalierError(f"{path} has {len(names)} columns, the model looks at {width}: expected its input columns")
    tokens = frame.select("sequence", *(pl.col(name).alias(f"x{i}") for i, name in enumerate(names[:width])))
    last = (pl.col("sequence") != pl.col("sequence").shift(-1)).fill_null(False)
    end = pl.when(last).then(pl.lit("\n\n")).otherwise(pl.lit("\n"))
    line = pl.concat_str(*names, "label", separator=separator or "\t")
    yield from frame.with_columns(_labels(model, tokens)).select(text=line + end)["text"]


def tag_words(model: Model, data: bytes | None, path: Path, separator: str | None = None) -> Iterator[str]:
    """One sequence a line, its characters as tokens: the line, a tab, its labels."""
    lines = conll.lines_of(read_bytes(path) if data is None else data, path).str.strip_chars()
    words = pl.DataFrame({"x0": lines.filter(lines != "")}).with_row_index("sequence")
    if words.is_empty():
        raise EspalierError(f"{path}: holds no line to tag")
    tokens = words.with_columns(pl.col("sequence").cast(pl.Int32), pl.col("x0").str.split("")).explode("x0")
    labels = tag(model, tokens)
    begin = 0
    for word in words["x0"]:
        yield f"{word}\t{' '.join(labels[begin : begin + len(word)])}\n"
        begin += len(word)


def strongest(model: Model, label: str | None, count: int) -> list[dict]:
    """The weights of largest size, all or of one label, in words."""
    if label is not None and label not in model.labels:
        raise EspalierError(f"label {label!r} is not one of the model's: {', '.join(model.labels)}")
    family, observation, previous, here = model.layout.slots()
    mine = np.flatnonzero(here == model.labels.index(label)) if label is not None else np.arange(len(here))
    order = mine[np.argsort(-np.abs(model.theta[mine]), kind="stable")][:count]
    rows = []
    for i in order:
        before = f"{model.labels[previous[i]]} → " if previous[i] >= 0 else "⟨start⟩ → " if family[i] == 1 else ""
        text = f"{before}{model.labels[here[i]]}  when {model.observations[observation[i]]}"
        rows.append({"family": FAMILIES[family[i]], "observation": model.observations[observation[i]],
                     "previous": model.labels[previous[i]] if previous[i] >= 0 else None,
                     "label": model.labels[here[i]], "weight": float(model.theta[i]), "text": text})  # fmt: skip
    return rows
