"""Evaluation on a cluster: each worker measures some shards of the test data."""

from pathlib import Path

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.families.labeller import Labeller
from espalier.tasks import store
from espalier.tasks.answering.tagging import numbered, numbering
from espalier.tasks.cluster.worker import load
from espalier.tasks.cluster.workers import FIRST_PATIENCE, Say, job_of, make_client, parse, silence
from espalier.tasks.evaluate import Measured, measure, merge

# ---- on a worker


class ShardsOfModel:
    """Shards of the test data in the numbering of a model, and the model."""

    def __init__(self, shards: list, model: Labeller):
        self.shards, self.model = shards, model

    def measure(self) -> Measured:
        return merge(measure(shard, self.model) for shard in self.shards)


def read_shards(folder: Path, job: dict, lo: int, hi: int) -> ShardsOfModel:
    root, manifest = Path(job["root"]), job["manifest"]
    if store.file_hash(root / store.CANDIDATE) != job["model"]:
        raise EspalierError(f"{root / store.CANDIDATE}: it has changed since the evaluation began")
    model = store.read_model(root / store.CANDIDATE)
    numbers = numbering(model, store.read_vocabulary(root)["observation"].to_list(), manifest["labels"])
    shards, known = store.Shards(root, "test", manifest, job["known"]), job["known"]["sequences"]
    ends = np.append(0, np.cumsum(known))
    return ShardsOfModel([numbered(shards.read(int(ends[s]), int(ends[s + 1]), check=True), numbers)
                       for s in range(lo, hi)], model)  # fmt: skip


def measure_shards(folder: str, lo: int, hi: int):
    return tuple(load(folder, lo, hi, read_shards).part.measure())


# ---- on the driver


def measured(
    cluster: str, root: Path, shards: store.Shards, n_threads: int | None = None, say: Say = silence
) -> list[tuple]:  # fmt: skip
    """What the candidate says of the test shards, as `tasks.evaluate.measure` has it, in parts in their order."""
    job = {"manifest": shards.manifest, "known": shards.described(), "model": store.file_hash(root / store.CANDIDATE)}
    with (
        make_client(parse(cluster)) as client,
        job_of(cluster, root, client, say, n_threads, **job) as made,
    ):
        made.share_out(len(shards.names), made.folder / "token")
        return made.ask(measure_shards, patience=FIRST_PATIENCE)
