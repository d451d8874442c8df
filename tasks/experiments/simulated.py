"""Simulated data (SBCD 6.1, THESIS 7.3.1): ten sequences of a known hidden Markov model, and models M1 to M8 of them.

The test error is no estimate: all 3,125 inputs are enumerated and decoded, and the truth says how often each label is
wrong.
"""

import time
from functools import cache

import numpy as np

from espalier.engine.data.dataset import Dataset, make_dataset, select
from espalier.engine.decoding import decode
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.weights.layout import BIGRAM, UNIGRAM, Layout, dense_layout
from espalier.tasks.experiments.problems import families
from espalier.tasks.judging.risk import all_inputs, true_posteriors
from espalier.tasks.sources import simulated

RHO2 = 0.001  # of the models with an L1 term
KINDS = {"M1": UNIGRAM | BIGRAM, "M2": BIGRAM, "M3": UNIGRAM}
RHO1 = {"M4": 0.001, "M5": 0.01, "M6": 0.1, "M7": 1.0, "M8": 2.5}
ITERATIONS, TOLERANCE = 200, 1e-6
WAYS = {"cd": ("cd", {}), "sbcd": ("sbcd", {}), "cd-without-zeros": ("cd", {"revisit_zeros": False})}


# Data and errors ------------------------------------------------------------------------------------


def sample(sequences: int, seed: list[int]) -> Dataset:
    states, symbols = simulated.draw(simulated.truth(), sequences, seed)
    return make_dataset(symbols.reshape(-1, 1), states.ravel(), np.arange(0, states.size + 1, states.shape[1]))


@cache
def truth() -> tuple[Dataset, np.ndarray]:
    """All inputs, and how likely each is with each label at each position [N, T, Y]."""
    inputs = all_inputs(simulated.truth())
    probability, single, _ = true_posteriors(simulated.truth(), inputs)
    offsets = np.arange(0, inputs.size + 1, inputs.shape[1])
    return make_dataset(inputs.reshape(-1, 1), None, offsets), probability[:, None, None] * single


def bayes_error() -> float:
    joint = truth()[1]
    return float(1 - joint.max(axis=2).sum() / joint.shape[1])


def exact_error(layout: Layout, theta: np.ndarray) -> float:
    """The probability that a decoded label is wrong."""
    inputs, joint = truth()
    said = decode.viterbi(inputs, layout, theta).reshape(joint.shape[:2])
    return float(1 - np.take_along_axis(joint, said[..., None], axis=2).sum() / joint.shape[1])


def error(data: Dataset, layout: Layout, theta: np.ndarray) -> float:
    return float(np.mean(decode.viterbi(data, layout, theta) != data.labels))


def layout_of(kind: int) -> Layout:
    """All weights, with those of the start label, as the source's program has them."""
    model = simulated.truth()
    return dense_layout(len(model["labels"]), np.full(len(model["symbols"]), kind), start=True)


def trained(data: Dataset, layout: Layout, penalty: ElasticNet) -> np.ndarray:
    solver = "sbcd" if penalty.rho1 else "lbfgs"
    return minimise(solver, ChainObjective(data, layout), penalty, None, ITERATIONS, TOLERANCE).theta


# Cells ----------------------------------------------------------------------------------------------


def compared(first: int, replications: int, sequences: int, rho2: list[float], seed: int) -> dict:
    """Errors and active weights of each model in each replication; M1 to M3 with each rho2."""
    rows = {name: [] for name in (*(f"{m} {value:g}" for m in KINDS for value in rho2), *RHO1)}
    for r in range(first, first + replications):
        data = sample(sequences, [seed, r])
        for name, kind in KINDS.items():
            for value in rho2:
                rows[f"{name} {value:g}"].append(_figures(data, layout_of(kind), ElasticNet(0.0, value)))
        for name, rho1 in RHO1.items():
            rows[name].append(_figures(data, layout_of(KINDS["M1"]), ElasticNet(rho1, RHO2)))
    return {"bayes_error": bayes_error(), "models": rows}


def _figures(data: Dataset, layout: Layout, penalty: ElasticNet) -> dict:
    theta = trained(data, layout, penalty)
    return {"train": error(data, layout, theta), "test": exact_error(layout, theta)} | families(layout, theta)


def crossvalidated(first: int, replications: int, sequences: int, rho2: list[float], folds: int, seed: int) -> dict:
    """Mean error of M1 to M3 on sequences left out, for each rho2."""
    sums = {name: [0.0] * len(rho2) for name in KINDS}
    for r in range(first, first + replications):
        data, every = sample(sequences, [seed, r]), np.arange(sequences)
        for name, kind in KINDS.items():
            layout = layout_of(kind)
            for i, value in enumerate(rho2):
                for fold in range(folds):
                    out = every % folds == fold
                    theta = trained(select(data, every[~out]), layout, ElasticNet(0.0, value))
                    share = float(out.mean()) / replications
                    sums[name][i] += share * error(select(data, every[out]), layout, theta)
    return {"replications": replications, "errors": sums}


def selected(first: int, replications: int, sequences: int, rho1: float, seed: int) -> dict:
    """How often each weight is chosen, and the mean of its values (figures 7.3 and 7.4)."""
    layout = layout_of(KINDS["M1"])
    chosen, total = np.zeros(layout.size), np.zeros(layout.size)
    for r in range(first, first + replications):
        theta = trained(sample(sequences, [seed, r]), layout, ElasticNet(rho1, RHO2))
        chosen, total = chosen + (theta != 0.0), total + theta
    inner = slice(layout.bounds()[1], None)
    return {"replications": replications, "mu_chosen": chosen[: layout.bounds()[0]].tolist(),
            "mu_sum": total[: layout.bounds()[0]].tolist(), "lambda_chosen": chosen[inner].tolist()}  # fmt: skip


def converged(first: int, replications: int, sequences: int, rho1: float, sweeps: int, seed: int) -> dict:
    """Means of the loss and of the errors after each sweep, and the time of all sweeps, of three ways to descend."""
    layout, penalty = layout_of(KINDS["M1"]), ElasticNet(rho1, RHO2)
    found = {}
    for name, (solver, options) in WAYS.items():
        sums, seconds, back, zeroed = np.zeros((sweeps + 1, 4)), 0.0, 0, 0
        minimise(solver, ChainObjective(sample(3, [seed, 0]), layout), penalty, None, 2, **options)  # compiles
        for r in range(first, first + replications):
            data, thetas, lines = sample(sequences, [seed, r]), [], []

            def watch(record, theta, thetas=thetas, lines=lines):
                thetas.append(theta.copy())
                lines.append(record)

            objective = ChainObjective(data, layout)
            begin = time.perf_counter()
            minimise(solver, objective, penalty, None, sweeps, 0.0, on_iteration=watch, **options)
            seconds += time.perf_counter() - begin
            for i in range(sweeps + 1):
                at = min(i, len(lines) - 1)  # one that has ended stays where it is
                theta, line = thetas[at], lines[at]
                sums[i] += (line["objective"], line["loss"], error(data, layout, theta), exact_error(layout, theta))
            for a, b in zip(thetas[1:], thetas[2:], strict=False):
                zeroed += int((a == 0.0).sum())
                back += int(((a == 0.0) & (b != 0.0)).sum())
        means = (sums / replications).T.tolist()
        found[name] = {"objective": means[0], "loss": means[1], "train": means[2], "test": means[3],
                       "seconds": seconds / replications, "zeros": zeroed, "zeros_back": back}  # fmt: skip
    return {"replications": replications, "ways": found}
