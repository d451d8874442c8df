"""Where a solver stands after an iteration: enough to go on to the same bytes as if it had not been interrupted."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np


@dataclass
class SolverState:
    """Nothing in it is changed later, so that it may be written at any time.

    What only one solver needs is in `vectors` and in `extra`, whose values JSON can hold.
    """

    theta: np.ndarray
    loss: float
    gradient: np.ndarray
    iteration: int
    evaluations: int
    reason: str | None  # why it stopped, None while it goes on
    pairs: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)  # s, y; the oldest first
    history: list[dict] = field(default_factory=list)
    vectors: dict[str, np.ndarray] = field(default_factory=dict)
    extra: dict = field(default_factory=dict)


class Keeper(Protocol):
    """Keeps states, in a file as a rule."""

    def earlier(self, size: int) -> SolverState | None:
        """The state of `size` weights that an interrupted run has left, or None."""

    def offer(self, state: SolverState) -> None:
        """Hear of the state after an iteration; the keeper decides whether to write it."""
