"""A trained model of any family: it labels data and says what it is sure of.

Data are in the numbering of the model (`engine.features`). Functions that take `only` look at some labellings alone:
`allowed` is bool [T, Y], or "labels" for what the data set's own labels allow, `transitions` what a scheme allows.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError, quoted
from espalier.engine.families import FAMILIES, require
from espalier.engine.labels.trees import Tree
from espalier.engine.lattice import blocks
from espalier.engine.lattice.blocks import LatticeBlock
from espalier.engine.lattice.decode import NBest
from espalier.engine.lattice.limits import Limits, make_limits
from espalier.engine.model import Model, Stored
from espalier.engine.weights.layout import FAMILIES as KINDS_OF_WEIGHTS
from espalier.engine.weights.layout import SPAN

DECODERS = ("viterbi", "posterior")
DEFAULT = DECODERS[0]


class Contribution(NamedTuple):
    """Where a part of a score comes from: an observation and a label, or two labels in a row."""

    kind: str  # unigram, start, bigram or trigram
    observation: int
    previous: int  # the label before, of a trigram y'' Y + y'; -1 where it has none
    label: int
    value: float = 1.0  # of the observation


class Round(NamedTuple):
    """A weight that moved while a model was made, and by how much the loss fell by it."""

    family: str  # unigram, start or bigram
    observation: str
    previous: str | None  # the label before
    label: str
    step: float
    z: float  # the loss after it, as a share of the loss before


class States(NamedTuple):
    """The labels of a model as states of an automaton."""

    names: list[str]
    start: np.ndarray  # float64 [Y]
    transitions: np.ndarray  # float64 [Y, Y], to y from y' at [y', y]
    final: np.ndarray  # float64 [Y], of the end after y
    visits: np.ndarray  # float64 [Y], how often each is expected in a sequence


def check_whole(**numbers: tuple[int, int]) -> None:
    """Refuse what is no whole number, or smaller than its least value."""
    for name, (value, least) in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise EspalierError(f"{name} is {value!r}: expected a whole number of at least {least}")


class Predictor(Stored):
    """A trained model of any family, whatever it says of a sequence: a label for each token, or a tree over them."""

    family: ClassVar[str]
    linear: ClassVar[bool] = True  # whether the score of a labelling is the sum of its weights
    shows: ClassVar[str] = "weight"  # what the values of `shown` are
    unsaid: ClassVar[frozenset[str]] = frozenset()  # of its info what is for itself, not for people

    def check(self) -> None:
        """Refuse a file whose parts do not fit together beyond what every model has: ValueError says what is wrong."""

    @property
    def can(self) -> frozenset[str]:
        return FAMILIES[self.family].can

    def require(self, ability: str) -> None:
        """Refuse what its family cannot do."""
        require(self.family, ability)

    def decoder(self, asked: str | None = None) -> str:
        """The name of its decoder, or of the one that was asked for.

        Viterbi finds the likeliest labelling as a whole, so it has the fewest wrong sequences to be expected; posterior
        decoding the fewest wrong labels. One place decides: what the model file says of itself (`evaluate.decode`
        when it was trained), unless someone asks for another.
        """
        name = asked or self.info.get("decode") or DEFAULT
        if name not in DECODERS:
            raise EspalierError(f"decoder {quoted(str(name))} is not known: choose one of {', '.join(DECODERS)}")
        return name

    @abstractmethod
    def decoded(self, data: Dataset, decoder: str | None = None) -> np.ndarray:
        """What it says of each token, [T]; `texts_of` has it in words."""

    @abstractmethod
    def texts_of(self, answers: np.ndarray) -> list[str]:
        """What was `decoded` as texts of labels."""

    def rounds(self) -> list[Round]:
        """The rounds that made it, in order; none of a model that was not made weight by weight."""
        return []

    def states(self) -> States | None:
        """Its labels as states of an automaton, None for a model that is none."""
        return None

    def sample(self, n: int, seed: int = 0, longest: int = 1000) -> Dataset | list[Tree]:
        """n sequences drawn from it, with their labels, or n trees, where a model can."""
        self.require("sample")
        raise NotImplementedError

    @abstractmethod
    def shown_table(self) -> pa.Table:
        """What a listing shows of it, as a table with the columns of weights."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """How much it holds, by kinds of weights, as trace and report count it."""


class Labeller(Predictor):
    """What a trained model says of each token. `WeightLabeller` is one of weights on a layout."""

    def decoded(self, data: Dataset, decoder: str | None = None, **only) -> np.ndarray:
        """The labels that its decoder, or the one that is asked for, says, int32 [T]."""
        return (self.best if self.decoder(decoder) == "viterbi" else self.posterior)(data, **only)

    def texts_of(self, answers: np.ndarray) -> list[str]:
        return [self.labels[y] for y in answers.tolist()]

    @abstractmethod
    def lattices(self, data: Dataset) -> Iterator[LatticeBlock]:
        """The scores of runs of sequences, in order: p(y | x) is proportional to the exponential of a labelling's."""

    def prepared(self, data: Dataset) -> Dataset:
        """The data with all that its weights speak of: its own observations may be more than those of the texts."""
        return data

    # What the lattices say. A family with faster ways of its own takes them instead.

    def best(self, data: Dataset, **only) -> np.ndarray:
        """The likeliest labelling of each sequence, int32 [T]."""
        return blocks.best(self.lattices(data), len(data.labels), self._limits(data, only))

    def posterior(self, data: Dataset, **only) -> np.ndarray:
        """The likeliest label of each position by itself, int32 [T]; among equals the smallest."""
        self.require("probability")
        return self.marginals(data, **only).argmax(axis=1).astype(np.int32)

    def marginals(self, data: Dataset, **only) -> np.ndarray:
        """p(y_t = y | x), float64 [T, Y]."""
        self.require("probability")
        shape = len(data.labels), len(self.labels)
        return blocks.marginals(self.lattices(data), shape, self._limits(data, only))

    def nbest(self, data: Dataset, n: int, **only) -> NBest:
        """The n likeliest labellings of each sequence, best first."""
        self.require("nbest")
        if n < 1:
            raise EspalierError(f"n is {n}: expected at least 1 labelling")
        return blocks.nbest(self.lattices(data), len(data.weights), len(data.labels), n, self._limits(data, only))

    def log_partition(self, data: Dataset, **only) -> np.ndarray:
        """log of the sum of exp(score) over the labellings of each sequence, float64 [N]."""
        return blocks.log_partition(self.lattices(data), len(data.weights), self._limits(data, only))

    def log_probability(self, data: Dataset, labels: np.ndarray | None = None, **only) -> np.ndarray:
        """log p(y | x) of labellings, the data's own by default, float64 [N]; `only` restricts the other labellings."""
        self.require("probability")
        labels = data.labels if labels is None else labels
        return blocks.score(self.lattices(data), len(data.weights), labels) - self.log_partition(data, **only)

    def log_likelihood(self, data: Dataset) -> np.ndarray:
        """log P(x) of each sequence, float64 [N]: of a model of inputs the sum over all labellings."""
        self.require("likelihood")
        return self.log_partition(data)

    def scores(self, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
        """Scores of positions [T, Y] and of the pairs that end there [T, Y, Y], zero at first positions."""
        return blocks.score_arrays(self.lattices(data), (len(data.labels), len(self.labels)))

    def _limits(self, data: Dataset, only: dict) -> Limits | None:
        limits = make_limits(data, len(self.labels), **only)
        if limits is not None:
            self.require("limits")
        return limits

    # What it is made of, for people.

    @abstractmethod
    def contributions(
        self, row: np.ndarray, before: int, label: int, valued: Iterable[tuple[int, float]] = (), earlier: int = -1
    ) -> Iterator[tuple[Contribution, float]]:
        """What the score of `label` at a position is the sum of; `row` is of `prepared` data, `before` -1 at first.

        `valued` are observations with their values; `earlier` is the label before the one before, -1 for none.
        """

    def text_of(self, observation: int) -> str:
        """The text of a contribution's observation."""
        return self.observations[observation]

    @property
    def second_order(self) -> bool:
        """Whether it has weights for triples of labels."""
        return False

    def labels_before(self, previous: int, kind: int) -> list[str]:
        """The labels that a weight has before its own, by what `Layout.slots` says: none, one, or two."""
        if previous < 0:
            return []
        n_labels = len(self.labels)
        two = kind == KINDS_OF_WEIGHTS.index("trigram")
        return [self.labels[y] for y in (divmod(int(previous), n_labels) if two else (int(previous),))]

    @abstractmethod
    def listed(self, label: int | None, count: int) -> list[tuple[Contribution, float]]:
        """What is `shown` of largest size with its values, of one label or of all."""


class WeightLabeller(Labeller, Model):
    """Weights in words (`Model`) and what they say of data."""

    def contributions(
        self, row: np.ndarray, before: int, label: int, valued: Iterable[tuple[int, float]] = (), earlier: int = -1
    ) -> Iterator[tuple[Contribution, float]]:
        for x, value in valued:
            slot = self.slot("unigram", x, label) if x >= 0 else -1
            if slot >= 0:
                yield Contribution("unigram", x, -1, label, value), value * float(self.theta[slot])
        n_labels = len(self.labels)
        codes = [("unigram", label), ("start", label) if before < 0 else ("bigram", before * n_labels + label)]
        if earlier >= 0:
            codes.append(("trigram", (earlier * n_labels + before) * n_labels + label))
        for x in row.tolist():
            for kind, code in codes if x >= 0 else ():
                slot = self.slot(kind, x, code)
                if slot >= 0:
                    previous = code // n_labels if SPAN[kind] > 1 else -1
                    yield Contribution(kind, x, previous, label), float(self.theta[slot])

    @property
    def second_order(self) -> bool:
        return self.layout.second_order

    def slot(self, kind: str, x: int, code: int) -> int:
        """The slot of this code in the run of observation x, -1 if it has none; each is looked up once."""
        key = kind, x, code
        if key not in self._slots:
            codes = self.layout.run_codes(kind, x)
            at = int(np.searchsorted(codes, code))  # codes are sorted in a run
            there = at < len(codes) and codes[at] == code
            self._slots[key] = int(self.layout.family(kind)[0][x]) + at if there else -1
        return self._slots[key]

    @cached_property
    def _slots(self) -> dict[tuple[str, int, int], int]:
        return {}

    def shown(self) -> tuple[np.ndarray, np.ndarray]:
        """(slots, a value each): what a listing shows of its weights, by default all of them as they are."""
        return np.arange(len(self.theta)), self.theta

    def listed(self, label: int | None, count: int) -> list[tuple[Contribution, float]]:
        slots, values = self.shown()
        if label is not None:
            mine = np.flatnonzero(self.layout.slots(slots)[3] == label)
            slots, values = slots[mine], values[mine]
        order = np.argsort(-np.abs(values), kind="stable")[:count]
        slots, values = slots[order], values[order]
        back = np.argsort(slots, kind="stable")
        columns = [column[np.argsort(back)].tolist() for column in self.layout.slots(slots[back])]
        return [
            (Contribution(KINDS_OF_WEIGHTS[kind], *where), value)
            for value, kind, *where in zip(values.tolist(), *columns, strict=True)
        ]

    def shown_table(self) -> pa.Table:
        slots, values = self.shown()
        table = self.table().take(pa.array(slots))
        return table.set_column(table.schema.get_field_index("weight"), "weight", pa.array(values, pa.float64()))

    def sizes(self) -> dict[str, int]:
        ends, kinds = self.layout.ends(), self.layout.families
        return {f"active_{name}": b - a for name, a, b in zip(kinds, ends, ends[1:], strict=False)}
