"""What the numbers of a hidden Markov model are: which exist, what adds up to one, where each lies in theta.

P(x, y) = q(y_1 | I) prod_t q(y_t | y_{t-1}) prod_k P_k(x_tk | y_t) q(F | y_T) (COURSE 4.2). Each template that makes
unigram observations is a stream of its own: a label emits one observation of it at each position, independently of the
other streams (overlapping features, LABELSEQ 4.6). The logs of all probabilities are weights of a chain, so the kernels
of the chain train and decode, and log Z(x) is log P(x).

A stream may have very many observations, and most of them never meet most labels. So only pairs that have met have a
probability of their own, a *cell*; those of a label that have not share one mass evenly. Its logarithm depends on the
label alone: it goes into one weight for each label, and a cell's weight is what it has more than that. Three kinds of
observations stand beside those of the texts: `transitions` is at every position and carries that weight, q(y | I) and
q(y | y'); `final` is at the last position; an observation that training has not seen is the `unknown` one of its
stream.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.runtime.vectors import log
from espalier.engine.weights.layout import BIGRAM, UNIGRAM, Layout, _assemble, seen_layout
from espalier.engine.weights.sublayout import restrict

FLOOR = -690.0  # log of a probability of zero: exp of it is still a number
ROUNDING = 1e-12  # of a difference of counts
NO_UNSEEN = -1.0  # what stands for the log of one that no observation has: cells are what they have more than it


class Beside(NamedTuple):
    """The numbers of the observations beside those of the texts, -1 where all their weights are zero."""

    transitions: int
    final: int
    unknown: np.ndarray  # int32 [K], of each template; -1 for those that emit nothing


def completed(data: Dataset, beside: Beside) -> Dataset:
    """The data with the observations beside those of the texts: two columns more, and no gaps in streams."""
    if data.observations.shape[1] != len(beside.unknown):
        raise EspalierError(
            f"the data have {data.observations.shape[1]} observations at a position, the model has "
            f"{len(beside.unknown)} streams: expected those of its own templates"
        )
    more = np.full((len(data.labels), 2), -1, np.int32)
    more[:, 0] = beside.transitions
    more[data.offsets[1:] - 1, 1] = beside.final
    seen = np.where(data.observations < 0, beside.unknown, data.observations)
    return data._replace(observations=np.concatenate([seen, more], axis=1))


class HmmAmounts(NamedTuple):
    """Counts, or probabilities; E streams that emit.

    As probabilities these add up to one: first; pairs and last of each y'; cells, unseen and unknown of each stream and
    label.
    """

    first: np.ndarray  # float64 [Y], y is the first label
    pairs: np.ndarray  # float64 [Y, Y], y follows y'
    last: np.ndarray  # float64 [Y], y is the last label
    cells: np.ndarray  # float64 [cells], y emits x
    unseen: np.ndarray  # float64 [E, Y], y emits an observation that it has no cell with
    unknown: np.ndarray  # float64 [E, Y], y emits an observation that is not in the vocabulary


@dataclass(frozen=True)
class HmmSpace:
    """The probabilities of a model over n observations, K templates and Y labels."""

    emissions: Layout  # unigram weights alone: the cells
    stream: np.ndarray  # int64 [n], the template of each observation
    emits: np.ndarray  # bool [K], the templates whose observations are emitted
    without: np.ndarray | None = None  # `rest` of the space that this is a part of: see `part`

    @property
    def n_labels(self) -> int:
        return self.emissions.n_labels

    @cached_property
    def layout(self) -> Layout:
        """Of the chain: the texts' observations, `transitions`, `final`, the unknown one of each stream that emits."""
        n, n_labels, every = len(self.stream), self.n_labels, np.arange(self.n_labels)
        beside = 2 + int(self.emits.sum())
        lengths = np.append(np.diff(self.emissions.unigram_ptr), np.full(beside, n_labels))
        at_transitions = np.zeros(n + beside, np.int64)
        at_transitions[n] = n_labels
        codes = np.concatenate([self.emissions.unigram_code, np.tile(every, beside)])
        return _assemble(
            n_labels, [(lengths, codes), (at_transitions, every), (at_transitions * n_labels, np.arange(n_labels**2))]
        )

    @cached_property
    def beside(self) -> Beside:
        n, unknown = len(self.stream), np.full(len(self.emits), -1, np.int32)
        unknown[self.emits] = n + 2 + np.arange(self.emits.sum())
        return Beside(n, n + 1, unknown)

    @cached_property
    def cell(self) -> np.ndarray:
        """Where each cell belongs in an array [E, Y], as one number."""
        _, of, _, label = self.emissions.slots()
        rank = np.cumsum(self.emits) - 1
        return rank[self.stream[of]] * self.n_labels + label

    @cached_property
    def symbols(self) -> np.ndarray:
        """How many observations each stream has, float64 [E, 1]."""
        size = np.bincount(self.stream, minlength=len(self.emits)).astype(np.float64)
        return size[self.emits][:, None]

    @cached_property
    def rest(self) -> np.ndarray:
        """How many of them a label has no cell with, float64 [E, Y]."""
        if self.without is not None:
            return self.without
        return self.symbols - self.by_label(np.ones(len(self.cell)))

    def part(self, observations: np.ndarray) -> tuple["HmmSpace", np.ndarray]:
        """The space of some observations (ascending), and where its layout's slots lie in this one's."""
        emissions, runs = restrict(self.emissions, observations)
        small = HmmSpace(emissions, self.stream[observations], self.emits, self.rest)
        cells = runs.places(np.arange(runs.size)) if runs.size else np.empty(0, np.int64)
        return small, np.append(cells, np.arange(len(self.cell), self.layout.size))

    def by_label(self, cells: np.ndarray) -> np.ndarray:
        """Sums of cells, [E, Y]."""
        shape = int(self.emits.sum()), self.n_labels
        return np.bincount(self.cell, cells, shape[0] * shape[1]).reshape(shape)

    def amounts(self, counts: np.ndarray, signed: bool = False) -> HmmAmounts:
        """What a vector of counts over the layout says, or with `signed` one of differences of counts."""
        cells, totals, last, unknown, first, pairs = self._cut(counts)
        unknown = unknown.reshape(-1, self.n_labels)
        unseen = np.where(self.rest > 0.0, totals - self.by_label(cells) - unknown, 0.0)
        unseen = unseen if signed else np.where(unseen > ROUNDING * totals, unseen, 0.0)
        return HmmAmounts(first, pairs.reshape(self.n_labels, -1), last, cells, unseen, unknown)

    def totals(self, counts: np.ndarray) -> np.ndarray:
        """How often each label occurs, by a vector of counts over the layout, float64 [Y]."""
        return self._cut(counts)[1]

    def counts(self, of: HmmAmounts, totals: np.ndarray) -> np.ndarray:
        """The counts over the layout that probabilities expect of one sequence whose labels occur so often, [Y]."""
        cells = of.cells * np.tile(totals, len(of.unknown))[self.cell]
        parts = cells, totals, totals * of.last, totals * of.unknown, of.first, totals[:, None] * of.pairs
        return np.concatenate([part.ravel() for part in parts])

    def theta(self, of: HmmAmounts) -> np.ndarray:
        """Probabilities as weights over the layout."""
        unseen = self.log_unseen(of)
        cells = log_or_floor(of.cells) - unseen.ravel()[self.cell]
        base = np.zeros(self.n_labels)
        for row in unseen:
            base += row
        unknown = log_or_floor(of.unknown) - unseen
        parts = cells, base, log_or_floor(of.last), unknown, log_or_floor(of.first), log_or_floor(of.pairs)
        return np.concatenate([part.ravel() for part in parts])

    def log_unseen(self, of: HmmAmounts) -> np.ndarray:
        """log of the probability of each observation that a label has no cell with, float64 [E, Y]."""
        each = of.unseen / np.maximum(self.rest, 1.0)
        return np.where(self.rest > 0.0, log_or_floor(each), NO_UNSEEN)

    def _cut(self, vector: np.ndarray) -> list[np.ndarray]:
        """Cells; of `transitions` and `final`; unknown ones; first labels; pairs."""
        n_labels, cells, streams = self.n_labels, len(self.cell), int(self.emits.sum())
        ends = np.cumsum([cells, n_labels, n_labels, streams * n_labels, n_labels])
        return np.split(vector, ends)


def make_space(
    dataset: Dataset, n_labels: int, stream: np.ndarray, emits: np.ndarray, anywhere: bool = False
) -> HmmSpace:
    """The cells are the pairs of observation and label that occur in the data.

    With `anywhere` an observation that occurs with no known label at all has a cell with each of them.
    """
    stream = np.asarray(stream, np.int64)
    emitted = emits[stream]
    whole = seen_layout(dataset, n_labels, np.where(emitted, UNIGRAM, BIGRAM), start=False)
    lengths, codes, none = np.diff(whole.unigram_ptr), whole.unigram_code, np.empty(0, np.int32)
    if anywhere:
        lonely = emitted & (lengths == 0)
        lengths = np.where(lonely, n_labels, lengths)
        every = np.tile(np.arange(n_labels, dtype=np.int32), len(lengths))
        every = every.reshape(len(lengths), n_labels)[lonely]
        spread, of_lonely = np.empty(int(lengths.sum()), np.int32), np.repeat(lonely, lengths)
        spread[of_lonely], spread[~of_lonely] = every.ravel(), codes
        codes = spread
    nothing = np.zeros(len(lengths), np.int64), none
    return HmmSpace(_assemble(n_labels, [(lengths, codes), nothing, nothing]), stream, emits)


def maximised(
    space: HmmSpace, counts: HmmAmounts, smoothing: float, scarce: np.ndarray, emitted: np.ndarray | None = None
) -> HmmAmounts:
    """The probabilities under which counts are likeliest, when each has `smoothing` more (a Dirichlet prior).

    scarce [E, Y] is how often unknown observations would have been emitted besides. Where the space is a part of
    another, emitted [E, Y] is how often each label emits anything, prior included.
    """
    first, last, pairs = counts.first + smoothing, counts.last + smoothing, counts.pairs + smoothing
    cells, unseen = counts.cells + smoothing, counts.unseen + smoothing * space.rest
    unknown = counts.unknown + scarce + smoothing
    return normalised(space, HmmAmounts(first, pairs, last, cells, unseen, unknown), emitted)


def normalised(space: HmmSpace, of: HmmAmounts, emitted: np.ndarray | None = None) -> HmmAmounts:
    """The amounts as shares of the distributions that they belong to."""
    left = of.pairs.sum(axis=1) + of.last
    emitted = space.by_label(of.cells) + of.unseen + of.unknown if emitted is None else emitted
    return HmmAmounts(
        of.first / of.first.sum(), of.pairs / left[:, None], of.last / left, of.cells / emitted.ravel()[space.cell],
        of.unseen / emitted, of.unknown / emitted,
    )  # fmt: skip


def log_prior(space: HmmSpace, of: HmmAmounts, smoothing: float, scarce: np.ndarray) -> float:
    """What `maximised` adds to the log-likelihood that it maximises: smoothing times the logs of all probabilities."""
    whole = sum(float(log_or_floor(part).sum()) for part in (of.first, of.pairs, of.last, of.cells, of.unknown))
    shared = space.rest * space.log_unseen(of)
    return smoothing * (whole + float(shared.sum())) + float((scarce * log_or_floor(of.unknown)).sum())


def rare_counts(space: HmmSpace, cells: np.ndarray, rare: int) -> np.ndarray:
    """How often each label emits observations that occur fewer than `rare` + 1 times, float64 [E, Y]."""
    _, of, _, _ = space.emissions.slots()
    often = np.bincount(of, cells, len(space.stream))[of] >= rare + 1
    return space.by_label(np.where(often, 0.0, cells))


def log_or_floor(probabilities: np.ndarray) -> np.ndarray:
    logs = log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    return np.where(probabilities > 0.0, np.maximum(logs, FLOOR), FLOOR)
