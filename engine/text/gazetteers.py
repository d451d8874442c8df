"""Lists of names (gazetteers): which tokens of a sequence are an entry, one word or several.

Of the entries that begin at a token the longest counts, and the tokens of a match belong to no other one.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from espalier.engine.errors import EspalierError, brief

OUTSIDE = "O"
MOST_BYTES = 256 << 20  # of a file of names; it travels in the model


class NameList:
    """Entries, words between blanks, each with a class or none; of equal entries the first counts."""

    def __init__(self, lines: Iterable[str], where: str, lower: bool = False):
        self.entries: dict[tuple[str, ...], str] = {}
        self.lower = lower
        for number, line in enumerate(lines, 1):
            words, kind = read_entry(line, f"{where}, line {number}")
            if words:
                self.entries.setdefault(tuple(self._spelt(word) for word in words), kind)
        if not self.entries:
            raise EspalierError(f"{where}: holds no entry; expected one a line, if need be a tab and a class behind it")

    def _spelt(self, word: str) -> str:
        return word.lower() if self.lower else word

    @cached_property
    def kinds(self) -> list[str]:
        return sorted(set(self.entries.values()))

    @cached_property
    def values(self) -> list[str]:
        """O, then B and I of each class."""
        return [OUTSIDE, *(f"{mark}-{kind}" if kind else mark for kind in self.kinds for mark in "BI")]

    @cached_property
    def _tree(self) -> tuple[dict[str, int], dict[tuple[int, int], int], dict[int, int]]:
        """Numbers of words; from node 0 a step for each word of an entry; the class of each node where one ends."""
        words: dict[str, int] = {}
        steps: dict[tuple[int, int], int] = {}
        ends: dict[int, int] = {}
        number = {kind: i for i, kind in enumerate(self.kinds)}
        for entry, kind in self.entries.items():
            node = 0
            for word in entry:
                node = steps.setdefault((node, words.setdefault(word, len(words))), len(steps) + 1)
            ends[node] = number[kind]
        return words, steps, ends

    def find(self, texts: Sequence[str], codes: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """For each of T tokens the place of its value in `values`; token t is texts[codes[t]]. int32 [T]."""
        words, steps, _ = self._tree
        number = np.array([words.get(self._spelt(text), -1) for text in texts] + [-1], np.int64)
        begins = np.array([(0, n) in steps for n in number.tolist()], bool)
        starts = np.flatnonzero(begins[codes])
        ends = offsets[np.searchsorted(offsets, starts, side="right")]
        out = np.zeros(len(codes), np.int32)
        for first, behind, kind in self._matches(number[codes].tolist(), starts.tolist(), ends.tolist()):
            out[first], out[first + 1 : behind] = 1 + 2 * kind, 2 + 2 * kind
        return out

    def _matches(self, numbers: list[int], starts: list[int], ends: list[int]) -> Iterator[tuple[int, int, int]]:
        """(first, behind the last, class) of each match; one begins at a start and stays before the end beside it."""
        _, steps, classes = self._tree
        free = 0
        for first, end in zip(starts, ends, strict=True):
            if first < free:
                continue
            node, at, found = 0, first, None
            while at < end and (node := steps.get((node, numbers[at]))) is not None:
                at += 1
                if node in classes:
                    found = at, classes[node]
            if found:
                free = found[0]
                yield first, *found

    def tags(self, texts: Sequence[str]) -> list[str]:
        """The value at each token of one sequence."""
        found = self.find(texts, np.arange(len(texts)), np.array([0, len(texts)]))
        return [self.values[i] for i in found]


def read_entry(line: str, where: str) -> tuple[tuple[str, ...], str]:
    """The words and the class of a line; no words for an empty one."""
    text, _, kind = line.rstrip("\r\n").partition("\t")
    words, kind = tuple(text.split()), kind.strip(" ")
    if "\t" in kind:
        raise EspalierError(
            f"{where}: `{brief(line.strip())}` has more than one tab; expected an entry, a tab and a class"
        )
    if kind and not words:
        raise EspalierError(
            f"{where}: `{brief(line.strip())}` has a class but no entry; write the entry before the tab"
        )
    if len(kind.split()) > 1:
        raise EspalierError(f"{where}: class `{brief(kind)}` has a blank in it; expected one word")
    return words, kind


def read_bounded(path: Path, most: int) -> bytes:
    """The bytes of a file that is to be read whole, at most so many: a device or a wrong file has no end."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise EspalierError(
            f"{path}: larger than {most:,} bytes, the most that is read of such a file; is it the right one?"
        )
    return data


def read_list(path: Path) -> list[str]:
    """The lines of a file of names, without their ends."""
    try:
        data = read_bounded(path, MOST_BYTES)
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        raise EspalierError(f"{path}: there is no such list of names; check the file that %l names") from None
    except OSError as error:
        raise EspalierError(f"{path}: cannot be read ({error.strerror}); expected a list of names") from None
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise EspalierError(f"{path}, line {line}: is not UTF-8; save the list as UTF-8") from None
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
