"""Cross-validation: the training data of a project in folds, each of which is the test data of a model of the others.

A fold goes through the same stages as a run, in a folder of its own, so that its figures are those that a run would
have. Sequences with the same input are in the same fold.
"""

import shutil
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.tasks import evaluate, store, template, train, weigh
from espalier.tasks.ingest import corpus_of, input_fractions, partly_labelled, pieces, selected
from espalier.tasks.judging import headline
from espalier.tasks.params import Ingest, Params
from espalier.tasks.progress import Progress
from espalier.tasks.shapes import active_of
from espalier.tasks.sources import Blocks, Corpus

STAGES = {"template": template.main, "weigh": weigh.main, "train": train.main, "evaluate": evaluate.main}
FIGURES = ("token_error", "sequence_error", "precision", "recall", "log_loss")  # beside what the task is judged by


def check(folds: int) -> None:
    """Refuse a number of folds that cannot be, before anything is read."""
    if folds < 2:
        raise EspalierError(f"--folds is {folds}: expected at least 2, one to test on and one to train on")


def fold_numbers(blocks: Blocks, folds: int, seed: int) -> np.ndarray:
    """The fold of each sequence, int64 [N]; -1 for those that are only partly labelled, which always train.

    Inputs are ordered by a hash of them and cut into `folds` runs of as many distinct ones.
    """
    found = [(input_fractions(block, f"cv{seed}"), partly_labelled(block)) for block in blocks()]
    fractions = np.concatenate([np.empty(0), *(one for one, _ in found)])
    partial = np.concatenate([np.empty(0, bool), *(one for _, one in found)])
    distinct, rank = np.unique(fractions[~partial], return_inverse=True)
    if len(distinct) < folds:
        raise EspalierError(
            f"--folds is {folds} and there are {len(distinct)} different fully labelled sequences: expected at most as "
            "many folds; give more data or ask for fewer"
        )
    numbers = np.full(len(fractions), -1)
    numbers[~partial] = rank * folds // len(distinct)
    return numbers


def main(root: Path, params: Params, progress: Progress, folds: int, seed: int, folder: Path) -> dict:
    """The figures of each fold, their mean and standard deviation; `folder` is made for it and gone afterwards."""
    check(folds)
    params = _without_earlier_models(params, progress)
    corpus, _ = corpus_of(root, params.ingest)
    if corpus.parts.pop("test", None):
        progress.say("ingest.test_path is left alone: the folds are those of the training data")
    progress.begin(folds * (len(STAGES) + 1), "stage")
    numbers = fold_numbers(corpus.parts["train"], folds, seed)
    if partial := int((numbers < 0).sum()):
        progress.say(f"{partial:,} partly labelled sequences train in every fold and are tested in none")
    shutil.rmtree(folder, ignore_errors=True)
    rows, heard = [], set()
    try:
        for fold in range(folds):
            rows.append(_of_fold(root, params, corpus, numbers, fold, folder, _Forwarded(progress, fold, folds, heard)))
            shutil.rmtree(folder)
            progress.say(f"fold {fold + 1} of {folds}: {_told(rows[-1], rows[-1]['measure'])}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    keys = [key for key in (rows[0]["measure"], *FIGURES, "active") if all(row.get(key) is not None for row in rows)]
    mean = {key: fmean(row[key] for row in rows) for key in keys}
    spread = {key: stdev([row[key] for row in rows]) for key in keys}
    figures = {"folds": rows, "mean": mean, "spread": spread, "measure": rows[0]["measure"], "seed": seed,
               "nouns": corpus.nouns}  # fmt: skip
    progress.end(f"{folds} folds: {_told(mean, figures['measure'])}")
    return figures


def _without_earlier_models(params: Params, progress: Progress) -> Params:
    """A copy of the parameters by which no model comes in that has seen the test data of a fold."""
    params = deepcopy(params)
    if params.train.initial:
        progress.say("train.initial is left out: that model has seen the data of every fold")
    params.train.initial = params.train.checkpoint_seconds = params.evaluate.reference = None
    return params


def _of_fold(
    root: Path, params: Params, corpus: Corpus, numbers: np.ndarray, fold: int, folder: Path, progress: "_Forwarded"
) -> dict:
    """The figures of the model of all other folds on this one."""
    train_on, test_on = (selected(corpus.parts["train"], chosen) for chosen in (numbers != fold, numbers == fold))
    parts = replace(corpus, parts=corpus.parts | {"train": train_on, "test": test_on})
    progress.stage("ingest")
    counts = _write(folder, parts, params.ingest)
    for name, stage in STAGES.items():
        progress.stage(name)
        stage(folder, params, progress, *([root] if name == "template" else []))
    metrics = store.read_metrics(folder)
    shown = (metrics["measure"], *FIGURES)
    active = sum(active_of(metrics).values())
    return {"fold": fold + 1, "measure": metrics["measure"], **{key: metrics.get(key) for key in shown},
            "sequences": counts["test"], "train_sequences": counts["train"], "active": active}  # fmt: skip


def _write(folder: Path, corpus: Corpus, options: Ingest) -> dict[str, int]:
    """The token tables of a fold; how many sequences each part has."""
    counts = dict.fromkeys(store.SPLITS, 0)
    with ExitStack() as stack:
        writers = {name: stack.enter_context(store.token_writer(folder, name, corpus.info())) for name in store.SPLITS}
        for name, piece in pieces(corpus, options):
            writers[name](piece)
            counts[name] += piece["sequence"].n_unique()
        if not counts["train"]:
            raise EspalierError("no sequence is left to train on in a fold: lower ingest.dev_share, or give more data")
    return counts


def _told(figures: dict, measure: str) -> str:
    return f"{headline.HEADS[measure]} {figures[measure]:.2%}"


class _Forwarded(Progress):
    """Stages of a fold, told to who listens to the whole; what one says in every fold is said once."""

    def __init__(self, whole: Progress, fold: int, folds: int, heard: set[str]):
        self.whole, self.of, self.heard, self.name = whole, f"fold {fold + 1} of {folds}", heard, ""

    def stage(self, name: str) -> None:
        self.name = name
        self.whole.step(1, f"{self.of}, {name}")

    def step(self, n=1, note=""):
        self.whole.step(0, f"{self.of}, {self.name}" + (f": {note}" if note else ""))

    def say(self, text):
        if text not in self.heard:
            self.heard.add(text)
            self.whole.say(f"{self.name}: {text}")
