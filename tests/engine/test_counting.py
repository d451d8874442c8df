"""Counting sorts and numberings against sorted lists and dictionaries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.engine.runtime.grouping import carrying_columns, combine, ends, first_places, group, sort, sort_by

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=100)
KEYS = st.lists(st.integers(-1, 5), max_size=30).map(lambda keys: np.array(keys, np.int32))
ROW = st.lists(st.integers(-1, 4), min_size=3, max_size=3)


@EXAMPLES
@given(KEYS)
@pytest.mark.nojit
def test_group_lists_the_places_of_each_key(keys):
    ptr, entry = group(keys, 6)
    found = [entry[a:b].tolist() for a, b in zip(ptr, ptr[1:], strict=False)]
    assert found == [[i for i, key in enumerate(keys) if key == k] for k in range(6)]


@EXAMPLES
@given(st.lists(st.integers(-5, 5), max_size=40), st.sampled_from([np.int32, np.float64]))
@pytest.mark.nojit
def test_sort_is_in_place(values, dtype):
    array = np.array([9, *values, -9], dtype)
    sort(array[1:-1])
    assert array.tolist() == [9, *sorted(values), -9]


@EXAMPLES
@given(KEYS, st.randoms(use_true_random=False))
@pytest.mark.nojit
def test_sort_by_is_stable(keys, random):
    keys, order = keys + np.int32(1), list(range(len(keys)))
    random.shuffle(order)
    assert sort_by(keys, 7, np.array(order, np.int32)).tolist() == sorted(order, key=lambda i: keys[i])


@EXAMPLES
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 4)), max_size=40), st.integers(0, 25))
@pytest.mark.nojit
def test_combine_numbers_pairs_as_they_appear(pairs, limit):
    ids, column = np.array([p[0] for p in pairs], np.int32), np.array([p[1] for p in pairs], np.int32)
    numbers = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
    count = combine(ids, column, limit)
    assert count == (len(numbers) if len(numbers) <= limit else 0)
    if count:
        assert ids.tolist() == [numbers[pair] for pair in pairs]
        assert first_places(ids, count).tolist() == [pairs.index(pair) for pair in numbers]


def test_combine_with_more_pairs_than_the_first_table_holds():
    """Large ids and values too: nothing may overflow or be taken for another pair."""
    random = np.random.default_rng(0)
    ids, column = random.integers(0, 2**31 - 1, (2, 20_000)).astype(np.int32)
    ids[::3], column[::5] = ids[0], -1
    pairs = list(zip(ids.tolist(), column.tolist(), strict=True))
    numbers = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
    assert combine(ids, column, len(ids)) == len(numbers) > 10_000
    assert ids.tolist() == [numbers[pair] for pair in pairs]


@EXAMPLES
@given(st.lists(ROW, max_size=12), st.lists(st.integers(0, 2), min_size=5, max_size=5))
@pytest.mark.nojit
def test_carrying_columns(rows, lengths):
    observations = np.array(rows, np.int32).reshape(-1, 3)
    expected = [k for k in range(3) if any(row[k] >= 0 and lengths[row[k]] for row in rows)]
    assert carrying_columns(observations, 7 + ends(lengths)).tolist() == expected
