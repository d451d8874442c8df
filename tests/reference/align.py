"""Letters aligned to phonemes: every way of cutting the phonemes into one group of 0, 1 or 2 for each letter.

`probability[(letter, group)]` is that of emitting the group, a tuple of phonemes; missing keys are zero.
"""

import itertools
import math
from collections import defaultdict


def segmentations(n_letters, n_phonemes, longest=2):
    """All tuples of n_letters group sizes in 0..longest that sum to n_phonemes."""
    return [s for s in itertools.product(range(longest + 1), repeat=n_letters) if sum(s) == n_phonemes]


def groups(phonemes, sizes):
    """The phonemes cut into consecutive groups of the given sizes."""
    cut, start = [], 0
    for size in sizes:
        cut.append(tuple(phonemes[start : start + size]))
        start += size
    return cut


def path_probability(letters, phonemes, sizes, probability):
    pairs = zip(letters, groups(phonemes, sizes), strict=True)
    return math.prod(probability.get((letter, group), 0.0) for letter, group in pairs)


def paths(letters, phonemes, probability, longest=2):
    """Every segmentation with its probability."""
    return [
        (sizes, path_probability(letters, phonemes, sizes, probability))
        for sizes in segmentations(len(letters), len(phonemes), longest)
    ]


def total_probability(letters, phonemes, probability, longest=2):
    return math.fsum(p for _, p in paths(letters, phonemes, probability, longest))


def expected_counts(letters, phonemes, probability, longest=2):
    """Expected uses of (letter, group) given spelling and sound; empty when the word is impossible."""
    total = total_probability(letters, phonemes, probability, longest)
    if total == 0.0:
        return {}
    counts = defaultdict(float)
    for sizes, p in paths(letters, phonemes, probability, longest):
        for pair in zip(letters, groups(phonemes, sizes), strict=True):
            counts[pair] += p / total
    return dict(counts)


def best_paths(letters, phonemes, probability, longest=2, tie=1e-9):
    """All segmentations of the highest probability (ties up to the relative `tie`), and that probability."""
    found = paths(letters, phonemes, probability, longest)
    if not found:
        return set(), 0.0
    top = max(p for _, p in found)
    return {sizes for sizes, p in found if p > 0.0 and p >= top * (1.0 - tie)}, top
