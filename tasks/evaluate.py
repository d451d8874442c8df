"""Evaluate: the candidate on the test data; metrics, predictions and curves."""

from pathlib import Path

import numpy as np
import polars as pl

from engine import decode
from engine.data import Dataset, select
from engine.errors import EspalierError
from engine.layout import FAMILIES
from engine.measures import calibration, conlleval, is_chunk_scheme, sequence_error, token_error
from engine.model import Model
from tasks import store
from tasks.params import Params
from tasks.progress import Progress
from tasks.risk import excess_risk
from tasks.tagging import dataset_of, renumber
from tasks.template import Labels


def labelled(model: Model, tokens: pl.DataFrame) -> Dataset:
    """The tokens by the templates, vocabulary and labels of a model that was trained elsewhere."""
    return dataset_of(model, tokens)._replace(labels=Labels(model.labels, []).ids(tokens))


def log_losses(model: Model, data: Dataset) -> np.ndarray:
    """-log p(y | x) of each sequence all of whose labels the model knows, in nats."""
    unknown = np.add.reduceat((data.labels < 0).astype(np.int64), data.offsets[:-1])
    known = select(data, np.flatnonzero(unknown == 0))
    return -decode.sequence_log_probability(known, model.layout, model.theta)


def active_counts(model: Model) -> dict[str, int]:
    bounds = [0, *model.layout.bounds(), model.layout.size]
    return {f"active_{name}": b - a for name, a, b in zip(FAMILIES, bounds, bounds[1:], strict=False)}


def error_figures(gold: list[str], predicted: list[str], offsets: np.ndarray) -> dict:
    """Error rates, and conlleval scores where the labels are chunks."""
    figures = {
        "token_error": token_error(np.array(gold), np.array(predicted)),
        "sequence_error": sequence_error(np.array(gold), np.array(predicted), offsets),
    }
    if is_chunk_scheme(sorted({*gold, *predicted})):
        overall, by_kind = conlleval(gold, predicted, offsets)
        figures |= {name: overall[name] for name in ("precision", "recall", "f1")}
        figures["chunks"] = by_kind
    return figures


def model_figures(model: Model) -> dict:
    """What the model file says of its training."""
    keys = ("objective", "stop_reason", "iterations", "features", "train_sequences", "train_tokens")
    return {key: model.info[key] for key in keys} | active_counts(model) | {"labels": len(model.labels)}


def loss_figures(model: Model, data: Dataset, reference: Model | None, reference_data: Dataset | None) -> dict:
    """Log-loss per token and per sequence; excess over a reference model when one is given."""
    losses = log_losses(model, data)
    if not len(losses):
        raise EspalierError("no test sequence has only labels that occur in training: check the split or the labels")
    tokens = sum(np.diff(data.offsets)[np.add.reduceat((data.labels < 0).astype(int), data.offsets[:-1]) == 0])
    figures = {"log_loss": float(losses.sum() / tokens), "sequence_log_loss": float(losses.mean()),
               "sequences_with_unknown_labels": int(len(data.weights) - len(losses))}  # fmt: skip
    if reference is not None:
        other = log_losses(reference, reference_data)
        if len(other) != len(losses):
            raise EspalierError(
                "evaluate.reference knows other labels than the candidate: choose a model of the same task"
            )
        figures["excess_log_loss"] = float((losses.sum() - other.sum()) / tokens)
    return figures


def confusion_rows(gold: list[str], predicted: list[str]) -> list[tuple]:
    """(label, predicted, count), sorted."""
    frame = (
        pl.DataFrame({"label": gold, "predicted": predicted})
        .group_by("label", "predicted")
        .len()
        .sort("label", "predicted")
    )
    return list(frame.iter_rows())


def write_curves(root: Path, trace: list[dict], bins: list[dict], confusions: list[tuple]) -> None:
    learning = ["iteration", "objective", "active_unigram", "active_bigram", "dev_token_error"]
    folder = root / store.CURVES
    store.write_csv(folder / "learning.csv", learning, ([row[name] for name in learning] for row in trace))
    names = ["bin_low", "bin_high", "confidence", "accuracy", "count"]
    store.write_csv(folder / "calibration.csv", names, ([row[name] for name in names] for row in bins if row["count"]))
    store.write_csv(folder / "confusion.csv", ["label", "predicted", "count"], confusions)


def main(root: Path, params: Params, progress: Progress) -> dict:
    progress.begin(4, "step")
    manifest, trace = store.whole_manifest(root), store.read_jsonl(root / store.TRACE)
    tokens, info = store.read_tokens(root, "test")
    observations = store.read_vocabulary(root)["observation"].to_list()
    model = Model.load(root / store.CANDIDATE)
    reference = Model.load(root / params.evaluate.reference) if params.evaluate.reference else None
    test = store.read_dataset(root, "test", manifest)
    if len(tokens) != len(test.labels):
        raise EspalierError(
            f"{root / store.FEATURES}: {len(test.labels):,} test positions, the tokens have {len(tokens):,}; "
            "run `espalier stage template` again"
        )
    data = renumber(test, model, observations, manifest["labels"])
    other = labelled(reference, tokens) if reference else None
    predicted = decode.viterbi(data, model.layout, model.theta)
    progress.step(note="decoded")
    marginals = decode.marginals(data, model.layout, model.theta)
    confidence = marginals[np.arange(len(predicted)), predicted]
    gold_probability = np.where(data.labels >= 0, marginals[np.arange(len(predicted)), np.maximum(data.labels, 0)], 0.0)
    progress.step(note="marginals")
    gold, guess = tokens["label"].to_list(), [model.labels[i] for i in predicted]
    error, bins = calibration(confidence, predicted == data.labels, params.evaluate.bins)
    metrics = error_figures(gold, guess, test.offsets) | model_figures(model)
    metrics |= loss_figures(model, data, reference, other)
    metrics |= {"calibration_error": error, "test_tokens": len(gold), "test_sequences": len(test.weights)}
    if info.get("truth"):
        metrics |= excess_risk(info["truth"], model)
    progress.step(note="measured")
    columns = {"label": gold, "predicted": guess, "confidence": confidence, "gold_probability": gold_probability}
    predictions = tokens.drop("label").with_columns(**{name: pl.Series(values) for name, values in columns.items()})
    store.write_arrow(root / store.PREDICTIONS, predictions, {"nouns": info["nouns"]})
    write_curves(root, trace, bins, confusion_rows(gold, guess))
    store.write_json(root / store.METRICS, metrics)
    token, sequence = metrics["token_error"], metrics["sequence_error"]
    progress.end(f"{info['nouns']['label']} error {token:.2%}, {info['nouns']['sequence']} error {sequence:.2%}")
    return {
        name: metrics[name]
        for name in ("token_error", "sequence_error", "log_loss", "f1", "excess_risk")
        if name in metrics
    }
