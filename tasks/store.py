"""The only reader and writer of artefacts: where each lies, what it holds, and how it is written whole.

Everything is written to a temporary name in the same folder and then renamed, so that a
reader, a crash or a full disk never leaves half a file in the place of a good one.
"""

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from engine.data import Dataset, make_dataset
from engine.errors import EspalierError

SPLITS = ("train", "dev", "test", "unlabelled")
TOKENS = "data/tokens/{}.arrow"
FEATURES = "data/features"
MANIFEST = "data/features/manifest.json"
VOCABULARY = "data/features/vocabulary.arrow"
WEIGHTS = "data/weights/train.arrow"
CLUSTERS = "data/weights/clusters.json"
CANDIDATE = "models/candidate.model"
TRACE = "models/trace.jsonl"
TIMING = "models/timing.jsonl"
CHAMPION = "models/champion.model"
DECISIONS = "models/decisions.jsonl"
METRICS = "reports/metrics.json"
PREDICTIONS = "reports/predictions.arrow"
CURVES = "reports/curves"
REPORT = "reports/report.html"
DECISION = "reports/decision.html"

MADE_BY = {"data/tokens": "ingest", "data/features": "template", "data/weights": "weigh", "models": "train",
           "reports": "evaluate"}  # fmt: skip
TEXT = "large_string"  # as Polars writes texts


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
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


def _damaged(path: Path, error: Exception) -> EspalierError:
    stage = _stage_of(path)
    remedy = f"run `espalier stage {stage}` again" if stage else "make it again"
    text = (str(error) or type(error).__name__).splitlines()[0]
    return EspalierError(
        f"{path}: damaged or not what it should be ({text}); {remedy} or restore it with `dvc checkout`"
    )


def read_json(path: Path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _missing(path) from None
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None


def read_jsonl(path: Path) -> list[dict]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    except FileNotFoundError:
        raise _missing(path) from None
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None


def write_arrow(path: Path, table: pa.Table | pl.DataFrame, info: dict | None = None) -> None:
    """One Arrow IPC file in one record batch; `info` becomes JSON metadata."""
    table = table.to_arrow(compat_level=pl.CompatLevel.oldest()) if isinstance(table, pl.DataFrame) else table
    metadata = {"espalier": json.dumps(info, sort_keys=True)} if info is not None else None
    table = table.replace_schema_metadata(metadata).combine_chunks()
    with replacing(path) as temporary, pa.OSFile(str(temporary), "wb") as sink:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)


def read_arrow(path: Path, columns: dict[str, str] | None = None) -> tuple[pa.Table, dict]:
    """The table, memory-mapped, and its metadata; `columns` names the columns it must have."""
    if not path.exists():
        raise _missing(path)
    try:
        with pa.memory_map(str(path), "r") as source:
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)
        info = json.loads((table.schema.metadata or {}).get(b"espalier", b"{}"))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, error) from None
    _check_columns(path, table, columns or {})
    return table, info


def _check_columns(path: Path, table: pa.Table, columns: dict[str, str]) -> None:
    for name, wanted in columns.items():
        if table.schema.names.count(name) != 1 or str(table.schema.field(name).type) != wanted:
            found = ", ".join(f"{f.name}: {f.type}" for f in table.schema)
            raise _damaged(path, ValueError(f"expected a column {name} of type {wanted}, found {found}"))
        if table.column(name).null_count:
            raise _damaged(path, ValueError(f"column {name} has empty fields"))


def write_tokens(root: Path, split: str, tokens: pl.DataFrame, info: dict) -> None:
    write_arrow(root / TOKENS.format(split), tokens, info)


def read_tokens(root: Path, split: str) -> tuple[pl.DataFrame, dict]:
    path = root / TOKENS.format(split)
    table, info = read_arrow(path, {"sequence": "int32"})
    others = [] if split == "unlabelled" else ["label"]
    inputs = [f"x{i}" for i in range(max(1, table.num_columns - 1 - len(others)))]
    _check_columns(path, table, dict.fromkeys([*inputs, *others], TEXT))
    if not isinstance(info, dict) or "nouns" not in info:
        raise _damaged(path, ValueError("no description of the data in it"))
    return pl.from_arrow(table), info


def file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(root: Path) -> dict:
    return read_json(root / MANIFEST)


def whole_manifest(root: Path) -> dict:
    """The manifest, with everything that the stages after `template` rely on."""
    manifest = read_manifest(root)
    wanted = ("templates", "columns", "kinds", "labels", "nouns", "observations", "splits", "vocabulary_sha256",
              "data_version")  # fmt: skip
    for key in wanted:
        if not isinstance(manifest, dict) or key not in manifest:
            raise _damaged(root / MANIFEST, ValueError(f"{key} is missing"))
    return manifest


def read_vocabulary(root: Path) -> pl.DataFrame:
    """The vocabulary that the manifest speaks of: ids in features mean nothing under another."""
    path = root / VOCABULARY
    table, _ = read_arrow(path, {"observation": TEXT, "template": "int16", "count": "int64"})
    if file_hash(path) != whole_manifest(root)["vocabulary_sha256"]:
        raise _damaged(path, ValueError("it does not belong to the manifest"))
    return pl.from_arrow(table)


def sequence_offsets(sequence: np.ndarray) -> np.ndarray:
    """Offsets of the runs of equal values, int64 [N + 1]."""
    starts = np.flatnonzero(np.diff(sequence, prepend=sequence[:1] - 1)) if len(sequence) else np.empty(0, np.int64)
    return np.append(starts, len(sequence)).astype(np.int64)


def write_shards(root: Path, split: str, features: pl.DataFrame, shard_tokens: int) -> list[str]:
    """Features cut between sequences into shards of about `shard_tokens`; stale shards go away."""
    offsets = sequence_offsets(features["sequence"].to_numpy())
    folder, names, begin = root / FEATURES / split, [], 0
    while begin < len(features) or not names:
        end = int(offsets[min(np.searchsorted(offsets, begin + shard_tokens), len(offsets) - 1)])
        names.append(f"{split}/{len(names):05d}.arrow")
        write_arrow(root / FEATURES / names[-1], features[begin:end])
        begin = max(end, begin + 1)
    for path in folder.glob("*.arrow"):
        if f"{split}/{path.name}" not in names:
            path.unlink()
    return names


def read_dataset(root: Path, split: str, manifest: dict, weights: np.ndarray | None = None) -> Dataset:
    """All shards of a split as the engine's flat arrays."""
    columns = manifest["columns"]
    wanted = {"sequence": "int32", "label": "int32"} | dict.fromkeys(columns, "int32")
    tables = [read_arrow(root / FEATURES / name, wanted)[0] for name in manifest["splits"][split]["shards"]]
    table = pa.concat_tables(tables)
    observations = np.empty((table.num_rows, len(columns)), np.int32)
    for i, name in enumerate(columns):
        observations[:, i] = table.column(name).to_numpy()
    labels, sequence = table.column("label").to_numpy(), table.column("sequence").to_numpy()
    limit = manifest["observations"]
    if len(observations) and not (-1 <= observations.min() and observations.max() < limit):
        raise _damaged(root / FEATURES / split, ValueError(f"an observation id outside 0..{limit - 1}"))
    if len(labels) and not (-1 <= labels.min() and labels.max() < len(manifest["labels"])):
        raise _damaged(root / FEATURES / split, ValueError(f"a label id outside 0..{len(manifest['labels']) - 1}"))
    try:
        return make_dataset(observations, labels, sequence_offsets(sequence), weights)
    except EspalierError as error:
        raise EspalierError(f"{root / FEATURES / split}: {error}") from None


def read_weights(root: Path) -> np.ndarray:
    table, _ = read_arrow(root / WEIGHTS, {"sequence": "int32", "weight": "double"})
    weights = table.column("weight").to_numpy()
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise _damaged(root / WEIGHTS, ValueError("a weight that is negative or not finite"))
    return weights
