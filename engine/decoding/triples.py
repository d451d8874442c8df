"""Answers of a chain with weights for triples of labels: as `decode` has them for one without.

Marginals and log Z without limits go by the scaled recursions of training, all else over lattices with scores of
triples. Every labelling has its probability, also one with triples that training has not seen.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from espalier.engine.chain.chain_lattice import checked_sets, lattice_blocks
from espalier.engine.chain.column_groups import no_composites
from espalier.engine.chain.pair_sets import check_labels, distinct_sets
from espalier.engine.chain.posteriors import in_lockstep
from espalier.engine.chain.scores import density, make_factors
from espalier.engine.chain.triple_posteriors import partitions, scaled_marginals
from espalier.engine.chain.triple_sets import make_entries, scored_triples, seen_pairs
from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.labels.scheme import Transitions
from espalier.engine.lattice import second_order
from espalier.engine.lattice.blocks import LatticeBlock, in_turn
from espalier.engine.lattice.decode import NBest
from espalier.engine.lattice.detours import Detours, detours
from espalier.engine.lattice.limits import Limits, make_limits
from espalier.engine.lattice.second_order import Triples
from espalier.engine.weights.layout import Layout


class TripleChain:
    """Data under weights theta."""

    def __init__(self, dataset: Dataset, layout: Layout, theta: np.ndarray):
        self.data, self.layout, self.theta = dataset, layout, theta
        self.sets = checked_sets(dataset, layout, theta)
        self.triples = distinct_sets(dataset, layout.trigram_ptr, 2)
        self.seen = seen_pairs(layout)
        self.entries = make_entries(theta, layout, self.triples, self.seen)

    def scored(self) -> Triples:
        """The scored triples of all positions."""
        return scored_triples(self.entries, self.triples.of_position, self.layout.n_labels)

    def blocks(self) -> Iterator[LatticeBlock]:
        return lattice_blocks(self.data, self.layout, self.theta, self.sets)

    def in_turn(self, function: Callable, limits: Limits | None = None) -> Iterator[tuple[LatticeBlock, Any]]:
        """(block, function(lattice, triples) under the limits) of the lattices of runs of sequences."""
        scored = self.scored()
        for block in self.blocks():
            here = scored._replace(which=scored.which[block.positions])
            yield from in_turn(lambda lattice, here=here: function(lattice, here), [block], limits)


def log_partition(
    dataset: Dataset, layout: Layout, theta: np.ndarray, allowed=None, transitions: Transitions | None = None
) -> np.ndarray:
    """log Z(x^n) of each sequence, float64 [N]."""
    chain, limits = TripleChain(dataset, layout, theta), make_limits(dataset, layout.n_labels, allowed, transitions)
    if limits is None:
        factors = make_factors(theta, layout, chain.sets, "dense")
        schedule = in_lockstep(dataset, layout, chain.sets)
        return partitions(theta, layout, chain.entries, chain.seen, factors, dataset, chain.sets, chain.triples,
                          schedule, no_composites(dataset))  # fmt: skip
    log_z = np.empty(len(dataset.weights))
    for block, part in chain.in_turn(second_order.log_partition, limits):
        log_z[block.sequences] = part
    return log_z


def sequence_score(dataset: Dataset, layout: Layout, theta: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Score of one labelling of each sequence, float64 [N]."""
    check_labels(labels, layout)
    chain, scores, of = TripleChain(dataset, layout, theta), np.empty(len(dataset.weights)), labels
    scored = chain.scored()
    for block in chain.blocks():
        here = scored._replace(which=scored.which[block.positions])
        scores[block.sequences] = second_order.score(block.lattice, here, np.ascontiguousarray(of[block.positions]))
    return scores


def marginals(
    dataset: Dataset, layout: Layout, theta: np.ndarray, allowed=None, transitions: Transitions | None = None
) -> np.ndarray:
    """p(y_t = y | x) at each position, float64 [T, Y]."""
    chain, limits = TripleChain(dataset, layout, theta), make_limits(dataset, layout.n_labels, allowed, transitions)
    gamma, extreme = np.empty((len(dataset.labels), layout.n_labels)), None
    if limits is None:
        factors, schedule = make_factors(theta, layout, chain.sets, "dense"), in_lockstep(dataset, layout, chain.sets)
        extreme = scaled_marginals(theta, layout, chain.entries, chain.seen, factors, dataset, chain.sets,
                                   chain.triples, schedule, gamma)  # fmt: skip
        if not extreme.any():
            return gamma
    for block, part in chain.in_turn(second_order.marginals, limits):
        there = slice(None) if extreme is None else extreme[block.positions]
        gamma[block.positions][there] = part[there]
    return gamma


def nbest(
    dataset: Dataset, layout: Layout, theta: np.ndarray, n: int, sparse: str = "auto", allowed=None,
    transitions: Transitions | None = None,
) -> NBest:  # fmt: skip
    """The n likeliest labellings of each sequence, best first, with scores and log-probabilities; see `NBest`."""
    if n < 1:
        raise EspalierError(f"n is {n}: expected at least 1 labelling")
    density(sparse)
    chain, limits = TripleChain(dataset, layout, theta), make_limits(dataset, layout.n_labels, allowed, transitions)
    sequences, positions = len(dataset.weights), len(dataset.labels)
    found = NBest(np.empty(sequences, np.int64), *np.empty((2, sequences, n)), np.empty((n, positions), np.int32))
    for block, part in chain.in_turn(lambda lattice, here: second_order.nbest(lattice, here, n), limits):
        found.count[block.sequences] = part.count
        found.scores[block.sequences] = part.scores
        found.log_probabilities[block.sequences] = part.log_probabilities
        found.labels[:, block.positions] = part.labels
    return found


def viterbi(
    dataset: Dataset, layout: Layout, theta: np.ndarray, allowed=None, transitions: Transitions | None = None
) -> np.ndarray:
    """The likeliest labels of each sequence, int32 [T]; among equals the smallest label wins, from the end."""
    chain, limits = TripleChain(dataset, layout, theta), make_limits(dataset, layout.n_labels, allowed, transitions)
    labels = np.empty(len(dataset.labels), np.int32)
    for block, part in chain.in_turn(second_order.best, limits):
        labels[block.positions] = part
    return labels


def ways(dataset: Dataset, layout: Layout, theta: np.ndarray, labels: np.ndarray) -> Detours:
    """The best labelling through each label of a data set of one sequence, beside its best `labels`."""
    chain = TripleChain(dataset, layout, theta)
    (block,) = chain.blocks()
    return detours(block.lattice, chain.scored(), labels)
