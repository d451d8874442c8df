"""Clustering on a cluster: workers hold groups of bags, the driver holds the mixture."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from espalier.engine.data.bags import Bags, join_bags, select_bags
from espalier.engine.semisup.mixture import GroupPart, Sums, add_nodes, bags, group_bounds, held_out
from espalier.tasks import store
from espalier.tasks.cluster.worker import load
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

# ---- on a worker


def read_groups(folder: Path, job: dict, lo: int, hi: int) -> GroupPart:
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


def count_bags(folder: str, lo: int, hi: int, what: str, arguments: tuple) -> list:
    held = load(folder, lo, hi, read_groups)
    with held.lock:
        return held.part.sums(what, *arguments)


def rows_of_bags(folder: str, lo: int, hi: int, what: str, mixture: tuple) -> np.ndarray:
    held = load(folder, lo, hi, read_groups)
    with held.lock:
        return held.part.rows(what, *mixture)


# ---- on the driver


class BagsThere:
    """Bags of observations on the workers of a cluster; see `engine.semisup.mixture.Groups`."""

    def __init__(self, made: Workers, size: int):
        self.made, self.size = made, size

    def sums(self, what: str, *arguments) -> Sums:
        self.made.spread_out()
        found = self.made.ask(count_bags, lambda k: (what, self._sent(k, arguments)), FIRST_PATIENCE)
        return add_nodes([one for part in found for one in part], len(group_bounds(self.size)))

    def rows(self, what: str, *mixture: np.ndarray) -> np.ndarray:
        found = self.made.ask(rows_of_bags, lambda k: (what, self._sent(k, mixture)), FIRST_PATIENCE)
        return np.concatenate(found)

    def _sent(self, k: int, arguments: tuple):
        """A mixture of many features goes straight to the worker."""
        if bytes_of(arguments) <= SMALL:
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
    with job_of(cluster, root, client, say, n_threads, **job) as made:
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
