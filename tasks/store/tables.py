"""Tables in Arrow IPC files, written batch by batch, read mapped into memory or batch by batch, and checked."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import polars as pl
import pyarrow as pa

from espalier.tasks.store.files import replacing
from espalier.tasks.store.places import damaged, missing

TEXT = "large_string"  # as Polars writes texts


def arrow_texts(column: pl.Series) -> pa.Array:
    """A column of texts as the kernels read them: large_string, in one piece."""
    return column.cast(pl.String).rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())


def _as_table(data: pa.Table | pl.DataFrame, info: dict | None) -> pa.Table:
    """An Arrow table in one piece, with `info` as its metadata."""
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
        raise missing(path)
    try:
        with pa.memory_map(str(path), "r") as source:
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)
        info = _info(table.schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(path, error) from None
    check_columns(path, table, columns or {})
    return table, info


def _info(schema: pa.Schema) -> dict:
    """The metadata that `arrow_writer` wrote; empty where there is none."""
    return json.loads((schema.metadata or {}).get(b"espalier", b"{}"))


def read_batches(path: Path) -> Iterator[tuple[pa.Table, dict]]:
    """The record batches of a file one by one, each with the metadata; at least one, which may be empty."""
    if not path.exists():
        raise missing(path)
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
        raise damaged(path, error) from None


def check_columns(path: Path, table: pa.Table, columns: dict[str, str]) -> None:
    """Fails unless the table has each of these columns once, of the type given, without empty fields."""
    for name, wanted in columns.items():
        if table.schema.names.count(name) != 1 or str(table.schema.field(name).type) != wanted:
            found = ", ".join(f"{f.name}: {f.type}" for f in table.schema)
            raise damaged(path, ValueError(f"expected a column {name} of type {wanted}, found {found}"))
        if table.column(name).null_count:
            raise damaged(path, ValueError(f"column {name} has empty fields"))
