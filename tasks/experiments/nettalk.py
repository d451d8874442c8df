"""Letters to phonemes (SBCD 6.2, THESIS 3.5.1, 6.1, 7.3.2): cells of the experiments on Nettalk."""

import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np

from espalier.engine.chain.scores import SHARES
from espalier.engine.labels import measures
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.losses.feature_selection import magnitudes
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.weights.layout import Layout, dense_layout
from espalier.tasks.experiments.problems import (
    Fit,
    Problem,
    accuracy,
    decoded,
    families,
    fit,
    fit_virtual,
    load,
    measured,
    train_error,
)  # fmt: skip
from espalier.tasks.experiments.turns import Turn, in_turn

LETTER = ["*:%x[0,0]"]
TIMED = 5  # gradients of which the fastest counts


def all_pairs(problem: Problem) -> Layout:
    """Every label and pair of labels of every observation, and the start label's, as the sources have them."""
    return dense_layout(len(problem.labels), problem.kinds, start=True)


# SBCD table 2, figure 5 -----------------------------------------------------------------------------


def trained(solver: str, rho1: float, rho2: float, iterations: int, limit: int | None, train: Path, test: Path) -> dict:
    """A fixed number of iterations, as in the source."""
    problem = load(train, test, LETTER, limit)
    return _trained(problem, solver, ElasticNet(rho1, rho2), iterations)[0]


def descents(
    rho1: dict[str, float], rho2: float, iterations: int, limit: int | None, train: Path, test: Path
) -> dict[str, dict]:
    """The same by SBCD for several penalties, {name: figures}, sweep by sweep in turn, so that their times compare.

    Then how long one gradient takes at what each has found, sparse, dense and as chosen.
    """
    problem = load(train, test, LETTER, limit)

    def descend(turn: Turn, rho1: float) -> dict:
        figures, theta = _trained(problem, "sbcd", ElasticNet(rho1, rho2), iterations, turn)
        return figures | {"gradient": {sparse: gradient_seconds(problem, theta, sparse, turn) for sparse in SHARES}}

    return in_turn({name: partial(descend, rho1=value) for name, value in rho1.items()})


def _trained(
    problem: Problem, solver: str, penalty: ElasticNet, iterations: int, turn: Turn | None = None
) -> tuple[dict, np.ndarray]:
    """Figures and weights; with a turn each iteration is one, and the time is that of its own."""
    layout = all_pairs(problem)
    watch = (lambda *_: turn.pass_on()) if turn else None
    found = fit(problem, layout, solver, penalty, iterations=iterations, tolerance=0.0, watch=watch)
    result = found.figures | measured(problem, layout, found.theta)
    if turn:
        result["seconds"] -= turn.waited
    start, _ = layout.bounds()
    return result | {"mu_all": start, "lambda_all": layout.size - start}, found.theta


def gradient_seconds(problem: Problem, theta: np.ndarray, sparse: str, turn: Turn) -> float:
    """The least of a few, one each turn, after one that is not counted."""
    objective, times = ChainObjective(problem.train, all_pairs(problem), sparse), []
    objective.value_and_gradient(theta)
    for _ in range(TIMED):
        turn.pass_on()
        begin = time.perf_counter()
        objective.value_and_gradient(theta)
        times.append(time.perf_counter() - begin)
    return min(times)


# SBCD table 3 ---------------------------------------------------------------------------------------


def context_lines(kind: str, n: int) -> list[str]:
    """The letter and bias terms, with letters around it one by one (pseudo), or k-grams about it (true)."""
    lines = ["U", "B", "*1:%x[0,0]"]
    if kind == "pseudo":
        return lines + [f"*{i:+d}:%x[{i},0]" for i in range(-(n // 2), n // 2 + 1) if i]
    grams = [range(-(k // 2), k // 2 + 1) for k in range(3, n + 1, 2)]
    return lines + [f"*{len(gram)}:" + "/".join(f"%x[{i},0]" for i in gram) for gram in grams]


def in_context(
    kind: str, n: int, rho1: float, rho2: float, sweeps: int, limit: int | None, train: Path, test: Path
) -> dict:
    """Blockwise descent over all n-grams with all pairs of labels, most of which are never made."""
    problem = load(train, test, context_lines(kind, n), limit)
    found = fit_virtual(problem, ElasticNet(rho1, rho2), sweeps=sweeps, tolerance=0.0)
    return found.figures | measured(problem, found.layout, found.theta, train=False) | {
        "features": problem.virtual_size, "per_position": per_position(problem, found), "sweeps": sweeps,
    }  # fmt: skip


def per_position(problem: Problem, found: Fit) -> float:
    """Active weights that a position of the training data has to look at, on average."""
    _, observation, _, _ = found.layout.slots(np.flatnonzero(found.theta))
    active = np.append(np.bincount(observation, minlength=len(problem.observations)), 0)  # the last is for -1
    return float(active[problem.train.observations].sum() / len(problem.train.labels))


# THESIS tables 3.2 and 3.3 --------------------------------------------------------------------------


def pattern(
    lines: list[str], start: bool, rho2: float, iterations: int, confusions: int, limit: int | None, train: Path,
    test: Path,
) -> dict:  # fmt: skip
    """An L2 model of some templates, all labels and pairs of labels; and what it confuses most."""
    problem = load(train, test, lines, limit)
    layout = dense_layout(len(problem.labels), problem.kinds, start)
    found = fit(problem, layout, "hybrid", ElasticNet(0.0, rho2), iterations=iterations, tolerance=1e-4)
    said = decoded(problem, layout, found.theta)
    result = found.figures | accuracy(problem, said) | {"train_error": train_error(problem, layout, found.theta)}
    wrong = Counter((a, b) for a, b in zip(said, problem.test_labels, strict=True) if a != b)
    result["confusions"] = [[*pair, count] for pair, count in wrong.most_common(confusions)]
    codes = {label: i for i, label in enumerate(problem.labels)}
    numbers = [np.array([codes.get(label, -1) for label in row]) for row in (problem.test_labels, said)]
    errors = measures.sequence_errors(*numbers, problem.test.offsets)
    result["words"] = {"all": len(errors)} | {str(n): int((errors > n).sum()) for n in (0, 2, 5, 8, 10)}
    return result


# THESIS table 6.3, figures 6.1, 6.2, 7.7 ------------------------------------------------------------


def thresholds(rho2: float, iterations: int, cuts: list[float], limit: int | None, train: Path, test: Path) -> dict:
    """An L2 model, and what is left of it when its small weights, or its negative ones, are set to zero."""
    problem = load(train, test, LETTER, limit)
    layout = all_pairs(problem)
    found = fit(problem, layout, "lbfgs", ElasticNet(0.0, rho2), iterations=iterations, tolerance=1e-5)
    size = magnitudes(found.theta)
    kept = {f"{cut:g}": np.where(size > cut, found.theta, 0.0) for cut in cuts}
    kept["negative"] = np.maximum(found.theta, 0.0)
    rows = {name: _cut(problem, layout, theta) for name, theta in kept.items()}
    return found.figures | {"rows": rows} | maps(problem, layout, found.theta)


def _cut(problem: Problem, layout: Layout, theta: np.ndarray) -> dict:
    """What a cut leaves: active weights, error, and how many pairs are left without their single label."""
    mu, pairs = tables(problem, layout, theta)
    count = (pairs != 0.0).sum(axis=1)
    return families(layout, theta) | measured(problem, layout, theta, train=False) | {
        "orphans": int(count[mu == 0.0].sum()), "pairs_by_letter_and_label": count.tolist(),
    }  # fmt: skip


def tables(problem: Problem, layout: Layout, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """mu [X, Y] and lambda [X, 1 + Y, Y], the start label first."""
    x, y = len(problem.observations), len(problem.labels)
    a, b = layout.bounds()
    start, inner = theta[a:b].reshape(x, 1, y), theta[b:].reshape(x, y, y)
    return theta[:a].reshape(x, y), np.concatenate([start, inner], axis=1)


def maps(problem: Problem, layout: Layout, theta: np.ndarray) -> dict:
    """|mu| and the sum of |lambda| over the label before, by letter and label."""
    mu, pairs = tables(problem, layout, theta)
    return {
        "letters": [text.partition(":")[2] for text in problem.observations], "names": problem.labels,
        "mu_map": np.round(np.abs(mu), 4).tolist(), "lambda_map": np.round(np.abs(pairs).sum(axis=1), 4).tolist(),
    }  # fmt: skip


def sparse_maps(rho1: float, rho2: float, iterations: int, limit: int | None, train: Path, test: Path) -> dict:
    """The same maps with an L1 term."""
    problem = load(train, test, LETTER, limit)
    layout = all_pairs(problem)
    found = fit(problem, layout, "sbcd", ElasticNet(rho1, rho2), iterations=iterations, tolerance=1e-4)
    return found.figures | measured(problem, layout, found.theta, train=False) | maps(problem, layout, found.theta)
