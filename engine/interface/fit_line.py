"""The line that tells how far a training is, in a terminal or notebook; elsewhere one sentence when asked to."""

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from espalier.engine.runtime.compiling import watched

PATIENCE = 0.5  # seconds from the first iteration to the first line: a fit that is done by then shows none
EVERY = 0.1  # seconds between two of them
WIDEST = 100  # columns


class FitLine:
    """Hears the iterations of a solver and writes how it stands over the last line; silent without a stream."""

    def __init__(self, stream: TextIO | None, rewrites: bool, max_iterations: int):
        self.stream, self.rewrites, self.max_iterations = stream, rewrites, max_iterations
        self.due: float | None = None
        self.shown = False

    def __call__(self, record: dict[str, Any], theta: Any = None) -> None:
        """After an iteration: `record` is its line of the trace."""
        active = sum(count for name, count in record.items() if name.startswith("active"))
        self.show(
            f"iteration {record['iteration']:,} of at most {self.max_iterations:,}, "
            f"objective {record['objective']:,.6g}, {active:,} active"
        )

    def show(self, text: str) -> None:
        """Write it over the line before, unless that is too fresh."""
        now = time.monotonic()
        if self.due is None:
            self.due = now + PATIENCE
        if self.rewrites and now >= self.due:
            self.due, self.shown = now + EVERY, True
            self._write(f"\r{_fitted(f'espalier: {text}')}")

    def clear(self) -> None:
        """Leave an empty line behind."""
        if self.shown:
            self._write(f"\r{_fitted('')}\r")
            self.shown = False

    def say(self, text: str) -> None:
        """A sentence that stays, where anybody is told at all."""
        text = f"espalier: {text}"
        self._write(f"\r{text.ljust(_width())}\n" if self.rewrites else f"{text}\n")
        self.shown = False

    def _write(self, text: str) -> None:
        if self.stream is not None:
            self.stream.write(text)
            self.stream.flush()


def _fitted(text: str) -> str:
    """Cut and filled to the width of the terminal, so that nothing of the line before is left."""
    return text[: _width()].ljust(_width())


def _width() -> int:
    return min(WIDEST, shutil.get_terminal_size().columns - 1)


@contextmanager
def fit_line(verbose: bool | None, max_iterations: int) -> Iterator[FitLine]:
    """The line of one fit, cleared at its end; verbose: True always, False never, None in a terminal or notebook."""
    stream = sys.stderr
    rewrites = verbose is not False and watched(stream)
    line = FitLine(stream if rewrites or verbose else None, rewrites, max_iterations)
    try:
        yield line
    finally:
        line.clear()
