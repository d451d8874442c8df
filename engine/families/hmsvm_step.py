"""The small problem of one sequence: its working set, the others fixed."""

import numpy as np

from espalier.engine.runtime.jit import kernel


@kernel
def climb(a, left, roof, products, slope, least, most):
    """max slope'step - 1/2 step'Q step over 0 <= a + step <= roof with sum(step) <= left, in place; slope follows.

    Along pairs, what is left of C being one more variable without a slope: from the one with the least slope that can
    give to the one with the largest that can take, until these differ by `least` at most. Each step rises.
    """
    k = len(a)
    for _ in range(most):
        up, top = -1, 0.0
        for i in range(k):
            if slope[i] > top and a[i] < roof:
                up, top = i, slope[i]
        down, low = -1, np.inf
        for i in range(k):
            if a[i] > 0.0 and slope[i] < low:
                down, low = i, slope[i]
        from_rest = left > 0.0 and 0.0 < low
        if from_rest:
            low = 0.0
        if top - low <= least or (not from_rest and down < 0):
            return
        curve = products[up, up] if up >= 0 else 0.0
        if not from_rest:
            curve += products[down, down] - (2.0 * products[up, down] if up >= 0 else 0.0)
        gives, takes = left if from_rest else a[down], roof - a[up] if up >= 0 else np.inf
        step = min(gives, takes)
        step = min(step, (top - low) / curve) if curve > 0.0 else step
        if up >= 0:
            a[up] = roof if step == takes else a[up] + step
            for i in range(k):
                slope[i] -= step * products[i, up]
        else:
            left += step
        if from_rest:
            left -= step
        else:
            a[down] = 0.0 if step == gives else a[down] - step
            for i in range(k):
                slope[i] += step * products[i, down]
