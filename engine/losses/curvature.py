"""How curved the objective is in each weight, by counts alone: solvers scale their steps by it.

The step of a weight from its expected count e to the observed one o is about log(o / e), so the
curvature on the way is about (o - e) / log(o / e), the logarithmic mean m. The weights of one observation
share its n occurrences, and a count of m in n varies by m (1 - m / n): an observation that is almost
always followed by one label bends the loss little. Weights act together, hence the square root of it all.
Sums of values are no counts; there a weight bends the loss by sum_t v_t^2 times the variance of one label of Y.
"""

import numpy as np

from espalier.engine.data.dataset import Dataset
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel
from espalier.engine.weights.layout import FAMILIES, Layout

PIECES = 16
NEARLY = 1e-3  # |log(e / o)| below which the two means are the same


def squared_values(dataset: Dataset, layout: Layout) -> np.ndarray:
    """sum_t w v^2 at each weight of an observation that has values, zero elsewhere."""
    out = np.zeros(layout.size)
    if dataset.valued.shape[1]:
        weights = np.repeat(dataset.weights, np.diff(dataset.offsets))[:, None]
        there, ptr = dataset.valued >= 0, layout.unigram_ptr
        sums = np.bincount(dataset.valued[there], (weights * dataset.values**2)[there], layout.n_observations)
        out[ptr[0] : ptr[-1]] = np.repeat(sums, np.diff(ptr))
    return out


def curvatures(
    layout: Layout, gradient: np.ndarray, observed: np.ndarray, rho2: float, squares: np.ndarray | None = None
) -> np.ndarray:
    """sqrt(max(rho2, 1) + m (1 - m / n)) of each weight; the gradient tells the expected counts.

    `squares` are the `squared_values` of all data, None where nothing has a value.
    """
    out = np.empty(len(observed))
    for name in FAMILIES:
        ptr = layout.family(name)[0]
        pieces = threads.ranges(layout.n_observations, PIECES) if ptr[-1] > ptr[0] else []
        threads.run(lambda run, ptr=ptr: _curvatures(ptr, gradient, observed, max(rho2, 1.0), *run, out), pieces)
    if squares is None:
        return out
    share = 1.0 / layout.n_labels
    return np.where(squares > 0.0, np.sqrt(max(rho2, 1.0) + squares * (share * (1.0 - share))), out)


@kernel
def _curvatures(ptr, gradient, observed, least, lo, hi, out):
    """n is the larger of the sums of the observed and the expected counts: some weights of x may not exist."""
    for x in range(lo, hi):
        seen, expected = 0.0, 0.0
        for s in range(ptr[x], ptr[x + 1]):
            seen += max(observed[s], 0.0)
            expected += max(gradient[s] + observed[s], 0.0)
        n = max(seen, expected)
        for s in range(ptr[x], ptr[x + 1]):
            first, last = max(observed[s], 0.0), max(gradient[s] + observed[s], 0.0)
            mean = min(_logarithmic_mean(first + 1.0, last + 1.0) - 1.0, n)
            out[s] = np.sqrt(least + (mean * (1.0 - mean / n) if n > 0.0 else 0.0))


@kernel
def _logarithmic_mean(a, b):
    ratio = np.log(b / a)
    return (b - a) / ratio if abs(ratio) > NEARLY else 0.5 * (a + b)
