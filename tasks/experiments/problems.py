"""Corpora as the engine wants them, by the path of the pipeline (text, tokens, templates, integers); fits on them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from espalier.engine.data.dataset import Dataset, make_dataset, select
from espalier.engine.decoding import decode
from espalier.engine.labels import measures, spans
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.optimise.virtual_weights import minimise_virtual
from espalier.engine.text.lookup import make_vocabulary
from espalier.engine.weights.layout import Layout, observation_kinds
from espalier.tasks.formats import Reading
from espalier.tasks.sources.files import tokens_of
from espalier.tasks.store import Shard, arrow_texts, sequence_offsets
from espalier.tasks.template import Labels, features, grow_vocabulary
from espalier.tasks.templating.expansion import encode, parse, resolve

FILES = {
    "nettalk": ("nettalk/train.conll.gz", "nettalk/test.conll.gz"),
    "conll2000": ("conll2000/train.txt.gz", "conll2000/test.txt.gz"),
    "conll2002-esp": ("conll2002-esp/esp.train.gz", "conll2002-esp/esp.testb.gz"),
}
TINY = 20  # sequences of the warm-up


class Problem(NamedTuple):
    train: Dataset
    test: Dataset
    test_labels: list[str]
    labels: list[str]
    observations: list[str]
    kinds: np.ndarray
    lines: list[str]

    @property
    def virtual_size(self) -> int:
        """Weights of all observations with all labels and pairs of them, without those of the start label."""
        unigram, bigram = np.count_nonzero(self.kinds & 1), np.count_nonzero(self.kinds & 2)
        return int(unigram * len(self.labels) + bigram * len(self.labels) ** 2)


# From files -----------------------------------------------------------------------------------------


def files_of(corpus: str, folder: Path) -> dict[str, Path]:
    """What a cell that reads a corpus depends on."""
    train, test = FILES[corpus]
    return {"train": folder / train, "test": folder / test}


def read(path: Path, limit: int | None = None) -> pl.DataFrame:
    """Tokens of a file in columns; of its first sequences when there is a limit."""
    tokens = tokens_of([path], Reading(format="conll", unknown=None, set_separator=None), labelled=True)
    return tokens if limit is None else tokens.filter(pl.col("sequence") < limit)


def make_problem(train: pl.DataFrame, test: pl.DataFrame, lines: Sequence[str], drop: pl.Expr | None = None) -> Problem:
    """Features of both parts; observations of the training part where `drop` holds get no weight."""
    templates = resolve(parse(list(lines)), [train])
    vocabulary = grow_vocabulary([encode(train, templates)], 1)
    vocabulary = vocabulary if drop is None else vocabulary.filter(~drop)
    labels, texts = Labels.of(train["label"].unique()), make_vocabulary(arrow_texts(vocabulary["observation"]))
    parts = [_dataset(features(tokens, templates, texts, labels)) for tokens in (train, test)]
    observations = vocabulary["observation"].to_list()
    return Problem(
        *parts, test["label"].to_list(), labels.names, observations, observation_kinds(observations), list(lines)
    )


def load(train: Path, test: Path, lines: Sequence[str], limit: int | None = None) -> Problem:
    """The problem of two files; the last one is kept, for cells that follow each other."""
    stamps = tuple((path.stat().st_mtime_ns, path.stat().st_size) for path in (train, test))
    return _load(train, test, tuple(lines), limit, stamps)


@lru_cache(maxsize=1)
def _load(train: Path, test: Path, lines: tuple[str, ...], limit: int | None, stamps: tuple) -> Problem:
    return make_problem(read(train, limit), read(test, limit), lines)


def _dataset(shard: Shard) -> Dataset:
    return make_dataset(shard.observations, shard.labels, sequence_offsets(shard.sequence))


# Fits -----------------------------------------------------------------------------------------------


@dataclass
class Fit:
    theta: np.ndarray
    layout: Layout
    figures: dict  # seconds, iterations, evaluations, objective, stop_reason, active weights by family
    trace: list[dict]


def warm_up(dataset: Dataset, layout: Layout, solver: str | None = None, penalty: ElasticNet | None = None) -> None:
    """Compile, or load from the cache, what a timed run will call: the same calls on a few sequences."""
    tiny = select(dataset, np.arange(min(TINY, len(dataset.weights))))
    objective = ChainObjective(tiny, layout)
    objective.value_and_gradient(np.zeros(layout.size))
    if solver:
        minimise(solver, objective, penalty, max_iterations=2)
    decode.viterbi(tiny, layout, np.zeros(layout.size))


def fit(
    problem: Problem, layout: Layout, solver: str, penalty: ElasticNet, *, iterations: int, tolerance: float = 1e-4,
    theta0: np.ndarray | None = None, watch: Callable[[dict, np.ndarray], bool | None] | None = None,
    objective: ChainObjective | None = None, **options,
) -> Fit:  # fmt: skip
    """Minimise; time runs from before the index is made, or from the solver's start with a ready objective."""
    warm_up(problem.train, layout, solver, penalty)
    begin = time.perf_counter()
    function = ChainObjective(problem.train, layout) if objective is None else objective
    result = minimise(
        solver, function, penalty, theta0, iterations, tolerance, on_iteration=watch, **options,
    )  # fmt: skip
    seconds = time.perf_counter() - begin
    return Fit(result.theta, layout, _figures(result, seconds, layout), result.trace)


def fit_virtual(
    problem: Problem, penalty: ElasticNet, *, sweeps: int, start: bool = True, tolerance: float = 1e-4,
    watch: Callable[[dict, np.ndarray], bool | None] | None = None, solver: str = "sbcd",
) -> Fit:  # fmt: skip
    """Minimise over all pairs of observation and labels, of which those that matter are ever made."""
    tiny = select(problem.train, np.arange(min(TINY, len(problem.train.weights))))
    shape = len(problem.labels), problem.kinds, penalty, solver
    minimise_virtual(tiny, *shape, sweeps=2, start=start)
    begin = time.perf_counter()
    layout, result = minimise_virtual(
        problem.train, *shape, sweeps=sweeps, start=start, tolerance=tolerance, on_iteration=watch
    )
    return Fit(result.theta, layout, _figures(result, time.perf_counter() - begin, layout), result.trace)


def _figures(result, seconds: float, layout: Layout) -> dict:
    return {
        "seconds": seconds, "iterations": result.iterations, "evaluations": result.evaluations,
        "objective": float(result.objective), "stop_reason": result.stop_reason, "weights": int(layout.size),
    } | families(layout, result.theta)  # fmt: skip


def families(layout: Layout, theta: np.ndarray) -> dict:
    """Active weights: all, of single labels, and of pairs, among which are those of the start label."""
    active = np.flatnonzero(theta)
    unigram = int(np.searchsorted(active, layout.bounds()[0]))
    return {"active": len(active), "mu": unigram, "lambda": len(active) - unigram}


def by_template(problem: Problem, layout: Layout, theta: np.ndarray) -> dict[str, int]:
    """Active weights by the beginning of their observations, up to the colon, and family: {"*w mu": 12, ...}."""
    family, observation, _, _ = layout.slots(np.flatnonzero(theta))
    heads = np.array([text.partition(":")[0] for text in problem.observations])
    names = [f"{head} {'mu' if f == 0 else 'lambda'}" for head, f in zip(heads[observation], family, strict=True)]
    found, counts = np.unique(np.array(names, dtype=str), return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


# Measures -------------------------------------------------------------------------------------------


def decoded(problem: Problem, layout: Layout, theta: np.ndarray) -> list[str]:
    return [problem.labels[i] for i in decode.viterbi(problem.test, layout, theta)]


def accuracy(problem: Problem, predicted: list[str]) -> dict:
    """Token error, and precision, recall and F1 in the sense of conlleval where the labels mark entities."""
    gold = problem.test_labels
    found = {"error": measures.token_error(np.array(gold), np.array(predicted))}
    if spans.marks_entities(problem.labels):
        scores = spans.scores(gold, predicted, problem.test.offsets)[0]
        found |= {name: scores[name] for name in ("precision", "recall", "f1")}
    return found


def train_error(problem: Problem, layout: Layout, theta: np.ndarray) -> float:
    return measures.token_error(problem.train.labels, decode.viterbi(problem.train, layout, theta))


def measured(problem: Problem, layout: Layout, theta: np.ndarray, train: bool = True) -> dict:
    """Errors on the test part, and on the training part."""
    found = accuracy(problem, decoded(problem, layout, theta))
    return found | ({"train_error": train_error(problem, layout, theta)} if train else {})
