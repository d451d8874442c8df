"""Ending cleanly: a request to end becomes an exception, so that every `finally` on the way out is run."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Polars catches SIGINT in a way that lets blocking calls go on, so Ctrl-C is heard only between short waits.
POLL_SECONDS = 0.2


@contextmanager
def ending_cleanly() -> Iterator[None]:
    """Within it SIGTERM raises SystemExit(143) in the main thread, unless someone else handles it already."""
    in_main = threading.current_thread() is threading.main_thread()
    mine = in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if mine:
        signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        if mine:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(number: int, frame) -> None:
    raise SystemExit(128 + number)


@contextmanager
def children_deaf() -> Iterator[None]:
    """Processes started within it hear neither SIGINT nor SIGTERM, which often go to a whole group of processes.

    They are told to end by those who started them, in the right order: a server must outlive
    the run that reports to it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hear_again() -> None:
    """In a thread of such a process: it hears SIGTERM from now on."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
