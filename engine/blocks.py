"""Statistics of one block: all weights of one observation value x (SBCD 4.4).

Only the sequences that contain x are visited. In each, the forward recursion runs up to
the last occurrence of x and the backward one down to the first; between them they give
the marginals at the occurrences and log Z.
"""

import numpy as np

from engine import threads
from engine.arithmetic import LANES, add_runs, exponentiate, extremes, pass_message
from engine.logarithms import log_forward, log_sum
from engine.index import Inverse, invert
from engine.jit import kernel
from engine.posteriors import all_log_partitions
from engine.scores import SAFE_RANGE, density, pair_scores, refresh, roomy_factors

PIECE = 256  # sequences of one block that are summed as one piece; fixed, so that sums have one order


class Blocks:
    """The blocks of a chain objective, with factors that follow theta as blocks move."""

    def __init__(self, objective, theta: np.ndarray):
        self.objective, self.theta = objective, theta
        data, layout = objective.dataset, objective.layout
        self.count = layout.n_observations
        sequence_of = np.repeat(np.arange(len(data.weights), dtype=np.int32), np.diff(data.offsets))
        self.occurrences = objective.positions  # one entry for each template that yields x
        self.sequences = _distinct(objective.positions, sequence_of)
        self.share = density(objective.sparse)
        self.factors = roomy_factors(theta, layout, objective.sets, objective.sparse)
        self.nonzero = np.zeros(len(objective.sets.ptr) - 1, np.int64)
        self.log_z = all_log_partitions(theta, data, layout, objective.sets, self.factors)
        self.sequence_of = sequence_of

    def slots(self, x: int) -> np.ndarray:
        """The slots of block x: unigram, start, bigram."""
        layout = self.objective.layout
        runs = (layout.unigram_ptr, layout.start_ptr, layout.bigram_ptr)
        return np.concatenate([np.arange(ptr[x], ptr[x + 1]) for ptr in runs])

    def members(self, x: int) -> np.ndarray:
        return self.sequences.entry[self.sequences.ptr[x] : self.sequences.ptr[x + 1]]

    def derivatives(self, x: int, slots: np.ndarray):
        """First derivative of the loss and the diagonal of (16) at the slots of block x."""
        objective, n_labels = self.objective, self.objective.layout.n_labels
        members = self.members(x)
        where = self.occurrences.entry[self.occurrences.ptr[x] : self.occurrences.ptr[x + 1]]
        bounds = np.searchsorted(self.sequence_of[where], members)
        bounds = np.append(bounds, len(where))

        def piece(lo):
            size = 2 * n_labels + n_labels**2
            first, second = np.zeros(size), np.zeros(size)
            _derivatives(
                self.theta, objective.layout, objective.dataset, objective.sets, self.factors,
                members[lo : lo + PIECE], where, bounds[lo : lo + PIECE + 1], first, second,
            )  # fmt: skip
            return first, second

        parts = threads.run(piece, range(0, len(members), PIECE))
        first, second = parts[0]
        for other_first, other_second in parts[1:]:
            first, second = first + other_first, second + other_second
        codes = self._codes(x)
        return first[codes] - objective.observed[slots], second[codes]

    def _codes(self, x: int) -> np.ndarray:
        """Where each slot of the block lies in [unigram Y | start Y | bigram Y * Y]."""
        layout, n_labels = self.objective.layout, self.objective.layout.n_labels
        bases = {"unigram": 0, "start": n_labels, "bigram": 2 * n_labels}
        return np.concatenate([base + layout.run_codes(name, x) for name, base in bases.items()])

    def move(self, x: int, slots: np.ndarray, values: np.ndarray) -> float:
        """Set the block and return the change of the loss; `undo` takes it back."""
        members = self.members(x)
        self._before = (x, slots, self.theta[slots].copy(), members, self.log_z[members])
        shift = values - self.theta[slots]
        self._assign(x, slots, values)
        self.log_z[members] = self._log_partitions(members)
        weights = self.objective.dataset.weights[members]
        change = weights @ (self.log_z[members] - self._before[4])
        return float(change - shift @ self.objective.observed[slots])

    def undo(self) -> None:
        x, slots, values, members, log_z = self._before
        self._assign(x, slots, values)
        self.log_z[members] = log_z

    def _assign(self, x: int, slots: np.ndarray, values: np.ndarray) -> None:
        self.theta[slots] = values
        objective = self.objective
        affected = objective.sets_of.entry[objective.sets_of.ptr[x] : objective.sets_of.ptr[x + 1]]
        if len(affected):
            refresh(self.theta, objective.layout, objective.sets, self.factors, affected, self.nonzero, self.share)

    def _log_partitions(self, members: np.ndarray) -> np.ndarray:
        objective = self.objective
        return all_log_partitions(
            self.theta, objective.dataset, objective.layout, objective.sets, self.factors, members
        )


def _distinct(positions: Inverse, sequence_of: np.ndarray) -> Inverse:
    """Observation -> sequences that contain it, from observation -> positions."""
    counts = np.diff(positions.ptr)
    owner = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    width = int(sequence_of.max(initial=0)) + 1
    pairs = np.unique(owner * width + sequence_of[positions.entry])
    owner, sequence = pairs // width, pairs % width
    order = invert(owner, len(counts))
    return Inverse(order.ptr, sequence.astype(np.int32)[order.entry])


@kernel
def _derivatives(theta, layout, data, sets, factors, members, where, bounds, first, second):
    """Sum over the sequences `members` of w p and w p (1 - p) at the occurrences of x.

    where[bounds[i]:bounds[i + 1]] are the occurrences in members[i], ascending.
    """
    longest = 0
    for n in members:
        longest = max(longest, data.offsets[n + 1] - data.offsets[n])
    n_labels = layout.n_labels
    alpha, e = np.empty((longest, n_labels)), np.empty((longest, n_labels))
    scale = np.empty(longest)
    for i in range(len(members)):
        n = members[i]
        lo, hi = data.offsets[n], data.offsets[n + 1]
        mine = where[bounds[i] : bounds[i + 1]]
        if _exponentiate(theta, layout, data.observations, sets, factors, lo, hi, e):
            _forward_to(sets, factors, lo, mine[-1], alpha, e, scale)
            _backward_from(sets, factors, lo, hi, mine, data.weights[n], alpha, e, scale, first, second)
        else:
            _by_logarithms(theta, layout, data.observations, sets, lo, hi, mine, data.weights[n], first, second)


@kernel
def _exponentiate(theta, layout, observations, sets, factors, lo, hi, e):
    """e [T, Y] of the whole sequence; False when a step is too wide for scaling."""
    n_labels = layout.n_labels
    unigram_ptr, unigram_code = layout.unigram_ptr, layout.unigram_code
    score, out = np.empty(n_labels), np.empty(n_labels)
    power, high, low = np.empty(n_labels, np.int64), np.empty(LANES), np.empty(LANES)
    power_as_float = power.view(np.float64)
    for t in range(lo, hi):
        for y in range(n_labels):
            score[y] = 0.0
        add_runs(theta, unigram_ptr, unigram_code, observations, t, score)
        if t == lo:
            add_runs(theta, layout.start_ptr, layout.start_code, observations, t, score)
        top, bottom = extremes(score, high, low)
        width = top - bottom + (factors.spread[sets.of_position[t]] if t > lo else 0.0)
        if not width <= SAFE_RANGE:
            return False
        exponentiate(score, top, power, power_as_float, out)
        for y in range(n_labels):
            e[t - lo, y] = out[y]
    return True


@kernel
def _forward_to(sets, factors, lo, last, alpha, e, scale):
    """alpha [T, Y] and scale [T] of the positions lo..last."""
    n_labels = alpha.shape[1]
    slot, dense, begin, end = factors.slot, factors.dense, factors.begin, factors.end
    row, column, entry, of_position = factors.row, factors.column, factors.entry, sets.of_position
    current, following = np.empty(n_labels), np.ones(n_labels)
    for t in range(lo, last + 1):
        if t > lo:
            pass_message(slot, dense, begin, end, row, column, entry, of_position[t], current, following)
        total = 0.0
        for y in range(n_labels):
            following[y] *= e[t - lo, y]
            total += following[y]
        scale[t - lo] = total
        for y in range(n_labels):
            current[y] = following[y] / total
            alpha[t - lo, y] = current[y]


@kernel
def _backward_from(sets, factors, lo, hi, mine, weight, alpha, e, scale, first, second):
    """Backward messages, scaled to sum to 1, from the end down to the first occurrence."""
    n_labels = alpha.shape[1]
    slot, transposed, begin, end = factors.slot, factors.transposed, factors.begin, factors.end
    row, column, entry, of_position = factors.row, factors.column, factors.entry, sets.of_position
    beta, v = np.full(n_labels, 1.0 / n_labels), np.empty(n_labels)
    k = len(mine) - 1
    t = hi - 1
    while k >= 0:
        for y in range(n_labels):
            v[y] = e[t - lo, y] * beta[y]
        repeats = 0
        while k >= 0 and mine[k] == t:
            repeats += 1
            k -= 1
        if repeats:
            total = 0.0
            for y in range(n_labels):
                total += alpha[t - lo, y] * beta[y]
            _add_position(sets, factors, t, lo, repeats, weight, total, alpha, beta, v, scale, first, second)
        if t > lo and k >= 0:
            pass_message(slot, transposed, begin, end, column, row, entry, of_position[t], v, beta)
            beta /= beta.sum()
        t -= 1


@kernel
def _add_position(sets, factors, t, lo, repeats, weight, total, alpha, beta, v, scale, first, second):
    """Marginals at position t into the sums: the feature's value is the number of templates that yield x."""
    n_labels = len(beta)
    base = 0
    for y in range(n_labels):
        add_moment(y, alpha[t - lo, y] * beta[y] / total, repeats, weight, first, second)
    if t == lo:
        base = n_labels
        for y in range(n_labels):
            add_moment(base + y, alpha[0, y] * beta[y] / total, repeats, weight, first, second)
        return
    base = 2 * n_labels
    p = sets.of_position[t]
    d = factors.slot[p]
    unit = 1.0 / (total * scale[t - lo])
    if d < 0:
        _add_sparse(factors, p, alpha[t - lo - 1], v, unit, repeats, weight, base, first, second)
        return
    for i in range(n_labels):
        a = alpha[t - lo - 1, i] * unit
        for y in range(n_labels):
            q = a * factors.dense[d, i, y] * v[y]
            first[base + i * n_labels + y] += weight * repeats * q
            second[base + i * n_labels + y] += weight * repeats * repeats * q * (1.0 - q)


@kernel
def _add_sparse(factors, p, alpha, v, unit, repeats, weight, base, first, second):
    """All pairs as if the factor were 1, then the few whose factor is not are put right."""
    n_labels = len(alpha)
    for i in range(n_labels):
        a = alpha[i] * unit
        for y in range(n_labels):
            q = a * v[y]
            first[base + i * n_labels + y] += weight * repeats * q
            second[base + i * n_labels + y] += weight * repeats * repeats * q * (1.0 - q)
    for k in range(factors.begin[p], factors.end[p]):
        i, y = factors.row[k], factors.column[k]
        plain = alpha[i] * unit * v[y]
        q = plain * (1.0 + factors.entry[k])
        c = base + i * n_labels + y
        first[c] += weight * repeats * (q - plain)
        second[c] += weight * repeats * repeats * (q * (1.0 - q) - plain * (1.0 - plain))


@kernel
def add_moment(code, q, repeats, weight, first, second):
    first[code] += weight * repeats * q
    second[code] += weight * repeats * repeats * q * (1.0 - q)


@kernel
def _by_logarithms(theta, layout, observations, sets, lo, hi, mine, weight, first, second):
    """The same sums for a sequence with extreme scores."""
    n_labels = layout.n_labels
    score, log_alpha = np.empty((hi - lo, n_labels)), np.empty((hi - lo, n_labels))
    log_forward(theta, layout, observations, sets, lo, hi, score, log_alpha)
    log_beta, pairs, terms = np.zeros(n_labels), np.empty(n_labels * n_labels), np.empty(n_labels)
    k = len(mine) - 1
    for t in range(hi - 1, lo - 1, -1):
        repeats = 0
        while k >= 0 and mine[k] == t:
            repeats += 1
            k -= 1
        for y in range(n_labels):
            terms[y] = log_alpha[t - lo, y] + log_beta[y]
        total = log_sum(terms)
        for y in range(n_labels):
            q = np.exp(terms[y] - total)
            add_moment(y, q, repeats, weight, first, second)
            if t == lo:
                add_moment(n_labels + y, q, repeats, weight, first, second)
        if t == lo:
            break
        pair_scores(theta, layout, sets, sets.of_position[t], pairs)
        step = score[t - lo] + log_beta
        for i in range(n_labels):
            for y in range(n_labels):
                terms[y] = pairs[i * n_labels + y] + step[y]
                pairs[i * n_labels + y] = log_alpha[t - 1 - lo, i] + terms[y]
            log_beta[i] = log_sum(terms)
        total = log_sum(pairs)
        for c in range(n_labels * n_labels):
            add_moment(2 * n_labels + c, np.exp(pairs[c] - total), repeats, weight, first, second)
        log_beta -= log_beta.max()
