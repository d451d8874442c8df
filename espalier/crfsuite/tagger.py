"""python-crfsuite's `Tagger`, and what it says of a model."""

import contextlib
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from espalier.crfsuite.items import BIGRAM, PREFIX, Items, ItemSequence, Rows, Sequences
from espalier.engine import importing
from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.families import load as load_model
from espalier.engine.families.labeller import Predictor, WeightLabeller
from espalier.engine.text.values import scaled_dataset

OF_ATTRIBUTES = re.compile(r"U:%a(\[0,0(,\d+){0,2}\])?")  # templates of models that take attributes


class ParsedDump:
    """What a model holds: header, labels and attributes with their numbers, weights by name."""

    def __init__(self, model: WeightLabeller, size: int) -> None:
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


def read_model(path: str | Path) -> WeightLabeller:
    """The model of a file of Espalier or of CRFsuite, if it takes attributes."""
    return _of_attributes(importing.read(path) if importing.kind_of(path) else load_model(path), path)


def _of_attributes(model: Predictor, path: str | Path) -> WeightLabeller:
    lines = [line for line in model.templates if "%" in line]
    if not lines or not all(OF_ATTRIBUTES.fullmatch(line) for line in lines):
        raise EspalierError(f"{path}: its templates look at columns, not at attributes: use `espalier.load` for it")
    model.require("labels")
    assert isinstance(model, WeightLabeller)  # as all families are that label
    return model


class Tagger:
    """python-crfsuite's tagger: open a model, tag sequences, ask how sure it is."""

    def __init__(self) -> None:
        self._model: WeightLabeller | None = None
        self._size = 0
        self._data: Dataset | None = None

    def open(self, name: str | Path) -> "contextlib.closing[Tagger]":
        """Open a model file, of Espalier or of CRFsuite; what comes back closes it at the end of a `with`."""
        self._use(read_model(name), Path(name).stat().st_size)
        return contextlib.closing(self)

    def open_inmemory(self, value: bytes) -> "contextlib.closing[Tagger]":
        """Open a model of CRFsuite from its bytes."""
        self._use(_of_attributes(importing.read_crfsuite(bytes(value), "the model"), "the model"), len(value))
        return contextlib.closing(self)

    def _use(self, model: WeightLabeller, size: int) -> None:
        self._model, self._size, self._data = model, size, None
        known = {text: i for i, text in enumerate(model.observations)}
        everywhere = dict.fromkeys([BIGRAM, "U", *model.templates])
        self._everywhere = [known[line] for line in everywhere if line in known]
        self._ids = {text[len(PREFIX) :]: i for text, i in known.items() if text.startswith(PREFIX)}

    def close(self) -> None:
        self._model = self._data = None

    def labels(self) -> list[str]:
        return list(self._opened().labels)

    def set(self, xseq: Items) -> None:
        """The sequence that later questions are about."""
        self._opened()
        self._data = self.data_of([xseq])

    def tag(self, xseq: Items | None = None) -> list[str]:
        """The likeliest labels of a sequence, or of the one that was set."""
        if xseq is not None:
            self.set(xseq)
        model, data = self._opened(), self._current()
        return [model.labels[i] for i in model.best(data)] if len(data.labels) else []

    def probability(self, yseq: Iterable[str]) -> float:
        """p(labels | sequence) of the sequence that was set or tagged."""
        data, labels = self._current(), [self._label_id(label) for label in yseq]
        if len(labels) != len(data.labels):
            raise EspalierError(f"{len(labels)} labels for {len(data.labels)} items: expected one each")
        if not labels:
            return 1.0
        return float(np.exp(self._opened().log_probability(data, np.array(labels, np.int32))[0]))

    def marginal(self, y: str, pos: int) -> float:
        """p(label at a position | sequence) of the sequence that was set or tagged."""
        data, label = self._current(), self._label_id(y)
        if not 0 <= pos < len(data.labels):
            raise EspalierError(f"position {pos} of a sequence of {len(data.labels)} items: expected 0 and above")
        return float(self._opened().marginals(data)[pos, label])

    def info(self) -> ParsedDump:
        """What the model holds."""
        return ParsedDump(self._opened(), self._size)

    def dump(self, filename: str | Path | None = None) -> None:
        """Write what the model holds as text, to standard output by default."""
        if filename is None:
            sys.stdout.write(self.info().text())
        else:
            Path(filename).write_text(self.info().text(), encoding="utf-8")

    def data_of(self, sequences: Sequences) -> Dataset:
        """Sequences, of which those without items are left out, as data of the model."""
        model, rows = self._opened(), Rows()
        for sequence in map(ItemSequence, sequences):
            if len(sequence):
                rows.add(sequence, self._ids)
        data = rows.dataset(self._everywhere)
        return scaled_dataset(data, model.scale_of_each()) if model.scales else data

    def _opened(self) -> WeightLabeller:
        if self._model is None:
            raise EspalierError("the tagger is not opened: call open with the name of a model file first")
        return self._model

    def _current(self) -> Dataset:
        self._opened()
        if self._data is None:
            raise EspalierError("there is no sequence yet: call set or tag with one first")
        return self._data

    def _label_id(self, label: str) -> int:
        known = self._opened().labels
        if label not in known:
            raise EspalierError(f"label {quoted(str(label))} is not known: expected one of {brief(known)}")
        return known.index(label)
