"""Who hears that kernels are being compiled: the first use on a machine spends a minute on it.

`engine.runtime.jit` tells of each kernel that is not in the cache, by `begins` and `ends`; numba
holds its lock meanwhile, so one kernel with its callees comes after the other. Nothing
is printed unless somebody who `hears` it does so.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass

TEXT = "compiling kernels for this machine, once"
BAR = 20


@dataclass
class Compiling:
    """How far it is: kernels and seconds of a listener so far, the kernel in work ("" when all are done).

    Where other processes compile it is about known how many there will be: `expected`, else 0.
    """

    kernels: int = 0
    seconds: float = 0.0
    kernel: str = ""
    expected: int = 0

    def __str__(self) -> str:
        return f"{TEXT}: {self._bar()}{self.kernels} done"

    def _bar(self) -> str:
        """A bar of BAR signs; it fills up before the last kernel where there are more than expected."""
        if not self.expected:
            return ""
        full = min(BAR, BAR * self.kernels // self.expected)
        return "█" * full + "░" * (BAR - full) + " "


class _Listener:
    def __init__(self, tell: Callable[[Compiling], None]):
        self.tell, self.state = tell, Compiling()
        self.context = copy_context()  # a kernel may be compiled in any thread
        self.open: list[str] = []  # the kernel in work behind those that call it

    def begins(self, name: str) -> None:
        if not self.open:
            self.started = time.perf_counter()
        self.open.append(name)
        self._tell()

    def ends(self) -> None:
        if not self.open:  # begun before anyone listened
            return
        self.open.pop()
        self.state.kernels += 1
        if not self.open:
            self.state.seconds += time.perf_counter() - self.started
        self._tell()

    def _tell(self) -> None:
        self.state.kernel = self.open[-1] if self.open else ""
        self.context.copy().run(self.tell, self.state)


_listeners: list[_Listener] = []


def begins(name: str) -> None:
    """A kernel is being compiled; the last who came to listen hears it."""
    if _listeners:
        _listeners[-1].begins(name)


def ends() -> None:
    if _listeners:
        _listeners[-1].ends()


@contextmanager
def hears(tell: Callable[[Compiling], None]) -> Iterator[Compiling]:
    """Within the block `tell` is called before and after each kernel that is compiled."""
    listener = _Listener(tell)
    _listeners.append(listener)
    try:
        yield listener.state
    finally:
        _listeners.remove(listener)


@contextmanager
def elsewhere(expected: int) -> Iterator[Callable[[bool], None]]:
    """Other processes compile about so many kernels within the block.

    What it gives is called when a kernel begins (False) and when one is done (True); the last who came to listen hears
    it, from any thread.
    """
    listener, lock, begin = _listeners[-1] if _listeners else None, threading.Lock(), time.perf_counter()

    def tell(done: bool) -> None:
        if listener:
            with lock:
                listener.state.expected = expected
                listener.state.kernels += done
                listener.state.seconds = time.perf_counter() - begin
                listener._tell()

    try:
        yield tell
    finally:
        if listener:
            listener.state.expected = 0


class Line:
    """One line that counts kernels in a terminal or notebook; elsewhere it is written once, when they are done."""

    def __init__(self, stream, rewrites: bool):
        self.stream, self.rewrites = stream, rewrites
        self.width = 0

    def __call__(self, state: Compiling) -> None:
        if self.rewrites:
            self._write(f"\r{self._padded(f'espalier: {state} …')}")

    def close(self, state: Compiling) -> None:
        if state.kernels:
            text = f"espalier: {TEXT}: {state.kernels} in {state.seconds:.0f} s"
            self._write(f"\r{self._padded(text)}\n" if self.rewrites else f"{text}\n")

    def _padded(self, text: str) -> str:
        self.width = max(self.width, len(text))
        return text.ljust(self.width)

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


def watched(stream) -> bool:
    """Whether somebody looks at what is written there: a terminal, or a notebook."""
    return stream is not None and (stream.isatty() or "ipykernel" in sys.modules)


def said(verbose: bool | None = None, stream=None):
    """Within the block a line on stderr says that kernels are compiled, unless somebody else hears it already.

    verbose: True always, False never, None in a terminal or notebook.
    """
    stream = stream or sys.stderr
    rewrites = watched(stream)
    if verbose is False or _listeners or not (verbose or rewrites):
        return nullcontext()
    return _said(Line(stream, rewrites))


@contextmanager
def _said(line: Line) -> Iterator[None]:
    with hears(line) as state:
        try:
            yield
        finally:
            line.close(state)
