"""Weights for triples of labels, by enumeration: the loss, its gradient, every decoder; and what is refused."""

import numpy as np
import pytest
from chain_problems import dataset_of, random_theta
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import chain, triples
from reference.problems import random_problem

from espalier.engine.decoding import decode
from espalier.engine.labels.scheme import Transitions
from espalier.engine.losses.triple_objective import TripleObjective
from espalier.engine.weights.layout import make_layout, merged, seen_layout
from espalier.engine.weights.seen_counts import SeenCounts

CLOSE = 1e-10  # sums of a few hundred terms in another order
SLOPE, STEP = 1e-5, 1e-6  # of finite differences
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=40)
SEEDS = st.integers(0, 2**32)


def random_triples(seed):
    """A problem with observations of every kind, at least one of which has weights for triples."""
    rng = np.random.default_rng(seed)
    n_labels, n_observations = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    kinds = rng.choice([1, 2, 3, 4], n_observations).tolist()
    kinds[0] = 4
    lengths = np.maximum(1, rng.integers(0, 6, 4)).tolist()
    return random_problem(seed, n_labels, n_observations, int(rng.integers(1, 4)), lengths, bool(rng.integers(2)),
                          float(rng.choice([0.0, 0.2])), kinds)  # fmt: skip


def chain_of(problem):
    data = dataset_of(problem)
    return data, make_layout("seen", data, problem.n_labels, np.array(problem.kinds, np.uint8), problem.start)


def as_oracle(layout, theta):
    weights, tau = chain.Weights({}, {}, {}), {}
    for family, o, p, y, value in zip(*(column.tolist() for column in layout.slots()), theta.tolist(), strict=True):
        if family == 3:
            tau[o, *divmod(p, layout.n_labels), y] = value
        else:
            (weights.mu, weights.start, weights.lam)[family][(o, p, y) if family == 2 else (o, y)] = value
    return weights, tau


def drawn_theta(layout, seed):
    rng = np.random.default_rng(seed)
    scale, density = float(rng.choice([0.5, 2.0, 60.0])), float(rng.choice([0.1, 0.5, 1.0]))
    return random_theta(layout.size, seed, density, scale)


@EXAMPLES
@given(SEEDS)
@pytest.mark.nojit
def test_there_are_weights_for_the_triples_that_occur(seed):
    problem = random_triples(seed)
    data, layout = chain_of(problem)
    _, tau = as_oracle(layout, np.ones(layout.size))
    kinds = problem.kinds
    assert tau.keys() == {key for key in triples.seen(problem) if kinds[key[0]] == 4}
    counts = SeenCounts(problem.n_labels, np.array(kinds, np.uint8), problem.start)
    counts.add(data)
    assert counts.counts.get("trigram", 0) == len(tau) and sum(counts.counts.values()) == layout.size
    halves = [seen_layout(part, problem.n_labels, kinds, problem.start) for part in (data, data)]
    for one, other in zip(merged(halves), layout, strict=True):
        np.testing.assert_array_equal(one, other)


@EXAMPLES
@given(SEEDS, SEEDS)
@pytest.mark.nojit
def test_value_and_gradient_by_enumeration(seed, draw):
    problem = random_triples(seed)
    data, layout = chain_of(problem)
    theta = drawn_theta(layout, draw)
    weights, tau = as_oracle(layout, theta)
    objective = TripleObjective(data, layout)
    value, gradient = objective.value_and_gradient(theta)
    expected = triples.loss(problem, weights, tau)
    assert value == pytest.approx(expected, abs=CLOSE * max(1.0, abs(expected)))
    assert objective.value(theta) == pytest.approx(expected, abs=CLOSE * max(1.0, abs(expected)))
    slopes = triples.gradient(problem, weights, tau)
    names = ("mu", "start", "lam", "tau")
    for slot, (family, o, p, y) in enumerate(zip(*(column.tolist() for column in layout.slots()), strict=True)):
        where = {2: (o, p, y), 3: (o, *divmod(p, layout.n_labels), y)}.get(family, (o, y))
        assert gradient[slot] == pytest.approx(slopes.get((names[family], *where), 0.0), abs=CLOSE)


def forbidding(n_labels, rng):
    """Transitions that leave every sequence a labelling: label 0 may always follow itself."""
    start, pair, end = rng.random(n_labels) < 0.7, rng.random((n_labels, n_labels)) < 0.7, rng.random(n_labels) < 0.7
    start[0] = pair[0, 0] = end[0] = True
    return Transitions(start, pair, end)


@EXAMPLES
@given(SEEDS, SEEDS, st.booleans())
@pytest.mark.nojit
def test_every_decoder_by_enumeration(seed, draw, limited):
    problem = random_triples(seed)
    data, layout = chain_of(problem)
    theta, y = drawn_theta(layout, draw), problem.n_labels
    weights, tau = as_oracle(layout, theta)
    moves = forbidding(y, np.random.default_rng(draw)) if limited else None
    only = {"transitions": moves} if limited else {}

    def allowed(labels):
        return moves is None or (
            moves.start[labels[0]] and moves.end[labels[-1]]
            and all(moves.pair[a, b] for a, b in zip(labels, labels[1:], strict=False))
        )  # fmt: skip

    log_z, gamma = decode.log_partition(data, layout, theta, **only), decode.marginals(data, layout, theta, **only)
    best, found = decode.viterbi(data, layout, theta, **only), decode.nbest(data, layout, theta, 4, **only)
    own = decode.sequence_score(data, layout, theta)
    for n, x in enumerate(problem.sequences):
        run = slice(data.offsets[n], data.offsets[n + 1])
        size = max(1.0, abs(float(log_z[n])))
        assert log_z[n] == pytest.approx(triples.log_partition(x, y, weights, tau, allowed), abs=CLOSE * size)
        np.testing.assert_allclose(gamma[run], triples.marginals(x, y, weights, tau, allowed), atol=CLOSE)
        ranked = triples.ranked(x, y, weights, tau, allowed)
        assert triples.score(x, best[run].tolist(), weights, tau) == pytest.approx(ranked[0], abs=CLOSE * size)
        assert allowed(best[run].tolist())
        assert own[n] == pytest.approx(triples.score(x, problem.labels[n], weights, tau), abs=CLOSE * size)
        count = min(4, len(ranked))
        assert found.count[n] == count
        labellings = [tuple(found.labels[r, run].tolist()) for r in range(count)]
        assert len(set(labellings)) == count
        for r, labels in enumerate(labellings):
            assert found.scores[n, r] == pytest.approx(ranked[r], abs=CLOSE * size)
            assert triples.score(x, labels, weights, tau) == pytest.approx(ranked[r], abs=CLOSE * size)
            assert found.log_probabilities[n, r] == pytest.approx(ranked[r] - log_z[n], abs=CLOSE * size)
