"""Vector work: threaded, and summed in an order that depends on the length alone.

A BLAS may cut a dot product by the number of its threads; then the last bits of a
model would depend on the machine's load. Here a sum is over fixed chunks, in order. It also chooses
its kernels by the processor, and so does numpy for exp and log: what ends in a model or a figure goes through here.
"""

import numpy as np

from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel

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


@kernel
def _exp(a, out, lo, hi):
    for i in range(lo, hi):
        out[i] = np.exp(a[i])


@kernel
def _log(a, out, lo, hi):
    for i in range(lo, hi):
        out[i] = np.log(a[i])


def exp(a: np.ndarray) -> np.ndarray:
    """e to the power of each element, by the C library."""
    return _each(_exp, a)


def log(a: np.ndarray) -> np.ndarray:
    """The natural logarithm of each element, by the C library; -inf for zero."""
    return _each(_log, a)


def _each(function, a: np.ndarray) -> np.ndarray:
    flat = np.asarray(a, np.float64).ravel()
    out = np.zeros(len(flat))
    threads.run(lambda piece: function(flat, out, *piece), chunks(len(flat)))
    return out.reshape(np.shape(a))


@kernel
def _product(a, b, out, lo, hi):
    for i in range(lo, hi):
        for k in range(a.shape[1]):
            x = a[i, k]
            for j in range(b.shape[1]):
                out[i, j] += x * b[k, j]


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a @ b of two matrices."""
    a, b = (np.ascontiguousarray(matrix, np.float64) for matrix in (a, b))
    out = np.zeros((len(a), b.shape[1]))
    threads.run(lambda piece: _product(a, b, out, *piece), threads.ranges(len(a), 16) if len(a) else [])
    return out
