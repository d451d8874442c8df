"""Paths of rho1 in a project: the search for penalties with the project's development data, and what is written of it.

`espalier sweep` follows one to show it. A training whose rho1 is auto follows one for each of some values of rho2,
and goes on from the point that the development data choose among all of them.
"""

from collections.abc import Callable

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.families.labeller import Labeller
from espalier.engine.labels.measures import measure_of
from espalier.engine.optimise.solvers import fitting
from espalier.engine.penalty_search import Development, Search, choose, where
from espalier.tasks import store
from espalier.tasks.progress import Progress
from espalier.tasks.training.job import Job, Options

AUTO = "auto"  # rho1 that the development data choose


def development_of(job: Job, model_of: Callable[[np.ndarray], Labeller]) -> Development:
    """The project's development data, which must be there."""
    root, manifest = job.root, job.manifest
    dev = job.shards("dev").read_all()
    if not len(dev.weights):
        raise EspalierError("there is no development data to choose by: set ingest.dev_share or ingest.dev_path")
    tokens, info = store.read_tokens(root, "dev")
    gold = tokens["label"].to_list()
    if len(gold) != len(dev.labels):
        raise EspalierError(
            f"{root / store.FEATURES}: {len(dev.labels):,} development positions, the tokens have {len(gold):,}; "
            "run `espalier stage template` again"
        )
    judged_by = measure_of(info.get("measure"), {*gold, *manifest["labels"]})
    return Development(dev, gold, manifest["labels"], model_of, judged_by)


def choose_for_training(
    objective, development: Development, options: Options, tokens: float, progress: Progress
) -> tuple[dict, np.ndarray]:
    """(figures as they are written, weights of the chosen point): the search of a training whose rho1 is auto."""

    def on_point(found: dict, theta: np.ndarray) -> None:
        progress.step(0, note=f"point {len(heard) + 1} of the search: {note(found, development.measure)}")
        heard.append(found)

    heard: list[dict] = []
    search = Search(objective, development, options.of_path, tokens, on_point)
    best = search.run()
    figures = figures_of(development.measure, False, search.found, options)
    progress.say(f"chosen {note(best, development.measure)}, of {len(search.found)} points; {figures['where']}")
    return figures, search.theta(best)


def figures_of(measure: str, sparser: bool, points: list[dict], options: Options) -> dict:
    """Paths with the choice in them, as they are written."""
    best = choose(points, sparser)
    return {"measure": measure, "sparser": sparser, "chosen": best["rho1"], "chosen_rho2": best["rho2"],
            "where": where(points, best), "iterations": sum(p["iterations"] for p in points), "points": points,
            "solver": fitting(options.solver, along_path=True)}  # fmt: skip


def note(point: dict, measure: str) -> str:
    quality = f"{'dev F1' if measure == 'f1' else 'dev error'} {point[f'dev_{measure}']:.2%}"
    return f"rho1 {point['rho1']:.3g}, rho2 {point['rho2']:.3g}: {point['active']:,} active, {quality}"
