"""The mixture of multinomials against EM with dense matrices."""

import itertools
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import mixture as reference

from espalier.engine.errors import EspalierError
from espalier.engine.runtime.threads import set_threads
from espalier.engine.semisup.mixture import Mixture, bags, choose_clusters, drop_empty, fit_mixture

ROOT = Path(__file__).resolve().parents[2]
ROUNDING = 1e-9  # EM steps compound the rounding of the ones before
RISE = 1e-9  # relative; EM never lowers its objective but for rounding
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=40)


def csr(matrix):
    """Sparse rows of a dense matrix, zeros left out."""
    matrix = np.asarray(matrix, dtype=float)
    rows = [np.flatnonzero(row) for row in matrix]
    indptr = np.concatenate([[0], np.cumsum([len(r) for r in rows])])
    return (
        indptr,
        np.concatenate([*rows, []]).astype(np.int32),
        np.concatenate([*(m[r] for m, r in zip(matrix, rows, strict=True)), []]),
    )


def random_counts(seed, n=12, features=5):
    rng = np.random.default_rng(seed)
    centres = rng.dirichlet(np.full(features, 0.4), 3)
    return np.array([rng.multinomial(rng.integers(0, 9), centres[rng.integers(3)]) for _ in range(n)], dtype=float)


def fit(matrix, k, **options):
    return fit_mixture(*csr(matrix), np.shape(matrix)[1], k, **options)


def parameters(mixture):
    return np.exp(mixture.log_weights), np.exp(mixture.log_probabilities)


@EXAMPLES
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([1e-3, 0.1, 1.0]), st.integers(1, 6))
@pytest.mark.nojit
def test_one_more_iteration_is_one_step_of_em(seed, k, smoothing, iterations):
    counts = random_counts(seed)
    options = dict(seed=seed, restarts=1, smoothing=smoothing, tolerance=0.0)
    before, after = (fit(counts, k, iterations=i, **options) for i in (iterations, iterations + 1))
    weights, probabilities = reference.em_step(counts, *parameters(before), smoothing)
    found_weights, found_probabilities = parameters(after)
    np.testing.assert_allclose(found_weights, weights, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(found_probabilities, probabilities, rtol=0, atol=ROUNDING)
    assert after.log_likelihood == pytest.approx(reference.log_likelihood(counts, weights, probabilities), abs=1e-7)
    assert after.history[-1] == after.log_likelihood


@EXAMPLES
@given(st.integers(0, 10**6), st.integers(1, 4))
@pytest.mark.nojit
def test_likelihood_posterior_and_assignment(seed, k):
    counts = random_counts(seed)
    mixture = fit(counts, k, seed=seed, iterations=3)
    posterior, log_p = mixture.responsibilities(*csr(counts))
    weights, probabilities = parameters(mixture)
    np.testing.assert_allclose(posterior, reference.posterior(counts, weights, probabilities), rtol=0, atol=ROUNDING)
    assert log_p.sum() == pytest.approx(reference.log_likelihood(counts, weights, probabilities), abs=1e-8)
    joint = np.sort(reference.log_joint(counts, weights, probabilities), axis=1)
    clear = joint[:, -1] - joint[:, -2] > 1e-9 if k > 1 else np.ones(len(counts), bool)
    assigned = mixture.assign(*csr(counts))
    assert assigned.dtype == np.int32
    np.testing.assert_array_equal(assigned[clear], reference.assign(counts, weights, probabilities)[clear])


@pytest.mark.parametrize("smoothing", [1e-12, 0.1])
def test_em_climbs(smoothing):
    """The likelihood times the prior of the smoothing never falls; the prior is nearly absent in one case."""
    counts = random_counts(5, n=40)
    fits = [fit(counts, 3, seed=6, iterations=i, smoothing=smoothing, tolerance=0.0) for i in range(1, 15)]
    climbed = [reference.log_posterior(counts, *parameters(f), smoothing) for f in fits]
    assert climbed[-1] > climbed[0]
    for before, after in itertools.pairwise(climbed):
        assert after >= before - RISE * abs(before)


def test_the_history_is_the_likelihood_after_each_iteration():
    counts = random_counts(5, n=40)
    history = fit(counts, 3, seed=6, iterations=6, tolerance=0.0).history
    each = [fit(counts, 3, seed=6, iterations=i, tolerance=0.0).log_likelihood for i in range(1, 7)]
    assert history == each


def test_em_stops_when_the_likelihood_stands():
    counts = random_counts(7, n=40)
    mixture = fit(counts, 3, seed=1, iterations=10_000, tolerance=1e-6)
    assert len(mixture.history) < 10_000
    assert abs(mixture.history[-1] - mixture.history[-2]) <= 1e-6 * abs(mixture.history[-1])


def test_clear_clusters_are_found():
    rng = np.random.default_rng(8)
    centres = np.array([[0.9, 0.1, 0.0, 0.0], [0.0, 0.0, 0.1, 0.9]])
    truth = np.repeat([0, 1], [30, 10])
    counts = np.array([rng.multinomial(20, centres[c]) for c in truth])
    mixture = fit(counts, 2, seed=3, iterations=50, restarts=3, smoothing=0.01)
    assigned = mixture.assign(*csr(counts))
    assert len(set(zip(truth, assigned, strict=True))) == 2
    assert sorted(parameters(mixture)[0]) == pytest.approx([0.25, 0.75], abs=0.01)


def test_parameters_are_distributions():
    weights, probabilities = parameters(fit(random_counts(9), 4, seed=2))
    assert weights.shape == (4,) and probabilities.shape == (4, 5)
    assert weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)


def test_the_best_of_several_starts_is_kept():
    gains = []
    for seed in range(5):
        counts = random_counts(seed, n=30)
        one, several = (fit(counts, 3, seed=seed, iterations=15, restarts=r).log_likelihood for r in (1, 6))
        gains.append(several - one)
    assert min(gains) >= 0.0
    assert max(gains) > 0.1, "more starts never helped: they may be the same start"


def test_the_seed_decides():
    counts = random_counts(10)
    one, same, other = (fit(counts, 3, seed=s, iterations=2) for s in (1, 1, 2))
    assert one.log_probabilities.tobytes() == same.log_probabilities.tobytes()
    assert one.log_probabilities.tobytes() != other.log_probabilities.tobytes()


def test_threads_do_not_matter():
    counts = random_counts(11, n=300)
    seen = set()
    try:
        for budget in (1, 2, 4):
            set_threads(budget)
            mixture = fit(counts, 4, seed=5, iterations=5, tolerance=0.0)
            seen.add((mixture.log_probabilities.tobytes(), mixture.log_weights.tobytes(), mixture.log_likelihood))
    finally:
        set_threads(None)
    assert len(seen) == 1


@pytest.mark.nojit
def test_an_empty_vector_falls_to_the_largest_cluster():
    mixture = Mixture(np.log([0.3, 0.6, 0.1]), np.log(np.full((3, 2), 0.5)), math.nan, [])
    assert mixture.assign(np.array([0, 0]), np.empty(0, np.int32), np.empty(0)).tolist() == [1]
    assert mixture.assign(np.array([0]), np.empty(0, np.int32), np.empty(0)).tolist() == []


def test_one_cluster_is_the_average():
    counts = random_counts(12)
    weights, probabilities = parameters(fit(counts, 1, smoothing=0.5))
    assert weights == pytest.approx([1.0])
    expected = (counts.sum(axis=0) + 0.5) / (counts.sum() + 0.5 * 5)
    np.testing.assert_allclose(probabilities[0], expected, atol=ROUNDING)


def test_no_smoothing_is_refused_or_right():
    """Features that a cluster never has get probability 0; that must not turn into NaN."""
    counts = np.array([[300.0, 0.0], [0.0, 300.0], [200.0, 0.0]])
    try:
        mixture = fit(counts, 2, smoothing=0.0, iterations=20)
    except EspalierError as error:
        assert "smoothing" in str(error)
    else:
        posterior, log_p = mixture.responsibilities(*csr(counts))
        assert np.isfinite(posterior).all() and np.isfinite(log_p).all()


@pytest.mark.parametrize(
    ("matrix", "k", "message"),
    [
        (np.empty((0, 3)), 1, "there is nothing to cluster"),
        ([[1, 0, 0]], 2, "2 clusters for 1 count vectors: choose between 1 and 1"),
        ([[1, 0, 0]], 0, "0 clusters for 1 count vectors"),
        ([[1, 0, 0], [0, math.nan, 0]], 1, "count nan in vector 1: expected a finite number"),
        ([[1, 0, 0], [0, -2, 0]], 1, "count -2.0 in vector 1"),
    ],
)
def test_what_cannot_be_clustered_is_named(matrix, k, message):
    with pytest.raises(EspalierError, match=message):
        fit(matrix, k)


@pytest.mark.parametrize(("indices", "found"), [([0, 3], "feature 3"), ([-1, 1], "feature -1")])
def test_features_outside_the_vocabulary_are_named(indices, found):
    with pytest.raises(EspalierError, match=f"{found}: expected ids from 0 to 2"):
        fit_mixture([0, 1, 2], indices, [1.0, 1.0], 3, 1)


def test_pointers_beyond_the_data_are_refused():
    """Compiled code would read past the end of an array; in a process of its own, because that may crash."""
    code = "from espalier import fit_mixture; fit_mixture([0, 1, 900_000], [0, 1], [1.0, 1.0], 3, 1)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, f"exit status {done.returncode}"
    assert "EspalierError" in done.stderr


# ---- clusters that nobody is in, and how many there are


def test_clusters_that_nobody_is_in_are_dropped():
    phi = np.array([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8], [0.1, 0.8, 0.1]])
    mixture = Mixture(np.log([0.5, 0.1, 0.4]), np.log(phi), math.nan, [])
    counts = np.array([[5.0, 0, 0], [0, 5.0, 0]])
    kept = drop_empty(mixture, *csr(counts))
    np.testing.assert_allclose(np.exp(kept.log_weights), [5 / 9, 4 / 9])
    np.testing.assert_allclose(np.exp(kept.log_probabilities), phi[[0, 2]])
    assert kept.assign(*csr(counts)).tolist() == [0, 1]
    assert drop_empty(kept, *csr(counts)) is kept


def three_heaps(n=150):
    rng = np.random.default_rng(13)
    centres = np.array([[0.8, 0.1, 0.1, 0.0], [0.0, 0.8, 0.1, 0.1], [0.1, 0.0, 0.1, 0.8]])
    return np.array([rng.multinomial(15, centres[c]) for c in rng.integers(0, 3, n)])


def test_held_out_vectors_choose_the_number_of_clusters():
    counts = three_heaps()
    k, found = choose_clusters(*csr(counts), 4, 10, seed=1, restarts=4, iterations=60)
    assert k == 3 and list(found) == [1, 2, 3, 5, 7, 10]
    assert found[3] == max(found.values()) and found[3] > found[2] > found[1]


def test_the_likelihood_is_that_of_the_vectors_held_out():
    """One cluster: the average of four fifths, judged on the rest; all vectors are alike but one."""
    counts = np.tile([2.0, 1.0], (10, 1))
    k, found = choose_clusters(*csr(counts), 2, 1, smoothing=1e-9)
    assert k == 1 and found == {1: pytest.approx(2 * math.log(2 / 3) + math.log(1 / 3), abs=1e-6)}


def test_too_few_vectors_to_hold_any_out_make_one_cluster():
    assert choose_clusters(*csr([[1.0, 0.0]] * 4), 2, 5) == (1, {})
    assert list(choose_clusters(*csr([[1.0, 0.0]] * 5), 2, 50)[1]) == [1, 2, 3, 4]
    with pytest.raises(EspalierError, match="at most 0 clusters: expected at least 1"):
        choose_clusters(*csr([[1.0, 0.0]] * 5), 2, 0)


# ---- count vectors of sequences


@EXAMPLES
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(1, 4), min_size=1, max_size=5),
    st.integers(1, 3),
    st.sampled_from([0.3, 1.0]),
)
@pytest.mark.nojit
def test_bags_count_the_observations_of_each_sequence(seed, lengths, columns, none):
    rng = np.random.default_rng(seed)
    observations = rng.integers(0, 5, (sum(lengths), columns)).astype(np.int32)
    observations[rng.random(observations.shape) < none] = -1
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indptr, indices, counts = bags(observations, offsets)
    assert len(indptr) == len(lengths) + 1
    for n, (lo, hi) in enumerate(itertools.pairwise(offsets)):
        expected = Counter(o for o in observations[lo:hi].ravel().tolist() if o >= 0)
        mine = slice(indptr[n], indptr[n + 1])
        assert dict(zip(indices[mine].tolist(), counts[mine].tolist(), strict=True)) == expected
