"""Perceptrons against weights found by looking at every labelling, and what is known of them by proof."""

import itertools

import numpy as np
import pytest
from chain_problems import pack, slot_features
from reference import perceptron as oracle
from reference.problems import Problem, random_problem

from espalier.engine.data.dataset import Dataset
from espalier.engine.decoding import decode
from espalier.engine.errors import EspalierError
from espalier.engine.families.perceptron_options import PerceptronOptions
from espalier.engine.families.perceptron_training import PerceptronTraining, fit

FLOATS = 1e-9  # a step is a quotient of sums, which are added in another order there
PROBLEMS = [
    random_problem(3, 3, 5, 2, [4, 2, 3, 1, 4, 3]),
    random_problem(4, 2, 3, 3, [5, 1, 4, 2, 2], start=False),
    random_problem(5, 4, 4, 2, [3, 3, 1, 2, 3], none=0.5),
]
EPOCHS = 4
RULES = [
    {"update": "pa"}, {"update": "pa", "lead": "hamming"}, {"update": "pa", "c": 0.05},
    {"update": "pa", "bound": "soft", "cost": "one"}, {"update": "pa", "bound": "none", "cost": "hamming"},
    {"update": "arow"}, {"update": "arow", "variance": 0.5, "gamma": 2.0, "lead": "hamming"},
]  # fmt: skip


def trained(packed, theta=None, **options):
    """(training, the orders of its epochs, what each epoch met)."""
    training, orders, met = PerceptronTraining(*packed[1:], PerceptronOptions(**options), theta), [], []
    for _ in range(EPOCHS):
        orders.append(training.random.permutation(training.sequences))
        met.append(training.visit(orders[-1], True))
    return training, orders, met


def expected(packed, orders, theta=None, **options):
    far = options.get("lead") == "hamming"
    cost = options.get("cost") or ("hamming" if far or options.get("update") == "arow" else "root")
    given = {name: value for name, value in options.items() if name not in ("lead", "cost")}
    keys = slot_features(packed.layout)
    given |= {} if theta is None else {"theta": dict(zip(keys, theta.tolist(), strict=True))}
    last, mean, mistakes = oracle.trained(
        packed.problem, [order.tolist() for order in orders], set(keys), margin=float(far), cost=cost, **given
    )
    return np.array([last.get(key, 0.0) for key in keys]), np.array([mean.get(key, 0.0) for key in keys]), mistakes


@pytest.mark.parametrize("layout", ["dense", "seen"])
@pytest.mark.parametrize("margin", ["none", "hamming"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_weights_are_those_of_every_labelling_looked_at(problem, margin, layout):
    """In whole numbers: the last weights bit for bit; weight 0 is as if a sequence were not there."""
    packed = pack(problem._replace(weights=[2.0 if w > 1 else w for w in problem.weights]), layout)
    training, orders, met = trained(packed, lead=margin, seed=7)
    last, mean, mistakes = expected(packed, orders, lead=margin)
    np.testing.assert_array_equal(training.weights.theta, last)
    assert [m["mistakes"] for m in met] == mistakes
    seen = training.seen
    assert seen == EPOCHS * sum(w > 0 for w in problem.weights)
    np.testing.assert_array_equal(seen * last - training.weights.sums, np.round(seen * mean))
    np.testing.assert_allclose(training.model(), mean, atol=1e-15 * seen)
    assert not training.weights.delta.any()


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("problem", PROBLEMS[:1])
def test_mixed_weights_are_those_of_the_parts_learned_one_by_one(problem, parts, monkeypatch):
    """In halves and quarters, which are exact: the mean of the parts' weights, and of all weights that ever were."""
    packed = pack(problem._replace(weights=[1.0] * 6), "seen")
    keys, found = slot_features(packed.layout), []
    for threads in ("1", "3"):
        monkeypatch.setenv("ESPALIER_THREADS", threads)
        training, mistakes = PerceptronTraining(*packed[1:], PerceptronOptions(parts=parts, seed=7)), []
        for _ in range(EPOCHS):
            mistakes.append(training.epoch()["mistakes"])
        found.append((training.weights.theta.tobytes(), training.model().tobytes(), training.seen, mistakes))
    assert found[0] == found[1]
    random, theta, total = np.random.default_rng(7), dict.fromkeys(keys, 0.0), dict.fromkeys(keys, 0.0)
    bounds = [6 * k // parts for k in range(parts + 1)]
    for epoch in range(EPOCHS):
        wrong, mix = 0, dict.fromkeys(keys, 0.0)
        for lo, hi in zip(bounds, bounds[1:], strict=False):
            order = random.permutation(np.arange(lo, hi)).tolist()
            last, mean, met = oracle.trained(packed.problem, [order], set(keys), theta=theta)
            wrong += met[0]
            for key in keys:
                mix[key] += last.get(key, 0.0) / parts
                total[key] += len(order) * mean.get(key, 0.0)
        theta = mix
        assert mistakes[epoch] == wrong
    np.testing.assert_array_equal(training.weights.theta, [theta[key] for key in keys])
    np.testing.assert_allclose(training.model(), [total[key] / (6 * EPOCHS) for key in keys], atol=1e-14)


def test_one_part_is_the_sequential_training():
    packed = pack(PROBLEMS[0], "seen")
    one, other = (fit(*packed[1:], PerceptronOptions(epochs=3, **more)) for more in ({}, {"parts": 1}))
    assert one.theta.tobytes() == other.theta.tobytes()
    mixed = fit(*packed[1:], PerceptronOptions(epochs=3, parts=3))
    assert mixed.theta.tobytes() != one.theta.tobytes()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"parts": 0}, "parts is 0: expected at least 1"),
        ({"parts": 7}, "parts is 7 and 5 sequences have a weight above 0: expected at most as many"),
        ({"parts": 2, "update": "arow"}, "parts is 2 and update arow, whose variances cannot be mixed"),
    ],
)
def test_parts_that_cannot_be_are_refused(options, text):
    packed = pack(random_problem(3, 3, 5, 2, [4, 2, 3, 1, 4])._replace(weights=[1.0] * 5), "seen")
    with pytest.raises(EspalierError, match=text):
        PerceptronTraining(*packed[1:], PerceptronOptions(**options))


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_other_updates_are_those_of_every_labelling_looked_at(problem, rule):
    """From weights at random, at which no two labellings are equal: rounding would decide between them."""
    packed = pack(problem, "seen")
    theta = np.random.default_rng(5).normal(size=packed.layout.size)
    training, orders, met = trained(packed, theta, **rule, seed=1)
    last, mean, mistakes = expected(packed, orders, theta, **rule)
    np.testing.assert_allclose(training.weights.theta, last, atol=FLOATS)
    np.testing.assert_allclose(training.model(), last if rule["update"] == "arow" else mean, atol=FLOATS)
    assert [m["mistakes"] for m in met] == mistakes


def test_values_multiply_what_is_learned():
    """An observation of value 2 is one that stands there twice."""
    problem = random_problem(6, 3, 4, 2, [3, 2, 4], kinds=[1, 1, 1, 1])._replace(weights=[1.0] * 3)
    packed = pack(problem)
    first = packed.dataset.observations[:, :1]
    twice = packed.dataset._replace(observations=np.concatenate([packed.dataset.observations, first], axis=1))
    valued = packed.dataset._replace(
        observations=packed.dataset.observations[:, 1:], valued=first, values=np.full(first.shape, 2.0)
    )
    for update in ("perceptron", "pa", "arow"):
        a, b = (fit(data, packed.layout, PerceptronOptions(update, epochs=3)) for data in (twice, valued))
        np.testing.assert_allclose(a.theta, b.theta, atol=FLOATS)
        assert np.any(a.theta)


def separable(seed, n_labels=3, n_observations=6):
    """Sequences that some weights label right, with the margin of these weights."""
    rng = np.random.default_rng(seed)
    problem = random_problem(seed, n_labels, n_observations, 2, [3, 2, 4, 3, 1, 4, 2, 3], none=0.0)
    problem = problem._replace(weights=[1.0] * 8)
    packed = pack(problem)
    keys = slot_features(packed.layout)
    weights = dict(zip(keys, rng.normal(size=len(keys)).tolist(), strict=True))
    labels = [oracle.best(x, (0,) * len(x), n_labels, weights, 0.0) for x in problem.sequences]
    problem = problem._replace(labels=[list(y) for y in labels])
    norm = np.sqrt(sum(value**2 for value in weights.values()))
    leads, sizes = [], []
    for x, right in zip(problem.sequences, labels, strict=True):
        for y in itertools.product(range(n_labels), repeat=len(x)):
            if y != right:
                delta = oracle.difference(x, right, y)
                leads.append(sum(weights.get(key, 0.0) * value for key, value in delta.items()) / norm)
                sizes.append(sum(value**2 for key, value in delta.items() if key in weights))
    return pack(problem), min(leads), max(sizes)


@pytest.mark.parametrize("seed", range(6))
def test_mistakes_are_at_most_what_novikoff_has_proved(seed):
    """On data that can be separated with the margin gamma: (R / gamma)^2 in all, and then none."""
    packed, gamma, squared = separable(seed)
    assert gamma > 0
    found = fit(packed.dataset, packed.layout, PerceptronOptions(epochs=100_000, average=False))
    assert found.stop_reason == "separated"
    assert 0 < sum(record["mistakes"] for record in found.trace[1:]) <= squared / gamma**2
    np.testing.assert_array_equal(
        decode.viterbi(packed.dataset, packed.layout, found.theta), packed.dataset.labels
    )


def test_among_equal_labellings_the_smallest_labels_are_taken():
    """At zero weights all are equal: only sequences of the first label alone are right."""
    problem = Problem(3, [3], True, [[[0]], [[0], [0]], [[0], [0]]], [[0], [0, 0], [0, 2]], [1.0] * 3)
    packed = pack(problem)
    training = PerceptronTraining(*packed[1:], PerceptronOptions())
    met = training.visit(np.arange(3), False)
    assert (met["mistakes"], met["wrong"]) == (1, 1) and not training.weights.theta.any()


def test_the_margin_is_asked_for_until_it_is_there():
    packed, *_ = separable(1)
    found = fit(packed.dataset, packed.layout, PerceptronOptions(lead="hamming", epochs=100_000, average=False))
    assert found.stop_reason == "separated"
    keys, problem = slot_features(packed.layout), packed.problem
    theta = dict(zip(keys, found.theta.tolist(), strict=True))
    for x, right in zip(problem.sequences, problem.labels, strict=True):
        for y in itertools.product(range(problem.n_labels), repeat=len(x)):
            lead = sum(theta.get(key, 0.0) * value for key, value in oracle.difference(x, tuple(right), y).items())
            assert lead >= -FLOATS + sum(a != b for a, b in zip(y, right, strict=True))


def test_epochs_that_change_nothing_count_for_the_mean():
    packed, *_ = separable(2)
    found = fit(packed.dataset, packed.layout, PerceptronOptions(epochs=500))
    assert found.stop_reason == "separated" and found.iterations < 500
    training = PerceptronTraining(packed.dataset, packed.layout, PerceptronOptions(epochs=500))
    for _ in range(500):
        training.epoch()
    assert training.model().tobytes() == found.theta.tobytes()


def test_a_passive_aggressive_step_makes_up_for_the_loss():
    """Without a bound the sequence just seen is right by its cost: F(y*) - F(y') = cost afterwards."""
    problem = random_problem(8, 3, 4, 2, [4])._replace(weights=[1.0])
    packed = pack(problem)
    training = PerceptronTraining(*packed[1:], PerceptronOptions("pa", bound="none", cost="hamming"))
    right = tuple(problem.labels[0])
    wrong = oracle.best(problem.sequences[0], right, 3, {}, 0.0)
    training.visit(np.arange(1), True)
    theta = dict(zip(slot_features(packed.layout), training.weights.theta.tolist(), strict=True))
    delta = oracle.difference(problem.sequences[0], right, wrong)
    lead = sum(theta.get(key, 0.0) * value for key, value in delta.items())
    assert lead == pytest.approx(sum(a != b for a, b in zip(right, wrong, strict=True)))


def test_it_goes_on_where_it_was():
    """From the state after each epoch to the same weights as in one go."""
    packed = pack(PROBLEMS[0])

    class Keeper:
        def __init__(self, state=None):
            self.state, self.states = state, []

        def earlier(self, size):
            return self.state

        def offer(self, state):
            self.states.append(state)

    for update in ("perceptron", "arow"):
        options, keeper = PerceptronOptions(update, epochs=5, seed=3), Keeper()
        end = fit(*packed[1:], options, keeper=keeper)
        for state in keeper.states:
            again = fit(*packed[1:], options, keeper=Keeper(state))
            assert again.theta.tobytes() == end.theta.tobytes()
            assert (again.trace, again.stop_reason) == (end.trace, end.stop_reason)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"update": "newton"}, "update is 'newton': expected one of perceptron, pa, arow"),
        ({"lead": "wide"}, "lead is 'wide': expected one of none, hamming"),
        ({"c": 0.0}, "c is 0.0: expected a number above 0"),
        ({"gamma": float("nan")}, "gamma is nan: expected a number above 0"),
        ({"epochs": 0}, "epochs is 0: expected at least 1"),
    ],
)
def test_options_that_are_none(change, words):
    with pytest.raises(EspalierError, match=words):
        fit(*pack(PROBLEMS[0])[1:], PerceptronOptions(**change))


def test_data_that_teach_nothing():
    packed = pack(PROBLEMS[0])
    data: Dataset = packed.dataset
    with pytest.raises(EspalierError, match="no sequence has a weight above 0: a perceptron needs one to learn from"):
        fit(data._replace(weights=0 * data.weights), packed.layout, PerceptronOptions())
    with pytest.raises(EspalierError, match="position 0 has no label"):
        fit(data._replace(labels=np.full_like(data.labels, -1)), packed.layout, PerceptronOptions())
    with pytest.raises(EspalierError, match="takes no token weights: give weights to sequences"):
        fit(data._replace(token_weights=np.ones(len(data.labels))), packed.layout, PerceptronOptions())
