"""Lists of names against a search that tries every length at every place."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import templates as reference

from espalier.engine.errors import EspalierError
from espalier.engine.text.gazetteers import NameList, read_list

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=200)
WORD = st.sampled_from(["a", "b", "A", "c", "é", "É"])
ENTRY = st.tuples(st.lists(WORD, min_size=1, max_size=3), st.sampled_from(["", "\tLOC", "\tper", "\t"]))
LINES = st.lists(ENTRY.map(lambda e: " ".join(e[0]) + e[1]), min_size=1, max_size=6)
SEQUENCES = st.lists(st.lists(WORD, min_size=1, max_size=7), min_size=1, max_size=3)


@EXAMPLES
@given(LINES, SEQUENCES, st.booleans())
def test_values_are_those_of_a_search_by_hand(lines, sequences, lower):
    names = NameList(lines, "names.txt", lower)
    expected = [reference.tag_names(words, lines, lower) for words in sequences]
    assert [names.tags(words) for words in sequences] == expected
    flat = [word for words in sequences for word in words]
    texts = sorted(set(flat))
    codes = np.array([texts.index(word) for word in flat])
    offsets = np.cumsum([0, *map(len, sequences)])
    found = names.find(texts, codes, offsets)  # no match goes over the end of a sequence
    assert [names.values[i] for i in found] == [tag for tags in expected for tag in tags]


def test_the_longest_entry_wins_and_the_leftmost_first():
    names = NameList(["New York\tcity", "New York Times\tpaper", "York Times Square", "New\tword"], "n")
    assert names.tags("the New York Times Square in New York and New Haven".split()) == [
        "O", "B-paper", "I-paper", "I-paper", "O", "O", "B-city", "I-city", "O", "B-word", "O",
    ]  # fmt: skip


def test_the_first_of_equal_entries_counts():
    assert NameList(["Paris\tperson", "", "Paris\tcity"], "n").tags(["Paris"]) == ["B-person"]


def test_no_token():
    names = NameList(["a"], "n")
    assert names.tags([]) == [] and names.find([], np.empty(0, np.int32), np.array([0])).tolist() == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], "n.txt: holds no entry; expected one a line"),
        (["", " "], "n.txt: holds no entry"),
        (["a", "b\tc\td"], "n.txt, line 2: `b\tc\td` has more than one tab"),
        (["\tc"], "n.txt, line 1: `c` has a class but no entry"),
        (["a\tb c"], "n.txt, line 1: class `b c` has a blank in it"),
    ],
)
def test_bad_lists_are_refused(lines, expected):
    with pytest.raises(EspalierError) as caught:
        NameList(lines, "n.txt")
    assert expected in str(caught.value)


def test_files(tmp_path):
    path = tmp_path / "names.txt"
    path.write_bytes("\ufeffZürich\tcity\r\n\r\nBern\r\n".encode())
    assert read_list(path) == ["Zürich\tcity", "", "Bern"]
    path.write_bytes(b"a\nb\xff\n")
    with pytest.raises(EspalierError, match="names.txt, line 2: is not UTF-8; save the list as UTF-8"):
        read_list(path)
    with pytest.raises(EspalierError, match="there is no such list of names; check the file that %l names"):
        read_list(tmp_path / "none.txt")
    with pytest.raises(EspalierError, match="cannot be read"):
        read_list(tmp_path)
