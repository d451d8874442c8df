"""Flows as the command line starts them: a terminal that listens, errors that say what to do."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine.errors import EspalierError
from flows.experiments import chosen
from flows.locks import waiting_for
from flows.newdata import relative
from flows.pipeline import Project
from flows.server import embedded_ends_with_us
from flows.settings import must_answer, prefect_environment
from flows.signals import ending_cleanly
from tasks.experiments import Settings
from tasks.progress import Progress


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
    Project.open(root, params_file, list(overrides), list(add)).check()
    with _prefect(root, progress_of):
        from flows.retrain import retrain

        file = params_file and str(params_file.resolve())
        return retrain(root=str(root), overrides=list(overrides), params_file=file, add=relative(root, list(add)))


def run_sweep(
    root: Path,
    options: dict,
    params_file: Path | None = None,
    overrides: Sequence[str] = (),
    progress_of: Callable[[str], Progress] | None = None,
) -> dict:
    """The path of rho1 as the Prefect flow `sweep`; its figures."""
    root = root.resolve()
    with _prefect(root, progress_of):
        from flows.sweep import sweep

        return sweep(str(root), options, list(overrides), params_file and str(params_file.resolve()))


def run_reproduce(
    root: Path, name: str, settings: Settings, progress_of: Callable[[str], Progress] | None = None
) -> dict[str, dict]:
    """Experiments as the Prefect flow `reproduce`; the figures of each. A wrong name is told before Prefect starts."""
    root = root.resolve()
    chosen(name, settings)
    with _prefect(root, progress_of):
        from flows.reproduce import with_threads

        return with_threads()(str(root), name, settings.quick, str(settings.data))


@contextmanager
def _prefect(root: Path, progress_of: Callable[[str], Progress] | None) -> Iterator[None]:
    """Prefect told of our settings, a server that answers, and someone who listens to the steps."""
    prefect_environment(root)
    with ending_cleanly():
        _find_server()
        from flows.retrain import listener_of

        token = listener_of.set(progress_of)
        try:
            with _failures_told_once():
                yield
        finally:
            listener_of.reset(token)


def _find_server() -> None:
    """A server that answers: the one that is configured, else Prefect's embedded one, started here."""
    api = os.environ.get("PREFECT_API_URL")
    if api:
        must_answer(api, "and the embedded server is used, or run without Prefect: `espalier run --direct`")
    else:
        _start_embedded()


def _start_embedded() -> None:
    """Start the embedded server, one process at a time: two at once would both make the database."""
    home = Path(os.environ["PREFECT_HOME"])
    try:
        with waiting_for(home / "start.lock"):
            from prefect import get_client

            with embedded_ends_with_us(), get_client(sync_client=True) as client:
                client.hello().raise_for_status()
    except (OSError, RuntimeError) as error:
        raise EspalierError(
            f"Prefect's embedded server did not start in {home}: {str(error).splitlines()[0]}; "
            "`espalier doctor` looks for the cause, `espalier run --direct` does without it"
        ) from error


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
