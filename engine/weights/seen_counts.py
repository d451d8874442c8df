"""How many weights `seen_layout` would have, counted part by part with a bit for each possible weight.

A layout of all the data holds every weight's code; before it is known whether that fits the
memory, only the number is wanted. Where even the bits would be too many, the number is bounded
by what the parts can hold at most.
"""

import numpy as np

from espalier.engine.data.dataset import Dataset, every_observation, label_rows
from espalier.engine.runtime.jit import kernel
from espalier.engine.weights.layout import BIGRAM, FIRST_ORDER, SPAN, TRIGRAM, UNIGRAM, triples_of

MOST_BITS = 1 << 31  # of one family, 256 MiB


class SeenCounts:
    """Adds parts of a data set; `counts` is the number of weights of each family, `exact` whether it is one."""

    def __init__(self, n_labels: int, kinds: np.ndarray, start: bool):
        self.n_labels = n_labels
        wanted = {"unigram": kinds & UNIGRAM, "start": (kinds & BIGRAM) * bool(start), "bigram": kinds & BIGRAM}
        names = (*FIRST_ORDER, *(["trigram"] if np.any(kinds & TRIGRAM) else []))
        wanted["trigram"] = kinds & TRIGRAM
        self.rank = {name: _ranks(wanted[name] > 0) for name in names}
        self.full = {name: n_labels ** SPAN[name] for name in names}
        self.virtual = {name: (int(self.rank[name].max(initial=-1)) + 1) * self.full[name] for name in names}
        self.bits = {
            name: np.zeros(size // 8 + 1, np.uint8) if size <= MOST_BITS else None
            for name, size in self.virtual.items()
        }
        self.counts = dict.fromkeys(names, 0)

    @property
    def exact(self) -> bool:
        return all(bits is not None for bits in self.bits.values())

    def add(self, part: Dataset) -> None:
        row, table = label_rows(part, self.n_labels, unknown=False)
        observations = every_observation(part)
        first = np.zeros(len(row), bool)
        first[part.offsets[:-1]] = True
        for i, name in enumerate(self.counts):
            if name == "trigram" and self.bits[name] is not None:
                at, code = triples_of(part, self.n_labels)
                marks = observations, at, code, self.rank[name], self.full[name], self.bits[name]
                self.counts[name] += _mark_triples(*marks)
            elif self.bits[name] is not None:
                visits = observations, row, table, first, i, self.rank[name], self.full[name], self.bits[name]
                self.counts[name] += _mark(*visits)
            else:  # at most one new weight for each label that an observation meets
                self.counts[name] = min(self.virtual[name], self.counts[name] + observations.size)


def _ranks(wanted: np.ndarray) -> np.ndarray:
    """The place of each wanted observation among them, -1 for the others and for id -1, which is the last entry."""
    return np.append(np.where(wanted, np.cumsum(wanted) - 1, -1), -1).astype(np.int64)


@kernel
def _mark(observations, row, table, first, family, rank, full, bits):
    """Set the bits of the weights that occur; how many were not set before. family: 0 unigram, 1 start, 2 bigram."""
    n_labels, count = table.shape[1], 0
    for t in range(len(row)):
        if (family == 1 and not first[t]) or (family == 2 and first[t]):
            continue
        for k in range(observations.shape[1]):
            r = rank[observations[t, k]]
            if r < 0:
                continue
            for y in range(n_labels):
                if not table[row[t], y]:
                    continue
                if family < 2:
                    count += _set(bits, r * full + y)
                    continue
                for before in range(n_labels):
                    if table[row[t - 1], before]:
                        count += _set(bits, r * full + before * n_labels + y)
    return count


@kernel
def _mark_triples(observations, at, code, rank, full, bits):
    """The same for triples of labels, which end at the positions `at`."""
    count = 0
    for i in range(len(at)):
        for k in range(observations.shape[1]):
            r = rank[observations[at[i], k]]
            if r >= 0:
                count += _set(bits, r * full + code[i])
    return count


@kernel
def _set(bits, at):
    mask = np.uint8(1 << (at & 7))
    if bits[at >> 3] & mask:
        return 0
    bits[at >> 3] |= mask
    return 1
