"""What runs on a worker of a cluster: it reads what it is asked about once, and keeps it between questions.

A job is a folder with a file job.json, made by the driver. What a worker holds of it is a run of items [lo, hi):
blocks of training data, groups of bags, or shards of test data.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from engine import threads
from engine.bags import Bags, join_bags, select_bags
from engine.cache import source_hash
from engine.errors import EspalierError
from engine.mixture import GroupPart, bags, held_out
from engine.restriction import Runs
from engine.sharded import Part
from engine.sharded_blocks import PartBlocks
from tasks import store
from tasks.sharing import Mapped, read_layout

READS, PAUSE = 4, 0.5  # tries to read a shard; seconds after the first, twice as long after each

_held: dict[tuple, "Held"] = {}
_loading = threading.Lock()


class Stale(Exception):
    """The worker does not hold what the question is relative to."""


class Held:
    """What is held of a job, and for blocks of training data the theta that came last."""

    def __init__(self, part):
        self.part, self.theta, self.version = part, None, None
        self.blocks, self.turn = None, None  # of blockwise descent, and the question answered last
        self.mapped, self.lock = Mapped(), threading.Lock()


def hello(token: str) -> dict:
    """What a worker runs, and whether it sees the driver's shared memory."""
    return {"code": source_hash(), "shares": Path(token).exists()}


def release(folder: str) -> None:
    """Let go of what is held for a job."""
    for key in [key for key in _held if key[0] == folder]:
        _held.pop(key, None)


# ---- reading


def _patiently(read: Callable):
    """The result of `read`; a file that cannot be read is tried again: it may be there in a moment."""
    for attempt in range(READS):
        try:
            return read()
        except (EspalierError, OSError) as error:
            if attempt == READS - 1:
                if isinstance(error, EspalierError):
                    raise
                raise EspalierError(f"a worker cannot read {error.filename} ({error.strerror})") from None
            time.sleep(PAUSE * 2**attempt)


def _load(folder: str, lo: int, hi: int) -> Held:
    """Items [lo, hi) of a job."""
    with _loading:
        if (folder, lo, hi) not in _held:
            _held[folder, lo, hi] = Held(_patiently(lambda: _read(Path(folder), lo, hi)))
        return _held[folder, lo, hi]


def _read(folder: Path, lo: int, hi: int):
    job = store.read_json(folder / "job.json")
    if job["threads"] or "ESPALIER_THREADS" not in os.environ:
        threads.set_threads(job["threads"] or _worker_threads())
    return {"blocks": _read_blocks, "bags": _read_bags, "shards": _read_shards}[job["what"]](folder, job, lo, hi)


def _worker_threads() -> int:
    """The budget of a worker whose owner has set none: as many threads as Dask may use there."""
    from distributed import get_worker

    return get_worker().state.nthreads


def _read_blocks(folder: Path, job: dict, lo: int, hi: int) -> Part:
    root, bounds = Path(job["root"]), job["bounds"]
    shards = store.Shards(root, "train", job["manifest"], job["known"])
    if store.file_hash(root / store.WEIGHTS) != job["weights"]:
        raise EspalierError(f"{root / store.WEIGHTS}: it has changed since the training began")
    weights = store.read_weights(root)
    blocks = (shards.read(*bounds[b], weights, check=True) for b in range(lo, hi))
    return Part(blocks, lo, len(bounds), read_layout(folder, mapped=len(bounds) > 1), job["sparse"])


def _read_bags(folder: Path, job: dict, lo: int, hi: int) -> GroupPart:
    sides = [store.Shards(Path(job["root"]), name, job["manifest"], known) for name, known in job["sides"].items()]
    groups = [read_bags(sides, job["rows"], job["columns"], *job["bounds"][g]) for g in range(lo, hi)]
    return GroupPart(groups, lo, len(job["bounds"]))


def read_bags(sides: list[store.Shards], rows: dict | None, columns: list[int], lo: int, hi: int) -> Bags:
    """Bags [lo, hi) of the sequences of all sides, one side after the other, or of the rows that were chosen there."""
    counts = [sum(side.described()["sequences"]) for side in sides]
    if rows is not None:
        chosen = held_out(sum(counts), rows["seed"])[rows["which"]][lo:hi]
        lo, hi = (int(chosen[0]), int(chosen[-1]) + 1) if len(chosen) else (0, 0)
    found, begin = Bags(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0), sides[0].manifest["observations"]), 0
    for side, count in zip(sides, counts, strict=True):
        if begin < hi and lo < begin + count:
            data = side.read(max(0, lo - begin), min(count, hi - begin), check=True)
            more = Bags(*bags(data.observations[:, columns], data.offsets), found.n_features)
            found = join_bags(found, more)
        begin += count
    return found if rows is None else select_bags(found, chosen - lo)


class TestShards:
    """Shards of the test data in the numbering of a model, and the model."""

    __test__ = False

    def __init__(self, shards: list, layout, theta: np.ndarray):
        self.shards, self.layout, self.theta = shards, layout, theta


def _read_shards(folder: Path, job: dict, lo: int, hi: int) -> TestShards:
    from engine.model import Model
    from tasks.tagging import numbered, numbering

    root, manifest = Path(job["root"]), job["manifest"]
    if store.file_hash(root / store.CANDIDATE) != job["model"]:
        raise EspalierError(f"{root / store.CANDIDATE}: it has changed since the evaluation began")
    model = Model.load(root / store.CANDIDATE)
    numbers = numbering(model, store.read_vocabulary(root)["observation"].to_list(), manifest["labels"])
    shards, known = store.Shards(root, "test", manifest, job["known"]), job["known"]["sequences"]
    ends = np.append(0, np.cumsum(known))
    return TestShards([numbered(shards.read(int(ends[s]), int(ends[s + 1]), check=True), numbers)
                       for s in range(lo, hi)], model.layout, model.theta)  # fmt: skip


# ---- questions about blocks of training data


def prepare(folder: str, lo: int, hi: int) -> tuple[Runs, list]:
    part = _load(folder, lo, hi).part
    return part.runs, part.nodes


def evaluate(folder: str, lo: int, hi: int, what: str, theta: tuple, out: str | None):
    """(seconds, [(node, value, vector)]); vectors are None when they are rows of the file `out`.

    theta is ("none",), ("file", path, size), ("whole", version, own theta), ("active", version, size, indices,
    values) or ("changes", version before, version, indices, values).
    """
    held = _load(folder, lo, hi)
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
    held = _load(folder, lo, hi)
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


# ---- questions about bags and test data


def count_bags(folder: str, lo: int, hi: int, what: str, arguments: tuple) -> list:
    held = _load(folder, lo, hi)
    with held.lock:
        return held.part.sums(what, *arguments)


def rows_of_bags(folder: str, lo: int, hi: int, what: str, mixture: tuple) -> np.ndarray:
    held = _load(folder, lo, hi)
    with held.lock:
        return held.part.rows(what, *mixture)


def measure_shards(folder: str, lo: int, hi: int):
    from tasks.evaluate import measure, merge

    test = _load(folder, lo, hi).part
    return tuple(merge(measure(shard, test.layout, test.theta) for shard in test.shards))
