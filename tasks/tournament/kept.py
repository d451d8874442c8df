"""What is kept of entrants, each in a folder named by a hash of all that it depends on: a killed tournament goes on.

A folder holds the model, how it came to be (`trained.json`, written last: without it nothing was trained), and what the
model says of the development and the test data. What is damaged is made again.
"""

import hashlib
import json
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from espalier.engine.errors import EspalierError
from espalier.engine.runtime import threads
from espalier.engine.runtime.compile_target import compile_target
from espalier.tasks import evaluate, store
from espalier.tasks.code_hash import code_hash
from espalier.tasks.shapes import ANY, Table
from espalier.tasks.store.places import missing
from espalier.tasks.tournament.entrants import Entrant
from espalier.tasks.training import trainer_of
from espalier.tasks.training.job import NO_PATH, Trained

FOLDER = ".espalier/tournament"
MOST = 12  # folders of other entrants than those of now that stay; the oldest go
SPLITS = ("train", "dev", "test", "unlabelled")
NO_MATTER = ("checkpoint_seconds",)  # parameters of a training that change no byte of its result
COLUMNS = {"predicted": "large_string", "confidence": "double", "loss": "double"}


class Said(NamedTuple):
    """What a model says of a split: T labels, how likely each is, and -log p(y | x) of N sequences; NaN if unknown."""

    labels: list[str]
    confidence: np.ndarray
    losses: np.ndarray


def data_hashes(root: Path) -> dict[str, Any]:
    """Of the features, the weights of sequences and the labels that every entrant meets."""
    manifest = store.read_manifest(root)
    tokens = [root / store.TOKENS.format(split) for split in ("dev", "test")]
    paths = [*tokens, root / store.WEIGHTS, root / store.VOCABULARY]
    paths += [root / store.FEATURES / name for split in SPLITS for name in manifest["splits"][split]["shards"]]
    for path in paths:
        if not path.is_file():
            raise missing(path)
    return {"manifest": manifest, "files": threads.run(store.file_hash, paths)}


def key_of(root: Path, entrant: Entrant, data: dict[str, Any]) -> str:
    """Changes with the data, the parameters that matter, the code and what it is compiled for."""
    params = entrant.params
    training = {name: value for name, value in vars(params.train).items() if name not in NO_MATTER}
    initial = params.train.initial and root / params.train.initial
    said = {
        "data": data, "family": entrant.family, "own": vars(params.of_family), "train": training,
        "decode": params.evaluate.decode,
        "initial": store.file_hash(initial) if initial and initial.is_file() else None,
        "code": [code_hash(trainer_of(entrant.family).fit), code_hash(evaluate.measure)],
        "built": [compile_target(), *(version(name) for name in ("numpy", "numba"))],
    }  # fmt: skip
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:32]


class Kept:
    """The folder of one entrant."""

    def __init__(self, root: Path, key: str):
        self.folder = root / FOLDER / key

    @property
    def model(self) -> Path:
        return self.folder / "candidate.model"

    @property
    def trace(self) -> Path:
        return self.folder / "trace.jsonl"

    def record(self) -> dict | None:
        """How the model came to be; None where nothing is kept, or not what was written."""
        try:
            found = store.read_json(self.folder / "trained.json", Table(ANY))
            return found if found["files"] == [store.file_hash(path) for path in (self.model, self.trace)] else None
        except (EspalierError, OSError, KeyError):
            return None

    def write(self, trained: Trained, times: dict[str, Any]) -> None:
        """The model first, and last what says that it is whole; `times` are put into it."""
        store.write_model(self.model, trained.model)
        store.write_jsonl(self.trace, trained.trace)
        files = [store.file_hash(path) for path in (self.model, self.trace)]
        record = times | {"files": files, "iterations": trained.seconds, "figures": trained.figures,
                          "note": trained.note, "path": trained.path}  # fmt: skip
        store.write_json(self.folder / "trained.json", record)

    def trained(self) -> Trained:
        """What `train.write` needs to make it the candidate."""
        record, model = self.record(), store.read_model(self.model)
        trace = store.read_jsonl(self.trace, Table(ANY))
        path = record["path"] or NO_PATH
        return Trained(model, trace, record["iterations"], record["figures"], record["note"], path)

    # What it says.

    def said(self, split: str, tokens: pl.DataFrame) -> tuple[Said, float | None] | None:
        """What the model says of a split and the seconds that labelling took; None where it is to be asked."""
        try:
            table, info = store.read_arrow(self.folder / f"{split}.arrow", COLUMNS)
        except EspalierError:
            return None
        labels = table.column("predicted").to_pylist()
        if len(labels) != len(tokens) or None in labels or info.get("model") != store.file_hash(self.model):
            return None
        first = store.sequence_offsets(tokens["sequence"].to_numpy())[:-1]
        losses = table.column("loss").to_numpy()[first]
        return Said(labels, table.column("confidence").to_numpy(), losses), info.get("seconds")

    def write_said(self, split: str, tokens: pl.DataFrame, said: Said, seconds: float | None) -> None:
        lengths = np.diff(store.sequence_offsets(tokens["sequence"].to_numpy()))
        losses = np.repeat(said.losses, lengths)
        columns = {"predicted": said.labels, "confidence": said.confidence, "loss": losses}
        kinds = {"predicted": pl.String, "confidence": pl.Float64, "loss": pl.Float64}
        table, info = pl.DataFrame(columns, schema=kinds), {"model": store.file_hash(self.model), "seconds": seconds}
        store.write_arrow(self.folder / f"{split}.arrow", table, info)



def prune(root: Path, keys: set[str]) -> None:
    """Of other entrants than these the newest stay."""
    others = [path for path in (root / FOLDER).glob("*") if path.is_dir() and path.name not in keys]
    for path in sorted(others, key=lambda one: one.stat().st_mtime_ns)[:-MOST]:
        shutil.rmtree(path, ignore_errors=True)
