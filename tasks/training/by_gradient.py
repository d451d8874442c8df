"""Training by gradients: chains of weights whose penalised loss a solver of the engine minimises (crf, memm)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from espalier.engine import warm_start
from espalier.engine.errors import EspalierError
from espalier.engine.families import FAMILIES, require
from espalier.engine.families.labeller import Labeller
from espalier.engine.families.memm import SHARED
from espalier.engine.families.objectives import objective_of as objective_of_family
from espalier.engine.losses.fixed_transitions import refuse_broken
from espalier.engine.losses.loss_table import LOG, LOSSES, OFFERED
from espalier.engine.optimise.monitor import Result
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import SOLVERS, fitting, fitting_names, minimise
from espalier.engine.parts.sharded_objective import InProcess, Part, ShardedObjective, cut
from espalier.engine.weights.layout import Layout, dense_layout, make_layout, merged, seen_layout
from espalier.tasks import store
from espalier.tasks.training.checkpoint import Checkpoint, key_of
from espalier.tasks.training.job import CHAMPION, NO_PATH, Job, Options, Trained
from espalier.tasks.training.plan import of_gradients
from espalier.tasks.training.watcher import Watcher

if TYPE_CHECKING:
    from espalier.engine.penalty_search import Development

plan = of_gradients
STARTS = ("crf", "memm")  # whose weights are a start for each other
AUTO = "auto"  # rho1 that the development data choose
ModelOf = Callable[[np.ndarray], Labeller]


def earlier_model(job: Job, starts: tuple[str, ...] = STARTS) -> tuple[str, Labeller] | tuple[None, None]:
    """The model that training starts from, of one of the families `starts`, and its path; None is a cold start.

    `champion` is the copy that a run made when it began: the champion itself changes at the end of a run, and a
    stage that read it would depend on what comes after it.
    """
    initial = job.params.train.initial
    if initial != CHAMPION:
        model = store.read_model(job.root / initial) if initial else None
        if model and model.family not in starts:
            raise EspalierError(
                f"train.initial is {initial!r}, a model of the family {model.family}, whose numbers are no start for "
                f"{job.family}: expected one of {', '.join(starts)}, or null"
            )
        warm_start.refuse_rows(model, f"train.initial is {initial!r}", "null")
        return initial, model
    if not (job.root / store.START).is_file():
        job.progress.say("there is no champion to start from yet: training starts from zero")
        return None, None
    model = store.read_model(job.root / store.START)
    if model.family not in starts or warm_start.of_rows(model):
        called = f"{model.family} with a kernel" if warm_start.of_rows(model) else model.family
        job.progress.say(
            f"the champion is a model of {called}, no start for {job.family}: training starts from zero"
        )
        return None, None
    return store.START, model


def judge_of(job: Job, model_of: ModelOf, options: Options) -> "Development | None":
    """What `train.patience` judges iterations by; None without it."""
    if options.patience is None:
        return None
    if options.dev_every is None:
        raise EspalierError("train.patience judges iterations by the development data: set train.dev_every to 1, say")
    from espalier.tasks.training.rho1_path import development_of

    return development_of(job, model_of)


def by_parts(solver: str) -> bool:
    """Whether it can train while the data lie in parts, in one process or in several."""
    return SOLVERS[solver].fits(ShardedObjective.offers)


def refuse_cluster(options: Options) -> None:
    raise EspalierError(
        f"{options.solver} needs all sequences in one process and cannot use compute.cluster = {options.cluster}: "
        f"set compute.cluster to null or choose one of {', '.join(filter(by_parts, SOLVERS))}"
    )


def check_loss_and_scheme(options: Options) -> None:
    """Refuse what another loss than the log loss, or transitions that are impossible, cannot be trained with."""
    for name, said, usual in (("crf.loss", options.loss, LOG), ("crf.scheme", options.scheme, None)):
        if said == usual:
            continue
        instead = f"{name} to {usual or 'null'}"
        if not SOLVERS[options.solver].fits(OFFERED):
            names = fitting_names(OFFERED, options.rho1 == AUTO or options.rho1 > 0)
            raise EspalierError(
                f"crf.solver is {options.solver}, which moves weights by sequences or blocks, and with {name} = {said} "
                f"training has a gradient alone: choose one of {names}, or set {instead}"
            )
        if options.cluster:
            raise EspalierError(
                f"{name} is {said}, which needs all sequences in one process, and compute.cluster is "
                f"{options.cluster}: set compute.cluster to null, or {instead}"
            )


@contextmanager
def objective_of(job: Job, options: Options) -> Iterator[tuple[object, Layout]]:
    """The objective over the training data, wherever they lie, and the layout of its weights.

    Data of one block, or for a solver or a family that needs all sequences at hand, are one objective in this process.
    """
    shards, weights, kinds, n_labels = job.shards(), job.weights, job.kinds, len(job.labels)
    bounds = cut(shards.offsets(), job.block_tokens)
    plain = options.loss == LOG and options.scheme is None
    in_parts = by_parts(options.solver) and plain and "shards" in FAMILIES[job.family].can
    whole = not in_parts or len(bounds) < 2
    if not options.cluster and whole:
        dataset = shards.read_all(weights)
        job.check_labels(dataset)
        layout = make_layout(options.pairs, dataset, n_labels, kinds, options.start)
        if job.transitions is not None:
            refuse_broken(dataset, layout, job.transitions, job.labels, f"{job.family}.scheme")
        yield job.objective(dataset, layout, options), layout
        return
    if options.pairs == "all":
        layout = dense_layout(n_labels, kinds, options.start)
    else:
        layout = merged(seen_layout(shards.read(lo, hi), n_labels, kinds, options.start) for lo, hi in bounds)
    beginning = (lambda: shards.read(*bounds[0], weights)), len(weights), options.sparse
    if not options.cluster:
        blocks = (shards.read(lo, hi, weights) for lo, hi in bounds)
        pool = InProcess([Part(blocks, 0, len(bounds), layout, options.sparse)])
        yield ShardedObjective(pool, layout, *beginning), layout
        return
    from espalier.tasks.cluster import training

    cluster = options.cluster, job.root, shards, bounds, layout, options.sparse, options.threads
    with training.pool(*cluster, say=job.progress.say) as pool:
        yield ShardedObjective(pool, layout, *beginning), layout


def models_of(job: Job, layout: Layout) -> ModelOf:
    """What weights over a layout say, while they are still being trained."""
    labeller, info = FAMILIES[job.family].labeller, job.of_scheme
    return lambda theta: labeller(job.labels, [], [], layout, theta, info)


def chosen_rho1(job: Job, objective, model_of: ModelOf, options: Options) -> tuple[dict, np.ndarray]:
    """What a rho1 of auto becomes: the figures of a search, and the weights of the point chosen from it."""
    from espalier.tasks.training import rho1_path

    tokens = float(np.sum(job.weights * np.diff(job.shards().offsets())))
    development = rho1_path.development_of(job, model_of)
    return rho1_path.choose_for_training(objective, development, options, tokens, job.progress)


def of_another_family(job: Job, layout: Layout, options: Options) -> np.ndarray:
    """The weights of the family `start_from`, trained over the same layout: a start for this one (IIS 3.6.4).

    It keeps no state: a run that was interrupted trains it again, to the same weights.
    """
    family, dataset = options.start_from, job.shards().read_all(job.weights)
    if len(dataset.labels) and dataset.labels.min() < 0:
        require(family, "partial", f"set {job.family}.start_from to null")
    result = minimise(
        options.solver, objective_of_family(family, dataset, layout, options.sparse),
        ElasticNet(options.rho1, options.rho2), None, options.max_iterations, options.tolerance, **own_options(options),
    )  # fmt: skip
    job.progress.say(
        f"the {family} that training starts from: objective {result.objective:,.2f}, {_stopped(result)}"
    )
    return result.theta


def own_options(options: Options) -> dict:
    """What the solver takes by keyword."""
    return {"seed": options.seed} if "seed" in SOLVERS[options.solver].options else {}


def minimised(objective, watcher: Watcher, theta0, options: Options, keeper: Checkpoint) -> Result:
    """The result of the solver. When it is interrupted, the state after the last iteration is saved first."""
    kept = None if options.checkpoint_seconds is None else keeper
    try:
        return minimise(
            options.solver, objective, ElasticNet(options.rho1, options.rho2), theta0, options.max_iterations,
            options.tolerance, on_iteration=watcher, keeper=kept, **own_options(options),
        )  # fmt: skip
    except BaseException as error:
        keeper.add_last_words(error)
        raise


def unusual(options: Options) -> dict:
    """What a model file says of options that most models leave alone."""
    usual = {"stop": False, "weights": SHARED, "start_from": None}
    return {name: getattr(options, name) for name in usual if getattr(options, name) != usual[name]}


def description(job: Job, result: Result, layout: Layout, options: Options) -> dict:
    """What the model file says of itself; of the loss where it is not the usual one."""
    loss = {} if options.loss == LOG else {"loss": options.loss}
    return job.described(
        **loss | ({"pi": options.pi} if options.loss == "exponential" else {}),
        solver=options.solver, penalty={"rho1": options.rho1, "rho2": options.rho2}, pairs=options.pairs,
        start=options.start, **job.of_scheme, **unusual(options), stop_reason=result.stop_reason,
        iterations=result.iterations, objective=result.objective, features=layout.size,
    )  # fmt: skip


def settled(job: Job) -> tuple[Options, Labeller | None]:
    """The options with what they leave open decided, and a word about it; the model that training starts from."""
    asked, (initial, earlier) = Options.of(job.params), earlier_model(job)
    options = replace(asked, initial=initial, solver=fitting(asked.solver))
    if options.rho1 == AUTO and (start := asked.initial or asked.start_from):
        job.progress.say(f"{job.family}.rho1 is auto: the path begins with an empty model, not with {start}")
    check_loss_and_scheme(options)
    if options.loss != LOG:
        job.progress.say(f"crf.loss is {options.loss}: {LOSSES[options.loss].advice}")
    if options.cluster and not by_parts(options.solver):
        refuse_cluster(options)
    return options, earlier


def fit(job: Job) -> Trained:
    """The model that minimises the penalised loss."""
    (options, earlier), path = settled(job), NO_PATH
    job.progress.begin(options.max_iterations, "iteration")
    job.weights  # noqa: B018 - refused before anything is made of them
    dev, observations = job.shards("dev"), None
    dev_data = dev.read_all()
    with objective_of(job, options) as (objective, layout):
        model_of, initial = models_of(job, layout), None
        if options.rho1 == AUTO:
            path, initial = chosen_rho1(job, objective, model_of, options)
            options = replace(options, rho1=path["chosen"], rho2=path["chosen_rho2"])
        elif earlier:
            observations = job.observations()
            scales = job.manifest.get("scales")
            initial = warm_start.starting_point(earlier, layout, observations, job.labels, scales)
        elif options.start_from:
            initial = of_another_family(job, layout, options)
        watcher = Watcher(dev_data, model_of, options, job.progress, judge_of(job, model_of, options))
        hashes = job.shards().described()["hashes"] | dev.described()["hashes"]
        keeper = Checkpoint(
            job.root, key_of(job.root, options, job.manifest, hashes, job.block_tokens), options.checkpoint_seconds,
            job.progress.say, watcher.seconds, watcher.go_on, also=watcher.kept,
        )  # fmt: skip
        result = watcher.chosen(minimised(objective, watcher, initial, options, keeper))
    info = description(job, result, layout, options)
    if path["points"]:
        info |= {"rho1_chosen": True, "path_iterations": path["iterations"]}
    if watcher.best:
        info["best_iteration"] = watcher.best["iteration"]
    texts = job.observations() if observations is None else observations
    labeller = FAMILIES[job.family].labeller
    model = labeller.compact(layout, result.theta, texts, job.labels, job.manifest["templates"], info)
    figures = {
        "objective": result.objective, "iterations": result.iterations, "path_iterations": path.get("iterations", 0),
        "active": len(model.theta), "features": layout.size, "stop_reason": result.stop_reason, "rho1": options.rho1,
        "warm": bool(options.initial) and not path["points"],
    }  # fmt: skip
    note = f"{len(model.theta):,} active weights of {layout.size:,}; {_stopped(result)}"
    return Trained(model, result.trace, watcher.seconds, figures, note, path, keeper)


def _stopped(result: Result) -> str:
    """Why and when, short enough for a line of a terminal; the report has the whole sentence."""
    if result.stop_reason == "max_iterations":
        return f"limit of {result.iterations} iterations reached"
    if result.stop_reason == "patience":
        return f"no better on the development data, stopped after {result.iterations} iterations"
    return f"{result.stop_reason.replace('_', ' ')} after {result.iterations} iterations"
