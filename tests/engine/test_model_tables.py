"""Model files with further named tables: a round trip loses nothing, crafted files are refused.

Two families are made up here: one with weights and support rows, one of rules without any weights.
"""

import json
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from chain_problems import pack, random_theta
from reference.problems import random_problem

from espalier.engine import families
from espalier.engine.errors import EspalierError
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.families.labeller import Labeller
from espalier.engine.model import Model
from espalier.engine.model_file import TEXT, WEIGHTS, open_model, table_schema, texts_column, texts_of

LABELS = ["O", "B-ä", "I-ä", "-"]


@dataclass
class Supported(CrfLabeller):
    """Weights, and rows with a number for each label."""

    family: ClassVar[str] = "made-up"
    body: ClassVar[dict] = {
        "weights": WEIGHTS,
        "support": table_schema(("row", pa.int32()), ("label", TEXT), ("weight", pa.float64())),
    }
    support: pa.Table = None

    def tables(self):
        return super().tables() | {"support": self.support}

    @classmethod
    def of_tables(cls, labels, templates, info, tables, path):
        return replace(super().of_tables(labels, templates, info, tables, path), support=tables["support"])


@dataclass
class Grammar(Labeller):
    """Rules alone: a left side, two right ones or a word, the log of a probability."""

    family: ClassVar[str] = "rules"
    body: ClassVar[dict] = {
        "rules": pa.schema([
            pa.field("left", TEXT, nullable=False), pa.field("first", TEXT), pa.field("second", TEXT),
            pa.field("word", TEXT), pa.field("log_p", pa.float64(), nullable=False),
        ])
    }  # fmt: skip
    labels: list
    templates: list
    observations: list
    rules: pa.Table
    info: dict

    def tables(self):
        return {"rules": self.rules}

    @classmethod
    def of_tables(cls, labels, templates, info, tables, path):
        return cls(labels, templates, texts_of(tables["rules"], "word")[1], tables["rules"], info)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(families.FAMILIES, "made-up", Registered(Supported))
    monkeypatch.setitem(families.FAMILIES, "rules", Registered(Grammar))


@dataclass
class Registered:
    labeller: type


@pytest.fixture(scope="module")
def supported():
    packed = pack(random_problem(3, 4, 6, 2, [4, 3, 5]))
    theta = random_theta(packed.layout.size, 4, density=0.3)
    names = [f"U00:{'é' * i}/{i}" for i in range(6)]
    model = Supported.compact(packed.layout, theta, names, LABELS, ["U00:%x[0,0]", "B"], {"note": "☂"})
    columns = [pa.array([0, 0, 1], pa.int32()), texts_column([1, 0, 3], LABELS), pa.array([0.5, -0.5, 1e-300])]
    return replace(model, support=pa.Table.from_arrays(columns, schema=Supported.body["support"]))


@pytest.fixture(scope="module")
def grammar():
    sides, words = ["S", "A", "B"], ["a", "b"]
    columns = [
        texts_column([0, 1, 2], sides), texts_column([1, -1, -1], sides), texts_column([2, -1, -1], sides),
        texts_column([-1, 0, 1], words), pa.array([0.0, -0.25, -0.5]),
    ]  # fmt: skip
    rules = pa.Table.from_arrays(columns, schema=Grammar.body["rules"])
    return Grammar(["A", "B"], ["U:%x[0,0]"], words, rules, {"iterations": 3})


def test_support_rows_come_back_with_the_weights(supported, tmp_path):
    path = tmp_path / "some.model"
    supported.save(path)
    found = families.load(path)
    assert type(found) is Supported and found.support.equals(supported.support)
    assert found.observations == supported.observations and found.info == supported.info
    assert found.theta.tobytes() == supported.theta.tobytes()
    found.save(tmp_path / "again.model")
    assert path.read_bytes() == (tmp_path / "again.model").read_bytes()


def test_a_model_without_weights_is_kept_as_well(grammar, tmp_path):
    path = tmp_path / "some.model"
    grammar.save(path)
    found = families.load(path)
    assert type(found) is Grammar and found.rules.equals(grammar.rules) and found.observations == ["a", "b"]
    assert not hasattr(found, "theta") and not isinstance(found, Model)
    found.save(tmp_path / "again.model")
    assert path.read_bytes() == (tmp_path / "again.model").read_bytes()


def test_any_arrow_tool_reads_the_tables(supported, tmp_path):
    supported.save(tmp_path / "some.model")
    row = pa.ipc.open_file(tmp_path / "some.model").read_all().to_pylist()[0]
    assert row["support"][2] == {"row": 1, "label": "-", "weight": 1e-300}
    assert len(row["weights"]) == len(supported.theta)


def test_weights_alone_keep_their_format(supported, tmp_path):
    plain = CrfLabeller(supported.labels, supported.templates, supported.observations, supported.layout,
                        supported.theta, supported.info)  # fmt: skip
    plain.save(tmp_path / "plain.model")
    supported.save(tmp_path / "more.model")
    assert open_model(tmp_path / "plain.model").head["format"] == 4
    assert open_model(tmp_path / "more.model").head["format"] == 5
    table = pa.ipc.open_file(tmp_path / "plain.model").read_all()
    assert table.schema.names == WEIGHTS.names


# ---- crafted files


def stored(supported, path):
    supported.save(path)
    return pa.ipc.open_file(path).read_all()


def write(path, table, schema=None):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return path


def refused(path, words=""):
    with pytest.raises(EspalierError) as caught:
        families.load(path)
    assert str(path) in str(caught.value) and words in str(caught.value), str(caught.value)
    assert "Traceback" not in str(caught.value)


def with_cell(table, name, records, type=None):
    """The file with another table in one column."""
    records = records.combine_chunks() if isinstance(records, pa.ChunkedArray) else records
    cell = pa.LargeListArray.from_arrays(pa.array([0, len(records)], pa.int64()), records)
    return table.set_column(table.schema.get_field_index(name), name, cell)


def records_of(table, name):
    return table.column(name).combine_chunks().flatten()


def changed(table, column, values):
    """The file with one column of its support rows replaced."""
    fields = list(Supported.body["support"])
    arrays = dict(zip(Supported.body["support"].names, records_of(table, "support").flatten(), strict=True))
    arrays[column] = values
    fields = [pa.field(f.name, arrays[f.name].type, nullable=False) for f in fields]
    return with_cell(table, "support", pa.StructArray.from_arrays(list(arrays.values()), fields=fields))


def with_head(table, **news):
    head = json.loads(table.schema.metadata[b"espalier"]) | news
    return table.replace_schema_metadata({"espalier": json.dumps(head)})


CRAFTED = {
    "a number changed": (lambda t: changed(t, "weight", pa.array([0.5, -0.5, 2.0])), "checksum"),
    "a label changed": (lambda t: changed(t, "label", texts_column([1, 2, 3], LABELS)), "checksum"),
    "a row changed": (lambda t: changed(t, "row", pa.array([0, 1, 1], pa.int32())), "checksum"),
    "the texts in another order": (
        lambda t: changed(t, "label", texts_column([2, 3, 0], ["-", *LABELS[:3]])), "checksum"),
    "not finite": (lambda t: changed(t, "weight", pa.array([0.5, np.nan, 2.0])), "weight 1 of its table support"),
    "infinite": (lambda t: changed(t, "weight", pa.array([np.inf, 1.0, 2.0])), "expected a finite number"),
    "an empty field": (lambda t: changed(t, "row", pa.array([0, None, 1], pa.int32())), "has an empty row"),
    "an empty label": (lambda t: changed(t, "label", texts_column([1, -1, 3], LABELS)), "has an empty label"),
    "a text twice": (lambda t: changed(t, "label", texts_column([1, 0, 3], ["O", "O", "I", "-"])), "there twice"),
    "another type": (lambda t: changed(t, "weight", pa.array([0.5, 0.5, 2.0], pa.float32())), "expected weights"),
    "no support": (lambda t: t.drop_columns(["support"]), "expected weights"),
    "a table more": (lambda t: t.append_column("rules", t["support"]), "expected weights"),
    "tables in another order": (lambda t: t.select(["support", "weights"]), "expected weights"),
    "no row": (lambda t: t.slice(0, 0), "0 rows"),
    "two rows": (lambda t: pa.concat_tables([t, t]).combine_chunks(), "2 rows"),
    "no table": (lambda t: t.set_column(1, "support", pa.nulls(1, t.schema.field(1).type)), "is empty"),
    "another family": (lambda t: with_head(t, family="crf"), "format"),
    "an unknown family": (lambda t: with_head(t, family="nobody"), "nobody"),
    "the older format": (lambda t: with_head(t, format=4), "format"),
    "a note changed": (lambda t: with_head(t, note="other"), "checksum"),
    "no checksum": (lambda t: with_head(t, checksum=None), "checksum"),
}  # fmt: skip


@pytest.mark.parametrize("case", CRAFTED)
def test_crafted_tables_are_refused(supported, tmp_path, case):
    craft, words = CRAFTED[case]
    table = stored(supported, tmp_path / "good.model")
    metadata = table.schema.metadata
    bad = craft(table)
    bad = bad if bad.schema.metadata else bad.replace_schema_metadata(metadata)
    refused(write(tmp_path / "bad.model", bad), words)


def test_indices_outside_a_nested_dictionary(supported, tmp_path):
    table = stored(supported, tmp_path / "good.model")
    for index in (99, -7):
        column = pa.DictionaryArray.from_arrays(pa.array([index] * 3, pa.int32()), pa.array(LABELS), safe=False)
        refused(write(tmp_path / "bad.model", changed(table, "label", column)), "not a readable model file")


def test_weights_in_tables_are_checked_as_they_are_alone(supported, tmp_path):
    table = stored(supported, tmp_path / "good.model")
    records = records_of(table, "weights")
    refused(write(tmp_path / "bad.model", with_cell(table, "weights", records.take(pa.array([1, 0, 2])))), "order")


def test_a_model_of_weights_in_the_format_of_tables_is_refused(supported, tmp_path):
    plain = CrfLabeller(supported.labels, supported.templates, supported.observations, supported.layout,
                        supported.theta, supported.info)  # fmt: skip
    plain.save(tmp_path / "plain.model")
    table = pa.ipc.open_file(tmp_path / "plain.model").read_all()
    refused(write(tmp_path / "bad.model", with_head(table, format=5)), "in the format 5, expected 4")
    refused(write(tmp_path / "bad.model", with_head(table, family="made-up")), "in the format 4, expected 5")


def test_compressed_tables_are_refused_before_they_are_unpacked(supported, tmp_path):
    table = stored(supported, tmp_path / "good.model")
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    path = tmp_path / "bad.model"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    refused(path, "its columns are compressed")


def test_any_damaged_byte_is_refused_or_harmless(supported, tmp_path):
    supported.save(tmp_path / "good.model")
    good, path = (tmp_path / "good.model").read_bytes(), tmp_path / "bad.model"
    rng = np.random.default_rng(5)
    for at in rng.choice(len(good), 150, replace=False).tolist():
        bad = bytearray(good)
        bad[at] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(bad))
        try:
            found = families.load(path)
        except EspalierError:
            continue
        assert found.support.equals(supported.support) and found.theta.tobytes() == supported.theta.tobytes()


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_numbers_that_are_not_finite_are_never_written(supported, tmp_path, bad):
    columns = [pa.array([0], pa.int32()), texts_column([1], LABELS), pa.array([bad])]
    broken = replace(supported, support=pa.Table.from_arrays(columns, schema=Supported.body["support"]))
    with pytest.raises(EspalierError, match="weight 0 of its table support is .*; nothing was written"):
        broken.save(tmp_path / "bad.model")
    assert not list(tmp_path.iterdir())
