"""The unigram weights that are not zero, as a theta and a layout of their own, for the pass that sums scores.

A sum of scores that leaves zeros out is the same sum. Where most weights of a large theta are
zero, finding the others once costs less than reading all of them at every position.
"""

import numpy as np

from espalier.engine.runtime import threads
from espalier.engine.runtime.grouping import ends
from espalier.engine.runtime.jit import kernel
from espalier.engine.weights.layout import Layout

LEAST = 1 << 20  # weights from which on the search is worth its cost
SHARE = 0.25  # of them that may be active
PIECES = 32


def active_part(theta: np.ndarray, layout: Layout) -> tuple[np.ndarray, Layout]:
    """(theta, layout) that give the same unigram and start scores; those given where little would be saved."""
    begin, end = layout.bounds()
    if begin < LEAST:
        return theta, layout
    runs = threads.ranges(layout.n_observations, PIECES)
    lengths = np.empty(layout.n_observations, np.int64)
    threads.run(lambda run: _count(theta, layout.unigram_ptr, *run, lengths), runs)
    ptr = ends(lengths)
    if ptr[-1] > SHARE * begin:
        return theta, layout
    found, code = np.empty(ptr[-1] + end - begin), np.empty(ptr[-1], np.int32)
    threads.run(lambda run: _keep(theta, layout.unigram_ptr, layout.unigram_code, *run, ptr, found, code), runs)
    found[ptr[-1] :] = theta[begin:end]
    return found, layout._replace(unigram_ptr=ptr, unigram_code=code, start_ptr=layout.start_ptr - (begin - ptr[-1]))


@kernel
def _count(theta, ptr, lo, hi, lengths):
    for x in range(lo, hi):
        count = 0
        for s in range(ptr[x], ptr[x + 1]):
            count += theta[s] != 0.0
        lengths[x] = count


@kernel
def _keep(theta, ptr, codes, lo, hi, at, found, code):
    base, full = ptr[0], len(codes) == 0
    for x in range(lo, hi):
        i = at[x]
        for s in range(ptr[x], ptr[x + 1]):
            if theta[s] != 0.0:
                found[i] = theta[s]
                code[i] = s - ptr[x] if full else codes[s - base]
                i += 1
