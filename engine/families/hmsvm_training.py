"""Hidden Markov support vector machines (LABELSEQ 4): the largest margin between right and other labellings.

min 1/2 |L|^2 + C sum_n w_n xi_n with F(y^n) - F(y) >= D(y) - xi_n for all other labellings y. In the dual each
labelling y of a sequence has an a_y >= 0, and the a_y of a sequence are C w_n at most in all; L = sum a_y (psi(y^n) -
psi(y)), so that rows and pairs where y is wrong support the right labels and speak against the others.

The dual rises sequence by sequence (algorithm 5): the worst labelling by Viterbi's two best, with D in the scores,
joins the sequence's working set, the small problem over the set is solved by steps along pairs of its a_y, and those at
zero leave. H = G A follows each step. Primal minus dual bounds how far both are from the optimum.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from espalier.engine.chain.chain_lattice import _fill, _number_sets, checked_sets, lattice_blocks
from espalier.engine.errors import EspalierError
from espalier.engine.families.hmsvm_options import MARGINS, SLACKS, HmsvmOptions
from espalier.engine.families.hmsvm_passes import flat_sets, pass_over
from espalier.engine.families.hmsvm_step import climb
from espalier.engine.families.row_chain import RowChain
from espalier.engine.lattice import decode
from espalier.engine.lattice.lattice import Lattice
from espalier.engine.lattice.recursions import best_labellings, make_nbest_rows
from espalier.engine.optimise.monitor import Monitor
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.vectors import dot
from espalier.engine.similarity.overlaps import Overlaps, add_columns, own_gram
from espalier.engine.similarity.rows import selected
from espalier.engine.weights.layout import find_slots

VIOLATED = 1e-9  # a margin missed by less is kept
ZERO = 1e-12  # share of C below which an a_y is none
STEPS = 10_000  # of the small problem at most
LOOKS = 3  # at a sequence in one search
PASSES, ENOUGH = 200, 0.01  # over the working sets between searches; they end at a rise of this share of the gap asked
NO_LIMIT = 1e300  # what is left of C where there is none


class HmsvmFit(NamedTuple):
    """A and the weights of pairs, and how they came to be."""

    amounts: np.ndarray  # float64 [P, Y]
    weights: np.ndarray  # float64, of pairs
    objective: float
    stop_reason: str
    trace: list[dict]
    supports: int  # labellings with an a_y
    supported: int  # sequences that have some


class Wrong(NamedTuple):
    """A labelling of a working set: where it is wrong, and how its pairs differ from the right ones."""

    labels: np.ndarray  # int32 [L]
    places: np.ndarray  # positions that are wrong
    slots: np.ndarray  # of weights of pairs
    counts: np.ndarray  # float64, right minus wrong ones
    loss: float  # D(y)


def check_options(options: HmsvmOptions) -> None:
    for name, known in (("slack", SLACKS), ("margin", MARGINS)):
        if getattr(options, name) not in known:
            raise EspalierError(f"hmsvm.{name} is {getattr(options, name)!r}: expected one of {', '.join(known)}")


class Working:
    """One sequence: its rows, its working set, the a_y."""

    def __init__(self, svm: "HmsvmState", n: int):
        data, chain = svm.chain.dataset, svm.chain
        self.positions = slice(int(data.offsets[n]), int(data.offsets[n + 1]))
        self.gold = data.labels[self.positions]
        self.rows = chain.of_position[self.positions].astype(np.int64)
        self.limit = svm.options.C * float(data.weights[n])
        self.gram = own_gram(selected(chain.rows, self.rows), chain.degree)
        self.which = np.empty(len(self.gold), np.int32)
        found = _number_sets(svm.sets.of_position[self.positions], svm.number, svm.members, self.which)
        self.members = svm.members[:found].copy()
        self.right = svm.pair_slots(self.positions, self.gold)
        self.set: list[Wrong] = []
        self.a = np.zeros(0)
        self.products = np.zeros((0, 0))


class HmsvmState:
    """A, H and the weights of pairs, and the working set of each sequence."""

    def __init__(self, chain: RowChain, options: HmsvmOptions):
        self.chain, self.options = chain, options
        self.theta = np.zeros(chain.layout.size)
        self.scores = self.theta[: chain.cells].reshape(-1, chain.n_labels)  # H, in place
        self.amounts = np.zeros(self.scores.shape)
        self.sets = checked_sets(chain.dataset, chain.layout, self.theta)
        self.number = np.full(len(self.sets.ptr) - 1, -1, np.int32)
        self.members = np.empty(len(self.sets.ptr) - 1, np.int64)
        self.room = chain.gram.room(chain.rows)[0]
        self.linear, self.rises, self.steps = 0.0, 0.0, 0
        self.sequences = [Working(self, n) for n in range(len(chain.dataset.weights))]

    # One labelling.

    def pair_slots(self, positions: slice, labels: np.ndarray) -> np.ndarray:
        """The slots of pairs that a labelling of a sequence uses, ascending, as often as it does."""
        observed, layout = self.chain.paired[positions], self.chain.pair_layout
        if not observed.shape[1]:
            return np.empty(0, np.int64)
        code = labels[:-1].astype(np.int64) * self.chain.n_labels + labels[1:]
        found = []
        for name, x, codes in (("start", observed[:1], labels[:1].astype(np.int64)), ("bigram", observed[1:], code)):
            codes = np.broadcast_to(codes[:, None], x.shape)
            slots = find_slots(layout, name, np.maximum(x, 0).ravel(), codes.ravel()) if x.size else np.empty(0, int)
            found.append(slots[(slots >= 0) & (x.ravel() >= 0)])
        return np.sort(np.concatenate(found))

    def wrong(self, seq: Working, labels: np.ndarray) -> Wrong:
        theirs = self.pair_slots(seq.positions, labels)
        slots, where = np.unique(np.concatenate([seq.right, theirs]), return_inverse=True)
        counts = np.bincount(where[: len(seq.right)], minlength=len(slots)).astype(np.float64)
        counts -= np.bincount(where[len(seq.right) :], minlength=len(slots))
        kept, places = counts != 0.0, np.flatnonzero(labels != seq.gold)
        loss = 1.0 if self.options.margin == "one" else float(len(places))
        return Wrong(labels.copy(), places, slots[kept], counts[kept], loss)

    def product(self, seq: Working, one: Wrong, other: Wrong) -> float:
        """The inner product of psi(y^n) - psi(y) for two labellings of a sequence."""
        total = _rows_in_common(seq.gram, seq.gold, one.labels, other.labels, one.places, other.places)
        both, mine, theirs = np.intersect1d(one.slots, other.slots, assume_unique=True, return_indices=True)
        pairs = dot(one.counts[mine], other.counts[theirs]) if len(both) else 0.0
        return total + self.options.eta * pairs

    # One sequence.

    def lattice(self, n: int, seq: Working) -> Lattice:
        """Its scores."""
        data, layout = self.chain.dataset, self.chain.layout
        return _fill(data, layout, self.theta, self.sets, slice(n, n + 1), seq.which, seq.members)

    def margins(self, seq: Working, lattice: Lattice, labellings: list[np.ndarray]) -> np.ndarray:
        """F(y^n) - F(y) of some labellings."""
        right = _score(lattice, seq.gold)
        return np.array([right - _score(lattice, labels) for labels in labellings])

    def worst(self, seq: Working, lattice: Lattice) -> np.ndarray | None:
        """The labelling that misses its margin by most, None where there is no other."""
        here, length = lattice.here, len(seq.gold)
        if self.options.margin == "hamming":
            here = here + 1.0
            here[np.arange(length), seq.gold] -= 1.0
        labels = np.empty((2, length), np.int32)
        rows = make_nbest_rows(length, self.chain.n_labels, 2)
        count = best_labellings(here, lattice.between, lattice.which, rows, np.empty(2), labels)
        others = [one for one in labels[:count] if not np.array_equal(one, seq.gold)]
        return others[0] if others else None

    def settle(self, n: int) -> bool:
        """Look at a sequence again and again, few times at most; whether its a_y changed."""
        looks = 0
        while looks < LOOKS and self.visit(n):
            looks += 1
        return looks > 0

    def visit(self, n: int) -> bool:
        """Look at a sequence; whether its a_y changed."""
        seq = self.sequences[n]
        if not seq.limit:
            return False
        lattice = self.lattice(n, seq)
        found = self.worst(seq, lattice)
        margins = self.margins(seq, lattice, [one.labels for one in seq.set])
        missed = [one.loss - margin for one, margin in zip(seq.set, margins.tolist(), strict=True)]
        if found is not None and not any(np.array_equal(found, one.labels) for one in seq.set):
            new = self.wrong(seq, found)
            margin = self.margins(seq, lattice, [found])[0]
            slack = max([0.0, *missed])
            if self.options.slack == "squared":
                slack = float(seq.a.sum()) / (2.0 * seq.limit)
            if new.loss - margin > slack + VIOLATED:
                self._add(seq, new)
                margins = np.append(margins, margin)
        return bool(seq.set) and self._solve(seq, margins)

    def _add(self, seq: Working, new: Wrong) -> None:
        k = len(seq.set)
        products = np.zeros((k + 1, k + 1))
        products[:k, :k] = seq.products
        seq.set.append(new)
        for j, other in enumerate(seq.set):
            products[k, j] = products[j, k] = self.product(seq, new, other)
        seq.products, seq.a = products, np.append(seq.a, 0.0)

    def _solve(self, seq: Working, margins: np.ndarray) -> bool:
        """The a_y of a working set at their best, the others fixed."""
        squares = seq.products
        losses = np.array([one.loss for one in seq.set])
        left, slope = seq.limit - float(seq.a.sum()), losses - margins
        if self.options.slack != "sequence":
            left = NO_LIMIT
        if self.options.slack == "squared":
            squares = squares + 1.0 / (2.0 * seq.limit)
            slope = slope - float(seq.a.sum()) / (2.0 * seq.limit)
        a = seq.a.copy()
        climb(a, max(left, 0.0), squares, slope.copy(), VIOLATED, STEPS)
        step = a - seq.a
        if not step.any():
            return False
        moved = np.array([dot(row, step) for row in np.ascontiguousarray(squares)])
        self.rises = dot(slope, step) - 0.5 * dot(moved, step)
        self.steps += 1
        self._push(seq, step)
        seq.a = a
        self._drop(seq)
        return True

    def _push(self, seq: Working, step: np.ndarray) -> None:
        """A, H and the weights of pairs behind a step of the a_y."""
        if not step.any():
            return
        change = np.zeros((len(seq.gold), self.chain.n_labels))
        weights = self.theta[self.chain.cells :]
        for one, by in zip(seq.set, step.tolist(), strict=True):
            change[one.places, seq.gold[one.places]] += by
            change[one.places, one.labels[one.places]] -= by
            weights[one.slots] += self.options.eta * by * one.counts
            self.linear += by * one.loss
        places = np.flatnonzero(np.any(change != 0.0, axis=1))
        np.add.at(self.amounts, seq.rows[places], change[places])
        gram = self.chain.gram
        add_columns(selected(self.chain.rows, seq.rows[places]), gram.index, gram.degree, change[places], self.room,
                    self.scores)  # fmt: skip

    # All of them.

    def pass_over_sets(self) -> None:
        """The a_y of all working sets near their best: many passes that look at the rows of the sets alone."""
        sets, kept, a = flat_sets(self.sequences)
        if not len(a):
            return
        chain, options, weights = self.chain, self.options, self.theta[self.chain.cells :]
        some = selected(chain.rows, kept)
        gram = Overlaps(some, chain.gram.n_attributes, chain.degree)
        by_label, changed = np.ascontiguousarray(self.scores[kept].T), np.zeros((len(kept), chain.n_labels))
        before, enough = a.copy(), ENOUGH * options.gap * max(abs(self.dual()), 1e-9)
        for _ in range(PASSES):
            rise = pass_over(
                sets, a, by_label, weights, options.eta, options.slack == "hard", options.slack == "squared", some,
                gram.index, chain.degree, gram.room(some)[0], changed, VIOLATED, STEPS,
            )  # fmt: skip
            if rise <= enough:
                break
        step = a - before
        self.linear += dot(step, sets.loss)
        each = np.repeat(step, np.diff(sets.place_ptr))
        np.add.at(changed, (sets.row, sets.gold), each)
        np.add.at(changed, (sets.row, sets.label), -each)
        self.amounts[kept] += changed
        self.scores += gram.product(changed, chain.rows)
        for seq, lo, hi in zip(self.sequences, sets.ptr, sets.ptr[1:], strict=False):
            seq.a = a[lo:hi].copy()
            self._drop(seq)

    def _drop(self, seq: Working) -> None:
        """Labellings whose a_y are zero leave the working set."""
        kept = seq.a > ZERO * min(max(seq.limit, 1.0), NO_LIMIT)
        if not kept.all():
            self._push(seq, np.where(kept, 0.0, -seq.a))
            seq.a, seq.set = seq.a[kept], [one for one, keep in zip(seq.set, kept.tolist(), strict=True) if keep]
            seq.products = np.ascontiguousarray(seq.products[kept][:, kept])

    def square(self) -> float:
        weights = self.theta[self.chain.cells :]
        return dot(self.amounts.ravel(), self.scores.ravel()) + dot(weights, weights) / self.options.eta

    def dual(self) -> float:
        slack = 0.0
        if self.options.slack == "squared":
            slack = sum(float(seq.a.sum()) ** 2 / (4.0 * seq.limit) for seq in self.sequences if seq.limit)
        return self.linear - 0.5 * self.square() - slack

    def missed(self) -> np.ndarray:
        """By how much each sequence misses its margin, float64 [N]."""
        data, found = self.chain.dataset, np.zeros(len(self.sequences))
        for block in lattice_blocks(data, self.chain.layout, self.theta, self.sets):
            lattice, gold = block.lattice, data.labels[block.positions]
            right = decode.score(lattice, gold)
            here, fixed = lattice.here, 1.0
            if self.options.margin == "hamming":
                here, fixed = here + 1.0, 0.0
                here[np.arange(len(gold)), gold] -= 1.0
            best = decode.nbest(lattice._replace(here=here), 2)
            for i in range(len(right)):
                lo, hi = lattice.offsets[i : i + 2]
                for r in range(best.count[i]):
                    if not np.array_equal(best.labels[r, lo:hi], gold[lo:hi]):
                        part = Lattice(here[lo:hi], lattice.between, lattice.which[lo:hi], np.array([0, hi - lo]))
                        score = fixed + _score(part, best.labels[r, lo:hi])
                        found[block.sequences.start + i] = max(0.0, score - right[i])
                        break
        return found

    def primal(self, missed: np.ndarray) -> float:
        power = 2 if self.options.slack == "squared" else 1
        slack = sum(seq.limit * float(xi) ** power for seq, xi in zip(self.sequences, missed, strict=True))
        return 0.5 * self.square() + slack


def _score(lattice: Lattice, labels: np.ndarray) -> float:
    """Of one labelling of a lattice of one sequence."""
    here = lattice.here[np.arange(len(labels)), labels].sum()
    return float(here + lattice.between[lattice.which[1:], labels[:-1], labels[1:]].sum())


@kernel
def _rows_in_common(gram, gold, one, other, places, theirs):
    """sum over pairs of wrong places of g, for each label: + right with right and wrong with wrong, - across."""
    total = 0.0
    for s in places:
        for t in theirs:
            same = 0.0
            if gold[s] == gold[t]:
                same += 1.0
            if one[s] == other[t]:
                same += 1.0
            if gold[s] == other[t]:
                same -= 1.0
            if one[s] == gold[t]:
                same -= 1.0
            total += same * gram[s, t]
    return total


def fit_hmsvm(chain: RowChain, options: HmsvmOptions, heard: Callable | None = None) -> HmsvmFit:
    """Passes over the sequences until primal and dual are near; `heard` gets each record with A and the weights."""
    check_options(options)
    machine = HmsvmState(chain, options)
    monitor = Monitor(options.max_iterations, options.gap, scale=np.inf, least=10**9)
    reason, iteration = _told(monitor, machine, 0, 0, heard), 0
    while reason is None:
        changed = sum(machine.settle(n) for n in range(len(machine.sequences)))
        machine.pass_over_sets()
        iteration += 1
        reason = _told(monitor, machine, iteration, changed, heard) or (None if changed else "line_search")
    supports = [len(seq.set) for seq in machine.sequences]
    return HmsvmFit(machine.amounts, machine.theta[chain.cells :].copy(), monitor.history[-1]["objective"], reason,
                    monitor.history, sum(supports), sum(count > 0 for count in supports))  # fmt: skip


def _told(monitor: Monitor, machine: HmsvmState, iteration: int, changed: int, heard: Callable | None) -> str | None:
    """The record of a pass: what is minimised is the dual with the other sign."""
    missed, dual = machine.missed(), machine.dual()
    kept = machine.options.slack == "hard"
    gap = machine.primal(missed) - dual if not kept else 0.5 * machine.square() - dual
    if kept and missed.max(initial=0.0) > 1e-3:
        gap = np.inf  # the primal is not feasible yet
    weights, chain = machine.theta[machine.chain.cells :], machine.chain
    starts = chain.layout.bounds()[1] - chain.layout.bounds()[0]
    record = {
        "iteration": iteration, "objective": -dual, "dual": dual, "primal": dual + gap if np.isfinite(gap) else None,
        "gap": gap, "gradient_norm": float(missed.max(initial=0.0)), "evaluations": machine.steps, "changed": changed,
        "active_unigram": int(np.count_nonzero(machine.amounts)),
        "active_start": int(np.count_nonzero(weights[:starts])),
        "active_bigram": int(np.count_nonzero(weights[starts:])),
        "rows": int(np.count_nonzero(np.any(machine.amounts != 0.0, axis=1))),
    }  # fmt: skip
    monitor.on_iteration = heard and (lambda line, _: heard(line, machine.amounts, weights))
    reason = monitor.check(record, machine.theta)
    record["gap"] = gap if np.isfinite(gap) else None
    return reason
