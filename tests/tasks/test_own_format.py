"""Files are tagged as training read them: starts of documents, comments, columns, formats, and their own scheme."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import model_of
from stage_runs import run_stages

from espalier.engine.errors import EspalierError
from espalier.engine.families import load as load_model
from espalier.engine.labels.spans import spans
from espalier.tasks import formats, store
from espalier.tasks.answering import stream
from espalier.tasks.answering.own_format import COMPRESSED, SCHEMES, SUFFIXES, Letters, OwnFormat
from espalier.tasks.answering.tagging import tag
from espalier.tasks.params import Ingest, Params

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=150)
MODEL = model_of()


def told(model=MODEL, **reading):
    """The model with what it knows of its files."""
    model = model_of(labels=tuple(model.labels))
    model.info["reading"] = reading
    return model


def answer(model, text, pieces=None, **asked):
    data = [text] if pieces is None else [text[i : i + pieces] for i in range(0, len(text), pieces)]
    return b"".join(stream.answers(model, data, "in", stream.Asked(**asked)))


def tagged(model, words):
    """The labels of each word, one letter a token, each alone."""
    return [
        answer(model, f"{word}\n".encode(), words=True).decode().rstrip("\n").split("\t")[1].split() for word in words
    ]


def test_the_suffixes_are_those_of_the_formats():
    columns = formats.FORMATS["conll"].suffixes
    known = {suffix: name for name, item in formats.FORMATS.items() for suffix in item.suffixes}
    assert SUFFIXES == {suffix: name for suffix, name in known.items() if suffix not in columns}
    assert COMPRESSED == formats.COMPRESSED


def test_a_start_of_a_document_is_passed_through_and_ends_a_sequence():
    ab, c = tagged(MODEL, ["ab", "é"])
    text = b"-DOCSTART- -X-\n\na x\nb x\n-DOCSTART- -X-\n\xc3\xa9 x\n"
    said = answer(MODEL, text).decode()
    assert said == f"-DOCSTART- -X-\n\na\tx\t{ab[0]}\nb\tx\t{ab[1]}\n\n-DOCSTART- -X-\né\tx\t{c[0]}\n"
    kept = answer(told(docstart=None), b"-DOCSTART- -X-\n").decode()
    assert kept.startswith("-DOCSTART-\t-X-\t") and len(kept.split("\t")) == 3  # a token like any other


def test_comments_are_passed_through_where_they_stood():
    abb, b = tagged(MODEL, ["abb", "b"])
    text = b"# one\na\n# two\nb\nb\n# three\n\n# four\n\nb\n# five\n"
    said = answer(told(comment="#"), text).decode()
    assert said == (f"# one\na\t{abb[0]}\n# two\nb\t{abb[1]}\nb\t{abb[2]}\n# three\n\n# four\n\nb\t{b[0]}\n# five\n")
    assert answer(told(comment="#"), text, scores=True).count(b"# four\n\n") == 1


LINES = st.lists(st.sampled_from(["a", "b", "", "# c", "-DOCSTART-", "-DOCSTART- x"]), max_size=9)


@EXAMPLES
@given(LINES, st.sampled_from([1, 3, 7]))
def test_sequences_are_those_of_ingest_and_no_answer_depends_on_pieces(tmp_path_factory, lines, size):
    lines = [line for line in lines if line != "-DOCSTART- x"]
    text, model = ("\n".join(["a", *lines]) + "\n").encode(), told(comment="#")
    path = tmp_path_factory.mktemp("same", numbered=True) / "a.conll"
    path.write_bytes(text)
    read = list(formats.read_blocks([path], formats.Reading(comment="#"), False))
    words = ["".join(part["x0"]) for block in read for part in block.partition_by("sequence", maintain_order=True)]
    said = answer(model, text)
    assert said == answer(model, text, pieces=size)
    labels = [line.split("\t")[1] for line in said.decode().split("\n") if "\t" in line]
    assert labels == [label for word in tagged(model, words) for label in word]
    passed = [line for line in said.decode().split("\n") if line and "\t" not in line]
    assert passed == [line for line in lines if line.startswith(("#", "-DOC"))]


def test_a_label_column_at_the_front_is_no_input():
    model = told(inputs=1, label_column=0)
    (label,) = tagged(model, ["a"])
    assert answer(model, b"GOLD a\n") == f"GOLD\ta\t{label[0]}\n".encode()
    assert answer(model, b"a\n") == f"a\t{label[0]}\n".encode()


def test_the_separator_of_the_files_is_that_of_the_answers():
    (label,) = tagged(MODEL, ["a"])
    assert answer(told(separator=","), b"a,b c\n") == f"a,b c,{label[0]}\n".encode()


# ---- the scheme


def names(rows):
    return [label for row in rows for label in row]


LABELS = st.sampled_from(["O", "B-X", "I-X", "E-X", "S-X", "B-Y", "I-Y", "E-Y"])
CHUNKS = st.lists(st.lists(LABELS, min_size=1, max_size=6), min_size=1, max_size=4)


@EXAMPLES
@given(CHUNKS, st.sampled_from(SCHEMES))
def test_entities_are_the_same_in_every_scheme(sequences, scheme):
    labels = sorted(set(names(sequences)))
    offsets = np.cumsum([0, *map(len, sequences)])
    letters = Letters(labels, scheme)
    codes = letters(np.array([labels.index(y) for y in names(sequences)]), offsets)
    out = [letters.names[c] for c in codes]
    for row, lo, hi in zip(sequences, offsets, offsets[1:], strict=False):
        assert {y[0] for y in out[lo:hi]} <= set(
            "O" + {"iob1": "BI", "iob2": "BI", "bioes": "BIES", "bilou": "BILU"}[scheme]
        )
        found = spans(out[lo:hi])
        assert found == spans(row)
        expected = ["O"] * len(row)  # each entity written out by hand
        for n, span in enumerate(found):
            inner = [f"I-{span.kind}"] * (span.end - span.begin)
            touches = n and found[n - 1].end == span.begin and found[n - 1].kind == span.kind
            if scheme == "iob2" or (scheme == "iob1" and touches):
                inner[0] = f"B-{span.kind}"
            if scheme in ("bioes", "bilou"):
                single, end = ("S", "E") if scheme == "bioes" else ("U", "L")
                inner[0] = f"B-{span.kind}"
                inner[-1] = f"{single if len(inner) == 1 else end}-{span.kind}"
            expected[span.begin : span.end] = inner
        assert out[lo:hi] == expected


def test_labels_that_are_no_entities_stay():
    letters = Letters(["NN", "VB-x", "O"], "iob2")
    assert letters(np.array([0, 1, 2, -1]), np.array([0, 4])).tolist() == [0, 1, 2, -1]


TEXT = (
    "".join(f"{w} {y}\n" for w, y in (("Ada", "I-PER"), ("met", "O"), ("Bob", "I-PER"), ("Cy", "B-PER"), (".", "O")))
    + "\n"
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model of BIOES labels from IOB1 files."""
    root = tmp_path_factory.mktemp("own")
    (root / "train.conll").write_text("-DOCSTART- O\n\n" + TEXT * 3)
    (root / "test.conll").write_text(TEXT)
    params = Params()
    params.ingest = Ingest(source="files", path="train.conll", test_path="test.conll", scheme="bioes", limit=None,
                           dev_share=0.0)  # fmt: skip
    params.template.lines = ["U:%x[0,0]", "B"]
    params.crf.rho1, params.train.max_iterations, params.evaluate.decode = 0.01, 30, "posterior"
    run_stages(root, params, "ingest", "template", "weigh", "train", "evaluate")
    return root


def test_a_model_answers_as_its_files_were_written(trained):

    model = load_model(trained / store.CANDIDATE)
    assert {"S-PER", "O"} == set(model.labels) and model.info["decode"] == "posterior"
    own = OwnFormat.of(model.info)
    assert (own.format, own.inputs, own.scheme, own.docstart) == ("conll", 1, "iob1", "-DOCSTART-")
    text = ("-DOCSTART- O\n\n" + TEXT).encode()
    assert (
        answer(model, text).decode()
        == "-DOCSTART- O\n\n"
        + "".join(
            f"{line.replace(' ', chr(9))}\t{line.split()[1]}\n" if line else "\n"
            for line in TEXT.rstrip("\n").split("\n")
        )
        + "\n"
    )
    assert answer(model, b"met\nBob\nCy\n.\n", labels="model").count(b"\tS-PER\n") == 2
    assert answer(model, b"met\nBob\nCy\n.\n", labels="iob2").count(b"\tB-PER\n") == 2


# ---- JSON lines and other formats


def test_json_lines_by_their_name_come_back_with_labels(tmp_path):
    ab, b = tagged(MODEL, ["ab", "b"])
    path = tmp_path / "x.jsonl"
    path.write_text('{"id": 7, "tokens": ["a", "b"]}\n\n{"tokens": ["b"], "labels": ["Q"]}\n')
    said = [json.loads(line) for line in b"".join(stream.tag_file(MODEL, str(path))).decode().splitlines()]
    assert said == [{"id": 7, "tokens": ["a", "b"], "labels": ab}, {"tokens": ["b"], "labels": ["Q"], "predicted": b}]
    columns = b"".join(stream.tag_file(MODEL, str(path), stream.Asked(format="columns"))).decode()
    assert columns == f"a\t{ab[0]}\nb\t{ab[1]}\n\nb\t{b[0]}\n\n"
    model = told(columns=["words"])
    assert json.loads(answer(model, b'{"words": ["b"]}', source="jsonl")) == {"words": ["b"], "labels": b}


def test_tables_and_conllu_by_their_names(tmp_path):
    (ab,) = tagged(MODEL, ["ab"])
    rows = "".join(f"{i}\t{letter}\t_\tX\t_\t_\t0\troot\t_\t_\n" for i, letter in enumerate("ab", 1))
    (tmp_path / "a.conllu").write_text(f"# text = ab\n{rows}\n")
    source = formats.read_blocks([tmp_path / "a.conllu"], formats.Reading(columns=("FORM",)), True)
    formats.write(tmp_path / "a.arrow", source)
    for model, name in ((told(columns=["FORM"]), "a.conllu"), (MODEL, "a.arrow")):
        assert b"".join(stream.tag_file(model, str(tmp_path / name))) == f"a\t{ab[0]}\nb\t{ab[1]}\n\n".encode()


@pytest.mark.parametrize(
    ("text", "asked", "expected"),
    [
        (b'{"tokens": ["a"]}\n', {}, "line 1 of in is a JSON object, expected tokens in columns: say --from jsonl"),
        (b"ARROW1\0\0", {}, "in: it is an Arrow file, expected text"),
        (b"\x28\xb5\x2f\xfdxx", {}, "in: it is compressed by Zstandard, expected text"),
        (b"a\n", {"source": "jsonl"}, "line 1 of in is not JSON"),
        (b'{"tokens": []}\n', {"source": "jsonl"}, "line 1 of in has no token: tokens is empty"),
        (b'{"words": ["a"]}\n', {"source": "jsonl"}, "line 1 of in has no tokens: it has 'words'"),
        (b'{"tokens": ["a b"]}\n', {"source": "jsonl", "format": "columns"}, "the token 'a b', which cannot stand in"),
        (b"a\n", {"decode": "posterior", "scheme": "auto"}, "posterior decoding takes each label by itself"),
        (b"a\n", {"decode": "posterior", "nbest": 2}, "the best labellings are those of Viterbi"),
    ],
)
def test_what_is_plainly_something_else_is_refused_in_words(text, asked, expected):
    with pytest.raises(EspalierError) as caught:
        answer(MODEL, text, **asked)
    assert expected in str(caught.value)


@pytest.mark.parametrize("reading", [["a"], {"docstart": 3}, {"scheme": "bios"}, {"inputs": "2"}, {"columns": [1]}])
def test_a_model_that_says_nonsense_of_its_files_is_refused(reading):
    with pytest.raises(EspalierError, match="of its files, which is no format; train it again"):
        OwnFormat.of({"reading": reading})


# ---- decoders


def test_posterior_decoding_takes_each_label_by_itself():
    from espalier.engine.decoding import decode
    from espalier.tasks.answering.tagging import dataset_of

    words = ["ab/é", "bba", "a/a/", "ééb😀"]
    for seed in range(20):
        model = model_of(seed=seed)
        tokens = tokens_of(words)
        data = dataset_of(model, tokens)
        best = [model.labels[i] for i in decode.marginals(data, model.layout, model.theta).argmax(axis=1)]
        whole = tag(model, tokens)
        text = "\n".join("".join(f"{letter}\n" for letter in word) for word in words).encode()
        said = answer(model, text, decode="posterior").decode().split("\n")
        assert [line.split("\t")[1] for line in said if line] == best
        model.info["decode"] = "posterior"
        assert tag(model, tokens) == best and answer(model, text).decode().split("\n") == said
        if whole != best:
            return
    pytest.fail("the decoders never differ: the test shows nothing")


def tokens_of(words):
    import polars as pl

    rows = [(n, letter) for n, word in enumerate(words) for letter in word]
    return pl.DataFrame({"sequence": pl.Series([n for n, _ in rows], dtype=pl.Int32), "x0": [x for _, x in rows]})


def test_a_decoder_that_is_not_known():
    with pytest.raises(EspalierError, match="decoder 'x' is not known: choose one of viterbi, posterior"):
        MODEL.decoder("x")
