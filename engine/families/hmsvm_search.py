"""Searches of hidden Markov support vector machines: which labellings of a sequence miss their margin, and by how much.

All go over the lattice of a sequence as it is: here [L, Y], between [P, Y, Y], which [L], the right labels gold [L].
A labelling counts by its score less that of the right one, so that both need no long sums.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.families.hmsvm_sets import Cuts, Sets
from espalier.engine.lattice.lattice import Lattice
from espalier.engine.runtime import threads
from espalier.engine.runtime.grouping import ends
from espalier.engine.runtime.jit import kernel

VIOLATED = 1e-9  # a margin missed by less is kept


class Sought(NamedTuple):
    """What a search wants."""

    hamming: bool  # D(y) is the number of wrong labels, not 1
    squared: bool  # slacks are squared
    limits: np.ndarray  # float64 [N], C w_n
    weights: np.ndarray  # float64, of pairs


def worst_slacks(lattice: Lattice, gold: np.ndarray, hamming: bool, scale: float) -> np.ndarray:
    """[2, N]: by how much each sequence misses its margin at `scale` times all scores, and the margin as it is.

    The margin is F(right) - F(y) of the worst labelling, zero where none is missed.
    """
    out = np.empty((2, len(lattice.offsets) - 1))
    threads.run(
        lambda piece: fill_worst(*piece, lattice, gold, scale, hamming, out),
        threads.balanced(np.diff(lattice.offsets)),
    )
    return out


def new_cuts(lattice: Lattice, gold: np.ndarray, sets: Sets, sought: Sought) -> list[Cuts]:
    """Labellings that miss their margins and are in no set yet: the worst, and the worst with one run of wrong labels.

    Scores of runs that stand apart add up. So where the margins of labellings with one run are kept, those of all are,
    and where the slack of a sequence is none these are the ones that count.
    """

    def look(piece: tuple[int, int]) -> Cuts:
        lo, hi = piece
        lengths = np.diff(lattice.offsets[lo : hi + 1])
        many, room = int(np.sum(lengths + 1)), int(np.sum(lengths * (lengths + 1)))
        cuts = Cuts(np.empty(many, np.int64), np.zeros(many + 1, np.int64), np.empty(room, np.int64),
                    np.empty(room, np.int32))  # fmt: skip
        return cuts.first(search(lo, hi, lattice, gold, sets, sought, cuts))

    return threads.run(look, threads.balanced(np.diff(lattice.offsets)))


def joined(parts: list[Cuts]) -> Cuts:
    sizes = [np.empty(0, np.int64), *(np.diff(part.ptr) for part in parts)]
    whole = np.empty(0, np.int64)
    owner, place = (np.concatenate([whole, *(getattr(part, name) for part in parts)]) for name in ("owner", "place"))
    label = np.concatenate([whole.astype(np.int32), *(part.label for part in parts)])
    return Cuts(owner, ends(np.concatenate(sizes)), place, label)


@kernel
def fill_worst(lo, hi, lattice, gold, scale, hamming, out):
    """out[:, n]: what `worst_slacks` says of the sequences lo .. hi - 1 of a lattice."""
    longest, n_labels = 0, lattice.here.shape[1]
    for n in range(lo, hi):
        longest = max(longest, lattice.offsets[n + 1] - lattice.offsets[n])
    back = np.empty((longest, n_labels), np.int32)
    for n in range(lo, hi):
        begin, end = lattice.offsets[n], lattice.offsets[n + 1]
        value, wrong, _ = worst_other(lattice.here[begin:end], lattice.between, lattice.which[begin:end],
                                      gold[begin:end], scale, hamming, back)  # fmt: skip
        missed = value + (0.0 if hamming else 1.0)
        out[0, n] = missed if missed > 0.0 else 0.0
        out[1, n] = ((wrong if hamming else 1.0) - missed) / scale if missed > 0.0 else 0.0


@kernel
def worst_other(here, between, which, gold, scale, hamming, back):
    """(scale (F(y) - F(right)) + its wrong labels with hamming, how many these are, the last label) of the worst y.

    B_t(y), the best beginning with label y at t that is wrong somewhere, is from a beginning of that kind or from the
    right one, which is -1 in back [L, Y]. Cost: L Y^2.
    """
    length, n_labels = here.shape
    best, wrong = np.empty(n_labels), np.empty(n_labels)
    old, counts = np.empty(n_labels), np.empty(n_labels)
    for t in range(length):
        old[:], counts[:] = best, wrong
        p, right = which[t], gold[t]
        for y in range(n_labels):
            best[y], wrong[y], back[t, y] = -np.inf, 0.0, -1
            if t == 0:
                best[y] = -np.inf if y == right else 0.0
            elif y != right:
                best[y] = scale * (between[p, gold[t - 1], y] - between[p, gold[t - 1], right])
        if t:
            for before in range(n_labels):
                from_here = old[before] - scale * between[p, gold[t - 1], right]
                for y in range(n_labels):
                    value = from_here + scale * between[p, before, y]
                    if value > best[y]:
                        best[y], wrong[y], back[t, y] = value, counts[before], before
        for y in range(n_labels):
            best[y] += scale * (here[t, y] - here[t, right])
            if y != right:
                wrong[y] += 1.0
                best[y] += 1.0 if hamming else 0.0
    last = 0
    for y in range(n_labels):
        if best[y] > best[last]:
            last = y
    return best[last], wrong[last], last


@kernel
def best_runs(here, between, which, gold, hamming, gain, back):
    """gain[t, y]: F(y) - F(right) + wrong labels with hamming, of the best run of wrong labels that ends at t in y.

    From back[t, y], or nothing before where that is -1. Before and behind the run all is right. Cost: L Y^2.
    """
    length, n_labels = here.shape
    begun, old = np.empty(n_labels), np.empty(n_labels)
    for t in range(length):
        p, right = which[t], gold[t]
        old[:] = begun
        for y in range(n_labels):
            begun[y], back[t, y] = 0.0, -1
            if t:
                begun[y] = between[p, gold[t - 1], y] - between[p, gold[t - 1], right]
        if t:
            for before in range(n_labels):
                if before != gold[t - 1]:
                    from_here = old[before] - between[p, gold[t - 1], right]
                    for y in range(n_labels):
                        value = from_here + between[p, before, y]
                        if value > begun[y]:
                            begun[y], back[t, y] = value, before
        for y in range(n_labels):
            begun[y] += here[t, y] - here[t, right] + (1.0 if hamming else 0.0)
            gain[t, y] = begun[y] if y != right else -np.inf
            if t + 1 < length:
                q = which[t + 1]
                gain[t, y] += between[q, y, gold[t + 1]] - between[q, right, gold[t + 1]]


@kernel
def search(lo, hi, lattice, gold, sets, sought, cuts):
    """Fills cuts with what `new_cuts` says of the sequences lo .. hi - 1 of a lattice; how many there are."""
    at, n_labels, longest = 0, lattice.here.shape[1], 0
    limits, squared, hamming = sought.limits, sought.squared, sought.hamming
    for n in range(lo, hi):
        longest = max(longest, lattice.offsets[n + 1] - lattice.offsets[n])
    back, gain = np.empty((longest, n_labels), np.int32), np.empty((longest, n_labels))
    for n in range(lo, hi):
        begin, end = lattice.offsets[n], lattice.offsets[n + 1]
        if limits[n] == 0.0 or n_labels == 1:
            continue
        here, which, right = lattice.here[begin:end], lattice.which[begin:end], gold[begin:end]
        used, slack = 0.0, 0.0
        for m in range(sets.ptr[n], sets.ptr[n + 1]):
            used += sets.a[m]
            slack = max(slack, sets.loss[m] - lattice_margin(sets, m, here, right, begin, sought.weights))
        if squared:
            slack = used / (2.0 * limits[n])
        value, _, last = worst_other(here, lattice.between, which, right, 1.0, hamming, back)
        first = at
        if value + (0.0 if hamming else 1.0) > slack + VIOLATED:
            at = taken(right, back, len(here) - 1, last, begin, n, sets, first, at, cuts)
        if not squared and used < limits[n] * (1.0 - 1e-9):
            slack = 0.0  # none in the end, if the others stay as they are
        best_runs(here, lattice.between, which, right, hamming, gain, back)
        for t in range(len(here)):
            y = largest(gain[t])
            if gain[t, y] + (0.0 if hamming else 1.0) > slack + VIOLATED:
                at = taken(right, back, t, y, begin, n, sets, first, at, cuts)
    return at


@kernel
def largest(values):
    """Where the largest of some values is."""
    top = 0
    for y in range(len(values)):
        if values[y] > values[top]:
            top = y
    return top


@kernel
def lattice_margin(sets, m, here, gold, base, weights):
    """F(right) - F(labelling m) by the lattice of its sequence, whose first position is base."""
    total = 0.0
    for i in range(sets.place_ptr[m], sets.place_ptr[m + 1]):
        t = sets.place[i] - base
        total += here[t, gold[t]] - here[t, sets.label[i]]
    for i in range(sets.slot_ptr[m], sets.slot_ptr[m + 1]):
        total += sets.count[i] * weights[sets.slot[i]]
    return total


@kernel
def taken(gold, back, t, y, base, own, sets, first, at, cuts):
    """The labelling that ends wrong at t in y and came by `back`, as cut number `at` unless it is known; the next one.

    Known is what is in the set of the sequence or among the cuts since `first`.
    """
    begin = cuts.ptr[at]
    end = begin
    while t >= 0:
        if y != gold[t]:
            cuts.place[end], cuts.label[end] = base + t, y
            end += 1
        y, t = back[t, y], t - 1
        if y < 0:
            break
    for i in range((end - begin) // 2):  # ascending
        j = end - 1 - i
        place, label = cuts.place[begin + i], cuts.label[begin + i]
        cuts.place[begin + i], cuts.label[begin + i] = cuts.place[j], cuts.label[j]
        cuts.place[j], cuts.label[j] = place, label
    for m in range(sets.ptr[own], sets.ptr[own + 1]):
        if alike(sets.place, sets.label, sets.place_ptr[m], sets.place_ptr[m + 1], cuts, begin, end):
            return at
    for m in range(first, at):
        if alike(cuts.place, cuts.label, cuts.ptr[m], cuts.ptr[m + 1], cuts, begin, end):
            return at
    cuts.owner[at], cuts.ptr[at + 1] = own, end
    return at + 1


@kernel
def alike(place, label, lo, hi, cuts, begin, end):
    """Whether place[lo:hi] and label[lo:hi] are those of the cuts from begin to end."""
    if hi - lo != end - begin:
        return False
    for i in range(hi - lo):
        if place[lo + i] != cuts.place[begin + i] or label[lo + i] != cuts.label[begin + i]:
            return False
    return True
