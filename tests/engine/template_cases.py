"""Random template lines and sequences for the three evaluators of templates."""

from hypothesis import strategies as st

# Few values, so that they repeat; among them boundary values, the empty text, macros and separators as data, odd
# white space, numbers, and what a function changes or cuts.
VALUES = ("a", "b", "aa", "Ab-1", "", "/", "%x[0,0]", "_x-1", "_x+1", "_x", " ", "\xa0", "\x00", "\u2028", "é", "É",
          "e\u0301", "漢", "😀", "U:a", "12", "-3.5", "1e2", "nan", "Straßenbahn", "a\tB\ta", "\t")  # fmt: skip
LITERALS = ("", ":", "/", "1=", "é", "_x", " ", "#", "]")
LISTS = {"names.txt": ["a b\tpair", "a", "É\tacute", "aa aa aa"], "more.txt": ["b", "b b", "12\tnumber"]}
REGEXPS = (r"^\u", r"\d", r".$", r"^.?.?", r"\W*$", r"a*b", r"\\", r"\"", r"#", r"]", r"^_x", r"x[-+]", "é", r"\l\l")
FUNCTIONS = [
    *("x" for _ in range(4)), *(f'{letter}|"{regexp}"' for letter in "tm" for regexp in REGEXPS),
    "p|1", "p|3", "s|1", "s|2", "w|", "w|1", "w|2", 'l|"names.txt"', 'l|"more.txt"', 'q|"-3.5 0 12"', 'q|""',
]  # fmt: skip
SEVERAL = ["g|1", "g|2", "g|3", "g|3,2", "g|2,32", "a|1", "a|3", "a|9"]


@st.composite
def macros(draw, width, functions=FUNCTIONS):
    letter, _, argument = draw(st.sampled_from(functions)).partition("|")
    letter = letter.upper() if draw(st.booleans()) else letter
    row, column = draw(st.integers(-7, 7)), draw(st.integers(0, width - 1))
    at = draw(st.sampled_from(["", "", "@"]))
    sign = "+" if row > 0 and draw(st.booleans()) else ""
    blank = draw(st.sampled_from(["", "", " "]))
    inside = f"{blank}{at}{blank}{sign}{row}{blank},{blank}{column}{blank}"
    return f"%{letter}[{inside}{',' + blank + argument if argument else ''}]"


@st.composite
def lines(draw, width, grams=True):
    """A template line: rows reach well beyond short sequences."""
    literal = st.sampled_from(LITERALS)
    parts = draw(st.lists(macros(width), max_size=3))
    if grams and draw(st.integers(0, 4)) == 0:
        parts.insert(draw(st.integers(0, len(parts))), draw(macros(width, SEVERAL)))
    text = draw(st.sampled_from("UBub*")) + draw(literal) + "".join(part + draw(literal) for part in parts)
    return text + draw(st.sampled_from(["", "", " # 100% a comment", "  "]))


@st.composite
def cases(draw, grams=True):
    """Sequences of rows of values, and template lines."""
    width = draw(st.integers(1, 3))
    row = st.lists(st.sampled_from(VALUES), min_size=width, max_size=width)
    sequences = draw(st.lists(st.lists(row, min_size=1, max_size=6), min_size=1, max_size=4))
    key = lambda line: line.partition(" # ")[0].strip()  # noqa: E731
    return sequences, draw(st.lists(lines(width, grams), min_size=1, max_size=4, unique_by=key))
