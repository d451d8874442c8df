"""Columns of texts as numbers, and the columns that the sources of templates make of them."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from espalier.engine.runtime.arrow_arrays import numbers_of, text_array
from espalier.engine.text.macros import Source


class Column(NamedTuple):
    """Token t has the values texts[codes[w, t]], w = 0 … W - 1; a code of -1 is none. The texts are distinct."""

    codes: np.ndarray  # int32 [W, T]
    texts: pa.Array  # large_string


def number(texts: pa.Array) -> Column:
    """A column as it is; `texts` is a large_string array of T texts without nulls."""
    found = texts.dictionary_encode()
    return Column(numbers_of(found.indices, np.int32).reshape(1, -1), found.dictionary)


def derive(source: Source, column: Column, offsets: np.ndarray) -> Column:
    """What a source makes of its column; `offsets` [N + 1] cut the tokens into sequences."""
    if source.is_plain:
        return column
    texts = column.texts.to_pylist()
    if source.letter == "l":
        names = source.name_list()
        found = names.find(texts, column.codes[0], offsets)
        return Column(found.reshape(1, -1), text_array(names.values))
    values = [source.function(text) for text in texts]
    flat = text_array([value for row in values for value in row if value is not None]).dictionary_encode()
    there = np.array([value is not None for row in values for value in row], bool)
    table = np.full((source.width, len(texts)), -1, np.int32)
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    text_of = np.repeat(np.arange(len(texts)), lengths)
    place = np.arange(len(text_of)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    table[place[there], text_of[there]] = numbers_of(flat.indices, np.int32)
    return Column(table[:, column.codes[0]], flat.dictionary)
