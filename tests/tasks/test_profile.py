"""The profile of a corpus against counting by hand, and as text and HTML."""

import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.tasks import formats
from espalier.tasks.formats import Reading
from espalier.tasks.pages.page import page, section
from espalier.tasks.sources import profile

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=100)


def profiled(tmp_path, text, size=1000, name="a.conll", **options):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", newline="")
    return profile.profile(formats.read_located([path], Reading(**options), True, size), ["a.conll"])


MARKS = {"unknown": "_", "set_separator": "|"}


def finding(found, name):
    item = found["findings"][name]
    return item["count"], [(example["place"], example["text"]) for example in item["examples"]]


def test_sizes_labels_and_lengths(tmp_path):
    found = profiled(tmp_path, "a B-X\nb I-X\n\nc O\n\nd O\ne O\nf O\n", size=1)
    assert (found["sequences"], found["tokens"], found["columns"]) == (3, 6, 1)
    assert found["lengths"] == {"min": 1, "median": 2, "p95": 3, "max": 3, "mean": 2.0}
    assert found["labels"] == {"O": 4, "B-X": 1, "I-X": 1} and list(found["labels"]) == ["O", "B-X", "I-X"]
    assert found["imbalance"]["majority"] == 4 / 6 and found["imbalance"]["ratio"] == 4
    assert found["imbalance"]["effective_labels"] == pytest.approx(2.3811, abs=1e-4)
    assert found["scheme"] == "iob2"
    assert finding(found, "rare_labels") == (2, [("line 1 of a.conll", "B-X"), ("line 2 of a.conll", "I-X")])
    assert finding(found, "single") == (1, [("line 4 of a.conll", "")])
    assert finding(found, "all_outside") == (2, [("line 4 of a.conll", ""), ("line 6 of a.conll", "")])


@pytest.mark.parametrize("size", [1, 1000])
def test_duplicates_and_conflicts(tmp_path, size):
    found = profiled(tmp_path, "a X\nb Y\n\nb X\na Y\n\na X\nb Y\n\na X\nb X\n\nab X\n\na X\n", size)
    assert finding(found, "duplicates") == (
        2, [("line 7 of a.conll", "as in line 1 of a.conll"), ("line 10 of a.conll", "as in line 1 of a.conll")],
    )  # fmt: skip
    assert finding(found, "conflicts") == (1, [("line 10 of a.conll", "as in line 1 of a.conll")])


def test_columns_and_borders_are_part_of_the_input(tmp_path):
    found = profiled(tmp_path, "a b X\n\nab c X\n\na bc X\n\nb a X\n\na b X\na b X\n")
    assert finding(found, "duplicates") == (0, [])


@pytest.mark.parametrize("size", [1, 1000])
def test_illegal_transitions(tmp_path, size):
    found = profiled(tmp_path, "a B-X\nb O\nc I-X\n\nd I-Y\n\ne B-X\nf B-X\ng I-X\n\nh B-X\ni B-X\n", size)
    assert found["scheme"] == "iob2"
    expected = [("line 3 of a.conll", "O → I-X → ⟨end⟩"), ("line 5 of a.conll", "⟨start⟩ → I-Y → ⟨end⟩")]
    assert finding(found, "illegal_transitions") == (2, expected)


def test_partial_labels(tmp_path):
    found = profiled(tmp_path, "a _\nb X|Y\nc X\nd _\n", **MARKS)
    assert (found["unknown_labels"], found["set_labels"], found["labels"]) == (2, 1, {"X": 1})


def test_what_looks_strange(tmp_path):
    text = "a\x07 X\n\n" + "b X\n" * 150 + "\nc\ufffd X\n\n" + "d X\ne X\n\n" * 20
    found = profiled(tmp_path, text, size=3)
    assert finding(found, "strange_characters") == (
        2, [("line 1 of a.conll", "'a\\x07'"), ("line 154 of a.conll", "'c\\ufffd'")],
    )  # fmt: skip
    assert finding(found, "long") == (1, [("line 3 of a.conll", "150 tokens")])


def test_labels_that_are_all_the_same_letter_o_are_no_finding(tmp_path):
    assert finding(profiled(tmp_path, "a O\n\nb O\n"), "all_outside") == (0, [])


TEXTS = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["O", "B-X", "I-X", "_"])), min_size=1, max_size=4),
    min_size=1, max_size=12,
)  # fmt: skip


@EXAMPLES
@given(TEXTS, st.sampled_from([1, 2, 5]))
def test_blocks_of_any_size_give_the_same_profile(tmp_path_factory, sequences, size):
    folder = tmp_path_factory.mktemp("profile", numbered=True)
    text = "".join("".join(f"{x} {y}\n" for x, y in rows) + "\n" for rows in sequences)
    found = profiled(folder, text, size, **MARKS)
    assert found == profiled(folder, text, **MARKS)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    inputs = ["".join(x for x, _ in rows) for rows in sequences]
    labellings = {(a, tuple(y for _, y in rows)) for a, rows in zip(inputs, sequences, strict=True)}
    assert found["findings"]["duplicates"]["count"] == len(inputs) - len(set(inputs))
    assert found["findings"]["conflicts"]["count"] == sum(n > 1 for n in Counter(a for a, _ in labellings).values())
    assert found["tokens"] == sum(found["labels"].values()) + found["unknown_labels"]


def test_blocks_without_places_and_without_labels():
    blocks = [pl.DataFrame({"sequence": pl.Series([0, 1, 1], dtype=pl.Int32), "x0": ["a", "b", "c"]})]
    found = profile.profile(blocks)
    assert found["labels"] == {} and found["scheme"] is None and found["imbalance"]["majority"] is None
    assert finding(found, "single") == (1, [("sequence 0", "")])
    assert profile.rows(found) and "Sequences" in profile.section_body(found)


def test_rows_are_texts(tmp_path):
    rows = profile.rows(profiled(tmp_path, "a B-X\n\nb O\nc _\nd A|B\n", **MARKS))
    assert all(
        set(row) == {"what", "value", "examples"} and all(isinstance(v, str) for v in row.values()) for row in rows
    )
    told = {row["what"]: row for row in rows}
    assert told["sequences"]["value"] == "2" and told["tagging scheme"]["value"] == "iob2"
    assert told["unknown labels"]["value"] == "1" and told["labels that are sets"]["value"] == "1"
    assert told["sequences of one token"]["examples"] == "line 1 of a.conll"


def test_the_section_escapes_what_the_data_say(tmp_path):
    found = profiled(tmp_path, "<script>\x07 <b>\n\n<script>\x07 X\n")
    text = page("Profile", section("data", "Data", profile.section_body(found)))
    assert "<script>\\x07" not in text and "&lt;script&gt;" in text and "<b>" not in text
    assert "Worth a look" in text and "inputs with different labels" in text


@pytest.mark.corpus
def test_the_profile_of_a_real_corpus(corpora):
    """Sequences, tokens and labels as its description states; duplicates by comparing texts."""
    path = Path(corpora / "conll2000/test.txt.gz")
    found = profile.profile(formats.read_located([path], Reading(), True, 10_000), [path])
    assert (found["sequences"], found["tokens"], len(found["labels"]), found["scheme"]) == (2012, 47_377, 19, "iob2")
    tokens = pl.concat(formats.read_blocks([path], Reading(), True))
    texts = tokens.group_by("sequence").agg(pl.concat_str("x0", "x1", separator=" ").str.join("\n").alias("t"))["t"]
    assert found["findings"]["duplicates"]["count"] == len(texts) - texts.n_unique()


def test_what_cannot_be_seen_is_shown_escaped():
    cells = [("a\ufeff", "X"), ("b\u200b", "X\u200b"), ("c\xa0d", "X"), ("e\u200df", "X")]
    tokens = pl.DataFrame({"sequence": pl.Series([0] * 4, dtype=pl.Int32), "x0": [x for x, _ in cells],
                           "label": [y for _, y in cells]})  # fmt: skip
    findings = profile.profile([tokens])["findings"]
    assert findings["strange_characters"]["count"] == 3  # a joiner is part of a spelling
    assert [e["text"] for e in findings["strange_characters"]["examples"]] == [r"'a\ufeff'", r"'b\u200b'", r"'c\xa0d'"]
    assert findings["strange_labels"] == {"count": 1, "examples": [{"place": "sequence 0", "text": r"'X\u200b'"}]}
