"""Tagging files and streams: the same bytes however they come, every labelling as by enumeration."""

import gzip
import io
import json
import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import conll, restricted
from small_models import LETTERS, best_by_enumeration, model_of, observations_of, weights_of

from espalier.engine.errors import EspalierError
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.weights.layout import dense_layout
from espalier.tasks.answering import incoming, stream
from espalier.tasks.answering.asked import Asked

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=60)
FILE = "some.conll"
WORDS = st.lists(st.text(st.sampled_from(LETTERS), min_size=1, max_size=4), min_size=1, max_size=4)
MODEL = model_of()
CHUNKS = model_of(labels=("B-N", "I-N", "O"), seed=3)
NOTHING = CrfLabeller.compact(dense_layout(2, [1]), np.zeros(2), ["U:a"], ["X", "Y"], ["U:%x[0,0]", "U", "B"], {})
ROUNDING = 2e-6  # of what is written with six digits


def answer(model, data, **asked):
    return b"".join(stream.answers(model, [data], FILE, Asked(**asked))).decode()


def in_columns(words, extra="  extra"):
    return "\n\n".join("\n".join(f"{letter}{extra}" for letter in word) for word in words) + "\n"


# ---- columns in, columns out


@EXAMPLES
@given(WORDS, st.sampled_from(["", "\n", "\n\n", "\r\n"]), st.booleans())
def test_columns_come_back_with_the_label_behind(words, end, windows):
    text = "\n\n\n".join("\n".join(f"{letter}  extra" for letter in word) for word in words) + end
    text = text.replace("\n", "\r\n") if windows else text
    out = answer(MODEL, text.encode())
    labels = iter(best_by_enumeration(MODEL, words))
    expected = [[[letter, "extra", next(labels)] for letter in word] for word in words]
    assert [[fields for _, fields in rows] for rows in conll.parse(out.encode(), "\t")] == expected
    assert out.endswith("\n") and "\r" not in out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"\n\na b\nc d\n\n\n\ne f", "a\tb\tX\nc\td\tX\n\ne\tf\tX\n"),
        (b"a\n\n", "a\tX\n\n"),  # an empty line behind a sequence ends it in the output, too
        (b"a\n \t\r\nb\r\n\r\n\r\n", "a\tX\n\nb\tX\n\n"),
        (b"\xef\xbb\xbfa\n", "a\tX\n"),
        (b"#\n\na", "#\tX\n\na\tX\n"),
    ],
)
def test_the_output_to_the_letter(text, expected):
    assert answer(NOTHING, text) == expected


def test_a_given_separator_is_used_both_ways():
    assert answer(NOTHING, b"New York|x\n", separator="|") == "New York|x|X\n"


@EXAMPLES
@given(WORDS, st.lists(st.integers(0, 60), max_size=6), st.sampled_from(
    [{}, {"words": True}, {"scores": True, "nbest": 2}, {"format": "jsonl"}, {"format": "jsonl", "words": True}]
))  # fmt: skip
def test_the_bytes_do_not_depend_on_how_the_input_comes(words, cuts, asked):
    text = ("\n".join(words) if asked.get("words") else in_columns(words)).encode()
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    found = b"".join(stream.answers(MODEL, pieces, FILE, Asked(**asked)))
    assert found == b"".join(stream.answers(MODEL, [text], FILE, Asked(**asked)))


@EXAMPLES
@given(st.lists(st.sampled_from([b"a", b" ", b"\t", b"\n", b"\r", b"\n\n", b"\xef\xbb\xbf"]), max_size=14))
def test_pieces_end_behind_an_empty_line_and_nothing_is_lost(pieces):
    found = list(incoming.whole(pieces))
    assert b"".join(found) in (b"".join(pieces), b"".join(pieces).removeprefix(b"\xef\xbb\xbf"))
    for text in found[:-1]:
        assert text.endswith(b"\n") and not text.split(b"\n")[-2].rstrip(b"\r").strip(b" \t")


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_plain_or_compressed_in_small_blocks(tmp_path, compressed, monkeypatch):
    monkeypatch.setattr(stream, "BLOCK", 7)
    path, text = tmp_path / "some.conll", b"".join(b"a\nb\n\n" for _ in range(20))
    path.write_bytes(gzip.compress(text) if compressed else text)
    assert b"".join(stream.tag_file(NOTHING, str(path))) == b"a\tX\nb\tX\n\n" * 20


def test_a_damaged_or_missing_file(tmp_path):
    path = tmp_path / "some.gz"
    path.write_bytes(gzip.compress(b"a\n" * 1000)[:-9])
    with pytest.raises(EspalierError, match="some.gz: the gzip data is damaged .*; fetch or compress it again"):
        list(stream.tag_file(NOTHING, str(path)))
    with pytest.raises(EspalierError, match="nowhere.txt: there is no such file; check its name and folder"):
        list(stream.tag_file(NOTHING, str(tmp_path / "nowhere.txt")))
    with pytest.raises(EspalierError, match=r"cannot be read \(Is a directory\); expected a readable file"):
        list(stream.tag_file(NOTHING, str(tmp_path)))


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b"a\nb c\n"], "line 2 of some.conll has 2 columns, the lines before it 1: check for a separator"),
        ([b"a\n\n", b"\nb\n\n", b"\nc c\n"], "line 7 of some.conll has 2 columns, the lines before it 1"),
        ([b"a\n\n", b"\xff\n"], "line 3 of some.conll: byte 0xff is not UTF-8"),
        ([b"\n\n"], "some.conll: holds no token; expected one token a line"),
        ([], "some.conll: holds no token"),
    ],
)
def test_bad_columns_are_refused_with_their_line(pieces, expected):
    with pytest.raises(EspalierError, match=expected):
        list(stream.answers(MODEL, pieces, FILE))


def test_too_few_columns_are_refused():
    model = CrfLabeller.compact(dense_layout(2, [1]), np.ones(2), ["U:a"], ["X", "Y"], ["U:%x[0,0]/%x[0,2]"], {})
    with pytest.raises(EspalierError, match="has 2 columns, the model looks at 3: expected its input columns"):
        answer(model, b"a b\n")
    assert answer(model, b"a b c d\n") == "a\tb\tc\td\tX\n"


# ---- as it comes


def test_a_pipe_is_answered_as_soon_as_an_empty_line_comes():
    """The writer sends the next sequence only after it has read the answer to the one before."""
    there, here = os.pipe()
    with os.fdopen(there, "rb") as source, os.fdopen(here, "wb", buffering=0) as sink:
        assert incoming.comes_in_pieces(source)
        found = stream.answers(NOTHING, incoming.pieces(source, FILE), FILE)
        sink.write(b"a\n\nb\n")
        assert next(found) == b"a\tX\n\n"
        sink.write(b"c\n\n")
        assert next(found) == b"b\tX\nc\tX\n\n"
        sink.write(b"d")
        sink.close()
        assert next(found) == b"d\tX\n"
        assert list(found) == []


def test_what_is_there_is_taken_together_up_to_a_limit():
    there, here = os.pipe()
    with os.fdopen(there, "rb") as source:
        writer = threading.Thread(target=lambda: (os.write(here, b"x" * 50_000), os.close(here)))
        writer.start()
        writer.join()
        assert [len(piece) for piece in incoming.pieces(source, FILE, 20_000)] == [20_000, 20_000, 10_000]


def test_files_and_buffers_do_not_come_in_pieces(tmp_path):
    (tmp_path / "some").write_bytes(b"a")
    with (tmp_path / "some").open("rb") as file:
        assert not incoming.comes_in_pieces(file)
    assert not incoming.comes_in_pieces(io.BytesIO(b"a"))


# ---- words in, labels out


@EXAMPLES
@given(st.lists(st.text(st.sampled_from(LETTERS + "\u0301"), min_size=1, max_size=4), min_size=1, max_size=4))
def test_each_word_has_as_many_labels_as_characters(words):
    """Characters are code points, so that e and a combining accent are two tokens, as in training."""
    labels = iter(best_by_enumeration(MODEL, words))
    expected = "".join(f"{word}\t{' '.join(next(labels) for _ in word)}\n" for word in words)
    assert answer(MODEL, ("\n\n".join(words) + "\n").encode(), words=True) == expected


def test_words_are_trimmed_and_empty_lines_left_out():
    assert answer(NOTHING, b"\n  ab \r\n\n\nc", words=True) == "ab\tX X\nc\tX\n"
    with pytest.raises(EspalierError, match="some.conll: holds no line to tag"):
        answer(NOTHING, b"\n  \n", words=True)


# ---- probabilities, several labellings, schemes, known labels


def by_enumeration(model, word, allowed=None, rules=None):
    """[(labels, log-probability, probabilities)], best first."""
    rows, n_labels, weights = observations_of(model, word), len(model.labels), weights_of(model)
    best, log_z = restricted.distribution(rows, n_labels, weights, allowed, rules)
    gamma = restricted.marginals(rows, n_labels, weights, allowed, rules)[0]
    return [
        ([model.labels[y] for y in labels], score - log_z, [gamma[t, y] for t, y in enumerate(labels)])
        for labels, score, _ in best
    ]


def same(found, expected):
    """An object of the output against a row of `by_enumeration`."""
    labels, log_p, chances = expected
    assert found["labels"] == labels
    assert found["log_probability"] == pytest.approx(log_p, abs=1e-9)
    assert found["probabilities"] == pytest.approx(chances, abs=1e-9)


@EXAMPLES
@given(WORDS, st.integers(0, 4))
def test_probabilities_and_labellings_are_those_of_enumeration(words, nbest):
    lines = answer(MODEL, in_columns(words).encode(), scores=True, nbest=nbest, format="jsonl").splitlines()
    assert len(lines) == len(words)
    for word, line in zip(words, lines, strict=True):
        found, expected = json.loads(line), by_enumeration(MODEL, word)
        assert found["tokens"] == list(word) and found["columns"] == [["extra"] * len(word)]
        same(found, expected[0])
        if nbest:
            assert len(found["nbest"]) == min(nbest, len(expected))
            for one, other in zip(found["nbest"], expected, strict=False):
                same(one, other)
        else:
            assert "nbest" not in found


RULES = ([True, False, True], [[True, True, True], [True, True, True], [True, False, True]], [True] * 3)  # of IOB2


@EXAMPLES
@given(WORDS, st.sampled_from(["auto", "iob2"]))
def test_a_scheme_leaves_only_what_it_allows(words, scheme):
    lines = answer(CHUNKS, in_columns(words).encode(), scores=True, scheme=scheme, format="jsonl").splitlines()
    for word, line in zip(words, lines, strict=True):
        same(json.loads(line), by_enumeration(CHUNKS, word, rules=RULES)[0])


@EXAMPLES
@given(WORDS, st.data())
def test_known_labels_are_kept(words, data):
    label = st.sampled_from(["_", *MODEL.labels])
    known = [data.draw(st.lists(label, min_size=len(word), max_size=len(word))) for word in words]
    text = "\n\n".join(
        "\n".join(f"{label} {letter}" for letter, label in zip(word, row, strict=True))
        for word, row in zip(words, known, strict=True)
    )
    lines = answer(MODEL, text.encode(), scores=True, known=0, format="jsonl").splitlines()
    for word, row, line in zip(words, known, lines, strict=True):
        allowed = [None if label == "_" else {MODEL.labels.index(label)} for label in row]
        same(json.loads(line), by_enumeration(MODEL, word, allowed=allowed)[0])


def test_the_column_of_known_labels_is_counted_from_either_side():
    first, last = answer(MODEL, b"Z a\n_ b\n", known=0), answer(MODEL, b"a Z\nb _\n", known=-1)
    assert first.startswith("Z\ta\tZ\n_\tb\t") and last.startswith("a\tZ\tZ\nb\t_\t")
    assert answer(MODEL, b"a Z\nb ?\n", known=1, unknown="?") == last.replace("_", "?")


@pytest.mark.parametrize(
    ("data", "asked", "expected"),
    [
        (b"a X\n\nb Q\n", {"known": 1}, "line 3 of some.conll: the known label 'Q' is not one of the model's, X, Y, Z"),
        (b"a X\n", {"known": 2}, "the known labels are in column 2, but some.conll has 2 columns"),
        (b"X\n", {"known": 0}, "has 0 columns beside the known labels, the model looks at 1"),
        (b"a X\n", {"known": 1, "unknown": "X"}, "'X' is a label of this model and cannot stand for an unknown one"),
        (b"ab\n", {"known": 1, "words": True}, "known labels need a column of their own"),
        (b"a\n", {"scheme": "iob2"}, "label 'X' is not one of iob2"),
    ],
)
def test_what_cannot_be_known_is_refused(data, asked, expected):
    with pytest.raises(EspalierError, match=expected):
        answer(MODEL, data, **asked)


def test_known_labels_that_the_scheme_forbids_are_named_by_their_line():
    text = b"a B-N\n\nb O\nb I-N\n"
    expected = r"the sequence from line 3 of some.conll on has no labelling with its known labels that the scheme"
    with pytest.raises(EspalierError, match=expected):
        answer(CHUNKS, text, known=1, scheme="iob2")
    assert answer(CHUNKS, text, known=1).startswith("a\tB-N\tB-N\n\nb\tO\tO\n")


def test_scores_in_columns():
    first, log_p, chances = by_enumeration(MODEL, "ab")[0]
    out = answer(MODEL, b"a\nb\n\na\n", scores=True).split("\n")
    rank, found = out[0].removeprefix("# ").split(" ")
    assert rank == "1" and float(found) == pytest.approx(log_p, abs=ROUNDING)
    rows = [line.split("\t") for line in out[1:3]]
    assert [row[:2] for row in rows] == [["a", first[0]], ["b", first[1]]]
    assert [float(row[2]) for row in rows] == pytest.approx(chances, abs=ROUNDING)
    assert out[3] == "" and out[4].startswith("# 1 ") and out[-1] == "" and out[-2].startswith("a\t")


def test_labellings_in_columns_and_of_words():
    expected = by_enumeration(MODEL, "ab")[:3]
    blocks = answer(MODEL, b"a\nb\n", nbest=3).split("\n\n")
    for rank, (block, (labels, log_p, _)) in enumerate(zip(blocks, expected, strict=True), 1):
        head, *rows = block.strip().split("\n")
        mark, place, score = head.split(" ")
        assert (mark, place) == ("#", str(rank)) and float(score) == pytest.approx(log_p, abs=ROUNDING)
        assert rows == [f"a\t{labels[0]}", f"b\t{labels[1]}"]
    lines = answer(MODEL, b"ab\n", nbest=3, words=True).splitlines()
    assert [line.split("\t")[:2] for line in lines] == [["ab", " ".join(labels)] for labels, _, _ in expected]
    assert [float(line.split("\t")[2]) for line in lines] == pytest.approx([p for _, p, _ in expected], abs=ROUNDING)
    word, labels, chances, log_p = answer(MODEL, b"ab\n", scores=True, words=True).strip().split("\t")
    assert (word, labels) == ("ab", " ".join(expected[0][0]))
    assert float(log_p) == pytest.approx(expected[0][1], abs=ROUNDING)
    assert [float(p) for p in chances.split(" ")] == pytest.approx(expected[0][2], abs=ROUNDING)


def test_fewer_labellings_than_asked_for():
    assert answer(NOTHING, b"a\n", nbest=5).count("# ") == 2
