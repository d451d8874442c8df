"""Templates evaluated over columns against a loop over tokens."""

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import templates as reference

from engine.errors import EspalierError
from tasks.templates import Macro, check_columns, expand, parse

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=150)
# Few values, so that they repeat; among them boundary values, macros and separators as data, and odd white space.
VALUES = st.sampled_from(
    [
        "a",
        "b",
        "/",
        "%",
        "%x[0,0]",
        "_B-1",
        "_B+1",
        "_B",
        " ",
        "\xa0",
        "\x00",
        "\u2028",
        "é",
        "e\u0301",
        "漢",
        "😀",
        "U:a",
    ]
)


def table_of(sequences, width=None):
    """Sequences of rows of values as a token table."""
    width = width or len(sequences[0][0])
    columns = {"sequence": pl.Series([n for n, s in enumerate(sequences) for _ in s], dtype=pl.Int32)}
    for i in range(width):
        columns[f"x{i}"] = pl.Series([row[i] for s in sequences for row in s], dtype=pl.String)
    return pl.DataFrame(columns)


@st.composite
def corpora(draw, width=None):
    width = width or draw(st.integers(1, 3))
    row = st.lists(VALUES, min_size=width, max_size=width)
    return draw(st.lists(st.lists(row, min_size=1, max_size=5), min_size=1, max_size=4))


@st.composite
def lines(draw, width):
    """A template line: offsets reach well beyond these short sequences."""
    literal = st.sampled_from(["", ":", "/", "1=", "é", "_B"])
    text = draw(st.sampled_from("UB*")) + draw(literal)
    for _ in range(draw(st.integers(0, 3))):
        row, column = draw(st.integers(-7, 7)), draw(st.integers(0, width - 1))
        text += f"%x[{row},{column}]" + draw(literal)
    return text


@st.composite
def cases(draw):
    sequences = draw(corpora())
    return sequences, draw(st.lists(lines(len(sequences[0][0])), min_size=1, max_size=4, unique=True))


@EXAMPLES
@given(cases())
@example(([[["a"]]], ["U"]))
@example(([[["a"]]], ["B", "U:%x[-9,0]%x[9,0]"]))
def test_expansion_is_that_of_a_loop_over_tokens(case):
    sequences, templates = case
    found = expand(table_of(sequences), parse(templates))
    assert found.columns == [f"t{i:02d}" for i in range(len(templates))]
    assert [list(row) for row in found.iter_rows()] == reference.expand(sequences, templates)


def test_boundaries_by_hand():
    sequences = [[["a"], ["b"]], [["c"]]]
    found = expand(table_of(sequences), parse(["U:%x[-2,0]/%x[-1,0]/%x[0,0]/%x[1,0]/%x[2,0]"]))
    assert found["t00"].to_list() == ["U:_B-2/_B-1/a/b/_B+1", "U:_B-1/a/b/_B+1/_B+2", "U:_B-2/_B-1/c/_B+1/_B+2"]


def test_nothing_of_a_neighbouring_sequence_is_seen():
    """The same sequence gives the same observations alone and among others."""
    sequence, other = [["a"], ["b"], ["a"]], [["z"]] * 3
    templates = parse(["U:%x[-4,0]/%x[-1,0]/%x[1,0]/%x[4,0]"])
    alone = expand(table_of([sequence]), templates)["t00"].to_list()
    assert expand(table_of([other, sequence, other]), templates)["t00"].to_list()[3:6] == alone
    assert not any("z" in text for text in alone)


def test_templates_with_one_text_share_their_observations():
    """As in CRF++: the name of a template is part of its observations, and only the name tells them apart."""
    found = expand(table_of([[["a"], ["b"]]]), parse(["U:%x[-1,0]", "U:%x[0,0]", "U1:%x[0,0]"]))
    assert found.rows() == [("U:_B-1", "U:a", "U1:a"), ("U:a", "U:b", "U1:b")]


@pytest.mark.parametrize("templates", [["U"], ["U", "B"], ["U", "B:%x[0,0]"], ["U:%x[-1,0]"]])
@pytest.mark.parametrize("tokens", [0, 1, 3])
def test_constant_templates_have_as_many_rows_as_there_are_tokens(templates, tokens):
    found = expand(table_of([[["a"]]] * tokens, width=1), parse(templates))
    assert found.shape == (tokens, len(templates))
    assert set(found.dtypes) == {pl.String}


def test_more_than_a_hundred_templates():
    found = expand(table_of([[["a"]]]), parse([f"U{i}:%x[0,0]" for i in range(103)]))
    assert found.columns[99:] == ["t99", "t100", "t101", "t102"]
    assert found.row(0)[102] == "U102:a"


# ---- parsing


def test_kinds_parts_and_spelling_of_macros():
    first, second, third = parse(["  U1:%x[ -1 , 0 ]/%x[+2,1] ", "", "# a comment", "*", "B"])
    assert (first.kind, second.kind, third.kind) == ("U", "*", "B")
    assert first.macros == [Macro(-1, 0), Macro(2, 1)]
    assert first.parts == ("U1:", Macro(-1, 0), "/", Macro(2, 1))
    assert second.macros == [] and second.line == "*"


@pytest.mark.parametrize(
    ("given_lines", "expected"),
    [
        ([], "holds no template; expected lines such as U:%x[0,0]"),
        (["", "# all comments"], "holds no template"),
        (["U", "X:%x[0,0]"], "template.lines, line 2: `X:%x[0,0]` begins with 'X', expected U, B or *"),
        (["%x[0,0]"], "line 1: `%x[0,0]` begins with '%', expected U, B or *"),
        (["U", "", "# c", "U:%x[0]"], "line 4: `U:%x[0]` has a % that is no macro; expected %x[row,col]"),
        (["U:%x[a,0]"], "has a % that is no macro"),
        (["U:%x[0,-1]"], "has a % that is no macro"),
        (["U:%x[0,0"], "has a % that is no macro"),
        (["U:%X[0,0]"], "has a % that is no macro"),
        (["U:%"], "has a % that is no macro"),
        (["U:%x[99999999999999999999,0]"], "has a % that is no macro"),
        (["U:%x[0,0]", "B", "U:%x[0,0]"], "`U:%x[0,0]` occurs twice; remove one"),
    ],
)
def test_bad_lines_are_refused_with_their_number(given_lines, expected):
    with pytest.raises(EspalierError) as caught:
        parse(given_lines)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("line", "width", "expected"),
    [
        ("U:%x[0,1]", 1, "template `U:%x[0,1]` points at column 1, the data has column 0"),
        ("U:%x[0,0]/%x[0,5]", 3, "points at column 5, the data has columns 0 to 2"),
    ],
)
def test_a_template_outside_the_columns_is_refused(line, width, expected):
    with pytest.raises(EspalierError) as caught:
        check_columns(parse(["U", line]), width)
    assert expected in str(caught.value)
    check_columns(parse([line]), 6)
