"""Tagging schemes over whole columns against chunks that are counted one by one."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import formats as reference

from espalier.engine.errors import EspalierError
from espalier.engine.labels.scheme import transitions_of
from espalier.tasks import formats
from espalier.tasks.formats import Reading, schemes

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=200)
LETTERS = {"iob1": "BI", "iob2": "BI", "bioes": "BIES", "bilou": "BILU"}


def labels_in(scheme):
    return st.sampled_from(["O", *(f"{letter}-{kind}" for letter in LETTERS[scheme] for kind in ("X", "Y-Z"))])


@st.composite
def chunked(draw, scheme):
    """Legal labels of some sequences."""
    sequences = []
    for _ in range(draw(st.integers(1, 4))):
        length, at, found = draw(st.integers(1, 7)), 0, []
        while at < length:
            size = draw(st.integers(0, 3))
            if size and at + size <= length:
                found.append((draw(st.sampled_from(["X", "Y-Z"])), at, at + size))
            at += max(size, 1)
        sequences.append(reference.labels_of(found, length, scheme))
    return sequences


def flat(sequences):
    labels = pl.Series("label", [label for rows in sequences for label in rows], pl.String)
    return labels, np.repeat(np.arange(len(sequences)), [len(rows) for rows in sequences])


def converted(sequences, source, target):
    labels, sequence = flat(sequences)
    tags = schemes.tags_of(labels, sequence)
    found = schemes.convert(labels, tags, source, target, lambda t: f"token {t}").to_list()
    return [[found[i] for i in np.flatnonzero(sequence == n)] for n in range(len(sequences))]


@pytest.mark.parametrize("source", LETTERS)
@pytest.mark.parametrize("target", LETTERS)
@EXAMPLES
@given(st.data())
def test_any_scheme_becomes_any_other(source, target, data):
    sequences = data.draw(chunked(source))
    expected = [reference.labels_of(reference.chunks(rows, source), len(rows), target) for rows in sequences]
    assert converted(sequences, source, target) == expected
    assert converted(expected, target, source) == sequences


@pytest.mark.parametrize("source", LETTERS)
@EXAMPLES
@given(st.data())
def test_any_labels_mean_the_same_chunks_or_are_refused(source, data):
    sequences = data.draw(st.lists(st.lists(labels_in(source), min_size=1, max_size=5), min_size=1, max_size=3))
    target = data.draw(st.sampled_from(sorted(LETTERS)))
    try:
        expected = [reference.labels_of(reference.chunks(rows, source), len(rows), target) for rows in sequences]
    except reference.Refused:
        with pytest.raises(
            EspalierError, match=r"token \d+: label '.*' (cannot|ends).* in (bioes|bilou): mend the label"
        ):
            converted(sequences, source, target)
    else:
        assert converted(sequences, source, target) == expected


@pytest.mark.parametrize("scheme", ["iob1", "iob2", "bioes"])
@EXAMPLES
@given(st.data())
def test_violations_are_those_of_the_engine(scheme, data):
    """Position by position what engine.labels.scheme allows; a chunk left open at the end counts at its last token."""
    every = ["O", *(f"{letter}-{kind}" for letter in LETTERS[scheme] for kind in ("X", "Y-Z"))]
    allowed = transitions_of(every, scheme)
    sequences = data.draw(st.lists(st.lists(st.sampled_from(every), min_size=1, max_size=5), min_size=1, max_size=3))
    expected = []
    for rows in sequences:
        ids = [every.index(label) for label in rows]
        wrong = [not allowed.start[ids[0]], *(not allowed.pair[a, b] for a, b in zip(ids, ids[1:], strict=False))]
        wrong[-1] |= not allowed.end[ids[-1]]
        expected += wrong
    labels, sequence = flat(sequences)
    assert schemes.violations(schemes.tags_of(labels, sequence), scheme).tolist() == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["B-X", "I-X", "O", "B-X"], "iob2"),
        (["I-X", "I-X", "B-X", "O"], "iob1"),
        (["B-X", "E-X", "O"], "bioes"),
        (["S-X"], "bioes"),
        (["B-X", "L-X", "U-Y"], "bilou"),
        (["O", "O"], None),
        (["NN", "VB"], None),
        (["B-X", "NN"], None),
        (["B-X", "", "B-X\x1fO"], "iob2"),
        (["B-X", "I-X"] * 5 + ["I-Y"], "iob2"),
    ],
)
def test_the_scheme_shows_in_the_labels(labels, expected):
    tags = schemes.tags_of(*flat([labels]))
    wrong = {name: int(schemes.violations(tags, name).sum()) for name in LETTERS}
    assert schemes.choose(set(tags.code.tolist()), wrong) == expected


@pytest.mark.parametrize(
    ("labels", "source", "target", "expected"),
    [
        (["B-X", "", "O"], "iob2", "iob2", ["B-X", "", "O"]),
        (["B-X", ""], "iob2", "bioes", None),
        (["", "I-X"], "iob2", "iob2", None),
        (["", "B-X", "O"], "iob2", "bioes", ["", "S-X", "O"]),
        (["", "B-X"], "iob2", "iob1", None),
        (["B-X", "", "E-X"], "bioes", "iob2", ["B-X", "", "I-X"]),
        (["", "S-X"], "bioes", "iob1", None),
    ],
)
def test_beside_unknown_labels_only_what_is_certain_is_converted(labels, source, target, expected):
    if expected:
        assert converted([labels], source, target) == [expected]
    else:
        with pytest.raises(
            EspalierError, match="stands beside an unknown label, .*: fill the unknown label in, or do not"
        ):
            converted([labels], source, target)


# ---- while reading


def read(tmp_path, text, size=1000, **options):
    path = tmp_path / "a.conll"
    path.write_text(text)
    table = pl.concat(
        formats.read_blocks([path], Reading(**({"unknown": "_", "set_separator": "|"} | options)), True, size)
    )
    return table["label"].to_list()


@pytest.mark.parametrize("size", [1, 1000])
def test_labels_are_converted_while_reading(tmp_path, size):
    text = "a O\n\na B-X\nb I-X\nc B-X\n\nd B-Y\n"
    assert read(tmp_path, text, size, scheme_out="bioes") == ["O", "B-X", "E-X", "S-X", "S-Y"]
    assert read(tmp_path, text, size, scheme_out="IOB1") == ["O", "I-X", "I-X", "B-X", "I-Y"]
    assert read(tmp_path, "a O\n\na B-X\nb E-X\n\nc S-X\n", size, scheme_out="bio") == ["O", "B-X", "I-X", "B-X"]
    assert read(tmp_path, "a U-X\n", size, scheme_out="iobes") == ["S-X"]
    assert read(tmp_path, "a I-X\nb I-X\n", size, scheme_out="iob2") == ["B-X", "I-X"]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("a O\n\nb NN\n", {}, "line 3 of .*: label 'NN' is not one of iob2: expected O, B-…, I-…; name the scheme"),
        ("a I-X\n\nb S-X\n", {"scheme_in": "iob1"}, "line 3 of .*: label 'S-X' is not one of iob1"),
        ("a S-X\n\nb I-X\n", {}, "line 3 of .*: label 'I-X' cannot begin a sequence in bioes: mend the label"),
        ("a B-X\nb O\nc S-X\n", {}, "line 2 of .*: label 'O' cannot follow 'B-X' in bioes"),
        ("a S-X\n\nb B-X\n", {}, "line 3 of .*: label 'B-X' ends a sequence and its chunk has no end in bioes"),
        (
            "a B-X|O\n",
            {},
            "line 1 of .*: label 'B-X|O' is a set, which has no meaning in another scheme: do not convert",
        ),
        ("a O\n", {"scheme_in": "iobx"}, "scheme 'iobx' is not known: choose one of iob1, iob2, bioes, bilou"),
    ],
)
def test_what_cannot_be_converted(tmp_path, text, options, expected):
    for size in (1, 1000):
        with pytest.raises(EspalierError, match=expected):
            read(tmp_path, text, size, scheme_out="bioes", **options)


@pytest.mark.corpus
def test_there_and_back_on_a_real_corpus(corpora):
    path = Path(corpora / "conll2000/test.txt.gz")
    plain = pl.concat(formats.read_blocks([path], Reading(), True))
    labels, sequence = plain["label"], plain["sequence"].to_numpy()
    for scheme in ("iob1", "bioes", "bilou"):
        other = pl.concat(formats.read_blocks([path], Reading(scheme_out=scheme), True, 10_000))["label"]
        back = schemes.convert(other, schemes.tags_of(other, sequence), scheme, "iob2", str)
        assert (other != labels).any() and back.to_list() == labels.to_list()


@pytest.mark.parametrize("target", [None, "bioes", "iob2"])
@pytest.mark.parametrize(
    ("text", "named", "expected"),
    [
        (
            "a O\n\nb I-X\nc O\n",
            "iob2",
            "line 3 of .*: label 'I-X' cannot begin a sequence in iob2: mend .*scheme_from",
        ),
        ("a O\nb B-X\nc I-X\n", "iob1", "line 2 of .*: label 'B-X' cannot follow 'O' in iob1: mend the label, or name"),
        ("a B-X\nb I-X\n", "bioes", "line 2 of .*: label 'I-X' ends a sequence and its chunk has no end in bioes"),
        ("a B-X\nb E-X\n", "iob2", "line 2 of .*: label 'E-X' is not one of iob2"),
        ("a NN\n", "iob2", "line 1 of .*: label 'NN' is not one of iob2"),
    ],
)
def test_a_wrong_scheme_from_is_refused_with_its_line(tmp_path, text, named, expected, target):
    path = tmp_path / "a.conll"
    path.write_text(text)
    with pytest.raises(EspalierError, match=expected):
        list(formats.read_blocks([path], Reading(scheme_in=named, scheme_out=target), True))


@pytest.mark.parametrize(("text", "scheme"), [
    ("a I-X\nb B-X\n\nc O\n", "iob1"), ("a B-X\nb I-X\n", "iob2"), ("a S-X\n", "bioes"), ("a U-X\n", "bilou"),
    ("a NN\n", None), ("a O\n", None),
])  # fmt: skip
def test_the_scheme_of_files_is_told_from_all_of_them(tmp_path, text, scheme):
    (tmp_path / "a.conll").write_text("z O\n\n" * 5)
    (tmp_path / "b.conll").write_text(text)
    paths = [tmp_path / "a.conll", tmp_path / "b.conll"]
    assert formats.scheme_of(paths, Reading(scheme_out="bioes")) == scheme
    if scheme:
        list(formats.read_blocks(paths, Reading(scheme_in=scheme), True))
