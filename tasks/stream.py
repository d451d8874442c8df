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
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from engine import decode, fields
from engine.constraints import Transitions
from engine.data import UNKNOWN, Dataset
from engine.data import select as some_of
from engine.errors import EspalierError
from engine.features import columns_needed, features_of
from engine.fields import Fields
from engine.model import Model

BLOCK, SMALL_BLOCK = 1 << 22, 1 << 20  # bytes read at once; the smaller where a token takes a row of numbers
FORMATS = ("columns", "jsonl")
STANDARD_INPUT = "standard input"


@dataclass(frozen=True)
class Asked:
    """How the input is to be read and what is to be answered."""

    words: bool = False  # each line is a sequence, its characters are the tokens
    separator: str | None = None  # between columns; None is any run of blanks and tabs
    scores: bool = False  # probabilities of labels and sequences
    nbest: int = 0  # labellings with their log-probabilities; 0 is the best alone
    format: str = "columns"
    scheme: str | None = None  # of the transitions that are allowed; see engine.scheme
    known: int | None = None  # column of labels that are known beforehand
    unknown: str = "_"  # what stands in it where nothing is known

    def transitions(self, model: Model) -> Transitions | None:
        if not self.scheme:
            return None
        from engine.scheme import transitions_of

        return transitions_of(model.labels, True if self.scheme == "auto" else self.scheme)

    def check(self, model: Model) -> None:
        """What can be refused before anything is read."""
        if self.known is None:
            return
        if self.words:
            raise EspalierError("known labels need a column of their own: expected input in columns, without --words")
        if self.unknown in model.labels:
            raise EspalierError(
                f"{self.unknown!r} is a label of this model and cannot stand for an unknown one as well: "
                "say with --unknown what does"
            )


class Block(NamedTuple):
    """Whole sequences as they were read: W columns of T texts."""

    columns: list[pa.Array]  # large_string
    offsets: np.ndarray  # int64 [N + 1]
    line: np.ndarray  # int64 [T], number of the line in its file, from 1
    fields: Fields | None = None  # of input in columns
    words: list[str] | None = None  # of input in lines


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
    try:
        while data := source.read(size):
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


def whole(data: Iterable[bytes], by_line: bool = False) -> Iterator[bytes]:
    """The same bytes, cut behind empty lines, or behind lines; a byte order mark at the beginning goes."""
    rest, first = b"", True
    for piece in data:
        low = rest.rfind(b"\n") + 1  # the lines before are whole and not empty
        rest += piece
        if first and len(rest) >= 3:
            rest, first = rest.removeprefix(b"\xef\xbb\xbf"), False
        end = rest.rfind(b"\n", low) + 1 if by_line else _after_empty_line(rest, low)
        if end:
            yield rest[:end]
            rest, first = rest[end:], False
    if rest:
        yield rest


def _after_empty_line(data: bytes, low: int) -> int:
    """Where the last empty line ends, 0 when there is none; a line begins at `low`, none before it is empty."""
    stop = data.rfind(b"\n", low)
    while stop >= 0:
        before = data.rfind(b"\n", low, stop)
        begin = low if before < 0 else before + 1
        if not data[begin:stop].rstrip(b"\r").strip(fields.BLANKS):
            return stop + 1
        stop = before
    return 0


def blocks(data: Iterable[bytes], name: str, asked: Asked) -> Iterator[Block]:
    """What was read, block by block; an error when there is nothing at all."""
    width, line, some = None, 1, False
    for text in whole(data, asked.words):
        fields.check_text(text, name, line)
        if asked.words:
            block = _block_of_words(text, line)
        else:
            found = fields.cut(text, name, asked.separator, width, line)
            width = found.begin.shape[1] or width
            columns = [found.column(w) for w in range(found.begin.shape[1])]
            block = Block(columns, found.offsets, found.line, found)
        line += text.count(b"\n")
        if len(block.line):
            some = True
            yield block
    if not some:
        what = "token; expected one token a line and an empty line after each sequence"
        what = "line to tag" if asked.words else what
        raise EspalierError(f"{name}: holds no {what}")


def _block_of_words(text: bytes, first_line: int) -> Block:
    """Each line that is not empty as a sequence of characters (code points)."""
    numbered = [(line.strip(), n) for n, line in enumerate(text.decode().split("\n"), first_line)]
    words, lines = [word for word, _ in numbered if word], [n for word, n in numbered if word]
    lengths = np.array([len(word) for word in words], np.int64)
    data = np.frombuffer("".join(words).encode(), np.uint8)
    begin = np.flatnonzero((data & 0xC0) != 0x80)  # the other bytes go on with a character
    bounds = np.append(begin, len(data)).astype(np.int64)
    letters = pa.LargeStringArray.from_buffers(len(begin), pa.py_buffer(bounds), pa.py_buffer(data))
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
    return Block([letters], offsets, np.repeat(np.array(lines, np.int64), lengths), None, words)


# Labelling ------------------------------------------------------------------------------------------


class Labelled(NamedTuple):
    """Up to n labellings of N sequences with T tokens in all, best first."""

    labels: np.ndarray  # int32 [n, T], -1 where there are fewer
    count: np.ndarray  # int64 [N]
    log_probabilities: np.ndarray | None = None  # float64 [N, n]
    probabilities: np.ndarray | None = None  # float64 [n, T], of each label by itself


def features(model: Model, block: Block, name: str, known: int | None = None) -> Dataset:
    """The data set of a block; the columns but the one of known labels are the input."""
    width, needed = len(block.columns), columns_needed(model)
    if known is not None and not -width <= known < width:
        raise EspalierError(f"the known labels are in column {known}, but {name} has {width} columns")
    inputs = [c for w, c in enumerate(block.columns) if known is None or w != known % width]
    if len(inputs) < needed:
        beside = "" if known is None else " beside the known labels"
        raise EspalierError(
            f"{name} has {len(inputs)} columns{beside}, the model looks at {needed}: expected its input columns"
        )
    return features_of(model, inputs[:needed], block.offsets)


def known_labels(model: Model, block: Block, name: str, asked: Asked) -> np.ndarray:
    """The labels that are known beforehand, int32 [T], -1 for the others."""
    column = block.columns[asked.known].dictionary_encode()
    code = {label: i for i, label in enumerate(model.labels)} | {asked.unknown: UNKNOWN}
    texts, which = column.dictionary.to_pylist(), column.indices.to_numpy()
    codes = np.array([code.get(text, UNKNOWN - 1) for text in texts], np.int32)[which]
    wrong = np.flatnonzero(codes < UNKNOWN)
    if len(wrong):
        raise EspalierError(
            f"line {block.line[wrong[0]]} of {name}: the known label {texts[which[wrong[0]]]!r} is not one of the "
            f"model's, {', '.join(model.labels)}; expected one of them, or {asked.unknown} where none is known"
        )
    return codes


def labelled(model: Model, dataset: Dataset, asked: Asked, transitions: Transitions | None = None) -> Labelled:
    """The labellings that were asked for; labels that the data set has are taken as known."""
    only = {"allowed": None if asked.known is None else "labels", "transitions": transitions}
    weights = dataset, model.layout, model.theta
    if asked.nbest:
        best = decode.nbest(*weights, asked.nbest, **only)
        found = Labelled(best.labels, best.count, best.log_probabilities)
    else:
        labels = decode.viterbi(*weights, **only)
        found = Labelled(labels[None], np.ones(len(dataset.weights), np.int64))
    if not asked.scores:
        return found
    if found.log_probabilities is None:
        log_p = decode.sequence_score(*weights, found.labels[0]) - decode.log_partition(*weights, **only)
        found = found._replace(log_probabilities=np.minimum(log_p, 0.0)[:, None])
    gamma = decode.marginals(*weights, **only)
    return found._replace(probabilities=gamma[np.arange(len(gamma)), np.maximum(found.labels, 0)])


def _refuse_impossible(model: Model, dataset: Dataset, asked: Asked, transitions, block: Block, name: str) -> None:
    """An error that names the line of the first sequence that has no allowed labelling."""
    plain = Asked(known=asked.known)
    for n in range(len(dataset.weights)):
        try:
            labelled(model, some_of(dataset, np.array([n])), plain, transitions)
        except EspalierError:
            raise EspalierError(
                f"the sequence from line {block.line[block.offsets[n]]} of {name} on has no labelling with its known "
                f"labels that the scheme ({asked.scheme}) allows: check them"
            ) from None


def answers(model: Model, data: Iterable[bytes], name: str, asked: Asked | None = None) -> Iterator[bytes]:
    """The answers to what is read, block by block."""
    asked = asked or Asked()
    asked.check(model)
    transitions, write = asked.transitions(model), _writer(model, asked)
    for block in blocks(data, name, asked):
        dataset = features(model, block, name, asked.known)
        if asked.known is not None:
            dataset = dataset._replace(labels=known_labels(model, block, name, asked))
        try:
            found = labelled(model, dataset, asked, transitions)
        except EspalierError:
            if transitions is not None and asked.known is not None:
                _refuse_impossible(model, dataset, asked, transitions, block, name)
            raise
        yield write(block, found)


def tag_file(model: Model, file: str, asked: Asked | None = None) -> Iterator[bytes]:
    """The answers to a file, or to standard input (-)."""
    asked = asked or Asked()
    size = SMALL_BLOCK if asked.scores or asked.nbest else BLOCK
    with opened(file) as (source, name):
        yield from answers(model, pieces(source, name, size), name, asked)


# Writing --------------------------------------------------------------------------------------------


def _writer(model: Model, asked: Asked) -> Callable[[Block, Labelled], bytes]:
    between = asked.separator or "\t"
    if asked.format == "jsonl":
        return lambda block, found: _json_lines(model.labels, block, found, asked).encode()
    if asked.words:
        return lambda block, found: _word_lines(model.labels, block, found, asked).encode()
    if asked.scores or asked.nbest:
        return lambda block, found: _scored_columns(model.labels, block, found, between).encode()
    return lambda block, found: fields.with_labels(block.fields, model.labels, found.labels[0], between)


def _sequences(labels: list[str], block: Block, found: Labelled) -> Iterator[tuple[int, int, int, list]]:
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


def _scored_columns(labels: list[str], block: Block, found: Labelled, between: str) -> str:
    """Each labelling as columns, with the probability of the label behind, under a line `# rank log-probability`."""
    rows = [between.join(row) for row in zip(*(column.to_pylist() for column in block.columns), strict=True)]
    out = []
    for n, low, high, best in _sequences(labels, block, found):
        last = n == len(block.offsets) - 2 and not block.fields.closed
        for rank, (names, log_p, chances) in enumerate(best, 1):
            out.append(f"# {rank} {log_p:.6f}\n")
            if chances is None:
                out += [f"{row}{between}{label}\n" for row, label in zip(rows[low:high], names, strict=True)]
            else:
                three = zip(rows[low:high], names, chances, strict=True)
                out += [f"{row}{between}{label}{between}{p:.6f}\n" for row, label, p in three]
            out.append("" if last and rank == len(best) else "\n")
    return "".join(out)


def _word_lines(labels: list[str], block: Block, found: Labelled, asked: Asked) -> str:
    """The line, a tab, its labels; then their probabilities and the log-probability, where they were asked for."""
    out = []
    for n, _, _, best in _sequences(labels, block, found):
        for names, log_p, chances in best:
            parts = [block.words[n], " ".join(names)]
            parts += [" ".join(f"{p:.6f}" for p in chances)] if asked.scores else []
            parts += [f"{log_p:.6f}"] if log_p is not None else []
            out.append("\t".join(parts) + "\n")
    return "".join(out)


def _json_lines(labels: list[str], block: Block, found: Labelled, asked: Asked) -> str:
    """One object a sequence: tokens, columns beside them, labels, and what else was asked for."""
    columns, out = [column.to_pylist() for column in block.columns], []
    for _, low, high, best in _sequences(labels, block, found):
        answer = {"tokens": columns[0][low:high]}
        if len(columns) > 1:
            answer["columns"] = [column[low:high] for column in columns[1:]]
        told = [_as_object(*one) for one in best]
        answer |= told[0] | ({"nbest": told} if asked.nbest else {})
        out.append(json.dumps(answer, ensure_ascii=False) + "\n")
    return "".join(out)


def _as_object(names: list[str], log_p: float | None, chances: list[float] | None) -> dict:
    found = {"labels": names}
    if log_p is not None:
        found["log_probability"] = log_p
    if chances is not None:
        found["probabilities"] = chances
    return found
