"""Chunks of CoNLL-2000 (THESIS 3.5.2, 6.1, 7.3.3): cells of the experiment `chunking`."""

from pathlib import Path

import numpy as np

from espalier.engine.losses.feature_selection import magnitudes
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.weights.layout import dense_layout
from espalier.tasks.experiments.problems import (
    Fit,
    Problem,
    by_template,
    families,
    fit,
    fit_virtual,
    load,
    measured,
    read,
)  # fmt: skip

WORD, TAG = "w:%x[0,0]", "t:%x[0,1]"
BOTH = [f"*{WORD}", f"*{TAG}"]


def smooth(
    lines: list[str], start: bool, rho2: float, iterations: int, cuts: list[float], limit: int | None, train: Path,
    test: Path,
) -> dict:  # fmt: skip
    """An L2 model of all labels and pairs of labels, and what is left when its small weights are set to zero."""
    problem = load(train, test, lines, limit)
    layout = dense_layout(len(problem.labels), problem.kinds, start)
    found = fit(problem, layout, "hybrid", ElasticNet(0.0, rho2), iterations=iterations, tolerance=1e-4)
    size, rows = magnitudes(found.theta), {}
    for cut in cuts:
        theta = np.where(size > cut, found.theta, 0.0)
        rows[f"{cut:g}"] = families(layout, theta) | measured(problem, layout, theta, train=False)
    return found.figures | measured(problem, layout, found.theta) | {"rows": rows}


def sparse(
    lines: list[str], rho1: float, rho2: float, sweeps: int, limit: int | None, weights: bool, train: Path, test: Path
) -> dict:
    """Blockwise descent over all labels and pairs of labels; the strongest weights too, when they are asked for."""
    problem = load(train, test, lines, limit)
    found = fit_virtual(problem, ElasticNet(rho1, rho2), sweeps=sweeps, tolerance=0.0)
    result = found.figures | measured(problem, found.layout, found.theta) | {
        "sweeps": sweeps, "rho1": rho1, "features": problem.virtual_size, "templates": templates(problem),
        "by_template": by_template(problem, found.layout, found.theta),
    }  # fmt: skip
    return result | (strongest(problem, found) if weights else {})


def templates(problem: Problem) -> dict[str, int]:
    """Observations of each template."""
    names, counts = np.unique([text.partition(":")[0] for text in problem.observations], return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


# Weights for the maps -------------------------------------------------------------------------------

MOST_WORDS = 60  # of a map


def strongest(problem: Problem, found: Fit) -> dict:
    """mu and sums of |lambda| by observation and label, of all tags and of the words with the largest sums of |mu|."""
    mu, pairs, plain = tables(problem, found)
    total = np.abs(mu).sum(axis=1)
    heads = ("*t:", "*w:")
    tags, words = ([x for x, text in enumerate(problem.observations) if text.startswith(head)] for head in heads)
    words = sorted(words, key=lambda x: -total[x])[:MOST_WORDS]
    shown = {"tags": sorted(tags, key=lambda x: problem.observations[x]), "words": words}
    result = {"names": problem.labels, "transitions": np.round(plain, 4).tolist()}
    for name, rows in shown.items():
        result[name] = {
            "rows": [problem.observations[x].partition(":")[2] for x in rows],
            "sums": np.round(total[rows], 3).tolist(), "mu": np.round(mu[rows], 4).tolist(),
            "lambda": np.round(pairs[rows], 4).tolist(),
        }  # fmt: skip
    return result


def tables(problem: Problem, found: Fit) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """mu [X, Y], the sum of |lambda| over the label before [X, Y], and weights of plain transitions [Y, Y]."""
    active = np.flatnonzero(found.theta)
    family, observation, previous, label = found.layout.slots(active)
    values, shape = found.theta[active], (len(problem.observations), len(problem.labels))
    mu, pairs, plain = np.zeros(shape), np.zeros(shape), np.zeros((shape[1], shape[1]))
    single = family == 0
    mu[observation[single], label[single]] = values[single]
    np.add.at(pairs, (observation[~single], label[~single]), np.abs(values[~single]))
    constant = [x for x, text in enumerate(problem.observations) if text == "B"]
    here = (family == 2) & np.isin(observation, constant)
    plain[previous[here], label[here]] = values[here]
    return mu, pairs, plain


def frequencies(limit: int | None, train: Path, test: Path) -> dict:
    """Figure 7.13: how often each tag and each chunk label occurs in both parts."""
    parts = {"train": read(train, limit), "test": read(test, limit)}
    found = {}
    for key, column in (("tags", "x1"), ("chunks", "label")):
        counts = {name: dict(part[column].value_counts().rows()) for name, part in parts.items()}
        names = sorted(set().union(*counts.values()), key=lambda name: -counts["train"].get(name, 0))
        found[key] = {name: [counts["train"].get(name, 0), counts["test"].get(name, 0)] for name in names}
    return found
