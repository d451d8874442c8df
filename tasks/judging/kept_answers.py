"""What models say of the test data: decoded once and kept, for evaluation, promotion and the dashboard alike.

Answers lie in `.espalier/answers`, found again by the model, the test data and the code. They are no artefact: what is
missing or cannot be read is decoded again. Each model makes its own features of the tokens: a champion may know
observations that the vocabulary of the newest training data has lost.
"""

import contextlib
import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from espalier.engine.data.dataset import Dataset, any_in_sequence, select
from espalier.engine.errors import EspalierError
from espalier.engine.families.labeller import Labeller, Predictor
from espalier.engine.runtime.kernel_cache import source_hash
from espalier.tasks import store
from espalier.tasks.answering.tagging import dataset_of
from espalier.tasks.template import Labels

FOLDER = ".espalier/answers"
MOST = 4  # files that are kept; the oldest go
COLUMNS = {"predicted": "large_string", "loss": "double"}


class Answers(NamedTuple):
    """T labels, and -log p(y | x) of N sequences: NaN where the model does not know all of y."""

    labels: list[str]
    losses: np.ndarray | None  # float64 [N]; None where nobody has asked for it


def losses_of(data: Dataset, model: Labeller) -> np.ndarray:
    """-log p(y | x) of each sequence in nats, NaN for those with labels that the model does not know."""
    losses = np.full(len(data.weights), np.nan)
    known = np.flatnonzero(~any_in_sequence(data, data.labels < 0))
    losses[known] = -model.log_probability(select(data, known))
    return losses


def labelled(model: Predictor, tokens: pl.DataFrame) -> Dataset:
    """The tokens by the templates, vocabulary and labels of a model that was trained elsewhere."""
    return dataset_of(model, tokens)._replace(labels=Labels(model.labels, []).ids(tokens))


def answers_of(root: Path, path: Path, tokens: pl.DataFrame, losses: bool = False) -> Answers:
    """What the model of a file says of the test data, which `tokens` are; `losses` only where it has probabilities."""
    place = _place(root, path)
    kept = _read(place, tokens)
    if kept is not None and (kept.losses is not None or not losses):
        return kept
    model = store.read_model(path)
    data = labelled(model, tokens) if losses else dataset_of(model, tokens)
    said = kept.labels if kept else model.texts_of(model.decoded(data))
    found = Answers(said, losses_of(data, model) if losses else None)
    _write(place, tokens, found)
    return found


def keep(root: Path, path: Path, tokens: pl.DataFrame, found: Answers) -> None:
    """What evaluation has found of the model of a file."""
    _write(_place(root, path), tokens, found)


def _place(root: Path, path: Path) -> Path:
    told = [store.file_hash(path), store.file_hash(root / store.TOKENS.format("test")), source_hash()]
    return root / FOLDER / f"{hashlib.sha256(' '.join(told).encode()).hexdigest()[:32]}.arrow"


def _read(place: Path, tokens: pl.DataFrame) -> Answers | None:
    """What is kept there; None where nothing is, or not what fits the tokens."""
    try:
        table, info = store.read_arrow(place, COLUMNS)
    except EspalierError:
        return None
    labels, offsets = table.column("predicted").to_pylist(), store.sequence_offsets(tokens["sequence"].to_numpy())
    if len(labels) != len(tokens) or None in labels:
        return None
    losses = table.column("loss").to_numpy()[offsets[:-1]] if info.get("losses") else None
    return Answers(labels, losses)


def _write(place: Path, tokens: pl.DataFrame, found: Answers) -> None:
    lengths = np.diff(store.sequence_offsets(tokens["sequence"].to_numpy()))
    losses = np.full(len(lengths), np.nan) if found.losses is None else found.losses
    columns = {"predicted": found.labels, "loss": np.repeat(losses, lengths)}
    table = pl.DataFrame(columns, schema={"predicted": pl.String, "loss": pl.Float64})
    with contextlib.suppress(OSError):  # no room, or a folder that is not ours: it is only kept to save time
        store.write_arrow(place, table, {"losses": found.losses is not None})
        for old in sorted(place.parent.glob("*.arrow"), key=lambda file: file.stat().st_mtime_ns)[:-MOST]:
            old.unlink(missing_ok=True)
