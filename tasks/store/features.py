"""What the engine trains on, as integers: the vocabulary, shards of features, and the weights of sequences."""

import mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from espalier.engine.data.dataset import Dataset, make_dataset
from espalier.engine.errors import EspalierError
from espalier.engine.runtime import threads
from espalier.engine.weights.stop_twins import with_twins
from espalier.tasks.store.files import file_hash
from espalier.tasks.store.places import FEATURES, VOCABULARY, WEIGHTS, damaged, missing
from espalier.tasks.store.records import read_manifest
from espalier.tasks.store.tables import TEXT, check_columns, read_arrow, write_arrow
from espalier.tasks.store.tokens import sequence_offsets


def read_vocabulary(root: Path) -> pl.DataFrame:
    """The vocabulary that the manifest speaks of: ids in features mean nothing under another."""
    path = root / VOCABULARY
    table, _ = read_arrow(path, {"observation": TEXT, "template": "int16", "count": "int64"})
    if file_hash(path) != read_manifest(root)["vocabulary_sha256"]:
        raise damaged(path, ValueError("it does not belong to the manifest"))
    return pl.from_arrow(table)


def read_weights(root: Path) -> np.ndarray:
    """The weights of the training sequences, float64 [N]; fails where one is negative or not finite."""
    table, _ = read_arrow(root / WEIGHTS, {"sequence": "int32", "weight": "double"})
    weights = table.column("weight").to_numpy()
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise damaged(root / WEIGHTS, ValueError("a weight that is negative or not finite"))
    return weights


def shard_name(split: str, number: int) -> str:
    """Of the shard with this number, from the folder of features on."""
    return f"{split}/{number:05d}.arrow"


def remove_stale_shards(root: Path, split: str, names: list[str]) -> None:
    """Remove the shards of a split that are not among `names`: those of an earlier, larger data set."""
    for path in (root / FEATURES / split).glob("*.arrow"):
        if f"{split}/{path.name}" not in names:
            path.unlink()


class Shard(NamedTuple):
    """A run of whole sequences with T positions, K observations at each and V with values."""

    sequence: np.ndarray  # int32 [T]
    labels: np.ndarray  # int32 [T]
    observations: np.ndarray  # int32 [T, K]
    valued: np.ndarray  # int32 [T, V]
    values: np.ndarray  # float64 [T, V]


def write_shard(path: Path, shard: Shard) -> None:
    """A shard of features. The observations of a position lie together, so that a mapped file is an array [T, K]."""
    columns = {"sequence": pa.array(shard.sequence), "label": pa.array(shard.labels)}
    columns["observations"] = _rows(shard.observations, pa.int32())
    if shard.valued.shape[1]:
        columns |= {"valued": _rows(shard.valued, pa.int32()), "values": _rows(shard.values, pa.float64())}
    write_arrow(path, pa.table(columns))


def _rows(table: np.ndarray, kind: pa.DataType) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(table.ravel(), kind), table.shape[1])


def read_shard(path: Path, width: int, n_valued: int = 0) -> Shard:
    """A shard of features as arrays over the mapped file: nothing is copied, what is written to them stays private."""
    if not path.exists():
        raise missing(path)
    try:
        with path.open("rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        whole = pa.py_buffer(memory)
        table = pa.ipc.open_file(pa.BufferReader(whole)).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(path, error) from None
    expected = {"sequence": "int32", "label": "int32", "observations": f"fixed_size_list<item: int32>[{width}]"}
    if n_valued:
        expected |= {"valued": f"fixed_size_list<item: int32>[{n_valued}]",
                     "values": f"fixed_size_list<item: double>[{n_valued}]"}  # fmt: skip
    check_columns(path, table, expected)

    def mapped(column: str, dtype=np.int32, *columns: int) -> np.ndarray:
        if not len(table) or columns == (0,):
            return np.empty((len(table), *columns), dtype)
        (chunk,) = table.column(column).chunks
        flat = chunk.flatten() if columns else chunk
        if flat.null_count:
            raise ValueError(f"column {column} has empty fields")
        buffer, size = flat.buffers()[1], np.dtype(dtype).itemsize
        begin = buffer.address - whole.address + size * flat.offset if len(flat) else 0
        return np.frombuffer(memory, dtype, len(flat), begin).reshape(len(table), *columns)

    try:
        return Shard(
            mapped("sequence"), mapped("label"), mapped("observations", np.int32, width),
            mapped("valued", np.int32, n_valued), mapped("values", np.float64, n_valued),
        )  # fmt: skip
    except ValueError as error:
        raise damaged(path, error) from None


def shard_widths(manifest: dict) -> tuple[int, int]:
    """(observations, observations with values) at each position."""
    return len(manifest["columns"]), len(manifest.get("value_columns", ()))


def read_shards(root: Path, split: str, manifest: dict) -> list[Dataset]:
    """The shards of a split as data sets of their own, over the mapped files."""
    folder, widths = root / FEATURES, shard_widths(manifest)
    return [_dataset_of(folder / name, manifest, read_shard(folder / name, *widths))
            for name in manifest["splits"][split]["shards"]]  # fmt: skip


class Shards:
    """The shards of a split: how many sequences each holds, the hash of each, and any run of sequences as arrays."""

    def __init__(
        self, root: Path, split: str, manifest: dict, known: dict | None = None, twins: np.ndarray | None = None
    ):
        self.root, self.split, self.manifest = root, split, manifest
        self.twins = twins  # of observations at the end of a sequence, where training has weights for them
        self.names = manifest["splits"][split]["shards"]
        self._lengths: np.ndarray | None = None
        self._known = known  # what `described` told another process

    def described(self) -> dict:
        """What another process needs to read the same sequences: the hash of each shard, and its sequences."""
        if self._known is None:
            lengths = [np.diff(sequence_offsets(self._shard(name).sequence)) for name in self.names]
            self._lengths = np.concatenate(lengths)
            hashes = threads.run(lambda name: file_hash(self.root / FEATURES / name), self.names)
            self._known = {"sequences": [len(some) for some in lengths],
                           "hashes": dict(zip(self.names, hashes, strict=True))}  # fmt: skip
        return self._known

    def offsets(self) -> np.ndarray:
        """Offsets of all sequences of the split, int64 [N + 1]."""
        self.described()
        return np.append(0, np.cumsum(self._lengths)).astype(np.int64)

    def read(self, lo: int, hi: int, weights: np.ndarray | None = None, check: bool = False) -> Dataset:
        """Sequences [lo, hi) of the split; `weights` are those of the whole split. `check` compares hashes, too."""
        known, begin, parts = self.described(), 0, []
        for name, count in zip(self.names, known["sequences"], strict=True):
            if begin < hi and lo < begin + count:
                shard = self._shard(name)
                if check and file_hash(self.root / FEATURES / name) != known["hashes"][name]:
                    raise damaged(self.root / FEATURES / name, ValueError("it has changed since the training began"))
                offsets = sequence_offsets(shard.sequence)
                run = slice(offsets[max(0, lo - begin)], offsets[min(count, hi - begin)])
                parts.append(Shard(*(column[run] for column in shard)))
            begin += count
        return self._dataset(parts, None if weights is None else weights[lo:hi])

    def read_all(self, weights: np.ndarray | None = None) -> Dataset:
        """All sequences; a single shard is mapped, several are put together."""
        return self._dataset([self._shard(name) for name in self.names], weights)

    def _shard(self, name: str) -> Shard:
        return read_shard(self.root / FEATURES / name, *shard_widths(self.manifest))

    def _dataset(self, parts: list[Shard], weights: np.ndarray | None) -> Dataset:
        whole = Shard(*(some[0] if len(some) == 1 else np.concatenate(some) for some in zip(*parts, strict=True)))
        return with_twins(_dataset_of(self.root / FEATURES / self.split, self.manifest, whole, weights), self.twins)


def read_dataset(root: Path, split: str, manifest: dict, weights: np.ndarray | None = None) -> Dataset:
    """All shards of a split as the engine's flat arrays; a single shard is mapped, several are put together."""
    return Shards(root, split, manifest).read_all(weights)


def _dataset_of(path: Path, manifest: dict, shard: Shard, weights: np.ndarray | None = None) -> Dataset:
    """The data set of a shard whose ids are within what the manifest says."""
    sequence, labels, observations, valued, values = shard
    limit, names, sets = manifest["observations"], manifest["labels"], manifest["label_sets"]
    if any(ids.size and not (-1 <= ids.min() and ids.max() < limit) for ids in (observations, valued)):
        raise damaged(path, ValueError(f"an observation id outside 0..{limit - 1}"))
    if len(labels) and not (-1 - len(sets) <= labels.min() and labels.max() < len(names)):
        raise damaged(path, ValueError(f"a label id outside 0..{len(names) - 1}"))
    members = np.array([[name in one for name in names] for one in sets], bool).reshape(len(sets), len(names))
    try:
        return make_dataset(
            observations, labels, sequence_offsets(sequence), weights, members if len(sets) else None, None, valued,
            values,
        )  # fmt: skip
    except EspalierError as error:
        raise EspalierError(f"{path}: {error}") from None
