"""Hidden Markov models as text and as graphs: read, written, read again; files that lie are refused."""

import math

import numpy as np
import pyarrow as pa
import pytest

from espalier import CRF
from espalier.engine import importing
from espalier.engine.errors import EspalierError
from espalier.engine.families import load
from espalier.engine.features import features_of
from espalier.engine.importing.dot import as_dot
from espalier.engine.importing.hmm_text import UNKNOWN, read_hmm, write_hmm
from espalier.engine.lattice import blocks

SAME = 1e-12  # logarithms that were probabilities in between
PRINTED = 5e-5  # four digits

# The model of the course's first question as its practical prints it.
COURSE = """HMM 4 3
1.0 0.0 0.0
0.2 0.5 0.3 0.0
0.1 0.0 0.9 0.0
0.0 0.0 0.4 0.6
0.0 0.3 1.0 0.0 a
0.3 0.6 0.0 0.0 b
0.7 0.1 0.0 0.0 c
"""
# The one of FAMILIES, section 8.
WORKED = """HMM 4 3
1 0 0
.2 .5 .3 0
.1 .2 .7 0
0 0 .4 .6
0 .3 .8 0 a
.3 .6 .2 0 b
.7 .1 0 0 c
"""


def data_of(model, *sequences):
    tokens = pa.array([token for sequence in sequences for token in sequence], pa.large_string())
    return features_of(model, [tokens], np.cumsum([0, *map(len, sequences)]))


def same_answers(one, other, *sequences):
    here, there = data_of(one, *sequences), data_of(other, *sequences)
    np.testing.assert_allclose(one.log_likelihood(here), other.log_likelihood(there), rtol=SAME, atol=SAME)
    np.testing.assert_allclose(one.marginals(here), other.marginals(there), atol=SAME)
    np.testing.assert_array_equal(one.best(here), other.best(there))


def test_the_digits_of_the_worked_example():
    model = read_hmm(WORKED.encode(), "a.hmm")
    data = data_of(model, "bcba")
    assert math.exp(model.log_likelihood(data)[0]) == pytest.approx(0.00615312, abs=SAME)
    assert model.labels == ["0", "1", "2"] and model.templates == ["U:%x[0,0]"]
    assert model.best(data).tolist() == [0, 0, 1, 2]
    expected = blocks.pair_marginals(model.lattices(data), (4, 3)).sum(axis=0)
    assert expected[0, 0] == pytest.approx(0.8846, abs=PRINTED)
    assert expected[0] / expected[0].sum() == pytest.approx([0.4668, 0.4551, 0.0782], abs=PRINTED)


def test_the_model_of_the_course_comes_back(tmp_path):
    (tmp_path / "t0").write_text(COURSE)
    model = importing.read(tmp_path / "t0")
    model.save(tmp_path / "t0.model")
    model = load(tmp_path / "t0.model")
    text = write_hmm(model)
    lines = text.splitlines()
    assert lines[0] == "HMM 4 4" and lines[-1] == f"0.0 0.0 0.0 0.0 {UNKNOWN}"
    ours = [[float(number) for number in line.split()[:4]] for line in lines[1:-1]]
    theirs = [[float(number) for number in line.split()[:4] if number not in "abc"] for line in COURSE.splitlines()[1:]]
    for row, expected in zip(ours, theirs, strict=True):
        assert row[: len(expected)] == pytest.approx(expected, abs=1e-15)
    again = read_hmm(text.encode(), "again")
    same_answers(model, again, "ba", "bcba", "bbaaa")
    assert write_hmm(again).splitlines()[0] == lines[0]


WORDS = [["the", "dog", "barks"], ["a", "cat"], ["dogs", "bark", "the", "cat"], ["a", "b c", "é\u00a0"]]
TAGS = [["D", "N", "V"], ["D", "N"], ["N", "V", "D", "N"], ["D", "N", "N"]]
UNSEEN = ["the", "zebra", "barks", "?"]


@pytest.mark.parametrize("smoothing", [1e-5, 0.5])
def test_a_trained_model_says_the_same_when_it_was_text(smoothing):
    model = CRF(family="hmm", smoothing=smoothing).fit(WORDS, TAGS).model_
    text = write_hmm(model)
    again = read_hmm(text.encode(), "a.hmm", model.labels)
    assert again.labels == model.labels
    same_answers(model, again, UNSEEN, *WORDS, ["?"])
    once_more = read_hmm(write_hmm(again).encode(), "a.hmm", model.labels)
    same_answers(again, once_more, UNSEEN, *WORDS)


def test_a_probability_whose_weight_would_be_zero_is_kept():
    """Cells are kept as what they have more than the logarithm -1."""
    p = math.exp(-1.0)
    text = f"HMM 3 2\n0.5 0.5\n0.4 0.4 0.2\n0.4 0.4 0.2\n{p!r} {p!r} 0 a\n{1 - p!r} {1 - p!r} 0 b\n"
    model = read_hmm(text.encode(), "a.hmm")
    assert "U:a" in model.observations
    assert model.log_likelihood(data_of(model, "a"))[0] == pytest.approx(math.log(p * 0.2), abs=SAME)


def test_names_of_states(tmp_path):
    (tmp_path / "a.hmm").write_text(COURSE)
    names = tmp_path / "names"
    names.write_text("author\ntitle\nyear\n")
    assert importing.read(tmp_path / "a.hmm", names).labels == ["author", "title", "year"]
    names.write_text("author\ntitle\n")
    with pytest.raises(EspalierError, match="2 names of labels, the model has 3 states beside the final one"):
        importing.read(tmp_path / "a.hmm", names)
    names.write_text("author\ntitle\nauthor\n")
    with pytest.raises(EspalierError, match="line 3 of .*names has the name 'author' for the second time"):
        importing.read(tmp_path / "a.hmm", names)
    names.write_text("author\n\nyear\n")
    with pytest.raises(EspalierError, match="line 2 of .*names has no name"):
        importing.read(tmp_path / "a.hmm", names)
    with pytest.raises(EspalierError, match="nowhere: there is no such file"):
        importing.read(tmp_path / "a.hmm", tmp_path / "nowhere")
    (tmp_path / "b.txt").write_text("version: 100\n")
    with pytest.raises(EspalierError, match="a model of CRF.. has the names of its labels in it: leave --labels out"):
        importing.read(tmp_path / "b.txt", names)


def changed(number, line):
    """The file of the course with another line of that number."""
    lines = COURSE.splitlines()
    lines[number - 1 : number] = [] if line is None else [line]
    return "\n".join(lines) + "\n"


BAD = {
    "start": (changed(2, "0.9 0.0 0.0"), "line 2: the start probabilities add up to 0.9, expected 1 \\(to 1e-06\\)"),
    "row": (changed(4, "0.1 0.0 0.8 0.0"), "line 4: the transition probabilities of state 1 add up to 0.9, expected 1"),
    "column": (changed(7, "0.2 0.6 0.0 0.0 b"), "lines 6 to 8: column 1, the emission probabilities of state 0, add up "
               "to 0.9, expected 1"),
    "negative": (changed(3, "-0.2 0.5 0.7 0.0"), "line 3 has '-0.2', expected a probability from 0 to 1"),
    "minus infinity": (changed(3, "-inf 0.5 0.3 0.0"), "line 3 has '-inf', expected a probability"),
    "infinity": (changed(2, "inf 0 0"), "line 2 has 'inf', expected a probability"),
    "no number": (changed(3, "nan 0.5 0.3 0.0"), "line 3 has 'nan', expected a probability"),
    "a word": (changed(6, "0.0 half 1.0 0.0 a"), "line 6 has 'half', expected a probability"),
    "above one": (changed(6, "0.0 0.3 1.1 0.0 a"), "line 6 has '1.1', expected a probability"),
    "python's number": (changed(2, "1_0e-1 0 0"), "line 2 has '1_0e-1', expected a probability"),
    "too few": (changed(3, "0.2 0.8 0.0"), "line 3 has 3 fields, expected 4 numbers for the transitions of state 0"),
    "too many": (changed(2, "1.0 0.0 0.0 0.0"), "line 2 has 4 fields, expected 3 numbers for the start probabilities"),
    "no symbol": (changed(8, "0.7 0.1 0.0 0.0"), "line 8 has 4 fields, expected 4 numbers and the symbol for the"),
    "final emits": (changed(8, "0.7 0.1 0.0 0.5 c"), "line 8: the final state emits 'c' with 0.5, expected 0 in the "
                    "last column"),
    "silent state": (COURSE.replace(" 1.0 0.0 a", " 0.0 0.0 a"), "lines 6 to 8: column 3, the emission probabilities "
                     "of state 2, is 0 throughout, expected a state to emit something"),
    "twice": (changed(8, "0.7 0.1 0.0 0.0 a"), "line 8 has the symbol 'a', which is that of line 6, too: expected "),
    "a line less": (changed(8, None), "it has 7 lines, expected 8: the head, the start, 3 of transitions and 3 of"),
    "a line more": (COURSE + "0 0 0 0 d\n", "it has 9 lines, expected 8"),
    "no sizes": (changed(1, "HMM four 3"), "line 1 is 'HMM four 3', expected `HMM n m` with the sizes n and m"),
    "one size": (changed(1, "HMM 4"), "line 1 is 'HMM 4', expected `HMM n m`"),
    "no state": (changed(1, "HMM 1 3"), "line 1 says 1 states and 3 symbols, expected 2 states at least"),
    "beyond all memory": (changed(1, "HMM 4000000 900000000000"), "line 1 says 4,000,000 states and 900,000,000,000 "
                          "symbols, which are [0-9,]* numbers: expected them in the 1[0-9]* bytes of the file"),
    "beyond integers": (changed(1, f"HMM {10**30} 3"), "line 1 is 'HMM 10*0 3', expected"),
    "only unknown": (f"HMM 2 1\n1\n.5 .5\n1 0 {UNKNOWN}\n", "line 4 is the only symbol and stands for unknown ones"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_files_that_are_not_as_they_should_be(what):
    text, message = BAD[what]
    with pytest.raises(EspalierError, match=f"^bad.hmm: {message}.*; mend the file or write it again$"):
        read_hmm(text.encode(), "bad.hmm")


def test_other_bytes():
    with pytest.raises(EspalierError, match="bad.hmm: the text .* is not UTF-8"):
        read_hmm(b"HMM 2 1\n\xff\n", "bad.hmm")
    crlf = read_hmm(COURSE.replace("\n", "\r\n").encode() + b"\r\n", "a")
    assert crlf.observations == read_hmm(COURSE.encode(), "a").observations
    rounded = read_hmm(COURSE.replace("0.5 0.3", "0.5000004 0.3").encode(), "a")
    assert rounded.states().transitions[0, 1] == pytest.approx(0.5000004, abs=SAME)


@pytest.mark.parametrize("symbol", ["", " a", "a\n", UNKNOWN, "a\r"])
def test_symbols_that_cannot_be_written(symbol):
    model = CRF(family="hmm").fit([["a", "b"]], [["X", "Y"]]).model_
    model.observations[model.observations.index("U:a")] = f"U:{symbol}"
    with pytest.raises(EspalierError, match="^the model has the symbol .*expected symbols that can stand at the end"):
        write_hmm(model)


def test_a_model_of_several_streams_cannot_be_written():
    model = CRF(["U0:%x[0,0]", "U1:%x[-1,0]", "B"], family="hmm").fit([["a", "b"]], [["X", "Y"]]).model_
    with pytest.raises(EspalierError, match="emits 2 observations at a position .U0:%x.0,0., U1:.*, the text format"):
        write_hmm(model)


# ---- graphs


def test_a_graph_of_the_transitions():
    states = read_hmm(COURSE.encode(), "a").states()
    edges = {line.split(" [")[0].strip(): line for line in as_dot(states).splitlines() if "->" in line}
    expected = {"start -> s0": "1", "s0 -> s0": "0.2", "s0 -> s1": "0.5", "s0 -> s2": "0.3", "s1 -> s0": "0.1",
                "s1 -> s2": "0.9", "s2 -> s2": "0.4", "s2 -> end": "0.6"}  # fmt: skip
    assert edges.keys() == expected.keys()
    assert all(f'label="{expected[edge]}"' in line for edge, line in edges.items())
    few = [line for line in as_dot(states, 0.5).splitlines() if "->" in line]
    assert len(few) == 4
    with pytest.raises(EspalierError, match="the threshold is 2: expected a probability from 0 to 1"):
        as_dot(states, 2.0)


def test_names_are_no_commands_of_the_graph():
    states = read_hmm(COURSE.encode(), "a", ['"]; x', "back\\slash", "two\nlines"]).states()
    text = as_dot(states)
    assert 's0 [label="\\"]; x"];' in text and 's1 [label="back\\\\slash"];' in text
    assert 's2 [label="two lines"];' in text and text.count("\n") == text.strip().count("\n") + 1
