"""Experiments in a project: which cells are still to compute, the report, and a driver without Prefect."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from espalier.flows.locks import alone
from espalier.tasks.experiments import (
    ALL,
    MODULES,
    Cell,
    Experiment,
    Settings,
    check_corpora,
    experiment,
    missing_corpora,
)
from espalier.tasks.experiments.cells import check_keys, compute, finished
from espalier.tasks.experiments.writing import write_report
from espalier.tasks.progress import Progress, working

LOCK = ".espalier/reproduce.lock"
REFUSAL = "another reproduction is under way in this project"


def corpora_folder(root: Path, given: str | Path | None = None) -> Path:
    """What was given, else ESPALIER_DATA, else the folder beside the project."""
    return Path(given or os.environ.get("ESPALIER_DATA") or root / ".." / "shared" / "data").resolve()


@dataclass
class Reproduction:
    """One experiment in a project folder."""

    root: Path
    experiment: Experiment
    settings: Settings
    cells: list[Cell] = field(default_factory=list)
    kept: dict[str, dict] = field(default_factory=dict)

    @classmethod
    def open(cls, root: Path, name: str, settings: Settings) -> "Reproduction":
        """Its cells, and the results of those that are finished already."""
        chosen = experiment(name)
        check_corpora(chosen, settings)
        cells = chosen.cells(settings)
        check_keys(cells)
        found = {cell.key: finished(root, name, cell) for cell in cells}
        return cls(root, chosen, settings, cells, {key: result for key, result in found.items() if result is not None})

    @property
    def name(self) -> str:
        return self.experiment.name

    def missing(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.key not in self.kept]

    def compute(self, cell: Cell) -> None:
        """One cell; its result is kept in a file, and nothing travels between tasks."""
        compute(self.root, self.name, cell)

    def write(self, computed: int) -> dict:
        """The report of all cells, and what a caller wants to know."""
        results = {cell.key: finished(self.root, self.name, cell) for cell in self.cells}
        report = self.experiment.report(results, self.settings)
        paths = write_report(self.root, self.name, report, results, self.settings)
        comparisons, checks = ([item._asdict() for item in items] for items in (report.comparisons, report.checks))
        return {"cells": len(self.cells), "computed": computed, "quick": self.settings.quick, "paths": paths,
                "comparisons": comparisons, "checks": checks}  # fmt: skip


def chosen(name: str, settings: Settings) -> tuple[list[str], dict[str, dict]]:
    """The experiments to run, and of `all` those left out because their corpus is not here."""
    if name != ALL:
        check_corpora(experiment(name), settings)
        return [name], {}
    absent = {key: missing_corpora(experiment(key), settings) for key in MODULES}
    skipped = {key: {"skipped": f"there is no {paths[0]}"} for key, paths in absent.items() if paths}
    return [key for key in MODULES if key not in skipped], skipped


def run_direct(
    root: Path, name: str, settings: Settings, progress_of: Callable[[str], Progress] | None = None
) -> dict[str, dict]:
    """All cells one after the other, without Prefect; the figures of each experiment."""
    names, figures = chosen(name, settings)
    with alone(root / LOCK, REFUSAL):
        for key in names:
            progress = progress_of(key) if progress_of else Progress()
            work = Reproduction.open(root, key, settings)
            waiting = work.missing()
            with working(progress):
                progress.begin(len(waiting), "cell")
                for cell in waiting:
                    work.compute(cell)
                    progress.step(note=cell.key)
            figures[key] = work.write(len(waiting))
            progress.end(summary(figures[key]))
    return figures


def summary(figures: dict) -> str:
    """One line for people."""
    kept = figures["cells"] - figures["computed"]
    broken = sum(not check["holds"] for check in figures["checks"])
    said = f"; {broken} of {len(figures['checks'])} statements do not hold" if broken else ""
    return f"{figures['computed']} cells computed, {kept} kept from before{said}"
