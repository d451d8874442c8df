"""One at a time: a lock file that the system lets go of when its holder ends, however it ends."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from engine.errors import EspalierError
from flows.signals import POLL_SECONDS


@contextmanager
def waiting_for(path: Path) -> Iterator[None]:
    """Hold the lock, after waiting for whoever holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        while not _taken(file):
            time.sleep(POLL_SECONDS)
        yield


@contextmanager
def alone(path: Path, refusal: str) -> Iterator[None]:
    """Hold the lock, or raise an error that begins with `refusal` and names the process that holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        if not _taken(file):
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise EspalierError(f"{refusal} (process {holder}); wait for it or end it")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _taken(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
