"""The exponential loss: sequences count the more the less likely their labels are, as in boosting.

    R(theta) = sum_n w'_n (e^l_n - 1),  l_n = -log p(y^n | x^n),  log w'_n = log w_n + T_n log pi   (LABELSEQ 3.6, 3.14)

e^l_n - 1 are the odds against the right labelling, a sum of exponentials of linear functions. What is minimised is
log R: it has the same minimum without a penalty, is convex where all labels are known, and does not overflow. A
penalty on log R is not the one on R: log R is of the size of one sequence's loss, so a penalty weighs about as many
times as much as there are sequences. With D = softmax(log w' + log(e^l - 1)), the distribution over sequences of
boosting (LABELSEQ 3.18), the gradient is sum_n D_n / (1 - e^-l_n) (E f - f(y^n)): that of the log loss with the weights
q_n = w'_n e^l_n / R, which are known after one forward pass; so a gradient takes a pass more than that of the log loss.

As theta grows on separable data R goes to 0 and log R to -inf, and l_n, a difference of two large numbers, to noise.
R therefore has one term more that no theta changes, `FLOOR` times sum_n w'_n: the log of a sum of exponentials still.
"""

import math
from functools import cached_property

import numpy as np

from espalier.engine.chain.pair_sets import check_theta, refuse_triples_in
from espalier.engine.data.dataset import Dataset, any_in_sequence
from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective, Extent
from espalier.engine.losses.loss_table import check_pi
from espalier.engine.losses.observed_slots import BYTES, observed_slots
from espalier.engine.losses.on_log_loss import OnLogLoss
from espalier.engine.losses.partial_labels import partly
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.vectors import log
from espalier.engine.weights.layout import Layout

FLOOR = 1e-10  # of a sequence that is never right: below it l_n, and what is left of a gradient, would be rounding


class ExponentialObjective(OnLogLoss):
    """log R over one data set and its gradient, on the kernels and the index of the log loss, `chain`."""

    loss_name = "exponential"

    def __init__(self, dataset: Dataset, layout: Layout, sparse: str = "auto", pi: float = 1.0):
        check_pi(pi)
        if len(dataset.token_weights):
            raise EspalierError(
                "the exponential loss is one of whole sequences and takes no token weights: choose the loss log or "
                "marginal, or give weights to sequences"
            )
        refuse_triples_in(layout, "the exponential loss")
        self.chain = ChainObjective(dataset, layout, sparse)
        self.dataset, self.layout, self.size, self.sparse = self.chain.dataset, layout, layout.size, sparse
        self.whole = ~any_in_sequence(dataset, dataset.labels < 0)
        self.partial = np.flatnonzero(partly(dataset))
        self.slots = observed_slots(dataset, layout, self.whole)
        weights = self.dataset.weights
        logs = np.where(weights > 0.0, log(np.where(weights > 0.0, weights, 1.0)), -np.inf)
        self.log_weights = logs + np.diff(dataset.offsets) * math.log(pi)
        if not np.any(self.log_weights > -np.inf):
            raise EspalierError("no sequence has a weight above 0: the exponential loss needs one to learn from")
        self.log_floor = math.log(FLOOR) + _log_sum(self.log_weights)

    @property
    def offers(self) -> frozenset[str]:
        """Capabilities of `engine.optimise.objective`; a sample, of the log loss, where all labels are known."""
        return frozenset({"gradient", "value", "scaling", "active"} | (self.chain.offers & {"sample"}))

    def losses(self, theta: np.ndarray) -> np.ndarray:
        """l_n of each sequence, 0 where nothing is known of it, float64 [N]."""
        check_theta(theta, self.layout)
        with self.chain.scratch.lock:
            return self._losses(theta, self.chain.kept_factors(theta))

    def value(self, theta: np.ndarray) -> float:
        """log R: forward recursion only."""
        return self._weighed(self.losses(theta))[0]

    def value_and_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """log R and its gradient: that of the log loss with the weights q."""
        check_theta(theta, self.layout)
        with self.chain.scratch.lock:
            factors = self.chain.kept_factors(theta)
            value, weights = self._weighed(self._losses(theta, factors))
            gradient = self.chain.expected(theta, factors, self.dataset._replace(weights=weights))[0]
            gradient -= self.slots.counts(weights)
            for term in self.chain.terms:
                term.weighing(weights[self.partial]).add_gradient(theta, gradient)
        return value, gradient

    def bytes_taken(self, extent: Extent) -> dict[str, int]:
        """As `ChainObjective.bytes_taken`, with the slots of the right labellings in two orders."""
        taken = self.chain.bytes_taken(extent)
        each = len(self.slots.slot) / max(1, len(self.dataset.labels))
        taken["features"] += int(BYTES * each * extent.tokens)
        taken["posteriors"] += 8 * extent.weights
        return taken

    @cached_property
    def _like_log_loss(self) -> float:
        """About how many times the log loss is as large: the weight of all sequences."""
        return float(self.dataset.weights.sum())

    def _losses(self, theta: np.ndarray, factors) -> np.ndarray:
        log_z = self.chain.log_partitions(theta, factors)
        with np.errstate(invalid="ignore"):  # infinite weights show in the objective, which is refused
            found = np.where(self.whole, log_z - self.slots.scores(theta), 0.0)
        for term in self.chain.terms:
            found[self.partial] = log_z[self.partial] - term.log_partitions(theta)
        return found

    def _weighed(self, losses: np.ndarray) -> tuple[float, np.ndarray]:
        """(log R, q)."""
        weights = np.empty(len(losses))
        return _weigh(self.log_weights, losses, self.log_floor, weights), weights


@kernel
def _log_sum(values):
    top, total = values.max(), 0.0
    for i in range(len(values)):
        total += np.exp(values[i] - top)
    return top + np.log(total)


@kernel
def _weigh(log_weights, losses, log_floor, weights):
    """log R; weights[n] = w'_n e^l_n / R. A loss below 0 is rounding, and log(e^l - 1) = l + log(1 - e^-l)."""
    top = log_floor
    for n in range(len(losses)):
        loss = max(losses[n], 0.0) if not np.isnan(losses[n]) else losses[n]
        weights[n] = log_weights[n] + loss + np.log(-np.expm1(-loss)) if log_weights[n] > -np.inf else -np.inf
        top = weights[n] if weights[n] > top or np.isnan(weights[n]) else top
    total = np.exp(log_floor - top)
    for n in range(len(losses)):
        total += np.exp(weights[n] - top)
    value = top + np.log(total)
    for n in range(len(losses)):
        weights[n] = np.exp(log_weights[n] + max(losses[n], 0.0) - value)
    return value
