"""Features that are written out, against the kernel of all pairs of rows."""

import numpy as np
import pytest
from reference import kernels
from test_gp import N_LABELS, TIGHT, problem

from espalier.engine.errors import EspalierError
from espalier.engine.families import gp
from espalier.engine.families.gp_options import GpOptions
from espalier.engine.families.gp_training import fit_gp
from espalier.engine.runtime import threads
from espalier.engine.similarity import shared_features as shared
from espalier.engine.similarity.overlaps import Overlaps
from espalier.engine.similarity.rows import AttributeRows, distinct_rows

SUMS = 1e-12  # relative, of sums in another order


def rows_of(count=150, seed=0, columns=5, attributes=6):
    """Rows of which the last two columns are decided by the first, as spelling is by a word."""
    random = np.random.default_rng(seed)
    table = np.minimum(random.geometric(0.3, (count, columns)) - 1, attributes - 1)
    gaps = random.random(table.shape) < 0.1
    table[:, -1], table[:, -2], gaps[:, -2] = table[:, 0] // 2, table[:, 0], gaps[:, 0]
    table = np.where(gaps, -1, table + attributes * np.arange(columns)).astype(np.int32)
    return distinct_rows(table, np.ones(attributes * columns, bool)).rows, attributes * columns


def sets_of(rows):
    return [rows.attribute[a:b].tolist() for a, b in zip(rows.ptr, rows.ptr[1:], strict=False)]


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("n_labels", [1, 4, 7])
def test_products_are_sums_over_all_pairs_of_rows(degree, n_labels):
    rows, size = rows_of(seed=degree)
    values = np.random.default_rng(1).normal(size=(rows.count, n_labels))
    expected = np.array(kernels.scores(sets_of(rows), sets_of(rows), values.tolist(), degree))
    found = shared.shared_features(rows, size, degree)
    np.testing.assert_allclose(found.product(values), expected, rtol=SUMS, atol=SUMS * np.abs(expected).max())
    sets = [tuple(found.row[a:b]) for a, b in zip(found.ptr, found.ptr[1:], strict=False)]
    assert len(set(sets)) == len(sets) and all(len(one) > 1 for one in sets)
    written = sum(len(one) if degree == 1 else len(one) * (len(one) + 1) // 2 for one in sets_of(rows))
    assert found.entries < 0.9 * (written + rows.count)  # one column says nothing that another does not


@pytest.mark.parametrize("degree", [1, 2])
def test_products_between_some_rows_and_all(degree):
    rows, size = rows_of(seed=4)
    kept, random = np.array([3, 4, 20, 77]), np.random.default_rng(1)
    values, amounts = random.normal(size=(rows.count, 3)), random.normal(size=(4, 3))
    some = shared.FeaturesOfSome(shared.shared_features(rows, size, degree), kept)
    gram = Overlaps(rows, size, degree)
    everywhere = np.zeros((rows.count, 3))
    everywhere[kept] = amounts
    np.testing.assert_allclose(some.to_all(amounts), gram.product(everywhere), rtol=SUMS, atol=SUMS)
    np.testing.assert_allclose(some.to_some(values), gram.product(values)[kept], rtol=SUMS, atol=1e-10)


def test_rows_without_attributes_one_row_and_none():
    for ptr, attribute in (([0, 0, 2], [0, 3]), ([0, 2], [1, 2]), ([0, 0], []), ([0], [])):
        rows = AttributeRows(np.array(ptr), np.array(attribute, np.int32))
        values = np.random.default_rng(1).normal(size=(rows.count, 3))
        found = shared.shared_features(rows, 4, 2).product(values)
        np.testing.assert_allclose(found, Overlaps(rows, 4, 2).product(values), rtol=SUMS)


def test_sets_whose_numbers_are_the_same_by_chance_stay_apart():
    ptr, row = np.array([0, 2, 4, 6, 9]), np.array([0, 1, 0, 2, 0, 1, 0, 1, 2], np.int32)
    weight, kept = np.array([1.0, 2.0, 4.0, 8.0]), np.ones(4, bool)
    shared.merge_sets(ptr, row, np.zeros(4, np.int64), np.arange(4), weight, kept)
    assert weight.tolist() == [5.0, 2.0, 4.0, 8.0] and kept.tolist() == [True, True, False, True]


def test_any_number_of_threads_gives_the_same_bytes():
    rows, size = rows_of(count=400, seed=3)
    values, seen = np.random.default_rng(2).normal(size=(rows.count, 3)), set()
    try:
        for count in (1, 2, 8):
            threads.set_threads(count)
            found = shared.shared_features(rows, size, 2)
            seen.add((found.row.tobytes(), found.weight.tobytes(), found.product(values).tobytes()))
    finally:
        threads.set_threads(None)
    assert len(seen) == 1


@pytest.mark.parametrize("degree", [1, 2])
def test_a_gaussian_process_comes_to_the_same_optimum(degree):
    data, kinds = problem(seed=degree)
    found = {}
    for products in ("rows", "features"):
        options = TIGHT._replace(degree=degree, products=products)
        chain = gp.chain_of(data, N_LABELS, kinds, options)
        found[products] = fit_gp(chain, options)
    assert found["features"].objective == pytest.approx(found["rows"].objective, rel=1e-9)
    np.testing.assert_allclose(found["features"].weights, found["rows"].weights, atol=1e-4)


@pytest.mark.parametrize("pick", ["random", "gradient"])
def test_a_sparse_training_does_the_same_by_features(pick):
    data, kinds = problem(seed=6, sequences=8)
    found = {}
    for products in ("rows", "features"):
        options = GpOptions(method="sparse", share=0.5, coordinates=2, products=products, pick=pick, pairs="all")
        found[products] = fit_gp(gp.chain_of(data, N_LABELS, kinds, options), options)
    assert np.array_equal(found["rows"].amounts != 0, found["features"].amounts != 0)
    assert found["features"].objective == pytest.approx(found["rows"].objective, rel=1e-6)


def test_what_is_cheaper_is_chosen_by_the_data():
    alike = np.repeat(np.arange(300, dtype=np.int32)[:, None], 3, axis=1) + 300 * np.arange(3, dtype=np.int32)
    few, size = distinct_rows(alike // 3, np.ones(900, bool)).rows, 900
    wide = distinct_rows(np.arange(900, dtype=np.int32).reshape(3, 300), np.ones(900, bool)).rows
    rows, _ = rows_of(count=400)
    assert shared.features_if_cheaper(few, size, 2, 9) is not None
    assert shared.features_if_cheaper(wide, 900, 2, 9) is None  # many pairs of attributes, three rows
    assert shared.features_if_cheaper(rows, 30, 3, 9) is None
    assert not shared.may_pay(10**6, shared.MOST_PAIRS + 1, 2, 9)


def test_features_of_degree_3_are_refused():
    data, kinds = problem()
    options = GpOptions(degree=3, products="features")
    with pytest.raises(EspalierError, match="gp.products is features and gp.degree 3: .* set gp.products to rows"):
        fit_gp(gp.chain_of(data, N_LABELS, kinds, options), options)
