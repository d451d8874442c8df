"""Gradients of second order beside those of first order on Nettalk, by turns, in time of the processor and one thread.

Weights of labels and pairs are drawn at random, the same for both. `T` is one observation that is there everywhere,
`T:%x[0,0]` one for each letter; of the triples that they have, shares are active.
"""

import time
from collections.abc import Iterator

import numpy as np

from benchmarks import corpora
from benchmarks.cases import Context
from benchmarks.rows import OURS
from espalier.engine.losses.triple_objective import loss_of_chain
from espalier.engine.weights.layout import make_layout

LINES = [
    "U", "*:%x[0,0]", "U-1:%x[-1,0]/%x[0,0]", "U+1:%x[0,0]/%x[1,0]", "U=:%x[-1,0]/%x[0,0]/%x[1,0]", "B",
]  # fmt: skip
TRIPLES = ("T", "T:%x[0,0]")
SHARES = (0.0, 0.03, 0.3)
ROUNDS, SCALE = 5, 0.3


def rows(context: Context) -> Iterator[dict]:
    for line in TRIPLES:
        found = context.job("triples:gradients", OURS, f"`{line}`, one gradient", 1, line=line)
        for setting, seconds in (found or {}).items():
            times = f"{line}: {setting}, {seconds / found['pairs']:.1f} times that of pairs"
            yield context.row(OURS, times, {"seconds_per_gradient": seconds, "threads": 1})


def gradients(data: str, quick: bool, line: str) -> dict[str, float]:
    """{what: seconds}: the least of some, the objectives taking turns."""
    tokens = corpora.read_tokens(data, "nettalk", quick)
    random, turns = np.random.default_rng(0), {}
    for name, lines in (("pairs", LINES), ("triples", [*LINES, line])):
        problem = corpora.make_problem(*tokens, lines)
        layout = make_layout("seen", problem.train, len(problem.labels), problem.kinds)
        objective, weights = loss_of_chain(problem.train, layout), np.random.default_rng(1)
        theta = weights.normal(scale=SCALE, size=layout.size)
        triples = slice(int(layout.trigram_ptr[0]), layout.size)
        if name == "pairs":
            turns[name] = objective, theta
            continue
        for share in SHARES:
            sparse = theta.copy()
            sparse[triples] *= random.random(triples.stop - triples.start) < share
            turns[f"{share:.0%} of {triples.stop - triples.start:,} triples active"] = objective, sparse
    least = dict.fromkeys(turns, np.inf)
    for turn in range(2 if quick else ROUNDS + 1):
        for name, (objective, theta) in turns.items():
            begin = time.process_time()
            objective.value_and_gradient(theta)
            if turn:  # the first makes the index, and compiles
                least[name] = min(least[name], time.process_time() - begin)
    return least
