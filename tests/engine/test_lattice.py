"""Lattices against the enumeration of all labellings, and their edges."""

import math
import pickle

import numpy as np
import pytest
from chain_problems import SEEDS, lattices, pack, random_theta
from hypothesis import given, settings
from reference import lattice as oracle
from reference.problems import random_problem

from espalier.engine.chain import chain_lattice as chain
from espalier.engine.chain.pair_sets import pair_sets
from espalier.engine.data.dataset import make_dataset
from espalier.engine.decoding import decode as fused
from espalier.engine.errors import EspalierError
from espalier.engine.labels.scheme import Transitions
from espalier.engine.lattice import decode
from espalier.engine.lattice.lattice import Lattice, make_lattice
from espalier.engine.lattice.limits import ImpossibleSequence, make_limits, restrict
from espalier.engine.runtime.threads import set_threads

ROUNDING = 1e-11  # a few hundred roundings of 1e-16 at scores of about 10, with room
LARGE = 1e-9  # at scores of 700: a sum of ten has an error of 1e-12, and probabilities are their exponentials
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=60)
FUNCTIONS = {
    "log_partition": decode.log_partition, "best": decode.best, "marginals": decode.marginals,
    "posterior": decode.posterior, "pair_marginals": decode.pair_marginals, "entropy": decode.entropy,
    "nbest": lambda lattice, limits=None: decode.nbest(lattice, 4, limits),
    "sample": lambda lattice, limits=None: decode.sample(lattice, np.random.default_rng(3), 5, limits),
}  # fmt: skip


def random_lattice(seed, n_labels=None, lengths=None, scale=1.5, impossible=0.1):
    """Several short sequences and matrices; some scores are -inf."""
    rng = np.random.default_rng(seed)
    n_labels = n_labels or int(rng.integers(1, 5))
    lengths = lengths or rng.integers(1, 6, 4).tolist()
    tokens, matrices = sum(lengths), int(rng.integers(1, 4))
    here, between = rng.normal(0, scale, (tokens, n_labels)), rng.normal(0, scale, (matrices, n_labels, n_labels))
    here[rng.random(here.shape) < impossible] = -np.inf
    between[rng.random(between.shape) < impossible] = -np.inf
    offsets, which = np.cumsum([0, *lengths]), rng.integers(0, matrices, tokens)
    which[offsets[:-1]] = -1
    return make_lattice(here, between, which, offsets)


def random_limits(lattice, seed, kinds=("allowed", "transitions")):
    """Limits of the kinds named, as (Limits, allowed bool [T, Y] or None, transitions or None)."""
    rng, (tokens, n_labels) = np.random.default_rng(seed), lattice.here.shape
    allowed = rng.random((tokens, n_labels)) < 0.7 if "allowed" in kinds else None
    pair = rng.random((n_labels, n_labels)) < 0.8
    edges = rng.random((2, n_labels)) < 0.8
    transitions = Transitions(edges[0], pair, edges[1]) if "transitions" in kinds else None
    data = make_dataset(np.zeros((tokens, 1)), None, lattice.offsets)
    return make_limits(data, n_labels, allowed, transitions), allowed, transitions


def sequences(lattice, allowed=None, transitions=None):
    """The arguments of the oracle for each sequence: here, steps, allowed, rules."""
    rules = None if transitions is None else tuple(np.asarray(a).tolist() for a in transitions)
    for lo, hi in zip(lattice.offsets, lattice.offsets[1:], strict=False):
        sets = None if allowed is None else [set(np.flatnonzero(row).tolist()) for row in allowed[lo:hi]]
        yield lattice.here[lo:hi].tolist(), [lattice.between[p].tolist() for p in lattice.which[lo:hi]], sets, rules


def select(lattice, kept):
    """Some of the sequences as a lattice."""
    cuts = [(lattice.offsets[n], lattice.offsets[n + 1]) for n in kept]
    rows = np.concatenate([np.arange(*cut) for cut in cuts]).astype(int) if cuts else np.zeros(0, int)
    offsets = np.cumsum([0, *(b - a for a, b in cuts)])
    return make_lattice(lattice.here[rows], lattice.between, lattice.which[rows], offsets), rows


def possible_part(lattice, limits=None, allowed=None, transitions=None):
    """What is left without the impossible sequences: lattice, limits, allowed; every function refuses the whole."""
    problems = list(sequences(lattice, allowed, transitions))
    dropped = [n for n, problem in enumerate(problems) if oracle.log_partition(*problem) == -math.inf]
    if dropped:
        for function in FUNCTIONS.values():
            with pytest.raises(ImpossibleSequence, match=f"sequence {dropped[0]} has no labelling that is allowed"):
                function(lattice, limits)
    small, rows = select(lattice, [n for n in range(len(problems)) if n not in dropped])
    if limits is not None:
        limits = limits._replace(row=limits.row[rows])
    return small, limits, None if allowed is None else allowed[rows]


def assert_agrees(lattice, limits=None, allowed=None, transitions=None, tolerance=ROUNDING):
    """Every function against the enumeration."""
    small, limits, allowed = possible_part(lattice, limits, allowed, transitions)
    log_z, single = decode.log_partition(small, limits), decode.marginals(small, limits)
    pairs, entropies = decode.pair_marginals(small, limits), decode.entropy(small, limits)
    best, several = decode.best(small, limits), decode.nbest(small, 4, limits)
    everything = decode.nbest(small, 4**6, limits)
    draws = decode.sample(small, np.random.default_rng(len(single)), 3, limits)
    for n, problem in enumerate(sequences(small, allowed, transitions)):
        at, expected = slice(small.offsets[n], small.offsets[n + 1]), oracle.labellings(*problem)
        scale = max(1.0, abs(expected[0][1]))
        expected_single, expected_pairs = oracle.marginals(*problem)
        assert log_z[n] == pytest.approx(oracle.log_partition(*problem), abs=tolerance * scale)
        np.testing.assert_allclose(single[at], expected_single, atol=tolerance)
        np.testing.assert_allclose(pairs[at], expected_pairs, atol=tolerance)
        np.testing.assert_array_equal(single[at] == 0.0, expected_single == 0.0)
        assert entropies[n] == pytest.approx(oracle.entropy(*problem), abs=10 * tolerance)
        assert oracle.score(*problem[:2], best[at].tolist()) == pytest.approx(expected[0][1], abs=1e-12 * scale)
        possible = [y for y, _ in expected]
        assert all(tuple(draw[at].tolist()) in possible for draw in draws)
        assert_best(several, n, at, expected[:4], oracle.log_partition(*problem), tolerance * scale)
        assert_best(everything, n, at, expected, oracle.log_partition(*problem), tolerance * scale)
        np.testing.assert_array_equal(several.labels[0, at], best[at])
    np.testing.assert_allclose(single.sum(axis=1), 1.0, atol=tolerance)
    np.testing.assert_array_equal(decode.posterior(small, limits), single.argmax(axis=1))
    found = decode.log_probability(small, best, limits)
    np.testing.assert_allclose(found, everything.log_probabilities[:, 0], atol=1e-12)
    np.testing.assert_allclose(decode.score(small, best), everything.scores[:, 0], rtol=1e-12, atol=1e-12)


def assert_best(found, n, at, expected, log_z, tolerance):
    """Complete, in order, without repeats, and with the right scores."""
    count = found.count[n]
    assert count == len(expected)
    assert found.scores[n, :count].tolist() == pytest.approx([s for _, s in expected], abs=tolerance)
    assert np.all(np.diff(found.scores[n, :count]) <= 0)
    assert found.log_probabilities[n, :count] == pytest.approx([s - log_z for _, s in expected], abs=2 * tolerance)
    assert np.all(found.scores[n, count:] == -np.inf) and np.all(found.log_probabilities[n] <= 0.0)
    rows = [tuple(row.tolist()) for row in found.labels[:count, at]]
    assert len(set(rows)) == count
    if len(expected) > 4:  # all there are
        known = dict(expected)
        assert [known[row] for row in rows] == pytest.approx(found.scores[n, :count].tolist(), abs=tolerance)
    assert np.all(found.labels[count:, at] == -1)


# ---- against the enumeration


@EXAMPLES
@given(SEEDS)
@pytest.mark.nojit
def test_a_random_lattice(seed):
    assert_agrees(random_lattice(seed))


@EXAMPLES
@given(SEEDS)
@pytest.mark.nojit
def test_extreme_scores(seed):
    lattice = random_lattice(seed, scale=1.0)
    signs = np.sign(lattice.here), np.sign(lattice.between)
    far = [np.where(np.isfinite(s), 700.0 * s, -np.inf) for s in signs]
    assert_agrees(lattice._replace(here=far[0] + 0.01 * np.nan_to_num(lattice.here, neginf=0.0), between=far[1]),
                  tolerance=LARGE)  # fmt: skip


@EXAMPLES
@given(SEEDS)
@pytest.mark.nojit
def test_limits_of_all_kinds(seed):
    lattice = random_lattice(seed, impossible=0.03)
    for kinds in (("allowed",), ("transitions",), ("allowed", "transitions")):
        limits, allowed, transitions = random_limits(lattice, seed, kinds)
        assert_agrees(lattice, limits, allowed, transitions)


@pytest.mark.nojit
def test_the_labels_of_a_data_set_as_limits():
    """Known, unknown and set-valued labels by the flag are what the same boolean array says."""
    lattice = random_lattice(4, 4, [6, 3], impossible=0.0)
    sets = np.array([[True, True, False, False], [False, False, True, True]])
    labels = [0, -1, -2, 3, -3, -1, -2, 1, -1]
    data = make_dataset(np.zeros((9, 1)), labels, [0, 6, 9], label_sets=sets)
    rows = {-1: [True] * 4, -2: sets[0], -3: sets[1]} | {y: np.arange(4) == y for y in range(4)}
    by_array = make_limits(data, 4, np.array([rows[y] for y in labels]))
    for function in FUNCTIONS.values():
        flagged, plain = function(lattice, make_limits(data, 4, "labels")), function(lattice, by_array)
        assert pickle.dumps(flagged) == pickle.dumps(plain) != pickle.dumps(function(lattice))
    assert make_limits(data, 4) is None


@EXAMPLES
@given(SEEDS)
@pytest.mark.nojit
def test_the_probability_of_any_labelling(seed):
    lattice = random_lattice(seed)
    limits, allowed, transitions = random_limits(lattice, seed)
    for given_limits, parts in ((None, (None, None)), (limits, (allowed, transitions))):
        small, given_limits, table = possible_part(lattice, given_limits, *parts)
        labels = np.random.default_rng(seed).integers(0, lattice.n_labels, len(small.here))
        found, scores = decode.log_probability(small, labels, given_limits), decode.score(small, labels)
        for n, problem in enumerate(sequences(small, table, parts[1])):
            mine = tuple(labels[small.offsets[n] : small.offsets[n + 1]].tolist())
            probability = oracle.distribution(*problem).get(mine, 0.0)
            assert math.exp(found[n]) == pytest.approx(probability, abs=ROUNDING)
            assert (found[n] == -math.inf) == (probability == 0.0)
            assert scores[n] == pytest.approx(oracle.score(*problem[:2], mine), abs=ROUNDING)
        assert np.all(found <= 0.0)


@pytest.mark.nojit
def test_ties_go_to_the_smallest_label_from_the_end():
    lattice = make_lattice(np.zeros((2, 2)), np.zeros((1, 2, 2)), [-1, 0], [0, 2])
    assert decode.best(lattice).tolist() == [0, 0]
    assert decode.nbest(lattice, 4).labels.T.tolist() == [[0, 1, 0, 1], [0, 0, 1, 1]]
    whole = random_lattice(3, 3, [7] * 20)
    whole = whole._replace(here=np.round(whole.here), between=np.round(whole.between))
    for n, (here, steps, _, _) in enumerate(sequences(whole)):
        labels, _ = oracle.viterbi(np.array(here), np.array(steps))
        assert decode.best(whole)[whole.offsets[n] : whole.offsets[n + 1]].tolist() == labels


# ---- samples


def critical(degrees):
    """A bound that chi-square exceeds with a chance of about 1e-6 (Wilson and Hilferty)."""
    part = 2.0 / (9.0 * degrees)
    return degrees * (1.0 - part + 4.75 * math.sqrt(part)) ** 3


@pytest.mark.parametrize("limited", [False, True])
def test_samples_have_the_frequencies_of_the_distribution(limited):
    lattice = random_lattice(8, 3, [4, 1, 3, 5], scale=0.7)
    limits, allowed, transitions = random_limits(lattice, 6) if limited else (None, None, None)
    lattice, limits, allowed = possible_part(lattice, limits, allowed, transitions)
    count = 20_000
    draws = decode.sample(lattice, np.random.default_rng(1), count, limits)
    assert draws.dtype == np.int32 and draws.shape == (count, len(lattice.here))
    for n, problem in enumerate(sequences(lattice, allowed, transitions)):
        distribution = oracle.distribution(*problem)
        rows, seen = np.unique(draws[:, lattice.offsets[n] : lattice.offsets[n + 1]], axis=0, return_counts=True)
        seen = dict(zip(map(tuple, rows.tolist()), seen.tolist(), strict=True))
        assert seen.keys() <= distribution.keys()
        often = {y: p for y, p in distribution.items() if count * p >= 5}
        rare = 1.0 - sum(often.values())
        statistic = sum((seen.get(y, 0) - count * p) ** 2 / (count * p) for y, p in often.items())
        if count * rare >= 5:
            found = count - sum(seen.get(y, 0) for y in often)
            statistic += (found - count * rare) ** 2 / (count * rare)
        assert statistic < critical(max(1, len(often)))


def test_samples_go_by_the_seed_and_the_first_do_not_depend_on_how_many_follow():
    lattice = random_lattice(8, 3, [4, 1, 3])
    few, many = (decode.sample(lattice, np.random.default_rng(7), count) for count in (2, 50))
    np.testing.assert_array_equal(few, many[:2])
    assert np.any(decode.sample(lattice, np.random.default_rng(8), 50) != many)


@pytest.mark.nojit
def test_the_ends_of_the_unit_interval_draw_possible_labels():
    class Ends:
        def __init__(self, number):
            self.number = number

        def random(self, shape):
            return np.full(shape, self.number)

    here = np.array([[-np.inf, 0.0, -np.inf], [-np.inf, 0.0, 700.0]])
    lattice = make_lattice(here, np.zeros((1, 3, 3)), [-1, 0], [0, 2])
    assert decode.sample(lattice, Ends(0.0)).tolist() == [[1, 1]]
    assert decode.sample(lattice, Ends(np.nextafter(1.0, 0.0))).tolist() == [[1, 2]]


# ---- edges


@pytest.mark.nojit
def test_one_label_and_one_position():
    lattice = make_lattice([[2.5], [-1.0], [700.0]], [[[3.0]]], [-1, -1, 0], [0, 1, 3])
    assert decode.log_partition(lattice).tolist() == [2.5, 702.0]
    assert decode.entropy(lattice).tolist() == [0.0, 0.0]
    assert decode.marginals(lattice).tolist() == [[1.0]] * 3
    assert decode.pair_marginals(lattice).ravel().tolist() == [0.0, 0.0, 1.0]
    assert decode.nbest(lattice, 2).count.tolist() == [1, 1]


@pytest.mark.nojit
def test_no_sequence():
    lattice = make_lattice(np.zeros((0, 2)), np.zeros((0, 2, 2)), [], [0])
    shapes = {name: np.shape(function(lattice)) for name, function in FUNCTIONS.items() if name != "nbest"}
    assert shapes == {"log_partition": (0,), "best": (0,), "marginals": (0, 2), "posterior": (0,),
                      "pair_marginals": (0, 2, 2), "entropy": (0,), "sample": (5, 0)}  # fmt: skip
    assert decode.nbest(lattice, 2).labels.shape == (2, 0)
    assert decode.score(lattice, []).shape == (0,)


@pytest.mark.parametrize("scale", [1.0, 700.0])
def test_twenty_thousand_positions(scale):
    rng, length = np.random.default_rng(2), 20_000
    here, between = scale * rng.normal(size=(length, 3)), scale * rng.normal(size=(5, 3, 3))
    which = np.concatenate([[-1], rng.integers(0, 5, length - 1)])
    lattice = make_lattice(here, between, which, [0, length])
    log_z, gamma, entropy = oracle.forward_backward(here, between[which])
    labels, score = oracle.viterbi(here, between[which])
    assert decode.log_partition(lattice)[0] == pytest.approx(log_z, rel=1e-12)
    # The oracle does not shift its rows: its digits go into sums of 1e4 and more, ours do not.
    np.testing.assert_allclose(decode.marginals(lattice), gamma, atol=1e-9 * scale)
    assert decode.entropy(lattice)[0] == pytest.approx(entropy, rel=1e-8, abs=1e-3 if scale > 1 else 1e-9)
    np.testing.assert_array_equal(decode.best(lattice), labels)
    found = decode.nbest(lattice, 2)
    assert found.scores[0, 0] == pytest.approx(score, rel=1e-12) and np.any(found.labels[0] != found.labels[1])
    np.testing.assert_allclose(decode.marginals(lattice).sum(axis=1), 1.0, atol=1e-13)
    np.testing.assert_allclose(decode.pair_marginals(lattice)[1:].sum(axis=(1, 2)), 1.0, atol=1e-12)


def test_two_chains_that_never_meet_and_the_worse_one_must_end():
    """Label 1 is worse by 5 at each of 500 positions, exp(-2500) of the other, but only it may end."""
    length = 500
    here, which = np.tile([5.0, 0.0], (length, 1)), np.concatenate([[-1], np.zeros(length - 1, int)])
    apart = Transitions(np.ones(2, bool), np.eye(2, dtype=bool), np.array([False, True]))
    lattice = make_lattice(here, np.zeros((1, 2, 2)), which, [0, length])
    limits = make_limits(make_dataset(np.zeros((length, 1)), None, [0, length]), 2, None, apart)
    assert decode.best(lattice, limits).tolist() == [1] * length
    assert decode.log_partition(lattice, limits)[0] == pytest.approx(0.0, abs=ROUNDING)
    np.testing.assert_array_equal(decode.marginals(lattice, limits)[:, 1], 1.0)
    assert decode.entropy(lattice, limits)[0] == 0.0
    assert decode.sample(lattice, np.random.default_rng(0), 2, limits).tolist() == [[1] * length] * 2


def test_threads_do_not_change_a_byte():
    lattice = random_lattice(5, 4, [6] * 150, impossible=0.02)
    limits = random_limits(lattice, 2, ("transitions",))[0]
    lattice, limits, _ = possible_part(lattice, limits, None, random_limits(lattice, 2, ("transitions",))[2])
    seen = set()
    for count in (1, 4):
        set_threads(count)
        try:
            found = [function(lattice, given) for function in FUNCTIONS.values() for given in (None, limits)]
            found.append(decode.log_probability(lattice, found[2], limits))
        finally:
            set_threads(None)
        seen.add(pickle.dumps(found))
    assert len(seen) == 1


def test_limits_leave_the_lattice_as_it_was():
    lattice = random_lattice(5, 3, [4, 2])
    before = pickle.dumps(lattice)
    limits = random_limits(lattice, 1)[0]
    restricted = restrict(lattice, limits)
    assert pickle.dumps(lattice) == before
    assert restrict(lattice, None) is lattice
    assert not np.shares_memory(restricted.here, lattice.here)
    assert not np.shares_memory(restricted.between, lattice.between)


# ---- the lattice of a chain


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_the_kernels_of_the_chain_and_its_lattice_agree(problem):
    """Scaled forward-backward and Viterbi straight from the weights say the same as the lattice."""
    packed, theta = problem
    crf, lattice = (packed.dataset, packed.layout, theta), chain.chain_lattice(packed.dataset, packed.layout, theta)
    exact = {"rtol": 0.0, "atol": 1e-12}
    for sparse in ("dense", "sparse"):
        np.testing.assert_allclose(fused.log_partition(*crf, sparse), decode.log_partition(lattice), **exact)
        np.testing.assert_allclose(fused.marginals(*crf, sparse), decode.marginals(lattice), **exact)
        np.testing.assert_array_equal(fused.viterbi(*crf, sparse), decode.best(lattice))
    found, labels = fused.sequence_log_probability(*crf), packed.dataset.labels
    np.testing.assert_allclose(found, decode.log_probability(lattice, labels), **exact)
    make_lattice(*lattice)


def blocks_of(packed, theta, block_bytes):
    sets = pair_sets(packed.dataset, packed.layout)
    return list(chain.lattice_blocks(packed.dataset, packed.layout, theta, sets, block_bytes))


@pytest.mark.nojit
def test_blocks_are_the_lattice_in_pieces():
    packed = pack(random_problem(5, 3, 4, 2, [3, 1, 2, 4, 9, 1]))
    theta = random_theta(packed.layout.size, 2)
    whole, counts = chain.chain_lattice(packed.dataset, packed.layout, theta), []
    for block_bytes in (8, 500, 1 << 26):
        blocks, end = blocks_of(packed, theta, block_bytes), 0
        for lattice, sequences, positions in blocks:
            assert sequences.start == end
            end = sequences.stop
            make_lattice(*lattice)
            np.testing.assert_array_equal(lattice.offsets, whole.offsets[sequences.start : end + 1] - positions.start)
            np.testing.assert_array_equal(lattice.here, whole.here[positions])
            np.testing.assert_array_equal(lattice.which < 0, whole.which[positions] < 0)
            np.testing.assert_array_equal(
                lattice.between[lattice.which[lattice.which >= 0]],
                whole.between[whole.which[positions][lattice.which >= 0]],
            )
            assert len(np.unique(lattice.which[lattice.which >= 0])) == len(lattice.between)
            taken = lattice.here.nbytes + lattice.between.nbytes
            assert taken <= block_bytes or sequences.stop == sequences.start + 1
        assert end == 6
        counts.append(len(blocks))
    assert counts[0] == 6 > counts[1] > counts[2] == 1


def test_decoding_by_blocks_changes_nothing_and_names_the_sequence(monkeypatch):
    packed = pack(random_problem(5, 3, 4, 2, [3, 1, 2, 4, 9, 1]))
    theta = random_theta(packed.layout.size, 2)
    allowed = np.random.default_rng(1).random((20, 3)) < 0.7
    allowed[:, 0] = True
    seen = set()
    for block_bytes in (8, 500, 1 << 26):

        def blocks(dataset, layout, theta, sets=None, room=block_bytes):
            return chain.lattice_blocks(dataset, layout, theta, sets, room)

        monkeypatch.setattr(fused, "lattice_blocks", blocks)
        crf = packed.dataset, packed.layout, theta
        found = [function(*crf, allowed=allowed) for function in
                 (fused.viterbi, fused.marginals, fused.log_partition, fused.pair_marginals)]  # fmt: skip
        found += [*fused.nbest(*crf, 3), fused.sequence_score(*crf)]
        seen.add(pickle.dumps(found))
        with pytest.raises(EspalierError, match="sequence 3 has no labelling that is allowed"):
            fused.viterbi(*crf, allowed=np.arange(20)[:, None] < [[7, 7, 7]])
    assert len(seen) == 1


# ---- refusals


def parts(**changed):
    """The parts of a lattice of two sequences with two labels, some of them changed."""
    whole = {"here": np.zeros((3, 2)), "between": np.zeros((2, 2, 2)), "which": [-1, 1, -1], "offsets": [0, 2, 3]}
    return {**whole, **changed}


def with_score(shape, place, value):
    scores = np.zeros(shape)
    scores[place] = value
    return scores


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"here": np.zeros(3)}, r"here has the shape \(3,\): expected positions x labels"),
        ({"here": np.zeros((3, 0))}, r"here has the shape \(3, 0\): expected positions x labels, at least one label"),
        ({"between": np.zeros((2, 2, 3))}, r"between has the shape \(2, 2, 3\): expected matrices x 2 x 2"),
        ({"between": np.zeros((2, 2))}, r"between has the shape \(2, 2\): expected matrices x 2 x 2"),
        ({"offsets": [0, 2]}, r"offsets must run from 0 to the 3 positions, found \[0, 2\]"),
        ({"offsets": [1, 3]}, r"offsets must run from 0 to the 3 positions, found \[1, 3\]"),
        ({"offsets": []}, r"offsets must run from 0 to the 3 positions, found \[\]"),
        ({"offsets": [0, 2, 2, 3]}, "sequence 1 has no position: leave empty sequences out"),
        ({"offsets": [0, 3, 2, 3]}, "sequence 1 has no position: leave empty sequences out"),
        ({"offsets": [0.0, 2.0, 3.0]}, "offsets is of type float64: expected whole numbers"),
        ({"which": [-1, 1]}, "which has 2 entries for 3 positions: expected one each"),
        ({"which": [[-1, 1, -1]]}, "which has 2 dimensions: expected 1"),
        ({"which": [-1.0, 1.0, -1.0]}, "which is of type float64: expected whole numbers"),
        ({"which": [0, 1, -1]}, r"which\[0\] is 0: expected -1 at the start of a sequence"),
        ({"which": [-1, -1, -1]}, r"which\[1\] is -1: expected one of the 2 matrices, counted from 0"),
        ({"which": [-1, 2, -1]}, r"which\[1\] is 2: expected one of the 2 matrices"),
        ({"which": [-1, 2**32, -1]}, r"which\[1\] is 4294967296: expected one of the 2 matrices"),
        ({"here": with_score((3, 2), (1, 0), np.nan)}, r"here\[1, 0\] is nan: expected a finite score, or -inf"),
        ({"here": with_score((3, 2), (2, 1), np.inf)}, r"here\[2, 1\] is inf: expected a finite score"),
        ({"between": with_score((2, 2, 2), (1, 0, 1), np.inf)}, r"between\[1, 0, 1\] is inf: expected a finite score"),
    ],
)  # fmt: skip
def test_a_lattice_that_does_not_fit_is_refused(changed, message):
    make_lattice(**parts())
    with pytest.raises(EspalierError, match=message):
        make_lattice(**parts(**changed))


def test_a_lattice_is_converted():
    made = make_lattice([[0, 1], [2, -np.inf]], [[[1, 2], [3, 4]]], np.array([-1, 0], np.int64), (0, 2))
    assert [part.dtype for part in made] == [np.float64, np.float64, np.int32, np.int64]
    assert isinstance(made, Lattice) and made.n_labels == 2


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], "2 labels for 3 positions: expected one each"),
        ([0, 1, 2], "position 2 has no label: expected a known label at each position"),
        ([0, -1, 1], "position 1 has no label: expected a known label at each position"),
        ([0.0, 1.0, 0.0], "labels is of type float64: expected whole numbers"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, message):
    lattice = make_lattice(**parts())
    for function in (decode.score, decode.log_probability):
        with pytest.raises(EspalierError, match=message):
            function(lattice, labels)


def test_other_refusals():
    lattice = make_lattice(**parts())
    with pytest.raises(EspalierError, match="n is 0: expected at least 1 labelling"):
        decode.nbest(lattice, 0)
    with pytest.raises(EspalierError, match="count is 0: expected at least 1 labelling"):
        decode.sample(lattice, np.random.default_rng(0), 0)
    with pytest.raises(EspalierError, match="2 labels at 3 positions take 144 bytes, the limit is 143: take fewer"):
        decode.pair_marginals(lattice, limit=143)
    assert decode.pair_marginals(lattice, limit=144).shape == (3, 2, 2)
    other = random_limits(random_lattice(1, 3, [3]), 1)[0]
    with pytest.raises(EspalierError, match="limits are of 3 positions and 3 labels: expected the 3 positions and 2"):
        decode.best(lattice, other)


def test_what_is_impossible_travels_between_processes():
    error = pickle.loads(pickle.dumps(ImpossibleSequence(3)))
    assert error.sequence == 3 and isinstance(error, EspalierError)
    assert str(error) == ("sequence 3 has no labelling that is allowed: check its allowed labels and the transitions")
