"""Flows as the command line starts them: a terminal that listens, errors that say what to do."""

import atexit
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.flows.experiments import chosen
from espalier.flows.permitted import asked_by_us, permitted
from espalier.flows.pipeline import Project
from espalier.flows.server import embedded_server, full_disk
from espalier.flows.settings import must_answer, prefect_environment, use
from espalier.flows.signals import ending_cleanly
from espalier.tasks.experiments import Settings
from espalier.tasks.progress import Progress


def run_flow(
    root: Path,
    params_file: Path | None = None,
    overrides: Sequence[str] = (),
    progress_of: Callable[[str], Progress] | None = None,
    add: Sequence[str] = (),
) -> dict[str, dict]:
    """All steps as the Prefect flow `retrain`; the figures of each step. `add` are files to add to the data.

    A mistake in the parameters is found before Prefect is started. An error in a step
    reaches the caller as it was raised.
    """
    root = root.resolve()
    project = Project.open(root, params_file, list(overrides), list(add))
    project.check()
    with _prefect(root, progress_of), asked_by_us(project):
        from espalier.flows.retrain import retrain

        return retrain(root=str(root), overrides=permitted(overrides))


def run_sweep(
    root: Path,
    options: dict,
    params_file: Path | None = None,
    overrides: Sequence[str] = (),
    progress_of: Callable[[str], Progress] | None = None,
) -> dict:
    """The path of rho1 as the Prefect flow `sweep`; its figures."""
    root = root.resolve()
    project = Project.open(root, params_file, list(overrides))
    with _prefect(root, progress_of), asked_by_us(project):
        from espalier.flows.sweep import sweep

        return sweep(str(root), options, permitted(overrides))


def run_tournament(
    root: Path,
    options: dict,
    params_file: Path | None = None,
    overrides: Sequence[str] = (),
    progress_of: Callable[[str], Progress] | None = None,
) -> dict:
    """Entrants as the Prefect flow `tournament`; the figures. Wrong entrants are told before Prefect starts."""
    from espalier.tasks.tournament.competing import at_once
    from espalier.tasks.tournament.entrants import entrants_of

    root = root.resolve()
    project = Project.open(root, params_file, list(overrides))
    entrants_of(project.params, **options)
    count = at_once(project.params)
    with _prefect(root, progress_of), asked_by_us(project):
        from espalier.flows.tournament import with_threads

        return with_threads(count)(str(root), options, permitted(overrides))


def run_reproduce(
    root: Path, name: str, settings: Settings, progress_of: Callable[[str], Progress] | None = None
) -> dict[str, dict]:
    """Experiments as the Prefect flow `reproduce`; the figures of each. A wrong name is told before Prefect starts."""
    root = root.resolve()
    chosen(name, settings)
    with _prefect(root, progress_of), asked_by_us((root, settings)):
        from espalier.flows.reproduce import with_threads

        return with_threads()(str(root), name, settings.quick)


@contextmanager
def _prefect(root: Path, progress_of: Callable[[str], Progress] | None) -> Iterator[None]:
    """Prefect told of our settings, a server that answers, and someone who listens to the steps."""
    prefect_environment(root)
    progress = progress_of("prefect") if progress_of else Progress()
    with ending_cleanly():
        progress.begin(None, "")
        progress.step(0, "starting; `--direct` runs without it")
        _find_server(root)
        from espalier.flows.retrain import listener_of

        progress.end("started")

        token = listener_of.set(progress_of)
        try:
            with _failures_told_once(), _full_disk_named():
                yield
        finally:
            listener_of.reset(token)


def _find_server(root: Path) -> None:
    """A server that answers: the one that is configured, else one of our own for this process, started here."""
    api = os.environ.get("PREFECT_API_URL")
    if api:
        must_answer(api, "and the embedded server is used, or run without Prefect: `espalier run --direct`")
    else:
        _start_embedded(root)


# Ended after all that Prefect does at its own end: it was imported later.
_until_exit = ExitStack()
atexit.register(_until_exit.close)


def _start_embedded(root: Path) -> None:
    """Start the embedded server, which this process uses from now on."""
    try:
        use(root, _until_exit.enter_context(embedded_server(root)))
    except EspalierError as error:
        raise EspalierError(
            f"Prefect's embedded server did not start in {os.environ['PREFECT_HOME']}: {error}; "
            "`espalier doctor` looks for the cause, `espalier run --direct` does without it"
        ) from error


@contextmanager
def _full_disk_named() -> Iterator[None]:
    """Prefect says of a database that it cannot write to no more than that the server is not available."""
    from httpx import HTTPError

    try:
        yield
    except HTTPError as error:
        if told := full_disk(Path(os.environ.get("PREFECT_HOME") or ".")):
            raise EspalierError(f"Prefect's server cannot write its database: {told}") from error
        raise


TOLD = ("Finished in state", "Crash detected!")


class _ToldByCaller(logging.Filter):
    """Leaves out what Prefect writes of a failure that the caller gets as an exception anyway."""

    def filter(self, record: logging.LogRecord) -> bool:
        of_a_run = record.name.startswith(("prefect.flow_runs", "prefect.task_runs"))
        return not (of_a_run and (record.exc_info or record.getMessage().startswith(TOLD)))


@contextmanager
def _failures_told_once() -> Iterator[None]:
    """Tracebacks of failed runs go to the dashboard's log and not to the terminal."""
    quiet = _ToldByCaller()
    handlers = logging.getLogger().handlers
    consoles = [handler for handler in handlers if type(handler).__module__.startswith("prefect.")]
    for handler in consoles:
        handler.addFilter(quiet)
    try:
        yield
    finally:
        for handler in consoles:
            handler.removeFilter(quiet)
