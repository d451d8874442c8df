"""Which weights the right labelling of each sequence uses: for losses that weigh the sequences anew at each theta."""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.pair_sets import invert
from espalier.engine.data.dataset import Dataset
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.threads import PIECES, balanced
from espalier.engine.weights.layout import Layout

BYTES = 8  # of an observation at a position: its slot, and its sequence in the other order


class ObservedSlots(NamedTuple):
    """The slots of sequence n are slot[ptr[n]:ptr[n + 1]]; of weight k the sequences of_slot[slot_ptr[k]:…]."""

    ptr: np.ndarray  # int64 [N + 1]
    slot: np.ndarray  # int32, int64 where weights are many
    amount: np.ndarray  # float64, the values of observations; empty where all are 1
    slot_ptr: np.ndarray  # int64 [size + 1]
    sequence: np.ndarray  # int32
    amount_by_slot: np.ndarray  # float64 or empty

    def scores(self, theta: np.ndarray) -> np.ndarray:
        """The score of the right labelling of each sequence, float64 [N]."""
        out = np.empty(len(self.ptr) - 1)
        threads.run(
            lambda run: _sum_up(self.ptr, self.slot, self.amount, theta, *run, out), balanced(np.diff(self.ptr), PIECES)
        )
        return out

    def counts(self, weights: np.ndarray) -> np.ndarray:
        """sum_n w_n times the counts of sequence n, float64 [size]."""
        out = np.empty(len(self.slot_ptr) - 1)
        threads.run(
            lambda run: _sum_up(self.slot_ptr, self.sequence, self.amount_by_slot, weights, *run, out),
            balanced(np.diff(self.slot_ptr) + 1, PIECES) if len(out) else [],
        )
        return out


def observed_slots(dataset: Dataset, layout: Layout, chosen: np.ndarray) -> ObservedSlots:
    """Of the sequences that are chosen, bool [N], whose labels are all known; the others use none."""
    ptr = np.zeros(len(dataset.weights) + 1, np.int64)
    kind = np.int32 if layout.size < 2**31 else np.int64
    valued = dataset.valued.shape[1] > 0
    _visit(layout, dataset, chosen, ptr, np.empty(0, kind), np.empty(0), False)
    ptr = np.cumsum(ptr)
    slot, amount = np.empty(ptr[-1], kind), np.empty(ptr[-1] if valued else 0)
    _visit(layout, dataset, chosen, ptr.copy(), slot, amount, True)
    order = invert(slot, layout.size)
    owner = np.repeat(np.arange(len(dataset.weights), dtype=np.int32), np.diff(ptr))
    return ObservedSlots(
        ptr, slot, amount, order.ptr, owner[order.entry], amount[order.entry] if valued else np.empty(0)
    )


@kernel
def _visit(layout, data, chosen, at, slot, amount, fill):
    """Count the slots of sequence n in at[n + 1], or write them from at[n] on."""
    labels, offsets, n_labels = data.labels, data.offsets, layout.n_labels
    for n in range(len(offsets) - 1):
        if not chosen[n]:
            continue
        i = at[n]
        for t in range(offsets[n], offsets[n + 1]):
            y, first = labels[t], t == offsets[n]
            for k in range(data.observations.shape[1]):
                x = data.observations[t, k]
                if x < 0:
                    continue
                found = _slot(layout.unigram_ptr, layout.unigram_code, x, y, n_labels)
                i = _put(found, 1.0, i, slot, amount, fill)
                if first:
                    found = _slot(layout.start_ptr, layout.start_code, x, y, n_labels)
                else:
                    pair = labels[t - 1] * n_labels + y
                    found = _slot(layout.bigram_ptr, layout.bigram_code, x, pair, n_labels * n_labels)
                i = _put(found, 1.0, i, slot, amount, fill)
            for k in range(data.valued.shape[1]):
                if data.valued[t, k] >= 0:
                    found = _slot(layout.unigram_ptr, layout.unigram_code, data.valued[t, k], y, n_labels)
                    i = _put(found, data.values[t, k], i, slot, amount, fill)
        if not fill:
            at[n + 1] = i - at[n]


@kernel
def _put(found, value, i, slot, amount, fill):
    if found < 0:
        return i
    if fill:
        slot[i] = found
        if len(amount):
            amount[i] = value
    return i + 1


@kernel
def _slot(ptr, code, x, wanted, n_codes):
    """The slot of (x, wanted), -1 where there is none; the codes of a run that is not full ascend."""
    lo, hi, base = ptr[x], ptr[x + 1], ptr[0]
    if hi - lo == n_codes:
        return lo + wanted
    end = hi
    while lo < hi:
        middle = (lo + hi) // 2
        if code[middle - base] < wanted:
            lo = middle + 1
        else:
            hi = middle
    return lo if lo < end and code[lo - base] == wanted else -1


@kernel
def _sum_up(ptr, entry, amount, values, lo, hi, out):
    """out[i] = sum of the values at the entries of i, times their amounts where there are some."""
    plain = len(amount) == 0
    for i in range(lo, hi):
        total = 0.0
        if plain:
            for k in range(ptr[i], ptr[i + 1]):
                total += values[entry[k]]
        else:
            for k in range(ptr[i], ptr[i + 1]):
                total += amount[k] * values[entry[k]]
        out[i] = total
