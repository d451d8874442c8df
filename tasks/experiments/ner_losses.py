"""Losses on Spanish named entities with the features S1 to S3 (LABELSEQ tables 2.2 and 3.1): cells of `ner-losses`."""

import time
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from espalier.engine.data.dataset import Dataset, make_dataset
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.families.labeller import Labeller
from espalier.engine.families.objectives import objective_of
from espalier.engine.labels import spans
from espalier.engine.labels.scheme import transitions_of
from espalier.engine.losses.loss_table import LOG
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.text.lookup import make_vocabulary
from espalier.engine.text.pattern_sets import PREFIX, shipped_lines
from espalier.engine.weights.layout import make_layout, observation_kinds
from espalier.tasks.experiments.problems import read
from espalier.tasks.store import Shard, arrow_texts, sequence_offsets
from espalier.tasks.template import Labels, features, grow_vocabulary
from espalier.tasks.templating.expansion import encode, parse, resolve

SCHEME = "iob2"
TOLERANCE = 1e-3  # how much the last third of the iterations lowers the objective at the end
LONGEST, PIECE = 1_000, 36  # a sentence with more tokens is cut into pieces of about so many, as the source does


class Entities(NamedTuple):
    """The three parts as integers, and the labels of what is judged as texts."""

    train: Dataset
    dev: Dataset
    test: Dataset
    dev_labels: list[str]
    test_labels: list[str]
    labels: list[str]
    observations: list[str]


# The data ---------------------------------------------------------------------------------------------


def prepared(tokens: pl.DataFrame) -> pl.DataFrame:
    """Training data as the source has them: no sentence of one token, and the longest cut between names."""
    lengths = tokens["sequence"].value_counts()
    single = lengths.filter(pl.col("count") == 1)["sequence"]
    long = set(lengths.filter(pl.col("count") > LONGEST)["sequence"].to_list())
    kept = tokens.filter(~pl.col("sequence").is_in(single.implode()))
    sequence, labels = kept["sequence"].to_list(), kept["label"].to_list()
    numbers, begun = np.empty(len(sequence), np.int32), 0
    for t, (own, label) in enumerate(zip(sequence, labels, strict=True)):
        full = own in long and t - begun >= PIECE and not label.startswith("I-")
        new = t == 0 or own != sequence[t - 1] or full
        begun = t if new else begun
        numbers[t] = new
    return kept.with_columns(pl.Series("sequence", np.cumsum(numbers, dtype=np.int32) - 1))


def entities_of(patterns: str, limit: int | None, train: Path, dev: Path, test: Path) -> Entities:
    """The three files by some templates that come along; the last ones are kept, for cells that follow each other."""
    files = (train, dev, test)
    return _entities(patterns, limit, files, stamps(files))


def stamps(files: tuple[Path, ...]) -> tuple:
    """What tells files apart from others that had their names before."""
    return tuple((path.stat().st_mtime_ns, path.stat().st_size) for path in files)


@lru_cache(maxsize=1)
def _entities(patterns: str, limit: int | None, files: tuple[Path, ...], stamps: tuple) -> Entities:
    train, dev, test = (read(path, limit) for path in files)
    train = prepared(train)
    templates = resolve(parse(shipped_lines(PREFIX + patterns)), [train])
    vocabulary = grow_vocabulary([encode(train, templates)], 1)
    labels, texts = Labels.of(train["label"].unique()), make_vocabulary(arrow_texts(vocabulary["observation"]))
    parts = [_dataset(features(part, templates, texts, labels)) for part in (train, dev, test)]
    gold = dev["label"].to_list(), test["label"].to_list()
    return Entities(*parts, *gold, labels.names, vocabulary["observation"].to_list())


def _dataset(shard: Shard) -> Dataset:
    return make_dataset(shard.observations, shard.labels, sequence_offsets(shard.sequence))


# Fits -------------------------------------------------------------------------------------------------


def scores(data: Entities, model: Labeller, decoder: str) -> dict:
    """F1 on the development data; F1, precision and recall on the test data."""
    found = {}
    for part, gold, prefix in ((data.dev, data.dev_labels, "dev_"), (data.test, data.test_labels, "")):
        said = [data.labels[y] for y in model.decoded(part, decoder)]
        judged = spans.scores(gold, said, part.offsets)[0]
        found |= {prefix + name: judged[name] for name in ("precision", "recall", "f1")}
    return found


class Optimum(NamedTuple):
    """Where a path begins."""

    theta: np.ndarray
    objective: float
    iterations: int
    stop_reason: str
    seconds: float


def _problem(patterns: str, scheme: bool, limit: int | None, files: tuple[Path, ...]):
    """The data, the weights and the transitions that are possible."""
    data = entities_of(patterns, limit, *files)
    layout = make_layout("seen", data.train, len(data.labels), observation_kinds(data.observations))
    return data, layout, transitions_of(data.labels, SCHEME) if scheme else None


@lru_cache(maxsize=1)
def log_optimum(
    patterns: str, rho2: float, scheme: bool, iterations: int, limit: int | None, files: tuple[Path, ...], stamps: tuple
) -> Optimum:
    """The log loss at one penalty; the last one is kept, since the paths of all losses begin there."""
    begin = time.perf_counter()
    data, layout, transitions = _problem(patterns, scheme, limit, files)
    objective = objective_of("crf", data.train, layout, transitions=transitions)
    found = minimise("lbfgs", objective, ElasticNet(0.0, rho2), None, iterations, TOLERANCE)
    return Optimum(found.theta, found.objective, found.iterations, found.stop_reason, time.perf_counter() - begin)


def path(
    patterns: str, loss: str, size: float, pi: float, penalties: list[float], scheme: bool, iterations: int,
    limit: int | None, train: Path, dev: Path, test: Path,
) -> dict:  # fmt: skip
    """Models of one loss from the largest L2 penalty to the smallest, each from the one before.

    Other losses than the log loss begin at that one, with the penalty that is as large beside it: the marginal loss is
    not convex, and the exponential one gets sooner to its minimum. `size` is how large the loss is beside the log loss.
    """
    files = train, dev, test
    data, layout, transitions = _problem(patterns, scheme, limit, files)
    objective = objective_of("crf", data.train, layout, "auto", loss, pi, transitions)
    alike = penalties[0] if loss == LOG else float(f"{penalties[0] / size:.2g}")  # penalties are rounded
    begun, rows = log_optimum(patterns, alike, scheme, iterations, limit, files, stamps(files)), []
    theta = begun.theta
    for rho2 in penalties:
        begin = time.perf_counter()
        known = begun if loss == LOG and not rows else None
        found = known or minimise("lbfgs", objective, ElasticNet(0.0, rho2), theta, iterations, TOLERANCE)
        theta, seconds = found.theta, known.seconds if known else time.perf_counter() - begin
        model = CrfLabeller(data.labels, [], data.observations, layout, theta, {"scheme": SCHEME})
        judged = {name: scores(data, model, name) for name in ("viterbi", "posterior")}
        rows.append({"rho2": rho2, "objective": float(found.objective), "iterations": found.iterations,
                     "stop_reason": found.stop_reason, "seconds": seconds} | judged)  # fmt: skip
    sizes = {"sequences": len(data.train.weights), "tokens": len(data.train.labels), "weights": int(layout.size)}
    return {"rows": rows} | sizes
