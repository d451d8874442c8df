"""Forward-backward of a chain with weights for triples over the sequences of a data set, on the pool of threads."""

import numpy as np

from espalier.engine.chain.batches import Schedule
from espalier.engine.chain.chain_lattice import chain_lattice
from espalier.engine.chain.column_groups import Composites, no_composites, share
from espalier.engine.chain.pair_sets import PairSets
from espalier.engine.chain.scatter_gradient import pair_slots
from espalier.engine.chain.scores import Factors
from espalier.engine.chain.triple_recursion import log_partitions_of_triples, marginals_of_triples, near_factors
from espalier.engine.chain.triple_sets import ActiveTriples, SeenPairs, no_matrices, scored_triples, triple_slots
from espalier.engine.data.dataset import Dataset, select
from espalier.engine.lattice import second_order
from espalier.engine.runtime import threads
from espalier.engine.weights.layout import Layout


def partitions(
    theta: np.ndarray, layout: Layout, entries: ActiveTriples, seen: SeenPairs, factors: Factors, data: Dataset,
    sets: PairSets, triples: PairSets, schedule: Schedule, composites: Composites,
) -> np.ndarray:  # fmt: skip
    """log Z of each sequence of `data`; those with extreme scores by logarithms."""
    log_z, shared, near = np.empty(len(data.weights)), share(theta, layout, composites), near_factors(factors, seen)

    def piece(c):
        log_partitions_of_triples(
            theta, layout, data, sets, triples, factors, near, entries, shared, schedule, c, max(1, entries.most), log_z
        )

    threads.run(piece, range(len(schedule.chunk_batches) - 1))
    extreme = np.flatnonzero(np.isnan(log_z))
    if len(extreme):
        lattice = chain_lattice(select(data, extreme), layout, theta)
        positions = np.concatenate([np.arange(data.offsets[n], data.offsets[n + 1]) for n in extreme])
        scored = scored_triples(entries, triples.of_position[positions], layout.n_labels)
        log_z[extreme] = second_order.log_partition(lattice, scored)
    return log_z


def scaled_marginals(
    theta: np.ndarray, layout: Layout, entries: ActiveTriples, seen: SeenPairs, factors: Factors, data: Dataset,
    sets: PairSets, triples: PairSets, schedule: Schedule, gamma: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Fills gamma [T, Y] but at the positions, bool [T], of sequences with extreme scores, which it returns."""
    log_z, shared = np.empty(len(data.weights)), share(theta, layout, no_composites(data))
    near, slots, most = near_factors(factors, seen), triple_slots(pair_slots(layout, sets), seen), max(1, entries.most)
    matrices = no_matrices(layout)

    def piece(c):
        marginals_of_triples(
            theta, layout, data, sets, triples, factors, near, entries, matrices, slots, shared, schedule, c, most,
            gamma, log_z,
        )  # fmt: skip

    threads.run(piece, range(len(schedule.chunk_batches) - 1))
    return np.repeat(np.isnan(log_z), np.diff(data.offsets))
