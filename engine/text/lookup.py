"""Observations of a locked vocabulary, found from the texts of columns without writing out an expansion.

The hash of a text is a polynomial in its bytes, so the hash of texts put together follows from the
hashes of the parts: H(ab) = H(a) B^|b| + H(b). A template's expansion is hashed that way, from
distinct texts that are hashed once, and compared byte by byte with what the vocabulary holds under
that hash. A short memory per template, keyed by the texts that its macros saw, spares the repetitions.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from espalier.engine.runtime import threads
from espalier.engine.runtime.arrow_arrays import text_array
from espalier.engine.runtime.jit import kernel
from espalier.engine.text.coded_columns import derive, number
from espalier.engine.text.templates import FIRST, HERE, Macro, Template, columns_of, sources_of

# Hashes have 32 bits in a uint64: a product of two does not overflow.
BASE, SPREAD, LOW = np.uint64(0x01000193), np.uint64(0x9E3779B1), np.uint64(0xFFFFFFFF)
ONE, BITS = np.uint64(1), np.uint64(32)
MEMORY = 1 << 14  # expansions that a template remembers
LARGEST_KEY = 1 << 62  # all keys are smaller


class Texts(NamedTuple):
    """D distinct texts as bytes, and a table to find them: hash * 2^32 + id + 1, 0 where it is free."""

    data: np.ndarray  # uint8
    begin: np.ndarray  # int64 [D]
    end: np.ndarray  # int64 [D]
    hash: np.ndarray  # uint64 [D], sum_i (b_i + 1) B^(n - 1 - i) modulo 2^32
    power: np.ndarray  # uint64 [D], B^n
    table: np.ndarray  # uint64, a power of two of places, at least half of them free


class TemplatePart(NamedTuple):
    """The parts of one column of a template, P of them."""

    is_macro: np.ndarray  # bool [P]
    first: np.ndarray  # int64 [P], the literal, or where the column that the macro looks at begins
    origin: np.ndarray  # int64 [P], of a macro: HERE, FIRST or LAST
    shift: np.ndarray  # int64 [P], of a macro
    edge: np.ndarray  # int64 [P], where the values beyond the edge begin, the one `nearest` positions beyond first
    nearest: np.ndarray  # int64 [P]


def make_vocabulary(texts: list[str] | pa.Array) -> Texts:
    """The vocabulary of distinct texts, whose ids are their places; an Array must be of large_string."""
    return _number([texts if isinstance(texts, pa.Array) else text_array(texts)])[0]


def find(vocabulary: Texts, templates: list[Template], columns: list[pa.Array], offsets: np.ndarray) -> np.ndarray:
    """Ids of what the templates yield, int32 [T, K] by `column_names`, -1 for none that the vocabulary holds.

    `columns` are large_string arrays of T texts without nulls; `offsets` [N + 1] cut them into sequences.
    """
    ids, texts, parts = _prepare(templates, columns, offsets)
    out = np.empty((len(parts), int(offsets[-1])), np.int32)

    def one(k: int) -> None:
        fits = len(texts.begin) ** int(parts[k].is_macro.sum()) <= LARGEST_KEY
        keys, values = np.full(MEMORY, LARGEST_KEY, np.uint64), np.empty(MEMORY, np.int32)
        _find(vocabulary, texts, ids, parts[k], offsets, fits, keys, values, out[k])

    threads.run(one, range(len(parts)))
    return np.ascontiguousarray(out.T)


def _prepare(templates: list[Template], columns: list[pa.Array], offsets: np.ndarray):
    """(ids, texts, parts): the parts of each column of the templates point into the ids of texts.

    The ids are those of the columns, then of the columns that sources make of them, then of literals and of the
    values beyond the edges.
    """
    tokens, longest = int(offsets[-1]), int(np.diff(offsets).max(initial=0))
    numbered, derived, first, base = {}, [], {}, len(columns) * tokens
    for source in sources_of(templates):
        if source.is_plain:
            first[source] = source.column * tokens
            continue
        if source.column not in numbered:
            numbered[source.column] = number(columns[source.column])
        derived.append(derive(source, numbered[source.column], offsets))
        first[source], base = base, base + source.width * tokens
    extra: list[str | None] = []
    parts = [_parts(templates[i], slot, longest, tokens, first, base, extra) for i, slot in columns_of(templates)]
    texts, ids = _number([*columns, *(column.texts for column in derived), text_array(extra)])
    blocks, at = [ids[: len(columns) * tokens]], len(columns) * tokens
    for column in derived:
        blocks.append(np.append(ids[at : at + len(column.texts)], np.int32(-1))[column.codes].ravel())
        at += len(column.texts)
    rest = ids[at:]
    rest[[i for i, text in enumerate(extra) if text is None]] = -1
    return np.concatenate([*blocks, rest]) if derived else ids, texts, parts


def _parts(
    template: Template, slot: int, longest: int, tokens: int, first: dict, base: int, extra: list
) -> TemplatePart:
    """The parts of one column of a template; literals and values beyond the edges go to `extra`."""
    rows = []
    for part in template.parts:
        at = base + len(extra)
        if isinstance(part, Macro):
            mine, beyond = slot if part.source.width > 1 else 0, part.beyond(longest)
            extra += [None if mine else part.edge(distance)[0] for distance in beyond]
            rows.append((True, first[part.source] + mine * tokens, part.origin, part.shift, at, beyond.start))
        else:
            extra.append(part)
            rows.append((False, at, 0, 0, 0, 0))
    is_macro, *numbers = zip(*rows, strict=True)
    return TemplatePart(np.array(is_macro), *(np.array(column, np.int64) for column in numbers))


def _number(arrays: list[pa.Array]) -> tuple[Texts, np.ndarray]:
    """The distinct texts of all arrays in order of appearance, and for each text, one array after the other, its id."""
    data, bounds, base = [np.empty(0, np.uint8)], [], 0
    for array in arrays:
        _, offsets, content = array.buffers()
        ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        ends = ends if len(ends) else np.zeros(1, np.int64)
        data.append(np.frombuffer(content or b"", np.uint8)[ends[0] : ends[-1]])
        bounds.append(ends - ends[0] + base)
        base = int(bounds[-1][-1])
    begin, end = (np.concatenate([b[cut] for b in bounds]) for cut in (slice(-1), slice(1, None)))
    size = 16
    while size < 2 * len(begin):
        size *= 2
    texts = Texts(
        np.concatenate(data), begin, end, np.empty(len(begin), np.uint64), np.empty(len(begin), np.uint64),
        np.zeros(size, np.uint64),
    )  # fmt: skip
    ids = np.empty(len(begin), np.int32)
    count = _keep_distinct(texts, ids)
    return Texts(texts.data, *(array[:count] for array in texts[1:5]), texts.table), ids


@kernel
def _place(value, size):
    """Where the search for a hash begins: the high bits of a product, as many as the table has."""
    return ((value * SPREAD & LOW) * size) >> BITS


@kernel
def _keep_distinct(texts, ids):
    """Number the texts by first appearance, move what belongs to each to its number; their count."""
    data, begin, end, hashes, powers, table = texts.data, texts.begin, texts.end, texts.hash, texts.power, texts.table
    size, count = np.uint64(len(table)), 0
    for e in range(len(ids)):
        low, high, value, power = begin[e], end[e], np.uint64(0), ONE
        for i in range(low, high):
            value = (value * BASE + np.uint64(data[i]) + ONE) & LOW
            power = (power * BASE) & LOW
        at, found = _place(value, size), np.int64(-1)
        while table[at] != 0:
            if table[at] >> BITS == value:
                x = np.int64(table[at] & LOW) - 1
                if end[x] - begin[x] == high - low and _match(data, begin[x], data, low, high):
                    found = x
                    break
            at = (at + ONE) & (size - ONE)
        if found < 0:
            found = count
            table[at] = (value << BITS) | np.uint64(found + 1)
            begin[found], end[found], hashes[found], powers[found] = low, high, value, power
            count += 1
        ids[e] = found
    return count


@kernel
def _match(known, at, data, low, high):
    """Whether known[at:] goes on with data[low:high]."""
    for i in range(low, high):
        if known[at + i - low] != data[i]:
            return False
    return True


@kernel
def _find(vocabulary, texts, ids, part, offsets, fits, keys, values, out):
    """out[t] of one template. A key is the number whose digits are the texts that the macros saw, if that `fits`."""
    is_macro, first, origin, shift = part.is_macro, part.first, part.origin, part.shift
    edge, nearest = part.edge, part.nearest
    n_texts, memory = np.uint64(len(texts.begin)), np.uint64(len(keys))
    macros, chosen = np.flatnonzero(is_macro), np.empty(len(first), np.int64)
    for j in np.flatnonzero(~is_macro):
        chosen[j] = ids[first[j]]
    for n in range(len(offsets) - 1):
        low, high = offsets[n], offsets[n + 1]
        for t in range(low, high):
            key, none = np.uint64(0), False
            for j in macros:
                target = shift[j] + (t if origin[j] == HERE else low if origin[j] == FIRST else high)
                if target < low:
                    at = edge[j] + (low - target - nearest[j])
                elif target >= high:
                    at = edge[j] + (target - high + 1 - nearest[j])
                else:
                    at = first[j] + target
                x = ids[np.uint64(at)]
                if x < 0:
                    none = True
                    break
                chosen[j] = x
                key = key * n_texts + np.uint64(x) if fits else key
            if none:
                out[t] = -1
                continue
            here = _place((key ^ (key >> BITS)) & LOW, memory)
            if not fits or keys[here] != key:
                keys[here], values[here] = key, _search(vocabulary, texts, chosen)
            out[t] = values[here]


@kernel
def _search(vocabulary, texts, chosen):
    """The id of the chosen texts put together, -1 if the vocabulary does not hold it."""
    begin, end, table = vocabulary.begin, vocabulary.end, vocabulary.table
    hashes, powers, size, value = texts.hash, texts.power, np.uint64(len(table)), np.uint64(0)
    for x in chosen:
        value = (value * powers[x] + hashes[x]) & LOW
    at = _place(value, size)
    while table[at] != 0:
        if table[at] >> BITS == value:
            x = np.int64(table[at] & LOW) - 1
            if _same(vocabulary.data, begin[x], end[x], texts.data, texts.begin, texts.end, chosen):
                return x
        at = (at + ONE) & (size - ONE)
    return np.int64(-1)


@kernel
def _same(known, low, high, data, begin, end, chosen):
    """Whether known[low:high] is the chosen texts put together."""
    for x in chosen:
        length = end[x] - begin[x]
        if length > high - low or not _match(known, low, data, begin[x], end[x]):
            return False
        low += length
    return low == high
