"""Labellings as text: columns, lines of words, or JSON lines, in the bytes that the user gets."""

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError, quoted
from espalier.engine.text import column_text
from espalier.tasks.answering.asked import Asked
from espalier.tasks.answering.text_blocks import TextBlock


class Labelled(NamedTuple):
    """Up to n labellings of N sequences with T tokens in all, best first."""

    labels: np.ndarray  # int32 [n, T], -1 where there are fewer
    count: np.ndarray  # int64 [N]
    log_probabilities: np.ndarray | None = None  # float64 [N, n]
    probabilities: np.ndarray | None = None  # float64 [n, T], of each label by itself
    log_likelihoods: np.ndarray | None = None  # float64 [N], log P(x)
    left_out: np.ndarray | None = None  # bool [T], labels that are not sure enough


def writer(labels: list[str], asked: Asked) -> Callable[[TextBlock, Labelled], bytes]:
    """The function that writes the labellings of a block as a completed `asked` wants them."""
    between = asked.separator or "\t"
    if asked.format == "jsonl":
        return lambda block, found: _json_lines(labels, block, found, asked).encode()
    if asked.words:
        return lambda block, found: _word_lines(labels, block, found, asked).encode()
    if asked.scores or asked.nbest or asked.likelihood:
        return lambda block, found: _scored_columns(labels, block, found, between).encode()
    if asked.source == "crfsuite":
        return lambda block, found: _label_lines(labels, block, found).encode()
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


def _label_lines(labels: list[str], block: TextBlock, found: Labelled) -> str:
    """The label alone, one a line, as `crfsuite tag` has it: attributes would not stand in columns."""
    return "".join("\n".join([*best[0][0], "\n"]) for _, _, _, best in _sequences(labels, block, found))


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
    """Each labelling as columns, with the probability of the label behind, under a line `# rank log-probability`.

    Before the first of a sequence stands `# log-likelihood`, where that was asked for.
    """
    rows = [between.join(row) for row in zip(*(column.to_pylist() for column in block.columns), strict=True)]
    out, waiting = [], list(block.passed)
    for n, low, high, best in _sequences(labels, block, found):
        last = n == len(block.offsets) - 2 and block.fields is not None and not block.fields.closed
        while waiting and waiting[0].number < block.line[low]:
            out.append(waiting.pop(0).written.decode())
        if found.log_likelihoods is not None:
            out.append(f"# log-likelihood {found.log_likelihoods[n]:.6f}\n")
        for rank, (names, log_p, chances) in enumerate(best, 1):
            out.append("" if log_p is None else f"# {rank} {log_p:.6f}\n")
            if chances is None:
                out += [f"{row}{between}{label}\n" for row, label in zip(rows[low:high], names, strict=True)]
            else:
                three = zip(rows[low:high], names, chances, strict=True)
                out += [f"{row}{between}{label}{between}{p:.6f}\n" for row, label, p in three]
            out.append("" if last and rank == len(best) else "\n")
    return "".join([*out, *(one.written.decode() for one in waiting)])


def _word_lines(labels: list[str], block: TextBlock, found: Labelled, asked: Asked) -> str:
    """The line, a tab, its labels; then their probabilities, the log-probability and that of the line itself, where
    they were asked for."""
    out = []
    for n, _, _, best in _sequences(labels, block, found):
        for names, log_p, chances in best:
            parts = [block.words[n], " ".join(names)]
            parts += [" ".join(f"{p:.6f}" for p in chances)] if asked.scores else []
            parts += [f"{log_p:.6f}"] if log_p is not None else []
            parts += [] if found.log_likelihoods is None else [f"{found.log_likelihoods[n]:.6f}"]
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
        if found.log_likelihoods is not None:
            answer["log_likelihood"] = float(found.log_likelihoods[n])
        out.append(json.dumps(answer, ensure_ascii=False) + "\n")
    return "".join(out)


def _as_object(names: list[str], log_p: float | None, chances: list[float] | None, key: str) -> dict:
    found = {key: names}
    if log_p is not None:
        found["log_probability"] = log_p
    if chances is not None:
        found["probabilities"] = chances
    return found
