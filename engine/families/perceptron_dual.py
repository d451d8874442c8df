"""Perceptrons in their dual form (LABELSEQ algorithm 6): rows of training data vote for labels through a kernel.

The labellings and their mistakes are those of `perceptron_training`, where psi is now that of the kernel

    k = sum_{s,t} [y_s = y_t] (m_st + 1)^degree + eta * the pairs of labels in common

so that no weight of an attribute is kept. A mistake adds `step` to A[p, y] for each position of the row p whose right
label is y, takes it away where y was said, and H = G A, the scores of all rows, follows at once: only rows of positions
that were wrong cost kernels, P of them each, while a sequence that is right costs a Viterbi pass over scores that are
there. Weights of pairs move by eta times that. The mean over all sequences is kept lazily, of A as of the weights.

With steps of one all numbers are whole: where the kernel is linear, mistakes and weights are those of the primal form.
"""

import math
from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.families.perceptron_options import PerceptronOptions
from espalier.engine.families.perceptron_training import (
    ONE,
    PASSIVE_AGGRESSIVE,
    ROOT,
    ROUNDING,
    PerceptronTraining,
    _best,
    _difference,
    _gap,
    _step,
    learn,
)
from espalier.engine.families.row_chain import RowChain
from espalier.engine.families.support import MOST_DEGREE
from espalier.engine.optimise.monitor import Result
from espalier.engine.runtime.jit import kernel
from espalier.engine.similarity.overlaps import RowIndex, count_overlaps, power
from espalier.engine.similarity.rows import AttributeRows


class DualForm(NamedTuple):
    """What a kernel needs beside weights and layout; the first weights are H [P, Y] in place of attributes' weights."""

    rows: AttributeRows
    index: RowIndex
    degree: int
    eta: float
    amounts: np.ndarray  # float64 [P * Y], A
    counts: np.ndarray  # [P], scratch: attributes in common
    similar: np.ndarray  # float64 [P], scratch: the kernel


def check_options(options: PerceptronOptions) -> None:
    """Refuse what the dual form has not."""
    degree = options.degree
    if type(degree) is not int or not 1 <= degree <= MOST_DEGREE:
        raise EspalierError(f"degree is {degree!r}: expected a whole number from 1 to {MOST_DEGREE}, or none")
    if not (math.isfinite(options.eta) and options.eta > 0.0):
        raise EspalierError(f"eta is {options.eta}: expected a number above 0")
    if options.update == "arow":
        raise EspalierError(
            f"degree is {degree} and update arow, which keeps a variance of each attribute's weight, and there are "
            "none with a kernel: set update to perceptron or pa, or degree to none"
        )
    if options.parts > 1:
        raise EspalierError(
            f"degree is {degree} and parts {options.parts}, whose weights are mixed, and with a kernel all parts would "
            "need the rows of the others: set parts to 1, or degree to none"
        )


class DualTraining(PerceptronTraining):
    """One training over rows; its weights are H and those of pairs."""

    def __init__(self, chain: RowChain, options: PerceptronOptions):
        check_options(options)
        super().__init__(chain.dataset, chain.layout, options)
        gram = chain.gram
        self.form = DualForm(
            chain.rows, gram.index, chain.degree, float(options.eta), np.zeros(chain.cells), gram.room(chain.rows)[0],
            np.empty(chain.rows.count),
        )  # fmt: skip

    def visit(self, order: np.ndarray, learns: bool) -> dict[str, float]:
        self.weights.mark[:] = -1
        loss, wrong, mistakes = _visit_rows(
            self.weights, self.form, self.layout, self.data, self.sets, order, self.rule, float(self.seen), learns,
            self.room,
        )  # fmt: skip
        self.seen += len(order) if learns else 0
        return {"loss": loss, "wrong": wrong, "mistakes": mistakes}

    def model(self) -> np.ndarray:
        """A and the weights of pairs behind it."""
        amounts = self.form.amounts
        last = np.concatenate([amounts, self.weights.theta[len(amounts) :]])
        return last - self.weights.sums / max(1, self.seen) if self.averages else last

    def moving(self) -> dict[str, np.ndarray]:
        return super().moving() | {"amounts": self.form.amounts}


def chain_of(dataset, n_labels: int, kinds: np.ndarray, options: PerceptronOptions, pairs: str, start: bool):
    """The rows of some data, as this family has them."""
    check_options(options)
    return RowChain(dataset, n_labels, kinds, pairs, start, options.degree, "perceptron with a kernel")


def fit_dual(chain: RowChain, options: PerceptronOptions, listen=None, keeper=None) -> Result:
    """Epoch after epoch, as of the primal form; its theta is A with the weights of pairs behind it."""
    return learn(DualTraining(chain, options), listen, keeper)


@kernel
def _visit_rows(weights, form, layout, data, sets, order, rule, seen, learns, room):
    """(loss, wrong labels, wrong sequences), the loss weighed; O(P) kernels for each row that is wrong somewhere."""
    offsets, labels, each = data.offsets, data.labels, data.weights
    loss, wrong, mistakes = 0.0, 0, 0
    for i in range(len(order)):
        n = order[i]
        lo, hi = offsets[n], offsets[n + 1]
        _best(weights.theta, layout, data, sets, lo, hi, rule.margin, room)
        d = 0
        for t in range(lo, hi):
            d += room.found[t - lo] != labels[t]
        if d == 0:
            continue
        count = _difference(layout, data, lo, hi, i, room, weights.delta, weights.mark)
        gap, norm = _gap(weights, rule, room.touched, count)
        missed = gap + (1.0 if rule.cost == ONE else np.sqrt(d) if rule.cost == ROOT else float(d))
        if rule.margin > 0.0 and missed <= ROUNDING * d:
            for k in range(count):
                weights.delta[room.touched[k]] = 0.0
            continue
        mistakes += 1
        wrong += d
        if rule.update == PASSIVE_AGGRESSIVE:
            norm = _norm(form, layout.n_labels, weights.delta, room.touched, count)
            loss += each[n] * max(0.0, missed)
        else:
            loss += each[n] * (d / (hi - lo))
        step = _step(rule, max(0.0, missed), norm, each[n]) if learns else 0.0
        _move_rows(weights, form, layout.n_labels, step, seen + i, room.touched, count)
    return loss, wrong, mistakes


@kernel
def _norm(form, n_labels, delta, touched, count):
    """|D|^2 in the space of the kernel: over pairs of rows that move the same label, and over pairs of labels."""
    cells, ptr, attribute, total = len(form.amounts), form.rows.ptr, form.rows.attribute, 0.0
    for k in range(count):
        s = touched[k]
        if s >= cells:
            total += form.eta * delta[s] * delta[s]
            continue
        for m in range(k + 1):
            o = touched[m]
            if o >= cells or (s - o) % n_labels:
                continue
            p, q, common = s // n_labels, o // n_labels, 0
            i, j = ptr[p], ptr[q]
            while i < ptr[p + 1] and j < ptr[q + 1]:
                a, b = attribute[i], attribute[j]
                common += a == b
                i += a <= b
                j += b <= a
            value = 1.0
            for _ in range(form.degree):
                value *= common + 1.0
            total += (1.0 if m == k else 2.0) * delta[s] * delta[o] * value
    return total


@kernel
def _move_rows(weights, form, n_labels, step, seen, touched, count):
    """A, H and the weights of pairs behind a step along D; D is zero again."""
    theta, sums, delta, amounts, cells = weights.theta, weights.sums, weights.delta, form.amounts, len(form.amounts)
    for k in range(count):
        s = touched[k]
        if s >= cells:
            theta[s] += form.eta * step * delta[s]
            sums[s] += seen * (form.eta * step * delta[s])
            delta[s] = 0.0
            continue
        if delta[s] == 0.0 or step == 0.0:
            delta[s] = 0.0
            continue
        p = s // n_labels
        count_overlaps(form.rows, form.index, p, form.counts)
        power(form.counts, form.degree, form.similar)
        for y in range(n_labels):
            own = p * n_labels + y
            move = step * delta[own]
            delta[own] = 0.0
            if move != 0.0:
                amounts[own] += move
                sums[own] += seen * move
                for q in range(len(form.similar)):
                    theta[q * n_labels + y] += move * form.similar[q]
