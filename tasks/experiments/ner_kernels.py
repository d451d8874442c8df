"""Kernel machines by folds of Spanish named entities (LABELSEQ tables 4.1 and 5.1): cells of `ner-kernels`."""

import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from espalier.engine.data.dataset import Dataset
from espalier.engine.families import gp, hmm, hmsvm
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.families.gp_options import GpOptions
from espalier.engine.families.hmsvm_options import HmsvmOptions
from espalier.engine.families.labeller import Labeller
from espalier.engine.families.objectives import objective_of
from espalier.engine.families.perceptron import DualPerceptronLabeller
from espalier.engine.families.perceptron_dual import DualTraining, chain_of
from espalier.engine.families.perceptron_options import PerceptronOptions
from espalier.engine.labels import spans
from espalier.engine.labels.scheme import transitions_of
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.similarity.rows import distinct_rows
from espalier.engine.text.pattern_sets import PREFIX, shipped_lines
from espalier.engine.weights.layout import UNIGRAM, make_layout, observation_kinds
from espalier.tasks.experiments.family_fits import Tokens, make_tokens, sequences
from espalier.tasks.experiments.ner_losses import SCHEME, prepared, stamps
from espalier.tasks.experiments.problems import read
from espalier.tasks.templating.expansion import parse

PATTERNS = "S3"
TOLERANCE = 1e-3  # how much the last third of a CRF's iterations lowers its objective at the end
NAMES_OF, SHORTER_OF = (60, 3), 38  # fewer tokens, labels of names; fewer tokens


class Fold(NamedTuple):
    """A part of some sentences to test, the others to learn from, and development data."""

    tokens: Tokens  # the pool is the development data
    test_labels: list[str]
    dev_labels: list[str]


# The data ---------------------------------------------------------------------------------------------


def sentences_of(task: str, tokens: pl.DataFrame) -> np.ndarray:
    """The sentences that a table of the source could be of: short with names, or of 21 words on average."""
    lengths = tokens.group_by("sequence", maintain_order=True).agg(
        pl.len(), (pl.col("label") != "O").sum().alias("named")
    )  # fmt: skip
    longest, names = NAMES_OF if task == "names" else (SHORTER_OF, 0)
    fit = lengths.filter((pl.col("len") < longest) & (pl.col("named") >= names))
    return fit["sequence"].to_numpy()


def folds_of(task: str, count: int, folds: int, tokens: pl.DataFrame) -> list[np.ndarray]:
    """Numbers of sentences by fold: drawn without repetition from those of the task, by the order of the draw."""
    drawn = np.random.default_rng(0).permutation(sentences_of(task, tokens))[:count]
    return [np.sort(drawn[fold::folds]) for fold in range(folds)]


@lru_cache(maxsize=1)
def _fold(task: str, count: int, folds: int, fold: int, limit: int | None, files: tuple[Path, ...], stamps) -> Fold:
    train, dev = prepared(read(files[0], limit)), read(files[1], limit)
    parts = folds_of(task, count, folds, train)
    rest = np.concatenate([part for k, part in enumerate(parts) if k != fold])
    test = sequences(train, parts[fold])
    lines = [template.line for template in parse(shipped_lines(PREFIX + PATTERNS))]
    tokens = make_tokens(sequences(train, rest), test, lines, dev)
    return Fold(tokens, test["label"].to_list(), dev["label"].to_list())


# Methods ----------------------------------------------------------------------------------------------


class Candidate(NamedTuple):
    """A model, or one of several of which the development data choose."""

    model: Labeller
    figures: dict


def by_counts(fold: Fold, options: dict) -> Iterator[Candidate]:
    t = fold.tokens
    yield Candidate(hmm.fit(t.train, t.observations, t.stream, t.labels, t.lines, {}), {})


def by_gradient(fold: Fold, options: dict) -> Iterator[Candidate]:
    """A CRF by some L2 penalties, from the largest to the smallest, each from the one before."""
    t, theta = fold.tokens, None
    layout = make_layout("seen", t.train, len(t.labels), observation_kinds(t.observations))
    objective = objective_of("crf", t.train, layout, transitions=transitions_of(t.labels, SCHEME))
    for rho2 in options["penalties"]:
        found = minimise("lbfgs", objective, ElasticNet(0.0, rho2), theta, options["iterations"], TOLERANCE)
        theta = found.theta
        model = CrfLabeller.compact(layout, theta, t.observations, t.labels, [], {})
        yield Candidate(model, {"rho2": rho2, "iterations": found.iterations, "stop_reason": found.stop_reason})


def by_mistakes(fold: Fold, options: dict) -> Iterator[Candidate]:
    """A perceptron in its dual form after each epoch."""
    t, settings = fold.tokens, PerceptronOptions(**options)
    chain = chain_of(t.train, len(t.labels), observation_kinds(t.observations), settings, "seen", True)
    training = DualTraining(chain, settings)
    for epoch in range(1, settings.epochs + 1):
        met = training.epoch()
        if met["mistakes"] == 0:
            training.pass_over()
        theta = training.model()
        model = DualPerceptronLabeller.of_theta(chain, theta, t.observations, t.labels, [], {}, settings)
        yield Candidate(model, supports(model, chain.rows.count) | {"epoch": epoch, "mistakes": int(met["mistakes"])})
        if met["mistakes"] == 0:
            return


def by_rows(family, make: Callable) -> Callable[[Fold, dict], Iterator[Candidate]]:
    """A Gaussian process or a support vector machine."""

    def fit(fold: Fold, options: dict) -> Iterator[Candidate]:
        t, settings = fold.tokens, make(**options)
        kinds = observation_kinds(t.observations)
        model = family.fit(t.train, t.observations, kinds, t.labels, [], {}, settings)
        rows = distinct_rows(t.train.observations, kinds & UNIGRAM > 0).rows.count
        ended = {name: model.info[name] for name in ("iterations", "stop_reason")}
        yield Candidate(model, supports(model, rows) | ended)

    return fit


def supports(model, rows: int) -> dict:
    """How many rows support how many labels, of all rows."""
    return {"rows": rows, "supporting": model.support.rows.count, "supports": len(model.support.row)}


METHODS = {
    "hmm": by_counts, "crf": by_gradient, "perceptron": by_mistakes, "gp": by_rows(gp, GpOptions),
    "hmsvm": by_rows(hmsvm, HmsvmOptions),
}  # fmt: skip


# A cell -----------------------------------------------------------------------------------------------


def counts_of(model: Labeller, fold: Fold, part: Dataset, gold: list[str]) -> dict:
    """Entities and labels of a part that are right, of the best labelling within the scheme."""
    t = fold.tokens
    known = model.renumbered(part, t.observations)
    said = [t.labels[y] for y in model.best(known, transitions=transitions_of(t.labels, SCHEME))]
    counts = spans.scores(gold, said, part.offsets)[0]
    wrong = sum(a != b for a, b in zip(gold, said, strict=True))
    return {name: counts[name] for name in ("gold", "predicted", "correct", "f1")} | {"wrong": wrong, "of": len(gold)}


def fitted(
    task: str, count: int, folds: int, fold: int, method: str, options: dict, limit: int | None, train: Path, dev: Path
) -> dict:
    """The counts of one fold by the model that the development data choose, where there are several."""
    files = (train, dev)
    data = _fold(task, count, folds, fold, limit, files, stamps(files))
    best, seconds, begin = None, 0.0, time.process_time()
    for model, figures in METHODS[method](data, options):
        seconds += time.process_time() - begin
        on_dev = counts_of(model, data, data.tokens.pool, data.dev_labels)["f1"]
        if best is None or on_dev > best["dev_f1"]:
            best = {"dev_f1": on_dev} | figures | counts_of(model, data, data.tokens.test, data.test_labels)
        begin = time.process_time()
    sizes = {"sequences": len(data.tokens.train.weights), "tokens": len(data.tokens.train.labels)}
    return best | sizes | {"seconds": seconds}
