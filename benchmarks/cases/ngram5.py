"""Nettalk with n-grams of letters up to 5 (SBCD table 3): over 100 million features, of which few are ever made.

As in the source: bias terms of labels and of pairs of labels, and k-grams centred on the letter, each with a label and
with a pair of labels. `odd` takes k = 1, 3, 5; `all` also the k-grams of even length that lean to either side. Each
position gets its likeliest label, which errs least by position; `viterbi` rows are the likeliest labelling instead.
The penalty was chosen on a tenth of the training words.
"""

import time
from collections.abc import Iterator

import numpy as np

from benchmarks import corpora, ours
from benchmarks.cases import Context
from benchmarks.rows import OURS
from espalier.engine.decoding import decode
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.virtual_weights import minimise_virtual

ODD = [
    "U", "B", "*1:%x[0,0]", "*3:%x[-1,0]/%x[0,0]/%x[1,0]", "*5:%x[-2,0]/%x[-1,0]/%x[0,0]/%x[1,0]/%x[2,0]",
]  # fmt: skip
EVEN = [
    "*2-:%x[-1,0]/%x[0,0]", "*2+:%x[0,0]/%x[1,0]", "*4-:%x[-2,0]/%x[-1,0]/%x[0,0]/%x[1,0]",
    "*4+:%x[-1,0]/%x[0,0]/%x[1,0]/%x[2,0]",
]  # fmt: skip
LINES = {"odd": ODD, "all": ODD + EVEN}
RHO1, RHO2 = 0.1, 0.001
SWEEPS = 20


def rows(context: Context) -> Iterator[dict]:
    for grams in LINES:
        found = context.job("ngram5:fit", OURS, f"{grams} k-grams, {SWEEPS} sweeps", 2, grams=grams)
        if found:
            setting = f"{grams} k-grams, {SWEEPS} sweeps, {found['size']:,} features"
            yield context.row(OURS, setting, found)
            yield context.row(OURS, f"{setting}, viterbi", found | {"error": found["viterbi"]})


def fit(data: str, quick: bool, grams: str) -> dict:
    problem = corpora.make_problem(*corpora.read_tokens(data, "nettalk", quick), LINES[grams])
    n_labels = len(problem.labels)
    begin = time.perf_counter()
    layout, result = minimise_virtual(
        problem.train, n_labels, problem.kinds, ElasticNet(RHO1, RHO2), sweeps=2 if quick else SWEEPS, tolerance=1e-7,
    )  # fmt: skip
    seconds, theta = time.perf_counter() - begin, result.theta
    likeliest = [problem.labels[y] for y in decode.posterior(problem.test, layout, theta)]
    return {
        "seconds": seconds, "objective": result.objective, "active": int(np.count_nonzero(theta)),
        "size": len(problem.observations) * (n_labels + n_labels**2),
        "viterbi": ours.accuracy(problem, ours.decoded(problem, layout, theta))["error"],
        **ours.accuracy(problem, likeliest),
    }  # fmt: skip
