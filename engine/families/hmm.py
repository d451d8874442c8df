"""Hidden Markov models as labellers: chains whose weights are the logs of probabilities.

`engine.families.hmm_space` says which probabilities there are, `engine.families.hmm_training` how they are found.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import groupby

import numpy as np

from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.families.hmm_options import HmmOptions
from espalier.engine.families.hmm_space import Beside, HmmAmounts, HmmSpace, completed, normalised
from espalier.engine.families.hmm_tables import Stream, expected_visits, probabilities, sampled
from espalier.engine.families.hmm_training import HmmFit, HmmStart, emitting, fit_tables, space_of
from espalier.engine.families.labeller import Contribution, States
from espalier.engine.runtime.vectors import exp
from espalier.engine.weights.layout import find_slots

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
        learned = said.get("totals", [0.0] * len(self.labels)), [said.get("weight", 0.0), said.get("updates", 0)]
        for numbers, length in zip(learned, (len(self.labels), 2), strict=True):
            row = _numbers([numbers], (1, length))
            if row is None or not np.all((row >= 0.0) & (row <= np.finfo(np.float64).max)):
                raise ValueError(f"`totals`, `weight` and `updates` are not {length} numbers of at least 0")
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

    def states(self) -> States:
        """Its labels as states: where it starts, what follows what, where it ends."""
        y, n_labels, at = np.arange(len(self.labels)), len(self.labels), self._beside.transitions
        start = probabilities(self._weight("start", at, y))
        transitions = probabilities(self._weight("bigram", at, y[:, None] * n_labels + y))
        final = probabilities(self._weight("unigram", self._beside.final, y))
        totals = self.info["hmm"].get("totals")
        visits = expected_visits(start, transitions) if totals is None else np.array(totals, np.float64)
        return States(self.labels, start, transitions, final, visits)

    def streams(self) -> list[int]:
        """The templates whose observations it emits."""
        return np.flatnonzero(self._emits).tolist()

    def stream(self, template: int) -> Stream:
        """What its labels emit by a template, as one table."""
        beside = (self._beside.transitions, self._beside.final, *self._beside.unknown.tolist())
        which = np.setdiff1d(np.flatnonzero(self._stream_of == template), [x for x in beside if x >= 0])
        slots = np.append(which, self._beside.unknown[template])
        logs = self._unseen[template] + self._weight("unigram", slots[:, None], np.arange(len(self.labels)))
        return Stream(template, which, probabilities(logs))

    def symbols(self, stream: Stream) -> list[str]:
        """What the macros of a stream's template saw: its observations without the text before the first macro."""
        parts = self.parsed[stream.template].parts
        before = parts[0] if parts and isinstance(parts[0], str) else ""
        return [self.observations[x].removeprefix(before) for x in stream.observations.tolist()]

    def sample(self, n: int, seed: int = 0, longest: int = 1000) -> Dataset:
        """n sequences drawn from it, with their labels, in its own numbering: -1 is an unknown observation.

        One that goes on for `longest` tokens is cut off there. The same seed draws the same sequences.
        """
        return sampled(self.states(), self.stream, self.streams(), len(self.templates), n, seed, longest)

    def _weight(self, kind: str, x, code) -> np.ndarray:
        """Weights of observations, of a kind and code; zero where one has none."""
        x, code = np.broadcast_arrays(np.asarray(x, np.int64), np.asarray(code, np.int64))
        if not self.layout.family(kind)[0][-1] > self.layout.family(kind)[0][0]:
            return np.zeros(x.shape)
        slots = find_slots(self.layout, kind, np.maximum(x, 0).ravel(), code.ravel()).reshape(x.shape)
        return np.where((x >= 0) & (slots >= 0), self.theta[slots], 0.0)

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


def make_labeller(
    space: HmmSpace, probabilities: HmmAmounts, observations: list[str], labels: list[str], templates: list[str],
    info: dict,
) -> HmmLabeller:  # fmt: skip
    """The model of some probabilities; `observations` are those of the texts, by id."""
    names, streams, emits = _names_beside(observations, templates), len(templates), np.flatnonzero(space.emits)
    texts = [*observations, *names[:2], *(names[2 + k] for k in emits)]
    model = HmmLabeller.compact(space.layout, space.theta(probabilities), texts, labels, templates, info)
    of_text = dict(zip(texts, [*space.stream.tolist(), -1, -1, *emits.tolist()], strict=True))
    runs = [[k, len(list(run))] for k, run in groupby(of_text[text] for text in model.observations)]
    unseen = np.zeros((streams, len(labels)))
    unseen[space.emits] = space.log_unseen(probabilities)
    named = {"transitions": names[0], "final": names[1], "unknown": names[2:], "unseen": unseen.tolist()}
    model.info |= {"features": space.layout.size, "hmm": named | {"streams": runs}}
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
    options: HmmOptions | None = None,
) -> HmmLabeller:  # fmt: skip
    """The model of some data; `info["objective"]` becomes what its training minimises."""
    options = options or HmmOptions()
    space = space_of(dataset, len(labels), np.asarray(stream), emitting(templates), options)
    found = fit_tables(space, dataset, options)
    return labeller_of(found, observations, labels, templates, info)


def labeller_of(
    found: HmmFit, observations: list[str], labels: list[str], templates: list[str], info: dict
) -> HmmLabeller:
    """The model that a training has found."""
    model = make_labeller(found.space, found.probabilities, observations, labels, templates, info)
    model.info |= {
        "objective": found.objective, "stop_reason": found.stop_reason, "iterations": found.trace[-1]["iteration"]
    }  # fmt: skip
    model.info["hmm"] |= {"totals": found.totals.tolist(), "weight": found.weight, "updates": found.updates}
    return model


def start_from(model: HmmLabeller, space: HmmSpace, observations: list[str], labels: list[str]) -> HmmStart:
    """What an earlier model knows, in the space of a new one whose observations and labels have these texts.

    What it has not met has of each distribution what its unknown observation has; a label that it does not have begins
    with all alike.
    """
    known, label_of = ({text: i for i, text in enumerate(texts)} for texts in (model.observations, model.labels))
    if len(space.emits) != len(model.templates):
        raise EspalierError(
            f"the earlier model has {len(model.templates)} templates, the data have {len(space.emits)}: expected the "
            "same ones to go on from it"
        )
    named, n_old = model.info["hmm"], len(model.labels)
    there = np.array([text in label_of for text in labels])
    old = np.array([label_of.get(text, 0) for text in labels], np.int64)

    weight, beside, emits = model._weight, model._beside, np.flatnonzero(space.emits)
    unseen = model._unseen[emits][:, old]
    unknown = exp(unseen + weight("unigram", beside.unknown[emits][:, None], old))
    _, of, _, label = space.emissions.slots()
    old_ids = np.array([known.get(text, -1) for text in observations] or [-1], np.int64)[of]
    new_ones = np.bincount(space.stream[np.array([text not in known for text in observations], bool)],
                           minlength=len(space.emits))[emits]  # fmt: skip
    cells = np.where(
        old_ids >= 0, exp(unseen.ravel()[space.cell] + weight("unigram", old_ids, old[label])),
        (unknown / np.maximum(new_ones, 1)[:, None]).ravel()[space.cell],
    )  # fmt: skip
    alike = 1.0 / (len(labels) + 1)
    found = HmmAmounts(
        np.where(there, exp(weight("start", beside.transitions, old)), alike),
        np.where(there[:, None] & there, exp(weight("bigram", beside.transitions, old[:, None] * n_old + old)), alike),
        np.where(there, exp(weight("unigram", beside.final, old)), alike),
        np.where(there[label], cells, alike), np.where(there, space.rest * exp(unseen), alike), unknown,
    )  # fmt: skip
    totals = named.get("totals")
    if totals is not None:
        totals = np.where(there, np.array(totals, np.float64)[old], float(np.mean(totals)))
    return HmmStart(normalised(space, found), totals, float(named.get("weight", 0.0)), int(named.get("updates", 0)))
