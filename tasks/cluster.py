"""Stages on a Dask cluster: workers hold parts of the data, the driver holds theta or the mixture.

A worker reads its part once, from the shards, and keeps it between iterations. On one machine theta and
the sums lie in shared memory; to other machines goes what has changed of the weights that
occur in a part, and the sums over these come back. See `tasks.workers` for who they are and what
happens when one is lost, `tasks.worker` for what they do.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from engine import threads
from engine.layout import Layout
from engine.mixture import Sums, add_nodes, group_bounds, held_out
from engine.restriction import Runs
from engine.sharded import Sum
from tasks import store, worker
from tasks import workers as limits
from tasks.sharing import JOBS, Mapped, copy, memory_folder, own_folder, write_layout
from tasks.workers import FIRST_PATIENCE, Workers, make_client, parse

SLOWER = 20  # times the slowest answer so far are waited for, if that is more than usual
SMALL = 1 << 16  # bytes of a question that go by way of the scheduler

Say = Callable[[str], None]


def silence(text: str) -> None:
    """For those who need not hear of lost workers."""


@contextmanager
def _job(cluster: str, root: Path, client, what: str, say: Say, n_threads: int | None, kind=Workers, **job):
    """Workers for a job that is described in a folder of its own, until the block ends."""
    where = parse(cluster)
    with own_folder(root / JOBS) as folder:
        share = max(1, (n_threads or threads.threads()) // where) if isinstance(where, int) else n_threads
        store.write_json(folder / "job.json", {"what": what, "root": str(root.resolve()), "threads": share, **job})
        workers = kind(client, cluster, folder, say)
        try:
            yield workers
        finally:
            workers.end()


# ---- training


@contextmanager
def pool(
    cluster: str, root: Path, shards: store.Shards, bounds: Sequence[tuple[int, int]], layout: Layout, sparse: str,
    n_threads: int | None = None, shared: bool | None = None, say: Say = silence,
) -> Iterator["DaskPool"]:  # fmt: skip
    """The parts of the training data on the workers of a cluster, until the block ends.

    `shared` says whether theta goes through shared memory; None finds out whether it can.
    """
    job = {"manifest": shards.manifest, "known": shards.described(), "bounds": bounds,
           "weights": store.file_hash(root / store.WEIGHTS), "sparse": sparse}  # fmt: skip
    with (
        own_folder(memory_folder()) as memory,
        make_client(parse(cluster)) as client,
        _job(cluster, root, client, "blocks", say, n_threads, DaskPool, **job) as made,
    ):
        write_layout(made.folder, layout)
        made.begin(memory, len(bounds), layout.size, shared)
        yield made


class DaskPool(Workers):
    """Parts on workers; see `engine.sharded.Pool`. `seconds` and `moved` tell what an answer cost."""

    def begin(self, memory: Path, n_blocks: int, size: int, shared: bool | None) -> None:
        """Let each worker read its part."""
        self.memory, self.n_blocks, self.size = memory, n_blocks, size
        self.share_out(n_blocks, memory / "token")
        self.shared = self.all_share if shared is None else shared
        count = len(self.ranges)
        self.sent: list[tuple[int, np.ndarray] | None] = [None] * count  # version and theta that each has by message
        self.turns: list[int | None] = [None] * count  # of blockwise descent: questions that each has answered
        self.seconds = [0.0] * count  # of each part's last answer, on its worker
        self.moved = {"out": 0, "in": 0}  # bytes of theta and of sums, by message or file
        self.version, self.turn, self.slowest, self.mapped = 0, 0, 0.0, Mapped()
        found = self.ask(worker.prepare, patience=FIRST_PATIENCE)
        self.runs: list[Runs] = [runs for runs, _ in found]

    def sums(self, what: str, theta: np.ndarray | None = None) -> Iterator[tuple[int, Sum]]:
        self.spread_out()
        sent = self._publish(theta)
        answers = self.ask(
            worker.evaluate, lambda k: (what, sent(k), str(self._file(k)) if self.shared else None), self._patience()
        )
        for k, (seconds, found) in enumerate(answers):
            self.seconds[k], self.slowest = seconds, max(self.slowest, seconds)
            for i, one in enumerate(found):
                if what != "value":
                    self.moved["in"] += 8 * self.runs[k].size
                    if one.vector is None:
                        rows = self.mapped(f"sums {k}", self._file(k), (len(found), self.runs[k].size))
                        one = one._replace(vector=rows[i])
                yield k, one

    def on_blocks(self, parts: Sequence[int], what: str, arguments: Callable[[int], tuple], theta: np.ndarray) -> list:
        """A part that is new, or does not remember the question before this one, is sent theta."""
        self.turn += 1
        published = []

        def question(k: int) -> tuple:
            start = None
            if self.turns[k] is None:
                published[:] = published or [self._publish(theta)]
                start = published[0](k)
            message = arguments(k)
            if _bytes(message) > SMALL:
                message = self.client.scatter(message, workers=[self.place[k]], direct=True, hash=False)
            return what, message, self.turn, self.turns[k], start

        answers = self.ask(worker.on_blocks, question, self._patience(), parts)
        for k in parts:
            self.turns[k] = self.turn
        return answers

    def forget_blocks(self) -> None:
        self.turns = [None] * len(self.turns)

    def lost(self, k: int) -> None:
        self.sent[k] = self.turns[k] = None

    def _patience(self) -> float:
        return max(limits.PATIENCE, SLOWER * self.slowest)

    # -- theta goes out

    def _publish(self, theta: np.ndarray | None) -> Callable[[int], object]:
        """What part k is sent as theta: a file that all see, or its own weights."""
        if theta is None:
            return lambda k: ("none",)
        self.version += 1
        if self.shared:
            try:
                copy(theta, self.mapped("theta", self.memory / "theta", (self.size,)))
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
        """The weights of part k; only those that are not zero, or have changed since the last time, if shorter."""
        before, self.sent[k] = self.sent[k], (self.version, own)
        differ = own.view(np.int64) != (0 if before is None else before[1].view(np.int64))  # to the sign of a zero
        index = np.int32 if len(own) < 2**31 else np.int64
        indices = np.flatnonzero(differ).astype(index)
        size = (8 + indices.itemsize) * len(indices)
        if size >= own.nbytes:
            self.moved["out"] += own.nbytes
            return "whole", self.version, own
        self.moved["out"] += size
        if before is None:
            return "active", self.version, len(own), indices, own[indices]
        return "changes", before[0], self.version, indices, own[indices]

    def _file(self, k: int) -> Path:
        return self.memory / f"sums-{k}-{self.losses[k]}"


def _bytes(message: tuple) -> int:
    """About how long a message is: that of its vectors."""
    return sum(one.nbytes for one in message if isinstance(one, np.ndarray))


# ---- clustering


class BagsThere:
    """Bags of observations on the workers of a cluster; see `engine.mixture.Groups`."""

    def __init__(self, made: Workers, size: int):
        self.made, self.size = made, size

    def sums(self, what: str, *arguments) -> Sums:
        self.made.spread_out()
        found = self.made.ask(worker.count_bags, lambda k: (what, self._sent(k, arguments)), FIRST_PATIENCE)
        return add_nodes([one for part in found for one in part], len(group_bounds(self.size)))

    def rows(self, what: str, *mixture: np.ndarray) -> np.ndarray:
        found = self.made.ask(worker.rows_of_bags, lambda k: (what, self._sent(k, mixture)), FIRST_PATIENCE)
        return np.concatenate(found)

    def _sent(self, k: int, arguments: tuple):
        """A mixture of many features goes straight to the worker."""
        if _bytes(arguments) <= SMALL:
            return arguments
        return self.made.client.scatter(arguments, workers=[self.made.place[k]], direct=True, hash=False)


@contextmanager
def bags_there(
    cluster: str, client, root: Path, sides: Sequence[store.Shards], columns: list[int], rows: dict | None, size: int,
    n_threads: int | None, say: Say = silence,
) -> Iterator[BagsThere]:  # fmt: skip
    """The bags of all sequences of the sides, or those that `rows` says: {"seed", "which" of `held_out`}."""
    bounds = group_bounds(size)
    job = {"manifest": sides[0].manifest, "sides": {side.split: side.described() for side in sides},
           "columns": columns, "rows": rows, "bounds": bounds}  # fmt: skip
    with _job(cluster, root, client, "bags", say, n_threads, **job) as made:
        made.share_out(len(bounds), made.folder / "token")
        yield BagsThere(made, size)


@contextmanager
def bags_of(
    cluster: str, root: Path, sides: Sequence[store.Shards], columns: list[int], seed: int, choose: bool,
    n_threads: int | None = None, say: Say = silence,
) -> Iterator[tuple[BagsThere, tuple[BagsThere, BagsThere] | None]]:  # fmt: skip
    """(all bags, (judges, learners) of the number of clusters, where that is to be chosen)."""
    size = sum(sum(side.described()["sequences"]) for side in sides)
    common = (root, sides, columns)
    with make_client(parse(cluster)) as client:
        with bags_there(cluster, client, *common, None, size, n_threads, say) as everything:
            if not choose:
                yield everything, None
                return
            sizes = [len(rows) for rows in held_out(size, seed)]
            made = [{"seed": seed, "which": which} for which in (0, 1)]
            with (
                bags_there(cluster, client, *common, made[0], sizes[0], n_threads, say) as judges,
                bags_there(cluster, client, *common, made[1], sizes[1], n_threads, say) as learners,
            ):
                yield everything, (judges, learners)


# ---- evaluation


def measured(
    cluster: str, root: Path, shards: store.Shards, n_threads: int | None = None, say: Say = silence
) -> list[tuple]:  # fmt: skip
    """What the candidate says of the test shards, as `tasks.evaluate.measure` has it, in parts in their order."""
    job = {"manifest": shards.manifest, "known": shards.described(), "model": store.file_hash(root / store.CANDIDATE)}
    with (
        make_client(parse(cluster)) as client,
        _job(cluster, root, client, "shards", say, n_threads, **job) as made,
    ):
        made.share_out(len(shards.names), made.folder / "token")
        return made.ask(worker.measure_shards, patience=FIRST_PATIENCE)
