"""Small systems of equations by Cholesky: a BLAS may sum in another order with another number of threads."""

import numpy as np

from espalier.engine.runtime.jit import kernel


@kernel
def factorise(a, singular):
    """a = L L' in the lower triangle, in place; False when a pivot is no more than `singular` of its diagonal entry.

    The upper triangle is neither read nor written. O(n^3).
    """
    n = len(a)
    for j in range(n):
        pivot = a[j, j]
        for k in range(j):
            pivot -= a[j, k] * a[j, k]
        if not pivot > singular * a[j, j]:
            return False
        pivot = np.sqrt(pivot)
        a[j, j] = pivot
        for i in range(j + 1, n):
            total = a[i, j]
            for k in range(j):
                total -= a[i, k] * a[j, k]
            a[i, j] = total / pivot
    return True


@kernel
def forward(lower, right):
    """`right` becomes x with L x = right. O(n^2)."""
    for i in range(len(right)):
        total = right[i]
        for k in range(i):
            total -= lower[i, k] * right[k]
        right[i] = total / lower[i, i]


@kernel
def backward(lower, right):
    """`right` becomes x with L' x = right. O(n^2)."""
    for i in range(len(right) - 1, -1, -1):
        right[i] /= lower[i, i]
        for k in range(i):
            right[k] -= lower[i, k] * right[i]


@kernel
def substitute(lower, right):
    """`right` becomes x with L L' x = right. O(n^2)."""
    n = len(right)
    for i in range(n):
        for k in range(i):
            right[i] -= lower[i, k] * right[k]
        right[i] /= lower[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            right[i] -= lower[k, i] * right[k]
        right[i] /= lower[i, i]
