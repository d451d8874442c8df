"""Retraining on data that have grown by a fifth and by a label: from zero, and from the model of the data before."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks import corpora, ours
from benchmarks.cases import Context, conll2000
from benchmarks.rows import OURS
from espalier.engine import warm_start
from espalier.engine.decoding import decode
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.labels.measures import token_error
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.weights.layout import seen_layout
from espalier.tasks.ingest import input_fractions, limited, take
from espalier.tasks.params import LETTER_TEMPLATES, Ingest
from espalier.tasks.sources import cmudict

NEW = 0.2  # share of the training sequences that came later
RHO1, RHO2, TOLERANCE = 0.5, 0.001, 1e-5
WORDS = 12_000  # of the pronouncing dictionary
QUICK_WORDS, QUICK_ITERATIONS = 300, 20
SETTINGS = (("cmudict", "owlqn"), ("cmudict", "pqn"), ("conll2000", "owlqn"))


def rows(context: Context) -> Iterator[dict]:
    """Both starts in one process, one after the other; the setting says how many iterations each took."""
    for corpus, solver in SETTINGS[:1] if context.quick else SETTINGS:
        found = context.job("retrain:both", OURS, f"{corpus} {solver}", 2, corpus=corpus, solver=solver)
        for start in ("cold", "warm") if found else ():
            one = found[start] | {"threads": found["threads"]}
            yield context.row(OURS, f"{corpus} {solver}, {start}, {one.pop('iterations')} iterations", one)


def tokens_of(data: str, corpus: str, quick: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Training and test part."""
    if corpus != "cmudict":
        return corpora.read_tokens(data, corpus, quick)
    count = QUICK_WORDS if quick else WORDS
    blocks, _ = limited(cmudict.read(Path("."), Ingest()).parts["train"], count, 0)
    words = pl.concat(list(blocks()))
    test = input_fractions(words, "test") < 0.1
    return take(words, ~test), take(words, test)


def before(train: pl.DataFrame) -> pl.DataFrame:
    """What was there before: four sequences in five, and none with the label of middling frequency."""
    counted = train["label"].value_counts().sort("count", "label")
    middling = counted["label"][len(counted) // 2]
    has_it = train.group_by("sequence", maintain_order=True).agg((pl.col("label") == middling).any())["label"]
    return take(train, (input_fractions(train, "later") >= NEW) & ~has_it.to_numpy())


def problem_of(corpus: str, tokens: tuple[pl.DataFrame, pl.DataFrame]) -> corpora.Problem:
    return corpora.make_problem(*tokens, LETTER_TEMPLATES) if corpus == "cmudict" else conll2000.problem_of(tokens)


def train(
    problem: corpora.Problem, solver: str, quick: bool, start: CrfLabeller | None = None
) -> tuple[dict, CrfLabeller, list]:
    """(figures, model, curve of seconds and objective) of one training; to match the old weights is part of it."""
    penalty, begin, curve = ElasticNet(RHO1, RHO2), time.perf_counter(), []
    layout = seen_layout(problem.train, len(problem.labels), problem.kinds)
    theta = start and warm_start.starting_point(start, layout, problem.observations, problem.labels)
    result = minimise(
        solver, ChainObjective(problem.train, layout), penalty, theta, QUICK_ITERATIONS if quick else 10_000, TOLERANCE,
        on_iteration=lambda record, _: curve.append((time.perf_counter() - begin, record["objective"])) or False,
    )  # fmt: skip
    seconds = time.perf_counter() - begin
    model = CrfLabeller.compact(layout, result.theta, problem.observations, problem.labels, problem.lines, {})
    error = token_error(problem.test.labels, decode.viterbi(problem.test, layout, result.theta))
    return {"seconds": seconds, "objective": float(result.objective), "error": float(error),
            "active": int(np.count_nonzero(result.theta)), "iterations": result.iterations}, model, curve  # fmt: skip


def both(data: str, quick: bool, corpus: str, solver: str) -> dict:
    """The model of before, which is not timed; then a cold and a warm start on all data."""
    everything, test = tokens_of(data, corpus, quick)
    old, whole = (problem_of(corpus, (part, test)) for part in (before(everything), everything))
    assert len(whole.labels) > len(old.labels)
    layout = seen_layout(whole.train, len(whole.labels), whole.kinds)
    ours.warm_up(whole.train, layout, solver, ElasticNet(RHO1, RHO2))
    _, champion, _ = train(old, solver, quick)
    cold, _, cold_curve = train(whole, solver, quick)
    warm, _, warm_curve = train(whole, solver, quick, champion)
    reference = min(cold["objective"], warm["objective"])
    return {"cold": cold | ours.reached(cold_curve, reference), "warm": warm | ours.reached(warm_curve, reference)}
