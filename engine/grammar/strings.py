"""`Strings`: strings of terminals as flat arrays, with weights and brackets; equal ones once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError

UNKNOWN = -1  # a word that the grammar does not have


class Strings(NamedTuple):
    words: np.ndarray  # int32, -1: none of the grammar's
    offsets: np.ndarray  # int64 [N + 1]
    weights: np.ndarray  # float64 [N]
    bracket_at: np.ndarray  # int64 [N + 1]
    brackets: np.ndarray  # int32 [B, 2], from and to (not included), within the string

    @property
    def total(self) -> int:
        return len(self.weights)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def row(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """(words, brackets) of a string."""
        brackets = self.brackets[self.bracket_at[n] : self.bracket_at[n + 1]]
        return self.words[self.offsets[n] : self.offsets[n + 1]], brackets


def make_strings(
    strings: Sequence[Sequence[int]], weights: Sequence[float] | None = None,
    brackets: Sequence[Sequence[tuple[int, int]]] | None = None,
) -> Strings:  # fmt: skip
    """Checked: no empty string, weights that are finite and not negative, brackets within their strings."""
    lengths = np.array([len(string) for string in strings], np.int64)
    if not len(lengths) or lengths.min() == 0:
        empty = int(np.argmin(lengths)) if len(lengths) else None
        where = "there is no string" if empty is None else f"string {empty} is empty"
        raise EspalierError(f"{where}: expected strings of at least one word")
    given = np.ones(len(lengths)) if weights is None else np.asarray(weights, np.float64)
    if len(given) != len(lengths) or not np.all(np.isfinite(given) & (given >= 0.0)):
        raise EspalierError(f"{len(given)} weights of {len(lengths)} strings: expected a finite one of at least 0 each")
    flat = np.concatenate([np.asarray(string, np.int32) for string in strings])
    listed = [[] for _ in lengths] if brackets is None else brackets
    pairs = [np.asarray(list(found), np.int32).reshape(-1, 2) for found in listed]
    for number, (found, length) in enumerate(zip(pairs, lengths, strict=True)):
        if len(found) and not (found.min() >= 0 and found.max() <= length and np.all(found[:, 0] < found[:, 1])):
            raise EspalierError(
                f"string {number} of {length} words has brackets outside of it, or with nothing in them"
            )
    bracket_at = np.cumsum([0, *map(len, pairs)], dtype=np.int64)
    return Strings(flat, np.cumsum([0, *lengths], dtype=np.int64), given, bracket_at, np.concatenate(pairs))


def unbracketed(data: Strings) -> Strings:
    return data._replace(bracket_at=np.zeros(data.total + 1, np.int64), brackets=np.zeros((0, 2), np.int32))


def select(data: Strings, numbers: np.ndarray) -> Strings:
    """Some of the strings, in that order."""
    chosen = [data.row(int(n)) for n in numbers]
    offsets = np.cumsum([0, *(len(words) for words, _ in chosen)], dtype=np.int64)
    bracket_at = np.cumsum([0, *(len(found) for _, found in chosen)], dtype=np.int64)
    words, brackets = (np.concatenate(parts) for parts in zip(*chosen, strict=True))
    return Strings(words, offsets, data.weights[numbers], bracket_at, brackets)


def merged(data: Strings) -> Strings:
    """Equal strings with equal brackets once, with the sum of their weights, in the order of their first ones."""
    places: dict[tuple[bytes, bytes], int] = {}
    first, weights = [], []
    for number in range(data.total):
        words, brackets = data.row(number)
        key = words.tobytes(), np.unique(brackets, axis=0).tobytes()
        place = places.setdefault(key, len(first))
        if place == len(first):
            first.append(number)
            weights.append(0.0)
        weights[place] += float(data.weights[number])
    return select(data, np.array(first))._replace(weights=np.array(weights))
