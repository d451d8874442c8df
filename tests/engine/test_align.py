"""The letter-phoneme aligner against the enumeration of every segmentation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reference import align as reference

from espalier.engine.errors import EspalierError
from espalier.engine.runtime.threads import set_threads
from espalier.engine.text.letter_alignment import Words, align, best_groups, expected_counts, n_groups

ROUNDING = 1e-10  # sums of a few hundred products of probabilities
RISE = 1e-9  # relative; EM never lowers the likelihood but for rounding

N_LETTERS, N_PHONEMES = 3, 2
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=60)
WORD = st.tuples(
    st.lists(st.integers(0, N_LETTERS - 1), min_size=1, max_size=5),
    st.lists(st.integers(0, N_PHONEMES - 1), min_size=0, max_size=7),
)


def code_of(group, n_phonemes=N_PHONEMES):
    """The engine's code of a group: 0, then single phonemes, then pairs in row order."""
    everything = [(), *((p,) for p in range(n_phonemes)), *itertools.product(range(n_phonemes), repeat=2)]
    return everything.index(tuple(group))


def group_of(code, n_phonemes=N_PHONEMES):
    everything = [(), *((p,) for p in range(n_phonemes)), *itertools.product(range(n_phonemes), repeat=2)]
    return everything[code]


def pack(words):
    letters, phonemes = ([part[i] for part in words] for i in (0, 1))

    def flat(rows):
        ptr = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
        return np.array([item for r in rows for item in r], dtype=np.int32), ptr

    return Words(*flat(letters), *flat(phonemes))


def random_probability(seed, zeros=0.3):
    rng = np.random.default_rng(seed)
    table = rng.random((N_LETTERS, n_groups(N_PHONEMES)))
    table[rng.random(table.shape) < zeros] = 0.0
    table[:, 0] += 1e-3
    return table / table.sum(axis=1, keepdims=True)


def as_dict(table):
    return {(a, group_of(c)): float(p) for (a, c), p in np.ndenumerate(table) if p > 0}


def cut(words, groups):
    """Sizes of the groups of each word, and a check that they spell the phonemes."""
    at, sizes = 0, []
    for letters, phonemes in words:
        mine = [group_of(c) for c in groups[at : at + len(letters)]]
        at += len(letters)
        assert [p for group in mine for p in group] == list(phonemes)
        sizes.append(tuple(map(len, mine)))
    return sizes


@pytest.mark.nojit
def test_group_codes_count_and_order():
    assert n_groups(2) == 7
    assert [group_of(c) for c in range(7)] == [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]


@EXAMPLES
@given(st.lists(WORD, min_size=1, max_size=4), st.integers(0, 10**6))
@pytest.mark.nojit
def test_expected_counts_and_likelihood(words, seed):
    table = random_probability(seed)
    counts = np.zeros_like(table)
    found = expected_counts(pack(words), N_PHONEMES, table, 0, len(words), counts)
    expected, total = np.zeros_like(table), []
    for letters, phonemes in words:
        z = reference.total_probability(letters, phonemes, as_dict(table))
        total += [math.log(z)] if z > 0 else []
        for (letter, group), use in reference.expected_counts(letters, phonemes, as_dict(table)).items():
            expected[letter, code_of(group)] += use
    assert found == pytest.approx(math.fsum(total), abs=ROUNDING)
    np.testing.assert_allclose(counts, expected, rtol=0, atol=ROUNDING)


@EXAMPLES
@given(st.lists(WORD, min_size=1, max_size=4), st.integers(0, 10**6), st.sampled_from([0.0, 0.5]))
@pytest.mark.nojit
def test_best_groups(words, seed, zeros):
    table = random_probability(seed, zeros)
    packed = pack(words)
    groups, aligned = np.empty(len(packed.letters), np.int32), np.empty(len(words), np.bool_)
    best_groups(packed, N_PHONEMES, table, groups, aligned)
    for n, (letters, phonemes) in enumerate(words):
        best, _ = reference.best_paths(letters, phonemes, as_dict(table))
        mine = groups[packed.letter_ptr[n] : packed.letter_ptr[n + 1]]
        assert aligned[n] == bool(best)
        if best:
            assert cut([(letters, phonemes)], mine)[0] in best
        else:
            assert np.all(mine == -1)


def oracle_em(words, iterations):
    """EM from the uniform distribution over all groups."""
    table = np.full((N_LETTERS, n_groups(N_PHONEMES)), 1.0 / n_groups(N_PHONEMES))
    history = []
    for _ in range(iterations):
        counts, total = np.zeros_like(table), []
        for letters, phonemes in words:
            z = reference.total_probability(letters, phonemes, as_dict(table))
            total += [math.log(z)] if z > 0 else []
            for (letter, group), use in reference.expected_counts(letters, phonemes, as_dict(table)).items():
                counts[letter, code_of(group)] += use
        history.append(math.fsum(total))
        sums = counts.sum(axis=1, keepdims=True)
        table = np.divide(counts, sums, out=np.zeros_like(counts), where=sums > 0)
    return table, history


@settings(deadline=None, derandomize=True, max_examples=25)
@given(st.lists(WORD, min_size=1, max_size=4), st.integers(1, 4))
def test_em_is_the_oracles_em(words, iterations):
    """With pair_count = 0 no pair is forbidden, so both rounds are the same EM."""
    assume(any(len(phonemes) <= 2 * len(letters) for letters, phonemes in words))
    found = align(pack(words), N_LETTERS, N_PHONEMES, pair_count=0, iterations=iterations)
    table, history = oracle_em(words, iterations)
    np.testing.assert_allclose(found.probability, table, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.log_likelihood, history * 2, rtol=1e-9, atol=ROUNDING)


# Letters 0 and 1 sound 0 and 1; letter 2 is silent, but in one word it sounds as the pair (0, 1)
DICTIONARY = [([0, 1, 2], [0, 1]), ([1, 0], [1, 0]), ([2, 1], [1]), ([0, 0], [0, 0])] * 5 + [([2], [0, 1])]


@pytest.mark.nojit
def test_a_small_dictionary_is_aligned_as_a_person_would():
    found = align(pack(DICTIONARY), N_LETTERS, N_PHONEMES, pair_count=1, iterations=20)
    assert found.aligned.all()
    assert cut(DICTIONARY, found.groups) == [(1, 1, 0), (1, 1), (0, 1), (1, 1)] * 5 + [(2,)]


def test_rare_pairs_are_forbidden_and_their_words_reported():
    found = align(pack(DICTIONARY), N_LETTERS, N_PHONEMES, pair_count=2, iterations=20)
    assert found.aligned.tolist() == [True] * 20 + [False]
    assert found.groups[-1] == -1
    assert not found.probability[:, 1 + N_PHONEMES :].any()


def test_the_likelihood_never_falls_within_a_round():
    found = align(pack(DICTIONARY), N_LETTERS, N_PHONEMES, pair_count=1, iterations=15)
    assert len(found.log_likelihood) == 30
    for half in (found.log_likelihood[:15], found.log_likelihood[15:]):
        for before, after in itertools.pairwise(half):
            assert after >= before - RISE * abs(before)


def test_probabilities_of_each_letter_sum_to_one():
    found = align(pack(DICTIONARY), N_LETTERS, N_PHONEMES, pair_count=1, iterations=5)
    np.testing.assert_allclose(found.probability.sum(axis=1), 1.0, atol=ROUNDING)


def test_more_than_two_phonemes_a_letter_cannot_be_aligned():
    found = align(pack([([0], [0, 1, 0]), ([0], [0])]), N_LETTERS, N_PHONEMES, pair_count=0, iterations=3)
    assert found.aligned.tolist() == [False, True]
    assert found.groups.tolist() == [-1, code_of((0,))]


def test_a_word_without_phonemes_is_silent():
    found = align(pack([([0, 1], []), ([0], [0])]), N_LETTERS, N_PHONEMES, pair_count=0, iterations=3)
    assert found.groups[:2].tolist() == [0, 0]


def test_a_long_word_does_not_underflow():
    """150 letters, 40 phonemes: a path starts at (1 / 1641) ** 150, far below the least float64."""
    rng = np.random.default_rng(1)
    words = [(rng.integers(0, 26, 150).tolist(), rng.integers(0, 40, 150).tolist())]
    found = align(pack(words), 26, 40, pair_count=0, iterations=2)
    assert found.aligned.tolist() == [True]
    assert np.isfinite(found.log_likelihood).all()
    assert found.log_likelihood[0] < -150


def test_no_word_is_an_error():
    with pytest.raises(EspalierError, match="there is no word to align"):
        align(pack([]), N_LETTERS, N_PHONEMES)


def test_threads_do_not_matter():
    rng = np.random.default_rng(2)
    words = [(rng.integers(0, 3, n).tolist(), rng.integers(0, 2, n).tolist()) for n in rng.integers(1, 7, 200)]
    seen = set()
    try:
        for count in (1, 2, 4):
            set_threads(count)
            found = align(pack(words), N_LETTERS, N_PHONEMES, pair_count=2, iterations=4)
            seen.add((found.probability.tobytes(), found.groups.tobytes(), tuple(found.log_likelihood)))
    finally:
        set_threads(None)
    assert len(seen) == 1
