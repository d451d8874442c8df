"""Sweep: models along a path of rho1, each from the one before (SBCD 7), and the rho1 that the development data choose.

The features on disk are those of the next training, so the figures hold for it. A path begins with a large rho1,
whose model is small and found fast; the whole costs little more than its last points.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from engine import decode, threads
from engine.chain_objective import ChainObjective
from engine.data import Dataset, select
from engine.errors import EspalierError
from engine.layout import FAMILIES, Layout, make_layout, observation_kinds
from engine.measures import chunks, is_chunk_scheme, sequence_errors
from engine.monitor import STOP_REASONS
from engine.path import Point, grid, largest_rho1, path
from engine.penalty import ElasticNet
from tasks import charts, plan, store
from tasks.page import (
    Html,
    capital,
    card,
    cards,
    figure,
    join,
    lead,
    message,
    number,
    page,
    percent,
    section,
    table,
    tag,
)
from tasks.params import Params, Train
from tasks.progress import Progress

POINTS = 10
LARGEST, SMALLEST = 10.0, 0.05  # losses are sums over sequences, so a good rho1 depends little on the size of the data
SPAN = 200.0  # of the largest rho1 to the smallest at least
TIGHTER = 0.1  # of train.tolerance: a point that starts near its optimum gains little in each iteration
SWEEP, PAGE = "reports/sweep.json", "reports/sweep.html"
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


def describe(point: Point, theta: np.ndarray, train: Dataset, layout: Layout, sparse: str) -> dict[str, Any]:
    """Size and fit of a model on the training data."""
    known = train.labels >= 0
    wrong = (decode.viterbi(train, layout, theta, sparse) != train.labels) & known
    tokens = float(np.sum(train.weights * np.diff(train.offsets)))
    loss = point.objective - ElasticNet(point.rho1, point.rho2).value(theta)
    return {
        "rho1": point.rho1, "rho2": point.rho2, "objective": point.objective, "active": len(point.indices),
        **{name: int(point.active.get(name, 0)) for name in ACTIVE}, "iterations": point.iterations,
        "stop_reason": point.stop_reason, "train_token_error": float(wrong.sum() / max(1, known.sum())),
        "train_log_loss": loss / tokens if tokens else None,
    }  # fmt: skip


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


def check(points: int = POINTS, largest: float | None = None, smallest: float | None = None, sparser: bool = False):
    """Refuse a path that cannot be, before anything is read."""
    if points < 1:
        raise EspalierError(f"a sweep of {points} points: expected at least 1")
    for name, value in (("--from", largest), ("--to", smallest)):
        if value is not None and not (np.isfinite(value) and value > 0):
            raise EspalierError(f"{name} is {value}: expected a number above 0")
    if largest is not None and smallest is not None and not smallest < largest:
        raise EspalierError(f"--to is {smallest} and --from {largest}: expected the path to go down")


def values_of(objective, points: int, largest: float | None, smallest: float | None) -> np.ndarray:
    """The values of rho1, the largest first; from LARGEST or what leaves nothing active, down to SMALLEST."""
    top = largest if largest is not None else min(LARGEST, largest_rho1(objective))
    bottom = smallest if smallest is not None else min(SMALLEST, top / SPAN)
    if not 0 < bottom < top:
        raise EspalierError(f"a path from rho1 = {top:g} to {bottom:g}: expected it to go down; change --from or --to")
    return grid(top, points, bottom / top)


def follow(
    root: Path, params: Params, progress: Progress, points: int = POINTS, largest: float | None = None,
    smallest: float | None = None,
) -> tuple[str, list[dict]]:  # fmt: skip
    """(what the choice goes by, the points): solved one after the other on the project's features."""
    options, manifest = params.train, store.whole_manifest(root)
    threads.set_threads(options.threads)
    plan.check(plan.main(root, params))
    progress.begin(points, "point")
    train = store.read_dataset(root, "train", manifest, store.read_weights(root))
    dev = store.read_dataset(root, "dev", manifest)
    if not len(dev.weights):
        raise EspalierError("there is no development data to choose by: set ingest.dev_share or ingest.dev_path")
    gold = store.read_tokens(root, "dev")[0]["label"].to_list()
    if len(gold) != len(dev.labels):
        raise EspalierError(
            f"{root / store.FEATURES}: {len(dev.labels):,} development positions, the tokens have {len(gold):,}; "
            "run `espalier stage template` again"
        )
    observations = store.read_vocabulary(root)["observation"].to_list()
    kinds = observation_kinds(observations)
    layout = make_layout(options.pairs, train, len(manifest["labels"]), kinds, options.start)
    development = Development(dev, gold, manifest["labels"], layout, options)
    objective = ChainObjective(train, layout, options.sparse)
    found: list[dict] = []

    def on_point(point: Point) -> None:
        theta = point.theta()
        found.append(describe(point, theta, train, layout, options.sparse) | development.figures(theta))
        progress.step(note=_note(found[-1], development.measure))

    values = values_of(objective, points, largest, smallest)
    path(objective, values, options.rho2, options.solver, on_point, options.max_iterations, TIGHTER * options.tolerance)
    return development.measure, found


def _note(point: dict, measure: str) -> str:
    quality = f"F1 {point['dev_f1']:.2%}" if measure == "f1" else f"dev error {point['dev_token_error']:.2%}"
    return f"rho1 {point['rho1']:.3g}: {point['active']:,} active, {quality}"


def choose_rho1(root: Path, params: Params, progress: Progress, sparser: bool = False) -> tuple[float, list[dict]]:
    """The rho1 that the development data choose, and the points of the path; train.rho1 is not looked at."""
    _, points = follow(root, params, progress)
    return choose(points, sparser)["rho1"], points


def main(
    root: Path, params: Params, progress: Progress, points: int = POINTS, largest: float | None = None,
    smallest: float | None = None, sparser: bool = False,
) -> dict:  # fmt: skip
    """Follow the path, write the figures and the page."""
    check(points, largest, smallest, sparser)
    measure, found = follow(root, params, progress, points, largest, smallest)
    best = choose(found, sparser)
    figures = {"measure": measure, "sparser": sparser, "chosen": best["rho1"], "points": found,
               "solver": params.train.solver}  # fmt: skip
    store.write_json(root / SWEEP, figures)
    store.write_text(root / PAGE, as_page(figures))
    progress.end(f"chosen {_note(best, measure)}")
    return figures


# For people -----------------------------------------------------------------------------------------


def chosen_point(figures: dict) -> dict:
    return next(point for point in figures["points"] if point["rho1"] == figures["chosen"])


def as_text(figures: dict, root: Path) -> str:
    """A table of the points, the chosen one marked."""
    with_f1 = figures["measure"] == "f1"
    lines = [f"{'rho1':>10} {'active':>10} {'dev error':>10}{'    dev F1' if with_f1 else ''} {'train error':>12} "
             f"{'dev loss':>9} {'train loss':>11}  iterations"]  # fmt: skip
    for p in figures["points"]:
        mark = "→" if p["rho1"] == figures["chosen"] else " "
        f1 = f" {p['dev_f1']:>9.2%}" if with_f1 else ""
        loss = f"{p['dev_log_loss']:>9.4f}" if p["dev_log_loss"] is not None else f"{'–':>9}"
        lines.append(
            f"{mark}{p['rho1']:>9.4g} {p['active']:>10,} {p['dev_token_error']:>10.2%}{f1} "
            f"{p['train_token_error']:>12.2%} {loss} {p['train_log_loss']:>11.4f}  {p['iterations']}"
        )
    lines += [_verdict(figures), f"page {root / PAGE}"]
    return "\n".join(lines)


def _verdict(figures: dict) -> str:
    best, how = chosen_point(figures), "F1" if figures["measure"] == "f1" else "error"
    why = f"the smallest model within a standard error of the best {how}" if figures["sparser"] else f"the best {how}"
    return (f"chosen rho1 {best['rho1']:.4g} by {why} on the development data: {best['active']:,} active weights; "
            f"`espalier run --set train.rho1={best['rho1']:.4g}` trains with it")  # fmt: skip


def as_page(figures: dict) -> str:
    """The path as curves and as a table."""
    best, points = chosen_point(figures), figures["points"]
    body = (
        section("choice", "The choice", lead(f"{capital(_verdict(figures))}."), cards(_cards(figures, best))),
        section("path", "Size against quality", *_curves(points, best)),
        section("points", "All points", _table(figures)),
    )
    contents = (("choice", "The choice"), ("path", "Size against quality"), ("points", "All points"))
    return page("Models along a path of ρ₁", join(body), contents=contents)


def _cards(figures: dict, best: dict) -> list[Html]:
    spread = f"standard error {percent(best['standard_error'], 2)}"
    found = [card("ρ₁", number(best["rho1"]), f"ρ₂ {number(best['rho2'])}", figures["solver"]),
             card("Active weights", number(best["active"]), f"{number(best['iterations'])} iterations")]  # fmt: skip
    note = spread if figures["measure"] != "f1" else None
    found.append(card("Development error", percent(best["dev_token_error"], 2), note))
    if figures["measure"] == "f1":
        found.append(card("F1 of chunks", percent(best["dev_f1"], 2), spread))
    return found


def _curves(points: list[dict], best: dict) -> list[Html]:
    """Curves over the number of active weights, and that number over rho1; models without a weight are left out."""
    by_size = {p["active"]: p for p in points if p["active"]}
    rows = [by_size[size] for size in sorted(by_size)]
    if not rows:
        return [message("No model of this path has an active weight: go on to smaller ρ₁ (--to).")]
    share = {"write": lambda v: percent(v, 2), "tick": lambda v: f"{100 * v:g}%"}
    panels = [
        _panel("error", "Error", rows, "token_error", best, "share of labels that are wrong", **share),
        _panel("loss", "Log-loss", rows, "log_loss", best, "nats for each token"),
        _one("objective", "Objective", "Active weights", rows, "active", "objective", best, "loss plus penalty"),
    ]
    if any(p.get("dev_f1") is not None for p in rows):
        note = "of chunks in the development data"
        panels.insert(1, _one("f1", "F1", "Active weights", rows, "active", "dev_f1", best, note, **share))
    by_rho1 = sorted((p for p in points), key=lambda p: p["rho1"])
    panels.append(_one("active", "Size", "ρ₁", by_rho1, "rho1", "active", best, "active weights"))
    opening = lead("Each point is a model of its own penalty; the dot marks the chosen one.")
    return [opening, tag("div", *panels, class_="panels")]


def _panel(key: str, title: str, rows: list[dict], name: str, best: dict, note: str, **ways: Any) -> Html:
    """The same figure of the training and the development data."""
    series = [charts.Series("development", "b", [p[f"dev_{name}"] for p in rows]),
              charts.Series("training", "a", [p[f"train_{name}"] for p in rows])]  # fmt: skip
    series = [s for s in series if any(v is not None for v in s.values)]
    sizes = [p["active"] for p in rows]
    drawn = charts.line_chart(key, title, "Active weights", sizes, series, best=best["active"], log_x=True, **ways)
    return figure(title, join([charts.line_legend(series), drawn]), note)


def _one(key: str, title: str, x_name: str, rows, x: str, y: str, best: dict, note: str, **ways: Any) -> Html:
    series = [charts.Series(title.lower(), "a", [p[y] for p in rows])]
    drawn = charts.line_chart(key, title, x_name, [p[x] for p in rows], series, best=best[x], log_x=True, **ways)
    return figure(title, drawn, note)


def _table(figures: dict) -> Html:
    with_f1 = figures["measure"] == "f1"
    rows = [
        (number(p["rho1"]), number(p["active"]), percent(p["dev_token_error"], 2),
         *((percent(p["dev_f1"], 2),) if with_f1 else ()), percent(p["train_token_error"], 2),
         number(p["dev_log_loss"]), number(p["train_log_loss"]), number(p["objective"], 6), number(p["iterations"]),
         STOP_REASONS.get(p["stop_reason"], p["stop_reason"]))
        for p in figures["points"]
    ]  # fmt: skip
    f1 = ["Dev F1"] if with_f1 else []
    headings = ["ρ₁", "Active", "Dev error", *f1, "Train error", "Dev loss", "Train loss", "Objective", "Iterations",
                "Why it stopped"]  # fmt: skip
    return table("From the largest ρ₁ down", headings, rows, range(len(headings) - 1), "stack")
