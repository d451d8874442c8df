"""The curvature by which solvers scale their steps, against its formula written out weight by weight."""

import numpy as np
import pytest

from espalier.engine.losses.curvature import curvatures
from espalier.engine.weights.layout import FAMILIES, dense_layout


def by_formula(layout, gradient, observed, rho2):
    out = np.full(layout.size, np.nan)
    for name in FAMILIES:
        ptr = layout.family(name)[0]
        for lo, hi in zip(ptr[:-1], ptr[1:], strict=True):
            expected = np.maximum(gradient[lo:hi] + observed[lo:hi], 0.0)
            n = max(expected.sum(), observed[lo:hi].sum())
            for s, e in zip(range(lo, hi), expected, strict=True):
                a, b = observed[s] + 1.0, e + 1.0
                mean = (a if abs(a - b) < 1e-9 else (b - a) / np.log(b / a)) - 1.0
                out[s] = np.sqrt(max(rho2, 1.0) + (mean * (1.0 - mean / n) if n else 0.0))
    return out


@pytest.mark.parametrize("rho2", [0.0, 0.5, 7.0])
def test_it_follows_the_formula_for_every_family(rho2):
    layout = dense_layout(3, [3, 1, 3, 3], start=True)
    rng = np.random.default_rng(1)
    observed = rng.poisson(5.0, layout.size).astype(float)
    gradient = rng.normal(scale=4.0, size=layout.size)
    found = curvatures(layout, gradient, observed, rho2)
    np.testing.assert_allclose(found, by_formula(layout, gradient, observed, rho2), rtol=1e-6)


def test_counts_that_are_met_vary_as_a_binomial():
    layout = dense_layout(2, [1], start=False)
    found = curvatures(layout, np.zeros(2), np.array([30.0, 10.0]), 0.0)
    np.testing.assert_allclose(found, np.sqrt(1.0 + 30.0 * 10.0 / 40.0))


def test_what_never_occurs_and_is_never_expected_has_the_penalty_alone():
    layout = dense_layout(2, [1], start=False)
    np.testing.assert_array_equal(curvatures(layout, np.zeros(2), np.zeros(2), 4.0), 2.0)


def test_a_certain_weight_is_as_flat_as_the_penalty():
    layout = dense_layout(2, [1], start=False)
    found = curvatures(layout, np.zeros(2), np.array([50.0, 0.0]), 0.0)
    np.testing.assert_allclose(found, 1.0)
