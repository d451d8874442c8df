"""Training with far more weights than fit the memory: only a working set of them exists.

The virtual problem has every weight of the dense layout. A weight that is zero at the optimum
need not exist, so the solver gets an ordinary layout that holds the working set: weights that are not
zero, and zeros that violate the optimality conditions. Between runs of the solver a scan over
all virtual weights, observation by observation and never stored, finds the zeros with
|gradient| > rho1 that are not in the set (SBCD 5 and 13 at theta_k = 0). When there is none and the solver
is done, the first-order conditions hold for the whole virtual problem.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from espalier.engine.blockwise.blocks import BlockObjective
from espalier.engine.blockwise.factors import BlockState
from espalier.engine.blockwise.gradient import BATCH, add_entries, close_matrix, position_marginal
from espalier.engine.blockwise.kernels import Index
from espalier.engine.chain.chain_lattice import lattice_blocks
from espalier.engine.chain.pair_sets import PairSets, invert, pair_sets
from espalier.engine.data.dataset import Dataset, select
from espalier.engine.errors import EspalierError
from espalier.engine.lattice.decode import forward_backward
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.monitor import OPTIMAL, Result
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import SOLVERS, minimise
from espalier.engine.runtime import threads
from espalier.engine.runtime.inner_loops import add_products
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.threads import balanced
from espalier.engine.weights.layout import BIGRAM, FIRST_ORDER, TRIGRAM, UNIGRAM, Layout, _assemble, _check_kinds

ROUND = 3  # iterations of the solver between two scans
LEAST = 100_000  # violators that may come in after one scan; more when more weights are active
NEAR = 0.7  # a zero of the working set stays while its |gradient| is above this share of rho1
ROOM = 1 << 12  # first room for the violators of one piece


class Scan(NamedTuple):
    """What one pass over all virtual weights finds."""

    gradient: np.ndarray  # of the working set
    family: np.ndarray  # int8, of the violators: 0 unigram, 1 start, 2 bigram
    key: np.ndarray  # int64, observation * codes of the family + code
    excess: np.ndarray  # |gradient| - rho1, above 0


class Occurrences(NamedTuple):
    """Where the V observations occur, M times in all."""

    kinds: np.ndarray  # int64 [V], the families that x has weights of
    ptr: np.ndarray  # int64 [V + 1], occurrences of x
    position: np.ndarray  # int32 [M], those of x whose sets have one matrix stand together


class Wide(NamedTuple):
    """The marginals at the W positions of sequences with scores too extreme for scaling, times their weights."""

    row: np.ndarray  # int64 [T], which of the W a position is, -1 elsewhere
    pairs: np.ndarray  # float64 [W, Y * Y]
    gamma: np.ndarray  # float64 [W, Y]


class Virtual(NamedTuple):
    """What a scan reads; `state` holds the messages of all sequences that are not wide."""

    layout: Layout  # of the working set
    data: Dataset
    sets: PairSets
    index: Index
    state: BlockState
    occurrences: Occurrences
    wide: Wide


class VirtualGradient(NamedTuple):
    """The gradient of the loss at all virtual weights of one observation."""

    unigram: np.ndarray  # float64 [Y]
    start: np.ndarray  # float64 [Y]
    bigram: np.ndarray  # float64 [Y * Y]


class ScanScratch(NamedTuple):
    """Where the marginals of positions wait until those of a BATCH are summed."""

    gamma: np.ndarray  # float64 [Y], of one position
    left: np.ndarray  # float64 [Y]
    right: np.ndarray  # float64 [Y]
    plain: np.ndarray  # float64 [Y * Y], sum of left right^T over the positions of one matrix
    lefts: np.ndarray  # float64 [BATCH, Y]
    rights: np.ndarray  # float64 [BATCH, Y]
    order: np.ndarray  # int64 [BATCH], 0, 1, ...


class Violators(NamedTuple):
    """The violators of one piece, as in `Scan`, or room for them."""

    family: np.ndarray  # int8
    key: np.ndarray  # int64
    excess: np.ndarray  # float64


def minimise_virtual(
    dataset: Dataset,
    n_labels: int,
    kinds,
    penalty: ElasticNet,
    solver: str = "sbcd",
    sweeps: int = 20,
    start: bool = True,
    tolerance: float = 1e-4,
    sparse: str = "auto",
    on_iteration: Callable[[dict, np.ndarray], bool | None] | None = None,
) -> tuple[Layout, Result]:
    """Minimise over all weights of `dense_layout(n_labels, kinds, start)`; the layout returned holds those that exist.

    `on_iteration` hears each iteration with the weights of the working set at that time.
    `sweeps` limits the iterations of the solver over all rounds.
    """
    if not penalty.rho1 > 0.0:
        raise EspalierError(f"rho1 is {penalty.rho1}: expected more than 0, which keeps most virtual weights zero")
    kinds = _check_kinds(kinds, n_labels)
    if np.any(kinds & TRIGRAM):
        raise EspalierError("virtual weights are those of labels and of pairs of them: leave T templates out")
    layout, theta = _layout([np.empty(0, np.int64)] * 3, n_labels, len(kinds)), np.empty(0)
    objective = BlockObjective(dataset, layout, sparse)
    trace, evaluations, done, reason = [], 0, 0, None
    largest = OPTIMAL * tolerance * _largest_count(dataset)
    settled = None  # why the solver stopped, when it was not for want of iterations
    while True:
        found = scan(objective, theta, kinds, penalty.rho1, start)
        worst = float(found.excess.max(initial=0.0))
        if not trace:
            loss = objective.value(theta)
            norm = max(worst, penalty.optimality(theta, found.gradient))
            trace.append(_first_line(objective, penalty, theta, loss, norm))
            if on_iteration and on_iteration(trace[0], theta):
                reason = "stopped"
        if reason is None and worst <= largest and (settled or not trace[-1]["gradient_norm"] > largest):
            reason = settled or "optimal"
        if reason or done >= sweeps:
            break
        most = max(LEAST, np.count_nonzero(theta))
        layout, theta = _grow(layout, theta, found, penalty.rho1, most)
        objective = BlockObjective(dataset, layout, sparse)
        listener, heard = _listener(on_iteration, done)
        result = minimise(
            solver, _for_solver(solver, objective), penalty, theta, min(ROUND, sweeps - done), tolerance,
            on_iteration=listener,
        )  # fmt: skip
        theta = result.theta
        trace += [line | {"evaluations": line["evaluations"] + evaluations} for line in heard[1:]]
        evaluations += result.evaluations
        done += result.iterations
        settled = result.stop_reason if result.stop_reason not in ("max_iterations", "stopped") else None
        if len(found.excess) <= most and _flat([line["objective"] for line in trace], tolerance):
            reason = "converged"
        if result.stop_reason == "stopped":
            reason = "stopped"
    trace[-1]["gradient_norm"] = max(worst, trace[-1]["gradient_norm"])
    value = trace[-1]["objective"]
    return layout, Result(theta, value, reason or "max_iterations", done, evaluations, trace)


def _flat(values: list[float], tolerance: float) -> bool:
    """Over two rounds, so with what two scans have brought, the objective fell by no more than the tolerance."""
    return len(values) > 2 * ROUND and values[-1 - 2 * ROUND] - values[-1] <= tolerance * max(1.0, abs(values[-1]))


def _for_solver(solver: str, objective: BlockObjective):
    """Solvers that neither go by blocks nor see the gradient alone ask more of an objective."""
    if solver not in SOLVERS or SOLVERS[solver].fits(objective.offers):
        return objective
    return ChainObjective(objective.dataset, objective.layout, objective.sparse)


def _largest_count(dataset: Dataset) -> float:
    """No observed count is larger than that of the commonest label of the commonest observation: a bound by labels."""
    per_token = np.repeat(dataset.weights, np.diff(dataset.offsets))
    return float(np.bincount(dataset.labels, per_token).max(initial=1.0))


def _first_line(objective, penalty, theta, loss, norm) -> dict:
    return {
        "iteration": 0,
        "objective": loss + penalty.value(theta),
        "loss": loss,
        "gradient_norm": norm,
        "evaluations": 1,
    } | objective.active(theta)


def _listener(on_iteration, done: int):
    """A callback that renumbers the iterations of one round and keeps their records."""
    heard = []

    def listen(line, theta):
        line = line | {"iteration": line["iteration"] + done}
        heard.append(line)
        return bool(on_iteration and len(heard) > 1 and on_iteration(line, theta))

    return listen, heard


def _layout(keys: list[np.ndarray], n_labels: int, n_observations: int) -> Layout:
    """The layout of sorted keys observation * codes + code of the three families."""
    runs = []
    for name, key in zip(FIRST_ORDER, keys, strict=True):
        codes = n_labels**2 if name == "bigram" else n_labels
        runs.append((np.bincount(key // codes, minlength=n_observations), key % codes))
    return _assemble(n_labels, runs)


def _keys(layout: Layout) -> list[np.ndarray]:
    """The keys of a layout's slots, family by family."""
    keys = []
    for name in FIRST_ORDER:
        ptr, code, full = layout.family(name)
        owner = np.repeat(np.arange(layout.n_observations, dtype=np.int64), np.diff(ptr))
        keys.append(owner * full + code)
    return keys


def _grow(layout: Layout, theta: np.ndarray, found: Scan, rho1: float, most: int):
    """The next working set: what is not zero or nearly violates, and the `most` worst violators; theta in its order."""
    keep = (theta != 0.0) | (np.abs(found.gradient) > NEAR * rho1)
    worst = np.argsort(-found.excess, kind="stable")[:most]
    ends = layout.ends()
    keys, weights = [], []
    for f, old in enumerate(_keys(layout)):
        mine = slice(ends[f], ends[f + 1])
        new = found.key[worst][found.family[worst] == f]
        key = np.concatenate([old[keep[mine]], new])
        weight = np.concatenate([theta[mine][keep[mine]], np.zeros(len(new))])
        order = np.argsort(key, kind="stable")
        keys.append(key[order])
        weights.append(weight[order])
    return _layout(keys, layout.n_labels, layout.n_observations), np.concatenate(weights)


def scan(objective: BlockObjective, theta: np.ndarray, kinds: np.ndarray, rho1: float, start: bool) -> Scan:
    """The gradient of the loss at all virtual weights: kept for the working set, elsewhere only where above rho1."""
    data, layout, sets = objective.dataset, objective.layout, objective.sets
    objective.blocks.assign(theta)
    objective.blocks.fill()
    state, index = objective.blocks.state, objective.blocks.index
    wide = np.flatnonzero(state.messages.alpha_until < data.offsets[1:])  # too wide for scaling
    gradient = np.zeros(layout.size)
    problem = Virtual(
        layout=layout,
        data=data,
        sets=sets,
        index=index,
        state=state,
        occurrences=_occurrences(objective, kinds),
        wide=_wide(theta, data, layout, wide),
    )
    pieces = balanced(np.diff(problem.occurrences.ptr))
    parts = threads.run(lambda run: _scan_piece(problem, *run, rho1, start, gradient), pieces)
    if not parts:
        return Scan(gradient, np.empty(0, np.int8), np.empty(0, np.int64), np.empty(0))
    return Scan(gradient, *(np.concatenate(column) for column in zip(*parts, strict=True)))


def _occurrences(objective: BlockObjective, kinds: np.ndarray) -> Occurrences:
    """Those of one matrix together, so that their pairs are summed at once."""
    observations, of_position = objective.dataset.observations, objective.sets.of_position
    ptr, entry = invert(observations.ravel(), len(kinds))
    position = entry // max(1, observations.shape[1])
    base = np.append(objective.blocks.sharing.base, np.int32(-1))[of_position[position]]
    order = np.lexsort((base, np.repeat(np.arange(len(kinds)), np.diff(ptr))))
    return Occurrences(kinds=kinds.astype(np.int64), ptr=ptr, position=position[order])


def _wide(theta, data: Dataset, layout: Layout, wide: np.ndarray) -> Wide:
    """w * the marginals of the sequences `wide`."""
    some, n_labels = select(data, wide), layout.n_labels
    gamma, pairs = np.empty((len(some.labels), n_labels)), np.empty((len(some.labels), n_labels, n_labels))
    for block in lattice_blocks(some, layout, theta, pair_sets(some, layout)):
        forward_backward(block.lattice, gamma[block.positions], pairs[block.positions])
    weight = np.repeat(some.weights, np.diff(some.offsets))
    gamma *= weight[:, None]
    pairs *= weight[:, None, None]
    row, is_wide = np.full(len(data.labels), -1, np.int64), np.zeros(len(data.weights), bool)
    is_wide[wide] = True
    row[np.repeat(is_wide, np.diff(data.offsets))] = np.arange(len(gamma))
    return Wide(row=row, pairs=pairs.reshape(len(pairs), n_labels**2), gamma=gamma)


@kernel
def _scan_piece(problem, begin, end, rho1, start, gradient):
    """The violators among the observations begin..end - 1; `gradient` at their working set."""
    layout, occurrences = problem.layout, problem.occurrences
    sums, scratch, room, count = _make_sums(layout.n_labels), _make_scratch(layout.n_labels), _make_room(ROOM), 0
    for x in range(begin, end):
        if not _may_matter(problem, x, rho1):
            continue
        _sum_observation(problem, x, sums, scratch)
        carries = occurrences.kinds[x]
        for f in range(3):
            values = sums.unigram if f == 0 else sums.start if f == 1 else sums.bigram
            slots = layout.unigram_ptr if f == 0 else layout.start_ptr if f == 1 else layout.bigram_ptr
            code = layout.unigram_code if f == 0 else layout.start_code if f == 1 else layout.bigram_code
            for s in range(slots[x], slots[x + 1]):
                c = code[s - slots[0]]
                gradient[s] = values[c]
                values[c] = 0.0  # no violator: it is in the working set
            if not carries & (UNIGRAM if f == 0 else BIGRAM) or (f == 1 and not start):
                continue
            over = 0
            for c in range(len(values)):
                over += abs(values[c]) > rho1
            while count + over > len(room.key):
                room = _doubled(room)
            if over:
                count = _collect(values, f, x, rho1, count, room)
    return Violators(room.family[:count], room.key[:count], room.excess[:count])


@kernel
def _make_sums(n_labels):
    return VirtualGradient(np.empty(n_labels), np.empty(n_labels), np.empty(n_labels * n_labels))


@kernel
def _make_scratch(n_labels):
    return ScanScratch(
        np.empty(n_labels), np.empty(n_labels), np.empty(n_labels), np.zeros(n_labels * n_labels),
        np.empty((BATCH, n_labels)), np.empty((BATCH, n_labels)), np.arange(BATCH),
    )  # fmt: skip


@kernel
def _make_room(size):
    return Violators(np.empty(size, np.int8), np.empty(size, np.int64), np.empty(size))


@kernel
def _may_matter(problem, x, rho1):
    """Whether x has a weight in the working set or may violate: |gradient| is at most the weight of all occurrences."""
    layout, occurrences = problem.layout, problem.occurrences
    weights, sequence_of = problem.data.weights, problem.index.sequence_of
    total = 0.0
    for k in range(occurrences.ptr[x], occurrences.ptr[x + 1]):
        total += weights[sequence_of[occurrences.position[k]]]
    return (
        not total <= rho1
        or layout.unigram_ptr[x + 1] > layout.unigram_ptr[x]
        or layout.start_ptr[x + 1] > layout.start_ptr[x]
        or layout.bigram_ptr[x + 1] > layout.bigram_ptr[x]
    )


@kernel
def _sum_observation(problem, x, sums, scratch):
    """The gradient of the loss at all virtual weights of x: expected less observed counts into `sums`."""
    data, index, state, occurrences, wide = (
        problem.data, problem.index, problem.state, problem.occurrences, problem.wide
    )  # fmt: skip
    offsets, weights, labels, of_position = data.offsets, data.weights, data.labels, problem.sets.of_position
    slot, dense = state.factors.slot, state.factors.dense
    single, first, pair = sums.unigram, sums.start, sums.bigram
    gamma, left, right, plain = scratch.gamma, scratch.left, scratch.right, scratch.plain
    lefts, rights, order = scratch.lefts, scratch.rights, scratch.order
    n_labels, bigram = len(single), occurrences.kinds[x] & BIGRAM
    single[:] = 0.0
    first[:] = 0.0
    pair[:] = 0.0
    used, matrix = np.int64(0), np.int64(-1)
    for k in range(occurrences.ptr[x], occurrences.ptr[x + 1]):
        t = occurrences.position[k]
        n = index.sequence_of[t]
        if weights[n] == 0.0:
            continue
        at_start = t == offsets[n]
        w = wide.row[t]
        if w >= 0:
            for y in range(n_labels):
                gamma[y] = wide.gamma[w, y]
            if bigram and not at_start:
                for c in range(len(pair)):
                    pair[c] += wide.pairs[w, c]
        else:
            position_marginal(state, index, t, weights[n], at_start, gamma, left, right)
            if bigram and not at_start:
                p = of_position[t]
                if used == BATCH or slot[p] != matrix:
                    add_products(order, order, 0, used, lefts, rights, 0, plain)
                    used = 0
                if slot[p] != matrix:
                    close_matrix(dense, matrix, plain, pair)
                    matrix = slot[p]
                add_entries(state, p, matrix, left, right, pair)
                for y in range(n_labels):
                    lefts[used, y], rights[used, y] = left[y], right[y]
                used += 1
        gamma[labels[t]] -= weights[n]
        for y in range(n_labels):
            single[y] += gamma[y]
        if at_start:
            for y in range(n_labels):
                first[y] += gamma[y]
        else:
            pair[labels[t - 1] * n_labels + labels[t]] -= weights[n]
    add_products(order, order, 0, used, lefts, rights, 0, plain)
    close_matrix(dense, matrix, plain, pair)


@kernel
def _doubled(room):
    """Twice the room, with what is in it."""
    n = len(room.key)
    more = _make_room(2 * n)
    more.family[:n], more.key[:n], more.excess[:n] = room.family, room.key, room.excess
    return more


@kernel
def _collect(values, f, x, rho1, count, room):
    """Put the violators among the values of family f of x behind the `count` in the room; how many there are then."""
    for c in range(len(values)):
        if abs(values[c]) > rho1:
            room.family[count], room.key[count] = f, np.int64(x) * len(values) + c
            room.excess[count] = abs(values[c]) - rho1
            count += 1
    return count
