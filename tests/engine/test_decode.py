"""n best, posterior and constrained decoding against the enumeration of all allowed label sequences."""

import numpy as np
import pytest
from chain_problems import lattices, pack, random_theta, weights_of
from hypothesis import given, settings
from reference import chain, restricted
from reference.problems import BIGRAM, BOTH, UNIGRAM, Problem, random_problem

from espalier.engine.data.dataset import make_dataset, select
from espalier.engine.decoding import decode
from espalier.engine.errors import EspalierError
from espalier.engine.labels.scheme import Transitions, transitions_of
from espalier.engine.runtime.threads import set_threads
from espalier.engine.weights.layout import dense_layout

ROUNDING = 1e-10  # probabilities: a few hundred roundings of 1e-16, with room
LARGE = 1e-11  # relative, at |theta| = 700
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=60)
FEWER = settings(deadline=None, derandomize=True, max_examples=25)


def random_limits(dataset, n_labels, seed, share=0.6):
    """(allowed bool [T, Y] with a label at each position, transitions)."""
    rng = np.random.default_rng(seed)
    allowed = rng.random((len(dataset.labels), n_labels)) < share
    allowed[np.arange(len(allowed)), rng.integers(0, n_labels, len(allowed))] = True
    start, end = rng.random(n_labels) < 0.8, rng.random(n_labels) < 0.8
    return allowed, Transitions(start, rng.random((n_labels, n_labels)) < 0.7, end)


def possible_only(packed, limits):
    """The packed problem of the sequences that have an allowed labelling, their limits, and the oracle's form."""
    problem, dataset, layout = packed
    allowed, transitions = limits
    cuts = list(zip(dataset.offsets, dataset.offsets[1:], strict=False))
    as_sets = [[set(np.flatnonzero(row).tolist()) for row in allowed[a:b]] for a, b in cuts]
    rules = tuple(a.tolist() for a in transitions)
    kept = [n for n, (x, a) in enumerate(zip(problem.sequences, as_sets, strict=True))
            if restricted.labellings(len(x), problem.n_labels, a, rules)]  # fmt: skip
    dropped = [n for n in range(len(cuts)) if n not in kept]
    rows = [slice(*cuts[n]) for n in kept]
    table = np.concatenate([allowed[r] for r in rows]) if rows else allowed[:0]
    small = select(dataset, np.array(kept, np.int64))
    return small, [problem.sequences[n] for n in kept], table, transitions, [as_sets[n] for n in kept], rules, dropped


def assert_nbest(found, sequences, n_labels, weights, n, allowed=None, rules=None, relative=0.0):
    """The scores are those of the enumeration, best first; the labellings are distinct and have these scores."""
    begin = 0
    for k, x in enumerate(sequences):
        limits = None if allowed is None else allowed[k]
        expected, log_z = restricted.distribution(x, n_labels, weights, limits, rules)
        count = found.count[k]
        assert count == min(n, len(expected))
        tolerance = {"rel": relative, "abs": ROUNDING}
        assert found.scores[k, :count].tolist() == pytest.approx([s for _, s, _ in expected[:n]], **tolerance)
        assert found.log_probabilities[k, :count] == pytest.approx(
            [s - log_z for _, s, _ in expected[:n]], abs=ROUNDING + relative * abs(log_z)
        )
        assert np.all(found.scores[k, count:] == -np.inf)
        rows = [tuple(row.tolist()) for row in found.labels[:count, begin : begin + len(x)]]
        assert len(set(rows)) == count
        assert all(restricted.permitted(row, limits, rules) for row in rows)
        assert [chain.score(x, row, weights) for row in rows] == pytest.approx(found.scores[k, :count], **tolerance)
        assert np.all(found.labels[count:, begin : begin + len(x)] == -1)
        begin += len(x)


# ---- against the enumeration


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_nbest(lattice):
    packed, theta = lattice
    weights = weights_of(packed.layout, theta)
    best = decode.viterbi(packed.dataset, packed.layout, theta)
    for n in (1, 3, 40):
        found = decode.nbest(packed.dataset, packed.layout, theta, n)
        assert_nbest(found, packed.problem.sequences, packed.problem.n_labels, weights, n)
        np.testing.assert_array_equal(found.labels[0], best)


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_all_labellings_have_probability_one(lattice):
    packed, theta = lattice
    everything = packed.problem.n_labels**5
    found = decode.nbest(packed.dataset, packed.layout, theta, everything)
    lengths = np.diff(packed.dataset.offsets)
    assert found.count.tolist() == [packed.problem.n_labels**length for length in lengths]
    np.testing.assert_allclose(np.exp(found.log_probabilities).sum(axis=1), 1.0, atol=ROUNDING)


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_constrained_decoding(lattice):
    packed, theta = lattice
    n_labels, weights = packed.problem.n_labels, weights_of(packed.layout, theta)
    limits = random_limits(packed.dataset, n_labels, int(abs(theta).sum() * 1000) % 1000)
    dataset, sequences, allowed, transitions, as_sets, rules, dropped = possible_only(packed, limits)
    if dropped:
        for function in (decode.viterbi, decode.marginals, decode.log_partition, decode.posterior):
            with pytest.raises(EspalierError, match=f"sequence {dropped[0]} has no labelling that is allowed"):
                function(packed.dataset, packed.layout, theta, allowed=limits[0], transitions=limits[1])
    given = {"allowed": allowed, "transitions": transitions}
    found = decode.nbest(dataset, packed.layout, theta, 3, **given)
    assert_nbest(found, sequences, n_labels, weights, 3, as_sets, rules)
    np.testing.assert_array_equal(decode.viterbi(dataset, packed.layout, theta, **given), found.labels[0])
    log_z = decode.log_partition(dataset, packed.layout, theta, **given)
    single = decode.marginals(dataset, packed.layout, theta, **given)
    pairs = decode.pair_marginals(dataset, packed.layout, theta, **given)
    for k, (x, a) in enumerate(zip(sequences, as_sets, strict=True)):
        lo, hi = dataset.offsets[k : k + 2]
        expected, expected_pairs = restricted.marginals(x, n_labels, weights, a, rules)
        assert log_z[k] == pytest.approx(restricted.distribution(x, n_labels, weights, a, rules)[1], abs=ROUNDING)
        np.testing.assert_allclose(single[lo:hi], expected, atol=ROUNDING)
        np.testing.assert_allclose(pairs[lo:hi], expected_pairs, atol=ROUNDING)
    labels = decode.posterior(dataset, packed.layout, theta, **given)
    np.testing.assert_array_equal(labels, single.argmax(axis=1))


@EXAMPLES
@given(lattices())
@pytest.mark.nojit
def test_pair_marginals_and_posterior(lattice):
    packed, theta = lattice
    weights = weights_of(packed.layout, theta)
    pairs = decode.pair_marginals(packed.dataset, packed.layout, theta)
    expected = [restricted.marginals(x, packed.problem.n_labels, weights)[1] for x in packed.problem.sequences]
    np.testing.assert_allclose(pairs, np.concatenate(expected), atol=ROUNDING)
    labels = decode.posterior(packed.dataset, packed.layout, theta)
    single = decode.marginals(packed.dataset, packed.layout, theta)
    assert labels.dtype == np.int32
    np.testing.assert_array_equal(labels, single.argmax(axis=1))


def test_the_labels_of_the_data_set_are_obeyed():
    """Known, unknown and set-valued labels by the flag are what the same boolean array says."""
    packed = pack(random_problem(3, 4, 5, 2, [6, 3]))
    sets = np.array([[True, True, False, False], [False, False, True, True]])
    labels = [0, -1, -2, 3, -3, -1, -2, 1, -1]
    data = make_dataset(packed.dataset.observations, labels, packed.dataset.offsets, label_sets=sets)
    rows = {-1: [True] * 4, -2: sets[0], -3: sets[1]} | {y: np.arange(4) == y for y in range(4)}
    table = np.array([rows[y] for y in labels])
    theta = random_theta(packed.layout.size, 1, scale=3.0)
    for function in (decode.viterbi, decode.marginals, decode.log_partition, decode.posterior):
        by_flag = function(data, packed.layout, theta, allowed="labels")
        assert by_flag.tobytes() == function(data, packed.layout, theta, allowed=table).tobytes()
        assert by_flag.tobytes() != function(data, packed.layout, theta).tobytes()


# ---- edges


def test_a_tie_goes_to_the_smaller_labels():
    data, layout = make_dataset([[0], [0]], None, [0, 2]), dense_layout(2, [BOTH])
    found = decode.nbest(data, layout, np.zeros(layout.size), 4)
    assert found.labels.T.tolist() == [[0, 1, 0, 1], [0, 0, 1, 1]]
    np.testing.assert_allclose(found.log_probabilities, -2 * np.log(2))


def test_a_tie_of_nbest_does_not_depend_on_threads():
    packed = pack(random_problem(5, 3, 4, 2, [5] * 100))
    theta = np.round(random_theta(packed.layout.size, 2))
    seen = set()
    for count in (1, 2, 4):
        set_threads(count)
        try:
            found = decode.nbest(packed.dataset, packed.layout, theta, 5)
            limits = random_limits(packed.dataset, 3, 7, share=0.9)[0]
            other = decode.marginals(packed.dataset, packed.layout, theta, allowed=limits)
            pairs = decode.pair_marginals(packed.dataset, packed.layout, theta)
        finally:
            set_threads(None)
        seen.add(b"".join(a.tobytes() for a in (*found, other, pairs)))
    assert len(seen) == 1


@pytest.mark.parametrize("n", [0, -1])
def test_fewer_than_one_labelling_is_refused(n):
    packed = pack(random_problem(5, 3, 4, 2, [2]))
    with pytest.raises(EspalierError, match=f"n is {n}: expected at least 1"):
        decode.nbest(packed.dataset, packed.layout, np.zeros(packed.layout.size), n)


def test_no_sequence_has_no_labelling():
    layout = dense_layout(2, [BOTH])
    found = decode.nbest(make_dataset(np.zeros((0, 3)), None, [0]), layout, np.ones(layout.size), 2)
    assert found.labels.shape == (2, 0) and found.scores.shape == (0, 2)


def test_pair_marginals_that_would_not_fit_are_refused():
    packed = pack(random_problem(5, 3, 4, 2, [4]))
    theta = np.zeros(packed.layout.size)
    with pytest.raises(EspalierError, match="3 labels at 4 positions take 384 bytes, the limit is 383"):
        decode.pair_marginals(packed.dataset, packed.layout, theta, limit=383)
    assert decode.pair_marginals(packed.dataset, packed.layout, theta, limit=384).shape == (4, 3, 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"allowed": np.ones((3, 3), bool)}, r"allowed has the shape \(3, 3\): expected \(4, 3\)"),
        ({"allowed": "label"}, "allowed is 'label': expected 'labels'"),
        ({"transitions": Transitions(np.ones(3, bool), np.ones((3, 2), bool), np.ones(3, bool))}, r"\(3, 2\)"),
    ],
)
def test_constraints_of_another_shape_are_refused(given, message):
    packed = pack(random_problem(5, 3, 4, 2, [4]))
    with pytest.raises(EspalierError, match=message):
        decode.viterbi(packed.dataset, packed.layout, np.zeros(packed.layout.size), **given)


@FEWER
@given(lattices(scale=700.0))
def test_weights_of_700_do_not_overflow(lattice):
    packed, theta = lattice
    n_labels, weights = packed.problem.n_labels, weights_of(packed.layout, theta)
    found = decode.nbest(packed.dataset, packed.layout, theta, 3)
    assert_nbest(found, packed.problem.sequences, n_labels, weights, 3, relative=LARGE)
    pairs = decode.pair_marginals(packed.dataset, packed.layout, theta)
    expected = [restricted.marginals(x, n_labels, weights)[1] for x in packed.problem.sequences]
    np.testing.assert_allclose(pairs, np.concatenate(expected), atol=1e-8)
    limits = random_limits(packed.dataset, n_labels, len(theta))
    dataset, sequences, allowed, transitions, as_sets, rules, _ = possible_only(packed, limits)
    given = {"allowed": allowed, "transitions": transitions}
    single = decode.marginals(dataset, packed.layout, theta, **given)
    log_z = decode.log_partition(dataset, packed.layout, theta, **given)
    for k, (x, a) in enumerate(zip(sequences, as_sets, strict=True)):
        expected = restricted.marginals(x, n_labels, weights, a, rules)[0]
        np.testing.assert_allclose(single[slice(*dataset.offsets[k : k + 2])], expected, atol=1e-8)
        assert log_z[k] == pytest.approx(restricted.distribution(x, n_labels, weights, a, rules)[1], rel=LARGE)
    found = decode.nbest(dataset, packed.layout, theta, 2, **given)
    assert_nbest(found, sequences, n_labels, weights, 2, as_sets, rules, relative=LARGE)


def test_two_chains_that_never_meet_and_the_worse_one_must_end():
    """Label 1 is worse by 5 at each of 500 positions, exp(-2500) of the other, but only it may end."""
    length = 500
    data, layout = make_dataset(np.zeros((length, 1)), None, [0, length]), dense_layout(2, [UNIGRAM])
    theta = np.array([5.0, 0.0])
    apart = Transitions(np.ones(2, bool), np.eye(2, dtype=bool), np.array([False, True]))
    assert decode.viterbi(data, layout, theta, transitions=apart).tolist() == [1] * length
    assert decode.log_partition(data, layout, theta, transitions=apart)[0] == pytest.approx(0.0, abs=ROUNDING)
    np.testing.assert_array_equal(decode.marginals(data, layout, theta, transitions=apart)[:, 1], 1.0)


@pytest.mark.parametrize("scale", [1.0, 700.0])
def test_a_hundred_thousand_positions(scale):
    rng = np.random.default_rng(5)
    ids, labels = rng.integers(-1, 3, (100_000, 2)), rng.integers(0, 3, 100_000)
    problem, data, layout = pack(Problem(3, [UNIGRAM, BIGRAM, BOTH], True, [ids.tolist()], [labels.tolist()], [1.0]))
    theta = scale * random_theta(layout.size, 6, scale=1.0)
    found = decode.nbest(data, layout, theta, 2)
    np.testing.assert_array_equal(found.labels[0], decode.viterbi(data, layout, theta))
    assert found.scores[0, 0] >= found.scores[0, 1]
    assert np.any(found.labels[0] != found.labels[1])
    for r in range(2):
        score = chain.score(problem.sequences[0], found.labels[r].tolist(), weights_of(layout, theta))
        assert found.scores[0, r] == pytest.approx(score, rel=1e-12)
    allowed = rng.random((100_000, 3)) < 0.7
    allowed[:, 1] = True
    single = decode.marginals(data, layout, theta, allowed=allowed)
    np.testing.assert_allclose(single.sum(axis=1), 1.0, atol=1e-9)
    assert np.all(single[~allowed] == 0.0)
    fixed = data._replace(labels=found.labels[1].copy())
    log_z = decode.log_partition(fixed, layout, theta, allowed="labels")
    assert log_z[0] == pytest.approx(found.scores[0, 1], rel=1e-12)


# ---- schemes

BIO = ["B-X", "B-Y", "I-X", "I-Y", "O"]
BIOES = ["B-X", "E-X", "I-X", "O", "S-X", "B-Y", "E-Y"]


def allowed_steps(labels, transitions):
    start, pair, end = transitions
    steps = {("<", labels[y]) for y in np.flatnonzero(start)} | {(labels[y], ">") for y in np.flatnonzero(end)}
    return steps | {(labels[i], labels[j]) for i, j in zip(*np.nonzero(pair), strict=True)}


def test_iob2_begins_with_b():
    steps = allowed_steps(BIO, transitions_of(BIO))
    every = {(a, b) for a in ["<", *BIO] for b in [*BIO, ">"]} - {("<", ">")}
    forbidden = {(a, b) for a, b in every if b[0] == "I" and a not in ("B" + b[1:], "I" + b[1:])}
    assert steps == every - forbidden
    assert steps == allowed_steps(BIO, transitions_of(BIO, "BIO")) == allowed_steps(BIO, transitions_of(BIO, "iob2"))


def test_iob1_begins_with_b_only_after_its_own_kind():
    steps = allowed_steps(BIO, transitions_of(BIO, "iob1"))
    assert ("<", "I-X") in steps and ("O", "I-X") in steps and ("I-Y", "I-X") in steps
    assert {a for a, b in steps if b == "B-X"} == {"B-X", "I-X"}


def test_bioes_closes_what_it_opens():
    steps = allowed_steps(BIOES, transitions_of(BIOES))
    assert {b for a, b in steps if a == "B-X"} == {b for a, b in steps if a == "I-X"} == {"I-X", "E-X"}
    assert {b for a, b in steps if a == "B-Y"} == {"E-Y"}
    for before in ("E-X", "S-X", "O", "E-Y"):
        assert {b for a, b in steps if a == before} == {"B-X", "B-Y", "S-X", "O", ">"}
    assert {b for a, b in steps if a == "<"} == {"B-X", "B-Y", "S-X", "O"}


@pytest.mark.parametrize(
    ("labels", "scheme", "message"),
    [
        (["O", "NOUN"], True, "label 'NOUN' is not one of iob2: expected O, B-…, I-…"),
        (["O", "E-X", "B-X"], "bio", "label 'E-X' is not one of iob2"),
        (["O", "I-X"], True, "label 'I-X' has no 'B-X' beside it: the labels are not iob2"),
        (["O", "B-X"], "bilou", "scheme 'bilou' is not known: choose one of iob2, iob1, bioes, bio, iobes"),
    ],
)
def test_labels_of_no_scheme_are_refused(labels, scheme, message):
    with pytest.raises(EspalierError, match=message):
        transitions_of(labels, scheme)
