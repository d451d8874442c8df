"""Training of boosting: round after round a weight moves, the best round by the development data."""

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from espalier.engine import warm_start
from espalier.engine.data.dataset import Dataset
from espalier.engine.families.boosting import ROUNDS, BoostingLabeller, rounds_of
from espalier.engine.families.boosting_options import BoostingOptions
from espalier.engine.families.boosting_training import BoostingRounds, boosted_bytes, one_round
from espalier.engine.families.boosting_training import fit as boost
from espalier.engine.families.labeller import Labeller
from espalier.engine.losses.fixed_transitions import refuse_broken
from espalier.engine.optimise.monitor import Result
from espalier.engine.weights.layout import Layout, make_layout
from espalier.tasks import store
from espalier.tasks.report.phrases import Phrases
from espalier.tasks.report.words import Nouns
from espalier.tasks.training.by_gradient import earlier_model, judge_of, models_of
from espalier.tasks.training.checkpoint import Checkpoint, key_of
from espalier.tasks.training.job import Job, Options, Trained
from espalier.tasks.training.plan import PROCESS, count_features, count_weights, sample
from espalier.tasks.training.watcher import Watcher

STARTS = ("boosting", "crf", "memm", "perceptron")  # whose weights are a start: they score labels and pairs of them
LOOKS = 20  # at the development data without a better one end a training
TIMED = 3  # rounds that the plan times
VECTORS = 8  # of all weights: theta, the best, gains by bounds, codes, a copy on its way


def options_of(job: Job) -> BoostingOptions:
    """What the parameters say; a limit of iterations is one of rounds."""
    section = vars(job.params.boosting)
    own = {name: section[name] for name in BoostingOptions._fields}
    return BoostingOptions(**own)._replace(rounds=min(own["rounds"], job.params.train.max_iterations))


def watched(job: Job) -> Options:
    """What of the parameters surrounds a training; `train.dev_every` counts looks."""
    chosen, params = job.params.boosting, job.params
    options = Options(
        job.family, pairs=chosen.pairs, start=chosen.start, scheme=chosen.scheme, **vars(params.train),
        **vars(params.compute),
    )  # fmt: skip
    every = options.dev_every and options.dev_every * chosen.look
    return replace(options, dev_every=every, patience=options.patience or LOOKS * (every or chosen.look))


def plan(job: Job) -> dict:
    """What it takes: the data and where each observation stands, what is expected at each position, scores of pairs."""
    manifest, n_labels, options = job.manifest, len(job.labels), watched(job)
    shards = store.read_shards(job.root, "train", manifest)
    tokens, columns = sum(len(shard.labels) for shard in shards), len(manifest["columns"])
    weights, exact = count_weights(shards, n_labels, job.kinds, options)
    part = sample(shards)
    job.check_labels(part)
    needed = {
        "process": PROCESS, "features": 4 * 4 * tokens * columns + 60 * tokens, "weights": (8 * VECTORS + 4) * weights,
        "vocabulary": 2 * job.text_bytes + 84 * len(job.kinds),
    }  # fmt: skip
    virtual = count_features(n_labels, job.kinds, options.start)
    seconds, bytes_of_sample = rounds_timed(job, part, options)
    times = tokens / max(1, len(part.labels))
    needed |= {"positions": int(bytes_of_sample * times)}
    return {
        "sequences": sum(len(shard.weights) for shard in shards), "tokens": tokens, "labels": n_labels,
        "observations": len(job.kinds), "virtual_features": virtual | {"all": sum(virtual.values())},
        "features": weights, "exact": exact, "bytes": needed | {"all": sum(needed.values())},
        "seconds_per_iteration": seconds * times,
    }  # fmt: skip


def rounds_timed(job: Job, part: Dataset, options: Options) -> tuple[float, int]:
    """(seconds of a round over a sample, whatever it weighs; bytes that its positions and bounds take)"""
    data = part._replace(weights=np.ones(len(part.weights)))
    layout = make_layout("seen", data, len(job.labels), job.kinds, options.start)
    training = BoostingRounds(data, layout, options_of(job), transitions=transitions_of(job))
    if one_round(training)[0] is not None:
        return 0.0, boosted_bytes(training)
    begin = time.perf_counter()
    made = sum(one_round(training)[0] is None for _ in range(TIMED))
    return (time.perf_counter() - begin) / max(1, made), boosted_bytes(training)


def transitions_of(job: Job):
    """What the scheme allows; positions by themselves have no transitions."""
    return job.transitions if job.params.boosting.examples == "sequences" else None


def fit(job: Job) -> Trained:
    """The weights of the round that does best on the development data; without these, of the last one."""
    options, asked = options_of(job), watched(job)
    job.progress.begin(options.rounds, "iteration")
    initial, earlier = earlier_model(job, STARTS)
    data, dev = job.shards().read_all(job.weights), job.shards("dev")
    job.check_labels(data)
    layout, dev_data = make_layout(asked.pairs, data, len(job.labels), job.kinds, asked.start), dev.read_all()
    if job.transitions is not None:
        refuse_broken(data, layout, job.transitions, job.labels, "boosting.scheme")
    observations, model_of = job.observations(), models_of(job, layout)
    judge = judge_of(job, model_of, asked) if len(dev_data.weights) and asked.dev_every else None
    if judge is None:
        job.progress.say(f"no development data choose a round: the last of {options.rounds} at most is kept")
    watcher = Watcher(dev_data, model_of, asked, job.progress, judge)
    keeper = checkpoint(job, options, asked, initial, watcher)
    listen = in_words(job, observations, watcher)
    result = learned(job, data, layout, options, earlier, observations, listen, keeper)
    if judge is not None and "dev_loss" not in result.trace[-1]:
        watcher.look(result.trace[-1], result.theta)
    return told(job, watcher.chosen(result), layout, options, asked, watcher, keeper, observations, bool(earlier))


def in_words(job: Job, observations: list[str], watcher: Watcher) -> Callable[[dict, np.ndarray], str | None]:
    """The watcher, who hears of the weight of each round in words, too."""
    phrases, labels = Phrases(job.manifest["templates"], Nouns(**job.manifest["nouns"])), job.labels

    def listen(record: dict, theta: np.ndarray) -> str | None:
        if record["iteration"]:
            previous = labels[record["previous"]] if record["previous"] >= 0 else None
            weight = {"family": record["family"], "observation": observations[record["observation"]],
                      "previous": previous, "label": labels[record["label"]]}  # fmt: skip
            record["feature"] = phrases.weight(weight)
        return watcher(record, theta)

    return listen


def checkpoint(
    job: Job, options: BoostingOptions, asked: Options, initial: str | None, watcher: Watcher
) -> Checkpoint:
    """Where an interrupted training is kept, by all that decides its result."""
    hashes = job.shards().described()["hashes"] | job.shards("dev").described()["hashes"]
    deciding = SimpleNamespace(**vars(asked) | options._asdict() | {"initial": initial})
    key = key_of(job.root, deciding, job.manifest, hashes, job.block_tokens)
    return Checkpoint(
        job.root, key, asked.checkpoint_seconds, job.progress.say, watcher.seconds, watcher.go_on, also=watcher.kept
    )


def learned(
    job: Job, data: Dataset, layout: Layout, options: BoostingOptions, earlier: Labeller | None,
    observations: list[str], listen: Callable, keeper: Checkpoint,
) -> Result:  # fmt: skip
    """What the engine finds; when it is interrupted, the state after the last round is saved first."""
    theta = None
    if earlier:
        scales = job.manifest.get("scales")
        theta = warm_start.starting_point(earlier, layout, observations, job.labels, scales)
    try:
        kept = None if keeper.seconds is None else keeper
        return boost(data, layout, options, theta, listen, kept, transitions_of(job))
    except BaseException as error:
        keeper.add_last_words(error)
        raise


def told(
    job: Job, result: Result, layout: Layout, options: BoostingOptions, asked: Options, watcher: Watcher,
    keeper: Checkpoint, observations: list[str], warm: bool,
) -> Trained:  # fmt: skip
    """The model with what its file says, and the figures of the stage."""
    best = watcher.best["iteration"] if watcher.best else None
    until = result.iterations if best is None else best
    info = job.described(
        bound=options.bound, examples=options.examples, pi=options.pi, epsilon=options.epsilon, rounds=options.rounds,
        pairs=asked.pairs, start=asked.start, **job.of_scheme, stop_reason=result.stop_reason,
        iterations=result.iterations, objective=result.objective, features=layout.size,
    ) | {ROUNDS: rounds_of(result.trace, until, observations, job.labels)}  # fmt: skip
    if best is not None:
        info["best_iteration"] = best
    model = BoostingLabeller.compact(
        layout, result.theta, observations, job.labels, job.manifest["templates"], info
    )
    figures = {
        "objective": result.objective, "iterations": result.iterations, "active": len(model.theta),
        "features": layout.size, "stop_reason": result.stop_reason, "warm": warm,
    }  # fmt: skip
    kept = f", the best of them {best}" if best is not None else ""
    note = f"{len(model.theta):,} active weights of {layout.size:,}; {result.iterations} rounds{kept}"
    return Trained(model, result.trace, watcher.seconds, figures, note, keeper=keeper)
