"""What is too large is refused in words, with its place, before it is in memory."""

import gzip
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from small_models import model_of
from stage_runs import run_stages

from espalier.engine.errors import EspalierError
from espalier.tasks import formats, limits
from espalier.tasks.answering import incoming, stream
from espalier.tasks.formats import jsonl, libsvm, streams
from espalier.tasks.formats.reading import Reading
from espalier.tasks.params import Params

MIB = 1 << 20


def pack(path, pieces):
    """A compressed file of these bytes, whatever they unpack to."""
    if path.suffix == ".gz":
        with gzip.open(path, "wb", 1) as file:
            for piece in pieces:
                file.write(piece)
    else:
        with pa.CompressedOutputStream(str(path), "zstd") as file:
            for piece in pieces:
                file.write(piece)
    return path


def peak(call):
    """The error that a call ends with, and the most memory that Python took meanwhile."""
    tracemalloc.start()
    try:
        with pytest.raises(EspalierError) as caught:
            call()
        return str(caught.value), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("name", ["a.conll", "a.jsonl", "a.conllu"])
def test_a_line_without_end_is_refused_while_it_is_read(tmp_path, name, suffix):
    path = pack(tmp_path / f"{name}{suffix}", [b"\n\n", *[b"a" * MIB] * 200])
    text, memory = peak(lambda: list(formats.read_blocks([path], Reading(), labelled=True)))
    assert text.startswith(f"line 3 of {path} has more than 16,777,216 bytes, the longest line that is read")
    assert memory < 80 * MIB


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("name", ["a.conll", "a.conll.gz"])
def test_tagging_refuses_a_line_without_end(tmp_path, name, words):
    path = tmp_path / name
    pieces = [b"a\n\n", *[b"a" * MIB] * 200]
    pack(path, pieces) if name.endswith(".gz") else path.write_bytes(b"".join(pieces))
    text, memory = peak(lambda: list(stream.tag_file(model_of(), str(path), stream.Asked(words=words))))
    assert text.startswith(f"line 3 of {path} has more than 16,777,216 bytes")
    assert memory < 80 * MIB


def test_counts_of_documents_have_lines_too(tmp_path):
    path = pack(tmp_path / "a.svm.gz", [b"+1 1:1\n", *[b"1" * MIB] * 20])
    with pytest.raises(EspalierError, match=r"line 2 of .*a\.svm\.gz has more than 16,777,216 bytes"):
        libsvm.read(path)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("text", [b"abcde\nabcdefg", b"abcdefg\na", b"\n\nabcdef\n", b"abcdef"])
def test_where_the_pieces_are_cut_does_not_matter(monkeypatch, text, size):
    monkeypatch.setattr(limits, "LONGEST_LINE", 5)
    line = next(i for i, found in enumerate(text.split(b"\n"), 1) if len(found) > 5)
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    with pytest.raises(EspalierError, match=f"^line {line} of some file has more than 5 bytes"):
        list(limits.bounded_lines(pieces, "some file"))
    shorter = [piece.replace(b"f", b"").replace(b"g", b"") for piece in pieces]
    assert b"".join(limits.bounded_lines(shorter, "some file")) == b"".join(shorter)


def test_a_sequence_without_end_is_refused_while_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LONGEST_SEQUENCE", 4 * MIB)
    path = pack(tmp_path / "a.conll.gz", [b"a X\n\n", *[b"a X\n" * (MIB // 4)] * 50])
    expected = "the sequence from line 3 of {} on has more than 4,194,304 bytes and no empty line"
    with pytest.raises(EspalierError) as caught:
        list(formats.read_blocks([path], Reading(), labelled=True))
    assert str(caught.value).startswith(expected.format(path))
    with pytest.raises(EspalierError) as caught:
        list(stream.tag_file(model_of(), str(path)))
    assert str(caught.value).startswith(expected.format(path))


def test_sequences_have_so_many_tokens_at_most(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_text('{"tokens": ["a"], "labels": ["X"]}\n{"tokens": ["a", "b", "c"], "labels": ["X", "X", "X"]}\n')
    monkeypatch.setattr(limits, "MOST_TOKENS", 2)
    with pytest.raises(EspalierError, match=r"the sequence from line 2 of .* on has 3 tokens, expected at most 2: cut"):
        list(formats.read_blocks([path], Reading(), labelled=True))
    with pytest.raises(EspalierError, match="the sequence from line 1 of standard input on has 3 tokens"):
        list(stream.answers(model_of(), [b"a\nb\na\n\n"], incoming.STANDARD_INPUT))


def test_a_word_of_many_characters_is_refused_and_one_of_a_hundred_thousand_is_not():
    words, model = stream.Asked(words=True), model_of()
    with pytest.raises(
        EspalierError, match="line 1 of standard input on has 1,000,001 tokens, expected at most 1,000,000"
    ):
        list(stream.answers(model, [b"a" * 1_000_001], incoming.STANDARD_INPUT, words))
    (answer,) = stream.answers(model, [b"a" * 100_000], incoming.STANDARD_INPUT, words)
    assert answer.count(b" ") == 99_999


def test_lines_of_very_many_columns(tmp_path):
    path = tmp_path / "a.conll"
    path.write_bytes(b"a " * 100_000 + b"X\n")
    for call in (
        lambda: list(formats.read_blocks([path], Reading(), labelled=True)),
        lambda: list(stream.tag_file(model_of(), str(path))),
    ):
        with pytest.raises(EspalierError, match=r"line 1 of .*a\.conll has 100,00[01] columns, expected at most 1,000"):
            call()


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_what_unpacks_to_far_more_than_it_is(tmp_path, monkeypatch, suffix):
    path = pack(tmp_path / f"a.conll{suffix}", [b"a X\n\n" * (MIB // 5)] * 20)
    assert sum(map(len, streams.pieces(path))) > 19 * MIB
    monkeypatch.setattr(limits, "UNPACKED", 4 * MIB)
    with pytest.raises(EspalierError, match=r"a\.conll.*: unpacks to more than 100 times its size .* unpack it first"):
        list(streams.pieces(path))
    if suffix == ".gz":
        with pytest.raises(EspalierError, match="unpacks to more than 100 times its size"):
            list(stream.tag_file(model_of(), str(path)))


def test_a_corpus_of_ordinary_text_unpacks(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "UNPACKED", 1000)
    rng = np.random.default_rng(0)
    text = "".join(f"{word} X\n\n" for word in rng.integers(0, 1 << 40, 20_000)).encode()
    path = pack(tmp_path / "a.conll.gz", [text])
    assert b"".join(streams.pieces(path)) == text


def test_a_pipe_that_comes_drop_by_drop_is_read_once(monkeypatch):
    """Each byte is looked at a few times, not once for each piece that comes after it."""
    looked = []
    real = incoming._after_empty_line
    monkeypatch.setattr(
        incoming, "_after_empty_line", lambda data, low: looked.append(len(data) - low) or real(data, low)
    )
    pieces = [b"aaaaaaaaa\n"] * 2000
    assert b"".join(incoming.whole(pieces)) == b"".join(pieces)
    assert sum(looked) <= 2 * 10 * 2000


def test_half_characters_in_json_are_refused_with_their_line(tmp_path):
    path = tmp_path / "a.jsonl"
    for tokens, labels, name in (('"a\\ud800"', '"X"', "tokens"), ('"a"', '"X\\udfff"', "labels")):
        line = f'{{"tokens": [{tokens}], "labels": [{labels}]}}\n'
        path.write_text('{"tokens": ["a"], "labels": ["X"]}\n' + line)
        with pytest.raises(EspalierError, match=f"line 2 of .*: {name} holds half a character"):
            list(jsonl.read(path, Reading(), True, 1000, {}))


LONG = "x" * 5_000_000


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("a.conllu", f"{LONG}\ta\ta\tX\t_\t_\t_\t_\t_\t_\n", {}),
        ("a.jsonl", f'{{"tokens": ["a"], "{LONG}": ["X"]}}\n', {}),
        ("a.jsonl", f'{{"tokens": "{LONG}", "labels": ["X"]}}\n', {}),
        ("a.jsonl", f'{{"tokens": ["a"], "labels": ["{LONG}\\ud800"]}}\n', {}),
        ("a.jsonl", f'{{"tokens": ["a"], "labels": ["X"]}} {LONG}\n', {}),
        ("a.conll", f"a I-{LONG}\n", {"scheme_in": "bioes", "scheme_out": "iob2"}),
        ("a.conll", f"a {LONG}||b\n", {"set_separator": "|"}),
    ],
)
def test_messages_are_short_however_long_a_field_is(tmp_path, name, text, options):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(EspalierError) as caught:
        list(formats.read_blocks([path], Reading(**options), labelled=True))
    assert str(path) in str(caught.value) and len(str(caught.value)) < 1000


def test_counts_and_known_labels_in_messages_are_short(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text(f"+1 {LONG}:1\n")
    with pytest.raises(EspalierError) as caught:
        libsvm.read(path)
    assert len(str(caught.value)) < 1000
    with pytest.raises(EspalierError) as caught:
        list(stream.answers(model_of(), [f"a {LONG}\n".encode()], "some file", stream.Asked(known=1)))
    assert len(str(caught.value)) < 1000


def test_more_labels_than_their_pairs_can_be_scored_stop_at_template(tmp_path):
    """Before anything of labels times labels is made: 200,000 of them would take 300 GiB."""
    (tmp_path / "many.conll").write_text("".join(f"w{i} L{i}\n\n" for i in range(200_000)))
    params = Params()
    params.ingest.source, params.ingest.path, params.ingest.limit = "files", "many.conll", None
    params.template.lines = ["U:%x[0,0]", "B"]
    run_stages(tmp_path, params, "ingest")
    with pytest.raises(EspalierError, match=r"train\.arrow: .* different labels, expected at most 8,192"):
        run_stages(tmp_path, params, "template")
