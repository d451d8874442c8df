"""Sequences with weights from clusters (the question that THESIS 5.3 leaves open), on letters and phonemes.

Labelled words are drawn so that short ones are likelier, from a dictionary; the pool without labels holds all words,
and so does the test. The marginal of the sample is then wrong, and weights may set it right: those of clusters of
the pool, or, as far as weights can go at all, those of the length that the bias was made of.
"""

from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

from espalier.engine.data.dataset import Dataset, make_dataset
from espalier.engine.decoding import decode
from espalier.engine.labels.measures import token_error
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.semisup.weighting import cluster_weights, effective_sample_size
from espalier.engine.text.lookup import make_vocabulary
from espalier.engine.weights.layout import make_layout, observation_kinds
from espalier.tasks.ingest import limited, take
from espalier.tasks.params import Ingest, Weigh
from espalier.tasks.sources import cmudict
from espalier.tasks.store import Shard, arrow_texts, sequence_offsets
from espalier.tasks.template import Labels, features, grow_vocabulary
from espalier.tasks.templating.expansion import encode, parse, resolve
from espalier.tasks.weigh import Clustering, cluster, informative_columns, weights_of

TEMPLATES = ["U", "*0:%x[0,0]", "U-1:%x[-1,0]/%x[0,0]", "U+1:%x[0,0]/%x[1,0]", "U=1:%x[-1,0]/%x[0,0]/%x[1,0]", "B"]
RHO1, RHO2, ITERATIONS, TOLERANCE = 0.2, 0.001, 100, 1e-3
METHODS = ("unweighted", "cluster", "covariate", "length", "unbiased")


@cache
def words(limit: int, seed: int) -> pl.DataFrame:
    """Words of the dictionary, aligned, as tokens."""
    return pl.concat(limited(cmudict.read(Path("."), Ingest()).parts["train"], limit, seed)[0]())


def lengths(tokens: pl.DataFrame) -> np.ndarray:
    return np.diff(sequence_offsets(tokens["sequence"].to_numpy()))


def biased(random: np.random.Generator, length: np.ndarray, candidates: np.ndarray, n: int, bias: float) -> np.ndarray:
    """n of the candidates, drawn without replacement with probability proportional to exp(-bias * length)."""
    chance = np.exp(-bias * length[candidates])
    return np.sort(random.choice(candidates, n, replace=False, p=chance / chance.sum()))


def chosen(count: int, members: np.ndarray) -> np.ndarray:
    mask = np.zeros(count, bool)
    mask[members] = True
    return mask


def dataset(shard: Shard) -> Dataset:
    return make_dataset(shard.observations, shard.labels, sequence_offsets(shard.sequence))


class SequenceProblem:
    """Train, test and pool as integers, with the vocabulary and labels of train."""

    def __init__(self, train: pl.DataFrame, test: pl.DataFrame, pool: pl.DataFrame):
        templates = resolve(parse(TEMPLATES), [train])
        vocabulary = grow_vocabulary([encode(train, templates)], 1)
        labels, texts = Labels.of(train["label"].unique()), make_vocabulary(arrow_texts(vocabulary["observation"]))
        self.labels, self.observations = labels.names, vocabulary["observation"].to_list()
        self.train, self.test, self.pool = (
            dataset(features(tokens, templates, texts, labels)) for tokens in (train, test, pool)
        )

    def clusters(self, k: int, seed: int) -> Clustering:
        """Clusters of labelled and unlabelled words, as the stage `weigh` finds them."""
        columns = informative_columns(TEMPLATES)
        narrow = [data._replace(observations=data.observations[:, columns]) for data in (self.train, self.pool)]
        return cluster(*narrow, len(self.observations), Weigh(clusters=k, seed=seed))

    def measure(self, weights: np.ndarray) -> dict:
        """Train with these weights; errors on the test. A phoneme that the sample lacks counts as wrong."""
        data = self.train._replace(weights=weights)
        layout = make_layout("seen", data, len(self.labels), observation_kinds(self.observations), True)
        objective = ChainObjective(data, layout, "auto")
        theta = minimise("owlqn", objective, ElasticNet(RHO1, RHO2), None, ITERATIONS, TOLERANCE).theta
        known = np.logical_and.reduceat(self.test.labels >= 0, self.test.offsets[:-1])
        said = decode.viterbi(self.test, layout, theta)
        wrong = said != self.test.labels
        log_p = decode.sequence_log_probability(
            self.test._replace(labels=np.maximum(self.test.labels, 0)), layout, theta
        )
        return {
            "phoneme_error": token_error(self.test.labels, said),
            "word_error": float(np.logical_or.reduceat(wrong, self.test.offsets[:-1]).mean()),
            "log_loss": float(-log_p[known].mean()), "words_with_unknown_phonemes": float(1 - known.mean()),
        }  # fmt: skip


def replicate(tokens: pl.DataFrame, n: int, test_size: int, bias: float, k: int, seed: list[int]) -> dict:
    """One biased sample and one without bias; each way of weighting, measured on the same test."""
    random, length = np.random.default_rng(seed), lengths(tokens)
    shuffled = random.permutation(len(length))
    test, others = shuffled[:test_size], shuffled[test_size:]
    sample, fair = biased(random, length, others, n, bias), biased(random, length, others, n, 0.0)
    parts = {name: take(tokens, chosen(len(length), ids)) for name, ids in
             {"test": test, "pool": others, "sample": sample, "fair": fair}.items()}  # fmt: skip
    problem, even = (SequenceProblem(parts[name], parts["test"], parts["pool"]) for name in ("sample", "fair"))
    found = problem.clusters(k, int(seed[-1]))
    weights = {
        "unweighted": np.ones(n), "cluster": weights_of(found, "cluster")[0],
        "covariate": weights_of(found, "covariate")[0],
        "length": cluster_weights(length[sample], length[np.sort(others)], int(length.max()) + 1),
    }  # fmt: skip
    measured = {
        name: problem.measure(w) | {"effective_sample_size": effective_sample_size(w)} for name, w in weights.items()
    }
    measured["unbiased"] = even.measure(np.ones(n)) | {"effective_sample_size": float(n)}
    return {"methods": measured, "mean_length_sample": float(length[sample].mean()),
            "mean_length_all": float(length[others].mean())}  # fmt: skip


def compared(limit: int, n: int, test_size: int, bias: float, k: int, first: int, replications: int, seed: int) -> dict:
    """The cell of a block of replications."""
    tokens = words(limit, seed)
    return {"replications": [replicate(tokens, n, test_size, bias, k, [seed, n, r]) for r in
                             range(first, first + replications)]}  # fmt: skip
