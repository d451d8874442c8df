"""Entrants of a tournament on a cluster: a worker trains one at a time, as a whole, and keeps it in the project."""

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.tasks.cluster.worker import begun
from espalier.tasks.cluster.workers import PATIENCE, POLL, Say, Workers, job_of, make_client, parse
from espalier.tasks.params import Params
from espalier.tasks.progress import Progress
from espalier.tasks.tournament.competing import Ended, Place, train_here
from espalier.tasks.training import plan

# ---- on a worker


def train_entrant(folder: str, params: Params, key: str) -> None:
    train_here(Path(begun(Path(folder))["root"]), params, key, Progress(), True)


# ---- on the driver


class OnWorkers(Place):
    """The workers of a cluster; they see the project's folder where this process does."""

    def __init__(self, workers: Workers, addresses: list[str], memory: list[int], here: bool):
        super().__init__(len(addresses))
        self.workers, self.memory, self.here = workers, memory, here

    def check(self, planned: dict) -> None:
        plan.check_workers({"worker_bytes": planned["bytes"], "memory": self.memory, "workers": self.at_once,
                            "name": self.workers.name})  # fmt: skip

    def bytes_of(self, planned: dict) -> int:
        return planned["bytes"]["all"] if self.here else 0

    def train(self, root: Path, params: Params, key: str, progress: Progress, ended: threading.Event) -> None:
        from distributed import TimeoutError as Waited

        progress.step(0, "on a worker")
        future = self.workers.client.submit(train_entrant, str(self.workers.folder), params, key, pure=False)
        try:
            while not ended.is_set():
                done = future.done()
                try:
                    return future.result(timeout=PATIENCE if done else POLL)
                except (Waited, TimeoutError):
                    if done:
                        raise
            raise Ended("the tournament was ended")
        except Exception as error:
            if type(error).__name__ == "KilledWorker" or isinstance(error, CancelledError):
                raise EspalierError(
                    f"the workers of {self.workers.name} that trained it were lost: look at their logs; they may have "
                    "too little memory"
                ) from None
            raise
        finally:
            if not future.done():
                future.cancel(force=True)


@contextmanager
def on_workers(cluster: str, root: Path, n_threads: int | None, say: Say) -> Iterator[OnWorkers]:
    where = parse(cluster)
    with make_client(where) as client, job_of(cluster, root, client, say, n_threads) as workers:
        addresses = workers.greeted(workers.folder / "token")
        if not workers.all_share:
            raise EspalierError(
                f"a worker of {cluster} does not see {root}: entrants are trained in the project's folder, so that all "
                "workers need it under the same path; or set compute.cluster to null"
            )
        described = client.scheduler_info(n_workers=-1)["workers"].values()
        memory = [one["memory_limit"] for one in described if one.get("memory_limit")]
        yield OnWorkers(workers, addresses, memory, isinstance(where, int))
