"""Training data on a Dask cluster: workers hold parts of it, the driver holds theta.

`train.cluster` is null (this process), local:N (N worker processes of this machine) or the
address of a scheduler, tcp://host:port, whose workers see the project's folder under the same path.
A worker reads its part once, from the shards, and keeps it between iterations; when it is
lost, another one reads the part again and the result is the same. On one machine theta and
the sums lie in shared memory; to other machines goes what has changed of the weights that
occur in a part, and the sums over these come back.

Dask is imported here only, and only when it is asked for.
"""

import logging
import os
import queue
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from engine import threads
from engine.cache import source_hash
from engine.errors import EspalierError
from engine.layout import Layout
from engine.restriction import Runs
from engine.sharded import Part, Sum
from tasks import store

JOBS = ".espalier/jobs"
PREFIX, YOUNG = "espalier-shared-", 60.0  # of folders that driver and workers share; seconds
POLL = 1.0  # seconds between two looks whether all workers are still there
FIRST_WORKER = 60.0  # seconds to wait for a worker, at the beginning and when none is left
AWAY = 20.0  # seconds that a scheduler may be away
PATIENCE, FIRST_PATIENCE = 300.0, 3600.0  # seconds for an answer at least, later and when a part is read first
SLOWER = 20  # times the slowest answer so far, if that is more
LOSSES = 5  # of one part while one answer is waited for
READS, PAUSE = 4, 0.5  # tries to read a shard; seconds after the first, twice as long after each


# ---- on a worker

_held: dict[tuple, "Held"] = {}
_loading = threading.Lock()


class Stale(Exception):
    """The worker does not hold the theta that the changes are relative to."""


class Held:
    """A part in the memory of a worker, with the last theta that came by message."""

    def __init__(self, part: Part):
        self.part, self.theta, self.version = part, None, None


def hello(token: str) -> dict:
    """What a worker runs, and whether it sees the driver's shared memory."""
    return {"code": source_hash(), "shares": Path(token).exists()}


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
    """Blocks [lo, hi) of a job."""
    with _loading:
        if (folder, lo, hi) not in _held:
            _held[folder, lo, hi] = Held(_patiently(lambda: _read(Path(folder), lo, hi)))
        return _held[folder, lo, hi]


def _read(folder: Path, lo: int, hi: int) -> Part:
    job = store.read_json(folder / "job.json")
    if job["threads"] or "ESPALIER_THREADS" not in os.environ:
        threads.set_threads(job["threads"] or _worker_threads())
    root, bounds = Path(job["root"]), job["bounds"]
    shards = store.Shards(root, "train", job["manifest"], job["known"])
    if store.file_hash(root / store.WEIGHTS) != job["weights"]:
        raise EspalierError(f"{root / store.WEIGHTS}: it has changed since the training began")
    weights = store.read_weights(root)
    blocks = (shards.read(*bounds[b], weights, check=True) for b in range(lo, hi))
    return Part(blocks, lo, len(bounds), _read_layout(folder, mapped=len(bounds) > 1), job["sparse"])


def _worker_threads() -> int:
    """The budget of a worker whose owner has set none: as many threads as Dask may use there."""
    from distributed import get_worker

    return get_worker().state.nthreads


def prepare(folder: str, lo: int, hi: int) -> tuple[Runs, list]:
    part = _load(folder, lo, hi).part
    return part.runs, part.nodes


def evaluate(folder: str, lo: int, hi: int, what: str, theta: tuple, out: str | None):
    """(seconds, [(node, value, vector)]); vectors are None when they are rows of the file `out`.

    theta is ("none",), ("file", path, size), ("whole", version, own theta) or
    ("changes", version before, version, indices, values).
    """
    held = _load(folder, lo, hi)
    begin = time.perf_counter()
    own = _own_theta(held, theta)
    found = list(held.part.sums(what, own))
    seconds = time.perf_counter() - begin
    if what != "value" and out:
        try:
            rows = shared_array(Path(out), (len(found), held.part.size))
        except OSError:  # no room there: by message then
            return seconds, found
        for row, one in zip(rows, found, strict=True):
            row[:] = one.vector
        found = [one._replace(vector=None) for one in found]
    return seconds, found


def _own_theta(held: Held, theta: tuple) -> np.ndarray | None:
    kind, *rest = theta
    if kind == "none":
        return None
    if kind == "file":
        return held.part.runs.take(shared_array(Path(rest[0]), (rest[1],)))
    if kind == "whole":
        held.version, held.theta = rest[0], np.array(rest[1])
    else:
        before, version, indices, values = rest
        if held.version not in (before, version):
            raise Stale
        held.theta[indices] = values
        held.version = version
    return held.theta


def release(folder: str) -> None:
    """Let go of what is held for a job."""
    for key in [key for key in _held if key[0] == folder]:
        _held.pop(key, None)


# ---- files that driver and workers share


def shared_array(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """An array over a file. Its space is taken at once: a full disk is an error here, not a dead process later."""
    size = max(8, 8 * int(np.prod(shape)))
    if not path.exists() or path.stat().st_size != size:
        with path.open("wb") as file:
            _take_space(file, size)
    return np.asarray(np.memmap(path, np.float64, "r+", shape=shape)) if np.prod(shape) else np.empty(shape)


def _take_space(file, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        for begin in range(0, size, 1 << 20):
            file.write(bytes(min(1 << 20, size - begin)))


@contextmanager
def own_folder(parent: Path) -> Iterator[Path]:
    """A new folder that goes away in the end; those of processes that died go away now.

    Whoever has made a folder holds the lock of a file in it while it lives.
    """
    import fcntl

    parent.mkdir(parents=True, exist_ok=True)
    for old in parent.glob(f"{PREFIX}*"):
        try:
            if time.time() - old.stat().st_mtime < YOUNG:
                continue  # its lock may not be held yet
            with (old / "lock").open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(old, ignore_errors=True)
        except OSError:  # alive, or not ours
            continue
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    try:
        with (folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if parent.name == Path(JOBS).name and not any(parent.iterdir()):
            parent.rmdir()


def _memory_folder() -> Path:
    """Where files are memory, else the folder of temporary files."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


def _write_layout(folder: Path, layout: Layout) -> None:
    for name, value in layout._asdict().items():
        np.save(folder / f"{name}.npy", value)


def _read_layout(folder: Path, mapped: bool) -> Layout:
    """Mapped where only a part of it is needed."""
    fields = {name: np.load(folder / f"{name}.npy", mmap_mode="r" if mapped else None) for name in Layout._fields}
    return Layout(**{name: int(value) if value.ndim == 0 else value for name, value in fields.items()})


# ---- on the driver


def parse(cluster: str) -> int | str:
    """The number of local workers, or the address of a scheduler."""
    if match := re.fullmatch(r"local:([1-9][0-9]{0,3})", cluster):
        return int(match[1])
    if re.fullmatch(r"(tcp|tls|ucx|ws|wss)://\S+", cluster):
        return cluster
    raise EspalierError(
        f"train.cluster is {cluster!r}: expected null, local:N with a number of worker processes, "
        "or the address of a scheduler such as tcp://host:8786"
    )


def ranges(n_blocks: int, n_workers: int) -> list[tuple[int, int]]:
    """Runs of blocks for the workers, about equal, cut where the tree of sums has large nodes."""
    unit = 1 << max(0, (n_blocks // (8 * n_workers)).bit_length() - 1)
    units = -(-n_blocks // unit)
    ends = [min(n_blocks, unit * (units * k // n_workers)) for k in range(n_workers + 1)]
    return [(lo, hi) for lo, hi in zip(ends, ends[1:], strict=False) if lo < hi]


@contextmanager
def pool(
    cluster: str, root: Path, shards: store.Shards, bounds: Sequence[tuple[int, int]], layout: Layout, sparse: str,
    n_threads: int | None = None, shared: bool | None = None, say: Callable[[str], None] = lambda text: None,
) -> Iterator["DaskPool"]:  # fmt: skip
    """The parts of the training data on the workers of a cluster, until the block ends.

    `shared` says whether theta goes through shared memory; None finds out whether it can.
    """
    where = parse(cluster)
    with own_folder(root / JOBS) as folder, own_folder(_memory_folder()) as memory, _client(where) as client:
        local = isinstance(where, int)
        job = {
            "root": str(root.resolve()), "manifest": shards.manifest, "known": shards.described(), "bounds": bounds,
            "weights": store.file_hash(root / store.WEIGHTS), "sparse": sparse,
            "threads": max(1, (n_threads or threads.threads()) // where) if local else n_threads,
        }  # fmt: skip
        store.write_json(folder / "job.json", job)
        _write_layout(folder, layout)
        workers = DaskPool(client, cluster, folder, memory, len(bounds), layout.size, shared, say)
        try:
            workers.begin()
            yield workers
        finally:
            workers.end()


@contextmanager
def _client(where: int | str):
    """A client, of a cluster that is started here or of one that runs."""
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise EspalierError(
            "train.cluster needs Dask, which is not installed: `pip install 'espalier-crf[cluster]'`, "
            "or set train.cluster to null"
        ) from None
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)  # what goes wrong is told by errors of our own
    settings = {"distributed.scheduler.work-stealing": False, "distributed.comm.timeouts.connect": "10s",
                "distributed.worker.multiprocessing-method": "spawn"}  # fmt: skip
    try:
        with dask.config.set(settings), tempfile.TemporaryDirectory(prefix="espalier-dask-") as scratch:
            if isinstance(where, int):
                with (
                    LocalCluster(
                        n_workers=where, threads_per_worker=1, processes=True, dashboard_address=None,
                        host="127.0.0.1", memory_limit=0, silence_logs=logging.CRITICAL, local_directory=scratch,
                    ) as cluster,
                    Client(cluster, direct_to_workers=True) as client,
                ):  # fmt: skip
                    yield client
            else:
                try:
                    client = Client(where, direct_to_workers=True, timeout=AWAY)
                except (OSError, ValueError) as error:
                    raise EspalierError(
                        f"no scheduler answers at {where} ({str(error).splitlines()[0]}): start one with "
                        "`dask scheduler`, or set train.cluster to null or local:N"
                    ) from None
                with client:
                    yield client
    finally:
        logger.setLevel(before)


class DaskPool:
    """Parts on workers; see `engine.sharded.Pool`. `seconds` and `moved` tell what an answer cost."""

    def __init__(self, client, name: str, folder: Path, memory: Path, n_blocks: int, size: int, shared, say):
        self.client, self.name, self.folder, self.memory, self.say = client, name, folder, memory, say
        self.n_blocks, self.size, self.shared = n_blocks, size, shared
        self.ranges: list[tuple[int, int]] = []
        self.place: list[str] = []  # of each part
        self.losses: list[int] = []  # how often it has moved, which names its files
        self.runs: list[Runs] = []
        self.sent: list[tuple[int, np.ndarray] | None] = []  # version and theta that each part has by message
        self.version, self.slowest, self.lost_any = 0, 0.0, False
        self.seconds: list[float] = []  # of each part's last answer, on its worker
        self.moved = {"out": 0, "in": 0}  # bytes of theta and of sums, by message or file

    def begin(self) -> None:
        """Look at the workers and let each read its part."""
        workers = self._workers()
        token = self.memory / "token"
        token.touch()
        try:
            answers = self.client.run(hello, str(token), workers=workers)
        except (ImportError, AttributeError) as error:
            raise EspalierError(
                f"a worker of {self.name} cannot load Espalier ({error}): install the same version there"
            ) from None
        for address, answer in answers.items():
            if answer["code"] != source_hash():
                raise EspalierError(
                    f"worker {address} of {self.name} runs another version of the engine: install the same one there"
                )
        if self.shared is None:
            self.shared = all(answer["shares"] for answer in answers.values())
        self.ranges = ranges(self.n_blocks, len(workers))
        count = len(self.ranges)
        self.place, self.losses = workers[:count], [0] * count
        self.sent, self.seconds = [None] * count, [0.0] * count
        found = self._ask(prepare, lambda k: (), FIRST_PATIENCE)
        self.runs = [runs for runs, _ in found]

    def end(self) -> None:
        """Free the workers' memory, where they still answer."""
        from distributed.comm import CommClosedError

        try:
            if self.client.status == "running" and not self.name.startswith("local:"):
                self.client.run(release, str(self.folder), on_error="ignore")
        except (OSError, RuntimeError, CommClosedError):
            pass

    def sums(self, what: str, theta: np.ndarray | None = None) -> Iterator[tuple[int, Sum]]:
        self._spread_out()
        sent = self._publish(theta)
        answers = self._ask(
            evaluate, lambda k: (what, sent(k), str(self._file(k)) if self.shared else None),
            max(PATIENCE, SLOWER * self.slowest),
        )  # fmt: skip
        for k, (seconds, found) in enumerate(answers):
            self.seconds[k], self.slowest = seconds, max(self.slowest, seconds)
            rows = None
            for i, one in enumerate(found):
                if what != "value":
                    self.moved["in"] += 8 * self.runs[k].size
                    if one.vector is None:
                        rows = shared_array(self._file(k), (len(found), self.runs[k].size)) if rows is None else rows
                        one = one._replace(vector=rows[i])
                yield k, one

    # -- theta goes out

    def _publish(self, theta: np.ndarray | None) -> Callable[[int], object]:
        """What part k is sent as theta: a file that all see, or its own weights."""
        if theta is None:
            return lambda k: ("none",)
        self.version += 1
        if self.shared:
            try:
                shared_array(self.memory / "theta", (self.size,))[:] = theta
                self.moved["out"] += theta.nbytes
                return lambda k: ("file", str(self.memory / "theta"), self.size)
            except OSError as error:
                self.shared = False
                self.say(f"no shared memory ({error.strerror}): theta goes by messages")
        own = {}

        def message(k: int):
            if k not in own:
                own[k] = self.runs[k].take(theta)
            return self.client.scatter(self._message(k, own[k]), workers=[self.place[k]], direct=True, hash=False)

        return message

    def _message(self, k: int, own: np.ndarray) -> tuple:
        """The weights of part k, or only those that have changed since the last time, if that is shorter."""
        before, self.sent[k] = self.sent[k], (self.version, own)
        if before is not None:
            changed = np.flatnonzero(own.view(np.int64) != before[1].view(np.int64))
            if 2 * len(changed) < len(own):
                self.moved["out"] += 16 * len(changed)
                return "changes", before[0], self.version, changed, own[changed]
        self.moved["out"] += own.nbytes
        return "whole", self.version, own

    def _file(self, k: int) -> Path:
        return self.memory / f"sums-{k}-{self.losses[k]}"

    # -- answers come in, or workers are lost

    def _ask(self, function: Callable, arguments: Callable[[int], tuple], patience: float) -> list:
        """[function(folder, lo, hi, *arguments(k))] where part k is; a part whose worker is lost moves."""
        answers: dict[int, object] = {}
        heard: queue.SimpleQueue = queue.SimpleQueue()
        waiting: dict[int, tuple[object, float]] = {}
        moves = [0] * len(self.ranges)

        def submit(k: int) -> None:
            while True:
                try:
                    future = self.client.submit(
                        function, str(self.folder), *self.ranges[k], *arguments(k), workers=[self.place[k]], pure=False
                    )
                    break
                except (OSError, TimeoutError, KeyError, ValueError):  # the worker is gone before it was asked
                    self._move(k, moves)
            waiting[k] = future, time.monotonic()
            future.add_done_callback(lambda done: heard.put((k, done)))

        for k in range(len(self.ranges)):
            submit(k)
        while waiting:
            try:
                k, future = heard.get(timeout=POLL)
            except queue.Empty:
                for k in self._missing(waiting, patience):
                    waiting.pop(k)[0].cancel(force=True)
                    self._move(k, moves)
                    submit(k)
                continue
            if waiting.get(k, (None,))[0] is not future:
                continue  # of a worker that was given up
            waiting.pop(k)
            answer = self._answer(k, future)
            if answer is None:
                if future.status != "error" or not isinstance(future.exception(), Stale):
                    self._move(k, moves)
                self.sent[k] = None
                submit(k)
            else:
                answers[k] = answer
        return [answers[k] for k in range(len(self.ranges))]

    def _answer(self, k: int, future):
        """What the worker found, or None when it must be asked again."""
        from distributed.scheduler import KilledWorker

        if future.status == "error":
            error = future.exception()
            if isinstance(error, Stale | KilledWorker | OSError):
                return None
            if isinstance(error, MemoryError):
                raise EspalierError(
                    f"worker {self.place[k]} ran out of memory with blocks {self.ranges[k]}: use more workers"
                ) from None
            raise error
        if future.status != "finished":
            return None
        patience = 30.0
        while True:
            try:
                return future.result(timeout=patience)
            except TimeoutError:
                if self.place[k] not in self._workers() or patience > PATIENCE:
                    return None
                patience *= 2
            except Exception as error:
                if type(error).__name__ in ("FutureCancelledError", "CancelledError", "KilledWorker") or isinstance(
                    error, OSError
                ):
                    return None
                raise

    def _missing(self, waiting: dict, patience: float) -> list[int]:
        """Parts whose worker is gone, or silent for too long."""
        workers, now = self._workers(), time.monotonic()
        return [k for k, (_, since) in waiting.items() if self.place[k] not in workers or now - since > patience]

    def _move(self, k: int, moves: list[int]) -> None:
        """Give part k to the worker with fewest parts, and not to the one that it had."""
        moves[k] += 1
        if moves[k] > LOSSES:
            raise EspalierError(
                f"blocks {self.ranges[k]} were lost {LOSSES} times in a row on workers of {self.name}: "
                "look at the workers' logs; they may have too little memory"
            )
        before = self.place[k]
        workers = self._workers()
        others = [worker for worker in workers if worker != before] or workers
        self.place[k] = min(others, key=self.place.count)
        self.losses[k] += 1
        self.sent[k], self.lost_any = None, True
        self.say(f"worker {before} is lost; {self.place[k]} reads blocks {self.ranges[k]} again")

    def _spread_out(self) -> None:
        """After a loss: a worker that has come meanwhile takes over from one with two parts."""
        if not self.lost_any:
            return
        workers = self._workers()
        for k, place in enumerate(self.place):
            idle = [worker for worker in workers if worker not in self.place]
            if idle and (self.place.count(place) > 1 or place not in workers):
                self.place[k], self.sent[k] = idle[0], None
                self.losses[k] += 1
        self.lost_any = len(set(self.place)) < len(self.place)

    def _workers(self) -> list[str]:
        """Addresses of the workers there are; waits for one, and for a scheduler that is away for a moment."""
        begin = time.monotonic()
        while True:
            found = self._look()
            if found:
                return sorted(found)
            waited = time.monotonic() - begin
            if found is None and waited > AWAY:
                raise EspalierError(f"the scheduler of {self.name} does not answer any more: training has stopped")
            if found is not None and waited > FIRST_WORKER:
                raise EspalierError(f"{self.name} has no worker: start one with `dask worker`, or set train.cluster")
            time.sleep(0.2)

    def _look(self) -> list[str] | None:
        """None when the scheduler does not answer."""
        if self.client.status != "running":
            return None
        try:
            return list(self.client.nthreads())
        except (OSError, TimeoutError, RuntimeError, ValueError):
            return None
