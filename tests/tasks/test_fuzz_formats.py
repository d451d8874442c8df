"""Damaged and random files: a refusal with words, or exactly what an obvious reader reads; nothing else, ever."""

import gzip
import json
import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from corpus_files import arrow_bytes, list_table, packed, parquet_bytes, sequences_of, token_table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference import formats as reference

from espalier.engine.errors import EspalierError
from espalier.tasks import formats
from espalier.tasks.formats import Reading, libsvm

ROWS = [
    [(("He", "PRP"), "B-NP"), (("é漢", "N"), "_"), (("-DOCSTART-", "x"), "O")],
    [(("a|b", "#"), "I-X|O")],
    [(("\xa0", "1:2"), "X"), (("{}", "[,]"), "Y")],
]
CONLL = "".join("".join(f"{x[0]} {x[1]}\t{y}\n" for x, y in rows) + "\r\n" for rows in ROWS).encode()
CONLLU = (
    "# sent_id = 1\n1-2\tab" + "\t_" * 8 + "\n1\ta\tb\tX\tY\tA=1|B=2\t0\troot\t_\t_\n2\tc\td\tX|Y\t_\t_\t0\tx\t_\t_\n"
    "2.1\te" + "\t_" * 8 + "\n\n1\tg\th\t_\tY\t_\t0\troot\t_\t_\n"
).encode()
JSONL = "".join(
    json.dumps(
        {"tokens": [x[0] for x, _ in rows], "labels": [y for _, y in rows], "id": 1.5e3, "m": {"a": [None, True]}}
    )
    + "\n"
    for rows in ROWS
).encode()
JSONL_LISTS = "".join(
    json.dumps({"tokens": [x for x, _ in rows], "labels": [y for _, y in rows]}) + "\n" for rows in ROWS
).encode()
JSONL_RECORDS = "".join(
    json.dumps(
        {"labels": [y for _, y in rows], "tokens": [{"w": x[0], "p": x[1]} for x, _ in rows]}, ensure_ascii=False
    )
    + "\n"
    for rows in ROWS
).encode()
LIBSVM = b"+1 1:2 7:0.5 # spam\n-1\n# all\n2.5e-1 3:1 12:4\t14:.5\r\n"
WORDS = [b"\n", b"\n\n", b"\r\n", b"\r", b" ", b"\t", b"|", b"_", b"#", b"-DOCSTART-", b"\0", b"\xff", b"\xef\xbb\xbf",
         "é".encode(), b"\xe2\x80\xa8", b'"', b"\\", b"\\u", b"\\ud800", b"{", b"}", b"[", b"]", b",", b":", b"null",
         b"1", b"-", b".", b"e9", b'{"tokens":["a"],"labels":["X"]}', b'"tokens":["a"],', b"a X\n",
         b"1\ta\tb\tX\tY\t_\t0\tr\t_\t_\n", b"\x1f", b"NaN", b"9" * 20]  # fmt: skip
EDITS = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from(["insert", "replace", "delete", "copy", "flip"]), st.integers(0, 255)),
    min_size=0, max_size=4,
)  # fmt: skip


MARKS = {"unknown": "_", "set_separator": "|"}


def edited(data, edits):
    """Some places changed: words put in, bytes exchanged, pieces removed or repeated."""
    for share, kind, value in edits:
        at = round(share * len(data))
        word, piece = WORDS[value % len(WORDS)], data[at : at + value % 40 + 1]
        if kind == "insert":
            data = data[:at] + word + data[at:]
        elif kind == "replace":
            data = data[:at] + word + data[at + len(word) :]
        elif kind == "delete":
            data = data[:at] + data[at + len(piece) :]
        elif kind == "copy":
            data = data[:at] + piece + data[at:]
        elif at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << value % 8)]) + data[at + 1 :]
    return data


def damaged(*valid):
    """Valid files with edits, random words after each other, random bytes."""
    mutated = st.tuples(st.sampled_from(valid), EDITS).map(lambda case: edited(*case))
    words = st.lists(st.sampled_from(WORDS), max_size=12).map(b"".join)
    return st.one_of(mutated, mutated, mutated, words, st.binary(max_size=30))


FOLDER = tempfile.mkdtemp(prefix="espalier-fuzz-")


def teardown_module():
    for name in os.listdir(FOLDER):
        os.unlink(os.path.join(FOLDER, name))
    os.rmdir(FOLDER)


def agree(data, name, oracle, size, labelled=True, **options):
    """Both refuse, or both give the same sequences."""
    path = Path(FOLDER) / name
    path.write_bytes(data)
    try:
        expected = oracle()
    except reference.Refused as error:
        expected = error
    try:
        found = sequences_of(formats.read_blocks([path], Reading(**(MARKS | options)), labelled, size))
    except EspalierError as error:
        assert isinstance(expected, reference.Refused), f"refused: {error}"
        assert len(str(error)) > 20 and name in str(error)
    else:
        assert not isinstance(expected, reference.Refused), f"taken, though: {expected}"
        assert found == expected


SIZES = st.sampled_from([1, 2, 5, 1000])


def conll_case(case):
    data, separator, comment, labelled, column, size = case
    options = {"separator": separator, "comment": comment, "label_column": column}
    agree(data, "a.conll", lambda: reference.conll(data, labelled, **options), size, labelled, **options)


CONLL_CASES = st.tuples(
    damaged(CONLL, b"a\tX\nb c\tY\n \n\tZ\n"),
    st.sampled_from([None, None, "\t", " ", "|"]), st.sampled_from([None, "#"]),
    st.booleans(), st.sampled_from([-1, -1, 0, 1]), SIZES,
)  # fmt: skip


def conllu_case(case):
    data, labelled, size = case
    agree(data, "a.conllu", lambda: reference.conllu(data, labelled), size, labelled)


CONLLU_CASES = st.tuples(damaged(CONLLU), st.booleans(), SIZES)


def jsonl_case(case):
    data, labelled, size = case
    agree(data, "a.jsonl", lambda: reference.jsonl(data, labelled), size, labelled)


JSONL_CASES = st.tuples(damaged(JSONL, JSONL_LISTS, JSONL_RECORDS), st.booleans(), SIZES)


def libsvm_case(case):
    data, size = case
    path = Path(FOLDER) / "a.svm"
    path.write_bytes(data)
    try:
        expected = reference.libsvm(data)
    except reference.Refused:
        with pytest.raises(EspalierError, match="a.svm"):
            libsvm.read(path, size)
        return
    found = libsvm.read(path, size)
    pairs = list(zip(found.indices.tolist(), found.counts.tolist(), strict=True))
    documents = [pairs[a:b] for a, b in zip(found.indptr[:-1], found.indptr[1:], strict=True)]
    assert (found.labels.tolist(), documents) == expected


LIBSVM_CASES = st.tuples(damaged(LIBSVM), st.sampled_from([1, 7, 1000]))
TABLES = {
    "arrow": [arrow_bytes(token_table(ROWS)), arrow_bytes(list_table(ROWS)),
              arrow_bytes(token_table(ROWS), stream=True), arrow_bytes(list_table(ROWS), stream=True)],
    "parquet": [parquet_bytes(token_table(ROWS)), parquet_bytes(list_table(ROWS))],
}  # fmt: skip


def table_case(case):
    """The reader may refuse more than the oracle: a type that the oracle sees only by its values, a damaged page."""
    kind, data, labelled, size = case
    path = Path(FOLDER) / f"a.{kind}"
    path.write_bytes(data)
    try:
        found = sequences_of(formats.read_blocks([path], Reading(**MARKS), labelled, size))
    except EspalierError as error:
        assert len(str(error)) > 20 and path.name in str(error)
    else:
        assert found == reference.table(data, kind, labelled)


def test_a_page_that_ends_its_column_early_loses_no_row_in_silence():
    """Batches stop with the shortest column, and once did so without a word."""
    data, header = TABLES["parquet"][0], b"\x15\x04\x15"  # a dictionary page is said to be another kind of page
    places = [at for at in range(len(data)) if data.startswith(header, at)]
    assert len(places) > 4
    for at in places:
        table_case(("parquet", data[:at] + b"\x15\x06\x15" + data[at + 3 :], True, 1))


TABLE_CASES = st.sampled_from(sorted(TABLES)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.one_of(
        st.tuples(st.sampled_from(TABLES[kind]), EDITS).map(lambda case: edited(*case)), st.binary(max_size=50),
    ), st.booleans(), SIZES)
)  # fmt: skip

LONG = "".join(f"w{i} X\n\n" for i in range(200)).encode()


def packed_case(case):
    """Cut or damaged compressed files: a refusal, or all of the text; never less of it."""
    suffix, members, cut, edits, size = case
    step = len(LONG) // members + 1
    parts = [packed(LONG[i : i + step], suffix) for i in range(0, len(LONG), step)]
    whole = b"".join(parts)
    data = edited(whole, edits)[: round(cut * len(whole))]
    path = Path(FOLDER) / f"a.conll{suffix}"
    path.write_bytes(data)
    try:
        expected = reference.conll(unpacked(data, suffix))
    except reference.Refused:
        expected = None
    try:
        found = sequences_of(formats.read_blocks([path], Reading(**MARKS), True, size))
    except EspalierError as error:
        assert len(str(error)) > 20 and path.name in str(error)
        assert expected is None or edits, f"refused: {error}"  # zlib looks closer at headers than gzip does
    else:
        assert found == expected


def unpacked(data, suffix):
    """The text by Python's or Arrow's own whole-file functions; bytes that are not compressed at all are text."""
    magic = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
    reference.refuse(bool(data) and len(data) < 4 and magic[suffix].startswith(data[: len(magic[suffix])]), "cut")
    if data.startswith(magic[".gz"]):
        try:
            return gzip.decompress(data)
        except Exception as error:
            raise reference.Refused(str(error)) from None
    if not data.startswith(magic[".zst"]):
        return data
    try:
        return pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
    except Exception as error:
        raise reference.Refused(str(error)) from None


PACKED_CASES = st.tuples(
    st.sampled_from([".gz", ".zst"]), st.integers(1, 3), st.one_of(st.just(2.0), st.floats(0, 1)), EDITS,
    st.sampled_from([10, 1000]),
)  # fmt: skip

PARSERS = {
    "conll": (CONLL_CASES, conll_case, 6000), "conllu": (CONLLU_CASES, conllu_case, 3000),
    "jsonl": (JSONL_CASES, jsonl_case, 4500), "libsvm": (LIBSVM_CASES, libsvm_case, 3000),
    "tables": (TABLE_CASES, table_case, 3000), "compressed": (PACKED_CASES, packed_case, 2000),
}  # fmt: skip


def run(parser, examples):
    cases, check, _ = PARSERS[parser]
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    options = settings(
        deadline=None, derandomize=True, max_examples=examples, database=None, suppress_health_check=quiet
    )
    options(given(cases)(lambda case: check(case)))()


@pytest.mark.parametrize("parser", PARSERS)
def test_a_few_damaged_files(parser):
    run(parser, 150)


@pytest.mark.long
@pytest.mark.parametrize("parser", PARSERS)
def test_thousands_of_damaged_files(parser):
    """Over 20,000 cases in all."""
    assert sum(budget for *_, budget in PARSERS.values()) >= 20_000
    run(parser, PARSERS[parser][2])
