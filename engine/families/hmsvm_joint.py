"""Joint steps of all sequences between passes over the working sets.

Two sequences with the same row and other labels pull in opposite directions: what one gains the other loses, so that
steps of one sequence at a time creep, while both together could go far. The steps of some last passes, and of the joint
steps behind them, span the directions in which they creep: along these the best combination is a small system of
equations. What it would bring below zero or above C is held there.
"""

import numpy as np

from espalier.engine.families.hmsvm_passes import TILE, Hand, Terms, margin_of, push, spread
from espalier.engine.families.hmsvm_sets import Sets
from espalier.engine.runtime.cholesky import factorise, substitute
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.vectors import dot

DIRECTIONS = 20  # kept
RIDGE = 1e-10  # of the system, whose diagonal is 1
TRIES = 4  # of shorter steps, each a quarter of the one before


class CombinedSteps:
    """The directions of the last passes, and what they do to the scores of the rows at hand."""

    def __init__(self, sets: Sets, hand: Hand, weights: np.ndarray, terms: Terms, rows, index, degree: int):
        self.sets, self.hand, self.weights, self.terms = sets, hand, weights, terms
        self.kernel = rows, index, degree
        self.steps: list[tuple] = []  # (of a_y, of margins, of scores, of weights)
        self.begin()

    def begin(self) -> None:
        self.before = self.now()

    def now(self) -> tuple:
        return self.sets.a.copy(), self.margins(), self.hand.by_label.copy(), self.weights.copy()

    def margins(self) -> np.ndarray:
        """F(right) - F(y) of all labellings of the sets; with squared slacks, and the slack."""
        out = np.empty(len(self.sets.a))
        fill_margins(self.sets, self.hand, self.weights, self.terms, out)
        return out

    def dual(self, a: np.ndarray, margins: np.ndarray) -> float:
        return dot(a, self.sets.loss) - 0.5 * dot(a, margins)

    def step(self) -> float:
        """Behind a pass: the best joint step; by how much the dual rose."""
        here = self.now()
        self.steps = [*self.steps, tuple(new - old for new, old in zip(here, self.before, strict=True))][-DIRECTIONS:]
        slope = np.array([dot(self.sets.loss - here[1], step[0]) for step in self.steps])
        curve = np.array([[dot(one[0], other[1]) for other in self.steps] for one in self.steps])
        share = best_share(curve, slope)
        dual = self.dual(*here[:2])
        for _ in range(TRIES):
            self.move(share)
            rise = self.dual(self.sets.a, self.margins()) - dual
            if rise > 0.0:
                self.begin()
                return rise
            self.put(here)
            share = share * 0.25
        self.before = here
        return 0.0

    def put(self, state: tuple) -> None:
        a, _, by_label, weights = state
        self.sets.a[:], self.hand.by_label[:], self.weights[:] = a, by_label, weights

    def move(self, share: np.ndarray) -> None:
        for part, step in zip(share.tolist(), self.steps, strict=True):
            self.sets.a[:] += part * step[0]
            self.hand.by_label[:] += part * step[2]
            self.weights[:] += part * step[3]
        hold(self.sets, self.hand, self.weights, self.terms, *self.kernel)


def best_share(curve: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """How much of each direction is best; those that say what others say nearly share it."""
    size = np.sqrt(np.maximum(np.diag(curve), 0.0))
    size[size == 0.0] = 1.0
    square = 0.5 * (curve + curve.T) / np.outer(size, size) + RIDGE * np.eye(len(size))
    share = slope / size
    if not factorise(square, 1e-14):
        return np.append(np.zeros(len(size) - 1), slope[-1] / size[-1] ** 2)
    substitute(square, share)
    return share / size


@kernel
def fill_margins(sets, hand, weights, terms, out):
    for n in range(len(terms.limits)):
        slack = 0.0
        if terms.squared and terms.limits[n] > 0.0:
            for m in range(sets.ptr[n], sets.ptr[n + 1]):
                slack += sets.a[m] / (2.0 * terms.limits[n])
        for m in range(sets.ptr[n], sets.ptr[n + 1]):
            out[m] = margin_of(sets, m, hand, weights) + slack


@kernel
def hold(sets, hand, weights, terms, rows, index, degree):
    """Brings all a_y back between their bounds; scores and weights of pairs follow."""
    g = np.empty(TILE)
    for n in range(len(terms.limits)):
        lo, hi, used, moved = sets.ptr[n], sets.ptr[n + 1], 0.0, False
        step = np.zeros(hi - lo)
        for j in range(hi - lo):
            held = min(max(sets.a[lo + j], 0.0), terms.roof * terms.limits[n])
            step[j] = held - sets.a[lo + j]
            sets.a[lo + j] = held
            moved |= step[j] != 0.0
            used += held
        most = terms.left * terms.limits[n]
        if used > most:
            moved = True
            for j in range(hi - lo):
                step[j] += sets.a[lo + j] * (most / used - 1.0)
                sets.a[lo + j] *= most / used
        if moved:
            push(sets, lo, step, weights, terms.eta, hand)
            for i in range(sets.place_ptr[lo], sets.place_ptr[hi]):
                spread(hand.row[i], hand, rows, index, degree, g)
