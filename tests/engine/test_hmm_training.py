"""Training of hidden Markov models against enumeration: what is expected, what never falls, what is refused."""

import numpy as np
import pytest
from reference import hmm as oracle
from test_hmm import LABELS, OBSERVATIONS, STREAM, TEMPLATES, dataset_of, drawn, local, written_down

from espalier.engine.data.dataset import any_in_sequence, make_dataset, select
from espalier.engine.errors import EspalierError
from espalier.engine.families import hmm
from espalier.engine.families.hmm_options import DISCRIMINATIVE, NEEDS_LABELS, TRAININGS, HmmOptions
from espalier.engine.families.hmm_space import make_space, maximised, rare_counts
from espalier.engine.families.hmm_training import HmmData, HmmStart, emitting, fit_tables, space_of
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.optimise.stepwise import ForgettingMean, in_order
from espalier.engine.runtime import threads

CLOSE = 1e-10
RISE = 1e-9  # of an objective by rounding, as a share of it
SET = {0, 2}


def mixed(seed, silent=2):
    """Labelled, partly labelled and unlabelled sequences: rows, what is known for the oracle, a data set, weights."""
    rows, labels, weights = drawn(seed, lengths=(4, 2, 3, 1, 4, 3, 2, 3))
    random = np.random.default_rng(seed)
    known = [list(row) for row in labels]
    for n in (2, 4, 5):
        for t in range(len(known[n])):
            known[n][t] = (known[n][t], None, SET)[random.integers(0, 3)]
    known[2][0], known[4][0] = None, SET
    for n in range(len(rows) - silent, len(rows)):
        known[n] = [None] * len(rows[n])
    coded = [[-1 if k is None else -2 if k == SET else k for k in row] for row in known]
    flat, sets = np.concatenate(coded).astype(np.int32), np.array([[y in SET for y in range(3)]])
    return rows, known, dataset_of(rows, None, weights)._replace(labels=flat, label_sets=sets), weights


def fitted_tables(data, options, start=None):
    return fit_tables(space_of(data, 3, STREAM, emitting(TEMPLATES), options), data, options, start=start)


def own_cells(space):
    """What `maximise` of the oracle calls own, of the two columns of test_hmm."""
    _, of, _, label = space.emissions.slots()
    texts = [(STREAM[x], OBSERVATIONS[x].partition(":")[2], y) for x, y in zip(of, label, strict=True)]
    return [{(text, int(y)) for k, text, y in texts if k == column} for column in (0, 1)]


@pytest.mark.parametrize("training", ["baum-welch", "viterbi"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_iteration_is_that_of_the_oracle(training, seed):
    rows, known, data, weights = mixed(seed)
    smoothing, rare = 0.05, 1
    whole = [n for n, row in enumerate(known) if all(isinstance(k, int) for k in row)]
    space = make_space(data, 3, STREAM, emitting(TEMPLATES), anywhere=True)
    labelled = oracle.counts([rows[n] for n in whole], [known[n] for n in whole], [weights[n] for n in whole], 3, 2)
    every = oracle.counts(rows, [[0] * len(row) for row in rows], [0.0] * len(rows), 3, 2)
    columns = [{x: labelled.columns[k].get(x, [0.0] * 3) for x in every.columns[k]} for k in (0, 1)]
    begin = labelled._replace(columns=columns)
    scarce = [[sum(row[y] for row in column.values() if sum(row) < rare + 1) for y in range(3)] for column in columns]
    np.testing.assert_allclose(rare_counts(space, space.amounts(HmmData(space, data).counted).cells, rare), scarce)
    model = oracle.maximise(begin, own_cells(space), smoothing, scarce)
    step = oracle.expected_counts if training == "baum-welch" else oracle.likeliest_counts
    objectives = []
    for iteration in range(4):
        counts, value = step(model, rows, known, weights, 3, 2)
        objectives.append(-(value + oracle.prior(model, smoothing, scarce)))
        if iteration < 3:
            model = oracle.maximise(counts, own_cells(space), smoothing, scarce)
    found = fitted_tables(data, HmmOptions(training, smoothing, rare, max_iterations=3, tolerance=0.0)
    )
    assert [record["objective"] for record in found.trace] == pytest.approx(objectives, rel=CLOSE)
    assert np.all(np.diff(objectives) <= RISE * np.abs(objectives[1:]))
    labeller = hmm.labeller_of(found, OBSERVATIONS, LABELS, TEMPLATES, {})
    for sequence in [[("a", "X"), ("z", "Y"), ("b", "Z")], [("?", "?")], *drawn(9)[0][:3]]:
        ours = local(labeller, dataset_of([sequence]))
        assert labeller.log_partition(ours)[0] == pytest.approx(oracle.log_probability(model, sequence), abs=CLOSE)
        np.testing.assert_allclose(labeller.marginals(ours), oracle.marginals(model, sequence), atol=CLOSE)


def test_a_step_of_the_worked_example_has_its_printed_digits():
    example, sequence = oracle.worked_example()
    space, probabilities = written_down(example, "abc")
    ids = np.array([["abc".index(symbol)] for (symbol,) in sequence])
    data = HmmData(space, make_dataset(ids, None, np.array([0, 4])))
    counts, value = data.expected(space.theta(probabilities))
    assert np.exp(value) == pytest.approx(0.00615312, abs=1e-12)
    after = maximised(space, space.amounts(counts), 1e-12, np.zeros((1, 3)))
    assert np.append(after.pairs[0], after.last[0]) == pytest.approx([0.4668, 0.4551, 0.0782, 0.0], abs=5e-5)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("training", ["baum-welch", "viterbi", *sorted(DISCRIMINATIVE)])
def test_the_objective_never_gets_worse(training, seed):
    rows, labels, weights = drawn(seed, lengths=(5, 3, 4, 2, 6, 3))
    data = dataset_of(rows, labels, weights) if training in DISCRIMINATIVE else mixed(seed, silent=4)[2]
    found = fitted_tables(data, HmmOptions(training, 0.01, max_iterations=40, tolerance=0.0, restarts=2)
    )
    values = np.array([record["objective"] for record in found.trace])
    assert np.all(np.diff(values) <= RISE * np.abs(values[1:])) and values[-1] < values[0]
    p = found.probabilities
    assert p.first.sum() == pytest.approx(1) and np.allclose(p.pairs.sum(axis=1) + p.last, 1)
    np.testing.assert_allclose(found.space.by_label(p.cells) + p.unseen + p.unknown, 1)


@pytest.mark.parametrize("training", ["baum-welch", "viterbi"])
def test_with_all_labels_it_is_counting(training):
    rows, labels, weights = drawn(1)
    data = dataset_of(rows, labels, weights)
    counted = fitted_tables(data, HmmOptions("counts"))
    found = fitted_tables(data, HmmOptions(training, max_iterations=5))
    for ours, theirs in zip(found.probabilities, counted.probabilities, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=CLOSE)


def test_conditional_training_stays_below_the_best_chain_with_the_same_features():
    """The probabilities of a generative model are weights of a chain that must add up to one."""
    rows, labels, weights = drawn(5, lengths=(6, 5, 7, 4, 6))
    data = dataset_of(rows, labels, weights)
    counted = fitted_tables(data, HmmOptions("conditional", 0.1, max_iterations=1))
    found = fitted_tables(data, HmmOptions("conditional", 0.1, max_iterations=300, tolerance=0.0))
    objective = ChainObjective(HmmData(found.space, data).labelled, found.space.layout)
    chain = minimise("lbfgs", objective, ElasticNet(0.0, 1e-6), None, 2000, 1e-12).objective
    assert chain - 1e-3 <= found.objective < counted.trace[0]["objective"]
    theta = found.space.theta(found.probabilities)
    assert objective.value(theta) == pytest.approx(found.objective, rel=CLOSE)


def test_power_one_is_conditional_training():
    rows, labels, weights = drawn(2)
    data = dataset_of(rows, labels, weights)
    one, other = (
        fitted_tables(data, HmmOptions(name, 0.1, power=1.0, max_iterations=7))
        for name in ("mmi", "conditional")
    )
    assert one.objective == other.objective


def test_alike_in_all_labels_nothing_would_be_learned_so_chance_begins():
    rows = drawn(4, lengths=(5, 6, 4, 5))[0]
    data = dataset_of(rows)
    found = [fitted_tables(data, HmmOptions("baum-welch", seed=seed, max_iterations=30))
             for seed in (0, 0, 1)]  # fmt: skip
    assert found[0].objective == found[1].objective != found[2].objective
    assert found[0].objective < found[0].trace[0]["objective"] - 0.1
    several = fitted_tables(data, HmmOptions("baum-welch", restarts=4, max_iterations=30))
    assert several.objective <= found[0].objective


@pytest.mark.parametrize("training", ["baum-welch", "viterbi", "conditional", "mce"])
def test_the_same_bytes_for_any_threads_and_weight_two_is_a_duplicate(training):
    rows, labels, _ = drawn(3, lengths=(5, 3, 4, 6, 2, 3))
    hidden = labels if training in DISCRIMINATIVE else [*labels[:3], *([-1] * len(row) for row in rows[3:])]
    options = HmmOptions(training, max_iterations=6, tolerance=0.0)
    found = []
    before = threads.threads()
    try:
        for count in (1, 2, 8):
            threads.set_threads(count)
            found.append(fitted_tables(dataset_of(rows, hidden), options))
    finally:
        threads.set_threads(before)
    assert len({b"".join(part.tobytes() for part in one.probabilities) for one in found}) == 1
    heavy = dataset_of(rows, hidden, [1.0, 2.0, 1.0, 1.0, 2.0, 1.0])
    twice = dataset_of([*rows, rows[1], rows[4]], [*hidden, hidden[1], hidden[4]])
    one, other = (fitted_tables(data, options) for data in (heavy, twice))
    for ours, theirs in zip(one.probabilities, other.probabilities, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


@pytest.mark.parametrize("training", ["counts", *sorted(DISCRIMINATIVE)])
def test_what_needs_all_labels_says_so(training):
    with pytest.raises(EspalierError, match=f"has no label of its own: hmm.training is {training}, which needs"):
        fitted_tables(dataset_of([[("a", "X")] * 2], [[0, -1]]), HmmOptions(training))


def test_an_unknown_training_is_named():
    with pytest.raises(EspalierError, match="training is 'magic': expected one of counts, baum-welch"):
        fitted_tables(dataset_of([[("a", "X")]], [[0]]), HmmOptions("magic"))


# ---- step by step


def stepwise_by_hand(data, options, passes):
    """The whole statistics vector forgotten and renewed batch by batch, every probability made anew each time."""
    space = make_space(data, 3, STREAM, emitting(TEMPLATES), anywhere=True)
    whole = np.flatnonzero(~any_in_sequence(data, data.labels < 0))
    counted = HmmData(space, select(data, whole))
    scarce = rare_counts(space, space.amounts(counted.counted).cells, options.rare)
    mu, updates, weight = counted.counted / counted.weight, 0, data.weights.sum()
    for turn in range(1, passes + 1):
        order = in_order(np.diff(data.offsets), options.order, options.seed, turn)
        for begin in range(0, len(order), options.batch):
            batch = HmmData(space, select(data, np.sort(order[begin : begin + options.batch])))
            theta = space.theta(maximised(space, space.amounts(weight * mu), options.smoothing, scarce))
            eta = (updates + 2) ** -options.alpha
            mu, updates = (1 - eta) * mu + eta * batch.expected(theta)[0] / batch.weight, updates + 1
    return maximised(space, space.amounts(weight * mu), options.smoothing, scarce)


@pytest.mark.parametrize("order", ["random", "short", "long"])
@pytest.mark.parametrize("batch", [1, 3, 100])
def test_stepwise_is_the_obvious_way_batch_by_batch(batch, order):
    data = mixed(3)[2]
    options = HmmOptions("stepwise", 0.02, alpha=0.6, batch=batch, order=order, max_iterations=3, tolerance=0.0)
    found = fitted_tables(data, options)
    for ours, theirs in zip(found.probabilities, stepwise_by_hand(data, options, 3), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-12)
    assert found.updates == 3 * -(-8 // batch) and len(found.trace) == 3


def test_all_at_once_with_a_whole_step_is_a_step_of_expectation_maximisation(monkeypatch):
    data = mixed(4)[2]
    monkeypatch.setattr(ForgettingMean, "step", lambda self: 1.0)
    labelled = select(data, np.flatnonzero(~any_in_sequence(data, data.labels < 0)))
    options = HmmOptions("baum-welch", max_iterations=3, tolerance=0.0)

    space = space_of(data, 3, STREAM, emitting(TEMPLATES), options)
    counted = HmmData(space, labelled).counted
    scarce = rare_counts(space, space.amounts(counted).cells, options.rare)
    share = space.amounts(counted * data.weights.sum() / labelled.weights.sum())
    begin = HmmStart(maximised(space, share, options.smoothing, scarce), None, 0.0, 0)
    one = fitted_tables(data, options._replace(training="stepwise", batch=100))
    other = fitted_tables(data, options, start=begin)
    for ours, theirs in zip(one.probabilities, other.probabilities, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-13)


def test_unlabelled_data_alone_are_learned_from_step_by_step():
    data = dataset_of(drawn(6, lengths=(5, 6, 4, 5, 3, 7))[0])
    found = fitted_tables(data, HmmOptions("stepwise", batch=2, max_iterations=20))
    assert found.objective < found.trace[0]["objective"] and np.isfinite(found.objective)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [({"alpha": 0.3}, "alpha is 0.3: expected"), ({"batch": 0}, "hmm.batch is 0"), ({"order": "up"}, "order is 'up'")],
)
def test_settings_of_steps_that_are_none(wrong, text):
    with pytest.raises(EspalierError, match=text):
        fitted_tables(mixed(1)[2], HmmOptions("stepwise", **wrong))


def test_a_mean_forgets_in_one_number_and_never_loses_itself():
    mean, plain = ForgettingMean(np.arange(4.0), 0.5), np.arange(4.0)
    for k in range(2000):
        where, new = np.array([k % 4]), np.array([float(k % 7)])
        eta = (k + 2) ** -0.5
        plain *= 1 - eta
        plain[where] += eta * new
        mean.update(where, new)
    np.testing.assert_allclose(mean.take(), plain, rtol=1e-9)


# ---- going on from an earlier model


def test_an_earlier_model_is_what_a_new_one_begins_with():
    data = mixed(5)[2]
    options = HmmOptions("baum-welch", 0.02, max_iterations=4, tolerance=0.0)
    found = fitted_tables(data, options)
    model = hmm.labeller_of(found, OBSERVATIONS, LABELS, TEMPLATES, {})
    start = hmm.start_from(model, found.space, OBSERVATIONS, LABELS)
    for ours, theirs in zip(start.probabilities, found.probabilities, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(start.totals, found.totals)
    assert start.weight == pytest.approx(data.weights.sum()) and start.updates == 0
    assert fitted_tables(data, options, start).trace[0]["objective"] == pytest.approx(found.objective, rel=1e-9)


def test_new_words_and_labels_have_a_place_in_what_is_begun_with():
    found = fitted_tables(mixed(5)[2], HmmOptions("baum-welch", 0.02, max_iterations=4))
    model = hmm.labeller_of(found, OBSERVATIONS, LABELS, TEMPLATES, {})
    observations, labels = [*OBSERVATIONS[1:], "U0:new"], ["new", *LABELS]
    stream = np.array([*STREAM[1:], 0])
    random = np.random.default_rng(0)
    ids = np.column_stack([random.choice([0, 1, 2, 6], 12), random.choice([3, 4], 12), np.full(12, 5)])
    data = make_dataset(ids, random.integers(0, 4, 12), np.array([0, 5, 12]))
    options = HmmOptions("stepwise", 0.02, batch=1, max_iterations=2)
    space = space_of(data, 4, stream, emitting(TEMPLATES), options)
    start = hmm.start_from(model, space, observations, labels)
    p = start.probabilities
    assert all(np.all(part >= 0) and np.all(np.isfinite(part)) for part in p)
    np.testing.assert_allclose(space.by_label(p.cells) + p.unseen + p.unknown, 1)
    gone_on = fit_tables(space, data, options, start=start)
    assert gone_on.updates == 4 + int(start.weight) and gone_on.weight == pytest.approx(start.weight + 2)
    again = hmm.labeller_of(gone_on, observations, labels, TEMPLATES, {})
    assert again.info["hmm"]["updates"] == gone_on.updates and np.all(np.isfinite(again.theta))


def test_what_was_learned_is_forgotten_step_by_step_and_not_at_once():
    """A model that goes on with a few other sequences stays nearer to itself the more steps it has behind it."""
    rows, labels, weights = drawn(0, lengths=(6, 5, 7, 4, 6, 5))
    found = fitted_tables(dataset_of(rows, labels, weights), HmmOptions("stepwise", 0.01, batch=1, max_iterations=30))
    model = hmm.labeller_of(found, OBSERVATIONS, LABELS, TEMPLATES, {})
    others, other_labels, _ = drawn(7, lengths=(3, 4))
    data, moved = dataset_of(others, other_labels), []
    options = HmmOptions("stepwise", 0.01, batch=1, max_iterations=1)
    space = space_of(data, 3, STREAM, emitting(TEMPLATES), options)
    for updates in (0, 10, 1000):
        start = hmm.start_from(model, space, OBSERVATIONS, LABELS)._replace(updates=updates, weight=0.0)
        after = fit_tables(space, data, options, start=start)
        moved.append(float(np.abs(after.probabilities.pairs - start.probabilities.pairs).sum()))
    assert moved[0] > moved[1] > moved[2] > 0.0
    counted = hmm.start_from(model, space, OBSERVATIONS, LABELS)._replace(updates=0, weight=1000.0)
    assert fit_tables(space, data, options, start=counted).updates == 1002


def test_a_model_of_other_templates_is_no_start():
    found = fitted_tables(mixed(5)[2], HmmOptions("baum-welch", max_iterations=1))
    model = hmm.labeller_of(found, OBSERVATIONS, LABELS, TEMPLATES, {})
    space = found.space.__class__(found.space.emissions, found.space.stream, np.array([True, True]))
    with pytest.raises(EspalierError, match="the earlier model has 3 templates, the data have 2"):
        hmm.start_from(model, space, OBSERVATIONS, LABELS)


# ---- data that teach little


def finite(model):
    states = model.states()
    np.testing.assert_allclose(states.start.sum(), 1.0, atol=CLOSE)
    np.testing.assert_allclose(states.transitions.sum(axis=1) + states.final, 1.0, atol=CLOSE)
    for k in model.streams():
        np.testing.assert_allclose(model.stream(k).emissions.sum(axis=0), 1.0, atol=CLOSE)
    return bool(np.all(np.isfinite(model.theta)))


def trained(data, training, **options):
    options = HmmOptions(training, 0.01, max_iterations=5, tolerance=0.0, batch=2, **options)
    return hmm.fit(data, OBSERVATIONS, STREAM, LABELS, TEMPLATES, {}, options)


@pytest.mark.parametrize("training", sorted(TRAININGS))
def test_a_label_that_emits_nothing(training):
    """R is in no sequence: known words are all alike to it, and it is never the answer."""
    rows, labels, weights = drawn(5)
    data = dataset_of(rows, [[min(y, 1) for y in row] for row in labels], weights)
    model = trained(data, training)
    assert finite(model) and not np.any(model.best(local(model, data)) == 2)
    *known, unknown = model.stream(0).emissions[:, 2]
    np.testing.assert_allclose(known, known[0], rtol=1e-6)
    assert unknown >= known[0] * (1 - 1e-6)


@pytest.mark.parametrize("training", sorted(TRAININGS))
def test_a_word_that_was_never_seen(training):
    """It is likely and labelled, also at the only position, and with no rare word in training to go by."""
    rows, labels, weights = drawn(6)
    for rare in (0, 1):
        model = trained(dataset_of(rows, labels, weights), training, rare=rare)
        data = local(model, dataset_of([[("?", "?")], [("a", "X"), ("?", "Y")]]))
        assert np.all(np.isfinite(model.log_likelihood(data))) and np.all(model.best(data) >= 0)
        np.testing.assert_allclose(model.marginals(data).sum(axis=1), 1.0, atol=CLOSE)


@pytest.mark.parametrize("training", sorted(TRAININGS))
def test_a_class_that_no_token_has(training):
    """A template that says nothing of any training token, as a list of names does without a hit, tells labels nothing.

    All that it can emit is the unknown one, certainly; the model is that of the other template.
    """
    rows, labels, weights = drawn(8)
    data = dataset_of(rows, labels, weights)
    said = np.flatnonzero(STREAM == 0)
    assert np.array_equal(said, np.arange(len(said)))  # so that numbers stay
    empty = data._replace(observations=np.where(STREAM[data.observations] == 0, data.observations, np.int32(-1)))
    alone = empty._replace(observations=np.ascontiguousarray(empty.observations[:, :1]))
    options, texts = HmmOptions(training, 0.01, max_iterations=3, tolerance=0.0, batch=2), OBSERVATIONS[: len(said)]
    both = hmm.fit(empty, texts, STREAM[said], LABELS, TEMPLATES, {}, options)
    one = hmm.fit(alone, texts, STREAM[said], LABELS, TEMPLATES[:1], {}, options)
    assert finite(both) and len(both.stream(1).observations) == 0
    np.testing.assert_allclose(both.stream(1).emissions, 1.0, atol=CLOSE)
    hit = local(both, dataset_of([[("a", "X"), ("?", "?")]]))  # and a hit later is one that training never had
    plain = one.renumbered(hit._replace(observations=hit.observations[:, :1]), both.observations)
    np.testing.assert_allclose(both.marginals(hit), one.marginals(plain), atol=CLOSE)
    np.testing.assert_allclose(both.log_likelihood(hit), one.log_likelihood(plain), atol=CLOSE)


@pytest.mark.parametrize("training", sorted(NEEDS_LABELS))
def test_without_a_single_label_there_is_nothing_to_count(training):
    rows, labels, _ = drawn(7)
    with pytest.raises(EspalierError, match=f"position 0 has no label of its own: hmm.training is {training}, which"):
        trained(dataset_of(rows, [[-1] * len(row) for row in labels]), training)


@pytest.mark.parametrize("training", sorted(set(TRAININGS) - NEEDS_LABELS))
def test_without_a_single_label_chance_begins(training):
    """The same for the same seed, labels that are unlike each other, and never less likely with each iteration."""
    rows, labels, _ = drawn(7, lengths=(4, 3, 5, 2, 4, 3))
    data = dataset_of(rows, [[-1] * len(row) for row in labels])
    model, again, other = (trained(data, training, seed=seed) for seed in (0, 0, 1))
    assert finite(model) and np.array_equal(model.theta, again.theta) and not np.array_equal(model.theta, other.theta)
    table = model.stream(0).emissions
    assert not np.allclose(table[:, 0], table[:, 1])
    if training == "baum-welch":
        options = HmmOptions(training, 0.01, max_iterations=5, tolerance=0.0)
        objectives = [record["objective"] for record in fitted_tables(data, options).trace]
        assert np.all(np.diff(objectives) <= RISE * np.abs(objectives[1:]))
