"""The plan: features, memory and time of an iteration, before anything is allocated for training.

Weights are counted over the mapped shards, one after the other. What allocates says what it takes: an objective over
a sample, carried over to all positions, the solver, a part of the data. The plan asks and adds up.
"""

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from espalier.engine.data.dataset import Dataset, select
from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective, Extent
from espalier.engine.optimise.solver_table import SOLVERS, fitting
from espalier.engine.parts.sharded_objective import BLOCK_TOKENS, cover, cut, moved_bytes, part_bytes
from espalier.engine.weights.layout import BIGRAM, TRIGRAM, UNIGRAM, make_layout
from espalier.engine.weights.seen_counts import SeenCounts
from espalier.engine.weights.stop_twins import with_twins
from espalier.engine.weights.sublayout import present
from espalier.tasks import store
from espalier.tasks.params import Params
from espalier.tasks.training import trainer_of
from espalier.tasks.training.job import Job, Options

SAMPLE_TOKENS = 20_000  # positions on which one gradient is timed
REMEDY = (
    "raise template.min_count, use fewer or narrower templates, set crf.pairs: seen, "
    "take fewer sequences (ingest.limit)"
)
PROCESS = 300 << 20  # bytes of an interpreter with its packages and compiled kernels


def count_features(n_labels: int, kinds: np.ndarray, start: bool) -> dict[str, int]:
    """All virtual weights of each family."""
    bigram, trigram = int((kinds & BIGRAM > 0).sum()), int((kinds & TRIGRAM > 0).sum())
    of_triples = {"trigram": trigram * n_labels**3} if trigram else {}
    return {"unigram": int((kinds & UNIGRAM > 0).sum()) * n_labels, "start": bigram * n_labels * bool(start),
            "bigram": bigram * n_labels**2} | of_triples  # fmt: skip


def sample(shards: list[Dataset], tokens: int = SAMPLE_TOKENS) -> Dataset:
    """Evenly spaced sequences of all shards with about `tokens` positions."""
    share = max(1, round(sum(len(shard.labels) for shard in shards) / tokens))
    parts = [select(shard, np.arange(0, len(shard.weights), share)) for shard in shards]
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    names = ("observations", "labels", "weights", "valued", "values")
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return parts[0]._replace(**joined, offsets=np.append(0, np.cumsum(lengths)))


def count_weights(shards: list[Dataset], n_labels: int, kinds: np.ndarray, options: Options) -> tuple[int, bool]:
    """(weights that training will have, whether that is exact); an upper bound where it is not."""
    virtual = sum(count_features(n_labels, kinds, options.start).values())
    if options.pairs == "all":
        return virtual, True
    counts = SeenCounts(n_labels, kinds, options.start)
    for shard in shards:
        counts.add(shard)
    return sum(counts.counts.values()), counts.exact


def bytes_needed(job: Job, tokens: int, objective: ChainObjective, weights: int, options: Options) -> dict[str, int]:
    """Peak memory of training by its large parts; `objective` is that of the sample."""
    columns, texts, observations = objective.dataset.observations.shape[1], job.text_bytes, len(job.kinds)
    taken = objective.bytes_taken(Extent(tokens, columns, weights))
    solver = SOLVERS[fitting(options.solver)].bytes_taken(weights)
    return {
        "process": PROCESS,
        "features": taken["features"],
        "vocabulary": 2 * texts + observations * (60 + 24),
        "posteriors": taken["posteriors"],
        "factors": taken["factors"],
        "weights": solver + (4 * weights if options.pairs == "seen" else 0),
    }


def seconds_of(objective: ChainObjective, tokens: int, weights: int) -> float:
    """One iteration: a gradient on the sample carried over to all positions, and the solver's work on vectors."""
    theta = np.zeros(objective.size)
    objective.value_and_gradient(theta)
    begin = time.perf_counter()
    objective.value_and_gradient(theta)
    gradient = (time.perf_counter() - begin) * tokens / max(1, len(objective.dataset.labels))
    some = np.ones(min(weights, 1 << 20))
    begin = time.perf_counter()
    some += 0.5 * some
    return gradient + 20 * (time.perf_counter() - begin) * weights / max(1, len(some))


class Portion(NamedTuple):
    """What one worker will hold."""

    tokens: int
    blocks: int
    largest: int  # positions of its largest block
    weights: int
    block_weights: int  # of all its blocks together: a weight counts for each block that has it
    nodes: int  # vectors of sums that come back from it


def portions(shards: store.Shards, n_workers: int, lengths: np.ndarray, weights: int, block_tokens: int):
    """The portion of each worker; `lengths` are the virtual weights of each observation, which are `weights` in all."""
    from espalier.tasks.cluster.workers import ranges

    offsets = shards.offsets()
    bounds, share = cut(offsets, block_tokens), weights / max(1, int(lengths.sum()))
    found = []
    for lo, hi in ranges(len(bounds), n_workers):
        together, each, tokens = np.zeros(len(lengths), bool), 0.0, []
        for b in range(lo, hi):
            seen = present(shards.read(*bounds[b]), len(lengths))
            together[seen] = True
            each += share * int(lengths[seen].sum())
            tokens.append(int(offsets[bounds[b][1]] - offsets[bounds[b][0]]))
        own = round(share * int(lengths[together].sum()))
        found.append(Portion(sum(tokens), hi - lo, max(tokens), own, round(each), len(cover(lo, hi, len(bounds)))))
    return found


def worker_bytes(portion: Portion, columns: int, objective: ChainObjective, options: Options) -> dict[str, int]:
    """Peak memory of a worker by its large parts."""
    everything = objective.bytes_taken(Extent(portion.tokens, columns, portion.weights))
    # Blocks take turns in one room, but blockwise descent keeps messages for all its positions.
    by_blocks = "blocks" in SOLVERS[fitting(options.solver)].needs
    at_once = Extent(portion.tokens if by_blocks else portion.largest, columns, portion.block_weights // portion.blocks)
    room = objective.bytes_taken(at_once)
    vectors = part_bytes(portion.weights, portion.nodes, portion.blocks, portion.block_weights)
    return {"process": PROCESS, "features": everything["features"], "posteriors": room["posteriors"],
            "factors": room["factors"], "weights": vectors}  # fmt: skip


def cluster_figures(shards, kinds, n_labels, columns, objective, weights, options: Options, block_tokens: int) -> dict:
    """What `compute.cluster` needs: memory of the largest worker and of the driver, bytes that an iteration moves."""
    from espalier.tasks.cluster.workers import look

    workers = look(options.cluster)
    bigram = (kinds & BIGRAM > 0) * (n_labels**2 + n_labels * bool(options.start))
    lengths = (kinds & UNIGRAM > 0) * n_labels + bigram + (kinds & TRIGRAM > 0) * n_labels**3
    found = portions(shards, workers["workers"], lengths, weights, block_tokens)
    each = [worker_bytes(portion, columns, objective, options) for portion in found]
    largest = max(each, key=lambda parts: sum(parts.values()))
    out, back = (sum(way) for way in zip(*(moved_bytes(p.weights, p.nodes) for p in found), strict=True))
    return workers | {
        "parts": len(found), "worker_bytes": largest | {"all": sum(largest.values())},
        "all_workers_bytes": sum(sum(parts.values()) for parts in each) + PROCESS * (workers["workers"] - len(each)),
        "moved": {"out": out, "in": back},
        "share": max(p.tokens for p in found) / max(1, sum(p.tokens for p in found)),
    }  # fmt: skip


def driver_bytes(needed: dict[str, int], found: dict, first_block: int) -> dict[str, int]:
    """Of what one process would need, what the driver does; theta and the sums lie in shared memory or messages.

    `first_block` is what it takes of the features where the solver begins with a sample.
    """
    moved = found["moved"]["in"] + found["moved"]["out"]
    driver = {name: needed[name] for name in ("process", "vocabulary", "weights")}
    driver |= {"messages": moved, "features": first_block}
    return driver | ({"workers": found["all_workers_bytes"]} if found["here"] else {})


def allowed_bytes(params: Params) -> int:
    """What training may take: memory.limit, or what this machine has."""
    limit = params.memory.limit
    return psutil.virtual_memory().total if limit is None else int(limit * 2**30)


def of_gradients(job: Job) -> dict:
    """What a training by gradients takes, from the features on disk."""
    options, manifest, n_labels = Options.of(job.params), job.manifest, len(job.labels)
    kinds, plain = job.kinds, store.read_shards(job.root, "train", manifest)
    shards = [with_twins(shard, job.twins) for shard in plain]
    tokens = sum(len(shard.labels) for shard in shards)
    virtual = count_features(n_labels, kinds, options.start)
    weights, exact = count_weights(shards, n_labels, kinds, options)
    part = with_twins(sample(plain), job.twins)
    job.check_labels(part)
    layout = make_layout("seen", part, n_labels, kinds, options.start)
    objective = job.objective(part, layout, options)
    columns, seconds = objective.dataset.observations.shape[1], seconds_of(objective, tokens, weights)
    needed, cluster = bytes_needed(job, tokens, objective, weights, options), None
    if options.cluster:
        cluster = cluster_figures(job.shards(), kinds, n_labels, columns, objective, weights, options, job.block_tokens)
        largest = min(1.0, 1.5 * job.block_tokens / tokens) if fitting(options.solver) == "hybrid" else 0.0
        needed = driver_bytes(needed, cluster, round(largest * needed["features"]))
        seconds *= 1.0 if cluster["here"] else cluster["share"]
    return {
        "sequences": sum(len(shard.weights) for shard in shards), "tokens": tokens, "labels": n_labels,
        "observations": len(kinds), "virtual_features": virtual | {"all": sum(virtual.values())},
        "features": weights, "exact": exact, "bytes": needed | {"all": sum(needed.values())},
        "seconds_per_iteration": seconds,
    } | ({"cluster": cluster} if cluster else {})  # fmt: skip


def main(root: Path, params: Params, block_tokens: int = BLOCK_TOKENS) -> dict:
    """The plan from the features on disk, by the trainer of the family; `espalier stage template` must have run."""
    job = Job(root, params, block_tokens=block_tokens)
    job.check_kind_of_data()
    job.check_triples()
    return {**trainer_of(job.family).plan(job), "allowed_bytes": allowed_bytes(params)}


def check(figures: dict) -> None:
    """Refuse a plan that takes more memory than training may."""
    needed, allowed = figures["bytes"]["all"], figures["allowed_bytes"]
    if figures.get("cluster"):
        check_workers(figures["cluster"])
    if needed <= allowed:
        return
    parts = {name: size for name, size in figures["bytes"].items() if name != "all"}
    largest = max(parts, key=parts.get)
    raise EspalierError(
        f"training would take about {needed / 2**30:,.1f} GiB, {largest} most of it ({parts[largest] / 2**30:,.1f} GiB "
        f"for {figures['features']:,} weights and {figures['tokens']:,} tokens), and memory.limit allows "
        f"{allowed / 2**30:,.1f}: {figures.get('remedy', REMEDY)}, or raise memory.limit"
    )


def check_workers(found: dict) -> None:
    """Refuse a plan in which a worker takes more memory than it says that it has."""
    needed, limits = found["worker_bytes"], found["memory"]
    if not limits or needed["all"] <= min(limits):
        return
    parts = {name: size for name, size in needed.items() if name != "all"}
    largest = max(parts, key=parts.get)
    raise EspalierError(
        f"a worker would take about {needed['all'] / 2**30:,.1f} GiB, {largest} most of it "
        f"({parts[largest] / 2**30:,.1f} GiB), and the smallest of {found['workers']} has "
        f"{min(limits) / 2**30:,.1f}: add workers to {found['name']}, or give them more memory"
    )
