"""The vectorised inner loops, at every remainder of their lanes."""

import math

import numpy as np
import pytest

from espalier.engine.blockwise.factors import Entries, SetFactors, pass_message, pull_message
from espalier.engine.runtime.inner_loops import exponentiate, extremes

ULPS = 2.5  # "to the last digit or two"
ROUNDING = 1e-13  # sums of at most twenty products of numbers below one

SIZES = [*range(1, 21), 31, 32, 33]


def exponentials(x):
    buffer, out = np.empty(len(x), np.int64), np.empty(len(x))
    exponentiate(x, 0.0, buffer, buffer.view(np.float64), out)
    return out


@pytest.mark.nojit
@pytest.mark.parametrize("size", SIZES)
def test_exponential_at_every_length(size):
    x = -np.random.default_rng(size).random(size) * 30.0
    expected = np.array([math.exp(v) for v in x])
    assert np.max(np.abs(exponentials(x) - expected) / np.spacing(expected)) <= ULPS


def test_exponential_over_the_whole_range():
    """Also at the ends, at multiples of ln 2 and half-way between them, where the reduction is at its worst."""
    steps = -np.arange(0, 1009) * math.log(2) / 2
    x = np.concatenate([np.linspace(-699.9, 0.0, 50_001), steps, np.nextafter(steps, -1e3), [0.0, -1e-300, -5e-324]])
    expected = np.array([math.exp(v) for v in x])
    assert np.max(np.abs(exponentials(x) - expected) / np.spacing(expected)) <= ULPS
    assert exponentials(np.array([0.0]))[0] == 1.0


@pytest.mark.nojit
@pytest.mark.parametrize("size", SIZES)
def test_extremes_at_every_length_and_place(size):
    high, low = np.empty(8), np.empty(8)
    for place in range(size):
        values = np.random.default_rng(size).normal(size=size)
        for planted in (9.0, -9.0):
            values[place] = planted
            assert extremes(values, high, low) == (values.max(), values.min())


@pytest.mark.parametrize("size", SIZES)
def test_messages_dense_and_sparse(size):
    """Set 0 has a matrix, set 1 entries with the same factors, set 2 both: vector times matrix, matrix times vector."""
    rng = np.random.default_rng(size)
    score = np.where(rng.random((size, size)) < 0.3, rng.normal(size=(size, size)), 0.0)
    row, column = (part.astype(np.int32) for part in np.nonzero(score))
    entry = np.expm1(score[row, column])
    matrices = np.stack([np.exp(score), rng.random((size, size))])
    slot, begin, end = np.array([0, -1, 1], np.int32), np.array([0, 0, 0]), np.array([0, len(entry), len(entry)])
    unused = np.empty(0)
    factors = SetFactors(place=slot, slot=slot, shift=unused, spread=unused, rest_spread=unused, dense=matrices)
    entries = Entries(begin=begin, end=end, row=row, column=column, value=entry)
    vector, out = rng.random(size), np.empty(size)
    for p, expected in enumerate((matrices[0], matrices[0], matrices[0] * matrices[1])):
        pass_message(factors, entries, p, vector, out)
        np.testing.assert_allclose(out, vector @ expected, rtol=ROUNDING * size, atol=0)
        pull_message(factors, entries, p, vector, out)
        np.testing.assert_allclose(out, expected @ vector, rtol=ROUNDING * size, atol=0)
