"""Maximum-entropy Markov models against the oracle, and what sets them apart from a chain: label bias."""

import numpy as np
import pytest
from chain_problems import pack, random_problem, random_theta, slot_features, weights_of
from reference import memm as oracle

from espalier import CRF
from espalier.engine.data.dataset import join, make_dataset, select
from espalier.engine.errors import EspalierError
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.families.memm import MemmLabeller, MemmObjective, per_label_kinds
from espalier.engine.lattice.lattice import make_lattice
from espalier.engine.lattice.local import normalise_locally
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import SOLVERS, minimise
from espalier.engine.weights.layout import UNIGRAM, dense_layout, seen_layout

CLOSE = 1e-10


def labeller(layout, theta, n_labels):
    return MemmLabeller([str(y) for y in range(n_labels)], [], [], layout, theta)


@pytest.mark.parametrize("kind", ["dense", "seen"])
@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradient_are_the_oracles(seed, kind):
    problem = random_problem(seed, 3, 5, 2, [3, 1, 4, 2])
    packed = pack(problem)
    layout = packed.layout if kind == "dense" else seen_layout(packed.dataset, 3, np.full(5, 3))
    theta = random_theta(layout.size, seed)
    objective, weights = MemmObjective(packed.dataset, layout), weights_of(layout, theta)
    told = problem.sequences, problem.labels, 3, weights, packed.dataset.weights.tolist()
    value, gradient = objective.value_and_gradient(theta)
    assert value == pytest.approx(oracle.loss(*told), abs=CLOSE) == objective.value(theta)
    np.testing.assert_allclose(gradient, expected_gradient(layout, oracle.gradient(*told)), atol=CLOSE)
    model = labeller(layout, theta, 3)
    assert -np.dot(packed.dataset.weights, model.log_probability(packed.dataset)) == pytest.approx(value, abs=CLOSE)


def test_equal_positions_are_one_row():
    """Sequences that are there again add to weights and to nothing else, whatever their labels."""
    data = pack(random_problem(3, 3, 4, 2, [3, 2, 4])).dataset
    again = join(data, join(data, data._replace(labels=(data.labels + 1) % 3)))
    layout = dense_layout(3, np.full(4, UNIGRAM), start=False)
    theta = random_theta(layout.size, 5)
    once, other, all_of_them = (MemmObjective(one, layout) for one in (data, select(again, np.arange(6, 9)), again))
    distinct = len(np.unique(data.observations, axis=0))
    assert len(all_of_them.rows.data.weights) == len(once.rows.data.weights) == distinct
    (value, gradient), (value_b, gradient_b) = once.value_and_gradient(theta), other.value_and_gradient(theta)
    found, found_gradient = all_of_them.value_and_gradient(theta)
    assert found == pytest.approx(2 * value + value_b, abs=CLOSE)
    np.testing.assert_allclose(found_gradient, 2 * gradient + gradient_b, atol=CLOSE)
    expected, log_z = all_of_them.expectations(theta, np.zeros(len(all_of_them.dataset.weights)))
    assert not expected.any() and len(log_z) == len(again.labels)


def test_weights_of_hundreds_have_a_loss_and_a_gradient():
    """Scores that are further apart than a number can be are as if they were 690 apart."""
    problem = random_problem(6, 3, 4, 2, [3, 2, 4])
    packed = pack(problem)
    theta = np.random.default_rng(0).normal(scale=500.0, size=packed.layout.size)
    objective, weights = MemmObjective(packed.dataset, packed.layout), weights_of(packed.layout, theta)
    told = problem.sequences, problem.labels, 3, weights, packed.dataset.weights.tolist()
    value, gradient = objective.value_and_gradient(theta)
    assert value == pytest.approx(oracle.loss(*told), rel=1e-12) == objective.value(theta)
    np.testing.assert_allclose(gradient, expected_gradient(packed.layout, oracle.gradient(*told)), atol=CLOSE)
    theta[0] = np.nan
    assert np.isnan(objective.value_and_gradient(theta)[0])


def expected_gradient(layout, gradient):
    return np.array([gradient.get(feature, 0.0) for feature in slot_features(layout)])


def test_answers_are_the_oracles():
    problem = random_problem(4, 3, 4, 2, [4])
    packed = pack(problem)
    theta = random_theta(packed.layout.size, 1)
    model = labeller(packed.layout, theta, 3)
    here, between = oracle.tables(problem.sequences[0], 3, weights_of(packed.layout, theta))
    np.testing.assert_allclose(model.marginals(packed.dataset), oracle.marginals(here, between), atol=CLOSE)
    assert tuple(model.best(packed.dataset)) == tuple(oracle.best(here, between))
    assert model.log_partition(packed.dataset)[0] == pytest.approx(0.0, abs=CLOSE)


def test_the_posterior_does_not_depend_on_what_follows():
    random = np.random.default_rng(0)
    here, between = random.normal(size=(6, 4)) * 5, random.normal(size=(5, 4, 4)) * 5
    which, offsets = np.arange(-1, 5), np.array([0, 6])

    def marginals(changed):
        from espalier.engine.lattice import decode

        return decode.marginals(normalise_locally(make_lattice(changed.copy(), between.copy(), which, offsets)))

    before, other = marginals(here), here.copy()
    other[4:] = random.normal(size=(2, 4)) * 50
    after = marginals(other)
    np.testing.assert_allclose(before[:4], after[:4], atol=1e-12)
    assert np.abs(before[4:] - after[4:]).max() > 0.1


def test_scores_of_hundreds_are_normalised():
    here = np.array([[700.0, -700.0], [0.0, 700.0], [-700.0, -700.0]])
    between = np.array([[[700.0, -700.0], [0.0, 0.0]]])
    lattice = normalise_locally(make_lattice(here, between, np.array([-1, 0, 0]), np.array([0, 3])))
    assert np.all(np.isfinite(lattice.here))
    model = oracle.enumerate_all([[700.0, -700.0], [0.0, 700.0], [-700.0, -700.0]], [between[0].tolist()] * 3)
    from espalier.engine.lattice import decode

    for labels, log_p in model.items():
        assert decode.score(lattice, np.array(labels))[0] == pytest.approx(log_p, abs=1e-9)


# ---- label bias


def trained(objective_of, family):
    """Trained on the automaton whose first branch is the more frequent: words and transitions, as the source has it."""
    robot = oracle.robot()
    number = {word: i for i, word in enumerate(robot.words)}
    always = len(number)
    ids = np.array([[number[word], always] for sentence in robot.sentences for word in sentence])
    data = make_dataset(ids, np.concatenate(robot.labels), np.arange(9) * 5, robot.lopsided)
    layout = dense_layout(8, np.array([1] * always + [2]))
    result = minimise("lbfgs", objective_of(data, layout), ElasticNet(0.0, 1e-3), None, 2000, 1e-9)
    model = family(robot.states, [], [], layout, result.theta)
    tests = np.array([[number[word], always] for sentence, _, _ in robot.tests for word in sentence])
    return robot, model, make_dataset(tests, None, np.array([0, 5, 10]))


def test_label_bias():
    """Only the fourth word tells the branches apart; a local model has chosen one by then (IIS 2.3.2)."""
    robot, model, tests = trained(MemmObjective, MemmLabeller)
    (_, first, second), (_, _, _) = robot.tests
    assert model.best(tests).tolist() == [*first, *first]  # `are` is read as the name that it is not
    for reading in (first, second):
        alike = np.exp(model.log_probability(tests, np.array([*reading, *reading])))
        assert alike[0] == pytest.approx(alike[1], abs=0.01)  # whatever the fourth word is
    robot, model, tests = trained(ChainObjective, CrfLabeller)
    assert model.best(tests).tolist() == [*first, *second]
    assert np.exp(model.log_probability(tests, np.array([*first, *second]))).min() > 0.99


# ---- training


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_every_solver_trains_it(solver):
    packed = pack(random_problem(7, 3, 4, 2, [3, 2, 4, 1, 5, 2]))
    objective = MemmObjective(packed.dataset, packed.layout)
    rho1 = 0.1 if SOLVERS[solver].accepts_l1 else 0.0
    best = minimise("owlqn", objective, ElasticNet(rho1, 0.5), None, 3000, 1e-11).objective
    found = minimise(solver, objective, ElasticNet(rho1, 0.5), None, 3000, 1e-9)
    assert found.objective <= best * (1 + (1e-6 if SOLVERS[solver].exact else 0.02))
    assert sum(v for k, v in found.trace[-1].items() if k.startswith("active_")) == np.count_nonzero(found.theta)


def test_without_bigrams_it_is_logistic_regression_and_so_is_the_chain():
    packed = pack(random_problem(2, 3, 4, 2, [3, 2, 4]))
    layout = dense_layout(3, np.ones(4))
    theta = random_theta(layout.size, 3)
    ours = MemmObjective(packed.dataset, layout).value_and_gradient(theta)
    chain = ChainObjective(packed.dataset, layout).value_and_gradient(theta)
    assert ours[0] == pytest.approx(chain[0], abs=CLOSE)
    np.testing.assert_allclose(ours[1], chain[1], atol=CLOSE)


def test_labels_that_are_not_known_are_refused():
    data = make_dataset(np.zeros((3, 1), np.int32), np.array([0, -1, 1]), np.array([0, 3]))
    with pytest.raises(EspalierError, match="position 1 has no label of its own: memm learns from positions whose"):
        MemmObjective(data, dense_layout(2, np.array([3])))


# ---- one model for each label before (IIS 2.12)


def test_weights_per_label_are_a_regression_for_each_label_before():
    """The loss is the sum of those of the positions after each label, and so is the optimum."""
    problem = random_problem(8, 3, 5, 2, [3, 1, 4, 2, 5, 4])
    data = pack(problem).dataset
    layout = dense_layout(3, per_label_kinds(np.ones(5)))
    theta = random_theta(layout.size, 2)
    kind, observation, previous, label = layout.slots()
    assert set(kind.tolist()) == {1, 2}
    first = np.zeros(len(data.labels), bool)
    first[data.offsets[:-1]] = True
    before, weights = np.append(-1, data.labels[:-1]), np.repeat(data.weights, np.diff(data.offsets))
    before[first] = -1
    alone, penalty, total, optimum = dense_layout(3, np.ones(5)), ElasticNet(0.0, 0.5), 0.0, 0.0
    for y in (-1, 0, 1, 2):
        at = np.flatnonzero(before == y)
        part = make_dataset(data.observations[at], data.labels[at], np.arange(len(at) + 1), weights[at])
        mine = np.flatnonzero(previous == y)
        assert np.array_equal(observation[mine] * 3 + label[mine], np.arange(15))
        regression = ChainObjective(part, alone)
        total += regression.value(theta[mine])
        optimum += minimise("lbfgs", regression, penalty, max_iterations=500, tolerance=1e-12).objective
    objective = MemmObjective(data, layout)
    assert objective.value(theta) == pytest.approx(total, rel=CLOSE)
    found = minimise("lbfgs", objective, penalty, max_iterations=500, tolerance=1e-12)
    assert found.objective == pytest.approx(optimum, rel=1e-9)


def test_weights_per_label_in_python(tmp_path):
    """What an observation says depends on the label before: that cannot be learnt with shared weights."""
    words = [list(word) for word in ("pxx", "qxx", "pxxx", "qxxx", "px", "qx")]
    labels = [["P", *("A" if t % 2 else "B" for t in range(len(w) - 1))] if w[0] == "p"
              else ["Q", *("B" if t % 2 else "A" for t in range(len(w) - 1))] for w in words]  # fmt: skip
    own = CRF(family="memm", weights="per-label", templates=["U:%x[0,0]"], rho1=0.0, rho2=0.01).fit(words, labels)
    shared = CRF(family="memm", templates=["U:%x[0,0]"], rho1=0.0, rho2=0.01).fit(words, labels)
    assert own.score(words, labels) == 1.0 > shared.score(words, labels)
    own.save(tmp_path / "a.model")
    again = CRF.load(tmp_path / "a.model")
    assert again.weights == "per-label" and again.predict(words) == own.predict(words)
    assert again.model_.info["weights"] == "per-label" and "weights" not in shared.model_.info


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"family": "crf", "weights": "per-label"}, "weights is 'per-label' and family 'crf': expected 'shared', or"),
        ({"family": "memm", "weights": "own"}, "weights is 'own' and family 'memm': expected 'shared', or 'per-label'"),
        ({"family": "memm", "weights": "per-label", "start": False}, "the first label of a sequence would have no"),
    ],
)
def test_weights_that_cannot_be_are_refused(options, expected):
    with pytest.raises(EspalierError, match=expected):
        CRF(**options).fit([["a"]], [["X"]])


def test_values_have_no_weights_per_label():
    with pytest.raises(EspalierError, match="weights is 'per-label' and there are values"):
        CRF(family="memm", weights="per-label").fit([[{"a": 0.5}]], [["X"]])
