"""Which weights exist and where each lies in the parameter vector theta.

theta = [ unigram mu[x, y] | start lambda[x, y0, y] | bigram lambda[x, y', y] ], each
family ordered by observation x. An observation owns a run of slots in each family;
a run that holds every label (or every pair) needs no list of what it holds.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from espalier.engine.data.dataset import Dataset, check_label_count, every_observation, label_rows
from espalier.engine.errors import EspalierError
from espalier.engine.runtime.grouping import carrying_columns, ends, sort_by
from espalier.engine.runtime.jit import kernel

UNIGRAM, BIGRAM = 1, 2  # kinds of an observation, as bits
KINDS = {"U": UNIGRAM, "u": UNIGRAM, "B": BIGRAM, "b": BIGRAM, "*": UNIGRAM | BIGRAM}
FAMILIES = ("unigram", "start", "bigram")


class Layout(NamedTuple):
    """Slots of V observations; Y labels. `*_code[slot - ptr[0]]` is the label, or y' * Y + y of a pair."""

    n_labels: int
    size: int
    unigram_ptr: np.ndarray  # int64 [V + 1], absolute slots
    unigram_code: np.ndarray  # int32 [slots of the family], or empty when all runs are full
    start_ptr: np.ndarray  # int64 [V + 1]
    start_code: np.ndarray
    bigram_ptr: np.ndarray  # int64 [V + 1]
    bigram_code: np.ndarray

    @property
    def n_observations(self) -> int:
        return len(self.unigram_ptr) - 1

    def family(self, name: str) -> tuple[np.ndarray, np.ndarray, int]:
        """(ptr, code, length of a full run) of unigram, start or bigram."""
        full = self.n_labels**2 if name == "bigram" else self.n_labels
        return getattr(self, f"{name}_ptr"), getattr(self, f"{name}_code"), full

    def run_codes(self, name: str, x: int) -> np.ndarray:
        """What the run of observation x in a family holds: labels, or pairs as y' * Y + y."""
        ptr, code, _ = self.family(name)
        run = slice(ptr[x] - ptr[0], ptr[x + 1] - ptr[0])
        return code[run] if len(code) else np.arange(ptr[x + 1] - ptr[x])

    def bounds(self) -> tuple[int, int]:
        """The slots at which the start and the bigram family begin."""
        return int(self.start_ptr[0]), int(self.bigram_ptr[0])

    def slots(self, where: np.ndarray | None = None):
        """(family, observation, previous, label) of each slot, or of the slots `where` (sorted)."""
        where = np.arange(self.size) if where is None else np.asarray(where, dtype=np.int64)
        family = np.searchsorted(np.array(self.bounds()), where, side="right").astype(np.int8)
        observation = np.empty(len(where), np.int32)
        code = np.empty(len(where), np.int64)
        for index, name in enumerate(FAMILIES):
            mine = np.flatnonzero(family == index)
            observation[mine], code[mine] = self._decode(name, where[mine])
        pair = family == 2
        previous = np.where(pair, code // self.n_labels, -1).astype(np.int32)
        return family, observation, previous, (code % self.n_labels).astype(np.int32)

    def _decode(self, name: str, slots: np.ndarray):
        ptr, code, _ = self.family(name)
        observation = np.searchsorted(ptr, slots, side="right") - 1
        return observation, (code[slots - ptr[0]] if len(code) else slots - ptr[observation])


def _assemble(n_labels: int, runs: list[tuple[np.ndarray, np.ndarray]]) -> Layout:
    """A layout from (lengths of runs, codes or empty) of the three families."""
    parts, base = [], 0
    for lengths, code in runs:
        ptr = base + ends(lengths)
        parts += [ptr, np.ascontiguousarray(code, dtype=np.int32)]
        base = int(ptr[-1])
    return Layout(n_labels, base, *parts)


def _check_kinds(kinds, n_labels: int) -> np.ndarray:
    kinds = np.asarray(kinds, dtype=np.uint8)
    if n_labels < 1:
        raise EspalierError("there is no label: expected at least one in the training data")
    check_label_count(n_labels)
    if np.any((kinds < 1) | (kinds > 3)):
        raise EspalierError(f"kind {int(kinds.max())} of an observation: expected 1 (U), 2 (B) or 3 (*)")
    return kinds


def observation_kinds(observations: list[str]) -> np.ndarray:
    """Bits of each observation: what its first letter says it carries."""
    return np.fromiter((KINDS[text[:1]] for text in observations), np.uint8, len(observations))


def make_layout(pairs: str, dataset: Dataset, n_labels: int, kinds, start: bool = True) -> Layout:
    """The layout of all pairs of observation and label, or of those seen together."""
    if pairs not in ("seen", "all"):
        raise EspalierError(f"pairs is {pairs!r}: expected seen or all")
    return seen_layout(dataset, n_labels, kinds, start) if pairs == "seen" else dense_layout(n_labels, kinds, start)


def dense_layout(n_labels: int, kinds, start: bool = True) -> Layout:
    """Every label and every pair of labels for every observation of that kind."""
    kinds = _check_kinds(kinds, n_labels)
    none = np.empty(0, np.int32)
    unigram = np.where(kinds & UNIGRAM, n_labels, 0)
    bigram = np.where(kinds & BIGRAM, n_labels, 0)
    return _assemble(n_labels, [(unigram, none), (bigram * bool(start), none), (bigram * n_labels, none)])


def seen_layout(dataset: Dataset, n_labels: int, kinds, start: bool = True) -> Layout:
    """Only the labels and pairs that occur with the observation in `dataset`."""
    kinds = _check_kinds(kinds, n_labels)
    first = dataset.offsets[:-1]
    inner = np.ones(len(dataset.labels), bool)
    inner[first] = False
    every, inner = np.arange(len(inner)), np.flatnonzero(inner)
    at, previous = _possible(dataset, n_labels, inner - 1)
    inner = inner[at]
    at, label = _possible(dataset, n_labels, inner)
    pairs = inner[at], previous[at] * n_labels + label
    here, begin = _possible(dataset, n_labels, every), _possible(dataset, n_labels, first)
    return _assemble(
        n_labels,
        [
            _seen_runs(dataset, kinds & UNIGRAM, *here, n_labels),
            _seen_runs(dataset, (kinds & BIGRAM) * bool(start), first[begin[0]], begin[1], n_labels),
            _seen_runs(dataset, kinds & BIGRAM, *pairs, n_labels**2),
        ],
    )


def merged(layouts: Iterable[Layout]) -> Layout:
    """The layout of all weights of some layouts of the same observations: the seen pairs of parts of the data.

    Merged two by two as in a tournament, so that each pair is looked at few times.
    """
    pending: list[tuple[int, list[np.ndarray]]] = []
    n_labels = n_observations = 0
    for layout in layouts:
        n_labels, n_observations = layout.n_labels, layout.n_observations
        pending.append((1, _keys(layout)))
        while len(pending) > 1 and pending[-1][0] >= pending[-2][0]:
            _merge_last(pending)
    while len(pending) > 1:
        _merge_last(pending)
    if not pending:
        raise EspalierError("there is no layout to merge: expected that of at least one part of the data")
    runs = []
    for keys, full in zip(pending[0][1], (n_labels, n_labels, n_labels**2), strict=True):
        runs.append((np.bincount(keys // full, minlength=n_observations), keys % full))
    return _assemble(n_labels, runs)


def joined_layout(states: Layout, transitions: Layout) -> Layout:
    """The unigram weights of one layout and the start and bigram weights of another of the same observations."""
    parts = states.family("unigram"), transitions.family("start"), transitions.family("bigram")
    return _assemble(states.n_labels, [(np.diff(ptr), code) for ptr, code, _ in parts])


def frequent_layout(layout: Layout, dataset: Dataset, least: float) -> Layout:
    """The weights of a layout whose observation has its label, or pair of labels, at `least` so often in the data.

    An observation with a value counts as much as that.
    """
    runs, n_labels, wide = [], layout.n_labels, every_observation(dataset).astype(np.int64)
    values = np.ones(wide.shape)
    if dataset.values.size:
        values[:, dataset.observations.shape[1] :] = dataset.values
    labels, first = dataset.labels.astype(np.int64), dataset.offsets[:-1]
    before = np.append(-1, labels[:-1])
    before[first] = -1
    pairs = np.where((before >= 0) & (labels >= 0), before * n_labels + labels, -1)
    begins = np.full(len(labels), -1)
    begins[first] = labels[first]
    sizes = n_labels, n_labels, n_labels**2
    for keys, full, codes in zip(_keys(layout), sizes, (labels, begins, pairs), strict=True):
        there = (wide >= 0) & (codes >= 0)[:, None]
        seen, which = np.unique((wide * full + codes[:, None])[there], return_inverse=True)
        counts = np.bincount(which, values[there], minlength=len(seen))
        at = np.searchsorted(seen, keys)
        known = np.append(seen, -1)[at] == keys
        keys = keys[np.where(known, np.append(counts, 0)[at], 0) >= least]
        runs.append((np.bincount(keys // full, minlength=layout.n_observations), keys % full))
    return _assemble(n_labels, runs)


def with_full_runs(layout: Layout, kinds: Sequence[int]) -> Layout:
    """The layout with more observations behind its own, each with all weights of its kind, start weights included."""
    runs = []
    for name, kind in (("unigram", UNIGRAM), ("start", BIGRAM), ("bigram", BIGRAM)):
        ptr, code, full = layout.family(name)
        more = [full * bool(own & kind) for own in kinds]
        if len(code):
            code = np.concatenate([code, *(np.arange(size, dtype=np.int32) for size in more)])
        runs.append((np.concatenate([np.diff(ptr), more]).astype(np.int64), code))
    return _assemble(layout.n_labels, runs)


def find_slots(layout: Layout, name: str, observation: np.ndarray, code: np.ndarray) -> np.ndarray:
    """The slot of each (observation, code) of a family, -1 where the layout has none."""
    ptr, codes, full = layout.family(name)
    if len(codes) == 0:
        present = ptr[observation + 1] > ptr[observation]
        return np.where(present, ptr[observation] + code, -1)
    owner = np.repeat(np.arange(layout.n_observations, dtype=np.int64), np.diff(ptr))
    keys = owner * full + codes
    wanted = observation * full + code
    found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[found] == wanted, ptr[0] + found, -1)


def _merge_last(pending: list) -> None:
    (n, keys), (m, others) = pending.pop(), pending.pop()
    pending.append((n + m, [np.union1d(a, b) for a, b in zip(keys, others, strict=True)]))


def _keys(layout: Layout) -> list[np.ndarray]:
    """(observation, code) of each weight of a family as one ascending number."""
    out = []
    for name in FAMILIES:
        ptr, _, full = layout.family(name)
        observation, code = layout._decode(name, np.arange(ptr[0], ptr[-1]))
        out.append(observation * full + code)
    return out


def _possible(dataset: Dataset, n_labels: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(k, label) for each label that is known, or in the set, at positions[k]; an unknown label adds nothing."""
    if not len(dataset.label_sets):
        labels = dataset.labels[positions].astype(np.int64)
        known = np.flatnonzero(labels >= 0)
        return known, labels[known]
    row, table = label_rows(dataset, n_labels, unknown=False)
    row, sizes, member = row[positions], table.sum(axis=1), np.nonzero(table)[1]
    lengths, begin = sizes[row], (np.cumsum(sizes) - sizes)[row]
    k = np.repeat(np.arange(len(row)), lengths)
    rank = np.arange(len(k)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return k, member[begin[k] + rank]


def _seen_runs(dataset: Dataset, wanted, positions, code, n_codes: int):
    """Distinct (observation, code) at the positions, as lengths per observation and codes."""
    observations = every_observation(dataset)
    columns = carrying_columns(observations, ends(wanted > 0))
    lengths = np.zeros(len(wanted), np.int64)
    if not len(columns):
        return lengths, np.empty(0, np.int32)
    code = code.astype(np.int32)
    order = sort_by(code, n_codes, np.arange(len(code), dtype=np.int32))
    visits = observations, columns, positions[order], code[order]
    last = np.where(wanted > 0, -1, n_codes).astype(np.int32)
    _count_codes(*visits, last.copy(), lengths)
    at = ends(lengths)
    codes = np.empty(at[-1], np.int32)
    _put_codes(*visits, last, at, codes)
    return lengths, codes


@kernel
def _count_codes(observations, columns, positions, code, last, lengths):
    """The number of distinct codes of each observation. Codes come in ascending order, so `last` tells a new one."""
    for i in range(len(positions)):
        t, c = positions[i], code[i]
        for k in columns:
            x = observations[t, k]
            if x >= 0 and last[x] < c:
                last[x] = c
                lengths[x] += 1


@kernel
def _put_codes(observations, columns, positions, code, last, at, out):
    """The same walk: each new code goes where its observation's run has come to."""
    for i in range(len(positions)):
        t, c = positions[i], code[i]
        for k in columns:
            x = observations[t, k]
            if x >= 0 and last[x] < c:
                last[x] = c
                out[at[x]] = c
                at[x] += 1
