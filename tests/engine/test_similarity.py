"""Distinct rows and sums by what they have in common, against sets and sums over all pairs."""

import numpy as np
import pytest
from reference import kernels

from espalier.engine.runtime import threads
from espalier.engine.similarity import overlaps
from espalier.engine.similarity.overlaps import Overlaps
from espalier.engine.similarity.rows import AttributeRows, distinct_rows, selected

SUMS = 1e-12  # relative, of sums in another order


def random_rows(count=150, columns=5, attributes=12, seed=0, gaps=0.2):
    """Few attributes in most rows, many in few."""
    random = np.random.default_rng(seed)
    table = np.minimum(random.geometric(0.2, (count, columns)) - 1, attributes - 1) + attributes * np.arange(columns)
    return np.where(random.random(table.shape) < gaps, -1, table).astype(np.int32), attributes * columns


def sets_of(rows: AttributeRows):
    return [rows.attribute[a:b].tolist() for a, b in zip(rows.ptr, rows.ptr[1:], strict=False)]


def test_rows_are_the_distinct_sets_in_the_order_of_their_first_positions():
    table, size = random_rows(columns=3, attributes=4)
    among = np.ones(size, bool)
    among[[2, 5]] = False
    expected, numbers = {}, []
    for row in table.tolist():
        key = tuple(sorted({a for a in row if a >= 0 and among[a]}))
        numbers.append(expected.setdefault(key, len(expected)))
    found = distinct_rows(table, among)
    assert [tuple(row) for row in sets_of(found.rows)] == list(expected)
    assert found.of_position.tolist() == numbers
    assert found.first.tolist() == [numbers.index(p) for p in range(len(expected))]


def test_an_attribute_that_is_there_twice_is_there_once():
    found = distinct_rows(np.array([[1, 1, 0], [0, -1, 1], [2, 2, 2]], np.int32), np.ones(3, bool))
    assert sets_of(found.rows) == [[0, 1], [2]] and found.of_position.tolist() == [0, 0, 1]


def test_rows_without_attributes_and_no_rows():
    assert sets_of(distinct_rows(np.full((2, 3), -1, np.int32), np.ones(3, bool)).rows) == [[]]
    assert sets_of(distinct_rows(np.zeros((2, 0), np.int32), np.ones(3, bool)).rows) == [[]]
    assert distinct_rows(np.zeros((0, 2), np.int32), np.ones(3, bool)).rows.count == 0


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("n_labels", [1, 4, 7])
def test_products_are_sums_over_all_pairs(degree, n_labels):
    table, size = random_rows(seed=degree)
    found = distinct_rows(table, np.ones(size, bool))
    similar = Overlaps(found.rows, size, degree)
    assert (similar.index.mask_of >= 0).any() and len(similar.index.entry)  # both ways of counting
    amounts = np.random.default_rng(1).normal(size=(found.rows.count, n_labels))
    rows = sets_of(found.rows)
    expected = np.array(kernels.scores(rows, rows, amounts.tolist(), degree))
    np.testing.assert_allclose(similar.product(amounts), expected, rtol=SUMS, atol=SUMS * np.abs(expected).max())
    few = np.array([5, 0, 7])
    grams = [[kernels.kernel(rows[q], row, degree) for row in rows] for q in few]
    np.testing.assert_array_equal(similar.columns(selected(found.rows, few)), grams)
    others = AttributeRows(np.array([0, 2, 2]), np.array([0, 3], np.int32))
    expected = np.array(kernels.scores([[0, 3], []], rows, amounts.tolist(), degree))
    np.testing.assert_allclose(similar.product(amounts, others), expected, rtol=1e-10, atol=1e-10)


def test_rows_of_more_than_a_byte_counts():
    table = np.arange(300, dtype=np.int32)[None, :].repeat(2, axis=0)
    table[1, 290:] = -1
    similar = Overlaps(distinct_rows(table, np.ones(300, bool)).rows, 300, 1)
    np.testing.assert_array_equal(similar.columns(similar.rows), [[301, 291], [291, 291]])


def test_any_number_of_threads_and_tiles_of_queries_gives_the_same_bytes():
    table, size = random_rows(count=700, seed=3)
    found = distinct_rows(table, np.ones(size, bool))
    amounts = np.random.default_rng(2).normal(size=(found.rows.count, 3))
    assert found.rows.count > 2 * overlaps.TILE
    seen = set()
    try:
        for count in (1, 2, 8):
            threads.set_threads(count)
            seen.add(Overlaps(found.rows, size, 3).product(amounts).tobytes())
    finally:
        threads.set_threads(None)
    alone = [Overlaps(found.rows, size, 3).product(amounts, selected(found.rows, np.array([q]))) for q in range(40)]
    assert len(seen) == 1 and seen.pop().startswith(np.concatenate(alone).tobytes())
