"""Perceptrons in their dual form: against algorithm 6 labelling by labelling, and against the primal form."""

import numpy as np
import pytest
from chain_problems import dataset_of, slot_features
from reference import kernels
from reference import perceptron as oracle
from reference.problems import BIGRAM, UNIGRAM, random_problem
from small_models import random_words

from espalier import CRF
from espalier.engine import families
from espalier.engine.errors import EspalierError
from espalier.engine.families import perceptron, perceptron_dual
from espalier.engine.families.perceptron_options import PerceptronOptions
from espalier.engine.families.perceptron_training import PerceptronTraining
from espalier.engine.weights.layout import dense_layout, observation_kinds

EPOCHS = 4
FLOATS = 1e-9  # a step is a quotient of sums, which are added in another order there


def problem(seed=3, n_labels=3, lengths=(4, 2, 3, 1, 4, 3)):
    """Columns of their own observations, the last one of pairs; nothing is there twice."""
    random = random_problem(seed, n_labels, 4, 3, list(lengths))
    sequences = [
        [[o if o < 0 else o + 4 * k for k, o in enumerate(position)] + [12] for position in sequence]
        for sequence in random.sequences
    ]  # fmt: skip
    weights = [2.0 if w > 1 else w for w in random.weights]
    return random._replace(sequences=sequences, kinds=[UNIGRAM] * 12 + [BIGRAM], weights=weights)


def with_constant(plain):
    """An attribute that every position has: its weight is the 1 of (m + 1)."""
    kinds = [*plain.kinds, UNIGRAM]
    return plain._replace(kinds=kinds, sequences=[[[*p, len(kinds) - 1] for p in row] for row in plain.sequences])


def dual_of(plain, degree, **options):
    kinds, data = np.array(plain.kinds, np.uint8), dataset_of(plain)
    options = PerceptronOptions(degree=degree, **options)
    chain = perceptron_dual.chain_of(data, plain.n_labels, kinds, options, "all", plain.start)
    return chain, perceptron_dual.DualTraining(chain, options)


def run(training):
    """(the orders of its epochs, the mistakes of each)."""
    orders, mistakes = [], []
    for _ in range(EPOCHS):
        orders.append(training.random.permutation(training.sequences))
        mistakes.append(training.visit(orders[-1], True)["mistakes"])
    return [order.tolist() for order in orders], mistakes


def named(chain, plain, theta):
    """A and the weights of pairs as `oracle.by_rows` has them."""
    amounts, keys = theta[: chain.cells].reshape(-1, chain.n_labels), slot_features(chain.pair_layout)
    rows = [tuple(chain.rows.attribute[a:b].tolist()) for a, b in zip(chain.rows.ptr, chain.rows.ptr[1:], strict=False)]
    support = {(rows[p], y): amounts[p, y] for p, y in zip(*np.nonzero(amounts), strict=True)}
    weights = dict(zip([(k[0], chain.pair_ids[k[1]], *k[2:]) for k in keys], theta[chain.cells :], strict=True))
    return support, {key: value for key, value in weights.items() if value}


@pytest.mark.parametrize(("degree", "eta"), [(1, 1.0), (2, 1.0), (2, 2.0), (3, 1.0)])
def test_it_is_algorithm_6_labelling_by_labelling(degree, eta):
    """In whole numbers, so that the last amounts are the same to the bit; the mean is that of all there ever were."""
    plain = problem(seed=degree)
    chain, training = dual_of(plain, degree, eta=eta, seed=5)
    orders, mistakes = run(training)

    def similar(row, other):
        return kernels.kernel(row, other, degree)

    last, mean, expected = oracle.dual_trained(plain, orders, similar, eta)
    assert mistakes == expected and sum(mistakes)
    theta = np.concatenate([training.form.amounts, training.weights.theta[chain.cells :]])
    assert named(chain, plain, theta) == oracle.by_rows(plain, last, eta)
    for found, right in zip(named(chain, plain, training.model()), oracle.by_rows(plain, mean, eta), strict=True):
        assert all(found.get(key, 0.0) == pytest.approx(right.get(key, 0.0), abs=1e-12) for key in found | right)
    amounts = training.form.amounts.reshape(-1, chain.n_labels)
    np.testing.assert_array_equal(training.weights.theta[: chain.cells], chain.gram.product(amounts).ravel())


@pytest.mark.parametrize("options", [{}, {"lead": "hamming"}, {"average": False}])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_a_linear_kernel_it_is_the_primal_form_mistake_for_mistake(seed, options):
    """Attributes of which every position has one more, and the kernel without its 1: that is m + 1 without it."""
    plain = problem(seed)
    more = with_constant(plain)
    primal = PerceptronTraining(
        dataset_of(more), dense_layout(more.n_labels, np.array(more.kinds, np.uint8), more.start),
        PerceptronOptions(seed=seed, **options),
    )  # fmt: skip
    chain, dual = dual_of(plain, 1, seed=seed, **options)
    assert run(primal) == run(dual)
    keys, rows = slot_features(primal.layout), plain.sequences
    weights, theta = dict(zip(keys, primal.model(), strict=True)), dual.model()
    support, pairs = named(chain, plain, theta)
    assert pairs == {key: value for key, value in weights.items() if value and key[0] != "mu"}
    for position in (position for row in rows for position in row):
        for y in range(plain.n_labels):
            primal_score = sum(weights.get(("mu", o, y), 0.0) for o in (*oracle.attributes(plain, position), 13))
            score = sum(by * kernels.kernel(position[:3], row, 1) for (row, z), by in support.items() if z == y)
            assert score == pytest.approx(primal_score, abs=1e-9)


@pytest.mark.parametrize("options", [{}, {"lead": "hamming"}, {"c": 0.05}])
def test_passive_aggressive_steps_are_those_of_the_primal_form(options):
    """By rounding alone a step differs, so it is a problem whose labellings do not tie: see its mistakes."""
    plain = problem(2)
    more = with_constant(plain)
    primal = PerceptronTraining(
        dataset_of(more), dense_layout(more.n_labels, np.array(more.kinds, np.uint8), more.start),
        PerceptronOptions("pa", seed=1, **options),
    )  # fmt: skip
    chain, dual = dual_of(plain, 1, update="pa", seed=1, **options)
    assert run(primal) == run(dual)
    weights = dict(zip(slot_features(primal.layout), primal.model(), strict=True))
    _, pairs = named(chain, plain, dual.model())
    assert pairs and all(value == pytest.approx(weights[key], abs=FLOATS) for key, value in pairs.items())


def words(options=None):
    data, names, _ = random_words(("X", "Y", "Z"), 1)
    lines = ["*:%x[0,0]", "U1:%x[-1,0]/%x[0,0]", "U"]
    options = options or PerceptronOptions(degree=2, epochs=5)
    return perceptron.fit(data, names, observation_kinds(names), ["X", "Y", "Z"], lines, {}, options), data, names


def test_a_model_is_of_rows_that_support_labels(tmp_path):
    model, data, names = words()
    model.save(tmp_path / "a.model")
    again = families.load(tmp_path / "a.model")
    assert type(again) is perceptron.DualPerceptronLabeller and again.degree == 2 and again.family == "perceptron"
    local = again.renumbered(data, names)
    np.testing.assert_array_equal(again.best(local), model.best(model.renumbered(data, names)))
    weight, _ = next(iter(again.contributions(local.observations[0], -1, 1)))
    assert again.text_of(weight.observation).startswith("like training sequence ")
    assert not {"warm_start", "values", "probability"} & again.can and "limits" in again.can


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"degree": 0}, "degree is 0: expected a whole number from 1 to 8"),
        ({"degree": 9}, "degree is 9: expected a whole number from 1 to 8"),
        ({"degree": 2, "eta": 0.0}, "eta is 0.0: expected a number above 0"),
        ({"degree": 2, "update": "arow"}, "degree is 2 and update arow, which keeps a variance"),
        ({"degree": 2, "parts": 2}, "degree is 2 and parts 2, whose weights are mixed"),
    ],
)
def test_what_the_dual_form_has_not_is_refused(options, text):
    with pytest.raises(EspalierError, match=text):
        words(PerceptronOptions(**options))


def test_values_are_refused():
    data, names, _ = random_words(("X", "Y"), 1)
    valued = data._replace(valued=np.zeros((len(data.labels), 1), np.int32), values=np.ones((len(data.labels), 1)))
    with pytest.raises(EspalierError, match="counts the attributes that two positions have in common.*make bins"):
        perceptron.fit(valued, names, observation_kinds(names), ["X", "Y"], [], {}, PerceptronOptions(degree=1))


X = [["the", "dog", "barks"], ["a", "cat", "sleeps"], ["dogs", "bark"]]
Y = [["D", "N", "V"], ["D", "N", "V"], ["N", "V"]]


def test_in_python_a_degree_makes_the_dual_form(tmp_path):
    crf = CRF(family="perceptron", degree=3, epochs=4).fit(X, Y)
    assert isinstance(crf.model_, perceptron.DualPerceptronLabeller) and crf.score(X, Y) == 1.0
    crf.save(tmp_path / "a.model")
    again = CRF.load(tmp_path / "a.model")
    assert again.get_params() == crf.get_params() and again.degree == 3 and again.predict(X) == crf.predict(X)
    for start, degree, text in ((crf, None, "start_from is a model, a model of the family perceptron in which rows"),
                                (CRF(family="perceptron").fit(X, Y), 2, "has no weights of attributes to start from")):
        with pytest.raises(EspalierError, match=text):
            CRF(family="perceptron", degree=degree).fit(X, Y, start_from=start)
    for degree in (0, 9, 2.5, True):
        with pytest.raises(EspalierError, match="^degree is .*: expected a whole number of at least 1 and at most 8"):
            CRF(family="perceptron", degree=degree).fit(X, Y)
    assert CRF(family="gp").fit(X, Y).model_.degree == 2
    with pytest.raises(EspalierError, match="counts the attributes that two positions have in common"):
        CRF(family="perceptron", degree=2).fit([[{"x": 0.5}, {"x": 1.5}]], [["A", "B"]])
