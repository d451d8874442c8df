"""Plan: features, bytes and seconds of an iteration, before anything is allocated for training."""

import time
from pathlib import Path

import numpy as np

from engine.chain_objective import ChainObjective
from engine.data import Dataset, select
from engine.layout import BIGRAM, UNIGRAM, make_layout, observation_kinds
from tasks import store
from tasks.params import Params, Train

SAMPLE_TOKENS = 20_000  # positions on which one gradient is timed
VECTORS = 24  # of the length of theta that a limited-memory solver keeps at its peak


def count_features(n_labels: int, kinds: np.ndarray, start: bool) -> dict[str, int]:
    """All virtual weights of each family."""
    bigram = int((kinds & BIGRAM > 0).sum())
    return {"unigram": int((kinds & UNIGRAM > 0).sum()) * n_labels, "start": bigram * n_labels * bool(start),
            "bigram": bigram * n_labels**2}  # fmt: skip


def sample(dataset: Dataset, tokens: int = SAMPLE_TOKENS) -> Dataset:
    """Evenly spaced sequences with about `tokens` positions."""
    share = max(1, round(len(dataset.labels) / tokens))
    return select(dataset, np.arange(0, len(dataset.weights), share))


def seconds_per_gradient(dataset: Dataset, layout, options: Train) -> float:
    """Time of one gradient on a sample, carried over to all positions."""
    part = sample(dataset)
    objective, theta = ChainObjective(part, layout, options.sparse), np.zeros(layout.size)
    objective.value_and_gradient(theta)
    begin = time.perf_counter()
    objective.value_and_gradient(theta)
    return (time.perf_counter() - begin) * len(dataset.labels) / len(part.labels)


def bytes_needed(dataset: Dataset, layout_size: int, n_labels: int, n_sets: int) -> dict[str, int]:
    """Peak memory of training by its large parts."""
    tokens, templates = dataset.observations.shape
    return {
        "features": tokens * (templates * 4 * 3 + 12),  # ids, their transposed index, labels
        "posteriors": tokens * n_labels * 8 * 3,  # alpha, v, gamma
        "factors": n_sets * n_labels**2 * 8 * 4,
        "weights": layout_size * 8 * VECTORS,
    }


def main(root: Path, params: Params) -> dict:
    """The plan from the features on disk; `espalier stage template` must have run."""
    from engine.index import pair_sets

    manifest = store.whole_manifest(root)
    observations = store.read_vocabulary(root)["observation"].to_list()
    kinds, n_labels = observation_kinds(observations), len(manifest["labels"])
    dataset = store.read_dataset(root, "train", manifest)
    virtual = count_features(n_labels, kinds, params.train.start)
    layout = make_layout(params.train.pairs, dataset, n_labels, kinds, params.train.start)
    sets = len(pair_sets(sample(dataset), layout).ptr) - 1
    needed = bytes_needed(dataset, layout.size, n_labels, sets)
    return {
        "sequences": len(dataset.weights), "tokens": len(dataset.labels), "labels": n_labels,
        "observations": len(observations), "virtual_features": virtual | {"all": sum(virtual.values())},
        "features": layout.size, "bytes": needed | {"all": sum(needed.values())},
        "seconds_per_iteration": seconds_per_gradient(dataset, layout, params.train),
    }  # fmt: skip
