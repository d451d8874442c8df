"""Models in words, as a file holds them: `Stored` is any model, `Model` one of weights on a layout.

What comes back from a file is checked against itself before a kernel sees it; `engine.model_file` has what all files
share.
"""

import hashlib
import json
from abc import abstractmethod
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa

from espalier.engine import model_file
from espalier.engine.data.dataset import Dataset, renumbered
from espalier.engine.errors import EspalierError, quoted
from espalier.engine.model_file import REMEDY, WEIGHTS, ModelFile, Tables, texts_column, whole
from espalier.engine.runtime.arrow_arrays import missing, numbers_of
from espalier.engine.weights.layout import FAMILIES, Layout, _assemble
from espalier.engine.weights.stop_twins import STOP, is_twin, of_twin

NOTHING_WRITTEN = "nothing was written: check the data, the sequence weights and the model that training started from"


class Stored:
    """A trained model of any kind: its labels, the texts that it knows, tables of numbers.

    `observations[i]` is the full expansion of a template; its first character tells its kind. A subclass says by
    `body` which tables its file has, and makes them and itself: a file with others is refused.
    """

    family: ClassVar[str]
    body: ClassVar[model_file.Body]

    labels: list[str]
    templates: list[str]
    observations: list[str]
    info: dict

    @abstractmethod
    def tables(self) -> Tables:
        """Its tables, as `body` names them."""
        raise NotImplementedError

    @classmethod
    @abstractmethod
    def of_tables(cls, labels: list[str], templates: list[str], info: dict, tables: Tables, path: Path) -> Self:
        """The model of the tables of a file; what does not fit together is an EspalierError."""
        raise NotImplementedError

    def __getstate__(self) -> dict:
        """What a copy or another process gets: the fields; what is made when first asked for is made there again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def lists(self) -> dict[str, list[str]]:
        """The lines of the lists of names that the templates speak of, by their names; they travel with the model."""
        return self.info.get("lists") or {}

    @property
    def scales(self) -> dict[str, float]:
        """What the values of observations are multiplied by; of those not named they are taken as they are."""
        return self.info.get("scales") or {}

    def scale_of_each(self) -> np.ndarray:
        """The same for each observation, float64 [V]."""
        return np.array([self.scales.get(text, 1.0) for text in self.observations])

    @cached_property
    def parsed(self):
        """The templates with their lists; see `engine.text.templates`. Made when first asked for."""
        from espalier.engine.text.templates import parse

        bias = ["U"] if "U:%a" in self.templates and "U" in self.observations else []  # of models made in Python
        lines = [*self.templates, *(line for line in bias if line not in self.templates)]
        return parse(lines, "the model's templates", self.lists)

    @cached_property
    def vocabulary(self):
        """The observations, ready to be looked up; see `engine.text.lookup`. Made when first asked for."""
        from espalier.engine.text.lookup import make_vocabulary

        return make_vocabulary(self.observations)

    def ids_of(self, texts: list[str]) -> np.ndarray:
        """Its number of each text, -1 where it has no weight for it and once more at the end, for no text."""
        known = {text: i for i, text in enumerate(self.observations)}
        return np.array([known.get(text, -1) for text in texts] + [-1], np.int32)

    def renumbered(self, dataset: Dataset, texts: list[str]) -> Dataset:
        """Data whose observations are numbers of `texts`, in its own numbering."""
        return renumbered(dataset, self.ids_of(texts))

    def head(self) -> dict:
        """What the file says beside its tables."""
        head = {"format": model_file.format_of(self.body), "labels": self.labels, "templates": self.templates}
        return head | self.info | {"family": self.family}

    def checksum(self) -> str:
        """SHA-256 over everything that the file holds, so that no change goes unnoticed."""
        return model_file.checksum(self.head(), self.tables())

    def save(self, path: str | Path) -> None:
        """Written whole: a reader never sees half a model, nor one that cannot be used."""
        path, tables = Path(path), self.tables()
        model_file.refuse_infinite(tables, path, NOTHING_WRITTEN)
        model_file.write(path, self.head() | {"checksum": self.checksum()}, tables)

    @classmethod
    def read(cls, file: ModelFile) -> Self:
        """The model of a file of its family, checked against itself."""
        tables, head = model_file.read_tables(file, cls.body), dict(file.head)
        for key in ("format", "family", "checksum"):
            head.pop(key, None)
        model = cls.of_tables(head.pop("labels"), head.pop("templates"), head, tables, file.path)
        model.verify(file, tables)
        return model

    def verify(self, file: ModelFile, tables: Tables) -> None:
        """Refuse a file that does not have the checksum that it states."""
        stated = {name: value for name, value in file.head.items() if name != "checksum"}
        model_file.check_checksum(file, model_file.checksum(stated, tables))


@dataclass
class Model(Stored):
    """Weights in words: observation strings, labels, and the slots that are not zero.

    `layout` and `theta` cover active weights only. `family` says what they mean; `engine.families` has a class
    for each, with what such a model says of data.
    """

    family: ClassVar[str] = model_file.FIRST_FAMILY
    body: ClassVar[model_file.Body] = {"weights": WEIGHTS}

    labels: list[str]
    templates: list[str]
    observations: list[str]
    layout: Layout
    theta: np.ndarray
    info: dict = field(default_factory=dict)

    @classmethod
    def compact(cls, layout: Layout, theta: np.ndarray, observations, labels, templates, info: dict) -> Self:
        """Keep only what is active of a trained theta; `observations` is indexed by id."""
        where = np.flatnonzero(theta)
        family, observation, previous, label = layout.slots(where)
        used = _with_owners(np.unique(observation), observations)
        local, names = np.searchsorted(used, observation), [observations[int(i)] for i in used]
        small = _layout(len(labels), len(names), family, local, previous, label)
        if "scales" in info:
            info = info | {"scales": {text: info["scales"][text] for text in names if text in info["scales"]}}
        return cls(list(labels), list(templates), names, small, theta[where].copy(), dict(info))

    @classmethod
    def of_weights(
        cls, labels, templates, observations, family, observation, previous, label, weight, info: dict, where: str
    ) -> Self:  # fmt: skip
        """A model from weights in any order, given by what they belong to; `previous` is -1 where there is none."""
        if not np.all(np.isfinite(weight)):
            raise EspalierError(f"{where}: weight {int(np.argmin(np.isfinite(weight)))} is not a finite number")
        order = np.lexsort((label, previous, observation, family))
        order = order[weight[order] != 0.0]
        family, observation, previous, label = (a[order] for a in (family, observation, previous, label))
        used, local = np.unique(observation, return_inverse=True)
        layout = _layout(len(labels), len(used), family, local, previous, label)
        if not _same_order(layout, family, local, previous, label):
            raise EspalierError(f"{where}: a weight is there twice, expected each once")
        names = [observations[i] for i in used]
        return cls(list(labels), list(templates), names, layout, weight[order].copy(), dict(info))

    def table(self) -> pa.Table:
        """Its weights, with all that is said of the model, as a file without further tables has them."""
        head = self._head() | {"checksum": self.checksum()}
        return self.tables()["weights"].replace_schema_metadata({"espalier": json.dumps(head, sort_keys=True)})

    def tables(self) -> Tables:
        family, observation, previous, label = self.layout.slots()
        twin, kinds = _twins(self.observations), list(FAMILIES)
        if twin.any():
            family, kinds = np.where(twin[observation], len(FAMILIES), family), [*FAMILIES, STOP]
        columns = {
            "family": texts_column(family, kinds),
            "observation": texts_column(observation, self.observations),
            "previous": texts_column(previous, self.labels),
            "label": texts_column(label, self.labels),
            "weight": pa.array(self.theta, pa.float64()),
        }
        return {"weights": pa.table(columns)}

    @classmethod
    def of_tables(cls, labels: list[str], templates: list[str], info: dict, tables: Tables, path: Path) -> Self:
        return cls(labels, templates, *_weights_of(tables["weights"], labels, path), info)

    def _head(self, format: int | None = None, family: str | None = None) -> dict:
        head = self.head() if family is None else self.head() | {"family": family}
        head = head if format is None else head | {"format": format}
        return head if head["format"] > 3 else {name: value for name, value in head.items() if name != "family"}

    def checksum(self, format: int | None = None, family: str | None = None) -> str:
        """SHA-256 over everything that the file holds; `format` tells how."""
        format = format or model_file.format_of(self.body)
        if format == model_file.NESTED:
            return super().checksum()
        described = [json.loads(json.dumps(self._head(format, family))), self.observations]  # as they come back
        if format == 2:
            described = [self.labels, self.templates, self.observations, *([self.lists] if self.lists else [])]
        digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
        for array in (*self.layout.slots(), self.theta):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Written whole: a reader never sees half a model, nor one that cannot be used."""
        path = Path(path)
        if not np.all(np.isfinite(self.theta)):
            at = int(np.argmin(np.isfinite(self.theta)))
            raise EspalierError(f"{path}: weight {at} is {self.theta[at]}, expected a finite number; {NOTHING_WRITTEN}")
        super().save(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The weights of a file in words. `engine.families.load` gives a model that labels data."""
        return cls.read(model_file.open_model(path))

    def verify(self, file: ModelFile, tables: Tables) -> None:
        if file.head["format"] == model_file.NESTED:
            return super().verify(file, tables)
        return model_file.check_checksum(file, self.checksum(file.head["format"], file.family))


def _weights_of(table: pa.Table, labels: list[str], path: Path) -> tuple[list[str], Layout, np.ndarray]:
    """(observations, layout, theta) of a table of weights."""
    columns = _columns(table, path)
    names = columns["observation"].dictionary.to_pylist()
    if None in names or len(set(names)) != len(names):
        raise EspalierError(f"{path}: an observation is empty or occurs twice in the file's list; {REMEDY}")
    codes = {text: i for i, text in enumerate(labels)}
    family = _recode(columns["family"], {name: i for i, name in enumerate((*FAMILIES, STOP))}, path, "family")
    previous = _recode(columns["previous"], codes, path, "previous label")
    label = _recode(columns["label"], codes, path, "label")
    observation = numbers_of(columns["observation"].indices, np.int32)
    weight = numbers_of(columns["weight"], np.float64)
    if np.any((family == 2) != (previous >= 0)) or np.any(label < 0) or np.any(family < 0):
        raise EspalierError(f"{path}: a weight has no label or a previous label that it must not have; {REMEDY}")
    if not np.all(np.isfinite(weight)):
        raise EspalierError(f"{path}: weight {int(np.argmin(np.isfinite(weight)))} is not finite; {REMEDY}")
    if np.any((family == len(FAMILIES)) != _twins(names)[observation]):
        raise EspalierError(f"{path}: a weight of the end is not of an observation at the end; {REMEDY}")
    family = np.where(family == len(FAMILIES), 0, family)
    layout = _layout(len(labels), len(names), family, observation, previous, label)
    if layout.size != len(weight) or not _same_order(layout, family, observation, previous, label):
        raise EspalierError(f"{path}: the weights are not in their order or occur twice; {REMEDY}")
    return names, layout, np.array(weight)


def _with_owners(used: np.ndarray, observations) -> np.ndarray:
    """Numbers of observations, ascending, with those that the twins among them belong to."""
    owners = {of_twin(observations[int(i)]) for i in used if is_twin(observations[int(i)])}
    more = [i for i, text in enumerate(observations) if text in owners] if owners else []
    return np.union1d(used, more).astype(used.dtype)


def _twins(observations: list[str]) -> np.ndarray:
    """Whether each observation is one at the end; see `engine.weights.stop_twins`."""
    return np.fromiter(map(is_twin, observations), bool, len(observations))


def _columns(table: pa.Table, path: Path) -> dict:
    columns = {name: whole(table, name) for name in WEIGHTS.names}
    if any(columns[name].null_count for name in ("family", "observation", "label", "weight")):
        raise EspalierError(f"{path}: a weight has an empty field; {REMEDY}")
    return columns


def _recode(column, codes: dict[str, int], path: Path, what: str) -> np.ndarray:
    """Codes of a dictionary column by our own numbering; -1 for null."""
    names = column.dictionary.to_pylist()
    unknown = [name for name in names if name not in codes]
    if unknown:
        raise EspalierError(f"{path}: {what} {quoted(unknown[0])} is not known to the file's own list; {REMEDY}")
    table = np.array([codes[name] for name in names] + [-1], np.int64)
    return table[np.where(missing(column.indices), len(names), numbers_of(column.indices, np.int32))]


def _layout(n_labels: int, n_observations: int, family, observation, previous, label) -> Layout:
    """A layout that holds just the given weights, which must be sorted."""
    runs = []
    for index in range(len(FAMILIES)):
        mine = family == index
        code = previous[mine] * n_labels + label[mine] if index == 2 else label[mine]
        runs.append((np.bincount(observation[mine], minlength=n_observations), code))
    return _assemble(n_labels, runs)


def _same_order(layout: Layout, *expected: np.ndarray) -> bool:
    family, observation, previous, label = layout.slots()
    key = previous.astype(np.int64) * layout.n_labels + label
    step = (np.diff(family) == 0) & (np.diff(observation) == 0)
    sorted_runs = bool(np.all(np.diff(key)[step] > 0))
    return sorted_runs and all(
        np.array_equal(a, b) for a, b in zip((family, observation, previous, label), expected, strict=True)
    )
