"""Training of kernel machines (gp, hmsvm): rows of training data that support labels."""

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import numpy as np

from espalier.engine.chain.chain_lattice import lattice_blocks
from espalier.engine.data.dataset import Dataset
from espalier.engine.families import FAMILIES, gp, hmsvm
from espalier.engine.families.gp_options import GpOptions
from espalier.engine.families.gp_training import RECORDS, fit_gp
from espalier.engine.families.hmsvm_options import HmsvmOptions
from espalier.engine.families.hmsvm_training import fit_hmsvm
from espalier.engine.families.row_chain import RowChain, of_pairs, refuse_values
from espalier.engine.lattice import blocks
from espalier.engine.runtime import threads
from espalier.engine.similarity.overlaps import Overlaps, index_bytes
from espalier.engine.similarity.rows import AttributeRows, distinct_rows, selected
from espalier.engine.similarity.shared_features import AN_ENTRY, BYTES_A_PAIR, may_pay, pairs_of
from espalier.engine.weights.layout import BIGRAM, UNIGRAM
from espalier.tasks.training.by_gradient import judge_of
from espalier.tasks.training.job import Job, Options, Trained
from espalier.tasks.training.plan import PROCESS
from espalier.tasks.training.watcher import Watcher

# Seconds of one thread: to count what two rows have in common, and to add it up for one label; for pairs of labels at a
# position.
SECONDS_A_KERNEL, SECONDS_A_LABEL, SECONDS_A_PAIR = 0.6e-9, 0.13e-9, 2e-9
PASSES = 6  # in a round of hmsvm, as if each looked at all rows from all; it has more, over fewer rows
LOOKS = 25  # at all sequences in a round of hmsvm, for labellings and for the primal
# Bytes of hmsvm: H, A, two points of the primal and one between, what is added up and the last steps; the places of
# labellings; the inner products of the labellings of a sequence, of which there may be one for each position, twice.
HELD_A_CELL, HELD_A_TOKEN, HELD_A_PRODUCT = 150, 200, 16
LONG = 3600  # seconds of a training that deserves a word


class KernelMachine(NamedTuple):
    """How one of these families is trained."""

    options: type
    labellers: ModuleType  # its chain_of and labeller_of
    fit: Callable


MACHINES = {"gp": KernelMachine(GpOptions, gp, fit_gp), "hmsvm": KernelMachine(HmsvmOptions, hmsvm, fit_hmsvm)}
USUAL = {"gp": 200, "hmsvm": 30}  # iterations that a training takes, about; a sparse one of gp has its records


def options_of(job: Job) -> GpOptions | HmsvmOptions:
    """What the parameters say; the rest is of all trainings."""
    train, make = job.params.train, MACHINES[job.family].options
    shared = {name: getattr(train, name) for name in ("seed", "max_iterations", "tolerance") if name in make._fields}
    return make(**vars(job.params.of_family), **shared)


# ---- the plan


class KernelWork(NamedTuple):
    """What the method of a training makes of its rows."""

    support: int  # numbers in A, at most
    kernels: int  # evaluated in an iteration
    adds: bool  # whether each is added up for all labels
    looks: float  # at all positions, in an iteration
    held: int  # bytes beside the data and their index
    iterations: int  # that a training usually takes
    sparser: str  # what would take less
    pairs: int = 0  # of attributes that are written out instead of kernels


def work_of(job: Job, options: GpOptions | HmsvmOptions, rows: AttributeRows, tokens: int) -> KernelWork:
    n_rows, n_labels = rows.count, len(job.labels)
    cells = n_rows * n_labels
    if job.family == "hmsvm":
        lengths = np.diff(job.shards().offsets()).astype(np.int64)
        held = HELD_A_CELL * cells + HELD_A_TOKEN * tokens + HELD_A_PRODUCT * int(np.sum((lengths + 1) ** 2))
        return KernelWork(cells, PASSES * n_rows**2, False, LOOKS, held, USUAL["hmsvm"], "hmsvm.C to less")
    entries = written_out(options, rows, n_labels)
    if options.method == "dense":
        held, kernels = 8 * 90 * cells + BYTES_A_PAIR * entries, 0 if entries else n_rows**2
        return KernelWork(cells, kernels, True, 1, held, USUAL["gp"], "gp.method to sparse", entries)
    support = int(np.ceil(options.share * n_rows)) + options.coordinates
    held = 80 * cells + 8 * options.coordinates * n_rows + 16 * support**2 + 2 * BYTES_A_PAIR * entries
    looks = 8 * support / options.coordinates / RECORDS
    return KernelWork(support, 2 * support * n_rows // RECORDS, True, looks, held, RECORDS, "gp.share to less")


def written_out(options: GpOptions, rows: AttributeRows, n_labels: int) -> int:
    """Attributes and pairs of them that are written out at most, 0 where kernels are counted instead."""
    pairs = pairs_of(rows) if options.degree > 1 else 0
    tried = options.products == "auto" and may_pay(rows.count, pairs, options.degree, n_labels)
    return pairs + len(rows.attribute) if tried or options.products == "features" else 0


def plan(job: Job) -> dict:
    """What it takes: see `plan_of`."""
    return plan_of(job, options_of(job), work_of)


def plan_of(job: Job, options, work_of: Callable) -> dict:
    """The distinct rows are counted, the kernel of each pair of them is what takes the time."""
    n_labels, train = len(job.labels), job.shards().read_all(job.weights)
    refuse_values(train, job.family)
    job.check_labels(train)
    rows = distinct_rows(train.observations, job.kinds & UNIGRAM > 0).rows
    tokens, n_rows, entries = len(train.labels), rows.count, len(rows.attribute)
    work, pairs = work_of(job, options, rows, tokens), int(np.sum(job.kinds & BIGRAM > 0))
    virtual = {"unigram": n_rows * n_labels, "start": pairs * n_labels * bool(job.params.of_family.start),
               "bigram": pairs * n_labels**2}  # fmt: skip
    needed = {
        "process": PROCESS, "features": 3 * train.observations.nbytes + 40 * tokens,
        "vocabulary": 2 * job.text_bytes + 84 * len(job.kinds),
        "rows": 8 * entries + index_bytes(n_rows, entries, len(job.kinds)), "support": work.held,
        "posteriors": tokens * 3 * 8 * (n_labels + 8),
    }  # fmt: skip
    per_kernel = SECONDS_A_KERNEL + SECONDS_A_LABEL * n_labels * work.adds
    written = 1e-9 * AN_ENTRY * n_labels * work.pairs
    looks = work.looks * tokens * n_labels**2 * SECONDS_A_PAIR
    seconds = (work.kernels * per_kernel + written + looks) / threads.threads()
    return {
        "sequences": len(train.weights), "tokens": tokens, "labels": n_labels, "observations": len(job.kinds),
        "virtual_features": virtual | {"all": sum(virtual.values())},
        "features": work.support + virtual["start"] + virtual["bigram"], "exact": False,
        "bytes": needed | {"all": sum(needed.values())}, "seconds_per_iteration": seconds, "rows": n_rows,
        "kernel_evaluations": work.kernels, "pairs_of_attributes": work.pairs,
        "remedy": f"take fewer sequences (ingest.limit), set {work.sparser}",
    } | advice(job, work, seconds, n_rows)  # fmt: skip


def advice(job: Job, work: KernelWork, seconds: float, n_rows: int) -> dict:
    """A sentence about a training that will take long, and what else to set."""
    iterations = min(job.params.train.max_iterations, work.iterations)
    if seconds * iterations < LONG:
        return {}
    hours = seconds * iterations / 3600
    written = f" and {work.pairs:,} attributes and pairs of them written out" if work.pairs else ""
    return {"advice": (
        f"{n_rows:,} distinct rows, {work.kernels:,} kernels an iteration{written}: about {hours:,.1f} hours for "
        f"{iterations} iterations; set ingest.limit to fewer sequences, {work.sparser}, or model.family to crf"
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
            scores = said_of(chain, amounts, self.found.rows)
            weights = np.append(np.zeros(chain.cells), theta[chain.cells :])
            return blocks.best(self.laid_out(scores, weights), len(dev.labels), None)

        return SimpleNamespace(best=best)

    def laid_out(self, scores: np.ndarray, weights: np.ndarray):
        for block in lattice_blocks(self.pairs, self.chain.layout, weights):
            block.lattice.here[:] += scores[self.found.of_position[block.positions]]
            yield block


def said_of(chain: RowChain, amounts: np.ndarray, queries: AttributeRows) -> np.ndarray:
    """Scores of other rows; where few rows support labels, by these alone."""
    kept = np.flatnonzero(np.any(amounts != 0.0, axis=1))
    if 2 * len(kept) > len(amounts):
        return chain.gram.product(amounts, queries)
    return Overlaps(selected(chain.rows, kept), len(chain.kinds), chain.degree).product(amounts[kept], queries)


def of_pairs_in(chain: RowChain, data: Dataset) -> Dataset:
    """Data whose observations are those of pairs in the layout of a chain of rows."""
    number = np.full(len(chain.kinds) + 1, -1, np.int32)
    number[chain.pair_ids] = chain.rows.count + np.arange(len(chain.pair_ids))
    return of_pairs(data._replace(observations=number[data.observations]), chain.layout)


def fit(job: Job) -> Trained:
    """The model of the family's method; every iteration is a record of the trace."""
    options, watched = options_of(job), Options(job.family, **vars(job.params.train), **vars(job.params.compute))
    machine = MACHINES[job.family]
    job.progress.begin(job.params.train.max_iterations, "iteration")
    data = job.shards().read_all(job.weights)
    job.check_labels(data)
    chain = machine.labellers.chain_of(data, len(job.labels), job.kinds, options)
    so_far, dev = WhileTraining(chain), job.shards("dev").read_all()
    watcher = Watcher(dev, so_far.model, watched, job.progress, judge_of(job, so_far.model, watched))
    found = machine.fit(chain, options, lambda record, amounts, weights: watcher(
        record, np.concatenate([amounts.ravel(), weights])))  # fmt: skip
    if watcher.best:
        theta = watcher.best_theta
        found = found._replace(amounts=theta[: chain.cells].reshape(-1, chain.n_labels), weights=theta[chain.cells :],
                               objective=watcher.best["objective"])  # fmt: skip
    model = machine.labellers.labeller_of(chain, found, options, job.observations(), job.labels,
                                          job.manifest["templates"], job.described())  # fmt: skip
    if watcher.best:
        model.info["best_iteration"] = watcher.best["iteration"]
    supports, rows = len(model.support.row), model.support.rows.count
    figures = {
        "objective": found.objective, "iterations": model.info["iterations"], "active": sum(model.sizes().values()),
        "features": model.info["features"], "stop_reason": found.stop_reason, "warm": False, "rows": rows,
    }  # fmt: skip
    note = f"{rows:,} of {chain.rows.count:,} rows support {supports:,} labels; {FAMILIES[job.family].called}"
    return Trained(model, found.trace, watcher.seconds, figures, note)
