"""One at a time: a lock file that says who holds it, and is free again when its holder ends, however it ends."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from espalier.engine.errors import EspalierError
from espalier.flows.signals import POLL_SECONDS


@contextmanager
def waiting_for(path: Path) -> Iterator[None]:
    """Hold the lock, after waiting for whoever holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        while not _taken(file):
            time.sleep(POLL_SECONDS)
        yield


def state_folder(root: Path) -> Path:
    """Where runs keep what is theirs alone; git never sees it."""
    folder = root / ".espalier"
    folder.mkdir(parents=True, exist_ok=True)
    if not (ignored := folder / ".gitignore").exists():
        ignored.write_text("*\n", encoding="utf-8")
    return folder


@contextmanager
def lease(root: Path, what: str) -> Iterator[None]:
    """Hold the project: one at a time of all that write its artefacts, stages that DVC calls among them.

    Who comes second is told who is at work. `what` says it to them.
    """
    with alone(state_folder(root) / "run.lock", "this project is being worked on", what):
        yield


@contextmanager
def alone(path: Path, refusal: str, what: str = "") -> Iterator[None]:
    """Hold the lock, or raise an error that begins with `refusal` and names the process that holds it.

    The file stays when the lock is let go of: to remove it would let two hold it at once.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        if not _taken(file):
            raise EspalierError(f"{refusal} ({_holder(file)}); wait for it or end it")
        file.truncate(0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        json.dump({"pid": os.getpid(), "host": socket.gethostname(), "since": since, "what": what}, file)
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _holder(file: TextIO) -> str:
    """Who has written last into the lock file."""
    file.seek(0)
    try:
        found = json.loads(file.read())
        what = f"{found['what']}, " if found.get("what") else ""
        return f"{what}process {found['pid']} on {found['host']} since {found['since']}"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # just begun, or by hand
        return "process unknown"


def _taken(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
