"""A model applied to a file or a stream: whole sequences in, answers out, as soon as they can be given.

What is read is cut behind empty lines (behind lines, where each is a sequence), so an answer depends on its
sequence alone and the bytes of the output never on how the input came. Of a pipe or a terminal whatever is
there is answered at once; a file is read in large blocks. Nothing here loads Polars, Prefect or DVC: a model
file is enough to tag with.
"""

import gzip
import json
import os
import select
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from espalier.engine.data.dataset import UNKNOWN, Dataset
from espalier.engine.data.dataset import select as some_of
from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.families.labeller import Labeller
from espalier.engine.features import columns_needed, features_of
from espalier.engine.labels.scheme import Transitions
from espalier.engine.text import column_text
from espalier.engine.text.column_text import Fields
from espalier.tasks.answering.own_format import Letters, OwnFormat, Passed, format_of, joined_over_comments, set_aside
from espalier.tasks.limits import (
    bounded_lines,
    check_columns,
    check_ratio,
    check_sequence_bytes,
    check_sequence_lengths,
)

BLOCK, SMALL_BLOCK = 1 << 22, 1 << 20  # bytes read at once; the smaller where a token takes a row of numbers
FORMATS = ("columns", "jsonl")
STANDARD_INPUT = "standard input"
MAGIC = {b"ARROW1": "an Arrow file", b"PAR1": "a Parquet file", b"\x28\xb5\x2f\xfd": "compressed by Zstandard",
         b"PK\x03\x04": "a zip archive", b"%PDF": "a PDF file", b"\x7fELF": "a program"}  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """How the input is to be read and what is to be answered."""

    words: bool = False  # each line is a sequence, its characters are the tokens
    separator: str | None = None  # between columns; None is any run of blanks and tabs
    scores: bool = False  # probabilities of labels and sequences
    nbest: int = 0  # labellings with their log-probabilities; 0 is the best alone
    format: str | None = None  # of the answers; None: JSON lines for JSON lines, else columns
    scheme: str | None = None  # of the transitions that are allowed; see engine.labels.scheme
    known: int | None = None  # column of labels that are known beforehand
    unknown: str | None = None  # what stands in it where nothing is known; None: as in the training files, or _
    source: str | None = None  # the format of the input; None: by its name
    decode: str | None = None  # viterbi or posterior; None: as the model says
    labels: str | None = None  # the scheme that labels are answered in; None: that of the training files, model: none
    own: OwnFormat = OwnFormat()  # of the files that the model was trained on

    def completed(self, model: Labeller, file: str = "-") -> "Asked":
        """With what the model knows of its files where nothing was asked for."""
        own = OwnFormat.of(model.info)
        source = "words" if self.words else format_of(file, self.source, own)
        return replace(
            self, own=own, source=source, separator=self.separator or own.separator,
            format=self.format or ("jsonl" if source == "jsonl" else "columns"),
            unknown=self.unknown or own.unknown or "_", decode=model.decoder(self.decode),
            labels=None if self.labels == "model" else self.labels or own.scheme,
        )  # fmt: skip

    def transitions(self, model: Labeller) -> Transitions | None:
        if not self.scheme:
            return None
        from espalier.engine.labels.scheme import transitions_of

        return transitions_of(model.labels, True if self.scheme == "auto" else self.scheme)

    def check(self, model: Labeller) -> None:
        """What can be refused before anything is read."""
        if self.scheme and self.decode == "posterior":
            raise EspalierError(
                "posterior decoding takes each label by itself and cannot keep to a scheme: leave --scheme out, or "
                "say --decode viterbi"
            )
        if self.nbest and self.decode == "posterior":
            raise EspalierError("the best labellings are those of Viterbi: leave --nbest out, or say --decode viterbi")
        if self.known is None:
            return
        if self.words or self.source not in ("conll", None):
            raise EspalierError("known labels need a column of their own: expected input in columns, without --words")
        if self.unknown in model.labels:
            raise EspalierError(
                f"{self.unknown!r} is a label of this model and cannot stand for an unknown one as well: "
                "say with --unknown what does"
            )


class TextBlock(NamedTuple):
    """Whole sequences as they were read: W columns of T texts."""

    columns: list[pa.Array]  # large_string
    offsets: np.ndarray  # int64 [N + 1]
    line: np.ndarray  # int64 [T], number of the line in its file, from 1
    fields: Fields | None = None  # of input in columns
    words: list[str] | None = None  # of input in lines
    passed: tuple[Passed, ...] = ()  # lines between the others that are no tokens
    records: list[dict] | None = None  # of input in JSON lines


# Reading --------------------------------------------------------------------------------------------


@contextmanager
def opened(file: str) -> Iterator[tuple[BinaryIO, str]]:
    """A file, plain or compressed by gzip, or standard input (-), and what to call it in an error."""
    if file == "-":
        yield sys.stdin.buffer, STANDARD_INPUT
        return
    try:
        source = Path(file).open("rb")
    except FileNotFoundError:
        raise EspalierError(f"{file}: there is no such file; check its name and folder") from None
    except OSError as error:
        raise EspalierError(f"{file}: cannot be read ({error.strerror}); expected a readable file") from None
    with source:
        packed = source.peek(2)[:2] == b"\x1f\x8b"
        yield (gzip.GzipFile(fileobj=source) if packed else source), file


def comes_in_pieces(source: BinaryIO) -> bool:
    """Whether someone may wait for an answer before sending more: a pipe, a terminal, a socket; not a file."""
    try:
        return not stat.S_ISREG(os.fstat(source.fileno()).st_mode)
    except (OSError, AttributeError, ValueError):
        return False


def pieces(source: BinaryIO, name: str, size: int = BLOCK) -> Iterator[bytes]:
    """The bytes in blocks; what comes in pieces is taken as it comes."""
    if not isinstance(source, gzip.GzipFile) and comes_in_pieces(source):
        yield from _as_they_come(source.fileno(), size)
        return
    unpacked = 0
    try:
        while data := source.read(size):
            if isinstance(source, gzip.GzipFile):
                unpacked += len(data)
                check_ratio(unpacked, source.fileobj.tell(), name)
            yield data
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise EspalierError(f"{name}: the gzip data is damaged ({error}); fetch or compress it again") from None


def _as_they_come(descriptor: int, size: int) -> Iterator[bytes]:
    """All that is there, up to `size` bytes at once; waits only when there is nothing."""
    while data := os.read(descriptor, size):
        found, length, more = [data], len(data), data
        while more and length < size and select.select([descriptor], [], [], 0)[0]:
            more = os.read(descriptor, size - length)
            found.append(more)
            length += len(more)
        yield b"".join(found)
        if not more:
            return


def whole(data: Iterable[bytes], by_line: bool = False, name: str = STANDARD_INPUT) -> Iterator[bytes]:
    """The same bytes, cut behind empty lines, or behind lines; a byte order mark at the beginning goes."""
    held, low, line, first = bytearray(), 0, 1, True  # `held` has no empty line before `low`, where a line begins
    for piece in bounded_lines(data, name):
        held += piece
        if first and len(held) >= 3:
            first = False
            if held.startswith(b"\xef\xbb\xbf"):
                del held[:3]
        end = held.rfind(b"\n", low) + 1 if by_line else _after_empty_line(held, low)
        if end:
            yield bytes(held[:end])
            line += held.count(b"\n", 0, end)
            del held[:end]
            low, first = 0, False
        check_sequence_bytes(len(held), name, line)
        low = max(low, held.rfind(b"\n", low) + 1)
    if held:
        yield bytes(held)


def _after_empty_line(data: bytearray, low: int) -> int:
    """Where the last empty line ends, 0 when there is none; a line begins at `low`, none before it is empty."""
    stop = data.rfind(b"\n", low)
    while stop >= 0:
        before = data.rfind(b"\n", low, stop)
        begin = low if before < 0 else before + 1
        if not data[begin:stop].rstrip(b"\r").strip(column_text.BLANKS):
            return stop + 1
        stop = before
    return 0


def blocks(data: Iterable[bytes], name: str, asked: Asked) -> Iterator[TextBlock]:
    """What was read, block by block; an error when there is nothing at all."""
    width, line, some, shapes = None, 1, False, {}
    for text in whole(data, asked.words or asked.source == "jsonl", name):
        if line == 1:
            refuse_others(text, name, asked)
        column_text.check_text(text, name, line)
        if asked.words:
            block = _block_of_words(text, line)
        elif asked.source == "jsonl":
            block = _block_of_json(text, name, line, asked.own, shapes)
        else:
            block = _block_of_columns(text, name, line, asked, width)
            width = len(block.columns) or width
        line += text.count(b"\n")
        check_sequence_lengths(block.offsets, block.line, name)
        some = some or bool(len(block.line))
        if len(block.line) or block.passed:
            yield block
    if not some:
        what = "token; expected one token a line and an empty line after each sequence"
        what = "line to tag" if asked.words or asked.source == "jsonl" else what
        raise EspalierError(f"{name}: holds no {what}")


def refuse_others(text: bytes, name: str, asked: Asked) -> None:
    """An error in words where the first bytes are plainly something else than what is expected."""
    for magic, what in MAGIC.items():
        if text.startswith(magic):
            raise EspalierError(
                f"{name}: it is {what}, expected text; give it a name that tells its format, or unpack it"
            )
    if asked.words or asked.source == "jsonl" or text[:1] != b"{":
        return
    try:
        looks = isinstance(json.loads(text.split(b"\n", 1)[0]), dict)
    except (ValueError, RecursionError):
        looks = False
    if looks:
        raise EspalierError(
            f"line 1 of {name} is a JSON object, expected tokens in columns: say --from jsonl, or give the file a "
            "name that ends in .jsonl"
        )


def _block_of_columns(text: bytes, name: str, first_line: int, asked: Asked, width: int | None) -> TextBlock:
    """The tokens of a text in columns; starts of documents end a sequence, comments do not, and neither is a token."""
    rest, passed = set_aside(text, asked.own, asked.separator, first_line)
    found = column_text.cut(rest, name, asked.separator, width, first_line)
    if passed and len(found.line):
        last_line = first_line + text.count(b"\n") - text.endswith(b"\n")
        comments = sum(not one.ends and one.number > found.line[-1] for one in passed)
        offsets = joined_over_comments(found.offsets, found.line, passed)
        found = found._replace(offsets=offsets, closed=bool(last_line - found.line[-1] > comments))
    width = found.begin.shape[1] if len(found.line) else 0
    check_columns(width, name, first_line)
    return TextBlock([found.column(w) for w in range(width)], found.offsets, found.line, found, passed=tuple(passed))


def _block_of_json(text: bytes, name: str, first_line: int, own: OwnFormat, shapes: dict) -> TextBlock:
    """An object a line; what it says beside the tokens is given back."""
    from espalier.tasks.formats.jsonl import sequence_of

    records, lines, columns, lengths = [], [], [], []
    for n, line in enumerate(text.decode().split("\n"), first_line):
        if line.strip():
            record, tokens = sequence_of(line, f"line {n} of {name}", own.columns, shapes)
            records.append(record)
            lines.append(n)
            lengths.append(len(tokens[0]))
            columns = columns or [[] for _ in tokens]
            for column, values in zip(columns, tokens, strict=True):
                column.extend(values)
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
    texts = [pa.array(column, pa.large_string()) for column in columns]
    return TextBlock(texts, offsets, np.repeat(np.array(lines, np.int64), lengths), records=records)


def _table_blocks(file: str, asked: Asked) -> Iterator[TextBlock]:
    """The sequences of a file in a format that the general reader knows: CoNLL-U, Arrow, Parquet."""
    from espalier.tasks import formats
    from espalier.tasks.store import arrow_texts, sequence_offsets

    own = asked.own
    how = formats.Reading(format=asked.source, columns=own.columns, label=own.label, sequence=own.sequence)
    for block in formats.read_located([Path(file)], how, labelled=False):
        columns = [arrow_texts(block[name]) for name in formats.input_names(block)]
        yield TextBlock(columns, sequence_offsets(block["sequence"].to_numpy()), block["line"].to_numpy())


def _block_of_words(text: bytes, first_line: int) -> TextBlock:
    """Each line that is not empty as a sequence of characters (code points)."""
    numbered = [(line.strip(), n) for n, line in enumerate(text.decode().split("\n"), first_line)]
    words, lines = [word for word, _ in numbered if word], [n for word, n in numbered if word]
    lengths = np.array([len(word) for word in words], np.int64)
    data = np.frombuffer("".join(words).encode(), np.uint8)
    begin = np.flatnonzero((data & 0xC0) != 0x80)  # the other bytes go on with a character
    bounds = np.append(begin, len(data)).astype(np.int64)
    letters = pa.LargeStringArray.from_buffers(len(begin), pa.py_buffer(bounds), pa.py_buffer(data))
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
    return TextBlock([letters], offsets, np.repeat(np.array(lines, np.int64), lengths), None, words)


# Labelling ------------------------------------------------------------------------------------------


class Labelled(NamedTuple):
    """Up to n labellings of N sequences with T tokens in all, best first."""

    labels: np.ndarray  # int32 [n, T], -1 where there are fewer
    count: np.ndarray  # int64 [N]
    log_probabilities: np.ndarray | None = None  # float64 [N, n]
    probabilities: np.ndarray | None = None  # float64 [n, T], of each label by itself


def features(
    model: Labeller, block: TextBlock, name: str, known: int | None = None, own: OwnFormat | None = None
) -> Dataset:
    """The data set of a block; the columns but the one of known labels are the input.

    A file that has a column more than the training files had inputs has their label column, which is left out.
    """
    width, needed = len(block.columns), columns_needed(model)
    if known is not None and not -width <= known < width:
        raise EspalierError(f"the known labels are in column {known}, but {name} has {width} columns")
    left_out = known
    if known is None and own is not None and block.fields is not None and width - 1 == own.inputs:
        left_out = own.label_column
    inputs = [c for w, c in enumerate(block.columns) if left_out is None or w != left_out % width]
    if len(inputs) < needed:
        beside = "" if known is None else " beside the known labels"
        raise EspalierError(
            f"{name} has {len(inputs)} columns{beside}, the model looks at {needed}: expected its input columns"
        )
    return features_of(model, inputs[:needed], block.offsets)


def known_labels(model: Labeller, block: TextBlock, name: str, asked: Asked) -> np.ndarray:
    """The labels that are known beforehand, int32 [T], -1 for the others."""
    column = block.columns[asked.known].dictionary_encode()
    code = {label: i for i, label in enumerate(model.labels)} | {asked.unknown: UNKNOWN}
    texts, which = column.dictionary.to_pylist(), column.indices.to_numpy()
    codes = np.array([code.get(text, UNKNOWN - 1) for text in texts], np.int32)[which]
    wrong = np.flatnonzero(codes < UNKNOWN)
    if len(wrong):
        raise EspalierError(
            f"line {block.line[wrong[0]]} of {name}: the known label {quoted(texts[which[wrong[0]]])} is not one of "
            f"the model's, {brief(', '.join(model.labels))}; expected one of them, or {asked.unknown} where "
            "none is known"
        )
    return codes


def labelled(model: Labeller, dataset: Dataset, asked: Asked, transitions: Transitions | None = None) -> Labelled:
    """The labellings that were asked for; labels that the data set has are taken as known."""
    only = {"allowed": None if asked.known is None else "labels", "transitions": transitions}
    if asked.nbest:
        best = model.nbest(dataset, asked.nbest, **only)
        found = Labelled(best.labels, best.count, best.log_probabilities)
    else:
        labels = model.decoded(dataset, asked.decode, **only)
        found = Labelled(labels[None], np.ones(len(dataset.weights), np.int64))
    if not asked.scores:
        return found
    if found.log_probabilities is None:
        log_p = model.log_probability(dataset, found.labels[0], **only)
        found = found._replace(log_probabilities=np.minimum(log_p, 0.0)[:, None])
    gamma = model.marginals(dataset, **only)
    return found._replace(probabilities=gamma[np.arange(len(gamma)), np.maximum(found.labels, 0)])


def _refuse_impossible(
    model: Labeller, dataset: Dataset, asked: Asked, transitions, block: TextBlock, name: str
) -> None:
    """An error that names the line of the first sequence that has no allowed labelling."""
    plain = Asked(known=asked.known, decode="viterbi")
    for n in range(len(dataset.weights)):
        try:
            labelled(model, some_of(dataset, np.array([n])), plain, transitions)
        except EspalierError:
            raise EspalierError(
                f"the sequence from line {block.line[block.offsets[n]]} of {name} on has no labelling with its known "
                f"labels that the scheme ({asked.scheme}) allows: check them"
            ) from None


def answers(model: Labeller, data: Iterable[bytes], name: str, asked: Asked | None = None) -> Iterator[bytes]:
    """The answers to what is read, block by block."""
    asked = (asked or Asked()).completed(model)
    asked.check(model)
    return answered(model, blocks(data, name, asked), name, asked)


def answered(model: Labeller, read: Iterable[TextBlock], name: str, asked: Asked) -> Iterator[bytes]:
    """The answers to blocks, as a completed `asked` wants them."""
    transitions = asked.transitions(model)
    letters = Letters(model.labels, asked.labels) if asked.labels else None
    write = _writer(letters.names if letters else model.labels, asked)
    for block in read:
        if not len(block.line):
            yield b"" if asked.format == "jsonl" else b"".join(one.written for one in block.passed)
            continue
        dataset = features(model, block, name, asked.known, asked.own)
        if asked.known is not None:
            dataset = dataset._replace(labels=known_labels(model, block, name, asked))
        try:
            found = labelled(model, dataset, asked, transitions)
        except EspalierError:
            if transitions is not None and asked.known is not None:
                _refuse_impossible(model, dataset, asked, transitions, block, name)
            raise
        if letters:
            found = found._replace(labels=np.stack([letters(row, block.offsets) for row in found.labels]))
        yield write(block, found)


def tag_file(model: Labeller, file: str, asked: Asked | None = None) -> Iterator[bytes]:
    """The answers to a file, or to standard input (-)."""
    asked = (asked or Asked()).completed(model, file)
    asked.check(model)
    if asked.source not in ("words", "conll", "jsonl"):
        if file == "-":
            raise EspalierError(f"{asked.source} cannot come on standard input: name the file")
        yield from answered(model, _table_blocks(file, asked), file, asked)
        return
    size = SMALL_BLOCK if asked.scores or asked.nbest or asked.words else BLOCK
    with opened(file) as (source, name):
        yield from answered(model, blocks(pieces(source, name, size), name, asked), name, asked)


# Writing --------------------------------------------------------------------------------------------


def _writer(labels: list[str], asked: Asked) -> Callable[[TextBlock, Labelled], bytes]:
    between = asked.separator or "\t"
    if asked.format == "jsonl":
        return lambda block, found: _json_lines(labels, block, found, asked).encode()
    if asked.words:
        return lambda block, found: _word_lines(labels, block, found, asked).encode()
    if asked.scores or asked.nbest:
        return lambda block, found: _scored_columns(labels, block, found, between).encode()
    if asked.source != "conll":
        return lambda block, found: _plain_columns(labels, block, found, between).encode()
    return lambda block, found: _woven(block, column_text.with_labels(block.fields, labels, found.labels[0], between))


def _woven(block: TextBlock, answer: bytes) -> bytes:
    """The answer with the lines that are no tokens where they stood: comments also inside a sequence."""
    if not block.passed:
        return answer
    lines, waiting, out = iter(answer.split(b"\n")), list(block.passed), []
    for low, high in zip(block.offsets, block.offsets[1:], strict=False):
        for t in range(low, high):
            while waiting and waiting[0].number < block.line[t]:
                one = waiting.pop(0)
                out.append(one.written if t == low else one.text + b"\n")
            out.append(next(lines) + b"\n")
        after = int(block.line[high - 1]) + 1
        while waiting and not waiting[0].ends and waiting[0].number == after:
            out.append(waiting.pop(0).text + b"\n")
            after += 1
        if high < len(block.line) or block.fields.closed:
            out.append(next(lines) + b"\n")
    return b"".join([*out, *(one.written for one in waiting)])


def _plain_columns(labels: list[str], block: TextBlock, found: Labelled, between: str) -> str:
    """Columns of input that came otherwise: refused where they could not be read back."""
    rows, out = list(zip(*(column.to_pylist() for column in block.columns), strict=True)), []
    for t, row in enumerate(rows):
        odd = [text for text in row if not text or "\n" in text or between in text or (between == "\t" and " " in text)]
        if odd:
            raise EspalierError(
                f"the sequence from line or row {block.line[t]} on has the token {quoted(odd[0])}, which cannot stand "
                "in columns: say --format jsonl, or name another --separator"
            )
    for _, low, high, best in _sequences(labels, block, found):
        out += [f"{between.join(row)}{between}{y}\n" for row, y in zip(rows[low:high], best[0][0], strict=True)]
        out.append("\n")
    return "".join(out)


def _sequences(labels: list[str], block: TextBlock, found: Labelled) -> Iterator[tuple[int, int, int, list]]:
    """(sequence, its first token, the one after its last, [(labels, log-probability, probabilities), …])."""
    names = [[labels[code] if code >= 0 else "" for code in row] for row in found.labels.tolist()]
    chances = None if found.probabilities is None else found.probabilities.tolist()
    scores = None if found.log_probabilities is None else found.log_probabilities.tolist()
    offsets, count = block.offsets.tolist(), found.count.tolist()
    for n, (low, high) in enumerate(zip(offsets, offsets[1:], strict=False)):
        best = [
            (names[r][low:high], scores and scores[n][r], chances and chances[r][low:high]) for r in range(count[n])
        ]
        yield n, low, high, best


def _scored_columns(labels: list[str], block: TextBlock, found: Labelled, between: str) -> str:
    """Each labelling as columns, with the probability of the label behind, under a line `# rank log-probability`."""
    rows = [between.join(row) for row in zip(*(column.to_pylist() for column in block.columns), strict=True)]
    out, waiting = [], list(block.passed)
    for n, low, high, best in _sequences(labels, block, found):
        last = n == len(block.offsets) - 2 and block.fields is not None and not block.fields.closed
        while waiting and waiting[0].number < block.line[low]:
            out.append(waiting.pop(0).written.decode())
        for rank, (names, log_p, chances) in enumerate(best, 1):
            out.append(f"# {rank} {log_p:.6f}\n")
            if chances is None:
                out += [f"{row}{between}{label}\n" for row, label in zip(rows[low:high], names, strict=True)]
            else:
                three = zip(rows[low:high], names, chances, strict=True)
                out += [f"{row}{between}{label}{between}{p:.6f}\n" for row, label, p in three]
            out.append("" if last and rank == len(best) else "\n")
    return "".join([*out, *(one.written.decode() for one in waiting)])


def _word_lines(labels: list[str], block: TextBlock, found: Labelled, asked: Asked) -> str:
    """The line, a tab, its labels; then their probabilities and the log-probability, where they were asked for."""
    out = []
    for n, _, _, best in _sequences(labels, block, found):
        for names, log_p, chances in best:
            parts = [block.words[n], " ".join(names)]
            parts += [" ".join(f"{p:.6f}" for p in chances)] if asked.scores else []
            parts += [f"{log_p:.6f}"] if log_p is not None else []
            out.append("\t".join(parts) + "\n")
    return "".join(out)


def _json_lines(labels: list[str], block: TextBlock, found: Labelled, asked: Asked) -> str:
    """One object a sequence: tokens, columns beside them, labels, and what else was asked for.

    An object that was read comes back as it was with the labels beside its own fields; where it has labels already,
    those of the model are called `predicted`.
    """
    columns, out = [column.to_pylist() for column in block.columns], []
    for n, low, high, best in _sequences(labels, block, found):
        if block.records is not None:
            answer = dict(block.records[n])
        else:
            answer = {"tokens": columns[0][low:high]}
            if len(columns) > 1:
                answer["columns"] = [column[low:high] for column in columns[1:]]
        told = [_as_object(*one, "predicted" if "labels" in answer else "labels") for one in best]
        answer |= told[0] | ({"nbest": told} if asked.nbest else {})
        out.append(json.dumps(answer, ensure_ascii=False) + "\n")
    return "".join(out)


def _as_object(names: list[str], log_p: float | None, chances: list[float] | None, key: str) -> dict:
    found = {key: names}
    if log_p is not None:
        found["log_probability"] = log_p
    if chances is not None:
        found["probabilities"] = chances
    return found
