"""A slack for each labelling of a hidden Markov support vector machine: those that miss their margins, listed.

The primal has a term for every labelling that misses its margin, so that all of them must be known: n best labellings
say which, if the last of them keeps its margin. They are few where C is large beside the number of labellings.
"""

import numpy as np

from espalier.engine.families.hmsvm_search import VIOLATED, alike
from espalier.engine.families.hmsvm_sets import Cuts, Sets, no_sets
from espalier.engine.lattice.lattice import Lattice
from espalier.engine.lattice.recursions import best_labellings, make_nbest_rows
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel

LISTED, A_KNOWN_ONE = 32, 2  # labellings that are listed, and more for each that is in the set
NEW = 16  # labellings that a sequence gets from one search


def many_of(sets: Sets, limits: np.ndarray) -> np.ndarray:
    """How many labellings of each sequence are listed, int64 [N]; none of those that do not count."""
    return np.where(limits > 0.0, LISTED + A_KNOWN_ONE * np.diff(sets.ptr), 0)


def listed_slacks(lattice: Lattice, gold: np.ndarray, hamming: bool, scale: float, many: np.ndarray) -> np.ndarray:
    """Four rows [N]: the sum of slacks, that of the margins behind them, the largest one, whether any is not listed."""
    out = np.zeros((4, len(many)))
    _each_piece(lattice, gold, hamming, scale, many, no_sets(len(many)), 0, out)
    return out


def listed_cuts(lattice: Lattice, gold: np.ndarray, hamming: bool, sets: Sets, limits: np.ndarray) -> list[Cuts]:
    """Labellings that miss their margins and are in no set yet, the worst first."""
    many = many_of(sets, limits)
    return _each_piece(lattice, gold, hamming, 1.0, many, sets, NEW, np.zeros((4, len(many))))


def _each_piece(
    lattice: Lattice, gold: np.ndarray, hamming: bool, scale: float, many: np.ndarray, sets: Sets, most: int,
    out: np.ndarray,
) -> list[Cuts]:  # fmt: skip
    here = scale * lattice.here
    if hamming:
        here += 1.0
        here[np.arange(len(gold)), gold] -= 1.0
    augmented = lattice._replace(here=here, between=scale * lattice.between)

    def look(piece: tuple[int, int]) -> Cuts:
        lo, hi = piece
        room, count = most * int(lattice.offsets[hi] - lattice.offsets[lo]), most * (hi - lo)
        cuts = Cuts(np.empty(count, np.int64), np.zeros(count + 1, np.int64), np.empty(room, np.int64),
                    np.empty(room, np.int32))  # fmt: skip
        return cuts.first(list_missed(lo, hi, augmented, gold, hamming, scale, many, sets, most, cuts, out))

    return threads.run(look, threads.balanced(np.diff(lattice.offsets)))


@kernel
def list_missed(lo, hi, lattice, gold, hamming, scale, many, sets, most, cuts, out):
    """Fills columns lo .. hi - 1 of out, and cuts with `most` labellings of a sequence at most; how many there are.

    Scores of the lattice are `scale` times what they are, with 1 more at wrong labels for hamming.
    """
    at, n_labels = 0, lattice.here.shape[1]
    for n in range(lo, hi):
        if not many[n]:
            continue
        begin, end = lattice.offsets[n], lattice.offsets[n + 1]
        here, which, right, length = lattice.here[begin:end], lattice.which[begin:end], gold[begin:end], end - begin
        scores, labels = np.empty(many[n]), np.empty((many[n], length), np.int32)
        rows = make_nbest_rows(length, n_labels, many[n])
        count = best_labellings(here, lattice.between, which, rows, scores, labels)
        known = 0.0
        for t in range(length):
            known += here[t, right[t]]
            if t:
                known += lattice.between[which[t], right[t - 1], right[t]]
        first, missed = at, 0.0
        for r in range(count):
            wrong = 0
            for t in range(length):
                wrong += labels[r, t] != right[t]
            missed = scores[r] - known + (0.0 if hamming else 1.0)
            if missed <= VIOLATED:
                break
            if not wrong:
                continue
            out[0, n] += missed
            out[1, n] += ((wrong if hamming else 1.0) - missed) / scale
            out[2, n] = max(out[2, n], missed)
            if at - first < most:
                at = put_cut(labels[r], right, begin, n, sets, at, cuts)
        out[3, n] = 1.0 if count == many[n] and missed > VIOLATED else 0.0
    return at


@kernel
def put_cut(labels, gold, base, own, sets, at, cuts):
    """A labelling as cut number `at` unless it is in the set of its sequence; the next one."""
    begin = cuts.ptr[at]
    end = begin
    for t in range(len(labels)):
        if labels[t] != gold[t]:
            cuts.place[end], cuts.label[end] = base + t, labels[t]
            end += 1
    for m in range(sets.ptr[own], sets.ptr[own + 1]):
        if alike(sets.place, sets.label, sets.place_ptr[m], sets.place_ptr[m + 1], cuts, begin, end):
            return at
    cuts.owner[at], cuts.ptr[at + 1] = own, end
    return at + 1
