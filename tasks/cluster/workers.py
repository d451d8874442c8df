"""The workers of a Dask cluster: who holds which items of a job, and what happens when one is lost.

`compute.cluster` is null (this process), local:N (N worker processes of this machine) or the
address of a scheduler, tcp://host:port, whose workers see the project's folder under the same path.
When a worker is lost, another one reads what it held, and the answer is the same.

Dask is imported here only, and only when it is asked for.
"""

import logging
import queue
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.runtime import threads
from espalier.engine.runtime.compile_target import compile_target
from espalier.engine.runtime.kernel_cache import source_hash
from espalier.tasks import store
from espalier.tasks.cluster import worker
from espalier.tasks.cluster.sharing import JOBS, own_folder

POLL = 1.0  # seconds between two looks whether all workers are still there
FIRST_WORKER = 60.0  # seconds to wait for a worker, at the beginning and when none is left
AWAY = 20.0  # seconds that a scheduler may be away
PATIENCE, FIRST_PATIENCE = 300.0, 3600.0  # seconds for an answer at least, later and when a part is read first
LOSSES = 5  # of one part while one answer is waited for
SMALL = 1 << 16  # bytes of a question that go by way of the scheduler

Say = Callable[[str], None]


def parse(cluster: str) -> int | str:
    """The number of local workers, or the address of a scheduler."""
    if match := re.fullmatch(r"local:([1-9][0-9]{0,3})", cluster):
        return int(match[1])
    if re.fullmatch(r"(tcp|tls|ucx|ws|wss)://\S+", cluster):
        return cluster
    raise EspalierError(
        f"compute.cluster is {cluster!r}: expected null, local:N with a number of worker processes, "
        "or the address of a scheduler such as tcp://host:8786"
    )


def look(cluster: str) -> dict:
    """How many workers a cluster has, the memory of those that tell it, and whether they are on this machine."""
    where = parse(cluster)
    if isinstance(where, int):
        return {"name": cluster, "workers": where, "memory": [], "here": True}
    with make_client(where) as client:
        found = Workers(client, cluster, Path(), lambda text: None)
        addresses = found.addresses()
        described = client.scheduler_info(n_workers=-1)["workers"].values()
    limits = [one["memory_limit"] for one in described if one.get("memory_limit")]
    return {"name": cluster, "workers": len(addresses), "memory": limits, "here": False}


def ranges(n_blocks: int, n_workers: int) -> list[tuple[int, int]]:
    """Runs of blocks for the workers, about equal, cut where the tree of sums has large nodes."""
    unit = 1 << max(0, (n_blocks // (8 * n_workers)).bit_length() - 1)
    units = -(-n_blocks // unit)
    ends = [min(n_blocks, unit * (units * k // n_workers)) for k in range(n_workers + 1)]
    return [(lo, hi) for lo, hi in zip(ends, ends[1:], strict=False) if lo < hi]


@contextmanager
def make_client(where: int | str):
    """A client, of a cluster that is started here or of one that runs."""
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise EspalierError(
            "compute.cluster needs Dask, which is not installed: `pip install 'espalier-crf[cluster]'`, "
            "or set compute.cluster to null"
        ) from None
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)  # what goes wrong is told by errors of our own
    settings = {"distributed.scheduler.work-stealing": False, "distributed.comm.timeouts.connect": "10s",
                "distributed.worker.multiprocessing-method": "spawn"}  # fmt: skip
    try:
        with dask.config.set(settings), own_folder(Path(tempfile.gettempdir())) as scratch:
            if isinstance(where, int):
                with (
                    LocalCluster(
                        n_workers=where, threads_per_worker=1, processes=True, dashboard_address=None,
                        host="127.0.0.1", memory_limit=0, silence_logs=logging.CRITICAL, local_directory=str(scratch),
                        # Even without a dashboard it listens: at port 8787, and warns where another has that.
                        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
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
                        "`dask scheduler`, or set compute.cluster to null or local:N"
                    ) from None
                with client:
                    yield client
    finally:
        logger.setLevel(before)


class Workers:
    """Items of a job in runs on workers: part k is the run ranges[k], on the worker place[k]."""

    def __init__(self, client, name: str, folder: Path, say: Callable[[str], None]):
        self.client, self.name, self.folder, self.say = client, name, folder, say
        self.ranges: list[tuple[int, int]] = []
        self.place: list[str] = []  # of each part
        self.losses: list[int] = []  # how often it has moved
        self.lost_any = self.all_share = False

    def share_out(self, n_items: int, token: Path) -> None:
        """Look at the workers and give each a run of the items; find out whether all see the file `token`."""
        workers = self.greeted(token)
        self.ranges = ranges(n_items, len(workers))
        self.place, self.losses = workers[: len(self.ranges)], [0] * len(self.ranges)

    def greeted(self, token: Path) -> list[str]:
        """The addresses of workers that run what we run; find out whether all see the file `token`."""
        workers = self.addresses()
        token.touch()
        try:
            answers = self.client.run(worker.hello, str(token), workers=workers)
        except (ImportError, AttributeError) as error:
            raise EspalierError(
                f"a worker of {self.name} cannot load Espalier ({error}): install the same version there"
            ) from None
        for address, answer in answers.items():
            if answer["code"] != source_hash():
                raise EspalierError(
                    f"worker {address} of {self.name} runs another version of the engine: install the same one there"
                )
            if answer["target"] != compile_target():
                raise EspalierError(
                    f"worker {address} of {self.name} compiles for {answer['target']}, this process for "
                    f"{compile_target()}: the model would depend on who computes what; use machines of one kind"
                )
        self.all_share = all(answer["shares"] for answer in answers.values())
        return workers

    def lost(self, k: int) -> None:
        """What part k kept beside its items is not there any more."""

    def end(self) -> None:
        """Free the workers' memory, where they still answer."""
        from distributed.comm import CommClosedError

        try:
            if self.client.status == "running" and not self.name.startswith("local:"):
                self.client.run(worker.release, str(self.folder), on_error="ignore")
        except (OSError, RuntimeError, CommClosedError):
            pass

    # -- answers come in, or workers are lost

    def ask(
        self, function: Callable, arguments: Callable[[int], tuple] = lambda k: (), patience: float | None = None,
        parts: Sequence[int] | None = None,
    ) -> list:  # fmt: skip
        """[function(folder, lo, hi, *arguments(k)) for k in parts] where part k is; one whose worker is lost moves."""
        patience = PATIENCE if patience is None else patience
        parts = range(len(self.ranges)) if parts is None else parts
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

        for k in parts:
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
                if future.status != "error" or not isinstance(future.exception(), worker.Stale):
                    self._move(k, moves)
                self.lost(k)
                submit(k)
            else:
                answers[k] = answer
        return [answers[k] for k in parts]

    def _answer(self, k: int, future):
        """What the worker found, or None when it must be asked again."""
        from distributed.scheduler import KilledWorker

        if future.status == "error":
            error = future.exception()
            if isinstance(error, worker.Stale | KilledWorker | OSError):
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
                if self.place[k] not in self.addresses() or patience > PATIENCE:
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
        workers, now = self.addresses(), time.monotonic()
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
        workers = self.addresses()
        others = [one for one in workers if one != before] or workers
        self.place[k] = min(others, key=self.place.count)
        self.losses[k] += 1
        self.lost_any = True
        self.lost(k)
        self.say(f"worker {before} is lost; {self.place[k]} reads blocks {self.ranges[k]} again")

    def spread_out(self) -> None:
        """After a loss: a worker that has come meanwhile takes over from one with two parts."""
        if not self.lost_any:
            return
        workers = self.addresses()
        for k, place in enumerate(self.place):
            idle = [one for one in workers if one not in self.place]
            if idle and (self.place.count(place) > 1 or place not in workers):
                self.place[k] = idle[0]
                self.losses[k] += 1
                self.lost(k)
        self.lost_any = len(set(self.place)) < len(self.place)

    def addresses(self) -> list[str]:
        """Addresses of the workers there are; waits for one, and for a scheduler that is away for a moment."""
        begin = time.monotonic()
        while True:
            found = self._look()
            if found:
                return sorted(found)
            waited = time.monotonic() - begin
            if found is None and waited > AWAY:
                raise EspalierError(f"the scheduler of {self.name} does not answer any more: the work has stopped")
            if found is not None and waited > FIRST_WORKER:
                raise EspalierError(f"{self.name} has no worker: start one with `dask worker`, or set compute.cluster")
            time.sleep(0.2)

    def _look(self) -> list[str] | None:
        """None when the scheduler does not answer."""
        if self.client.status != "running":
            return None
        try:
            return list(self.client.nthreads())
        except (OSError, TimeoutError, RuntimeError, ValueError):
            return None


def silence(text: str) -> None:
    """For those who need not hear of lost workers."""


@contextmanager
def job_of(
    cluster: str, root: Path, client, say: Say, n_threads: int | None, kind: type[Workers] = Workers, **job
) -> Iterator[Workers]:
    """Workers for a job that is described in a folder of its own, until the block ends."""
    where = parse(cluster)
    with own_folder(root / JOBS) as folder:
        share = max(1, (n_threads or threads.threads()) // where) if isinstance(where, int) else n_threads
        store.write_json(folder / "job.json", {"root": str(root.resolve()), "threads": share, **job})
        workers = kind(client, cluster, folder, say)
        try:
            yield workers
        finally:
            workers.end()


def bytes_of(message: tuple) -> int:
    """About how long a message is: that of its vectors."""
    return sum(one.nbytes for one in message if isinstance(one, np.ndarray))
