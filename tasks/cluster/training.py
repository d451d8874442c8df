"""Training on a cluster: workers hold parts of the data, the driver holds theta.

A worker reads its part once, from the shards, and keeps it between iterations. On one machine theta and
the sums lie in shared memory; to other machines goes what has changed of the weights that
occur in a part, and the sums over these come back.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from espalier.engine.parts.sharded_objective import Sum
from espalier.engine.weights.layout import Layout
from espalier.engine.weights.sublayout import Runs
from espalier.tasks import store
from espalier.tasks.cluster import blocks, workers
from espalier.tasks.cluster.sharing import Mapped, copy, memory_folder, own_folder, write_layout, write_twins
from espalier.tasks.cluster.workers import (
    FIRST_PATIENCE,
    SMALL,
    Say,
    Workers,
    bytes_of,
    job_of,
    make_client,
    parse,
    silence,
)

SLOWER = 20  # times the slowest answer so far are waited for, if that is more than usual


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
        job_of(cluster, root, client, say, n_threads, DaskPool, **job) as made,
    ):
        write_layout(made.folder, layout)
        write_twins(made.folder, shards.twins)
        made.begin(memory, len(bounds), layout.size, shared)
        yield made


class DaskPool(Workers):
    """Parts on workers; see `engine.parts.sharded_objective.Pool`. `seconds` and `moved` tell what an answer cost."""

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
        found = self.ask(blocks.prepare, patience=FIRST_PATIENCE)
        self.runs: list[Runs] = [runs for runs, _ in found]

    def sums(self, what: str, theta: np.ndarray | None = None) -> Iterator[tuple[int, Sum]]:
        self.spread_out()
        sent = self._publish(theta)
        answers = self.ask(
            blocks.evaluate, lambda k: (what, sent(k), str(self._file(k)) if self.shared else None), self._patience()
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
            if bytes_of(message) > SMALL:
                message = self.client.scatter(message, workers=[self.place[k]], direct=True, hash=False)
            return what, message, self.turn, self.turns[k], start

        answers = self.ask(blocks.on_blocks, question, self._patience(), parts)
        for k in parts:
            self.turns[k] = self.turn
        return answers

    def forget_blocks(self) -> None:
        self.turns = [None] * len(self.turns)

    def lost(self, k: int) -> None:
        self.sent[k] = self.turns[k] = None

    def _patience(self) -> float:
        return max(workers.PATIENCE, SLOWER * self.slowest)

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
