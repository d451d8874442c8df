"""One sequence at a time: expected counts against the whole data set's gradient, and against the enumeration."""

import numpy as np
import pytest
from chain_problems import lattices, slot_features, weights_of
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import chain

from espalier.engine.chain.one_sequence import add_expected, expect, make_buffers
from espalier.engine.chain.pair_sets import pair_sets
from espalier.engine.data.dataset import select
from espalier.engine.losses.chain_objective import observed_counts

ROUNDING = 1e-10  # a few hundred roundings of 1e-16, with buffers
LARGE = 1e-8  # the same where scores of thousands carry fewer decimals
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=40)


def assert_counts(lattice, unit, tolerance):
    """theta * unit against the oracle at the product; one buffers for all sequences, in any order and twice."""
    (problem, dataset, layout), theta = lattice
    sets = pair_sets(dataset, layout)
    buffers = make_buffers(dataset, layout, sets)
    weights, features = weights_of(layout, unit * theta), slot_features(layout)
    everyone = list(range(len(problem.sequences)))
    for n in [*everyone, *reversed(everyone)]:
        sequence, labels = problem.sequences[n], problem.labels[n]
        lo, hi = dataset.offsets[n], dataset.offsets[n + 1]
        log_z, found = expect(theta, unit, layout, dataset, sets, lo, hi, buffers)
        counts = np.zeros(layout.size)
        add_expected(layout, dataset, sets, lo, hi, found, 2.0, buffers, counts)
        observed = observed_counts(select(dataset, np.array([n]))._replace(weights=np.ones(1)), layout)
        gradient = chain.gradient([sequence], [labels], problem.n_labels, weights, [1.0])
        expected = np.array([gradient.get(feature, 0.0) for feature in features]) + observed
        assert log_z == pytest.approx(chain.log_partition(sequence, problem.n_labels, weights), rel=1e-12, abs=1e-12)
        np.testing.assert_allclose(counts, 2.0 * expected, rtol=0, atol=tolerance)


@EXAMPLES
@given(lattices(), st.sampled_from([1.0, 0.3]))
@pytest.mark.nojit
def test_expected_counts(lattice, unit):
    assert_counts(lattice, unit, ROUNDING)


@EXAMPLES
@given(lattices(scale=300.0))
@pytest.mark.nojit
def test_expected_counts_at_large_weights(lattice):
    assert_counts(lattice, 1.0, LARGE)
