"""Training by relative counts: one look at the labelled data (hmm)."""

import time

import numpy as np

from espalier.engine.families import hmm
from espalier.engine.labels.measures import token_error
from espalier.engine.weights.layout import UNIGRAM
from espalier.tasks.training.job import Job, Trained
from espalier.tasks.training.plan import PROCESS

COUNTED = "counted"  # why it stopped: see engine.optimise.monitor.STOP_REASONS
SECONDS_A_CELL = 2e-8  # to count one observation at one position


def plan(job: Job) -> dict:
    """What it takes: the data, and a number for each observation and label at most, however few are seen together."""
    manifest, n_labels = job.manifest, len(job.labels)
    train = manifest["splits"]["train"]
    cells, emitting = train["tokens"] * len(manifest["columns"]), int(np.sum(job.kinds & UNIGRAM > 0))
    virtual = {"unigram": emitting * n_labels, "start": n_labels, "bigram": n_labels**2}
    most = min(virtual["unigram"], cells) + n_labels**2 + (len(manifest["columns"]) + 3) * n_labels
    needed = {
        "process": PROCESS, "features": 3 * 4 * cells + 40 * train["tokens"], "weights": 7 * 8 * most,
        "vocabulary": 2 * job.text_bytes + 84 * len(job.kinds),
    }  # fmt: skip
    return {
        "sequences": train["sequences"], "tokens": train["tokens"], "labels": n_labels, "observations": len(job.kinds),
        "virtual_features": virtual | {"all": sum(virtual.values())}, "features": most, "exact": False,
        "bytes": needed | {"all": sum(needed.values())}, "seconds_per_iteration": SECONDS_A_CELL * cells,
    }  # fmt: skip


def fit(job: Job) -> Trained:
    """The model of the counts; its trace is one record."""
    begin, options = time.perf_counter(), job.params.hmm
    job.progress.begin(1, "count")
    train, dev = job.shards().read_all(job.weights), job.shards("dev").read_all()
    job.check_labels(train)
    observations = job.observations()
    info = job.described(smoothing=options.smoothing, rare=options.rare, stop_reason=COUNTED, iterations=1)
    model = hmm.fit(
        train, observations, job.templates_of, job.labels, job.manifest["templates"], info, options.smoothing,
        options.rare,
    )  # fmt: skip
    error = token_error(dev.labels, model.best(model.renumbered(dev, observations))) if len(dev.labels) else None
    record = {"iteration": 1, "objective": model.info["objective"], **model.sizes(), "dev_token_error": error}
    seconds = time.perf_counter() - begin
    job.progress.record(record | {"seconds": seconds})
    job.progress.step(note="counted" if error is None else f"counted, dev error {error:.2%}")
    figures = {
        "objective": model.info["objective"], "iterations": 1, "active": len(model.theta),
        "features": model.info["features"], "stop_reason": COUNTED, "warm": False,
    }  # fmt: skip
    return Trained(model, [record], [seconds], figures, f"{len(model.theta):,} probabilities, counted")
