"""What a training tells, iteration by iteration."""

import time
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from espalier.engine.data.dataset import Dataset
from espalier.engine.decoding import decode
from espalier.engine.weights.layout import Layout

if TYPE_CHECKING:
    from espalier.crfsuite.trainer import Trainer


class LabelScore(NamedTuple):
    """How well a label is found: how often rightly, how often at all, how often it is there, and their shares."""

    match: int
    model: int
    ref: int
    precision: float | None
    recall: float | None
    f1: float | None


class TrainingLog:
    """What a training told: a dict for each iteration, and all lines."""

    def __init__(self) -> None:
        self.iterations: list[dict[str, Any]] = []
        self.log: list[str] = []
        self.featgen_num_features: int | None = None
        self.featgen_seconds: float | None = None
        self.training_seconds: float | None = None
        self.storing_seconds: float | None = None
        self.stop_reason: str | None = None

    @property
    def last_iteration(self) -> dict[str, Any] | None:
        return self.iterations[-1] if self.iterations else None

    @property
    def last_log(self) -> str:
        return self.log[-1] if self.log else ""


class Watch:
    """Hears of each iteration: keeps it in the log, tests it on what was held out, tells the trainer's hooks."""

    def __init__(self, trainer: "Trainer", layout: Layout, labels: list[str], tested: Dataset | None) -> None:
        self.trainer, self.layout, self.labels, self.tested = trainer, layout, labels, tested
        self.before = time.perf_counter()

    def __call__(self, record: dict[str, Any], theta: npt.NDArray[np.float64]) -> None:
        if not record["iteration"]:
            return
        now = time.perf_counter()
        info: dict[str, Any] = {
            "num": record["iteration"], "loss": record["objective"], "feature_norm": float(np.linalg.norm(theta)),
            "error_norm": record.get("gradient_norm", 0.0), "active_features": int(np.count_nonzero(theta)),
            "time": now - self.before, "scores": {},
        }  # fmt: skip
        if self.tested is not None:
            info |= self._scores(self.tested, theta)
        self.before = now
        self.trainer._log().iterations.append(info)
        self.trainer._tell(self.trainer.on_iteration, iteration_text(info), info)

    def _scores(self, tested: Dataset, theta: npt.NDArray[np.float64]) -> dict[str, Any]:
        """How well the weights do on the held-out data, label by label."""
        right, found = tested.labels, decode.viterbi(tested, self.layout, theta)
        hit = right == found
        size = len(self.labels)
        match, model, ref = (np.bincount(ids, minlength=size) for ids in (right[hit], found, right))
        scores = {name: label_score(*counts) for name, *counts in zip(self.labels, match, model, ref, strict=True)}
        whole = np.logical_and.reduceat(hit, tested.offsets[:-1])
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


def iteration_text(info: dict[str, Any]) -> str:
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
