"""Models of several families on the same tokens: hidden Markov models beside chains trained by gradients."""

import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from espalier.engine.data.dataset import Dataset, join, make_dataset
from espalier.engine.decoding import decode
from espalier.engine.families.hmm_options import NEEDS_LABELS, HmmOptions
from espalier.engine.families.hmm_space import completed
from espalier.engine.families.hmm_training import emitting, fit_tables, space_of
from espalier.engine.families.memm import MemmLabeller
from espalier.engine.families.objectives import objective_of
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.text.lookup import make_vocabulary
from espalier.engine.weights.layout import make_layout, observation_kinds
from espalier.tasks.experiments.problems import read
from espalier.tasks.store import Shard, arrow_texts, sequence_offsets
from espalier.tasks.template import Labels, features, grow_vocabulary
from espalier.tasks.templating.expansion import encode, parse, resolve


class Tokens(NamedTuple):
    """Parts as integers, with the vocabulary and labels of the part that they are learned from."""

    train: Dataset
    pool: Dataset  # may be empty; its labels are unknown
    test: Dataset  # a label that training lacks is -1
    known: np.ndarray  # bool [T], test tokens whose text training has
    labels: list[str]
    observations: list[str]
    stream: np.ndarray  # int64, the template of each observation
    lines: list[str]


@lru_cache(maxsize=2)
def _read(path: Path, stamp: tuple[int, int]) -> pl.DataFrame:
    return read(path)


def tokens_of(path: Path) -> pl.DataFrame:
    """Tokens of a file; those of the last ones are kept, for cells that follow each other."""
    return _read(path, (path.stat().st_mtime_ns, path.stat().st_size))


def sequences(tokens: pl.DataFrame, wanted: Sequence[int] | np.ndarray) -> pl.DataFrame:
    """Some sequences, in the order of the file and numbered anew."""
    chosen = tokens.filter(pl.col("sequence").is_in(np.asarray(wanted, np.int32)))
    return chosen.with_columns(pl.col("sequence").rank("dense").cast(pl.Int32) - 1)


def make_tokens(
    train: pl.DataFrame, test: pl.DataFrame, lines: Sequence[str], pool: pl.DataFrame | None = None,
    pool_texts: bool = False,
) -> Tokens:  # fmt: skip
    """Parts as integers; with `pool_texts` what only the pool has is in the vocabulary, too."""
    pool = train.clear() if pool is None else pool
    templates, parts = resolve(parse(list(lines)), [train]), [train, pool] if pool_texts else [train]
    vocabulary = grow_vocabulary([encode(part, templates) for part in parts if len(part)], 1)
    labels, texts = Labels.of(train["label"].unique()), make_vocabulary(arrow_texts(vocabulary["observation"]))
    made = [_dataset(features(part, templates, texts, labels)) for part in (train, pool, test)]
    made[1] = made[1]._replace(labels=np.full(len(made[1].labels), -1, np.int32))
    known = test["x0"].is_in(train["x0"].unique().implode()).to_numpy()
    return Tokens(
        *made, known, labels.names, vocabulary["observation"].to_list(),
        vocabulary["template"].to_numpy().astype(np.int64), list(lines),
    )  # fmt: skip


def _dataset(shard: Shard) -> Dataset:
    return make_dataset(shard.observations, shard.labels, sequence_offsets(shard.sequence))


class FittedLabels(NamedTuple):
    """What a model says of the test part, and how it came to be."""

    labels: np.ndarray  # int32 [T]
    figures: dict  # seconds, iterations, stop_reason, weights


def by_hmm(tokens: Tokens, options: HmmOptions, pool_weight: float = 0.0) -> FittedLabels:
    """A hidden Markov model; with a pool weight, sequences of the pool count so much where the training allows it."""
    data = tokens.train
    if pool_weight > 0 and options.training not in NEEDS_LABELS and len(tokens.pool.weights):
        data = join(data, tokens.pool._replace(weights=pool_weight * tokens.pool.weights))
    begin = time.perf_counter()
    space = space_of(data, len(tokens.labels), tokens.stream, emitting(tokens.lines), options)
    found = fit_tables(space, data, options)
    seconds, theta = time.perf_counter() - begin, space.theta(found.probabilities)
    said = decode.viterbi(completed(tokens.test, space.beside), space.layout, theta)
    return FittedLabels(said, {"seconds": seconds, "iterations": found.trace[-1]["iteration"],
                          "stop_reason": found.stop_reason, "weights": int(space.layout.size)})  # fmt: skip


def by_gradient(
    tokens: Tokens, family: str, penalty: ElasticNet, iterations: int, tolerance: float = 5e-4
) -> FittedLabels:
    """A crf or memm over the pairs that training has seen."""
    begin = time.perf_counter()
    layout = make_layout("seen", tokens.train, len(tokens.labels), observation_kinds(tokens.observations), True)
    objective = objective_of(family, tokens.train, layout)
    solver = "pqn" if penalty.rho1 else "lbfgs"
    result = minimise(solver, objective, penalty, max_iterations=iterations, tolerance=tolerance)
    seconds = time.perf_counter() - begin
    if family == "memm":
        parts = tokens.labels, tokens.lines, tokens.observations, layout, result.theta
        said = MemmLabeller(*parts).best(tokens.test)
    else:
        said = decode.viterbi(tokens.test, layout, result.theta)
    return FittedLabels(said, {"seconds": seconds, "iterations": result.iterations, "stop_reason": result.stop_reason,
                          "weights": int(np.count_nonzero(result.theta))})  # fmt: skip
