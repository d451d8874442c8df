"""CoNLL-2000 chunking with the attributes of CRFsuite's example: ours, CRFsuite, chaine, Wapiti's gradient.

The same model: attributes seen with a label, label bigrams that were seen, no weights for the
first or last label. CRFsuite minimises loss + c1 |w|_1 + c2 |w|^2, so rho1 = c1 and rho2 = 2 c2.
"""

import time
from collections.abc import Iterator

import numpy as np
import polars as pl

from benchmarks import corpora, job, ours, peers
from benchmarks.cases import Context
from benchmarks.rows import OURS
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.weights.layout import dense_layout, seen_layout

WINDOWS = [
    *(((0, i),) for i in range(-2, 3)), ((0, -1), (0, 0)), ((0, 0), (0, 1)), *(((1, i),) for i in range(-2, 3)),
    *(((1, i), (1, i + 1)) for i in range(-2, 2)), *(((1, i), (1, i + 1), (1, i + 2)) for i in range(-2, 1)),
]  # fmt: skip
NAMES = ("w", "pos")
ITERATIONS = 100
RUNS = (("ready features", 2), ("ready features", 1), ("end to end", 2), ("end to end", 1))
SAME = 1e-5  # of two computations of one objective: CRFsuite prints its weights to six decimals
PENALTIES = {"conll2000": ("L2", 0.0, 1.0), "conll2000-l1": ("L1", 0.5, 0.0)}


def _name(window) -> str:
    return "|".join(f"{NAMES[column]}[{row}]" for column, row in window)


LINES = [*(f"U{_name(w)}=" + "|".join(f"%x[{row},{column}]" for column, row in w) for w in WINDOWS), "B"]
FIRST, LAST = "Uw[-1]=_x-1", "Uw[1]=_x+1"  # what CRFsuite's example calls __BOS__ and __EOS__


# ---- rows


def rows(context: Context) -> Iterator[dict]:
    yield from _compare(context, ("hybrid", "lbfgs"))
    yield from _gradients_of_wapiti(context)


def l1_rows(context: Context) -> Iterator[dict]:
    yield from _compare(context, ("hybrid", "pqn", "owlqn"))


def _compare(context: Context, wanted) -> Iterator[dict]:
    """Peers first; ours run until they are where CRFsuite ended."""
    group, c1, c2 = PENALTIES[context.case]
    iterations = 5 if context.quick else ITERATIONS
    target = None
    for system in peers.TRAINERS:
        for start in ("ready features", "end to end") if system == "python-crfsuite" else ("ready features",):
            setting = f"{group} {start}, {iterations} iterations"
            arguments = {"system": system, "c1": c1, "c2": c2, "iterations": iterations, "text": start == "end to end"}
            found = context.job("conll2000:peer", system, setting, **arguments)
            if not found:
                continue
            target = target or found["objective"]
            yield context.row(system, setting, found)
    for solver in ours.solvers(*wanted):
        for start, threads in RUNS if solver == "hybrid" else RUNS[:1]:
            setting = f"{group} {start}, {solver}"
            arguments = {"solver": solver, "c1": c1, "c2": c2, "target": target, "text": start == "end to end"}
            found = context.job("conll2000:fit", OURS, setting, threads, **arguments)
            if found:
                yield context.row(OURS, setting + found.get("remark", ""), found)


def _gradients_of_wapiti(context: Context) -> Iterator[dict]:
    """Wapiti has weights for all pairs of observation and label, and so has ours here."""
    setting = "all pairs, one gradient"
    for threads in (2, 1):
        found = context.job("conll2000:dense_gradient", OURS, setting, threads)
        if found:
            yield context.row(OURS, setting, found)
    found = context.job("conll2000:wapiti_gradient", "libwapiti", setting, 2)
    if found:
        yield context.row("libwapiti", f"{setting}, {found['remark']}", found)


# ---- jobs: ours


def problem_of(tokens) -> corpora.Problem:
    """CRFsuite's example leaves out what reaches beyond a sentence, but for a mark on its first and last word."""
    text = pl.col("observation")
    beyond = text.str.contains(r"[=|]_x[+-]\d") & ~text.is_in([FIRST, LAST])
    return corpora.make_problem(*tokens, LINES, drop=beyond)


def layout_of(problem: corpora.Problem):
    return seen_layout(problem.train, len(problem.labels), problem.kinds, start=False)


def fit(data: str, quick: bool, solver: str, c1: float, c2: float, target: float | None, text: bool) -> dict:
    """Time runs from the features, or from the text; the layout and the index are ours to make in it."""
    penalty = ElasticNet(c1, 2 * c2)
    problem = problem_of(corpora.read_tokens(data, "conll2000", quick))
    ours.warm_up(problem.train, layout_of(problem), solver, penalty)
    begin = time.perf_counter()
    if text:
        train = corpora.read_part(data, "conll2000", 0, quick)
        problem = problem._replace(train=problem_of((train, train.clear())).train)
    layout = layout_of(problem)
    most = 5 if quick else 1000
    found = ours.fit(problem.train, layout, solver, penalty, begin=begin, target=target, limit=300, max_iterations=most)
    values = ours.summary(problem, layout, found, target)
    short = target is not None and found.objective > target
    return values | ({"seconds": None, "remark": ", did not get there"} if short else {})


def dense_gradient(data: str, quick: bool) -> dict:
    problem = corpora.make_problem(*corpora.read_tokens(data, "conll2000", quick), LINES)
    layout = dense_layout(len(problem.labels), problem.kinds, start=False)
    objective = ChainObjective(problem.train, layout)
    theta = np.random.default_rng(0).normal(scale=0.1, size=layout.size)
    return {"seconds_per_gradient": ours.gradient_seconds(objective, theta), "active": layout.size}


# ---- jobs: peers


def attributes(words: list[str], tags: list[str]) -> list[list[str]]:
    """CRFsuite's attributes of each token of a sentence."""
    columns, items = (words, tags), []
    for t in range(len(words)):
        item = []
        for name, window in zip(ATTRIBUTES, WINDOWS, strict=True):
            if 0 <= t + window[0][1] and t + window[-1][1] < len(words):
                item.append(name + "|".join([columns[column][t + row] for column, row in window]))
        items.append(item)
    items[0].append("__BOS__")
    items[-1].append("__EOS__")
    return items


ATTRIBUTES = [f"{_name(window)}=" for window in WINDOWS]


def peer(data: str, quick: bool, system: str, c1: float, c2: float, iterations: int, text: bool) -> dict:
    """A peer's training; the objective is ours at its weights, and must be the loss that it prints."""
    train, test = corpora.paths(data, "conll2000")
    begin = time.perf_counter()
    sentences = [(attributes(w, p), labels) for w, p, labels in peers.read_text(train, quick)]
    with peers.temporary_folder() as folder:
        found = peers.TRAINERS[system](sentences, c1, c2, iterations, folder)
        seconds = time.perf_counter() - begin if text else found.seconds
        peak = job.peak_mib()
        problem = problem_of(corpora.read_tokens(data, "conll2000", quick))
        objective, active = _same_model(problem, found, c1, c2)
        predicted = tag(found.model, [attributes(w, p) for w, p, _ in peers.read_text(test, quick)])
    return {
        "seconds": seconds, "objective": objective, "active": active, "seconds_per_gradient": found.per_gradient,
        "peak_mib": peak, **({} if text else ours.reached(found.curve, objective)), **ours.accuracy(problem, predicted),
    }  # fmt: skip


def tag(model, sentences: list) -> list[str]:
    """Labels by CRFsuite's tagger, which reads chaine's models too."""
    tagger = peers.load("pycrfsuite").Tagger()
    tagger.open(str(model))
    return [label for items in sentences for label in tagger.tag(items)]


def _same_model(problem: corpora.Problem, found: peers.Training, c1: float, c2: float) -> tuple[float, int]:
    """(our objective at the peer's weights, weights that are not zero); an error when it is not the peer's loss."""
    layout = layout_of(problem)
    theta = weights_in(problem, layout, *peers.crfsuite_weights(found.model))
    objective = ChainObjective(problem.train, layout).value(theta) + ElasticNet(c1, 2 * c2).value(theta)
    printed = found.curve[-1][1]
    if not np.isclose(objective, printed, rtol=SAME):
        raise ValueError(f"the peer's loss is {printed}, ours at its weights {objective}: expected the same model")
    return objective, int(np.count_nonzero(theta))


def weights_in(problem: corpora.Problem, layout, states: dict, transitions: dict) -> np.ndarray:
    """CRFsuite's weights in our order; one that we do not have is an error."""
    names = {text[1:]: x for x, text in enumerate(problem.observations)}
    names |= {"__BOS__": names.pop(FIRST[1:]), "__EOS__": names.pop(LAST[1:])}
    code = {label: y for y, label in enumerate(problem.labels)}
    theta = np.zeros(layout.size)
    for (attribute, label), weight in states.items():
        theta[_slot(layout, "unigram", names[attribute], code[label])] = weight
    for (previous, label), weight in transitions.items():
        pair = code[previous] * layout.n_labels + code[label]
        theta[_slot(layout, "bigram", names[""], pair)] = weight
    return theta


def _slot(layout, family: str, x: int, wanted: int) -> int:
    """The slot of a label or pair in the run of observation x."""
    ptr, _, _ = layout.family(family)
    codes = layout.run_codes(family, x)
    at = int(np.searchsorted(codes, wanted))
    if at == len(codes) or codes[at] != wanted:
        raise ValueError(f"the peer has a weight for {family} {wanted} of observation {x}: expected the same model")
    return int(ptr[x]) + at


def wapiti_gradient(data: str, quick: bool) -> dict:
    train, _ = corpora.paths(data, "conll2000")
    lines = ["\n".join(map(" ".join, zip(*s, strict=True))) for s in peers.read_text(train, quick)]
    model = peers.Wapiti(LINES, lines, 2, 0.0, 2.0)
    model.theta[:] = np.random.default_rng(0).normal(scale=0.1, size=model.head.nftr)
    seconds, _ = model.gradients()
    return {"seconds_per_gradient": seconds, "active": int(model.head.nftr), "remark": peers.wapiti_build()}
