"""Training on a worker: blocks of the training data, their sums, and their part in blockwise descent."""

import time
from pathlib import Path

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.parts.sharded_blocks import PartBlocks
from espalier.engine.parts.sharded_objective import Part
from espalier.engine.weights.sublayout import Runs
from espalier.tasks import store
from espalier.tasks.cluster.sharing import read_layout, read_twins
from espalier.tasks.cluster.worker import Held, Stale, load


def read_blocks(folder: Path, job: dict, lo: int, hi: int) -> Part:
    root, bounds = Path(job["root"]), job["bounds"]
    shards = store.Shards(root, "train", job["manifest"], job["known"], read_twins(folder))
    if store.file_hash(root / store.WEIGHTS) != job["weights"]:
        raise EspalierError(f"{root / store.WEIGHTS}: it has changed since the training began")
    weights = store.read_weights(root)
    blocks = (shards.read(*bounds[b], weights, check=True) for b in range(lo, hi))
    return Part(blocks, lo, len(bounds), read_layout(folder, mapped=len(bounds) > 1), job["sparse"])


def prepare(folder: str, lo: int, hi: int) -> tuple[Runs, list]:
    part = load(folder, lo, hi, read_blocks).part
    return part.runs, part.nodes


def evaluate(folder: str, lo: int, hi: int, what: str, theta: tuple, out: str | None):
    """(seconds, [(node, value, vector)]); vectors are None when they are rows of the file `out`.

    theta is ("none",), ("file", path, size), ("whole", version, own theta), ("active", version, size, indices,
    values) or ("changes", version before, version, indices, values).
    """
    held = load(folder, lo, hi, read_blocks)
    with held.lock:
        begin = time.perf_counter()
        rows = None
        if what != "value" and out:
            try:
                rows = held.mapped("sums", Path(out), (len(held.part.nodes), held.part.size))
            except OSError:  # no room there: by message then
                pass
        found = list(held.part.sums(what, _theta(held, theta), rows))
        seconds = time.perf_counter() - begin
    return seconds, found if rows is None else [one._replace(vector=None) for one in found]


def on_blocks(
    folder: str, lo: int, hi: int, what: str, arguments: tuple, turn: int, before: int | None, start: tuple | None
):
    """The answer of the blocks of blockwise descent, which are brought up to the theta `start` first.

    Without it the question that they have answered last must be the one `before`.
    """
    held = load(folder, lo, hi, read_blocks)
    with held.lock:
        if start is None and held.turn != before:
            raise Stale
        held.blocks, held.turn = held.blocks or PartBlocks(held.part), None
        if start is not None:
            theta = _theta(held, start)
            held.blocks.assign(theta if len(theta) == held.part.size else held.part.runs.take(theta))
        answer = getattr(held.blocks, what)(*arguments)
        held.turn = turn
    return answer


def _theta(held: Held, theta: tuple) -> np.ndarray | None:
    """All weights, in shared memory, or those of the part."""
    kind, *rest = theta
    if kind == "none":
        return None
    if kind == "file":
        return held.mapped("theta", Path(rest[0]), (rest[1],))
    if kind == "whole":
        held.version, held.theta = rest[0], np.array(rest[1])
    elif kind == "active":
        held.version, size, indices, values = rest
        held.theta = np.zeros(size)
        held.theta[indices] = values
    else:
        before, version, indices, values = rest
        if held.version not in (before, version):
            raise Stale
        held.theta[indices] = values
        held.version = version
    return held.theta
