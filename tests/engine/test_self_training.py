"""Self-training as a loop whose every round can be told by hand, and around real learners."""

import numpy as np
import pytest
from chain_problems import pack
from reference.problems import BOTH, random_problem

from espalier.engine.data.bags import bags_of_matrix, select_bags
from espalier.engine.data.dataset import select
from espalier.engine.decoding import decode
from espalier.engine.errors import EspalierError
from espalier.engine.families.logistic import fit_logistic
from espalier.engine.families.naive_bayes import fit_naive_bayes
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.semisup.self_training import self_train, self_train_documents, self_train_sequences


class Script:
    """A learner that guesses what it was told to in each round, and keeps what it was trained on."""

    def __init__(self, *guesses):
        self.guesses, self.seen = list(guesses), []

    def fit(self, chosen, labels):
        self.seen.append((chosen.tolist(), labels))
        return len(self.seen)

    def guess(self, model):
        labels, confidence = self.guesses[min(model, len(self.guesses)) - 1]
        return np.array(labels), np.array(confidence)


def test_rounds_by_hand():
    """One input is sure at first; the next model is sure of two; then nothing changes and it ends."""
    script = Script(([7, 8, 9], [0.95, 0.5, 0.9]), ([7, 8, 9], [0.95, 0.91, 0.9]), ([7, 8, 9], [0.99, 0.93, 0.2]))
    found = self_train(script.fit, script.guess, threshold=0.91, rounds=10)
    assert script.seen == [([], None), ([0], [7]), ([0, 1], [7, 8])]
    assert found.model == 3
    assert found.rounds == [{"chosen": 1, "changed": 1}, {"chosen": 2, "changed": 1}]


def test_what_is_no_longer_sure_is_left_out_and_a_new_label_counts_as_a_change():
    script = Script(([1, 1], [1.0, 1.0]), ([1, 0], [0.1, 1.0]), ([1, 0], [0.1, 1.0]))
    found = self_train(script.fit, script.guess, threshold=1.0)
    assert script.seen == [([], None), ([0, 1], [1, 1]), ([1], [0])]
    assert found.rounds == [{"chosen": 2, "changed": 2}, {"chosen": 1, "changed": 2}]


def test_no_rounds_or_nothing_sure_is_the_supervised_model():
    script = Script(([0], [0.5]))
    assert self_train(script.fit, script.guess, rounds=0).model == 1
    assert self_train(Script(([0], [0.5])).fit, script.guess, threshold=0.6).rounds == []
    endless = Script(([0], [1.0]), ([1], [1.0]), ([0], [1.0]), ([1], [1.0]))
    assert len(self_train(endless.fit, endless.guess, rounds=3).rounds) == 3


def heaps(seed, pool=300):
    rng = np.random.default_rng(seed)
    centres = np.array([[0.4, 0.3, 0.2, 0.05, 0.05], [0.05, 0.05, 0.2, 0.3, 0.4]])
    truth = rng.integers(0, 2, pool)
    few = [[1, 0, 1, 0, 0], [0, 0, 1, 1, 0]]
    return bags_of_matrix(few), bags_of_matrix([rng.multinomial(10, centres[k]) for k in truth]), truth


def by_logistic(bags, labels, n_classes, weights):
    return fit_logistic(bags, labels, n_classes, weights, ElasticNet(0.0, 0.1))


@pytest.mark.parametrize("fit", [fit_naive_bayes, by_logistic])
def test_documents(fit):
    few, pool, truth = heaps(1)
    alone = (fit(few, [0, 1], 2, None).predict(pool) == truth).mean()
    found = self_train_documents(fit, few, [0, 1], pool, threshold=0.8, rounds=8)
    assert (found.model.predict(pool) == truth).mean() > max(alone, 0.9)
    assert found.rounds[0]["chosen"] < found.rounds[-1]["chosen"] <= pool.size


def test_the_last_model_is_that_of_the_data_with_its_guesses():
    few, pool, _ = heaps(2)
    found = self_train_documents(fit_naive_bayes, few, [0, 1], pool, pool_weight=0.5, threshold=0.8, rounds=1)
    first = fit_naive_bayes(few, [0, 1])
    sure = np.flatnonzero(first.probabilities(pool).max(axis=1) >= 0.8)
    both = np.concatenate([np.zeros((2, 5)), np.zeros((len(sure), 5))])
    both[:2] = [[1, 0, 1, 0, 0], [0, 0, 1, 1, 0]]
    for row, n in enumerate(sure, start=2):
        run = slice(pool.indptr[n], pool.indptr[n + 1])
        both[row, pool.indices[run]] = pool.counts[run]
    labels = np.concatenate([[0, 1], first.predict(select_bags(pool, sure))])
    again = fit_naive_bayes(bags_of_matrix(both), labels, 2, np.concatenate([[1, 1], np.full(len(sure), 0.5)]))
    np.testing.assert_allclose(found.model.log_features, again.log_features, rtol=0, atol=1e-12)


def test_sequences():
    """Each round trains on whole sequences with their best labelling; the guesses are the model's own."""
    problem = random_problem(3, 3, 6, 2, [4] * 60, kinds=[BOTH] * 6)._replace(weights=[1.0] * 60)
    packed = pack(problem)
    few, pool = select(packed.dataset, np.arange(15)), select(packed.dataset, np.arange(15, 60))
    trained_on = []

    def fit(data):
        trained_on.append(data)
        return minimise("lbfgs", ChainObjective(data, packed.layout), ElasticNet(0.0, 0.5), max_iterations=50).theta

    found = self_train_sequences(fit, few, pool, packed.layout, pool_weight=0.5, threshold=0.5, rounds=1)
    theta = fit(few)
    labels = decode.viterbi(pool, packed.layout, theta)
    sure = np.flatnonzero(np.exp(decode.sequence_log_probability(pool, packed.layout, theta, labels)) >= 0.5)
    assert 0 < len(sure) < 45 and found.rounds == [{"chosen": len(sure), "changed": len(sure)}]
    data = trained_on[1]
    assert len(data.weights) == 15 + len(sure) and data.weights.tolist() == [1.0] * 15 + [0.5] * len(sure)
    guessed = np.concatenate([labels[pool.offsets[n] : pool.offsets[n + 1]] for n in sure])
    assert data.labels.tolist() == few.labels.tolist() + guessed.tolist()
    assert found.model.tobytes() == fit(data).tobytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"threshold": 1.5}, "threshold is 1.5: expected a probability"), ({"rounds": -1}, "rounds is -1: expected at")],
)
def test_bad_settings_are_refused(options, message):
    script = Script(([0], [1.0]))
    with pytest.raises(EspalierError, match=message):
        self_train(script.fit, script.guess, **options)
    assert script.seen == []


def test_empty_pools_are_refused():
    few, pool, _ = heaps(4)
    with pytest.raises(EspalierError, match="the unlabelled pool is empty"):
        self_train_documents(fit_naive_bayes, few, [0, 1], select_bags(pool, []))
    packed = pack(random_problem(3, 2, 2, 1, [2]))
    with pytest.raises(EspalierError, match="the unlabelled pool is empty: expected at least one sequence"):
        self_train_sequences(None, packed.dataset, select(packed.dataset, np.zeros(0, np.int64)), packed.layout)
