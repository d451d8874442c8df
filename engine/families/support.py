"""Kernel machines as labellers: rows of training data that support labels, and weights of pairs of labels.

The score of label y at a position is the sum over the supporting rows p of (m + 1)^degree A[p, y], where m is how many
attributes row p and the position have in common.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa

from espalier.engine.chain.chain_lattice import lattice_blocks
from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families.labeller import Contribution, WeightLabeller
from espalier.engine.families.row_chain import RowChain, of_pairs, refuse_values
from espalier.engine.lattice.blocks import LatticeBlock
from espalier.engine.model import _layout
from espalier.engine.model_file import REMEDY, TEXT, WEIGHTS, Body, Tables, table_schema, texts_column, texts_of, whole
from espalier.engine.runtime.arrow_arrays import numbers_of
from espalier.engine.runtime.grouping import ends
from espalier.engine.similarity.overlaps import Overlaps
from espalier.engine.similarity.rows import AttributeRows, distinct_rows, selected
from espalier.engine.weights.layout import FAMILIES as KINDS_OF_WEIGHTS

MOST_DEGREE = 8  # beyond it (m + 1)^degree soon is no whole number of a double any more
SHOWN_ATTRIBUTES = 6  # of a row, where it is named


class Support(NamedTuple):
    """AttributeRows of training data and how much each supports each label."""

    rows: AttributeRows  # P of them, of observations of the model
    row: np.ndarray  # int32 [E]
    label: np.ndarray  # int32 [E]
    weight: np.ndarray  # float64 [E], by row and label
    sequence: np.ndarray  # int32 [P], the training sequence where it is first
    position: np.ndarray  # int32 [P], the place there


@dataclass
class SupportLabeller(WeightLabeller):
    """A trained model; `layout` and `theta` are of pairs of labels alone."""

    body: ClassVar[Body] = {
        "weights": WEIGHTS,
        "support": table_schema(("row", pa.int32()), ("label", TEXT), ("weight", pa.float64())),
        "rows": table_schema(("row", pa.int32()), ("observation", TEXT)),
        "places": table_schema(("sequence", pa.int32()), ("position", pa.int32())),
    }
    shows: ClassVar[str] = "weight"
    support: Support | None = None

    def check(self) -> None:
        degree = self.info.get("degree")
        if type(degree) is not int or not 1 <= degree <= MOST_DEGREE:
            raise ValueError(f"its degree is {degree!r}, expected a whole number from 1 to {MOST_DEGREE}")
        unigram = np.diff(self.layout.unigram_ptr)
        if unigram.any():
            raise ValueError("it has weights of single labels, expected rows that support them")

    @classmethod
    def of_rows(
        cls, chain: RowChain, amounts: np.ndarray, weights: np.ndarray, observations: list[str], labels: list[str],
        templates: list[str], info: dict,
    ) -> Self:  # fmt: skip
        """The model of A [P, Y] and of weights of pairs; only what is not zero is kept."""
        kept = np.flatnonzero(np.any(amounts != 0.0, axis=1))
        row, label = np.nonzero(amounts[kept])
        slots = np.flatnonzero(weights) + chain.cells
        kind, of_pair, previous, after = chain.layout.slots(slots)
        rows = selected(chain.rows, kept)
        pair = chain.pair_ids[of_pair - chain.rows.count]
        used = np.union1d(np.unique(rows.attribute), pair)
        layout = _layout(len(labels), len(used), kind, np.searchsorted(used, pair), previous, after)
        sequence, position = (of_each[kept] for of_each in chain.places())
        support = Support(
            AttributeRows(rows.ptr, np.searchsorted(used, rows.attribute).astype(np.int32)), row.astype(np.int32),
            label.astype(np.int32), np.ascontiguousarray(amounts[kept][row, label]), sequence, position,
        )  # fmt: skip
        names = [observations[i] for i in used.tolist()]
        return cls(list(labels), list(templates), names, layout, weights[weights != 0.0].copy(), dict(info), support)

    # The file.

    def tables(self) -> Tables:
        support = self.support
        owner = np.repeat(np.arange(support.rows.count, dtype=np.int32), np.diff(support.rows.ptr))
        columns = {
            "support": [support.row, texts_column(support.label, self.labels), support.weight],
            "rows": [owner, texts_column(support.rows.attribute, self.observations)],
            "places": [support.sequence, support.position],
        }
        made = {name: pa.Table.from_arrays([pa.array(c) for c in arrays], schema=self.body[name])
                for name, arrays in columns.items()}  # fmt: skip
        return super().tables() | made

    @classmethod
    def of_tables(cls, labels: list[str], templates: list[str], info: dict, tables: Tables, path: Path) -> Self:
        model = super().of_tables(labels, templates, info, tables, path)
        try:
            model.support = _support_of(tables, model.labels, model.observations)
        except ValueError as error:
            raise EspalierError(f"{path}: {error}; {REMEDY}") from None
        return model

    # What it says of data.

    @property
    def degree(self) -> int:
        return self.info["degree"]

    @cached_property
    def amounts(self) -> np.ndarray:
        """A, float64 [P, Y]."""
        amounts = np.zeros((self.support.rows.count, len(self.labels)))
        amounts[self.support.row, self.support.label] = self.support.weight
        return amounts

    @cached_property
    def similar(self) -> Overlaps:
        return Overlaps(self.support.rows, len(self.observations), self.degree)

    @cached_property
    def _attributes(self) -> np.ndarray:
        """Which observations are attributes of supporting rows, bool [V]."""
        return np.bincount(self.support.rows.attribute, minlength=len(self.observations)) > 0

    def lattices(self, data: Dataset) -> Iterator[LatticeBlock]:
        refuse_values(data, self.family)
        found = distinct_rows(data.observations, self._attributes)
        scores = self.similar.product(self.amounts, found.rows)
        for block in lattice_blocks(of_pairs(data, self.layout), self.layout, self.theta):
            block.lattice.here[:] += scores[found.of_position[block.positions]]
            yield block

    # What it is made of, for people.

    def contributions(
        self, row: np.ndarray, before: int, label: int, valued: Iterable[tuple[int, float]] = ()
    ) -> Iterator[tuple[Contribution, float]]:
        """Supporting rows are numbered behind the observations."""
        found = distinct_rows(row[None, :], self._attributes)
        gains = self.similar.columns(found.rows)[0] * self.amounts[:, label]
        for p in np.flatnonzero(gains).tolist():
            yield Contribution("unigram", len(self.observations) + p, -1, label), float(gains[p])
        yield from super().contributions(row, before, label, valued)

    def text_of(self, observation: int) -> str:
        p = observation - len(self.observations)
        if p < 0:
            return self.observations[observation]
        rows = self.support.rows
        texts = [self.observations[a] for a in rows.attribute[rows.ptr[p] : rows.ptr[p + 1]].tolist()]
        more = ", …" if len(texts) > SHOWN_ATTRIBUTES else ""
        place = f"training sequence {self.support.sequence[p] + 1:,}, token {self.support.position[p] + 1:,}"
        return f"like {place} ({', '.join(texts[:SHOWN_ATTRIBUTES])}{more})"

    def listed(self, label: int | None, count: int) -> list[tuple[Contribution, float]]:
        support, pairs = self.support, super().listed(label, count)
        mine = np.arange(len(support.row)) if label is None else np.flatnonzero(support.label == label)
        top = mine[np.argsort(-np.abs(support.weight[mine]), kind="stable")[:count]]
        size = len(self.observations)
        rows = [(Contribution("unigram", size + int(support.row[e]), -1, int(support.label[e])),
                 float(support.weight[e])) for e in top]  # fmt: skip
        return sorted(rows + pairs, key=lambda one: -abs(one[1]))[:count]

    def shown_table(self) -> pa.Table:
        """The supporting rows as observations, then the weights of pairs."""
        pairs, support = super().shown_table(), self.support
        texts = [self.text_of(len(self.observations) + p) for p in range(support.rows.count)]
        rows = pa.table({
            "family": texts_column(np.zeros(len(support.row), np.int32), list(KINDS_OF_WEIGHTS)),
            "observation": pa.array(texts, pa.string()).take(pa.array(support.row)).dictionary_encode(),
            "previous": texts_column(np.full(len(support.row), -1), self.labels),
            "label": texts_column(support.label, self.labels),
            "weight": pa.array(support.weight, pa.float64()),
        })  # fmt: skip
        return pa.concat_tables([rows, pairs.replace_schema_metadata(None)]).replace_schema_metadata(
            pairs.schema.metadata
        )

    def sizes(self) -> dict[str, int]:
        """What single labels have is support of rows."""
        return super().sizes() | {"active_unigram": len(self.support.row)}


def _support_of(tables: Tables, labels: list[str], observations: list[str]) -> Support:
    """The supporting rows of a file; ValueError says what is wrong."""
    sequence, position = (numbers_of(whole(tables["places"], name), np.int32) for name in ("sequence", "position"))
    n_rows = len(sequence)
    if np.any(sequence < 0) or np.any(position < 0):
        raise ValueError("a supporting row has no place")
    row, weight = (numbers_of(whole(tables["support"], name), kind)
                   for name, kind in (("row", np.int32), ("weight", np.float64)))  # fmt: skip
    label, label_texts = texts_of(tables["support"], "label")
    owner = numbers_of(whole(tables["rows"], "row"), np.int32)
    attribute, texts = texts_of(tables["rows"], "observation")
    if label_texts != labels or texts != observations:
        raise ValueError("the labels or observations of its supporting rows are not those of its weights")
    for name, rows, codes in (("support", row, label), ("rows", owner, attribute)):
        keys = rows.astype(np.int64) * (max(len(labels), len(observations)) + 1) + codes
        if np.any(np.diff(keys) <= 0) or np.any((rows < 0) | (rows >= n_rows)):
            raise ValueError(f"its table {name} is not in order, or speaks of rows that are not there")
    ptr = ends(np.bincount(owner, minlength=n_rows))
    plain = (np.array(a) for a in (row, label.astype(np.int32), weight, sequence, position))
    return Support(AttributeRows(ptr, np.array(attribute, np.int32)), *plain)
