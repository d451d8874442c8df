"""Artefacts are written whole or not at all; what is damaged, foreign or missing is named with the remedy."""

import json
import os
import resource
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from espalier.engine.errors import EspalierError
from espalier.engine.weights.layout import observation_kinds
from espalier.tasks import store

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=80)
TEXTS = st.text(max_size=8)
INFO = {"source": "hand", "nouns": {"token": "t", "label": "l", "sequence": "s"}, "truth": None}


def tokens_of(width=1, label=True):
    columns = {"sequence": pl.Series([0, 0, 1], dtype=pl.Int32)} | {f"x{i}": ["a", "bb", "c"] for i in range(width)}
    return pl.DataFrame(columns | ({"label": ["X", "Y", "X"]} if label else {}))


@pytest.fixture
def tokens_file(tmp_path):
    store.write_tokens(tmp_path, "train", tokens_of(), INFO)
    return tmp_path / store.TOKENS.format("train")


# ---- written whole or not at all


def writers(path):
    return {
        "text": lambda text="new": store.write_text(path, text),
        "json": lambda: store.write_json(path, {"new": 1}),
        "jsonl": lambda: store.write_jsonl(path, [{"new": 1}]),
        "csv": lambda: store.write_csv(path, ["a"], [[1]]),
        "arrow": lambda: store.write_arrow(path, tokens_of()),
    }


@pytest.mark.parametrize("kind", sorted(writers(None)))
def test_a_crash_before_the_rename_leaves_the_old_file(tmp_path, monkeypatch, kind):
    path = tmp_path / "folder" / "file"
    store.write_text(path, "old")

    def crash(*_):
        raise OSError("power failure")

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(OSError, match="power failure"):
        writers(path)[kind]()
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("kind", sorted(writers(None)))
def test_the_new_file_takes_the_place_of_the_old_one(tmp_path, kind):
    path = tmp_path / "a" / "b" / "file"
    writers(path)[kind]()
    first = path.read_bytes()
    store.write_text(path, "old")
    writers(path)[kind]()
    assert path.read_bytes() == first != b"old"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_an_error_in_the_middle_of_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    store.write_text(path, "old")
    with pytest.raises(KeyboardInterrupt):
        with store.replacing(path) as temporary:
            temporary.write_text("half of the n")
            raise KeyboardInterrupt
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_what_cannot_be_written_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    store.write_text(path, "old")
    for bad in (lambda: store.write_json(path, {"x": float("nan")}), lambda: store.write_json(path, {"x": object()})):
        with pytest.raises((TypeError, ValueError)):
            bad()
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "file"
    store.write_text(path, "old")
    with store.replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old" and temporary.parent == path.parent
    assert path.read_text() == "new"


# ---- there and back


@EXAMPLES
@given(st.lists(st.dictionaries(TEXTS, TEXTS | st.integers() | st.none() | st.booleans(), max_size=3), max_size=4))
@example([{"a\u2028": "b\x85c"}, {"\x0b": "\x1c"}])
def test_json_lines_come_back_whatever_characters_they_hold(tmp_path_factory, rows):
    """Among them \\u2028 and \\x85, at which str.splitlines would cut a line in two."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    store.write_jsonl(path, rows)
    assert store.read_jsonl(path) == rows
    store.write_json(path, rows)
    assert store.read_json(path) == rows


def test_json_is_sorted_and_readable(tmp_path):
    store.write_json(tmp_path / "x.json", {"b": "é", "a": [1]})
    assert (tmp_path / "x.json").read_text(encoding="utf-8") == '{\n  "a": [\n    1\n  ],\n  "b": "é"\n}\n'


def test_csv_is_quoted_where_it_must_be(tmp_path):
    store.write_csv(tmp_path / "x.csv", ["a", "b"], [['with "quotes"', "with, comma"], [1, None]])
    assert (tmp_path / "x.csv").read_text() == 'a,b\n"with ""quotes""","with, comma"\n1,\n'


@EXAMPLES
@given(st.lists(st.tuples(st.text(min_size=1, max_size=3), st.text(min_size=1, max_size=3)), max_size=6))
def test_tokens_come_back_with_their_description(tmp_path_factory, rows):
    root = tmp_path_factory.mktemp("tokens")
    table = pl.DataFrame({"sequence": pl.Series(range(len(rows)), dtype=pl.Int32),
                          "x0": pl.Series([a for a, _ in rows], dtype=pl.String),
                          "label": pl.Series([b for _, b in rows], dtype=pl.String)})  # fmt: skip
    store.write_tokens(root, "dev", table, INFO)
    found, info = store.read_tokens(root, "dev")
    assert found.equals(table) and info == INFO


def test_any_arrow_tool_can_read_an_artefact(tokens_file):
    with pa.ipc.open_file(tokens_file) as reader:
        assert reader.num_record_batches == 1
        assert reader.read_all().column("x0").to_pylist() == ["a", "bb", "c"]
        assert json.loads(reader.schema.metadata[b"espalier"]) == INFO
    assert pl.read_ipc(tokens_file)["label"].to_list() == ["X", "Y", "X"]


def test_offsets_are_the_starts_of_runs():
    for sequence, expected in (([], [0]), ([0], [0, 1]), ([0, 0, 1, 2, 2], [0, 2, 3, 5]), ([5, 5, 3], [0, 2, 3])):
        assert store.sequence_offsets(np.array(sequence, np.int32)).tolist() == expected


def test_kinds_come_from_the_first_letter():
    assert observation_kinds(["U:a", "B", "*:B"]).tolist() == [1, 2, 3]


# ---- damaged, foreign, missing


REMEDY = "train.arrow: damaged or not what .*; run `espalier stage ingest` again or restore it with `dvc checkout`"


def refuses(root, expected=REMEDY):
    with pytest.raises(EspalierError, match=expected):
        store.read_tokens(root, "train")


def test_a_truncated_file_is_refused_wherever_it_ends(tokens_file, tmp_path):
    whole = tokens_file.read_bytes()
    for size in [0, 1, 7, *range(8, len(whole), 37), len(whole) - 1]:
        tokens_file.write_bytes(whole[:size])
        refuses(tmp_path)


def test_a_flipped_byte_gives_an_error_or_a_table_but_nothing_worse(tokens_file, tmp_path, capfd):
    """Arrow files carry no checksum, so a flip inside a text may pass; none may crash or print."""
    whole, refused = tokens_file.read_bytes(), 0
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        tokens_file.write_bytes(bytes(damaged))
        try:
            found, _ = store.read_tokens(tmp_path, "train")
            assert found.columns == ["sequence", "x0", "label"] and found.rows()
        except EspalierError as error:
            refused += 1
            assert "train.arrow: damaged" in str(error)
    assert refused > 50
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "empty"),
        (b"hello\n" * 50, "text"),
        (b"PAR1" + b"\0" * 90 + b"PAR1", "Parquet"),
        (b"ARROW1\0\0" * 20, "magic only"),
    ],
)
def test_a_foreign_file_is_refused(tokens_file, tmp_path, content, what):
    tokens_file.write_bytes(content)
    refuses(tmp_path)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (tokens_of().drop("label"), "expected a column label of type large_string, found sequence: int32, x0: large"),
        (tokens_of().drop("x0"), "expected a column x0 of type large_string"),
        (tokens_of().drop("sequence"), "expected a column sequence of type int32"),
        (tokens_of().cast({"sequence": pl.Int64}), "expected a column sequence of type int32, found sequence: int64"),
        (tokens_of().rename({"x0": "word"}), "expected a column x0 of type"),
        (tokens_of(2).rename({"x1": "x2"}), "expected a column x1 of type"),
        (tokens_of().with_columns(x0=pl.lit(3)), "expected a column x0 of type large_string"),
        (tokens_of().with_columns(label=pl.lit(None, pl.String)), "column label has empty fields"),
    ],
)  # fmt: skip
def test_wrong_columns_are_refused(tmp_path, table, expected):
    store.write_tokens(tmp_path, "train", table, INFO)
    refuses(tmp_path, f"{expected}.*run `espalier stage ingest` again")


def test_columns_of_one_name_are_refused(tmp_path):
    table = tokens_of().to_arrow(compat_level=pl.CompatLevel.oldest())
    twice = pa.table([*table.columns, table.column("x0")], names=[*table.column_names, "x0"])
    store.write_arrow(tmp_path / store.TOKENS.format("train"), twice, INFO)
    refuses(tmp_path)


def test_unlabelled_tokens_must_not_carry_labels(tmp_path):
    store.write_tokens(tmp_path, "unlabelled", tokens_of(), INFO)
    with pytest.raises(EspalierError, match="unlabelled.arrow: damaged .*expected a column x1"):
        store.read_tokens(tmp_path, "unlabelled")
    store.write_tokens(tmp_path, "unlabelled", tokens_of(label=False), INFO)
    assert store.read_tokens(tmp_path, "unlabelled")[0].columns == ["sequence", "x0"]


@pytest.mark.parametrize("info", [None, {}, [], 3])
def test_tokens_without_a_description_are_refused(tmp_path, info):
    store.write_arrow(tmp_path / store.TOKENS.format("train"), tokens_of(), info)
    refuses(tmp_path, "train.arrow: damaged .*no description of the data")


def test_a_folder_in_the_place_of_a_file(tmp_path):
    (tmp_path / store.TOKENS.format("train")).mkdir(parents=True)
    refuses(tmp_path)
    (tmp_path / store.MANIFEST).mkdir(parents=True)
    with pytest.raises(EspalierError, match="manifest.json: damaged .*espalier stage template"):
        store.read_manifest(tmp_path)
    (tmp_path / store.TRACE).mkdir(parents=True)
    with pytest.raises(EspalierError, match="trace.jsonl: damaged .*espalier stage train"):
        store.read_jsonl(tmp_path / store.TRACE)


@pytest.mark.parametrize(
    ("path", "stage"),
    [
        (store.TOKENS.format("dev"), "ingest"), (store.MANIFEST, "template"), (store.VOCABULARY, "template"),
        (store.WEIGHTS, "weigh"), (store.CLUSTERS, "weigh"), (store.CANDIDATE, "train"), (store.TRACE, "train"),
        (store.METRICS, "evaluate"), (store.PREDICTIONS, "evaluate"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("above", ["plain", "models/reports", "data/tokens", "supermodels"])
def test_a_missing_file_names_the_stage_that_makes_it(tmp_path, path, stage, above):
    """Whatever the folders above the project are called."""
    full = tmp_path / above / path
    for read in (store.read_json, store.read_jsonl, store.read_arrow):
        with pytest.raises(EspalierError) as caught:
            read(full)
        assert str(caught.value) == f"{full}: there is no such file; run `espalier stage {stage}` first"


def test_a_missing_file_named_from_the_working_folder(tmp_path, monkeypatch):

    monkeypatch.chdir(tmp_path)
    with pytest.raises(EspalierError, match="run `espalier stage evaluate` first"):
        store.read_json(Path(store.METRICS))
    with pytest.raises(EspalierError) as caught:
        store.read_json(Path("elsewhere.json"))
    assert str(caught.value) == "elsewhere.json: there is no such file"


@pytest.mark.parametrize("text", ["", "{", '{"a": 1', "\xff\xfe"])
def test_damaged_json_is_refused(tmp_path, text):
    path = tmp_path / store.MANIFEST
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("latin1"))
    with pytest.raises(EspalierError, match="manifest.json: damaged .*run `espalier stage template` again"):
        store.read_manifest(tmp_path)
    if text:
        with pytest.raises(EspalierError, match="manifest.json: damaged"):
            store.read_jsonl(path)


# ---- features


def edit(path, change):
    table, info = store.read_arrow(path)
    store.write_arrow(path, change(pl.from_arrow(table)), info or None)


def with_observation(value, column):
    """The features with this id in a column of the second position."""

    def change(table):
        rows = table["observations"].to_list()
        rows[1][column] = value
        return table.with_columns(observations=pl.Series(rows, dtype=table.schema["observations"]))

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (with_observation(12, 0), "an observation id outside 0..11"),
        (with_observation(-2, 1), "an observation id outside 0..11"),
        (with_observation(None, 0), "column observations has empty fields"),
        (lambda t: t.with_columns(label=pl.lit(6, pl.Int32)), "a label id outside 0..5"),
        (lambda t: t.with_columns(label=pl.lit(-2, pl.Int32)), "a label id outside 0..5"),
        (lambda t: t.drop("observations"), "expected a column observations of type fixed_size_list"),
        (lambda t: t.with_columns(observations=pl.col("observations").arr.to_list()),
         "expected a column observations of type fixed_size_list"),
        (lambda t: t.with_columns(pl.col("label").cast(pl.Int64)), "expected a column label of type int32"),
    ],
)  # fmt: skip
def test_features_that_a_kernel_must_not_see_are_refused(project, change, expected):
    """Compiled code does not check bounds."""
    edit(project / "data/features/train/00000.arrow", change)
    with pytest.raises(EspalierError, match=f"data/features/train.*: damaged .*{expected}.*espalier stage template"):
        store.read_dataset(project, "train", store.read_manifest(project))


def test_features_are_mapped_and_what_is_written_to_them_stays_private(project):
    path, manifest = project / "data/features/train/00000.arrow", store.read_manifest(project)
    before, data = path.read_bytes(), store.read_dataset(project, "train", manifest)
    assert data.observations.flags.writeable and not data.observations.flags.owndata
    data.observations[:] = 7
    data.labels[:] = 1
    assert path.read_bytes() == before
    assert store.read_dataset(project, "train", manifest).observations.tolist() != data.observations.tolist()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_weights_that_are_none_are_refused(project, value):
    edit(project / store.WEIGHTS, lambda t: t.with_columns(weight=pl.lit(value)))
    with pytest.raises(
        EspalierError, match="weights/train.arrow: damaged .*negative or not finite.*espalier stage weigh"
    ):
        store.read_weights(project)


@pytest.mark.parametrize(
    "key",
    ["templates", "columns", "labels", "label_sets", "observations", "splits", "nouns", "vocabulary_sha256",
     "data_version"],
)  # fmt: skip
def test_a_manifest_that_lacks_something_is_refused(project, key):
    manifest = store.read_manifest(project)
    del manifest[key]
    store.write_json(project / store.MANIFEST, manifest)
    with pytest.raises(EspalierError, match=f"manifest.json: damaged .*{key} is missing.*espalier stage template"):
        store.read_manifest(project)


@pytest.mark.parametrize("content", [[], 3, None, "text"])
def test_a_manifest_that_is_none_is_refused(project, content):
    store.write_json(project / store.MANIFEST, content)
    with pytest.raises(EspalierError, match="manifest.json: damaged"):
        store.read_manifest(project)


def test_a_changed_vocabulary_is_refused(project):
    edit(project / store.VOCABULARY, lambda t: t.reverse())
    with pytest.raises(EspalierError, match="vocabulary.arrow: damaged .*does not belong to the manifest"):
        store.read_vocabulary(project)


@pytest.fixture
def little_room():
    """Files of more than 4 KiB cannot be written, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_where_there_is_no_room_the_error_names_the_file_and_what_was_there_stays(tmp_path, tokens_file, little_room):
    many = pl.DataFrame({"sequence": pl.Series(range(10_000), dtype=pl.Int32), "x0": ["a"] * 10_000, "label": "X"})
    text = tmp_path / "history.jsonl"
    text.write_text("before", encoding="utf-8")
    kept = tokens_file.read_bytes()
    for path, write in (
        (text, lambda: store.write_text(text, "x" * 10_000)),
        (tokens_file, lambda: store.write_tokens(tmp_path, "train", many, INFO)),
    ):
        with pytest.raises(OSError) as refusal:
            write()
        assert (refusal.value.filename, refusal.value.strerror) == (str(path), "File too large")
    assert (text.read_text(encoding="utf-8"), tokens_file.read_bytes()) == ("before", kept)
    assert [path for path in tmp_path.rglob("*") if path.name.endswith(".tmp")] == []
