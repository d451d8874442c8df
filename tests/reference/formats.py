"""Formats of corpora read the obvious way, one line or row after the other; imports nothing from the project.

A reader gives sequences as lists of (inputs, label), label None where nobody asked for it, and raises Refused for
whatever is wrong anywhere in the file.
"""

import io
import json
import math
import re

import pyarrow as pa
import pyarrow.parquet as pq
from reference import conll as columns

FIELDS = "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split()


class Refused(Exception):
    """The file is not what it should be."""


def refuse(condition, why):
    if condition:
        raise Refused(why)


def text_of(data):
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refused("not UTF-8") from None


def canonical(label, unknown="_", separator="|"):
    """Unknown is the empty text, a set its members in order with \\x1f between."""
    refuse("\x1f" in label, "reserved")
    if label == unknown:
        return ""
    if separator and separator in label:
        members = label.split(separator)
        refuse("" in members or unknown in members, "set")
        return "\x1f".join(sorted(set(members)))
    return label


def finished(sequences, unknown="_", separator="|", blanks=""):
    """Cells must not be empty; labels get their canonical form."""
    refuse(not sequences, "nothing in it")
    for rows in sequences:
        for inputs, label in rows:
            refuse(any(not cell.strip(blanks) if blanks else not cell for cell in inputs), "empty cell")
            refuse(label is not None and not (label.strip(blanks) if blanks else label), "no label")
    width = len(sequences[0][0][0])
    refuse(any(len(inputs) != width for rows in sequences for inputs, _ in rows), "width")
    return [
        [(tuple(inputs), None if label is None else canonical(label, unknown, separator)) for inputs, label in rows]
        for rows in sequences
    ]


def conll(data, labelled=True, separator=None, comment=None, docstart="-DOCSTART-", label_column=-1, unknown="_"):
    text_of(data)
    sequences = columns.parse(data, separator, comment, docstart)
    refuse(not sequences, "nothing in it")
    refuse(columns.ragged_line(sequences), "ragged")
    found = []
    for rows in sequences:
        found.append([])
        for _, fields in rows:
            fields, label = list(fields), None
            if labelled:
                refuse(len(fields) < 2 or not -len(fields) <= label_column < len(fields), "no such column")
                label = fields.pop(label_column)
            found[-1].append((fields, label))
    return finished(found, unknown, blanks=" \t")


def conllu(data, labelled=True, inputs=("FORM", "LEMMA", "XPOS", "FEATS"), label="UPOS"):
    text_of(data)
    found = []
    for rows in columns.parse(data, "\t", "#"):
        found.append([])
        for _, fields in rows:
            refuse(len(fields) != 10, "width")
            record = dict(zip(FIELDS, fields, strict=True))
            if re.fullmatch(r"[0-9]+-[0-9]+|[0-9]+\.[0-9]+", record["ID"]):
                continue
            refuse(not re.fullmatch("[0-9]+", record["ID"]), "ID")
            refuse(len(record["ID"]) > 15 or int(record["ID"]) != len(found[-1]) + 1, "numbering")
            found[-1].append(([record[name] for name in inputs], record[label] if labelled else None))
        refuse(not found[-1], "no word")
    return finished(found, blanks=" \t")


def _pairs(items):
    found = {}
    for key, value in items:
        found[key] = ... if key in found else value
    return found


def _constant(name):
    raise ValueError(name)


def _texts(values):
    values = list(values)
    for value in values:
        refuse(not isinstance(value, str), "no text")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Refused("half a character") from None
    return values


def jsonl(data, labelled=True, names=("tokens",), label="labels"):
    found, keys = [], {}
    for line in text_of(data).split("\n"):
        line = line.strip(" \t\r")
        if not line:
            continue
        try:
            record = json.loads(line, object_pairs_hook=_pairs, parse_constant=_constant, parse_int=float)
        except (ValueError, RecursionError):
            raise Refused("not JSON") from None
        refuse(not isinstance(record, dict), "no object")
        lists = [record.get(name) for name in (*names, *([label] if labelled else []))]
        refuse(any(not isinstance(values, list) for values in lists), "no list")
        refuse(not lists[0] or len({len(values) for values in lists}) != 1, "lengths")
        rows = [[] for _ in lists[0]]
        for name, tokens in zip(names, lists, strict=False):
            for row, token in zip(rows, tokens, strict=True):
                if isinstance(token, dict):
                    kind = sorted(token)
                    order = keys.setdefault(name, ("dict", kind, list(token)))[2]
                    refuse(keys[name][:2] != ("dict", kind) or not kind, "keys")
                    row += _texts(token[key] for key in order)
                else:
                    kind = len(token) if isinstance(token, list) else None
                    refuse(keys.setdefault(name, ("list", kind, None))[:2] != ("list", kind) or kind == 0, "width")
                    row += _texts(token if isinstance(token, list) else [token])
        labels = _texts(lists[-1]) if labelled else [None] * len(rows)
        found.append(list(zip(rows, labels, strict=True)))
    return finished(found)


def libsvm(data):
    """Labels, and for each document its (index from 0, count) pairs."""
    labels, documents = [], []
    number = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
    for line in text_of(data).split("\n"):
        fields = columns.fields_of(line.rstrip("\r").split("#")[0], None)
        if not fields:
            continue
        refuse(not number.fullmatch(fields[0]) or not math.isfinite(float(fields[0])), "label")
        labels.append(float(fields[0]))
        documents.append([])
        for pair in fields[1:]:
            index, *counts = pair.split(":")
            refuse(len(counts) != 1 or not re.fullmatch("[0-9]+", index) or not number.fullmatch(counts[0]), "pair")
            index, count = float(index), float(counts[0])
            refuse(not 1 <= index <= 2**31 - 1 or not 0 <= count < math.inf, "range")
            refuse(documents[-1] and documents[-1][-1][0] >= index - 1, "order")
            documents[-1].append((int(index) - 1, count))
    refuse(not labels, "nothing in it")
    return labels, documents


def table_rows(data, kind, left_out):
    """All rows of an Arrow file, an Arrow stream or a Parquet file as dicts, without some columns."""
    try:
        if kind == "parquet":
            schema = pq.read_schema(pa.BufferReader(data))
            names = [name for name in schema.names if name not in left_out]
            table = pq.read_table(
                pa.BufferReader(data), columns=names, use_threads=False, page_checksum_verification=True
            )
        elif data.startswith(b"ARROW1"):
            table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
        else:
            refuse(not data.endswith(b"\xff\xff\xff\xff\0\0\0\0"), "no end")
            source = io.BytesIO(data)
            table = pa.ipc.open_stream(source).read_all()
            refuse(source.read(), "more behind the end")
        refuse(len(set(table.schema.names)) != len(table.schema.names), "names")
        table = table.select([name for name in table.schema.names if name not in left_out])
        table.validate(full=True)
        return table.schema, table.to_pylist()
    except Refused:
        raise
    except Exception as error:  # whatever the library finds wrong
        raise Refused(str(error)) from None


def table(data, kind, labelled=True):
    """Rows of tokens (sequence, x0, …, label) or of lists (tokens, labels)."""
    schema, rows = table_rows(data, kind, () if labelled else ("label", "labels"))
    refuse(not rows, "nothing in it")
    found = []
    if "tokens" in schema.names and "list" in str(schema.field("tokens").type):
        for row in rows:
            tokens, labels = row["tokens"], row.get("labels") if labelled else [None] * len(row["tokens"] or [])
            refuse(not tokens or labels is None or len(tokens) != len(labels), "lengths")
            cells = [list(t.values()) if isinstance(t, dict) else t if isinstance(t, list) else [t] for t in tokens]
            refuse(any(not isinstance(cell, str) for row in cells for cell in row), "no text")
            refuse(labelled and any(not isinstance(label, str) for label in labels), "no label")
            refuse(any(not row for row in cells), "no column")
            found.append(list(zip(cells, labels, strict=True)))
        return finished(found)
    refuse("sequence" not in schema.names or (labelled and "label" not in schema.names), "columns")
    names = [name for name in schema.names if name not in ("sequence", "label")]
    refuse(not names, "no input")
    seen, last = set(), ...
    for row in rows:
        key = row["sequence"]
        refuse(not isinstance(key, (int, str)) or isinstance(key, bool), "sequence")
        if key != last:
            refuse(key in seen, "again")
            seen.add(key)
            found.append([])
            last = key
        cells, label = [row[name] for name in names], row["label"] if labelled else None
        refuse(any(not isinstance(cell, str) for cell in cells), "no text")
        refuse(labelled and not isinstance(label, str), "no label")
        found[-1].append((cells, label))
    return finished(found)


# Tagging schemes --------------------------------------------------------------------------------------


def chunks(labels, scheme):
    """(kind, begin, end) of the chunks of one sequence; Refused where BIOES or BILOU contradicts itself."""
    found, begin = [], None
    letters = {"bilou": {"L": "E", "U": "S"}}.get(scheme, {})
    tags = [(letters.get(label[0], label[0]), label[2:]) for label in labels] + [("O", "")]
    for t, (letter, kind) in enumerate(tags):
        if scheme in ("iob1", "iob2"):
            goes_on = begin is not None and letter == "I" and kind == tags[t - 1][1]
            if begin is not None and not goes_on:
                found.append((tags[t - 1][1], begin, t))
                begin = None
            if letter in "BI" and not goes_on:
                begin = t
        else:
            if begin is not None:
                refuse(letter not in "IE" or kind != tags[begin][1], "the chunk goes on")
            else:
                refuse(letter in "IE", "no chunk goes on")
            if letter in "BS":
                begin = t
            if letter in "ES":
                found.append((kind, begin, t + 1))
                begin = None
    return found


def labels_of(found, length, scheme):
    """The labels of one sequence from its chunks."""
    labels = ["O"] * length
    single, end = {"bioes": "SE", "bilou": "UL"}.get(scheme, "BI")
    for i, (kind, begin, stop) in enumerate(found):
        touches = i and found[i - 1][2] == begin and found[i - 1][0] == kind
        for t in range(begin, stop):
            labels[t] = f"I-{kind}"
        if scheme != "iob1" or touches:
            labels[begin] = f"B-{kind}"
        if scheme in ("bioes", "bilou"):
            labels[stop - 1] = f"{end}-{kind}"
            if stop - begin == 1:
                labels[begin] = f"{single}-{kind}"
    return labels
