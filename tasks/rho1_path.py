"""The path of rho1: models of ever smaller penalties, each from the one before, and the choice by development data.

`espalier sweep` follows it to show it, a training with `train.rho1: auto` to go on from the point that it chooses.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engine import decode
from engine.data import Dataset, select
from engine.errors import EspalierError
from engine.layout import FAMILIES, Layout
from engine.measures import chunks, is_chunk_scheme, sequence_errors
from engine.path import Point, grid, largest_rho1, path
from engine.penalty import ElasticNet
from tasks import store
from tasks.params import Train
from tasks.progress import Progress

POINTS = 10
LARGEST, SMALLEST = 10.0, 0.05  # losses are sums over sequences, so a good rho1 depends little on the size of the data
SPAN = 200.0  # of the largest rho1 to the smallest at least
TIGHTER = 0.1  # of train.tolerance: a point that starts near its optimum gains little in each iteration
ACTIVE = tuple(f"active_{name}" for name in FAMILIES)


# Measuring ------------------------------------------------------------------------------------------


def ratio(over: np.ndarray, under: np.ndarray) -> tuple[float, float]:
    """sum(over) / sum(under) of independent sequences, and its standard error (of a ratio estimator)."""
    total, count = float(np.sum(under)), len(under)
    value = float(np.sum(over)) / total if total else 0.0
    spread = float(np.sum((over - value * under) ** 2))
    return value, float(np.sqrt(spread * count / (count - 1)) / total) if count > 1 and total else 0.0


def chunk_counts(gold: list[str], predicted: list[str], offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each sequence twice the chunks that are right, and the right and the predicted ones: F1 is their ratio."""
    right, said = set(chunks(gold, offsets)), set(chunks(predicted, offsets))
    hits, all_chunks = Counter(c.sequence for c in right & said), Counter(c.sequence for c in right)
    all_chunks.update(c.sequence for c in said)
    each = range(len(offsets) - 1)
    return np.array([2.0 * hits[n] for n in each]), np.array([float(all_chunks[n]) for n in each])


class Development:
    """The development data, and what a model is worth on them."""

    def __init__(self, data: Dataset, gold: list[str], labels: list[str], layout: Layout, options: Train):
        self.data, self.gold, self.labels, self.layout, self.options = data, gold, labels, layout, options
        self.has_chunks = is_chunk_scheme(sorted({*gold, *labels}))
        unknown = np.add.reduceat((data.labels < 0).astype(np.int64), data.offsets[:-1])
        self.known = select(data, np.flatnonzero(unknown == 0))

    @property
    def measure(self) -> str:
        return "f1" if self.has_chunks else "token_error"

    def figures(self, theta: np.ndarray) -> dict[str, float]:
        """Errors, log-loss, and `loss`: what the choice goes by, 1 - F1 or the error, with its standard error."""
        data, layout = self.data, self.layout
        predicted = decode.viterbi(data, layout, theta, self.options.sparse)
        wrong, lengths = sequence_errors(data.labels, predicted, data.offsets), np.diff(data.offsets)
        error, spread = ratio(wrong, lengths)
        found = {"dev_token_error": error, "dev_sequence_error": float(np.mean(wrong > 0)), "dev_log_loss": None}
        if len(self.known.weights):
            log_p = decode.sequence_log_probability(self.known, layout, theta)
            found["dev_log_loss"] = float(-log_p.sum() / len(self.known.labels))
        if self.has_chunks:
            said = [self.labels[y] for y in predicted]
            found["dev_f1"], spread = ratio(*chunk_counts(self.gold, said, data.offsets))
        return found | {"loss": 1 - found["dev_f1"] if self.has_chunks else error, "standard_error": spread}


def describe(point: Point, theta: np.ndarray, tokens: float) -> dict[str, Any]:
    """Size and fit of a model; `tokens` are those of the training data, weighted."""
    loss = point.objective - ElasticNet(point.rho1, point.rho2).value(theta)
    return {
        "rho1": point.rho1, "rho2": point.rho2, "objective": point.objective, "active": len(point.indices),
        **{name: int(point.active.get(name, 0)) for name in ACTIVE}, "iterations": point.iterations,
        "stop_reason": point.stop_reason, "train_token_error": None,
        "train_log_loss": loss / tokens if tokens else None,
    }  # fmt: skip


def train_error(theta: np.ndarray, train: Dataset, layout: Layout, sparse: str) -> float:
    """Share of the known labels of the training data that a model has wrong."""
    known = train.labels >= 0
    wrong = (decode.viterbi(train, layout, theta, sparse) != train.labels) & known
    return float(wrong.sum() / max(1, known.sum()))


def choose(points: list[dict], sparser: bool = False) -> dict:
    """The point of least loss, of equals the smallest model; `sparser` the smallest within a standard error of it."""
    if not points:
        raise EspalierError("there is no point to choose from: expected those of a sweep")
    best = min(points, key=lambda p: (p["loss"], p["active"], -p["rho1"]))
    if not sparser:
        return best
    limit = best["loss"] + best["standard_error"]
    return min((p for p in points if p["loss"] <= limit), key=lambda p: (p["active"], -p["rho1"]))


# The path -------------------------------------------------------------------------------------------


def values_of(objective, points: int, largest: float | None, smallest: float | None) -> np.ndarray:
    """The values of rho1, the largest first; from LARGEST or what leaves nothing active, down to SMALLEST."""
    top = largest if largest is not None else min(LARGEST, largest_rho1(objective))
    bottom = smallest if smallest is not None else min(SMALLEST, top / SPAN)
    if not 0 < bottom < top:
        raise EspalierError(f"a path from rho1 = {top:g} to {bottom:g}: expected it to go down; change --from or --to")
    return grid(top, points, bottom / top)


def development_of(root: Path, manifest: dict, layout: Layout, options: Train) -> Development:
    """The project's development data, which must be there."""
    dev = store.read_dataset(root, "dev", manifest)
    if not len(dev.weights):
        raise EspalierError("there is no development data to choose by: set ingest.dev_share or ingest.dev_path")
    gold = store.read_tokens(root, "dev")[0]["label"].to_list()
    if len(gold) != len(dev.labels):
        raise EspalierError(
            f"{root / store.FEATURES}: {len(dev.labels):,} development positions, the tokens have {len(gold):,}; "
            "run `espalier stage template` again"
        )
    return Development(dev, gold, manifest["labels"], layout, options)


def along(
    objective, values: np.ndarray, development: Development, options: Train, tokens: float,
    on_point: Callable[[dict, np.ndarray], None],
) -> tuple[list[Point], list[dict]]:  # fmt: skip
    """The points of a path and their figures; `on_point` hears each and may add to it. `tokens` as in `describe`."""
    found: list[dict] = []

    def hear(point: Point) -> None:
        theta = point.theta()
        found.append(describe(point, theta, tokens) | development.figures(theta))
        on_point(found[-1], theta)

    tolerance = TIGHTER * options.tolerance
    return path(objective, values, options.rho2, options.solver, hear, options.max_iterations, tolerance), found


def choose_for_training(
    objective, development: Development, options: Train, tokens: float, progress: Progress
) -> tuple[dict, np.ndarray]:
    """(figures as `main` gives them, weights of the chosen point): the path of a training with `train.rho1: auto`."""

    def on_point(found: dict, theta: np.ndarray) -> None:
        told.append(found)
        progress.step(0, note=f"path {len(told)} of {len(values)}: {note(found, development.measure)}")

    told: list[dict] = []
    values = values_of(objective, POINTS, None, None)
    points, found = along(objective, values, development, options, tokens, on_point)
    best = choose(found)
    progress.say(f"chosen {note(best, development.measure)}, of {len(found)} points of a path")
    return figures_of(development.measure, False, found, options), points[found.index(best)].theta()


def figures_of(measure: str, sparser: bool, points: list[dict], options: Train) -> dict:
    """A path with the choice in it, as it is written."""
    return {"measure": measure, "sparser": sparser, "chosen": choose(points, sparser)["rho1"], "points": points,
            "solver": options.solver}  # fmt: skip


def note(point: dict, measure: str) -> str:
    quality = f"F1 {point['dev_f1']:.2%}" if measure == "f1" else f"dev error {point['dev_token_error']:.2%}"
    return f"rho1 {point['rho1']:.3g}: {point['active']:,} active, {quality}"
