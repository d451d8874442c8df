"""Weigh: weights of labelled sequences from the marginal of their inputs (THESIS 5.2), and drift of that marginal.

cluster    w_i = q(cluster of i) / labelled sequences in that cluster, q its frequency in the unlabelled pool; a
           cluster without a labelled sequence is weighed together with the one most like it
covariate  w_i = q1(x_i) / q0(x_i) (Shimodaira), pool over labelled data, each a mixture of the same clusters
none       w_i = 1
The mean of the weights is 1.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from espalier.engine.data.bags import Bags, join_bags, select_bags
from espalier.engine.data.dataset import Dataset
from espalier.engine.runtime.vectors import exp, log
from espalier.engine.semisup.mixture import (
    Groups,
    Mixture,
    bags,
    best_number,
    fit_groups,
    group_bounds,
    held_out,
    in_memory,
    without_empty,
)
from espalier.engine.semisup.weighting import (
    Drift,
    back_off,
    cluster_weights,
    drift,
    mean_one,
    mixture_weights,
    proportions,
    refuse_few_effective,
)
from espalier.engine.text.templates import columns_of, parse
from espalier.tasks import store
from espalier.tasks.params import Params, Weigh
from espalier.tasks.progress import Progress

TYPICAL, EXAMPLES = 6, 5  # observations and inputs that describe a cluster


def informative_columns(lines: list[str]) -> list[int]:
    """Columns whose value depends on the input; a constant says nothing about a bag."""
    templates = parse(lines)
    return [place for place, (i, _) in enumerate(columns_of(templates)) if templates[i].macros]


def describe(mixture: Mixture, k: int, vocabulary: pl.DataFrame) -> list[list[str]]:
    """For each cluster the observations that it has much more often than the others."""
    log_phi = mixture.log_probabilities
    overall = log(exp(log_phi + mixture.log_weights[:, None]).sum(axis=0))
    gain = exp(log_phi) * (log_phi - overall)
    names = vocabulary["observation"]
    return [[names[int(i)] for i in np.argsort(-gain[c], kind="stable")[:TYPICAL]] for c in range(k)]


def examples(tokens: pl.DataFrame, chosen: list[np.ndarray]) -> list[list[str]]:
    """The inputs `chosen` of each cluster as people write them."""
    wanted = tokens.filter(pl.col("sequence").is_in(np.concatenate(chosen).astype(np.int32).tolist()))
    join = "" if tokens["x0"].str.len_chars().max() == 1 else " "
    texts = dict(wanted.group_by("sequence").agg(pl.col("x0").str.join(join)).iter_rows())
    return [[texts[int(n)] for n in part] for part in chosen]


@dataclass(frozen=True)
class Clustering:
    """A mixture of the inputs of both sides, and the cluster of each."""

    mixture: Mixture
    groups: Groups  # bags of the labelled sequences, then of the unlabelled pool
    labelled: np.ndarray  # int32 [N]
    pool: np.ndarray  # int32
    held_out: dict[int, float]  # number of clusters -> held-out log-likelihood a sequence, where it was chosen

    @property
    def k(self) -> int:
        return len(self.mixture.log_weights)


def cluster(train: Dataset, pool: Dataset, n_observations: int, options: Weigh) -> Clustering:
    """Fitted to both sides; clusters that no sequence falls into are left out.

    Fitted to the pool alone it would know the pool's rare observations and not the others', and tell the two apart
    where nothing has drifted.
    """
    ours, theirs = (Bags(*bags(side.observations, side.offsets), n_observations) for side in (train, pool))
    both, halves = join_bags(ours, theirs), None
    if options.choose_clusters:
        halves = [in_memory(select_bags(both, rows)) for rows in held_out(both.size, options.seed)]
    return cluster_groups(in_memory(both), halves, ours.size, options)


def cluster_groups(groups: Groups, halves, n_labelled: int, options: Weigh) -> Clustering:
    """The same for bags wherever they lie; `halves` are judges and learners of the number of clusters, or None."""
    k, tried = min(options.clusters, groups.size - n_labelled), {}
    settings = {name: getattr(options, name) for name in ("iterations", "restarts", "smoothing")}
    if halves is not None:
        k, tried = best_number(*halves, k, options.seed, **settings)
    mixture = fit_groups(groups, k, options.seed, **settings)
    found = groups.rows("clusters", mixture.log_weights, mixture.log_probabilities)
    fewer = without_empty(mixture, found)
    if fewer is not mixture:
        found = groups.rows("clusters", fewer.log_weights, fewer.log_probabilities)
    return Clustering(fewer, groups, found[:n_labelled], found[n_labelled:], tried)


def weights_of(found: Clustering, method: str) -> tuple[np.ndarray, np.ndarray]:
    """(weight of each labelled sequence, group of each cluster that is weighed as one)."""
    groups = np.arange(found.k, dtype=np.int32)
    if method == "cluster":
        groups = back_off(found.labelled, found.pool, exp(found.mixture.log_probabilities))
        return cluster_weights(groups[found.labelled], groups[found.pool], found.k), groups
    if method == "covariate":
        shares = exp(found.mixture.log_weights)
        both = found.groups.rows("posteriors", found.mixture.log_weights, found.mixture.log_probabilities)
        ours, theirs = both[: len(found.labelled)], both[len(found.labelled) :]
        return mean_one(mixture_weights(ours, shares, proportions(theirs, shares), proportions(ours, shares))), groups
    return np.ones(len(found.labelled)), groups


def common(values: np.ndarray) -> float | None:
    """What all values are, or else their mean; None when there is none."""
    if not len(values):
        return None
    return float(values[0] if (values == values[0]).all() else values.mean())


def summary(labelled, weights, groups, moved: Drift, typical, inputs, limit: float | None) -> dict:
    """What the report and the drift check read."""
    here, there = moved.before, moved.after
    rows = [
        {"cluster": c, "group": int(groups[c]), "labelled": int(here[c]), "pool": int(there[c]),
         "labelled_share": float(here[c] / here.sum()), "pool_share": float(there[c] / there.sum()),
         "divergence": float(moved.parts[c]), "weight": common(weights[labelled == c]), "typical": typical[c],
         "examples": inputs[c]}
        for c in range(len(groups))
    ]  # fmt: skip
    return {"clusters": rows, "jensen_shannon": moved.total, "drift_limit": limit,
            "drifted": limit is not None and moved.total > limit,
            "pool_without_label_share": float(there[here == 0].sum() / there.sum())}  # fmt: skip


@contextmanager
def clustering(root: Path, params: Params, manifest: dict, progress: Progress) -> Iterator[Clustering]:
    """The clusters of the labelled sequences and the pool: on the workers of `compute.cluster` where these are many."""
    options, columns = params.weigh, informative_columns(manifest["templates"])
    sides = [store.Shards(root, name, manifest) for name in ("train", "unlabelled")]
    sizes = [manifest["splits"][side.split]["sequences"] for side in sides]
    if params.compute.cluster and len(group_bounds(sum(sizes))) > 1:
        from espalier.tasks.cluster.clustering import bags_of

        with bags_of(params.compute.cluster, root, sides, columns, options.seed, options.choose_clusters,
                     params.compute.threads, progress.say) as (groups, halves):  # fmt: skip
            yield cluster_groups(groups, halves, sizes[0], options)
        return
    whole = [side.read_all() for side in sides]
    narrow = [data._replace(observations=data.observations[:, columns]) for data in whole]
    yield cluster(*narrow, manifest["observations"], options)


def main(root: Path, params: Params, progress: Progress) -> dict:
    progress.begin(2, "step")
    options, manifest = params.weigh, store.read_manifest(root)
    size = len(store.Shards(root, "train", manifest).offsets()) - 1
    weights, labelled = np.ones(size), np.zeros(size, np.int32)
    found = {"clusters": [], "jensen_shannon": None, "drift_limit": options.drift_limit, "drifted": None,
             "pool_without_label_share": None}  # fmt: skip
    if options.clusters and manifest["splits"]["unlabelled"]["tokens"]:
        with clustering(root, params, manifest, progress) as made:
            progress.step(note=f"{made.k} clusters")
            labelled, moved = made.labelled, drift(made.labelled, made.pool, made.k, EXAMPLES)
            weights, groups = weights_of(made, options.method)
        typical = describe(made.mixture, made.k, store.read_vocabulary(root))
        inputs = examples(store.read_tokens(root, "unlabelled")[0], moved.examples)
        found = summary(labelled, weights, groups, moved, typical, inputs, options.drift_limit)
        if made.held_out:
            found["held_out"] = [{"clusters": k, "log_likelihood": value} for k, value in made.held_out.items()]
    elif options.method != "none":
        progress.say(
            f"every sequence weighs 1: {no_clusters(options)}, and weigh.method {options.method} has nothing to go by"
        )
    effective = refuse_few_effective(weights, options.least_effective)
    figures = {"method": options.method, "sequences": size, "effective_sample_size": effective}
    table = pl.DataFrame({"sequence": np.arange(size, dtype=np.int32), "cluster": labelled, "weight": weights})
    store.write_arrow(root / store.WEIGHTS, table)
    store.write_json(root / store.CLUSTERS, found | figures)
    progress.end(f"{note(found)}, effective sample size {effective:,.0f} of {size:,}")
    return figures | {"jensen_shannon": found["jensen_shannon"], "drifted": found["drifted"]}


def no_clusters(options: Weigh) -> str:
    """Why there are no clusters to weigh by."""
    if not options.clusters:
        return "weigh.clusters is 0"
    return "there is no unlabelled pool (ingest.unlabelled_path, ingest.unlabelled_share)"


def note(found: dict) -> str:
    """The drift in a few words."""
    if found["jensen_shannon"] is None:
        return "no unlabelled pool compared"
    beyond = f", above the limit of {found['drift_limit']:g}" if found["drifted"] else ""
    return f"drift {found['jensen_shannon']:.4f} bits{beyond}"
