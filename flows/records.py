"""What a run leaves behind, however it ends: a line of the history, a version of everything, a word to whoever waits.

`recorded` goes around the steps of a retraining, in every driver.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.flows import versioning
from espalier.flows.pipeline import Project
from espalier.tasks import store
from espalier.tasks.keeping import archive, history, notify
from espalier.tasks.params import Params

Warn = Callable[[str], None]
KILLED = "its process ended without a word"
INTERRUPTED = {KeyboardInterrupt: "interrupted at the terminal", SystemExit: "asked to end"}


def marker(root: Path) -> Path:
    """There while a run is under way; who holds the lock and finds one knows that a run was killed."""
    return root / store.MARKER


@contextmanager
def recorded(project: Project, warn: Warn) -> Iterator[list[dict]]:
    """Around a retraining, with its lock held. The block appends its decision to the list that it gets.

    Recording must neither hide an error of the run nor make a good run a failed one: what goes wrong is a warning.
    """
    time = history.now()
    _record_killed(project, warn)
    store.write_json(marker(project.root), {"time": time, "pid": os.getpid()})
    decisions: list[dict] = []
    try:
        yield decisions
    except BaseException as error:
        ordinary = isinstance(error, Exception)
        text = INTERRUPTED.get(type(error)) or str(error) or type(error).__name__
        failed = (project.step, "failed" if ordinary else "interrupted", text)
        with _told("the history", warn):
            entry = history.entry_of(project.root, project.params, time, project.seconds, failed=failed)
            history.append(project.root, entry)
            if ordinary:
                tell(project.root, project.params, "failed", entry, warn)
        raise
    else:
        with _told("the history", warn):
            finish(project, time, decisions[-1], warn)
    finally:
        marker(project.root).unlink(missing_ok=True)


def finish(project: Project, time: str, decision: dict, warn: Warn) -> None:
    """A run that ended with a decision: history, versions, and a word when it was refused."""
    entry = history.entry_of(project.root, project.params, time, project.seconds, decision=decision)
    entry = history.append(project.root, entry)
    project.finish_report()
    archive.renew_report(project.root, decision["id"])
    with _told("what is kept of the run", warn):
        versioning.track_archive(project)
    entry = keep_versions(project, entry, warn)
    if entry["outcome"] == "refused":
        tell(project.root, project.params, "refused", entry | {"reasons": decision["reasons"]}, warn)


def by_hand(project: Project, record: dict, warn: Warn) -> None:
    """A promotion or a roll back that someone asked for: the champion in DVC, a line, and versions as after a run."""
    versioning.record(project, "promote")
    with _told("what is kept of it", warn):
        versioning.track_archive(project)
    with _told("the history", warn):
        keep_versions(project, history.append(project.root, history.by_hand(record)), warn)


def keep_versions(project: Project, entry: dict, warn: Warn) -> dict:
    """Push, commit and tag, as `version` says; the tag and what did not work are in the entry, too."""
    problems = versioning.push(project)
    if name := versioning.tag_of(project, entry):
        entry |= {"tag": name}
        history.amend(project.root, entry)
    problems += versioning.commit(project, entry)
    if problems:
        entry |= {"warnings": [*entry.get("warnings", []), *problems]}
        history.amend(project.root, entry)
        for text in problems:
            warn(text)
        tell(project.root, project.params, "not versioned", entry | {"error": "; ".join(problems)}, warn)
    return entry


def tell(root: Path, params: Params, event: str, entry: dict, warn: Warn) -> None:
    """An event to the command and the address of `notify`."""
    page = root / (store.DECISION if event == "refused" else store.REPORT)
    more = {"event": event, "project": str(root), "page": str(page)}
    for text in notify.tell({key: entry[key] for key in entry if key != "parameters"} | more, params.notify):
        warn(text)


def _record_killed(project: Project, warn: Warn) -> None:
    """A run that left its marker was killed: it gets its line now."""
    path = marker(project.root)
    if not path.exists():
        return
    with _told("a run that was killed", warn):
        try:
            time = store.read_marker(project.root)
        except EspalierError:
            time = history.now()
        entry = history.entry_of(project.root, project.params, time, {}, failed=(None, "failed", KILLED))
        history.append(project.root, {key: entry[key] for key in entry if key != "parameters"})
        tell(project.root, project.params, "failed", entry, warn)


@contextmanager
def _told(what: str, warn: Warn) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        warn(f"{what} could not be recorded: {error}")
