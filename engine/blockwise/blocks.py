"""The blocks of blockwise descent: one block is all weights of one observation value x (SBCD 4.4).

Only the sequences that contain x are visited, and in each only the stretch from where
messages are still right to the occurrences of x. See `engine.blockwise.kernels`.
"""

import functools
import operator

import numpy as np

from espalier.engine.blockwise.factors import (
    Bases,
    BlockState,
    Entries,
    EntryLimits,
    Messages,
    Scores,
    SetFactors,
    Sharing,
    renew_bases,
    renew_rows,
    renew_sets,
    stale_sets,
)
from espalier.engine.blockwise.gradient import block_gradient
from espalier.engine.blockwise.kernels import (
    Hot,
    Index,
    evaluate_hot,
    fill_messages,
    heat_piece,
    hessian_piece,
    make_hot,
)
from espalier.engine.chain.pair_sets import (
    PairSets,
    check_labels,
    check_observations,
    invert,
    occurrences,
    pair_sets,
    pointers,
    refuse_triples_in,
)
from espalier.engine.chain.scores import density
from espalier.engine.data.dataset import Dataset, every_observation
from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import active_weights, observed_counts
from espalier.engine.runtime import threads
from espalier.engine.runtime.threads import balanced
from espalier.engine.runtime.vectors import dot
from espalier.engine.weights.layout import Layout

PIECE = 256  # occurrences of one block that are summed as one piece; fixed, so that sums have one order
SETS_AT_ONCE, ROWS_AT_ONCE = 64, 1024  # renewed as one piece of work
THIN_SHARE = 0.04  # of non-zero pairs up to which a matrix that is in the cache is slower than entries
RARE, RARE_SHARE = 64, 0.2  # a set of fewer positions finds its matrix in no cache, so it is sparse up to this share
BASES = 1024  # at most, so that their matrices stay in a cache
HEAVY = 0.01  # share of all pairs that an observation must have weights for to be in a base
DENSE_ROOM = 2 << 30  # bytes of matrices of factors; sets beyond it, the rarest, stay sparse


class Blocks:
    """The blocks of a chain objective at theta, which is changed in place as blocks move."""

    in_parts = False  # all sequences are in one place

    def __init__(self, objective, theta: np.ndarray):
        self.theta, self.observed = theta, objective.observed
        self.data, self.layout, self.sets = objective.dataset, objective.layout, objective.sets
        self.count = self.layout.n_observations
        self.sharing = share_bases(self.sets, self.layout)
        self.index = _index(self.data, self.layout, self.sets, self.sharing)
        self.state = _state(self.data, self.layout, self.sets, self.sharing, self.index, objective.sparse)
        self.restart()

    def assign(self, theta: np.ndarray) -> None:
        """Go to another theta."""
        if not np.array_equal(theta, self.theta):
            self.theta[:] = theta
            self.restart()

    def restart(self) -> None:
        """Bring everything up to theta, which may have changed anywhere."""
        self._renew_rows(np.arange(len(self.index.example), dtype=np.int32))
        self._renew_bases(np.arange(len(self.state.bases.thin), dtype=np.int32))
        self._renew_sets(np.arange(len(self.sets.ptr) - 1, dtype=np.int32))
        self.state.messages.alpha_until[:] = self.data.offsets[:-1]
        self.state.messages.beta_from[:] = self.data.offsets[1:]

    def refresh(self, x: int) -> None:
        """Bring all that depends on the weights of block x up to theta."""
        index, sharing = self.index, self.sharing
        self._renew_rows(index.rows[index.rows_ptr[x] : index.rows_ptr[x + 1]])
        bases = sharing.bases[sharing.bases_ptr[x] : sharing.bases_ptr[x + 1]]
        if len(bases):
            self._renew_bases(bases)
            self._renew_sets(stale_sets(sharing, self.state, bases))
        self._renew_sets(sharing.sets[sharing.sets_ptr[x] : sharing.sets_ptr[x + 1]])

    def _renew_rows(self, rows: np.ndarray) -> None:
        arguments = self.theta, self.layout, self.data, self.index, self.state
        _in_turn(lambda some: renew_rows(*arguments, some), rows, ROWS_AT_ONCE)

    def _renew_bases(self, bases: np.ndarray) -> None:
        _in_turn(lambda some: renew_bases(self.theta, self.layout, self.sharing, self.state, some), bases, 1)

    def _renew_sets(self, sets: np.ndarray) -> None:
        arguments = self.theta, self.layout, self.sets, self.sharing, self.state
        _in_turn(lambda some: renew_sets(*arguments, some), sets, SETS_AT_ONCE)

    def fill(self) -> float:
        """Carry the messages through all sequences; the sum of w log Z."""
        arguments = self.theta, self.layout, self.data, self.sets, self.index, self.state
        return sum(threads.run(lambda run: fill_messages(*arguments, *run), balanced(np.diff(self.data.offsets))))

    def expectations(self) -> tuple[float, np.ndarray]:
        """(sum of w log Z, expected counts of all weights)."""
        arguments = self.theta, self.layout, self.data, self.sets, self.index, self.state
        expected = np.zeros(self.layout.size)
        loss = self.fill()
        n_pairs = self.layout.n_labels**2
        costs = 4 * self.layout.n_labels + np.minimum(2 * np.diff(self.layout.bigram_ptr), n_pairs // 2)
        threads.run(lambda run: block_gradient(*arguments, *run, expected), balanced(np.diff(self.index.ptr) * costs))
        return loss, expected

    def slots(self, x: int) -> np.ndarray:
        return slots_of(self.layout, x)

    def sequences(self, x: int) -> np.ndarray:
        """The sequences with a weight that contain x."""
        return np.unique(self.index.sequence_of[self.index.position[self.index.ptr[x] : self.index.ptr[x + 1]]])

    def visit(self, x: int) -> list[Hot]:
        """What enters the occurrences of x; the block may move from now on, and no other until the visit is over."""

        def piece(i):
            hot = make_hot(self.layout.n_labels, self.index.piece[i + 1] - self.index.piece[i])
            heat_piece(self.layout, self.data, self.sets, self.index, self.state, i, hot)
            return hot

        return threads.run(piece, range(self.index.piece_ptr[x], self.index.piece_ptr[x + 1]))

    def evaluate(self, x: int, hot: list[Hot], code: np.ndarray, derive: bool = True):
        """(sum of w log Z over the sequences of x, first, second) in a visit of x; see `evaluate_hot`."""
        size = 2 * self.layout.n_labels + len(code) if derive else 0
        begin = self.index.piece_ptr[x]

        def piece(i):
            first, second = np.zeros(size), np.zeros(size)
            loss = evaluate_hot(
                self.theta, self.layout, self.data, self.sets, self.index, self.state, begin + i, hot[i], code,
                derive, first, second,
            )  # fmt: skip
            return loss, first, second

        return [
            functools.reduce(operator.add, parts) for parts in zip(*threads.run(piece, range(len(hot))), strict=True)
        ]

    def hessian(self, hot: list[Hot], at: np.ndarray, code: np.ndarray) -> np.ndarray:
        """The block Hessian of THESIS appendix D after an evaluation with derivatives; empty if it cannot be had."""

        def piece(part):
            matrix = np.zeros((len(at), len(at)))
            return hessian_piece(self.layout, self.state, part, at, code, matrix), matrix

        parts = threads.run(piece, hot)
        if not all(known for known, _ in parts):
            return np.zeros((0, 0))
        return functools.reduce(operator.add, [matrix for _, matrix in parts])


def _in_turn(function, items: np.ndarray, size: int) -> None:
    """The function for runs of `size` items, on the pool."""
    threads.run(lambda at: function(items[at : at + size]), range(0, len(items), size))


def slots_of(layout: Layout, x: int) -> np.ndarray:
    """The slots of block x: unigram, start, bigram."""
    runs = (layout.unigram_ptr, layout.start_ptr, layout.bigram_ptr)
    return np.concatenate([np.arange(ptr[x], ptr[x + 1]) for ptr in runs])


def share_bases(sets: PairSets, layout: Layout) -> Sharing:
    """Bases of those observations that save most entries of sets: as many as leave no more than BASES bases."""
    n_sets, n_observations = len(sets.ptr) - 1, layout.n_observations
    owner = np.repeat(np.arange(n_sets, dtype=np.int32), np.diff(sets.ptr))
    pairs = np.diff(layout.bigram_ptr)
    saved = np.bincount(sets.observation, minlength=n_observations) * pairs
    order = np.argsort(-saved, kind="stable")
    order = order[(saved[order] > 0) & ((pairs[order] >= HEAVY * layout.n_labels**2) | (n_sets <= BASES))]
    rank = np.full(n_observations, n_observations)
    rank[order] = np.arange(len(order))
    rank = rank[sets.observation]

    def of_first(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        common = rank < count
        return common, *_distinct_runs(np.where(common, sets.observation, -1), owner, n_sets)

    fit, most = 0, len(order) + 1  # so many leave few enough bases, so many may not
    while most - fit > 1:
        count = (fit + most) // 2
        fit, most = (count, most) if len(of_first(count)[2]) <= BASES else (fit, count)
    common, base, first = of_first(fit)
    chosen = np.zeros(n_sets, bool)
    chosen[first] = True
    in_bases, beyond = common & chosen[owner], ~common
    base_ptr = pointers(base[owner[in_bases]], len(first))
    base_member = sets.observation[in_bases][np.argsort(base[owner[in_bases]], kind="stable")]
    by_base = invert(base_member, n_observations)
    bases = np.repeat(np.arange(len(first), dtype=np.int32), np.diff(base_ptr))[by_base.entry]
    by_rest = invert(sets.observation[beyond], n_observations)
    held = invert(base, len(first))
    bases_ptr, bases = _without_repeats(by_base.ptr, bases)
    sets_ptr, in_sets = _without_repeats(by_rest.ptr, owner[beyond][by_rest.entry])
    return Sharing(
        base=base,
        base_ptr=base_ptr,
        base_member=base_member,
        rest_ptr=pointers(owner[beyond], n_sets),
        rest_member=sets.observation[beyond],
        bases_ptr=bases_ptr,
        bases=bases,
        sets_ptr=sets_ptr,
        sets=in_sets,
        held_ptr=held.ptr,
        held=held.entry,
    )


def _distinct_runs(members: np.ndarray, owner: np.ndarray, n_sets: int) -> tuple[np.ndarray, np.ndarray]:
    """(number, first): sets with the same members have one number; `first` set of each. A member of -1 is none."""
    number = np.zeros(n_sets, np.int64)
    kept = members >= 0
    members, owner = members[kept].astype(np.int64), owner[kept]
    place = np.arange(len(owner)) - pointers(owner, n_sets)[owner]
    for depth in range(int(place.max(initial=-1)) + 1):
        here = place == depth
        next_member = np.zeros(n_sets, np.int64)
        next_member[owner[here]] = members[here] + 1
        pairs = np.stack([number, next_member])
        number = np.unique(pairs[0] * (int(members.max(initial=0)) + 2) + pairs[1], return_inverse=True)[1]
    _, first, number = np.unique(number, return_index=True, return_inverse=True)
    return number.astype(np.int32), first


def _index(data: Dataset, layout: Layout, sets: PairSets, sharing: Sharing) -> Index:
    """The occurrences of each block in sequences with a weight, cut into pieces; distinct rows of observations."""
    n_observations, lengths = layout.n_observations, np.diff(data.offsets)
    sequence_of = np.repeat(np.arange(len(data.weights), dtype=np.int32), lengths)
    ptr, position, repeats = occurrences(data, n_observations, (data.weights > 0)[sequence_of])
    owner = np.repeat(np.arange(n_observations), np.diff(ptr))
    piece_of = _pieces(owner, sequence_of[position], ptr)
    cuts = np.flatnonzero(np.diff(piece_of, prepend=-1))
    piece_ptr = np.searchsorted(cuts, ptr)
    piece = np.append(cuts, len(position))
    row_of, example = _distinct_rows(data, layout)
    set_of = sets.of_position[position]
    base_of = np.append(sharing.base, np.int32(-1))[set_of]  # the last entry serves a first position
    order = np.lexsort((row_of[position], repeats, set_of, base_of, ~_alone(owner, sequence_of[position]), piece_of))
    rank = np.empty(len(position), np.int32)
    rank[order] = np.arange(len(position)) - piece[piece_of[order]] if len(position) else 0
    rows_ptr, rows = _holders(every_observation(data)[example], n_observations)
    return Index(
        ptr=ptr,
        position=position,
        repeats=repeats,
        rank=rank,
        piece_ptr=piece_ptr.astype(np.int64),
        piece=piece.astype(np.int64),
        sequence_of=sequence_of,
        row_of=row_of,
        example=example,
        rows_ptr=rows_ptr,
        rows=rows,
    )


def _pieces(owner: np.ndarray, sequence: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    """The piece of each occurrence; no sequence of a block is divided."""
    if not len(owner):
        return np.empty(0, np.int64)
    starts = np.ones(len(owner), bool)
    starts[1:] = (np.diff(owner) != 0) | (np.diff(sequence) != 0)
    first = np.maximum.accumulate(np.where(starts, np.arange(len(owner)), 0))
    within = (first - ptr[owner]) // PIECE
    changes = np.zeros(len(owner), np.int64)
    changes[1:] = (np.diff(owner) != 0) | (np.diff(within) != 0)
    return np.cumsum(changes)


def _alone(owner: np.ndarray, sequence: np.ndarray) -> np.ndarray:
    """Whether an occurrence is the only one of its block in its sequence."""
    alone = np.ones(len(owner), bool)
    same = (np.diff(owner) == 0) & (np.diff(sequence) == 0)
    alone[1:] &= ~same
    alone[:-1] &= ~same
    return alone


def _distinct_rows(data: Dataset, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Positions with the same observations have the same scores, but that a first position has start weights."""
    code = np.zeros(len(data.labels), np.int64)
    code[data.offsets[:-1]] = 1
    for column in every_observation(data).T:
        code = np.unique(code * (layout.n_observations + 1) + column + 1, return_inverse=True)[1]
    for column in data.values.T:
        level, value = np.unique(column, return_inverse=True)
        code = np.unique(code * len(level) + value, return_inverse=True)[1]
    _, example, row_of = np.unique(code, return_index=True, return_inverse=True)
    return row_of.astype(np.int32), example.astype(np.int32)


def _holders(table: np.ndarray, n_keys: int) -> tuple[np.ndarray, np.ndarray]:
    """For each key the rows of the table that hold it."""
    flat = invert(table.ravel(), n_keys)
    return _without_repeats(flat.ptr, (flat.entry // max(1, table.shape[1])).astype(np.int32))


def _without_repeats(ptr: np.ndarray, entry: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Runs of ascending entries, each entry once in its run."""
    owner = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    keep = np.ones(len(entry), bool)
    keep[1:] = (np.diff(owner) != 0) | (np.diff(entry) != 0)
    return pointers(owner[keep], len(ptr) - 1), entry[keep]


def _state(data: Dataset, layout: Layout, sets: PairSets, sharing: Sharing, index: Index, sparse: str) -> BlockState:
    """Room for what follows theta."""
    n_labels, n_sets, n_rows = layout.n_labels, len(sets.ptr) - 1, len(index.example)
    n_bases = len(sharing.held_ptr) - 1
    used = np.bincount(sets.of_position[sets.of_position >= 0], minlength=n_sets)
    limits = _limits(used, n_bases, n_labels**2, sparse)
    factors = _factors(used, n_bases, n_labels)
    return BlockState(
        scores=Scores(e=np.empty((n_rows, n_labels)), top=np.empty(n_rows), width=np.empty(n_rows)),
        limits=limits,
        bases=Bases(thin=np.zeros(n_bases, bool), shift=np.zeros(n_bases), spread=np.zeros(n_bases)),
        factors=factors,
        entries=_entries(layout, sets, limits, factors.place),
        messages=_messages(data, n_labels),
    )


def _limits(used: np.ndarray, n_bases: int, n_pairs: int, sparse: str) -> EntryLimits:
    """For sets that so many positions have."""
    thin, rare = (THIN_SHARE, RARE_SHARE) if sparse == "auto" else (density(sparse), density(sparse))
    return EntryLimits(
        whole=(np.where(used < RARE, rare, thin) * n_pairs).astype(np.int64),
        rest=np.full(len(used), rare * n_pairs).astype(np.int64),
        base=np.full(n_bases, thin * n_pairs).astype(np.int64),
    )


def _factors(used: np.ndarray, n_bases: int, n_labels: int) -> SetFactors:
    """Places for matrices of the sets that most positions have; pages of those that no set uses are never touched."""
    n_sets = len(used)
    room = min(n_sets, max(1, DENSE_ROOM // (8 * n_labels**2)))
    place = np.full(n_sets, -1, np.int32)
    place[np.sort(np.argsort(-used, kind="stable")[:room])] = n_bases + np.arange(room)
    return SetFactors(
        place=place,
        slot=np.full(n_sets, -1, np.int32),
        shift=np.zeros(n_sets),
        spread=np.zeros(n_sets),
        rest_spread=np.zeros(n_sets),
        dense=np.empty((n_bases + room, n_labels, n_labels)),
    )


def _entries(layout: Layout, sets: PairSets, limits: EntryLimits, place: np.ndarray) -> Entries:
    """Room for as many entries as a set can have before it takes its own matrix, if it has a place for one."""
    runs = np.concatenate([[0], np.cumsum(np.diff(layout.bigram_ptr)[sets.observation])])
    lengths = np.minimum(runs[sets.ptr[1:]] - runs[sets.ptr[:-1]], layout.n_labels**2)
    most = np.maximum(np.maximum(limits.whole, limits.rest), 0)
    lengths = np.where(place >= 0, np.minimum(lengths, most), lengths)
    end = np.cumsum(lengths).astype(np.int64)
    size = int(end[-1]) if len(end) else 0
    return Entries(
        begin=end - lengths,
        end=end,
        row=np.empty(size, np.int32),
        column=np.empty(size, np.int32),
        value=np.empty(size),
    )


def _messages(data: Dataset, n_labels: int) -> Messages:
    """Room for messages, none of which is known."""
    tokens = len(data.labels)
    return Messages(
        alpha=np.empty((tokens, n_labels)),
        beta=np.empty((tokens, n_labels)),
        scale=np.empty(tokens),
        alpha_level=np.empty(tokens),
        beta_level=np.empty(tokens),
        alpha_until=data.offsets[:-1].copy(),
        beta_from=data.offsets[1:].copy(),
    )


class BlockObjective:
    """The same loss as ChainObjective's with what blocks keep: for layouts that hold few pairs of many observations.

    Nothing of the size of a matrix of labels is kept for each set of observations.
    """

    offers = frozenset({"gradient", "value", "counts", "active", "blocks"})

    def __init__(self, dataset: Dataset, layout: Layout, sparse: str = "auto"):
        refuse_triples_in(layout, "blockwise descent")
        check_observations(dataset, layout)
        check_labels(dataset.labels, layout)
        if len(dataset.token_weights):
            raise EspalierError("virtual weights cannot be trained with token weights: use ChainObjective")
        if dataset.valued.shape[1]:
            raise EspalierError("virtual weights cannot be trained with real values: use ChainObjective")
        self.dataset, self.layout, self.sparse, self.size = dataset, layout, sparse, layout.size
        self.sets, self.observed = pair_sets(dataset, layout), observed_counts(dataset, layout)
        self.blocks = Blocks(self, np.zeros(layout.size))

    def blocks_at(self, theta: np.ndarray) -> Blocks:
        """The blocks, gone to theta; there is one set of them."""
        self.blocks.assign(theta)
        return self.blocks

    def value(self, theta: np.ndarray) -> float:
        return self.value_and_gradient(theta)[0]

    def value_and_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        self.blocks.assign(theta)
        loss, expected = self.blocks.expectations()
        return loss - dot(theta, self.observed), expected - self.observed

    def active(self, theta: np.ndarray) -> dict[str, int]:
        return active_weights(self.layout, theta)
