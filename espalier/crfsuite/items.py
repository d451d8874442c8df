"""Items and their attributes, as both packages take them, and the data sets that are made of them."""

import math
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from espalier.engine.data.dataset import Dataset, make_dataset
from espalier.engine.errors import EspalierError, brief, quoted

BIGRAM = "B"  # the observation at every position that transitions belong to
PREFIX = "U:"  # before every attribute, as in `engine.fitting.encoding`
Attribute = str | tuple[str, float]  # a name alone where its value is 1
Text = str | bytes
Item = Iterable[Text]  # a dict, whose names are its keys, or the names themselves
# What users hand over is not said more closely: to a type checker a list of unlike dicts or lists is one of `object`.
Items = Iterable[Any]  # the items of a sequence, each an `Item`
Sequences = Iterable[Any]  # each of them `Items`
Scalar = TypeVar("Scalar", bound=np.generic)


def attributes_of(item: Item) -> list[Attribute]:
    """The attributes of an item as python-crfsuite reads it. One whose value is 0 counts as seen with its label.

    A dict has texts ("name:text"), numbers, True and False, or further items, whose attributes are put behind
    "name:". Anything else holds the names themselves.
    """
    if not isinstance(item, dict):
        return [text_of(key) for key in item]
    found: list[Attribute] = []
    for key, value in item.items():
        name = text_of(key)
        if isinstance(value, str | bytes):
            found.append(f"{name}:{text_of(value)}")
        elif isinstance(value, dict | list | set):
            inner = attributes_of(value)
            found += [f"{name}:{one}" if isinstance(one, str) else (f"{name}:{one[0]}", one[1]) for one in inner]
        else:
            number = _number(name, value)
            found.append(name if number == 1.0 else (name, number))
    return found


def text_of(key: object) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        return key.decode("utf-8")
    raise EspalierError(f"the attribute {brief(key)} is {kind_of_value(key)}: expected a text")


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise EspalierError(
            f"the attribute {quoted(name)} has the value {brief(value)}, {kind_of_value(value)}: expected a text, a "
            "number, True, False, or a dict, list or set of attributes"
        ) from None
    if not math.isfinite(number):
        raise EspalierError(f"the attribute {quoted(name)} has the value {number}: expected a finite number")
    return number


def kind_of_value(value: object) -> str:
    return f"a {type(value).__name__}" if value is not None else "nothing"


class ItemSequence:
    """The items of a sequence with their attributes worked out, for those who hand it over more than once."""

    def __init__(self, pyseq: Items) -> None:
        self._items: list[list[Attribute]] = (
            pyseq._items if isinstance(pyseq, ItemSequence) else [attributes_of(item) for item in pyseq]
        )

    def items(self) -> list[dict[str, float]]:
        """Attributes and their values, a dict for each item."""
        return [
            dict((one, 1.0) if isinstance(one, str) else one for one in attributes) for attributes in self._items
        ]

    def __iter__(self) -> Iterator[list[Attribute]]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<ItemSequence of size {len(self)}>"


class Rows:
    """Numbers of attributes, item after item, those with values apart: what becomes the observations of a data set."""

    def __init__(self) -> None:
        self.ids, self.counts, self.lengths = array("i"), array("i"), array("q")
        self.valued, self.valued_counts, self.values = array("i"), array("i"), array("d")

    def add(self, sequence: ItemSequence, ids: dict[str, int], grows: bool = False) -> None:
        """Append a sequence; attributes that are not known are left out, or numbered where it `grows`."""
        number: Callable[[str], int | None] = growing(ids) if grows else ids.get
        for attributes in sequence:
            plain = [i for one in attributes if isinstance(one, str) and (i := number(one)) is not None]
            others = [one for one in attributes if not isinstance(one, str)]
            pairs = [(i, value) for name, value in others if (i := number(name)) is not None]
            self.ids.extend(plain)
            self.counts.append(len(plain))
            self.valued.extend(i for i, _ in pairs)
            self.values.extend(value for _, value in pairs)
            self.valued_counts.append(len(pairs))
        self.lengths.append(len(sequence))

    def dataset(self, everywhere: list[int], labels: npt.NDArray[np.int32] | None = None, shift: int = 0) -> Dataset:
        """The data set of all sequences; observations `everywhere` stand at each position, `shift` is added to ids."""
        plain = _filled(np.array(self.ids, np.int32) + np.int32(shift), self.counts, -1, len(everywhere))
        plain[:, : len(everywhere)] = everywhere
        values = _filled(np.array(self.values), self.valued_counts, 0.0)
        offsets = np.cumsum([0, *self.lengths])
        return make_dataset(plain, labels, offsets, valued=self.with_values(shift), values=values)

    def with_values(self, shift: int = 0) -> npt.NDArray[np.int32]:
        """The numbers of the attributes with values, those that are 0 among them; -1 fills up."""
        return _filled(np.array(self.valued, np.int32) + np.int32(shift), self.valued_counts, -1)


def _filled(values: npt.NDArray[Scalar], many: "array[int]", empty: float, first: int = 0) -> npt.NDArray[Scalar]:
    """A row for each item with its values, so `many`, from column `first` on, the rest `empty`."""
    counts = np.array(many, np.int64)
    table = np.full((len(counts), first + int(counts.max(initial=0))), empty, values.dtype)
    row = np.repeat(np.arange(len(counts)), counts)
    table[row, first + np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)] = values
    return table


def growing(ids: dict[str, int]) -> Callable[[str], int]:
    return lambda name: ids.setdefault(name, len(ids))


def label_text(label: object) -> str:
    if not isinstance(label, str | bytes):
        raise EspalierError(f"the label {brief(label)} is {kind_of_value(label)}: expected a text")
    return text_of(label)
