"""Estimation of grammars on a cluster: workers count pieces of the strings, the driver renews the grammar.

The strings lie in the job's folder, from where each worker reads them once. The grammar goes out with each question,
since rules that have died are gone from it; counts come back piece by piece and are added in the order of the pieces,
as they are in one process.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from espalier.engine.grammar.estimation import Count, Counted, GrammarOptions, counter, summed
from espalier.engine.grammar.expected import pieces_of
from espalier.engine.grammar.rules import Grammar
from espalier.engine.grammar.strings import Strings
from espalier.engine.runtime import threads
from espalier.tasks.cluster.worker import load
from espalier.tasks.cluster.workers import (
    FIRST_PATIENCE,
    PATIENCE,
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

# ---- on a worker


def read_strings(folder: Path, job: dict, lo: int, hi: int) -> Strings:
    return Strings(*(np.load(folder / f"{name}.npy") for name in Strings._fields))


def count_pieces(folder: str, lo: int, hi: int, grammar: Grammar, options: GrammarOptions) -> list[Counted]:
    """The counts of each piece, and log P of its strings."""
    held = load(folder, lo, hi, read_strings)
    with held.lock:
        one = counter(grammar, held.part, options)
        return threads.run(lambda piece: one(*piece), pieces_of(held.part)[lo:hi])


# ---- on the driver


@contextmanager
def counting(
    cluster: str, root: Path, data: Strings, n_threads: int | None = None, say: Say = silence
) -> Iterator[Count]:
    """What counts these strings on the workers of a cluster, until the block ends."""
    with make_client(parse(cluster)) as client, job_of(cluster, root, client, say, n_threads) as made:
        for name, value in data._asdict().items():
            np.save(made.folder / f"{name}.npy", value)
        made.share_out(len(pieces_of(data)), made.folder / "token")
        yield Counting(made)


class Counting:
    def __init__(self, workers: Workers):
        self.workers, self.slowest = workers, 0.0

    def __call__(self, grammar: Grammar, data: Strings, options: GrammarOptions) -> Counted:
        """All of the strings, which are those that the workers hold."""
        workers = self.workers
        workers.spread_out()
        nameless = grammar._replace(symbols=[""] * len(grammar.symbols), words=[""] * len(grammar.words))
        large = bytes_of(nameless) > SMALL

        def question(k: int) -> tuple:
            sent = nameless
            if large:
                sent = workers.client.scatter(nameless, workers=[workers.place[k]], direct=True, hash=False)
            return sent, options

        begin, patience = time.monotonic(), max(PATIENCE, SLOWER * self.slowest) if self.slowest else FIRST_PATIENCE
        answers = workers.ask(count_pieces, question, patience)
        self.slowest = max(self.slowest, time.monotonic() - begin)
        return summed([piece for part in answers for piece in part])
