"""Training of hidden Markov models: counts, expectation-maximisation, and what tells labellings apart (hmm)."""

from types import SimpleNamespace

import numpy as np

from espalier.engine.data.dataset import Dataset, join
from espalier.engine.decoding import decode
from espalier.engine.errors import EspalierError
from espalier.engine.families import hmm
from espalier.engine.families.hmm_options import NEEDS_LABELS, HmmOptions
from espalier.engine.families.hmm_space import HmmAmounts, completed
from espalier.engine.families.hmm_training import HmmFit, HmmStart, emitting, fit_tables, space_of
from espalier.engine.losses.chain_objective import active_weights
from espalier.engine.weights.layout import UNIGRAM
from espalier.tasks.training.by_gradient import earlier_model, judge_of
from espalier.tasks.training.job import Job, Options, Trained
from espalier.tasks.training.plan import PROCESS
from espalier.tasks.training.watcher import Watcher

SECONDS_A_CELL = 2e-8  # to count one observation at one position
SECONDS_A_PAIR = 2e-9  # of labels at one position, to expect it


def options_of(job: Job) -> HmmOptions:
    """What the parameters say; the rest is of all trainings."""
    section, train = vars(job.params.hmm), job.params.train
    own = {name: section[name] for name in HmmOptions._fields if name in section}
    return HmmOptions(**own, seed=train.seed, max_iterations=train.max_iterations, tolerance=train.tolerance)


def uses_pool(job: Job) -> bool:
    """Whether the unlabelled pool is learned from, too."""
    chosen, pool = job.params.hmm, job.manifest["splits"]["unlabelled"]
    return chosen.training not in NEEDS_LABELS and chosen.pool_weight > 0 and pool["sequences"] > 0


def plan(job: Job) -> dict:
    """What it takes: the data, and a number for each observation and label at most, however few are seen together."""
    manifest, n_labels, chosen = job.manifest, len(job.labels), job.params.hmm
    train = manifest["splits"]["train"]
    tokens = train["tokens"] + (manifest["splits"]["unlabelled"]["tokens"] if uses_pool(job) else 0)
    columns, iterated = len(manifest["columns"]), chosen.training != "counts"
    cells, emitting_ones = tokens * columns, int(np.sum(job.kinds & UNIGRAM > 0))
    virtual = {"unigram": emitting_ones * n_labels, "start": n_labels, "bigram": n_labels**2}
    seen = virtual["unigram"] if chosen.training not in NEEDS_LABELS else min(virtual["unigram"], cells)
    most = seen + n_labels**2 + (columns + 3) * n_labels
    needed = {
        "process": PROCESS, "features": (4 if iterated else 3) * 4 * cells + 40 * tokens,
        "weights": (16 if iterated else 7) * 8 * most, "vocabulary": 2 * job.text_bytes + 84 * len(job.kinds),
    }  # fmt: skip
    if iterated:
        needed["posteriors"] = tokens * 3 * 8 * (n_labels + 8)
    return {
        "sequences": train["sequences"], "tokens": train["tokens"], "labels": n_labels, "observations": len(job.kinds),
        "virtual_features": virtual | {"all": sum(virtual.values())}, "features": most, "exact": False,
        "bytes": needed | {"all": sum(needed.values())},
        "seconds_per_iteration": SECONDS_A_CELL * cells + iterated * SECONDS_A_PAIR * tokens * n_labels**2,
    }  # fmt: skip


def training_data(job: Job, options: HmmOptions) -> Dataset:
    """The labelled sequences, and with them the pool where it is learned from: each of its sequences counts less."""
    train = job.shards().read_all(job.weights)
    if options.training in NEEDS_LABELS:
        job.check_labels(train, f"hmm.training to baum-welch (it is {options.training})")
    if not uses_pool(job):
        return train
    pool, weight = job.shards("unlabelled").read_all(), job.params.hmm.pool_weight
    job.progress.say(f"learning from the unlabelled pool, too: {len(pool.weights):,} sequences that count {weight:g}")
    return join(train, pool._replace(weights=pool.weights * weight))


def fit(job: Job) -> Trained:
    """The model that `hmm.training` makes; every iteration is a record of the trace."""
    options, watched = options_of(job), Options(job.family, **vars(job.params.train), **vars(job.params.compute))
    if options.restarts > 1 and watched.patience is not None:
        raise EspalierError(
            f"hmm.restarts is {options.restarts} and train.patience {watched.patience}: each would choose a model, the "
            "one by likelihood, the other by development data; set hmm.restarts to 1 or train.patience to null"
        )
    job.progress.begin(1 if options.training == "counts" else options.max_iterations, "iteration")
    initial, earlier = earlier_model(job, ("hmm",))
    observations, data = job.observations(), training_data(job, options)
    templates = job.manifest["templates"]
    space = space_of(data, len(job.labels), job.templates_of, emitting(templates), options)
    start = begun(earlier, space, observations, job, options) if earlier else None

    def model_of(theta: np.ndarray):
        return SimpleNamespace(best=lambda dev: decode.viterbi(completed(dev, space.beside), space.layout, theta))

    dev, judge = job.shards("dev").read_all(), judge_of(job, model_of, watched)
    watcher = Watcher(dev, model_of, watched, job.progress, judge)
    kept: list[HmmAmounts] = []  # the probabilities that did best on the development data
    times: dict[int, float] = {}  # of the records of all restarts

    def heard(record: dict, theta: np.ndarray, probabilities: HmmAmounts) -> str | None:
        record.update(active_weights(space.layout, theta))
        reason = watcher(record, theta)
        times[id(record)] = watcher.seconds[-1]
        if watcher.best is record:
            kept[:] = [probabilities]
        return reason

    found = fit_tables(space, data, options, heard, start)
    if kept:
        found = found._replace(probabilities=kept[0], objective=watcher.best["objective"])
    seconds = [times[id(record)] for record in found.trace]
    return told(job, found, options, watcher, seconds, observations, bool(initial))


def begun(earlier: hmm.HmmLabeller, space, observations: list[str], job: Job, options: HmmOptions) -> HmmStart:
    start = hmm.start_from(earlier, space, observations, job.labels)
    if options.training == "stepwise":
        job.progress.say(
            f"going on from a model of {start.weight:,.0f} sequences and {start.updates:,} steps with the data at hand"
        )
    return start


def told(
    job: Job, found: HmmFit, options: HmmOptions, watcher: Watcher, seconds: list[float], observations: list[str],
    warm: bool,
) -> Trained:  # fmt: skip
    """The model with what its file says, and the figures of the stage."""
    info = job.described(**{name: getattr(options, name) for name in ("training", "smoothing", "rare")})
    model = hmm.labeller_of(found, observations, job.labels, job.manifest["templates"], info)
    if watcher.best:
        model.info["best_iteration"] = watcher.best["iteration"]
    figures = {
        "objective": found.objective, "iterations": model.info["iterations"], "active": len(model.theta),
        "features": model.info["features"], "stop_reason": found.stop_reason, "warm": warm,
    }  # fmt: skip
    done = "counted" if options.training == "counts" else f"{options.training}, {model.info['iterations']:,} iterations"
    return Trained(model, found.trace, seconds, figures, f"{len(model.theta):,} probabilities, {done}")
