"""Training of kernel machines (gp): rows of training data that support labels."""

from types import SimpleNamespace

import numpy as np

from espalier.engine.chain.chain_lattice import lattice_blocks
from espalier.engine.data.dataset import Dataset
from espalier.engine.families import FAMILIES, gp
from espalier.engine.families.gp_options import GpOptions
from espalier.engine.families.gp_training import RECORDS, fit_gp
from espalier.engine.families.row_chain import RowChain, of_pairs, refuse_values
from espalier.engine.lattice import blocks
from espalier.engine.runtime import threads
from espalier.engine.similarity.overlaps import index_bytes
from espalier.engine.similarity.rows import distinct_rows
from espalier.engine.weights.layout import BIGRAM, UNIGRAM
from espalier.tasks.training.by_gradient import judge_of
from espalier.tasks.training.job import Job, Options, Trained
from espalier.tasks.training.plan import PROCESS
from espalier.tasks.training.watcher import Watcher

# Seconds of one thread: to count what two rows have in common, and to add it up for one label; for pairs of labels at a
# position.
SECONDS_A_KERNEL, SECONDS_A_LABEL, SECONDS_A_PAIR = 0.6e-9, 0.13e-9, 2e-9
ITERATIONS = 200  # that a dense training usually takes
LONG = 3600  # seconds of a training that deserves a word


def options_of(job: Job) -> GpOptions:
    """What the parameters say; the rest is of all trainings."""
    train = job.params.train
    return GpOptions(**vars(job.params.gp), seed=train.seed, max_iterations=train.max_iterations,
                     tolerance=train.tolerance)  # fmt: skip


# ---- the plan


def plan(job: Job) -> dict:
    """What it takes: the distinct rows are counted, the kernel of each pair of them is what takes the time."""
    options, manifest, n_labels = options_of(job), job.manifest, len(job.labels)
    train = job.shards().read_all(job.weights)
    refuse_values(train, job.family)
    job.check_labels(train)
    rows = distinct_rows(train.observations, job.kinds & UNIGRAM > 0).rows
    tokens, n_rows, entries = len(train.labels), rows.count, len(rows.attribute)
    pairs = int(np.sum(job.kinds & BIGRAM > 0))
    virtual = {"unigram": n_rows * n_labels, "start": pairs * n_labels * bool(options.start),
               "bigram": pairs * n_labels**2}  # fmt: skip
    dense = options.method == "dense"
    support = virtual["unigram"] if dense else int(np.ceil(options.share * n_rows)) + options.coordinates
    features = support + virtual["start"] + virtual["bigram"]
    kernels = n_rows**2 if dense else int(options.share * n_rows) * n_rows // RECORDS
    needed = {
        "process": PROCESS, "features": 3 * train.observations.nbytes + 40 * tokens,
        "vocabulary": 2 * job.text_bytes + 84 * len(job.kinds),
        "rows": 8 * entries + index_bytes(n_rows, entries, len(job.kinds)),
        "support": 8 * virtual["unigram"] * (90 if dense else 10) + (0 if dense else 8 * options.coordinates * n_rows),
        "factors": 0 if dense else 16 * support**2,
        "posteriors": tokens * 3 * 8 * (n_labels + 8),
    }  # fmt: skip
    looks = 1 if dense else 8 * support / max(1, options.coordinates) / RECORDS
    per_kernel = SECONDS_A_KERNEL + (SECONDS_A_LABEL * n_labels if dense else 0.0)
    seconds = (kernels * per_kernel + looks * tokens * n_labels**2 * SECONDS_A_PAIR) / threads.threads()
    return {
        "sequences": manifest["splits"]["train"]["sequences"], "tokens": tokens, "labels": n_labels,
        "observations": len(job.kinds), "virtual_features": virtual | {"all": sum(virtual.values())},
        "features": features, "exact": False, "bytes": needed | {"all": sum(needed.values())},
        "seconds_per_iteration": seconds, "rows": n_rows, "kernel_evaluations": kernels,
        "remedy": "take fewer sequences (ingest.limit), set gp.method to sparse",
    } | advice(options, seconds, n_rows, kernels)  # fmt: skip


def advice(options: GpOptions, seconds: float, n_rows: int, kernels: int) -> dict:
    """A sentence about a training that will take long, and what else to set."""
    iterations = min(options.max_iterations, ITERATIONS if options.method == "dense" else RECORDS)
    if seconds * iterations < LONG:
        return {}
    sparse = ", or gp.method to sparse" if options.method == "dense" else ", or gp.share to less"
    return {"advice": (
        f"{n_rows:,} distinct rows, {kernels:,} kernels an iteration: about {seconds * iterations / 3600:,.1f} hours "
        f"for {iterations} iterations; set ingest.limit to fewer sequences{sparse}, or model.family to crf"
    )}  # fmt: skip


# ---- training


class WhileTraining:
    """What A and the weights of pairs say of the development data while they are still being trained."""

    def __init__(self, chain: RowChain):
        self.chain, self.data = chain, None

    def model(self, theta: np.ndarray) -> SimpleNamespace:
        chain = self.chain
        amounts = theta[: chain.cells].reshape(-1, chain.n_labels)

        def best(dev: Dataset) -> np.ndarray:
            if self.data is not dev:
                self.data, self.found = dev, distinct_rows(dev.observations, chain.kinds & UNIGRAM > 0)
                self.pairs = of_pairs_in(chain, dev)
            scores = chain.gram.product(amounts, self.found.rows)
            weights = np.append(np.zeros(chain.cells), theta[chain.cells :])
            return blocks.best(self.laid_out(scores, weights), len(dev.labels), None)

        return SimpleNamespace(best=best)

    def laid_out(self, scores: np.ndarray, weights: np.ndarray):
        for block in lattice_blocks(self.pairs, self.chain.layout, weights):
            block.lattice.here[:] += scores[self.found.of_position[block.positions]]
            yield block


def of_pairs_in(chain: RowChain, data: Dataset) -> Dataset:
    """Data whose observations are those of pairs in the layout of a chain of rows."""
    number = np.full(len(chain.kinds) + 1, -1, np.int32)
    number[chain.pair_ids] = chain.rows.count + np.arange(len(chain.pair_ids))
    return of_pairs(data._replace(observations=number[data.observations]), chain.layout)


def fit(job: Job) -> Trained:
    """The model that `gp.method` finds; every iteration is a record of the trace."""
    options, watched = options_of(job), Options(job.family, **vars(job.params.train), **vars(job.params.compute))
    job.progress.begin(options.max_iterations if options.method == "dense" else RECORDS, "iteration")
    data = job.shards().read_all(job.weights)
    job.check_labels(data)
    chain = gp.chain_of(data, len(job.labels), job.kinds, options)
    judged, dev = WhileTraining(chain), job.shards("dev").read_all()
    watcher = Watcher(dev, judged.model, watched, job.progress, judge_of(job, judged.model, watched))
    found = fit_gp(chain, options, lambda record, amounts, weights: watcher(
        record, np.concatenate([amounts.ravel(), weights])))  # fmt: skip
    if watcher.best:
        theta = watcher.best_theta
        found = found._replace(amounts=theta[: chain.cells].reshape(-1, chain.n_labels), weights=theta[chain.cells :],
                               objective=watcher.best["objective"])  # fmt: skip
    model = gp.labeller_of(chain, found, options, job.observations(), job.labels, job.manifest["templates"],
                           job.described())  # fmt: skip
    if watcher.best:
        model.info["best_iteration"] = watcher.best["iteration"]
    supports, rows = len(model.support.row), model.support.rows.count
    figures = {
        "objective": found.objective, "iterations": model.info["iterations"], "active": sum(model.sizes().values()),
        "features": model.info["features"], "stop_reason": found.stop_reason, "warm": False, "rows": rows,
    }  # fmt: skip
    note = f"{rows:,} of {chain.rows.count:,} rows support {supports:,} labels; {FAMILIES[job.family].called}"
    return Trained(model, found.trace, watcher.seconds, figures, note)
