"""The model of proximal quasi-Newton: its matrix against BFGS updates written out, its step against optimality."""

import numpy as np
import pytest

from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers.pqn import (
    FEWEST_PAIRS,
    MEMORY,
    MOST_PAIRS,
    PIECE,
    _combinations,
    _model_step,
    _outer_products,
    _restricted,
    pairs_kept,
)

EXACT = 1e-10  # the same sums in another order


def random_pairs(rng, m: int, n: int):
    """Steps and slopes of a quadratic with eigenvalues over three decades."""
    basis = np.linalg.qr(rng.normal(size=(n, n)))[0]
    hessian = basis @ np.diag(np.logspace(-1, 2, n)) @ basis.T
    steps = rng.normal(size=(m, n))
    return steps, steps @ hessian


def written_out(b0, steps, slopes):
    """B by m updates of BFGS, one after the other."""
    matrix = np.diag(b0)
    for s, y in zip(steps, slopes, strict=True):
        bs = matrix @ s
        matrix = matrix + np.outer(y, y) / (y @ s) - np.outer(bs, bs) / (s @ bs)
    return matrix


@pytest.mark.parametrize("m, n", [(0, 3), (1, 1), (1, 5), (3, 7), (20, 40), (40, 60)])
def test_the_outer_products_are_the_bfgs_matrix(m, n):
    rng = np.random.default_rng(m + n)
    steps, slopes = random_pairs(rng, m, n)
    b0 = rng.uniform(0.5, 2.0, n)
    q, curvature = _outer_products(b0, steps, slopes)
    made = np.diag(b0) + q[:, :m] @ q[:, :m].T - q[:, m:] @ q[:, m:].T
    expected = written_out(b0, steps, slopes)
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-8 * np.abs(expected).max())
    np.testing.assert_allclose(curvature, np.diag(expected), rtol=1e-6)


def test_pieces_and_tiles_that_are_not_full_count_too():
    rng, n = np.random.default_rng(1), PIECE + 77
    steps = rng.normal(size=(3, n))
    slopes = steps * rng.uniform(0.5, 3.0, n)
    b0 = rng.uniform(0.5, 2.0, n)
    q, curvature = _outer_products(b0, steps, slopes)
    v = rng.normal(size=n)
    product = b0 * v
    for k, (s, y) in enumerate(zip(steps, slopes, strict=True)):
        # B_k s_k by the recursion, to be compared with what the rows say
        bs = b0 * s
        for j in range(k):
            bs = bs + q[:, j] * (q[:, j] @ s) - q[:, 3 + j] * (q[:, 3 + j] @ s)
        np.testing.assert_allclose(q[:, k], y / np.sqrt(y @ s), atol=EXACT)
        np.testing.assert_allclose(q[:, 3 + k], bs / np.sqrt(bs @ s), atol=EXACT)
        product += q[:, k] * (q[:, k] @ v) - q[:, 3 + k] * (q[:, 3 + k] @ v)
    assert v @ product > 0.0
    np.testing.assert_allclose(curvature, b0 + (q[:, :3] ** 2).sum(axis=1) - (q[:, 3:] ** 2).sum(axis=1), rtol=1e-9)


def test_a_pair_that_rounding_has_eaten_is_left_out():
    """The second step is the first once more with no slope left in B: s'B s would be 0 / 0."""
    s_b_s, s_y = np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([[1e-30, 0.0], [1e-30, 1e-30]])
    of_a, of_step, of_slope = _combinations(s_b_s, s_y)
    assert of_a[0] > 0.0 and of_a[1] == 0.0
    assert not of_step[1].any() and not of_slope[1].any() and np.all(np.isfinite(of_slope))


@pytest.mark.parametrize("rho1", [0.0, 0.7])
def test_the_step_minimises_the_model(rho1):
    rng, m, n = np.random.default_rng(3), 6, 25
    steps, slopes = random_pairs(rng, m, n)
    theta, smooth, scale = rng.normal(size=n) * (rng.random(n) < 0.6), rng.normal(size=n), rng.uniform(0.5, 2.0, n)
    step = _model_step(theta, smooth, scale, (steps, slopes), ElasticNet(rho1))
    s, y = steps[-1], slopes[-1]
    matrix = written_out(scale * ((y @ (y / scale)) / (s @ y)), steps, slopes)

    def value(d):
        return smooth @ d + d @ matrix @ d / 2 + rho1 * np.abs(theta + d).sum()

    # Sweeps end at a precision, so no short step from there may lower the model by more than that share of its gain.
    gain = value(np.zeros(n)) - value(step)
    assert gain > 0.0
    for i in range(n):
        for change in (-1e-2, 1e-2, -step[i], -theta[i] - step[i]):
            other = step.copy()
            other[i] += change
            assert value(other) >= value(step) - 0.02 * gain


def test_pairs_without_curvature_on_the_free_weights_are_left_out():
    rng, free = np.random.default_rng(4), np.array([0, 2, 5])
    good = rng.normal(size=6)
    bad = np.array([1.0, 9.0, 1.0, 9.0, 9.0, 1.0])  # negative curvature where it is free
    pairs = [(good, 2 * good), (bad, np.where(np.isin(np.arange(6), free), -1.0, 9.0)), (good[::-1].copy(), good[::-1])]
    steps, slopes = _restricted(pairs, free)
    np.testing.assert_array_equal(steps, [good[free], good[::-1][free]])
    np.testing.assert_array_equal(slopes, [2 * good[free], good[::-1][free]])


def test_memory_bounds_the_pairs():
    assert pairs_kept(0) == pairs_kept(1000) == MOST_PAIRS and pairs_kept(10**9) == FEWEST_PAIRS
    assert pairs_kept(MEMORY // 60) == 30
