"""Observations found by hash against expansions written out and looked up in a dict."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from espalier.engine.text import lookup
from espalier.engine.text.templates import expand_rows, parse

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=100)
# Few values, so that they repeat; among them boundary values, the empty text and what runs together with its neighbour.
VALUES = ("a", "b", "aa", "ab", "", "_x-1", "_x+1", "_x", "\x00", "é", "漢", "😀")
LITERALS = ("", ":", "a", "é", "_x")


@st.composite
def cases(draw):
    """Sequences of rows, template lines, and a seed that says which expansions the vocabulary holds."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    width = int(rng.integers(1, 4))
    sequences = [
        [tuple(VALUES[i] for i in rng.integers(len(VALUES), size=width)) for _ in range(rng.integers(1, 6))]
        for _ in range(rng.integers(1, 5))
    ]
    lines = set()
    for _ in range(rng.integers(1, 5)):
        line = str(rng.choice(list("UB*"))) + str(rng.choice(LITERALS))
        for _ in range(rng.integers(0, 4)):
            at = "@" if rng.random() < 0.3 else ""
            line += f"%x[{at}{rng.integers(-7, 8)},{rng.integers(width)}]" + str(rng.choice(LITERALS))
        lines.add(line)
    return sequences, sorted(lines), int(rng.integers(2**32))


def written_out(sequences, templates):
    return [row for rows in sequences for row in expand_rows(templates, rows)]


def found_by_hash(sequences, templates, names):
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in sequences])]).astype(np.int64)
    columns = [
        pa.array([row[c] for rows in sequences for row in rows], pa.large_string()) for c in range(len(sequences[0][0]))
    ]
    return lookup.find(lookup.make_vocabulary(names), templates, columns, offsets)


def some_names(texts, seed):
    """About half of the texts, in any order, among others that begin or go on like them."""
    rng = np.random.default_rng(seed)
    every = sorted({text for row in texts for text in row})
    others = {text + "a" for text in every} | {text[:-1] for text in every} | {"Uz"}
    kept = [text for text in every if rng.random() < 0.5]
    names = sorted({*kept, *others} - (set(every) - set(kept)))
    return [names[i] for i in rng.permutation(len(names))]


@EXAMPLES
@given(cases(), st.sampled_from([1, 4, lookup.MEMORY]))
@example(([[("a",)]], ["U:%x[-999999999,0]/%x[999999999,0]"], 1), 1)
@example(([[("a",)]], ["U:%x[@-999999999,0]/%x[@999999999,0]"], 1), 1)
@example(([[("a",)] * 3, [("b",)]], ["U:" + "%x[0,0]%x[1,0]" * 20], 1), 4)
@pytest.mark.nojit
def test_ids_are_those_of_expansions_written_out(case, memory):
    """Also when the memory forgets at each step, when keys do not fit a number, and far beyond the edges."""
    sequences, lines, seed = case
    templates = parse(lines)
    texts = written_out(sequences, templates)
    names = some_names(texts, seed)
    known = {text: i for i, text in enumerate(names)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookup, "MEMORY", memory)
        found = found_by_hash(sequences, templates, names)
    assert found.dtype == np.int32 and found.flags.c_contiguous
    assert found.tolist() == [[known.get(text, -1) for text in row] for row in texts]


def texts_with_one_hash():
    """Two texts of eight letters that have the same hash: among 200,000 about five such pairs are to be expected."""
    letters = np.random.default_rng(0).integers(ord("a"), ord("z") + 1, (200_000, 8)).astype(np.uint64)
    value = np.zeros(len(letters), np.uint64)
    for column in letters.T:
        value = (value * lookup.BASE + column + lookup.ONE) & lookup.LOW
    order = np.argsort(value, kind="stable")
    words = [bytes(row.astype(np.uint8)).decode() for row in letters[order]]
    same = np.flatnonzero(np.diff(value[order]) == 0)
    return next((words[i], words[i + 1]) for i in same if words[i] != words[i + 1])


def test_equal_hashes_of_different_texts():
    one, other = texts_with_one_hash()
    hashes = lookup.make_vocabulary([one, other]).hash
    assert hashes[0] == hashes[1], "the test's own hash is not the engine's"
    templates, sequences = parse(["U%x[0,0]"]), [[(one,), (other,), (one,)]]
    assert found_by_hash(sequences, templates, ["U" + one]).tolist() == [[0], [-1], [0]]
    assert found_by_hash(sequences, templates, ["U" + other, "U" + one]).tolist() == [[1], [0], [1]]


def test_slices_of_arrays_and_an_empty_vocabulary():
    column = pa.array(["x", "a", "bb", "x"], pa.large_string())[1:3]
    find = lookup.find
    templates, offsets = parse(["U%x[0,0]"]), np.array([0, 2])
    assert find(lookup.make_vocabulary(["Ubb", "Ua"]), templates, [column], offsets).tolist() == [[1], [0]]
    assert find(lookup.make_vocabulary([]), templates, [column], offsets).tolist() == [[-1], [-1]]


def test_no_token():
    nothing = pa.array([], pa.large_string())
    found = lookup.find(lookup.make_vocabulary(["U"]), parse(["U", "U%x[1,0]"]), [nothing], np.array([0]))
    assert found.shape == (0, 2)
