"""Wapiti's regular expressions against a matcher that tries every way."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import templates as reference

from espalier.engine.errors import EspalierError
from espalier.engine.text import wapiti_regexp
from espalier.engine.text.wapiti_regexp import CLASSES, LONGEST, compiled, first_match

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=400)
ATOMS = [".", "a", "b", "A", "1", "-", "é", "$", "^", "[", "]", "(", "+", "{", "|", " ", "\\.", "\\*", "\\?",
         "\\\\", '\\"', "\\^", "\\$", "\\é", "\\z", "\\n", *(f"\\{c}" for c in "adlpsuwADLPSUW")]  # fmt: skip
TEXTS = st.text(st.sampled_from('abAB1-é$^. \n\\"漢_x+'), max_size=7)


REPEATED = st.tuples(st.sampled_from(ATOMS), st.sampled_from(["", "", "*", "?"])).map("".join)
EXPRESSIONS = st.tuples(
    st.sampled_from(["", "^"]), st.lists(REPEATED, max_size=5).map("".join), st.sampled_from(["", "$"])
).map("".join).filter(lambda text: text[:2] not in ("^*", "^?"))  # fmt: skip


@EXAMPLES
@given(EXPRESSIONS, TEXTS)
@example("^", "ab")
@example("", "")
@example("$", "ab")
@example("a*", "aab")
@example("a?ab", "ab")
@example("é*", "éé")
def test_a_match_is_that_of_a_search_by_hand(text, value):
    expected = reference.first_match(text, value)
    found = first_match(compiled(text), value)
    assert found == (None if expected is None else expected.decode(errors="backslashreplace"))


@settings(EXAMPLES, max_examples=4000)
@given(EXPRESSIONS, TEXTS)
@example("a?a?a?aa*$", "aaa")
@example(".*.?.*b?$", "abab")
@example("^a?b*c?", "abbc")
def test_all_ways_at_once_end_where_trying_one_after_the_other_does(text, value):
    """The linear search against the search by hand and against Python's `re`, which short texts are left to."""
    data = value.encode()
    found = compiled(text).search_linearly(data)
    by_re = compiled(text)._backtracking.search(data)
    assert found == reference.first_match(text, value) == (None if by_re is None else by_re[0])


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        (".*" * 30 + "b", "a" * 5000, None),
        (".*" * 200 + "b$", "a" * 3000 + "b", "a" * 3000 + "b"),
        ("a?" * 240 + "a" * 19, "a" * 200, "a" * 200),
        ("a?" * 100 + "a" * 100, "a" * 100, "a" * 100),
        (".*x" * 100, "x" * 2000, "x" * 100),
        ("^" + "a*" * 200 + "$", "a" * 2000 + "b", None),
    ],
)
def test_many_repetitions_take_no_longer_than_one(text, value, expected):
    """Each of these would keep a search that goes back and tries again busy for longer than the world is old."""
    assert first_match(compiled(text), value) == expected


def test_short_texts_are_left_to_re_and_long_ones_are_not(monkeypatch):
    expression, asked = compiled("a*b"), []
    monkeypatch.setattr(wapiti_regexp.Expression, "search_linearly", lambda self, data: asked.append(len(data)))
    expression.search(b"a" * 10)
    expression.search(b"a" * 1000)
    assert asked == [1000]


def test_an_expression_has_a_length():
    assert first_match(compiled("a" * LONGEST), "a" * LONGEST) == "a" * LONGEST
    with pytest.raises(EspalierError, match="the expression has 501 bytes, expected at most 500"):
        compiled("a" * (LONGEST + 1))


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        (r"\d\d", "a1b23", "23"),
        (r"a*b", "xaab", "aab"),
        (r"a*", "aab", ""),  # as few as possible
        (r"^\u.*\l$", "Haus", "Haus"),
        (r"^.?.?.?", "Straße", "Str"),
        (r".?.?.?$", "Straße", "ße"),  # three bytes
        (r".?.?$", "é", "é"),
        (r".$", "é", "\\xa9"),  # half of a character
        (r"\A", "éa", "\\xc3"),  # a byte beyond ASCII is no letter
        (r"a$b", "a$b", "a$b"),
        (r"a^b", "a^b", "a^b"),
        (r"\p\s", "a, b", ", "),
        (r"x?y", "xy", "xy"),
        (r"zz", "z", None),
    ],
)
def test_by_hand(text, value, expected):
    assert first_match(compiled(text), value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*", r"a * with nothing to repeat before it; write \* for itself"),
        ("^*", r"a * with nothing"),
        ("a**", r"a * with nothing"),
        ("a?*", r"a * with nothing"),
        ("?", r"a ? with nothing to repeat before it; write \? for itself"),
        ("a\\", r"a \ at the end; write \\ for itself"),
    ],
)
def test_what_is_no_expression_is_refused(text, expected):
    with pytest.raises(EspalierError) as caught:
        compiled(text)
    assert expected in str(caught.value)


def test_classes_are_those_of_ascii():
    for name, members in reference.CLASSES.items():
        for capital in (False, True):
            pattern = compiled("\\" + (name.upper() if capital else name))
            found = {byte for byte in range(256) if pattern.search(bytes([byte])) is not None}
            assert found == {byte for byte in range(256) if (chr(byte) in members) != capital}
    assert set(CLASSES) == set(reference.CLASSES)


@settings(EXAMPLES, max_examples=200)
@given(st.text(max_size=8))
def test_any_text_is_an_expression_or_is_refused(text):
    try:
        compiled(text).search(b"abc \xff")
    except EspalierError as error:
        assert "write \\" in str(error)
