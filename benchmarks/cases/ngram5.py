"""Nettalk with 1-, 3- and 5-grams of letters (SBCD table 3): over 100 million features, of which few are ever made."""

import time
from collections.abc import Iterator

import numpy as np

from benchmarks import corpora, ours
from benchmarks.cases import Context
from benchmarks.rows import OURS
from engine.penalty import ElasticNet
from engine.working_set import minimise_virtual

LINES = [
    "*1:%x[0,0]", "*3:%x[-1,0]/%x[0,0]/%x[1,0]", "*5:%x[-2,0]/%x[-1,0]/%x[0,0]/%x[1,0]/%x[2,0]",
]  # fmt: skip
RHO1, RHO2 = 0.2, 0.001
SWEEPS = 20


def rows(context: Context) -> Iterator[dict]:
    found = context.job("ngram5:fit", OURS, f"{SWEEPS} sweeps", 2)
    if found:
        yield context.row(OURS, f"{SWEEPS} sweeps, {found['size']:,} features", found)


def fit_virtual(dataset, n_labels: int, kinds, rho1: float, rho2: float, sweeps: int):
    """(layout and theta of the active weights over the same observations, objective) after `sweeps` sweeps."""
    layout, found = minimise_virtual(dataset, n_labels, kinds, ElasticNet(rho1, rho2), "sbcd", sweeps, start=False)
    return layout, found.theta, found.objective


def fit(data: str, quick: bool) -> dict:
    problem = corpora.make_problem(*corpora.read_tokens(data, "nettalk", quick), LINES)
    n_labels = len(problem.labels)
    begin = time.perf_counter()
    layout, theta, objective = fit_virtual(problem.train, n_labels, problem.kinds, RHO1, RHO2, 2 if quick else SWEEPS)
    return {
        "seconds": time.perf_counter() - begin, "objective": objective, "active": int(np.count_nonzero(theta)),
        "size": len(problem.observations) * (n_labels + n_labels**2),
        **ours.accuracy(problem, ours.decoded(problem, layout, theta)),
    }  # fmt: skip
