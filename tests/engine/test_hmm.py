"""Hidden Markov models against the oracle, and what they answer to what they have not seen."""

import math

import numpy as np
import pytest
from reference import hmm as oracle
from reference import memm as automata

from espalier import CRF
from espalier.engine.data.dataset import make_dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families import hmm, load
from espalier.engine.families.hmm_options import HmmOptions
from espalier.engine.families.hmm_space import HmmAmounts, HmmSpace
from espalier.engine.lattice import blocks
from espalier.engine.weights.layout import _assemble

CLOSE = 1e-10  # sums of a few dozen logarithms in another order
PRINTED = 5e-5  # four digits
SYMBOLS, MARKS, LABELS = "abcd", "XY", ["P", "Q", "R"]
TEMPLATES = ["U0:%x[0,0]", "U1:%x[0,1]", "B"]
OBSERVATIONS = [*(f"U0:{s}" for s in SYMBOLS), *(f"U1:{m}" for m in MARKS), "B"]
STREAM = np.array([0] * 4 + [1] * 2 + [2])


def drawn(seed, lengths=(3, 1, 4, 2, 5), missing=0.15):
    """Sequences as the oracle takes them and as a data set; some observations are missing."""
    random = np.random.default_rng(seed)
    rows = []
    for length in lengths:
        pairs = zip(random.integers(0, 4, length), random.integers(0, 2, length), strict=True)
        rows.append([(SYMBOLS[a], MARKS[b]) for a, b in pairs])
    labels = [random.integers(0, 3, length).tolist() for length in lengths]
    return rows, labels, (random.random(len(lengths)) + 0.5).tolist()


def dataset_of(rows, labels=None, weights=None):
    """-1 is what the vocabulary does not have."""
    known = {text: i for i, text in enumerate(OBSERVATIONS)}
    ids = [[known.get(f"U0:{a}", -1), known.get(f"U1:{b}", -1), known["B"]] for row in rows for a, b in row]
    flat = None if labels is None else [y for row in labels for y in row]
    return make_dataset(np.array(ids), flat, np.cumsum([0, *map(len, rows)]), weights)


def fitted(rows, labels, weights, smoothing=0.1, rare=1):
    options = HmmOptions("counts", smoothing, rare)
    return hmm.fit(dataset_of(rows, labels, weights), OBSERVATIONS, STREAM, LABELS, TEMPLATES, {}, options)


def local(model, data):
    return model.renumbered(data, OBSERVATIONS)


@pytest.mark.parametrize("rare", [0, 1, 2])
@pytest.mark.parametrize("smoothing", [1e-5, 0.5])
def test_the_model_is_that_of_the_oracle(smoothing, rare):
    rows, labels, weights = drawn(rare)
    expected = oracle.estimate(oracle.counts(rows, labels, weights, 3, 2), smoothing, rare)
    model = fitted(rows, labels, weights, smoothing, rare)
    tests = [[("a", "X"), ("z", "Y"), ("b", "Z")], [("?", "?")], *drawn(9)[0][:3]]
    for sequence in tests:
        data = local(model, dataset_of([sequence]))
        assert model.log_partition(data)[0] == pytest.approx(oracle.log_probability(expected, sequence), abs=CLOSE)
        np.testing.assert_allclose(model.marginals(data), oracle.marginals(expected, sequence), atol=CLOSE)
        assert tuple(model.best(data)) == oracle.best(expected, sequence)
        pairs = blocks.pair_marginals(model.lattices(data), (len(sequence), 3))
        np.testing.assert_allclose(pairs, oracle.pair_marginals(expected, sequence), atol=CLOSE)
        for labelling, log_p in oracle.enumerate_all(expected, sequence).items():
            joint = blocks.score(model.lattices(data), 1, np.array(labelling))[0]
            assert joint == pytest.approx(log_p, abs=CLOSE)
    joints = (oracle.joint(expected, x, y) for x, y in zip(rows, labels, strict=True))
    total = -math.fsum(w * value for w, value in zip(weights, joints, strict=True))
    assert model.info["objective"] == pytest.approx(total, abs=CLOSE)


def written_down(model, symbols):
    """An oracle's model with one stream: the cells are what is not zero."""
    n_labels = len(model.start)
    rows = [[y for y in range(n_labels) if model.emissions[0][s][y] > 0] for s in symbols]
    none = np.zeros(len(symbols), np.int64), np.empty(0, np.int32)
    emissions = _assemble(n_labels, [(np.array([len(row) for row in rows]), np.concatenate(rows)), none, none])
    cells = np.array([model.emissions[0][s][y] for s, row in zip(symbols, rows, strict=True) for y in row])
    space = HmmSpace(emissions, np.zeros(len(symbols), np.int64), np.array([True]))
    nothing = np.zeros((1, n_labels))
    tables = (np.array(part) for part in (model.start, model.transitions, model.final))
    return space, HmmAmounts(*tables, cells, nothing, np.array(model.unknown))


def test_the_worked_example_has_its_printed_digits():
    example, sequence = oracle.worked_example()
    observations, states = ["U:a", "U:b", "U:c"], ["1", "2", "3"]
    model = hmm.make_labeller(*written_down(example, "abc"), observations, states, ["U:%x[0,0]"], {})
    known = {text: i for i, text in enumerate(model.observations)}
    ids = np.array([[known[f"U:{symbol}"]] for (symbol,) in sequence])
    data = make_dataset(ids, None, np.array([0, 4]))
    assert math.exp(model.log_partition(data)[0]) == pytest.approx(0.00615312, abs=1e-12)
    found = model.nbest(data, 9)
    assert np.sum(found.scores[0] > -100) == 6  # labellings that are possible
    assert tuple(found.labels[0]) == (0, 0, 1, 2)
    expected = blocks.pair_marginals(model.lattices(data), (4, 3)).sum(axis=0)
    assert expected[0, 0] == pytest.approx(0.8846, abs=PRINTED)
    assert expected[0] / expected[0].sum() == pytest.approx([0.4668, 0.4551, 0.0782], abs=PRINTED)
    assert np.all(np.isfinite(model.theta))


def test_a_sequence_of_weight_two_is_a_duplicate():
    rows, labels, _ = drawn(3)
    heavy = fitted(rows, labels, [1.0, 2.0, 1.0, 3.0, 1.0])
    twice = fitted([*rows, rows[1], rows[3], rows[3]], [*labels, labels[1], labels[3], labels[3]], [1.0] * 8)
    assert heavy.observations == twice.observations
    np.testing.assert_allclose(heavy.theta, twice.theta, atol=CLOSE)


def test_it_tells_the_branches_of_label_bias_apart():
    """Also where one of them is the more frequent (IIS 2.3.2)."""
    robot = automata.robot()
    words = [f"U:{word}" for word in robot.words]
    number = {text: i for i, text in enumerate(words)}
    ids = np.array([[number[f"U:{word}"]] for sentence in robot.sentences for word in sentence])
    offsets = np.arange(len(robot.sentences) + 1) * 5
    data = make_dataset(ids, np.concatenate(robot.labels), offsets, robot.lopsided)
    model = hmm.fit(data, words, np.zeros(len(words), np.int64), robot.states, ["U:%x[0,0]"], {})
    for sentence, right, _ in robot.tests:
        test = make_dataset(np.array([[number[f"U:{word}"]] for word in sentence]), None, np.array([0, 5]))
        assert model.best(model.renumbered(test, words)).tolist() == right


def test_names_of_its_own_observations_are_unlike_all_texts():
    names = hmm._names_beside(["*transitions", "Ufinal", "Ufinal'"], ["U", "U"])
    assert names == ["*transitions'", "Ufinal''", "Uunknown:U", "Uunknown:U'"]


def test_labels_that_are_not_known_are_refused():
    with pytest.raises(EspalierError, match="position 2 has no label of its own: hmm.training is counts"):
        fitted([[("a", "X")] * 3], [[0, 1, -1]], [1.0])


def test_data_of_other_templates_are_refused():
    rows, labels, weights = drawn(4)
    model = fitted(rows, labels, weights)
    with pytest.raises(EspalierError, match="the data have 1 observations at a position, the model has 3 streams"):
        model.best(make_dataset(np.zeros((2, 1), np.int32), None, np.array([0, 2])))


HOSTILE = {
    "no table": lambda said: None,
    "no name of the end": lambda said: said | {"final": 3},
    "unknown of other templates": lambda said: said | {"unknown": said["unknown"][1:]},
    "numbers for names": lambda said: said | {"unknown": [1, 2, 3]},
    "unseen of other labels": lambda said: said | {"unseen": [row[1:] for row in said["unseen"]]},
    "unseen not finite": lambda said: said | {"unseen": [[math.inf] * 3] * 3},
    "unseen in words": lambda said: said | {"unseen": [["a"] * 3] * 3},
    "a run of a template that is none": lambda said: said | {"streams": [[9, sum(n for _, n in said["streams"])]]},
    "runs that are too short": lambda said: said | {"streams": said["streams"][1:]},
    "runs that cancel": lambda said: said | {"streams": [*said["streams"], [0, 5], [0, -5]]},
    "runs beyond all memory": lambda said: said | {"streams": [[0, 2**62], [0, 2**62]]},
    "runs beyond integers": lambda said: said | {"streams": [[0, 2**70]]},
    "runs of fractions": lambda said: said | {"streams": [[0.5, 1.5]]},
    "runs that are none": lambda said: said | {"streams": [[0], [1, 2, 3]]},
    "totals of other labels": lambda said: said | {"totals": [1.0, 2.0]},
    "totals below zero": lambda said: said | {"totals": [1.0, -2.0, 3.0]},
    "totals not finite": lambda said: said | {"totals": [1.0, math.inf, 3.0]},
    "totals that are no numbers": lambda said: said | {"totals": [1.0, math.nan, 3.0]},
    "totals in words": lambda said: said | {"totals": "123"},
    "totals of nothing": lambda said: said | {"totals": None},
    "totals of truths": lambda said: said | {"totals": [True, False, True]},
    "totals in lists": lambda said: said | {"totals": [[1.0], [2.0], [3.0]]},
    "weight below zero": lambda said: said | {"weight": -1.0},
    "weight without end": lambda said: said | {"weight": math.inf},
    "weight in words": lambda said: said | {"weight": "12"},
    "weight beyond integers": lambda said: said | {"weight": 10**400},
    "updates below zero": lambda said: said | {"updates": -1},
    "updates that are no number": lambda said: said | {"updates": math.nan},
    "updates as a list": lambda said: said | {"updates": [3]},
    "updates of nothing": lambda said: said | {"updates": None},
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_file_whose_parts_do_not_fit_is_refused(what, tmp_path):
    """With the right checksum: someone made it so."""
    model = fitted(*drawn(1))
    model.save(tmp_path / "good.model")
    assert load(tmp_path / "good.model").info["hmm"] == model.info["hmm"]
    model.info["hmm"] = HOSTILE[what](model.info["hmm"])
    model.save(tmp_path / "bad.model")
    with pytest.raises(EspalierError, match="bad.model: .*; train it again or restore it"):
        load(tmp_path / "bad.model")


def test_templates_that_emit_nothing_are_refused():
    """Such a model was once trained in silence, and labelled by transitions alone."""
    with pytest.raises(EspalierError, match="no template emits anything, .*: add one that begins with U"):
        CRF(["B"], family="hmm").fit([[["a"], ["b"]]], [["X", "Y"]])
