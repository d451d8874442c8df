"""Letters aligned one to one with groups of 0, 1 or 2 phonemes, by EM over P(group | letter).

A group is coded as 0 (silent), 1 + p (one phoneme) or 1 + P + p * P + q (two). Forward
and backward run over the lattice of (letters read, phonemes read):
    a[i, j] = sum_k a[i - 1, j - k] P(group of the last k phonemes | letter i), k = 0, 1, 2.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel

PIECES = 8  # of the expectation step; fixed, so that sums have one order


class Words(NamedTuple):
    """N words as flat arrays."""

    letters: np.ndarray  # int32
    letter_ptr: np.ndarray  # int64 [N + 1]
    phonemes: np.ndarray  # int32
    phoneme_ptr: np.ndarray  # int64 [N + 1]


class Alignment(NamedTuple):
    """`groups` [letters] is -1 throughout a word that cannot be aligned."""

    groups: np.ndarray  # int32, code of each letter's group
    aligned: np.ndarray  # bool [N]
    probability: np.ndarray  # float64 [letters, groups]
    log_likelihood: list[float]


def n_groups(n_phonemes: int) -> int:
    return 1 + n_phonemes + n_phonemes**2


@kernel
def group_code(phonemes, begin, length, n_phonemes):
    if length == 0:
        return 0
    if length == 1:
        return 1 + phonemes[begin]
    return 1 + n_phonemes + phonemes[begin] * n_phonemes + phonemes[begin + 1]


@kernel
def _forward(letters, phonemes, n_phonemes, probability, a):
    """Fills a, each row scaled to a largest value of 1; returns log Z, -inf when there is no path."""
    n, m = len(letters), len(phonemes)
    for i in range(n + 1):
        for j in range(m + 1):
            a[i, j] = 0.0
    a[0, 0] = 1.0
    log_z = 0.0
    for i in range(1, n + 1):
        top = 0.0
        for j in range(max(0, m - 2 * (n - i)), min(m, 2 * i) + 1):
            for k in range(min(2, j) + 1):
                if a[i - 1, j - k] > 0.0:
                    group = group_code(phonemes, j - k, k, n_phonemes)
                    a[i, j] += a[i - 1, j - k] * probability[letters[i - 1], group]
            top = max(top, a[i, j])
        if not top > 0.0:
            return -np.inf
        for j in range(m + 1):
            a[i, j] /= top
        log_z += np.log(top)
    return log_z + np.log(a[n, m]) if a[n, m] > 0.0 else -np.inf


@kernel
def _backward(letters, phonemes, n_phonemes, probability, b):
    """Fills b, each row scaled to a largest value of 1."""
    n, m = len(letters), len(phonemes)
    for i in range(n + 1):
        for j in range(m + 1):
            b[i, j] = 0.0
    b[n, m] = 1.0
    for i in range(n - 1, -1, -1):
        top = 0.0
        for j in range(max(0, m - 2 * (n - i)), min(m, 2 * i) + 1):
            for k in range(min(2, m - j) + 1):
                if b[i + 1, j + k] > 0.0:
                    group = group_code(phonemes, j, k, n_phonemes)
                    b[i, j] += probability[letters[i], group] * b[i + 1, j + k]
            top = max(top, b[i, j])
        for j in range(m + 1):
            b[i, j] /= top


@kernel
def _longest(words):
    longest = 0
    for n in range(len(words.letter_ptr) - 1):
        longest = max(longest, words.letter_ptr[n + 1] - words.letter_ptr[n])
        longest = max(longest, words.phoneme_ptr[n + 1] - words.phoneme_ptr[n])
    return longest


@kernel
def expected_counts(words, n_phonemes, probability, lo, hi, counts):
    """Adds the expected uses of each (letter, group) in the words [lo, hi) to `counts`; returns the log-likelihood."""
    longest = _longest(words)
    a, b = np.empty((longest + 1, longest + 1)), np.empty((longest + 1, longest + 1))
    total = 0.0
    for w in range(lo, hi):
        letters = words.letters[words.letter_ptr[w] : words.letter_ptr[w + 1]]
        phonemes = words.phonemes[words.phoneme_ptr[w] : words.phoneme_ptr[w + 1]]
        log_z = _forward(letters, phonemes, n_phonemes, probability, a)
        if not log_z > -np.inf:
            continue
        _backward(letters, phonemes, n_phonemes, probability, b)
        total += log_z
        for i in range(len(letters)):
            unit = 1.0 / _edges(letters[i], phonemes, n_phonemes, probability, i, a, b, 0.0, counts)
            _edges(letters[i], phonemes, n_phonemes, probability, i, a, b, unit, counts)
    return total


@kernel
def _edges(letter, phonemes, n_phonemes, probability, i, a, b, unit, counts):
    """Sum of the edges of letter i; with a unit > 0 they are added to the counts, times unit."""
    total = 0.0
    for j in range(min(len(phonemes), 2 * i) + 1):
        if a[i, j] == 0.0:
            continue
        for k in range(min(2, len(phonemes) - j) + 1):
            group = group_code(phonemes, j, k, n_phonemes)
            edge = a[i, j] * probability[letter, group] * b[i + 1, j + k]
            total += edge
            if unit > 0.0:
                counts[letter, group] += edge * unit
    return total


@kernel
def best_groups(words, n_phonemes, probability, groups, aligned):
    """The likeliest groups of each word; among equals the shorter group wins, from the end."""
    longest = _longest(words)
    log_probability = np.full(probability.shape, -np.inf)
    for letter in range(len(probability)):
        for group in range(probability.shape[1]):
            if probability[letter, group] > 0.0:
                log_probability[letter, group] = np.log(probability[letter, group])
    best = np.empty((longest + 1, longest + 1))
    back = np.empty((longest + 1, longest + 1), np.int8)
    for w in range(len(words.letter_ptr) - 1):
        base = words.letter_ptr[w]
        letters = words.letters[base : words.letter_ptr[w + 1]]
        phonemes = words.phonemes[words.phoneme_ptr[w] : words.phoneme_ptr[w + 1]]
        n, m = len(letters), len(phonemes)
        best[: n + 1, : m + 1] = -np.inf
        best[0, 0] = 0.0
        for i in range(1, n + 1):
            for j in range(max(0, m - 2 * (n - i)), min(m, 2 * i) + 1):
                for k in range(min(2, j) + 1):
                    group = group_code(phonemes, j - k, k, n_phonemes)
                    value = best[i - 1, j - k] + log_probability[letters[i - 1], group]
                    if value > best[i, j]:
                        best[i, j], back[i, j] = value, k
        aligned[w] = best[n, m] > -np.inf
        j = m
        for i in range(n, 0, -1):
            if aligned[w]:
                k = back[i, j]
                groups[base + i - 1] = group_code(phonemes, j - k, k, n_phonemes)
                j -= k
            else:
                groups[base + i - 1] = -1


def _expect(words: Words, n_phonemes: int, probability: np.ndarray) -> tuple[np.ndarray, float]:
    """Expected counts and log-likelihood of all words, in a fixed number of pieces summed in order."""

    def piece(run):
        counts = np.zeros_like(probability)
        return counts, expected_counts(words, n_phonemes, probability, *run, counts)

    parts = threads.run(piece, threads.ranges(len(words.letter_ptr) - 1, PIECES))
    return sum(counts for counts, _ in parts), float(sum(value for _, value in parts))


def _em(words: Words, n_phonemes: int, allowed: np.ndarray, iterations: int):
    """EM from the uniform distribution over the allowed groups of each letter."""
    probability = allowed / np.maximum(allowed.sum(axis=1, keepdims=True), 1)
    history = []
    for _ in range(iterations):
        counts, log_likelihood = _expect(words, n_phonemes, probability)
        history.append(log_likelihood)
        probability = counts / np.maximum(counts.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    groups = np.empty(len(words.letters), np.int32)
    aligned = np.empty(len(words.letter_ptr) - 1, np.bool_)
    best_groups(words, n_phonemes, probability, groups, aligned)
    return groups, aligned, probability, history


def align(words: Words, n_letters: int, n_phonemes: int, pair_count: int = 50, iterations: int = 30) -> Alignment:
    """Align all words: once freely, then with only the pairs that this used at least `pair_count` times."""
    if len(words.letters) == 0:
        raise EspalierError("there is no word to align: expected at least one spelling with its phonemes")
    everything = np.ones((n_letters, n_groups(n_phonemes)))
    groups, _, _, before = _em(words, n_phonemes, everything, iterations)
    known = groups >= 0
    used = np.zeros_like(everything)
    np.add.at(used, (words.letters[known], groups[known]), 1)
    allowed = everything.copy()
    allowed[:, 1 + n_phonemes :] = used[:, 1 + n_phonemes :] >= pair_count
    groups, aligned, probability, after = _em(words, n_phonemes, allowed, iterations)
    return Alignment(groups, aligned, probability, before + after)
