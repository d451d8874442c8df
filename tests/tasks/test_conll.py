"""CoNLL columns against an obvious parser, and every error with file, line and remedy."""

import gzip
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import conll as reference

from espalier.engine.errors import EspalierError
from espalier.tasks.formats import conll
from espalier.tasks.params import Ingest
from espalier.tasks.sources import files as source

FILE = Path("data.conll")
COLUMNS = source.reading(Ingest(source="conll"))
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=150)
# What str.splitlines ends a line at and this format does not, white space that is no separator, and text like ours.
NASTY = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\xa0\u3000\u200b\ufeff\x00"
TOKENS = st.text(st.sampled_from("ab/%#_[]\\\"'," + NASTY + "éß漢😀\u0301"), min_size=1, max_size=4)
BLANK_LINES = st.lists(st.sampled_from(["", " ", "\t", " \t "]), min_size=1, max_size=3)
ENDS = st.sampled_from(["\n", "\r\n"])


@st.composite
def files(draw, comment=None):
    """The bytes of a file, and the sequences that were written into it."""
    width = draw(st.integers(1, 3))
    row = st.lists(TOKENS, min_size=width, max_size=width)
    sequences = draw(st.lists(st.lists(row, min_size=1, max_size=4), min_size=1, max_size=4))
    if comment:
        sequences = [[[field.replace(comment, "x") for field in row] for row in rows] for rows in sequences]
    lines = draw(BLANK_LINES) if draw(st.booleans()) else []
    for rows in sequences:
        for fields in rows:
            if comment and draw(st.booleans()):
                lines.append(comment + draw(TOKENS) + "  more")
            gap = draw(st.sampled_from(["\t", " ", "  ", " \t"]))
            lines.append(draw(st.sampled_from(["", " "])) + gap.join(fields) + draw(st.sampled_from(["", "\t"])))
        lines += draw(BLANK_LINES)
    text = "".join(line + draw(ENDS) for line in lines)
    if draw(st.booleans()):
        text = text.rstrip(" \t\r\n")  # no final line end, and no blank line after the last sequence
    bom = "\ufeff" if draw(st.booleans()) or text.startswith("\ufeff") else ""
    return (bom + text).encode(), sequences


def rows_of(frame):
    """Parsed tokens as the reference gives them."""
    width = len(frame.columns) - 2
    sequences = []
    for sequence, line, *fields in frame.iter_rows():
        if sequence == len(sequences):
            sequences.append([])
        assert sequence == len(sequences) - 1 and len(fields) == width
        sequences[-1].append((line, fields))
    return sequences


# ---- what was written comes back


@EXAMPLES
@given(files())
def test_what_was_written_is_read(case):
    data, sequences = case
    found = rows_of(conll.parse(data, FILE))
    assert [[fields for _, fields in rows] for rows in found] == sequences
    assert found == reference.parse(data)


@EXAMPLES
@given(files(comment="#"))
def test_comments_vanish_and_lines_keep_their_numbers(case):
    data, sequences = case
    found = rows_of(conll.parse(data, FILE, comment="#"))
    assert [[fields for _, fields in rows] for rows in found] == sequences
    assert found == reference.parse(data, comment="#")


@EXAMPLES
@given(
    st.text(st.sampled_from("ab \t\r\n#|\x85\u2028\xa0\ufeff"), max_size=30),
    st.sampled_from([None, "|", "\t", "||", "a"]),
)
@example("a|b\n", "|")
@example("\r\r\n a\r", None)
@example("\n", None)
def test_any_text_is_read_as_the_reference_reads_it(text, separator):
    """Or both refuse it: nothing in it, or lines of different width, at the same line."""
    data = text.encode()
    expected = reference.parse(data, separator, "#")
    odd = reference.ragged_line(expected)
    if not expected:
        with pytest.raises(EspalierError, match="holds no token"):
            conll.parse(data, FILE, separator, "#")
    elif odd:
        with pytest.raises(EspalierError, match=f"line {odd} of data.conll has"):
            conll.parse(data, FILE, separator, "#")
    else:
        assert rows_of(conll.parse(data, FILE, separator, "#")) == expected


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n", "\n \n\n"])
def test_the_last_sequence_is_never_lost(end):
    assert rows_of(conll.parse(f"a X\n\nb Y{end}".encode(), FILE)) == [[(1, ["a", "X"])], [(3, ["b", "Y"])]]


@pytest.mark.parametrize("character", list(NASTY))
def test_a_strange_character_is_a_token_like_any_other(tmp_path, character):
    """\\x00 ends a text in C, a no-break space looks empty: all of them are somebody's token."""
    path = tmp_path / "odd.conll"
    path.write_text(f"a X\n{character}\tY\n{character}b Y\n", encoding="utf-8", newline="")
    found = source.tokens_of([path], COLUMNS, labelled=True)
    assert found["x0"].to_list() == ["a", character, f"{character}b"]
    assert found["sequence"].to_list() == [0, 0, 0]


def test_a_lone_carriage_return_ends_no_line():
    assert rows_of(conll.parse(b"a\rb X\n", FILE)) == [[(1, ["a\rb", "X"])]]


# ---- token tables


def tokens(tmp_path, text, labelled=True, inputs=None, name="some.conll", **options):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return source.tokens_of([path], source.reading(Ingest(source="conll", **options), inputs), labelled)


def test_the_label_is_the_last_column_or_the_one_asked_for(tmp_path):
    text = "a b X\nc d Y\n\ne f X\n"
    last = tokens(tmp_path, text)
    assert last.columns == ["sequence", "x0", "x1", "label"]
    assert last.rows() == [(0, "a", "b", "X"), (0, "c", "d", "Y"), (1, "e", "f", "X")]
    assert str(last.schema["sequence"]) == "Int32"
    for column in (0, -3):
        first = tokens(tmp_path, text, label_column=column)
        assert first.rows() == [(0, "b", "X", "a"), (0, "d", "Y", "c"), (1, "f", "X", "e")]
    middle = tokens(tmp_path, text, label_column=1)
    assert middle["label"].to_list() == ["b", "d", "f"] and middle["x1"].to_list() == ["X", "Y", "X"]


def test_an_unlabelled_file_with_and_without_the_label_column(tmp_path):
    with_label = tokens(tmp_path, "a b X\n", labelled=False, inputs=2)
    without = tokens(tmp_path, "a b\n", labelled=False, inputs=2)
    assert with_label.rows() == without.rows() == [(0, "a", "b")]
    assert "label" not in with_label.columns


def test_gzip_is_known_by_its_bytes_not_by_its_name(tmp_path):
    assert tokens(tmp_path, gzip.compress(b"a X\n")).rows() == [(0, "a", "X")]
    assert tokens(tmp_path, b"a X\n", name="plain.gz").rows() == [(0, "a", "X")]


def test_a_given_separator_keeps_blanks_inside_fields(tmp_path):
    assert tokens(tmp_path, "New York\tB-LOC\n", separator="\t").rows() == [(0, "New York", "B-LOC")]


def test_parts_of_a_corpus(tmp_path):
    for name, text in {"train": "a X\n", "dev": "b X\n", "test": "c Y\n", "more": "d\n\ne\n"}.items():
        (tmp_path / name).write_text(text)
    options = Ingest(source="conll", path="train", dev_path="dev", test_path="test", unlabelled_path="more")
    corpus = source.read(tmp_path, options)
    assert {name: pl.concat(part())["x0"].to_list() for name, part in corpus.parts.items()} == {
        "train": ["a"], "dev": ["b"], "test": ["c"], "unlabelled": ["d", "e"],
    }  # fmt: skip
    info = corpus.info()
    reading = info.pop("reading")
    assert info == {"source": "conll:train", "nouns": source.NOUNS, "truth": None, "measure": None}
    assert (reading["format"], reading["inputs"], reading["label_column"]) == ("conll", 1, -1)
    assert set(source.read(tmp_path, Ingest(source="conll", path="train")).parts) == {"train"}


# ---- refusals: file, line, remedy


CUT_SHORT = gzip.compress(b"a X\n" * 99, mtime=0)[:-9]  # without a time: all processes must name a test alike


@pytest.mark.parametrize(
    ("data", "options", "expected"),
    [
        (b"a b X\nc d Y\ne Z\n", {}, "line 3 of .*some.conll has 2 columns, the lines before it 3: check for a .* tab"),
        (b"a X\n\n\nb X\nc\n", {}, "line 5 of .*some.conll has 1 column, the lines before it 2: check for a .* tab"),
        (b"a X\nb X Y\n", {}, "line 2 of .*some.conll has 3 columns, the lines before it 2: check for a separator"),
        (b"a X\n# new part here\nb X\n", {}, 'line 2 of .*if lines with # are comments set ingest.comment: "#"'),
        (b"# odd\na X\nb X X\n", {"comment": "#"}, "line 3 of .* has 3 columns"),
        (b"", {}, "some.conll: holds no token; expected one token a line"),
        (b"\n \n\t\n\r\n", {}, "some.conll: holds no token; expected one token a line"),
        (b"\xef\xbb\xbf", {}, "some.conll: holds no token"),
        (b"# a\n# b\n", {"comment": "#"}, "some.conll: holds no token"),
        (b"a\nb\n", {}, "some.conll has 1 column: expected at least one input column and a label"),
        (b"a\tX\nb\t\n", {"separator": "\t"}, "line 2 of .*some.conll has no label: fill it in or remove"),
        (b"a\tX\n\tX\n", {"separator": "\t"}, "line 2 of .*some.conll has an empty column 0: fill it in"),
        (b"a\tX\n \tX\n", {"separator": "\t"}, "line 2 of .*some.conll has an empty column 0"),
        (b"a X\n", {"label_column": 2}, "ingest.label_column is 2, but .*some.conll has 2 columns"),
        (b"a X\n", {"label_column": -3}, "ingest.label_column is -3, but .*some.conll has 2 columns"),
        (b"a X\ncaf\xe9 X\n", {}, "line 2 of .*some.conll: byte 0xe9 is not UTF-8; convert the file, .*iconv"),
        (b"\xff\xfea\x00", {}, "line 1 of .*some.conll: byte 0xff is not UTF-8"),
        (b"\xef\xbb\xbfa X\r\n\r\nb X\r\n\xc3", {}, "line 4 of .*some.conll: byte 0xc3 is not UTF-8"),
        (b"a X\n" * 999 + b"\xed\xa0\x80 X\n", {}, "line 1000 of .*some.conll: byte 0xed is not UTF-8"),
        (CUT_SHORT, {}, "some.conll: the gzip data is damaged .*fetch or compress it again"),
        (b"\x1f\x8b\x08nonsense", {}, "some.conll: the gzip data is damaged"),
        (b"\x1f\x8b", {}, "some.conll: the gzip data is damaged"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_with_line_and_remedy(tmp_path, data, options, expected):
    with pytest.raises(EspalierError, match=expected):
        tokens(tmp_path, data, **options)


def test_a_flipped_byte_in_gzip_data_is_noticed(tmp_path):
    data = bytearray(gzip.compress(b"a X\nbc Y\n" * 50))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(EspalierError, match="the gzip data is damaged"):
        tokens(tmp_path, bytes(data))


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(EspalierError, match="nowhere: there is no such file; check"):
        source.tokens_of([tmp_path / "nowhere"], COLUMNS, True)
    with pytest.raises(EspalierError, match=r"cannot be read \(Is a directory\); expected a readable file"):
        source.tokens_of([tmp_path], COLUMNS, True)


def test_no_path_at_all(tmp_path):
    with pytest.raises(EspalierError, match="ingest.path is null: name the labelled file"):
        source.read(tmp_path, Ingest(source="conll"))


@pytest.mark.parametrize("split", ["dev", "test", "unlabelled"])
def test_another_file_with_other_columns(tmp_path, split):
    (tmp_path / "train").write_text("a b X\n")
    (tmp_path / "other").write_text("a b c d X\n")
    with pytest.raises(EspalierError, match=r"other has [45] input columns, the training file 2: expected the same"):
        corpus = source.read(tmp_path, Ingest(source="conll", path="train", **{f"{split}_path": "other"}))
        list(corpus.parts[split]())


def test_what_was_left_out_is_counted_once_however_often_it_is_read(tmp_path):
    (tmp_path / "train").write_text("-DOCSTART- X\n\na X\n")
    (tmp_path / "dev").write_text("-DOCSTART- X\na X\n-DOCSTART- X\n")
    corpus = source.read(tmp_path, Ingest(source="conll", path="train", dev_path="dev"))
    for _ in range(3):
        assert [pl.concat(part()).rows() for part in corpus.parts.values()] == [[(0, "a", "X")]] * 2
    assert corpus.notes == {"documents": 3}
