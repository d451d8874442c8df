"""Training of perceptrons: epochs of learning from mistakes, the best of them by the development data."""

import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from espalier.engine.families.perceptron_options import PerceptronOptions
from espalier.engine.families.perceptron_training import PerceptronTraining
from espalier.engine.optimise.monitor import Result
from espalier.engine.weights.layout import make_layout
from espalier.tasks import store
from espalier.tasks.training.by_gradient import judge_of
from espalier.tasks.training.checkpoint import Checkpoint, key_of
from espalier.tasks.training.job import Job, Options, Trained
from espalier.tasks.training.perceptron_forms import PerceptronForm, dual_plan, form_of
from espalier.tasks.training.plan import PROCESS, count_features, count_weights, sample
from espalier.tasks.training.watcher import Watcher

PART_VECTORS = 4  # of each part that is learned from by itself: theta, its sums, D, its marks
VECTORS = 8  # of all weights: theta, its sums, D, its marks, variances, the model, the best, a copy on its way


def options_of(job: Job) -> PerceptronOptions:
    """What the parameters say; the seed is of all trainings, and so is a limit of iterations."""
    section, train = vars(job.params.perceptron), job.params.train
    own = {name: section[name] for name in PerceptronOptions._fields if name in section}
    return PerceptronOptions(**own)._replace(epochs=min(own["epochs"], train.max_iterations), seed=train.seed)


def watched(job: Job) -> Options:
    """What of the parameters surrounds a training; without patience the epochs are its limit."""
    chosen, params = job.params.perceptron, job.params
    options = Options(
        job.family, pairs=chosen.pairs, start=chosen.start, **vars(params.train), **vars(params.compute)
    )  # fmt: skip
    return options if options.patience else replace(options, patience=options_of(job).epochs + 1)


def plan(job: Job) -> dict:
    """What it takes: the data, some vectors of weights, and scores of the longest sequence."""
    if options_of(job).degree is not None:
        return dual_plan(job, options_of(job))
    manifest, n_labels, options = job.manifest, len(job.labels), watched(job)
    shards = store.read_shards(job.root, "train", manifest)
    tokens, columns = sum(len(shard.labels) for shard in shards), len(manifest["columns"])
    weights, exact = count_weights(shards, n_labels, job.kinds, options)
    part = sample(shards)
    job.check_labels(part)
    parts = options_of(job).parts
    mixed = PART_VECTORS * parts if parts > 1 else 0
    needed = {
        "process": PROCESS, "features": 3 * 4 * tokens * columns + 40 * tokens,
        "weights": (8 * (VECTORS + mixed) + 4) * weights, "vocabulary": 2 * job.text_bytes + 84 * len(job.kinds),
        "scores": parts * room_bytes(shards, n_labels),
    }  # fmt: skip
    virtual = count_features(n_labels, job.kinds, options.start)
    return {
        "sequences": sum(len(shard.weights) for shard in shards), "tokens": tokens, "labels": n_labels,
        "observations": len(job.kinds), "virtual_features": virtual | {"all": sum(virtual.values())},
        "features": weights, "exact": exact, "bytes": needed | {"all": sum(needed.values())},
        "seconds_per_iteration": seconds_of(job, part, options) * tokens / max(1, len(part.labels)),
    }  # fmt: skip


def room_bytes(shards: list, n_labels: int) -> int:
    """Of the longest sequence: a row of scores at each position, at most a matrix for each."""
    longest = max((int(np.diff(shard.offsets).max(initial=1)) for shard in shards), default=1)
    return 8 * longest * (n_labels + n_labels**2)


def seconds_of(job: Job, part, options: Options) -> float:
    """An epoch over a sample, whatever it weighs, one sequence after the other."""
    data = part._replace(weights=np.ones(len(part.weights)))
    layout = make_layout("seen", data, len(job.labels), job.kinds, options.start)
    training = PerceptronTraining(data, layout, options_of(job)._replace(parts=1))
    training.visit(training.sequences[:1], False)
    begin = time.perf_counter()
    training.epoch()
    return time.perf_counter() - begin


def fit(job: Job) -> Trained:
    """The model of the epoch that does best on the development data; without these, of the last one."""
    options, asked = options_of(job), watched(job)
    job.progress.begin(options.epochs, "iteration")
    data, dev = job.shards().read_all(job.weights), job.shards("dev")
    job.check_labels(data)
    form, dev_data = form_of(job, data, options), dev.read_all()
    judge = judge_of(job, form.model_of, asked) if len(dev_data.weights) and asked.dev_every else None
    if judge is None:
        job.progress.say(f"no development data choose an epoch: the last of {options.epochs} at most is kept")
    watcher = Watcher(dev_data, form.model_of, asked, job.progress, judge)
    keeper = checkpoint(job, options, asked, form.initial, watcher)
    result = watcher.chosen(learned(form, watcher, keeper))
    return told(job, result, form, options, asked, watcher, keeper)


def checkpoint(
    job: Job, options: PerceptronOptions, asked: Options, initial: str | None, watcher: Watcher
) -> Checkpoint:
    """Where an interrupted training is kept, by all that decides its result."""
    hashes = job.shards().described()["hashes"] | job.shards("dev").described()["hashes"]
    deciding = SimpleNamespace(**vars(asked) | options._asdict() | {"initial": initial})
    key = key_of(job.root, deciding, job.manifest, hashes, job.block_tokens)
    return Checkpoint(
        job.root, key, asked.checkpoint_seconds, job.progress.say, watcher.seconds, watcher.go_on, also=watcher.kept
    )


def learned(form: PerceptronForm, watcher: Watcher, keeper: Checkpoint) -> Result:
    """What the engine finds; when it is interrupted, the state after the last epoch is saved first."""
    try:
        return form.learn(watcher, None if keeper.seconds is None else keeper)
    except BaseException as error:
        keeper.add_last_words(error)
        raise


def told(
    job: Job, result: Result, form: PerceptronForm, options: PerceptronOptions, asked: Options, watcher: Watcher,
    keeper: Checkpoint,
) -> Trained:  # fmt: skip
    """The model with what its file says, and the figures of the stage."""
    own = {"pa": {"c": options.c}, "arow": {"gamma": options.gamma}}.get(options.update, {})
    own |= {"parts": options.parts} if options.parts > 1 else {}
    info = job.described(
        update=options.update, lead=options.lead, average=options.average, epochs=options.epochs,
        pairs=asked.pairs, start=asked.start, stop_reason=result.stop_reason, iterations=result.iterations,
        objective=result.objective, features=form.features,
        **own,
    )  # fmt: skip
    if watcher.best:
        info["best_iteration"] = watcher.best["iteration"]
    model = form.labeller(result, info)
    active = sum(model.sizes().values())
    figures = {
        "objective": result.objective, "iterations": result.iterations, "active": active,
        "features": form.features, "stop_reason": result.stop_reason, "warm": form.initial is not None,
    } | ({} if options.degree is None else {"rows": model.support.rows.count})  # fmt: skip
    kept = f", the best of them {watcher.best['iteration']}" if watcher.best else ""
    mixed = f", the weights of {options.parts} parts mixed" if options.parts > 1 else ""
    what = f"{active:,} active weights of {form.features:,}"
    if options.degree is not None:
        what = f"{figures['rows']:,} rows support labels"
    note = f"{what}; {result.iterations} epochs{kept}{mixed}"
    return Trained(model, result.trace, watcher.seconds, figures, note, keeper=keeper)
