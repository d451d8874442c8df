"""Train: features and weights become a model, by the engine's kernels."""

import time
from pathlib import Path

import numpy as np

from engine import decode, threads, warm_start
from engine.cache import source_hash
from engine.chain_objective import ChainObjective
from engine.data import Dataset
from engine.errors import EspalierError
from engine.layout import Layout, make_layout, observation_kinds
from engine.measures import token_error
from engine.model import Model
from engine.monitor import STOP_REASONS, Result
from engine.penalty import ElasticNet
from engine.solvers import SOLVERS, minimise
from tasks import plan, store
from tasks.params import Params, Train
from tasks.progress import Progress


def starting_point(path: Path | None, layout: Layout, observations: list[str], labels: list[str]) -> np.ndarray | None:
    """Weights of an earlier model where the new layout has them, zero elsewhere."""
    return None if path is None else warm_start.starting_point(Model.load(path), layout, observations, labels)


class Watcher:
    """Completes the records of a solver: development error into the trace, time into a list of its own."""

    def __init__(self, dev: Dataset, layout: Layout, options: Train, progress: Progress):
        self.dev, self.layout, self.options, self.progress = dev, layout, options, progress
        self.seconds: list[float] = []
        self.begin = time.perf_counter()

    def __call__(self, record: dict, theta: np.ndarray) -> None:
        self.seconds.append(time.perf_counter() - self.begin)
        record["dev_token_error"] = None
        if len(self.dev.labels):
            predicted = decode.viterbi(self.dev, self.layout, theta, self.options.sparse)
            record["dev_token_error"] = token_error(self.dev.labels, predicted)
        if record["iteration"]:
            self.progress.step(note=self._note(record))

    def _note(self, record: dict) -> str:
        active = sum(record[f"active_{name}"] for name in ("unigram", "start", "bigram"))
        dev = record["dev_token_error"]
        error = "" if dev is None else f", dev error {dev:.2%}"
        return f"objective {record['objective']:,.0f}, {active:,} active{error}"


def fit(dataset: Dataset, dev: Dataset, layout: Layout, theta0, options: Train, progress: Progress):
    """The result of the solver, and the seconds at which each iteration ended."""
    watcher = Watcher(dev, layout, options, progress)
    own = {"seed": options.seed} if "seed" in SOLVERS[options.solver].options else {}
    result = minimise(
        options.solver, ChainObjective(dataset, layout, options.sparse), ElasticNet(options.rho1, options.rho2),
        theta0, options.max_iterations, options.tolerance, on_iteration=watcher, **own,
    )  # fmt: skip
    return result, watcher.seconds


def description(result: Result, layout: Layout, manifest: dict, options: Train) -> dict:
    """What the model file says of itself."""
    return {
        "solver": options.solver, "penalty": {"rho1": options.rho1, "rho2": options.rho2}, "pairs": options.pairs,
        "start": options.start, "stop_reason": result.stop_reason, "iterations": result.iterations,
        "objective": result.objective, "features": layout.size, "nouns": manifest["nouns"],
        "kinds": manifest["kinds"], "data_version": manifest["data_version"], "code_version": source_hash(),
        "train_sequences": manifest["splits"]["train"]["sequences"],
        "train_tokens": manifest["splits"]["train"]["tokens"],
        **({"lists": manifest["lists"]} if manifest.get("lists") else {}),
    }  # fmt: skip


def main(root: Path, params: Params, progress: Progress) -> dict:
    options, manifest = params.train, store.whole_manifest(root)
    threads.set_threads(options.threads)
    plan.check(plan.main(root, params))
    progress.begin(options.max_iterations, "iteration")
    weights, sequences = store.read_weights(root), manifest["splits"]["train"]["sequences"]
    if len(weights) != sequences:
        raise EspalierError(
            f"{root / store.WEIGHTS}: {len(weights):,} weights for {sequences:,} sequences; "
            "run `espalier stage weigh` again"
        )
    dataset = store.read_dataset(root, "train", manifest, weights)
    dev = store.read_dataset(root, "dev", manifest)
    observations = store.read_vocabulary(root)["observation"].to_list()
    layout = make_layout(
        options.pairs, dataset, len(manifest["labels"]), observation_kinds(observations), options.start
    )
    initial = starting_point(
        root / options.initial if options.initial else None, layout, observations, manifest["labels"]
    )
    result, seconds = fit(dataset, dev, layout, initial, options, progress)
    info = description(result, layout, manifest, options)
    model = Model.compact(layout, result.theta, observations, manifest["labels"], manifest["templates"], info)
    model.save(root / store.CANDIDATE)
    store.write_jsonl(root / store.TRACE, result.trace)
    timing = [{"iteration": r["iteration"], "seconds": s} for r, s in zip(result.trace, seconds, strict=True)]
    store.write_jsonl(root / store.TIMING, timing)
    progress.end(f"{len(model.theta):,} active weights of {layout.size:,}; {STOP_REASONS[result.stop_reason]}")
    return {"objective": result.objective, "iterations": result.iterations, "active": len(model.theta),
            "features": layout.size, "stop_reason": result.stop_reason}  # fmt: skip
