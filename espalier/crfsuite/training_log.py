"""What a training tells, iteration by iteration."""

import time
from collections import namedtuple
from fractions import Fraction

import numpy as np

from espalier.engine.data.dataset import Dataset
from espalier.engine.decoding import decode
from espalier.engine.weights.layout import Layout

LabelScore = namedtuple("LabelScore", "match model ref precision recall f1")


class TrainingLog:
    """What a training told: a dict for each iteration, and all lines."""

    def __init__(self):
        self.iterations: list[dict] = []
        self.log: list[str] = []
        self.featgen_num_features = self.featgen_seconds = self.training_seconds = self.storing_seconds = None
        self.stop_reason: str | None = None

    @property
    def last_iteration(self) -> dict | None:
        return self.iterations[-1] if self.iterations else None

    @property
    def last_log(self) -> str:
        return self.log[-1] if self.log else ""


class Watch:
    """Hears of each iteration: keeps it in the log, tests it on what was held out, tells the trainer's hooks."""

    def __init__(self, trainer, layout: Layout, labels: list[str], tested: Dataset | None):
        self.trainer, self.layout, self.labels, self.tested = trainer, layout, labels, tested
        self.before = time.perf_counter()

    def __call__(self, record: dict, theta: np.ndarray) -> None:
        if not record["iteration"]:
            return
        now = time.perf_counter()
        info = {
            "num": record["iteration"], "loss": record["objective"], "feature_norm": float(np.linalg.norm(theta)),
            "error_norm": record.get("gradient_norm", 0.0), "active_features": int(np.count_nonzero(theta)),
            "time": now - self.before, "scores": {},
        }  # fmt: skip
        if self.tested is not None:
            info |= self._tested(theta)
        self.before = now
        self.trainer.logparser.iterations.append(info)
        self.trainer._tell(self.trainer.on_iteration, iteration_text(info), info)

    def _tested(self, theta: np.ndarray) -> dict:
        """How well the weights do on the held-out data, label by label."""
        right, found = self.tested.labels, decode.viterbi(self.tested, self.layout, theta)
        hit = right == found
        size = len(self.labels)
        match, model, ref = (np.bincount(ids, minlength=size) for ids in (right[hit], found, right))
        scores = {name: label_score(*counts) for name, *counts in zip(self.labels, match, model, ref, strict=True)}
        whole = np.logical_and.reduceat(hit, self.tested.offsets[:-1])
        items, sequences = Fraction(int(hit.sum()), len(hit)), Fraction(int(whole.sum()), len(whole))
        averages = {
            f"avg_{part}": sum(getattr(score, part) or 0.0 for score in scores.values()) / size
            for part in ("precision", "recall", "f1")
        }
        return {"scores": scores, **averages, "item_accuracy": items, "item_accuracy_float": float(items),
                "instance_accuracy": sequences, "instance_accuracy_float": float(sequences)}  # fmt: skip


def label_score(match: int, model: int, ref: int) -> LabelScore:
    """Precision, recall and F1 of a label, None for one that does not occur."""
    counts = int(match), int(model), int(ref)
    if not ref:
        return LabelScore(*counts, None, None, None)
    precision, recall = (match / model if model else 0.0), match / ref
    return LabelScore(*counts, precision, recall, 2 * precision * recall / (precision + recall) if match else 0.0)


def iteration_text(info: dict) -> str:
    lines = [f"***** Iteration #{info['num']} *****", f"Loss: {info['loss']:.6f}",
             f"Feature norm: {info['feature_norm']:.6f}", f"Error norm: {info['error_norm']:.6f}",
             f"Active features: {info['active_features']}",
             f"Seconds required for this iteration: {info['time']:.3f}"]  # fmt: skip
    if info["scores"]:
        lines.append("Performance by label (#match, #model, #ref) (precision, recall, F1):")
        for name, score in info["scores"].items():
            parts = ", ".join("******" if part is None else f"{part:.4f}" for part in score[3:])
            lines.append(f"    {name}: ({score.match}, {score.model}, {score.ref}) ({parts})")
        averages = ", ".join(f"{info[f'avg_{part}']:.6f}" for part in ("precision", "recall", "f1"))
        lines.append(f"Macro-average precision, recall, F1: ({averages})")
        lines.append(f"Item accuracy: {info['item_accuracy_float']:.4f}")
        lines.append(f"Instance accuracy: {info['instance_accuracy_float']:.4f}")
    return "\n".join(lines) + "\n\n"
