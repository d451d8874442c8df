"""One gradient of the rich pattern by worker processes: its time, the bytes that move, what the driver adds."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks import corpora, ours
from benchmarks.cases import Context, rich
from benchmarks.job import Skip
from benchmarks.rows import OURS
from espalier.engine.data.dataset import Dataset
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.parts.sharded_objective import ShardedObjective, cut, in_process
from espalier.engine.weights.layout import Layout, dense_layout
from espalier.tasks import store

BLOCKS, REPEATS = 4, 3
WAYS = ((0, True, "one process, one block"), (0, True, f"one process, {BLOCKS} blocks"),
        (1, True, "shared memory, 1 worker"), (2, True, "shared memory, 2 workers"),
        (1, False, "messages, 1 worker"), (2, False, "messages, 2 workers"))  # fmt: skip


def rows(context: Context) -> Iterator[dict]:
    """A worker has one thread, so that two are compared with one; a driver has all, and works while they wait."""
    for workers, shared, name in WAYS:
        arguments = {"workers": workers, "shared": shared, "blocks": 1 if "one block" in name else BLOCKS}
        found = context.job("scale:gradient", OURS, name, 2 if workers else 1, **arguments)
        if found:
            yield context.row(OURS, name + (f", {found['remark']}" if found["remark"] else ""), found)


def gradient(data: str, quick: bool, workers: int, shared: bool, blocks: int) -> dict:
    """Half of theta changes between two gradients, as it does in a run with an L1 term at most."""
    train = rich.columns(corpora.read_part(data, "conll2000", 0, quick))
    problem = corpora.make_problem(train, train.clear(), rich.LINES)
    layout = dense_layout(len(problem.labels), problem.kinds, start=False)
    theta = rich._theta(layout.size, zeros=False)
    block_tokens = len(problem.train.labels) // blocks
    if not workers:
        objective = (
            ChainObjective(problem.train, layout) if blocks == 1
            else in_process(problem.train, layout, block_tokens=block_tokens)
        )  # fmt: skip
        return _row(ours.gradient_seconds(objective, theta, REPEATS), problem.train, theta, "")
    with tempfile.TemporaryDirectory() as folder:
        return _by_workers(Path(folder), problem, layout, theta, block_tokens, workers, shared)


def _row(seconds: float, dataset: Dataset, theta: np.ndarray, remark: str) -> dict:
    return {"seconds_per_gradient": seconds, "active": int(np.count_nonzero(theta)),
            "tokens_per_second": len(dataset.labels) / seconds, "remark": remark}  # fmt: skip


def _by_workers(root: Path, problem, layout: Layout, theta, block_tokens: int, workers: int, shared: bool) -> dict:
    try:
        from espalier.tasks.cluster.training import pool
    except ImportError as error:
        raise Skip(f"{error}: pip install 'espalier-crf[cluster]'") from None
    shards = write_project(root, problem, block_tokens)
    bounds = cut(shards.offsets(), block_tokens)
    with pool(f"local:{workers}", root, shards, bounds, layout, "auto", workers, shared) as held:
        objective = ShardedObjective(held, layout)
        other = theta.copy()
        other[::4] *= 1.01
        objective.value_and_gradient(theta)
        held.moved = {"out": 0, "in": 0}
        times, added = [], []
        for repeat in range(REPEATS):
            begin = time.perf_counter()
            objective.value_and_gradient(theta if repeat % 2 else other)
            times.append(time.perf_counter() - begin)
            added.append(times[-1] - max(held.seconds))
        out, back = (held.moved[way] / REPEATS / 2**20 for way in ("out", "in"))
    share = np.median(added) / np.median(times)
    moved = f"{out:,.0f} MiB out and {back:,.0f} back"  # `benchmarks.large` reads this line
    remark = f"{moved}, {np.median(added):.3f} s ({share:.0%}) beside the slowest worker"
    return _row(float(np.median(times)), problem.train, theta, remark)


def write_project(root: Path, problem, shard_tokens: int) -> store.Shards:
    """The training data of a problem as a project has them."""
    data, names = problem.train, []
    sequence = np.repeat(np.arange(len(data.weights), dtype=np.int32), np.diff(data.offsets))
    for lo, hi in cut(data.offsets, shard_tokens):
        run = slice(data.offsets[lo], data.offsets[hi])
        names.append(store.shard_name("train", len(names)))
        shard = store.Shard(sequence[run], data.labels[run], data.observations[run])
        store.write_shard(root / store.FEATURES / names[-1], shard)
    weights = pl.DataFrame({"sequence": np.arange(len(data.weights), dtype=np.int32), "weight": data.weights})
    store.write_arrow(root / store.WEIGHTS, weights)
    manifest = {"columns": list(range(data.observations.shape[1])), "labels": problem.labels, "label_sets": [],
                "observations": len(problem.observations), "splits": {"train": {"shards": names}}}  # fmt: skip
    return store.Shards(root, "train", manifest)
