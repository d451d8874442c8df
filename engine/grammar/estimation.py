"""Probabilities of a grammar from strings (COURSE 4.2, 4.5): what is counted, and when the grammar is renewed.

`io`   over all trees by their posterior probabilities (inside-outside): log P of the strings never falls;
`vs`   over the likeliest tree of each string (Viterbi score);
`kvs`  over the k likeliest ones by P(t) / sum of P.

With brackets only trees that cross none of them count. Strings that the grammar cannot derive are skipped and counted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.grammar.best import Climber
from espalier.engine.grammar.charts import check_length
from espalier.engine.grammar.expected import Machine, make_room, pieces_of
from espalier.engine.grammar.kbest import Chooser
from espalier.engine.grammar.rules import Grammar, normalised, pruned
from espalier.engine.grammar.strings import Strings, merged, select, unbracketed
from espalier.engine.optimise.monitor import Monitor
from espalier.engine.optimise.stepwise import ForgettingMean, in_order
from espalier.engine.runtime import threads

TRAININGS = ("io", "vs", "kvs")


@dataclass(frozen=True)
class GrammarOptions:
    training: str = "io"
    brackets: bool = False  # whether trees have to keep to those of the strings
    k: int = 128  # of kvs
    max_iterations: int = 100
    tolerance: float = 1e-4  # as of every training: of the objective, over a third of the iterations
    smoothing: float = 0.0  # added to the count of each rule
    stepwise: bool = False
    alpha: float = 0.7
    batch: int = 50
    order: str = "random"
    seed: int = 0


class GrammarFit(NamedTuple):
    grammar: Grammar
    objective: float  # minus the log-probability of the strings before the last update
    reason: str  # why it ended, as in `engine.optimise.monitor`
    history: list[dict]
    skipped: float  # weight of the strings that cannot be derived


Counted = tuple[np.ndarray, np.ndarray]  # counts of the rules, log-probability of each string
Count = Callable[[Grammar, Strings, GrammarOptions], Counted]


def counter(grammar: Grammar, data: Strings, options: GrammarOptions) -> Callable[[int, int], Counted]:
    """What counts a run of the strings, from one number to another."""
    longest, log_p = int(data.lengths.max()), np.full(data.total, -np.inf)
    if options.training == "io":
        machine = Machine(grammar)
        check_length(longest, machine.tables.wide, machine.memory)
        return lambda lo, hi: (machine.piece(data, lo, hi, True, log_p), log_p[lo:hi])
    if options.training == "vs":
        climber = Climber(grammar)
        return lambda lo, hi: (climber.piece(data, lo, hi, log_p), log_p[lo:hi])
    if options.training == "kvs":
        chooser = Chooser(grammar)
        chooser.check_several(options.k, longest)
        return lambda lo, hi: (chooser.piece_of_several(data, lo, hi, options.k, log_p), log_p[lo:hi])
    raise EspalierError(f"training is {options.training!r}: expected one of {', '.join(TRAININGS)}")


def count(grammar: Grammar, data: Strings, options: GrammarOptions) -> Counted:
    """All of the strings, piece by piece on the threads of this process."""
    one = counter(grammar, data, options)
    return summed(threads.run(lambda piece: one(*piece), pieces_of(data)))


def summed(parts: Sequence[Counted]) -> Counted:
    """The counts of pieces added in their order."""
    total = np.zeros_like(parts[0][0], dtype=np.float64)
    for counts, _ in parts:
        total += counts
    return total, np.concatenate([log_p for _, log_p in parts])


def prepared(data: Strings, options: GrammarOptions) -> Strings:
    """What is counted of the strings: without brackets unless they are kept, in batches equal ones once."""
    data = data if options.brackets else unbracketed(data)
    return data if options.stepwise else merged(data)


def total_log_p(data: Strings, log_p: np.ndarray) -> tuple[float, float]:
    """(weighted log-probability of what can be derived, weight of what cannot); refused where nothing can."""
    found = log_p > -np.inf
    if not np.any(found & (data.weights > 0.0)):
        raise EspalierError(
            f"the grammar derives none of {data.total} strings: expected at least one; check words and start symbol"
        )
    return float(np.sum(np.where(found, data.weights * np.where(found, log_p, 0.0), 0.0))), float(
        data.weights[~found].sum()
    )


def fit(
    grammar: Grammar, data: Strings, options: GrammarOptions,
    on_iteration: Callable[[dict, Grammar], str | None] | None = None, count: Count = count,
) -> GrammarFit:  # fmt: skip
    """The grammar that the strings teach, begun from another one; `on_iteration` hears each step and may end it.

    `count` does the counting of all strings, elsewhere if need be; steps behind batches are counted here.
    """
    if options.max_iterations < 1:
        raise EspalierError(f"max_iterations is {options.max_iterations}: expected at least 1")
    if options.stepwise:
        return _stepwise(grammar, prepared(data, options), options, on_iteration)
    return _batch(grammar, prepared(data, options), options, on_iteration, count)


def _heard(
    monitor: Monitor, iteration: int, value: float, skipped: float, grammar: Grammar, on_iteration
) -> str | None:
    record = {"iteration": iteration, "objective": -value, "skipped": skipped, "rules": grammar.size}
    reason = monitor.check(record, grammar.probabilities)
    return (on_iteration and on_iteration(record, grammar)) or reason


def _batch(grammar: Grammar, data: Strings, options: GrammarOptions, on_iteration, count: Count) -> GrammarFit:
    """Count all strings and renew the grammar, again and again; rules of probability zero go."""
    iteration = 0
    monitor = Monitor(options.max_iterations, options.tolerance)
    while True:
        counts, log_p = count(grammar, data, options)
        value, skipped = total_log_p(data, log_p)
        reason = _heard(monitor, iteration, value, skipped, grammar, on_iteration)
        if reason:
            return GrammarFit(grammar, -value, reason, monitor.history, skipped)
        grammar, _ = pruned(normalised(grammar, counts, options.smoothing))
        iteration += 1


def first_mean(grammar: Grammar, mean_length: float) -> np.ndarray:
    """Statistics of a mean string, 2 T - 1 nodes: all symbols alike, rewritten as the grammar has it."""
    return grammar.probabilities * ((2.0 * mean_length - 1.0) / len(grammar.symbols))


def _stepwise(grammar: Grammar, data: Strings, options: GrammarOptions, on_iteration) -> GrammarFit:
    """Passes over the strings, the grammar renewed behind each batch from statistics that forget."""
    if options.batch < 1:
        raise EspalierError(f"batch is {options.batch}: expected at least 1 string")
    mean_length = float(np.average(data.lengths, weights=data.weights))
    statistics = ForgettingMean(first_mean(grammar, mean_length), options.alpha)
    monitor = Monitor(options.max_iterations, options.tolerance)
    for turn in range(1, options.max_iterations + 1):
        ordered = select(data, in_order(data.lengths, options.order, options.seed, turn))
        grammar, value, skipped = _pass(grammar, ordered, statistics, options)
        reason = _heard(monitor, turn, value, skipped, grammar, on_iteration)
        if reason or turn == options.max_iterations:
            return GrammarFit(grammar, -value, reason or "max_iterations", monitor.history, skipped)
    raise AssertionError("a last pass ends the loop")


def _pass(
    grammar: Grammar, data: Strings, statistics: ForgettingMean, options: GrammarOptions
) -> tuple[Grammar, float, float]:
    """One pass: the renewed grammar, log P of each batch under the grammar before it, weight of what was skipped."""
    batch = _expected_batch(grammar, data) if options.training == "io" else _counted_batch(data, options)
    value = skipped = 0.0
    for lo in range(0, data.total, options.batch):
        hi = min(lo + options.batch, data.total)
        counts, log_p = batch(grammar, lo, hi)
        found, weights = log_p > -np.inf, data.weights[lo:hi]
        derived = float(weights[found].sum())
        skipped += float(weights.sum()) - derived
        if derived > 0.0:
            value += float((weights[found] * log_p[found]).sum())
            statistics.update(slice(None), counts / derived)
            grammar = normalised(grammar, statistics.take(), options.smoothing)
    return grammar, value, skipped


def _expected_batch(grammar: Grammar, data: Strings):
    """Expected counts of a batch by one machine whose probabilities are renewed, and in the same memory."""
    machine = Machine(grammar)
    room = make_room(int(data.lengths.max()), machine.tables, machine.dense)
    log_p = np.full(data.total, -np.inf)

    def batch(grammar: Grammar, lo: int, hi: int) -> tuple[np.ndarray, np.ndarray]:
        machine.renew(grammar)
        return machine.run(data, lo, hi, room, True, log_p), log_p[lo:hi]

    return batch


def _counted_batch(data: Strings, options: GrammarOptions):
    return lambda grammar, lo, hi: count(grammar, select(data, np.arange(lo, hi)), options)
