"""python-crfsuite's `Trainer`."""

import time
import warnings
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from espalier.crfsuite.items import BIGRAM, PREFIX, Items, ItemSequence, Rows, Text, growing, label_text
from espalier.crfsuite.parameters import ALGORITHMS, UPDATES, Parameter, algorithm_named, truth
from espalier.crfsuite.training_log import TrainingLog, Watch
from espalier.engine.data.dataset import Dataset, check_label_count, make_dataset
from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.families.labeller import WeightLabeller
from espalier.engine.families.perceptron import PerceptronLabeller
from espalier.engine.families.perceptron_options import BOUNDS, PerceptronOptions
from espalier.engine.families.perceptron_training import fit as fit_perceptron
from espalier.engine.fitting.encoding import ATTRIBUTES
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.monitor import STOP_REASONS, Result
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.runtime import compiling
from espalier.engine.weights.layout import (
    Layout,
    dense_layout,
    frequent_layout,
    joined_layout,
    observation_kinds,
    seen_layout,
)

# What kind of model the weights make, the training that found them, and what the file says of it.
Trained = tuple[type[WeightLabeller], Result, dict[str, Any]]
UNTRAINED = "this trainer has not been trained: call train first"


class Trainer:
    """python-crfsuite's trainer: append sequences, set parameters, train, and the model is in a file."""

    def __init__(
        self, algorithm: str | None = None, params: dict[str, Any] | None = None, verbose: bool = True
    ) -> None:
        self.verbose = verbose
        self.logparser: TrainingLog | None = None
        self.model_: WeightLabeller | None = None
        self.clear()
        self.select(algorithm or "lbfgs")
        self.set_params(params or {})

    # Data.

    def append(self, xseq: Items, yseq: Iterable[Text], group: int = 0) -> None:
        """Add a sequence of items and its labels; groups tell training data from what is held out."""
        items = xseq if isinstance(xseq, ItemSequence) else ItemSequence(xseq)
        labels = [label_text(label) for label in yseq]
        if len(items) != len(labels):
            raise EspalierError(f"a sequence has {len(items)} items and {len(labels)} labels: expected one each")
        if not labels:
            return
        rows, ids = self._groups.setdefault(int(group), (Rows(), array("i")))
        rows.add(items, self._attributes, grows=True)
        number = growing(self._labels)
        ids.extend(map(number, labels))

    def clear(self) -> None:
        """Forget all sequences."""
        self._groups: dict[int, tuple[Rows, array[int]]] = {}
        self._attributes: dict[str, int] = {}
        self._labels: dict[str, int] = {}

    # Parameters.

    def select(self, algorithm: str, type: str = "crf1d") -> None:
        """Choose lbfgs, l2sgd, whose objective is the same, ap, pa or arow; parameters are then as by default."""
        if type != "crf1d":
            raise EspalierError(f"the graphical model {quoted(str(type))} is not known: expected crf1d")
        self.algorithm = algorithm_named(algorithm)
        known = ALGORITHMS[self.algorithm]
        self._values: dict[str, Any] = {name: parameter.default for name, parameter in known.items()}

    def params(self) -> list[str]:
        """The names of the parameters."""
        return list(ALGORITHMS[self.algorithm])

    def set_params(self, params: dict[str, Any]) -> None:
        for name, value in params.items():
            self.set(name, value)

    def get_params(self) -> dict[str, Any]:
        return dict(self._values)

    def set(self, name: str, value: Any) -> None:
        kind = self._parameter(name).kind
        try:
            self._values[name] = kind(value)
        except (TypeError, ValueError):
            expected = {int: "a whole number", float: "a number", truth: "True or False"}[kind]
            raise EspalierError(f"{name} is {brief(value)}: expected {expected}") from None

    def get(self, name: str) -> Any:
        self._parameter(name)
        return self._values[name]

    def help(self, name: str) -> str:
        return self._parameter(name).help

    def _parameter(self, name: str) -> Parameter:
        known = ALGORITHMS[self.algorithm]
        if name not in known:
            raise EspalierError(f"{self.algorithm} has no parameter {quoted(str(name))}: it has {', '.join(known)}")
        return known[name]

    # Training.

    def train(self, model: str | Path, holdout: int = -1) -> None:
        """Train on all groups but `holdout`, which is tested on, and write the model; "" writes none."""
        self.logparser = TrainingLog()
        with compiling.said(None if self.verbose else False):
            self.model_ = self._trained(holdout)
        begin = time.perf_counter()
        if model:
            self.model_.save(model)
        self.logparser.storing_seconds = time.perf_counter() - begin
        self._tell(self.on_end, f"Storing the model\nNumber of active features: {len(self.model_.theta)}\n\n")

    def _log(self) -> TrainingLog:
        if self.logparser is None:
            raise EspalierError(UNTRAINED)
        return self.logparser

    def _model(self) -> WeightLabeller:
        if self.model_ is None:
            raise EspalierError(UNTRAINED)
        return self.model_

    def _trained(self, holdout: int) -> WeightLabeller:
        if self.algorithm == "l2sgd":
            warnings.warn(
                "l2sgd: the same objective is minimised by stochastic gradient and then L-BFGS, so that training ends "
                "at its optimum; calibration parameters are not used",
                UserWarning, stacklevel=4,
            )  # fmt: skip
        self._tell(self.on_start, "Feature generation\ntype: CRF1d\n")
        begin = time.perf_counter()
        names, labels = [BIGRAM, *(PREFIX + name for name in self._attributes)], list(self._labels)
        _check_texts(names, labels)
        data, seen = self._dataset([group for group in self._groups if group != holdout])
        tested = self._dataset([holdout])[0] if holdout in self._groups else None
        layout = self._layout(data, seen, names, len(labels))
        seconds = time.perf_counter() - begin
        self._log().featgen_num_features, self._log().featgen_seconds = layout.size, seconds
        self._tell(self.on_featgen_end, f"Number of features: {layout.size}\nSeconds required: {seconds:.3f}\n\n")
        told = "".join(f"{name}: {value}\n" for name, value in self._values.items())
        self._tell(self.on_prepared, f"{self.algorithm} optimization\n{told}\n")
        train = self._learnt if self.algorithm in UPDATES else self._minimised
        kind, result, info = train(data, layout, Watch(self, layout, labels, tested))
        info |= {"start": False, "stop_reason": result.stop_reason, "iterations": result.iterations,
                 "objective": result.objective, "features": layout.size}  # fmt: skip
        return kind.compact(layout, result.theta, names, labels, [ATTRIBUTES, BIGRAM], info)

    def _minimised(self, data: Dataset, layout: Layout, watch: Watch) -> Trained:
        """The weights of lbfgs and l2sgd, what kind of model they are, and what its file says of that."""
        values, begin = self._values, time.perf_counter()
        penalty = ElasticNet(values.get("c1", 0.0), 2 * values["c2"])  # ours is rho2/2 |theta|^2
        result = minimise(
            "auto", ChainObjective(data, layout), penalty, None, values["max_iterations"], values["delta"],
            values["period"], watch,
        )  # fmt: skip
        self._ended(result, begin)
        return CrfLabeller, result, {"solver": "hybrid", "penalty": {"rho1": penalty.rho1, "rho2": penalty.rho2}}

    def _learnt(self, data: Dataset, layout: Layout, watch: Watch) -> Trained:
        """The same of ap, pa and arow."""
        values, begin = self._values, time.perf_counter()
        options = PerceptronOptions(
            UPDATES[self.algorithm], c=values.get("c", 1.0), gamma=values.get("gamma", 1.0),
            variance=values.get("variance", 1.0), average=values.get("averaging", True),
            epochs=values["max_iterations"], epsilon=values["epsilon"], bound=_bound(values.get("type", 1)),
            cost=None if values.get("error_sensitive", True) else "one",
        )  # fmt: skip
        result = fit_perceptron(data, layout, options, listen=watch)
        self._ended(result, begin)
        told = {name: getattr(options, name) for name in ("update", "lead", "average", "epochs")}
        return PerceptronLabeller, result, told

    def _ended(self, result: Result, begin: float) -> None:
        seconds = time.perf_counter() - begin
        self._log().training_seconds, self._log().stop_reason = seconds, result.stop_reason
        self._tell(
            self.on_optimization_end,
            f"Ended: {STOP_REASONS[result.stop_reason]}\n"
            f"Total seconds required for training: {seconds:.3f}\n\n",
        )

    def _dataset(self, groups: list[int]) -> tuple[Dataset, Dataset]:
        """(the sequences of some groups, the same with all attributes as if they had no values).

        The attribute of number i is observation i + 1, behind that of transitions.
        """
        rows, labels = Rows(), array("i")
        for group in groups:
            for mine, more in zip(vars(rows).values(), vars(self._groups[group][0]).values(), strict=True):
                mine.extend(more)
            labels.extend(self._groups[group][1])
        if not labels:
            raise EspalierError("there is no sequence to train on: append some first")
        data = rows.dataset([0], np.array(labels, np.int32), shift=1)
        every = np.concatenate([data.observations, rows.with_values(shift=1)], axis=1)
        return data, make_dataset(every, data.labels, data.offsets)

    def _layout(self, data: Dataset, seen: Dataset, names: list[str], n_labels: int) -> Layout:
        check_label_count(n_labels)
        values, kinds = self._values, observation_kinds(names)
        every = dense_layout(n_labels, kinds, start=False)
        together = seen_layout(seen, n_labels, kinds, start=False)
        layout = joined_layout(
            every if values["feature.possible_states"] else together,
            every if values["feature.possible_transitions"] else together,
        )
        least = values["feature.minfreq"]  # with negative values even 0 leaves pairs out, as in CRFsuite
        return frequent_layout(layout, data, least) if least > 0 or np.any(data.values < 0.0) else layout

    # Messages. They come while `verbose`; override a method to hear of what it is called after.

    def message(self, message: str) -> None:
        """Hear each message; all of them go through this."""
        print(message, end="")

    def on_start(self, log: str) -> None:
        self.message(log)

    def on_featgen_progress(self, log: str, percent: int) -> None:
        """Never called: features are made in one step."""

    def on_featgen_end(self, log: str) -> None:
        self.message(log)

    def on_prepared(self, log: str) -> None:
        self.message(log)

    def on_prepare_error(self, log: str) -> None:
        """Never called: what is wrong is raised as an error."""

    def on_iteration(self, log: str, info: dict[str, Any]) -> None:
        self.message(log)

    def on_optimization_end(self, log: str) -> None:
        self.message(log)

    def on_end(self, log: str) -> None:
        self.message(log)

    def _tell(self, hook: Callable[..., None], log: str, *more: dict[str, Any]) -> None:
        self._log().log.append(log)
        if self.verbose:
            hook(log, *more)


def _bound(kind: int) -> str:
    """What bounds a passive-aggressive step of a type."""
    if not 0 <= kind < len(BOUNDS):
        raise EspalierError(f"type is {kind}: expected 0, 1 or 2")
    return BOUNDS[kind]


def _check_texts(names: list[str], labels: list[str]) -> None:
    """Refuse half characters, which no file could hold."""
    for text in (*names, *labels):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise EspalierError(
                f"{quoted(text.removeprefix(PREFIX))} holds half a character (a lone surrogate): expected whole pairs"
            ) from None
