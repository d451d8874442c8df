"""Second looks at a model beside its figures on the test data: without what it had seen in training, and by the other
decoder."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from espalier.engine.families.labeller import DECODERS, Labeller
from espalier.tasks import store
from espalier.tasks.answering.tagging import Numbering, numbered
from espalier.tasks.sources.sequence_hashes import input_hashes

Figures = Callable[[list[str], list[str], np.ndarray], dict]  # of gold labels, predicted ones, and offsets
COMPARED = ("token_error", "sequence_error", "edit_error", "f1", "bracket_f1")


def in_training(root: Path, tokens: pl.DataFrame) -> np.ndarray:
    """For each sequence whether the training data have one with the same input, bool [N]."""
    here, found = input_hashes(tokens), []
    for block in store.token_blocks(root, "train"):
        known = input_hashes(block)
        found.append(known[np.isin(known, here)])
    return np.isin(here, np.concatenate([np.empty(0, np.uint64), *found]))


def overlap(seen: np.ndarray, gold: list[str], said: list[str], offsets: np.ndarray, figures: Figures) -> dict:
    """How many sequences had been seen in training, and the figures without them, where some are left."""
    found = {"sequences": int(seen.sum()), "share": float(seen.mean()) if len(seen) else 0.0}
    if not seen.any() or seen.all():
        return found
    keep = np.flatnonzero(~np.repeat(seen, np.diff(offsets)))
    ends = np.append(0, np.cumsum(np.diff(offsets)[~seen]))
    without = figures([gold[t] for t in keep], [said[t] for t in keep], ends)
    return found | {"without": {name: without[name] for name in COMPARED if name in without}}


def decoders(root: Path, manifest: dict, model: Labeller, numbers: Numbering, figures: Figures) -> dict:
    """The figures of each decoder that it has on the development data, or on the test data where there are none."""
    split = "dev" if manifest["splits"]["dev"]["sequences"] else "test"
    gold = store.read_tokens(root, split)[0]["label"].to_list()
    able = DECODERS if "probability" in model.can else DECODERS[:1]
    said: dict[str, list[str]] = {name: [] for name in able}
    lengths = [np.zeros(1, np.int64)]
    for shard in store.read_shards(root, split, manifest):
        data = numbered(shard, numbers)
        lengths.append(np.diff(data.offsets))
        for name, labels in said.items():
            labels += model.texts_of(model.decoded(data, name))
    offsets = np.cumsum(np.concatenate(lengths))
    found = {name: figures(gold, labels, offsets) for name, labels in said.items()}
    rows = {name: {key: row[key] for key in COMPARED if key in row} for name, row in found.items()}
    return rows | {"used": model.decoder(), "part": split}
