"""The model file: a round trip loses nothing; a damaged or hostile file does no more than raise an error."""

import dataclasses
import json
import os
import pickle
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from chain_problems import pack, random_theta, slot_features
from reference.problems import random_problem

from espalier.engine.decoding import decode
from espalier.engine.errors import EspalierError
from espalier.engine.model import Model
from espalier.engine.weights.layout import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ["U00:%x[0,0]", "B", "*01:%x[-1,0]"]
INFO = {
    "solver": "sbcd",
    "penalty": {"rho1": 0.5, "rho2": 0.0},
    "nouns": {"token": "letter"},
    "note": "élan ☂",
}


@pytest.fixture(scope="module")
def trained():
    """A packed problem, a sparse theta, and the names of its observations and labels."""
    packed = pack(random_problem(3, 4, 6, 2, [4, 3, 5]))
    names = [f"U00:{'é' * i}/{i}" for i in range(6)]
    return packed, random_theta(packed.layout.size, 4, density=0.3), names, ["O", "B-ä", "I-ä", "-"]


@pytest.fixture(scope="module")
def model(trained):
    packed, theta, names, labels = trained
    return Model.compact(packed.layout, theta, names, labels, TEMPLATES, INFO)


@pytest.fixture
def saved(model, tmp_path):
    path = tmp_path / "some.model"
    model.save(path)
    return path


def named_weights(labels, observations, layout, theta):
    """Every active weight by its names."""
    found = {}
    for feature, value in zip(slot_features(layout), theta.tolist(), strict=True):
        if value:
            words = (feature[0], observations[feature[1]], *(labels[y] for y in feature[2:]))
            assert words not in found
            found[words] = value
    return found


# ---- round trip


def test_compacting_keeps_every_active_weight(trained, model):
    packed, theta, names, labels = trained
    assert named_weights(model.labels, model.observations, model.layout, model.theta) == named_weights(
        labels, names, packed.layout, theta
    )
    assert np.all(model.theta != 0.0)


def test_what_is_loaded_is_what_was_saved(model, saved):
    found = Model.load(saved)
    assert (found.labels, found.templates, found.observations) == (
        model.labels,
        model.templates,
        model.observations,
    )
    assert found.info == model.info == INFO
    assert found.theta.tobytes() == model.theta.tobytes()
    for mine, other in zip(found.layout, model.layout, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_loaded_model_labels_as_before(trained, saved):
    packed, theta, names, _ = trained
    found = Model.load(saved)
    position = {name: i for i, name in enumerate(found.observations)}
    renumber = np.array([position.get(name, -1) for name in names] + [-1], np.int32)
    moved = packed.dataset._replace(observations=renumber[packed.dataset.observations])
    before, after = (
        decode.marginals(dataset, layout, weights)
        for dataset, layout, weights in (
            (packed.dataset, packed.layout, theta),
            (moved, found.layout, found.theta),
        )
    )
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-12)  # the same sums, perhaps in another order


def test_the_same_model_is_the_same_bytes(model, saved, tmp_path):
    model.save(tmp_path / "again.model")
    Model.load(saved).save(tmp_path / "copy.model")
    assert saved.read_bytes() == (tmp_path / "again.model").read_bytes() == (tmp_path / "copy.model").read_bytes()


def test_the_file_is_an_arrow_table_that_others_can_read(model, saved):
    table = pa.ipc.open_file(pa.OSFile(str(saved), "rb")).read_all()
    assert table.schema.names == ["family", "observation", "previous", "label", "weight"]
    assert set(table["family"].to_pylist()) <= set(FAMILIES)
    rows = table.to_pylist()
    assert all((row["previous"] is None) == (row["family"] != "bigram") for row in rows)
    assert len(rows) == len(model.theta)
    head = json.loads(table.schema.metadata[b"espalier"])
    assert head["labels"] == model.labels and head["templates"] == TEMPLATES and head["solver"] == "sbcd"


def test_a_model_without_any_weight(trained, tmp_path):
    packed, theta, names, labels = trained
    empty = Model.compact(packed.layout, np.zeros_like(theta), names, labels, TEMPLATES, {})
    empty.save(tmp_path / "empty.model")
    found = Model.load(tmp_path / "empty.model")
    assert (found.layout.size, len(found.theta), found.labels) == (0, 0, labels)


@pytest.mark.parametrize("family", [0, 1, 2])
def test_a_model_with_weights_of_one_family_only(trained, tmp_path, family):
    packed, _, names, labels = trained
    theta = np.where(packed.layout.slots()[0] == family, 1.5, 0.0)
    model = Model.compact(packed.layout, theta, names, labels, TEMPLATES, {})
    model.save(tmp_path / "one.model")
    found = Model.load(tmp_path / "one.model")
    assert named_weights(found.labels, found.observations, found.layout, found.theta) == named_weights(
        labels, names, packed.layout, theta
    )


def test_a_full_observation_is_not_mistaken_for_a_list(trained, tmp_path):
    """All weights of one observation and one of another: runs of both kinds in one family."""
    packed, _, names, labels = trained
    _, observation, previous, label = packed.layout.slots()
    theta = np.where((observation == 0) | ((label == 2) & (previous <= 1)), 0.25, 0.0)
    theta *= 1 + np.arange(len(theta))
    model = Model.compact(packed.layout, theta, names, labels, TEMPLATES, {})
    model.save(tmp_path / "mixed.model")
    found = Model.load(tmp_path / "mixed.model")
    assert named_weights(found.labels, found.observations, found.layout, found.theta) == named_weights(
        labels, names, packed.layout, theta
    )


def test_a_failed_save_leaves_the_old_model(model, saved, tmp_path, monkeypatch):
    before = saved.read_bytes()
    other = dataclasses.replace(model, theta=model.theta + 1.0)

    def fail(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        other.save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [saved.name]


def test_where_there_is_no_room_the_error_names_the_file(model, saved):
    kept, limits = saved.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, limits[1]))
    try:
        with pytest.raises(OSError) as refusal:
            model.save(saved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (refusal.value.filename, refusal.value.strerror) == (str(saved), "File too large")
    assert saved.read_bytes() == kept and [path.name for path in saved.parent.iterdir()] == [saved.name]


# ---- damaged


def refused(path, match=None):
    """Loading gives our error, and the error names the file."""
    with pytest.raises(EspalierError, match=match) as caught:
        Model.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_truncation_is_refused(saved):
    whole = saved.read_bytes()
    for length in [0, 1, 7, 8, *range(9, len(whole), 97), len(whole) - 9, len(whole) - 1]:
        saved.write_bytes(whole[:length])
        refused(saved)


def test_any_damaged_byte_is_refused_or_harmless(saved):
    """What loads in spite of a damaged byte (in padding, say) labels exactly as before."""
    whole, before = saved.read_bytes(), Model.load(saved)
    rng = np.random.default_rng(5)
    told = 0
    for at in rng.integers(0, len(whole), 400):
        damaged = bytearray(whole)
        damaged[at] ^= int(rng.integers(1, 256))
        saved.write_bytes(bytes(damaged))
        try:
            found = Model.load(saved)
        except EspalierError as error:
            told += 1
            assert str(saved) in str(error)
        else:
            assert found.checksum() == before.checksum()
            assert (found.labels, found.templates, found.observations, found.info) == (
                before.labels, before.templates, before.observations, before.info,
            )  # fmt: skip
            assert np.array_equal(found.theta, before.theta)
    assert told > 100


def test_a_middle_of_noise_is_refused(saved):
    whole = bytearray(saved.read_bytes())
    whole[len(whole) // 4 : len(whole) // 2] = os.urandom(len(whole) // 2 - len(whole) // 4)
    saved.write_bytes(bytes(whole))
    refused(saved)


# ---- foreign


def test_no_file_and_a_folder(tmp_path):
    refused(tmp_path / "absent.model", "there is no such model")
    refused(tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"", b"U00:a\t0.5\n", b"ARROW1\0\0", b"\x89PNG\r\n\x1a\n" + b"\0" * 64, b"{}", os.urandom(4096)],
)
def test_files_of_other_kinds(tmp_path, content):
    path = tmp_path / "other.model"
    path.write_bytes(content)
    refused(path, "not a readable model file")


def test_a_zip_and_an_arrow_stream(tmp_path, model):
    with zipfile.ZipFile(tmp_path / "zip.model", "w") as archive:
        archive.writestr("a", "b")
    refused(tmp_path / "zip.model")
    table = model.table()
    with (
        pa.OSFile(str(tmp_path / "stream.model"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    refused(tmp_path / "stream.model")


def write(path, table):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return path


def test_an_arrow_file_of_something_else(tmp_path):
    refused(write(tmp_path / "other.model", pa.table({"x": [1, 2]})), "not a model of Espalier")


# ---- hostile: valid Arrow, wrong contents


def head_of(table):
    return json.loads(table.schema.metadata[b"espalier"])


def with_head(table, text):
    return table.replace_schema_metadata({"espalier": text if isinstance(text, (str, bytes)) else json.dumps(text)})


HEADS = {
    "not JSON": lambda head: "{",
    "not text": lambda head: b"\xff\xfe\x00",
    "a list": lambda head: [1],
    "null": lambda head: None,
    "another format": lambda head: head | {"format": 99},
    "no format": lambda head: {k: v for k, v in head.items() if k != "format"},
    "labels missing": lambda head: {k: v for k, v in head.items() if k != "labels"},
    "labels a text": lambda head: head | {"labels": "abcd"},
    "labels numbers": lambda head: head | {"labels": [1, 2, 3, 4]},
    "labels twice": lambda head: head | {"labels": [*head["labels"], head["labels"][0]]},
    "labels empty": lambda head: head | {"labels": []},
    "a label fewer": lambda head: head | {"labels": head["labels"][:-1]},
    "templates a number": lambda head: head | {"templates": 5},
    "lists a text": lambda head: head | {"lists": "names"},
    "lists of numbers": lambda head: head | {"lists": {"names": [1]}},
    "labels with half a character": lambda head: head | {"labels": ["\ud800", *head["labels"][1:]]},
    "200,000 labels": lambda head: head | {"labels": [*head["labels"], *(f"L{i}" for i in range(200_000))]},
    "format true": lambda head: head | {"format": True},
    "a note changed": lambda head: head | {"note": "another"},
    "a stop reason more": lambda head: head | {"stop_reason": "converged"},
    "the penalty changed": lambda head: head | {"penalty": {"rho1": 0.25, "rho2": 0.0}},
    "the solver gone": lambda head: {k: v for k, v in head.items() if k != "solver"},
    "no checksum": lambda head: {k: v for k, v in head.items() if k != "checksum"},
    "an older format stated": lambda head: head | {"format": 2},
    "another list": lambda head: head | {"lists": {"names": ["a"]}},
    "deeper than the stack": lambda head: "[" * 200_000,
    "a number of 10,000 digits": lambda head: '{"format": ' + "1" * 10_000 + "}",
}


@pytest.mark.parametrize("case", HEADS)
def test_bad_metadata(model, tmp_path, case):
    table = model.table()
    refused(write(tmp_path / "bad.model", with_head(table, HEADS[case](head_of(table)))))


def replace(table, name, column):
    return table.set_column(table.schema.get_field_index(name), name, column)


def dictionary(indices, values):
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(values, pa.string()))


def first_bigram(table):
    return table["family"].to_pylist().index("bigram")


def changed(table, name, row, value):
    """The table with one cell changed, dictionary kept (and extended by the value)."""
    column = table[name].combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    if name == "weight":
        cells = column.to_pylist()
        cells[row] = value
        return replace(table, name, pa.array(cells, pa.float64()))
    values = column.dictionary.to_pylist()
    indices = column.indices.to_pylist()
    if value is not None and value not in values:
        values.append(value)
    indices[row] = None if value is None else values.index(value)
    return replace(table, name, dictionary(indices, values))


def duplicated_observation(table):
    column = table["observation"].combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    values = column.dictionary.to_pylist()
    values[1] = values[0]
    return replace(table, "observation", dictionary(column.indices.to_pylist(), values))


def null_observation(table):
    column = table["observation"].combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    values = column.dictionary.to_pylist()
    values[0] = None
    return replace(table, "observation", dictionary(column.indices.to_pylist(), values))


TABLES = {
    "weight nan": lambda t: changed(t, "weight", 2, float("nan")),
    "weight infinite": lambda t: changed(t, "weight", 2, float("inf")),
    "weight null": lambda t: changed(t, "weight", 2, None),
    "family unknown": lambda t: changed(t, "family", 0, "trigram"),
    "family null": lambda t: changed(t, "family", 0, None),
    "label unknown": lambda t: changed(t, "label", 0, "nowhere"),
    "label null": lambda t: changed(t, "label", 0, None),
    "observation null": lambda t: changed(t, "observation", 0, None),
    "observation null in the dictionary": null_observation,
    "observation twice in the dictionary": duplicated_observation,
    "previous at a unigram": lambda t: changed(t, "previous", 0, "O"),
    "previous null at a bigram": lambda t: changed(t, "previous", first_bigram(t), None),
    "rows reversed": lambda t: t.take(list(range(t.num_rows))[::-1]),
    "a row twice": lambda t: pa.concat_tables([t.slice(0, 1), t]),
    "a column missing": lambda t: t.drop_columns(["weight"]),
    "a column more": lambda t: t.append_column("x", pa.array([0] * t.num_rows)),
    "a column twice": lambda t: t.append_column("weight", t["weight"]),
    "weights as float32": lambda t: replace(t, "weight", t["weight"].cast(pa.float32())),
    "labels as plain text": lambda t: replace(t, "label", t["label"].cast(pa.string())),
}


@pytest.mark.parametrize("case", TABLES)
def test_bad_tables(model, tmp_path, case):
    table = model.table()
    bad = TABLES[case](table).replace_schema_metadata(table.schema.metadata)
    refused(write(tmp_path / "bad.model", bad))


def test_indices_outside_the_dictionary(model, tmp_path):
    """pyarrow writes such a file without a word; compiled code would read beyond its arrays."""
    table = model.table()
    values = table["observation"].chunk(0).dictionary
    indices = pa.array([999_999] * table.num_rows, pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, values, safe=False)
    refused(write(tmp_path / "bad.model", replace(table, "observation", column)))
    column = pa.DictionaryArray.from_arrays(pa.array([-7] * table.num_rows, pa.int32()), values, safe=False)
    refused(write(tmp_path / "bad.model", replace(table, "observation", column)))


def test_the_info_is_covered_whatever_its_keys_are(model, tmp_path):
    """JSON makes texts of keys and lists of tuples: what is loaded has the checksum of what was saved."""
    odd = dataclasses.replace(model, info={"sizes": {10: 1, 9: (2, 3)}, "none": None, "x": 1e300, "é": "\u2028"})
    odd.save(tmp_path / "odd.model")
    assert Model.load(tmp_path / "odd.model").info["sizes"] == {"10": 1, "9": [2, 3]}


def test_a_model_of_format_2_is_still_read(model, tmp_path):
    """Its checksum covers what decides a label, and is checked as it was."""
    table = model.table()
    head = head_of(table) | {"format": 2, "checksum": model.checksum(2)}
    path = write(tmp_path / "old.model", with_head(table, head))
    found = Model.load(path)
    assert found.info == model.info and found.theta.tobytes() == model.theta.tobytes()
    write(path, with_head(table, head | {"templates": TEMPLATES[:-1]}))
    refused(path, "does not have the checksum")


def test_what_says_too_much_is_said_briefly(model, tmp_path):
    table = model.table()
    for name, bad in {
        "label": changed(table, "label", 0, "x" * 5_000_000),
        "columns": table.rename_columns(["c" * 1_000_000, *table.column_names[1:]]),
        "format": with_head(table, head_of(table) | {"format": "9" * 5_000_000}),
    }.items():
        path = write(tmp_path / f"{name}.model", bad.replace_schema_metadata(bad.schema.metadata))
        with pytest.raises(EspalierError) as caught:
            Model.load(path)
        assert len(str(caught.value)) < 1000


# ---- loading takes little memory


def test_compressed_columns_are_refused_before_they_are_unpacked(model, tmp_path):
    """80 MB of zeros are a few kB of Zstandard; what would not fit into memory is refused in the same way."""
    table = model.table()
    weights = pa.array(np.zeros(10_000_000), pa.float64())
    big = pa.table({"weight": weights}).replace_schema_metadata(table.schema.metadata)
    for codec in ("zstd", "lz4"):
        path = tmp_path / f"{codec}.model"
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, big.schema, options=options) as writer:
            writer.write_table(big)
        before = pa.total_allocated_bytes()
        refused(path, "its columns are compressed, expected plain ones")
        assert pa.total_allocated_bytes() == before
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        refused(path, "its columns are compressed")  # a dictionary comes first


def test_more_parts_than_a_model_has_are_refused(model, tmp_path):
    table = model.table()
    path = tmp_path / "many.model"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        for _ in range(5):
            writer.write_table(table)
    refused(path, "5 batches, expected at most 1")


# ---- loading executes nothing


class Trap:
    def __reduce__(self):
        return (os.system, ("touch TRAPPED",))


def test_a_pickle_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "pickle.model"
    path.write_bytes(pickle.dumps(Trap()))
    refused(path)
    assert not (tmp_path / "TRAPPED").exists()


AUDIT = """
import sys
from espalier.engine.errors import EspalierError
from espalier.engine.model import Model
good, hostile = sys.argv[1:]
Model.load(good)  # whatever is imported late is imported now
try:
    Model.load(hostile)
except EspalierError:
    pass
events, on = [], True
WATCHED = ("exec", "compile", "import", "pickle.find_class", "os.system", "os.exec", "subprocess.Popen",
           "ctypes.dlopen")
def hook(name, args):
    if on and name in WATCHED:
        events.append((name, str(args)[:200]))
sys.addaudithook(hook)
for path in (good, hostile):
    try:
        Model.load(path)
    except EspalierError:
        assert path == hostile
on = False
assert not events, events
on = True
exec("1")
on = False
assert events, "the hook hears nothing"
"""


def test_no_code_runs_while_loading(model, saved, tmp_path):
    """Audited by the interpreter itself, also for a column that claims to be a pickled extension type."""
    table = model.table()
    claim = {
        "ARROW:extension:name": "arrow.py_extension_type",
        "ARROW:extension:metadata": pickle.dumps(Trap()),
    }
    field = table.schema.field("weight").with_metadata(claim)
    schema = table.schema.set(table.schema.get_field_index("weight"), field)
    hostile = write(tmp_path / "hostile.model", pa.table(table.columns, schema=schema))
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, str(saved), str(hostile)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "TRAPPED").exists()


def test_lists_travel_with_the_model_and_are_covered_by_its_checksum(model, tmp_path):
    lists = {"b.txt": ["a b\tpair", "é"], "a.txt": ["c"]}
    with_lists = dataclasses.replace(model, templates=['U00:%l[0,0,"b.txt"]', "B"], info=INFO | {"lists": lists})
    with_lists.save(tmp_path / "lists.model")
    found = Model.load(tmp_path / "lists.model")
    assert found.lists == lists and found.parsed[0].macros[0].source.names.tags(["a", "b"]) == ["B-pair", "I-pair"]
    head = head_of(with_lists.table())
    head["lists"]["b.txt"][1] = "e"
    path = write(tmp_path / "changed.model", with_head(with_lists.table(), head))
    with pytest.raises(EspalierError, match="damaged, its content does not have the checksum"):
        Model.load(path)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_never_written(model, saved, bad):
    before = saved.read_bytes()
    theta = model.theta.copy()
    theta[2] = bad
    with pytest.raises(EspalierError, match=f"weight 2 is {bad}, expected a finite number; nothing was written"):
        dataclasses.replace(model, theta=theta).save(saved)
    assert saved.read_bytes() == before
