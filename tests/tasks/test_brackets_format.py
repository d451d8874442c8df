"""Trees in Penn brackets as tables of tokens: read in pieces, cleaned, refused by file and line."""

import gzip

import polars as pl
import pytest
from tree_data import trees

from espalier.engine.errors import EspalierError
from espalier.engine.labels.trees import cleaned, leaves, pieces, read_trees
from espalier.tasks import formats
from espalier.tasks.formats import Reading

TEXT = """( (S (NP-SBJ-1 (DT The) (NN dog))
       (VP (VBZ sees)
           (NP=2 (NN town)) (NP (-NONE- *T*-1)))) )

just some words
(S (VP (VB Go)))
"""


def read(path, text, labelled=True, block_tokens=1_000_000, notes=None, **options):
    path.write_text(text) if isinstance(text, str) else path.write_bytes(text)
    return pl.concat(list(formats.read_located([path], Reading(**options), labelled, block_tokens, notes)))


def test_trees_on_many_lines_and_words_without_a_tree(tmp_path):
    notes = {}
    found = read(tmp_path / "a.mrg", TEXT, notes=notes)
    assert found["x0"].to_list() == "The dog sees town just some words Go".split()
    assert found["x1"].to_list() == "DT NN VBZ NN just some words VB".split()
    assert found["label"].to_list()[:4] == ["(TOP(S(NP(DT*)", "(NN*))", "(VP(VBZ*)", "(NP(NN*)))))"]
    assert found["label"].to_list()[4:] == ["", "", "", "(TOP(S(VP(VB*))))"]
    assert found["sequence"].to_list() == [0, 0, 0, 0, 1, 1, 1, 2] and found["line"].to_list()[3:5] == [1, 5]
    assert notes == {"without a tree": 1}
    kept = read(tmp_path / "a.mrg", TEXT, functions=True)
    assert kept["label"][0] == "(TOP(S(NP-SBJ-1(DT*)" and kept["label"][3] == "(NP=2(NN*)))))"
    assert "label" not in read(tmp_path / "a.mrg", TEXT, labelled=False).columns


def test_pieces_of_any_size_and_compression_are_the_same(tmp_path, monkeypatch):
    text = "\n".join(tree.replace(" (VP", "\n   (VP") for tree in trees(60)) + "\n"
    whole = read(tmp_path / "a.brackets", text)
    expected = [cleaned(tree) for tree in read_trees(text)]
    assert whole["label"].to_list() == [piece for tree in expected for piece in pieces(tree)]
    assert whole["x0"].to_list() == [word for tree in expected for _, word in leaves(tree)]
    monkeypatch.setattr(formats, "CHUNK_BYTES", 300)
    assert read(tmp_path / "a.brackets", text).equals(whole)
    assert read(tmp_path / "b.mrg.gz", gzip.compress(text.encode())).equals(whole)
    assert max(len(block) for block in formats.read_blocks([tmp_path / "b.mrg.gz"], Reading(), True, 50)) <= 50


def test_brackets_without_labels_are_partial(tmp_path):
    found = read(tmp_path / "a.mrg", "((DT NN) VB (DT NN))\nDT (JJ NN)\n\n", bare=True)
    assert found["label"].to_list() == ["((*", "*)", "*", "(*", "*))", "(*", "(*", "*))"]
    assert found["x0"].to_list() == found["x1"].to_list() == "DT NN VB DT NN DT JJ NN".split()


def test_what_is_left_of_a_tree_without_words_is_counted(tmp_path):
    notes = {}
    assert len(read(tmp_path / "a.mrg", "(S (NP (-NONE- *)))\n(S (VB Go))", notes=notes)) == 1
    assert notes == {"empty trees": 1}


@pytest.mark.parametrize(
    "text, told",
    [("(S (NN a))\n(S (NP (NN b))\n(S (NN c))", "line 2 of {}: a bracket opens that is never closed"),
     ("(S (NN a))\n(S (NN b)))\n(S (NN c))", "line 2 of {}: a bracket closes that was not opened"),
     ("(S (NN a))\n\n(S (NP) (VB b))", "line 3 of {}: a bracket has nothing in it but 'NP': expected brackets"),
     ("(S (NN a))\n()", "line 2 of {}: a bracket has nothing in it"),
     ("(S (NN a)) b", "line 1 of {}: 'b' stands outside of them"), ("a (NN b)", "line 1 of {}: 'a' stands outside"),
     ("(S (NN a)\n(NP b c))", "line 2 of {}: 'b' stands beside others"),
     ("(S (N* a))", "line 1 of {}: the label 'N*' has a bracket or an asterisk"),
     ("\n \n", "{}: holds no tree and no word"), (b"(S (NN \xff))\n", "line 1 of {}: byte 0xff is not UTF-8")],
)  # fmt: skip
def test_what_is_wrong_is_named_by_file_and_line(tmp_path, text, told):
    path = tmp_path / "a.mrg"
    with pytest.raises(EspalierError) as error:
        read(path, text)
    assert str(error.value).startswith(told.format(path))


@pytest.mark.parametrize("option", [{"unknown": "_"}, {"set_separator": "|"}, {"scheme_out": "iob2"}])
def test_what_trees_do_not_have_is_refused(tmp_path, option):
    with pytest.raises(EspalierError, match="the files hold trees, which have no such labels: set ingest"):
        read(tmp_path / "a.mrg", TEXT, **option)
