"""Wapiti's regular expressions against a matcher that tries every way."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import templates as reference

from engine.errors import EspalierError
from engine.regexp import CLASSES, compiled, first_match

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
            found = {byte for byte in range(256) if pattern.fullmatch(bytes([byte]))}
            assert found == {byte for byte in range(256) if (chr(byte) in members) != capital}
    assert set(CLASSES) == set(reference.CLASSES)


@settings(EXAMPLES, max_examples=200)
@given(st.text(max_size=8))
def test_any_text_is_an_expression_or_is_refused(text):
    try:
        compiled(text).search(b"abc \xff")
    except EspalierError as error:
        assert "write \\" in str(error)
