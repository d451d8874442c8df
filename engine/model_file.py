"""What every model file is: one Arrow IPC file, readable by any Arrow tool, with a JSON text in its metadata.

A model of weights alone is the table of its weights (format 4). One with further named tables (format 5) has a column
for each table and one row: a cell is a whole table, as a list of records. What a family's tables are is said by its
class, and a file with others is refused. One checksum covers all that a file holds.

Reading executes nothing: it is columns of numbers and texts. It takes no more memory than a few times the file: what
would unpack to more than it is, is refused before it is read (see `engine.arrow_frame`).
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from espalier.engine.arrow_frame import check_frame
from espalier.engine.data.dataset import check_label_count
from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.runtime.arrow_arrays import missing, numbers_of

FORMAT = 4  # 1 had other names for what is beyond the edges; the checksum of 2 left the info out; 3 knew no families
NESTED = 5  # of models with further tables
READABLE = (2, 3, FORMAT, NESTED)
FIRST_FAMILY = "crf"  # of files that know no families
REMEDY = "train it again or restore it with `dvc checkout`"
MOST_COLUMNS = 64  # of all tables of a model together
TEXT = pa.dictionary(pa.int32(), pa.string())
WEIGHTS = pa.schema(
    [("family", TEXT), ("observation", TEXT), ("previous", TEXT), ("label", TEXT), ("weight", pa.float64())]
)

Body = dict[str, pa.Schema]  # the tables of a family; fields that may be empty say so
Tables = dict[str, pa.Table]


class ModelFile(NamedTuple):
    """A file whose head has been read: what it says of itself, and of its columns."""

    path: Path
    head: dict
    columns: list[tuple[str, pa.DataType]]

    @property
    def family(self) -> str:
        return self.head.get("family", FIRST_FAMILY)


def format_of(body: Body) -> int:
    """The format in which models with these tables are written."""
    return FORMAT if list(body) == ["weights"] else NESTED


def table_schema(*fields: tuple[str, pa.DataType]) -> pa.Schema:
    """The schema of a table whose fields are never empty."""
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])


def texts_column(codes: np.ndarray, texts: list[str]) -> pa.DictionaryArray:
    """A column of texts by their numbers; -1 is an empty field."""
    codes = np.asarray(codes, np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32(), mask=codes < 0), pa.array(texts, pa.string()))


def texts_of(table: pa.Table, name: str) -> tuple[np.ndarray, list[str]]:
    """(codes, texts) of a column of texts; -1 of an empty field."""
    column = whole(table, name)
    return np.where(missing(column.indices), -1, numbers_of(column.indices, np.int32)), column.dictionary.to_pylist()


def whole(table: pa.Table, name: str) -> pa.Array:
    """A column in one piece."""
    chunks = table.column(name).combine_chunks()
    return chunks.chunk(0) if isinstance(chunks, pa.ChunkedArray) and chunks.num_chunks else chunks


# ---- writing


def write(path: Path, head: dict, tables: Tables) -> None:
    """Write to a temporary name, then rename: a reader never sees half a model. The head has the checksum."""
    table = tables["weights"] if format_of(tables) == FORMAT else _nested(tables)
    table = table.replace_schema_metadata({"espalier": json.dumps(head, sort_keys=True)})
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error  # Arrow does not say where
    finally:
        temporary.unlink(missing_ok=True)


def _nested(tables: Tables) -> pa.Table:
    """One row, a column for each table."""
    cells = {}
    for name, table in tables.items():
        columns = [whole(table, column) for column in table.column_names]
        records = pa.StructArray.from_arrays(columns, fields=list(table.schema))
        cells[name] = pa.LargeListArray.from_arrays(pa.array([0, len(table)], pa.int64()), records)
    return pa.table(cells)


def checksum(head: dict, tables: Tables) -> str:
    """SHA-256 over all that a file with several tables holds."""
    digest = hashlib.sha256(json.dumps(json.loads(json.dumps(head)), sort_keys=True).encode())  # as it comes back
    for name, table in sorted(tables.items()):
        for field in table.schema:
            digest.update(json.dumps([name, field.name, str(field.type), len(table)]).encode())
            if pa.types.is_dictionary(field.type):
                codes, texts = texts_of(table, field.name)
                digest.update(json.dumps(texts).encode())
            else:
                codes = numbers_of(whole(table, field.name), field.type.to_pandas_dtype())
            digest.update(np.ascontiguousarray(codes).tobytes())
    return digest.hexdigest()


def refuse_infinite(tables: Tables, path: Path, remedy: str) -> None:
    """Refuse numbers that are not finite."""
    for name, table in tables.items():
        for field in table.schema:
            if pa.types.is_floating(field.type):
                values = numbers_of(whole(table, field.name), np.float64)
                if not np.all(np.isfinite(values)):
                    at = int(np.argmin(np.isfinite(values)))
                    found = f"{field.name} {at} of its table {name} is {values[at]}"
                    raise EspalierError(f"{path}: {found}, expected a finite number; {remedy}")


# ---- reading


def open_model(path: str | Path) -> ModelFile:
    """What a file says of itself, checked; of its tables nothing has been read yet."""
    path = Path(path)
    if not path.is_file():
        raise EspalierError(f"{path}: there is no such model; train one with `espalier run`")
    with _readable(path):
        with path.open("rb") as file:
            check_frame(file, most_batches=1, most_dictionaries=MOST_COLUMNS)
        with pa.OSFile(str(path), "rb") as source:
            schema = pa.ipc.open_file(source).schema
        columns = [(field.name, field.type) for field in schema]
    return ModelFile(path, _read_head(schema, path), columns)


def read_tables(file: ModelFile, body: Body) -> Tables:
    """The tables of a file, which must be those of its family; its checksum is still to be looked at."""
    expected = dict(zip(WEIGHTS.names, WEIGHTS.types, strict=True))
    nested = format_of(body) == NESTED
    if nested != (file.head["format"] == NESTED):
        raise EspalierError(f"{file.path}: a model of the family {quoted(file.family)} in the format "
                            f"{file.head['format']}, expected {format_of(body)}; {REMEDY}")  # fmt: skip
    if nested:
        expected = {name: cell_type(schema) for name, schema in body.items()}
    _check_columns(file, expected)
    with _readable(file.path):
        with file.path.open("rb") as source:
            check_frame(source, most_batches=1, most_dictionaries=sum(len(schema) for schema in body.values()))
        with pa.OSFile(str(file.path), "rb") as source:
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)
    if not nested:
        return {"weights": table}
    tables = _unnested(table, file.path)
    _check_fields(tables, body, file.path)
    return tables


def check_checksum(file: ModelFile, found: str) -> None:
    if found != file.head.get("checksum"):
        raise EspalierError(f"{file.path}: damaged, its content does not have the checksum that it states; {REMEDY}")


def cell_type(schema: pa.Schema) -> pa.DataType:
    """The type of the column that holds a table of this schema."""
    return pa.large_list(pa.struct(list(schema)))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except EspalierError:
        raise
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise EspalierError(f"{path}: not a readable model file ({_first_line(error)}); {REMEDY}") from None


def _unnested(table: pa.Table, path: Path) -> Tables:
    if len(table) != 1:
        raise EspalierError(f"{path}: {len(table):,} rows, expected one, with a table in each column; {REMEDY}")
    tables = {}
    for name in table.column_names:
        cell = whole(table, name)
        records = cell.flatten()
        if cell.null_count or records.null_count:
            raise EspalierError(f"{path}: its table {name} is empty or has an empty row; {REMEDY}")
        tables[name] = pa.Table.from_arrays(records.flatten(), schema=pa.schema(list(records.type)))
    return tables


def _check_fields(tables: Tables, body: Body, path: Path) -> None:
    for name, schema in body.items():
        for field in schema:
            column = whole(tables[name], field.name)
            if column.null_count and not field.nullable:
                raise EspalierError(f"{path}: its table {name} has an empty {field.name}; {REMEDY}")
            if pa.types.is_dictionary(field.type):
                texts = column.dictionary.to_pylist()
                if None in texts or len(set(texts)) != len(texts):
                    raise EspalierError(f"{path}: a text of {field.name} in {name} is empty or there twice; {REMEDY}")
    refuse_infinite({name: table for name, table in tables.items() if name != "weights"}, path, REMEDY)


def _check_columns(file: ModelFile, expected: dict[str, pa.DataType]) -> None:
    if file.columns != list(expected.items()):
        shown = ", ".join(f"{brief(name)}: {brief(str(kind))}" for name, kind in file.columns[:10])
        wanted = ", ".join(f"{name}: {kind}" for name, kind in expected.items())
        raise EspalierError(f"{file.path}: columns {shown}, expected {wanted}; {REMEDY}")


def _read_head(schema: pa.Schema, path: Path) -> dict:
    text = (schema.metadata or {}).get(b"espalier")
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


def _first_line(error: BaseException) -> str:
    return brief((str(error) or type(error).__name__).splitlines()[0])
