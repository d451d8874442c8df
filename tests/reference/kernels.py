"""Kernels of rows of attributes the obvious way: sets, sums over all pairs, features written out."""

from itertools import combinations


def kernel(row, other, degree):
    """(m + 1)^degree of two rows that have m attributes in common; -1 is none."""
    return float((len({a for a in row if a >= 0} & {a for a in other if a >= 0}) + 1) ** degree)


def scores(queries, rows, amounts, degree):
    """sum_p g(q, p) amounts[p][y] for each query and label."""
    return [
        [sum(kernel(q, row, degree) * amount[y] for row, amount in zip(rows, amounts, strict=True))
         for y in range(len(amounts[0]))]
        for q in queries
    ]  # fmt: skip


def features(row, degree):
    """{feature: value} whose inner products are the kernel of degree 1 or 2: 1 + m, and 1 + 3 m + 2 m (m - 1) / 2."""
    attributes = sorted({a for a in row if a >= 0})
    found = {(): 1.0} | {(a,): 1.0 if degree == 1 else 3.0**0.5 for a in attributes}
    if degree == 2:
        found |= {pair: 2.0**0.5 for pair in combinations(attributes, 2)}
    return found
