"""Count vectors: one form for equal contents, and everything that would mislead a kernel refused."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.engine.data.bags import (
    Bags,
    bags_of_matrix,
    check_instance_weights,
    check_labels,
    input_keys,
    join_bags,
    make_bags,
    refuse_empty_pool,
    refuse_missing_class,
    select_bags,
    with_constant,
)
from espalier.engine.errors import EspalierError

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=60)
MATRICES = st.integers(0, 10**6).map(
    lambda seed: np.random.default_rng(seed).integers(0, 3, (seed % 5 + 1, seed % 4 + 1)).astype(float)
)


def dense(bags):
    matrix = np.zeros((bags.size, bags.n_features))
    for n in range(bags.size):
        for i in range(bags.indptr[n], bags.indptr[n + 1]):
            matrix[n, bags.indices[i]] += bags.counts[i]
    return matrix


@EXAMPLES
@given(MATRICES)
def test_a_matrix_comes_back(matrix):
    bags = bags_of_matrix(matrix)
    np.testing.assert_array_equal(dense(bags), matrix)
    assert bags.indptr.dtype == np.int64 and bags.indices.dtype == np.int32 and bags.counts.dtype == np.float64
    assert bags.size == len(matrix) and (bags.counts > 0).all()


def test_one_form_whatever_the_order():
    """Features out of order, named twice, or with a count of zero."""
    untidy = make_bags([0, 4, 4, 6], [2, 0, 2, 1, 3, 1], [1, 2, 3, 0, 1, 1], 4)
    tidy = make_bags([0, 2, 2, 4], [0, 2, 1, 3], [2, 4, 1, 1], 4)
    assert all(np.array_equal(a, b) for a, b in zip(untidy, tidy, strict=True))


def test_read_only_arrays_are_taken():
    counts = np.ones(1)
    counts.flags.writeable = False
    assert make_bags([0, 1], [0], counts, 1).counts.flags.writeable


@EXAMPLES
@given(MATRICES, st.integers(0, 10**6))
def test_select_join_and_constant(matrix, seed):
    rows = np.random.default_rng(seed).integers(0, len(matrix), 4)
    bags = bags_of_matrix(matrix)
    np.testing.assert_array_equal(dense(select_bags(bags, rows)), matrix[rows])
    joined = join_bags(bags, select_bags(bags, rows))
    np.testing.assert_array_equal(dense(joined), np.concatenate([matrix, matrix[rows]]))
    np.testing.assert_array_equal(dense(with_constant(bags)), np.column_stack([matrix, np.ones(len(matrix))]))


@EXAMPLES
@given(MATRICES)
def test_equal_vectors_have_equal_keys(matrix):
    ours, theirs = input_keys(bags_of_matrix(matrix), bags_of_matrix(matrix[::-1]))
    rows = [tuple(row) for row in matrix]
    for keys, order in ((ours, rows), (theirs, rows[::-1])):
        for a, first in zip(keys, order, strict=True):
            for b, second in zip(ours, rows, strict=True):
                assert (a == b) == (first == second)
    assert sorted(set(ours.tolist())) == list(range(len(set(rows))))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([], [], [], 2), "indptr is empty"),
        (([0, 1, 9], [0, 1], [1, 1], 2), "indptr ends at 9 for 2 indices and 2 counts: expected rising pointers"),
        (([0, 2, 1], [0, 1], [1, 1], 2), "expected rising pointers"),
        (([0, 2], [0, 2], [1, 1], 2), "feature 2: expected ids from 0 to 1"),
        (([0, 2], [-1, 1], [1, 1], 2), "feature -1: expected ids from 0 to 1"),
        (([0, 1, 2], [0, 1], [1, -1], 2), "count -1.0 in vector 1: expected a finite number of at least 0"),
        (([0, 1, 2], [0, 1], [math.inf, 1], 2), "count inf in vector 0"),
        (([0, 1], [0], [math.nan], 2), "count nan in vector 0"),
    ],
)
def test_what_is_not_a_count_vector_is_named(given, message):
    with pytest.raises(EspalierError, match=message):
        make_bags(*given)


def test_a_matrix_of_one_dimension_is_refused():
    with pytest.raises(EspalierError, match="the matrix of counts has 1 dimensions: expected vectors x features"):
        bags_of_matrix([1, 2])


def test_two_vocabularies_do_not_join():
    with pytest.raises(EspalierError, match="over 1 and over 2 features: expected one vocabulary"):
        join_bags(bags_of_matrix([[1]]), bags_of_matrix([[1, 1]]))


@pytest.mark.parametrize(
    ("labels", "n_classes", "message"),
    [
        ([0, 1], 2, "2 labels for 3 count vectors: expected one each"),
        ([0, 1, 2], 2, "label 2 of vector 2: expected classes from 0 to 1"),
        ([0, -1, 1], 2, "label -1 of vector 1"),
        ([0.0, 1.0, 1.0], 2, "labels are of type float64: expected whole numbers"),
        ([0, 0, 0], 1, "1 classes: expected at least 2"),
    ],
)
def test_bad_labels_are_named(labels, n_classes, message):
    with pytest.raises(EspalierError, match=message):
        check_labels(labels, 3, n_classes)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], "1 weights for 2 count vectors: expected one each"),
        ([1.0, -0.5], "weight -0.5 of vector 1: expected a finite number of at least 0"),
        ([math.nan, 1.0], "weight nan of vector 0"),
    ],
)
def test_bad_instance_weights_are_named(weights, message):
    with pytest.raises(EspalierError, match=message):
        check_instance_weights(weights, 2)


def test_a_class_without_examples_is_named():
    refuse_missing_class(np.array([0, 1]), np.array([1.0, 0.5]), 2)
    with pytest.raises(EspalierError, match="class 2 has no example of a weight above 0: .* each of the 3 classes"):
        refuse_missing_class(np.array([0, 1]), np.ones(2), 3)
    with pytest.raises(EspalierError, match="class 1 has no example"):
        refuse_missing_class(np.array([0, 1]), np.array([1.0, 0.0]), 2)


def test_an_empty_pool_is_refused():
    with pytest.raises(EspalierError, match="the unlabelled pool is empty"):
        refuse_empty_pool(Bags(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0), 3))
