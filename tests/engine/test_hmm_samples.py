"""Sequences drawn from hidden Markov models: as often as the tables say, and enough to learn the model again."""

import numpy as np
import pytest
from test_hmm import LABELS, OBSERVATIONS, STREAM, TEMPLATES, drawn, fitted
from test_hmm_text import COURSE

from espalier.engine.errors import EspalierError
from espalier.engine.families import FAMILIES, hmm
from espalier.engine.families.hmm_options import HmmOptions
from espalier.engine.importing.hmm_text import read_hmm
from espalier.tasks.answering.samples import columns

MANY = 20_000  # sequences
FIVE = 5.0  # standard errors: of a few hundred frequencies none is farther off


@pytest.fixture(scope="module")
def course():
    model = read_hmm(COURSE.encode(), "a.hmm")
    return model, model.sample(MANY, seed=3)


def as_likely(count, total, probability):
    """Whether frequencies are within five standard errors, and what cannot be never is."""
    error = np.sqrt(np.maximum(probability * (1 - probability), 0.0) / np.maximum(total, 1))
    return np.all(np.abs(count / np.maximum(total, 1) - probability) <= FIVE * error + 1e-12)


def test_frequencies_are_those_of_the_tables(course):
    model, data = course
    states, first, last = model.states(), data.offsets[:-1], data.offsets[1:] - 1
    y = data.labels
    assert as_likely(np.bincount(y[first], minlength=3), MANY, states.start)
    inner = np.setdiff1d(np.arange(1, len(y)), first)
    pairs = np.zeros((3, 3))
    np.add.at(pairs, (y[inner - 1], y[inner]), 1)
    left = np.bincount(y, minlength=3)
    assert as_likely(pairs, left[:, None], states.transitions)
    assert as_likely(np.bincount(y[last], minlength=3), left, states.final)
    stream = model.stream(0)
    emitted = np.zeros((len(stream.emissions), 3))
    place = {x: i for i, x in enumerate([*stream.observations.tolist(), -1])}
    np.add.at(emitted, ([place[x] for x in data.observations[:, 0].tolist()], y), 1)
    assert as_likely(emitted, left, stream.emissions)
    assert left / MANY == pytest.approx(states.visits, rel=0.02)  # the walk expects them so often


def test_counting_samples_learns_the_model_again():
    """With two streams, probabilities that are shared and unknown observations."""
    model = fitted(*drawn(1), smoothing=0.3)
    names = model.observations
    data = model.sample(MANY, seed=1)
    numbers = np.array([OBSERVATIONS.index(name) if name in OBSERVATIONS else -1 for name in [*names, ""]])
    again = hmm.fit(data._replace(observations=numbers[data.observations].astype(np.int32)), OBSERVATIONS, STREAM,
                    LABELS, TEMPLATES, {}, HmmOptions("counts", 1e-5, 0))  # fmt: skip
    before, after = model.states(), again.states()
    for name in ("start", "transitions", "final"):
        np.testing.assert_allclose(getattr(after, name), getattr(before, name), atol=0.02)
    for k in model.streams():
        one, other = model.stream(k), again.stream(k)
        there = {again.observations[x]: i for i, x in enumerate(other.observations)}
        order = [there[names[x]] for x in one.observations]
        np.testing.assert_allclose(other.emissions[order], one.emissions[:-1], atol=0.02)
        np.testing.assert_allclose(other.emissions[-1], one.emissions[-1], atol=0.02)


def test_the_tables_add_up_to_one():
    model = fitted(*drawn(2))
    states = model.states()
    np.testing.assert_allclose(states.start.sum(), 1.0, atol=1e-12)
    np.testing.assert_allclose(states.transitions.sum(axis=1) + states.final, 1.0, atol=1e-12)
    for k in model.streams():
        np.testing.assert_allclose(model.stream(k).emissions.sum(axis=0), 1.0, atol=1e-12)


def test_a_seed_decides(course):
    model, data = course
    again, other = model.sample(MANY, seed=3), model.sample(50, seed=4)
    for one, two in zip(data, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert other.labels.tobytes() != model.sample(50, seed=5).labels.tobytes()


def test_sequences_that_do_not_end_are_cut_off():
    model = read_hmm(b"HMM 2 1\n1\n1 0\n1 0 a\n", "a.hmm")
    assert np.diff(model.sample(3, longest=7).offsets).tolist() == [7, 7, 7]
    assert len(model.sample(0).labels) == 0
    with pytest.raises(EspalierError, match="samples have more than 1,000,000 tokens: draw fewer sequences, or cut"):
        model.sample(2000, longest=1000)


@pytest.mark.parametrize(("options", "message"), [
    ({"n": -1}, "n is -1: expected a whole number of at least 0"),
    ({"n": 1.5}, "n is 1.5: expected a whole number"),
    ({"n": 1, "seed": -1}, "seed is -1: expected a whole number of at least 0"),
    ({"n": 1, "longest": 0}, "longest is 0: expected a whole number of at least 1"),
])  # fmt: skip
def test_what_cannot_be_drawn(course, options, message):
    with pytest.raises(EspalierError, match=message):
        course[0].sample(**options)


def test_columns(course):
    model, _ = course
    text = "".join(columns(model, model.sample(5, seed=0)))
    blocks = text.removesuffix("\n\n").split("\n\n")
    assert len(blocks) == 5
    rows = [line.split("\t") for block in blocks for line in block.split("\n")]
    assert {row[0] for row in rows} <= set("abc") and {row[1] for row in rows} <= set("012")
    two = fitted(*drawn(1), smoothing=0.3)
    rows = [line.split("\t") for line in "".join(columns(two, two.sample(300))).split("\n") if line]
    assert {row[0] for row in rows} == {*"abcd", "<unknown>"} and {row[1] for row in rows} == {"X", "Y", "<unknown>"}
    assert {len(row) for row in rows} == {3}
    two.observations[two.observations.index("U0:a")] = "U0:a\tb"
    with pytest.raises(EspalierError, match="the sample has 'a.tb', which cannot stand in columns"):
        list(columns(two, two.sample(300)))


@pytest.mark.parametrize("name", [name for name, one in FAMILIES.items() if "sample" not in one.can])
def test_other_families_cannot(name):
    model = FAMILIES[name].labeller([], [], [], None, np.empty(0))
    assert model.states() is None
    ways = "set model.family to hmm" if "labels" in FAMILIES[name].can else "no family for such data can"
    with pytest.raises(EspalierError, match=f"^{name} cannot draw sequences: {ways}$"):
        model.sample(1)
    if "likelihood" not in FAMILIES[name].can:
        with pytest.raises(EspalierError, match=f"^{name} cannot say how likely an input is: {ways}$"):
            model.log_likelihood(None)
