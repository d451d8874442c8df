"""Nettalk with mu[x, y] and lambda[x, y', y] (SBCD table 2): our solvers, and Wapiti's gradient."""

from collections.abc import Iterator

import numpy as np

from benchmarks import corpora, job, ours, peers
from benchmarks.cases import Context
from benchmarks.rows import OURS
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.weights.layout import dense_layout

LINES = ["*:%x[0,0]"]
RHO1, RHO2 = 0.2, 0.001
REFERENCE = 57_415.3  # optimum for RHO1 and RHO2, found by OWL-QN in 2,500 iterations
PATH = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 10.0)  # rho1 of SBCD table 2
LIMIT = 300.0  # seconds of one fit at most
PATH_LIMIT = 45.0
WAPITI_ITERATIONS = 3


def rows(context: Context) -> Iterator[dict]:
    for solver in ours.solvers("pqn", "hybrid", "owlqn", "sbcd"):
        for threads in (2, 1) if solver == "pqn" else (2,):
            found = context.job("nettalk:fit", OURS, solver, threads, solver=solver)
            if found:
                yield context.row(OURS, f"rho1={RHO1}, {solver}", found)
    found = context.job("nettalk:wapiti", "libwapiti", "l-bfgs", 2)
    if found:
        yield context.row("libwapiti", f"rho1={RHO1}, l-bfgs, {found['remark']}", found)


def path_rows(context: Context) -> Iterator[dict]:
    """Each rho1 by each solver; a solver is timed to 1 % of the best objective that any of them saw."""
    for rho1 in PATH[::3] if context.quick else PATH:
        found = {}
        for solver in ours.solvers("sbcd", "pqn", "owlqn" if rho1 else "lbfgs"):
            found[solver] = context.job(
                "nettalk:fit_path", OURS, f"rho1={rho1:g}, {solver}", 2, solver=solver, rho1=rho1
            )
        found = {solver: one for solver, one in found.items() if one}
        best = min((one["objective"] for one in found.values()), default=None)
        for solver, one in found.items():
            parts = f"mu {one['parts']['active_unigram']:,}, lambda {one['parts']['active_bigram']:,}"
            yield context.row(OURS, f"rho1={rho1:g}, {solver}, {parts}", one | ours.reached(one["curve"], best))


def _problem(data: str, quick: bool):
    problem = corpora.make_problem(*corpora.read_tokens(data, "nettalk", quick), LINES)
    return problem, dense_layout(len(problem.labels), problem.kinds, start=False)


def fit(data: str, quick: bool, solver: str) -> dict:
    """To 0.1 % of the reference optimum, which a quick run on a few words has not."""
    problem, layout = _problem(data, quick)
    penalty = ElasticNet(RHO1, RHO2)
    ours.warm_up(problem.train, layout, solver, penalty)
    if quick:
        found = ours.fit(problem.train, layout, solver, penalty, max_iterations=5)
        return ours.summary(problem, layout, found)
    found = ours.fit(problem.train, layout, solver, penalty, target=1.001 * REFERENCE, limit=LIMIT)
    return ours.summary(problem, layout, found, REFERENCE)


def fit_path(data: str, quick: bool, solver: str, rho1: float) -> dict:
    problem, layout = _problem(data, quick)
    penalty = ElasticNet(rho1, RHO2)
    ours.warm_up(problem.train, layout, solver, penalty)
    most = 5 if quick else 10_000
    found = ours.fit(problem.train, layout, solver, penalty, limit=PATH_LIMIT, max_iterations=most, tolerance=1e-4)
    return ours.summary(problem, layout, found)


def wapiti(data: str, quick: bool) -> dict:
    """A few iterations; the objective is ours at Wapiti's weights, and must be the one that Wapiti finds."""
    tokens, test = corpora.read_tokens(data, "nettalk", quick)
    words = tokens.group_by("sequence", maintain_order=True).agg("x0", "label")
    lines = ["\n".join(f"{a}\t{b}" for a, b in zip(*word, strict=True)) for word in words.select("x0", "label").rows()]
    model = peers.Wapiti(LINES, lines, 2, RHO1, RHO2, WAPITI_ITERATIONS)
    seconds = model.train()
    per_gradient, objective = model.gradients()
    peak = job.peak_mib()
    problem, layout = _problem(data, quick)
    theta = _from_wapiti(model.theta, tokens, problem, layout)
    mine = ChainObjective(problem.train, layout).value(theta) + ElasticNet(RHO1, RHO2).value(theta)
    if not np.isclose(mine, objective, rtol=1e-9):
        raise ValueError(f"Wapiti's objective is {objective}, ours at its weights {mine}: expected the same model")
    each = seconds / WAPITI_ITERATIONS
    return {
        "seconds_per_gradient": per_gradient, "objective": mine, "active": int(np.count_nonzero(theta)),
        **ours.accuracy(problem, ours.decoded(problem, layout, theta)),
        "peak_mib": peak, "remark": f"{peers.wapiti_build()}, {each:.2f} s an iteration over {WAPITI_ITERATIONS}",
    }  # fmt: skip


def _from_wapiti(theta: np.ndarray, tokens, problem, layout) -> np.ndarray:
    """Wapiti numbers letters and labels as they come, and keeps mu and lambda of a letter together."""
    count = layout.n_labels
    letters = tokens["x0"].unique(maintain_order=True).to_list()
    names = tokens["label"].unique(maintain_order=True).to_list()
    their = np.array([names.index(label) for label in problem.labels])
    blocks = theta.reshape(len(letters), count + count**2)
    mine = np.empty(layout.size)
    for x, observation in enumerate(problem.observations):
        block = blocks[letters.index(observation.removeprefix("*:"))]
        mine[layout.unigram_ptr[x] : layout.unigram_ptr[x + 1]] = block[:count][their]
        pairs = block[count:].reshape(count, count)[np.ix_(their, their)]
        mine[layout.bigram_ptr[x] : layout.bigram_ptr[x + 1]] = pairs.ravel()
    return mine
