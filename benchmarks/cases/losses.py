"""Gradients of the losses of a chain on CoNLL-2000: marginal and exponential beside the log loss, by turns."""

import time
from collections.abc import Iterator

import numpy as np

from benchmarks import corpora
from benchmarks.cases import Context
from benchmarks.cases.conll2000 import layout_of, problem_of
from benchmarks.rows import OURS
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.losses.exponential_loss import ExponentialObjective
from espalier.engine.losses.marginal_loss import MarginalObjective

LOSSES = {"log": ChainObjective, "marginal": MarginalObjective, "exponential": ExponentialObjective}
ROUNDS = 30  # the least of so many is what a busy machine takes least from


def rows(context: Context) -> Iterator[dict]:
    for threads in (2, 1):
        found = context.job("losses:gradients", OURS, "one gradient of each loss", threads)
        for name, seconds in (found or {}).items():
            setting = f"{name}, {seconds / found['log']:.2f} of the log loss"
            yield context.row(OURS, setting, {"seconds_per_gradient": seconds, "threads": threads})


def gradients(data: str, quick: bool) -> dict[str, float]:
    """{loss: seconds}: the least of many gradients at a random theta, the losses taking turns."""
    problem = problem_of(corpora.read_tokens(data, "conll2000", quick))
    layout = layout_of(problem)
    objectives = {name: kind(problem.train, layout) for name, kind in LOSSES.items()}
    theta = np.random.default_rng(0).normal(scale=0.1, size=layout.size)
    least = dict.fromkeys(LOSSES, np.inf)
    for turn in range(3 if quick else ROUNDS + 1):
        for name, objective in objectives.items():
            begin = time.perf_counter()
            objective.value_and_gradient(theta)
            if turn:  # the first makes the index, and compiles
                least[name] = min(least[name], time.perf_counter() - begin)
    return least
