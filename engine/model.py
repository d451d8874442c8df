"""The model file: one Arrow IPC table of active weights, readable by any Arrow tool.

Reading one executes nothing: it is columns of numbers and strings and a JSON text. What
comes back is checked against itself before a kernel sees it. It takes no more memory than a few times the
file: what would unpack to more than it is, is refused before it is read (see `engine.arrow_frame`).
"""

import hashlib
import json
import math
import os
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa

from espalier.engine.arrow_frame import check_frame
from espalier.engine.data.dataset import Dataset, check_label_count, renumbered
from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.runtime.arrow_arrays import missing, numbers_of
from espalier.engine.weights.layout import FAMILIES, Layout, _assemble
from espalier.engine.weights.stop_twins import STOP, is_twin, of_twin

FORMAT = 4  # 1 had other names for what is beyond the edges; the checksum of 2 left the info out; 3 knew no families
WITH_TRIPLES = 5  # of models with weights for triples of labels alone: a column more
READABLE = (2, 3, FORMAT, WITH_TRIPLES)
COLUMNS = {
    "family": pa.dictionary(pa.int32(), pa.string()), "observation": pa.dictionary(pa.int32(), pa.string()),
    "previous": pa.dictionary(pa.int32(), pa.string()), "label": pa.dictionary(pa.int32(), pa.string()),
    "weight": pa.float64(),
}  # fmt: skip
BEFORE = "before"  # the label before the one before, of a triple
REMEDY = "train it again or restore it with `dvc checkout`"


@dataclass
class Model:
    """Weights in words: observation strings, labels, and the slots that are not zero.

    `observations[i]` is the full expansion of a template; its first character tells its
    kind. `layout` and `theta` cover active weights only. `family` says what they mean; `engine.families` has a class
    for each, with what such a model says of data.
    """

    family: ClassVar[str] = "crf"

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

    def table(self) -> pa.Table:
        family, observation, previous, label = self.layout.slots()
        labels = pa.array(self.labels, pa.string())
        twin, kinds, n_labels = _twins(self.observations), list(self.layout.families), len(self.labels)
        if twin.any():
            family, kinds = np.where(twin[observation], len(kinds), family), [*kinds, STOP]
        before = np.where(family == FAMILIES.index("trigram"), previous // n_labels, -1)
        previous = np.where(before >= 0, previous % n_labels, previous)
        columns = {
            "family": _dictionary(family, kinds),
            "observation": _dictionary(observation, self.observations),
            BEFORE: pa.DictionaryArray.from_arrays(pa.array(before, pa.int32(), mask=before < 0), labels),
            "previous": pa.DictionaryArray.from_arrays(pa.array(previous, pa.int32(), mask=previous < 0), labels),
            "label": pa.DictionaryArray.from_arrays(pa.array(label, pa.int32()), labels),
            "weight": pa.array(self.theta, pa.float64()),
        }
        if self.format == FORMAT:
            del columns[BEFORE]
        head = self._head() | {"checksum": self.checksum()}
        return pa.table(columns).replace_schema_metadata({"espalier": json.dumps(head, sort_keys=True)})

    @property
    def format(self) -> int:
        """Of its file."""
        return WITH_TRIPLES if self.layout.second_order else FORMAT

    def _head(self, format: int | None = None, family: str | None = None) -> dict:
        format = format or self.format
        head = {"format": format, "labels": self.labels, "templates": self.templates} | self.info
        return head | ({"family": family or self.family} if format > 3 else {})

    def checksum(self, format: int | None = None, family: str | None = None) -> str:
        """SHA-256 over everything that the file holds, so that no change goes unnoticed; `format` tells how."""
        described = [json.loads(json.dumps(self._head(format, family))), self.observations]  # as they come back
        if format == 2:
            described = [self.labels, self.templates, self.observations, *([self.lists] if self.lists else [])]
        digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
        for array in (*self.layout.slots(), self.theta):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write to a temporary name, then rename: a reader never sees half a model, nor one that cannot be used."""
        path = Path(path)
        if not np.all(np.isfinite(self.theta)):
            at = int(np.argmin(np.isfinite(self.theta)))
            raise EspalierError(
                f"{path}: weight {at} is {self.theta[at]}, expected a finite number; nothing was written: "
                "check the data, the sequence weights and the model that training started from"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with pa.OSFile(str(temporary), "wb") as sink:
                table = self.table()
                with pa.ipc.new_file(sink, table.schema) as writer:
                    writer.write_table(table)
            os.replace(temporary, path)
        except OSError as error:
            if error.errno is None:
                raise
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error  # Arrow does not say where
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The weights of a file in words. `engine.families.load` gives a model that labels data."""
        return cls(*read_model(path)[0])


def read_model(path: str | Path) -> tuple[tuple, str, Path]:
    """(what a `Model` is made of, the name of its family, the path), checked against itself."""
    path = Path(path)
    if not path.is_file():
        raise EspalierError(f"{path}: there is no such model; train one with `espalier run`")
    try:
        with path.open("rb") as file:
            check_frame(file, most_batches=1, most_dictionaries=len(COLUMNS))
        with pa.OSFile(str(path), "rb") as source:
            reader = pa.ipc.open_file(source)
            _check_schema(reader.schema, path)
            table = reader.read_all()
        table.validate(full=True)
    except EspalierError:
        raise
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise EspalierError(f"{path}: not a readable model file ({_first_line(error)}); {REMEDY}") from None
    return *_from_table(table, path), path


def _from_table(table: pa.Table, path: Path) -> tuple[tuple, str]:
    head = _read_head(table, path)
    labels, columns = head.pop("labels"), _columns(table, path)
    names = columns["observation"].dictionary.to_pylist()
    if None in names or len(set(names)) != len(names):
        raise EspalierError(f"{path}: an observation is empty or occurs twice in the file's list; {REMEDY}")
    codes = {text: i for i, text in enumerate(labels)}
    family = _recode(columns["family"], {name: i for i, name in enumerate((*FAMILIES, STOP))}, path, "family")
    previous = _recode(columns["previous"], codes, path, "previous label")
    label = _recode(columns["label"], codes, path, "label")
    observation = numbers_of(columns["observation"].indices, np.int32)
    weight = numbers_of(columns["weight"], np.float64)
    before = _recode(columns[BEFORE], codes, path, BEFORE) if BEFORE in columns else np.full(len(label), -1)
    triple = family == FAMILIES.index("trigram")
    if np.any(triple != (before >= 0)) or ((BEFORE in columns) != (head["format"] == WITH_TRIPLES)):
        raise EspalierError(f"{path}: a weight has two labels before it that it must not have, or lacks one; {REMEDY}")
    if np.any(((family == 2) | triple) != (previous >= 0)) or np.any(label < 0) or np.any(family < 0):
        raise EspalierError(f"{path}: a weight has no label or a previous label that it must not have; {REMEDY}")
    if not np.all(np.isfinite(weight)):
        raise EspalierError(f"{path}: weight {int(np.argmin(np.isfinite(weight)))} is not finite; {REMEDY}")
    if np.any((family == len(FAMILIES)) != _twins(names)[observation]):
        raise EspalierError(f"{path}: a weight of the end is not of an observation at the end; {REMEDY}")
    family = np.where(family == len(FAMILIES), 0, family)
    previous = np.where(triple, before * len(labels) + previous, previous)
    layout = _layout(len(labels), len(names), family, observation, previous, label)
    if layout.size != len(weight) or not _same_order(layout, family, observation, previous, label):
        raise EspalierError(f"{path}: the weights are not in their order or occur twice; {REMEDY}")
    checksum, format, family = head.pop("checksum", None), head.pop("format"), head.pop("family", Model.family)
    parts = labels, head.pop("templates"), names, layout, np.array(weight), head
    if Model(*parts).checksum(format, family) != checksum:
        raise EspalierError(f"{path}: damaged, its content does not have the checksum that it states; {REMEDY}")
    return parts, family


def _with_owners(used: np.ndarray, observations) -> np.ndarray:
    """Numbers of observations, ascending, with those that the twins among them belong to."""
    owners = {of_twin(observations[int(i)]) for i in used if is_twin(observations[int(i)])}
    more = [i for i, text in enumerate(observations) if text in owners] if owners else []
    return np.union1d(used, more).astype(used.dtype)


def _twins(observations: list[str]) -> np.ndarray:
    """Whether each observation is one at the end; see `engine.weights.stop_twins`."""
    return np.fromiter(map(is_twin, observations), bool, len(observations))


def _dictionary(codes: np.ndarray, names: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), pa.int32()), pa.array(names, pa.string()))


def _read_head(table: pa.Table, path: Path) -> dict:
    text = (table.schema.metadata or {}).get(b"espalier")
    try:
        head = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise EspalierError(f"{path}: an Arrow file, but not a model of Espalier; {REMEDY}") from None
    if not isinstance(head, dict) or type(head.get("format")) is not int or head["format"] not in READABLE:
        found = head.get("format") if isinstance(head, dict) else head
        raise EspalierError(f"{path}: format {quoted(found)}, this version reads format {FORMAT}; {REMEDY}")
    if head["format"] > 3 and not isinstance(head.get("family"), str):
        raise EspalierError(f"{path}: it does not say of which family it is; {REMEDY}")
    for key in ("labels", "templates"):
        if not _is_texts(head.get(key)):
            raise EspalierError(f"{path}: {key} is not a list of texts; {REMEDY}")
    lists = head.get("lists", {})
    if not isinstance(lists, dict) or not all(_is_texts(lines) for lines in lists.values()):
        raise EspalierError(f"{path}: lists is not a table of lists of texts; {REMEDY}")
    scales = head.get("scales", {})
    if not isinstance(scales, dict) or not all(type(s) in (int, float) and 0 < s < math.inf for s in scales.values()):
        raise EspalierError(f"{path}: scales is not a table of positive numbers; {REMEDY}")
    if not head["labels"] or len(set(head["labels"])) != len(head["labels"]):
        raise EspalierError(f"{path}: the labels are empty or occur twice; {REMEDY}")
    check_label_count(len(head["labels"]), str(path))
    return head


def _is_texts(value: object) -> bool:
    """Whether it is a list of texts, each of which can be written: JSON may hold half a character."""
    try:
        return isinstance(value, list) and all(isinstance(item, str) and item.encode() is not None for item in value)
    except UnicodeEncodeError:
        return False


def _check_schema(schema: pa.Schema, path: Path) -> None:
    if b"espalier" not in (schema.metadata or {}):
        raise EspalierError(f"{path}: an Arrow file, but not a model of Espalier; {REMEDY}")
    found = [(field.name, field.type) for field in schema]
    if found not in (list(COLUMNS.items()), list(_with_before().items())):
        shown = ", ".join(f"{brief(name)}: {brief(str(kind))}" for name, kind in found[:10])
        expected = ", ".join(f"{name}: {kind}" for name, kind in COLUMNS.items())
        raise EspalierError(f"{path}: columns {shown}, expected {expected}; {REMEDY}")


def _with_before() -> dict:
    """The columns of a model with triples of labels."""
    columns = list(COLUMNS.items())
    return dict([*columns[:2], (BEFORE, COLUMNS["previous"]), *columns[2:]])


def _columns(table: pa.Table, path: Path) -> dict:
    columns = {}
    for name in table.column_names:
        chunks = table.column(name).combine_chunks()
        columns[name] = chunks.chunk(0) if isinstance(chunks, pa.ChunkedArray) and chunks.num_chunks else chunks
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
        code = previous[mine].astype(np.int64) * n_labels + label[mine] if index >= 2 else label[mine]
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


def _first_line(error: BaseException) -> str:
    return brief((str(error) or type(error).__name__).splitlines()[0])
