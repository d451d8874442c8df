"""One gradient of a maximum-entropy Markov model beside Wapiti's (`--type memm`), at the same weights.

Wapiti has weights for all pairs of observation and label, and so has ours here. The objective is checked: on CoNLL-2000
at weights that depend on the labels alone, and on NETtalk at weights drawn at random.
"""

import ctypes
from collections.abc import Iterator

import numpy as np

from benchmarks import corpora, ours, peers
from benchmarks.cases import Context, conll2000, nettalk
from benchmarks.rows import OURS
from espalier.engine.families.memm import MemmObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.weights.layout import Layout, dense_layout

SAME, RHO2 = 1e-9, 2.0
LINES = {"conll2000": conll2000.LINES, "nettalk": nettalk.LINES}
MEMM = 1  # Wapiti's number of this type of model: maxent, memm, crf
REPEATS = 5


def rows(context: Context) -> Iterator[dict]:
    for corpus in LINES:
        setting = f"{corpus} all pairs, one gradient"
        for threads in (2, 1):
            found = context.job("memm:gradient", OURS, setting, threads, corpus=corpus)
            if found:
                yield context.row(OURS, setting, found)
        found = context.job("memm:wapiti", "libwapiti", setting, 2, corpus=corpus)
        if found:
            yield context.row("libwapiti", f"{setting}, {found['remark']}", found)


def problem_of(data: str, quick: bool, corpus: str) -> tuple[corpora.Problem, Layout]:
    problem = corpora.make_problem(*corpora.read_tokens(data, corpus, quick), LINES[corpus])
    return problem, dense_layout(len(problem.labels), problem.kinds, start=False)


def gradient(data: str, quick: bool, corpus: str) -> dict:
    problem, layout = problem_of(data, quick, corpus)
    objective = MemmObjective(problem.train, layout)
    theta = np.random.default_rng(0).normal(scale=0.1, size=layout.size)
    return {"seconds_per_gradient": min(ours.gradient_seconds(objective, theta, 1) for _ in range(REPEATS)),
            "active": layout.size}  # fmt: skip


def wapiti(data: str, quick: bool, corpus: str) -> dict:
    """Least of several calls; an error when the objective is not ours at the same weights."""
    tokens = corpora.read_part(data, corpus, 0, quick)
    columns = [name for name in tokens.columns if name.startswith("x")]
    words = tokens.group_by("sequence", maintain_order=True).agg(*columns, "label").drop("sequence").rows()
    lines = ["\n".join(map(" ".join, zip(*word, strict=True))) for word in words]
    model = peers.Wapiti(LINES[corpus], lines, 2, 0.0, RHO2)
    model.head.type = MEMM
    theta, random = model.theta, np.random.default_rng(0)
    if corpus == "nettalk":
        theta[:] = random.normal(scale=0.1, size=len(theta))
    else:
        labels = tokens["label"].unique(maintain_order=True).to_list()
        by_labels(model, *weights_of(labels), theta)
    _, objective = model.gradients(1)
    check(data, quick, corpus, tokens, theta, objective)
    seconds = min(model.gradients(1)[0] for _ in range(REPEATS))
    return {"seconds_per_gradient": seconds, "active": len(theta), "remark": peers.wapiti_build()}


def weights_of(labels: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Weights of labels and pairs of them, drawn at random in the order of their names."""
    random, place = np.random.default_rng(1), np.argsort(np.argsort(labels))
    single, pairs = random.normal(scale=0.1, size=len(labels)), random.normal(scale=0.5, size=(len(labels),) * 2)
    return single[place], pairs[np.ix_(place, place)]


def by_labels(model: peers.Wapiti, single: np.ndarray, pairs: np.ndarray, theta: np.ndarray) -> None:
    """The same weights for every observation, in Wapiti's places."""
    head = model.head
    kinds = np.ctypeslib.as_array(ctypes.cast(head.kind, ctypes.POINTER(ctypes.c_char)), (head.nobs,)).view(np.uint8)
    places = (np.ctypeslib.as_array(ctypes.cast(at, ctypes.POINTER(ctypes.c_uint64)), (head.nobs,)).astype(np.int64)
              for at in (head.uoff, head.boff))  # fmt: skip
    for bit, at, values in zip((1, 2), places, (single, pairs), strict=True):
        theta[at[kinds & bit > 0][:, None] + np.arange(values.size)] = values.ravel()


def check(data: str, quick: bool, corpus: str, tokens, theta: np.ndarray, objective: float) -> None:
    problem, layout = problem_of(data, quick, corpus)
    if corpus == "nettalk":
        mine = nettalk._from_wapiti(theta, tokens, problem, layout)
    else:
        single, pairs = weights_of(problem.labels)
        family, _, before, label = layout.slots()
        mine = np.where(family == 0, single[label], pairs[before, label])
    value = MemmObjective(problem.train, layout).value(mine) + ElasticNet(0.0, RHO2).value(mine)
    if not np.isclose(value, objective, rtol=SAME):
        raise ValueError(f"Wapiti's objective is {objective}, ours at its weights {value}: expected the same model")
