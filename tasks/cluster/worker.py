"""What every worker of a cluster does: it reads what it is asked about once, and keeps it between questions.

A job is a folder with a file job.json, made by the driver. What a worker holds of it is a run of items [lo, hi):
blocks of training data, groups of bags, or shards of test data.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.engine.runtime import threads
from espalier.engine.runtime.compile_target import compile_target
from espalier.engine.runtime.kernel_cache import source_hash
from espalier.tasks import shapes, store
from espalier.tasks.cluster.sharing import Mapped

READS, PAUSE = 4, 0.5  # tries to read a shard; seconds after the first, twice as long after each

_held: dict[tuple, "Held"] = {}
_loading = threading.Lock()


class Stale(Exception):
    """The worker does not hold what the question is relative to."""


class Held:
    """What is held of a job, one question at a time, and for blocks of training data the theta that came last."""

    def __init__(self, part):
        self.part, self.mapped, self.lock = part, Mapped(), threading.Lock()
        self.theta, self.version = None, None
        self.blocks, self.turn = None, None  # of blockwise descent, and the question answered last


def hello(token: str) -> dict:
    """What a worker runs, and whether it sees the driver's shared memory."""
    return {"code": source_hash(), "target": compile_target(), "shares": Path(token).exists()}


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


def load(folder: str, lo: int, hi: int, read: Callable) -> Held:
    """Items [lo, hi) of a job, as read(folder, job, lo, hi) makes them."""
    with _loading:
        if (folder, lo, hi) not in _held:
            _held[folder, lo, hi] = Held(_patiently(lambda: _read(Path(folder), lo, hi, read)))
        return _held[folder, lo, hi]


def _read(folder: Path, lo: int, hi: int, read: Callable):
    return read(folder, begun(folder), lo, hi)


def begun(folder: Path) -> dict:
    """What a job is; the budget of threads that it has here is set."""
    job = store.read_json(folder / "job.json", shapes.Table(shapes.ANY))
    if job["threads"] or "ESPALIER_THREADS" not in os.environ:
        threads.set_threads(job["threads"] or _worker_threads())
    return job


def _worker_threads() -> int:
    """The budget of a worker whose owner has set none: as many threads as Dask may use there."""
    from distributed import get_worker

    return get_worker().state.nthreads
