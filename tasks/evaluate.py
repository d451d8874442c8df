"""Evaluate: the candidate on the test data; metrics, predictions and curves."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families.labeller import Labeller
from espalier.engine.labels import abstention
from espalier.engine.labels.measures import (
    EDIT_ERROR,
    F1,
    Measure,
    bootstrap,
    calibration,
    measure_of,
    sequence_error,
    token_error,
)
from espalier.engine.labels.spans import scores
from espalier.tasks import store
from espalier.tasks.answering.tagging import Numbering, numbered, numbering
from espalier.tasks.judging import headline
from espalier.tasks.judging.kept_answers import Answers, answers_of, keep, labelled, losses_of, named
from espalier.tasks.judging.likelihood import figures as likelihood_figures
from espalier.tasks.judging.likelihood import losses_of_inputs
from espalier.tasks.judging.risk import excess_risk
from espalier.tasks.judging.second_looks import decoders, in_training, overlap
from espalier.tasks.judging.slices import by_frequency, by_length, seen_in_training, with_intervals
from espalier.tasks.params import Params
from espalier.tasks.progress import Progress

# Heads of the curve of a model that has no probabilities to calibrate.
CALIBRATION = ("bin_low", "bin_high", "confidence", "accuracy", "count", "accuracy_low", "accuracy_high")


class Measured(NamedTuple):
    """What a model says of some of the test sequences: T positions, N sequences, in their order.

    Plain arrays without anything of the others in them, so that a process elsewhere can make a part and send it.
    """

    predicted: np.ndarray  # int32 [T], labels in the numbering of the model
    confidence: np.ndarray  # float64 [T], probability of the predicted label; like the next two NaN if it has none
    gold_probability: np.ndarray  # float64 [T], of the right label; 0 where the model does not know it
    losses: np.ndarray  # float64 [N], -log p(y | x) in nats; NaN where the model does not know all of y
    lengths: np.ndarray  # int64 [N]


def measure(data: Dataset, model: Labeller, predicted: np.ndarray | None = None) -> Measured:
    """The part of one shard, which is in the numbering of the model; `predicted` are its labels if they are known."""
    predicted, lengths = model.decoded(data) if predicted is None else predicted, np.diff(data.offsets)
    if "probability" not in model.can:
        return Measured(predicted, *np.full((2, len(predicted)), np.nan), np.full(len(lengths), np.nan), lengths)
    at, known, marginals = np.arange(len(data.labels)), data.labels >= 0, model.marginals(data)
    right = np.where(known, marginals[at, np.maximum(data.labels, 0)], 0.0)
    return Measured(predicted, marginals[at, predicted], right, losses_of(data, model), lengths)


def merge(parts: Iterable[Measured]) -> Measured:
    """Parts of neighbouring sequences as one; figures made of it do not depend on where the data were cut."""
    return Measured(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def error_figures(judged_by: Measure, gold: list[str], predicted: list[str], offsets: np.ndarray) -> dict:
    """What the task is judged by with its interval, error rates, and scores of entities where labels mark them.

    Where labels spell a string, a sequence is wrong when its string is.
    """
    counts = judged_by.counts(gold, predicted, offsets)
    figures = {
        "measure": judged_by.name,
        "token_error": token_error(np.array(gold), np.array(predicted)),
        "sequence_error": sequence_error(np.array(gold), np.array(predicted), offsets),
    }
    if judged_by.name == EDIT_ERROR:
        figures["sequence_error"] = float(np.mean(counts.over > 0))
    if judged_by.name == F1.name:
        overall, figures["chunks"] = scores(gold, predicted, offsets)
        figures |= {name: overall[name] for name in ("precision", "recall")}
    names = (judged_by.name, f"{judged_by.name}_low", f"{judged_by.name}_high")
    return figures | dict(zip(names, bootstrap(counts), strict=True))


def model_figures(model: Labeller) -> dict:
    """What the model file says of its training."""
    keys = ("objective", "stop_reason", "iterations", "features", "train_sequences", "train_tokens")
    some = {key: model.info[key] for key in ("path_iterations", "best_iteration") if key in model.info}
    return {key: model.info[key] for key in keys} | some | model.sizes() | {"labels": len(model.labels)}


def loss_figures(found: Measured, other: np.ndarray | None = None) -> dict:
    """Log-loss per token and per sequence; excess over the losses of a reference model when they are given."""
    known = ~np.isnan(found.losses)
    losses, tokens = found.losses[known], int(found.lengths[known].sum())
    if not len(losses):
        raise EspalierError("no test sequence has only labels that occur in training: check the split or the labels")
    figures = {"log_loss": float(losses.sum() / tokens), "sequence_log_loss": float(losses.mean()),
               "sequences_with_unknown_labels": int((~known).sum())}  # fmt: skip
    if other is not None:
        if not np.array_equal(np.isnan(other), ~known):
            raise EspalierError(
                "evaluate.reference knows other labels than the candidate: choose a model of the same task"
            )
        figures["excess_log_loss"] = float((losses.sum() - other[known].sum()) / tokens)
    return figures


def abstention_figures(
    judged_by: Measure, gold: list[str], guess: list[str], confidence: np.ndarray, offsets: np.ndarray
) -> dict:  # fmt: skip
    """What is right of labels, or of entities where the task is judged by them, that are sure enough."""
    of = abstention.ENTITIES if judged_by.name == F1.name else abstention.TOKENS
    return {"of": of, "rows": abstention.curve(gold, guess, confidence, offsets, of == abstention.ENTITIES)}


def confusion_rows(gold: list[str], predicted: list[str]) -> list[tuple]:
    """(label, predicted, count), sorted."""
    frame = (
        pl.DataFrame({"label": gold, "predicted": predicted})
        .group_by("label", "predicted")
        .len()
        .sort("label", "predicted")
    )
    return list(frame.iter_rows())


def write_curves(root: Path, trace: list[dict], confusions: list[tuple], **slices: list[dict]) -> None:
    learning = ["iteration", "objective", "active_unigram", "active_bigram", "dev_token_error"]
    if trace and "active_trigram" in trace[-1]:
        learning.insert(-1, "active_trigram")
    folder = root / store.CURVES
    learnt = trace if len(trace) > 1 else []  # one point is no curve
    store.write_csv(folder / "learning.csv", learning, ([row[name] for name in learning] for row in learnt))
    store.write_csv(folder / "confusion.csv", ["label", "predicted", "count"], confusions)
    for name, rows in slices.items():
        heads = list(rows[0]) if rows else list(CALIBRATION)
        store.write_csv(folder / f"{name}.csv", heads, (row.values() for row in rows))


def numbers_of(root: Path, manifest: dict, model: Labeller) -> Numbering:
    """What the model calls the observations and labels of the features."""
    return numbering(model, store.read_vocabulary(root)["observation"].to_list(), manifest["labels"])


def parts_of(root: Path, manifest: dict, model: Labeller, params: Params, progress: Progress) -> Iterator[Measured]:
    """The parts of the test shards: on the workers of `compute.cluster` where there are several, else one at a time."""
    if params.compute.cluster and len(manifest["splits"]["test"]["shards"]) > 1:
        from espalier.tasks.cluster.testing import measured

        shards = store.Shards(root, "test", manifest)
        for part in measured(params.compute.cluster, root, shards, params.compute.threads, progress.say):
            yield Measured(*part)
            progress.step(note="decoded by a worker")
        return
    numbers = numbers_of(root, manifest, model)
    for shard in store.read_shards(root, "test", manifest):
        yield measure(numbered(shard, numbers), model)
        progress.step(note="decoded")


def likelihood(root: Path, manifest: dict, model: Labeller) -> dict:
    """How likely the inputs of all data are; those to compare with are not trained on, where there are such."""
    splits, numbers = manifest["splits"], numbers_of(root, manifest, model)
    reference = "dev" if splits["dev"]["sequences"] else "train"
    parts = {}
    for name in (reference, "test", "unlabelled"):
        shards = store.read_shards(root, name, manifest) if splits[name]["sequences"] else []
        parts[name] = losses_of_inputs((numbered(shard, numbers) for shard in shards), model)
    return likelihood_figures(parts, reference)


def main(root: Path, params: Params, progress: Progress) -> dict:
    manifest, trace = store.read_manifest(root), store.read_trace(root)
    progress.begin(len(manifest["splits"]["test"]["shards"]) + 2, "step")
    tokens, info = store.read_tokens(root, "test")
    model = store.read_model(root / store.CANDIDATE)
    reference = store.read_model(root / params.evaluate.reference) if params.evaluate.reference else None
    probable = "probability" in model.can
    if reference:
        model.require("probability")
        reference.require("probability")
    found = merge(parts_of(root, manifest, model, params, progress))
    if len(tokens) != len(found.predicted):
        raise EspalierError(
            f"{root / store.FEATURES}: {len(found.predicted):,} test positions, the tokens have {len(tokens):,}; "
            "run `espalier stage template` again"
        )
    other = losses_of(labelled(reference, tokens), reference) if reference else None
    gold, guess = tokens["label"].to_list(), named(model, found.predicted)
    offsets = np.append(0, np.cumsum(found.lengths))
    correct = np.array([a == b for a, b in zip(gold, guess, strict=True)], bool)
    judged_by = measure_of(info.get("measure"), {*gold, *model.labels})
    metrics = error_figures(judged_by, gold, guess, offsets) | model_figures(model)
    metrics |= {"test_tokens": len(gold), "test_sequences": len(found.lengths)}
    bins: list[dict] = []
    if probable:
        error, bins = calibration(found.confidence, correct, params.evaluate.bins)
        bins, _ = with_intervals(bins, found.confidence, correct, offsets)
        metrics |= loss_figures(found, other) | {"calibration_error": error}
        metrics["abstention"] = abstention_figures(judged_by, gold, guess, found.confidence, offsets)
    if probable and info.get("truth"):
        metrics |= excess_risk(info["truth"], model)
    if "likelihood" in model.can:
        metrics["likelihood"] = likelihood(root, manifest, model)
    figures = partial(error_figures, judged_by)
    metrics["overlap"] = overlap(in_training(root, tokens), gold, guess, offsets, figures)
    metrics["decoders"] = decoders(root, manifest, model, numbers_of(root, manifest, model), figures)
    seen, window = seen_in_training(root, tokens)
    slices = {"calibration": [row for row in bins if row["count"]], "lengths": by_length(~correct, offsets),
              "frequencies": by_frequency(~correct, seen, offsets)}  # fmt: skip
    progress.step(note="measured")
    nothing = [None] * len(gold)  # of a model without probabilities
    columns = {"label": gold, "predicted": guess, "confidence": found.confidence if probable else nothing,
               "gold_probability": found.gold_probability if probable else nothing, "seen": seen}  # fmt: skip
    kinds = {"confidence": pl.Float64, "gold_probability": pl.Float64}
    made = {name: pl.Series(values, dtype=kinds.get(name)) for name, values in columns.items()}
    predictions = tokens.drop("label").with_columns(**made)
    store.write_arrow(root / store.PREDICTIONS, predictions, {"nouns": info["nouns"], "window": window})
    write_curves(root, trace, confusion_rows(gold, guess), **slices)
    store.write_json(root / store.METRICS, metrics)
    keep(root, root / store.CANDIDATE, tokens, Answers(guess, found.losses if probable else None))
    progress.end(headline.in_one_line(metrics, info["nouns"]))
    told = (*headline.shown(judged_by.name), "log_loss", "excess_risk")
    return {name: metrics[name] for name in told if name in metrics}


def other_figures(root: Path, path: Path) -> dict:
    """Another model on the test data of now, by its own features; what cannot be compared is not among them."""
    model, (tokens, info) = store.read_model(path), store.read_tokens(root, "test")
    found = answers_of(root, path, tokens, "probability" in model.can)
    gold, offsets = tokens["label"].to_list(), store.sequence_offsets(tokens["sequence"].to_numpy())
    judged_by = measure_of(info.get("measure"), {*gold, *store.read_manifest(root)["labels"]})
    figures = error_figures(judged_by, gold, found.labels, offsets) | model_figures(model)
    figures |= {"test_sequences": len(offsets) - 1}
    if found.losses is not None and not np.isnan(found.losses).any():  # a label that it does not know has none
        loss = float(found.losses.sum())
        figures |= {"log_loss": loss / len(gold), "sequence_log_loss": loss / (len(offsets) - 1)}
    return figures
