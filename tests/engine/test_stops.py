"""Stop weights: the end of a sequence by enumeration, for losses, solvers, decoders and model files."""

import numpy as np
import pyarrow as pa
import pytest
from chain_problems import dataset_of, problems, random_theta
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import chain, stops, templates
from reference.problems import BOTH, Problem, random_problem

from espalier import CRF, load
from espalier.engine import families, warm_start
from espalier.engine.data.dataset import make_dataset
from espalier.engine.decoding import decode
from espalier.engine.errors import EspalierError
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.model import Model
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import SOLVERS, minimise
from espalier.engine.runtime import threads
from espalier.engine.weights.layout import BIGRAM, make_layout, observation_kinds
from espalier.engine.weights.stop_twins import (
    twins_by_text,
    twins_of,
    with_twin_kinds,
    with_twin_texts,
    with_twins,
)

CLOSE = 1e-10  # sums of a few hundred terms in another order
SLOPE, STEP = 1e-5, 1e-6  # of finite differences
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=40)


def chain_with_stops(problem, pairs="all"):
    """(data with the end, layout, the observation that each twin belongs to)."""
    kinds = np.array(problem.kinds, np.uint8)
    data = with_twins(dataset_of(problem), twins_of(kinds))
    return data, make_layout(pairs, data, problem.n_labels, with_twin_kinds(kinds), problem.start), np.flatnonzero(
        kinds & BIGRAM
    )


def as_oracle(layout, theta, owner, n_observations):
    """(weights, stop) as the oracle takes them."""
    weights, stop = chain.Weights({}, {}, {}), {}
    for family, o, p, y, value in zip(*(column.tolist() for column in layout.slots()), theta.tolist(), strict=True):
        if family == 0 and o >= n_observations:
            stop[int(owner[o - n_observations]), y] = value
        else:
            (weights.mu, weights.start, weights.lam)[family][(o, p, y) if family == 2 else (o, y)] = value
    return weights, stop


@EXAMPLES
@given(problems(), st.integers(0, 2**32), st.sampled_from(["all", "seen"]))
@pytest.mark.nojit
def test_the_end_of_a_sequence_by_enumeration(problem, seed, pairs):
    data, layout, owner = chain_with_stops(problem, pairs)
    theta = random_theta(layout.size, seed)
    weights, stop = as_oracle(layout, theta, owner, len(problem.kinds))
    y = problem.n_labels
    log_z = decode.log_partition(data, layout, theta)
    marginals, best = decode.marginals(data, layout, theta), decode.viterbi(data, layout, theta)
    for n, x in enumerate(problem.sequences):
        run = slice(data.offsets[n], data.offsets[n + 1])
        assert log_z[n] == pytest.approx(stops.log_partition(x, y, weights, stop), abs=CLOSE)
        np.testing.assert_allclose(marginals[run], stops.marginals(x, y, weights, stop), atol=CLOSE)
        top = stops.score(x, stops.best(x, y, weights, stop), weights, stop)
        assert stops.score(x, best[run].tolist(), weights, stop) == pytest.approx(top, abs=CLOSE)
    found = ChainObjective(data, layout).value(theta)
    expected = stops.loss(problem.sequences, problem.labels, y, problem.weights, weights, stop)
    assert found == pytest.approx(expected, abs=CLOSE * max(1.0, abs(expected)))


def test_the_gradient_of_stop_weights_is_that_of_the_oracle():
    problem = random_problem(5, 3, 4, 2, [4, 1, 3])
    data, layout, owner = chain_with_stops(problem)
    theta = random_theta(layout.size, 6)
    gradient = ChainObjective(data, layout).value_and_gradient(theta)[1]

    def loss(theta):
        found = as_oracle(layout, theta, owner, len(problem.kinds))
        return stops.loss(problem.sequences, problem.labels, 3, problem.weights, *found)

    of_twins = np.flatnonzero(layout.slots()[1] >= len(problem.kinds))
    assert len(of_twins) == 3 * len(owner) > 0
    for k in [*of_twins.tolist(), 0, 5]:
        step = np.zeros(layout.size)
        step[k] = STEP
        assert gradient[k] == pytest.approx((loss(theta + step) - loss(theta - step)) / (2 * STEP), abs=SLOPE)


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_finds_the_same_optimum(solver):
    problem = random_problem(21, 3, 4, 2, [4, 3, 2, 4, 1, 3, 2])
    data, layout, _ = chain_with_stops(problem, "seen")
    objective, penalty = ChainObjective(data, layout), ElasticNet(0.0, 0.5)
    best = minimise("lbfgs", objective, penalty, max_iterations=500, tolerance=1e-10)
    found = minimise(solver, ChainObjective(data, layout), penalty, max_iterations=3000, tolerance=1e-8)
    assert found.objective == pytest.approx(best.objective, rel=1e-2 if not SOLVERS[solver].exact else 1e-5)
    assert np.any(best.theta[layout.slots()[1] >= len(problem.kinds)])


def test_only_the_end_counts_as_the_end():
    """One observation everywhere: its twin is at last positions, also of a sequence of one, and nowhere else."""
    problem = Problem(2, [BOTH], True, [[[0], [0], [0]], [[0]]], [[0, 0, 1], [1]], [1.0, 1.0])
    data, layout, owner = chain_with_stops(problem)
    assert data.observations.tolist() == [[0, -1], [0, -1], [0, 1], [0, 1]] and owner.tolist() == [0]
    assert with_twins(dataset_of(problem), None).observations.shape == (4, 1)


def test_observations_without_weights_of_pairs_have_no_twin():
    kinds = observation_kinds(["Ua", "B", "*b", "Uc"])
    assert twins_of(kinds).tolist() == [-1, 4, 5, -1, -1]
    texts = with_twin_texts(["Ua", "B", "*b", "Uc"], kinds)
    assert texts == ["Ua", "B", "*b", "Uc", "$B", "$*b"]
    assert twins_by_text(texts).tolist() == [-1, 4, 5, -1, -1, -1, -1] and twins_by_text(texts[:4]) is None
    assert with_twin_kinds(kinds).tolist() == [1, 2, 3, 1, 1, 1]


# ---- models

LINES = ["*:%x[0,0]", "U:%x[-1,0]", "B"]
WORDS = ["abba", "b", "ab", "bbbab", "ba", "a", "aab"]
LABELS = [["X" if c == "a" else "Y" for c in word[:-1]] + ["Z"] for word in WORDS]


def letters(words):
    return [[[letter] for letter in word] for word in words]


@pytest.fixture(scope="module")
def fitted():
    return CRF(templates=LINES, stop=True, rho1=0.01, rho2=0.1).fit(letters(WORDS), LABELS)


def oracle_of(model):
    """(weights, stop) of a model by its texts."""
    number = {text: i for i, text in enumerate(model.observations)}
    weights, stop = chain.Weights({}, {}, {}), {}
    slots = zip(*(column.tolist() for column in model.layout.slots()), model.theta.tolist(), strict=True)
    for family, o, p, y, value in slots:
        if model.observations[o].startswith("$"):
            stop[number[model.observations[o][1:]], y] = value
        else:
            (weights.mu, weights.start, weights.lam)[family][(o, p, y) if family == 2 else (o, y)] = value
    return weights, stop, number


def test_a_model_says_of_the_end_what_enumeration_says(fitted):
    model, words = fitted.model_, ["ab", "bbb", "a", "abab"]
    weights, stop, number = oracle_of(model)
    assert stop
    for word, labels, rows in zip(words, fitted.predict(letters(words)), fitted.predict_marginals(letters(words)),
                                  strict=True):  # fmt: skip
        x = [[number.get(text, -1) for text in row] for row in templates.expand([[[c] for c in word]], LINES)]
        best = stops.best(x, len(model.labels), weights, stop)
        assert labels == [model.labels[y] for y in best]
        np.testing.assert_allclose(
            [[row[name] for name in model.labels] if isinstance(row, dict) else row for row in rows],
            stops.marginals(x, len(model.labels), weights, stop), atol=CLOSE,
        )  # fmt: skip


def test_it_learns_that_the_last_label_is_another(fitted):
    """Z stands at the end alone: with stop weights that is known, without them it is guessed."""
    held_out = ["babab", "aabba"]
    assert [labels[-1] for labels in fitted.predict(letters(held_out))] == ["Z", "Z"]
    assert all("Z" not in labels[:-1] for labels in fitted.predict(letters(held_out)))


def test_a_saved_model_is_the_same_and_names_its_stop_weights(fitted, tmp_path):
    fitted.save(tmp_path / "a.model")
    again = load(tmp_path / "a.model")
    assert again.stop and again.predict(letters(WORDS)) == fitted.predict(letters(WORDS))
    again.save(tmp_path / "b.model")
    assert (tmp_path / "a.model").read_bytes() == (tmp_path / "b.model").read_bytes()
    table = Model.load(tmp_path / "a.model").table()
    kinds, names = table.column("family").to_pylist(), table.column("observation").to_pylist()
    assert {name for kind, name in zip(kinds, names, strict=True) if kind == "stop"} <= {"$B", "$*:a", "$*:b"}
    assert "stop" in kinds and all(kind == "stop" for kind, name in zip(kinds, names, strict=True) if name[0] == "$")


def test_a_file_in_which_a_stop_weight_is_not_of_the_end_is_refused(fitted, tmp_path):
    table = fitted.model_.table()
    kinds = ["unigram" if kind == "stop" else kind for kind in table.column("family").to_pylist()]
    column = pa.array(kinds, pa.string()).dictionary_encode()
    broken = table.set_column(0, "family", column.cast(table.schema.field("family").type))
    with pa.OSFile(str(tmp_path / "a.model"), "wb") as sink, pa.ipc.new_file(sink, broken.schema) as writer:
        writer.write_table(broken.replace_schema_metadata(table.schema.metadata))
    with pytest.raises(EspalierError, match="a weight of the end is not of an observation at the end"):
        families.load(tmp_path / "a.model")


def test_an_observation_that_has_weights_at_the_end_alone_stays_known():
    """Its own weights are zero, and still it must be found for its twin to be."""
    names = ["B", "U:a", "$B"]
    data = make_dataset([[0, 1, -1], [0, 1, 2]], [0, 1], [0, 2])
    layout = make_layout("all", data, 2, np.array([BIGRAM, 1, 1], np.uint8))
    theta = np.zeros(layout.size)
    theta[layout.unigram_ptr[2]] = 1.5
    model = CrfLabeller.compact(layout, theta, names, ["X", "Y"], ["B", "U:%x[0,0]"], {})
    assert model.observations == ["B", "$B"]
    plain = make_dataset([[0], [0], [0]], None, [0, 2, 3])
    assert model.scores(plain)[0].tolist() == [[0.0, 0.0], [1.5, 0.0], [1.5, 0.0]]


def test_threads_do_not_matter(tmp_path):
    found = set()
    try:
        for count in (1, 2, 5):
            threads.set_threads(count)
            CRF(templates=LINES, stop=True, rho1=0.01).fit(letters(WORDS), LABELS).save(tmp_path / "a.model")
            found.add((tmp_path / "a.model").read_bytes())
    finally:
        threads.set_threads(None)
    assert len(found) == 1


def test_without_them_a_model_is_what_it_was():
    plain = CRF(templates=LINES, rho1=0.01).fit(letters(WORDS), LABELS)
    assert "stop" not in plain.model_.info and not any(text[0] == "$" for text in plain.model_.observations)
    assert plain.model_.table().column("family").chunk(0).dictionary.to_pylist() == ["unigram", "start", "bigram"]


def test_attributes_have_an_end_too(fitted):
    found = CRF(stop=True, rho1=0.01).fit(WORDS_AS_LISTS, LABELS)
    assert [row[-1] for row in found.predict(WORDS_AS_LISTS)] == ["Z"] * len(WORDS)


WORDS_AS_LISTS = [list(word) for word in WORDS]


def test_a_start_has_the_stop_weights_of_the_model_before(fitted):
    model = fitted.model_
    kinds = np.array([1 if text[0] in "U$" else observation_kinds([text])[0] for text in model.observations], np.uint8)
    layout = make_layout("all", make_dataset(np.zeros((1, 1)), [0], [0, 1]), len(model.labels), kinds)
    theta = warm_start.starting_point(model, layout, model.observations, model.labels)
    twin = np.array([text[0] == "$" for text in model.observations])
    of_twins = twin[layout.slots()[1]]
    assert sorted(theta[of_twins][theta[of_twins] != 0.0]) == sorted(model.theta[twin[model.layout.slots()[1]]])
    again = CRF(templates=LINES, stop=True, rho1=0.01, rho2=0.1).fit(letters(WORDS), LABELS, start_from=fitted)
    assert again.trace_[0]["objective"] == pytest.approx(fitted.trace_[-1]["objective"], rel=1e-12)


@pytest.mark.parametrize("family, why", [("memm", "normalised given the one before it"), ("hmm", "in any case")])
def test_other_families_refuse_it(family, why):
    with pytest.raises(EspalierError, match=f"stop is True and family '{family}': .*{why}"):
        CRF(templates=LINES, family=family, stop=True).fit(letters(WORDS), LABELS)


def test_a_search_for_the_penalty_has_them():
    words = [["".join(np.random.default_rng(n).choice(list("ab"), 4))] for n in range(40)]
    sequences = [list(word[0]) for word in words]
    labels = [["X" if c == "a" else "Y" for c in row[:-1]] + ["Z"] for row in sequences]
    found = CRF(stop=True, rho1="auto", dev_share=0.3).fit(sequences, labels)
    assert found.score(sequences, labels) == 1.0


def test_stops_without_pairs_are_refused():
    """They once were taken in silence and did nothing."""
    with pytest.raises(EspalierError) as refused:
        CRF(["U:%x[0,0]"], stop=True).fit([[["a"]]], [["X"]])
    assert str(refused.value) == (
        "stop is true and no template has weights for pairs of labels, whose end this is: add template B, or set "
        "stop to false"
    )
