"""Train: features and weights become a model, by the engine's kernels."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from espalier.engine import warm_start
from espalier.engine.data.dataset import Dataset, select
from espalier.engine.decoding import decode
from espalier.engine.errors import EspalierError
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.labels.measures import token_error
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.monitor import Result
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solver_state import SolverState
from espalier.engine.optimise.solvers import SOLVERS, fitting, minimise
from espalier.engine.parts.sharded_objective import BLOCK_TOKENS, InProcess, Part, ShardedObjective, cut
from espalier.engine.runtime import threads
from espalier.engine.runtime.kernel_cache import source_hash
from espalier.engine.weights.layout import Layout, dense_layout, make_layout, merged, observation_kinds, seen_layout
from espalier.tasks import store
from espalier.tasks.cluster.sharing import clear_dead
from espalier.tasks.params import Params, Train
from espalier.tasks.progress import Progress
from espalier.tasks.training import plan
from espalier.tasks.training.checkpoint import Checkpoint, key_of

if TYPE_CHECKING:
    from espalier.tasks.training.rho1_path import Development

CHAMPION = "champion"  # train.initial that is the champion of when the run began
AUTO = "auto"  # train.rho1 that the development data choose
BEST = "best_on_dev"  # vector of a checkpoint: the best model on the development data so far
NO_PATH = {"chosen": None, "points": []}  # what is written where rho1 is given: DVC wants the file in any case


def start_file(root: Path, options: Train) -> str | None:
    """The model that training starts from, as a path in the project; None is a cold start.

    `champion` is the copy that a run made when it began: the champion itself changes at the end of a run, and a
    stage that read it would depend on what comes after it.
    """
    if options.initial != CHAMPION:
        return options.initial
    return store.START if (root / store.START).is_file() else None


def starting_point(path: Path | None, layout: Layout, observations: list[str], labels: list[str]) -> np.ndarray | None:
    """Weights of an earlier model where the new layout has them, zero elsewhere."""
    return None if path is None else warm_start.starting_point(store.read_model(path), layout, observations, labels)


def thinned(dev: Dataset, options: Train) -> Dataset:
    """At most `train.dev_sequences` of the development data, evenly spaced; it only measures, so it may be less."""
    total, most = len(dev.weights), options.dev_sequences
    if options.dev_every is None or most is None or total <= most:
        return dev
    return select(dev, np.arange(most) * total // most)


class Watcher:
    """Completes the records of a solver: development error into the trace, time into a list of its own.

    With `train.patience` it keeps the best model on the development data, as the task is judged, and asks to stop when
    none has been better for so many iterations.
    """

    def __init__(
        self, dev: Dataset, layout: Layout, options: Train, progress: Progress, judge: "Development | None" = None
    ):
        self.judge = judge and judge.thinned(options.dev_sequences)
        self.dev = self.judge.data if self.judge else thinned(dev, options)
        self.layout, self.options, self.progress = layout, options, progress
        self.seconds: list[float] = []
        self.begin = time.perf_counter()
        self.best: dict | None = None  # record of the best iteration on the development data
        self.best_theta: np.ndarray | None = None

    def __call__(self, record: dict, theta: np.ndarray) -> str | None:
        self.seconds.append(time.perf_counter() - self.begin)
        record["dev_token_error"] = None
        every = self.options.dev_every
        if every and record["iteration"] % every == 0 and len(self.dev.labels):
            predicted = decode.viterbi(self.dev, self.layout, theta, self.options.sparse)
            record["dev_token_error"] = token_error(self.dev.labels, predicted)
            if self.judge:
                self._judge(record, theta, predicted)
        self.progress.record(record | {"seconds": self.seconds[-1]})
        if record["iteration"]:
            self.progress.step(note=self._note(record))
        late = self.best is not None and record["iteration"] - self.best["iteration"] >= self.options.patience
        return "patience" if late else None

    def _judge(self, record: dict, theta: np.ndarray, predicted: np.ndarray) -> None:
        record["dev_loss"] = self.judge.judged_by.loss(self.judge.judged(predicted).value)
        if self.best is None or record["dev_loss"] < self.best["dev_loss"]:
            self.best, self.best_theta = record, theta.copy()

    def kept(self) -> dict[str, np.ndarray]:
        """What an interrupted run must keep beside the solver's state."""
        return {} if self.best_theta is None else {BEST: self.best_theta}

    def go_on(self, state: SolverState) -> None:
        """Time, progress and the best model go on where an interrupted run was."""
        self.begin -= self.seconds[-1] if self.seconds else 0.0
        if BEST in state.vectors:
            judged = [record for record in state.history if "dev_loss" in record]
            self.best, self.best_theta = min(judged, key=lambda record: record["dev_loss"]), state.vectors[BEST]
        self.progress.step(state.iteration, note=f"after iteration {state.iteration} of an earlier run")

    def chosen(self, result: Result) -> Result:
        """The result with the best model on the development data, where that is what was asked for."""
        if self.best is None:
            return result
        return replace(result, theta=self.best_theta, objective=self.best["objective"])

    def _note(self, record: dict) -> str:
        active = sum(record[f"active_{name}"] for name in ("unigram", "start", "bigram"))
        dev = record["dev_token_error"]
        error = "" if dev is None else f", dev error {dev:.2%}"
        return f"objective {record['objective']:,.0f}, {active:,} active{error}"


def judge_of(root: Path, manifest: dict, layout: Layout, options: Train) -> "Development | None":
    """What `train.patience` judges iterations by; None without it."""
    if options.patience is None:
        return None
    if options.dev_every is None:
        raise EspalierError("train.patience judges iterations by the development data: set train.dev_every to 1, say")
    from espalier.tasks.training.rho1_path import development_of

    return development_of(root, manifest, layout, options)


def by_parts(solver: str) -> bool:
    """Whether it can train while the data lie in parts, in one process or in several."""
    return SOLVERS[solver].sweeps or not SOLVERS[solver].needs_blocks


def refuse_cluster(options: Train) -> None:
    raise EspalierError(
        f"{options.solver} needs all sequences in one process and cannot use train.cluster = {options.cluster}: "
        f"set train.cluster to null or choose one of {', '.join(filter(by_parts, SOLVERS))}"
    )


@contextmanager
def objective_of(
    root: Path, shards: store.Shards, weights: np.ndarray, kinds: np.ndarray, options: Train, progress: Progress,
    block_tokens: int,
) -> Iterator[tuple[object, Layout]]:  # fmt: skip
    """The objective over the training data, wherever they lie, and the layout of its weights.

    Data of one block, or for a solver that needs all sequences at hand, are a chain objective in this process.
    """
    n_labels = len(shards.manifest["labels"])
    bounds = cut(shards.offsets(), block_tokens)
    if not options.cluster and (not by_parts(options.solver) or len(bounds) < 2):
        dataset = shards.read_all(weights)
        layout = make_layout(options.pairs, dataset, n_labels, kinds, options.start)
        yield ChainObjective(dataset, layout, options.sparse), layout
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

    cluster = options.cluster, root, shards, bounds, layout, options.sparse, options.threads
    with training.pool(*cluster, say=progress.say) as pool:
        yield ShardedObjective(pool, layout, *beginning), layout


def chosen_rho1(
    root: Path, objective, layout: Layout, manifest: dict, weights: np.ndarray, options: Train, progress: Progress
) -> tuple[dict, np.ndarray]:
    """What `train.rho1: auto` becomes: the figures of a search, and the weights of the point chosen from it."""
    from espalier.tasks.training import rho1_path

    lengths = np.diff(store.Shards(root, "train", manifest).offsets())
    development = rho1_path.development_of(root, manifest, layout, options)
    return rho1_path.choose_for_training(objective, development, options, float(np.sum(weights * lengths)), progress)


def fit(objective, watcher: Watcher, theta0, options: Train, keeper: Checkpoint) -> Result:
    """The result of the solver. When it is interrupted, the state after the last iteration is saved first."""
    own = {"seed": options.seed} if "seed" in SOLVERS[options.solver].options else {}
    kept = None if options.checkpoint_seconds is None else keeper
    try:
        return minimise(
            options.solver, objective, ElasticNet(options.rho1, options.rho2), theta0, options.max_iterations,
            options.tolerance, on_iteration=watcher, keeper=kept, **own,
        )  # fmt: skip
    except BaseException as error:
        add_last_words(error, options, keeper)
        raise


def add_last_words(error: BaseException, options: Train, keeper: Checkpoint) -> None:
    """Save the state after the last iteration, and add to an error what an interrupted training leaves behind."""
    refused = isinstance(error, EspalierError) and keeper.last is None
    if options.checkpoint_seconds is not None and not refused:
        error.add_note(_last_words(keeper))


def _last_words(keeper: Checkpoint) -> str:
    if keeper.last is None:
        return "training was interrupted before its first iteration ended; it starts anew the next time"
    iteration = keeper.last.iteration
    if keeper.save():
        return f"training was interrupted after iteration {iteration}; the same command goes on from there"
    return f"training was interrupted after iteration {iteration}, which could not be saved"


def description(result: Result, layout: Layout, manifest: dict, options: Train) -> dict:
    """What the model file says of itself."""
    return {
        "solver": options.solver, "penalty": {"rho1": options.rho1, "rho2": options.rho2}, "pairs": options.pairs,
        "start": options.start, "stop_reason": result.stop_reason, "iterations": result.iterations,
        "objective": result.objective, "features": layout.size, "nouns": manifest["nouns"],
        "kinds": manifest["kinds"], "data_version": manifest["data_version"], "code_version": source_hash(),
        "train_sequences": manifest["splits"]["train"]["sequences"],
        "train_tokens": manifest["splits"]["train"]["tokens"],
        **{key: manifest[key] for key in ("lists", "reading") if manifest.get(key)},
    }  # fmt: skip


def main(root: Path, params: Params, progress: Progress, block_tokens: int = BLOCK_TOKENS) -> dict:
    clear_dead(root)
    manifest = store.read_manifest(root)
    options = replace(params.train, initial=start_file(root, params.train), solver=fitting(params.train.solver))
    if options.rho1 == AUTO and params.train.initial:
        progress.say(f"train.rho1 is auto: the path begins with an empty model, not with {params.train.initial}")
    elif params.train.initial == CHAMPION and not options.initial:
        progress.say("there is no champion to start from yet: training starts from zero")
    threads.set_threads(options.threads)
    if options.cluster and not by_parts(options.solver):
        refuse_cluster(options)
    planned = plan.main(root, params, block_tokens)
    progress.plan(planned | {"max_iterations": options.max_iterations})
    plan.check(planned)
    progress.begin(options.max_iterations, "iteration")
    weights, sequences = store.read_weights(root), manifest["splits"]["train"]["sequences"]
    if len(weights) != sequences:
        raise EspalierError(
            f"{root / store.WEIGHTS}: {len(weights):,} weights for {sequences:,} sequences; "
            "run `espalier stage weigh` again"
        )
    shards, dev = store.Shards(root, "train", manifest), store.Shards(root, "dev", manifest)
    dev_data = dev.read_all()
    observations = store.read_vocabulary(root)["observation"].to_list()
    kinds = observation_kinds(observations)
    with objective_of(root, shards, weights, kinds, options, progress, block_tokens) as (objective, layout):
        path = NO_PATH
        if options.rho1 == AUTO:
            path, initial = chosen_rho1(root, objective, layout, manifest, weights, options, progress)
            options = replace(options, rho1=path["chosen"], rho2=path["chosen_rho2"])
        else:
            initial = starting_point(
                root / options.initial if options.initial else None, layout, observations, manifest["labels"]
            )
        watcher = Watcher(dev_data, layout, options, progress, judge_of(root, manifest, layout, options))
        hashes = shards.described()["hashes"] | dev.described()["hashes"]
        key = key_of(root, options, manifest, hashes, block_tokens)
        keeper = Checkpoint(
            root, key, options.checkpoint_seconds, progress.say, watcher.seconds, watcher.go_on, also=watcher.kept
        )
        result = watcher.chosen(fit(objective, watcher, initial, options, keeper))
    info = description(result, layout, manifest, options) | {"decode": params.evaluate.decode}
    if path["points"]:
        info |= {"rho1_chosen": True, "path_iterations": path["iterations"]}
    if watcher.best:
        info["best_iteration"] = watcher.best["iteration"]
    model = CrfLabeller.compact(layout, result.theta, observations, manifest["labels"], manifest["templates"], info)
    try:
        store.write_model(root / store.CANDIDATE, model)
        store.write_json(root / store.RHO1_PATH, path)
        store.write_jsonl(root / store.TRACE, result.trace)
        times = zip(result.trace, watcher.seconds, strict=True)
        store.write_jsonl(root / store.TIMING, [{"iteration": r["iteration"], "seconds": s} for r, s in times])
    except BaseException as error:
        add_last_words(error, options, keeper)
        raise
    keeper.forget()
    progress.end(f"{len(model.theta):,} active weights of {layout.size:,}; {_stopped(result)}")
    return {"objective": result.objective, "iterations": result.iterations,
            "path_iterations": path.get("iterations", 0), "active": len(model.theta),
            "features": layout.size, "stop_reason": result.stop_reason, "rho1": options.rho1,
            "warm": bool(options.initial) and not path["points"]}  # fmt: skip


def _stopped(result: Result) -> str:
    """Why and when, short enough for a line of a terminal; the report has the whole sentence."""
    if result.stop_reason == "max_iterations":
        return f"limit of {result.iterations} iterations reached"
    if result.stop_reason == "patience":
        return f"no better on the development data, stopped after {result.iterations} iterations"
    return f"{result.stop_reason.replace('_', ' ')} after {result.iterations} iterations"
