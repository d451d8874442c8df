"""Hidden Markov models as text: `HMM n m`, then numbers in rows (COURSE, practical on citations).

n states, the last of which is the final one, and m symbols. Line 2 has the n - 1 probabilities of the first state; then
come n - 1 rows of n transition probabilities, the last column that of the final state; then m lines of n emission
probabilities, the last of them 0, and the symbol. Words that are none of the symbols are the symbol `<unknown>`.
"""

import math
import re
from typing import NamedTuple

import numpy as np

from espalier.engine.data.dataset import check_label_count
from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.families.hmm import HmmLabeller, make_labeller
from espalier.engine.families.hmm_space import NO_UNSEEN, HmmAmounts, HmmSpace
from espalier.engine.families.hmm_tables import Stream
from espalier.engine.importing.text_models import text_of
from espalier.engine.runtime.vectors import log
from espalier.engine.weights.layout import _assemble

TEMPLATE = "U:%x[0,0]"
UNKNOWN = "<unknown>"
ROUNDED = 1e-6  # how far the sum of printed probabilities may be from one
BLANKS = " \t"


class _Tables(NamedTuple):
    """What a file says, of Y states and m symbols."""

    start: np.ndarray  # float64 [Y]
    onward: np.ndarray  # float64 [Y, Y + 1], the last column is the final state
    emissions: np.ndarray  # float64 [m, Y]
    symbols: list[str]


def read_hmm(data: bytes, name: str, labels: list[str] | None = None) -> HmmLabeller:
    """The model that the bytes of a file are; `name` stands in errors, `labels` are the names of the states."""
    found = _HmmText(data, name).tables()
    n_states = len(found.start)
    names = [str(y) for y in range(n_states)] if labels is None else labels
    if len(names) != n_states:
        raise EspalierError(
            f"{name}: {len(names):,} names of labels, the model has {n_states:,} states beside the final one: expected "
            "a name for each"
        )
    known = [m for m, symbol in enumerate(found.symbols) if symbol != UNKNOWN]
    unknown = [found.emissions[m] for m, symbol in enumerate(found.symbols) if symbol == UNKNOWN]
    unknown = np.array(unknown or [np.zeros(n_states)])
    space, cells = _space(found.emissions[known])
    amounts = HmmAmounts(
        found.start, found.onward[:, :-1], found.onward[:, -1], cells, np.zeros((1, n_states)), unknown
    )  # fmt: skip
    observations = [TEMPLATE.replace("%x[0,0]", found.symbols[m]) for m in known]
    model = make_labeller(space, amounts, observations, names, [TEMPLATE], {"imported_from": "HMM text"})
    model.info["hmm"]["totals"] = model.states().visits.tolist()  # so that a training can go on from it
    return model


def _space(emissions: np.ndarray) -> tuple[HmmSpace, np.ndarray]:
    """Every symbol has a probability of its own with every state, so that none is shared; these as cells."""
    n_symbols, n_states = emissions.shape
    nothing = np.zeros(n_symbols, np.int64), np.empty(0, np.int32)
    codes = np.tile(np.arange(n_states, dtype=np.int32), n_symbols)
    layout = _assemble(n_states, [(np.full(n_symbols, n_states), codes), nothing, nothing])
    cells = emissions.ravel()
    lost = log(np.maximum(cells, 1e-300)) == NO_UNSEEN  # its weight would be zero, which a model file does not keep
    return HmmSpace(layout, np.zeros(n_symbols, np.int64), np.array([True])), np.where(
        lost, np.nextafter(cells, 0.0), cells
    )


class _HmmText:
    """Goes through the lines once; whatever is not as expected is an error with its line."""

    def __init__(self, data: bytes, name: str):
        self.name = name
        self.lines = text_of(data, "the text", name).split("\n")
        while len(self.lines) > 1 and not self.lines[-1].strip():
            self.lines.pop()
        self.lines = [line.rstrip("\r" + BLANKS) for line in self.lines]
        self.size = len(data)

    def tables(self) -> _Tables:
        n, n_symbols = self._sizes()
        start = np.array(self._numbers(2, n - 1, "the start probabilities"))
        self._check_sum(start, "line 2: the start probabilities")
        onward = np.array([self._numbers(3 + y, n, f"the transitions of state {y}") for y in range(n - 1)])
        for y, row in enumerate(onward):
            self._check_sum(row, f"line {3 + y}: the transition probabilities of state {y}")
        emissions, symbols = np.empty((n_symbols, n)), []
        for m in range(n_symbols):
            number = n + 2 + m
            emissions[m] = self._numbers(number, n, "the emissions of a symbol", symbol=True)
            symbols.append(_fields(self.lines[number - 1], n)[n])
            if emissions[m, -1] != 0.0:
                raise self.broken(
                    f"line {number}: the final state emits {quoted(symbols[-1])} with {emissions[m, -1]:g}, expected 0 "
                    "in the last column"
                )
        self._check_symbols(symbols, n + 2)
        for y in range(n - 1):
            of = f"lines {n + 2} to {n + 1 + n_symbols}: column {y + 1}, the emission probabilities of state {y},"
            if not emissions[:, y].any():
                raise self.broken(f"{of} is 0 throughout, expected a state to emit something")
            self._check_sum(emissions[:, y], of)
        return _Tables(start, onward, emissions[:, :-1], symbols)

    def _sizes(self) -> tuple[int, int]:
        """How many states and symbols there are; the file must be long enough for them before anything is made."""
        head = self.lines[0].split()
        if len(head) != 3 or head[0] != "HMM" or not all(_is_count(text) for text in head[1:]):
            raise self.broken(f"line 1 is {quoted(self.lines[0])}, expected `HMM n m` with the sizes n and m")
        n, n_symbols = int(head[1]), int(head[2])
        if n < 2 or n_symbols < 1:
            raise self.broken(
                f"line 1 says {n} states and {n_symbols} symbols, expected 2 states at least, the final one among "
                "them, and 1 symbol"
            )
        numbers = (n - 1) * (n + 1) + n_symbols * n
        if 2 * numbers > self.size:  # a digit and a blank each
            raise self.broken(
                f"line 1 says {n:,} states and {n_symbols:,} symbols, which are {numbers:,} numbers: expected them in "
                f"the {self.size:,} bytes of the file"
            )
        check_label_count(n - 1, self.name)
        if len(self.lines) != n + 1 + n_symbols:
            raise self.broken(
                f"it has {len(self.lines):,} lines, expected {n + 1 + n_symbols:,}: the head, the start, {n - 1:,} of "
                f"transitions and {n_symbols:,} of emissions"
            )
        return n, n_symbols

    def _numbers(self, number: int, count: int, what: str, symbol: bool = False) -> list[float]:
        """The probabilities of a line."""
        fields = _fields(self.lines[number - 1], count if symbol else 0)
        if len(fields) != count + symbol:
            more = " and the symbol" if symbol else ""
            raise self.broken(
                f"line {number} has {len(fields):,} fields, expected {count:,} numbers{more} for {what}"
            )
        return [self._probability(text, number) for text in fields[:count]]

    def _probability(self, text: str, number: int) -> float:
        try:
            value = float(text) if "_" not in text and text.isascii() else math.nan
        except ValueError:
            value = math.nan
        if not 0.0 <= value <= 1.0 + ROUNDED:
            raise self.broken(f"line {number} has {quoted(text)}, expected a probability from 0 to 1")
        return value

    def _check_sum(self, row: np.ndarray, what: str) -> None:
        total = math.fsum(row.tolist())
        if abs(total - 1.0) > ROUNDED:
            raise self.broken(f"{what} add up to {total:.9g}, expected 1 (to {ROUNDED:g})")

    def _check_symbols(self, symbols: list[str], first_line: int) -> None:
        seen: dict[str, int] = {}
        for number, symbol in enumerate(symbols, first_line):
            if symbol in seen:
                raise self.broken(
                    f"line {number} has the symbol {quoted(symbol)}, which is that of line {seen[symbol]}, too: "
                    "expected each once"
                )
            seen[symbol] = number
        if list(seen) == [UNKNOWN]:
            raise self.broken(f"line {first_line} is the only symbol and stands for unknown ones, expected others")

    def broken(self, reason: str) -> EspalierError:
        return EspalierError(f"{self.name}: {reason}; mend the file or write it again")


def _fields(line: str, most: int) -> list[str]:
    """What stands between blanks, cut at most so many times (0: everywhere): a symbol may have blanks in it."""
    return re.split(f"[{BLANKS}]+", line.strip(BLANKS), maxsplit=most)


def _is_count(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) <= 18


def write_hmm(model: HmmLabeller) -> str:
    """The text of a model with one stream; refuses what the format cannot hold."""
    stream, states = only_stream(model), model.states()
    symbols = model.symbols(stream)
    for symbol in symbols:
        if symbol in ("", UNKNOWN) or symbol != symbol.strip(BLANKS + "\r") or "\n" in symbol:
            raise EspalierError(
                f"the model has the symbol {quoted(symbol)}, expected symbols that can stand at the end of a line and "
                f"are not {UNKNOWN}, which stands for unknown words: train it on other tokens to write it as text"
            )
    onward = np.column_stack([states.transitions, states.final])
    rows = [states.start.tolist(), *onward.tolist()]
    lines = [f"HMM {len(states.names) + 1} {len(symbols) + 1}", *(" ".join(map(repr, row)) for row in rows)]
    for row, symbol in zip(stream.emissions.tolist(), [*symbols, UNKNOWN], strict=True):
        lines.append(" ".join([*map(repr, row), "0.0", symbol]))
    return "\n".join(lines) + "\n"


def only_stream(model: HmmLabeller) -> Stream:
    """What it emits, if that is one thing at each position."""
    streams = model.streams()
    if len(streams) != 1:
        lines = ", ".join(model.templates[k] for k in streams)
        raise EspalierError(
            f"the model emits {len(streams)} observations at a position ({brief(lines)}), the text format holds one: "
            f"expected a model with the templates {TEMPLATE} and B"
        )
    return model.stream(streams[0])


def read_names(data: bytes, name: str) -> list[str]:
    """Names of states, one a line."""
    names = [line.strip() for line in text_of(data, "the text", name).removesuffix("\n").split("\n")]
    for number, text in enumerate(names, 1):
        if not text or text in names[: number - 1]:
            what = f"the name {quoted(text)} for the second time" if text else "no name"
            raise EspalierError(f"line {number} of {name} has {what}: expected a name of its own for each state")
    return names
