"""Who listens to a solver: development error into the trace, times, the best model so far."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from espalier.engine.data.dataset import Dataset, select
from espalier.engine.families.labeller import Labeller
from espalier.engine.labels.measures import token_error
from espalier.engine.losses.loss_table import LOG, LOSSES
from espalier.engine.optimise.monitor import Result
from espalier.engine.optimise.solver_state import SolverState
from espalier.tasks.progress import Progress
from espalier.tasks.shapes import active_of
from espalier.tasks.training.job import Options

if TYPE_CHECKING:
    from espalier.engine.penalty_search import Development

BEST = "best_on_dev"  # vector of a checkpoint: the best model on the development data so far


def thinned(dev: Dataset, options: Options) -> Dataset:
    """At most `train.dev_sequences` of the development data, evenly spaced; it only measures, so it may be less."""
    total, most = len(dev.weights), options.dev_sequences
    if options.dev_every is None or most is None or total <= most:
        return dev
    return select(dev, np.arange(most) * total // most)


class Watcher:
    """Completes the records of a solver: development error into the trace, time into a list of its own.

    `model_of` is what weights say. With `train.patience` it keeps the best model on the development data, as the task
    is judged, and asks to stop when none has been better for so many iterations.
    """

    def __init__(
        self, dev: Dataset, model_of: Callable[[np.ndarray], Labeller], options: Options, progress: Progress,
        judge: "Development | None" = None,
    ):  # fmt: skip
        self.judge = judge and judge.thinned(options.dev_sequences)
        self.dev = self.judge.data if self.judge else thinned(dev, options)
        self.model_of, self.options, self.progress = model_of, options, progress
        self.seconds: list[float] = []
        self.begin = time.perf_counter()
        self.best: dict | None = None  # record of the best iteration on the development data
        self.best_theta: np.ndarray | None = None

    def __call__(self, record: dict, theta: np.ndarray) -> str | None:
        self.seconds.append(time.perf_counter() - self.begin)
        record["dev_token_error"] = None
        if self.options.loss != LOG:
            record["minimises"] = LOSSES[self.options.loss].title
        every = self.options.dev_every
        if every and record["iteration"] % every == 0 and len(self.dev.labels):
            self.look(record, theta)
        self.progress.record(record | {"seconds": self.seconds[-1]})
        if record["iteration"]:
            self.progress.step(note=self._note(record))
        late = self.best is not None and record["iteration"] - self.best["iteration"] >= self.options.patience
        return "patience" if late else None

    def look(self, record: dict, theta: np.ndarray) -> None:
        """Label the development data by the weights of an iteration."""
        predicted = self.model_of(theta).best(self.dev)
        record["dev_token_error"] = token_error(self.dev.labels, predicted)
        if self.judge:
            self._judge(record, theta, predicted)

    def _judge(self, record: dict, theta: np.ndarray, predicted: np.ndarray) -> None:
        record["dev_loss"] = self.judge.judged_by.loss(self.judge.judged(predicted).value)
        if self.best is None or record["dev_loss"] < self.best["dev_loss"]:
            self.best, self.best_theta = record, theta.copy()

    def kept(self) -> dict[str, np.ndarray]:
        """What an interrupted run must keep beside the solver's state."""
        return {} if self.best_theta is None else {BEST: self.best_theta}

    def go_on(self, state: SolverState) -> None:
        """Time, progress and the best model go on where an interrupted run was."""
        self.begin -= self.seconds[-1] if self.seconds else 0.0
        if BEST in state.vectors:
            judged = [record for record in state.history if "dev_loss" in record]
            self.best, self.best_theta = min(judged, key=lambda record: record["dev_loss"]), state.vectors[BEST]
        self.progress.step(state.iteration, note=f"after iteration {state.iteration} of an earlier run")

    def chosen(self, result: Result) -> Result:
        """The result with the best model on the development data, where that is what was asked for."""
        if self.best is None:
            return result
        return replace(result, theta=self.best_theta, objective=self.best["objective"])

    def _note(self, record: dict) -> str:
        active = sum(active_of(record).values())
        dev = record["dev_token_error"]
        error = "" if dev is None else f", dev error {dev:.2%}"
        return f"objective {record['objective']:,.0f}, {active:,} active{error}"
