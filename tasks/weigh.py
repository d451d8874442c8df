"""Weigh: clusters of the unlabelled pool give weights to labelled sequences (THESIS 5.2), and drift figures.

w_i = q(cluster of i) / labelled sequences in that cluster, normalised to mean 1, where q
is the frequency of the cluster in the unlabelled pool.
"""

from pathlib import Path

import numpy as np
import polars as pl

from engine.data import Dataset
from engine.mixture import Mixture, bags, fit_mixture
from engine.templates import columns_of, parse
from tasks import store
from tasks.params import Params, Weigh
from tasks.progress import Progress

TYPICAL, EXAMPLES = 6, 5  # observations and inputs that describe a cluster


def cluster_weights(labelled: np.ndarray, pool: np.ndarray, k: int) -> np.ndarray:
    """Weight of each labelled sequence from the clusters of both sides; 1 when no cluster is shared."""
    here = np.bincount(labelled, minlength=k)
    there = np.bincount(pool, minlength=k) / max(1, len(pool))
    by_cluster = np.divide(there, here, out=np.zeros(k), where=here > 0)
    weights = by_cluster[labelled]
    return weights / weights.mean() if weights.any() else np.ones(len(labelled))


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> float:
    """Jensen-Shannon divergence in bits, between 0 and 1."""
    middle = (p + q) / 2

    def divergence(a):
        part = a > 0
        return float((a[part] * np.log2(a[part] / middle[part])).sum())

    return max(0.0, (divergence(p) + divergence(q)) / 2)


def effective_sample_size(weights: np.ndarray) -> float:
    """(sum w)^2 / sum w^2: how many equal weights would vary as little."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def informative_columns(lines: list[str]) -> list[int]:
    """Columns whose value depends on the input; a constant says nothing about a bag."""
    templates = parse(lines)
    return [place for place, (i, _) in enumerate(columns_of(templates)) if templates[i].macros]


def describe(mixture: Mixture, k: int, vocabulary: pl.DataFrame) -> list[list[str]]:
    """For each cluster the observations that it has much more often than the others."""
    log_phi = mixture.log_probabilities
    overall = np.log(np.exp(log_phi + mixture.log_weights[:, None]).sum(axis=0))
    gain = np.exp(log_phi) * (log_phi - overall)
    names = vocabulary["observation"]
    return [[names[int(i)] for i in np.argsort(-gain[c], kind="stable")[:TYPICAL]] for c in range(k)]


def examples(tokens: pl.DataFrame, assigned: np.ndarray, k: int) -> list[list[str]]:
    """A few inputs of each cluster of the pool, in the order of the pool."""
    chosen = [np.flatnonzero(assigned == c)[:EXAMPLES] for c in range(k)]
    wanted = tokens.filter(pl.col("sequence").is_in(np.concatenate(chosen).astype(np.int32).tolist()))
    join = "" if tokens["x0"].str.len_chars().max() == 1 else " "
    texts = dict(wanted.group_by("sequence").agg(pl.col("x0").str.join(join)).iter_rows())
    return [[texts[int(n)] for n in part] for part in chosen]


def cluster(train: Dataset, pool: Dataset, n_observations: int, options: Weigh):
    """A mixture of the inputs, and the clusters of labelled and unlabelled sequences.

    It is fitted to both sides. Fitted to the pool alone it would know the pool's rare
    observations and not the others', and tell the two apart where nothing has drifted.
    """
    k = min(options.clusters, len(pool.weights))
    ours, theirs = bags(train.observations, train.offsets), bags(pool.observations, pool.offsets)
    both = (np.concatenate([ours[0], ours[0][-1] + theirs[0][1:]]), np.concatenate([ours[1], theirs[1]]),
            np.concatenate([ours[2], theirs[2]]))  # fmt: skip
    mixture = fit_mixture(*both, n_observations, k, options.seed, options.iterations, options.restarts,
                          options.smoothing)  # fmt: skip
    return mixture, mixture.assign(*ours), mixture.assign(*theirs)


def summary(labelled, pool, weights, k: int, typical, inputs) -> dict:
    """What the report and the drift check read."""
    here, there = np.bincount(labelled, minlength=k), np.bincount(pool, minlength=k)
    first = {int(c): float(w) for c, w in zip(labelled, weights, strict=True)}
    rows = [
        {"cluster": c, "labelled": int(here[c]), "pool": int(there[c]), "labelled_share": float(here[c] / here.sum()),
         "pool_share": float(there[c] / there.sum()), "weight": first.get(c), "typical": typical[c],
         "examples": inputs[c]}
        for c in range(k)
    ]  # fmt: skip
    return {"clusters": rows, "jensen_shannon": jensen_shannon(here / here.sum(), there / there.sum()),
            "pool_without_label_share": float(there[here == 0].sum() / there.sum())}  # fmt: skip


def main(root: Path, params: Params, progress: Progress) -> dict:
    progress.begin(2, "step")
    options, manifest = params.weigh, store.whole_manifest(root)
    train = store.read_dataset(root, "train", manifest)
    size = len(train.weights)
    weights, labelled = np.ones(size), np.zeros(size, np.int32)
    found = {"clusters": [], "jensen_shannon": None, "pool_without_label_share": None}
    if options.clusters and manifest["splits"]["unlabelled"]["tokens"]:
        pool, columns = store.read_dataset(root, "unlabelled", manifest), informative_columns(manifest["templates"])
        narrow = [data._replace(observations=data.observations[:, columns]) for data in (train, pool)]
        mixture, labelled, assigned = cluster(*narrow, manifest["observations"], options)
        k = len(mixture.log_weights)
        progress.step(note=f"{k} clusters")
        if options.method == "cluster":
            weights = cluster_weights(labelled, assigned, k)
        typical = describe(mixture, k, store.read_vocabulary(root))
        inputs = examples(store.read_tokens(root, "unlabelled")[0], assigned, k)
        found = summary(labelled, assigned, weights, k, typical, inputs)
    figures = {"method": options.method, "sequences": size, "effective_sample_size": effective_sample_size(weights)}
    table = pl.DataFrame({"sequence": np.arange(size, dtype=np.int32), "cluster": labelled, "weight": weights})
    store.write_arrow(root / store.WEIGHTS, table)
    store.write_json(root / store.CLUSTERS, found | figures)
    drift = "no unlabelled pool" if found["jensen_shannon"] is None else f"drift {found['jensen_shannon']:.4f} bits"
    progress.end(f"{drift}, effective sample size {figures['effective_sample_size']:,.0f} of {size:,}")
    return figures | {"jensen_shannon": found["jensen_shannon"]}
