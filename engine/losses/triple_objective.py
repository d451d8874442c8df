"""The loss of a linear-chain CRF with weights for triples of labels, and its gradient.

    l(theta) = -sum_n w_n log p(y^n | x^n),  p(y | x) over all labellings, as for a chain

It is the loss of `ChainObjective` with other recursions (`engine.chain.triple_recursion`): triples without a weight,
or with the weight zero, cost nothing of their own. Expectations are scattered by position into chunks whatever the
size of theta. Labels are single and known, and sequences have weights, tokens none.
"""

import numpy as np

from espalier.engine.chain.chain_lattice import chain_lattice
from espalier.engine.chain.column_groups import hand_on, share
from espalier.engine.chain.logarithms import add_pairs
from espalier.engine.chain.pair_sets import distinct_sets
from espalier.engine.chain.scatter_gradient import (
    PAGE,
    add_unigrams,
    finish_pairs,
    reduce_chunks,
)
from espalier.engine.chain.scores import Factors, padded
from espalier.engine.chain.scratch import Scratch
from espalier.engine.chain.triple_posteriors import partitions
from espalier.engine.chain.triple_recursion import (
    NearFactors,
    near_factors,
    scatter_chunk_of_triples,
    take_seen,
)
from espalier.engine.chain.triple_sets import (
    ActiveTriples,
    give_to_weights,
    make_entries,
    make_matrices,
    most_to_add,
    scored_triples,
    seen_pairs,
    triple_slots,
)
from espalier.engine.data.dataset import Dataset, select
from espalier.engine.errors import EspalierError
from espalier.engine.lattice.second_order import Members, expected_counts
from espalier.engine.losses.chain_objective import ChainObjective, Extent, Sample
from espalier.engine.runtime import threads
from espalier.engine.weights.layout import Layout

UNTAUGHT = "templates that begin with T need one known label at each position"


class TripleObjective(ChainObjective):
    """The loss over one data set and its gradient; the index of the chain serves both."""

    def __init__(self, dataset: Dataset, layout: Layout, sparse: str = "auto", scratch: Scratch | None = None):
        refuse_what_triples_lack(dataset)
        super().__init__(dataset, layout, sparse, scratch)
        self.sparse, self._asked = "dense", sparse  # factors of pairs; the first epoch has them as was asked
        self.width = padded(layout.n_labels)
        self.triples = distinct_sets(self.dataset, layout.trigram_ptr, 2)
        self.seen = seen_pairs(layout)
        self.matrices = make_matrices(layout, self.seen, most_to_add(layout, self.triples))
        self.triple_slots = triple_slots(self.slots, self.seen)
        self.scattered = True

    @property
    def offers(self) -> frozenset[str]:
        """A gradient and a start; solvers by sequence, block or position have kernels of their own, for pairs only."""
        return frozenset({"gradient", "value", "counts", "scaling", "active", "sample"})

    @property
    def elements(self) -> int:
        """Of all matrices of expectations."""
        return self.matrices.elements

    def sample(self, share: float = 1.0) -> Sample | None:
        """As `ChainObjective.sample`: an epoch over the same sequences, in which triples have the weight zero."""
        return ChainObjective(self.dataset, self.layout, self._asked).sample(share)

    def hessian_times(self, theta: np.ndarray, direction: np.ndarray) -> np.ndarray:
        raise EspalierError("the Hessian of a loss with weights for triples of labels is not known: leave them out")

    def bytes_taken(self, extent: Extent) -> dict[str, int]:
        """As `ChainObjective.bytes_taken`, with the matrices of triples, also where theta does not fit the cache."""
        taken, grown = super().bytes_taken(extent), self._growth(extent)
        triples = int(self.layout.trigram_ptr[-1] - self.layout.trigram_ptr[0])
        elements = self.elements / max(1, triples) * min(extent.weights, triples * grown)
        longest = int(np.diff(self.dataset.offsets).max(initial=1))
        rows = max(longest, self.schedule.longest) * (triples / max(1, len(self.triples.ptr) - 1))
        entries = grown * int(np.diff(self.layout.trigram_ptr)[self.triples.observation].sum())
        pairs = grown * int(self.triple_slots.seen_at[-1])
        taken["posteriors"] += int(8 * len(self.chunks) * (elements + rows + entries + pairs))
        taken["features"] += 4 * extent.tokens
        taken["factors"] += int(60 * grown * triples)
        return taken

    def would_scatter(self, extent: Extent) -> bool:
        return True

    def entries(self, theta: np.ndarray) -> ActiveTriples:
        """The active triples of all sets."""
        return make_entries(theta, self.layout, self.triples, self.seen)

    def log_partitions(self, theta: np.ndarray, factors: Factors) -> np.ndarray:
        """log Z of each sequence: the forward recursion alone."""
        index = self.dataset, self.sets, self.triples, self.schedule, self.composites
        return partitions(theta, self.layout, self.entries(theta), self.seen, factors, *index)

    def expected(self, theta: np.ndarray, factors: Factors, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
        """(expected counts, log Z) at theta; `data` are its own, perhaps with other weights of the sequences."""
        layout, sets, plan, entries = self.layout, self.sets, self.plan, self.entries(theta)
        triples_at, entries_at = plan.total, plan.total + self.elements
        seen_at = entries_at + len(entries.score)
        places = plan.pairs_at, triples_at, entries_at, seen_at
        pages = -(-(seen_at + int(self.triple_slots.seen_at[-1])) // PAGE)
        room = self.scratch.take(len(self.chunks), pages * PAGE)
        touched = np.ones((len(self.chunks), pages), bool)
        touched[:, : triples_at // PAGE] = plan.touched[:, : triples_at // PAGE]
        log_z, shared = np.empty(len(data.weights)), share(theta, layout, plan.composites)
        near, most = near_factors(factors, self.seen), max(1, entries.most)

        def piece(c):
            scatter_chunk_of_triples(
                theta, layout, data, sets, self.triples, factors, near, entries, self.matrices, shared,
                self.triple_slots, self.schedule, c, places, plan.composites_at, most, touched[c], room[c], log_z,
            )  # fmt: skip

        threads.run(piece, range(len(self.chunks)))
        total = np.zeros(pages * PAGE)
        threads.run(lambda run: reduce_chunks(room, touched, *run, total), threads.ranges(pages, 16))
        expected = self._handed_on(factors, near, entries, total)
        for n in np.flatnonzero(np.isnan(log_z)):
            log_z[n] = self._by_logarithms(theta, data, int(n), expected)
        return expected, log_z

    def _handed_on(self, factors: Factors, near: NearFactors, entries: ActiveTriples, total: np.ndarray) -> np.ndarray:
        """The sums of chunks as expected counts of the weights."""
        layout, plan, triples_at = self.layout, self.plan, self.plan.total
        expected, pairs = total[: layout.size].copy(), total[plan.pairs_at : plan.composites_at]
        entries_at = triples_at + self.elements
        seen_at = entries_at + len(entries.score)
        take_seen(self.triple_slots, near, self.seen.there, self.width, total[seen_at:], pairs)
        finish_pairs(layout, self.sets, factors, plan.slots, pairs, expected)
        combinations = total[plan.composites_at : triples_at].reshape(-1, self.width)
        hand_on(layout, plan.composites.ptr, plan.composites.member, combinations, expected)
        of_triples = expected[layout.trigram_ptr[0] : layout.trigram_ptr[-1]]
        of_triples[:] = total[triples_at + self.matrices.place]
        give_to_weights(entries.own_at, entries.own_ptr, entries.own, total[entries_at:seen_at], of_triples)
        return expected

    def _by_logarithms(self, theta: np.ndarray, data: Dataset, n: int, expected: np.ndarray) -> float:
        """log Z of a sequence with extreme scores; its expectations are added."""
        lo, hi = int(data.offsets[n]), int(data.offsets[n + 1])
        lattice = chain_lattice(select(data, np.array([n])), self.layout, theta)
        scored = scored_triples(self.entries(theta), self.triples.of_position[lo:hi], self.layout.n_labels)
        gamma, pairs = np.empty((hi - lo, self.layout.n_labels)), np.empty((hi - lo, *lattice.between.shape[1:]))
        members = Members(self.triples.ptr, self.triples.observation, self.layout.trigram_ptr, self.layout.trigram_code)
        log_z = expected_counts(
            lattice.here, lattice.between, lattice.which, scored.which, scored, members, data.weights[n], gamma, pairs,
            expected,
        )  # fmt: skip
        add_unigrams(self.layout, data, self.composites.every_column, lo, gamma, expected)
        for t in range(lo + 1, hi):
            add_pairs(self.layout, self.sets, self.sets.of_position[t], pairs[t - lo].ravel(), expected)
        return log_z


def refuse_what_triples_lack(dataset: Dataset) -> None:
    """Partial labels and weights of tokens need recursions of their own."""
    if dataset.labels.min(initial=0) < 0:
        raise EspalierError(
            f"position {int(np.argmax(dataset.labels < 0))} has no label of its own: {UNTAUGHT}; leave the sequence, "
            "or these templates, out"
        )
    if len(dataset.token_weights):
        raise EspalierError(
            "tokens have weights, which templates that begin with T cannot learn from: weigh sequences instead, or "
            "leave these templates out"
        )


def loss_of_chain(
    dataset: Dataset, layout: Layout, sparse: str = "auto", scratch: Scratch | None = None
) -> ChainObjective:
    """The log loss of a chain, with triples of labels where the layout has weights for some."""
    made = TripleObjective if layout.second_order else ChainObjective
    return made(dataset, layout, sparse, scratch)

