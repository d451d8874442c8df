"""Edit distance: the least number of symbols to insert, delete or replace to make one string of another."""

import numpy as np

from espalier.engine.runtime.jit import kernel


@kernel
def edit_distances(first, first_ptr, second, second_ptr):
    """Distance of the strings first[first_ptr[n] : first_ptr[n + 1]] and second[…] for each n, int64 [N].

    d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + [first i differs from second j]), of which one
    row is held: O(I J) time, O(J) memory.
    """
    found = np.zeros(len(first_ptr) - 1, np.int64)
    longest = 0
    for n in range(len(found)):
        longest = max(longest, second_ptr[n + 1] - second_ptr[n])
    row = np.zeros(longest + 1, np.int64)
    for n in range(len(found)):
        begin, width = second_ptr[n], second_ptr[n + 1] - second_ptr[n]
        for j in range(width + 1):
            row[j] = j
        for i in range(first_ptr[n], first_ptr[n + 1]):
            corner, row[0] = row[0], row[0] + 1
            for j in range(width):
                above = row[j + 1]
                replaced = corner if first[i] == second[begin + j] else corner + 1
                row[j + 1] = min(above + 1, row[j] + 1, replaced)
                corner = above
        found[n] = row[width]
    return found
