"""The table of stages, written once: three drivers read it and `dvc.yaml` is made from it.

`python -m espalier.flows.stages` writes dvc.yaml. A stage that reads files named in the parameters
lists them as dependencies, so the text depends on params.yaml too.
"""

import glob
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import takewhile
from pathlib import Path

import yaml

from espalier.engine.errors import EspalierError
from espalier.engine.families import FAMILIES
from espalier.engine.text.pattern_sets import is_shipped
from espalier.flows.plots import PLOTS, write_templates
from espalier.tasks import store
from espalier.tasks.params import Params, load_params
from espalier.tasks.progress import Progress
from espalier.tasks.templating.pattern_files import named_lists

TOKENS = tuple(store.TOKENS.format(split) for split in store.SPLITS)
# Sections that change no result: nothing depends on them.
OF_NO_STAGE = ("compute", "version", "notify", "memory", "tournament")
FAMILY = "family"  # stands for the section of the family that is trained
# Code that every stage rests on.
ALWAYS = ("engine", "tasks/params.py", "tasks/progress.py", "tasks/shapes.py", "tasks/store")

TRAINING = ("__init__", "by_gradient", "checkpoint", "hidden_markov", "job", "plan", "rho1_path", "watcher")
READING = ("tasks/formats", "tasks/json_tokens.py", "tasks/limits.py", "tasks/pages/__init__.py",
           "tasks/pages/page.py", "tasks/sources")  # fmt: skip
WORKERS = ("tasks/cluster/__init__.py", "tasks/cluster/sharing.py", "tasks/cluster/worker.py",
           "tasks/cluster/workers.py")  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """name; code it depends on; files it reads and writes; parameter sections; files named by parameters."""

    name: str
    help: str
    code: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    params: tuple[str, ...]
    named: tuple[str, ...] = ()  # parameters that hold a path, or null
    lists: Callable[[Path, Params], list[str]] = lambda root, params: []  # files that other parameters speak of
    metrics: tuple[str, ...] = ()
    plots: tuple[str, ...] = ()

    @property
    def main(self) -> Callable[[Path, Params, Progress], dict]:
        return import_module(f"espalier.tasks.{self.name}").main

    def sections(self, params: Params) -> list[str]:
        """The sections and keys of the parameters that its result depends on; of the families only the one chosen."""
        return [params.model.family if name == FAMILY else name for name in self.params]

    def inputs(self, params: Params, root: Path = Path(".")) -> list[str]:
        """The files it reads under these parameters, code not included."""
        named = [watched(value) for name in self.named for value in named_files(params, name, root)]
        return [*dict.fromkeys(named), *self.lists(root, params), *self.reads]


def named_files(params: Params, name: str, root: Path) -> list[str]:
    """The files or patterns that a parameter names; `train.initial: champion` is the copy that a run has pinned."""
    section, key = name.split(".")
    value = getattr(getattr(params, section), key)
    if name == "train.initial" and value == "champion":
        return [store.START] if (root / store.START).is_file() else []
    if name == "template.file" and is_shipped(value):
        return []  # it is a part of the code
    return value if isinstance(value, list) else [value] if value else []


def watched(path: str) -> str:
    """What DVC watches for a named file: itself, and for a pattern the folder in front of the first *, ? or [."""
    if not glob.has_magic(path):
        return path
    parts = list(takewhile(lambda part: not glob.has_magic(part), Path(path).parts))
    if not parts:
        raise EspalierError(f"{path}: a pattern needs a folder in front of it, such as data/raw/{path}")
    return str(Path(*parts))


STAGES = (
    Stage(
        "ingest", "parse, validate, align and split the source",
        ("tasks/ingest.py", *READING), (),
        (*TOKENS, store.PROFILE), ("ingest",),
        named=("ingest.path", "ingest.more", "ingest.dev_path", "ingest.test_path", "ingest.unlabelled_path"),
    ),
    Stage(
        "template", "evaluate the feature templates",
        ("tasks/template.py", "tasks/templating", *READING), TOKENS, ("data/features",), ("template",),
        named=("template.file",), lists=lambda root, params: named_lists(root, params.template),
    ),
    Stage(
        "weigh", "cluster the unlabelled pool, weigh the labelled sequences",
        ("tasks/weigh.py", *WORKERS, "tasks/cluster/clustering.py"), ("data/features", "data/tokens/unlabelled.arrow"),
        (store.WEIGHTS, store.CLUSTERS), ("weigh",),
    ),
    Stage(
        "train", "minimise the penalised loss",
        ("tasks/train.py", *(f"tasks/training/{name}.py" for name in TRAINING), *WORKERS, "tasks/cluster/blocks.py",
         "tasks/cluster/training.py"),
        ("data/features", "data/tokens/dev.arrow", store.WEIGHTS),
        (store.CANDIDATE, store.TRACE, store.RHO1_PATH), ("model", FAMILY, "train", "evaluate.decode"),
        named=("train.initial",),
    ),
    Stage(
        "evaluate", "measure the candidate on the test data",
        ("tasks/evaluate.py", "tasks/answering", "tasks/judging", "tasks/template.py", "tasks/templating", *READING,
         *WORKERS, "tasks/cluster/testing.py"),
        (store.CANDIDATE, store.TRACE, "data/features", "data/tokens/dev.arrow", "data/tokens/test.arrow",
         "data/tokens/train.arrow"),
        (store.PREDICTIONS,), ("evaluate",), named=("evaluate.reference",),
        metrics=(store.METRICS,),
        plots=tuple(
            f"{store.CURVES}/{name}.csv" for name in ("learning", "calibration", "confusion", "lengths", "frequencies")
        ),
    ),
    Stage(
        "report", "write the page",
        ("tasks/report", "tasks/judging", "tasks/keeping/__init__.py", "tasks/keeping/history.py", "tasks/pages",
         "tasks/formats", "tasks/json_tokens.py", "tasks/limits.py", "tasks/sources"),
        (store.PROFILE, store.METRICS, store.TRACE, store.RHO1_PATH, store.PREDICTIONS, store.CANDIDATE,
         store.CLUSTERS, store.MANIFEST),
        (),  # the page tells the decision and the times of its run, so it is no output that could be compared
        (FAMILY, *(name for name in Params().as_dict() if name not in (*OF_NO_STAGE, *FAMILIES))),
    ),
)  # fmt: skip

def stage(name: str) -> Stage:
    return next(s for s in STAGES if s.name == name)


def dvc_stage(item: Stage, params: Params, with_code: bool = True, root: Path = Path(".")) -> dict:
    """One stage as DVC writes it. `persist` keeps earlier outputs when a stage fails.

    The project's own .venv comes first on the path, so that `.venv/bin/dvc repro` works
    without activating it.
    """
    inputs = item.inputs(params, root)
    inputs = [path for path in inputs if not any(path.startswith(f"{other}/") for other in inputs)]
    entry = {
        "cmd": f'PATH="$PWD/.venv/bin:$PATH" espalier stage {item.name}',
        "desc": item.help,
        "deps": sorted({*inputs, *((*ALWAYS, *item.code) if with_code else ())}),
        "params": sorted(set(item.sections(params)) & set(params.given)),
    }
    for kind, paths in (("outs", (*item.writes, *item.plots)), ("metrics", item.metrics)):
        if paths:
            entry[kind] = [{path: {"persist": True}} for path in paths]
    return entry


def dvc_yaml(params: Params, with_code: bool = True, root: Path = Path(".")) -> str:
    """The text of dvc.yaml; a project that holds only data depends on no code (`with_code=False`)."""
    plots = [{name: options} for name, options in PLOTS.items()]
    data = {"stages": {item.name: dvc_stage(item, params, with_code, root) for item in STAGES}, "plots": plots}
    head = "# Made from flows/stages.py by `python -m espalier.flows.stages`; do not edit.\n"
    return head + yaml.safe_dump(data, sort_keys=False, width=110)


def refresh_dvc_yaml(root: Path, params: Params) -> bool:
    """Write dvc.yaml when the table or the named files have changed; True when it was written.

    The templates of its plots are written with it.
    """
    write_templates(root)
    path, text = root / "dvc.yaml", dvc_yaml(params, (root / "engine").is_dir(), root)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    store.write_text(path, text)
    return True


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    changed = refresh_dvc_yaml(folder, load_params(folder / "params.yaml"))
    print(f"{folder / 'dvc.yaml'}: {'written' if changed else 'up to date'}")
