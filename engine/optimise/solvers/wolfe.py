"""A line search for Wolfe's conditions on a convex function, shared by L-BFGS and conjugate gradient."""

import numpy as np

from espalier.engine.runtime.vectors import dot

DECREASE = 1e-4  # the usual constant of the first condition
TRIALS = 40  # steps tried before the search is given up
MARGIN = 0.1  # share of the bracket, at either end, that interpolation may not enter


def wolfe(objective, penalty, theta, loss, smooth, direction, step=1.0, curvature=0.9, strong=False):
    """A step with enough decrease and a flatter slope; ((theta, loss, gradient) or None, trials).

    The weak condition asks slope >= curvature * first slope, the strong one also that the new slope is
    not as steep upwards. On a convex function a slope that is too steep tells on which side the
    minimum lies, so bisection finds it; the strong search interpolates the slopes instead.
    """
    start, slope = loss + penalty.value(theta), dot(smooth, direction)
    if not slope < 0:
        return None, 0
    low, high, slope_low, slope_high = 0.0, np.inf, slope, np.nan
    best, lowest = None, np.inf
    for trial in range(1, TRIALS + 1):
        candidate = theta + step * direction
        new_loss, gradient = objective.value_and_gradient(candidate)
        value = new_loss + penalty.value(candidate)
        here = dot(penalty.smooth_gradient(candidate, gradient), direction)
        enough = value <= start + DECREASE * step * slope
        if enough and value < lowest:
            best, lowest = (candidate, new_loss, gradient), value
        if not enough or (strong and here > -curvature * slope):
            high, slope_high = step, here
        elif here < curvature * slope:
            low, slope_low = step, here
        else:
            return (candidate, new_loss, gradient), trial
        if best is not None and high - low < 1e-3 * low:
            break
        step = _next(low, high, slope_low, slope_high if strong else np.nan)
    return best, trial


def _next(low: float, high: float, slope_low: float, slope_high: float) -> float:
    """Twice as far while nothing bounds the step; then where the slope should vanish, or the middle."""
    if np.isinf(high):
        return 2.0 * low
    if not (np.isfinite(slope_high) and slope_high > slope_low):
        return 0.5 * (low + high)
    share = -slope_low / (slope_high - slope_low)
    return low + min(max(share, MARGIN), 1.0 - MARGIN) * (high - low)
