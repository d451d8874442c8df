"""Text in columns as arrays: what the oracle reads line by line, in any way of ending and separating."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import conll

from espalier.engine.errors import EspalierError
from espalier.engine.text import column_text

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=150)
PIECES = st.sampled_from(["a", "é", "😀", "b", " ", "\t", "\n", "\n\n", "\r\n", "\r", "|", "||", "\u00a0"])
TEXTS = st.lists(PIECES, max_size=14).map("".join)


def rows_of(found):
    """[(line, [field, …]), …] of each sequence, as the oracle tells them."""
    columns = [found.column(w).to_pylist() for w in range(found.begin.shape[1])]
    rows = list(zip(found.line.tolist(), map(list, zip(*columns, strict=True)), strict=True))
    cuts = found.offsets.tolist()
    return [rows[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]


@EXAMPLES
@given(TEXTS, st.sampled_from([None, "\t", "|", "||"]))
def test_fields_are_those_of_the_oracle(text, separator):
    data, expected = text.encode(), conll.parse(text.encode(), separator)
    odd = conll.ragged_line(expected)
    if odd is not None:
        with pytest.raises(EspalierError, match=f"line {odd} of some.txt has "):
            column_text.cut(data, "some.txt", separator)
        return
    found = column_text.cut(data, "some.txt", separator)
    assert rows_of(found) == expected
    assert all(array.flags.c_contiguous for array in (found.begin, found.end, found.offsets, found.line))


@pytest.mark.parametrize(
    ("text", "closed"),
    [("a\n\n", True), ("a\n", False), ("a", False), ("a\n\nb\n", False), ("a\n \t\r\n", True), ("a\n\nb\n\n", True)],
)
def test_whether_an_empty_line_came_last(text, closed):
    assert bool(column_text.cut(text.encode(), "x").closed) is closed


def test_lines_are_counted_from_where_the_text_begins_and_the_width_may_be_given():
    assert column_text.cut(b"\na b\n", "x", first_line=10).line.tolist() == [11]
    with pytest.raises(EspalierError, match="line 12 of x has 1 column, the lines before it 2: check for a miss"):
        column_text.cut(b"\n\na\n", "x", width=2, first_line=10)
    with pytest.raises(EspalierError, match="line 2 of x has 3 columns, the lines before it 2: check for a separator"):
        column_text.cut(b"a b\na b c\n", "x")


def test_what_is_not_utf8_is_refused_with_its_line():
    with pytest.raises(EspalierError, match="line 6 of a/b.txt: byte 0xff is not UTF-8; .* utf-8 b.txt"):
        column_text.check_text(b"a\n\xff", "a/b.txt", 5)


def test_nothing_at_all():
    found = column_text.cut(b"\n \n", "x")
    assert len(found.line) == 0 and found.offsets.tolist() == [0]
    assert column_text.with_labels(found, ["X"], np.empty(0, np.int32)) == b""


@EXAMPLES
@given(st.lists(st.lists(st.sampled_from(["a", "é b", "😀"]), min_size=1, max_size=3), min_size=1, max_size=4),
       st.sampled_from(["\t", "|", "||"]), st.booleans())  # fmt: skip
def test_lines_come_back_with_a_label_behind(sequences, separator, closed):
    text = "\n\n".join("\n".join(f"{word}{separator}x" for word in row) for row in sequences) + "\n" * (1 + closed)
    found = column_text.cut(text.encode(), "x", separator)
    labels = ["", "Ä", "B-NP"]
    codes = (np.arange(len(found.line)) % 3).astype(np.int32)
    at = iter(labels[code] for code in codes)
    rows = ["".join(f"{word}{separator}x{separator}{next(at)}\n" for word in row) for row in sequences]
    assert column_text.with_labels(found, labels, codes, separator).decode() == "\n".join(rows) + (
        "\n" if closed else ""
    )


def test_one_wide_line_among_many_short_ones_does_not_make_a_wide_table():
    """A million columns by a million lines would be 16 TB of places."""
    data = b"a " * 1_000_000 + b"\n" + b"\n" * 1_000_000
    assert column_text.cut(data, "some.conll").begin.shape == (1, 1_000_000)
    with pytest.raises(EspalierError, match="line 2 of some.conll has 1 column, the lines before it 1000000"):
        column_text.cut(b"a " * 1_000_000 + b"\n" + b"b\n" * 1_000_000, "some.conll")
