"""Formats of corpora: what is read, what is written, and every refusal with file, line and remedy."""

import gzip
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from corpus_files import (
    arrow_bytes,
    as_conll,
    as_conllu,
    every_format,
    packed,
    parquet_bytes,
    sequences_of,
    token_table,
)  # fmt: skip
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import formats as reference

from espalier.engine.errors import EspalierError
from espalier.tasks import formats, params
from espalier.tasks.formats import Reading, libsvm, schemes, streams

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=40)
UD = "1\t{0}\tl\t{1}\tX\t_\t0\troot\t_\t_\n"


def put(folder, name, data):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


MARKS = {"unknown": "_", "set_separator": "|"}
MARKED = Reading(**MARKS)


def read(path, labelled=True, block_tokens=1000, notes=None, **options):
    """Sequences as the reference gives them."""
    paths = path if isinstance(path, list) else [path]
    return sequences_of(formats.read_blocks(paths, Reading(**(MARKS | options)), labelled, block_tokens, notes))


def refusal(path, **options):
    with pytest.raises(EspalierError) as caught:
        read(path, **options)
    return str(caught.value)


# ---- names


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.conll", "conll"), ("a.txt.gz", "conll"), ("A.TSV.ZST", "conll"), ("x.conllu.gz", "conllu"),
     ("a.b.jsonl", "jsonl"), ("t.feather", "arrow"), ("t.arrow.zst", "arrow"),
     ("t.parquet", "parquet"), ("bow.svm.gz", "libsvm")],
)  # fmt: skip
def test_the_name_tells_the_format(name, expected):
    assert formats.detect(Path("some") / name) == expected


@pytest.mark.parametrize(
    ("name", "found"), [("a.docx", "'.docx'"), ("train", "no ending"), ("esp.train.gz", "'.train'")]
)
def test_a_name_that_tells_nothing(name, found):
    with pytest.raises(EspalierError, match=f"{found}, which tells no format: expected one of .conll, .*--from"):
        formats.detect(name)


def test_an_unknown_format_and_one_without_tokens(tmp_path):
    path = put(tmp_path, "a.svm", "+1 1:1\n")
    assert "format 'csv' is not known: choose one of conll, conllu" in refusal(path, format="csv")
    assert "it has no tokens; choose another format" in refusal(path)


def test_patterns_are_expanded_in_order(tmp_path):
    for name in ("b.conll", "a.conll", "c.txt", "[x].conll"):
        put(tmp_path, name, "a X\n")
    (tmp_path / "d.conll").mkdir()
    assert [p.name for p in formats.expand(tmp_path, "?.conll")] == ["a.conll", "b.conll"]
    assert formats.expand(tmp_path, "c.txt") == [tmp_path / "c.txt"]
    assert formats.expand(tmp_path, "[x].conll") == [tmp_path / "[x].conll"]
    assert formats.expand(tmp_path, str(tmp_path / "a*.conll")) == [tmp_path / "a.conll"]
    with pytest.raises(EspalierError, match=r"\*.jsonl: no file in .* matches; check the pattern"):
        formats.expand(tmp_path, "*.jsonl")
    with pytest.raises(EspalierError, match="nothing.conll: there is no such file; check its name and folder"):
        formats.expand(tmp_path, "nothing.conll")


def test_the_parameters_offer_what_there_is():
    assert params.FORMATS == tuple(name for name, item in formats.FORMATS.items() if item.read)
    assert set(params.SCHEMES) == set(schemes.NAMES)
    defaults = {f: getattr(params.Ingest(), f) for f in ("separator", "comment", "docstart", "label_column", "unknown",
                                                         "set_separator", "columns", "label", "sequence")}  # fmt: skip
    assert defaults == {name: getattr(Reading(), name) for name in defaults}


# ---- blocks


TEXTS = st.text(st.sampled_from("abé漢_|O"), min_size=1, max_size=3)


@st.composite
def corpora_of(draw, width=None):
    """Sequences of (inputs, raw label)."""
    width = width or draw(st.integers(1, 3))
    row = st.tuples(st.tuples(*[TEXTS] * width), st.sampled_from(["X", "Y", "_", "X|Y", "Y|X|Y"]))
    return draw(st.lists(st.lists(row, min_size=1, max_size=5), min_size=1, max_size=6))


@EXAMPLES
@given(corpora_of(), st.sampled_from([1, 2, 3, 7, 1000]), st.sampled_from(["", ".gz", ".zst"]))
def test_blocks_of_any_size_in_any_format_say_the_same(tmp_path_factory, sequences, size, suffix):
    folder = tmp_path_factory.mktemp("blocks", numbered=True)
    expected = reference.finished(sequences)
    for name, data in every_format(sequences):
        path = put(folder, name + suffix, packed(data, suffix))
        blocks = list(formats.read_blocks([path], MARKED, True, size))
        assert sequences_of(blocks) == expected, name
        for block in blocks:
            assert len(block) <= size or block["sequence"].n_unique() == 1
        assert read(path, labelled=False, inputs=len(expected[0][0][0])) == [
            [(x, None) for x, _ in s] for s in expected
        ]


@EXAMPLES
@given(corpora_of(width=3), st.sampled_from([1, 3, 1000]))
def test_universal_dependencies(tmp_path_factory, sequences, size):
    path = put(tmp_path_factory.mktemp("ud", numbered=True), "a.conllu", as_conllu(sequences))
    found = read(path, block_tokens=size)
    assert found == reference.conllu(path.read_bytes())
    assert found == reference.finished([[((*x, "F=1|G=2"), y) for x, y in rows] for rows in sequences])


def test_files_are_numbered_on_with_places(tmp_path):
    paths = [
        put(tmp_path, "a.conll", "a X\n\nb X\nc Y\n"),
        put(tmp_path, "b.jsonl", '\n{"tokens": ["d"], "labels": ["Y"]}'),
    ]
    found = pl.concat(formats.read_located(paths, MARKED, True, 2))
    assert found.rows() == [(0, 0, 1, "a", "X"), (1, 0, 3, "b", "X"), (1, 0, 4, "c", "Y"), (2, 1, 2, "d", "Y")]
    assert found.columns == ["sequence", "file", "line", "x0", "label"]


def test_files_with_other_columns_are_refused(tmp_path):
    paths = [put(tmp_path, "a.conll", "a X\n"), put(tmp_path, "b.conll", "a b X\n")]
    assert "b.conll has 2 input columns, " in refusal(paths) and "a.conll 1: expected the same" in refusal(paths)
    assert "a.conll has 1 input columns, the training file 2: expected the same" in refusal(paths[0], inputs=2)


def test_a_long_sequence_is_one_block(tmp_path):
    path = put(tmp_path, "a.conll", "a X\n\n" + "b X\n" * 5000 + "\nc X\n")
    sizes = [len(block) for block in formats.read_blocks([path], MARKED, True, 10)]
    assert sizes == [1, 5000, 1]


# ---- columns: documents, Wapiti, CRF++


def test_lines_that_begin_a_document_end_a_sequence(tmp_path):
    text = "-DOCSTART- -X- O O\n\na N O\n-DOCSTART- -X- -X-\nb N O\n-DOCSTARTS- N O\n"
    notes = {}
    found = read(put(tmp_path, "a.conll", text), notes=notes, block_tokens=1)
    assert found == [[(("a", "N"), "O")], [(("b", "N"), "O"), (("-DOCSTARTS-", "N"), "O")]]
    assert notes["documents"] == 2
    kept = read(put(tmp_path, "b.conll", "-DOCSTART- O\na O\n"), docstart=None)
    assert kept == [[(("-DOCSTART-",), "O"), (("a",), "O")]]
    tab = read(put(tmp_path, "c.conll", "-DOCSTART-\tO\na b\tO\n"), separator="\t")
    assert tab == [[(("a b",), "O")]]


def test_test_data_without_labels(tmp_path):
    path = put(tmp_path, "a.data", "He PRP\nruns VBZ\n\nNow RB\n")
    assert read(path, labelled=False, inputs=2) == [
        [(("He", "PRP"), None), (("runs", "VBZ"), None)],
        [(("Now", "RB"), None)],
    ]


# ---- labels that are not fully known


def test_a_mark_is_a_label_like_any_other_unless_it_is_asked_for(tmp_path):
    path, texts = put(tmp_path, "a.conll", "a _\nb Y|X\nc X\n"), ["_", "Y|X", "X"]
    blocks = list(formats.read_blocks([path], Reading(), True))
    assert [y for _, y in sequences_of(blocks)[0]] == texts
    formats.write(tmp_path / "b.conll", blocks)
    assert [line.split("\t")[-1] for line in (tmp_path / "b.conll").read_text().split("\n")[:3]] == texts


def test_unknown_labels_and_sets(tmp_path):
    path = put(tmp_path, "a.conll", "a _\nb Y|X\nc X|X\nd X\n")
    assert [y for _, y in read(path)[0]] == ["", "X\x1fY", "X", "X"]
    assert [y for _, y in read(path, unknown=None)[0]] == ["_", "X\x1fY", "X", "X"]
    assert [y for _, y in read(path, set_separator=None)[0]] == ["", "Y|X", "X|X", "X"]


@pytest.mark.parametrize(
    ("label", "what"),
    [("|", "empty member"), ("X|", "empty member"), ("|X", "empty member"), ("X||Y", "empty member"),
     ("X|_", "the mark for unknown, '_'"), ("X\x1fY", "control character")],
)  # fmt: skip
def test_a_bad_set_is_refused_with_its_line(tmp_path, label, what):
    text = refusal(put(tmp_path, "a.conll", f"a X\n\nb {label}\n"), block_tokens=1)
    assert text.startswith("line 3 of ") and repr(label) in text and what in text
    assert "mend it, or set ingest.set_separator to null" in text or "take it out" in text
    rows = [((("a",), "X"),), ((("b",), label),)]
    text = refusal(put(tmp_path, "a.parquet", parquet_bytes(token_table(rows))))
    assert text.startswith("row 2 of ") and what in text


# ---- CoNLL-U


def test_columns_by_name(tmp_path):
    path = put(tmp_path, "a.conllu", "# text\n1\tIt\tit\tPRON\tPRP\tA=1|B=2\t2\tx\t_\t_\n")
    assert read(path) == [[(("It", "it", "PRP", "A=1|B=2"), "PRON")]]
    assert read(path, label="XPOS", columns=("UPOS", "FORM")) == [[(("PRON", "It"), "PRP")]]
    assert read(path, label="XPOS") == [[(("It", "it", "PRON", "A=1|B=2"), "PRP")]]
    assert read(path, label="FEATS", columns=("FORM",), set_separator=None) == [[(("It",), "A=1|B=2")]]


def test_what_is_left_out_is_counted(tmp_path):
    notes = {}
    rows = [[(("a", "l", "N"), "X"), (("b", "l", "N"), "X"), (("c", "l", "N"), "X")]]
    read(put(tmp_path, "a.conllu", as_conllu(rows)), notes=notes)
    assert notes == {"ranges": 2, "empty_nodes": 1}


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("1\ta\n", {}, "line 1 of .* has 2 columns: expected the 10 of CoNLL-U between tabs"),
        (UD.format("a", "X") + "2\tb\n", {}, "line 2 of .* has 2 columns, the lines before it 10"),
        (UD.format("a", "X").replace("1", "one", 1), {}, "line 1 of .*: the ID is 'one', expected a number, a range"),
        (UD.format("a", "X") * 2, {}, "line 2 of .*: the word is numbered 1, expected 2; put an empty line between"),
        (UD.format("a", "X").replace("1", "3", 1), {}, "line 1 of .*: the word is numbered 3, expected 1$"),
        (UD.format("a", "X").replace("1", "9" * 30, 1), {}, "the word is numbered 9+, expected 1$"),
        (UD.format("a", "X") + "\n" + UD.format("b", "X").replace("1", "1-2", 1), {}, "at line 3 of .* has no word"),
        (UD.format("a", ""), {}, "line 1 of .* has no label: fill it in"),
        (UD.format("", "X"), {}, "line 1 of .* has an empty column 0"),
        (UD.format("a", "X"), {"label": "NER"}, "CoNLL-U has no column 'NER': expected one of FORM, LEMMA"),
        (UD.format("a", "X"), {"columns": ("FORM", "UPOS")}, "column UPOS is the label and cannot be an input too"),
        ("# nothing\n\n", {}, "holds no token"),
    ],
)  # fmt: skip
def test_bad_universal_dependencies(tmp_path, text, options, expected):
    with pytest.raises(EspalierError, match=expected):
        read(put(tmp_path, "a.conllu", text), **options)


# ---- JSON lines

GOOD = '{"tokens": ["a"], "labels": ["X"]}\n'


def test_fields_by_name_and_lines_that_are_blank(tmp_path):
    text = '\ufeff{"w": ["a", "b"], "p": ["N", "V"], "ner": ["X", "Y"], "n": {"deep": [1, null]}}\r\n \t\r\n'
    path = put(
        tmp_path, "a.jsonl", text + '{"ner": ["X"], "p": ["N"], "n": "now a text", "w": ["\\u00e9\\ud83d\\ude00"]}'
    )
    found = read(path, columns=("w", "p"), label="ner")
    assert found == [[(("a", "N"), "X"), (("b", "V"), "Y")], [(("é😀", "N"), "X")]]


def test_records_are_taken_by_key_whatever_their_order(tmp_path):
    text = '{"tokens": [{"w": "a", "p": "N"}, {"p": "V", "w": "b"}], "labels": ["X", "Y"]}\n'
    text += '{"tokens": [{"p": "V", "w": "c"}], "labels": ["X"], "extra": 1}\n{"extra": "b", ' + text[1:].split("\n")[0]
    found = read(put(tmp_path, "a.jsonl", text), block_tokens=1)
    assert found[0] == found[2] == [(("a", "N"), "X"), (("b", "V"), "Y")] and found[1] == [(("c", "V"), "X")]


def test_unlabelled_lines_need_no_labels(tmp_path):
    path = put(
        tmp_path, "a.jsonl", '{"tokens": ["a"]}\n{"tokens": ["b"], "labels": null}\n{"tokens": ["c"], "labels": 3}\n'
    )
    assert read(path, labelled=False) == [[(("a",), None)], [(("b",), None)], [(("c",), None)]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", "is not JSON .*expected one object a line such as"),
        ("[1]", r"holds \[1\]; expected an object such as"),
        ("a", "is not JSON"),
        (GOOD.strip() + GOOD.strip(), "is not JSON .*Extra data"),
        (GOOD.strip() + "\0}", "is not JSON"),
        ('{"tokens": ["a"], "labels": [NaN]}', "is not JSON .*NaN"),
        ('{"labels": ["X"]}', "has no tokens: it has 'labels'; expected an object .* name the fields"),
        ('{"tokens": ["a"]}', "has no labels: it has 'tokens'"),
        ('{"tokens": ["a"], "labels": null}', "has no labels"),
        ('{"tokens": "a", "labels": ["X"]}', 'tokens is "a", expected a list of texts'),
        ('{"tokens": [], "labels": []}', "has no token: tokens is empty"),
        ('{"tokens": ["a", "b"], "labels": ["X"]}', "has 2 tokens and 1 labels: expected as many of both"),
        ('{"tokens": ["a"], "labels": [1]}', "labels holds 1 where a text is expected; put it in quotes"),
        ('{"tokens": ["a"], "labels": [null]}', "labels holds null where a text is expected"),
        ('{"tokens": [true], "labels": ["X"]}', "tokens holds true, expected texts or numbers, or lists or"),
        ('{"tokens": [["a"]], "labels": ["X"]}', r'tokens holds \["a"\], the tokens before it have plain texts'),
        ('{"tokens": ["a"], "tokens": ["b"], "labels": ["X"]}', "tokens is something given twice"),
        ('{"tokens": [""], "labels": ["X"]}', "has an empty column 0: fill it in"),
        ('{"tokens": ["a"], "labels": [""]}', "has no label: fill it in"),
        ('{"tokens": ["\\ud800"], "labels": ["X"]}', "tokens holds half a character"),
        ("[" * 100_000, "is not JSON that we read: too many brackets"),
    ],
)  # fmt: skip
def test_bad_json_is_refused_with_its_line(tmp_path, line, expected):
    path = put(tmp_path, "a.jsonl", GOOD + "\n" + line + "\n" + GOOD)
    for size in (1, 1000):
        with pytest.raises(EspalierError, match=f"line 3 of .*a.jsonl.*{expected}"):
            read(path, block_tokens=size)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ('["a", "b"]', '["a"]', r'tokens holds \["a"\], the tokens before it have 2 columns: expected the same'),
        ('{"w": "a"}', '{"w": "a", "p": "b"}', "the tokens before it have the keys w: expected the same"),
        ('{"w": "a", "p": "b"}', '{"w": "a"}', "the tokens before it have the keys w, p: expected the same"),
        ('{"w": "a"}', '["a"]', "the tokens before it have the keys w"),
    ],
)
def test_tokens_of_another_form(tmp_path, first, second, expected):
    lines = [f'{{"tokens": [{token}], "labels": ["X"]}}\n' for token in (first, second)]
    with pytest.raises(EspalierError, match=f"line 2 of .*{expected}"):
        read(put(tmp_path, "a.jsonl", "".join(lines)))


def test_an_empty_file_of_json(tmp_path):
    assert "holds no token; expected one object a line" in refusal(put(tmp_path, "a.jsonl", " \n\n"))


# ---- Arrow and Parquet


def rows_of(*labels, start=0):
    return [[((chr(97 + i),), label)] for i, label in enumerate(labels, start)]


def test_sequences_go_on_over_batches_and_names_are_free(tmp_path):
    table = pa.table({"doc": ["p", "p", "p", "q", "q"], "line": list("abcde"),
                      "tag": pa.array(list("XYXYX")).dictionary_encode(),
                      "weight": [1.0] * 5})  # fmt: skip
    names = {"columns": ("line",), "label": "tag", "sequence": "doc"}
    expected = [[(("a",), "X"), (("b",), "Y"), (("c",), "X")], [(("d",), "Y"), (("e",), "X")]]
    for name, data in (("a.arrow", arrow_bytes(table, rows=1)), ("a.parquet", parquet_bytes(table, rows=1))):
        assert read(put(tmp_path, name, data), **names) == expected
        assert read(put(tmp_path, name, data), block_tokens=1, **names) == expected


def test_several_lists_side_by_side(tmp_path):
    table = pa.table({"words": [["a", "b"]], "pos": [["N", "V"]], "ner": [["X", "Y"]]})
    path = put(tmp_path, "a.parquet", parquet_bytes(table))
    assert read(path, columns=("words", "pos"), label="ner") == [[(("a", "N"), "X"), (("b", "V"), "Y")]]


def test_columns_that_nobody_asked_for_are_not_read(tmp_path):
    """Whatever they hold, and however damaged they are."""
    table = pa.table({"sequence": [0, 1], "x0": ["a", "b"], "label": ["X", "Y"], "noise": ["n" * 500, "m" * 500]})
    expected = [[(("a",), "X")], [(("b",), "Y")]]
    data = arrow_bytes(table)
    at = data.index(b"nnnn")
    path = put(tmp_path, "a.arrow", data[:at] + b"\xff" * 4 + data[at + 4 :])
    assert read(path, columns=("x0",)) == expected
    assert "damaged or not an Arrow file" in refusal(path)
    path = put(tmp_path, "a.parquet", parquet_bytes(table.set_column(3, "noise", pa.array([True, False]))))
    assert read(path, columns=("x0",)) == expected
    assert "column 'noise' is bool, expected text or numbers" in refusal(path)


def test_numbers_are_read_as_the_texts_that_say_them(tmp_path):
    expected = [[(("a", "0.5", "3"), "X"), (("b", "_", "-1"), "Y")]]
    numbers = {"v": pa.array([0.5, None]), "n": pa.array([3, -1], pa.int16())}
    table = pa.table({"sequence": [0, 0], "x0": ["a", "b"], **numbers, "label": ["X", "Y"]})
    assert read(put(tmp_path, "a.arrow", arrow_bytes(table))) == expected
    listed = pa.table({"tokens": [["a", "b"]], "v": [[0.5, None]], "n": [[3, -1]], "labels": [["X", "Y"]]})
    assert read(put(tmp_path, "a.parquet", parquet_bytes(listed)), columns=("tokens", "v", "n")) == expected
    line = '{"tokens": [["a", 0.5, 3], ["b", "_", -1]], "labels": ["X", "Y"]}'
    assert read(put(tmp_path, "a.jsonl", line.encode())) == expected


TOKENS = {"sequence": [0, 0], "x0": ["a", "b"], "label": ["X", "Y"]}


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ({**TOKENS, "sequence": [0, None]}, {}, "row 2 of .* has nothing in column sequence: fill it in"),
        ({**TOKENS, "label": ["X", None]}, {}, "row 2 of .* has no label: fill it in"),
        ({**TOKENS, "x0": [None, "b"]}, {}, "row 1 of .* has nothing in column x0"),
        ({**TOKENS, "x0": ["a", ""]}, {}, "row 2 of .* has an empty column 0"),
        ({**TOKENS, "label": [1, 2]}, {}, "column 'label' is int64, expected text; cast it"),
        ({**TOKENS, "sequence": [0.5, 1.0]}, {}, "column 'sequence' is double, expected whole numbers or text"),
        ({"x0": ["a"], "label": ["X"]}, {}, "has no column 'sequence': it has x0: string, label: string; expected"),
        (TOKENS, {"label": "tag"}, "has no column 'tag'"),
        (TOKENS, {"columns": ("label",)}, "column label cannot be an input too"),
        ({"sequence": [0], "label": ["X"]}, {}, "has no input column: expected at least one beside sequence and label"),
        ({"sequence": [0, 1, 0], "x0": list("abc"), "label": list("XYX")}, {},
         "row 3 of .*: sequence 0 comes again after other sequences: sort the table by sequence"),
        ({"tokens": [["a"], []], "labels": [["X"], []]}, {}, "row 2 of .* has no token: tokens is empty"),
        ({"tokens": [["a"], None], "labels": [["X"], ["X"]]}, {}, "row 2 of .* has no tokens: expected a list"),
        ({"tokens": [["a"], ["b"]], "labels": [["X"], ["X", "Y"]]}, {}, "row 2 of .* has 1 tokens and 2 labels"),
        ({"tokens": [["a"], ["b", None]], "labels": [["X"], ["X", "Y"]]}, {}, "row 2 of .* has no text in tokens"),
        ({"tokens": [[["a"]], [["b", "c"]]], "labels": [["X"], ["X"]]}, {}, "row 2 .* of 2 columns, .* before it 1"),
        ({"tokens": [["a"]], "labels": [[1]]}, {}, "column 'labels' is list.*, expected a list of texts"),
        ({"tokens": [[True]], "labels": [["X"]]}, {}, "row 1 of .* tokens of type bool: expected texts or numbers"),
        ({"tokens": [["a"]]}, {}, "has no column 'labels'"),
    ],
)  # fmt: skip
def test_bad_tables(tmp_path, columns, options, expected):
    table = pa.table(columns)
    for name, data in (("a.arrow", arrow_bytes(table)), ("a.parquet", parquet_bytes(table))):
        with pytest.raises(EspalierError, match=expected):
            read(put(tmp_path, name, data), **options)


def test_a_sequence_that_comes_again_in_a_later_batch(tmp_path):
    table = pa.table({"sequence": ["p", "q", "r", "p"], "x0": list("abcd"), "label": list("XYXY")})
    text = refusal(put(tmp_path, "a.arrow", arrow_bytes(table, rows=1)), block_tokens=1)
    assert text.startswith("row 4 of ") and "sequence 'p' comes again" in text


def test_an_empty_table_and_an_empty_file(tmp_path):
    table = pa.table(
        {"sequence": pa.array([], pa.int32()), "x0": pa.array([], pa.string()), "label": pa.array([], pa.string())}
    )
    assert "holds no token" in refusal(put(tmp_path, "a.arrow", arrow_bytes(table)))
    assert "holds no token" in refusal(put(tmp_path, "a.parquet", parquet_bytes(table)))
    assert "is empty; expected a table" in refusal(put(tmp_path, "b.arrow", b""))
    assert "is empty; expected a table" in refusal(put(tmp_path, "b.parquet.gz", gzip.compress(b"")))


@pytest.mark.parametrize(
    "name", ["tokens.arrow", *(pytest.param(f"tokens.{end}", marks=pytest.mark.long) for end in ("arrows", "parquet"))]
)
def test_a_table_that_is_cut_anywhere_is_refused(tmp_path, name):
    data = dict(every_format(rows_of("X", "Y", "X", "Y")))[name]
    for end in range(len(data)):
        assert refusal(put(tmp_path, name, data[:end]))
    if name == "tokens.arrows":
        assert "something follows the end mark" in refusal(put(tmp_path, name, data + data))


# ---- compressed files


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_data_that_is_cut_anywhere_is_refused(tmp_path, suffix):
    text = "".join(f"w{i} X\n\n" for i in range(30)).encode()
    for data in (packed(text, suffix), packed(text[:90], suffix) + packed(text[90:], suffix)):
        boundary = len(packed(text[:90], suffix)) if data != packed(text, suffix) else None
        assert len(read(put(tmp_path, "a.conll" + suffix, data))) == 30
        for end in range(len(data)):
            if end != boundary:  # there a whole file ends, and nobody can know that there was more
                assert refusal(put(tmp_path, "a.conll" + suffix, data[:end]), block_tokens=50), end


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_what_follows_compressed_data_is_an_error(tmp_path, suffix):
    good = packed(b"a X\n", suffix)
    assert "data is damaged" in refusal(put(tmp_path, "a.conll" + suffix, good + b"more"))
    if suffix == ".gz":
        assert len(read(put(tmp_path, "a.conll.gz", good + b"\0" * 5000))) == 1
        assert len(read(put(tmp_path, "a.conll.gz", good + b"\0" * 5000 + good))) == 1


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_every_flipped_byte_is_noticed_or_harmless(tmp_path, suffix):
    """Headers hold a few bits without meaning; the text is never another one."""
    text = b"".join(b"w%d X\n" % i for i in range(40))
    data = packed(text, suffix)
    expected = read(put(tmp_path, "good.conll", text))
    checked = suffix == ".gz"  # Zstandard has a check sum only if the writer asked for it
    for place in range(len(data)):
        path = put(tmp_path, "a.conll" + suffix, data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        try:
            found = read(path)
        except EspalierError as error:
            assert str(error)
        else:
            assert found == expected or not checked


def test_pieces_are_small_however_well_a_file_is_packed(tmp_path):
    for suffix in (".gz", ".zst"):
        path = put(tmp_path, "a" + suffix, packed(b"a" * 1_000_000, suffix))
        sizes = [len(piece) for piece in streams.pieces(path, 1000)]
        assert sum(sizes) == 1_000_000 and max(sizes) <= 1000


# ---- LIBSVM


def documents(tmp_path, text, size=1 << 20):
    return libsvm.read(put(tmp_path, "a.svm", text), size)


def test_counts_of_documents(tmp_path):
    text = "# head\n+1 1:2 7:0.5 # spam\r\n\n-1\n  2e0\t3:1.  2147483647:.5#\n"
    for size in (1, 10, 1000):
        found = documents(tmp_path, text, size)
        assert found.labels.tolist() == [1, -1, 2] and found.indptr.tolist() == [0, 2, 2, 4]
        assert found.indices.tolist() == [0, 6, 2, 2147483646] and found.counts.tolist() == [2, 0.5, 1, 0.5]
        assert [str(array.dtype) for array in found] == ["float64", "int64", "int32", "float64"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("spam 1:1", "the label is 'spam', expected a number such as"),
        ("nan 1:1", "the label is 'nan'"),
        ("1 0:1", "found '0:1'; indices begin at 1"),
        ("1 -1:1", "found '-1:1'; expected a whole number before the colon"),
        ("1 2:1 1:1", "found '1:1'; indices must ascend: sort the line"),
        ("1 2:1 2:1", "found '2:1'; indices must ascend"),
        ("1 2", "found '2'; expected an index, a colon and a count"),
        ("1 2:3:4", "found '2:3:4'; expected an index, a colon and a count"),
        ("1 qid:3 2:1", "found 'qid:3'; expected a whole number before the colon"),
        ("1 2:x", "the count is 'x', expected a number"),
        ("1 2:1e999", "the count is '1e999', expected a number that is finite"),
        ("1 2:-1", "the count -1 is negative: expected at least 0"),
        ("1 2147483648:1", "found '2147483648:1'; expected an index of at most 2147483647"),
        ("1 99999999999999999999:1", "found .9*:1.; expected an index of at most 2147483647"),
    ],
)
def test_bad_counts(tmp_path, line, expected):
    for size in (1, 1000):
        with pytest.raises(EspalierError, match=f"line 2 of .*a.svm: {expected}"):
            documents(tmp_path, f"1 1:1\n{line}\n", size)


def test_no_document_at_all(tmp_path):
    with pytest.raises(EspalierError, match="a.svm: holds no document; expected lines such as"):
        documents(tmp_path, "# nothing\n")


@pytest.mark.corpus
def test_the_mail_corpus(corpora):
    """The counts that its description states."""
    found = libsvm.read(corpora / "spamassassin/bow.svm.gz")
    assert len(found.labels) == 6046 and (found.labels == 1).sum() == 1896 and len(found.counts) == 773_679
    assert found.indices.max() == 8565 and (found.indptr[1:] == found.indptr[:-1]).sum() == 7


# ---- writing


@EXAMPLES
@given(corpora_of(), st.sampled_from([".conll", ".jsonl", ".arrow"]), st.sampled_from(["", ".gz", ".zst"]),
       st.sampled_from([1, 4, 1000]), st.booleans())  # fmt: skip
def test_what_is_written_is_read_back(tmp_path_factory, sequences, suffix, packing, size, labelled):
    folder = tmp_path_factory.mktemp("written", numbered=True)
    source = put(folder, "a.conll", as_conll(sequences))
    options = Reading(inputs=len(sequences[0][0][0]))
    path = folder / f"out{suffix}{packing}"
    counts = formats.write(path, formats.read_blocks([source], options, labelled, size))
    assert counts == {"sequences": len(sequences), "tokens": sum(map(len, sequences))}
    expected = reference.finished(sequences)
    assert read(path, labelled, inputs=options.inputs) == [
        [(x, y if labelled else None) for x, y in rows] for rows in expected
    ]
    with path.open("rb") as file:
        assert streams.compression_of(path, file) == (packing or None)
    assert [p.name for p in folder.iterdir() if p not in (source, path)] == []
    if suffix == ".conll" and labelled:
        assert reference.conll(b"".join(streams.pieces(path))) == expected


def test_the_bytes_of_each_format(tmp_path):
    path = put(tmp_path, "a.conll", "a N X\nb V _\n\nc N Y|X\n")
    for name, expected in (
        ("o.conll", "a\tN\tX\nb\tV\t_\n\nc\tN\tX|Y\n\n"),
        ("o.jsonl", '{"tokens":[["a","N"],["b","V"]],"labels":["X","_"]}\n{"tokens":[["c","N"]],"labels":["X|Y"]}\n'),
    ):
        formats.write(tmp_path / name, formats.read_blocks([path], MARKED, True), **MARKS)
        assert (tmp_path / name).read_text() == expected
    formats.write(tmp_path / "o.gz", formats.read_blocks([path], MARKED, True), "conll", separator=" ", **MARKS)
    first = (tmp_path / "o.gz").read_bytes()
    assert gzip.decompress(first) == b"a N X\nb V _\n\nc N X|Y\n\n"
    formats.write(tmp_path / "o.gz", formats.read_blocks([path], MARKED, True), "conll", separator=" ", **MARKS)
    assert (tmp_path / "o.gz").read_bytes() == first


def block(*cells, labels=None):
    return pl.DataFrame(
        {"sequence": pl.Series([0] * len(cells), dtype=pl.Int32), "x0": cells, "label": labels or ["X"] * len(cells)}
    )


@pytest.mark.parametrize(
    ("blocks", "options", "expected"),
    [
        ([block("a b")], {}, "column x0 of sequence 0 holds 'a b', which cannot be read back from columns: name a sep"),
        ([block("a|b")], {"separator": "|"}, "holds 'a|b'.*name another separator, or write jsonl or arrow"),
        ([block("a\nb")], {"separator": "|"}, r"holds 'a\\nb', which cannot be read back"),
        ([block("a", labels=["X\r"])], {"separator": "|"}, r"column label of sequence 0 holds 'X\\r'"),
        ([block(" ")], {"separator": "|"}, "holds ' '"),
        ([block("-DOCSTART-")], {}, "holds '-DOCSTART-', which readers of columns take for something else"),
        ([block("a", labels=[""])], {"unknown": None}, "a label is unknown and there is no mark for it: name one"),
        ([block("a", labels=["_"])], {}, "label '_' would be read back as the mark for unknown, '_'"),
        ([block("a", labels=["X|Y"])], {}, r"label 'X|Y' would be read back as the set separator '|'"),
        ([block("a", labels=["X\x1fY"])], {"set_separator": None}, "a label is a set and nothing separates its"),
        ([block("a"), block("a").drop("label")], {}, "a block has columns .*, the first .*: expected the same"),
        ([], {}, "there is nothing to write"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_leaves_the_old_file(tmp_path, blocks, options, expected):
    path = put(tmp_path, "a.conll", "old")
    with pytest.raises(EspalierError, match=expected):
        formats.write(path, blocks, **(MARKS | options))
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_an_error_on_the_way_leaves_nothing(tmp_path):
    source = put(tmp_path, "a.conll", "a X\n\nb\n")
    with pytest.raises(EspalierError, match="line 3 of .* has 1 column"):
        formats.write(tmp_path / "folder" / "out.jsonl.gz", formats.read_blocks([source], MARKED, True, 1))
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [source]


def test_a_format_that_cannot_be_written(tmp_path):
    with pytest.raises(EspalierError, match="format 'parquet' cannot be written: choose one of conll, jsonl, arrow"):
        formats.write(tmp_path / "a.parquet", [block("a")])


@pytest.mark.parametrize(
    ("text", "line", "shown"),
    [("a X\n\ufeff\nb Y\n", 2, r"'\ufeff'"), ("\u200b\n\na X\n", 1, r"'\u200b'"), ("a X\nb\xa0Y\n", 2, r"'b\xa0Y'")],
)
def test_what_cannot_be_seen_is_shown_where_columns_are_missing(tmp_path, text, line, shown):
    said = refusal(put(tmp_path, "a.conll", text))
    assert said.endswith(f"; line {line} holds what cannot be seen: {shown}")
    assert "cannot be seen" not in refusal(put(tmp_path, "b.conll", "a\tX\nb\n"))
