"""Stages run one by one in a folder, for the tests of stages and of the command line."""

from importlib import import_module
from pathlib import Path

from espalier.tasks.params import Params
from espalier.tasks.progress import Progress


def small_params():
    """A simulated source and few iterations: every stage in well under a second."""
    params = Params()
    params.ingest.source, params.ingest.limit = "simulated", 300
    params.template.lines = ["*:%x[0,0]", "U-1:%x[-1,0]", "B"]
    params.weigh.clusters, params.train.max_iterations, params.promote.rounds = 3, 15, 100
    params.crf.solver, params.crf.pairs, params.crf.rho1, params.crf.rho2 = "owlqn", "all", 0.5, 0.001
    return params


def set_options(params, **options):
    """Options of a training by their names alone, wherever they are in the parameters."""
    for name, value in options.items():
        setattr(next(one for one in (params.crf, params.train, params.compute) if hasattr(one, name)), name, value)
    return params


def run_stages(root, params, *names):
    """The named stages without any driver."""
    return {name: import_module(f"espalier.tasks.{name}").main(root, params, Progress()) for name in names}


ANSWERS = Path(".espalier/answers")
OF_THE_LEASE = {Path(".espalier/run.lock"), Path(".espalier/.gitignore")}


def tree(root):
    """{relative path: bytes} of every file below `root` but those of the lease, which every command takes, and answers
    that are kept to save time."""
    files = {path.relative_to(root): path for path in sorted(root.rglob("*")) if path.is_file()}
    shown = {name: path for name, path in files.items() if name not in OF_THE_LEASE and name.parent != ANSWERS}
    return {str(name): path.read_bytes() for name, path in shown.items()}
