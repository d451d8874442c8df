"""What the parameters of a flow run may set.

Whoever can create a run on the server chooses its parameters: the page, a schedule, a program that knows the
authentication string. What our own command line asks for is not among them: it comes by `asked`, within the process.
So a run from outside can set what is listed here and nothing else: nothing that runs a command, sends data elsewhere,
clears the archive, or names a file outside the project. The project itself is chosen by who serves the flow.
"""

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path, PurePath

from espalier.engine.errors import EspalierError
from espalier.flows.pipeline import Project
from espalier.tasks.experiments import Settings
from espalier.tasks.params import Params

VALUES = {
    "ingest": ("source", "format", "separator", "comment", "docstart", "label_column", "columns", "label", "sequence",
               "unknown", "set_separator", "scheme", "scheme_from", "functions", "bare", "limit", "dev_share",
               "test_share", "unlabelled_share", "pair_count", "align_iterations", "seed"),
    "template": ("min_count", "shard_tokens"),
    "weigh": ("method", "clusters", "choose_clusters", "least_effective", "drift_limit", "iterations", "restarts",
              "smoothing", "seed"),
    "model": ("family",),
    "crf": ("solver", "rho1", "rho2", "pairs", "start", "stop", "start_from", "sparse", "loss", "pi", "scheme"),
    "memm": ("solver", "rho1", "rho2", "pairs", "start", "weights"),
    "hmm": ("training", "smoothing", "rare", "pool_weight", "restarts", "power", "alpha", "batch", "order"),
    "perceptron": ("update", "lead", "c", "gamma", "epochs", "parts", "average", "degree", "eta",
                   "pairs", "start"),
    "boosting": ("bound", "examples", "rounds", "look", "pi", "epsilon", "scheme", "pairs", "start"),
    "pcfg": ("training", "binarise", "horizontal", "vertical", "rare", "unknown", "symbols", "restarts", "brackets",
             "k", "smoothing", "pool_weight", "stepwise", "alpha", "batch", "order"),
    "gp": ("degree", "kappa", "eta", "method", "share", "coordinates", "threshold", "pick",
           "products", "pairs", "start"),
    "hmsvm": ("degree", "C", "eta", "slack", "margin", "gap", "pairs", "start"),
    "train": ("max_iterations", "tolerance", "dev_every", "dev_sequences", "patience", "seed", "checkpoint_seconds"),
    "compute": ("threads",),
    "evaluate": ("bins", "decode"),
    "report": ("mistakes", "weights"),
    "promote": ("margin", "level", "rounds", "seed", "label_margin", "label_count", "on_drift"),
    "tournament": ("families",),
}  # fmt: skip
# These name files, which must be the project's own.
FILES = {
    "ingest": ("path", "more", "dev_path", "test_path", "unlabelled_path"),
    "template": ("file",),
    "train": ("initial",),
    "evaluate": ("reference",),
    "promote": ("cases",),
}
PERMITTED = {f"{section}.{key}" for names in (VALUES, FILES) for section, keys in names.items() for key in keys}

SERVED = "ESPALIER_SERVED"  # environment variable: the project that is served, and what it is served with
REFUSED = "only our own command line may set it, `espalier run`, or params.yaml"

# What our own command line has opened: a project, or for experiments a folder and their settings.
asked: ContextVar[Project | tuple[Path, Settings] | None] = ContextVar("asked", default=None)


@contextmanager
def asked_by_us(what: Project | tuple[Path, Settings]) -> Iterator[None]:
    """Flows that are called within it work on what the command line has opened, whatever their parameters say."""
    token = asked.set(what)
    try:
        yield
    finally:
        asked.reset(token)


@contextmanager
def serving(root: Path, overrides: Sequence[str], params_file: Path | None) -> Iterator[None]:
    """Runs whose processes are started within it belong to this project."""
    before = os.environ.get(SERVED)
    file = params_file and str(params_file)
    os.environ[SERVED] = json.dumps({"root": str(root), "overrides": list(overrides), "params_file": file})
    try:
        yield
    finally:
        os.environ.pop(SERVED)
        if before is not None:
            os.environ[SERVED] = before


def project_of(root: str, overrides: Sequence[str], add: Sequence[str] = ()) -> Project:
    """The project of a flow run, with the parameters that it may set."""
    if (project := asked.get()) is not None:
        return project
    served = json.loads(os.environ.get(SERVED) or "{}")
    folder = folder_of(root)
    check_names(overrides)
    for name in add:
        check_inside("add", name)
    file = served.get("params_file")
    everything = [*served.get("overrides", ()), *overrides]
    project = Project.open(folder, Path(file) if file else None, everything, list(add))
    check_files(project.params, overrides)
    return project


def folder_of(root: str) -> Path:
    """The folder that a run works in: that of the project which is served, else the working directory."""
    ours = Path(json.loads(os.environ.get(SERVED) or "{}").get("root") or ".").resolve()
    if root != "." and Path(root).resolve() != ours:
        raise EspalierError(f"parameter root is {root!r}: this flow is served for {ours} and works nowhere else")
    return ours


def permitted(overrides: Sequence[str]) -> list[str]:
    """Those that may be seen on the server, and set there."""
    return [text for text in overrides if text.partition("=")[0] in PERMITTED]


def check_names(overrides: Sequence[str]) -> None:
    for text in overrides:
        name = text.partition("=")[0]
        if name not in PERMITTED:
            raise EspalierError(f"parameter overrides: {name[:100]!r} cannot be set by a flow run; {REFUSED}")


def check_files(params: Params, overrides: Sequence[str]) -> None:
    """The files that overrides name, as they were read."""
    for name in {text.partition("=")[0] for text in overrides}:
        section, _, key = name.partition(".")
        if key in FILES.get(section, ()):
            value = getattr(getattr(params, section), key)
            for file in value if isinstance(value, list) else [value]:
                if file is not None:
                    check_inside(name, file)


def checked_entrants(options: dict) -> dict:
    """The families and settings of a tournament, each a list of texts; what they set is held to the same limits."""
    known = ("families", "settings")
    for name, value in options.items():
        texts = value is None or isinstance(value, list) and all(isinstance(text, str) for text in value)
        if name not in known or not texts:
            raise EspalierError(f"parameter options: expected texts in {' and '.join(known)}, found {name[:100]!r}")
    found = {name: options.get(name) for name in known}
    if asked.get() is None:
        for text in found["settings"] or []:
            words = [word for word in shlex.split(text) if "=" in word]
            check_names(words)
            for word in words:
                name, _, value = word.partition("=")
                section, _, key = name.partition(".")
                if key in FILES.get(section, ()):
                    check_inside(name, value)
    return found | {"settings": found["settings"] or []}


def check_inside(name: str, file: str) -> None:
    path = PurePath(file)
    if path.is_absolute() or ".." in path.parts or "\0" in file:
        raise EspalierError(
            f"parameter {name} is {file[:200]!r}: a flow run may only name files inside the project, from its folder; "
            f"others {REFUSED.replace('set it', 'name')}"
        )
