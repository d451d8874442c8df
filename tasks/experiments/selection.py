"""Ways to choose features (SBCD 6.3, THESIS 7.3.3): cells of the experiment `selection`."""

from pathlib import Path

import numpy as np

from espalier.engine.losses.feature_selection import counts, keep, keep_only, magnitudes, mutual_information
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.weights.layout import Layout, dense_layout, seen_layout
from espalier.tasks.experiments.problems import Problem, families, fit, fit_virtual, load, measured

LINES = ["*w:%x[0,0]", "*t:%x[0,1]"]
RHO2 = 1.0  # of the models with L2


def seen(problem: Problem) -> Layout:
    return seen_layout(problem.train, len(problem.labels), problem.kinds, start=True)


def every(problem: Problem) -> Layout:
    return dense_layout(len(problem.labels), problem.kinds, start=True)


def before(way: str, sizes: list[int], iterations: int, limit: int | None, train: Path, test: Path) -> dict:
    """Features chosen before training, by count or mutual information; then an L2 model of each number of them."""
    problem = load(train, test, LINES, limit)
    layout = seen(problem) if way == "cut-off" else every(problem)
    scores = (counts if way == "cut-off" else mutual_information)(problem.train, layout)
    rows = []
    for size in sizes:
        small = keep_only(layout, keep(scores, count=min(size, layout.size)))
        found = fit(problem, small, "lbfgs", ElasticNet(0.0, RHO2), iterations=iterations)
        rows.append(found.figures | measured(problem, small, found.theta, train=False))
    return {"way": way, "rows": rows}


def after(sizes: list[int], iterations: int, limit: int | None, train: Path, test: Path) -> dict:
    """An L2 model of all features, and its largest weights alone, without training again."""
    problem = load(train, test, LINES, limit)
    layout = every(problem)
    found = fit(problem, layout, "hybrid", ElasticNet(0.0, RHO2), iterations=iterations)
    size, rows = magnitudes(found.theta), []
    for count in sizes:
        theta = np.where(keep(size, count=min(count, layout.size)), found.theta, 0.0)
        rows.append(families(layout, theta) | measured(problem, layout, theta, train=False))
    return {
        "way": "threshold",
        "rows": rows,
        "whole": found.figures | measured(problem, layout, found.theta, train=False),
    }


def during(
    solver: str, rho1: float, rho2: float, sweeps: int, limit: int | None, train: Path, test: Path
) -> dict:  # fmt: skip
    """An L1 penalty over all features, which chooses by itself."""
    problem = load(train, test, LINES, limit)
    found = fit_virtual(problem, ElasticNet(rho1, rho2), sweeps=sweeps, solver=solver)
    return {"rho1": rho1} | found.figures | measured(problem, found.layout, found.theta, train=False)
