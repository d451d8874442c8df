"""The names of sklearn-crfsuite (`CRF`) and python-crfsuite (`Trainer`, `Tagger`, `ItemSequence`), trained by Espalier.

Code that was written for them needs another import and nothing else:

>>> from espalier.crfsuite import CRF
>>> items = [[{"word": "the"}, {"word": "cat"}], [["word:a"], ["word:dog", "bias"]]]
>>> crf = CRF(c1=0.01, c2=0.01).fit(items, [["D", "N"], ["D", "N"]])
>>> crf.predict_single([{"word": "the"}, {"word": "dog"}])
['D', 'N']

The objective is CRFsuite's: loss + c1 |w|_1 + c2 |w|_2^2 over attributes with the labels that they were seen with and
over transitions, without weights for a first or last label. Model files are Espalier's; those of CRFsuite can be
opened. docs/migrating.md says what differs.
"""

import contextlib
import inspect
import math
import re
import sys
import time
import warnings
from array import array
from collections import namedtuple
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

from espalier.engine import importing
from espalier.engine.data.dataset import Dataset, check_label_count, make_dataset
from espalier.engine.decoding import decode
from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.estimator import ATTRIBUTES
from espalier.engine.families import load as load_model
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.families.labeller import Labeller
from espalier.engine.families.perceptron import PerceptronLabeller
from espalier.engine.families.perceptron_options import BOUNDS, PerceptronOptions
from espalier.engine.families.perceptron_training import fit as fit_perceptron
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.monitor import STOP_REASONS, Result
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.runtime import compiling
from espalier.engine.text.values import scaled_dataset
from espalier.engine.weights.layout import (
    Layout,
    dense_layout,
    frequent_layout,
    joined_layout,
    observation_kinds,
    seen_layout,
)

__all__ = ["CRF", "CRFSuiteError", "ItemSequence", "Tagger", "Trainer"]

CRFSuiteError = EspalierError
BIGRAM = "B"  # the observation at every position that transitions belong to
PREFIX = "U:"  # before every attribute, as in `engine.estimator`
OF_ATTRIBUTES = re.compile(r"U:%a(\[0,0(,\d+){0,2}\])?")  # templates of models that take attributes
UNLIMITED = 2**31 - 1


# ---- items


Attribute = str | tuple[str, float]  # a name alone where its value is 1


def attributes_of(item) -> list[Attribute]:
    """The attributes of an item as python-crfsuite reads it. One whose value is 0 counts as seen with its label.

    A dict has texts ("name:text"), numbers, True and False, or further items, whose attributes are put behind
    "name:". Anything else holds the names themselves.
    """
    if not isinstance(item, dict):
        return [_name(key) for key in item]
    found: list[Attribute] = []
    for key, value in item.items():
        name = _name(key)
        if isinstance(value, str | bytes):
            found.append(f"{name}:{_name(value)}")
        elif isinstance(value, dict | list | set):
            inner = attributes_of(value)
            found += [f"{name}:{one}" if isinstance(one, str) else (f"{name}:{one[0]}", one[1]) for one in inner]
        else:
            number = _number(name, value)
            found.append(name if number == 1.0 else (name, number))
    return found


def _name(key) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        return key.decode("utf-8")
    raise EspalierError(f"the attribute {brief(key)} is {_kind(key)}: expected a text")


def _number(name: str, value) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise EspalierError(
            f"the attribute {quoted(name)} has the value {brief(value)}, {_kind(value)}: expected a text, a number, "
            "True, False, or a dict, list or set of attributes"
        ) from None
    if not math.isfinite(number):
        raise EspalierError(f"the attribute {quoted(name)} has the value {number}: expected a finite number")
    return number


def _kind(value) -> str:
    return f"a {type(value).__name__}" if value is not None else "nothing"


class ItemSequence:
    """The items of a sequence with their attributes worked out, for those who hand it over more than once."""

    def __init__(self, pyseq: Iterable):
        self._items = pyseq._items if isinstance(pyseq, ItemSequence) else [attributes_of(item) for item in pyseq]

    def items(self) -> list[dict[str, float]]:
        """Attributes and their values, a dict for each item."""
        return [
            dict((one, 1.0) if isinstance(one, str) else one for one in attributes) for attributes in self._items
        ]

    def __iter__(self) -> Iterator[list[Attribute]]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<ItemSequence of size {len(self)}>"


class _Rows:
    """Numbers of attributes, item after item, those with values apart: what becomes the observations of a data set."""

    def __init__(self):
        self.ids, self.counts, self.lengths = array("i"), array("i"), array("q")
        self.valued, self.valued_counts, self.values = array("i"), array("i"), array("d")

    def add(self, sequence: ItemSequence, ids: dict[str, int], grows: bool = False) -> None:
        """Append a sequence; attributes that are not known are left out, or numbered where it `grows`."""
        number = _growing(ids) if grows else ids.get
        for attributes in sequence:
            plain = [i for one in attributes if isinstance(one, str) and (i := number(one)) is not None]
            others = [one for one in attributes if not isinstance(one, str)]
            pairs = [(i, value) for name, value in others if (i := number(name)) is not None]
            self.ids.extend(plain)
            self.counts.append(len(plain))
            self.valued.extend(i for i, _ in pairs)
            self.values.extend(value for _, value in pairs)
            self.valued_counts.append(len(pairs))
        self.lengths.append(len(sequence))

    def dataset(self, everywhere: list[int], labels=None, shift: int = 0) -> Dataset:
        """The data set of all sequences; observations `everywhere` stand at each position, `shift` is added to ids."""
        plain = _filled(np.array(self.ids, np.int32) + np.int32(shift), self.counts, -1, len(everywhere))
        plain[:, : len(everywhere)] = everywhere
        values = _filled(np.array(self.values), self.valued_counts, 0.0)
        offsets = np.cumsum([0, *self.lengths])
        return make_dataset(plain, labels, offsets, valued=self.with_values(shift), values=values)

    def with_values(self, shift: int = 0) -> np.ndarray:
        """The numbers of the attributes with values, those that are 0 among them; -1 fills up."""
        return _filled(np.array(self.valued, np.int32) + np.int32(shift), self.valued_counts, -1)


def _filled(values: np.ndarray, counts: array, empty, first: int = 0) -> np.ndarray:
    """A row for each item with its values from column `first` on, the rest `empty`."""
    counts = np.array(counts, np.int64)
    table = np.full((len(counts), first + int(counts.max(initial=0))), empty, values.dtype)
    row = np.repeat(np.arange(len(counts)), counts)
    table[row, first + np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)] = values
    return table


def _growing(ids: dict[str, int]):
    return lambda name: ids.setdefault(name, len(ids))


# ---- parameters

Parameter = namedtuple("Parameter", "kind default help")


def _truth(value) -> bool:
    return bool(int(value))


FEATURES = {
    "feature.minfreq": Parameter(float, 0.0, "Attribute with label, or transition, must occur this often."),
    "feature.possible_states": Parameter(_truth, False, "Weights for all pairs of attribute and label."),
    "feature.possible_transitions": Parameter(_truth, False, "Weights for all pairs of labels."),
}
UNUSED = "Accepted and not used: the solver here needs none."
STOPPING = {
    "period": Parameter(int, 10, "Iterations that are looked back on to see whether to stop."),
    "delta": Parameter(float, 1e-5, "Stop when they have lowered the objective by less than this share of it."),
}
EPOCHS = {
    "max_iterations": Parameter(int, 100, "The largest number of iterations."),
    "epsilon": Parameter(float, 0.0, "Stop when the mean loss of a sequence in an iteration is less."),
}
ALGORITHMS = {
    "lbfgs": FEATURES
    | {
        "c1": Parameter(float, 0.0, "Strength of the L1 penalty c1 |w|_1."),
        "c2": Parameter(float, 1.0, "Strength of the L2 penalty c2 |w|_2^2."),
        "max_iterations": Parameter(int, UNLIMITED, "The largest number of iterations."),
        "num_memories": Parameter(int, 6, UNUSED),
        "epsilon": Parameter(float, 1e-5, UNUSED),
        **STOPPING,
        "linesearch": Parameter(str, "MoreThuente", UNUSED),
        "max_linesearch": Parameter(int, 20, UNUSED),
    },
    "l2sgd": FEATURES
    | {
        "c2": Parameter(float, 1.0, "Strength of the L2 penalty c2 |w|_2^2."),
        "max_iterations": Parameter(int, 1000, "The largest number of iterations."),
        "period": STOPPING["period"],
        "delta": STOPPING["delta"]._replace(default=1e-6),
        "calibration.eta": Parameter(float, 0.1, UNUSED),
        "calibration.rate": Parameter(float, 2.0, UNUSED),
        "calibration.samples": Parameter(float, 1000.0, UNUSED),
        "calibration.candidates": Parameter(int, 10, UNUSED),
        "calibration.max_trials": Parameter(int, 20, UNUSED),
    },
    "averaged-perceptron": FEATURES | EPOCHS,
    "passive-aggressive": FEATURES
    | {
        "type": Parameter(int, 1, "How far a mistake moves weights: 0 as it asks for, 1 at most c (PA-I), 2 PA-II."),
        "c": Parameter(float, 1.0, "The larger, the further a mistake may move weights."),
        "error_sensitive": Parameter(_truth, True, "Whether the cost of a mistake grows with its wrong labels."),
        "averaging": Parameter(_truth, True, "Keep the mean of the weights after every sequence."),
        **EPOCHS,
    },
    "arow": FEATURES
    | {
        "variance": Parameter(float, 1.0, "Variance of the weights in the beginning."),
        "gamma": Parameter(float, 1.0, "The larger, the shorter the steps."),
        **EPOCHS,
    },
}
SHORT = {"ap": "averaged-perceptron", "pa": "passive-aggressive"}
UPDATES = {"averaged-perceptron": "perceptron", "passive-aggressive": "pa", "arow": "arow"}  # of a perceptron


def _algorithm(name: str) -> str:
    """A name of `ALGORITHMS`, or an error that says what else there is."""
    name = SHORT.get(str(name).lower(), str(name).lower())
    if name not in ALGORITHMS:
        raise EspalierError(f"algorithm {quoted(name)} is not known: choose one of {', '.join(ALGORITHMS)}")
    return name


# ---- training

LabelScore = namedtuple("LabelScore", "match model ref precision recall f1")


class TrainingLog:
    """What a training told: a dict for each iteration, and all lines."""

    def __init__(self):
        self.iterations: list[dict] = []
        self.log: list[str] = []
        self.featgen_num_features = self.featgen_seconds = self.training_seconds = self.storing_seconds = None
        self.stop_reason: str | None = None

    @property
    def last_iteration(self) -> dict | None:
        return self.iterations[-1] if self.iterations else None

    @property
    def last_log(self) -> str:
        return self.log[-1] if self.log else ""


class Trainer:
    """python-crfsuite's trainer: append sequences, set parameters, train, and the model is in a file."""

    def __init__(self, algorithm: str | None = None, params: dict | None = None, verbose: bool = True):
        self.verbose, self.logparser, self.model_ = verbose, None, None
        self.clear()
        self.select(algorithm or "lbfgs")
        self.set_params(params or {})

    # Data.

    def append(self, xseq: Iterable, yseq: Iterable[str], group: int = 0) -> None:
        """Add a sequence of items and its labels; groups tell training data from what is held out."""
        items = xseq if isinstance(xseq, ItemSequence) else ItemSequence(xseq)
        labels = [_label(label) for label in yseq]
        if len(items) != len(labels):
            raise EspalierError(f"a sequence has {len(items)} items and {len(labels)} labels: expected one each")
        if not labels:
            return
        rows, ids = self._groups.setdefault(int(group), (_Rows(), array("i")))
        rows.add(items, self._attributes, grows=True)
        number = _growing(self._labels)
        ids.extend(map(number, labels))

    def clear(self) -> None:
        """Forget all sequences."""
        self._groups: dict[int, tuple[_Rows, array]] = {}
        self._attributes: dict[str, int] = {}
        self._labels: dict[str, int] = {}

    # Parameters.

    def select(self, algorithm: str, type: str = "crf1d") -> None:
        """Choose lbfgs, l2sgd, whose objective is the same, ap, pa or arow; parameters are then as by default."""
        if type != "crf1d":
            raise EspalierError(f"the graphical model {quoted(str(type))} is not known: expected crf1d")
        self.algorithm = _algorithm(algorithm)
        self._values = {name: parameter.default for name, parameter in ALGORITHMS[self.algorithm].items()}

    def params(self) -> list[str]:
        """The names of the parameters."""
        return list(ALGORITHMS[self.algorithm])

    def set_params(self, params: dict) -> None:
        for name, value in params.items():
            self.set(name, value)

    def get_params(self) -> dict:
        return dict(self._values)

    def set(self, name: str, value) -> None:
        kind = self._parameter(name).kind
        try:
            self._values[name] = kind(value)
        except (TypeError, ValueError):
            expected = {int: "a whole number", float: "a number", _truth: "True or False"}[kind]
            raise EspalierError(f"{name} is {brief(value)}: expected {expected}") from None

    def get(self, name: str):
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

    def _trained(self, holdout: int) -> Labeller:
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
        self.logparser.featgen_num_features = layout.size
        self.logparser.featgen_seconds = time.perf_counter() - begin
        seconds = self.logparser.featgen_seconds
        self._tell(self.on_featgen_end, f"Number of features: {layout.size}\nSeconds required: {seconds:.3f}\n\n")
        told = "".join(f"{name}: {value}\n" for name, value in self._values.items())
        self._tell(self.on_prepared, f"{self.algorithm} optimization\n{told}\n")
        train = self._learnt if self.algorithm in UPDATES else self._minimised
        kind, result, info = train(data, layout, _Watch(self, layout, labels, tested))
        info |= {"start": False, "stop_reason": result.stop_reason, "iterations": result.iterations,
                 "objective": result.objective, "features": layout.size}  # fmt: skip
        return kind.compact(layout, result.theta, names, labels, [ATTRIBUTES, BIGRAM], info)

    def _minimised(self, data: Dataset, layout: Layout, watch: "_Watch") -> tuple[type[Labeller], Result, dict]:
        """The weights of lbfgs and l2sgd, what kind of model they are, and what its file says of that."""
        values, begin = self._values, time.perf_counter()
        penalty = ElasticNet(values.get("c1", 0.0), 2 * values["c2"])  # ours is rho2/2 |theta|^2
        result = minimise(
            "auto", ChainObjective(data, layout), penalty, None, values["max_iterations"], values["delta"],
            values["period"], watch,
        )  # fmt: skip
        self._ended(result, begin)
        return CrfLabeller, result, {"solver": "hybrid", "penalty": {"rho1": penalty.rho1, "rho2": penalty.rho2}}

    def _learnt(self, data: Dataset, layout: Layout, watch: "_Watch") -> tuple[type[Labeller], Result, dict]:
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
        self.logparser.training_seconds = time.perf_counter() - begin
        self.logparser.stop_reason = result.stop_reason
        self._tell(
            self.on_optimization_end,
            f"Ended: {STOP_REASONS[result.stop_reason]}\n"
            f"Total seconds required for training: {self.logparser.training_seconds:.3f}\n\n",
        )

    def _dataset(self, groups: list[int]) -> tuple[Dataset, Dataset]:
        """(the sequences of some groups, the same with all attributes as if they had no values).

        The attribute of number i is observation i + 1, behind that of transitions.
        """
        rows, labels = _Rows(), array("i")
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

    def on_iteration(self, log: str, info: dict) -> None:
        self.message(log)

    def on_optimization_end(self, log: str) -> None:
        self.message(log)

    def on_end(self, log: str) -> None:
        self.message(log)

    def _tell(self, hook, log: str, *more) -> None:
        self.logparser.log.append(log)
        if self.verbose:
            hook(log, *more)


def _bound(kind: int) -> str:
    """What bounds a passive-aggressive step of a type."""
    if not 0 <= kind < len(BOUNDS):
        raise EspalierError(f"type is {kind}: expected 0, 1 or 2")
    return BOUNDS[kind]


def _label(label) -> str:
    if not isinstance(label, str | bytes):
        raise EspalierError(f"the label {brief(label)} is {_kind(label)}: expected a text")
    return _name(label)


def _check_texts(names: list[str], labels: list[str]) -> None:
    """Refuse half characters, which no file could hold."""
    for text in (*names, *labels):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise EspalierError(
                f"{quoted(text.removeprefix(PREFIX))} holds half a character (a lone surrogate): expected whole pairs"
            ) from None


class _Watch:
    """Hears of each iteration: keeps it in the log, tests it on what was held out, tells the trainer's hooks."""

    def __init__(self, trainer: Trainer, layout: Layout, labels: list[str], tested: Dataset | None):
        self.trainer, self.layout, self.labels, self.tested = trainer, layout, labels, tested
        self.before = time.perf_counter()

    def __call__(self, record: dict, theta: np.ndarray) -> None:
        if not record["iteration"]:
            return
        now = time.perf_counter()
        info = {
            "num": record["iteration"], "loss": record["objective"], "feature_norm": float(np.linalg.norm(theta)),
            "error_norm": record.get("gradient_norm", 0.0), "active_features": int(np.count_nonzero(theta)),
            "time": now - self.before, "scores": {},
        }  # fmt: skip
        if self.tested is not None:
            info |= self._tested(theta)
        self.before = now
        self.trainer.logparser.iterations.append(info)
        self.trainer._tell(self.trainer.on_iteration, _iteration_text(info), info)

    def _tested(self, theta: np.ndarray) -> dict:
        """How well the weights do on the held-out data, label by label."""
        right, found = self.tested.labels, decode.viterbi(self.tested, self.layout, theta)
        hit = right == found
        size = len(self.labels)
        match, model, ref = (np.bincount(ids, minlength=size) for ids in (right[hit], found, right))
        scores = {name: _score(*counts) for name, *counts in zip(self.labels, match, model, ref, strict=True)}
        whole = np.logical_and.reduceat(hit, self.tested.offsets[:-1])
        items, sequences = Fraction(int(hit.sum()), len(hit)), Fraction(int(whole.sum()), len(whole))
        averages = {
            f"avg_{part}": sum(getattr(score, part) or 0.0 for score in scores.values()) / size
            for part in ("precision", "recall", "f1")
        }
        return {"scores": scores, **averages, "item_accuracy": items, "item_accuracy_float": float(items),
                "instance_accuracy": sequences, "instance_accuracy_float": float(sequences)}  # fmt: skip


def _score(match: int, model: int, ref: int) -> LabelScore:
    """Precision, recall and F1 of a label, None for one that does not occur."""
    counts = int(match), int(model), int(ref)
    if not ref:
        return LabelScore(*counts, None, None, None)
    precision, recall = (match / model if model else 0.0), match / ref
    return LabelScore(*counts, precision, recall, 2 * precision * recall / (precision + recall) if match else 0.0)


def _iteration_text(info: dict) -> str:
    lines = [f"***** Iteration #{info['num']} *****", f"Loss: {info['loss']:.6f}",
             f"Feature norm: {info['feature_norm']:.6f}", f"Error norm: {info['error_norm']:.6f}",
             f"Active features: {info['active_features']}",
             f"Seconds required for this iteration: {info['time']:.3f}"]  # fmt: skip
    if info["scores"]:
        lines.append("Performance by label (#match, #model, #ref) (precision, recall, F1):")
        for name, score in info["scores"].items():
            parts = ", ".join("******" if part is None else f"{part:.4f}" for part in score[3:])
            lines.append(f"    {name}: ({score.match}, {score.model}, {score.ref}) ({parts})")
        averages = ", ".join(f"{info[f'avg_{part}']:.6f}" for part in ("precision", "recall", "f1"))
        lines.append(f"Macro-average precision, recall, F1: ({averages})")
        lines.append(f"Item accuracy: {info['item_accuracy_float']:.4f}")
        lines.append(f"Instance accuracy: {info['instance_accuracy_float']:.4f}")
    return "\n".join(lines) + "\n\n"


# ---- tagging


class ParsedDump:
    """What a model holds: header, labels and attributes with their numbers, weights by name."""

    def __init__(self, model: Labeller, size: int):
        self.transitions: dict[tuple[str, str], float] = {}
        self.state_features: dict[tuple[str, str], float] = {}
        for row in model.table().to_pylist():
            if row["family"] == "bigram":
                self.transitions[row["previous"], row["label"]] = row["weight"]
            elif row["family"] == "unigram":
                self.state_features[row["observation"].removeprefix(PREFIX), row["label"]] = row["weight"]
        names = list(dict.fromkeys(name for name, _ in self.state_features))
        self.labels = {name: str(i) for i, name in enumerate(model.labels)}
        self.attributes = {name: str(i) for i, name in enumerate(names)}
        self.header = {"size": str(size), "type": "CRF1d", "num_features": str(len(model.theta)),
                       "num_labels": str(len(model.labels)), "num_attrs": str(len(names))}  # fmt: skip

    def text(self) -> str:
        """As CRFsuite writes a dump."""
        parts = {
            "FILEHEADER": [f"  {name}: {value}" for name, value in self.header.items()],
            "LABELS": [f"  {i:>5}: {name}" for name, i in self.labels.items()],
            "ATTRIBUTES": [f"  {i:>5}: {name}" for name, i in self.attributes.items()],
            "TRANSITIONS": [f"  (1) {a} --> {b}: {weight:f}" for (a, b), weight in self.transitions.items()],
            "STATE_FEATURES": [f"  (0) {a} --> {b}: {weight:f}" for (a, b), weight in self.state_features.items()],
        }
        return "".join("\n".join([f"{name} = {{", *lines, "}\n\n"]) for name, lines in parts.items())


def read_model(path: str | Path) -> Labeller:
    """The model of a file of Espalier or of CRFsuite, if it takes attributes."""
    return _of_attributes(importing.read(path) if importing.kind_of(path) else load_model(path), path)


def _of_attributes(model: Labeller, path: str | Path) -> Labeller:
    lines = [line for line in model.templates if "%" in line]
    if not lines or not all(OF_ATTRIBUTES.fullmatch(line) for line in lines):
        raise EspalierError(f"{path}: its templates look at columns, not at attributes: use `espalier.load` for it")
    return model


class Tagger:
    """python-crfsuite's tagger: open a model, tag sequences, ask how sure it is."""

    def __init__(self):
        self._model: Labeller | None = None
        self._size = 0
        self._data: Dataset | None = None

    def open(self, name: str | Path):
        """Open a model file, of Espalier or of CRFsuite; what comes back closes it at the end of a `with`."""
        self._use(read_model(name), Path(name).stat().st_size)
        return contextlib.closing(self)

    def open_inmemory(self, value: bytes):
        """Open a model of CRFsuite from its bytes."""
        self._use(_of_attributes(importing.read_crfsuite(bytes(value), "the model"), "the model"), len(value))
        return contextlib.closing(self)

    def _use(self, model: Labeller, size: int) -> None:
        self._model, self._size, self._data = model, size, None
        known = {text: i for i, text in enumerate(model.observations)}
        everywhere = dict.fromkeys([BIGRAM, "U", *model.templates])
        self._everywhere = [known[line] for line in everywhere if line in known]
        self._ids = {text[len(PREFIX) :]: i for text, i in known.items() if text.startswith(PREFIX)}

    def close(self) -> None:
        self._model = self._data = None

    def labels(self) -> list[str]:
        return list(self._opened().labels)

    def set(self, xseq: Iterable) -> None:
        """The sequence that later questions are about."""
        self._opened()
        self._data = self.data_of([xseq])

    def tag(self, xseq: Iterable | None = None) -> list[str]:
        """The likeliest labels of a sequence, or of the one that was set."""
        if xseq is not None:
            self.set(xseq)
        data = self._current()
        return [self._model.labels[i] for i in self._model.best(data)] if len(data.labels) else []

    def probability(self, yseq: Iterable[str]) -> float:
        """p(labels | sequence) of the sequence that was set or tagged."""
        data, labels = self._current(), [self._label_id(label) for label in yseq]
        if len(labels) != len(data.labels):
            raise EspalierError(f"{len(labels)} labels for {len(data.labels)} items: expected one each")
        if not labels:
            return 1.0
        return float(np.exp(self._model.log_probability(data, np.array(labels, np.int32))[0]))

    def marginal(self, y: str, pos: int) -> float:
        """p(label at a position | sequence) of the sequence that was set or tagged."""
        data, label = self._current(), self._label_id(y)
        if not 0 <= pos < len(data.labels):
            raise EspalierError(f"position {pos} of a sequence of {len(data.labels)} items: expected 0 and above")
        return float(self._model.marginals(data)[pos, label])

    def info(self) -> ParsedDump:
        """What the model holds."""
        return ParsedDump(self._opened(), self._size)

    def dump(self, filename: str | Path | None = None) -> None:
        """Write what the model holds as text, to standard output by default."""
        if filename is None:
            sys.stdout.write(self.info().text())
        else:
            Path(filename).write_text(self.info().text(), encoding="utf-8")

    def data_of(self, sequences: Iterable) -> Dataset:
        """Sequences, of which those without items are left out, as data of the model."""
        rows = _Rows()
        for sequence in map(ItemSequence, sequences):
            if len(sequence):
                rows.add(sequence, self._ids)
        data = rows.dataset(self._everywhere)
        return scaled_dataset(data, self._model.scale_of_each()) if self._model.scales else data

    def _opened(self) -> Labeller:
        if self._model is None:
            raise EspalierError("the tagger is not opened: call open with the name of a model file first")
        return self._model

    def _current(self) -> Dataset:
        self._opened()
        if self._data is None:
            raise EspalierError("there is no sequence yet: call set or tag with one first")
        return self._data

    def _label_id(self, label: str) -> int:
        if label not in self._model.labels:
            raise EspalierError(f"label {quoted(str(label))} is not known: expected one of {brief(self._model.labels)}")
        return self._model.labels.index(label)


# ---- the estimator

# Parameters of `CRF` that a trainer knows by another name.
TRAINER_NAMES = {"min_freq": "feature.minfreq", "all_possible_states": "feature.possible_states",
                 "all_possible_transitions": "feature.possible_transitions", "pa_type": "type"}  # fmt: skip
OWN = ("algorithm", "verbose", "model_filename", "keep_tempfiles", "trainer_cls")  # are no trainer's


class CRF:
    """sklearn-crfsuite's estimator. A parameter that is None has CRFsuite's default; see `Trainer.help` for each."""

    def __init__(
        self, algorithm="lbfgs", min_freq=None, all_possible_states=None, all_possible_transitions=None, c1=None,
        c2=None, max_iterations=None, num_memories=None, epsilon=None, period=None, delta=None, linesearch=None,
        max_linesearch=None, calibration_eta=None, calibration_rate=None, calibration_samples=None,
        calibration_candidates=None, calibration_max_trials=None, pa_type=None, c=None, error_sensitive=None,
        averaging=None, variance=None, gamma=None, verbose=False, model_filename=None, keep_tempfiles=False,
        trainer_cls=None,
    ):  # fmt: skip
        values = dict(locals())
        del values["self"]
        vars(self).update(values)
        self.training_log_ = None
        self._tagger = None

    # What scikit-learn asks of an estimator.

    def get_params(self, deep: bool = True) -> dict:
        return {name: getattr(self, name) for name in list(inspect.signature(type(self)).parameters)}

    def set_params(self, **params) -> "CRF":
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise EspalierError(f"unknown parameter {name!r}: known are {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self):
        from sklearn.base import BaseEstimator

        return BaseEstimator().__sklearn_tags__()

    def __repr__(self) -> str:
        other = {name: value for name, value in self.get_params().items() if value not in (None, False, "lbfgs")}
        return f"CRF({', '.join(f'{name}={value!r}' for name, value in other.items())})"

    # Training.

    def fit(self, X: Iterable, y: Iterable, X_dev: Iterable | None = None, y_dev: Iterable | None = None) -> "CRF":
        """Learn from sequences X of items and their labels y; X_dev and y_dev are tested on after each iteration."""
        if (X_dev is None) != (y_dev is None):
            raise EspalierError("X_dev without y_dev, or y_dev without X_dev: expected both or neither")
        trainer = self._trainer()
        _append(trainer, X, y, 0)
        if X_dev is not None:
            _append(trainer, X_dev, y_dev, 1)
        trainer.train(self.model_filename or "", -1 if X_dev is None else 1)
        self.training_log_ = trainer.logparser
        self._tagger = Tagger()
        self._tagger._use(trainer.model_, Path(self.model_filename).stat().st_size if self.model_filename else 0)
        return self

    def _trainer(self) -> Trainer:
        given = {name: value for name, value in self.get_params().items() if name not in OWN and value is not None}
        named = {TRAINER_NAMES.get(name, name.replace("calibration_", "calibration.")): v for name, v in given.items()}
        return (self.trainer_cls or Trainer)(algorithm=self.algorithm, params=named, verbose=self.verbose)

    # Answers.

    def predict(self, X: Iterable) -> list[list[str]]:
        """The likeliest labels of each sequence."""
        return self._cut(X, lambda tagger, data: [tagger._model.labels[i] for i in tagger._model.best(data)])

    def predict_single(self, xseq: Iterable) -> list[str]:
        return self.predict([xseq])[0]

    def predict_marginals(self, X: Iterable) -> list[list[dict[str, float]]]:
        """p(label | sequence) of each label at each item."""

        def answers(tagger: Tagger, data: Dataset) -> list[dict[str, float]]:
            rows = tagger._model.marginals(data).tolist()
            return [dict(zip(tagger._model.labels, row, strict=True)) for row in rows]

        return self._cut(X, answers)

    def predict_marginals_single(self, xseq: Iterable) -> list[dict[str, float]]:
        return self.predict_marginals([xseq])[0]

    def score(self, X: Iterable, y: Iterable) -> float:
        """Share of items with the right label."""
        pairs = list(zip(y, self.predict(X), strict=True))
        total = sum(len(row) for _, row in pairs)
        if not total:
            raise EspalierError("there is no item: expected at least one to score")
        return sum(a == b for right, row in pairs for a, b in zip(right, row, strict=True)) / total

    def _cut(self, X: Iterable, answers) -> list[list]:
        """The answers to all items, cut into sequences again, those without items among them."""
        tagger, sequences = self._fitted(), [ItemSequence(sequence) for sequence in X]
        data = tagger.data_of(sequences)
        found = iter(answers(tagger, data) if len(data.labels) else ())
        return [[next(found) for _ in range(len(sequence))] for sequence in sequences]

    # What was learnt.

    @property
    def tagger_(self) -> Tagger | None:
        """A tagger with the model, or with that of `model_filename`; None before there is one."""
        if self._tagger is None and self.model_filename and Path(self.model_filename).is_file():
            self._tagger = Tagger()
            self._tagger.open(self.model_filename)
        return self._tagger

    def _fitted(self) -> Tagger:
        tagger = self.tagger_
        if tagger is None:
            raise EspalierError("this CRF has not been fitted: call fit, or name a model file in model_filename")
        return tagger

    def _info(self) -> ParsedDump | None:
        return self.tagger_.info() if self.tagger_ else None

    @property
    def classes_(self) -> list[str] | None:
        return self.tagger_.labels() if self.tagger_ else None

    @property
    def size_(self) -> int | None:
        """Bytes of the model file; 0 where none was written."""
        return self.tagger_._size if self.tagger_ else None

    @property
    def num_attributes_(self) -> int | None:
        """How many attributes have a weight that is not zero."""
        return len(self._info().attributes) if self.tagger_ else None

    @property
    def attributes_(self) -> list[str] | None:
        """The attributes with a weight that is not zero."""
        return list(self._info().attributes) if self.tagger_ else None

    @property
    def state_features_(self) -> dict[tuple[str, str], float] | None:
        """{(attribute, label): weight}"""
        return self._info().state_features if self.tagger_ else None

    @property
    def transition_features_(self) -> dict[tuple[str, str], float] | None:
        """{(label before, label): weight}"""
        return self._info().transitions if self.tagger_ else None


def _append(trainer: Trainer, X: Iterable, y: Iterable, group: int) -> None:
    try:
        for items, labels in zip(X, y, strict=True):
            trainer.append(items, labels, group)
    except ValueError as error:
        if isinstance(error, EspalierError):
            raise
        raise EspalierError("X and y have different numbers of sequences: expected one row of labels each") from None
