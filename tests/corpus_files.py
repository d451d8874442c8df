"""The same corpus in every format, and blocks as the oracles give them."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq

from espalier.tasks import formats


def packed(data, suffix):
    if suffix == ".gz":
        return gzip.compress(data)
    return pa.compress(data, "zstd", asbytes=True) if suffix == ".zst" else data


def sequences_of(blocks):
    found = []
    for block in blocks:
        assert str(block.schema["sequence"]) == "Int32" and len(block)
        for row in block.iter_rows(named=True):
            if row["sequence"] == len(found):
                found.append([])
            assert row["sequence"] == len(found) - 1
            inputs = tuple(row[name] for name in formats.input_names(block))
            found[-1].append((inputs, row.get("label")))
    return found


def as_conll(sequences):
    return "".join(
        "".join("\t".join((*inputs, label)) + "\n" for inputs, label in rows) + "\n" for rows in sequences
    ).encode()


def as_conllu(sequences):
    lines = []
    for rows in sequences:
        lines.append("# a comment")
        for i, (inputs, label) in enumerate(rows, 1):
            lines += [f"{i}-{i + 1}\tab" + "\t_" * 8] * (i % 2)
            lines.append("\t".join([str(i), *inputs[:2], label, inputs[2], "F=1|G=2", "0", "root", "_", "_"]))
            lines += [f"{i}.1\tab" + "\t_" * 8] * (i % 3 == 0)
        lines.append("")
    return "\n".join(lines).encode()


def as_jsonl(sequences, kind="list"):
    lines = []
    for rows in sequences:
        tokens = [inputs[0] if kind == "text" else list(inputs) if kind == "list" else
                  {f"c{i}": cell for i, cell in enumerate(inputs)} for inputs, _ in rows]  # fmt: skip
        lines.append(json.dumps({"id": len(lines), "tokens": tokens, "labels": [label for _, label in rows]}))
    return "\n".join(lines).encode()


def token_table(sequences):
    rows = [{"sequence": i, **{f"x{j}": cell for j, cell in enumerate(inputs)}, "label": label}
            for i, tokens in enumerate(sequences) for inputs, label in tokens]  # fmt: skip
    return pa.Table.from_pylist(rows)


def list_table(sequences):
    return pa.Table.from_pylist(
        [{"tokens": [list(inputs) for inputs, _ in rows], "labels": [label for _, label in rows]} for rows in sequences]
    )


def arrow_bytes(table, stream=False, rows=2):
    sink = pa.BufferOutputStream()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue().to_pybytes()


def parquet_bytes(table, rows=3):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=rows, write_page_checksum=True)
    return sink.getvalue().to_pybytes()


def every_format(sequences):
    """Name and bytes of the same corpus in every format that has as many columns."""
    yield "a.conll", as_conll(sequences)
    yield "a.jsonl", as_jsonl(sequences)
    yield "records.jsonl", as_jsonl(sequences, "record")
    if len(sequences[0][0][0]) == 1:
        yield "texts.jsonl", as_jsonl(sequences, "text")
    for name, table in (("tokens", token_table(sequences)), ("lists", list_table(sequences))):
        yield f"{name}.arrow", arrow_bytes(table)
        yield f"{name}.arrows", arrow_bytes(table, stream=True)
        yield f"{name}.parquet", parquet_bytes(table)
