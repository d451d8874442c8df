"""The oracles of hidden Markov models and MEMMs, against values worked out by hand and against each other."""

import itertools
import math

import numpy as np
import pytest
from reference import chain, hmm, lattice, memm

EXACT = 1e-12  # a handful of roundings
PRINTED = 5e-5  # the worked example is printed to four decimals
STEP, DIFFERENCE = 1e-5, 1e-6  # central differences with this step lose about ten of sixteen digits

# ---- hidden Markov models

SEQUENCES = [
    [("a", "X"), ("b", None), ("a", "Y")],
    [("c", "X"), ("a", None)],
    [("b", "Y")],
    [("a", None), ("d", "X"), ("d", "X"), ("b", "Y")],
]
LABELS = [[0, 1, 0], [1, 0], [2], [0, 1, 1, 2]]
WEIGHTS = [1.0, 2.5, 0.5, 2.0]


def counted(sequences=SEQUENCES, labels=LABELS, weights=WEIGHTS):
    return hmm.counts(sequences, labels, weights, 3, 2)


def test_worked_example_has_six_paths_and_the_printed_probability():
    model, sequence = hmm.worked_example()
    possible = {y: math.exp(value) for y, value in hmm.enumerate_all(model, sequence).items() if value > -math.inf}
    assert set(possible) == {(0, y, z, 2) for y in (0, 1) for z in (0, 1, 2)}
    assert possible[0, 0, 1, 2] == pytest.approx(0.3 * 0.2 * 0.7 * 0.5 * 0.6 * 0.7 * 0.8 * 0.6, abs=EXACT)
    assert math.exp(hmm.log_probability(model, sequence)) == pytest.approx(0.00615312, abs=EXACT)
    assert hmm.best(model, sequence) == (0, 0, 1, 2)


def test_worked_example_has_the_printed_expectations():
    model, sequence = hmm.worked_example()
    single, pairs = hmm.marginals(model, sequence), hmm.pair_marginals(model, sequence)
    expected = pairs.sum(axis=0)
    assert expected[0, 0] == pytest.approx(0.8846, abs=PRINTED)
    final = single[-1]  # the transitions to F
    again = np.append(expected[0], final[0]) / (expected[0].sum() + final[0])
    assert again == pytest.approx([0.4668, 0.4551, 0.0782, 0.0], abs=PRINTED)
    for t in range(1, len(sequence)):
        assert pairs[t].sum(axis=1) == pytest.approx(single[t - 1], abs=EXACT)
        assert pairs[t].sum(axis=0) == pytest.approx(single[t], abs=EXACT)


def test_counts_by_hand():
    found = counted()
    assert found.start == [3.0, 2.5, 0.5]
    assert found.pairs == [[0.0, 3.0, 0.0], [3.5, 2.0, 2.0], [0.0, 0.0, 0.0]]
    assert found.final == [3.5, 0.0, 2.5]
    assert found.columns[0] == {"a": [6.5, 0, 0], "b": [0, 1.0, 2.5], "c": [0, 2.5, 0], "d": [0, 4.0, 0]}
    assert found.columns[1] == {"X": [1.0, 6.5, 0], "Y": [1.0, 0, 2.5]}


def test_estimates_by_hand():
    model = hmm.estimate(counted(), smoothing=0.5, rare=2)
    assert model.start == pytest.approx([3.5 / 7.5, 3 / 7.5, 1 / 7.5], abs=EXACT)
    assert model.transitions[1] == pytest.approx([4 / 9.5, 2.5 / 9.5, 2.5 / 9.5], abs=EXACT)
    assert [model.final[y] for y in (1, 2)] == pytest.approx([0.5 / 9.5, 3 / 4.5], abs=EXACT)
    # c is rare: 2.5 of the 7.5 tokens with label 1
    assert model.unknown[0] == pytest.approx([0.5 / 9, 3 / 12.5, 0.5 / 5], abs=EXACT)
    assert model.emissions[0]["d"] == pytest.approx([0.5 / 9, 4.5 / 12.5, 0.5 / 5], abs=EXACT)


@pytest.mark.parametrize("smoothing", [0.0, 0.25])
def test_a_label_that_emits_only_rare_observations_or_none_keeps_half_for_the_unknown(smoothing):
    model = hmm.estimate(hmm.counts([[("a",), (None,)]], [[0, 1]], [1.0], 3, 1), smoothing, 1)
    assert model.unknown == [[0.5, 0.5, 0.5]]
    assert model.emissions[0]["a"] == [0.5, 0.5, 0.5]
    assert [*model.transitions[2], model.final[2]] == [0.25] * 4  # of a label that was never seen


@pytest.mark.parametrize("smoothing", [0.0, 1e-5, 1.0])
@pytest.mark.parametrize("rare", [0, 1, 2, 9])
def test_estimates_sum_to_one(smoothing, rare):
    model = hmm.estimate(counted(), smoothing, rare)
    assert sum(model.start) == pytest.approx(1, abs=EXACT)
    for y in range(3):
        assert sum(model.transitions[y]) + model.final[y] == pytest.approx(1, abs=EXACT)
        for known, unknown in zip(model.emissions, model.unknown, strict=True):
            assert sum(row[y] for row in known.values()) + unknown[y] == pytest.approx(1, abs=EXACT)
    # over all that can be observed in two positions of two columns, the labellings are all that is left
    symbols = itertools.product([*"abcd", "never seen"], ["X", "Y", "never seen"])
    total = sum(math.exp(hmm.log_probability(model, pair)) for pair in itertools.product(symbols, repeat=2))
    start, transitions, final = (np.array(table) for table in model[:3])
    assert total == pytest.approx(start @ transitions @ final, abs=EXACT)


def test_joint_by_hand_with_an_unknown_observation_and_an_absent_one():
    model = hmm.estimate(counted(), smoothing=0.5, rare=2)
    value = hmm.joint(model, [("never seen", None), ("d", "Y")], (1, 2))
    factors = [3 / 7.5, 3 / 12.5, 2.5 / 9.5, 0.5 / 5, 3 / 4, 3 / 4.5]
    assert value == pytest.approx(math.log(math.prod(factors)), abs=EXACT)


def test_weight_two_is_a_duplicate_and_weight_zero_leaves_only_the_vocabulary():
    twice = counted([*SEQUENCES, SEQUENCES[1]], [*LABELS, LABELS[1]], [1, 1, 1, 1, 1])
    heavy = counted(weights=[1, 2, 1, 1])
    assert twice == heavy and hmm.estimate(twice, 0.1, 1) == hmm.estimate(heavy, 0.1, 1)
    without = counted(SEQUENCES[:1] + SEQUENCES[2:], LABELS[:1] + LABELS[2:], [1, 1, 1])
    light = counted(weights=[1, 0, 1, 1])
    assert light[:3] == without[:3]
    assert light.columns[0] == {**without.columns[0], "c": [0, 0, 0]}


def test_hmm_breaks_ties_from_the_end():
    model = hmm.Model([0.5, 0.5], [[0.0, 0.5], [0.5, 0.0]], [0.5, 0.5], [{}], [[1.0, 1.0]])
    assert hmm.best(model, [("x",), ("x",)]) == (1, 0)


def test_hmm_refuses_the_posterior_of_an_impossible_sequence():
    model, _ = hmm.worked_example()
    assert hmm.log_probability(model, [("a",)]) == -math.inf
    with pytest.raises(ValueError, match="probability zero"):
        hmm.marginals(model, [("a",)])


# ---- MEMMs


def random_tables(seed, length=4, n_labels=3, scale=2.0):
    rng = np.random.default_rng(seed)
    return rng.normal(0, scale, (length, n_labels)), rng.normal(0, scale, (length, n_labels, n_labels))


def test_memm_by_hand():
    here, between = np.log([[1.0, 3.0], [1.0, 2.0]]), np.log([[[1, 1], [1, 1]], [[4.0, 1.0], [3.0, 1.0]]])
    expected = {(0, 0): 1 / 4 * 4 / 6, (0, 1): 1 / 4 * 2 / 6, (1, 0): 3 / 4 * 3 / 5, (1, 1): 3 / 4 * 2 / 5}
    found = memm.enumerate_all(here, between)
    assert {y: math.exp(value) for y, value in found.items()} == pytest.approx(expected, abs=EXACT)
    assert memm.log_probability(here, between, [0, 1]) == found[0, 1]
    assert memm.best(here, between) == (1, 0)
    assert memm.marginals(here, between)[1, 0] == pytest.approx(1 / 6 + 9 / 20, abs=EXACT)


@pytest.mark.parametrize(("length", "n_labels", "scale"), [(4, 3, 2.0), (1, 3, 2.0), (3, 1, 2.0), (4, 2, 700.0)])
def test_memm_probabilities_of_all_labellings_sum_to_one(length, n_labels, scale):
    here, between = random_tables(1, length, n_labels, scale)
    every = memm.enumerate_all(here, between)
    assert len(every) == n_labels**length
    assert math.fsum(map(math.exp, every.values())) == pytest.approx(1, abs=EXACT)
    assert memm.marginals(here, between).sum(axis=1) == pytest.approx(np.ones(length), abs=EXACT)


def test_memm_is_blind_to_scores_after_a_position_and_a_chain_is_not():
    (here, between), (other_here, other_between) = random_tables(2), random_tables(3)
    before = memm.marginals(here, between)
    for t in range(len(here)):
        mixed = np.concatenate([here[: t + 1], other_here[t + 1 :]])
        steps = np.concatenate([between[: t + 1], other_between[t + 1 :]])
        after = memm.marginals(mixed, steps)
        assert after[: t + 1] == pytest.approx(before[: t + 1], abs=EXACT)
        if t + 1 < len(here):
            assert np.abs(after[t + 1] - before[t + 1]).max() > 0.01
            assert np.abs(lattice.marginals(mixed, steps)[0][t] - lattice.marginals(here, between)[0][t]).max() > 0.01


def test_memm_without_pairs_is_a_classifier_of_positions():
    here, between = random_tables(4)
    expected = np.exp(here) / np.exp(here).sum(axis=1, keepdims=True)
    assert memm.marginals(here, np.zeros_like(between)) == pytest.approx(expected, abs=EXACT)


def test_memm_breaks_ties_from_the_end():
    here = [[0.0, 0.0], [0.0, 0.0]]
    swap = [[-math.inf, 0.0], [0.0, -math.inf]]
    assert memm.best(here, [swap, swap]) == (1, 0)


def test_memm_gradient_is_the_derivative_of_the_loss():
    sequences = [[[0, 2], [1, -1], [0, 2]], [[1, 2]], [[-1, -1], [1, 1]]]  # a position without any, one with a double
    labels, weights = [[0, 2, 1], [2], [1, 1]], [1.0, 2.5, 0.5]
    rng = np.random.default_rng(5)
    keys = [("mu", o, y) for o in range(3) for y in range(3)] + [("start", o, y) for o in range(3) for y in range(3)]
    keys += [("lam", o, before, y) for o in range(3) for before in range(3) for y in range(3)]
    point = {key: rng.normal() for key in keys}
    gradient = memm.gradient(sequences, labels, 3, weights_of(point), weights)
    assert any(key[0] == "lam" and abs(value) > 0.1 for key, value in gradient.items())
    for key, value in point.items():
        up, down = (
            memm.loss(sequences, labels, 3, weights_of({**point, key: value + step}), weights) for step in (STEP, -STEP)
        )
        assert (up - down) / (2 * STEP) == pytest.approx(gradient.get(key, 0.0), abs=DIFFERENCE), key


def test_memm_scores_a_labelling_as_the_chain_does_and_normalises_otherwise():
    weights = chain.Weights(mu={(0, 0): 1.0}, start={(0, 1): 2.0}, lam={(0, 0, 0): 3.0})
    here, between = memm.tables([[0], [0]], 2, weights)
    assert here == [[1.0, 2.0], [1.0, 0.0]] and between[1] == [[3.0, 0.0], [0.0, 0.0]]
    for y in chain.labellings(2, 2):
        assert lattice.score(here, between, y) == chain.score([[0], [0]], y, weights)
    by_hand = math.log(math.exp(1) / (math.exp(1) + math.exp(2)) * math.exp(4) / (math.exp(4) + 1))
    assert memm.log_probability(here, between, (0, 0)) == pytest.approx(by_hand, abs=EXACT)


def weights_of(point):
    weights = chain.Weights({}, {}, {})
    for key, value in point.items():
        getattr(weights, key[0])[key[1:]] = value
    return weights


# ---- label bias


def test_robot_is_what_the_automaton_accepts():
    automaton = memm.robot()
    assert {len(automaton.states), len(automaton.chunks), len(automaton.reads), len(automaton.successors)} == {8}
    assert {word for sentence in automaton.sentences for word in sentence} == set(automaton.words)
    right = [(sentence, labels) for sentence, labels, _ in automaton.tests]
    for sentence, labels in [*zip(automaton.sentences, automaton.labels, strict=True), *right]:
        assert all(word in automaton.reads[y] for word, y in zip(sentence, labels, strict=True))
        assert all(after in automaton.successors[before] for before, after in itertools.pairwise(labels))
    assert [[automaton.chunks[y] for y in labels] for _, labels in right] == [
        "B-NP I-NP B-VP B-NP B-PP".split(),
        "B-NP I-NP I-NP B-VP B-ADJP".split(),
    ]


@pytest.mark.parametrize("match", [0.5, 3.0, 30.0])
def test_robot_is_biased_in_an_memm_whatever_comes_later_and_not_in_a_chain(match):
    automaton = memm.robot()
    for sentence, right, other in automaton.tests:
        tables = memm.robot_tables(automaton, sentence, match)
        local = {y: math.exp(value) for y, value in memm.enumerate_all(*tables).items() if value > -math.inf}
        assert local == pytest.approx({tuple(right): 0.5, tuple(other): 0.5}, abs=EXACT)
        whole = lattice.distribution(*tables)
        assert whole.keys() == local.keys()
        assert whole[tuple(right)] == pytest.approx(1 / (1 + math.exp(-match)), abs=EXACT)


def test_robot_is_not_biased_in_a_hidden_markov_model():
    automaton = memm.robot()
    as_columns = [[(word,) for word in sentence] for sentence in automaton.sentences]
    found = hmm.counts(as_columns, automaton.labels, automaton.lopsided, len(automaton.states), 1)
    model = hmm.estimate(found, smoothing=1e-5, rare=0)
    for sentence, right, other in automaton.tests:
        x = [(word,) for word in sentence]
        assert hmm.best(model, x) == tuple(right)
        assert hmm.joint(model, x, right) > hmm.joint(model, x, other) + 5


def trained_memm(automaton, sentence_weights, steps=400, rate=0.1):
    """Plain descent on the weights of word and label, and of label and label; the last id is active everywhere."""
    words, labels = automaton.words, range(len(automaton.states))
    always = len(words)
    keys = [("mu", o, y) for o in range(always) for y in labels]
    keys += [("lam", always, before, y) for before in labels for y in labels]
    point = dict.fromkeys(keys, 0.0)
    sequences = [ids(words, sentence) for sentence in automaton.sentences]
    for _ in range(steps):
        slope = memm.gradient(sequences, automaton.labels, len(labels), weights_of(point), sentence_weights)
        point = {key: value - rate * slope.get(key, 0.0) for key, value in point.items()}
    return weights_of(point)


def ids(words, sentence):
    return [[words.index(word), len(words)] for word in sentence]


def readings(automaton, weights):
    """For each of the two sentences, p(right labels) and p(labels of the other branch)."""
    found = []
    for sentence, right, other in automaton.tests:
        tables = memm.tables(ids(automaton.words, sentence), len(automaton.states), weights)
        found.append([math.exp(memm.log_probability(*tables, labels)) for labels in (right, other)])
    return found


def test_robot_biases_an_memm_that_was_trained_on_it():
    automaton = memm.robot()
    for right, other in readings(automaton, trained_memm(automaton, [1.0] * len(automaton.sentences))):
        assert right + other > 0.9 and right / other < 1.1  # alike, although a chain is sure of the right one
    (right, other), (wrong, preferred) = readings(automaton, trained_memm(automaton, automaton.lopsided))
    assert right > 1.3 * other and preferred > 1.3 * wrong  # the frequent branch, whatever the fourth word
