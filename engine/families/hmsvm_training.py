"""Hidden Markov support vector machines (LABELSEQ 4): the largest margin between right and other labellings.

min 1/2 |L|^2 + C sum_n w_n xi_n with F(y^n) - F(y) >= D(y) - xi_n for all other labellings y. In the dual each
labelling y of a sequence has an a_y >= 0, and the a_y of a sequence are C w_n at most in all; L = sum a_y (psi(y^n) -
psi(y)), so that rows and pairs where y is wrong support the right labels and speak against the others.

A round goes over the sequences part by part: labellings that miss their margins join the working sets, those whose a_y
are zero leave, and the small problem of each sequence is solved (algorithm 5). H = G A follows each step for all rows.
Passes over all sets follow, for the rows at hand alone, until little is left to gain. Primal minus dual bounds how far
both are from the optimum.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from espalier.engine.chain.chain_lattice import _fill, _number_sets, checked_sets
from espalier.engine.errors import EspalierError
from espalier.engine.families.hmsvm_joint import CombinedSteps
from espalier.engine.families.hmsvm_listed import listed_cuts, many_of
from espalier.engine.families.hmsvm_options import MARGINS, SLACKS, HmsvmOptions
from espalier.engine.families.hmsvm_pairs import move_pairs, pairs_of_rows
from espalier.engine.families.hmsvm_passes import Hand, Terms, add_steps, pass_over
from espalier.engine.families.hmsvm_primal import Primal, Separator
from espalier.engine.families.hmsvm_search import VIOLATED, Sought, joined, new_cuts
from espalier.engine.families.hmsvm_sets import Cuts, Sets, no_sets, renewed, span_of, together
from espalier.engine.families.row_chain import RowChain
from espalier.engine.lattice.lattice import Lattice
from espalier.engine.optimise.monitor import Monitor
from espalier.engine.runtime import threads
from espalier.engine.runtime.vectors import dot
from espalier.engine.similarity.overlaps import Overlaps
from espalier.engine.similarity.rows import AttributeRows, selected

STEPS = 1000  # of a small problem at most
PARTS = 64  # that sequences are cut into: what one has learned, the next one knows
PASSES, ENOUGH = 100, 0.01  # between searches at most; they end at a rise of this share of what they have brought
SMALL = 0.1  # a step that brings less than this share of the mean of the last pass waits
OF_PAIRS = 3  # looks at the pairs of rows behind a pass


class HmsvmFit(NamedTuple):
    """A and the weights of pairs, and how they came to be."""

    amounts: np.ndarray  # float64 [P, Y]
    weights: np.ndarray  # float64, of pairs
    objective: float
    stop_reason: str
    trace: list[dict]
    supports: int  # labellings with an a_y
    supported: int  # sequences that have some


def check_options(options: HmsvmOptions) -> None:
    for name, known in (("slack", SLACKS), ("margin", MARGINS)):
        if getattr(options, name) not in known:
            raise EspalierError(f"hmsvm.{name} is {getattr(options, name)!r}: expected one of {', '.join(known)}")


class Working:
    """Sequences in a row, their working sets and their lattice."""

    def __init__(self, machine: "HmsvmState", sequences: slice):
        self.span, of_position = span_of(machine.chain, sequences), machine.pair_sets.of_position
        number = np.full(len(machine.pair_sets.ptr) - 1, -1, np.int32)
        members, self.which = np.empty(len(number), np.int64), np.empty(len(self.span.rows), np.int32)
        found = _number_sets(of_position[self.span.positions], number, members, self.which)
        self.members = members[:found].copy()
        self.limits = machine.limits[sequences]
        self.terms = machine.terms._replace(limits=self.limits)
        self.sets = no_sets(len(self.limits))

    def lattice(self, machine: "HmsvmState") -> Lattice:
        """Its scores."""
        lattice = _fill(machine.pairs, machine.chain.pair_layout, machine.weights, machine.pair_sets,
                        self.span.sequences, self.which, self.members)  # fmt: skip
        lattice.here[:] += machine.by_label[:, self.span.rows].T
        return lattice


class HmsvmState:
    """H and the weights of pairs, and the working sets, whose a_y both follow."""

    def __init__(self, chain: RowChain, options: HmsvmOptions):
        self.chain, self.options, self.steps = chain, options, 0
        self.weights = np.zeros(chain.pair_layout.size)
        self.pairs = chain.dataset._replace(observations=np.ascontiguousarray(chain.paired))
        self.pair_sets = checked_sets(self.pairs, chain.pair_layout, self.weights)
        self.by_label = np.zeros((chain.n_labels, chain.rows.count))  # H, a row for each label
        self.changed = np.zeros((chain.rows.count, chain.n_labels))
        self.counts = chain.gram.room(chain.rows)[0]
        self.limits = options.C * chain.dataset.weights
        self.terms = Terms(options.eta, options.slack == "squared", 1.0 if options.slack == "sequence" else np.inf,
                           1.0 if options.slack == "labelling" else np.inf, self.limits)  # fmt: skip
        self.parts = [Working(self, slice(*piece)) for piece in threads.ranges(len(self.limits), PARTS)]

    @property
    def hamming(self) -> bool:
        return self.options.margin == "hamming"

    # A round.

    def visit(self, part: Working) -> tuple[int, float]:
        """New labellings join the working sets of a part, and these move: how many, and by how much the dual rose."""
        cuts, chain = joined(self.search(part)), self.chain
        part.sets = renewed(part.sets, cuts, chain, part.span, self.options.eta, self.hamming)
        place, span = part.sets.place, part.span
        hand = Hand(span.rows[place].astype(np.int64), span.gold[place], self.by_label, self.changed, self.counts)
        rise, made = pass_over(part.sets, hand, chain.rows, chain.gram.index, chain.degree, self.weights, part.terms,
                               0.0, VIOLATED, STEPS)  # fmt: skip
        self.steps += made
        return len(cuts.owner), rise

    def search(self, part: Working) -> list[Cuts]:
        lattice, gold = part.lattice(self), part.span.gold
        if self.options.slack == "labelling":
            return listed_cuts(lattice, gold, self.hamming, part.sets, part.limits)
        return new_cuts(lattice, gold, part.sets, Sought(self.hamming, self.terms.squared, part.limits, self.weights))

    def pass_over_sets(self) -> float:
        """The a_y of all working sets nearer to their best; by how much the dual rose."""
        sets = together([part.sets for part in self.parts], [part.span.positions.start for part in self.parts])
        if not len(sets.a):
            return 0.0
        chain, before = self.chain, sets.a.copy()
        kept, row = np.unique(chain.of_position[sets.place], return_inverse=True)
        rows = selected(chain.rows, kept)
        gram = Overlaps(rows, chain.gram.n_attributes, chain.degree)
        scores = np.ascontiguousarray(self.by_label[:, kept])
        hand = Hand(row.astype(np.int64), chain.dataset.labels[sets.place], scores,
                    np.zeros((len(kept), chain.n_labels)), gram.room(rows)[0])  # fmt: skip
        total = self._passes(sets, hand, rows, gram)
        self._follow(sets, hand, kept, sets.a - before)
        return total

    def _passes(self, sets: Sets, hand: Hand, rows: AttributeRows, gram: Overlaps) -> float:
        """Passes, joint steps and steps of pairs over working sets and the rows at hand; by how much the dual rose."""
        joint = CombinedSteps(sets, hand, self.weights, self.terms, rows, gram.index, self.chain.degree)
        pairs, owner, total, least = pairs_of_rows(sets, hand), sets.owner, 0.0, 0.0
        for _ in range(PASSES):
            rise, made = pass_over(sets, hand, rows, gram.index, self.chain.degree, self.weights, self.terms, least,
                                   VIOLATED, STEPS)  # fmt: skip
            rise += joint.step()
            used = np.bincount(owner, sets.a, len(self.limits))
            for _ in range(OF_PAIRS):
                rise += move_pairs(pairs, sets, hand, owner, used, self.weights, self.terms)
            joint.begin()
            total, self.steps = total + rise, self.steps + made
            little = rise <= ENOUGH * total
            if little and least == 0.0:
                break
            least = 0.0 if little else SMALL * rise / len(self.limits)
        return total

    def _follow(self, sets: Sets, hand: Hand, kept: np.ndarray, step: np.ndarray) -> None:
        """The parts and H behind a step of the a_y."""
        at = 0
        for part in self.parts:
            part.sets.a[:] = sets.a[at : at + len(part.sets.a)]
            at += len(part.sets.a)
        add_steps(sets, hand, step)
        moved, chain = np.flatnonzero(np.any(hand.changed != 0.0, axis=1)), self.chain
        gram = Overlaps(selected(chain.rows, kept[moved]), chain.gram.n_attributes, chain.degree)
        self.by_label += gram.product(hand.changed[moved], chain.rows).T

    # Where it stands.

    def point(self) -> Separator:
        """L as it is, with A [P, Y] as the a_y say."""
        amounts = np.zeros(self.changed.shape)
        for part in self.parts:
            row, gold = part.span.rows[part.sets.place], part.span.gold[part.sets.place]
            each = np.repeat(part.sets.a, np.diff(part.sets.place_ptr))
            np.add.at(amounts, (row, gold), each)
            np.add.at(amounts, (row, part.sets.label), -each)
        return Separator(self.by_label, self.weights, amounts)

    def used(self) -> np.ndarray:
        """The sums of the a_y of sequences, float64 [N]."""
        return np.concatenate([np.bincount(part.sets.owner, part.sets.a, len(part.limits)) for part in self.parts])

    def dual(self, point: Separator) -> float:
        slack = 0.0
        if self.terms.squared:
            used, some = self.used(), self.limits > 0
            slack = float(np.sum(used[some] ** 2 / (4.0 * self.limits[some])))
        return sum(dot(part.sets.a, part.sets.loss) for part in self.parts) - 0.5 * point.square(self.terms.eta) - slack

    def listed(self) -> np.ndarray:
        """How many labellings of each sequence are listed where each has a slack, int64 [N]."""
        return np.concatenate([many_of(part.sets, part.limits) for part in self.parts])

    def supports(self) -> np.ndarray:
        """How many labellings of each sequence have an a_y, int64 [N]."""
        return np.concatenate([np.bincount(part.sets.owner[part.sets.a > 0], minlength=len(part.limits))
                               for part in self.parts])  # fmt: skip


def fit_hmsvm(chain: RowChain, options: HmsvmOptions, heard: Callable | None = None) -> HmsvmFit:
    """Rounds until primal and dual are near; `heard` gets each record with A and the weights of pairs."""
    check_options(options)
    machine = HmsvmState(chain, options)
    primal = Primal(chain, options, machine.limits, machine.pairs, machine.pair_sets)
    monitor = Monitor(options.max_iterations, options.gap, scale=np.inf, least=10**9)
    reason, iteration = _told(monitor, machine, primal, 0, 0, heard), 0
    while reason is None:
        found, rises = zip(*[machine.visit(part) for part in machine.parts], strict=True)
        rise = sum(rises) + machine.pass_over_sets()
        iteration += 1
        reason = _told(monitor, machine, primal, iteration, sum(found), heard)
        reason = reason or (None if sum(found) or rise > 0 else "line_search")
    counts = machine.supports()
    return HmsvmFit(primal.point.amounts, primal.point.pairs, monitor.history[-1]["objective"], reason, monitor.history,
                    int(counts.sum()), int(np.count_nonzero(counts)))  # fmt: skip


def _told(
    monitor: Monitor, machine: HmsvmState, primal: Primal, iteration: int, found: int, heard: Callable | None
) -> str | None:
    """The record of a round: what is minimised is the dual with the other sign."""
    point, chain = machine.point(), machine.chain
    dual, value = machine.dual(point), primal.look(point, machine.listed())
    gap, amounts, weights = value.primal - dual, primal.point.amounts, primal.point.pairs
    starts = chain.layout.bounds()[1] - chain.layout.bounds()[0]
    record = {
        "iteration": iteration, "objective": -dual, "dual": dual, "primal": value.primal if np.isfinite(gap) else None,
        "gap": gap, "gradient_norm": float(value.missed.max(initial=0.0)), "evaluations": machine.steps,
        "changed": found, "active_unigram": int(np.count_nonzero(amounts)),
        "active_start": int(np.count_nonzero(weights[:starts])),
        "active_bigram": int(np.count_nonzero(weights[starts:])),
        "rows": int(np.count_nonzero(np.any(amounts != 0.0, axis=1))),
    }  # fmt: skip
    monitor.on_iteration = heard and (lambda line, _: heard(line, amounts, weights))
    reason = monitor.check(record, weights)
    record["gap"] = gap if np.isfinite(gap) else None
    return reason
