"""Experiments that set our figures beside those of the sources: what one is, and the list of them.

An experiment is cut into cells. A cell is a pure function with arguments; its result is a small dictionary that
JSON can hold. Whoever runs them (`flows/reproduce.py`) may do so in any order and keep what is finished. The
report turns the results of all cells into comparisons and drawings.

To add one: a module with a function for its cells, a module with `EXPERIMENT`, a line in `MODULES`.
"""

import difflib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from espalier.engine.errors import EspalierError

MODULES = {
    "semisup": "espalier.tasks.experiments.semisup_report",
    "spam": "espalier.tasks.experiments.spam_report",
    "semisup-sequences": "espalier.tasks.experiments.sequences_report",
    "simulated": "espalier.tasks.experiments.simulated_report",
    "optimisers": "espalier.tasks.experiments.optimisers_report",
    "nettalk-sparsity": "espalier.tasks.experiments.nettalk_sparsity",
    "nettalk-context": "espalier.tasks.experiments.nettalk_context",
    "path": "espalier.tasks.experiments.regularisation_path",
    "nettalk-patterns": "espalier.tasks.experiments.nettalk_patterns",
    "nettalk-thresholds": "espalier.tasks.experiments.nettalk_thresholds",
    "chunking": "espalier.tasks.experiments.chunking_report",
    "selection": "espalier.tasks.experiments.selection_report",
    "hmm-pos": "espalier.tasks.experiments.hmm_pos_report",
    "citations": "espalier.tasks.experiments.citations_report",
    "ner-losses": "espalier.tasks.experiments.ner_losses_report",
    "boosting-rounds": "espalier.tasks.experiments.boosting_rounds_report",
    "ner-margins": "espalier.tasks.experiments.ner_margins_report",
    "ner-kernels": "espalier.tasks.experiments.ner_kernels_report",
    "abstention": "espalier.tasks.experiments.abstention",
    "palindromes": "espalier.tasks.experiments.palindromes_report",
    "stepwise": "espalier.tasks.experiments.stepwise_report",
    "wsj-pcfg": "espalier.tasks.experiments.wsj_pcfg_report",
    "triangles": "espalier.tasks.experiments.triangles_report",
}
ALL = "all"


class Settings(NamedTuple):
    """How experiments are run: the short way or in full, and where the corpora are."""

    quick: bool = False
    data: Path = Path("data")


class Cell(NamedTuple):
    """A piece of work: `function(**arguments, **files)` gives its result. Keys are file names, so plain ones."""

    key: str
    function: Callable[..., dict]
    arguments: dict[str, Any]
    files: dict[str, Path] = {}


class Comparison(NamedTuple):
    """One figure of a source beside ours, both as texts for readers."""

    place: str  # where the source has it
    what: str
    source: str
    ours: str
    note: str = ""


class Statement(NamedTuple):
    """A statement that must hold on our data, as texts for readers, and whether it does."""

    text: str
    holds: bool
    ours: str
    wanted: str


class Report(NamedTuple):
    """What is shown of an experiment."""

    title: str
    lead: str
    comparisons: list[Comparison]
    sections: list[tuple[str, str, str]]  # id, heading, markup
    notes: list[str]  # how ours differs from the source, what surprised
    checks: list[Statement] = []


class Experiment(NamedTuple):
    name: str
    help: str
    cells: Callable[[Settings], list[Cell]]
    report: Callable[[dict[str, dict], Settings], Report]
    corpora: tuple[str, ...] = ()  # files below the folder of corpora
    serial: bool = False  # one cell at a time: cells that are timed, or that need much memory


def experiment(name: str) -> Experiment:
    """The experiment of that name; an unknown one is refused with the list."""
    if name not in MODULES:
        near = difflib.get_close_matches(name, MODULES, 1, 0.5)
        guess = f"did you mean {near[0]!r}? " if near else ""
        raise EspalierError(f"there is no experiment {name!r}: {guess}known are {', '.join(MODULES)} and {ALL}")
    return import_module(MODULES[name]).EXPERIMENT


def missing_corpora(chosen: Experiment, settings: Settings) -> list[Path]:
    """The files that an experiment reads and that are not there."""
    return [settings.data / name for name in chosen.corpora if not (settings.data / name).is_file()]


def check_corpora(chosen: Experiment, settings: Settings) -> None:
    for path in missing_corpora(chosen, settings):
        raise EspalierError(
            f"{path}: there is no such file, which experiment {chosen.name} reads; "
            "name the folder of corpora with --data or ESPALIER_DATA"
        )
