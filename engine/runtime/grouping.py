"""Orders and numberings that are linear in what they read: counting sorts and one hash table."""

import numpy as np

from espalier.engine.runtime.jit import kernel


def ends(counts) -> np.ndarray:
    """Where runs of these lengths end, from 0: int64 [runs + 1]."""
    out = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=out[1:])
    return out


@kernel
def sort(values):
    """Ascending, in place: a heap, which compiles in a fifth of the time that numba's sort takes."""
    for begin in range(len(values) // 2 - 1, -1, -1):
        _sink(values, begin, len(values))
    for end in range(len(values) - 1, 0, -1):
        values[0], values[end] = values[end], values[0]
        _sink(values, 0, end)


@kernel
def _sink(values, i, end):
    """Let element i of a heap sink to its place below larger ones; the heap ends at `end`."""
    value = values[i]
    while 2 * i + 1 < end:
        below = 2 * i + 1
        if below + 1 < end and values[below + 1] > values[below]:
            below += 1
        if not values[below] > value:
            break
        values[i] = values[below]
        i = below
    values[i] = value


@kernel
def group(keys, n_keys):
    """(ptr, entry): the places of key k in `keys`, ascending, are entry[ptr[k]:ptr[k + 1]]; keys < 0 are left out."""
    ptr = np.zeros(n_keys + 1, np.int64)
    for key in keys:
        if key >= 0:
            ptr[key + 1] += 1
    for k in range(n_keys):
        ptr[k + 1] += ptr[k]
    entry, at = np.empty(ptr[n_keys], np.int32), ptr[:n_keys].copy()
    for i in range(len(keys)):
        key = keys[i]
        if key >= 0:
            entry[at[key]] = i
            at[key] += 1
    return ptr, entry


@kernel
def sort_by(keys, n_keys, order):
    """`order` sorted by keys[order[i]] in 0 .. n_keys - 1; equal ones stay as they are."""
    at = np.zeros(n_keys + 1, np.int64)
    for key in keys:
        at[key + 1] += 1
    for k in range(n_keys):
        at[k + 1] += at[k]
    out = np.empty_like(order)
    for i in order:
        key = keys[i]
        out[at[key]] = i
        at[key] += 1
    return out


@kernel
def combine(ids, column, limit):
    """Number the distinct pairs (ids, column) in order of appearance, into `ids`; 0 when more than `limit`."""
    size, count, t = 1024, np.int64(0), np.int64(0)
    keys, numbers = np.full(size, -1, np.int64), np.empty(size, np.int32)
    while True:
        t, count = _number(ids, column, t, count, min(limit, size // 2), keys, numbers)
        if t == len(ids):
            return count
        if count >= limit:
            return 0
        size *= 4
        more_keys, more_numbers = np.full(size, -1, np.int64), np.empty(size, np.int32)
        _move(keys, numbers, more_keys, more_numbers)
        keys, numbers = more_keys, more_numbers


@kernel
def _number(ids, column, t, count, limit, keys, numbers):
    """Go on from position t until there are `limit` numbers and one more is needed: (next position, numbers given)."""
    mask = np.uint64(len(keys) - 1)
    for i in range(t, len(ids)):
        key = (np.int64(ids[i]) << 32) + column[i] + 1
        at = _place(keys, mask, key)
        if keys[at] < 0:
            if count >= limit:
                return i, count
            keys[at], numbers[at] = key, count
            count += 1
        ids[i] = numbers[at]
    return len(ids), count


@kernel
def _move(keys, numbers, more_keys, more_numbers):
    """Fill a larger table."""
    mask = np.uint64(len(more_keys) - 1)
    for i in range(len(keys)):
        if keys[i] >= 0:
            at = _place(more_keys, mask, keys[i])
            more_keys[at], more_numbers[at] = keys[i], numbers[i]


@kernel
def _place(keys, mask, key):
    """Where `key` is in the table, or the free place for it."""
    mixed = np.uint64(key >> 32) * np.uint64(0x9E3779B1) + np.uint64(key & 0xFFFFFFFF) * np.uint64(0x85EBCA77)
    at = (mixed >> np.uint64(20)) & mask
    while keys[at] >= 0 and keys[at] != key:
        at = (at + np.uint64(1)) & mask
    return at


@kernel
def first_places(ids, count):
    """Where each of the numbers that `combine` gave appears first."""
    found, out = 0, np.empty(count, np.int64)
    for t in range(len(ids)):
        if ids[t] == found:
            out[found] = t
            found += 1
    return out


def carrying_columns(observations: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    """The columns, int64, with an observation x whose run ptr[x]:ptr[x + 1] is not empty."""
    found = np.zeros(observations.shape[1], bool)
    if ptr[-1] > ptr[0]:
        first, last = np.searchsorted(ptr, ptr[0], side="right") - 1, np.searchsorted(ptr, ptr[-1]) - 1
        _find_carrying(observations, ptr, first, last, found)
    return np.flatnonzero(found)


@kernel
def _find_carrying(observations, ptr, first, last, found):
    """Those that carry lie from `first` to `last`, which spares most look-ups when they are few."""
    left = observations.shape[1]
    for t in range(len(observations)):
        for k in range(observations.shape[1]):
            x = observations[t, k]
            if first <= x <= last and not found[k] and ptr[x + 1] > ptr[x]:
                found[k] = True
                left -= 1
        if left == 0:
            return
