"""The language of templates: what a line means, what is refused, what the training data decide."""

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import templates as reference
from template_cases import LISTS, cases, lines

from espalier.engine.errors import EspalierError
from espalier.engine.text.macros import MOST_GRAMS, Source, grams, number_of, plain_lower, quantiles, shape
from espalier.engine.text.templates import (
    FIRST,
    HERE,
    LAST,
    Macro,
    check_columns,
    column_names,
    expand_rows,
    learned_columns,
    list_files,
    parse,
    resolve,
    sources_of,
)  # fmt: skip

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=250)
X0, X1 = Source(0), Source(1)


def refusal(*given_lines, **options):
    with pytest.raises(EspalierError) as caught:
        parse(list(given_lines), **options)
    return str(caught.value)


# ---- what a line means


def test_kinds_parts_and_spelling_of_macros():
    first, second, third = parse(["  U1:%x[ -1 , 0 ]/%x[+2,1] ", "", "# a comment", "*", "B"])
    assert (first.kind, second.kind, third.kind) == ("U", "*", "B")
    assert first.parts == ("U1:", Macro(-1, X0), "/", Macro(2, X1))
    assert second.macros == [] and second.line == "*"


def test_kinds_in_any_case_and_lines_as_they_were_written():
    found = parse(["u:%x[0,0]", "b", "U:%x[0,0]"])
    assert [t.kind for t in found] == ["U", "B", "U"]
    assert [t.line for t in found] == ["u:%x[0,0]", "b", "U:%x[0,0]"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%x[@1,0]", Macro(0, X0, FIRST)),
        ("%x[@-1,0]", Macro(-1, X0, LAST)),
        ("%x[@0,0]", Macro(-1, X0, FIRST)),
        ("%x[ @ +3 , +1 ]", Macro(2, X1, FIRST)),
        ("%X[0,0]", Macro(0, Source(0, "x", (), True), HERE)),
        ('%t[1,0,"^\\u.*"]', Macro(1, Source(0, "t", ("^\\u.*",)))),
        ('%M[0,1, "a\\"]#" ]', Macro(0, Source(1, "m", ('a\\"]#',), True))),
        ("%p[0,0,3]", Macro(0, Source(0, "p", (3,)))),
        ("%w[0,0]", Macro(0, Source(0, "w"))),
        ("%g[0,0,3, 12]", Macro(0, Source(0, "g", (3, 12)))),
        ('%l[0,0,"data/a b.txt"]', Macro(0, Source(0, "l", ("data/a b.txt",)))),
        ('%q[0,1,"0.5 7"]', Macro(0, Source(1, "q", ("0.5 7",)))),
    ],
)
def test_macros(text, expected):
    (found,) = parse([f"U:{text}"])
    assert found.macros == [expected]
    assert found.macros[0].text == text and found.line == f"U:{text}"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("U:%x[0,0] # 50% of all", "U:%x[0,0]"),
        ("U:%x[0,0]\t#", "U:%x[0,0]"),
        ("U#1:%x[0,0]", "U#1:%x[0,0]"),
        ('U:%t[0,0," #"] #', 'U:%t[0,0," #"]'),
        ("U # %", "U"),
        ("U:a b", "U:a b"),
        ("U:%x[0,0]\xa0", "U:%x[0,0]\xa0"),
    ],
)
def test_comments_and_blanks_at_the_end(line, kept):
    (found,) = parse([line])
    assert found.line == kept
    assert "".join(part if isinstance(part, str) else part.text for part in found.parts) == kept


def test_columns_of_templates_with_several_values():
    found = parse(["U", "U:%g[0,0,3,3]/%x[1,0]", "B"])
    assert column_names(found) == ["t00", "t01", "t01.1", "t01.2", "t02"]
    assert parse(["U:%g[0,0,2]"])[0].width == MOST_GRAMS == 32


def test_files_of_lists():
    found = parse(['U:%l[0,0,"a.txt"]%x[0,0]', 'U:%L[1,0,"b.txt"]', 'U1:%l[2,1,"a.txt"]'])
    assert list_files(found) == ["a.txt", "b.txt"]
    with pytest.raises(EspalierError, match="the list `a.txt` has not been read: give its lines to `parse`"):
        expand_rows(found, [("a", "b")])


# ---- what is refused


@pytest.mark.parametrize(
    ("given_lines", "expected"),
    [
        ([], "holds no template; expected lines such as U:%x[0,0]"),
        (["", "# all comments"], "holds no template"),
        (["U", "X:%x[0,0]"], "template.lines, line 2: `X:%x[0,0]` begins with 'X', expected U, B, * or T"),
        (["%x[0,0]"], "line 1: `%x[0,0]` begins with '%', expected U, B, * or T"),
        (["U", "", "# c", "U:%x[0]"], "line 4: `U:%x[0]` has a % that is no macro; expected %x[row,col]"),
        (["U:%x[a,0]"], "has a % that is no macro"),
        (["U:%x[0,-1]"], "has a % that is no macro"),
        (["U:%x[0,0"], "has a % that is no macro"),
        (["U:%x[0,0,1]"], "has a % that is no macro; expected %x[row,col]"),
        (["U:%"], "expected %x, %t, %m, %p, %s, %w, %g, %l, %q, %v, %a such as %x[row,col]"),
        (["U:%y[0,0]"], "expected %x, %t"),
        (["U:%x[99999999999999999999,0]"], "has a % that is no macro"),
        (["U:%x[٣,0]"], "has a % that is no macro"),
        (["U:%x[010,0]"], "has the row 010, which Wapiti reads as octal; write it without the leading 0"),
        (["U:%x[0,0]", "B", "U:%x[0,0] # again"], "line 3: `U:%x[0,0]` occurs twice; remove one"),
        (["U:a\nB"], "has a line break in it; write each template as an entry of its own"),
        (["U:%t[0,0]"], 'expected %t[row,col,"regexp"]'),
        (["U:%t[0,0,3]"], 'expected %t[row,col,"regexp"]'),
        (['U:%m[0,0,"a]'], 'expected %m[row,col,"regexp"]'),
        (['U:%t[0,0,"a**"]'], "has `a**` in %t: a * with nothing to repeat before it; write \\* for itself"),
        (['U:%t[0,0,"' + ".*" * 251 + '"]'], "in %t: the expression has 502 bytes, expected at most 500"),
        (["U:%x[" + " " * 50_000 + "x"], "has 50,006 characters, expected at most 10,000"),
        (["U:%p[0,0]"], "expected %p[row,col,n]"),
        (["U:%s[0,0,0]"], "says 0 in %s, expected 1 to 99"),
        (["U:%g[0,0,3,33]"], "says 33 in %g, expected 1 to 32"),
        (["U:%g[0,0,3]%g[1,0,3]"], "has two macros with several values (%g, %a); leave one of them out"),
        (["U:%q[0,0,1]"], "says 1 in %q, expected 2 to 100"),
        (['U:%q[0,0,"1 x"]'], "has `1 x` in %q: expected numbers between blanks, each larger than the one before"),
        (['U:%q[0,0,"2 1"]'], "each larger than the one before"),
        (['U:%l[0,0,""]'], 'names no file; expected %l[row,col,"file"]'),
    ],
)
def test_bad_lines_are_refused_with_their_number(given_lines, expected):
    text = refusal(*given_lines)
    assert expected in text and text.startswith("template.lines")


def test_the_place_is_named():
    assert refusal("U", "Q", where="pattern.txt") == "pattern.txt, line 2: `Q` begins with 'Q', expected U, B, * or T"


@pytest.mark.parametrize(
    ("line", "width", "expected"),
    [
        ("U:%x[0,1]", 1, "template `U:%x[0,1]` points at column 1, the data has column 0"),
        ("U:%x[0,0]/%s[0,5,2]", 3, "points at column 5, the data has columns 0 to 2"),
    ],
)
def test_a_template_outside_the_columns_is_refused(line, width, expected):
    with pytest.raises(EspalierError) as caught:
        check_columns(parse(["U", line]), width)
    assert expected in str(caught.value)
    check_columns(parse([line]), 6)


TEXT = st.text(st.sampled_from('UuBb*%xXtTmMpswglq[]@+-0123456789,"\\# \t:/é\n*?^$.'), max_size=25)


@settings(EXAMPLES, max_examples=600)
@given(st.lists(st.one_of(TEXT, TEXT.map(lambda text: "U:" + text), st.text(max_size=12)), max_size=3))
@example(["U:%x[0,0]%"])
@example(['U:%q[0,0,"1e999"]'])
@example(['U:%q[0,0,"nan"]'])
def test_any_text_is_read_or_refused(texts):
    """What is read can be read again; what is refused is refused by its place."""
    try:
        found = parse(texts)
    except EspalierError as error:
        assert str(error).startswith("template.lines")
        return
    assert parse([template.line for template in found]) == found


@EXAMPLES
@given(lines(2), st.integers(0, 30), st.sampled_from('%[],"@\\#x0'))
def test_a_line_with_one_wrong_character_is_read_or_refused(line, place, wrong):
    place = min(place, len(line) - 1)
    try:
        parse([line[:place] + wrong + line[place + 1 :]])
    except EspalierError as error:
        assert str(error).startswith("template.lines, line 1: ") or "holds no template" in str(error)


# ---- what a line yields


@EXAMPLES
@given(cases())
@example(([[["a"]]], ["B", "U:%x[-999999999,0]%x[@999999999,0]%x[@-999999999,0]"]))
def test_expansion_is_that_of_a_look_at_each_token(case):
    sequences, given_lines = case
    templates = parse(given_lines, lists=LISTS)
    found = [row for rows in sequences for row in expand_rows(templates, rows)]
    assert found == reference.expand(sequences, given_lines, LISTS)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("U:%x[@1,0]/%x[@-1,0]", ["U:New/!", "U:New/!", "U:New/!"]),
        ("U:%x[@4,0]/%x[@-5,0]", ["U:_x+1/_x-2"] * 3),
        ("U:%X[0,0]", ["U:new", "U:yÖrk", "U:!"]),
        ('U:%t[-1,0,"\\u"]', ["U:false", "U:true", "U:true"]),
        ('U:%m[-1,0,"[-+].?"]', ["U:", "U:", "U:"]),
        ('U:%m[-1,0,"-."]', ["U:-1", "U:", "U:"]),  # of _x-1, as in Wapiti
        ("U:%p[-1,0,2]", ["U:_x-1", "U:Ne", "U:YÖ"]),
        ("U:%S[0,0,3]", ["U:new", "U:örk", "U:!"]),
        ("U:%w[0,0]", ["U:Xxx", "U:XXxx", "U:!"]),
        ("U:%w[0,0,1]", ["U:Xx", "U:Xx", "U:!"]),
        ('U:%l[0,0,"n"]', ["U:B-city", "U:O", "U:O"]),
        ('U:%L[0,0,"n"]', ["U:B-city", "U:I-city", "U:O"]),
        ('U:%q[0,1,"0 10"]', ["U:1", "U:2", "U:nan"]),
    ],
)
def test_each_macro_by_hand(line, expected):
    templates = parse([line], lists={"n": ["New yörk\tcity", "New\tcity"]})
    found = expand_rows(templates, [("New", "0"), ("YÖrk", "1e1"), ("!", "-")])
    assert [row[0] for row in found] == expected


def test_ngrams_by_hand():
    (row,) = expand_rows(parse(["U:%g[0,0,3]|%x[0,0]", "B"]), [["oboo"]])
    assert row == ["U:<ob|oboo", "U:oo>|oboo", "U:obo|oboo", "U:boo|oboo", "B"]
    assert grams("aaaa", 2, 32) == ("<a", "a>", "aa") and grams("", 3, 32) == ("<>",) and grams("a", 9, 32) == ("<a>",)
    assert len(grams("".join(map(chr, range(200, 300))), 2, 32)) == 32


def test_shapes_by_hand():
    assert shape("Xy-12ß漢.", None) == "Xx-ddxx." and shape("AAAb11..", 1) == "Xxd." and shape("AAAb", 2) == "XXx"


def test_lower_case_of_ascii_alone():
    assert plain_lower("AbÉ漢Z") == "abÉ漢z" and plain_lower("ABC") == "abc"


@pytest.mark.parametrize(("text", "expected"), [("1", 1.0), ("-.5", -0.5), ("1.", 1.0), ("+2e-1", 0.2), ("", None),
                                                ("1_0", None), ("nan", None), ("inf", None), ("1e999", None),
                                                (" 1", None), ("1,5", None), ("٣", None), ("0x1", None)])  # fmt: skip
def test_numbers(text, expected):
    assert number_of(text) == expected


# ---- what the training data decide


def test_quantiles_by_hand():
    values, counts = ["3", "1", "x", "2", "10"], np.array([1, 2, 50, 1, 4])  # 1 1 2 3 10 10 10 10
    assert quantiles(values, counts, 2) == [10.0]
    assert quantiles(values, counts, 4) == [2.0, 10.0]
    assert quantiles(["5"], np.array([9]), 3) == [] and quantiles(["a"], np.array([1]), 3) is None


@EXAMPLES
@given(st.lists(st.sampled_from(["-1", "0", "-0", "0.5", "2", "7", "1e3", "a", ""]), min_size=1, max_size=30),
       st.integers(2, 6))  # fmt: skip
def test_bins_are_as_even_as_equal_numbers_allow(values, bins):
    numbers = sorted(float(v) for v in values if v not in ("a", ""))
    distinct = sorted(set(values))
    found = quantiles(distinct, np.array([values.count(v) for v in distinct]), bins)
    if not numbers:
        assert found is None
        return
    expected = {numbers[len(numbers) * k // bins] for k in range(1, bins)} - {numbers[0]}
    assert found == sorted(expected)


def test_resolved_templates_say_what_was_learned():
    templates = parse(["U:%q[ -1 , 1 , 2 ]/%x[0,0]", "U%g[@-1,0,2]", "u1:%G[0,0,2]", "U:%g[0,0,2,4]", "B"])
    assert learned_columns(templates) == [0, 1]
    tallies = {0: (["ab", "abc", "AaAaA"], np.array([1, 1, 1])), 1: (["1", "2", "-"], np.array([2, 2, 1]))}
    found = resolve(templates, tallies)
    lines_now = ['U:%q[ -1 ,1,"2.0"]/%x[0,0]', "U%g[@-1,0,2,4]", "u1:%G[0,0,2,4]", "U:%g[0,0,2,4]", "B"]
    assert [template.line for template in found] == lines_now
    assert parse(lines_now) == found and learned_columns(found) == []
    assert expand_rows(found[:1], [("a", "1.5"), ("b", "2")]) == [["U:_x-1/a"], ["U:0/b"]]


def test_a_template_without_edges_is_not_evaluated():
    with pytest.raises(EspalierError, match="%q of column 1 has no edges yet: .* call `resolve` first"):
        expand_rows(parse(["U:%q[0,1,4]"]), [("a", "1")])


def test_a_column_without_a_number_has_no_bins():
    with pytest.raises(EspalierError) as caught:
        resolve(parse(["U:%q[0,1,4]"]), {1: (["a"], np.array([1]))})
    assert re.match(r"template `U:%q\[0,1,4\]` makes bins of column 1, which holds no number", str(caught.value))


def test_templates_that_become_the_same_are_refused():
    with pytest.raises(EspalierError, match=r"template `U:%q\[0,0,3\]` and another are both .* remove one"):
        resolve(parse(["U:%q[0,0,2]", "U:%q[0,0,3]"]), {0: (["1", "2"], np.array([1, 1]))})


def test_lists_stay_with_resolved_templates():
    found = resolve(parse(['U:%l[0,0,"n"]%g[0,0,2]'], lists={"n": ["ab"]}), {0: (["ab"], np.array([1]))})
    assert sources_of(found)[0].names is not None
    assert expand_rows(found, [["ab"]]) == [["U:B<a", "U:Bb>", "U:Bab"]]
