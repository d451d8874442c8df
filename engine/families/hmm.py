"""Hidden Markov models: P(x, y) = q(y_1 | I) prod_t q(y_t | y_{t-1}) prod_k P_k(x_tk | y_t) q(F | y_T) (COURSE 4.2).

Each template that makes unigram observations is a stream of its own: a label emits one observation of it at each
position, independently of the other streams (overlapping features, LABELSEQ 4.6). The logs of all probabilities are
weights of a chain, so the kernels of the chain decode, and log Z(x) is log P(x).

A layout has no weight for what was never seen together. So that unseen pairs need none, log P_k(x | y) is split into
what an unseen observation of the stream has, which depends on y alone and goes into one weight for each label, and
what x has more than that. Three kinds of observations stand beside those of the texts: `transitions` is at every
position and carries that weight, q(y | I) and q(y | y'); `final` is at the last position; an observation that training
has not seen is the `unknown` one of its stream, which counts as often as rare ones occur in training.
"""

import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np

from espalier.engine.data.dataset import Dataset, refuse_unlabelled
from espalier.engine.errors import EspalierError
from espalier.engine.families import require
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.families.labeller import Contribution
from espalier.engine.lattice import blocks
from espalier.engine.losses.chain_objective import observed_counts
from espalier.engine.runtime.vectors import dot, exp, log
from espalier.engine.weights.layout import BIGRAM, KINDS, UNIGRAM, Layout, _assemble, seen_layout

FLOOR = -690.0  # log of a probability of zero: exp of it is still a number
TRANSITIONS, FINAL, UNKNOWN_OF = "*transitions", "Ufinal", "Uunknown:"  # names of the observations beside the texts'


class HmmLabeller(CrfLabeller):
    """A trained model.

    `info["hmm"]` names the observations that stand beside those of the texts, and has for explanations what cannot be
    told from the weights: `streams`, the template of each observation as runs of [template, how many], and `unseen`.
    """

    family = "hmm"
    shows = "probability"
    unsaid = frozenset({"hmm"})

    def check(self) -> None:
        """What `info["hmm"]` says against the model's own sizes: kernels go by it."""
        said, n_streams = self.info.get("hmm"), len(self.templates)
        if not isinstance(said, dict) or not _texts([said.get("transitions"), said.get("final")], 2):
            raise ValueError("it does not name the observations of transitions and of the end")
        if not _texts(said.get("unknown"), n_streams):
            raise ValueError(f"expected the name of an unknown observation for each of {n_streams} templates")
        unseen = _numbers(said.get("unseen"), (n_streams, len(self.labels)))
        if unseen is None or not np.all(np.abs(unseen) <= np.finfo(np.float64).max):
            raise ValueError(f"`unseen` is not {n_streams} x {len(self.labels)} numbers, of templates and labels")
        runs = _numbers(said.get("streams"), (-1, 2))
        if runs is None or runs.dtype.kind != "i":
            raise ValueError("`streams` is not a list of runs [template, how many]")
        template, count = runs.T
        if np.any((template < -1) | (template >= n_streams)) or np.any(count < 0):
            raise ValueError(f"`streams` speaks of templates or counts that are none; there are {n_streams} templates")
        if (covered := sum(count.tolist())) != len(self.observations):
            raise ValueError(f"`streams` covers {covered} observations, the file has {len(self.observations)}")

    def prepared(self, data: Dataset) -> Dataset:
        return completed(data, self._beside)

    def contributions(
        self, row: np.ndarray, before: int, label: int, valued: Iterable[tuple[int, float]] = ()
    ) -> Iterator[tuple[Contribution, float]]:
        """Logarithms of probabilities: of what each stream emits, of the transition, of the end."""
        streams, (transitions, final) = row[: len(self._unseen)].tolist(), row[len(self._unseen) :].tolist()
        for k, x in enumerate(streams):
            if self._emits[k]:  # -1 is an unknown one, of a stream without rare ones in training
                slot = self.slot("unigram", x, label) if x >= 0 else -1
                gain = float(self.theta[slot]) if slot >= 0 else 0.0
                yield Contribution("unigram", x if x >= 0 else -1 - k, -1, label), float(self._unseen[k, label]) + gain
        plain = super().contributions(np.array([transitions, final]), before, label)
        yield from (part for part in plain if part[0].observation != transitions or part[0].kind != "unigram")

    def text_of(self, observation: int) -> str:
        return self.observations[observation] if observation >= 0 else self.info["hmm"]["unknown"][-1 - observation]

    def shown(self) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities; what each label's unseen observations have in common is none, and templates without macros
        say nothing: their one observation is certain."""
        kind, observation, _, label = self.layout.slots()
        plain = np.array([*(not template.macros for template in self.parsed), False])  # False of no template
        certain = plain[self._stream_of]
        slots = np.flatnonzero((kind > 0) | ((observation != self._beside.transitions) & ~certain[observation]))
        emitted = (kind == 0) & (observation != self._beside.final)
        stream = self._stream_of[observation[slots]]
        base = np.where(emitted[slots], self._unseen[np.maximum(stream, 0), label[slots]], 0.0)
        return slots, exp(self.theta[slots] + base)

    @cached_property
    def _unseen(self) -> np.ndarray:
        return np.array(self.info["hmm"]["unseen"], np.float64).reshape(len(self.templates), len(self.labels))

    @cached_property
    def _emits(self) -> np.ndarray:
        return np.any(self._unseen != 0.0, axis=1)

    @cached_property
    def _stream_of(self) -> np.ndarray:
        """The template of each observation, -1 for `transitions` and `final`."""
        return np.repeat(*np.array(self.info["hmm"]["streams"], np.int64).reshape(-1, 2).T)

    @cached_property
    def _beside(self) -> "Beside":
        known, named = {text: i for i, text in enumerate(self.observations)}, self.info["hmm"]
        unknown = [known.get(name, -1) for name in named["unknown"]]
        return Beside(known.get(named["transitions"], -1), known.get(named["final"], -1), np.array(unknown, np.int32))


def _texts(value: object, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and all(isinstance(text, str) for text in value)


def _numbers(value: object, shape: tuple[int, int]) -> np.ndarray | None:
    """A table of numbers of this shape (-1: any length), None if it is something else."""
    rows = value if isinstance(value, list) else [None]
    if any(not isinstance(row, list) or len(row) != shape[1] for row in rows) or shape[0] not in (-1, len(rows)):
        return None
    if any(type(number) not in (int, float) for row in rows for number in row):
        return None
    try:
        table = np.array(rows).reshape(len(rows), shape[1])
    except OverflowError:
        return None
    return table if table.dtype.kind in "if" else None


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


class Tables(NamedTuple):
    """The probabilities of a model with Y labels, as logarithms; FLOOR stands for zero."""

    start: np.ndarray  # float64 [Y], q(y | I)
    pairs: np.ndarray  # float64 [Y, Y], q(y | y')
    final: np.ndarray  # float64 [Y], q(F | y)
    unseen: np.ndarray  # float64 [K, Y], an observation of stream k that was never seen with y; zero for no stream
    unknown: np.ndarray  # float64 [K, Y], any observation of stream k that training does not have
    emissions: Layout  # unigram weights alone: the pairs (x, y) that were seen
    gains: np.ndarray  # float64 [emissions.size], log P(x | y) minus what is in `unseen`


def estimate(
    dataset: Dataset, n_labels: int, stream: np.ndarray, emits: np.ndarray, smoothing: float = 1e-5, rare: int = 1
) -> Tables:
    """Relative counts, each with `smoothing` added; a sequence counts as often as its weight says.

    stream[x] is the template of observation x, emits[k] whether template k makes unigram observations. Of an
    observation that occurs fewer than `rare` + 1 times, each occurrence counts for the unknown one of its stream, too.
    """
    if dataset.valued.shape[1]:
        require("hmm", "values")
    refuse_unlabelled(dataset, "relative counts need all labels of a sequence")
    emissions = _seen_emissions(dataset, n_labels, emits[stream])
    counts, (_, of, _, label) = observed_counts(dataset, emissions), emissions.slots()
    cell, cells = stream[of].astype(np.int64) * n_labels + label, len(emits) * n_labels
    often = np.bincount(of, counts, len(stream))[of] >= rare + 1
    scarce, total = (
        np.bincount(cell, some, cells).reshape(-1, n_labels) for some in (np.where(often, 0.0, counts), counts)
    )
    size = np.bincount(stream[np.diff(emissions.unigram_ptr) > 0], minlength=len(emits))[:, None]
    below, emits = log(total + scarce + smoothing * (size + 1)), emits[:, None]
    first, pairs, last, leaving = transition_counts(dataset, n_labels)
    begun = first + smoothing
    leaving, least = log(leaving + smoothing * (n_labels + 1)), math.log(smoothing)
    return Tables(
        log(begun) - math.log(math.fsum(begun)), log(pairs + smoothing) - leaving[:, None],
        log(last + smoothing) - leaving, np.where(emits, least - below, 0.0),
        np.where(emits, log(scarce + smoothing) - below, 0.0), emissions, log(counts + smoothing) - least,
    )  # fmt: skip


def transition_counts(dataset: Dataset, n_labels: int) -> tuple[np.ndarray, ...]:
    """Weighted counts: a label is first [Y], a pair of labels [Y, Y], a label is last [Y], a label is left [Y]."""
    labels, inner = dataset.labels.astype(np.int64), np.ones(len(dataset.labels), bool)
    inner[dataset.offsets[:-1]] = False
    at, weights = np.flatnonzero(inner), np.repeat(dataset.weights, np.diff(dataset.offsets))
    pairs = np.bincount(labels[at - 1] * n_labels + labels[at], weights[at], n_labels**2)
    first, last = (
        np.bincount(labels[where], dataset.weights, n_labels)
        for where in (dataset.offsets[:-1], dataset.offsets[1:] - 1)
    )
    return first, pairs.reshape(n_labels, n_labels), last, np.bincount(labels, weights, n_labels)


def _seen_emissions(dataset: Dataset, n_labels: int, emits: np.ndarray) -> Layout:
    """A layout of unigram weights alone: the pairs of observation and label that occur, of those that are emitted."""
    whole = seen_layout(dataset, n_labels, np.where(emits, UNIGRAM, BIGRAM), start=False)
    none = np.zeros(len(emits), np.int64), np.empty(0, np.int32)
    return _assemble(n_labels, [(np.diff(whole.unigram_ptr), whole.unigram_code), none, none])


def make_labeller(
    tables: Tables, observations: list[str], stream: np.ndarray, labels: list[str], templates: list[str], info: dict
) -> HmmLabeller:
    """The model of some tables; `observations` are those of the texts, by id, `stream` their templates."""
    n, n_labels, streams = len(observations), len(labels), len(templates)
    names = _names_beside(observations, templates)
    emits = np.flatnonzero(np.any(tables.unseen != 0.0, axis=1))
    lengths = np.zeros(n + 2 + streams, np.int64)
    lengths[:n] = np.diff(tables.emissions.unigram_ptr)
    every, base = np.arange(n_labels), np.zeros(n_labels)
    for row in tables.unseen:
        base += row
    beside = np.append([n, n + 1], n + 2 + emits)
    lengths[beside] = n_labels
    at_transitions = np.where(np.arange(len(lengths)) == n, n_labels, 0)
    layout = _assemble(
        n_labels,
        [
            (lengths, np.concatenate([tables.emissions.unigram_code, np.tile(every, len(beside))])),
            (at_transitions, every),
            (at_transitions * n_labels, np.arange(n_labels**2)),
        ],
    )
    unknown = (tables.unknown - tables.unseen)[emits].ravel()
    theta = np.concatenate([tables.gains, base, tables.final, unknown, tables.start, tables.pairs.ravel()])
    model = HmmLabeller.compact(layout, theta, [*observations, *names], labels, templates, info)
    of_text = dict(zip([*observations, *names], [*np.asarray(stream).tolist(), -1, -1, *range(streams)], strict=True))
    runs = [[k, len(list(run))] for k, run in groupby(of_text[text] for text in model.observations)]
    named = {"transitions": names[0], "final": names[1], "unknown": names[2:], "unseen": tables.unseen.tolist()}
    model.info |= {"features": layout.size, "hmm": named | {"streams": runs}}
    return model


def _names_beside(observations: list[str], templates: list[str]) -> list[str]:
    """Names of the observations beside those of the texts, each unlike all others."""
    taken, names = set(observations), []
    for name in (TRANSITIONS, FINAL, *(f"{UNKNOWN_OF}{line}" for line in templates)):
        while name in taken:
            name += "'"
        names.append(name)
        taken.add(name)
    return names


def fit(
    dataset: Dataset, observations: list[str], stream: np.ndarray, labels: list[str], templates: list[str], info: dict,
    smoothing: float = 1e-5, rare: int = 1,
) -> HmmLabeller:  # fmt: skip
    """The model of labelled data; `info["objective"]` becomes -sum_n w_n log P(x^n, y^n)."""
    emits = np.array([KINDS[line[:1]] & UNIGRAM > 0 for line in templates])
    tables = estimate(dataset, len(labels), np.asarray(stream), emits, smoothing, rare)
    model = make_labeller(tables, observations, stream, labels, templates, info)
    local = model.renumbered(dataset, observations)
    joint = blocks.score(model.lattices(local), len(local.weights), local.labels)
    model.info["objective"] = -dot(local.weights, joint)
    return model
