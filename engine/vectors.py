"""Vector work of the solvers: threaded, and summed in an order that depends on the length alone.

A BLAS may cut a dot product by the number of its threads; then the last bits of a
model would depend on the machine's load. Here a sum is over fixed chunks, in order.
"""

import numpy as np

from engine import threads
from engine.jit import kernel

CHUNK = 1 << 16


def chunks(size: int) -> list[tuple[int, int]]:
    """Pieces of a vector; they depend on its length alone."""
    return [(lo, min(lo + CHUNK, size)) for lo in range(0, size, CHUNK)]


@kernel
def _dot(a, b, lo, hi):
    total = 0.0
    for i in range(lo, hi):
        total += a[i] * b[i]
    return total


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """sum a_i b_i."""
    total = 0.0
    for part in threads.run(lambda piece: _dot(a, b, *piece), chunks(len(a))):
        total += part
    return total


@kernel
def _absolute_sum(a, lo, hi):
    total = 0.0
    for i in range(lo, hi):
        total += abs(a[i])
    return total


def absolute_sum(a: np.ndarray) -> float:
    """sum |a_i|."""
    total = 0.0
    for part in threads.run(lambda piece: _absolute_sum(a, *piece), chunks(len(a))):
        total += part
    return total


@kernel
def _add_scaled(scale, a, out, lo, hi):
    for i in range(lo, hi):
        out[i] += scale * a[i]


def add_scaled(scale: float, a: np.ndarray, out: np.ndarray) -> None:
    """out += scale * a, in place."""
    threads.run(lambda piece: _add_scaled(scale, a, out, *piece), chunks(len(a)))
