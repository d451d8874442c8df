"""The corpora as the engine wants them, by the same path as the pipeline: text, tokens, templates, integers."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from benchmarks.job import Skip
from engine.data import Dataset, make_dataset
from engine.layout import observation_kinds
from engine.lookup import make_vocabulary
from tasks.formats import Reading
from tasks.sources.files import tokens_of
from tasks.store import Shard, arrow_texts, sequence_offsets
from tasks.template import Labels, features, grow_vocabulary
from tasks.templates import encode, parse, resolve

QUICK = 300  # sequences of a corpus in a quick run
FILES = {
    "nettalk": ("nettalk/train.conll.gz", "nettalk/test.conll.gz"),
    "conll2000": ("conll2000/train.txt.gz", "conll2000/test.txt.gz"),
}


class Problem(NamedTuple):
    train: Dataset
    test: Dataset
    test_labels: list[str]
    labels: list[str]
    observations: list[str]
    kinds: np.ndarray
    lines: list[str]


def paths(data: str, corpus: str) -> tuple[Path, Path]:
    """The files of a corpus; Skip if they are not there."""
    found = tuple(Path(data) / name for name in FILES[corpus])
    for path in found:
        if not path.is_file():
            raise Skip(f"no {path}: name the folder of corpora with --data or ESPALIER_DATA")
    return found


def read_part(data: str, corpus: str, part: int, quick: bool) -> pl.DataFrame:
    """Tokens of one file of a corpus; in a quick run of its first sequences."""
    tokens = tokens_of(
        [paths(data, corpus)[part]], Reading(format="conll", unknown=None, set_separator=None), labelled=True
    )
    return tokens.filter(pl.col("sequence") < QUICK) if quick else tokens


def read_tokens(data: str, corpus: str, quick: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tokens of train and test."""
    return read_part(data, corpus, 0, quick), read_part(data, corpus, 1, quick)


def make_problem(train: pl.DataFrame, test: pl.DataFrame, lines: list[str], drop: pl.Expr | None = None) -> Problem:
    """Features of both parts; observations of the training part where `drop` holds get no weight."""
    templates = resolve(parse(lines), [train])
    vocabulary = grow_vocabulary([encode(train, templates)], 1)
    vocabulary = vocabulary if drop is None else vocabulary.filter(~drop)
    labels, texts = Labels.of(train["label"].unique()), make_vocabulary(arrow_texts(vocabulary["observation"]))
    parts = [_dataset(features(tokens, templates, texts, labels)) for tokens in (train, test)]
    observations = vocabulary["observation"].to_list()
    return Problem(*parts, test["label"].to_list(), labels.names, observations, observation_kinds(observations), lines)


def _dataset(shard: Shard) -> Dataset:
    return make_dataset(shard.observations, shard.labels, sequence_offsets(shard.sequence))
