"""The only reader and writer of artefacts: where each lies, what it holds, and how it is written whole.

Everything is written to a temporary name in the same folder and then renamed, so that a
reader, a crash or a full disk never leaves half a file in the place of a good one.
"""

import csv
import errno
import hashlib
import io
import json
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from espalier.engine import families
from espalier.engine.data.dataset import Dataset, make_dataset
from espalier.engine.errors import EspalierError, brief
from espalier.engine.runtime import threads
from espalier.tasks import shapes

if TYPE_CHECKING:
    from espalier.engine.families.labeller import Labeller

SPLITS = ("train", "dev", "test", "unlabelled")
TOKENS = "data/tokens/{}.arrow"
PROFILE = "data/tokens/profile.json"
FEATURES = "data/features"
MANIFEST = "data/features/manifest.json"
VOCABULARY = "data/features/vocabulary.arrow"
WEIGHTS = "data/weights/train.arrow"
CLUSTERS = "data/weights/clusters.json"
CANDIDATE = "models/candidate.model"
TRACE = "models/trace.jsonl"
TIMING = "models/timing.jsonl"
RHO1_PATH = "models/path.json"
CHAMPION = "models/champion.model"
START = "models/start.model"
DECISIONS = "models/decisions.jsonl"
HISTORY = "models/history.jsonl"
ARCHIVE = "models/archive"
METRICS = "reports/metrics.json"
PREDICTIONS = "reports/predictions.arrow"
CURVES = "reports/curves"
REPORT = "reports/report.html"
DECISION = "reports/decision.html"
NEWS = "reports/news.json"
KNOWN = ".espalier/known/version.json"
MARKER = ".espalier/run.json"

MADE_BY = {"data/tokens": "ingest", "data/features": "template", "data/weights": "weigh", "models": "train",
           "reports": "evaluate"}  # fmt: skip
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # errors that another try would meet again
TEXT = "large_string"  # as Polars writes texts
# What helps where no stage makes the file again.
RECORD = "restore it with `dvc checkout` or `git checkout`, or mend it by hand: nothing makes it again"
REMEDIES = {HISTORY: RECORD, DECISIONS: RECORD, NEWS: "`espalier run` writes it again",
            "decision.json": "remove its folder from the archive, or restore it with `dvc checkout`"}  # fmt: skip
SET_MARK = "\x1f"  # between the labels of a set in a token table; the empty text is an unknown label


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.errno in NO_ROOM:  # whoever meets it rarely says where
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, data) -> None:
    write_text(path, json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def write_jsonl(path: Path, rows: Iterable[dict]) -> None:
    write_text(path, "".join(json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n" for row in rows))


def write_csv(path: Path, names: list[str], rows: Iterable[Iterable]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    write_text(path, out.getvalue())


def _stage_of(path: Path) -> str | None:
    """The stage that makes a file; the last folder counts, whatever those above the project are called."""
    text = f"/{path.as_posix()}"
    found = {text.rfind(f"/{place}/"): stage for place, stage in MADE_BY.items()}
    return found[max(found)] if max(found) >= 0 else None


def _missing(path: Path) -> EspalierError:
    stage = _stage_of(path)
    remedy = f"; run `espalier stage {stage}` first" if stage else ""
    return EspalierError(f"{path}: there is no such file{remedy}")


def _remedy(path: Path) -> str:
    for end, words in REMEDIES.items():
        if path.as_posix().endswith(end):
            return words
    stage = _stage_of(path)
    return f"{f'run `espalier stage {stage}` again' if stage else 'make it again'} or restore it with `dvc checkout`"


def _damaged(path: Path, error: Exception) -> EspalierError:
    text = brief((str(error) or type(error).__name__).splitlines()[0])
    text = "brackets too deep inside each other" if isinstance(error, RecursionError) else text
    return EspalierError(f"{path}: damaged or not what it should be ({text}); {_remedy(path)}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise _missing(path) from None
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None


def _checked_json(path: Path, text: str, shape, place: str = ""):
    """The value of a JSON text of the given shape; `place` is said before what is wrong with it."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, ValueError(f"{place}{error}") if place else error) from None
    if wrong := shapes.fault(value, shape):
        raise _damaged(path, ValueError(place + wrong))
    return value


def read_json(path: Path, shape=shapes.ANY):
    """What a JSON file holds, in the shape that it must have (see `tasks.shapes`)."""
    return _checked_json(path, _text(path), shape)


def read_jsonl(path: Path, shape=shapes.ANY) -> list[dict]:
    """The values of a file with one on each line, all of one shape."""
    lines = enumerate(_text(path).split("\n"), 1)
    return [_checked_json(path, line, shape, f"line {number}: ") for number, line in lines if line]


def read_metrics(root: Path) -> dict:
    return read_json(root / METRICS, shapes.METRICS)


def read_profile(root: Path) -> dict:
    return read_json(root / PROFILE, shapes.PROFILE)


def read_clusters(root: Path) -> dict:
    return read_json(root / CLUSTERS, shapes.CLUSTERS)


def read_trace(root: Path) -> list[dict]:
    return read_jsonl(root / TRACE, shapes.ITERATION)


def read_timing(root: Path) -> list[dict]:
    return read_jsonl(root / TIMING, shapes.TIMING)


def read_decisions(root: Path) -> list[dict]:
    """All decisions, oldest first; none when nothing has been decided."""
    return read_jsonl(root / DECISIONS, shapes.DECISION) if (root / DECISIONS).exists() else []


def last_decision(root: Path) -> dict:
    decisions = read_decisions(root)
    if not decisions:
        raise EspalierError(f"{root / DECISIONS}: holds no decision; run `espalier run` or `espalier promote` first")
    return decisions[-1]


def read_decision(path: Path) -> dict:
    """The decision that is kept in a folder of the archive."""
    return read_json(path, shapes.DECISION)


def read_history(root: Path) -> list[dict]:
    """All entries, oldest first; none when nothing has been recorded."""
    return read_jsonl(root / HISTORY, shapes.RUN) if (root / HISTORY).exists() else []


def read_path(root: Path) -> dict | None:
    """The path that the last training has chosen its penalty by; None where that was given."""
    path = root / RHO1_PATH
    if not path.exists() or not read_json(path, shapes.PATH)["points"]:
        return None
    figures = read_json(path, shapes.SEARCH)
    if (figures["chosen"], figures["chosen_rho2"]) not in [(p["rho1"], p["rho2"]) for p in figures["points"]]:
        raise _damaged(path, ValueError("none of its points is the chosen one"))
    if any(point.get(f"dev_{figures['measure']}") is None for point in figures["points"]):
        raise _damaged(path, ValueError(f"a point has no dev_{figures['measure']}"))
    return figures


def read_news(root: Path) -> dict | None:
    """What the last comparison with the champion's data found; None where there was none."""
    return read_json(root / NEWS, shapes.NEWS) if (root / NEWS).is_file() else None


def read_known_version(root: Path) -> str:
    return read_json(root / KNOWN, shapes.VERSION)["data_version"]


def read_marker(root: Path) -> str:
    """When the run began that is under way or was killed."""
    return read_json(root / MARKER, shapes.MARKER)["time"]


def arrow_texts(column: pl.Series) -> pa.Array:
    """A column of texts as the kernels read them: large_string, in one piece."""
    return column.cast(pl.String).rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())


def _as_table(data: pa.Table | pl.DataFrame, info: dict | None) -> pa.Table:
    table = data.to_arrow(compat_level=pl.CompatLevel.oldest()) if isinstance(data, pl.DataFrame) else data
    metadata = {"espalier": json.dumps(info, sort_keys=True)} if info is not None else None
    return table.replace_schema_metadata(metadata).combine_chunks()


@contextmanager
def arrow_writer(path: Path, info: dict | None = None) -> Iterator[Callable[[pa.Table | pl.DataFrame], None]]:
    """A function that appends a record batch to an Arrow IPC file, which takes its place when the block ends.

    `info` becomes JSON metadata. The first batch gives the schema; later ones that are empty are left out.
    """
    with replacing(path) as temporary, pa.OSFile(str(temporary), "wb") as sink, ExitStack() as stack:
        writer: pa.ipc.RecordBatchFileWriter | None = None

        def write(data: pa.Table | pl.DataFrame) -> None:
            nonlocal writer
            table = _as_table(data, info)
            if writer is None:
                writer = stack.enter_context(pa.ipc.new_file(sink, table.schema))
            elif not len(table):
                return
            writer.write_table(table)

        yield write


def write_arrow(path: Path, table: pa.Table | pl.DataFrame, info: dict | None = None) -> None:
    """One Arrow IPC file in one record batch."""
    with arrow_writer(path, info) as write:
        write(table)


def read_arrow(path: Path, columns: dict[str, str] | None = None) -> tuple[pa.Table, dict]:
    """The table, memory-mapped, and its metadata; `columns` names the columns it must have."""
    if not path.exists():
        raise _missing(path)
    try:
        with pa.memory_map(str(path), "r") as source:
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)
        info = _info(table.schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, error) from None
    _check_columns(path, table, columns or {})
    return table, info


def _info(schema: pa.Schema) -> dict:
    return json.loads((schema.metadata or {}).get(b"espalier", b"{}"))


def read_batches(path: Path) -> Iterator[tuple[pa.Table, dict]]:
    """The record batches of a file one by one, each with the metadata; at least one, which may be empty."""
    if not path.exists():
        raise _missing(path)
    try:
        with pa.OSFile(str(path), "rb") as source:
            reader = pa.ipc.open_file(source)
            info = _info(reader.schema)
            if not reader.num_record_batches:
                yield reader.schema.empty_table(), info
            for i in range(reader.num_record_batches):
                table = pa.Table.from_batches([reader.get_batch(i)])
                table.validate(full=True)
                yield table, info
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, error) from None


def _check_columns(path: Path, table: pa.Table, columns: dict[str, str]) -> None:
    for name, wanted in columns.items():
        if table.schema.names.count(name) != 1 or str(table.schema.field(name).type) != wanted:
            found = ", ".join(f"{f.name}: {f.type}" for f in table.schema)
            raise _damaged(path, ValueError(f"expected a column {name} of type {wanted}, found {found}"))
        if table.column(name).null_count:
            raise _damaged(path, ValueError(f"column {name} has empty fields"))


def token_writer(root: Path, split: str, info: dict):
    """A function that appends sequences to the tokens of a split; see `arrow_writer`."""
    return arrow_writer(root / TOKENS.format(split), info)


def write_tokens(root: Path, split: str, tokens: pl.DataFrame, info: dict) -> None:
    with token_writer(root, split, info) as write:
        write(tokens)


def _check_tokens(path: Path, split: str, table: pa.Table, info: dict) -> pl.DataFrame:
    others = [] if split == "unlabelled" else ["label"]
    inputs = [f"x{i}" for i in range(max(1, table.num_columns - 1 - len(others)))]
    _check_columns(path, table, {"sequence": "int32"} | dict.fromkeys([*inputs, *others], TEXT))
    if not isinstance(info, dict) or "nouns" not in info:
        raise _damaged(path, ValueError("no description of the data in it"))
    return pl.from_arrow(table)


def read_tokens(root: Path, split: str) -> tuple[pl.DataFrame, dict]:
    path = root / TOKENS.format(split)
    table, info = read_arrow(path)
    return _check_tokens(path, split, table, info), info


def token_blocks(root: Path, split: str) -> Iterator[pl.DataFrame]:
    """The tokens of a split as they were written, one batch of whole sequences after the other."""
    path = root / TOKENS.format(split)
    for table, info in read_batches(path):
        yield _check_tokens(path, split, table, info)


def token_info(root: Path, split: str) -> dict:
    """What is known about the tokens of a split, without reading them."""
    path = root / TOKENS.format(split)
    table, info = next(read_batches(path))
    _check_tokens(path, split, table[:0], info)
    return info


def read_model(path: Path) -> "Labeller":
    """A model of any family, checked against its checksum."""
    return families.load(path)


def write_model(path: Path, model: "Labeller") -> None:
    """Written whole or not at all; one that could not be used is refused."""
    model.save(path)


def file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(root: Path) -> dict:
    """The manifest, with everything that the stages after `template` rely on."""
    return read_json(root / MANIFEST, shapes.MANIFEST)


def read_vocabulary(root: Path) -> pl.DataFrame:
    """The vocabulary that the manifest speaks of: ids in features mean nothing under another."""
    path = root / VOCABULARY
    table, _ = read_arrow(path, {"observation": TEXT, "template": "int16", "count": "int64"})
    if file_hash(path) != read_manifest(root)["vocabulary_sha256"]:
        raise _damaged(path, ValueError("it does not belong to the manifest"))
    return pl.from_arrow(table)


def sequence_offsets(sequence: np.ndarray) -> np.ndarray:
    """Offsets of the runs of equal values, int64 [N + 1]."""
    starts = np.flatnonzero(np.diff(sequence, prepend=sequence[:1] - 1)) if len(sequence) else np.empty(0, np.int64)
    return np.append(starts, len(sequence)).astype(np.int64)


def shard_name(split: str, number: int) -> str:
    return f"{split}/{number:05d}.arrow"


def remove_stale_shards(root: Path, split: str, names: list[str]) -> None:
    for path in (root / FEATURES / split).glob("*.arrow"):
        if f"{split}/{path.name}" not in names:
            path.unlink()


class Shard(NamedTuple):
    sequence: np.ndarray  # int32 [T]
    labels: np.ndarray  # int32 [T]
    observations: np.ndarray  # int32 [T, K]


def write_shard(path: Path, shard: Shard) -> None:
    """A shard of features. The observations of a position lie together, so that a mapped file is an array [T, K]."""
    flat = pa.array(shard.observations.ravel(), pa.int32())
    rows = pa.FixedSizeListArray.from_arrays(flat, shard.observations.shape[1])
    columns = {"sequence": pa.array(shard.sequence), "label": pa.array(shard.labels), "observations": rows}
    write_arrow(path, pa.table(columns))


def read_shard(path: Path, width: int) -> Shard:
    """A shard of features as arrays over the mapped file: nothing is copied, what is written to them stays private."""
    if not path.exists():
        raise _missing(path)
    try:
        with path.open("rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        whole = pa.py_buffer(memory)
        table = pa.ipc.open_file(pa.BufferReader(whole)).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, error) from None
    rows = f"fixed_size_list<item: int32>[{width}]"
    _check_columns(path, table, {"sequence": "int32", "label": "int32", "observations": rows})

    def mapped(column: str) -> np.ndarray:
        if not len(table):
            return np.empty(0, np.int32)
        (chunk,) = table.column(column).chunks
        flat = chunk.flatten() if column == "observations" else chunk
        if flat.null_count:
            raise ValueError(f"column {column} has empty fields")
        buffer = flat.buffers()[1]
        begin = buffer.address - whole.address + 4 * flat.offset if len(flat) else 0
        return np.frombuffer(memory, np.int32, len(flat), begin)

    try:
        return Shard(mapped("sequence"), mapped("label"), mapped("observations").reshape(len(table), width))
    except ValueError as error:
        raise _damaged(path, error) from None


def read_shards(root: Path, split: str, manifest: dict) -> list[Dataset]:
    """The shards of a split as data sets of their own, over the mapped files."""
    folder, width = root / FEATURES, len(manifest["columns"])
    return [_checked(folder / name, manifest, read_shard(folder / name, width))
            for name in manifest["splits"][split]["shards"]]  # fmt: skip


class Shards:
    """The shards of a split: how many sequences each holds, the hash of each, and any run of sequences as arrays."""

    def __init__(self, root: Path, split: str, manifest: dict, known: dict | None = None):
        self.root, self.split, self.manifest = root, split, manifest
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
                    raise _damaged(self.root / FEATURES / name, ValueError("it has changed since the training began"))
                offsets = sequence_offsets(shard.sequence)
                run = slice(offsets[max(0, lo - begin)], offsets[min(count, hi - begin)])
                parts.append(Shard(*(column[run] for column in shard)))
            begin += count
        return self._dataset(parts, None if weights is None else weights[lo:hi])

    def read_all(self, weights: np.ndarray | None = None) -> Dataset:
        """All sequences; a single shard is mapped, several are put together."""
        return self._dataset([self._shard(name) for name in self.names], weights)

    def _shard(self, name: str) -> Shard:
        return read_shard(self.root / FEATURES / name, len(self.manifest["columns"]))

    def _dataset(self, parts: list[Shard], weights: np.ndarray | None) -> Dataset:
        whole = Shard(*(some[0] if len(some) == 1 else np.concatenate(some) for some in zip(*parts, strict=True)))
        return _checked(self.root / FEATURES / self.split, self.manifest, whole, weights)


def read_dataset(root: Path, split: str, manifest: dict, weights: np.ndarray | None = None) -> Dataset:
    """All shards of a split as the engine's flat arrays; a single shard is mapped, several are put together."""
    return Shards(root, split, manifest).read_all(weights)


def _checked(path: Path, manifest: dict, shard: Shard, weights: np.ndarray | None = None) -> Dataset:
    """The data set of a shard whose ids are within what the manifest says."""
    sequence, labels, observations = shard
    limit, names, sets = manifest["observations"], manifest["labels"], manifest["label_sets"]
    if observations.size and not (-1 <= observations.min() and observations.max() < limit):
        raise _damaged(path, ValueError(f"an observation id outside 0..{limit - 1}"))
    if len(labels) and not (-1 - len(sets) <= labels.min() and labels.max() < len(names)):
        raise _damaged(path, ValueError(f"a label id outside 0..{len(names) - 1}"))
    members = np.array([[name in one for name in names] for one in sets], bool).reshape(len(sets), len(names))
    try:
        return make_dataset(observations, labels, sequence_offsets(sequence), weights, members if len(sets) else None)
    except EspalierError as error:
        raise EspalierError(f"{path}: {error}") from None


def read_weights(root: Path) -> np.ndarray:
    table, _ = read_arrow(root / WEIGHTS, {"sequence": "int32", "weight": "double"})
    weights = table.column("weight").to_numpy()
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise _damaged(root / WEIGHTS, ValueError("a weight that is negative or not finite"))
    return weights
