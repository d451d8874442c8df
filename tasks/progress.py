"""Progress as an object: stages report to it; terminal, log and dashboard listen."""

from collections.abc import Iterator
from contextlib import contextmanager

from espalier.engine.runtime import compiling


class Progress:
    """Silent by default; a listener overrides what it wants to show."""

    def begin(self, total: int | None, unit: str) -> None:
        """Work of `total` units begins; None when the total is not known, and told again once it is."""

    def step(self, n: int = 1, note: str = "") -> None:
        """`n` more units are done; `note` says how it stands."""

    def compiling(self, state: compiling.Compiling) -> None:
        """Kernels are compiled, as on the first use on a machine; called before and after each."""

    def plan(self, figures: dict) -> None:
        """What training will take, before it begins; see `tasks.training.plan`."""

    def record(self, row: dict) -> None:
        """The figures of one iteration of training, for a table."""

    def say(self, text: str) -> None:
        """Something happened that is worth a line of its own."""

    def end(self, note: str = "") -> None:
        """The work is done; `note` is the figure to remember."""


@contextmanager
def working(progress: Progress) -> Iterator[None]:
    """A step: its time begins with the block, and kernels that are compiled in it are told to its progress."""
    progress.begin(None, "")
    with compiling.hears(progress.compiling):
        yield
