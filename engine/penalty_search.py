"""The search for penalties: paths of rho1, one for each of some values of rho2, judged by development data.

Each model of a path starts from the one before it (`engine.optimise.path`); the point that is best on the development
data is chosen, and the search goes on where that one lies at the edge of what was tried.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from espalier.engine.data.dataset import Dataset, any_in_sequence, select
from espalier.engine.errors import EspalierError, brief
from espalier.engine.families.labeller import Labeller
from espalier.engine.labels.measures import Counts, Measure, sequence_errors
from espalier.engine.losses.loss_table import LOG
from espalier.engine.optimise.path import Point, grid, largest_rho1, path
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import fitting
from espalier.engine.weights.layout import FIRST_ORDER

POINTS = 10
LARGEST, SMALLEST = 10.0, 0.05  # losses are sums over sequences, so a good rho1 depends little on the size of the data
SPAN = 200.0  # of the largest rho1 to the smallest at least
RHO2 = (0.001, 0.1, 0.3)  # beside the given one; larger ones are tried, each STEP times the last, while that pays
STEP = 3.0
BESIDE = 2  # values of rho1 on either side of the best that the next rho2 begins with
FURTHER = 4  # values that are added at most to a path, and to those of rho2, while the best is at their edge
LOOSER = 5.0  # of the tolerance of training, for points that are only compared; training goes on from the chosen one
ACTIVE = tuple(f"active_{name}" for name in FIRST_ORDER)


@dataclass(frozen=True)
class PathOptions:
    """How the points of a path are solved."""

    solver: str
    rho2: float
    max_iterations: int
    tolerance: float


# Measuring ------------------------------------------------------------------------------------------


def standard_error(counts: Counts) -> float:
    """Of the measure of independent sequences (that of a ratio estimator)."""
    total, count = float(np.sum(counts.under)), len(counts.under)
    spread = float(np.sum((counts.over - counts.value * counts.under) ** 2))
    return float(np.sqrt(spread * count / (count - 1)) / total) if count > 1 and total else 0.0


class Development:
    """The development data, and what a model is worth on them."""

    def __init__(
        self, data: Dataset, gold: list[str], labels: list[str], model_of: Callable[[np.ndarray], Labeller],
        judged_by: Measure,
    ):  # fmt: skip
        self.data, self.gold, self.labels, self.model_of = data, gold, labels, model_of
        self.judged_by = judged_by
        unknown = np.add.reduceat((data.labels < 0).astype(np.int64), data.offsets[:-1])
        self.known = select(data, np.flatnonzero(unknown == 0))

    @property
    def measure(self) -> str:
        return self.judged_by.name

    def thinned(self, most: int | None) -> "Development":
        """At most so many of the sequences, evenly spaced."""
        total, offsets = len(self.data.weights), self.data.offsets
        if most is None or total <= most:
            return self
        chosen = np.arange(most) * total // most
        gold = [label for n in chosen for label in self.gold[offsets[n] : offsets[n + 1]]]
        return Development(select(self.data, chosen), gold, self.labels, self.model_of, self.judged_by)

    def judged(self, predicted: np.ndarray) -> Counts:
        """What the measure of the task counts of predictions."""
        return self.judged_by.counts(self.gold, [self.labels[y] for y in predicted], self.data.offsets)

    def figures(self, theta: np.ndarray) -> dict[str, float]:
        """Errors, log-loss, and `loss`: what the choice goes by, 1 - F1 or an error, with its standard error."""
        data, model = self.data, self.model_of(theta)
        predicted = model.best(data)
        wrong = sequence_errors(data.labels, predicted, data.offsets)
        error = float(wrong.sum() / len(predicted))
        found = {"dev_token_error": error, "dev_sequence_error": float(np.mean(wrong > 0)), "dev_log_loss": None}
        if len(self.known.weights):
            log_p = model.log_probability(self.known)
            found["dev_log_loss"] = float(-log_p.sum() / len(self.known.labels))
        counts = self.judged(predicted)
        found[f"dev_{self.measure}"] = counts.value
        return found | {"loss": self.judged_by.loss(counts.value), "standard_error": standard_error(counts)}


def describe(point: Point, theta: np.ndarray, tokens: float, log_loss: bool = True) -> dict[str, Any]:
    """Size and fit of a model; `tokens` are those of the training data, weighted.

    `log_loss` tells whether that was minimised: of other losses no share of a token is shown.
    """
    loss = point.objective - ElasticNet(point.rho1, point.rho2).value(theta)
    return {
        "rho1": point.rho1, "rho2": point.rho2, "objective": point.objective, "active": len(point.indices),
        **{name: int(point.active.get(name, 0)) for name in ACTIVE}, "iterations": point.iterations,
        "stop_reason": point.stop_reason, "train_token_error": None,
        "train_log_loss": loss / tokens if tokens and log_loss else None,
    }  # fmt: skip


def train_error(model: Labeller, train: Dataset) -> float:
    """Share of the known labels of the training data that a model has wrong."""
    known = train.labels >= 0
    wrong = (model.best(train) != train.labels) & known
    return float(wrong.sum() / max(1, known.sum()))


def choose(points: list[dict], sparser: bool = False) -> dict:
    """The point of least loss, of equals the smallest model; `sparser` the smallest within a standard error of it."""
    if not points:
        raise EspalierError("there is no point to choose from: expected those of a sweep")
    best = min(points, key=lambda p: (p["loss"], p["active"], -p["rho1"], -p["rho2"]))
    if not sparser:
        return best
    limit = best["loss"] + best["standard_error"]
    return min((p for p in points if p["loss"] <= limit), key=lambda p: (p["active"], -p["rho1"], -p["rho2"]))


def held_out(data: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """(the rest, a share of the sequences to judge by), drawn by a seed from those that have all their labels."""
    if not 0.0 < share < 1.0:
        raise EspalierError(f"dev_share is {brief(share)}: expected a number between 0 and 1")
    labelled = np.flatnonzero(~any_in_sequence(data, data.labels < 0))
    count = max(1, round(share * len(labelled)))
    if len(labelled) <= count:
        raise EspalierError(
            f"{len(labelled)} sequences with all their labels: rho1 = auto judges by one and learns from another at "
            "least; give more, or a number for rho1"
        )
    chosen = np.sort(np.random.default_rng(seed).permutation(labelled)[:count])
    return select(data, np.setdiff1d(np.arange(len(data.weights)), chosen)), select(data, chosen)


# The path -------------------------------------------------------------------------------------------


def values_of(objective, points: int, largest: float | None, smallest: float | None) -> np.ndarray:
    """The values of rho1, the largest first; from LARGEST or what leaves nothing active, down to SMALLEST."""
    top = largest if largest is not None else min(LARGEST, largest_rho1(objective))
    if top == 0.0:
        raise EspalierError("every rho1 leaves an empty model, so there is none to choose: give a number for rho1")
    bottom = smallest if smallest is not None else min(SMALLEST, top / SPAN)
    if not 0 < bottom < top:
        raise EspalierError(f"a path from rho1 = {top:g} to {bottom:g}: expected it to go down; change --from or --to")
    return grid(top, points, bottom / top)


def along(
    objective, values: np.ndarray, development: Development, options: PathOptions, tokens: float,
    on_point: Callable[[dict, np.ndarray], None], theta0: np.ndarray | None = None,
) -> tuple[list[Point], list[dict]]:  # fmt: skip
    """The points of a path and their figures; `on_point` hears each and may add to it. `tokens` as in `describe`."""
    found: list[dict] = []

    def hear(point: Point) -> None:
        theta = point.theta()
        found.append(describe(point, theta, tokens, objective.loss_name == LOG) | development.figures(theta))
        on_point(found[-1], theta)

    solver, limits = fitting(options.solver, along_path=True), (options.max_iterations, options.tolerance)
    return path(objective, values, options.rho2, solver, hear, *limits, theta0), found


class Search:
    """Paths of rho1, one for each rho2, the smallest first; it is bounded and goes on where the best is at an edge.

    All values of rho1 are `largest` / `ratio` ** place, so that paths of different rho2 share them to the last bit.
    """

    def __init__(self, objective, development: Development, options: PathOptions, tokens: float, on_point: Callable):
        self.objective, self.development, self.tokens, self.on_point = objective, development, tokens, on_point
        self.options = replace(options, tolerance=LOOSER * options.tolerance)
        values = values_of(objective, POINTS, None, None)
        self.largest, self.ratio = float(values[0]), float(values[0] / values[1])
        self.most = largest_rho1(objective)  # beyond it all models are empty
        self.points: list[Point] = []
        self.found: list[dict] = []
        self.places: list[int] = []

    def run(self) -> dict:
        """The figures of the point that the development data choose."""
        for rho2 in sorted({self.options.rho2, *RHO2}):
            self.column(rho2)
        for _ in range(FURTHER):
            best = choose(self.found)
            if best["rho2"] < max(p["rho2"] for p in self.found):
                break
            self.column(STEP * best["rho2"])
        return choose(self.found)

    def column(self, rho2: float) -> None:
        """A path of one rho2: all of it for the first, for the others from a little above the best so far to below."""
        first = len(self.found)
        if not first:
            self._solve(rho2, range(POINTS), None)
        else:
            best = self.places[self.found.index(choose(self.found))]
            near = min(range(first), key=lambda i: (abs(self.places[i] - best + BESIDE), i))
            self._solve(rho2, range(best - BESIDE, best + BESIDE + 1), self.points[near].theta())
        for _ in range(FURTHER):
            at = self.found.index(choose(self.found[first:]))
            place, mine = self.places[at], self.places[first:]
            if place == max(mine):
                self._solve(rho2, [place + 1], self.points[at].theta())
            elif place == min(mine) and self.rho1(place - 1) < self.most:
                self._solve(rho2, [place - 1], self.points[at].theta())
            else:
                break

    def rho1(self, place: int) -> float:
        return self.largest / self.ratio**place

    def theta(self, found: dict) -> np.ndarray:
        return self.points[self.found.index(found)].theta()

    def _solve(self, rho2: float, places: Iterable[int], theta0: np.ndarray | None) -> None:
        options, values = replace(self.options, rho2=rho2), np.array([self.rho1(place) for place in places])
        points, found = along(self.objective, values, self.development, options, self.tokens, self.on_point, theta0)
        self.points, self.found, self.places = self.points + points, self.found + found, [*self.places, *places]


def where(points: list[dict], best: dict) -> str:
    """Whether a still better point may lie beyond what was tried. A rho2 below the smallest would hardly differ."""
    mine = [p["rho1"] for p in points if p["rho2"] == best["rho2"]]
    ends = [f"{word} rho1" for word, end in (("smallest", min(mine)), ("largest", max(mine))) if best["rho1"] == end]
    rho2 = {p["rho2"] for p in points}
    ends += ["largest rho2"] if len(rho2) > 1 and best["rho2"] == max(rho2) else []
    if not ends:
        return "it lies within what was tried"
    return f"it has the {' and the '.join(ends)} that was tried: a better one may lie beyond"
