"""Runs that take turns: when the machine is slower for a while, it is so for all of them, and times can be compared."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any


class _Ended(BaseException):
    """Thrown into a run that waits for a turn which will not come."""


class Turn:
    """The place of one run among the others: it computes until it says `pass_on`, and goes on when that returns."""

    def __init__(self, work: Callable[["Turn"], Any]) -> None:
        self.waited = 0.0  # seconds in which the others had their turns
        self.result: Any = None
        self.error: BaseException | None = None
        self._mine, self._given_back = threading.Semaphore(0), threading.Semaphore(0)
        self._over = False
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)

    def pass_on(self) -> None:
        begin = time.perf_counter()
        self._given_back.release()
        self._mine.acquire()
        if self._over:
            raise _Ended
        self.waited += time.perf_counter() - begin

    def take(self) -> bool:
        """Let the run compute until it passes on; False when it is finished."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._mine.release()
        self._given_back.acquire()
        if self.error is not None:
            raise self.error
        return not self._over

    def end(self) -> None:
        """Whatever the run is waiting for, it ends."""
        if self._thread.is_alive():
            self._over = True
            self._mine.release()
            self._thread.join()

    def _run(self, work: Callable[["Turn"], Any]) -> None:
        try:
            self.result = work(self)
        except _Ended:
            pass
        except BaseException as error:
            self.error = error
        self._over = True
        self._given_back.release()


def in_turn(works: Mapping[str, Callable[[Turn], Any]]) -> dict[str, Any]:
    """The result of each; one that fails ends them all, and its error is raised."""
    turns = {name: Turn(work) for name, work in works.items()}
    try:
        waiting = list(turns.values())
        while waiting:
            waiting = [turn for turn in waiting if turn.take()]
    finally:
        for turn in turns.values():
            turn.end()
    return {name: turn.result for name, turn in turns.items()}
