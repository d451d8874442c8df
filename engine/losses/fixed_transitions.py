"""Transitions that a tagging scheme forbids, impossible in training (LABELSEQ B.2): Z sums over allowed labellings.

What is forbidden gets a fixed score, `FORBIDDEN`, outside theta: an observation that is there everywhere has it for
first labels and for pairs, one that is at the end for last labels. They stand behind all others in an extended layout,
so any objective of a chain takes them as it takes any weights, and here they are cut off again. A labelling with one
forbidden transition counts e^-200 times as much as without, which a sum of probabilities does not see. -inf would let
scaled recursions lose the only allowed labelling, and a lower score would leave every step to logarithms
(`engine.chain.scores.SAFE_RANGE`). Decoding needs none of this: it keeps to limits.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np

from espalier.engine.data.dataset import Dataset
from espalier.engine.decoding.decode import log_partition
from espalier.engine.errors import EspalierError
from espalier.engine.labels.scheme import FORBIDDEN, Transitions, breaks
from espalier.engine.lattice.limits import ImpossibleSequence
from espalier.engine.losses.chain_objective import ChainObjective, Extent, Sample
from espalier.engine.weights.layout import BIGRAM, UNIGRAM, Layout, with_full_runs

OFFERED = frozenset({"gradient", "value", "scaling", "active", "sample"})  # what is left where theta is a part


class FixedTransitions:
    """An objective of a chain over extended data and weights, as one over theta alone.

    `make` gives the objective of (data, layout). What an objective `offers` beyond its figures is not offered here:
    solvers that move weights by sequences or blocks would move the fixed ones.
    """

    def __init__(
        self, dataset: Dataset, layout: Layout, transitions: Transitions,
        make: Callable[[Dataset, Layout], ChainObjective], sparse: str = "auto",
    ):  # fmt: skip
        self.layout, self.size, self.sparse, self.plain = layout, layout.size, sparse, dataset
        kinds = [BIGRAM] if transitions.end.all() else [BIGRAM, UNIGRAM]
        self.inner = make(_with_columns(dataset, layout.n_observations, len(kinds)), with_full_runs(layout, kinds))
        self.loss_name, self.dataset = self.inner.loss_name, self.inner.dataset
        self.bounds = [0, *layout.bounds(), layout.size]
        ends = transitions.end if UNIGRAM in kinds else np.empty(0)
        scores = [np.where(allowed, 0.0, FORBIDDEN).ravel() for allowed in (ends, transitions.start, transitions.pair)]
        sizes = np.diff(self.bounds).tolist()
        self.fixed = np.concatenate([np.append(np.zeros(n), own) for n, own in zip(sizes, scores, strict=True)])
        at = np.cumsum([0] + [n + len(own) for n, own in zip(sizes, scores, strict=True)]).tolist()
        self.own = [slice(begin, begin + n) for begin, n in zip(at, sizes, strict=False)]

    @property
    def offers(self) -> frozenset[str]:
        """Capabilities of `engine.optimise.objective`."""
        return self.inner.offers & OFFERED

    def value(self, theta: np.ndarray) -> float:
        """The loss alone."""
        return self.inner.value(self.extended(theta))

    def value_and_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss and its gradient in theta."""
        value, gradient = self.inner.value_and_gradient(self.extended(theta))
        return value, self.free(gradient)

    def scaling(self, gradient: np.ndarray, rho2: float) -> np.ndarray:
        """That of the loss."""
        return self.free(self.inner.scaling(self.extended(gradient), rho2))

    def active(self, theta: np.ndarray) -> dict[str, int]:
        """Number of weights of each family that are not zero, without the fixed ones."""
        return self._without.active(theta)

    def sample(self) -> Sample | None:
        """Sequences to begin with: by the loss without what is fixed, whose stochastic steps move all of theta."""
        inner = self.inner.sample()
        return inner and self._without.sample(inner.share)

    def bytes_taken(self, extent: Extent) -> dict[str, int]:
        """As `ChainObjective.bytes_taken`, with the data once more."""
        taken = self.inner.bytes_taken(extent)
        return taken | {"features": taken["features"] + 4 * extent.columns * extent.tokens}

    @cached_property
    def _without(self) -> ChainObjective:
        return ChainObjective(self.plain, self.layout, self.sparse)

    def extended(self, theta: np.ndarray) -> np.ndarray:
        """theta with the fixed scores in their places."""
        if theta.shape != (self.size,):
            raise EspalierError(f"theta has shape {theta.shape}: expected the {self.size} weights of the layout")
        found = self.fixed.copy()
        for place, lo, hi in zip(self.own, self.bounds, self.bounds[1:], strict=False):
            found[place] = theta[lo:hi]
        return found

    def free(self, vector: np.ndarray) -> np.ndarray:
        """A vector over the extended layout without the fixed places."""
        return np.concatenate([vector[place] for place in self.own])


def _with_columns(dataset: Dataset, n_observations: int, columns: int) -> Dataset:
    """The data with the observation that is everywhere, and with the one of the end where there are two columns."""
    more = np.full((len(dataset.labels), columns), -1, np.int32)
    more[:, 0] = n_observations
    if columns > 1:
        more[dataset.offsets[1:] - 1, 1] = n_observations + 1
    return dataset._replace(observations=np.concatenate([dataset.observations, more], axis=1))


def refuse_broken(
    dataset: Dataset, layout: Layout, transitions: Transitions, labels: list[str], setting: str, nothing: str = "null"
) -> None:  # fmt: skip
    """An error for the first training sequence whose labels the scheme forbids; `setting` is what asks for it."""
    advice = f"mend its labels, convert them from another scheme, or set {setting} to {nothing}"
    broken = np.flatnonzero(breaks(dataset.labels, dataset.offsets, transitions))
    if len(broken):
        t = int(broken[0])
        n = int(np.searchsorted(dataset.offsets, t, side="right")) - 1
        first, last = dataset.offsets[n] == t, dataset.offsets[n + 1] == t + 1
        before = "at its beginning" if first else f"after {labels[dataset.labels[t - 1]]}"
        at_end = last and not transitions.end[dataset.labels[t]]
        raise EspalierError(
            f"training sequence {n + 1} has {labels[dataset.labels[t]]} {'at its end' if at_end else before}, which "
            f"the scheme forbids: {advice}"
        )
    if len(dataset.labels) and dataset.labels.min() < 0:
        try:
            log_partition(dataset, layout, np.zeros(layout.size), allowed="labels", transitions=transitions)
        except ImpossibleSequence as error:
            raise EspalierError(
                f"training sequence {error.sequence + 1} has no labelling that its known labels and the scheme allow: "
                f"{advice}"
            ) from None
