"""Data from a known hidden Markov model: its tables are probabilities and the draws follow them."""

import math

import numpy as np
import pytest

from espalier.tasks.params import Ingest
from espalier.tasks.sources import simulated

EXACT = 1e-12
FIVE_SIGMA = 5.0
BAYES_ERROR = 0.154  # stated where the model is described, to three places

SMALL = {"initial": [0.2, 0.8], "transition": [[0.9, 0.1], [0.4, 0.6]], "emission": [[0.7, 0.2, 0.1], [0.0, 0.5, 0.5]],
         "labels": ["A", "B"], "symbols": ["u", "v", "w"], "length": 4}  # fmt: skip


def test_the_tables_are_probabilities_of_the_right_shape():
    truth = simulated.truth()
    assert np.shape(truth["initial"]) == (6,) and np.shape(truth["transition"]) == (6, 6)
    assert np.shape(truth["emission"]) == (6, 5)
    for name in ("initial", "transition", "emission"):
        table = np.atleast_2d(truth[name])
        assert (table > 0).all() and np.allclose(table.sum(axis=1), 1, atol=EXACT)
    assert len(truth["labels"]) == 6 and len(truth["symbols"]) == 5 and truth["length"] == 5


def test_the_bayes_error_that_the_model_states():
    """By the sum over states of p(state, input), input by input: no recurrence."""
    truth = simulated.truth()
    pi, a, b = (np.array(truth[name]) for name in ("initial", "transition", "emission"))
    letters = "abcde"
    spec = ",".join(
        ["a", *(letters[t : t + 2] for t in range(4)), *(letters[t] + letters[t].upper() for t in range(5))]
    )
    operands = [pi, *[a] * 4, *[b] * 5]
    error = 0.0
    for t in range(5):
        joint = np.einsum(f"{spec}->{letters[t]}ABCDE", *operands, optimize=True)
        error += (1 - joint.max(axis=0).sum()) / 5
    assert error == pytest.approx(BAYES_ERROR, abs=5e-4)


def test_the_draws_follow_the_tables():
    count = 20_000
    states, symbols = simulated.draw(SMALL, count, [7])
    assert states.shape == symbols.shape == (count, 4)

    def near(found, p, n):
        return abs(found - p) <= FIVE_SIGMA * math.sqrt(max(p * (1 - p), 0) / n) + EXACT

    assert near((states[:, 0] == 1).mean(), 0.8, count)
    for i in range(2):
        before = states[:, :-1] == i
        assert near((states[:, 1:][before] == 1).mean(), SMALL["transition"][i][1], before.sum())
        for k in range(3):
            assert near((symbols[states == i] == k).mean(), SMALL["emission"][i][k], (states == i).sum())


def test_an_impossible_symbol_never_comes():
    states, symbols = simulated.draw(SMALL, 5000, [1])
    assert not np.any(symbols[states == 1] == 0)


def test_draws_repeat_with_the_seed_and_differ_without():
    first, again, other = (simulated.draw(SMALL, 50, seed) for seed in ([1, 2], [1, 2], [2, 2]))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_tokens_spell_the_draws_out():
    tokens = simulated.tokens_of(SMALL, np.array([[0, 1, 1, 0]]), np.array([[0, 2, 1, 1]]))
    assert tokens.rows() == [(0, "u", "A"), (0, "w", "B"), (0, "v", "B"), (0, "v", "A")]


def test_parts_have_the_sizes_asked_for_and_are_drawn_apart():
    corpus = simulated.read(None, Ingest(limit=200, dev_share=0.2, test_share=0.2, unlabelled_share=0.3))
    sizes = {name: corpus.whole(name)["sequence"].n_unique() for name in corpus.parts}
    assert sizes == {"train": 60, "dev": 40, "test": 40, "unlabelled": 60}
    assert not corpus.whole("dev").equals(corpus.whole("test"))
    assert not corpus.whole("train").equals(corpus.whole("unlabelled"))
    assert corpus.truth == simulated.truth()


def test_without_a_limit_there_is_a_default_size():
    corpus = simulated.read(None, Ingest(limit=None))
    assert sum(corpus.whole(name)["sequence"].n_unique() for name in corpus.parts) == simulated.DEFAULT_SEQUENCES


def test_shares_that_round_to_everything_leave_an_empty_part_not_an_error():
    """0.35, 0.35 and 0.29 of ten round to eleven; the split then says that nothing is left."""
    corpus = simulated.read(None, Ingest(limit=10, dev_share=0.35, test_share=0.35, unlabelled_share=0.29))
    assert corpus.whole("train").is_empty()
