"""Linear-chain conditional random fields: p(y | x) = exp(score(x, y)) / Z(x), by the fused kernels of the chain."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from espalier.engine.chain.chain_lattice import lattice_blocks
from espalier.engine.data.dataset import Dataset
from espalier.engine.decoding import decode, triples
from espalier.engine.errors import EspalierError, quoted
from espalier.engine.families.labeller import WeightLabeller
from espalier.engine.labels.scheme import FORBIDDEN, Transitions, both, breaks, transitions_of
from espalier.engine.lattice.blocks import LatticeBlock
from espalier.engine.lattice.decode import NBest
from espalier.engine.lattice.detours import Detours
from espalier.engine.lattice.limits import Limits
from espalier.engine.weights.stop_twins import twins_by_text, with_twins


class CrfLabeller(WeightLabeller):
    """A trained chain."""

    family = "crf"

    def check(self) -> None:
        try:
            self.transitions  # noqa: B018 - a scheme that is none, or not that of the labels, shows here
        except EspalierError as error:
            raise ValueError(f"scheme {quoted(str(self.info.get('scheme')))} does not fit: {error}") from None

    @cached_property
    def transitions(self) -> Transitions | None:
        """What the scheme allows that it was trained with, and keeps to; None allows everything."""
        scheme = self.info.get("scheme")
        return None if scheme is None else transitions_of(self.labels, str(scheme))

    def _only(self, only: dict) -> dict:
        """What is asked for, within its own transitions."""
        return only if self.transitions is None else only | {
            "transitions": both(self.transitions, only.get("transitions"))
        }  # fmt: skip

    def _limits(self, data: Dataset, only: dict) -> Limits | None:
        return super()._limits(data, self._only(only))

    def prepared(self, data: Dataset) -> Dataset:
        return with_twins(data, self._twins)

    @cached_property
    def _twins(self) -> np.ndarray | None:
        return twins_by_text(self.observations)

    def lattices(self, data: Dataset) -> Iterator[LatticeBlock]:
        """Without the scores of triples of labels, which the functions below add where there are some."""
        return lattice_blocks(self.prepared(data), self.layout, self.theta)

    def best(self, data: Dataset, **only) -> np.ndarray:
        return decode.viterbi(self.prepared(data), self.layout, self.theta, **self._only(only))

    def ways(self, data: Dataset, labels: np.ndarray) -> Detours:
        """The best labelling through each label of one sequence whose best labels these are, by triples of labels."""
        return triples.ways(self.prepared(data), self.layout, self.theta, labels)

    def marginals(self, data: Dataset, **only) -> np.ndarray:
        self.require("probability")
        return decode.marginals(self.prepared(data), self.layout, self.theta, **self._only(only))

    def log_partition(self, data: Dataset, **only) -> np.ndarray:
        return decode.log_partition(self.prepared(data), self.layout, self.theta, **self._only(only))

    def nbest(self, data: Dataset, n: int, **only) -> NBest:
        if not self.second_order:
            return super().nbest(data, n, **only)
        return decode.nbest(self.prepared(data), self.layout, self.theta, n, **only)

    def log_probability(self, data: Dataset, labels: np.ndarray | None = None, **only) -> np.ndarray:
        """As every labeller; a transition that its scheme forbids costs what it did in training, so it stays finite."""
        if self.second_order:  # which no scheme goes with
            scores = decode.sequence_score(self.prepared(data), self.layout, self.theta, labels)
            return scores - self.log_partition(data, **only)
        found = super().log_probability(data, labels, **only)
        if self.transitions is None:
            return found
        broken = breaks(data.labels if labels is None else labels, data.offsets, self.transitions)
        return found + FORBIDDEN * np.add.reduceat(broken, data.offsets[:-1]) if len(broken) else found
