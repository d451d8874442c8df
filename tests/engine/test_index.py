"""What is derived from a data set, against loops over positions."""

import numpy as np
import pytest
from chain_problems import pack, problems
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.engine.chain.batches import make_schedule
from espalier.engine.chain.pair_sets import pair_sets
from espalier.engine.chain.scatter_gradient import SCALAR_COST, pair_slots
from espalier.engine.runtime.threads import balanced

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=60)


def members(sets, p):
    return sets.observation[sets.ptr[p] : sets.ptr[p + 1]].tolist()


@EXAMPLES
@given(problems(), st.sampled_from(["seen", "dense"]))
@pytest.mark.nojit
def test_sets_are_the_distinct_bigram_observations_of_inner_positions(problem, kind):
    packed = pack(problem, kind)
    sets, carries = pair_sets(packed.dataset, packed.layout), np.diff(packed.layout.bigram_ptr) > 0
    first = set(packed.dataset.offsets[:-1].tolist())
    for t, row in enumerate(packed.dataset.observations.tolist()):
        p = sets.of_position[t]
        assert (p == -1) == (t in first)
        assert p == -1 or members(sets, p) == [x for x in row if x >= 0 and carries[x]]
    assert set(sets.of_position.tolist()) - {-1} == set(range(len(sets.ptr) - 1))


@EXAMPLES
@given(problems(), st.sampled_from(["seen", "dense"]))
@pytest.mark.nojit
def test_pairs_of_a_set_are_those_of_its_members_or_all(problem, kind):
    packed = pack(problem, kind)
    sets = pair_sets(packed.dataset, packed.layout)
    slots = pair_slots(packed.layout, sets)
    for p in range(len(sets.ptr) - 1):
        needed = sorted({int(c) for x in members(sets, p) for c in packed.layout.run_codes("bigram", x)})
        full = SCALAR_COST * len(needed) > packed.layout.n_labels**2
        assert slots.full[p] == full
        assert slots.code[slots.ptr[p] : slots.ptr[p + 1]].tolist() == ([] if full else needed)


@EXAMPLES
@given(problems(), st.integers(1, 3), st.sampled_from([1, 4096, 1 << 14]))
@pytest.mark.nojit
def test_a_schedule_visits_each_position_once_and_in_lockstep(problem, pieces, width):
    """Rows of a batch by step and then by set; `before` is the row of the position before; `by_set` by set and row."""
    packed = pack(problem, "seen")
    offsets, sets = packed.dataset.offsets, pair_sets(packed.dataset, packed.layout)
    found = make_schedule(offsets, sets, balanced(np.diff(offsets), pieces), width)
    assert found.sequences.tolist() == list(range(len(offsets) - 1))
    assert found.chunk_batches[-1] == len(found.batch_rows) - 1
    for b in range(len(found.batch_rows) - 1):
        sequences = found.sequences[found.batch_sequences[b] : found.batch_sequences[b + 1]]
        entries = [(t - offsets[n], sets.of_position[t], t) for n in sequences for t in range(*offsets[n : n + 2])]
        at = {t: row for row, (_, _, t) in enumerate(sorted(entries))}
        rows = slice(found.batch_rows[b], found.batch_rows[b + 1])
        assert {t: found.row[t] for t in at} == at
        assert found.before[rows].tolist() == [at[t - 1] if step else -1 for step, _, t in sorted(entries)]
        by_set = sorted((p, at[t]) for _, p, t in entries)
        assert found.by_set[rows].tolist() == [row for _, row in by_set]
        groups = range(found.batch_groups[b], found.batch_groups[b + 1])
        spread = [found.group_set[g] for g in groups for _ in range(found.group_begin[g], found.group_end[g])]
        assert spread == [p for _, p, _ in sorted(entries)]
        runs = slice(found.batch_runs[b], found.batch_runs[b + 1])
        lengths = np.diff(found.run_end[runs], prepend=0)
        assert np.repeat(found.run_set[runs], lengths).tolist() == [p for p, _ in by_set]
