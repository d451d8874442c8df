"""Sweep: models along a path of rho1, each from the one before (SBCD 7), and the rho1 that the development data choose.

The features on disk are those of the next training, so the figures hold for it. A path begins with a large rho1,
whose model is small and found fast; the whole costs little more than its last points. A training with
a rho1 of auto follows such paths for several rho2 and leaves them in `models/path.json`, which
`tasks.pages.path_page` draws.
"""

from pathlib import Path

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.families import require
from espalier.engine.penalty_search import POINTS, along, choose, train_error, values_of
from espalier.engine.runtime import threads
from espalier.engine.weights.layout import make_layout
from espalier.tasks import store
from espalier.tasks.keeping import history
from espalier.tasks.pages.path_page import PAGE, as_page
from espalier.tasks.params import Params
from espalier.tasks.progress import Progress
from espalier.tasks.training import plan
from espalier.tasks.training.by_gradient import models_of
from espalier.tasks.training.job import Job, Options
from espalier.tasks.training.rho1_path import development_of, figures_of, note

SWEEP = "reports/sweep.json"


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


def follow(
    root: Path, params: Params, progress: Progress, points: int = POINTS, largest: float | None = None,
    smallest: float | None = None,
) -> tuple[str, list[dict]]:  # fmt: skip
    """(what the choice goes by, the points): solved one after the other on the project's features."""
    job, options = Job(root, params, progress), Options.of(params)
    threads.set_threads(options.threads)
    plan.check(plan.main(root, params))
    progress.begin(points, "point")
    train = job.shards().read_all(job.weights)
    job.check_labels(train)
    layout = make_layout(options.pairs, train, len(job.labels), job.kinds, options.start)
    model_of = models_of(job, layout)
    development = development_of(job, model_of)
    objective = job.objective(train, layout, options)

    def on_point(found: dict, theta: np.ndarray) -> None:
        found["train_token_error"] = train_error(model_of(theta), train)
        progress.step(note=note(found, development.measure))

    values = values_of(objective, points, largest, smallest)
    tokens = float(np.sum(train.weights * np.diff(train.offsets)))
    return development.measure, along(objective, values, development, options.of_path, tokens, on_point)[1]


def main(
    root: Path, params: Params, progress: Progress, points: int = POINTS, largest: float | None = None,
    smallest: float | None = None, sparser: bool = False,
) -> dict:  # fmt: skip
    """Follow the path, write the figures and the page."""
    check(points, largest, smallest, sparser)
    require(params.model.family, "path")
    measure, found = follow(root, params, progress, points, largest, smallest)
    best = choose(found, sparser)
    figures = figures_of(measure, sparser, found, Options.of(params))
    store.write_json(root / SWEEP, figures)
    store.write_text(root / PAGE, as_page(figures, root.resolve().name, history.now()))
    progress.end(f"chosen {note(best, measure)}; {figures['where']}")
    return figures
